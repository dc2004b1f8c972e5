//! Brokers that follow each other without sockets: real folders, real fetchers, a leader's answers as the broker gives them.

mod room;

use std::{
    collections::{HashMap, HashSet},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use common::{
    clock,
    config::ibp::MetadataVersion,
    counters::Registry,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    fetch_response::{EpochEndOffset, FetchableTopicResponse, PartitionData},
    list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
};
use metadata::{broker::Broker, cache::MetadataCache, snapshot::Update};
use parking_lot::Mutex;
use partition::leader::{FollowerFetch, Leadership, Verdict};
use record::{
    batch::TimestampType,
    build::BatchBuilder,
    compression::{BrokerCompression, Compression},
    validate::{self, Checked},
};
use storage::{
    log_config::LogConfig,
    log_manager::{Intervals, LogManager, LogManagerOptions},
};
use tokio_util::sync::CancellationToken;

use crate::{
    fetch_session::{
        Answered, FetchContext, FetchTarget, PartitionKey, SessionCache, SessionRequest, Target,
        TopicKey,
    },
    fetchers::{FetcherConfig, Fetchers},
    leaders::{Leader, LeaderError, LeaderFuture, Leaders},
    partition::{ChangeWaiter, Commit, Partition},
    replica_manager::{Access, LeaderAndIsr, ReplicaManager},
    surroundings::Surroundings,
    topic_settings::TopicSettings,
};

const TOPIC: &str = "t";
const TOPIC_ID: Uuid = Uuid(77);
/// How long a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// The cluster: its brokers, and which of them are cut off.
#[derive(Default)]
struct Net {
    brokers: Mutex<HashMap<BrokerId, Arc<Hosted>>>,
    cut: Mutex<HashSet<BrokerId>>,
}

/// One broker.
struct Hosted {
    _folder: tempfile::TempDir,
    replicas: ReplicaManager,
    sessions: SessionCache,
    /// Partitions that fetches named, and that were looked at for them.
    named: AtomicUsize,
    looked_at: AtomicUsize,
    fetches: AtomicUsize,
}

struct Direct {
    net: Arc<Net>,
    from: BrokerId,
}

struct Way {
    net: Arc<Net>,
    from: BrokerId,
    to: BrokerId,
}

impl Leaders for Direct {
    fn way_to(&self, leader: BrokerId, _fetcher: usize) -> Box<dyn Leader> {
        Box::new(Way { net: self.net.clone(), from: self.from, to: leader })
    }
}

impl Way {
    fn reach(&self) -> Result<Arc<Hosted>, LeaderError> {
        let cut = self.net.cut.lock();
        if cut.contains(&self.from) || cut.contains(&self.to) {
            return Err("cut off".into());
        }
        Ok(self.net.brokers.lock()[&self.to].clone())
    }
}

impl Leader for Way {
    fn fetch(&self, request: FetchRequest, version: i16) -> LeaderFuture<'_, FetchResponse> {
        Box::pin(async move {
            let answer = self.reach()?.answer(&request, version).await;
            self.reach()?;
            Ok(answer)
        })
    }

    fn list_offsets(
        &self,
        request: ListOffsetsRequest,
        _version: i16,
    ) -> LeaderFuture<'_, ListOffsetsResponse> {
        Box::pin(async move {
            let hosted = self.reach()?;
            let topics = request.topics.iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|asked| {
                    let partition = hosted.replicas.get(&topic.name, asked.partition_index);
                    let log = partition.expect("a hosted partition").log().clone();
                    let is_latest = asked.timestamp == crate::fetch_wire::LATEST;
                    let offset = if is_latest { log.end_offset() } else { log.start_offset() };
                    ListOffsetsPartitionResponse::default()
                        .with_partition_index(asked.partition_index)
                        .with_offset(offset.0)
                });
                ListOffsetsTopicResponse::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions.collect())
            });
            Ok(ListOffsetsResponse::default().with_topics(topics.collect()))
        })
    }
}

impl Hosted {
    fn find(&self, key: &PartitionKey) -> Result<Arc<Partition>, ErrorCode> {
        let TopicKey::Id(id) = &key.topic else { return Err(ErrorCode::UnknownTopicOrPartition) };
        let name = self.replicas.topic_name(*id).ok_or(ErrorCode::UnknownTopicId)?;
        self.replicas.get(&name, key.partition).ok_or(ErrorCode::UnknownTopicOrPartition)
    }

    async fn answer(&self, request: &FetchRequest, version: i16) -> FetchResponse {
        assert!(version >= 15, "{version}");
        let key = |id: uuid::Uuid, partition| PartitionKey {
            topic: TopicKey::Id(Uuid(id.as_u128())),
            partition,
        };
        let mut named = Vec::new();
        for topic in &request.topics {
            for asked in &topic.partitions {
                let target = FetchTarget {
                    current_leader_epoch: LeaderEpoch(asked.current_leader_epoch),
                    fetch_offset: Offset(asked.fetch_offset),
                    last_fetched_epoch: LeaderEpoch(asked.last_fetched_epoch),
                    log_start_offset: Offset(asked.log_start_offset),
                    max_bytes: asked.partition_max_bytes,
                };
                named.push((key(topic.topic_id, asked.partition), target));
            }
        }
        let forgotten = request.forgotten_topics_data.iter();
        let forgotten: Vec<_> = forgotten
            .flat_map(|topic| topic.partitions.iter().map(|one| key(topic.topic_id, *one)))
            .collect();
        let session = SessionRequest {
            session_id: request.session_id,
            epoch: request.session_epoch,
            uses_topic_ids: true,
            from_follower: true,
        };
        self.named.fetch_add(named.len(), Ordering::Relaxed);
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let find = |key: &PartitionKey| self.find(key);
        let begun = self.sessions.begin(session, named, &forgotten, clock::now(), &find);
        let mut context = match begun {
            Ok(context) => context,
            Err(error) => return FetchResponse::default().with_error_code(error.code()),
        };
        let replica = BrokerId(request.replica_state.replica_id.0);
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap());
        let deadline = clock::now() + wait;
        let waiter = context.wait();
        let mut answers = self.read_all(&context, replica);
        while !answers.iter().any(|(answer, _)| is_due(answer)) {
            if tokio::time::timeout_at(deadline.into(), waiter.changed()).await.is_err() {
                break;
            }
            self.sessions.look_again(&mut context, &find);
            answers = self.read_all(&context, replica);
        }
        self.finish(&context, answers)
    }

    fn read_all(&self, context: &FetchContext, replica: BrokerId) -> Vec<(PartitionData, bool)> {
        self.looked_at.fetch_add(context.targets().len(), Ordering::Relaxed);
        context.targets().iter().map(|target| read(target, replica)).collect()
    }

    fn finish(&self, context: &FetchContext, answers: Vec<(PartitionData, bool)>) -> FetchResponse {
        let answered: Vec<Answered> = answers
            .iter()
            .map(|(answer, is_settled)| Answered {
                has_records: has_records(answer),
                high_watermark: Offset(answer.high_watermark),
                log_start_offset: Offset(answer.log_start_offset),
                is_error: answer.error_code != 0,
                is_special: answer.diverging_epoch.epoch >= 0,
                is_settled: *is_settled,
            })
            .collect();
        let next = AtomicUsize::new(1);
        let random = || i32::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
        let sent = self.sessions.finish(context, &answered, clock::now(), &random);
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) => return FetchResponse::default().with_error_code(error.code()),
        };
        let each = context.targets().iter().zip(answers).zip(sent.send);
        let topics = each.filter(|(_, send)| *send).map(|((target, (answer, _)), _)| {
            let TopicKey::Id(id) = &target.key.topic else { panic!("by id") };
            FetchableTopicResponse::default()
                .with_topic_id(uuid::Uuid::from_u128(id.0))
                .with_partitions(vec![answer])
        });
        FetchResponse::default().with_session_id(sent.session_id).with_responses(topics.collect())
    }
}

fn has_records(answer: &PartitionData) -> bool {
    answer.records.as_ref().is_some_and(|records| !records.is_empty())
}

fn is_due(answer: &PartitionData) -> bool {
    has_records(answer) || answer.error_code != 0 || answer.diverging_epoch.epoch >= 0
}

fn read(target: &Target, replica: BrokerId) -> (PartitionData, bool) {
    let answer = PartitionData::default().with_partition_index(target.key.partition);
    let failed = |error: ErrorCode| {
        (answer.clone().with_error_code(error.code()).with_high_watermark(-1), false)
    };
    let partition = match &target.partition {
        Ok(partition) => partition,
        Err(error) => return failed(*error),
    };
    let asked = &target.asked;
    if partition.check_access(Access::LeaderOnly, asked.current_leader_epoch).is_err() {
        return failed(ErrorCode::NotLeaderOrFollower);
    }
    let log = partition.log();
    let answer = answer
        .clone()
        .with_high_watermark(log.high_watermark().0)
        .with_log_start_offset(log.start_offset().0);
    if asked.last_fetched_epoch != LeaderEpoch::NONE {
        let Some((epoch, end)) = log.end_offset_for_epoch(asked.last_fetched_epoch) else {
            return failed(ErrorCode::OffsetOutOfRange);
        };
        if epoch < asked.last_fetched_epoch || end < asked.fetch_offset {
            let diverging = EpochEndOffset::default().with_epoch(epoch.0).with_end_offset(end.0);
            return (answer.with_diverging_epoch(diverging), false);
        }
    }
    let end = log.end_offset();
    let Ok(read) = log.read(asked.fetch_offset, 1 << 20, true, end) else {
        return failed(ErrorCode::OffsetOutOfRange);
    };
    let mut bytes = Vec::new();
    for region in &read.regions {
        let mut part = vec![0; region.length];
        region.file.read_exact_at(&mut part, region.position).unwrap();
        bytes.extend(part);
    }
    let is_in_sync = partition.follower_fetched(&FollowerFetch {
        id: replica,
        offset: asked.fetch_offset,
        start: asked.log_start_offset,
        broker_epoch: BrokerEpoch(7),
        leader_end: end,
    });
    let is_settled = is_in_sync && asked.fetch_offset >= end;
    let answer = answer.with_high_watermark(log.high_watermark().0);
    (answer.with_records(Some(Bytes::from(bytes))), is_settled)
}

/// Three brokers and a controller that agrees to everything.
struct Cluster {
    net: Arc<Net>,
    stop: CancellationToken,
    epoch: i32,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn logs(folder: &std::path::Path) -> Arc<LogManager> {
    let options = LogManagerOptions {
        directories: vec![folder.to_owned()],
        failed: Vec::new(),
        default_config: Arc::new(LogConfig::default()),
        topic_configs: Default::default(),
        threads: 1,
        intervals: Intervals::default(),
        producers_max: usize::MAX,
        seed: 1,
        now: clock::wall_clock(),
    };
    Arc::new(LogManager::open(options, &Default::default()).unwrap())
}

impl Cluster {
    fn start() -> Cluster {
        let (net, stop) = (Arc::new(Net::default()), CancellationToken::new());
        let metadata = Arc::new(MetadataCache::new());
        let brokers = (1..=3).map(|id| {
            let (id, epoch) = (BrokerId(id), BrokerEpoch(7));
            Arc::new(Broker { id, endpoints: Vec::new(), rack: None, epoch })
        });
        let brokers = brokers.collect();
        metadata.apply(&Update { controller: Some(BrokerId(1)), brokers, topics: Vec::new() });
        for id in (1..=3).map(BrokerId) {
            let registry = Registry::default();
            // Whoever has not all the leader has is behind at once.
            let surroundings =
                Arc::new(Surroundings::new(id, metadata.clone(), Duration::ZERO, &registry));
            let config = FetcherConfig {
                local: id,
                protocol: MetadataVersion::V3_9_IV0,
                fetchers_per_leader: 2,
                wait_max_ms: 50,
                bytes_min: 1,
                response_bytes_max: 1 << 20,
                partition_bytes_max: 1 << 20,
                backoff: Duration::from_millis(20),
            };
            let leaders = Arc::new(Direct { net: net.clone(), from: id });
            let epoch = Arc::new(7.into());
            let fetchers = Fetchers::new(config, leaders, epoch, &registry, stop.clone());
            let folder = tempfile::tempdir().unwrap();
            let logs = logs(folder.path());
            let replicas = ReplicaManager::new(surroundings.clone(), logs, Some(fetchers));
            let hosted = Hosted {
                _folder: folder,
                replicas,
                sessions: SessionCache::new(100),
                named: AtomicUsize::new(0),
                looked_at: AtomicUsize::new(0),
                fetches: AtomicUsize::new(0),
            };
            net.brokers.lock().insert(id, Arc::new(hosted));
            let stopped = stop.clone();
            tokio::spawn(stopped.run_until_cancelled_owned(agree(surroundings)));
        }
        Cluster { net, stop, epoch: 0 }
    }

    fn broker(&self, id: i32) -> Arc<Hosted> {
        self.net.brokers.lock()[&BrokerId(id)].clone()
    }

    fn partition(&self, id: i32) -> Arc<Partition> {
        self.broker(id).replicas.get(TOPIC, 0).expect("a hosted partition")
    }

    /// Tells brokers who leads a partition, in a new epoch.
    fn lead(&mut self, index: i32, leader: i32, isr: &[i32], told: &[i32]) {
        self.lead_topic(TOPIC_ID, index, leader, isr, told);
    }

    fn lead_topic(&mut self, id: Uuid, index: i32, leader: i32, isr: &[i32], told: &[i32]) {
        self.epoch += 1;
        for broker in told {
            let word = LeaderAndIsr { topic_id: Some(id), ..self.word(index, leader, isr) };
            self.broker(*broker).replicas.apply(word, &|_| settings()).unwrap();
        }
    }

    /// Who leads, in the present epoch.
    fn word(&self, index: i32, leader: i32, isr: &[i32]) -> LeaderAndIsr {
        LeaderAndIsr {
            topic_partition: TopicPartition::new(TOPIC, index),
            topic_id: Some(TOPIC_ID),
            leader: BrokerId(leader),
            leadership: Leadership {
                epoch: LeaderEpoch(self.epoch),
                partition_epoch: PartitionEpoch(self.epoch * 1000),
                replicas: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
                adding: Vec::new(),
                removing: Vec::new(),
                isr: isr.iter().map(|id| BrokerId(*id)).collect(),
            },
            is_new: true,
        }
    }

    fn cut(&self, id: i32) {
        self.net.cut.lock().insert(BrokerId(id));
    }

    fn mend(&self, id: i32) {
        self.net.cut.lock().remove(&BrokerId(id));
    }

    /// Waits until the partition of each of these brokers has this high watermark and end.
    async fn reach(&self, brokers: &[i32], end: i64) {
        for id in brokers {
            let partition = self.partition(*id);
            let log = partition.log().clone();
            let is_there =
                || log.high_watermark() == Offset(end) && log.end_offset() == Offset(end);
            wait(&partition, &format!("broker {id} at {end}"), &is_there).await;
        }
    }
}

async fn wait(partition: &Arc<Partition>, what: &str, is_there: &dyn Fn() -> bool) {
    let waiter = ChangeWaiter::new(vec![partition.clone()]);
    let reached = async {
        while !is_there() {
            waiter.changed().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, reached).await;
    assert!(waited.is_ok(), "waits for {what}: {partition:?}");
}

/// The controller: every change of an in-sync set is fine.
async fn agree(surroundings: Arc<Surroundings>) {
    loop {
        for (partition, proposal) in surroundings.proposals.take().await {
            let verdict = Verdict::Committed {
                epoch: proposal.epoch,
                partition_epoch: PartitionEpoch(proposal.partition_epoch.0 + 1),
                isr: proposal.isr.to_vec(),
            };
            partition.proposal_answered(&proposal, verdict);
        }
    }
}

fn settings() -> Arc<TopicSettings> {
    Arc::new(TopicSettings {
        log: Arc::new(LogConfig::default()),
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        compression: BrokerCompression::Producer,
        message_bytes_max: 1 << 20,
        in_sync_replicas_min: 2,
        down_conversion: true,
        leader_throttled: Default::default(),
        follower_throttled: Default::default(),
    })
}

fn records(values: &[&str]) -> Checked {
    let mut builder = BatchBuilder::new(Compression::None);
    for value in values {
        builder.append(clock::wall_clock(), None, Some(value.as_bytes()), &[]).unwrap();
    }
    validate::check(builder.finish(), &settings().rules(clock::wall_clock())).unwrap()
}

/// Appends records once the partition leads, and waits for what becomes of them.
async fn produce(partition: &Arc<Partition>, values: &[&str]) -> Commit {
    wait(partition, "the lead", &|| partition.is_leader()).await;
    let (appended, epoch) = partition.append_as_leader(records(values), Some(2), None).unwrap();
    let end = appended.last_offset.plus(1);
    let is_decided = || partition.commit_of(end, epoch) != Commit::Waiting;
    wait(partition, "acks", &is_decided).await;
    partition.commit_of(end, epoch)
}

fn content(partition: &Partition) -> Vec<u8> {
    let log = partition.log();
    let read = log.read(log.start_offset(), 1 << 20, true, log.end_offset()).unwrap();
    let region = &read.regions[0];
    let mut bytes = vec![0; region.length];
    region.file.read_exact_at(&mut bytes, region.position).unwrap();
    bytes
}

#[tokio::test]
async fn records_reach_every_replica_and_are_committed() {
    let mut cluster = Cluster::start();
    // Followers hear first: their fetches come too early, and are made again.
    cluster.lead(0, 1, &[1, 2, 3], &[2, 3]);
    cluster.epoch -= 1;
    cluster.lead(0, 1, &[1, 2, 3], &[1]);
    let leader = cluster.partition(1);
    for round in 0..20 {
        assert_eq!(produce(&leader, &["a", &format!("{round}")]).await, Commit::Done);
    }
    cluster.reach(&[1, 2, 3], 40).await;
    assert_eq!(content(&leader), content(&cluster.partition(2)));
    assert_eq!(content(&leader), content(&cluster.partition(3)));
    assert!(!leader.health().is_under_replicated);
}

#[tokio::test]
async fn a_follower_that_is_away_falls_out_and_comes_back() {
    let mut cluster = Cluster::start();
    cluster.lead(0, 1, &[1, 2, 3], &[1, 2, 3]);
    let leader = cluster.partition(1);
    produce(&leader, &["a"]).await;
    cluster.reach(&[1, 2, 3], 1).await;
    cluster.cut(3);
    let (appended, epoch) = leader.append_as_leader(records(&["b"]), Some(2), None).unwrap();
    let end = appended.last_offset.plus(1);
    let behind = |id: i32| {
        let followers = leader.as_leader(|leader| leader.followers().to_vec()).unwrap();
        followers.iter().any(|one| one.id() == BrokerId(id) && one.end() < end)
    };
    // Broker 2 brings its end by its next fetch, which may or may not move anything else.
    while behind(2) {
        tokio::task::yield_now().await;
    }
    leader.check_in_sync_set();
    wait(&leader, "acks", &|| leader.commit_of(end, epoch) == Commit::Done).await;
    let isr = || leader.as_leader(|leader| leader.isr().to_vec()).unwrap();
    assert_eq!(isr(), [BrokerId(1), BrokerId(2)]);
    assert!(leader.health().is_under_replicated && leader.health().is_at_min_isr);
    cluster.mend(3);
    wait(&leader, "three in sync", &|| isr().len() == 3).await;
    cluster.reach(&[1, 2, 3], 2).await;
}

#[tokio::test]
async fn a_leader_that_comes_back_gives_up_what_nobody_else_has() {
    let mut cluster = Cluster::start();
    cluster.lead(0, 1, &[1, 2, 3], &[1, 2, 3]);
    let first = cluster.partition(1);
    produce(&first, &["a", "b"]).await;
    cluster.reach(&[1, 2, 3], 2).await;
    cluster.cut(1);
    let (lost, epoch) =
        first.append_as_leader(records(&["lost", "lost", "lost"]), Some(2), None).unwrap();
    assert_eq!(first.commit_of(lost.last_offset.plus(1), epoch), Commit::Waiting);
    cluster.lead(0, 2, &[2, 3], &[2, 3]);
    let second = cluster.partition(2);
    assert_eq!(produce(&second, &["c"]).await, Commit::Done);
    // The old leader hears of it, and follows.
    cluster.epoch -= 1;
    cluster.mend(1);
    cluster.lead(0, 2, &[2, 3], &[1]);
    assert_eq!(first.commit_of(lost.last_offset.plus(1), epoch), Commit::Lost);
    cluster.reach(&[1, 2, 3], 3).await;
    assert_eq!(content(&first), content(&second));
    assert_eq!(first.log().leader_epochs(), second.log().leader_epochs());
    assert!(first.log().path().join("truncated").is_dir());
}

#[tokio::test]
async fn a_follower_that_is_far_behind_begins_where_the_leader_begins() {
    let mut cluster = Cluster::start();
    cluster.lead(0, 1, &[1, 2, 3], &[1, 2, 3]);
    let leader = cluster.partition(1);
    produce(&leader, &["a"]).await;
    cluster.reach(&[1, 2, 3], 1).await;
    cluster.cut(3);
    cluster.lead(0, 1, &[1, 2], &[1, 2]);
    for _ in 0..3 {
        assert_eq!(produce(&leader, &["b"]).await, Commit::Done);
    }
    leader.log().roll().unwrap();
    produce(&leader, &["c"]).await;
    leader.delete_records_before(Offset(4)).unwrap();
    leader.log().delete_old_segments(clock::wall_clock()).unwrap();
    assert_eq!(leader.log().first_segment_base(), Offset(4));
    cluster.epoch -= 1;
    cluster.mend(3);
    cluster.lead(0, 1, &[1, 2], &[3]);
    cluster.reach(&[3], 5).await;
    assert_eq!(cluster.partition(3).log().start_offset(), Offset(4));
    wait(&leader, "all have deleted", &|| leader.low_watermark() == Some(Offset(4))).await;
}

#[tokio::test]
async fn a_topic_made_again_begins_empty_everywhere() {
    let mut cluster = Cluster::start();
    cluster.lead(0, 1, &[1, 2, 3], &[1, 2, 3]);
    produce(&cluster.partition(1), &["old"]).await;
    cluster.reach(&[1, 2, 3], 1).await;
    // Broker 3 is away while the topic is deleted and made again, and starts anew afterwards.
    for id in [1, 2] {
        cluster.broker(id).replicas.stop(&TopicPartition::new(TOPIC, 0), true).unwrap();
    }
    cluster.lead_topic(Uuid(78), 0, 1, &[1, 2, 3], &[1, 2, 3]);
    produce(&cluster.partition(1), &["new"]).await;
    cluster.reach(&[1, 2, 3], 1).await;
    assert_eq!(content(&cluster.partition(1)), content(&cluster.partition(3)));
    assert_eq!(cluster.partition(3).topic_id(), Some(Uuid(78)));
}

#[tokio::test]
async fn a_word_of_an_old_epoch_changes_nothing() {
    let mut cluster = Cluster::start();
    cluster.lead(0, 1, &[1], &[1]);
    let hosted = cluster.broker(1);
    let told = |index: i32, id: Uuid, epoch: i32, replicas: &[i32]| {
        let word = LeaderAndIsr {
            topic_partition: TopicPartition::new(TOPIC, index),
            topic_id: Some(id),
            leader: BrokerId(1),
            leadership: Leadership {
                epoch: LeaderEpoch(epoch),
                partition_epoch: PartitionEpoch(0),
                replicas: replicas.iter().map(|id| BrokerId(*id)).collect(),
                adding: Vec::new(),
                removing: Vec::new(),
                isr: vec![BrokerId(1)],
            },
            is_new: false,
        };
        hosted.replicas.apply(word, &|_| settings())
    };
    let stale = Err(ErrorCode::StaleControllerEpoch);
    assert_eq!(told(0, TOPIC_ID, 1, &[1]), stale);
    // The epoch is looked at before the replicas, also where nothing is hosted yet.
    assert_eq!(told(0, TOPIC_ID, 0, &[2]), stale);
    assert_eq!(told(0, TOPIC_ID, 2, &[2]), Err(ErrorCode::UnknownTopicOrPartition));
    assert_eq!(told(9, TOPIC_ID, -1, &[1]), stale);
    assert!(hosted.replicas.get(TOPIC, 9).is_none());
    // No log is moved aside for it.
    assert_eq!(told(0, Uuid(78), -5, &[1]), Err(ErrorCode::InconsistentTopicId));
    assert_eq!(cluster.partition(1).topic_id(), Some(TOPIC_ID));
}

#[tokio::test]
async fn partitions_of_a_failed_directory_count_as_offline() {
    let mut cluster = Cluster::start();
    for index in 0..2 {
        cluster.lead(index, 1, &[1], &[1]);
    }
    let hosted = cluster.broker(1);
    let counts = || hosted.replicas.counts().map(|now| (now.partitions, now.leaders, now.offline));
    assert_eq!(counts(), Some((2, 2, 0)));
    let partition = cluster.partition(1);
    partition.append_as_leader(records(&["a"]), None, None).unwrap();
    std::fs::remove_dir_all(hosted._folder.path()).unwrap();
    partition.log().roll().unwrap_err();
    hosted.replicas.directory_failed(&[TopicPartition::new(TOPIC, 0)]);
    assert_eq!(counts(), Some((2, 0, 2)));
    assert_eq!(counts(), None, "nothing is new");
    // One that is to be here, and has nowhere to be.
    let word = LeaderAndIsr {
        topic_partition: TopicPartition::new(TOPIC, 7),
        topic_id: Some(TOPIC_ID),
        leader: BrokerId(1),
        leadership: Leadership {
            epoch: LeaderEpoch(1),
            partition_epoch: PartitionEpoch(0),
            replicas: vec![BrokerId(1)],
            adding: Vec::new(),
            removing: Vec::new(),
            isr: vec![BrokerId(1)],
        },
        is_new: true,
    };
    let applied = hosted.replicas.apply(word, &|_| settings());
    assert_eq!(applied, Err(ErrorCode::KafkaStorageError));
    assert_eq!(counts(), Some((3, 0, 3)));
    hosted.replicas.stop(&TopicPartition::new(TOPIC, 7), false).unwrap();
    assert_eq!(counts(), Some((2, 0, 2)));
}

#[tokio::test]
async fn a_leader_whose_directory_has_failed_takes_nobody_out_of_the_in_sync_set() {
    let mut cluster = Cluster::start();
    cluster.lead(0, 1, &[1, 2, 3], &[1, 2, 3]);
    let leader = cluster.partition(1);
    produce(&leader, &["a"]).await;
    cluster.reach(&[1, 2, 3], 1).await;
    for id in [2, 3] {
        cluster.cut(id);
    }
    leader.append_as_leader(records(&["b"]), None, None).unwrap();
    let hosted = cluster.broker(1);
    std::fs::remove_dir_all(hosted._folder.path()).unwrap();
    leader.log().roll().unwrap_err();
    leader.check_in_sync_set();
    let proposed = hosted.replicas.surroundings().proposals.take();
    assert!(tokio::time::timeout(Duration::ZERO, proposed).await.is_err());
}

#[tokio::test]
async fn idle_partitions_cost_nothing() {
    const COUNT: i32 = 200;
    let mut cluster = Cluster::start();
    for index in 0..COUNT {
        cluster.lead(index, 1, &[1, 2, 3], &[1, 2, 3]);
    }
    let leader = cluster.partition(1);
    produce(&leader, &["a"]).await;
    cluster.reach(&[1, 2, 3], 1).await;
    let broker = cluster.broker(1);
    let load = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    // By then each fetcher has its session, and has heard of the watermark.
    let settled = load(&broker.fetches) + 20;
    while load(&broker.fetches) < settled {
        tokio::task::yield_now().await;
    }
    let (named, looked_at) = (load(&broker.named), load(&broker.looked_at));
    let later = load(&broker.fetches) + 12;
    while load(&broker.fetches) < later {
        tokio::task::yield_now().await;
    }
    assert_eq!(load(&broker.named), named, "nothing is named");
    assert_eq!(load(&broker.looked_at), looked_at, "nothing is looked at");
    // One record is one partition's business, for each follower.
    assert_eq!(produce(&leader, &["b"]).await, Commit::Done);
    assert!(load(&broker.looked_at) - looked_at < 20, "{}", load(&broker.looked_at) - looked_at);
}
