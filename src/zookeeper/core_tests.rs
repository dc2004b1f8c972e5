//! What clients get, frame by frame, from a core without sockets: watches and their order, ACLs,
//! sessions and their ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::digest_id;
use crate::code::Refusal;
use crate::core::{Core, Now, Output, Peer, Sasl, Settings, X509};
use crate::data::{Acl, Id, perms};
use crate::jute::{Reader, Write};
use crate::traffic::Traffic;
use crate::tree::Tree;
use crate::watches::ConnectionId;

const SECOND: Duration = Duration::from_secs(1);

/// A core with clients; writes down what each is sent.
struct Bench {
    core: Core,
    now: Now,
    sessions: Vec<(i64, Vec<u8>)>,
    next_connection: u64,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_sasl(Sasl::default())
    }

    fn with_sasl(sasl: Sasl) -> Bench {
        let settings = Settings {
            session_check: SECOND,
            session_timeout_ms_min: 2000,
            session_timeout_ms_max: 20_000,
            multi_read_bytes_max: 1000,
            super_digest: Some(digest_id(b"super:secret")),
            enforce_quota: true,
            skip_acl: false,
            sasl,
            x509: X509::default(),
            container_check: SECOND * 60,
        };
        let now = Now { instant: common::clock::now(), wall_ms: 1000 };
        let core = Core::new(settings, Tree::new(true), [], now);
        Bench { core, now, sessions: Vec::new(), next_connection: 1 }
    }

    /// What was sent since the last time, a line each.
    fn sent(&mut self) -> Vec<String> {
        let output = self.core.take().output;
        output
            .iter()
            .map(|output| match output {
                Output::Close { connection } => format!("{}: closed", connection.0),
                Output::Send { connection, frame, .. } => {
                    let mut reader = Reader::new(&frame[4..]);
                    let (xid, zxid, code) =
                        (reader.int().unwrap(), reader.long().unwrap(), reader.int().unwrap());
                    match xid {
                        -1 => {
                            assert_eq!((zxid, code), (-1, 0));
                            let (kind, state) = (reader.int().unwrap(), reader.int().unwrap());
                            assert_eq!(state, 3);
                            let kind = ["", "created", "deleted", "changed", "children"]
                                [usize::try_from(kind).unwrap()];
                            format!("{}: {kind} {}", connection.0, reader.text().unwrap())
                        }
                        xid => match Refusal::from_code(code) {
                            Some(refusal) => format!("{}: {xid} {refusal:?}", connection.0),
                            None => format!("{}: {xid} ok", connection.0),
                        },
                    }
                }
            })
            .collect()
    }

    fn connect_frame(&mut self, session: i64, password: &[u8], timeout_ms: i32) -> ConnectionId {
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        self.core.attach(connection, Peer::plain(address), Arc::new(Traffic::default()));
        let mut frame = Vec::new();
        frame.int(0);
        frame.long(0);
        frame.int(timeout_ms);
        frame.long(session);
        frame.buffer(Some(password));
        frame.boolean(false);
        self.core.connect(connection, &frame, self.now);
        connection
    }

    /// A new session. Gives the connection; session and password are kept by its number.
    fn connect(&mut self) -> ConnectionId {
        let connection = self.connect_frame(0, &[0; 16], 5000);
        let output = self.core.take().output;
        let [Output::Send { frame, .. }] = &output[..] else { panic!("{output:?}") };
        let mut reader = Reader::new(&frame[4..]);
        let (_version, timeout_ms) = (reader.int().unwrap(), reader.int().unwrap());
        assert_eq!(timeout_ms, 5000);
        let session = reader.long().unwrap();
        self.sessions.push((session, reader.buffer().unwrap().unwrap().to_vec()));
        connection
    }

    fn ask(
        &mut self,
        connection: ConnectionId,
        xid: i32,
        op: i32,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut frame = Vec::new();
        frame.int(xid);
        frame.int(op);
        write(&mut frame);
        self.core.request(connection, &frame, self.now);
    }

    fn create(&mut self, connection: ConnectionId, path: &str, flags: i32) {
        self.create_as(connection, path, flags, &Acl::open());
    }

    fn create_as(&mut self, connection: ConnectionId, path: &str, flags: i32, acl: &[Acl]) {
        self.ask(connection, 1, 1, |out| {
            out.text(path);
            out.buffer(None);
            Acl::write_all(acl, out);
            out.int(flags);
        });
    }

    fn delete(&mut self, connection: ConnectionId, path: &str) {
        self.ask(connection, 2, 2, |out| {
            out.text(path);
            out.int(-1);
        });
    }

    fn set(&mut self, connection: ConnectionId, path: &str) {
        self.ask(connection, 5, 5, |out| {
            out.text(path);
            out.buffer(Some(b"x"));
            out.int(-1);
        });
    }

    /// exists (3), getData (4) or getChildren (8), with a watch.
    fn watch(&mut self, connection: ConnectionId, op: i32, path: &str) {
        self.ask(connection, op, op, |out| {
            out.text(path);
            out.boolean(true);
        });
    }

    fn add_watch(&mut self, connection: ConnectionId, path: &str, mode: i32) {
        self.ask(connection, 106, 106, |out| {
            out.text(path);
            out.int(mode);
        });
    }

    fn authenticate(&mut self, connection: ConnectionId, user_and_password: &[u8]) {
        self.ask(connection, -4, 100, |out| {
            out.int(0);
            out.text("digest");
            out.buffer(Some(user_and_password));
        });
    }

    fn pass(&mut self, time: Duration) {
        let ticks = time.as_millis() / SECOND.as_millis();
        for _ in 0..ticks {
            self.now.instant += SECOND;
            self.now.wall_ms += 1000;
            self.core.tick(self.now);
        }
    }
}

#[test]
fn a_client_hears_of_its_own_change_before_the_reply() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.watch(a, 3, "/n");
    bench.watch(b, 8, "/");
    bench.sent();
    bench.create(a, "/n", 0);
    assert_eq!(bench.sent(), ["1: created /n", "2: children /", "1: 1 ok"]);
    bench.create(a, "/n/child", 0);
    assert_eq!(bench.sent(), ["1: 1 ok"], "a watch fires once");
}

#[test]
fn a_deletion_is_told_once_where_both_kinds_of_watches_are() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.create(a, "/n", 0);
    bench.watch(b, 4, "/n");
    bench.watch(b, 8, "/n");
    bench.watch(b, 8, "/");
    bench.sent();
    bench.delete(a, "/n");
    assert_eq!(bench.sent(), ["2: deleted /n", "2: children /", "1: 2 ok"]);
}

#[test]
fn persistent_and_recursive_watches_stay() {
    let mut bench = Bench::new();
    let (a, b, c) = (bench.connect(), bench.connect(), bench.connect());
    bench.create(a, "/n", 0);
    bench.add_watch(b, "/n", 0);
    bench.add_watch(c, "/n", 1);
    bench.add_watch(c, "/n", 7);
    assert_eq!(bench.sent(), ["1: 1 ok", "2: 106 ok", "3: 106 ok", "3: 106 MarshallingError"]);
    for _ in 0..2 {
        bench.set(a, "/n");
        assert_eq!(bench.sent(), ["2: changed /n", "3: changed /n", "1: 5 ok"]);
    }
    bench.create(a, "/n/child", 0);
    assert_eq!(bench.sent(), ["3: created /n/child", "2: children /n", "1: 1 ok"]);
    bench.ask(c, 18, 18, |out| {
        out.text("/n");
        out.int(3);
    });
    bench.ask(c, 18, 18, |out| {
        out.text("/n");
        out.int(3);
    });
    assert_eq!(bench.sent(), ["3: 18 ok", "3: 18 NoWatcher"]);
    bench.delete(a, "/n/child");
    assert_eq!(bench.sent(), ["2: children /n", "1: 2 ok"]);
}

#[test]
fn who_may_not_read_a_node_hears_nothing_of_it() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.authenticate(a, b"user:secret");
    bench.watch(b, 3, "/n");
    bench.sent();
    bench.create_as(a, "/n", 0, &[Acl { perms: perms::ALL, id: Id::new("auth", "") }]);
    assert_eq!(bench.sent(), ["1: 1 ok"]);
    bench.watch(b, 4, "/n");
    bench.set(b, "/n");
    bench.delete(b, "/n");
    assert_eq!(bench.sent(), ["2: 4 NoAuth", "2: 5 NoAuth", "2: 2 ok"]);
    bench.create_as(a, "/m", 0, &[Acl { perms: perms::READ, id: Id::new("digest", "x:y") }]);
    bench.authenticate(b, b"super:guess");
    bench.set(b, "/m");
    bench.authenticate(b, b"super:secret");
    bench.set(b, "/m");
    assert_eq!(bench.sent(), ["1: 1 ok", "2: -4 ok", "2: 5 NoAuth", "2: -4 ok", "2: 5 ok"]);
}

#[test]
fn an_unknown_scheme_ends_the_connection_and_not_the_session() {
    let mut bench = Bench::new();
    let a = bench.connect();
    bench.ask(a, -4, 100, |out| {
        out.int(0);
        out.text("nonsense");
        out.buffer(Some(b""));
    });
    assert_eq!(bench.sent(), ["1: -4 AuthFailed", "1: closed"]);
    let (session, password) = bench.sessions[0].clone();
    let again = bench.connect_frame(session, &password, 5000);
    bench.create(again, "/n", 0);
    assert_eq!(bench.sent().last().unwrap(), "2: 1 ok");
}

#[test]
fn a_client_that_comes_back_hears_what_it_missed() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    for path in ["/changed", "/deleted", "/same", "/parent"] {
        bench.create(a, path, 0);
    }
    let seen = bench.core.tree.last_zxid;
    bench.set(a, "/changed");
    bench.delete(a, "/deleted");
    bench.create(a, "/born", 0);
    bench.create(a, "/parent/child", 0);
    bench.sent();
    bench.ask(b, -8, 101, |out| {
        out.long(seen);
        out.texts(["/changed", "/deleted", "/same"].into_iter());
        out.texts(["/born", "/unborn"].into_iter());
        out.texts(["/parent", "/same"].into_iter());
    });
    assert_eq!(
        bench.sent(),
        [
            "2: changed /changed",
            "2: deleted /deleted",
            "2: created /born",
            "2: children /parent",
            "2: -8 ok"
        ]
    );
    bench.create(a, "/unborn", 0);
    bench.set(a, "/same");
    bench.create(a, "/same/child", 0);
    assert_eq!(
        bench.sent(),
        [
            "2: created /unborn",
            "1: 1 ok",
            "2: changed /same",
            "1: 5 ok",
            "2: children /same",
            "1: 1 ok"
        ]
    );
}

#[test]
fn a_silent_session_ends_and_its_nodes_with_it() {
    let mut bench = Bench::new();
    let (a, b) = (bench.connect(), bench.connect());
    bench.create(a, "/e1", 1);
    bench.create(a, "/e2", 1);
    bench.watch(b, 3, "/e1");
    bench.watch(b, 8, "/");
    bench.sent();
    for _ in 0..4 {
        bench.pass(SECOND);
        bench.ask(b, -2, 11, |_| {});
    }
    assert_eq!(bench.sent(), ["2: -2 ok"; 4]);
    bench.pass(SECOND);
    bench.ask(b, -2, 11, |_| {});
    bench.pass(SECOND);
    assert_eq!(bench.sent(), ["2: -2 ok", "2: deleted /e1", "2: children /", "1: closed"]);
    // Too late.
    let (session, password) = bench.sessions[0].clone();
    bench.connect_frame(session, &password, 5000);
    let output = bench.core.take().output;
    let [Output::Send { frame, .. }, Output::Close { .. }] = &output[..] else {
        panic!("{output:?}")
    };
    assert_eq!(frame[8..20], [0; 12], "no timeout and no session");
}

#[test]
fn a_session_moves_to_its_new_connection_and_a_wrong_password_moves_nothing() {
    let mut bench = Bench::new();
    let a = bench.connect();
    bench.create(a, "/n", 0);
    bench.watch(a, 4, "/n");
    bench.sent();
    let (session, password) = bench.sessions[0].clone();
    bench.connect_frame(session, &[1; 16], 5000);
    assert_eq!(bench.sent().last().unwrap(), "2: closed");
    let c = bench.connect_frame(session, &password, 5000);
    let sent = bench.sent();
    assert!(sent.contains(&"1: closed".to_owned()), "{sent:?}");
    // Requests that the old connection sent before are not answered, nor carried out.
    bench.delete(a, "/n");
    assert!(bench.sent().is_empty());
    bench.set(c, "/n");
    assert_eq!(bench.sent(), ["3: 5 ok"], "watches went with the old connection");
}

#[test]
fn a_client_that_has_seen_more_than_we_have_is_sent_away() {
    let mut bench = Bench::new();
    let connection = ConnectionId(9);
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    bench.core.attach(connection, Peer::plain(address), Arc::new(Traffic::default()));
    let mut frame = Vec::new();
    frame.int(0);
    frame.long(77);
    frame.int(5000);
    frame.long(0);
    frame.buffer(Some(&[0; 16]));
    bench.core.connect(connection, &frame, bench.now);
    assert_eq!(bench.sent(), ["9: closed"]);
    assert_eq!(bench.core.tree.last_zxid, 0);
}

#[test]
fn refusals_are_those_of_the_original_and_take_a_transaction_each() {
    let mut bench = Bench::new();
    let a = bench.connect();
    bench.create(a, "/e", 1);
    bench.create(a, "/p", 0);
    bench.create(a, "/p/c", 0);
    bench.sent();
    let before = bench.core.tree.last_zxid;
    bench.create(a, "/p", 0);
    bench.create(a, "/no/where", 0);
    bench.create(a, "/e/child", 0);
    bench.create(a, "no-slash", 0);
    bench.create(a, "/a//b", 0);
    bench.create(a, "/p/x", 9);
    bench.create_as(a, "/p/x", 0, &[]);
    bench.delete(a, "/p");
    bench.delete(a, "/zookeeper");
    bench.delete(a, "/nothing");
    bench.set(a, "/nothing");
    bench.ask(a, 16, 16, |out| out.put_bytes(&[0; 3 * 4 + 8]));
    bench.ask(a, 14, 14, |out| out.int(1));
    // A check alone is a write that changes nothing.
    for version in [0, 7] {
        bench.ask(a, 13, 13, |out| {
            out.text("/p");
            out.int(version);
        });
    }
    // A part whose flags mean nothing spoils a whole multi.
    bench.ask(a, 14, 14, |out| {
        out.int(1);
        out.boolean(false);
        out.int(-1);
        out.text("/m");
        out.buffer(None);
        Acl::write_all(&Acl::open(), out);
        out.int(7);
        out.int(-1);
        out.boolean(true);
        out.int(-1);
    });
    // Flags are looked at before a path that is null.
    for flags in [0, -1] {
        bench.ask(a, 1, 1, |out| {
            out.int(-1);
            out.buffer(None);
            Acl::write_all(&Acl::open(), out);
            out.int(flags);
        });
    }
    assert_eq!(
        bench.sent(),
        [
            "1: 1 NodeExists",
            "1: 1 NoNode",
            "1: 1 NoChildrenForEphemerals",
            "1: 1 BadArguments",
            "1: 1 NoNode",
            "1: 1 BadArguments",
            "1: 1 InvalidAcl",
            "1: 2 NotEmpty",
            "1: 2 BadArguments",
            "1: 2 NoNode",
            "1: 5 NoNode",
            "1: 16 ReconfigDisabled",
            "1: 14 MarshallingError",
            "1: 13 ok",
            "1: 13 BadVersion",
            "1: 14 MarshallingError",
            "1: 1 MarshallingError",
            "1: 1 BadArguments"
        ]
    );
    assert_eq!(bench.core.tree.last_zxid, before + 18);
    // Reads take none.
    bench.watch(a, 4, "/nothing");
    bench.ask(a, 4, 4, |out| out.int(7));
    bench.ask(a, 99, 99, |_| {});
    assert_eq!(
        bench.sent(),
        ["1: 4 NoNode", "1: 4 MarshallingError", "1: 99 Unimplemented", "1: closed"]
    );
    assert_eq!(bench.core.tree.last_zxid, before + 18);
}

#[test]
fn containers_and_ttl_nodes_are_cleaned_up_when_they_are_due() {
    let mut bench = Bench::new();
    let a = bench.connect();
    bench.ask(a, 19, 19, |out| {
        out.text("/container");
        out.buffer(None);
        Acl::write_all(&Acl::open(), out);
        out.int(4);
    });
    bench.ask(a, 21, 21, |out| {
        out.text("/ttl");
        out.buffer(None);
        Acl::write_all(&Acl::open(), out);
        out.int(5);
        out.long(90_000);
    });
    assert_eq!(bench.sent(), ["1: 19 ok", "1: 21 ok"]);
    for path in ["/container", "/ttl"] {
        let node = bench.core.tree.get(path).unwrap();
        assert_ne!(node.stat.ephemeral_owner, 0);
        assert_eq!(node.stat().ephemeral_owner, 0, "no session owns {path}");
    }
    bench.pass(SECOND * 61);
    assert!(bench.core.tree.get("/container").is_some(), "it never had a child");
    bench.sent();
    let a = bench.connect();
    bench.create(a, "/container/child", 0);
    bench.delete(a, "/container/child");
    bench.pass(SECOND * 61);
    assert!(bench.core.tree.get("/container").is_none());
    assert!(bench.core.tree.get("/ttl").is_none());
}

#[test]
fn a_hard_quota_is_enforced() {
    let mut bench = Bench::new();
    let a = bench.connect();
    bench.create(a, "/q", 0);
    bench.create(a, "/zookeeper/quota/q", 0);
    let quota = |name: &str| format!("/zookeeper/quota/q/{name}");
    for (name, text) in
        [("zookeeper_limits", "count=-1,bytes=-1=;countHardLimit=3"), ("zookeeper_stats", "")]
    {
        bench.ask(a, 1, 1, |out| {
            out.text(&quota(name));
            out.buffer(Some(text.as_bytes()));
            Acl::write_all(&Acl::open(), out);
            out.int(0);
        });
    }
    bench.sent();
    for name in ["/q/a", "/q/b", "/q/c"] {
        bench.create(a, name, 0);
    }
    assert_eq!(bench.sent(), ["1: 1 ok", "1: 1 ok", "1: 1 QuotaExceeded"]);
    bench.delete(a, "/q/a");
    bench.create(a, "/q/c", 0);
    assert_eq!(bench.sent(), ["1: 2 ok", "1: 1 ok"]);
    let stats = bench.core.tree.get(&quota("zookeeper_stats")).unwrap();
    assert_eq!(stats.data.as_deref(), Some(&b"count=3,bytes=0"[..]));
    for (limits, outcome) in [
        (None, "MarshallingError"),
        (Some("garbage"), "MarshallingError"),
        (Some("countHardLimit=x"), "MarshallingError"),
        (Some("count=3"), "ok"),
    ] {
        bench.ask(a, 3, 5, |out| {
            out.text(&quota("zookeeper_limits"));
            out.buffer(limits.map(str::as_bytes));
            out.int(-1);
        });
        bench.set(a, "/q/b");
        bench.create(a, "/q/d", 0);
        let sent = ["1: 3 ok".to_owned(), format!("1: 5 {outcome}"), format!("1: 1 {outcome}")];
        assert_eq!(bench.sent(), sent, "{limits:?}");
    }
}

#[test]
fn a_login_where_there_are_no_users_is_answered_with_nothing() {
    let mut bench = Bench::new();
    let a = bench.connect();
    bench.ask(a, 1, 102, |out| out.buffer(Some(&[])));
    let output = bench.core.take().output;
    let [Output::Send { frame, .. }] = &output[..] else { panic!("{output:?}") };
    let mut reader = Reader::new(&frame[4 + 12..]);
    assert_eq!((reader.int().unwrap(), reader.buffer().unwrap()), (0, None));
    // Who can do without goes on.
    bench.watch(a, 4, "/zookeeper");
    assert_eq!(bench.sent(), ["1: 4 ok"]);
}

#[test]
fn who_must_log_in_is_served_when_it_has() {
    let sasl = Sasl {
        is_enabled: true,
        is_required: true,
        users: [("bob".to_owned(), "secret".to_owned())].into(),
        super_user: Some("bob".to_owned()),
    };
    let mut bench = Bench::with_sasl(sasl);
    let a = bench.connect();
    bench.create(a, "/n", 0);
    assert_eq!(bench.sent(), ["1: 1 SessionClosedRequireSaslAuth", "1: closed"]);

    let b = bench.connect();
    let token = |bench: &mut Bench, token: &[u8]| {
        bench.ask(b, 9, 102, |out| out.buffer(Some(token)));
        let output = bench.core.take().output;
        let Output::Send { frame, .. } = &output[0] else { panic!("{output:?}") };
        let mut reader = Reader::new(&frame[16..]);
        (reader.int().unwrap(), reader.buffer().ok().flatten().map(<[u8]>::to_vec))
    };
    let (code, challenge) = token(&mut bench, b"");
    assert_eq!(code, 0);
    let challenge = String::from_utf8(challenge.unwrap()).unwrap();
    let nonce = challenge.split('"').nth(3).unwrap();
    let response = proof("bob", "secret", nonce);
    assert_eq!(token(&mut bench, response.as_bytes()).0, 0);
    bench.create_as(b, "/n", 0, &[Acl { perms: perms::ALL, id: Id::new("sasl", "bob") }]);
    bench.set(b, "/n");
    assert_eq!(bench.sent(), ["2: 1 ok", "2: 5 ok"]);
    // A second proof needs a second challenge.
    let refused = Refusal::SessionClosedRequireSaslAuth.code();
    assert_eq!(token(&mut bench, response.as_bytes()), (refused, None));
}

#[test]
fn the_steps_of_a_login_have_one_order() {
    let sasl = |is_required| Sasl {
        is_enabled: true,
        is_required,
        users: [("bob".to_owned(), "secret".to_owned())].into(),
        super_user: None,
    };
    let step = |bench: &mut Bench, a, token: Option<&[u8]>| {
        bench.ask(a, 9, 102, |out| out.buffer(token));
    };
    for (is_required, refused) in
        [(false, "1: 9 AuthFailed"), (true, "1: 9 SessionClosedRequireSaslAuth")]
    {
        // A challenge comes once.
        let mut bench = Bench::with_sasl(sasl(is_required));
        let a = bench.connect();
        step(&mut bench, a, Some(b"whatever"));
        assert_eq!(bench.sent(), ["1: 9 ok"]);
        step(&mut bench, a, Some(b""));
        assert_eq!(bench.sent(), [refused, "1: closed"]);
    }
    let mut bench = Bench::with_sasl(sasl(false));
    let a = bench.connect();
    step(&mut bench, a, Some(b""));
    let output = bench.core.take().output;
    let [Output::Send { frame, .. }] = &output[..] else { panic!("{output:?}") };
    let challenge = String::from_utf8_lossy(&frame[24..]).into_owned();
    let nonce = challenge.split('"').nth(3).unwrap();
    step(&mut bench, a, Some(proof("bob", "secret", nonce).as_bytes()));
    assert_eq!(bench.sent(), ["1: 9 ok"]);
    // Nobody is two.
    step(&mut bench, a, Some(b""));
    assert_eq!(bench.sent(), ["1: 9 AuthFailed", "1: closed"]);
    // No token is no step.
    let b = bench.connect();
    step(&mut bench, b, None);
    assert_eq!(bench.sent(), ["2: closed"]);
}

/// Takes minutes where each part looks through the whole ACL.
#[test]
fn many_parts_that_meet_one_long_acl_take_no_time() {
    let mut bench = Bench::new();
    let a = bench.connect();
    let ip = |number: u32| std::net::Ipv4Addr::from(number).to_string();
    let mut acl: Vec<Acl> = (0..30_000)
        .map(|number| Acl { perms: perms::ALL, id: Id::new("ip", &ip(number)) })
        .collect();
    acl.extend(Acl::open());
    bench.create_as(a, "/n", 0, &acl);
    bench.ask(a, 14, 14, |out| {
        for _ in 0..30_000 {
            out.int(13);
            out.boolean(false);
            out.int(-1);
            out.text("/n");
            out.int(0);
        }
        out.int(-1);
        out.boolean(true);
        out.int(-1);
    });
    assert_eq!(bench.sent(), ["1: 1 ok", "1: 14 ok"]);
}

#[test]
fn what_is_null_or_odd_is_answered_as_by_apache() {
    type Body = fn(&mut Vec<u8>);
    fn create(out: &mut Vec<u8>, acl: fn(&mut Vec<u8>)) {
        out.text("/odd");
        out.buffer(None);
        acl(out);
        out.int(0);
    }
    fn one(out: &mut Vec<u8>, scheme: Option<&str>, id: Option<&str>) {
        out.int(1);
        out.int(31);
        out.buffer(scheme.map(str::as_bytes));
        out.buffer(id.map(str::as_bytes));
    }
    let cases: [(i32, Body, &str); 18] = [
        (9, |out| out.buffer(None), "ok"),
        (106, |out| out.put_bytes(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]), "ok"),
        (106, |out| out.put_bytes(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1]), "MarshallingError"),
        (106, |out| out.put_bytes(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9]), "MarshallingError"),
        (101, |out| out.put_bytes(&[0; 8 + 3 * 4]), "ok"),
        (101, |out| out.put_bytes(&[[0; 8].as_slice(), &[0xff; 12]].concat()), "MarshallingError"),
        (105, |out| out.put_bytes(&[0; 8 + 5 * 4]), "ok"),
        (105, |out| out.put_bytes(&[[0; 24].as_slice(), &[0xff; 4]].concat()), "MarshallingError"),
        (1, |out| create(out, |out| out.int(-1)), "InvalidAcl"),
        (1, |out| create(out, |out| out.int(-2)), "InvalidAcl"),
        (1, |out| create(out, |out| one(out, None, None)), "InvalidAcl"),
        (1, |out| create(out, |out| one(out, Some("x"), None)), "InvalidAcl"),
        (1, |out| create(out, |out| one(out, Some("world"), Some(""))), "InvalidAcl"),
        (1, |out| create(out, |out| one(out, Some("world"), None)), "MarshallingError"),
        (1, |out| create(out, |out| one(out, Some("ip"), None)), "MarshallingError"),
        (16, |out| out.put_bytes(&[0; 12]), "MarshallingError"),
        (16, |out| out.put_bytes(&[0; 20]), "ReconfigDisabled"),
        (20, |out| out.text("/zookeeper"), "BadArguments"),
    ];
    let mut bench = Bench::new();
    let a = bench.connect();
    for (number, (op, body, outcome)) in cases.into_iter().enumerate() {
        bench.ask(a, 7, op, body);
        assert_eq!(bench.sent(), [format!("1: 7 {outcome}")], "case {number}, op {op}");
    }
    // The null comes back; the root by its other name is one more.
    let mut int = |op: i32, path: Option<&str>| {
        bench.ask(a, 7, op, |out| out.buffer(path.map(str::as_bytes)));
        let output = bench.core.take().output;
        let [Output::Send { frame, .. }] = &output[..] else { panic!("{output:?}") };
        assert_eq!(frame.len(), 24);
        Reader::new(&frame[20..]).int().unwrap()
    };
    assert_eq!(int(9, None), -1);
    assert_eq!(int(104, Some("")), int(104, Some("/")) + 1);
}

/// The response of a client, put together here once more.
fn proof(user: &str, password: &str, nonce: &str) -> String {
    let mut first = md5::compute(format!("{user}:zk-sasl-md5:{password}")).to_vec();
    first.extend(format!(":{nonce}:mine").as_bytes());
    let second = md5::compute("AUTHENTICATE:zookeeper/zk-sasl-md5");
    let first = md5::compute(first);
    let response = md5::compute(format!("{first:x}:{nonce}:00000001:mine:auth:{second:x}"));
    format!(
        "username=\"{user}\",realm=\"zk-sasl-md5\",nonce=\"{nonce}\",cnonce=\"mine\",nc=00000001,\
         qop=auth,digest-uri=\"zookeeper/zk-sasl-md5\",response={response:x}"
    )
}

#[test]
fn a_multi_read_is_bounded() {
    let mut bench = Bench::new();
    let a = bench.connect();
    bench.create(a, "/n", 0);
    bench.create(a, "/n/child", 0);
    bench.sent();
    // Parts with 9 bytes in front: data of 72 bytes, children of 13, refusals of 4; 1,000 may be.
    for (op, path, count) in [(4, "/n", 12), (8, "/n", 45), (4, "/none", 76)] {
        let mut frame_bytes = |count: i32| {
            bench.ask(a, 9, 22, |out| {
                for _ in 0..count {
                    out.int(op);
                    out.boolean(false);
                    out.int(-1);
                    out.text(path);
                    out.boolean(false);
                }
                out.int(-1);
                out.boolean(true);
                out.int(-1);
            });
            let output = bench.core.take().output;
            let [Output::Send { frame, .. }] = &output[..] else { panic!("{output:?}") };
            let code = Reader::new(&frame[16..]).int().unwrap();
            (Refusal::from_code(code), frame.len())
        };
        let (refusal, bytes) = frame_bytes(count);
        assert_eq!(refusal, None, "{op} {path}");
        // The header of the frame and that behind the last part do not count.
        assert!((970..=1000).contains(&(bytes - 20 - 9)), "{op} {path}: {bytes}");
        assert_eq!(frame_bytes(count + 1), (Some(Refusal::MarshallingError), 20), "{op} {path}");
    }
}
