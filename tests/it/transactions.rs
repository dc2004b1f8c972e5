//! Transactions against a broker in this process: markers, isolation, fencing, verification, offsets.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use client::{
    admin::{Admin, NewTopic, records::Isolation},
    cluster::Cluster as Brokers,
    config::{ConnectionConfig, ConsumerConfig},
    connection::Connection,
    consumer::{Consumer, Start},
};
use common::{
    clock,
    config::broker::BrokerConfig,
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
    properties::Properties,
    topic::TopicPartition,
};
use kafka_protocol::{
    messages::{
        self, AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeProducersRequest,
        DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest, GroupId,
        InitProducerIdRequest, ListTransactionsRequest, OffsetFetchRequest, ProduceRequest,
        TopicName, TransactionalId, TxnOffsetCommitRequest, WriteTxnMarkersRequest,
        add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction},
        describe_producers_request::TopicRequest,
        offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics},
        produce_request::{PartitionProduceData, TopicProduceData},
        txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
        write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
    },
    protocol::{Request, StrBytes},
};
use record::{build::BatchBuilder, compression::Compression};
use security::java_options::JavaOptions;
use server::start::Running;
use tempfile::TempDir;
use tests::ports::quiet_port;
use zookeeper::{config::Config, server::Server};

const LIMIT: Duration = Duration::from_secs(30);

/// A ZooKeeper, a broker that may go away and come back, and a connection to it.
struct Cluster {
    folder: TempDir,
    zookeeper: Server,
    address: SocketAddr,
    broker: Option<Running>,
}

/// A transactional producer, and what it believes of itself.
#[derive(Clone)]
struct Txn {
    brokers: Brokers,
    connection: Connection,
    id: &'static str,
    producer: (i64, i16),
}

impl Cluster {
    async fn start() -> Cluster {
        let folder = TempDir::new().unwrap();
        let zookeeper = Server::start(Config::for_tests(folder.path().join("zookeeper"))).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], quiet_port()));
        let mut cluster = Cluster { folder, zookeeper, address, broker: None };
        cluster.start_broker().await;
        let topic = NewTopic {
            name: "t".to_owned(),
            partition_count: Some(2),
            replication_factor: Some(1),
            ..NewTopic::default()
        };
        let created = cluster.admin().await.create_topics(&[topic]).await.unwrap();
        created.into_values().for_each(|result| result.unwrap());
        cluster
    }

    async fn start_broker(&mut self) {
        let settings = [
            ("broker.id", "1".to_owned()),
            ("listeners", format!("PLAINTEXT://{}", self.address)),
            ("zookeeper.connect", self.zookeeper.address().to_string()),
            ("log.dirs", self.folder.path().join("data").display().to_string()),
            ("offsets.topic.replication.factor", "1".to_owned()),
            ("offsets.topic.num.partitions", "3".to_owned()),
            ("transaction.state.log.replication.factor", "1".to_owned()),
            ("transaction.state.log.min.isr", "1".to_owned()),
            ("transaction.state.log.num.partitions", "3".to_owned()),
            ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "20".to_owned()),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value));
        let config = BrokerConfig::parse(&Properties::from(settings)).unwrap();
        self.broker =
            Some(Running::start(Arc::new(config), &JavaOptions::default()).await.unwrap());
    }

    async fn stop(mut self) {
        self.broker.take().unwrap().stop().await;
        self.zookeeper.stop();
    }

    fn properties(&self, isolation: Option<&str>) -> Properties {
        let address = ("bootstrap.servers".to_owned(), self.address.to_string());
        let mut properties = Properties::from([address]);
        if let Some(isolation) = isolation {
            properties.insert("isolation.level".to_owned(), isolation.to_owned());
        }
        properties
    }

    async fn admin(&self) -> Admin {
        Admin::open(ConnectionConfig::admin(&self.properties(None)).unwrap()).await.unwrap()
    }

    /// A producer that has its id from the coordinator.
    async fn producer(&self, id: &'static str) -> Txn {
        let mut txn = self.nobody(id).await;
        assert_eq!(txn.init(60_000, None).await, ErrorCode::None);
        txn
    }

    /// A producer to be.
    async fn nobody(&self, id: &'static str) -> Txn {
        let config = ConnectionConfig::admin(&self.properties(None)).unwrap();
        let brokers = Brokers::open(config).await.unwrap();
        let connection = brokers.connect(&brokers.bootstrap()[0]).await.unwrap();
        let txn = Txn { brokers, connection, id, producer: (-1, -1) };
        for (key_type, key) in [(0, "group"), (1, id)] {
            let request = FindCoordinatorRequest::default()
                .with_key_type(key_type)
                .with_coordinator_keys(vec![text(key)]);
            txn.until(request, |found| found.coordinators[0].error_code == 0).await;
        }
        txn
    }

    /// The values that a reader sees.
    async fn values(&self, isolation: &str, count: usize) -> Vec<String> {
        let config = ConsumerConfig::read(&self.properties(Some(isolation))).unwrap();
        let mut consumer = Consumer::open(config).await.unwrap();
        consumer.assign([(TopicPartition::new("t", 0), Start::Earliest)]);
        let mut values = Vec::new();
        while values.len() < count {
            let records = consumer.poll(LIMIT).await.unwrap();
            assert!(!records.is_empty(), "only {values:?} came");
            let each = records.into_iter().map(|record| record.value.unwrap());
            values.extend(each.map(|value| String::from_utf8(value.to_vec()).unwrap()));
        }
        values
    }

    /// The end of the partition, for readers of an isolation.
    async fn end(&self, isolation: Isolation) -> i64 {
        let partition = TopicPartition::new("t", 0);
        let wanted = BTreeMap::from([(partition.clone(), -1)]);
        let listed = self.admin().await.list_offsets_for(&wanted, isolation).await.unwrap();
        listed[&partition].as_ref().unwrap().offset
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic_name() -> TopicName {
    TopicName(text("t"))
}

fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code)
}

impl Txn {
    /// Asks until the answer is as wanted.
    async fn until<R: Request + Clone>(
        &self,
        request: R,
        is_wanted: impl Fn(&R::Response) -> bool,
    ) -> R::Response {
        let deadline = clock::now() + LIMIT;
        loop {
            let answer = self.connection.call(request.clone()).await.unwrap();
            if is_wanted(&answer) {
                return answer;
            }
            assert!(clock::now() < deadline, "the answer is never as wanted");
            self.brokers.back_off(0).await;
        }
    }

    fn name(&self) -> TransactionalId {
        TransactionalId(text(self.id))
    }

    fn producer_id(&self) -> messages::ProducerId {
        messages::ProducerId(self.producer.0)
    }

    /// Gets an id and an epoch, once the coordinator is there and idle.
    async fn init(&mut self, timeout_ms: i32, expected: Option<(i64, i16)>) -> ErrorCode {
        let (id, epoch) = expected.unwrap_or((-1, -1));
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(self.name()))
            .with_transaction_timeout_ms(timeout_ms)
            .with_producer_id(messages::ProducerId(id))
            .with_producer_epoch(epoch);
        let is_settled = |error: ErrorCode| {
            !matches!(
                error,
                ErrorCode::CoordinatorLoadInProgress
                    | ErrorCode::NotCoordinator
                    | ErrorCode::ConcurrentTransactions
            )
        };
        let answer = self.until(request, |answer| is_settled(code(answer.error_code))).await;
        if answer.error_code == 0 {
            self.producer = (answer.producer_id.0, answer.producer_epoch);
        }
        code(answer.error_code)
    }

    async fn add(&self, topic: &str) -> ErrorCode {
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(TopicName(text(topic)))
            .with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.name())
            .with_v3_and_below_producer_id(self.producer_id())
            .with_v3_and_below_producer_epoch(self.producer.1)
            .with_v3_and_below_topics(vec![topic]);
        // The last transaction may have markers under way still.
        let deadline = clock::now() + LIMIT;
        loop {
            let answer = self.connection.call_as(request.clone(), 3, LIMIT).await.unwrap();
            let topics = answer.results_by_topic_v3_and_below;
            let error = code(topics[0].results_by_partition[0].partition_error_code);
            if error != ErrorCode::ConcurrentTransactions {
                return error;
            }
            assert!(clock::now() < deadline);
            self.brokers.back_off(0).await;
        }
    }

    async fn produce(&self, sequence: i32, value: &str, version: i16) -> ErrorCode {
        let (id, epoch) = (ProducerId(self.producer.0), ProducerEpoch(self.producer.1));
        let batch = BatchBuilder::new(Compression::None).producer(id, epoch, sequence);
        self.send(batch.transactional(), value, version).await
    }

    async fn send(&self, mut batch: BatchBuilder, value: &str, version: i16) -> ErrorCode {
        batch.append(clock::wall_clock(), None, Some(value.as_bytes()), &[]).unwrap();
        let data = PartitionProduceData::default().with_index(0);
        let topic = TopicProduceData::default()
            .with_name(topic_name())
            .with_partition_data(vec![data.with_records(Some(batch.finish()))]);
        let request = ProduceRequest::default()
            .with_transactional_id(Some(self.name()))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        let answer = self.connection.call_as(request, version, LIMIT).await.unwrap();
        code(answer.responses[0].partition_responses[0].error_code)
    }

    async fn end(&self, committed: bool, version: i16) -> ErrorCode {
        let request = EndTxnRequest::default()
            .with_transactional_id(self.name())
            .with_producer_id(self.producer_id())
            .with_producer_epoch(self.producer.1)
            .with_committed(committed);
        code(self.connection.call_as(request, version, LIMIT).await.unwrap().error_code)
    }

    /// Waits until the transaction is in a state.
    async fn state(&self, state: &str) -> messages::DescribeTransactionsResponse {
        let request =
            DescribeTransactionsRequest::default().with_transactional_ids(vec![self.name()]);
        let is_there = |answer: &messages::DescribeTransactionsResponse| {
            &*answer.transaction_states[0].transaction_state == state
        };
        self.until(request, is_there).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_committed_records_see_those_and_no_others() {
    let cluster = Cluster::start().await;
    let txn = cluster.producer("one").await;
    assert_eq!(txn.add("t").await, ErrorCode::None);
    assert_eq!(txn.produce(0, "a", 9).await, ErrorCode::None);
    assert_eq!(cluster.end(Isolation::ReadUncommitted).await, 1);
    assert_eq!(cluster.end(Isolation::ReadCommitted).await, 0);
    let open = txn.state("Ongoing").await;
    assert_eq!(open.transaction_states[0].topics[0].partitions, [0]);
    assert_eq!(txn.end(true, 3).await, ErrorCode::None);
    txn.state("CompleteCommit").await;
    assert_eq!(cluster.end(Isolation::ReadCommitted).await, 2);
    // Once more is no error.
    assert_eq!(txn.end(true, 3).await, ErrorCode::None);
    assert_eq!(txn.end(false, 3).await, ErrorCode::InvalidTxnState);

    assert_eq!(txn.add("t").await, ErrorCode::None);
    assert_eq!(txn.produce(1, "b", 9).await, ErrorCode::None);
    assert_eq!(txn.produce(2, "c", 9).await, ErrorCode::None);
    assert_eq!(txn.end(false, 3).await, ErrorCode::None);
    txn.state("CompleteAbort").await;
    let plain = BatchBuilder::new(Compression::None);
    assert_eq!(txn.send(plain, "d", 9).await, ErrorCode::None);
    assert_eq!(cluster.values("read_committed", 2).await, ["a", "d"]);
    assert_eq!(cluster.values("read_uncommitted", 4).await, ["a", "b", "c", "d"]);

    let topic = TopicRequest::default().with_name(topic_name()).with_partition_indexes(vec![0, 7]);
    let request = DescribeProducersRequest::default().with_topics(vec![topic]);
    let described = txn.connection.call(request).await.unwrap();
    let [known, unknown] = &described.topics[0].partitions[..] else { panic!("two partitions") };
    let producer = &known.active_producers[0];
    assert_eq!((producer.producer_id.0, producer.last_sequence), (txn.producer.0, 2));
    assert_eq!(producer.current_txn_start_offset, -1);
    assert_eq!(code(unknown.error_code), ErrorCode::UnknownTopicOrPartition);
    let filter = ListTransactionsRequest::default()
        .with_state_filters(vec![text("CompleteAbort"), text("Nonsense")]);
    let listed = txn.connection.call(filter).await.unwrap();
    assert_eq!(listed.transaction_states.len(), 1);
    assert_eq!(&*listed.unknown_state_filters[0], "Nonsense");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_part_of_the_transaction_is_refused() {
    let cluster = Cluster::start().await;
    let mut txn = cluster.producer("one").await;
    assert_eq!(txn.produce(0, "a", 10).await, ErrorCode::InvalidTxnState);
    assert_eq!(txn.produce(0, "a", 11).await, ErrorCode::TransactionAbortable);
    assert_eq!(txn.add("nowhere").await, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(txn.add("t").await, ErrorCode::None);
    // The first batch comes first, though nothing is in the log yet.
    assert_eq!(txn.produce(1, "b", 11).await, ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(txn.produce(0, "a", 11).await, ErrorCode::None);
    let stranger = Txn { producer: (txn.producer.0 + 1, 0), ..txn.clone() };
    assert_eq!(stranger.produce(0, "x", 11).await, ErrorCode::InvalidProducerIdMapping);
    assert_eq!(stranger.end(true, 3).await, ErrorCode::InvalidProducerIdMapping);

    // A second one of the same name ends what the first one began, and the first one notices.
    let first = txn.clone();
    assert_eq!(txn.init(60_000, None).await, ErrorCode::None);
    assert_eq!(txn.producer, (first.producer.0, first.producer.1 + 2));
    assert_eq!(cluster.end(Isolation::ReadCommitted).await, 2);
    assert_eq!(first.add("t").await, ErrorCode::ProducerFenced);
    assert_eq!(first.end(true, 1).await, ErrorCode::InvalidProducerEpoch);
    assert_eq!(first.end(true, 2).await, ErrorCode::ProducerFenced);
    assert_eq!(first.produce(1, "b", 11).await, ErrorCode::InvalidProducerEpoch);
    let mut other = cluster.nobody("").await;
    assert_eq!(other.init(60_000, None).await, ErrorCode::InvalidRequest);
    assert_eq!(txn.init(0, None).await, ErrorCode::InvalidTransactionTimeout);
    assert_eq!(txn.init(900_001, None).await, ErrorCode::InvalidTransactionTimeout);
    // Whoever says who it is gets the next epoch, or learns that it is somebody else.
    assert_eq!(txn.init(60_000, Some(first.producer)).await, ErrorCode::ProducerFenced);
    let expected = txn.producer;
    assert_eq!(txn.init(60_000, Some(expected)).await, ErrorCode::None);
    assert_eq!(txn.producer, (expected.0, expected.1 + 1));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_verify_partitions_in_batches_and_markers_come_from_anywhere() {
    let cluster = Cluster::start().await;
    let txn = cluster.producer("one").await;
    assert_eq!(txn.add("t").await, ErrorCode::None);
    let topic = || AddPartitionsToTxnTopic::default().with_name(topic_name());
    let asks = |id: &str, partitions: &[i32]| {
        AddPartitionsToTxnTransaction::default()
            .with_transactional_id(TransactionalId(text(id)))
            .with_producer_id(txn.producer_id())
            .with_producer_epoch(txn.producer.1)
            .with_verify_only(true)
            .with_topics(vec![topic().with_partitions(partitions.to_vec())])
    };
    let request = AddPartitionsToTxnRequest::default().with_transactions(vec![
        asks("one", &[0, 1]),
        asks("another", &[0]),
        asks("one", &[0, 9]),
    ]);
    let answer = txn.connection.call_as(request, 5, LIMIT).await.unwrap();
    let codes: Vec<Vec<ErrorCode>> = answer
        .results_by_transaction
        .iter()
        .map(|result| {
            let partitions = result.topic_results[0].results_by_partition.iter();
            partitions.map(|partition| code(partition.partition_error_code)).collect()
        })
        .collect();
    assert_eq!(codes[0], [ErrorCode::None, ErrorCode::TransactionAbortable]);
    assert_eq!(codes[2], [ErrorCode::OperationNotAttempted, ErrorCode::UnknownTopicOrPartition]);
    assert!(!codes[1][0].is_none());

    let marker = |coordinator_epoch: i32, partitions: Vec<i32>| {
        let topic = WritableTxnMarkerTopic::default().with_name(topic_name());
        WritableTxnMarker::default()
            .with_producer_id(messages::ProducerId(99))
            .with_producer_epoch(0)
            .with_coordinator_epoch(coordinator_epoch)
            .with_topics(vec![topic.with_partition_indexes(partitions)])
    };
    let write = async |markers| {
        let request = WriteTxnMarkersRequest::default().with_markers(markers);
        let answer = txn.connection.call(request).await.unwrap();
        assert_eq!(answer.markers.len(), 1, "a producer is answered once");
        let partitions = answer.markers[0].topics[0].partitions.iter();
        let each = partitions.map(|one| (one.partition_index, code(one.error_code)));
        each.collect::<Vec<_>>()
    };
    assert_eq!(
        write(vec![marker(5, vec![0, 0, 7]), marker(5, vec![1])]).await,
        [(0, ErrorCode::None), (7, ErrorCode::UnknownTopicOrPartition), (1, ErrorCode::None)]
    );
    assert_eq!(
        write(vec![marker(4, vec![0])]).await,
        [(0, ErrorCode::TransactionCoordinatorFenced)]
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_count_when_their_transaction_is_committed() {
    let cluster = Cluster::start().await;
    let txn = cluster.producer("one").await;
    let group = GroupId(text("group"));
    let fetch = |require_stable: bool| {
        let topic = OffsetFetchRequestTopics::default()
            .with_name(topic_name())
            .with_partition_indexes(vec![0]);
        let asked = OffsetFetchRequestGroup::default().with_group_id(group.clone());
        OffsetFetchRequest::default()
            .with_groups(vec![asked.with_topics(Some(vec![topic]))])
            .with_require_stable(require_stable)
    };
    let fetched = async |require_stable| {
        let answer = txn
            .until(fetch(require_stable), |answer| {
                code(answer.groups[0].error_code) != ErrorCode::CoordinatorLoadInProgress
            })
            .await;
        let partition = &answer.groups[0].topics[0].partitions[0];
        (partition.committed_offset, code(partition.error_code))
    };
    assert_eq!(fetched(false).await, (-1, ErrorCode::None));
    let commit = async |offset, version| {
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default().with_name(topic_name());
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(txn.name())
            .with_group_id(group.clone())
            .with_producer_id(txn.producer_id())
            .with_producer_epoch(txn.producer.1)
            .with_topics(vec![topic.with_partitions(vec![partition])]);
        let answer = txn.connection.call_as(request, version, LIMIT).await.unwrap();
        code(answer.topics[0].partitions[0].error_code)
    };
    let add = async || {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(txn.name())
            .with_producer_id(txn.producer_id())
            .with_producer_epoch(txn.producer.1)
            .with_group_id(group.clone());
        let is_settled = |answer: &messages::AddOffsetsToTxnResponse| {
            code(answer.error_code) != ErrorCode::ConcurrentTransactions
        };
        code(txn.until(request, is_settled).await.error_code)
    };
    assert_eq!(commit(5, 3).await, ErrorCode::InvalidTxnState);
    assert_eq!(commit(5, 4).await, ErrorCode::TransactionAbortable);
    for (offset, committed) in [(5, true), (6, false), (7, true)] {
        let before = fetched(true).await;
        assert_eq!(add().await, ErrorCode::None);
        assert_eq!(commit(offset, 3).await, ErrorCode::None);
        assert_eq!(fetched(false).await, before);
        assert_eq!(fetched(true).await.1, ErrorCode::UnstableOffsetCommit);
        assert_eq!(txn.end(committed, 3).await, ErrorCode::None);
        txn.state(if committed { "CompleteCommit" } else { "CompleteAbort" }).await;
        let after = if committed { (offset, ErrorCode::None) } else { before };
        assert_eq!(fetched(true).await, after);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_outlives_a_restart_of_the_broker() {
    let mut cluster = Cluster::start().await;
    let before = cluster.producer("one").await;
    assert_eq!(before.add("t").await, ErrorCode::None);
    assert_eq!(before.produce(0, "a", 9).await, ErrorCode::None);
    cluster.broker.take().unwrap().stop().await;
    cluster.start_broker().await;
    let txn = Txn { producer: before.producer, ..cluster.nobody("one").await };
    txn.state("Ongoing").await;
    assert_eq!(txn.produce(1, "b", 9).await, ErrorCode::None);
    assert_eq!(txn.end(true, 3).await, ErrorCode::None);
    txn.state("CompleteCommit").await;
    assert_eq!(cluster.values("read_committed", 2).await, ["a", "b"]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_takes_too_long_is_aborted() {
    let cluster = Cluster::start().await;
    let mut txn = cluster.nobody("one").await;
    assert_eq!(txn.init(1, None).await, ErrorCode::None);
    assert_eq!(txn.add("t").await, ErrorCode::None);
    txn.state("CompleteAbort").await;
    assert_eq!(txn.end(true, 3).await, ErrorCode::ProducerFenced);
    assert_eq!(txn.produce(0, "a", 9).await, ErrorCode::InvalidProducerEpoch);
    let expected = txn.producer;
    assert_eq!(txn.init(60_000, Some(expected)).await, ErrorCode::ProducerFenced);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_a_connection_keep_their_order_through_verification() {
    const BATCHES: i32 = 20;
    let cluster = Cluster::start().await;
    let txn = cluster.producer("one").await;
    assert_eq!(txn.add("t").await, ErrorCode::None);
    let (id, epoch) = (ProducerId(txn.producer.0), ProducerEpoch(txn.producer.1));
    let mut answers = Vec::new();
    for sequence in 0..BATCHES {
        let mut batch = BatchBuilder::new(Compression::None).producer(id, epoch, sequence);
        let value = Bytes::from(sequence.to_string());
        batch.append(clock::wall_clock(), None, Some(&value), &[]).unwrap();
        let data =
            PartitionProduceData::default().with_records(Some(batch.transactional().finish()));
        let topic = TopicProduceData::default().with_name(topic_name());
        let request = ProduceRequest::default()
            .with_transactional_id(Some(txn.name()))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic.with_partition_data(vec![data])]);
        answers.push(txn.connection.start(&request, 9).await.unwrap());
    }
    for answer in answers {
        let mut body = answer.wait(LIMIT).await.unwrap();
        let answer: messages::ProduceResponse =
            kafka_protocol::protocol::Decodable::decode(&mut body, 9).unwrap();
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    assert_eq!(txn.end(true, 3).await, ErrorCode::None);
    txn.state("CompleteCommit").await;
    let expected: Vec<String> = (0..BATCHES).map(|number| number.to_string()).collect();
    assert_eq!(cluster.values("read_committed", expected.len()).await, expected);
    cluster.stop().await;
}
