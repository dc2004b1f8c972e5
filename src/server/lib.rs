//! The broker: one handler per API, controller loop, start and stop.

mod broker;
mod control_wire;
mod controlled_shutdown;
pub mod controller;
pub mod dynamic_config;
mod errors;
mod groups;
mod handlers;
mod listeners;
pub mod logging;
mod marker_channels;
mod markers;
mod metrics;
mod peers;
mod producer_ids;
mod registration;
mod replica_requests;
mod request_context;
pub mod run;
mod session_file;
pub mod start;
mod topic_configs;
mod topic_settings;
mod transactions;
mod verification;
mod watch;
pub mod zookeeper_client;
