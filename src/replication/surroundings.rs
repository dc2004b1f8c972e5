//! What all partitions of a broker share: who it is, which brokers live, where proposals and counts go.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{
    counters::{Meter, MetricName, Registry},
    ids::BrokerId,
    topic::TopicPartition,
};
use metadata::cache::MetadataCache;
use parking_lot::Mutex;
use partition::leader::Proposal;
use tokio::sync::Notify;

use crate::{partition::Partition, quota::ReplicationQuota};

/// Shared by all partitions of a broker; never changes but through what it holds.
#[derive(Debug)]
pub struct Surroundings {
    /// This broker.
    pub local: BrokerId,
    /// The cluster, as the controller tells it.
    pub metadata: Arc<MetadataCache>,
    /// `replica.lag.time.max.ms`.
    pub lag_time_max: Duration,
    /// Changes of in-sync sets that wait to be sent to the controller.
    pub proposals: Proposals,
    /// Bounds what throttled replicas are sent.
    pub leader_quota: ReplicationQuota,
    /// Bounds what is fetched for throttled replicas.
    pub follower_quota: ReplicationQuota,
    /// What is counted.
    pub metrics: ReplicationMetrics,
    /// Whether a partition has come, gone, or changed its role or in-sync set since the partitions were counted.
    has_changed: AtomicBool,
}

/// `replication.quota.window.num` and `replication.quota.window.size.seconds` as they are by default.
const QUOTA_WINDOWS: (usize, Duration) = (11, Duration::from_secs(1));

impl Surroundings {
    /// Those of a broker, counting into a registry.
    pub fn new(
        local: BrokerId,
        metadata: Arc<MetadataCache>,
        lag_time_max: Duration,
        registry: &Registry,
    ) -> Surroundings {
        Surroundings {
            local,
            metadata,
            lag_time_max,
            proposals: Proposals::default(),
            leader_quota: ReplicationQuota::new(QUOTA_WINDOWS.0, QUOTA_WINDOWS.1),
            follower_quota: ReplicationQuota::new(QUOTA_WINDOWS.0, QUOTA_WINDOWS.1),
            metrics: ReplicationMetrics::of_broker(registry),
            has_changed: AtomicBool::new(true),
        }
    }

    /// Measures replication over so many windows of this length.
    pub fn with_quota_windows(mut self, count: usize, length: Duration) -> Surroundings {
        self.leader_quota = ReplicationQuota::new(count, length);
        self.follower_quota = ReplicationQuota::new(count, length);
        self
    }

    /// Those of a broker that knows of no other; what it counts nobody sees.
    pub fn alone(local: BrokerId) -> Surroundings {
        let lag_time_max = Duration::from_secs(30);
        Surroundings::new(local, Arc::default(), lag_time_max, &Registry::default())
    }

    pub(crate) fn note_change(&self) {
        self.has_changed.store(true, Ordering::Release);
    }

    /// Whether anything has changed since the last call.
    pub(crate) fn take_change(&self) -> bool {
        self.has_changed.swap(false, Ordering::AcqRel)
    }

    /// Whether a broker is registered, as far as this one knows.
    pub(crate) fn is_alive(&self, broker: BrokerId) -> bool {
        self.metadata.load().broker(broker).is_some()
    }
}

/// Changes of in-sync sets that wait to be sent; the newest of each partition. There are never more than partitions.
#[derive(Debug, Default)]
pub struct Proposals {
    waiting: Mutex<HashMap<TopicPartition, (Arc<Partition>, Proposal)>>,
    notify: Notify,
}

impl Proposals {
    pub(crate) fn put(&self, partition: &Arc<Partition>, proposal: Proposal) {
        let name = partition.topic_partition().clone();
        self.waiting.lock().insert(name, (partition.clone(), proposal));
        self.notify.notify_one();
    }

    /// Puts back what was not sent, but for partitions that propose something newer by now.
    pub fn put_back(&self, unsent: Vec<(Arc<Partition>, Proposal)>) {
        let mut waiting = self.waiting.lock();
        for (partition, proposal) in unsent {
            let name = partition.topic_partition().clone();
            waiting.entry(name).or_insert((partition, proposal));
        }
        self.notify.notify_one();
    }

    /// Waits until there is something, and takes all of it.
    pub async fn take(&self) -> Vec<(Arc<Partition>, Proposal)> {
        loop {
            let taken = std::mem::take(&mut *self.waiting.lock());
            if !taken.is_empty() {
                return taken.into_values().collect();
            }
            self.notify.notified().await;
        }
    }
}

/// What replication counts, under Kafka's names. Source: `ReplicaManager`, `BrokerTopicMetrics`.
#[derive(Debug)]
pub struct ReplicationMetrics {
    /// In-sync sets that have grown.
    pub isr_expands: Arc<Meter>,
    /// In-sync sets that have shrunk.
    pub isr_shrinks: Arc<Meter>,
    /// Proposals that the controller refused.
    pub failed_isr_updates: Arc<Meter>,
    /// Bytes of records copied from leaders.
    pub replication_bytes_in: Arc<Meter>,
    /// Bytes of records sent to followers.
    pub replication_bytes_out: Arc<Meter>,
}

impl ReplicationMetrics {
    fn of_broker(registry: &Registry) -> ReplicationMetrics {
        let replicas =
            |name| registry.meter(MetricName::new("kafka.server", "ReplicaManager", name));
        let topics =
            |name| registry.meter(MetricName::new("kafka.server", "BrokerTopicMetrics", name));
        ReplicationMetrics {
            isr_expands: replicas("IsrExpandsPerSec"),
            isr_shrinks: replicas("IsrShrinksPerSec"),
            failed_isr_updates: replicas("FailedIsrUpdatesPerSec"),
            replication_bytes_in: topics("ReplicationBytesInPerSec"),
            replication_bytes_out: topics("ReplicationBytesOutPerSec"),
        }
    }
}
