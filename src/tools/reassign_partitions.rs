//! `kafka-reassign-partitions`: moves partitions between brokers, and between their log directories. Source:
//! `ReassignPartitionsCommand`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use client::{
    admin::{Admin, replicas::Reassignment},
    error::ClientError,
    metadata::{Node, Topic},
};
use common::{error_code::ErrorCode, ids::BrokerId, properties::Properties, topic::TopicPartition};
use metadata::placement::{self, Candidate, Start};

use self::file::{Targets, joined};
use crate::{
    clients::{load, open_admin, runtime},
    console::{Halt, put, say},
    java_order::{by_partition, by_text, numbers},
    json, logging,
    options::{OptionSpec, Options, flag, parse_or_refuse, value},
};

mod directories;
mod file;
mod throttles;

const OPTIONS: &[OptionSpec] = &[
    flag("generate", "Propose where the partitions of topics could be. Changes nothing."),
    flag("execute", "Begin the moves of --reassignment-json-file."),
    flag("verify", "Say how far the moves of --reassignment-json-file are. Once all moves have ended, throttles are taken away."),
    flag("cancel", "End the moves of --reassignment-json-file that are under way."),
    flag("list", "List all moves under way."),
    value("bootstrap-server", "Server(s) to use for bootstrapping", "REQUIRED: A broker of the cluster, as host:port; several with commas."),
    value("command-config", "Admin client property file", "File with properties for the admin client."),
    value("reassignment-json-file", "manual assignment json file path", "Where partitions shall be: {\"version\": 1, \"partitions\": [{\"topic\": \"a\", \"partition\": 1, \"replicas\": [1,2,3], \"log_dirs\": [\"any\",\"any\",\"/data\"]}]}. log_dirs may be left out; it has a path, or \"any\", for each replica."),
    value("topics-to-move-json-file", "topics to reassign json file path", "Topics of --generate: {\"version\": 1, \"topics\": [{\"topic\": \"a\"}, {\"topic\": \"b\"}]}."),
    value("broker-list", "brokerlist", "Brokers of --generate, such as 0,1,2."),
    flag("disable-rack-aware", "Propose without regard to racks."),
    value("throttle", "throttle", "Bytes a second that are copied between brokers. With --execute, and again with --additional to change it. At least 1024 makes sense.").long().default("-1"),
    value("replica-alter-log-dirs-throttle", "replicaAlterLogDirsThrottle", "The same, between log directories of a broker.").long().default("-1"),
    value("timeout", "timeout", "Milliseconds to wait until moves between log directories can begin.").long().default("10000"),
    flag("additional", "Begin, although other moves are under way; also changes throttles."),
    flag("preserve-throttles", "Leave throttles as they are."),
];

const PURPOSE: &str = "This tool helps to move topic partitions between replicas.";
const CLIENT_ID: &str = "reassign-partitions-tool";
const EXISTING: &str = "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a new partition assignment in addition to the existing one. The --additional flag can also be used to change the throttle by resubmitting the current reassignment.";
const RUN_VERIFY: &str = "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed.";

/// What the script does, with the options that each action wants and those that it takes.
const ACTIONS: &[(&str, &[&str], &[&str])] = &[
    ("generate", &["topics-to-move-json-file", "broker-list"], &["disable-rack-aware"]),
    (
        "execute",
        &["reassignment-json-file"],
        &["additional", "throttle", "replica-alter-log-dirs-throttle", "timeout"],
    ),
    ("verify", &["reassignment-json-file"], &["preserve-throttles"]),
    ("cancel", &["reassignment-json-file"], &["preserve-throttles", "timeout"]),
    ("list", &[], &[]),
];

/// Why the script ends before its end.
#[derive(Debug)]
enum Failure {
    /// What the user is to know, as it is.
    Terse(String),
    /// What went wrong.
    Error(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Error(text)
    }
}

/// An answer with an error, as Java's `ExecutionException` shows it.
impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Error(error.with_class())
    }
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let options = parse_or_refuse(OPTIONS, words)?;
    options.answer_help_or_version(PURPOSE)?;
    check(&options)?;
    let done = runtime()?.block_on(act(&options));
    done.map_err(|failure| {
        say(&match failure {
            Failure::Terse(text) => text,
            Failure::Error(text) => format!("Error: {text}"),
        });
        Halt(1)
    })
}

fn check(options: &Options) -> Result<(), Halt> {
    let chosen: Vec<_> = ACTIONS.iter().filter(|(name, ..)| options.has(name)).collect();
    let [(action, required, permitted)] = chosen.as_slice() else {
        let names: Vec<String> = ACTIONS.iter().map(|(name, ..)| format!("--{name}")).collect();
        return options
            .refuse(&format!("Command must include exactly one action: {}", names.join(", ")));
    };
    if !options.has("bootstrap-server") {
        return options.refuse("Please specify --bootstrap-server");
    }
    options.require(required)?;
    let fits = |name: &str| {
        name == *action
            || ["bootstrap-server", "command-config"].contains(&name)
            || required.contains(&name)
            || permitted.contains(&name)
    };
    match options.names.iter().find(|name| !fits(name)) {
        Some(name) => {
            options.refuse(&format!("Option \"[{name}]\" can't be used with action \"[{action}]\""))
        }
        None => Ok(()),
    }
}

async fn act(options: &Options) -> Result<(), Failure> {
    let mut properties = match options.text("command-config")? {
        // The class of Java's exception is not shown.
        Some(path) => load(&path).map_err(|_| path)?,
        None => Properties::new(),
    };
    let servers = options.text("bootstrap-server")?.unwrap_or_default();
    properties.insert("bootstrap.servers".to_owned(), servers);
    properties.entry("client.id".to_owned()).or_insert_with(|| CLIENT_ID.to_owned());
    let opened = open_admin(&properties).await;
    let admin = opened.map_err(|error| {
        tracing::debug!(%error, "no admin client");
        "Failed to create new KafkaAdminClient".to_owned()
    })?;
    let read = |name: &str| json::read_file(&options.text(name)?.unwrap_or_default());
    let preserves = options.has("preserve-throttles");
    if options.has("verify") {
        verify(&admin, &Targets::parse(&read("reassignment-json-file")?)?, preserves).await
    } else if options.has("generate") {
        let topics = read("topics-to-move-json-file")?;
        generate(&admin, options, &topics).await
    } else if options.has("execute") {
        let text = read("reassignment-json-file")?;
        execute(&admin, &text, &Execution::read(options)?).await
    } else if options.has("cancel") {
        let text = read("reassignment-json-file")?;
        let timeout_ms = options.long("timeout")?.unwrap_or_default();
        cancel(&admin, &Targets::parse(&text)?, preserves, timeout_ms).await
    } else {
        list(&admin).await
    }
}

// --list

async fn list(admin: &Admin) -> Result<(), Failure> {
    let moves: BTreeMap<_, _> = admin.list_reassignments(None).await?.into_iter().collect();
    if moves.is_empty() {
        say("No partition reassignments found.");
        return Ok(());
    }
    say("Current partition reassignments:");
    for (name, Reassignment { replicas, adding, removing }) in &moves {
        let part = |what: &str, ids: &[i32]| {
            if ids.is_empty() { String::new() } else { format!(" {what}: {}.", joined(ids, ",")) }
        };
        say(&format!(
            "{name}: replicas: {}.{}{}",
            joined(replicas, ","),
            part("adding", adding),
            part("removing", removing)
        ));
    }
    Ok(())
}

// --verify

async fn verify(admin: &Admin, targets: &Targets, preserves: bool) -> Result<(), Failure> {
    let current = admin.list_reassignments(None).await?;
    let lines = states(admin, &current, &targets.partitions).await?;
    say("Status of partition reassignment:");
    for line in lines.values() {
        say(line);
    }
    let is_moving = directories::verify(admin, &targets.directories).await?;
    // Which brokers took part is known of what moves alone, so all of them lose their throttles.
    if current.is_empty() && !is_moving && !preserves {
        throttles::clear(admin, &targets.partitions).await?;
    }
    Ok(())
}

/// How far each partition is; of one that is named twice, as its last place has it.
async fn states(
    admin: &Admin,
    current: &HashMap<TopicPartition, Reassignment>,
    targets: &[(TopicPartition, Vec<i32>)],
) -> Result<BTreeMap<TopicPartition, String>, Failure> {
    let settled = targets.iter().filter(|(name, _)| !current.contains_key(name));
    let topics: BTreeSet<String> = settled.map(|(name, _)| name.topic.to_string()).collect();
    let topics: Vec<String> = topics.into_iter().collect();
    let described = described(admin, &topics).await?;
    let mut states = BTreeMap::new();
    for (name, target) in targets {
        let state = if current.contains_key(name) {
            format!("Reassignment of partition {name} is still in progress.")
        } else {
            let replicas = settled_replicas(&described[&*name.topic], name)?;
            if replicas == *target {
                format!("Reassignment of partition {name} is completed.")
            } else {
                format!(
                    "There is no active reassignment of partition {name}, but replica set is {} rather than {}.",
                    joined(&replicas, ","),
                    joined(target, ",")
                )
            }
        };
        states.insert(name.clone(), state);
    }
    Ok(states)
}

/// No topics are asked for without a question.
async fn described(
    admin: &Admin,
    topics: &[String],
) -> Result<BTreeMap<String, Result<Topic, ClientError>>, Failure> {
    if topics.is_empty() {
        return Ok(BTreeMap::new());
    }
    Ok(admin.describe_topics(topics).await?)
}

/// Where a partition is; nowhere, if it does not exist.
fn settled_replicas(
    topic: &Result<Topic, ClientError>,
    name: &TopicPartition,
) -> Result<Vec<i32>, Failure> {
    let topic = match topic {
        Ok(topic) => topic,
        Err(error) if error.code() == ErrorCode::UnknownTopicOrPartition => return Ok(Vec::new()),
        Err(error) => return Err(error.clone().into()),
    };
    let found = topic.partitions.iter().find(|partition| partition.index == name.partition);
    match (found, topic.partitions.len()) {
        (Some(partition), _) => Ok(partition.replicas.clone()),
        // Kafka looks one too far.
        (None, count) if usize::try_from(name.partition) == Ok(count) => {
            Err(Failure::Error(format!("Index {count} out of bounds for length {count}")))
        }
        _ => Ok(Vec::new()),
    }
}

// --generate

async fn generate(admin: &Admin, options: &Options, topics: &str) -> Result<(), Failure> {
    let brokers = file::brokers(&options.text("broker-list")?.unwrap_or_default())?;
    let topics = by_text(file::topics(topics)?, |topic| topic);
    let current = replicas_of(admin, &topics).await?;
    let nodes = admin.describe_cluster().await?.nodes;
    let candidates = candidates(&nodes, &brokers, !options.has("disable-rack-aware"))?;
    let proposed = propose(&topics, &current, &candidates)?;
    say(&format!("Current partition replica assignment\n{}\n", file::format(&current)));
    say(&format!("Proposed partition reassignment configuration\n{}", file::format(&proposed)));
    Ok(())
}

/// Where all partitions of these topics are.
async fn replicas_of(
    admin: &Admin,
    topics: &[String],
) -> Result<BTreeMap<TopicPartition, Vec<i32>>, Failure> {
    let mut replicas = BTreeMap::new();
    for (name, topic) in described(admin, topics).await? {
        let topic = topic.map_err(|error| match error.code() {
            code @ ErrorCode::UnknownTopicOrPartition => {
                ClientError::from_code(code, Some(format!("Topic {name} not found.")))
            }
            _ => error,
        })?;
        for partition in topic.partitions {
            replicas.insert(TopicPartition::new(&*name, partition.index), partition.replicas);
        }
    }
    Ok(replicas)
}

/// Brokers of the list that are up.
fn candidates(
    nodes: &[Node],
    brokers: &[i32],
    uses_racks: bool,
) -> Result<Vec<Candidate>, Failure> {
    let mut candidates: Vec<Candidate> = nodes
        .iter()
        .filter(|node| brokers.contains(&node.id))
        .map(|node| Candidate {
            id: BrokerId(node.id),
            rack: node.rack.clone().filter(|_| uses_racks),
        })
        .collect();
    candidates.sort_by_key(|candidate| candidate.id);
    let without = candidates.iter().filter(|candidate| candidate.rack.is_none()).count();
    if uses_racks && without != 0 && without != candidates.len() {
        return Err(Failure::Error(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment without rack information.".to_owned(),
        ));
    }
    Ok(candidates)
}

/// Places each topic anew, as if it were created on these brokers.
fn propose(
    topics: &[String],
    current: &BTreeMap<TopicPartition, Vec<i32>>,
    candidates: &[Candidate],
) -> Result<BTreeMap<TopicPartition, Vec<i32>>, Failure> {
    let mut proposed = BTreeMap::new();
    for topic in topics {
        let partitions: Vec<_> =
            current.iter().filter(|(name, _)| *name.topic == **topic).collect();
        let count = partitions.len();
        let partitions = by_partition(partitions, |(name, _)| name);
        let Some((_, replicas)) = partitions.first() else { continue };
        let request = placement::Request {
            partitions: i32::try_from(count).unwrap_or(i32::MAX),
            replication_factor: i32::try_from(replicas.len()).unwrap_or(i32::MAX),
            first_partition: 0,
        };
        let start = Start { index: random(), shift: random() };
        let placed = placement::assign_replicas(candidates, request, start);
        for (index, brokers) in (0..).zip(placed.map_err(|error| error.to_string())?) {
            let ids = brokers.iter().map(|id| id.0).collect();
            proposed.insert(TopicPartition::new(topic.as_str(), index), ids);
        }
    }
    Ok(proposed)
}

fn random() -> usize {
    usize::from(rand::random::<u16>())
}

// --execute

/// What `--execute` is told.
struct Execution {
    is_additional: bool,
    /// Negative for none.
    throttle: i64,
    /// Negative for none.
    directory_throttle: i64,
    timeout_ms: i64,
}

impl Execution {
    fn read(options: &Options) -> Result<Execution, String> {
        Ok(Execution {
            throttle: options.long("throttle")?.unwrap_or(-1),
            directory_throttle: options.long("replica-alter-log-dirs-throttle")?.unwrap_or(-1),
            timeout_ms: options.long("timeout")?.unwrap_or_default(),
            is_additional: options.has("additional"),
        })
    }
}

async fn execute(admin: &Admin, text: &str, execution: &Execution) -> Result<(), Failure> {
    let targets = Targets::parse(text)?;
    let proposed = targets.checked()?;
    let moving = admin.list_reassignments(None).await?;
    if !execution.is_additional && !moving.is_empty() {
        return Err(Failure::Terse(EXISTING.to_owned()));
    }
    check_brokers(admin, &proposed).await?;
    let current = current_replicas(admin, &proposed).await?;
    say(&format!("Current partition replica assignment\n\n{}\n", file::format(&current)));
    say("Save this to use as the --reassignment-json-file option during rollback");
    if execution.throttle >= 0 || execution.directory_throttle >= 0 {
        say(RUN_VERIFY);
    }
    if execution.throttle >= 0 {
        let moves = throttles::moves(&moving, &proposed, &current);
        throttles::set_between_brokers(admin, &moves, execution.throttle).await?;
    }
    if execution.directory_throttle >= 0 {
        let replicas = targets.directories.keys();
        let rate = execution.directory_throttle;
        throttles::set_between_directories(admin, replicas, rate).await?;
    }
    let names: Vec<TopicPartition> = proposed.keys().cloned().collect();
    let wanted = proposed.into_iter().map(|(name, replicas)| (name, Some(replicas))).collect();
    let errors = alter(admin, &wanted).await?;
    if !errors.is_empty() {
        return Err(Failure::Terse(format!(
            "Error reassigning partition(s):\n{}",
            errors.join("\n")
        )));
    }
    let plural = if names.len() == 1 { "" } else { "s" };
    say(&format!(
        "Successfully started partition reassignment{plural} for {}",
        joined(&names, ",")
    ));
    if targets.directories.is_empty() {
        return Ok(());
    }
    directories::execute(admin, targets.directories, execution.timeout_ms).await
}

/// All brokers that are to hold something must be up.
async fn check_brokers(
    admin: &Admin,
    proposed: &BTreeMap<TopicPartition, Vec<i32>>,
) -> Result<(), Failure> {
    let nodes = admin.describe_cluster().await?.nodes;
    let wanted: BTreeSet<i32> = proposed.values().flatten().copied().collect();
    let wanted = numbers(wanted.into_iter().collect());
    match wanted.iter().find(|id| !nodes.iter().any(|node| node.id == **id)) {
        Some(id) => Err(Failure::Error(format!("Unknown broker id {id}"))),
        None => Ok(()),
    }
}

/// Where the partitions are that are to move.
async fn current_replicas(
    admin: &Admin,
    proposed: &BTreeMap<TopicPartition, Vec<i32>>,
) -> Result<BTreeMap<TopicPartition, Vec<i32>>, Failure> {
    let topics: BTreeSet<String> = proposed.keys().map(|name| name.topic.to_string()).collect();
    let topics: Vec<String> = topics.into_iter().collect();
    let mut current = replicas_of(admin, &topics).await?;
    current.retain(|name, _| proposed.contains_key(name));
    let missing: Vec<&TopicPartition> =
        proposed.keys().filter(|name| !current.contains_key(name)).collect();
    if missing.is_empty() {
        return Ok(current);
    }
    let names = by_partition(missing, |name| name);
    let text = format!("Unable to find partition: {}", joined(&names, ", "));
    Err(ClientError::from_code(ErrorCode::UnknownTopicOrPartition, Some(text)).into())
}

/// Begins or ends moves; gives a line for each that failed.
async fn alter(
    admin: &Admin,
    wanted: &BTreeMap<TopicPartition, Option<Vec<i32>>>,
) -> Result<Vec<String>, Failure> {
    let results = match admin.alter_reassignments(wanted).await {
        Ok(results) => results,
        // A call that failed as a whole failed for each.
        Err(error) => wanted.keys().map(|name| (name.clone(), Err(error.clone()))).collect(),
    };
    let failed = results.into_iter().filter_map(|(name, result)| {
        let error = result.err()?;
        Some(format!("{name}: {error}"))
    });
    Ok(failed.collect())
}

// --cancel

async fn cancel(
    admin: &Admin,
    targets: &Targets,
    preserves: bool,
    timeout_ms: i64,
) -> Result<(), Failure> {
    let partitions = targets.partitions.iter().map(|(name, _)| name.clone()).collect();
    let moving = admin.list_reassignments(Some(&partitions)).await?;
    let wanted: BTreeMap<TopicPartition, Option<Vec<i32>>> = moving
        .into_iter()
        // As Kafka has it: what only adds replicas is not ended.
        .filter(|(_, moving)| moving.adding.is_empty() || !moving.removing.is_empty())
        .map(|(name, _)| (name, None))
        .collect();
    if wanted.is_empty() {
        say("None of the specified partition reassignments are active.");
    } else {
        let errors = alter(admin, &wanted).await?;
        if !errors.is_empty() {
            let plural = if errors.len() == 1 { "" } else { "s" };
            return Err(Failure::Terse(format!(
                "Error cancelling partition reassignment{plural} for:\n{}",
                errors.join("\n")
            )));
        }
        let plural = if wanted.len() == 1 { "" } else { "s" };
        let names: Vec<&TopicPartition> = wanted.keys().collect();
        say(&format!(
            "Successfully cancelled partition reassignment{plural} for: {}",
            joined(&names, ",")
        ));
    }
    let back = directories::under_way(admin, &targets.directories).await?;
    if back.is_empty() {
        // Kafka ends no line here.
        put("None of the specified partition moves are active.");
    } else {
        directories::execute(admin, back, timeout_ms).await?;
    }
    if !preserves {
        throttles::clear(admin, &targets.partitions).await?;
    }
    Ok(())
}
