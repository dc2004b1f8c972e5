//! Opening a log: what a crash left half-done is undone, what it left half-written is cut off.
//! Source: `LogLoader`.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::{
    ids::{Offset, Timestamp},
    topic::{TopicPartition, Uuid},
};
use parking_lot::Mutex;

use crate::{
    atomic_file, checkpoint,
    epoch_check::EpochCheck,
    error::{Context, Fault, LogError},
    kept_tail,
    leader_epochs::{LEADER_EPOCH_FILE, LeaderEpochs},
    log::{Log, PublishedOffsets, State, Writer},
    log_config::LogConfig,
    log_files::create_log,
    partition_metadata,
    replay::Replay,
    scan::HeaderScan,
    segment::{Segment, SegmentView},
    segment_files::{
        self, CLEANED, DELETED, LOG, OFFSET_INDEX, SNAPSHOT, SWAP, TIME_INDEX, TRANSACTION_INDEX,
    },
    shared::{LogDirectory, Shared},
};

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
    /// Of the cleaner's checkpoint: offsets below may be missing, for the log was compacted up to there.
    pub cleaned_to: Option<Offset>,
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
pub(crate) struct Loader<'a> {
    pub(crate) options: &'a LogOptions,
    pub(crate) known: Known,
    pub(crate) path: Arc<Path>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) epochs: LeaderEpochs,
    pub(crate) epochs_dirty: bool,
    pub(crate) snapshots: Vec<Offset>,
    pub(crate) deletions: Vec<(Timestamp, String)>,
    pub(crate) changed: bool,
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
        let created = Log::fill_new_directory(options, topic_id);
        if created.is_err()
            && let Err(error) = fs::remove_dir_all(path)
        {
            tracing::warn!(path = %path.display(), %error, "could not remove a log that could not be made");
        }
        created
    }

    fn fill_new_directory(options: &LogOptions, topic_id: Option<Uuid>) -> Result<Log, Fault> {
        let path = &options.path;
        if let Some(topic_id) = topic_id {
            partition_metadata::write(path, topic_id).context("write", path)?;
        }
        let mut segment = Segment::new(&options.shared, Offset::ZERO);
        create_log(&options.shared.files, path, &mut segment, &options.config)?;
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
    // A directory that is there already holds a log that could not be loaded; the others are none the worse for it.
    if fault.source.kind() != io::ErrorKind::AlreadyExists {
        options.directory.note_fault(&fault);
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
            create_log(&self.options.shared.files, &self.path, &mut segment, &self.options.config)?;
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
        producers.count_in(&options.shared.producers);
        let state = State {
            path: self.path.clone(),
            config: options.config.clone(),
            segments,
            start,
            end,
            high_watermark: start,
            epochs: self.epochs.clone(),
            producers,
            verifications: None,
            unindexed: None,
            index_changes: 0,
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
            keeps_tails: kept_tail::exist(&self.path),
            closed: false,
        };
        let log = Log {
            partition: options.partition.clone(),
            directory: options.directory.clone(),
            shared: options.shared.clone(),
            offsets: PublishedOffsets::new(),
            cleaning: Mutex::default(),
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
    pub(crate) fn remove_stray_snapshots(&mut self, end: Offset) -> Result<(), Fault> {
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

    pub(crate) fn remove(&self, name: &str) -> Result<(), Fault> {
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
}
