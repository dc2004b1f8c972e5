//! Records out of a fetch response. Source: `CompletedFetch`.

use std::collections::{BinaryHeap, HashSet};

use bytes::Bytes;
use common::{
    ids::{Offset, ProducerId, Timestamp},
    topic::TopicPartition,
};
use kafka_protocol::messages::fetch_response::PartitionData;
use record::{
    batch::{Batch, Batches},
    control::{TransactionResult, marker_of},
    records::records,
    view::RecordView,
};

use crate::{
    consumer::ConsumerRecord,
    error::{ClientError, ErrorKind},
};

/// Largest batch after decompression.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// How records are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) read_committed: bool,
    pub(crate) check_crcs: bool,
}

/// A partition's part of a response, read.
pub(crate) struct FetchedRecords {
    pub(crate) records: Vec<ConsumerRecord>,
    /// Where the next fetch goes on: past control batches and what was left out as well.
    pub(crate) next: Offset,
}

/// Reads the whole batches from `position` on.
pub(crate) fn read(
    partition: &TopicPartition,
    position: Offset,
    data: &PartitionData,
    reading: Reading,
) -> Result<FetchedRecords, ClientError> {
    let mut fetched = FetchedRecords { records: Vec::new(), next: position };
    let bytes = data.records.clone().unwrap_or_default();
    let mut aborted = Aborted::new(data);
    for batch in Batches::new(&bytes) {
        let batch = batch.map_err(|error| unreadable(partition, &error))?;
        if reading.check_crcs && !batch.header.crc_matches(batch.bytes) {
            let text = format!(
                "Record is corrupt (stored crc = {}, computed crc = {})",
                batch.header.crc,
                batch.header.compute_crc(batch.bytes)
            );
            return Err(unreadable(partition, &text));
        }
        let is_hidden = reading.read_committed && aborted.hides(&batch);
        if !batch.header.is_control && !is_hidden && batch.header.last_offset >= position {
            read_batch(partition, position, &batch, &mut fetched.records)?;
        }
        fetched.next = fetched.next.max(batch.header.last_offset.plus(1));
    }
    Ok(fetched)
}

fn read_batch(
    partition: &TopicPartition,
    position: Offset,
    batch: &Batch<'_>,
    into: &mut Vec<ConsumerRecord>,
) -> Result<(), ClientError> {
    let content =
        records(batch.bytes, BATCH_BYTES_MAX).map_err(|error| unreadable(partition, &error))?;
    for record in content.iter() {
        let record = record.map_err(|error| unreadable(partition, &error))?;
        if record.offset >= position {
            into.push(owned(partition, batch, &record));
        }
    }
    Ok(())
}

fn owned(partition: &TopicPartition, batch: &Batch<'_>, record: &RecordView<'_>) -> ConsumerRecord {
    let headers = record.headers.iter().map(|header| {
        let name = String::from_utf8_lossy(header.name).into_owned();
        (name, header.value.map(Bytes::copy_from_slice))
    });
    ConsumerRecord {
        partition: partition.clone(),
        offset: record.offset,
        leader_epoch: batch.header.leader_epoch,
        timestamp: record.timestamp,
        timestamp_type: batch.header.timestamp_type.filter(|_| record.timestamp != Timestamp::NONE),
        key: record.key.map(Bytes::copy_from_slice),
        value: record.value.map(Bytes::copy_from_slice),
        headers: headers.collect(),
    }
}

fn unreadable(partition: &TopicPartition, cause: &dyn std::fmt::Display) -> ClientError {
    ClientError::new(
        ErrorKind::Kafka,
        format!(
            "Received exception when fetching the next record from {partition}. If needed, please seek past the record to continue consumption. Cause: {cause}"
        ),
    )
}

/// Producers whose transactions are aborted at the place that is read.
struct Aborted {
    /// First offsets of aborted transactions still ahead, the nearest on top.
    ahead: BinaryHeap<std::cmp::Reverse<(Offset, i64)>>,
    open: HashSet<ProducerId>,
}

impl Aborted {
    fn new(data: &PartitionData) -> Aborted {
        let listed = data.aborted_transactions.iter().flatten();
        let ahead = listed.map(|transaction| {
            std::cmp::Reverse((Offset(transaction.first_offset), transaction.producer_id.0))
        });
        Aborted { ahead: ahead.collect(), open: HashSet::new() }
    }

    /// Whether the batch belongs to an aborted transaction. Batches come in order.
    fn hides(&mut self, batch: &Batch<'_>) -> bool {
        while let Some(std::cmp::Reverse((first, producer))) = self.ahead.peek() {
            if *first > batch.header.last_offset {
                break;
            }
            self.open.insert(ProducerId(*producer));
            self.ahead.pop();
        }
        if batch.header.is_control {
            let marker = marker_of(batch.bytes).ok().flatten();
            if marker.is_some_and(|marker| marker.result == TransactionResult::Abort) {
                self.open.remove(&batch.header.producer_id);
            }
            return true;
        }
        batch.header.is_transactional && self.open.contains(&batch.header.producer_id)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use common::{
        ids::{Offset, ProducerEpoch, ProducerId, Timestamp},
        topic::TopicPartition,
    };
    use kafka_protocol::messages::fetch_response::{AbortedTransaction, PartitionData};
    use record::{
        build::BatchBuilder,
        compression::Compression,
        control::{EndTransactionMarker, TransactionResult, marker_batch},
    };

    use super::{Reading, read};

    const READING: Reading = Reading { read_committed: true, check_crcs: true };

    fn batch(base_offset: i64, producer: i64, values: &[&str]) -> Bytes {
        let mut builder = BatchBuilder::new(Compression::Snappy).base_offset(Offset(base_offset));
        if producer >= 0 {
            builder = builder.producer(ProducerId(producer), ProducerEpoch(0), 0).transactional();
        }
        for value in values {
            builder.append(Timestamp(5), None, Some(value.as_bytes()), &[]).unwrap();
        }
        builder.finish()
    }

    fn data(batches: &[Bytes]) -> PartitionData {
        PartitionData::default().with_records(Some(batches.concat().into()))
    }

    fn values(position: i64, data: &PartitionData, reading: Reading) -> (Vec<String>, i64) {
        let partition = TopicPartition::new("t", 0);
        let fetched = read(&partition, Offset(position), data, reading).unwrap();
        let text = |bytes: Option<Bytes>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
        (fetched.records.into_iter().map(|record| text(record.value)).collect(), fetched.next.0)
    }

    #[test]
    fn reading_begins_in_the_middle_of_a_batch() {
        let data = data(&[batch(0, -1, &["a", "b", "c"]), batch(3, -1, &["d"])]);
        assert_eq!(values(1, &data, READING), (vec!["b".into(), "c".into(), "d".into()], 4));
    }

    #[test]
    fn aborted_transactions_are_left_out_until_their_marker() {
        let marker =
            EndTransactionMarker { result: TransactionResult::Abort, coordinator_epoch: 0 };
        let abort = marker_batch(ProducerId(1), ProducerEpoch(0), Timestamp(5), marker);
        // The offset stands first, and is not under the checksum.
        let abort = Bytes::from([&3_i64.to_be_bytes()[..], &abort[8..]].concat());
        let batches = [
            batch(0, 1, &["aborted"]),
            batch(1, 2, &["committed"]),
            batch(2, 1, &["aborted too"]),
            abort,
            batch(4, 1, &["after"]),
        ];
        let aborted = AbortedTransaction::default().with_producer_id(1.into()).with_first_offset(0);
        let data = data(&batches).with_aborted_transactions(Some(vec![aborted]));
        let committed = (vec!["committed".to_owned(), "after".to_owned()], 5);
        assert_eq!(values(0, &data, READING), committed);
        let all = Reading { read_committed: false, ..READING };
        assert_eq!(values(0, &data, all).0.len(), 4);
    }

    #[test]
    fn a_flipped_bit_is_found_unless_nobody_looks() {
        let mut bytes = batch(0, -1, &["value"]).to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let data = PartitionData::default().with_records(Some(bytes.into()));
        let partition = TopicPartition::new("t", 0);
        let error = read(&partition, Offset(0), &data, READING).err().unwrap();
        assert!(error.to_string().contains("Record is corrupt (stored crc = "), "{error}");
    }
}
