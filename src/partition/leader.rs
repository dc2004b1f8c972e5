//! What a leader knows of its replicas, and what follows from it: the high watermark, the in-sync set, which acks are due.
//! Source: `kafka.cluster.Partition`, `kafka.cluster.Replica`, KIP-497.

use std::time::{Duration, Instant};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch},
};

/// The leadership of one partition on this broker. Owned by whoever holds the partition's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// This broker.
    local: BrokerId,
    /// The epoch that this leadership has now.
    epoch: LeaderEpoch,
    /// The epoch since which this broker leads without a break: nothing that it wrote since was cut off.
    led_since: LeaderEpoch,
    /// End of the log when the epoch began: records from here on are of this epoch.
    epoch_start: Offset,
    /// Version of the state znode that the in-sync set below comes from.
    partition_epoch: PartitionEpoch,
    /// How many replicas there shall be: those that a reassignment adds do not count yet.
    replication_factor: u32,
    /// Whether a reassignment goes on.
    is_reassigning: bool,
    /// Every replica, the preferred one first.
    replicas: Box<[BrokerId]>,
    /// The replicas that acks=all waits for, as the controller has agreed to.
    isr: Box<[BrokerId]>,
    /// What is known of each other replica.
    followers: Box<[Follower]>,
    /// The change of the in-sync set that the controller was asked for.
    pending: Option<Box<Pending>>,
}

/// What a leader knows of a follower, from its fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    id: BrokerId,
    /// End of its log as it last asked from; `Offset::NONE` before its first fetch.
    end: Offset,
    /// Start of its log as it last told; `Offset::NONE` before its first fetch.
    start: Offset,
    /// The registration it last fetched with; -1 where it did not say.
    broker_epoch: BrokerEpoch,
    /// When it last fetched, in this epoch; for a member of the in-sync set of its beginning, the beginning. None where it has
    /// not fetched since it fell out of the set.
    fetched: Option<Instant>,
    /// End of the leader's log at that time.
    end_when_fetched: Offset,
    /// The last time at which it had all that the leader had; none where it is not known to have had it.
    caught_up: Option<Instant>,
}

/// A change of the in-sync set that is not decided yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    isr: Box<[BrokerId]>,
    /// Whether the controller refused in a way that only it can resolve, by its next word.
    is_stuck: bool,
}

/// What the controller says of a partition that this broker is to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Epoch of the leadership.
    pub epoch: LeaderEpoch,
    /// Version of the state znode.
    pub partition_epoch: PartitionEpoch,
    /// Every replica, the preferred one first.
    pub replicas: Vec<BrokerId>,
    /// Those of them that a reassignment adds.
    pub adding: Vec<BrokerId>,
    /// Those of them that a reassignment takes away.
    pub removing: Vec<BrokerId>,
    /// The in-sync replicas; holds `local`.
    pub isr: Vec<BrokerId>,
}

/// A fetch of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetch {
    /// Who asks.
    pub id: BrokerId,
    /// Where it asks from: the end of its log.
    pub offset: Offset,
    /// The start of its log.
    pub start: Offset,
    /// Its registration; -1 where it does not say.
    pub broker_epoch: BrokerEpoch,
    /// End of the leader's log before it was read for this fetch.
    pub leader_end: Offset,
}

/// What decisions of a leader depend on beside the leader's own state.
#[derive(Clone, Copy)]
pub struct Circumstances<'a> {
    /// The time.
    pub now: Instant,
    /// `replica.lag.time.max.ms`.
    pub lag_time_max: Duration,
    /// `min.insync.replicas` of the topic.
    pub in_sync_min: usize,
    /// End of the local log.
    pub local_end: Offset,
    /// The high watermark.
    pub high_watermark: Offset,
    /// Whether a broker is registered, as far as this one knows.
    pub is_alive: &'a dyn Fn(BrokerId) -> bool,
}

/// A change of the in-sync set that the leader asks the controller for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The leadership that asks.
    pub epoch: LeaderEpoch,
    /// Version of the state znode that it builds on.
    pub partition_epoch: PartitionEpoch,
    /// The in-sync set that is wanted.
    pub isr: Box<[BrokerId]>,
}

/// What the controller says to a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The state of the partition now.
    Committed {
        /// Its leader epoch.
        epoch: LeaderEpoch,
        /// Version of its znode.
        partition_epoch: PartitionEpoch,
        /// Its in-sync set.
        isr: Vec<BrokerId>,
    },
    /// An error.
    Refused(ErrorCode),
}

/// What follows from the controller's answer to a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The answer is about something that is over.
    Ignored,
    /// The set is as the controller has it: it has grown, shrunk or stayed.
    Committed {
        /// Members before.
        before: usize,
        /// Members now.
        now: usize,
    },
    /// The set is as before the proposal.
    GivenUp,
    /// Nothing is proposed until the controller speaks, or `Leader::propose_again`.
    Stuck,
    /// The same is to be proposed again.
    Retry,
}

/// Why a produce with acks=all is refused before anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnoughReplicas {
    /// Size of the in-sync set.
    pub in_sync: usize,
    /// `min.insync.replicas` of the topic, or the number of replicas where that is less.
    pub required: usize,
}

/// Whether the log of a follower, which ends at `offset` with records of `last_epoch`, is the leader's as far as both go.
/// `known` is what the leader knows of that epoch: the largest one at or before it, and where it ends. Only then may the
/// leader's high watermark be told, for the follower takes all below it for committed.
pub fn is_one_log(
    (last_epoch, offset): (LeaderEpoch, Offset),
    known: Option<(LeaderEpoch, Offset)>,
    leader_end: Offset,
) -> bool {
    known.is_some_and(|(epoch, end)| epoch == last_epoch && (offset <= end || end == leader_end))
}

impl Follower {
    /// One that has not fetched yet. In the in-sync set it counts as caught up at first.
    fn new(id: BrokerId, caught_up: Option<Instant>) -> Follower {
        Follower {
            id,
            end: Offset::NONE,
            start: Offset::NONE,
            broker_epoch: BrokerEpoch(-1),
            fetched: None,
            end_when_fetched: Offset::NONE,
            caught_up,
        }
    }

    /// A new epoch of the same leader begins: offsets stay, times do not. Source: `Replica.resetReplicaState`.
    fn begin_epoch(&mut self, epoch_start: Offset, caught_up: Option<Instant>) {
        self.end_when_fetched = epoch_start;
        self.fetched = caught_up;
        self.caught_up = caught_up;
    }

    /// Source: `Replica.updateFetchStateOrThrow`.
    fn fetch(&mut self, fetch: &FollowerFetch, now: Instant) {
        if fetch.offset >= fetch.leader_end {
            self.caught_up = self.caught_up.max(Some(now));
        } else if fetch.offset >= self.end_when_fetched {
            // With a steady stream of small produces no fetch is ever at the end.
            self.caught_up = self.caught_up.max(self.fetched);
        }
        self.end = fetch.offset;
        self.start = fetch.start;
        self.broker_epoch = fetch.broker_epoch;
        self.end_when_fetched = self.end_when_fetched.max(fetch.leader_end);
        self.fetched = Some(now);
    }

    fn is_caught_up(&self, circumstances: &Circumstances<'_>) -> bool {
        let Circumstances { now, lag_time_max, local_end, .. } = *circumstances;
        let lag = self.caught_up.map(|time| now.saturating_duration_since(time));
        self.end == local_end || lag.is_some_and(|lag| lag <= lag_time_max)
    }

    /// Which broker it is.
    pub fn id(&self) -> BrokerId {
        self.id
    }

    /// End of its log as it last asked from; `Offset::NONE` before its first fetch.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Start of its log as it last told; `Offset::NONE` before its first fetch.
    pub fn start(&self) -> Offset {
        self.start
    }

    /// The registration it last fetched with; -1 where it did not say.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        self.broker_epoch
    }
}

impl Leader {
    /// Begins a leadership. `log_end` is the end of the local log at this moment.
    pub fn new(local: BrokerId, leadership: Leadership, log_end: Offset, now: Instant) -> Leader {
        let mut leader = Leader {
            local,
            epoch: leadership.epoch,
            led_since: leadership.epoch,
            epoch_start: log_end,
            partition_epoch: leadership.partition_epoch,
            replication_factor: 0,
            is_reassigning: false,
            replicas: Box::default(),
            isr: Box::default(),
            followers: Box::default(),
            pending: None,
        };
        leader.take(leadership, now);
        leader
    }

    /// Takes the controller's newer word of the same epoch; what followers have fetched is kept.
    pub fn update(&mut self, leadership: Leadership, now: Instant) {
        self.take(leadership, now);
    }

    /// Begins another epoch of the same leader. Where followers are is still known; whether they are caught up begins anew.
    pub fn begin_epoch(&mut self, leadership: Leadership, log_end: Offset, now: Instant) {
        self.epoch = leadership.epoch;
        self.epoch_start = log_end;
        let in_sync = leadership.isr.clone();
        self.take(leadership, now);
        for follower in &mut self.followers {
            let caught_up = in_sync.contains(&follower.id).then_some(now);
            follower.begin_epoch(log_end, caught_up);
        }
    }

    fn take(&mut self, leadership: Leadership, now: Instant) {
        let Leadership { replicas, adding, removing, isr, partition_epoch, .. } = leadership;
        // One whose leaving was this leader's wish has been waited for since then.
        let leaves = |id: &BrokerId| self.may_be_in_sync(*id) && !isr.contains(id);
        let leaving: Vec<BrokerId> = match &self.pending {
            Some(pending) => pending.isr.iter().copied().filter(leaves).collect(),
            None => self.isr.iter().copied().filter(leaves).collect(),
        };
        self.must_fetch_again(&leaving);
        let known = std::mem::take(&mut self.followers);
        let follower = |id: &BrokerId| {
            let known = known.iter().find(|follower| follower.id == *id);
            known.cloned().unwrap_or_else(|| Follower::new(*id, isr.contains(id).then_some(now)))
        };
        let others = replicas.iter().filter(|id| **id != self.local);
        self.followers = others.map(follower).collect();
        let count = replicas.iter().filter(|id| !adding.contains(id)).count();
        self.replication_factor = u32::try_from(count).unwrap_or(u32::MAX);
        self.is_reassigning = !adding.is_empty() || !removing.is_empty();
        self.partition_epoch = partition_epoch;
        self.replicas = replicas.into();
        self.isr = isr.into();
        // Whatever was asked for, this is the state now.
        self.pending = None;
    }

    /// What these followers have fetched does not bring them into the in-sync set again; their next fetch may.
    fn must_fetch_again(&mut self, ids: &[BrokerId]) {
        for follower in self.followers.iter_mut().filter(|follower| ids.contains(&follower.id)) {
            follower.fetched = None;
        }
    }

    /// The epoch of this leadership.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// The epoch since which this broker leads without a break.
    pub fn led_since(&self) -> LeaderEpoch {
        self.led_since
    }

    /// End of the log when the epoch began.
    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    /// Version of the state znode last taken.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// The in-sync replicas that the controller knows of.
    pub fn isr(&self) -> &[BrokerId] {
        &self.isr
    }

    /// Every replica, the preferred one first.
    pub fn replicas(&self) -> &[BrokerId] {
        &self.replicas
    }

    /// Whether a reassignment adds replicas or takes some away.
    pub fn is_reassigning(&self) -> bool {
        self.is_reassigning
    }

    /// The other replicas.
    pub fn followers(&self) -> &[Follower] {
        &self.followers
    }

    /// Whether a change of the in-sync set is not decided yet.
    pub fn is_changing(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether fewer replicas are in sync than there shall be.
    pub fn is_under_replicated(&self) -> bool {
        self.isr.len() < self.replication_factor as usize
    }

    /// How many replicas must be in sync: never more than there are, whatever `min.insync.replicas` says.
    /// Source: `Partition.effectiveMinIsr`.
    fn required(&self, in_sync_min: usize) -> usize {
        in_sync_min.min(self.followers.len() + 1)
    }

    /// Whether acks=all may be promised.
    pub fn check_in_sync(&self, in_sync_min: usize) -> Result<(), NotEnoughReplicas> {
        let (in_sync, required) = (self.isr.len(), self.required(in_sync_min));
        if in_sync < required { Err(NotEnoughReplicas { in_sync, required }) } else { Ok(()) }
    }

    /// Whether acks=all may be answered for what is committed: the set may have shrunk since the append.
    /// Members that are on their way in or out count. Source: `Partition.checkEnoughReplicasReachOffset`.
    pub fn check_still_in_sync(&self, in_sync_min: usize) -> Result<(), NotEnoughReplicas> {
        let in_sync = match &self.pending {
            Some(pending) => pending.isr.len().max(self.isr.len()),
            None => self.isr.len(),
        };
        let required = self.required(in_sync_min);
        if in_sync < required { Err(NotEnoughReplicas { in_sync, required }) } else { Ok(()) }
    }

    /// Whether the replica may have to be waited for: in sync for the controller, or on its way in. One on its way out still
    /// counts, for the controller may say no. Source: KIP-497, "maximal ISR".
    fn may_be_in_sync(&self, id: BrokerId) -> bool {
        let is_pending = self.pending.as_ref().is_some_and(|pending| pending.isr.contains(&id));
        is_pending || self.isr.contains(&id)
    }

    /// Notes a fetch. Whether the follower's end moved; an id outside the assignment is ignored.
    pub fn follower_fetched(&mut self, fetch: &FollowerFetch, now: Instant) -> bool {
        let follower = self.followers.iter_mut().find(|follower| follower.id == fetch.id);
        let Some(follower) = follower else { return false };
        let before = follower.end;
        follower.fetch(fetch, now);
        before != follower.end
    }

    /// The high watermark: the smallest end among the replicas that may be in sync, and never less than now. A follower
    /// of them that has not fetched yet holds it where it is. So does one outside the set that is caught up, or it could
    /// never come in. With fewer in sync than required it stays, so that what consumers have seen is on enough replicas.
    /// Source: `Partition.maybeIncrementLeaderHW`.
    pub fn high_watermark(&self, circumstances: &Circumstances<'_>) -> Offset {
        let current = circumstances.high_watermark;
        if self.check_in_sync(circumstances.in_sync_min).is_err() {
            return current;
        }
        let mut reached = circumstances.local_end;
        for follower in &self.followers {
            if follower.end >= reached {
                continue;
            }
            let joins =
                || follower.is_caught_up(circumstances) && (circumstances.is_alive)(follower.id);
            if self.may_be_in_sync(follower.id) || joins() {
                reached = follower.end;
            }
        }
        reached.max(current)
    }

    /// The smallest log start among live replicas: below it no record is left anywhere. `local_start` is the leader's.
    /// Source: `Partition.lowWatermarkIfLeader`.
    pub fn low_watermark(
        &self,
        local_start: Offset,
        is_alive: &dyn Fn(BrokerId) -> bool,
    ) -> Offset {
        let alive = self.followers.iter().filter(|follower| is_alive(follower.id));
        alive.map(|follower| follower.start).min().unwrap_or(local_start).min(local_start)
    }

    /// Records were appended at `at`. A follower that had all before them counts as caught up till now: while nothing
    /// changes its fetches are not looked at, so that the time of the last one says nothing.
    pub fn appended(&mut self, at: Offset, now: Instant) {
        for follower in self.followers.iter_mut().filter(|follower| follower.end == at) {
            follower.caught_up = follower.caught_up.max(Some(now));
        }
    }

    /// What is to be proposed now: first what got stuck, then that members have fallen behind, then that another replica
    /// has come up.
    pub fn propose(&mut self, circumstances: &Circumstances<'_>) -> Option<Proposal> {
        let again = self.propose_again();
        let shrinking = again.or_else(|| self.propose_shrinking(circumstances));
        shrinking.or_else(|| {
            let ids: Vec<BrokerId> = self.followers.iter().map(Follower::id).collect();
            ids.into_iter().find_map(|id| self.propose_expansion(id, circumstances))
        })
    }

    /// Whether `id` is to come into the in-sync set; if so, it counts as a member from now on.
    pub fn propose_expansion(
        &mut self,
        id: BrokerId,
        circumstances: &Circumstances<'_>,
    ) -> Option<Proposal> {
        if self.pending.is_some() || self.isr.contains(&id) {
            return None;
        }
        let follower = self.followers.iter().find(|follower| follower.id == id)?;
        // One that was thrown out, by the controller or before this epoch, shows by a fetch that it is there and has what it had.
        let is_in_sync = follower.fetched.is_some()
            && follower.end >= circumstances.high_watermark
            && follower.end >= self.epoch_start;
        if !is_in_sync || !(circumstances.is_alive)(id) {
            return None;
        }
        let isr = self.isr.iter().copied().chain([id]).collect();
        Some(self.ask_for(isr))
    }

    /// Whether members of the in-sync set have fallen behind; they count until the controller agrees.
    pub fn propose_shrinking(&mut self, circumstances: &Circumstances<'_>) -> Option<Proposal> {
        if self.pending.is_some() {
            return None;
        }
        let is_behind = |id: &BrokerId| {
            let follower = self.followers.iter().find(|follower| follower.id == *id);
            let keeps_up = follower.is_some_and(|follower| follower.is_caught_up(circumstances));
            *id != self.local && !keeps_up
        };
        let (behind, isr): (Vec<BrokerId>, Vec<BrokerId>) =
            self.isr.iter().copied().partition(is_behind);
        if behind.is_empty() {
            return None;
        }
        self.must_fetch_again(&behind);
        Some(self.ask_for(isr.into()))
    }

    fn ask_for(&mut self, isr: Box<[BrokerId]>) -> Proposal {
        self.pending = Some(Box::new(Pending { isr: isr.clone(), is_stuck: false }));
        Proposal { epoch: self.epoch, partition_epoch: self.partition_epoch, isr }
    }

    /// A proposal that only the controller's next word could resolve is made once more, for that word may have been
    /// lost. Kafka waits for ever.
    pub fn propose_again(&mut self) -> Option<Proposal> {
        let (epoch, partition_epoch) = (self.epoch, self.partition_epoch);
        let pending = self.pending.as_mut().filter(|pending| pending.is_stuck)?;
        pending.is_stuck = false;
        Some(Proposal { epoch, partition_epoch, isr: pending.isr.clone() })
    }

    /// Takes the controller's answer to a proposal. Source: `Partition.submitAlterPartition`.
    pub fn answered(&mut self, proposal: &Proposal, verdict: Verdict) -> Answered {
        let is_ours = proposal.epoch == self.epoch
            && proposal.partition_epoch == self.partition_epoch
            && self.pending.as_ref().is_some_and(|pending| pending.isr == proposal.isr);
        if !is_ours {
            return Answered::Ignored;
        }
        match verdict {
            Verdict::Committed { epoch, partition_epoch, .. }
                if epoch != self.epoch || partition_epoch < self.partition_epoch =>
            {
                self.get_stuck()
            }
            Verdict::Committed { partition_epoch, isr, .. } => {
                let before = self.isr.len();
                self.partition_epoch = partition_epoch;
                self.isr = isr.into();
                self.pending = None;
                Answered::Committed { before, now: self.isr.len() }
            }
            Verdict::Refused(ErrorCode::OperationNotAttempted | ErrorCode::IneligibleReplica) => {
                self.pending = None;
                Answered::GivenUp
            }
            Verdict::Refused(
                ErrorCode::UnknownTopicOrPartition
                | ErrorCode::UnknownTopicId
                | ErrorCode::FencedLeaderEpoch
                | ErrorCode::InvalidUpdateVersion
                | ErrorCode::InvalidRequest
                | ErrorCode::NewLeaderElected,
            ) => self.get_stuck(),
            Verdict::Refused(_) => Answered::Retry,
        }
    }

    fn get_stuck(&mut self) -> Answered {
        if let Some(pending) = &mut self.pending {
            pending.is_stuck = true;
        }
        Answered::Stuck
    }
}
