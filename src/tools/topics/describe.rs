//! `kafka-topics --describe`.

use std::collections::{BTreeSet, HashMap};

use client::{
    admin::{
        Admin,
        configs::{ConfigEntry, ConfigResource},
        replicas::Reassignment,
    },
    error::ErrorKind,
    metadata::{Partition, Topic},
};
use common::{
    error_code::ErrorCode,
    topic::{TopicPartition, Uuid, is_internal},
};

use super::{Failure, existing_topics};
use crate::{console::say, java_order::by_text, options::Options};

/// What is asked for.
struct Report<'a> {
    options: &'a Options,
    live_brokers: BTreeSet<i32>,
    /// Whether topics are shown, not only the partitions that a filter lets through.
    shows_topics: bool,
}

/// Describes what `--topic` or `--topic-id` names, sorted by name.
pub(super) async fn run(admin: &Admin, options: &Options) -> Result<(), Failure> {
    let topics = wanted_topics(admin, options).await?;
    let cluster = admin.describe_cluster().await?;
    let report = Report {
        options,
        live_brokers: cluster.nodes.iter().map(|node| node.id).collect(),
        shows_topics: FILTERS.iter().all(|filter| !options.has(filter)),
    };
    let reassignments = reassignments(admin, &topics).await?;
    for topic in &topics {
        let resource = ConfigResource::Topic(topic.name.clone());
        let configs = admin.describe_configs(&resource).await?;
        // Kafka holds them in a hash table.
        let configs = by_text(configs, |config| &config.name);
        report.print(topic, &configs, &reassignments)?;
    }
    Ok(())
}

const FILTERS: &[&str] = &[
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
];

async fn wanted_topics(admin: &Admin, options: &Options) -> Result<Vec<Topic>, Failure> {
    let id = match options.text("topic-id")? {
        Some(text) => Some(topic_id(&text)?).filter(|id| *id != Uuid::ZERO),
        None => None,
    };
    if let Some(id) = id {
        let mut topics = admin.list_topics().await?;
        topics.retain(|topic| topic.id == id);
        if options.has("exclude-internal") {
            topics.retain(|topic| !is_internal(&topic.name));
        }
        if topics.is_empty() && !options.has("if-exists") {
            return Err(Failure::illegal_argument(format!(
                "TopicId '{id}' does not exist as expected"
            )));
        }
        return Ok(topics);
    }
    let names = existing_topics(admin, options).await?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut topics = Vec::new();
    for topic in admin.describe_topics(&names).await?.into_values() {
        topics.push(topic?);
    }
    Ok(topics)
}

/// Reads an id; the errors are those of `Uuid.fromString`.
fn topic_id(text: &str) -> Result<Uuid, Failure> {
    if text.len() > 24 {
        return Err(Failure::illegal_argument(format!(
            "Input string with prefix `{}` is too long to be decoded as a base64 UUID",
            &text[..text.floor_char_boundary(24)]
        )));
    }
    Uuid::parse(text).ok_or_else(|| {
        // Four letters hold three bytes.
        let bytes = text.trim_end_matches('=').len() * 3 / 4;
        Failure::illegal_argument(format!(
            "Input string `{text}` decoded as {bytes} bytes, which is not equal to the expected 16 bytes of a base64-encoded UUID"
        ))
    })
}

/// Moves under way; a broker that does not tell has none.
async fn reassignments(
    admin: &Admin,
    topics: &[Topic],
) -> Result<HashMap<TopicPartition, Reassignment>, Failure> {
    let mut names = BTreeSet::new();
    for topic in topics {
        let partitions = topic.partitions.iter();
        names.extend(partitions.map(|part| TopicPartition::new(topic.name.as_str(), part.index)));
    }
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    match admin.list_reassignments(Some(&names)).await {
        Ok(moves) => Ok(moves),
        Err(error)
            if error.kind == ErrorKind::UnsupportedVersion
                || error.code() == ErrorCode::ClusterAuthorizationFailed =>
        {
            Ok(HashMap::new())
        }
        Err(error) => Err(Failure::new(
            "java.lang.RuntimeException",
            format!("java.util.concurrent.ExecutionException: {}", error.with_class()),
        )),
    }
}

impl Report<'_> {
    fn print(
        &self,
        topic: &Topic,
        configs: &[ConfigEntry],
        reassignments: &HashMap<TopicPartition, Reassignment>,
    ) -> Result<(), Failure> {
        let of = |partition: &Partition| {
            reassignments.get(&TopicPartition::new(topic.name.as_str(), partition.index))
        };
        let overridden = self.options.has("topics-with-overrides");
        let has_overrides = configs.iter().any(|config| !config.is_default());
        if self.shows_topics && (!overridden || has_overrides) {
            let replication_factor =
                topic.partitions.first().map_or(0, |first| replication_factor(first, of(first)));
            say(&topic_line(topic, configs, replication_factor));
        }
        if overridden {
            return Ok(());
        }
        for partition in &topic.partitions {
            if self.shows(partition, configs, of(partition))? {
                say(&partition_line(&topic.name, partition, of(partition)));
            }
        }
        Ok(())
    }

    /// Whether one of the filters lets the partition through; without filters all pass.
    fn shows(
        &self,
        partition: &Partition,
        configs: &[ConfigEntry],
        reassignment: Option<&Reassignment>,
    ) -> Result<bool, Failure> {
        if self.shows_topics {
            return Ok(true);
        }
        let isr = partition.isr.len();
        let has = |filter| self.options.has(filter);
        let least = min_insync_replicas(configs)?;
        let is_led = partition.leader.is_some_and(|leader| self.live_brokers.contains(&leader));
        Ok((has("under-replicated-partitions")
            && replication_factor(partition, reassignment) > isr)
            || (has("unavailable-partitions") && !is_led)
            || (has("under-min-isr-partitions") && (partition.leader.is_none() || isr < least))
            || (has("at-min-isr-partitions") && isr == least))
    }
}

fn min_insync_replicas(configs: &[ConfigEntry]) -> Result<usize, Failure> {
    let config = configs.iter().find(|config| config.name == "min.insync.replicas");
    let value = config.and_then(|config| config.value.as_ref()?.parse().ok());
    value.ok_or_else(|| {
        Failure::new(
            "java.lang.NumberFormatException",
            "the broker gave no number for min.insync.replicas",
        )
    })
}

/// Replicas without those that a move under way adds.
fn replication_factor(partition: &Partition, reassignment: Option<&Reassignment>) -> usize {
    match reassignment {
        Some(moving) if is_moving(partition, moving) => {
            moving.replicas.len().saturating_sub(moving.adding.len())
        }
        _ => partition.replicas.len(),
    }
}

/// A move may have ended between the two answers.
fn is_moving(partition: &Partition, moving: &Reassignment) -> bool {
    let mut changing = moving.adding.iter().chain(&moving.removing);
    changing.any(|broker| partition.replicas.contains(broker))
}

fn topic_line(topic: &Topic, configs: &[ConfigEntry], replication_factor: usize) -> String {
    let overrides: Vec<String> = configs
        .iter()
        .filter(|config| !config.is_default())
        .map(|config| format!("{}={}", config.name, config.value.as_deref().unwrap_or("null")))
        .collect();
    let id = match topic.id {
        Uuid::ZERO => String::new(),
        id => format!("\tTopicId: {id}"),
    };
    format!(
        "Topic: {}{id}\tPartitionCount: {}\tReplicationFactor: {replication_factor}\tConfigs: {}",
        topic.name,
        topic.partitions.len(),
        overrides.join(",")
    )
}

fn partition_line(
    topic: &str,
    partition: &Partition,
    reassignment: Option<&Reassignment>,
) -> String {
    let list = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<String>>().join(",");
    let leader = partition.leader.map_or("none".to_owned(), |leader| leader.to_string());
    let moving = reassignment.map_or(String::new(), |moving| {
        format!(
            "\tAdding Replicas: {}\tRemoving Replicas: {}",
            list(&moving.adding),
            list(&moving.removing)
        )
    });
    // A cluster on ZooKeeper has no eligible leader replicas.
    format!(
        "\tTopic: {topic}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}{moving}\tElr: N/A\tLastKnownElr: N/A",
        partition.index,
        list(&partition.replicas),
        list(&partition.isr)
    )
}
