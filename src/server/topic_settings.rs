//! From a topic's configs to what its partitions obey.

use std::sync::Arc;

use common::config::{broker::BrokerConfig, topic::TopicConfig};
use record::{
    batch::TimestampType,
    compression::{BrokerCompression, Compression},
};
use replication::{quota::ThrottledReplicas, topic_settings::TopicSettings};
use storage::log_config::LogConfig;

/// The settings of a topic with these configs.
pub(crate) fn of_topic(broker: &BrokerConfig, topic: &TopicConfig) -> Arc<TopicSettings> {
    let timestamp_type = if topic.is_log_append_time() {
        TimestampType::LogAppendTime
    } else {
        TimestampType::CreateTime
    };
    Arc::new(TopicSettings {
        log: Arc::new(log_config(broker, topic)),
        timestamp_type,
        timestamp_before_max_ms: topic.message_timestamp_before_max_ms,
        timestamp_after_max_ms: topic.message_timestamp_after_max_ms,
        compression: compression(topic),
        message_bytes_max: unsigned(topic.max_message_bytes),
        in_sync_replicas_min: unsigned(topic.min_insync_replicas),
        down_conversion: topic.message_downconversion_enable,
        leader_throttled: ThrottledReplicas::of(&topic.leader_replication_throttled_replicas),
        follower_throttled: ThrottledReplicas::of(&topic.follower_replication_throttled_replicas),
    })
}

/// How a topic's logs are kept.
pub(crate) fn log_config(broker: &BrokerConfig, topic: &TopicConfig) -> LogConfig {
    LogConfig {
        segment_bytes: topic.segment_bytes.unsigned_abs(),
        segment_ms: topic.segment_ms,
        segment_jitter_ms: topic.segment_jitter_ms,
        segment_index_bytes: topic.segment_index_bytes.unsigned_abs(),
        index_interval_bytes: topic.index_interval_bytes.unsigned_abs(),
        flush_messages: topic.flush_messages,
        flush_ms: topic.flush_ms,
        retention_bytes: topic.retention_bytes,
        retention_ms: topic.retention_ms,
        file_delete_delay_ms: topic.file_delete_delay_ms,
        delete: topic.delete,
        compact: topic.compact,
        min_cleanable_dirty_ratio: topic.min_cleanable_dirty_ratio,
        min_compaction_lag_ms: topic.min_compaction_lag_ms,
        max_compaction_lag_ms: topic.max_compaction_lag_ms,
        delete_retention_ms: topic.delete_retention_ms,
        preallocate: topic.preallocate,
        producer_id_expiration_ms: i64::from(broker.producer_id_expiration_ms),
        verify_transactions: broker.transaction_partition_verification_enable,
    }
}

fn compression(topic: &TopicConfig) -> BrokerCompression {
    let level = topic.compression_level().unwrap_or_default();
    match topic.compression_type.as_str() {
        "uncompressed" => BrokerCompression::Always(Compression::None),
        "gzip" => BrokerCompression::Always(Compression::Gzip(level)),
        "snappy" => BrokerCompression::Always(Compression::Snappy),
        "lz4" => BrokerCompression::Always(Compression::Lz4(level)),
        "zstd" => BrokerCompression::Always(Compression::Zstd(level)),
        // The table admits only `producer` besides.
        _ => BrokerCompression::Producer,
    }
}

/// A count or size that the table keeps at 0 or more.
fn unsigned(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0)
}
