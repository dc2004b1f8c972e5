//! AlterConfigs (API key 33): replaces all settings of a topic, a broker or all brokers. Source: `ZkAdminManager.alterConfigs`.

use common::properties::Properties;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, alter_configs_request::AlterConfigsResource,
    alter_configs_response::AlterConfigsResourceResponse,
};

use crate::{
    broker::Broker,
    controller::configs::Alteration,
    handlers::config_resources::{
        AlterAnswer, Altered, Changed, Failure, ResourceKey, alter_each, check_settings,
    },
};

pub(crate) async fn handle(broker: &Broker, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let answers = alter_each(broker, &request.resources, request.validate_only).await;
    let response = |AlterAnswer { key, code, message }| {
        AlterConfigsResourceResponse::default()
            .with_resource_type(key.0)
            .with_resource_name(key.1)
            .with_error_code(code.code())
            .with_error_message(message)
    };
    AlterConfigsResponse::default().with_responses(answers.into_iter().map(response).collect())
}

impl Altered for AlterConfigsResource {
    const LOGGERS: bool = false;

    fn key(&self) -> ResourceKey {
        (self.resource_type, self.resource_name.clone())
    }

    fn check(&self) -> Result<(), Failure> {
        check_settings(self.configs.iter().map(|config| (&config.name, config.value.is_none())))
    }

    fn alteration(&self, _: &Changed) -> Result<Alteration, Failure> {
        let set = self.configs.iter().filter_map(|config| {
            Some((config.name.to_string(), config.value.as_ref()?.to_string()))
        });
        Ok(Alteration::Replace(set.collect::<Properties>()))
    }
}
