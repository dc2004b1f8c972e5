//! An epoch of a partition has one leader, and only that one appends records of it.

use std::collections::BTreeMap;

use common::ids::{BrokerId, LeaderEpoch};

use crate::{replica::Role, world::World};

/// The leader of each epoch of each partition.
pub type Seen = BTreeMap<(i32, LeaderEpoch), BrokerId>;

impl World {
    /// Looks at one replica.
    pub fn check_leader(&mut self, id: BrokerId, partition: i32) {
        let Some(replica) = self.replica(id, partition) else { return };
        let Role::Leader(leader) = &replica.role else { return };
        let (epoch, isr) = (leader.epoch(), leader.isr().to_vec());
        let known = *self.invariants.leaders.entry((partition, epoch)).or_insert(id);
        if known != id {
            let what = format!("{known} and {id} lead {partition} in epoch {epoch}");
            self.violate("one leader", what);
        }
        if !isr.contains(&id) {
            let what = format!("{id} leads {partition} in epoch {epoch} with isr {isr:?}");
            self.violate("leader in sync", what);
        }
    }
}
