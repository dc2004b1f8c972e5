//! The controller's side of ZooKeeper: what it reads, and how the writes of a plan are carried out. Decides nothing.
//!
//! A crate of its own, so that the broker and the simulated cluster run the same code.

pub mod commit;
pub mod reads;

#[cfg(test)]
mod tests;
