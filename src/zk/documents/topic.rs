//! `/brokers/topics/<topic>`: a topic's id and the replicas of its partitions.

use std::collections::BTreeMap;

use common::{ids::BrokerId, topic::Uuid};
use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, to_json};
use crate::paths;

/// Written by every broker since 2.8, whatever the inter-broker protocol.
const VERSION: i32 = 3;

/// Where a partition's replicas are. While it moves, `replicas` has the target first, then the rest of the original.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Its replicas, the preferred leader first.
    pub replicas: Vec<BrokerId>,
    /// Those of them that are being added.
    pub adding: Vec<BrokerId>,
    /// Those of them that are being removed.
    pub removing: Vec<BrokerId>,
}

impl Assignment {
    /// Replicas of a partition that does not move.
    pub fn of(replicas: Vec<BrokerId>) -> Assignment {
        Assignment { replicas, adding: Vec::new(), removing: Vec::new() }
    }
}

/// A topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicDocument {
    /// Its id; topics made before 2.8 have none.
    pub topic_id: Option<Uuid>,
    /// Its partitions by number.
    pub partitions: BTreeMap<i32, Assignment>,
}

type Replicas = BTreeMap<i32, Vec<i32>>;

#[derive(Serialize, Deserialize)]
struct Wire {
    partitions: Option<Replicas>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_id: Option<String>,
    adding_replicas: Option<Replicas>,
    removing_replicas: Option<Replicas>,
    #[serde(skip_deserializing)]
    version: i32,
}

impl TopicDocument {
    /// Reads a topic; the document's version does not matter.
    pub fn parse(topic: &str, data: &[u8]) -> Result<TopicDocument, DocumentError> {
        let path = paths::topic(topic);
        let wire: Wire = from_json(&path, data)?;
        let topic_id =
            match wire.topic_id {
                None => None,
                Some(text) => Some(Uuid::parse(&text).ok_or_else(|| {
                    DocumentError::new(&path, format!("\"{text}\" is no topic id"))
                })?),
            };
        let mut adding = wire.adding_replicas.unwrap_or_default();
        let mut removing = wire.removing_replicas.unwrap_or_default();
        let mut partitions = BTreeMap::new();
        for (partition, replicas) in wire.partitions.unwrap_or_default() {
            if partition < 0 {
                return Err(DocumentError::new(&path, format!("partition {partition}")));
            }
            let assignment = Assignment {
                replicas: brokers(replicas),
                adding: brokers(adding.remove(&partition).unwrap_or_default()),
                removing: brokers(removing.remove(&partition).unwrap_or_default()),
            };
            partitions.insert(partition, assignment);
        }
        Ok(TopicDocument { topic_id, partitions })
    }

    /// Writes it as version 3.
    pub fn to_bytes(&self) -> Vec<u8> {
        let some = |list: fn(&Assignment) -> &Vec<BrokerId>| -> Option<Replicas> {
            let moving = self.partitions.iter().filter(|(_, a)| !list(a).is_empty());
            Some(moving.map(|(&partition, a)| (partition, numbers(list(a)))).collect())
        };
        let partitions = self.partitions.iter().map(|(&p, a)| (p, numbers(&a.replicas)));
        to_json(&Wire {
            partitions: Some(partitions.collect()),
            topic_id: self.topic_id.map(|id| id.to_string()),
            adding_replicas: some(|assignment| &assignment.adding),
            removing_replicas: some(|assignment| &assignment.removing),
            version: VERSION,
        })
    }
}

fn brokers(ids: Vec<i32>) -> Vec<BrokerId> {
    ids.into_iter().map(BrokerId).collect()
}

fn numbers(ids: &[BrokerId]) -> Vec<i32> {
    ids.iter().map(|id| id.0).collect()
}
