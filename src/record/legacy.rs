//! Messages of magic 0 and 1: the formats before record batches. Source: `LegacyRecord`.

use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
use flate2::Crc;

use crate::batch::{BatchError, LOG_OVERHEAD, NO_SEQUENCE, TimestampType, fixed};
use crate::compression::{Codec, Compression, compress};
use crate::entry::EntryHeader;
use crate::growth;
use crate::records::RecordsError;
use crate::view::{Headers, RecordView};

const CODEC: u8 = 0x07;
const LOG_APPEND_TIME: u8 = 0x08;
const CRC_COVERS_FROM: usize = LOG_OVERHEAD + 4;

/// Bytes of an entry whose key and value are null.
pub(crate) fn entry_size_min(magic: i8) -> usize {
    if magic == 0 { LOG_OVERHEAD + 14 } else { LOG_OVERHEAD + 22 }
}

/// Reads the header of an entry whose magic is known to be 0 or 1.
pub(crate) fn entry_header(bytes: &[u8]) -> Result<EntryHeader, BatchError> {
    let (length, magic) = (i32::from_be_bytes(fixed(bytes, 8)), bytes[16] as i8);
    let size = LOG_OVERHEAD + usize::try_from(length).unwrap_or(0);
    let minimum = entry_size_min(magic);
    if size < minimum {
        return Err(BatchError::SizeBelowHeader { size, minimum, magic });
    }
    let needed = if magic == 0 { 18 } else { 26 };
    if bytes.len() < needed {
        return Err(BatchError::Incomplete { needed, available: bytes.len() });
    }
    let attributes = bytes[17];
    let offset = Offset(i64::from_be_bytes(fixed(bytes, 0)));
    let codec = Codec::from_id(attributes & CODEC);
    let timestamp =
        if magic == 0 { Timestamp::NONE } else { Timestamp(i64::from_be_bytes(fixed(bytes, 18))) };
    Ok(EntryHeader {
        size,
        magic,
        base_offset: (codec == Some(Codec::None)).then_some(offset),
        last_offset: offset,
        max_timestamp: timestamp,
        timestamp_type: timestamp_type(magic, attributes),
        codec,
        leader_epoch: LeaderEpoch::NONE,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
        base_sequence: NO_SEQUENCE,
        last_sequence: NO_SEQUENCE,
        record_count: None,
        is_transactional: false,
        is_control: false,
        delete_horizon: None,
        crc: u32::from_be_bytes(fixed(bytes, LOG_OVERHEAD)),
    })
}

/// CRC-32 of a whole entry's covered part.
pub(crate) fn compute_crc(entry: &[u8]) -> u32 {
    crc32(entry.get(CRC_COVERS_FROM..).unwrap_or_default())
}

/// CRC-32 as of zip files.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn timestamp_type(magic: i8, attributes: u8) -> Option<TimestampType> {
    match (magic, attributes & LOG_APPEND_TIME) {
        (0, _) => None,
        (_, 0) => Some(TimestampType::CreateTime),
        _ => Some(TimestampType::LogAppendTime),
    }
}

/// One message, its key and value in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) header: EntryHeader,
    pub(crate) attributes: u8,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    /// All of it.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a message from all of its entry's bytes.
    pub(crate) fn parse(entry: &'a [u8]) -> Result<Message<'a>, RecordsError> {
        let header = EntryHeader::parse(entry).map_err(RecordsError::Batch)?;
        if header.magic > 1 || header.size != entry.len() {
            return Err(RecordsError::STRUCTURE);
        }
        let key_at = if header.magic == 0 { 18 } else { 26 };
        let (key, rest) = nullable(&entry[key_at..])?;
        // What follows the value is ignored, as in Kafka.
        let (value, _) = nullable(rest)?;
        Ok(Message { header, attributes: entry[17], key, value, bytes: entry })
    }

    /// The message as a record, with the offset and timestamp that stand in it.
    pub(crate) fn view(&self) -> RecordView<'a> {
        RecordView {
            offset: self.header.last_offset,
            timestamp: self.header.max_timestamp,
            key: self.key,
            value: self.value,
            headers: Headers::default(),
        }
    }
}

/// Bytes with an int32 length before them, and the rest; any negative length is null.
fn nullable(bytes: &[u8]) -> Result<(Option<&[u8]>, &[u8]), RecordsError> {
    let (length, rest) = bytes.split_first_chunk().ok_or(RecordsError::STRUCTURE)?;
    let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else { return Ok((None, rest)) };
    let (taken, rest) = rest.split_at_checked(length).ok_or(RecordsError::STRUCTURE)?;
    Ok((Some(taken), rest))
}

/// What a message is written from.
pub(crate) struct MessageFields<'a> {
    pub(crate) offset: Offset,
    pub(crate) magic: i8,
    pub(crate) codec: Codec,
    pub(crate) timestamp_type: TimestampType,
    pub(crate) timestamp: Timestamp,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

/// Appends an entry of magic 0 or 1.
pub(crate) fn write(fields: &MessageFields, out: &mut Vec<u8>) {
    let lengths = [fields.key, fields.value].map(|part| part.map_or(0, <[u8]>::len));
    let size = entry_size_min(fields.magic) + lengths[0] + lengths[1];
    growth::reserve(out, out.len() + size);
    let begin = begin_entry(fields, out);
    for part in [fields.key, fields.value] {
        let length =
            part.map_or(-1, |part| i32::try_from(part.len()).expect("records fit a batch"));
        out.extend(length.to_be_bytes());
        out.extend(part.unwrap_or_default());
    }
    finish_entry(begin, out);
}

/// Appends an entry of magic 0 or 1 that holds messages, compressed with the codec of `fields`; its key is null.
pub(crate) fn write_wrapper(fields: &MessageFields, messages: &[u8], out: &mut Vec<u8>) {
    let begin = begin_entry(fields, out);
    out.extend((-1_i32).to_be_bytes());
    let length_at = out.len();
    out.extend([0; 4]);
    compress(Compression::of(fields.codec), fields.magic, messages, out);
    let length = i32::try_from(out.len() - length_at - 4).expect("messages fit a message");
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    finish_entry(begin, out);
}

/// Appends what comes before the key; gives where it begins.
fn begin_entry(fields: &MessageFields, out: &mut Vec<u8>) -> usize {
    let begin = out.len();
    out.extend(fields.offset.0.to_be_bytes());
    out.extend([0; 8]);
    let append_time = fields.magic > 0 && fields.timestamp_type == TimestampType::LogAppendTime;
    let attributes = fields.codec.id() | if append_time { LOG_APPEND_TIME } else { 0 };
    out.extend([fields.magic as u8, attributes]);
    if fields.magic > 0 {
        out.extend(fields.timestamp.0.to_be_bytes());
    }
    begin
}

/// Sets the length and the checksum of the entry that begins there and ends with `out`.
fn finish_entry(begin: usize, out: &mut [u8]) {
    let length = i32::try_from(out.len() - begin - LOG_OVERHEAD).expect("records fit a batch");
    out[begin + 8..begin + 12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32(&out[begin + CRC_COVERS_FROM..]);
    out[begin + LOG_OVERHEAD..begin + CRC_COVERS_FROM].copy_from_slice(&crc.to_be_bytes());
}
