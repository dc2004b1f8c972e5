//! Opening a log: what a crash left half-done is undone, what it left half-written is cut off.
//! Source: `LogLoader`.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::{
    ids::{Offset, Timestamp},
    topic::{TopicPartition, Uuid},
};
use parking_lot::Mutex;
use record::{batch::BatchError, entry::EntryHeader};

use crate::{
    atomic_file, checkpoint,
    epoch_check::EpochCheck,
    error::{Context, Fault, LogError},
    index::{self, Index},
    leader_epochs::{LEADER_EPOCH_FILE, LeaderEpochs},
    log::{Log, PublishedOffsets, State, Writer},
    log_config::LogConfig,
    log_files::create_log,
    partition_metadata, producer_snapshot,
    replay::{Replay, expiry, load_snapshot},
    scan::{Found, HeaderScan, ScanError, offsets_are_possible},
    segment::{IndexBuilder, Segment, SegmentView},
    segment_files::{
        self, CLEANED, DELETED, LOG, OFFSET_INDEX, SNAPSHOT, SWAP, TIME_INDEX, TRANSACTION_INDEX,
    },
    shared::{LogDirectory, Shared},
    transaction_index::{self, AbortedTransaction},
};

/// Bytes read at once by recovery.
const RECOVERY_WINDOW: usize = 1 << 20;
/// Largest `leader-epoch-checkpoint` that is read.
const EPOCHS_SIZE_MAX: u64 = 64 << 20;

/// What is needed to open a log.
pub struct LogOptions {
    /// Which partition it is of.
    pub partition: TopicPartition,
    /// The entry of `log.dirs` that it is in.
    pub directory: Arc<LogDirectory>,
    /// The replica's directory.
    pub path: PathBuf,
    /// Its settings.
    pub config: Arc<LogConfig>,
    /// What all logs share.
    pub shared: Arc<Shared>,
    /// The time, by which producers expire.
    pub now: Timestamp,
}

/// What is known of a log before it is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Whether the broker stopped cleanly: the files are then complete.
    pub clean: bool,
    /// Of the recovery point checkpoint: what lies below was flushed. 0 where there is none.
    pub recovery_point: Option<Offset>,
    /// Of the log start offset checkpoint.
    pub start: Option<Offset>,
}

/// What a directory has, by kind.
#[derive(Default)]
struct Files {
    logs: Vec<(Offset, u64)>,
    offset_indexes: Vec<Offset>,
    time_indexes: Vec<Offset>,
    transaction_indexes: Vec<Offset>,
    snapshots: Vec<Offset>,
}

/// A log while it is being opened.
struct Loader<'a> {
    options: &'a LogOptions,
    known: Known,
    path: Arc<Path>,
    segments: Vec<Segment>,
    epochs: LeaderEpochs,
    epochs_dirty: bool,
    snapshots: Vec<Offset>,
    deletions: Vec<(Timestamp, String)>,
    changed: bool,
}

impl Log {
    /// Makes a log in a directory that is not there yet: the topic's id is on disk before the log is.
    pub fn create(options: LogOptions, topic_id: Option<Uuid>) -> Result<Log, LogError> {
        let log = Log::try_create(&options, topic_id);
        log.map_err(|fault| fail(&options, fault))
    }

    fn try_create(options: &LogOptions, topic_id: Option<Uuid>) -> Result<Log, Fault> {
        let path = &options.path;
        fs::create_dir(path).context("create", path)?;
        if let Some(topic_id) = topic_id {
            partition_metadata::write(path, topic_id).context("write", path)?;
        }
        let mut segment = Segment::new(&options.shared, Offset::ZERO);
        create_log(&options.shared.files, path, &mut segment)?;
        // The descriptor is needed by the first append, which may be long in coming.
        segment.view(&Arc::from(&**path), true).forget(&options.shared);
        let loader = Loader::new(options, Known::default());
        let mut log = loader.finish(
            vec![segment],
            Offset::ZERO,
            Offset::ZERO,
            Replay::default(),
            Offset::ZERO,
        );
        log.state.get_mut().topic_id = topic_id;
        let writer = log.writer.get_mut();
        (writer.directory_dirty, writer.topic_id_unsynced) = (true, topic_id.is_some());
        log.shared.want_attention(&log.partition);
        Ok(log)
    }

    /// Opens a log that is there, and repairs it where it has to be.
    pub fn open(options: LogOptions, known: Known) -> Result<Log, LogError> {
        let mut loader = Loader::new(&options, known);
        let log = loader.load();
        log.map_err(|fault| fail(&options, fault))
    }

    /// Gives a log of before Kafka 2.8 its topic's id. One that has another keeps it; what it then has.
    pub fn assign_topic_id(&self, topic_id: Uuid) -> Result<Uuid, LogError> {
        let mut writer = self.writer.lock();
        self.check_usable(&writer)?;
        if let Some(known) = self.topic_id() {
            return Ok(known);
        }
        let path = self.path();
        self.noting(partition_metadata::write(&path, topic_id).context("write", &*path))?;
        (writer.directory_dirty, writer.topic_id_unsynced) = (true, true);
        self.shared.want_attention(&self.partition);
        self.state.lock().topic_id = Some(topic_id);
        Ok(topic_id)
    }
}

fn fail(options: &LogOptions, fault: Fault) -> LogError {
    match fault.is_disk_full() {
        true => options.directory.set_full(true),
        false => options.directory.fail(&fault),
    }
    LogError::Fault(fault)
}

impl<'a> Loader<'a> {
    fn new(options: &'a LogOptions, known: Known) -> Loader<'a> {
        Loader {
            options,
            known,
            path: Arc::from(&*options.path),
            segments: Vec::new(),
            epochs: LeaderEpochs::default(),
            epochs_dirty: false,
            snapshots: Vec::new(),
            deletions: Vec::new(),
            changed: false,
        }
    }

    fn load(&mut self) -> Result<Log, Fault> {
        self.finish_swaps()?;
        let files = self.list_files()?;
        self.remove_orphans(&files)?;
        self.snapshots = files.snapshots.clone();
        self.load_epochs()?;
        self.segments = files
            .logs
            .iter()
            .map(|(base, size)| {
                let mut segment = Segment::found(&self.options.shared, *base, *size);
                segment.has_transaction_index =
                    files.transaction_indexes.binary_search(base).is_ok();
                segment
            })
            .collect();
        let checkpoint_start = self.start_checkpoint();
        let (replay, end) = self.recover(checkpoint_start)?;
        let replay = match replay {
            Some(replay) if end >= checkpoint_start => replay,
            _ => self.load_producers(checkpoint_start, end)?,
        };
        let end = end.max(checkpoint_start);
        if self.segments.is_empty() {
            let mut segment = Segment::new(&self.options.shared, checkpoint_start);
            create_log(&self.options.shared.files, &self.path, &mut segment)?;
            self.changed = true;
            self.segments.push(segment);
        }
        let start = checkpoint_start.max(self.segments[0].base);
        self.epochs_dirty |= self.epochs.truncate_from_end(end);
        self.epochs_dirty |= self.epochs.truncate_from_start(start);
        self.check_epochs(start)?;
        let recovery_point = match self.known.clean {
            true => end,
            false => self.known.recovery_point.unwrap_or(Offset::ZERO).min(end),
        };
        let topic_id = self.read_topic_id()?;
        let segments = std::mem::take(&mut self.segments);
        let mut log = self.finish(segments, start, end, replay, recovery_point);
        log.state.get_mut().topic_id = topic_id;
        Ok(log)
    }

    /// Makes the leader epochs again from the batches, where the file does not agree with them.
    fn check_epochs(&mut self, start: Offset) -> Result<(), Fault> {
        let last = self.segments.len() - 1;
        let views: Vec<SegmentView> = self
            .segments
            .iter()
            .enumerate()
            .map(|(index, segment)| segment.view(&self.path, index == last))
            .collect();
        let check = EpochCheck { shared: &self.options.shared, views: &views, start };
        if !check.is_right(&self.epochs)? {
            tracing::warn!(partition = %self.options.partition,
                "the leader epochs are not those of the batches, rebuilding them");
            self.epochs = check.rebuild()?;
            self.epochs_dirty = true;
        }
        if let Some(active) = views.last() {
            active.forget(&self.options.shared);
        }
        Ok(())
    }

    fn finish(
        &self,
        segments: Vec<Segment>,
        start: Offset,
        end: Offset,
        replay: Replay,
        recovery_point: Offset,
    ) -> Log {
        let options = self.options;
        let mut producers = replay.producers;
        producers.evict(options.config.producers_max);
        let state = State {
            path: self.path.clone(),
            config: options.config.clone(),
            segments,
            start,
            end,
            high_watermark: start,
            epochs: self.epochs.clone(),
            producers,
            recent: None,
            bound: None,
            topic_id: None,
            generation: 0,
        };
        let writer = Writer {
            active: None,
            recovery_point: recovery_point.max(start),
            last_snapshot: self.snapshots.last().copied().unwrap_or(start).min(end),
            snapshots: self.snapshots.clone(),
            deletions: self.deletions.clone(),
            epochs_dirty: self.epochs_dirty,
            topic_id_unsynced: false,
            directory_dirty: self.changed,
            must_cut: false,
            last_flush: options.now,
            closed: false,
        };
        let log = Log {
            partition: options.partition.clone(),
            directory: options.directory.clone(),
            shared: options.shared.clone(),
            offsets: PublishedOffsets::new(),
            writer: Mutex::new(writer),
            state: Mutex::new(state),
        };
        log.state.lock().publish(&log.offsets);
        log
    }

    /// Ends replacements of segments that a crash interrupted. Source: `LogLoader.load`, its first three passes.
    fn finish_swaps(&mut self) -> Result<(), Fault> {
        let names = self.names()?;
        let ending = |suffix: &'static str| names.iter().filter(move |name| name.ends_with(suffix));
        for name in ending(DELETED) {
            self.remove(name)?;
        }
        let offset = |name: &String| segment_files::offset(name).unwrap_or(Offset(i64::MAX));
        let cleaned_from = ending(CLEANED).map(offset).min();
        let is_valid = |name: &&String| cleaned_from.is_none_or(|from| offset(name) < from);
        for name in ending(SWAP).filter(|name| !is_valid(name)).chain(ending(CLEANED)) {
            self.remove(name)?;
        }
        let swaps: Vec<&String> = ending(SWAP).filter(is_valid).collect();
        if swaps.is_empty() {
            return Ok(());
        }
        let range = self.swap_range(&swaps)?;
        for name in names.iter().filter(|name| !name.ends_with(SWAP)) {
            if let Some(offset) = segment_files::offset(name)
                && range.contains(&offset)
            {
                self.remove(name)?;
            }
        }
        for name in swaps {
            let from = self.path.join(name);
            let to = self.path.join(name.trim_end_matches(SWAP));
            fs::rename(&from, to).context("rename", from)?;
        }
        self.changed = true;
        Ok(())
    }

    /// Offsets that the replacing segments cover.
    fn swap_range(&self, swaps: &[&String]) -> Result<std::ops::Range<Offset>, Fault> {
        let mut range = Offset(i64::MAX)..Offset(i64::MIN);
        for name in swaps.iter().filter(|name| name.contains(LOG)) {
            let Some(base) = segment_files::offset(name) else { continue };
            let path = self.path.join(name);
            let file = File::open(&path).context("open", &path)?;
            let size = file.metadata().context("look at", &path)?.len();
            let mut scan = HeaderScan::new(&file, 0, size);
            let mut next = base;
            // A replacement that is cut off was not complete, which its suffix says it is; what is there counts.
            while let Ok(Some(found)) = scan.next() {
                next = found.header.last_offset.plus(1);
            }
            range = range.start.min(base)..range.end.max(next);
        }
        Ok(range)
    }

    fn names(&self) -> Result<Vec<String>, Fault> {
        let entries = fs::read_dir(&self.path).context("list", &*self.path)?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.context("list", &*self.path)?;
            // Names of segments' files are ASCII; others are no concern of the log.
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn list_files(&self) -> Result<Files, Fault> {
        let mut files = Files::default();
        for name in self.names()? {
            let Some(offset) = segment_files::offset(&name) else { continue };
            match &name[name.find('.').unwrap_or(name.len())..] {
                LOG => {
                    let path = self.path.join(&name);
                    let size = fs::metadata(&path).context("look at", path)?.len();
                    files.logs.push((offset, size));
                }
                OFFSET_INDEX => files.offset_indexes.push(offset),
                TIME_INDEX => files.time_indexes.push(offset),
                TRANSACTION_INDEX => files.transaction_indexes.push(offset),
                SNAPSHOT => files.snapshots.push(offset),
                _ => {}
            }
        }
        Ok(files)
    }

    /// Removes indexes without a log, and snapshots that belong to no segment but the newest beyond all.
    fn remove_orphans(&mut self, files: &Files) -> Result<(), Fault> {
        let is_log = |offset: &Offset| files.logs.binary_search_by_key(offset, |log| log.0).is_ok();
        let kinds = [
            (&files.offset_indexes, OFFSET_INDEX),
            (&files.time_indexes, TIME_INDEX),
            (&files.transaction_indexes, TRANSACTION_INDEX),
        ];
        for (offsets, extension) in kinds {
            for offset in offsets.iter().filter(|offset| !is_log(offset)) {
                let name = segment_files::name(*offset, extension);
                tracing::warn!(partition = %self.options.partition, name, "removing an index without a log");
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Source: `ProducerStateManager.removeStraySnapshots`.
    fn remove_stray_snapshots(&mut self, end: Offset) -> Result<(), Fault> {
        let last_base = self.segments.last().map(|segment| segment.base);
        let newest = self.snapshots.iter().rev().find(|offset| **offset <= end).copied();
        let is_kept = |offset: &Offset| {
            let is_base =
                self.segments.binary_search_by_key(offset, |segment| segment.base).is_ok();
            *offset <= end && (is_base || Some(*offset) == newest && Some(*offset) > last_base)
        };
        let (kept, strays): (Vec<Offset>, Vec<Offset>) =
            self.snapshots.iter().copied().partition(is_kept);
        for offset in strays {
            self.remove(&segment_files::name(offset, SNAPSHOT))?;
        }
        self.snapshots = kept;
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), Fault> {
        let path = self.path.join(name);
        atomic_file::remove_if_exists(&path).context("remove", path)
    }

    fn load_epochs(&mut self) -> Result<(), Fault> {
        let path = self.path.join(LEADER_EPOCH_FILE);
        let bytes = atomic_file::read(&path, EPOCHS_SIZE_MAX).context("read", &path)?;
        match checkpoint::parse_epochs(&bytes.unwrap_or_default()) {
            Ok(entries) => self.epochs = LeaderEpochs::from_entries(entries),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "leader epochs cannot be read");
                self.epochs_dirty = true;
            }
        }
        Ok(())
    }

    fn read_topic_id(&self) -> Result<Option<Uuid>, Fault> {
        use partition_metadata::PartitionMetadataError::{Malformed, Read};
        match partition_metadata::read(&self.path) {
            Ok(topic_id) => Ok(topic_id),
            Err(Read(error)) => Err(error).context("read", &*self.path),
            Err(error @ Malformed(_)) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, error)).context("read", &*self.path)
            }
        }
    }

    /// The checkpointed start, unless the leader epochs show that it is wrong: they are moved up to the start before
    /// the start is checkpointed, so a start beyond the first epoch's is not what was written.
    fn start_checkpoint(&self) -> Offset {
        let first_base = self.segments.first().map_or(Offset::ZERO, |segment| segment.base);
        let Some(start) = self.known.start else { return Offset::ZERO };
        match self.epochs.entries().first() {
            Some((_, first)) if start > *first && start > first_base => {
                tracing::warn!(partition = %self.options.partition, checkpoint = start.0, epochs = first.0,
                    "the log start offset and the leader epochs contradict each other, taking the lower one");
                *first
            }
            _ => start,
        }
    }

    /// Looks for the log's end, and recovers what may not have been flushed. The producers where that was done.
    fn recover(&mut self, start: Offset) -> Result<(Option<Replay>, Offset), Fault> {
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
                    let id = crate::file_cache::FileId(view.id.0 + id);
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
            if !is_whole || self.segments[index + 1].base < end {
                tracing::warn!(partition = %self.options.partition, end = end.0, dropped = count - index - 1,
                    "corruption found: the log ends here, later segments are dropped");
                for dropped in self.segments.split_off(index + 1) {
                    self.delete_files(&dropped)?;
                }
                break;
            }
            let next = self.segments[index + 1].base;
            self.write_snapshot(&replay, next)?;
        }
        self.write_snapshot(&replay, end)?;
        replay.producers.expire(self.options.now, self.options.config.producer_id_expiration_ms);
        Ok((replay, end))
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
        let id = |number| crate::file_cache::FileId(view.id.0 + number);
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
    fn load_producers(&mut self, start: Offset, end: Offset) -> Result<Replay, Fault> {
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

/// Reads the batches of a segment, whole and checked, through one buffer.
struct BatchReader<'a> {
    file: &'a File,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The bytes of the buffer that are not used up yet.
    unread: std::ops::Range<usize>,
}

impl<'a> BatchReader<'a> {
    fn new(file: &'a File, end: u64) -> BatchReader<'a> {
        BatchReader { file, position: 0, end, buffer: Vec::new(), unread: 0..0 }
    }

    /// Where the next batch begins; after an error, where the wrong one does.
    fn position(&self) -> u64 {
        self.position
    }

    /// The next batch; `None` at the end; inside, the reason why what comes next is no batch.
    #[allow(clippy::type_complexity)] // Two kinds of error: of the disk, and of the data.
    fn next(&mut self) -> io::Result<Result<Option<(Found, &[u8])>, String>> {
        let left = self.end - self.position;
        if left == 0 {
            return Ok(Ok(None));
        }
        self.fill(
            record::entry::ENTRY_PREFIX_LENGTH.min(usize::try_from(left).unwrap_or(usize::MAX)),
        )?;
        let header = match EntryHeader::parse(&self.buffer[self.unread.clone()]) {
            Ok(header) => header,
            Err(BatchError::Incomplete { .. }) => return Ok(Err("it is cut off".to_owned())),
            Err(error) => return Ok(Err(error.to_string())),
        };
        if header.size as u64 > left {
            return Ok(Err("it is cut off".to_owned()));
        }
        self.fill(header.size)?;
        let Some(bytes) = self.buffer.get(self.unread.start..self.unread.start + header.size)
        else {
            return Ok(Err("it is cut off".to_owned()));
        };
        if !header.crc_matches(bytes) {
            return Ok(Err("its checksum is wrong".to_owned()));
        }
        if !offsets_are_possible(&header) {
            return Ok(Err("its offsets are impossible".to_owned()));
        }
        let found = Found { position: self.position, header };
        self.position += header.size as u64;
        self.unread.start += header.size;
        Ok(Ok(Some((found, bytes))))
    }

    /// Makes `length` bytes unread, if the file has them.
    fn fill(&mut self, length: usize) -> io::Result<()> {
        if self.unread.len() >= length {
            return Ok(());
        }
        self.buffer.drain(..self.unread.start);
        self.buffer.truncate(self.unread.len());
        self.unread = 0..self.buffer.len();
        let at = self.position + self.unread.len() as u64;
        let left = usize::try_from(self.end - at).unwrap_or(usize::MAX);
        let wanted = (length - self.unread.len()).max(RECOVERY_WINDOW).min(left);
        self.buffer.resize(self.unread.len() + wanted, 0);
        let mut filled = self.unread.len();
        while filled < self.buffer.len() {
            match self.file.read_at(&mut self.buffer[filled..], self.position + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(filled);
        self.unread.end = filled;
        Ok(())
    }
}
