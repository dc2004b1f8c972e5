//! Control records: what a broker writes into a partition to end a transaction in it.
//!
//! Source: `ControlRecordType`, `EndTransactionMarker`.

use bytes::Bytes;
use common::ids::{ProducerEpoch, ProducerId, Timestamp};

use crate::batch::NO_SEQUENCE;
use crate::build::BatchBuilder;
use crate::compression::Compression;
use crate::records::{self, RecordsError};
use crate::view::RecordView;

/// What a control record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlType {
    /// The producer's open transaction is aborted.
    Abort,
    /// The producer's open transaction is committed.
    Commit,
    /// Another type: of KRaft (2 to 6), or of a later version. Readers pass over it.
    Other(i16),
}

impl ControlType {
    /// The number in the record's key.
    pub fn id(self) -> i16 {
        match self {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::Other(id) => id,
        }
    }

    fn from_id(id: i16) -> ControlType {
        match id {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            id => ControlType::Other(id),
        }
    }
}

/// How a transaction ended in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionResult {
    /// Its records are not for readers of committed ones.
    Abort,
    /// Its records count.
    Commit,
}

/// The record that ends a transaction in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransactionMarker {
    /// How it ended.
    pub result: TransactionResult,
    /// Epoch of the coordinator that decided it; an older one's markers are refused.
    pub coordinator_epoch: i32,
}

/// Why a control record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The key is null or too short.
    #[error(
        "Invalid value size found for end control record key. Must have at least 4 bytes, but found only {0}"
    )]
    KeyLength(usize),
    /// The value is null or too short.
    #[error(
        "Invalid value size found for end transaction marker. Must have at least 6 bytes, but found only {0}"
    )]
    ValueLength(usize),
    /// Versions are 0 or above.
    #[error("Invalid version found for control record: {0}. May indicate data corruption")]
    Version(i16),
    /// A control batch without a record.
    #[error("a control batch has no record")]
    Empty,
    /// The batch's records cannot be read.
    #[error("{0}")]
    Records(RecordsError),
}

/// The type in a control record's key. Later versions are read by the part that is known.
pub fn parse_type(key: Option<&[u8]>) -> Result<ControlType, ControlError> {
    let key = key.unwrap_or_default();
    let [v0, v1, t0, t1, ..] = *key else { return Err(ControlError::KeyLength(key.len())) };
    version(i16::from_be_bytes([v0, v1]))?;
    Ok(ControlType::from_id(i16::from_be_bytes([t0, t1])))
}

/// The marker that a control record is; none where its type is another.
pub fn parse_marker(record: &RecordView) -> Result<Option<EndTransactionMarker>, ControlError> {
    let result = match parse_type(record.key)? {
        ControlType::Abort => TransactionResult::Abort,
        ControlType::Commit => TransactionResult::Commit,
        ControlType::Other(_) => return Ok(None),
    };
    let value = record.value.unwrap_or_default();
    let [v0, v1, e0, e1, e2, e3, ..] = *value else {
        return Err(ControlError::ValueLength(value.len()));
    };
    version(i16::from_be_bytes([v0, v1]))?;
    let coordinator_epoch = i32::from_be_bytes([e0, e1, e2, e3]);
    Ok(Some(EndTransactionMarker { result, coordinator_epoch }))
}

/// The marker that a whole control batch holds; none where it is of another type.
pub fn marker_of(batch: &[u8]) -> Result<Option<EndTransactionMarker>, ControlError> {
    let records = records::records(batch, MARKER_BYTES_MAX).map_err(ControlError::Records)?;
    let first = records.iter().next().ok_or(ControlError::Empty)?;
    parse_marker(&first.map_err(ControlError::Records)?)
}

/// A control batch holds one small record, so more is not decompressed.
const MARKER_BYTES_MAX: usize = 64 * 1024;

fn version(version: i16) -> Result<(), ControlError> {
    if version < 0 { Err(ControlError::Version(version)) } else { Ok(()) }
}

/// The batch that ends a producer's transaction in a partition.
pub fn marker_batch(
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    timestamp: Timestamp,
    marker: EndTransactionMarker,
) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None)
        .producer(producer_id, producer_epoch, NO_SEQUENCE)
        .transactional()
        .control();
    let control_type = match marker.result {
        TransactionResult::Abort => ControlType::Abort,
        TransactionResult::Commit => ControlType::Commit,
    };
    let [t0, t1] = control_type.id().to_be_bytes();
    let [e0, e1, e2, e3] = marker.coordinator_epoch.to_be_bytes();
    let key = [0, 0, t0, t1];
    let value = [0, 0, e0, e1, e2, e3];
    builder
        .append(timestamp.max(Timestamp::NONE), Some(&key), Some(&value), &[])
        .expect("a small record with a valid timestamp always fits");
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchHeader;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        for result in [TransactionResult::Abort, TransactionResult::Commit] {
            let marker = EndTransactionMarker { result, coordinator_epoch: 258 };
            let batch = marker_batch(ProducerId(7), ProducerEpoch(3), Timestamp(1000), marker);
            assert_eq!(marker_of(&batch), Ok(Some(marker)));
            let header = BatchHeader::parse(&batch).unwrap();
            assert!(header.attributes.is_control() && header.attributes.is_transactional());
            assert_eq!((header.base_sequence, header.record_count), (NO_SEQUENCE, 1));
            assert_eq!((header.size(), batch.len()), (78, 78), "as long as Kafka's");
        }
    }

    #[test]
    fn short_and_foreign_control_records_do_not_pass_for_markers() {
        assert_eq!(parse_type(Some(&[0, 5, 0, 1, 9])), Ok(ControlType::Commit));
        assert_eq!(parse_type(Some(&[0, 0, 0, 2])), Ok(ControlType::Other(2)));
        assert_eq!(parse_type(Some(&[0, 0, 0])), Err(ControlError::KeyLength(3)));
        assert_eq!(parse_type(None), Err(ControlError::KeyLength(0)));
        assert_eq!(parse_type(Some(&[0xff, 0xff, 0, 0])), Err(ControlError::Version(-1)));
    }
}
