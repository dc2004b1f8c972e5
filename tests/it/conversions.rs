//! A broker keeps to its memory, however many clients make it convert records at once.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use client::{
    admin::{Admin, NewTopic},
    cluster::Cluster as Brokers,
    config::ConnectionConfig,
    connection::Connection,
};
use common::{ids::Timestamp, properties::Properties};
use kafka_protocol::{
    messages::{
        BrokerId, FetchRequest, ProduceRequest, TopicName,
        fetch_request::{FetchPartition, FetchTopic},
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::StrBytes,
};
use record::{build::BatchBuilder, compression::Compression};
use tempfile::TempDir;
use tests::ports::quiet_port;
use zookeeper::{config::Config, server::Server};

const LIMIT: Duration = Duration::from_secs(120);

/// What a batch of some kilobytes becomes.
const BOMB_BYTES: usize = 40 << 20;
const CLIENTS: usize = 24;

/// Each of the clients at once would cost more than twice its bomb.
const MEMORY_KIB_MAX: usize = CLIENTS * (BOMB_BYTES >> 10);

/// A broker that is a process of its own, so that its memory is.
struct Process {
    child: Child,
    properties: Properties,
    zookeeper: Option<Server>,
    _folder: TempDir,
}

impl Process {
    fn start() -> Process {
        let folder = TempDir::new().unwrap();
        let zookeeper = Server::start(Config::for_tests(folder.path().join("zookeeper"))).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], quiet_port()));
        let file = folder.path().join("server.properties");
        let settings = format!(
            "broker.id=1\nlisteners=PLAINTEXT://{address}\nzookeeper.connect={}\nlog.dirs={}\n",
            zookeeper.address(),
            folder.path().join("data").display(),
        );
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_odradek-commands"));
        command.arg("kafka.Kafka").arg(&file).env("LOG_DIR", folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let properties = Properties::from([("bootstrap.servers".to_owned(), address.to_string())]);
        Process { child, properties, zookeeper: Some(zookeeper), _folder: folder }
    }

    async fn connect(&self) -> Connection {
        let config = ConnectionConfig::admin(&self.properties).unwrap();
        let brokers = Brokers::open(config).await.unwrap();
        brokers.connect(&brokers.bootstrap()[0]).await.unwrap()
    }

    async fn create(&self, name: &str, configs: &[(&str, &str)]) {
        let config = ConnectionConfig::admin(&self.properties).unwrap();
        let admin = Admin::open(config).await.unwrap();
        let configs = configs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let topic = NewTopic {
            name: name.to_owned(),
            partition_count: Some(1),
            replication_factor: Some(1),
            configs: configs.collect(),
            ..NewTopic::default()
        };
        admin.create_topics(&[topic]).await.unwrap().into_values().for_each(|made| made.unwrap());
    }

    /// The most memory that the broker ever had.
    fn peak_kib(&self) -> usize {
        let status = Path::new("/proc").join(self.child.id().to_string()).join("status");
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        if let Some(zookeeper) = self.zookeeper.take() {
            zookeeper.stop();
        }
    }
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn bomb() -> Bytes {
    let mut batch = BatchBuilder::new(Compression::Gzip(1));
    batch.append(Timestamp(1), None, Some(&vec![0; BOMB_BYTES]), &[]).unwrap();
    batch.finish()
}

async fn produce(connection: &Connection, topic: &str, batch: Bytes) -> i16 {
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    let timeout_ms = i32::try_from(LIMIT.as_millis()).unwrap();
    let request = ProduceRequest::default()
        .with_acks(1)
        .with_timeout_ms(timeout_ms)
        .with_topic_data(vec![topic]);
    let answer = connection.call_as(request, 7, LIMIT).await.unwrap();
    answer.responses[0].partition_responses[0].error_code
}

/// As a consumer of before 0.11; how many bytes of records it got.
async fn fetch(connection: &Connection, topic: &str) -> usize {
    let partition = FetchPartition::default().with_partition(0).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_min_bytes(1)
        .with_topics(vec![topic]);
    let mut answer = connection.call_as(request, 2, LIMIT).await.unwrap();
    let partition = answer.responses.remove(0).partitions.remove(0);
    assert_eq!(partition.error_code, 0);
    partition.records.map_or(0, |records| records.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversions_share_their_memory() {
    let broker = Process::start();
    broker.create("as-sent", &[]).await;
    broker.create("rewritten", &[("compression.type", "zstd")]).await;
    let (batch, mut clients) = (bomb(), Vec::new());
    let first = broker.connect().await;
    assert_eq!(produce(&first, "as-sent", batch.clone()).await, 0);
    for number in 0..CLIENTS {
        let (connection, batch) = (broker.connect().await, batch.clone());
        clients.push(tokio::spawn(async move {
            match number % 2 {
                0 => assert_eq!(produce(&connection, "rewritten", batch).await, 0),
                // Where memory came too late a consumer asks again.
                _ => while fetch(&connection, "as-sent").await == 0 {},
            }
        }));
    }
    let all = async {
        for client in clients {
            client.await.unwrap();
        }
    };
    tokio::time::timeout(LIMIT, all).await.expect("every client gets its turn");
    let peak_kib = broker.peak_kib();
    assert!(peak_kib < MEMORY_KIB_MAX, "{peak_kib} KiB, of {MEMORY_KIB_MAX}");
}
