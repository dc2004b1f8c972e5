//! In which partition of a coordinators' topic a key belongs. Source: `GroupMetadataManager.partitionFor`, `TransactionStateManager.partitionFor`.

use common::{java_hash::coordinator_partition, topic::Uuid};
use metadata::snapshot::ClusterSnapshot;
use parking_lot::Mutex;

/// How many partitions a coordinators' topic has counted since this broker first heard of it.
///
/// Partitions that are added later count from the next start, as in Kafka, which asks once: a key that moved to another partition
/// would leave its offsets, or its open transaction, behind. A topic that is made again counts anew.
pub(crate) struct CoordinatorTopic {
    name: &'static str,
    /// As many are counted on before the topic is made.
    configured: i32,
    counted: Mutex<Option<(Option<Uuid>, i32)>>,
}

impl CoordinatorTopic {
    pub(crate) fn new(name: &'static str, configured: i32) -> CoordinatorTopic {
        CoordinatorTopic { name, configured, counted: Mutex::default() }
    }

    /// Takes note of what the cluster has now.
    pub(crate) fn learn(&self, snapshot: &ClusterSnapshot) {
        let Some(topic) = snapshot.topic(self.name) else { return };
        let Some((last, _)) = topic.partitions().last() else { return };
        let mut counted = self.counted.lock();
        let is_known = counted.is_some_and(|(id, _)| id == topic.id);
        let count = last.saturating_add(1);
        // One of which the middle is missing is not made yet.
        if !is_known && usize::try_from(count).is_ok_and(|count| count == topic.partition_count()) {
            *counted = Some((topic.id, count));
        }
    }

    /// The partition that a key belongs to.
    pub(crate) fn partition_of(&self, key: &str) -> i32 {
        let counted = *self.counted.lock();
        coordinator_partition(key, counted.map_or(self.configured, |(_, count)| count))
    }
}

#[cfg(test)]
mod tests {
    use common::ids::{BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch};
    use metadata::snapshot::{Partition, TopicUpdate, Update};

    use super::*;

    fn known(id: u128, partitions: &[i32]) -> ClusterSnapshot {
        let partition = Partition {
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(0),
            isr: Box::new([]),
            replicas: Box::new([]),
            offline_replicas: Box::new([]),
            partition_epoch: PartitionEpoch(0),
            controller_epoch: ControllerEpoch(1),
        };
        let partitions = partitions.iter().map(|index| (*index, Some(partition.clone()))).collect();
        let topics = vec![TopicUpdate { name: "t".into(), id: Some(Uuid(id)), partitions }];
        let update = Update { topics, ..Update::default() };
        ClusterSnapshot::default().updated(&update).0
    }

    #[test]
    fn keys_stay_where_they_are_when_partitions_are_added() {
        let topic = CoordinatorTopic::new("t", 50);
        let place = |count: i32| coordinator_partition("some group", count);
        assert_eq!(topic.partition_of("some group"), place(50));
        topic.learn(&ClusterSnapshot::default());
        topic.learn(&known(1, &[0, 2]));
        assert_eq!(topic.partition_of("some group"), place(50), "one is not made yet");
        topic.learn(&known(1, &[0, 1, 2]));
        assert_eq!(topic.partition_of("some group"), place(3));
        topic.learn(&known(1, &[0, 1, 2, 3, 4]));
        assert_eq!(topic.partition_of("some group"), place(3));
        // Made again, it has nothing that could be left behind.
        topic.learn(&known(2, &[0, 1, 2, 3, 4]));
        assert_eq!(topic.partition_of("some group"), place(5));
        let places = [3, 5, 50].map(place);
        assert!(places[0] != places[1] && places[1] != places[2], "{places:?}");
    }
}
