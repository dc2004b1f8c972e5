//! Cleaning one log: a map of the dirty part's keys, then all segments up to its end written anew, group by group.
//! Source: `Cleaner.doClean`.

use std::{fs, io, path::PathBuf};

use common::{
    clock,
    ids::{Offset, Timestamp},
};
use record::{compression::DECOMPRESSED_BYTES_MAX, records::records};

use super::{
    CleanError,
    choice::Candidate,
    filter::{ActiveProducers, Filter, Segment},
    offset_map::{BYTES_PER_KEY, OffsetMap},
    stats::Stats,
    target::{Target, sources_position},
    throttle::{Stop, Throttle},
    transactions::Transactions,
};
use crate::{
    batch_reader::BatchReader,
    error::{Context, Fault, LogError},
    log::Log,
    log_config::LogConfig,
    scan::Found,
    segment::SegmentView,
    segment_files::{LOG, OFFSET_INDEX, TIME_INDEX},
};

/// Bytes that are read between two looks at whether to go on.
const CHECK_BYTES: u64 = 256 << 10;

/// What a thread cleans with.
pub(crate) struct Tools<'a> {
    /// Bytes of the map, at most.
    pub(crate) map_bytes: u64,
    pub(crate) load_factor: f64,
    /// Bytes that are written at once.
    pub(crate) write_buffer: usize,
    pub(crate) throttle: &'a Throttle,
    pub(crate) stop: &'a Stop,
}

/// One cleaning of one log.
struct Cleaning<'a> {
    log: &'a Log,
    tools: &'a Tools<'a>,
    /// All segments that may be cleaned; what they were when the cleaning began.
    sources: Vec<SegmentView>,
    /// Where they end.
    end: Offset,
    stats: Stats,
    unchecked_bytes: u64,
}

/// Cleans the log, and notes how far. What it did.
pub(crate) fn clean(
    candidate: &Candidate,
    now: Timestamp,
    tools: &Tools,
) -> Result<Stats, CleanError> {
    let log = &*candidate.log;
    let began = clock::now();
    let end = candidate.uncleanable_from;
    let sources: Vec<SegmentView> = {
        let state = log.state.lock();
        let sealed = state.segments[..state.segments.len() - 1].iter();
        let sources = sealed.take_while(|segment| segment.base < end);
        sources.map(|segment| segment.view(&state.path, false)).collect()
    };
    let mut cleaning =
        Cleaning { log, tools, sources, end, stats: Stats::default(), unchecked_bytes: 0 };
    let cleaned = cleaning.run(candidate.first_dirty, now);
    // A truncation or a deletion makes all sorts of trouble for who reads the files.
    let is_trouble = |error: &CleanError| match error {
        CleanError::Fault(fault) => {
            use io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
            matches!(fault.source.kind(), InvalidData | NotFound | UnexpectedEof)
        }
        CleanError::Damaged { .. } | CleanError::Aborted => true,
    };
    let cleaned_to = cleaned.map_err(|error| {
        if !is_trouble(&error) {
            return error;
        }
        // Whoever is changing the files has changed the log's memory, too, once the lock is free.
        drop(log.writer.lock());
        if cleaning.is_under_way() { error } else { CleanError::Aborted }
    })?;
    let state = log.state.lock();
    log.cleaning.lock().set_cleaned_to(Some(cleaned_to.min(state.active().base)));
    drop(state);
    cleaning.stats.elapsed = began.elapsed();
    Ok(cleaning.stats)
}

impl Cleaning<'_> {
    fn run(&mut self, first_dirty: Offset, now: Timestamp) -> Result<Offset, CleanError> {
        let config = self.log.config();
        let clean = self.sources.iter().rfind(|source| source.base < first_dirty);
        let old_horizon = match clean {
            Some(source) => source.modified()?.0.saturating_sub(config.delete_retention_ms),
            None => 0,
        };
        let map = self.build_map(first_dirty)?;
        let cleaned_to = map.last_offset().plus(1);
        self.stats.keys = map.len();
        self.stats.map_bytes_used = map.len() as u64 * BYTES_PER_KEY;
        let mut filter = Filter {
            map: &map,
            now,
            delete_retention_ms: config.delete_retention_ms,
            transactions: Transactions::default(),
        };
        self.sources.truncate(self.sources.partition_point(|source| source.base < cleaned_to));
        let sources = std::mem::take(&mut self.sources);
        let mut rest = &sources[..];
        while !rest.is_empty() {
            let count = group(rest, self.end, &config)?;
            let next = rest.get(count).map_or(self.end, |next| next.base);
            self.sources = rest.to_vec();
            self.clean_group(&rest[..count], next, Timestamp(old_horizon), &mut filter)?;
            rest = &rest[count..];
        }
        self.sources.clear();
        Ok(cleaned_to)
    }

    /// The last offset of each key from `first_dirty` on, as far as the map has room.
    fn build_map(&mut self, first_dirty: Offset) -> Result<OffsetMap, CleanError> {
        let span = u64::try_from(self.end.0 - first_dirty.0).unwrap_or(0);
        let mut map = OffsetMap::new(span, self.tools.map_bytes, self.tools.load_factor);
        let mut transactions = Transactions::default();
        transactions.add(&self.aborted(first_dirty, self.end)?);
        let first = self.sources.partition_point(|source| source.base <= first_dirty);
        for index in first.saturating_sub(1)..self.sources.len() {
            let source = self.sources[index].clone();
            if !self.map_segment(&source, first_dirty, &mut transactions, &mut map)? {
                return Ok(map);
            }
            // Offsets that are not there are clean, too.
            let next = self.sources.get(index + 1).map_or(self.end, |next| next.base);
            map.read_up_to(next.plus(-1));
        }
        Ok(map)
    }

    /// Takes the keys of a segment; false where the map is full.
    fn map_segment(
        &mut self,
        source: &SegmentView,
        first_dirty: Offset,
        transactions: &mut Transactions,
        map: &mut OffsetMap,
    ) -> Result<bool, CleanError> {
        let file = source.log(&self.log.shared)?;
        let position = match first_dirty > source.base {
            true => source.position_before(&self.log.shared, &file, first_dirty)?,
            false => 0,
        };
        let mut reader = BatchReader::starting_at(&file, position, source.size);
        while let Some((found, bytes)) = next(&mut reader, source)? {
            let size = bytes.len() as u64;
            let is_aborted = transactions.take(&found.header, bytes);
            if !found.header.is_control
                && !is_aborted
                && !map_batch(source, &found, bytes, first_dirty, map)?
            {
                return Ok(false);
            }
            if found.header.last_offset >= first_dirty {
                map.read_up_to(found.header.last_offset);
            }
            self.stats.map_bytes_read += size;
            self.pass(size)?;
        }
        Ok(true)
    }

    /// Writes a group of segments anew as one.
    fn clean_group(
        &mut self,
        group: &[SegmentView],
        next_base: Offset,
        old_horizon: Timestamp,
        filter: &mut Filter,
    ) -> Result<(), CleanError> {
        let producers = ActiveProducers::of(self.log);
        let mut target = Target::begin(self.log, group, self.tools.write_buffer)?;
        let mut changed = false;
        for (index, source) in group.iter().enumerate() {
            let upper = group.get(index + 1).map_or(next_base, |next| next.base);
            filter.transactions.add(&self.aborted(source.base, upper)?);
            let keeps_old_tombstones = source.modified()? > old_horizon;
            let segment = Segment { producers: &producers, keeps_old_tombstones };
            let file = source.log(&self.log.shared)?;
            let mut reader = BatchReader::new(&file, source.size);
            while let Some((found, bytes)) = next(&mut reader, source)? {
                let size = bytes.len() as u64;
                self.stats.bytes_read += size;
                let left = filter.apply(&found.header, bytes, &segment, &mut self.stats);
                let left = left.map_err(|error| damaged(source, &found, error.to_string()))?;
                changed |= !matches!(left, Some(std::borrow::Cow::Borrowed(_)));
                let written = left.as_ref().map_or(0, |left| left.len() as u64);
                if let Some(left) = left {
                    target.write(&left)?;
                }
                self.stats.bytes_written += written;
                self.pass(size + written)?;
            }
        }
        let retained = std::mem::take(&mut filter.transactions.retained);
        if target.is_the_same(changed) { Ok(()) } else { target.replace(&retained) }
    }

    fn aborted(
        &self,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<crate::transaction_index::AbortedTransaction>, CleanError> {
        self.log.aborted_transactions(from, upper).map_err(|error| match error {
            LogError::Fault(fault) => CleanError::Fault(fault),
            LogError::Offline(_) | LogError::OffsetOutOfRange { .. } => CleanError::Aborted,
        })
    }

    /// Counts bytes as read or written: waits where there were too many, and gives up where the cleaning is to end.
    fn pass(&mut self, bytes: u64) -> Result<(), CleanError> {
        self.unchecked_bytes += bytes;
        if self.unchecked_bytes < CHECK_BYTES {
            return Ok(());
        }
        self.tools.throttle.pass(std::mem::take(&mut self.unchecked_bytes), self.tools.stop);
        if self.is_under_way() { Ok(()) } else { Err(CleanError::Aborted) }
    }

    /// Whether all segments that are still to be cleaned are there, and nobody wants the cleaning to end.
    fn is_under_way(&self) -> bool {
        let is_there =
            self.sources.is_empty() || sources_position(self.log, &self.sources).is_some();
        is_there && !self.tools.stop.is_stopped() && !self.log.directory.is_offline()
    }
}

/// The next batch of a segment, whole and with the right checksum.
fn next<'b>(
    reader: &'b mut BatchReader,
    source: &SegmentView,
) -> Result<Option<(Found, &'b [u8])>, CleanError> {
    let position = reader.position();
    reader.next().context("read", source.path(LOG))?.map_err(|reason| CleanError::Damaged {
        path: source.path(LOG),
        position,
        reason,
    })
}

/// Takes the keys of a batch; false where the map is full.
fn map_batch(
    source: &SegmentView,
    found: &Found,
    bytes: &[u8],
    first_dirty: Offset,
    map: &mut OffsetMap,
) -> Result<bool, CleanError> {
    let wrong = |error: record::records::RecordsError| damaged(source, found, error.to_string());
    for record in &records(bytes, DECOMPRESSED_BYTES_MAX).map_err(wrong)? {
        let record = record.map_err(wrong)?;
        if let Some(key) = record.key
            && record.offset >= first_dirty
            && !map.put(key, record.offset)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn damaged(source: &SegmentView, found: &Found, reason: String) -> CleanError {
    CleanError::Damaged { path: source.path(LOG), position: found.position, reason }
}

/// How many of the segments fit one together, by their sizes as they are. Source: `Cleaner.groupSegmentsBySize`.
fn group(sources: &[SegmentView], end: Offset, config: &LogConfig) -> Result<usize, Fault> {
    let mut sizes = [0_u64; 3];
    let limits = [
        u64::from(config.segment_bytes),
        u64::from(config.segment_index_bytes),
        u64::from(config.segment_index_bytes),
    ];
    for (index, source) in sources.iter().enumerate() {
        let more =
            [source.size, length(source.path(OFFSET_INDEX))?, length(source.path(TIME_INDEX))?];
        let last = sources.get(index + 1).map_or(end, |next| next.base).plus(-1);
        let fits =
            sizes.iter().zip(more).zip(limits).all(|((size, more), limit)| size + more <= limit);
        let is_near = source.size == 0 || last.0 - sources[0].base.0 <= i64::from(i32::MAX);
        if index > 0 && !(fits && is_near) {
            return Ok(index);
        }
        sizes.iter_mut().zip(more).for_each(|(size, more)| *size += more);
    }
    Ok(sources.len())
}

/// Bytes of a file; 0 where there is none.
fn length(path: PathBuf) -> Result<u64, Fault> {
    match fs::metadata(&path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).context("look at", path),
    }
}
