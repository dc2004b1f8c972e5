//! What the controller reads of ZooKeeper, each time with a watch for the next change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    ids::{BrokerEpoch, BrokerId, PartitionEpoch},
    topic::TopicPartition,
};
use controller::{
    assignment::Assignment,
    change::{StateRead, TopicRead},
    reassignment::Orders,
    states::Leadership,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use metadata::broker::Broker;
use tracing::{error, warn};
use zk::{
    documents::{
        DocumentError, admin,
        broker::BrokerDocument,
        notification,
        partition_state::{LeaderRecoveryState, PartitionStateDocument},
        topic::{self, TopicDocument},
    },
    paths,
    store::{Node, Watch, ZkError, ZkStore},
};

/// Reads under way at once; the store has a limit of its own for what is on the wire.
const READS_MAX: usize = 128;

/// Reads many nodes, in the order of the paths.
async fn get_all(
    zk: &dyn ZkStore,
    paths: Vec<String>,
    watch: Watch,
) -> Result<Vec<Option<Node>>, ZkError> {
    let read = |path: String| async move { zk.get(&path, watch).await };
    stream::iter(paths.into_iter().map(read)).buffered(READS_MAX).try_collect().await
}

/// All registered brokers. One whose document cannot be read counts as not registered.
pub async fn brokers(zk: &dyn ZkStore) -> Result<Vec<Arc<Broker>>, ZkError> {
    let names = zk.children(paths::BROKER_IDS, Watch::Yes).await?;
    let mut ids: Vec<i32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    ids.sort_unstable();
    let nodes =
        get_all(zk, ids.iter().map(|id| paths::broker_id(*id)).collect(), Watch::Yes).await?;
    let mut brokers = Vec::new();
    for (id, node) in ids.into_iter().zip(nodes) {
        let Some(node) = node else { continue };
        match BrokerDocument::parse(BrokerId(id), &node.data) {
            Ok(document) => {
                let epoch = BrokerEpoch(node.stat.czxid);
                brokers.push(Arc::new(document.broker(BrokerId(id), epoch)));
            }
            Err(error) => error!(%error, broker = id, "a broker's registration cannot be read"),
        }
    }
    Ok(brokers)
}

/// The children of a node whose names stand for topics.
pub async fn names(zk: &dyn ZkStore, path: &str) -> Result<BTreeSet<Arc<str>>, ZkError> {
    Ok(zk.children(path, Watch::Yes).await?.into_iter().map(Arc::from).collect())
}

/// Topics with the states of those partitions that are not known yet. Topics that vanished meanwhile,
/// or cannot be read, are left out.
pub async fn topics(
    zk: &dyn ZkStore,
    names: Vec<Arc<str>>,
    knows: &(dyn Fn(&str, i32) -> bool + Sync),
) -> Result<Vec<TopicRead>, ZkError> {
    let nodes =
        get_all(zk, names.iter().map(|name| paths::topic(name)).collect(), Watch::Yes).await?;
    let mut topics = Vec::new();
    let mut wanted = Vec::new();
    for (name, node) in names.into_iter().zip(nodes) {
        let Some(node) = node else { continue };
        let Some(read) = parse_topic(name, &node) else { continue };
        for &index in read.partitions.keys() {
            if !knows(&read.name, index) {
                wanted.push((topics.len(), index));
            }
        }
        topics.push(read);
    }
    let state_path = |(at, index): &(usize, i32)| paths::partition_state(&topics[*at].name, *index);
    let states = get_all(zk, wanted.iter().map(state_path).collect(), Watch::No).await?;
    for ((at, index), node) in wanted.into_iter().zip(states) {
        let read: &mut TopicRead = &mut topics[at];
        let mut state = state_of(&read.name, index, node);
        if state.is_err() {
            // Looked at again when it is mended, and only then: others change with every election.
            let path = paths::partition_state(&read.name, index);
            state = state_of(&read.name, index, zk.get(&path, Watch::Yes).await?);
        }
        let state = state.unwrap_or_else(|error| {
            error!(%error, topic = &*read.name, partition = index, "a partition's state cannot be read: it stays as it is");
            StateRead::Unreadable
        });
        read.leaderships.insert(index, state);
    }
    Ok(topics)
}

fn parse_topic(name: Arc<str>, node: &Node) -> Option<TopicRead> {
    match TopicDocument::parse(&name, &node.data) {
        Ok(document) => {
            let partitions = document.partitions.into_iter();
            Some(TopicRead {
                name,
                version: node.stat.version.0,
                id: document.topic_id,
                partitions: partitions.map(|(index, one)| (index, from_document(one))).collect(),
                leaderships: BTreeMap::new(),
            })
        }
        Err(error) => {
            error!(%error, topic = &*name, "a topic cannot be read");
            None
        }
    }
}

fn state_of(topic: &str, index: i32, node: Option<Node>) -> Result<StateRead, DocumentError> {
    let Some(node) = node else { return Ok(StateRead::Missing) };
    parse_state(topic, index, &node).map(StateRead::Is)
}

fn parse_state(topic: &str, index: i32, node: &Node) -> Result<Leadership, DocumentError> {
    let document = PartitionStateDocument::parse(topic, index, &node.data)?;
    Ok(Leadership {
        leader: document.leader,
        leader_epoch: document.leader_epoch,
        recovering: document.leader_recovery_state == LeaderRecoveryState::Recovering,
        isr: document.isr,
        controller_epoch: document.controller_epoch,
        partition_epoch: PartitionEpoch(node.stat.version.0),
    })
}

/// The assignment as the document has it.
pub fn from_document(document: topic::Assignment) -> Assignment {
    let topic::Assignment { replicas, adding, removing } = document;
    Assignment { replicas, adding, removing }
}

/// The document of an assignment.
pub fn to_document(assignment: &Assignment) -> topic::Assignment {
    let Assignment { replicas, adding, removing } = assignment.clone();
    topic::Assignment { replicas, adding, removing }
}

/// Brokers that told of a lost log directory, and the paths that say so.
pub async fn log_dir_events(
    zk: &dyn ZkStore,
) -> Result<(BTreeSet<BrokerId>, Vec<String>), ZkError> {
    let (mut brokers, mut paths) = (BTreeSet::new(), Vec::new());
    for name in zk.children(paths::LOG_DIR_EVENTS, Watch::Yes).await? {
        paths.push(format!("{}/{name}", paths::LOG_DIR_EVENTS));
    }
    for (path, node) in paths.iter().zip(get_all(zk, paths.clone(), Watch::No).await?) {
        let Some(node) = node else { continue };
        match notification::parse_log_dir_event(path, &node.data) {
            Ok(broker) => {
                brokers.insert(broker);
            }
            Err(error) => warn!(%error, "a notice of a lost log directory cannot be read"),
        }
    }
    Ok((brokers, paths))
}

/// Partitions that an old tool wants led by their first replica; none where there is no such order.
pub async fn preferred_elections(
    zk: &dyn ZkStore,
) -> Result<Option<BTreeSet<TopicPartition>>, ZkError> {
    let path = paths::PREFERRED_REPLICA_ELECTION;
    let Some(node) = zk.get(path, Watch::Yes).await? else { return Ok(None) };
    Ok(Some(admin::parse_partitions(path, &node.data).unwrap_or_else(|error| {
        warn!(%error, "an order for preferred elections cannot be read");
        BTreeSet::new()
    })))
}

/// The moves that an old tool has ordered; none where there is no such order. Kafka treats an order that cannot be read as
/// one of nothing.
pub async fn orders(zk: &dyn ZkStore) -> Result<Option<Orders>, ZkError> {
    let Some(node) = zk.get(paths::REASSIGN_PARTITIONS, Watch::Yes).await? else { return Ok(None) };
    let moves = admin::parse_reassignment(&node.data).unwrap_or_else(|error| {
        warn!(%error, "an order to move partitions cannot be read");
        BTreeMap::new()
    });
    Ok(Some(Orders { moves, version: node.stat.version.0 }))
}

/// The states of partitions whose leaders say that they have changed them, and the paths of the notices.
pub async fn isr_changes(
    zk: &dyn ZkStore,
) -> Result<(Vec<(TopicPartition, Leadership)>, Vec<String>), ZkError> {
    let mut paths = Vec::new();
    for name in zk.children(paths::ISR_CHANGES, Watch::Yes).await? {
        paths.push(format!("{}/{name}", paths::ISR_CHANGES));
    }
    let mut changed = BTreeSet::new();
    for (path, node) in paths.iter().zip(get_all(zk, paths.clone(), Watch::No).await?) {
        let Some(node) = node else { continue };
        match admin::parse_partitions(path, &node.data) {
            Ok(partitions) => changed.extend(partitions),
            Err(error) => warn!(%error, "a notice of a changed ISR cannot be read"),
        }
    }
    let state_path = |id: &TopicPartition| paths::partition_state(&id.topic, id.partition);
    let nodes = get_all(zk, changed.iter().map(state_path).collect(), Watch::No).await?;
    let state = |(id, node): (TopicPartition, Option<Node>)| match parse_state(
        &id.topic,
        id.partition,
        &node?,
    ) {
        Ok(leadership) => Some((id, leadership)),
        Err(error) => {
            error!(%error, partition = %id, "a partition's state cannot be read");
            None
        }
    };
    Ok((changed.into_iter().zip(nodes).filter_map(state).collect(), paths))
}
