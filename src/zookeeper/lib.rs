//! A standalone server that speaks ZooKeeper's protocol: one node, durable, in the files that
//! Apache ZooKeeper 3.8 reads and writes, and a small client for the shell.
//!
//! A request takes this way: `connection` reads a frame, `server` locks the `core`, which decodes it
//! (`request`), turns a write into a transaction (`prepare`), appends it to the log's buffer and
//! applies it to the `tree`; the replies wait until the log is on disk.

pub mod client;
pub mod code;
pub mod config;
pub mod data;
pub mod date;
pub mod key_store;
pub mod server;
pub mod tls;
pub mod txn_log;
pub mod untrusted;

mod admin;
mod admin_commands;
mod answers;
mod auth;
mod client_wire;
mod connection;
mod core;
mod json;
mod jute;
mod prepare;
mod quota;
mod reply;
mod request;
mod sasl;
mod sessions;
mod snapshot;
mod store;
mod traffic;
mod tree;
mod txn;
mod watches;
mod words;

#[cfg(test)]
mod admin_tests;
#[cfg(test)]
mod core_tests;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod store_tests;
