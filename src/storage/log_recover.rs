//! Recovery: finding a log's end, checking what may not have been flushed, and the producers at that end.
//! Source: `LogLoader.recoverLog`, `LogSegment.recover`, `UnifiedLog.rebuildProducerState`.

use std::{fs, io};

use common::ids::{Offset, Timestamp};

use crate::{
    atomic_file,
    batch_reader::BatchReader,
    error::{Context, Fault},
    file_cache::FileId,
    index::{self, Index},
    log_load::Loader,
    producer_snapshot,
    replay::{Replay, expiry, load_snapshot},
    scan::{HeaderScan, ScanError},
    segment::{IndexBuilder, Segment, SegmentView},
    segment_files::{self, DELETED, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX},
    transaction_index::{self, AbortedTransaction},
};

impl Loader<'_> {
    /// Looks for the log's end, and recovers what may not have been flushed. The producers where that was done.
    pub(crate) fn recover(&mut self, start: Offset) -> Result<(Option<Replay>, Offset), Fault> {
        let mut from = match (self.known.clean, self.segments.len()) {
            (_, 0) => return Ok((None, Offset::ZERO)),
            (true, count) => count,
            (false, _) => {
                let point = self.known.recovery_point.unwrap_or(Offset::ZERO);
                self.segments.partition_point(|segment| segment.base <= point).saturating_sub(1)
            }
        };
        let mut end = self.segments[0].base;
        if from == self.segments.len() {
            match self.find_end()? {
                Some(found) => end = found,
                // The files are not as a clean stop leaves them.
                None => from = self.segments.len() - 1,
            }
        }
        let mut replay = None;
        if from < self.segments.len() {
            let (recovered, recovered_end) = self.recover_from(from, start)?;
            (replay, end) = (Some(recovered), recovered_end);
        }
        if end < start {
            self.discard_all(start, end)?;
            return Ok((None, end));
        }
        Ok((replay, end))
    }

    /// Everything ends before the log's start. Source: `LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd`.
    fn discard_all(&mut self, start: Offset, end: Offset) -> Result<(), Fault> {
        tracing::warn!(partition = %self.options.partition, start = start.0, end = end.0,
            "the log ends before its start offset: dropping its segments");
        for segment in std::mem::take(&mut self.segments) {
            self.delete_files(&segment)?;
        }
        self.epochs_dirty |= self.epochs.clear();
        for offset in std::mem::take(&mut self.snapshots) {
            self.remove(&segment_files::name(offset, SNAPSHOT))?;
        }
        Ok(())
    }

    /// The log's end by the last segment's index and the batches after it; `None` where these are not whole, or
    /// where the index is not that of the segment.
    fn find_end(&mut self) -> Result<Option<Offset>, Fault> {
        let segment = self.segments.last_mut().expect("there is a segment");
        if segment.size == 0 {
            // Preallocated index files of an empty segment have nothing but zeros.
            for (extension, id) in [(OFFSET_INDEX, 1), (TIME_INDEX, 2)] {
                let view = segment.view(&self.path, false);
                let path = view.path(extension);
                if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 0) {
                    let id = FileId(view.id.0 + id);
                    view.replace_index(&self.options.shared, id, extension, &[])?;
                }
            }
            let base = segment.base;
            *segment = Segment {
                has_transaction_index: segment.has_transaction_index,
                transaction_index_checked: false,
                ..Segment::new(&self.options.shared, base)
            };
            return Ok(Some(base));
        }
        let view = segment.view(&self.path, false);
        let (offsets, times) = (view.stored_offsets(&self.options.shared)?, view.stored_times()?);
        let (Some((offset_count, position)), Some(time_count)) = (offsets, times) else {
            return Ok(None);
        };
        let file = view.log(&self.options.shared)?;
        let mut scan = HeaderScan::new(&file, position, view.size);
        let mut last = None;
        loop {
            match scan.next() {
                Ok(Some(found)) => last = Some(found.header.last_offset),
                Ok(None) => break,
                Err(ScanError::Read(error)) => return Err(error).context("read", view.path(LOG)),
                Err(ScanError::NoBatch { .. }) => return Ok(None),
            }
        }
        view.forget(&self.options.shared);
        segment.offsets = Index { stored: Some(offset_count), tail: Vec::new() };
        segment.times = Index { stored: Some(time_count), tail: Vec::new() };
        let base = segment.base;
        Ok(Some(last.map_or(base, |last| last.plus(1))))
    }

    /// Recovers segments from the index on: each batch is checked, indexes and producers are made again, and the log
    /// is cut at the first batch that is wrong.
    fn recover_from(&mut self, from: usize, start: Offset) -> Result<(Replay, Offset), Fault> {
        let first_base = self.segments[from].base;
        let mut replay = self.load_producers(start, first_base)?;
        let count = self.segments.len();
        let mut end = first_base;
        for index in from..count {
            let is_last = index + 1 == count;
            let (segment_end, is_whole) = self.recover_segment(index, end, &mut replay)?;
            end = segment_end;
            if is_last {
                break;
            }
            let next = self.segments[index + 1].base;
            if !is_whole || next < end || self.is_hole(end, next) {
                tracing::warn!(partition = %self.options.partition, end = end.0, dropped = count - index - 1,
                    "corruption found: the log ends here, later segments are dropped");
                for dropped in self.segments.split_off(index + 1) {
                    self.delete_files(&dropped)?;
                }
                break;
            }
            self.write_snapshot(&replay, next)?;
        }
        self.write_snapshot(&replay, end)?;
        replay.producers.expire(self.options.now, self.options.config.producer_id_expiration_ms);
        Ok((replay, end))
    }

    /// Whether records are missing between two segments that may not have been flushed: a power cut can take the end of the
    /// earlier one, at the end of a batch too, and leave the later one. Only compaction leaves such gaps otherwise, in this
    /// log or in the leader's that it was copied from; with it nothing tells them apart. Where no recovery point is known nothing
    /// tells what was flushed, and the gap stays. Kafka takes both for gaps.
    fn is_hole(&self, end: Offset, next: Offset) -> bool {
        let is_cleaned = self.known.cleaned_to.is_some_and(|cleaned_to| next <= cleaned_to);
        let knows_flushed = self.known.recovery_point.is_some();
        next > end && knows_flushed && !self.options.config.compact && !is_cleaned
    }

    fn write_snapshot(&mut self, replay: &Replay, offset: Offset) -> Result<(), Fault> {
        if offset <= self.segments[0].base {
            return Ok(());
        }
        let path = self.path.join(segment_files::name(offset, SNAPSHOT));
        let bytes = producer_snapshot::encode(replay.producers.iter());
        self.changed |= atomic_file::replace_if_different(&path, &bytes).context("write", path)?;
        if let Err(index) = self.snapshots.binary_search(&offset) {
            self.snapshots.insert(index, offset);
        }
        Ok(())
    }

    /// Checks every batch of a segment; cuts the segment at the first wrong one. Where it ends, and whether nothing
    /// was cut off.
    fn recover_segment(
        &mut self,
        index: usize,
        end: Offset,
        replay: &mut Replay,
    ) -> Result<(Offset, bool), Fault> {
        let view = self.segments[index].view(&self.path, false);
        let path = view.path(LOG);
        let file = view.log(&self.options.shared)?;
        let interval = u64::from(self.options.config.index_interval_bytes);
        let mut builder = IndexBuilder::new(view.base, interval);
        let mut aborted = Vec::new();
        let mut reader = BatchReader::new(&file, view.size);
        let mut end = end.max(view.base);
        let reason = loop {
            let next = reader.next().context("read", &path)?;
            let (found, bytes) = match next {
                Ok(Some(next)) => next,
                Ok(None) => break None,
                Err(reason) => break Some(reason),
            };
            let header = &found.header;
            if header.first_or_last_offset() < end {
                break Some(format!("offset {} after {end}", header.first_or_last_offset()));
            }
            if index::relative(view.base, header.last_offset).is_none() && view.base < end {
                tracing::warn!(path = %path.display(), "segment holds offsets too far from its base");
            }
            builder.add(&found);
            end = header.last_offset.plus(1);
            if header.magic >= 2
                && header.leader_epoch.0 >= 0
                && self.epochs.latest().is_none_or(|latest| header.leader_epoch > latest)
            {
                self.epochs_dirty |=
                    self.epochs.assign(header.leader_epoch, header.first_or_last_offset());
            }
            replay.add(header, &|| Ok(bytes.to_vec()), &mut aborted).context("read", &path)?;
        };
        let size = reader.position();
        if let Some(reason) = &reason {
            tracing::warn!(path = %path.display(), position = size, cut = view.size - size, reason,
                "cutting off what is no batch");
            file.set_len(size).context("truncate", &path)?;
            self.changed = true;
        }
        self.write_recovered(index, &view, size, &mut builder, &aborted)?;
        view.forget(&self.options.shared);
        Ok((end, reason.is_none()))
    }

    fn write_recovered(
        &mut self,
        index: usize,
        view: &SegmentView,
        size: u64,
        builder: &mut IndexBuilder,
        aborted: &[AbortedTransaction],
    ) -> Result<(), Fault> {
        builder.seal();
        let shared = &self.options.shared;
        let id = |number| FileId(view.id.0 + number);
        for (id, extension, bytes) in [
            (id(1), OFFSET_INDEX, index::encode(&builder.offsets)),
            (id(2), TIME_INDEX, index::encode(&builder.times)),
        ] {
            // An empty segment needs no index files; they are made when it is closed.
            if size > 0 || view.path(extension).exists() {
                self.changed |= view.replace_index(shared, id, extension, &bytes)?;
            }
        }
        let segment = &mut self.segments[index];
        let path = view.path(TRANSACTION_INDEX);
        if segment.has_transaction_index || !aborted.is_empty() {
            let bytes = transaction_index::encode(aborted);
            atomic_file::replace_unsynced(&path, &bytes).context("write", path)?;
        }
        segment.has_transaction_index |= !aborted.is_empty();
        segment.transaction_index_checked = true;
        segment.size = size;
        segment.offsets.stored = Some(builder.offsets.len() as u32);
        segment.times.stored = Some(builder.times.len() as u32);
        segment.largest = Some(builder.largest);
        Ok(())
    }

    fn delete_files(&mut self, segment: &Segment) -> Result<(), Fault> {
        segment.view(&self.path, false).forget(&self.options.shared);
        let delay_ms = self.options.config.file_delete_delay_ms;
        let due = Timestamp(self.options.now.0.saturating_add(delay_ms));
        for extension in [LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT] {
            let name = segment_files::name(segment.base, extension);
            let from = self.path.join(&name);
            let deleted = format!("{name}{DELETED}");
            match fs::rename(&from, self.path.join(&deleted)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                result => result.context("rename", from)?,
            }
            self.deletions.push((due, deleted));
        }
        self.snapshots.retain(|offset| *offset != segment.base);
        self.changed = true;
        Ok(())
    }

    /// The producers as they were before the offset. Source: `UnifiedLog.rebuildProducerState`.
    pub(crate) fn load_producers(&mut self, start: Offset, end: Offset) -> Result<Replay, Fault> {
        let start = self.segments.first().map_or(start, |segment| start.max(segment.base));
        self.remove_stray_snapshots(end)?;
        let mut replay = Replay::default();
        if self.segments.is_empty() || (self.snapshots.is_empty() && self.known.clean) {
            self.note_no_producers(end)?;
            return Ok(replay);
        }
        let now = self.options.now;
        let expire = expiry(now, self.options.config.producer_id_expiration_ms);
        let mut from = start;
        while let Some(offset) = self.snapshots.iter().copied().rfind(|offset| *offset <= end) {
            if offset <= start && offset < end {
                break;
            }
            match load_snapshot(&self.path, offset, &expire)? {
                Some(producers) => {
                    replay.producers = producers;
                    from = offset;
                    break;
                }
                None => {
                    self.remove(&segment_files::name(offset, SNAPSHOT))?;
                    self.snapshots.retain(|known| *known != offset);
                }
            }
        }
        if from < end {
            self.replay_range(&mut replay, from, end)?;
            if self.known.clean {
                self.write_snapshot(&replay, end)?;
            }
        }
        Ok(replay)
    }

    fn replay_range(&self, replay: &mut Replay, from: Offset, end: Offset) -> Result<(), Fault> {
        let first = self.segments.partition_point(|segment| segment.base <= from).saturating_sub(1);
        for segment in self.segments[first..].iter().filter(|segment| segment.base < end) {
            let view = segment.view(&self.path, false);
            let file = view.log(&self.options.shared)?;
            let position = match from > view.base {
                true => view.position_before(&self.options.shared, &file, from)?,
                false => 0,
            };
            replay.add_segment(&view, &file, position, from, end)?;
        }
        Ok(())
    }

    /// A clean stop without any snapshot: there were no producers, and empty snapshots say so from now on.
    fn note_no_producers(&mut self, end: Offset) -> Result<(), Fault> {
        let count = self.segments.len();
        let mut offsets: Vec<Offset> =
            self.segments[count.saturating_sub(2)..].iter().map(|segment| segment.base).collect();
        offsets.push(end);
        for offset in offsets {
            if !self.segments.is_empty() {
                self.write_snapshot(&Replay::default(), offset)?;
            }
        }
        Ok(())
    }
}
