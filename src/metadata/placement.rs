//! Where the replicas of new partitions go. Rules and messages are Kafka's.
//! Source: `org.apache.kafka.admin.AdminUtils`, `kafka.zk.AdminZkClient`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use common::ids::BrokerId;

/// The most replicas that one placement makes. Kafka has no such limit and would run out of memory;
/// no topic of this size fits into a znode.
pub const REPLICAS_MAX: usize = 1_000_000;

/// A broker that may take replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The broker.
    pub id: BrokerId,
    /// Its rack, if it names one.
    pub rack: Option<String>,
}

/// Where the walk over the brokers begins. Any number is taken, modulo the brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The place, in the list of brokers, of partition 0's first replica.
    pub index: usize,
    /// How far the second replica stands from the first.
    pub shift: usize,
}

/// How many replicas to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Partitions to place.
    pub partitions: i32,
    /// Replicas of each.
    pub replication_factor: i32,
    /// The number of the first of the partitions; 0 for a new topic.
    pub first_partition: i32,
}

/// Why no placement was made; `Display` is Kafka's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No partition was asked for.
    #[error("Number of partitions must be larger than 0.")]
    NoPartitions,
    /// No replica was asked for.
    #[error("Replication factor must be larger than 0.")]
    NoReplicas,
    /// A broker holds at most one replica of a partition.
    #[error("Replication factor: {replication_factor} larger than available brokers: {brokers}.")]
    TooFewBrokers {
        /// Replicas asked for.
        replication_factor: i32,
        /// Brokers there are.
        brokers: usize,
    },
    /// Either all brokers name a rack, or none.
    #[error("Not all brokers have rack information for replica rack aware assignment.")]
    RacksIncomplete,
    /// More than `REPLICAS_MAX`.
    #[error("{replicas} replicas in one request are more than the maximum of {REPLICAS_MAX}.")]
    TooMany {
        /// Replicas asked for.
        replicas: i64,
    },
}

/// Places partitions round robin, each rack in turn if the brokers name racks. The result has a
/// list of replicas a partition, the preferred leader first.
pub fn assign_replicas(
    brokers: &[Candidate],
    request: Request,
    start: Start,
) -> Result<Vec<Vec<BrokerId>>, PlacementError> {
    let Request { partitions, replication_factor, first_partition } = request;
    if partitions <= 0 {
        return Err(PlacementError::NoPartitions);
    }
    if replication_factor <= 0 {
        return Err(PlacementError::NoReplicas);
    }
    let factor = usize::try_from(replication_factor).unwrap_or(usize::MAX);
    if factor > brokers.len() {
        return Err(PlacementError::TooFewBrokers { replication_factor, brokers: brokers.len() });
    }
    let replicas = i64::from(partitions) * i64::from(replication_factor);
    if usize::try_from(replicas).unwrap_or(usize::MAX) > REPLICAS_MAX {
        return Err(PlacementError::TooMany { replicas });
    }
    let racks_named = brokers.iter().filter(|broker| broker.rack.is_some()).count();
    if racks_named != 0 && racks_named != brokers.len() {
        return Err(PlacementError::RacksIncomplete);
    }
    let ring = Ring::new(brokers);
    let count = ring.brokers.len();
    let mut shift = start.shift % count;
    let first = usize::try_from(first_partition).unwrap_or(0);
    let last = first + usize::try_from(partitions).unwrap_or(0);
    let place = |partition: usize| {
        if partition > 0 && partition.is_multiple_of(count) {
            shift += 1;
        }
        ring.replicas((partition + start.index % count) % count, shift, factor)
    };
    Ok((first..last).map(place).collect())
}

/// The brokers in the order of the walk, each with the number of its rack.
struct Ring {
    brokers: Vec<(BrokerId, usize)>,
    racks: usize,
}

impl Ring {
    /// Without racks every broker is in one: then no rule about racks ever skips a broker.
    fn new(brokers: &[Candidate]) -> Ring {
        let mut by_rack: BTreeMap<Option<&str>, Vec<BrokerId>> = BTreeMap::new();
        for broker in brokers {
            by_rack.entry(broker.rack.as_deref()).or_default().push(broker.id);
        }
        if !by_rack.contains_key(&None) {
            by_rack.values_mut().for_each(|ids| ids.sort_unstable());
        }
        let longest = by_rack.values().map(Vec::len).max().unwrap_or(0);
        let turn = |turn: usize| {
            let member = move |(rack, ids): (usize, &Vec<BrokerId>)| Some((*ids.get(turn)?, rack));
            by_rack.values().enumerate().filter_map(member)
        };
        Ring { brokers: (0..longest).flat_map(turn).collect(), racks: by_rack.len() }
    }

    /// A candidate is passed over while another rack has no replica and its own has one.
    fn replicas(&self, first: usize, shift: usize, factor: usize) -> Vec<BrokerId> {
        let count = self.brokers.len();
        let (leader, rack) = self.brokers[first];
        let mut replicas = vec![leader];
        let mut racks = HashSet::from([rack]);
        let mut step = 0;
        while replicas.len() < factor {
            let distance = 1 + (shift * self.racks + step) % (count - 1);
            let (broker, rack) = self.brokers[(first + distance) % count];
            step += 1;
            if (racks.contains(&rack) && racks.len() < self.racks) || replicas.contains(&broker) {
                continue;
            }
            replicas.push(broker);
            racks.insert(rack);
        }
        replicas
    }
}

/// Why an assignment made by hand is refused; `Display` is Kafka's text where Kafka has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignmentError {
    /// Lists of different lengths, or no list at all.
    #[error("All partitions should have the same number of replicas")]
    Uneven,
    /// A broker stands twice in one list.
    #[error("Duplicate replica assignment found: {0}")]
    Duplicate(String),
    /// Numbers are missing.
    #[error("partitions should be a consecutive 0-based integer sequence")]
    Gap,
    /// A list of a new topic without a broker, or with one that is not there. Kafka takes both, and
    /// leaves a topic that nobody leads.
    #[error("{0}")]
    Unplaceable(String),
    /// A list of a new partition without a broker.
    #[error("Cannot have replication factor of 0 for partition id {0}.")]
    Empty(i32),
    /// A broker stands twice in the list of a new partition.
    #[error(
        "Duplicate brokers not allowed in replica assignment: {replicas} for partition id {partition}."
    )]
    DuplicateAdded {
        /// The partition.
        partition: i32,
        /// Its replicas, joined.
        replicas: String,
    },
    /// New partitions have as many replicas as the others.
    #[error(
        "Inconsistent replication factor between partitions, partition 0 has {expected} \
         while partitions [{partitions}] have replication factors [{factors}], respectively."
    )]
    Inconsistent {
        /// Replicas of partition 0.
        expected: usize,
        /// The partitions that differ, joined.
        partitions: String,
        /// Their replicas, joined.
        factors: String,
    },
}

fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

fn has_duplicate(replicas: &[BrokerId]) -> bool {
    replicas.iter().collect::<HashSet<_>>().len() != replicas.len()
}

/// Checks the assignment of a new topic. Source: `AdminZkClient.validateTopicCreate`.
pub fn check_new_topic(
    assignment: &BTreeMap<i32, Vec<BrokerId>>,
    alive: &BTreeSet<BrokerId>,
) -> Result<(), AssignmentError> {
    let sizes: HashSet<usize> = assignment.values().map(Vec::len).collect();
    if sizes.len() != 1 {
        return Err(AssignmentError::Uneven);
    }
    if assignment.values().any(|replicas| has_duplicate(replicas)) {
        // As Scala prints the map.
        let shown = assignment.iter().map(|(partition, replicas)| {
            format!("{partition} -> ArrayBuffer({})", joined(replicas))
        });
        return Err(AssignmentError::Duplicate(format!("HashMap({})", joined(shown))));
    }
    let consecutive = assignment.keys().copied().eq((0..).take(assignment.len()));
    if !consecutive {
        return Err(AssignmentError::Gap);
    }
    if sizes.contains(&0) {
        let message = "Replication factor must be larger than 0.".to_owned();
        return Err(AssignmentError::Unplaceable(message));
    }
    let unknown: BTreeSet<_> =
        assignment.values().flatten().filter(|broker| !alive.contains(broker)).collect();
    if !unknown.is_empty() {
        let message = format!("Unknown broker(s) in replica assignment: {}.", joined(unknown));
        return Err(AssignmentError::Unplaceable(message));
    }
    Ok(())
}

/// Checks the assignment of partitions that are added to a topic; that the brokers are there is
/// checked before. Source: `AdminZkClient.validateReplicaAssignment`.
pub fn check_added(
    assignment: &BTreeMap<i32, Vec<BrokerId>>,
    replication_factor: usize,
) -> Result<(), AssignmentError> {
    for (&partition, replicas) in assignment {
        if replicas.is_empty() {
            return Err(AssignmentError::Empty(partition));
        }
        if has_duplicate(replicas) {
            let replicas = joined(replicas);
            return Err(AssignmentError::DuplicateAdded { partition, replicas });
        }
    }
    let bad = || assignment.iter().filter(|(_, replicas)| replicas.len() != replication_factor);
    if bad().next().is_none() {
        return Ok(());
    }
    Err(AssignmentError::Inconsistent {
        expected: replication_factor,
        partitions: joined(bad().map(|(partition, _)| partition)),
        factors: joined(bad().map(|(_, replicas)| replicas.len())),
    })
}

#[cfg(test)]
mod tests;
