//! The checks of a magic 2 batch's records: in place, through a window, or on the way to being written anew.

use std::borrow::Cow;

use bytes::Bytes;
use common::ids::{LeaderEpoch, Offset, Timestamp};

use crate::batch::{Attributes, BATCH_HEADER_LENGTH, BatchHeader, TimestampType};
use crate::build::{BatchBuilder, seal};
use crate::checker::{Checker, Found, describe_record, describe_skimmed};
use crate::compression::{self, Codec, Compression, DecompressError};
use crate::records::RecordsError;
use crate::skim::Skimmer;
use crate::validate::{Checked, Rules, Unreadable, ValidationError, unreadable};
use crate::varint::Cursor;
use crate::view::{RecordBase, read_record};
use crate::window::Stream;

/// Checks the records of a batch whose header is checked; `batch` is all of it.
pub(crate) fn check(
    batch: &Bytes,
    mut header: BatchHeader,
    source: Codec,
    target: Compression,
    rules: &Rules,
    memory: usize,
) -> Result<Checked, ValidationError> {
    // Where the batch goes is decided later; what coordinators put here means nothing.
    header.base_offset = Offset::ZERO;
    // Control records are compressed only by who writes them.
    let keep_codec =
        source == target.codec() || (source == Codec::None && header.attributes.is_control());
    let plain = &batch[BATCH_HEADER_LENGTH..];
    let found = match (source, keep_codec) {
        (Codec::None, true) => walk(plain, &header, rules)?,
        (Codec::None, false) => {
            let found = walk(plain, &header, rules)?;
            return rewrite(plain, &header, &found, target, rules, memory);
        }
        (_, true) => skim(batch, &header, source, rules, memory)?,
        (_, false) => {
            let records = decompress(plain, source, memory)?;
            let found = walk(&records, &header, rules)?;
            return rewrite(&records, &header, &found, target, rules, memory);
        }
    };
    match (source, found.in_order) {
        (_, true) => Ok(in_place(batch, header, &found, rules)),
        // Kafka stores these as they are, and consumers see offsets that are not theirs.
        (Codec::None, false) => rewrite(plain, &header, &found, Compression::None, rules, memory),
        (_, false) => Err(ValidationError::Unreadable(Unreadable::Offsets)),
    }
}

fn decompress(records: &[u8], codec: Codec, memory: usize) -> Result<Vec<u8>, ValidationError> {
    Stream::new(codec, 2, records, memory, memory)
        .and_then(Stream::into_rest)
        .map_err(|error| unreadable(RecordsError::Decompress(error)))
}

/// Walks plain records where they are.
fn walk(records: &[u8], header: &BatchHeader, rules: &Rules) -> Result<Found, ValidationError> {
    let mut checker = Checker::new(rules, Some(header.attributes.timestamp_type()));
    let base = RecordBase::of(header);
    let mut cursor = Cursor::new(records);
    for _ in 0..header.record_count {
        let record = read_record(&mut cursor, &base).map_err(unreadable)?;
        let has_key = record.key.is_some();
        checker.record(record.offset, record.timestamp, has_key, || describe_record(&record));
    }
    if cursor.remaining() > 0 {
        return Err(unreadable(RecordsError::BytesRemain));
    }
    checker.finish().map_err(ValidationError::Records)
}

/// Walks compressed records, and keeps nothing.
fn skim(
    batch: &[u8],
    header: &BatchHeader,
    codec: Codec,
    rules: &Rules,
    memory: usize,
) -> Result<Found, ValidationError> {
    let mut checker = Checker::new(rules, Some(header.attributes.timestamp_type()));
    let mut skimmer = Skimmer::new(batch, header, codec, memory).map_err(unreadable)?;
    for _ in 0..header.record_count {
        let record = skimmer.next().map_err(unreadable)?;
        let has_key = record.key_length >= 0;
        checker.record(record.offset, record.timestamp, has_key, || describe_skimmed(&record));
    }
    if !skimmer.is_at_end().map_err(unreadable)? {
        return Err(unreadable(RecordsError::BytesRemain));
    }
    checker.finish().map_err(ValidationError::Records)
}

/// Keeps the records as they are, and sets the header's timestamps.
fn in_place(batch: &Bytes, mut header: BatchHeader, found: &Found, rules: &Rules) -> Checked {
    let (max_timestamp, log_append_time) = stored_time(found, rules);
    let records = batch.slice(BATCH_HEADER_LENGTH..);
    if header.attributes.timestamp_type() != rules.timestamp_type
        || header.max_timestamp != max_timestamp
    {
        header.attributes = header.attributes.with_timestamp_type(rules.timestamp_type);
        header.max_timestamp = max_timestamp;
        // The checksum covers both. Reading the records again, now in the cache, is quicker than combining checksums
        // for batches of usual sizes.
        seal(&mut header, &records);
    }
    Checked::new(header, records, log_append_time, false)
}

/// The batch's largest timestamp as it is stored, and the time of the append where that is it.
fn stored_time(found: &Found, rules: &Rules) -> (Timestamp, Option<Timestamp>) {
    match rules.timestamp_type {
        TimestampType::CreateTime => (found.max_timestamp, None),
        TimestampType::LogAppendTime => (rules.now, Some(rules.now)),
    }
}

/// Writes a batch anew, from its plain records, with offsets 0, 1, 2 and so on and the topic's codec.
fn rewrite(
    records: &[u8],
    header: &BatchHeader,
    found: &Found,
    target: Compression,
    rules: &Rules,
    memory: usize,
) -> Result<Checked, ValidationError> {
    if found.min_timestamp < Timestamp::NONE {
        let negative = Unreadable::NegativeTimestamp(found.min_timestamp);
        return Err(ValidationError::Unreadable(negative));
    }
    let records = match keeps_encoding(header, found) {
        true => Cow::Borrowed(records),
        false => Cow::Owned(renumber(records, header, memory)?),
    };
    let mut compressed = Vec::new();
    compression::compress(target, 2, &records, &mut compressed);
    let (max_timestamp, log_append_time) = stored_time(found, rules);
    let mut header = BatchHeader {
        base_offset: Offset::ZERO,
        leader_epoch: LeaderEpoch::NONE,
        attributes: Attributes::NONE
            .with_codec(target.codec())
            .with_transactional(header.attributes.is_transactional())
            .with_control(header.attributes.is_control())
            .with_timestamp_type(rules.timestamp_type),
        last_offset_delta: found.record_count - 1,
        base_timestamp: found.first_timestamp,
        max_timestamp,
        record_count: found.record_count,
        ..*header
    };
    seal(&mut header, &compressed);
    bounded(Checked::new(header, compressed.into(), log_append_time, true), rules)
}

/// Whether the records' bytes say the same in the new batch as they do in the old one.
fn keeps_encoding(header: &BatchHeader, found: &Found) -> bool {
    found.in_order
        && found.first_timestamp == header.base_timestamp
        && header.attributes.timestamp_type() == TimestampType::CreateTime
}

fn renumber(
    records: &[u8],
    header: &BatchHeader,
    memory: usize,
) -> Result<Vec<u8>, ValidationError> {
    let base = RecordBase::of(header);
    let mut cursor = Cursor::new(records);
    let mut builder = BatchBuilder::new(Compression::None);
    for delta in 0..header.record_count {
        let record = read_record(&mut cursor, &base).map_err(unreadable)?;
        builder
            .append_at(
                i64::from(delta),
                record.timestamp,
                record.key,
                record.value,
                record.headers.iter(),
            )
            .map_err(|_| unreadable(RecordsError::STRUCTURE))?;
        within(memory, &builder)?;
    }
    Ok(builder.finish_parts().1)
}

/// Refuses records that take more than `memory` before they are compressed.
pub(crate) fn within(memory: usize, builder: &BatchBuilder) -> Result<(), ValidationError> {
    if builder.size() > memory {
        let error = DecompressError::TooLarge { cap: memory };
        return Err(unreadable(RecordsError::Decompress(error)));
    }
    Ok(())
}

/// Refuses a rewritten batch that has become too large.
pub(crate) fn bounded(checked: Checked, rules: &Rules) -> Result<Checked, ValidationError> {
    let (size, maximum) = (checked.size(), rules.message_bytes_max);
    if size > maximum {
        return Err(ValidationError::TooLarge { size, maximum });
    }
    Ok(checked)
}
