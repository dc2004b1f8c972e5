//! Changing the configs of topics, and the quotas of brokers: checked, written, and announced in `/config/changes`.
//! Source: `ZkAdminManager.alterTopicConfigs`, `ConfigAdminManager.prepareIncrementalConfigs`.

use std::sync::Arc;

use common::{
    config::{
        self,
        describe::BROKER_QUOTAS,
        table::{self, Kind},
        topic::TopicConfigError,
        value::{ConfigError, Value},
    },
    error_code::ErrorCode,
    ids::BrokerId,
    properties::Properties,
    topic,
};
use controller::error::ApiError;
use tracing::info;
use zk::{configs::Entity, documents::config::Configs, paths, store::Watch};

use super::{ADMIN_LOG, ControllerHandle, fault};
use crate::dynamic_config;

/// What is to be done to a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Give it this value.
    Set,
    /// Take away its value.
    Delete,
    /// Add to a list what is not in it.
    Append,
    /// Take from a list.
    Subtract,
}

/// Changes one by one. The value of a `Delete` does not matter.
pub type Changes = Vec<(String, Operation, Option<String>)>;

/// A change of a topic's configs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// These are all; AlterConfigs.
    Replace(Properties),
    /// These change; IncrementalAlterConfigs.
    Change(Changes),
}

fn does_not_exist(name: &str, article: &str) -> ApiError {
    let message = format!("{article}opic '{name}' does not exist.");
    ApiError::new(ErrorCode::UnknownTopicOrPartition, message)
}

impl ControllerHandle {
    /// Changes a topic's configs, on any broker.
    pub async fn alter_topic_configs(
        &self,
        name: &str,
        alteration: Alteration,
        validate_only: bool,
    ) -> Result<(), ApiError> {
        if name.is_empty() {
            let message = "Default topic resources are not allowed.";
            return Err(ApiError::new(ErrorCode::InvalidRequest, message));
        }
        let zk = &*self.inner.zk;
        let entity = Entity::new("topics", name);
        let legal = topic::check_topic_name(name);
        let overrides = match alteration {
            Alteration::Replace(configs) => configs,
            Alteration::Change(changes) => {
                let mut configs = match legal.is_ok() {
                    true => zk::configs::read(zk, &entity).await.map_err(fault)?,
                    false => Properties::new(),
                };
                apply(&mut configs, &changes)?;
                configs
            }
        };
        if self.inner.metadata.load().topic(name).is_none() {
            return Err(does_not_exist(name, "The t"));
        }
        if let Err(error) = &legal {
            return Err(ApiError::new(ErrorCode::InvalidTopicException, error.to_string()));
        }
        if zk.exists(&paths::topic(name), Watch::No).await.map_err(fault)?.is_none() {
            return Err(does_not_exist(name, "T"));
        }
        self.check_topic_configs(name, &overrides)?;
        if !validate_only {
            info!(target: ADMIN_LOG, "Updating topic {name} with new configuration : {overrides:?}");
            zk::configs::change(zk, &entity, &overrides).await.map_err(fault)?;
        }
        Ok(())
    }

    /// Changes the quotas of a broker, or of all that have none of their own; see `is_quota`. Source:
    /// `ZkAdminManager.alterBrokerConfigs`.
    pub(crate) async fn alter_broker_quotas(
        &self,
        broker: Option<BrokerId>,
        changes: &Changes,
        validate_only: bool,
    ) -> Result<(), ApiError> {
        let zk = &*self.inner.zk;
        let name = broker.map_or(String::new(), |id| id.to_string());
        let entity = match broker {
            Some(_) => Entity::new("brokers", name.as_str()),
            None => Entity::new("brokers", paths::DEFAULT_ENTITY),
        };
        let mut configs = zk::configs::read(zk, &entity).await.map_err(fault)?;
        apply(&mut configs, changes)?;
        for (key, value) in configs.iter().filter(|(key, _)| is_quota(key)) {
            check_quota(key, value).map_err(|error| {
                let message = format!(
                    "Invalid config value for resource ConfigResource(type=BROKER, name='{name}'): {}",
                    error.message
                );
                ApiError::new(ErrorCode::InvalidConfig, message)
            })?;
        }
        if !validate_only {
            info!(target: ADMIN_LOG, "Updating {} with new configuration : {configs:?}", match broker {
                Some(id) => format!("broker {id}"),
                None => "brokers".to_owned(),
            });
            zk::configs::change(zk, &entity, &configs).await.map_err(fault)?;
        }
        Ok(())
    }

    /// Applies changed configs, and tells the controller of topics that may be led by replicas out of sync from now on: one,
    /// or all that do not say themselves. Source: `TopicConfigHandler`, `DynamicLogConfig`.
    pub(crate) fn told_of(&self, apply: Arc<dynamic_config::Apply>) -> Arc<dynamic_config::Apply> {
        let controller = self.clone();
        Arc::new(move |entity: &Entity, configs: &Configs| {
            let by_default = || {
                let current = controller.inner.settings.broker_configs.current();
                current.unclean_leader_election_enable
            };
            let was_allowed = by_default();
            apply(entity, configs);
            if by_default() && !was_allowed {
                controller.unclean_elections_enabled(None);
            }
            let value = configs.get("unclean.leader.election.enable");
            let allowed = value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
            if allowed && entity.entity_type == "topics" {
                controller.unclean_elections_enabled(Some(&entity.entity));
            }
        })
    }

    fn check_topic_configs(&self, name: &str, overrides: &Properties) -> Result<(), ApiError> {
        let current = self.inner.settings.broker_configs.current();
        config::topic::validate(&current, overrides).map_err(|error| {
            let message = match error {
                TopicConfigError::Conflict(message) => message,
                TopicConfigError::Value(error) => format!(
                    "Invalid config value for resource ConfigResource(type=TOPIC, name='{name}'): {}",
                    error.message
                ),
            };
            ApiError::new(ErrorCode::InvalidConfig, message)
        })
    }
}

/// Whether a config of a broker is a rate of what is copied between or within brokers. Others cannot be changed while the
/// broker runs, not yet.
pub(crate) fn is_quota(key: &str) -> bool {
    BROKER_QUOTAS.contains(&key)
}

fn check_quota(name: &str, value: &str) -> Result<(), ConfigError> {
    let Some(key) = table::broker_key(name) else { return Ok(()) };
    key.valid.check(name, Some(&Value::parse(key, value)?))
}

/// Applies changes to an entity's own configs.
fn apply(
    configs: &mut Properties,
    changes: &[(String, Operation, Option<String>)],
) -> Result<(), ApiError> {
    for (key, operation, value) in changes {
        let value = value.clone().unwrap_or_default();
        match operation {
            Operation::Set => {
                configs.insert(key.clone(), value);
            }
            Operation::Delete => {
                configs.remove(key);
            }
            Operation::Append => {
                let mut list = list(configs, key, "append")?;
                let new: Vec<String> = split(&value).filter(|item| !list.contains(item)).collect();
                // An empty list is one of no items, not of an empty one.
                if list == [""] {
                    list.clear();
                }
                list.extend(new);
                configs.insert(key.clone(), list.join(","));
            }
            Operation::Subtract => {
                let mut list = list(configs, key, "subtract")?;
                for item in split(&value) {
                    if let Some(at) = list.iter().position(|other| *other == item) {
                        list.remove(at);
                    }
                }
                configs.insert(key.clone(), list.join(","));
            }
        }
    }
    Ok(())
}

fn split(text: &str) -> impl Iterator<Item = String> {
    text.split(',').map(str::to_owned)
}

/// The list as it is, or as its default is.
fn list(configs: &Properties, key: &str, verb: &str) -> Result<Vec<String>, ApiError> {
    // Kafka fails on a key that it does not know, without words.
    let known = table::topic_key(key).ok_or(ApiError::code(ErrorCode::UnknownServerError))?;
    if known.kind != Kind::List {
        let message = format!("Config value {verb} is not allowed for config key: {key}");
        return Err(ApiError::new(ErrorCode::InvalidConfig, message));
    }
    let text = configs.get(key).map(String::as_str).or(known.default).unwrap_or_default();
    Ok(split(text).collect())
}

#[cfg(test)]
mod tests {
    use common::properties::Properties;

    use super::{Operation, apply};

    fn check(start: &[(&str, &str)], key: &str, operation: Operation, value: &str) -> String {
        let pairs = start.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut configs: Properties = pairs.collect();
        match apply(&mut configs, &[(key.to_owned(), operation, Some(value.to_owned()))]) {
            Ok(()) => format!("{configs:?}"),
            Err(error) => format!("{} {}", error.code, error.message.unwrap_or_default()),
        }
    }

    #[test]
    fn values_are_set_and_deleted() {
        assert_eq!(check(&[], "a", Operation::Set, "1"), r#"{"a": "1"}"#);
        assert_eq!(check(&[("a", "1")], "a", Operation::Delete, ""), "{}");
    }

    #[test]
    fn lists_grow_and_shrink() {
        let (append, subtract) = (Operation::Append, Operation::Subtract);
        let key = "cleanup.policy";
        assert_eq!(check(&[], key, append, "compact"), r#"{"cleanup.policy": "delete,compact"}"#);
        assert_eq!(check(&[], key, append, "delete"), r#"{"cleanup.policy": "delete"}"#);
        let both = [(key, "compact,delete")];
        assert_eq!(check(&both, key, subtract, "compact"), r#"{"cleanup.policy": "delete"}"#);
        let empty = "leader.replication.throttled.replicas";
        assert_eq!(
            check(&[], empty, append, "0:1"),
            r#"{"leader.replication.throttled.replicas": "0:1"}"#
        );
        assert_eq!(
            check(&[], "retention.ms", append, "1"),
            "INVALID_CONFIG Config value append is not allowed for config key: retention.ms"
        );
        assert_eq!(check(&[], "no.such", append, "1"), "UNKNOWN_SERVER_ERROR ");
    }
}
