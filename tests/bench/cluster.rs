//! Three brokers and their ZooKeeper as one thing to measure: ours, or real Kafkas.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use common::clock;
use kafka_protocol::{
    messages::{
        ApiKey, BrokerId, CreateTopicsRequest, ElectLeadersRequest, MetadataRequest,
        MetadataResponse,
        create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig},
        metadata_request::MetadataRequestTopic,
    },
    protocol::{Decodable, StrBytes},
};
use rustix::process::Signal;
use tests::ports::quiet_port;

use crate::{
    load::ask,
    process::{Cpu, Process, cpu_of, is_alive, signal},
    requests::{created, frame, topic_name},
    targets::{address, listens, start_zookeeper, tool, wait_for},
};

/// The brokers' ids.
pub(crate) const IDS: [i32; 3] = [1, 2, 3];

/// What makes a cluster.
#[derive(Clone, Debug)]
pub(crate) enum Maker {
    /// Our binary.
    Ours(PathBuf),
    /// The script that starts a real Kafka.
    Kafka(PathBuf),
}

impl Maker {
    /// For the tables.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Maker::Ours(_) => "odradek",
            Maker::Kafka(_) => "kafka 3.9.1",
        }
    }
}

/// A cluster that runs until this value ends.
pub(crate) struct Cluster {
    maker: Maker,
    directory: PathBuf,
    settings: Vec<String>,
    zookeeper_port: u16,
    brokers: Vec<Broker>,
    /// Ours; Kafka's is stopped by the script.
    _zookeeper: Option<Process>,
}

struct Broker {
    id: i32,
    port: u16,
    pid: u32,
    /// Ours, which is our child.
    process: Option<Process>,
}

impl Cluster {
    /// Starts three brokers on empty folders under `directory`, one after the other: the first becomes the controller.
    pub(crate) fn start(
        maker: &Maker,
        directory: &Path,
        settings: &[&str],
    ) -> Result<Cluster, String> {
        fs::create_dir_all(directory).map_err(|error| error.to_string())?;
        let zookeeper_port = quiet_port();
        let zookeeper = match maker {
            Maker::Ours(binary) => Some(start_zookeeper(binary, directory, zookeeper_port)?),
            Maker::Kafka(peer) => {
                let part = directory.join("zookeeper").display().to_string();
                run(peer, &["zookeeper", &part, &zookeeper_port.to_string()])?;
                None
            }
        };
        let mut cluster = Cluster {
            maker: maker.clone(),
            directory: directory.to_owned(),
            settings: Vec::new(),
            zookeeper_port,
            brokers: Vec::new(),
            _zookeeper: zookeeper,
        };
        cluster.set(settings);
        for id in IDS {
            let broker = Broker { id, port: quiet_port(), pid: 0, process: None };
            cluster.brokers.push(broker);
            cluster.start_broker(id)?;
        }
        cluster.wait_until("three brokers", &[], &|view| view.brokers.len() == IDS.len())?;
        Ok(cluster)
    }

    /// For the tables.
    pub(crate) fn name(&self) -> &'static str {
        self.maker.name()
    }

    fn broker(&self, id: i32) -> &Broker {
        self.brokers.iter().find(|broker| broker.id == id).expect("an id of this cluster")
    }

    /// Where a broker listens.
    pub(crate) fn address(&self, id: i32) -> SocketAddr {
        address(self.broker(id).port)
    }

    /// A broker's process.
    pub(crate) fn pid(&self, id: i32) -> u32 {
        self.broker(id).pid
    }

    /// CPU of all brokers so far.
    pub(crate) fn cpu(&self) -> Cpu {
        self.brokers.iter().map(|broker| cpu_of(broker.pid)).fold(Cpu::default(), |sum, one| Cpu {
            user: sum.user + one.user,
            kernel: sum.kernel + one.kernel,
        })
    }

    fn part(&self, id: i32) -> PathBuf {
        self.directory.join(format!("broker-{id}"))
    }

    /// Starts a broker, or starts one again on its folders.
    pub(crate) fn start_broker(&mut self, id: i32) -> Result<(), String> {
        let (part, port) = (self.part(id), self.broker(id).port);
        let connect = format!("127.0.0.1:{}", self.zookeeper_port);
        let (pid, process) = match &self.maker {
            Maker::Ours(binary) => {
                fs::create_dir_all(&part).map_err(|error| error.to_string())?;
                let text = format!(
                    "broker.id={id}\nlisteners=PLAINTEXT://127.0.0.1:{port}\nzookeeper.connect={connect}\nlog.dirs={}\n{}\n",
                    part.join("data").display(),
                    self.settings.join("\n")
                );
                let properties = part.join("server.properties");
                fs::write(&properties, text).map_err(|error| error.to_string())?;
                let mut command = tool(binary, &part);
                command.arg("kafka.Kafka").arg(properties);
                let process = Process::start(command, &part.join("broker.out"))?;
                (process.pid(), Some(process))
            }
            Maker::Kafka(peer) => {
                let (folder, port) = (part.display().to_string(), port.to_string());
                let id = id.to_string();
                let fixed = ["broker", &folder, &port, &connect, &id];
                let settings = self.settings.iter().map(String::as_str);
                run(peer, &fixed.into_iter().chain(settings).collect::<Vec<_>>())?;
                let pid = fs::read_to_string(part.join("pid")).unwrap_or_default();
                (pid.trim().parse().map_err(|_| "no pid of Kafka".to_owned())?, None)
            }
        };
        let broker = self.brokers.iter_mut().find(|broker| broker.id == id);
        let broker = broker.expect("an id of this cluster");
        (broker.pid, broker.process) = (pid, process);
        wait_for(address(port), &listens)
    }

    /// Sends a signal to a broker, and does not wait.
    pub(crate) fn signal(&self, id: i32, kind: Signal) {
        signal(self.broker(id).pid, kind);
    }

    /// Whether a broker's process runs.
    pub(crate) fn is_alive(&self, id: i32) -> bool {
        is_alive(self.broker(id).pid)
    }

    /// Waits until a broker's process has ended.
    pub(crate) fn await_end(&self, id: i32, deadline: Instant) {
        while self.is_alive(id) && clock::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sets what brokers are set to that are started from now on.
    pub(crate) fn set(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    }

    /// Waits until every broker that runs sees the topics as `is_so` asks.
    pub(crate) fn wait_until(
        &self,
        what: &str,
        topics: &[String],
        is_so: &dyn Fn(&View) -> bool,
    ) -> Result<(), String> {
        let deadline = clock::now() + Duration::from_secs(180);
        for id in IDS.into_iter().filter(|id| self.is_alive(*id)) {
            wait_view(self.address(id), topics, deadline, Duration::from_millis(50), is_so)
                .map_err(|error| format!("{}: broker {id}: {what}: {error}", self.name()))?;
        }
        Ok(())
    }

    /// Creates a topic at the controller. `placed` names each partition's replicas; none leaves three of each to the controller.
    pub(crate) fn create(
        &self,
        topic: &str,
        partitions: i32,
        placed: Option<&[i32]>,
        configs: &[(&str, &str)],
    ) -> Result<(), String> {
        let frame = create_topic(topic, partitions, placed, configs);
        let deadline = clock::now() + Duration::from_secs(60);
        loop {
            let controller = view(self.address(IDS[0]), &[])?.controller;
            let asked = match IDS.contains(&controller) {
                true => ask(self.address(controller), &frame).map_err(|error| error.to_string()),
                false => Err("no controller".to_owned()),
            };
            match asked.and_then(|answer| created(&answer)) {
                Ok(()) => return Ok(()),
                Err(reason) if clock::now() > deadline => return Err(reason),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Gives every partition back to its first replica.
    pub(crate) fn elect_preferred(&self, topics: &[String]) -> Result<(), String> {
        let controller = view(self.address(IDS[0]), &[])?.controller;
        let request =
            ElectLeadersRequest::default().with_topic_partitions(None).with_timeout_ms(60_000);
        let frame = frame(ApiKey::ElectLeaders, 1, &request);
        // What came of it is seen in the metadata.
        ask(self.address(controller), &frame).map_err(|error| error.to_string())?;
        self.wait_until("preferred leaders", topics, &|view| {
            view.partitions.iter().all(|partition| partition.is_preferred)
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Maker::Kafka(peer) = &self.maker {
            let brokers = IDS.into_iter().map(|id| self.part(id));
            for part in brokers.chain([self.directory.join("zookeeper")]) {
                // Best effort: the machine is only left with a process more.
                let _ = Command::new(peer).arg("stop").arg(part).arg("KILL").status();
            }
        }
        self.brokers.clear();
        // Only our own folder; the next cluster needs the room.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn run(peer: &Path, arguments: &[&str]) -> Result<(), String> {
    let status = Command::new(peer).args(arguments).status();
    let status = status.map_err(|error| format!("{}: {error}", peer.display()))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", peer.display())) }
}

fn create_topic(
    topic: &str,
    partitions: i32,
    placed: Option<&[i32]>,
    configs: &[(&str, &str)],
) -> bytes::Bytes {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let configs = configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(topic_name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(3)
        .with_configs(configs.collect());
    let topic = match placed {
        None => topic,
        Some(replicas) => {
            let replicas: Vec<BrokerId> = replicas.iter().map(|id| BrokerId(*id)).collect();
            let each = (0..partitions).map(|index| {
                CreatableReplicaAssignment::default()
                    .with_partition_index(index)
                    .with_broker_ids(replicas.clone())
            });
            topic
                .with_num_partitions(-1)
                .with_replication_factor(-1)
                .with_assignments(each.collect())
        }
    };
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(300_000);
    frame(ApiKey::CreateTopics, 4, &request)
}

/// What a broker says about the cluster.
#[derive(Debug)]
pub(crate) struct View {
    /// The controller; -1 where there is none.
    pub(crate) controller: i32,
    /// The brokers that live.
    pub(crate) brokers: Vec<i32>,
    /// The partitions of the topics that were asked for, as far as they are known.
    pub(crate) partitions: Vec<PartitionView>,
}

/// A partition in a view.
#[derive(Debug)]
pub(crate) struct PartitionView {
    /// -1 where there is none.
    pub(crate) leader: i32,
    /// How many replicas are in sync.
    pub(crate) in_sync: usize,
    /// Whether its first replica leads.
    pub(crate) is_preferred: bool,
}

/// Asks a broker how it sees the cluster, and some topics.
pub(crate) fn view(address: SocketAddr, topics: &[String]) -> Result<View, String> {
    const VERSION: i16 = 7;
    let names = topics
        .iter()
        .map(|topic| MetadataRequestTopic::default().with_name(Some(topic_name(topic))));
    let request = MetadataRequest::default()
        .with_topics(Some(names.collect()))
        .with_allow_auto_topic_creation(false);
    let answer = ask(address, &frame(ApiKey::Metadata, VERSION, &request));
    let answer = answer.map_err(|error| error.to_string())?;
    let mut body = BytesMut::from(answer.get(4..).unwrap_or_default()).freeze();
    let answer = MetadataResponse::decode(&mut body, VERSION).map_err(|error| error.to_string())?;
    let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
    Ok(View {
        controller: answer.controller_id.0,
        brokers: answer.brokers.iter().map(|broker| broker.node_id.0).collect(),
        partitions: partitions
            .map(|partition| PartitionView {
                leader: partition.leader_id.0,
                in_sync: partition.isr_nodes.len(),
                is_preferred: partition.replica_nodes.first() == Some(&partition.leader_id),
            })
            .collect(),
    })
}

/// Asks a broker every now and then until it sees the topics as `is_so` asks.
pub(crate) fn wait_view(
    address: SocketAddr,
    topics: &[String],
    deadline: Instant,
    pause: Duration,
    is_so: &dyn Fn(&View) -> bool,
) -> Result<(), String> {
    loop {
        let seen = view(address, topics);
        match &seen {
            Ok(view) if is_so(view) => return Ok(()),
            _ if clock::now() < deadline => std::thread::sleep(pause),
            Ok(view) => {
                let led = view.partitions.iter().filter(|partition| partition.leader >= 0).count();
                let (known, brokers) = (view.partitions.len(), &view.brokers);
                return Err(format!("it still sees {known} partitions, {led} led, {brokers:?}"));
            }
            Err(reason) => return Err(reason.clone()),
        }
    }
}
