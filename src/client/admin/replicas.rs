//! Where replicas are: elections, moves between brokers and between log directories, and what each replica holds.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::Offset,
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterReplicaLogDirsRequest, BrokerId,
    DescribeLogDirsRequest, DescribeLogDirsResponse, ElectLeadersRequest, FetchRequest,
    ListPartitionReassignmentsRequest,
    alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic},
    alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic},
    describe_log_dirs_request::DescribableLogDirTopic,
    elect_leaders_request::TopicPartitions,
    fetch_request::{FetchPartition, FetchTopic, ReplicaState},
    list_partition_reassignments_request::ListPartitionReassignmentsTopics,
};

use super::{Admin, Attempt, Target, broker_ids, outcome, text, topic_name};
use crate::{
    error::{ClientError, ErrorKind},
    fetch::topic_name as name_in_answer,
    metadata::{Metadata, Node},
    offsets::Partitions,
};

/// How a leader is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionType {
    /// The first replica, if it is in sync.
    Preferred,
    /// Any replica that is up, where no leader is: records may be lost.
    Unclean,
}

impl std::fmt::Display for ElectionType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            ElectionType::Preferred => "PREFERRED",
            ElectionType::Unclean => "UNCLEAN",
        })
    }
}

/// A move under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    /// All brokers that hold it meanwhile.
    pub replicas: Vec<i32>,
    /// Brokers that are to hold it.
    pub adding: Vec<i32>,
    /// Brokers that are to drop it.
    pub removing: Vec<i32>,
}

/// A partition on one broker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    /// The partition.
    pub partition: TopicPartition,
    /// The broker.
    pub broker: i32,
}

impl std::fmt::Display for Replica {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}-{}", self.partition, self.broker)
    }
}

/// In which log directories a replica is. None is known where the broker has no such replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaLogDirs {
    /// The one that it is read from.
    pub current: Option<String>,
    /// The one that it is being moved to.
    pub future: Option<String>,
}

/// Limits of a fetch from a replica.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaFetchLimits {
    /// Bytes of one partition that one answer holds.
    pub partition_bytes_max: i32,
    /// How long the broker may wait for the first byte.
    pub wait_max_ms: i32,
}

/// What a replica holds from an offset on.
#[derive(Clone, Debug, Default)]
pub struct ReplicaRecords {
    /// The broker's high watermark of it; -1 where unknown.
    pub high_watermark: i64,
    /// Whole batches, and perhaps the beginning of another.
    pub records: Bytes,
}

/// `FetchRequest.DEBUGGING_CONSUMER_ID`: reads as consumers do, from followers as well.
const DEBUGGING_CONSUMER: BrokerId = BrokerId(-2);
/// Versions of Fetch from this one on have the reader's id in a part of their own.
const REPLICA_STATE_FROM: i16 = 15;
/// Versions of Fetch from this one on name topics by id.
const TOPIC_IDS_FROM: i16 = 13;
/// The first version of `ElectLeaders` with a type.
const ELECTION_TYPE_FROM: i16 = 1;

/// Indexes by topic.
fn by_topic<'a>(
    partitions: impl IntoIterator<Item = &'a TopicPartition>,
) -> BTreeMap<&'a str, Vec<i32>> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for name in partitions {
        topics.entry(&name.topic).or_default().push(name.partition);
    }
    topics
}

impl Admin {
    /// Elects leaders of these partitions, or of all that need one; a result for each that was looked at.
    pub async fn elect_leaders(
        &self,
        election: ElectionType,
        partitions: Option<&BTreeSet<TopicPartition>>,
    ) -> Result<Partitions<Result<(), ClientError>>, ClientError> {
        self.run("electLeaders", Target::Controller, async |attempt| {
            let version = attempt.connection.version_of::<ElectLeadersRequest>(i16::MAX)?;
            if version < ELECTION_TYPE_FROM && election == ElectionType::Unclean {
                let text = "Unclean leader election is not supported by the broker.";
                return Err(ClientError::new(ErrorKind::UnsupportedVersion, text));
            }
            let topics = partitions.map(|partitions| {
                let topics = by_topic(partitions).into_iter().map(|(name, indexes)| {
                    TopicPartitions::default().with_topic(topic_name(name)).with_partitions(indexes)
                });
                topics.collect()
            });
            let request = ElectLeadersRequest::default()
                .with_election_type(i8::from(election == ElectionType::Unclean))
                .with_topic_partitions(topics)
                .with_timeout_ms(attempt.timeout_ms());
            let response = attempt.call(request, version).await?;
            outcome(response.error_code, None)?;
            let mut results = Partitions::new();
            for topic in &response.replica_election_results {
                for partition in &topic.partition_result {
                    let name = TopicPartition::new(&*topic.topic.0, partition.partition_id);
                    let message = partition.error_message.as_ref();
                    results.insert(name, outcome(partition.error_code, message));
                }
            }
            Ok(results)
        })
        .await
    }

    /// Moves under way: among these partitions, or all.
    pub async fn list_reassignments(
        &self,
        partitions: Option<&BTreeSet<TopicPartition>>,
    ) -> Result<HashMap<TopicPartition, Reassignment>, ClientError> {
        self.run("listPartitionReassignments", Target::Controller, async |attempt| {
            let topics = partitions.map(|partitions| {
                let topics = by_topic(partitions).into_iter().map(|(name, indexes)| {
                    ListPartitionReassignmentsTopics::default()
                        .with_name(topic_name(name))
                        .with_partition_indexes(indexes)
                });
                topics.collect()
            });
            let request = ListPartitionReassignmentsRequest::default()
                .with_timeout_ms(attempt.timeout_ms())
                .with_topics(topics);
            let response = attempt.call(request, i16::MAX).await?;
            outcome(response.error_code, response.error_message.as_ref())?;
            let ids = |ids: &[BrokerId]| ids.iter().map(|id| id.0).collect();
            let mut moves = HashMap::new();
            for topic in &response.topics {
                for partition in &topic.partitions {
                    let name = TopicPartition::new(&*topic.name.0, partition.partition_index);
                    let reassignment = Reassignment {
                        replicas: ids(&partition.replicas),
                        adding: ids(&partition.adding_replicas),
                        removing: ids(&partition.removing_replicas),
                    };
                    moves.insert(name, reassignment);
                }
            }
            Ok(moves)
        })
        .await
    }

    /// Begins moves to these brokers, in their order; none ends the move under way. A result for each partition.
    pub async fn alter_reassignments(
        &self,
        wanted: &BTreeMap<TopicPartition, Option<Vec<i32>>>,
    ) -> Result<Partitions<Result<(), ClientError>>, ClientError> {
        self.run("alterPartitionReassignments", Target::Controller, async |attempt| {
            let topics = by_topic(wanted.keys()).into_iter().map(|(name, indexes)| {
                let partitions = indexes.into_iter().map(|index| {
                    let replicas = &wanted[&TopicPartition::new(name, index)];
                    ReassignablePartition::default()
                        .with_partition_index(index)
                        .with_replicas(replicas.as_deref().map(broker_ids))
                });
                ReassignableTopic::default()
                    .with_name(topic_name(name))
                    .with_partitions(partitions.collect())
            });
            let request = AlterPartitionReassignmentsRequest::default()
                .with_timeout_ms(attempt.timeout_ms())
                .with_topics(topics.collect());
            let response = attempt.call(request, i16::MAX).await?;
            let whole = outcome(response.error_code, response.error_message.as_ref());
            if let Err(error) = &whole
                && error.code() == ErrorCode::NotController
            {
                return Err(error.clone());
            }
            let mut results: Partitions<_> =
                wanted.keys().map(|name| (name.clone(), whole.clone())).collect();
            for topic in &response.responses {
                for partition in &topic.partitions {
                    let name = TopicPartition::new(&*topic.name.0, partition.partition_index);
                    let result = outcome(partition.error_code, partition.error_message.as_ref());
                    results.insert(name, whole.clone().and(result));
                }
            }
            Ok(results)
        })
        .await
    }

    /// Begins moves between log directories of the replicas' brokers; a result for each. A broker that cannot be
    /// asked gives its error for all its replicas.
    pub async fn alter_replica_log_dirs(
        &self,
        wanted: &BTreeMap<Replica, String>,
    ) -> BTreeMap<Replica, Result<(), ClientError>> {
        let mut results = BTreeMap::new();
        let brokers: BTreeSet<i32> = wanted.keys().map(|replica| replica.broker).collect();
        for broker in brokers {
            let of_broker: BTreeMap<&Replica, &str> = wanted
                .iter()
                .filter(|(replica, _)| replica.broker == broker)
                .map(|(replica, directory)| (replica, directory.as_str()))
                .collect();
            let target = Target::Broker(broker);
            let altered = self.run("alterReplicaLogDirs", target, async |attempt| {
                alter_log_dirs_of(&attempt, &of_broker).await
            });
            let altered = altered.await;
            for replica in of_broker.into_keys() {
                let result = match &altered {
                    Ok(answers) => answers.get(&replica.partition).cloned().unwrap_or_else(|| {
                        Err(ClientError::from_code(ErrorCode::UnknownServerError, None))
                    }),
                    Err(error) => Err(error.clone()),
                };
                results.insert(replica.clone(), result);
            }
        }
        results
    }

    /// What a broker's log directories hold.
    pub async fn describe_log_dirs(
        &self,
        broker: i32,
    ) -> Result<DescribeLogDirsResponse, ClientError> {
        self.run("describeLogDirs", Target::Broker(broker), async |attempt| {
            let request = DescribeLogDirsRequest::default().with_topics(None);
            let response = attempt.call(request, i16::MAX).await?;
            outcome(response.error_code, None)?;
            Ok(response)
        })
        .await
    }

    /// In which log directories these replicas are.
    pub async fn describe_replica_log_dirs(
        &self,
        replicas: &BTreeSet<Replica>,
    ) -> Result<BTreeMap<Replica, ReplicaLogDirs>, ClientError> {
        let mut found: BTreeMap<Replica, ReplicaLogDirs> =
            replicas.iter().map(|replica| (replica.clone(), ReplicaLogDirs::default())).collect();
        let brokers: BTreeSet<i32> = replicas.iter().map(|replica| replica.broker).collect();
        for broker in brokers {
            let of_broker = replicas.iter().filter(|replica| replica.broker == broker);
            let topics = by_topic(of_broker.map(|replica| &replica.partition));
            let target = Target::Broker(broker);
            let described = self.run("describeReplicaLogDirs", target, async |attempt| {
                let topics = topics.iter().map(|(name, indexes)| {
                    DescribableLogDirTopic::default()
                        .with_topic(topic_name(name))
                        .with_partitions(indexes.clone())
                });
                let request = DescribeLogDirsRequest::default().with_topics(Some(topics.collect()));
                let response = attempt.call(request, i16::MAX).await?;
                outcome(response.error_code, None)?;
                Ok(response)
            });
            add_directories(&mut found, broker, &described.await?);
        }
        Ok(found)
    }

    /// What a broker's replicas hold from these offsets on, whether it leads them or not. For those that compare replicas.
    pub async fn fetch_from_replica(
        &self,
        node: &Node,
        metadata: &Metadata,
        wanted: &Partitions<Offset>,
        limits: ReplicaFetchLimits,
    ) -> Result<Partitions<ReplicaRecords>, ClientError> {
        let connection = self.cluster().connect(node).await?;
        let id_of = |name: &str| metadata.topics.get(name).map_or(Uuid::ZERO, |topic| topic.id);
        let by_topic = by_topic(wanted.keys());
        let have_ids = by_topic.keys().all(|name| id_of(name) != Uuid::ZERO);
        let cap = if have_ids { i16::MAX } else { TOPIC_IDS_FROM - 1 };
        let version = connection.version_of::<FetchRequest>(cap)?;
        let topics = by_topic.into_iter().map(|(name, indexes)| {
            let partitions = indexes.into_iter().map(|index| {
                FetchPartition::default()
                    .with_partition(index)
                    .with_current_leader_epoch(-1)
                    .with_fetch_offset(wanted[&TopicPartition::new(name, index)].0)
                    .with_last_fetched_epoch(-1)
                    .with_log_start_offset(if version >= 5 { 0 } else { -1 })
                    .with_partition_max_bytes(limits.partition_bytes_max)
            });
            let topic = FetchTopic::default().with_partitions(partitions.collect());
            if version >= TOPIC_IDS_FROM {
                topic.with_topic_id(uuid::Uuid::from_u128(id_of(name).0))
            } else {
                topic.with_topic(topic_name(name))
            }
        });
        let request = FetchRequest::default()
            .with_max_wait_ms(limits.wait_max_ms)
            .with_min_bytes(1)
            .with_max_bytes(i32::MAX)
            .with_session_id(0)
            .with_session_epoch(-1)
            .with_topics(topics.collect());
        let request = if version >= REPLICA_STATE_FROM {
            let state = ReplicaState::default().with_replica_id(DEBUGGING_CONSUMER);
            request.with_replica_id(BrokerId(-1)).with_replica_state(state.with_replica_epoch(-1))
        } else {
            request.with_replica_id(DEBUGGING_CONSUMER)
        };
        let limit = self.cluster().config().request_timeout;
        let response = connection.call_as(request, version, limit).await?;
        outcome(response.error_code, None)?;
        let mut records = Partitions::new();
        for topic in &response.responses {
            let name = name_in_answer(topic.topic_id.as_u128(), &topic.topic.0, metadata);
            for partition in &topic.partitions {
                let held = ReplicaRecords {
                    high_watermark: partition.high_watermark,
                    records: partition.records.clone().unwrap_or_default(),
                };
                records.insert(TopicPartition::new(name.as_str(), partition.partition_index), held);
            }
        }
        Ok(records)
    }
}

/// One broker's answers, by partition.
async fn alter_log_dirs_of(
    attempt: &Attempt,
    wanted: &BTreeMap<&Replica, &str>,
) -> Result<Partitions<Result<(), ClientError>>, ClientError> {
    let directories: BTreeSet<&str> = wanted.values().copied().collect();
    let directories = directories.into_iter().map(|directory| {
        let here = wanted.iter().filter(|(_, path)| **path == directory);
        let topics = by_topic(here.map(|(replica, _)| &replica.partition));
        let topics = topics.into_iter().map(|(name, indexes)| {
            AlterReplicaLogDirTopic::default().with_name(topic_name(name)).with_partitions(indexes)
        });
        AlterReplicaLogDir::default().with_path(text(directory)).with_topics(topics.collect())
    });
    let request = AlterReplicaLogDirsRequest::default().with_dirs(directories.collect());
    let response = attempt.call(request, i16::MAX).await?;
    let mut answers = Partitions::new();
    for topic in &response.results {
        for partition in &topic.partitions {
            let name = TopicPartition::new(&*topic.topic_name.0, partition.partition_index);
            answers.insert(name, outcome(partition.error_code, None));
        }
    }
    Ok(answers)
}

/// A directory with an error is offline, and tells of no replica.
fn add_directories(
    found: &mut BTreeMap<Replica, ReplicaLogDirs>,
    broker: i32,
    response: &DescribeLogDirsResponse,
) {
    for directory in response.results.iter().filter(|directory| directory.error_code == 0) {
        for topic in &directory.topics {
            for partition in &topic.partitions {
                let name = TopicPartition::new(&*topic.name.0, partition.partition_index);
                let replica = Replica { partition: name, broker };
                let Some(place) = found.get_mut(&replica) else { continue };
                let path = Some(directory.log_dir.to_string());
                if partition.is_future_key {
                    place.future = path;
                } else {
                    place.current = path;
                }
            }
        }
    }
}
