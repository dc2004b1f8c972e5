//! Encodes a fetch response as header pieces and file regions, so that records are never copied into memory.
//! Every version of `FetchResponse.json`, 0 to 17.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use common::{
    error_code::ErrorCode,
    ids::{BrokerId, LeaderEpoch, Offset, ProducerId},
    topic::Uuid,
};
use network::service::Piece;
use protocol::{api::Api, frame};
use storage::log_read::Region;

use crate::request_context::RequestContext;

/// First version with tagged fields.
const FLEXIBLE: i16 = 12;
/// First version that names topics by id.
const TOPIC_IDS: i16 = 13;

/// The answer to a whole fetch.
#[derive(Debug, Default)]
pub(crate) struct FetchResponse {
    /// The top-level error (version 7 on).
    pub error: Option<ErrorCode>,
    /// The session, or 0 (version 7 on).
    pub session_id: i32,
    /// Answers, grouped by topic.
    pub topics: Vec<TopicAnswer>,
    /// Where the leaders named in the answers are (version 16 on).
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// The answers for one topic.
#[derive(Debug)]
pub(crate) struct TopicAnswer {
    pub name: Arc<str>,
    pub id: Uuid,
    pub partitions: Vec<PartitionAnswer>,
}

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEndpoint {
    pub id: BrokerId,
    pub host: String,
    pub port: i32,
    pub rack: Option<String>,
}

/// The answer for one partition.
#[derive(Debug)]
pub(crate) struct PartitionAnswer {
    pub partition: i32,
    pub error: ErrorCode,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
    /// Epoch and end offset from which the asker's log differs (version 12 on).
    pub diverging_epoch: Option<(LeaderEpoch, Offset)>,
    /// The leader as this broker knows it, where the asker was wrong (version 12 on).
    pub current_leader: Option<(BrokerId, LeaderEpoch)>,
    /// `None` for read-uncommitted.
    pub aborted_transactions: Option<Vec<(ProducerId, Offset)>>,
    pub preferred_read_replica: BrokerId,
    pub records: Records,
}

/// The records of an answer.
#[derive(Debug)]
pub(crate) enum Records {
    /// Null: how Kafka refuses a client that is too old for what the partition holds.
    Null,
    /// No records, or records that had to be converted.
    Memory(Bytes),
    /// Records where they lie.
    Files(Vec<Region>),
}

impl Records {
    /// Bytes on the wire.
    pub(crate) fn len(&self) -> usize {
        match self {
            Records::Null => 0,
            Records::Memory(bytes) => bytes.len(),
            Records::Files(regions) => regions.iter().map(|region| region.length).sum(),
        }
    }
}

impl PartitionAnswer {
    /// An error: no offsets, no records. Source: `FetchResponse.partitionResponse`.
    pub(crate) fn failed(partition: i32, error: ErrorCode) -> PartitionAnswer {
        PartitionAnswer {
            partition,
            error,
            high_watermark: Offset::NONE,
            last_stable_offset: Offset::NONE,
            log_start_offset: Offset::NONE,
            diverging_epoch: None,
            current_leader: None,
            aborted_transactions: None,
            preferred_read_replica: BrokerId::NONE,
            records: Records::Memory(Bytes::new()),
        }
    }
}

struct Encoder {
    version: i16,
    buffer: BytesMut,
    pieces: Vec<Piece>,
}

impl Encoder {
    fn flexible(&self) -> bool {
        self.version >= FLEXIBLE
    }

    fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buffer.put_u8(value as u8 & 0x7f | 0x80);
            value >>= 7;
        }
        self.buffer.put_u8(value as u8);
    }

    /// A length that cannot be null: of an array, or of records.
    fn length(&mut self, length: usize) {
        let length = i32::try_from(length).expect("a response is below 2 GiB");
        if self.flexible() {
            self.unsigned_varint(length as u32 + 1);
        } else {
            self.buffer.put_i32(length);
        }
    }

    fn null_length(&mut self) {
        if self.flexible() {
            self.buffer.put_u8(0);
        } else {
            self.buffer.put_i32(-1);
        }
    }

    fn string(&mut self, text: &str) {
        if self.flexible() {
            self.length(text.len());
        } else {
            self.buffer.put_i16(i16::try_from(text.len()).expect("names are short"));
        }
        self.buffer.put_slice(text.as_bytes());
    }

    fn nullable_string(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.string(text),
            None => self.buffer.put_u8(0),
        }
    }

    fn no_tags(&mut self) {
        if self.flexible() {
            self.buffer.put_u8(0);
        }
    }

    fn records(&mut self, records: Records) {
        match records {
            Records::Null => self.null_length(),
            Records::Memory(bytes) => {
                self.length(bytes.len());
                if bytes.len() <= 256 {
                    self.buffer.put_slice(&bytes);
                } else {
                    self.flush();
                    self.pieces.push(Piece::Bytes(bytes));
                }
            }
            Records::Files(regions) => {
                self.length(regions.iter().map(|region| region.length).sum());
                self.flush();
                for Region { file, position, length } in regions {
                    self.pieces.push(Piece::File { file, position, length });
                }
            }
        }
    }

    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.pieces.push(Piece::Bytes(self.buffer.split().freeze()));
        }
    }

    /// Puts the size in front, which stands in the first piece.
    fn finish(mut self) -> Vec<Piece> {
        let length = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::File { length, .. } => *length,
        };
        if self.pieces.is_empty() {
            frame::finish_response(&mut self.buffer, 0);
            return vec![Piece::Bytes(self.buffer.freeze())];
        }
        self.flush();
        let following: usize = self.pieces[1..].iter().map(length).sum();
        if let Some(Piece::Bytes(first)) = self.pieces.first_mut() {
            let mut head = BytesMut::from(std::mem::take(first));
            frame::finish_response(&mut head, following);
            *first = head.freeze();
        }
        self.pieces
    }

    fn partition(&mut self, answer: PartitionAnswer) {
        self.buffer.put_i32(answer.partition);
        self.buffer.put_i16(answer.error.code());
        self.buffer.put_i64(answer.high_watermark.0);
        if self.version >= 4 {
            self.buffer.put_i64(answer.last_stable_offset.0);
        }
        if self.version >= 5 {
            self.buffer.put_i64(answer.log_start_offset.0);
        }
        if self.version >= 4 {
            self.aborted(answer.aborted_transactions.as_deref());
        }
        if self.version >= 11 {
            self.buffer.put_i32(answer.preferred_read_replica.0);
        }
        self.records(answer.records);
        if self.flexible() {
            self.partition_tags(answer.diverging_epoch, answer.current_leader);
        }
    }

    fn aborted(&mut self, aborted: Option<&[(ProducerId, Offset)]>) {
        let Some(aborted) = aborted else { return self.null_length() };
        self.length(aborted.len());
        for (producer, first) in aborted {
            self.buffer.put_i64(producer.0);
            self.buffer.put_i64(first.0);
            self.no_tags();
        }
    }

    fn partition_tags(
        &mut self,
        diverging: Option<(LeaderEpoch, Offset)>,
        leader: Option<(BrokerId, LeaderEpoch)>,
    ) {
        self.unsigned_varint(u32::from(diverging.is_some()) + u32::from(leader.is_some()));
        if let Some((epoch, end)) = diverging {
            self.buffer.put_slice(&[0, 13]); // Tag 0, 13 bytes.
            self.buffer.put_i32(epoch.0);
            self.buffer.put_i64(end.0);
            self.buffer.put_u8(0);
        }
        if let Some((id, epoch)) = leader {
            self.buffer.put_slice(&[1, 9]); // Tag 1, 9 bytes.
            self.buffer.put_i32(id.0);
            self.buffer.put_i32(epoch.0);
            self.buffer.put_u8(0);
        }
    }

    fn endpoints_tag(&mut self, endpoints: &[NodeEndpoint]) {
        if self.version < 16 || endpoints.is_empty() {
            return self.no_tags();
        }
        let mut inner =
            Encoder { version: self.version, buffer: BytesMut::new(), pieces: Vec::new() };
        inner.length(endpoints.len());
        for endpoint in endpoints {
            inner.buffer.put_i32(endpoint.id.0);
            inner.string(&endpoint.host);
            inner.buffer.put_i32(endpoint.port);
            inner.nullable_string(endpoint.rack.as_deref());
            inner.no_tags();
        }
        self.buffer.put_slice(&[1, 0]); // One tag, number 0.
        self.unsigned_varint(u32::try_from(inner.buffer.len()).expect("a few endpoints"));
        self.buffer.put_slice(&inner.buffer);
    }
}

/// Writes the whole answer: size, header and body.
pub(crate) fn encode(ctx: &RequestContext, response: FetchResponse) -> Vec<Piece> {
    encode_as(ctx.api, ctx.api_version, ctx.correlation_id, response)
}

fn encode_as(api: &Api, version: i16, correlation_id: i32, response: FetchResponse) -> Vec<Piece> {
    let buffer = frame::start_response(api, version, correlation_id, 128);
    let mut encoder = Encoder { version, buffer, pieces: Vec::new() };
    if version >= 1 {
        encoder.buffer.put_i32(0); // Throttle time.
    }
    if version >= 7 {
        encoder.buffer.put_i16(response.error.map_or(0, ErrorCode::code));
        encoder.buffer.put_i32(response.session_id);
    }
    encoder.length(response.topics.len());
    for topic in response.topics {
        if version >= TOPIC_IDS {
            encoder.buffer.put_u128(topic.id.0);
        } else {
            encoder.string(&topic.name);
        }
        encoder.length(topic.partitions.len());
        for answer in topic.partitions {
            encoder.partition(answer);
        }
        encoder.no_tags();
    }
    encoder.endpoints_tag(&response.node_endpoints);
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::{Buf, Bytes};
    use common::{
        error_code::ErrorCode,
        ids::{BrokerId, LeaderEpoch, Offset, ProducerId},
        topic::Uuid,
    };
    use kafka_protocol::{messages, protocol::Decodable};
    use network::service::Piece;
    use protocol::api;
    use storage::log_read::Region;

    use super::{FetchResponse, NodeEndpoint, PartitionAnswer, Records, TopicAnswer, encode_as};

    fn answers(file: &std::fs::File) -> FetchResponse {
        let file = std::sync::Arc::new(file.try_clone().unwrap());
        let region = |position, length| Region { file: file.clone(), position, length };
        let ok = PartitionAnswer {
            high_watermark: Offset(9),
            last_stable_offset: Offset(8),
            log_start_offset: Offset(2),
            aborted_transactions: Some(vec![(ProducerId(4), Offset(5))]),
            records: Records::Files(vec![region(0, 3), region(4, 2)]),
            ..PartitionAnswer::failed(0, ErrorCode::None)
        };
        let parted = PartitionAnswer {
            diverging_epoch: Some((LeaderEpoch(3), Offset(7))),
            ..PartitionAnswer::failed(1, ErrorCode::None)
        };
        let moved = PartitionAnswer {
            current_leader: Some((BrokerId(2), LeaderEpoch(6))),
            records: Records::Memory(Bytes::from(vec![7; 300])),
            ..PartitionAnswer::failed(2, ErrorCode::NotLeaderOrFollower)
        };
        FetchResponse {
            error: None,
            session_id: 77,
            topics: vec![TopicAnswer {
                name: "topic".into(),
                id: Uuid(5),
                partitions: vec![ok, parted, moved],
            }],
            node_endpoints: vec![NodeEndpoint {
                id: BrokerId(2),
                host: "host".to_owned(),
                port: 9092,
                rack: None,
            }],
        }
    }

    /// What arrives at the other end.
    fn bytes(pieces: Vec<Piece>) -> Bytes {
        let mut all = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => all.extend_from_slice(&bytes),
                Piece::File { file, position, length } => {
                    use std::os::unix::fs::FileExt;
                    let mut region = vec![0; length];
                    file.read_exact_at(&mut region, position).unwrap();
                    all.extend(region);
                }
            }
        }
        all.into()
    }

    #[test]
    fn the_codec_reads_every_version_of_it() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcdef").unwrap();
        let api = api::find(messages::ApiKey::Fetch as i16).unwrap();
        for version in api.min..=api.max {
            let mut frame = bytes(encode_as(api, version, 11, answers(&file)));
            assert_eq!(frame.get_i32() as usize, frame.len(), "version {version}");
            assert_eq!(frame.get_i32(), 11);
            if api.is_flexible(version) {
                assert_eq!(frame.get_u8(), 0);
            }
            let read = messages::FetchResponse::decode(&mut frame, version).unwrap();
            assert!(frame.is_empty(), "version {version} has bytes left");
            assert_eq!(read.session_id, if version >= 7 { 77 } else { 0 });
            let topic = &read.responses[0];
            if version >= 13 {
                assert_eq!(topic.topic_id.as_u128(), 5);
            } else {
                assert_eq!(&*topic.topic.0, "topic");
            }
            let [ok, parted, moved] = &topic.partitions[..] else { panic!("three answers") };
            assert_eq!((ok.error_code, ok.high_watermark), (0, 9));
            assert_eq!(ok.records.as_deref(), Some(&b"abcef"[..]));
            if version >= 5 {
                assert_eq!((ok.last_stable_offset, ok.log_start_offset), (8, 2));
                let aborted = &ok.aborted_transactions.as_ref().unwrap()[0];
                assert_eq!((aborted.producer_id.0, aborted.first_offset), (4, 5));
                assert!(parted.aborted_transactions.is_none());
            }
            if version >= 12 {
                assert_eq!(
                    (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset),
                    (3, 7)
                );
                let leader = &moved.current_leader;
                assert_eq!((leader.leader_id.0, leader.leader_epoch), (2, 6));
            }
            assert_eq!(moved.error_code, ErrorCode::NotLeaderOrFollower.code());
            assert_eq!(moved.records.as_ref().map(Bytes::len), Some(300));
            if version >= 16 {
                assert_eq!(&*read.node_endpoints[0].host, "host");
            }
        }
    }
}
