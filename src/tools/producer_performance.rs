//! `kafka-producer-perf-test`: sends many records and measures. Source: `ProducerPerformance`.

use std::{
    fs,
    time::{Duration, Instant},
};

use bytes::Bytes;
use client::{
    config::ProducerConfig,
    producer::{Delivery, Producer, ProducerRecord},
};
use common::{clock, properties::Properties};
use rand::{Rng, RngCore, SeedableRng, rngs::StdRng};
use regex::Regex;
use tokio::{sync::mpsc, time::sleep_until};

use crate::{
    argparse::{Argument, Arguments, Parser},
    clients::{construction_failure, load, runtime},
    console::{Halt, complain, halt, say},
    logging,
};

mod statistics;

use self::statistics::Statistics;

/// Records whose result nobody has looked at yet.
const DELIVERIES_MAX: usize = 100_000;

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

const PARSER: Parser = Parser {
    program: "producer-performance",
    purpose: "This tool is used to verify the producer performance.",
    arguments: &[
        Argument {
            is_required: true,
            ..argument("--topic", "TOPIC", "topic that the records go to")
        },
        Argument {
            is_required: true,
            ..argument("--num-records", "NUM-RECORDS", "how many records to send")
        },
        argument(
            "--payload-delimiter",
            "PAYLOAD-DELIMITER",
            "what ends a payload in the file of --payload-file (default: \\n)",
        ),
        Argument {
            is_required: true,
            ..argument(
                "--throughput",
                "THROUGHPUT",
                "records a second, about; -1 for as many as go",
            )
        },
        Argument {
            takes_many: true,
            ..argument(
                "--producer-props",
                "PROP-NAME=PROP-VALUE",
                "settings of the producer; they win over those of --producer.config",
            )
        },
        argument("--producer.config", "CONFIG-FILE", "file with settings of the producer"),
        Argument {
            metavar: None,
            ..argument("--print-metrics", "", "print the producer's counters at the end")
        },
        argument(
            "--transactional-id",
            "TRANSACTIONAL-ID",
            "the transactional id, where --transaction-duration-ms is above 0",
        ),
        argument(
            "--transaction-duration-ms",
            "TRANSACTION-DURATION",
            "longest time of a transaction; 0 for none (default: 0)",
        ),
        Argument {
            is_choice: true,
            ..argument("--record-size", "RECORD-SIZE", "bytes of a record")
        },
        Argument {
            is_choice: true,
            ..argument(
                "--payload-file",
                "PAYLOAD-FILE",
                "UTF-8 file with payloads, of which each record takes one by chance",
            )
        },
        Argument {
            is_choice: true,
            metavar: None,
            ..argument("--payload-monotonic", "", "the payloads are rising numbers")
        },
    ],
};

/// What to send.
enum Payload {
    Random(usize),
    File(Vec<Bytes>),
    Monotonic,
}

struct Test {
    topic: String,
    record_count: u64,
    throughput: f64,
    payload: Payload,
    prints_metrics: bool,
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let arguments = PARSER.parse(words)?;
    let numbers = Numbers::read(&arguments).or_else(|error| PARSER.refuse(&error))?;
    if !arguments.has("--producer-props") && !arguments.has("--producer.config") {
        return PARSER.refuse("Either --producer-props or --producer.config must be specified.");
    }
    if numbers.transaction_ms > 0 {
        return halt(
            "Transactions are not supported here yet: leave out --transaction-duration-ms",
        );
    }
    if numbers.record_count == 0 {
        return halt("java.lang.ArithmeticException: / by zero");
    }
    let payload = payload(&arguments, &numbers)?;
    let properties = properties(&arguments)?;
    let config = ProducerConfig::read(&properties).or_else(|error| halt(&error.with_class()))?;
    let test = Test {
        topic: arguments.text("--topic").unwrap_or_default().to_owned(),
        record_count: numbers.record_count,
        throughput: numbers.throughput,
        payload,
        prints_metrics: arguments.has("--print-metrics"),
    };
    let client_id = config.connection.client_id.clone();
    runtime()?.block_on(async {
        let producer = Producer::open(config).await.or_else(|error| {
            halt(&construction_failure("Failed to construct kafka producer", &error))
        })?;
        let statistics = measure(producer, &test).await?;
        statistics.print_total();
        if test.prints_metrics {
            print_metrics(&statistics, &client_id);
        }
        Ok(())
    })
}

struct Numbers {
    record_count: u64,
    record_size: Option<i32>,
    throughput: f64,
    transaction_ms: i64,
}

impl Numbers {
    fn read(arguments: &Arguments) -> Result<Numbers, String> {
        let record_count: Option<i64> = arguments.number("--num-records", "Long")?;
        let record_size: Option<i32> = arguments.number("--record-size", "Integer")?;
        Ok(Numbers {
            record_count: record_count.and_then(|count| count.try_into().ok()).unwrap_or(0),
            record_size,
            throughput: arguments.number("--throughput", "Double")?.unwrap_or(-1.0),
            transaction_ms: arguments.number("--transaction-duration-ms", "Long")?.unwrap_or(0),
        })
    }
}

fn payload(arguments: &Arguments, numbers: &Numbers) -> Result<Payload, Halt> {
    if let Some(size) = numbers.record_size {
        let refused = |_| halt(&format!("java.lang.NegativeArraySizeException: {size}"));
        return usize::try_from(size).map(Payload::Random).or_else(refused);
    }
    let Some(path) = arguments.text("--payload-file") else { return Ok(Payload::Monotonic) };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    say(&format!("Reading payloads from: {}", absolute.display()));
    let text =
        fs::read(path).map_or(String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
    if text.is_empty() {
        return halt(
            "java.lang.IllegalArgumentException: File does not exist or empty file provided.",
        );
    }
    let delimiter = match arguments.text("--payload-delimiter") {
        None | Some("\\n") => "\n",
        Some(delimiter) => delimiter,
    };
    let pattern = Regex::new(delimiter).or_else(|error| halt(&error.to_string()))?;
    let mut payloads: Vec<&str> = pattern.split(&text).collect();
    // Java's split drops empty parts at the end.
    while payloads.last().is_some_and(|last| last.is_empty()) {
        payloads.pop();
    }
    say(&format!("Number of messages read: {}", payloads.len()));
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Ok(Payload::File(payloads.into_iter().map(bytes).collect()))
}

fn properties(arguments: &Arguments) -> Result<Properties, Halt> {
    let mut properties = match arguments.text("--producer.config") {
        Some(path) => load(path).or_else(|error| halt(&error))?,
        None => Properties::new(),
    };
    for pair in arguments.texts("--producer-props").unwrap_or_default() {
        let parts: Vec<&str> = pair.trim_end_matches('=').split('=').collect();
        let [key, value] = parts.as_slice() else {
            return halt(&format!("java.lang.IllegalArgumentException: Invalid property: {pair}"));
        };
        properties.insert((*key).to_owned(), (*value).to_owned());
    }
    properties.entry("client.id".to_owned()).or_insert("perf-producer-client".to_owned());
    Ok(properties)
}

/// A record that is under way.
struct Sent {
    delivery: Delivery,
    at: Instant,
    size: usize,
}

/// Sends all records; a task beside it takes the results.
async fn measure(producer: Producer, test: &Test) -> Result<Statistics, Halt> {
    let (sent, results) = mpsc::channel(DELIVERIES_MAX);
    let counter = tokio::spawn(count(results, test.record_count));
    // The same records in every run.
    let mut random = StdRng::seed_from_u64(0);
    let mut record = ProducerRecord { topic: test.topic.clone(), ..ProducerRecord::default() };
    let begun = clock::now();
    for number in 0..test.record_count {
        let payload = test.payload.next(&mut random, number);
        let size = payload.len();
        record.value = Some(payload);
        let at = clock::now();
        match producer.send(&record).await {
            Ok(delivery) => {
                if sent.send(Sent { delivery, at, size }).await.is_err() {
                    break;
                }
            }
            Err(error) => complain(&error.with_class()),
        }
        if test.throughput > 0.0 {
            throttle(begun, number + 1, test.throughput).await;
        }
    }
    producer.flush().await;
    drop(sent);
    let counted = counter.await.or_else(|error| halt(&error.to_string()));
    producer.close().await;
    counted
}

/// Waits until so many records are due. Source: `ThroughputThrottler`.
async fn throttle(begun: Instant, count: u64, throughput: f64) {
    let due = begun + Duration::from_secs_f64(count as f64 / throughput);
    // Shorter pauses than a timer's tick would only add up to a lower rate.
    if due.saturating_duration_since(clock::now()) > Duration::from_millis(2) {
        sleep_until(due.into()).await;
    }
}

async fn count(mut results: mpsc::Receiver<Sent>, record_count: u64) -> Statistics {
    let mut statistics = Statistics::new(record_count, clock::now());
    while let Some(Sent { delivery, at, size }) = results.recv().await {
        let (result, ended) = delivery.timed_result().await;
        match result {
            Ok(_) => statistics.record(ended.saturating_duration_since(at), size, ended),
            Err(error) => {
                statistics.failed += 1;
                complain(&error.with_class());
            }
        }
    }
    statistics
}

impl Payload {
    fn next(&self, random: &mut StdRng, number: u64) -> Bytes {
        match self {
            Payload::Random(size) => {
                let mut bytes = vec![0; *size];
                random.fill_bytes(&mut bytes);
                for byte in &mut bytes {
                    // 26 letters from 256 values.
                    let letter = u16::from(*byte) * 26 / 256;
                    *byte = b'A' + u8::try_from(letter).unwrap_or(0);
                }
                bytes.into()
            }
            Payload::File(payloads) => payloads[random.random_range(0..payloads.len())].clone(),
            Payload::Monotonic => number.to_string().into(),
        }
    }
}

/// The counters that this producer keeps, in the form of Kafka's table.
fn print_metrics(statistics: &Statistics, client_id: &str) {
    let name = |metric: &str| format!("producer-metrics:{metric}:{{client-id={client_id}}}");
    let metrics = [
        (name("record-error-total"), statistics.failed as f64),
        (name("record-send-total"), statistics.count as f64),
        (name("request-latency-max"), statistics.latency_max_ms as f64),
    ];
    let width = metrics.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    say(&format!("\n{:width$}   Value", "Metric Name"));
    for (name, value) in metrics {
        say(&format!("{name:width$} : {value:.3}"));
    }
}
