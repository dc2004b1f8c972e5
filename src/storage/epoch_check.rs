//! Whether the leader epochs of a log's file are those of its batches; and the epochs as the batches tell them.
//!
//! Every batch says its epoch, and epochs only rise along a log, so a few batches are enough to vouch for the list.

use std::io;

use common::ids::{LeaderEpoch, Offset};

use crate::{
    error::{Context, Fault},
    leader_epochs::LeaderEpochs,
    scan::{Found, HeaderScan, header_at},
    segment::SegmentView,
    segment_files::LOG,
    shared::Shared,
};

/// The segments of a log that is being opened.
pub(crate) struct EpochCheck<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) views: &'a [SegmentView],
    /// The log's start.
    pub(crate) start: Offset,
}

impl EpochCheck<'_> {
    /// Whether the batches around each entry agree with it: those before it are of earlier epochs, those from it on
    /// are not. Compaction may have removed all batches of an epoch.
    pub(crate) fn is_right(&self, epochs: &LeaderEpochs) -> Result<bool, Fault> {
        let entries = epochs.entries();
        let Some(first_batch) = self.batch_from(self.start)? else { return Ok(true) };
        let first_epoch = first_batch.header.leader_epoch;
        let covers = |entry: &(LeaderEpoch, Offset)| {
            entry.1 <= self.start.max(first_batch.header.first_or_last_offset())
        };
        if first_epoch.0 >= 0 && !entries.first().is_some_and(covers) {
            return Ok(false);
        }
        let mut previous = LeaderEpoch::NONE;
        for (epoch, start) in entries {
            let from = self.batch_from(*start)?;
            // An epoch begins with a batch; only the log's start may lie within one.
            let begins = |found: &Found| {
                *start <= self.start || found.header.first_or_last_offset() >= *start
            };
            if from.is_some_and(|found| found.header.leader_epoch < *epoch || !begins(&found)) {
                return Ok(false);
            }
            let before = if *start > self.start { self.batch_before(*start)? } else { None };
            if before.is_some_and(|found| found.header.leader_epoch > previous) {
                return Ok(false);
            }
            previous = *epoch;
        }
        let last = self.batch_before(Offset(i64::MAX))?;
        Ok(last.is_none_or(|found| found.header.leader_epoch <= previous))
    }

    /// The epochs that the batches have. Segments that begin and end with one epoch are not read.
    pub(crate) fn rebuild(&self) -> Result<LeaderEpochs, Fault> {
        let mut epochs = LeaderEpochs::default();
        for (index, view) in self.views.iter().enumerate() {
            let next = self.views.get(index + 1);
            if next.is_some_and(|next| next.base <= self.start) {
                continue;
            }
            let first = self.first(view)?.map(|found| found.header.leader_epoch);
            let after = match next {
                Some(next) => self.first(next)?.map(|found| found.header.leader_epoch),
                None => None,
            };
            let is_known = first.is_some() && first == epochs.latest();
            if is_known && first == after {
                continue;
            }
            self.add(view, &mut epochs)?;
        }
        epochs.truncate_from_start(self.start);
        Ok(epochs)
    }

    fn add(&self, view: &SegmentView, epochs: &mut LeaderEpochs) -> Result<(), Fault> {
        let file = view.log(self.shared)?;
        let mut scan = HeaderScan::new(&file, 0, view.size);
        while let Some(found) =
            scan.next().map_err(io::Error::from).context("read", view.path(LOG))?
        {
            let epoch = found.header.leader_epoch;
            if epoch.0 < 0 {
                epochs.clear();
            } else if epochs.latest().is_none_or(|latest| epoch > latest) {
                epochs.assign(epoch, found.header.first_or_last_offset());
            }
        }
        Ok(())
    }

    fn first(&self, view: &SegmentView) -> Result<Option<Found>, Fault> {
        if view.size == 0 {
            return Ok(None);
        }
        let file = view.log(self.shared)?;
        header_at(&file, 0, view.size).map_err(io::Error::from).context("read", view.path(LOG))
    }

    fn segment_index(&self, offset: Offset) -> usize {
        self.views.partition_point(|view| view.base <= offset).saturating_sub(1)
    }

    /// The first batch that holds the offset or comes after it.
    fn batch_from(&self, offset: Offset) -> Result<Option<Found>, Fault> {
        for view in &self.views[self.segment_index(offset)..] {
            if view.base >= offset {
                if let Some(found) = self.first(view)? {
                    return Ok(Some(found));
                }
                continue;
            }
            let file = view.log(self.shared)?;
            let position = view.position_before(self.shared, &file, offset)?;
            let found = view.find_from(&file, position, offset);
            if let Some(found) = found.map_err(io::Error::from).context("read", view.path(LOG))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The last batch that lies wholly before the offset.
    fn batch_before(&self, offset: Offset) -> Result<Option<Found>, Fault> {
        for view in self.views[..=self.segment_index(offset)].iter().rev() {
            if view.base >= offset || view.size == 0 {
                continue;
            }
            let file = view.log(self.shared)?;
            let position = view.position_before(self.shared, &file, Offset(offset.0 - 1))?;
            let mut scan = HeaderScan::new(&file, position, view.size);
            let mut last = None;
            while let Some(found) =
                scan.next().map_err(io::Error::from).context("read", view.path(LOG))?
            {
                if found.header.last_offset >= offset {
                    break;
                }
                last = Some(found);
            }
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }
}
