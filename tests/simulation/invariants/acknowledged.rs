//! What was acknowledged with acks=all survives until the topic is to be deleted, while fewer copies are lost than `min.insync.replicas`: every new leader
//! has it, and so has every replica in the end.

use common::{
    ids::{BrokerId, LeaderEpoch, Offset},
    topic::Uuid,
};

use crate::{
    copies::{Content, Stored},
    world::World,
};

const NAME: &str = "acknowledged";

/// The first acknowledged record that a copy has not; none where the topic is to be deleted.
pub fn missing(
    world: &World,
    topic_id: Uuid,
    partition: i32,
    copy: &[Stored],
) -> Option<(Offset, u64)> {
    if world.topics.doomed.contains(&topic_id) {
        return None;
    }
    let acknowledged = world.history.acknowledged.get(&(topic_id, partition))?;
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
        let Some(replica) = self.replica(id, partition) else { return };
        let (topic_id, has_disk) = (replica.topic_id, replica.has_disk());
        let is_in_office =
            self.topic_in_office() == Some(topic_id) && self.epoch_in_office(partition) == epoch;
        if !is_in_office || !has_disk {
            return;
        }
        self.read_copy(id, partition);
        let copy = self.copy(id, partition);
        if let Some((offset, value)) = missing(self, topic_id, partition, copy) {
            let what =
                format!("{value} at {offset} of {partition} is not on {id}, leader of {epoch}");
            self.violate(NAME, what);
        }
    }

    /// Everything is whole again.
    pub fn check_acknowledged_at_the_end(&mut self) {
        let Some(topic_id) = self.topic_in_office() else { return };
        for partition in self.partitions.clone() {
            for id in self.assignment(partition).replicas {
                if !self.process(id).replicas.contains_key(&partition) {
                    continue;
                }
                let copy = self.copy(id, partition);
                if let Some((offset, value)) = missing(self, topic_id, partition, copy) {
                    self.violate(
                        NAME,
                        format!("{value} at {offset} of {partition} is not on {id}"),
                    );
                }
            }
        }
    }
}
