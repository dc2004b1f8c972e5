//! Integration tests.

mod config_recordings;
mod configuration;
mod deviations;
mod tidy;
mod zk_conformance;
