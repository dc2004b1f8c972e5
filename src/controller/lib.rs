//! Partition and replica states, elections, moves, topic creation and deletion. Decides; does nothing.
//!
//! The controller lives in turns. It is told what was read (`Change`), decides what to write
//! (`Controller::plan`), hears which writes were accepted, and says what brokers are to be told
//! (`Controller::apply`). A fact that was read is known from then on; a decision counts once its
//! write is accepted. What cannot be finished in a turn stays on a list and is decided in a later
//! one, so a step that needs an earlier one simply waits for it.

pub mod alter_partition;
pub mod answer;
pub mod assignment;
pub mod change;
pub mod controller;
pub mod elect_leaders;
pub mod election;
pub mod error;
pub mod plan;
pub mod reassignment;
pub mod request;
pub mod states;
pub mod topics;

mod controlled_shutdown;
mod deletion;
mod ending;
mod held;
mod learn;

#[cfg(test)]
mod tests;
