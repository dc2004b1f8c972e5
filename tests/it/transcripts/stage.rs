//! Brokers on a ZooKeeper, and a folder to run commands in.

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
    cluster::Cluster as Brokers,
    config::{ConnectionConfig, ProducerConfig},
    metadata::Partition,
    offsets::{CommittedOffset, Partitions},
    producer::{Producer, ProducerRecord},
};
use common::{
    config::broker::BrokerConfig,
    ids::Timestamp,
    properties::{self, Properties},
    topic::TopicPartition,
};
use kafka_protocol::{
    messages::{MetadataRequest, TopicName, metadata_request::MetadataRequestTopic},
    protocol::StrBytes,
};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use security::java_options::JavaOptions;
use server::start::Running;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zookeeper::{config::Config, server::Server};

use super::{
    recording::{Recording, folder},
    settled::settled,
};

/// Longest wait for a commit, or for what the controller decides.
pub(super) const WAIT_LIMIT: Duration = Duration::from_secs(60);

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
        "kafka-leader-election" => "org.apache.kafka.tools.LeaderElectionCommand",
        "kafka-reassign-partitions" => "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "kafka-replica-verification" => "org.apache.kafka.tools.ReplicaVerificationTool",
        "kafka-get-offsets" => "org.apache.kafka.tools.GetOffsetShell",
        "kafka-dump-log" => "kafka.tools.DumpLogSegments",
        "kafka-producer-perf-test" => "org.apache.kafka.tools.ProducerPerformance",
        "kafka-broker-api-versions" => "kafka.admin.BrokerApiVersionsCommand",
        "kafka-server-start" => "kafka.Kafka",
        other => panic!("{other} has no class here"),
    }
}

/// A topic's name, the brokers of its partitions as `--replica-assignment` has them, and its configs.
pub(super) type AssignedTopic<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// A folder with the recorder's files, and the programs' names for what the recorder had.
pub(super) struct Stage {
    folder: TempDir,
    /// Where nobody listens: bound, and never answered.
    _nobody: OwnedFd,
    nobody: u16,
    cluster: Option<Cluster>,
}

/// A ZooKeeper and brokers.
struct Cluster {
    runtime: Runtime,
    /// By id, from 1 on; one that was stopped is none.
    brokers: Vec<Option<Running>>,
    zookeeper: Option<Server>,
    /// Addresses of the brokers, by id.
    addresses: Vec<String>,
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
        Stage::with_brokers(1)
    }

    /// With as many brokers of the recorder's three.
    pub(super) fn with_brokers(count: usize) -> Stage {
        let mut stage = Stage::empty();
        stage.cluster = Some(Cluster::start(stage.path(), count));
        stage.wait_for_brokers(count);
        stage
    }

    /// Starts the next of the recorder's brokers.
    pub(super) fn add_broker(&mut self) {
        let cluster = self.cluster.as_mut().expect("a stage with brokers");
        cluster.add_broker(self.folder.path());
        let count = cluster.brokers.len();
        self.wait_for_brokers(count);
    }

    fn wait_for_brokers(&self, count: usize) {
        self.with_admin(async |admin| {
            let waiting = async {
                while admin.describe_cluster().await.unwrap().nodes.len() < count {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(WAIT_LIMIT, waiting).await.expect("the brokers know each other");
        });
    }

    /// Stops the broker of that id as if it were killed: what it leads is not moved before it goes.
    pub(super) fn stop_broker(&mut self, id: usize) {
        let cluster = self.cluster.as_mut().expect("a stage with brokers");
        let broker = cluster.brokers[id - 1].take().expect("it runs");
        cluster.runtime.block_on(broker.stop());
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn cluster_id(&self) -> &str {
        let cluster = self.cluster.as_ref().expect("a stage with a broker");
        cluster.brokers[0].as_ref().expect("it runs until the end").cluster_id()
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

    /// A command, its recorded addresses replaced by ours, when the brokers agree on what there is.
    pub(super) fn command(&self, script: &str, arguments: &[String]) -> Command {
        self.cluster.as_ref().inspect(|cluster| cluster.settle());
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
            for (id, address) in (1..).zip(&cluster.addresses) {
                text = text.replace(&format!("127.0.0.1:3120{id}"), address);
            }
            text = text.replace("127.0.0.1:31200", &cluster.zookeeper_address);
        }
        text
    }

    /// Creates topics; partitions each.
    pub(super) fn create_topics(&self, topics: &[(&str, i32)]) {
        let cluster = self.cluster.as_ref().expect("a stage with a broker");
        let names = topics.iter().map(|(name, _)| *name).collect::<Vec<_>>();
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
            // The controller has answered; each broker is told in its own time.
            let running = cluster.addresses.iter().zip(&cluster.brokers);
            for (address, _) in running.filter(|(_, broker)| broker.is_some()) {
                let told = until_known(address, &names);
                tokio::time::timeout(WAIT_LIMIT, told).await.expect("the brokers are told");
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

    /// Creates topics on given brokers.
    pub(super) fn assign_topics(&self, topics: &[AssignedTopic<'_>]) {
        let replicas = |list: &str| list.split(':').map(|id| id.parse().unwrap()).collect();
        let topics: Vec<NewTopic> = topics
            .iter()
            .map(|(name, assignment, configs)| NewTopic {
                name: (*name).to_owned(),
                assignment: (0..).zip(assignment.split(',').map(replicas)).collect(),
                configs: configs
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
                ..NewTopic::default()
            })
            .collect();
        self.with_admin(async |admin| {
            for (name, result) in admin.create_topics(&topics).await.unwrap() {
                result.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        });
    }

    /// Waits until all brokers that a topic's partitions name are in sync.
    pub(super) fn wait_for_replicas(&self, topic: &str) {
        self.wait_for_topic(topic, |partition| {
            partition.leader.is_some() && partition.isr.len() == partition.replicas.len()
        });
    }

    /// Waits until no broker of that id leads a partition of the topic or is in sync with other replicas.
    pub(super) fn wait_without(&self, topic: &str, id: i32) {
        self.wait_for_topic(topic, |partition| {
            partition.leader != Some(id) && (partition.isr == [id] || !partition.isr.contains(&id))
        });
    }

    fn wait_for_topic(&self, topic: &str, is_there: impl Fn(&Partition) -> bool) {
        let names = [topic.to_owned()];
        self.with_admin(async |admin| {
            let waiting = async {
                // Nobody tells of a change, so it is asked for until it is there.
                loop {
                    let described = admin.describe_topics(&names).await.unwrap();
                    let topic = described.into_values().next().unwrap();
                    if topic.is_ok_and(|topic| topic.partitions.iter().all(&is_there)) {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(WAIT_LIMIT, waiting).await.expect("the brokers agree");
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
            tokio::time::timeout(WAIT_LIMIT, waiting).await.expect("the group commits");
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
    fn start(folder: &Path, count: usize) -> Cluster {
        let zookeeper = Server::start(Config::for_tests(folder.join("zookeeper"))).unwrap();
        let zookeeper_address = zookeeper.address().to_string();
        let runtime = Runtime::new().unwrap();
        let mut cluster = Cluster {
            addresses: Vec::new(),
            brokers: Vec::new(),
            runtime,
            zookeeper: Some(zookeeper),
            zookeeper_address,
        };
        for _ in 0..count {
            cluster.add_broker(folder);
        }
        cluster
    }

    fn add_broker(&mut self, folder: &Path) {
        let id = self.brokers.len() + 1;
        let recorded = fs::read(self::folder().join(format!("server{id}.properties"))).unwrap();
        let mut settings: Properties = properties::parse(&recorded);
        settings.retain(|key, _| !is_of_security(key));
        let data = folder.join(format!("b{id}/data"));
        for (key, value) in [
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("zookeeper.connect", &self.zookeeper_address),
            ("log.dirs", &data.display().to_string()),
            ("controlled.shutdown.enable", "false"),
        ] {
            settings.insert(key.to_owned(), value.to_owned());
        }
        let config = Arc::new(BrokerConfig::parse(&settings).unwrap());
        let started = self.runtime.block_on(Running::start(config, &JavaOptions::default()));
        let broker = started.unwrap();
        self.addresses.push(broker.local_address("PLAINTEXT").unwrap().to_string());
        self.brokers.push(Some(broker));
    }

    fn settle(&self) {
        let running = self.addresses.iter().zip(&self.brokers);
        let running = running.filter(|(_, broker)| broker.is_some());
        let addresses: Vec<&str> = running.map(|(address, _)| address.as_str()).collect();
        self.runtime.block_on(settled(&self.zookeeper_address, &addresses));
    }

    fn client_properties(&self) -> Properties {
        Properties::from([("bootstrap.servers".to_owned(), self.addresses[0].clone())])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for broker in self.brokers.iter_mut().rev().filter_map(Option::take) {
            self.runtime.block_on(broker.stop());
        }
        if let Some(zookeeper) = self.zookeeper.take() {
            zookeeper.stop();
        }
    }
}

/// Asks one broker until all topics have leaders for it.
async fn until_known(address: &str, names: &[&str]) {
    let properties = Properties::from([("bootstrap.servers".to_owned(), address.to_owned())]);
    let brokers = Brokers::open(ConnectionConfig::admin(&properties).unwrap()).await.unwrap();
    let connection = brokers.connect(&brokers.bootstrap()[0]).await.unwrap();
    let named = names.iter().map(|name| {
        let name = TopicName(StrBytes::from_string((*name).to_owned()));
        MetadataRequestTopic::default().with_name(Some(name))
    });
    let request = MetadataRequest::default()
        .with_topics(Some(named.collect()))
        .with_allow_auto_topic_creation(false);
    loop {
        let answer = connection.call_as(request.clone(), 4, WAIT_LIMIT).await.unwrap();
        let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        let are_known = answer.topics.iter().all(|topic| topic.error_code == 0);
        if are_known && partitions.all(|partition| partition.error_code == 0) {
            return;
        }
        tokio::task::yield_now().await;
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
