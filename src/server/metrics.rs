//! What the broker counts, under Kafka's metric names. Source: `BrokerTopicMetrics`, `RequestMetrics`, `ReplicaManager`.

use std::sync::Arc;

use common::counters::{Gauge, Meter, MetricName, Registry};
use protocol::api::{self, Api};

/// The broker's counters. Cheap to bump: an atomic each.
pub(crate) struct BrokerMetrics {
    /// Records appended for producers.
    pub messages_in: Arc<Meter>,
    /// Bytes of records appended for producers.
    pub bytes_in: Arc<Meter>,
    /// Bytes of records sent to consumers.
    pub bytes_out: Arc<Meter>,
    /// Bytes of batches that were refused.
    pub bytes_rejected: Arc<Meter>,
    /// Partitions of produce requests.
    pub produce_requests: Arc<Meter>,
    /// Partitions of produce requests that failed for a reason of the broker's.
    pub failed_produce_requests: Arc<Meter>,
    /// Partitions of fetches.
    pub fetch_requests: Arc<Meter>,
    /// Partitions of fetches that failed.
    pub failed_fetch_requests: Arc<Meter>,
    /// Partitions on this broker.
    pub partitions: Arc<Gauge>,
    /// Partitions on this broker whose log directory has failed.
    pub offline_replicas: Arc<Gauge>,
    /// Partitions led by this broker.
    pub leaders: Arc<Gauge>,
    /// Partitions led here with fewer in-sync replicas than there shall be.
    pub under_replicated: Arc<Gauge>,
    /// Partitions led here with fewer in-sync replicas than acks=all asks for.
    pub under_min_isr: Arc<Gauge>,
    /// Partitions led here with just as many in-sync replicas as acks=all asks for.
    pub at_min_isr: Arc<Gauge>,
    /// Partitions led here of which a reassignment adds or takes away replicas.
    pub reassigning: Arc<Gauge>,
    /// Partitions led here with a transaction that is open for five minutes longer than any may be, at the last look.
    pub late_transactions: Arc<Gauge>,
    /// Transactions that are open here for longer than any should be, at the last look. A name of our own.
    pub hanging_transactions: Arc<Gauge>,
    /// Those that were aborted since no coordinator would. A name of our own.
    pub hanging_transactions_aborted: Arc<Meter>,
    /// Log directories that failed.
    pub offline_log_directories: Arc<Gauge>,
    /// Requests of each API, in the order of `api::ALL`.
    requests: Vec<Arc<Meter>>,
}

impl BrokerMetrics {
    /// The counters, in a registry.
    pub(crate) fn new(registry: &Registry) -> BrokerMetrics {
        let topics =
            |name| registry.meter(MetricName::new("kafka.server", "BrokerTopicMetrics", name));
        let replicas =
            |name| registry.gauge(MetricName::new("kafka.server", "ReplicaManager", name));
        let requests = api::ALL.iter().map(|api| {
            let name = MetricName::new("kafka.network", "RequestMetrics", "RequestsPerSec");
            registry.meter(name.tag("request", api.name))
        });
        BrokerMetrics {
            messages_in: topics("MessagesInPerSec"),
            bytes_in: topics("BytesInPerSec"),
            bytes_out: topics("BytesOutPerSec"),
            bytes_rejected: topics("BytesRejectedPerSec"),
            produce_requests: topics("TotalProduceRequestsPerSec"),
            failed_produce_requests: topics("FailedProduceRequestsPerSec"),
            fetch_requests: topics("TotalFetchRequestsPerSec"),
            failed_fetch_requests: topics("FailedFetchRequestsPerSec"),
            partitions: replicas("PartitionCount"),
            offline_replicas: replicas("OfflineReplicaCount"),
            leaders: replicas("LeaderCount"),
            under_replicated: replicas("UnderReplicatedPartitions"),
            under_min_isr: replicas("UnderMinIsrPartitionCount"),
            at_min_isr: replicas("AtMinIsrPartitionCount"),
            reassigning: replicas("ReassigningPartitions"),
            late_transactions: replicas("PartitionsWithLateTransactionsCount"),
            hanging_transactions: replicas("HangingTransactionCount"),
            hanging_transactions_aborted: registry.meter(MetricName::new(
                "kafka.server",
                "ReplicaManager",
                "HangingTransactionsAbortedPerSec",
            )),
            offline_log_directories: registry.gauge(MetricName::new(
                "kafka.log",
                "LogManager",
                "OfflineLogDirectoryCount",
            )),
            requests: requests.collect(),
        }
    }

    /// Counts a request.
    pub(crate) fn request(&self, api: &Api) {
        let index = api::ALL.iter().position(|one| one.key == api.key);
        if let Some(meter) = index.and_then(|index| self.requests.get(index)) {
            meter.mark(1);
        }
    }
}
