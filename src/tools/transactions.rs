//! `kafka-transactions`: shows transactions and producers, and ends transactions that hang. Source:
//! `TransactionsCommand`.

use std::collections::{BTreeMap, BTreeSet};

use client::{
    admin::{
        Admin,
        transactions::{AbortSpec, ProducerState, TransactionDescription, TransactionFilter},
    },
    error::ClientError,
};
use common::{
    clock,
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
    properties::Properties,
    topic::TopicPartition,
};

use crate::{
    VERSION,
    argparse::{Argument, Arguments, Parser},
    clients::{construction_failure, load, open_admin, runtime},
    console::{Halt, halt, say},
    java_order::{by_partition, by_text},
    logging,
};

/// Partitions and topics that are asked for at once.
const BATCH_MAX: usize = 500;

const fn argument(name: &'static str, metavar: &'static str, help: &'static str) -> Argument {
    Argument {
        name,
        metavar: Some(metavar),
        is_required: false,
        takes_many: false,
        is_choice: false,
        help,
    }
}

const fn required(name: &'static str, metavar: &'static str, help: &'static str) -> Argument {
    Argument { is_required: true, ..argument(name, metavar, help) }
}

const BASE: Parser = Parser {
    program: "kafka-transactions.sh",
    purpose: "Shows the state of transactions and of their producers, and ends transactions that hang.\n\ncommands: list, describe, describe-producers, abort, find-hanging",
    arguments: &[
        Argument { metavar: None, ..argument("-v", "", "show the version") },
        argument("--command-config", "FILE", "file with properties for the admin client"),
        required("--bootstrap-server", "host:port", "a broker of the cluster; several with commas"),
    ],
};

const LIST: Parser = Parser {
    program: "kafka-transactions.sh --bootstrap-server host:port list",
    purpose: "Lists transactions.",
    arguments: &[argument(
        "--duration-filter",
        "DURATION_FILTER",
        "only transactions that run longer than so many milliseconds; below 0: all",
    )],
};

const DESCRIBE: Parser = Parser {
    program: "kafka-transactions.sh --bootstrap-server host:port describe",
    purpose: "Describes the state of a transactional id.",
    arguments: &[required("--transactional-id", "TRANSACTIONAL_ID", "the transactional id")],
};

const DESCRIBE_PRODUCERS: Parser = Parser {
    program: "kafka-transactions.sh --bootstrap-server host:port describe-producers",
    purpose: "Describes the producers of a partition.",
    arguments: &[
        argument("--broker-id", "BROKER_ID", "broker to ask, a replica; the leader if not given"),
        required("--topic", "TOPIC", "the topic"),
        required("--partition", "PARTITION", "the partition"),
    ],
};

const ABORT: Parser = Parser {
    program: "kafka-transactions.sh --bootstrap-server host:port abort",
    purpose: "Aborts a transaction that hangs. Give --start-offset, or for brokers before 3.0 the three others.",
    arguments: &[
        // The first that is missing is told, and Kafka looks for this one first.
        required("--partition", "PARTITION", "the partition"),
        required("--topic", "TOPIC", "the topic"),
        argument("--start-offset", "START_OFFSET", "where the transaction begins"),
        argument("--producer-id", "PRODUCER_ID", "its producer"),
        argument("--producer-epoch", "PRODUCER_EPOCH", "the producer's epoch"),
        argument("--coordinator-epoch", "COORDINATOR_EPOCH", "the coordinator's epoch"),
    ],
};

const FIND_HANGING: Parser = Parser {
    program: "kafka-transactions.sh --bootstrap-server host:port find-hanging",
    purpose: "Finds transactions that hang.",
    arguments: &[
        argument("--broker-id", "BROKER_ID", "only partitions of this broker"),
        argument(
            "--max-transaction-timeout",
            "MAX_TRANSACTION_TIMEOUT",
            "only transactions that run longer than so many minutes (default: 15)",
        ),
        argument("--topic", "TOPIC", "only this topic"),
        argument("--partition", "PARTITION", "only this partition of the topic"),
    ],
};

/// A command with the arguments that it was given.
enum Action {
    List { duration_ms: Option<i64> },
    Describe { id: String },
    DescribeProducers { partition: TopicPartition, broker: Option<i32> },
    Abort(Abort),
    FindHanging(FindHanging),
}

struct Abort {
    partition: TopicPartition,
    start_offset: Option<i64>,
    producer_id: Option<i64>,
    producer_epoch: Option<i16>,
    coordinator_epoch: Option<i32>,
}

struct FindHanging {
    broker: Option<i32>,
    topic: Option<String>,
    partition: Option<i32>,
    timeout_max_minutes: i64,
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    if words.iter().take_while(|word| word.starts_with('-')).any(|word| is_version(word)) {
        // Where Kafka was built from is not known of ours.
        say(&format!("{VERSION} (Commit:unknown)"));
        return Ok(());
    }
    let (base, rest) = BASE.parse_before_command(words)?;
    let (command, words) = rest.split_first().expect("the parser wants a command");
    let action = Action::read(command, words)?;
    let mut properties = match base.text("--command-config") {
        Some(path) => load(path)
            .or_else(|error| halt(&format!("Failed to load admin client properties: {error}.")))?,
        None => Properties::new(),
    };
    let servers = base.text("--bootstrap-server").unwrap_or_default();
    properties.insert("bootstrap.servers".to_owned(), servers.to_owned());
    runtime()?.block_on(async {
        let opened = open_admin(&properties).await;
        let admin = opened.or_else(|error| {
            halt(&construction_failure("Failed to create new KafkaAdminClient", &error))
        })?;
        action.run(&admin).await
    })
}

fn is_version(word: &str) -> bool {
    matches!(word, "-v" | "--version")
}

/// Ends with what failed, in Kafka's words.
fn failed<T>(what: &str, error: &ClientError) -> Result<T, Halt> {
    halt(&format!("{what}: {error}. Enable debug logging for additional detail."))
}

impl Action {
    fn read(command: &str, words: &[String]) -> Result<Action, Halt> {
        match command {
            "list" => {
                let arguments = LIST.parse_command(words)?;
                let duration_ms = number(&LIST, &arguments, "--duration-filter", "Long")?;
                Ok(Action::List { duration_ms })
            }
            "describe" => {
                let arguments = DESCRIBE.parse_command(words)?;
                Ok(Action::Describe { id: text(&arguments, "--transactional-id") })
            }
            "describe-producers" => {
                let parser = &DESCRIBE_PRODUCERS;
                let arguments = parser.parse_command(words)?;
                Ok(Action::DescribeProducers {
                    partition: partition(parser, &arguments)?,
                    broker: number(parser, &arguments, "--broker-id", "Integer")?,
                })
            }
            "abort" => {
                let arguments = ABORT.parse_command(words)?;
                Ok(Action::Abort(Abort {
                    partition: partition(&ABORT, &arguments)?,
                    start_offset: number(&ABORT, &arguments, "--start-offset", "Long")?,
                    producer_id: number(&ABORT, &arguments, "--producer-id", "Long")?,
                    producer_epoch: number(&ABORT, &arguments, "--producer-epoch", "Short")?,
                    coordinator_epoch: number(
                        &ABORT,
                        &arguments,
                        "--coordinator-epoch",
                        "Integer",
                    )?,
                }))
            }
            "find-hanging" => {
                let parser = &FIND_HANGING;
                let arguments = parser.parse_command(words)?;
                let timeout = number(parser, &arguments, "--max-transaction-timeout", "Integer")?;
                Ok(Action::FindHanging(FindHanging {
                    broker: number(parser, &arguments, "--broker-id", "Integer")?,
                    topic: arguments.text("--topic").map(str::to_owned),
                    partition: number(parser, &arguments, "--partition", "Integer")?,
                    timeout_max_minutes: i64::from(timeout.unwrap_or(15_i32)),
                }))
            }
            other => BASE.refuse(&format!(
                "invalid choice: '{other}' (choose from 'list', 'describe', 'describe-producers', 'abort', 'find-hanging')"
            )),
        }
    }

    async fn run(self, admin: &Admin) -> Result<(), Halt> {
        match self {
            Action::List { duration_ms } => list(admin, duration_ms).await,
            Action::Describe { id } => describe(admin, &id).await,
            Action::DescribeProducers { partition, broker } => {
                describe_producers(admin, &partition, broker).await
            }
            Action::Abort(abort) => abort.run(admin).await,
            Action::FindHanging(search) => search.run(admin).await,
        }
    }
}

fn number<N: std::str::FromStr>(
    parser: &Parser,
    arguments: &Arguments,
    name: &str,
    class: &str,
) -> Result<Option<N>, Halt> {
    arguments.number(name, class).or_else(|error| parser.refuse(&error))
}

fn text(arguments: &Arguments, name: &str) -> String {
    arguments.text(name).unwrap_or_default().to_owned()
}

fn partition(parser: &Parser, arguments: &Arguments) -> Result<TopicPartition, Halt> {
    let index = number(parser, arguments, "--partition", "Integer")?.unwrap_or_default();
    Ok(TopicPartition::new(text(arguments, "--topic"), index))
}

/// Prints columns as wide as their widest cell. Source: `ToolsUtils.prettyPrintTable`.
fn print_table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) {
    let mut widths = heads.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let print = |cells: [&str; N]| {
        let mut line = String::new();
        for (cell, width) in cells.into_iter().zip(widths) {
            line.push_str(&format!("{cell:<width$}\t"));
        }
        say(&line);
    };
    print(heads);
    rows.iter().for_each(|row| print(row.each_ref().map(String::as_str)));
}

fn or_none(number: Option<i64>) -> String {
    number.map_or("None".to_owned(), |number| number.to_string())
}

async fn list(admin: &Admin, duration_ms: Option<i64>) -> Result<(), Halt> {
    let filter = TransactionFilter { duration_ms, ..TransactionFilter::default() };
    let listed = admin.list_transactions(&filter).await;
    let listed = listed.or_else(|error| failed("Failed to list transactions", &error))?;
    let rows: Vec<[String; 4]> = listed
        .iter()
        .flat_map(|(broker, transactions)| {
            transactions.iter().map(|transaction| {
                [
                    transaction.id.clone(),
                    broker.to_string(),
                    transaction.producer_id.to_string(),
                    transaction.state.clone(),
                ]
            })
        })
        .collect();
    print_table(["TransactionalId", "Coordinator", "ProducerId", "TransactionState"], &rows);
    Ok(())
}

async fn describe(admin: &Admin, id: &str) -> Result<(), Halt> {
    let described = admin.describe_transaction(id).await;
    let found = described.or_else(|error| {
        failed(&format!("Failed to describe transaction state of transactional-id `{id}`"), &error)
    })?;
    let duration = found.start_time_ms.map(|start| clock::wall_clock().0 - start);
    // Kafka holds them in a hash set.
    let partitions = by_partition(found.partitions, |name| name);
    let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    let row = [
        found.coordinator.to_string(),
        id.to_owned(),
        found.producer_id.to_string(),
        found.producer_epoch.to_string(),
        found.state,
        found.timeout_ms.to_string(),
        or_none(found.start_time_ms),
        or_none(duration),
        names.join(","),
    ];
    let heads = [
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ];
    print_table(heads, &[row]);
    Ok(())
}

/// The producers of one partition.
async fn producers_of(
    admin: &Admin,
    partition: &TopicPartition,
    broker: Option<i32>,
) -> Result<Vec<ProducerState>, ClientError> {
    let wanted = BTreeSet::from([partition.clone()]);
    let mut described = admin.describe_producers(&wanted, broker).await?;
    described
        .remove(partition)
        .unwrap_or_else(|| Err(ClientError::from_code(ErrorCode::UnknownServerError, None)))
}

async fn describe_producers(
    admin: &Admin,
    partition: &TopicPartition,
    broker: Option<i32>,
) -> Result<(), Halt> {
    let producers = match producers_of(admin, partition, broker).await {
        Ok(producers) => producers,
        Err(error) => {
            let place = broker.map_or("leader".to_owned(), |broker| format!("broker {broker}"));
            if let (Some(broker), ErrorCode::NotLeaderOrFollower) = (broker, error.code()) {
                logging::error_with(
                    "org.apache.kafka.clients.admin.internals.DescribeProducersHandler",
                    &format!(
                        "[AdminClient clientId=adminclient-1] Not leader error in `DescribeProducers` response for partition {partition} for brokerId {broker} set in options"
                    ),
                    &ClientError::from_code(error.code(), None).with_class(),
                );
            }
            let what = format!("Failed to describe producers for partition {partition} on {place}");
            return failed(&what, &error);
        }
    };
    let rows: Vec<[String; 6]> = producers
        .iter()
        .map(|producer| {
            [
                producer.producer_id.to_string(),
                producer.producer_epoch.to_string(),
                producer.coordinator_epoch.unwrap_or(-1).to_string(),
                producer.last_sequence.to_string(),
                producer.last_timestamp.to_string(),
                or_none(producer.transaction_start),
            ]
        })
        .collect();
    let heads = [
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    ];
    print_table(heads, &rows);
    Ok(())
}

impl Abort {
    async fn run(self, admin: &Admin) -> Result<(), Halt> {
        let spec = match (self.start_offset, self.producer_id) {
            (None, None) => {
                return halt(
                    "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)",
                );
            }
            (Some(start), _) => self.starting_at(admin, start).await?,
            (None, Some(producer_id)) => {
                let Some(producer_epoch) = self.producer_epoch else {
                    return halt("Missing required argument --producer-epoch");
                };
                let Some(coordinator_epoch) = self.coordinator_epoch else {
                    return halt("Missing required argument --coordinator-epoch");
                };
                AbortSpec {
                    partition: self.partition,
                    producer_id: ProducerId(producer_id),
                    producer_epoch: ProducerEpoch(producer_epoch),
                    // -1 stands for a producer that no coordinator has ended a transaction of; 0 is never too large.
                    coordinator_epoch: coordinator_epoch.max(0),
                }
            }
        };
        match admin.abort_transaction(&spec).await {
            Ok(()) => Ok(()),
            Err(error) => failed(&format!("Failed to abort transaction {spec}"), &error),
        }
    }

    async fn starting_at(&self, admin: &Admin, start: i64) -> Result<AbortSpec, Halt> {
        let partition = &self.partition;
        let producers = producers_of(admin, partition, None).await.or_else(|error| {
            failed(&format!("Failed to validate producer state for partition {partition}"), &error)
        })?;
        let found = producers.iter().find(|producer| producer.transaction_start == Some(start));
        let Some(producer) = found else {
            return halt(&format!(
                "Could not find any open transactions starting at offset {start} on partition {partition}"
            ));
        };
        Ok(AbortSpec {
            partition: partition.clone(),
            producer_id: producer.producer_id,
            producer_epoch: ProducerEpoch(i16::try_from(producer.producer_epoch).unwrap_or(-1)),
            coordinator_epoch: producer.coordinator_epoch.unwrap_or(0),
        })
    }
}

/// A transaction that is open in a partition.
struct Open {
    partition: TopicPartition,
    producer: ProducerState,
}

impl FindHanging {
    async fn run(self, admin: &Admin) -> Result<(), Halt> {
        if self.topic.is_none() && self.broker.is_none() {
            return halt(
                "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search",
            );
        }
        let partitions = self.partitions(admin).await?;
        let candidates = self.candidates(admin, &partitions).await?;
        let hanging =
            if candidates.is_empty() { Vec::new() } else { hanging_of(admin, candidates).await? };
        print_hanging(&hanging);
        Ok(())
    }

    /// Partitions to look at.
    async fn partitions(&self, admin: &Admin) -> Result<Vec<TopicPartition>, Halt> {
        let topics = match (&self.topic, self.partition) {
            (Some(topic), Some(index)) => {
                return Ok(vec![TopicPartition::new(topic.as_str(), index)]);
            }
            (Some(topic), None) => vec![topic.clone()],
            (None, _) => {
                let listed = admin.list_topics().await;
                let topics = listed.or_else(|error| failed("Failed to list topics", &error))?;
                by_text(topics.into_iter().map(|topic| topic.name).collect(), |name: &String| name)
            }
        };
        let mut partitions = Vec::new();
        for batch in topics.chunks(BATCH_MAX) {
            let what = format!("Failed to describe {} topics", batch.len());
            let described = admin.describe_topics(batch).await;
            for (name, topic) in described.or_else(|error| failed(&what, &error))? {
                let topic = topic.or_else(|error| failed(&what, &error))?;
                for partition in &topic.partitions {
                    let is_there =
                        self.broker.is_none_or(|broker| partition.replicas.contains(&broker));
                    if is_there {
                        partitions.push(TopicPartition::new(name.as_str(), partition.index));
                    }
                }
            }
        }
        Ok(partitions)
    }

    /// Transactions that are open for longer than any should be.
    async fn candidates(
        &self,
        admin: &Admin,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Open>, Halt> {
        let limit_ms = self.timeout_max_minutes.saturating_mul(60_000);
        let mut candidates = Vec::new();
        for batch in partitions.chunks(BATCH_MAX) {
            let broker = match self.broker {
                Some(broker) => format!("Optional[{broker}]"),
                None => "Optional.empty".to_owned(),
            };
            let count = batch.len();
            let what =
                format!("Failed to describe producers for {count} partitions on broker {broker}");
            let wanted = batch.iter().cloned().collect();
            let described = admin.describe_producers(&wanted, self.broker).await;
            let described = described.or_else(|error| failed(&what, &error))?;
            let now = clock::wall_clock().0;
            for (partition, producers) in
                by_partition(described.into_iter().collect(), |(name, _)| name)
            {
                let producers = producers.or_else(|error| failed(&what, &error))?;
                let old = producers.into_iter().filter(|producer| {
                    producer.transaction_start.is_some() && now - producer.last_timestamp > limit_ms
                });
                candidates
                    .extend(old.map(|producer| Open { partition: partition.clone(), producer }));
            }
        }
        Ok(candidates)
    }
}

/// Those that no coordinator will end.
async fn hanging_of(admin: &Admin, candidates: Vec<Open>) -> Result<Vec<Open>, Halt> {
    let ids: BTreeSet<i64> = candidates.iter().map(|open| open.producer.producer_id.0).collect();
    let filter = TransactionFilter {
        producer_ids: ids.iter().copied().collect(),
        ..TransactionFilter::default()
    };
    let listed = admin.list_transactions(&filter).await.or_else(|error| {
        failed(&format!("Failed to list transactions for {} producers", ids.len()), &error)
    })?;
    let transactions: BTreeMap<ProducerId, String> = listed
        .into_values()
        .flatten()
        .filter(|transaction| ids.contains(&transaction.producer_id.0))
        .map(|transaction| (transaction.producer_id, transaction.id))
        .collect();
    let count = transactions.len();
    let mut descriptions: BTreeMap<ProducerId, TransactionDescription> = BTreeMap::new();
    for (producer, id) in transactions {
        match admin.describe_transaction(&id).await {
            Ok(description) => drop(descriptions.insert(producer, description)),
            Err(error) if error.code() == ErrorCode::TransactionalIdNotFound => {}
            Err(error) => {
                return failed(&format!("Failed to describe {count} transactions"), &error);
            }
        }
    }
    let is_hanging = |open: &Open| {
        // A coordinator that knows the partition will still write a marker into it.
        let description = descriptions.get(&open.producer.producer_id);
        description.is_none_or(|description| !description.partitions.contains(&open.partition))
    };
    Ok(candidates.into_iter().filter(is_hanging).collect())
}

fn print_hanging(hanging: &[Open]) {
    let now = clock::wall_clock().0;
    let rows: Vec<[String; 8]> = hanging
        .iter()
        .map(|Open { partition, producer }| {
            [
                partition.topic.to_string(),
                partition.partition.to_string(),
                producer.producer_id.to_string(),
                producer.producer_epoch.to_string(),
                producer.coordinator_epoch.unwrap_or(-1).to_string(),
                producer.transaction_start.unwrap_or(-1).to_string(),
                producer.last_timestamp.to_string(),
                ((now - producer.last_timestamp) / 60_000).to_string(),
            ]
        })
        .collect();
    let heads = [
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    ];
    print_table(heads, &rows);
}
