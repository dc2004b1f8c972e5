//! A broker: its disk, its process, its sessions with ZooKeeper, and the controller's word to it.
//!
//! The glue of `server/registration.rs` and `server/replica_requests.rs`, without tasks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ControllerEpoch, Offset},
    security_protocol::SecurityProtocol,
    topic::{TopicPartition, Uuid},
};
use controller::request::{Body, BrokerRequest, LeaderAndIsrTopic};
use metadata::{broker::Endpoint, cache::MetadataCache};
use partition::leader::{Leadership, Proposal};
use storage::{
    log::Log,
    log_config::LogConfig,
    log_manager::{Intervals, LogManager, LogManagerOptions, NewLog},
    log_manager_load::LoadProgress,
    shared::LogDirectory,
    verification::VerificationGuard,
};
use zk::{
    changes::{SessionState, ZkChanges},
    documents::broker::{self, BrokerDocument},
    fake::FakeStore,
    paths,
    registration::{Ghosts, register},
    store::{SessionId, Watch, ZkStore},
};

use crate::{
    bugs::Bug,
    disks::{NextError, Operation},
    network::{Node, Produce, RequestId},
    office::Office,
    replica::{Replica, Word},
    world::{Event, Millis, SESSION_TIMEOUT, TOPIC, World, at_once, looked},
};

/// How often a broker looks what ZooKeeper has told it, at most.
const LOOK_EVERY_MAX: Millis = 40;
/// How often a broker looks at its in-sync sets.
const CHECK_EVERY: Millis = 600;
/// `producers_max`: more than there are.
const PRODUCERS_MAX: usize = 1000;
/// How often a broker writes its checkpoints, at most.
const FLUSH_EVERY_MAX: Millis = 1500;
/// What the candidates for the controller's office watch.
const WATCHED: [&str; 5] = [
    paths::CONTROLLER,
    paths::BROKER_IDS,
    paths::TOPICS,
    paths::DELETE_TOPICS,
    paths::LOG_DIR_EVENTS,
];

/// A broker, whether or not it runs.
pub struct Broker {
    /// Its id.
    pub id: BrokerId,
    /// Counts its processes.
    pub process_number: u32,
    /// The one that runs.
    pub process: Option<Process>,
    /// Until when it is stopped, as with SIGSTOP.
    pub stopped_until: Millis,
    /// Its monotonic clock jumps, and does not go back.
    pub clock_is_ahead: Duration,
    /// Its wall clock jumps either way.
    pub wall_clock_is_ahead: i64,
    /// What its disk is sure to hold of each partition's log.
    pub disk: BTreeMap<i32, OnDisk>,
    /// Its sessions since its machine has started: `.zookeeper_sessions`.
    pub sessions: Vec<SessionId>,
    /// Partitions of which a power cut has taken records, until the in-sync sets are without it.
    pub has_lost: BTreeSet<i32>,
    /// Its log directories.
    pub directories: Vec<PathBuf>,
    /// Those whose disk is broken, counted.
    pub broken: BTreeSet<usize>,
    /// What gives an error next.
    pub next_error: Option<NextError>,
}

/// What a disk is sure to hold of a partition's log.
#[derive(Clone, Debug, Default)]
pub struct OnDisk {
    /// Sizes of the segments' files when they were synced last: a power cut leaves that much at least.
    pub synced: BTreeMap<PathBuf, u64>,
}

/// A running broker.
pub struct Process {
    /// Its client of ZooKeeper.
    pub store: Arc<FakeStore>,
    /// What ZooKeeper has told it.
    pub changes: ZkChanges,
    /// The session in which it is registered.
    pub registered: Option<SessionId>,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// The newest controller that has spoken.
    pub controller_epoch: ControllerEpoch,
    /// Which of its words was the last one.
    word: u64,
    /// What it knows of the cluster.
    pub metadata: MetadataCache,
    /// The logs that are open, and those that are put aside or wait for their removal.
    pub logs: LogManager,
    /// The partitions that it was told of.
    pub replicas: BTreeMap<i32, Replica>,
    /// Its term as the controller.
    pub office: Option<Office>,
    /// Whether it has taken part in the election since `/controller` has changed.
    pub is_candidate: bool,
    /// What its leaders want of the controller: one change for each partition.
    pub proposals: BTreeMap<i32, Proposed>,
    /// What the controller was asked for.
    pub proposed: Option<(RequestId, Vec<(i32, Proposed)>)>,
    /// Batches that wait for the transaction coordinator's answer.
    pub verifications: BTreeMap<u64, Verification>,
    /// Counts the fetchers' orders.
    pub orders: u64,
    /// Whether the controller is yet to hear of a log directory that has failed.
    pub has_news: bool,
}

/// What a leader wants, and the topic's id.
pub type Proposed = (Uuid, Proposal);

/// A batch that waits for the transaction coordinator's answer.
pub struct Verification {
    /// The batch.
    pub produce: Produce,
    /// Who has sent it.
    pub from: Node,
    /// In which request.
    pub request: RequestId,
    /// What goes with its append.
    pub guard: VerificationGuard,
    /// What the answer will be.
    pub is_part: bool,
}

impl Broker {
    /// A broker that has never run, with so many log directories.
    pub fn new(id: BrokerId, folder: &Path, directories: u64) -> Broker {
        let named = |number| folder.join(format!("broker-{id}-{number}"));
        let directories: Vec<PathBuf> = (0..directories).map(named).collect();
        for directory in &directories {
            fs::create_dir(directory).expect("a new folder can be made");
        }
        Broker {
            id,
            process_number: 0,
            process: None,
            stopped_until: 0,
            clock_is_ahead: Duration::ZERO,
            wall_clock_is_ahead: 0,
            disk: BTreeMap::new(),
            sessions: Vec::new(),
            has_lost: BTreeSet::new(),
            directories,
            broken: BTreeSet::new(),
            next_error: None,
        }
    }

    /// Where a partition's log is.
    pub fn log_path(&self, partition: i32) -> PathBuf {
        self.directories[self.directory_of(partition)].join(format!("{TOPIC}-{partition}"))
    }

    /// In which of the log directories it is.
    pub fn directory_of(&self, partition: i32) -> usize {
        usize::try_from(partition + self.id.0).unwrap_or(0) % self.directories.len()
    }

    /// Whether one of its disks is broken, or about to be.
    pub fn is_broken(&self) -> bool {
        self.next_error.is_some() || !self.broken.is_empty()
    }
}

/// Nothing expires: a log that is cut looks at the real clock, which is no seed's.
fn log_config() -> LogConfig {
    LogConfig {
        retention_ms: -1,
        segment_bytes: 16 << 10,
        segment_ms: i64::MAX,
        producer_id_expiration_ms: i64::MAX,
        ..LogConfig::default()
    }
}

impl World {
    /// The running process of a broker. Only for events that were found to be for it.
    pub fn process(&mut self, id: BrokerId) -> &mut Process {
        let broker = self.brokers.get_mut(&id).expect("brokers do not vanish");
        broker.process.as_mut().expect("events of dead processes are passed over")
    }

    /// The number of a broker's process.
    pub fn process_number(&self, id: BrokerId) -> u32 {
        self.brokers[&id].process_number
    }

    /// A broker starts, with the logs that its disk has.
    pub fn start(&mut self, id: BrokerId) {
        let has_no_disk = self.brokers[&id].broken.len() == self.brokers[&id].directories.len();
        if self.brokers[&id].process.is_some() || has_no_disk || self.must_stay_away(id) {
            if self.brokers[&id].process.is_none() {
                self.after(50, Event::Start(id));
            }
            return;
        }
        let store = self.zookeeper.connect();
        let changes = store.changes().under(&WATCHED);
        let now = self.wall_clock_of(id);
        let broker = self.brokers.get_mut(&id).expect("brokers do not vanish");
        broker.process_number += 1;
        broker.stopped_until = 0;
        let failed = broker.broken.iter().map(|broken| broker.directories[*broken].clone());
        let options = LogManagerOptions {
            directories: broker.directories.clone(),
            failed: failed.collect(),
            default_config: Arc::new(log_config()),
            topic_configs: HashMap::new(),
            threads: 1,
            intervals: Intervals::default(),
            seed: 1,
            producers_max: PRODUCERS_MAX,
            now,
        };
        let logs = LogManager::open(options, &LoadProgress::default());
        let process = Process {
            store,
            changes,
            registered: None,
            broker_epoch: BrokerEpoch::NONE,
            controller_epoch: ControllerEpoch(0),
            word: 0,
            metadata: MetadataCache::new(),
            logs: logs.expect("log directories that work are opened"),
            replicas: BTreeMap::new(),
            office: None,
            is_candidate: false,
            proposals: BTreeMap::new(),
            proposed: None,
            verifications: BTreeMap::new(),
            orders: 0,
            has_news: false,
        };
        broker.process = Some(process);
        let number = broker.process_number;
        let partitions = self.partitions.clone();
        let logs = partitions.iter().filter_map(|partition| self.process(id).log(*partition));
        let ends: Vec<i64> = logs.map(|log| log.end_offset().0).collect();
        self.note(format_args!("broker {id} starts, logs end at {ends:?}"));
        self.logs_were_opened(id);
        self.after(1, Event::LookAtZooKeeper(id, number));
        self.after(CHECK_EVERY, Event::CheckInSync(id, number));
        self.after(FLUSH_EVERY_MAX, Event::Flush(id, number));
        self.after(1, Event::LookAtDirectories(id, number));
    }

    /// Looks what ZooKeeper has told: registers, runs for the office, reads what the controller has to know.
    pub fn look_at_zookeeper(&mut self, id: BrokerId) {
        let number = self.process_number(id);
        let delay = self.random.between(2, LOOK_EVERY_MAX);
        self.after(delay, Event::LookAtZooKeeper(id, number));
        let process = self.process(id);
        let SessionState::Connected(session) = process.store.session() else { return };
        // What changes while a plan is carried out is read after it.
        let is_busy = process.office.as_ref().is_some_and(Office::is_busy);
        let changes = if is_busy { None } else { process.changes.take() };
        if process.office.as_ref().is_some_and(|office| office.session != session) {
            process.office = None;
            self.note(format_args!("broker {id} is not the controller: its session has ended"));
        }
        let process = self.process(id);
        if process.registered != Some(session) {
            process.is_candidate = false;
            self.register(id, session);
        }
        let process = self.process(id);
        if process.registered != Some(session) {
            return;
        }
        let office_is_dirty =
            changes.as_ref().is_some_and(|changes| changes.node_is_dirty(paths::CONTROLLER));
        if process.office.is_some() {
            if let Some(changes) = changes {
                self.read_changes(id, &changes);
            }
        } else if office_is_dirty || !process.is_candidate {
            process.is_candidate = true;
            self.run_for_office(id);
        }
    }

    fn register(&mut self, id: BrokerId, session: SessionId) {
        let path = paths::broker_id(id.0);
        let owner =
            looked(self.looker.get(&path, Watch::No)).and_then(|node| node.stat.ephemeral_owner);
        let timestamp = self.wall_clock_of(id);
        let broker = self.brokers.get_mut(&id).expect("brokers do not vanish");
        broker.sessions.push(session);
        if owner.is_some_and(|owner| !broker.sessions.contains(&owner)) {
            // Of before the machine's start: it is waited for.
            return;
        }
        let document = BrokerDocument {
            version: broker::VERSION,
            endpoints: vec![Endpoint {
                listener: "PLAINTEXT".to_owned(),
                host: format!("broker-{id}"),
                port: 9092,
                protocol: SecurityProtocol::Plaintext,
            }],
            rack: None,
            jmx_port: -1,
            timestamp,
            features: BTreeMap::new(),
        };
        let sessions = broker.sessions.clone();
        let is_ours = |session| sessions.contains(&session);
        let ghosts = Ghosts { is_ours: &is_ours, wait_at_most: Duration::ZERO };
        let store = self.process(id).store.clone();
        let registered = at_once(register(&*store, id, &document, &ghosts));
        if let Some(Ok(epoch)) = registered {
            let process = self.process(id);
            process.broker_epoch = epoch;
            // A fault on the way may have ended the session meanwhile.
            process.registered =
                Some(session).filter(|_| store.session().session_id() == Some(session));
            self.note(format_args!("broker {id} is registered with epoch {epoch}"));
        }
    }

    /// Carries out the controller's word, unless it is out of date. None where the answer comes later; and where a later word
    /// of the same term came first, for the network would not have brought it.
    pub fn take_word(
        &mut self,
        id: BrokerId,
        asked: (Node, RequestId),
        (request, order): (BrokerRequest, u64),
    ) -> Option<(ErrorCode, Vec<(TopicPartition, ErrorCode)>)> {
        let takes_all = self.options.bug == Some(Bug::StaleWordsAreTaken);
        let process = self.process(id);
        if request.controller_epoch == process.controller_epoch && order < process.word {
            return None;
        }
        let is_old = request.broker_epoch < process.broker_epoch && !takes_all;
        if request.broker_epoch != BrokerEpoch::NONE && is_old {
            return Some((ErrorCode::StaleBrokerEpoch, Vec::new()));
        }
        if request.controller_epoch < process.controller_epoch && !takes_all {
            return Some((ErrorCode::StaleControllerEpoch, Vec::new()));
        }
        process.controller_epoch = request.controller_epoch;
        process.word = order;
        let mut outcomes = Vec::new();
        match request.body {
            Body::UpdateMetadata(update) => {
                process.metadata.apply(&update);
                self.leave_what_is_left(id, &update);
                self.leave_what_moved(id, &update);
            }
            Body::LeaderAndIsr(told) => {
                let of_topic = |topic: LeaderAndIsrTopic| {
                    let topic_id = topic.id.expect("all topics have ids");
                    topic.partitions.into_iter().map(move |told| (topic_id, told))
                };
                for (topic_id, told) in told.topics.into_iter().flat_map(of_topic) {
                    let leadership = told.leadership;
                    let word = Word {
                        topic_id,
                        is_new: told.is_new,
                        leader: leadership.leader,
                        leadership: Leadership {
                            epoch: leadership.leader_epoch,
                            partition_epoch: leadership.partition_epoch,
                            replicas: told.assignment.replicas,
                            adding: told.assignment.adding,
                            removing: told.assignment.removing,
                            isr: leadership.isr,
                        },
                    };
                    let applied = self.apply(id, told.index, word);
                    let error = applied.err().unwrap_or(ErrorCode::None);
                    outcomes.push((World::name(told.index), error));
                }
            }
            Body::StopReplica(told) => {
                self.stop_replicas(id, asked, told);
                return None;
            }
        }
        Some((ErrorCode::None, outcomes))
    }

    /// The log of a partition; made where it is missing, or where what is there is of another topic of this name. The glue of
    /// `ReplicaManager::host`.
    pub fn host(
        &mut self,
        id: BrokerId,
        partition: i32,
        word: &Word,
    ) -> Result<Arc<Log>, ErrorCode> {
        let compares = self.options.bug != Some(Bug::TopicIdsAreNotCompared);
        let name = World::name(partition);
        let broker = &self.brokers[&id];
        let directory = broker.directories[broker.directory_of(partition)].clone();
        let new = NewLog {
            partition: name.clone(),
            topic_id: Some(word.topic_id),
            config: None,
            is_new: word.is_new,
        };
        let get_or_create = |logs: &LogManager| {
            // Where it is is for the seed to say.
            logs.set_preferred_directory(name.clone(), directory.clone());
            logs.get_or_create(&new)
        };
        let mut log = get_or_create(&self.process(id).logs);
        if compares && log.as_ref().is_ok_and(|log| log.topic_id() != Some(word.topic_id)) {
            self.unhost(id, partition);
            let aside = self.process(id).logs.set_aside(&name);
            aside.map_err(|_| ErrorCode::KafkaStorageError)?;
            self.note(format_args!("broker {id} puts the log of {partition} aside"));
            self.log_is_gone(id, partition);
            log = get_or_create(&self.process(id).logs);
        }
        let log = log.map_err(|_| ErrorCode::KafkaStorageError)?;
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.disk.entry(partition).or_default();
        }
        Ok(log)
    }

    /// A log is not its partition's any more.
    pub fn log_is_gone(&mut self, id: BrokerId, partition: i32) {
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.disk.remove(&partition);
            broker.has_lost.remove(&partition);
        }
        self.forget_from(id, partition, Offset::ZERO);
    }

    /// Writes the checkpoints; in half of the cases all logs are synced before.
    pub fn flush(&mut self, id: BrokerId) {
        let number = self.process_number(id);
        let delay = self.random.between(200, FLUSH_EVERY_MAX);
        self.after(delay, Event::Flush(id, number));
        let does_sync = self.random.chance(500);
        for partition in self.partitions.clone().into_iter().filter(|_| does_sync) {
            self.use_disk(id, partition, Operation::Flush);
        }
        let partitions = self.partitions.clone();
        let broker = self.brokers.get_mut(&id).expect("brokers do not vanish");
        let Some(process) = &broker.process else { return };
        for partition in partitions.into_iter().filter(|_| does_sync) {
            if let Some(log) = process.log(partition)
                && !log.log_directory().is_offline()
                && log.flush().is_ok()
            {
                broker.disk.entry(partition).or_default().synced = segment_sizes(&log.path());
            }
        }
        process.logs.checkpoint_high_watermarks();
        process.logs.checkpoint_recovery_points();
    }

    /// The connection to ZooKeeper is back.
    pub fn reconnect(&mut self, id: BrokerId) {
        self.process(id).store.reconnect();
        self.note(format_args!("broker {id} reaches ZooKeeper"));
    }

    /// The connection to ZooKeeper is lost for a while; the session ends if that is too long.
    pub fn lose_zookeeper(&mut self, id: BrokerId, duration: Millis) {
        let number = self.process_number(id);
        let store = self.process(id).store.clone();
        store.disconnect();
        if let Some(session) = store.session().session_id()
            && duration > SESSION_TIMEOUT
        {
            self.after(SESSION_TIMEOUT, Event::ExpireSession(session));
        }
        self.after(duration, Event::Reconnect(id, number));
    }

    /// The process dies; what it has written is in the page cache.
    pub fn crash(&mut self, id: BrokerId) {
        let broker = self.brokers.get_mut(&id).expect("brokers do not vanish");
        let Some(process) = broker.process.take() else { return };
        process.store.disconnect();
        let session = process.store.session().session_id();
        let closed = at_once(process.store.close());
        closed.expect("at once").expect("a fake can be closed");
        if let Some(session) = session {
            self.after(SESSION_TIMEOUT, Event::ExpireSession(session));
        }
        self.note(format_args!("broker {id} is gone"));
    }
}

/// Sizes of the segments of a log's folder.
pub fn segment_sizes(path: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(path).expect("the log's folder is there");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let sized = |path: PathBuf| (path.clone(), fs::metadata(&path).map_or(0, |data| data.len()));
    paths.filter(is_segment).map(sized).collect()
}

impl Process {
    /// The log of a partition that is open, whether or not the controller has spoken of it.
    pub fn log(&self, partition: i32) -> Option<Arc<Log>> {
        self.logs.log(&World::name(partition))
    }

    /// One of the log directories, counted.
    pub fn directory(&self, index: usize) -> &Arc<LogDirectory> {
        self.logs.directories().nth(index).expect("a broker's own log directory")
    }
}
