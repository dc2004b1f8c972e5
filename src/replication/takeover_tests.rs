//! Tests of taking a partition over from its former leader, which is a script here.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use bytes::Bytes;
use common::{
    clock,
    config::ibp::MetadataVersion,
    counters::Registry,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, PartitionEpoch, Timestamp},
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    fetch_response::{FetchableTopicResponse, PartitionData},
};
use metadata::{
    broker::Broker,
    cache::MetadataCache,
    snapshot::{self, TopicUpdate, Update},
};
use parking_lot::Mutex;
use partition::leader::Leadership;
use record::{
    batch::TimestampType,
    build::BatchBuilder,
    compression::{BrokerCompression, Compression},
    validate::check,
};
use storage::{
    log_config::LogConfig,
    log_manager::{Intervals, LogManager, LogManagerOptions},
};
use tokio_util::sync::CancellationToken;

use crate::{
    copying::Sent,
    fetchers::{FetcherConfig, Fetchers},
    leaders::{Leader, LeaderFuture, Leaders},
    partition::{AccessError, ChangeWaiter, Partition},
    replica_manager::{Access, LeaderAndIsr, ReplicaManager},
    surroundings::Surroundings,
    topic_settings::TopicSettings,
};

const LOCAL: BrokerId = BrokerId(1);
const FORMER: BrokerId = BrokerId(2);
const ID: Uuid = Uuid(42);

/// What the former leader answers.
#[derive(Clone)]
enum Answer {
    Error(ErrorCode),
    /// A record at an offset, in an epoch.
    Record(i64, i32),
    Nothing,
    /// No answer, ever.
    Silence,
    NotReached,
}

/// The former leader: what it was asked from, and what it answers.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<i64>>,
    asked_in: Mutex<Vec<i32>>,
}

/// Ways to the former leader.
struct Ways(Arc<Script>);

struct Way(Option<Arc<Script>>);

impl Leaders for Ways {
    fn way_to(&self, _leader: BrokerId, fetcher: usize) -> Box<dyn Leader> {
        // The fetchers' ways lead nowhere: the follower copies nothing while the test looks on.
        Box::new(Way((fetcher == usize::MAX).then(|| self.0.clone())))
    }
}

impl Leader for Way {
    fn fetch(&self, request: FetchRequest, _version: i16) -> LeaderFuture<'_, FetchResponse> {
        let Some(script) = &self.0 else { return Box::pin(std::future::pending()) };
        let partition = &request.topics[0].partitions[0];
        script.asked_in.lock().push(partition.current_leader_epoch);
        script.asked.lock().push(partition.fetch_offset);
        let next = script.answers.lock().pop_front().unwrap_or(Answer::Silence);
        Box::pin(async move {
            let data = PartitionData::default().with_partition_index(0);
            let data = match next {
                Answer::Error(error) => data.with_error_code(error.code()),
                Answer::Record(offset, epoch) => data.with_records(Some(record(offset, epoch))),
                Answer::Nothing => data,
                Answer::Silence => std::future::pending().await,
                Answer::NotReached => return Err("nobody is there".into()),
            };
            let topic = FetchableTopicResponse::default()
                .with_topic_id(uuid::Uuid::from_u128(ID.0))
                .with_partitions(vec![data]);
            Ok(FetchResponse::default().with_responses(vec![topic]))
        })
    }

    fn list_offsets(
        &self,
        _request: ListOffsetsRequest,
        _version: i16,
    ) -> LeaderFuture<'_, ListOffsetsResponse> {
        Box::pin(std::future::pending())
    }
}

fn record(offset: i64, epoch: i32) -> Bytes {
    let builder = BatchBuilder::new(Compression::None);
    let mut builder = builder.base_offset(Offset(offset)).leader_epoch(LeaderEpoch(epoch));
    builder.append(Timestamp(1), None, Some(b"value"), &[]).unwrap();
    builder.finish()
}

struct Fixture {
    _folder: tempfile::TempDir,
    replicas: ReplicaManager,
    script: Arc<Script>,
}

impl Fixture {
    fn new(answers: &[Answer]) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let options = LogManagerOptions {
            directories: vec![folder.path().to_owned()],
            failed: Vec::new(),
            default_config: Arc::new(LogConfig::default()),
            topic_configs: Default::default(),
            threads: 1,
            intervals: Intervals::default(),
            seed: 1,
            producers_max: 100,
            now: clock::wall_clock(),
        };
        let logs = Arc::new(LogManager::open(options, &Default::default()).unwrap());
        let metadata = Arc::new(MetadataCache::new());
        let broker = |id| {
            let epoch = BrokerEpoch(1);
            Arc::new(Broker { id, endpoints: Vec::new(), rack: None, epoch })
        };
        let brokers = vec![broker(LOCAL), broker(FORMER)];
        metadata.apply(&Update { brokers, ..Update::default() });
        let registry = Registry::default();
        let lag = Duration::from_secs(30);
        let surroundings = Arc::new(Surroundings::new(LOCAL, metadata, lag, &registry));
        let script = Arc::new(Script::default());
        script.answers.lock().extend(answers.iter().cloned());
        let config = FetcherConfig {
            local: LOCAL,
            protocol: MetadataVersion::V3_9_IV0,
            fetchers_per_leader: 1,
            wait_max_ms: 500,
            bytes_min: 1,
            response_bytes_max: 10 << 20,
            partition_bytes_max: 1 << 20,
            backoff: Duration::from_secs(1),
        };
        let (leaders, epoch) = (Arc::new(Ways(script.clone())), Arc::new(AtomicI64::new(1)));
        let stop = CancellationToken::new();
        let fetchers = Fetchers::new(config, leaders, epoch, &registry, stop);
        let replicas = ReplicaManager::new(surroundings, logs, Some(fetchers));
        Fixture { _folder: folder, replicas, script }
    }

    fn told(&self, leader: BrokerId, epoch: i32) -> Arc<Partition> {
        let word = LeaderAndIsr {
            topic_partition: TopicPartition::new("t", 0),
            topic_id: Some(ID),
            leader,
            leadership: Leadership {
                epoch: LeaderEpoch(epoch),
                partition_epoch: PartitionEpoch(epoch),
                replicas: vec![LOCAL, FORMER],
                adding: Vec::new(),
                removing: Vec::new(),
                isr: vec![LOCAL, FORMER],
            },
            is_new: false,
        };
        self.replicas.apply(word, &|_| settings()).unwrap();
        self.replicas.get("t", 0).unwrap()
    }

    /// All brokers are told who leads and holds the partition. Whether this broker is not to host it any more.
    fn all_are_told(&self, epoch: i32, replicas: &[BrokerId]) -> bool {
        let update = update(ID, vec![(0, Some(state(epoch, replicas))), (1, None)]);
        let moved = self.replicas.moved_away(&update);
        for (name, epoch) in &moved {
            self.replicas.step_down(name, *epoch);
        }
        !moved.is_empty()
    }

    /// Follows the former leader in epoch 5 with one record, and is to lead in epoch 6 then.
    fn take_over(&self) -> Arc<Partition> {
        let partition = self.told(FORMER, 5);
        partition.log().append_as_follower(&record(0, 5)).unwrap();
        self.told(LOCAL, 6);
        partition
    }
}

fn state(epoch: i32, replicas: &[BrokerId]) -> snapshot::Partition {
    snapshot::Partition {
        leader: FORMER,
        leader_epoch: LeaderEpoch(epoch),
        isr: replicas.into(),
        replicas: replicas.into(),
        offline_replicas: Box::default(),
        partition_epoch: PartitionEpoch(epoch),
        controller_epoch: ControllerEpoch(1),
    }
}

fn update(id: Uuid, partitions: Vec<(i32, Option<snapshot::Partition>)>) -> Update {
    let topic = TopicUpdate { name: "t".into(), id: Some(id), partitions };
    Update { topics: vec![topic], ..Update::default() }
}

fn settings() -> Arc<TopicSettings> {
    Arc::new(TopicSettings {
        log: Arc::new(LogConfig::default()),
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

async fn led(partition: &Arc<Partition>) {
    let waiter = ChangeWaiter::new(vec![partition.clone()]);
    while !partition.is_leader() {
        waiter.changed().await;
    }
}

fn produce(partition: &Partition) -> bool {
    let rules = settings().rules(clock::wall_clock());
    let checked = check(record(0, -1), &rules).unwrap();
    partition.append_as_leader(checked, None, None).is_ok()
}

#[tokio::test(start_paused = true)]
async fn what_the_former_leader_took_last_is_there_before_anything_new() {
    let fixture = Fixture::new(&[
        Answer::Error(ErrorCode::UnknownLeaderEpoch),
        Answer::Record(1, 5),
        Answer::Record(2, 5),
        Answer::Nothing,
    ]);
    let partition = fixture.take_over();
    assert!(!produce(&partition), "not yet");
    let access = partition.check_access(Access::LeaderOnly, LeaderEpoch(6));
    assert_eq!(access, Err(AccessError::TakingOver));
    led(&partition).await;
    assert_eq!(*fixture.script.asked.lock(), [1, 1, 2, 3]);
    assert_eq!(*fixture.script.asked_in.lock(), [6, 6, 6, 6], "in the new epoch");
    assert_eq!(partition.log().end_offset(), Offset(3));
    assert!(produce(&partition));
    let end = |epoch| partition.log().end_offset_for_epoch(LeaderEpoch(epoch));
    assert_eq!(end(5), Some((LeaderEpoch(5), Offset(3))), "the new epoch begins after it");
    assert_eq!(end(6), Some((LeaderEpoch(6), Offset(4))));
}

#[tokio::test(start_paused = true)]
async fn a_former_leader_that_gives_nothing_is_not_waited_for() {
    for answer in [
        Answer::Error(ErrorCode::NotLeaderOrFollower),
        Answer::NotReached,
        Answer::Silence,
        // It is here already.
        Answer::Record(0, 5),
    ] {
        let fixture = Fixture::new(&[answer]);
        let partition = fixture.take_over();
        led(&partition).await;
        assert_eq!(partition.log().end_offset(), Offset(1));
        assert!(produce(&partition));
    }
}

#[tokio::test(start_paused = true)]
async fn the_controllers_newer_word_ends_a_takeover() {
    let fixture = Fixture::new(&[]);
    let partition = fixture.take_over();
    fixture.told(FORMER, 7);
    assert_eq!(partition.leader(), (FORMER, LeaderEpoch(7)));
    assert!(!partition.end_takeover(LeaderEpoch(6)), "the late end changes nothing");
    assert_eq!(partition.leader(), (FORMER, LeaderEpoch(7)));
}

#[tokio::test(start_paused = true)]
async fn a_takeover_goes_on_in_its_leaders_next_epoch() {
    let fixture = Fixture::new(&[
        Answer::Error(ErrorCode::UnknownLeaderEpoch),
        // It was told first.
        Answer::Error(ErrorCode::FencedLeaderEpoch),
        Answer::Record(1, 5),
        Answer::Nothing,
    ]);
    let partition = fixture.take_over();
    while fixture.script.asked_in.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    fixture.told(LOCAL, 7);
    assert!(!produce(&partition), "not yet");
    let access = partition.check_access(Access::LeaderOnly, LeaderEpoch(7));
    assert_eq!(access, Err(AccessError::TakingOver));
    led(&partition).await;
    assert_eq!(*fixture.script.asked_in.lock(), [6, 7, 7, 7]);
    assert_eq!(partition.leader(), (LOCAL, LeaderEpoch(7)));
    assert!(produce(&partition));
    let end = |epoch| partition.log().end_offset_for_epoch(LeaderEpoch(epoch));
    assert_eq!(end(5), Some((LeaderEpoch(5), Offset(2))), "nothing of it is lost");
    assert_eq!(end(7), Some((LeaderEpoch(7), Offset(3))));
}

#[tokio::test(start_paused = true)]
async fn a_takeover_ends_where_another_may_have_led_since() {
    let fixture = Fixture::new(&[]);
    let partition = fixture.take_over();
    fixture.told(LOCAL, 8);
    assert!(partition.is_leader(), "epoch 7 was another's perhaps");
    assert!(!partition.end_takeover(LeaderEpoch(6)));
    assert_eq!(partition.leader(), (LOCAL, LeaderEpoch(8)));
}

#[tokio::test(start_paused = true)]
async fn a_former_leader_owes_in_the_next_epochs_of_the_new_one_too() {
    let fixture = Fixture::new(&[]);
    let partition = fixture.told(LOCAL, 5);
    assert!(produce(&partition) && produce(&partition));
    fixture.told(FORMER, 6);
    let asks = |epoch, end| partition.hands_over_to(FORMER, LeaderEpoch(epoch), Offset(end));
    assert!(asks(7, 0), "which knows more");
    fixture.told(FORMER, 7);
    assert_eq!(fixture.replicas.left_to_move(), 1);
    assert!(!asks(6, 1));
    assert!(asks(7, 2), "and that was all");
    assert_eq!(fixture.replicas.left_to_move(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_to_stop_gives_what_it_has_to_the_leader_after_it() {
    let fixture = Fixture::new(&[]);
    let partition = fixture.told(LOCAL, 5);
    assert!(produce(&partition) && produce(&partition));
    let give_up = |epoch| fixture.replicas.give_up(partition.topic_partition(), LeaderEpoch(epoch));
    assert!(!give_up(5) && partition.is_leader(), "nobody leads after it");
    // The removal of this replica from the in-sync set may have begun an epoch of its own.
    assert!(give_up(7));
    assert!(!produce(&partition));
    assert!(give_up(7), "told twice");
    let asks = |epoch, end| partition.hands_over_to(FORMER, LeaderEpoch(epoch), Offset(end));
    assert!(!asks(5, 0), "a follower's fetch that was under way");
    assert!(asks(6, 0) && asks(7, 1));
    assert!(fixture.replicas.owes(partition.topic_partition()));
    assert!(asks(7, 2), "and that was all");
    assert!(!fixture.replicas.owes(partition.topic_partition()));
}

#[tokio::test(start_paused = true)]
async fn a_former_leader_gives_the_new_one_of_its_epoch_all_and_remembers_what_it_owes() {
    let fixture = Fixture::new(&[]);
    let partition = fixture.told(LOCAL, 5);
    assert!(produce(&partition) && produce(&partition));
    assert_eq!(fixture.replicas.left_to_move(), 1, "led here, with another replica");
    fixture.told(FORMER, 6);
    assert!(!produce(&partition));
    assert_eq!(fixture.replicas.left_to_move(), 1, "not taken over yet");
    let asks = |id, epoch, end| partition.hands_over_to(id, LeaderEpoch(epoch), Offset(end));
    assert!(!asks(BrokerId(3), 6, 0), "another follower");
    assert!(!asks(FORMER, 5, 0), "the epoch before");
    assert!(asks(FORMER, 6, 1));
    assert!(asks(FORMER, 6, 2), "and that was all");
    assert_eq!(fixture.replicas.left_to_move(), 0);
    assert!(!asks(FORMER, 6, 2));
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_replica_is_elsewhere_by_what_all_are_told_steps_down() {
    let fixture = Fixture::new(&[]);
    let partition = fixture.told(LOCAL, 5);
    assert!(produce(&partition) && produce(&partition));
    assert!(!fixture.all_are_told(5, &[FORMER]), "its own epoch says something else");
    assert!(!fixture.all_are_told(4, &[FORMER]), "what was before");
    assert!(!fixture.all_are_told(6, &[LOCAL, FORMER]), "LeaderAndIsr is on its way");
    assert!(produce(&partition));
    assert!(fixture.all_are_told(7, &[FORMER]));
    assert!(!produce(&partition));
    let asks = |epoch, end| partition.hands_over_to(FORMER, LeaderEpoch(epoch), Offset(end));
    assert!(asks(7, 0), "what it took last is the new leader's");
    // StopReplica of the same change comes next.
    assert!(fixture.replicas.give_up(partition.topic_partition(), LeaderEpoch(7)));
    assert!(asks(7, 3) && !fixture.replicas.owes(partition.topic_partition()));
    assert!(fixture.all_are_told(8, &[FORMER]));
    assert!(fixture.replicas.get("t", 0).is_none());
    assert!(!fixture.all_are_told(9, &[FORMER]), "there is nothing left to end");
    // It comes back with what it has.
    let again = fixture.told(FORMER, 10);
    assert_eq!(again.log().end_offset(), Offset(3));
}

#[tokio::test(start_paused = true)]
async fn a_former_leader_gives_what_it_has_though_its_fetches_bring_nothing() {
    let owes_after = |records: &[u8], high_watermark| {
        let fixture = Fixture::new(&[]);
        let partition = fixture.told(LOCAL, 5);
        assert!(produce(&partition) && produce(&partition));
        fixture.told(FORMER, 6);
        let (high_watermark, log_start) = (Offset(high_watermark), Offset(0));
        let sent = Sent { records, high_watermark, log_start };
        partition.append_as_follower(LeaderEpoch(6), sent).unwrap();
        partition.hands_over_to(FORMER, LeaderEpoch(6), Offset(1))
    };
    assert!(owes_after(&[], 1), "the new leader is taking over still");
    assert!(!owes_after(&[], 2), "all of it is committed");
    assert!(!owes_after(&record(2, 6), 1), "the new leader leads");
}

#[tokio::test(start_paused = true)]
async fn whoever_follows_or_takes_over_stops_when_its_replica_is_elsewhere() {
    let fixture = Fixture::new(&[]);
    let partition = fixture.told(FORMER, 5);
    assert!(fixture.all_are_told(6, &[FORMER]));
    assert_eq!(partition.followed(), None);
    assert!(fixture.replicas.get("t", 0).is_none());
    let fixture = Fixture::new(&[]);
    let partition = fixture.take_over();
    assert!(fixture.all_are_told(7, &[FORMER]));
    assert!(!partition.end_takeover(LeaderEpoch(6)), "the late end changes nothing");
    assert!(!partition.is_leader() && fixture.replicas.get("t", 0).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_not_hosted_once_its_topic_is_deleted() {
    let fixture = Fixture::new(&[]);
    let partition = fixture.told(LOCAL, 5);
    let deleted = |id| fixture.replicas.left_over(&update(id, vec![(0, None), (1, None)]));
    assert_eq!(deleted(ID), [], "StopReplica follows");
    assert!(produce(&partition) && fixture.all_are_told(7, &[FORMER]));
    assert!(fixture.replicas.owes(partition.topic_partition()));
    assert_eq!(deleted(ID), [partition.topic_partition().clone()]);
    // Of a topic that was deleted while this broker was not to be reached.
    let fixture = Fixture::new(&[]);
    let partition = fixture.told(LOCAL, 5);
    let made_again = |replicas: &[BrokerId]| {
        let state = Some(state(0, replicas));
        fixture.replicas.left_over(&update(Uuid(ID.0 + 1), vec![(0, state)]))
    };
    assert_eq!(made_again(&[LOCAL, FORMER]), [], "LeaderAndIsr is on its way");
    assert_eq!(made_again(&[FORMER]), [partition.topic_partition().clone()]);
}
