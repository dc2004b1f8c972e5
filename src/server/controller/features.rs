//! `/feature`: whether features are versioned, and which are finalized. In ZooKeeper mode none is.
//! Source: `KafkaController.maybeSetupFeatureVersioning`.

use std::collections::BTreeMap;

use common::config::ibp::MetadataVersion;
use tracing::{info, warn};
use zk::{
    documents::feature::{FeatureDocument, FeatureStatus},
    paths,
    store::{CreateKind, Expected, Watch, ZkError, ZkStore},
};

const CONTROLLER_LOG: &str = "kafka.controller.KafkaController";

/// What the znode shall say.
fn wanted(version: MetadataVersion, existing: Option<&FeatureDocument>) -> FeatureDocument {
    // 2.7 brought the znode, 3.3 its second version; both names are in the list of versions.
    let since = |name: &str| MetadataVersion::parse(name).is_some_and(|since| version >= since);
    let status = if since("2.7-IV0") { FeatureStatus::Enabled } else { FeatureStatus::Disabled };
    let kept = existing.filter(|document| {
        status == FeatureStatus::Enabled && document.status == FeatureStatus::Enabled
    });
    FeatureDocument {
        version: if since("3.3-IV0") { 2 } else { 1 },
        status,
        features: kept.map_or_else(BTreeMap::new, |document| document.features.clone()),
    }
}

/// Creates the znode, or brings it to this broker's `inter.broker.protocol.version`.
pub(super) async fn set_up(
    zk: &dyn ZkStore,
    version: MetadataVersion,
    broker: i32,
) -> Result<(), ZkError> {
    let path = paths::FEATURE;
    let Some(node) = zk.get(path, Watch::No).await? else {
        let document = wanted(version, None);
        let status = match document.status {
            FeatureStatus::Enabled => "Enabled",
            FeatureStatus::Disabled => "Disabled",
        };
        info!(
            target: CONTROLLER_LOG,
            "[Controller id={broker}] Creating FeatureZNode at path: {path} with contents: FeatureZNode({},{status},Map())",
            document.version
        );
        return match zk.create(path, &document.to_bytes(), CreateKind::Persistent).await {
            Ok(_) | Err(ZkError::NodeExists { .. }) => Ok(()),
            Err(error) => Err(error),
        };
    };
    let existing = match FeatureDocument::parse(&node.data) {
        Ok(document) => document,
        Err(error) => {
            warn!(%error, "the finalized features cannot be read");
            return Ok(());
        }
    };
    let document = wanted(version, Some(&existing));
    if document != existing {
        info!(target: CONTROLLER_LOG, "[Controller id={broker}] Updating FeatureZNode at path: {path}");
        let expected = Expected::Version(node.stat.version);
        match zk.set(path, &document.to_bytes(), expected).await {
            Ok(_) => {}
            // Another controller has been at it, and will have been right.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
