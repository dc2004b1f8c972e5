//! Reading: from offsets to regions of files, from timestamps to offsets.

use std::{fs::File, io, sync::Arc};

use common::ids::{LeaderEpoch, Offset, Timestamp};

use crate::{
    error::{Context, Fault, LogError},
    file_cache::FileId,
    index::OffsetEntry,
    log::{Log, LogOffsets},
    scan::{Found, HeaderScan, read_batch},
    segment::{SegmentView, TimestampOffset},
    segment_files::LOG,
    transaction_index::AbortedTransaction,
};

/// How often a read is tried when truncations and deletions keep changing files under it.
const ATTEMPTS: usize = 4;

/// Bytes that one batch may have when it is decompressed to look for a timestamp.
const DECOMPRESSED_BYTES_MAX: usize = 256 << 20;

/// A part of a file, for `sendfile` or a read.
#[derive(Clone, Debug)]
pub struct Region {
    /// The segment's file; stays readable when the segment is deleted meanwhile.
    pub file: Arc<File>,
    /// First byte.
    pub position: u64,
    /// Count of bytes.
    pub length: usize,
}

/// What was found for a fetch.
#[derive(Clone, Debug)]
pub struct Read {
    /// Where the batches are; nothing where the bound is reached. The last batch may be cut off by `max_bytes`, as
    /// Kafka's answers are.
    pub regions: Vec<Region>,
    /// Bytes of all regions.
    pub bytes: usize,
    /// Whether not even the first batch is whole: it is larger than `max_bytes`.
    pub first_batch_incomplete: bool,
    /// The log's offsets when it was read.
    pub offsets: LogOffsets,
    /// The segment that was read, its base, and the position in it where the regions end.
    end: Option<(FileId, Offset, u64)>,
}

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampAndOffset {
    /// The record's timestamp.
    pub timestamp: Timestamp,
    /// The record's offset.
    pub offset: Offset,
    /// Epoch of the leader that wrote it; `None` for formats 0 and 1.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What `read` takes from under the lock.
struct Plan {
    view: SegmentView,
    /// The first batch, if it is one of the newest.
    first: Option<(u64, u64)>,
    limit: Limit,
    offsets: LogOffsets,
    generation: u32,
    next_base: Option<Offset>,
}

/// How far into a segment a read may go.
enum Limit {
    Position(u64),
    /// To the batch that holds the offset.
    Offset(Offset),
}

impl Log {
    /// Finds the batches from the one that holds `from` on, up to `max_bytes`, but not those that hold `up_to` or
    /// come after it: the high watermark, the last stable offset, or the log's end. Of one segment at a time.
    /// With `min_one` the first batch is given whole, however large.
    ///
    /// # Errors
    /// `OffsetOutOfRange` where `from` is before the log's start or after its end.
    pub fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        min_one: bool,
        up_to: Offset,
    ) -> Result<Read, LogError> {
        let mut from = from;
        let mut attempts = 0;
        loop {
            let Some(plan) = self.plan(from, up_to)? else { return self.empty_read() };
            match self.find_region(&plan, from, max_bytes, min_one) {
                // A file of this name may be another one meanwhile: compaction replaces segments.
                Ok(Some(_)) if attempts < ATTEMPTS && self.has_changed(plan.generation) => {
                    attempts += 1;
                }
                Ok(Some(read)) => return Ok(read),
                // Nothing at or after the offset in this segment: compaction has removed it.
                Ok(None) => match plan.next_base {
                    Some(next) => from = next,
                    None => return self.empty_read(),
                },
                Err(fault) => {
                    attempts += 1;
                    self.retry_or_fail(fault, plan.generation, attempts)?;
                }
            }
        }
    }

    /// A reader that met a fault looks again once no writer is at work, for files may have changed under it. One that
    /// meets it again although nothing changed has met a failing disk, or bad data.
    fn retry_or_fail(
        &self,
        fault: Fault,
        generation: u32,
        attempts: usize,
    ) -> Result<(), LogError> {
        if self.directory.is_offline() {
            return Err(LogError::Offline(self.directory.path().to_owned()));
        }
        drop(self.writer.lock());
        if attempts == 1 || attempts < ATTEMPTS && self.has_changed(generation) {
            return Ok(());
        }
        self.note_fault(&fault);
        Err(LogError::Fault(fault))
    }

    fn has_changed(&self, generation: u32) -> bool {
        self.state.lock().generation != generation
    }

    fn empty_read(&self) -> Result<Read, LogError> {
        let offsets = self.log_offsets();
        Ok(Read {
            regions: Vec::new(),
            bytes: 0,
            first_batch_incomplete: false,
            offsets,
            end: None,
        })
    }

    fn plan(&self, from: Offset, up_to: Offset) -> Result<Option<Plan>, LogError> {
        if self.directory.is_offline() {
            return Err(LogError::Offline(self.directory.path().to_owned()));
        }
        let state = self.state.lock();
        let (start, end) = (state.start, state.end);
        if from < start || from > end {
            return Err(LogError::OffsetOutOfRange { offset: from, start, end });
        }
        if from >= up_to || from == end {
            return Ok(None);
        }
        let index = state.segment_index(from);
        let segment = &state.segments[index];
        let is_active = index + 1 == state.segments.len();
        let recent = state.recent.as_ref().filter(|_| is_active);
        let limit = if up_to >= state.segment_end(index) {
            Limit::Position(segment.size)
        } else if let Some(place) = recent.and_then(|recent| recent.find(up_to)) {
            Limit::Position(place.position)
        } else {
            match state.bound.as_deref() {
                Some((offset, base, position)) if (*offset, *base) == (up_to, segment.base) => {
                    Limit::Position(*position)
                }
                _ => Limit::Offset(up_to),
            }
        };
        let place = recent.and_then(|recent| recent.find(from));
        Ok(Some(Plan {
            view: segment.view(&state.path, is_active),
            first: place.map(|place| (place.position, place.size)),
            limit,
            offsets: LogOffsets {
                start,
                end,
                high_watermark: state.high_watermark,
                last_stable: state.last_stable(),
            },
            generation: state.generation,
            next_base: state.segments.get(index + 1).map(|next| next.base),
        }))
    }

    fn find_region(
        &self,
        plan: &Plan,
        from: Offset,
        max_bytes: usize,
        min_one: bool,
    ) -> Result<Option<Read>, Fault> {
        let Plan { view, .. } = plan;
        let file = view.log(&self.shared)?;
        let (position, first_size) = match plan.first {
            Some(first) => first,
            None => match self.find_in(view, &file, from)? {
                Some(found) => (found.position, found.header.size as u64),
                None => return Ok(None),
            },
        };
        let limit = match plan.limit {
            Limit::Position(limit) => limit,
            Limit::Offset(offset) => self.find_bound(view, &file, offset, plan.generation)?,
        };
        let first_size = usize::try_from(first_size).unwrap_or(usize::MAX);
        let wanted = if min_one { max_bytes.max(first_size) } else { max_bytes };
        let available = usize::try_from(limit.saturating_sub(position)).unwrap_or(usize::MAX);
        let length = available.min(wanted);
        let regions = match length {
            0 => Vec::new(),
            _ => vec![Region { file, position, length }],
        };
        Ok(Some(Read {
            regions,
            bytes: length,
            first_batch_incomplete: available > 0 && wanted < first_size,
            offsets: plan.offsets,
            end: Some((view.id, view.base, position + length as u64)),
        }))
    }

    /// The first batch of the segment whose last offset is at least `target`. Entries of the index that are still in
    /// memory are asked first.
    fn find_in(
        &self,
        view: &SegmentView,
        file: &File,
        target: Offset,
    ) -> Result<Option<Found>, Fault> {
        match self.tail_position(view, target) {
            Some(position) => view
                .find_from(file, position, target)
                .map_err(io::Error::from)
                .context("read", view.path(LOG)),
            None => view.find(&self.shared, file, target),
        }
    }

    fn tail_position(&self, view: &SegmentView, target: Offset) -> Option<u64> {
        let state = self.state.lock();
        let index = state.segment_index(view.base);
        let segment = state.segments.get(index).filter(|segment| segment.id == view.id)?;
        let relative = |entry: &OffsetEntry| Offset(segment.base.0 + i64::from(entry.relative));
        let after = segment.offsets.tail.partition_point(|entry| relative(entry) <= target);
        let entry = segment.offsets.tail.get(after.checked_sub(1)?)?;
        Some(u64::from(entry.position))
    }

    /// Where the batch that holds the bound begins; remembered, for the next reader has the same bound.
    fn find_bound(
        &self,
        view: &SegmentView,
        file: &File,
        offset: Offset,
        generation: u32,
    ) -> Result<u64, Fault> {
        let found = self.find_in(view, file, offset)?;
        let position = found.map_or(view.size, |found| found.position);
        let mut state = self.state.lock();
        if found.is_some() && state.generation == generation {
            state.bound = Some(Box::new((offset, view.base, position)));
        }
        Ok(position)
    }

    /// The first record from the log's start on whose timestamp is at least `target`.
    pub fn offset_for_timestamp(
        &self,
        target: Timestamp,
    ) -> Result<Option<TimestampAndOffset>, LogError> {
        self.retrying(|| self.try_offset_for_timestamp(target))
    }

    fn try_offset_for_timestamp(
        &self,
        target: Timestamp,
    ) -> Result<Option<TimestampAndOffset>, Fault> {
        let (views, start) = self.views();
        for view in &views {
            let largest = self.largest_timestamp(view)?;
            // A segment none of whose records has a timestamp counts by its file's age.
            let largest = match largest.timestamp.0 {
                0.. => largest.timestamp,
                _ => view.modified()?,
            };
            if largest < target {
                continue;
            }
            let file = view.log(&self.shared)?;
            let tail = self.time_tail(view);
            let by_time = view.position_before_timestamp(&self.shared, &file, &tail, target)?;
            let by_start = match start > view.base {
                true => view.position_before(&self.shared, &file, start)?,
                false => 0,
            };
            return search_timestamp(view, &file, by_time.max(by_start), target, start)
                .context("read", view.path(LOG));
        }
        Ok(None)
    }

    /// The record with the largest timestamp; the first of several.
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimestampAndOffset>, LogError> {
        self.retrying(|| {
            let (views, _) = self.views();
            let mut best: Option<(TimestampOffset, &SegmentView)> = None;
            for view in &views {
                let largest = self.largest_timestamp(view)?;
                if best.is_none_or(|(known, _)| largest.timestamp > known.timestamp) {
                    best = Some((largest, view));
                }
            }
            let Some((largest, view)) = best else { return Ok(None) };
            if largest.timestamp.0 < 0 {
                return Ok(None);
            }
            let file = view.log(&self.shared)?;
            let position = view.position_before(&self.shared, &file, largest.offset)?;
            search_timestamp(view, &file, position, largest.timestamp, view.base)
                .context("read", view.path(LOG))
        })
    }

    fn retrying<T>(&self, read: impl Fn() -> Result<T, Fault>) -> Result<T, LogError> {
        if self.directory.is_offline() {
            return Err(LogError::Offline(self.directory.path().to_owned()));
        }
        let mut attempts = 0;
        loop {
            let generation = self.state.lock().generation;
            match read() {
                Ok(value) => return Ok(value),
                Err(fault) => {
                    attempts += 1;
                    self.retry_or_fail(fault, generation, attempts)?;
                }
            }
        }
    }

    /// All segments, and the log's start.
    pub(crate) fn views(&self) -> (Vec<SegmentView>, Offset) {
        let state = self.state.lock();
        let last = state.segments.len() - 1;
        let views = state.segments.iter().enumerate();
        let views =
            views.map(|(index, segment)| segment.view(&state.path, index == last)).collect();
        (views, state.start)
    }

    /// The segment's largest timestamp; looked for once, then remembered.
    pub(crate) fn largest_timestamp(&self, view: &SegmentView) -> Result<TimestampOffset, Fault> {
        {
            let state = self.state.lock();
            let segment = &state.segments[state.segment_index(view.base)];
            if segment.id == view.id
                && let Some(largest) = segment.largest
            {
                return Ok(largest);
            }
        }
        let largest = view.largest_timestamp(&self.shared, &self.time_tail(view))?;
        let mut state = self.state.lock();
        let index = state.segment_index(view.base);
        let segment = &mut state.segments[index];
        // An append may have come between, and with it a larger one.
        if segment.id == view.id && segment.size == view.size {
            segment.largest = Some(largest);
        }
        Ok(largest)
    }

    fn time_tail(&self, view: &SegmentView) -> Vec<crate::index::TimeEntry> {
        let state = self.state.lock();
        let segment = &state.segments[state.segment_index(view.base)];
        if segment.id == view.id { segment.times.tail.clone() } else { Vec::new() }
    }

    /// The aborted transactions that a read-committed reader of `from` up to `upper` must know.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        self.retrying(|| {
            let views = {
                let state = self.state.lock();
                let first = state.segment_index(from);
                let with_index = |segment: &&crate::segment::Segment| segment.has_transaction_index;
                let segments = state.segments[first..].iter().filter(with_index);
                segments.map(|segment| segment.view(&state.path, false)).collect::<Vec<_>>()
            };
            let mut found = Vec::new();
            for view in &views {
                for transaction in self.transactions(view)?.iter() {
                    if transaction.last_offset >= from && transaction.first_offset < upper {
                        found.push(*transaction);
                    }
                    if transaction.last_stable_offset >= upper {
                        return Ok(found);
                    }
                }
            }
            Ok(found)
        })
    }

    /// The `upper` of `aborted_transactions` for what was read: Kafka's, so the answers are equal.
    /// Source: `LocalLog.addAbortedTransactions`.
    pub fn upper_bound(&self, read: &Read) -> Result<Offset, LogError> {
        let Some((id, base, position)) = read.end else { return Ok(read.offsets.end) };
        self.retrying(|| {
            let (view, in_tail, segment_end) = {
                let state = self.state.lock();
                let index = state.segment_index(base);
                let segment = &state.segments[index];
                if segment.id != id {
                    // Cleaned meanwhile, so that the position stands for something else: more than needed is right.
                    return Ok(read.offsets.end);
                }
                let is_active = index + 1 == state.segments.len();
                let tail = &segment.offsets.tail;
                let after = tail.partition_point(|entry| u64::from(entry.position) < position);
                let in_tail = tail.get(after).copied();
                (segment.view(&state.path, is_active), in_tail, state.segment_end(index))
            };
            let file = view.log(&self.shared)?;
            let entry = view.entry_after_position(&self.shared, &file, position)?.or(in_tail);
            Ok(entry.map_or(segment_end, |entry| Offset(view.base.0 + i64::from(entry.relative))))
        })
    }
}

/// Walks batches from `position` on to the first record with a large enough timestamp, not before `start`.
fn search_timestamp(
    view: &SegmentView,
    file: &File,
    position: u64,
    target: Timestamp,
    start: Offset,
) -> io::Result<Option<TimestampAndOffset>> {
    let mut scan = HeaderScan::new(file, position, view.size);
    while let Some(found) = scan.next()? {
        let header = &found.header;
        if header.max_timestamp < target || header.last_offset < start {
            continue;
        }
        let bytes = read_batch(file, &found)?;
        let leader_epoch = (header.leader_epoch.0 >= 0).then_some(header.leader_epoch);
        let records =
            record::records::records(&bytes, DECOMPRESSED_BYTES_MAX).map_err(invalid_data)?;
        for record in &records {
            let record = record.map_err(invalid_data)?;
            if record.timestamp >= target && record.offset >= start {
                let (timestamp, offset) = (record.timestamp, record.offset);
                return Ok(Some(TimestampAndOffset { timestamp, offset, leader_epoch }));
            }
        }
    }
    Ok(None)
}

fn invalid_data(error: record::records::RecordsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
