//! OffsetCommit (API key 8): a group's progress. Version 0 keeps it in ZooKeeper.
//! Source: `KafkaApis.handleOffsetCommitRequest`, `GroupCoordinatorAdapter.commitOffsets`.

use std::sync::Arc;

use common::{
    clock,
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, Timestamp},
    topic::TopicPartition,
};
use group_coordinator::{
    action::Reply,
    event::{CommitRequest, Event, GroupMember, OffsetToCommit},
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use tracing::warn;
use zk::consumer_offsets;

use crate::{
    broker::Broker,
    handlers::{
        committed::{CommitAnswers, last_of_each},
        text_of,
    },
    request_context::RequestContext,
};

/// Stands for "the time of the request", and for the broker's own retention.
const DEFAULT: i64 = -1;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: &OffsetCommitRequest,
) -> OffsetCommitResponse {
    let mut answers = CommitAnswers::default();
    let now = clock::wall_clock();
    let expire_timestamp = (request.retention_time_ms != DEFAULT)
        .then(|| Timestamp(now.0.wrapping_add(request.retention_time_ms)));
    let mut offsets = Vec::new();
    let snapshot = broker.metadata.snapshot();
    for topic in &request.topics {
        let name: Arc<str> = (&**topic.name).into();
        for asked in &topic.partitions {
            if snapshot.partition(&topic.name, asked.partition_index).is_none() {
                let error = ErrorCode::UnknownTopicOrPartition;
                answers.add(&topic.name, asked.partition_index, error);
                continue;
            }
            let given = Timestamp(asked.commit_timestamp);
            offsets.push(OffsetToCommit {
                topic_partition: TopicPartition::new(name.clone(), asked.partition_index),
                offset: Offset(asked.committed_offset),
                leader_epoch: LeaderEpoch(asked.committed_leader_epoch),
                metadata: text_of(asked.committed_metadata.as_ref()).unwrap_or_default(),
                commit_timestamp: if given.0 == DEFAULT { now } else { given },
                expire_timestamp,
            });
        }
    }
    // ZooKeeper is written to for each one; a coordinator is told of each partition once.
    if ctx.api_version > 0 {
        offsets = last_of_each(offsets);
    }
    let names: Vec<_> = offsets.iter().map(|one| one.topic_partition.clone()).collect();
    let errors = match (offsets.is_empty(), ctx.api_version) {
        (true, _) => Vec::new(),
        (false, 0) => to_zookeeper(broker, &request.group_id, &offsets).await,
        (false, _) => to_coordinator(broker, request, offsets).await,
    };
    for (name, error) in names.iter().zip(errors) {
        answers.add(&name.topic, name.partition, error);
    }
    answers.response()
}

async fn to_zookeeper(broker: &Broker, group: &str, offsets: &[OffsetToCommit]) -> Vec<ErrorCode> {
    let length_max = usize::try_from(broker.config.offset_metadata_max_bytes).unwrap_or(0);
    let mut errors = Vec::with_capacity(offsets.len());
    for one in offsets {
        if one.metadata.encode_utf16().count() > length_max {
            errors.push(ErrorCode::OffsetMetadataTooLarge);
            continue;
        }
        let TopicPartition { topic, partition } = &one.topic_partition;
        let set = consumer_offsets::set(&*broker.zk, group, topic, *partition, one.offset).await;
        errors.push(match set {
            Ok(()) => ErrorCode::None,
            Err(problem) => {
                warn!(group, partition = %one.topic_partition, %problem, "cannot keep an offset in ZooKeeper");
                ErrorCode::UnknownServerError
            }
        });
    }
    errors
}

async fn to_coordinator(
    broker: &Broker,
    request: &OffsetCommitRequest,
    offsets: Vec<OffsetToCommit>,
) -> Vec<ErrorCode> {
    let count = offsets.len();
    let commit = CommitRequest {
        member: GroupMember {
            group: request.group_id.as_str().to_owned(),
            generation: request.generation_id_or_member_epoch,
            member_id: request.member_id.as_str().to_owned(),
            group_instance_id: text_of(request.group_instance_id.as_ref()),
        },
        transaction: None,
        offsets,
    };
    let event = |reply| Event::CommitOffsets { request: commit, reply };
    match broker.groups.ask(&request.group_id, event).await {
        Ok(Reply::CommitOffsets(errors)) => errors,
        Ok(_) => vec![ErrorCode::UnknownServerError; count],
        Err(error) => vec![error; count],
    }
}
