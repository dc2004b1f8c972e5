//! Kafka's znodes: paths, JSON, the store trait, the real store, the fake.

pub mod bootstrap;
pub mod changes;
pub mod configs;
pub mod consumer_offsets;
pub mod documents;
pub mod election;
pub mod error;
pub mod fake;
pub mod metrics;
pub mod notifications;
pub mod paths;
mod probe;
pub mod producer_ids;
pub mod real;
pub mod registration;
pub mod resolver;
mod session;
pub mod store;
pub mod tls;
#[cfg(test)]
mod tls_fixture;
pub mod topics;
mod tree;
mod tunnel;
