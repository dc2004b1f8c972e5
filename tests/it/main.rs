//! Integration tests.

mod config_recordings;
mod configuration;
mod deviations;
mod tidy;
mod transcripts;
mod zk_conformance;
