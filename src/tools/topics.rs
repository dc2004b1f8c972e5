//! `kafka-topics`: creates, lists, describes, changes and deletes topics. Source: `TopicCommand`.

use std::collections::{BTreeMap, BTreeSet};

use client::{
    admin::{Admin, NewPartitions, NewTopic},
    error::ClientError,
};
use common::{
    config::{
        broker::BrokerConfig,
        topic::{TopicConfigError, validate},
    },
    properties::Properties,
    topic::is_internal,
};
use regex::Regex;

use crate::{
    clients::{construction_failure, load, open_admin, runtime},
    console::{Halt, halt, say},
    logging,
    options::{OptionSpec, Options, flag, parse_or_refuse, read, value},
};

mod describe;

const CLASS: &str = "org.apache.kafka.tools.TopicCommand";

const OPTIONS: &[OptionSpec] = &[
    value("bootstrap-server", "server to connect to", "REQUIRED: A broker of the cluster, as host:port; several with commas."),
    value("command-config", "command config property file", "File with properties for the admin client."),
    flag("list", "Print the names of all topics."),
    flag("create", "Make a topic."),
    flag("delete", "Remove topics."),
    flag("alter", "Give topics more partitions. Their configs are changed by kafka-configs."),
    flag("describe", "Print topics with their partitions."),
    value("topic", "topic", "Name of the topic. A regular expression, except with --create."),
    value("topic-id", "topic-id", "Id of the topic, for --describe."),
    value("config", "name=value", "Config of the new topic, in place of the broker's. May be repeated. Only with --create."),
    value("delete-config", "name", "Not supported with --bootstrap-server: use kafka-configs."),
    value("partitions", "# of partitions", "How many partitions the topic shall have. With keys, more partitions change which one a key goes to. The broker's default if not given.").integer(),
    value("replication-factor", "replication factor", "On how many brokers each partition shall be. The broker's default if not given.").integer(),
    value("replica-assignment", "broker_id_for_part1_replica1 : broker_id_for_part1_replica2 , broker_id_for_part2_replica1 : broker_id_for_part2_replica2 , ...", "Brokers of each partition, chosen by hand."),
    flag("under-replicated-partitions", "With --describe: only partitions that lack replicas in sync."),
    flag("unavailable-partitions", "With --describe: only partitions without a leader that is up."),
    flag("under-min-isr-partitions", "With --describe: only partitions with fewer replicas in sync than min.insync.replicas."),
    flag("at-min-isr-partitions", "With --describe: only partitions with just min.insync.replicas replicas in sync."),
    flag("topics-with-overrides", "With --describe: only topics with configs of their own, without partitions."),
    flag("if-exists", "With --alter, --delete or --describe: a missing topic is no error."),
    flag("if-not-exists", "With --create: an existing topic is no error."),
    flag("exclude-internal", "With --list or --describe: leave the brokers' own topics out."),
    value("partition-size-limit-per-response", "maximum number of partitions in one response.", "How many partitions one answer may hold.").integer(),
];

const ACTIONS: &[&str] = &["create", "list", "alter", "describe", "delete"];
const METRIC_WARNING: &str = "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To avoid issues it is best to use either, but not both.";

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let options = parse_or_refuse(OPTIONS, words)?;
    check(&options)?;
    let properties = client_properties(&options)?;
    runtime()?.block_on(async {
        let opened = open_admin(&properties).await;
        let admin = opened.or_else(|error| {
            halt(&construction_failure("Failed to create new KafkaAdminClient", &error))
        })?;
        match act(&admin, &options).await {
            Ok(()) => Ok(()),
            Err(failure) => {
                say(&format!("Error while executing topic command : {}", failure.message));
                logging::error(CLASS, &format!("{}: {}\n", failure.class, failure.message));
                Err(Halt(1))
            }
        }
    })
}

/// What went wrong after the options were read: Java's class, and its text.
pub(crate) struct Failure {
    class: String,
    pub(crate) message: String,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure { class: error.class(), message: error.to_string() }
    }
}

impl Failure {
    fn new(class: &str, message: impl Into<String>) -> Failure {
        Failure { class: class.to_owned(), message: message.into() }
    }

    fn illegal_argument(message: impl Into<String>) -> Failure {
        Failure::new("java.lang.IllegalArgumentException", message)
    }
}

/// An option that cannot be read: joptsimple's exceptions.
impl From<String> for Failure {
    fn from(text: String) -> Failure {
        let class = if text.starts_with("Cannot parse") {
            "joptsimple.OptionArgumentConversionException"
        } else {
            "joptsimple.MultipleArgumentsForOptionException"
        };
        Failure::new(class, text)
    }
}

fn check(options: &Options) -> Result<(), Halt> {
    if options.is_empty() {
        return options.refuse("Create, delete, describe, or change a topic.");
    }
    options.answer_help_or_version(
        "This tool helps to create, delete, describe, or change a topic.",
    )?;
    if ACTIONS.iter().filter(|action| options.has(action)).count() != 1 {
        return options.refuse(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete",
        );
    }
    if !options.has("bootstrap-server") {
        return halt("--bootstrap-server must be specified");
    }
    if options.has("describe") && options.has("if-exists") {
        if !options.has("topic") && !options.has("topic-id") {
            return options.refuse("--topic or --topic-id is required to describe a topic");
        }
        if options.has("topic") && options.has("topic-id") {
            say(
                "Only topic id will be used when both --topic and --topic-id are specified and topicId is not Uuid.ZERO_UUID",
            );
        }
    }
    if !options.has("list") && !options.has("describe") {
        options.require(&["topic"])?;
    }
    if options.has("alter") {
        if options.has("config") {
            return options.refuse(
                "Option combination \"[[bootstrap-server], [config]]\" can't be used with option \"[alter]\" (the kafka-configs CLI supports altering topic configs with a --bootstrap-server option)",
            );
        }
        options.require(&["partitions"])?;
    }
    check_combinations(options)
}

/// Which option goes with which action.
fn check_combinations(options: &Options) -> Result<(), Halt> {
    let without = |kept: &[&str]| -> Vec<&'static str> {
        ACTIONS.iter().copied().filter(|action| !kept.contains(action)).collect()
    };
    options.exclude("config", &without(&["alter", "create"]))?;
    let mut others = without(&["alter"]);
    others.push("bootstrap-server");
    options.exclude("delete-config", &others)?;
    options.exclude("partitions", &without(&["alter", "create"]))?;
    options.exclude("replication-factor", &without(&["create"]))?;
    options.exclude("replica-assignment", &without(&["alter", "create"]))?;
    if options.has("create") {
        options.exclude("replica-assignment", &["partitions", "replication-factor"])?;
    }
    let reports = [
        "under-replicated-partitions",
        "under-min-isr-partitions",
        "at-min-isr-partitions",
        "unavailable-partitions",
    ];
    for report in reports {
        let mut others = without(&["describe"]);
        others.push("topics-with-overrides");
        options.exclude(report, &others)?;
    }
    let mut others = without(&["describe"]);
    others.extend(reports);
    options.exclude("topics-with-overrides", &others)?;
    options.exclude("if-exists", &without(&["alter", "delete", "describe"]))?;
    options.exclude("if-not-exists", &without(&["create"]))?;
    options.exclude("exclude-internal", &without(&["list", "describe"]))
}

fn client_properties(options: &Options) -> Result<Properties, Halt> {
    let mut properties = match read(options.text("command-config"))? {
        Some(path) => load(&path).or_else(|error| halt(&error))?,
        None => Properties::new(),
    };
    if let Some(server) = read(options.text("bootstrap-server"))? {
        properties.insert("bootstrap.servers".to_owned(), server);
    }
    Ok(properties)
}

async fn act(admin: &Admin, options: &Options) -> Result<(), Failure> {
    if options.has("create") {
        create(admin, options).await
    } else if options.has("alter") {
        alter(admin, options).await
    } else if options.has("list") {
        say(&matching_topics(admin, options).await?.join("\n"));
        Ok(())
    } else if options.has("describe") {
        describe::run(admin, options).await
    } else {
        delete(admin, options).await
    }
}

async fn create(admin: &Admin, options: &Options) -> Result<(), Failure> {
    let wanted = Wanted::read(options)?;
    if wanted.name.contains(['.', '_']) {
        say(METRIC_WARNING);
    }
    let most = i32::from(i16::MAX);
    if wanted.replication_factor.is_some_and(|factor| factor < 1 || factor > most) {
        return Err(Failure::illegal_argument(format!(
            "The replication factor must be between 1 and {most} inclusive"
        )));
    }
    if wanted.partitions.is_some_and(|count| count < 1) {
        return Err(Failure::illegal_argument("The partitions must be greater than 0"));
    }
    let topic = NewTopic {
        name: wanted.name.clone(),
        partition_count: wanted.partitions,
        replication_factor: wanted.replication_factor.and_then(|factor| factor.try_into().ok()),
        assignment: wanted.assignment.into_iter().enumerate().fold(
            BTreeMap::new(),
            |mut assignment, (index, brokers)| {
                assignment.insert(i32::try_from(index).unwrap_or(i32::MAX), brokers);
                assignment
            },
        ),
        configs: wanted.configs,
    };
    let results = admin.create_topics(&[topic]).await?;
    for result in results.into_values() {
        match result {
            Ok(()) => say(&format!("Created topic {}.", wanted.name)),
            Err(error)
                if options.has("if-not-exists")
                    && error.code() == common::error_code::ErrorCode::TopicAlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn alter(admin: &Admin, options: &Options) -> Result<(), Failure> {
    let wanted = Wanted::read(options)?;
    let topics = existing_topics(admin, options).await?;
    if topics.is_empty() {
        return Ok(());
    }
    let count = wanted.partitions.unwrap_or_default();
    let mut increases = Vec::new();
    let described = admin.describe_topics(&topics).await?;
    for (name, topic) in described {
        // The list covers the partitions that there are as well; only what follows them is sent.
        let assignment = match wanted.assignment.as_slice() {
            [] => None,
            all => Some(all.iter().skip(topic?.partitions.len()).cloned().collect()),
        };
        increases.push(NewPartitions { topic: name, count, assignment });
    }
    first_error(admin.create_partitions(&increases).await?)
}

async fn delete(admin: &Admin, options: &Options) -> Result<(), Failure> {
    let topics = existing_topics(admin, options).await?;
    first_error(admin.delete_topics(&topics).await?)
}

fn first_error(results: client::admin::ResultsByTopic) -> Result<(), Failure> {
    match results.into_values().find_map(Result::err) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Topics that `--topic` matches; none is an error unless `--if-exists`.
async fn existing_topics(admin: &Admin, options: &Options) -> Result<Vec<String>, Failure> {
    let topics = matching_topics(admin, options).await?;
    let wanted = options.text("topic")?.filter(|topic| !topic.is_empty());
    match wanted {
        Some(topic) if topics.is_empty() && !options.has("if-exists") => {
            Err(Failure::illegal_argument(format!("Topic '{topic}' does not exist as expected")))
        }
        _ => Ok(topics),
    }
}

/// Names of all topics that `--topic` and `--exclude-internal` leave, sorted.
async fn matching_topics(admin: &Admin, options: &Options) -> Result<Vec<String>, Failure> {
    let filter = match options.text("topic")? {
        Some(pattern) => Some(topic_pattern(&pattern)?),
        None => None,
    };
    let mut names: Vec<String> =
        admin.list_topics().await?.into_iter().map(|topic| topic.name).collect();
    names.retain(|name| filter.as_ref().is_none_or(|filter| filter.is_match(name)));
    if options.has("exclude-internal") {
        names.retain(|name| !is_internal(name));
    }
    names.sort();
    Ok(names)
}

/// A list of patterns that must match whole names. Source: `TopicFilter`.
pub(crate) fn topic_pattern(pattern: &str) -> Result<Regex, Failure> {
    let joined = pattern.trim().replace(',', "|").replace(' ', "");
    let joined = joined.trim_start_matches(['"', '\'']).trim_end_matches(['"', '\'']);
    Regex::new(&format!("^(?:{joined})$")).map_err(|_| {
        Failure::new("java.lang.RuntimeException", format!("{joined} is an invalid regex."))
    })
}

/// What the options say of the topic itself.
struct Wanted {
    name: String,
    partitions: Option<i32>,
    replication_factor: Option<i32>,
    assignment: Vec<Vec<i32>>,
    configs: Properties,
}

impl Wanted {
    fn read(options: &Options) -> Result<Wanted, Failure> {
        let assignment = options.text("replica-assignment")?.unwrap_or_default();
        Ok(Wanted {
            name: options.text("topic")?.unwrap_or_default(),
            partitions: options.integer("partitions")?,
            replication_factor: options.integer("replication-factor")?,
            assignment: if assignment.is_empty() {
                Vec::new()
            } else {
                parse_assignment(&assignment)?
            },
            configs: parse_configs(&options.texts("config"))?,
        })
    }
}

/// `1:2,3:4`: partitions with commas, replicas with colons.
fn parse_assignment(text: &str) -> Result<Vec<Vec<i32>>, Failure> {
    let mut partitions: Vec<Vec<i32>> = Vec::new();
    // Java's split drops empty parts at the end.
    for (index, list) in text.trim_end_matches(',').split(',').enumerate() {
        let mut brokers = Vec::new();
        for word in list.trim_end_matches(':').split(':').map(str::trim) {
            let broker = word.parse().map_err(|_| {
                Failure::new(
                    "java.lang.NumberFormatException",
                    format!("For input string: \"{word}\""),
                )
            })?;
            brokers.push(broker);
        }
        let duplicates = duplicates(&brokers);
        if !duplicates.is_empty() {
            return Err(Failure::new(
                "org.apache.kafka.server.common.AdminCommandFailedException",
                format!("Partition replica lists may not contain duplicate entries: {duplicates}"),
            ));
        }
        if partitions.first().is_some_and(|first| first.len() != brokers.len()) {
            return Err(Failure::new(
                "org.apache.kafka.server.common.AdminOperationException",
                format!("Partition {index} has different replication factor: {brokers:?}"),
            ));
        }
        partitions.push(brokers);
    }
    Ok(partitions)
}

fn duplicates(brokers: &[i32]) -> String {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<i32> =
        brokers.iter().copied().filter(|broker| !seen.insert(*broker)).collect();
    twice.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

/// `name=value` words, checked as the broker will check them.
fn parse_configs(words: &[String]) -> Result<Properties, Failure> {
    let mut configs = Properties::new();
    for word in words {
        let parts: Vec<&str> = word.split('=').map(str::trim).collect();
        let [name, value] = parts.as_slice() else {
            return Err(malformed_config());
        };
        if value.is_empty() {
            return Err(malformed_config());
        }
        configs.insert((*name).to_owned(), (*value).to_owned());
    }
    let defaults = default_broker()?;
    validate(&defaults, &configs).map_err(|error| {
        let class = match error {
            TopicConfigError::Conflict(_) => {
                "org.apache.kafka.common.errors.InvalidConfigurationException"
            }
            TopicConfigError::Value(_) => "org.apache.kafka.common.config.ConfigException",
        };
        Failure::new(class, error.to_string())
    })?;
    Ok(configs)
}

fn malformed_config() -> Failure {
    Failure::illegal_argument(
        "requirement failed: Invalid topic config: all configs to be added must be in the format \"key=val\".",
    )
}

/// A broker with defaults, against which configs are checked before they are sent.
fn default_broker() -> Result<BrokerConfig, Failure> {
    let mut properties = Properties::new();
    properties.insert("zookeeper.connect".to_owned(), "localhost:2181".to_owned());
    BrokerConfig::parse(&properties).map_err(|error| {
        Failure::new("org.apache.kafka.common.config.ConfigException", error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::{parse_assignment, parse_configs, topic_pattern};

    #[test]
    fn assignments_are_read_as_kafka_does() {
        let parse = |text: &str| parse_assignment(text).map_err(|failure| failure.message);
        assert_eq!(parse("1:2,3:4"), Ok(vec![vec![1, 2], vec![3, 4]]));
        assert_eq!(parse("1 : 2"), Ok(vec![vec![1, 2]]));
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(error("1:1"), "Partition replica lists may not contain duplicate entries: 1");
        assert_eq!(error("1:2,1"), "Partition 1 has different replication factor: [1]");
        assert_eq!(error("a:b"), "For input string: \"a\"");
    }

    #[test]
    fn configs_are_checked_before_they_are_sent() {
        let error = |word: &str| parse_configs(&[word.to_owned()]).err().unwrap().message;
        assert_eq!(error("nonsense=1"), "Unknown topic config name: nonsense");
        assert_eq!(
            error("retention.ms=x"),
            "Invalid value x for configuration retention.ms: Not a number of type LONG"
        );
        assert!(error("retention.ms").starts_with("requirement failed: Invalid topic config"));
        assert!(parse_configs(&["retention.ms = 5".to_owned()]).is_ok());
    }

    #[test]
    fn patterns_match_whole_names() {
        let matches =
            |pattern: &str, name: &str| topic_pattern(pattern).ok().unwrap().is_match(name);
        assert!(matches("w.*|three", "words") && matches("a,b", "b") && matches("'a'", "a"));
        assert!(!matches("word", "words"));
        assert!(topic_pattern("(").is_err());
    }
}
