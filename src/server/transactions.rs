//! The broker's transaction coordinators: which one has a transactional id, what is asked of it, and what it has done.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use common::{
    config::broker::BrokerConfig,
    counters::{MetricName, Registry},
    error_code::ErrorCode,
    ids::{BrokerId, ProducerEpoch, ProducerId},
    topic::{TRANSACTION_STATE_TOPIC, TopicPartition},
};
use coordinator::{
    log::CoordinatorLog,
    registry::{Coordinators, Known},
    shard::Shard,
    transactions::{Effect, Markers, TransactionGauges, Transactions},
};
use futures_util::future::{join, join_all};
use metadata::{cache::MetadataCache, snapshot::ClusterSnapshot};
use record::{compression::Compression, control};
use replication::partition::Partition;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use transaction_coordinator::{
    action::Reply,
    coordinator::{TransactionConfig, TransactionCoordinator},
    event::{Event, MarkerOutcome, ReplyTo, TransactionResult},
};

use crate::{
    broker::Broker,
    coordinator_topic::CoordinatorTopic,
    errors,
    groups::code_of,
    marker_channels::MarkerChannels,
    markers::{self, Marker},
    peers::{PeerError, Peers, Purpose},
    verification,
};

/// Transactions whose markers are written at the same time. The others wait for their turn; as many wait as there are
/// transactional ids whose transaction is decided.
const MARKERS_AT_ONCE: usize = 1024;

/// What coordinators want done, with the partition of each.
pub(crate) type Effects = mpsc::UnboundedReceiver<(i32, Effect)>;

/// The transactional ids of this broker.
pub(crate) struct BrokerTransactions {
    coordinators: Arc<Coordinators<Transactions>>,
    topic: CoordinatorTopic,
    metadata: Arc<MetadataCache>,
    config: Arc<BrokerConfig>,
    local: BrokerId,
    peers: Arc<Peers>,
    markers: MarkerChannels,
    gauges: TransactionGauges,
}

impl BrokerTransactions {
    /// None yet: the controller's word elects. What they want done is for `carry_out`.
    pub(crate) fn new(
        local: BrokerId,
        config: Arc<BrokerConfig>,
        metadata: Arc<MetadataCache>,
        peers: Arc<Peers>,
        registry: &Registry,
        stop: CancellationToken,
    ) -> (BrokerTransactions, Effects) {
        let buffer_bytes =
            usize::try_from(config.transaction_state_log_load_buffer_size).unwrap_or(1);
        let kind = "transaction-coordinator-metrics";
        let load_times =
            registry.histogram(MetricName::new("kafka.server", kind, "partition-load-time"));
        let (sender, effects) = mpsc::unbounded_channel();
        let coordinators =
            Arc::new(Coordinators::new(buffer_bytes, load_times, sender, stop.clone()));
        let request_timeout = milliseconds(config.request_timeout_ms);
        let markers = MarkerChannels::new(peers.clone(), request_timeout, stop);
        let gauges = TransactionGauges::of_broker(registry);
        let partitions = config.transaction_state_log_num_partitions;
        let topic = CoordinatorTopic::new(TRANSACTION_STATE_TOPIC, partitions);
        let transactions = BrokerTransactions {
            coordinators,
            topic,
            metadata,
            config,
            local,
            peers,
            markers,
            gauges,
        };
        (transactions, effects)
    }

    /// The partition of `__transaction_state` that a transactional id belongs to.
    pub(crate) fn partition_of(&self, transactional_id: &str) -> i32 {
        self.topic.partition_of(transactional_id)
    }

    /// Takes note of what the cluster has now.
    pub(crate) fn learn(&self, snapshot: &ClusterSnapshot) {
        self.topic.learn(snapshot);
    }

    /// This broker leads a partition of the topic since its current epoch.
    pub(crate) fn elect(&self, partition: Arc<Partition>) {
        let epoch = partition.leader_epoch();
        let log = CoordinatorLog::new(partition, epoch, Compression::None);
        let config = transaction_config(&self.config);
        let append_timeout = milliseconds(self.config.request_timeout_ms);
        let gauges = self.gauges.clone();
        let make = move || {
            let code = errors::of_coordinator_append;
            Transactions::new(config.clone(), epoch, append_timeout, code, gauges.clone())
        };
        self.coordinators.elect(log, Box::new(make));
    }

    /// This broker leads a partition of the topic no more.
    pub(crate) fn resign(&self, partition: i32) {
        self.coordinators.resign(partition);
    }

    /// Answers no more; who waits is told.
    pub(crate) fn stop(&self) {
        self.coordinators.stop();
    }

    /// Asks the coordinator of a transactional id. Fails with Kafka's code where the id is empty, or the coordinator is
    /// not here, or not yet.
    pub(crate) async fn ask(
        &self,
        transactional_id: &str,
        event: impl FnOnce(Arc<str>, ReplyTo) -> Event,
    ) -> Result<Reply, ErrorCode> {
        if transactional_id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let shard = self.shard_of(transactional_id)?;
        let reply = shard.request(|number| event(transactional_id.into(), ReplyTo(number)));
        // The shard is closed: this broker was the coordinator until now.
        reply.await.map_err(|_| ErrorCode::NotCoordinator)
    }

    /// Adds partitions to a producer's transaction.
    pub(crate) async fn add_partitions(
        &self,
        transactional_id: &str,
        (producer_id, producer_epoch): (ProducerId, ProducerEpoch),
        partitions: Vec<TopicPartition>,
    ) -> ErrorCode {
        let event = |transactional_id, reply| Event::AddPartitions {
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            reply,
        };
        match self.ask(transactional_id, event).await {
            Ok(Reply::AddPartitions(error)) => error,
            Ok(_) => ErrorCode::UnknownServerError,
            Err(error) => error,
        }
    }

    /// Whether partitions are part of a producer's transaction, as the coordinator on this broker knows it: a code for each.
    pub(crate) async fn verify_here(
        &self,
        transactional_id: &str,
        (producer_id, producer_epoch): (ProducerId, ProducerEpoch),
        partitions: Vec<TopicPartition>,
    ) -> Vec<ErrorCode> {
        let count = partitions.len();
        let event = |transactional_id, reply| Event::VerifyPartitions {
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            reply,
        };
        match self.ask(transactional_id, event).await {
            Ok(Reply::Verify(errors)) => errors,
            Ok(_) => vec![ErrorCode::UnknownServerError; count],
            Err(error) => vec![error; count],
        }
    }

    /// As `verify_here`, wherever the coordinator is. Source: `AddPartitionsToTxnManager`.
    pub(crate) async fn verify(
        &self,
        transactional_id: &str,
        producer: (ProducerId, ProducerEpoch),
        partitions: Vec<TopicPartition>,
    ) -> Vec<ErrorCode> {
        let count = partitions.len();
        let partition = self.partition_of(transactional_id);
        let snapshot = self.metadata.snapshot();
        let known = snapshot.partition(TRANSACTION_STATE_TOPIC, partition);
        match known.map(|known| known.leader) {
            Some(leader) if leader == self.local => {
                self.verify_here(transactional_id, producer, partitions).await
            }
            Some(leader) if snapshot.broker(leader).is_some() => {
                self.verify_at(leader, transactional_id, producer, partitions).await
            }
            _ => vec![ErrorCode::CoordinatorNotAvailable; count],
        }
    }

    /// As `verify_here`, asking the coordinator on another broker.
    async fn verify_at(
        &self,
        coordinator: BrokerId,
        transactional_id: &str,
        producer: (ProducerId, ProducerEpoch),
        partitions: Vec<TopicPartition>,
    ) -> Vec<ErrorCode> {
        let request = verification::request(transactional_id, producer, &partitions);
        let limit = milliseconds(self.config.request_timeout_ms);
        let (purpose, versions) = (Purpose::Verification, verification::VERSIONS);
        let answered = self.peers.call(coordinator, purpose, &request, versions, limit).await;
        match answered {
            Ok((response, _)) => verification::read(&response, &partitions),
            // A coordinator that is too old to be asked: as before there was the check.
            Err(PeerError::UnsupportedVersion { .. }) => vec![ErrorCode::None; partitions.len()],
            Err(problem) => {
                let problem = &problem as &dyn std::error::Error;
                warn!(broker = %coordinator, problem, "could not ask the coordinator of a transaction");
                vec![ErrorCode::NetworkException; partitions.len()]
            }
        }
    }

    /// Looks at the coordinator of a transactional id.
    pub(crate) fn look<T>(
        &self,
        transactional_id: &str,
        look: impl FnOnce(&TransactionCoordinator) -> T,
    ) -> Result<T, ErrorCode> {
        let shard = self.shard_of(transactional_id)?;
        Ok(shard.read(|transactions| look(transactions.coordinator())))
    }

    /// Looks at all coordinators; COORDINATOR_LOAD_IN_PROGRESS while one loads.
    pub(crate) fn look_at_all<T>(
        &self,
        mut look: impl FnMut(&TransactionCoordinator) -> Vec<T>,
    ) -> Result<Vec<T>, ErrorCode> {
        let Known { active, loads } = self.coordinators.all().map_err(code_of)?;
        if loads {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        let each = active.iter();
        Ok(each.flat_map(|shard| shard.read(|one| look(one.coordinator()))).collect())
    }

    fn shard_of(&self, transactional_id: &str) -> Result<Arc<Shard<Transactions>>, ErrorCode> {
        self.coordinators.get(self.partition_of(transactional_id)).map_err(code_of)
    }

    /// Reports to the coordinator that asked for markers, if it is in office still.
    fn report(&self, partition: i32, markers: &Markers, outcomes: Outcomes) {
        let Ok(shard) = self.coordinators.get(partition) else { return };
        // A later term has sent them again, and waits for its own.
        if shard.log().epoch() == markers.coordinator_epoch && !outcomes.is_empty() {
            let transactional_id = markers.transactional_id.clone();
            shard.tell(Event::MarkersWritten { transactional_id, outcomes });
        }
    }
}

type Outcomes = Vec<(TopicPartition, MarkerOutcome)>;

/// Does what the coordinators want done, until told to stop.
pub(crate) async fn carry_out(broker: Arc<Broker>, mut effects: Effects, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(MARKERS_AT_ONCE));
    loop {
        let received = tokio::select! {
            () = stop.cancelled() => return,
            received = effects.recv() => received,
        };
        let Some((partition, effect)) = received else { return };
        let (broker, permits) = (broker.clone(), permits.clone());
        match effect {
            Effect::AllocateProducerId(allocation) => {
                tokio::spawn(async move {
                    let result = broker.producer_ids.next().await;
                    // A number of an earlier term is unknown here, or gets one of this term a producer id as good.
                    if let Ok(shard) = broker.transactions.coordinators.get(partition) {
                        shard.tell(Event::ProducerIdAllocated { allocation, result });
                    }
                });
            }
            Effect::SendMarkers(markers) => {
                tokio::spawn(async move {
                    // The semaphore is never closed.
                    let Ok(permit) = permits.acquire().await else { return };
                    send_markers(&broker, partition, markers, permit).await;
                });
            }
        }
    }
}

/// The permit is for what is written here: a broker that does not answer holds up no other's markers.
async fn send_markers(
    broker: &Broker,
    partition: i32,
    markers: Markers,
    permit: SemaphorePermit<'_>,
) {
    let mut here = Vec::new();
    let mut there: BTreeMap<BrokerId, Vec<TopicPartition>> = BTreeMap::new();
    let mut others = Vec::new();
    for marked in &markers.partitions {
        match destination(broker, marked) {
            Destination::Here => here.push(marked.clone()),
            Destination::Broker(leader) => there.entry(leader).or_default().push(marked.clone()),
            Destination::Outcome(outcome) => others.push((marked.clone(), outcome)),
        }
    }
    broker.transactions.report(partition, &markers, others);
    let marker = Marker {
        producer_id: markers.producer_id,
        producer_epoch: markers.producer_epoch,
        coordinator_epoch: markers.coordinator_epoch.0,
        result: match markers.result {
            TransactionResult::Commit => control::TransactionResult::Commit,
            TransactionResult::Abort => control::TransactionResult::Abort,
        },
    };
    let here = async {
        let codes = markers::write(broker, &marker, &here).await;
        drop(permit);
        let codes = codes.into_iter().map(MarkerOutcome::Answered);
        broker.transactions.report(partition, &markers, here.into_iter().zip(codes).collect());
    };
    let there = there.into_iter().map(|(leader, partitions)| {
        let (markers, transactions) = (&markers, &broker.transactions);
        async move {
            let outcomes = transactions.markers.write(leader, marker, partitions.clone()).await;
            transactions.report(partition, markers, partitions.into_iter().zip(outcomes).collect());
        }
    });
    join(here, join_all(there)).await;
}

/// Where a marker goes.
enum Destination {
    /// This broker leads the partition.
    Here,
    /// Another live broker leads it.
    Broker(BrokerId),
    /// It cannot be sent now, or need not be.
    Outcome(MarkerOutcome),
}

/// Source: `TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue`.
fn destination(broker: &Broker, marked: &TopicPartition) -> Destination {
    let snapshot = broker.metadata.load();
    let Some(known) = snapshot.partition(&marked.topic, marked.partition) else {
        // Metadata without this very coordinator's topic has not arrived yet: it proves no deletion.
        let outcome = match snapshot.topic(TRANSACTION_STATE_TOPIC) {
            Some(_) => MarkerOutcome::NoSuchPartition,
            None => MarkerOutcome::LeaderUnknown,
        };
        return Destination::Outcome(outcome);
    };
    if known.leader == broker.id {
        return Destination::Here;
    }
    match snapshot.broker(known.leader) {
        Some(_) => Destination::Broker(known.leader),
        None => Destination::Outcome(MarkerOutcome::LeaderUnknown),
    }
}

fn milliseconds(value: i32) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}

fn transaction_config(config: &BrokerConfig) -> TransactionConfig {
    TransactionConfig {
        timeout_max: milliseconds(config.transaction_max_timeout_ms),
        id_expiration: milliseconds(config.transactional_id_expiration_ms),
        abort_interval: milliseconds(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        ),
        expire_interval: milliseconds(
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
        ),
    }
}
