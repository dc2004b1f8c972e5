//! Builds record batches of magic 2: for clients, for coordinators, and where the broker writes records anew.

use bytes::Bytes;
use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::batch::{
    Attributes, BATCH_HEADER_LENGTH, BatchHeader, CRC_COVERS_FROM, LOG_OVERHEAD, NO_SEQUENCE,
    TimestampType,
};
use crate::compression::{Compression, compress};
use crate::growth;
use crate::varint::{size_of_varlong, write_varint, write_varlong};
use crate::view::Header;

/// Why a record cannot be added to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Timestamps are -1 (none) or above.
    #[error("Invalid negative timestamp {0}")]
    NegativeTimestamp(Timestamp),
    /// Offsets of a batch rise, and stay within 2^31 of the first.
    #[error("offset delta {delta} does not follow {last}")]
    OffsetDelta {
        /// The new record's.
        delta: i64,
        /// The last record's.
        last: i64,
    },
    /// A batch's size is an int32.
    #[error("a batch of {0} bytes is too large for its format")]
    TooLarge(usize),
}

/// Collects records, then makes one batch of them.
///
/// Holds the records uncompressed until `finish`. Who must bound a batch asks `size_with` before each append.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    compression: Compression,
    records: Vec<u8>,
    has_base_timestamp: bool,
}

impl BatchBuilder {
    /// An empty batch at offset 0, without a producer.
    pub fn new(compression: Compression) -> BatchBuilder {
        BatchBuilder {
            header: BatchHeader {
                base_offset: Offset::ZERO,
                batch_length: 0,
                leader_epoch: LeaderEpoch::NONE,
                crc: 0,
                attributes: Attributes::NONE.with_codec(compression.codec()),
                last_offset_delta: -1,
                base_timestamp: Timestamp::NONE,
                max_timestamp: Timestamp::NONE,
                producer_id: ProducerId::NONE,
                producer_epoch: ProducerEpoch::NONE,
                base_sequence: NO_SEQUENCE,
                record_count: 0,
            },
            compression,
            records: Vec::new(),
            has_base_timestamp: false,
        }
    }

    /// Sets the offset of the first record.
    #[must_use]
    pub fn base_offset(mut self, base_offset: Offset) -> BatchBuilder {
        self.header.base_offset = base_offset;
        self
    }

    /// Sets the epoch of the leader that appends it.
    #[must_use]
    pub fn leader_epoch(mut self, leader_epoch: LeaderEpoch) -> BatchBuilder {
        self.header.leader_epoch = leader_epoch;
        self
    }

    /// Sets the producer, and the sequence number of the first record.
    #[must_use]
    pub fn producer(
        mut self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        base_sequence: i32,
    ) -> BatchBuilder {
        self.header.producer_id = producer_id;
        self.header.producer_epoch = producer_epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Makes it part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> BatchBuilder {
        self.header.attributes = self.header.attributes.with_transactional(true);
        self
    }

    /// Makes it a control batch.
    #[must_use]
    pub fn control(mut self) -> BatchBuilder {
        self.header.attributes = self.header.attributes.with_control(true);
        self
    }

    /// Gives every record the time of the append.
    #[must_use]
    pub fn log_append_time(mut self, now: Timestamp) -> BatchBuilder {
        let append_time = TimestampType::LogAppendTime;
        self.header.attributes = self.header.attributes.with_timestamp_type(append_time);
        self.header.max_timestamp = now;
        self
    }

    /// Sets the time from which tombstones may go; it takes the base timestamp's place, so call it before any append.
    #[must_use]
    pub fn delete_horizon(mut self, horizon: Timestamp) -> BatchBuilder {
        self.header.attributes = self.header.attributes.with_delete_horizon(true);
        self.header.base_timestamp = horizon;
        self.has_base_timestamp = true;
        self
    }

    /// Adds a record at the next offset.
    pub fn append(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Result<(), BuildError> {
        let delta = i64::from(self.header.last_offset_delta) + 1;
        self.append_at(delta, timestamp, key, value, headers.iter().copied())
    }

    /// Adds a record at `delta` places after the base offset; compaction leaves gaps.
    pub fn append_at<'h>(
        &mut self,
        delta: i64,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl Iterator<Item = Header<'h>> + Clone,
    ) -> Result<(), BuildError> {
        let last = i64::from(self.header.last_offset_delta);
        let offset_delta = i32::try_from(delta)
            .ok()
            .filter(|_| delta > last)
            .ok_or(BuildError::OffsetDelta { delta, last })?;
        if timestamp < Timestamp::NONE {
            return Err(BuildError::NegativeTimestamp(timestamp));
        }
        if !self.has_base_timestamp {
            self.header.base_timestamp = timestamp;
            self.has_base_timestamp = true;
        }
        let timestamp_delta = timestamp.0.wrapping_sub(self.header.base_timestamp.0);
        let body = body_size(offset_delta, timestamp_delta, key, value, headers.clone());
        let size = BATCH_HEADER_LENGTH + self.records.len() + size_of_varlong(body as i64) + body;
        let (Ok(_), Ok(length)) = (i32::try_from(size), i32::try_from(body)) else {
            return Err(BuildError::TooLarge(size));
        };
        growth::reserve(&mut self.records, size - BATCH_HEADER_LENGTH);
        write_varint(length, &mut self.records);
        self.records.push(0);
        write_varlong(timestamp_delta, &mut self.records);
        write_varint(offset_delta, &mut self.records);
        write_nullable(key, &mut self.records);
        write_nullable(value, &mut self.records);
        write_length(headers.clone().count(), &mut self.records);
        for header in headers {
            write_nullable(Some(header.name), &mut self.records);
            write_nullable(header.value, &mut self.records);
        }
        self.header.last_offset_delta = offset_delta;
        self.header.record_count += 1;
        if self.header.attributes.timestamp_type() == TimestampType::CreateTime {
            self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        }
        Ok(())
    }

    /// How many records there are.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// Bytes of the batch so far, were it not compressed.
    pub fn size(&self) -> usize {
        BATCH_HEADER_LENGTH + self.records.len()
    }

    /// Bytes that one more record would add at most, not compressed.
    pub fn size_with(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> usize {
        let body = body_size(i32::MAX, i64::MAX, key, value, headers.iter().copied());
        self.size() + size_of_varlong(body as i64) + body
    }

    /// Compresses the records and makes the batch. One without records is only a header, as compaction leaves them.
    pub fn finish(self) -> Bytes {
        let (header, records) = self.finish_parts();
        let mut batch = Vec::with_capacity(BATCH_HEADER_LENGTH + records.len());
        batch.extend(header.to_bytes());
        batch.extend(records);
        batch.into()
    }

    /// As `finish`, but the batch keeps a last offset beyond that of its last record, and with it its last sequence.
    pub(crate) fn finish_at(mut self, last_offset_delta: i32) -> Bytes {
        self.header.last_offset_delta = self.header.last_offset_delta.max(last_offset_delta);
        self.finish()
    }

    /// The same in two parts.
    pub(crate) fn finish_parts(mut self) -> (BatchHeader, Vec<u8>) {
        self.header.last_offset_delta = self.header.last_offset_delta.max(0);
        let records = match self.compression {
            Compression::None => self.records,
            compression => {
                let mut compressed = Vec::new();
                compress(compression, 2, &self.records, &mut compressed);
                compressed
            }
        };
        seal(&mut self.header, &records);
        (self.header, records)
    }
}

/// Sets a header's length and CRC for the records that follow it.
pub(crate) fn seal(header: &mut BatchHeader, records: &[u8]) {
    let length = BATCH_HEADER_LENGTH - LOG_OVERHEAD + records.len();
    header.batch_length =
        i32::try_from(length).expect("compression adds little to what was below 2^31");
    let crc = crc32c::crc32c(&header.to_bytes()[CRC_COVERS_FROM..]);
    header.crc = crc32c::crc32c_append(crc, records);
}

fn body_size<'h>(
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl Iterator<Item = Header<'h>> + Clone,
) -> usize {
    let count = headers.clone().count();
    let headers: usize =
        headers.map(|header| nullable_size(Some(header.name)) + nullable_size(header.value)).sum();
    1 + size_of_varlong(timestamp_delta)
        + size_of_varlong(i64::from(offset_delta))
        + nullable_size(key)
        + nullable_size(value)
        + size_of_varlong(count as i64)
        + headers
}

fn nullable_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| size_of_varlong(bytes.len() as i64) + bytes.len())
}

fn write_nullable(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        None => write_varint(-1, out),
        Some(bytes) => {
            write_length(bytes.len(), out);
            out.extend_from_slice(bytes);
        }
    }
}

/// The caller has checked that the whole batch is below 2^31 bytes.
fn write_length(length: usize, out: &mut Vec<u8>) {
    write_varlong(length as i64, out);
}
