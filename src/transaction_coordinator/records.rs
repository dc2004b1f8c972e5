//! The records of `__transaction_state`: one per transactional id, the latest counts, none is a tombstone.
//!
//! Key: version 0. Value: version 0 is what Kafka writes in ZooKeeper mode, version 1 is its flexible encoding
//! (`transaction.version` 1 and later, KRaft only), read in case a log holds it.
//! Source: `TransactionLogKey.json`, `TransactionLogValue.json`, Kafka's `TransactionLog`.

use std::{collections::HashMap, sync::Arc};

use bytes::{BufMut, Bytes};
use common::{
    ids::{ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};

use crate::{
    state::TransactionState,
    wire::{Reader, WireError, put_compact_length, put_string},
};

/// Longest transactional id, and longest topic name here, in bytes: a string of the protocol.
pub const NAME_BYTES_MAX: usize = i16::MAX as usize;

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRecord {
    /// At most `NAME_BYTES_MAX` bytes.
    pub transactional_id: Arc<str>,
    /// None: the id is forgotten.
    pub value: Option<TransactionValue>,
}

/// What is stored of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionValue {
    /// The current producer.
    pub producer_id: ProducerId,
    /// Its epoch; every older one is fenced.
    pub producer_epoch: ProducerEpoch,
    /// How long a transaction may go on, in milliseconds, from `start` on.
    pub timeout_ms: i32,
    /// Where it stands.
    pub state: TransactionState,
    /// The partitions of the transaction, each once; none when `Empty`. Kept in the order of the log.
    pub partitions: Vec<TopicPartition>,
    /// When the state was last changed.
    pub last_update: Timestamp,
    /// When the first partition was added; `NONE` when `Empty`, kept when complete.
    pub start: Timestamp,
}

/// The encodings of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueVersion {
    /// Version 0: what is written.
    Classic,
    /// Version 1: compact lengths and tagged fields.
    Flexible,
}

/// Why a record cannot be used; to be logged and skipped. Kafka stops loading at all but the second and never sees what
/// follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Records of a compacted topic have keys.
    #[error("transaction record without a key")]
    NoKey,
    /// Left over from an aborted upgrade; Kafka skips it as well.
    #[error("transaction record with a key of unknown version {0}")]
    UnknownKeyVersion(i16),
    /// Written by a later release.
    #[error("transaction record with a value of unknown version {0}")]
    UnknownValueVersion(i16),
    /// The bytes of the key are not what its version says.
    #[error("read the key of a transaction record")]
    Key(#[source] WireError),
    /// The bytes of the value are not what its version says.
    #[error("read the value of a transaction record")]
    Value(#[source] WireError),
    /// A number that is no state, or one of a state that is never stored.
    #[error("transaction record with the status {0}")]
    Status(i8),
    /// Only an empty transaction may leave out its partitions.
    #[error("transaction record without partitions in state {}", .0.name())]
    NoPartitions(TransactionState),
}

impl TransactionRecord {
    /// Reads a record of the log.
    pub fn decode(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<TransactionRecord, RecordError> {
        let mut reader = Reader::new(key.ok_or(RecordError::NoKey)?);
        let version = reader.i16().map_err(RecordError::Key)?;
        if version != 0 {
            return Err(RecordError::UnknownKeyVersion(version));
        }
        let transactional_id = reader.string().map_err(RecordError::Key)?.into();
        let value = value.map(TransactionValue::decode).transpose()?;
        Ok(TransactionRecord { transactional_id, value })
    }

    /// The key's bytes.
    ///
    /// # Panics
    /// When the id has more than `NAME_BYTES_MAX` bytes.
    pub fn encoded_key(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(4 + self.transactional_id.len());
        bytes.put_i16(0);
        put_string(&mut bytes, &self.transactional_id);
        bytes.into()
    }

    /// The value's bytes in the version that Kafka 3.9 writes in ZooKeeper mode; none for a tombstone.
    ///
    /// # Panics
    /// When a topic's name has more than `NAME_BYTES_MAX` bytes.
    pub fn encoded_value(&self) -> Option<Bytes> {
        self.value.as_ref().map(|value| value.encode(ValueVersion::Classic))
    }
}

impl TransactionValue {
    /// Reads a value of either version.
    pub fn decode(bytes: &[u8]) -> Result<TransactionValue, RecordError> {
        let mut reader = Reader::new(bytes);
        let version = match reader.i16().map_err(RecordError::Value)? {
            0 => ValueVersion::Classic,
            1 => ValueVersion::Flexible,
            unknown => return Err(RecordError::UnknownValueVersion(unknown)),
        };
        let (raw, partitions) = read(&mut reader, version).map_err(RecordError::Value)?;
        let state = TransactionState::from_id(raw.status).ok_or(RecordError::Status(raw.status))?;
        let partitions = match (state, partitions) {
            (TransactionState::Empty, _) => Vec::new(),
            (_, Some(partitions)) => partitions,
            (_, None) => return Err(RecordError::NoPartitions(state)),
        };
        Ok(TransactionValue {
            producer_id: ProducerId(raw.producer_id),
            producer_epoch: ProducerEpoch(raw.producer_epoch),
            timeout_ms: raw.timeout_ms,
            state,
            partitions,
            last_update: Timestamp(raw.last_update_ms),
            start: Timestamp(raw.start_ms),
        })
    }

    /// The value's bytes in a version.
    ///
    /// # Panics
    /// When a topic's name has more than `NAME_BYTES_MAX` bytes, or an empty transaction has partitions.
    pub fn encode(&self, version: ValueVersion) -> Bytes {
        let is_empty = self.state == TransactionState::Empty;
        assert!(!is_empty || self.partitions.is_empty(), "an empty transaction has no partitions");
        let mut bytes = Vec::with_capacity(64 + 8 * self.partitions.len());
        bytes.put_i16(if version == ValueVersion::Classic { 0 } else { 1 });
        bytes.put_i64(self.producer_id.0);
        bytes.put_i16(self.producer_epoch.0);
        bytes.put_i32(self.timeout_ms);
        bytes.put_i8(self.state.id());
        let topics = (!is_empty).then(|| by_topic(&self.partitions));
        put_topics(&mut bytes, topics.as_deref(), version);
        bytes.put_i64(self.last_update.0);
        bytes.put_i64(self.start.0);
        put_no_tags(&mut bytes, version);
        bytes.into()
    }
}

/// The numbers of a value, unchecked.
struct Raw {
    producer_id: i64,
    producer_epoch: i16,
    timeout_ms: i32,
    status: i8,
    last_update_ms: i64,
    start_ms: i64,
}

fn read(
    reader: &mut Reader<'_>,
    version: ValueVersion,
) -> Result<(Raw, Option<Vec<TopicPartition>>), WireError> {
    let producer_id = reader.i64()?;
    let producer_epoch = reader.i16()?;
    let timeout_ms = reader.i32()?;
    let status = reader.i8()?;
    let partitions = read_topics(reader, version)?;
    let last_update_ms = reader.i64()?;
    let start_ms = reader.i64()?;
    if version == ValueVersion::Flexible {
        reader.skip_tags()?;
    }
    let raw = Raw { producer_id, producer_epoch, timeout_ms, status, last_update_ms, start_ms };
    Ok((raw, partitions))
}

fn read_topics(
    reader: &mut Reader<'_>,
    version: ValueVersion,
) -> Result<Option<Vec<TopicPartition>>, WireError> {
    let flexible = version == ValueVersion::Flexible;
    let length = |reader: &mut Reader<'_>| match version {
        ValueVersion::Classic => reader.array_length(),
        ValueVersion::Flexible => reader.compact_length(),
    };
    let Some(topics) = length(reader)? else { return Ok(None) };
    let mut partitions = Vec::new();
    for _ in 0..topics {
        let name = if flexible { reader.compact_string()? } else { reader.string()? };
        let name: Arc<str> = name.into();
        for _ in 0..length(reader)?.ok_or(WireError::Null)? {
            partitions.push(TopicPartition::new(name.clone(), reader.i32()?));
        }
        if flexible {
            reader.skip_tags()?;
        }
    }
    Ok(Some(partitions))
}

/// Groups the partitions by topic; both keep the order in which they first come.
fn by_topic(partitions: &[TopicPartition]) -> Vec<(&str, Vec<i32>)> {
    let mut topics: Vec<(&str, Vec<i32>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for partition in partitions {
        let place = *places.entry(&partition.topic).or_insert(topics.len());
        if place == topics.len() {
            topics.push((&partition.topic, Vec::new()));
        }
        topics[place].1.push(partition.partition);
    }
    topics
}

fn put_topics(bytes: &mut Vec<u8>, topics: Option<&[(&str, Vec<i32>)]>, version: ValueVersion) {
    put_length(bytes, topics.map(<[_]>::len), version);
    for (name, partitions) in topics.unwrap_or_default() {
        match version {
            ValueVersion::Classic => put_string(bytes, name),
            ValueVersion::Flexible => {
                assert!(name.len() <= NAME_BYTES_MAX, "names are checked where requests come in");
                put_compact_length(bytes, Some(name.len()));
                bytes.put_slice(name.as_bytes());
            }
        }
        put_length(bytes, Some(partitions.len()), version);
        for partition in partitions {
            bytes.put_i32(*partition);
        }
        put_no_tags(bytes, version);
    }
}

fn put_length(bytes: &mut Vec<u8>, length: Option<usize>, version: ValueVersion) {
    match (version, length) {
        (ValueVersion::Flexible, length) => put_compact_length(bytes, length),
        (ValueVersion::Classic, None) => bytes.put_i32(-1),
        (ValueVersion::Classic, Some(length)) => {
            bytes.put_i32(i32::try_from(length).expect("a request has fewer partitions"));
        }
    }
}

fn put_no_tags(bytes: &mut Vec<u8>, version: ValueVersion) {
    if version == ValueVersion::Flexible {
        bytes.put_u8(0);
    }
}
