//! `kafka-consumer-groups --reset-offsets`: moves the offsets of groups without members.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use client::{
    admin::records::ListedOffset,
    error::{ClientError, ErrorKind},
    offsets::{CommittedOffset, Partitions},
};
use common::{clock, topic::TopicPartition};

use super::{
    Command, Failure, SCENARIOS,
    plan::{self, csv_field},
    print_error,
};
use crate::{
    console::{put, say},
    java_order::{by_partition, by_text},
};

const CLASS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
/// ListOffsets' word for the first offset.
const EARLIEST: i64 = -2;
/// ListOffsets' word for the end.
pub(super) const LATEST: i64 = -1;

/// New offsets.
type Offsets = Partitions<i64>;

pub(super) async fn run(command: &Command<'_>) -> Result<(), Failure> {
    let ids: BTreeSet<String> = command.groups().await?.into_iter().collect();
    let ids = by_text(ids.into_iter().collect(), |id: &String| id);
    // All are asked for before any is changed.
    let mut described = Vec::new();
    for id in &ids {
        described.push(command.admin.describe_group(id).await);
    }
    let mut resets: Vec<(String, Offsets)> = Vec::new();
    for (id, group) in ids.into_iter().zip(described) {
        let state = group.map_err(|error| Failure::wrapped(&error))?.state;
        if !matches!(state.as_str(), "Empty" | "Dead") {
            print_error(&format!(
                "Assignments can only be reset if the group '{id}' is inactive, but the current state is {state}."
            ));
            resets.push((id, Offsets::new()));
            continue;
        }
        let partitions = command.partitions_to_reset(&id).await?;
        let offsets = command.new_offsets(&id, &partitions).await?;
        if command.options.has("execute") {
            command.commit(&id, &offsets).await?;
        }
        resets.push((id, offsets));
    }
    if command.options.has("export") {
        print_csv(&resets, command.options.texts("group").len() == 1);
    } else {
        print_table(&resets);
    }
    Ok(())
}

fn in_order(offsets: &Offsets) -> Vec<(&TopicPartition, i64)> {
    let rows = offsets.iter().map(|(name, offset)| (name, *offset)).collect();
    by_partition(rows, |(name, _)| name)
}

/// Kafka ends no line here.
fn print_table(resets: &[(String, Offsets)]) {
    let line = |cells: [&str; 4]| {
        let [group, topic, partition, offset] = cells;
        format!("{group:<30} {topic:<30} {partition:<10} {offset:<15}")
    };
    if !resets.is_empty() {
        put(&format!("\n{}", line(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"])));
    }
    for (group, offsets) in resets {
        for (name, offset) in in_order(offsets) {
            let (partition, offset) = (name.partition.to_string(), offset.to_string());
            put(&line([group, &name.topic, &partition, &offset]));
        }
    }
}

fn print_csv(resets: &[(String, Offsets)], is_one_group: bool) {
    let mut text = String::new();
    for (group, offsets) in resets {
        for (name, offset) in in_order(offsets) {
            if !is_one_group {
                text.push_str(&format!("{},", csv_field(group)));
            }
            text.push_str(&format!("{},{},{offset}\n", csv_field(&name.topic), name.partition));
        }
    }
    say(&text);
}

impl Command<'_> {
    async fn partitions_to_reset(&self, id: &str) -> Result<BTreeSet<TopicPartition>, Failure> {
        if self.options.has("all-topics") {
            return Ok(self.committed(id).await?.into_keys().collect());
        }
        if !self.options.has("topic") {
            if self.options.has("from-file") {
                return Ok(BTreeSet::new());
            }
            return Err(Failure::Refused(
                "One of the reset scopes should be defined: --all-topics, --topic.".to_owned(),
            ));
        }
        let words = self.options.texts("topic");
        let (with_partitions, topics) = plan::split_topics(&words);
        let mut partitions = BTreeSet::new();
        for word in with_partitions {
            partitions.extend(plan::partitions_of(word)?);
        }
        let described = self.admin.describe_topics(&topics).await;
        for (name, topic) in described.map_err(|error| Failure::wrapped(&error))? {
            let topic = topic.map_err(|error| Failure::wrapped(&error))?;
            let indexes = topic.partitions.iter().map(|partition| partition.index);
            partitions.extend(indexes.map(|index| TopicPartition::new(name.as_str(), index)));
        }
        Ok(partitions)
    }

    async fn new_offsets(
        &self,
        id: &str,
        partitions: &BTreeSet<TopicPartition>,
    ) -> Result<Offsets, Failure> {
        let options = self.options;
        if let Some(offset) = options.long("to-offset")? {
            let wanted = partitions.iter().map(|name| (name.clone(), offset)).collect();
            return self.within_range(wanted).await;
        }
        if options.has("to-earliest") {
            return self.log_offsets(partitions, EARLIEST).await;
        }
        if options.has("to-latest") {
            return self.log_offsets(partitions, LATEST).await;
        }
        if let Some(shift) = options.long("shift-by")? {
            return self.shifted(id, partitions, shift).await;
        }
        if let Some(text) = options.text("to-datetime")? {
            return self.offsets_at(partitions, plan::date_time(&text)?).await;
        }
        if let Some(text) = options.text("by-duration")? {
            let ago = plan::duration_ms(&text)?;
            return self.offsets_at(partitions, clock::wall_clock().0.saturating_sub(ago)).await;
        }
        if let Some(path) = options.text("from-file")? {
            return self.offsets_of_file(id, &path).await;
        }
        if options.has("to-current") {
            return self.current(id, partitions).await;
        }
        let scenarios: Vec<String> = SCENARIOS.iter().map(|name| format!("[{name}]")).collect();
        Err(Failure::Refused(format!(
            "Option '[reset-offsets]' requires one of the following scenarios: [{}]",
            scenarios.join(", ")
        )))
    }

    async fn shifted(
        &self,
        id: &str,
        partitions: &BTreeSet<TopicPartition>,
        shift: i64,
    ) -> Result<Offsets, Failure> {
        let committed = self.committed(id).await?;
        let mut wanted = Offsets::new();
        for name in partitions {
            let Some(current) = committed.get(name) else {
                return Err(Failure::Refused(format!(
                    "Cannot shift offset for partition {name} since there is no current committed offset"
                )));
            };
            wanted.insert(name.clone(), current.offset.saturating_add(shift));
        }
        self.within_range(wanted).await
    }

    async fn offsets_of_file(&self, id: &str, path: &str) -> Result<Offsets, Failure> {
        let text = fs::read_to_string(path).map_err(|_| {
            let inner = format!("java.io.IOException: Unable to read file {path}");
            Failure::thrown("java.lang.RuntimeException", &inner)
        })?;
        let mut plan = plan::read_plan(&text, &self.options.texts("group"))?;
        match plan.remove(id) {
            Some(wanted) => self.within_range(wanted).await,
            None => {
                print_error(&format!("No reset plan for group {id} found"));
                Ok(Offsets::new())
            }
        }
    }

    /// The present offsets; the end where there is none.
    async fn current(
        &self,
        id: &str,
        partitions: &BTreeSet<TopicPartition>,
    ) -> Result<Offsets, Failure> {
        let committed = self.committed(id).await?;
        let without =
            partitions.iter().filter(|name| !committed.contains_key(name)).cloned().collect();
        let mut offsets = self.log_offsets(&without, LATEST).await?;
        let with = partitions.iter().filter_map(|name| {
            committed.get(name).map(|committed| (name.clone(), committed.offset))
        });
        offsets.extend(with);
        Ok(offsets)
    }

    /// Offsets that the group committed.
    pub(super) async fn committed(&self, id: &str) -> Result<Partitions<CommittedOffset>, Failure> {
        let fetched = self.admin.group_offsets(id, None).await;
        fetched.map_err(|error| Failure::wrapped(&error))
    }

    async fn list_offsets(
        &self,
        partitions: &BTreeSet<TopicPartition>,
        time: i64,
    ) -> Result<Partitions<ListedOffset>, Failure> {
        let wanted: BTreeMap<TopicPartition, i64> =
            partitions.iter().map(|name| (name.clone(), time)).collect();
        let listed = self.admin.list_offsets(&wanted).await;
        let whole: Result<Partitions<ListedOffset>, ClientError> = listed.and_then(|listed| {
            listed.into_iter().map(|(name, offset)| Ok((name, offset?))).collect()
        });
        whole.map_err(|error| Failure::wrapped(&error))
    }

    /// First or last offsets.
    pub(super) async fn log_offsets(
        &self,
        partitions: &BTreeSet<TopicPartition>,
        which: i64,
    ) -> Result<Offsets, Failure> {
        let listed = self.list_offsets(partitions, which).await?;
        Ok(listed.into_iter().map(|(name, listed)| (name, listed.offset)).collect())
    }

    /// First offsets of that time or later; the end where there is none.
    async fn offsets_at(
        &self,
        partitions: &BTreeSet<TopicPartition>,
        time: i64,
    ) -> Result<Offsets, Failure> {
        let listed = self.list_offsets(partitions, time).await?;
        let (found, empty): (Offsets, Offsets) = listed
            .into_iter()
            .map(|(name, listed)| (name, listed.offset))
            .partition(|(_, offset)| *offset >= 0);
        let empty: Vec<TopicPartition> = empty.into_keys().collect();
        for name in by_partition(empty.clone(), |name| name) {
            say(&format!(
                "\nWarn: Partition {} from topic {} is empty. Falling back to latest known offset.",
                name.partition, name.topic
            ));
        }
        let mut offsets = found;
        offsets.extend(self.log_offsets(&empty.into_iter().collect(), LATEST).await?);
        Ok(offsets)
    }

    /// Offsets that are not in the log become its first or its end.
    async fn within_range(&self, wanted: Offsets) -> Result<Offsets, Failure> {
        let names: BTreeSet<TopicPartition> = wanted.keys().cloned().collect();
        let starts = self.log_offsets(&names, EARLIEST).await?;
        let ends = self.log_offsets(&names, LATEST).await?;
        let mut offsets = Offsets::new();
        for (name, offset) in in_order(&wanted) {
            let (start, end) = (starts.get(name).copied(), ends.get(name).copied());
            let (bound, text) = match (start, end) {
                (_, Some(end)) if offset > end => (end, "higher than latest"),
                (Some(start), _) if offset < start => (start, "lower than earliest"),
                _ => {
                    offsets.insert(name.clone(), offset);
                    continue;
                }
            };
            let class = CLASS;
            tracing::warn!(
                class,
                "New offset ({offset}) is {text} offset for topic partition {name}. Value will be set to {bound}"
            );
            offsets.insert(name.clone(), bound);
        }
        Ok(offsets)
    }

    async fn commit(&self, id: &str, offsets: &Offsets) -> Result<(), Failure> {
        let wanted = offsets
            .iter()
            .map(|(name, offset)| (name.clone(), CommittedOffset::at(*offset)))
            .collect();
        let results = self.admin.alter_group_offsets(id, &wanted).await;
        let results = results.map_err(|error| Failure::wrapped(&error))?;
        let failed: Vec<(TopicPartition, ClientError)> = results
            .into_iter()
            .filter_map(|(name, result)| result.err().map(|error| (name, error)))
            .collect();
        let Some((_, first)) = failed.first() else { return Ok(()) };
        let names: Vec<String> = failed.iter().map(|(name, _)| name.to_string()).collect();
        let text = format!(
            "Failed altering consumer group offsets for the following partitions: [{}]",
            names.join(", ")
        );
        let kind = ErrorKind::Code(first.code());
        Err(Failure::wrapped(&ClientError { kind, message: Some(text) }))
    }
}
