//! Offsets of one group: what is committed, and what is under way.

use std::{collections::BTreeMap, sync::Arc};

use common::topic::TopicPartition;

use crate::{event::AppendId, records::OffsetCommitValue};

/// Offsets by topic and partition. The record that is later in the log wins, whenever we hear of it.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    topics: BTreeMap<Arc<str>, BTreeMap<i32, Entry>>,
}

/// An entry lives while it has a value or an append.
#[derive(Debug)]
struct Entry {
    /// Place of the last committed record.
    position: AppendId,
    /// None after a tombstone, or while the first commit is under way.
    value: Option<OffsetCommitValue>,
    /// Appends under way that change the entry.
    in_flight: u32,
}

impl Offsets {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// How many there are, committed or under way.
    pub(crate) fn count(&self) -> usize {
        self.topics.values().map(BTreeMap::len).sum()
    }

    /// The committed offset.
    pub(crate) fn get(&self, partition: &TopicPartition) -> Option<&OffsetCommitValue> {
        self.entry(partition)?.value.as_ref()
    }

    /// Whether an append for the partition is under way.
    pub(crate) fn is_in_flight(&self, partition: &TopicPartition) -> bool {
        self.entry(partition).is_some_and(|entry| entry.in_flight > 0)
    }

    /// Whether there is anything, committed or under way.
    pub(crate) fn contains(&self, partition: &TopicPartition) -> bool {
        self.entry(partition).is_some()
    }

    fn entry(&self, partition: &TopicPartition) -> Option<&Entry> {
        self.topics.get(&partition.topic)?.get(&partition.partition)
    }

    /// Everything committed.
    pub(crate) fn committed(&self) -> impl Iterator<Item = (TopicPartition, &OffsetCommitValue)> {
        self.entries().filter_map(|(partition, entry)| Some((partition, entry.value.as_ref()?)))
    }

    /// Everything that there is, committed or under way.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = TopicPartition> {
        self.entries().map(|(partition, _)| partition)
    }

    fn entries(&self) -> impl Iterator<Item = (TopicPartition, &Entry)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(|(partition, entry)| {
                (TopicPartition { topic: topic.clone(), partition: *partition }, entry)
            })
        })
    }

    /// An append that changes the partition is under way.
    pub(crate) fn begin(&mut self, partition: &TopicPartition) {
        let partitions = self.topics.entry(partition.topic.clone()).or_default();
        let entry = partitions.entry(partition.partition).or_insert(Entry {
            position: AppendId(0),
            value: None,
            in_flight: 0,
        });
        entry.in_flight += 1;
    }

    /// The append that `begin` announced is over. An entry that is gone since stays so.
    pub(crate) fn finish(&mut self, partition: &TopicPartition, committed: Option<Committed>) {
        let Some(partitions) = self.topics.get_mut(&partition.topic) else { return };
        let Some(entry) = partitions.get_mut(&partition.partition) else { return };
        entry.in_flight = entry.in_flight.saturating_sub(1);
        if let Some(committed) = committed
            // A batch may hold a partition twice; its last record counts.
            && committed.position >= entry.position
        {
            entry.position = committed.position;
            entry.value = committed.value;
        }
        self.drop_if_nothing(partition);
    }

    /// Takes over a record of the log.
    pub(crate) fn apply(&mut self, partition: &TopicPartition, committed: Committed) {
        self.begin(partition);
        self.finish(partition, Some(committed));
    }

    /// Forgets a partition, whatever is under way.
    pub(crate) fn forget(&mut self, partition: &TopicPartition) {
        if let Some(partitions) = self.topics.get_mut(&partition.topic) {
            partitions.remove(&partition.partition);
            if partitions.is_empty() {
                self.topics.remove(&partition.topic);
            }
        }
    }

    fn drop_if_nothing(&mut self, partition: &TopicPartition) {
        if self.entry(partition).is_some_and(|entry| entry.value.is_none() && entry.in_flight == 0)
        {
            self.forget(partition);
        }
    }

    /// Moves all that is committed here to `target`: the transaction is committed.
    pub(crate) fn commit_into(self, target: &mut Offsets) {
        for (topic, partitions) in self.topics {
            for (partition, Entry { position, value, .. }) in partitions {
                if value.is_some() {
                    let partition = TopicPartition { topic: topic.clone(), partition };
                    target.apply(&partition, Committed { position, value });
                }
            }
        }
    }
}

/// A record of the log and its place.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    /// Grows along the log.
    pub(crate) position: AppendId,
    /// None for a tombstone.
    pub(crate) value: Option<OffsetCommitValue>,
}
