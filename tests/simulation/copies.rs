//! What the replicas hold, record by record, as their files tell. It is read once: what a log cuts off is forgotten here,
//! too.

use std::{collections::BTreeMap, fs, path::Path};

use common::ids::{BrokerId, LeaderEpoch, Offset, ProducerId};
use record::{
    batch::{Batch, Batches},
    control::{TransactionResult, parse_marker},
    records,
};

use crate::{replica::bytes_of, world::World};

/// Bytes that a batch may have.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A record as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The epoch of the leader that appended it.
    pub epoch: LeaderEpoch,
    /// Its producer.
    pub producer: ProducerId,
    /// Whether it is of a transaction.
    pub is_transactional: bool,
    /// What it is.
    pub content: Content,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A client's value.
    Value(u64),
    /// The end of a producer's transaction, and the epoch of the coordinator that says so.
    Marker(TransactionResult, i32),
}

/// The logs of all replicas.
#[derive(Default)]
pub struct Copies {
    /// The records from offset 0 on.
    pub records: BTreeMap<(BrokerId, i32), Vec<Stored>>,
}

/// The records of whole batches with right checksums, with their offsets.
pub fn parse(bytes: &[u8]) -> Vec<(Offset, Stored)> {
    let mut found = Vec::new();
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { break };
        if !batch.header.crc_matches(batch.bytes) {
            break;
        }
        add(&batch, &mut found);
    }
    found
}

fn add(batch: &Batch<'_>, found: &mut Vec<(Offset, Stored)>) {
    let header = record::batch::BatchHeader::parse(batch.bytes).expect("a batch of magic 2");
    let records = records::records(batch.bytes, BATCH_BYTES_MAX).expect("a batch that was checked");
    for record in records.iter() {
        let record = record.expect("a batch that was checked");
        let content = match header.attributes.is_control() {
            true => {
                let marker = parse_marker(&record).expect("a control record");
                let marker = marker.expect("a marker");
                Content::Marker(marker.result, marker.coordinator_epoch)
            }
            false => {
                let value = record.value.and_then(|value| value.try_into().ok());
                Content::Value(u64::from_be_bytes(value.expect("a value of a simulated client")))
            }
        };
        let stored = Stored {
            epoch: header.leader_epoch,
            producer: header.producer_id,
            is_transactional: header.attributes.is_transactional(),
            content,
        };
        found.push((record.offset, stored));
    }
}

impl World {
    /// Reads what a running broker's log has beyond what was read of it.
    pub fn read_copy(&mut self, id: BrokerId, partition: i32) {
        let Some(process) = &self.brokers[&id].process else { return };
        let hosted = process.replicas.get(&partition).map(|replica| replica.log.clone());
        let Some(log) = hosted.or_else(|| process.log(partition)) else { return };
        if log.log_directory().is_offline() {
            return;
        }
        let copy = self.invariants.copies.records.entry((id, partition)).or_default();
        let end = log.end_offset();
        while (copy.len() as i64) < end.0 {
            let from = Offset(copy.len() as i64);
            let read = log.read(from, BATCH_BYTES_MAX, true, end).expect("a log can be read");
            let before = copy.len();
            for (offset, stored) in parse(&bytes_of(&read.regions)) {
                if offset.0 >= from.0 {
                    copy.push(stored);
                }
            }
            assert!(copy.len() > before, "a log below its end has records");
        }
    }

    /// A log was cut, or begun anew.
    pub fn log_was_cut(&mut self, id: BrokerId, partition: i32, end: Offset) {
        self.forget_from(id, partition, end);
        let broker = self.brokers.get_mut(&id).expect("brokers do not vanish");
        let path = broker.log_path(partition);
        if let Some(disk) = broker.disk.get_mut(&partition) {
            let sizes = crate::broker::segment_sizes(&path);
            disk.synced.retain(|path, size| match sizes.get(path) {
                Some(now) => {
                    *size = (*size).min(*now);
                    true
                }
                None => false,
            });
        }
    }

    /// What was read of a replica from an offset on is there no more.
    pub fn forget_from(&mut self, id: BrokerId, partition: i32, end: Offset) {
        let keep = usize::try_from(end.0).unwrap_or(0);
        if let Some(copy) = self.invariants.copies.records.get_mut(&(id, partition)) {
            copy.truncate(keep);
        }
        self.invariants.replicas.forget_from(id, partition, keep);
    }

    /// A broker has opened its logs: they are read anew.
    pub fn logs_were_opened(&mut self, id: BrokerId) {
        for partition in self.partitions.clone() {
            if self.process(id).log(partition).is_none() {
                continue;
            }
            let before = self.copy(id, partition).len();
            self.forget_from(id, partition, Offset::ZERO);
            self.read_copy(id, partition);
            let now = self.copy(id, partition).len();
            if now < before {
                self.note(format_args!("broker {id} has lost {partition} from {now} to {before}"));
            }
        }
    }

    /// What a replica holds, as it was read last.
    pub fn copy(&self, id: BrokerId, partition: i32) -> &[Stored] {
        self.invariants.copies.records.get(&(id, partition)).map_or(&[], Vec::as_slice)
    }
}

/// How many records the segments of a folder hold.
pub fn count_records(path: &Path) -> usize {
    let sizes = crate::broker::segment_sizes(path);
    let mut count = 0;
    for path in sizes.keys() {
        let bytes = fs::read(path).expect("a segment can be read");
        let found = parse(&bytes);
        let base = found.first().map_or(count as i64, |(offset, _)| offset.0);
        if base != count as i64 {
            break;
        }
        count += found.len();
    }
    count
}
