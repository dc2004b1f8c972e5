//! `kafka-console-producer`: sends each line of standard input as a record. Source: `ConsoleProducer`.

use std::io::{BufRead, IsTerminal, Write, stdin, stdout};

use client::{
    config::ProducerConfig,
    error::{ClientError, ErrorKind},
    producer::{Delivery, Producer, ProducerRecord},
};
use common::properties::Properties;
use tokio::sync::mpsc;

use crate::{
    clients::{construction_failure, load, runtime},
    console::{Halt, halt},
    get_offsets::check_servers,
    line_reader::LineReader,
    logging,
    options::{OptionSpec, Options, flag, key_values, parse_or_refuse, read, value},
};

const CALLBACK_CLASS: &str = "org.apache.kafka.clients.producer.internals.ErrorLoggingCallback";
const READER_CLASS: &str = "kafka.tools.ConsoleProducer$LineMessageReader";
/// Records whose result nobody has looked at yet.
const DELIVERIES_MAX: usize = 10_000;

const OPTIONS: &[OptionSpec] = &[
    value("topic", "topic", "REQUIRED: Topic that the records go to."),
    value("broker-list", "broker-list", "DEPRECATED: the former name of --bootstrap-server, which wins."),
    value("bootstrap-server", "server to connect to", "REQUIRED unless --broker-list (deprecated) is given: A broker of the cluster, as host:port; several with commas.").required_unless("broker-list"),
    flag("sync", "Send one record after the other, each after the one before was written."),
    value("compression-codec", "compression-codec", "One of 'none', 'gzip', 'snappy', 'lz4' and 'zstd'; 'gzip' when given without a value.").optional(),
    value("batch-size", "size", "Bytes of a batch; --max-partition-memory-bytes wins over it.").integer().default("16384"),
    value("message-send-max-retries", "", "How often a record is sent again after a failure (`retries`).").integer().default("3"),
    value("retry-backoff-ms", "", "Pause before a record is sent again (`retry.backoff.ms`).").long().default("100"),
    value("timeout", "timeout_ms", "How long records wait for others to fill their batch (`linger.ms`).").long().default("1000"),
    value("request-required-acks", "request required acks", "Who must have a record before it counts as written (`acks`).").default("-1"),
    value("request-timeout-ms", "request timeout ms", "How long to wait for an answer (`request.timeout.ms`).").integer().default("1500"),
    value("metadata-expiry-ms", "metadata expiration interval", "Age at which metadata is read again (`metadata.max.age.ms`).").long().default("300000"),
    value("max-block-ms", "max block on send", "How long sending may wait for metadata or memory (`max.block.ms`).").long().default("60000"),
    value("max-memory-bytes", "total memory in bytes", "Bytes that may wait to be sent (`buffer.memory`).").long().default("33554432"),
    value("max-partition-memory-bytes", "memory in bytes per partition", "Bytes of a batch (`batch.size`).").integer().default("16384"),
    value("line-reader", "reader_class", "Class that reads records from lines. Only the one that takes each line for a record is there.").default(READER_CLASS),
    value("socket-buffer-size", "size", "The socket's send buffer (`send.buffer.bytes`).").integer().default("102400"),
    value("property", "prop", "Setting of the line reader, as key=value: parse.key=false, parse.headers=false, ignore.error=false, key.separator=\\t, headers.delimiter=\\t, headers.separator=, headers.key.separator=: and null.marker (none). With both, a line is \"h1:v1,h2:v2<tab>key<tab>value\"."),
    value("reader-config", "config file", "File with settings of the line reader; --property wins over it."),
    value("producer-property", "producer_prop", "Setting of the producer, as key=value."),
    value("producer.config", "config file", "File with settings of the producer; --producer-property wins over it."),
];

/// Options that stand for a setting, which they win over where they are given. Source: `ConsoleProducer.producerProps`.
const MERGED: &[(&str, &str)] = &[
    ("linger.ms", "timeout"),
    ("acks", "request-required-acks"),
    ("request.timeout.ms", "request-timeout-ms"),
    ("retries", "message-send-max-retries"),
    ("retry.backoff.ms", "retry-backoff-ms"),
    ("send.buffer.bytes", "socket-buffer-size"),
    ("buffer.memory", "max-memory-bytes"),
    ("batch.size", "batch-size"),
    ("batch.size", "max-partition-memory-bytes"),
    ("metadata.max.age.ms", "metadata-expiry-ms"),
    ("max.block.ms", "max-block-ms"),
];

/// Runs the command.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let options = parse_or_refuse(OPTIONS, words)?;
    options.answer_help_or_version(
        "This tool helps to read data from standard input and publish it to Kafka.",
    )?;
    options.require(&["topic"])?;
    let topic = read(options.text("topic"))?.unwrap_or_default();
    let properties = producer_properties(&options)?;
    let servers = properties.get("bootstrap.servers").cloned().unwrap_or_default();
    check_servers(&options, &servers)?;
    let config = ProducerConfig::read(&properties).or_else(|error| halt(&java_trace(&error)))?;
    let reader_properties = reader_properties(&options)?;
    let is_sync = options.has("sync");
    check_reader_class(&options)?;
    runtime()?.block_on(async {
        let producer = Producer::open(config).await.or_else(|error| {
            halt(&construction_failure("Failed to construct kafka producer", &error))
        })?;
        let sent = match LineReader::new(topic, &reader_properties) {
            Ok(reader) => send_lines(&producer, reader, is_sync).await,
            Err(error) => Err(error),
        };
        producer.close().await;
        sent.or_else(|error| halt(&format!("org.apache.kafka.common.KafkaException: {error}")))
    })
}

/// As `printStackTrace` shows a client's error.
fn java_trace(error: &ClientError) -> String {
    match error.kind {
        ErrorKind::Config if error.to_string().contains("bootstrap") => {
            construction_failure("Failed to construct kafka producer", error)
        }
        _ => error.with_class(),
    }
}

fn check_reader_class(options: &Options) -> Result<(), Halt> {
    let class = read(options.text("line-reader"))?.unwrap_or_default();
    match class.as_str() {
        READER_CLASS | "org.apache.kafka.tools.LineMessageReader" => Ok(()),
        _ => halt(&format!("java.lang.ClassNotFoundException: {class}")),
    }
}

fn producer_properties(options: &Options) -> Result<Properties, Halt> {
    let mut properties = match read(options.text("producer.config"))? {
        Some(path) => load(&path).or_else(|error| halt(&error))?,
        None => Properties::new(),
    };
    properties.extend(key_values(&options.texts("producer-property")));
    let list = if options.has("bootstrap-server") { "bootstrap-server" } else { "broker-list" };
    let servers = read(options.text(list))?.unwrap_or_default();
    properties.insert("bootstrap.servers".to_owned(), servers);
    let codec = match read(options.text("compression-codec"))? {
        Some(codec) if !codec.is_empty() => codec,
        _ if options.has("compression-codec") => "gzip".to_owned(),
        _ => "none".to_owned(),
    };
    properties.insert("compression.type".to_owned(), codec);
    properties.entry("client.id".to_owned()).or_insert("console-producer".to_owned());
    for (name, option) in MERGED {
        merge(&mut properties, name, options, option)?;
    }
    Ok(properties)
}

/// An option that was given wins over the property, the property over the option's default.
/// Source: `CommandLineUtils.maybeMergeOptions`.
pub(crate) fn merge(
    properties: &mut Properties,
    name: &str,
    options: &Options,
    option: &str,
) -> Result<(), Halt> {
    if (options.has(option) || !properties.contains_key(name))
        && let Some(value) = read(options.text(option))?
    {
        read(options.check_number(option))?;
        properties.insert(name.to_owned(), value);
    }
    Ok(())
}

fn reader_properties(options: &Options) -> Result<Properties, Halt> {
    let mut properties = match read(options.text("reader-config"))? {
        Some(path) => load(&path).or_else(|error| halt(&error))?,
        None => Properties::new(),
    };
    properties.extend(key_values(&options.texts("property")));
    Ok(properties)
}

/// Sends line after line. The error is that of a line, or with `--sync` that of a record.
async fn send_lines(
    producer: &Producer,
    mut reader: LineReader,
    is_sync: bool,
) -> Result<(), String> {
    let (deliveries, results) = mpsc::channel(DELIVERIES_MAX);
    let reporter = tokio::spawn(report(results));
    let shows_prompt = stdin().is_terminal() && stdout().is_terminal();
    let mut outcome = Ok(());
    while let Some(line) = next_line(shows_prompt) {
        let record = match reader.record(&line) {
            Ok(record) => record,
            Err(error) => {
                outcome = Err(error);
                break;
            }
        };
        let summary = Summary::of(&record);
        let sent = producer.send(&record).await;
        if is_sync {
            let written = match sent {
                Ok(delivery) => delivery.result().await,
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                outcome = Err(error.with_class());
                break;
            }
        } else if deliveries.send((summary, sent)).await.is_err() {
            break;
        }
    }
    producer.flush().await;
    drop(deliveries);
    reporter.await.map_err(|error| error.to_string())?;
    outcome
}

/// The next line of standard input without its end. Blocks: nothing else is to be done meanwhile but sending, which
/// has threads of its own.
fn next_line(shows_prompt: bool) -> Option<String> {
    if shows_prompt {
        // A prompt that cannot be shown is not missed.
        let _ = write!(stdout(), ">").and_then(|()| stdout().flush());
    }
    tokio::task::block_in_place(|| read_line(&mut stdin().lock()))
}

/// Reads up to `\n`, `\r\n` or `\r`, as Java does.
fn read_line(input: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let mut is_any = false;
    loop {
        let buffer = input.fill_buf().ok()?;
        if buffer.is_empty() {
            break;
        }
        is_any = true;
        let end = buffer.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(end) = end else {
            line.extend_from_slice(buffer);
            let length = buffer.len();
            input.consume(length);
            continue;
        };
        line.extend_from_slice(&buffer[..end]);
        let is_return = buffer[end] == b'\r';
        input.consume(end + 1);
        if is_return && input.fill_buf().ok()?.first() == Some(&b'\n') {
            input.consume(1);
        }
        break;
    }
    is_any.then(|| String::from_utf8_lossy(&line).into_owned())
}

/// What the log says of a record that failed. Source: `ErrorLoggingCallback`.
struct Summary {
    topic: String,
    key: String,
    value: String,
}

impl Summary {
    fn of(record: &ProducerRecord) -> Summary {
        let size = |bytes: &Option<bytes::Bytes>| match bytes {
            Some(bytes) => format!("{} bytes", bytes.len()),
            None => "null".to_owned(),
        };
        Summary { topic: record.topic.clone(), key: size(&record.key), value: size(&record.value) }
    }
}

/// Logs the failures, in the order of the records.
async fn report(mut results: mpsc::Receiver<(Summary, Result<Delivery, ClientError>)>) {
    while let Some((summary, sent)) = results.recv().await {
        let written = match sent {
            Ok(delivery) => delivery.result().await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            let Summary { topic, key, value } = summary;
            let text = format!(
                "Error when sending message to topic {topic} with key: {key}, value: {value} with error:"
            );
            logging::error_with(CALLBACK_CLASS, &text, &error.with_class());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read_line;

    #[test]
    fn lines_end_as_java_ends_them() {
        let mut input: &[u8] = b"a\nb\r\nc\rd\n\n\xffe";
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut input) {
            lines.push(line);
        }
        assert_eq!(lines, ["a", "b", "c", "d", "", "\u{fffd}e"]);
        assert_eq!(read_line(&mut &b""[..]), None);
    }
}
