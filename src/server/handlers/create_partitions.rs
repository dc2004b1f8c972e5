//! CreatePartitions (API key 37). Source: `ZkAdminManager.createPartitions`, KIP-195.

use common::{error_code::ErrorCode, ids::BrokerId};
use controller::topics::NewPartitions;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, TopicName,
    create_partitions_request::CreatePartitionsTopic,
    create_partitions_response::CreatePartitionsTopicResult,
};

use crate::{
    broker::Broker,
    controller::topics::Request,
    handlers::{is_too_long, text},
};

pub(crate) async fn handle(
    broker: &Broker,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let how = Request { timeout_ms: request.timeout_ms, validate_only: request.validate_only };
    let wanted = request.topics.into_iter().map(new_partitions).collect();
    let results = broker.controller.create_partitions(wanted, how).await;
    let answers = results.into_iter().map(|(name, error)| {
        let code = error.as_ref().map_or(ErrorCode::None, |error| error.code);
        let message = error.and_then(|error| error.message);
        CreatePartitionsTopicResult::default()
            .with_name(TopicName(text(&name)))
            .with_error_code(code.code())
            .with_error_message(message.as_deref().map(text))
    });
    let mut answers: Vec<CreatePartitionsTopicResult> = answers.collect();
    if answers.iter().any(|answer| is_too_long(answer.error_message.as_ref())) {
        for answer in &mut answers {
            answer.error_code = ErrorCode::UnknownServerError.code();
            answer.error_message = None;
        }
    }
    CreatePartitionsResponse::default().with_results(answers)
}

fn new_partitions(topic: CreatePartitionsTopic) -> NewPartitions {
    let assignments = topic.assignments.map(|assignments| {
        let each = assignments
            .into_iter()
            .map(|one| one.broker_ids.into_iter().map(|id| BrokerId(id.0)).collect());
        each.collect()
    });
    NewPartitions { topic: topic.name.to_string(), count: topic.count, assignments }
}
