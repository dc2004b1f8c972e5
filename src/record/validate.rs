//! Checks what a producer sent before it is stored: every check of Kafka's `LogValidator`, and those that
//! `UnifiedLog.analyzeAndValidateRecords` makes before it.
//!
//! Needs no offsets, so it runs without a lock: offsets are written into a copy of the batch's header afterwards.

use std::fmt;

use bytes::Bytes;
use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::batch::{
    BATCH_HEADER_LENGTH, Batch, BatchError, BatchHeader, Batches, CRC_COVERS_FROM, TimestampType,
};
use crate::compression::{BrokerCompression, Codec, DECOMPRESSED_BYTES_MAX, DecompressError};
use crate::record_errors::RecordErrors;
use crate::records::RecordsError;
use crate::{up_convert, walk, zstandard};

/// What a partition admits, and how it stores it.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The time of the append.
    pub now: Timestamp,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub after_max_ms: i64,
    /// `compression.type`.
    pub compression: BrokerCompression,
    /// Whether `cleanup.policy` has `compact`.
    pub compacted: bool,
    /// `max.message.bytes`: the largest batch, as sent and as stored.
    pub message_bytes_max: usize,
    /// Who appends.
    pub origin: Origin,
}

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A producer: may write no control records and no offsets.
    Client,
    /// A coordinator of this cluster: writes markers too.
    Coordinator,
}

/// Why a produced batch is refused. The first word of each variant's doc is Kafka's error code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidationError {
    /// NONE: there is no whole batch. Kafka appends nothing and answers offset -1 without an error; since version 3
    /// a produce request must have one (see `produce_version`).
    #[error("no whole record batch")]
    NoBatches,
    /// CORRUPT_MESSAGE: the bytes are not what was sent.
    #[error("{0}")]
    Corrupt(Corruption),
    /// INVALID_RECORD: the bytes are intact, and break a rule of the format.
    #[error("{0}")]
    Invalid(InvalidBatch),
    /// INVALID_TIMESTAMP or INVALID_RECORD, with the records at fault: `RecordErrors::has_invalid_timestamp` tells.
    #[error("{} records are not admitted", .0.count)]
    Records(RecordErrors),
    /// MESSAGE_TOO_LARGE: a batch, as sent or as it would be stored, exceeds `max.message.bytes`; or its records,
    /// decompressed, exceed `DECOMPRESSED_BYTES_MAX`, of which Kafka knows nothing.
    #[error("the batch has {size} bytes, more than {maximum}")]
    TooLarge {
        /// The batch's size.
        size: usize,
        /// The limit.
        maximum: usize,
    },
    /// No error code: `check_within` was given too little memory to tell. Never of `DECOMPRESSED_BYTES_MAX`.
    #[error("the check needs more than {0} bytes")]
    NeedsMemory(usize),
    /// UNKNOWN_SERVER_ERROR: Kafka fails on these with an exception that has no code.
    #[error("{0}")]
    Unreadable(Unreadable),
}

/// Bytes that are not what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    /// An entry's size or magic cannot be.
    #[error("{0}")]
    Batch(BatchError),
    /// The checksum is not that of the bytes.
    #[error("Record is corrupt (stored crc = {stored})")]
    Checksum {
        /// As in the header.
        stored: u32,
    },
    /// The checksum of a message inside a compressed message is not that of its bytes.
    #[error("Record is corrupt (stored crc = {stored}, computed crc = {computed})")]
    InnerChecksum {
        /// As in the message.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
}

/// A rule of the format that is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBatch {
    /// A producer's batch begins at 0: the broker gives offsets.
    #[error("The baseOffset of the record batch in the append should be 0, but it is {0}")]
    BaseOffset(Offset),
    /// There may be one batch of magic 2, or one compressed message.
    #[error("Compressed outer record has more than one batch")]
    SeveralBatches,
    /// All messages have one magic.
    #[error("Batch magic {magic} is not the same as the first batch's magic byte {first}")]
    Magics {
        /// The other magic.
        magic: i8,
        /// The first message's magic.
        first: i8,
    },
    /// The last offset is before the first.
    #[error("Batch has an invalid offset range: [{base}, {last}]")]
    OffsetRange {
        /// Offset of the first record.
        base: Offset,
        /// Offset of the last record.
        last: Offset,
    },
    /// The header counts no records.
    #[error("Invalid reported count for record batch: {0}")]
    Count(i32),
    /// The header's offsets and count do not agree.
    #[error("Inconsistent batch offset range [{base}, {last}] and count of records {record_count}")]
    CountAndOffsets {
        /// Offset of the first record.
        base: Offset,
        /// Offset of the last record.
        last: Offset,
        /// What the header counts.
        record_count: i32,
    },
    /// A producer sent control records.
    #[error("Clients are not allowed to write control records")]
    Control,
    /// A producer with an id sent no sequence number.
    #[error(
        "Invalid sequence number {base_sequence} in record batch with producerId {producer_id}"
    )]
    Sequence {
        /// What is in its place.
        base_sequence: i32,
        /// The producer.
        producer_id: ProducerId,
    },
    /// The records do not parse.
    #[error("{0}")]
    Structure(RecordsError),
}

/// Batches on which Kafka fails without a code of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The id names no codec.
    #[error("Unknown compression type id: {0}")]
    Codec(u8),
    /// The compressed bytes are not of their codec.
    #[error("Failed to decompress record stream")]
    Compressed,
    /// A compressed batch that need not be written anew numbers its records wrongly.
    #[error("the records' offsets do not follow each other")]
    Offsets,
    /// A batch that has to be written anew has a timestamp that a new batch may not have.
    #[error("Invalid negative timestamp {0}")]
    NegativeTimestamp(Timestamp),
}

/// A batch of magic 2 that may be stored, once it has offsets.
///
/// Where nothing had to change its records are a slice of what came in; the header is a copy.
#[derive(Clone)]
pub struct Checked {
    header: BatchHeader,
    header_bytes: [u8; BATCH_HEADER_LENGTH],
    records: Bytes,
    log_append_time: Option<Timestamp>,
    rewritten: bool,
}

impl Checked {
    pub(crate) fn new(
        header: BatchHeader,
        records: Bytes,
        log_append_time: Option<Timestamp>,
        rewritten: bool,
    ) -> Checked {
        Checked { header, header_bytes: header.to_bytes(), records, log_append_time, rewritten }
    }

    /// Gives the batch its offsets, and the epoch of the leader that appends it. May be called again.
    pub fn assign(&mut self, first_offset: Offset, leader_epoch: LeaderEpoch) {
        self.header.base_offset = first_offset;
        self.header.leader_epoch = leader_epoch;
        self.header_bytes[0..8].copy_from_slice(&first_offset.0.to_be_bytes());
        self.header_bytes[12..16].copy_from_slice(&leader_epoch.0.to_be_bytes());
    }

    /// The batch's bytes in two pieces, for one vectored write.
    pub fn slices(&self) -> [&[u8]; 2] {
        [&self.header_bytes, &self.records]
    }

    /// The batch's size in bytes.
    pub fn size(&self) -> usize {
        BATCH_HEADER_LENGTH + self.records.len()
    }

    /// The header as it will be stored; offsets and epoch are right after `assign`.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// How many records there are; at least one.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// The last record's offset less the first's.
    pub fn last_offset_delta(&self) -> i32 {
        self.header.last_offset_delta
    }

    /// The largest timestamp; -1 when no record has one.
    pub fn max_timestamp(&self) -> Timestamp {
        self.header.max_timestamp
    }

    /// The time of the append, where the topic has `LogAppendTime`: part of the answer to the producer.
    pub fn log_append_time(&self) -> Option<Timestamp> {
        self.log_append_time
    }

    /// The producer; -1 for none.
    pub fn producer_id(&self) -> ProducerId {
        self.header.producer_id
    }

    /// The producer's epoch; -1 for none.
    pub fn producer_epoch(&self) -> ProducerEpoch {
        self.header.producer_epoch
    }

    /// Sequence number of the first record; -1 for none.
    pub fn base_sequence(&self) -> i32 {
        self.header.base_sequence
    }

    /// Sequence number of the last record; -1 for none.
    pub fn last_sequence(&self) -> i32 {
        self.header.last_sequence()
    }

    /// Whether it belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.header.attributes.is_transactional()
    }

    /// Whether it holds control records.
    pub fn is_control(&self) -> bool {
        self.header.attributes.is_control()
    }

    /// Whether the records were converted or compressed anew; Kafka counts them as conversions.
    pub fn was_rewritten(&self) -> bool {
        self.rewritten
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Checked")
            .field("header", &self.header)
            .field("size", &self.size())
            .field("rewritten", &self.rewritten)
            .finish()
    }
}

/// What `check` will have to do, as far as the first header tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Walk the records where they are: microseconds.
    Walk,
    /// Decompress them, and throw that away.
    Decompress,
    /// Write them anew, and compress them if the topic says so: not for a thread that serves connections.
    Rewrite,
}

/// Foretells what `check` will have to do; reads one header, checks nothing.
pub fn work(records: &[u8], rules: &Rules) -> Work {
    let Some(Ok(first)) = Batches::new(records).next() else { return Work::Walk };
    let source = first.header.codec.unwrap_or(Codec::None);
    let target = rules.compression.target(source).codec();
    if first.header.magic < 2 || (target != source && !first.header.is_control) {
        Work::Rewrite
    } else if source == Codec::None {
        Work::Walk
    } else {
        Work::Decompress
    }
}

/// Checks what a producer (or a coordinator) wants to append to one partition.
///
/// Plain batches are walked where they are; nothing is allocated for a record. Compressed ones are decompressed through
/// a buffer that the thread keeps. Records are written anew only where the topic's codec is another, where they come
/// in magic 0 or 1, or where plain ones have offsets that are not 0, 1, 2 and so on.
///
/// # Errors
/// As `ValidationError` says; the log must then stay as it is.
pub fn check(records: Bytes, rules: &Rules) -> Result<Checked, ValidationError> {
    check_within(records, rules, DECOMPRESSED_BYTES_MAX)
}

/// What `check_within` must be given to check the batches that usual producers send and that are not written anew.
pub const CHECK_BYTES_MIN: usize = zstandard::WINDOW_BYTES_MIN;

/// The same, with buffers of at most `memory` bytes: at most four at a time, those of the codec among them. Where they do not suffice
/// it says `NeedsMemory`, so that a caller who has to share can begin with little.
pub fn check_within(
    records: Bytes,
    rules: &Rules,
    memory: usize,
) -> Result<Checked, ValidationError> {
    let entries = intact_entries(&records, rules)?;
    let first = entries.first;
    if entries.count > 1 && (first.header.magic == 2 || entries.codec != Codec::None) {
        return Err(ValidationError::Invalid(InvalidBatch::SeveralBatches));
    }
    let target = rules.compression.target(entries.codec);
    if first.header.magic < 2 {
        return up_convert::check(&records, first.header.magic, target, rules, memory);
    }
    let header = BatchHeader::parse(first.bytes).map_err(corrupt)?;
    check_batch(&header, rules).map_err(ValidationError::Invalid)?;
    let batch = records.slice(..header.size());
    walk::check(&batch, header, entries.codec, target, rules, memory)
}

/// The whole entries at the beginning of what was sent.
struct Entries<'a> {
    first: Batch<'a>,
    count: usize,
    /// The last codec that is not `None`: with several entries, Kafka takes this for all.
    codec: Codec,
}

/// Checks each entry's size, checksum and codec. What follows the last whole entry is ignored.
fn intact_entries<'a>(records: &'a [u8], rules: &Rules) -> Result<Entries<'a>, ValidationError> {
    let mut entries: Option<Entries> = None;
    for entry in Batches::new(records) {
        let entry = entry.map_err(corrupt)?;
        let header = &entry.header;
        if let (2, Origin::Client, Some(base)) = (header.magic, rules.origin, header.base_offset)
            && base != Offset::ZERO
        {
            return Err(ValidationError::Invalid(InvalidBatch::BaseOffset(base)));
        }
        if header.size > rules.message_bytes_max {
            let maximum = rules.message_bytes_max;
            return Err(ValidationError::TooLarge { size: header.size, maximum });
        }
        if !header.crc_matches(entry.bytes) {
            return Err(ValidationError::Corrupt(Corruption::Checksum { stored: header.crc }));
        }
        let codec = header.codec.ok_or_else(|| {
            let id = entry.bytes[if header.magic == 2 { CRC_COVERS_FROM + 1 } else { 17 }] & 7;
            ValidationError::Unreadable(Unreadable::Codec(id))
        })?;
        let entries = entries.get_or_insert(Entries { first: entry, count: 0, codec: Codec::None });
        entries.count += 1;
        if codec != Codec::None {
            entries.codec = codec;
        }
    }
    entries.ok_or(ValidationError::NoBatches)
}

fn corrupt(error: BatchError) -> ValidationError {
    ValidationError::Corrupt(Corruption::Batch(error))
}

/// The rules of a batch's header. Source: `LogValidator.validateBatch`, which lets coordinators break all of them; ours
/// keep those of counts and offsets.
fn check_batch(header: &BatchHeader, rules: &Rules) -> Result<(), InvalidBatch> {
    let (base, last, record_count) =
        (header.base_offset, header.last_offset(), header.record_count);
    let count_from_offsets = i64::from(header.last_offset_delta) + 1;
    if count_from_offsets <= 0 {
        return Err(InvalidBatch::OffsetRange { base, last });
    }
    if record_count <= 0 {
        return Err(InvalidBatch::Count(record_count));
    }
    if count_from_offsets != i64::from(record_count) {
        return Err(InvalidBatch::CountAndOffsets { base, last, record_count });
    }
    if rules.origin == Origin::Coordinator {
        return Ok(());
    }
    if header.attributes.is_control() {
        return Err(InvalidBatch::Control);
    }
    if header.has_producer() && header.base_sequence < 0 {
        let (base_sequence, producer_id) = (header.base_sequence, header.producer_id);
        return Err(InvalidBatch::Sequence { base_sequence, producer_id });
    }
    Ok(())
}

/// An error of the records, as the kind that Kafka answers with.
pub(crate) fn unreadable(error: RecordsError) -> ValidationError {
    match error {
        RecordsError::Decompress(DecompressError::TooLarge { cap })
            if cap < DECOMPRESSED_BYTES_MAX =>
        {
            ValidationError::NeedsMemory(cap)
        }
        RecordsError::Decompress(DecompressError::TooLarge { cap }) => {
            ValidationError::TooLarge { size: cap.saturating_add(1), maximum: cap }
        }
        RecordsError::Decompress(_) => ValidationError::Unreadable(Unreadable::Compressed),
        error => ValidationError::Invalid(InvalidBatch::Structure(error)),
    }
}
