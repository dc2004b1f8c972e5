//! Transactional ids, their producers and transactions, and the markers that end them. Decides; does nothing.
//!
//! One `TransactionCoordinator` holds the ids of one partition of `__transaction_state`, for one term of its
//! leader. Its driver reads the log into `replay`, calls `loaded`, then carries out actions in order and reports
//! how they went. What is stored changes only once a record is known to be in the log.
//! Source: KIP-98, KIP-360, KIP-664, KIP-890 (part 1) and Kafka's `TransactionCoordinator`.

pub mod action;
pub mod coordinator;
pub mod event;
pub mod query;
pub mod records;
pub mod state;

mod markers;
mod requests;
mod timers;
mod wire;

#[cfg(test)]
mod tests;
