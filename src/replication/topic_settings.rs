//! What a topic's configs mean for its partitions here; one value shared by all partitions of the topic.

use std::sync::Arc;

use common::ids::Timestamp;
use record::{
    batch::TimestampType,
    compression::BrokerCompression,
    validate::{Origin, Rules},
};
use storage::log_config::LogConfig;

use crate::quota::ThrottledReplicas;

/// Settings of one topic. Replaced as a whole when its configs change.
#[derive(Clone, Debug)]
pub struct TopicSettings {
    /// How its logs are kept.
    pub log: Arc<LogConfig>,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `compression.type`, with its level.
    pub compression: BrokerCompression,
    /// `max.message.bytes`.
    pub message_bytes_max: usize,
    /// `min.insync.replicas`.
    pub in_sync_replicas_min: usize,
    /// `message.downconversion.enable`.
    pub down_conversion: bool,
    /// `leader.replication.throttled.replicas`.
    pub leader_throttled: ThrottledReplicas,
    /// `follower.replication.throttled.replicas`.
    pub follower_throttled: ThrottledReplicas,
}

impl TopicSettings {
    /// What a producer's batch must obey now.
    pub fn rules(&self, now: Timestamp) -> Rules {
        Rules {
            now,
            timestamp_type: self.timestamp_type,
            before_max_ms: self.timestamp_before_max_ms,
            after_max_ms: self.timestamp_after_max_ms,
            compression: self.compression,
            compacted: self.log.compact,
            message_bytes_max: self.message_bytes_max,
            origin: Origin::Client,
        }
    }
}
