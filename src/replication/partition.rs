//! A partition that this broker hosts: its log, its role, and who waits for it. Source: `kafka.cluster.Partition`.

mod append;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{
    clock,
    ids::{BrokerId, LeaderEpoch, Offset, PartitionEpoch, ProducerEpoch, ProducerId},
    topic::{TopicPartition, Uuid},
};
use parking_lot::{Mutex, RwLock};
use partition::leader::{
    Answered, Circumstances, Follower, FollowerFetch, Leader, Leadership, NotEnoughReplicas,
    Proposal, Verdict,
};
use storage::{
    error::{AppendError, LogError},
    log::Log,
    verification::VerificationGuard,
};
use tracing::{debug, info, warn};

use crate::{
    replica_manager::Access,
    surroundings::Surroundings,
    topic_settings::TopicSettings,
    waiters::{Changes, Waiters},
};

const LOG: &str = "kafka.cluster.Partition";
/// For so long followers without room leave it to leaders to give way: where both do at once, nobody may be left.
const LEADERS_FIRST: Duration = Duration::from_secs(3);

/// A partition of this broker. The role's lock is held for a few lines, and never across an append.
#[derive(Debug)]
pub struct Partition {
    topic_id: OnceLock<Uuid>,
    surroundings: Arc<Surroundings>,
    log: Arc<Log>,
    settings: Mutex<Arc<TopicSettings>>,
    role: Mutex<Role>,
    /// The controller was told that this leader has no room, and has not spoken since. Changed with the role.
    gives_way: AtomicBool,
    /// The controller's last word had this follower not in sync, and nothing was copied since.
    is_behind: AtomicBool,
    /// What the leader sent last was not copied for want of room.
    lacks_room: AtomicBool,
    /// Shared by those who write to the log in a role, from the look at the role to the end of the write; held alone by
    /// who changes the role. Taken before the role's lock.
    pub(crate) writing: RwLock<()>,
    waiters: Waiters,
}

/// What this broker is to the partition.
#[derive(Debug)]
enum Role {
    /// Not told yet: neither read nor written.
    None,
    /// Takes produces, answers fetches.
    Leader(Leader),
    /// Is to lead, and gets what the former leader has: neither written nor read meanwhile. See `takeover`.
    TakingOver {
        leadership: Leadership,
        /// The epoch in which that began. A newer one of the same leader goes on with it.
        since: LeaderEpoch,
    },
    /// Copies from the leader.
    Follower {
        leader: BrokerId,
        epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        /// This broker led before, and the new leader may not have all that it took.
        owes: bool,
    },
}

/// What has become of appended records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Every in-sync replica has them.
    Done,
    /// Not yet.
    Waiting,
    /// Every in-sync replica has them, but by now these are fewer than acks=all asks for.
    NotEnoughReplicas,
    /// The leadership ended first: nobody knows.
    Lost,
}

/// What of led partitions is not as it should be, for the metrics of Kafka's ReplicaManager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether this broker leads it.
    pub is_led: bool,
    /// Fewer replicas are in sync than there shall be.
    pub is_under_replicated: bool,
    /// Fewer replicas are in sync than acks=all asks for.
    pub is_under_min_isr: bool,
    /// Just as many replicas are in sync as acks=all asks for.
    pub is_at_min_isr: bool,
    /// A reassignment adds replicas or takes some away.
    pub is_reassigning: bool,
}

/// Why a partition cannot be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// This broker does not lead it.
    #[error("this broker does not lead the partition")]
    NotLeader,
    /// This broker is about to lead it.
    #[error("this broker still takes the partition over from its former leader")]
    TakingOver,
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

/// Why what a former leader has was not appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeOverError {
    /// The controller has said something else since.
    #[error("the partition is not taken over any more")]
    Superseded,
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Partition {
    pub(crate) fn new(
        topic_id: Option<Uuid>,
        surroundings: Arc<Surroundings>,
        log: Arc<Log>,
        settings: Arc<TopicSettings>,
    ) -> Partition {
        Partition {
            topic_id: topic_id.map(OnceLock::from).unwrap_or_default(),
            surroundings,
            log,
            settings: Mutex::new(settings),
            role: Mutex::new(Role::None),
            gives_way: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            lacks_room: AtomicBool::new(false),
            writing: RwLock::new(()),
            waiters: Waiters::default(),
        }
    }

    /// The topic and number.
    pub fn topic_partition(&self) -> &TopicPartition {
        self.log.partition()
    }

    /// The topic's id, where it has one.
    pub fn topic_id(&self) -> Option<Uuid> {
        self.topic_id.get().copied()
    }

    /// Takes the id of a topic that had none.
    pub(crate) fn learn_topic_id(&self, id: Uuid) {
        // One that is known already stays.
        let _ = self.topic_id.set(id);
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
        self.surroundings.note_change();
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
            Role::TakingOver { leadership, .. } => leadership.epoch,
            Role::Follower { epoch, .. } => *epoch,
        }
    }

    /// The leader as this broker knows it, and its epoch.
    pub fn leader(&self) -> (BrokerId, LeaderEpoch) {
        match &*self.role.lock() {
            Role::None => (BrokerId::NONE, LeaderEpoch::NONE),
            Role::Leader(leader) => (self.surroundings.local, leader.epoch()),
            Role::TakingOver { leadership, .. } => (self.surroundings.local, leadership.epoch),
            Role::Follower { leader, epoch, .. } => (*leader, *epoch),
        }
    }

    /// Version of the state znode last taken; -1 before the controller has spoken.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        match &*self.role.lock() {
            Role::None => PartitionEpoch(-1),
            Role::Leader(leader) => leader.partition_epoch(),
            Role::TakingOver { leadership, .. } => leadership.partition_epoch,
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
            Role::TakingOver { leadership, .. } => (leadership.epoch, false),
            Role::Follower { epoch, .. } => (*epoch, false),
        };
        if epoch != LeaderEpoch::NONE && epoch < current {
            return Err(AccessError::FencedEpoch);
        }
        if epoch != LeaderEpoch::NONE && epoch > current {
            return Err(AccessError::UnknownEpoch);
        }
        if matches!(&*role, Role::TakingOver { .. }) {
            return Err(AccessError::TakingOver);
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
            Role::None | Role::TakingOver { .. } | Role::Follower { .. } => false,
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

    /// Whether another broker's replica is of the assignment.
    pub fn has_replica(&self, id: BrokerId) -> bool {
        match &*self.role.lock() {
            Role::Leader(leader) => {
                id != self.surroundings.local && leader.replicas().contains(&id)
            }
            Role::None | Role::TakingOver { .. } | Role::Follower { .. } => false,
        }
    }

    /// Notes a follower's fetch, which may move the high watermark, or bring the follower into the in-sync set. Whether
    /// it is in the set now.
    pub fn follower_fetched(self: &Arc<Self>, fetch: &FollowerFetch) -> bool {
        let (mut has_moved, mut proposal, mut is_in_sync) = (false, None, false);
        if let Role::Leader(leader) = &mut *self.role.lock() {
            let start_before = self.low_watermark_of(leader);
            let end_moved = leader.follower_fetched(fetch, clock::now());
            is_in_sync = leader.isr().contains(&fetch.id);
            if !is_in_sync {
                proposal = self.with_circumstances(|now| leader.propose_expansion(fetch.id, now));
            }
            has_moved = end_moved && self.move_high_watermark(leader);
            has_moved |= start_before != self.low_watermark_of(leader);
        }
        if has_moved {
            self.waiters.wake();
        }
        self.submit(proposal);
        is_in_sync
    }

    /// Looks whether replicas have fallen out of the in-sync set, or may come into it. To be called from time to time.
    pub fn check_in_sync_set(self: &Arc<Self>) {
        let proposal = match &mut *self.role.lock() {
            Role::Leader(leader) if !leader.followers().is_empty() => self.propose(leader),
            _ => None,
        };
        self.submit(proposal);
    }

    fn submit(self: &Arc<Self>, proposal: Option<Proposal>) {
        if let Some(proposal) = proposal {
            debug!(target: LOG, partition = %self.topic_partition(), isr = %ids(&proposal.isr), "asks the controller for another in-sync set");
            self.surroundings.proposals.put(self, proposal);
        }
    }

    /// Whether another in-sync replica is to lead, for here is no room: not while the controller is asked for another
    /// in-sync set, which may have none. From now on it is not asked for one.
    pub(crate) fn give_way(&self) -> bool {
        let role = self.role.lock();
        let can = !matches!(&*role, Role::Leader(leader) if leader.is_changing());
        self.gives_way.store(can, Ordering::Relaxed);
        can
    }

    /// Whether this broker has no room, and another in-sync replica might go on without it.
    pub(crate) fn is_to_give_way(&self) -> bool {
        if !self.log.log_directory().is_short_of_room() {
            return false;
        }
        match &*self.role.lock() {
            Role::Leader(leader) => leader.isr().len() > 1,
            Role::Follower { leader, .. } => {
                let is_in_sync = !self.is_behind.load(Ordering::Relaxed);
                *leader != BrokerId::NONE && is_in_sync && self.holds_up_its_leader()
            }
            Role::None | Role::TakingOver { .. } => false,
        }
    }

    /// Notes whether what the leader sent was not copied for want of room.
    pub(crate) fn note_room(&self, lacks_room: bool) {
        if self.lacks_room.load(Ordering::Relaxed) != lacks_room {
            self.lacks_room.store(lacks_room, Ordering::Relaxed);
        }
        // It may come to be in sync without another word.
        let catches_up = !lacks_room && self.is_behind.load(Ordering::Relaxed);
        if catches_up && !self.log.log_directory().is_short_of_room() {
            self.is_behind.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a follower has had no room for a while for what its leader has, which cannot commit that as long as it waits.
    pub(crate) fn holds_up_its_leader(&self) -> bool {
        self.lacks_room.load(Ordering::Relaxed)
            && self.log.log_directory().short_of_room_for(clock::now()) >= LEADERS_FIRST
    }

    /// Notes whether this follower is in sync by the controller's word.
    pub(crate) fn note_in_sync(&self, is_in_sync: bool) {
        self.is_behind.store(!is_in_sync, Ordering::Relaxed);
    }

    /// Whether nothing is to be copied until there is room: nobody waits for a follower that is not in sync.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed) && self.log.log_directory().is_short_of_room()
    }

    /// What is to be proposed now. That replicas fall out is said, in Kafka's words. Nothing where the log cannot be read:
    /// followers are behind for that then, and one of them is to lead. Nor where that is so for want of room.
    fn propose(&self, leader: &mut Leader) -> Option<Proposal> {
        let directory = self.log.log_directory();
        let gives_way = self.gives_way.load(Ordering::Relaxed) && directory.is_short_of_room();
        if directory.is_offline() || gives_way {
            return None;
        }
        let proposal = self.with_circumstances(|now| leader.propose(now))?;
        if proposal.isr.len() < leader.isr().len() {
            let falls_out = |follower: &&Follower| {
                leader.isr().contains(&follower.id()) && !proposal.isr.contains(&follower.id())
            };
            let behind = leader.followers().iter().filter(falls_out).map(|follower| {
                format!("(brokerId: {}, endOffset: {})", follower.id(), follower.end())
            });
            info!(
                target: LOG,
                "[Partition {} broker={}] Shrinking ISR from {} to {}. Leader: (highWatermark: {}, endOffset: {}). Out of sync replicas: {}.",
                self.topic_partition(),
                self.surroundings.local,
                ids(leader.isr()),
                ids(&proposal.isr),
                self.log.high_watermark(),
                self.log.end_offset(),
                behind.collect::<Vec<_>>().join(" ")
            );
        }
        Some(proposal)
    }

    /// Takes the controller's answer to a proposal.
    pub fn proposal_answered(self: &Arc<Self>, proposal: &Proposal, verdict: Verdict) {
        let mut next = None;
        let mut has_moved = false;
        let metrics = &self.surroundings.metrics;
        if let Role::Leader(leader) = &mut *self.role.lock() {
            let refusal = match &verdict {
                Verdict::Refused(error) => Some(*error),
                Verdict::Committed { .. } => None,
            };
            match leader.answered(proposal, verdict) {
                Answered::Ignored => {}
                Answered::Committed { before, now } => {
                    if now > before {
                        metrics.isr_expands.mark(1);
                    } else if now < before {
                        metrics.isr_shrinks.mark(1);
                    }
                    let required = self.settings.lock().in_sync_replicas_min;
                    let is_under = leader.check_in_sync(required).is_err();
                    info!(
                        target: LOG,
                        "[Partition {} broker={}] ISR updated to {} {}and version updated to {}",
                        self.topic_partition(),
                        self.surroundings.local,
                        ids(leader.isr()),
                        if is_under { "(under-min-isr) " } else { "" },
                        leader.partition_epoch()
                    );
                    // Whoever waits with acks=all looks at the size of the set as well.
                    has_moved = true;
                    self.move_high_watermark(leader);
                    next = self.propose(leader);
                }
                Answered::Retry => {
                    metrics.failed_isr_updates.mark(1);
                    next = Some(proposal.clone());
                }
                Answered::GivenUp | Answered::Stuck => {
                    metrics.failed_isr_updates.mark(1);
                    warn!(target: LOG, partition = %self.topic_partition(), ?refusal, "the controller refused another in-sync set");
                }
            }
        }
        if has_moved {
            self.role_changed();
        }
        if let Some(next) = next {
            self.surroundings.proposals.put(self, next);
        }
    }

    /// Raises the start of the log that this broker leads; followers come after when they fetch.
    pub fn delete_records_before(&self, offset: Offset) -> Result<(), LogError> {
        self.log.advance_start_offset(offset)?;
        self.waiters.wake();
        Ok(())
    }

    /// Below it no live replica has records. `None` where this broker does not lead.
    pub fn low_watermark(&self) -> Option<Offset> {
        match &*self.role.lock() {
            Role::Leader(leader) => Some(self.low_watermark_of(leader)),
            Role::None | Role::TakingOver { .. } | Role::Follower { .. } => None,
        }
    }

    fn low_watermark_of(&self, leader: &Leader) -> Offset {
        let is_alive = |id| self.surroundings.is_alive(id);
        leader.low_watermark(self.log.start_offset(), &is_alive)
    }

    /// Whether what is sent of it to followers is bounded.
    pub fn is_throttled_as_leader(&self) -> bool {
        let settings = self.settings.lock();
        settings
            .leader_throttled
            .contains(self.topic_partition().partition, self.surroundings.local)
    }

    /// Whether what is fetched for it is bounded.
    pub fn is_throttled_as_follower(&self) -> bool {
        let settings = self.settings.lock();
        settings
            .follower_throttled
            .contains(self.topic_partition().partition, self.surroundings.local)
    }

    /// Looks at the leadership, where this broker leads.
    pub fn as_leader<T>(&self, look: impl FnOnce(&Leader) -> T) -> Option<T> {
        match &*self.role.lock() {
            Role::Leader(leader) => Some(look(leader)),
            Role::None | Role::TakingOver { .. } | Role::Follower { .. } => None,
        }
    }

    /// How the in-sync set stands, where this broker leads.
    pub fn health(&self) -> Health {
        let required = self.settings.lock().in_sync_replicas_min;
        self.as_leader(|leader| {
            let required = required.min(leader.replicas().len());
            Health {
                is_led: true,
                is_under_replicated: leader.is_under_replicated(),
                is_under_min_isr: leader.isr().len() < required,
                is_at_min_isr: leader.isr().len() == required,
                is_reassigning: leader.is_reassigning(),
            }
        })
        .unwrap_or_default()
    }

    fn with_circumstances<T>(&self, decide: impl FnOnce(&Circumstances<'_>) -> T) -> T {
        decide(&Circumstances {
            now: clock::now(),
            lag_time_max: self.surroundings.lag_time_max,
            in_sync_min: self.settings.lock().in_sync_replicas_min,
            local_end: self.log.end_offset(),
            high_watermark: self.log.high_watermark(),
            is_alive: &|id| self.surroundings.is_alive(id),
        })
    }

    fn move_high_watermark(&self, leader: &Leader) -> bool {
        let current = self.log.high_watermark();
        // Without followers there is nothing to weigh.
        let reached = match leader.followers() {
            [] => self.log.end_offset(),
            _ => self.with_circumstances(|now| leader.high_watermark(now)),
        };
        if reached > current {
            self.log.set_high_watermark(reached);
        }
        reached > current
    }

    /// Becomes, or stays, the leader. The caller has checked the epochs.
    pub(crate) fn lead(self: &Arc<Self>, leadership: Leadership) {
        {
            let _writing = self.writing.write();
            let mut role = self.role.lock();
            let now = clock::now();
            let end = self.log.end_offset();
            match &mut *role {
                Role::Leader(leader) if leader.epoch() == leadership.epoch => {
                    leader.update(leadership, now);
                }
                Role::Leader(leader) => {
                    self.log.assign_leader_epoch(leadership.epoch);
                    leader.begin_epoch(leadership, end, now);
                }
                // The takeover goes on, and ends with the newer word. In the epoch after it nobody else has led.
                Role::TakingOver { leadership: known, .. }
                    if leadership.epoch.0 - known.epoch.0 <= 1 =>
                {
                    *known = leadership;
                }
                Role::None | Role::TakingOver { .. } | Role::Follower { .. } => {
                    self.log.assign_leader_epoch(leadership.epoch);
                    let local = self.surroundings.local;
                    *role = Role::Leader(Leader::new(local, leadership, end, now));
                }
            }
            if let Role::Leader(leader) = &*role {
                self.move_high_watermark(leader);
            }
            self.gives_way.store(false, Ordering::Relaxed);
        }
        self.role_changed();
    }

    /// Is to lead, once it has what the former leader has. The caller has checked the epochs, and sees to it that
    /// `end_takeover` follows.
    pub(crate) fn begin_takeover(&self, leadership: Leadership) {
        {
            let _writing = self.writing.write();
            let since = leadership.epoch;
            *self.role.lock() = Role::TakingOver { leadership, since };
        }
        self.role_changed();
    }

    /// The epoch in which it is to lead, while the takeover goes on that began in `since`.
    pub(crate) fn takes_over(&self, since: LeaderEpoch) -> Option<LeaderEpoch> {
        match &*self.role.lock() {
            Role::TakingOver { leadership, since: began } if *began == since => {
                Some(leadership.epoch)
            }
            _ => None,
        }
    }

    /// Leads now, unless the controller has said something else than that since the takeover began. Whether it does.
    pub(crate) fn end_takeover(self: &Arc<Self>, since: LeaderEpoch) -> bool {
        {
            let _writing = self.writing.write();
            let mut role = self.role.lock();
            let leadership = match &mut *role {
                Role::TakingOver { leadership, since: began } if *began == since => {
                    leadership.clone()
                }
                _ => return false,
            };
            self.log.assign_leader_epoch(leadership.epoch);
            let (local, end) = (self.surroundings.local, self.log.end_offset());
            let leader = Leader::new(local, leadership, end, clock::now());
            self.move_high_watermark(&leader);
            *role = Role::Leader(leader);
        }
        self.role_changed();
        true
    }

    /// Appends what the former leader has, while the takeover goes on that began in `since`. May wait for a disk.
    pub(crate) fn append_taken_over(
        &self,
        since: LeaderEpoch,
        records: &[u8],
    ) -> Result<(), TakeOverError> {
        let _writing = self.writing.read();
        match &*self.role.lock() {
            Role::TakingOver { since: began, .. } if *began == since => {}
            _ => return Err(TakeOverError::Superseded),
        }
        self.log.append_as_follower(records)?;
        Ok(())
    }

    /// Whether the asker leads now what this broker led, so that it may have all that is here. `end` is how far it has come:
    /// once that is the end, nothing is owed any more. The asker may know a newer epoch of its own.
    pub fn hands_over_to(&self, id: BrokerId, epoch: LeaderEpoch, end: Offset) -> bool {
        match &mut *self.role.lock() {
            Role::Follower { leader, epoch: current, owes, .. }
                if (*leader == id || *leader == BrokerId::NONE) && *current <= epoch && *owes =>
            {
                *owes = end < self.log.end_offset();
                true
            }
            _ => false,
        }
    }

    /// Whether the new leader may not have all that this broker took while it led.
    pub(crate) fn owes(&self) -> bool {
        matches!(&*self.role.lock(), Role::Follower { owes: true, .. })
    }

    /// The log is the leader's from here on.
    pub(crate) fn owes_no_more(&self) {
        if let Role::Follower { owes, .. } = &mut *self.role.lock() {
            *owes = false;
        }
    }

    /// Becomes, or stays, a follower. The caller has checked the epochs.
    pub(crate) fn follow(
        &self,
        leader: BrokerId,
        epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
    ) {
        {
            let _writing = self.writing.write();
            let mut role = self.role.lock();
            let owes = match &*role {
                Role::Leader(known) => known.epoch().0 + 1 == epoch.0,
                // The same leader's next epoch finds it still taking over, or has nothing to ask.
                Role::Follower { leader: known_leader, epoch: known, owes, .. } => {
                    *owes && *known_leader == leader && epoch.0 - known.0 <= 1
                }
                Role::None | Role::TakingOver { .. } => false,
            };
            *role = Role::Follower { leader, epoch, partition_epoch, owes };
            self.gives_way.store(false, Ordering::Relaxed);
        }
        self.role_changed();
    }

    /// Is no longer told of: whoever waits finds out.
    pub(crate) fn retire(&self) {
        {
            let _writing = self.writing.write();
            *self.role.lock() = Role::None;
        }
        self.role_changed();
    }

    /// The leader that is followed, and its epoch.
    pub(crate) fn followed(&self) -> Option<(BrokerId, LeaderEpoch)> {
        match &*self.role.lock() {
            Role::Follower { leader, epoch, .. } => Some((*leader, *epoch)),
            Role::None | Role::Leader(_) | Role::TakingOver { .. } => None,
        }
    }

    /// What all partitions of this broker share.
    pub fn surroundings(&self) -> &Arc<Surroundings> {
        &self.surroundings
    }

    /// Whoever waits finds out, and what is counted is counted again.
    fn role_changed(&self) {
        self.surroundings.note_change();
        self.waiters.wake();
    }

    /// Wakes whoever waits for a change.
    pub fn wake(&self) {
        self.waiters.wake();
    }

    pub(crate) fn add_waiter(&self, waiter: &Arc<Changes>, slot: u32) {
        self.waiters.add(waiter, slot);
    }

    pub(crate) fn remove_waiter(&self, waiter: &Arc<Changes>, slot: u32) {
        self.waiters.remove(waiter, slot);
    }
}

/// Broker ids as Kafka's log lines have them.
fn ids(brokers: &[BrokerId]) -> String {
    brokers.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(",")
}

/// Waits for any of several partitions to change. Registered while it lives.
#[derive(Debug)]
pub struct ChangeWaiter {
    partitions: Vec<Arc<Partition>>,
    changes: Arc<Changes>,
}

impl ChangeWaiter {
    /// Registers with the partitions: a change after this is not missed, so look once more before waiting.
    pub fn new(partitions: Vec<Arc<Partition>>) -> ChangeWaiter {
        let changes = Arc::new(Changes::default());
        for partition in &partitions {
            partition.add_waiter(&changes, 0);
        }
        ChangeWaiter { partitions, changes }
    }

    /// Ends at a change since the last call.
    pub async fn changed(&self) {
        self.changes.wait().await;
    }
}

impl Drop for ChangeWaiter {
    fn drop(&mut self) {
        for partition in &self.partitions {
            partition.remove_waiter(&self.changes, 0);
        }
    }
}
