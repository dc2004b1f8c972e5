//! `/kafka-acl/...`, `/kafka-acl-extended/...` and their notices: who may do what. The words in them are kept as text here.

use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, to_json, utf8};
use crate::paths;

/// How a rule's name is compared with a resource's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PatternType {
    /// The whole name, or any where it is `*`.
    Literal,
    /// The beginning of the name.
    Prefixed,
}

impl PatternType {
    /// Where its rules are.
    pub fn root(self) -> &'static str {
        match self {
            PatternType::Literal => paths::ACLS,
            PatternType::Prefixed => paths::PREFIXED_ACLS,
        }
    }

    /// Where its notices are.
    pub fn changes_root(self) -> &'static str {
        match self {
            PatternType::Literal => paths::ACL_CHANGES,
            PatternType::Prefixed => paths::EXTENDED_ACL_CHANGES,
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AclEntry {
    /// `User:alice`.
    pub principal: String,
    /// `Allow` or `Deny`.
    pub permission_type: String,
    /// An address, or `*`.
    pub host: String,
    /// `Read`, `Write`, ... or `All`.
    pub operation: String,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    acls: Vec<AclEntry>,
    version: i32,
}

/// Reads the rules of a resource; no data means none.
pub fn parse_acls(path: &str, data: &[u8]) -> Result<Vec<AclEntry>, DocumentError> {
    if data.is_empty() {
        return Ok(Vec::new());
    }
    let wire: Wire = from_json(path, data)?;
    if wire.version != 1 {
        return Err(DocumentError::new(path, format!("unsupported version {}", wire.version)));
    }
    for entry in &wire.acls {
        if !entry.principal.contains(':') {
            let reason = format!("principal \"{}\" is not Type:name", entry.principal);
            return Err(DocumentError::new(path, reason));
        }
    }
    Ok(wire.acls)
}

/// Writes the rules of a resource.
pub fn acls_to_bytes(acls: &[AclEntry]) -> Vec<u8> {
    to_json(&Wire { acls: acls.to_vec(), version: 1 })
}

/// A notice that a resource's rules changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclChange {
    /// `TOPIC`, `TRANSACTIONAL_ID`, ...
    pub resource_type: String,
    /// The resource's name or prefix.
    pub name: String,
    /// Which tree it is in.
    pub pattern_type: PatternType,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExtendedWire {
    version: i32,
    resource_type: String,
    name: String,
    pattern_type: String,
}

impl AclChange {
    /// Reads a notice of the tree of literal rules: `TOPIC:t`.
    pub fn parse_literal(path: &str, data: &[u8]) -> Result<AclChange, DocumentError> {
        let text = utf8(path, data)?;
        let Some((resource_type, name)) = text.split_once(':') else {
            let reason = format!("expected ResourceType:ResourceName but got \"{text}\"");
            return Err(DocumentError::new(path, reason));
        };
        let resource_type = resource_type.to_uppercase();
        let pattern_type = PatternType::Literal;
        Ok(AclChange { resource_type, name: name.to_owned(), pattern_type })
    }

    /// Reads a notice of the tree of other rules.
    pub fn parse_extended(path: &str, data: &[u8]) -> Result<AclChange, DocumentError> {
        let wire: ExtendedWire = from_json(path, data)?;
        if wire.version > 1 {
            let reason = format!("unsupported version {}", wire.version);
            return Err(DocumentError::new(path, reason));
        }
        let pattern_type = match wire.pattern_type.to_uppercase().as_str() {
            "LITERAL" => PatternType::Literal,
            "PREFIXED" => PatternType::Prefixed,
            other => return Err(DocumentError::new(path, format!("pattern type \"{other}\""))),
        };
        let resource_type = wire.resource_type.to_uppercase();
        Ok(AclChange { resource_type, name: wire.name, pattern_type })
    }

    /// Writes it as its tree demands.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self.pattern_type {
            PatternType::Literal => format!("{}:{}", self.resource_type, self.name).into_bytes(),
            PatternType::Prefixed => to_json(&ExtendedWire {
                version: 1,
                resource_type: self.resource_type.clone(),
                name: self.name.clone(),
                pattern_type: "PREFIXED".to_owned(),
            }),
        }
    }
}
