//! Compaction: keeps of each key the last record, in logs whose policy says so. Source: `LogCleaner`.
//!
//! Threads take one log after the other, the dirtiest first (`choice`); each makes a map of the dirty part's keys
//! (`offset_map`), and writes the log's sealed segments anew with what stays (`clean`, `filter`, `transactions`); the new
//! segments take the place of the old ones (`target`). Neither appends, readers, truncations nor deletions wait for a
//! cleaning: one whose segments are gone is given up. A log that cannot be cleaned is left alone and logged; the
//! threads go on.

mod choice;
mod clean;
mod filter;
mod metrics;
mod offset_map;
pub(crate) mod progress;
mod stats;
mod target;
mod throttle;
mod transactions;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use common::{clock, counters::Registry, ids::Timestamp};

use self::{
    choice::Candidate,
    clean::{Tools, clean},
    metrics::CleanerMetrics,
    stats::Stats,
    throttle::{Stop, Throttle},
};
use crate::{
    error::{Fault, LogError, is_shortage},
    log::Log,
    log_manager::LogManager,
};

/// Settings of the cleaner; those of its logs are in `LogConfig`.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanerOptions {
    /// `log.cleaner.threads`.
    pub threads: usize,
    /// `log.cleaner.dedupe.buffer.size`: bytes of all threads' maps of keys.
    pub dedupe_buffer_bytes: u64,
    /// `log.cleaner.io.buffer.load.factor`: how full a map may become.
    pub load_factor: f64,
    /// `log.cleaner.io.buffer.size`: bytes that all threads together collect before they write.
    pub io_buffer_bytes: usize,
    /// `log.cleaner.io.max.bytes.per.second`: of all threads, read and written.
    pub bytes_per_second_max: f64,
    /// `log.cleaner.backoff.ms`.
    pub backoff: Duration,
}

impl Default for CleanerOptions {
    /// Kafka's defaults.
    fn default() -> CleanerOptions {
        CleanerOptions {
            threads: 1,
            dedupe_buffer_bytes: 128 << 20,
            load_factor: 0.9,
            io_buffer_bytes: 512 << 10,
            bytes_per_second_max: f64::MAX,
            backoff: Duration::from_secs(15),
        }
    }
}

/// Why a log was not cleaned.
#[derive(Debug, thiserror::Error)]
enum CleanError {
    /// The log was cut, deleted, moved or closed, its directory failed, or the cleaner is to stop. Nobody's fault.
    #[error("the cleaning was given up")]
    Aborted,
    #[error("{} has no batch that can be cleaned at position {position}: {reason}", path.display())]
    Damaged { path: PathBuf, position: u64, reason: String },
    #[error("cleaning failed")]
    Fault(#[from] Fault),
}

/// The threads that compact logs. They stop when it is dropped.
pub struct Cleaner {
    work: Arc<Work>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
struct Work {
    manager: Arc<LogManager>,
    options: CleanerOptions,
    throttle: Throttle,
    stop: Stop,
    metrics: CleanerMetrics,
}

impl Cleaner {
    /// Starts the threads.
    pub fn start(
        manager: Arc<LogManager>,
        options: CleanerOptions,
        registry: &Registry,
    ) -> std::io::Result<Cleaner> {
        let thread_count = options.threads;
        let work = Arc::new(Work::new(manager, options, registry));
        let mut cleaner = Cleaner { work, threads: Vec::new() };
        for number in 0..thread_count {
            let work = cleaner.work.clone();
            let thread = std::thread::Builder::new().name(format!("log-cleaner-{number}"));
            cleaner.threads.push(thread.spawn(move || work.run())?);
        }
        Ok(cleaner)
    }

    /// Stops the threads: a cleaning under way is given up. Before the log manager is closed.
    pub fn stop(mut self) {
        self.stop_and_join();
    }

    fn stop_and_join(&mut self) {
        self.work.stop.stop();
        for thread in self.threads.drain(..) {
            // A panic there has been reported by its own message.
            let _ = thread.join();
        }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

/// Counts a thread that ends otherwise than by a stop.
struct DeathWatch<'a>(&'a Work);

impl Drop for DeathWatch<'_> {
    fn drop(&mut self) {
        if !self.0.stop.is_stopped() {
            self.0.metrics.dead_threads.add(1);
            tracing::error!("a cleaner thread has died");
        }
    }
}

impl Work {
    fn new(manager: Arc<LogManager>, options: CleanerOptions, registry: &Registry) -> Work {
        let metrics = CleanerMetrics::new(registry, manager.directories());
        let throttle = Throttle::new(options.bytes_per_second_max);
        Work { manager, options, throttle, stop: Stop::default(), metrics }
    }

    fn run(&self) {
        let _death_watch = DeathWatch(self);
        while !self.stop.is_stopped() {
            if !self.turn(clock::wall_clock()) {
                self.stop.wait(self.options.backoff);
            }
        }
    }

    /// Cleans the dirtiest log, if one is due; then drops old segments of compacted logs. Whether a log was cleaned.
    fn turn(&self, now: Timestamp) -> bool {
        self.metrics.ran(now);
        let cleaned = self.choose(now).is_some_and(|candidate| self.clean(&candidate, now));
        self.retain(now);
        self.manager.checkpoint_cleaned();
        cleaned
    }

    /// Takes the dirtiest log of those that are due.
    fn choose(&self, now: Timestamp) -> Option<Candidate> {
        let mut candidates = Vec::new();
        let mut uncleanable = Vec::new();
        for log in self.compacted() {
            let (is_idle, is_uncleanable) = {
                let cleaning = log.cleaning.lock();
                (cleaning.is_idle(), cleaning.is_uncleanable())
            };
            if !is_idle && !is_uncleanable {
                continue;
            }
            let candidate = self.guarded(&log, || look_at(&log, now));
            match is_uncleanable {
                true => {
                    let bytes = candidate.map_or(0, |candidate| candidate.cleanable_bytes);
                    uncleanable.push((log.log_directory().clone(), bytes));
                }
                false => candidates.extend(candidate),
            }
        }
        self.metrics.seen(&candidates, &uncleanable);
        candidates.retain(Candidate::is_due);
        candidates.sort_by(|one, other| other.ratio().total_cmp(&one.ratio()));
        // Another thread may have taken it meanwhile.
        candidates.into_iter().find(|candidate| candidate.log.cleaning.lock().begin())
    }

    /// The logs whose policy is to compact, of directories that work.
    fn compacted(&self) -> impl Iterator<Item = Arc<Log>> {
        let logs = self.manager.logs().into_iter();
        logs.filter(|log| log.config().compact && !log.log_directory().is_offline())
    }

    /// Cleans a log that this thread has taken. Whether it was cleaned.
    fn clean(&self, candidate: &Candidate, now: Timestamp) -> bool {
        let threads = self.options.threads.max(1);
        let tools = Tools {
            map_bytes: self.options.dedupe_buffer_bytes / threads as u64,
            load_factor: self.options.load_factor,
            write_buffer: self.options.io_buffer_bytes / threads / 2,
            throttle: &self.throttle,
            stop: &self.stop,
        };
        let cleaned = self.guarded(&candidate.log, || clean(candidate, now, &tools));
        candidate.log.cleaning.lock().end();
        let Some(stats) = cleaned else { return false };
        self.metrics.cleaned(&stats, tools.map_bytes);
        log_cleaned(candidate, &stats);
        true
    }

    /// Retention of compacted logs: what lies before their start, and with `compact,delete` what is too old.
    fn retain(&self, now: Timestamp) {
        for log in self.compacted() {
            if self.stop.is_stopped() || !log.cleaning.lock().begin() {
                continue;
            }
            self.guarded(&log, || match log.delete_old_segments(now) {
                Err(LogError::Fault(fault)) => Err(CleanError::Fault(fault)),
                _ => Ok(()),
            });
            log.cleaning.lock().end();
        }
    }

    /// Does some work on a log; what goes wrong is dealt with here, so that the thread goes on.
    fn guarded<T>(&self, log: &Log, work: impl FnOnce() -> Result<T, CleanError>) -> Option<T> {
        let partition = log.partition();
        let error = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => error,
            Err(_) => {
                tracing::error!(%partition, "the cleaner panicked, leaving the log alone from now on");
                log.cleaning.lock().give_up();
                return None;
            }
        };
        match &error {
            CleanError::Aborted => tracing::debug!(%partition, "the cleaning was given up"),
            CleanError::Fault(fault) if fault.is_disk_full() || is_shortage(&fault.source) => {
                tracing::warn!(%partition, %fault, source = %fault.source, "could not clean a log, trying again later");
            }
            CleanError::Fault(fault) if !is_data(fault) => log.note_fault(fault),
            CleanError::Fault(_) | CleanError::Damaged { .. } => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                if !log.cleaning.lock().is_uncleanable() {
                    tracing::error!(%partition, %error, source, "a log cannot be cleaned, leaving it alone from now on");
                }
                log.cleaning.lock().give_up();
            }
        }
        None
    }
}

/// Looks at a log, whose files may change meanwhile: then there is nothing to say of it now.
fn look_at(log: &Arc<Log>, now: Timestamp) -> Result<Candidate, CleanError> {
    let generation = log.state.lock().generation;
    Candidate::of(log, now).map_err(|fault| {
        let writer = log.writer.lock();
        let is_usable = log.check_usable(&writer).is_ok();
        match is_usable && log.state.lock().generation == generation {
            true => CleanError::Fault(fault),
            false => CleanError::Aborted,
        }
    })
}

/// Whether what was read is at fault, not the disk.
fn is_data(fault: &Fault) -> bool {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    matches!(fault.source.kind(), InvalidData | UnexpectedEof)
}

fn log_cleaned(candidate: &Candidate, stats: &Stats) {
    let partition = candidate.log.partition();
    tracing::info!(
        %partition,
        from = candidate.first_dirty.0,
        to = candidate.log.cleaning.lock().cleaned_to().map_or(-1, |offset| offset.0),
        bytes_before = stats.bytes_read,
        bytes_after = stats.bytes_written,
        records_before = stats.records_read,
        records_after = stats.records_kept,
        keys = stats.keys,
        milliseconds = u64::try_from(stats.elapsed.as_millis()).unwrap_or(u64::MAX),
        "cleaned a log"
    );
    if stats.records_without_key > 0 {
        tracing::warn!(%partition, count = stats.records_without_key, "dropped records without a key");
    }
}
