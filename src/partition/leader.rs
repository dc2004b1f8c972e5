//! What a leader knows of its replicas, and what follows from it: the high watermark, and which acks are due.
//! Source: `kafka.cluster.Partition`, KIP-497.

use common::ids::{BrokerId, LeaderEpoch, Offset, PartitionEpoch};

/// The leadership of one partition on this broker. Owned by whoever holds the partition's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// This broker.
    local: BrokerId,
    /// The epoch that this leadership began with.
    epoch: LeaderEpoch,
    /// End of the log when the leadership began: records from here on are of this epoch.
    epoch_start: Offset,
    /// Version of the state znode that the in-sync set below comes from.
    partition_epoch: PartitionEpoch,
    /// Every replica, the preferred one first.
    replicas: Box<[BrokerId]>,
    /// The replicas that acks=all waits for.
    isr: Box<[BrokerId]>,
    /// How far each other replica has fetched; one entry per replica but this broker.
    followers: Box<[Follower]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Follower {
    id: BrokerId,
    /// End of its log as it last asked from; `Offset::NONE` before its first fetch.
    end: Offset,
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
    /// The in-sync replicas; holds `local`.
    pub isr: Vec<BrokerId>,
}

/// Why a produce with acks=all is refused before anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnoughReplicas {
    /// Size of the in-sync set.
    pub in_sync: usize,
    /// `min.insync.replicas` of the topic, or the number of replicas where that is less.
    pub required: usize,
}

impl Leader {
    /// Begins a leadership. `log_end` is the end of the local log at this moment.
    pub fn new(local: BrokerId, leadership: Leadership, log_end: Offset) -> Leader {
        let followers = leadership.replicas.iter().filter(|id| **id != local);
        Leader {
            local,
            epoch: leadership.epoch,
            epoch_start: log_end,
            partition_epoch: leadership.partition_epoch,
            followers: followers.map(|id| Follower { id: *id, end: Offset::NONE }).collect(),
            replicas: leadership.replicas.into(),
            isr: leadership.isr.into(),
        }
    }

    /// Takes a newer in-sync set or assignment of the same epoch; what followers have fetched is kept.
    pub fn update(&mut self, leadership: Leadership) {
        let known = std::mem::take(&mut self.followers);
        let end_of = |id: BrokerId| {
            known.iter().find(|follower| follower.id == id).map_or(Offset::NONE, |known| known.end)
        };
        let others = leadership.replicas.iter().filter(|id| **id != self.local);
        self.followers = others.map(|id| Follower { id: *id, end: end_of(*id) }).collect();
        self.partition_epoch = leadership.partition_epoch;
        self.replicas = leadership.replicas.into();
        self.isr = leadership.isr.into();
    }

    /// The epoch of this leadership.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// End of the log when the leadership began.
    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    /// Version of the state znode last taken.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// The in-sync replicas.
    pub fn isr(&self) -> &[BrokerId] {
        &self.isr
    }

    /// Every replica, the preferred one first.
    pub fn replicas(&self) -> &[BrokerId] {
        &self.replicas
    }

    /// Notes how far a follower has fetched. An id outside the assignment is ignored.
    pub fn follower_fetched(&mut self, id: BrokerId, end: Offset) {
        if let Some(follower) = self.followers.iter_mut().find(|follower| follower.id == id) {
            follower.end = end;
        }
    }

    /// Whether acks=all may be promised. More than all replicas are never required, whatever `min.insync.replicas`
    /// says. Source: `Partition.effectiveMinIsr`.
    pub fn check_in_sync(&self, required: usize) -> Result<(), NotEnoughReplicas> {
        let in_sync = self.isr.len();
        let required = required.min(self.followers.len() + 1);
        if in_sync < required { Err(NotEnoughReplicas { in_sync, required }) } else { Ok(()) }
    }

    /// The high watermark: the smallest end among the in-sync replicas, and never less than `current`.
    /// A follower of the in-sync set that has not fetched yet holds it where it is.
    pub fn high_watermark(&self, local_end: Offset, current: Offset) -> Offset {
        let in_sync = self.followers.iter().filter(|follower| self.isr.contains(&follower.id));
        let reached = in_sync.map(|follower| follower.end).min().unwrap_or(local_end);
        reached.min(local_end).max(current)
    }
}

#[cfg(test)]
mod tests {
    use common::ids::{BrokerId, LeaderEpoch, Offset, PartitionEpoch};

    use super::{Leader, Leadership, NotEnoughReplicas};

    fn leadership(replicas: &[i32], isr: &[i32]) -> Leadership {
        Leadership {
            epoch: LeaderEpoch(3),
            partition_epoch: PartitionEpoch(7),
            replicas: replicas.iter().map(|id| BrokerId(*id)).collect(),
            isr: isr.iter().map(|id| BrokerId(*id)).collect(),
        }
    }

    #[test]
    fn a_lone_leader_commits_what_it_writes() {
        let leader = Leader::new(BrokerId(1), leadership(&[1], &[1]), Offset(5));
        assert_eq!(leader.high_watermark(Offset(9), Offset(5)), Offset(9));
        assert_eq!(leader.epoch_start(), Offset(5));
    }

    #[test]
    fn the_slowest_in_sync_follower_holds_the_watermark() {
        let mut leader = Leader::new(BrokerId(1), leadership(&[1, 2, 3], &[1, 2]), Offset(0));
        assert_eq!(leader.high_watermark(Offset(9), Offset(4)), Offset(4), "2 has not fetched");
        leader.follower_fetched(BrokerId(2), Offset(6));
        leader.follower_fetched(BrokerId(4), Offset(1));
        assert_eq!(leader.high_watermark(Offset(9), Offset(4)), Offset(6), "3 is not in sync");
        assert_eq!(leader.high_watermark(Offset(9), Offset(8)), Offset(8), "it never goes back");
    }

    #[test]
    fn a_shrunk_set_releases_the_watermark_and_may_be_too_small() {
        let mut leader = Leader::new(BrokerId(1), leadership(&[1, 2], &[1, 2]), Offset(0));
        assert_eq!(leader.high_watermark(Offset(9), Offset(0)), Offset(0));
        leader.update(leadership(&[1, 2], &[1]));
        assert_eq!(leader.high_watermark(Offset(9), Offset(0)), Offset(9));
        assert_eq!(leader.check_in_sync(2), Err(NotEnoughReplicas { in_sync: 1, required: 2 }));
        assert_eq!(leader.check_in_sync(1), Ok(()));
    }

    #[test]
    fn no_more_replicas_are_required_than_there_are() {
        let leader = Leader::new(BrokerId(1), leadership(&[1], &[1]), Offset(0));
        assert_eq!(leader.check_in_sync(2), Ok(()));
        let leader = Leader::new(BrokerId(1), leadership(&[1, 2], &[1]), Offset(0));
        assert_eq!(leader.check_in_sync(3), Err(NotEnoughReplicas { in_sync: 1, required: 2 }));
    }

    #[test]
    fn an_update_keeps_what_followers_have_fetched() {
        let mut leader = Leader::new(BrokerId(1), leadership(&[1, 2], &[1, 2]), Offset(0));
        leader.follower_fetched(BrokerId(2), Offset(8));
        leader.update(leadership(&[1, 2, 3], &[1, 2]));
        assert_eq!(leader.high_watermark(Offset(9), Offset(0)), Offset(8));
    }
}
