//! AlterConfigs (API key 33): replaces all settings of a topic. Source: `ZkAdminManager.alterConfigs`.

use std::collections::HashSet;

use common::{error_code::ErrorCode, properties::Properties};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, alter_configs_request::AlterConfigsResource,
    alter_configs_response,
};

use crate::{
    broker::Broker,
    controller::configs::Alteration,
    handlers::{
        config_resources::{Failure, ResourceType, refuse_change},
        is_too_long, text,
    },
};

pub(crate) async fn handle(broker: &Broker, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let mut responses = Vec::new();
    let mut seen = HashSet::new();
    let mut twice = HashSet::new();
    for resource in &request.resources {
        let key = (resource.resource_type, resource.resource_name.clone());
        if !seen.insert(key.clone()) {
            twice.insert(key);
        }
    }
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
            alter_configs_response::AlterConfigsResourceResponse::default()
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
    if ResourceType::of(resource.resource_type) != Some(ResourceType::Topic) {
        return Err(refuse_change(broker, resource.resource_type, &resource.resource_name, false));
    }
    let set = resource
        .configs
        .iter()
        .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())));
    let configs: Properties = set.collect();
    let alteration = Alteration::Replace(configs);
    let altered =
        broker.controller.alter_topic_configs(&resource.resource_name, alteration, validate_only);
    altered.await.map_err(|error| Failure { code: error.code, message: error.message })
}
