//! What a log knows of the producers that write to it: their last batches, and their transactions.
//! Source: `ProducerStateManager`, `ProducerAppendInfo`.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use common::ids::{Offset, ProducerEpoch, ProducerId, Timestamp};

use crate::{
    producer_limit::{ProducerCount, Share},
    transaction_index::AbortedTransaction,
};

/// Batches remembered per producer: as many as a client may have in flight. Source: `ProducerStateEntry`.
const BATCHES_RETAINED: usize = 5;

/// A batch of a producer that is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchMetadata {
    pub(crate) last_sequence: i32,
    pub(crate) last_offset: Offset,
    pub(crate) offset_delta: i32,
    pub(crate) timestamp: Timestamp,
}

impl BatchMetadata {
    pub(crate) fn first_offset(self) -> Offset {
        Offset(self.last_offset.0 - i64::from(self.offset_delta))
    }

    fn first_sequence(self) -> i32 {
        sequence_minus(self.last_sequence, self.offset_delta)
    }
}

/// Sequences wrap to 0 after 2^31 - 1. Source: `DefaultRecordBatch.decrementSequence`.
fn sequence_minus(sequence: i32, decrement: i32) -> i32 {
    if sequence >= decrement { sequence - decrement } else { i32::MAX - (decrement - sequence) + 1 }
}

/// Sequences wrap to 0 after 2^31 - 1. Source: `DefaultRecordBatch.incrementSequence`.
pub(crate) fn sequence_plus(sequence: i32, increment: i32) -> i32 {
    if sequence > i32::MAX - increment {
        increment - (i32::MAX - sequence) - 1
    } else {
        sequence + increment
    }
}

/// One producer as the log knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Its epoch; -1 where none is known.
    pub epoch: ProducerEpoch,
    /// Of the transaction coordinator that wrote its last marker; -1 where there is none.
    pub coordinator_epoch: i32,
    /// Of its last batch or marker.
    pub last_timestamp: Timestamp,
    /// Where its open transaction began.
    pub transaction_start: Option<Offset>,
    pub(crate) batches: VecDeque<BatchMetadata>,
}

impl Producer {
    fn unknown() -> Producer {
        Producer {
            epoch: ProducerEpoch::NONE,
            coordinator_epoch: -1,
            last_timestamp: Timestamp::NONE,
            transaction_start: None,
            batches: VecDeque::new(),
        }
    }

    /// The sequence number of its last record; -1 where none is known.
    pub fn last_sequence(&self) -> i32 {
        self.batches.back().map_or(-1, |batch| batch.last_sequence)
    }

    /// The offset of its last data record; -1 where none is known.
    pub fn last_data_offset(&self) -> Offset {
        self.batches.back().map_or(Offset::NONE, |batch| batch.last_offset)
    }

    fn set_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.batches.clear();
            self.epoch = epoch;
        }
    }

    fn add_batch(&mut self, batch: BatchMetadata) {
        if self.batches.len() == BATCHES_RETAINED {
            self.batches.pop_front();
        }
        self.batches.push_back(batch);
    }
}

/// A transaction that is open in a log, as it stood at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Whose it is.
    pub producer_id: ProducerId,
    /// That producer's epoch.
    pub producer_epoch: ProducerEpoch,
    /// Of the transaction coordinator that wrote its last marker; -1 where there is none.
    pub coordinator_epoch: i32,
    /// Where it began.
    pub first_offset: Offset,
    /// Its last record.
    pub last_offset: Offset,
}

/// Why an append is refused for the sake of its producer. `Display` is Kafka's text, without the partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    /// INVALID_PRODUCER_EPOCH.
    #[error(
        "Epoch of producer {producer_id} at offset {offset} is {epoch}, which is smaller than the last seen epoch {current}"
    )]
    InvalidEpoch {
        /// Whose batch it is.
        producer_id: ProducerId,
        /// Where it would have been appended.
        offset: Offset,
        /// The batch's epoch.
        epoch: ProducerEpoch,
        /// The epoch the log knows.
        current: ProducerEpoch,
    },
    /// OUT_OF_ORDER_SEQUENCE_NUMBER.
    #[error(
        "Out of order sequence number for producer {producer_id} at offset {offset}: {sequence} (incoming seq. number), {current} (current end sequence number)"
    )]
    OutOfOrderSequence {
        /// Whose batch it is.
        producer_id: ProducerId,
        /// Where it would have been appended.
        offset: Offset,
        /// The batch's first sequence.
        sequence: i32,
        /// The last sequence the log knows.
        current: i32,
    },
    /// OUT_OF_ORDER_SEQUENCE_NUMBER: a new epoch begins with sequence 0.
    #[error(
        "Invalid sequence number for new epoch of producer {producer_id} at offset {offset}: {epoch} (request epoch), {sequence} (seq. number), {current} (current producer epoch)"
    )]
    NewEpochSequence {
        /// Whose batch it is.
        producer_id: ProducerId,
        /// Where it would have been appended.
        offset: Offset,
        /// The batch's epoch.
        epoch: ProducerEpoch,
        /// The batch's first sequence.
        sequence: i32,
        /// The epoch the log knows.
        current: ProducerEpoch,
    },
    /// INVALID_TXN_STATE: a plain batch while a transaction of its producer is open.
    #[error("Expected transactional write from producer {producer_id} at offset {offset}")]
    ExpectedTransactional {
        /// Whose batch it is.
        producer_id: ProducerId,
        /// Where it would have been appended.
        offset: Offset,
    },
    /// INVALID_TXN_STATE: nobody has verified that the log is part of the transaction, or it has ended since.
    #[error("Record was not part of an ongoing transaction")]
    NotVerified,
    /// OUT_OF_ORDER_SEQUENCE_NUMBER: a batch before it waits for its verification.
    #[error(
        "Out of order sequence number for producer {producer_id} at offset {offset}: {sequence} (incoming seq. number), {lowest} (earliest seen sequence)"
    )]
    EarlierSequenceWaits {
        /// Whose batch it is.
        producer_id: ProducerId,
        /// Where it would have been appended.
        offset: Offset,
        /// The batch's first sequence.
        sequence: i32,
        /// The first sequence that has to come before.
        lowest: i32,
    },
    /// INVALID_TXN_STATE: the transaction that was to be aborted has ended, or its producer wrote more, meanwhile.
    #[error("The transaction of producer {0} is not as it was")]
    TransactionMoved(ProducerId),
    /// TRANSACTION_COORDINATOR_FENCED.
    #[error(
        "Invalid coordinator epoch for producerId {producer_id} at offset {offset}: {epoch} (zombie), {current} (current)"
    )]
    CoordinatorFenced {
        /// Whose marker it is.
        producer_id: ProducerId,
        /// Where it would have been appended.
        offset: Offset,
        /// The marker's coordinator epoch.
        epoch: i32,
        /// The coordinator epoch the log knows.
        current: i32,
    },
}

/// Who wrote a batch, which decides how much of it is checked. Source: `AppendOrigin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A producer: epochs, sequences.
    Client,
    /// A transaction coordinator, and group coordinators: epochs.
    Coordinator,
    /// A leader, or the log itself at recovery: nothing, for it was checked before.
    Replication,
}

/// The part of a batch that concerns its producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProducerBatch {
    pub(crate) producer_id: ProducerId,
    pub(crate) epoch: ProducerEpoch,
    pub(crate) base_sequence: i32,
    pub(crate) base_offset: Offset,
    pub(crate) last_offset: Offset,
    /// Of a marker: its record's timestamp.
    pub(crate) max_timestamp: Timestamp,
    pub(crate) transactional: bool,
    pub(crate) marker: Option<Marker>,
}

/// The record of a control batch that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) abort: bool,
    pub(crate) coordinator_epoch: i32,
}

/// A transaction that a marker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CompletedTransaction {
    producer_id: ProducerId,
    first_offset: Offset,
    /// Of the marker.
    last_offset: Offset,
    aborted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transaction {
    producer_id: ProducerId,
    /// Of the marker, once there is one.
    last_offset: Offset,
}

/// The producers of one log. Nothing is allocated until the first one. Owned by the log, under its lock.
#[derive(Debug, Default)]
pub(crate) struct ProducerStates {
    table: Option<Box<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    producers: HashMap<ProducerId, Producer>,
    /// Open ones, by first offset.
    ongoing: BTreeMap<Offset, Transaction>,
    /// Ended ones whose marker the high watermark has not passed.
    unreplicated: BTreeMap<Offset, Transaction>,
    /// What it counts in the broker, once it is in use.
    share: Option<Share>,
}

impl ProducerStates {
    pub(crate) fn len(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.producers.len())
    }

    /// Keeps the broker's count right. Whether the log has more of them than at the last call.
    pub(crate) fn count_in(&mut self, count: &Arc<ProducerCount>) -> bool {
        let Some(table) = &mut self.table else { return false };
        let now = table.producers.len();
        table.share.get_or_insert_with(|| Share::new(count)).set(now)
    }

    pub(crate) fn get(&self, producer_id: ProducerId) -> Option<&Producer> {
        self.table.as_ref()?.producers.get(&producer_id)
    }

    pub(crate) fn has_open_transaction(&self, producer_id: ProducerId) -> bool {
        self.get(producer_id).is_some_and(|producer| producer.transaction_start.is_some())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ProducerId, &Producer)> {
        self.table
            .iter()
            .flat_map(|table| table.producers.iter().map(|(id, producer)| (*id, producer)))
    }

    /// The batch in the log that is this very one, sent again. Source: `ProducerStateEntry.findDuplicateBatch`.
    pub(crate) fn find_duplicate(&self, batch: &ProducerBatch) -> Option<BatchMetadata> {
        let producer = self.get(batch.producer_id)?;
        if producer.epoch != batch.epoch || batch.marker.is_some() {
            return None;
        }
        let count = i32::try_from(batch.last_offset.0 - batch.base_offset.0).ok()?;
        let last_sequence = sequence_plus(batch.base_sequence, count);
        producer.batches.iter().copied().find(|known| {
            known.first_sequence() == batch.base_sequence && known.last_sequence == last_sequence
        })
    }

    /// Whether the batch may follow what the log knows of its producer. Changes nothing. `lowest_sequence` is of a
    /// verification that is under way; it counts where the log knows no sequence, and would take any.
    pub(crate) fn check(
        &self,
        batch: &ProducerBatch,
        origin: Origin,
        lowest_sequence: Option<i32>,
    ) -> Result<(), ProducerError> {
        let producer_id = batch.producer_id;
        let offset = batch.base_offset;
        if origin == Origin::Replication {
            return Ok(());
        }
        let known = self.get(producer_id);
        let current = known.map_or(ProducerEpoch::NONE, |producer| producer.epoch);
        if batch.epoch < current {
            return Err(ProducerError::InvalidEpoch {
                producer_id,
                offset,
                epoch: batch.epoch,
                current,
            });
        }
        // Where the log knows the last sequence it needs no other, and one that is lower is of a batch that comes late: it
        // must not hold up what follows, as it does in Kafka.
        let knows_last =
            known.is_some_and(|one| one.epoch == batch.epoch && !one.batches.is_empty());
        if let Some(lowest) = lowest_sequence.filter(|_| !knows_last)
            && origin == Origin::Client
            && batch.marker.is_none()
            && batch.base_sequence > lowest
        {
            let sequence = batch.base_sequence;
            return Err(ProducerError::EarlierSequenceWaits {
                producer_id,
                offset,
                sequence,
                lowest,
            });
        }
        if let Some(marker) = batch.marker {
            // That none is known is an epoch as well: Kafka's -1.
            let current = known.map_or(-1, |producer| producer.coordinator_epoch);
            if marker.coordinator_epoch < current {
                return Err(ProducerError::CoordinatorFenced {
                    producer_id,
                    offset,
                    epoch: marker.coordinator_epoch,
                    current,
                });
            }
            return Ok(());
        }
        let Some(producer) = known else { return Ok(()) };
        if origin == Origin::Client {
            check_sequence(producer, batch)?;
        }
        if producer.transaction_start.is_some() && !batch.transactional {
            return Err(ProducerError::ExpectedTransactional { producer_id, offset });
        }
        Ok(())
    }

    /// Takes in a batch that is in the log now. The transaction that it ended by an abort is added to `aborted`.
    pub(crate) fn add(&mut self, batch: &ProducerBatch, aborted: &mut Vec<AbortedTransaction>) {
        let Some(completed) = self.apply(batch) else { return };
        if completed.aborted {
            aborted.push(AbortedTransaction {
                producer_id: completed.producer_id,
                first_offset: completed.first_offset,
                last_offset: completed.last_offset,
                last_stable_offset: self.last_stable_offset(&completed),
            });
        }
        self.complete(&completed);
    }

    /// The transaction that a batch ended, if it is the marker of one with data.
    fn apply(&mut self, batch: &ProducerBatch) -> Option<CompletedTransaction> {
        let table = self.table.get_or_insert_default();
        let producer = table.producers.entry(batch.producer_id).or_insert_with(Producer::unknown);
        if let Some(marker) = batch.marker {
            let completed = producer.transaction_start.map(|first_offset| CompletedTransaction {
                producer_id: batch.producer_id,
                first_offset,
                last_offset: batch.base_offset,
                aborted: marker.abort,
            });
            producer.set_epoch(batch.epoch);
            producer.coordinator_epoch = marker.coordinator_epoch;
            producer.transaction_start = None;
            producer.last_timestamp = batch.max_timestamp;
            return completed;
        }
        let delta = i32::try_from(batch.last_offset.0 - batch.base_offset.0).unwrap_or(i32::MAX);
        producer.set_epoch(batch.epoch);
        let last_sequence = match batch.base_sequence {
            -1 => -1,
            base => sequence_plus(base, delta),
        };
        producer.add_batch(BatchMetadata {
            last_sequence,
            last_offset: batch.last_offset,
            offset_delta: delta,
            timestamp: batch.max_timestamp,
        });
        producer.last_timestamp = batch.max_timestamp;
        if batch.transactional && producer.transaction_start.is_none() {
            producer.transaction_start = Some(batch.base_offset);
            let transaction =
                Transaction { producer_id: batch.producer_id, last_offset: Offset::NONE };
            table.ongoing.insert(batch.base_offset, transaction);
        }
        None
    }

    /// The last stable offset just after the marker of `completed`, as the transaction index wants it.
    /// Source: `ProducerStateManager.lastStableOffset`.
    fn last_stable_offset(&self, completed: &CompletedTransaction) -> Offset {
        self.table
            .iter()
            .flat_map(|table| table.ongoing.iter())
            .find(|(_, transaction)| transaction.producer_id != completed.producer_id)
            .map_or(completed.last_offset.plus(1), |(first_offset, _)| *first_offset)
    }

    /// Moves an ended transaction to those that wait for the high watermark.
    fn complete(&mut self, completed: &CompletedTransaction) {
        let Some(table) = &mut self.table else { return };
        if let Some(mut transaction) = table.ongoing.remove(&completed.first_offset) {
            transaction.last_offset = completed.last_offset;
            table.unreplicated.insert(completed.first_offset, transaction);
        }
    }

    /// Forgets transactions whose marker lies below `offset`: the high watermark, or the log's start.
    pub(crate) fn forget_replicated(&mut self, offset: Offset) {
        if let Some(table) = &mut self.table
            && !table.unreplicated.is_empty()
        {
            table.unreplicated.retain(|_, transaction| transaction.last_offset >= offset);
        }
    }

    /// First offset of the oldest transaction that is open, or whose end is not replicated.
    pub(crate) fn first_unstable_offset(&self) -> Option<Offset> {
        let table = self.table.as_ref()?;
        let ongoing = table.ongoing.keys().next();
        let unreplicated = table.unreplicated.keys().next();
        ongoing.into_iter().chain(unreplicated).min().copied()
    }

    /// The open transactions, in the order of their beginnings.
    pub(crate) fn open_transactions(&self) -> impl Iterator<Item = OpenTransaction> {
        let ongoing = self.table.iter().flat_map(|table| table.ongoing.values());
        ongoing.filter_map(|transaction| self.open_transaction(transaction.producer_id))
    }

    /// The open transaction of a producer.
    pub(crate) fn open_transaction(&self, producer_id: ProducerId) -> Option<OpenTransaction> {
        let producer = self.get(producer_id)?;
        Some(OpenTransaction {
            producer_id,
            producer_epoch: producer.epoch,
            coordinator_epoch: producer.coordinator_epoch,
            first_offset: producer.transaction_start?,
            last_offset: producer.last_data_offset(),
        })
    }

    /// Puts a producer of a snapshot in place.
    pub(crate) fn load(&mut self, producer_id: ProducerId, producer: Producer) {
        let table = self.table.get_or_insert_default();
        if let Some(first_offset) = producer.transaction_start {
            let transaction = Transaction { producer_id, last_offset: Offset::NONE };
            table.ongoing.insert(first_offset, transaction);
        }
        table.producers.insert(producer_id, producer);
    }

    pub(crate) fn clear(&mut self) {
        self.table = None;
    }

    /// Forgets producers without an open transaction that were last heard of `expiration_ms` ago or earlier.
    pub(crate) fn expire(&mut self, now: Timestamp, expiration_ms: i64) {
        let Some(table) = &mut self.table else { return };
        table.producers.retain(|_, producer| !expired(producer, now, expiration_ms));
        if table.producers.is_empty() && table.ongoing.is_empty() && table.unreplicated.is_empty() {
            self.table = None;
        }
    }

    /// Makes room: a tenth goes, but one at least, those idle for longest first, never one with an open transaction. How
    /// many went.
    pub(crate) fn evict(&mut self) -> usize {
        let Some(table) = &mut self.table else { return 0 };
        let mut idle: Vec<(Timestamp, Offset, ProducerId)> = table
            .producers
            .iter()
            .filter(|(_, producer)| producer.transaction_start.is_none())
            .map(|(id, producer)| (producer.last_timestamp, producer.last_data_offset(), *id))
            .collect();
        if idle.is_empty() {
            return 0;
        }
        let surplus = idle.len().div_ceil(10);
        idle.select_nth_unstable(surplus - 1);
        for (_, _, id) in &idle[..surplus] {
            table.producers.remove(id);
        }
        surplus
    }

    /// Forgets producers without an open transaction that were last heard of before `cutoff`, and `last` of those heard
    /// of then. How many.
    pub(crate) fn forget(&mut self, cutoff: Timestamp, last: &mut usize) -> usize {
        let Some(table) = &mut self.table else { return 0 };
        let before = table.producers.len();
        table.producers.retain(|_, producer| {
            if producer.transaction_start.is_some() || producer.last_timestamp > cutoff {
                return true;
            }
            if producer.last_timestamp == cutoff {
                let goes = *last > 0;
                *last -= usize::from(goes);
                return !goes;
            }
            false
        });
        before - table.producers.len()
    }
}

/// Whether the producer may be forgotten. Source: `ProducerStateManager.isProducerExpired`.
pub(crate) fn expired(producer: &Producer, now: Timestamp, expiration_ms: i64) -> bool {
    producer.transaction_start.is_none()
        && now.0.saturating_sub(producer.last_timestamp.0) >= expiration_ms
}

/// Source: `ProducerAppendInfo.checkSequence`.
fn check_sequence(producer: &Producer, batch: &ProducerBatch) -> Result<(), ProducerError> {
    let (producer_id, offset, sequence) =
        (batch.producer_id, batch.base_offset, batch.base_sequence);
    if batch.epoch != producer.epoch {
        return match sequence == 0 || producer.epoch == ProducerEpoch::NONE {
            true => Ok(()),
            false => Err(ProducerError::NewEpochSequence {
                producer_id,
                offset,
                epoch: batch.epoch,
                sequence,
                current: producer.epoch,
            }),
        };
    }
    let current = producer.last_sequence();
    let follows =
        i64::from(sequence) == i64::from(current) + 1 || (sequence == 0 && current == i32::MAX);
    match follows || producer.epoch == ProducerEpoch::NONE {
        true => Ok(()),
        false => Err(ProducerError::OutOfOrderSequence { producer_id, offset, sequence, current }),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Marker, Offset, Origin, ProducerBatch, ProducerEpoch, ProducerError, ProducerId,
        ProducerStates, Timestamp, sequence_minus, sequence_plus,
    };

    fn batch(epoch: i16, sequence: i32, base: i64, count: i64) -> ProducerBatch {
        ProducerBatch {
            producer_id: ProducerId(7),
            epoch: ProducerEpoch(epoch),
            base_sequence: sequence,
            base_offset: Offset(base),
            last_offset: Offset(base + count - 1),
            max_timestamp: Timestamp(base),
            transactional: false,
            marker: None,
        }
    }

    fn append(states: &mut ProducerStates, batch: ProducerBatch) -> Result<(), ProducerError> {
        states.check(&batch, Origin::Client, None)?;
        states.apply(&batch);
        Ok(())
    }

    #[test]
    fn sequences_wrap() {
        assert_eq!(sequence_plus(i32::MAX, 1), 0);
        assert_eq!(sequence_plus(i32::MAX - 1, 4), 2);
        assert_eq!(sequence_minus(2, 4), i32::MAX - 1);
        assert_eq!(sequence_minus(9, 4), 5);
    }

    #[test]
    fn sequences_must_follow_and_the_last_five_batches_are_known_again() {
        let mut states = ProducerStates::default();
        // Of an unknown producer any sequence is taken: its records may have been deleted.
        append(&mut states, batch(0, 40, 0, 2)).unwrap();
        for number in 1..6 {
            append(&mut states, batch(0, 40 + number * 2, i64::from(number) * 2, 2)).unwrap();
        }
        let gap = append(&mut states, batch(0, 60, 12, 2));
        assert!(matches!(
            gap,
            Err(ProducerError::OutOfOrderSequence { sequence: 60, current: 51, .. })
        ));
        assert_eq!(states.find_duplicate(&batch(0, 42, 12, 2)).unwrap().first_offset(), Offset(2));
        assert_eq!(states.find_duplicate(&batch(0, 42, 12, 3)), None);
        assert_eq!(states.find_duplicate(&batch(0, 40, 12, 2)), None);
        assert_eq!(states.find_duplicate(&batch(1, 42, 12, 2)), None);
    }

    #[test]
    fn epochs_fence_and_a_new_one_begins_at_zero() {
        let mut states = ProducerStates::default();
        append(&mut states, batch(3, 0, 0, 1)).unwrap();
        assert!(matches!(
            append(&mut states, batch(2, 1, 1, 1)),
            Err(ProducerError::InvalidEpoch { .. })
        ));
        assert!(matches!(
            append(&mut states, batch(4, 1, 1, 1)),
            Err(ProducerError::NewEpochSequence { .. })
        ));
        append(&mut states, batch(4, 0, 1, 1)).unwrap();
        assert!(states.check(&batch(2, 9, 2, 1), Origin::Replication, None).is_ok());
    }

    #[test]
    fn a_new_producer_has_no_epoch_below_none() {
        let mut states = ProducerStates::default();
        let below = batch(-2, 0, 0, 1);
        assert!(matches!(append(&mut states, below), Err(ProducerError::InvalidEpoch { .. })));
        assert!(states.check(&below, Origin::Replication, None).is_ok());
        append(&mut states, batch(-1, 0, 0, 1)).unwrap();
    }

    #[test]
    fn transactions_hold_the_stable_offset_until_their_marker_is_replicated() {
        let mut states = ProducerStates::default();
        let begin = ProducerBatch { transactional: true, ..batch(0, 0, 10, 2) };
        append(&mut states, begin).unwrap();
        assert!(matches!(
            append(&mut states, batch(0, 2, 12, 1)),
            Err(ProducerError::ExpectedTransactional { .. })
        ));
        let marker = Marker { abort: true, coordinator_epoch: 3 };
        let end =
            ProducerBatch { transactional: true, marker: Some(marker), ..batch(0, -1, 12, 1) };
        states.check(&end, Origin::Coordinator, None).unwrap();
        let completed = states.apply(&end).unwrap();
        assert_eq!(
            (completed.first_offset, completed.last_offset, completed.aborted),
            (Offset(10), Offset(12), true)
        );
        assert_eq!(states.last_stable_offset(&completed), Offset(13));
        states.complete(&completed);
        assert_eq!(states.first_unstable_offset(), Some(Offset(10)));
        states.forget_replicated(Offset(12));
        assert_eq!(states.first_unstable_offset(), Some(Offset(10)));
        states.forget_replicated(Offset(13));
        assert_eq!(states.first_unstable_offset(), None);
        let nobody = Marker { abort: true, coordinator_epoch: -2 };
        let nobody = ProducerBatch { marker: Some(nobody), ..end };
        assert!(matches!(
            ProducerStates::default().check(&nobody, Origin::Coordinator, None),
            Err(ProducerError::CoordinatorFenced { current: -1, .. })
        ));
        let zombie = Marker { abort: true, coordinator_epoch: 2 };
        let zombie = ProducerBatch { marker: Some(zombie), ..end };
        assert!(matches!(
            states.check(&zombie, Origin::Coordinator, None),
            Err(ProducerError::CoordinatorFenced { .. })
        ));
    }

    #[test]
    fn the_longest_idle_go_first_and_open_transactions_stay() {
        let mut states = ProducerStates::default();
        for number in 0..20 {
            let one = batch(0, 0, number, 1);
            let transactional = number == 0;
            states.apply(&ProducerBatch { producer_id: ProducerId(number), transactional, ..one });
        }
        assert_eq!(states.evict(), 2);
        let left = |states: &ProducerStates| {
            let mut left: Vec<i64> = states.iter().map(|(id, _)| id.0).collect();
            left.sort_unstable();
            left
        };
        assert_eq!(left(&states)[..3], [0, 3, 4]);
        let mut last = 0;
        assert_eq!(states.forget(Timestamp(11), &mut last), 8);
        last = 3;
        assert_eq!(states.forget(Timestamp(11), &mut last), 1);
        assert_eq!((last, left(&states)), (2, vec![0, 12, 13, 14, 15, 16, 17, 18, 19]));
        states.expire(Timestamp(100), 85);
        assert_eq!(states.len(), 5);
    }
}
