//! What ZooKeeper says of a partition: the leader is in the in-sync set, epochs and versions rise, and nobody writes but the
//! controller in office.

use std::collections::BTreeMap;

use common::{
    ids::{BrokerId, ControllerEpoch, LeaderEpoch},
    topic::Uuid,
};
use zk::{
    changes::ZkChanges,
    documents::{
        controller::parse_epoch, partition_state::PartitionStateDocument, topic::TopicDocument,
    },
    paths,
    store::{Watch, ZkStore, ZkVersion},
};

use crate::world::{TOPIC, World, looked};

/// The states as last seen.
#[derive(Default)]
pub struct Seen {
    changes: Option<ZkChanges>,
    /// The topic, as it was when it changed last.
    topic: Option<TopicDocument>,
    /// Each partition's state, with its version.
    pub states: BTreeMap<i32, (PartitionStateDocument, ZkVersion)>,
}

const NAME: &str = "leader in sync";

impl World {
    /// Looks at the states that have changed.
    pub fn check_states(&mut self) {
        let looker = self.looker.clone();
        let seen = &mut self.invariants.states;
        let is_first = seen.changes.is_none();
        let changes = seen.changes.get_or_insert_with(|| looker.changes()).take();
        if !is_first && changes.is_none() {
            return;
        }
        let topic_path = paths::topic(TOPIC);
        let is_dirty = changes.as_ref().is_some_and(|changes| changes.node_is_dirty(&topic_path));
        if is_first || is_dirty {
            self.check_topic(&topic_path);
        }
        for partition in self.partitions.clone() {
            let path = paths::partition_state(TOPIC, partition);
            let is_dirty = changes.as_ref().is_some_and(|changes| changes.node_is_dirty(&path));
            if is_first || is_dirty {
                self.check_state(partition, &path);
            }
        }
    }

    /// Another topic begins anew.
    fn check_topic(&mut self, path: &str) {
        let node = looked(self.looker.get(path, Watch::Yes));
        let now = node.map(|node| TopicDocument::parse(TOPIC, &node.data));
        let now = now.map(|parsed| parsed.expect("it was written by us"));
        let seen = &mut self.invariants.states;
        let before = std::mem::replace(&mut seen.topic, now);
        let id = seen.topic.as_ref().and_then(|topic| topic.topic_id);
        if let Some(before) = before.filter(|before| before.topic_id != id) {
            seen.states.clear();
            self.check_deleted(&before);
        }
    }

    fn check_state(&mut self, partition: i32, path: &str) {
        let Some(node) = looked(self.looker.get(path, Watch::Yes)) else { return };
        let state = PartitionStateDocument::parse(TOPIC, partition, &node.data);
        let state = state.expect("a state that was written can be read");
        let office = looked(self.looker.get(paths::CONTROLLER_EPOCH, Watch::No));
        let office = office.and_then(|node| parse_epoch(&node.data).ok());
        let office = office.unwrap_or(ControllerEpoch(0));
        let (leader, isr) = (state.leader, state.isr.clone());
        if leader != BrokerId::NONE && !isr.contains(&leader) {
            self.violate(NAME, format!("{leader} leads {partition} with isr {isr:?}"));
        }
        if isr.is_empty() {
            self.violate(NAME, format!("nobody is in sync for {partition}"));
        }
        if state.controller_epoch != office {
            let by = state.controller_epoch;
            let what = format!("controller {by} writes {partition} while {office} is in office");
            self.violate("one controller", what);
        }
        let before = self.invariants.states.states.get(&partition).map(|(state, _)| state);
        let epoch_before = before.map_or(LeaderEpoch::NONE, |before| before.leader_epoch);
        let same_leader = before.is_none_or(|before| before.leader == leader);
        let epoch = state.leader_epoch;
        if epoch < epoch_before || epoch == epoch_before && !same_leader {
            let what = format!("{leader} leads {partition} in {epoch} after {epoch_before}");
            self.violate("one leader", what);
        }
        self.invariants.states.states.insert(partition, (state, node.stat.version));
    }

    /// The id of the topic, as ZooKeeper has it; none while there is none.
    pub fn topic_in_office(&self) -> Option<Uuid> {
        self.invariants.states.topic.as_ref()?.topic_id
    }

    /// The leader of a partition, as ZooKeeper has it.
    pub fn leader_in_office(&self, partition: i32) -> Option<BrokerId> {
        let known = self.invariants.states.states.get(&partition);
        known.map(|(state, _)| state.leader).filter(|leader| *leader != BrokerId::NONE)
    }

    /// The leader epoch of a partition, as ZooKeeper has it.
    pub fn epoch_in_office(&self, partition: i32) -> LeaderEpoch {
        let known = self.invariants.states.states.get(&partition);
        known.map_or(LeaderEpoch::NONE, |(state, _)| state.leader_epoch)
    }

    /// The in-sync set of a partition, as ZooKeeper has it.
    pub fn in_sync_set(&self, partition: i32) -> Vec<BrokerId> {
        let known = self.invariants.states.states.get(&partition);
        known.map_or_else(Vec::new, |(state, _)| state.isr.clone())
    }
}
