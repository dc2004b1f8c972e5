//! The two JSON files of the script: topics to be moved, and where partitions shall be.

use std::collections::{BTreeMap, BTreeSet};

use client::admin::replicas::Replica;
use common::topic::TopicPartition;
use serde_json::Value;

use crate::{
    java_order::{by_partition, by_text, numbers},
    json,
};

/// A log directory that the broker chooses.
const ANY_DIRECTORY: &str = "any";
/// The only version of both files; the one that is meant where none is named.
const VERSION: i32 = 1;

/// Where partitions shall be.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// In the file's order; a partition may stand there twice.
    pub(super) partitions: Vec<(TopicPartition, Vec<i32>)>,
    /// Log directories that are named.
    pub(super) directories: BTreeMap<Replica, String>,
}

fn check_version(members: &serde_json::Map<String, Value>) -> Result<(), String> {
    match members.get("version").map_or(Ok(VERSION), json::integer)? {
        VERSION => Ok(()),
        other => Err(format!("Not supported version field value {other}")),
    }
}

impl Targets {
    /// Reads the file's text.
    pub(super) fn parse(text: &str) -> Result<Targets, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let members = json::object(&value)?;
        check_version(members)?;
        let mut targets = Targets::default();
        let Some(list) = members.get("partitions") else { return Ok(targets) };
        for item in json::array(list)? {
            let members = json::object(item)?;
            let name = json::partition(members)?;
            let replicas = json::list(json::member(members, "replicas")?, json::integer)?;
            let directories = match members.get("log_dirs") {
                Some(list) => json::list(list, json::text)?,
                None => vec![ANY_DIRECTORY.to_owned(); replicas.len()],
            };
            if replicas.len() != directories.len() {
                return Err(format!(
                    "Size of replicas list {replicas:?} is different from size of log dirs list [{}] for partition {name}",
                    directories.join(", ")
                ));
            }
            for (broker, directory) in replicas.iter().zip(directories) {
                if directory != ANY_DIRECTORY {
                    let replica = Replica { partition: name.clone(), broker: *broker };
                    targets.directories.insert(replica, directory);
                }
            }
            targets.partitions.push((name, replicas));
        }
        Ok(targets)
    }

    /// The partitions, once it is sure that they make sense. Source: `parseExecuteAssignmentArgs`.
    pub(super) fn checked(&self) -> Result<BTreeMap<TopicPartition, Vec<i32>>, String> {
        if self.partitions.is_empty() {
            return Err("Partition reassignment list cannot be empty".to_owned());
        }
        if self.partitions.iter().any(|(_, replicas)| replicas.is_empty()) {
            return Err("Partition replica list cannot be empty".to_owned());
        }
        let twice = duplicates(self.partitions.iter().map(|(name, _)| name.clone()));
        if !twice.is_empty() {
            let names = by_partition(twice, |name| name);
            return Err(format!(
                "Partition reassignment contains duplicate topic partitions: {}",
                joined(&names, ",")
            ));
        }
        let faults = self.partitions.iter().filter_map(|(name, replicas)| {
            let twice = numbers(duplicates(replicas.iter().copied()));
            let is_fault = !twice.is_empty();
            is_fault
                .then(|| format!("{name} contains multiple entries for {}", joined(&twice, ",")))
        });
        let faults: Vec<String> = faults.collect();
        if faults.is_empty() {
            return Ok(self.partitions.iter().cloned().collect());
        }
        Err(format!(
            "Partition replica lists may not contain duplicate entries: {}",
            faults.join(". ")
        ))
    }
}

/// The topics of a file for `--generate`.
pub(super) fn topics(text: &str) -> Result<Vec<String>, String> {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return Err("The input string is not a valid JSON".to_owned());
    };
    let members = json::object(&value)?;
    check_version(members)?;
    let Some(list) = members.get("topics") else { return Ok(Vec::new()) };
    let mut topics = Vec::new();
    for item in json::array(list)? {
        topics.push(json::text(json::member(json::object(item)?, "topic")?)?);
    }
    let twice = duplicates(topics.iter().cloned());
    if twice.is_empty() {
        return Ok(topics);
    }
    let names = by_text(twice, |name| name);
    Err(format!("List of topics to reassign contains duplicate entries: [{}]", names.join(", ")))
}

/// `--broker-list`.
pub(super) fn brokers(text: &str) -> Result<Vec<i32>, String> {
    // Java's split drops empty parts at the end.
    let words = text.trim_end_matches(',').split(',');
    let read = |word: &str| word.parse().map_err(|_| format!("For input string: \"{word}\""));
    let brokers = words.map(read).collect::<Result<Vec<i32>, String>>()?;
    let twice = numbers(duplicates(brokers.iter().copied()));
    if twice.is_empty() {
        return Ok(brokers);
    }
    Err(format!("Broker list contains duplicate entries: {twice:?}"))
}

/// A file with this assignment, in one line.
pub(super) fn format(assignment: &BTreeMap<TopicPartition, Vec<i32>>) -> String {
    let partitions: Vec<String> = assignment
        .iter()
        .map(|(name, replicas)| {
            let directories = vec![format!("\"{ANY_DIRECTORY}\""); replicas.len()];
            format!(
                "{{\"topic\":{},\"partition\":{},\"replicas\":[{}],\"log_dirs\":[{}]}}",
                Value::from(&*name.topic),
                name.partition,
                joined(replicas, ","),
                directories.join(",")
            )
        })
        .collect();
    format!("{{\"version\":{VERSION},\"partitions\":[{}]}}", partitions.join(","))
}

/// What comes more than once, each once.
fn duplicates<T: Ord + Clone>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    let mut twice = Vec::new();
    for item in items {
        if !seen.insert(item.clone()) && !twice.contains(&item) {
            twice.push(item);
        }
    }
    twice
}

pub(super) fn joined<T: ToString>(items: &[T], separator: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::{Targets, brokers, format, topics};

    fn targets(partitions: &str) -> Result<Targets, String> {
        Targets::parse(&format!(r#"{{"version":1,"partitions":[{partitions}]}}"#))
    }

    #[test]
    fn a_file_that_was_printed_is_read_again() {
        let text = r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,1],"log_dirs":["any","any"]}]}"#;
        let targets = Targets::parse(text).unwrap();
        assert!(targets.directories.is_empty());
        assert_eq!(format(&targets.checked().unwrap()), text);
    }

    #[test]
    fn directories_go_with_replicas() {
        let one =
            targets(r#"{"topic":"t","partition":0,"replicas":[3,1],"log_dirs":["any","/data"]}"#);
        let directories = one.unwrap().directories;
        let shown: Vec<String> =
            directories.iter().map(|(replica, path)| format!("{replica} {path}")).collect();
        assert_eq!(shown, ["t-0-1 /data"]);
        let uneven = targets(r#"{"topic":"t","partition":0,"replicas":[3,1],"log_dirs":["any"]}"#);
        assert_eq!(
            uneven.unwrap_err(),
            "Size of replicas list [3, 1] is different from size of log dirs list [any] for partition t-0"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let error = |partitions: &str| targets(partitions).unwrap().checked().unwrap_err();
        assert_eq!(error(""), "Partition reassignment list cannot be empty");
        let of = |index: i32, replicas: &str| {
            format!(r#"{{"topic":"t","partition":{index},"replicas":[{replicas}]}}"#)
        };
        assert_eq!(error(&of(0, "")), "Partition replica list cannot be empty");
        assert_eq!(
            error(&format!("{},{}", of(0, "1"), of(0, "2"))),
            "Partition reassignment contains duplicate topic partitions: t-0"
        );
        assert_eq!(
            error(&format!("{},{}", of(0, "1,1"), of(1, "2,3,2,3"))),
            "Partition replica lists may not contain duplicate entries: t-0 contains multiple entries for 1. t-1 contains multiple entries for 2,3"
        );
        assert_eq!(
            Targets::parse(r#"{"version":2}"#).unwrap_err(),
            "Not supported version field value 2"
        );
    }

    #[test]
    fn topics_and_brokers_stand_once() {
        assert_eq!(topics(r#"{"topics":[{"topic":"a"}]}"#), Ok(vec!["a".to_owned()]));
        assert_eq!(topics("{nonsense").unwrap_err(), "The input string is not a valid JSON");
        assert_eq!(
            topics(r#"{"topics":[{"topic":"a"},{"topic":"a"}]}"#).unwrap_err(),
            "List of topics to reassign contains duplicate entries: [a]"
        );
        assert_eq!(brokers("1,2"), Ok(vec![1, 2]));
        assert_eq!(brokers("2,2").unwrap_err(), "Broker list contains duplicate entries: [2]");
        assert_eq!(brokers("x").unwrap_err(), "For input string: \"x\"");
    }
}
