//! Waits until every broker tells clients what ZooKeeper has: a change is told to each broker in its own time, and a command
//! may ask any of them.

use std::collections::{BTreeMap, BTreeSet};

use client::{
    cluster::{Cluster as Brokers, Topics},
    config::ConnectionConfig,
    metadata::Metadata,
};
use common::{clock, properties::Properties};
use serde_json::Value;
use zk::{
    paths,
    real::{RealStore, ZkConfig},
    store::{Watch, ZkStore},
};

use super::stage::WAIT_LIMIT;

/// A partition: its replicas, its leader, the leader's epoch, who is in sync.
type Told = (Vec<i32>, i32, i32, BTreeSet<i32>);

/// What there is: ids of brokers, and partitions by topic and number.
#[derive(Debug, PartialEq)]
struct State {
    brokers: BTreeSet<i32>,
    topics: BTreeMap<String, BTreeMap<i32, Told>>,
}

/// Returns when each broker of these addresses knows what ZooKeeper has.
pub(super) async fn settled(zookeeper: &str, addresses: &[&str]) {
    let store = RealStore::connect(ZkConfig::new(zookeeper)).await.unwrap();
    let deadline = clock::now() + WAIT_LIMIT;
    for address in addresses {
        let properties =
            Properties::from([("bootstrap.servers".to_owned(), (*address).to_owned())]);
        let config = ConnectionConfig::admin(&properties).unwrap();
        loop {
            // A new one each time: one that knows of other brokers asks them, too.
            let broker = Brokers::open(config.clone()).await.unwrap();
            let told = broker.refresh(&Topics::All, deadline).await.unwrap();
            let (told, wanted) = (of_metadata(&told), of_zookeeper(&store).await);
            if wanted.as_ref() == Some(&told) {
                break;
            }
            assert!(clock::now() < deadline, "{address} tells {told:?}, but there is {wanted:?}");
            tokio::task::yield_now().await;
        }
    }
    store.close().await.unwrap();
}

fn of_metadata(metadata: &Metadata) -> State {
    let topics = metadata.topics.values().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let in_sync = partition.isr.iter().copied().collect();
            let leader = partition.leader.unwrap_or(-1);
            let told = (partition.replicas.clone(), leader, partition.leader_epoch, in_sync);
            (partition.index, told)
        });
        (topic.name.clone(), partitions.collect())
    });
    State { brokers: metadata.nodes.keys().copied().collect(), topics: topics.collect() }
}

/// None while a node is missing.
async fn of_zookeeper(store: &RealStore) -> Option<State> {
    let read = async |path: &str| -> Option<Value> {
        let node = store.get(path, Watch::No).await.unwrap()?;
        Some(serde_json::from_slice(&node.data).unwrap())
    };
    let ids = store.children(paths::BROKER_IDS, Watch::No).await.unwrap();
    let brokers = ids.iter().map(|id| id.parse().unwrap()).collect();
    // Nobody is told of a topic any more while a broker that is away keeps its deletion from ending.
    let deleted = store.children(paths::DELETE_TOPICS, Watch::No).await.unwrap();
    let mut topics = BTreeMap::new();
    let names = store.children(paths::TOPICS, Watch::No).await.unwrap();
    for topic in names.into_iter().filter(|topic| !deleted.contains(topic)) {
        let document = read(&paths::topic(&topic)).await?;
        let mut partitions = BTreeMap::new();
        for (partition, replicas) in document["partitions"].as_object().unwrap() {
            let partition: i32 = partition.parse().unwrap();
            let state = read(&paths::partition_state(&topic, partition)).await?;
            let in_sync = numbers(&state["isr"]).into_iter().collect();
            let told = (
                numbers(replicas),
                number(&state["leader"]),
                number(&state["leader_epoch"]),
                in_sync,
            );
            partitions.insert(partition, told);
        }
        topics.insert(topic, partitions);
    }
    Some(State { brokers, topics })
}

fn numbers(list: &Value) -> Vec<i32> {
    list.as_array().unwrap().iter().map(number).collect()
}

fn number(value: &Value) -> i32 {
    value.as_i64().unwrap().try_into().unwrap()
}
