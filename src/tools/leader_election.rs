//! `kafka-leader-election`: has leaders elected. Source: `LeaderElectionCommand`.

use std::collections::BTreeSet;

use client::{
    admin::replicas::ElectionType,
    error::{ClientError, ErrorKind},
    offsets::Partitions,
};
use common::{error_code::ErrorCode, properties::Properties, topic::TopicPartition};

use crate::{
    clients::{construction_failure, load, open_admin, runtime},
    console::{Halt, complain, halt, say},
    java_order::by_partition,
    json, logging,
    options::{OptionSpec, Options, flag, parse_or_refuse, read, value},
};

const OPTIONS: &[OptionSpec] = &[
    value(
        "bootstrap-server",
        "host:port",
        "REQUIRED: A broker of the cluster, as host:port; several with commas.",
    ),
    value("admin.config", "config file", "File with properties for the admin client."),
    value(
        "path-to-json-file",
        "Path to JSON file",
        "File that names the partitions: {\"partitions\": [{\"topic\": \"a\", \"partition\": 1}, {\"topic\": \"b\", \"partition\": 2}]}. Not with --topic or --all-topic-partitions.",
    ),
    value(
        "topic",
        "topic name",
        "Topic of the partition. Not with --path-to-json-file or --all-topic-partitions.",
    ),
    value("partition", "partition id", "The partition. Goes with --topic.").integer(),
    flag(
        "all-topic-partitions",
        "All partitions that need an election. Not with --topic or --path-to-json-file.",
    ),
    value(
        "election-type",
        "election type",
        "REQUIRED: \"preferred\": the first replica becomes the leader, if it is not and is in sync. \"unclean\": where no leader is, any replica becomes it, and records may be lost.",
    ),
];

const PURPOSE: &str = "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are preferred replicas and unclean replicas.";

/// Limits of the calls, unless the file has others.
const TIMEOUTS_MS: [(&str, &str); 2] =
    [("default.api.timeout.ms", "30000"), ("request.timeout.ms", "15000")];

/// What is to be done.
struct Job {
    election: ElectionType,
    /// None for all that need it.
    partitions: Option<BTreeSet<TopicPartition>>,
    properties: Properties,
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let options = parse_or_refuse(OPTIONS, words)?;
    options.answer_help_or_version(PURPOSE)?;
    let job = read(check(&options).and_then(|()| Job::read(&options)))?;
    runtime()?.block_on(async {
        let opened = open_admin(&job.properties).await;
        let admin = opened.or_else(|error| {
            halt(&construction_failure("Failed to create new KafkaAdminClient", &error))
        })?;
        match admin.elect_leaders(job.election, job.partitions.as_ref()).await {
            Ok(results) => report(job.election, results),
            Err(error) => fail(&error),
        }
    })
}

/// Which options go together.
fn check(options: &Options) -> Result<(), String> {
    let missing: Vec<&str> = ["bootstrap-server", "election-type"]
        .into_iter()
        .filter(|name| !options.has(name))
        .collect();
    if !missing.is_empty() {
        return Err(format!("Missing required option(s): {}", missing.join(", ")));
    }
    let targets = ["topic", "all-topic-partitions", "path-to-json-file"];
    if targets.iter().filter(|name| options.has(name)).count() != 1 {
        return Err(format!(
            "One and only one of the following options is required: {}",
            targets.join(", ")
        ));
    }
    match (options.has("topic"), options.has("partition")) {
        (true, false) => Err("Missing required option(s): partition".to_owned()),
        (false, true) => Err("Option partition is only allowed if topic is used".to_owned()),
        _ => Ok(()),
    }
}

impl Job {
    fn read(options: &Options) -> Result<Job, String> {
        let name = options.text("election-type")?.unwrap_or_default();
        let election = match name.to_ascii_lowercase().as_str() {
            "preferred" => ElectionType::Preferred,
            "unclean" => ElectionType::Unclean,
            _ => return Err(format!("Cannot parse argument '{name}' of option election-type")),
        };
        let partitions = match options.text("path-to-json-file")? {
            Some(path) => Some(partitions_of(&path)?),
            None => match (options.text("topic")?, options.integer("partition")?) {
                (Some(topic), Some(index)) => Some([TopicPartition::new(topic, index)].into()),
                _ => None,
            },
        };
        let mut properties = match options.text("admin.config")? {
            Some(path) => load(&path)?,
            None => Properties::new(),
        };
        let servers = options.text("bootstrap-server")?.unwrap_or_default();
        properties.insert("bootstrap.servers".to_owned(), servers);
        for (name, limit) in TIMEOUTS_MS {
            properties.entry(name.to_owned()).or_insert_with(|| limit.to_owned());
        }
        Ok(Job { election, partitions, properties })
    }
}

/// The partitions that a file names.
fn partitions_of(path: &str) -> Result<BTreeSet<TopicPartition>, String> {
    let text = json::read_file(path).map_err(|error| format!("java.io.IOException: {error}"))?;
    parse(&text)
}

fn parse(text: &str) -> Result<BTreeSet<TopicPartition>, String> {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else {
        return Err("Replica election data is empty".to_owned());
    };
    let missing = || "Replica election data is missing \"partitions\" field".to_owned();
    let list = json::object(&value)?.get("partitions").ok_or_else(missing)?;
    let mut partitions = BTreeSet::new();
    let mut twice = Vec::new();
    for item in json::array(list)? {
        let partition = json::partition(json::object(item)?)?;
        if !partitions.insert(partition.clone()) && !twice.contains(&partition) {
            twice.push(partition);
        }
    }
    if twice.is_empty() {
        return Ok(partitions);
    }
    let names = names(by_partition(twice, |name| name));
    Err(format!("Replica election data contains duplicate partitions: [{names}]"))
}

fn names(partitions: impl IntoIterator<Item = TopicPartition>) -> String {
    let names: Vec<String> = partitions.into_iter().map(|name| name.to_string()).collect();
    names.join(", ")
}

/// Tells what came of each partition, and fails where one has no leader as it was asked for.
fn report(
    election: ElectionType,
    results: Partitions<Result<(), ClientError>>,
) -> Result<(), Halt> {
    let (mut elected, mut led, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (name, result) in by_partition(results.into_iter().collect(), |(name, _)| name) {
        match result {
            Ok(()) => elected.push(name),
            Err(error) if error.code() == ErrorCode::ElectionNotNeeded => led.push(name),
            Err(error) => failed.push((name, error)),
        }
    }
    let list = |partitions: Vec<TopicPartition>| names(by_partition(partitions, |name| name));
    if !elected.is_empty() {
        say(&format!(
            "Successfully completed leader election ({election}) for partitions {}",
            list(elected)
        ));
    }
    if !led.is_empty() {
        say(&format!("Valid replica already elected for partitions {}", list(led)));
    }
    if failed.is_empty() {
        return Ok(());
    }
    let count = failed.len();
    for (name, error) in by_partition(failed, |(name, _)| name) {
        say(&format!(
            "Error completing leader election ({election}) for partition: {name}: {}",
            error.with_class()
        ));
    }
    halt(&format!("{count} replica(s) could not be elected"))
}

/// The whole call failed.
fn fail(error: &ClientError) -> Result<(), Halt> {
    let text = if error.kind == ErrorKind::Timeout {
        "Timeout waiting for election results".to_owned()
    } else if error.code() == ErrorCode::ClusterAuthorizationFailed {
        "Not authorized to perform leader election".to_owned()
    } else {
        return halt(&format!("java.util.concurrent.ExecutionException: {}", error.with_class()));
    };
    say(&text);
    complain(&text);
    Err(Halt(1))
}

#[cfg(test)]
mod tests {
    use super::{OPTIONS, check, parse};
    use crate::options::Options;

    #[test]
    fn files_name_partitions_once() {
        let names = |text: &str| {
            parse(text).map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let two = r#"{"partitions":[{"topic":"a","partition":1},{"topic":"b","partition":0}]}"#;
        assert_eq!(names(two), Ok(vec!["a-1".to_owned(), "b-0".to_owned()]));
        let error = |text: &str| names(text).unwrap_err();
        let twice = r#"{"partitions":[{"topic":"a","partition":1},{"topic":"a","partition":1}]}"#;
        assert_eq!(error(twice), "Replica election data contains duplicate partitions: [a-1]");
        assert_eq!(error("{nonsense"), "Replica election data is empty");
        assert_eq!(error("{}"), "Replica election data is missing \"partitions\" field");
        assert_eq!(error(r#"{"partitions":[{}]}"#), "No such field exists: `topic`");
    }

    #[test]
    fn one_target_is_named() {
        let checked = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            check(&Options::parse(OPTIONS, &words).unwrap())
        };
        let both = "--bootstrap-server a:1 --election-type preferred";
        assert_eq!(checked(&format!("{both} --topic t --partition 0")), Ok(()));
        assert_eq!(checked(&format!("{both} --all-topic-partitions")), Ok(()));
        assert_eq!(
            checked(&format!("{both} --all-topic-partitions --partition 0")).unwrap_err(),
            "Option partition is only allowed if topic is used"
        );
        assert_eq!(
            checked("--all-topic-partitions").unwrap_err(),
            "Missing required option(s): bootstrap-server, election-type"
        );
    }
}
