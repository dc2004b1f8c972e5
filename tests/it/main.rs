//! Integration tests.

mod client_library;
mod config_recordings;
mod configuration;
mod deviations;
mod shell_scripts;
mod tidy;
mod transcripts;
mod zk_conformance;
