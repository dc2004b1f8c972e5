//! No answer without its records: what a broker says is stored is in its log at that place, and with acks=all on as many
//! replicas as `min.insync.replicas` promises, unless the topic is about to be deleted. Copies that a power cut has taken
//! since count.

use common::ids::{BrokerId, Offset};

use crate::{copies::Content, world::World};

const NAME: &str = "answers";

impl World {
    /// A broker is about to answer.
    pub fn check_answer(
        &mut self,
        id: BrokerId,
        partition: i32,
        first: Offset,
        values: &[u64],
        acks_all: bool,
    ) {
        let ids: Vec<BrokerId> = self.brokers.keys().copied().collect();
        for id in &ids {
            self.read_copy(*id, partition);
        }
        let Some(replica) = self.replica(id, partition) else { return };
        let (topic_id, has_disk) = (replica.topic_id, replica.has_disk());
        let promises = acks_all && !self.topics.doomed.contains(&topic_id);
        for (at, value) in values.iter().enumerate() {
            let offset = first.plus(at as i64);
            let place = usize::try_from(offset.0).unwrap_or(0);
            let has = |id: &BrokerId| {
                let stored = self.copy(*id, partition).get(place);
                stored.map(|stored| stored.content) == Some(Content::Value(*value))
            };
            if has_disk && !has(&id) {
                let what = format!("{value} is not at {offset} of {partition} on {id}");
                return self.violate(NAME, what);
            }
            let lost = self.history.lost_copies.get(value).copied().unwrap_or(0);
            let copies = ids.iter().filter(|id| has(id)).count() + lost;
            if promises && copies < self.copies_promised() {
                let what = format!("{value} at {offset} of {partition} has {copies} copies");
                return self.violate(NAME, what);
            }
        }
    }
}
