//! What was acknowledged with acks=all survives, while fewer copies are lost than `min.insync.replicas`: every new leader
//! has it, and so has every replica in the end.

use common::ids::{BrokerId, LeaderEpoch, Offset};

use crate::{
    copies::{Content, Stored},
    world::World,
};

const NAME: &str = "acknowledged";

/// The first acknowledged record that a copy has not.
pub fn missing(world: &World, partition: i32, copy: &[Stored]) -> Option<(Offset, u64)> {
    let acknowledged = world.history.acknowledged.get(&partition)?;
    let records = acknowledged.iter().flat_map(|one| {
        one.values.iter().enumerate().map(|(at, value)| (one.first.plus(at as i64), *value))
    });
    let is_missing = |(offset, value): &(Offset, u64)| {
        let stored = usize::try_from(offset.0).ok().and_then(|at| copy.get(at));
        stored.map(|stored| stored.content) != Some(Content::Value(*value))
    };
    records.into_iter().find(is_missing)
}

impl World {
    /// A broker begins to lead; perhaps another one leads by now.
    pub fn check_new_leader(&mut self, id: BrokerId, partition: i32, epoch: LeaderEpoch) {
        self.check_states();
        let has_disk = self.replica(id, partition).is_some_and(|replica| replica.has_disk());
        if self.epoch_in_office(partition) != epoch || !has_disk {
            return;
        }
        self.read_copy(id, partition);
        if let Some((offset, value)) = missing(self, partition, self.copy(id, partition)) {
            let what =
                format!("{value} at {offset} of {partition} is not on {id}, leader of {epoch}");
            self.violate(NAME, what);
        }
    }

    /// Everything is whole again.
    pub fn check_acknowledged_at_the_end(&mut self) {
        for partition in self.partitions.clone() {
            for id in self.assignment(partition).replicas {
                if !self.process(id).replicas.contains_key(&partition) {
                    continue;
                }
                if let Some((offset, value)) = missing(self, partition, self.copy(id, partition)) {
                    self.violate(
                        NAME,
                        format!("{value} at {offset} of {partition} is not on {id}"),
                    );
                }
            }
        }
    }
}
