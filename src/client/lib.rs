//! Producer, consumer and admin client as a library.
//!
//! Configured by the names of the Java client; errors carry the class and the text that the Java client shows.

pub mod admin;
pub mod cluster;
pub mod config;
pub mod connection;
pub mod consumer;
pub mod coordinator;
pub mod error;
pub mod group;
pub mod metadata;
pub mod offsets;
pub mod partitioner;
pub mod producer;

mod accumulator;
mod fetch;
mod fetched;
mod sender;
mod sequences;
