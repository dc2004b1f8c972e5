//! IncrementalAlterConfigs (API key 44): changes single settings of a topic, a broker or all brokers. Source: KIP-339, `ConfigAdminManager`.

use std::collections::HashSet;

use common::error_code::ErrorCode;
use kafka_protocol::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
    incremental_alter_configs_response::AlterConfigsResourceResponse,
};

use crate::{
    broker::Broker,
    controller::configs::{Alteration, Changes, Operation},
    handlers::config_resources::{
        AlterAnswer, Changed, Failure, alter_answers, changed, named_twice, refuse_twice,
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
    let (controller, name) = (&broker.controller, &*resource.resource_name);
    let altered = match changed(broker, resource.resource_type, name, true)? {
        Changed::Topic => {
            // Kafka fails on a number that is no operation, without words.
            let unknown = |_| Failure { code: ErrorCode::UnknownServerError, message: None };
            let alteration = Alteration::Change(changes(resource, unknown)?);
            controller.alter_topic_configs(name, alteration, validate_only).await
        }
        Changed::Brokers(scope) => {
            let unknown = |number| invalid(format!("Unknown operations type {number}"));
            let alteration = Alteration::Change(changes(resource, unknown)?);
            controller.alter_broker_configs(scope, alteration, validate_only).await
        }
    };
    altered.map_err(|error| Failure { code: error.code, message: error.message })
}

/// The changes of a resource; `unknown` says what is wrong with a number that is no operation.
fn changes(
    resource: &AlterConfigsResource,
    unknown: impl Fn(i8) -> Failure,
) -> Result<Changes, Failure> {
    let change = |config: &AlterableConfig| {
        let number = config.config_operation;
        let operation = operation(number).ok_or_else(|| unknown(number))?;
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
