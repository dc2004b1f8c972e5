//! AlterPartitionReassignments (API key 45): moves partitions to other brokers, or ends their moves.
//! Source: `KafkaApis.handleAlterPartitionReassignmentsRequest`, KIP-455.

use common::{ids::BrokerId, topic::TopicPartition};
use controller::{error::ApiError, reassignment::Moves};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, TopicName,
    alter_partition_reassignments_response::{
        ReassignablePartitionResponse, ReassignableTopicResponse,
    },
};

use crate::{broker::Broker, handlers::text};

pub(crate) async fn handle(
    broker: &Broker,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let mut moves = Moves::new();
    for topic in request.topics {
        for partition in topic.partitions {
            let id = TopicPartition::new(&**topic.name, partition.partition_index);
            let target = |replicas: Vec<kafka_protocol::messages::BrokerId>| {
                replicas.into_iter().map(|id| BrokerId(id.0)).collect()
            };
            moves.insert(id, partition.replicas.map(target));
        }
    }
    let response = AlterPartitionReassignmentsResponse::default();
    let reassigned = match broker.controller.alter_partition_reassignments(moves).await {
        Ok(reassigned) => reassigned,
        Err(error) => {
            return response
                .with_error_code(error.code())
                .with_error_message(Some(text(error.message())));
        }
    };
    let each: Vec<(TopicPartition, Result<(), ApiError>)> = reassigned.into_iter().collect();
    let topics = each.chunk_by(|(one, _), (other, _)| one.topic == other.topic);
    let of_topic = |of: &[(TopicPartition, Result<(), ApiError>)]| {
        let partitions = of.iter().map(|(id, result)| {
            let answer = ReassignablePartitionResponse::default()
                .with_partition_index(id.partition)
                .with_error_message(None);
            match result {
                Ok(()) => answer,
                Err(error) => answer
                    .with_error_code(error.code.code())
                    .with_error_message(error.message.as_deref().map(text)),
            }
        });
        ReassignableTopicResponse::default()
            .with_name(TopicName(text(&of[0].0.topic)))
            .with_partitions(partitions.collect())
    };
    // The text of no error is empty here, and null in the partitions.
    response.with_error_message(Some(text(""))).with_responses(topics.map(of_topic).collect())
}
