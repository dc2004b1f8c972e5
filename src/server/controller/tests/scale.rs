//! What a large cluster costs its controller: the whole loop, over the fake ZooKeeper and brokers that only answer.
//!
//! `docs/scale.md` tells how it is run, and what it gave.

use std::{
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
    ids::{BrokerEpoch, BrokerId, Timestamp},
    security_protocol::SecurityProtocol,
};
use controller::topics::NewTopic;
use metadata::{broker::Endpoint, cache::MetadataCache};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;
use zk::{
    bootstrap::create_top_level_paths,
    changes::{SessionState, ZkChanges},
    documents::broker::BrokerDocument,
    fake::{FakeStore, FakeZooKeeper},
    registration::{Ghosts, register},
    store::{
        CreateKind, Created, Expected, Node, Op, OpResult, SessionId, Stat, Watch, ZkFuture,
        ZkStore,
    },
};

use super::{WAIT, config, obey};
use crate::controller::{ControllerHandle, Start, metrics::ControllerMetrics, start};

/// Partitions of each topic.
const PARTITIONS: i32 = 100;
/// Topics that one request creates.
const TOPICS_AT_ONCE: usize = 50;
/// A step is over when nobody has done anything for so long.
const QUIET: Duration = Duration::from_secs(3);

/// What was done so far.
#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    multis: AtomicU64,
    writes: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    fn now(&self) -> [u64; 5] {
        let each = [&self.reads, &self.multis, &self.writes, &self.requests, &self.bytes];
        each.map(|counter| counter.load(Ordering::Relaxed))
    }
}

fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// The fake ZooKeeper, with a count of what is asked of it.
struct Counted {
    store: Arc<FakeStore>,
    counters: Arc<Counters>,
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
        self.store.multi(ops)
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

/// Reads requests of the controller, and answers each that all is done.
async fn answer(mut stream: TcpStream, counters: Arc<Counters>) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let size = usize::try_from(stream.read_i32().await?).unwrap_or(0);
        let api = stream.read_i16().await?;
        let _version = stream.read_i16().await?;
        let correlation = stream.read_i32().await?;
        let mut left = size.saturating_sub(8);
        while left > 0 {
            let most = left.min(piece.len());
            let read = stream.read(&mut piece[..most]).await?;
            if read == 0 {
                return Ok(());
            }
            left -= read;
        }
        count(&counters.requests, 1);
        count(&counters.bytes, size + 4);
        // Flexible versions: tags of the header, no error, no partition (but for UpdateMetadata, key 6), tags.
        let body: &[u8] = if api == 6 { &[0, 0, 0, 0] } else { &[0, 0, 0, 1, 0] };
        let length = i32::try_from(4 + body.len()).unwrap_or(0);
        let mut frame = length.to_be_bytes().to_vec();
        frame.extend(correlation.to_be_bytes());
        frame.extend(body);
        stream.write_all(&frame).await?;
    }
}

/// Starts the brokers' side on a thread of its own. Gives its port, and where its time is told.
fn brokers(counters: Arc<Counters>) -> (u16, String) {
    let (tell, told) = threads::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let own = fs::read_link("/proc/thread-self").unwrap();
            tell.send((port, format!("/proc/{}/schedstat", own.display()))).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, Arc::clone(&counters)));
            }
        });
    });
    told.recv().unwrap()
}

/// Registers a broker; gives the session it is registered in.
async fn enter(zk: &FakeStore, broker: i32, port: u16) -> Option<SessionId> {
    let endpoint = Endpoint {
        listener: "PLAINTEXT".into(),
        host: "127.0.0.1".into(),
        port,
        protocol: SecurityProtocol::Plaintext,
    };
    let document = BrokerDocument {
        version: 5,
        endpoints: vec![endpoint],
        rack: None,
        jmx_port: -1,
        timestamp: Timestamp(1),
        features: std::collections::BTreeMap::new(),
    };
    let ghosts = Ghosts { is_ours: &|_| false, wait_at_most: Duration::ZERO };
    register(zk, BrokerId(broker), &document, &ghosts).await.unwrap();
    zk.session().session_id()
}

/// Lets a broker run for the office.
fn run(
    broker: i32,
    store: &Arc<FakeStore>,
    session: Option<SessionId>,
    counters: &Arc<Counters>,
) -> (ControllerHandle, CancellationToken) {
    let (registered, registered_seen) = watch::channel(session);
    // It stays registered.
    std::mem::forget(registered);
    let (to_broker, requests) = mpsc::channel(1);
    let metadata = Arc::new(MetadataCache::new());
    tokio::spawn(obey(requests, Arc::clone(&metadata), Arc::default()));
    let stop = CancellationToken::new();
    let (controller, _) = start(Start {
        broker: BrokerId(broker),
        config: config(&[("auto.leader.rebalance.enable", "false")]),
        zk: Arc::new(Counted { store: Arc::clone(store), counters: Arc::clone(counters) }),
        metadata,
        registered: registered_seen,
        to_broker,
        is_ours: Arc::new(|_| false),
        metrics: ControllerMetrics::default(),
        stop: stop.clone(),
    });
    (controller, stop)
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
    brokers: String,
}

impl Gauge {
    /// Processor time without the brokers', and theirs, in milliseconds.
    fn spent(&self) -> (u64, u64) {
        let schedule = fs::read_to_string(&self.brokers).unwrap();
        let theirs: u64 = schedule.split_whitespace().next().unwrap().parse().unwrap();
        let theirs = theirs / 1_000_000;
        (process_ms().saturating_sub(theirs), theirs)
    }

    /// Waits for the end of a step that began then, and prints what it cost.
    async fn step(&self, name: &str, act: impl Future<Output = ()>) {
        let (began, counted, spent) = (clock::now(), self.counters.now(), self.spent());
        let watching = async {
            let mut last: (Instant, [u64; 5], (u64, u64)) = (began, counted, spent);
            let mut peak = 0;
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                peak = peak.max(memory_mib("VmRSS"));
                let counted = self.counters.now();
                if counted != last.1 {
                    last = (clock::now(), counted, self.spent());
                } else if clock::now() - last.0 > QUIET {
                    return (last, peak);
                }
            }
        };
        let ((), ((ended, now, used), peak)) = tokio::join!(act, watching);
        let of = |index: usize| now[index] - counted[index];
        println!(
            "{name}: wall {} ms, cpu {} ms (brokers {} ms), memory {} MiB then {peak} MiB at most, \
             znode reads {}, writes {} in {} calls, requests {}, {} MB",
            (ended - began).as_millis(),
            used.0 - spent.0,
            used.1 - spent.1,
            memory_mib("VmRSS"),
            of(0),
            of(2),
            of(1),
            of(3),
            of(4) / 1_000_000,
        );
    }
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Creates everything, and lets a controller take over, a broker fail and return, and another one stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes and much memory; see docs/scale.md"]
async fn a_large_cluster_costs_its_controller() {
    let (count, partitions) = (number("SCALE_BROKERS", 1000), number("SCALE_PARTITIONS", 200_000));
    let counters = Arc::new(Counters::default());
    let (port, time) = brokers(Arc::clone(&counters));
    let gauge = Gauge { counters: Arc::clone(&counters), brokers: time };
    let server = FakeZooKeeper::new();
    let mut stores = Vec::new();
    let mut sessions = Vec::new();
    for broker in 0..i32::try_from(count).unwrap() {
        let store = server.connect();
        if broker == 0 {
            create_top_level_paths(&*store).await.unwrap();
        }
        sessions.push(enter(&store, broker, port).await);
        stores.push(store);
    }
    println!("{count} brokers, {partitions} partitions with 3 replicas");
    let (first, stop) = run(0, &stores[0], sessions[0], &counters);
    gauge.step("empty start", async {}).await;
    let topics = partitions / usize::try_from(PARTITIONS).unwrap();
    let creation = async {
        for from in (0..topics).step_by(TOPICS_AT_ONCE) {
            let named = |index: usize| NewTopic {
                name: format!("topic-{index}"),
                partitions: PARTITIONS,
                replication_factor: 3,
                ..NewTopic::default()
            };
            let new = (from..topics.min(from + TOPICS_AT_ONCE)).map(named).collect();
            for result in first.create_topics(new, WAIT).await {
                assert_eq!(result.error, None);
            }
        }
    };
    gauge.step("creation", creation).await;
    let (second, _stop_second) = run(1, &stores[1], sessions[1], &counters);
    gauge
        .step("takeover, first controller gone", async {
            stop.cancel();
            stores[0].close().await.unwrap();
        })
        .await;
    assert!(second.is_active());
    gauge.step("failure of a broker", async { stores[2].close().await.unwrap() }).await;
    let again = server.connect();
    gauge
        .step("return of the broker", async {
            enter(&again, 2, port).await;
        })
        .await;
    gauge
        .step("controlled shutdown", async {
            let left = second.controlled_shutdown(BrokerId(3), BrokerEpoch(-1)).await.unwrap();
            // Brokers that only answer fetch nothing: who was away is in no ISR again.
            println!("{} partitions have no other in-sync replica", left.len());
        })
        .await;
    println!("memory at most {} MiB", memory_mib("VmHWM"));
}
