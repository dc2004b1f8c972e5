//! What a topic's znode says, and when it says that a move is over: once the replicas that the move takes away have
//! stopped. A controller that comes before finds the move still there, and has them stopped. Kafka writes it first, and
//! what it has not said by then is never said.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    ids::BrokerId,
    topic::{TopicPartition, Uuid},
};

use crate::{
    assignment::Assignment,
    controller::{Controller, Topic},
    plan::{Applied, Outcome, Plan, Step, Write},
};

/// A move that has arrived, while replicas that it takes away have not answered to StopReplica. Until then the topic's
/// znode says that it goes on.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The assignment of the move.
    pub(crate) before: Assignment,
    /// The live brokers that have not answered; never empty.
    waits_for: BTreeSet<BrokerId>,
}

fn id_of(topic: &Arc<str>, index: i32) -> TopicPartition {
    TopicPartition::new(Arc::clone(topic), index)
}

impl Controller {
    /// A move has arrived: its end is written at once, or when these brokers have answered. Who does not live is not
    /// waited for.
    pub(crate) fn wait_for_end(&mut self, id: &TopicPartition, before: Assignment) {
        let lives = |broker: &BrokerId| self.brokers.contains_key(broker);
        let waits_for: BTreeSet<BrokerId> = before.removing.iter().copied().filter(lives).collect();
        if waits_for.is_empty() {
            self.ending.remove(id);
        } else {
            self.ending.insert(id.clone(), Ending { before, waits_for });
        }
    }

    /// A broker has stopped its replica, or said that it cannot: more is not to be had from it.
    pub(crate) fn has_stopped(&mut self, id: &TopicPartition, broker: BrokerId) {
        let Some(ending) = self.ending.get_mut(id) else { return };
        ending.waits_for.remove(&broker);
        if ending.waits_for.is_empty() {
            self.ending.remove(id);
            self.topics_todo.insert(Arc::clone(&id.topic));
        }
    }

    /// Brokers went, and with them their replicas that were to stop.
    pub(crate) fn wait_no_more_for(&mut self, brokers: &BTreeSet<BrokerId>) {
        for (id, broker) in self.waited_for(brokers) {
            self.has_stopped(&id, broker);
        }
    }

    /// What brokers were told may not have reached them: their replicas that are to stop are told again.
    pub(crate) fn stop_again(&mut self, brokers: &BTreeSet<BrokerId>) {
        for (id, broker) in self.waited_for(brokers) {
            self.work(id).hearers.drop.insert(broker);
        }
    }

    /// A topic is to be deleted: so are the replicas that its moves take away, and for which it was waited.
    pub(crate) fn move_on(&mut self, name: &Arc<str>) {
        let ending = self.ending.keys().filter(|id| id.topic == *name).cloned();
        for id in ending.collect::<Vec<_>>() {
            let Some(Ending { before, .. }) = self.ending.remove(&id) else { continue };
            self.assign(&id, before);
            if let Some(topic) = self.topics.get_mut(name) {
                topic.arrived.remove(&id.partition);
            }
        }
    }

    fn waited_for(&self, brokers: &BTreeSet<BrokerId>) -> Vec<(TopicPartition, BrokerId)> {
        let waited_for = |(id, ending): (&TopicPartition, &Ending)| {
            let both = ending.waits_for.intersection(brokers).copied().collect::<Vec<_>>();
            both.into_iter().map(|broker| (id.clone(), broker)).collect::<Vec<_>>()
        };
        self.ending.iter().flat_map(waited_for).collect()
    }

    /// The assignments that a topic's znode is to have.
    pub(crate) fn to_be_stored(&self, name: &Arc<str>, topic: &Topic) -> BTreeMap<i32, Assignment> {
        let stored = |index: i32, known: &Assignment| match self.ending.get(&id_of(name, index)) {
            Some(ending) => ending.before.clone(),
            None => known.clone(),
        };
        let partitions = topic.partitions.iter();
        partitions.map(|(index, one)| (*index, stored(*index, &one.assignment))).collect()
    }

    /// Decides what a topic's znode shall say; `moves` are assignments to be written.
    pub(crate) fn plan_topic(
        &mut self,
        name: Arc<str>,
        moves: BTreeMap<i32, Assignment>,
        new_id: &mut dyn FnMut() -> Uuid,
        plan: &mut Plan,
    ) {
        let Some(topic) = self.topics.get(&name) else { return };
        if topic.stale {
            self.topics_todo.insert(name);
            return;
        }
        if topic.deletion.is_some() {
            self.plan_deletion(name, plan);
            return;
        }
        let lacks_id = topic.id.is_none() && self.options.topic_ids;
        let ended = |index: &i32| !self.ending.contains_key(&id_of(&name, *index));
        if !lacks_id && moves.is_empty() && !topic.arrived.iter().any(ended) {
            return;
        }
        let mut partitions = self.to_be_stored(&name, topic);
        for (index, assignment) in moves {
            plan.moves(TopicPartition::new(Arc::clone(&name), index));
            partitions.insert(index, assignment);
        }
        let write = plan.write(Write::SetTopic {
            name: Arc::clone(&name),
            id: if lacks_id { Some(new_id()) } else { topic.id },
            partitions,
            expected: topic.version,
        });
        plan.steps.push(Step::Topic { name, write });
    }

    pub(crate) fn apply_topic(
        &mut self,
        name: Arc<str>,
        write: &Write,
        outcome: Outcome,
        applied: &mut Applied,
    ) {
        let Some(topic) = self.topics.get_mut(&name) else { return };
        match (write, outcome) {
            (Write::SetTopic { id, partitions, .. }, Outcome::Done { version }) => {
                topic.version = version;
                topic.id = *id;
                let ending = &self.ending;
                topic.arrived.retain(|index| ending.contains_key(&id_of(&name, *index)));
                let is_other = |(index, assignment): &(&i32, &Assignment)| {
                    let known = topic.partitions.get(*index).map(|known| &known.assignment);
                    let stored = ending.get(&id_of(&name, **index)).map(|one| &one.before);
                    known.is_some() && stored.or(known) != Some(*assignment)
                };
                let moved: Vec<(i32, Assignment)> = partitions
                    .iter()
                    .filter(is_other)
                    .map(|(index, assignment)| (*index, assignment.clone()))
                    .collect();
                for (index, assignment) in moved {
                    self.adopt(&TopicPartition::new(Arc::clone(&name), index), assignment);
                }
                self.moves_are_written(&name);
                if let Some(id) = id {
                    self.names.insert(*id, name);
                }
                applied.more = true;
            }
            _ => {
                topic.stale = true;
                applied.reread.insert(Arc::clone(&name));
                self.topics_todo.insert(name);
            }
        }
    }
}
