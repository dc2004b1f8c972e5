//! The rules that each record of a produced batch must keep.

use common::ids::{Offset, Timestamp};

use crate::batch::TimestampType;
use crate::record_errors::{RecordErrorReason, RecordErrors};
use crate::validate::Rules;
use crate::view::RecordView;

/// Looks at records one after the other, and keeps what is wrong with them.
pub(crate) struct Checker<'r> {
    rules: &'r Rules,
    source: TimestampType,
    index: i32,
    max_timestamp: Timestamp,
    in_order: bool,
    errors: RecordErrors,
}

impl<'r> Checker<'r> {
    /// For the records of a batch with the given timestamp type.
    pub(crate) fn new(rules: &'r Rules, source: TimestampType) -> Checker<'r> {
        Checker {
            rules,
            source,
            index: 0,
            max_timestamp: Timestamp::NONE,
            in_order: true,
            errors: RecordErrors::default(),
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, record: &RecordView) {
        self.in_order &= record.offset.0 == i64::from(self.index);
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        if self.rules.compacted && record.key.is_none() {
            self.errors.push(self.index, RecordErrorReason::NoKey);
        } else if self.rules.timestamp_type == TimestampType::CreateTime
            && record.timestamp != Timestamp::NONE
        {
            self.check_range(record.offset, record.timestamp);
        } else if self.source == TimestampType::LogAppendTime {
            let record = describe(record);
            self.errors.push(self.index, RecordErrorReason::TimestampType { record });
        }
        self.index = self.index.wrapping_add(1);
    }

    #[inline]
    fn check_range(&mut self, offset: Offset, timestamp: Timestamp) {
        let Rules { now, before_max_ms, after_max_ms, .. } = *self.rules;
        // Wraps as Java's arithmetic does.
        let age = now.0.wrapping_sub(timestamp.0);
        if age > before_max_ms || age.wrapping_neg() > after_max_ms {
            let earliest = Timestamp(now.0.wrapping_sub(before_max_ms));
            let latest = Timestamp(now.0.wrapping_add(after_max_ms));
            let reason =
                RecordErrorReason::TimestampOutOfRange { timestamp, offset, earliest, latest };
            self.errors.push(self.index, reason);
        }
    }

    /// Whether the records' offsets are 0, 1, 2 and so on.
    pub(crate) fn in_order(&self) -> bool {
        self.in_order
    }

    /// The largest timestamp, or what is wrong.
    pub(crate) fn finish(self) -> Result<Timestamp, RecordErrors> {
        if self.errors.count == 0 { Ok(self.max_timestamp) } else { Err(self.errors) }
    }
}

/// A record as Kafka's `DefaultRecord.toString` prints it.
fn describe(record: &RecordView) -> String {
    format!(
        "DefaultRecord(offset={}, timestamp={}, key={} bytes, value={} bytes)",
        record.offset,
        record.timestamp,
        record.key.map_or(0, <[u8]>::len),
        record.value.map_or(0, <[u8]>::len)
    )
}
