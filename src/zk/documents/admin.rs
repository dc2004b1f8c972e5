//! `/admin/reassign_partitions` and `/admin/preferred_replica_election`: orders of old tools. `/isr_change_notification/*`
//! has the shape of the second.

use std::collections::{BTreeMap, BTreeSet};

use common::{ids::BrokerId, topic::TopicPartition};
use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, to_json};
use crate::paths;

#[derive(Serialize, Deserialize)]
struct Move {
    topic: String,
    partition: i32,
    replicas: Vec<i32>,
}

#[derive(Serialize, Deserialize)]
struct Moves {
    #[serde(skip_deserializing)]
    version: i32,
    partitions: Vec<Move>,
}

/// Reads `/admin/reassign_partitions`: where partitions shall be. Kafka treats a malformed one as empty.
pub fn parse_reassignment(
    data: &[u8],
) -> Result<BTreeMap<TopicPartition, Vec<BrokerId>>, DocumentError> {
    let moves: Moves = from_json(paths::REASSIGN_PARTITIONS, data)?;
    let pair = |m: Move| {
        let replicas = m.replicas.into_iter().map(BrokerId).collect();
        (TopicPartition::new(m.topic, m.partition), replicas)
    };
    Ok(moves.partitions.into_iter().map(pair).collect())
}

/// Writes `/admin/reassign_partitions`.
pub fn reassignment_to_bytes(moves: &BTreeMap<TopicPartition, Vec<BrokerId>>) -> Vec<u8> {
    let one = |(partition, replicas): (&TopicPartition, &Vec<BrokerId>)| Move {
        topic: partition.topic.to_string(),
        partition: partition.partition,
        replicas: replicas.iter().map(|id| id.0).collect(),
    };
    to_json(&Moves { version: 1, partitions: moves.iter().map(one).collect() })
}

#[derive(Serialize, Deserialize)]
struct Partition {
    topic: String,
    partition: i32,
}

#[derive(Serialize, Deserialize)]
struct Partitions {
    #[serde(skip_deserializing)]
    version: i32,
    partitions: Vec<Partition>,
}

/// Reads the partitions in `/admin/preferred_replica_election` or an ISR change.
pub fn parse_partitions(
    path: &str,
    data: &[u8],
) -> Result<BTreeSet<TopicPartition>, DocumentError> {
    let document: Partitions = from_json(path, data)?;
    let partition = |p: Partition| TopicPartition::new(p.topic, p.partition);
    Ok(document.partitions.into_iter().map(partition).collect())
}

/// Writes the partitions of `/admin/preferred_replica_election` or an ISR change.
pub fn partitions_to_bytes(partitions: &BTreeSet<TopicPartition>) -> Vec<u8> {
    let one = |p: &TopicPartition| Partition { topic: p.topic.to_string(), partition: p.partition };
    to_json(&Partitions { version: 1, partitions: partitions.iter().map(one).collect() })
}
