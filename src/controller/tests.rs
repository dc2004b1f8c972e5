//! Lives of clusters, as scripts: what is written, and what brokers are told.
//!
//! A line is a step; the controller then turns until it rests.
//! `brokers 1,2` registers and unregisters brokers so that these are there; `bounce 1` registers one
//! anew; `topic t 0:1,2 1:2,1` makes a topic or adds partitions (`noid` before the partitions leaves
//! out the id); `delete t` marks it; `gone t` removes its znodes; `deaf 1` and `hearing` stop and
//! resume answers to StopReplica, `stop-error` makes them fail; `answer 1 t-0` answers late;
//! `alter 1 t-0 1,2` is the wish of a leader for an ISR, its epochs as stored but for `registered=9 epoch=9 version=9
//! recovering=1 seen=9 id=9`;
//! `move t-0:2,3 t-1:back` orders and ends moves, `orders t-0:2,3` does in the znode; `elect preferred t-0` and
//! `elect unclean all` ask for elections, `rebalance 10` for those that the balance needs; `wrote 1 t-0 1,2` is an ISR
//! that its leader wrote itself;
//! `storage-error 1 t-0` and `storage-ok 1 t-0` answer LeaderAndIsr; `shutdown 1`, `behind 1`, `prefer t-0`,
//! `unclean t`, `conflict t-0` (`conflict topic t` for the topic's znode) speak for themselves. `start` begins the term.

mod alter_partition;
mod elections;
mod golden;
mod random;
mod reassignment;
mod world;

use std::{collections::BTreeSet, fmt::Write as _};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};
use expect_test::{Expect, expect};

use self::world::{World, ids, options};
use crate::{
    alter_partition::TopicKey, assignment::Assignment, change::Change, controller::Options,
    elect_leaders::ElectionType, reassignment::Orders,
};

fn partition(text: &str) -> TopicPartition {
    let (topic, index) = text.rsplit_once('-').unwrap();
    TopicPartition::new(topic, index.parse().unwrap())
}

fn topic(world: &mut World, words: &[&str]) {
    let name: std::sync::Arc<str> = words[0].into();
    let is_new = !world.topics.contains_key(&name);
    let node = world.topics.entry(name.clone()).or_default();
    let (words, id) = match words[1..] {
        ["noid", ..] => (&words[2..], None),
        _ => (&words[1..], Some(Uuid(u128::from(name.as_bytes()[0])))),
    };
    node.id = id;
    node.version += i32::from(!is_new);
    for word in words {
        let (index, replicas) = word.split_once(':').unwrap();
        node.partitions.insert(index.parse().unwrap(), Assignment::of(ids(replicas)));
    }
    if is_new {
        world.topics_changed();
    } else {
        world.topic_changed(&name);
    }
}

fn storage(world: &mut World, words: &[&str], error: ErrorCode) {
    let broker = BrokerId(words[0].parse().unwrap());
    let broker_epoch = world.brokers[&broker].epoch;
    let errors = vec![(partition(words[1]), error)];
    world.pending.push(Change::Led { broker, broker_epoch, errors });
}

fn step(world: &mut World, words: &[&str]) {
    match words {
        ["brokers"] | ["brokers", _] => {
            let list = ids(words.get(1).copied().unwrap_or_default());
            world.brokers.retain(|id, _| list.contains(id));
            for id in list {
                if !world.brokers.contains_key(&id) {
                    world.register(id);
                }
            }
            world.brokers_changed();
        }
        ["bounce", id] => {
            world.register(BrokerId(id.parse().unwrap()));
            world.brokers_changed();
        }
        ["topic", rest @ ..] => topic(world, rest),
        ["delete", name] => {
            world.deletions.insert((*name).into());
            world.deletions_changed();
        }
        ["gone", name] => {
            world.topics.remove(*name);
            world.topics_changed();
        }
        ["deaf", id] => {
            world.deaf.insert(BrokerId(id.parse().unwrap()));
        }
        ["hearing"] => world.deaf.clear(),
        ["stop-error"] => world.stop_error = ErrorCode::KafkaStorageError,
        ["answer", id, name] => {
            let broker = BrokerId(id.parse().unwrap());
            let broker_epoch = world.brokers[&broker].epoch;
            let errors = vec![(partition(name), ErrorCode::None)];
            world.pending.push(Change::Stopped { broker, broker_epoch, errors });
        }
        ["storage-error", rest @ ..] => storage(world, rest, ErrorCode::KafkaStorageError),
        ["storage-ok", rest @ ..] => storage(world, rest, ErrorCode::None),
        ["shutdown", id] => {
            world.shut_down(BrokerId(id.parse().unwrap()));
        }
        ["alter", id, name, isr, how @ ..] => {
            let mut request = world.new_isr(BrokerId(id.parse().unwrap()), &partition(name), isr);
            for pair in how {
                let (what, value) = pair.split_once('=').unwrap();
                let number: i32 = value.parse().unwrap();
                match what {
                    "registered" => request.broker_epoch = BrokerEpoch(number.into()),
                    "epoch" => request.partitions[0].leader_epoch = LeaderEpoch(number),
                    "version" => request.partitions[0].partition_epoch = PartitionEpoch(number),
                    "recovering" => request.partitions[0].recovering = number == 1,
                    "asked_in" => request.refuses_ineligible = number >= 2,
                    "seen" => request.partitions[0].isr[1].1 = BrokerEpoch(number.into()),
                    "id" => {
                        let id = Uuid(u128::try_from(number).unwrap());
                        request.partitions[0].topic = TopicKey::Id(id);
                    }
                    other => panic!("no such field: {other}"),
                }
            }
            world.ask(|ticket| Change::AlterPartition { ticket, request });
        }
        ["move", moves @ ..] => {
            let moves = moves.iter().map(|word| {
                let (name, replicas) = word.split_once(':').unwrap();
                let target = (replicas != "back").then(|| ids(replicas));
                (partition(name), target)
            });
            let moves = moves.collect();
            world.ask(|ticket| Change::Reassign { ticket, moves });
        }
        ["orders", moves @ ..] => {
            let moves = moves.iter().map(|word| {
                let (name, replicas) = word.split_once(':').unwrap();
                (partition(name), ids(replicas))
            });
            world.orders = Some(Orders { moves: moves.collect(), version: 0 });
            world.orders_changed();
        }
        ["elect", kind, partitions @ ..] => {
            let kind = match *kind {
                "preferred" => ElectionType::Preferred,
                _ => ElectionType::Unclean,
            };
            let only = match partitions {
                ["all"] => None,
                _ => Some(partitions.iter().map(|name| partition(name)).collect()),
            };
            world.ask(|ticket| Change::ElectLeaders { ticket, kind, only });
        }
        ["rebalance", percentage] => {
            let percentage = percentage.parse().unwrap();
            world.pending.push(Change::Rebalance { percentage });
        }
        ["wrote", id, name, isr] => {
            let request = world.new_isr(BrokerId(id.parse().unwrap()), &partition(name), isr);
            world.write_isr(&partition(name), &request.partitions[0]);
        }
        ["behind", id] => {
            world.pending.push(Change::Behind(BrokerId(id.parse().unwrap())));
        }
        ["prefer", name] => {
            world.pending.push(Change::PreferLeaders(BTreeSet::from([partition(name)])));
        }
        ["unclean", name] => {
            world.unclean.insert((*name).into());
            world.pending.push(Change::UncleanEnabled(Some((*name).into())));
        }
        ["conflict", "topic", name] => {
            world.conflicts.insert(TopicPartition::new(*name, -1));
        }
        ["conflict", name] => {
            world.conflicts.insert(partition(name));
        }
        other => panic!("no such step: {other:?}"),
    }
}

/// Runs the script; the steps before `start` are there when the controller is elected.
fn run(script: &str, options: Options) -> World {
    let mut world = World::new(options);
    let lines: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let start = lines.iter().position(|line| *line == "start").expect("a script has a start");
    for (index, line) in lines.iter().enumerate() {
        if index == start {
            world.pending.clear();
            world.brokers_changed();
            world.topics_changed();
            world.deletions_changed();
        } else {
            step(&mut world, &line.split(' ').collect::<Vec<_>>());
        }
        if index >= start {
            writeln!(world.log, "> {line}").unwrap();
            world.settle();
        }
    }
    world
}

fn check(script: &str, expected: Expect) {
    expected.assert_eq(&run(script, options()).log);
}

#[test]
fn a_new_topic_is_led_by_its_first_live_replicas() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:2,3 2:3,1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:2,3 2:3,1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2
            create t-2 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-2 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2 offline 3; t-2 leader 1 offline 3]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2 offline 3; t-2 leader 1 offline 3]
        "#]],
    );
}

#[test]
fn a_topic_without_an_id_gets_one_first() {
    check(
        "
        brokers 1
        start
        topic t noid 0:1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t noid 0:1
            set t id 101 1 partitions
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1]
        "#]],
    );
}

#[test]
fn partitions_of_unknown_brokers_are_shown_without_a_leader() {
    check(
        "
        brokers 1
        start
        topic t 0:7
        brokers 1,7
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:7
              to 1: know brokers 1 [t-0 leader -1 offline 7]
            > brokers 1,7
            create t-0 leader 7 epoch 0 isr 7
              to 1: know brokers 1,7 []
              to 7: know brokers 1,7 [t-0 leader -1]
              to 7: lead [t-0 new leader 7 epoch 0 isr 7]
              to 1: know brokers 1,7 [t-0 leader 7]
              to 7: know brokers 1,7 [t-0 leader 7]
        "#]],
    );
}

#[test]
fn added_partitions_leave_the_others_alone() {
    check(
        "
        brokers 1
        start
        topic t 0:1
        topic t 0:1 1:1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1]
            > topic t 0:1 1:1
            create t-1 leader 1 epoch 0 isr 1
              to 1: lead [t-1 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-1 leader 1]
        "#]],
    );
}

#[test]
fn a_new_controller_tells_everyone_what_is() {
    let mut world = run(
        "
        brokers 1,2
        start
        topic t 0:1,2
        topic u 0:2
        ",
        options(),
    );
    let mut next = World::new(options());
    std::mem::swap(&mut next.topics, &mut world.topics);
    next.register(BrokerId(1));
    next.brokers_changed();
    next.topics_changed();
    next.deletions_changed();
    next.settle();
    expect![[r#"
        set t-0 leader 1 epoch 1 isr 1
        set u-0 leader -1 epoch 1 isr 2
          to 1: know brokers 1 [t-0 leader 1 offline 2; u-0 leader 2 offline 2]
          to 1: lead [t-0 leader 1 epoch 1 isr 1]
          to 1: know brokers 1 [t-0 leader 1 offline 2; u-0 leader -1 offline 2]
    "#]]
    .assert_eq(&next.log);
}

#[test]
fn a_new_controller_says_what_did_not_change_once() {
    let script = "
        brokers 1,2
        start
        topic t 0:1,2 1:2
        topic u 0:2
    ";
    let mut world = run(script, options());
    let mut next = World::new(options());
    std::mem::swap(&mut next.topics, &mut world.topics);
    next.topics.get_mut("u").unwrap().states.clear();
    next.register(BrokerId(1));
    next.register(BrokerId(2));
    next.brokers_changed();
    next.topics_changed();
    next.deletions_changed();
    next.settle();
    expect![[r#"
        create u-0 leader 2 epoch 0 isr 2
          to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2; u-0 leader -1]
          to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2; u-0 leader -1]
          to 1: lead [t-0 leader 1 epoch 0 isr 1,2]
          to 2: lead [t-0 leader 1 epoch 0 isr 1,2; t-1 leader 2 epoch 0 isr 2; u-0 new leader 2 epoch 0 isr 2]
          to 1: know brokers 1,2 [u-0 leader 2]
          to 2: know brokers 1,2 [u-0 leader 2]
    "#]]
    .assert_eq(&next.log);
}

#[test]
fn a_dead_broker_loses_leadership_and_comes_back_as_a_follower() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:2,1 2:1
        brokers 2
        brokers 1,2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:2,1 2:1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2,1
            create t-2 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1; t-2 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
            > brokers 2
            set t-0 leader 2 epoch 1 isr 2
            set t-1 leader 2 epoch 1 isr 2
            set t-2 leader -1 epoch 1 isr 1
              to 2: know brokers 2 []
              to 2: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1; t-1 leader 2 offline 1; t-2 leader -1 offline 1]
            > brokers 1,2
            set t-2 leader 1 epoch 2 isr 1
              to 2: know brokers 1,2 []
              to 1: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader -1]
              to 1: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2; t-2 leader 1 epoch 2 isr 1]
              to 1: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1]
        "#]],
    );
}

#[test]
fn a_bounced_broker_does_not_keep_what_others_can_lead() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:2,1 2:1
        bounce 1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:2,1 2:1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2,1
            create t-2 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1; t-2 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
            > bounce 1
            set t-0 leader 2 epoch 1 isr 2
            set t-1 leader 2 epoch 1 isr 2
            set t-2 leader 1 epoch 1 isr 1
              to 2: know brokers 1,2 []
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 1: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2; t-2 leader 1 epoch 1 isr 1]
              to 2: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1]
        "#]],
    );
}

#[test]
fn the_last_member_of_an_isr_waits_unless_unclean_elections_are_allowed() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        brokers 2
        brokers
        brokers 1
        unclean t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > brokers 2
            set t-0 leader 2 epoch 1 isr 2
              to 2: know brokers 2 []
              to 2: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1]
            > brokers
            set t-0 leader -1 epoch 2 isr 2
            > brokers 1
              to 1: know brokers 1 [t-0 leader -1 offline 2]
              to 1: lead [t-0 leader -1 epoch 2 isr 2]
              to 1: know brokers 1 [t-0 leader -1 offline 2]
            > unclean t
            set t-0 leader 1 epoch 3 isr 1 recovering
              to 1: lead [t-0 leader 1 epoch 3 isr 1 recovering]
              to 1: know brokers 1 [t-0 leader 1 offline 2]
        "#]],
    );
}

#[test]
fn a_lost_log_directory_is_a_lost_replica() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        storage-error 1 t-0
        storage-error 1 t-0
        storage-ok 1 t-0
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > storage-error 1 t-0
            set t-0 leader 2 epoch 1 isr 2
              to 1: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: lead [t-0 leader 2 epoch 1 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2 offline 1]
              to 2: know brokers 1,2 [t-0 leader 2 offline 1]
            > storage-error 1 t-0
            > storage-ok 1 t-0
        "#]],
    );
}

#[test]
fn a_shutdown_moves_leaderships_and_stops_followers() {
    check(
        "
        brokers 1,2,3
        start
        topic t 0:1,2 1:2,1 2:1
        shutdown 1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3 []
              to 2: know brokers 1,2,3 []
              to 3: know brokers 1,2,3 []
            > topic t 0:1,2 1:2,1 2:1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2,1
            create t-2 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1; t-2 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 1: know brokers 1,2,3 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
            > shutdown 1
            set t-0 leader 2 epoch 1 isr 2
            set t-1 leader 2 epoch 1 isr 2
              to 1: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2]
              to 1: know brokers 1,2,3 [t-0 leader 2 offline 1; t-1 leader 2 offline 1]
              to 2: know brokers 1,2,3 [t-0 leader 2 offline 1; t-1 leader 2 offline 1]
              to 3: know brokers 1,2,3 [t-0 leader 2 offline 1; t-1 leader 2 offline 1]
              to 1: stop [t-1 epoch 1]
              answer shutdown, leads []
        "#]],
    );
}

#[test]
fn a_preferred_election_needs_the_first_replica_in_sync() {
    check(
        "
        brokers 2
        start
        topic t 0:1,2
        brokers 1,2
        prefer t-0
        ",
        expect![[r#"
            > start
              to 2: know brokers 2 []
            > topic t 0:1,2
            create t-0 leader 2 epoch 0 isr 2
              to 2: lead [t-0 new leader 2 epoch 0 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1]
            > brokers 1,2
              to 2: know brokers 1,2 []
              to 1: know brokers 1,2 [t-0 leader 2]
              to 1: lead [t-0 leader 2 epoch 0 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2]
              to 2: know brokers 1,2 [t-0 leader 2]
            > prefer t-0
        "#]],
    );
}

#[test]
fn a_conflict_is_read_again_and_decided_again() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        conflict t-0
        brokers 2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > conflict t-0
            > brokers 2
              to 2: know brokers 2 []
            read t again
            set t-0 leader 2 epoch 1 isr 2
              to 2: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1]
        "#]],
    );
}

#[test]
fn a_deleted_topic_goes_replica_by_replica() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:2,1
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:2,1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2,1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2]
            > delete t
            set t-0 leader -1 epoch 1 isr 2
            set t-1 leader -1 epoch 1 isr 1
              to 1: know brokers 1,2 [t-0 gone; t-1 gone]
              to 2: know brokers 1,2 [t-0 gone; t-1 gone]
              to 1: stop [t-0 delete; t-1 delete]
              to 2: stop [t-0 delete; t-1 delete]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn deletion_waits_for_dead_replicas() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        brokers 1
        delete t
        brokers 1,2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > brokers 1
            set t-0 leader 1 epoch 1 isr 1
              to 1: know brokers 1 []
              to 1: lead [t-0 leader 1 epoch 1 isr 1]
              to 1: know brokers 1 [t-0 leader 1 offline 2]
            > delete t
            set t-0 leader -1 epoch 2 isr 1
              to 1: know brokers 1 [t-0 gone]
              to 1: stop [t-0 delete]
            > brokers 1,2
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 [t-0 gone]
              to 1: know brokers 1,2 [t-0 gone]
              to 2: know brokers 1,2 [t-0 gone]
              to 2: stop [t-0 delete]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn deletion_survives_a_broker_that_dies_of_it() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        deaf 2
        delete t
        brokers 1
        hearing
        brokers 1,2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > deaf 2
            > delete t
            set t-0 leader -1 epoch 1 isr 2
              to 1: know brokers 1,2 [t-0 gone]
              to 2: know brokers 1,2 [t-0 gone]
              to 1: stop [t-0 delete]
              to 2: stop [t-0 delete]
            > brokers 1
              to 1: know brokers 1 []
            > hearing
            > brokers 1,2
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 [t-0 gone]
              to 1: know brokers 1,2 [t-0 gone]
              to 2: know brokers 1,2 [t-0 gone]
              to 2: stop [t-0 delete]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn a_failed_deletion_waits_for_a_broker_to_start() {
    check(
        "
        brokers 1
        start
        topic t 0:1
        stop-error
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1]
            > stop-error
            > delete t
            set t-0 leader -1 epoch 1 isr 1
              to 1: know brokers 1 [t-0 gone]
              to 1: stop [t-0 delete]
        "#]],
    );
}

#[test]
fn a_topic_that_was_never_led_is_deleted_at_once() {
    check(
        "
        brokers 1
        start
        topic t 0:7
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:7
              to 1: know brokers 1 [t-0 leader -1 offline 7]
            > delete t
              to 1: know brokers 1 [t-0 gone]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn a_partition_without_a_state_waits_for_its_dead_replicas_as_others_do() {
    check(
        "
        brokers 1
        start
        topic t 0:1 1:7
        delete t
        brokers 1,7
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:1 1:7
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1; t-1 leader -1 offline 7]
            > delete t
            set t-0 leader -1 epoch 1 isr 1
              to 1: know brokers 1 [t-0 gone; t-1 gone]
              to 1: stop [t-0 delete]
            > brokers 1,7
              to 1: know brokers 1,7 []
              to 7: know brokers 1,7 [t-0 gone; t-1 gone]
              to 1: know brokers 1,7 [t-0 gone; t-1 gone]
              to 7: know brokers 1,7 [t-0 gone; t-1 gone]
              to 7: stop [t-1 delete]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn partitions_added_to_a_topic_being_deleted_are_taken_out() {
    check(
        "
        brokers 1
        start
        topic t 0:1
        deaf 1
        delete t
        topic t 0:1 1:1
        hearing
        answer 1 t-0
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1]
            > deaf 1
            > delete t
            set t-0 leader -1 epoch 1 isr 1
              to 1: know brokers 1 [t-0 gone]
              to 1: stop [t-0 delete]
            > topic t 0:1 1:1
            set t id 116 1 partitions
            > hearing
            > answer 1 t-0
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn marks_of_unknown_topics_are_removed() {
    check(
        "
        brokers 1
        start
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > delete t
            unmark t
        "#]],
    );
    let world = run(
        "
        brokers 1
        topic t 0:1
        start
        delete t
        ",
        Options { delete_topics: false, ..options() },
    );
    assert!(world.deletions.is_empty() && world.topics.contains_key("t"));
}

#[test]
fn a_topic_that_vanishes_is_forgotten() {
    let world = run(
        "
        brokers 1
        start
        topic t 0:1
        gone t
        ",
        options(),
    );
    assert_eq!(world.controller.counts().topics, 0);
    assert_eq!(world.controller.topic_name(Uuid(u128::from(b't'))), None);
}

#[test]
fn a_broker_that_was_not_told_everything_is_told_again() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        topic u 0:2
        topic v 0:1
        deaf 2
        delete u
        hearing
        behind 2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > topic u 0:2
            create u-0 leader 2 epoch 0 isr 2
              to 2: lead [u-0 new leader 2 epoch 0 isr 2]
              to 1: know brokers 1,2 [u-0 leader 2]
              to 2: know brokers 1,2 [u-0 leader 2]
            > topic v 0:1
            create v-0 leader 1 epoch 0 isr 1
              to 1: lead [v-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1,2 [v-0 leader 1]
              to 2: know brokers 1,2 [v-0 leader 1]
            > deaf 2
            > delete u
            set u-0 leader -1 epoch 1 isr 2
              to 1: know brokers 1,2 [u-0 gone]
              to 2: know brokers 1,2 [u-0 gone]
              to 2: stop [u-0 delete]
            > hearing
            > behind 2
              to 2: know brokers 1,2 [t-0 leader 1; u-0 gone; v-0 leader 1]
              to 2: lead [t-0 leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1; u-0 gone]
              to 2: know brokers 1,2 [t-0 leader 1; u-0 gone]
              to 2: stop [u-0 delete]
            delete u
            deleted u
        "#]],
    );
}

#[test]
fn a_shutdown_names_what_nobody_else_can_lead() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:1
        alter 1 t-0 1
        shutdown 1
        shutdown 3
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 1]
            > alter 1 t-0 1
            set t-0 leader 1 epoch 0 isr 1
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
              answer t-0 leader 1 epoch 0 isr 1 version 1
            > shutdown 1
              answer shutdown, leads [t-0]
            > shutdown 3
              answer BROKER_NOT_AVAILABLE
        "#]],
    );
}
