//! The broker: what its handlers share, and what the request loop calls.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use ::controller::request::{Body, BrokerRequest};
use common::{
    config::broker::BrokerConfig,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch},
    properties::Properties,
};
use metadata::cache::MetadataCache;
use network::service::{Request, Service, Step};
use rand::Rng;
use replication::{
    fetch_session::SessionCache, partition::Partition, replica_manager::ReplicaManager,
};
use storage::log_manager::LogManager;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use zk::store::ZkStore;

use crate::{
    broker_configs::BrokerConfigs,
    controller::{
        ControllerHandle,
        channels::{Answer, ToBroker},
    },
    conversions::ConversionMemory,
    groups::BrokerGroups,
    handlers,
    metrics::BrokerMetrics,
    peers::Peers,
    producer_ids::ProducerIds,
    topic_configs::TopicConfigs,
    transactions::BrokerTransactions,
};

/// How long a question about the cluster waits for the first word of a controller: well below the patience of clients for an
/// answer, 30 s and more, and above what an election takes once the session of a dead controller has ended.
const METADATA_WAIT_MAX: Duration = Duration::from_secs(10);

/// A running broker, as its handlers see it. Never changes but through what it holds.
pub(crate) struct Broker {
    /// What it was started with.
    pub config: Arc<BrokerConfig>,
    /// What holds now, where a setting can change meanwhile.
    pub configs: Arc<BrokerConfigs>,
    pub id: BrokerId,
    /// The epoch of its registration; -1 before the first.
    pub epoch: Arc<AtomicI64>,
    pub cluster_id: String,
    pub zk: Arc<dyn ZkStore>,
    pub logs: Arc<LogManager>,
    pub replicas: Arc<ReplicaManager>,
    pub metadata: Arc<MetadataCache>,
    /// Whether a controller has told of the cluster.
    pub metadata_known: watch::Receiver<bool>,
    pub topic_configs: Arc<TopicConfigs>,
    pub fetch_sessions: SessionCache,
    pub producer_ids: ProducerIds,
    pub groups: Arc<BrokerGroups>,
    pub transactions: Arc<BrokerTransactions>,
    pub controller: ControllerHandle,
    /// Takes what controllers say to this broker, in order.
    pub to_replicas: mpsc::Sender<ToBroker>,
    pub peers: Arc<Peers>,
    pub conversions: ConversionMemory,
    /// Turns of searches for offsets by time.
    pub searches: Semaphore,
    pub metrics: BrokerMetrics,
    /// Version of the `/feature` znode; -1 where it was never seen.
    pub features_epoch: AtomicI64,
}

impl Broker {
    /// A partition of this broker. NOT_LEADER_OR_FOLLOWER where the cluster has it and this broker does not.
    /// Source: `ReplicaManager.getPartitionOrError`.
    pub(crate) fn hosted_partition(
        &self,
        topic: &str,
        partition: i32,
    ) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(hosted) = self.replicas.get(topic, partition) {
            if hosted.log().log_directory().is_offline() {
                return Err(ErrorCode::KafkaStorageError);
            }
            return Ok(hosted);
        }
        let known = self.metadata.load().partition(topic, partition).is_some();
        Err(if known { ErrorCode::NotLeaderOrFollower } else { ErrorCode::UnknownTopicOrPartition })
    }

    /// The leader of a partition as far as this broker knows: what it was told itself, else the cluster's metadata.
    pub(crate) fn known_leader(&self, topic: &str, partition: i32) -> (BrokerId, LeaderEpoch) {
        if let Some(hosted) = self.replicas.get(topic, partition) {
            return hosted.leader();
        }
        let snapshot = self.metadata.load();
        let known = snapshot.partition(topic, partition);
        known
            .map_or((BrokerId::NONE, LeaderEpoch::NONE), |known| (known.leader, known.leader_epoch))
    }

    /// Creates a topic that a client asked for. The code is what Metadata answers for it meanwhile.
    pub(crate) async fn auto_create_topic(&self, name: &str) -> ErrorCode {
        self.controller.auto_create_topic(name).await
    }

    /// A topic's own settings as they stand in ZooKeeper, or as last seen where it does not answer.
    pub(crate) async fn topic_overrides(&self, topic: &str) -> Properties {
        self.topic_configs.read(&*self.zk, topic).await
    }

    /// Version of the `/feature` znode, which ApiVersions tells.
    pub(crate) fn features_epoch(&self) -> i64 {
        self.features_epoch.load(Ordering::Relaxed)
    }

    /// Waits until a controller has told of the cluster, but not for long: a broker that was just started knows of no topic,
    /// and clients that are told so give up, or ask again minutes later. Kafka tells them so.
    pub(crate) async fn wait_for_metadata(&self) {
        let mut known = self.metadata_known.clone();
        let told = known.wait_for(|is_known| *is_known);
        // Without a controller the answer is what this broker knows: nothing.
        let _ = tokio::time::timeout(METADATA_WAIT_MAX, told).await;
    }

    /// Carries out what a controller on another broker says, and waits until it is done. Source of the checks:
    /// `ReplicaRequests`.
    pub(crate) async fn obey(
        &self,
        (controller, controller_epoch): (BrokerId, ControllerEpoch),
        broker_epoch: BrokerEpoch,
        body: Body,
    ) -> Answer {
        let request =
            BrokerRequest { broker: self.id, broker_epoch, controller, controller_epoch, body };
        let (answer, answered) = oneshot::channel();
        // The task that takes requests ends when the broker stops.
        let stopping = || Answer { error: ErrorCode::BrokerNotAvailable, partitions: Vec::new() };
        if self.to_replicas.send(ToBroker { request, answer }).await.is_err() {
            return stopping();
        }
        answered.await.unwrap_or_else(|_| stopping())
    }

    /// A number for a fetch session.
    pub(crate) fn random_session_id(&self) -> i32 {
        rand::rng().random_range(1..=i32::MAX)
    }
}

/// The broker as the network calls it.
pub(crate) struct Requests(pub Arc<Broker>);

impl Service for Requests {
    fn start(&self, request: Request) -> Step {
        handlers::start(&self.0, request)
    }

    fn start_run(&self, requests: &mut VecDeque<Request>) -> Vec<Step> {
        handlers::start_run(&self.0, requests)
    }
}
