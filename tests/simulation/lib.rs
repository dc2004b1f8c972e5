//! A simulated cluster: three to five brokers, clients, and all that can go wrong, in one thread and virtual time. A seed
//! says what happens; the same seed is the same run.
//!
//! Real are the decision crates, the logs and their manager (in temporary folders), metadata, the fake ZooKeeper with the
//! elections and registrations upon it, and what the controller reads and writes (the broker's own files). The glue
//! between them is tokio's in the broker, and is written once more here, as small as it can be: see `office`, `broker`,
//! `replica` and `copying`. `operator` moves partitions, `topics` deletes the topic and makes it again; `faults` says what
//! goes wrong, `invariants` what has to hold all the same, `bugs` what was put in to see that it is found.

pub mod broker;
pub mod bugs;
pub mod clients;
pub mod copies;
pub mod copying;
pub mod disks;
pub mod faults;
pub mod history;
pub mod invariants;
pub mod network;
pub mod office;
pub mod operator;
pub mod proposals;
pub mod random;
pub mod replica;
pub mod topics;
pub mod world;

#[cfg(test)]
mod tests;

use std::panic::{self, AssertUnwindSafe};

use crate::world::{Options, Violation, World};

/// How a run has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The first invariant that does not hold.
    pub violation: Option<Violation>,
    /// Whether more was lost than the invariants allow for, so that the run says nothing.
    pub is_void: bool,
    /// Stands for all that has happened: the same for each run of a seed.
    pub trace: u64,
    /// How many events there were.
    pub events: u64,
    /// How many batches and transactions were acknowledged.
    pub work: u64,
}

/// Runs a seed to its end, or to the first invariant that does not hold. A panic is one, too.
pub fn run(seed: u64, options: Options) -> Outcome {
    let mut world = World::new(seed, options);
    let ran = panic::catch_unwind(AssertUnwindSafe(|| while world.step() {}));
    if ran.is_err() {
        world.violate("no panic", "see above".to_owned());
    }
    Outcome {
        violation: world.violation.clone(),
        is_void: world.is_void,
        trace: world.trace(),
        events: world.events,
        work: world.work_done().iter().sum(),
    }
}
