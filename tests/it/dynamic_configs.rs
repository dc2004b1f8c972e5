//! Settings of brokers that stand in ZooKeeper, as clients see them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use client::{
    admin::{
        Admin, NewTopic,
        configs::{AlterOperation, ConfigResource},
    },
    config::{ConnectionConfig, ProducerConfig},
    producer::{Producer, ProducerRecord},
};
use common::{
    config::broker::BrokerConfig,
    counters::Registry,
    error_code::ErrorCode,
    properties::{self, Properties},
};
use server::start::Running;
use tempfile::TempDir;
use zk::{
    bootstrap::create_top_level_paths,
    configs::{self, Entity},
    fake::FakeZooKeeper,
    store::{CreateKind, Expected, Watch, ZkStore},
};

const DEFAULTS: &str = "/config/brokers/<default>";
const PATIENCE: Duration = Duration::from_secs(20);

fn document(configs: &str) -> Vec<u8> {
    format!(r#"{{"version":1,"config":{configs}}}"#).into_bytes()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

struct Started {
    running: Running,
    /// Properties of clients.
    client: Properties,
    admin: Admin,
}

/// Starts broker 1 with another line in its file.
async fn start(zookeeper: &FakeZooKeeper, folder: &TempDir, line: &str) -> Started {
    let lines = format!(
        "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nzookeeper.connect=nobody:1\nlog.dirs={}\n{line}",
        folder.path().join("data").display()
    );
    let config = Arc::new(BrokerConfig::parse(&properties::parse(lines.as_bytes())).unwrap());
    let running =
        Running::start_on(config, zookeeper.connect(), &Registry::default()).await.unwrap();
    let address = running.local_address("PLAINTEXT").unwrap().to_string();
    let client = Properties::from([
        ("bootstrap.servers".to_owned(), address),
        ("retries".to_owned(), "0".to_owned()),
        ("acks".to_owned(), "all".to_owned()),
        ("enable.idempotence".to_owned(), "false".to_owned()),
    ]);
    let admin = Admin::open(ConnectionConfig::admin(&client).unwrap()).await.unwrap();
    Started { running, client, admin }
}

type Described = (Option<String>, i8, Vec<(String, Option<String>, i8)>);

/// Value, source and synonyms of a config.
async fn described(admin: &Admin, resource: ConfigResource, name: &str) -> Described {
    let configs = admin.describe_configs(&resource).await.unwrap();
    let found = configs.into_iter().find(|config| config.name == name).unwrap();
    (found.value, found.source, found.synonyms)
}

/// Sends a record of 1000 bytes to topic `t`.
async fn send(client: &Properties) -> Result<(), ErrorCode> {
    let producer = Producer::open(ProducerConfig::read(client).unwrap()).await.unwrap();
    let record = ProducerRecord {
        topic: "t".to_owned(),
        value: Some(Bytes::from_static(&[7; 1000])),
        ..ProducerRecord::default()
    };
    let sent = producer.send(&record).await.unwrap().result().await;
    sent.map(drop).map_err(|error| error.code())
}

/// A broker of a cluster whose operator has set more in-sync replicas and smaller batches for all brokers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_set_for_all_brokers_is_described_and_obeyed() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let zk = zookeeper.connect();
    create_top_level_paths(&*zk).await.unwrap();
    let set = document(r#"{"min.insync.replicas":"2","message.max.bytes":"500"}"#);
    zk.create(DEFAULTS, &set, CreateKind::Persistent).await.unwrap();
    let own = document(r#"{"log.retention.ms":"77"}"#);
    zk.create("/config/brokers/1", &own, CreateKind::Persistent).await.unwrap();
    let Started { running, client, admin } =
        start(&zookeeper, &folder, "min.insync.replicas=1").await;
    let topic = NewTopic { name: "t".to_owned(), partition_count: Some(1), ..NewTopic::default() };
    admin.create_topics(&[topic]).await.unwrap()["t"].clone().unwrap();

    let described = async |resource, name| described(&admin, resource, name).await;
    let name = "min.insync.replicas";
    let of = |value: &str, source| (name.to_owned(), text(value), source);
    let synonyms = vec![of("2", 3), of("1", 4), of("1", 5)];
    for resource in [ConfigResource::Broker(Some(1)), ConfigResource::Topic("t".to_owned())] {
        assert_eq!(described(resource, name).await, (text("2"), 3, synonyms.clone()));
    }
    let of_all = described(ConfigResource::Broker(None), name).await;
    assert_eq!(of_all, (text("2"), 3, vec![of("2", 3)]));
    let (value, source, _) = described(ConfigResource::Topic("t".to_owned()), "retention.ms").await;
    assert_eq!((value, source), (text("77"), 2));

    let send = async || send(&client).await;
    assert_eq!(send().await.err(), Some(ErrorCode::MessageTooLarge));

    zk.set(DEFAULTS, &document("{}"), Expected::Any).await.unwrap();
    configs::notify(&*zk, &Entity::new("brokers", "<default>")).await.unwrap();
    let obeyed = async {
        while send().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, obeyed).await.expect("the file counts again");
    running.stop().await;
}

/// Clients change settings of a broker and of all; they are written as Kafka writes them, described, and obeyed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_changes_is_written_described_and_obeyed() {
    let (zookeeper, folder) = (FakeZooKeeper::new(), TempDir::new().unwrap());
    let zk = zookeeper.connect();
    let Started { running, client, admin } =
        start(&zookeeper, &folder, "message.max.bytes=2000").await;
    let topic = NewTopic { name: "t".to_owned(), partition_count: Some(1), ..NewTopic::default() };
    admin.create_topics(&[topic]).await.unwrap()["t"].clone().unwrap();
    send(&client).await.unwrap();

    let alter = async |broker, name: &str, operation| {
        let changes = BTreeMap::from([(name.to_owned(), operation)]);
        admin.alter_configs(&ConfigResource::Broker(broker), &changes).await
    };
    let set = |value: &str| AlterOperation::Set(value.to_owned());
    let name = "message.max.bytes";
    alter(Some(1), name, set("500")).await.unwrap();
    alter(None, name, set("600")).await.unwrap();
    let data = async |path: &str| {
        let node = zk.get(path, Watch::No).await.unwrap().unwrap();
        String::from_utf8(node.data.to_vec()).unwrap()
    };
    let written = |value| format!(r#"{{"config":{{"message.max.bytes":"{value}"}},"version":1}}"#);
    assert_eq!(data("/config/brokers/1").await, written("500"));
    assert_eq!(data(DEFAULTS).await, written("600"));
    for (index, entity) in ["brokers/1", "brokers/<default>"].into_iter().enumerate() {
        let notice = data(&format!("/config/changes/config_change_{index:010}")).await;
        assert_eq!(notice, format!(r#"{{"version":2,"entity_path":"{entity}"}}"#));
    }

    let of = |value: &str, source| (name.to_owned(), text(value), source);
    let synonyms = vec![of("500", 2), of("600", 3), of("2000", 4), of("1048588", 5)];
    let expected = (text("500"), 2, synonyms);
    let shown = async {
        while described(&admin, ConfigResource::Broker(Some(1)), name).await != expected {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, shown).await.expect("the changes are described");
    assert_eq!(send(&client).await, Err(ErrorCode::MessageTooLarge));

    let refused = alter(None, "num.partitions", set("3")).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidRequest);
    alter(None, name, AlterOperation::Delete).await.unwrap();
    alter(Some(1), name, AlterOperation::Delete).await.unwrap();
    let obeyed = async {
        while send(&client).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, obeyed).await.expect("the file counts again");
    running.stop().await;
}
