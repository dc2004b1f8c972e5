//! A transactional producer, a request at a time: the client library has none yet.

use std::{collections::BTreeMap, time::Duration};

use client::{admin::Admin, connection::Connection, coordinator::CoordinatorKind};
use common::{
    clock,
    error_code::ErrorCode,
    ids::{self, Timestamp},
    topic::TopicPartition,
};
use kafka_protocol::{
    messages::{
        AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, GroupId,
        InitProducerIdRequest, ProduceRequest, ProducerId, TopicName, TransactionalId,
        TxnOffsetCommitRequest,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        produce_request::{PartitionProduceData, TopicProduceData},
        txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic},
    },
    protocol::{Request, StrBytes},
};
use record::{build::BatchBuilder, compression::Compression};

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    Abort,
}

/// A producer with a transactional id, at a cluster of one broker.
pub(super) struct Transactional {
    admin: Admin,
    connection: Connection,
    id: String,
    producer_id: i64,
    epoch: i16,
    /// The next sequence of each partition.
    sequences: BTreeMap<TopicPartition, i32>,
}

/// Longest time of a call with its retries.
const LIMIT: Duration = Duration::from_secs(30);
const MINUTES_15_MS: i32 = 900_000;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

impl Transactional {
    /// Takes the id over, which ends a transaction that is open.
    pub(super) async fn open(admin: &Admin, id: &str) -> Transactional {
        // The first question for a coordinator makes the topic that it needs.
        let node = admin.find_coordinator(CoordinatorKind::Transaction, id).await.unwrap();
        let connection = admin.cluster().connect(&node).await.unwrap();
        let mut producer = Transactional {
            admin: admin.clone(),
            connection,
            id: id.to_owned(),
            producer_id: -1,
            epoch: -1,
            sequences: BTreeMap::new(),
        };
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(producer.transactional_id()))
            .with_transaction_timeout_ms(MINUTES_15_MS)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let found = producer
            .call(request, i16::MAX, |response| ErrorCode::from_code(response.error_code))
            .await;
        producer.producer_id = found.producer_id.0;
        producer.epoch = found.producer_epoch;
        producer
    }

    fn transactional_id(&self) -> TransactionalId {
        TransactionalId(text(&self.id))
    }

    /// Asks until the coordinator is ready: it loads at first, and a transaction takes a moment to end.
    async fn call<R: Request + Clone>(
        &self,
        request: R,
        cap: i16,
        code: impl Fn(&R::Response) -> ErrorCode,
    ) -> R::Response {
        let version = self.connection.version_of::<R>(cap).unwrap();
        let begun = clock::now();
        loop {
            let asked = self.connection.call_as(request.clone(), version, LIMIT).await;
            let response = asked.unwrap();
            match code(&response) {
                ErrorCode::None => return response,
                ErrorCode::ConcurrentTransactions
                | ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::CoordinatorNotAvailable
                | ErrorCode::NotCoordinator
                    if clock::now() < begun + LIMIT =>
                {
                    tokio::task::yield_now().await;
                }
                error => panic!("{}: {error:?}", self.id),
            }
        }
    }

    /// Writes one record, as part of the transaction.
    pub(super) async fn write(&mut self, topic: &str, partition: i32, time: i64) {
        let name = TopicPartition::new(topic, partition);
        let sequence = *self.sequences.entry(name.clone()).or_insert(0);
        let added = AddPartitionsToTxnTopic::default()
            .with_name(TopicName(text(topic)))
            .with_partitions(vec![partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.transactional_id())
            .with_v3_and_below_producer_id(ProducerId(self.producer_id))
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![added]);
        // Later versions are between brokers.
        self.call(request, 3, |response| {
            let topic = &response.results_by_topic_v3_and_below[0];
            ErrorCode::from_code(topic.results_by_partition[0].partition_error_code)
        })
        .await;
        let mut batch = BatchBuilder::new(Compression::None)
            .producer(ids::ProducerId(self.producer_id), ids::ProducerEpoch(self.epoch), sequence)
            .transactional();
        batch.append(Timestamp(time), None, Some(b"value"), &[]).unwrap();
        let data = PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(batch.finish()));
        let data = TopicProduceData::default()
            .with_name(TopicName(text(topic)))
            .with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(Some(self.transactional_id()))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![data]);
        self.call(request, i16::MAX, |response| {
            ErrorCode::from_code(response.responses[0].partition_responses[0].error_code)
        })
        .await;
        self.sequences.insert(name, sequence + 1);
    }

    /// Commits an offset of a group, as part of the transaction.
    pub(super) async fn commit_offset(&self, group: &str, topic: &str, offset: i64) {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(self.producer_id))
            .with_producer_epoch(self.epoch)
            .with_group_id(GroupId(text(group)));
        self.call(request, i16::MAX, |response| ErrorCode::from_code(response.error_code)).await;
        // The same for the group.
        self.admin.find_coordinator(CoordinatorKind::Group, group).await.unwrap();
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(0)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("")));
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(TopicName(text(topic)))
            .with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_group_id(GroupId(text(group)))
            .with_producer_id(ProducerId(self.producer_id))
            .with_producer_epoch(self.epoch)
            .with_generation_id(-1)
            .with_topics(vec![topic]);
        self.call(request, i16::MAX, |response| {
            ErrorCode::from_code(response.topics[0].partitions[0].error_code)
        })
        .await;
    }

    /// Ends the transaction.
    pub(super) async fn end(&self, end: End) {
        let request = EndTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(self.producer_id))
            .with_producer_epoch(self.epoch)
            .with_committed(end == End::Commit);
        self.call(request, i16::MAX, |response| ErrorCode::from_code(response.error_code)).await;
    }
}
