//! The cluster at one moment. A snapshot never changes; an update makes the next one, which shares
//! all that the update does not name, so its cost is that of the change.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    ids::{BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};
use rpds::HashTrieMapSync;

use crate::{broker::Broker, partitions::Partitions};

/// Who leads and holds a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The leader; -1 where there is none.
    pub leader: BrokerId,
    /// Counts the leaders.
    pub leader_epoch: LeaderEpoch,
    /// The in-sync replicas.
    pub isr: Box<[BrokerId]>,
    /// All replicas, the preferred leader first.
    pub replicas: Box<[BrokerId]>,
    /// Replicas on dead brokers or failed log directories.
    pub offline_replicas: Box<[BrokerId]>,
    /// Version of the state znode.
    pub partition_epoch: PartitionEpoch,
    /// The controller that decided this.
    pub controller_epoch: ControllerEpoch,
}

/// A topic and its partitions.
#[derive(Clone, Debug)]
pub struct Topic {
    /// The topic's name.
    pub name: Arc<str>,
    /// The topic's id; none for a topic made before topic ids.
    pub id: Option<Uuid>,
    partitions: Partitions,
}

impl Topic {
    /// The partition of a number.
    pub fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.partitions.get(index)
    }

    /// The partitions in the order of their numbers.
    pub fn partitions(&self) -> impl Iterator<Item = (i32, &Arc<Partition>)> {
        self.partitions.iter()
    }

    /// How many partitions are known; never 0.
    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }
}

/// What changes; the content of an UpdateMetadata request.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// The controller that sends it.
    pub controller: Option<BrokerId>,
    /// All live brokers; those not named are gone.
    pub brokers: Vec<Arc<Broker>>,
    /// The topics with changes; all others stay.
    pub topics: Vec<TopicUpdate>,
}

/// What changes in one topic.
#[derive(Clone, Debug)]
pub struct TopicUpdate {
    /// The topic's name.
    pub name: Arc<str>,
    /// The topic's id; none takes away a known one.
    pub id: Option<Uuid>,
    /// Partitions by number; `None` removes one. The topic goes with its last.
    pub partitions: Vec<(i32, Option<Partition>)>,
}

/// The cluster at one moment; belongs to nobody, for it never changes.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    controller: Option<BrokerId>,
    brokers: Arc<BTreeMap<BrokerId, Arc<Broker>>>,
    topics: HashTrieMapSync<Arc<str>, Arc<Topic>>,
    names_by_id: HashTrieMapSync<Uuid, Arc<str>>,
    partition_count: usize,
}

impl ClusterSnapshot {
    /// The controller, if one is known.
    pub fn controller(&self) -> Option<BrokerId> {
        self.controller
    }

    /// The live brokers in the order of their ids.
    pub fn brokers(&self) -> impl ExactSizeIterator<Item = &Arc<Broker>> {
        self.brokers.values()
    }

    /// A live broker.
    pub fn broker(&self, id: BrokerId) -> Option<&Arc<Broker>> {
        self.brokers.get(&id)
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// A topic by id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.topics.get(self.names_by_id.get(&id)?)
    }

    /// All topics, in no order.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// How many topics there are.
    pub fn topic_count(&self) -> usize {
        self.topics.size()
    }

    /// How many partitions there are in all topics.
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// A partition by the topic's name and its number.
    pub fn partition(&self, topic: &str, index: i32) -> Option<&Arc<Partition>> {
        self.topic(topic)?.partition(index)
    }

    /// The next snapshot, and the partitions that the update removed and did not make again.
    /// Source: `ZkMetadataCache.updateMetadata`.
    pub fn updated(&self, update: &Update) -> (ClusterSnapshot, Vec<TopicPartition>) {
        let mut next = self.clone();
        next.controller = update.controller;
        let unchanged = self.brokers.len() == update.brokers.len()
            && update.brokers.iter().all(|broker| self.broker(broker.id) == Some(broker));
        if !unchanged {
            let by_id = |broker: &Arc<Broker>| (broker.id, Arc::clone(broker));
            next.brokers = Arc::new(update.brokers.iter().map(by_id).collect());
        }
        let mut deleted = Vec::new();
        for topic in &update.topics {
            next.update_topic(topic, &mut deleted);
        }
        (next, deleted)
    }

    fn update_topic(&mut self, update: &TopicUpdate, deleted: &mut Vec<TopicPartition>) {
        let known = self.topics.get(&*update.name);
        let name = known.map_or_else(|| Arc::clone(&update.name), |topic| Arc::clone(&topic.name));
        let old_id = known.and_then(|topic| topic.id);
        let mut partitions =
            known.map_or_else(Partitions::default, |topic| topic.partitions.clone());
        let old_count = partitions.len();
        for (index, partition) in &update.partitions {
            match partition {
                Some(_) => deleted.retain(|gone| gone.partition != *index || gone.topic != name),
                None => deleted.push(TopicPartition::new(Arc::clone(&name), *index)),
            }
        }
        partitions.change(update.partitions.iter().cloned());
        self.partition_count = self.partition_count - old_count + partitions.len();
        let id = if partitions.len() == 0 { None } else { update.id };
        if let Some(old) = old_id
            && Some(old) != id
            && self.names_by_id.get(&old) == Some(&name)
        {
            self.names_by_id.remove_mut(&old);
        }
        if partitions.len() == 0 {
            self.topics.remove_mut(&name);
            return;
        }
        if let Some(id) = id {
            self.names_by_id.insert_mut(id, Arc::clone(&name));
        }
        self.topics.insert_mut(Arc::clone(&name), Arc::new(Topic { name, id, partitions }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use common::{
        ids::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch},
        topic::{TopicPartition, Uuid},
    };

    use super::{ClusterSnapshot, Partition, TopicUpdate, Update};
    use crate::broker::Broker;

    fn broker(id: i32) -> Arc<Broker> {
        let epoch = BrokerEpoch(-1);
        Arc::new(Broker { id: BrokerId(id), endpoints: Vec::new(), rack: None, epoch })
    }

    fn led_by(leader: i32) -> Option<Partition> {
        Some(Partition {
            leader: BrokerId(leader),
            leader_epoch: LeaderEpoch(0),
            isr: [BrokerId(leader)].into(),
            replicas: [BrokerId(leader)].into(),
            offline_replicas: Box::default(),
            partition_epoch: PartitionEpoch(0),
            controller_epoch: ControllerEpoch(1),
        })
    }

    fn topic(name: &str, id: u128, partitions: Vec<(i32, Option<Partition>)>) -> TopicUpdate {
        TopicUpdate { name: name.into(), id: (id != 0).then_some(Uuid(id)), partitions }
    }

    fn update(topics: Vec<TopicUpdate>) -> Update {
        Update { controller: Some(BrokerId(1)), brokers: vec![broker(1), broker(2)], topics }
    }

    #[test]
    fn an_update_replaces_what_it_names_and_shares_the_rest() {
        let first = ClusterSnapshot::default();
        let (second, _) = first.updated(&update(vec![
            topic("a", 10, vec![(0, led_by(1)), (1, led_by(2))]),
            topic("b", 11, vec![(0, led_by(1))]),
        ]));
        let (third, deleted) = second.updated(&update(vec![topic("a", 10, vec![(1, led_by(1))])]));
        assert!(deleted.is_empty());
        assert_eq!(first.topic_count(), 0);
        assert_eq!(second.partition("a", 1).unwrap().leader, BrokerId(2));
        assert_eq!(third.partition("a", 1).unwrap().leader, BrokerId(1));
        assert_eq!(third.partition_count(), 3);
        assert!(Arc::ptr_eq(second.topic("b").unwrap(), third.topic("b").unwrap()));
        let same = |index| {
            let of =
                |snapshot: &ClusterSnapshot| Arc::clone(snapshot.partition("a", index).unwrap());
            Arc::ptr_eq(&of(&second), &of(&third))
        };
        assert!(same(0) && !same(1));
    }

    #[test]
    fn a_topic_goes_with_its_last_partition() {
        let (snapshot, _) = ClusterSnapshot::default().updated(&update(vec![topic(
            "a",
            10,
            vec![(0, led_by(1)), (1, led_by(1))],
        )]));
        let (snapshot, deleted) = snapshot.updated(&update(vec![topic("a", 10, vec![(0, None)])]));
        assert_eq!(deleted, [TopicPartition::new("a", 0)]);
        assert!(snapshot.topic_by_id(Uuid(10)).is_some());
        let (snapshot, _) = snapshot.updated(&update(vec![topic("a", 10, vec![(1, None)])]));
        assert!(snapshot.topic("a").is_none() && snapshot.topic_by_id(Uuid(10)).is_none());
        assert_eq!(snapshot.partition_count(), 0);
    }

    #[test]
    fn a_topic_made_again_has_its_new_id_alone() {
        let made = |id| update(vec![topic("a", id, vec![(0, led_by(1))])]);
        let (snapshot, _) = ClusterSnapshot::default().updated(&made(10));
        let (snapshot, _) = snapshot.updated(&made(11));
        assert!(snapshot.topic_by_id(Uuid(10)).is_none());
        assert_eq!(&*snapshot.topic_by_id(Uuid(11)).unwrap().name, "a");
        let (snapshot, _) = snapshot.updated(&made(0));
        assert!(snapshot.topic_by_id(Uuid(11)).is_none() && snapshot.topic("a").is_some());
    }

    #[test]
    fn the_broker_list_is_complete_in_every_update() {
        let (snapshot, _) = ClusterSnapshot::default().updated(&update(Vec::new()));
        assert_eq!(snapshot.brokers().len(), 2);
        let only_two = Update { controller: None, brokers: vec![broker(2)], topics: Vec::new() };
        let (snapshot, _) = snapshot.updated(&only_two);
        assert!(snapshot.broker(BrokerId(1)).is_none() && snapshot.broker(BrokerId(2)).is_some());
        assert_eq!(snapshot.controller(), None);
    }
}
