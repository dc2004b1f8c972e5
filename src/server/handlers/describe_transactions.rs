//! DescribeTransactions (API key 65): where transactional ids stand. Source: `TransactionCoordinator.handleDescribeTransactions`, KIP-664.

use common::{error_code::ErrorCode, topic::TopicPartition};
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TopicName,
    TransactionalId,
    describe_transactions_response::{TopicData, TransactionState},
};

use crate::{
    broker::Broker,
    handlers::{repeats::Repeats, text},
};

pub(crate) fn handle(
    broker: &Broker,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let mut repeats = Repeats::new();
    let named = request.transactional_ids.into_iter().filter(|id| repeats.admit(id.clone()));
    let states = named.map(|id| describe(broker, id));
    DescribeTransactionsResponse::default().with_transaction_states(states.collect())
}

fn describe(broker: &Broker, transactional_id: TransactionalId) -> TransactionState {
    let described = match transactional_id.is_empty() {
        true => Err(ErrorCode::InvalidRequest),
        false => broker
            .transactions
            .look(&transactional_id, |coordinator| coordinator.describe(&transactional_id))
            .flatten(),
    };
    let answer = TransactionState::default();
    let answer = match described {
        Err(error) => answer.with_error_code(error.code()),
        Ok(described) => answer
            .with_transaction_state(text(described.state.name()))
            .with_transaction_timeout_ms(described.timeout_ms)
            .with_transaction_start_time_ms(described.start.0)
            .with_producer_id(ProducerId(described.producer_id.0))
            .with_producer_epoch(described.producer_epoch.0)
            .with_topics(by_topic(described.partitions)),
    };
    answer.with_transactional_id(transactional_id)
}

fn by_topic(partitions: Vec<TopicPartition>) -> Vec<TopicData> {
    let mut topics: Vec<TopicData> = Vec::new();
    for TopicPartition { topic, partition } in partitions {
        match topics.iter_mut().find(|known| **known.topic == *topic) {
            Some(known) => known.partitions.push(partition),
            None => topics.push(
                TopicData::default()
                    .with_topic(TopicName(text(&topic)))
                    .with_partitions(vec![partition]),
            ),
        }
    }
    topics
}
