//! The cleaner's counters, under Kafka's names. Source: `LogCleaner`, `LogCleanerManager`.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use common::{
    clock,
    counters::{Gauge, MetricName, Registry},
    ids::Timestamp,
};

use super::{choice::Candidate, stats::Stats};
use crate::shared::LogDirectory;

/// Levels of the last turn or cleaning of any thread.
pub(crate) struct CleanerMetrics {
    pub(crate) dead_threads: Arc<Gauge>,
    clean_time_seconds: Arc<Gauge>,
    recopy_percent: Arc<Gauge>,
    buffer_percent: Arc<Gauge>,
    compaction_delay_seconds: Arc<Gauge>,
    dirty_percent: Arc<Gauge>,
    since_last_run_ms: Arc<Gauge>,
    last_run: AtomicI64,
    directories: Vec<DirectoryMetrics>,
}

struct DirectoryMetrics {
    path: PathBuf,
    uncleanable_count: Arc<Gauge>,
    uncleanable_bytes: Arc<Gauge>,
}

impl CleanerMetrics {
    pub(crate) fn new<'a>(
        registry: &Registry,
        directories: impl Iterator<Item = &'a Arc<LogDirectory>>,
    ) -> CleanerMetrics {
        let cleaner = |name| registry.gauge(MetricName::new("kafka.log", "LogCleaner", name));
        let manager = |name| MetricName::new("kafka.log", "LogCleanerManager", name);
        let directories = directories.map(|directory| {
            let path = directory.path().to_owned();
            let tagged = |name| {
                let tag = path.display().to_string();
                registry.gauge(manager(name).tag("logDirectory", tag))
            };
            DirectoryMetrics {
                uncleanable_count: tagged("uncleanable-partitions-count"),
                uncleanable_bytes: tagged("uncleanable-bytes"),
                path,
            }
        });
        CleanerMetrics {
            dead_threads: cleaner("DeadThreadCount"),
            clean_time_seconds: cleaner("max-clean-time-secs"),
            recopy_percent: cleaner("cleaner-recopy-percent"),
            buffer_percent: cleaner("max-buffer-utilization-percent"),
            compaction_delay_seconds: cleaner("max-compaction-delay-secs"),
            dirty_percent: registry.gauge(manager("max-dirty-percent")),
            since_last_run_ms: registry.gauge(manager("time-since-last-run-ms")),
            last_run: AtomicI64::new(clock::wall_clock().0),
            directories: directories.collect(),
        }
    }

    /// A thread begins a turn. The gauge says how long ago the turn before it was.
    pub(crate) fn ran(&self, now: Timestamp) {
        let before = self.last_run.swap(now.0, Ordering::Relaxed);
        self.since_last_run_ms.set(now.0.saturating_sub(before).max(0));
    }

    /// What a thread found: logs that may be cleaned, and the directories and bytes of those that cannot be.
    pub(crate) fn seen(&self, candidates: &[Candidate], uncleanable: &[(Arc<LogDirectory>, u64)]) {
        let dirtiest = candidates.iter().map(Candidate::ratio).fold(0.0, f64::max);
        self.dirty_percent.set((dirtiest * 100.0) as i64);
        let delay_ms = candidates.iter().map(|candidate| candidate.delay_ms).max();
        self.compaction_delay_seconds.set(delay_ms.unwrap_or(0) / 1000);
        for one in &self.directories {
            let here = || uncleanable.iter().filter(|(directory, _)| directory.path() == one.path);
            one.uncleanable_count.set(i64::try_from(here().count()).unwrap_or(i64::MAX));
            let bytes: u64 = here().map(|(_, bytes)| bytes).sum();
            one.uncleanable_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// A log was cleaned, with a map of so many bytes.
    pub(crate) fn cleaned(&self, stats: &Stats, map_bytes: u64) {
        let percent = |part: u64, of: u64| i64::try_from(part * 100 / of.max(1)).unwrap_or(100);
        self.clean_time_seconds.set(i64::try_from(stats.elapsed.as_secs()).unwrap_or(i64::MAX));
        self.recopy_percent.set(percent(stats.bytes_written, stats.bytes_read));
        self.buffer_percent.set(percent(stats.map_bytes_used, map_bytes));
    }
}
