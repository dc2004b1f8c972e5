//! One fetch from one broker: the request, and whose the answer's topics are.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    ids::Offset,
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::{
    messages::{
        BrokerId, FetchRequest, FetchResponse, TopicName,
        fetch_request::{FetchPartition, FetchTopic},
    },
    protocol::StrBytes,
};

use crate::{
    cluster::Cluster,
    config::ConsumerConfig,
    error::{ClientError, ErrorKind},
    metadata::Metadata,
};

/// Versions of Fetch from this one on name topics by id.
const FETCH_BY_ID: i16 = 13;

/// A fetch that ended.
pub(crate) struct Fetch {
    pub(crate) node: i32,
    pub(crate) wanted: Vec<(TopicPartition, Offset)>,
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) result: Result<FetchResponse, ClientError>,
}

/// The topic of an answer: by name, or by id from the version on that has ids.
pub(crate) fn topic_name(id: u128, name: &StrBytes, metadata: &Metadata) -> String {
    let by_id = metadata.topics.values().find(|topic| id != 0 && topic.id == Uuid(id));
    by_id.map_or_else(|| name.to_string(), |topic| topic.name.clone())
}

/// One fetch from one broker, without a session.
pub(crate) async fn fetch(
    cluster: &Cluster,
    config: &ConsumerConfig,
    metadata: &Metadata,
    node: i32,
    wanted: &[(TopicPartition, Offset)],
) -> Result<FetchResponse, ClientError> {
    let gone = || ClientError::new(ErrorKind::Disconnected, "the leader is not known any more");
    let connection = cluster.connect(metadata.nodes.get(&node).ok_or_else(gone)?).await?;
    let mut topics: BTreeMap<&str, Vec<FetchPartition>> = BTreeMap::new();
    for (partition, offset) in wanted {
        let epoch = metadata
            .partition(&partition.topic, partition.partition)
            .map_or(-1, |known| known.leader_epoch);
        let part = FetchPartition::default()
            .with_partition(partition.partition)
            .with_current_leader_epoch(epoch)
            .with_fetch_offset(offset.0)
            .with_last_fetched_epoch(-1)
            .with_log_start_offset(-1)
            .with_partition_max_bytes(config.partition_fetch_bytes_max);
        topics.entry(&partition.topic).or_default().push(part);
    }
    let id_of = |name: &str| metadata.topics.get(name).map_or(Uuid::ZERO, |topic| topic.id);
    let have_ids = topics.keys().all(|name| id_of(name) != Uuid::ZERO);
    let cap = if have_ids { i16::MAX } else { FETCH_BY_ID - 1 };
    let version = connection.version_of::<FetchRequest>(cap)?;
    let topics = topics.into_iter().map(|(name, partitions)| {
        let topic = FetchTopic::default().with_partitions(partitions);
        if version >= FETCH_BY_ID {
            topic.with_topic_id(uuid::Uuid::from_u128(id_of(name).0))
        } else {
            topic.with_topic(TopicName(StrBytes::from_string(name.to_owned())))
        }
    });
    let wait = i32::try_from(config.fetch_wait_max.as_millis()).unwrap_or(i32::MAX);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(wait)
        .with_min_bytes(config.fetch_bytes_min)
        .with_max_bytes(config.fetch_bytes_max)
        .with_isolation_level(i8::from(config.read_committed))
        .with_session_id(0)
        .with_session_epoch(-1)
        .with_topics(topics.collect());
    let limit = config.connection.request_timeout.max(config.fetch_wait_max);
    connection.call_as(request, version, limit).await
}
