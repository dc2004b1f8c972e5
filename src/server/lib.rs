//! The broker: one handler per API, controller loop, start and stop.

mod alter_partition;
mod broker;
mod control_wire;
mod controlled_shutdown;
pub mod controller;
mod conversions;
mod coordinator_topic;
pub mod dynamic_config;
mod errors;
mod groups;
mod handlers;
mod hanging_transactions;
mod leader_ways;
mod listeners;
pub mod logging;
mod marker_channels;
mod markers;
mod metrics;
mod panics;
mod peers;
mod producer_ids;
mod registration;
mod replica_requests;
mod replication_quotas;
mod request_context;
pub mod run;
mod session_file;
pub mod start;
mod topic_configs;
mod topic_settings;
mod transactions;
mod unserved;
mod verification;
#[cfg(test)]
mod waiting_tests;
mod watch;
pub mod zookeeper_client;
