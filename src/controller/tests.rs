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
mod brokers;
mod deletion;
mod elections;
mod ending;
mod golden;
mod random;
mod reassignment;
mod topics;
mod world;

use std::{collections::BTreeSet, fmt::Write as _};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};
use expect_test::Expect;

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
        ["forbid", name] => {
            world.forbidden.insert(partition(name));
        }
        ["allow", name] => {
            let id = partition(name);
            world.forbidden.remove(&id);
            world.topic_changed(&id.topic);
        }
        ["spoil", name] => {
            let id = partition(name);
            let states = &mut world.topics.get_mut(&id.topic).unwrap().states;
            states.get_mut(&id.partition).unwrap().partition_epoch.0 += 1;
            world.unreadable.insert(id);
        }
        ["mend", name] => {
            let id = partition(name);
            world.unreadable.remove(&id);
            world.topic_changed(&id.topic);
        }
        ["lose-answer", name] => {
            world.lost_answers.insert(partition(name));
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
