//! What a log does to its files apart from appends: new segments, flushes, snapshots, epochs, the last steps of a close.

use std::{fs, path::Path, sync::Arc};

use common::{
    clock,
    ids::{Offset, Timestamp},
};
use rustix::fs::FallocateFlags;

use crate::{
    atomic_file, checkpoint,
    error::{Context, Fault, LogError},
    file_cache::FileId,
    leader_epochs::LEADER_EPOCH_FILE,
    log::{Active, Log, Writer},
    log_config::LogConfig,
    partition_metadata, producer_snapshot,
    scan::{HeaderScan, read_batch},
    segment::{Segment, SegmentView},
    segment_files::{self, DELETED, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX},
    shared::open_or_create,
    transaction_index::{self, AbortedTransaction},
};

/// Largest file of aborted transactions that is read: ten million entries.
const TRANSACTION_INDEX_SIZE_MAX: u64 = 340_000_000;

impl Log {
    /// Begins a new segment at the log's end, if the active one has batches. Its base offset.
    pub fn roll(&self) -> Result<Offset, LogError> {
        let mut writer = self.writer.lock();
        self.check_usable(&writer)?;
        let end = self.end_offset();
        if self.state.lock().active().size > 0 {
            self.noting(self.roll_to(&mut writer, end))?;
        }
        Ok(end)
    }

    /// Notes a fault on its way to the caller.
    pub(crate) fn noting<T>(&self, result: Result<T, Fault>) -> Result<T, LogError> {
        result.map_err(|fault| {
            self.note_fault(&fault);
            LogError::Fault(fault)
        })
    }

    /// Begins a new segment at `base`, which is the log's end or, in a follower, beyond it.
    pub(crate) fn roll_to(&self, writer: &mut Writer, base: Offset) -> Result<(), Fault> {
        let is_empty = {
            let state = self.state.lock();
            state.active().size == 0
        };
        let old = match is_empty {
            true => None,
            false => {
                self.seal(writer)?;
                let state = self.state.lock();
                Some(state.active().view(&state.path, false))
            }
        };
        let path = self.path();
        let mut segment = Segment::new(&self.shared, base);
        create_log(&self.shared.files, &path, &mut segment, &self.config())?;
        writer.directory_dirty = true;
        let removed = {
            let mut state = self.state.lock();
            let removed = if is_empty { state.segments.pop() } else { None };
            state.segments.push(segment);
            state.recent = None;
            state.bound = None;
            removed
        };
        if let Some(removed) = removed.filter(|removed| removed.base != base) {
            self.delete_segments(writer, &[removed]);
        }
        writer.active = Some(Box::new(Active {
            created: clock::wall_clock(),
            first_timestamp: None,
            last_time_entry: Timestamp::NONE,
            bytes_since_index: 0,
            jitter_ms: {
                let random = self.shared.random();
                self.state.lock().config.segment_jitter(random)
            },
        }));
        self.take_snapshot(writer, base)?;
        if old.is_some() {
            tracing::debug!(partition = %self.partition, base = base.0, "rolled a new segment");
            self.shared.want_attention(&self.partition);
        }
        Ok(())
    }

    /// Gives back what was reserved for the active segment and is not used. Source: `preallocate`.
    fn give_back_preallocated(&self) -> Result<(), Fault> {
        if !self.config().preallocate {
            return Ok(());
        }
        let view = {
            let state = self.state.lock();
            state.active().view(&state.path, true)
        };
        view.log(&self.shared)?.set_len(view.size).context("cut off", view.path(LOG))
    }

    /// Ends the active segment: its largest timestamp enters the time index, and the indexes are written.
    fn seal(&self, writer: &mut Writer) -> Result<(), Fault> {
        self.load_active(writer)?;
        let last = writer.active.as_ref().map_or(Timestamp::NONE, |active| active.last_time_entry);
        {
            let mut state = self.state.lock();
            let segment = state.active_mut();
            if let Some(largest) = segment.largest
                && largest.timestamp > last
                && let Some(relative) = crate::index::relative(segment.base, largest.offset)
            {
                let timestamp = largest.timestamp;
                segment.times.tail.push(crate::index::TimeEntry { timestamp, relative });
                if let Some(active) = &mut writer.active {
                    active.last_time_entry = timestamp;
                }
            }
        }
        self.write_index_tails(writer)?;
        let (path, base, offsets, times) = {
            let state = self.state.lock();
            let active = state.active();
            (state.path.clone(), active.base, active.offsets.len(), active.times.len())
        };
        self.give_back_preallocated()?;
        // Kafka expects the files, even without entries.
        for (extension, count) in [(OFFSET_INDEX, offsets), (TIME_INDEX, times)] {
            if count == 0 {
                let path = path.join(segment_files::name(base, extension));
                open_or_create(&path).context("create", path)?;
            }
        }
        Ok(())
    }

    /// Writes the producers as they are at `offset`, if they were not written there before. Not synced: a snapshot
    /// has a checksum, and what is lost is found again by replaying the log.
    pub(crate) fn take_snapshot(&self, writer: &mut Writer, offset: Offset) -> Result<(), Fault> {
        if offset <= writer.last_snapshot {
            return Ok(());
        }
        let (path, bytes) = {
            let state = self.state.lock();
            let name = segment_files::name(offset, SNAPSHOT);
            (state.path.join(name), producer_snapshot::encode(state.producers.iter()))
        };
        atomic_file::replace_unsynced(&path, &bytes).context("write", path)?;
        writer.last_snapshot = offset;
        if let Err(index) = writer.snapshots.binary_search(&offset) {
            writer.snapshots.insert(index, offset);
        }
        writer.directory_dirty = true;
        Ok(())
    }

    /// Syncs everything below the log's end.
    ///
    /// # Errors
    /// A failed sync puts the directory offline: what was written before it may be lost.
    pub fn flush(&self) -> Result<(), LogError> {
        self.flush_up_to(self.end_offset())
    }

    /// Syncs all segments but the active one, as is done after a roll.
    pub fn flush_sealed(&self) -> Result<(), LogError> {
        let base = self.state.lock().active().base;
        self.flush_up_to(base)
    }

    /// Syncs what lies below `offset` and above the recovery point, which moves there. Appends go on meanwhile.
    fn flush_up_to(&self, offset: Offset) -> Result<(), LogError> {
        let (views, generation) = {
            let mut writer = self.writer.lock();
            self.check_usable(&writer)?;
            if offset <= writer.recovery_point {
                return Ok(());
            }
            self.noting(self.write_epochs(&mut writer, true))?;
            (self.unflushed(&writer, offset), self.state.lock().generation)
        };
        self.noting(self.sync_views(&views))?;
        let mut writer = self.writer.lock();
        self.noting(self.sync_directory(&mut writer))?;
        // After a truncation the offset may stand for other records than those that were synced.
        if self.state.lock().generation == generation {
            writer.recovery_point = writer.recovery_point.max(offset);
        }
        writer.last_flush = clock::wall_clock();
        Ok(())
    }

    fn unflushed(&self, writer: &Writer, offset: Offset) -> Vec<(SegmentView, bool)> {
        let state = self.state.lock();
        let last = state.segments.len() - 1;
        let first = state.segment_index(writer.recovery_point);
        let segments = state.segments.iter().enumerate().skip(first);
        segments
            .filter(|(_, segment)| segment.base < offset)
            .map(|(index, segment)| (segment.view(&state.path, index == last), index < last))
            .collect()
    }

    fn sync_views(&self, views: &[(SegmentView, bool)]) -> Result<(), Fault> {
        for (view, is_sealed) in views {
            let began = clock::now();
            match view.sync(&self.shared, *is_sealed) {
                // Deleted meanwhile, so there is nothing to sync.
                Err(fault) if fault.source.kind() == std::io::ErrorKind::NotFound => {}
                result => result?,
            }
            if let Some(times) = self.shared.flush_times.get() {
                times.update(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
            }
        }
        Ok(())
    }

    fn sync_directory(&self, writer: &mut Writer) -> Result<(), Fault> {
        if writer.topic_id_unsynced {
            partition_metadata::sync(&self.path()).context("sync", &*self.path())?;
            writer.topic_id_unsynced = false;
        }
        if writer.directory_dirty {
            let path = self.path();
            atomic_file::sync_directory(&path).context("sync", &*path)?;
            writer.directory_dirty = false;
        }
        Ok(())
    }

    /// Flushes inside an append, where `flush.messages` says so.
    pub(crate) fn flush_if_due(&self, writer: &mut Writer) -> Result<(), Fault> {
        let (end, limit) = {
            let state = self.state.lock();
            (state.end, state.config.flush_messages)
        };
        if end.0 - writer.recovery_point.0 < limit {
            return Ok(());
        }
        self.write_epochs(writer, true)?;
        let views = self.unflushed(writer, end);
        self.sync_views(&views)?;
        self.sync_directory(writer)?;
        writer.recovery_point = end;
        writer.last_flush = clock::wall_clock();
        Ok(())
    }

    /// Writes the leader epochs to their file, if they are not there yet.
    pub(crate) fn write_epochs(&self, writer: &mut Writer, sync: bool) -> Result<(), Fault> {
        if !writer.epochs_dirty {
            return Ok(());
        }
        let (path, text) = {
            let state = self.state.lock();
            (state.path.join(LEADER_EPOCH_FILE), checkpoint::format_epochs(state.epochs.entries()))
        };
        let written = match sync {
            true => atomic_file::write_unsynced_directory(&path, text.as_bytes()),
            false => atomic_file::replace_unsynced(&path, text.as_bytes()),
        };
        written.context("write", path)?;
        writer.epochs_dirty = false;
        writer.directory_dirty = true;
        Ok(())
    }

    /// What is due between appends: the topic's id and the epochs to their files, index entries of an idle log,
    /// deletions. With `sync` false the caller syncs the file system afterwards. Whether there is more to do later.
    pub(crate) fn maintain(&self, now: Timestamp, sync: bool) -> Result<bool, LogError> {
        // A writer at work is not waited for: it will be idle at another time.
        let Some(mut writer) = self.writer.try_lock() else { return Ok(true) };
        if self.check_usable(&writer).is_err() {
            return Ok(false);
        }
        // First, since on a full disk it makes the room that the rest needs.
        self.delete_due_files(&mut writer, now);
        let result = self.maintain_files(&mut writer, sync);
        self.noting(result)?;
        Ok(!writer.deletions.is_empty())
    }

    /// Writes and syncs the leader epochs, if they are not on disk yet.
    pub(crate) fn write_epochs_now(&self) -> Result<(), LogError> {
        let mut writer = self.writer.lock();
        self.noting(self.write_epochs(&mut writer, true))
    }

    fn maintain_files(&self, writer: &mut Writer, sync: bool) -> Result<(), Fault> {
        self.write_epochs(writer, sync)?;
        match sync {
            true => self.sync_directory(writer)?,
            false => (writer.directory_dirty, writer.topic_id_unsynced) = (false, false),
        }
        let has_tails = {
            let state = self.state.lock();
            let active = state.active();
            !active.offsets.tail.is_empty() || !active.times.tail.is_empty()
        };
        if has_tails { self.write_index_tails(writer) } else { Ok(()) }
    }

    /// Whether `flush.ms` is over for what was appended since the last flush.
    pub fn is_flush_due(&self, now: Timestamp) -> bool {
        let writer = self.writer.lock();
        let state = self.state.lock();
        let waited_ms = now.0.saturating_sub(writer.last_flush.0);
        waited_ms >= state.config.flush_ms && state.end > writer.recovery_point
    }

    /// Adds aborted transactions to the active segment's index. A failure leaves the index to be made again from the
    /// batches when it is next asked for.
    pub(crate) fn append_aborted(&self, aborted: &[AbortedTransaction]) {
        let view = {
            let mut state = self.state.lock();
            state.active_mut().has_transaction_index = true;
            state.active().view(&state.path, false)
        };
        let path = view.path(TRANSACTION_INDEX);
        let appended =
            fs::File::options().append(true).create(true).open(&path).and_then(|mut file| {
                std::io::Write::write_all(&mut file, &transaction_index::encode(aborted))
            });
        let mut state = self.state.lock();
        if let Err(error) = appended {
            tracing::warn!(path = %path.display(), %error, "could not note an aborted transaction");
            state.active_mut().transaction_index_checked = false;
        }
        state.index_changes = state.index_changes.wrapping_add(1);
        self.shared.transactions.remove(view.transaction_index_id());
        state.unindexed = None;
        state.publish(&self.offsets);
    }

    /// The aborted transactions whose markers are in a segment. The file is compared with the batches at its first use.
    pub(crate) fn transactions(
        &self,
        view: &SegmentView,
    ) -> Result<Arc<Vec<AbortedTransaction>>, Fault> {
        let id = view.transaction_index_id();
        let (is_checked, changes) = {
            let state = self.state.lock();
            let segment = &state.segments[state.segment_index(view.base)];
            let is_checked = segment.id == view.id && segment.transaction_index_checked;
            (is_checked, state.index_changes)
        };
        let path = view.path(TRANSACTION_INDEX);
        if is_checked {
            if let Some(known) = self.shared.transactions.find(id) {
                return Ok(known);
            }
            let bytes =
                atomic_file::read(&path, TRANSACTION_INDEX_SIZE_MAX).context("read", &path)?;
            let decoded = transaction_index::decode(&bytes.unwrap_or_default(), view.base);
            let malformed = || std::io::Error::from(std::io::ErrorKind::InvalidData);
            let decoded = Arc::new(decoded.ok_or_else(malformed).context("read", path)?);
            if self.state.lock().index_changes == changes {
                self.shared.transactions.insert(id, decoded.clone());
            }
            return Ok(decoded);
        }
        let found = atomic_file::read(&path, TRANSACTION_INDEX_SIZE_MAX).context("read", &path)?;
        let right = transaction_index::encode(&self.find_aborted(view)?);
        if found.as_ref() != Some(&right) {
            // Compaction removes what an aborted transaction wrote, and leaves its marker and its entry a while.
            match self.config().compact {
                true => {
                    tracing::debug!(path = %path.display(), "index has too much, rebuilding it")
                }
                false => {
                    tracing::warn!(path = %path.display(), "index is wrong, rebuilding it");
                }
            }
            atomic_file::replace_unsynced(&path, &right).context("write", &path)?;
        }
        let transactions =
            Arc::new(transaction_index::decode(&right, view.base).unwrap_or_default());
        let mut state = self.state.lock();
        let index = state.segment_index(view.base);
        let segment = &mut state.segments[index];
        if segment.id == view.id && segment.size == view.size {
            segment.transaction_index_checked = true;
            self.shared.transactions.insert(id, transactions.clone());
        }
        Ok(transactions)
    }

    /// Aborted transactions as the batches of a segment tell them, given the producers at its beginning.
    fn find_aborted(&self, view: &SegmentView) -> Result<Vec<AbortedTransaction>, Fault> {
        let mut replay = self.replay_before(view.base)?;
        let mut aborted = Vec::new();
        let file = view.log(&self.shared)?;
        let mut scan = HeaderScan::new(&file, 0, view.size);
        let fault =
            |error: std::io::Error| Fault { action: "read", path: view.path(LOG), source: error };
        while let Some(found) = scan.next().map_err(|error| fault(error.into()))? {
            let read = || read_batch(&file, &found);
            replay.add(&found.header, &read, &mut aborted).map_err(fault)?;
        }
        Ok(aborted)
    }

    /// Closes the log for good: everything is written, and synced unless the caller syncs the file system afterwards.
    pub(crate) fn close(&self, sync: bool) -> Result<(), LogError> {
        let mut writer = self.writer.lock();
        self.check_usable(&writer)?;
        let result = self.close_files(&mut writer, sync);
        self.noting(result)?;
        self.abandon(&mut writer);
        Ok(())
    }

    /// Ends all use of the log's files.
    pub(crate) fn abandon(&self, writer: &mut Writer) {
        writer.closed = true;
        let (views, _) = self.views();
        for view in &views {
            view.forget(&self.shared);
            self.shared.transactions.remove(view.transaction_index_id());
        }
    }

    fn close_files(&self, writer: &mut Writer, sync: bool) -> Result<(), Fault> {
        let end = self.end_offset();
        let views = self.unflushed(writer, end);
        if writer.active.is_some() || writer.directory_dirty {
            self.seal(writer)?;
        }
        self.write_epochs(writer, sync)?;
        self.take_snapshot(writer, end)?;
        if sync {
            let views: Vec<_> = views.into_iter().map(|(view, _)| (view, true)).collect();
            self.sync_views(&views)?;
            self.sync_directory(writer)?;
        }
        writer.recovery_point = end;
        Ok(())
    }

    /// Moves the log to another name in its log directory.
    pub(crate) fn rename(&self, name: &str) -> Result<(), LogError> {
        let mut writer = self.writer.lock();
        self.check_usable(&writer)?;
        let from = self.path();
        let to = self.directory.path().join(name);
        self.noting(fs::rename(&from, &to).context("rename", &*from))?;
        let mut state = self.state.lock();
        state.path = Arc::from(to);
        state.generation = state.generation.wrapping_add(1);
        writer.directory_dirty = true;
        Ok(())
    }

    /// Whether a close has anything to write or to sync.
    pub(crate) fn is_dirty(&self) -> bool {
        let writer = self.writer.lock();
        writer.active.is_some()
            || writer.epochs_dirty
            || writer.directory_dirty
            || writer.topic_id_unsynced
            || self.end_offset() > writer.recovery_point
    }

    /// Takes segments out of use: their files are renamed, and removed when the delay is over. They are no longer in
    /// the list of segments. A failure is logged: the files are found again, and dealt with, at the next start.
    pub(crate) fn delete_segments(&self, writer: &mut Writer, segments: &[Segment]) {
        self.delete_replaced(writer, segments, None);
    }

    /// As `delete_segments`, where another segment takes their place: the producers at its base are still wanted.
    pub(crate) fn delete_replaced(
        &self,
        writer: &mut Writer,
        segments: &[Segment],
        replaced_by: Option<Offset>,
    ) {
        let (path, delay_ms) = {
            let state = self.state.lock();
            (state.path.clone(), state.config.file_delete_delay_ms)
        };
        let due = Timestamp(clock::wall_clock().0.saturating_add(delay_ms));
        for segment in segments {
            let view = segment.view(&path, false);
            view.forget(&self.shared);
            self.shared.transactions.remove(view.transaction_index_id());
            let replaced = Some(segment.base) == replaced_by;
            for extension in [LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT] {
                let name = segment_files::name(segment.base, extension);
                if !(replaced && extension == SNAPSHOT) && rename_deleted(&path, &name) {
                    writer.deletions.push((due, format!("{name}{DELETED}")));
                }
            }
            if let Ok(index) = writer.snapshots.binary_search(&segment.base)
                && !replaced
            {
                writer.snapshots.remove(index);
            }
        }
        writer.directory_dirty = true;
        self.shared.want_attention(&self.partition);
    }

    fn delete_due_files(&self, writer: &mut Writer, now: Timestamp) {
        if writer.deletions.is_empty() {
            return;
        }
        let path = self.path();
        writer.deletions.retain(|(due, name)| {
            if *due > now {
                return true;
            }
            let path = path.join(name);
            if let Err(error) = atomic_file::remove_if_exists(&path) {
                tracing::warn!(path = %path.display(), %error, "could not remove a deleted file");
            }
            false
        });
    }
}

impl SegmentView {
    pub(crate) fn transaction_index_id(&self) -> FileId {
        FileId(self.id.0 + 3)
    }
}

/// Marks a file as deleted; whether it was there.
fn rename_deleted(path: &Path, name: &str) -> bool {
    let from = path.join(name);
    #[cfg(test)]
    crate::faults::before_step();
    match fs::rename(&from, path.join(format!("{name}{DELETED}"))) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => {
            tracing::warn!(path = %from.display(), %error, "could not rename a deleted file");
            false
        }
    }
}

/// Makes the empty `.log` of a new segment; leftovers of its name are removed first.
pub(crate) fn create_log(
    files: &crate::file_cache::FileCache,
    directory: &Path,
    segment: &mut Segment,
    config: &LogConfig,
) -> Result<(), Fault> {
    for extension in [TIME_INDEX, TRANSACTION_INDEX] {
        let path = directory.join(segment_files::name(segment.base, extension));
        atomic_file::remove_if_exists(&path).context("remove", path)?;
    }
    // Kafka takes a missing offset index for damage, and recovers the segment.
    let index = directory.join(segment_files::name(segment.base, OFFSET_INDEX));
    fs::File::create(&index).context("create", index)?;
    let path = directory.join(segment_files::name(segment.base, LOG));
    let file = fs::File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.context("create", &path)?;
    if config.preallocate {
        // The size stays 0, so that a crash leaves no zeros behind; only the blocks are reserved.
        let size = u64::from(config.segment_bytes);
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, size)
            .map_err(std::io::Error::from)
            .context("preallocate", path)?;
    }
    files.insert(segment.id, Arc::new(file));
    Ok(())
}
