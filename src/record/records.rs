//! The records of one entry of a log, of any magic, decompressed where they must be.

use std::borrow::Cow;

use common::ids::{Offset, Timestamp};

use crate::batch::{BATCH_HEADER_LENGTH, BatchError, BatchHeader, LOG_OVERHEAD, TimestampType};
use crate::compression::{self, Codec, DecompressError};
use crate::entry::EntryHeader;
use crate::legacy::{Message, entry_size_min};
use crate::varint::Cursor;
use crate::view::{RecordBase, RecordView, read_record};

/// Why the records of an entry cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    /// The entry itself is not one.
    #[error("{0}")]
    Batch(BatchError),
    /// The compressed bytes are damaged or become too many.
    #[error("{0}")]
    Decompress(DecompressError),
    /// The id names no codec.
    #[error("Unknown compression type id: {0}")]
    UnknownCodec(u8),
    /// A record does not fit its own length, or a varint does not end.
    #[error("Found invalid record structure")]
    Structure,
    /// A record's length is negative or reaches past the batch.
    #[error("Invalid record size: {0} bytes do not fit what is left of the batch")]
    RecordLength(i32),
    /// A record has a negative number of headers.
    #[error("Found invalid number of record headers {0}")]
    HeaderCount(i32),
    /// A header has no name.
    #[error("Invalid negative header key size")]
    HeaderName,
    /// The header counts a negative number of records.
    #[error("Found invalid record count {0}")]
    Count(i32),
    /// Bytes follow the last record that the header counts.
    #[error("Incorrect declared batch size, records still remaining in file")]
    BytesRemain,
    /// Magic 0 and 1 have no zstd.
    #[error("Invalid wrapper compressionType found in legacy deep record iterator {0}")]
    LegacyZstd(i8),
    /// A compressed message has no value.
    #[error("Found invalid compressed record set with null value (magic = {0})")]
    NullWrapper(i8),
    /// A compressed message has no messages in it.
    #[error("Found invalid compressed record set with no inner records")]
    EmptyWrapper,
    /// A compressed message's offset is before the one its messages need.
    #[error(
        "Found invalid wrapper offset in compressed v1 message set, wrapper offset '{wrapper}' is \
         less than the last inner message offset '{last}' and it is not zero."
    )]
    WrapperOffset {
        /// Offset of the message around them.
        wrapper: Offset,
        /// Relative offset of the last message.
        last: Offset,
    },
    /// A message inside a compressed message is compressed.
    #[error("Inner messages must not be compressed")]
    NestedCompression,
}

impl RecordsError {
    pub(crate) const STRUCTURE: RecordsError = RecordsError::Structure;
}

/// The records of one entry; `iter` reads them one by one.
#[derive(Debug)]
pub struct Records<'a> {
    kind: Kind<'a>,
}

#[derive(Debug)]
enum Kind<'a> {
    /// Magic 2: its records, plain.
    Batch { header: BatchHeader, records: Cow<'a, [u8]> },
    /// Magic 0 or 1, not compressed.
    Message(Message<'a>),
    /// Magic 0 or 1, compressed: the messages in it, plain.
    Wrapper { wrapper: Wrapper, messages: Vec<u8> },
}

/// Reads an entry's records, which `entry` holds from its first byte on.
///
/// Decompresses at most `cap` bytes. Checksums are not looked at: see `EntryHeader::crc_matches`.
pub fn records(entry: &[u8], cap: usize) -> Result<Records<'_>, RecordsError> {
    let header = EntryHeader::parse(entry).map_err(RecordsError::Batch)?;
    let available = entry.len();
    let entry = entry
        .get(..header.size)
        .ok_or(RecordsError::Batch(BatchError::Incomplete { needed: header.size, available }))?;
    if header.magic < 2 {
        let kind = legacy_kind(Message::parse(entry)?, cap)?;
        return Ok(Records { kind });
    }
    let header = BatchHeader::parse(entry).map_err(RecordsError::Batch)?;
    if header.record_count < 0 {
        return Err(RecordsError::Count(header.record_count));
    }
    let codec = header
        .attributes
        .codec()
        .ok_or(RecordsError::UnknownCodec(header.attributes.codec_id()))?;
    let records = &entry[BATCH_HEADER_LENGTH..];
    let records = match codec {
        Codec::None => Cow::Borrowed(records),
        // Compaction leaves batches of no records, whose codec has nothing to read.
        _ if header.record_count == 0 => Cow::Borrowed(&records[..0]),
        codec => Cow::Owned(
            compression::decompress(codec, 2, records, cap).map_err(RecordsError::Decompress)?,
        ),
    };
    Ok(Records { kind: Kind::Batch { header, records } })
}

/// Offset of an entry's first record; decompresses compressed messages of magic 0 and 1 to learn it.
pub fn first_offset(entry: &[u8], cap: usize) -> Result<Offset, RecordsError> {
    let header = EntryHeader::parse(entry).map_err(RecordsError::Batch)?;
    if let Some(offset) = header.base_offset {
        return Ok(offset);
    }
    match records(entry, cap)?.iter().next() {
        Some(record) => Ok(record?.offset),
        None => Err(RecordsError::EmptyWrapper),
    }
}

fn legacy_kind(message: Message<'_>, cap: usize) -> Result<Kind<'_>, RecordsError> {
    let magic = message.header.magic;
    match message.header.codec {
        None => Err(RecordsError::UnknownCodec(message.attributes & 7)),
        Some(Codec::None) => Ok(Kind::Message(message)),
        Some(Codec::Zstd) => Err(RecordsError::LegacyZstd(magic)),
        Some(codec) => {
            let value = message.value.ok_or(RecordsError::NullWrapper(magic))?;
            let messages = compression::decompress(codec, magic, value, cap)
                .map_err(RecordsError::Decompress)?;
            let wrapper = Wrapper::new(&message.header, &messages)?;
            Ok(Kind::Wrapper { wrapper, messages })
        }
    }
}

/// What a compressed message of magic 0 or 1 says of the messages in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrapper {
    /// What the inner offsets count from; none for magic 0, where they are absolute.
    base_offset: Option<Offset>,
    log_append_time: Option<Timestamp>,
}

impl Wrapper {
    pub(crate) fn new(header: &EntryHeader, messages: &[u8]) -> Result<Wrapper, RecordsError> {
        let mut last = None;
        for message in InnerMessages::new(messages) {
            last = Some(message?.header.last_offset);
        }
        let last = last.ok_or(RecordsError::EmptyWrapper)?;
        let is_append_time = header.timestamp_type == Some(TimestampType::LogAppendTime);
        Ok(Wrapper {
            base_offset: match header.magic {
                0 => None,
                _ => Some(base_offset(header.last_offset, last)?),
            },
            log_append_time: is_append_time.then_some(header.max_timestamp),
        })
    }

    pub(crate) fn view<'a>(&self, message: &Message<'a>) -> RecordView<'a> {
        let mut view = message.view();
        if let Some(Offset(base)) = self.base_offset {
            view.offset = Offset(base.wrapping_add(view.offset.0));
        }
        if let (1, Some(timestamp)) = (message.header.magic, self.log_append_time) {
            view.timestamp = timestamp;
        }
        view
    }
}

/// What relative offsets count from. Some versions of librdkafka send 0 as the wrapper's offset.
fn base_offset(wrapper: Offset, last: Offset) -> Result<Offset, RecordsError> {
    if wrapper == Offset::ZERO {
        return Ok(Offset::ZERO);
    }
    if wrapper < last {
        return Err(RecordsError::WrapperOffset { wrapper, last });
    }
    Ok(Offset(wrapper.0.wrapping_sub(last.0)))
}

/// The messages inside a compressed one; a message that is cut off ends them, as in Kafka.
pub(crate) struct InnerMessages<'a> {
    rest: &'a [u8],
}

impl<'a> InnerMessages<'a> {
    pub(crate) fn new(messages: &'a [u8]) -> InnerMessages<'a> {
        InnerMessages { rest: messages }
    }
}

impl<'a> Iterator for InnerMessages<'a> {
    type Item = Result<Message<'a>, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let size: &[u8; 4] = self.rest.get(8..LOG_OVERHEAD)?.first_chunk()?;
        let size = i32::from_be_bytes(*size);
        let length = usize::try_from(size).unwrap_or(0);
        if length < entry_size_min(0) - LOG_OVERHEAD {
            self.rest = &[];
            return Some(Err(RecordsError::Batch(BatchError::SizeBelowMinimum(size))));
        }
        let (entry, rest) = self.rest.split_at_checked(LOG_OVERHEAD + length)?;
        self.rest = rest;
        Some(Message::parse(entry))
    }
}

impl Records<'_> {
    /// Reads the records in their order. After an error nothing more comes.
    pub fn iter(&self) -> RecordsIter<'_> {
        let state = match &self.kind {
            Kind::Batch { header, records } => State::Batch {
                base: RecordBase::of(header),
                cursor: Cursor::new(records),
                left: header.record_count,
            },
            Kind::Message(message) => State::Message(Some(message.view())),
            Kind::Wrapper { wrapper, messages } => {
                State::Wrapper { wrapper: *wrapper, messages: InnerMessages::new(messages) }
            }
        };
        RecordsIter { state }
    }
}

impl<'a> IntoIterator for &'a Records<'_> {
    type Item = Result<RecordView<'a>, RecordsError>;
    type IntoIter = RecordsIter<'a>;

    fn into_iter(self) -> RecordsIter<'a> {
        self.iter()
    }
}

/// Reads records one by one.
pub struct RecordsIter<'a> {
    state: State<'a>,
}

enum State<'a> {
    Batch { base: RecordBase, cursor: Cursor<'a>, left: i32 },
    Message(Option<RecordView<'a>>),
    Wrapper { wrapper: Wrapper, messages: InnerMessages<'a> },
    Failed,
}

impl<'a> Iterator for RecordsIter<'a> {
    type Item = Result<RecordView<'a>, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.state {
            State::Failed | State::Batch { left: 0, .. } => None,
            State::Batch { base, cursor, left } => {
                *left -= 1;
                Some(read_record(cursor, base).and_then(|record| {
                    match (*left, cursor.remaining()) {
                        (0, 1..) => Err(RecordsError::BytesRemain),
                        _ => Ok(record),
                    }
                }))
            }
            State::Message(record) => record.take().map(Ok),
            State::Wrapper { wrapper, messages } => {
                messages.next().map(|message| inner_record(wrapper, message?))
            }
        };
        if let Some(Err(_)) = next {
            self.state = State::Failed;
        }
        next
    }
}

fn inner_record<'a>(
    wrapper: &Wrapper,
    message: Message<'a>,
) -> Result<RecordView<'a>, RecordsError> {
    match message.header.codec {
        Some(Codec::None) => Ok(wrapper.view(&message)),
        _ => Err(RecordsError::NestedCompression),
    }
}
