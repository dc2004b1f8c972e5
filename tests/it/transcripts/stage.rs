//! One broker on a ZooKeeper, and a folder to run commands in.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use client::{
    admin::{Admin, NewTopic},
    config::{ConnectionConfig, ProducerConfig},
    offsets::{CommittedOffset, Partitions},
    producer::{Producer, ProducerRecord},
};
use common::{
    config::broker::BrokerConfig,
    ids::Timestamp,
    properties::{self, Properties},
    topic::TopicPartition,
};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use security::java_options::JavaOptions;
use server::start::Running;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zookeeper::{config::Config, server::Server};

use super::recording::{Recording, folder};

/// Longest wait for a commit.
const COMMIT_LIMIT: Duration = Duration::from_secs(60);

/// What a command did.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) exit: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// The class that a script's command has.
fn class(script: &str) -> &'static str {
    match script {
        "kafka-topics" => "org.apache.kafka.tools.TopicCommand",
        "kafka-console-producer" => "kafka.tools.ConsoleProducer",
        "kafka-console-consumer" => "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "kafka-consumer-groups" => "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "kafka-consumer-perf-test" => "org.apache.kafka.tools.ConsumerPerformance",
        "kafka-verifiable-consumer" => "org.apache.kafka.tools.VerifiableConsumer",
        "kafka-verifiable-producer" => "org.apache.kafka.tools.VerifiableProducer",
        "kafka-transactions" => "org.apache.kafka.tools.TransactionsCommand",
        "kafka-get-offsets" => "org.apache.kafka.tools.GetOffsetShell",
        "kafka-dump-log" => "kafka.tools.DumpLogSegments",
        "kafka-producer-perf-test" => "org.apache.kafka.tools.ProducerPerformance",
        "kafka-broker-api-versions" => "kafka.admin.BrokerApiVersionsCommand",
        "kafka-server-start" => "kafka.Kafka",
        other => panic!("{other} has no class here"),
    }
}

/// A folder with the recorder's files, and the programs' names for what the recorder had.
pub(super) struct Stage {
    folder: TempDir,
    /// Where nobody listens: bound, and never answered.
    _nobody: OwnedFd,
    nobody: u16,
    cluster: Option<Cluster>,
}

/// A ZooKeeper and a broker.
struct Cluster {
    runtime: Runtime,
    broker: Option<Running>,
    zookeeper: Option<Server>,
    bootstrap: String,
    zookeeper_address: String,
}

impl Stage {
    /// Without a broker.
    pub(super) fn empty() -> Stage {
        let folder = TempDir::new().unwrap();
        copy_files(&self::folder().join("files"), folder.path());
        let (nobody, port) = bound_port();
        Stage { folder, _nobody: nobody, nobody: port, cluster: None }
    }

    /// With a broker that has the settings of the recorder's, as far as they concern these scripts.
    pub(super) fn with_broker() -> Stage {
        let mut stage = Stage::empty();
        stage.cluster = Some(Cluster::start(stage.path()));
        stage
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn cluster_id(&self) -> &str {
        let cluster = self.cluster.as_ref().expect("a stage with a broker");
        cluster.broker.as_ref().expect("it runs until the end").cluster_id()
    }

    /// Runs a recorded command to its end.
    pub(super) fn run(&self, recording: &Recording) -> Run {
        self.run_with(recording, &recording.args)
    }

    /// Runs it with other arguments.
    pub(super) fn run_with(&self, recording: &Recording, arguments: &[String]) -> Run {
        let mut command = self.command(&recording.tool, arguments);
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // A command that refuses its options does not read.
        let _ = input.write_all(recording.stdin.as_deref().unwrap_or_default().as_bytes());
        drop(input);
        let output = child.wait_with_output().unwrap();
        Run {
            exit: output.status.code().expect("commands end by themselves"),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// A command, its recorded addresses replaced by ours.
    pub(super) fn command(&self, script: &str, arguments: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_odradek-commands"));
        command.arg(class(script));
        command.args(arguments.iter().map(|argument| self.ours(argument)));
        command.current_dir(self.path());
        command.env("TZ", "UTC").env("LOG_DIR", self.path().join("logs"));
        let log4j = folder().join("server-log4j.properties");
        command.env("KAFKA_LOG4J_OPTS", format!("-Dlog4j.configuration=file:{}", log4j.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The recorder's addresses and folder, replaced by ours.
    pub(super) fn ours(&self, text: &str) -> String {
        let mut text = text.replace("127.0.0.1:31299", &format!("127.0.0.1:{}", self.nobody));
        text = text.replace("/tmp/golden/tr", &self.path().display().to_string());
        if let Some(cluster) = &self.cluster {
            text = text.replace("127.0.0.1:31201", &cluster.bootstrap);
            text = text.replace("127.0.0.1:31200", &cluster.zookeeper_address);
        }
        text
    }

    /// Creates topics; partitions each.
    pub(super) fn create_topics(&self, topics: &[(&str, i32)]) {
        let cluster = self.cluster.as_ref().expect("a stage with a broker");
        let topics: Vec<NewTopic> = topics
            .iter()
            .map(|(name, partitions)| NewTopic {
                name: (*name).to_owned(),
                partition_count: Some(*partitions),
                replication_factor: Some(1),
                ..NewTopic::default()
            })
            .collect();
        cluster.runtime.block_on(async {
            let config = ConnectionConfig::admin(&cluster.client_properties()).unwrap();
            let admin = Admin::open(config).await.unwrap();
            for (name, result) in admin.create_topics(&topics).await.unwrap() {
                result.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        });
    }

    /// Writes a record a partition with each of these times, each in a batch of its own.
    pub(super) fn produce(&self, topic: &str, partitions: i32, times: std::ops::Range<i64>) {
        let cluster = self.cluster.as_ref().expect("a stage with a broker");
        cluster.runtime.block_on(async {
            let config = ProducerConfig::read(&cluster.client_properties()).unwrap();
            let producer = Producer::open(config).await.unwrap();
            for time in times {
                for partition in 0..partitions {
                    let record = ProducerRecord {
                        topic: topic.to_owned(),
                        partition: Some(partition),
                        timestamp: Some(Timestamp(time)),
                        value: Some(format!("value {time}").into()),
                        ..ProducerRecord::default()
                    };
                    producer.send(&record).await.unwrap().result().await.unwrap();
                }
            }
            producer.close().await;
        });
    }

    /// Does something as the cluster's administrator.
    pub(super) fn with_admin<T>(&self, act: impl AsyncFnOnce(&Admin) -> T) -> T {
        let cluster = self.cluster.as_ref().expect("a stage with a broker");
        cluster.runtime.block_on(async {
            let config = ConnectionConfig::admin(&cluster.client_properties()).unwrap();
            act(&Admin::open(config).await.unwrap()).await
        })
    }

    /// Writes records of a hundred bytes to partition 0.
    pub(super) fn produce_many(&self, topic: &str, count: usize) {
        let cluster = self.cluster.as_ref().expect("a stage with a broker");
        cluster.runtime.block_on(async {
            let config = ProducerConfig::read(&cluster.client_properties()).unwrap();
            let producer = Producer::open(config).await.unwrap();
            let record = ProducerRecord {
                topic: topic.to_owned(),
                partition: Some(0),
                value: Some(vec![b'x'; 100].into()),
                ..ProducerRecord::default()
            };
            for _ in 0..count {
                producer.send(&record).await.unwrap();
            }
            producer.close().await;
        });
    }

    /// Waits until the group has committed these offsets: topic, partition, offset.
    pub(super) fn wait_for_offsets(&self, group: &str, wanted: &[(&str, i32, i64)]) {
        let is_there = |offsets: &Partitions<CommittedOffset>| {
            wanted.iter().all(|(topic, partition, offset)| {
                let committed = offsets.get(&TopicPartition::new(*topic, *partition));
                committed.is_some_and(|committed| committed.offset == *offset)
            })
        };
        self.with_admin(async |admin| {
            let waiting = async {
                // Nobody tells of a commit, so it is asked for until it is there.
                while !is_there(&admin.group_offsets(group, None).await.unwrap()) {}
            };
            tokio::time::timeout(COMMIT_LIMIT, waiting).await.expect("the group commits");
        });
    }

    /// Ids of the topics, by name.
    pub(super) fn topic_ids(&self) -> BTreeMap<String, String> {
        let cluster = self.cluster.as_ref().expect("a stage with a broker");
        cluster.runtime.block_on(async {
            let config = ConnectionConfig::admin(&cluster.client_properties()).unwrap();
            let topics = Admin::open(config).await.unwrap().list_topics().await.unwrap();
            topics.into_iter().map(|topic| (topic.name, topic.id.to_string())).collect()
        })
    }
}

impl Cluster {
    fn start(folder: &Path) -> Cluster {
        let zookeeper = Server::start(Config::for_tests(folder.join("zookeeper"))).unwrap();
        let zookeeper_address = zookeeper.address().to_string();
        let recorded = fs::read(self::folder().join("server1.properties")).unwrap();
        let mut settings: Properties = properties::parse(&recorded);
        settings.retain(|key, _| !is_of_security(key));
        settings.insert("listeners".to_owned(), "PLAINTEXT://127.0.0.1:0".to_owned());
        settings.insert("zookeeper.connect".to_owned(), zookeeper_address.clone());
        settings.insert("log.dirs".to_owned(), folder.join("b1/data").display().to_string());
        let config = BrokerConfig::parse(&settings).unwrap();
        let runtime = Runtime::new().unwrap();
        let broker =
            runtime.block_on(Running::start(Arc::new(config), &JavaOptions::default())).unwrap();
        let address = broker.local_address("PLAINTEXT").unwrap();
        Cluster {
            runtime,
            broker: Some(broker),
            zookeeper: Some(zookeeper),
            bootstrap: address.to_string(),
            zookeeper_address,
        }
    }

    fn client_properties(&self) -> Properties {
        Properties::from([("bootstrap.servers".to_owned(), self.bootstrap.clone())])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(broker) = self.broker.take() {
            self.runtime.block_on(broker.stop());
        }
        if let Some(zookeeper) = self.zookeeper.take() {
            zookeeper.stop();
        }
    }
}

/// Settings of the recorder's brokers that have no place on one without security.
fn is_of_security(key: &str) -> bool {
    const WORDS: [&str; 6] =
        ["sasl", "authorizer", "super.users", "acl", "delegation.token", "password.encoder"];
    WORDS.iter().any(|word| key.contains(word))
}

/// A socket that is bound but does not listen, and its port: connections are refused, and nobody else gets it.
pub(super) fn bound_port() -> (OwnedFd, u16) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddrV4::try_from(getsockname(&socket).unwrap()).unwrap();
    (socket, address.port())
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}
