//! ListOffsets (API key 2): offsets by timestamp, and the ends of logs.
//! Source: `KafkaApis.handleListOffsetRequest`, `Partition.fetchOffsetForTimestamp`.

use std::{collections::HashSet, sync::Arc};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, Timestamp},
};
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse,
    list_offsets_request::ListOffsetsPartition,
    list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
};
use network::service::Step;
use replication::{partition::Partition, replica_manager::Access};

use crate::{broker::Broker, errors, handlers::respond, request_context::RequestContext};

/// Special timestamps. Source: `ListOffsetsRequest`.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// A reader that is no broker.
const CONSUMER_REPLICA_ID: i32 = -1;
/// A tool that reads any replica.
const DEBUGGING_REPLICA_ID: i32 = -2;

/// What was found: a record, or a place in the log.
struct Found {
    timestamp: Timestamp,
    offset: Offset,
    epoch: LeaderEpoch,
}

/// Searches by time that go on at once in the whole broker: each reads and decompresses a batch after the other.
pub(crate) const SEARCHES_MAX: usize = 2;

/// Answers at once, unless records have to be looked at: that waits for its turn, and takes place beside the runtime.
pub(crate) fn start(
    broker: &Arc<Broker>,
    ctx: RequestContext,
    request: ListOffsetsRequest,
) -> Step {
    let mut asked = request.topics.iter().flat_map(|topic| &topic.partitions);
    let reads_records = |timestamp| timestamp >= 0 || timestamp == MAX_TIMESTAMP;
    if ctx.api_version == 0 || !asked.any(|partition| reads_records(partition.timestamp)) {
        return Step::Reply(respond(&ctx, &handle(broker, &ctx, &request)));
    }
    let broker = broker.clone();
    let search = async move {
        let _turn = broker.searches.acquire().await.expect("it is never closed");
        let searching = broker.clone();
        let search = move || respond(&ctx, &handle(&searching, &ctx, &request));
        tokio::task::spawn_blocking(search).await.expect("a search does not panic")
    };
    Step::Wait { overlap: false, reply: Box::pin(search) }
}

fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: &ListOffsetsRequest,
) -> ListOffsetsResponse {
    let duplicates = duplicates(request);
    let no_such_isolation = ctx.api_version >= 2 && !matches!(request.isolation_level, 0 | 1);
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            if ctx.api_version == 0 {
                return answer_version_0(broker, request, &topic.name, asked);
            }
            let repeated = duplicates.contains(&(&*topic.name, asked.partition_index));
            let found = if no_such_isolation {
                // Kafka fails on the number, and with it the request.
                Err(ErrorCode::UnknownServerError)
            } else if repeated {
                Err(ErrorCode::InvalidRequest)
            } else {
                find(broker, ctx, request, &topic.name, asked)
            };
            answer(ctx.api_version, asked.partition_index, found)
        });
        ListOffsetsTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

fn duplicates(request: &ListOffsetsRequest) -> HashSet<(&str, i32)> {
    let mut seen = HashSet::new();
    let mut twice = HashSet::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = (&*topic.name.0, partition.partition_index);
            if !seen.insert(key) {
                twice.insert(key);
            }
        }
    }
    twice
}

fn answer(
    version: i16,
    partition: i32,
    found: Result<Option<Found>, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let answer = ListOffsetsPartitionResponse::default()
        .with_partition_index(partition)
        .with_timestamp(-1)
        .with_offset(-1)
        .with_leader_epoch(-1);
    match found {
        Err(error) => answer.with_error_code(error.code()),
        Ok(None) => answer,
        Ok(Some(found)) => {
            let answer = answer.with_timestamp(found.timestamp.0).with_offset(found.offset.0);
            if version >= 4 { answer.with_leader_epoch(found.epoch.0) } else { answer }
        }
    }
}

fn access(request: &ListOffsetsRequest) -> Access {
    let debugging = request.replica_id.0 == DEBUGGING_REPLICA_ID;
    if debugging { Access::AnyReplica } else { Access::LeaderOnly }
}

fn find(
    broker: &Broker,
    ctx: &RequestContext,
    request: &ListOffsetsRequest,
    topic: &str,
    asked: &ListOffsetsPartition,
) -> Result<Option<Found>, ErrorCode> {
    let since = match asked.timestamp {
        LATEST | EARLIEST | 0.. => 1,
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        _ => return Err(ErrorCode::UnsupportedVersion),
    };
    if ctx.api_version < since {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let partition = broker.hosted_partition(topic, asked.partition_index)?;
    let epoch = LeaderEpoch(asked.current_leader_epoch);
    let leader_epoch = partition.check_access(access(request), epoch).map_err(errors::of_access)?;
    let is_client = request.replica_id.0 == CONSUMER_REPLICA_ID;
    let found = find_in(&partition, leader_epoch, asked.timestamp, is_client, request);
    found.map_err(|error| {
        // Clients before version 5 do not know the newer code.
        let renamed = error == ErrorCode::OffsetNotAvailable && ctx.api_version < 5;
        if renamed { ErrorCode::LeaderNotAvailable } else { error }
    })
}

fn find_in(
    partition: &Partition,
    leader_epoch: LeaderEpoch,
    timestamp: i64,
    is_client: bool,
    request: &ListOffsetsRequest,
) -> Result<Option<Found>, ErrorCode> {
    let log = partition.log();
    let last_fetchable = match (is_client, request.isolation_level) {
        (false, _) => log.end_offset(),
        (true, 1) => log.last_stable_offset(),
        (true, _) => log.high_watermark(),
    };
    let lagging = is_client && partition.watermark_lags();
    let none = Timestamp::NONE;
    match timestamp {
        LATEST if lagging => Err(ErrorCode::OffsetNotAvailable),
        LATEST => Ok(Some(Found { timestamp: none, offset: last_fetchable, epoch: leader_epoch })),
        EARLIEST | EARLIEST_LOCAL => {
            let offset = log.start_offset();
            let epochs = log.leader_epochs();
            let first = epochs.entries().first().filter(|(_, start)| *start <= offset);
            let epoch = first.map_or(LeaderEpoch::NONE, |(epoch, _)| *epoch);
            Ok(Some(Found { timestamp: none, offset, epoch }))
        }
        // Without tiered storage nothing is tiered: the offset -1 at the leader's epoch.
        LATEST_TIERED => {
            Ok(Some(Found { timestamp: none, offset: Offset::NONE, epoch: LeaderEpoch::NONE }))
        }
        _ => {
            let found = if timestamp == MAX_TIMESTAMP {
                log.offset_of_max_timestamp()
            } else {
                log.offset_for_timestamp(Timestamp(timestamp))
            };
            let found = found.map_err(|error| errors::of_log(&error))?;
            let found = found.filter(|found| found.offset < last_fetchable);
            if found.is_none() && lagging {
                return Err(ErrorCode::OffsetNotAvailable);
            }
            let epoch_of = |epoch: Option<LeaderEpoch>| epoch.unwrap_or(LeaderEpoch::NONE);
            Ok(found.map(|found| Found {
                timestamp: found.timestamp,
                offset: found.offset,
                epoch: epoch_of(found.leader_epoch),
            }))
        }
    }
}

/// Version 0 answers with the starts of segments, newest first.
fn answer_version_0(
    broker: &Broker,
    request: &ListOffsetsRequest,
    topic: &str,
    asked: &ListOffsetsPartition,
) -> ListOffsetsPartitionResponse {
    let answer =
        ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
    match segment_starts(broker, request, topic, asked) {
        Ok(offsets) => {
            answer.with_old_style_offsets(offsets.into_iter().map(|offset| offset.0).collect())
        }
        Err(error) => answer.with_error_code(error.code()),
    }
}

fn segment_starts(
    broker: &Broker,
    request: &ListOffsetsRequest,
    topic: &str,
    asked: &ListOffsetsPartition,
) -> Result<Vec<Offset>, ErrorCode> {
    if asked.timestamp < EARLIEST {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let partition = broker.hosted_partition(topic, asked.partition_index)?;
    partition.check_access(access(request), LeaderEpoch::NONE).map_err(errors::of_access)?;
    // Kafka allocates an array of the number asked for, and fails where it is negative.
    let count =
        usize::try_from(asked.max_num_offsets).map_err(|_| ErrorCode::UnknownServerError)?;
    let log = partition.log();
    let offsets = log.offsets_before(Timestamp(asked.timestamp), count, clock::wall_clock());
    let offsets = offsets.map_err(|error| errors::of_log(&error))?;
    if request.replica_id.0 != CONSUMER_REPLICA_ID {
        return Ok(offsets);
    }
    let high_watermark = log.high_watermark();
    if offsets.iter().all(|offset| *offset <= high_watermark) {
        return Ok(offsets);
    }
    let below = offsets.into_iter().filter(|offset| *offset <= high_watermark);
    Ok(std::iter::once(high_watermark).chain(below).collect())
}
