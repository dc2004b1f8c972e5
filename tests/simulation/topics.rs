//! The topic: it is made, deleted while things go wrong, and made again under the same name with another id. Who deletes and
//! makes it does what the handlers of DeleteTopics and CreateTopics do.

use std::collections::{BTreeMap, BTreeSet};

use common::{ids::BrokerId, topic::Uuid};
use zk::{
    documents::topic::{Assignment, TopicDocument},
    topics::{MarkedForDeletion, TopicCreated, create, mark_for_deletion},
};

use crate::{
    broker::Broker,
    world::{Event, Millis, REPLICAS, TOPIC, World, at_once},
};

/// The id of the first topic.
const FIRST_ID: Uuid = Uuid(42);
/// Deletions of a run at most, before the one with which it ends.
const DELETIONS_MAX: u64 = 2;
/// How soon after another it is looked whether the topic is gone, at most.
const LOOK_AGAIN_MAX: Millis = 200;

/// The topics that have had the name.
pub struct Topics {
    /// The id of the next one.
    next: Uuid,
    /// Those whose deletion was asked for.
    pub doomed: BTreeSet<Uuid>,
}

impl Default for Topics {
    fn default() -> Topics {
        Topics { next: FIRST_ID, doomed: BTreeSet::new() }
    }
}

impl World {
    /// Decides when the topic is deleted.
    pub fn begin_deletions(&mut self, from: Millis, to: Millis) {
        for _ in 0..self.random.between(0, DELETIONS_MAX) {
            let at = self.random.between(from, to);
            self.after(at, Event::DeleteTopic);
        }
    }

    /// The topic of this moment is made, as long as there is none.
    pub fn create_topic(&mut self) {
        let mut document =
            TopicDocument { topic_id: Some(self.topics.next), partitions: BTreeMap::new() };
        for partition in self.partitions.clone() {
            let replicas = self.new_replicas(partition);
            document.partitions.insert(partition, Assignment::of(replicas));
        }
        let configs = BTreeMap::new();
        let created = create(&*self.looker, TOPIC, &configs, &document);
        let created = at_once(created).expect("a connected fake answers at once");
        match created {
            Ok(TopicCreated::Created) => {
                let id = self.topics.next.0;
                self.note(format_args!("TOPIC {id} is made"));
                self.topics.next = Uuid(id + 1);
            }
            // The former one is not gone yet, or there is no controller.
            Ok(TopicCreated::Exists) | Err(_) => self.create_topic_after(LOOK_AGAIN_MAX),
        }
    }

    /// Brokers for a new partition. Often those that were not told to delete their log of a former one are among them.
    fn new_replicas(&mut self, partition: i32) -> Vec<BrokerId> {
        let mut replicas: Vec<BrokerId> = Vec::new();
        if self.random.chance(500) {
            let has_log = |broker: &&Broker| broker.disk.contains_key(&partition);
            let with_logs = self.brokers.values().filter(has_log);
            replicas.extend(with_logs.map(|broker| broker.id).take(REPLICAS));
        }
        let others = self.brokers.keys().copied().filter(|id| !replicas.contains(id));
        let mut ids: Vec<BrokerId> = others.collect();
        while replicas.len() < REPLICAS {
            let at = usize::try_from(self.random.below(ids.len() as u64)).unwrap_or(0);
            replicas.push(ids.remove(at));
        }
        replicas
    }

    fn create_topic_after(&mut self, at_most: Millis) {
        let delay = self.random.between(1, at_most);
        self.after(delay, Event::CreateTopic);
    }

    /// The topic is to be deleted, if the controller knows of it. Another one follows, if faults go on.
    pub fn delete_topic(&mut self) {
        self.check_states();
        let Some(id) = self.topic_in_office() else { return };
        let controllers = self.brokers.values().filter_map(|broker| broker.process.as_ref());
        let mut controllers = controllers.filter(|process| process.office.is_some());
        if !controllers.any(|process| process.metadata.load().topic_by_id(id).is_some()) {
            return;
        }
        let marked = mark_for_deletion(&*self.looker, TOPIC);
        let marked = at_once(marked).expect("at once").expect("a connected fake takes it");
        if marked != MarkedForDeletion::Marked {
            return;
        }
        self.note(format_args!("DELETE topic {}", id.0));
        self.topics.doomed.insert(id);
        if !self.is_over {
            self.create_topic_after(LOOK_AGAIN_MAX);
        }
    }

    /// Whether what is acknowledged has to survive: not once the topic is to be deleted.
    pub fn must_be_kept(&self) -> bool {
        self.topic_in_office().is_some_and(|id| !self.topics.doomed.contains(&id))
    }
}
