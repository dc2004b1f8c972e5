//! InitProducerId (API key 22): gives a producer its id and epoch; a transactional one gets them from the coordinator of
//! its transactional id. Source: `TransactionCoordinator.handleInitProducerId`, KIP-98, KIP-360.

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
};
use kafka_protocol::messages::{self, InitProducerIdRequest, InitProducerIdResponse};
use transaction_coordinator::{action::Reply, event::Event};

use crate::{broker::Broker, errors, request_context::RequestContext};

/// First version that says who the producer believes to be.
const EXPECTATION: i16 = 3;
/// First version that knows PRODUCER_FENCED.
const FENCED: i16 = 4;

/// A producer: its id and its epoch.
type Producer = (ProducerId, ProducerEpoch);

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let (error, (producer_id, producer_epoch)) = match init(broker, ctx, &request).await {
        Ok(producer) => (ErrorCode::None, producer),
        Err(error) => (error, (ProducerId::NONE, ProducerEpoch::NONE)),
    };
    let error = match ctx.api_version {
        FENCED.. => error,
        _ => errors::without_producer_fenced(error),
    };
    InitProducerIdResponse::default()
        .with_error_code(error.code())
        .with_producer_id(messages::ProducerId(producer_id.0))
        .with_producer_epoch(producer_epoch.0)
}

async fn init(
    broker: &Broker,
    ctx: &RequestContext,
    request: &InitProducerIdRequest,
) -> Result<Producer, ErrorCode> {
    let given = (ProducerId(request.producer_id.0), ProducerEpoch(request.producer_epoch));
    let expected = match given {
        _ if ctx.api_version < EXPECTATION => None,
        (ProducerId::NONE, ProducerEpoch::NONE) => None,
        (ProducerId::NONE, _) | (_, ProducerEpoch::NONE) => return Err(ErrorCode::InvalidRequest),
        given => Some(given),
    };
    let Some(transactional_id) = &request.transactional_id else {
        return Ok((broker.producer_ids.next().await?, ProducerEpoch(0)));
    };
    let timeout_ms = request.transaction_timeout_ms;
    let is_possible = 0 < timeout_ms && timeout_ms <= broker.config.transaction_max_timeout_ms;
    if !transactional_id.is_empty() && !is_possible {
        // Kafka looks at this before it looks whether it coordinates the id.
        return Err(ErrorCode::InvalidTransactionTimeout);
    }
    let event = |transactional_id, reply| Event::InitProducerId {
        transactional_id,
        timeout_ms,
        expected,
        reply,
    };
    match broker.transactions.ask(transactional_id, event).await? {
        Reply::InitProducerId { error: ErrorCode::None, producer_id, producer_epoch } => {
            Ok((producer_id, producer_epoch))
        }
        Reply::InitProducerId { error, .. } => Err(error),
        _ => Err(ErrorCode::UnknownServerError),
    }
}
