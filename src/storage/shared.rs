//! What all logs of a broker share: open files, maps, and the list of logs that want the background thread.

use std::{
    collections::BTreeSet,
    fs::File,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use common::{
    counters::{Histogram, Meter, MetricName, Registry},
    topic::TopicPartition,
};
use parking_lot::Mutex;

use crate::{
    error::{Fault, is_shortage},
    file_cache::{Cache, FileCache, FileId, open_files_max},
    mapped::Mapped,
    producer_limit::{PRODUCERS_MAX, ProducerCount},
    transaction_index::AbortedTransaction,
};

/// Index files mapped at most; a process may have 65,530 maps in all.
const MAPS_MAX: usize = 8192;
/// Segments' aborted transactions kept in memory at most.
const TRANSACTION_INDEXES_MAX: usize = 256;
/// Ids of one segment: of its log, its offset index, its time index, its aborted transactions.
const IDS_PER_SEGMENT: u64 = 4;

/// Shared by all logs of a process. Made once, by `LogManager` or a test.
pub struct Shared {
    pub(crate) files: FileCache,
    pub(crate) maps: Cache<Mapped>,
    pub(crate) transactions: Cache<Vec<AbortedTransaction>>,
    next_id: AtomicU64,
    random: Mutex<u64>,
    attention: Mutex<BTreeSet<TopicPartition>>,
    /// Milliseconds that syncs of segments took, once there is a registry to count into.
    pub(crate) flush_times: OnceLock<Arc<Histogram>>,
    truncations: OnceLock<Arc<Meter>>,
    /// Whether a log was truncated since the checkpoints were written.
    truncated: AtomicBool,
    pub(crate) producers: Arc<ProducerCount>,
}

impl Shared {
    /// `seed` begins the random numbers that segments take their jitter from.
    pub fn new(seed: u64) -> Arc<Shared> {
        Shared::with_limits(seed, open_files_max(), PRODUCERS_MAX)
    }

    /// As `new`, with limits of its own.
    pub fn with_limits(seed: u64, files_max: usize, producers_max: usize) -> Arc<Shared> {
        Arc::new(Shared {
            files: FileCache::new(files_max),
            maps: Cache::new(MAPS_MAX),
            transactions: Cache::new(TRANSACTION_INDEXES_MAX),
            next_id: AtomicU64::new(0),
            random: Mutex::new(seed),
            attention: Mutex::new(BTreeSet::new()),
            flush_times: OnceLock::new(),
            truncations: OnceLock::new(),
            truncated: AtomicBool::new(false),
            producers: ProducerCount::new(producers_max),
        })
    }

    /// Counts into a registry from now on. Source: `LogFlushStats`.
    pub fn count_into(&self, registry: &Registry) {
        let name = MetricName::new("kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs");
        // The first registry is the broker's; a second one is nobody's.
        let _ = self.flush_times.set(registry.histogram(name));
        self.producers.count_into(registry);
        // Kafka does not count them; each has cost a replica records.
        let name = MetricName::new("kafka.log", "LogManager", "TruncationsPerSec");
        let _ = self.truncations.set(registry.meter(name)); // As above.
    }

    /// A log was cut, or begun anew.
    pub(crate) fn note_truncation(&self) {
        self.truncated.store(true, Ordering::Release);
    }

    /// Counts a truncation.
    pub(crate) fn count_truncation(&self) {
        if let Some(truncations) = self.truncations.get() {
            truncations.mark(1);
        }
    }

    /// Whether a log was truncated since the last call.
    pub(crate) fn take_truncated(&self) -> bool {
        self.truncated.swap(false, Ordering::AcqRel)
    }

    /// Names for the files of a new segment: the log's, and the next two numbers for its indexes.
    /// Steps are odd multiples so that logs spread over the cache's shards.
    pub(crate) fn next_segment_id(&self) -> FileId {
        FileId(self.next_id.fetch_add(IDS_PER_SEGMENT + 1, Ordering::Relaxed))
    }

    /// The next random number (SplitMix64).
    pub(crate) fn random(&self) -> u64 {
        let mut state = self.random.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Asks for `LogManager::maintain` to look at a log: something waits to be written, synced or removed.
    pub(crate) fn want_attention(&self, partition: &TopicPartition) {
        self.attention.lock().insert(partition.clone());
    }

    /// The logs that asked for attention; they are not told again.
    pub(crate) fn take_attention(&self) -> BTreeSet<TopicPartition> {
        std::mem::take(&mut *self.attention.lock())
    }
}

/// One entry of `log.dirs`, and how it is.
#[derive(Debug)]
pub struct LogDirectory {
    path: PathBuf,
    offline: AtomicBool,
    full: AtomicBool,
    short_of_room: AtomicBool,
    /// When writes found no room first and last, since it has been short of it.
    shortage: Mutex<Option<RangeInclusive<Instant>>>,
    failure: Mutex<Option<String>>,
}

/// The room that a disk that was full needs: a twentieth of it, within these bounds.
const ROOM_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 30;
/// And so long no write may have failed: of a quota the disk tells nothing.
const NO_FAILURE_FOR: Duration = Duration::from_secs(10);

impl LogDirectory {
    /// A directory that works, as far as is known.
    pub fn new(path: impl Into<PathBuf>) -> Arc<LogDirectory> {
        Arc::new(LogDirectory {
            path: path.into(),
            offline: AtomicBool::new(false),
            full: AtomicBool::new(false),
            short_of_room: AtomicBool::new(false),
            shortage: Mutex::new(None),
            failure: Mutex::new(None),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether an I/O error has put it out of use, until the broker starts again. All its logs then answer so.
    pub fn is_offline(&self) -> bool {
        self.offline.load(Ordering::Acquire)
    }

    /// Whether the last append found no room. Reads go on; appends are tried again each time.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether its disk was full, and has not had room worth speaking of since; a small append that fits changes nothing.
    pub fn is_short_of_room(&self) -> bool {
        self.short_of_room.load(Ordering::Acquire)
    }

    /// Notes that a write has found no room.
    pub fn found_full(&self, now: Instant) {
        let mut shortage = self.shortage.lock();
        let since = shortage.as_ref().map_or(now, |known| *known.start());
        *shortage = Some(since..=now);
        self.short_of_room.store(true, Ordering::Release);
        drop(shortage);
        self.set_full(true);
    }

    /// Looks whether one that was short of room is so no more. To be called from time to time.
    pub fn has_room_again(&self, now: Instant) -> bool {
        if !self.is_short_of_room() || !has_room(&self.path) {
            return false;
        }
        let mut shortage = self.shortage.lock();
        let last = shortage.as_ref().map(|known| now.saturating_duration_since(*known.end()));
        if last.is_some_and(|last| last < NO_FAILURE_FOR) {
            return false;
        }
        *shortage = None;
        // Within the lock: a write that finds no room meanwhile has the last word.
        self.short_of_room.store(false, Ordering::Release);
        true
    }

    /// For how long it has been short of room.
    pub fn short_of_room_for(&self, now: Instant) -> Duration {
        let shortage = self.shortage.lock();
        shortage.as_ref().map_or(Duration::ZERO, |it| now.saturating_duration_since(*it.start()))
    }

    /// Why it is offline.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Notes a fault of one of its files: the directory goes offline, unless the disk is only full, the process short
    /// of something, or the data at fault.
    pub(crate) fn note_fault(&self, fault: &Fault) {
        let is_data = fault.source.kind() == std::io::ErrorKind::InvalidData;
        match fault.is_disk_full() {
            true => self.found_full(common::clock::now()),
            false if is_data || is_shortage(&fault.source) => {
                tracing::error!(%fault, source = %fault.source, "operation failed");
            }
            false => self.fail(fault),
        }
    }

    /// Takes the directory out of use. The first caller logs why. For what finds an error outside of a log, too.
    pub fn fail(&self, reason: &dyn std::error::Error) {
        if self.offline.swap(true, Ordering::AcqRel) {
            return;
        }
        let text = with_sources(reason);
        tracing::error!(directory = %self.path.display(), reason = text, "log directory failed");
        *self.failure.lock() = Some(text);
    }

    /// Notes whether there is room for appends; a change is logged.
    pub(crate) fn set_full(&self, full: bool) {
        if self.full.load(Ordering::Relaxed) == full
            || self.full.swap(full, Ordering::Relaxed) == full
        {
            return;
        }
        let directory = self.path.display();
        match full {
            true => {
                tracing::error!(%directory, "disk is full: appends are refused until there is room")
            }
            false => tracing::info!(%directory, "disk has room again"),
        }
    }
}

/// Whether a directory's disk has room worth speaking of; one that cannot be asked has some.
fn has_room(path: &Path) -> bool {
    let Ok(disk) = rustix::fs::statvfs(path) else { return true };
    let needed = disk.f_blocks.saturating_mul(disk.f_frsize) / 20;
    let needed = needed.clamp(*ROOM_BYTES.start(), *ROOM_BYTES.end());
    disk.f_bavail.saturating_mul(disk.f_frsize) >= needed
}

/// An error and what it came from.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Opens a segment's file for reading and appending, which must be there.
pub(crate) fn open_existing(path: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// Opens a file for reading and appending, made if it is not there.
pub(crate) fn open_or_create(path: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}
