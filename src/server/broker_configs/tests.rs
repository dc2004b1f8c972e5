//! Settings in ZooKeeper, from a file that says otherwise to what topics obey.

use std::{sync::Arc, time::Duration};

use common::{
    config::{broker::BrokerConfig, describe},
    counters::Registry,
    properties::{self, Properties},
};
use tempfile::TempDir;
use zk::{
    bootstrap::create_top_level_paths,
    configs::{self, Entity},
    fake::{FakeStore, FakeZooKeeper},
    store::{CreateKind, Watch, ZkStore},
};

use crate::start::{Running, StartError};

const ALL: &str = "<default>";
const PATIENCE: Duration = Duration::from_secs(20);

fn config(folder: &TempDir) -> Arc<BrokerConfig> {
    let lines = format!(
        "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nzookeeper.connect=nobody:1\nlog.dirs={}\n\
         controlled.shutdown.enable=false\nmin.insync.replicas=1\nmessage.max.bytes=2000",
        folder.path().display()
    );
    Arc::new(BrokerConfig::parse(&properties::parse(lines.as_bytes())).unwrap())
}

/// What an earlier cluster left: settings for all brokers and for one, and a topic with one of its own.
async fn left_behind(zk: &FakeStore) {
    create_top_level_paths(zk).await.unwrap();
    let nodes = [
        ("/config/brokers/<default>", r#"{"min.insync.replicas":"3","message.max.bytes":"3000"}"#),
        (
            "/config/brokers/1",
            r#"{"message.max.bytes":"4000","log.retention.ms":"x","num.io.threads":"9"}"#,
        ),
        ("/config/brokers/2", r#"{"min.insync.replicas":"7"}"#),
        ("/config/topics/own", r#"{"min.insync.replicas":"2"}"#),
    ];
    for (path, configs) in nodes {
        let data = format!(r#"{{"version":1,"config":{configs}}}"#);
        zk.create(path, data.as_bytes(), CreateKind::Persistent).await.unwrap();
    }
}

fn obeyed(running: &Running, topic: &str) -> (usize, usize) {
    let settings = running.broker().topic_configs.settings(topic);
    (settings.in_sync_replicas_min, settings.message_bytes_max)
}

async fn change(zk: &FakeStore, entity: &str, lines: &str) {
    let path = format!("/config/brokers/{entity}");
    let configs = properties::parse(lines.as_bytes());
    let data = zk::documents::config::configs_to_bytes(&configs);
    if zk.exists(&path, Watch::No).await.unwrap().is_none() {
        zk.create(&path, &data, CreateKind::Persistent).await.unwrap();
    } else {
        zk.set(&path, &data, zk::store::Expected::Any).await.unwrap();
    }
    configs::notify(zk, &Entity::new("brokers", entity)).await.unwrap();
}

async fn until(what: impl Fn() -> bool) {
    let look = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("it comes true");
}

#[tokio::test]
async fn what_stands_in_zookeeper_holds_from_the_start() {
    let (folder, zookeeper) = (TempDir::new().unwrap(), FakeZooKeeper::new());
    let zk = zookeeper.connect();
    left_behind(&zk).await;
    let running =
        Running::start_on(config(&folder), zookeeper.connect(), &Registry::default()).await;
    let running = running.unwrap();
    let broker = running.broker();
    assert_eq!((broker.config.min_insync_replicas, broker.config.message_max_bytes), (3, 4000));
    // The value that cannot be read is not taken.
    assert_eq!(broker.config.log_retention_ms, 604_800_000);
    assert_eq!(broker.config.log_dirs, [folder.path()]);
    assert_eq!(obeyed(&running, "any"), (3, 4000));
    let own = || obeyed(&running, "own") == (2, 4000);
    until(own).await;
    running.stop().await;
}

#[tokio::test]
async fn a_change_of_defaults_is_obeyed_by_topics_at_once() {
    let (folder, zookeeper) = (TempDir::new().unwrap(), FakeZooKeeper::new());
    let zk = zookeeper.connect();
    left_behind(&zk).await;
    let running =
        Running::start_on(config(&folder), zookeeper.connect(), &Registry::default()).await;
    let running = running.unwrap();
    until(|| obeyed(&running, "own") == (2, 4000)).await;

    change(&zk, ALL, "min.insync.replicas=2\nlog.retention.ms=77\nlog.cleaner.threads=2").await;
    until(|| obeyed(&running, "any") == (2, 4000)).await;
    let broker = running.broker();
    assert_eq!(broker.logs.default_config().retention_ms, 77);
    assert_eq!(broker.config.min_insync_replicas, 3, "as at the start");
    let current = broker.configs.current();
    let described = describe::topic(&current, &Properties::new()).unwrap();
    let entry = described.iter().find(|entry| entry.name == "min.insync.replicas").unwrap();
    assert_eq!(entry.source, describe::Source::DynamicDefaultBroker);

    // One that Kafka would not take leaves the others in force.
    change(&zk, "1", "message.max.bytes=5000\nmin.insync.replicas=0").await;
    until(|| obeyed(&running, "any") == (2, 5000)).await;
    assert_eq!(obeyed(&running, "own"), (2, 5000));

    change(&zk, "1", "").await;
    change(&zk, ALL, "").await;
    until(|| obeyed(&running, "any") == (1, 2000)).await;
    assert_eq!(obeyed(&running, "own"), (2, 2000));
    running.stop().await;
}

#[tokio::test]
async fn a_broker_that_could_not_serve_a_listener_of_zookeepers_does_not_start() {
    let (folder, zookeeper) = (TempDir::new().unwrap(), FakeZooKeeper::new());
    let zk = zookeeper.connect();
    create_top_level_paths(&*zk).await.unwrap();
    let listeners = r#"{"version":1,"config":{"listeners":"PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:1","advertised.listeners":"PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2"}}"#;
    zk.create("/config/brokers/1", listeners.as_bytes(), CreateKind::Persistent).await.unwrap();
    let refused =
        Running::start_on(config(&folder), zookeeper.connect(), &Registry::default()).await;
    assert!(matches!(refused.err(), Some(StartError::Protocol(_))));
}
