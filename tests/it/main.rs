//! Integration tests.

// Marked one by one, for clippy takes what is marked for tests.
#[cfg(test)]
mod client_library;
#[cfg(test)]
mod config_recordings;
#[cfg(test)]
mod configuration;
#[cfg(test)]
mod conversions;
#[cfg(test)]
mod deviations;
#[cfg(test)]
mod dynamic_configs;
#[cfg(test)]
mod pipelined;
#[cfg(test)]
mod producer_ids;
#[cfg(test)]
mod semantics;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod shell_scripts;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod transactions;
#[cfg(test)]
mod transcripts;
#[cfg(test)]
mod zk_conformance;
