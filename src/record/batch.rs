//! The header of a record batch (magic 2), and the walk over a run of batches of any magic.
//!
//! Offsets and lengths of fields are those of Kafka's `DefaultRecordBatch`.

use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::compression::Codec;
use crate::entry::EntryHeader;

/// Length of the magic 2 header; the records follow it.
pub const BATCH_HEADER_LENGTH: usize = 61;
/// Length of what every entry begins with: its offset (8) and its size (4), which counts the bytes after these 12.
pub const LOG_OVERHEAD: usize = 12;
/// Where the bytes begin that the CRC of a magic 2 batch covers.
pub const CRC_COVERS_FROM: usize = 21;
/// Smallest legal value of an entry's size field. Source: `LegacyRecord.RECORD_OVERHEAD_V0`.
pub const ENTRY_LENGTH_MIN: i32 = 14;
/// A batch without sequence numbers.
pub const NO_SEQUENCE: i32 = -1;

const CRC_AT: usize = 17;

/// Why bytes are not an entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the entry, or before its header.
    #[error("needs {needed} bytes, has {available}")]
    Incomplete {
        /// Bytes that are needed to go on.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The size field is below what any entry has.
    #[error("Record size {0} is less than the minimum record overhead ({ENTRY_LENGTH_MIN})")]
    SizeBelowMinimum(i32),
    /// The size field is below what an entry of this magic has.
    #[error("size {size} is less than the {minimum} bytes of an empty entry of magic {magic}")]
    SizeBelowHeader {
        /// The whole entry's size, in bytes.
        size: usize,
        /// The least it may be.
        minimum: usize,
        /// The entry's format.
        magic: i8,
    },
    /// A format that does not exist.
    #[error("Invalid magic found in record: {0}")]
    Magic(i8),
}

/// Where the timestamps of a batch come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The client chose them.
    CreateTime,
    /// The broker wrote its clock over them; every record has the batch's largest timestamp.
    LogAppendTime,
}

impl TimestampType {
    /// Kafka's name, as configs and tools show it.
    pub fn name(self) -> &'static str {
        match self {
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }
}

/// The attribute bits of a magic 2 batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;
    /// The bits that have a meaning; Kafka drops the others where it rewrites attributes.
    const KNOWN: i16 = 0x7f;

    /// Attributes of a plain, client-timed, non-transactional batch.
    pub const NONE: Attributes = Attributes(0);

    /// The id of the codec, 0 to 7; not all of them exist.
    pub fn codec_id(self) -> u8 {
        (self.0 & Attributes::CODEC) as u8
    }

    /// The codec; none where the id names no codec.
    pub fn codec(self) -> Option<Codec> {
        Codec::from_id(self.codec_id())
    }

    /// Whose timestamps the batch has.
    pub fn timestamp_type(self) -> TimestampType {
        match self.0 & Attributes::LOG_APPEND_TIME {
            0 => TimestampType::CreateTime,
            _ => TimestampType::LogAppendTime,
        }
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Attributes::TRANSACTIONAL != 0
    }

    /// Whether its records are for brokers and clients, not for applications.
    pub fn is_control(self) -> bool {
        self.0 & Attributes::CONTROL != 0
    }

    /// Whether `base_timestamp` holds the time from which tombstones may go.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Attributes::DELETE_HORIZON != 0
    }

    /// The same with another codec.
    #[must_use]
    pub fn with_codec(self, codec: Codec) -> Attributes {
        Attributes(self.0 & !Attributes::CODEC | i16::from(codec.id()))
    }

    /// The same with another timestamp type; bits without a meaning are dropped.
    #[must_use]
    pub fn with_timestamp_type(self, timestamp_type: TimestampType) -> Attributes {
        let known = self.0 & Attributes::KNOWN;
        self.set(known, Attributes::LOG_APPEND_TIME, timestamp_type == TimestampType::LogAppendTime)
    }

    /// The same with the transactional bit as said.
    #[must_use]
    pub fn with_transactional(self, is_transactional: bool) -> Attributes {
        self.set(self.0, Attributes::TRANSACTIONAL, is_transactional)
    }

    /// The same with the control bit as said.
    #[must_use]
    pub fn with_control(self, is_control: bool) -> Attributes {
        self.set(self.0, Attributes::CONTROL, is_control)
    }

    /// The same with the delete horizon bit as said.
    #[must_use]
    pub fn with_delete_horizon(self, has_delete_horizon: bool) -> Attributes {
        self.set(self.0, Attributes::DELETE_HORIZON, has_delete_horizon)
    }

    fn set(self, bits: i16, mask: i16, on: bool) -> Attributes {
        Attributes(if on { bits | mask } else { bits & !mask })
    }
}

/// The 61 bytes before the records of a magic 2 batch. Values are as they stand there: nothing is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; kept when compaction removes that record.
    pub base_offset: Offset,
    /// Bytes after this field: the batch's size less 12.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch. Not covered by the CRC.
    pub leader_epoch: LeaderEpoch,
    /// CRC-32C of everything after this field.
    pub crc: u32,
    /// Codec, timestamp type and flags.
    pub attributes: Attributes,
    /// Offset of the last record less the base offset; kept by compaction.
    pub last_offset_delta: i32,
    /// What records' timestamps count from; the delete horizon when that bit is set.
    pub base_timestamp: Timestamp,
    /// The largest timestamp; every record's, where the type is `LogAppendTime`.
    pub max_timestamp: Timestamp,
    /// The producer, -1 for none.
    pub producer_id: ProducerId,
    /// The producer's epoch, -1 for none.
    pub producer_epoch: ProducerEpoch,
    /// Sequence number of the first record, -1 for none.
    pub base_sequence: i32,
    /// Count of records that are there.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the beginning of `bytes`, which may be a prefix of the batch or more than it.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let available = bytes.len();
        let header: &[u8; BATCH_HEADER_LENGTH] = bytes
            .first_chunk()
            .ok_or(BatchError::Incomplete { needed: BATCH_HEADER_LENGTH, available })?;
        let magic = i8::from_be_bytes(fixed(header, 16));
        if magic != 2 {
            return Err(BatchError::Magic(magic));
        }
        let parsed = BatchHeader {
            base_offset: Offset(i64::from_be_bytes(fixed(header, 0))),
            batch_length: i32::from_be_bytes(fixed(header, 8)),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(fixed(header, 12))),
            crc: u32::from_be_bytes(fixed(header, CRC_AT)),
            attributes: Attributes(i16::from_be_bytes(fixed(header, CRC_COVERS_FROM))),
            last_offset_delta: i32::from_be_bytes(fixed(header, 23)),
            base_timestamp: Timestamp(i64::from_be_bytes(fixed(header, 27))),
            max_timestamp: Timestamp(i64::from_be_bytes(fixed(header, 35))),
            producer_id: ProducerId(i64::from_be_bytes(fixed(header, 43))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(fixed(header, 51))),
            base_sequence: i32::from_be_bytes(fixed(header, 53)),
            record_count: i32::from_be_bytes(fixed(header, 57)),
        };
        if parsed.batch_length < ENTRY_LENGTH_MIN {
            return Err(BatchError::SizeBelowMinimum(parsed.batch_length));
        }
        if parsed.size() < BATCH_HEADER_LENGTH {
            let size = parsed.size();
            return Err(BatchError::SizeBelowHeader { size, minimum: BATCH_HEADER_LENGTH, magic });
        }
        Ok(parsed)
    }

    /// The bytes of the header, as `parse` reads them.
    pub fn to_bytes(&self) -> [u8; BATCH_HEADER_LENGTH] {
        let mut bytes = [0; BATCH_HEADER_LENGTH];
        bytes[0..8].copy_from_slice(&self.base_offset.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.leader_epoch.0.to_be_bytes());
        bytes[16] = 2;
        bytes[CRC_AT..21].copy_from_slice(&self.crc.to_be_bytes());
        bytes[CRC_COVERS_FROM..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        bytes[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        bytes[27..35].copy_from_slice(&self.base_timestamp.0.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.max_timestamp.0.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.producer_id.0.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.producer_epoch.0.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        bytes[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        bytes
    }

    /// The whole batch's size in bytes, header included.
    pub fn size(&self) -> usize {
        LOG_OVERHEAD + usize::try_from(self.batch_length).unwrap_or(0)
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0.wrapping_add(i64::from(self.last_offset_delta)))
    }

    /// Sequence number of the last record; they wrap from 2^31 - 1 to 0.
    pub fn last_sequence(&self) -> i32 {
        match self.base_sequence {
            NO_SEQUENCE => NO_SEQUENCE,
            base => increment_sequence(base, self.last_offset_delta),
        }
    }

    /// Whether a producer with an id wrote the batch.
    pub fn has_producer(&self) -> bool {
        self.producer_id > ProducerId::NONE
    }

    /// The time from which tombstones and markers of this batch may be removed, once it is set.
    pub fn delete_horizon(&self) -> Option<Timestamp> {
        self.attributes.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// The timestamp that stands for every record, where the broker chose it.
    pub(crate) fn log_append_time(&self) -> Option<Timestamp> {
        let is_append_time = self.attributes.timestamp_type() == TimestampType::LogAppendTime;
        is_append_time.then_some(self.max_timestamp)
    }
}

/// The sequence number `increment` places on. Source: `DefaultRecordBatch.incrementSequence`.
pub fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    if sequence > i32::MAX.wrapping_sub(increment) {
        increment.wrapping_sub(i32::MAX.wrapping_sub(sequence)).wrapping_sub(1)
    } else {
        sequence.wrapping_add(increment)
    }
}

/// CRC-32C of a whole batch's covered part; equal to `BatchHeader::crc` where it is intact.
pub fn compute_crc(batch: &[u8]) -> u32 {
    crc32c::crc32c(batch.get(CRC_COVERS_FROM..).unwrap_or_default())
}

/// `N` bytes at a place that the caller has made sure of.
pub(crate) fn fixed<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut fixed = [0; N];
    fixed.copy_from_slice(&bytes[at..at + N]);
    fixed
}

/// One entry of a log: a batch, or a message (perhaps a compressed wrapper) of magic 0 or 1.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// What its header says.
    pub header: EntryHeader,
    /// All its bytes, header included.
    pub bytes: &'a [u8],
}

/// Walks the entries of a run of bytes by their sizes, of any magic.
///
/// An entry that is cut off ends the walk without an error, as in Kafka's `ByteBufferLogInputStream`; compare
/// `position` with the length to learn of it. After an error nothing more comes.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// A walk from the first byte on.
    pub fn new(bytes: &'a [u8]) -> Batches<'a> {
        Batches { bytes, position: 0, failed: false }
    }

    /// Bytes of the whole entries that have been given out.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.position..];
        if self.failed {
            return None;
        }
        match EntryHeader::parse(rest) {
            Ok(header) => {
                let bytes = rest.get(..header.size)?;
                self.position += header.size;
                Some(Ok(Batch { header, bytes }))
            }
            Err(BatchError::Incomplete { .. }) => None,
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(increment_sequence(5, 3), 8);
        assert_eq!(increment_sequence(i32::MAX, 0), i32::MAX);
        assert_eq!(increment_sequence(i32::MAX, 1), 0);
        assert_eq!(increment_sequence(i32::MAX - 2, 5), 2);
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = BatchHeader {
            base_offset: Offset(1 << 40),
            batch_length: 1000,
            leader_epoch: LeaderEpoch(7),
            crc: 0xdead_beef,
            attributes: Attributes::NONE
                .with_codec(Codec::Zstd)
                .with_timestamp_type(TimestampType::LogAppendTime)
                .with_transactional(true),
            last_offset_delta: 9,
            base_timestamp: Timestamp(1),
            max_timestamp: Timestamp(2),
            producer_id: ProducerId(3),
            producer_epoch: ProducerEpoch(4),
            base_sequence: i32::MAX,
            record_count: 10,
        };
        let bytes = header.to_bytes();
        assert_eq!(BatchHeader::parse(&bytes), Ok(header));
        assert_eq!(header.attributes.0, 0b1_1100);
        assert_eq!(header.last_sequence(), 8);
        for length in 0..BATCH_HEADER_LENGTH {
            let error = BatchError::Incomplete { needed: 61, available: length };
            assert_eq!(BatchHeader::parse(&bytes[..length]), Err(error));
        }
    }
}
