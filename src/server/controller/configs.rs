//! Changing the configs of topics, and of brokers: checked, written, and announced in `/config/changes`.
//! Source: `ZkAdminManager.alterTopicConfigs`, `ConfigAdminManager.prepareIncrementalConfigs`.

use std::sync::Arc;

use common::{
    config::{
        self,
        dynamic::{self, Scope},
        table::{self, ConfigKey, Kind},
        topic::TopicConfigError,
    },
    error_code::ErrorCode,
    properties::Properties,
    topic,
};
use controller::error::ApiError;
use tracing::info;
use zk::{configs::Entity, documents::config::Configs, paths, store::Watch};

use super::{ADMIN_LOG, ControllerHandle, fault};
use crate::{broker_configs::shown, dynamic_config};

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

/// A change of the configs of a topic or a broker.
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
                apply(&mut configs, &changes, table::topic_key)?;
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

    /// Changes the settings of this broker in ZooKeeper, or of all brokers. Source: `ZkAdminManager.alterBrokerConfigs`.
    pub(crate) async fn alter_broker_configs(
        &self,
        scope: Scope,
        alteration: Alteration,
        validate_only: bool,
    ) -> Result<(), ApiError> {
        let (zk, broker_configs) = (&*self.inner.zk, &self.inner.settings.broker_configs);
        let entity = broker_configs.entity(scope);
        let stored = zk::configs::read(zk, &entity).await.map_err(fault)?;
        let configs = match alteration {
            Alteration::Replace(configs) => configs,
            Alteration::Change(changes) => {
                let mut configs = dynamic::kept(scope, &stored);
                apply(&mut configs, &changes, table::defined_broker_key)?;
                configs
            }
        };
        let now = broker_configs.current();
        now.check_altered(scope, &stored, &configs)
            .map_err(|message| ApiError::new(ErrorCode::InvalidRequest, message))?;
        if !validate_only {
            let whose = match scope {
                Scope::This => format!("broker {}", entity.entity),
                Scope::All => "brokers".to_owned(),
            };
            info!(target: ADMIN_LOG, "Updating {whose} with new configuration : {}", shown(&configs));
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

/// Applies changes to an entity's own configs.
fn apply(
    configs: &mut Properties,
    changes: &[(String, Operation, Option<String>)],
    key: impl Fn(&str) -> Option<&'static ConfigKey>,
) -> Result<(), ApiError> {
    for (name, operation, value) in changes {
        let value = value.clone().unwrap_or_default();
        match operation {
            Operation::Set => {
                configs.insert(name.clone(), value);
            }
            Operation::Delete => {
                configs.remove(name);
            }
            Operation::Append => {
                let mut list = list(configs, name, key(name), "append")?;
                let new: Vec<String> = split(&value).filter(|item| !list.contains(item)).collect();
                // An empty list is one of no items, not of an empty one.
                if list == [""] {
                    list.clear();
                }
                list.extend(new);
                configs.insert(name.clone(), list.join(","));
            }
            Operation::Subtract => {
                let mut list = list(configs, name, key(name), "subtract")?;
                for item in split(&value) {
                    if let Some(at) = list.iter().position(|other| *other == item) {
                        list.remove(at);
                    }
                }
                configs.insert(name.clone(), list.join(","));
            }
        }
    }
    Ok(())
}

fn split(text: &str) -> impl Iterator<Item = String> {
    text.split(',').map(str::to_owned)
}

/// The list as it is, or as its default is.
fn list(
    configs: &Properties,
    name: &str,
    key: Option<&ConfigKey>,
    verb: &str,
) -> Result<Vec<String>, ApiError> {
    // Kafka fails on a key that it does not know, without words.
    let known = key.ok_or(ApiError::code(ErrorCode::UnknownServerError))?;
    if known.kind != Kind::List {
        let message = format!("Config value {verb} is not allowed for config key: {name}");
        return Err(ApiError::new(ErrorCode::InvalidConfig, message));
    }
    let text = configs.get(name).map(String::as_str).or(known.default).unwrap_or_default();
    Ok(split(text).collect())
}

#[cfg(test)]
mod tests {
    use common::{config::table, properties::Properties};

    use super::{Operation, apply};

    fn check(start: &[(&str, &str)], key: &str, operation: Operation, value: &str) -> String {
        let pairs = start.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut configs: Properties = pairs.collect();
        match apply(
            &mut configs,
            &[(key.to_owned(), operation, Some(value.to_owned()))],
            table::topic_key,
        ) {
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
