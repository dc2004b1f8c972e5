//! A broker whose ZooKeeper sessions end: it registers again, is the controller again, and serves all the while.

use std::{fs, sync::Arc, time::Duration};

use bytes::Bytes;
use client::{
    admin::{Admin, NewTopic},
    config::{ConnectionConfig, ConsumerConfig, ProducerConfig},
    consumer::{Consumer, Start},
    producer::{Producer, ProducerRecord},
};
use common::{
    config::broker::BrokerConfig,
    counters::Registry,
    ids::{BrokerId, Timestamp},
    properties::Properties,
    topic::TopicPartition,
};
use server::start::Running;
use tempfile::TempDir;
use tokio::time::timeout;
use zk::{
    changes::SessionState,
    documents::{
        controller::ControllerDocument,
        topic::{Assignment, TopicDocument},
    },
    fake::{FakeStore, FakeZooKeeper},
    paths,
    store::{Op, SessionId, Watch, ZkStore},
};

const PATIENCE: Duration = Duration::from_secs(20);

async fn start(zookeeper: &FakeZooKeeper, folder: &TempDir) -> (Running, Arc<FakeStore>) {
    start_at(zookeeper, folder, 0).await
}

async fn start_at(
    zookeeper: &FakeZooKeeper,
    folder: &TempDir,
    port: u16,
) -> (Running, Arc<FakeStore>) {
    let settings = [
        ("broker.id", "1".to_owned()),
        ("listeners", format!("PLAINTEXT://127.0.0.1:{port}")),
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

/// Clients of a broker in this process.
struct Clients {
    admin: Admin,
    producer: Producer,
    consumer: Consumer,
}

impl Clients {
    async fn of(running: &Running) -> Clients {
        let address = running.local_address("PLAINTEXT").unwrap();
        let properties = Properties::from([("bootstrap.servers".to_owned(), address.to_string())]);
        let admin = Admin::open(ConnectionConfig::admin(&properties).unwrap()).await.unwrap();
        let producer = Producer::open(ProducerConfig::read(&properties).unwrap()).await.unwrap();
        let consumer = Consumer::open(ConsumerConfig::read(&properties).unwrap()).await.unwrap();
        Clients { admin, producer, consumer }
    }

    async fn create(&self, name: &str) {
        let name = name.to_owned();
        let topic = NewTopic { name, partition_count: Some(1), ..NewTopic::default() };
        let created = self.admin.create_topics(&[topic]).await.unwrap();
        created.into_values().for_each(|result| result.unwrap());
    }

    async fn write(&self, topic: &str, value: &str) {
        let record = ProducerRecord {
            topic: topic.to_owned(),
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
            ..ProducerRecord::default()
        };
        self.producer.send(&record).await.unwrap().result().await.unwrap();
    }

    async fn read(&mut self) -> Vec<String> {
        let records = self.consumer.poll(PATIENCE).await.unwrap();
        let text = |value: Bytes| String::from_utf8(value.to_vec()).unwrap();
        records.into_iter().map(|record| text(record.value.unwrap())).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_stops_no_partition_and_leaves_every_watch_whole() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let (running, store) = start(&zookeeper, &folder).await;
    let observer = zookeeper.connect();
    owned(&observer, &store, paths::CONTROLLER).await;
    let mut clients = Clients::of(&running).await;
    clients.create("t").await;
    let partition = TopicPartition { topic: "t".into(), partition: 0 };
    clients.consumer.assign([(partition, Start::Earliest)]);
    // A producer that begins in an outage waits for its id, which ZooKeeper gives.
    clients.write("t", "before").await;
    assert_eq!(clients.read().await, ["before"]);
    // In one outage the session lives on, in the other it ends.
    for (round, is_long) in [false, true].into_iter().enumerate() {
        store.disconnect();
        if is_long {
            store.expire();
        }
        for number in 0..10 {
            let value = format!("{round}-{number}");
            clients.write("t", &value).await;
            assert_eq!(clients.read().await, [value]);
        }
        store.reconnect();
        owned(&observer, &store, &paths::broker_id(1)).await;
        owned(&observer, &store, paths::CONTROLLER).await;

        // A topic that appears in ZooKeeper is led, one that is to be deleted goes.
        let name = format!("made-{round}");
        let partitions = [(0, Assignment::of(vec![BrokerId(1)]))].into();
        let document = TopicDocument { topic_id: None, partitions };
        let ops = vec![
            Op::create(paths::topic_config(&name), "{\"version\":1,\"config\":{}}"),
            Op::create(paths::topic(&name), document.to_bytes()),
        ];
        observer.multi(ops).await.unwrap();
        there(&observer, &paths::partition_state(&name, 0), true).await;
        let mark = vec![Op::create(paths::delete_topic(&name), "")];
        observer.multi(mark).await.unwrap();
        there(&observer, &paths::topic(&name), false).await;
    }
    clients.producer.close().await;
    running.stop().await;
}

/// Waits until a node is there, or is not.
async fn there(observer: &FakeStore, path: &str, is_wanted: bool) {
    let mut changes = observer.changes().under(&[path]);
    let reached = async {
        while observer.exists(path, Watch::Yes).await.unwrap().is_some() != is_wanted {
            changes.next().await.unwrap();
        }
    };
    timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{path}: not {is_wanted}"));
}

/// Leaves what a killed broker leaves: its znodes, of a session that nobody tends, and its log directory.
async fn kill(
    zookeeper: &FakeZooKeeper,
    running: Running,
    observer: &FakeStore,
) -> (SessionId, u16) {
    let port = running.local_address("PLAINTEXT").unwrap().port();
    let registration = paths::broker_id(1);
    let node = observer.get(&registration, Watch::No).await.unwrap().unwrap();
    running.stop().await;
    there(observer, &registration, false).await;
    let ghost = zookeeper.open_ghost_session();
    let office = ControllerDocument::elected(BrokerId(1), Timestamp(1)).to_bytes();
    let ops = [
        Op::create_ephemeral(&registration, node.data),
        Op::create_ephemeral(paths::CONTROLLER, office),
    ];
    zookeeper.apply_as(ghost, &ops).unwrap();
    (ghost, port)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_knows_its_ghosts_by_its_file() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let (running, store) = start(&zookeeper, &folder).await;
    let observer = zookeeper.connect();
    owned(&observer, &store, paths::CONTROLLER).await;
    let (ghost, port) = kill(&zookeeper, running, &observer).await;
    let file = folder.path().join("data/.zookeeper_sessions");
    let sessions = fs::read_to_string(&file).unwrap();
    let before = store_id_of(&sessions);
    fs::write(&file, sessions.replace(&before, &ghost.0.to_string())).unwrap();

    let (running, store) = start_at(&zookeeper, &folder, port).await;
    owned(&observer, &store, &paths::broker_id(1)).await;
    owned(&observer, &store, paths::CONTROLLER).await;
    Clients::of(&running).await.create("after").await;
    running.stop().await;
}

/// The one session of the file, as its text has it.
fn store_id_of(text: &str) -> String {
    let document: serde_json::Value = serde_json::from_str(text).unwrap();
    document["sessions"][0].as_i64().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_without_its_file_waits_for_its_ghosts() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let (running, store) = start(&zookeeper, &folder).await;
    let observer = zookeeper.connect();
    owned(&observer, &store, paths::CONTROLLER).await;
    let (ghost, port) = kill(&zookeeper, running, &observer).await;
    fs::remove_file(folder.path().join("data/.zookeeper_sessions")).unwrap();

    let (server, data) = (zookeeper.clone(), folder.path().to_owned());
    let starting = start_at(&zookeeper, &folder, port);
    let end = async {
        // It has written its new session down, and so is about to register.
        let file = data.join("data/.zookeeper_sessions");
        while !file.exists() {
            tokio::task::yield_now().await;
        }
        server.expire_session(ghost);
    };
    let ((running, store), ()) = tokio::join!(starting, end);
    owned(&observer, &store, &paths::broker_id(1)).await;
    owned(&observer, &store, paths::CONTROLLER).await;
    Clients::of(&running).await.create("after").await;
    running.stop().await;
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
