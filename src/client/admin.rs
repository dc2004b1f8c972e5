//! Administration: topics, partitions, configs, offsets, replicas. Source: `KafkaAdminClient`.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{clock, error_code::ErrorCode};
use kafka_protocol::{
    messages::{
        BrokerId, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
        DescribeClusterRequest, MetadataRequest, TopicName,
        create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic},
        create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig},
        delete_topics_request::DeleteTopicState,
    },
    protocol::{Request, StrBytes},
};

use crate::{
    cluster::{AutoCreate, Cluster, Topics},
    config::ConnectionConfig,
    connection::{ApiVersions, Connection},
    error::{ClientError, ErrorKind},
    metadata::{Metadata, Node, Topic},
};

pub mod configs;
pub mod groups;
pub mod records;
pub mod replicas;
pub mod transactions;

/// Client for administration; clones share its connections.
#[derive(Clone)]
pub struct Admin {
    cluster: Cluster,
}

/// A topic to be created.
#[derive(Clone, Debug, Default)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Partitions; none is the broker's default. Not with `assignment`.
    pub partition_count: Option<i32>,
    /// Replicas of each partition; none is the broker's default. Not with `assignment`.
    pub replication_factor: Option<i16>,
    /// Brokers by partition; empty leaves the choice to the controller.
    pub assignment: BTreeMap<i32, Vec<i32>>,
    /// Overrides.
    pub configs: BTreeMap<String, String>,
}

/// A topic that is to have more partitions.
#[derive(Clone, Debug)]
pub struct NewPartitions {
    /// Its name.
    pub topic: String,
    /// Partitions it is to have then.
    pub count: i32,
    /// Brokers of each new partition; none leaves the choice to the controller.
    pub assignment: Option<Vec<Vec<i32>>>,
}

/// What a cluster says of itself.
#[derive(Clone, Debug)]
pub struct ClusterDescription {
    /// Its id.
    pub cluster_id: String,
    /// The controller, if known.
    pub controller: Option<i32>,
    /// Live brokers.
    pub nodes: Vec<Node>,
}

/// A result for each name that was asked for.
pub type ResultsByTopic = BTreeMap<String, Result<(), ClientError>>;

/// How much longer than the broker may take the client waits.
const ANSWER_GRACE: Duration = Duration::from_secs(1);

/// Which broker a call goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Any,
    Controller,
    Broker(i32),
}

/// One attempt of a call: where it goes, and how long the broker may take.
pub(crate) struct Attempt {
    pub(crate) connection: Connection,
    pub(crate) limit: Duration,
}

impl Attempt {
    /// Sends the request in the largest version up to `cap`.
    pub(crate) async fn call<R: Request>(
        &self,
        request: R,
        cap: i16,
    ) -> Result<R::Response, ClientError> {
        let version = self.connection.version_of::<R>(cap)?;
        // The broker answers at its own limit; that answer says more than a closed connection.
        self.connection.call_as(request, version, self.limit + ANSWER_GRACE).await
    }

    /// `limit` as requests have it.
    pub(crate) fn timeout_ms(&self) -> i32 {
        i32::try_from(self.limit.as_millis()).unwrap_or(i32::MAX)
    }
}

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// `Ok` for no error, with the broker's text where it sent one.
pub(crate) fn outcome(code: i16, message: Option<&StrBytes>) -> Result<(), ClientError> {
    match ErrorCode::from_code(code) {
        ErrorCode::None => Ok(()),
        code => Err(ClientError::from_code(code, message.map(|text| text.to_string()))),
    }
}

impl Admin {
    /// Resolves the addresses; connects with the first call.
    pub async fn open(config: ConnectionConfig) -> Result<Admin, ClientError> {
        Ok(Admin { cluster: Cluster::open(config).await? })
    }

    /// An admin client over the connections of another client.
    pub fn of(cluster: Cluster) -> Admin {
        Admin { cluster }
    }

    /// The cluster that the client is connected to.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Runs attempts until one succeeds, fails for good, or the time is over.
    pub(crate) async fn run<T>(
        &self,
        name: &str,
        target: Target,
        mut attempt: impl AsyncFnMut(Attempt) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let config = self.cluster.config();
        let deadline = clock::now() + config.default_api_timeout;
        let mut tries = 0;
        loop {
            let Some(connection) = self.reach(target, deadline).await? else {
                return Err(no_node(name));
            };
            let left = deadline.saturating_duration_since(clock::now());
            let limit = config.request_timeout.min(left);
            let failure = match attempt(Attempt { connection, limit }).await {
                Ok(value) => return Ok(value),
                Err(error) if !may_retry(&error) => return Err(error),
                Err(error) => error,
            };
            tries += 1;
            if clock::now() >= deadline {
                return Err(timed_out(name, tries));
            }
            tracing::debug!(name, tries, error = %failure, "call failed, trying again");
            self.cluster.back_off(tries - 1).await;
            if matches!(target, Target::Controller) {
                // The time is checked above; without an answer the next `reach` says so.
                let _ = self.cluster.refresh(&Topics::None, deadline).await;
            }
        }
    }

    /// A connection to the target. None when the time is over.
    async fn reach(
        &self,
        target: Target,
        deadline: Instant,
    ) -> Result<Option<Connection>, ClientError> {
        while clock::now() < deadline {
            let metadata = self.cluster.metadata();
            let id = match target {
                Target::Any => return Ok(self.cluster.connect_any(deadline).await),
                Target::Controller => metadata.controller,
                Target::Broker(id) => Some(id),
            };
            if let Some(node) = id.and_then(|id| metadata.nodes.get(&id)) {
                let connecting = self.cluster.connect(node);
                match tokio::time::timeout_at(deadline.into(), connecting).await {
                    Ok(Ok(connection)) => return Ok(Some(connection)),
                    Ok(Err(error)) => tracing::debug!(%node, %error, "no connection"),
                    Err(_) => return Ok(None),
                }
            }
            match self.cluster.refresh(&Topics::None, deadline).await {
                Ok(metadata) if self.is_known(target, &metadata) => {}
                Ok(_) => self.cluster.back_off(0).await,
                Err(error) if error.kind == ErrorKind::Timeout => return Ok(None),
                Err(error) if may_retry(&error) => self.cluster.back_off(0).await,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn is_known(&self, target: Target, metadata: &Metadata) -> bool {
        match target {
            Target::Any => true,
            Target::Controller => metadata.controller.is_some(),
            Target::Broker(id) => metadata.nodes.contains_key(&id),
        }
    }

    /// All topics the client may see.
    pub async fn list_topics(&self) -> Result<Vec<Topic>, ClientError> {
        let metadata = self.metadata("listTopics", &Topics::All).await?;
        Ok(metadata.topics.values().cloned().collect())
    }

    /// The topics of these names, each or why not.
    pub async fn describe_topics(
        &self,
        names: &[String],
    ) -> Result<BTreeMap<String, Result<Topic, ClientError>>, ClientError> {
        let mut described = BTreeMap::new();
        let topics = Topics::Named(names.to_vec(), AutoCreate::Forbidden);
        let metadata = self.metadata("describeTopics", &topics).await?;
        for name in names {
            let missing = || ClientError::from_code(ErrorCode::UnknownTopicOrPartition, None);
            let found = metadata.topics.get(name).ok_or_else(missing);
            let checked = found.and_then(|topic| match topic.error {
                ErrorCode::None | ErrorCode::LeaderNotAvailable => Ok(topic.clone()),
                code => Err(ClientError::from_code(code, None)),
            });
            described.insert(name.clone(), checked);
        }
        Ok(described)
    }

    /// Reads metadata for a call of that name.
    pub(crate) async fn metadata(
        &self,
        call: &str,
        topics: &Topics,
    ) -> Result<Arc<Metadata>, ClientError> {
        let deadline = clock::now() + self.cluster.config().default_api_timeout;
        let mut tries = 0;
        loop {
            match self.cluster.refresh(topics, deadline).await {
                Err(error) if error.kind == ErrorKind::Timeout => {
                    return Err(no_node(call));
                }
                Err(error) if may_retry(&error) && clock::now() < deadline => {
                    self.cluster.back_off(tries).await;
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// Creates topics, or only checks whether they could be.
    pub async fn create_topics(&self, topics: &[NewTopic]) -> Result<ResultsByTopic, ClientError> {
        let mut results = ResultsByTopic::new();
        let mut wanted = Vec::new();
        for topic in topics {
            if topic.name.is_empty() {
                results.insert(topic.name.clone(), Err(unrepresentable(&topic.name)));
            } else {
                wanted.push(creatable(topic));
            }
        }
        if wanted.is_empty() {
            return Ok(results);
        }
        let answered = self.run("createTopics", Target::Controller, async |attempt| {
            let request = CreateTopicsRequest::default()
                .with_topics(wanted.clone())
                .with_timeout_ms(attempt.timeout_ms());
            let response = attempt.call(request, i16::MAX).await?;
            let results = response.topics.iter().map(|topic| {
                let result = outcome(topic.error_code, topic.error_message.as_ref());
                (topic.name.0.to_string(), result)
            });
            unless_moved(results.collect())
        });
        results.extend(answered.await?);
        Ok(results)
    }

    /// Deletes topics.
    pub async fn delete_topics(&self, names: &[String]) -> Result<ResultsByTopic, ClientError> {
        if names.is_empty() {
            return Ok(ResultsByTopic::new());
        }
        self.run("deleteTopics", Target::Controller, async |attempt| {
            let version = attempt.connection.version_of::<DeleteTopicsRequest>(i16::MAX)?;
            let mut request = DeleteTopicsRequest::default().with_timeout_ms(attempt.timeout_ms());
            if version >= 6 {
                let state =
                    |name: &String| DeleteTopicState::default().with_name(Some(topic_name(name)));
                request = request.with_topics(names.iter().map(state).collect());
            } else {
                request =
                    request.with_topic_names(names.iter().map(|name| topic_name(name)).collect());
            }
            let response = attempt.call(request, version).await?;
            let results = response.responses.iter().filter_map(|topic| {
                let result = outcome(topic.error_code, topic.error_message.as_ref());
                Some((topic.name.as_ref()?.0.to_string(), result))
            });
            unless_moved(results.collect())
        })
        .await
    }

    /// Adds partitions to topics.
    pub async fn create_partitions(
        &self,
        topics: &[NewPartitions],
    ) -> Result<ResultsByTopic, ClientError> {
        self.run("createPartitions", Target::Controller, async |attempt| {
            let request = CreatePartitionsRequest::default()
                .with_topics(topics.iter().map(increase).collect())
                .with_timeout_ms(attempt.timeout_ms());
            let response = attempt.call(request, i16::MAX).await?;
            let results = response.results.iter().map(|topic| {
                let result = outcome(topic.error_code, topic.error_message.as_ref());
                (topic.name.0.to_string(), result)
            });
            unless_moved(results.collect())
        })
        .await
    }

    /// The cluster and its live brokers.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, ClientError> {
        self.run("listNodes", Target::Any, async |attempt| {
            let request = DescribeClusterRequest::default().with_endpoint_type(1);
            match attempt.call(request, i16::MAX).await {
                Ok(response) => {
                    outcome(response.error_code, response.error_message.as_ref())?;
                    let nodes = response.brokers.iter().map(|broker| Node {
                        id: broker.broker_id.0,
                        host: broker.host.to_string(),
                        port: u16::try_from(broker.port).unwrap_or(0),
                        rack: broker.rack.as_ref().map(|rack| rack.to_string()),
                    });
                    let controller = response.controller_id.0;
                    Ok(ClusterDescription {
                        cluster_id: response.cluster_id.to_string(),
                        controller: (controller >= 0).then_some(controller),
                        nodes: nodes.collect(),
                    })
                }
                Err(error) if error.kind == ErrorKind::UnsupportedVersion => {
                    let request = MetadataRequest::default().with_topics(Some(Vec::new()));
                    let response = attempt.call(request, i16::MAX).await?;
                    let metadata = Metadata::from_response(&response);
                    Ok(ClusterDescription {
                        cluster_id: metadata.cluster_id.unwrap_or_default(),
                        controller: metadata.controller,
                        nodes: metadata.nodes.into_values().collect(),
                    })
                }
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// The versions that a broker speaks.
    pub async fn api_versions(&self, node: &Node) -> Result<ApiVersions, ClientError> {
        Ok(self.cluster.connect(node).await?.versions().clone())
    }
}

fn unrepresentable(name: &str) -> ClientError {
    ClientError::from_code(
        ErrorCode::InvalidTopicException,
        Some(format!("The given topic name '{name}' cannot be represented in a request.")),
    )
}

/// A call fails as a whole, and is tried again, when the broker was not the controller.
fn unless_moved(results: ResultsByTopic) -> Result<ResultsByTopic, ClientError> {
    for result in results.values() {
        if let Err(error) = result
            && error.kind == ErrorKind::Code(ErrorCode::NotController)
        {
            return Err(error.clone());
        }
    }
    Ok(results)
}

/// Whether the call should be made again. An answer that the request timed out is final, as in Java.
pub(crate) fn may_retry(error: &ClientError) -> bool {
    error.kind != ErrorKind::Code(ErrorCode::RequestTimedOut) && error.is_retriable()
}

/// The time was over before there was a broker to ask.
fn no_node(name: &str) -> ClientError {
    let text = format!("Timed out waiting for a node assignment. Call: {name}");
    ClientError::new(ErrorKind::Timeout, text)
}

pub(crate) fn timed_out(name: &str, tries: u32) -> ClientError {
    let now = clock::wall_clock();
    ClientError::new(
        ErrorKind::Timeout,
        format!(
            "Call(callName={name}, deadlineMs={now}, tries={tries}, nextAllowedTryMs={now}) timed out at {now} after {tries} attempt(s)"
        ),
    )
}

fn broker_ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().map(|id| BrokerId(*id)).collect()
}

fn creatable(topic: &NewTopic) -> CreatableTopic {
    let assignments = topic.assignment.iter().map(|(partition, brokers)| {
        CreatableReplicaAssignment::default()
            .with_partition_index(*partition)
            .with_broker_ids(broker_ids(brokers))
    });
    let configs = topic.configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    });
    CreatableTopic::default()
        .with_name(topic_name(&topic.name))
        .with_num_partitions(topic.partition_count.unwrap_or(-1))
        .with_replication_factor(topic.replication_factor.unwrap_or(-1))
        .with_assignments(assignments.collect())
        .with_configs(configs.collect())
}

fn increase(topic: &NewPartitions) -> CreatePartitionsTopic {
    let assignments = topic.assignment.as_ref().map(|partitions| {
        let brokers = partitions
            .iter()
            .map(|ids| CreatePartitionsAssignment::default().with_broker_ids(broker_ids(ids)));
        brokers.collect()
    });
    CreatePartitionsTopic::default()
        .with_name(topic_name(&topic.topic))
        .with_count(topic.count)
        .with_assignments(assignments)
}
