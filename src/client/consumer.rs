//! Reads records of partitions that are named, or that a group shares out. Source: `KafkaConsumer`.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    clock,
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, Timestamp},
    topic::{TopicPartition, is_internal},
};
use record::batch::TimestampType;
use tokio::{
    task::JoinSet,
    time::{sleep_until, timeout_at},
};

use crate::{
    admin::{
        Admin,
        records::{Isolation, ListedOffset},
    },
    cluster::{AutoCreate, Cluster, Topics},
    config::ConsumerConfig,
    error::{ClientError, ErrorKind},
    fetch::Fetch,
    metadata::Metadata,
};

mod membership;
mod reading;

use self::membership::Member;

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// Topic and partition.
    pub partition: TopicPartition,
    /// Where it stands.
    pub offset: Offset,
    /// Epoch of its batch; -1 where it has none.
    pub leader_epoch: LeaderEpoch,
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

/// What the group did with the partitions of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebalance {
    /// These are read from now on, and no others.
    Assigned(Vec<TopicPartition>),
    /// These are read no more.
    Revoked(Vec<TopicPartition>),
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
    /// Where to begin when no offset is committed.
    start: Start,
    /// Whether the group is to be asked first where it stands.
    awaits_committed: bool,
    /// Epoch of the record before the position, as commits tell it; -1 where unknown.
    epoch: LeaderEpoch,
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
    member: Member,
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
            member: Member::default(),
        })
    }

    /// The cluster that the consumer reads from.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Reads these partitions and no others. A consumer that subscribed is closed and opened again instead.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = (TopicPartition, Start)>) {
        self.subscription = Subscription::Assigned;
        self.readers = partitions
            .into_iter()
            .map(|(partition, start)| (partition, Reader::new(start)))
            .collect();
        self.records.clear();
        self.wants_metadata = true;
    }

    /// Reads the partitions of these topics that the group shares out; without a `group.id` all of them, from where
    /// `auto.offset.reset` says.
    pub fn subscribe(&mut self, topics: Vec<String>) {
        self.subscription = Subscription::Topics(topics);
        self.restart();
    }

    /// The same with topics whose names pass, those to come included.
    pub fn subscribe_pattern(&mut self, passes: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.subscription = Subscription::Pattern(Box::new(passes));
        self.restart();
    }

    fn restart(&mut self) {
        if self.config.group.is_none() {
            self.readers.clear();
            self.records.clear();
        }
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

    /// What the group did since the last time, in order; a caller that never asks loses all but the last of it.
    pub fn take_rebalances(&mut self) -> Vec<Rebalance> {
        self.member.take_rebalances()
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
            }
            self.keep_membership().await?;
            self.commit_when_due();
            if self.records.is_empty() {
                self.look_up_committed(deadline).await?;
                self.look_up_starts(deadline).await?;
            }
            self.start_fetches();
            if !self.records.is_empty() {
                return Ok(self.hand_out());
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
                () = self.member.changed() => {}
                () = sleep_until(wake.into()) => {}
            }
        }
    }

    /// The records that were read first, as many as one poll gives.
    fn hand_out(&mut self) -> Vec<ConsumerRecord> {
        let count = self.records.len().min(self.config.poll_records_max);
        let records: Vec<ConsumerRecord> = self.records.drain(..count).collect();
        for (index, record) in records.iter().enumerate() {
            // The last of a run tells the epoch.
            let next = records.get(index + 1);
            if next.is_some_and(|next| next.partition == record.partition) {
                continue;
            }
            if let Some(reader) = self.readers.get_mut(&record.partition) {
                reader.epoch = record.leader_epoch;
            }
        }
        records
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
        if let Some(at) = self.member.commit_at() {
            wake = wake.min(at);
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

    /// Follows what the subscription covers now: in a group its topics, else their partitions.
    fn follow(&mut self, metadata: &Metadata) {
        let covers = |topic: &str| match &self.subscription {
            Subscription::Pattern(passes) => {
                passes(topic) && !(self.config.exclude_internal_topics && is_internal(topic))
            }
            Subscription::Topics(_) => true,
            Subscription::Assigned => false,
        };
        let topics: Vec<_> = metadata
            .topics
            .values()
            .filter(|topic| topic.error == ErrorCode::None && covers(&topic.name))
            .collect();
        if self.is_member() {
            let names = match &self.subscription {
                Subscription::Topics(names) => names.iter().cloned().collect(),
                _ => topics.iter().map(|topic| topic.name.clone()).collect(),
            };
            return self.follow_in_group(names, metadata);
        }
        let start = self.reset_start();
        for topic in topics {
            for partition in &topic.partitions {
                let name = TopicPartition::new(topic.name.as_str(), partition.index);
                self.readers.entry(name).or_insert_with(|| Reader::new(start));
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
        Reader { next, start, awaits_committed: false, epoch: LeaderEpoch::NONE }
    }
}
