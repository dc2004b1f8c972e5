//! Runs the coordinators of groups and of transactions on their logs: loads them, appends what they decide, answers
//! once that is committed, and wakes them when time is up.

pub mod groups;
pub mod log;
pub mod registry;
pub mod shard;
pub mod transactions;

#[cfg(test)]
mod tests;
