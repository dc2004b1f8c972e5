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
        let has_disk = self.replica(id, partition).is_some_and(|replica| replica.has_disk());
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
            if acks_all && self.must_be_kept() && copies < self.copies_promised() {
                let what = format!("{value} at {offset} of {partition} has {copies} copies");
                return self.violate(NAME, what);
            }
        }
    }
}
