//! Transactions and producers. Sources: KIP-664, `ListTransactionsHandler` and its siblings.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
    topic::TopicPartition,
};
use kafka_protocol::{
    messages::{
        self, DescribeProducersRequest, DescribeTransactionsRequest, InitProducerIdRequest,
        ListTransactionsRequest, TransactionalId, WriteTxnMarkersRequest,
        describe_producers_request::TopicRequest,
        describe_producers_response::PartitionResponse,
        write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
    },
    protocol::StrBytes,
};

use super::{Admin, Attempt, Target, outcome, text, topic_name};
use crate::{
    cluster::Topics,
    coordinator::CoordinatorKind,
    error::{ClientError, ErrorKind},
    offsets::Partitions,
};

/// A transactional id, as its coordinator lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionListing {
    /// The id.
    pub id: String,
    /// Its present producer.
    pub producer_id: ProducerId,
    /// Such as `Ongoing`.
    pub state: String,
}

/// Which transactions are listed.
#[derive(Clone, Debug, Default)]
pub struct TransactionFilter {
    /// Only of these producers; empty for all.
    pub producer_ids: Vec<i64>,
    /// Only those that run longer than so many milliseconds; none for all.
    pub duration_ms: Option<i64>,
}

/// A transactional id in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    /// The broker that coordinates it.
    pub coordinator: i32,
    /// Such as `Ongoing`.
    pub state: String,
    /// Its present producer.
    pub producer_id: ProducerId,
    /// That producer's epoch.
    pub producer_epoch: ProducerEpoch,
    /// `transaction.timeout.ms`.
    pub timeout_ms: i32,
    /// When the present transaction began, if there is one.
    pub start_time_ms: Option<i64>,
    /// Partitions of the present transaction, as the broker orders them.
    pub partitions: Vec<TopicPartition>,
}

/// What a partition's leader knows of a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// Its id.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: i32,
    /// Sequence of its last record.
    pub last_sequence: i32,
    /// Time of its last record.
    pub last_timestamp: i64,
    /// Epoch of the coordinator that ended its last transaction; none before the first.
    pub coordinator_epoch: Option<i32>,
    /// First offset of its open transaction.
    pub transaction_start: Option<i64>,
}

/// A transaction that is to be aborted in one partition, past its coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortSpec {
    /// Where.
    pub partition: TopicPartition,
    /// Whose.
    pub producer_id: ProducerId,
    /// That producer's epoch.
    pub producer_epoch: ProducerEpoch,
    /// Below that of the last marker the partition refuses it.
    pub coordinator_epoch: i32,
}

impl std::fmt::Display for AbortSpec {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AbortSpec { partition, producer_id, producer_epoch, coordinator_epoch } = self;
        write!(
            formatter,
            "AbortTransactionSpec(topicPartition={partition}, producerId={producer_id}, producerEpoch={producer_epoch}, coordinatorEpoch={coordinator_epoch})"
        )
    }
}

/// A filter by duration can be sent from this version on. Source: KIP-994.
const DURATION_FROM: i16 = 1;

impl Admin {
    /// Transactional ids by the broker that coordinates them.
    pub async fn list_transactions(
        &self,
        filter: &TransactionFilter,
    ) -> Result<BTreeMap<i32, Vec<TransactionListing>>, ClientError> {
        let metadata = self.metadata("listTransactions(api=METADATA)", &Topics::None).await?;
        let mut listings = BTreeMap::new();
        for broker in metadata.nodes.keys() {
            let listed = self.run("listTransactions", Target::Broker(*broker), async |attempt| {
                list_transactions_of(&attempt, filter, *broker).await
            });
            listings.insert(*broker, listed.await?);
        }
        Ok(listings)
    }

    /// One transactional id.
    pub async fn describe_transaction(
        &self,
        id: &str,
    ) -> Result<TransactionDescription, ClientError> {
        let kind = CoordinatorKind::Transaction;
        self.at_coordinator("describeTransactions", kind, id, async |attempt, node| {
            let request = DescribeTransactionsRequest::default()
                .with_transactional_ids(vec![TransactionalId(text(id))]);
            let response = attempt.call(request, i16::MAX).await?;
            let missing = || ClientError::from_code(ErrorCode::UnknownServerError, None);
            let found = response.transaction_states.into_iter().next().ok_or_else(missing)?;
            refuse_transaction(id, found.error_code)?;
            let partitions = found.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|index| TopicPartition::new(&*topic.topic.0, *index))
            });
            Ok(TransactionDescription {
                coordinator: node.id,
                state: found.transaction_state.to_string(),
                producer_id: ProducerId(found.producer_id.0),
                producer_epoch: ProducerEpoch(found.producer_epoch),
                timeout_ms: found.transaction_timeout_ms,
                start_time_ms: (found.transaction_start_time_ms >= 0)
                    .then_some(found.transaction_start_time_ms),
                partitions: partitions.collect(),
            })
        })
        .await
    }

    /// Producers that the leaders of these partitions know, or that one broker knows as their replica.
    pub async fn describe_producers(
        &self,
        partitions: &BTreeSet<TopicPartition>,
        broker: Option<i32>,
    ) -> Result<Partitions<Result<Vec<ProducerState>, ClientError>>, ClientError> {
        let ask = async |attempt: Attempt, names: &[TopicPartition]| {
            let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
            for name in names {
                topics.entry(&name.topic).or_default().push(name.partition);
            }
            let topics = topics.into_iter().map(|(name, indexes)| {
                TopicRequest::default().with_name(topic_name(name)).with_partition_indexes(indexes)
            });
            let request = DescribeProducersRequest::default().with_topics(topics.collect());
            let response = attempt.call(request, i16::MAX).await?;
            let mut results = Partitions::new();
            for topic in &response.topics {
                for partition in &topic.partitions {
                    let name = TopicPartition::new(&*topic.name.0, partition.partition_index);
                    let producers = producers_of(&name, partition, broker);
                    results.insert(name, producers);
                }
            }
            Ok(results)
        };
        let Some(broker) = broker else {
            return self.by_leader("describeProducers", partitions, ask).await;
        };
        let names: Vec<TopicPartition> = partitions.iter().cloned().collect();
        self.run("describeProducers", Target::Broker(broker), async |attempt| {
            ask(attempt, &names).await
        })
        .await
    }

    /// Writes an abort marker into one partition. For transactions that their coordinator forgot.
    pub async fn abort_transaction(&self, spec: &AbortSpec) -> Result<(), ClientError> {
        let partitions = BTreeSet::from([spec.partition.clone()]);
        let aborted = self.by_leader("abortTransaction", &partitions, async |attempt, _| {
            let topic = WritableTxnMarkerTopic::default()
                .with_name(topic_name(&spec.partition.topic))
                .with_partition_indexes(vec![spec.partition.partition]);
            let marker = WritableTxnMarker::default()
                .with_producer_id(messages::ProducerId(spec.producer_id.0))
                .with_producer_epoch(spec.producer_epoch.0)
                .with_coordinator_epoch(spec.coordinator_epoch)
                .with_transaction_result(false)
                .with_topics(vec![topic]);
            let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
            let response = attempt.call(request, i16::MAX).await?;
            let mut codes = response
                .markers
                .iter()
                .flat_map(|marker| marker.topics.iter().flat_map(|topic| topic.partitions.iter()));
            let code = codes
                .next()
                .map_or(ErrorCode::UnknownServerError as i16, |partition| partition.error_code);
            Ok(Partitions::from([(spec.partition.clone(), refuse_abort(spec, code))]))
        });
        let results = aborted.await?;
        results.into_values().collect()
    }

    /// Takes a transactional id away from its producer: ends its transaction and raises its epoch.
    /// Source: `FenceProducersHandler`.
    pub async fn fence_producer(
        &self,
        id: &str,
    ) -> Result<(ProducerId, ProducerEpoch), ClientError> {
        let kind = CoordinatorKind::Transaction;
        self.at_coordinator("fenceProducer", kind, id, async |attempt, _| {
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(TransactionalId(text(id))))
                // No new transaction is to begin; the coordinator only wants a number above 0.
                .with_transaction_timeout_ms(attempt.timeout_ms().max(1))
                .with_producer_id(messages::ProducerId(-1))
                .with_producer_epoch(-1);
            let response = attempt.call(request, i16::MAX).await?;
            outcome(response.error_code, None)?;
            Ok((ProducerId(response.producer_id.0), ProducerEpoch(response.producer_epoch)))
        })
        .await
    }
}

async fn list_transactions_of(
    attempt: &Attempt,
    filter: &TransactionFilter,
    broker: i32,
) -> Result<Vec<TransactionListing>, ClientError> {
    let version = attempt.connection.version_of::<ListTransactionsRequest>(i16::MAX)?;
    if filter.duration_ms.is_some_and(|duration| duration >= 0) && version < DURATION_FROM {
        let text = "Duration filter can be set only when using API version 1 or higher. If client is connected to an older broker, do not specify duration filter or set duration filter to -1.";
        return Err(ClientError::new(ErrorKind::UnsupportedVersion, text));
    }
    let ids = filter.producer_ids.iter().map(|id| messages::ProducerId(*id));
    let request = ListTransactionsRequest::default()
        .with_producer_id_filters(ids.collect())
        .with_duration_filter(filter.duration_ms.unwrap_or(-1));
    let response = attempt.call(request, version).await?;
    let because = match ErrorCode::from_code(response.error_code) {
        ErrorCode::None => {
            let listed = response.transaction_states.iter().map(|found| TransactionListing {
                id: found.transactional_id.to_string(),
                producer_id: ProducerId(found.producer_id.0),
                state: found.transaction_state.to_string(),
            });
            return Ok(listed.collect());
        }
        ErrorCode::CoordinatorLoadInProgress => {
            return Err(outcome(response.error_code, None).expect_err("the code is an error"));
        }
        ErrorCode::CoordinatorNotAvailable => format!(
            "ListTransactions request sent to broker {broker} failed because the coordinator is shutting down"
        ),
        _ => format!(
            "ListTransactions request sent to broker {broker} failed with an unexpected exception"
        ),
    };
    Err(ClientError::from_code(ErrorCode::from_code(response.error_code), Some(because)))
}

/// The error of a transactional id, in the words of `DescribeTransactionsHandler`.
fn refuse_transaction(id: &str, code: i16) -> Result<(), ClientError> {
    let code = ErrorCode::from_code(code);
    let because = match code {
        ErrorCode::None => return Ok(()),
        ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator => return Err(ClientError::from_code(code, None)),
        ErrorCode::TransactionalIdAuthorizationFailed => "due to authorization failure",
        ErrorCode::TransactionalIdNotFound => "because the ID could not be found",
        _ => "due to unexpected error",
    };
    let text = format!("DescribeTransactions request for transactionalId `{id}` failed {because}");
    Err(ClientError::from_code(code, Some(text)))
}

/// The producers of a partition, or why not in the words of `DescribeProducersHandler`.
fn producers_of(
    name: &TopicPartition,
    partition: &PartitionResponse,
    broker: Option<i32>,
) -> Result<Vec<ProducerState>, ClientError> {
    let code = ErrorCode::from_code(partition.error_code);
    let text = match code {
        ErrorCode::None => {
            let producers = partition.active_producers.iter().map(|producer| ProducerState {
                producer_id: ProducerId(producer.producer_id.0),
                producer_epoch: producer.producer_epoch,
                last_sequence: producer.last_sequence,
                last_timestamp: producer.last_timestamp,
                coordinator_epoch: (producer.coordinator_epoch >= 0)
                    .then_some(producer.coordinator_epoch),
                transaction_start: (producer.current_txn_start_offset >= 0)
                    .then_some(producer.current_txn_start_offset),
            });
            return Ok(producers.collect());
        }
        ErrorCode::UnknownTopicOrPartition => return Err(ClientError::from_code(code, None)),
        ErrorCode::NotLeaderOrFollower => match broker {
            // Whoever names a broker wants to know of that one.
            Some(broker) => format!(
                "Failed to describe active producers for partition {name} on brokerId {broker}"
            ),
            None => return Err(ClientError::from_code(code, None)),
        },
        ErrorCode::InvalidTopicException => {
            let told = partition.error_message.as_ref().map(StrBytes::to_string);
            let told = told.unwrap_or_else(|| code.message().to_owned());
            format!(
                "Failed to fetch metadata for partition {name} due to invalid topic error: {told}"
            )
        }
        ErrorCode::TopicAuthorizationFailed => format!(
            "Failed to describe active producers for partition {name} due to authorization failure on topic `{}`",
            name.topic
        ),
        _ => format!(
            "Failed to describe active producers for partition {name} due to unexpected error"
        ),
    };
    Err(ClientError::from_code(code, Some(text)))
}

/// The error of an abort, in the words of `AbortTransactionHandler`.
fn refuse_abort(spec: &AbortSpec, code: i16) -> Result<(), ClientError> {
    let code = ErrorCode::from_code(code);
    let epoch = spec.coordinator_epoch;
    let because = match code {
        ErrorCode::None => return Ok(()),
        ErrorCode::NotLeaderOrFollower
        | ErrorCode::ReplicaNotAvailable
        | ErrorCode::BrokerNotAvailable
        | ErrorCode::UnknownTopicOrPartition => {
            return Err(ClientError::from_code(ErrorCode::NotLeaderOrFollower, None));
        }
        ErrorCode::ClusterAuthorizationFailed => {
            "failed due to cluster authorization error".to_owned()
        }
        ErrorCode::InvalidProducerEpoch => "failed due an invalid producer epoch".to_owned(),
        ErrorCode::TransactionCoordinatorFenced => format!(
            "failed since the provided coordinator epoch {epoch} has been fenced by the active coordinator"
        ),
        _ => format!("failed due to unexpected error: {}", code.message()),
    };
    let text = format!("WriteTxnMarkers request with {spec} {because}");
    Err(ClientError::from_code(code, Some(text)))
}
