//! Groups on a real log: what is committed comes back when the log is loaded again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use common::{
    clock,
    counters::{Histogram, MetricName, Registry},
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, ProducerEpoch, ProducerId},
    topic::{GROUP_METADATA_TOPIC, TopicPartition},
};
use group_coordinator::{
    action::Reply,
    config::GroupConfig,
    event::{CommitRequest, Event, GroupMember, OffsetToCommit, ReplyTo},
};
use partition::leader::{FollowerFetch, Leadership};
use record::{
    batch::TimestampType,
    compression::{BrokerCompression, Compression},
};
use replication::{
    partition::Partition,
    replica_manager::{LeaderAndIsr, ReplicaManager},
    surroundings::Surroundings,
    topic_settings::TopicSettings,
};
use storage::{
    log_config::LogConfig,
    log_manager::{Intervals, LogManager, LogManagerOptions},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transaction_coordinator::{
    coordinator::TransactionConfig,
    event as transaction,
    records::{TransactionRecord, TransactionValue},
    state::TransactionState,
};

use crate::{
    groups::{GroupMeters, Groups},
    log::{CoordinatorLog, LogRecord},
    registry::{Coordinators, NotHere},
    shard::{AppendFailure, Shard},
    transactions::{Effect, TransactionGauges, Transactions},
};

#[path = "crash_tests.rs"]
mod crash_tests;
#[path = "load_tests.rs"]
mod load_tests;

const LOCAL: BrokerId = BrokerId(1);

/// A broker that hosts one partition of the groups' topic.
struct Broker {
    _folder: tempfile::TempDir,
    replicas: ReplicaManager,
}

impl Broker {
    fn new() -> Broker {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = LogManagerOptions {
            directories: vec![folder.path().to_owned()],
            failed: Vec::new(),
            default_config: Arc::new(LogConfig::default()),
            topic_configs: Default::default(),
            threads: 1,
            intervals: Intervals::default(),
            seed: 1,
            producers_max: storage::producer_limit::PRODUCERS_MAX,
            now: clock::wall_clock(),
        };
        let logs = LogManager::open(options, &Default::default()).expect("logs that open");
        let surroundings = Arc::new(Surroundings::alone(LOCAL));
        let replicas = ReplicaManager::new(surroundings, Arc::new(logs), None);
        Broker { _folder: folder, replicas }
    }

    /// Leads the partition in an epoch, with these in-sync replicas.
    fn lead(&self, epoch: i32, isr: &[i32]) -> Arc<Partition> {
        let brokers: Vec<BrokerId> = isr.iter().map(|id| BrokerId(*id)).collect();
        let word = LeaderAndIsr {
            topic_partition: TopicPartition::new(GROUP_METADATA_TOPIC, 0),
            topic_id: None,
            leader: LOCAL,
            leadership: Leadership {
                epoch: LeaderEpoch(epoch),
                partition_epoch: PartitionEpoch(epoch),
                replicas: brokers.clone(),
                adding: Vec::new(),
                removing: Vec::new(),
                isr: brokers,
            },
            is_new: epoch == 0,
        };
        self.replicas.apply(word, &|_| settings()).expect("a partition to lead");
        self.replicas.get(GROUP_METADATA_TOPIC, 0).expect("it was just made")
    }
}

fn settings() -> Arc<TopicSettings> {
    Arc::new(TopicSettings {
        log: Arc::new(LogConfig { compact: true, delete: false, ..LogConfig::default() }),
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        compression: BrokerCompression::Producer,
        message_bytes_max: 1 << 20,
        in_sync_replicas_min: 1,
        down_conversion: true,
        leader_throttled: Default::default(),
        follower_throttled: Default::default(),
    })
}

fn code(failure: &AppendFailure) -> ErrorCode {
    match failure {
        AppendFailure::TimedOut => ErrorCode::RequestTimedOut,
        AppendFailure::Lost | AppendFailure::Refused(_) => ErrorCode::NotLeaderOrFollower,
    }
}

fn groups() -> Groups {
    groups_with(GroupConfig { append_timeout: Duration::from_millis(20), ..GroupConfig::default() })
}

fn groups_with(config: GroupConfig) -> Groups {
    Groups::new(config, code, GroupMeters::of_broker(&Registry::default()))
}

/// They wake after this while at the latest.
fn transactions(
    partition: &Partition,
    abort_interval: Duration,
    registry: &Registry,
) -> Transactions {
    let hour = Duration::from_secs(3600);
    let config = TransactionConfig {
        timeout_max: hour,
        id_expiration: hour,
        abort_interval,
        expire_interval: hour,
    };
    let gauges = TransactionGauges::of_broker(registry);
    Transactions::new(config, partition.leader_epoch(), hour, code, gauges)
}

/// Writes that a transaction is decided; it may take this long.
fn decide(partition: &Arc<Partition>, timeout_ms: i32) {
    let decided = TransactionRecord {
        transactional_id: "id".into(),
        value: Some(TransactionValue {
            producer_id: ProducerId(7),
            producer_epoch: ProducerEpoch(0),
            timeout_ms,
            state: TransactionState::PrepareCommit,
            partitions: vec![TopicPartition::new("t", 0)],
            last_update: clock::wall_clock(),
            start: clock::wall_clock(),
        }),
    };
    let record = LogRecord { key: decided.encoded_key(), value: decided.encoded_value() };
    log(partition).append(&[record], None, clock::wall_clock()).expect("a record that fits");
}

fn log(partition: &Arc<Partition>) -> CoordinatorLog {
    CoordinatorLog::new(partition.clone(), partition.leader_epoch(), Compression::None)
}

fn load(partition: &Arc<Partition>) -> (Arc<Shard<Groups>>, u64) {
    load_with(partition, 100)
}

fn load_with(partition: &Arc<Partition>, buffer_bytes: usize) -> (Arc<Shard<Groups>>, u64) {
    load_made(partition, groups(), buffer_bytes)
}

fn load_groups(
    partition: &Arc<Partition>,
    config: GroupConfig,
    buffer_bytes: usize,
) -> (Arc<Shard<Groups>>, u64) {
    load_made(partition, groups_with(config), buffer_bytes)
}

fn load_made(
    partition: &Arc<Partition>,
    groups: Groups,
    buffer_bytes: usize,
) -> (Arc<Shard<Groups>>, u64) {
    let (effects, _) = mpsc::unbounded_channel();
    let (shard, count) =
        Shard::load(log(partition), groups, buffer_bytes, effects).expect("a log that loads");
    shard.begin();
    (shard, count)
}

fn commit(offset: i64) -> impl FnOnce(u64) -> Event {
    commit_in(None, offset)
}

fn commit_in(
    transaction: Option<(ProducerId, ProducerEpoch)>,
    offset: i64,
) -> impl FnOnce(u64) -> Event {
    let request = CommitRequest {
        member: GroupMember {
            group: "g".to_owned(),
            generation: -1,
            member_id: String::new(),
            group_instance_id: None,
        },
        transaction,
        offsets: vec![OffsetToCommit {
            topic_partition: TopicPartition::new("t", 0),
            offset: Offset(offset),
            leader_epoch: LeaderEpoch::NONE,
            metadata: String::new(),
            commit_timestamp: clock::wall_clock(),
            expire_timestamp: None,
        }],
    };
    move |reply| Event::CommitOffsets { request, reply: ReplyTo(reply) }
}

fn committed(shard: &Shard<Groups>) -> i64 {
    let fetched = shard.read(|groups| groups.coordinator().fetch_offsets("g", None, false));
    fetched.first().map_or(-1, |one| one.offset.0)
}

#[tokio::test]
async fn what_was_committed_is_there_after_a_load() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1]);
    let (shard, records) = load(&partition);
    assert_eq!(records, 0);
    for offset in 1..=50 {
        let reply = shard.request(commit(offset)).await;
        assert_eq!(reply, Ok(Reply::CommitOffsets(vec![ErrorCode::None])));
    }
    let (again, records) = load(&partition);
    assert_eq!((records, committed(&again)), (50, 50));
}

#[tokio::test]
async fn offsets_that_expire_and_those_that_are_deleted_are_counted() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1]);
    let registry = Registry::default();
    let made = Groups::new(GroupConfig::default(), code, GroupMeters::of_broker(&registry));
    let (shard, _) = load_made(&partition, made, 100);
    let counts = || {
        ["offset-commit-count", "offset-expiration-count", "offset-deletion-count"].map(|name| {
            let kind = "group-coordinator-metrics";
            registry.meter(MetricName::new("kafka.server", kind, name)).count()
        })
    };
    shard.request(commit(5)).await.expect("an answer");
    let deleted = shard.request(|reply| Event::DeleteOffsets {
        group: "g".to_owned(),
        partitions: vec![TopicPartition::new("t", 0)],
        reply: ReplyTo(reply),
    });
    deleted.await.expect("an answer");
    assert_eq!(counts(), [1, 0, 1]);
    shard.request(commit(6)).await.expect("an answer");
    shard.act(|groups, time, steps| groups.expire_offsets(Duration::ZERO, time, steps));
    assert_eq!((counts(), committed(&shard)), ([2, 1, 1], -1));
}

#[tokio::test]
async fn what_cannot_be_read_is_passed_over() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1]);
    let (shard, _) = load(&partition);
    shard.request(commit(7)).await.expect("an answer");
    let broken = |key: &'static [u8], value| LogRecord {
        key: Bytes::from_static(key),
        value: Some(Bytes::from_static(value)),
    };
    let records = [broken(b"\0", b""), broken(b"\0\x01\0\x01g\0\x01t\0\0\0\0", b"\x7f\xff")];
    log(&partition).append(&records, None, clock::wall_clock()).expect("any bytes may be appended");
    shard.request(commit(8)).await.expect("an answer");
    let (again, records) = load(&partition);
    assert_eq!((records, committed(&again)), (4, 8));
}

#[tokio::test]
async fn an_offset_counts_once_every_replica_has_it() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1, 2]);
    let (shard, _) = load(&partition);
    let stop = CancellationToken::new();
    let keeper = tokio::spawn(shard.clone().keep(stop.clone()));
    let reply = shard.request(commit(5));
    assert_eq!(committed(&shard), -1, "nobody has it yet");
    let end = partition.log().end_offset();
    partition.follower_fetched(&FollowerFetch {
        id: BrokerId(2),
        offset: end,
        start: Offset(0),
        broker_epoch: BrokerEpoch(-1),
        leader_end: end,
    });
    assert_eq!(reply.await, Ok(Reply::CommitOffsets(vec![ErrorCode::None])));
    assert_eq!(committed(&shard), 5);
    // The follower is away: the time is up.
    let reply = shard.request(commit(6)).await;
    assert_eq!(reply, Ok(Reply::CommitOffsets(vec![ErrorCode::RequestTimedOut])));
    assert_eq!(committed(&shard), 5);
    stop.cancel();
    keeper.await.expect("it ends by itself");
}

#[tokio::test]
async fn who_waits_at_a_shard_that_closes_is_told() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1, 2]);
    let (shard, _) = load(&partition);
    let waiting = shard.request(commit(5));
    shard.close();
    assert_eq!(waiting.await, Ok(Reply::CommitOffsets(vec![ErrorCode::NotCoordinator])));
    assert!(shard.request(commit(6)).await.is_err(), "closed is closed");
}

#[tokio::test]
async fn a_coordinator_answers_from_its_election_to_its_resignation() {
    let broker = Broker::new();
    let partition = broker.lead(3, &[1]);
    let (effects, _) = mpsc::unbounded_channel();
    let load_times = Arc::new(Histogram::default());
    let coordinators =
        Arc::new(Coordinators::new(100, load_times.clone(), effects, CancellationToken::new()));
    let state = || coordinators.get(0).map(|_| ());
    assert_eq!(state(), Err(NotHere::NotCoordinator));
    coordinators.elect(log(&partition), Box::new(groups));
    while state() == Err(NotHere::Loading) {
        tokio::task::yield_now().await;
    }
    let shard = coordinators.get(0).expect("loaded");
    assert_eq!(load_times.count(), 1);
    coordinators.elect(log(&partition), Box::new(groups));
    let same = coordinators.get(0).expect("still there");
    assert!(Arc::ptr_eq(&shard, &same), "the same epoch changes nothing");
    coordinators.resign(0);
    assert_eq!(state(), Err(NotHere::NotCoordinator));
    coordinators.stop();
    assert_eq!(state(), Err(NotHere::Stopping));
}

#[tokio::test]
async fn a_coordinator_that_loads_says_so_and_then_answers() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1]);
    let (shard, _) = load(&partition);
    shard.request(commit(7)).await.expect("an answer");
    let (effects, _) = mpsc::unbounded_channel();
    let coordinators =
        Arc::new(Coordinators::new(100, Arc::default(), effects, CancellationToken::new()));
    let (go_on, held) = std::sync::mpsc::channel();
    let held = std::sync::Mutex::new(held);
    let make = move || {
        held.lock().expect("one load").recv().expect("the test lets it go on");
        groups()
    };
    coordinators.elect(log(&partition), Box::new(make));
    assert_eq!(coordinators.get(0).map(|_| ()), Err(NotHere::Loading));
    assert!(coordinators.all().expect("the broker runs").loads);
    go_on.send(()).expect("it waits");
    let shard = loop {
        match coordinators.get(0) {
            Ok(shard) => break shard,
            Err(state) => assert_eq!(state, NotHere::Loading),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(committed(&shard), 7);
}

#[tokio::test]
async fn an_append_of_an_epoch_that_is_over_is_refused() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1]);
    let (shard, _) = load(&partition);
    broker.lead(1, &[1]);
    let reply = shard.request(commit(5)).await;
    assert_eq!(reply, Ok(Reply::CommitOffsets(vec![ErrorCode::NotCoordinator])));
}

#[tokio::test]
async fn a_coordinator_is_in_office_before_it_has_anything_done() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1]);
    decide(&partition, 60_000);
    let (effects, mut wanted) = mpsc::unbounded_channel();
    let coordinators =
        Arc::new(Coordinators::new(100, Arc::default(), effects, CancellationToken::new()));
    let led = partition.clone();
    let make = move || transactions(&led, Duration::from_secs(10), &Registry::default());
    coordinators.elect(log(&partition), Box::new(make));
    // Its markers were on their way when the broker was killed.
    let effect = wanted.recv().await.expect("the coordinator is alive");
    assert!(matches!(effect, (0, Effect::SendMarkers(_))), "{effect:?}");
    assert!(coordinators.get(0).is_ok(), "the report would be lost");
}

#[tokio::test]
async fn a_commit_is_noticed_while_a_later_time_is_waited_for() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1, 2]);
    let (effects, mut wanted) = mpsc::unbounded_channel();
    // The coordinator wakes after half a minute, before the time of its appends is up.
    let transactions = transactions(&partition, Duration::from_secs(30), &Registry::default());
    let (shard, _) = Shard::load(log(&partition), transactions, 100, effects).expect("a log");
    shard.begin();
    let stop = CancellationToken::new();
    let keeper = tokio::spawn(shard.clone().keep(stop.clone()));
    // It waits for that time.
    tokio::task::yield_now().await;
    let reply = shard.request(|reply| transaction::Event::InitProducerId {
        transactional_id: "id".into(),
        timeout_ms: 60_000,
        expected: None,
        reply: transaction::ReplyTo(reply),
    });
    let Some((0, Effect::AllocateProducerId(allocation))) = wanted.recv().await else {
        panic!("a producer id is wanted");
    };
    let result = Ok(ProducerId(7));
    shard.tell(transaction::Event::ProducerIdAllocated { allocation, result });
    tokio::task::yield_now().await;
    let end = partition.log().end_offset();
    assert_eq!(end, Offset(1));
    partition.follower_fetched(&FollowerFetch {
        id: BrokerId(2),
        offset: end,
        start: Offset(0),
        broker_epoch: BrokerEpoch(-1),
        leader_end: end,
    });
    let told = tokio::time::timeout(Duration::from_secs(10), reply).await;
    assert!(told.is_ok(), "every replica has it, and nobody says so");
    stop.cancel();
    keeper.await.expect("it ends by itself");
}

#[tokio::test]
async fn what_waits_to_be_tried_again_is_shown_until_the_coordinator_leaves_office() {
    let broker = Broker::new();
    // The other replica never fetches.
    let partition = broker.lead(0, &[1, 2]);
    decide(&partition, 0);
    let registry = Registry::default();
    let shown = || {
        let kind = "TransactionMarkerChannelManager";
        ["UnknownDestinationQueueSize", "LogAppendRetryQueueSize"].map(|name| {
            let name = MetricName::new("kafka.coordinator.transaction", kind, name);
            registry.gauge(name).value()
        })
    };
    let (effects, mut wanted) = mpsc::unbounded_channel();
    let hour = Duration::from_secs(3600);
    let transactions = transactions(&partition, hour, &registry);
    let (shard, _) = Shard::load(log(&partition), transactions, 100, effects).expect("a log");
    shard.begin();
    let stop = CancellationToken::new();
    let keeper = tokio::spawn(shard.clone().keep(stop.clone()));
    let marked = |outcome| transaction::Event::MarkersWritten {
        transactional_id: "id".into(),
        outcomes: vec![(TopicPartition::new("t", 0), outcome)],
    };
    assert!(wanted.recv().await.is_some());
    assert_eq!(shown(), [0, 0]);
    shard.tell(marked(transaction::MarkerOutcome::LeaderUnknown));
    assert_eq!(shown(), [1, 0]);
    assert!(wanted.recv().await.is_some(), "the marker is sent again");
    assert_eq!(shown(), [0, 0]);
    shard.tell(marked(transaction::MarkerOutcome::Answered(ErrorCode::None)));
    // The append times out at once, and then again and again.
    let deadline = clock::now() + Duration::from_secs(10);
    while shown() != [0, 1] {
        assert!(clock::now() < deadline, "{:?}", shown());
        tokio::task::yield_now().await;
    }
    shard.close();
    assert_eq!(shown(), [0, 0]);
    keeper.await.expect("it ends by itself");
}
