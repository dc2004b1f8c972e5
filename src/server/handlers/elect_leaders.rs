//! ElectLeaders (API key 43): gives partitions their preferred leader, or any where there is none.
//! Source: `KafkaApis.handleElectLeaders`, KIP-183, KIP-460.

use std::collections::BTreeSet;

use common::{error_code::ErrorCode, topic::TopicPartition};
use controller::{elect_leaders::ElectionType, error::ApiError};
use kafka_protocol::messages::{
    ElectLeadersRequest, ElectLeadersResponse, TopicName,
    elect_leaders_response::{PartitionResult, ReplicaElectionResult},
};

use crate::{
    broker::Broker, controller::requests::Elections, handlers::text,
    request_context::RequestContext,
};

/// First version with a type of election, and an error of the request as a whole.
const ELECTION_TYPE: i16 = 1;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let only: Option<BTreeSet<TopicPartition>> = request.topic_partitions.map(|topics| {
        let each = topics.iter().flat_map(|topic| {
            let id = |index: &i32| TopicPartition::new(&**topic.topic, *index);
            topic.partitions.iter().map(id)
        });
        each.collect()
    });
    let kind = match request.election_type {
        _ if ctx.api_version < ELECTION_TYPE => ElectionType::Preferred,
        0 => ElectionType::Preferred,
        1 => ElectionType::Unclean,
        _ => return unknown_type(only),
    };
    let elections = broker.controller.elect_leaders(kind, only, request.timeout_ms).await;
    ElectLeadersResponse::default().with_replica_election_results(results(&elections))
}

/// Kafka has no words for a type of election that it does not know.
fn unknown_type(only: Option<BTreeSet<TopicPartition>>) -> ElectLeadersResponse {
    let error = || Err(ApiError::code(ErrorCode::UnknownServerError));
    let elections = only.into_iter().flatten().map(|id| (id, error())).collect();
    ElectLeadersResponse::default()
        .with_error_code(ErrorCode::UnknownServerError.code())
        .with_replica_election_results(results(&elections))
}

fn results(elections: &Elections) -> Vec<ReplicaElectionResult> {
    let each: Vec<(&TopicPartition, &Result<(), ApiError>)> = elections.iter().collect();
    let topics = each.chunk_by(|(one, _), (other, _)| one.topic == other.topic);
    let of_topic = |of: &[(&TopicPartition, &Result<(), ApiError>)]| {
        let partitions = of.iter().map(|(id, result)| {
            let answer = PartitionResult::default().with_partition_id(id.partition);
            match result {
                Ok(()) => answer.with_error_message(None),
                Err(error) => answer
                    .with_error_code(error.code.code())
                    .with_error_message(error.message.as_deref().map(text)),
            }
        });
        ReplicaElectionResult::default()
            .with_topic(TopicName(text(&of[0].0.topic)))
            .with_partition_result(partitions.collect())
    };
    topics.map(of_topic).collect()
}
