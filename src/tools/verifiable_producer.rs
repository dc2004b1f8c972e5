//! `kafka-verifiable-producer`: writes rising numbers and prints what became of each. Source: `VerifiableProducer`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use client::{
    config::ProducerConfig,
    error::ClientError,
    producer::{Delivery, Producer, ProducerRecord},
};
use common::{clock, config::value::java_double, ids::Timestamp, properties::Properties};
use tokio::{sync::mpsc, time::sleep_until};

use crate::{
    argparse::{Argument, Arguments, Parser},
    clients::{construction_failure, load, runtime},
    console::{Halt, halt},
    logging,
    signals::Signals,
    verifiable::{Event, argument, servers},
};

/// Records whose result nobody has looked at yet.
const DELIVERIES_MAX: usize = 10_000;

const PARSER: Parser = Parser {
    program: "verifiable-producer",
    purpose: "This tool produces increasing integers to the specified topic and prints JSON metadata to stdout on each \"send\" request, making externally visible which messages have been acked and which have not.",
    arguments: &[
        Argument { is_required: true, ..argument("--topic", "TOPIC", "topic that is written to") },
        argument("--max-messages", "MAX-MESSAGES", "records to write; -1 for no end (default: -1)"),
        argument(
            "--throughput",
            "THROUGHPUT",
            "records a second, about; below 0 for as many as go (default: -1)",
        ),
        argument("--acks", "ACKS", "0, 1 or -1 (default: -1)"),
        argument("--producer.config", "CONFIG_FILE", "file with settings of the producer"),
        argument(
            "--message-create-time",
            "CREATETIME",
            "time of the first record, in milliseconds; -1 for now (default: -1)",
        ),
        argument("--value-prefix", "VALUE-PREFIX", "number in front of every value, with a dot"),
        argument(
            "--repeating-keys",
            "REPEATING-KEYS",
            "keys are numbers from 0 to one below this, again and again",
        ),
        servers("--bootstrap-server", "REQUIRED: a broker of the cluster; several with commas"),
        servers("--broker-list", "DEPRECATED: the former name of --bootstrap-server"),
    ],
};

/// What is written.
struct Job {
    topic: String,
    count_max: Option<u64>,
    /// Records a second; none without a limit.
    throughput: Option<u32>,
    shown_throughput: i32,
    create_time: Option<i64>,
    value_prefix: Option<i32>,
    repeating_keys: Option<i32>,
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let arguments = PARSER.parse(words)?;
    let job = Job::read(&arguments).or_else(|error| PARSER.refuse(&error))?;
    let properties = properties(&arguments)?;
    let config = ProducerConfig::read(&properties).or_else(|error| failed(&error))?;
    runtime()?.block_on(async {
        let producer = Producer::open(config).await.or_else(|error| failed(&error))?;
        match produce(producer, &job).await? {
            0 => Ok(()),
            code => Err(Halt(code)),
        }
    })
}

fn failed<T>(error: &ClientError) -> Result<T, Halt> {
    halt(&construction_failure("Failed to construct kafka producer", error))
}

impl Job {
    fn read(arguments: &Arguments) -> Result<Job, String> {
        let count: Option<i32> = arguments.number("--max-messages", "Integer")?;
        let throughput: Option<i32> = arguments.number("--throughput", "Integer")?;
        let create_time: Option<i64> = arguments.number("--message-create-time", "Long")?;
        let acks: Option<i32> = arguments.number("--acks", "Integer")?;
        if let Some(acks) = acks.filter(|acks| !(-1..=1).contains(acks)) {
            return Err(format!(
                "argument --acks: invalid choice: '{acks}' (choose from {{0,1,-1}})"
            ));
        }
        Ok(Job {
            topic: arguments.text("--topic").unwrap_or_default().to_owned(),
            count_max: count.and_then(|count| u64::try_from(count).ok()),
            throughput: throughput
                .and_then(|rate| u32::try_from(rate).ok())
                .filter(|rate| *rate > 0),
            shown_throughput: throughput.unwrap_or(-1),
            create_time: create_time.filter(|time| *time != -1),
            value_prefix: arguments.number("--value-prefix", "Integer")?,
            repeating_keys: arguments.number("--repeating-keys", "Integer")?,
        })
    }
}

fn properties(arguments: &Arguments) -> Result<Properties, Halt> {
    let list = ["--bootstrap-server", "--broker-list"];
    let servers = list.iter().find_map(|name| arguments.text(name)).unwrap_or_default();
    let mut properties = Properties::from([
        ("bootstrap.servers".to_owned(), servers.to_owned()),
        ("acks".to_owned(), arguments.text("--acks").unwrap_or("-1").to_owned()),
        ("retries".to_owned(), "0".to_owned()),
    ]);
    if let Some(path) = arguments.text("--producer.config") {
        properties.extend(load(path).or_else(|error| PARSER.refuse(&error))?);
    }
    Ok(properties)
}

/// A record that is under way.
struct Sent {
    key: Option<String>,
    value: String,
    delivery: Delivery,
}

/// Writes until the job is done, or a signal ends it; gives the exit code.
async fn produce(producer: Producer, job: &Job) -> Result<u8, Halt> {
    let mut signals = Signals::new()?;
    let begun = clock::now();
    let acked = Arc::new(AtomicU64::new(0));
    let (sender, results) = mpsc::channel(DELIVERIES_MAX);
    let printer = tokio::spawn(print_results(results, job.topic.clone(), acked.clone()));
    Event::new("startup_complete").print();
    let mut sent = 0;
    let code = tokio::select! {
        () = send_all(&producer, job, &sender, &mut sent) => 0,
        code = signals.next() => code,
    };
    drop(sender);
    producer.close().await;
    // It ends with the last result; a panic in it was told.
    let _ = printer.await;
    Event::new("shutdown_complete").print();
    let acked = acked.load(Ordering::Relaxed);
    let elapsed_ms = clock::now().saturating_duration_since(begun).as_millis() as f64;
    Event::new("tool_data")
        .number("sent", sent)
        .number("acked", acked)
        .number("target_throughput", job.shown_throughput)
        .raw("avg_throughput", &java_double(1000.0 * (acked as f64 / elapsed_ms)))
        .print();
    Ok(code)
}

async fn send_all(producer: &Producer, job: &Job, sender: &mpsc::Sender<Sent>, sent: &mut u64) {
    let begun = clock::now();
    let begun_ms = clock::wall_clock().0;
    let mut create_time = job.create_time;
    while job.count_max.is_none_or(|most| *sent < most) {
        let number = *sent;
        let value = match job.value_prefix {
            Some(prefix) => format!("{prefix}.{number}"),
            None => number.to_string(),
        };
        let key = job
            .repeating_keys
            .and_then(|count| u64::try_from(count).ok())
            .map(|count| number.checked_rem(count).unwrap_or(number).to_string());
        let record = ProducerRecord {
            topic: job.topic.clone(),
            key: key.clone().map(Into::into),
            value: Some(value.clone().into()),
            timestamp: create_time.map(Timestamp),
            ..ProducerRecord::default()
        };
        // Each record is as much later as the tool runs: Kafka adds it up.
        create_time = create_time.map(|time| time + clock::wall_clock().0 - begun_ms);
        *sent += 1;
        match producer.send(&record).await {
            Ok(delivery) => {
                if sender.send(Sent { key, value, delivery }).await.is_err() {
                    return;
                }
            }
            Err(error) => print_failure(&job.topic, key.as_deref(), &value, &error),
        }
        if let Some(rate) = job.throughput {
            let due = Duration::from_secs(*sent) / rate;
            sleep_until((begun + due).into()).await;
        }
    }
}

async fn print_results(mut results: mpsc::Receiver<Sent>, topic: String, acked: Arc<AtomicU64>) {
    while let Some(Sent { key, value, delivery }) = results.recv().await {
        match delivery.result().await {
            Ok(metadata) => {
                acked.fetch_add(1, Ordering::Relaxed);
                Event::new("producer_send_success")
                    .nullable("key", key.as_deref())
                    .text("value", &value)
                    .number("offset", metadata.offset)
                    .place(&metadata.partition)
                    .print();
            }
            Err(error) => print_failure(&topic, key.as_deref(), &value, &error),
        }
    }
}

fn print_failure(topic: &str, key: Option<&str>, value: &str, error: &ClientError) {
    Event::new("producer_send_error")
        .text("topic", topic)
        .nullable("key", key)
        .text("value", value)
        .text("exception", &format!("class {}", error.class()))
        .nullable("message", error.message.as_deref())
        .print();
}
