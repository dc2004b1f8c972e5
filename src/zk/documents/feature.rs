//! `/feature`: the finalized features. The znode's version is their epoch in ApiVersions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, to_json};
use crate::paths;

/// Whether the features in the document count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureStatus {
    /// The inter-broker protocol is older than 2.7.
    Disabled,
    /// They count.
    Enabled,
}

/// The finalized features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureDocument {
    /// 2 from inter-broker protocol 3.3 on, else 1.
    pub version: i32,
    /// Whether they count.
    pub status: FeatureStatus,
    /// The level of each.
    pub features: BTreeMap<String, i16>,
}

#[derive(Serialize, Deserialize)]
struct Levels {
    #[serde(skip_serializing_if = "Option::is_none")]
    min_version_level: Option<i16>,
    max_version_level: i16,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    features: BTreeMap<String, Levels>,
    version: i32,
    status: i32,
}

impl FeatureDocument {
    /// Reads `/feature`.
    pub fn parse(data: &[u8]) -> Result<FeatureDocument, DocumentError> {
        let fail = |reason: String| Err(DocumentError::new(paths::FEATURE, reason));
        let wire: Wire = from_json(paths::FEATURE, data)?;
        if !(1..=2).contains(&wire.version) {
            return fail(format!("unsupported version {}", wire.version));
        }
        let status = match wire.status {
            0 => FeatureStatus::Disabled,
            1 => FeatureStatus::Enabled,
            other => return fail(format!("status {other}")),
        };
        let mut features = BTreeMap::new();
        for (feature, levels) in wire.features {
            let (min, max) = (levels.min_version_level, levels.max_version_level);
            if wire.version == 1 && !min.is_some_and(|min| (1..=max).contains(&min)) || max < 1 {
                return fail(format!("levels {min:?} to {max} of feature \"{feature}\""));
            }
            features.insert(feature, max);
        }
        Ok(FeatureDocument { version: wire.version, status, features })
    }

    /// Writes it in its version.
    pub fn to_bytes(&self) -> Vec<u8> {
        let levels = |level| Levels {
            min_version_level: (self.version == 1).then_some(level),
            max_version_level: level,
        };
        to_json(&Wire {
            features: self.features.iter().map(|(name, &l)| (name.clone(), levels(l))).collect(),
            version: self.version,
            status: match self.status {
                FeatureStatus::Disabled => 0,
                FeatureStatus::Enabled => 1,
            },
        })
    }
}
