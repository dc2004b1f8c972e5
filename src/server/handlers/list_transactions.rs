//! ListTransactions (API key 66): the transactional ids that this broker coordinates.
//! Source: `TransactionStateManager.listTransactionStates`, KIP-664, KIP-994.

use std::time::Duration;

use common::{clock, ids::ProducerId};
use kafka_protocol::messages::{
    self, ListTransactionsRequest, ListTransactionsResponse, TransactionalId,
    list_transactions_response::TransactionState,
};
use transaction_coordinator::query::{ListFilter, parse_states};

use crate::{broker::Broker, handlers::text};

pub(crate) fn handle(
    broker: &Broker,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let response = ListTransactionsResponse::default();
    let names: Vec<String> = request.state_filters.iter().map(ToString::to_string).collect();
    let (states, unknown) = parse_states(&names);
    let filter = ListFilter {
        states,
        producer_ids: request.producer_id_filters.iter().map(|id| ProducerId(id.0)).collect(),
        running_longer_than: u64::try_from(request.duration_filter).ok().map(Duration::from_millis),
    };
    let now = clock::wall_clock();
    // One that takes over between the two looks has nothing to tell yet.
    let listed = broker.transactions.look_at_all(|one| one.list(&filter, now).unwrap_or_default());
    let listed = match listed {
        Ok(listed) => listed,
        Err(error) => return response.with_error_code(error.code()),
    };
    let states = listed.into_iter().map(|one| {
        TransactionState::default()
            .with_transactional_id(TransactionalId(text(&one.transactional_id)))
            .with_producer_id(messages::ProducerId(one.producer_id.0))
            .with_transaction_state(text(one.state.name()))
    });
    response
        .with_unknown_state_filters(unknown.iter().map(|name| text(name)).collect())
        .with_transaction_states(states.collect())
}
