//! Placements equal those that Kafka 3.9.1's AdminUtils gave for the same start.

use std::collections::{BTreeMap, BTreeSet};

use common::ids::BrokerId;

use super::{
    AssignmentError, Candidate, PlacementError, Request, Start, assign_replicas, check_added,
    check_new_topic,
};

/// A line: brokers (`id` or `id:rack`) | rf, start (index and shift), first partition | replicas of
/// each partition. Recorded by calling `AdminUtils.assignReplicasToBrokers` with a fixed start.
const RECORDED: &str = include_str!("../placement-recorded.txt");

fn candidates(text: &str) -> Vec<Candidate> {
    let one = |text: &str| {
        let (id, rack) = text.split_once(':').map_or((text, None), |(id, rack)| (id, Some(rack)));
        Candidate { id: BrokerId(id.parse().unwrap()), rack: rack.map(str::to_owned) }
    };
    text.split(',').map(one).collect()
}

fn request(partitions: i32, replication_factor: i32) -> Request {
    Request { partitions, replication_factor, first_partition: 0 }
}

const START: Start = Start { index: 0, shift: 0 };

#[test]
fn placements_equal_kafkas() {
    let mut cases = 0;
    for line in RECORDED.lines() {
        let [brokers, options, expected] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("three fields: {line}");
        };
        let number = |name: &str| -> i32 {
            let option = options.split(' ').find_map(|option| option.strip_prefix(name));
            option.unwrap().parse().unwrap()
        };
        let start = usize::try_from(number("start=")).unwrap();
        let request = Request {
            partitions: i32::try_from(expected.split(' ').count()).unwrap(),
            replication_factor: number("rf="),
            first_partition: number("first="),
        };
        let start = Start { index: start, shift: start };
        let placed = assign_replicas(&candidates(brokers), request, start).unwrap();
        let text = |replicas: &Vec<BrokerId>| {
            replicas.iter().map(BrokerId::to_string).collect::<Vec<_>>().join(",")
        };
        let placed = placed.iter().map(text).collect::<Vec<_>>().join(" ");
        assert_eq!(placed, expected, "{brokers} {options}");
        cases += 1;
    }
    assert!(cases > 100);
}

#[test]
fn what_cannot_be_placed_is_refused_in_kafkas_words() {
    let refused = |brokers: &str, partitions, factor| {
        let result = assign_replicas(&candidates(brokers), request(partitions, factor), START);
        result.unwrap_err().to_string()
    };
    assert_eq!(refused("1", 0, 1), "Number of partitions must be larger than 0.");
    assert_eq!(refused("1", 1, 0), "Replication factor must be larger than 0.");
    assert_eq!(refused("1", 1, 3), "Replication factor: 3 larger than available brokers: 1.");
    assert_eq!(
        refused("1:a,2", 1, 1),
        "Not all brokers have rack information for replica rack aware assignment."
    );
    assert_eq!(
        assign_replicas(&candidates("1"), request(i32::MAX, 1), START),
        Err(PlacementError::TooMany { replicas: i64::from(i32::MAX) })
    );
}

#[test]
fn any_start_is_taken() {
    let start = Start { index: usize::MAX, shift: usize::MAX };
    let placed = assign_replicas(&candidates("1,2,3"), request(7, 3), start).unwrap();
    assert!(placed.iter().all(|replicas| replicas.iter().collect::<BTreeSet<_>>().len() == 3));
}

fn assignment(lists: &[(i32, &[i32])]) -> BTreeMap<i32, Vec<BrokerId>> {
    lists
        .iter()
        .map(|(partition, replicas)| (*partition, replicas.iter().copied().map(BrokerId).collect()))
        .collect()
}

#[test]
fn a_new_topics_assignment_is_checked() {
    let alive = BTreeSet::from([1, 2, 3].map(BrokerId));
    let check = |lists: &[(i32, &[i32])]| {
        check_new_topic(&assignment(lists), &alive).map_err(|error| error.to_string())
    };
    assert_eq!(check(&[(0, &[1, 2]), (1, &[2, 3])]), Ok(()));
    let uneven = "All partitions should have the same number of replicas";
    assert_eq!(check(&[(0, &[1, 2]), (1, &[2])]), Err(uneven.into()));
    assert_eq!(check(&[]), Err(uneven.into()));
    let gap = "partitions should be a consecutive 0-based integer sequence";
    assert_eq!(check(&[(0, &[1]), (2, &[2])]), Err(gap.into()));
    assert_eq!(check(&[(-1, &[1]), (0, &[2])]), Err(gap.into()));
    let duplicate = "Duplicate replica assignment found: HashMap(0 -> ArrayBuffer(1, 1))";
    assert_eq!(check(&[(0, &[1, 1])]), Err(duplicate.into()));
    let unknown = "Unknown broker(s) in replica assignment: 4, 9.";
    assert_eq!(check(&[(0, &[9, 1]), (1, &[1, 4])]), Err(unknown.into()));
    assert!(check(&[(0, &[])]).is_err());
}

#[test]
fn added_partitions_are_checked() {
    let check = |lists: &[(i32, &[i32])]| check_added(&assignment(lists), 2);
    assert_eq!(check(&[(3, &[1, 2])]), Ok(()));
    assert_eq!(check(&[(3, &[])]), Err(AssignmentError::Empty(3)));
    assert_eq!(
        check(&[(3, &[2, 2])]).unwrap_err().to_string(),
        "Duplicate brokers not allowed in replica assignment: 2, 2 for partition id 3."
    );
    assert_eq!(
        check(&[(3, &[1]), (4, &[1, 2, 3])]).unwrap_err().to_string(),
        "Inconsistent replication factor between partitions, partition 0 has 2 while partitions \
         [3, 4] have replication factors [1, 3], respectively."
    );
}
