//! DescribeConfigs (API key 32): settings of topics and of this broker, with where they come from.
//! Source: `ConfigHelper.describeConfigs`.

use common::{
    config::describe::{self, Entry},
    error_code::ErrorCode,
    topic,
};
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse,
    describe_configs_request::DescribeConfigsResource,
    describe_configs_response::{
        DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
    },
};

use crate::{
    broker::Broker,
    handlers::{
        config_resources::{Failure, ResourceType, check_broker_name},
        is_too_long,
        repeats::Repeats,
        text,
    },
    request_context::RequestContext,
};

/// First version that tells types and documentation. Source: KIP-569.
const TELLS_TYPES: i16 = 3;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    mut request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let mut repeats = Repeats::new();
    request
        .resources
        .retain(|asked| repeats.admit((asked.resource_type, asked.resource_name.clone())));
    let unknown =
        request.resources.iter().find(|asked| ResourceType::of(asked.resource_type).is_none());
    // A type that is not known fails the whole request.
    let refused = unknown.map(|_| Failure::of(ErrorCode::InvalidRequest));
    let mut results = Vec::new();
    for asked in &request.resources {
        let entries = match &refused {
            Some(failure) => Err(failure.clone()),
            None => entries(broker, asked).await,
        };
        results.push(answer(ctx.api_version, &request, asked, entries));
    }
    if results.iter().any(|result| is_too_long(result.error_message.as_ref())) {
        let failed = Failure::of(ErrorCode::UnknownServerError);
        let failed = |asked| answer(ctx.api_version, &request, asked, Err(failed.clone()));
        results = request.resources.iter().map(failed).collect();
    }
    DescribeConfigsResponse::default().with_results(results)
}

async fn entries(broker: &Broker, asked: &DescribeConfigsResource) -> Result<Vec<Entry>, Failure> {
    let name = &*asked.resource_name;
    match ResourceType::of(asked.resource_type) {
        Some(ResourceType::Topic) => {
            topic::check_topic_name(name).map_err(|error| {
                Failure::with(ErrorCode::InvalidTopicException, error.to_string())
            })?;
            if broker.metadata.load().topic(name).is_none() {
                return Err(Failure::with(ErrorCode::UnknownTopicOrPartition, ""));
            }
            let overrides = broker.topic_overrides(name).await;
            describe::topic(&broker.configs.current(), &overrides)
                .map_err(|error| Failure::with(ErrorCode::InvalidConfig, error.message))
        }
        Some(ResourceType::Broker) if name.is_empty() => {
            Ok(describe::all_brokers(&broker.configs.current()))
        }
        Some(ResourceType::Broker) => {
            check_broker_name(broker, name, " or empty string,")?;
            Ok(describe::broker(&broker.configs.current()))
        }
        Some(ResourceType::BrokerLogger) if name.is_empty() => {
            Err(Failure::with(ErrorCode::InvalidRequest, "Broker id must not be empty"))
        }
        Some(ResourceType::BrokerLogger) => {
            check_broker_name(broker, name, "")?;
            Ok(Vec::new())
        }
        Some(ResourceType::ClientMetrics) if name.is_empty() => Err(Failure::with(
            ErrorCode::InvalidRequest,
            "Client metrics subscription name must not be empty",
        )),
        Some(ResourceType::ClientMetrics) => Err(Failure::with(
            ErrorCode::InvalidRequest,
            "Config type client-metrics is only supported on KRaft clusters",
        )),
        None => Err(Failure::of(ErrorCode::InvalidRequest)),
    }
}

fn answer(
    version: i16,
    request: &DescribeConfigsRequest,
    asked: &DescribeConfigsResource,
    entries: Result<Vec<Entry>, Failure>,
) -> DescribeConfigsResult {
    let result = DescribeConfigsResult::default()
        .with_resource_type(asked.resource_type)
        .with_resource_name(asked.resource_name.clone());
    let entries = match entries {
        Ok(entries) => entries,
        Err(failure) => {
            return result
                .with_error_code(failure.code.code())
                .with_error_message(failure.message.as_deref().map(text));
        }
    };
    let wanted = |entry: &Entry| match &asked.configuration_keys {
        Some(keys) if !keys.is_empty() => keys.iter().any(|key| **key == entry.name),
        _ => true,
    };
    let configs = entries.into_iter().filter(wanted);
    result.with_configs(configs.map(|entry| config(version, request, entry)).collect())
}

fn config(
    version: i16,
    request: &DescribeConfigsRequest,
    entry: Entry,
) -> DescribeConfigsResourceResult {
    let result = DescribeConfigsResourceResult::default()
        .with_name(text(&entry.name))
        .with_value(entry.value.as_deref().map(text))
        .with_read_only(entry.is_read_only)
        .with_is_sensitive(entry.is_sensitive);
    if version == 0 {
        // Kafka leaves `is_default` false.
        return result;
    }
    let result = result.with_config_source(entry.source.wire_id());
    let synonyms = entry.synonyms.iter().filter(|_| request.include_synonyms).map(|synonym| {
        DescribeConfigsSynonym::default()
            .with_name(text(&synonym.name))
            .with_value(synonym.value.as_deref().map(text))
            .with_source(synonym.source.wire_id())
    });
    let result = result.with_synonyms(synonyms.collect());
    if version < TELLS_TYPES {
        return result;
    }
    let documentation = entry.documentation.filter(|_| request.include_documentation);
    result.with_config_type(entry.kind_wire_id()).with_documentation(documentation.map(text))
}
