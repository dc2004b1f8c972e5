//! Groups and committed offsets of one `__consumer_offsets` partition: the classic protocol. Decides; does nothing.
//!
//! A driver gives `coordinator::GroupCoordinator` events, and carries out the actions in order. It wakes it
//! when `next_wake` says so. Members live in memory; what must survive is appended to the log as records, and
//! is believed once it is committed. Loading a log is replaying its records, and then `loaded`.
//! Source: `kafka.coordinator.group.GroupCoordinator`.

pub mod action;
pub mod config;
pub mod coordinator;
pub mod event;
pub mod load;
pub mod records;

mod commit;
mod group;
mod join;
mod member;
mod membership;
mod offsets;
mod query;
mod rebalance;
mod removal;
mod subscription;
#[cfg(test)]
mod tests;
mod timers;
mod turn;
mod wire;
