//! Integration tests.

// All of this is tests; clippy sees only functions that are marked so.
#![allow(clippy::unwrap_used)]

mod client_library;
mod config_recordings;
mod configuration;
mod conversions;
mod deviations;
mod pipelined;
mod semantics;
mod sessions;
mod shell_scripts;
mod tidy;
mod transactions;
mod transcripts;
mod zk_conformance;
