//! `kafka-consumer-groups --describe`: the offsets, members or state of groups.

use std::collections::{BTreeMap, BTreeSet};

use client::{
    admin::groups::{GroupDescription, MemberDescription},
    offsets::{CommittedOffset, Partitions},
};
use common::topic::TopicPartition;

use super::{Command, Failure, print_error};
use crate::{
    console::{complain, put, say},
    java_order::by_partition,
};

/// Stands in a column without a value.
const MISSING: &str = "-";
/// Columns are at least so wide.
const WIDTH_MIN: usize = 15;

pub(super) async fn run(command: &Command<'_>) -> Result<(), Failure> {
    let mut groups = BTreeMap::new();
    for id in command.groups().await? {
        let described = command.admin.describe_group(&id).await;
        groups.insert(id, described.map_err(|error| Failure::executed(&error))?);
    }
    if command.options.has("members") {
        let is_verbose = command.options.has("verbose");
        return groups.values().try_for_each(|group| print_members(group, is_verbose));
    }
    if command.options.has("state") {
        return groups.values().try_for_each(print_state);
    }
    let mut rows = BTreeMap::new();
    for (id, group) in &groups {
        rows.insert(id, command.offset_rows(group).await?);
    }
    groups.iter().try_for_each(|(id, group)| print_offsets(group, &rows[id]))
}

/// A partition of a group's, with what is known of it.
struct OffsetRow {
    topic: String,
    partition: String,
    offset: String,
    end: String,
    lag: String,
    consumer: String,
    host: String,
    client: String,
}

impl Command<'_> {
    /// The partitions of each member, those with most first; then the ones that nobody has.
    async fn offset_rows(&self, group: &GroupDescription) -> Result<Vec<OffsetRow>, Failure> {
        let committed = self.committed(&group.id).await?;
        let mut members: Vec<&MemberDescription> =
            group.members.iter().filter(|member| !member.assignment.is_empty()).collect();
        members.sort_by_key(|member| std::cmp::Reverse(member.assignment.len()));
        let mut rows = Vec::new();
        let mut left: BTreeSet<TopicPartition> = committed.keys().cloned().collect();
        for member in members {
            let partitions: BTreeSet<TopicPartition> = member.assignment.iter().cloned().collect();
            left.retain(|partition| !partitions.contains(partition));
            let who = [member.id.as_str(), &member.host, &member.client_id];
            rows.extend(self.rows_of(&partitions, &committed, who).await?);
        }
        if !left.is_empty() {
            rows.extend(self.rows_of(&left, &committed, [MISSING; 3]).await?);
        }
        Ok(rows)
    }

    async fn rows_of(
        &self,
        partitions: &BTreeSet<TopicPartition>,
        committed: &Partitions<CommittedOffset>,
        [consumer, host, client]: [&str; 3],
    ) -> Result<Vec<OffsetRow>, Failure> {
        let ends = self.log_offsets(partitions, super::reset::LATEST).await?;
        let mut sorted: Vec<TopicPartition> = partitions.iter().cloned().collect();
        sorted.sort_by_key(|name| name.partition);
        let rows = by_partition(sorted, |name| name).into_iter().map(|name| {
            let offset = committed.get(&name).map(|committed| committed.offset);
            let end = ends.get(&name).copied();
            let lag = offset.zip(end).map(|(offset, end)| end - offset);
            let shown = |number: Option<i64>| number.map_or(MISSING.to_owned(), |n| n.to_string());
            OffsetRow {
                topic: name.topic.to_string(),
                partition: name.partition.to_string(),
                offset: shown(offset),
                end: shown(end),
                lag: shown(lag),
                consumer: consumer.to_owned(),
                host: host.to_owned(),
                client: client.to_owned(),
            }
        });
        Ok(rows.collect())
    }
}

/// Says what the state means, and whether there is something to show.
fn announce(group: &GroupDescription, row_count: usize) -> Result<bool, Failure> {
    let id = &group.id;
    match group.state.as_str() {
        "Dead" => print_error(&format!("Consumer group '{id}' does not exist.")),
        "Empty" => complain(&format!("\nConsumer group '{id}' has no active members.")),
        "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling" => {
            complain(&format!("\nWarning: Consumer group '{id}' is rebalancing."));
        }
        "Stable" => {}
        _ => {
            return Err(Failure::thrown(
                "org.apache.kafka.common.KafkaException",
                "Expected a valid consumer group state, but found 'Unknown'.",
            ));
        }
    }
    Ok(group.state != "Dead" && row_count > 0)
}

/// The widest of the texts, at least as wide as any column.
fn width<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0).max(WIDTH_MIN)
}

fn print_offsets(group: &GroupDescription, rows: &[OffsetRow]) -> Result<(), Failure> {
    if !announce(group, rows.len())? {
        return Ok(());
    }
    let group_width = width(std::iter::once(group.id.as_str()));
    let topic_width = width(rows.iter().map(|row| row.topic.as_str()));
    let consumer_width = width(rows.iter().map(|row| row.consumer.as_str()));
    let host_width = width(rows.iter().map(|row| row.host.as_str()));
    let line = |id: &str, row: &OffsetRow| {
        put(&format!(
            "\n{id:<group_width$} {:<topic_width$} {:<10} {:<15} {:<15} {:<15} {:<consumer_width$} {:<host_width$} {}",
            row.topic,
            row.partition,
            row.offset,
            row.end,
            row.lag,
            row.consumer,
            row.host,
            row.client
        ));
    };
    let head = |text: &str| text.to_owned();
    line(
        "GROUP",
        &OffsetRow {
            topic: head("TOPIC"),
            partition: head("PARTITION"),
            offset: head("CURRENT-OFFSET"),
            end: head("LOG-END-OFFSET"),
            lag: head("LAG"),
            consumer: head("CONSUMER-ID"),
            host: head("HOST"),
            client: head("CLIENT-ID"),
        },
    );
    rows.iter().for_each(|row| line(&group.id, row));
    Ok(())
}

fn print_members(group: &GroupDescription, is_verbose: bool) -> Result<(), Failure> {
    let members = &group.members;
    // Without anything to show Kafka still prints the heads, as narrow as can be.
    let shown = if announce(group, members.len())? { members.as_slice() } else { &[] };
    let group_width =
        if shown.is_empty() { WIDTH_MIN } else { width(std::iter::once(group.id.as_str())) };
    let consumer_width = width(shown.iter().map(|member| member.id.as_str()));
    let host_width = width(shown.iter().map(|member| member.host.as_str()));
    let client_width = width(shown.iter().map(|member| member.client_id.as_str()));
    let instances = shown.iter().filter_map(|member| member.instance_id.as_deref());
    let has_instances = instances.clone().any(|instance| !instance.is_empty());
    let instance_width = width(instances).max("GROUP-INSTANCE-ID".len());
    let line = |cells: [&str; 5], count: &str, assignment: &str| {
        let [id, consumer, instance, host, client] = cells;
        let instance = match has_instances {
            true => format!("{instance:<instance_width$} "),
            false => String::new(),
        };
        say(&format!(
            "{id:<group_width$} {consumer:<consumer_width$} {instance}{host:<host_width$} {client:<client_width$} {count:<15} {assignment}"
        ));
    };
    let heads = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID"];
    put("\n");
    line(heads, "#PARTITIONS", if is_verbose { "ASSIGNMENT" } else { "" });
    for member in members {
        let instance = member.instance_id.as_deref().unwrap_or_default();
        let cells = [group.id.as_str(), &member.id, instance, &member.host, &member.client_id];
        let assignment =
            if is_verbose { shown_assignment(&member.assignment) } else { String::new() };
        line(cells, &member.assignment.len().to_string(), &assignment);
    }
    Ok(())
}

/// `(0,1), (0)`: the partitions of each topic, sorted as texts, without the topics' names.
fn shown_assignment(partitions: &[TopicPartition]) -> String {
    if partitions.is_empty() {
        return MISSING.to_owned();
    }
    let mut topics: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.to_string());
    }
    let mut shown: Vec<String> = topics
        .into_values()
        .map(|mut indexes| {
            indexes.sort();
            format!("({})", indexes.join(","))
        })
        .collect();
    shown.sort();
    shown.join(", ")
}

fn print_state(group: &GroupDescription) -> Result<(), Failure> {
    if !announce(group, 1)? {
        return Ok(());
    }
    let node = &group.coordinator;
    let coordinator = format!("{}:{}  ({})", node.host, node.port, node.id);
    let width = coordinator.chars().count().max(25);
    let line = |[id, coordinator, assignor, state, count]: [&str; 5]| {
        put(&format!("\n{id:<width$} {coordinator:<25} {assignor:<20} {state:<15} {count}"));
    };
    line(["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]);
    let count = group.members.len().to_string();
    line([&group.id, &coordinator, &group.assignor, &group.state, &count]);
    put("\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use common::topic::TopicPartition;

    use super::shown_assignment;

    #[test]
    fn assignments_are_sorted_as_texts() {
        let partitions = [("t", 10), ("t", 2), ("u", 0)]
            .map(|(topic, partition)| TopicPartition::new(topic, partition));
        assert_eq!(shown_assignment(&partitions), "(0), (10,2)");
        assert_eq!(shown_assignment(&[]), "-");
    }
}
