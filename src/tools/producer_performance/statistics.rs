//! What the load test counts. Source: `ProducerPerformance.Stats`.

use std::time::{Duration, Instant};

use common::clock;

use crate::console::say;

/// Latencies that are kept at most; of more records every nth is.
const SAMPLES_MAX: u64 = 500_000;
const REPORTING_INTERVAL: Duration = Duration::from_secs(5);
const BYTES_PER_MB: f64 = 1024.0 * 1024.0;

/// Counts of the whole run, and of the window since the last report.
pub(super) struct Statistics {
    begun: Instant,
    sampling: u64,
    latencies: Vec<u64>,
    pub(super) count: u64,
    pub(super) failed: u64,
    bytes: u64,
    pub(super) latency_max_ms: u64,
    latency_total_ms: u64,
    window: Window,
}

struct Window {
    begun: Instant,
    count: u64,
    bytes: u64,
    latency_max_ms: u64,
    latency_total_ms: u64,
}

impl Window {
    fn new(begun: Instant) -> Window {
        Window { begun, count: 0, bytes: 0, latency_max_ms: 0, latency_total_ms: 0 }
    }
}

impl Statistics {
    pub(super) fn new(record_count: u64, now: Instant) -> Statistics {
        Statistics {
            begun: now,
            sampling: record_count.div_euclid(record_count.clamp(1, SAMPLES_MAX)).max(1),
            latencies: Vec::new(),
            count: 0,
            failed: 0,
            bytes: 0,
            latency_max_ms: 0,
            latency_total_ms: 0,
            window: Window::new(now),
        }
    }

    /// Counts a record that was written; prints a line every five seconds.
    pub(super) fn record(&mut self, latency: Duration, size: usize, at: Instant) {
        let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        if self.count.is_multiple_of(self.sampling) {
            self.latencies.push(latency_ms);
        }
        self.count += 1;
        self.bytes += size;
        self.latency_total_ms += latency_ms;
        self.latency_max_ms = self.latency_max_ms.max(latency_ms);
        let window = &mut self.window;
        window.count += 1;
        window.bytes += size;
        window.latency_total_ms += latency_ms;
        window.latency_max_ms = window.latency_max_ms.max(latency_ms);
        let elapsed = at.saturating_duration_since(window.begun);
        if elapsed >= REPORTING_INTERVAL {
            say(&window.line(elapsed));
            self.window = Window::new(at);
        }
    }

    /// Prints the last line.
    pub(super) fn print_total(&self) {
        let elapsed = clock::now().saturating_duration_since(self.begun);
        say(&self.total(elapsed));
    }

    fn total(&self, elapsed: Duration) -> String {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let percentile = |share: f64| {
            let index = (share * sorted.len() as f64) as usize;
            sorted.get(index).copied().unwrap_or(0)
        };
        format!(
            "{} records sent, {:.6} records/sec ({:.2} MB/sec), {:.2} ms avg latency, {:.2} ms max latency, {} ms 50th, {} ms 95th, {} ms 99th, {} ms 99.9th.",
            self.count,
            per_second(self.count, elapsed),
            per_second(self.bytes, elapsed) / BYTES_PER_MB,
            self.latency_total_ms as f64 / self.count as f64,
            self.latency_max_ms as f64,
            percentile(0.5),
            percentile(0.95),
            percentile(0.99),
            percentile(0.999),
        )
    }
}

impl Window {
    fn line(&self, elapsed: Duration) -> String {
        format!(
            "{} records sent, {:.1} records/sec ({:.2} MB/sec), {:.1} ms avg latency, {:.1} ms max latency.",
            self.count,
            per_second(self.count, elapsed),
            per_second(self.bytes, elapsed) / BYTES_PER_MB,
            self.latency_total_ms as f64 / self.count as f64,
            self.latency_max_ms as f64,
        )
    }
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    1000.0 * count as f64 / elapsed.as_millis() as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use common::clock;

    use super::Statistics;

    #[test]
    fn the_last_line_is_kafkas() {
        let now = clock::now();
        let mut statistics = Statistics::new(4, now);
        for latency in [1, 2, 3, 10] {
            statistics.record(Duration::from_millis(latency), 1 << 20, now);
        }
        assert_eq!(
            statistics.total(Duration::from_secs(2)),
            "4 records sent, 2.000000 records/sec (2.00 MB/sec), 4.00 ms avg latency, 10.00 ms max latency, 3 ms 50th, 10 ms 95th, 10 ms 99th, 10 ms 99.9th."
        );
    }
}
