//! `kafka-get-offsets`: offsets of partitions by time. Source: `GetOffsetShell`.

use std::collections::{BTreeMap, HashSet};

use client::error::ClientError;
use common::{
    properties::Properties,
    topic::{TopicPartition, is_internal},
};
use regex::Regex;

use crate::{
    clients::{construction_failure, load, open_admin, runtime},
    console::{Halt, complain, halt, say},
    logging,
    options::{OptionSpec, Options, flag, usage, value},
    topics::topic_pattern,
};

const PURPOSE: &str = "An interactive shell for getting topic-partition offsets.";

const OPTIONS: &[OptionSpec] = &[
    value("broker-list", "HOST1:PORT1,...,HOST3:PORT3", "DEPRECATED: the former name of --bootstrap-server, which wins."),
    value("bootstrap-server", "HOST1:PORT1,...,HOST3:PORT3", "REQUIRED: A broker of the cluster, as host:port; several with commas.").required_unless("broker-list"),
    value("topic-partitions", "topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3", "Patterns with commas. Each is a regular expression for topics (all, if left out) and, after a colon, a partition or a range of them without its end."),
    value("topic", "topic", "Regular expression for topics; all if not given. Not with --topic-partitions."),
    value("partitions", "partition ids", "Partitions with commas; all if not given. Not with --topic-partitions."),
    value("time", "<timestamp> / -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered", "Print the first offset at or after this time. Partitions without one are left out.").default("latest"),
    value("command-config", "config file", "File with properties for the admin client."),
    flag("exclude-internal-topics", "Leave the brokers' own topics out."),
];

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    if words.is_empty() {
        complain(PURPOSE);
        return halt(&usage(OPTIONS));
    }
    let options = terse(Options::parse(OPTIONS, words))?;
    options.answer_help_or_version(PURPOSE)?;
    let list = if options.has("bootstrap-server") { "bootstrap-server" } else { "broker-list" };
    options.require(&[list])?;
    let servers = terse(options.text(list))?.unwrap_or_default();
    check_servers(&options, &servers)?;
    let query = terse(Query::read(&options))?;
    let mut properties = match terse(options.text("command-config"))? {
        Some(path) => terse(load(&path))?,
        None => Properties::new(),
    };
    properties.insert("bootstrap.servers".to_owned(), servers);
    properties.insert("client.id".to_owned(), "GetOffsetShell".to_owned());
    runtime()?.block_on(async {
        let found = query.find(&properties).await;
        for (partition, offset) in terse(found)? {
            say(&format!("{}:{}:{offset}", partition.topic, partition.partition));
        }
        Ok(())
    })
}

fn terse<T>(result: Result<T, String>) -> Result<T, Halt> {
    result.or_else(|error| halt(&format!("Error occurred: {error}")))
}

/// Each server needs a port. Source: `ToolsUtils.validateBootstrapServer`.
pub(crate) fn check_servers(options: &Options, servers: &str) -> Result<(), Halt> {
    if servers.trim().is_empty() {
        return options.refuse("Error while validating the bootstrap address\n");
    }
    let has_port = |server: &str| client::config::split_host_port(server).is_some();
    if servers.split(',').all(has_port) {
        return Ok(());
    }
    options.refuse("Please provide valid host:port like host1:9091,host2:9092\n")
}

/// Which partitions, and which of their offsets.
struct Query {
    rules: Vec<Rule>,
    excludes_internal: bool,
    timestamp: i64,
}

/// Topics by pattern, and some of their partitions.
struct Rule {
    topics: Regex,
    partitions: Partitions,
}

#[derive(Debug, PartialEq, Eq)]
enum Partitions {
    /// These; none named means all.
    Set(HashSet<i32>),
    /// From the first, without the second.
    Range(i32, i32),
}

impl Rule {
    fn allows(&self, topic: &str, partition: i32) -> bool {
        self.topics.is_match(topic)
            && match &self.partitions {
                Partitions::Set(set) => set.is_empty() || set.contains(&partition),
                Partitions::Range(from, to) => (*from..*to).contains(&partition),
            }
    }
}

impl Query {
    fn read(options: &Options) -> Result<Query, String> {
        if options.has("topic-partitions") && (options.has("topic") || options.has("partitions")) {
            return Err("--topic-partitions cannot be used with --topic or --partitions".to_owned());
        }
        let timestamp = timestamp(&options.text("time")?.unwrap_or_default())?;
        let rules = match options.text("topic-partitions")? {
            Some(list) => {
                list.trim_end_matches(',').split(',').map(rule).collect::<Result<_, _>>()?
            }
            None => {
                let topics = pattern(&options.text("topic")?.unwrap_or(".*".to_owned()))?;
                let partitions = partition_set(&options.text("partitions")?.unwrap_or_default())?;
                vec![Rule { topics, partitions }]
            }
        };
        let excludes_internal = options.has("exclude-internal-topics");
        Ok(Query { rules, excludes_internal, timestamp })
    }

    /// The offsets, sorted as Kafka does, by the text of topic and partition.
    async fn find(&self, properties: &Properties) -> Result<Vec<(TopicPartition, i64)>, String> {
        let text = |error: ClientError| error.to_string();
        let admin = open_admin(properties).await.map_err(|error| {
            construction_failure("Failed to create new KafkaAdminClient", &error)
        })?;
        let mut wanted = BTreeMap::new();
        for topic in admin.list_topics().await.map_err(text)? {
            if self.excludes_internal && is_internal(&topic.name) {
                continue;
            }
            for partition in &topic.partitions {
                if self.rules.iter().any(|rule| rule.allows(&topic.name, partition.index)) {
                    let name = TopicPartition::new(topic.name.as_str(), partition.index);
                    wanted.insert(name, self.timestamp);
                }
            }
        }
        if wanted.is_empty() {
            return Err(
                "Could not match any topic-partitions with the specified filters".to_owned()
            );
        }
        let mut found = Vec::new();
        for (partition, listed) in admin.list_offsets(&wanted).await.map_err(text)? {
            match listed {
                Ok(listed) if listed.offset >= 0 => found.push((partition, listed.offset)),
                Ok(_) => {}
                Err(error) => complain(&format!(
                    "Skip getting offsets for topic-partition {partition} due to error: {}",
                    error.with_class()
                )),
            }
        }
        found.sort_by_key(|(partition, _)| partition.to_string());
        Ok(found)
    }
}

fn pattern(text: &str) -> Result<Regex, String> {
    topic_pattern(text).map_err(|failure| failure.message)
}

fn timestamp(text: &str) -> Result<i64, String> {
    match text {
        "latest" => Ok(-1),
        "earliest" => Ok(-2),
        "max-timestamp" => Ok(-3),
        "earliest-local" => Ok(-4),
        "latest-tiered" => Ok(-5),
        _ => text.parse().map_err(|_| {
            format!(
                "Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered, or a specified long format timestamp"
            )
        }),
    }
}

fn partition_set(text: &str) -> Result<Partitions, String> {
    let words = text.split(',').filter(|_| !text.is_empty());
    let set = words.map(str::parse).collect::<Result<HashSet<i32>, _>>();
    set.map(Partitions::Set).map_err(|_| {
        format!("--partitions expects a comma separated list of numeric partition ids, but received: {text}")
    })
}

/// `topic`, `topic:3`, `topic:0-3`, `topic:5-`, `topic:-3`, or one without a topic.
fn rule(text: &str) -> Result<Rule, String> {
    let invalid =
        || format!("org.apache.kafka.tools.TerseException: Invalid rule specification: {text}");
    let (topic, partitions) = text.split_once(':').unwrap_or((text, ""));
    let number = |digits: &str, default: i32| match digits {
        "" => Ok(default),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| format!("For input string: \"{digits}\""))
        }
        _ => Err(invalid()),
    };
    let partitions = match partitions.split_once('-') {
        Some((from, to)) => Partitions::Range(number(from, 0)?, number(to, i32::MAX)?),
        None if partitions.is_empty() => Partitions::Range(0, i32::MAX),
        None => Partitions::Set(HashSet::from([number(partitions, 0)?])),
    };
    let topics = pattern(if topic.is_empty() { ".*" } else { topic })?;
    Ok(Rule { topics, partitions })
}

#[cfg(test)]
mod tests {
    use super::{rule, timestamp};

    #[test]
    fn rules_choose_topics_and_partitions() {
        let allows =
            |text: &str, topic: &str, partition: i32| rule(text).unwrap().allows(topic, partition);
        assert!(allows("t", "t", 7) && !allows("t", "tt", 7));
        assert!(allows("t:1-3", "t", 2) && !allows("t:1-3", "t", 3));
        assert!(allows("t:5-", "t", 5) && allows(":-3", "any", 2) && !allows(":-3", "any", 3));
        assert!(allows("t.*:4", "tt", 4) && !allows("t.*:4", "tt", 5));
        for bad in ["t:a", "t:1-b", "t:1:2", "t:1-2-3"] {
            assert!(rule(bad).err().unwrap().ends_with(bad), "{bad}");
        }
    }

    #[test]
    fn times_have_names() {
        assert_eq!(timestamp("earliest"), Ok(-2));
        assert_eq!(timestamp("-5"), Ok(-5));
        assert!(
            timestamp("nonsense").unwrap_err().starts_with("Malformed time argument nonsense.")
        );
    }
}
