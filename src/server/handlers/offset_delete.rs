//! OffsetDelete (API key 47): forgets offsets that a group does not need. Source: `KafkaApis.handleOffsetDeleteRequest`, KIP-496.

use common::{error_code::ErrorCode, topic::TopicPartition};
use group_coordinator::{action::Reply, event::Event};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use crate::{broker::Broker, handlers::committed::CommitAnswers};

pub(crate) async fn handle(broker: &Broker, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    let refused = |error: ErrorCode| OffsetDeleteResponse::default().with_error_code(error.code());
    let mut answers = CommitAnswers::default();
    let mut partitions = Vec::new();
    let snapshot = broker.metadata.snapshot();
    for topic in &request.topics {
        for asked in &topic.partitions {
            if snapshot.partition(&topic.name, asked.partition_index).is_some() {
                partitions.push(TopicPartition::new(&**topic.name, asked.partition_index));
            } else {
                let error = ErrorCode::UnknownTopicOrPartition;
                answers.add(&topic.name, asked.partition_index, error);
            }
        }
    }
    // The coordinator is told of each once.
    partitions.sort_unstable();
    partitions.dedup();
    if request.group_id.is_empty() {
        return refused(ErrorCode::InvalidGroupId);
    }
    let group = request.group_id.to_string();
    let named = partitions.clone();
    let event = |reply| Event::DeleteOffsets { group, partitions: named, reply };
    let reply = match broker.groups.ask(&request.group_id, event).await {
        Ok(Reply::DeleteOffsets(reply)) => reply,
        Ok(_) => return refused(ErrorCode::UnknownServerError),
        Err(error) => return refused(error),
    };
    if reply.error != ErrorCode::None {
        return refused(reply.error);
    }
    for (name, error) in partitions.iter().zip(reply.partitions) {
        answers.add(&name.topic, name.partition, error);
    }
    answers.deletion_response()
}
