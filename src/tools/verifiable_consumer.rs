//! `kafka-verifiable-consumer`: reads a topic in a group and prints what happens. Source: `VerifiableConsumer`.

use std::{collections::BTreeMap, time::Duration};

use client::{
    config::ConsumerConfig,
    consumer::{Consumer, ConsumerRecord, Rebalance},
    error::ClientError,
    offsets::{CommittedOffset, Partitions},
};
use common::{properties::Properties, topic::TopicPartition};

use crate::{
    argparse::{Argument, Arguments, Parser},
    clients::{construction_failure, load, runtime},
    console::{Halt, halt},
    logging,
    signals::Signals,
    verifiable::{Event, argument, servers},
};

const CLASS: &str = "org.apache.kafka.tools.VerifiableConsumer";
/// How long one poll waits; what the group does is printed after it.
const POLL: Duration = Duration::from_millis(100);

const fn required(name: &'static str, metavar: &'static str, help: &'static str) -> Argument {
    Argument { is_required: true, ..argument(name, metavar, help) }
}

const fn flag(name: &'static str, help: &'static str) -> Argument {
    Argument { metavar: None, ..argument(name, "", help) }
}

const PARSER: Parser = Parser {
    program: "verifiable-consumer",
    purpose: "This tool consumes messages from a specific topic and emits consumer events (e.g. group rebalances, received messages, and offsets committed) as JSON objects to STDOUT.",
    arguments: &[
        required("--topic", "TOPIC", "topic that is read"),
        argument(
            "--group-protocol",
            "GROUP_PROTOCOL",
            "classic; nothing else is there in ZooKeeper mode (default: classic)",
        ),
        argument(
            "--group-remote-assignor",
            "GROUP_REMOTE_ASSIGNOR",
            "has no effect with the classic protocol",
        ),
        required("--group-id", "GROUP_ID", "group that the members share"),
        argument("--group-instance-id", "GROUP_INSTANCE_ID", "name of a static member"),
        argument("--max-messages", "MAX-MESSAGES", "records to read; -1 for no end (default: -1)"),
        argument(
            "--session-timeout",
            "TIMEOUT_MS",
            "the consumer's session timeout (default: 30000)",
        ),
        flag("--verbose", "print every record"),
        flag("--enable-autocommit", "let the consumer commit by itself"),
        argument("--reset-policy", "RESETPOLICY", "earliest, latest or none (default: earliest)"),
        argument(
            "--assignment-strategy",
            "ASSIGNMENTSTRATEGY",
            "class that shares out the partitions",
        ),
        argument(
            "--consumer.config",
            "CONFIG_FILE",
            "file with settings of the consumer; the options above win over it",
        ),
        servers("--bootstrap-server", "REQUIRED: a broker of the cluster; several with commas"),
        servers("--broker-list", "DEPRECATED: the former name of --bootstrap-server"),
    ],
};

/// What is read, and how much of it is told.
struct Job {
    topic: String,
    count_max: Option<usize>,
    is_verbose: bool,
    commits: bool,
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let arguments = PARSER.parse(words)?;
    let count: Option<i32> =
        arguments.number("--max-messages", "Integer").or_else(|error| PARSER.refuse(&error))?;
    let job = Job {
        topic: arguments.text("--topic").unwrap_or_default().to_owned(),
        count_max: count.and_then(|count| usize::try_from(count).ok()),
        is_verbose: arguments.has("--verbose"),
        commits: !arguments.has("--enable-autocommit"),
    };
    let properties = properties(&arguments)?;
    let config = ConsumerConfig::read(&properties).or_else(|error| failed(&error))?;
    runtime()?.block_on(async {
        let consumer = Consumer::open(config).await.or_else(|error| failed(&error))?;
        match consume(consumer, &job).await? {
            0 => Ok(()),
            code => Err(Halt(code)),
        }
    })
}

fn failed<T>(error: &ClientError) -> Result<T, Halt> {
    halt(&construction_failure("Failed to construct kafka consumer", error))
}

fn properties(arguments: &Arguments) -> Result<Properties, Halt> {
    let mut properties = match arguments.text("--consumer.config") {
        Some(path) => load(path).or_else(|error| PARSER.refuse(&error))?,
        None => Properties::new(),
    };
    let timeout: Option<i32> =
        arguments.number("--session-timeout", "Integer").or_else(|error| PARSER.refuse(&error))?;
    let list = ["--bootstrap-server", "--broker-list"];
    let servers = list.iter().find_map(|name| arguments.text(name)).unwrap_or_default();
    let text = |name: &str, default: &str| arguments.text(name).unwrap_or(default).to_owned();
    let range = "org.apache.kafka.clients.consumer.RangeAssignor";
    let settings = [
        ("bootstrap.servers", servers.to_owned()),
        ("group.id", text("--group-id", "")),
        ("enable.auto.commit", arguments.has("--enable-autocommit").to_string()),
        ("auto.offset.reset", text("--reset-policy", "earliest")),
        ("session.timeout.ms", timeout.unwrap_or(30_000).to_string()),
        ("partition.assignment.strategy", text("--assignment-strategy", range)),
    ];
    for (name, value) in settings {
        properties.insert(name.to_owned(), value);
    }
    if let Some(name) = arguments.text("--group-instance-id") {
        properties.insert("group.instance.id".to_owned(), name.to_owned());
    }
    Ok(properties)
}

/// Reads until the job is done, or a signal ends it; gives the exit code.
async fn consume(mut consumer: Consumer, job: &Job) -> Result<u8, Halt> {
    let mut signals = Signals::new()?;
    Event::new("startup_complete").print();
    consumer.subscribe(vec![job.topic.clone()]);
    let ended = tokio::select! {
        read = read_all(&mut consumer, job) => read.map(|()| 0),
        code = signals.next() => Ok(code),
    };
    print_rebalances(&mut consumer);
    let left = consumer.assignment();
    if !left.is_empty() {
        print_partitions("partitions_revoked", &left);
    }
    consumer.close().await;
    Event::new("shutdown_complete").print();
    match ended {
        Ok(code) => Ok(code),
        Err(error) => {
            let text = "Error during processing, terminating consumer process: ";
            logging::error_with(CLASS, text, &error.with_class());
            Ok(0)
        }
    }
}

async fn read_all(consumer: &mut Consumer, job: &Job) -> Result<(), ClientError> {
    let mut count = 0;
    while job.count_max.is_none_or(|most| count < most) {
        let records = consumer.poll(POLL).await?;
        print_rebalances(consumer);
        if records.is_empty() {
            continue;
        }
        let offsets = print_records(records, job, &mut count);
        if job.commits {
            let committed = consumer.commit_offsets(offsets.clone()).await;
            print_commit(&offsets, committed.err());
        }
    }
    Ok(())
}

fn print_partitions(name: &str, partitions: &[TopicPartition]) {
    let parts = partitions.iter().map(|partition| Event::part().place(partition));
    Event::new(name).list("partitions", parts).print();
}

fn print_rebalances(consumer: &mut Consumer) {
    for rebalance in consumer.take_rebalances() {
        match rebalance {
            Rebalance::Assigned(partitions) => print_partitions("partitions_assigned", &partitions),
            Rebalance::Revoked(partitions) => print_partitions("partitions_revoked", &partitions),
        }
    }
}

/// Prints records up to the limit; gives where each partition stands then.
fn print_records(
    records: Vec<ConsumerRecord>,
    job: &Job,
    count: &mut usize,
) -> Partitions<CommittedOffset> {
    let all = records.len();
    let mut by_partition: BTreeMap<TopicPartition, Vec<ConsumerRecord>> = BTreeMap::new();
    for record in records {
        by_partition.entry(record.partition.clone()).or_default().push(record);
    }
    let mut offsets = Partitions::new();
    let mut summaries = Vec::new();
    for (partition, mut records) in by_partition {
        if let Some(most) = job.count_max {
            records.truncate(most - *count);
        }
        let (Some(first), Some(last)) = (records.first(), records.last()) else { continue };
        offsets.insert(partition.clone(), CommittedOffset::at(last.offset.plus(1).0));
        summaries.push(
            Event::part()
                .place(&partition)
                .number("count", records.len())
                .number("minOffset", first.offset)
                .number("maxOffset", last.offset),
        );
        if job.is_verbose {
            records.iter().for_each(print_record);
        }
        *count += records.len();
    }
    Event::new("records_consumed").number("count", all).list("partitions", summaries).print();
    offsets
}

fn print_record(record: &ConsumerRecord) {
    let text = |bytes: &Option<bytes::Bytes>| {
        bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    Event::new("record_data")
        .nullable("key", text(&record.key).as_deref())
        .nullable("value", text(&record.value).as_deref())
        .place(&record.partition)
        .number("offset", record.offset)
        .print();
}

fn print_commit(offsets: &Partitions<CommittedOffset>, error: Option<ClientError>) {
    let parts = offsets.iter().map(|(partition, committed)| {
        Event::part().place(partition).number("offset", committed.offset)
    });
    let event = Event::new("offsets_committed").list("offsets", parts);
    let is_done = error.is_none();
    let event = match error {
        Some(error) => event.nullable("error", error.message.as_deref()),
        None => event,
    };
    event.raw("success", if is_done { "true" } else { "false" }).print();
}
