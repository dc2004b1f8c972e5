//! Who waits at a broker when its leadership ends or its replica goes: everybody is answered, by sockets, at once.

use std::{sync::Arc, time::Duration};

use ::controller::{
    assignment::Assignment,
    request::{
        Body, DURING_DELETE, LeaderAndIsr, LeaderAndIsrPartition, LeaderAndIsrTopic, StopReplica,
        StopReplicaPartition, StopReplicaTopic,
    },
    states::Leadership,
};
use common::{
    clock,
    config::broker::BrokerConfig,
    counters::{MetricName, Registry},
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch, Timestamp},
    properties::Properties,
    topic::GROUP_METADATA_TOPIC,
};
use kafka_protocol::{
    messages::{
        self, FetchRequest, ListOffsetsRequest, ProduceRequest, TopicName,
        fetch_request::{FetchPartition, FetchTopic},
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::{Request, StrBytes},
};
use metadata::snapshot::{self, TopicUpdate, Update};
use network::outgoing::{Connection, OutgoingConfig};
use record::{build::BatchBuilder, compression::Compression};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use zk::fake::FakeZooKeeper;

use crate::{
    broker::Broker, controller::channels::Answer, handlers::list_offsets::SEARCHES_MAX,
    start::Running,
};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long those wait who are to be woken: longer than a test's patience.
const FOR_LONG_MS: i32 = 60_000;
const TOPIC: &str = "t";
const OWN: i32 = 1;
const OTHER: i32 = 2;

/// A broker that leads two partitions, of which another holds replicas that it never fetches by itself.
struct Fixture {
    _folder: TempDir,
    running: Running,
    registry: Registry,
}

/// What a client gets for its partition, once it does.
type Code = JoinHandle<ErrorCode>;

/// Who fetches.
#[derive(Clone, Copy)]
struct Reader {
    replica: i32,
    version: i16,
    partition: i32,
    /// The epoch that it knows.
    epoch: i32,
    from: i64,
    wait_ms: i32,
}

const CONSUMER: Reader =
    Reader { replica: -1, version: 12, partition: 0, epoch: 1, from: 0, wait_ms: FOR_LONG_MS };
/// One that knows no epochs, and reads from leaders alone.
const OLD_CONSUMER: Reader = Reader { version: 8, epoch: -1, ..CONSUMER };
/// One that reads from any replica.
const EASY_CONSUMER: Reader = Reader { epoch: -1, ..CONSUMER };
const FOLLOWER: Reader = Reader { replica: OTHER, partition: 1, ..CONSUMER };

impl Fixture {
    async fn start() -> Fixture {
        let folder = TempDir::new().unwrap();
        let settings = [
            ("broker.id", OWN.to_string()),
            ("listeners", "PLAINTEXT://127.0.0.1:0".to_owned()),
            ("zookeeper.connect", "nobody:1".to_owned()),
            ("log.dirs", folder.path().display().to_string()),
            ("controlled.shutdown.enable", "false".to_owned()),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value));
        let config = Arc::new(BrokerConfig::parse(&Properties::from(settings)).unwrap());
        let registry = Registry::default();
        let zk = FakeZooKeeper::new().connect();
        let running = Running::start_on(config, zk, &registry).await.unwrap();
        let fixture = Fixture { _folder: folder, running, registry };
        until(|| fixture.broker().metadata.load().brokers().len() == 1).await;
        fixture.lead(OWN, 1).await;
        fixture
    }

    fn broker(&self) -> &Arc<Broker> {
        self.running.broker()
    }

    /// A word of the controller.
    async fn tell(&self, body: Body) -> Answer {
        let controller = (BrokerId(OWN), ControllerEpoch(1));
        tokio::time::timeout(PATIENCE, self.broker().obey(controller, BrokerEpoch(-1), body))
            .await
            .expect("the broker obeys")
    }

    async fn lead(&self, leader: i32, epoch: i32) {
        self.lead_topic(TOPIC, leader, epoch).await;
    }

    async fn lead_topic(&self, topic: &str, leader: i32, epoch: i32) {
        let leadership = Leadership {
            leader: BrokerId(leader),
            leader_epoch: LeaderEpoch(epoch),
            isr: vec![BrokerId(OWN), BrokerId(OTHER)],
            recovering: false,
            controller_epoch: ControllerEpoch(1),
            partition_epoch: PartitionEpoch(epoch),
        };
        let partitions = (0..2).map(|index| LeaderAndIsrPartition {
            index,
            leadership: leadership.clone(),
            assignment: Assignment::of(vec![BrokerId(OWN), BrokerId(OTHER)]),
            is_new: true,
        });
        let led =
            LeaderAndIsrTopic { name: topic.into(), id: None, partitions: partitions.collect() };
        let told = LeaderAndIsr { topics: vec![led], live_leaders: Vec::new() };
        let answer = self.tell(Body::LeaderAndIsr(told)).await;
        assert!(answer.partitions.iter().all(|(_, error)| error.is_none()), "{answer:?}");
        self.know(topic, Some(state(leader, epoch, &[OWN, OTHER]))).await;
    }

    /// Tells the broker what the partitions are in the cluster, or that they are no more.
    async fn know(&self, topic: &str, partition: Option<snapshot::Partition>) {
        let partitions = (0..2).map(|index| (index, partition.clone())).collect();
        let update = Update {
            controller: Some(BrokerId(OWN)),
            brokers: self.broker().metadata.load().brokers().cloned().collect(),
            topics: vec![TopicUpdate { name: topic.into(), id: None, partitions }],
        };
        self.tell(Body::UpdateMetadata(Arc::new(update))).await;
    }

    async fn stop_replicas(&self, epoch: LeaderEpoch) {
        let stop = |index| StopReplicaPartition { index, leader_epoch: epoch, delete: true };
        let topic = StopReplicaTopic { name: TOPIC.into(), partitions: (0..2).map(stop).collect() };
        let answer = self.tell(Body::StopReplica(StopReplica { topics: vec![topic] })).await;
        assert!(answer.partitions.iter().all(|(_, error)| error.is_none()), "{answer:?}");
    }

    async fn connect(&self) -> Connection {
        let config = OutgoingConfig {
            client_id: "waits".to_owned(),
            setup_timeout: PATIENCE,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
        };
        let address = self.running.local_address("PLAINTEXT").unwrap();
        Connection::open(address, &config).await.unwrap()
    }

    /// Asks on a connection of its own.
    async fn ask<R: Request + Send + Sync + 'static>(
        &self,
        request: R,
        version: i16,
        code: impl Fn(&R::Response) -> i16 + Send + 'static,
    ) -> Code
    where
        R::Response: Send,
    {
        let connection = self.connect().await;
        tokio::spawn(async move {
            let answer = connection.call(&request, version, PATIENCE).await;
            ErrorCode::from_code(code(&answer.expect("an answer")))
        })
    }

    async fn fetch(&self, reader: Reader) -> Code {
        let partition = FetchPartition::default()
            .with_partition(reader.partition)
            .with_current_leader_epoch(reader.epoch)
            .with_last_fetched_epoch(-1)
            .with_fetch_offset(reader.from)
            .with_partition_max_bytes(1 << 20);
        let topic = FetchTopic::default().with_topic(topic_name()).with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_replica_id(messages::BrokerId(reader.replica))
            .with_max_wait_ms(reader.wait_ms)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        self.ask(request, reader.version, |answer| answer.responses[0].partitions[0].error_code)
            .await
    }

    /// A record that every replica is to have.
    async fn produce(&self) -> Code {
        let mut batch = BatchBuilder::new(Compression::None);
        batch.append(Timestamp(clock::wall_clock().0), None, Some(b"x"), &[]).unwrap();
        let partition =
            PartitionProduceData::default().with_index(0).with_records(Some(batch.finish()));
        let topic = TopicProduceData::default()
            .with_name(topic_name())
            .with_partition_data(vec![partition]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(FOR_LONG_MS)
            .with_topic_data(vec![topic]);
        self.ask(request, 9, |answer| answer.responses[0].partition_responses[0].error_code).await
    }

    async fn list_offsets(&self, timestamp: i64) -> Code {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(0)
            .with_current_leader_epoch(-1)
            .with_timestamp(timestamp);
        let topic =
            ListOffsetsTopic::default().with_name(topic_name()).with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default()
            .with_replica_id(messages::BrokerId(-1))
            .with_topics(vec![topic]);
        self.ask(request, 4, |answer| answer.topics[0].partitions[0].error_code).await
    }

    /// Waits until the broker has begun so many requests.
    async fn has_begun(&self, api: &'static str, count: u64) {
        let name = MetricName::new("kafka.network", "RequestMetrics", "RequestsPerSec");
        let meter = self.registry.meter(name.tag("request", api));
        until(|| meter.count() >= count).await;
    }

    /// Everybody who may wait for records, and two whose records wait for the other replica.
    async fn crowd(&self) -> Crowd {
        let mut crowd = Crowd::default();
        for _ in 0..2 {
            crowd.producers.push(self.produce().await);
        }
        self.has_begun("Produce", 2).await;
        let end = || self.broker().replicas.get(TOPIC, 0).unwrap().log().end_offset().0;
        until(|| end() == 2).await;
        for _ in 0..10 {
            crowd.consumers.push(self.fetch(CONSUMER).await);
            crowd.old_consumers.push(self.fetch(OLD_CONSUMER).await);
        }
        crowd.followers.push(self.fetch(FOLLOWER).await);
        self.has_begun("Fetch", 21).await;
        crowd
    }
}

#[derive(Default)]
struct Crowd {
    producers: Vec<Code>,
    consumers: Vec<Code>,
    old_consumers: Vec<Code>,
    followers: Vec<Code>,
}

impl Crowd {
    /// What each kind is answered: producers, consumers, old consumers, followers.
    async fn answers(self) -> [ErrorCode; 4] {
        let Crowd { producers, consumers, old_consumers, followers } = self;
        [
            all_get(producers).await,
            all_get(consumers).await,
            all_get(old_consumers).await,
            all_get(followers).await,
        ]
    }

    fn nobody_is_answered(&self) -> bool {
        let Crowd { producers, consumers, old_consumers, followers } = self;
        let all = [producers, consumers, old_consumers, followers];
        all.into_iter().flatten().all(|waits| !waits.is_finished())
    }
}

/// What all brokers are told of a partition.
fn state(leader: i32, epoch: i32, replicas: &[i32]) -> snapshot::Partition {
    let replicas: Box<[BrokerId]> = replicas.iter().map(|id| BrokerId(*id)).collect();
    snapshot::Partition {
        leader: BrokerId(leader),
        leader_epoch: LeaderEpoch(epoch),
        isr: replicas.clone(),
        replicas,
        offline_replicas: Box::default(),
        partition_epoch: PartitionEpoch(epoch),
        controller_epoch: ControllerEpoch(1),
    }
}

fn topic_name() -> TopicName {
    TopicName(StrBytes::from_static_str(TOPIC))
}

async fn until(is_so: impl Fn() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !is_so() {
        assert!(clock::now() < deadline, "it never comes");
        tokio::task::yield_now().await;
    }
}

async fn get(code: Code) -> ErrorCode {
    tokio::time::timeout(PATIENCE, code).await.expect("an answer in time").unwrap()
}

/// What all of them get.
async fn all_get(codes: Vec<Code>) -> ErrorCode {
    let mut got = Vec::new();
    for code in codes {
        got.push(get(code).await);
    }
    got.dedup();
    assert_eq!(got.len(), 1, "{got:?}");
    got[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_at_a_leader_is_answered_when_another_leads() {
    let fixture = Fixture::start().await;
    let crowd = fixture.crowd().await;
    let easy = fixture.fetch(Reader { wait_ms: 200, ..EASY_CONSUMER }).await;
    fixture.has_begun("Fetch", 22).await;
    assert!(crowd.nobody_is_answered());
    fixture.lead(OTHER, 2).await;
    let (fenced, not_leader) = (ErrorCode::FencedLeaderEpoch, ErrorCode::NotLeaderOrFollower);
    assert_eq!(crowd.answers().await, [not_leader, fenced, not_leader, fenced]);
    assert_eq!(get(easy).await, ErrorCode::None, "it may read here all the same");
    // And whoever comes later.
    assert_eq!(get(fixture.fetch(CONSUMER).await).await, fenced);
    assert_eq!(get(fixture.fetch(OLD_CONSUMER).await).await, not_leader);
    assert_eq!(
        get(fixture.fetch(Reader { epoch: 3, ..CONSUMER }).await).await,
        ErrorCode::UnknownLeaderEpoch
    );
    assert_eq!(get(fixture.produce().await).await, not_leader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_at_a_replica_is_answered_when_it_is_deleted() {
    let fixture = Fixture::start().await;
    let crowd = fixture.crowd().await;
    let easy = fixture.fetch(EASY_CONSUMER).await;
    fixture.has_begun("Fetch", 22).await;
    assert!(crowd.nobody_is_answered());
    fixture.know(TOPIC, None).await;
    fixture.stop_replicas(DURING_DELETE).await;
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(crowd.answers().await, [unknown; 4]);
    assert_eq!(get(easy).await, unknown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_but_the_new_leader_waits_while_a_replica_is_handed_over() {
    let fixture = Arc::new(Fixture::start().await);
    let crowd = fixture.crowd().await;
    let stopped = tokio::spawn({
        let fixture = fixture.clone();
        async move { fixture.stop_replicas(LeaderEpoch(2)).await }
    });
    let (fenced, not_leader) = (ErrorCode::FencedLeaderEpoch, ErrorCode::NotLeaderOrFollower);
    assert_eq!(crowd.answers().await, [not_leader, fenced, not_leader, fenced]);
    // The new leader gets what is here. That it asks for what comes after is the end: it does not wait for that, nor after.
    let new_leader = Reader { partition: 0, epoch: 2, ..FOLLOWER };
    for (partition, from) in [(0, 0), (0, 2), (1, 0)] {
        let answered = get(fixture.fetch(Reader { partition, from, ..new_leader }).await).await;
        assert!(matches!(answered, ErrorCode::None | ErrorCode::NotLeaderOrFollower), "{answered}");
    }
    tokio::time::timeout(PATIENCE, stopped).await.expect("the replicas stop").unwrap();
    assert!(fixture.broker().replicas.get(TOPIC, 0).is_none());
}

/// A controller that dies after the end of a move is written may never say StopReplica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_at_a_leader_is_answered_when_all_are_told_that_it_is_no_replica() {
    let fixture = Fixture::start().await;
    let crowd = fixture.crowd().await;
    assert!(crowd.nobody_is_answered());
    fixture.know(TOPIC, Some(state(OTHER, 2, &[OTHER]))).await;
    let (fenced, not_leader) = (ErrorCode::FencedLeaderEpoch, ErrorCode::NotLeaderOrFollower);
    assert_eq!(crowd.answers().await, [not_leader, fenced, not_leader, fenced]);
    assert_eq!(get(fixture.produce().await).await, not_leader);
    assert_eq!(get(fixture.fetch(OLD_CONSUMER).await).await, not_leader);
    let log = fixture.broker().replicas.get(TOPIC, 0).unwrap().log().clone();
    assert_eq!(log.end_offset().0, 2, "it stays");
    // The controller that comes next says it again, with a newer epoch perhaps.
    fixture.know(TOPIC, Some(state(OTHER, 3, &[OTHER]))).await;
    assert_eq!(get(fixture.fetch(CONSUMER).await).await, fenced, "the new leader may ask yet");
    fixture.stop_replicas(LeaderEpoch(3)).await;
    assert!(fixture.broker().replicas.get(TOPIC, 0).is_none());
    assert_eq!(get(fixture.fetch(CONSUMER).await).await, not_leader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_leaves_when_all_are_told_that_its_partition_is_elsewhere() {
    let fixture = Fixture::start().await;
    fixture.lead_topic(GROUP_METADATA_TOPIC, OWN, 1).await;
    let groups = &fixture.broker().groups;
    until(|| groups.look("orders", |_| ()).is_ok()).await;
    fixture.know(GROUP_METADATA_TOPIC, Some(state(OTHER, 2, &[OTHER]))).await;
    assert_eq!(groups.look("orders", |_| ()), Err(ErrorCode::NotCoordinator));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_by_time_take_turns_and_hold_up_nothing_else() {
    let fixture = Fixture::start().await;
    let broker = fixture.broker();
    let turns = u32::try_from(SEARCHES_MAX).unwrap();
    let all_turns = broker.searches.acquire_many(turns).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..50 {
        waiting.push(fixture.list_offsets(0).await);
    }
    fixture.has_begun("ListOffsets", 50).await;
    assert_eq!(get(fixture.list_offsets(-2).await).await, ErrorCode::None, "the log's start");
    assert!(waiting.iter().all(|search| !search.is_finished()));
    // Whoever goes away gives up its place.
    for gone in waiting.drain(..20) {
        gone.abort();
    }
    drop(all_turns);
    for search in waiting {
        assert_eq!(get(search).await, ErrorCode::None);
    }
    until(|| broker.searches.available_permits() == SEARCHES_MAX).await;
}
