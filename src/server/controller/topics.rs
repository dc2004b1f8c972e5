//! Creating, expanding and deleting topics for clients: checked, written to ZooKeeper, and waited for
//! until the controller has told this broker. Source: `kafka.server.ZkAdminManager`, `KafkaApis`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use common::{
    config::{self, topic::TopicConfigError},
    error_code::ErrorCode,
    ids::BrokerId,
    properties::Properties,
    topic::{self, CLUSTER_METADATA_TOPIC, Uuid},
};
use controller::{
    assignment::Assignment,
    error::ApiError,
    topics::{
        Defaults, Existing, NewPartitions, NewTopic, already_exists, candidates, check_assignment,
        check_assignment_alone, check_existing, may_collide, place_partitions, place_topic,
    },
};
use controller_store::reads::{from_document, to_document};
use futures_util::{StreamExt, stream};
use metadata::{placement::Start, snapshot::ClusterSnapshot};
use parking_lot::Mutex;
use rand::Rng;
use tracing::info;
use zk::{
    documents::topic::{self as topic_document, TopicDocument},
    paths,
    store::{Watch, ZkError, ZkStore},
    topics::{MarkedForDeletion, TopicCreated},
};

use super::{ControllerHandle, fault, internal_topics::on_demand};

/// Topics of one request that are written at the same time.
const TOPICS_AT_ONCE_MAX: usize = 32;
/// How often a write is tried again when another one was quicker.
const ATTEMPTS_MAX: usize = 10;

/// How a request is to be carried out.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// How long to wait for the outcome, in milliseconds; 0 or less: not at all.
    pub timeout_ms: i32,
    /// Whether only to check.
    pub validate_only: bool,
}

/// The name of a topic that is being created for a client. It is forgotten however that ends: with the client's
/// connection, too.
struct UnderWay<'a> {
    creating: &'a Mutex<HashSet<String>>,
    name: &'a str,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.creating.lock().remove(self.name);
    }
}

/// What became of a topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicResult {
    /// The topic's name, as asked for.
    pub name: String,
    /// Why it was refused, or REQUEST_TIMED_OUT where it is still on its way.
    pub error: Option<ApiError>,
    /// The id of a topic that was written.
    pub topic_id: Option<Uuid>,
    /// What it looks like; none with an error.
    pub created: Option<Created>,
}

impl TopicResult {
    fn of(name: String, result: Result<(Option<Uuid>, Created), ApiError>) -> TopicResult {
        match result {
            Ok((topic_id, created)) => {
                TopicResult { name, error: None, topic_id, created: Some(created) }
            }
            Err(error) => TopicResult { name, error: Some(error), topic_id: None, created: None },
        }
    }
}

/// A topic that was created, or could have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its partitions.
    pub partitions: i32,
    /// Its replicas of each.
    pub replication_factor: i16,
    /// Its own settings; the rest are the broker's.
    pub overrides: Properties,
}

/// A topic to delete, named in one of two ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteTopic {
    /// Its name.
    pub name: Option<String>,
    /// Its id.
    pub id: Option<Uuid>,
}

/// What became of a topic to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteResult {
    /// Its name; none for an id that is unknown.
    pub name: Option<String>,
    /// Its id, as asked for.
    pub id: Option<Uuid>,
    /// The outcome.
    pub error: ErrorCode,
}

fn timed_out() -> ApiError {
    ApiError::code(ErrorCode::RequestTimedOut)
}

/// A topic's place, once all checks are passed.
struct Placed {
    assignment: BTreeMap<i32, Vec<BrokerId>>,
    overrides: Properties,
}

impl ControllerHandle {
    /// Creates topics. There is a result for each, in the order of the request.
    pub async fn create_topics(&self, topics: Vec<NewTopic>, request: Request) -> Vec<TopicResult> {
        let active = self.is_active();
        let mut counts: HashMap<String, usize> = HashMap::new();
        for topic in &topics {
            *counts.entry(topic.name.clone()).or_default() += 1;
        }
        let refused = |topic: &NewTopic| {
            if !active {
                return Err(ApiError::code(ErrorCode::NotController));
            }
            if topic.name == CLUSTER_METADATA_TOPIC {
                let message =
                    format!("Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.");
                return Err(ApiError::new(ErrorCode::InvalidRequest, message));
            }
            if counts.get(&topic.name).is_some_and(|count| *count > 1) {
                let message = "Found multiple entries for this topic.";
                return Err(ApiError::new(ErrorCode::InvalidRequest, message));
            }
            Ok(())
        };
        let (refused, validate_only) = (&refused, request.validate_only);
        let create = |(index, topic): (usize, &NewTopic)| {
            let topic = topic.clone();
            async move {
                let result = match refused(&topic) {
                    Ok(()) => self.create_topic(&topic, validate_only).await,
                    Err(error) => Err(error),
                };
                (index, TopicResult::of(topic.name, result))
            }
        };
        // Names of one request may collide with each other; such are created one after another.
        let (alone, together): (Vec<_>, Vec<_>) =
            topics.iter().enumerate().partition(|(_, topic)| may_collide(&topic.name));
        let together = together.into_iter().map(create);
        let mut results: BTreeMap<usize, TopicResult> =
            stream::iter(together).buffer_unordered(TOPICS_AT_ONCE_MAX).collect().await;
        for topic in alone {
            let (index, result) = create(topic).await;
            results.insert(index, result);
        }
        let mut results: Vec<TopicResult> = results.into_values().collect();
        if !request.validate_only {
            self.wait_for_creation(&mut results, request.timeout_ms).await;
        }
        results
    }

    /// Waits until this broker knows a leader for every partition; marks what is not there in time.
    async fn wait_for_creation(&self, results: &mut [TopicResult], timeout_ms: i32) {
        let led = |cluster: &ClusterSnapshot, result: &TopicResult| {
            let Some(created) = &result.created else { return true };
            let leader = |index: i32| {
                let partition = cluster.partition(&result.name, index);
                partition.is_some_and(|partition| partition.leader != BrokerId::NONE)
            };
            (0..created.partitions).all(leader)
        };
        let all_led = |cluster: &ClusterSnapshot| results.iter().all(|one| led(cluster, one));
        let waited = timeout_ms > 0 && results.iter().any(|result| result.error.is_none());
        if waited {
            self.wait_for_metadata(timeout_ms, &all_led).await;
        }
        let cluster = self.inner.metadata.snapshot();
        for result in results.iter_mut() {
            if result.error.is_none() && (!waited || !led(&cluster, result)) {
                result.error = Some(timed_out());
                result.created = None;
            }
        }
    }

    /// Waits until the metadata of this broker satisfy `enough`, or the time is up.
    pub(super) async fn wait_for_metadata(
        &self,
        timeout_ms: i32,
        enough: &(dyn Fn(&ClusterSnapshot) -> bool + Sync),
    ) {
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let mut told = self.inner.told.clone();
        let reached = async {
            told.mark_unchanged();
            while !enough(&self.inner.metadata.load()) {
                if told.changed().await.is_err() {
                    return;
                }
            }
        };
        // Either way the caller looks at what there is.
        let _ = tokio::time::timeout(timeout, reached).await;
    }

    async fn create_topic(
        &self,
        topic: &NewTopic,
        validate_only: bool,
    ) -> Result<(Option<Uuid>, Created), ApiError> {
        let placed = self.place(topic).await?;
        let first = placed.assignment.values().next();
        let created = Created {
            partitions: i32::try_from(placed.assignment.len()).unwrap_or(i32::MAX),
            replication_factor: i16::try_from(first.map_or(0, Vec::len)).unwrap_or(i16::MAX),
            overrides: placed.overrides.clone(),
        };
        if validate_only {
            return Ok((None, created));
        }
        let id = self.inner.settings.topic_ids.then(Uuid::random);
        self.write_topic(&topic.name, id, placed).await?;
        Ok((id, created))
    }

    async fn place(&self, topic: &NewTopic) -> Result<Placed, ApiError> {
        let config = &self.inner.settings.config;
        let defaults = Defaults {
            partitions: config.num_partitions,
            replication_factor: i16::try_from(config.default_replication_factor)
                .unwrap_or(i16::MAX),
        };
        let start = {
            let mut random = rand::rng();
            let mut place = || random.random_range(0..u32::MAX as usize);
            Start { index: place(), shift: place() }
        };
        let cluster = self.inner.metadata.snapshot();
        let assignment = place_topic(topic, defaults, &cluster, start)?;
        // What is no legal name is no legal path either.
        if topic::check_topic_name(&topic.name).is_err() {
            check_existing(&topic.name, &Existing::default())?;
        }
        let existing = existing(&*self.inner.zk, &topic.name).await.map_err(fault)?;
        check_existing(&topic.name, &existing)?;
        check_assignment_alone(&assignment)?;
        let set = |(key, value): &(String, Option<String>)| Some((key.clone(), value.clone()?));
        let overrides: Properties = topic.configs.iter().filter_map(set).collect();
        config::topic::validate(config, &overrides).map_err(|error| {
            let message = match error {
                TopicConfigError::Conflict(message) => message,
                TopicConfigError::Value(error) => error.message,
            };
            ApiError::new(ErrorCode::InvalidConfig, message)
        })?;
        check_assignment(&assignment, &cluster)?;
        Ok(Placed { assignment, overrides })
    }

    async fn write_topic(
        &self,
        name: &str,
        id: Option<Uuid>,
        placed: Placed,
    ) -> Result<(), ApiError> {
        let Placed { assignment, overrides } = placed;
        info!(
            target: "kafka.zk.AdminZkClient",
            "Creating topic {name} with configuration {overrides:?} and {} partitions",
            assignment.len()
        );
        let partitions = assignment.into_iter();
        let document = TopicDocument {
            topic_id: id,
            partitions: partitions
                .map(|(index, replicas)| (index, topic_document::Assignment::of(replicas)))
                .collect(),
        };
        match zk::topics::create(&*self.inner.zk, name, &overrides, &document).await {
            Ok(TopicCreated::Created) => Ok(()),
            Ok(TopicCreated::Exists) => Err(already_exists(name)),
            Err(error) => Err(fault(error)),
        }
    }

    /// Creates a topic that a client asked for. Gives the code that Metadata answers meanwhile.
    pub async fn auto_create_topic(&self, name: &str) -> ErrorCode {
        if topic::check_topic_name(name).is_err() {
            return ErrorCode::InvalidTopicException;
        }
        if !self.inner.creating.lock().insert(name.to_owned()) {
            return ErrorCode::UnknownTopicOrPartition;
        }
        let _under_way = UnderWay { creating: &self.inner.creating, name };
        let topic = on_demand(name, &self.inner.settings.config);
        match self.create_topic(&topic, false).await {
            Ok(_) => ErrorCode::LeaderNotAvailable,
            Err(error) if error.code == ErrorCode::TopicAlreadyExists => {
                ErrorCode::LeaderNotAvailable
            }
            Err(error) => error.code,
        }
    }

    /// Adds partitions to topics. There is a result for each name, in the order of the request.
    pub async fn create_partitions(
        &self,
        topics: Vec<NewPartitions>,
        request: Request,
    ) -> Vec<(String, Option<ApiError>)> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for topic in &topics {
            *counts.entry(&topic.topic).or_default() += 1;
        }
        let active = self.is_active();
        let mut seen = HashSet::new();
        let mut results = Vec::new();
        for topic in &topics {
            if !seen.insert(topic.topic.as_str()) {
                continue;
            }
            let result = if !active {
                Err(ApiError::code(ErrorCode::NotController))
            } else if counts.get(topic.topic.as_str()).is_some_and(|count| *count > 1) {
                let message = "Duplicate topic in request.";
                Err(ApiError::new(ErrorCode::InvalidRequest, message))
            } else {
                self.add_partitions(topic, request.validate_only).await
            };
            results.push((topic.topic.clone(), result));
        }
        if !request.validate_only {
            self.wait_for_partitions(&mut results, request.timeout_ms).await;
        }
        results.into_iter().map(|(name, result)| (name, result.err())).collect()
    }

    async fn wait_for_partitions(
        &self,
        results: &mut [(String, Result<i32, ApiError>)],
        timeout_ms: i32,
    ) {
        let led = |cluster: &ClusterSnapshot, name: &str, count: i32| {
            (0..count).all(|index| {
                let partition = cluster.partition(name, index);
                partition.is_some_and(|partition| partition.leader != BrokerId::NONE)
            })
        };
        let all_led = |cluster: &ClusterSnapshot| {
            results.iter().all(|(name, result)| match result {
                Ok(count) => led(cluster, name, *count),
                Err(_) => true,
            })
        };
        let waited = timeout_ms > 0 && results.iter().any(|(_, result)| result.is_ok());
        if waited {
            self.wait_for_metadata(timeout_ms, &all_led).await;
        }
        let cluster = self.inner.metadata.snapshot();
        for (name, result) in results.iter_mut() {
            if let Ok(count) = result
                && (!waited || !led(&cluster, name, *count))
            {
                *result = Err(timed_out());
            }
        }
    }

    /// Gives the number of partitions that the topic has then.
    async fn add_partitions(
        &self,
        request: &NewPartitions,
        validate_only: bool,
    ) -> Result<i32, ApiError> {
        let (name, zk) = (&request.topic, &*self.inner.zk);
        let brokers = candidates(&self.inner.metadata.snapshot());
        for _ in 0..ATTEMPTS_MAX {
            // What is no legal name is no legal path either, and no topic.
            let legal = topic::check_topic_name(name).is_ok();
            let read = match legal {
                true => zk::topics::read(zk, name, Watch::No).await.map_err(fault)?,
                false => None,
            };
            let marked = read.is_some()
                && zk::topics::is_marked_for_deletion(zk, name).await.map_err(fault)?;
            if marked {
                let message = "The topic is queued for deletion.";
                return Err(ApiError::new(ErrorCode::InvalidTopicException, message));
            }
            let (document, version) = match read {
                Some((document, version)) => (document, Some(version)),
                None => (TopicDocument::default(), None),
            };
            let existing = document.partitions.into_iter();
            let mut all: BTreeMap<i32, Assignment> =
                existing.map(|(index, one)| (index, from_document(one))).collect();
            let added = place_partitions(request, &all, &brokers)?;
            let Some(version) = version.filter(|_| !validate_only) else {
                return Ok(request.count);
            };
            info!(
                target: "kafka.zk.AdminZkClient",
                "Creating {} partitions for '{name}' with the following replica assignment: {added:?}.",
                added.len()
            );
            all.extend(added.into_iter().map(|(index, list)| (index, Assignment::of(list))));
            let partitions = all.iter().map(|(index, one)| (*index, to_document(one))).collect();
            let document = TopicDocument { topic_id: document.topic_id, partitions };
            if zk::topics::replace(zk, name, &document, version).await.map_err(fault)? {
                return Ok(request.count);
            }
        }
        Err(ApiError::code(ErrorCode::UnknownServerError))
    }

    /// Deletes topics. There is a result for each, in the order of the request.
    /// INVALID_REQUEST as a whole where one is named in both ways.
    pub async fn delete_topics(
        &self,
        api_version: i16,
        topics: Vec<DeleteTopic>,
        timeout_ms: i32,
    ) -> Result<Vec<DeleteResult>, ErrorCode> {
        let refused = if !self.is_active() {
            Some(ErrorCode::NotController)
        } else if !self.inner.settings.config.delete_topic_enable {
            let disabled = ErrorCode::TopicDeletionDisabled;
            Some(if api_version < 3 { ErrorCode::InvalidRequest } else { disabled })
        } else {
            None
        };
        if let Some(error) = refused {
            let refuse = |DeleteTopic { name, id }| DeleteResult { name, id, error };
            return Ok(topics.into_iter().map(refuse).collect());
        }
        if topics.iter().any(|topic| topic.name.is_some() && topic.id.is_some()) {
            return Err(ErrorCode::InvalidRequest);
        }
        let cluster = self.inner.metadata.snapshot();
        let mark = |DeleteTopic { name, id }: DeleteTopic| {
            let by_id = || cluster.topic_by_id(id?).map(|topic| topic.name.to_string());
            let name = name.or_else(by_id);
            let known = name.as_deref().is_some_and(|name| cluster.topic(name).is_some());
            async move {
                let error = match &name {
                    None if id.is_some() => ErrorCode::UnknownTopicId,
                    // Kafka looks for it among the topics that may be deleted.
                    None => ErrorCode::TopicAuthorizationFailed,
                    Some(name) if known => self.mark_for_deletion(name).await,
                    _ => ErrorCode::UnknownTopicOrPartition,
                };
                DeleteResult { name, id, error }
            }
        };
        let marked = stream::iter(topics.into_iter().map(mark)).buffered(TOPICS_AT_ONCE_MAX);
        let mut results: Vec<DeleteResult> = marked.collect().await;
        self.wait_for_deletion(&mut results, timeout_ms).await;
        Ok(results)
    }

    async fn mark_for_deletion(&self, name: &str) -> ErrorCode {
        match zk::topics::mark_for_deletion(&*self.inner.zk, name).await {
            // One that is being deleted already is waited for as well.
            Ok(MarkedForDeletion::Marked | MarkedForDeletion::Already) => ErrorCode::None,
            Ok(MarkedForDeletion::Unknown) => ErrorCode::UnknownTopicOrPartition,
            Err(error) => fault(error).code,
        }
    }

    async fn wait_for_deletion(&self, results: &mut [DeleteResult], timeout_ms: i32) {
        let there = |cluster: &ClusterSnapshot, result: &DeleteResult| {
            let named = result.name.as_deref();
            result.error.is_none() && named.is_some_and(|name| cluster.topic(name).is_some())
        };
        let all_gone = |cluster: &ClusterSnapshot| !results.iter().any(|one| there(cluster, one));
        let waited = timeout_ms > 0 && results.iter().any(|result| result.error.is_none());
        if waited {
            self.wait_for_metadata(timeout_ms, &all_gone).await;
        }
        let cluster = self.inner.metadata.snapshot();
        for result in results.iter_mut() {
            if result.error.is_none() && (!waited || there(&cluster, result)) {
                result.error = ErrorCode::RequestTimedOut;
            }
        }
    }
}

async fn existing(zk: &dyn ZkStore, name: &str) -> Result<Existing, ZkError> {
    let marked_for_deletion = zk::topics::is_marked_for_deletion(zk, name).await?;
    let exists = zk.exists(&paths::topic(name), Watch::No).await?.is_some();
    let names = match may_collide(name) && !exists && !marked_for_deletion {
        true => zk.children(paths::TOPICS, Watch::No).await?,
        false => Vec::new(),
    };
    Ok(Existing { marked_for_deletion, exists, names })
}
