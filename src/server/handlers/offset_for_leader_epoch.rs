//! OffsetForLeaderEpoch (API key 23): where an epoch ended in this leader's log. Source: KIP-101, KIP-320.

use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
};
use kafka_protocol::messages::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    offset_for_leader_epoch_request::OffsetForLeaderPartition,
    offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
};
use replication::replica_manager::Access;

use crate::{broker::Broker, errors};

pub(crate) fn handle(
    broker: &Broker,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let answer = EpochEndOffset::default().with_partition(asked.partition);
            match find(broker, &topic.topic, asked) {
                Ok(Some((epoch, end))) => answer.with_leader_epoch(epoch.0).with_end_offset(end.0),
                Ok(None) => answer,
                Err(error) => answer.with_error_code(error.code()),
            }
        });
        let partitions = partitions.collect();
        OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions)
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

fn find(
    broker: &Broker,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(LeaderEpoch, Offset)>, ErrorCode> {
    let partition = broker.hosted_partition(topic, asked.partition)?;
    let current = LeaderEpoch(asked.current_leader_epoch);
    partition.check_access(Access::LeaderOnly, current).map_err(errors::of_access)?;
    Ok(partition.log().end_offset_for_epoch(LeaderEpoch(asked.leader_epoch)))
}
