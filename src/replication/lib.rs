//! The replica manager: partitions of this broker, acks and waiting fetches.

pub mod fetch_session;
pub mod partition;
pub mod replica_manager;
pub mod topic_settings;
mod waiters;
