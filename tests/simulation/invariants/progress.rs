//! Once nothing goes wrong any more the cluster becomes whole: every partition has a leader with all replicas in sync and
//! all committed, every producer gets on, transactions end.

use common::ids::{BrokerId, LeaderEpoch};

use zk::{
    documents::topic::{Assignment, TopicDocument},
    paths,
    store::{Watch, ZkStore},
};

use crate::{
    clients::Client,
    replica::Role,
    world::{REPLICAS, TOPIC, World, looked},
};

const NAME: &str = "progress";

impl World {
    /// How much each producer has done.
    pub fn work_done(&self) -> Vec<u64> {
        let work = |client: &Client| match client {
            Client::Plain { acknowledged, .. } => Some(*acknowledged),
            Client::Idempotent(producer) => Some(producer.acknowledged),
            Client::Transactional(producer) => Some(producer.ended),
            Client::Consumer(_) => None,
        };
        self.clients.all.iter().filter_map(work).collect()
    }

    /// Who is to hold a partition, as ZooKeeper has it.
    pub fn assignment(&self, partition: i32) -> Assignment {
        let path = paths::topic(TOPIC);
        let node = looked(self.looker.get(&path, Watch::No)).expect("the topic is there");
        let document = TopicDocument::parse(TOPIC, &node.data).expect("it was written by us");
        document.partitions[&partition].clone()
    }

    /// Faults were over long ago.
    pub fn check_progress(&mut self) {
        let down: Vec<BrokerId> =
            self.brokers.keys().copied().filter(|id| self.brokers[id].process.is_none()).collect();
        if !down.is_empty() {
            return self.violate(NAME, format!("{down:?} do not run"));
        }
        if !self.must_be_kept() {
            return self.violate(NAME, "the topic was not deleted, or not made again".to_owned());
        }
        for partition in self.partitions.clone() {
            let state =
                self.invariants.states.states.get(&partition).map(|(state, _)| state.clone());
            let Some(state) = state else {
                return self.violate(NAME, format!("{partition} was never led"));
            };
            if state.isr.len() < REPLICAS {
                let what = format!("of {partition} only {:?} are in sync", state.isr);
                return self.violate(NAME, what);
            }
            let assignment = self.assignment(partition);
            let is_moved = assignment.adding.is_empty() && assignment.removing.is_empty();
            if !is_moved || state.isr.iter().any(|id| !assignment.replicas.contains(id)) {
                let what = format!("{partition} has {assignment:?} and isr {:?}", state.isr);
                return self.violate(NAME, what);
            }
            for id in self.running() {
                let Some(replica) = self.replica(id, partition) else { continue };
                let (epoch, leads) =
                    (replica.role.epoch(), matches!(replica.role, Role::Leader(_)));
                // A broker that was away when its replica was moved elsewhere is not told to delete it, with Kafka neither. It
                // does not lead, though.
                let is_wrong = match assignment.replicas.contains(&id) {
                    true => epoch != state.leader_epoch || leads != (id == state.leader),
                    false => leads,
                };
                if epoch != LeaderEpoch::NONE && is_wrong {
                    let what = format!(
                        "{id} is in epoch {epoch} of {partition}, led by {} in {}",
                        state.leader, state.leader_epoch
                    );
                    return self.violate(NAME, what);
                }
            }
        }
        let done = self.work_done();
        let before = self.history.work_at_heal.clone();
        for (number, (now, before)) in done.iter().zip(&before).enumerate() {
            if now <= before {
                return self
                    .violate(NAME, format!("producer {number} has not got on since {before}"));
            }
        }
    }
}
