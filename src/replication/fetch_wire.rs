//! What fetchers send and get, in the versions of `inter.broker.protocol.version`. Source: `MetadataVersion`,
//! `RemoteLeaderEndPoint`.

use std::collections::HashMap;

use common::{
    config::ibp::MetadataVersion,
    error_code::ErrorCode,
    ids::{BrokerEpoch, LeaderEpoch, Offset},
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::{
    messages::{
        BrokerId, FetchRequest, ListOffsetsRequest, ListOffsetsResponse, TopicName,
        fetch_request::{FetchPartition, FetchTopic, ForgottenTopic, ReplicaState},
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
    },
    protocol::StrBytes,
};
use partition::follower::FetchFrom;

use crate::fetchers::FetcherConfig;

/// First version of Fetch that names topics by id. Source: KIP-516.
pub(crate) const TOPIC_IDS: i16 = 13;
/// First version of Fetch that carries the broker's epoch. Source: KIP-903.
const REPLICA_STATE: i16 = 15;
/// The timestamps that ask for the ends of a log.
pub(crate) const LATEST: i64 = -1;
/// See `LATEST`.
pub(crate) const EARLIEST: i64 = -2;

/// A partition that the leader is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) name: TopicPartition,
    pub(crate) id: Option<Uuid>,
    pub(crate) from: FetchFrom,
    pub(crate) log_start: Offset,
}

/// A partition whose ends at the leader are asked for.
#[derive(Clone, Debug)]
pub(crate) struct EndsAsked {
    pub(crate) name: TopicPartition,
    pub(crate) epoch: LeaderEpoch,
}

/// The version of Fetch between brokers.
pub(crate) fn fetch_version(protocol: MetadataVersion, by_id: bool) -> i16 {
    let newest = newest_since(
        protocol,
        &[("3.9-IV0", 17), ("3.7-IV4", 16), ("3.5-IV1", 15), ("3.5-IV0", 14), ("3.1-IV0", 13)],
        12,
    );
    if by_id { newest } else { newest.min(TOPIC_IDS - 1) }
}

/// The version of ListOffsets between brokers.
pub(crate) fn list_offsets_version(protocol: MetadataVersion) -> i16 {
    newest_since(protocol, &[("3.9-IV0", 9), ("3.5-IV0", 8), ("3.0-IV1", 7)], 6)
}

fn newest_since(protocol: MetadataVersion, versions: &[(&str, i16)], oldest: i16) -> i16 {
    let is_since =
        |since: &str| MetadataVersion::parse(since).is_some_and(|since| protocol >= since);
    versions.iter().find(|(since, _)| is_since(since)).map_or(oldest, |(_, version)| *version)
}

fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

fn wire_id(id: Option<Uuid>) -> uuid::Uuid {
    uuid::Uuid::from_u128(id.unwrap_or(Uuid::ZERO).0)
}

/// A fetch of a session (its id and epoch). Neighbours of one topic share an entry.
pub(crate) fn fetch(
    config: &FetcherConfig,
    version: i16,
    broker_epoch: BrokerEpoch,
    session: (i32, i32),
    asked: &[Asked],
    forgotten: &[(TopicPartition, Option<Uuid>)],
) -> FetchRequest {
    let by_id = version >= TOPIC_IDS;
    let mut topics: Vec<FetchTopic> = Vec::new();
    let mut last = None;
    for Asked { name, id, from, log_start } in asked {
        if last != Some(&name.topic) {
            let topic = FetchTopic::default();
            topics.push(match by_id {
                true => topic.with_topic_id(wire_id(*id)),
                false => topic.with_topic(topic_name(&name.topic)),
            });
            last = Some(&name.topic);
        }
        let partition = FetchPartition::default()
            .with_partition(name.partition)
            .with_current_leader_epoch(from.epoch.0)
            .with_fetch_offset(from.offset.0)
            .with_last_fetched_epoch(from.last_epoch.0)
            .with_log_start_offset(log_start.0)
            .with_partition_max_bytes(config.partition_bytes_max);
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(partition);
        }
    }
    let forgotten = forgotten.iter().map(|(name, id)| {
        let topic = ForgottenTopic::default().with_partitions(vec![name.partition]);
        match by_id {
            true => topic.with_topic_id(wire_id(*id)),
            false => topic.with_topic(topic_name(&name.topic)),
        }
    });
    let request = FetchRequest::default()
        .with_max_wait_ms(config.wait_max_ms)
        .with_min_bytes(config.bytes_min)
        .with_max_bytes(config.response_bytes_max)
        .with_session_id(session.0)
        .with_session_epoch(session.1)
        .with_topics(topics)
        .with_forgotten_topics_data(forgotten.collect());
    let local = BrokerId(config.local.0);
    match version >= REPLICA_STATE {
        true => request.with_replica_state(
            ReplicaState::default().with_replica_id(local).with_replica_epoch(broker_epoch.0),
        ),
        false => request.with_replica_id(local),
    }
}

/// Asks for one end of each log.
pub(crate) fn list_offsets(
    config: &FetcherConfig,
    timestamp: i64,
    asked: &[EndsAsked],
) -> ListOffsetsRequest {
    let topics = asked.iter().map(|EndsAsked { name, epoch }| {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(name.partition)
            .with_current_leader_epoch(epoch.0)
            .with_timestamp(timestamp);
        ListOffsetsTopic::default()
            .with_name(topic_name(&name.topic))
            .with_partitions(vec![partition])
    });
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(config.local.0))
        .with_topics(topics.collect())
}

/// The offsets that were answered.
pub(crate) fn offsets(
    answer: ListOffsetsResponse,
) -> HashMap<TopicPartition, Result<Offset, ErrorCode>> {
    let mut offsets = HashMap::new();
    for topic in answer.topics {
        for partition in topic.partitions {
            let name = TopicPartition::new(&*topic.name.0, partition.partition_index);
            let error = ErrorCode::from_code(partition.error_code);
            let offset = if error.is_none() { Ok(Offset(partition.offset)) } else { Err(error) };
            offsets.insert(name, offset);
        }
    }
    offsets
}
