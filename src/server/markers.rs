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
use storage::producer_state::OpenTransaction;

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
        results.push(append(broker, marker, partition, None));
        // A transaction may have a thousand partitions, and other connections wait for this thread.
        tokio::task::consume_budget().await;
    }
    wait_for_replicas(&mut results, timeout_of(broker)).await;
    let each = partitions.iter().zip(results);
    each.map(|(partition, result)| code_of(broker, marker, partition, &result)).collect()
}

/// Aborts a transaction in one partition, past its coordinator, if it stands there as it was seen; INVALID_TXN_STATE if not.
pub(crate) async fn abort(
    broker: &Broker,
    seen: &OpenTransaction,
    partition: &TopicPartition,
) -> ErrorCode {
    let marker = Marker {
        producer_id: seen.producer_id,
        producer_epoch: seen.producer_epoch,
        // The last one's, so that no coordinator is fenced. Where there is none, 0 is never too large.
        coordinator_epoch: seen.coordinator_epoch.max(0),
        result: TransactionResult::Abort,
    };
    let mut results = [append(broker, &marker, partition, Some(seen))];
    wait_for_replicas(&mut results, timeout_of(broker)).await;
    code_of(broker, &marker, partition, &results[0])
}

fn timeout_of(broker: &Broker) -> Duration {
    Duration::from_millis(u64::try_from(broker.config.request_timeout_ms).unwrap_or(0))
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
    seen: Option<&OpenTransaction>,
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
    let appended = match seen {
        Some(seen) => partition.append_if_open(checked, in_sync_min, seen),
        None => partition.append_as_coordinator(checked, in_sync_min, None),
    };
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
