//! Where brokers get producer ids: from the controller, or from ZooKeeper where brokers of before 3.0 may be in the cluster.

use std::{sync::Arc, time::Duration};

use client::{cluster::Cluster as Brokers, config::ConnectionConfig, connection::Connection};
use common::{
    clock,
    config::broker::BrokerConfig,
    counters::{MetricName, Registry},
    error_code::ErrorCode,
    ids::{BrokerId, Timestamp},
    properties::Properties,
};
use kafka_protocol::messages::InitProducerIdRequest;
use server::start::Running;
use tempfile::TempDir;
use zk::{
    documents::{controller::ControllerDocument, producer_ids::ProducerIdBlock},
    fake::{FakeStore, FakeZooKeeper},
    paths,
    store::{CreateKind, Expected, Watch, ZkStore},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A broker in this process, and a connection to it.
struct Broker {
    running: Running,
    store: Arc<FakeStore>,
    registry: Registry,
    brokers: Brokers,
    connection: Connection,
    _folder: TempDir,
}

impl Broker {
    async fn start(zookeeper: &FakeZooKeeper, id: i32, protocol: &str) -> Broker {
        let folder = TempDir::new().unwrap();
        let settings = [
            ("broker.id", id.to_string()),
            ("inter.broker.protocol.version", protocol.to_owned()),
            ("listeners", "PLAINTEXT://127.0.0.1:0".to_owned()),
            ("zookeeper.connect", "nobody:1".to_owned()),
            // Without a controller it would be asked for in vain.
            ("controlled.shutdown.enable", "false".to_owned()),
            ("log.dirs", folder.path().join("data").display().to_string()),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value));
        let config = Arc::new(BrokerConfig::parse(&Properties::from(settings)).unwrap());
        let (store, registry) = (zookeeper.connect(), Registry::default());
        let running = Running::start_on(config, store.clone(), &registry).await.unwrap();
        let address = running.local_address("PLAINTEXT").unwrap();
        let bootstrap = ("bootstrap.servers".to_owned(), address.to_string());
        let config = ConnectionConfig::admin(&Properties::from([bootstrap])).unwrap();
        let brokers = Brokers::open(config).await.unwrap();
        let connection = brokers.connect(&brokers.bootstrap()[0]).await.unwrap();
        Broker { running, store, registry, brokers, connection, _folder: folder }
    }

    async fn ask(&self) -> Result<i64, ErrorCode> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        let answer = self.connection.call(request).await.unwrap();
        match ErrorCode::from_code(answer.error_code) {
            ErrorCode::None => Ok(answer.producer_id.0),
            error => Err(error),
        }
    }

    /// The next id, as a client gets it.
    async fn id(&self) -> i64 {
        let deadline = clock::now() + PATIENCE;
        loop {
            match self.ask().await {
                Ok(id) => return id,
                Err(error) => assert_eq!(error, ErrorCode::CoordinatorLoadInProgress),
            }
            assert!(clock::now() < deadline, "there is never an id");
            self.brokers.back_off(0).await;
        }
    }

    /// How often it was asked for a block.
    fn requests(&self) -> u64 {
        let name = MetricName::new("kafka.network", "RequestMetrics", "RequestsPerSec");
        self.registry.meter(name.tag("request", "AllocateProducerIds")).count()
    }

    /// How often it wrote the znode.
    fn writes(&self) -> usize {
        let writes = self.store.take_writes().into_iter().flatten();
        writes.filter(|op| op.path() == paths::PRODUCER_ID_BLOCK).count()
    }
}

/// The last block, and whose it is.
async fn last_block(store: &FakeStore) -> (i32, i64) {
    let node = store.get(paths::PRODUCER_ID_BLOCK, Watch::No).await.unwrap().unwrap();
    let block = ProducerIdBlock::parse(&node.data).unwrap().unwrap();
    (block.broker.0, block.first.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_gives_blocks_to_all_brokers() {
    let zookeeper = FakeZooKeeper::new();
    let observer = zookeeper.connect();
    let controller = Broker::start(&zookeeper, 1, "3.9").await;
    assert_eq!(controller.id().await, 0);
    assert_eq!(last_block(&observer).await, (1, 0));
    let other = Broker::start(&zookeeper, 2, "3.9").await;
    assert_eq!(other.id().await, 1000);
    assert_eq!(last_block(&observer).await, (2, 1000));
    assert_eq!((controller.id().await, other.id().await), (1, 1001));
    assert_eq!((controller.requests(), controller.writes()), (1, 2));
    assert_eq!((other.requests(), other.writes()), (0, 0));

    // The next controller goes on where the last one stopped.
    controller.running.stop().await;
    for id in 1002..2000 {
        assert_eq!(other.id().await, id);
    }
    assert_eq!(other.id().await, 2000);
    assert_eq!(last_block(&observer).await, (2, 2000));
    assert_eq!(other.writes(), 1);
    other.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_controller_there_are_no_ids_until_there_is_one() {
    let zookeeper = FakeZooKeeper::new();
    let observer = zookeeper.connect();
    let away = ControllerDocument::elected(BrokerId(9), Timestamp(1)).to_bytes();
    observer.create(paths::CONTROLLER, &away, CreateKind::Ephemeral).await.unwrap();
    let broker = Broker::start(&zookeeper, 1, "3.0").await;
    assert_eq!(broker.ask().await, Err(ErrorCode::CoordinatorLoadInProgress));
    assert!(observer.exists(paths::PRODUCER_ID_BLOCK, Watch::No).await.unwrap().is_none());
    observer.delete(paths::CONTROLLER, Expected::Any).await.unwrap();
    assert!(broker.id().await < 1000);
    assert_eq!(last_block(&observer).await, (1, 0));
    broker.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_3_0_every_broker_takes_its_blocks_itself() {
    let zookeeper = FakeZooKeeper::new();
    let observer = zookeeper.connect();
    let away = ControllerDocument::elected(BrokerId(9), Timestamp(1)).to_bytes();
    observer.create(paths::CONTROLLER, &away, CreateKind::Ephemeral).await.unwrap();
    let one = Broker::start(&zookeeper, 1, "2.8").await;
    let other = Broker::start(&zookeeper, 2, "2.8").await;
    assert_eq!((one.ask().await, other.ask().await), (Ok(0), Ok(1000)));
    assert_eq!(last_block(&observer).await, (2, 1000));
    assert_eq!((one.writes(), other.writes()), (1, 1));
    assert_eq!(one.requests() + other.requests(), 0);
    one.running.stop().await;
    other.running.stop().await;
}
