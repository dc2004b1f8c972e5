//! The configurations of the Java clients: names, defaults, checks, and which of them take effect here.

use std::time::Duration;

use common::properties::Properties;

use crate::{
    error::{ClientError, ErrorKind},
    group::{GroupConfig, assignor::Assignor},
};

mod definitions;

use self::definitions::{DEFINITIONS, check_value};

/// Which client a configuration is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Administration.
    Admin,
    /// Writes records.
    Producer,
    /// Reads records.
    Consumer,
}

impl Role {
    fn letter(self) -> char {
        match self {
            Role::Admin => 'a',
            Role::Producer => 'p',
            Role::Consumer => 'c',
        }
    }

    /// Java's class of the configuration, which is the logger's name.
    fn log_target(self) -> &'static str {
        match self {
            Role::Admin => "org.apache.kafka.clients.admin.AdminClientConfig",
            Role::Producer => "org.apache.kafka.clients.producer.ProducerConfig",
            Role::Consumer => "org.apache.kafka.clients.consumer.ConsumerConfig",
        }
    }
}

/// Checks every value as Java's `ConfigDef` does, and logs what is unknown or without effect.
pub fn check(properties: &Properties, role: Role) -> Result<(), ClientError> {
    let mut unknown = Vec::new();
    for (name, value) in properties {
        let known = DEFINITIONS
            .iter()
            .find(|definition| definition.name == name && definition.roles.contains(role.letter()));
        let Some(definition) = known else {
            // Security settings are known to Java; they are refused as a whole through `security.protocol`.
            if !name.starts_with("ssl.") && !name.starts_with("sasl.") {
                unknown.push(name.as_str());
            }
            continue;
        };
        check_value(definition, value)?;
        if !definition.takes_effect {
            log(role, &format!("The configuration '{name}' has no effect here yet."), true);
        }
    }
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        let text = format!("These configurations '[{names}]' were supplied but are not used yet.");
        log(role, &text, false);
    }
    Ok(())
}

/// Logs under the name of Java's class; tracing wants each target as a literal.
fn log(role: Role, text: &str, is_warning: bool) {
    let class = role.log_target();
    if is_warning {
        tracing::warn!(class, "{text}");
    } else {
        tracing::info!(class, "{text}");
    }
}

/// Values that passed `check`, read with their defaults.
struct Values<'a>(&'a Properties);

impl Values<'_> {
    fn text(&self, name: &str, default: &str) -> String {
        self.0.get(name).map_or_else(|| default.to_owned(), |value| value.trim().to_owned())
    }

    fn number(&self, name: &str, default: i64) -> i64 {
        self.0.get(name).and_then(|value| value.trim().parse().ok()).unwrap_or(default)
    }

    fn size(&self, name: &str, default: usize) -> usize {
        self.0.get(name).and_then(|value| value.trim().parse().ok()).unwrap_or(default)
    }

    fn int(&self, name: &str, default: i32) -> i32 {
        self.0.get(name).and_then(|value| value.trim().parse().ok()).unwrap_or(default)
    }

    fn boolean(&self, name: &str, default: bool) -> bool {
        self.0.get(name).map_or(default, |value| value.trim().eq_ignore_ascii_case("true"))
    }

    fn milliseconds(&self, name: &str, default: u64) -> Duration {
        let default = i64::try_from(default).unwrap_or(i64::MAX);
        Duration::from_millis(u64::try_from(self.number(name, default)).unwrap_or(0))
    }
}

/// What every client needs.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// `host:port` as written, in order.
    pub bootstrap_servers: Vec<String>,
    /// Name in request headers.
    pub client_id: String,
    /// Begins log lines as Java's do, such as `[Producer clientId=x] `.
    pub log_prefix: String,
    /// Longest wait for one answer.
    pub request_timeout: Duration,
    /// Longest time of a call with its retries.
    pub default_api_timeout: Duration,
    /// First pause after a failed connection; doubles.
    pub reconnect_backoff: Duration,
    /// Longest pause after failed connections.
    pub reconnect_backoff_max: Duration,
    /// First pause before a retry; doubles.
    pub retry_backoff: Duration,
    /// Longest pause before a retry.
    pub retry_backoff_max: Duration,
    /// Age at which metadata is read again.
    pub metadata_max_age: Duration,
    /// Longest time of a TCP connect.
    pub setup_timeout: Duration,
    /// Socket's send buffer; none leaves it to the system.
    pub send_buffer_bytes: Option<u32>,
    /// Socket's receive buffer; none leaves it to the system.
    pub receive_buffer_bytes: Option<u32>,
}

/// Settings of a producer.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// The common part.
    pub connection: ConnectionConfig,
    /// -1 (all), 0 or 1.
    pub acks: i16,
    /// Longest time a batch waits for more records.
    pub linger: Duration,
    /// Size at which a batch is sent, in bytes before compression.
    pub batch_size: usize,
    /// Bytes that may wait to be sent.
    pub buffer_memory: usize,
    /// Longest wait of `send` for metadata or memory.
    pub max_block: Duration,
    /// Largest request and record, in bytes.
    pub request_bytes_max: usize,
    /// Longest time from `send` to its result.
    pub delivery_timeout: Duration,
    /// Retries of a batch.
    pub retries: i32,
    /// Codec's name, as in the table above.
    pub compression_type: String,
    /// Level for the codec; none is the codec's default.
    pub compression_level: Option<i32>,
    /// Whether sequences guard against duplicates.
    pub idempotence: bool,
    /// Produce requests under way per broker.
    pub in_flight_max: usize,
    /// Whether keys do not choose the partition.
    pub ignore_keys: bool,
}

/// Where to begin when there is no valid offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    /// The first offset there is.
    Earliest,
    /// The end.
    Latest,
    /// Fail.
    None,
}

/// Settings of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// The common part.
    pub connection: ConnectionConfig,
    /// Bytes a broker should gather before it answers.
    pub fetch_bytes_min: i32,
    /// Bytes of one answer.
    pub fetch_bytes_max: i32,
    /// Bytes per partition of one answer.
    pub partition_fetch_bytes_max: i32,
    /// Longest wait of the broker for `fetch_bytes_min`.
    pub fetch_wait_max: Duration,
    /// Records `poll` gives at most.
    pub poll_records_max: usize,
    /// What to do without a valid offset.
    pub offset_reset: OffsetReset,
    /// Whether records of open and aborted transactions are left out.
    pub read_committed: bool,
    /// Whether checksums are verified.
    pub check_crcs: bool,
    /// Whether asking for a topic may create it.
    pub allow_auto_create_topics: bool,
    /// Whether patterns leave internal topics out.
    pub exclude_internal_topics: bool,
    /// The group; none for a consumer on its own.
    pub group: Option<GroupConfig>,
}

impl ConnectionConfig {
    fn read(properties: &Properties, role: Role) -> Result<ConnectionConfig, ClientError> {
        check(properties, role)?;
        let values = Values(properties);
        let protocol = values.text("security.protocol", "PLAINTEXT");
        if !protocol.eq_ignore_ascii_case("PLAINTEXT") {
            return Err(ClientError::config(format!(
                "Invalid value {protocol} for configuration security.protocol: only PLAINTEXT is supported here yet"
            )));
        }
        let client_id = match values.text("client.id", "") {
            given if given.is_empty() => default_client_id(role, &values),
            given => given,
        };
        let log_prefix = log_prefix(role, &client_id, &values);
        let buffer = |name: &str, default: i32| u32::try_from(values.int(name, default)).ok();
        Ok(ConnectionConfig {
            bootstrap_servers: bootstrap_servers(&values.text("bootstrap.servers", ""))?,
            client_id,
            log_prefix,
            request_timeout: values.milliseconds("request.timeout.ms", 30_000),
            default_api_timeout: values.milliseconds("default.api.timeout.ms", 60_000),
            reconnect_backoff: values.milliseconds("reconnect.backoff.ms", 50),
            reconnect_backoff_max: values.milliseconds("reconnect.backoff.max.ms", 1000),
            retry_backoff: values.milliseconds("retry.backoff.ms", 100),
            retry_backoff_max: values.milliseconds("retry.backoff.max.ms", 1000),
            metadata_max_age: values.milliseconds("metadata.max.age.ms", 300_000),
            setup_timeout: values.milliseconds("socket.connection.setup.timeout.ms", 10_000),
            send_buffer_bytes: buffer("send.buffer.bytes", 131_072),
            receive_buffer_bytes: buffer("receive.buffer.bytes", 65_536),
        })
    }

    /// Settings of an admin client.
    pub fn admin(properties: &Properties) -> Result<ConnectionConfig, ClientError> {
        ConnectionConfig::read(properties, Role::Admin)
    }
}

impl ProducerConfig {
    /// Reads and checks the properties. Source: `ProducerConfig.postProcessAndValidateIdempotenceConfigs`.
    pub fn read(properties: &Properties) -> Result<ProducerConfig, ClientError> {
        let connection = ConnectionConfig::read(properties, Role::Producer)?;
        let values = Values(properties);
        let acks = match values.text("acks", "all").as_str() {
            "0" => 0,
            "1" => 1,
            _ => -1,
        };
        let retries = values.int("retries", i32::MAX);
        let in_flight_max = values.size("max.in.flight.requests.per.connection", 5);
        let idempotence = idempotence(properties, retries, acks, in_flight_max)?;
        let linger = values.milliseconds("linger.ms", 0);
        let compression_type = values.text("compression.type", "none");
        let level = format!("compression.{compression_type}.level");
        Ok(ProducerConfig {
            acks,
            linger,
            batch_size: values.size("batch.size", 16_384),
            buffer_memory: values.size("buffer.memory", 32 << 20),
            max_block: values.milliseconds("max.block.ms", 60_000),
            request_bytes_max: values.size("max.request.size", 1 << 20),
            delivery_timeout: delivery_timeout(&values, &connection, linger)?,
            retries,
            compression_level: properties.get(&level).and_then(|level| level.trim().parse().ok()),
            compression_type,
            idempotence,
            in_flight_max,
            ignore_keys: values.boolean("partitioner.ignore.keys", false),
            connection,
        })
    }
}

/// At least `linger.ms` and `request.timeout.ms` together. Source: `KafkaProducer.configureDeliveryTimeout`.
fn delivery_timeout(
    values: &Values<'_>,
    connection: &ConnectionConfig,
    linger: Duration,
) -> Result<Duration, ClientError> {
    let timeout = values.milliseconds("delivery.timeout.ms", 120_000);
    let least = linger.saturating_add(connection.request_timeout);
    if timeout >= least {
        return Ok(timeout);
    }
    if values.0.contains_key("delivery.timeout.ms") {
        return Err(ClientError::config(
            "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms",
        ));
    }
    Ok(least)
}

/// On by default; off where another setting rules it out, an error where both were set.
fn idempotence(
    properties: &Properties,
    retries: i32,
    acks: i16,
    in_flight_max: usize,
) -> Result<bool, ClientError> {
    let wanted = properties.get("enable.idempotence");
    if wanted.is_some_and(|value| value.trim().eq_ignore_ascii_case("false")) {
        return Ok(false);
    }
    let obstacle = if retries == 0 {
        "Must set retries to non-zero when using the idempotent producer."
    } else if acks != -1 {
        "Must set acks to all in order to use the idempotent producer. Otherwise we cannot guarantee idempotence."
    } else if in_flight_max > 5 {
        "Must set max.in.flight.requests.per.connection to at most 5 to use the idempotent producer."
    } else {
        return Ok(true);
    };
    if wanted.is_some() {
        return Err(ClientError::config(obstacle));
    }
    Ok(false)
}

impl ConsumerConfig {
    /// Reads and checks the properties.
    pub fn read(properties: &Properties) -> Result<ConsumerConfig, ClientError> {
        let connection = ConnectionConfig::read(properties, Role::Consumer)?;
        let values = Values(properties);
        Ok(ConsumerConfig {
            connection,
            group: group(&values)?,
            fetch_bytes_min: values.int("fetch.min.bytes", 1),
            fetch_bytes_max: values.int("fetch.max.bytes", 50 << 20),
            partition_fetch_bytes_max: values.int("max.partition.fetch.bytes", 1 << 20),
            fetch_wait_max: values.milliseconds("fetch.max.wait.ms", 500),
            poll_records_max: values.size("max.poll.records", 500),
            offset_reset: match values.text("auto.offset.reset", "latest").as_str() {
                "earliest" => OffsetReset::Earliest,
                "none" => OffsetReset::None,
                _ => OffsetReset::Latest,
            },
            read_committed: values.text("isolation.level", "") == "read_committed",
            check_crcs: values.boolean("check.crcs", true),
            allow_auto_create_topics: values.boolean("allow.auto.create.topics", true),
            exclude_internal_topics: values.boolean("exclude.internal.topics", true),
        })
    }
}

/// The group's settings, where there is a `group.id`.
fn group(values: &Values<'_>) -> Result<Option<GroupConfig>, ClientError> {
    let id = values.text("group.id", "");
    if id.is_empty() {
        return Ok(None);
    }
    let session_timeout = values.milliseconds("session.timeout.ms", 45_000);
    let heartbeat_interval = values.milliseconds("heartbeat.interval.ms", 3000);
    if heartbeat_interval >= session_timeout {
        return Err(ClientError::new(
            ErrorKind::IllegalArgument,
            "Heartbeat must be set lower than the session timeout",
        ));
    }
    let commits = values.boolean("enable.auto.commit", true);
    let instance_id = values.text("group.instance.id", "");
    Ok(Some(GroupConfig {
        id,
        instance_id: (!instance_id.is_empty()).then_some(instance_id),
        session_timeout,
        heartbeat_interval,
        poll_interval_max: values.milliseconds("max.poll.interval.ms", 300_000),
        assignors: assignors(&values.text("partition.assignment.strategy", "range"))?,
        auto_commit_interval: commits.then(|| values.milliseconds("auto.commit.interval.ms", 5000)),
    }))
}

/// Those of the list that are here; at least one must be.
fn assignors(list: &str) -> Result<Vec<Assignor>, ClientError> {
    let names = list.split(',').map(str::trim);
    let assignors: Vec<Assignor> = names.filter_map(Assignor::named).collect();
    if assignors.is_empty() {
        return Err(ClientError::config(format!(
            "Invalid value {list} for configuration partition.assignment.strategy: only RangeAssignor and RoundRobinAssignor are supported here yet"
        )));
    }
    Ok(assignors)
}

/// Source: `ConsumerConfig.maybeOverrideClientId`; Java numbers its clients.
fn default_client_id(role: Role, values: &Values<'_>) -> String {
    match role {
        Role::Admin => "adminclient-1".to_owned(),
        Role::Producer => "producer-1".to_owned(),
        Role::Consumer => format!(
            "consumer-{}-{}",
            values.text("group.id", "null"),
            values.text("group.instance.id", "1")
        ),
    }
}

fn log_prefix(role: Role, client_id: &str, values: &Values<'_>) -> String {
    match role {
        Role::Admin => format!("[AdminClient clientId={client_id}] "),
        Role::Producer => format!("[Producer clientId={client_id}] "),
        Role::Consumer => {
            let group = values.text("group.id", "null");
            let instance = match values.text("group.instance.id", "") {
                name if name.is_empty() => String::new(),
                name => format!("instanceId={name}, "),
            };
            format!("[Consumer {instance}clientId={client_id}, groupId={group}] ")
        }
    }
}

/// Splits and checks the list. Source: `ClientUtils.parseAndValidateAddresses`.
fn bootstrap_servers(list: &str) -> Result<Vec<String>, ClientError> {
    let mut servers = Vec::new();
    for server in list.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        if split_host_port(server).is_none() {
            return Err(ClientError::config(format!("Invalid url in bootstrap.servers: {server}")));
        }
        servers.push(server.to_owned());
    }
    if servers.is_empty() {
        return Err(ClientError::config("No resolvable bootstrap urls given in bootstrap.servers"));
    }
    Ok(servers)
}

/// Host and port of `host:port`, `[::1]:port` or `PROTOCOL://host:port`. Source: `Utils.getHost`, `Utils.getPort`.
pub fn split_host_port(address: &str) -> Option<(&str, u16)> {
    let address = address.rsplit_once("://").map_or(address, |(_, rest)| rest);
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_legal)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::{ConsumerConfig, ProducerConfig, split_host_port};
    use common::properties::{Properties, parse};

    fn with_server(text: &str) -> Properties {
        parse(format!("bootstrap.servers=localhost:9092\n{text}").as_bytes())
    }

    #[test]
    fn defaults_are_those_of_the_java_client() {
        let producer = ProducerConfig::read(&with_server("")).unwrap();
        assert!(producer.idempotence);
        assert_eq!((producer.acks, producer.batch_size, producer.in_flight_max), (-1, 16_384, 5));
        let consumer = ConsumerConfig::read(&with_server("group.id=g")).unwrap();
        assert_eq!(consumer.connection.log_prefix, "[Consumer clientId=consumer-g-1, groupId=g] ");
    }

    #[test]
    fn bad_values_are_told_in_javas_words() {
        let error = |text: &str| ProducerConfig::read(&with_server(text)).unwrap_err().to_string();
        assert_eq!(
            error("compression.type=brotli"),
            "Invalid value brotli for configuration compression.type: String must be one of: none, gzip, snappy, lz4, zstd"
        );
        assert_eq!(
            error("retries=x"),
            "Invalid value x for configuration retries: Not a number of type INT"
        );
        assert_eq!(
            error("linger.ms=-1"),
            "Invalid value -1 for configuration linger.ms: Value must be at least 0"
        );
        assert!(error("delivery.timeout.ms=1").starts_with("delivery.timeout.ms should be equal"));
        assert!(error("acks=1\nenable.idempotence=true").starts_with("Must set acks to all"));
        assert!(!ProducerConfig::read(&with_server("acks=1")).unwrap().idempotence);
    }

    #[test]
    fn addresses_are_split_as_java_does() {
        assert_eq!(split_host_port("a:1"), Some(("a", 1)));
        assert_eq!(split_host_port("[::1]:9092"), Some(("::1", 9092)));
        assert_eq!(split_host_port("PLAINTEXT://a.b:2"), Some(("a.b", 2)));
        for bad in ["nonsense", "a:", ":1", "a:70000", "a b:1"] {
            assert_eq!(split_host_port(bad), None, "{bad}");
        }
        let error = ProducerConfig::read(&parse(b"bootstrap.servers=nonsense")).unwrap_err();
        assert_eq!(error.to_string(), "Invalid url in bootstrap.servers: nonsense");
    }
}
