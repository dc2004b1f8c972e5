//! The high watermark never goes back on the leader.

use std::collections::BTreeMap;

use common::{
    ids::{BrokerId, LeaderEpoch, Offset},
    topic::Uuid,
};

use crate::{replica::Role, world::World};

/// The high watermark of each leadership, as last seen: by topic and partition, broker, process and the epoch since which
/// it leads.
pub type Seen = BTreeMap<((Uuid, i32), BrokerId, u32, LeaderEpoch), Offset>;

impl World {
    /// Looks at one replica.
    pub fn check_high_watermark(&mut self, id: BrokerId, partition: i32) {
        let number = self.process_number(id);
        let Some(replica) = self.replica(id, partition) else { return };
        let Role::Leader(leader) = &replica.role else { return };
        let (since, now) = (leader.led_since(), replica.log.high_watermark());
        let key = ((replica.topic_id, partition), id, number, since);
        let seen = self.invariants.high_watermarks.insert(key, now);
        if let Some(before) = seen.filter(|before| *before > now) {
            let what = format!("on leader {id} of {partition} it goes from {before} to {now}");
            self.violate("high watermark", what);
        }
    }
}
