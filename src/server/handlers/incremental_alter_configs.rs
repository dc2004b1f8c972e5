//! IncrementalAlterConfigs (API key 44): changes single settings of a topic, a broker or all brokers. Source: KIP-339, `ConfigAdminManager`.

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
        AlterAnswer, Altered, Changed, Failure, ResourceKey, alter_each, check_settings,
    },
};

pub(crate) async fn handle(
    broker: &Broker,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let answers = alter_each(broker, &request.resources, request.validate_only).await;
    let response = |AlterAnswer { key, code, message }| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(key.0)
            .with_resource_name(key.1)
            .with_error_code(code.code())
            .with_error_message(message)
    };
    let responses = answers.into_iter().map(response).collect();
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

impl Altered for AlterConfigsResource {
    const LOGGERS: bool = true;

    fn key(&self) -> ResourceKey {
        (self.resource_type, self.resource_name.clone())
    }

    fn check(&self) -> Result<(), Failure> {
        let lacks_value = |config: &AlterableConfig| {
            config.value.is_none() && operation(config.config_operation) != Some(Operation::Delete)
        };
        check_settings(self.configs.iter().map(|config| (&config.name, lacks_value(config))))
    }

    fn alteration(&self, changed: &Changed) -> Result<Alteration, Failure> {
        let unknown = |number| match changed {
            // Kafka fails on a number that is no operation, without words.
            Changed::Topic => Failure { code: ErrorCode::UnknownServerError, message: None },
            Changed::Brokers(_) => Failure::with(
                ErrorCode::InvalidRequest,
                format!("Unknown operations type {number}"),
            ),
        };
        Ok(Alteration::Change(changes(self, unknown)?))
    }
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
