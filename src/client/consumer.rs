//! Reads records of partitions that are named or subscribed to; without a group. Source: `KafkaConsumer`, `Fetcher`.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    clock,
    error_code::ErrorCode,
    ids::{Offset, Timestamp},
    topic::{TopicPartition, is_internal},
};
use kafka_protocol::messages::fetch_response::PartitionData;
use record::batch::TimestampType;
use tokio::{
    task::JoinSet,
    time::{sleep_until, timeout_at},
};
use tracing::debug;

use crate::{
    admin::{
        Admin,
        records::{Isolation, ListedOffset},
    },
    cluster::{AutoCreate, Cluster, Topics},
    config::{ConsumerConfig, OffsetReset},
    error::{ClientError, ErrorKind},
    fetch::{Fetch, fetch, topic_name},
    fetched::{self, Reading},
    metadata::Metadata,
};

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// Topic and partition.
    pub partition: TopicPartition,
    /// Where it stands.
    pub offset: Offset,
    /// Its time; -1 for none.
    pub timestamp: Timestamp,
    /// Who gave the time; none where there is no time.
    pub timestamp_type: Option<TimestampType>,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first offset there is.
    Earliest,
    /// At the end.
    Latest,
    /// At this offset.
    At(Offset),
}

/// What `poll` reads of.
enum Subscription {
    /// Partitions that were assigned by hand.
    Assigned,
    /// All partitions of these topics.
    Topics(Vec<String>),
    /// All partitions of topics whose name passes.
    Pattern(Box<dyn Fn(&str) -> bool + Send + Sync>),
}

/// A partition that is read.
struct Reader {
    /// Next offset to fetch; none until the start is looked up.
    next: Option<Offset>,
    start: Start,
}

/// A consumer. Needs `poll` to go on.
pub struct Consumer {
    cluster: Cluster,
    config: ConsumerConfig,
    subscription: Subscription,
    readers: BTreeMap<TopicPartition, Reader>,
    records: VecDeque<ConsumerRecord>,
    fetches: JoinSet<Fetch>,
    /// Brokers that have a fetch under way.
    busy: HashSet<i32>,
    /// Brokers that are left alone for a moment, after a failure.
    paused: BTreeMap<i32, Instant>,
    wants_metadata: bool,
    metadata_attempts: u32,
    metadata_not_before: Instant,
}

impl Consumer {
    /// Resolves the addresses; connects with the first `poll`.
    pub async fn open(config: ConsumerConfig) -> Result<Consumer, ClientError> {
        Ok(Consumer {
            cluster: Cluster::open(config.connection.clone()).await?,
            config,
            subscription: Subscription::Assigned,
            readers: BTreeMap::new(),
            records: VecDeque::new(),
            fetches: JoinSet::new(),
            busy: HashSet::new(),
            paused: BTreeMap::new(),
            wants_metadata: true,
            metadata_attempts: 0,
            metadata_not_before: clock::now(),
        })
    }

    /// The cluster that the consumer reads from.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Reads these partitions and no others.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = (TopicPartition, Start)>) {
        self.subscription = Subscription::Assigned;
        self.readers = partitions
            .into_iter()
            .map(|(partition, start)| (partition, Reader::new(start)))
            .collect();
        self.records.clear();
        self.wants_metadata = true;
    }

    /// Reads all partitions of these topics, from where `auto.offset.reset` says.
    pub fn subscribe(&mut self, topics: Vec<String>) {
        self.subscription = Subscription::Topics(topics);
        self.restart();
    }

    /// Reads all partitions of topics whose names pass, those to come included.
    pub fn subscribe_pattern(&mut self, passes: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.subscription = Subscription::Pattern(Box::new(passes));
        self.restart();
    }

    fn restart(&mut self) {
        self.readers.clear();
        self.records.clear();
        self.wants_metadata = true;
    }

    /// Goes on elsewhere; records of the partition that wait are dropped.
    pub fn seek(&mut self, partition: &TopicPartition, start: Start) {
        self.records.retain(|record| record.partition != *partition);
        if let Some(reader) = self.readers.get_mut(partition) {
            *reader = Reader::new(start);
        }
    }

    /// Offset of the next record that `poll` will give; none until it is known.
    pub fn position(&self, partition: &TopicPartition) -> Option<Offset> {
        let waiting = self.records.iter().find(|record| record.partition == *partition);
        match waiting {
            Some(record) => Some(record.offset),
            None => self.readers.get(partition)?.next,
        }
    }

    /// Partitions that are read now.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.readers.keys().cloned().collect()
    }

    /// Offsets by time, or by the special times of ListOffsets. Source: `Consumer.offsetsForTimes`.
    pub async fn list_offsets(
        &self,
        wanted: &BTreeMap<TopicPartition, i64>,
    ) -> Result<BTreeMap<TopicPartition, Result<ListedOffset, ClientError>>, ClientError> {
        let isolation = if self.config.read_committed {
            Isolation::ReadCommitted
        } else {
            Isolation::ReadUncommitted
        };
        Admin::of(self.cluster.clone()).list_offsets_for(wanted, isolation).await
    }

    /// Records, or none when the time is over. Gives at most `max.poll.records`.
    pub async fn poll(&mut self, limit: Duration) -> Result<Vec<ConsumerRecord>, ClientError> {
        let now = clock::now();
        // A limit may be "for ever".
        let deadline = now.checked_add(limit).unwrap_or(now + Duration::from_secs(86_400 * 365));
        loop {
            if self.records.is_empty() {
                self.keep_metadata(deadline).await?;
                self.look_up_starts(deadline).await?;
            }
            self.start_fetches();
            if !self.records.is_empty() {
                let count = self.records.len().min(self.config.poll_records_max);
                return Ok(self.records.drain(..count).collect());
            }
            if clock::now() >= deadline {
                return Ok(Vec::new());
            }
            let wake = self.wake_at(deadline);
            tokio::select! {
                Some(fetch) = self.fetches.join_next() => match fetch {
                    Ok(fetch) => self.take(fetch)?,
                    Err(error) => return Err(ClientError::new(ErrorKind::Kafka, error.to_string())),
                },
                () = sleep_until(wake.into()) => {}
            }
        }
    }

    /// When something is to be done even if no fetch ends.
    fn wake_at(&self, deadline: Instant) -> Instant {
        let mut wake = deadline;
        if self.wants_metadata {
            wake = wake.min(self.metadata_not_before);
        }
        if let Some(first) = self.paused.values().min() {
            wake = wake.min(*first);
        }
        if self.readers.values().any(|reader| reader.next.is_none()) {
            wake = wake.min(clock::now() + self.config.connection.retry_backoff);
        }
        wake
    }

    /// Reads metadata when it is wanted or old, and follows the subscription.
    async fn keep_metadata(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let is_old = |age: Duration| age >= self.config.connection.metadata_max_age;
        let is_due = self.wants_metadata && clock::now() >= self.metadata_not_before;
        if !is_due && !self.cluster.metadata_age().is_some_and(is_old) {
            return Ok(());
        }
        let backoff = self.config.connection.retry_backoff;
        let pause = backoff.saturating_mul(2_u32.saturating_pow(self.metadata_attempts.min(10)));
        self.metadata_not_before =
            clock::now() + pause.min(self.config.connection.retry_backoff_max);
        self.metadata_attempts += 1;
        let topics = self.wanted_topics();
        let reading = self.cluster.refresh(&topics, deadline);
        let Ok(Ok(metadata)) = timeout_at(deadline.into(), reading).await else {
            return Ok(());
        };
        self.check_topics(&metadata)?;
        self.follow(&metadata);
        let is_complete = self
            .readers
            .keys()
            .all(|partition| metadata.leader(&partition.topic, partition.partition).is_some());
        let has_all = match &self.subscription {
            Subscription::Topics(names) => names.iter().all(|name| {
                metadata.topics.get(name).is_some_and(|topic| topic.error == ErrorCode::None)
            }),
            _ => true,
        };
        if is_complete && has_all {
            self.wants_metadata = false;
            self.metadata_attempts = 0;
        }
        Ok(())
    }

    fn wanted_topics(&self) -> Topics {
        let auto_create = if self.config.allow_auto_create_topics {
            AutoCreate::Allowed
        } else {
            AutoCreate::Forbidden
        };
        match &self.subscription {
            Subscription::Assigned => {
                let names: BTreeSet<String> =
                    self.readers.keys().map(|partition| partition.topic.to_string()).collect();
                Topics::Named(names.into_iter().collect(), auto_create)
            }
            Subscription::Topics(names) => Topics::Named(names.clone(), auto_create),
            Subscription::Pattern(_) => Topics::All,
        }
    }

    /// Errors of topics that waiting does not cure.
    fn check_topics(&self, metadata: &Metadata) -> Result<(), ClientError> {
        for topic in metadata.topics.values() {
            let text = match topic.error {
                ErrorCode::InvalidTopicException => format!("Invalid topics: [{}]", topic.name),
                ErrorCode::TopicAuthorizationFailed => {
                    format!("Not authorized to access topics: [{}]", topic.name)
                }
                _ => continue,
            };
            return Err(ClientError::from_code(topic.error, Some(text)));
        }
        Ok(())
    }

    /// Adds partitions that the subscription covers now.
    fn follow(&mut self, metadata: &Metadata) {
        if matches!(self.subscription, Subscription::Assigned) {
            return;
        }
        let start = match self.config.offset_reset {
            OffsetReset::Earliest => Start::Earliest,
            OffsetReset::Latest | OffsetReset::None => Start::Latest,
        };
        for topic in metadata.topics.values().filter(|topic| topic.error == ErrorCode::None) {
            let is_wanted = match &self.subscription {
                Subscription::Pattern(passes) => {
                    let is_hidden = self.config.exclude_internal_topics && is_internal(&topic.name);
                    passes(&topic.name) && !is_hidden
                }
                _ => true,
            };
            if !is_wanted {
                continue;
            }
            for partition in &topic.partitions {
                let name = TopicPartition::new(topic.name.as_str(), partition.index);
                self.readers.entry(name).or_insert_with(|| Reader::new(start));
            }
        }
    }

    /// Turns "earliest" and "latest" into offsets, for partitions whose leader is known.
    async fn look_up_starts(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let metadata = self.cluster.metadata();
        let mut wanted = BTreeMap::new();
        for (partition, reader) in &self.readers {
            let is_led = metadata.leader(&partition.topic, partition.partition).is_some();
            if reader.next.is_none() && !is_led {
                self.wants_metadata = true;
            } else if reader.next.is_none() {
                let time = if reader.start == Start::Earliest { -2 } else { -1 };
                wanted.insert(partition.clone(), time);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let Ok(listed) = timeout_at(deadline.into(), self.list_offsets(&wanted)).await else {
            return Ok(());
        };
        for (partition, listed) in listed? {
            match listed {
                Ok(listed) => {
                    if let Some(reader) = self.readers.get_mut(&partition) {
                        reader.next = Some(Offset(listed.offset));
                    }
                }
                Err(error) if error.is_retriable() || error.kind == ErrorKind::Timeout => {
                    self.wants_metadata = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One fetch for each broker that leads something whose records are all handed out.
    fn start_fetches(&mut self) {
        let metadata = self.cluster.metadata();
        let now = clock::now();
        self.paused.retain(|_, until| *until > now);
        let waiting: HashSet<&TopicPartition> =
            self.records.iter().map(|record| &record.partition).collect();
        let mut by_leader: BTreeMap<i32, Vec<(TopicPartition, Offset)>> = BTreeMap::new();
        for (partition, reader) in &self.readers {
            let Some(offset) = reader.next else { continue };
            // What waits takes memory enough; a partition goes on once its records were taken.
            if waiting.contains(partition) && self.records.len() > self.config.poll_records_max {
                continue;
            }
            let Some(leader) = metadata.leader(&partition.topic, partition.partition) else {
                self.wants_metadata = true;
                continue;
            };
            if !self.busy.contains(&leader.id) && !self.paused.contains_key(&leader.id) {
                by_leader.entry(leader.id).or_default().push((partition.clone(), offset));
            }
        }
        for (node, wanted) in by_leader {
            self.busy.insert(node);
            let cluster = self.cluster.clone();
            let config = self.config.clone();
            let metadata = metadata.clone();
            self.fetches.spawn(async move {
                let result = fetch(&cluster, &config, &metadata, node, &wanted).await;
                Fetch { node, wanted, metadata, result }
            });
        }
    }

    /// Keeps what a fetch brought, and acts on its errors.
    fn take(&mut self, fetch: Fetch) -> Result<(), ClientError> {
        self.busy.remove(&fetch.node);
        let pause = clock::now() + self.config.connection.retry_backoff;
        let response = match fetch.result {
            Ok(response) if response.error_code == ErrorCode::None as i16 => response,
            Ok(response) => {
                let code = ErrorCode::from_code(response.error_code);
                debug!(code = code.name(), "fetch refused");
                self.paused.insert(fetch.node, pause);
                return Ok(());
            }
            Err(error) if error.kind == ErrorKind::UnsupportedVersion => return Err(error),
            Err(error) => {
                debug!(%error, "fetch failed");
                self.paused.insert(fetch.node, pause);
                self.wants_metadata = true;
                return Ok(());
            }
        };
        for topic in &response.responses {
            let name = topic_name(topic.topic_id.as_u128(), &topic.topic.0, &fetch.metadata);
            for data in &topic.partitions {
                let partition = TopicPartition::new(name.as_str(), data.partition_index);
                let wanted = fetch.wanted.iter().find(|(wanted, _)| *wanted == partition);
                if let Some((_, position)) = wanted {
                    self.take_partition(&partition, *position, data, fetch.node)?;
                }
            }
        }
        Ok(())
    }

    fn take_partition(
        &mut self,
        partition: &TopicPartition,
        position: Offset,
        data: &PartitionData,
        node: i32,
    ) -> Result<(), ClientError> {
        let Some(reader) = self.readers.get_mut(partition) else { return Ok(()) };
        // A seek has overtaken the fetch.
        if reader.next != Some(position) {
            return Ok(());
        }
        let code = ErrorCode::from_code(data.error_code);
        match code {
            ErrorCode::None => {
                let reading = Reading {
                    read_committed: self.config.read_committed,
                    check_crcs: self.config.check_crcs,
                };
                let fetched = fetched::read(partition, position, data, reading)?;
                reader.next = Some(fetched.next);
                self.records.extend(fetched.records);
                Ok(())
            }
            ErrorCode::OffsetOutOfRange => match self.config.offset_reset {
                OffsetReset::Earliest => {
                    *reader = Reader::new(Start::Earliest);
                    Ok(())
                }
                OffsetReset::Latest => {
                    *reader = Reader::new(Start::Latest);
                    Ok(())
                }
                OffsetReset::None => Err(ClientError::from_code(
                    code,
                    Some(format!(
                        "Fetch position {position} is out of range for partition {partition}, and no reset policy is defined"
                    )),
                )),
            },
            ErrorCode::TopicAuthorizationFailed => Err(ClientError::from_code(
                code,
                Some(format!("Not authorized to access topics: [{}]", partition.topic)),
            )),
            ErrorCode::CorruptMessage => Err(ClientError::new(
                ErrorKind::Kafka,
                format!(
                    "Encountered corrupt message when fetching offset {position} for topic-partition {partition}"
                ),
            )),
            code => {
                debug!(%partition, code = code.name(), "partition not fetched");
                self.wants_metadata = true;
                let pause = clock::now() + self.config.connection.retry_backoff;
                self.paused.insert(node, pause);
                Ok(())
            }
        }
    }
}

impl Reader {
    fn new(start: Start) -> Reader {
        let next = match start {
            Start::At(offset) => Some(offset),
            Start::Earliest | Start::Latest => None,
        };
        Reader { next, start }
    }
}
