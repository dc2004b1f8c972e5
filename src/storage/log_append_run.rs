//! Appending a run: batches of several requests that came together, with one write where that changes nothing else.

use std::{io::IoSlice, slice};

use common::ids::LeaderEpoch;
use record::validate::Checked;

use crate::{
    error::AppendError,
    index,
    log::{Log, State, Writer},
    log_append::{Appended, Item, check_producer, check_size, item_of, repeats},
    producer_state::{Origin, ProducerBatch, sequence_plus},
};

/// Batches of one write.
const JOINED_MAX: usize = 64;

/// Bytes of one write of several batches: what is larger gains nothing, and an index has no entry within it.
const JOINED_BYTES_MAX: u64 = 64 << 10;

impl Log {
    /// Appends batches as `append_as_leader` does one after the other, with fewer writes: what each gives, in their order.
    /// None of them opens a transaction.
    pub fn append_run_as_leader(
        &self,
        mut run: Vec<Checked>,
        epoch: LeaderEpoch,
    ) -> Vec<Result<Appended, AppendError>> {
        let mut results = Vec::with_capacity(run.len());
        let mut writer = self.writer.lock();
        let mut rest = &mut run[..];
        while !rest.is_empty() {
            let before = results.len();
            match self.append_joined(&mut writer, rest, epoch, &mut results) {
                Ok(()) => {}
                Err(error) => results.push(Err(error)),
            }
            rest = &mut rest[results.len() - before..];
        }
        results
    }

    /// Appends the first of the batches, and with it those that may be written with it. An error is the first one's.
    fn append_joined(
        &self,
        writer: &mut Writer,
        batches: &mut [Checked],
        epoch: LeaderEpoch,
        results: &mut Vec<Result<Appended, AppendError>>,
    ) -> Result<(), AppendError> {
        self.check_writable(writer)?;
        let (items, start) = {
            let state = self.state.lock();
            let (first, others) = batches.split_first_mut().expect("the caller has one");
            first.assign(state.end, epoch);
            let item = item_of(first);
            if let Some(repeated) = repeats(&state, &item, Origin::Client) {
                results.push(Ok(repeated));
                return Ok(());
            }
            check_producer(&state, &item, Origin::Client, None)?;
            check_size(&state, first)?;
            let mut joined = vec![item];
            for batch in others.iter_mut().take(JOINED_MAX - 1) {
                batch.assign(joined[joined.len() - 1].last_offset.plus(1), epoch);
                let item = item_of(batch);
                if !joins(&state, &joined, &item) {
                    break;
                }
                joined.push(item);
            }
            (joined, state.start)
        };
        let joined = &batches[..items.len()];
        let mut pieces: Vec<IoSlice<'_>> =
            joined.iter().flat_map(Checked::slices).map(IoSlice::new).collect();
        if self.write(writer, &items, &mut pieces).is_ok() {
            let appended = items.iter().zip(joined);
            results.extend(appended.map(|(item, batch)| Ok(Appended::new(item, batch, start))));
            return Ok(());
        }
        // The first ones may fit where all did not; each is to have its own answer.
        let [header, records] = joined[0].slices();
        let pieces = &mut [IoSlice::new(header), IoSlice::new(records)];
        self.check_writable(writer)?;
        self.write(writer, slice::from_ref(&items[0]), pieces)?;
        results.push(Ok(Appended::new(&items[0], &joined[0], start)));
        Ok(())
    }
}

/// Whether a batch may be written with those before it: it would be appended after them just so. What is not certain is
/// left to a write of its own.
fn joins(state: &State, joined: &[Item], item: &Item) -> bool {
    let size = joined.iter().map(|item| item.size).sum::<u64>() + item.size;
    let limit = u64::from(state.config.segment_bytes).min(JOINED_BYTES_MAX);
    if size > limit || index::relative(joined[0].base_offset, item.last_offset).is_none() {
        return false;
    }
    let Some(batch) = &item.producer else { return true };
    let mut before = joined.iter().rev().filter_map(|item| item.producer.as_ref());
    match before.find(|before| before.producer_id == batch.producer_id) {
        Some(before) => {
            let verifications = state.verifications.as_ref();
            let waiting = verifications.and_then(|all| all.lowest_sequence(batch.producer_id));
            waiting.is_none() && follows(before, batch)
        }
        None => {
            repeats(state, item, Origin::Client).is_none()
                && check_producer(state, item, Origin::Client, None).is_ok()
        }
    }
}

/// Whether a batch has the sequence that its producer's next one has.
fn follows(before: &ProducerBatch, batch: &ProducerBatch) -> bool {
    let Ok(count) = i32::try_from(before.last_offset.0 - before.base_offset.0) else {
        return false;
    };
    let last_sequence = sequence_plus(before.base_sequence, count);
    before.epoch == batch.epoch
        && !before.transactional
        && !batch.transactional
        && batch.base_sequence == sequence_plus(last_sequence, 1)
}
