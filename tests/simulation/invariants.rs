//! What has to hold, at every step or at the end. A file for each invariant.

pub mod acknowledged;
pub mod answers;
pub mod deletion;
pub mod directories;
pub mod high_watermark;
pub mod in_sync;
pub mod incarnations;
pub mod leaders;
pub mod observers;
pub mod progress;
pub mod replicas;
pub mod transactions;

use crate::{copies::Copies, world::World};

/// What the invariants remember.
#[derive(Default)]
pub struct Invariants {
    /// What replicas hold.
    pub copies: Copies,
    /// Of `high_watermark`.
    high_watermarks: high_watermark::Seen,
    /// Of `in_sync`.
    states: in_sync::Seen,
    /// Of `leaders`.
    leaders: leaders::Seen,
    /// Of `observers`.
    observed: observers::Seen,
    /// Of `replicas`.
    pub replicas: replicas::Seen,
}

impl World {
    /// Looks at what has to hold at every step.
    pub fn check(&mut self) {
        self.check_states();
        for id in self.running() {
            for partition in self.partitions.clone() {
                // One whose disk has failed serves nobody.
                if self.replica(id, partition).is_none_or(|replica| !replica.has_disk()) {
                    continue;
                }
                self.read_copy(id, partition);
                self.check_leader(id, partition);
                self.check_high_watermark(id, partition);
                self.check_replica(id, partition);
            }
        }
    }

    /// Looks at what has to hold once nothing goes wrong any more.
    pub fn check_end(&mut self) {
        self.check();
        self.check_progress();
        if self.violation.is_some() {
            return;
        }
        self.check_acknowledged_at_the_end();
        self.check_transactions_at_the_end();
    }
}
