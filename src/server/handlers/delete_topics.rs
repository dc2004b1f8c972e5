//! DeleteTopics (API key 20). Source: `KafkaApis.handleDeleteTopicsRequest`.

use common::topic::Uuid;
use kafka_protocol::messages::{
    DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
    delete_topics_response::DeletableTopicResult,
};

use crate::{
    broker::Broker,
    controller::topics::{DeleteResult, DeleteTopic},
    handlers::{text, wire_uuid},
    request_context::RequestContext,
};

/// First version that may name topics by id.
const BY_ID: i16 = 6;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let version = ctx.api_version;
    let by_name = |name: &TopicName| DeleteTopic { name: Some(name.to_string()), id: None };
    let wanted: Vec<DeleteTopic> = if version < BY_ID {
        request.topic_names.iter().map(by_name).collect()
    } else {
        let each = request.topics.iter().map(|topic| DeleteTopic {
            name: topic.name.as_ref().map(|name| name.to_string()),
            id: (!topic.topic_id.is_nil()).then(|| Uuid(topic.topic_id.as_u128())),
        });
        each.collect()
    };
    let results =
        match broker.controller.delete_topics(version, wanted.clone(), request.timeout_ms).await {
            Ok(results) => results,
            // The request is wrong as a whole: every topic gets the error.
            Err(error) => {
                let refuse = |DeleteTopic { name, id }| DeleteResult { name, id, error };
                wanted.into_iter().map(refuse).collect()
            }
        };
    let answers = results.into_iter().map(|result| answer(version, result));
    DeleteTopicsResponse::default().with_responses(answers.collect())
}

fn answer(version: i16, result: DeleteResult) -> DeletableTopicResult {
    let answer = DeletableTopicResult::default()
        .with_name(result.name.map(|name| TopicName(text(&name))))
        .with_error_code(result.error.code());
    match result.id {
        Some(id) if version >= BY_ID => answer.with_topic_id(wire_uuid(id)),
        _ => answer,
    }
}
