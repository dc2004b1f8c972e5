//! Every offset of a partition is one record for all observers, for ever; and a consumer gets records from where it asks.

use std::collections::BTreeMap;

use common::{ids::Offset, topic::Uuid};

use crate::{copies::Stored, world::World};

/// What was seen at each offset of each topic's partitions.
pub type Seen = BTreeMap<(Uuid, i32, Offset), Stored>;

impl World {
    /// A consumer sees records.
    pub fn check_observed(
        &mut self,
        client: usize,
        (topic_id, partition): (Uuid, i32),
        from: Offset,
        records: &[(Offset, Stored)],
    ) {
        let mut next = from;
        for (offset, stored) in records {
            if *offset != next {
                let what = format!("client {client} gets {offset} of {partition}, not {next}");
                return self.violate("observers", what);
            }
            next = offset.plus(1);
            let key = (topic_id, partition, *offset);
            let known = *self.invariants.observed.entry(key).or_insert(*stored);
            if known != *stored {
                let what = format!(
                    "client {client} sees {stored:?} at {offset} of {partition}, another {known:?}"
                );
                return self.violate("observers", what);
            }
        }
    }
}
