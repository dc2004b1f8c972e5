//! The server as clients see it, over real sockets and a real folder.

use std::time::Duration;

use tempfile::TempDir;

use crate::client::{Client, ClientError, CreateMode, Op, OpResult, WatchedEvent};
use crate::code::Refusal;
use crate::config::Config;
use crate::data::Acl;
use crate::server::Server;

const TIMEOUT: Duration = Duration::from_secs(10);

fn start(folder: &TempDir) -> Server {
    Server::start(Config::for_tests(folder.path())).unwrap()
}

fn connect(server: &Server) -> Client {
    Client::connect(&server.address().to_string(), TIMEOUT, None).unwrap().0
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Refusal {
    match result {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn nodes_live_through_a_restart() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = connect(&server);
    let (path, stat) =
        client.create("/a", Some(b"x"), &Acl::open(), CreateMode::Persistent).unwrap();
    assert_eq!((path.as_str(), stat.version, stat.data_length), ("/a", 0, 1));
    client.create("/a/null", None, &Acl::open(), CreateMode::Persistent).unwrap();
    client.create("/a/empty", Some(b""), &Acl::open(), CreateMode::Persistent).unwrap();
    let stat = client.set_data("/a", Some(b"yy"), 0).unwrap();
    assert_eq!(stat.version, 1);
    assert_eq!(refusal(client.set_data("/a", Some(b"z"), 0)), Refusal::BadVersion);
    client.close().unwrap();
    server.stop();

    let server = start(&folder);
    let client = connect(&server);
    let (data, again) = client.get_data("/a", false).unwrap();
    assert_eq!(data.as_deref(), Some(&b"yy"[..]));
    assert_eq!((again.mzxid, again.cversion, again.child_count), (stat.mzxid, 2, 2));
    assert_eq!(client.get_data("/a/null", false).unwrap().0, None);
    assert_eq!(client.get_data("/a/empty", false).unwrap().0, Some(Vec::new()));
    assert_eq!(client.get_children("/a", false).unwrap().0, ["empty", "null"]);
}

#[test]
fn ephemerals_go_with_their_session_and_not_with_the_connection() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let watcher = connect(&server);
    let address = server.address().to_string();
    let (owner, _events) = Client::connect(&address, TIMEOUT, None).unwrap();
    owner.create("/e", None, &Acl::open(), CreateMode::Ephemeral).unwrap();
    let session = owner.session().clone();
    drop(owner);
    assert!(watcher.exists("/e", false).unwrap().is_some());
    let (owner, _events) = Client::connect(&address, TIMEOUT, Some(&session)).unwrap();
    assert_eq!(owner.session(), &session);
    assert_eq!(owner.get_ephemerals("/").unwrap(), ["/e"]);
    owner.close().unwrap();
    assert!(watcher.exists("/e", false).unwrap().is_none());
    let expired = Client::connect(&address, TIMEOUT, Some(&session));
    assert!(matches!(expired, Err(ClientError::Expired)));
}

#[test]
fn a_session_lives_through_a_restart_and_ends_on_time() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let short = Duration::from_millis(300);
    let (owner, _events) = Client::connect(&server.address().to_string(), short, None).unwrap();
    owner.create("/e", None, &Acl::open(), CreateMode::Ephemeral).unwrap();
    drop(owner);
    server.stop();

    let server = start(&folder);
    let (watcher, events) = Client::connect(&server.address().to_string(), TIMEOUT, None).unwrap();
    assert!(watcher.exists("/e", true).unwrap().is_some());
    assert_eq!(events.recv().unwrap().state, "SyncConnected");
    let gone = events.recv_timeout(Duration::from_secs(5)).unwrap();
    let expected =
        WatchedEvent { state: "SyncConnected", kind: "NodeDeleted", path: Some("/e".to_owned()) };
    assert_eq!(gone, expected);
}

#[test]
fn a_multi_does_all_or_nothing() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let client = connect(&server);
    let create = |path: &str| Op::Create { path: path.to_owned(), data: None, ephemeral: false };
    let results = client
        .multi(&[
            create("/m"),
            create("/m/a"),
            Op::Check { path: "/m".to_owned(), version: 0 },
            Op::SetData { path: "/m".to_owned(), data: Some(b"1".to_vec()), version: 0 },
            Op::Delete { path: "/m/a".to_owned(), version: -1 },
        ])
        .unwrap();
    assert_eq!(results[0], OpResult::Created("/m".to_owned()));
    assert!(matches!(&results[3], OpResult::Set(stat) if stat.version == 1));
    let results = client
        .multi(&[create("/m/b"), Op::Check { path: "/m".to_owned(), version: 7 }, create("/m/c")])
        .unwrap();
    assert_eq!(
        results,
        [
            OpResult::Failed(0),
            OpResult::Failed(Refusal::BadVersion.code()),
            OpResult::Failed(Refusal::RuntimeInconsistency.code())
        ]
    );
    assert!(client.get_children("/m", false).unwrap().0.is_empty());
}
