//! EndTxn (API key 26): commits or aborts a producer's transaction. Source: `TransactionCoordinator.handleEndTransaction`.

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
};
use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse};
use transaction_coordinator::{
    action::Reply,
    event::{Event, TransactionResult},
};

use crate::{broker::Broker, errors, request_context::RequestContext};

/// First version that knows PRODUCER_FENCED.
const FENCED: i16 = 2;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: EndTxnRequest,
) -> EndTxnResponse {
    let result =
        if request.committed { TransactionResult::Commit } else { TransactionResult::Abort };
    let event = |transactional_id, reply| Event::EndTxn {
        transactional_id,
        producer_id: ProducerId(request.producer_id.0),
        producer_epoch: ProducerEpoch(request.producer_epoch),
        result,
        reply,
    };
    let error = match broker.transactions.ask(&request.transactional_id, event).await {
        Ok(Reply::EndTxn(error)) => error,
        Ok(_) => ErrorCode::UnknownServerError,
        Err(error) => error,
    };
    let error = match ctx.api_version {
        FENCED.. => error,
        _ => errors::without_producer_fenced(error),
    };
    EndTxnResponse::default().with_error_code(error.code())
}
