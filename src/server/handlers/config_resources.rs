//! What the requests on configs share: their resources, and why one is refused.

use std::collections::HashSet;

use common::{config::dynamic::Scope, error_code::ErrorCode};
use kafka_protocol::protocol::StrBytes;

use crate::{
    broker::Broker,
    controller::configs::Alteration,
    handlers::{is_too_long, text},
};

/// What has configs. Source: `ConfigResource.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceType {
    Topic,
    Broker,
    BrokerLogger,
    ClientMetrics,
}

impl ResourceType {
    /// The type of a number on the wire.
    pub(crate) fn of(number: i8) -> Option<ResourceType> {
        match number {
            2 => Some(ResourceType::Topic),
            4 => Some(ResourceType::Broker),
            8 => Some(ResourceType::BrokerLogger),
            16 => Some(ResourceType::ClientMetrics),
            _ => None,
        }
    }
}

/// Why a resource is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub code: ErrorCode,
    pub message: Option<String>,
}

impl Failure {
    /// A code with Kafka's general text for it.
    pub(crate) fn of(code: ErrorCode) -> Failure {
        Failure { code, message: Some(code.message().to_owned()) }
    }

    /// A code with a text of its own.
    pub(crate) fn with(code: ErrorCode, message: impl Into<String>) -> Failure {
        Failure { code, message: Some(message.into()) }
    }
}

/// The type and the name of a resource in a request.
pub(crate) type ResourceKey = (i8, StrBytes);

/// What an alteration answers for one resource.
pub(crate) struct AlterAnswer {
    pub key: ResourceKey,
    pub code: ErrorCode,
    pub message: Option<StrBytes>,
}

/// A resource of a request that alters settings.
pub(crate) trait Altered {
    /// Whether levels of loggers have words of their own in the refusal.
    const LOGGERS: bool;

    /// Its type and its name.
    fn key(&self) -> ResourceKey;

    /// Refuses what no resource may have.
    fn check(&self) -> Result<(), Failure>;

    /// What is to be altered.
    fn alteration(&self, changed: &Changed) -> Result<Alteration, Failure>;
}

/// Alters the resources of a request, of which each may be named once. The answers are in their order; one message that no
/// answer can carry fails all of them.
pub(crate) async fn alter_each<R: Altered>(
    broker: &Broker,
    resources: &[R],
    validate_only: bool,
) -> Vec<AlterAnswer> {
    let mut seen = HashSet::new();
    let keys = resources.iter().map(R::key);
    let twice: HashSet<ResourceKey> = keys.filter(|key| !seen.insert(key.clone())).collect();
    let mut answers = Vec::new();
    for resource in resources {
        let key = resource.key();
        let altered = match twice.contains(&key) {
            true => Err(Failure::with(
                ErrorCode::InvalidRequest,
                "Each resource must appear at most once.",
            )),
            false => alter(broker, resource, validate_only).await,
        };
        answers.push(match altered {
            Ok(()) => AlterAnswer { key, code: ErrorCode::None, message: None },
            Err(Failure { code, message }) => {
                AlterAnswer { key, code, message: message.as_deref().map(text) }
            }
        });
    }
    if answers.iter().any(|answer| is_too_long(answer.message.as_ref())) {
        for answer in &mut answers {
            answer.code = ErrorCode::UnknownServerError;
            answer.message = None;
        }
    }
    answers
}

async fn alter<R: Altered>(
    broker: &Broker,
    resource: &R,
    validate_only: bool,
) -> Result<(), Failure> {
    resource.check()?;
    let (resource_type, name) = resource.key();
    let changed = changed(broker, resource_type, &name, R::LOGGERS)?;
    let alteration = resource.alteration(&changed)?;
    let controller = &broker.controller;
    let altered = match changed {
        Changed::Topic => controller.alter_topic_configs(&name, alteration, validate_only).await,
        Changed::Brokers(scope) => {
            controller.alter_broker_configs(scope, alteration, validate_only).await
        }
    };
    altered.map_err(|error| Failure { code: error.code, message: error.message })
}

/// Refuses settings that are named twice, and ones without the value that they need. Each comes with its name, and whether
/// it lacks one.
pub(crate) fn check_settings<'a>(
    settings: impl Iterator<Item = (&'a StrBytes, bool)>,
) -> Result<(), Failure> {
    let invalid = |message: String| Failure::with(ErrorCode::InvalidRequest, message);
    let (mut names, mut nulls) = (HashSet::new(), Vec::new());
    for (name, lacks_value) in settings {
        if !names.insert(name) {
            return Err(invalid("Error due to duplicate config keys".to_owned()));
        }
        if lacks_value {
            nulls.push(&**name);
        }
    }
    if !nulls.is_empty() {
        return Err(invalid(format!("Null value not supported for : {}", nulls.join(", "))));
    }
    Ok(())
}

/// A broker's resource is named by its id, and asked of that broker. `or` is what Kafka's text adds to the id.
pub(crate) fn check_broker_name(broker: &Broker, name: &str, or: &str) -> Result<(), Failure> {
    check_id(broker, name, "Broker", or)
}

/// The same for a change, where Kafka has other words.
fn check_changed_broker(broker: &Broker, name: &str) -> Result<(), Failure> {
    check_id(broker, name, "Node", ",")
}

fn check_id(broker: &Broker, name: &str, kind: &str, or: &str) -> Result<(), Failure> {
    let invalid = |message: String| Failure::with(ErrorCode::InvalidRequest, message);
    let id: i32 = name
        .parse()
        .map_err(|_| invalid(format!("{kind} id must be an integer, but it is: {name}")))?;
    if id != broker.id.0 {
        let expected = broker.id;
        return Err(invalid(format!(
            "Unexpected broker id, expected {expected}{or} but received {name}"
        )));
    }
    Ok(())
}

/// Whose configs a change is about.
pub(crate) enum Changed {
    /// A topic's.
    Topic,
    /// Of this broker, or of all.
    Brokers(Scope),
}

/// Whose configs a change is about, or why it is refused: levels of loggers cannot be changed while the broker runs, not
/// yet. Source: `ConfigAdminManager.preprocess`.
fn changed(
    broker: &Broker,
    resource_type: i8,
    name: &str,
    loggers: bool,
) -> Result<Changed, Failure> {
    let invalid = |message: String| Err(Failure::with(ErrorCode::InvalidRequest, message));
    match ResourceType::of(resource_type) {
        Some(ResourceType::Topic) => Ok(Changed::Topic),
        Some(ResourceType::Broker) if name.is_empty() => Ok(Changed::Brokers(Scope::All)),
        Some(ResourceType::Broker) => {
            check_changed_broker(broker, name)?;
            Ok(Changed::Brokers(Scope::This))
        }
        Some(ResourceType::BrokerLogger) if loggers => {
            check_changed_broker(broker, name)?;
            invalid("AlterConfigs is only supported for topics and brokers, but resource type is BROKER_LOGGER".to_owned())
        }
        Some(ResourceType::ClientMetrics) => {
            invalid("AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS".to_owned())
        }
        Some(ResourceType::BrokerLogger) | None => {
            invalid(format!("Unknown resource type {resource_type}"))
        }
    }
}
