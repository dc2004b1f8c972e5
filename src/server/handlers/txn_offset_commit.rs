//! TxnOffsetCommit (API key 28): a group's progress, as part of a producer's transaction.
//! Source: `KafkaApis.handleTxnOffsetCommitRequest`, `GroupCoordinator.handleTxnCommitOffsets`.

use std::sync::Arc;

use common::{
    clock,
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId},
    topic::{GROUP_METADATA_TOPIC, TopicPartition},
};
use group_coordinator::{
    action::Reply,
    event::{CommitRequest, Event, GroupMember, OffsetToCommit},
};
use kafka_protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

use crate::{
    broker::Broker,
    errors,
    handlers::{
        committed::{CommitAnswers, last_of_each},
        text_of,
    },
    request_context::RequestContext,
};

/// First version whose clients know COORDINATOR_LOAD_IN_PROGRESS. Source: KAFKA-7296.
const LOADING: i16 = 2;
/// First version whose clients know TRANSACTION_ABORTABLE.
const ABORTABLE: i16 = 4;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let mut answers = CommitAnswers::default();
    let mut offsets = Vec::new();
    let now = clock::wall_clock();
    let snapshot = broker.metadata.snapshot();
    for topic in &request.topics {
        let name: Arc<str> = (&**topic.name).into();
        for asked in &topic.partitions {
            if snapshot.partition(&topic.name, asked.partition_index).is_none() {
                let error = ErrorCode::UnknownTopicOrPartition;
                answers.add(&topic.name, asked.partition_index, error);
                continue;
            }
            offsets.push(OffsetToCommit {
                topic_partition: TopicPartition::new(name.clone(), asked.partition_index),
                offset: Offset(asked.committed_offset),
                leader_epoch: LeaderEpoch(asked.committed_leader_epoch),
                metadata: text_of(asked.committed_metadata.as_ref()).unwrap_or_default(),
                commit_timestamp: now,
                expire_timestamp: None,
            });
        }
    }
    if offsets.is_empty() {
        return answers.transactional_response();
    }
    let offsets = last_of_each(offsets);
    let names: Vec<_> = offsets.iter().map(|one| one.topic_partition.clone()).collect();
    let committed = commit(broker, ctx, &request, offsets).await;
    let errors = committed.unwrap_or_else(|error| vec![error; names.len()]);
    for (name, error) in names.iter().zip(errors) {
        let error = match error {
            // Older clients might crash.
            ErrorCode::CoordinatorLoadInProgress if ctx.api_version < LOADING => {
                ErrorCode::CoordinatorNotAvailable
            }
            error => error,
        };
        answers.add(&name.topic, name.partition, error);
    }
    answers.transactional_response()
}

async fn commit(
    broker: &Broker,
    ctx: &RequestContext,
    request: &TxnOffsetCommitRequest,
    offsets: Vec<OffsetToCommit>,
) -> Result<Vec<ErrorCode>, ErrorCode> {
    let group = request.group_id.to_string();
    if group.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    broker.groups.look(&group, |_| ())?;
    let producer = (ProducerId(request.producer_id.0), ProducerEpoch(request.producer_epoch));
    verify(broker, ctx, request, producer).await.map_err(errors::of_offset_verification)?;
    let commit = CommitRequest {
        member: GroupMember {
            group: group.clone(),
            generation: request.generation_id,
            member_id: request.member_id.to_string(),
            group_instance_id: text_of(request.group_instance_id.as_ref()),
        },
        transaction: Some(producer),
        offsets,
    };
    let event = |reply| Event::CommitOffsets { request: commit, reply };
    match broker.groups.ask(&group, event).await? {
        Reply::CommitOffsets(errors) => Ok(errors),
        _ => Err(ErrorCode::UnknownServerError),
    }
}

/// Makes sure that the transaction knows of the group's partition, before its coordinator writes there.
async fn verify(
    broker: &Broker,
    ctx: &RequestContext,
    request: &TxnOffsetCommitRequest,
    producer: (ProducerId, ProducerEpoch),
) -> Result<(), ErrorCode> {
    /// Offsets of a group have no sequence.
    const NO_SEQUENCE: i32 = -1;
    if !broker.configs.current().transaction_partition_verification_enable {
        return Ok(());
    }
    let number = broker.groups.partition_of(&request.group_id);
    let partition = broker.hosted_partition(GROUP_METADATA_TOPIC, number)?;
    let started = partition.start_verification(producer, NO_SEQUENCE).map_err(errors::of_access)?;
    let Some(guard) = started else { return Ok(()) };
    let asked = vec![partition.topic_partition().clone()];
    let codes = broker.transactions.verify(&request.transactional_id, producer, asked).await;
    // One code, for one partition.
    for code in codes {
        let code = match ctx.api_version {
            ABORTABLE.. => errors::of_verification(code),
            _ => errors::without_abortable(errors::of_verification(code)),
        };
        if !code.is_none() {
            return Err(code);
        }
    }
    partition.log().confirm_verification(producer.0, guard);
    Ok(())
}
