//! Asking the coordinator of a transaction, on another broker, whether partitions are part of it: AddPartitionsToTxn as
//! brokers send it. Source: `AddPartitionsToTxnManager`, KIP-890.

use std::{collections::HashMap, ops::RangeInclusive};

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
    topic::TopicPartition,
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ProducerId as WireProducerId, TopicName,
    TransactionalId,
    add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction},
};

use crate::handlers::text;

/// The versions of brokers.
pub(crate) const VERSIONS: RangeInclusive<i16> = 4..=5;

/// Asks about partitions, each named once.
pub(crate) fn request(
    transactional_id: &str,
    (producer_id, producer_epoch): (ProducerId, ProducerEpoch),
    partitions: &[TopicPartition],
) -> AddPartitionsToTxnRequest {
    let mut topics: Vec<AddPartitionsToTxnTopic> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for partition in partitions {
        let place = *places.entry(&partition.topic).or_insert(topics.len());
        if place == topics.len() {
            let name = TopicName(text(&partition.topic));
            topics.push(AddPartitionsToTxnTopic::default().with_name(name));
        }
        topics[place].partitions.push(partition.partition);
    }
    let transaction = AddPartitionsToTxnTransaction::default()
        .with_transactional_id(TransactionalId(text(transactional_id)))
        .with_producer_id(WireProducerId(producer_id.0))
        .with_producer_epoch(producer_epoch.0)
        .with_verify_only(true)
        .with_topics(topics);
    AddPartitionsToTxnRequest::default().with_transactions(vec![transaction])
}

/// The coordinator's code for each of the partitions. One that the answer leaves out was not vouched for.
pub(crate) fn read(
    response: &AddPartitionsToTxnResponse,
    partitions: &[TopicPartition],
) -> Vec<ErrorCode> {
    let whole = ErrorCode::from_code(response.error_code);
    if !whole.is_none() {
        // Not allowed to ask: a client would take the code for its own.
        let refused = whole == ErrorCode::ClusterAuthorizationFailed;
        let code = if refused { ErrorCode::InvalidTxnState } else { whole };
        return vec![code; partitions.len()];
    }
    let mut codes: HashMap<(&str, i32), ErrorCode> = HashMap::new();
    for topic in response.results_by_transaction.iter().flat_map(|one| &one.topic_results) {
        for one in &topic.results_by_partition {
            let code = ErrorCode::from_code(one.partition_error_code);
            codes.insert((topic.name.as_str(), one.partition_index), code);
        }
    }
    let code_of = |partition: &TopicPartition| {
        let key = (&*partition.topic, partition.partition);
        codes.get(&key).copied().unwrap_or(ErrorCode::UnknownServerError)
    };
    partitions.iter().map(code_of).collect()
}
