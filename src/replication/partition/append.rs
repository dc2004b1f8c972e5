//! Appending as the leader, and what becomes of it.

use common::{
    clock,
    ids::{LeaderEpoch, Offset},
};
use record::validate::Checked;
use storage::{
    error::AppendError, log::Log, log_append::Appended, producer_state::OpenTransaction,
    verification::VerificationGuard,
};

use super::{AccessError, Commit, Partition, ProduceError, Role};

impl Partition {
    /// Appends a producer's batches; with the epoch that they were appended in. `in_sync_min` is given where acks=all: fewer
    /// in-sync replicas refuse. `guard` is of the verification that has begun for them.
    pub fn append_as_leader(
        &self,
        records: Checked,
        in_sync_min: Option<usize>,
        guard: Option<VerificationGuard>,
    ) -> Result<(Appended, LeaderEpoch), ProduceError> {
        self.append(in_sync_min, None, |log, epoch| match guard {
            Some(guard) => log.append_verified(records, epoch, guard),
            None => log.append_as_leader(records, epoch),
        })
    }

    /// Appends batches that came one behind the other, as `append_as_leader` does each, with fewer writes. None of them
    /// opens a transaction.
    pub fn append_run_as_leader(
        &self,
        run: Vec<Checked>,
        in_sync_min: Option<usize>,
    ) -> Vec<Result<(Appended, LeaderEpoch), ProduceError>> {
        let writing = self.writing.read();
        let Ok(epoch) = self.epoch_to_append(in_sync_min) else {
            drop(writing);
            let refused = |records| self.append_as_leader(records, in_sync_min, None);
            return run.into_iter().map(refused).collect();
        };
        let results = self.log.append_run_as_leader(run, epoch);
        drop(writing);
        if let Some(first) = results.iter().flatten().map(|appended| appended.first_offset).min() {
            self.has_appended(first);
        }
        results.into_iter().map(|result| Ok((result?, epoch))).collect()
    }

    /// Appends a batch of a coordinator, or a transaction marker. `elected` is the epoch that a coordinator took office
    /// with: in another one it does not append.
    pub fn append_as_coordinator(
        &self,
        records: Checked,
        in_sync_min: Option<usize>,
        elected: Option<LeaderEpoch>,
    ) -> Result<(Appended, LeaderEpoch), ProduceError> {
        let append = |log: &Log, epoch| log.append_as_coordinator(records, epoch);
        self.append(in_sync_min, elected, append)
    }

    /// Appends the marker of a transaction that stands as it was seen.
    pub fn append_if_open(
        &self,
        marker: Checked,
        in_sync_min: Option<usize>,
        seen: &OpenTransaction,
    ) -> Result<(Appended, LeaderEpoch), ProduceError> {
        self.append(in_sync_min, None, |log, epoch| log.append_if_open(marker, epoch, seen))
    }

    fn append(
        &self,
        in_sync_min: Option<usize>,
        elected: Option<LeaderEpoch>,
        append: impl FnOnce(&Log, LeaderEpoch) -> Result<Appended, AppendError>,
    ) -> Result<(Appended, LeaderEpoch), ProduceError> {
        let (appended, epoch) = {
            let _writing = self.writing.read();
            let epoch = self.epoch_to_append(in_sync_min)?;
            if elected.is_some_and(|elected| elected != epoch) {
                return Err(AccessError::NotLeader.into());
            }
            (append(&self.log, epoch)?, epoch)
        };
        self.has_appended(appended.first_offset);
        Ok((appended, epoch))
    }

    /// Takes in that the log has grown, from an offset on.
    fn has_appended(&self, first: Offset) {
        if let Role::Leader(leader) = &mut *self.role.lock() {
            if !leader.followers().is_empty() {
                leader.appended(first, clock::now());
            }
            self.move_high_watermark(leader);
        }
        self.waiters.wake();
    }

    /// The epoch to append with, where this broker leads and enough replicas are in sync.
    fn epoch_to_append(&self, in_sync_min: Option<usize>) -> Result<LeaderEpoch, ProduceError> {
        let role = self.role.lock();
        let Role::Leader(leader) = &*role else { return Err(AccessError::NotLeader.into()) };
        if let Some(required) = in_sync_min {
            leader.check_in_sync(required).map_err(ProduceError::NotEnoughReplicas)?;
        }
        Ok(leader.epoch())
    }

    /// What has become of the records before `end` that were appended in `epoch`, for who asked for acks=all.
    pub fn commit_of(&self, end: Offset, epoch: LeaderEpoch) -> Commit {
        let role = self.role.lock();
        let Role::Leader(leader) = &*role else { return Commit::Lost };
        if epoch < leader.led_since() {
            return Commit::Lost;
        }
        if self.log.high_watermark() < end {
            return Commit::Waiting;
        }
        let required = self.settings.lock().in_sync_replicas_min;
        match leader.check_still_in_sync(required) {
            Ok(()) => Commit::Done,
            Err(_) => Commit::NotEnoughReplicas,
        }
    }
}
