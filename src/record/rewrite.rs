//! Writes entries of a log anew with some of their records, as compaction does.
//!
//! What was said of the whole entry stays: offsets, epochs, producer, sequences, codec. Source: `MemoryRecords.filterTo`.

use bytes::Bytes;
use common::ids::Timestamp;

use crate::batch::{Attributes, BATCH_HEADER_LENGTH, BatchError, BatchHeader, TimestampType};
use crate::build::{BatchBuilder, BuildError, seal};
use crate::compression::{Codec, Compression};
use crate::convert::{OldFormat, write_messages};
use crate::entry::EntryHeader;
use crate::records::{Records, RecordsError};

/// Why an entry cannot be written anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// It is no entry, or not of a format that has what was asked for.
    #[error("{0}")]
    Batch(BatchError),
    /// Its records cannot be read.
    #[error("{0}")]
    Records(RecordsError),
    /// Its records are not such as a batch may hold: offsets that do not rise, a negative timestamp.
    #[error("{0}")]
    Build(BuildError),
}

/// The entry with those of its `records` that `is_kept` names by their place; at least one.
///
/// `delete_horizon` is the time from which tombstones may go; only magic 2 can hold it. The entry may become larger than
/// it was: the horizon takes the place of the timestamp that the records count from.
pub fn rewrite(
    entry: &[u8],
    records: &Records,
    is_kept: &dyn Fn(usize) -> bool,
    delete_horizon: Option<Timestamp>,
) -> Result<Bytes, RewriteError> {
    let header = EntryHeader::parse(entry).map_err(RewriteError::Batch)?;
    let kept = records.iter().enumerate().filter(|(index, _)| is_kept(*index));
    let kept = kept.map(|(_, record)| record);
    let old = match header.magic {
        0 => OldFormat::Magic0,
        1 => OldFormat::Magic1,
        _ => {
            let header = BatchHeader::parse(entry).map_err(RewriteError::Batch)?;
            let mut builder = builder_like(&header, delete_horizon);
            for record in kept {
                let record = record.map_err(RewriteError::Records)?;
                let delta = record.offset.0.wrapping_sub(header.base_offset.0);
                let headers = record.headers.iter();
                builder
                    .append_at(delta, record.timestamp, record.key, record.value, headers)
                    .map_err(RewriteError::Build)?;
            }
            return Ok(builder.finish_at(header.last_offset_delta));
        }
    };
    let mut written = Vec::with_capacity(entry.len());
    write_messages(&header, old, kept, usize::MAX, &mut written).map_err(RewriteError::Records)?;
    Ok(written.into())
}

fn builder_like(header: &BatchHeader, delete_horizon: Option<Timestamp>) -> BatchBuilder {
    let attributes = header.attributes;
    let codec = attributes.codec().unwrap_or(Codec::None);
    let mut builder = BatchBuilder::new(Compression::of(codec))
        .base_offset(header.base_offset)
        .leader_epoch(header.leader_epoch)
        .producer(header.producer_id, header.producer_epoch, header.base_sequence);
    if attributes.is_transactional() {
        builder = builder.transactional();
    }
    if attributes.is_control() {
        builder = builder.control();
    }
    if attributes.timestamp_type() == TimestampType::LogAppendTime {
        builder = builder.log_append_time(header.max_timestamp);
    }
    match delete_horizon {
        Some(horizon) => builder.delete_horizon(horizon),
        None => builder,
    }
}

/// The batch without its records: only its header, which tells of its producer's last sequence. Magic 2 alone.
/// Source: `DefaultRecordBatch.writeEmptyHeader`.
pub fn emptied(batch: &[u8]) -> Result<[u8; BATCH_HEADER_LENGTH], RewriteError> {
    let header = BatchHeader::parse(batch).map_err(RewriteError::Batch)?;
    let attributes = Attributes::NONE
        .with_timestamp_type(header.attributes.timestamp_type())
        .with_transactional(header.attributes.is_transactional())
        .with_control(header.attributes.is_control());
    let mut emptied =
        BatchHeader { attributes, base_timestamp: Timestamp::NONE, record_count: 0, ..header };
    seal(&mut emptied, &[]);
    Ok(emptied.to_bytes())
}

#[cfg(test)]
mod tests {
    use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

    use super::*;
    use crate::convert::down_convert;
    use crate::records::records;

    const CAP: usize = 1 << 20;

    fn batch(compression: Compression) -> Bytes {
        let mut builder = BatchBuilder::new(compression)
            .base_offset(Offset(100))
            .leader_epoch(LeaderEpoch(4))
            .producer(ProducerId(7), ProducerEpoch(1), 20);
        for number in 0..5_u8 {
            let value = [number; 9];
            let value = (number != 3).then_some(&value[..]);
            let timestamp = Timestamp(1000 - i64::from(number));
            builder.append(timestamp, Some(&[number]), value, &[]).unwrap();
        }
        builder.finish()
    }

    fn offsets(entry: &[u8]) -> Vec<(i64, i64)> {
        let records = records(entry, CAP).unwrap();
        let pair = |record: Result<crate::view::RecordView, _>| {
            let record = record.unwrap();
            (record.offset.0, record.timestamp.0)
        };
        records.iter().map(pair).collect()
    }

    #[test]
    fn kept_records_keep_their_offsets_and_the_batch_its_ends() {
        for compression in [Compression::None, Compression::Gzip(-1), Compression::Zstd(3)] {
            let batch = batch(compression);
            let read = records(&batch, CAP).unwrap();
            let horizon = Timestamp(5_000_000);
            let written = rewrite(&batch, &read, &|index| index % 2 == 1, Some(horizon)).unwrap();
            let header = BatchHeader::parse(&written).unwrap();
            assert!(EntryHeader::parse(&written).unwrap().crc_matches(&written));
            assert_eq!(offsets(&written), [(101, 999), (103, 997)]);
            assert_eq!((header.base_offset, header.last_offset()), (Offset(100), Offset(104)));
            assert_eq!((header.base_sequence, header.last_sequence()), (20, 24));
            assert_eq!((header.leader_epoch, header.max_timestamp.0), (LeaderEpoch(4), 999));
            assert_eq!(header.delete_horizon(), Some(horizon));
            assert_eq!(header.attributes.codec(), Some(compression.codec()));
        }
    }

    #[test]
    fn an_emptied_batch_remembers_its_producer() {
        let batch = batch(Compression::Zstd(3));
        let emptied = emptied(&batch).unwrap();
        let header = BatchHeader::parse(&emptied).unwrap();
        assert!(EntryHeader::parse(&emptied).unwrap().crc_matches(&emptied));
        assert_eq!((header.record_count, header.last_sequence()), (0, 24));
        assert_eq!((header.last_offset(), header.max_timestamp.0), (Offset(104), 1000));
        assert_eq!((header.base_timestamp, header.attributes), (Timestamp::NONE, Attributes(0)));
    }

    #[test]
    fn messages_of_old_formats_keep_their_offsets() {
        for codec in [Compression::Gzip(-1), Compression::Snappy, Compression::Lz4(9)] {
            for to in [OldFormat::Magic0, OldFormat::Magic1] {
                let old = down_convert(&batch(codec), to, Offset(0), CAP).unwrap();
                let read = records(&old, CAP).unwrap();
                let written = rewrite(&old, &read, &|index| index > 0 && index < 4, None).unwrap();
                assert!(EntryHeader::parse(&written).unwrap().crc_matches(&written));
                let kept: Vec<i64> = offsets(&written).iter().map(|pair| pair.0).collect();
                assert_eq!(kept, [101, 102, 103], "{codec:?} {to:?}");
            }
        }
    }
}
