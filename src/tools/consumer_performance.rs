//! `kafka-consumer-perf-test`: reads many records and measures. Source: `ConsumerPerformance`.

use std::time::Duration;

use client::{config::ConsumerConfig, consumer::Consumer, error::ClientError};
use common::{clock, properties::Properties};
use jiff::tz::TimeZone;
use rand::Rng;

use crate::{
    clients::{load, runtime},
    console::{Halt, halt, say},
    date_format::DateFormat,
    logging,
    options::{OptionSpec, Options, flag, parse_or_refuse, read, value},
};

const OPTIONS: &[OptionSpec] = &[
    value(
        "broker-list",
        "broker-list",
        "DEPRECATED: the former name of --bootstrap-server, which wins.",
    ),
    value(
        "bootstrap-server",
        "server to connect to",
        "REQUIRED: A broker of the cluster, as host:port; several with commas.",
    )
    .required_unless("broker-list"),
    value("topic", "topic", "REQUIRED: The topic to read."),
    value("group", "gid", "Group to join; a new one if not given."),
    value("fetch-size", "size", "Bytes of one partition that one answer holds.")
        .integer()
        .default("1048576"),
    flag(
        "from-latest",
        "Begin at the end where no offset is known yet, not with the first record.",
    ),
    value("socket-buffer-size", "size", "Receive buffer of the socket, in bytes.")
        .integer()
        .default("2097152"),
    value("threads", "count", "DEPRECATED: has no effect.").integer().default("10"),
    value("num-fetch-threads", "count", "DEPRECATED: has no effect.").integer().default("1"),
    value("consumer.config", "config file", "File with settings of the consumer."),
    flag("print-metrics", "Print the consumer's counters at the end."),
    flag("show-detailed-stats", "Print a line for each interval of --reporting-interval."),
    value("timeout", "milliseconds", "Longest time without a record, in milliseconds.")
        .long()
        .optional()
        .default("10000"),
    value("messages", "count", "REQUIRED: How many records to read.").long(),
    value("reporting-interval", "interval_ms", "Milliseconds between lines of progress.")
        .long()
        .default("5000"),
    value("date-format", "date format", "Form of times, as java.text.SimpleDateFormat has it.")
        .default("yyyy-MM-dd HH:mm:ss:SSS"),
    flag("hide-header", "Leave the line of heads out."),
];

const BYTES_PER_MB: f64 = 1024.0 * 1024.0;
/// Time of one poll.
const POLL: Duration = Duration::from_millis(100);

/// What is measured, and how it is shown.
struct Job {
    topic: String,
    message_count: i64,
    timeout_ms: i64,
    reporting_interval_ms: i64,
    date_format: DateFormat,
    is_detailed: bool,
}

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let options = parse_or_refuse(OPTIONS, words)?;
    if options.has("threads") || options.has("num-fetch-threads") {
        say(
            "WARNING: option [threads] and [num-fetch-threads] have been deprecated and will be ignored by the test",
        );
    }
    options.answer_help_or_version("This tool is used to verify the consumer performance.")?;
    options.require(&["topic", "messages"])?;
    let job = Job::read(&options)?;
    if !options.has("hide-header") {
        print_header(job.is_detailed);
    }
    let properties = consumer_properties(&options)?;
    let measured = runtime()?.block_on(measure(&properties, &job));
    let counts = measured.or_else(|error| halt(&format!("{error}\n{}", error.with_class())))?;
    if !job.is_detailed {
        say(&summary(&counts, &job.date_format));
    }
    if options.has("print-metrics") {
        print_counters(&counts);
    }
    Ok(())
}

impl Job {
    fn read(options: &Options) -> Result<Job, Halt> {
        let reporting_interval_ms = read(options.long("reporting-interval"))?.unwrap_or_default();
        if reporting_interval_ms <= 0 {
            return halt("Reporting interval must be greater than 0.");
        }
        let date_format = read(options.text("date-format"))?.unwrap_or_default();
        Ok(Job {
            topic: read(options.text("topic"))?.unwrap_or_default(),
            message_count: read(options.long("messages"))?.unwrap_or_default(),
            timeout_ms: read(options.long("timeout"))?.unwrap_or(10_000),
            reporting_interval_ms,
            date_format: DateFormat::new(&date_format, TimeZone::system())
                .or_else(|error| halt(&error))?,
            is_detailed: options.has("show-detailed-stats"),
        })
    }
}

fn consumer_properties(options: &Options) -> Result<Properties, Halt> {
    let mut properties = match read(options.text("consumer.config"))? {
        Some(path) => load(&path).or_else(|error| halt(&error))?,
        None => Properties::new(),
    };
    let list = if options.has("bootstrap-server") { "bootstrap-server" } else { "broker-list" };
    let group = match read(options.text("group"))? {
        Some(group) => group,
        None => format!("perf-consumer-{}", rand::rng().random_range(0..100_000)),
    };
    let reset = if options.has("from-latest") { "latest" } else { "earliest" };
    let number = |name: &str| -> Result<String, Halt> {
        Ok(read(options.integer(name))?.unwrap_or_default().to_string())
    };
    let settings = [
        ("bootstrap.servers", read(options.text(list))?.unwrap_or_default()),
        ("group.id", group),
        ("receive.buffer.bytes", number("socket-buffer-size")?),
        ("max.partition.fetch.bytes", number("fetch-size")?),
        ("auto.offset.reset", reset.to_owned()),
        ("check.crcs", "false".to_owned()),
    ];
    for (name, value) in settings {
        properties.insert(name.to_owned(), value);
    }
    properties.entry("client.id".to_owned()).or_insert("perf-consumer-client".to_owned());
    Ok(properties)
}

fn print_header(is_detailed: bool) {
    let first = if is_detailed { "time, threadId" } else { "start.time, end.time" };
    say(&format!(
        "{first}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    ));
}

/// What was read, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    begun_ms: i64,
    ended_ms: i64,
    /// Time without partitions.
    join_ms: i64,
    records: i64,
    bytes: u64,
}

/// The same since the last line of progress.
struct Window {
    since: Counts,
    begun_ms: i64,
    join_ms: i64,
}

async fn measure(properties: &Properties, job: &Job) -> Result<Counts, ClientError> {
    let mut consumer = Consumer::open(ConsumerConfig::read(properties)?).await?;
    let now = || clock::wall_clock().0;
    let mut counts = Counts { begun_ms: now(), ..Counts::default() };
    consumer.subscribe(vec![job.topic.clone()]);
    let mut window = Window { since: counts, begun_ms: counts.begun_ms, join_ms: 0 };
    let mut last_record_ms = counts.begun_ms;
    let mut joining_since = Some(counts.begun_ms);
    let mut time = counts.begun_ms;
    while counts.records < job.message_count && time - last_record_ms <= job.timeout_ms {
        let polled = consumer.poll(POLL).await;
        let records = match polled {
            Ok(records) => records,
            Err(error) => {
                consumer.close().await;
                return Err(error);
            }
        };
        time = now();
        joining_since = match (joining_since, consumer.assignment().is_empty()) {
            (Some(since), false) => {
                counts.join_ms += time - since;
                window.join_ms += time - since;
                None
            }
            (None, true) => Some(time),
            (since, _) => since,
        };
        if !records.is_empty() {
            last_record_ms = time;
        }
        for record in records {
            counts.records += 1;
            let size = |part: &Option<bytes::Bytes>| part.as_ref().map_or(0, |part| part.len());
            counts.bytes += u64::try_from(size(&record.key) + size(&record.value)).unwrap_or(0);
            if time - window.begun_ms >= job.reporting_interval_ms {
                if job.is_detailed {
                    say(&progress(&counts, &window, time, &job.date_format));
                }
                window = Window { since: counts, begun_ms: time, join_ms: 0 };
            }
        }
    }
    if counts.records < job.message_count {
        say(&format!(
            "WARNING: Exiting before consuming the expected number of messages: timeout ({} ms) exceeded. You can use the --timeout option to increase the timeout.",
            job.timeout_ms
        ));
    }
    counts.ended_ms = now();
    consumer.close().await;
    Ok(counts)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / BYTES_PER_MB
}

/// As Java's `%.4f`, which has its own words for what is no number.
fn four_places(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    format!("{number:.4}")
}

fn summary(counts: &Counts, format: &DateFormat) -> String {
    let elapsed = (counts.ended_ms - counts.begun_ms) as f64 / 1000.0;
    let fetch_ms = counts.ended_ms - counts.begun_ms - counts.join_ms;
    let fetching = fetch_ms as f64 / 1000.0;
    let (read, records) = (megabytes(counts.bytes), counts.records as f64);
    format!(
        "{}, {}, {read:.4}, {}, {}, {}, {}, {fetch_ms}, {}, {}",
        format.show(counts.begun_ms),
        format.show(counts.ended_ms),
        four_places(read / elapsed),
        counts.records,
        four_places(records / elapsed),
        counts.join_ms,
        four_places(read / fetching),
        four_places(records / fetching)
    )
}

fn progress(counts: &Counts, window: &Window, now: i64, format: &DateFormat) -> String {
    let elapsed_ms = now - window.begun_ms;
    let read = megabytes(counts.bytes - window.since.bytes);
    let records = (counts.records - window.since.records) as f64;
    let rate = |amount: f64, time_ms: i64| {
        if time_ms <= 0 { 0.0 } else { 1000.0 * amount / time_ms as f64 }
    };
    let fetch_ms = elapsed_ms - window.join_ms;
    format!(
        "{}, 0, {:.4}, {:.4}, {}, {:.4}, {}, {fetch_ms}, {:.4}, {:.4}",
        format.show(now),
        megabytes(counts.bytes),
        rate(read, elapsed_ms),
        counts.records,
        rate(records, elapsed_ms),
        window.join_ms,
        rate(read, fetch_ms),
        rate(records, fetch_ms)
    )
}

/// What there is of Kafka's table of metrics.
fn print_counters(counts: &Counts) {
    say("\nMetric Name                                                            Value");
    let line = |name: &str, value: u64| {
        let name =
            format!("consumer-fetch-manager-metrics:{name}:{{client-id=perf-consumer-client}}");
        say(&format!("{name:<70} : {value}.000"));
    };
    line("bytes-consumed-total", counts.bytes);
    line("records-consumed-total", u64::try_from(counts.records).unwrap_or(0));
}
