//! FindCoordinator (API key 10). Groups and transactions are not served yet: every key gets
//! COORDINATOR_NOT_AVAILABLE, which clients retry.

use common::error_code::ErrorCode;
use kafka_protocol::messages::{
    self, FindCoordinatorRequest, FindCoordinatorResponse, find_coordinator_response::Coordinator,
};

use crate::request_context::RequestContext;

/// First version that asks for several keys at once. Source: KIP-699.
const BATCHED: i16 = 4;

/// What a key names. Source: `FindCoordinatorRequest.CoordinatorType`.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
/// Share groups, which this mode does not have.
const SHARE: i8 = 2;
/// First version that may ask for the coordinator of a share group.
const SHARES: i16 = 6;

pub(crate) fn handle(
    ctx: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let is_type = ctx.api_version == 0 || matches!(request.key_type, GROUP | TRANSACTION | SHARE);
    let is_early_share = request.key_type == SHARE && ctx.api_version < SHARES;
    let error = if is_type && !is_early_share {
        ErrorCode::CoordinatorNotAvailable
    } else {
        ErrorCode::InvalidRequest
    };
    let nobody = messages::BrokerId(-1);
    let response = FindCoordinatorResponse::default();
    if ctx.api_version < BATCHED {
        let response = response.with_error_code(error.code()).with_node_id(nobody).with_port(-1);
        if ctx.api_version == 0 {
            return response;
        }
        return response.with_error_message(Some(error.message().into()));
    }
    // Only a request that fails as a whole gets words.
    let message = if is_type { "" } else { error.message() };
    let answers = request.coordinator_keys.into_iter().map(|key| {
        Coordinator::default()
            .with_key(key)
            .with_error_code(error.code())
            .with_error_message(Some(message.into()))
            .with_node_id(nobody)
            .with_port(-1)
    });
    response.with_coordinators(answers.collect())
}
