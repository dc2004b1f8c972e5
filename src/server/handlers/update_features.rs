//! UpdateFeatures (API key 57). A broker in ZooKeeper mode supports no feature by name, so that nothing can be finalized, and
//! nothing is there to be deleted. Source: `KafkaController.validateFeatureUpdate`, KIP-584.

use std::collections::HashSet;

use common::error_code::ErrorCode;
use kafka_protocol::messages::{
    UpdateFeaturesRequest, UpdateFeaturesResponse, update_features_request::FeatureUpdateKey,
    update_features_response::UpdatableFeatureResult,
};

use crate::{broker::Broker, handlers::text, request_context::RequestContext};

/// First version that says how to get there, and not only whether downwards.
const UPGRADE_TYPE: i16 = 1;

/// How a version is to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpgradeType {
    Unknown,
    Upgrade,
    Downgrade,
}

pub(crate) fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse {
    let response = UpdateFeaturesResponse::default().with_error_message(None);
    if !broker.controller.is_active() {
        let error = ErrorCode::NotController;
        return response
            .with_error_code(error.code())
            .with_error_message(Some(text(error.message())));
    }
    let mut seen = HashSet::new();
    let updates = request.feature_updates.into_iter();
    let unique = updates.filter(|update| seen.insert(update.feature.clone()));
    let results = unique.map(|update| {
        UpdatableFeatureResult::default()
            .with_error_code(ErrorCode::InvalidRequest.code())
            .with_error_message(Some(text(&why_not(upgrade_type(ctx, &update), &update))))
            .with_feature(update.feature)
    });
    response.with_results(results.collect())
}

fn upgrade_type(ctx: &RequestContext, update: &FeatureUpdateKey) -> UpgradeType {
    match update.upgrade_type {
        _ if ctx.api_version < UPGRADE_TYPE && update.allow_downgrade => UpgradeType::Downgrade,
        _ if ctx.api_version < UPGRADE_TYPE => UpgradeType::Upgrade,
        1 => UpgradeType::Upgrade,
        2 | 3 => UpgradeType::Downgrade,
        _ => UpgradeType::Unknown,
    }
}

/// Kafka's reason to refuse, given that no feature is supported and none is finalized.
fn why_not(upgrade_type: UpgradeType, update: &FeatureUpdateKey) -> String {
    let level = update.max_version_level;
    match upgrade_type {
        _ if update.feature.is_empty() => "Feature name can not be empty.".to_owned(),
        UpgradeType::Unknown => "Received unknown upgrade type.".to_owned(),
        UpgradeType::Downgrade if level < 1 => {
            "Can not delete non-existing finalized feature.".to_owned()
        }
        UpgradeType::Upgrade if level < 1 => format!(
            "Can not provide versionLevel: {level} less than 1 without setting the SAFE \
             downgradeType in the request."
        ),
        UpgradeType::Upgrade | UpgradeType::Downgrade => {
            "Could not apply finalized feature update because the provided feature is not \
             supported."
                .to_owned()
        }
    }
}
