//! Calls that go to partition leaders: offsets, and the deletion of records.

use std::collections::{BTreeMap, BTreeSet};

use common::{clock, error_code::ErrorCode, topic::TopicPartition};
use kafka_protocol::messages::{
    BrokerId, DeleteRecordsRequest, ListOffsetsRequest,
    delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic},
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
};

use super::{Admin, Attempt, Target, may_retry, no_node, outcome, timed_out, topic_name};
use crate::{
    cluster::{AutoCreate, Topics},
    error::ClientError,
};

/// An offset found by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// The offset; -1 when there is none.
    pub offset: i64,
    /// Time of its record; -1 where the question was no time.
    pub timestamp: i64,
    /// Epoch of its record; -1 where unknown.
    pub leader_epoch: i32,
}

/// What a reader may see, and where its log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All records, up to the high watermark.
    ReadUncommitted,
    /// No record of a transaction that is open or aborted, up to the last stable offset.
    ReadCommitted,
}

/// A result for each partition that was asked for.
type ResultsByPartition<T> = BTreeMap<TopicPartition, Result<T, ClientError>>;

/// `ListOffsetsRequest` learned the local log's start (-4) in version 8, the tiered end (-5) in 9, -3 in 7.
fn least_version(timestamp: i64) -> i16 {
    match timestamp {
        -3 => 7,
        -4 => 8,
        -5 => 9,
        _ => 1,
    }
}

impl Admin {
    /// Offsets for times, or for -1 (end), -2 (start), -3 (largest timestamp), -4 and -5 (tiers).
    pub async fn list_offsets(
        &self,
        wanted: &BTreeMap<TopicPartition, i64>,
    ) -> Result<ResultsByPartition<ListedOffset>, ClientError> {
        self.list_offsets_for(wanted, Isolation::ReadUncommitted).await
    }

    /// The same, for readers of that isolation.
    pub async fn list_offsets_for(
        &self,
        wanted: &BTreeMap<TopicPartition, i64>,
        isolation: Isolation,
    ) -> Result<ResultsByPartition<ListedOffset>, ClientError> {
        let partitions = wanted.keys().cloned().collect();
        self.by_leader("listOffsets", &partitions, async |attempt, partitions| {
            let least = partitions.iter().map(|name| least_version(wanted[name])).max();
            let version = attempt.connection.version_of::<ListOffsetsRequest>(i16::MAX)?;
            if version < least.unwrap_or(1) {
                return Err(ClientError::from_code(ErrorCode::UnsupportedVersion, None));
            }
            let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
            for name in partitions {
                let partition = ListOffsetsPartition::default()
                    .with_partition_index(name.partition)
                    .with_timestamp(wanted[name]);
                topics.entry(&name.topic).or_default().push(partition);
            }
            let topics = topics.into_iter().map(|(name, partitions)| {
                ListOffsetsTopic::default().with_name(topic_name(name)).with_partitions(partitions)
            });
            let request = ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_isolation_level(i8::from(isolation == Isolation::ReadCommitted))
                .with_topics(topics.collect());
            let response = attempt.call(request, version).await?;
            let mut results = BTreeMap::new();
            for topic in &response.topics {
                for partition in &topic.partitions {
                    let name = TopicPartition::new(&*topic.name.0, partition.partition_index);
                    let found = outcome(partition.error_code, None).map(|()| ListedOffset {
                        offset: partition.offset,
                        timestamp: partition.timestamp,
                        leader_epoch: partition.leader_epoch,
                    });
                    results.insert(name, found);
                }
            }
            Ok(results)
        })
        .await
    }

    /// Deletes the records before these offsets (-1: all that are committed); gives each partition's new start.
    pub async fn delete_records(
        &self,
        before: &BTreeMap<TopicPartition, i64>,
    ) -> Result<ResultsByPartition<i64>, ClientError> {
        let partitions = before.keys().cloned().collect();
        self.by_leader("deleteRecords", &partitions, async |attempt, partitions| {
            let mut topics: BTreeMap<&str, Vec<DeleteRecordsPartition>> = BTreeMap::new();
            for name in partitions {
                let partition = DeleteRecordsPartition::default()
                    .with_partition_index(name.partition)
                    .with_offset(before[name]);
                topics.entry(&name.topic).or_default().push(partition);
            }
            let topics = topics.into_iter().map(|(name, partitions)| {
                DeleteRecordsTopic::default()
                    .with_name(topic_name(name))
                    .with_partitions(partitions)
            });
            let request = DeleteRecordsRequest::default()
                .with_topics(topics.collect())
                .with_timeout_ms(attempt.timeout_ms());
            let response = attempt.call(request, i16::MAX).await?;
            let mut results = BTreeMap::new();
            for topic in &response.topics {
                for partition in &topic.partitions {
                    let name = TopicPartition::new(&*topic.name.0, partition.partition_index);
                    let done =
                        outcome(partition.error_code, None).map(|()| partition.low_watermark);
                    results.insert(name, done);
                }
            }
            Ok(results)
        })
        .await
    }

    /// Finds the leaders, asks each for its partitions, and asks again for those whose leader moved.
    pub(super) async fn by_leader<T>(
        &self,
        call: &str,
        partitions: &BTreeSet<TopicPartition>,
        mut ask: impl AsyncFnMut(
            Attempt,
            &[TopicPartition],
        ) -> Result<ResultsByPartition<T>, ClientError>,
    ) -> Result<ResultsByPartition<T>, ClientError> {
        let deadline = clock::now() + self.cluster().config().default_api_timeout;
        let names: BTreeSet<String> =
            partitions.iter().map(|name| name.topic.to_string()).collect();
        let topics = Topics::Named(names.into_iter().collect(), AutoCreate::Forbidden);
        let mut results = BTreeMap::new();
        let mut left = partitions.clone();
        let mut tries = 0;
        while !left.is_empty() {
            let metadata = self.metadata(&format!("{call}(api=METADATA)"), &topics).await?;
            let mut by_leader: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
            for name in std::mem::take(&mut left) {
                match metadata.leader(&name.topic, name.partition) {
                    Some(node) => by_leader.entry(node.id).or_default().push(name),
                    None => drop(left.insert(name)),
                }
            }
            for (leader, names) in by_leader {
                let asked = self
                    .run(call, Target::Broker(leader), async |attempt| ask(attempt, &names).await);
                for (name, result) in asked.await? {
                    match result {
                        Err(error) if may_retry(&error) => drop(left.insert(name)),
                        result => drop(results.insert(name, result)),
                    }
                }
            }
            if left.is_empty() {
                break;
            }
            if clock::now() >= deadline {
                let call = format!("{call}(api=METADATA)");
                let over = |name: TopicPartition| {
                    // As in Java, whose call waits here, and asks again and again for what it does not know.
                    let known = metadata.partition(&name.topic, name.partition);
                    let error = match known.is_some_and(|known| known.leader.is_none()) {
                        true => no_node(&call),
                        false => timed_out(&call, tries + 1),
                    };
                    (name, Err(error))
                };
                results.extend(left.into_iter().map(over));
                break;
            }
            self.cluster().back_off(tries).await;
            tries += 1;
        }
        Ok(results)
    }
}
