//! The frames that the load generator sends.

use bytes::{BufMut, Bytes, BytesMut};
use common::ids::Timestamp;
use kafka_protocol::{
    messages::{
        ApiKey, ApiVersionsRequest, BrokerId, CreateTopicsRequest, FetchRequest,
        ListOffsetsRequest, MetadataRequest, ProduceRequest, RequestHeader, TopicName,
        create_topics_request::{CreatableTopic, CreatableTopicConfig},
        fetch_request::{FetchPartition, FetchTopic},
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
        metadata_request::MetadataRequestTopic,
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::{Encodable, HeaderVersion, StrBytes},
};
use record::{build::BatchBuilder, compression::Compression};

use crate::load::Requests;

/// Encodes a request as it goes over the wire, size in front.
pub(crate) fn frame<R: Encodable + HeaderVersion>(key: ApiKey, version: i16, request: &R) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .with_correlation_id(1)
        .with_client_id(Some(StrBytes::from_static_str("bench")));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).expect("a valid header");
    request.encode(&mut frame, version).expect("a valid request");
    let size = u32::try_from(frame.len() - 4).expect("a small request");
    frame[..4].copy_from_slice(&size.to_be_bytes());
    frame.freeze()
}

pub(crate) fn topic_name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// What keeps the disk from filling while gigabytes are produced: the log keeps about a gigabyte.
const CONFIGS: &[(&str, &str)] = &[
    ("segment.bytes", "268435456"),
    ("retention.bytes", "805306368"),
    ("file.delete.delay.ms", "1000"),
];

/// Creates a topic with one replica per partition.
pub(crate) fn create_topic(topic: &str, partitions: i32) -> Bytes {
    let configs = CONFIGS.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(Some(StrBytes::from_static_str(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(topic_name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(300_000);
    frame(ApiKey::CreateTopics, 4, &request)
}

/// One batch of records of `record_bytes` each, about `batch_bytes` in all.
pub(crate) fn batch(batch_bytes: usize, record_bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None);
    let value: Vec<u8> = (0..record_bytes.saturating_sub(12)).map(|at| (at * 31) as u8).collect();
    while builder.record_count() == 0 || builder.size() + record_bytes <= batch_bytes {
        builder.append(Timestamp(-1), None, Some(&value), &[]).expect("a small record");
    }
    builder.finish()
}

/// Produces a batch to one partition.
pub(crate) fn produce(topic: &str, partition: i32, acks: i16, batch: Bytes) -> Bytes {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
    let topic =
        TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
    let request = ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic]);
    frame(ApiKey::Produce, 8, &request)
}

/// Fetches from an offset of one partition, without a session.
pub(crate) fn fetch(topic: &str, partition: i32, offset: i64, bytes: i32) -> Bytes {
    let asked = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(bytes);
    let topic = FetchTopic::default().with_topic(topic_name(topic)).with_partitions(vec![asked]);
    let request = FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(bytes)
        .with_session_epoch(-1)
        .with_topics(vec![topic]);
    frame(ApiKey::Fetch, 11, &request)
}

/// Asks where the first partition of a topic starts; the offset stands last in the answer.
pub(crate) fn earliest(topic: &str) -> Bytes {
    const EARLIEST: i64 = -2;
    let asked = ListOffsetsPartition::default().with_timestamp(EARLIEST);
    let topic =
        ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(vec![asked]);
    let request =
        ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    frame(ApiKey::ListOffsets, 1, &request)
}

/// Asks for one topic.
pub(crate) fn metadata(topic: &str) -> Bytes {
    let asked = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
    let request = MetadataRequest::default().with_topics(Some(vec![asked]));
    frame(ApiKey::Metadata, 9, &request)
}

/// Asks what is served.
pub(crate) fn api_versions() -> Bytes {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("bench"))
        .with_client_software_version(StrBytes::from_static_str("1"));
    frame(ApiKey::ApiVersions, 3, &request)
}

/// Sends the same frame again and again, and counts `bytes` for each answer.
pub(crate) struct Same {
    frame: Bytes,
    bytes: u64,
    check: fn(&[u8]) -> Result<(), String>,
}

impl Same {
    /// `check` looks at each answer.
    pub(crate) fn new(
        frame: Bytes,
        bytes: u64,
        check: fn(&[u8]) -> Result<(), String>,
    ) -> Box<Same> {
        Box::new(Same { frame, bytes, check })
    }
}

impl Requests for Same {
    fn next(&mut self) -> &[u8] {
        &self.frame
    }

    fn answered(&mut self, answer: &[u8]) -> Result<u64, String> {
        (self.check)(answer)?;
        Ok(self.bytes)
    }
}

/// A CreateTopics answer of version 4 with one topic and no error.
pub(crate) fn created(answer: &[u8]) -> Result<(), String> {
    let name =
        answer.get(12..14).map_or(0, |size| usize::from(u16::from_be_bytes([size[0], size[1]])));
    match answer.get(14 + name..16 + name) {
        Some([0, 0]) => Ok(()),
        other => Err(format!("CreateTopics answered {other:?}")),
    }
}

/// Nothing is looked at.
pub(crate) fn any(_: &[u8]) -> Result<(), String> {
    Ok(())
}

/// A produce answer of version 8 with one partition and no error.
pub(crate) fn produced(answer: &[u8]) -> Result<(), String> {
    let name =
        answer.get(8..10).map_or(0, |size| usize::from(u16::from_be_bytes([size[0], size[1]])));
    let error = answer.get(10 + name + 8..10 + name + 10);
    match error {
        Some([0, 0]) => Ok(()),
        other => Err(format!("produce answered {other:?}")),
    }
}

/// Fetches of version 11 go round over a partition, as a consumer that starts again would.
pub(crate) struct Fetches {
    topic: String,
    frames: Vec<Bytes>,
    next: usize,
}

impl Fetches {
    /// Fetches at each of the offsets in turn.
    pub(crate) fn new(topic: &str, offsets: &[i64], bytes: i32) -> Box<Fetches> {
        let frames = offsets.iter().map(|offset| fetch(topic, 0, *offset, bytes)).collect();
        Box::new(Fetches { topic: topic.to_owned(), frames, next: 0 })
    }
}

impl Requests for Fetches {
    fn next(&mut self) -> &[u8] {
        self.next = (self.next + 1) % self.frames.len();
        &self.frames[self.next]
    }

    fn answered(&mut self, answer: &[u8]) -> Result<u64, String> {
        // Correlation id, throttle time, error, session id, one topic, its name, one partition, its number, its error.
        let at = 4 + 4 + 2 + 4 + 4 + 2 + self.topic.len() + 4 + 4;
        match answer.get(at..at + 2) {
            Some([0, 0]) => Ok(answer.len() as u64),
            other => Err(format!("fetch answered {other:?}")),
        }
    }
}
