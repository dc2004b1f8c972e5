//! The fetchers of a broker: for each leader as many as `num.replica.fetchers` says, each with some of the partitions.
//! Source: `kafka.server.AbstractFetcherManager`.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use common::{
    config::ibp::MetadataVersion,
    counters::{Gauge, MetricName, Registry},
    ids::{BrokerEpoch, BrokerId, LeaderEpoch},
    java_hash::java_hash,
    topic::TopicPartition,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{fetcher::Fetcher, leaders::Leaders, partition::Partition, takeover::Takeovers};

/// How fetchers fetch.
#[derive(Clone, Debug)]
pub struct FetcherConfig {
    /// This broker.
    pub local: BrokerId,
    /// `inter.broker.protocol.version`.
    pub protocol: MetadataVersion,
    /// `num.replica.fetchers`; at least 1.
    pub fetchers_per_leader: usize,
    /// `replica.fetch.wait.max.ms`.
    pub wait_max_ms: i32,
    /// `replica.fetch.min.bytes`.
    pub bytes_min: i32,
    /// `replica.fetch.response.max.bytes`.
    pub response_bytes_max: i32,
    /// `replica.fetch.max.bytes`.
    pub partition_bytes_max: i32,
    /// `replica.fetch.backoff.ms`.
    pub backoff: Duration,
}

/// The fetchers of a broker. Shared; its locks are held for a few lines.
pub struct Fetchers {
    shared: Arc<FetchersShared>,
    running: Mutex<HashMap<(BrokerId, usize), Arc<Orders>>>,
    takeovers: Arc<Takeovers>,
}

/// What all fetchers share.
pub(crate) struct FetchersShared {
    pub(crate) config: FetcherConfig,
    pub(crate) leaders: Arc<dyn Leaders>,
    /// This broker's registration, which fetches carry.
    pub(crate) broker_epoch: Arc<AtomicI64>,
    pub(crate) metrics: FetcherMetrics,
    pub(crate) stop: CancellationToken,
}

impl FetchersShared {
    pub(crate) fn broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch.load(Ordering::Acquire))
    }
}

/// What fetchers count. Source: `AbstractFetcherManager`.
pub(crate) struct FetcherMetrics {
    pub(crate) failed_partitions: Arc<Gauge>,
    max_lag: Arc<Gauge>,
    /// The largest lag of each fetcher, as last seen.
    lags: Mutex<HashMap<u64, i64>>,
    next_fetcher: AtomicU64,
}

impl FetcherMetrics {
    fn of_broker(registry: &Registry) -> FetcherMetrics {
        let gauge = |name| {
            let name = MetricName::new("kafka.server", "ReplicaFetcherManager", name);
            registry.gauge(name.tag("clientId", "Replica"))
        };
        // A fetcher that panics takes the process with it.
        gauge("DeadThreadCount").set(0);
        FetcherMetrics {
            failed_partitions: gauge("FailedPartitionsCount"),
            max_lag: gauge("MaxLag"),
            lags: Mutex::default(),
            next_fetcher: AtomicU64::new(0),
        }
    }

    /// A number for a new fetcher.
    pub(crate) fn number(&self) -> u64 {
        self.next_fetcher.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes the largest lag of a fetcher's partitions; none when it ends.
    pub(crate) fn set_lag(&self, fetcher: u64, lag: Option<i64>) {
        let mut lags = self.lags.lock();
        match lag {
            Some(lag) => lags.insert(fetcher, lag),
            None => lags.remove(&fetcher),
        };
        self.max_lag.set(lags.values().copied().max().unwrap_or(0));
    }
}

/// What is to become of a partition.
pub(crate) enum Order {
    /// Copy it from the leader of this epoch.
    Follow(Arc<Partition>, LeaderEpoch),
    /// Leave it.
    Leave,
}

/// What a fetcher was told and has not done yet: the newest order for each partition.
#[derive(Default)]
pub(crate) struct Orders {
    state: Mutex<OrdersState>,
    pub(crate) notify: Notify,
}

#[derive(Default)]
struct OrdersState {
    waiting: HashMap<TopicPartition, Order>,
    has_ended: bool,
}

impl Orders {
    /// Gives an order; false where the fetcher has ended.
    fn give(&self, partition: TopicPartition, order: Order) -> bool {
        let mut state = self.state.lock();
        if state.has_ended {
            return false;
        }
        state.waiting.insert(partition, order);
        drop(state);
        self.notify.notify_one();
        true
    }

    /// Takes all orders.
    pub(crate) fn take(&self) -> HashMap<TopicPartition, Order> {
        std::mem::take(&mut self.state.lock().waiting)
    }

    /// Ends the fetcher, unless an order waits.
    pub(crate) fn end_if_none(&self) -> bool {
        let mut state = self.state.lock();
        state.has_ended = state.waiting.is_empty();
        state.has_ended
    }
}

impl Fetchers {
    /// Fetchers that end with `stop`.
    pub fn new(
        config: FetcherConfig,
        leaders: Arc<dyn Leaders>,
        broker_epoch: Arc<AtomicI64>,
        registry: &Registry,
        stop: CancellationToken,
    ) -> Fetchers {
        let metrics = FetcherMetrics::of_broker(registry);
        let shared = FetchersShared { config, leaders, broker_epoch, metrics, stop };
        Fetchers { shared: Arc::new(shared), running: Mutex::default(), takeovers: Arc::default() }
    }

    /// Copies a partition from a leader, from now on. To be called where a task can be started.
    pub(crate) fn follow(&self, partition: &Arc<Partition>, leader: BrokerId, epoch: LeaderEpoch) {
        let name = partition.topic_partition();
        let key = (leader, self.index_of(name));
        let order = || Order::Follow(partition.clone(), epoch);
        let mut running = self.running.lock();
        if running.get(&key).is_some_and(|orders| orders.give(name.clone(), order())) {
            return;
        }
        let orders = Arc::new(Orders::default());
        orders.give(name.clone(), order());
        running.insert(key, orders.clone());
        running.retain(|_, orders| !orders.state.lock().has_ended);
        drop(running);
        let fetcher = Fetcher::new(self.shared.clone(), key, orders);
        tokio::spawn(fetcher.run());
    }

    /// Takes over a partition that is to be led here from the leader before: see `takeover`. The partition says that it is
    /// being taken over.
    pub(crate) fn take_over(&self, partition: &Arc<Partition>, from: BrokerId, epoch: LeaderEpoch) {
        self.takeovers.begin(&self.shared, partition, from, epoch);
    }

    /// Copies nothing any more: of a broker that stops, leaders would think that it is there to stay.
    pub(crate) fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Copies a partition no longer from a leader.
    pub(crate) fn leave(&self, name: &TopicPartition, leader: BrokerId) {
        let running = self.running.lock();
        if let Some(orders) = running.get(&(leader, self.index_of(name))) {
            orders.give(name.clone(), Order::Leave);
        }
    }

    /// Which of a leader's fetchers a partition goes to. Source: `AbstractFetcherManager.getFetcherId`.
    fn index_of(&self, name: &TopicPartition) -> usize {
        let hash = java_hash(&name.topic).wrapping_mul(31).wrapping_add(name.partition);
        // As `Utils.abs`: the smallest number has no positive counterpart.
        let positive = hash.checked_abs().unwrap_or(0).unsigned_abs();
        positive as usize % self.shared.config.fetchers_per_leader.max(1)
    }
}
