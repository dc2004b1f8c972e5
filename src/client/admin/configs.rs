//! Configs of topics and brokers.

use std::collections::BTreeMap;

use kafka_protocol::messages::{
    DescribeConfigsRequest, IncrementalAlterConfigsRequest,
    describe_configs_request::DescribeConfigsResource,
    incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
};

use super::{Admin, Target, outcome, text};
use crate::error::ClientError;

/// What has configs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResource {
    /// A topic, by name.
    Topic(String),
    /// A broker; none is the cluster's default.
    Broker(Option<i32>),
}

/// A config and where its value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// None for a secret.
    pub value: Option<String>,
    /// `ConfigSource` of the protocol: 1 topic, 2 broker, 3 cluster default, 4 file, 5 default, 6 logger.
    pub source: i8,
    /// Whether it is a secret.
    pub is_sensitive: bool,
    /// Whether only the file can change it.
    pub is_read_only: bool,
    /// Name, value and source of what it would be otherwise, nearest first.
    pub synonyms: Vec<(String, Option<String>, i8)>,
}

/// A change of one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterOperation {
    /// Give it this value.
    Set(String),
    /// Go back to the default.
    Delete,
    /// Add to a list.
    Append(String),
    /// Take from a list.
    Subtract(String),
}

/// `ConfigSource.DEFAULT_CONFIG`.
const DEFAULT_SOURCE: i8 = 5;

impl ConfigEntry {
    /// Whether nobody set it.
    pub fn is_default(&self) -> bool {
        self.source == DEFAULT_SOURCE
    }
}

impl ConfigResource {
    /// Type and name on the wire.
    fn on_wire(&self) -> (i8, String) {
        match self {
            ConfigResource::Topic(name) => (2, name.clone()),
            ConfigResource::Broker(id) => (4, id.map_or(String::new(), |id| id.to_string())),
        }
    }

    /// Only a broker itself knows its configs.
    fn target(&self) -> Target {
        match self {
            ConfigResource::Topic(_) | ConfigResource::Broker(None) => Target::Any,
            ConfigResource::Broker(Some(id)) => Target::Broker(*id),
        }
    }
}

impl Admin {
    /// All configs of a resource, in the broker's order.
    pub async fn describe_configs(
        &self,
        resource: &ConfigResource,
    ) -> Result<Vec<ConfigEntry>, ClientError> {
        let (kind, name) = resource.on_wire();
        self.run("describeConfigs", resource.target(), async |attempt| {
            let wanted = DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(&name))
                .with_configuration_keys(None);
            let request = DescribeConfigsRequest::default()
                .with_resources(vec![wanted])
                .with_include_synonyms(true);
            let response = attempt.call(request, i16::MAX).await?;
            let mut entries = Vec::new();
            for result in &response.results {
                outcome(result.error_code, result.error_message.as_ref())?;
                entries.extend(result.configs.iter().map(|config| {
                    ConfigEntry {
                        name: config.name.to_string(),
                        value: config.value.as_ref().map(|value| value.to_string()),
                        // Version 0 has a flag in place of the source.
                        source: if config.is_default {
                            DEFAULT_SOURCE
                        } else {
                            config.config_source
                        },
                        is_sensitive: config.is_sensitive,
                        is_read_only: config.read_only,
                        synonyms: config
                            .synonyms
                            .iter()
                            .map(|synonym| {
                                let value = synonym.value.as_ref().map(|value| value.to_string());
                                (synonym.name.to_string(), value, synonym.source)
                            })
                            .collect(),
                    }
                }));
            }
            Ok(entries)
        })
        .await
    }

    /// Changes configs of one resource, all or none.
    pub async fn alter_configs(
        &self,
        resource: &ConfigResource,
        changes: &BTreeMap<String, AlterOperation>,
    ) -> Result<(), ClientError> {
        let (kind, name) = resource.on_wire();
        let configs: Vec<AlterableConfig> = changes
            .iter()
            .map(|(name, operation)| {
                let (number, value) = match operation {
                    AlterOperation::Set(value) => (0, Some(value)),
                    AlterOperation::Delete => (1, None),
                    AlterOperation::Append(value) => (2, Some(value)),
                    AlterOperation::Subtract(value) => (3, Some(value)),
                };
                AlterableConfig::default()
                    .with_name(text(name))
                    .with_config_operation(number)
                    .with_value(value.map(|value| text(value)))
            })
            .collect();
        self.run("incrementalAlterConfigs", resource.target(), async |attempt| {
            let resource = AlterConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(&name))
                .with_configs(configs.clone());
            let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
            let response = attempt.call(request, i16::MAX).await?;
            // What the broker says of the resource is final, whatever it is.
            Ok(response
                .responses
                .iter()
                .try_for_each(|result| outcome(result.error_code, result.error_message.as_ref())))
        })
        .await?
    }
}
