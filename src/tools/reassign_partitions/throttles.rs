//! Limits on what a reassignment copies: configs of the topics and of the brokers that take part.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use client::{
    admin::{
        Admin,
        configs::{AlterOperation, ConfigResource},
        replicas::{Reassignment, Replica},
    },
    error::ClientError,
};
use common::topic::TopicPartition;
use futures_util::future::join_all;

use super::file::joined;
use crate::{
    console::say,
    java_order::{by_text, numbers},
};

const LEADER_RATE: &str = "leader.replication.throttled.rate";
const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
const DIRECTORY_RATE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";
const LEADER_REPLICAS: &str = "leader.replication.throttled.replicas";
const FOLLOWER_REPLICAS: &str = "follower.replication.throttled.replicas";

/// Changes of one resource's configs.
type Changes = BTreeMap<String, AlterOperation>;

/// From where to where a partition moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Move {
    sources: BTreeSet<i32>,
    destinations: BTreeSet<i32>,
}

/// Moves of partitions.
pub(super) type Moves = BTreeMap<TopicPartition, Move>;

/// What moves already, and what is proposed; both are throttled.
pub(super) fn moves(
    current: &HashMap<TopicPartition, Reassignment>,
    proposed: &BTreeMap<TopicPartition, Vec<i32>>,
    replicas: &BTreeMap<TopicPartition, Vec<i32>>,
) -> Moves {
    let mut moves = Moves::new();
    for (name, moving) in current {
        let destinations: BTreeSet<i32> = moving.adding.iter().copied().collect();
        let sources = moving.replicas.iter().copied().filter(|id| !destinations.contains(id));
        moves.insert(name.clone(), Move { sources: sources.collect(), destinations });
    }
    for (name, targets) in proposed {
        let sources = match moves.get(name) {
            Some(moving) => moving.sources.clone(),
            None => replicas.get(name).into_iter().flatten().copied().collect(),
        };
        let destinations = targets.iter().copied().filter(|id| !sources.contains(id)).collect();
        moves.insert(name.clone(), Move { sources, destinations });
    }
    moves
}

/// `partition:broker` for each replica that a choice takes of a topic's moves.
fn throttled_replicas(moves: &Moves, choice: fn(&Move) -> &BTreeSet<i32>) -> Changes {
    let mut topics: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, moving) in moves {
        let replicas = choice(moving).iter().map(|broker| format!("{}:{broker}", name.partition));
        topics.entry(&name.topic).or_default().extend(replicas);
    }
    let value = |replicas: BTreeSet<String>| {
        AlterOperation::Set(replicas.into_iter().collect::<Vec<_>>().join(","))
    };
    topics.into_iter().map(|(topic, replicas)| (topic.to_owned(), value(replicas))).collect()
}

/// Limits the copying between the brokers of the moves to so many bytes a second.
pub(super) async fn set_between_brokers(
    admin: &Admin,
    moves: &Moves,
    bytes_per_second: i64,
) -> Result<(), ClientError> {
    let leaders = throttled_replicas(moves, |moving| &moving.sources);
    let followers = throttled_replicas(moves, |moving| &moving.destinations);
    let topics = leaders.into_iter().zip(followers).map(|((topic, leader), (_, follower))| {
        let changes =
            [(LEADER_REPLICAS.to_owned(), leader), (FOLLOWER_REPLICAS.to_owned(), follower)];
        (ConfigResource::Topic(topic), Changes::from(changes))
    });
    alter_all(admin, topics.collect()).await?;
    let brokers: BTreeSet<i32> = moves
        .values()
        .flat_map(|moving| moving.sources.iter().chain(&moving.destinations))
        .copied()
        .collect();
    set_rates(admin, &brokers, &[LEADER_RATE, FOLLOWER_RATE], bytes_per_second).await?;
    say(&format!("The inter-broker throttle limit was set to {bytes_per_second} B/s"));
    Ok(())
}

/// Limits the copying between log directories of these replicas' brokers.
pub(super) async fn set_between_directories<'a>(
    admin: &Admin,
    replicas: impl Iterator<Item = &'a Replica>,
    bytes_per_second: i64,
) -> Result<(), ClientError> {
    let brokers = replicas.map(|replica| replica.broker).collect();
    set_rates(admin, &brokers, &[DIRECTORY_RATE], bytes_per_second).await?;
    say(&format!("The replica-alter-dir throttle limit was set to {bytes_per_second} B/s"));
    Ok(())
}

async fn set_rates(
    admin: &Admin,
    brokers: &BTreeSet<i32>,
    rates: &[&str],
    bytes_per_second: i64,
) -> Result<(), ClientError> {
    let set = |rate: &&str| ((*rate).to_owned(), AlterOperation::Set(bytes_per_second.to_string()));
    let changes: Changes = rates.iter().map(set).collect();
    let resources = brokers.iter().map(|id| (ConfigResource::Broker(Some(*id)), changes.clone()));
    alter_all(admin, resources.collect()).await
}

/// Takes all limits away: from all brokers, and from the topics that were to move.
pub(super) async fn clear(
    admin: &Admin,
    targets: &[(TopicPartition, Vec<i32>)],
) -> Result<(), ClientError> {
    let nodes = admin.describe_cluster().await?.nodes;
    let live = nodes.iter().map(|node| node.id);
    let named = targets.iter().flat_map(|(_, replicas)| replicas.iter().copied());
    let brokers: BTreeSet<i32> = live.chain(named).collect();
    let brokers = numbers(brokers.into_iter().collect());
    let plural = if brokers.len() == 1 { "" } else { "s" };
    say(&format!("Clearing broker-level throttles on broker{plural} {}", joined(&brokers, ",")));
    let resources = brokers.iter().map(|id| {
        let rates = [LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE];
        (ConfigResource::Broker(Some(*id)), deletions(&rates))
    });
    alter_all(admin, resources.collect()).await?;
    let topics: BTreeSet<String> = targets.iter().map(|(name, _)| name.topic.to_string()).collect();
    let topics = by_text(topics.into_iter().collect(), |topic| topic);
    let plural = if topics.len() == 1 { "" } else { "s" };
    say(&format!("Clearing topic-level throttles on topic{plural} {}", topics.join(",")));
    let replicas = deletions(&[LEADER_REPLICAS, FOLLOWER_REPLICAS]);
    let resources =
        topics.into_iter().map(|topic| (ConfigResource::Topic(topic), replicas.clone()));
    alter_all(admin, resources.collect()).await
}

fn deletions(names: &[&str]) -> Changes {
    names.iter().map(|name| ((*name).to_owned(), AlterOperation::Delete)).collect()
}

/// Changes all that can be changed, side by side: a broker that is down holds up no other. The first error is told.
async fn alter_all(
    admin: &Admin,
    resources: Vec<(ConfigResource, Changes)>,
) -> Result<(), ClientError> {
    let calls = resources.iter().map(|(resource, changes)| admin.alter_configs(resource, changes));
    join_all(calls).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use client::admin::{configs::AlterOperation, replicas::Reassignment};
    use common::topic::TopicPartition;

    use super::{moves, throttled_replicas};

    #[test]
    fn what_moves_already_keeps_its_sources() {
        let name = |index| TopicPartition::new("t", index);
        let current = HashMap::from([(
            name(0),
            Reassignment { replicas: vec![3, 1, 2], adding: vec![3], removing: vec![1] },
        )]);
        let proposed = BTreeMap::from([(name(0), vec![4, 2]), (name(10), vec![2, 3])]);
        let replicas = BTreeMap::from([(name(0), vec![3, 1, 2]), (name(10), vec![1, 2])]);
        let moves = moves(&current, &proposed, &replicas);
        let set = |text: &str| AlterOperation::Set(text.to_owned());
        let leaders = throttled_replicas(&moves, |moving| &moving.sources);
        assert_eq!(leaders["t"], set("0:1,0:2,10:1,10:2"));
        let followers = throttled_replicas(&moves, |moving| &moving.destinations);
        assert_eq!(followers["t"], set("0:4,10:3"));
    }
}
