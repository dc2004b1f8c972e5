//! How many producers a broker remembers, over all its logs, and which go first when there are too many.
//!
//! Whoever makes a producer id per run, as many do by mistake, would make a broker remember them all for a day
//! (KAFKA-15653, KIP-936). A producer that is forgotten may go on: its next batch is taken as it comes, so that a batch
//! which it sends twice over this moment is stored twice. That is why the longest idle go, and why it is said and counted.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use common::{
    counters::{Gauge, Meter, MetricName, Registry},
    ids::Timestamp,
};
use tracing::warn;

use crate::log_manager::LogManager;

/// Producers that all logs of a broker remember together. Beyond it the longest idle are forgotten within a second, and at
/// once beyond a tenth more. One costs 250 to 500 bytes.
pub const PRODUCERS_MAX: usize = 1_000_000;

/// The count of one broker; shared by its logs.
#[derive(Debug)]
pub(crate) struct ProducerCount {
    total: AtomicUsize,
    max: usize,
    metrics: OnceLock<Metrics>,
}

#[derive(Debug)]
struct Metrics {
    forgotten: Arc<Meter>,
    count: Arc<Gauge>,
}

impl ProducerCount {
    pub(crate) fn new(max: usize) -> Arc<ProducerCount> {
        Arc::new(ProducerCount { total: AtomicUsize::new(0), max, metrics: OnceLock::new() })
    }

    /// Source of `ProducerIdCount`: `ReplicaManager`. The other is our own.
    pub(crate) fn count_into(&self, registry: &Registry) {
        let name = |name| MetricName::new("kafka.server", "ReplicaManager", name);
        // The first registry is the broker's; a second one is nobody's.
        let _ = self.metrics.set(Metrics {
            forgotten: registry.meter(name("ProducerIdsForgottenPerSec")),
            count: registry.gauge(name("ProducerIdCount")),
        });
    }

    /// Producers in all logs.
    pub(crate) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// How many are too many, with some room; 0 while there are not too many.
    pub(crate) fn surplus(&self) -> usize {
        let total = self.total();
        if total > self.max { total - self.max + self.max / 10 } else { 0 }
    }

    /// Whether a log that adds to them has to make room itself.
    pub(crate) fn is_far_beyond(&self) -> bool {
        self.total() > self.max + self.max / 10
    }

    pub(crate) fn note_forgotten(&self, count: usize) {
        if let Some(metrics) = self.metrics.get() {
            metrics.forgotten.mark(count as u64);
        }
    }
}

/// What one log has put into the count; taken out when it goes.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<ProducerCount>,
    count: usize,
}

impl Share {
    pub(crate) fn new(of: &Arc<ProducerCount>) -> Share {
        Share { of: Arc::clone(of), count: 0 }
    }

    /// Sets how many the log has. Whether that is more than before.
    pub(crate) fn set(&mut self, count: usize) -> bool {
        let grows = count > self.count;
        if grows {
            self.of.total.fetch_add(count - self.count, Ordering::Relaxed);
        } else {
            self.of.total.fetch_sub(self.count - count, Ordering::Relaxed);
        }
        self.count = count;
        grows
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl LogManager {
    /// Forgets producers where there are too many, the longest idle of all logs first.
    pub(crate) fn limit_producers(&self) {
        let count = &self.shared.producers;
        if let Some(metrics) = count.metrics.get() {
            metrics.count.set(i64::try_from(count.total()).unwrap_or(i64::MAX));
        }
        let surplus = count.surplus();
        if surplus == 0 {
            return;
        }
        let logs = self.logs();
        let mut idle: Vec<Timestamp> = Vec::with_capacity(count.total());
        logs.iter().for_each(|log| log.add_idle_producers(&mut idle));
        let surplus = surplus.min(idle.len());
        if surplus == 0 {
            return;
        }
        let (older, cutoff, _) = idle.select_nth_unstable(surplus - 1);
        let cutoff = *cutoff;
        let mut last = surplus - older.iter().filter(|time| **time < cutoff).count();
        let forgotten: usize = logs.iter().map(|log| log.forget_producers(cutoff, &mut last)).sum();
        count.note_forgotten(forgotten);
        warn!(
            forgotten,
            left = count.total(),
            limit = count.max,
            "overload: too many producer ids; those idle for longest are forgotten, and what they sent twice now would be stored twice"
        );
    }
}
