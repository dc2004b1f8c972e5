//! AlterConfigs (API key 33): replaces all settings of a topic, a broker or all brokers. Source: `ZkAdminManager.alterConfigs`.

use std::collections::HashSet;

use common::{error_code::ErrorCode, properties::Properties};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, alter_configs_request::AlterConfigsResource,
    alter_configs_response::AlterConfigsResourceResponse,
};

use crate::{
    broker::Broker,
    controller::configs::Alteration,
    handlers::config_resources::{
        AlterAnswer, Changed, Failure, alter_answers, changed, named_twice, refuse_twice,
    },
};

pub(crate) async fn handle(broker: &Broker, request: AlterConfigsRequest) -> AlterConfigsResponse {
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
    AlterConfigsResponse::default().with_responses(responses)
}

async fn alter(
    broker: &Broker,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Failure> {
    let invalid = |message: &str| Failure::with(ErrorCode::InvalidRequest, message);
    let names: HashSet<_> = resource.configs.iter().map(|config| &config.name).collect();
    if names.len() < resource.configs.len() {
        return Err(invalid("Error due to duplicate config keys"));
    }
    let nulls = resource.configs.iter().filter(|config| config.value.is_none());
    let nulls: Vec<&str> = nulls.map(|config| &*config.name).collect();
    if !nulls.is_empty() {
        return Err(invalid(&format!("Null value not supported for : {}", nulls.join(", "))));
    }
    let name = &*resource.resource_name;
    let changed = changed(broker, resource.resource_type, name, false)?;
    let set = resource
        .configs
        .iter()
        .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())));
    let configs: Properties = set.collect();
    let alteration = Alteration::Replace(configs);
    let controller = &broker.controller;
    let altered = match changed {
        Changed::Topic => controller.alter_topic_configs(name, alteration, validate_only).await,
        Changed::Brokers(scope) => {
            controller.alter_broker_configs(scope, alteration, validate_only).await
        }
    };
    altered.map_err(|error| Failure { code: error.code, message: error.message })
}
