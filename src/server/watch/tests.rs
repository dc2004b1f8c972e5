//! Two brokers, of which one loses a log directory.

use common::{
    config::broker::BrokerConfig,
    counters::Registry,
    ids::{BrokerId, Offset},
    properties::Properties,
};
use metadata::snapshot::ClusterSnapshot;
use tempfile::TempDir;
use zk::{
    documents::topic::{Assignment, TopicDocument},
    fake::FakeZooKeeper,
    store::{Op, ZkStore},
};

use super::*;
use crate::start::Running;

const PATIENCE: Duration = Duration::from_secs(20);

async fn start(zookeeper: &FakeZooKeeper, folder: &TempDir, id: i32) -> Running {
    let directories = [0, 1].map(|one| folder.path().join(format!("{id}-{one}")));
    let settings = [
        ("broker.id", id.to_string()),
        ("listeners", "PLAINTEXT://127.0.0.1:0".to_owned()),
        ("zookeeper.connect", "nobody:1".to_owned()),
        ("log.dirs", directories.map(|path| path.display().to_string()).join(",")),
        ("controlled.shutdown.enable", "false".to_owned()),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value));
    let config = Arc::new(BrokerConfig::parse(&Properties::from(settings)).unwrap());
    Running::start_on(config, zookeeper.connect(), &Registry::default()).await.unwrap()
}

async fn until(broker: &Broker, is_so: impl Fn(&ClusterSnapshot) -> bool) {
    let deadline = common::clock::now() + PATIENCE;
    while !is_so(&broker.metadata.snapshot()) {
        assert!(common::clock::now() < deadline, "it never comes");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_the_controller_tells_it_of_a_failed_log_directory() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let controller = start(&zookeeper, &folder, 1).await;
    until(controller.broker(), |snapshot| snapshot.controller() == Some(BrokerId(1))).await;
    let failing = start(&zookeeper, &folder, 2).await;
    until(controller.broker(), |snapshot| snapshot.brokers().len() == 2).await;
    let partitions = [(0, Assignment::of(vec![BrokerId(2), BrokerId(1)]))].into();
    let document = TopicDocument { topic_id: None, partitions };
    let ops = vec![
        Op::create(paths::topic_config("t"), "{\"version\":1,\"config\":{}}"),
        Op::create(paths::topic("t"), document.to_bytes()),
    ];
    zookeeper.connect().multi(ops).await.unwrap();
    let leads = |id| {
        move |snapshot: &ClusterSnapshot| {
            snapshot.partition("t", 0).is_some_and(|known| known.leader == BrokerId(id))
        }
    };
    until(failing.broker(), leads(2)).await;

    let log = failing.broker().replicas.get("t", 0).unwrap().log().clone();
    std::fs::remove_dir_all(&*log.path()).unwrap();
    log.truncate_fully_and_start_at(Offset(1), None).unwrap_err();
    assert!(log.log_directory().is_offline());
    tokio::select! {
        reason = failing.fault() => panic!("it has another directory: {reason}"),
        () = until(controller.broker(), leads(1)) => {}
    }
    let snapshot = controller.broker().metadata.snapshot();
    let known = snapshot.partition("t", 0).unwrap();
    assert_eq!(*known.offline_replicas, [BrokerId(2)]);
    let store = zookeeper.connect();
    let deadline = common::clock::now() + PATIENCE;
    while !store.children(paths::LOG_DIR_EVENTS, Watch::No).await.unwrap().is_empty() {
        assert!(common::clock::now() < deadline, "the notice stays");
        tokio::task::yield_now().await;
    }
    failing.stop().await;
    controller.stop().await;
}
