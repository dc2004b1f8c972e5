//! What a log manager does by itself from time to time, and at its end. Source: `LogManager.startup`, `shutdown`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    hash::BuildHasher,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use common::{
    clock,
    ids::{Offset, Timestamp},
    topic::TopicPartition,
};
use parking_lot::{Condvar, Mutex};

use crate::{
    atomic_file,
    checkpoint::{
        CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, format_offsets,
    },
    directory_lock::mark_clean_shutdown,
    error::Context,
    log::Log,
    log_manager::{Directory, Intervals, LogManager},
    log_manager_load::Job,
};

/// With more logs than this to be synced at once, their whole file system is synced instead.
const SYNC_EACH_MAX: usize = 64;
/// How often the background thread looks for work.
const TURN: Duration = Duration::from_secs(1);
/// How soon after another it looks at the earliest.
const SHORTEST_TURN: Duration = Duration::from_millis(10);

/// When maintenance does what next.
#[derive(Debug)]
pub(crate) struct Schedule {
    retention: Timestamp,
    flush: Timestamp,
    recovery_points: Timestamp,
    log_starts: Timestamp,
    high_watermarks: Timestamp,
    producers: Timestamp,
}

impl Schedule {
    pub(crate) fn new(intervals: &Intervals, now: Timestamp) -> Schedule {
        let after = |delay_ms: i64| Timestamp(now.0.saturating_add(delay_ms));
        Schedule {
            retention: after(intervals.initial_delay_ms),
            flush: after(intervals.initial_delay_ms.max(intervals.flush_check_ms)),
            recovery_points: after(intervals.initial_delay_ms),
            log_starts: after(intervals.initial_delay_ms),
            high_watermarks: after(intervals.high_watermark_checkpoint_ms),
            producers: after(intervals.producer_check_ms),
        }
    }
}

impl Schedule {
    /// How long nothing is due, at most a turn.
    fn pause(&self, now: Timestamp) -> Duration {
        let dues = [
            self.retention,
            self.flush,
            self.recovery_points,
            self.log_starts,
            self.high_watermarks,
            self.producers,
        ];
        let next = dues.iter().map(|due| due.0).min().unwrap_or(now.0);
        let pause = u64::try_from(next.saturating_sub(now.0)).unwrap_or(0);
        // Never none at all, whatever the intervals are.
        Duration::from_millis(pause).clamp(SHORTEST_TURN, TURN)
    }
}

/// Whether something is due; if so, when it is next.
fn is_due(due: &mut Timestamp, now: Timestamp, interval_ms: i64) -> bool {
    let is_due = *due <= now;
    if is_due {
        *due = Timestamp(now.0.saturating_add(interval_ms.max(1)));
    }
    is_due
}

impl LogManager {
    /// Does what is due: looks at logs that asked for it, removes what was deleted, checks retention and flushes,
    /// writes checkpoints, forgets silent producers. Takes as long as the disks do; called by one thread at a time.
    pub fn maintain(&self, now: Timestamp) {
        let mut schedule = self.schedule.lock();
        let intervals = &self.options.intervals;
        self.attend(now);
        self.remove_deleted(now);
        self.limit_producers();
        if is_due(&mut schedule.retention, now, intervals.retention_check_ms) {
            self.check_retention(now);
        }
        if is_due(&mut schedule.flush, now, intervals.flush_check_ms) {
            self.flush_due(now);
        }
        if is_due(&mut schedule.producers, now, intervals.producer_check_ms) {
            self.logs().iter().for_each(|log| log.expire_producers(now));
        }
        // Of a truncated log the checkpoint says that more is flushed than there is.
        let truncated = self.shared.take_truncated();
        let interval_ms = intervals.recovery_point_checkpoint_ms;
        if is_due(&mut schedule.recovery_points, now, interval_ms) || truncated {
            self.checkpoint_recovery_points();
        }
        if is_due(&mut schedule.log_starts, now, intervals.log_start_checkpoint_ms) {
            self.checkpoint_log_starts();
        }
        if is_due(&mut schedule.high_watermarks, now, intervals.high_watermark_checkpoint_ms) {
            self.checkpoint_high_watermarks();
        }
    }

    /// How long maintenance may wait: what is due comes on time, such as the first look at retention after a start.
    fn time_to_next(&self, now: Timestamp) -> Duration {
        self.schedule.lock().pause(now)
    }

    /// Looks at the logs that asked for it.
    fn attend(&self, now: Timestamp) {
        let partitions = self.shared.take_attention();
        let logs: Vec<Arc<Log>> = {
            let logs = self.logs.lock();
            let of = |partition| {
                logs.current.get(partition).into_iter().chain(logs.future.get(partition))
            };
            partitions.iter().flat_map(of).cloned().collect()
        };
        let sync_each = logs.len() <= SYNC_EACH_MAX;
        for log in &logs {
            // Faults are noted by the log: its directory is offline then, or full, and it is tried again.
            let flushed = log.flush_sealed();
            let maintained = log.maintain(now, sync_each);
            let is_online = !log.log_directory().is_offline();
            if is_online && (flushed.is_err() || !matches!(maintained, Ok(false))) {
                self.shared.want_attention(log.partition());
            }
        }
        if !sync_each {
            self.sync_file_systems();
        }
    }

    fn sync_file_systems(&self) {
        for Directory { directory, .. } in self.online() {
            let path = directory.path();
            let synced = File::open(path).and_then(|file| Ok(rustix::fs::syncfs(file)?));
            if let Err(fault) = synced.context("sync the file system of", path) {
                directory.note_fault(&fault);
            }
        }
    }

    fn online(&self) -> impl Iterator<Item = &Directory> {
        self.directories.iter().filter(|directory| !directory.directory.is_offline())
    }

    /// Removes directories of deleted logs whose delay is over.
    fn remove_deleted(&self, now: Timestamp) {
        let due: Vec<PathBuf> = {
            let mut logs = self.logs.lock();
            let due = logs.deleted.extract_if(.., |(due, _)| *due <= now);
            due.map(|(_, path)| path).collect()
        };
        for path in due {
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!(path = %path.display(), "removed a deleted log"),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "could not remove a deleted log")
                }
            }
        }
    }

    /// Deletes segments that nobody needs any more. Compacted logs are the cleaner's.
    pub fn check_retention(&self, now: Timestamp) {
        for log in self.logs().into_iter().chain(self.future_logs()) {
            log.forget_old_tails(now);
            if log.config().compact {
                continue;
            }
            if let Err(error) = log.delete_old_segments(now) {
                tracing::warn!(partition = %log.partition(), %error, "could not delete old segments");
            }
        }
    }

    fn flush_due(&self, now: Timestamp) {
        for log in self.logs() {
            if log.is_flush_due(now)
                && let Err(error) = log.flush()
            {
                tracing::warn!(partition = %log.partition(), %error, "could not flush a log");
            }
        }
    }

    /// Writes the recovery points of all logs.
    pub fn checkpoint_recovery_points(&self) {
        let of_job = |job: &Job| job.known.recovery_point;
        self.checkpoint(RECOVERY_POINT_FILE, &|log| Some(log.recovery_point()), &of_job);
    }

    /// Writes the high watermarks of all logs.
    pub fn checkpoint_high_watermarks(&self) {
        let of_job = |job: &Job| job.high_watermark;
        self.checkpoint(HIGH_WATERMARK_FILE, &|log| Some(log.high_watermark()), &of_job);
    }

    /// Writes the start offsets of the logs that do not begin with their first segment. The leader epochs, which
    /// were moved up with them, are on disk first: they vouch for the checkpoint.
    pub fn checkpoint_log_starts(&self) {
        let of_log = |log: &Log| {
            let start = log.start_offset();
            (start > log.first_segment_base() && log.write_epochs_now().is_ok()).then_some(start)
        };
        self.checkpoint(LOG_START_FILE, &of_log, &|job| job.known.start);
    }

    /// Writes how far compaction has come with each log, where it has begun.
    pub(crate) fn checkpoint_cleaned(&self) {
        let _writing = self.writing_cleaned.lock();
        let of_job = |job: &Job| job.known.cleaned_to;
        self.checkpoint(CLEANER_FILE, &|log| log.cleaning.lock().cleaned_to(), &of_job);
    }

    /// Logs that could not be loaded keep what the checkpoint said of them at the start.
    fn checkpoint(
        &self,
        name: &str,
        of_log: &dyn Fn(&Log) -> Option<Offset>,
        of_job: &dyn Fn(&Job) -> Option<Offset>,
    ) {
        let (logs, futures) = (self.logs(), self.future_logs());
        let unloaded: Vec<(usize, TopicPartition, Offset)> = {
            let logs = self.logs.lock();
            let known = |job: &Job| Some((job.directory, job.partition.clone(), of_job(job)?));
            logs.unloaded.iter().filter_map(known).collect()
        };
        for Directory { directory, .. } in self.online() {
            let there = logs.iter().chain(&futures);
            let mut offsets: Vec<(&TopicPartition, Offset)> = there
                .filter(|log| Arc::ptr_eq(log.log_directory(), directory))
                .filter_map(|log| of_log(log).map(|offset| (log.partition(), offset)))
                .collect();
            let is_here = |index: usize| Arc::ptr_eq(&self.directories[index].directory, directory);
            let kept = unloaded.iter().filter(|(index, ..)| is_here(*index));
            offsets.extend(kept.map(|(_, partition, offset)| (partition, *offset)));
            let path = directory.path().join(name);
            // Ten thousand idle logs are not sorted and written out every five seconds to find that nothing has changed.
            let hashes = offsets.iter().map(|(partition, offset)| {
                self.hasher.hash_one((&partition.topic, partition.partition, offset.0))
            });
            let hash = hashes.fold(offsets.len() as u64, u64::wrapping_add);
            if self.written.lock().get(&path) == Some(&hash) {
                continue;
            }
            // In order; a moved log that is there twice counts once, as the copy.
            let offsets: BTreeMap<&TopicPartition, Offset> = offsets.into_iter().collect();
            let text =
                format_offsets(offsets.iter().map(|(partition, offset)| (*partition, *offset)));
            match atomic_file::write(&path, text.as_bytes()).context("write", &path) {
                Ok(()) => drop(self.written.lock().insert(path, hash)),
                Err(fault) => directory.note_fault(&fault),
            }
        }
    }

    /// Ends all logs: everything is written and synced, and a directory where that worked is marked as clean.
    /// Nothing may be asked of the logs afterwards.
    pub fn close(&self) {
        let logs: Vec<Arc<Log>> = self.logs().into_iter().chain(self.future_logs()).collect();
        let dirty: Vec<&Arc<Log>> = logs.iter().filter(|log| log.is_dirty()).collect();
        let sync_each = dirty.len() <= SYNC_EACH_MAX;
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(Vec::new());
        let work = || {
            while let Some(log) = dirty.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = log.close(sync_each) {
                    tracing::error!(partition = %log.partition(), %error, "could not close a log");
                    failed.lock().push(log.log_directory().clone());
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.options.threads.clamp(1, dirty.len().max(1)) {
                scope.spawn(work);
            }
        });
        if !sync_each {
            self.sync_file_systems();
        }
        for log in &logs {
            log.abandon(&mut log.writer.lock());
        }
        self.checkpoint_recovery_points();
        self.checkpoint_log_starts();
        self.checkpoint_high_watermarks();
        let mut failed = failed.into_inner();
        let unloaded: Vec<usize> = {
            let logs = self.logs.lock();
            // What a log needs at its next start, where it was not loaded at this one, the last stop decides.
            let of_crash = |job: &&Job| !job.known.clean;
            logs.unloaded.iter().filter(of_crash).map(|job| job.directory).collect()
        };
        failed.extend(unloaded.into_iter().map(|index| self.directories[index].directory.clone()));
        for Directory { directory, lock, .. } in self.online() {
            let path = directory.path();
            let is_clean = !failed.iter().any(|failed| Arc::ptr_eq(failed, directory));
            if is_clean && let Err(error) = mark_clean_shutdown(path) {
                tracing::error!(directory = %path.display(), %error, "could not mark the clean stop");
            }
            if let Some(lock) = lock.lock().take()
                && let Err(error) = lock.release()
            {
                tracing::warn!(directory = %path.display(), %error, "could not remove the lock");
            }
        }
    }
}

/// A thread that calls `maintain` until it is stopped.
pub struct Background {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread.
    pub fn start(manager: Arc<LogManager>) -> std::io::Result<Background> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = stop.clone();
        let run = move || {
            let (stopped, wake) = &*seen;
            loop {
                manager.maintain(clock::wall_clock());
                let mut stopped = stopped.lock();
                if !*stopped {
                    let pause = manager.time_to_next(clock::wall_clock());
                    wake.wait_for(&mut stopped, pause);
                }
                if *stopped {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("log-maintenance".to_owned()).spawn(run)?;
        Ok(Background { stop, thread: Some(thread) })
    }

    /// Stops the thread, after what it is doing now.
    pub fn stop(mut self) {
        self.stop_and_join();
    }

    fn stop_and_join(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own message.
            let _ = thread.join();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}
