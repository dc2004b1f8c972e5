//! The replicas of a partition, and those that come and go while it is moved.

use common::ids::BrokerId;

/// Who holds a partition. While it is moved, `replicas` lists the target first, then the originals
/// that are not in it. Source: `kafka.controller.ReplicaAssignment`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// All replicas, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// Replicas that the move adds; empty while there is none.
    pub adding: Vec<BrokerId>,
    /// Replicas that the move takes away; empty while there is none.
    pub removing: Vec<BrokerId>,
}

fn without(list: &[BrokerId], other: &[BrokerId]) -> Vec<BrokerId> {
    list.iter().copied().filter(|broker| !other.contains(broker)).collect()
}

impl Assignment {
    /// An assignment at rest.
    pub fn of(replicas: Vec<BrokerId>) -> Assignment {
        Assignment { replicas, adding: Vec::new(), removing: Vec::new() }
    }

    /// Whether a move is going on.
    pub fn is_moving(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// The replicas once the move is done.
    pub fn target(&self) -> Vec<BrokerId> {
        without(&self.replicas, &self.removing)
    }

    /// The replicas before the move; their order is lost where they overlap with the target.
    pub fn origin(&self) -> Vec<BrokerId> {
        without(&self.replicas, &self.adding)
    }

    /// The assignment of a move from here (or from where the present move began) to `target`.
    pub fn moved_to(&self, target: &[BrokerId]) -> Assignment {
        let origin = self.origin();
        let mut replicas = target.to_vec();
        replicas.extend(without(&origin, target));
        Assignment {
            replicas,
            adding: without(target, &origin),
            removing: without(&origin, target),
        }
    }
}

#[cfg(test)]
mod tests {
    use common::ids::BrokerId;

    use super::Assignment;

    fn ids(list: &[i32]) -> Vec<BrokerId> {
        list.iter().copied().map(BrokerId).collect()
    }

    #[test]
    fn a_move_lists_the_target_first() {
        let moving = Assignment::of(ids(&[1, 2, 3])).moved_to(&ids(&[4, 2]));
        assert_eq!(moving.replicas, ids(&[4, 2, 1, 3]));
        assert_eq!((moving.adding.clone(), moving.removing.clone()), (ids(&[4]), ids(&[1, 3])));
        assert_eq!((moving.target(), moving.origin()), (ids(&[4, 2]), ids(&[2, 1, 3])));
        let replaced = moving.moved_to(&ids(&[5]));
        assert_eq!(replaced.replicas, ids(&[5, 2, 1, 3]));
        assert_eq!((replaced.adding, replaced.removing), (ids(&[5]), ids(&[2, 1, 3])));
    }
}
