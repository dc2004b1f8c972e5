//! What Kafka stores in its znodes. Each document is read as Kafka reads it (unknown fields ignored) and written as Kafka
//! 3.9 writes it. Source: `kafka.zk.ZkData`.

pub mod acl;
pub mod admin;
pub mod broker;
pub mod cluster;
pub mod config;
pub mod controller;
pub mod delegation_token;
pub mod feature;
pub mod notification;
pub mod partition_state;
pub mod producer_ids;
pub mod topic;

#[cfg(test)]
mod tests;

use std::str::FromStr;

use serde::{Serialize, de::DeserializeOwned};

/// A znode whose data is not what belongs there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed data in {path}: {reason}")]
pub struct DocumentError {
    /// The znode.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

impl DocumentError {
    pub(crate) fn new(path: &str, reason: impl ToString) -> DocumentError {
        DocumentError { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Reads a JSON object; nesting is limited, so a hostile document costs no stack.
fn from_json<T: DeserializeOwned>(path: &str, data: &[u8]) -> Result<T, DocumentError> {
    if data.is_empty() {
        return Err(DocumentError::new(path, "no data"));
    }
    // The codec would take an array for an object, field by field.
    if data.trim_ascii_start().first() == Some(&b'[') {
        return Err(DocumentError::new(path, "an array, expected an object"));
    }
    serde_json::from_slice(data).map_err(|error| DocumentError::new(path, error))
}

fn to_json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("documents have only string keys, which JSON can hold")
}

/// Reads a number stored as text.
fn from_text<T: FromStr>(path: &str, what: &str, text: &str) -> Result<T, DocumentError>
where
    T::Err: ToString,
{
    let reason = |error: T::Err| format!("{what} \"{text}\": {}", error.to_string());
    text.parse().map_err(|error| DocumentError::new(path, reason(error)))
}

/// Reads data that is text and no JSON.
fn utf8<'a>(path: &str, data: &'a [u8]) -> Result<&'a str, DocumentError> {
    std::str::from_utf8(data).map_err(|error| DocumentError::new(path, error))
}
