//! The records of a refused batch that are at fault, in the words of Kafka's ProduceResponse.
//!
//! Kept as numbers until somebody answers: texts name the partition, which the checks do not know.

use common::ids::{Offset, Timestamp};
use common::topic::TopicPartition;

/// Most records that are listed; of more, only the count is kept. Kafka lists them all, whatever it costs.
pub const RECORD_ERRORS_MAX: usize = 10_000;

/// Records that the rules do not admit.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RecordErrors {
    /// The first of them, at most `RECORD_ERRORS_MAX`.
    pub errors: Vec<RecordError>,
    /// How many there are.
    pub count: usize,
    /// Whether a timestamp is at fault (INVALID_TIMESTAMP, else INVALID_RECORD).
    pub has_invalid_timestamp: bool,
}

/// One record that the rules do not admit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// The record's place in its batch, from 0; Kafka's `batch_index`.
    pub index: i32,
    /// What is wrong.
    pub reason: RecordErrorReason,
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordErrorReason {
    /// No key, on a compacted topic.
    NoKey,
    /// Its time is too far from the broker's.
    TimestampOutOfRange {
        /// The record's time.
        timestamp: Timestamp,
        /// The record's offset, as the producer wrote it.
        offset: Offset,
        /// Earliest that is admitted.
        earliest: Timestamp,
        /// Latest that is admitted.
        latest: Timestamp,
    },
    /// The producer marked its batch as LogAppendTime.
    TimestampType {
        /// The record, as Kafka prints it.
        record: String,
    },
    /// A message inside a compressed message is of another magic than that.
    Magic {
        /// The record, as Kafka prints it.
        record: String,
        /// The magic of the message around it.
        outer: i8,
    },
}

impl RecordErrorReason {
    fn is_timestamp(&self) -> bool {
        use RecordErrorReason::{TimestampOutOfRange, TimestampType};
        matches!(self, TimestampOutOfRange { .. } | TimestampType { .. })
    }
}

impl RecordError {
    /// Kafka's `batch_index_error_message`.
    pub fn message(&self, partition: &TopicPartition) -> String {
        match &self.reason {
            RecordErrorReason::NoKey => format!(
                "Compacted topic cannot accept message without key in topic partition {partition}"
            ),
            RecordErrorReason::TimestampOutOfRange { timestamp, offset, earliest, latest } => {
                format!(
                    "Timestamp {timestamp} of message with offset {offset} is out of range. \
                     The timestamp should be within [{earliest}, {latest}]"
                )
            }
            RecordErrorReason::TimestampType { record } => format!(
                "Invalid timestamp type in message {record}. \
                 Producer should not set timestamp type to LogAppendTime."
            ),
            RecordErrorReason::Magic { record, outer } => format!(
                "Record {record}'s magic does not match outer magic {outer} \
                 in topic partition {partition}"
            ),
        }
    }
}

impl RecordErrors {
    pub(crate) fn push(&mut self, index: i32, reason: RecordErrorReason) {
        self.count += 1;
        self.has_invalid_timestamp |= reason.is_timestamp();
        if self.errors.len() < RECORD_ERRORS_MAX {
            self.errors.push(RecordError { index, reason });
        }
    }

    /// Kafka's `error_message` of the partition.
    pub fn message(&self, partition: &TopicPartition) -> String {
        if self.has_invalid_timestamp {
            return "One or more records have been rejected due to invalid timestamp".to_owned();
        }
        let shown = self.errors.iter().take(3).map(|error| {
            format!(
                "RecordError(batchIndex={}, message='{}')",
                error.index,
                error.message(partition)
            )
        });
        format!(
            "One or more records have been rejected due to {} record errors in total, \
             and only showing the first three errors at most: [{}]",
            self.count,
            shown.collect::<Vec<_>>().join(", ")
        )
    }
}
