//! Ends transactions in partitions led here: appends their markers, and waits for the replicas.
//! Source: `KafkaApis.handleWriteTxnMarkersRequest`.

use std::{sync::Arc, time::Duration};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId},
    topic::{GROUP_METADATA_TOPIC, TopicPartition},
};
use record::{
    control::{EndTransactionMarker, TransactionResult, marker_batch},
    validate::{self, Origin, Rules},
};
use replication::partition::{ChangeWaiter, Commit, Partition};

use crate::{broker::Broker, errors};

/// How a producer's transaction ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marker {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub coordinator_epoch: i32,
    pub result: TransactionResult,
}

/// A marker in the log, which its replicas may not have yet.
struct Written {
    partition: Arc<Partition>,
    end: Offset,
    epoch: LeaderEpoch,
}

/// Writes a marker into partitions, each named once; gives a code for each, once all in-sync replicas have it or the time
/// is up.
pub(crate) async fn write(
    broker: &Broker,
    marker: &Marker,
    partitions: &[TopicPartition],
) -> Vec<ErrorCode> {
    let mut results = Vec::with_capacity(partitions.len());
    for partition in partitions {
        results.push(append(broker, marker, partition));
        // A transaction may have a thousand partitions, and other connections wait for this thread.
        tokio::task::consume_budget().await;
    }
    let timeout = u64::try_from(broker.config.request_timeout_ms).unwrap_or(0);
    wait_for_replicas(&mut results, Duration::from_millis(timeout)).await;
    let each = partitions.iter().zip(results);
    each.map(|(partition, result)| code_of(broker, marker, partition, &result)).collect()
}

fn code_of(
    broker: &Broker,
    marker: &Marker,
    partition: &TopicPartition,
    result: &Result<Written, ErrorCode>,
) -> ErrorCode {
    if let Err(error) = result {
        return *error;
    }
    if &*partition.topic == GROUP_METADATA_TOPIC {
        let committed = marker.result == TransactionResult::Commit;
        let groups = &broker.groups;
        if !groups.transaction_completed(partition.partition, marker.producer_id, committed) {
            // It is sent again, and harmless the second time.
            return ErrorCode::NotLeaderOrFollower;
        }
    }
    ErrorCode::None
}

fn append(
    broker: &Broker,
    marker: &Marker,
    partition: &TopicPartition,
) -> Result<Written, ErrorCode> {
    let hosted = broker.replicas.get(&partition.topic, partition.partition);
    let partition = hosted
        .filter(|hosted| !hosted.log().log_directory().is_offline())
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let now = clock::wall_clock();
    let Marker { producer_id, producer_epoch, coordinator_epoch, result } = *marker;
    let content = EndTransactionMarker { result, coordinator_epoch };
    let batch = marker_batch(producer_id, producer_epoch, now, content);
    let settings = partition.settings();
    let rules = Rules { origin: Origin::Coordinator, ..settings.rules(now) };
    let checked = validate::check(batch, &rules);
    let checked =
        checked.map_err(|error| errors::of_validation(&error, partition.topic_partition()).code)?;
    let in_sync_min = Some(settings.in_sync_replicas_min);
    let appended = partition.append_as_coordinator(checked, in_sync_min, None);
    let (appended, epoch) = appended.map_err(|error| errors::of_produce(&error).code)?;
    Ok(Written { end: appended.last_offset.plus(1), epoch, partition })
}

async fn wait_for_replicas(results: &mut [Result<Written, ErrorCode>], timeout: Duration) {
    if all_decided(results) {
        return;
    }
    let written = results.iter().filter_map(|result| result.as_ref().ok());
    let waiter = ChangeWaiter::new(written.map(|written| written.partition.clone()).collect());
    let deadline = clock::now() + timeout;
    while !all_decided(results) {
        if tokio::time::timeout_at(deadline.into(), waiter.changed()).await.is_err() {
            for result in results.iter_mut() {
                if !decide(result) {
                    *result = Err(ErrorCode::RequestTimedOut);
                }
            }
            return;
        }
    }
}

/// Whether it is known what became of a marker; one that has failed meanwhile becomes its error.
fn decide(result: &mut Result<Written, ErrorCode>) -> bool {
    let Ok(written) = result else { return true };
    *result = Err(match written.partition.commit_of(written.end, written.epoch) {
        Commit::Done => return true,
        Commit::Waiting => return false,
        Commit::NotEnoughReplicas => ErrorCode::NotEnoughReplicasAfterAppend,
        Commit::Lost => ErrorCode::NotLeaderOrFollower,
    });
    true
}

fn all_decided(results: &mut [Result<Written, ErrorCode>]) -> bool {
    results.iter_mut().all(decide)
}
