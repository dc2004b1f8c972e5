//! Who shall lead. Source: `kafka.controller.Election`, `PartitionLeaderElectionAlgorithms`.

use common::ids::BrokerId;

use crate::{assignment::Assignment, states::Leadership};

/// The rule by which a leader is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The leader is gone, or there never was one. With `unclean`, a live replica outside the ISR
    /// is taken when no member lives, which may lose records.
    Offline {
        /// Whether a replica outside the ISR may lead.
        unclean: bool,
    },
    /// A move is done: one of its targets shall lead.
    Reassign,
    /// The first replica of the assignment shall lead.
    Preferred,
    /// The leader is about to stop: anyone in sync that does not stop as well.
    ControlledShutdown,
}

/// Which replicas an election may look at.
pub struct Voters<'a> {
    /// Whether the broker lives, is not shutting down, and has the replica's log directory.
    pub online: &'a dyn Fn(BrokerId) -> bool,
    /// Whether the broker is shutting down, and lives until then.
    pub shutting_down: &'a dyn Fn(BrokerId) -> bool,
}

/// The leadership that the strategy leads to, in its present epoch; none where nobody may lead.
pub fn elect(
    assignment: &Assignment,
    leadership: &Leadership,
    strategy: Strategy,
    voters: &Voters<'_>,
) -> Option<Leadership> {
    let Voters { online, shutting_down } = *voters;
    let in_sync = |broker: &BrokerId| leadership.isr.contains(broker);
    let eligible = |broker: &BrokerId| online(*broker) && in_sync(broker);
    let replicas = &assignment.replicas;
    let mut next = leadership.clone();
    match strategy {
        Strategy::Offline { unclean } => {
            if let Some(leader) = replicas.iter().copied().find(eligible) {
                next.leader = leader;
                next.isr.retain(|broker| online(*broker));
            } else if unclean {
                next.leader = replicas.iter().copied().find(|broker| online(*broker))?;
                next.isr = vec![next.leader];
                next.recovering = true;
            } else {
                return None;
            }
        }
        Strategy::Reassign => {
            next.leader = assignment.target().into_iter().find(|id| eligible(id))?;
        }
        Strategy::Preferred => {
            next.leader = replicas.first().copied().filter(eligible)?;
        }
        Strategy::ControlledShutdown => {
            next.leader = replicas.iter().copied().find(eligible)?;
            next.isr.retain(|broker| !shutting_down(*broker));
        }
    }
    Some(next)
}

#[cfg(test)]
mod tests {
    use common::ids::{BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch};

    use super::{Strategy, Voters, elect};
    use crate::{assignment::Assignment, states::Leadership};

    fn ids(list: &[i32]) -> Vec<BrokerId> {
        list.iter().copied().map(BrokerId).collect()
    }

    /// Elects among the replicas with broker 1 as the leader; gives leader and ISR.
    fn check(replicas: &[i32], isr: &[i32], online: &[i32], strategy: Strategy) -> String {
        let leadership = Leadership {
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(5),
            isr: ids(isr),
            recovering: false,
            controller_epoch: ControllerEpoch(1),
            partition_epoch: PartitionEpoch(9),
        };
        let is_online = |broker: BrokerId| online.contains(&broker.0);
        let voters = Voters { online: &is_online, shutting_down: &|broker| broker == BrokerId(1) };
        let Some(next) = elect(&Assignment::of(ids(replicas)), &leadership, strategy, &voters)
        else {
            return "nobody".to_owned();
        };
        let isr: Vec<i32> = next.isr.iter().map(|broker| broker.0).collect();
        format!("{} {isr:?}{}", next.leader, if next.recovering { " recovering" } else { "" })
    }

    #[test]
    fn an_offline_election_takes_the_first_live_member_of_the_isr() {
        let clean = Strategy::Offline { unclean: false };
        assert_eq!(check(&[1, 2, 3], &[1, 3], &[2, 3], clean), "3 [3]");
        assert_eq!(check(&[1, 2, 3], &[3, 2, 1], &[2, 3], clean), "2 [3, 2]");
        assert_eq!(check(&[1, 2, 3], &[1], &[2, 3], clean), "nobody");
    }

    #[test]
    fn an_unclean_election_is_the_last_resort() {
        let unclean = Strategy::Offline { unclean: true };
        assert_eq!(check(&[1, 2, 3], &[1], &[2, 3], unclean), "2 [2] recovering");
        assert_eq!(check(&[1, 2, 3], &[1, 3], &[2, 3], unclean), "3 [3]");
        assert_eq!(check(&[1, 2, 3], &[1], &[], unclean), "nobody");
    }

    #[test]
    fn a_preferred_election_takes_the_first_replica_or_nobody() {
        assert_eq!(check(&[2, 1], &[1, 2], &[1, 2], Strategy::Preferred), "2 [1, 2]");
        assert_eq!(check(&[2, 1], &[1], &[1, 2], Strategy::Preferred), "nobody");
        assert_eq!(check(&[2, 1], &[1, 2], &[1], Strategy::Preferred), "nobody");
    }

    #[test]
    fn a_shutdown_moves_leadership_and_shrinks_the_isr() {
        assert_eq!(
            check(&[1, 2, 3], &[1, 2, 3], &[2, 3], Strategy::ControlledShutdown),
            "2 [2, 3]"
        );
        assert_eq!(check(&[1, 2], &[1], &[2], Strategy::ControlledShutdown), "nobody");
    }

    #[test]
    fn a_finished_move_takes_a_target() {
        assert_eq!(check(&[3, 1], &[1, 3], &[1, 3], Strategy::Reassign), "3 [1, 3]");
    }
}
