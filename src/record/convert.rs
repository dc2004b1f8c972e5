//! Down-conversion: what fetch requests of versions 0 to 3 are answered with. Source: `RecordsUtil.downConvert`.
//!
//! Headers are dropped and control batches left out, for the old formats have neither.

use common::ids::{Offset, Timestamp};

use crate::batch::{Batch, BatchError, Batches, TimestampType};
use crate::compression::{Codec, DecompressError};
use crate::entry::EntryHeader;
use crate::legacy::{MessageFields, write, write_wrapper};
use crate::records::{Records, RecordsError, records};
use crate::view::RecordView;

/// A format before record batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OldFormat {
    /// No timestamps; for fetch versions 0 and 1.
    Magic0,
    /// For fetch versions 2 and 3.
    Magic1,
}

impl OldFormat {
    /// The number in messages.
    pub fn magic(self) -> i8 {
        match self {
            OldFormat::Magic0 => 0,
            OldFormat::Magic1 => 1,
        }
    }
}

/// Why batches cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The old formats have no zstd, and the first batch is of it (UNSUPPORTED_COMPRESSION_TYPE).
    #[error("Down-conversion of zstandard-compressed batches is not supported")]
    Zstd,
    /// An entry is none.
    #[error("{0}")]
    Batch(BatchError),
    /// An entry's records cannot be read.
    #[error("{0}")]
    Records(RecordsError),
}

impl ConvertError {
    /// Whether larger buffers may help.
    pub fn needs_more(&self) -> bool {
        matches!(
            self,
            ConvertError::Records(RecordsError::Decompress(DecompressError::TooLarge { .. }))
        )
    }
}

/// Converts the whole entries in `bytes`; those that are old enough stay as they are.
///
/// Of uncompressed batches, records below `from` are left out: some versions of librdkafka rely on it. An entry that is
/// cut off at the end is left out. The result ends with the entry that makes it larger than what went in; Kafka cuts within
/// that one, which clients take for a message that does not fit.
///
/// No buffer takes more than `cap` bytes, be it for what an entry is decompressed to or for what is made of it, and at
/// most three are there at a time. An entry that needs more is an error.
pub fn down_convert(
    bytes: &[u8],
    to: OldFormat,
    from: Offset,
    cap: usize,
) -> Result<Vec<u8>, ConvertError> {
    let mut converted = Vec::with_capacity(bytes.len());
    for entry in Batches::new(bytes) {
        let entry = entry.map_err(ConvertError::Batch)?;
        if entry.header.is_control {
            continue;
        }
        if entry.header.codec == Some(Codec::Zstd) {
            // What comes before it is given out; the next fetch begins here, and gets the error.
            return if converted.is_empty() { Err(ConvertError::Zstd) } else { Ok(converted) };
        }
        if entry.header.magic <= to.magic() {
            converted.extend_from_slice(entry.bytes);
        } else {
            let records = records(entry.bytes, cap).map_err(ConvertError::Records)?;
            convert_entry(&entry, &records, to, from, cap, &mut converted)?;
        }
        if converted.len() > bytes.len() {
            break;
        }
    }
    Ok(converted)
}

fn convert_entry(
    entry: &Batch,
    records: &Records,
    to: OldFormat,
    from: Offset,
    cap: usize,
    out: &mut Vec<u8>,
) -> Result<(), ConvertError> {
    let is_plain = entry.header.codec == Some(Codec::None);
    let is_wanted = |record: &RecordView| !is_plain || record.offset >= from;
    let wanted = records.iter().filter(|record| record.as_ref().map_or(true, is_wanted));
    write_messages(&entry.header, to, wanted, cap, out).map_err(ConvertError::Records)
}

/// Appends records of an entry in an old format: each for itself, or compressed in one message as they were in the
/// entry. None at all write nothing. More than `cap` bytes of messages are an error.
pub(crate) fn write_messages<'a>(
    entry: &EntryHeader,
    to: OldFormat,
    records: impl Iterator<Item = Result<RecordView<'a>, RecordsError>>,
    cap: usize,
    out: &mut Vec<u8>,
) -> Result<(), RecordsError> {
    let codec = entry.codec.unwrap_or(Codec::None);
    let mut message = MessageFields {
        offset: Offset::ZERO,
        magic: to.magic(),
        codec: Codec::None,
        timestamp_type: entry.timestamp_type.unwrap_or(TimestampType::CreateTime),
        timestamp: Timestamp::NONE,
        key: None,
        value: None,
    };
    let begin = out.len();
    let mut inner = Vec::new();
    let mut first_and_last = None;
    let mut max_timestamp = Timestamp::NONE;
    for record in records {
        let record = record?;
        if (out.len() - begin).max(inner.len()) > cap {
            return Err(RecordsError::Decompress(DecompressError::TooLarge { cap }));
        }
        message.timestamp = record.timestamp;
        (message.key, message.value) = (record.key, record.value);
        if codec == Codec::None {
            message.offset = record.offset;
            write(&message, out);
            continue;
        }
        let (first, _) = *first_and_last.get_or_insert((record.offset, record.offset));
        first_and_last = Some((first, record.offset));
        max_timestamp = max_timestamp.max(record.timestamp);
        // Inner offsets are relative in magic 1, absolute in magic 0.
        message.offset = match to {
            OldFormat::Magic0 => record.offset,
            OldFormat::Magic1 => Offset(record.offset.0.wrapping_sub(first.0)),
        };
        write(&message, &mut inner);
    }
    let Some((_, last)) = first_and_last else { return Ok(()) };
    let timestamp = match message.timestamp_type {
        TimestampType::CreateTime => max_timestamp,
        TimestampType::LogAppendTime => entry.max_timestamp,
    };
    write_wrapper(&MessageFields { offset: last, codec, timestamp, ..message }, &inner, out);
    Ok(())
}
