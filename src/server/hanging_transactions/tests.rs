//! What is decided about transactions that hang, and two brokers of which one has some.

use common::{
    config::broker::BrokerConfig,
    counters::Registry,
    ids::{ProducerEpoch, Timestamp},
    properties::Properties,
};
use kafka_protocol::messages::{TopicName, describe_transactions_response::TopicData};
use record::{
    build::BatchBuilder,
    compression::Compression,
    validate::{self, Origin, Rules},
};
use tempfile::TempDir;
use transaction_coordinator::{
    action::Reply,
    event::{Event, ReplyTo, TransactionResult},
};
use zk::{
    documents::topic::{Assignment, TopicDocument},
    fake::FakeZooKeeper,
    paths,
    store::{Op, ZkStore},
};

use super::*;
use crate::start::Running;

const PATIENCE: Duration = Duration::from_secs(20);

fn open(epoch: i16) -> OpenTransaction {
    OpenTransaction {
        producer_id: ProducerId(7),
        producer_epoch: ProducerEpoch(epoch),
        coordinator_epoch: 3,
        first_offset: Offset(10),
        last_offset: Offset(12),
    }
}

/// What a coordinator says: `7/2 Ongoing t-0`.
fn word(words: &str) -> Word {
    let mut words = words.split_whitespace();
    let (id, epoch) = match words.next() {
        Some("none") | None => return Word::None,
        Some("stranger") => return Word::Stranger,
        Some("forgotten") => return Word::Forgotten,
        Some(producer) => producer.split_once('/').unwrap(),
    };
    let state = words.next().unwrap();
    let topics = words.map(|partition| {
        let (topic, index) = partition.rsplit_once('-').unwrap();
        TopicData::default()
            .with_topic(TopicName(text(topic)))
            .with_partitions(vec![index.parse().unwrap()])
    });
    let described = TransactionState::default()
        .with_producer_id(messages::ProducerId(id.parse().unwrap()))
        .with_producer_epoch(epoch.parse().unwrap())
        .with_transaction_state(text(state))
        .with_topics(topics.collect());
    Word::Described(described)
}

#[test]
fn a_transaction_that_hangs_is_aborted_only_where_its_coordinator_is_done_with_it() {
    let cases: &[(&str, Verdict)] = &[
        // Over: the transactional id is gone, has no transaction, or one without the partition.
        ("forgotten", Verdict::Abort),
        ("7/2 Empty", Verdict::Abort),
        ("7/2 CompleteCommit", Verdict::Abort),
        ("7/2 CompleteAbort", Verdict::Abort),
        ("7/3 CompleteAbort", Verdict::Abort),
        ("7/2 Ongoing", Verdict::Abort),
        ("7/3 Ongoing t-1 u-0", Verdict::Abort),
        ("7/2 PrepareCommit t-1", Verdict::Abort),
        ("7/2 PrepareAbort", Verdict::Abort),
        // Going on: a marker will come.
        ("7/2 Ongoing u-0 t-0", Verdict::GoesOn),
        ("7/3 Ongoing t-0", Verdict::GoesOn),
        ("7/2 PrepareCommit t-0", Verdict::GoesOn),
        ("7/3 PrepareAbort t-0", Verdict::GoesOn),
        // Nobody can say.
        ("stranger", Verdict::Unknown),
        // Not known now.
        ("none", Verdict::AskAgain),
        ("", Verdict::AskAgain),
        ("7/1 CompleteCommit", Verdict::AskAgain),
        ("8/0 Empty", Verdict::AskAgain),
        ("7/2 Dead", Verdict::AskAgain),
        ("7/2 PrepareEpochFence", Verdict::AskAgain),
        ("7/2 Unheard", Verdict::AskAgain),
        // Two of them: one has left office, and it cannot be told which.
        ("7/2 CompleteCommit | 7/2 Ongoing t-0", Verdict::GoesOn),
        ("7/2 CompleteCommit | none", Verdict::AskAgain),
        ("none | 7/2 PrepareCommit t-0", Verdict::GoesOn),
        ("7/2 CompleteCommit | forgotten", Verdict::Abort),
    ];
    for (words, expected) in cases {
        let said: Vec<Word> = words.split('|').map(word).collect();
        let partition = TopicPartition::new("t", 0);
        assert_eq!(judge(&open(2), &partition, &said), *expected, "{words}");
    }
    assert_eq!(judge(&open(2), &TopicPartition::new("t", 0), &[]), Verdict::AskAgain);
}

/// Two brokers: the first leads `t-0`, the other coordinates transactions.
struct Pair {
    _folder: TempDir,
    leader: Running,
    coordinator: Running,
}

impl Pair {
    async fn start() -> Pair {
        let zookeeper = FakeZooKeeper::new();
        let folder = TempDir::new().unwrap();
        let leader = start(&zookeeper, &folder, 1).await;
        let coordinator = start(&zookeeper, &folder, 2).await;
        let topics = [("t", BrokerId(1)), (TRANSACTION_STATE_TOPIC, BrokerId(2))];
        for (name, broker) in topics {
            let partitions = [(0, Assignment::of(vec![broker]))].into();
            let document = TopicDocument { topic_id: None, partitions };
            let ops = vec![
                Op::create(paths::topic_config(name), "{\"version\":1,\"config\":{}}"),
                Op::create(paths::topic(name), document.to_bytes()),
            ];
            zookeeper.connect().multi(ops).await.unwrap();
        }
        let pair = Pair { _folder: folder, leader, coordinator };
        pair.until(|pair| {
            let snapshot = pair.broker().metadata.snapshot();
            let leads = pair.broker().replicas.get("t", 0).is_some_and(|one| one.is_leader());
            leads && snapshot.brokers().len() == 2 && every_coordinator_lives(pair.broker())
        })
        .await;
        pair
    }

    fn broker(&self) -> &Arc<Broker> {
        self.leader.broker()
    }

    async fn until(&self, is_so: impl Fn(&Pair) -> bool) {
        let deadline = clock::now() + PATIENCE;
        while !is_so(self) {
            assert!(clock::now() < deadline, "it never comes");
            tokio::task::yield_now().await;
        }
    }

    /// Asks the coordinator until it is there.
    async fn ask(&self, id: &str, event: impl Fn(Arc<str>, ReplyTo) -> Event) -> Reply {
        let deadline = clock::now() + PATIENCE;
        loop {
            match self.coordinator.broker().transactions.ask(id, &event).await {
                Ok(reply) => return reply,
                Err(code) => assert!(clock::now() < deadline, "{code:?}"),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Appends to `t-0` without a question, as brokers did before there was one.
    fn append(&self, producer: Producer, sequence: i32) {
        let batch = BatchBuilder::new(Compression::None).producer(producer.0, producer.1, sequence);
        let mut batch = batch.transactional();
        batch.append(Timestamp(1), None, Some(b"x"), &[]).unwrap();
        let partition = self.broker().replicas.get("t", 0).unwrap();
        let settings = partition.settings();
        let rules = Rules { origin: Origin::Client, ..settings.rules(clock::wall_clock()) };
        let checked = validate::check(batch.finish(), &rules).unwrap();
        partition.append_as_leader(checked, None, None).unwrap();
    }

    fn open(&self) -> usize {
        self.broker().replicas.get("t", 0).unwrap().log().open_transactions().len()
    }
}

type Producer = (ProducerId, ProducerEpoch);

async fn start(zookeeper: &FakeZooKeeper, folder: &TempDir, id: i32) -> Running {
    let settings = [
        ("broker.id", id.to_string()),
        ("listeners", "PLAINTEXT://127.0.0.1:0".to_owned()),
        ("zookeeper.connect", "nobody:1".to_owned()),
        ("log.dirs", folder.path().join(id.to_string()).display().to_string()),
        ("transaction.partition.verification.enable", "false".to_owned()),
        ("transaction.state.log.min.isr", "1".to_owned()),
        ("controlled.shutdown.enable", "false".to_owned()),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value));
    let config = Arc::new(BrokerConfig::parse(&Properties::from(settings)).unwrap());
    Running::start_on(config, zookeeper.connect(), &Registry::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_aborts_a_hanging_transaction_that_is_over_and_no_other() {
    let pair = Pair::start().await;
    let partition = TopicPartition::new("t", 0);
    let init = |transactional_id, reply| Event::InitProducerId {
        transactional_id,
        timeout_ms: 60_000,
        expected: None,
        reply,
    };
    let Reply::InitProducerId { error: ErrorCode::None, producer_id, producer_epoch } =
        pair.ask("mine", init).await
    else {
        panic!("no producer")
    };
    let mine = (producer_id, producer_epoch);
    let add = |transactional_id, reply| Event::AddPartitions {
        transactional_id,
        producer_id,
        producer_epoch,
        partitions: vec![partition.clone()],
        reply,
    };
    let added = pair.ask("mine", add).await;
    assert_eq!(added, Reply::AddPartitions(ErrorCode::None));
    pair.append(mine, 0);
    pair.append((ProducerId(4711), ProducerEpoch(0)), 0);

    let timeout_max = u64::try_from(pair.broker().config.transaction_max_timeout_ms).unwrap();
    let limit = Duration::from_millis(timeout_max) + GRACE;
    let mut watched = Watched::new(pair.broker().clone());
    let begun = clock::now();
    watched.round(begun).await;
    watched.round(begun + limit).await;
    let metrics = &pair.broker().metrics;
    assert_eq!(metrics.hanging_transactions.value(), 0, "none is open for too long");
    let mut now = begun + limit + Duration::from_secs(1);
    watched.round(now).await;
    assert_eq!((metrics.hanging_transactions.value(), pair.open()), (2, 2));
    assert_eq!(metrics.late_transactions.value(), 0);
    watched.look(begun + limit + LATE);
    assert_eq!(metrics.late_transactions.value(), 1, "one partition");

    let end = |transactional_id, reply| Event::EndTxn {
        transactional_id,
        producer_id,
        producer_epoch,
        result: TransactionResult::Commit,
        reply,
    };
    assert_eq!(pair.ask("mine", end).await, Reply::EndTxn(ErrorCode::None));
    pair.until(|pair| pair.open() == 1).await;
    // A batch that comes late: nothing would ever end what it opens.
    pair.append(mine, 1);
    watched.round(now).await;
    now += limit + Duration::from_secs(1);
    let deadline = clock::now() + PATIENCE;
    // The marker is in the log before the coordinator takes note of it: till then the transaction goes on for it.
    while metrics.hanging_transactions_aborted.count() == 0 {
        assert!(clock::now() < deadline, "it stays");
        watched.round(now).await;
    }
    assert_eq!(metrics.hanging_transactions_aborted.count(), 1);
    let log = pair.broker().replicas.get("t", 0).unwrap().log().clone();
    let [left] = log.open_transactions()[..] else { panic!("the stranger's stays") };
    assert_eq!(left.producer_id, ProducerId(4711));
    // The record, the stranger's, the marker of the commit, the late record, and the marker of the abort.
    assert_eq!(log.end_offset(), Offset(5));
    assert_eq!(log.aborted_transactions(Offset(0), Offset(5)).unwrap().len(), 1);

    // With the coordinator away nothing is known.
    pair.append(mine, 2);
    watched.round(now).await;
    let Pair { _folder, leader, coordinator } = pair;
    coordinator.stop().await;
    now += limit + Duration::from_secs(1);
    watched.round(now).await;
    assert_eq!(log.open_transactions().len(), 2);
    leader.stop().await;
}
