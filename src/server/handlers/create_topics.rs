//! CreateTopics (API key 19). Source: `KafkaApis.handleCreateTopicsRequest`, `ZkAdminManager.createTopics`.

use common::{config::describe, error_code::ErrorCode, ids::BrokerId};
use controller::{error::ApiError, topics::NewTopic};
use kafka_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, TopicName,
    create_topics_request::CreatableTopic,
    create_topics_response::{CreatableTopicConfigs, CreatableTopicResult},
};

use crate::{
    broker::Broker,
    controller::topics::{Request, TopicResult},
    handlers::{is_too_long, text, wire_uuid},
    request_context::RequestContext,
};

/// First version that answers with what was created. Source: KIP-525.
const TELLS_CONFIGS: i16 = 5;
/// First version that answers with the topic's id. Source: KIP-516.
const TELLS_ID: i16 = 7;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let how = Request {
        timeout_ms: request.timeout_ms,
        validate_only: ctx.api_version >= 1 && request.validate_only,
    };
    let wanted = request.topics.into_iter().map(new_topic).collect();
    let results = broker.controller.create_topics(wanted, how).await;
    let answers = results.into_iter().map(|result| answer(broker, ctx.api_version, result));
    let mut answers: Vec<CreatableTopicResult> = answers.collect();
    if answers.iter().any(|answer| is_too_long(answer.error_message.as_ref())) {
        for answer in &mut answers {
            *answer = CreatableTopicResult::default()
                .with_name(answer.name.clone())
                .with_error_code(ErrorCode::UnknownServerError.code())
                .with_error_message(None);
        }
    }
    CreateTopicsResponse::default().with_topics(answers)
}

fn new_topic(topic: CreatableTopic) -> NewTopic {
    let assignments = topic.assignments.into_iter().map(|assignment| {
        let brokers = assignment.broker_ids.into_iter().map(|id| BrokerId(id.0)).collect();
        (assignment.partition_index, brokers)
    });
    let configs = topic
        .configs
        .into_iter()
        .map(|config| (config.name.to_string(), config.value.map(|value| value.to_string())));
    NewTopic {
        name: topic.name.to_string(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments.collect(),
        configs: configs.collect(),
    }
}

fn answer(broker: &Broker, version: i16, result: TopicResult) -> CreatableTopicResult {
    let answer = CreatableTopicResult::default().with_name(TopicName(text(&result.name)));
    let (code, message) = match &result.error {
        Some(ApiError { code, message }) => (*code, message.as_deref()),
        None => (ErrorCode::None, None),
    };
    let answer = answer.with_error_code(code.code());
    let answer = if version >= 1 { answer.with_error_message(message.map(text)) } else { answer };
    let answer = match result.topic_id {
        Some(id) if version >= TELLS_ID => answer.with_topic_id(wire_uuid(id)),
        _ => answer,
    };
    if version < TELLS_CONFIGS {
        return answer;
    }
    let Some(created) = result.created else {
        return answer
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_configs(Some(Vec::new()));
    };
    // The configs were checked before the topic was made.
    let entries =
        describe::topic(&broker.configs.current(), &created.overrides).unwrap_or_default();
    let configs = entries.into_iter().map(|entry| {
        CreatableTopicConfigs::default()
            .with_name(text(&entry.name))
            .with_value(entry.value.as_deref().map(text))
            .with_config_source(entry.source.wire_id())
            .with_read_only(entry.is_read_only)
            .with_is_sensitive(entry.is_sensitive)
    });
    answer
        .with_num_partitions(created.partitions)
        .with_replication_factor(created.replication_factor)
        .with_configs(Some(configs.collect()))
}
