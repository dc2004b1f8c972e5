//! `.index` and `.timeindex` files, compared with their log.

use std::{io::Write, path::Path};

use common::ids::{Offset, Timestamp};
use record::records::records;

use super::{
    Stop, absolute, contents, offset_of,
    segment::{Entry, EntryReader},
};

const INDEX_ENTRY: usize = 8;
const TIME_INDEX_ENTRY: usize = 12;
/// Largest batch after decompression.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// How indexes are shown.
#[derive(Clone, Copy)]
pub(super) struct IndexOptions {
    pub(super) checks_sanity_only: bool,
    pub(super) verifies_only: bool,
    pub(super) message_bytes_max: usize,
}

/// Offsets of an index, and of the batch that stands there.
type Mismatches = Vec<(Offset, Offset)>;

/// Reads big-endian numbers of an entry.
fn int(entry: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(entry[at..at + 4].try_into().expect("entries have fixed lengths"))
}

fn long(entry: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(entry[at..at + 8].try_into().expect("entries have fixed lengths"))
}

/// Offset and position of each entry.
fn offset_entries(bytes: &[u8], base: Offset) -> Vec<(Offset, u64)> {
    let entries = bytes.chunks_exact(INDEX_ENTRY).map(|entry| {
        let position = u64::try_from(int(entry, 4)).unwrap_or(u64::MAX);
        (Offset(base.0 + i64::from(int(entry, 0))), position)
    });
    entries.collect()
}

/// The check that a broker makes at its start. Source: `OffsetIndex.sanityCheck`, `TimeIndex.sanityCheck`.
fn check_sanity(
    path: &Path,
    length: usize,
    entry_length: usize,
    last: Option<Offset>,
    base: Offset,
) -> Result<(), Stop> {
    let fault = |text: String| {
        Stop::Fault(format!("org.apache.kafka.storage.internals.log.CorruptIndexException: {text}"))
    };
    if let Some(last) = last.filter(|last| *last < base) {
        return Err(fault(format!(
            "Corrupt index found, index file ({}) has non-zero size but the last offset is {last} which is less than the base offset {base}.",
            absolute(path)
        )));
    }
    if !length.is_multiple_of(entry_length) {
        return Err(fault(format!(
            "Index file {} is corrupt, found {length} bytes which is neither positive nor a multiple of {entry_length}.",
            absolute(path)
        )));
    }
    Ok(())
}

/// Shows an offset index.
pub(super) fn dump_index(
    name: &str,
    path: &Path,
    options: IndexOptions,
    out: &mut impl Write,
) -> Result<Mismatches, Stop> {
    let base = offset_of(path)?;
    let bytes = contents(path)?;
    let entries = offset_entries(&bytes, base);
    let log = path.with_extension("log");
    let mut mismatches = Vec::new();
    if entries.is_empty() {
        writeln!(out, "{name} is empty.")?;
        return Ok(mismatches);
    }
    if options.checks_sanity_only {
        check_sanity(path, bytes.len(), INDEX_ENTRY, entries.last().map(|last| last.0), base)?;
        writeln!(out, "{name} passed sanity check.")?;
        return Ok(mismatches);
    }
    for (index, (offset, position)) in entries.iter().enumerate() {
        // A crash leaves the file at its full length, with zeros at the end.
        if *offset == base && index > 0 {
            break;
        }
        let end = position.saturating_add(options.message_bytes_max as u64);
        match EntryReader::open(&log, *position, Some(end))?.peek()? {
            Some(header) if header.last_offset == *offset => {}
            Some(header) => mismatches.push((*offset, header.last_offset)),
            // The preallocated index of an empty log has an entry that means nothing.
            None if *offset == base && *position == 0 => break,
            None => mismatches.push((*offset, Offset::NONE)),
        }
        if !options.verifies_only {
            writeln!(out, "offset: {offset} position: {position}")?;
        }
    }
    Ok(mismatches)
}

/// What is wrong with time indexes; a block a file.
#[derive(Default)]
pub(super) struct TimeIndexFaults {
    mismatches: Vec<String>,
    disordered: Vec<String>,
    not_found: Vec<String>,
}

impl TimeIndexFaults {
    /// The lines, in Kafka's order.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let all = self.mismatches.iter().chain(&self.disordered).chain(&self.not_found);
        all.cloned()
    }

    /// Adds the faults of one file, each sort under its head.
    fn add(&mut self, path: &Path, found: &Faults) {
        let block = |head: String, lines: &[String]| {
            let head = (!lines.is_empty()).then_some(head);
            head.into_iter().chain(lines.iter().cloned()).collect::<Vec<String>>()
        };
        let path = absolute(path);
        self.mismatches
            .extend(block(format!("Found timestamp mismatch in :{path}"), &found.mismatches));
        self.disordered
            .extend(block(format!("Found out of order timestamp in :{path}"), &found.disordered));
        let head = "The following indexed offsets are not found in the log.".to_owned();
        self.not_found.extend(block(head, &found.not_found));
    }
}

/// Faults of one file.
#[derive(Default)]
struct Faults {
    mismatches: Vec<String>,
    disordered: Vec<String>,
    not_found: Vec<String>,
}

/// Shows a time index.
pub(super) fn dump_time_index(
    name: &str,
    path: &Path,
    options: IndexOptions,
    faults: &mut TimeIndexFaults,
    out: &mut impl Write,
) -> Result<(), Stop> {
    let base = offset_of(path)?;
    let bytes = contents(path)?;
    let entries: Vec<(Timestamp, Offset)> = bytes
        .chunks_exact(TIME_INDEX_ENTRY)
        .map(|entry| (Timestamp(long(entry, 0)), Offset(base.0 + i64::from(int(entry, 8)))))
        .collect();
    if options.checks_sanity_only {
        let last = entries.last().map(|last| last.1);
        check_sanity(path, bytes.len(), TIME_INDEX_ENTRY, last, base)?;
        writeln!(out, "{name} passed sanity check.")?;
        return Ok(());
    }
    // A missing offset index is as good as an empty one: the search begins at the front.
    let offsets = contents(&path.with_extension("index"))
        .map_or(Vec::new(), |bytes| offset_entries(&bytes, base));
    let log = path.with_extension("log");
    let mut found = Faults::default();
    let mut previous = Timestamp::NONE;
    for (index, (timestamp, offset)) in entries.iter().enumerate() {
        if *offset == base && index > 0 {
            break;
        }
        let position = position_before(&offsets, base, *offset);
        check_entry(&log, position, (*timestamp, *offset), previous, &mut found)?;
        if !options.verifies_only {
            writeln!(out, "timestamp: {timestamp} offset: {offset}")?;
        }
        previous = *timestamp;
    }
    faults.add(path, &found);
    Ok(())
}

/// Where the offset index says that a search may begin. Source: `OffsetIndex.lookup`.
fn position_before(offsets: &[(Offset, u64)], base: Offset, target: Offset) -> u64 {
    // Zeros at the end are no entries.
    let count = offsets
        .iter()
        .skip(1)
        .position(|(offset, _)| *offset == base)
        .map_or(offsets.len(), |index| index + 1);
    let before = offsets[..count].partition_point(|(offset, _)| *offset <= target);
    before.checked_sub(1).map_or(0, |index| offsets[index].1)
}

fn check_entry(
    log: &Path,
    position: u64,
    (timestamp, offset): (Timestamp, Offset),
    previous: Timestamp,
    faults: &mut Faults,
) -> Result<(), Stop> {
    let mut reader = EntryReader::open(log, position, None)?;
    let found = loop {
        match reader.next()? {
            Some(entry) if entry.header.last_offset >= offset => break Some(entry),
            Some(_) => {}
            None => break None,
        }
    };
    let last = found.as_ref().map_or(Offset::NONE, |entry| entry.header.last_offset);
    let Some(entry) = found.filter(|_| last == offset) else {
        faults.not_found.push(format!("Indexed offset: {offset}, found log offset: {last}"));
        return Ok(());
    };
    let largest = largest_timestamp(&entry)?;
    if largest != timestamp {
        faults.mismatches.push(format!("  Index timestamp: {timestamp}, log timestamp: {largest}"));
    }
    if previous >= timestamp {
        faults.disordered.push(format!(
            "  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"
        ));
    }
    Ok(())
}

fn largest_timestamp(entry: &Entry) -> Result<Timestamp, Stop> {
    let fault = |error: &dyn std::fmt::Display| {
        Stop::Fault(format!("org.apache.kafka.common.InvalidRecordException: {error}"))
    };
    let content = records(&entry.bytes, BATCH_BYTES_MAX).map_err(|error| fault(&error))?;
    let mut largest = Timestamp::NONE;
    for record in content.iter() {
        largest = largest.max(record.map_err(|error| fault(&error))?.timestamp);
    }
    Ok(largest)
}
