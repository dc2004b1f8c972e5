//! `/cluster/id`: the cluster's id; and `/migration`, which tells that the cluster is leaving ZooKeeper.

use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, to_json};
use crate::paths;

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(skip_deserializing)]
    version: String,
    id: String,
}

/// Reads the cluster's id; any text, for old clusters chose their own.
pub fn parse_cluster_id(data: &[u8]) -> Result<String, DocumentError> {
    let wire: Wire = from_json(paths::CLUSTER_ID, data)?;
    Ok(wire.id)
}

/// Writes the cluster's id.
pub fn cluster_id_to_bytes(id: &str) -> Vec<u8> {
    to_json(&Wire { version: "1".to_owned(), id: id.to_owned() })
}

/// How far a KRaft controller has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationDocument {
    /// Version of the document: 0.
    pub version: i32,
    /// The KRaft controller.
    pub kraft_controller_id: i32,
    /// Its epoch.
    pub kraft_controller_epoch: i32,
    /// What of the metadata log is in ZooKeeper.
    pub kraft_metadata_offset: i64,
    /// The epoch of that offset.
    pub kraft_metadata_epoch: i32,
}

impl MigrationDocument {
    /// Reads `/migration`.
    pub fn parse(data: &[u8]) -> Result<MigrationDocument, DocumentError> {
        let document: MigrationDocument = from_json(paths::MIGRATION, data)?;
        if document.version != 0 {
            let reason = format!("unsupported version {}", document.version);
            return Err(DocumentError::new(paths::MIGRATION, reason));
        }
        Ok(document)
    }

    /// Writes `/migration`.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(self)
    }
}
