//! An epoch of a partition has one leader, and no process goes back to an earlier one.

use std::collections::BTreeMap;

use common::{
    ids::{BrokerId, LeaderEpoch},
    topic::Uuid,
};

use crate::{replica::Role, world::World};

/// What was seen of leaders.
#[derive(Default)]
pub struct Seen {
    /// The leader of each epoch of each partition.
    leaders: BTreeMap<((Uuid, i32), LeaderEpoch), BrokerId>,
    /// The epoch of each process in each partition.
    epochs: BTreeMap<((Uuid, i32), BrokerId, u32), LeaderEpoch>,
}

impl World {
    /// Looks at one replica.
    pub fn check_leader(&mut self, id: BrokerId, partition: i32) {
        let number = self.process_number(id);
        let Some(replica) = self.replica(id, partition) else { return };
        let (now, of) = (replica.role.epoch(), (replica.topic_id, partition));
        let known = self.invariants.leaders.epochs.insert((of, id, number), now);
        if let Some(before) = known.filter(|before| *before > now) {
            let what = format!(
                "{id} goes from epoch {before} of {partition} back to {now}, of topic {}",
                of.0.0
            );
            self.violate("one leader", what);
        }
        let Some(replica) = self.replica(id, partition) else { return };
        let Role::Leader(leader) = &replica.role else { return };
        let (epoch, isr) = (leader.epoch(), leader.isr().to_vec());
        let known = *self.invariants.leaders.leaders.entry((of, epoch)).or_insert(id);
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
