//! Metrics under Kafka's names: every part counts from its first day; reading them out comes later.
//!
//! A part asks the registry once for its meter, gauge or histogram and keeps the `Arc`; bumping it is one or two
//! relaxed atomic additions. Rates and percentiles are the reader's work.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of a metric as JMX shows it: `kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetricName {
    /// Such as `kafka.server`.
    pub package: &'static str,
    /// Such as `BrokerTopicMetrics`.
    pub kind: &'static str,
    /// Such as `BytesInPerSec`.
    pub name: &'static str,
    /// In Kafka's order.
    pub tags: Vec<(&'static str, String)>,
}

impl MetricName {
    /// A name without tags.
    pub fn new(package: &'static str, kind: &'static str, name: &'static str) -> MetricName {
        MetricName { package, kind, name, tags: Vec::new() }
    }

    /// The same name with one more tag.
    pub fn tag(mut self, key: &'static str, value: impl Into<String>) -> MetricName {
        self.tags.push((key, value.into()));
        self
    }
}

impl fmt::Display for MetricName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:type={},name={}", self.package, self.kind, self.name)?;
        self.tags.iter().try_for_each(|(key, value)| write!(formatter, ",{key}={value}"))
    }
}

/// Counts events or bytes; only grows. Kafka's meters.
#[derive(Debug, Default)]
pub struct Meter(AtomicU64);

impl Meter {
    /// Counts `amount` more.
    pub fn mark(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// All that was counted.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A level that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets the level.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Moves the level, down for a negative amount.
    pub fn add(&self, amount: i64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The level.
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Buckets: each power of two in four, so that a percentile is off by less than a fifth.
const BUCKETS: usize = 252;

/// Distribution of sizes or durations; Kafka's histograms and timers.
#[derive(Debug)]
pub struct Histogram {
    count: AtomicU64,
    sum: AtomicU64,
    max: AtomicU64,
    buckets: Box<[AtomicU64]>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Histogram {
    /// Takes up one value.
    pub fn update(&self, value: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
        self.buckets[bucket(value)].fetch_add(1, Ordering::Relaxed);
    }

    /// How many values were taken up.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// The greatest.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// A value that this share of them, in thousandths (0 to 1000), does not exceed; 0 when there are none.
    pub fn percentile(&self, per_mille: u16) -> u64 {
        let counts: Vec<u64> =
            self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let rank = u128::from(per_mille) * u128::from(total);
        let mut seen = 0;
        for (index, count) in counts.iter().enumerate() {
            seen += count;
            if *count > 0 && u128::from(seen) * 1000 >= rank {
                return bucket_end(index).min(self.max());
            }
        }
        0
    }
}

/// The bucket of a value: below 4 its own, above by the highest bit and the two bits after it.
fn bucket(value: u64) -> usize {
    if value < 4 {
        return usize::try_from(value).expect("below 4");
    }
    let high_bit = value.ilog2();
    let quarter = (value >> (high_bit - 2)) & 3;
    usize::try_from(u64::from(high_bit - 1) * 4 + quarter).expect("below 252")
}

/// The greatest value of a bucket.
fn bucket_end(index: usize) -> u64 {
    if index < 4 {
        return u64::try_from(index).expect("below 4");
    }
    let high_bit = u32::try_from(index / 4 + 1).expect("below 64");
    let quarter = u64::try_from(index % 4).expect("below 4");
    let width = 1_u64 << (high_bit - 2);
    (1_u64 << high_bit) + (quarter * width) + (width - 1)
}

/// One registered metric.
#[derive(Clone, Debug)]
pub enum Metric {
    /// See `Meter`.
    Meter(Arc<Meter>),
    /// See `Gauge`.
    Gauge(Arc<Gauge>),
    /// See `Histogram`.
    Histogram(Arc<Histogram>),
}

/// All metrics of a process, by name. Nobody holds its lock but to add, remove or list.
#[derive(Debug, Default)]
pub struct Registry(Mutex<BTreeMap<MetricName, Metric>>);

impl Registry {
    /// The meter of that name, made at the first call.
    ///
    /// # Panics
    /// Where the name stands for another kind of metric; so do `gauge` and `histogram`.
    pub fn meter(&self, name: MetricName) -> Arc<Meter> {
        match self.lock().entry(name).or_insert_with(|| Metric::Meter(Arc::default())) {
            Metric::Meter(meter) => meter.clone(),
            other => panic!("not a meter: {other:?}"),
        }
    }

    /// The gauge of that name, made at the first call.
    pub fn gauge(&self, name: MetricName) -> Arc<Gauge> {
        match self.lock().entry(name).or_insert_with(|| Metric::Gauge(Arc::default())) {
            Metric::Gauge(gauge) => gauge.clone(),
            other => panic!("not a gauge: {other:?}"),
        }
    }

    /// The histogram of that name, made at the first call.
    pub fn histogram(&self, name: MetricName) -> Arc<Histogram> {
        match self.lock().entry(name).or_insert_with(|| Metric::Histogram(Arc::default())) {
            Metric::Histogram(histogram) => histogram.clone(),
            other => panic!("not a histogram: {other:?}"),
        }
    }

    /// Forgets every metric with this tag: those of a topic that is gone.
    pub fn remove_tagged(&self, key: &str, value: &str) {
        let has_tag =
            |name: &MetricName| name.tags.iter().any(|tag| tag.0 == key && tag.1 == value);
        self.lock().retain(|name, _| !has_tag(name));
    }

    /// Every metric, by name.
    pub fn all(&self) -> Vec<(MetricName, Metric)> {
        self.lock().iter().map(|(name, metric)| (name.clone(), metric.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MetricName, Metric>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_in_jmx() {
        let name = MetricName::new("kafka.server", "BrokerTopicMetrics", "BytesInPerSec");
        assert_eq!(
            name.tag("topic", "orders").to_string(),
            "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders"
        );
    }

    #[test]
    fn one_name_is_one_metric_until_it_is_removed() {
        let registry = Registry::default();
        let name = || MetricName::new("kafka.server", "T", "N").tag("topic", "a");
        registry.meter(name()).mark(2);
        registry.meter(name()).mark(3);
        assert_eq!(registry.meter(name()).count(), 5);
        registry.gauge(MetricName::new("kafka.server", "T", "G")).add(-1);
        registry.remove_tagged("topic", "a");
        let left: Vec<_> = registry.all().into_iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(left, ["kafka.server:type=T,name=G"]);
        assert_eq!(registry.meter(name()).count(), 0);
    }

    #[test]
    fn percentiles_are_close() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.update(value));
        assert_eq!((histogram.count(), histogram.sum(), histogram.max()), (1000, 500_500, 1000));
        for (per_mille, exact) in [(500, 500_u64), (990, 990), (1000, 1000)] {
            let found = histogram.percentile(per_mille);
            assert!(found >= exact && found <= exact * 6 / 5, "{per_mille}: {found}");
        }
        assert_eq!(Histogram::default().percentile(500), 0);
    }

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in [0, 1, 3, 4, 5, 7, 8, 1023, 1024, u64::MAX / 2, u64::MAX] {
            let index = bucket(value);
            assert!(value <= bucket_end(index), "{value}");
            assert!(index == 0 || value > bucket_end(index - 1), "{value}");
        }
    }
}
