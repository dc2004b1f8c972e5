//! `kafka-console-consumer`: prints the records of topics. Source: `ConsoleConsumer`, `ConsoleConsumerOptions`.

use std::{
    collections::BTreeMap,
    io::{BufWriter, Stdout, Write, stdout},
    time::Duration,
};

use client::{
    config::ConsumerConfig,
    consumer::{Consumer, ConsumerRecord, Start},
    error::{ClientError, ErrorKind},
};
use common::{clock, ids::Offset, properties::Properties, topic::TopicPartition};
use rand::Rng;
use regex::Regex;

use crate::{
    clients::{construction_failure, load, runtime},
    console::{Halt, complain, halt, say},
    console_producer::merge,
    formatter::Formatter,
    logging,
    options::{OptionSpec, Options, flag, key_values, parse_or_refuse, read, value},
    signals::Signals,
};

const CLASS: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const FORMATTER_CLASS: &str = "org.apache.kafka.tools.consumer.DefaultMessageFormatter";

const OPTIONS: &[OptionSpec] = &[
    value("topic", "topic", "Topic to read."),
    value("whitelist", "Java regex (String)", "DEPRECATED: the former name of --include, which wins."),
    value("include", "Java regex (String)", "Regular expression for the topics to read."),
    value("partition", "partition", "Partition to read, from its end on unless '--offset' says otherwise.").integer(),
    value("offset", "consume offset", "Where to begin: an offset, 'earliest' or 'latest'.").default("latest"),
    value("consumer-property", "consumer_prop", "Setting of the consumer, as key=value."),
    value("consumer.config", "config file", "File with settings of the consumer; --consumer-property wins over it."),
    value("formatter", "class", "Class that prints the records.").default(FORMATTER_CLASS),
    value("property", "prop", "Setting of the formatter, as key=value: print.timestamp, print.key, print.offset, print.partition, print.headers, print.value (true or false), key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer, headers.deserializer."),
    value("formatter-config", "config file", "File with settings of the formatter; --property wins over it."),
    flag("from-beginning", "Begin with the first record there is, where no offset is known yet."),
    value("max-messages", "num_messages", "End after this many records.").integer(),
    value("timeout-ms", "timeout_ms", "End when no record came for so long.").long(),
    flag("skip-message-on-error", "Go on after a record that cannot be printed."),
    value("bootstrap-server", "server to connect to", "REQUIRED: A broker of the cluster, as host:port; several with commas."),
    value("key-deserializer", "deserializer for key", "Class that reads the keys."),
    value("value-deserializer", "deserializer for values", "Class that reads the values."),
    flag("enable-systest-events", "Print a line at the end, for system tests."),
    value("isolation-level", "", "read_committed leaves out records of transactions that are open or aborted; read_uncommitted shows all.").default("read_uncommitted"),
    value("group", "consumer group id", "Group to join."),
];

/// What the options ask for.
struct Job {
    topics: Topics,
    message_count_max: Option<u64>,
    timeout: Option<Duration>,
    skips_errors: bool,
    formatter: Formatter,
}

enum Topics {
    Partition(TopicPartition, Start),
    Topic(String),
    Pattern(Regex),
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let options = parse_or_refuse(OPTIONS, words)?;
    options.answer_help_or_version(
        "This tool helps to read data from Kafka topics and outputs it to standard output.",
    )?;
    check(&options)?;
    let properties = consumer_properties(&options)?;
    let job = Job::read(&options)?;
    let code = consume(&properties, &job);
    if options.has("enable-systest-events") {
        say("shutdown_complete");
    }
    match code? {
        0 => Ok(()),
        code => Err(Halt(code)),
    }
}

fn check(options: &Options) -> Result<(), Halt> {
    let has_pattern = options.has("include") || options.has("whitelist");
    if options.has("topic") == has_pattern {
        let hint = if options.has("whitelist") {
            "--whitelist is DEPRECATED use --include instead; ignored if --include specified."
        } else {
            ""
        };
        return options.refuse(&format!("Exactly one of --include/--topic is required. {hint}"));
    }
    if options.has("partition") {
        if !options.has("topic") {
            return options.refuse("The topic is required when partition is specified.");
        }
        if options.has("from-beginning") && options.has("offset") {
            return options
                .refuse("Options from-beginning and offset cannot be specified together.");
        }
    } else if options.has("offset") {
        return options.refuse("The partition is required when offset is specified.");
    }
    options.require(&["bootstrap-server"])
}

fn consumer_properties(options: &Options) -> Result<Properties, Halt> {
    let from_file = match read(options.text("consumer.config"))? {
        Some(path) => load(&path).or_else(|error| halt(&error))?,
        None => Properties::new(),
    };
    let extra = key_values(&options.texts("consumer-property"));
    let group = group(options, &from_file, &extra)?;
    let mut properties = from_file;
    properties.extend(extra);
    let is_from_beginning = options.has("from-beginning");
    match properties.get("auto.offset.reset") {
        Some(reset) if is_from_beginning && reset != "earliest" => {
            return halt(&format!(
                "Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
            ));
        }
        Some(_) => {}
        None => {
            let reset = if is_from_beginning { "earliest" } else { "latest" };
            properties.insert("auto.offset.reset".to_owned(), reset.to_owned());
        }
    }
    let servers = read(options.text("bootstrap-server"))?.unwrap_or_default();
    properties.insert("bootstrap.servers".to_owned(), servers);
    properties.entry("client.id".to_owned()).or_insert("console-consumer".to_owned());
    merge(&mut properties, "isolation.level", options, "isolation-level")?;
    let group = group.unwrap_or_else(|| {
        // Nobody will come back to a group that got its name by chance.
        properties.entry("enable.auto.commit".to_owned()).or_insert("false".to_owned());
        format!("console-consumer-{}", rand::rng().random_range(0..100_000))
    });
    properties.insert("group.id".to_owned(), group);
    Ok(properties)
}

/// The group that was named, which must be the same everywhere.
fn group(
    options: &Options,
    from_file: &Properties,
    extra: &Properties,
) -> Result<Option<String>, Halt> {
    let mut groups: Vec<String> = Vec::new();
    let named = [
        if options.has("group") { read(options.text("group"))? } else { None },
        from_file.get("group.id").cloned(),
        extra.get("group.id").cloned(),
    ];
    for group in named.into_iter().flatten() {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    if groups.len() > 1 {
        let quoted: Vec<String> = groups.iter().map(|group| format!("'{group}'")).collect();
        return options.refuse(&format!(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via '--consumer.config') do not match. Detected group ids: {}",
            quoted.join(", ")
        ));
    }
    if !groups.is_empty() && options.has("partition") {
        return options.refuse("Options group and partition cannot be specified together.");
    }
    Ok(groups.pop())
}

impl Job {
    fn read(options: &Options) -> Result<Job, Halt> {
        let start = start(options)?;
        let timeout = read(options.long("timeout-ms"))?;
        let topics = match read(options.text("topic"))? {
            Some(topic) => match read(options.integer("partition"))? {
                Some(partition) => Topics::Partition(TopicPartition::new(topic, partition), start),
                None => Topics::Topic(topic),
            },
            None => {
                let list = if options.has("include") { "include" } else { "whitelist" };
                let pattern = read(options.text(list))?.unwrap_or_default();
                Topics::Pattern(
                    Regex::new(&format!("^(?:{pattern})$"))
                        .or_else(|error| halt(&error.to_string()))?,
                )
            }
        };
        let count = read(options.integer("max-messages"))?;
        Ok(Job {
            topics,
            message_count_max: count.and_then(|count| u64::try_from(count).ok()),
            timeout: timeout.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis),
            skips_errors: options.has("skip-message-on-error"),
            formatter: formatter(options)?,
        })
    }
}

fn start(options: &Options) -> Result<Start, Halt> {
    if !options.has("offset") {
        let is_from_beginning = options.has("from-beginning");
        return Ok(if is_from_beginning { Start::Earliest } else { Start::Latest });
    }
    let text = read(options.text("offset"))?.unwrap_or_default();
    match text.to_lowercase().as_str() {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        number => match number.parse() {
            Ok(offset) if offset >= 0 => Ok(Start::At(Offset(offset))),
            _ => options.refuse(&format!(
                "The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
            )),
        },
    }
}

fn formatter(options: &Options) -> Result<Formatter, Halt> {
    let mut properties = match read(options.text("formatter-config"))? {
        Some(path) => load(&path).or_else(|error| halt(&error))?,
        None => Properties::new(),
    };
    for (option, name) in
        [("key-deserializer", "key.deserializer"), ("value-deserializer", "value.deserializer")]
    {
        if let Some(class) = read(options.text(option))?.filter(|class| !class.is_empty()) {
            properties.insert(name.to_owned(), class);
        }
    }
    properties.extend(key_values(&options.texts("property")));
    let class = read(options.text("formatter"))?.unwrap_or_default();
    Formatter::new(&class, &properties).or_else(|error| options.refuse(&error))
}

/// Reads until the job is done; gives the exit code.
fn consume(properties: &Properties, job: &Job) -> Result<u8, Halt> {
    let config = match ConsumerConfig::read(properties) {
        Ok(config) => config,
        Err(error) => return fail(&failed_construction(&error)),
    };
    runtime()?.block_on(async {
        let mut consumer = match Consumer::open(config).await {
            Ok(consumer) => consumer,
            Err(error) => return fail(&failed_construction(&error)),
        };
        match &job.topics {
            Topics::Partition(partition, start) => {
                consumer.assign([(partition.clone(), *start)]);
            }
            Topics::Topic(topic) => consumer.subscribe(vec![topic.clone()]),
            Topics::Pattern(pattern) => {
                let pattern = pattern.clone();
                consumer.subscribe_pattern(move |topic| pattern.is_match(topic));
            }
        }
        let mut signals = Signals::new()?;
        let mut printer = Printer { out: BufWriter::new(stdout()), count: 0 };
        let end = process(&mut consumer, job, &mut printer, &mut signals).await;
        consumer.close().await;
        // What cannot be written is told by `process`; here the reader is gone.
        let _ = printer.out.flush();
        complain(&format!("Processed a total of {} messages", printer.count));
        match end {
            End::Done => Ok(0),
            End::Signal(code) => Ok(code),
            End::Unprintable(error) => fail(&error),
        }
    })
}

fn failed_construction(error: &ClientError) -> String {
    match error.kind {
        ErrorKind::Config if error.to_string().contains("bootstrap") => {
            construction_failure("Failed to construct kafka consumer", error)
        }
        _ => error.with_class(),
    }
}

fn fail(throwable: &str) -> Result<u8, Halt> {
    logging::error_with(CLASS, "Unknown error when running consumer: ", throwable);
    Err(Halt(1))
}

struct Printer {
    out: BufWriter<Stdout>,
    count: u64,
}

/// Why reading ended.
enum End {
    /// All was read, or an error that was logged.
    Done,
    /// A signal, with its exit code.
    Signal(u8),
    /// A record that cannot be printed.
    Unprintable(String),
}

async fn process(
    consumer: &mut Consumer,
    job: &Job,
    printer: &mut Printer,
    signals: &mut Signals,
) -> End {
    const ERROR: &str = "Error processing message, terminating consumer process: ";
    while job.message_count_max.is_none_or(|most| printer.count < most) {
        let records = tokio::select! {
            records = receive(consumer, job.timeout) => records,
            code = signals.next() => return End::Signal(code),
        };
        let records = match records {
            Ok(records) => records,
            Err(error) => {
                logging::error_with(CLASS, ERROR, &error.with_class());
                return End::Done;
            }
        };
        let mut records = records.into_iter();
        while job.message_count_max.is_none_or(|most| printer.count < most) {
            let Some(record) = records.next() else { break };
            printer.count += 1;
            if let Err(end) = print(&record, job, printer) {
                give_back(consumer, records);
                return end;
            }
        }
        give_back(consumer, records);
        if printer.out.flush().is_err() {
            complain("Unable to write to standard out, closing consumer.");
            return End::Done;
        }
    }
    End::Done
}

/// Records that were not printed are not committed either.
fn give_back(consumer: &mut Consumer, records: impl Iterator<Item = ConsumerRecord>) {
    let mut firsts = BTreeMap::new();
    for record in records {
        firsts.entry(record.partition).or_insert(record.offset);
    }
    for (partition, offset) in firsts {
        consumer.seek(&partition, Start::At(offset));
    }
}

/// Prints one record; the error ends the tool.
fn print(record: &ConsumerRecord, job: &Job, printer: &mut Printer) -> Result<(), End> {
    let Err(error) = job.formatter.write(record, &mut printer.out) else { return Ok(()) };
    // Our own errors have no number, those of the pipe do.
    if error.raw_os_error().is_some() {
        complain("Unable to write to standard out, closing consumer.");
        return Err(End::Done);
    }
    let throwable = format!("org.apache.kafka.common.errors.SerializationException: {error}");
    if job.skips_errors {
        let text = "Error processing message, skipping this message: ";
        logging::error_with(CLASS, text, &throwable);
        return Ok(());
    }
    Err(End::Unprintable(throwable))
}

/// The next records, waited for as long as the job says.
async fn receive(
    consumer: &mut Consumer,
    limit: Option<Duration>,
) -> Result<Vec<ConsumerRecord>, ClientError> {
    let begun = clock::now();
    loop {
        let records = consumer.poll(limit.unwrap_or(Duration::MAX)).await?;
        if !records.is_empty() {
            return Ok(records);
        }
        if limit.is_some_and(|limit| clock::now().duration_since(begun) >= limit) {
            return Err(ClientError { kind: ErrorKind::Timeout, message: None });
        }
    }
}
