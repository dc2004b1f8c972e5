//! Making a log shorter: from its end, as a follower must, and from its start, as retention and DeleteRecords do.

use std::{fs, io};

use common::ids::{Offset, Timestamp};

use crate::{
    atomic_file,
    error::{Context, Fault, LogError},
    file_cache::FileId,
    index::{self, Index},
    kept_tail::{self, Tail},
    log::{Log, State, Writer},
    log_config::LogConfig,
    producer_state::ProducerStates,
    scan::HeaderScan,
    segment::{IndexBuilder, Segment, SegmentView},
    segment_files::{self, CLEANED, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX},
    transaction_index,
};

/// Why segments are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    StartOffset,
    Size,
    Time,
}

impl Log {
    /// Drops everything from `end` on, and every batch that reaches beyond it. Whether anything was dropped.
    pub fn truncate_to(&self, end: Offset) -> Result<bool, LogError> {
        let mut writer = self.writer.lock();
        self.check_usable(&writer)?;
        let (log_end, first_base) = {
            let mut state = self.state.lock();
            let log_end = state.end;
            if end >= log_end {
                // A leader notes its epoch before its first record; if it wrote none, the entry may be wrong.
                writer.epochs_dirty |= state.epochs.truncate_from_end(log_end);
                return Ok(false);
            }
            (log_end, state.segments[0].base)
        };
        tracing::warn!(partition = %self.partition, end = end.0, log_end = log_end.0, "truncating the log");
        self.shared.count_truncation();
        self.keep_tail(&mut writer, end);
        let result = match end < first_base {
            true => self.restart_at(&mut writer, end, end),
            false => self.truncate_segments(&mut writer, end),
        };
        self.noting(result)?;
        self.noting(self.write_epochs(&mut writer, true))?;
        Ok(true)
    }

    /// Drops everything; the log then begins and ends at `end`, or begins at another `start`.
    pub fn truncate_fully_and_start_at(
        &self,
        end: Offset,
        start: Option<Offset>,
    ) -> Result<(), LogError> {
        let mut writer = self.writer.lock();
        self.check_usable(&writer)?;
        tracing::warn!(partition = %self.partition, end = end.0, log_end = self.end_offset().0, "dropping the log");
        self.shared.count_truncation();
        let result = self.restart_at(&mut writer, end, start.unwrap_or(end));
        self.noting(result)?;
        self.noting(self.write_epochs(&mut writer, true))
    }

    /// Keeps aside what is about to be cut off. The truncation does not depend on it: where it fails, that is said.
    fn keep_tail(&self, writer: &mut Writer, end: Offset) {
        let now = common::clock::wall_clock();
        match self.tails(end).and_then(|tails| {
            let path = self.path();
            kept_tail::keep(&path, end, &tails, now).context("keep a tail of", &*path)
        }) {
            Ok((path, missing)) => {
                writer.keeps_tails = true;
                tracing::warn!(partition = %self.partition, path = %path.display(), missing_bytes = missing, "what is cut off is kept aside");
            }
            Err(fault) => {
                tracing::warn!(partition = %self.partition, error = &fault as &dyn std::error::Error, "what is cut off could not be kept aside");
            }
        }
    }

    /// Where the batches lie that reach `end` or come after it.
    fn tails(&self, end: Offset) -> Result<Vec<Tail>, Fault> {
        let (views, _) = self.views();
        let first = views.partition_point(|view| view.base <= end).saturating_sub(1);
        let mut tails = Vec::new();
        for (index, view) in views.iter().enumerate().skip(first) {
            let file = view.log(&self.shared)?;
            let from = match index == first && view.base < end {
                true => view.find(&self.shared, &file, end)?.map_or(view.size, |one| one.position),
                false => 0,
            };
            tails.push(Tail { file, from, to: view.size });
        }
        Ok(tails)
    }

    /// Removes what was kept aside for long enough.
    pub(crate) fn forget_old_tails(&self, now: Timestamp) {
        let Some(mut writer) = self.writer.try_lock() else { return };
        if !writer.keeps_tails || self.check_usable(&writer).is_err() {
            return;
        }
        match kept_tail::forget_old(&self.path(), now) {
            Ok(are_left) => writer.keeps_tails = are_left,
            Err(error) => {
                tracing::warn!(partition = %self.partition, %error, "could not remove what was kept aside")
            }
        }
    }

    fn restart_at(&self, writer: &mut Writer, end: Offset, start: Offset) -> Result<(), Fault> {
        let path = self.path();
        let old = self.state.lock().segments.clone();
        // The new file may have the name of an old one, so it is renamed when those are; it is made before, for that
        // may fail on a full disk. A reader that finds a file gone waits for the writer, and looks again.
        let name = path.join(segment_files::name(end, LOG));
        let prepared = path.join(segment_files::name(end, LOG) + CLEANED);
        // The cleaner may have a file of this name, which it must not go on to write.
        atomic_file::remove_if_exists(&prepared).context("remove", &prepared)?;
        fs::write(&prepared, []).context("create", &prepared)?;
        self.delete_segments(writer, &old);
        for offset in std::mem::take(&mut writer.snapshots) {
            let path = path.join(segment_files::name(offset, SNAPSHOT));
            atomic_file::remove_if_exists(&path).context("remove", path)?;
        }
        #[cfg(test)]
        crate::faults::before_step();
        fs::rename(&prepared, name).context("rename", prepared)?;
        let segment = Segment::new(&self.shared, end);
        let mut state = self.state.lock();
        state.segments = vec![segment];
        state.start = start.min(end);
        state.end = end;
        state.high_watermark = end;
        writer.epochs_dirty |= state.epochs.clear();
        state.producers.clear();
        self.note_truncation(writer, &mut state, end);
        writer.last_snapshot = Offset::ZERO;
        Ok(())
    }

    fn note_truncation(&self, writer: &mut Writer, state: &mut State, end: Offset) {
        state.recent = None;
        state.bound = None;
        state.generation = state.generation.wrapping_add(1);
        state.publish(&self.offsets);
        self.cleaning.lock().truncate(state.active().base);
        writer.active = None;
        writer.must_cut = false;
        writer.directory_dirty = true;
        writer.recovery_point = writer.recovery_point.min(end);
        self.shared.note_truncation();
        self.shared.want_attention(&self.partition);
    }

    fn truncate_segments(&self, writer: &mut Writer, end: Offset) -> Result<(), Fault> {
        let view = {
            let state = self.state.lock();
            let index = state.segment_index(end);
            state.segments[index].view(&state.path, index + 1 == state.segments.len())
        };
        let cut = self.prepare_cut(&view, end)?;
        self.drop_segments_after(writer, end)?;
        let file = view.log(&self.shared)?;
        #[cfg(test)]
        crate::faults::before_step();
        file.set_len(cut.size).context("truncate", view.path(LOG))?;
        view.forget(&self.shared);
        {
            let mut state = self.state.lock();
            *state.active_mut() = cut;
            // The batches that are left may end before `end`, where one reached beyond it; the next append is at
            // `end` all the same.
            state.end = end;
            state.start = state.start.min(end);
            state.high_watermark = state.high_watermark.min(end);
            writer.epochs_dirty |= state.epochs.truncate_from_end(end);
            self.note_truncation(writer, &mut state, end);
        }
        #[cfg(test)]
        crate::faults::before_step();
        self.remove_snapshots_after(writer, end)?;
        let mut producers = self.replay_to(writer, end)?;
        let mut state = self.state.lock();
        producers.forget_replicated(state.high_watermark);
        producers.count_in(&self.shared.producers);
        state.producers = producers;
        state.publish(&self.offsets);
        Ok(())
    }

    /// Drops the segments that begin after `end`. The last one goes first, so that a crash on the way leaves a log that
    /// ends earlier, and none with a hole.
    fn drop_segments_after(&self, writer: &mut Writer, end: Offset) -> Result<(), Fault> {
        loop {
            let dropped = {
                let mut state = self.state.lock();
                let base = state.active().base;
                if base <= end {
                    break;
                }
                let dropped = state.segments.pop();
                state.end = base;
                state.start = state.start.min(base);
                state.high_watermark = state.high_watermark.min(base);
                writer.epochs_dirty |= state.epochs.truncate_from_end(base);
                self.note_truncation(writer, &mut state, base);
                dropped
            };
            self.delete_segments(writer, dropped.as_slice());
        }
        if writer.directory_dirty {
            let path = self.path();
            atomic_file::sync_directory(&path).context("sync", &*path)?;
        }
        Ok(())
    }

    /// The segment as it will be, cut at the first batch that reaches `end` or beyond. Its indexes are made again up to
    /// there: that they are shorter than the log does no harm.
    fn prepare_cut(&self, view: &SegmentView, end: Offset) -> Result<Segment, Fault> {
        let shared = &self.shared;
        let file = view.log(shared)?;
        let interval = u64::from(self.config().index_interval_bytes);
        let mut builder = IndexBuilder::new(view.base, interval);
        let mut size = 0;
        let mut scan = HeaderScan::new(&file, 0, view.size);
        while let Some(found) =
            scan.next().map_err(io::Error::from).context("read", view.path(LOG))?
        {
            if found.header.last_offset >= end {
                break;
            }
            builder.add(&found);
            size = found.end();
        }
        let transactions = self.transactions_if_any(view)?;
        let mut segment = Segment::new(shared, view.base);
        let new = segment.view(&view.directory, true);
        let id = |number| FileId(new.id.0 + number);
        #[cfg(test)]
        crate::faults::before_step();
        view.replace_index(shared, id(1), OFFSET_INDEX, &index::encode(&builder.offsets))?;
        #[cfg(test)]
        crate::faults::before_step();
        view.replace_index(shared, id(2), TIME_INDEX, &index::encode(&builder.times))?;
        if let Some(mut transactions) = transactions {
            transactions.retain(|transaction| transaction.last_offset < end);
            let path = view.path(TRANSACTION_INDEX);
            let bytes = transaction_index::encode(&transactions);
            atomic_file::replace_unsynced(&path, &bytes).context("write", path)?;
            segment.has_transaction_index = true;
        }
        segment.size = size;
        segment.offsets = Index { stored: Some(builder.offsets.len() as u32), tail: Vec::new() };
        segment.times = Index { stored: Some(builder.times.len() as u32), tail: Vec::new() };
        segment.largest = Some(builder.largest);
        Ok(segment)
    }

    fn transactions_if_any(
        &self,
        view: &SegmentView,
    ) -> Result<Option<Vec<transaction_index::AbortedTransaction>>, Fault> {
        let has_index = {
            let state = self.state.lock();
            let segment = &state.segments[state.segment_index(view.base)];
            segment.id == view.id && segment.has_transaction_index
        };
        match has_index {
            true => Ok(Some(self.transactions(view)?.to_vec())),
            false => Ok(None),
        }
    }

    fn remove_snapshots_after(&self, writer: &mut Writer, end: Offset) -> Result<(), Fault> {
        let path = self.path();
        let kept = writer.snapshots.partition_point(|offset| *offset <= end);
        for offset in writer.snapshots.split_off(kept) {
            let path = path.join(segment_files::name(offset, SNAPSHOT));
            atomic_file::remove_if_exists(&path).context("remove", path)?;
        }
        Ok(())
    }

    /// The producers at the log's end, from the newest snapshot and the batches after it.
    fn replay_to(&self, writer: &mut Writer, end: Offset) -> Result<ProducerStates, Fault> {
        let (base, view) = {
            let state = self.state.lock();
            (state.active().base, state.active().view(&state.path, true))
        };
        let mut replay = self.replay_before(base)?;
        let file = view.log(&self.shared)?;
        replay.add_segment(&view, &file, 0, base, end)?;
        let now = common::clock::wall_clock();
        replay.producers.expire(now, self.config().producer_id_expiration_ms);
        writer.last_snapshot = writer.snapshots.last().copied().unwrap_or(Offset::ZERO);
        Ok(replay.producers)
    }

    /// Raises the log's start: DeleteRecords, or a follower that follows its leader's. Files go later.
    ///
    /// # Errors
    /// `OffsetOutOfRange` above the high watermark.
    pub fn advance_start_offset(&self, start: Offset) -> Result<bool, LogError> {
        let mut writer = self.writer.lock();
        self.check_usable(&writer)?;
        let mut state = self.state.lock();
        if start > state.high_watermark {
            let (log_start, end) = (state.start, state.high_watermark);
            return Err(LogError::OffsetOutOfRange { offset: start, start: log_start, end });
        }
        Ok(self.raise_start(&mut writer, &mut state, start))
    }

    fn raise_start(&self, writer: &mut Writer, state: &mut State, start: Offset) -> bool {
        if start <= state.start {
            return false;
        }
        state.start = start;
        state.high_watermark = state.high_watermark.max(start);
        writer.recovery_point = writer.recovery_point.max(start);
        writer.epochs_dirty |= state.epochs.truncate_from_start(start);
        state.producers.forget_replicated(start);
        state.publish(&self.offsets);
        self.shared.want_attention(&self.partition);
        tracing::info!(partition = %self.partition, start = start.0, "raised the log start offset");
        true
    }

    /// Deletes the segments that nobody needs any more: those before the log's start, and, where the policy is to
    /// delete, those beyond `retention.bytes` and `retention.ms`. How many went.
    pub fn delete_old_segments(&self, now: Timestamp) -> Result<usize, LogError> {
        let mut writer = self.writer.lock();
        self.check_usable(&writer)?;
        let mut count = self.noting(self.delete_for(&mut writer, Reason::StartOffset, now))?;
        if self.config().delete {
            count += self.noting(self.delete_for(&mut writer, Reason::Size, now))?;
            count += self.noting(self.delete_for(&mut writer, Reason::Time, now))?;
        }
        Ok(count)
    }

    fn delete_for(
        &self,
        writer: &mut Writer,
        reason: Reason,
        now: Timestamp,
    ) -> Result<usize, Fault> {
        let count = self.count_deletable(reason, now)?;
        if count == 0 {
            return Ok(0);
        }
        if count == self.segment_count() {
            self.roll_to(writer, self.end_offset())?;
        }
        let deleted = {
            let mut state = self.state.lock();
            let start = state.segments[count].base;
            self.raise_start(writer, &mut state, start);
            state.generation = state.generation.wrapping_add(1);
            state.bound = None;
            state.segments.drain(..count).collect::<Vec<_>>()
        };
        tracing::info!(partition = %self.partition, count, ?reason, "deleting old segments");
        self.delete_segments(writer, &deleted);
        Ok(count)
    }

    /// How many of the oldest segments may go: the first that may not ends the count, as does one that is not
    /// wholly replicated. Source: `UnifiedLog.deletableSegments`.
    fn count_deletable(&self, reason: Reason, now: Timestamp) -> Result<usize, Fault> {
        let (views, start) = self.views();
        let (config, offsets) = (self.config(), self.log_offsets());
        let size: u64 = views.iter().map(|view| view.size).sum();
        let retained = u64::try_from(config.retention_bytes).unwrap_or(u64::MAX);
        let mut surplus = size.saturating_sub(retained);
        for (index, view) in views.iter().enumerate() {
            let next = views.get(index + 1).map(|next| next.base);
            let is_replicated = offsets.high_watermark >= next.unwrap_or(offsets.end);
            let is_deletable = is_replicated
                && (next.is_some() || view.size > 0)
                && match reason {
                    Reason::StartOffset => next.is_some_and(|next| next <= start),
                    Reason::Size => surplus >= view.size && size >= retained,
                    Reason::Time => self.is_too_old(&config, view, now)?,
                };
            if !is_deletable {
                return Ok(index);
            }
            surplus = surplus.saturating_sub(view.size);
        }
        Ok(views.len())
    }

    fn is_too_old(
        &self,
        config: &LogConfig,
        view: &SegmentView,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        if config.retention_ms < 0 {
            return Ok(false);
        }
        let largest = self.largest_timestamp(view)?.timestamp;
        let largest = if largest.0 >= 0 { largest } else { view.modified()? };
        Ok(config.is_too_old(largest, now))
    }
}
