//! Notices: what a broker puts into a sequential znode so that others look. ISR changes are in `admin`.

use common::ids::BrokerId;
use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, to_json, utf8};

/// The only event there is: a log directory failed.
const LOG_DIR_FAILURE: i32 = 1;

#[derive(Serialize, Deserialize)]
struct LogDirEvent {
    #[serde(skip_deserializing)]
    version: i32,
    broker: i32,
    #[serde(skip_deserializing)]
    event: i32,
}

/// Reads `/log_dir_event_notification/*`: the broker whose log directory failed.
pub fn parse_log_dir_event(path: &str, data: &[u8]) -> Result<BrokerId, DocumentError> {
    let event: LogDirEvent = from_json(path, data)?;
    Ok(BrokerId(event.broker))
}

/// Writes `/log_dir_event_notification/*`.
pub fn log_dir_event_to_bytes(broker: BrokerId) -> Vec<u8> {
    to_json(&LogDirEvent { version: 1, broker: broker.0, event: LOG_DIR_FAILURE })
}

/// `/config/changes/*`: whose config changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// `topics`, `clients`, `users`, `brokers` or `ips`.
    pub entity_type: String,
    /// The entity as it stands in the path after the type, sanitized: `t`, `<default>`, `alice/clients/c1`.
    pub entity: String,
}

#[derive(Serialize, Deserialize)]
struct ConfigChangeWire {
    version: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    entity_path: Option<String>,
    #[serde(skip_serializing)]
    entity_type: Option<String>,
    #[serde(skip_serializing)]
    entity_name: Option<String>,
}

impl ConfigChange {
    /// Reads version 1 and 2.
    pub fn parse(path: &str, data: &[u8]) -> Result<ConfigChange, DocumentError> {
        let wire: ConfigChangeWire = from_json(path, data)?;
        let fail = |reason: String| Err(DocumentError::new(path, reason));
        let (entity_type, entity) = match wire.version {
            1 => match (wire.entity_type, wire.entity_name) {
                (Some(entity_type), Some(name))
                    if matches!(entity_type.as_str(), "topics" | "clients") =>
                {
                    (entity_type, name)
                }
                _ => return fail("version 1 must name a topic or client".to_owned()),
            },
            2 => {
                let entity_path = wire.entity_path.unwrap_or_default();
                match entity_path.split_once('/') {
                    Some((
                        entity_type @ ("topics" | "clients" | "users" | "brokers" | "ips"),
                        entity,
                    )) => (entity_type.to_owned(), entity.to_owned()),
                    _ => return fail(format!("entity_path \"{entity_path}\"")),
                }
            }
            other => return fail(format!("unsupported version {other}")),
        };
        Ok(ConfigChange { entity_type, entity })
    }

    /// Writes version 2.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(&ConfigChangeWire {
            version: 2,
            entity_path: Some(format!("{}/{}", self.entity_type, self.entity)),
            entity_type: None,
            entity_name: None,
        })
    }
}

/// Reads `/delegation_token/token_changes/*`: the token's id.
pub fn parse_token_change(path: &str, data: &[u8]) -> Result<String, DocumentError> {
    match utf8(path, data)? {
        "" => Err(DocumentError::new(path, "no data")),
        token_id => Ok(token_id.to_owned()),
    }
}
