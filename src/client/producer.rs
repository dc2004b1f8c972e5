//! Writes records: batches them by partition, keeps their order, sends them again where that may help.
//! Source: `KafkaProducer`.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    clock,
    error_code::ErrorCode,
    ids::{Offset, Timestamp},
    topic::TopicPartition,
};
use parking_lot::Mutex;
use rand::Rng;
use record::{
    compression::{Codec, Compression},
    view::Header,
};
use tokio::{
    sync::{Notify, Semaphore, watch},
    task::JoinHandle,
    time::timeout_at,
};

use crate::{
    accumulator::{Accumulator, Ended, Identity, Outcome, Parts, Rules},
    cluster::{AutoCreate, Cluster, Topics},
    config::ProducerConfig,
    error::{ClientError, ErrorKind},
    metadata::Topic,
    partitioner::partition_for_key,
    sender,
};

/// A record to be written.
#[derive(Clone, Debug, Default)]
pub struct ProducerRecord {
    /// Its topic.
    pub topic: String,
    /// Its partition; none leaves it to the key, or to the producer.
    pub partition: Option<i32>,
    /// Its time; none is now.
    pub timestamp: Option<Timestamp>,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// Where a record was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// Topic and partition.
    pub partition: TopicPartition,
    /// Its offset; -1 when the broker did not say (acks=0, or a repeated batch).
    pub offset: Offset,
    /// The time that it was given.
    pub timestamp: Timestamp,
}

/// The result of a record that is under way.
pub struct Delivery {
    partition: TopicPartition,
    timestamp: Timestamp,
    index: i64,
    outcome: Outcome,
}

impl Delivery {
    /// Waits until the record is written or given up.
    pub async fn result(self) -> Result<RecordMetadata, ClientError> {
        self.timed_result().await.0
    }

    /// The same, and when it came.
    pub async fn timed_result(mut self) -> (Result<RecordMetadata, ClientError>, Instant) {
        let ended = match self.outcome.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone(),
            Err(_) => None,
        };
        let Some(Ended { result, at }) = ended else {
            let closed = ClientError::new(ErrorKind::Kafka, "Producer is closed forcefully.");
            return (Err(closed), clock::now());
        };
        let placed = result.map(|batch| RecordMetadata {
            partition: self.partition,
            offset: match batch.base_offset {
                -1 => Offset::NONE,
                base => Offset(base).plus(self.index),
            },
            timestamp: match batch.log_append_time {
                -1 => self.timestamp,
                time => Timestamp(time),
            },
        });
        (placed, at)
    }
}

/// A producer. `flush` or `close` before it is dropped, to know what became of the records: after a drop those that
/// wait are still sent, for as long as the runtime lives.
pub struct Producer {
    shared: Arc<Shared>,
    sender: JoinHandle<()>,
}

/// What the producer and its sender share.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) config: ProducerConfig,
    pub(crate) state: Mutex<State>,
    /// The sender has something to do.
    pub(crate) wake: Notify,
    /// Counts batches that ended, for those who flush.
    pub(crate) ended: watch::Sender<u64>,
    memory: Arc<Semaphore>,
    /// Permits that `memory` began with.
    memory_bytes: usize,
}

/// Changed under the lock, for a few lines at a time.
pub(crate) struct State {
    pub(crate) accumulator: Accumulator,
    pub(crate) identity: Option<Identity>,
    /// Topics that records went to; their metadata is kept fresh.
    pub(crate) topics: HashSet<String>,
    pub(crate) wants_metadata: bool,
    pub(crate) is_closed: bool,
    sticky: HashMap<String, Sticky>,
}

/// Where records without a key go for now. Source: `BuiltInPartitioner`.
struct Sticky {
    partition: i32,
    bytes: usize,
}

impl Producer {
    /// Resolves the addresses and starts the sender; connects with the first record.
    pub async fn open(config: ProducerConfig) -> Result<Producer, ClientError> {
        let cluster = Cluster::open(config.connection.clone()).await?;
        let rules = Rules {
            batch_size: config.batch_size,
            linger: config.linger,
            retry_backoff: config.connection.retry_backoff,
            delivery_timeout: config.delivery_timeout,
            compression: compression(&config),
        };
        let memory_bytes = config.buffer_memory.min(Semaphore::MAX_PERMITS);
        let shared = Arc::new(Shared {
            cluster,
            state: Mutex::new(State {
                accumulator: Accumulator::new(rules),
                identity: None,
                topics: HashSet::new(),
                wants_metadata: false,
                is_closed: false,
                sticky: HashMap::new(),
            }),
            wake: Notify::new(),
            ended: watch::channel(0).0,
            memory: Arc::new(Semaphore::new(memory_bytes)),
            memory_bytes,
            config,
        });
        let sender = tokio::spawn(sender::run(shared.clone()));
        Ok(Producer { shared, sender })
    }

    /// Takes a record; waits for metadata and memory, at most `max.block.ms`. The result comes by the delivery.
    pub async fn send(&self, record: &ProducerRecord) -> Result<Delivery, ClientError> {
        let now = clock::now();
        let deadline = now + self.shared.config.max_block;
        let size = self.check_size(record)?;
        let topic = self.topic(&record.topic, now, deadline).await?;
        let partition = TopicPartition::new(
            record.topic.as_str(),
            self.choose_partition(record, &topic, size)?,
        );
        let memory = self.take_memory(size, deadline).await?;
        let timestamp = record.timestamp.unwrap_or_else(clock::wall_clock);
        let headers: Vec<Header<'_>> = record
            .headers
            .iter()
            .map(|(name, value)| Header { name: name.as_bytes(), value: value.as_deref() })
            .collect();
        let parts = Parts {
            timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        };
        let mut state = self.shared.state.lock();
        let placed = state.accumulator.append(&partition, clock::now(), memory, &parts);
        drop(state);
        let placed =
            placed.map_err(|error| ClientError::new(ErrorKind::Kafka, error.to_string()))?;
        if placed.is_full || placed.is_first {
            self.shared.wake.notify_one();
        }
        Ok(Delivery { partition, timestamp, index: placed.index, outcome: placed.outcome })
    }

    /// Partitions of a topic, by number.
    pub async fn partitions(&self, topic: &str) -> Result<Vec<i32>, ClientError> {
        let now = clock::now();
        let topic = self.topic(topic, now, now + self.shared.config.max_block).await?;
        Ok(topic.partitions.iter().map(|partition| partition.index).collect())
    }

    /// Sends what waits, and waits until all of it has ended.
    pub async fn flush(&self) {
        let mut ended = self.shared.ended.subscribe();
        let number = {
            let mut state = self.shared.state.lock();
            state.accumulator.hurries += 1;
            state.accumulator.next_number()
        };
        self.shared.wake.notify_one();
        while !self.shared.state.lock().accumulator.is_done_below(number) {
            // The sender keeps its end for as long as it runs; were it gone, nothing would come.
            if ended.changed().await.is_err() || self.sender.is_finished() {
                break;
            }
        }
        self.shared.state.lock().accumulator.hurries -= 1;
    }

    /// Flushes and stops.
    pub async fn close(self) {
        self.flush().await;
        self.shared.state.lock().is_closed = true;
        self.shared.wake.notify_one();
    }

    /// The topic's metadata, read until it is there. Source: `KafkaProducer.waitOnMetadata`.
    async fn topic(
        &self,
        name: &str,
        begun: Instant,
        deadline: Instant,
    ) -> Result<Topic, ClientError> {
        let metadata = self.shared.cluster.metadata();
        if let Some(topic) = metadata.topics.get(name).filter(|topic| is_usable(topic)) {
            return Ok(topic.clone());
        }
        let names = {
            let mut state = self.shared.state.lock();
            state.topics.insert(name.to_owned());
            state.topics.iter().cloned().collect()
        };
        let topics = Topics::Named(names, AutoCreate::Allowed);
        let mut tries = 0;
        while clock::now() < deadline {
            let read = timeout_at(deadline.into(), self.shared.cluster.refresh(&topics, deadline));
            let Ok(read) = read.await else { break };
            if let Ok(metadata) = read
                && let Some(topic) = metadata.topics.get(name)
            {
                match topic.error {
                    _ if is_usable(topic) => return Ok(topic.clone()),
                    ErrorCode::InvalidTopicException => {
                        return Err(ClientError::from_code(
                            topic.error,
                            Some(format!("Invalid topics: [{name}]")),
                        ));
                    }
                    ErrorCode::TopicAuthorizationFailed => {
                        return Err(ClientError::from_code(
                            topic.error,
                            Some(format!("Not authorized to access topics: [{name}]")),
                        ));
                    }
                    _ => {}
                }
            }
            // The pause must not outlast the deadline.
            if timeout_at(deadline.into(), self.shared.cluster.back_off(tries)).await.is_err() {
                break;
            }
            tries += 1;
        }
        let waited = deadline.saturating_duration_since(begun).as_millis();
        Err(ClientError::new(
            ErrorKind::Timeout,
            format!("Topic {name} not present in metadata after {waited} ms."),
        ))
    }

    fn choose_partition(
        &self,
        record: &ProducerRecord,
        topic: &Topic,
        size: usize,
    ) -> Result<i32, ClientError> {
        let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
        if let Some(partition) = record.partition {
            if (0..count).contains(&partition) {
                return Ok(partition);
            }
            return Err(ClientError::new(
                ErrorKind::Timeout,
                format!(
                    "Partition {partition} of topic {} with partition count {count} is not present in metadata after {} ms.",
                    record.topic,
                    self.shared.config.max_block.as_millis()
                ),
            ));
        }
        match &record.key {
            Some(key) if !self.shared.config.ignore_keys => Ok(partition_for_key(key, count)),
            _ => Ok(self.sticky_partition(topic, size)),
        }
    }

    /// One partition for a batch's worth of bytes, then another; those with a leader first.
    fn sticky_partition(&self, topic: &Topic, size: usize) -> i32 {
        let mut state = self.shared.state.lock();
        let limit = self.shared.config.batch_size;
        if let Some(sticky) = state.sticky.get_mut(&topic.name)
            && sticky.bytes < limit
        {
            sticky.bytes += size;
            return sticky.partition;
        }
        let mut choices: Vec<i32> = topic
            .partitions
            .iter()
            .filter(|partition| partition.leader.is_some())
            .map(|partition| partition.index)
            .collect();
        if choices.is_empty() {
            choices = topic.partitions.iter().map(|partition| partition.index).collect();
        }
        let partition = choices[rand::rng().random_range(0..choices.len())];
        state.sticky.insert(topic.name.clone(), Sticky { partition, bytes: size });
        partition
    }

    /// Upper bound of the record's bytes in a batch. Source: `KafkaProducer.ensureValidRecordSize`.
    fn check_size(&self, record: &ProducerRecord) -> Result<usize, ClientError> {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers: usize =
            record.headers.iter().map(|(name, value)| name.len() + length(value) + 10).sum();
        let size = 61 + 21 + length(&record.key) + length(&record.value) + 10 + headers;
        let config = &self.shared.config;
        let limits = [
            (config.request_bytes_max, "max.request.size", ""),
            (
                self.shared.memory_bytes,
                "buffer.memory",
                "the total memory buffer you have configured with the ",
            ),
        ];
        for (limit, name, _) in limits {
            if size > limit {
                return Err(ClientError::from_code(
                    ErrorCode::MessageTooLarge,
                    Some(format!(
                        "The message is {size} bytes when serialized which is larger than {limit}, which is the value of the {name} configuration."
                    )),
                ));
            }
        }
        Ok(size)
    }

    async fn take_memory(
        &self,
        size: usize,
        deadline: Instant,
    ) -> Result<tokio::sync::OwnedSemaphorePermit, ClientError> {
        let memory = self.shared.memory.clone();
        let permits = u32::try_from(size).unwrap_or(u32::MAX);
        if let Ok(permit) = memory.clone().try_acquire_many_owned(permits) {
            return Ok(permit);
        }
        // What lingers would hold the memory that it waits for.
        let exhausted = || {
            let (waited, total) =
                (self.shared.config.max_block.as_millis(), self.shared.memory_bytes);
            ClientError::new(
                ErrorKind::Timeout,
                format!(
                    "Failed to allocate {size} bytes within the configured max blocking time {waited} ms. Total memory: {total} bytes. Available memory: {} bytes. Poolable size: {} bytes",
                    self.shared.memory.available_permits(),
                    self.shared.config.batch_size
                ),
            )
        };
        self.shared.state.lock().accumulator.hurries += 1;
        self.shared.wake.notify_one();
        let acquired = timeout_at(deadline.into(), memory.acquire_many_owned(permits)).await;
        self.shared.state.lock().accumulator.hurries -= 1;
        acquired.map_err(|_| exhausted())?.map_err(|_| exhausted())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.wake.notify_one();
    }
}

/// Whether records can be placed; a missing leader is waited for later.
fn is_usable(topic: &Topic) -> bool {
    topic.error == ErrorCode::None && !topic.partitions.is_empty()
}

fn compression(config: &ProducerConfig) -> Compression {
    let level = config.compression_level;
    match config.compression_type.as_str() {
        "gzip" => level.map_or(Compression::of(Codec::Gzip), Compression::Gzip),
        "snappy" => Compression::Snappy,
        "lz4" => level.map_or(Compression::of(Codec::Lz4), Compression::Lz4),
        "zstd" => level.map_or(Compression::of(Codec::Zstd), Compression::Zstd),
        _ => Compression::None,
    }
}

/// The error of a batch that was not delivered in time. Source: `ProducerBatch`, `Sender`.
pub(crate) fn expired(record_count: i32, partition: &TopicPartition, age: Duration) -> ClientError {
    ClientError::new(
        ErrorKind::Timeout,
        format!(
            "Expiring {record_count} record(s) for {partition}:{} ms has passed since batch creation",
            age.as_millis()
        ),
    )
}
