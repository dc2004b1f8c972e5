//! A broker whose ZooKeeper sessions end: it registers again, is the controller again, and serves all the while.

use std::{sync::Arc, time::Duration};

use client::{
    admin::{Admin, NewTopic},
    config::ConnectionConfig,
};
use common::{config::broker::BrokerConfig, counters::Registry, properties::Properties};
use server::start::Running;
use tempfile::TempDir;
use tokio::time::timeout;
use zk::{
    changes::SessionState,
    fake::{FakeStore, FakeZooKeeper},
    paths,
    store::{SessionId, Watch, ZkStore},
};

const PATIENCE: Duration = Duration::from_secs(20);

async fn start(zookeeper: &FakeZooKeeper, folder: &TempDir) -> (Running, Arc<FakeStore>) {
    let settings = [
        ("broker.id", "1".to_owned()),
        ("listeners", "PLAINTEXT://127.0.0.1:0".to_owned()),
        ("zookeeper.connect", "nobody:1".to_owned()),
        ("log.dirs", folder.path().join("data").display().to_string()),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value));
    let config = Arc::new(BrokerConfig::parse(&Properties::from(settings)).unwrap());
    let store = zookeeper.connect();
    let running = Running::start_on(config, store.clone(), &Registry::default()).await.unwrap();
    (running, store)
}

/// Waits until a node belongs to the session that the store has then.
async fn owned(observer: &FakeStore, store: &FakeStore, path: &str) {
    let mut changes = observer.changes().under(&[path]);
    let reached = async {
        loop {
            let stat = observer.exists(path, Watch::Yes).await.unwrap();
            let owner: Option<SessionId> = stat.and_then(|stat| stat.ephemeral_owner);
            let session = match store.session() {
                SessionState::Connected(session) => Some(session),
                _ => None,
            };
            if owner.is_some() && owner == session {
                return;
            }
            changes.next().await.unwrap();
        }
    };
    timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{path} has no living owner"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_expiries_end_with_one_registration_and_a_broker_that_serves() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let (running, store) = start(&zookeeper, &folder).await;
    let observer = zookeeper.connect();
    for round in 0..100 {
        owned(&observer, &store, &paths::broker_id(1)).await;
        store.expire();
        if round % 2 == 0 {
            // And once more, while the broker is at it.
            store.expire();
        }
    }
    owned(&observer, &store, &paths::broker_id(1)).await;
    owned(&observer, &store, paths::CONTROLLER).await;
    let registrations = observer.children(paths::BROKER_IDS, Watch::No).await.unwrap();
    assert_eq!(registrations, ["1"]);

    let address = running.local_address("PLAINTEXT").unwrap();
    let bootstrap = ("bootstrap.servers".to_owned(), address.to_string());
    let config = ConnectionConfig::admin(&Properties::from([bootstrap])).unwrap();
    let admin = Admin::open(config).await.unwrap();
    let topic =
        NewTopic { name: "after".to_owned(), partition_count: Some(2), ..NewTopic::default() };
    let created = admin.create_topics(&[topic]).await.unwrap();
    created.into_values().for_each(|result| result.unwrap());
    running.stop().await;
    assert!(observer.children(paths::BROKER_IDS, Watch::No).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_stops_cleanly_while_zookeeper_is_away() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let (running, store) = start(&zookeeper, &folder).await;
    let observer = zookeeper.connect();
    owned(&observer, &store, paths::CONTROLLER).await;
    store.disconnect();
    timeout(PATIENCE, running.stop()).await.expect("it stops");
    assert!(folder.path().join("data/.kafka_cleanshutdown").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_was_just_started_knows_its_topics() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    for round in 0..10 {
        let (running, _store) = start(&zookeeper, &folder).await;
        let address = running.local_address("PLAINTEXT").unwrap();
        let bootstrap = ("bootstrap.servers".to_owned(), address.to_string());
        let config = ConnectionConfig::admin(&Properties::from([bootstrap])).unwrap();
        let admin = Admin::open(config).await.unwrap();
        // Asked as soon as the broker listens, and once: a client that hears of no topic may ask again minutes later.
        let topics = admin.list_topics().await.unwrap();
        assert_eq!(topics.len(), round, "{topics:?}");
        let name = format!("topic-{round}");
        let topic = NewTopic { name, partition_count: Some(2), ..NewTopic::default() };
        let created = admin.create_topics(&[topic]).await.unwrap();
        created.into_values().for_each(|result| result.unwrap());
        running.stop().await;
    }
}
