//! What a cluster costs its controller: the whole loop, over the fake ZooKeeper and brokers that only answer.
//!
//! Small unless told otherwise; `docs/scale.md` tells how a large one is run, and what it gave.

use std::{
    collections::{BTreeSet, HashMap},
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc as threads,
    },
    thread,
    time::{Duration, Instant},
};

use common::{
    clock,
    ids::{BrokerEpoch, BrokerId},
};
use controller::{request::Body, topics::NewTopic};
use metadata::{cache::MetadataCache, snapshot::ClusterSnapshot};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;
use zk::{
    bootstrap::create_top_level_paths,
    changes::{SessionState, ZkChanges},
    fake::{FakeStore, FakeZooKeeper},
    store::{
        CreateKind, Created, Expected, Node, Op, OpResult, SessionId, Stat, Watch, ZkFuture,
        ZkStore,
    },
};

use super::{config, register_at};
use crate::broker_configs::BrokerConfigs;
use crate::controller::{
    ControllerHandle, Start,
    channels::{Answer, ToBroker},
    metrics::ControllerMetrics,
    start,
    topics::Request,
};

/// Partitions of each topic, at most.
const TOPIC_PARTITIONS: usize = 100;
/// Topics that one request creates.
const TOPICS_AT_ONCE: usize = 50;
/// A large cluster may take its time.
const PATIENCE: Request = Request { timeout_ms: 1_800_000, validate_only: false };
/// Key of UpdateMetadata.
const UPDATE_METADATA: i16 = 6;

/// What was done so far.
#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    multis: AtomicU64,
    writes: AtomicU64,
    requests: AtomicU64,
    /// Of the requests, those that are UpdateMetadata.
    updates: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    fn now(&self) -> [u64; 6] {
        let Counters { reads, multis, writes, requests, updates, bytes } = self;
        [reads, multis, writes, requests, updates, bytes].map(|one| one.load(Ordering::Acquire))
    }
}

fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::AcqRel);
}

/// The fake ZooKeeper, with a count of what is asked of it.
struct Counted {
    store: Arc<FakeStore>,
    counters: Arc<Counters>,
    /// How long the answer to a `multi` takes to arrive.
    delay: Duration,
}

impl Counted {
    fn written(&self, steps: usize) {
        count(&self.counters.multis, 1);
        count(&self.counters.writes, steps);
        // The fake would keep them for those who ask.
        self.store.take_writes();
    }
}

impl ZkStore for Counted {
    fn get<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Node>> {
        count(&self.counters.reads, 1);
        self.store.get(path, watch)
    }

    fn exists<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Stat>> {
        count(&self.counters.reads, 1);
        self.store.exists(path, watch)
    }

    fn children<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Vec<String>> {
        count(&self.counters.reads, 1);
        self.store.children(path, watch)
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: CreateKind,
    ) -> ZkFuture<'a, Created> {
        self.written(1);
        self.store.create(path, data, kind)
    }

    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], expected: Expected) -> ZkFuture<'a, Stat> {
        self.written(1);
        self.store.set(path, data, expected)
    }

    fn delete<'a>(&'a self, path: &'a str, expected: Expected) -> ZkFuture<'a, ()> {
        self.written(1);
        self.store.delete(path, expected)
    }

    fn multi(&self, ops: Vec<Op>) -> ZkFuture<'_, Vec<OpResult>> {
        self.written(ops.len());
        let done = self.store.multi(ops);
        if self.delay.is_zero() {
            return done;
        }
        Box::pin(async move {
            let done = done.await;
            // It is done, and the answer is on its way.
            tokio::time::timeout(self.delay, std::future::pending::<()>()).await.unwrap_err();
            done
        })
    }

    fn session(&self) -> SessionState {
        self.store.session()
    }

    fn changes(&self) -> ZkChanges {
        self.store.changes()
    }

    fn request_bytes_max(&self) -> usize {
        self.store.request_bytes_max()
    }

    fn close(&self) -> ZkFuture<'_, ()> {
        self.store.close()
    }
}

/// The other brokers, on a thread of their own.
struct Others {
    ports: Vec<u16>,
    /// Where the time of their thread is told.
    schedule: String,
    /// The registrations that each was spoken to in.
    addressed: Arc<Mutex<BTreeSet<(BrokerId, BrokerEpoch)>>>,
}

impl Others {
    fn start(how_many: usize, counters: &Arc<Counters>) -> Others {
        let (tell, told) = threads::channel();
        let counters = Arc::clone(counters);
        let addressed = Arc::default();
        let noted = Arc::clone(&addressed);
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let own = fs::read_link("/proc/thread-self").unwrap();
                let mut ports = Vec::new();
                for broker in 0..i32::try_from(how_many).unwrap() {
                    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                    ports.push(listener.local_addr().unwrap().port());
                    let (counters, noted) = (Arc::clone(&counters), Arc::clone(&noted));
                    tokio::spawn(accept(BrokerId(broker), listener, counters, noted));
                }
                tell.send((ports, format!("/proc/{}/schedstat", own.display()))).unwrap();
                std::future::pending::<()>().await;
            });
        });
        let (ports, schedule) = told.recv().unwrap();
        Others { ports, schedule, addressed }
    }
}

type Addressed = Arc<Mutex<BTreeSet<(BrokerId, BrokerEpoch)>>>;

async fn accept(
    broker: BrokerId,
    listener: TcpListener,
    counters: Arc<Counters>,
    noted: Addressed,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (counters, noted) = (Arc::clone(&counters), Arc::clone(&noted));
        // A connection ends with its controller.
        tokio::spawn(async move { answer(broker, stream, &counters, &noted).await });
    }
}

/// Reads requests of the controller, and answers each that all is done.
async fn answer(
    broker: BrokerId,
    mut stream: TcpStream,
    counters: &Counters,
    noted: &Addressed,
) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let size = usize::try_from(stream.read_i32().await?).unwrap();
        let api = stream.read_i16().await?;
        let _version = stream.read_i16().await?;
        let correlation = stream.read_i32().await?;
        let client = usize::try_from(stream.read_i16().await?).unwrap();
        stream.read_exact(&mut piece[..client]).await?;
        // Tags; in all three requests the controller, whether it is one of KRaft, its epoch, and the broker's.
        stream.read_exact(&mut piece[..1 + 4 + 1 + 4]).await?;
        let epoch = BrokerEpoch(stream.read_i64().await?);
        noted.lock().insert((broker, epoch));
        let mut left = size - (10 + client + 10 + 8);
        while left > 0 {
            let most = left.min(piece.len());
            left -= stream.read_exact(&mut piece[..most]).await?;
        }
        count(&counters.requests, 1);
        count(&counters.bytes, size + 4);
        if api == UPDATE_METADATA {
            count(&counters.updates, 1);
        }
        // Tags of the header, no error, no partition (but for UpdateMetadata), tags.
        let body: &[u8] = if api == UPDATE_METADATA { &[0, 0, 0, 0] } else { &[0, 0, 0, 1, 0] };
        let length = i32::try_from(4 + body.len()).unwrap();
        let mut frame = length.to_be_bytes().to_vec();
        frame.extend(correlation.to_be_bytes());
        frame.extend(body);
        stream.write_all(&frame).await?;
    }
}

/// A broker that runs for the office.
struct Candidate {
    controller: ControllerHandle,
    metadata: Arc<MetadataCache>,
    /// Counts the UpdateMetadata that it was told by itself.
    told: watch::Receiver<u64>,
    stop: CancellationToken,
    /// It stays registered.
    _registered: watch::Sender<Option<SessionId>>,
}

impl Candidate {
    fn start(broker: i32, store: &Arc<FakeStore>, counters: &Arc<Counters>) -> Candidate {
        let (registered, registered_seen) = watch::channel(store.session().session_id());
        let (to_broker, requests) = mpsc::channel(1);
        let metadata = Arc::new(MetadataCache::new());
        let (tell, told) = watch::channel(0);
        tokio::spawn(obey(requests, Arc::clone(&metadata), tell));
        let stop = CancellationToken::new();
        let (controller, _) = start(Start {
            broker: BrokerId(broker),
            broker_configs: Arc::new(BrokerConfigs::of_file(BrokerId(broker), config(&[]))),
            config: config(&[("auto.leader.rebalance.enable", "false")]),
            zk: Arc::new(Counted {
                store: Arc::clone(store),
                counters: Arc::clone(counters),
                delay: Duration::from_millis(number("MULTI_MS", 0) as u64),
            }),
            metadata: Arc::clone(&metadata),
            registered: registered_seen,
            to_broker,
            is_ours: Arc::new(|_| false),
            metrics: ControllerMetrics::default(),
            stop: stop.clone(),
        });
        Candidate { controller, metadata, told, stop, _registered: registered }
    }
}

async fn obey(
    mut requests: mpsc::Receiver<ToBroker>,
    metadata: Arc<MetadataCache>,
    told: watch::Sender<u64>,
) {
    while let Some(ToBroker { request, answer }) = requests.recv().await {
        if let Body::UpdateMetadata(update) = &request.body {
            metadata.apply(update);
            told.send_modify(|count| *count += 1);
        }
        // A controller that is out of office does not listen.
        let _ = answer.send(Answer::done());
    }
}

/// Processor time of this process, in milliseconds.
fn process_ms() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // utime and stime, in hundredths of a second.
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

fn memory_mib(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|one| one.starts_with(line)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Sees what a step costs.
struct Gauge {
    counters: Arc<Counters>,
    schedule: String,
}

/// When a step is over: the controller's broker sees it, and so many others have been told as often.
struct End<'a> {
    of: &'a Candidate,
    others: usize,
    is_seen: &'a dyn Fn(&ClusterSnapshot) -> bool,
}

impl Gauge {
    /// Processor time without the brokers', and theirs, in milliseconds.
    fn spent(&self) -> (u64, u64) {
        let schedule = fs::read_to_string(&self.schedule).unwrap();
        let theirs: u64 = schedule.split_whitespace().next().unwrap().parse().unwrap();
        let theirs = theirs / 1_000_000;
        (process_ms().saturating_sub(theirs), theirs)
    }

    /// Does something, waits until it is over, and prints what it cost.
    async fn step(&self, name: &str, act: impl Future<Output = ()>, end: End<'_>) {
        // The most from now on. Where the system does not let it be set back, it is that of the whole run.
        fs::write("/proc/self/clear_refs", "5").ok();
        let memory = memory_mib("VmRSS");
        let told_before = *end.of.told.borrow();
        let (began, before, spent) = (clock::now(), self.counters.now(), self.spent());
        act.await;
        let answered = clock::now();
        self.wait(&end, told_before, before[4]).await;
        self.print(name, (began, answered), before, spent, memory);
    }

    /// Waits for the end, with what the controller's broker and the others had been told before.
    async fn wait(&self, end: &End<'_>, told_before: u64, updates_before: u64) {
        let mut told = end.of.told.clone();
        told.wait_for(|_| (end.is_seen)(&end.of.metadata.load())).await.unwrap();
        let updates = updates_before + (*told.borrow() - told_before) * end.others as u64;
        let mut looks = tokio::time::interval(Duration::from_millis(1));
        while self.counters.now()[4] < updates {
            looks.tick().await;
        }
    }

    fn print(
        &self,
        name: &str,
        (began, answered): (Instant, Instant),
        before: [u64; 6],
        spent: (u64, u64),
        memory: u64,
    ) {
        let (ended, now, used) = (clock::now(), self.counters.now(), self.spent());
        let [reads, multis, writes, requests, _, bytes] =
            std::array::from_fn(|index| now[index] - before[index]);
        println!(
            "| {name} | {} ms | {} ms | {} ms | {} ms | {memory} | {} | {reads} | {writes} ({multis}) | {requests} | {} |",
            (answered - began).as_millis(),
            (ended - began).as_millis(),
            used.0.saturating_sub(spent.0),
            used.1.saturating_sub(spent.1),
            memory_mib("VmHWM"),
            bytes / 1_000_000,
        );
    }
}

/// Partitions that the broker leads.
fn led_by(cluster: &ClusterSnapshot, broker: i32) -> usize {
    let all = cluster.topics().flat_map(|topic| topic.partitions());
    all.filter(|(_, partition)| partition.leader == BrokerId(broker)).count()
}

/// Partitions with a replica that is offline on the broker.
fn offline_on(cluster: &ClusterSnapshot, broker: i32) -> usize {
    let all = cluster.topics().flat_map(|topic| topic.partitions());
    all.filter(|(_, partition)| partition.offline_replicas.contains(&BrokerId(broker))).count()
}

fn new_topic(name: String, partitions: usize) -> NewTopic {
    let partitions = i32::try_from(partitions).unwrap();
    NewTopic { name, partitions, replication_factor: 3, ..NewTopic::default() }
}

async fn create(controller: &ControllerHandle, new: Vec<NewTopic>) {
    for result in controller.create_topics(new, PATIENCE).await {
        assert_eq!(result.error, None);
    }
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// `BROKERS=1000 PARTITIONS=200000 cargo test --release -p server a_large_cluster -- --nocapture` is the large one;
/// with `MULTI_MS=2` ZooKeeper takes so long for each `multi`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_cluster_costs_its_controller() {
    let (brokers, partitions) = (number("BROKERS", 6), number("PARTITIONS", 120));
    let topic_partitions = TOPIC_PARTITIONS.min(partitions / 2);
    let counters = Arc::new(Counters::default());
    let others = Others::start(brokers, &counters);
    let gauge = Gauge { counters: Arc::clone(&counters), schedule: others.schedule };
    let server = FakeZooKeeper::new();
    let mut stores = HashMap::new();
    let mut registered = BTreeSet::new();
    create_top_level_paths(&*server.connect()).await.unwrap();
    for (broker, port) in (0..).zip(&others.ports) {
        let store = server.connect();
        let epoch = register_at(&store, BrokerId(broker), *port).await;
        registered.insert((BrokerId(broker), epoch));
        stores.insert(broker, store);
    }
    println!("{brokers} brokers, {partitions} partitions with 3 replicas");
    println!(
        "| step | answered | all told | CPU | CPU of brokers | MiB before | at most | reads | writes (calls) | requests | MB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");

    let first = Candidate::start(0, &stores[&0], &counters);
    let knows_all = |cluster: &ClusterSnapshot| cluster.brokers().len() == brokers;
    let end = End { of: &first, others: brokers - 1, is_seen: &knows_all };
    gauge.wait(&end, 0, 0).await;
    let topics = partitions / topic_partitions;
    let partitions = topics * topic_partitions;
    let creation = async {
        for from in (0..topics).step_by(TOPICS_AT_ONCE) {
            let until = topics.min(from + TOPICS_AT_ONCE);
            let named = |index: usize| new_topic(format!("topic-{index}"), topic_partitions);
            create(&first.controller, (from..until).map(named).collect()).await;
        }
    };
    let all_led = |cluster: &ClusterSnapshot| cluster.partition_count() == partitions;
    let end = End { of: &first, others: brokers - 1, is_seen: &all_led };
    gauge.step("creation of all topics", creation, end).await;

    let second = Candidate::start(1, &stores[&1], &counters);
    let gone = async {
        first.stop.cancel();
        stores[&0].close().await.unwrap();
    };
    let is_over = |cluster: &ClusterSnapshot| {
        cluster.partition_count() == partitions && led_by(cluster, 0) == 0
    };
    let end = End { of: &second, others: brokers - 2, is_seen: &is_over };
    gauge.step("takeover: the controller fails", gone, end).await;

    let fails = async { stores[&2].close().await.unwrap() };
    let is_over = |cluster: &ClusterSnapshot| {
        cluster.brokers().len() == brokers - 2 && led_by(cluster, 2) == 0
    };
    let end = End { of: &second, others: brokers - 3, is_seen: &is_over };
    gauge.step("a broker fails", fails, end).await;

    let again = server.connect();
    let returns = async {
        let epoch = register_at(&again, BrokerId(2), others.ports[2]).await;
        registered.insert((BrokerId(2), epoch));
    };
    let is_over = |cluster: &ClusterSnapshot| {
        cluster.brokers().len() == brokers - 1 && offline_on(cluster, 2) == 0
    };
    let end = End { of: &second, others: brokers - 2, is_seen: &is_over };
    gauge.step("it returns", returns, end).await;

    // Brokers that only answer fetch nothing: those that were away are in no ISR again, and some partitions have no other.
    let kept = AtomicU64::new(0);
    let shutdown = async {
        let left = second.controller.controlled_shutdown(BrokerId(3), BrokerEpoch(-1)).await;
        count(&kept, left.unwrap().len());
    };
    let is_over =
        |cluster: &ClusterSnapshot| led_by(cluster, 3) as u64 == kept.load(Ordering::Acquire);
    let end = End { of: &second, others: brokers - 2, is_seen: &is_over };
    gauge.step("controlled shutdown", shutdown, end).await;

    let one = vec![new_topic("one".to_owned(), topic_partitions)];
    let is_there = |cluster: &ClusterSnapshot| cluster.topic("one").is_some();
    let end = End { of: &second, others: brokers - 2, is_seen: &is_there };
    gauge.step("creation of a topic", create(&second.controller, one), end).await;

    // The first controller's broker was told by itself.
    registered.retain(|(broker, _)| *broker != BrokerId(0));
    assert_eq!(*others.addressed.lock(), registered, "each in its own registration");
}
