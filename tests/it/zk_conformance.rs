//! One suite for everything that claims to be ZooKeeper: the fake, the standalone server, and Apache ZooKeeper where
//! `ODRADEK_APACHE_ZOOKEEPER=host:port` names one (unset, that run is empty; set, it fails without a server).

mod clients;
mod network;

use std::future::Future;

use tokio::time::timeout;
use zk::{
    changes::{Changes, Dirty, SessionState, Watched},
    fake::FakeZooKeeper,
    store::{CreateKind, Expected, Op, OpResult, Stat, Watch, ZkError, ZkVersion},
};
use zookeeper::{config::Config, server::Server};

use self::{
    clients::{AT_MOST, Backend, Client, Clients, until},
    network::{a_session_outlives_a_restart_of_zookeeper, conform_over_the_network},
};

#[tokio::test]
async fn the_fake_conforms() {
    conform(&Backend::Fake(FakeZooKeeper::new())).await;
}

#[tokio::test]
async fn the_standalone_server_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(Config::for_tests(folder.path())).unwrap();
    conform(&Backend::Server(server.address())).await;
    conform_over_the_network(server.address()).await;
    a_session_outlives_a_restart_of_zookeeper(server, folder.path()).await;
}

#[tokio::test]
async fn apache_zookeeper_conforms() {
    let Ok(address) = std::env::var("ODRADEK_APACHE_ZOOKEEPER") else { return };
    let address = address.parse().expect("ODRADEK_APACHE_ZOOKEEPER is ip:port");
    conform(&Backend::Server(address)).await;
    conform_over_the_network(address).await;
}

async fn conform(backend: &Backend) {
    async fn case<F: Future<Output = ()>>(
        backend: &Backend,
        name: &str,
        run: impl FnOnce(Clients) -> F,
    ) {
        let clients = backend.clients().await;
        let (a, b) = (clients.a.store.clone(), clients.b.store.clone());
        let ran = timeout(2 * AT_MOST, run(clients)).await;
        assert!(ran.is_ok(), "{name} hangs");
        // Some cases have closed them already.
        let _ = (a.close().await, b.close().await);
    }
    case(backend, "nodes", nodes_are_created_changed_and_deleted_by_version).await;
    case(backend, "stats", stats_tell_transactions_times_and_children).await;
    case(backend, "data", any_data_comes_back).await;
    case(backend, "paths", paths_that_break_the_rules_are_refused).await;
    case(backend, "sequences", sequential_names_count_creations).await;
    case(backend, "ephemerals", ephemeral_nodes_go_with_their_session).await;
    case(backend, "multi", a_multi_applies_all_or_nothing).await;
    case(backend, "multi order", the_steps_of_a_multi_see_each_other).await;
    case(backend, "node watches", a_node_watch_fires_once).await;
    case(backend, "absent", what_is_absent_is_watched_for_its_creation).await;
    case(backend, "children watches", a_watch_of_children_sees_the_list_alone).await;
    case(backend, "two watches", reading_twice_before_a_change_is_one_watch).await;
    case(backend, "multi watches", a_multi_fires_the_watches_of_all_its_steps).await;
    case(backend, "lost", a_lost_connection_keeps_the_session_and_dirties_what_was_watched).await;
    case(backend, "expired", an_expired_session_is_replaced).await;
    case(backend, "close", a_closed_store_answers_nothing).await;
}

fn dirty(path: &str, watched: Watched) -> Dirty {
    Dirty { path: path.to_owned(), watched }
}

async fn create(client: &Client, path: &str) -> Stat {
    client.store.create(path, b"0", CreateKind::Persistent).await.unwrap().stat
}

fn reason<T: std::fmt::Debug>(result: Result<T, ZkError>) -> ZkError {
    result.expect_err("a refusal").reason().clone()
}

async fn nodes_are_created_changed_and_deleted_by_version(Clients { a, b, root }: Clients) {
    let path = &format!("{root}/n");
    let no_node = ZkError::NoNode { path: path.clone() };
    let bad_version = ZkError::BadVersion { path: path.clone() };
    let version = |version| Expected::Version(ZkVersion(version));
    assert_eq!(a.store.get(path, Watch::No).await, Ok(None));
    assert_eq!(reason(a.store.set(path, b"1", Expected::Any).await), no_node);
    assert_eq!(reason(a.store.delete(path, Expected::Any).await), no_node);
    let orphan = format!("{path}/child");
    let refused = a.store.create(&orphan, b"", CreateKind::Persistent).await;
    assert_eq!(reason(refused), ZkError::NoNode { path: orphan.clone() });

    assert_eq!(create(&a, path).await.version, ZkVersion(0));
    let again = b.store.create(path, b"", CreateKind::Persistent).await;
    assert_eq!(reason(again), ZkError::NodeExists { path: path.clone() });
    assert_eq!(b.store.set(path, b"1", version(0)).await.unwrap().version, ZkVersion(1));
    assert_eq!(reason(a.store.set(path, b"2", version(0)).await), bad_version);
    assert_eq!(a.store.set(path, b"2", Expected::Any).await.unwrap().version, ZkVersion(2));
    assert_eq!(a.store.get(path, Watch::No).await.unwrap().unwrap().data, b"2");

    create(&a, &orphan).await;
    let not_empty = ZkError::NotEmpty { path: path.clone() };
    assert_eq!(reason(a.store.delete(path, Expected::Any).await), not_empty);
    a.store.delete(&orphan, Expected::Any).await.unwrap();
    assert_eq!(reason(a.store.delete(path, version(1)).await), bad_version);
    b.store.delete(path, version(2)).await.unwrap();
    assert_eq!(a.store.exists(path, Watch::No).await, Ok(None));
}

async fn stats_tell_transactions_times_and_children(Clients { a, b, root }: Clients) {
    let path = &format!("{root}/n");
    let created = create(&a, path).await;
    assert_eq!((created.czxid, created.mzxid), (created.pzxid, created.czxid));
    assert_eq!((created.cversion, created.aversion, created.num_children), (0, 0, 0));
    assert_eq!((created.ephemeral_owner, created.data_length), (None, 1));
    assert!(created.ctime.0 > 1_600_000_000_000 && created.mtime == created.ctime);

    let set = b.store.set(path, b"four", Expected::Any).await.unwrap();
    assert_eq!((set.czxid, set.data_length, set.ctime), (created.czxid, 4, created.ctime));
    assert!(set.mzxid > created.mzxid);

    let (first, second) = (format!("{path}/1"), format!("{path}/2"));
    create(&a, &first).await;
    create(&a, &second).await;
    a.store.delete(&first, Expected::Any).await.unwrap();
    let stat = a.store.exists(path, Watch::No).await.unwrap().unwrap();
    assert_eq!((stat.cversion, stat.num_children, stat.version), (3, 1, ZkVersion(1)));
    assert!(stat.pzxid > set.mzxid && stat.mzxid == set.mzxid);
    assert_eq!(a.store.get(path, Watch::No).await.unwrap().unwrap().stat, stat);
}

async fn any_data_comes_back(Clients { a, root, .. }: Clients) {
    let every_byte: Vec<u8> = (0..=255).collect();
    for (index, data) in [Vec::new(), vec![0], every_byte, vec![7; 500_000]].iter().enumerate() {
        let path = format!("{root}/{index}");
        a.store.create(&path, data, CreateKind::Persistent).await.unwrap();
        assert_eq!(&a.store.get(&path, Watch::No).await.unwrap().unwrap().data, data);
    }
    let huge = vec![0; a.store.request_bytes_max() + 1];
    let refused = reason(a.store.set(&root, &huge, Expected::Any).await);
    assert!(matches!(refused, ZkError::TooLarge { .. }), "{refused}");
    assert!(a.store.exists(&root, Watch::No).await.unwrap().is_some());
}

async fn paths_that_break_the_rules_are_refused(Clients { a, root, .. }: Clients) {
    for bad in ["", "x", "//", "/a//b", "/a/", "/a/../b", "/a\0b"] {
        let refused = reason(a.store.create(bad, b"", CreateKind::Persistent).await);
        assert!(matches!(refused, ZkError::InvalidPath { .. }), "{bad:?}: {refused}");
        let refused = reason(a.store.get(bad, Watch::No).await);
        assert!(matches!(refused, ZkError::InvalidPath { .. }), "{bad:?}: {refused}");
    }
    for good in ["<default>", "a b", "ü", "%2A", "...", "a:b"] {
        create(&a, &format!("{root}/{good}")).await;
    }
    let mut children = a.store.children(&root, Watch::No).await.unwrap();
    children.sort();
    assert_eq!(children, ["%2A", "...", "<default>", "a b", "a:b", "ü"]);
}

async fn sequential_names_count_creations(Clients { a, b, root }: Clients) {
    let prefix = &format!("{root}/s_");
    let next =
        async |client: &Client, kind| client.store.create(prefix, b"", kind).await.unwrap().path;
    assert_eq!(next(&a, CreateKind::PersistentSequential).await, format!("{prefix}0000000000"));
    create(&a, &format!("{root}/other")).await;
    assert_eq!(next(&b, CreateKind::PersistentSequential).await, format!("{prefix}0000000002"));
    a.store.delete(&format!("{prefix}0000000002"), Expected::Any).await.unwrap();
    assert_eq!(next(&a, CreateKind::EphemeralSequential).await, format!("{prefix}0000000003"));
    let op = Op::Create {
        path: prefix.clone(),
        data: Vec::new(),
        kind: CreateKind::PersistentSequential,
    };
    let results = a.store.multi(vec![op.clone(), op]).await.unwrap();
    let created = |digits| OpResult::Created(format!("{prefix}{digits}"));
    assert_eq!(results, [created("0000000004"), created("0000000005")]);
}

async fn ephemeral_nodes_go_with_their_session(Clients { a, b, root }: Clients) {
    let path = &format!("{root}/e");
    let created = a.store.create(path, b"", CreateKind::Ephemeral).await.unwrap();
    assert_eq!(created.stat.ephemeral_owner, Some(a.session_id()));
    let child = format!("{path}/child");
    let refused = reason(b.store.create(&child, b"", CreateKind::Persistent).await);
    assert!(matches!(refused, ZkError::NoChildrenForEphemerals { .. }), "{refused}");
    let mut changes = b.store.changes();
    assert!(b.store.exists(path, Watch::Yes).await.unwrap().is_some());
    a.store.close().await.unwrap();
    until(&mut changes, "the node's end", |seen| seen.node_is_dirty(path)).await;
    assert_eq!(b.store.exists(path, Watch::No).await, Ok(None));
}

async fn a_multi_applies_all_or_nothing(Clients { a, b, root }: Clients) {
    let (path, fence) = (&format!("{root}/n"), &format!("{root}/fence"));
    create(&a, fence).await;
    let ops = |version| {
        vec![
            Op::check(fence, ZkVersion(version)),
            Op::create_ephemeral(path, ""),
            Op::set(path, "data", Expected::Version(ZkVersion(0))),
            Op::delete(fence, Expected::Any),
        ]
    };
    let refused = a.store.multi(ops(5)).await.unwrap_err();
    let bad_version = Box::new(ZkError::BadVersion { path: fence.clone() });
    assert_eq!(refused, ZkError::Multi { index: 0, reason: bad_version });
    let mut late = ops(0);
    late.push(Op::set(fence, "", Expected::Any));
    let no_node = Box::new(ZkError::NoNode { path: fence.clone() });
    assert_eq!(a.store.multi(late).await, Err(ZkError::Multi { index: 4, reason: no_node }));
    assert_eq!(b.store.children(&root, Watch::No).await.unwrap(), ["fence"]);

    let results = a.store.multi(ops(0)).await.unwrap();
    let node = b.store.get(path, Watch::No).await.unwrap().unwrap();
    assert_eq!((node.stat.version, node.data.as_slice()), (ZkVersion(1), &b"data"[..]));
    assert_eq!(node.stat.ephemeral_owner, Some(a.session_id()));
    let created = OpResult::Created(path.clone());
    assert_eq!(results, [OpResult::Checked, created, OpResult::Set(node.stat), OpResult::Deleted]);
    assert_eq!(node.stat.czxid, node.stat.mzxid);
    assert_eq!(a.store.multi(Vec::new()).await, Ok(Vec::new()));
}

async fn the_steps_of_a_multi_see_each_other(Clients { a, root, .. }: Clients) {
    let (parent, child) = (&format!("{root}/p"), &format!("{root}/p/c"));
    let ops = vec![
        Op::create(parent, "1"),
        Op::create(child, "1"),
        Op::set(parent, "2", Expected::Version(ZkVersion(0))),
        Op::check(parent, ZkVersion(1)),
        Op::delete(child, Expected::Version(ZkVersion(0))),
        Op::delete(parent, Expected::Version(ZkVersion(1))),
        Op::create(parent, "3"),
    ];
    a.store.multi(ops).await.unwrap();
    let node = a.store.get(parent, Watch::No).await.unwrap().unwrap();
    assert_eq!((node.data.as_slice(), node.stat.version), (&b"3"[..], ZkVersion(0)));
    assert_eq!(node.stat.num_children, 0);
}

async fn a_node_watch_fires_once(Clients { a, b, root }: Clients) {
    let (path, marker) = (&format!("{root}/n"), &format!("{root}/marker"));
    create(&b, path).await;
    create(&b, marker).await;
    let mut changes = a.store.changes();
    assert!(a.store.get(path, Watch::Yes).await.unwrap().is_some());
    b.store.set(path, b"1", Expected::Any).await.unwrap();
    until(&mut changes, "the change", |seen| seen.node_is_dirty(path)).await;

    // Not read again, so not watched.
    assert!(a.store.exists(marker, Watch::Yes).await.unwrap().is_some());
    b.store.set(path, b"2", Expected::Any).await.unwrap();
    b.store.set(marker, b"", Expected::Any).await.unwrap();
    let seen = until(&mut changes, "the marker", |seen| seen.node_is_dirty(marker)).await;
    assert!(!seen.node_is_dirty(path));

    assert!(a.store.get(path, Watch::Yes).await.unwrap().is_some());
    a.store.delete(path, Expected::Any).await.unwrap();
    until(&mut changes, "the deletion, ours", |seen| seen.node_is_dirty(path)).await;
}

async fn what_is_absent_is_watched_for_its_creation(Clients { a, b, root }: Clients) {
    let (path, list, child) = (&format!("{root}/n"), &format!("{root}/l"), &format!("{root}/l/c"));
    let mut changes = a.store.changes();
    assert_eq!(a.store.get(path, Watch::Yes).await, Ok(None));
    create(&b, path).await;
    until(&mut changes, "the node", |seen| seen.node_is_dirty(path)).await;

    assert_eq!(a.store.children(list, Watch::Yes).await, Ok(Vec::new()));
    create(&b, list).await;
    until(&mut changes, "the list", |seen| seen.node_is_dirty(list)).await;
    assert_eq!(a.store.children(list, Watch::Yes).await, Ok(Vec::new()));
    create(&b, child).await;
    until(&mut changes, "its child", |seen| seen.children_are_dirty(list)).await;
    assert_eq!(a.store.children(list, Watch::No).await.unwrap(), ["c"]);
}

async fn a_watch_of_children_sees_the_list_alone(Clients { a, b, root }: Clients) {
    let (list, child) = (&format!("{root}/l"), &format!("{root}/l/c"));
    let (grandchild, marker) = (&format!("{root}/l/c/g"), &format!("{root}/marker"));
    create(&b, list).await;
    create(&b, child).await;
    create(&b, marker).await;
    let mut changes = a.store.changes();
    assert_eq!(a.store.children(list, Watch::Yes).await.unwrap(), ["c"]);
    assert!(a.store.exists(marker, Watch::Yes).await.unwrap().is_some());
    create(&b, grandchild).await;
    b.store.set(list, b"x", Expected::Any).await.unwrap();
    b.store.set(child, b"x", Expected::Any).await.unwrap();
    b.store.set(marker, b"x", Expected::Any).await.unwrap();
    let seen = until(&mut changes, "the marker", |seen| seen.node_is_dirty(marker)).await;
    assert!(!seen.dirty.iter().any(|dirty| dirty.path != *marker), "{seen:?}");

    b.store.delete(grandchild, Expected::Any).await.unwrap();
    b.store.delete(child, Expected::Any).await.unwrap();
    until(&mut changes, "the shorter list", |seen| seen.children_are_dirty(list)).await;
    assert_eq!(a.store.children(list, Watch::Yes).await, Ok(Vec::new()));
    b.store.delete(list, Expected::Any).await.unwrap();
    let seen = until(&mut changes, "the list's end", |seen| seen.children_are_dirty(list)).await;
    assert!(!seen.node_is_dirty(list), "its node was not watched");
}

async fn reading_twice_before_a_change_is_one_watch(Clients { a, b, root }: Clients) {
    let path = &format!("{root}/n");
    create(&b, path).await;
    let mut changes = a.store.changes();
    for _ in 0..3 {
        a.store.get(path, Watch::Yes).await.unwrap();
        a.store.exists(path, Watch::Yes).await.unwrap();
        a.store.children(path, Watch::Yes).await.unwrap();
    }
    b.store.set(path, b"1", Expected::Any).await.unwrap();
    let seen = until(&mut changes, "the change", |seen| seen.node_is_dirty(path)).await;
    assert!(!seen.children_are_dirty(path));
    a.store.get(path, Watch::Yes).await.unwrap();
    b.store.set(path, b"2", Expected::Any).await.unwrap();
    until(&mut changes, "the second change", |seen| seen.node_is_dirty(path)).await;
    b.store.delete(path, Expected::Any).await.unwrap();
    until(&mut changes, "the deletion", |seen| seen.children_are_dirty(path)).await;
}

async fn a_multi_fires_the_watches_of_all_its_steps(Clients { a, b, root }: Clients) {
    let (old, new) = (&format!("{root}/old"), &format!("{root}/new"));
    create(&b, old).await;
    let mut changes = a.store.changes();
    a.store.get(old, Watch::Yes).await.unwrap();
    a.store.get(new, Watch::Yes).await.unwrap();
    a.store.children(&root, Watch::Yes).await.unwrap();
    let ops = vec![Op::delete(old, Expected::Any), Op::create(new, "")];
    b.store.multi(ops).await.unwrap();
    let expected =
        [dirty(&root, Watched::Children), dirty(new, Watched::Node), dirty(old, Watched::Node)];
    let all = |seen: &Changes| expected.iter().all(|dirty| seen.dirty.contains(dirty));
    until(&mut changes, "all three", all).await;
}

async fn a_lost_connection_keeps_the_session_and_dirties_what_was_watched(
    Clients { a, b, root }: Clients,
) {
    let (path, list) = (&format!("{root}/e"), &format!("{root}/l"));
    a.store.create(path, b"", CreateKind::Ephemeral).await.unwrap();
    let session = a.session_id();
    let mut changes = a.store.changes();
    a.store.get(path, Watch::Yes).await.unwrap();
    a.store.children(list, Watch::Yes).await.unwrap();
    changes.take();
    a.cut();
    let again = SessionState::Connected(session);
    let back = |seen: &Changes| {
        seen.session == Some(again) && seen.node_is_dirty(path) && seen.node_is_dirty(list)
    };
    until(&mut changes, "the connection", back).await;
    let node = b.store.get(path, Watch::No).await.unwrap().unwrap();
    assert_eq!(node.stat.ephemeral_owner, Some(session));
    a.store.get(path, Watch::Yes).await.unwrap();
    b.store.set(path, b"1", Expected::Any).await.unwrap();
    until(&mut changes, "a change after it", |seen| seen.node_is_dirty(path)).await;
}

async fn an_expired_session_is_replaced(Clients { a, b, root }: Clients) {
    let (path, marker) = (&format!("{root}/e"), &format!("{root}/marker"));
    a.store.create(path, b"", CreateKind::Ephemeral).await.unwrap();
    let session = a.session_id();
    let mut changes = a.store.changes();
    a.store.children(&root, Watch::Yes).await.unwrap();
    a.expire(&b, marker).await;
    let renewed = |seen: &Changes| {
        matches!(seen.session, Some(SessionState::Connected(new)) if new != session)
            && seen.children_are_dirty(&root)
    };
    until(&mut changes, "another session", renewed).await;
    assert_eq!(a.store.get(path, Watch::No).await, Ok(None));
    let created = a.store.create(path, b"", CreateKind::Ephemeral).await.unwrap();
    assert_eq!(created.stat.ephemeral_owner, Some(a.session_id()));
    assert_ne!(a.session_id(), session);
}

async fn a_closed_store_answers_nothing(Clients { a, b, root }: Clients) {
    let path = &format!("{root}/e");
    a.store.create(path, b"", CreateKind::Ephemeral).await.unwrap();
    let mut changes = a.store.changes();
    a.store.close().await.unwrap();
    assert_eq!(b.store.get(path, Watch::No).await, Ok(None));
    assert_eq!(a.store.get(path, Watch::No).await, Err(ZkError::Closed));
    assert_eq!(a.store.set(path, b"", Expected::Any).await, Err(ZkError::Closed));
    assert_eq!(a.store.session(), SessionState::Closed);
    let mut last = None;
    while let Some(changes) = timeout(AT_MOST, changes.next()).await.unwrap() {
        last = changes.session;
    }
    assert_eq!(last, Some(SessionState::Closed));
    a.store.close().await.unwrap();
}
