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

fn leads(id: i32) -> impl Fn(&ClusterSnapshot) -> bool {
    move |snapshot| snapshot.partition("t", 0).is_some_and(|known| known.leader == BrokerId(id))
}

/// The controller, and the leader of a partition that both have.
async fn start_both(zookeeper: &FakeZooKeeper, folder: &TempDir) -> (Running, Running) {
    let controller = start(zookeeper, folder, 1).await;
    until(controller.broker(), |snapshot| snapshot.controller() == Some(BrokerId(1))).await;
    let leader = start(zookeeper, folder, 2).await;
    until(controller.broker(), |snapshot| snapshot.brokers().len() == 2).await;
    let partitions = [(0, Assignment::of(vec![BrokerId(2), BrokerId(1)]))].into();
    let document = TopicDocument { topic_id: None, partitions };
    let ops = vec![
        Op::create(paths::topic_config("t"), "{\"version\":1,\"config\":{}}"),
        Op::create(paths::topic("t"), document.to_bytes()),
    ];
    zookeeper.connect().multi(ops).await.unwrap();
    until(leader.broker(), leads(2)).await;
    (controller, leader)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_the_controller_tells_it_of_a_failed_log_directory() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let (controller, failing) = start_both(&zookeeper, &folder).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_room_hands_over_and_is_in_sync_again_once_there_is_some() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let (controller, full) = start_both(&zookeeper, &folder).await;
    let partition = full.broker().replicas.get("t", 0).unwrap();
    let directory = partition.log().log_directory();
    directory.found_full(common::clock::now());
    tokio::select! {
        reason = full.fault() => panic!("it can be read: {reason}"),
        () = until(controller.broker(), leads(1)) => {}
    }
    // The failure is soon long ago.
    let is_whole = |snapshot: &ClusterSnapshot| {
        let known = snapshot.partition("t", 0).unwrap();
        known.isr.len() == 2 && known.offline_replicas.is_empty()
    };
    tokio::select! {
        reason = full.fault() => panic!("it can be read: {reason}"),
        () = until(controller.broker(), is_whole) => {}
    }
    assert!(!directory.is_short_of_room());
    full.stop().await;
    controller.stop().await;
}
