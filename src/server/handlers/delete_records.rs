//! DeleteRecords (API key 21): moves the start of logs. Source: KIP-107, `Partition.deleteRecordsOnLeader`.

use std::collections::BTreeMap;

use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
    topic,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, TopicName,
    delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult},
};
use replication::replica_manager::Access;

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
    let topics = wanted.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(partition, offset)| {
            let answer = DeleteRecordsPartitionResult::default()
                .with_partition_index(partition)
                .with_low_watermark(-1);
            match delete_before(broker, &name, partition, offset) {
                Ok(low_watermark) => answer.with_low_watermark(low_watermark.0),
                Err(error) => answer.with_error_code(error.code()),
            }
        });
        let partitions = partitions.collect();
        DeleteRecordsTopicResult::default().with_name(name).with_partitions(partitions)
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}

fn delete_before(
    broker: &Broker,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<Offset, ErrorCode> {
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
    log.advance_start_offset(offset).map_err(|error| errors::of_log(&error))?;
    Ok(log.start_offset())
}
