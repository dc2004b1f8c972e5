//! The answers to commits and deletions of offsets, partition by partition, each topic once.

use std::collections::HashMap;

use common::{error_code::ErrorCode, topic::TopicPartition};
use group_coordinator::event::OffsetToCommit;
use kafka_protocol::{
    messages::{
        OffsetCommitResponse, OffsetDeleteResponse, TopicName, TxnOffsetCommitResponse,
        offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
        offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic},
        txn_offset_commit_response::{
            TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
        },
    },
    protocol::StrBytes,
};

/// Each partition once, with what was said of it last. Source: `GroupCoordinatorAdapter.commitOffsets`.
pub(crate) fn last_of_each(offsets: Vec<OffsetToCommit>) -> Vec<OffsetToCommit> {
    if offsets.len() < 2 {
        return offsets;
    }
    let mut places: HashMap<TopicPartition, usize> = HashMap::with_capacity(offsets.len());
    let mut last: Vec<OffsetToCommit> = Vec::with_capacity(offsets.len());
    for offset in offsets {
        match places.get(&offset.topic_partition) {
            Some(place) => last[*place] = offset,
            None => {
                places.insert(offset.topic_partition.clone(), last.len());
                last.push(offset);
            }
        }
    }
    last
}

/// Collects a code for each partition; topics stand in the order of their first one.
#[derive(Default)]
pub(crate) struct CommitAnswers {
    topics: Vec<(TopicName, Vec<(i32, ErrorCode)>)>,
    /// Where each topic stands but the newest, which is noted when another comes: most requests have one.
    places: HashMap<TopicName, usize>,
}

impl CommitAnswers {
    /// Adds a partition's code.
    pub(crate) fn add(&mut self, topic: &str, partition: i32, error: ErrorCode) {
        let place = self.place_of(topic);
        self.topics[place].1.push((partition, error));
    }

    fn place_of(&mut self, topic: &str) -> usize {
        let next = self.topics.len();
        if let Some((newest, _)) = self.topics.last() {
            if &***newest == topic {
                return next - 1;
            }
            self.places.insert(newest.clone(), next - 1);
        }
        let name = TopicName(StrBytes::from_string(topic.to_owned()));
        if let Some(place) = self.places.get(&name) {
            return *place;
        }
        self.topics.push((name, Vec::new()));
        next
    }

    /// As OffsetCommit answers.
    pub(crate) fn response(self) -> OffsetCommitResponse {
        let topics = self.topics.into_iter().map(|(name, partitions)| {
            let each = partitions.into_iter().map(|(index, error)| {
                OffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(error.code())
            });
            OffsetCommitResponseTopic::default().with_name(name).with_partitions(each.collect())
        });
        OffsetCommitResponse::default().with_topics(topics.collect())
    }

    /// As TxnOffsetCommit answers.
    pub(crate) fn transactional_response(self) -> TxnOffsetCommitResponse {
        let topics = self.topics.into_iter().map(|(name, partitions)| {
            let each = partitions.into_iter().map(|(index, error)| {
                TxnOffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(error.code())
            });
            TxnOffsetCommitResponseTopic::default().with_name(name).with_partitions(each.collect())
        });
        TxnOffsetCommitResponse::default().with_topics(topics.collect())
    }

    /// As OffsetDelete answers.
    pub(crate) fn deletion_response(self) -> OffsetDeleteResponse {
        let topics = self.topics.into_iter().map(|(name, partitions)| {
            let each = partitions.into_iter().map(|(index, error)| {
                OffsetDeleteResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(error.code())
            });
            OffsetDeleteResponseTopic::default().with_name(name).with_partitions(each.collect())
        });
        OffsetDeleteResponse::default().with_topics(topics.collect())
    }
}

#[cfg(test)]
mod tests {
    use common::ids::{LeaderEpoch, Offset, Timestamp};

    use super::*;

    #[test]
    fn a_topic_that_comes_again_stands_where_it_stood() {
        let mut answers = CommitAnswers::default();
        for (topic, partition) in [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("c", 0), ("b", 2)] {
            answers.add(topic, partition, ErrorCode::None);
        }
        let shown: Vec<_> = answers
            .topics
            .iter()
            .map(|(name, each)| (name.as_str(), each.iter().map(|one| one.0).collect()))
            .collect();
        let wanted: [(&str, Vec<i32>); 3] =
            [("a", vec![0, 1]), ("b", vec![0, 1, 2]), ("c", vec![0])];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn what_is_said_last_of_a_partition_counts() {
        let offset = |topic: &str, partition: i32, offset: i64| OffsetToCommit {
            topic_partition: TopicPartition::new(topic, partition),
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(0),
            metadata: String::new(),
            commit_timestamp: Timestamp(0),
            expire_timestamp: None,
        };
        let said = vec![offset("a", 0, 1), offset("a", 1, 2), offset("b", 0, 3), offset("a", 0, 4)];
        let kept = last_of_each(said);
        let shown: Vec<_> = kept
            .iter()
            .map(|one| (&*one.topic_partition.topic, one.topic_partition.partition, one.offset.0))
            .collect();
        assert_eq!(shown, [("a", 0, 4), ("a", 1, 2), ("b", 0, 3)]);
    }
}
