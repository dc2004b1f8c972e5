//! DescribeProducers (API key 61): who writes to partitions hosted here. Source: `ReplicaManager.activeProducerState`, KIP-664.

use common::{error_code::ErrorCode, topic::check_topic_name};
use kafka_protocol::messages::{
    self, DescribeProducersRequest, DescribeProducersResponse,
    describe_producers_request::TopicRequest,
    describe_producers_response::{PartitionResponse, ProducerState, TopicResponse},
};

use crate::{
    broker::Broker,
    handlers::{is_too_long, repeats::Repeats, text},
};

pub(crate) fn handle(
    broker: &Broker,
    mut request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let mut repeats = Repeats::new();
    for topic in &mut request.topics {
        let name = topic.name.clone();
        topic.partition_indexes.retain(|index| repeats.admit((name.clone(), *index)));
    }
    let topics: Vec<TopicResponse> =
        request.topics.iter().map(|topic| of_topic(broker, topic)).collect();
    let mut partitions = topics.iter().flat_map(|topic| &topic.partitions);
    if partitions.any(|partition| is_too_long(partition.error_message.as_ref())) {
        return all_failed(&request);
    }
    DescribeProducersResponse::default().with_topics(topics)
}

fn of_topic(broker: &Broker, asked: &TopicRequest) -> TopicResponse {
    let refused = match check_topic_name(&asked.name) {
        Err(problem) => Some((ErrorCode::InvalidTopicException, problem.to_string())),
        Ok(()) if broker.metadata.load().topic(&asked.name).is_none() => {
            let error = ErrorCode::UnknownTopicOrPartition;
            Some((error, error.message().to_owned()))
        }
        Ok(()) => None,
    };
    let partitions = asked.partition_indexes.iter().map(|index| {
        let answer = PartitionResponse::default().with_partition_index(*index);
        if let Some((error, message)) = &refused {
            return answer.with_error_code(error.code()).with_error_message(Some(text(message)));
        }
        match broker.hosted_partition(&asked.name, *index) {
            Ok(partition) => answer.with_active_producers(producers(&partition)),
            Err(error) => answer.with_error_code(error.code()),
        }
    });
    TopicResponse::default().with_name(asked.name.clone()).with_partitions(partitions.collect())
}

fn producers(partition: &replication::partition::Partition) -> Vec<ProducerState> {
    let mut producers = partition.log().producers();
    producers.sort_by_key(|producer| producer.producer_id);
    let states = producers.into_iter().map(|one| {
        let start = one.producer.transaction_start;
        ProducerState::default()
            .with_producer_id(messages::ProducerId(one.producer_id.0))
            .with_producer_epoch(i32::from(one.producer.epoch.0))
            .with_last_sequence(one.producer.last_sequence())
            .with_last_timestamp(one.producer.last_timestamp.0)
            .with_coordinator_epoch(one.producer.coordinator_epoch)
            .with_current_txn_start_offset(start.map_or(-1, |start| start.0))
    });
    states.collect()
}

/// Every partition fails, where a message repeats a name that is too long to be written.
fn all_failed(request: &DescribeProducersRequest) -> DescribeProducersResponse {
    let code = ErrorCode::UnknownServerError.code();
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            PartitionResponse::default().with_partition_index(*index).with_error_code(code)
        });
        let answer = TopicResponse::default().with_name(topic.name.clone());
        answer.with_partitions(partitions.collect())
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}
