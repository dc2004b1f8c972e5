//! One partition's replicas: in-sync set, high watermark, acks, and how a follower copies. Decides; does nothing.

pub mod follower;
pub mod leader;
#[cfg(test)]
mod tests;
