//! IncrementalAlterConfigs (API key 44): changes single settings of a topic, or quotas of a broker. Source: KIP-339, `ConfigAdminManager`.

use std::collections::HashSet;

use common::error_code::ErrorCode;
use kafka_protocol::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
    incremental_alter_configs_response::AlterConfigsResourceResponse,
};

use crate::{
    broker::Broker,
    controller::configs::{Alteration, Changes, Operation, is_quota},
    handlers::config_resources::{
        AlterAnswer, Failure, ResourceType, alter_answers, check_changed_broker, named_twice,
        refuse_change, refuse_twice,
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
    let name = &*resource.resource_name;
    let has_quotas_alone = !names.is_empty() && names.iter().all(|name| is_quota(name));
    let altered = match ResourceType::of(resource.resource_type) {
        Some(ResourceType::Topic) => {
            let alteration = Alteration::Change(changes(resource)?);
            broker.controller.alter_topic_configs(name, alteration, validate_only).await
        }
        Some(ResourceType::Broker) if has_quotas_alone => {
            let id = match name {
                "" => None,
                name => check_changed_broker(broker, name).map(|()| Some(broker.id))?,
            };
            let changes = changes(resource)?;
            broker.controller.alter_broker_quotas(id, &changes, validate_only).await
        }
        _ => return Err(refuse_change(broker, resource.resource_type, name, true)),
    };
    altered.map_err(|error| Failure { code: error.code, message: error.message })
}

fn changes(resource: &AlterConfigsResource) -> Result<Changes, Failure> {
    let change = |config: &AlterableConfig| {
        // Kafka fails on a number that is no operation, without words.
        let unknown = || Failure { code: ErrorCode::UnknownServerError, message: None };
        let operation = operation(config.config_operation).ok_or_else(unknown)?;
        let value = config.value.as_ref().map(|value| value.to_string());
        Ok((config.name.to_string(), operation, value))
    };
    resource.configs.iter().map(change).collect()
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
