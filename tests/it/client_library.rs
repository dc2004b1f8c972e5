//! The client library against a broker in this process.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use client::{
    admin::{
        Admin, NewPartitions, NewTopic,
        configs::{AlterOperation, ConfigResource},
    },
    config::{ConnectionConfig, ConsumerConfig, ProducerConfig},
    consumer::{Consumer, ConsumerRecord, Start},
    partitioner::partition_for_key,
    producer::{Producer, ProducerRecord},
};
use common::{
    config::broker::BrokerConfig,
    error_code::ErrorCode,
    ids::{Offset, Timestamp},
    properties::Properties,
    topic::TopicPartition,
};
use security::java_options::JavaOptions;
use server::start::Running;
use tempfile::TempDir;
use tests::ports::quiet_port;
use zookeeper::{config::Config, server::Server};

/// A ZooKeeper and a broker, which may go away and come back at the same address.
struct Cluster {
    folder: TempDir,
    zookeeper: Server,
    address: SocketAddr,
    broker: Option<Running>,
}

impl Cluster {
    async fn start() -> Cluster {
        let folder = TempDir::new().unwrap();
        let zookeeper = Server::start(Config::for_tests(folder.path().join("zookeeper"))).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], quiet_port()));
        let mut cluster = Cluster { folder, zookeeper, address, broker: None };
        cluster.start_broker().await;
        cluster
    }

    async fn start_broker(&mut self) {
        let settings = [
            ("broker.id", "1".to_owned()),
            ("listeners", format!("PLAINTEXT://{}", self.address)),
            ("zookeeper.connect", self.zookeeper.address().to_string()),
            ("log.dirs", self.folder.path().join("data").display().to_string()),
            ("auto.create.topics.enable", "false".to_owned()),
            ("offsets.topic.replication.factor", "1".to_owned()),
            ("offsets.topic.num.partitions", "1".to_owned()),
            ("group.initial.rebalance.delay.ms", "0".to_owned()),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value));
        let config = BrokerConfig::parse(&Properties::from(settings)).unwrap();
        self.broker =
            Some(Running::start(Arc::new(config), &JavaOptions::default()).await.unwrap());
    }

    async fn stop_broker(&mut self) {
        self.broker.take().unwrap().stop().await;
    }

    async fn stop(mut self) {
        self.stop_broker().await;
        self.zookeeper.stop();
    }

    fn properties(&self, settings: &[(&str, &str)]) -> Properties {
        let mut properties =
            Properties::from([("bootstrap.servers".to_owned(), self.address.to_string())]);
        for (key, value) in settings {
            properties.insert((*key).to_owned(), (*value).to_owned());
        }
        properties
    }

    async fn admin(&self) -> Admin {
        let config = ConnectionConfig::admin(&self.properties(&[])).unwrap();
        Admin::open(config).await.unwrap()
    }

    async fn producer(&self, settings: &[(&str, &str)]) -> Producer {
        let config = ProducerConfig::read(&self.properties(settings)).unwrap();
        Producer::open(config).await.unwrap()
    }

    async fn consumer(&self, settings: &[(&str, &str)]) -> Consumer {
        let config = ConsumerConfig::read(&self.properties(settings)).unwrap();
        Consumer::open(config).await.unwrap()
    }

    async fn create(&self, topic: &str, partitions: i32) {
        let topic = NewTopic {
            name: topic.to_owned(),
            partition_count: Some(partitions),
            replication_factor: Some(1),
            ..NewTopic::default()
        };
        let created = self.admin().await.create_topics(&[topic]).await.unwrap();
        created.into_values().for_each(|result| result.unwrap());
    }
}

/// Reads until so many records are there.
async fn read(consumer: &mut Consumer, count: usize) -> Vec<ConsumerRecord> {
    let mut records = Vec::new();
    while records.len() < count {
        let more = consumer.poll(Duration::from_secs(30)).await.unwrap();
        assert!(!more.is_empty(), "{} of {count} records came", records.len());
        records.extend(more);
    }
    records
}

fn record(topic: &str, value: &str) -> ProducerRecord {
    ProducerRecord {
        topic: topic.to_owned(),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        ..ProducerRecord::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_back_as_they_were_sent_with_every_codec() {
    let cluster = Cluster::start().await;
    cluster.create("t", 3).await;
    let mut sent = Vec::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let producer = cluster.producer(&[("compression.type", codec)]).await;
        for number in 0..10 {
            let record = ProducerRecord {
                topic: "t".to_owned(),
                timestamp: Some(Timestamp(1_700_000_000_000 + number)),
                key: (number % 3 > 0).then(|| Bytes::from(format!("{codec} {number}"))),
                value: (number % 4 > 0).then(|| Bytes::from(codec.repeat(100))),
                headers: vec![
                    ("same".to_owned(), None),
                    ("same".to_owned(), Some(Bytes::from("x"))),
                ],
                ..ProducerRecord::default()
            };
            let written = producer.send(&record).await.unwrap();
            sent.push((record, written));
        }
        producer.flush().await;
    }
    let mut expected = BTreeMap::new();
    for (record, delivery) in sent {
        let written = delivery.result().await.unwrap();
        if let Some(key) = &record.key {
            assert_eq!(written.partition.partition, partition_for_key(key, 3));
        }
        let place = (written.partition.partition, written.offset.0);
        let content = (written.timestamp, record.key, record.value, record.headers);
        assert_eq!(expected.insert(place, content), None, "an offset was given twice");
    }
    let mut consumer = cluster.consumer(&[("auto.offset.reset", "earliest")]).await;
    consumer.subscribe(vec!["t".to_owned()]);
    let records = read(&mut consumer, expected.len()).await;
    let found: BTreeMap<_, _> = records
        .into_iter()
        .map(|record| {
            let place = (record.partition.partition, record.offset.0);
            (place, (record.timestamp, record.key, record.value, record.headers))
        })
        .collect();
    assert_eq!(found, expected);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_broker_loses_doubles_and_reorders_nothing() {
    let mut cluster = Cluster::start().await;
    cluster.create("t", 2).await;
    // A broker that comes back knows the last batch of a producer alone, for its snapshot holds no more; so one that
    // is sent again is recognised only where no other had followed it.
    let settings = [
        ("batch.size", "200"),
        ("request.timeout.ms", "5000"),
        ("max.in.flight.requests.per.connection", "1"),
    ];
    let producer = cluster.producer(&settings).await;
    let mut consumer = cluster.consumer(&[("auto.offset.reset", "earliest")]).await;
    consumer.subscribe(vec!["t".to_owned()]);
    let (count, mut deliveries) = (2000, Vec::new());
    for number in 0..count {
        let mut record = record("t", &number.to_string());
        record.partition = Some(number % 2);
        deliveries.push(producer.send(&record).await.unwrap());
        if number % 700 == 600 {
            cluster.stop_broker().await;
            cluster.start_broker().await;
        }
    }
    producer.flush().await;
    for delivery in deliveries {
        delivery.result().await.unwrap();
    }
    let mut next = [0, 1];
    for record in read(&mut consumer, usize::try_from(count).unwrap()).await {
        let expected = &mut next[usize::try_from(record.partition.partition).unwrap()];
        assert_eq!(record.value.as_deref(), Some(expected.to_string().as_bytes()));
        *expected += 2;
    }
    assert_eq!(next, [count, count + 1]);
    producer.close().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_goes_where_it_is_told() {
    let cluster = Cluster::start().await;
    cluster.create("t", 1).await;
    let producer = cluster.producer(&[]).await;
    for number in 0..20 {
        let mut record = record("t", &number.to_string());
        record.timestamp = Some(Timestamp(1000 + 10 * number));
        producer.send(&record).await.unwrap().result().await.unwrap();
    }
    let partition = TopicPartition::new("t", 0);
    let mut consumer = cluster.consumer(&[("max.poll.records", "3")]).await;
    let first = |records: Vec<ConsumerRecord>| records[0].offset;
    consumer.assign([(partition.clone(), Start::At(Offset(7)))]);
    assert_eq!(first(read(&mut consumer, 1).await), Offset(7));
    assert_eq!(consumer.position(&partition), Some(Offset(10)));
    consumer.seek(&partition, Start::Earliest);
    assert_eq!(first(read(&mut consumer, 1).await), Offset(0));
    // The end, by the reset that an offset out of range leads to.
    consumer.seek(&partition, Start::At(Offset(1000)));
    assert_eq!(consumer.poll(Duration::from_millis(300)).await.unwrap(), []);
    assert_eq!(consumer.position(&partition), Some(Offset(20)));
    let times = [(1055, 6), (-1, 20), (-2, 0), (-3, 19), (5000, -1)];
    for (time, offset) in times {
        let wanted = BTreeMap::from([(partition.clone(), time)]);
        let listed = consumer.list_offsets(&wanted).await.unwrap();
        assert_eq!(listed[&partition].as_ref().unwrap().offset, offset, "{time}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administration_does_what_it_says() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin().await;
    cluster.create("t", 1).await;
    let more = NewPartitions { topic: "t".to_owned(), count: 3, assignment: None };
    admin.create_partitions(&[more]).await.unwrap()["t"].clone().unwrap();
    let described = admin.describe_topics(&["t".to_owned(), "no".to_owned()]).await.unwrap();
    assert_eq!(described["t"].as_ref().unwrap().partitions.len(), 3);
    let missing = described["no"].as_ref().unwrap_err();
    assert_eq!(missing.code(), ErrorCode::UnknownTopicOrPartition);
    let topic = ConfigResource::Topic("t".to_owned());
    let change = |operation| BTreeMap::from([("retention.ms".to_owned(), operation)]);
    let retention = async || {
        let configs = admin.describe_configs(&topic).await.unwrap();
        let config = configs.into_iter().find(|config| config.name == "retention.ms").unwrap();
        (config.value.clone().unwrap(), config.is_default())
    };
    admin.alter_configs(&topic, &change(AlterOperation::Set("5".to_owned()))).await.unwrap();
    assert_eq!(retention().await, ("5".to_owned(), false));
    let refused = admin.alter_configs(&topic, &change(AlterOperation::Set("x".to_owned()))).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::InvalidConfig);
    admin.alter_configs(&topic, &change(AlterOperation::Delete)).await.unwrap();
    assert_eq!(retention().await, ("604800000".to_owned(), true));
    let cluster_description = admin.describe_cluster().await.unwrap();
    assert_eq!(cluster_description.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [1]);
    let directories = admin.describe_log_dirs(1).await.unwrap();
    assert_eq!(directories.results[0].topics.len(), 1);
    assert!(admin.list_reassignments(None).await.unwrap().is_empty());
    admin.delete_topics(&["t".to_owned()]).await.unwrap()["t"].clone().unwrap();
    assert!(admin.list_topics().await.unwrap().is_empty());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_before_an_offset_are_deleted() {
    let cluster = Cluster::start().await;
    cluster.create("t", 1).await;
    let producer = cluster.producer(&[]).await;
    for number in 0..5 {
        producer.send(&record("t", &number.to_string())).await.unwrap().result().await.unwrap();
    }
    let admin = cluster.admin().await;
    let partition = TopicPartition::new("t", 0);
    for (before, low) in [(2, Ok(2)), (100, Err(ErrorCode::OffsetOutOfRange)), (-1, Ok(5))] {
        let wanted = BTreeMap::from([(partition.clone(), before)]);
        let deleted = admin.delete_records(&wanted).await.unwrap()[&partition].clone();
        assert_eq!(deleted.map_err(|error| error.code()), low);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_without_a_home_fails_in_time() {
    let cluster = Cluster::start().await;
    let producer = cluster.producer(&[("max.block.ms", "200")]).await;
    let error = producer.send(&record("nothing", "x")).await.err().unwrap();
    assert_eq!(error.to_string(), "Topic nothing not present in metadata after 200 ms.");
    let error = producer.send(&record("bad name", "x")).await.err().unwrap();
    assert_eq!(error.to_string(), "Invalid topics: [bad name]");
    let large = record("nothing", &"x".repeat(2 << 20));
    let error = producer.send(&large).await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::MessageTooLarge);
    cluster.stop().await;
}

/// Polls members until they have so many partitions, the largest share first: who gets it hangs on random member ids.
async fn settle(members: &mut [&mut Consumer], shares: &[usize]) {
    let settling = async {
        loop {
            let mut held: Vec<usize> =
                members.iter().map(|member| member.assignment().len()).collect();
            held.sort_unstable_by(|one, other| other.cmp(one));
            if held == shares {
                return;
            }
            for member in members.iter_mut() {
                let records = member.poll(Duration::from_millis(20)).await.unwrap();
                assert!(records.is_empty(), "nothing was written yet");
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), settling).await.expect("the group settles");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_share_a_topic_and_take_over_from_who_leaves() {
    let cluster = Cluster::start().await;
    cluster.create("t", 3).await;
    let settings =
        [("group.id", "g"), ("auto.offset.reset", "earliest"), ("heartbeat.interval.ms", "50")];
    let mut first = cluster.consumer(&settings).await;
    first.subscribe(vec!["t".to_owned()]);
    settle(&mut [&mut first], &[3]).await;
    let mut second = cluster.consumer(&settings).await;
    second.subscribe_pattern(|topic| topic == "t");
    settle(&mut [&mut first, &mut second], &[2, 1]).await;
    second.close().await;
    settle(&mut [&mut first], &[3]).await;
    let revoked = first.take_rebalances();
    assert_eq!(revoked.len(), 5, "assigned, revoked, assigned, revoked, assigned: {revoked:?}");
    first.close().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_on_where_it_closed() {
    let cluster = Cluster::start().await;
    cluster.create("t", 1).await;
    let producer = cluster.producer(&[]).await;
    for value in ["one", "two", "three"] {
        producer.send(&record("t", value)).await.unwrap();
    }
    producer.flush().await;
    let settings =
        [("group.id", "g"), ("auto.offset.reset", "earliest"), ("max.poll.records", "2")];
    let mut consumer = cluster.consumer(&settings).await;
    consumer.subscribe(vec!["t".to_owned()]);
    assert_eq!(read(&mut consumer, 2).await.len(), 2);
    consumer.close().await;
    let admin = cluster.admin().await;
    let partition = TopicPartition::new("t", 0);
    let committed = admin.group_offsets("g", None).await.unwrap();
    assert_eq!((committed[&partition].offset, committed[&partition].leader_epoch), (2, 0));
    assert_eq!(admin.describe_group("g").await.unwrap().state, "Empty");
    let mut again = cluster.consumer(&settings).await;
    again.subscribe(vec!["t".to_owned()]);
    let values: Vec<Option<Bytes>> =
        read(&mut again, 1).await.into_iter().map(|record| record.value).collect();
    assert_eq!(values, [Some(Bytes::from("three"))]);
    again.close().await;
    producer.close().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_member_keeps_its_place_and_fences_its_double() {
    let cluster = Cluster::start().await;
    cluster.create("t", 1).await;
    let settings = [("group.id", "g"), ("group.instance.id", "i"), ("heartbeat.interval.ms", "50")];
    let mut old = cluster.consumer(&settings).await;
    old.subscribe(vec!["t".to_owned()]);
    settle(&mut [&mut old], &[1]).await;
    let mut new = cluster.consumer(&settings).await;
    new.subscribe(vec!["t".to_owned()]);
    settle(&mut [&mut new], &[1]).await;
    let fenced = async {
        loop {
            if let Err(error) = old.poll(Duration::from_millis(20)).await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(60), fenced).await.unwrap();
    assert_eq!(error.code(), ErrorCode::FencedInstanceId);
    new.close().await;
    let left = cluster.admin().await.describe_group("g").await.unwrap();
    assert_eq!((left.state.as_str(), left.members.len()), ("Stable", 1));
    cluster.stop().await;
}
