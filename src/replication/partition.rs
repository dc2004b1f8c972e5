//! A partition that this broker hosts: its log, its role, and who waits for it. Source: `kafka.cluster.Partition`.

use std::sync::Arc;

use common::{
    clock,
    ids::{BrokerId, LeaderEpoch, Offset, PartitionEpoch, ProducerEpoch, ProducerId},
    topic::{TopicPartition, Uuid},
};
use parking_lot::Mutex;
use partition::leader::{Leader, Leadership, NotEnoughReplicas};
use record::validate::Checked;
use storage::{
    error::AppendError, log::Log, log_append::Appended, verification::VerificationGuard,
};
use tokio::sync::Notify;

use crate::{replica_manager::Access, topic_settings::TopicSettings, waiters::Waiters};

/// A partition of this broker. The role's lock is held for a few lines, and never across an append.
#[derive(Debug)]
pub struct Partition {
    topic_partition: TopicPartition,
    topic_id: Option<Uuid>,
    local: BrokerId,
    log: Arc<Log>,
    settings: Mutex<Arc<TopicSettings>>,
    role: Mutex<Role>,
    waiters: Waiters,
}

/// What this broker is to the partition.
#[derive(Debug)]
enum Role {
    /// Not told yet: neither read nor written.
    None,
    /// Takes produces, answers fetches.
    Leader(Leader),
    /// Copies from the leader.
    Follower { leader: BrokerId, epoch: LeaderEpoch, partition_epoch: PartitionEpoch },
}

/// Why a partition cannot be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// This broker does not lead it.
    #[error("this broker does not lead the partition")]
    NotLeader,
    /// The asker knows an older leader.
    #[error("the leader epoch is older than the current one")]
    FencedEpoch,
    /// The asker knows a newer leader than this broker.
    #[error("the leader epoch is newer than the current one")]
    UnknownEpoch,
}

/// Why a produce is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProduceError {
    /// The partition is not led here.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// acks=all with fewer in-sync replicas than `min.insync.replicas`.
    #[error("{in_sync} in-sync replicas are fewer than the {required} required", in_sync = .0.in_sync, required = .0.required)]
    NotEnoughReplicas(NotEnoughReplicas),
    /// The log refused the records.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Partition {
    pub(crate) fn new(
        topic_partition: TopicPartition,
        topic_id: Option<Uuid>,
        local: BrokerId,
        log: Arc<Log>,
        settings: Arc<TopicSettings>,
    ) -> Partition {
        Partition {
            topic_partition,
            topic_id,
            local,
            log,
            settings: Mutex::new(settings),
            role: Mutex::new(Role::None),
            waiters: Waiters::default(),
        }
    }

    /// The topic and number.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// The topic's id, where it has one.
    pub fn topic_id(&self) -> Option<Uuid> {
        self.topic_id
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The topic's settings.
    pub fn settings(&self) -> Arc<TopicSettings> {
        self.settings.lock().clone()
    }

    /// Takes new settings of the topic.
    pub(crate) fn configure(&self, settings: &Arc<TopicSettings>) {
        self.log.set_config(settings.log.clone());
        *self.settings.lock() = settings.clone();
    }

    /// Whether this broker leads the partition.
    pub fn is_leader(&self) -> bool {
        matches!(*self.role.lock(), Role::Leader(_))
    }

    /// The epoch of the current leader; `LeaderEpoch::NONE` before the controller has spoken.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        match &*self.role.lock() {
            Role::None => LeaderEpoch::NONE,
            Role::Leader(leader) => leader.epoch(),
            Role::Follower { epoch, .. } => *epoch,
        }
    }

    /// The leader as this broker knows it, and its epoch.
    pub fn leader(&self) -> (BrokerId, LeaderEpoch) {
        match &*self.role.lock() {
            Role::None => (BrokerId::NONE, LeaderEpoch::NONE),
            Role::Leader(leader) => (self.local, leader.epoch()),
            Role::Follower { leader, epoch, .. } => (*leader, *epoch),
        }
    }

    /// Version of the state znode last taken; -1 before the controller has spoken.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        match &*self.role.lock() {
            Role::None => PartitionEpoch(-1),
            Role::Leader(leader) => leader.partition_epoch(),
            Role::Follower { partition_epoch, .. } => *partition_epoch,
        }
    }

    /// Checks that the asker may use the partition, and knows its leader. `epoch` is what the asker believes;
    /// `LeaderEpoch::NONE` skips that check. Gives the current epoch.
    pub fn check_access(
        &self,
        access: Access,
        epoch: LeaderEpoch,
    ) -> Result<LeaderEpoch, AccessError> {
        let role = self.role.lock();
        let (current, leads) = match &*role {
            Role::None => return Err(AccessError::NotLeader),
            Role::Leader(leader) => (leader.epoch(), true),
            Role::Follower { epoch, .. } => (*epoch, false),
        };
        if epoch != LeaderEpoch::NONE && epoch < current {
            return Err(AccessError::FencedEpoch);
        }
        if epoch != LeaderEpoch::NONE && epoch > current {
            return Err(AccessError::UnknownEpoch);
        }
        if access == Access::LeaderOnly && !leads {
            return Err(AccessError::NotLeader);
        }
        Ok(current)
    }

    /// Whether the high watermark has not yet passed the start of this leadership, so that no end can be told.
    pub fn watermark_lags(&self) -> bool {
        match &*self.role.lock() {
            Role::Leader(leader) => leader.epoch_start() > self.log.high_watermark(),
            Role::None | Role::Follower { .. } => false,
        }
    }

    /// Begins to verify a transaction that a batch would open here; none where there is nothing to ask.
    /// See `Log::start_verification`.
    pub fn start_verification(
        &self,
        producer: (ProducerId, ProducerEpoch),
        first_sequence: i32,
    ) -> Result<Option<VerificationGuard>, AccessError> {
        if !self.is_leader() {
            return Err(AccessError::NotLeader);
        }
        Ok(self.log.start_verification(producer, first_sequence, clock::wall_clock()))
    }

    /// Appends a producer's batches. `in_sync_min` is given where acks=all: fewer in-sync replicas refuse. `guard` is of
    /// the verification that has begun for them.
    pub fn append_as_leader(
        &self,
        records: Checked,
        in_sync_min: Option<usize>,
        guard: Option<VerificationGuard>,
    ) -> Result<Appended, ProduceError> {
        let epoch = self.epoch_to_append(in_sync_min)?;
        let appended = match guard {
            Some(guard) => self.log.append_verified(records, epoch, guard),
            None => self.log.append_as_leader(records, epoch),
        }?;
        self.move_high_watermark();
        self.waiters.wake();
        Ok(appended)
    }

    /// Appends a batch of a coordinator, or a transaction marker. `elected` is the epoch that a coordinator took office
    /// with: in another one it does not append.
    pub fn append_as_coordinator(
        &self,
        records: Checked,
        in_sync_min: Option<usize>,
        elected: Option<LeaderEpoch>,
    ) -> Result<Appended, ProduceError> {
        let epoch = self.epoch_to_append(in_sync_min)?;
        if elected.is_some_and(|elected| elected != epoch) {
            return Err(AccessError::NotLeader.into());
        }
        let appended = self.log.append_as_coordinator(records, epoch)?;
        self.move_high_watermark();
        self.waiters.wake();
        Ok(appended)
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

    /// Whether every in-sync replica has the records before `end`.
    pub fn is_committed(&self, end: Offset) -> bool {
        self.log.high_watermark() >= end
    }

    /// Whether another broker's replica is of the assignment.
    pub fn has_replica(&self, id: BrokerId) -> bool {
        match &*self.role.lock() {
            Role::Leader(leader) => id != self.local && leader.replicas().contains(&id),
            Role::None | Role::Follower { .. } => false,
        }
    }

    /// Notes how far a follower has fetched, which may move the high watermark.
    pub fn follower_fetched(&self, id: BrokerId, end: Offset) {
        if let Role::Leader(leader) = &mut *self.role.lock() {
            leader.follower_fetched(id, end);
        }
        if self.move_high_watermark() {
            self.waiters.wake();
        }
    }

    fn move_high_watermark(&self) -> bool {
        let role = self.role.lock();
        let Role::Leader(leader) = &*role else { return false };
        let current = self.log.high_watermark();
        let reached = leader.high_watermark(self.log.end_offset(), current);
        if reached > current {
            self.log.set_high_watermark(reached);
        }
        reached > current
    }

    /// Becomes, or stays, the leader. The caller has checked the epochs.
    pub(crate) fn lead(&self, leadership: Leadership) {
        {
            let mut role = self.role.lock();
            match &mut *role {
                Role::Leader(leader) if leader.epoch() == leadership.epoch => {
                    leader.update(leadership);
                }
                _ => {
                    let end = self.log.end_offset();
                    self.log.assign_leader_epoch(leadership.epoch);
                    *role = Role::Leader(Leader::new(self.local, leadership, end));
                }
            }
        }
        self.move_high_watermark();
        self.waiters.wake();
    }

    /// Becomes a follower.
    pub(crate) fn follow(
        &self,
        leader: BrokerId,
        epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
    ) {
        *self.role.lock() = Role::Follower { leader, epoch, partition_epoch };
        self.waiters.wake();
    }

    /// Is no longer told of: whoever waits finds out.
    pub(crate) fn retire(&self) {
        *self.role.lock() = Role::None;
        self.waiters.wake();
    }

    pub(crate) fn add_waiter(&self, waiter: &Arc<Notify>) {
        self.waiters.add(waiter);
    }

    pub(crate) fn remove_waiter(&self, waiter: &Arc<Notify>) {
        self.waiters.remove(waiter);
    }
}

/// Waits for any of several partitions to change. Registered while it lives.
#[derive(Debug)]
pub struct ChangeWaiter {
    partitions: Vec<Arc<Partition>>,
    notify: Arc<Notify>,
}

impl ChangeWaiter {
    /// Registers with the partitions: a change after this is not missed, so look once more before waiting.
    pub fn new(partitions: Vec<Arc<Partition>>) -> ChangeWaiter {
        let notify = Arc::new(Notify::new());
        for partition in &partitions {
            partition.add_waiter(&notify);
        }
        ChangeWaiter { partitions, notify }
    }

    /// Ends at a change since the last call.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }
}

impl Drop for ChangeWaiter {
    fn drop(&mut self) {
        for partition in &self.partitions {
            partition.remove_waiter(&self.notify);
        }
    }
}
