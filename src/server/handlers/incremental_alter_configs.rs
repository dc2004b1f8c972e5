//! IncrementalAlterConfigs (API key 44): changes single settings of a topic. Source: KIP-339, `ConfigAdminManager`.

use std::collections::HashSet;

use common::error_code::ErrorCode;
use kafka_protocol::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
    incremental_alter_configs_response::AlterConfigsResourceResponse,
};

use crate::{
    broker::Broker,
    controller::configs::{Alteration, Operation},
    handlers::config_resources::{
        AlterAnswer, Failure, ResourceType, alter_answers, named_twice, refuse_change, refuse_twice,
    },
};

pub(crate) async fn handle(
    broker: &Broker,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let key =
        |resource: &AlterConfigsResource| (resource.resource_type, resource.resource_name.clone());
    let twice = named_twice(request.resources.iter().map(key));
    let mut results = Vec::new();
    for resource in &request.resources {
        let key = key(resource);
        let result = match twice.contains(&key) {
            true => Err(refuse_twice()),
            false => alter(broker, resource, request.validate_only).await,
        };
        results.push((key, result));
    }
    let response = |AlterAnswer { key, code, message }| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(key.0)
            .with_resource_name(key.1)
            .with_error_code(code.code())
            .with_error_message(message)
    };
    let responses = alter_answers(results).into_iter().map(response).collect();
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

async fn alter(
    broker: &Broker,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Failure> {
    let invalid = |message: String| Failure::with(ErrorCode::InvalidRequest, message);
    let names: HashSet<_> = resource.configs.iter().map(|config| &config.name).collect();
    if names.len() < resource.configs.len() {
        return Err(invalid("Error due to duplicate config keys".to_owned()));
    }
    let needs_value = |config: &&AlterableConfig| {
        config.value.is_none() && operation(config.config_operation) != Some(Operation::Delete)
    };
    let nulls = resource.configs.iter().filter(needs_value);
    let nulls: Vec<&str> = nulls.map(|config| &*config.name).collect();
    if !nulls.is_empty() {
        return Err(invalid(format!("Null value not supported for : {}", nulls.join(", "))));
    }
    if ResourceType::of(resource.resource_type) != Some(ResourceType::Topic) {
        return Err(refuse_change(broker, resource.resource_type, &resource.resource_name, true));
    }
    let mut changes = Vec::new();
    for config in &resource.configs {
        // Kafka fails on a number that is no operation, without words.
        let Some(operation) = operation(config.config_operation) else {
            return Err(Failure { code: ErrorCode::UnknownServerError, message: None });
        };
        let value = config.value.as_ref().map(|value| value.to_string());
        changes.push((config.name.to_string(), operation, value));
    }
    let alteration = Alteration::Change(changes);
    let altered =
        broker.controller.alter_topic_configs(&resource.resource_name, alteration, validate_only);
    altered.await.map_err(|error| Failure { code: error.code, message: error.message })
}

fn operation(number: i8) -> Option<Operation> {
    match number {
        0 => Some(Operation::Set),
        1 => Some(Operation::Delete),
        2 => Some(Operation::Append),
        3 => Some(Operation::Subtract),
        _ => None,
    }
}
