//! The settings of a log: plain values, made by the server from the topic's and the broker's.

use common::ids::Timestamp;

/// Settings of one topic's logs; shared by its partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`.
    pub segment_bytes: u32,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `segment.jitter.ms`.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `flush.messages`.
    pub flush_messages: i64,
    /// `flush.ms`.
    pub flush_ms: i64,
    /// `retention.bytes`; negative for no limit.
    pub retention_bytes: i64,
    /// `retention.ms`; negative for no limit.
    pub retention_ms: i64,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: i64,
    /// Whether `cleanup.policy` has `delete`.
    pub delete: bool,
    /// Whether `cleanup.policy` has `compact`.
    pub compact: bool,
    /// `min.cleanable.dirty.ratio`, 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`.
    pub max_compaction_lag_ms: i64,
    /// `delete.retention.ms`: how long compaction keeps tombstones and markers of transactions.
    pub delete_retention_ms: i64,
    /// `preallocate`: a new segment reserves all its blocks at once.
    pub preallocate: bool,
    /// `producer.id.expiration.ms`, of the broker.
    pub producer_id_expiration_ms: i64,
    /// `transaction.partition.verification.enable`, of the broker: the first batch of a transaction needs a guard.
    pub verify_transactions: bool,
}

impl Default for LogConfig {
    /// Kafka's defaults.
    fn default() -> LogConfig {
        const DAY_MS: i64 = 24 * 3600 * 1000;
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * DAY_MS,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_bytes: -1,
            retention_ms: 7 * DAY_MS,
            file_delete_delay_ms: 60_000,
            delete: true,
            compact: false,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: DAY_MS,
            preallocate: false,
            producer_id_expiration_ms: DAY_MS,
            verify_transactions: true,
        }
    }
}

impl LogConfig {
    /// How long a segment may take records. Source: `LogConfig.maxSegmentMs`.
    pub(crate) fn segment_ms_max(&self) -> i64 {
        if self.compact { self.max_compaction_lag_ms.min(self.segment_ms) } else { self.segment_ms }
    }

    /// A segment's jitter from a random number. Source: `LogConfig.randomSegmentJitter`.
    pub(crate) fn segment_jitter(&self, random: u64) -> i64 {
        let bound = self.segment_jitter_ms.min(self.segment_ms);
        match u64::try_from(bound) {
            Ok(bound) if bound > 0 => i64::try_from(random % bound).unwrap_or(0),
            _ => 0,
        }
    }

    /// Whether a largest timestamp is so old that its segment may go.
    pub(crate) fn is_too_old(&self, largest: Timestamp, now: Timestamp) -> bool {
        self.retention_ms >= 0 && now.0.saturating_sub(largest.0) > self.retention_ms
    }
}
