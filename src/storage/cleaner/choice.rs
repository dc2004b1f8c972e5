//! Which log is the dirtiest, and how much of it may be cleaned. Source: `LogCleanerManager`.

use std::{io, sync::Arc};

use common::ids::{Offset, Timestamp};

use crate::{
    error::{Context, Fault},
    log::Log,
    scan::header_at,
    segment::SegmentView,
    segment_files::LOG,
};

/// A log, and what cleaning it would mean.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) log: Arc<Log>,
    /// First offset that was not cleaned yet.
    pub(crate) first_dirty: Offset,
    /// Base of the first segment that must stay as it is.
    pub(crate) uncleanable_from: Offset,
    /// Bytes between the two, in whole segments.
    pub(crate) cleanable_bytes: u64,
    clean_bytes: u64,
    /// By how much `max.compaction.lag.ms` is exceeded.
    pub(crate) delay_ms: i64,
    is_dirty_enough: bool,
}

impl Candidate {
    /// The share of the log that is to be cleaned, 0 to 1.
    pub(crate) fn ratio(&self) -> f64 {
        match self.clean_bytes + self.cleanable_bytes {
            0 => 0.0,
            all => self.cleanable_bytes as f64 / all as f64,
        }
    }

    /// Whether the log's settings want it to be cleaned now.
    pub(crate) fn is_due(&self) -> bool {
        self.cleanable_bytes > 0 && (self.delay_ms > 0 || self.is_dirty_enough)
    }

    /// Looks at a log.
    pub(crate) fn of(log: &Arc<Log>, now: Timestamp) -> Result<Candidate, Fault> {
        let first_dirty = first_dirty(log);
        let dirty: Vec<SegmentView> = {
            let state = log.state.lock();
            let first = state.segment_index(first_dirty);
            let sealed = &state.segments[first..state.segments.len() - 1];
            sealed.iter().map(|segment| segment.view(&state.path, false)).collect()
        };
        let config = log.config();
        let young = first_young(log, &dirty, config.min_compaction_lag_ms, now)?;
        let delay_ms = delay(log, &dirty, config.max_compaction_lag_ms, now)?;
        let state = log.state.lock();
        let mut bound = state.last_stable().min(state.active().base);
        bound = young.map_or(bound, |young| bound.min(young)).max(first_dirty);
        let last = state.segment_index(bound);
        let uncleanable_from = state.segments[last].base;
        let first = state.segment_index(first_dirty).min(last);
        let size = |range: std::ops::Range<usize>| -> u64 {
            state.segments[range].iter().map(|segment| segment.size).sum()
        };
        let clean_count = state.segments.partition_point(|segment| segment.base < first_dirty);
        let mut candidate = Candidate {
            log: log.clone(),
            first_dirty,
            uncleanable_from,
            cleanable_bytes: if first_dirty < uncleanable_from { size(first..last) } else { 0 },
            clean_bytes: size(0..clean_count),
            delay_ms,
            is_dirty_enough: false,
        };
        candidate.is_dirty_enough = candidate.ratio() > config.min_cleanable_dirty_ratio;
        Ok(candidate)
    }
}

/// Where the dirty part begins. A checkpoint outside the log is of no use: all is dirty then.
fn first_dirty(log: &Log) -> Offset {
    let state = log.state.lock();
    let mut cleaning = log.cleaning.lock();
    let (start, end) = (state.start, state.end);
    let Some(checkpoint) = cleaning.cleaned_to() else { return start };
    if checkpoint >= start && checkpoint <= end {
        return checkpoint;
    }
    // Retention passes the checkpoint as a matter of course.
    if checkpoint > end || !state.config.delete {
        tracing::warn!(partition = %log.partition, checkpoint = checkpoint.0, start = start.0, end = end.0,
            "the cleaner's checkpoint is outside the log, cleaning from the start");
    }
    cleaning.set_cleaned_to(Some(start));
    start
}

/// Base of the first segment with a record that is younger than `min.compaction.lag.ms`.
fn first_young(
    log: &Log,
    dirty: &[SegmentView],
    lag_ms: i64,
    now: Timestamp,
) -> Result<Option<Offset>, Fault> {
    if lag_ms <= 0 {
        return Ok(None);
    }
    for view in dirty {
        let largest = match log.largest_timestamp(view)?.timestamp {
            Timestamp(0..) => log.largest_timestamp(view)?.timestamp,
            _ => view.modified()?,
        };
        if largest.0 > now.0.saturating_sub(lag_ms) {
            return Ok(Some(view.base));
        }
    }
    Ok(None)
}

/// How long ago the oldest dirty segment should have been cleaned, by its first batch's timestamp.
fn delay(log: &Log, dirty: &[SegmentView], lag_ms: i64, now: Timestamp) -> Result<i64, Fault> {
    let clean_until = now.0.saturating_sub(lag_ms.max(0));
    let mut oldest = i64::MAX;
    if clean_until <= 0 {
        return Ok(0);
    }
    for view in dirty.iter().filter(|view| view.size > 0) {
        let file = view.log(&log.shared)?;
        let first = header_at(&file, 0, view.size).map_err(io::Error::from);
        let first = first.context("read", view.path(LOG))?;
        let timestamp = first.map_or(0, |found| found.header.max_timestamp.0);
        if timestamp > 0 {
            oldest = oldest.min(timestamp);
        }
    }
    Ok(clean_until.saturating_sub(oldest).max(0))
}
