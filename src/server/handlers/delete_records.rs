//! DeleteRecords (API key 21): moves the start of logs. Source: KIP-107, `Partition.deleteRecordsOnLeader`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
    topic,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, TopicName,
    delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult},
};
use replication::{
    partition::{ChangeWaiter, Partition},
    replica_manager::Access,
};

use crate::{broker::Broker, errors};

/// Means "up to the high watermark".
const HIGH_WATERMARK: i64 = -1;

pub(crate) async fn handle(
    broker: &Broker,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    // A partition that is named twice counts once, as it is named last; a topic without partitions is not answered.
    let mut wanted: BTreeMap<TopicName, BTreeMap<i32, i64>> = BTreeMap::new();
    for topic in request.topics {
        for asked in topic.partitions {
            let partitions = wanted.entry(topic.name.clone()).or_default();
            partitions.insert(asked.partition_index, asked.offset);
        }
    }
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let mut outcomes = Vec::new();
    for (name, partitions) in wanted {
        for (partition, offset) in partitions {
            let begun = delete_before(broker, &name, partition, offset);
            outcomes.push((name.clone(), partition, begun));
        }
    }
    let deleted = outcomes.iter().filter_map(|(_, _, begun)| begun.as_ref().ok());
    let waiter = ChangeWaiter::new(deleted.map(|deleted| deleted.partition.clone()).collect());
    let deadline = clock::now() + timeout;
    while outcomes.iter().any(|(_, _, begun)| begun.as_ref().is_ok_and(Deleted::is_waiting)) {
        if tokio::time::timeout_at(deadline.into(), waiter.changed()).await.is_err() {
            break;
        }
    }
    let mut topics: Vec<DeleteRecordsTopicResult> = Vec::new();
    for (name, partition, begun) in outcomes {
        let answer = DeleteRecordsPartitionResult::default().with_partition_index(partition);
        let answer = match begun.and_then(|deleted| deleted.result()) {
            Ok(low_watermark) => answer.with_low_watermark(low_watermark.0),
            Err(error) => answer.with_low_watermark(-1).with_error_code(error.code()),
        };
        match topics.last_mut().filter(|last| last.name == name) {
            Some(last) => last.partitions.push(answer),
            None => topics.push(
                DeleteRecordsTopicResult::default().with_name(name).with_partitions(vec![answer]),
            ),
        }
    }
    DeleteRecordsResponse::default().with_topics(topics)
}

/// Records that are deleted here; followers may still have them.
struct Deleted {
    partition: Arc<Partition>,
    before: Offset,
}

impl Deleted {
    /// Whether a live replica still has such records.
    fn is_waiting(&self) -> bool {
        self.partition.low_watermark().is_some_and(|low_watermark| low_watermark < self.before)
    }

    fn result(&self) -> Result<Offset, ErrorCode> {
        match self.partition.low_watermark() {
            None => Err(ErrorCode::NotLeaderOrFollower),
            Some(low_watermark) if low_watermark < self.before => Err(ErrorCode::RequestTimedOut),
            Some(low_watermark) => Ok(low_watermark),
        }
    }
}

fn delete_before(
    broker: &Broker,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<Deleted, ErrorCode> {
    if broker.metadata.load().partition(topic, partition).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    if topic::is_internal(topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let partition = broker.hosted_partition(topic, partition)?;
    partition.check_access(Access::LeaderOnly, LeaderEpoch::NONE).map_err(errors::of_access)?;
    let log = partition.log();
    if !log.config().delete {
        return Err(ErrorCode::PolicyViolation);
    }
    let offset = if offset == HIGH_WATERMARK { log.high_watermark() } else { Offset(offset) };
    if offset.0 < 0 {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    partition.delete_records_before(offset).map_err(|error| errors::of_log(&error))?;
    Ok(Deleted { before: offset, partition })
}
