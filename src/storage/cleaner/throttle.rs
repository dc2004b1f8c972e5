//! Waiting: for work, and so as not to read and write more than is allowed. Whoever waits is woken by a stop.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use common::clock;
use parking_lot::{Condvar, Mutex};

/// How long a pause counts as bytes that may be caught up on. Source: `LogCleaner.throttler`, its check interval.
const WINDOW: Duration = Duration::from_millis(300);
/// No single wait is longer.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Tells all threads of a cleaner to end.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stopped: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Stop {
    pub(crate) fn stop(&self) {
        let _lock = self.lock.lock();
        self.stopped.store(true, Ordering::Release);
        self.wake.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits that long, or until the stop.
    pub(crate) fn wait(&self, time: Duration) {
        let mut lock = self.lock.lock();
        if !self.is_stopped() && !time.is_zero() {
            self.wake.wait_for(&mut lock, time.min(WAIT_MAX));
        }
    }
}

/// Keeps all threads together below a rate.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_per_second: f64,
    /// When all that was passed so far has passed at that rate.
    passed_at: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(crate) fn new(bytes_per_second: f64) -> Throttle {
        Throttle { bytes_per_second, passed_at: Mutex::new(None) }
    }

    /// Waits as long as so many bytes make it necessary.
    pub(crate) fn pass(&self, bytes: u64, stop: &Stop) {
        stop.wait(self.delay(bytes, clock::now()));
    }

    fn delay(&self, bytes: u64, now: Instant) -> Duration {
        let seconds = bytes as f64 / self.bytes_per_second;
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(WAIT_MAX).min(WAIT_MAX);
        let mut passed_at = self.passed_at.lock();
        let earliest = now.checked_sub(WINDOW).unwrap_or(now);
        let passed = passed_at.unwrap_or(earliest).max(earliest) + time;
        *passed_at = Some(passed);
        passed.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Stop, Throttle, clock};

    #[test]
    fn a_rate_is_kept_over_time_and_a_pause_is_worth_little() {
        let throttle = Throttle::new(1000.0);
        let start = clock::now();
        assert_eq!(throttle.delay(300, start), Duration::ZERO);
        assert_eq!(throttle.delay(500, start), Duration::from_millis(500));
        let later = start + Duration::from_secs(60);
        assert_eq!(throttle.delay(400, later), Duration::from_millis(100));
        assert_eq!(Throttle::new(f64::MAX).delay(u64::MAX, start), Duration::ZERO);
        assert!(Throttle::new(0.0).delay(1, start) > Duration::from_secs(3000));
    }

    #[test]
    fn a_stop_ends_a_wait() {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            scope.spawn(|| stop.stop());
            Throttle::new(0.001).pass(1_000_000, &stop);
        });
        assert!(stop.is_stopped());
    }
}
