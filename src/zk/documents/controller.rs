//! `/controller` and `/controller_epoch`: who the controller is, and the how manyth.

use common::ids::{BrokerId, ControllerEpoch, Timestamp};
use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, from_text, to_json, utf8};
use crate::paths;

/// What ZooKeeper's controllers write as their KRaft epoch.
const NO_KRAFT_EPOCH: i32 = -1;

/// Who the controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerDocument {
    /// The broker.
    pub broker_id: BrokerId,
    /// When it was elected.
    pub timestamp: Timestamp,
    /// Above 0 where a KRaft controller has taken over; `None` in documents older than 3.4.
    pub kraft_epoch: Option<i32>,
}

#[derive(Serialize, Deserialize)]
#[allow(non_snake_case)] // The name in the document.
struct Wire {
    #[serde(skip_deserializing)]
    version: i32,
    brokerid: i32,
    timestamp: Option<String>,
    kraftControllerEpoch: Option<i32>,
}

impl ControllerDocument {
    /// A broker elected at `now`.
    pub fn elected(broker_id: BrokerId, now: Timestamp) -> ControllerDocument {
        ControllerDocument { broker_id, timestamp: now, kraft_epoch: Some(NO_KRAFT_EPOCH) }
    }

    /// Reads `/controller`.
    pub fn parse(data: &[u8]) -> Result<ControllerDocument, DocumentError> {
        let wire: Wire = from_json(paths::CONTROLLER, data)?;
        let timestamp = match &wire.timestamp {
            Some(text) => Timestamp(from_text(paths::CONTROLLER, "timestamp", text)?),
            None => Timestamp::NONE,
        };
        let broker_id = BrokerId(wire.brokerid);
        Ok(ControllerDocument { broker_id, timestamp, kraft_epoch: wire.kraftControllerEpoch })
    }

    /// Writes it as version 2.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(&Wire {
            version: 2,
            brokerid: self.broker_id.0,
            timestamp: Some(self.timestamp.to_string()),
            kraftControllerEpoch: Some(self.kraft_epoch.unwrap_or(NO_KRAFT_EPOCH)),
        })
    }

    /// Whether a KRaft controller has taken the cluster over.
    pub fn is_kraft(&self) -> bool {
        self.kraft_epoch.is_some_and(|epoch| epoch > 0)
    }
}

/// Reads `/controller_epoch`.
pub fn parse_epoch(data: &[u8]) -> Result<ControllerEpoch, DocumentError> {
    let text = utf8(paths::CONTROLLER_EPOCH, data)?;
    from_text(paths::CONTROLLER_EPOCH, "epoch", text).map(ControllerEpoch)
}

/// Writes `/controller_epoch`.
pub fn epoch_to_bytes(epoch: ControllerEpoch) -> Vec<u8> {
    epoch.to_string().into_bytes()
}
