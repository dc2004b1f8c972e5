//! Committed offsets on the wire: OffsetFetch and OffsetCommit, for members and for administrators.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use common::{error_code::ErrorCode, topic::TopicPartition};
use kafka_protocol::{
    messages::{
        GroupId, OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse, TopicName,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        offset_fetch_request::{
            OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
        },
    },
    protocol::StrBytes,
};

use crate::{
    admin::{outcome, text, topic_name},
    connection::Connection,
    error::ClientError,
};

/// Something for each partition.
pub type Partitions<T> = BTreeMap<TopicPartition, T>;

/// Where a group stands in a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next record it will read.
    pub offset: i64,
    /// Epoch of the record before; -1 where unknown.
    pub leader_epoch: i32,
    /// A text that the committer left.
    pub metadata: String,
}

impl CommittedOffset {
    /// The offset alone.
    pub fn at(offset: i64) -> CommittedOffset {
        CommittedOffset { offset, leader_epoch: -1, metadata: String::new() }
    }
}

/// A question for committed offsets.
pub(crate) struct Fetch<'a> {
    pub(crate) group: &'a str,
    /// None asks for all.
    pub(crate) partitions: Option<&'a BTreeSet<TopicPartition>>,
    /// Whether offsets of transactions that are open are an error, to be asked for again.
    pub(crate) is_stable_only: bool,
}

/// Versions of OffsetFetch from this one on ask for several groups. Source: KIP-709.
const GROUPS_FROM: i16 = 8;
/// All partitions can be asked for from this version on.
const ALL_FROM: i16 = 2;
/// From this version on an offset may be asked to be stable. Source: KIP-447.
const STABLE_FROM: i16 = 7;

impl Fetch<'_> {
    /// Asks the coordinator; no offset where none is committed.
    pub(crate) async fn call(
        &self,
        connection: &Connection,
        limit: Duration,
    ) -> Result<Partitions<Result<Option<CommittedOffset>, ClientError>>, ClientError> {
        let version = connection.version_of::<OffsetFetchRequest>(i16::MAX)?;
        if version < ALL_FROM && self.partitions.is_none() {
            return Err(ClientError::from_code(ErrorCode::UnsupportedVersion, None));
        }
        let response = connection.call_as(self.request(version), version, limit).await?;
        read_fetched(&response, version)
    }

    fn request(&self, version: i16) -> OffsetFetchRequest {
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for name in self.partitions.into_iter().flatten() {
            topics.entry(&name.topic).or_default().push(name.partition);
        }
        let id = GroupId(text(self.group));
        let is_stable_only = self.is_stable_only && version >= STABLE_FROM;
        let request = OffsetFetchRequest::default().with_require_stable(is_stable_only);
        if version < GROUPS_FROM {
            let topics = topics.into_iter().map(|(name, indexes)| {
                OffsetFetchRequestTopic::default()
                    .with_name(topic_name(name))
                    .with_partition_indexes(indexes)
            });
            let topics = self.partitions.is_some().then(|| topics.collect());
            return request.with_group_id(id).with_topics(topics);
        }
        let topics = topics.into_iter().map(|(name, indexes)| {
            OffsetFetchRequestTopics::default()
                .with_name(topic_name(name))
                .with_partition_indexes(indexes)
        });
        let group = OffsetFetchRequestGroup::default()
            .with_group_id(id)
            .with_member_epoch(-1)
            .with_topics(self.partitions.is_some().then(|| topics.collect()));
        request.with_groups(vec![group])
    }
}

/// One partition of an answer, of either shape.
struct Found<'a> {
    topic: &'a TopicName,
    index: i32,
    code: i16,
    offset: i64,
    leader_epoch: i32,
    metadata: Option<&'a StrBytes>,
}

fn read_fetched(
    response: &OffsetFetchResponse,
    version: i16,
) -> Result<Partitions<Result<Option<CommittedOffset>, ClientError>>, ClientError> {
    outcome(response.error_code, None)?;
    let mut found = Vec::new();
    if version < GROUPS_FROM {
        for topic in &response.topics {
            found.extend(topic.partitions.iter().map(|partition| Found {
                topic: &topic.name,
                index: partition.partition_index,
                code: partition.error_code,
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                metadata: partition.metadata.as_ref(),
            }));
        }
    }
    for group in &response.groups {
        outcome(group.error_code, None)?;
        for topic in &group.topics {
            found.extend(topic.partitions.iter().map(|partition| Found {
                topic: &topic.name,
                index: partition.partition_index,
                code: partition.error_code,
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                metadata: partition.metadata.as_ref(),
            }));
        }
    }
    let results = found.into_iter().map(|found| {
        let offset = outcome(found.code, None).map(|()| {
            (found.offset >= 0).then(|| CommittedOffset {
                offset: found.offset,
                leader_epoch: found.leader_epoch,
                metadata: found.metadata.map(StrBytes::to_string).unwrap_or_default(),
            })
        });
        (TopicPartition::new(&*found.topic.0, found.index), offset)
    });
    Ok(results.collect())
}

/// Who commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committer {
    pub(crate) group: String,
    /// -1 for somebody outside the group.
    pub(crate) generation: i32,
    /// Empty for somebody outside the group.
    pub(crate) member: String,
    pub(crate) instance: Option<String>,
}

/// From this version on a static member names itself. Source: KIP-345.
const INSTANCE_FROM: i16 = 7;

impl Committer {
    /// Somebody who is no member.
    pub(crate) fn nobody(group: &str) -> Committer {
        Committer { group: group.to_owned(), generation: -1, member: String::new(), instance: None }
    }

    /// Commits at the coordinator; a result for each partition.
    pub(crate) async fn commit(
        &self,
        connection: &Connection,
        wanted: &Partitions<CommittedOffset>,
        limit: Duration,
    ) -> Result<Partitions<Result<(), ClientError>>, ClientError> {
        let version = connection.version_of::<OffsetCommitRequest>(i16::MAX)?;
        let request = self.request(wanted, version);
        let response = connection.call_as(request, version, limit).await?;
        let mut results = Partitions::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                let name = TopicPartition::new(&*topic.name.0, partition.partition_index);
                results.insert(name, outcome(partition.error_code, None));
            }
        }
        Ok(results)
    }

    fn request(&self, wanted: &Partitions<CommittedOffset>, version: i16) -> OffsetCommitRequest {
        let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
        for (name, committed) in wanted {
            let partition = OffsetCommitRequestPartition::default()
                .with_partition_index(name.partition)
                .with_committed_offset(committed.offset)
                .with_committed_leader_epoch(committed.leader_epoch)
                .with_committed_metadata(Some(text(&committed.metadata)));
            topics.entry(&name.topic).or_default().push(partition);
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            OffsetCommitRequestTopic::default()
                .with_name(topic_name(name))
                .with_partitions(partitions)
        });
        let instance = self.instance.as_deref().filter(|_| version >= INSTANCE_FROM);
        OffsetCommitRequest::default()
            .with_group_id(GroupId(text(&self.group)))
            .with_generation_id_or_member_epoch(self.generation)
            .with_member_id(text(&self.member))
            .with_group_instance_id(instance.map(text))
            .with_topics(topics.collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use common::topic::TopicPartition;
    use kafka_protocol::{
        messages::{OffsetCommitRequest, OffsetFetchRequest},
        protocol::{Encodable, Message, VersionRange},
    };

    use super::{CommittedOffset, Committer, Fetch, Partitions};

    fn versions<M: Message>() -> std::ops::RangeInclusive<i16> {
        let VersionRange { min, max } = M::VERSIONS;
        min..=max
    }

    #[test]
    fn every_version_can_be_written() {
        let partitions = BTreeSet::from([TopicPartition::new("t", 0)]);
        for version in versions::<OffsetFetchRequest>() {
            let fetch = Fetch { group: "g", partitions: Some(&partitions), is_stable_only: true };
            let mut bytes = Vec::new();
            fetch.request(version).encode(&mut bytes, version).unwrap();
        }
        let committer = Committer { instance: Some("i".to_owned()), ..Committer::nobody("g") };
        let wanted = Partitions::from([(TopicPartition::new("t", 0), CommittedOffset::at(4))]);
        for version in versions::<OffsetCommitRequest>() {
            let mut bytes = Vec::new();
            committer.request(&wanted, version).encode(&mut bytes, version).unwrap();
        }
    }
}
