//! Which leader wrote which offsets of a log: a short list of epochs, each with its first offset.
//! Source: `LeaderEpochFileCache`.

use common::ids::{LeaderEpoch, Offset};

/// The file's name in a replica's directory.
pub const LEADER_EPOCH_FILE: &str = "leader-epoch-checkpoint";

/// Epochs and their first offsets, both strictly rising. Owned by a log, under its lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs(Vec<(LeaderEpoch, Offset)>);

impl LeaderEpochs {
    /// Takes entries in any order, as a file may hold them; of conflicting ones the later wins.
    pub(crate) fn from_entries(entries: Vec<(LeaderEpoch, Offset)>) -> LeaderEpochs {
        let mut epochs = LeaderEpochs(Vec::with_capacity(entries.len()));
        for (epoch, start) in entries {
            epochs.assign(epoch, start);
        }
        epochs
    }

    /// How many entries there is room for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.0
    }

    /// The newest epoch.
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.0.last().map(|entry| entry.0)
    }

    /// Records that `epoch` begins at `start`; drops what contradicts it. Whether anything changed.
    pub(crate) fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        assert!(epoch.0 >= 0 && start.0 >= 0, "an epoch and its start are 0 or more");
        match self.0.last() {
            Some((latest, latest_start)) if *latest == epoch && start >= *latest_start => {
                return false;
            }
            _ => {}
        }
        while self.0.last().is_some_and(|entry| entry.0 >= epoch || entry.1 >= start) {
            self.0.pop();
        }
        if self.0.is_empty() {
            // Most logs know one epoch, and there are many logs.
            self.0.reserve_exact(1);
        }
        self.0.push((epoch, start));
        true
    }

    /// Forgets epochs that begin at `end` or later. Whether anything changed.
    pub(crate) fn truncate_from_end(&mut self, end: Offset) -> bool {
        let kept = self.0.partition_point(|entry| entry.1 < end);
        let changed = kept < self.0.len();
        self.0.truncate(kept);
        changed
    }

    /// Forgets epochs that ended at `start` or before; the one it lies in then begins there. Whether anything changed.
    pub(crate) fn truncate_from_start(&mut self, start: Offset) -> bool {
        let passed = self.0.partition_point(|entry| entry.1 <= start);
        let Some(last_passed) = passed.checked_sub(1) else { return false };
        if last_passed == 0 && self.0[0].1 == start {
            return false;
        }
        self.0.drain(..last_passed);
        self.0[0].1 = start;
        true
    }

    /// Forgets everything. Whether there was something.
    pub(crate) fn clear(&mut self) -> bool {
        let changed = !self.0.is_empty();
        self.0.clear();
        changed
    }

    /// The largest epoch at or before `epoch` and where it ends, `log_end` for the latest; `None` where not known.
    /// Below the oldest known epoch the answer is `epoch` itself with the start of the oldest. Source: KIP-101.
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if epoch == LeaderEpoch::NONE {
            return None;
        }
        if self.latest() == Some(epoch) {
            return Some((epoch, log_end));
        }
        let higher = self.0.partition_point(|entry| entry.0 <= epoch);
        let end = self.0.get(higher)?.1;
        let found = higher.checked_sub(1).map_or(epoch, |floor| self.0[floor].0);
        Some((found, end))
    }

    /// The epoch that wrote the offset.
    pub fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.0.partition_point(|entry| entry.1 <= offset);
        after.checked_sub(1).map(|index| self.0[index].0)
    }
}

#[cfg(test)]
mod tests {
    use super::{LeaderEpoch, LeaderEpochs, Offset};

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        LeaderEpochs::from_entries(
            entries.iter().map(|(epoch, start)| (LeaderEpoch(*epoch), Offset(*start))).collect(),
        )
    }

    #[test]
    fn an_assignment_drops_what_contradicts_it() {
        let mut list = epochs(&[(0, 0), (3, 120), (5, 150)]);
        assert!(!list.assign(LeaderEpoch(5), Offset(180)));
        assert!(list.assign(LeaderEpoch(6), Offset(150)));
        assert_eq!(list, epochs(&[(0, 0), (3, 120), (6, 150)]));
        assert!(list.assign(LeaderEpoch(2), Offset(130)));
        assert_eq!(list, epochs(&[(0, 0), (2, 130)]));
    }

    #[test]
    fn both_ends_are_truncated_as_kafka_does() {
        let mut list = epochs(&[(0, 0), (3, 120), (5, 150)]);
        assert!(list.truncate_from_end(Offset(150)));
        assert!(!list.truncate_from_end(Offset(150)));
        assert!(list.truncate_from_start(Offset(60)));
        assert_eq!(list, epochs(&[(0, 60), (3, 120)]));
        assert!(list.truncate_from_start(Offset(120)));
        assert_eq!(list, epochs(&[(3, 120)]));
        assert!(!list.truncate_from_start(Offset(120)));
        assert!(!list.truncate_from_start(Offset(7)));
    }

    #[test]
    fn end_offsets_follow_kip_101() {
        let list = epochs(&[(2, 10), (4, 20), (7, 30)]);
        let end =
            |epoch| list.end_offset_for(LeaderEpoch(epoch), Offset(35)).map(|(e, o)| (e.0, o.0));
        assert_eq!(end(7), Some((7, 35)));
        assert_eq!(end(8), None);
        assert_eq!(end(-1), None);
        assert_eq!(end(5), Some((4, 30)));
        assert_eq!(end(4), Some((4, 30)));
        assert_eq!(end(1), Some((1, 10)));
        assert_eq!(list.epoch_for(Offset(25)), Some(LeaderEpoch(4)));
        assert_eq!(list.epoch_for(Offset(9)), None);
    }
}
