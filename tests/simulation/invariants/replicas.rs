//! Replicas are equal up to their high watermarks: what one of them takes for committed is the same on all, for ever. And
//! of what an idempotent producer sends nothing is committed twice.

use std::collections::BTreeMap;

use common::{
    ids::{BrokerId, ProducerId},
    topic::Uuid,
};

use crate::{
    copies::{Content, Stored},
    world::World,
};

/// What was committed.
#[derive(Default)]
pub struct Seen {
    /// The committed records of each topic's partitions.
    committed: BTreeMap<(Uuid, i32), Vec<Stored>>,
    /// Values of producers with ids that are committed in each topic, and where.
    once: BTreeMap<(Uuid, u64), usize>,
    /// How far each replica was compared.
    compared: BTreeMap<(BrokerId, i32), usize>,
}

impl Seen {
    /// A replica's records from `keep` on are to be compared again.
    pub fn forget_from(&mut self, id: BrokerId, partition: i32, keep: usize) {
        if let Some(compared) = self.compared.get_mut(&(id, partition)) {
            *compared = (*compared).min(keep);
        }
    }
}

impl World {
    /// Looks at one replica.
    pub fn check_replica(&mut self, id: BrokerId, partition: i32) {
        let Some(replica) = self.replica(id, partition) else { return };
        let topic_id = replica.topic_id;
        let high_watermark = usize::try_from(replica.log.high_watermark().0).unwrap_or(0);
        let seen = &mut self.invariants.replicas;
        let compared = seen.compared.entry((id, partition)).or_default();
        if high_watermark <= *compared {
            return;
        }
        let copy = self.invariants.copies.records.get(&(id, partition));
        let copy = copy.map_or(&[][..], |copy| &copy[*compared..high_watermark]);
        let committed = seen.committed.entry((topic_id, partition)).or_default();
        let (mut different, mut twice) = (None, None);
        for (at, stored) in (*compared..).zip(copy) {
            match committed.get(at) {
                Some(known) if known != stored => {
                    different.get_or_insert((at, *stored, *known));
                }
                Some(_) => {}
                None => {
                    committed.push(*stored);
                    if let Content::Value(value) = stored.content
                        && stored.producer != ProducerId::NONE
                        && let Some(first) = seen.once.insert((topic_id, value), at)
                    {
                        twice.get_or_insert((at, value, first));
                    }
                }
            }
        }
        *compared = high_watermark;
        if let Some((at, stored, known)) = different {
            let what = format!("{id} has {stored:?} at {at} of {partition}, others have {known:?}");
            self.violate("replicas", what);
        }
        if let Some((at, value, first)) = twice {
            let what = format!("{value} is committed at {first} and at {at} of {partition}");
            self.violate("once", what);
        }
    }
}
