//! What a broker knows of the cluster, and where replicas are placed.

pub mod broker;
pub mod cache;
mod partitions;
pub mod placement;
pub mod snapshot;
