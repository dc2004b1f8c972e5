//! Appending: as the leader, which gives offsets, and as a follower, which takes them.

use std::{
    fs::File,
    io::{self, IoSlice},
    os::unix::fs::FileExt,
};

use common::ids::{LeaderEpoch, Offset, Timestamp};
use record::{
    batch::{BatchHeader, Batches},
    control::{TransactionResult, marker_of},
    validate::Checked,
};

use crate::{
    error::{AppendError, Context, Fault, LogError},
    index::{self, OffsetEntry, TAIL_LENGTH_MAX, TimeEntry},
    log::{Active, Log, State, Writer},
    producer_state::{Marker, OpenTransaction, Origin, ProducerBatch, ProducerError},
    recent::Place,
    scan::offsets_are_possible,
    segment::TimestampOffset,
    segment_files::{LOG, OFFSET_INDEX, TIME_INDEX},
    transaction_index::AbortedTransaction,
    verification::VerificationGuard,
};

/// Pieces of up to so many bytes are written as one: to copy them costs less than the kernel's look at a list.
const JOINED_MAX: usize = 1024;

/// Largest segment: positions in indexes are 31-bit numbers.
const SEGMENT_SIZE_MAX: u64 = i32::MAX as u64;

/// What a producer is told of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The batch's first offset.
    pub first_offset: Offset,
    /// The batch's last offset.
    pub last_offset: Offset,
    /// The time given to all records, of a topic with `LogAppendTime`; -1 otherwise. Of a duplicate, the largest
    /// timestamp of the batch it repeats.
    pub log_append_time: Timestamp,
    /// The log's start.
    pub log_start_offset: Offset,
    /// Whether the batch was in the log already, and nothing was appended.
    pub duplicate: bool,
}

/// What a follower has appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Batches that were appended.
    pub batch_count: usize,
    /// Their bytes. What follows the last whole batch is not appended.
    pub bytes: usize,
    /// Last offset of the last batch; -1 where there was none.
    pub last_offset: Offset,
    /// Largest timestamp of them all.
    pub max_timestamp: Timestamp,
}

/// One batch of an append: what the log wants to know of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) size: u64,
    magic: i8,
    /// Of formats that do not say it, the last offset.
    pub(crate) base_offset: Offset,
    knows_base: bool,
    pub(crate) last_offset: Offset,
    max_timestamp: Timestamp,
    leader_epoch: LeaderEpoch,
    pub(crate) producer: Option<ProducerBatch>,
}

/// What one append adds up to.
#[derive(Clone, Copy, Debug)]
struct Sum {
    size: u64,
    /// Offset that a new segment for it would begin with; at least the log's end.
    first_offset: Offset,
    last_offset: Offset,
    largest: TimestampOffset,
}

impl Log {
    /// Appends a checked batch of a producer: gives it the next offsets. Returns when it is written, not synced.
    ///
    /// # Errors
    /// The log is as before. `AppendError` says which code each has.
    pub fn append_as_leader(
        &self,
        batch: Checked,
        epoch: LeaderEpoch,
    ) -> Result<Appended, AppendError> {
        self.append_with_origin(batch, epoch, Origin::Client, None, None)
    }

    /// As `append_as_leader`, for a batch that a verification has begun for: see `start_verification`.
    pub fn append_verified(
        &self,
        batch: Checked,
        epoch: LeaderEpoch,
        guard: VerificationGuard,
    ) -> Result<Appended, AppendError> {
        self.append_with_origin(batch, epoch, Origin::Client, Some(guard), None)
    }

    /// As `append_as_leader`, for batches of coordinators: records of their own topics, and transaction markers.
    pub fn append_as_coordinator(
        &self,
        batch: Checked,
        epoch: LeaderEpoch,
    ) -> Result<Appended, AppendError> {
        self.append_with_origin(batch, epoch, Origin::Coordinator, None, None)
    }

    /// As `append_as_coordinator`, for the marker of a transaction, if that stands as it was seen: has not ended, and has
    /// no more records.
    pub fn append_if_open(
        &self,
        marker: Checked,
        epoch: LeaderEpoch,
        seen: &OpenTransaction,
    ) -> Result<Appended, AppendError> {
        self.append_with_origin(marker, epoch, Origin::Coordinator, None, Some(seen))
    }

    fn append_with_origin(
        &self,
        mut batch: Checked,
        epoch: LeaderEpoch,
        origin: Origin,
        guard: Option<VerificationGuard>,
        seen: Option<&OpenTransaction>,
    ) -> Result<Appended, AppendError> {
        let mut writer = self.writer.lock();
        self.check_writable(&writer)?;
        let (item, start) = {
            let state = self.state.lock();
            batch.assign(state.end, epoch);
            let item = item_of(&batch);
            if let Some(repeated) = repeats(&state, &item, origin) {
                return Ok(repeated);
            }
            check_producer(&state, &item, origin, guard)?;
            check_seen(&state, seen)?;
            check_size(&state, &batch)?;
            (item, state.start)
        };
        let [header, records] = batch.slices();
        let pieces = &mut [IoSlice::new(header), IoSlice::new(records)];
        self.write(&mut writer, &[item], pieces)?;
        Ok(Appended::new(&item, &batch, start))
    }

    /// Appends what a leader sent, offsets and all. A cut-off batch at the end is left out.
    ///
    /// # Errors
    /// With `OffsetsOutOfOrder`, `UnexpectedOffset` and `Corrupt` nothing is appended; a disk that fails may have
    /// taken the first of the batches.
    pub fn append_as_follower(&self, batches: &[u8]) -> Result<Followed, AppendError> {
        let items = follower_items(batches)?;
        let mut followed = Followed {
            batch_count: items.len(),
            bytes: items.iter().map(|item| item.size as usize).sum(),
            last_offset: items.last().map_or(Offset::NONE, |item| item.last_offset),
            max_timestamp: Timestamp::NONE,
        };
        let Some(first) = items.first() else { return Ok(followed) };
        followed.max_timestamp =
            items.iter().map(|item| item.max_timestamp).fold(Timestamp::NONE, Timestamp::max);
        let mut writer = self.writer.lock();
        self.check_writable(&writer)?;
        let (end, segment_bytes) = {
            let state = self.state.lock();
            (state.end, state.config.segment_bytes)
        };
        if first.base_offset < end {
            return Err(AppendError::UnexpectedOffset { first: first.base_offset, end });
        }
        let mut rest = batches;
        for group in groups(&items, u64::from(segment_bytes)) {
            let size = group.iter().map(|item| item.size as usize).sum();
            let (bytes, after) = rest.split_at(size);
            self.write(&mut writer, group, &mut [IoSlice::new(bytes)])?;
            rest = after;
        }
        Ok(followed)
    }

    pub(crate) fn check_writable(&self, writer: &Writer) -> Result<(), AppendError> {
        match self.check_usable(writer) {
            Ok(()) => Ok(()),
            Err(LogError::Fault(fault)) => Err(AppendError::Fault(fault)),
            Err(_) => Err(AppendError::Offline(self.directory.path().to_owned())),
        }
    }

    /// Writes one run of batches, and takes note of them. `pieces` are their bytes.
    pub(crate) fn write(
        &self,
        writer: &mut Writer,
        items: &[Item],
        pieces: &mut [IoSlice<'_>],
    ) -> Result<(), AppendError> {
        self.write_inner(writer, items, pieces).map_err(|fault| self.append_fault(fault))
    }

    fn write_inner(
        &self,
        writer: &mut Writer,
        items: &[Item],
        pieces: &mut [IoSlice<'_>],
    ) -> Result<(), Fault> {
        let sum = sum(items);
        self.load_active(writer)?;
        self.roll_if_needed(writer, &sum)?;
        let view = {
            let state = self.state.lock();
            state.active().view(&state.path, true)
        };
        let file = view.log(&self.shared)?;
        let position = view.size;
        if writer.must_cut {
            file.set_len(position).context("truncate", view.path(LOG))?;
            writer.must_cut = false;
        }
        if let Err(error) = write_all_at(&file, pieces, position) {
            // What did get written is cut off, now or before the next append; no reader looks beyond the size.
            writer.must_cut = file.set_len(position).is_err();
            return Err(Fault { action: "write", path: view.path(LOG), source: error });
        }
        self.directory.set_full(false);
        let aborted = self.take_note(writer, items, &sum, position);
        if !aborted.is_empty() {
            self.append_aborted(&aborted);
        }
        self.spill_indexes(writer)?;
        self.flush_if_due(writer)
    }

    /// Brings the memory up to what is now in the file. The transactions that it ended by an abort.
    fn take_note(
        &self,
        writer: &mut Writer,
        items: &[Item],
        sum: &Sum,
        position: u64,
    ) -> Vec<AbortedTransaction> {
        let active = writer.active.as_mut().expect("loaded before the write");
        let had_epochs = writer.epochs_dirty;
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut aborted = Vec::new();
        let mut at = position;
        for item in items {
            let place = Place { last_offset: item.last_offset, position: at, size: item.size };
            state.recent.get_or_insert_default().push(place);
            at += item.size;
            writer.epochs_dirty |= note_epoch(state, item);
            if let Some(producer) = &item.producer {
                state.producers.add(producer, &mut aborted);
                if producer.transactional
                    && let Some(verifications) = &mut state.verifications
                {
                    verifications.end(producer.producer_id);
                }
            }
        }
        note_indexes(state, active, sum, position);
        state.end = sum.last_offset.plus(1);
        let count = &self.shared.producers;
        if state.producers.count_in(count) && count.is_far_beyond() {
            let forgotten = state.producers.evict();
            state.producers.count_in(count);
            count.note_forgotten(forgotten);
        }
        state.unindexed = aborted.iter().map(|transaction| transaction.first_offset).min();
        state.publish(&self.offsets);
        // The first entry in memory since the last time: an idle log's are written to the file.
        if state.active().offsets.tail.len() == 1 || writer.epochs_dirty && !had_epochs {
            self.shared.want_attention(&self.partition);
        }
        aborted
    }

    /// Writes the entries in memory to the index files, when there are many.
    fn spill_indexes(&self, writer: &Writer) -> Result<(), Fault> {
        let is_due = {
            let state = self.state.lock();
            state.active().offsets.tail.len() >= TAIL_LENGTH_MAX
        };
        match is_due {
            true => self.write_index_tails(writer),
            false => Ok(()),
        }
    }

    /// Writes the active segment's index entries that are in memory to their files.
    pub(crate) fn write_index_tails(&self, _writer: &Writer) -> Result<(), Fault> {
        let (view, offsets, times) = {
            let state = self.state.lock();
            let active = state.active();
            (active.view(&state.path, true), active.offsets.clone(), active.times.clone())
        };
        if !offsets.tail.is_empty() {
            view.append_index(&self.shared, OFFSET_INDEX, &offsets)?;
        }
        if !times.tail.is_empty() {
            view.append_index(&self.shared, TIME_INDEX, &times)?;
        }
        let mut state = self.state.lock();
        let active = state.active_mut();
        active.offsets.stored =
            Some(active.offsets.stored.unwrap_or(0) + offsets.tail.len() as u32);
        active.offsets.tail = Vec::new();
        active.times.stored = Some(active.times.stored.unwrap_or(0) + times.tail.len() as u32);
        active.times.tail = Vec::new();
        Ok(())
    }

    /// Loads what appends need of the active segment, at the first append after the log was opened.
    pub(crate) fn load_active(&self, writer: &mut Writer) -> Result<(), Fault> {
        if writer.active.is_some() {
            return Ok(());
        }
        let (view, tail, jitter_ms, stored) = {
            let state = self.state.lock();
            let active = state.active();
            let jitter_ms = state.config.segment_jitter(self.shared.random());
            (
                active.view(&state.path, true),
                active.times.tail.clone(),
                jitter_ms,
                active.times.stored,
            )
        };
        let mut loaded = Active {
            created: common::clock::wall_clock(),
            first_timestamp: None,
            last_time_entry: Timestamp::NONE,
            bytes_since_index: 0,
            jitter_ms,
        };
        if view.size > 0 {
            debug_assert!(
                stored.is_some(),
                "the active segment's indexes are looked at when the log is opened"
            );
            let file = view.log(&self.shared)?;
            let first = crate::scan::header_at(&file, 0, view.size)
                .map_err(io::Error::from)
                .context("read", view.path(LOG))?;
            loaded.first_timestamp = first.map(|found| found.header.max_timestamp);
            loaded.last_time_entry = view.last_time_entry(&self.shared, &tail)?;
            let largest = view.largest_timestamp(&self.shared, &tail)?;
            self.state.lock().active_mut().largest = Some(largest);
        }
        writer.active = Some(Box::new(loaded));
        Ok(())
    }

    fn roll_if_needed(&self, writer: &mut Writer, sum: &Sum) -> Result<(), Fault> {
        let active = writer.active.as_ref().expect("loaded before");
        let expected = {
            let state = self.state.lock();
            let config = &state.config;
            let segment = state.active();
            let waited_ms = match active.first_timestamp {
                Some(first) if first.0 >= 0 => sum.largest.timestamp.0.saturating_sub(first.0),
                _ => common::clock::wall_clock().0 - active.created.0,
            };
            let is_old = segment.size > 0 && waited_ms > config.segment_ms_max() - active.jitter_ms;
            let limit = u64::from(config.segment_bytes).min(SEGMENT_SIZE_MAX);
            let is_large = segment.size + sum.size > limit && segment.size > 0;
            // One place of the time index is kept for the entry that ends the segment.
            let index_bytes = config.segment_index_bytes as usize;
            let is_index_full = segment.size > 0
                && (segment.offsets.len() >= index_bytes / 8
                    || segment.times.len() + 1 >= index_bytes / 12);
            let fits = index::relative(segment.base, sum.last_offset).is_some();
            if !(is_old || is_large || is_index_full || !fits) {
                return Ok(());
            }
            sum.first_offset.max(state.end)
        };
        self.roll_to(writer, expected)
    }
}

impl Appended {
    pub(crate) fn new(item: &Item, batch: &Checked, start: Offset) -> Appended {
        Appended {
            first_offset: item.base_offset,
            last_offset: item.last_offset,
            log_append_time: batch.log_append_time().unwrap_or(Timestamp::NONE),
            log_start_offset: start,
            duplicate: false,
        }
    }
}

/// What the log wants to know of a leader's batch, whose offsets are assigned.
pub(crate) fn item_of(batch: &Checked) -> Item {
    let marker = match batch.is_control() {
        true => marker(&batch.slices().concat()),
        false => None,
    };
    Item::of_batch(batch.header(), marker)
}

/// The answer to a batch that its producer has sent before.
pub(crate) fn repeats(state: &State, item: &Item, origin: Origin) -> Option<Appended> {
    if origin != Origin::Client {
        return None;
    }
    let known = state.producers.find_duplicate(item.producer.as_ref()?)?;
    Some(Appended {
        first_offset: known.first_offset(),
        last_offset: known.last_offset,
        log_append_time: known.timestamp,
        log_start_offset: state.start,
        duplicate: true,
    })
}

/// Whether the batch may follow what the log knows of its producer.
pub(crate) fn check_producer(
    state: &State,
    item: &Item,
    origin: Origin,
    guard: Option<VerificationGuard>,
) -> Result<(), ProducerError> {
    let Some(producer) = &item.producer else { return Ok(()) };
    check_verified(state, producer, origin, guard)?;
    let verifications = state.verifications.as_ref();
    let lowest = verifications.and_then(|all| all.lowest_sequence(producer.producer_id));
    state.producers.check(producer, origin, lowest)
}

fn check_seen(state: &State, seen: Option<&OpenTransaction>) -> Result<(), ProducerError> {
    let Some(seen) = seen else { return Ok(()) };
    match state.producers.open_transaction(seen.producer_id) == Some(*seen) {
        true => Ok(()),
        false => Err(ProducerError::TransactionMoved(seen.producer_id)),
    }
}

pub(crate) fn check_size(state: &State, batch: &Checked) -> Result<(), AppendError> {
    let segment_bytes = state.config.segment_bytes as usize;
    match batch.size() > segment_bytes {
        true => Err(AppendError::LargerThanSegment { size: batch.size(), segment_bytes }),
        false => Ok(()),
    }
}

/// The first batch of a transaction is appended only where its coordinator knows of it, so that a marker will come.
fn check_verified(
    state: &State,
    batch: &ProducerBatch,
    origin: Origin,
    guard: Option<VerificationGuard>,
) -> Result<(), ProducerError> {
    let opens = batch.transactional
        && batch.marker.is_none()
        && !state.producers.has_open_transaction(batch.producer_id);
    if !opens || !state.config.verify_transactions {
        return Ok(());
    }
    let verifications = state.verifications.as_ref();
    match verifications.is_some_and(|all| all.allows(batch.producer_id, guard, origin)) {
        true => Ok(()),
        false => Err(ProducerError::NotVerified),
    }
}

impl Item {
    fn of_batch(header: &BatchHeader, marker: Option<Marker>) -> Item {
        Item {
            size: header.size() as u64,
            magic: 2,
            base_offset: header.base_offset,
            knows_base: true,
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp,
            leader_epoch: header.leader_epoch,
            producer: producer_batch(header, marker),
        }
    }
}

/// The producer's part of a batch; `None` where it has no producer, or is a control batch without a marker.
pub(crate) fn producer_batch(
    header: &BatchHeader,
    marker: Option<Marker>,
) -> Option<ProducerBatch> {
    let is_control = header.attributes.is_control();
    (header.has_producer() && is_control == marker.is_some()).then_some(ProducerBatch {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        max_timestamp: header.max_timestamp,
        transactional: header.attributes.is_transactional(),
        marker,
    })
}

/// The marker of a control batch; `None` where it has no record, as compaction may leave it, or is of another type.
pub(crate) fn marker(batch: &[u8]) -> Option<Marker> {
    let marker = marker_of(batch).ok().flatten()?;
    let abort = marker.result == TransactionResult::Abort;
    Some(Marker { abort, coordinator_epoch: marker.coordinator_epoch })
}

/// Checks what a leader sent: sizes, checksums, rising offsets.
fn follower_items(bytes: &[u8]) -> Result<Vec<Item>, AppendError> {
    let mut items = Vec::new();
    let mut previous = Offset::NONE;
    for batch in Batches::new(bytes) {
        let batch = batch.map_err(|error| AppendError::Corrupt(error.to_string()))?;
        let header = &batch.header;
        if !header.crc_matches(batch.bytes) {
            return Err(AppendError::Corrupt(format!("stored crc = {}", header.crc)));
        }
        if !offsets_are_possible(header) || header.first_or_last_offset() <= previous {
            return Err(AppendError::OffsetsOutOfOrder { offset: header.last_offset, previous });
        }
        previous = header.last_offset;
        items.push(match BatchHeader::parse(batch.bytes) {
            Ok(header) => {
                let is_control = header.attributes.is_control();
                Item::of_batch(&header, is_control.then(|| marker(batch.bytes)).flatten())
            }
            Err(_) => Item {
                size: header.size as u64,
                magic: header.magic,
                base_offset: header.first_or_last_offset(),
                knows_base: header.base_offset.is_some(),
                last_offset: header.last_offset,
                max_timestamp: header.max_timestamp,
                leader_epoch: header.leader_epoch,
                producer: None,
            },
        });
    }
    Ok(items)
}

/// Cuts a follower's batches into runs that each fit a segment. A batch that does not fit alone is a run of its own.
fn groups(items: &[Item], segment_bytes: u64) -> Vec<&[Item]> {
    let mut groups = Vec::new();
    let (mut begin, mut size) = (0, 0);
    for (index, item) in items.iter().enumerate() {
        let fits = index::relative(items[begin].base_offset, item.last_offset).is_some();
        if index > begin && (size + item.size > segment_bytes || !fits) {
            groups.push(&items[begin..index]);
            (begin, size) = (index, 0);
        }
        size += item.size;
    }
    groups.push(&items[begin..]);
    groups
}

fn sum(items: &[Item]) -> Sum {
    let (first, last) = (&items[0], &items[items.len() - 1]);
    let mut largest = TimestampOffset { timestamp: Timestamp::NONE, offset: last.last_offset };
    for item in items {
        if item.max_timestamp > largest.timestamp {
            largest = TimestampOffset { timestamp: item.max_timestamp, offset: item.last_offset };
        }
    }
    // Where the first offset is not known, this is not after it: offsets of one append do not differ by more.
    let first_offset = match first.knows_base {
        true => first.base_offset,
        false => Offset(last.last_offset.0 - i64::from(i32::MAX)),
    };
    let size = items.iter().map(|item| item.size).sum();
    Sum { size, first_offset, last_offset: last.last_offset, largest }
}

fn note_epoch(state: &mut State, item: &Item) -> bool {
    match item.magic {
        0 | 1 => state.epochs.clear(),
        _ if item.leader_epoch.0 < 0 => false,
        _ => state.epochs.assign(item.leader_epoch, item.base_offset),
    }
}

/// Source: `LogSegment.append`.
fn note_indexes(state: &mut State, active: &mut Active, sum: &Sum, position: u64) {
    let interval = u64::from(state.config.index_interval_bytes);
    let segment = state.active_mut();
    if position == 0 {
        active.first_timestamp = Some(sum.largest.timestamp);
    }
    let none = TimestampOffset { timestamp: Timestamp::NONE, offset: segment.base };
    let mut largest = segment.largest.unwrap_or(none);
    if sum.largest.timestamp > largest.timestamp {
        largest = sum.largest;
    }
    segment.largest = Some(largest);
    segment.size = position + sum.size;
    if active.bytes_since_index > interval {
        if let (Some(relative), Ok(position)) =
            (index::relative(segment.base, sum.last_offset), u32::try_from(position))
        {
            segment.offsets.tail.push(OffsetEntry { relative, position });
        }
        if largest.timestamp > active.last_time_entry
            && let Some(relative) = index::relative(segment.base, largest.offset)
        {
            segment.times.tail.push(TimeEntry { timestamp: largest.timestamp, relative });
            active.last_time_entry = largest.timestamp;
        }
        active.bytes_since_index = 0;
    }
    active.bytes_since_index += sum.size;
}

/// Writes all pieces at the position, in as few calls as the system allows.
fn write_all_at(file: &File, mut pieces: &mut [IoSlice<'_>], mut position: u64) -> io::Result<()> {
    #[cfg(test)]
    crate::faults::before_write(file, pieces, position)?;
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    if length <= JOINED_MAX {
        let (mut joined, mut end) = ([0; JOINED_MAX], 0);
        for piece in pieces {
            joined[end..end + piece.len()].copy_from_slice(piece);
            end += piece.len();
        }
        return file.write_all_at(&joined[..length], position);
    }
    while pieces.iter().any(|piece| !piece.is_empty()) {
        match rustix::io::pwritev(file, pieces, position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                position += count as u64;
                IoSlice::advance_slices(&mut pieces, count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read};

    use super::{JOINED_MAX, write_all_at};

    #[test]
    fn pieces_are_written_one_behind_the_other_however_large() {
        for length in [62, JOINED_MAX - 1, JOINED_MAX, JOINED_MAX + 1, 3 * JOINED_MAX] {
            let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            write_all_at(&file, &mut [IoSlice::new(b"before")], 0).unwrap();
            let pieces = &mut [IoSlice::new(&bytes[..61]), IoSlice::new(&bytes[61..])];
            write_all_at(&file, pieces, 6).unwrap();
            let mut written = Vec::new();
            file.read_to_end(&mut written).unwrap();
            assert_eq!(written, [b"before", &bytes[..]].concat(), "{length}");
        }
    }
}
