//! What the client knows of the cluster.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use common::{error_code::ErrorCode, topic::Uuid};
use kafka_protocol::messages::MetadataResponse;

/// A broker, as clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `broker.id`; negative for a bootstrap address.
    pub id: i32,
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `broker.rack`.
    pub rack: Option<String>,
}

impl fmt::Display for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rack = self.rack.as_deref().unwrap_or("null");
        write!(formatter, "{}:{} (id: {} rack: {rack})", self.host, self.port, self.id)
    }
}

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number.
    pub index: i32,
    /// Error of this partition alone.
    pub error: ErrorCode,
    /// The leader, if it has one.
    pub leader: Option<i32>,
    /// -1 where unknown.
    pub leader_epoch: i32,
    /// Assigned brokers; the first is preferred.
    pub replicas: Vec<i32>,
    /// Brokers in sync.
    pub isr: Vec<i32>,
}

/// A topic, or why it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id; zero where the broker has none.
    pub id: Uuid,
    /// `None` when the rest is valid.
    pub error: ErrorCode,
    /// Whether it belongs to the brokers.
    pub is_internal: bool,
    /// By number.
    pub partitions: Vec<Partition>,
}

/// A view of the cluster. Never changes; a newer one replaces it.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Id of the cluster.
    pub cluster_id: Option<String>,
    /// The controller, if known.
    pub controller: Option<i32>,
    /// Brokers by id.
    pub nodes: BTreeMap<i32, Node>,
    /// Topics by name: those asked for, or all.
    pub topics: HashMap<String, Topic>,
}

impl Metadata {
    /// Reads a broker's answer.
    pub fn from_response(response: &MetadataResponse) -> Metadata {
        let nodes = response.brokers.iter().map(|broker| {
            let node = Node {
                id: broker.node_id.0,
                host: broker.host.to_string(),
                port: u16::try_from(broker.port).unwrap_or(0),
                rack: broker.rack.as_ref().map(|rack| rack.to_string()),
            };
            (node.id, node)
        });
        let topics = response.topics.iter().filter_map(|topic| {
            let name = topic.name.as_ref()?.0.to_string();
            let mut partitions: Vec<Partition> = topic.partitions.iter().map(partition).collect();
            partitions.sort_by_key(|partition| partition.index);
            let topic = Topic {
                name: name.clone(),
                id: Uuid(topic.topic_id.as_u128()),
                error: ErrorCode::from_code(topic.error_code),
                is_internal: topic.is_internal,
                partitions,
            };
            Some((name, topic))
        });
        Metadata {
            cluster_id: response.cluster_id.as_ref().map(|id| id.to_string()),
            controller: (response.controller_id.0 >= 0).then_some(response.controller_id.0),
            nodes: nodes.collect(),
            topics: topics.collect(),
        }
    }

    /// The partition, when its topic is known without error.
    pub fn partition(&self, topic: &str, index: i32) -> Option<&Partition> {
        let topic = self.topics.get(topic).filter(|topic| topic.error == ErrorCode::None)?;
        topic.partitions.iter().find(|partition| partition.index == index)
    }

    /// The broker that leads the partition, when both are known.
    pub fn leader(&self, topic: &str, index: i32) -> Option<&Node> {
        self.nodes.get(&self.partition(topic, index)?.leader?)
    }
}

fn partition(
    partition: &kafka_protocol::messages::metadata_response::MetadataResponsePartition,
) -> Partition {
    let ids = |ids: &[kafka_protocol::messages::BrokerId]| ids.iter().map(|id| id.0).collect();
    Partition {
        index: partition.partition_index,
        error: ErrorCode::from_code(partition.error_code),
        leader: (partition.leader_id.0 >= 0).then_some(partition.leader_id.0),
        leader_epoch: partition.leader_epoch,
        replicas: ids(&partition.replica_nodes),
        isr: ids(&partition.isr_nodes),
    }
}
