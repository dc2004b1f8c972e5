//! The order in which Java's hash tables give their entries: Kafka's scripts print in it. Source: `java.util.HashMap`.

use client::admin::replicas::Replica;
use common::{
    java_hash::{in_hash_order, java_hash},
    topic::TopicPartition,
};

/// Source: `TopicPartition.hashCode`.
fn partition_hash(partition: &TopicPartition) -> i32 {
    let first = partition.partition.wrapping_add(31);
    first.wrapping_mul(31).wrapping_add(java_hash(&partition.topic))
}

/// Source: `TopicPartitionReplica.hashCode`.
fn replica_hash(replica: &Replica) -> i32 {
    let Replica { partition, broker } = replica;
    let first = java_hash(&partition.topic).wrapping_add(31);
    first.wrapping_mul(31).wrapping_add(partition.partition).wrapping_mul(31).wrapping_add(*broker)
}

/// Items by a text each.
pub(crate) fn by_text<T>(items: Vec<T>, text: impl Fn(&T) -> &str) -> Vec<T> {
    in_hash_order(items, |item| java_hash(text(item)))
}

/// Items by a partition each.
pub(crate) fn by_partition<T>(items: Vec<T>, partition: impl Fn(&T) -> &TopicPartition) -> Vec<T> {
    in_hash_order(items, |item| partition_hash(partition(item)))
}

/// Items by a replica each.
pub(crate) fn by_replica<T>(items: Vec<T>, replica: impl Fn(&T) -> &Replica) -> Vec<T> {
    in_hash_order(items, |item| replica_hash(replica(item)))
}

/// Numbers, such as ids of brokers.
pub(crate) fn numbers(numbers: Vec<i32>) -> Vec<i32> {
    in_hash_order(numbers, |number| *number)
}

#[cfg(test)]
mod tests {
    use common::topic::TopicPartition;

    use super::{by_partition, by_text, numbers};

    #[test]
    fn entries_come_as_java_prints_them() {
        // As a real `kafka-consumer-groups` lists these.
        let groups = vec!["g-active", "g-empty", "g-static", "g-two"];
        assert_eq!(by_text(groups, |name| name), ["g-two", "g-empty", "g-static", "g-active"]);
        let partitions: Vec<TopicPartition> =
            (0..3).map(|index| TopicPartition::new("g-topic", index)).collect();
        let indexes: Vec<i32> = by_partition(partitions, |name| name)
            .iter()
            .map(|partition| partition.partition)
            .collect();
        assert_eq!(indexes, [0, 2, 1]);
    }

    #[test]
    fn numbers_wrap_at_the_end_of_the_table() {
        assert_eq!(numbers(vec![1, 2, 9, 16]), [16, 1, 2, 9]);
    }
}
