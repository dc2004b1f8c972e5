//! The world of a run: one thread, one queue of events, and virtual time.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hasher},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    clock,
    ids::{BrokerId, ControllerEpoch, Timestamp},
    topic::TopicPartition,
};
use futures_util::FutureExt;
use zk::{
    fake::{FakeStore, FakeZooKeeper},
    store::ZkFuture,
};

use crate::{
    broker::Broker,
    bugs::Bug,
    clients::Clients,
    history::History,
    invariants::Invariants,
    network::{Message, Network, Node, RequestId},
    operator::Stopping,
    random::Random,
    topics::Topics,
};

/// Virtual milliseconds since the begin of the run.
pub type Millis = u64;

/// The name of the topic of every run.
pub const TOPIC: &str = "t";
/// Its `min.insync.replicas`.
pub const IN_SYNC_MIN: usize = 2;
/// How many replicas each partition has.
pub const REPLICAS: usize = 3;
/// `replica.lag.time.max.ms`, shortened as all times of a run are.
pub const LAG_TIME_MAX: Duration = Duration::from_millis(1200);
/// How long a request is waited for.
pub const REQUEST_TIMEOUT: Millis = 700;
/// `zookeeper.session.timeout.ms`.
pub const SESSION_TIMEOUT: Millis = 900;
/// How long a deletion takes at most where nothing goes wrong.
const GONE_WITHIN: Millis = 700;
/// The wall clock at the begin of a run.
const WALL_CLOCK: i64 = 1_700_000_000_000;

/// What a run is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The bug that is put in.
    pub bug: Option<Bug>,
    /// Whether all that happens is printed.
    pub verbose: bool,
    /// Whether a broker whose power failed may come back before the in-sync sets are without it: more than Kafka promises.
    pub quick_return: bool,
}

/// Something that is to happen at a time.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message arrives.
    Deliver(Box<Envelope>),
    /// Who asked does not wait any longer.
    GiveUp(Node, u32, RequestId),
    /// A broker looks what ZooKeeper has told it.
    LookAtZooKeeper(BrokerId, u32),
    /// A controller makes the writes that it has planned, in the term of an epoch.
    Commit(BrokerId, u32, ControllerEpoch),
    /// A controller looks whether leaderships are where they belong.
    Rebalance(BrokerId, u32, ControllerEpoch),
    /// A channel of a controller sends again.
    SendAgain(BrokerId, u32, ControllerEpoch, BrokerId),
    /// A follower goes on with a partition; the number tells in whose order.
    Copy(BrokerId, u32, i32, u64),
    /// A broker looks at its in-sync sets.
    CheckInSync(BrokerId, u32),
    /// A broker sends what its leaders propose.
    Propose(BrokerId, u32),
    /// A broker writes its checkpoints, and perhaps flushes.
    Flush(BrokerId, u32),
    /// The transaction coordinator has answered about a batch.
    Verified(BrokerId, u32, u64),
    /// A partition is moved.
    Move,
    /// The topic is to be deleted.
    DeleteTopic,
    /// The next topic of this name is to be made.
    CreateTopic,
    /// A broker goes on with replicas that are to stop.
    GoOnStopping(BrokerId, u32, Box<Stopping>),
    /// A broker looks at its log directories.
    LookAtDirectories(BrokerId, u32),
    /// The broken disk of a broker is repaired.
    Repair(BrokerId),
    /// A broker that stops in order ends.
    Close(BrokerId, u32),
    /// A broker starts.
    Start(BrokerId),
    /// ZooKeeper ends a session that was not heard of.
    ExpireSession(zk::store::SessionId),
    /// A broker's connection to ZooKeeper is lost.
    LoseZooKeeper(BrokerId, u32),
    /// A broker's connection to ZooKeeper is mended.
    Reconnect(BrokerId, u32),
    /// A client does what comes next.
    Client(usize),
    /// Something goes wrong.
    Fault,
    /// What has gone wrong in the network is mended.
    MendNetwork,
    /// Nothing goes wrong from now on.
    Heal,
    /// The cluster has to be whole by now. The topic is deleted once more.
    End,
    /// The topic has to be gone by now.
    Gone,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// Who sends it.
    pub from: Node,
    /// Which process of that node, counted.
    pub from_process: u32,
    /// Who is to get it.
    pub to: Node,
    /// Which process of that node.
    pub to_process: u32,
    /// The request that it is, or answers.
    pub request: RequestId,
    /// What it says.
    pub message: Message,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub invariant: &'static str,
    /// How it is broken.
    pub what: String,
    /// When.
    pub at: Millis,
}

/// The cluster, its clients, and all that is known of them.
pub struct World {
    /// What the run is to be.
    pub options: Options,
    /// Where all chance comes from.
    pub random: Random,
    /// The time.
    pub now: Millis,
    /// The ways between the nodes.
    pub network: Network,
    /// ZooKeeper.
    pub zookeeper: FakeZooKeeper,
    /// A client of it that only looks.
    pub looker: Arc<FakeStore>,
    /// The brokers, in the order of their ids.
    pub brokers: BTreeMap<BrokerId, Broker>,
    /// Producers, consumers and the transaction coordinator.
    pub clients: Clients,
    /// What clients were told.
    pub history: History,
    /// What has to hold.
    pub invariants: Invariants,
    /// The numbers of the partitions.
    pub partitions: Vec<i32>,
    /// The topics that have had the name.
    pub topics: Topics,
    /// The first thing that is wrong.
    pub violation: Option<Violation>,
    /// Whether more was lost than the invariants allow for.
    pub is_void: bool,
    /// Whether faults are over.
    pub healed: bool,
    /// Whether the topic is deleted for the last time.
    pub is_over: bool,
    /// The folder of all brokers' log directories.
    pub folder: tempfile::TempDir,
    begin: Instant,
    queue: BTreeMap<(Millis, u64), Event>,
    next_event: u64,
    next_request: RequestId,
    trace: DefaultHasher,
    /// How many events there were.
    pub events: u64,
}

/// Carries out what is asked of a ZooKeeper that answers at once. None where it would wait.
pub fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    future.now_or_never()
}

/// As `at_once`, of the client that only looks and is always connected.
pub fn looked<T>(future: ZkFuture<'_, T>) -> T {
    let done = at_once(future).expect("a connected fake answers at once");
    done.expect("a read of a connected fake succeeds")
}

impl World {
    /// The cluster of a seed, before its first moment.
    pub fn new(seed: u64, options: Options) -> World {
        let mut random = Random::new(seed);
        let zookeeper = FakeZooKeeper::new();
        let looker = zookeeper.connect();
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.expect("a folder for logs");
        let broker_count = random.between(3, 5);
        let ids: Vec<BrokerId> =
            (1..=broker_count).map(|id| BrokerId(i32::try_from(id).unwrap_or(0))).collect();
        let brokers = ids.iter().map(|id| {
            let directories = random.between(1, 2);
            (*id, Broker::new(*id, folder.path(), directories))
        });
        let brokers = brokers.collect();
        let partitions: Vec<i32> = (0..i32::try_from(random.between(1, 3)).unwrap_or(1)).collect();
        let mut world = World {
            options,
            random,
            now: 0,
            network: Network::default(),
            zookeeper,
            looker,
            brokers,
            clients: Clients::default(),
            history: History::default(),
            invariants: Invariants::default(),
            partitions,
            topics: Topics::default(),
            violation: None,
            is_void: false,
            healed: false,
            is_over: false,
            folder,
            begin: clock::now(),
            queue: BTreeMap::new(),
            next_event: 0,
            next_request: 0,
            trace: DefaultHasher::new(),
            events: 0,
        };
        let created = at_once(zk::bootstrap::create_top_level_paths(&*world.looker));
        created.expect("at once").expect("a new tree takes the paths of the start");
        world.create_topic();
        for id in ids {
            let delay = world.random.between(0, 200);
            world.after(delay, Event::Start(id));
        }
        world.begin_clients();
        world.begin_faults();
        world
    }

    /// The monotonic clock of no broker.
    pub fn instant(&self) -> Instant {
        self.begin + Duration::from_millis(self.now)
    }

    /// A broker's monotonic clock.
    pub fn instant_of(&self, broker: BrokerId) -> Instant {
        self.instant() + self.brokers[&broker].clock_is_ahead
    }

    /// The clients' wall clock.
    pub fn wall_clock(&self) -> Timestamp {
        Timestamp(WALL_CLOCK + i64::try_from(self.now).unwrap_or(0))
    }

    /// A broker's wall clock.
    pub fn wall_clock_of(&self, broker: BrokerId) -> Timestamp {
        Timestamp(self.wall_clock().0 + self.brokers[&broker].wall_clock_is_ahead)
    }

    /// The name of a partition.
    pub fn name(partition: i32) -> TopicPartition {
        TopicPartition::new(TOPIC, partition)
    }

    /// Lets something happen after a while.
    pub fn after(&mut self, delay: Millis, event: Event) {
        self.next_event += 1;
        self.queue.insert((self.now + delay, self.next_event), event);
    }

    /// A number for a new request.
    pub fn new_request(&mut self) -> RequestId {
        self.next_request += 1;
        self.next_request
    }

    /// Which process of a node runs now; none where none does.
    pub fn process_of(&self, node: Node) -> Option<u32> {
        match node {
            Node::Client(_) => Some(0),
            Node::Broker(id) => {
                let broker = self.brokers.get(&id)?;
                broker.process.as_ref().map(|_| broker.process_number)
            }
        }
    }

    /// Sends a message on its way.
    pub fn send(&mut self, from: Node, to: Node, request: RequestId, message: Message) {
        let Some(from_process) = self.process_of(from) else { return };
        let Some(to_process) = self.process_of(to) else { return };
        let arrivals = self.network.arrivals(from, to, &mut self.random);
        for arrival in arrivals {
            let message = message.clone();
            let envelope = Envelope { from, from_process, to, to_process, request, message };
            self.after(arrival, Event::Deliver(Box::new(envelope)));
        }
    }

    /// Sends a request whose answer is waited for; `Event::GiveUp` follows in any case.
    pub fn ask(&mut self, from: Node, to: Node, message: Message) -> RequestId {
        let request = self.new_request();
        let process = self.process_of(from).unwrap_or(0);
        self.after(REQUEST_TIMEOUT, Event::GiveUp(from, process, request));
        self.send(from, to, request, message);
        request
    }

    /// Takes note of what happens: two runs of a seed take the same notes.
    pub fn note(&mut self, what: fmt::Arguments<'_>) {
        let text = format!("{:6} {what}", self.now);
        self.trace.write(text.as_bytes());
        if self.options.verbose {
            println!("{text}");
        }
    }

    /// What the notes come to.
    pub fn trace(&self) -> u64 {
        self.trace.finish()
    }

    /// Says that an invariant does not hold. The first one counts.
    pub fn violate(&mut self, invariant: &'static str, what: String) {
        if self.violation.is_none() {
            self.note(format_args!("VIOLATION {invariant}: {what}"));
            self.violation = Some(Violation { invariant, what, at: self.now });
        }
    }

    /// Lets the next thing happen. Whether the run goes on.
    pub fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.queue.pop_first() else { return false };
        self.now = at;
        self.events += 1;
        if matches!(event, Event::End | Event::Gone) {
            return self.come_to_an_end(&event);
        }
        // A process that is stopped does everything later, in the same order.
        if let Some(resumes) = self.resumes(&event) {
            self.after(resumes - self.now, event);
            return true;
        }
        self.happen(event);
        self.check();
        self.violation.is_none() && !self.is_void
    }

    /// Looks at what has to hold at the end. Whether the run goes on all the same.
    fn come_to_an_end(&mut self, event: &Event) -> bool {
        if matches!(event, Event::Gone) {
            self.check_deletion_at_the_end();
            return false;
        }
        self.check_end();
        self.is_over = true;
        self.delete_topic();
        self.after(GONE_WITHIN, Event::Gone);
        self.violation.is_none()
    }

    /// When the broker goes on that the event is for, where it is stopped.
    fn resumes(&self, event: &Event) -> Option<Millis> {
        let id = match event {
            Event::Deliver(envelope) => match envelope.to {
                Node::Broker(id) => id,
                Node::Client(_) => return None,
            },
            Event::GiveUp(Node::Broker(id), ..)
            | Event::LookAtZooKeeper(id, _)
            | Event::Commit(id, ..)
            | Event::Rebalance(id, ..)
            | Event::SendAgain(id, ..)
            | Event::Copy(id, ..)
            | Event::CheckInSync(id, _)
            | Event::Propose(id, _)
            | Event::Verified(id, ..)
            | Event::Close(id, _)
            | Event::LookAtDirectories(id, _)
            | Event::GoOnStopping(id, ..)
            | Event::Flush(id, _) => *id,
            _ => return None,
        };
        let stopped_until = self.brokers[&id].stopped_until;
        (stopped_until > self.now).then_some(stopped_until)
    }

    /// Whether a process still runs.
    pub fn is_running(&self, id: BrokerId, process: u32) -> bool {
        self.process_of(Node::Broker(id)) == Some(process)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(envelope) => {
                let is_there = self.process_of(envelope.to) == Some(envelope.to_process);
                if is_there {
                    self.deliver(*envelope);
                }
            }
            Event::GiveUp(Node::Client(client), _, request) => {
                self.client_gives_up(client, request)
            }
            Event::GiveUp(Node::Broker(id), process, request) => {
                if self.is_running(id, process) {
                    self.give_up(id, request);
                }
            }
            Event::Client(client) => self.act_as_client(client),
            Event::Start(id) => self.start(id),
            Event::ExpireSession(session) => self.zookeeper.expire_session(session),
            Event::Fault => self.fault(),
            Event::Move => self.move_partition(),
            Event::DeleteTopic => self.delete_topic(),
            Event::CreateTopic => self.create_topic(),
            Event::Repair(id) => self.repair(id),
            Event::MendNetwork => self.mend_network(),
            Event::Heal => self.heal(),
            Event::End | Event::Gone => {}
            Event::LookAtZooKeeper(id, process)
            | Event::Commit(id, process, _)
            | Event::Rebalance(id, process, _)
            | Event::SendAgain(id, process, ..)
            | Event::Copy(id, process, ..)
            | Event::CheckInSync(id, process)
            | Event::Propose(id, process)
            | Event::Flush(id, process)
            | Event::LookAtDirectories(id, process)
            | Event::GoOnStopping(id, process, _)
            | Event::Verified(id, process, _)
            | Event::Close(id, process)
            | Event::LoseZooKeeper(id, process)
            | Event::Reconnect(id, process)
                if !self.is_running(id, process) => {}
            Event::LookAtZooKeeper(id, _) => self.look_at_zookeeper(id),
            Event::Commit(id, _, epoch) => self.commit(id, epoch),
            Event::Rebalance(id, _, epoch) => self.rebalance(id, epoch),
            Event::SendAgain(id, _, epoch, to) => self.send_again(id, epoch, to),
            Event::Copy(id, _, partition, order) => self.go_on_copying(id, partition, order),
            Event::CheckInSync(id, _) => self.check_in_sync(id),
            Event::Propose(id, _) => self.send_proposals(id),
            Event::Flush(id, _) => self.flush(id),
            Event::GoOnStopping(id, _, stopping) => self.go_on_stopping(id, *stopping),
            Event::LookAtDirectories(id, _) => self.look_at_directories(id),
            Event::Close(id, _) => self.close(id),
            Event::LoseZooKeeper(id, _) => {
                let duration = self.random.between(100, 2500);
                self.note(format_args!("FAULT broker {id} loses ZooKeeper, too, for {duration}"));
                self.lose_zookeeper(id, duration);
            }
            Event::Verified(id, _, number) => self.verified(id, number),
            Event::Reconnect(id, _) => self.reconnect(id),
        }
    }

    fn deliver(&mut self, envelope: Envelope) {
        let Envelope { from, to, request, message, .. } = envelope;
        match (to, message) {
            (Node::Client(client), message) => {
                self.client_is_answered(client, from, request, message)
            }
            (Node::Broker(id), message) => self.broker_gets(id, from, request, message),
        }
    }

    fn broker_gets(&mut self, id: BrokerId, from: Node, request: RequestId, message: Message) {
        let own = Node::Broker(id);
        match message {
            Message::Control(word, order) => {
                let taken = self.take_word(id, (from, request), (*word, order));
                if let Some((error, partitions)) = taken {
                    self.send(own, from, request, Message::Controlled(error, partitions));
                }
            }
            Message::Fetch(fetch) => {
                let partition = fetch.partition;
                let fetched = self.answer_fetch(id, &fetch);
                self.send(own, from, request, Message::Fetched(partition, fetched));
            }
            Message::Ends(partition, epoch) => {
                let ends = self.ends(id, partition, epoch);
                self.send(own, from, request, Message::EndsAre(partition, ends));
            }
            Message::Alter(wanted) => self.take_alteration(id, from, request, wanted),
            Message::Produce(produce) => self.produce(id, from, request, produce),
            Message::Consume(consume) => {
                let consumed = self.consume(id, consume);
                self.send(own, from, request, Message::Consumed(consumed));
            }
            Message::Controlled(error, partitions) => {
                self.word_was_taken(id, request, error, partitions);
            }
            Message::Fetched(partition, fetched) => {
                self.take_fetched(id, partition, request, fetched)
            }
            Message::EndsAre(partition, ends) => self.take_ends(id, partition, request, ends),
            Message::Altered(altered) => self.take_altered(id, request, altered),
            Message::Produced(_) | Message::Consumed(_) => {}
        }
    }
}
