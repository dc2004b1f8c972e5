//! What only a client with a connection can show: outages, restarts, and Kafka's flows between two brokers.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{
    counters::Registry,
    ids::{BrokerId, Timestamp},
    security_protocol::SecurityProtocol,
    topic::Uuid,
};
use metadata::broker::Endpoint;
use parking_lot::Mutex;
use security::jaas::Login;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};
use zk::{
    bootstrap::{brokers, cluster_id, create_top_level_paths, generate_broker_id},
    changes::{Changes, SessionState},
    configs::{self, Entity},
    documents::{
        broker::BrokerDocument,
        topic::{Assignment, TopicDocument},
    },
    election::{Elected, elect},
    metrics::ZkMetrics,
    notifications::Notices,
    producer_ids::allocate_block,
    real::{ConnectError, RealStore, ZkConfig},
    registration::{Ghosts, RegisterError, register},
    resolver::Resolve,
    store::{CreateKind, Expected, Op, OpResult, Watch, ZkError, ZkStore},
    topics::{self, TopicCreated},
};
use zookeeper::{config::Config, server::Server};

use super::clients::{AT_MOST, Proxy, SESSION_TIMEOUT, config, until};

/// All of it but what restarts the server.
pub(super) async fn conform_over_the_network(server: SocketAddr) {
    chroots_are_created(server).await;
    a_chroot_that_is_gone_is_named(server).await;
    a_login_that_the_server_does_not_take_is_refused(server).await;
    requests_in_flight_are_limited_and_all_answered(server).await;
    a_store_closes_quickly_while_zookeeper_is_away(server).await;
    a_hundred_lost_connections_leave_one_session(server).await;
    reads_wait_for_zookeeper_to_come_back(server).await;
    a_connection_that_stalls_is_replaced(server).await;
    a_name_that_leads_elsewhere_is_followed(server).await;
    a_killed_broker_that_comes_back_is_registered_and_elected_at_once(server).await;
    two_brokers_share_a_cluster(server).await;
}

async fn chroots_are_created(server: SocketAddr) {
    let plain = RealStore::connect(config(&server.to_string())).await.unwrap();
    let chroot = format!("/chroot-{}/a/b", std::process::id());
    let connect = format!("{server},{server}{chroot}");
    let store = RealStore::connect(config(&connect)).await.unwrap();
    let created = store.create("/s_", b"x", CreateKind::PersistentSequential).await.unwrap();
    assert_eq!(created.path, "/s_0000000000");
    let inside = plain.get(&format!("{chroot}/s_0000000000"), Watch::No).await.unwrap();
    assert_eq!(inside.unwrap().data, b"x");
    let mut changes = store.changes();
    store.get("/s_0000000000", Watch::Yes).await.unwrap();
    let results = store.multi(vec![Op::delete("/s_0000000000", Expected::Any)]).await;
    assert_eq!(results, Ok(vec![OpResult::Deleted]));
    until(&mut changes, "its deletion", |seen| seen.node_is_dirty("/s_0000000000")).await;
    store.close().await.unwrap();
    plain.close().await.unwrap();
}

async fn a_chroot_that_is_gone_is_named(server: SocketAddr) {
    let plain = RealStore::connect(config(&server.to_string())).await.unwrap();
    let chroot = format!("/gone-{}", std::process::id());
    let store = RealStore::connect(config(&format!("{server}{chroot}"))).await.unwrap();
    plain.delete(&chroot, Expected::Any).await.unwrap();
    let gone = Err(ZkError::NoChroot { chroot });
    assert_eq!(create_top_level_paths(&*store).await, gone);
    let created = store.create("/a", b"", CreateKind::Persistent).await.map(|_| ());
    assert_eq!(created, gone);
    store.close().await.unwrap();
    plain.close().await.unwrap();
}

/// The servers here have no users; Apache's answers such a login with nothing.
async fn a_login_that_the_server_does_not_take_is_refused(server: SocketAddr) {
    let mut config = config(&server.to_string());
    let (username, password) = ("kafka".to_owned(), "secret".to_owned());
    config.login = Some(Login { username, password });
    let error = RealStore::connect(config).await.err().expect("nobody is logged in");
    assert!(matches!(error, ConnectError::AuthFailed), "{error}");
}

async fn requests_in_flight_are_limited_and_all_answered(server: SocketAddr) {
    for limit in [1, 3] {
        let (address, most) = relay_that_counts(server).await;
        let mut config = config(&address.to_string());
        config.max_in_flight_requests = limit;
        let store: Arc<dyn ZkStore> = RealStore::connect(config).await.unwrap();
        let mut reads = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let store = store.clone();
            reads.spawn(async move { store.get("/", Watch::No).await.unwrap().is_some() });
        }
        assert!(reads.join_all().await.into_iter().all(|there| there));
        assert_eq!(most.load(Ordering::Relaxed), limit, "requests without an answer, at most");
        store.close().await.unwrap();
    }
}

/// Passes frames on, and counts the requests that have no answer yet: at most so many at a time.
async fn relay_that_counts(server: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    const PING: i32 = -2;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let told = most.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = TcpStream::connect(server).await.unwrap().into_split();
            let (asked, answered, most) = (open.clone(), open.clone(), most.clone());
            // The first frame of either side opens the session.
            tokio::spawn(pass_frames(from_client, to_server, move |xid| {
                if xid != PING {
                    most.fetch_max(asked.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
            }));
            tokio::spawn(pass_frames(from_server, to_client, move |xid| {
                if xid != PING {
                    answered.fetch_sub(1, Ordering::Relaxed);
                }
            }));
        }
    });
    (address, told)
}

/// Passes frames on, each as it comes, and tells the first number of all but the first.
async fn pass_frames(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, see: impl Fn(i32)) {
    let mut is_first = true;
    while let Ok(length) = from.read_i32().await {
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        if from.read_exact(&mut frame).await.is_err() {
            return;
        }
        if !std::mem::take(&mut is_first) {
            see(i32::from_be_bytes(frame[..4].try_into().unwrap()));
        }
        if to.write_i32(length).await.is_err() || to.write_all(&frame).await.is_err() {
            return;
        }
    }
}

async fn a_store_closes_quickly_while_zookeeper_is_away(server: SocketAddr) {
    let proxy = Proxy::start(server).await;
    let store = RealStore::connect(config(&proxy.address.to_string())).await.unwrap();
    let mut changes = store.changes();
    proxy.block();
    let away = |seen: &Changes| matches!(seen.session, Some(SessionState::Disconnected(_)));
    until(&mut changes, "the loss", away).await;
    let waiting = store.clone();
    let read = tokio::spawn(async move { waiting.get("/", Watch::No).await });
    tokio::task::yield_now().await;
    assert!(timeout(Duration::from_secs(1), store.close()).await.is_ok(), "closes at once");
    assert_eq!(read.await.unwrap(), Err(ZkError::Closed));
}

async fn a_hundred_lost_connections_leave_one_session(server: SocketAddr) {
    let proxy = Proxy::start(server).await;
    let store = RealStore::connect(config(&proxy.address.to_string())).await.unwrap();
    let session = store.session().session_id();
    let path = format!("/cut-{}", std::process::id());
    store.create(&path, b"", CreateKind::Ephemeral).await.unwrap();
    for _ in 0..100 {
        proxy.block();
        proxy.let_through();
        assert!(store.get(&path, Watch::Yes).await.unwrap().is_some());
    }
    assert_eq!(store.session().session_id(), session);
    store.close().await.unwrap();
}

async fn reads_wait_for_zookeeper_to_come_back(server: SocketAddr) {
    let proxy = Proxy::start(server).await;
    let store = RealStore::connect(config(&proxy.address.to_string())).await.unwrap();
    let mut changes = store.changes();
    proxy.block();
    let away = |seen: &Changes| matches!(seen.session, Some(SessionState::Disconnected(_)));
    until(&mut changes, "the loss", away).await;
    let waiting = store.clone();
    let read = tokio::spawn(async move { waiting.get("/", Watch::No).await });
    proxy.let_through();
    let read = timeout(AT_MOST, read).await.expect("an answer").unwrap();
    assert!(read.unwrap().is_some());
    store.close().await.unwrap();
}

async fn a_connection_that_stalls_is_replaced(server: SocketAddr) {
    let proxy = Proxy::start(server).await;
    let store = RealStore::connect(config(&proxy.address.to_string())).await.unwrap();
    let session = store.session();
    let path = format!("/stall-{}", std::process::id());
    store.create(&path, b"", CreateKind::Ephemeral).await.unwrap();
    proxy.stall();
    let write = store.set(&path, b"1", Expected::Any).await;
    assert_eq!(write, Err(ZkError::MayHaveHappened { path: path.clone() }));
    assert!(store.get(&path, Watch::No).await.unwrap().is_some());
    assert_eq!(store.session(), session);
    store.close().await.unwrap();
}

async fn a_name_that_leads_elsewhere_is_followed(server: SocketAddr) {
    let [first, second, third] =
        [Proxy::start(server).await, Proxy::start(server).await, Proxy::start(server).await];
    let addresses = Arc::new(Mutex::new(vec![first.address]));
    let asked = addresses.clone();
    let connect = format!("zookeeper.test:7/named-{}", std::process::id());
    let resolve: Resolve = Arc::new(move |host| match host {
        "zookeeper.test:7" => Ok(asked.lock().clone()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    });
    let store = RealStore::connect(ZkConfig { resolve, ..config(&connect) }).await.unwrap();
    let session = store.session().session_id();
    store.create("/e", b"", CreateKind::Ephemeral).await.unwrap();
    *addresses.lock() = vec![second.address];
    first.block();
    assert!(store.get("/e", Watch::Yes).await.unwrap().is_some());
    assert_eq!(store.session().session_id(), session);

    // Of two addresses one takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    *addresses.lock() = vec![silent.local_addr().unwrap(), third.address];
    second.block();
    let read = timeout(AT_MOST, store.get("/", Watch::No)).await.expect("the other is tried");
    assert!(read.unwrap().is_some());
    store.close().await.unwrap();
}

pub(super) async fn a_session_outlives_a_restart_of_zookeeper(
    server: Server,
    folder: &std::path::Path,
) {
    let address = server.address();
    let metrics = ZkMetrics::of_broker(&Registry::default());
    let config = ZkConfig { metrics: metrics.clone(), ..config(&address.to_string()) };
    let store = RealStore::connect(config).await.unwrap();
    let session = store.session().session_id();
    store.create("/restart", b"", CreateKind::Ephemeral).await.unwrap();
    store.get("/restart", Watch::Yes).await.unwrap();
    let mut changes = store.changes();
    changes.take();
    server.stop();
    let away = |seen: &Changes| matches!(seen.session, Some(SessionState::Disconnected(_)));
    until(&mut changes, "the loss", away).await;
    // Longer than the session lasts with a server that is there: nobody can say that it has ended.
    let quiet = timeout(SESSION_TIMEOUT * 3 / 2, changes.next()).await;
    assert!(quiet.is_err(), "{quiet:?} in an outage");
    let metrics = &metrics;
    assert_eq!((metrics.disconnects.count(), metrics.sync_connects.count()), (1, 1));
    let again = Config { client_address: Some(address), ..Config::for_tests(folder) };
    let server = Server::start(again).unwrap();
    let back = |seen: &Changes| {
        matches!(seen.session, Some(SessionState::Connected(_))) && seen.node_is_dirty("/restart")
    };
    until(&mut changes, "the server", back).await;
    assert_eq!((metrics.sync_connects.count(), metrics.expires.count()), (2, 0));
    assert_eq!(metrics.request_latency_ms.count(), 2);
    assert_eq!(store.session().session_id(), session);
    let node = store.get("/restart", Watch::No).await.unwrap().unwrap();
    assert_eq!(node.stat.ephemeral_owner, session);
    store.close().await.unwrap();
    server.stop();
}

fn registration(port: u16) -> BrokerDocument {
    let endpoint = Endpoint {
        listener: "PLAINTEXT".to_owned(),
        host: "127.0.0.1".to_owned(),
        port,
        protocol: SecurityProtocol::Plaintext,
    };
    BrokerDocument {
        version: 5,
        endpoints: vec![endpoint],
        rack: None,
        jmx_port: -1,
        timestamp: Timestamp(1),
        features: BTreeMap::new(),
    }
}

async fn a_killed_broker_that_comes_back_is_registered_and_elected_at_once(server: SocketAddr) {
    let proxy = Proxy::start(server).await;
    let chroot = format!("/killed-{}", std::process::id());
    let connect = format!("{}{chroot}", proxy.address);
    let long =
        |connect: &str| ZkConfig { session_timeout: Duration::from_secs(30), ..config(connect) };
    let killed = RealStore::connect(long(&connect)).await.unwrap();
    let session = killed.session().session_id();
    let nobody = Ghosts { is_ours: &|_| false, wait_at_most: AT_MOST };
    let (id, now) = (BrokerId(1), Timestamp(1));
    let first = register(&*killed, id, &registration(9092), &nobody).await.unwrap();
    let Elected::Us(office) = elect(&*killed, id, now, &nobody).await.unwrap() else {
        panic!("alone, and not elected")
    };
    proxy.block();

    let store = RealStore::connect(long(&format!("{server}{chroot}"))).await.unwrap();
    let is_ours = |owner| Some(owner) == session;
    let ours = Ghosts { is_ours: &is_ours, wait_at_most: AT_MOST };
    let back = async {
        let epoch = register(&*store, id, &registration(9093), &ours).await.unwrap();
        (epoch, elect(&*store, id, now, &ours).await.unwrap())
    };
    let (epoch, elected) = timeout(Duration::from_secs(5), back).await.expect("at once");
    assert!(epoch > first);
    let Elected::Us(again) = elected else { panic!("{elected:?}") };
    assert_eq!(again.epoch.0, office.epoch.0 + 1);
    assert!(store.multi(vec![office.check()]).await.is_err(), "the dead one is fenced off");
    killed.close().await.unwrap();
    store.close().await.unwrap();
}

async fn two_brokers_share_a_cluster(server: SocketAddr) {
    let connect = format!("{server}/cluster-{}", std::process::id());
    let connect = config(&connect);
    let (a, b) = tokio::join!(RealStore::connect(connect.clone()), RealStore::connect(connect));
    let (a, b) = (a.unwrap(), b.unwrap());
    let made = tokio::join!(create_top_level_paths(&*a), create_top_level_paths(&*b));
    assert_eq!(made, (Ok(()), Ok(())));
    let ids = tokio::join!(cluster_id(&*a, Uuid::random()), cluster_id(&*b, Uuid::random()));
    assert_eq!(ids.0.unwrap(), ids.1.unwrap());
    let ids = tokio::join!(generate_broker_id(&*a, 1000), generate_broker_id(&*b, 1000));
    let mut ids = [ids.0.unwrap().0, ids.1.unwrap().0];
    ids.sort_unstable();
    assert_eq!(ids, [1001, 1002]);

    let nobody = Ghosts { is_ours: &|_| false, wait_at_most: AT_MOST };
    register(&*a, BrokerId(1), &registration(1), &nobody).await.unwrap();
    let taken = register(&*b, BrokerId(1), &registration(2), &nobody).await.unwrap_err();
    assert!(matches!(taken, RegisterError::Taken { .. }), "{taken}");
    register(&*b, BrokerId(2), &registration(2), &nobody).await.unwrap();
    let brokers: Vec<i32> = brokers(&*b).await.unwrap().iter().map(|b| b.id.0).collect();
    assert_eq!(brokers, [1, 2]);

    let (one, two) = (BrokerId(1), BrokerId(2));
    let elected = tokio::join!(
        elect(&*a, one, Timestamp(1), &nobody),
        elect(&*b, two, Timestamp(1), &nobody)
    );
    let won = [elected.0.unwrap(), elected.1.unwrap()]
        .into_iter()
        .filter(|elected| matches!(elected, Elected::Us(fence) if fence.epoch.0 == 1));
    assert_eq!(won.count(), 1);

    let partitions = [(0, Assignment::of(vec![one, two]))].into();
    let topic = TopicDocument { topic_id: Some(Uuid::random()), partitions };
    let configs = [("retention.ms".to_owned(), "1".to_owned())].into();
    assert_eq!(topics::create(&*a, "t", &configs, &topic).await, Ok(TopicCreated::Created));
    assert_eq!(topics::create(&*b, "t", &configs, &topic).await, Ok(TopicCreated::Exists));
    let mut notices = Notices::of_configs();
    assert_eq!(notices.next(&*b, Timestamp(0)).await, Ok(Vec::new()));
    let mut changes = b.changes();
    configs::change(&*a, &Entity::new("topics", "t"), &configs).await.unwrap();
    let told = |seen: &Changes| seen.children_are_dirty(notices.root());
    until(&mut changes, "the notice", told).await;
    assert_eq!(notices.next(&*b, Timestamp(0)).await.unwrap().len(), 1);
    assert_eq!(configs::read(&*b, &Entity::new("topics", "t")).await.unwrap(), configs);
    let blocks = tokio::join!(allocate_block(&*a, one), allocate_block(&*b, two));
    let mut blocks = [blocks.0.unwrap(), blocks.1.unwrap()];
    blocks.sort_by_key(|block| block.start);
    assert_eq!(blocks, [0..1000, 1000..2000]);
    a.close().await.unwrap();
    b.close().await.unwrap();
}
