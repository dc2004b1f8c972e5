//! OffsetFetch (API key 9): what groups have committed. Version 0 reads ZooKeeper.
//! Source: `KafkaApis.handleOffsetFetchRequest`, `OffsetFetchResponse`, KIP-709.

use std::collections::HashMap;

use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
    topic::TopicPartition,
};
use group_coordinator::action::FetchedOffset;
use kafka_protocol::{
    messages::{
        GroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName,
        offset_fetch_request::OffsetFetchRequestTopics,
        offset_fetch_response::{
            OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
            OffsetFetchResponseTopic, OffsetFetchResponseTopics,
        },
    },
    protocol::StrBytes,
};
use tracing::warn;
use zk::consumer_offsets;

use crate::{
    broker::Broker,
    handlers::{repeats::Repeats, text},
    request_context::RequestContext,
};

/// First version that asks for several groups.
const BATCHED: i16 = 8;
/// First version whose answer has an error of its own.
const TOP_LEVEL_ERROR: i16 = 2;
/// First version that tells leader epochs.
const LEADER_EPOCHS: i16 = 5;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let response = OffsetFetchResponse::default();
    if ctx.api_version >= BATCHED {
        let stable = request.require_stable;
        let mut repeats = Repeats::new();
        // All of a group's offsets may be many.
        let named = request.groups.into_iter();
        let named =
            named.filter(|group| group.topics.is_some() || repeats.admit(group.group_id.clone()));
        let groups = named.map(|group| {
            let fetched = fetch(broker, &group.group_id, group.topics.as_deref(), stable);
            group_answer(group.group_id, fetched)
        });
        return response.with_groups(groups.collect());
    }
    let topics = request.topics.map(|topics| {
        let each = topics.into_iter().map(|topic| {
            OffsetFetchRequestTopics::default()
                .with_name(topic.name)
                .with_partition_indexes(topic.partition_indexes)
        });
        each.collect::<Vec<_>>()
    });
    if ctx.api_version == 0 {
        let topics = topics.unwrap_or_default();
        let fetched = from_zookeeper(broker, &request.group_id, &topics).await;
        return response.with_topics(old_topics(ctx.api_version, fetched));
    }
    match fetch(broker, &request.group_id, topics.as_deref(), request.require_stable) {
        Ok(fetched) => response.with_topics(old_topics(ctx.api_version, fetched)),
        Err(error) if ctx.api_version >= TOP_LEVEL_ERROR => response.with_error_code(error.code()),
        // Version 1 has no place for it where no partition is answered: as Kafka, it says nothing.
        Err(_) => response,
    }
}

/// The partitions asked for, each once; none for all of them.
fn fetch(
    broker: &Broker,
    group: &GroupId,
    topics: Option<&[OffsetFetchRequestTopics]>,
    stable: bool,
) -> Result<Vec<FetchedOffset>, ErrorCode> {
    let partitions = topics.map(named);
    broker.groups.look(group, |groups| groups.fetch_offsets(group, partitions.as_deref(), stable))
}

/// The partitions of a request, each once.
fn named(topics: &[OffsetFetchRequestTopics]) -> Vec<TopicPartition> {
    let of_topic = |topic: &OffsetFetchRequestTopics| {
        let name: std::sync::Arc<str> = (&**topic.name).into();
        let partition = move |index: &i32| TopicPartition::new(name.clone(), *index);
        topic.partition_indexes.iter().map(partition).collect::<Vec<_>>()
    };
    let mut partitions: Vec<TopicPartition> = topics.iter().flat_map(of_topic).collect();
    partitions.sort_unstable();
    partitions.dedup();
    partitions
}

async fn from_zookeeper(
    broker: &Broker,
    group: &str,
    topics: &[OffsetFetchRequestTopics],
) -> Vec<FetchedOffset> {
    let mut fetched = Vec::new();
    for name in named(topics) {
        let known = broker.metadata.load().partition(&name.topic, name.partition).is_some();
        let found = if known {
            consumer_offsets::get(&*broker.zk, group, &name.topic, name.partition).await
        } else {
            Ok(None)
        };
        let (offset, error) = match found {
            Ok(Some(offset)) => (offset, ErrorCode::None),
            Ok(None) => (Offset::NONE, ErrorCode::UnknownTopicOrPartition),
            Err(problem) => {
                warn!(group, partition = %name, %problem, "cannot read an offset from ZooKeeper");
                (Offset::NONE, ErrorCode::UnknownServerError)
            }
        };
        fetched.push(FetchedOffset {
            topic_partition: name,
            offset,
            leader_epoch: LeaderEpoch::NONE,
            metadata: String::new(),
            error,
        });
    }
    fetched
}

/// By topic, in the order of the first partition of each.
fn by_topic(fetched: Vec<FetchedOffset>) -> Vec<(TopicName, Vec<FetchedOffset>)> {
    let mut topics: Vec<(TopicName, Vec<FetchedOffset>)> = Vec::new();
    let mut places: HashMap<std::sync::Arc<str>, usize> = HashMap::new();
    for one in fetched {
        let name = one.topic_partition.topic.clone();
        let place = *places.entry(name.clone()).or_insert(topics.len());
        if place == topics.len() {
            topics.push((TopicName(StrBytes::from_string(name.to_string())), Vec::new()));
        }
        topics[place].1.push(one);
    }
    topics
}

fn old_topics(version: i16, fetched: Vec<FetchedOffset>) -> Vec<OffsetFetchResponseTopic> {
    let topics = by_topic(fetched).into_iter().map(|(name, partitions)| {
        let each = partitions.into_iter().map(|one| {
            let answer = OffsetFetchResponsePartition::default()
                .with_partition_index(one.topic_partition.partition)
                .with_committed_offset(one.offset.0)
                .with_metadata(Some(text(&one.metadata)))
                .with_error_code(one.error.code());
            if version >= LEADER_EPOCHS {
                answer.with_committed_leader_epoch(one.leader_epoch.0)
            } else {
                answer
            }
        });
        OffsetFetchResponseTopic::default().with_name(name).with_partitions(each.collect())
    });
    topics.collect()
}

fn group_answer(
    group: GroupId,
    fetched: Result<Vec<FetchedOffset>, ErrorCode>,
) -> OffsetFetchResponseGroup {
    let answer = OffsetFetchResponseGroup::default().with_group_id(group);
    let fetched = match fetched {
        Ok(fetched) => fetched,
        Err(error) => return answer.with_error_code(error.code()),
    };
    let topics = by_topic(fetched).into_iter().map(|(name, partitions)| {
        let each = partitions.into_iter().map(|one| {
            OffsetFetchResponsePartitions::default()
                .with_partition_index(one.topic_partition.partition)
                .with_committed_offset(one.offset.0)
                .with_committed_leader_epoch(one.leader_epoch.0)
                .with_metadata(Some(text(&one.metadata)))
                .with_error_code(one.error.code())
        });
        OffsetFetchResponseTopics::default().with_name(name).with_partitions(each.collect())
    });
    answer.with_topics(topics.collect())
}
