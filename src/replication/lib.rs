//! The partitions of a broker: who leads, who waits, what followers copy, fetch sessions.

mod copying;
pub mod fetch_session;
mod fetch_wire;
mod fetcher;
pub mod fetchers;
pub mod leaders;
pub mod partition;
pub mod quota;
pub mod replica_manager;
mod said;
pub mod surroundings;
mod takeover;
#[cfg(test)]
mod takeover_tests;
#[cfg(test)]
mod tests;
pub mod topic_settings;
pub mod waiters;
