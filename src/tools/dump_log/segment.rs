//! `.log` files: batches, and their records.

use std::{fs::File, io::Write, os::unix::fs::FileExt, path::Path};

use common::ids::{Offset, Timestamp};
use record::{
    batch::{BatchError, Batches, TimestampType, increment_sequence},
    compression::{Codec, decompress},
    control::{ControlType, TransactionResult, parse_marker, parse_type},
    entry::{ENTRY_PREFIX_LENGTH, EntryHeader},
    records::records,
    view::RecordView,
};

use super::{Stop, decoders::Decoder, offset_of};
use crate::clients::file_exception;

/// Largest batch after decompression.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// The newest format of batches.
const NEWEST_MAGIC: i8 = 2;

/// Where an entry says its format.
const MAGIC_AT: usize = 16;

/// How logs are shown.
pub(super) struct LogOptions {
    pub(super) prints_data: bool,
    pub(super) is_deep: bool,
    pub(super) skips_metadata: bool,
    /// None is all of the file. A negative number is the user's, and refused.
    pub(super) max_bytes: Option<i32>,
    pub(super) decoder: Decoder,
}

/// Reads entries of a log file one by one; holds one at a time.
pub(super) struct EntryReader {
    file: File,
    path: String,
    position: u64,
    end: u64,
}

/// An entry and where it stands.
pub(super) struct Entry {
    pub(super) position: u64,
    pub(super) header: EntryHeader,
    pub(super) bytes: Vec<u8>,
}

impl EntryReader {
    /// Reads from `position` on, at most up to `end`.
    pub(super) fn open(path: &Path, position: u64, end: Option<u64>) -> Result<EntryReader, Stop> {
        let shown = path.display().to_string();
        let fault = |error| Stop::Fault(file_exception(&shown, &error));
        let file = File::open(path).map_err(fault)?;
        let length = file.metadata().map_err(fault)?.len();
        let end = end.map_or(length, |end| length.min(end));
        Ok(EntryReader { file, path: shown, position, end })
    }

    /// The header at the current position, without going on. None where no whole entry follows.
    pub(super) fn peek(&self) -> Result<Option<EntryHeader>, Stop> {
        let left = usize::try_from(self.end.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let mut prefix = [0; ENTRY_PREFIX_LENGTH];
        let prefix = &mut prefix[..left.min(ENTRY_PREFIX_LENGTH)];
        self.read_at(prefix)?;
        let parsed = match EntryHeader::parse(prefix) {
            Err(BatchError::Magic(magic)) => parse_as_newest(prefix, magic),
            parsed => parsed,
        };
        match parsed {
            Ok(header) => Ok((header.size <= left).then_some(header)),
            Err(BatchError::Incomplete { .. }) => Ok(None),
            Err(error) => Err(Stop::Fault(format!(
                "org.apache.kafka.common.errors.CorruptRecordException: {error} in file {}",
                self.path
            ))),
        }
    }

    /// The next entry. None at the end, or where the rest is no whole entry.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Stop> {
        let Some(header) = self.peek()? else { return Ok(None) };
        let mut bytes = vec![0; header.size];
        self.read_at(&mut bytes)?;
        if header.magic > NEWEST_MAGIC {
            bytes[MAGIC_AT] = NEWEST_MAGIC.unsigned_abs();
        }
        let position = self.position;
        self.position += u64::try_from(header.size).unwrap_or(u64::MAX);
        Ok(Some(Entry { position, header, bytes }))
    }

    fn read_at(&self, bytes: &mut [u8]) -> Result<(), Stop> {
        let read = self.file.read_exact_at(bytes, self.position);
        read.map_err(|error| Stop::Fault(file_exception(&self.path, &error)))
    }
}

/// A header of a format that does not exist: it is read as the newest one is, as `FileLogInputStream` does.
fn parse_as_newest(prefix: &mut [u8], magic: i8) -> Result<EntryHeader, BatchError> {
    if magic < NEWEST_MAGIC {
        return Err(BatchError::Magic(magic));
    }
    prefix[MAGIC_AT] = NEWEST_MAGIC.unsigned_abs();
    EntryHeader::parse(prefix).map(|header| EntryHeader { magic, ..header })
}

/// Shows a log; gives pairs of offsets that do not follow each other.
pub(super) fn dump(
    path: &Path,
    options: &LogOptions,
    out: &mut impl Write,
) -> Result<Vec<(Offset, Offset)>, Stop> {
    writeln!(out, "Log starting offset: {}", offset_of(path)?)?;
    let bytes = options.max_bytes.map(|size| {
        let refused = || format!("java.lang.IllegalArgumentException: Invalid size: {size}");
        u64::try_from(size).map_err(|_| Stop::Fault(refused()))
    });
    let mut reader = EntryReader::open(path, 0, bytes.transpose()?)?;
    let mut gaps = Vec::new();
    let mut last: Option<Offset> = None;
    while let Some(entry) = reader.next()? {
        write_entry(&entry, out)?;
        if !options.is_deep {
            continue;
        }
        let content = records(&entry.bytes, BATCH_BYTES_MAX).map_err(|error| unreadable(&error))?;
        let mut checks = legacy_checks(&entry)?.into_iter();
        for record in content.iter() {
            let record = record.map_err(|error| unreadable(&error))?;
            if let Some(last) = last.filter(|last| record.offset != last.plus(1)) {
                gaps.push((last, record.offset));
            }
            last = Some(record.offset);
            write_record(&entry, &record, checks.next(), options, out)?;
        }
    }
    let trailing = reader.end.saturating_sub(reader.position);
    if trailing > 0 && options.max_bytes.is_none() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        writeln!(out, "Found {trailing} invalid bytes at the end of {name}")?;
    }
    Ok(gaps)
}

fn unreadable(error: &dyn std::fmt::Display) -> Stop {
    Stop::Fault(format!("org.apache.kafka.common.InvalidRecordException: {error}"))
}

fn time_name(timestamp_type: Option<TimestampType>) -> &'static str {
    timestamp_type.map_or("NoTimestampType", TimestampType::name)
}

fn write_entry(entry: &Entry, out: &mut impl Write) -> Result<(), Stop> {
    let header = &entry.header;
    if header.magic < 2 {
        write!(out, "offset: {}", header.last_offset)?;
    } else {
        let horizon = match header.delete_horizon {
            None => "OptionalLong.empty".to_owned(),
            Some(time) => format!("OptionalLong[{time}]"),
        };
        write!(
            out,
            "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {horizon}",
            header.base_offset.unwrap_or(Offset::NONE),
            header.last_offset,
            header.record_count.unwrap_or_default(),
            header.base_sequence,
            header.last_sequence,
            header.producer_id,
            header.producer_epoch,
            header.leader_epoch,
            header.is_transactional,
            header.is_control,
        )?;
    }
    let codec = header.codec.map_or("unknown", Codec::name);
    let as_read = EntryHeader { magic: header.magic.min(NEWEST_MAGIC), ..*header };
    writeln!(
        out,
        " position: {} {}: {} size: {} magic: {} compresscodec: {codec} crc: {} isvalid: {}",
        entry.position,
        time_name(header.timestamp_type),
        header.max_timestamp,
        header.size,
        header.magic,
        header.crc,
        as_read.crc_matches(&entry.bytes),
    )?;
    Ok(())
}

fn write_record(
    entry: &Entry,
    record: &RecordView<'_>,
    check: Option<(bool, u32)>,
    options: &LogOptions,
    out: &mut impl Write,
) -> Result<(), Stop> {
    let header = &entry.header;
    let mut prefix = "| ";
    if !options.skips_metadata {
        let size = |bytes: Option<&[u8]>| {
            bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX))
        };
        let timestamp =
            if header.timestamp_type.is_none() { Timestamp::NONE } else { record.timestamp };
        write!(
            out,
            "| offset: {} {}: {timestamp} keySize: {} valueSize: {}",
            record.offset,
            time_name(header.timestamp_type),
            size(record.key),
            size(record.value)
        )?;
        prefix = " ";
        if header.magic >= 2 {
            write!(out, " sequence: {} headerKeys: [", sequence(header, record))?;
            for (index, name) in record.headers.iter().map(|header| header.name).enumerate() {
                let comma = if index > 0 { "," } else { "" };
                write!(out, "{comma}{}", String::from_utf8_lossy(name))?;
            }
            write!(out, "]")?;
        }
        if let Some((is_valid, crc)) = check {
            // The brace is Kafka's.
            write!(out, " isValid: {is_valid} crc: {crc}}}")?;
        }
        if header.is_control {
            write_control(record, out)?;
        }
    }
    if options.prints_data && !header.is_control {
        let (key, payload) = options.decoder.decode(record);
        if let Some(key) = key {
            write!(out, "{prefix}key: {key}")?;
        }
        if let Some(payload) = payload {
            write!(out, " payload: {payload}")?;
        }
    }
    writeln!(out)?;
    Ok(())
}

fn sequence(header: &EntryHeader, record: &RecordView<'_>) -> i32 {
    if header.base_sequence < 0 {
        return -1;
    }
    let base = header.base_offset.unwrap_or(record.offset);
    let delta = i32::try_from(record.offset.0 - base.0).unwrap_or(0);
    increment_sequence(header.base_sequence, delta)
}

fn write_control(record: &RecordView<'_>, out: &mut impl Write) -> Result<(), Stop> {
    let control = parse_type(record.key).map_err(|error| unreadable(&error))?;
    match control {
        ControlType::Abort | ControlType::Commit => {
            let marker = parse_marker(record).map_err(|error| unreadable(&error))?;
            if let Some(marker) = marker {
                let result = match marker.result {
                    TransactionResult::Abort => "ABORT",
                    TransactionResult::Commit => "COMMIT",
                };
                write!(
                    out,
                    " endTxnMarker: {result} coordinatorEpoch: {}",
                    marker.coordinator_epoch
                )?;
            }
        }
        // Of KRaft, or of a later version.
        ControlType::Other(id) => write!(out, " controlType: UNKNOWN({id})")?,
    }
    Ok(())
}

/// For each message of magic 0 and 1 whether its checksum holds, and the checksum; none for magic 2.
fn legacy_checks(entry: &Entry) -> Result<Vec<(bool, u32)>, Stop> {
    let header = &entry.header;
    let codec = match header.codec {
        _ if header.magic >= 2 => return Ok(Vec::new()),
        None | Some(Codec::None) => {
            return Ok(vec![(header.crc_matches(&entry.bytes), header.crc)]);
        }
        Some(codec) => codec,
    };
    let Some(value) = legacy_value(&entry.bytes, header.magic) else { return Ok(Vec::new()) };
    let messages = decompress(codec, header.magic, value, BATCH_BYTES_MAX)
        .map_err(|error| unreadable(&error))?;
    let mut checks = Vec::new();
    for message in Batches::new(&messages) {
        let message = message.map_err(|error| unreadable(&error))?;
        checks.push((message.header.crc_matches(message.bytes), message.header.crc));
    }
    Ok(checks)
}

/// The value of a message: it follows offset, size, CRC, magic, attributes, a timestamp in magic 1, and the key.
fn legacy_value(bytes: &[u8], magic: i8) -> Option<&[u8]> {
    let key_at = if magic == 0 { 18 } else { 26 };
    let length_at = |at: usize| Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let key = usize::try_from(length_at(key_at)?).unwrap_or(0);
    let value_at = key_at + 4 + key;
    let value = usize::try_from(length_at(value_at)?).ok()?;
    bytes.get(value_at + 4..value_at + 4 + value)
}
