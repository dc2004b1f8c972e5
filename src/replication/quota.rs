//! Limits of replication traffic, for the replicas that a topic names: so that a move of data leaves room for clients.
//! Source: `kafka.server.ReplicationQuotaManager`, KIP-73.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

use common::ids::BrokerId;
use parking_lot::Mutex;

/// No limit.
pub const UNLIMITED: i64 = i64::MAX;

/// Replicas that a topic wants throttled: `leader.replication.throttled.replicas` and its counterpart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThrottledReplicas {
    /// None of them.
    #[default]
    None,
    /// All of them: `*`.
    All,
    /// These: the number of a partition and a broker.
    Some(Box<[(i32, BrokerId)]>),
}

impl ThrottledReplicas {
    /// Reads the config's elements, `<partition>:<broker>` or `*`; others are passed over, for the config was checked.
    pub fn of(elements: &[String]) -> ThrottledReplicas {
        if elements.iter().any(|element| element == "*") {
            return ThrottledReplicas::All;
        }
        let pairs = elements.iter().filter_map(|element| {
            let (partition, broker) = element.split_once(':')?;
            Some((partition.trim().parse().ok()?, BrokerId(broker.trim().parse().ok()?)))
        });
        let pairs: Box<[(i32, BrokerId)]> = pairs.collect();
        if pairs.is_empty() { ThrottledReplicas::None } else { ThrottledReplicas::Some(pairs) }
    }

    /// Whether a broker's replica of a partition is one of them.
    pub fn contains(&self, partition: i32, broker: BrokerId) -> bool {
        match self {
            ThrottledReplicas::None => false,
            ThrottledReplicas::All => true,
            ThrottledReplicas::Some(pairs) => pairs.contains(&(partition, broker)),
        }
    }
}

/// A limit, and what went through lately. Shared; the lock is held for a few lines.
#[derive(Debug)]
pub struct ReplicationQuota {
    bytes_per_second: AtomicI64,
    window: Duration,
    windows_max: usize,
    /// When each window began, and its bytes; the newest last.
    windows: Mutex<VecDeque<(Instant, u64)>>,
}

impl ReplicationQuota {
    /// Without a limit; measured over so many windows (`replication.quota.window.num`) of this length
    /// (`replication.quota.window.size.seconds`).
    pub fn new(windows_max: usize, window: Duration) -> ReplicationQuota {
        ReplicationQuota {
            bytes_per_second: AtomicI64::new(UNLIMITED),
            window,
            windows_max: windows_max.max(1),
            windows: Mutex::default(),
        }
    }

    /// Puts another limit in force.
    pub fn set_limit(&self, bytes_per_second: i64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    /// The limit in force.
    pub fn limit(&self) -> i64 {
        self.bytes_per_second.load(Ordering::Relaxed)
    }

    /// Counts bytes of throttled replicas.
    pub fn record(&self, bytes: u64, now: Instant) {
        if bytes == 0 {
            return;
        }
        let mut windows = self.windows.lock();
        match windows.back_mut() {
            Some((begin, sum)) if now.saturating_duration_since(*begin) < self.window => {
                *sum += bytes;
            }
            _ => windows.push_back((now, bytes)),
        }
        self.forget_old(&mut windows, now);
    }

    /// Whether more went through lately than the limit allows.
    pub fn is_exceeded(&self, now: Instant) -> bool {
        let limit = self.limit();
        if limit == UNLIMITED {
            return false;
        }
        let mut windows = self.windows.lock();
        self.forget_old(&mut windows, now);
        let bytes: u64 = windows.iter().map(|(_, bytes)| bytes).sum();
        // A rate that has just begun is taken over the whole time, as Kafka does: a first burst is no excess.
        let whole = self.window * u32::try_from(self.windows_max - 1).unwrap_or(u32::MAX);
        let since = windows.front().map_or(Duration::ZERO, |first| now - first.0);
        let seconds = since.max(whole).max(self.window).as_secs_f64();
        bytes as f64 / seconds > limit as f64
    }

    fn forget_old(&self, windows: &mut VecDeque<(Instant, u64)>, now: Instant) {
        let age_max = self.window * u32::try_from(self.windows_max).unwrap_or(u32::MAX);
        while windows
            .front()
            .is_some_and(|(begin, _)| now.saturating_duration_since(*begin) >= age_max)
        {
            windows.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use common::{clock, ids::BrokerId};

    use super::{ReplicationQuota, ThrottledReplicas, UNLIMITED};

    #[test]
    fn lists_are_read_as_kafka_writes_them() {
        let of = |text: &str| {
            ThrottledReplicas::of(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(of(""), ThrottledReplicas::None);
        assert_eq!(of("*"), ThrottledReplicas::All);
        let some = of("0:1, 3:2");
        assert!(some.contains(0, BrokerId(1)) && some.contains(3, BrokerId(2)));
        assert!(!some.contains(0, BrokerId(2)) && !some.contains(1, BrokerId(1)));
    }

    #[test]
    fn a_rate_is_exceeded_until_its_windows_have_passed() {
        let quota = ReplicationQuota::new(11, Duration::from_secs(1));
        let start = clock::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        quota.record(5000, start);
        assert!(!quota.is_exceeded(start), "there is no limit yet");
        quota.set_limit(600);
        assert!(!quota.is_exceeded(start), "500 a second over ten seconds");
        quota.record(2000, after(1));
        assert!(quota.is_exceeded(after(1)));
        assert!(!quota.is_exceeded(after(11)), "the first window has passed");
        quota.set_limit(100);
        assert!(quota.is_exceeded(after(11)));
        quota.set_limit(UNLIMITED);
        assert!(!quota.is_exceeded(after(11)));
    }
}
