//! The configurations that Java's clients know, and how their values are checked.

use crate::error::ClientError;

/// How a value is read and what it may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// 32 bits, at least this.
    Int(i32),
    /// 64 bits, at least this.
    Long(i64),
    Boolean,
    /// One of these; checked as written.
    OneOf(&'static [&'static str]),
    Text,
}

/// A configuration that Java's clients know.
pub(super) struct Definition {
    pub(super) name: &'static str,
    kind: Kind,
    /// `a`, `p`, `c`: the roles that know it.
    pub(super) roles: &'static str,
    /// Whether setting it changes anything here, or it cannot matter outside a JVM.
    pub(super) takes_effect: bool,
}

const fn key(
    name: &'static str,
    kind: Kind,
    roles: &'static str,
    takes_effect: bool,
) -> Definition {
    Definition { name, kind, roles, takes_effect }
}

const COMPRESSION_TYPES: &[&str] = &["none", "gzip", "snappy", "lz4", "zstd"];

/// Sources: `CommonClientConfigs`, `AdminClientConfig`, `ProducerConfig`, `ConsumerConfig`.
pub(super) const DEFINITIONS: &[Definition] = &[
    key("bootstrap.servers", Kind::Text, "apc", true),
    key("client.id", Kind::Text, "apc", true),
    key("request.timeout.ms", Kind::Int(0), "apc", true),
    key("default.api.timeout.ms", Kind::Int(0), "ac", true),
    key("reconnect.backoff.ms", Kind::Long(0), "apc", true),
    key("reconnect.backoff.max.ms", Kind::Long(0), "apc", true),
    key("retry.backoff.ms", Kind::Long(0), "apc", true),
    key("retry.backoff.max.ms", Kind::Long(0), "apc", true),
    key("retries", Kind::Int(0), "ap", true),
    key("metadata.max.age.ms", Kind::Long(0), "apc", true),
    key("metadata.max.idle.ms", Kind::Long(5000), "p", false),
    key("socket.connection.setup.timeout.ms", Kind::Long(0), "apc", true),
    key("socket.connection.setup.timeout.max.ms", Kind::Long(0), "apc", false),
    key("connections.max.idle.ms", Kind::Long(-1), "apc", false),
    key("send.buffer.bytes", Kind::Int(-1), "apc", true),
    key("receive.buffer.bytes", Kind::Int(-1), "apc", true),
    key("client.dns.lookup", Kind::Text, "apc", false),
    key("client.rack", Kind::Text, "c", false),
    key("metadata.recovery.strategy", Kind::Text, "apc", false),
    key("security.protocol", Kind::Text, "apc", true),
    key("acks", Kind::OneOf(&["all", "-1", "0", "1"]), "p", true),
    key("linger.ms", Kind::Long(0), "p", true),
    key("batch.size", Kind::Int(0), "p", true),
    key("buffer.memory", Kind::Long(0), "p", true),
    key("max.block.ms", Kind::Long(0), "p", true),
    key("max.request.size", Kind::Int(0), "p", true),
    key("delivery.timeout.ms", Kind::Int(0), "p", true),
    key("compression.type", Kind::OneOf(COMPRESSION_TYPES), "p", true),
    key("compression.gzip.level", Kind::Int(-1), "p", true),
    key("compression.lz4.level", Kind::Int(1), "p", true),
    key("compression.zstd.level", Kind::Int(-131_072), "p", true),
    key("enable.idempotence", Kind::Boolean, "p", true),
    key("max.in.flight.requests.per.connection", Kind::Int(1), "p", true),
    key("partitioner.ignore.keys", Kind::Boolean, "p", true),
    key("partitioner.class", Kind::Text, "p", false),
    key("partitioner.adaptive.partitioning.enable", Kind::Boolean, "p", false),
    key("partitioner.availability.timeout.ms", Kind::Long(0), "p", false),
    key("transactional.id", Kind::Text, "p", false),
    key("transaction.timeout.ms", Kind::Int(-1), "p", false),
    key("fetch.min.bytes", Kind::Int(0), "c", true),
    key("fetch.max.bytes", Kind::Int(0), "c", true),
    key("fetch.max.wait.ms", Kind::Int(0), "c", true),
    key("max.partition.fetch.bytes", Kind::Int(0), "c", true),
    key("max.poll.records", Kind::Int(1), "c", true),
    key("auto.offset.reset", Kind::OneOf(&["latest", "earliest", "none"]), "c", true),
    key("isolation.level", Kind::OneOf(&["read_committed", "read_uncommitted"]), "c", true),
    key("check.crcs", Kind::Boolean, "c", true),
    key("allow.auto.create.topics", Kind::Boolean, "c", true),
    key("exclude.internal.topics", Kind::Boolean, "c", true),
    key("enable.auto.commit", Kind::Boolean, "c", true),
    key("auto.commit.interval.ms", Kind::Int(0), "c", true),
    key("group.id", Kind::Text, "c", true),
    key("group.instance.id", Kind::Text, "c", true),
    key("group.protocol", Kind::Text, "c", false),
    key("group.remote.assignor", Kind::Text, "c", false),
    key("session.timeout.ms", Kind::Int(0), "c", true),
    key("heartbeat.interval.ms", Kind::Int(0), "c", true),
    key("max.poll.interval.ms", Kind::Int(1), "c", true),
    key("partition.assignment.strategy", Kind::Text, "c", true),
    // What follows concerns the JVM, its metrics or its serializers alone, so leaving it out loses nothing.
    key("key.serializer", Kind::Text, "p", true),
    key("value.serializer", Kind::Text, "p", true),
    key("key.deserializer", Kind::Text, "c", true),
    key("value.deserializer", Kind::Text, "c", true),
    key("metrics.sample.window.ms", Kind::Long(0), "apc", true),
    key("metrics.num.samples", Kind::Int(1), "apc", true),
    key("metrics.recording.level", Kind::Text, "apc", true),
    key("metric.reporters", Kind::Text, "apc", true),
    key("auto.include.jmx.reporter", Kind::Boolean, "apc", true),
    key("enable.metrics.push", Kind::Boolean, "apc", true),
    key("interceptor.classes", Kind::Text, "pc", false),
];

/// Checks a value as Java's `ConfigDef` does.
pub(super) fn check_value(definition: &Definition, value: &str) -> Result<(), ClientError> {
    let refuse = |reason: String| {
        let name = definition.name;
        Err(ClientError::config(format!(
            "Invalid value {value} for configuration {name}: {reason}"
        )))
    };
    let trimmed = value.trim();
    match definition.kind {
        Kind::Int(least) => match trimmed.parse::<i32>() {
            Err(_) => refuse("Not a number of type INT".to_owned()),
            Ok(number) if number < least => refuse(format!("Value must be at least {least}")),
            Ok(_) => Ok(()),
        },
        Kind::Long(least) => match trimmed.parse::<i64>() {
            Err(_) => refuse("Not a number of type LONG".to_owned()),
            Ok(number) if number < least => refuse(format!("Value must be at least {least}")),
            Ok(_) => Ok(()),
        },
        Kind::Boolean => {
            if trimmed.eq_ignore_ascii_case("true") || trimmed.eq_ignore_ascii_case("false") {
                return Ok(());
            }
            refuse("Expected value to be either true or false".to_owned())
        }
        Kind::OneOf(choices) if !choices.contains(&trimmed) => {
            refuse(format!("String must be one of: {}", choices.join(", ")))
        }
        Kind::OneOf(_) | Kind::Text => Ok(()),
    }
}
