//! What CreateTopics and CreatePartitions allow, in Kafka's order of checks and with its messages.
//! Source: `kafka.server.ZkAdminManager`, `kafka.zk.AdminZkClient`.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    error_code::ErrorCode,
    ids::BrokerId,
    topic::{check_topic_name, names_collide},
};
use metadata::{
    placement::{
        self, Candidate, PlacementError, Request, Start, assign_replicas, check_added,
        check_new_topic,
    },
    snapshot::ClusterSnapshot,
};

use crate::{assignment::Assignment, error::ApiError};

/// "As the broker's default says", in a request.
pub const DEFAULT: i32 = -1;

/// A topic to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; -1 for the broker's default, or with `assignments`.
    pub partitions: i32,
    /// How many replicas of each; -1 for the broker's default, or with `assignments`.
    pub replication_factor: i16,
    /// Partitions and their replicas, if they are chosen by hand.
    pub assignments: Vec<(i32, Vec<BrokerId>)>,
    /// Its configs, in the order of the request.
    pub configs: Vec<(String, Option<String>)>,
}

/// What a broker's configuration says of new topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// `num.partitions`.
    pub partitions: i32,
    /// `default.replication.factor`.
    pub replication_factor: i16,
}

/// Brokers that may take replicas, in the order of their ids.
pub fn candidates(cluster: &ClusterSnapshot) -> Vec<Candidate> {
    let candidate = |broker: &std::sync::Arc<metadata::broker::Broker>| Candidate {
        id: broker.id,
        rack: broker.rack.clone(),
    };
    cluster.brokers().map(candidate).collect()
}

/// Places the partitions of a new topic. The checks that need ZooKeeper come after it:
/// `check_existing`, then `check_assignment`, then the configs.
pub fn place_topic(
    topic: &NewTopic,
    defaults: Defaults,
    cluster: &ClusterSnapshot,
    start: Start,
) -> Result<BTreeMap<i32, Vec<BrokerId>>, ApiError> {
    if cluster.topic(&topic.name).is_some() {
        return Err(already_exists(&topic.name));
    }
    let nulls = topic.configs.iter().filter(|(_, value)| value.is_none());
    let nulls: Vec<&str> = nulls.map(|(key, _)| key.as_str()).collect();
    if !nulls.is_empty() {
        let message = format!("Null value not supported for topic configs: {}", nulls.join(","));
        return Err(ApiError::new(ErrorCode::InvalidConfig, message));
    }
    let factor = i32::from(topic.replication_factor);
    let by_number = topic.partitions != DEFAULT || factor != DEFAULT;
    if by_number && !topic.assignments.is_empty() {
        let message = "Both numPartitions or replicationFactor and replicasAssignments were set. \
                       Both cannot be used at the same time.";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    }
    if !topic.assignments.is_empty() {
        return Ok(topic.assignments.iter().cloned().collect());
    }
    let default_factor = i32::from(defaults.replication_factor);
    let request = Request {
        partitions: if topic.partitions == DEFAULT {
            defaults.partitions
        } else {
            topic.partitions
        },
        replication_factor: if factor == DEFAULT { default_factor } else { factor },
        first_partition: 0,
    };
    let placed = assign_replicas(&candidates(cluster), request, start).map_err(unplaceable)?;
    Ok((0..).zip(placed).collect())
}

fn unplaceable(error: PlacementError) -> ApiError {
    match error {
        PlacementError::NoPartitions | PlacementError::TooMany { .. } => {
            ApiError::new(ErrorCode::InvalidPartitions, error.to_string())
        }
        PlacementError::NoReplicas | PlacementError::TooFewBrokers { .. } => {
            ApiError::new(ErrorCode::InvalidReplicationFactor, error.to_string())
        }
        // Kafka's exception has no code of its own, and then no text leaves the broker.
        PlacementError::RacksIncomplete => ApiError::code(ErrorCode::UnknownServerError),
    }
}

/// The refusal of a topic that is there.
pub fn already_exists(name: &str) -> ApiError {
    ApiError::new(ErrorCode::TopicAlreadyExists, format!("Topic '{name}' already exists."))
}

/// What ZooKeeper says of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Existing {
    /// `/admin/delete_topics` has it.
    pub marked_for_deletion: bool,
    /// `/brokers/topics` has it.
    pub exists: bool,
    /// All names in `/brokers/topics`; looked at where `may_collide` says so.
    pub names: Vec<String>,
}

/// Whether the name can be that of another topic's metrics, so that all names are needed.
pub fn may_collide(name: &str) -> bool {
    name.contains(['.', '_'])
}

/// Checks the name of a new topic: legal, and free.
pub fn check_existing(name: &str, existing: &Existing) -> Result<(), ApiError> {
    if let Err(error) = check_topic_name(name) {
        return Err(ApiError::new(ErrorCode::InvalidTopicException, error.to_string()));
    }
    if existing.marked_for_deletion {
        let message = format!("Topic '{name}' is marked for deletion.");
        return Err(ApiError::new(ErrorCode::TopicAlreadyExists, message));
    }
    if existing.exists {
        return Err(already_exists(name));
    }
    if !may_collide(name) {
        return Ok(());
    }
    if existing.names.iter().any(|other| other == name) {
        return Err(already_exists(name));
    }
    let colliding = existing.names.iter().filter(|other| names_collide(name, other));
    let colliding: Vec<&str> = colliding.map(String::as_str).collect();
    if colliding.is_empty() {
        return Ok(());
    }
    let message = format!("Topic '{name}' collides with existing topics: {}", colliding.join(", "));
    Err(ApiError::new(ErrorCode::InvalidTopicException, message))
}

/// Checks the assignment of a new topic.
pub fn check_assignment(
    assignment: &BTreeMap<i32, Vec<BrokerId>>,
    cluster: &ClusterSnapshot,
) -> Result<(), ApiError> {
    let alive: BTreeSet<BrokerId> = cluster.brokers().map(|broker| broker.id).collect();
    check_new_topic(assignment, &alive).map_err(bad_assignment)
}

/// Checks an assignment for what does not depend on the cluster. Kafka does this before it looks at the configs.
pub fn check_assignment_alone(assignment: &BTreeMap<i32, Vec<BrokerId>>) -> Result<(), ApiError> {
    let named: BTreeSet<BrokerId> = assignment.values().flatten().copied().collect();
    check_new_topic(assignment, &named).map_err(bad_assignment)
}

fn bad_assignment(error: placement::AssignmentError) -> ApiError {
    ApiError::new(ErrorCode::InvalidReplicaAssignment, error.to_string())
}

/// Partitions to add to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartitions {
    /// The topic.
    pub topic: String,
    /// How many partitions it shall have then.
    pub count: i32,
    /// The replicas of each new partition, if they are chosen by hand.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// Places partitions that are added to a topic.
pub fn place_partitions(
    request: &NewPartitions,
    existing: &BTreeMap<i32, Assignment>,
    brokers: &[Candidate],
) -> Result<BTreeMap<i32, Vec<BrokerId>>, ApiError> {
    let topic = &request.topic;
    if existing.values().any(Assignment::is_moving) {
        let message = format!("A partition reassignment is in progress for the topic '{topic}'.");
        return Err(ApiError::new(ErrorCode::ReassignmentInProgress, message));
    }
    if existing.is_empty() {
        let message = format!("The topic '{topic}' does not exist.");
        return Err(ApiError::new(ErrorCode::UnknownTopicOrPartition, message));
    }
    let old_count = i32::try_from(existing.len()).unwrap_or(i32::MAX);
    let increment = request.count.saturating_sub(old_count);
    if increment <= 0 {
        let message = if increment == 0 {
            format!("Topic already has {old_count} partitions.")
        } else {
            format!(
                "Topic currently has {old_count} partitions, which is higher than the requested {}.",
                request.count
            )
        };
        return Err(ApiError::new(ErrorCode::InvalidPartitions, message));
    }
    let by_hand = request.assignments.as_ref();
    if let Some(assignments) = by_hand {
        check_brokers(assignments, increment, brokers)?;
    }
    // A topic whose partition 0 is missing is broken; Kafka has no words for it.
    let first = existing.get(&0).ok_or(ApiError::code(ErrorCode::UnknownServerError))?;
    let factor = first.replicas.len();
    if let Some(assignments) = by_hand {
        let placed: BTreeMap<_, _> = (old_count..).zip(assignments.iter().cloned()).collect();
        check_added(&placed, factor).map_err(bad_assignment)?;
        return Ok(placed);
    }
    let first_broker = first.replicas.first().copied().unwrap_or(BrokerId::NONE);
    let index = brokers.iter().position(|broker| broker.id >= first_broker).unwrap_or(0);
    let place = Request {
        partitions: increment,
        replication_factor: i32::try_from(factor).unwrap_or(i32::MAX),
        first_partition: old_count,
    };
    let placed = assign_replicas(brokers, place, Start { index, shift: index });
    Ok((old_count..).zip(placed.map_err(unplaceable)?).collect())
}

fn check_brokers(
    assignments: &[Vec<BrokerId>],
    increment: i32,
    brokers: &[Candidate],
) -> Result<(), ApiError> {
    let known: BTreeSet<BrokerId> = brokers.iter().map(|broker| broker.id).collect();
    let named: BTreeSet<BrokerId> = assignments.iter().flatten().copied().collect();
    let unknown: Vec<String> = named.difference(&known).map(BrokerId::to_string).collect();
    let refuse = |message: String| ApiError::new(ErrorCode::InvalidReplicaAssignment, message);
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        return Err(refuse(format!("Unknown broker(s) in replica assignment: {unknown}.")));
    }
    if usize::try_from(increment) != Ok(assignments.len()) {
        return Err(refuse(format!(
            "Increasing the number of partitions by {increment} but {} assignments provided.",
            assignments.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use common::ids::{BrokerEpoch, BrokerId};
    use metadata::{
        broker::Broker,
        placement::Start,
        snapshot::{ClusterSnapshot, Update},
    };

    use super::{
        Defaults, Existing, NewPartitions, NewTopic, candidates, check_assignment, check_existing,
        place_partitions, place_topic,
    };
    use crate::{assignment::Assignment, error::ApiError};

    fn cluster(racks: [Option<&str>; 3]) -> ClusterSnapshot {
        let brokers = (1..).zip(racks).map(|(id, rack)| {
            let (id, rack) = (BrokerId(id), rack.map(str::to_owned));
            Arc::new(Broker { id, endpoints: Vec::new(), rack, epoch: BrokerEpoch(-1) })
        });
        let update = Update { brokers: brokers.collect(), ..Update::default() };
        ClusterSnapshot::default().updated(&update).0
    }

    fn text<T: std::fmt::Debug>(result: Result<T, ApiError>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => format!("{} {}", error.code, error.message.unwrap_or_default()),
        }
    }

    fn ids(list: &[i32]) -> Vec<BrokerId> {
        list.iter().copied().map(BrokerId).collect()
    }

    const DEFAULTS: Defaults = Defaults { partitions: 2, replication_factor: 1 };
    const START: Start = Start { index: 0, shift: 0 };

    fn topic(partitions: i32, replication_factor: i16) -> NewTopic {
        NewTopic { name: "t".into(), partitions, replication_factor, ..NewTopic::default() }
    }

    fn placed(topic: &NewTopic) -> String {
        text(place_topic(topic, DEFAULTS, &cluster([None; 3]), START))
    }

    #[test]
    fn numbers_left_out_are_the_brokers() {
        assert_eq!(placed(&topic(-1, -1)), "{0: [BrokerId(1)], 1: [BrokerId(2)]}");
        assert_eq!(placed(&topic(1, 2)), "{0: [BrokerId(1), BrokerId(2)]}");
        let by_hand = NewTopic { assignments: vec![(0, ids(&[3]))], ..topic(-1, -1) };
        assert_eq!(placed(&by_hand), "{0: [BrokerId(3)]}");
    }

    #[test]
    fn a_topic_that_cannot_be_placed_is_refused() {
        assert_eq!(
            placed(&topic(1, 4)),
            "INVALID_REPLICATION_FACTOR Replication factor: 4 larger than available brokers: 3."
        );
        assert_eq!(
            placed(&topic(0, 1)),
            "INVALID_PARTITIONS Number of partitions must be larger than 0."
        );
        let both = NewTopic { assignments: vec![(0, ids(&[3]))], ..topic(1, -1) };
        assert_eq!(
            placed(&both),
            "INVALID_REQUEST Both numPartitions or replicationFactor and replicasAssignments were \
             set. Both cannot be used at the same time."
        );
        let configs = vec![("a".into(), None), ("b".into(), Some("1".into())), ("c".into(), None)];
        let nulls = NewTopic { configs, ..topic(1, 1) };
        assert_eq!(
            placed(&nulls),
            "INVALID_CONFIG Null value not supported for topic configs: a,c"
        );
        let some_racks = cluster([Some("a"), None, None]);
        assert_eq!(
            text(place_topic(&topic(1, 1), DEFAULTS, &some_racks, START)),
            "UNKNOWN_SERVER_ERROR "
        );
    }

    #[test]
    fn a_name_must_be_legal_and_free() {
        let names = vec!["a.b".to_owned(), "a_c".to_owned()];
        let existing = Existing { names, ..Existing::default() };
        let check = |name: &str, existing: &Existing| text(check_existing(name, existing));
        assert_eq!(check("a.d", &existing), "()");
        assert_eq!(
            check("a_b", &existing),
            "INVALID_TOPIC_EXCEPTION Topic 'a_b' collides with existing topics: a.b"
        );
        assert_eq!(check("a.b", &existing), "TOPIC_ALREADY_EXISTS Topic 'a.b' already exists.");
        let marked = Existing { marked_for_deletion: true, exists: true, names: Vec::new() };
        assert_eq!(check("t", &marked), "TOPIC_ALREADY_EXISTS Topic 't' is marked for deletion.");
        assert_eq!(
            check("a b", &existing),
            "INVALID_TOPIC_EXCEPTION Topic name is invalid: 'a b' contains one or more characters \
             other than ASCII alphanumerics, '.', '_' and '-'"
        );
    }

    #[test]
    fn an_assignment_to_an_unknown_broker_is_refused_at_once() {
        let assignment = BTreeMap::from([(0, ids(&[1, 7]))]);
        assert_eq!(
            text(check_assignment(&assignment, &cluster([None; 3]))),
            "INVALID_REPLICA_ASSIGNMENT Unknown broker(s) in replica assignment: 7."
        );
    }

    fn expanded(count: i32, assignments: Option<Vec<Vec<BrokerId>>>) -> String {
        let existing =
            BTreeMap::from([(0, Assignment::of(ids(&[2, 3]))), (1, Assignment::of(ids(&[3, 1])))]);
        let request = NewPartitions { topic: "t".into(), count, assignments };
        text(place_partitions(&request, &existing, &candidates(&cluster([None; 3]))))
    }

    #[test]
    fn partitions_are_added_where_the_first_one_began() {
        // Kafka's AdminUtils for brokers 1,2,3 with start index 1 and first partition 2.
        assert_eq!(
            expanded(4, None),
            "{2: [BrokerId(1), BrokerId(3)], 3: [BrokerId(2), BrokerId(3)]}"
        );
        assert_eq!(expanded(3, Some(vec![ids(&[3, 2])])), "{2: [BrokerId(3), BrokerId(2)]}");
    }

    #[test]
    fn partitions_that_cannot_be_added_are_refused() {
        assert_eq!(expanded(2, None), "INVALID_PARTITIONS Topic already has 2 partitions.");
        assert_eq!(
            expanded(1, None),
            "INVALID_PARTITIONS Topic currently has 2 partitions, which is higher than the \
             requested 1."
        );
        assert_eq!(
            expanded(3, Some(vec![ids(&[3, 9])])),
            "INVALID_REPLICA_ASSIGNMENT Unknown broker(s) in replica assignment: 9."
        );
        assert_eq!(
            expanded(4, Some(vec![ids(&[3, 1])])),
            "INVALID_REPLICA_ASSIGNMENT Increasing the number of partitions by 2 but 1 assignments \
             provided."
        );
        assert_eq!(
            expanded(3, Some(vec![ids(&[3])])),
            "INVALID_REPLICA_ASSIGNMENT Inconsistent replication factor between partitions, \
             partition 0 has 2 while partitions [2] have replication factors [1], respectively."
        );
        let missing = NewPartitions { topic: "t".into(), count: 3, assignments: None };
        assert_eq!(
            text(place_partitions(&missing, &BTreeMap::new(), &[])),
            "UNKNOWN_TOPIC_OR_PARTITION The topic 't' does not exist."
        );
        let moving = BTreeMap::from([(0, Assignment::of(ids(&[1])).moved_to(&ids(&[2])))]);
        assert_eq!(
            text(place_partitions(&missing, &moving, &[])),
            "REASSIGNMENT_IN_PROGRESS A partition reassignment is in progress for the topic 't'."
        );
    }
}
