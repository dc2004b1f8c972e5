//! `kafka-consumer-groups`: lists, describes and deletes groups, and moves their offsets. Source:
//! `ConsumerGroupCommand`.
//!
//! Whatever goes wrong after the options were read is printed, and the exit code is 0, as Kafka's is.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use client::{
    admin::{
        Admin,
        groups::{GroupFilter, GroupListing},
    },
    config::ConnectionConfig,
    error::{ClientError, ErrorKind},
};
use common::{error_code::ErrorCode, properties::Properties, topic::TopicPartition};

use crate::{
    clients::{load, runtime},
    console::{Halt, complain, put, say},
    java_order::{by_partition, by_text},
    logging,
    options::{OptionSpec, Options, flag, parse_or_refuse, read, value},
};

mod describe;
mod plan;
mod reset;

const PURPOSE: &str = "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset consumer group offsets.";

const OPTIONS: &[OptionSpec] = &[
    value("bootstrap-server", "server to connect to", "REQUIRED: A broker of the cluster, as host:port; several with commas."),
    value("group", "consumer group", "The group. May be repeated."),
    value("topic", "topic", "The topic whose offsets are meant, or some of its partitions as topic:0,1,2. May be repeated."),
    flag("all-topics", "With --reset-offsets: all topics that the group committed offsets of."),
    flag("list", "Print the ids of all groups."),
    flag("describe", "Print the offsets of a group and how much it lags behind, its members, or its state."),
    flag("all-groups", "All groups."),
    flag("delete", "Delete groups with their offsets."),
    value("timeout", "timeout (ms)", "How long each call may take.").long().default("5000"),
    value("command-config", "command config property file", "File with properties for the admin client."),
    flag("reset-offsets", "Move the offsets of a group without members. Needs a scope (--all-topics, --topic or --from-file) and one of --to-datetime, --by-duration, --to-earliest, --to-latest, --shift-by, --from-file, --to-current, --to-offset. Only shows the new offsets unless --execute is given; --export prints them as CSV."),
    flag("delete-offsets", "Delete offsets of a group, of the topics or partitions that --topic names."),
    flag("dry-run", "With --reset-offsets: only show the new offsets."),
    flag("execute", "With --reset-offsets: commit the new offsets."),
    flag("export", "With --reset-offsets: print the new offsets as CSV."),
    value("to-offset", "offset", "New offset: this one.").long(),
    value("from-file", "path to CSV file", "New offsets: those of the file, as --export prints them."),
    value("to-datetime", "datetime", "New offset: the first of this time or later, 'YYYY-MM-DDTHH:mm:SS.sss', in UTC unless a zone follows."),
    value("by-duration", "duration", "New offset: the first of so long ago or later, 'PnDTnHnMnS'."),
    flag("to-earliest", "New offset: the first there is."),
    flag("to-latest", "New offset: the end."),
    flag("to-current", "New offset: the present one."),
    value("shift-by", "number-of-offsets", "New offset: the present one and so many more; less than 0 goes back.").long(),
    flag("members", "With --describe: the members."),
    flag("verbose", "With --describe --members: the partitions of each as well."),
    flag("offsets", "With --describe: the offsets. This is the default."),
    value("state", "", "With --describe: the state of the group. With --list: the states as well, or only groups in these states, with commas.").optional(),
    value("type", "", "With --list: the types as well, or only groups of these types, with commas.").optional(),
];

const ACTIONS: &[&str] = &["list", "describe", "delete", "reset-offsets", "delete-offsets"];
/// Ways to choose the new offset, in the order in which Kafka names them.
const SCENARIOS: &[&str] = &[
    "to-offset",
    "to-current",
    "to-datetime",
    "from-file",
    "by-duration",
    "to-earliest",
    "to-latest",
    "shift-by",
];
const NOT_EXECUTED: &str = "WARN: No action will be performed as the --execute option is missing.In a future major release, the default behavior of this command will be to prompt the user before executing the reset rather than doing a dry run. You should add the --dry-run option explicitly if you are scripting this command and want to keep the current default behavior without prompting.";
const STATES: &[&str] = &[
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
];
const TYPES: &[&str] = &["Consumer", "Classic"];

/// What ends the command early.
pub(crate) enum Failure {
    /// Printed as an error; the exit code is 0.
    Failed {
        /// Java's message.
        message: String,
        /// Java's exception as a stack trace begins.
        throwable: String,
    },
    /// An argument that makes no sense: told with the usage, exit code 1.
    Refused(String),
}

impl Failure {
    /// An exception that Kafka throws as it is.
    fn thrown(class: &str, message: &str) -> Failure {
        Failure::Failed { message: message.to_owned(), throwable: format!("{class}: {message}") }
    }

    /// A client's error, which Kafka throws as an `ExecutionException`.
    fn executed(error: &ClientError) -> Failure {
        Failure::thrown("java.util.concurrent.ExecutionException", &error.with_class())
    }

    /// The same inside a `RuntimeException`.
    fn wrapped(error: &ClientError) -> Failure {
        let inner = format!("java.util.concurrent.ExecutionException: {}", error.with_class());
        Failure::thrown("java.lang.RuntimeException", &inner)
    }
}

/// An option that cannot be read: joptsimple's exceptions.
impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::thrown("joptsimple.OptionException", &text)
    }
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let options = parse_or_refuse(OPTIONS, words)?;
    options.answer_help_or_version(PURPOSE)?;
    check(&options)?;
    let failure = match runtime()?.block_on(act(&options)) {
        Ok(()) => return Ok(()),
        Err(failure) => failure,
    };
    match failure {
        Failure::Failed { message, throwable } => {
            print_error(&format!("Executing consumer group command failed due to {message}"));
            complain(&throwable);
            Ok(())
        }
        Failure::Refused(text) => options.refuse(&text),
    }
}

fn print_error(text: &str) {
    say(&format!("\nError: {text}"));
}

/// Which options go together. Source: `ConsumerGroupCommandOptions.checkArgs`.
fn check(options: &Options) -> Result<(), Halt> {
    check_availability(options)?;
    options.require(&["bootstrap-server"])?;
    let has_group = options.has("group") || options.has("all-groups");
    if options.has("describe") {
        if !has_group {
            return options.refuse("Option [describe] takes one of these options: [reset-offsets], [describe], [delete], [list]");
        }
        let parts = ["members", "offsets", "state"];
        if parts.iter().filter(|part| options.has(part)).count() > 1 {
            return options.refuse(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]",
            );
        }
        if options.has("state") && read(options.text("state"))?.is_some() {
            return options.refuse("Option [describe] does not take a value for [state]");
        }
    }
    if options.has("delete") {
        if !has_group {
            return options
                .refuse("Option [delete] takes one of these options: [all-groups], [group]");
        }
        if options.has("topic") {
            return options.refuse(
                "The consumer does not support topic-specific offset deletion from a consumer group.",
            );
        }
    }
    if options.has("delete-offsets") && !(options.has("group") && options.has("topic")) {
        return options
            .refuse("Option [delete-offsets] takes the following options: [all-groups], [group]");
    }
    if options.has("reset-offsets") {
        check_reset(options, has_group)?;
    }
    options.exclude("group", &["all-groups"])?;
    options.exclude("group", &["list"])?;
    options.exclude("topic", &["list", "describe"])?;
    if ACTIONS.iter().filter(|action| options.has(action)).count() != 1 {
        return options.refuse(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets",
        );
    }
    Ok(())
}

/// Options that only some actions have. Source: joptsimple's `availableIf`.
fn check_availability(options: &Options) -> Result<(), Halt> {
    let needs: [(&str, &[&str]); 5] = [
        ("members", &["describe"]),
        ("verbose", &["describe"]),
        ("offsets", &["describe"]),
        ("state", &["describe", "list"]),
        ("type", &["list"]),
    ];
    let lacks = |(name, actions): &(&str, &[&str])| {
        options.has(name) && !actions.iter().any(|action| options.has(action))
    };
    let missing: Vec<&str> =
        needs.iter().filter(|need| lacks(need)).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    options.refuse(&format!(
        "Option(s) [{}] are unavailable given other options on the command line",
        missing.join(", ")
    ))
}

fn check_reset(options: &Options, has_group: bool) -> Result<(), Halt> {
    if options.has("dry-run") && options.has("execute") {
        return options
            .refuse("Option [reset-offsets] only accepts one of [execute] and [dry-run]");
    }
    if !options.has("dry-run") && !options.has("execute") {
        complain(NOT_EXECUTED);
    }
    if !has_group {
        return options
            .refuse("Option [reset-offsets] takes one of these options: [all-groups], [group]");
    }
    // In the order in which Kafka looks.
    let order = [
        "to-offset",
        "to-datetime",
        "by-duration",
        "to-earliest",
        "to-latest",
        "to-current",
        "shift-by",
        "from-file",
    ];
    for scenario in order {
        let others: Vec<&str> =
            SCENARIOS.iter().copied().filter(|other| *other != scenario).collect();
        options.exclude(scenario, &others)?;
    }
    Ok(())
}

async fn act(options: &Options) -> Result<(), Failure> {
    let command = Command { admin: open(options).await?, options };
    if options.has("list") {
        command.list().await
    } else if options.has("describe") {
        describe::run(&command).await
    } else if options.has("delete") {
        command.delete().await
    } else if options.has("reset-offsets") {
        reset::run(&command).await
    } else {
        command.delete_offsets().await
    }
}

/// The admin client; `--timeout` limits each of its calls.
async fn open(options: &Options) -> Result<Admin, Failure> {
    let mut properties = match options.text("command-config")? {
        Some(path) => {
            let loaded = load(&path);
            loaded.map_err(|error| Failure::thrown("java.lang.RuntimeException", &error))?
        }
        None => Properties::new(),
    };
    let servers = options.text("bootstrap-server")?.unwrap_or_default();
    properties.insert("bootstrap.servers".to_owned(), servers);
    let timeout = options.long("timeout")?.and_then(|limit| u64::try_from(limit).ok());
    let opened = async {
        let mut config = ConnectionConfig::admin(&properties)?;
        config.default_api_timeout = Duration::from_millis(timeout.unwrap_or(0));
        Admin::open(config).await
    };
    opened.await.map_err(|error| match error.kind {
        ErrorKind::Config => Failure::thrown(
            "org.apache.kafka.common.KafkaException",
            "Failed to create new KafkaAdminClient",
        ),
        _ => Failure::thrown(&error.class(), &error.to_string()),
    })
}

/// A command under way.
pub(crate) struct Command<'a> {
    admin: Admin,
    options: &'a Options,
}

impl Command<'_> {
    /// The groups that are meant: those named, or all.
    async fn groups(&self) -> Result<Vec<String>, Failure> {
        if !self.options.has("all-groups") {
            return Ok(self.options.texts("group"));
        }
        let listed = self.admin.list_groups(&GroupFilter::default()).await;
        let groups = listed.map_err(|error| Failure::wrapped(&error))?;
        let ids = groups.into_iter().map(|group| group.id).collect();
        Ok(by_text(ids, |id: &String| id))
    }

    async fn list(&self) -> Result<(), Failure> {
        let (has_type, has_state) = (self.options.has("type"), self.options.has("state"));
        let mut filter = GroupFilter::default();
        if has_type || has_state {
            filter.types = chosen(self.options.text("type")?, Words::Types)?;
            filter.states = chosen(self.options.text("state")?, Words::States)?;
        }
        let listed = self.admin.list_groups(&filter).await.map_err(|error| {
            if has_type || has_state { Failure::executed(&error) } else { Failure::wrapped(&error) }
        });
        let groups = by_text(listed?, |group| &group.id);
        if has_type || has_state {
            print_listings(&groups, has_type, has_state);
        } else {
            groups.iter().for_each(|group| say(&group.id));
        }
        Ok(())
    }

    async fn delete(&self) -> Result<(), Failure> {
        let ids = self.groups().await?.into_iter().collect::<BTreeSet<String>>();
        let ids = by_text(ids.into_iter().collect(), |id: &String| id);
        let (mut deleted, mut failed) = (Vec::new(), Vec::new());
        for id in ids {
            match self.admin.delete_group(&id).await {
                Ok(()) => deleted.push(id),
                Err(error) => failed.push((id, error)),
            }
        }
        if failed.is_empty() {
            let names = deleted.join(", ");
            say(&format!("Deletion of requested consumer groups ('{names}') was successful."));
            return Ok(());
        }
        print_error("Deletion of some consumer groups failed:");
        for (id, error) in failed {
            say(&format!(
                "* Group '{id}' could not be deleted due to: java.util.concurrent.ExecutionException: {}",
                error.with_class()
            ));
        }
        if !deleted.is_empty() {
            // The quotes are Kafka's.
            let names = deleted.join("'");
            say(&format!("\nThese consumer groups were deleted successfully: '{names}', '"));
        }
        Ok(())
    }

    async fn delete_offsets(&self) -> Result<(), Failure> {
        let group = self.options.text("group")?.unwrap_or_default();
        let words = self.options.texts("topic");
        let (with_partitions, topics) = plan::split_topics(&words);
        let mut partitions: BTreeSet<TopicPartition> = BTreeSet::new();
        for word in with_partitions {
            partitions.extend(plan::partitions_of(word)?);
        }
        // None for the partition of a topic that is not known.
        let mut results: BTreeMap<(String, Option<i32>), Option<ClientError>> = BTreeMap::new();
        let described = self.admin.describe_topics(&topics).await;
        for (name, topic) in described.map_err(|error| Failure::wrapped(&error))? {
            match topic {
                Ok(topic) => partitions.extend(
                    topic
                        .partitions
                        .iter()
                        .map(|partition| TopicPartition::new(name.as_str(), partition.index)),
                ),
                Err(error) => drop(results.insert((name, None), Some(error))),
            }
        }
        let top = match self.admin.delete_group_offsets(&group, &partitions).await {
            Ok(deleted) => {
                let mut top = ErrorCode::None;
                for (name, result) in by_partition(deleted.into_iter().collect(), |(name, _)| name)
                {
                    let error = result.err();
                    let code = error.as_ref().map_or(ErrorCode::None, ClientError::code);
                    top = if top == ErrorCode::None { code } else { top };
                    results.insert((name.topic.to_string(), Some(name.partition)), error);
                }
                top
            }
            Err(error) => {
                let keys =
                    partitions.iter().map(|name| (name.topic.to_string(), Some(name.partition)));
                results.extend(keys.map(|key| (key, Some(error.clone()))));
                error.code()
            }
        };
        print_deletion(top, &group, &words);
        print_deleted_offsets(results);
        Ok(())
    }
}

fn print_listings(groups: &[GroupListing], has_type: bool, has_state: bool) {
    let longest = groups.iter().map(|group| group.id.chars().count()).max().unwrap_or(0);
    let width = longest.max(15) + 10;
    let line = |id: &str, kind: &str, state: &str| {
        let kind = if has_type { format!(" {kind:<20}") } else { String::new() };
        let state = if has_state { format!(" {state:<20}") } else { String::new() };
        say(&format!("{id:<width$}{kind}{state}"));
    };
    line("GROUP", "TYPE", "STATE");
    for group in groups {
        let state = known(STATES, &group.state);
        line(&group.id, known(TYPES, &group.group_type), state);
    }
}

/// The word as Kafka writes it, whatever its case.
fn known(words: &[&'static str], text: &str) -> &'static str {
    words.iter().find(|word| word.eq_ignore_ascii_case(text)).unwrap_or(&"Unknown")
}

#[derive(Clone, Copy)]
enum Words {
    States,
    Types,
}

/// Words with commas; an unknown one is refused.
fn chosen(list: Option<String>, words: Words) -> Result<Vec<String>, Failure> {
    let Some(list) = list.filter(|list| !list.is_empty()) else { return Ok(Vec::new()) };
    let (all, what, plural) = match words {
        Words::States => (STATES, "state", "states"),
        Words::Types => (TYPES, "types", "types"),
    };
    let mut found = Vec::new();
    for word in list.trim_end_matches(',').split(',') {
        match known(all, word.trim()) {
            "Unknown" => {
                let valid = all.join(", ");
                // Kafka looks at types in lower case, and says them so as well.
                return Err(Failure::Refused(format!(
                    "Invalid {what} list '{list}'. Valid {plural} are: {valid}"
                )));
            }
            word => found.push(word.to_owned()),
        }
    }
    Ok(found)
}

fn print_deletion(top: ErrorCode, group: &str, topics: &[String]) {
    match top {
        ErrorCode::None => say(&format!(
            "Request succeed for deleting offsets with topic {} group {group}",
            topics.join(", ")
        )),
        ErrorCode::InvalidGroupId => print_error(&format!("'{group}' is not valid.")),
        ErrorCode::GroupIdNotFound => print_error(&format!("'{group}' does not exist.")),
        ErrorCode::GroupAuthorizationFailed => {
            print_error(&format!("Access to '{group}' is not authorized."));
        }
        ErrorCode::NonEmptyGroup => print_error(&format!(
            "Deleting offsets of a consumer group '{group}' is forbidden if the group is not empty."
        )),
        ErrorCode::GroupSubscribedToTopic
        | ErrorCode::TopicAuthorizationFailed
        | ErrorCode::UnknownTopicOrPartition => {
            print_error("Encounter some partition level error, see the follow-up details:");
        }
        other => print_error(&format!("Encounter some unknown error: {}", other.name())),
    }
}

fn print_deleted_offsets(results: BTreeMap<(String, Option<i32>), Option<ClientError>>) {
    let mut rows: Vec<_> = results.into_iter().collect();
    rows.sort_by_key(|((topic, partition), _)| format!("{topic}{}", partition.unwrap_or(-1)));
    put(&format!("\n{:<30} {:<15} {:<15}", "TOPIC", "PARTITION", "STATUS"));
    for ((topic, partition), error) in rows {
        let partition = partition.map_or("Not Provided".to_owned(), |index| index.to_string());
        let status = match error {
            Some(error) => format!("Error: :{}", error.with_class()),
            None => "Successful".to_owned(),
        };
        put(&format!("{topic:<30} {partition:<15} {status:<15}"));
    }
}
