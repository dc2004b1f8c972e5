//! The answers to commits and deletions of offsets, partition by partition, each topic once.

use std::collections::HashMap;

use common::error_code::ErrorCode;
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

/// Collects a code for each partition; topics stand in the order of their first one.
#[derive(Default)]
pub(crate) struct CommitAnswers {
    topics: Vec<(TopicName, Vec<(i32, ErrorCode)>)>,
    places: HashMap<String, usize>,
}

impl CommitAnswers {
    /// Adds a partition's code.
    pub(crate) fn add(&mut self, topic: &str, partition: i32, error: ErrorCode) {
        let next = self.topics.len();
        let place = *self.places.entry(topic.to_owned()).or_insert(next);
        if place == next {
            let name = TopicName(StrBytes::from_string(topic.to_owned()));
            self.topics.push((name, Vec::new()));
        }
        self.topics[place].1.push((partition, error));
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
