//! InitProducerId (API key 22): gives an idempotent producer its id. Transactional ids have no coordinator yet.
//! Source: `TransactionCoordinator.handleInitProducerId`, KIP-98, KIP-360.

use common::error_code::ErrorCode;
use kafka_protocol::messages::{self, InitProducerIdRequest, InitProducerIdResponse};

use crate::{broker::Broker, request_context::RequestContext};

/// Stands for "none" in both fields of an id and its epoch.
const NONE: i64 = -1;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |error: ErrorCode| {
        InitProducerIdResponse::default()
            .with_error_code(error.code())
            .with_producer_id(messages::ProducerId(NONE))
            .with_producer_epoch(-1)
    };
    let has_id = ctx.api_version >= 3 && request.producer_id.0 != NONE;
    let has_epoch = ctx.api_version >= 3 && i64::from(request.producer_epoch) != NONE;
    if has_id != has_epoch {
        return refused(ErrorCode::InvalidRequest);
    }
    match request.transactional_id.as_ref().map(|id| id.as_str()) {
        None => {}
        Some("") => return refused(ErrorCode::InvalidRequest),
        // What a broker says that does not coordinate the id: clients look for one that does, and wait.
        Some(_) => return refused(ErrorCode::NotCoordinator),
    }
    match broker.producer_ids.next().await {
        Ok(id) => InitProducerIdResponse::default()
            .with_producer_id(messages::ProducerId(id.0))
            .with_producer_epoch(0),
        Err(error) => refused(error),
    }
}
