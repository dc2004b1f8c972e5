//! `<offset>.snapshot`: the producers of a log as they were at an offset. Source: `ProducerStateManager.readSnapshot`.

use common::ids::{Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::producer_state::{BatchMetadata, Producer};

const VERSION: i16 = 1;
const HEADER_LENGTH: usize = 10;
const ENTRY_LENGTH: usize = 46;
/// Where the part that the checksum covers begins.
const CHECKED_FROM: usize = 6;

/// Why a snapshot cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Another version than 1.
    #[error("snapshot contained an unknown file version {0}")]
    Version(i16),
    /// The checksum is not that of the content.
    #[error("snapshot is corrupt (CRC is no longer valid): stored {stored}, computed {computed}")]
    Checksum {
        /// What the file says.
        stored: u32,
        /// What its content gives.
        computed: u32,
    },
    /// Fewer bytes than its entries need.
    #[error("snapshot is cut off")]
    Short,
}

/// One entry of a snapshot, as it stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Whose entry it is.
    pub producer_id: ProducerId,
    /// The producer's epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of its last record; -1 where none is known.
    pub last_sequence: i32,
    /// Offset of its last data record; -1 where none is known.
    pub last_offset: Offset,
    /// Last minus first offset of its last batch.
    pub offset_delta: i32,
    /// Of its last batch or marker.
    pub timestamp: Timestamp,
    /// Of the coordinator that wrote its last marker; -1 for none.
    pub coordinator_epoch: i32,
    /// Where its open transaction began; -1 for none.
    pub current_transaction_first_offset: Offset,
}

/// Decodes a file; the checksum is checked first.
pub fn decode(bytes: &[u8]) -> Result<Vec<SnapshotEntry>, SnapshotError> {
    let header = bytes.get(..HEADER_LENGTH).ok_or(SnapshotError::Short)?;
    let version = i16::from_be_bytes(array(header, 0));
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let stored = u32::from_be_bytes(array(header, 2));
    let computed = crc32c::crc32c(&bytes[CHECKED_FROM..]);
    if stored != computed {
        return Err(SnapshotError::Checksum { stored, computed });
    }
    let count =
        usize::try_from(i32::from_be_bytes(array(header, 6))).map_err(|_| SnapshotError::Short)?;
    let (entries, _) = bytes[HEADER_LENGTH..].as_chunks::<ENTRY_LENGTH>();
    let entries = entries.get(..count).ok_or(SnapshotError::Short)?;
    Ok(entries.iter().map(decode_entry).collect())
}

fn decode_entry(entry: &[u8; ENTRY_LENGTH]) -> SnapshotEntry {
    SnapshotEntry {
        producer_id: ProducerId(i64::from_be_bytes(array(entry, 0))),
        epoch: ProducerEpoch(i16::from_be_bytes(array(entry, 8))),
        last_sequence: i32::from_be_bytes(array(entry, 10)),
        last_offset: Offset(i64::from_be_bytes(array(entry, 14))),
        offset_delta: i32::from_be_bytes(array(entry, 22)),
        timestamp: Timestamp(i64::from_be_bytes(array(entry, 26))),
        coordinator_epoch: i32::from_be_bytes(array(entry, 34)),
        current_transaction_first_offset: Offset(i64::from_be_bytes(array(entry, 38))),
    }
}

fn array<const LENGTH: usize>(bytes: &[u8], at: usize) -> [u8; LENGTH] {
    bytes[at..at + LENGTH].try_into().expect("the slice has the array's length")
}

/// Encodes producers; only the newest batch of each is kept.
pub(crate) fn encode<'a>(producers: impl Iterator<Item = (ProducerId, &'a Producer)>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LENGTH];
    let mut count = 0i32;
    for (producer_id, producer) in producers {
        let delta = producer.batches.back().map_or(0, |batch| batch.offset_delta);
        bytes.extend_from_slice(&producer_id.0.to_be_bytes());
        bytes.extend_from_slice(&producer.epoch.0.to_be_bytes());
        bytes.extend_from_slice(&producer.last_sequence().to_be_bytes());
        bytes.extend_from_slice(&producer.last_data_offset().0.to_be_bytes());
        bytes.extend_from_slice(&delta.to_be_bytes());
        bytes.extend_from_slice(&producer.last_timestamp.0.to_be_bytes());
        bytes.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
        let transaction_start = producer.transaction_start.unwrap_or(Offset::NONE);
        bytes.extend_from_slice(&transaction_start.0.to_be_bytes());
        count += 1;
    }
    bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
    bytes[6..10].copy_from_slice(&count.to_be_bytes());
    let checksum = crc32c::crc32c(&bytes[CHECKED_FROM..]);
    bytes[2..6].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// The producer that an entry describes.
pub(crate) fn producer(entry: &SnapshotEntry) -> Producer {
    let batch = BatchMetadata {
        last_sequence: entry.last_sequence,
        last_offset: entry.last_offset,
        offset_delta: entry.offset_delta,
        timestamp: entry.timestamp,
    };
    let start = entry.current_transaction_first_offset;
    Producer {
        epoch: entry.epoch,
        coordinator_epoch: entry.coordinator_epoch,
        last_timestamp: entry.timestamp,
        transaction_start: (start.0 >= 0).then_some(start),
        batches: (entry.last_offset.0 >= 0).then_some(batch).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{ProducerId, SnapshotError, decode, encode, producer};

    /// Written by Kafka 3.9.1: `golden/logs/killed/data/idem-0/00000000000000000006.snapshot`.
    const KAFKAS: &[u8] =
        include_bytes!("../../tests/golden/logs/killed/data/idem-0/00000000000000000006.snapshot");

    #[test]
    fn kafkas_snapshot_is_read_and_written_again() {
        let entries = decode(KAFKAS).unwrap();
        let entry = entries[0];
        assert_eq!(
            (entry.producer_id, entry.last_sequence, entry.offset_delta),
            (ProducerId(0), 5, 1)
        );
        let loaded = producer(&entry);
        assert_eq!(encode([(entry.producer_id, &loaded)].into_iter()), KAFKAS);
        assert_eq!(loaded.batches[0].first_offset().0, 4);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        for length in 0..KAFKAS.len() {
            assert!(decode(&KAFKAS[..length]).is_err());
        }
        for position in 0..KAFKAS.len() * 8 {
            let mut bytes = KAFKAS.to_vec();
            bytes[position / 8] ^= 1 << (position % 8);
            assert!(decode(&bytes).is_err());
        }
        let lying = [&[0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff][..]].concat();
        assert!(matches!(decode(&lying), Err(SnapshotError::Checksum { .. })));
    }
}
