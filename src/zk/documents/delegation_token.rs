//! `/delegation_token/tokens/<id>`: a delegation token without its secret, which is computed from the id.

use common::ids::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, to_json};
use crate::paths;

const VERSION: i32 = 3;

/// A delegation token. Principals are `Type:name`, here without the document's escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationTokenDocument {
    /// Its id.
    pub token_id: String,
    /// Who it stands for.
    pub owner: String,
    /// Who asked for it; in documents before version 3 the owner.
    pub requester: String,
    /// Who may prolong it.
    pub renewers: Vec<String>,
    /// When it was made.
    pub issued: Timestamp,
    /// When it ends at the latest.
    pub ends_at_most: Timestamp,
    /// When it ends unless it is prolonged.
    pub expires: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    version: i32,
    owner: String,
    token_requester: Option<String>,
    renewers: Vec<String>,
    issue_timestamp: i64,
    max_timestamp: i64,
    expiry_timestamp: i64,
    token_id: String,
}

impl DelegationTokenDocument {
    /// Reads a token; `None` where the node has no data.
    pub fn parse(
        token_id: &str,
        data: &[u8],
    ) -> Result<Option<DelegationTokenDocument>, DocumentError> {
        if data.is_empty() {
            return Ok(None);
        }
        let path = paths::delegation_token(token_id);
        let wire: Wire = from_json(&path, data)?;
        if !(1..=VERSION).contains(&wire.version) {
            let reason = format!("unsupported version {}", wire.version);
            return Err(DocumentError::new(&path, reason));
        }
        let owner = principal(&path, &wire.owner)?;
        let requester = match (wire.version, &wire.token_requester) {
            (..3, _) => owner.clone(),
            (_, Some(requester)) => principal(&path, requester)?,
            (_, None) => return Err(DocumentError::new(&path, "missing field `tokenRequester`")),
        };
        let renewers = wire.renewers.iter().map(|renewer| principal(&path, renewer));
        Ok(Some(DelegationTokenDocument {
            token_id: wire.token_id,
            owner,
            requester,
            renewers: renewers.collect::<Result<_, _>>()?,
            issued: Timestamp(wire.issue_timestamp),
            ends_at_most: Timestamp(wire.max_timestamp),
            expires: Timestamp(wire.expiry_timestamp),
        }))
    }

    /// Writes it as version 3.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(&Wire {
            version: VERSION,
            owner: paths::sanitize(&self.owner),
            token_requester: Some(paths::sanitize(&self.requester)),
            renewers: self.renewers.iter().map(|renewer| paths::sanitize(renewer)).collect(),
            issue_timestamp: self.issued.0,
            max_timestamp: self.ends_at_most.0,
            expiry_timestamp: self.expires.0,
            token_id: self.token_id.clone(),
        })
    }
}

fn principal(path: &str, sanitized: &str) -> Result<String, DocumentError> {
    let principal = paths::desanitize(sanitized).filter(|principal| principal.contains(':'));
    principal.ok_or_else(|| {
        DocumentError::new(path, format!("principal \"{sanitized}\" is not Type:name"))
    })
}
