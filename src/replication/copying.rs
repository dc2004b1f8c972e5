//! What a follower does to its log: append what the leader sent, cut what the leader has not.

use common::{
    clock,
    ids::{LeaderEpoch, Offset},
};
use partition::follower::{Failure, LocalLog};
use storage::error::{AppendError, LogError};
use tracing::{info, warn};

use crate::partition::Partition;

/// What a leader sent of one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<'a> {
    /// Batches, the last of which may be cut off.
    pub(crate) records: &'a [u8],
    /// The leader's high watermark.
    pub(crate) high_watermark: Offset,
    /// The start of the leader's log.
    pub(crate) log_start: Offset,
}

/// Where the local log ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyEnd {
    pub(crate) end: Offset,
    pub(crate) latest_epoch: LeaderEpoch,
}

/// Why nothing was copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// The controller has spoken meanwhile: this leader is not followed any more.
    #[error("the leader is not followed any more")]
    Superseded,
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl CopyError {
    /// What it means for the follower; none where there is none any more.
    pub(crate) fn failure(&self) -> Option<Failure> {
        Some(match self {
            CopyError::Superseded => return None,
            CopyError::Append(AppendError::Corrupt(_) | AppendError::DiskFull(_)) => {
                Failure::Passing
            }
            CopyError::Log(LogError::Fault(fault)) if fault.is_disk_full() => Failure::Passing,
            CopyError::Append(_) | CopyError::Log(_) => Failure::Lasting,
        })
    }
}

impl Partition {
    /// Appends what the leader of an epoch sent, and takes over its watermarks. May wait for a disk.
    pub(crate) fn append_as_follower(
        &self,
        epoch: LeaderEpoch,
        sent: Sent<'_>,
    ) -> Result<CopyEnd, CopyError> {
        let before = self.log().high_watermark();
        let end = {
            let _writing = self.writing.read();
            self.check_follows(epoch)?;
            let log = self.log();
            let followed = match log.append_as_follower(sent.records) {
                Err(AppendError::UnexpectedOffset { first, end })
                    if end == log.start_offset() && first < end =>
                {
                    // The leader's log starts within a batch, which comes whole.
                    info!(partition = %self.topic_partition(), first = first.0, start = end.0, "begins the log with a whole batch");
                    log.truncate_fully_and_start_at(first, None)?;
                    log.append_as_follower(sent.records)
                }
                appended => appended,
            };
            self.note_room(matches!(followed, Err(AppendError::DiskFull(_))));
            let followed = followed?;
            let (surroundings, bytes) = (self.surroundings(), followed.bytes as u64);
            surroundings.metrics.replication_bytes_in.mark(bytes);
            if self.is_throttled_as_follower() {
                surroundings.follower_quota.record(bytes, clock::now());
            }
            log.set_high_watermark(sent.high_watermark);
            // One that is taking over sends nothing, and is still to get what is here.
            if followed.batch_count > 0 || sent.high_watermark >= log.end_offset() {
                self.owes_no_more();
            }
            self.begin_at(sent.log_start)?;
            self.copy_end()
        };
        // Readers of a follower see no further than the high watermark.
        if self.log().high_watermark() != before {
            self.wake();
        }
        Ok(end)
    }

    /// Deletes what the leader of an epoch has deleted, as far as it is committed. May wait for a disk.
    pub(crate) fn begin_as_follower(
        &self,
        epoch: LeaderEpoch,
        start: Offset,
    ) -> Result<(), CopyError> {
        let _writing = self.writing.read();
        self.check_follows(epoch)?;
        self.begin_at(start)
    }

    fn begin_at(&self, start: Offset) -> Result<(), CopyError> {
        let log = self.log();
        if start > log.start_offset() {
            log.advance_start_offset(start.min(log.high_watermark()))?;
        }
        Ok(())
    }

    /// Cuts the log to what the leader of an epoch may have as well. May wait for a disk.
    pub(crate) fn truncate_as_follower(
        &self,
        epoch: LeaderEpoch,
        to: Offset,
    ) -> Result<CopyEnd, CopyError> {
        let _writing = self.writing.read();
        self.check_follows(epoch)?;
        let high_watermark = self.log().high_watermark();
        if to < high_watermark {
            warn!(partition = %self.topic_partition(), to = to.0, high_watermark = high_watermark.0, "truncating below the high watermark");
        }
        self.log().truncate_to(to)?;
        self.owes_no_more();
        Ok(self.copy_end())
    }

    /// Drops the log and begins it where the leader's begins. May wait for a disk.
    pub(crate) fn restart_as_follower(
        &self,
        epoch: LeaderEpoch,
        at: Offset,
    ) -> Result<CopyEnd, CopyError> {
        let _writing = self.writing.read();
        self.check_follows(epoch)?;
        self.log().truncate_fully_and_start_at(at, None)?;
        Ok(self.copy_end())
    }

    fn check_follows(&self, epoch: LeaderEpoch) -> Result<(), CopyError> {
        match self.followed() {
            Some((_, current)) if current == epoch => Ok(()),
            _ => Err(CopyError::Superseded),
        }
    }

    fn copy_end(&self) -> CopyEnd {
        let latest_epoch = self.log().latest_leader_epoch().unwrap_or(LeaderEpoch::NONE);
        CopyEnd { end: self.log().end_offset(), latest_epoch }
    }

    /// The log as a follower's decisions see it.
    pub(crate) fn with_local_log<T>(&self, decide: impl FnOnce(&LocalLog<'_>) -> T) -> T {
        let log = self.log();
        let end_of_epoch = |epoch| log.end_offset_for_epoch(epoch);
        decide(&LocalLog {
            end: log.end_offset(),
            high_watermark: log.high_watermark(),
            latest_epoch: log.latest_leader_epoch().unwrap_or(LeaderEpoch::NONE),
            end_of_epoch: &end_of_epoch,
        })
    }
}
