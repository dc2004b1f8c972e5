//! Steps of a real cluster's life, replayed: the tree afterwards is the recorded one.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    ids::{BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};
use serde_json::Value;

use super::world::{TopicNode, World, ids, options, show_leadership};
use crate::{assignment::Assignment, change::Change, reassignment::Orders, states::Leadership};

/// The part of a recorded tree that the controller reads and writes.
struct Recorded {
    brokers: Vec<BrokerId>,
    topics: BTreeMap<Arc<str>, TopicNode>,
    deletions: Vec<Arc<str>>,
}

fn brokers(value: &Value) -> Vec<BrokerId> {
    let one = |id: &Value| BrokerId(i32::try_from(id.as_i64().unwrap()).unwrap());
    value.as_array().unwrap().iter().map(one).collect()
}

fn assignments(data: &Value) -> BTreeMap<i32, Assignment> {
    let list = |field: &str, index: &str| data[field].get(index).map(brokers).unwrap_or_default();
    let one = |(index, replicas): (&String, &Value)| {
        let assignment = Assignment {
            replicas: brokers(replicas),
            adding: list("adding_replicas", index),
            removing: list("removing_replicas", index),
        };
        (index.parse().unwrap(), assignment)
    };
    data["partitions"].as_object().unwrap().iter().map(one).collect()
}

fn leadership(data: &Value, version: i32) -> Leadership {
    let number = |field: &str| i32::try_from(data[field].as_i64().unwrap()).unwrap();
    Leadership {
        leader: BrokerId(number("leader")),
        leader_epoch: LeaderEpoch(number("leader_epoch")),
        isr: brokers(&data["isr"]),
        recovering: data.get("leader_recovery_state").is_some(),
        controller_epoch: ControllerEpoch(number("controller_epoch")),
        partition_epoch: PartitionEpoch(version),
    }
}

fn recorded(step: &str) -> Recorded {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/znodes");
    let file = std::fs::read_to_string(format!("{folder}/{step}.jsonl")).unwrap();
    let mut tree = Recorded { brokers: Vec::new(), topics: BTreeMap::new(), deletions: Vec::new() };
    for line in file.lines() {
        let node: Value = serde_json::from_str(line).unwrap();
        let path: Vec<&str> = node["path"].as_str().unwrap()[1..].split('/').collect();
        let version = i32::try_from(node["version"].as_i64().unwrap()).unwrap();
        let data = || -> Value { serde_json::from_str(node["data"].as_str().unwrap()).unwrap() };
        match path[..] {
            ["brokers", "ids", id] => tree.brokers.push(BrokerId(id.parse().unwrap())),
            ["brokers", "topics", name] => {
                let (data, id) = (data(), data()["topic_id"].as_str().map(str::to_owned));
                let topic = tree.topics.entry(name.into()).or_default();
                topic.version = version;
                topic.id = id.and_then(|id| Uuid::parse(&id));
                topic.partitions = assignments(&data);
            }
            ["brokers", "topics", name, "partitions", index, "state"] => {
                let topic = tree.topics.get_mut(name).unwrap();
                topic.states.insert(index.parse().unwrap(), leadership(&data(), version));
            }
            ["admin", "delete_topics", name] => tree.deletions.push(name.into()),
            _ => {}
        }
    }
    tree
}

/// A controller that has taken over the recorded cluster.
fn taken_over(step: &str) -> World {
    let tree = recorded(step);
    let mut world = World::new(options());
    tree.brokers.iter().for_each(|id| world.register(*id));
    world.topics = tree.topics;
    world.deletions = tree.deletions.into_iter().collect();
    world.brokers_changed();
    world.topics_changed();
    world.deletions_changed();
    world.settle();
    world.log.clear();
    world
}

fn states(topics: &BTreeMap<Arc<str>, TopicNode>) -> BTreeMap<String, String> {
    let mut states = BTreeMap::new();
    for (name, topic) in topics {
        for (index, state) in &topic.states {
            let version = state.partition_epoch;
            let text = format!("{} version {version}", show_leadership(state));
            states.insert(format!("{name}-{index}"), text);
        }
    }
    states
}

/// Compares the states of all partitions with those of a recording.
fn compare(world: &World, step: &str) {
    let expected = recorded(step);
    assert_eq!(states(&world.topics), states(&expected.topics), "after {step}");
    let names: Vec<_> = world.deletions.iter().cloned().collect();
    assert_eq!(names, expected.deletions, "after {step}");
}

/// Gives the world the topic znodes of a recording, without their states.
fn write_topics(world: &mut World, step: &str) {
    for (name, read) in recorded(step).topics {
        let is_new = !world.topics.contains_key(&name);
        let node = world.topics.entry(name.clone()).or_default();
        (node.version, node.id) = (read.version, read.id);
        node.partitions = read.partitions;
        if !is_new {
            world.topic_changed(&name);
        }
    }
    world.topics_changed();
}

#[test]
fn topics_are_created_as_recorded() {
    let mut world = taken_over("04-three-brokers-racks-listeners");
    write_topics(&mut world, "05-topics-created");
    world.settle();
    compare(&world, "05-topics-created");
}

#[test]
fn partitions_are_added_as_recorded() {
    let mut world = taken_over("05-topics-created");
    write_topics(&mut world, "06-partitions-added");
    world.settle();
    compare(&world, "06-partitions-added");
}

#[test]
fn taking_over_a_healthy_cluster_writes_nothing() {
    for step in ["05-topics-created", "06-partitions-added", "20-reassignment-completed"] {
        compare(&taken_over(step), step);
    }
}

#[test]
fn a_broker_shuts_down_as_recorded() {
    let mut world = taken_over("20-reassignment-completed");
    world.shut_down(BrokerId(3));
    world.settle();
    world.brokers.remove(&BrokerId(3));
    world.brokers_changed();
    world.settle();
    compare(&world, "21-controlled-shutdown-of-broker-3");
}

#[test]
fn a_broker_dies_as_recorded() {
    let mut world = taken_over("24-broker-3-killed-session-alive");
    world.brokers.remove(&BrokerId(3));
    world.brokers_changed();
    world.settle();
    compare(&world, "25-broker-3-killed-session-expired");
}

#[test]
fn leaderships_go_home_as_recorded() {
    let mut world = taken_over("22-broker-3-back");
    let mut all = std::collections::BTreeSet::new();
    for (name, topic) in &world.topics {
        for index in topic.partitions.keys() {
            all.insert(TopicPartition::new(Arc::clone(name), *index));
        }
    }
    world.pending.push(Change::PreferLeaders(all));
    world.settle();
    compare(&world, "23-preferred-election");
}

#[test]
fn a_topic_is_deleted_once_its_last_replica_is_back() {
    let mut world = taken_over("25-broker-3-killed-session-expired");
    for name in recorded("26-topic-deletion-waits-for-broker-3").deletions {
        world.deletions.insert(name);
    }
    world.deletions_changed();
    world.settle();
    // Kafka takes the replicas out of the ISR one by one, a write each; here it is one write. The
    // topic is gone in the end, so the number of writes does not matter.
    let expected = recorded("26-topic-deletion-waits-for-broker-3");
    let deleting = world.topics.remove("gone").unwrap();
    assert!(deleting.states.values().all(|state| state.leader == BrokerId::NONE));
    let (mut kept, mut expected_kept) = (world.topics.clone(), expected.topics);
    kept.remove("gone");
    expected_kept.remove("gone");
    assert_eq!(states(&kept), states(&expected_kept));
    assert_eq!(world.deletions.iter().cloned().collect::<Vec<_>>(), expected.deletions);

    world.topics.insert("gone".into(), deleting);
    world.register(BrokerId(3));
    world.brokers_changed();
    world.settle();
    let expected = recorded("27-broker-3-back-topic-deleted");
    let names = |topics: &BTreeMap<Arc<str>, TopicNode>| topics.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&world.topics), names(&expected.topics));
    assert!(world.deletions.is_empty());
}

/// What a topic's znode says of its partitions, and who leads and follows. Kafka takes replicas out of the ISR one by one, a
/// write each, where here it is one write: so epochs and versions are not compared.
fn outcome(topics: &BTreeMap<Arc<str>, TopicNode>, name: &str) -> String {
    let topic = &topics[name];
    let assignment = &topic.partitions[&0];
    let state = &topic.states[&0];
    format!("{assignment:?} leader {} isr {:?}", state.leader, state.isr)
}

fn order(world: &mut World, name: &str, target: Option<&str>) {
    let moves = [(TopicPartition::new(name, 0), target.map(ids))].into();
    world.ask(|ticket| Change::Reassign { ticket, moves });
    world.settle();
}

fn join(world: &mut World, name: &str, leader: i32, isr: &str) {
    let request = world.new_isr(BrokerId(leader), &TopicPartition::new(name, 0), isr);
    world.ask(|ticket| Change::AlterPartition { ticket, request });
    world.settle();
}

#[test]
fn a_partition_moves_as_recorded() {
    let mut world = taken_over("17-producer-id-block-and-internal-topics");
    order(&mut world, "moving", Some("3,2"));
    let recording = recorded("18-reassignment-in-progress").topics;
    let moving = |topics: &BTreeMap<Arc<str>, TopicNode>| {
        let topic = topics["moving"].clone();
        (topic.version, topic.partitions, show_leadership(&topic.states[&0]))
    };
    assert_eq!(moving(&world.topics), moving(&recording));
    order(&mut world, "moving", None);
    let recording = recorded("19-reassignment-cancelled").topics;
    assert_eq!(outcome(&world.topics, "moving"), outcome(&recording, "moving"));
    order(&mut world, "moving", Some("3,2"));
    join(&mut world, "moving", 1, "1,2,3");
    let recording = recorded("20-reassignment-completed").topics;
    assert_eq!(outcome(&world.topics, "moving"), outcome(&recording, "moving"));
}

#[test]
fn a_partition_moves_as_recorded_by_the_znode_of_old_tools() {
    let mut world = taken_over("29-legacy-preferred-election-znode");
    let moves = [(TopicPartition::new("assigned", 0), ids("2,3"))].into();
    world.orders = Some(Orders { moves, version: 0 });
    world.orders_changed();
    world.settle();
    assert!(world.orders.is_some());
    join(&mut world, "assigned", 2, "2,1,3");
    let recording = recorded("30-legacy-reassignment-znode").topics;
    assert_eq!(outcome(&world.topics, "assigned"), outcome(&recording, "assigned"));
    assert_eq!(world.orders, None);
}
