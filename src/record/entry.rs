//! What storage needs to know of an entry of any magic, from its first bytes alone.

use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::batch::{
    self, BATCH_HEADER_LENGTH, BatchError, BatchHeader, ENTRY_LENGTH_MIN, LOG_OVERHEAD,
    NO_SEQUENCE, TimestampType, fixed,
};
use crate::compression::Codec;
use crate::legacy;

/// Bytes from which `EntryHeader::parse` can read any entry's header. A whole entry may be shorter, if its magic is 0 or 1.
pub const ENTRY_PREFIX_LENGTH: usize = BATCH_HEADER_LENGTH;
/// Bytes from which an entry's offset, size and magic can be read.
pub const LENGTH_UP_TO_MAGIC: usize = 17;

/// The header of a batch (magic 2) or of a message (magic 0 and 1) in common terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// The whole entry's size in bytes.
    pub size: usize,
    /// Format: 0, 1 or 2.
    pub magic: i8,
    /// The first record's offset; of a compressed message of magic 0 or 1 it is not in the header (see
    /// `records::first_offset`).
    pub base_offset: Option<Offset>,
    /// The last record's offset.
    pub last_offset: Offset,
    /// The largest timestamp; -1 for magic 0.
    pub max_timestamp: Timestamp,
    /// Whose timestamps they are; none for magic 0, which has no timestamps.
    pub timestamp_type: Option<TimestampType>,
    /// The codec; none where the id names no codec.
    pub codec: Option<Codec>,
    /// Epoch of the leader that appended it; -1 for magic 0 and 1.
    pub leader_epoch: LeaderEpoch,
    /// The producer; -1 for none, and for magic 0 and 1.
    pub producer_id: ProducerId,
    /// The producer's epoch; -1 for none.
    pub producer_epoch: ProducerEpoch,
    /// Sequence number of the first record; -1 for none.
    pub base_sequence: i32,
    /// Sequence number of the last record; -1 for none.
    pub last_sequence: i32,
    /// Count of records; of magic 0 and 1 it is not in the header.
    pub record_count: Option<i32>,
    /// Whether it belongs to a transaction.
    pub is_transactional: bool,
    /// Whether it holds control records.
    pub is_control: bool,
    /// The time from which its tombstones may go, once it is set.
    pub delete_horizon: Option<Timestamp>,
    /// The stored checksum: CRC-32C of magic 2, CRC-32 of magic 0 and 1.
    pub crc: u32,
}

impl EntryHeader {
    /// Reads the header at the beginning of `bytes`; `ENTRY_PREFIX_LENGTH` bytes, or a whole entry, are enough.
    ///
    /// Checks the size field and the magic, and that the size has room for the fixed fields. `Incomplete` says that
    /// more bytes are needed to tell; it does not say that the entry's body is there.
    pub fn parse(bytes: &[u8]) -> Result<EntryHeader, BatchError> {
        let available = bytes.len();
        if available < LOG_OVERHEAD {
            return Err(BatchError::Incomplete { needed: LENGTH_UP_TO_MAGIC, available });
        }
        let length = i32::from_be_bytes(fixed(bytes, 8));
        if length < ENTRY_LENGTH_MIN {
            return Err(BatchError::SizeBelowMinimum(length));
        }
        if available < LENGTH_UP_TO_MAGIC {
            return Err(BatchError::Incomplete { needed: LENGTH_UP_TO_MAGIC, available });
        }
        match i8::from_be_bytes(fixed(bytes, 16)) {
            0 | 1 => legacy::entry_header(bytes),
            2 => Ok(EntryHeader::from_batch(&BatchHeader::parse(bytes)?)),
            magic => Err(BatchError::Magic(magic)),
        }
    }

    fn from_batch(header: &BatchHeader) -> EntryHeader {
        EntryHeader {
            size: header.size(),
            magic: 2,
            base_offset: Some(header.base_offset),
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp,
            timestamp_type: Some(header.attributes.timestamp_type()),
            codec: header.attributes.codec(),
            leader_epoch: header.leader_epoch,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
            record_count: Some(header.record_count),
            is_transactional: header.attributes.is_transactional(),
            is_control: header.attributes.is_control(),
            delete_horizon: header.delete_horizon(),
            crc: header.crc,
        }
    }

    /// The first record's offset where the header has it, else the last one's.
    pub fn first_or_last_offset(&self) -> Offset {
        self.base_offset.unwrap_or(self.last_offset)
    }

    /// Whether a producer with an id wrote it.
    pub fn has_producer(&self) -> bool {
        self.producer_id > ProducerId::NONE
    }

    /// Whether it has sequence numbers.
    pub fn has_sequence(&self) -> bool {
        self.base_sequence > NO_SEQUENCE
    }

    /// Whether the stored checksum is that of `entry`, which is all of the entry's bytes.
    pub fn crc_matches(&self, entry: &[u8]) -> bool {
        self.crc == self.compute_crc(entry)
    }

    /// The checksum of `entry`, which is all of the entry's bytes.
    pub fn compute_crc(&self, entry: &[u8]) -> u32 {
        match self.magic {
            2 => batch::compute_crc(entry),
            _ => legacy::compute_crc(entry),
        }
    }
}
