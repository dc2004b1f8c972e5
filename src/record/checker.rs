//! The rules that each record of a produced batch must keep. Source: `LogValidator.validateRecord`.

use common::ids::{Offset, Timestamp};

use crate::batch::TimestampType;
use crate::record_errors::{RecordErrorReason, RecordErrors};
use crate::skim::Skimmed;
use crate::validate::Rules;
use crate::view::RecordView;

/// Looks at records one after the other, and keeps what is wrong with them.
pub(crate) struct Checker<'r> {
    rules: &'r Rules,
    source: Option<TimestampType>,
    index: i32,
    found: Found,
    errors: RecordErrors,
}

/// What the records of a batch have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) record_count: i32,
    pub(crate) max_timestamp: Timestamp,
    /// -1 unless one is below.
    pub(crate) min_timestamp: Timestamp,
    pub(crate) first_timestamp: Timestamp,
    /// Whether the records' offsets are 0, 1, 2 and so on.
    pub(crate) in_order: bool,
}

impl<'r> Checker<'r> {
    /// For the records of an entry with the given timestamp type.
    pub(crate) fn new(rules: &'r Rules, source: Option<TimestampType>) -> Checker<'r> {
        let found = Found {
            record_count: 0,
            max_timestamp: Timestamp::NONE,
            min_timestamp: Timestamp::NONE,
            first_timestamp: Timestamp::NONE,
            in_order: true,
        };
        Checker { rules, source, index: 0, found, errors: RecordErrors::default() }
    }

    /// Looks at one record; `describe` prints it as Kafka does.
    #[inline]
    pub(crate) fn record(
        &mut self,
        offset: Offset,
        timestamp: Timestamp,
        has_key: bool,
        describe: impl FnOnce() -> String,
    ) {
        if self.index == 0 {
            self.found.first_timestamp = timestamp;
        }
        self.found.in_order &= offset.0 == i64::from(self.index);
        self.found.max_timestamp = self.found.max_timestamp.max(timestamp);
        self.found.min_timestamp = self.found.min_timestamp.min(timestamp);
        if self.rules.compacted && !has_key {
            self.error(RecordErrorReason::NoKey);
        } else if self.rules.timestamp_type == TimestampType::CreateTime
            && timestamp != Timestamp::NONE
        {
            self.check_range(offset, timestamp);
        } else if self.source == Some(TimestampType::LogAppendTime) {
            // A batch marked so passes on a topic with CreateTime, if its timestamp is in range: Kafka's quirk.
            self.error(RecordErrorReason::TimestampType { record: describe() });
        }
        self.index = self.index.saturating_add(1);
    }

    /// Notes a message that is not of its wrapper's magic.
    pub(crate) fn foreign_magic(&mut self, record: String, outer: i8) {
        self.error(RecordErrorReason::Magic { record, outer });
        self.index = self.index.saturating_add(1);
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
            self.error(reason);
        }
    }

    #[cold]
    fn error(&mut self, reason: RecordErrorReason) {
        self.errors.push(self.index, reason);
    }

    /// Whether no record was at fault so far.
    pub(crate) fn is_content(&self) -> bool {
        self.errors.count == 0
    }

    /// What there is to know of the records, or what is wrong with them.
    pub(crate) fn finish(self) -> Result<Found, RecordErrors> {
        if !self.is_content() {
            return Err(self.errors);
        }
        Ok(Found { record_count: self.index, ..self.found })
    }
}

/// Source: `DefaultRecord.toString`.
pub(crate) fn describe_record(record: &RecordView) -> String {
    let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
    describe("DefaultRecord", record.offset, record.timestamp, key.len(), value.len())
}

/// Source: `PartialDefaultRecord.toString`.
pub(crate) fn describe_skimmed(record: &Skimmed) -> String {
    let (key, value) = (record.key_length, record.value_length);
    describe("PartialDefaultRecord", record.offset, record.timestamp, key, value)
}

fn describe(
    name: &str,
    offset: Offset,
    timestamp: Timestamp,
    key_length: impl std::fmt::Display,
    value_length: impl std::fmt::Display,
) -> String {
    format!(
        "{name}(offset={offset}, timestamp={timestamp}, key={key_length} bytes, \
         value={value_length} bytes)"
    )
}
