//! What the controller counts, under Kafka's names. Source: `KafkaController`, `ControllerStats`.

use std::sync::Arc;

use common::counters::{Gauge, Meter, MetricName, Registry};
use controller::{controller::Counts, plan::Decided};

/// What a broker with ZooKeeper says of its way to KRaft. Source: `ZkMigrationState.ZK`.
const ZK_MODE: i64 = 4;
const QUEUE_SIZE: &str = "TotalQueueSize";

/// Counters of the controller. By default they are in no registry.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics {
    /// 1 on the controller, else 0.
    pub active_controller: Arc<Gauge>,
    /// Live brokers.
    pub active_brokers: Arc<Gauge>,
    /// Requests that wait for brokers.
    pub queued_requests: Arc<Gauge>,
    /// Topics of the cluster.
    pub global_topics: Arc<Gauge>,
    /// Partitions of the cluster.
    pub global_partitions: Arc<Gauge>,
    /// Partitions without a leader.
    pub offline_partitions: Arc<Gauge>,
    /// Partitions that their first replica does not lead.
    pub preferred_replica_imbalance: Arc<Gauge>,
    /// Topics to delete.
    pub topics_to_delete: Arc<Gauge>,
    /// Topics whose deletion waits.
    pub topics_ineligible_to_delete: Arc<Gauge>,
    /// Replicas to delete.
    pub replicas_to_delete: Arc<Gauge>,
    /// Replicas whose deletion waits.
    pub replicas_ineligible_to_delete: Arc<Gauge>,
    /// Leaders from outside the ISR.
    pub unclean_leader_elections: Arc<Meter>,
}

impl ControllerMetrics {
    /// The counters of the broker's controller.
    pub fn of_broker(registry: &Registry) -> ControllerMetrics {
        let gauge =
            |name| registry.gauge(MetricName::new("kafka.controller", "KafkaController", name));
        // Brokers are fenced where there is no ZooKeeper; one that does not move from it says 4, whatever its role.
        gauge("FencedBrokerCount").set(0);
        gauge("ZkMigrationState").set(ZK_MODE);
        let channels = MetricName::new("kafka.controller", "ControllerChannelManager", QUEUE_SIZE);
        let stats = |name| MetricName::new("kafka.controller", "ControllerStats", name);
        ControllerMetrics {
            active_controller: gauge("ActiveControllerCount"),
            active_brokers: gauge("ActiveBrokerCount"),
            queued_requests: registry.gauge(channels),
            global_topics: gauge("GlobalTopicCount"),
            global_partitions: gauge("GlobalPartitionCount"),
            offline_partitions: gauge("OfflinePartitionsCount"),
            preferred_replica_imbalance: gauge("PreferredReplicaImbalanceCount"),
            topics_to_delete: gauge("TopicsToDeleteCount"),
            topics_ineligible_to_delete: gauge("TopicsIneligibleToDeleteCount"),
            replicas_to_delete: gauge("ReplicasToDeleteCount"),
            replicas_ineligible_to_delete: gauge("ReplicasIneligibleToDeleteCount"),
            unclean_leader_elections: registry.meter(stats("UncleanLeaderElectionsPerSec")),
        }
    }

    /// Shows how many requests wait for brokers.
    pub(super) fn show_queued(&self, count: usize) {
        self.queued_requests.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Shows the numbers of a controller in office; those of `Counts::default()` after it.
    pub(super) fn show(&self, active: bool, counts: Counts) {
        let set = |gauge: &Gauge, count: usize| gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        set(&self.active_controller, usize::from(active));
        set(&self.active_brokers, counts.brokers);
        set(&self.global_topics, counts.topics);
        set(&self.global_partitions, counts.partitions);
        set(&self.offline_partitions, counts.offline_partitions);
        set(&self.preferred_replica_imbalance, counts.not_preferred);
        set(&self.topics_to_delete, counts.topics_to_delete);
        set(&self.topics_ineligible_to_delete, counts.topics_ineligible);
        set(&self.replicas_to_delete, counts.replicas_to_delete);
        set(&self.replicas_ineligible_to_delete, counts.replicas_ineligible);
    }

    /// Counts elections.
    pub(super) fn count(&self, decided: &[Decided]) {
        let unclean = decided.iter().filter(|decided| decided.unclean).count();
        self.unclean_leader_elections.mark(u64::try_from(unclean).unwrap_or(u64::MAX));
    }
}
