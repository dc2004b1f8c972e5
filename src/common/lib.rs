//! Words every crate uses: topics, partitions, offsets, epochs, error codes, the clock, counters, configs.

pub mod clock;
pub mod config;
pub mod counters;
pub mod error_code;
pub mod ids;
pub mod java_hash;
pub mod properties;
pub mod security_protocol;
pub mod topic;
