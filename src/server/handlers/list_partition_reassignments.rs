//! ListPartitionReassignments (API key 46): the moves that are going on.
//! Source: `KafkaApis.handleListPartitionReassignmentsRequest`, KIP-455.

use std::collections::BTreeSet;

use common::topic::TopicPartition;
use controller::assignment::Assignment;
use kafka_protocol::messages::{
    BrokerId, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, TopicName,
    list_partition_reassignments_response::{
        OngoingPartitionReassignment, OngoingTopicReassignment,
    },
};

use crate::{broker::Broker, handlers::text};

pub(crate) async fn handle(
    broker: &Broker,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let only: Option<BTreeSet<TopicPartition>> = request.topics.map(|topics| {
        let each = topics.iter().flat_map(|topic| {
            let id = |index: &i32| TopicPartition::new(&**topic.name, *index);
            topic.partition_indexes.iter().map(id)
        });
        each.collect()
    });
    let response = ListPartitionReassignmentsResponse::default();
    match broker.controller.list_partition_reassignments(only).await {
        Ok(moves) => {
            let each: Vec<(TopicPartition, Assignment)> = moves.into_iter().collect();
            let topics = each.chunk_by(|(one, _), (other, _)| one.topic == other.topic);
            // The text of no error is empty, not null.
            response.with_error_message(Some(text(""))).with_topics(topics.map(topic).collect())
        }
        Err(error) => {
            response.with_error_code(error.code()).with_error_message(Some(text(error.message())))
        }
    }
}

fn topic(of: &[(TopicPartition, Assignment)]) -> OngoingTopicReassignment {
    let ids = |list: &[common::ids::BrokerId]| list.iter().map(|id| BrokerId(id.0)).collect();
    let partitions = of.iter().map(|(id, assignment)| {
        OngoingPartitionReassignment::default()
            .with_partition_index(id.partition)
            .with_replicas(ids(&assignment.replicas))
            .with_adding_replicas(ids(&assignment.adding))
            .with_removing_replicas(ids(&assignment.removing))
    });
    OngoingTopicReassignment::default()
        .with_name(TopicName(text(&of[0].0.topic)))
        .with_partitions(partitions.collect())
}
