//! The server without its sockets and files: told what arrives and what time it is, it changes the
//! tree and says what to log and what to send.
//!
//! Who drives it sends nothing before the log of the same take is on disk; so nobody sees what a
//! crash could undo.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tracing::{debug, info, warn};

use crate::auth::{self, Schemes};
use crate::code::{Refusal, op};
use crate::data::{Id, perms};
use crate::jute::Reader;
use crate::prepare::{self, Asker};
use crate::reply::{self, Body, Connected};
use crate::request::{self, ConnectRequest, Request, RequestHeader};
use crate::sasl::{self, Exchange, Users};
use crate::sessions::{self, Sessions};
use crate::traffic::Traffic;
use crate::tree::{Event, EventKind, Outcome, Tree};
use crate::txn::{Txn, TxnHeader};
use crate::txn_log;
use crate::watches::{ConnectionId, WatchTable};

/// The time, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    /// Milliseconds since 1970.
    pub(crate) wall_ms: i64,
}

impl Now {
    pub(crate) fn read() -> Now {
        Now { instant: common::clock::now(), wall_ms: common::clock::wall_clock().0 }
    }
}

/// What the core needs to know of the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How often sessions are looked at.
    pub(crate) session_check: Duration,
    pub(crate) session_timeout_ms_min: i32,
    pub(crate) session_timeout_ms_max: i32,
    /// What the reply to a `multiRead` may take.
    pub(crate) multi_read_bytes_max: usize,
    /// The digest id of the super user.
    pub(crate) super_digest: Option<String>,
    pub(crate) enforce_quota: bool,
    /// ACLs are neither checked nor refused.
    pub(crate) skip_acl: bool,
    pub(crate) sasl: Sasl,
    pub(crate) x509: X509,
    /// How often overdue container and TTL nodes are looked for.
    pub(crate) container_check: Duration,
}

/// Who may log in by SASL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sasl {
    /// Whether ACLs may name users.
    pub(crate) is_enabled: bool,
    /// Whether a client that has not logged in is sent away.
    pub(crate) is_required: bool,
    pub(crate) users: Users,
    /// The user that is a super user.
    pub(crate) super_user: Option<String>,
}

/// Who is known by a certificate.
#[derive(Debug, Clone, Default)]
pub(crate) struct X509 {
    /// Whether ACLs may name subjects.
    pub(crate) is_enabled: bool,
    /// The subject that is a super user.
    pub(crate) super_user: Option<String>,
}

/// What is to be sent, once the log is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// A reply, with the time its request came; or a notification.
    Send { connection: ConnectionId, frame: Bytes, received: Option<Instant> },
    /// Nothing more goes to this connection.
    Close { connection: ConnectionId },
}

/// What to log, then what to send.
#[derive(Debug, Default)]
pub(crate) struct Take {
    /// Entries of the log, ready to be written.
    pub(crate) log: Vec<u8>,
    /// The zxid of the first entry: a new file would be named after it.
    pub(crate) first_zxid: Option<i64>,
    pub(crate) txn_count: u64,
    pub(crate) output: Vec<Output>,
}

/// Where a connection comes from.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) is_secure: bool,
    /// The subject of the certificate that it has shown.
    pub(crate) subject: Option<String>,
}

impl Peer {
    /// Without TLS.
    pub(crate) fn plain(address: SocketAddr) -> Peer {
        Peer { address, is_secure: false, subject: None }
    }
}

/// A connection, as far as the core cares.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    pub(crate) is_secure: bool,
    /// 0 until the connect request.
    pub(crate) session: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) ids: Vec<Id>,
    login: Login,
    pub(crate) traffic: Arc<Traffic>,
}

/// How far a connection's login by SASL is. There is one to a connection, and its steps have one order.
#[derive(Debug)]
enum Login {
    NotBegun,
    Challenged(Exchange),
    /// Nothing more may come.
    Done,
}

/// The whole state of the server. Lives in one mutex.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    pub(crate) data_watches: WatchTable,
    pub(crate) child_watches: WatchTable,
    pub(crate) links: BTreeMap<ConnectionId, Link>,
    /// How often somebody could not say who it is.
    pub(crate) failed_logins: u64,
    take: Take,
    next_container_check: Instant,
}

impl Core {
    /// `sessions` are those found on disk, with their timeouts.
    pub(crate) fn new(
        settings: Settings,
        tree: Tree,
        found: impl IntoIterator<Item = (i64, i32)>,
        now: Now,
    ) -> Core {
        let mut sessions = Sessions::new(settings.session_check, now.instant, now.wall_ms);
        for (id, timeout_ms) in found {
            sessions.begin(id, timeout_ms, now.instant);
        }
        let next_container_check = now.instant + settings.container_check;
        Core {
            settings,
            tree,
            sessions,
            data_watches: WatchTable::default(),
            child_watches: WatchTable::default(),
            links: BTreeMap::new(),
            failed_logins: 0,
            take: Take::default(),
            next_container_check,
        }
    }

    /// What has come up since the last take.
    pub(crate) fn take(&mut self) -> Take {
        std::mem::take(&mut self.take)
    }

    /// Whether there is something to log.
    pub(crate) fn has_log(&self) -> bool {
        !self.take.log.is_empty()
    }

    /// A connection begins.
    pub(crate) fn attach(&mut self, connection: ConnectionId, peer: Peer, traffic: Arc<Traffic>) {
        let Peer { address, is_secure, subject } = peer;
        let mut ids = vec![auth::ip_id(address.ip())];
        if let Some(subject) = subject {
            if self.settings.x509.super_user.as_ref() == Some(&subject) {
                info!(%address, subject, "a super user, by its certificate");
                ids.push(Id::new("super", &subject));
            }
            ids.push(Id::new("x509", &subject));
        }
        let link = Link {
            address,
            is_secure,
            session: 0,
            timeout_ms: 0,
            ids,
            login: Login::NotBegun,
            traffic,
        };
        self.links.insert(connection, link);
    }

    /// A connection has ended; its session goes on without it.
    pub(crate) fn detach(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.remove(&connection) else { return };
        self.sessions.unbind(link.session, connection);
        self.data_watches.remove_connection(connection);
        self.child_watches.remove_connection(connection);
    }

    fn close(&mut self, connection: ConnectionId) {
        self.detach(connection);
        self.take.output.push(Output::Close { connection });
    }

    pub(crate) fn send(
        &mut self,
        connection: ConnectionId,
        frame: Bytes,
        received: Option<Instant>,
    ) {
        if let Some(link) = self.links.get(&connection) {
            link.traffic.queued(frame.len());
        }
        self.take.output.push(Output::Send { connection, frame, received });
    }

    /// The first frame of a connection: asks for a session, or for one it had before.
    pub(crate) fn connect(&mut self, connection: ConnectionId, frame: &[u8], now: Now) {
        let Some(address) = self.links.get(&connection).map(|link| link.address) else { return };
        let request = match ConnectRequest::read(frame) {
            Ok(request) => request,
            Err(error) => {
                info!(%address, %error, "connect request cannot be read, closing");
                return self.close(connection);
            }
        };
        if request.last_zxid_seen > self.tree.last_zxid {
            info!(
                %address,
                seen = format_args!("0x{:x}", request.last_zxid_seen),
                ours = format_args!("0x{:x}", self.tree.last_zxid),
                "refusing a client that has seen a later zxid than ours"
            );
            return self.close(connection);
        }
        let (min, max) =
            (self.settings.session_timeout_ms_min, self.settings.session_timeout_ms_max);
        let timeout_ms = request.timeout_ms.max(min).min(max);
        let session = match request.session {
            0 => {
                let session = self.sessions.next_id();
                self.commit(session, 0, Txn::CreateSession { timeout_ms }, now);
                Some(session)
            }
            session => self.renew(session, &request.password, timeout_ms, now),
        };
        let Some(session) = session else {
            info!(
                %address,
                session = format_args!("0x{:x}", request.session),
                "session is not valid, probably expired"
            );
            self.send(connection, reply::connected(None, request.old_client), Some(now.instant));
            return self.close(connection);
        };
        if let Some(replaced) = self.sessions.bind(session, connection) {
            self.close(replaced);
        }
        if let Some(link) = self.links.get_mut(&connection) {
            link.session = session;
            link.timeout_ms = timeout_ms;
        }
        debug!(%address, session = format_args!("0x{session:x}"), timeout_ms, "session established");
        let password = sessions::password(session);
        let connected = Connected { session, timeout_ms, password };
        let frame = reply::connected(Some(connected), request.old_client);
        self.send(connection, frame, Some(now.instant));
    }

    fn renew(&mut self, session: i64, password: &[u8], timeout_ms: i32, now: Now) -> Option<i64> {
        if password != sessions::password(session) {
            warn!(session = format_args!("0x{session:x}"), "wrong password for a session");
            return None;
        }
        self.sessions.touch(session, timeout_ms, now.instant).then_some(session)
    }

    /// A frame of a connection that has its session.
    pub(crate) fn request(&mut self, connection: ConnectionId, frame: &[u8], now: Now) {
        let Some(link) = self.links.get(&connection) else { return };
        let (address, session, timeout_ms) = (link.address, link.session, link.timeout_ms);
        let mut reader = Reader::new(frame);
        let Ok(header) = RequestHeader::read(&mut reader) else {
            info!(%address, "request without a header, closing");
            return self.close(connection);
        };
        match header.op {
            op::AUTH => return self.authenticate(connection, header, &mut reader, now),
            op::SASL => return self.log_in(connection, header, &mut reader, now),
            _ => {}
        }
        let is_named = |id: &Id| id.scheme == "sasl";
        if self.settings.sasl.is_required && !link.ids.iter().any(is_named) {
            warn!(%address, "a client that has not logged in asks for something, closing");
            let refusal = Err(Refusal::SessionClosedRequireSaslAuth);
            self.send(connection, reply::reply(header.xid, 0, refusal), Some(now.instant));
            return self.close(connection);
        }
        link.traffic.asked(header, self.tree.last_zxid);
        if !self.sessions.touch(session, timeout_ms, now.instant) {
            return self.close(connection);
        }
        if !request::is_known(header.op) {
            warn!(%address, op = header.op, "unknown operation, closing");
            // Apache gives no zxid here.
            let frame = reply::reply(header.xid, -1, Err(Refusal::Unimplemented));
            self.send(connection, frame, Some(now.instant));
            return self.close(connection);
        }
        let request = Request::read(header.op, &mut reader);
        // Apache reads this one before it counts it.
        let is_unread = header.op == op::RECONFIG && request == Err(Refusal::MarshallingError);
        let frame = if request::is_write(header.op) && !is_unread {
            self.write(connection, header, request, now)
        } else {
            let zxid = self.tree.last_zxid;
            match request {
                Ok(request) => self.read(connection, header.xid, request),
                Err(refusal) => reply::reply(header.xid, zxid, Err(refusal)),
            }
        };
        self.send(connection, frame, Some(now.instant));
        if header.op == op::CLOSE_SESSION {
            self.close(connection);
        }
    }

    fn authenticate(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        reader: &mut Reader<'_>,
        now: Now,
    ) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        let mut read = || {
            let _type = reader.int()?;
            Ok::<_, crate::jute::JuteError>((
                reader.string()?.unwrap_or_default(),
                reader.buffer()?,
            ))
        };
        let super_digest = self.settings.super_digest.as_deref();
        let ids = read().ok().and_then(|(scheme, auth)| {
            auth::authenticate(&scheme, auth, link.address.ip(), super_digest)
        });
        let result = match ids.map(|ids| auth::add_ids(&mut link.ids, ids)) {
            Some(true) => Ok(Body::Empty),
            Some(false) | None => {
                warn!(address = %link.address, "authentication failed");
                Err(Refusal::AuthFailed)
            }
        };
        let failed = result.is_err();
        self.send(connection, reply::reply(header.xid, 0, result), Some(now.instant));
        if failed {
            self.failed_logins += 1;
            self.close(connection);
        }
    }

    /// A step of a login: the challenge first, then the proof.
    fn log_in(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        reader: &mut Reader<'_>,
        now: Now,
    ) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        let Ok(Some(token)) = reader.buffer() else {
            info!(address = %link.address, "a login without a token, closing");
            return self.close(connection);
        };
        if self.settings.sasl.users.is_empty() {
            // As Apache without a login configuration: the client decides whether it goes on.
            warn!(address = %link.address, "a client wants to log in by SASL, and there are no users");
            let frame = reply::reply(header.xid, 0, Ok(Body::Token(None)));
            return self.send(connection, frame, Some(now.instant));
        }
        let step = match std::mem::replace(&mut link.login, Login::Done) {
            // As with Apache, whatever the first token says.
            Login::NotBegun => sasl::nonce().map(|nonce| {
                let (exchange, challenge) = Exchange::begin(nonce);
                link.login = Login::Challenged(exchange);
                challenge
            }),
            Login::Challenged(exchange) => {
                exchange.verify(token, &self.settings.sasl.users).map(|proof| {
                    info!(address = %link.address, user = proof.user, "logged in");
                    if self.settings.sasl.super_user.as_ref() == Some(&proof.user) {
                        link.ids.push(Id::new("super", ""));
                    }
                    link.ids.push(Id::new("sasl", &proof.user));
                    proof.answer
                })
            }
            Login::Done => None,
        };
        let frame = match &step {
            Some(token) => reply::reply(header.xid, 0, Ok(Body::Token(Some(token)))),
            None => {
                warn!(address = %link.address, "a login by SASL failed");
                reply::login_refused(
                    header.xid,
                    match self.settings.sasl.is_required {
                        true => Refusal::SessionClosedRequireSaslAuth,
                        false => Refusal::AuthFailed,
                    },
                )
            }
        };
        self.send(connection, frame, Some(now.instant));
        if step.is_none() {
            self.failed_logins += 1;
            self.close(connection);
        }
    }

    /// Carries a write out; a refused one is logged too, for it takes a zxid.
    fn write(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        request: Result<Request, Refusal>,
        now: Now,
    ) -> Bytes {
        let Some(link) = self.links.get(&connection) else {
            return reply::reply(header.xid, self.tree.last_zxid, Err(Refusal::ConnectionLoss));
        };
        let super_user = [Id::new("super", "")];
        let asker = Asker {
            session: link.session,
            ids: if self.settings.skip_acl { &super_user } else { &link.ids },
            enforce_quota: self.settings.enforce_quota,
            schemes: Schemes {
                sasl: self.settings.sasl.is_enabled,
                x509: self.settings.x509.is_enabled,
            },
        };
        let session = link.session;
        let txn = request.and_then(|request| match request {
            Request::Change(change) => prepare::change(&self.tree, asker, change),
            Request::Multi(changes) => Ok(prepare::multi(&self.tree, asker, changes)),
            Request::CloseSession => Ok(self.closing(session)),
            Request::Reconfig => Err(Refusal::ReconfigDisabled),
            _ => Err(Refusal::MarshallingError),
        });
        let txn = txn.unwrap_or_else(|refusal| {
            link.traffic.refused();
            Txn::Error { code: refusal.code() }
        });
        let outcome = self.commit(session, header.xid, txn, now);
        let zxid = self.tree.last_zxid;
        let body = match &outcome {
            Outcome::Done | Outcome::Checked => Ok(Body::Empty),
            Outcome::Created { op: op::CREATE, path, .. } => Ok(Body::Path(path)),
            Outcome::Created { path, stat, .. } => Ok(Body::PathAndStat(path, *stat)),
            Outcome::Stat(stat) => Ok(Body::Stat(*stat)),
            Outcome::Multi(outcomes) => Ok(Body::Multi(outcomes)),
            Outcome::Refused(code) => {
                Err(Refusal::from_code(*code).unwrap_or(Refusal::SystemError))
            }
        };
        reply::reply(header.xid, zxid, body)
    }

    fn closing(&self, session: i64) -> Txn {
        let paths = self.tree.ephemerals().get(&session);
        Txn::CloseSession { paths: Some(paths.into_iter().flatten().cloned().collect()) }
    }

    /// Logs a transaction, carries it out and tells who watches.
    fn commit(&mut self, session: i64, cxid: i32, txn: Txn, now: Now) -> Outcome {
        let zxid = self.tree.last_zxid + 1;
        let header = TxnHeader { client_id: session, cxid, zxid, time: now.wall_ms };
        txn_log::append_entry(&header, &txn, &mut self.take.log);
        self.take.first_zxid.get_or_insert(zxid);
        self.take.txn_count += 1;
        match &txn {
            Txn::CreateSession { timeout_ms } => {
                self.sessions.begin(session, *timeout_ms, now.instant);
            }
            Txn::CloseSession { .. } => {
                self.sessions.end(session);
            }
            _ => {}
        }
        let mut events = Vec::new();
        let outcome = self.tree.apply(&header, txn, &mut events);
        self.notify(events);
        outcome
    }

    fn notify(&mut self, events: Vec<Event>) {
        for event in events {
            let Event { kind, path, acl } = &event;
            let hit = match kind {
                EventKind::ChildrenChanged => self.child_watches.trigger(path, *kind),
                EventKind::Deleted => {
                    let mut hit = self.data_watches.trigger(path, *kind);
                    hit.extend(self.child_watches.trigger(path, *kind));
                    hit
                }
                EventKind::Created | EventKind::DataChanged => {
                    self.data_watches.trigger(path, *kind)
                }
            };
            if hit.is_empty() {
                continue;
            }
            let frame = reply::notification(*kind, path);
            let permitted = |connection: &ConnectionId| {
                let link = self.links.get(connection);
                link.is_some_and(|link| auth::check(acl, perms::READ, &link.ids).is_ok())
            };
            let hit: BTreeSet<ConnectionId> = hit.into_iter().filter(permitted).collect();
            for connection in hit {
                self.send(connection, frame.clone(), None);
                let link = self.links.get(&connection);
                if link.is_some_and(|link| link.traffic.is_hopeless()) {
                    warn!("closing a connection that does not read its notifications");
                    self.close(connection);
                }
            }
        }
    }

    /// Time passes: ends the sessions that were not heard of, and cleans up overdue nodes. Is
    /// called as often as sessions are looked at.
    pub(crate) fn tick(&mut self, now: Now) {
        for session in self.sessions.expired(now.instant) {
            let timeout_ms = self.sessions.get(session).map_or(0, |session| session.timeout_ms);
            info!(session = format_args!("0x{session:x}"), timeout_ms, "session expired");
            self.end_session(session, now);
        }
        if now.instant >= self.next_container_check {
            self.next_container_check = now.instant + self.settings.container_check;
            for path in self.tree.overdue(now.wall_ms) {
                match prepare::delete_overdue(&self.tree, &path) {
                    Ok(txn) => {
                        self.commit(0, 0, txn, now);
                    }
                    Err(refusal) => debug!(path, %refusal, "overdue node stays"),
                }
            }
        }
    }

    fn end_session(&mut self, session: i64, now: Now) {
        let connection = self.sessions.get(session).and_then(|session| session.connection);
        let txn = self.closing(session);
        self.commit(session, 0, txn, now);
        if let Some(connection) = connection {
            self.close(connection);
        }
    }
}
