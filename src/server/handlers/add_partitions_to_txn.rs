//! AddPartitionsToTxn (API key 24): makes partitions part of a producer's transaction, or tells whether they are.
//! Clients send versions 0 to 3, for one transaction; brokers later ones, for several.
//! Source: `KafkaApis.handleAddPartitionsToTxnRequest`, KIP-890.

use std::collections::{HashMap, HashSet};

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
    topic::{TopicPartition, is_internal},
};
use futures_util::future::join_all;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, TopicName,
    add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction},
    add_partitions_to_txn_response::{
        AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
    },
};

use crate::{broker::Broker, errors, handlers::text, request_context::RequestContext};

/// First version that knows PRODUCER_FENCED.
const FENCED: i16 = 2;
/// First version of brokers.
const BATCHED: i16 = 4;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    let response = AddPartitionsToTxnResponse::default();
    let version = ctx.api_version;
    if version >= BATCHED {
        let each = request.transactions.into_iter().map(|transaction| async move {
            let topic_results = add_or_verify(broker, version, &transaction).await;
            AddPartitionsToTxnResult::default()
                .with_transactional_id(transaction.transactional_id)
                .with_topic_results(topic_results)
        });
        return response.with_results_by_transaction(join_all(each).await);
    }
    let transaction = AddPartitionsToTxnTransaction::default()
        .with_transactional_id(request.v3_and_below_transactional_id)
        .with_producer_id(request.v3_and_below_producer_id)
        .with_producer_epoch(request.v3_and_below_producer_epoch)
        .with_topics(request.v3_and_below_topics);
    let topic_results = add_or_verify(broker, version, &transaction).await;
    response.with_results_by_topic_v3_and_below(topic_results)
}

async fn add_or_verify(
    broker: &Broker,
    version: i16,
    transaction: &AddPartitionsToTxnTransaction,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let snapshot = broker.metadata.snapshot();
    let mut seen = HashSet::new();
    let mut partitions = Vec::new();
    for topic in &transaction.topics {
        for index in &topic.partitions {
            let partition = TopicPartition::new(&**topic.name, *index);
            if seen.insert(partition.clone()) {
                partitions.push(partition);
            }
        }
    }
    let is_known = |partition: &TopicPartition| {
        snapshot.partition(&partition.topic, partition.partition).is_some()
    };
    // Clients have no business in internal topics.
    let is_forbidden =
        |partition: &TopicPartition| version < BATCHED && is_internal(&partition.topic);
    if partitions.iter().any(|partition| is_forbidden(partition) || !is_known(partition)) {
        // One that cannot be added fails the others as well.
        return grouped(&partitions, |partition| match is_known(partition) {
            _ if is_forbidden(partition) => ErrorCode::TopicAuthorizationFailed,
            true => ErrorCode::OperationNotAttempted,
            false => ErrorCode::UnknownTopicOrPartition,
        });
    }
    let producer =
        (ProducerId(transaction.producer_id.0), ProducerEpoch(transaction.producer_epoch));
    let transactional_id = &transaction.transactional_id;
    let transactions = &broker.transactions;
    if transaction.verify_only {
        let asked = partitions.clone();
        let codes = transactions.verify_here(transactional_id, producer, asked).await;
        let codes: HashMap<_, _> = partitions.iter().zip(codes).collect();
        let code_of = |partition: &TopicPartition| {
            codes.get(partition).copied().unwrap_or(ErrorCode::UnknownServerError)
        };
        return grouped(&partitions, code_of);
    }
    let error = transactions.add_partitions(transactional_id, producer, partitions).await;
    let error = match version {
        FENCED.. => error,
        _ => errors::without_producer_fenced(error),
    };
    results(&transaction.topics, |_| error)
}

/// A result for each partition, and each topic, once. Source: `AddPartitionsToTxnResponse.resultForTransaction`.
fn grouped(
    partitions: &[TopicPartition],
    code_of: impl Fn(&TopicPartition) -> ErrorCode,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut topics: Vec<AddPartitionsToTxnTopicResult> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for partition in partitions {
        let place = *places.entry(&partition.topic).or_insert(topics.len());
        if place == topics.len() {
            let name = TopicName(text(&partition.topic));
            topics.push(AddPartitionsToTxnTopicResult::default().with_name(name));
        }
        let result = AddPartitionsToTxnPartitionResult::default()
            .with_partition_index(partition.partition)
            .with_partition_error_code(code_of(partition).code());
        topics[place].results_by_partition.push(result);
    }
    topics
}

/// A result for each partition as the request names it.
fn results(
    topics: &[AddPartitionsToTxnTopic],
    code_of: impl Fn(&TopicPartition) -> ErrorCode,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let of_topic = |topic: &AddPartitionsToTxnTopic| {
        let partitions = topic.partitions.iter().map(|index| {
            let code = code_of(&TopicPartition::new(&**topic.name, *index));
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*index)
                .with_partition_error_code(code.code())
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(partitions.collect())
    };
    topics.iter().map(of_topic).collect()
}
