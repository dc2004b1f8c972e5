//! Checks messages of magic 0 and 1, and makes one batch of magic 2 of them.

use crate::batch::{Batch, Batches, TimestampType};
use crate::build::{BatchBuilder, BuildError};
use crate::checker::Checker;
use crate::compression::{self, Codec, Compression};
use crate::legacy::{Message, compute_crc};
use crate::records::{InnerMessages, RecordsError, Wrapper};
use crate::validate::{
    Checked, Corruption, InvalidBatch, Rules, Unreadable, ValidationError, unreadable,
};
use crate::view::RecordView;
use crate::walk::{bounded, within};

/// Checks all messages; their sizes and checksums are known to be right.
pub(crate) fn check(
    records: &[u8],
    first_magic: i8,
    target: Compression,
    rules: &Rules,
    memory: usize,
) -> Result<Checked, ValidationError> {
    let mut builder = BatchBuilder::new(target);
    if rules.timestamp_type == TimestampType::LogAppendTime {
        builder = builder.log_append_time(rules.now);
    }
    for entry in Batches::new(records).map_while(Result::ok) {
        let magic = entry.header.magic;
        if magic != first_magic {
            let magics = InvalidBatch::Magics { magic, first: first_magic };
            return Err(ValidationError::Invalid(magics));
        }
        check_entry(&entry, &mut builder, rules, memory)?;
    }
    let (header, compressed) = builder.finish_parts();
    let log_append_time =
        (rules.timestamp_type == TimestampType::LogAppendTime).then_some(rules.now);
    bounded(Checked::new(header, compressed.into(), log_append_time, true), rules)
}

/// Checks one message, or all in a compressed one. Kafka counts records from each entry on, and stops at the first
/// entry that has bad ones.
fn check_entry(
    entry: &Batch,
    builder: &mut BatchBuilder,
    rules: &Rules,
    memory: usize,
) -> Result<(), ValidationError> {
    let message = Message::parse(entry.bytes).map_err(unreadable)?;
    let mut checker = Checker::new(rules, entry.header.timestamp_type);
    let magic = entry.header.magic;
    match entry.header.codec {
        Some(Codec::None) => {
            check_message(&message, &message.view(), entry, &mut checker, builder)?;
            within(memory, builder)?;
        }
        Some(codec @ (Codec::Gzip | Codec::Snappy | Codec::Lz4)) => {
            let value = message.value.ok_or(unreadable(RecordsError::NullWrapper(magic)))?;
            let messages = compression::decompress(codec, magic, value, memory)
                .map_err(|error| unreadable(RecordsError::Decompress(error)))?;
            check_inner(entry, &messages, &mut checker, builder, memory)?;
        }
        _ => return Err(unreadable(RecordsError::LegacyZstd(magic))),
    }
    checker.finish().map_err(ValidationError::Records).map(|_| ())
}

fn check_inner(
    entry: &Batch,
    messages: &[u8],
    checker: &mut Checker,
    builder: &mut BatchBuilder,
    memory: usize,
) -> Result<(), ValidationError> {
    let wrapper = Wrapper::new(&entry.header, messages).map_err(unreadable)?;
    for inner in InnerMessages::new(messages) {
        let inner = inner.map_err(unreadable)?;
        if inner.header.codec != Some(Codec::None) {
            return Err(unreadable(RecordsError::NestedCompression));
        }
        let view = wrapper.view(&inner);
        if inner.header.magic != entry.header.magic {
            checker.foreign_magic(describe(&inner, &view, entry), entry.header.magic);
            continue;
        }
        let (stored, computed) = (inner.header.crc, compute_crc(inner.bytes));
        if stored != computed {
            let corruption = Corruption::InnerChecksum { stored, computed };
            return Err(ValidationError::Corrupt(corruption));
        }
        check_message(&inner, &view, entry, checker, builder)?;
        within(memory, builder)?;
    }
    Ok(())
}

fn check_message(
    message: &Message,
    view: &RecordView,
    entry: &Batch,
    checker: &mut Checker,
    builder: &mut BatchBuilder,
) -> Result<(), ValidationError> {
    let has_key = view.key.is_some();
    checker.record(view.offset, view.timestamp, has_key, || describe(message, view, entry));
    if !checker.is_content() {
        return Ok(());
    }
    builder.append(view.timestamp, view.key, view.value, &[]).map_err(|error| match error {
        BuildError::NegativeTimestamp(timestamp) => {
            ValidationError::Unreadable(Unreadable::NegativeTimestamp(timestamp))
        }
        _ => unreadable(RecordsError::STRUCTURE),
    })
}

/// Prints a message as `AbstractLegacyRecordBatch.toString` does; `entry` is what it came in, perhaps itself.
fn describe(message: &Message, view: &RecordView, entry: &Batch) -> String {
    let header = &message.header;
    let time_type = entry.header.timestamp_type.map_or("NoTimestampType", TimestampType::name);
    let time = match header.magic {
        0 => String::new(),
        _ => format!(", {time_type}={}", view.timestamp),
    };
    format!(
        "LegacyRecordBatch(offset={}, Record(magic={}, attributes={}, compression={}, \
         crc={}{time}, key={} bytes, value={} bytes))",
        view.offset,
        header.magic,
        i8::from_be_bytes([message.attributes]),
        header.codec.map_or("none", Codec::name),
        header.crc,
        message.key.map_or(0, <[u8]>::len),
        message.value.map_or(0, <[u8]>::len),
    )
}
