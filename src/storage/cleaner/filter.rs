//! What stays of a batch. Source: `Cleaner.cleanInto`, `MemoryRecords.filterTo`.

use std::{borrow::Cow, collections::HashMap};

use common::ids::{Offset, ProducerEpoch, ProducerId, Timestamp};
use record::{
    compression::DECOMPRESSED_BYTES_MAX,
    entry::EntryHeader,
    records::{Records, RecordsError, records},
    rewrite::{self, RewriteError},
    view::RecordView,
};

use super::{offset_map::OffsetMap, stats::Stats, transactions::Transactions};
use crate::log::Log;

/// Why a batch cannot be cleaned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("{0}")]
    Records(#[from] RecordsError),
    #[error("{0}")]
    Rewrite(#[from] RewriteError),
}

/// The last that an active producer wrote. Source: `LastRecord`.
#[derive(Clone, Copy, Debug)]
struct LastRecord {
    /// Of its last data; `None` where only a marker is known.
    data_offset: Option<Offset>,
    epoch: ProducerEpoch,
}

/// Producers whose last batch must not go.
#[derive(Debug)]
pub(crate) struct ActiveProducers(HashMap<ProducerId, LastRecord>);

impl ActiveProducers {
    pub(crate) fn of(log: &Log) -> ActiveProducers {
        let state = log.state.lock();
        let last = |(id, producer): (ProducerId, &crate::producer_state::Producer)| {
            let data_offset = Some(producer.last_data_offset()).filter(|offset| offset.0 >= 0);
            (id, LastRecord { data_offset, epoch: producer.epoch })
        };
        ActiveProducers(state.producers.iter().map(last).collect())
    }

    /// Whether the batch is the one that tells of its producer's last sequence, or else of its epoch.
    fn need(&self, header: &EntryHeader) -> bool {
        let Some(last) = self.0.get(&header.producer_id).filter(|_| header.has_producer()) else {
            return false;
        };
        match last.data_offset {
            Some(offset) => header.last_offset == offset,
            None => header.is_control && header.producer_epoch == last.epoch,
        }
    }
}

/// One pass over a log: what decides about records.
pub(crate) struct Filter<'a> {
    pub(crate) map: &'a OffsetMap,
    pub(crate) now: Timestamp,
    pub(crate) delete_retention_ms: i64,
    pub(crate) transactions: Transactions,
}

/// What decides about the batches of one segment.
pub(crate) struct Segment<'a> {
    pub(crate) producers: &'a ActiveProducers,
    /// Whether tombstones of formats that have no delete horizon stay.
    pub(crate) keeps_old_tombstones: bool,
}

/// Decisions about the records of a batch.
#[derive(Default)]
struct Decisions {
    kept: Vec<bool>,
    kept_count: usize,
    keeps_tombstone: bool,
}

impl Filter<'_> {
    /// What stays of the batch; `None` for nothing.
    pub(crate) fn apply<'b>(
        &mut self,
        header: &EntryHeader,
        bytes: &'b [u8],
        segment: &Segment,
        stats: &mut Stats,
    ) -> Result<Option<Cow<'b, [u8]>>, FilterError> {
        let may_go = self.transactions.take(header, bytes);
        let horizon = header.delete_horizon;
        let goes = match header.is_control {
            true => may_go && horizon.is_some_and(|horizon| horizon <= self.now),
            false => may_go,
        };
        let is_needed = segment.producers.need(header);
        if goes {
            return empty(header, bytes, is_needed);
        }
        let read = records(bytes, DECOMPRESSED_BYTES_MAX)?;
        let decisions = self.decide(header, &read, segment, stats)?;
        if decisions.kept_count == 0 {
            return empty(header, bytes, is_needed);
        }
        stats.records_kept += decisions.kept_count as u64;
        let has_due = decisions.keeps_tombstone || may_go && header.is_control;
        let new_horizon = (header.magic >= 2 && has_due && horizon.is_none())
            .then(|| Timestamp(self.now.0.saturating_add(self.delete_retention_ms)));
        if decisions.kept_count == decisions.kept.len() && new_horizon.is_none() {
            return Ok(Some(Cow::Borrowed(bytes)));
        }
        let is_kept = |index: usize| decisions.kept.get(index).copied().unwrap_or(false);
        let written = rewrite::rewrite(bytes, &read, &is_kept, new_horizon.or(horizon))?;
        Ok(Some(Cow::Owned(written.into())))
    }

    fn decide(
        &self,
        header: &EntryHeader,
        read: &Records,
        segment: &Segment,
        stats: &mut Stats,
    ) -> Result<Decisions, FilterError> {
        let mut decisions = Decisions::default();
        for record in read {
            let record = record?;
            stats.records_read += 1;
            let keep = header.is_control || self.keeps(header, &record, segment, stats);
            decisions.kept.push(keep);
            decisions.kept_count += usize::from(keep);
            decisions.keeps_tombstone |= keep && record.value.is_none();
        }
        Ok(decisions)
    }

    fn keeps(
        &self,
        header: &EntryHeader,
        record: &RecordView,
        segment: &Segment,
        stats: &mut Stats,
    ) -> bool {
        if record.offset > self.map.last_offset() {
            return true;
        }
        let Some(key) = record.key else {
            stats.records_without_key += 1;
            return false;
        };
        let is_last = self.map.get(key).is_none_or(|last| record.offset >= last);
        let tombstone_stays = match header.magic {
            0 | 1 => segment.keeps_old_tombstones,
            _ => header.delete_horizon.is_none_or(|horizon| self.now < horizon),
        };
        is_last && (record.value.is_some() || tombstone_stays)
    }
}

/// A batch without records: nothing, unless its producer needs it.
fn empty<'b>(
    header: &EntryHeader,
    bytes: &'b [u8],
    is_needed: bool,
) -> Result<Option<Cow<'b, [u8]>>, FilterError> {
    Ok(match is_needed {
        false => None,
        // It was emptied before.
        true if header.record_count == Some(0) => Some(Cow::Borrowed(bytes)),
        true => Some(Cow::Owned(rewrite::emptied(bytes)?.to_vec())),
    })
}
