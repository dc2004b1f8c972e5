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
    handlers::{
        config_resources::{Failure, ResourceType, refuse_change},
        is_too_long, text,
    },
};

pub(crate) async fn handle(
    broker: &Broker,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut seen = HashSet::new();
    let mut twice = HashSet::new();
    for resource in &request.resources {
        let key = (resource.resource_type, resource.resource_name.clone());
        if !seen.insert(key.clone()) {
            twice.insert(key);
        }
    }
    let mut responses = Vec::new();
    for resource in request.resources {
        let key = (resource.resource_type, resource.resource_name.clone());
        let result = if twice.contains(&key) {
            Err(Failure::with(ErrorCode::InvalidRequest, "Each resource must appear at most once."))
        } else {
            alter(broker, &resource, request.validate_only).await
        };
        let (code, message) = match result {
            Ok(()) => (ErrorCode::None, None),
            Err(failure) => (failure.code, failure.message),
        };
        responses.push(
            AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name)
                .with_error_code(code.code())
                .with_error_message(message.as_deref().map(text)),
        );
    }
    if responses.iter().any(|response| is_too_long(response.error_message.as_ref())) {
        for response in &mut responses {
            response.error_code = ErrorCode::UnknownServerError.code();
            response.error_message = None;
        }
    }
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
