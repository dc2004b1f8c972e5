//! What clients have sent, and what they were answered.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    ids::{BrokerId, Offset},
    topic::Uuid,
};

use crate::{network::RequestId, world::World};

/// A batch that a client has sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its partition.
    pub partition: i32,
    /// Its values; none for a marker.
    pub values: Vec<u64>,
}

/// A batch that was acknowledged to a producer that asked for acks=all.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    /// The offset of its first record.
    pub first: Offset,
    /// Its values; none for a marker.
    pub values: Vec<u64>,
}

/// All that clients know.
#[derive(Default)]
pub struct History {
    /// The requests, as they were sent.
    pub sent: BTreeMap<RequestId, Sent>,
    /// The topics to which a leader has appended each value; more than one where it was sent again.
    pub appended: BTreeMap<u64, BTreeSet<Uuid>>,
    /// What was acknowledged for acks=all, by topic and partition.
    pub acknowledged: BTreeMap<(Uuid, i32), Vec<Acknowledged>>,
    /// How often a value was in a copy that a power cut has taken away.
    pub lost_copies: BTreeMap<u64, usize>,
    /// How much each producer had done when the last fault was over.
    pub work_at_heal: Vec<u64>,
}

impl World {
    /// A leader has appended a batch that a client has sent.
    pub fn note_appended(&mut self, id: BrokerId, partition: i32, request: RequestId) {
        let Some(topic_id) = self.replica(id, partition).map(|one| one.topic_id) else { return };
        let Some(sent) = self.history.sent.get(&request) else { return };
        for value in &sent.values {
            self.history.appended.entry(*value).or_default().insert(topic_id);
        }
    }

    /// A broker says that a batch is stored. That is true from now on, whether or not the client hears of it.
    pub fn answers_produce(
        &mut self,
        id: BrokerId,
        partition: i32,
        request: RequestId,
        first: Offset,
        acks_all: bool,
    ) {
        let Some(sent) = self.history.sent.get(&request).cloned() else { return };
        let Some(topic_id) = self.replica(id, partition).map(|one| one.topic_id) else { return };
        let values = sent.values;
        self.note(format_args!("broker {id} answers {partition} at {first}: {values:?}"));
        self.check_answer(id, partition, first, &values, acks_all);
        if acks_all {
            let acknowledged = self.history.acknowledged.entry((topic_id, partition)).or_default();
            acknowledged.push(Acknowledged { first, values });
        }
    }
}
