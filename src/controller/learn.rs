//! How what was read becomes what is known, and what is to be decided because of it.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId},
    topic::TopicPartition,
};
use metadata::broker::Broker;

use crate::{
    change::{Change, StateRead, TopicRead},
    controller::{Controller, LiveBroker, Topic},
    deletion::Deletion,
    plan::Todo,
    states::{Leadership, Partition},
};

impl Controller {
    /// Takes in one piece of news.
    pub(crate) fn learn(&mut self, change: Change) {
        match change {
            Change::Brokers(brokers) => self.learn_brokers(brokers),
            Change::Topics { names, read } => self.learn_topics(&names, read),
            Change::Topic(read) => self.learn_topic(read),
            Change::TopicGone(name) => self.forget_topic(&name),
            Change::Deletions(names) => self.learn_deletions(names),
            Change::Unclean { topic, allowed } => {
                self.unclean.insert(topic, allowed);
            }
            Change::UncleanEnabled(topic) => self.elect_leaderless(topic.as_deref()),
            Change::Stopped { broker, broker_epoch, errors } => {
                if self.is_registered(broker, broker_epoch) {
                    self.learn_stopped(broker, errors);
                }
            }
            Change::Led { broker, broker_epoch, errors } => {
                if self.is_registered(broker, broker_epoch) {
                    self.learn_led(broker, errors);
                }
            }
            Change::LogDirsFailed(brokers) => {
                for (partition, replicas) in self.held_by(&brokers) {
                    self.work(partition).hearers.some.extend(replicas);
                }
            }
            Change::ControlledShutdown { ticket, broker, broker_epoch } => {
                self.learn_controlled_shutdown(ticket, broker, broker_epoch);
            }
            Change::AlterPartition { ticket, request } => {
                self.learn_alter_partition(ticket, request);
            }
            Change::Behind(broker) => self.learn_behind(broker),
            Change::PreferLeaders(partitions) => self.learn_preferred(partitions),
            Change::ElectLeaders { ticket, kind, only } => {
                self.learn_elect_leaders(ticket, kind, only);
            }
            Change::Rebalance { percentage } => self.learn_rebalance(percentage),
            Change::Reassign { ticket, moves } => self.learn_reassign(ticket, moves),
            Change::Orders(orders) => self.learn_orders(orders),
            Change::States(states) => self.learn_states(states),
        }
    }

    pub(crate) fn is_registered(&self, broker: BrokerId, epoch: BrokerEpoch) -> bool {
        self.brokers.get(&broker).is_some_and(|live| live.broker.epoch == epoch)
    }

    /// What is to be decided for the partition, to be added to.
    pub(crate) fn work(&mut self, partition: TopicPartition) -> &mut Todo {
        self.todo.entry(partition).or_default()
    }

    /// Brokers came, went, came back within one watch, or changed their endpoints.
    fn learn_brokers(&mut self, read: Vec<Arc<Broker>>) {
        let (mut came, mut bounced) = (BTreeSet::new(), BTreeSet::new());
        let mut went: BTreeSet<BrokerId> = self.brokers.keys().copied().collect();
        for broker in read {
            went.remove(&broker.id);
            match self.brokers.get_mut(&broker.id) {
                Some(live) if live.broker.epoch == broker.epoch => {
                    // A new rack alone counts from the next registration on.
                    if live.broker.endpoints != broker.endpoints {
                        live.broker = broker;
                        self.tell_brokers = true;
                    }
                    continue;
                }
                // It failed, and then it came.
                Some(_) => {
                    bounced.insert(broker.id);
                }
                None => {}
            }
            came.insert(broker.id);
            let offline = HashSet::new();
            let live = LiveBroker { broker, shutting_down: false, offline };
            self.brokers.insert(live.broker.id, live);
        }
        self.brokers.retain(|id, _| !went.contains(id));
        self.wait_no_more_for(&went);
        self.stop_again(&bounced);
        if came.is_empty() && went.is_empty() {
            return;
        }
        self.tell_brokers = true;
        for (partition, lost) in self.held_by(&went) {
            if self.is_queued_for_deletion(&partition.topic) {
                self.fail_deletion(&partition, &lost);
            } else {
                self.work(partition).hearers.all = true;
            }
        }
        for (partition, lost) in self.held_by(&bounced) {
            if self.is_queued_for_deletion(&partition.topic) {
                self.fail_deletion(&partition, &lost);
            } else {
                self.work(partition).hearers.bounced.extend(lost);
            }
        }
        self.tell_anew(&came);
    }

    /// What the broker was not told may have been to delete replicas: that has failed, and is tried again.
    fn learn_behind(&mut self, broker: BrokerId) {
        if !self.brokers.contains_key(&broker) {
            return;
        }
        let behind = BTreeSet::from([broker]);
        for (partition, lost) in self.held_by(&behind) {
            if self.is_queued_for_deletion(&partition.topic) {
                self.fail_deletion(&partition, &lost);
            }
        }
        self.stop_again(&behind);
        self.tell_anew(&behind);
    }

    /// Brokers that know nothing yet, or not enough.
    fn tell_anew(&mut self, came: &BTreeSet<BrokerId>) {
        if came.is_empty() {
            return;
        }
        self.greet.extend(came.iter().copied());
        for (partition, replicas) in self.held_by(came) {
            if self.is_queued_for_deletion(&partition.topic) {
                self.resume_deletion(&partition.topic);
            } else {
                self.work(partition).hearers.some.extend(replicas);
            }
        }
    }

    fn learn_topics(&mut self, names: &BTreeSet<Arc<str>>, read: Vec<TopicRead>) {
        let gone = |name: &&Arc<str>| !names.contains(*name);
        let gone: Vec<Arc<str>> = self.topics.keys().filter(gone).cloned().collect();
        gone.iter().for_each(|name| self.forget_topic(name));
        for topic in read {
            self.learn_topic(topic);
        }
    }

    /// A new topic, one with new partitions, or one that was to be read again.
    fn learn_topic(&mut self, read: TopicRead) {
        let TopicRead { name, version, id, partitions, leaderships } = read;
        let known_id = self.topics.get(&name).map(|topic| topic.id);
        if known_id.is_some_and(|known| known.is_some() && known != id) {
            self.forget_topic(&name);
        }
        if let Some(id) = id {
            self.names.insert(id, Arc::clone(&name));
        }
        let topic = self.topics.entry(Arc::clone(&name)).or_insert_with(|| Topic {
            id,
            version,
            partitions: std::collections::BTreeMap::new(),
            deletion: None,
            arrived: BTreeSet::new(),
            stale: false,
        });
        topic.id = id;
        topic.version = version;
        topic.stale = false;
        self.topics_todo.insert(Arc::clone(&name));
        let mut moved = Vec::new();
        let mut news = Vec::new();
        for (index, assignment) in partitions {
            let Some(known) = topic.partitions.get(&index) else {
                if let Some(deletion) = &mut topic.deletion {
                    deletion.late_partitions = true;
                } else {
                    topic.partitions.insert(index, Partition::default());
                    news.push((index, assignment));
                }
                continue;
            };
            // A move that is done here, and not yet in the znode.
            let is_behind = topic.arrived.contains(&index)
                && assignment.is_moving()
                && assignment.target() == known.assignment.replicas;
            if known.assignment != assignment && !is_behind && topic.deletion.is_none() {
                moved.push((index, assignment));
            } else if !is_behind {
                topic.arrived.remove(&index);
                self.ending.remove(&TopicPartition::new(Arc::clone(&name), index));
            }
        }
        let mut mended = Vec::new();
        for (index, leadership) in leaderships {
            if let Some(partition) = topic.partitions.get_mut(&index) {
                let is_unreadable = leadership == StateRead::Unreadable;
                if std::mem::replace(&mut partition.is_left_alone, is_unreadable) && !is_unreadable
                {
                    mended.push(index);
                }
                match leadership {
                    StateRead::Is(leadership) => partition.leadership = Some(leadership),
                    StateRead::Missing => partition.leadership = None,
                    // What was known is as good as ever.
                    StateRead::Unreadable => {}
                }
            }
        }
        for index in mended {
            self.work(TopicPartition::new(Arc::clone(&name), index)).hearers.all = true;
        }
        for (index, assignment) in news {
            let id = TopicPartition::new(Arc::clone(&name), index);
            let todo = self.work(id.clone());
            todo.hearers.all = true;
            // Whoever began the move may not have told the replicas.
            todo.new_epoch = assignment.is_moving();
            self.assign(&id, assignment);
        }
        for (index, assignment) in moved {
            self.adopt(&TopicPartition::new(Arc::clone(&name), index), assignment);
        }
    }

    fn learn_deletions(&mut self, names: BTreeSet<Arc<str>>) {
        for name in names {
            match self.topics.get_mut(&name) {
                Some(topic) if self.options.delete_topics => {
                    topic.deletion.get_or_insert_with(Deletion::default);
                    self.move_on(&name);
                    self.topics_todo.insert(name);
                }
                _ => {
                    self.forget.insert(name);
                }
            }
        }
    }

    /// Looks for a leader wherever one is missing; a set topic limits it.
    fn elect_leaderless(&mut self, only: Option<&str>) {
        let mut leaderless = Vec::new();
        for (name, topic) in &self.topics {
            if only.is_some_and(|only| *only != **name) {
                continue;
            }
            for (index, partition) in &topic.partitions {
                let id = TopicPartition::new(Arc::clone(name), *index);
                let leader = partition.leadership.as_ref().map(|leadership| leadership.leader);
                if leader.is_none_or(|leader| self.gone(&id, leader)) {
                    leaderless.push(id);
                }
            }
        }
        for partition in leaderless {
            self.work(partition);
        }
    }

    /// Replicas in lost log directories go offline, those that answer again come back.
    fn learn_led(&mut self, broker: BrokerId, errors: Vec<(TopicPartition, ErrorCode)>) {
        for (partition, error) in errors {
            let Some(live) = self.brokers.get_mut(&broker) else { return };
            match error {
                ErrorCode::KafkaStorageError if live.offline.insert(partition.clone()) => {
                    if self.is_queued_for_deletion(&partition.topic) {
                        self.fail_deletion(&partition, &[broker]);
                    } else {
                        self.work(partition).hearers.all = true;
                    }
                }
                // It can lead again, perhaps what nobody leads.
                ErrorCode::None if live.offline.remove(&partition) => {
                    self.work(partition).hearers.everyone = true;
                }
                _ => {}
            }
        }
    }

    /// Leaders changed their ISRs themselves: everyone shall know.
    fn learn_states(&mut self, states: Vec<(TopicPartition, Leadership)>) {
        for (id, leadership) in states {
            let Some(topic) = self.topics.get_mut(&id.topic) else { continue };
            let Some(partition) = topic.partitions.get_mut(&id.partition) else { continue };
            let known = partition.leadership.as_ref().map(|known| known.partition_epoch);
            if known.is_none_or(|known| known < leadership.partition_epoch) {
                partition.leadership = Some(leadership);
            }
            self.work(id).hearers.everyone = true;
        }
    }
}
