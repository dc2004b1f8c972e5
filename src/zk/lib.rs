//! Kafka's znodes: paths, JSON, the store trait, the real store, the fake.

pub mod changes;
pub mod documents;
pub mod fake;
pub mod paths;
pub mod real;
mod session;
pub mod store;
mod tree;
