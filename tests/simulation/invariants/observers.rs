//! Every offset of a partition is one record for all observers, for ever; and a consumer gets records from where it asks.

use std::collections::BTreeMap;

use common::ids::Offset;

use crate::{copies::Stored, world::World};

/// What was seen at each offset of each partition.
pub type Seen = BTreeMap<(i32, Offset), Stored>;

impl World {
    /// A consumer sees records.
    pub fn check_observed(
        &mut self,
        client: usize,
        partition: i32,
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
            let known = *self.invariants.observed.entry((partition, *offset)).or_insert(*stored);
            if known != *stored {
                let what = format!(
                    "client {client} sees {stored:?} at {offset} of {partition}, another {known:?}"
                );
                return self.violate("observers", what);
            }
        }
    }
}
