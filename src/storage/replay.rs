//! Rebuilds what a log knows of its producers from its batches. Source: `UnifiedLog.rebuildProducerState`.

use std::{fs::File, io};

use common::ids::{Offset, Timestamp};
use record::entry::EntryHeader;

use crate::{
    atomic_file,
    error::{Context, Fault},
    log::Log,
    log_append::marker,
    producer_snapshot,
    producer_state::{ProducerBatch, ProducerStates},
    scan::{HeaderScan, read_batch},
    segment::SegmentView,
    segment_files::{self, LOG, SNAPSHOT},
    transaction_index::AbortedTransaction,
};

/// Largest snapshot that is read: four million producers.
const SNAPSHOT_SIZE_MAX: u64 = 200 << 20;

/// Producers on their way through a log.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) producers: ProducerStates,
}

impl Replay {
    /// Takes the next batch. `read` gives all its bytes; only control batches are read. Transactions that the batch
    /// ended by an abort are added to `aborted`.
    pub(crate) fn add(
        &mut self,
        header: &EntryHeader,
        read: &dyn Fn() -> io::Result<Vec<u8>>,
        aborted: &mut Vec<AbortedTransaction>,
    ) -> io::Result<()> {
        if !header.has_producer() {
            return Ok(());
        }
        let marker = match header.is_control {
            true => match marker(&read()?) {
                Some(marker) => Some(marker),
                None => return Ok(()),
            },
            false => None,
        };
        let batch = ProducerBatch {
            producer_id: header.producer_id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            base_offset: header.first_or_last_offset(),
            last_offset: header.last_offset,
            max_timestamp: header.max_timestamp,
            transactional: header.is_transactional,
            marker,
        };
        self.producers.add(&batch, aborted);
        Ok(())
    }

    /// Takes the batches of a segment whose last offset is in `from..to`.
    pub(crate) fn add_segment(
        &mut self,
        view: &SegmentView,
        file: &File,
        position: u64,
        from: Offset,
        to: Offset,
    ) -> Result<(), Fault> {
        let mut scan = HeaderScan::new(file, position, view.size);
        let fault = |source| Fault { action: "read", path: view.path(LOG), source };
        let mut aborted = Vec::new();
        while let Some(found) = scan.next().map_err(|error| fault(error.into()))? {
            if found.header.last_offset >= to {
                break;
            }
            if found.header.last_offset >= from {
                let read = || read_batch(file, &found);
                self.add(&found.header, &read, &mut aborted).map_err(fault)?;
            }
        }
        Ok(())
    }
}

/// Reads a snapshot of `directory`; `None` where it is not there or wrong.
pub(crate) fn load_snapshot(
    directory: &std::path::Path,
    offset: Offset,
    expire: &dyn Fn(&crate::producer_state::Producer) -> bool,
) -> Result<Option<ProducerStates>, Fault> {
    let path = directory.join(segment_files::name(offset, SNAPSHOT));
    let Some(bytes) = atomic_file::read(&path, SNAPSHOT_SIZE_MAX).context("read", &path)? else {
        return Ok(None);
    };
    let entries = match producer_snapshot::decode(&bytes) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "producer snapshot is wrong, removing it");
            return Ok(None);
        }
    };
    let mut producers = ProducerStates::default();
    for entry in &entries {
        let producer = producer_snapshot::producer(entry);
        if !expire(&producer) {
            producers.load(entry.producer_id, producer);
        }
    }
    Ok(Some(producers))
}

impl Log {
    /// The producers as they were before the offset, which is a segment's base: of the newest snapshot up to there,
    /// and the batches after it. None is left out for its age.
    pub(crate) fn replay_before(&self, base: Offset) -> Result<Replay, Fault> {
        let (views, _) = self.views();
        let path = self.path();
        let mut candidates: Vec<Offset> =
            views.iter().map(|view| view.base).filter(|offset| *offset <= base).collect();
        let mut replay = Replay::default();
        let mut from = Offset::ZERO;
        while let Some(offset) = candidates.pop() {
            if let Some(producers) = load_snapshot(&path, offset, &|_| false)? {
                replay.producers = producers;
                from = offset;
                break;
            }
        }
        for view in views.iter().filter(|view| view.base < base && view.base >= from) {
            let file = view.log(&self.shared)?;
            replay.add_segment(view, &file, 0, from, base)?;
        }
        Ok(replay)
    }
}

/// Whether a producer of a snapshot is too old to be loaded.
pub(crate) fn expiry(
    now: Timestamp,
    expiration_ms: i64,
) -> impl Fn(&crate::producer_state::Producer) -> bool {
    move |producer| crate::producer_state::expired(producer, now, expiration_ms)
}
