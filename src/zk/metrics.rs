//! What a store counts, under Kafka's names. Source: `ZooKeeperClient`, `KafkaZkClient`.

use std::sync::Arc;

use common::counters::{Histogram, Meter, MetricName, Registry};

/// Counters of one store. By default they are in no registry.
#[derive(Clone, Debug, Default)]
pub struct ZkMetrics {
    /// Connections lost.
    pub disconnects: Arc<Meter>,
    /// Connections made.
    pub sync_connects: Arc<Meter>,
    /// Logins refused.
    pub auth_failures: Arc<Meter>,
    /// Sessions that ZooKeeper ended.
    pub expires: Arc<Meter>,
    /// Milliseconds from a request to its answer.
    pub request_latency_ms: Arc<Histogram>,
}

impl ZkMetrics {
    /// The counters of the broker's store.
    pub fn of_broker(registry: &Registry) -> ZkMetrics {
        let meter =
            |name| registry.meter(MetricName::new("kafka.server", "SessionExpireListener", name));
        let latency =
            MetricName::new("kafka.server", "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs");
        ZkMetrics {
            disconnects: meter("ZooKeeperDisconnectsPerSec"),
            sync_connects: meter("ZooKeeperSyncConnectsPerSec"),
            auth_failures: meter("ZooKeeperAuthFailuresPerSec"),
            expires: meter("ZooKeeperExpiresPerSec"),
            request_latency_ms: registry.histogram(latency),
        }
    }
}
