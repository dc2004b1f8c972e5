//! Checks over several keys, in Kafka's order and words. Source: `KafkaConfig.validateValues`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::ibp::MetadataVersion;
use super::listener::{self, Listener, Ports, ProtocolMap, csv, normalised};
use super::value::{ConfigError, Value};
use super::values::Values;
use crate::security_protocol::SecurityProtocol;

/// What the checks worked out on the way.
pub(super) struct Checked {
    pub(super) listeners: Vec<Listener>,
    pub(super) advertised_listeners: Vec<Listener>,
    pub(super) inter_broker_listener_name: String,
    pub(super) inter_broker_security_protocol: SecurityProtocol,
    pub(super) control_plane_listener_name: Option<String>,
    pub(super) protocols: ProtocolMap,
    pub(super) log_dirs: Vec<PathBuf>,
    pub(super) inter_broker_protocol_version: MetadataVersion,
    pub(super) log_message_format_version: MetadataVersion,
    pub(super) max_connections_per_ip_overrides: BTreeMap<String, i32>,
}

/// The result; `value` is there when nothing it needs was refused.
pub(super) struct Outcome {
    pub(super) value: Option<Checked>,
    pub(super) errors: Vec<ConfigError>,
}

/// Collects refusals; leaves out those over keys that were refused already.
struct Checks<'a> {
    values: &'a Values,
    refused: BTreeSet<String>,
    errors: Vec<ConfigError>,
}

impl Checks<'_> {
    /// Kafka's `require`; of the keys the first that is set is the one to change.
    fn require(&mut self, holds: bool, keys: &[&str], message: impl AsRef<str>) {
        if !holds {
            self.refuse(keys, format!("requirement failed: {}", message.as_ref()));
        }
    }

    fn refuse(&mut self, keys: &[&str], message: impl Into<String>) {
        if keys.iter().any(|key| self.refused.contains(*key)) {
            return;
        }
        let key = keys.iter().find(|key| self.values.is_set(key)).unwrap_or(&keys[0]);
        let value = self.values.is_set(key).then(|| self.values.get(key)).flatten();
        let value = value.map(ToString::to_string);
        self.errors.push(ConfigError::conflict(key, value, message));
    }

    /// The value of a step, or a refusal.
    fn keep<T>(&mut self, keys: &[&str], result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.refuse(keys, message)).ok()
    }

    fn int(&self, name: &str) -> i32 {
        self.values.typed(name)
    }

    fn long(&self, name: &str) -> i64 {
        self.values.typed(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.values.typed(name)
    }
}

/// Runs every check. `refused` are the errors that the table alone found.
pub(super) fn check(values: &Values, refused: &[ConfigError]) -> Outcome {
    let refused = refused.iter().map(|error| error.key.clone()).collect();
    let mut checks = Checks { values, refused, errors: Vec::new() };
    check_mode(&mut checks);
    check_ids(&mut checks);
    let log_dirs = check_log(&mut checks);
    let listeners = check_listeners(&mut checks);
    let versions = check_versions(&mut checks);
    let overrides = check_connections(&mut checks);
    check_coordinators(&mut checks);
    let value = (|| {
        let listeners = listeners?;
        let (inter_broker_protocol_version, log_message_format_version) = versions?;
        Some(Checked {
            listeners: listeners.listeners,
            advertised_listeners: listeners.advertised,
            inter_broker_listener_name: listeners.inter_broker.0,
            inter_broker_security_protocol: listeners.inter_broker.1,
            control_plane_listener_name: listeners.control_plane,
            protocols: listeners.protocols,
            log_dirs,
            inter_broker_protocol_version,
            log_message_format_version,
            max_connections_per_ip_overrides: overrides?,
        })
    })();
    Outcome { value, errors: checks.errors }
}

/// ZooKeeper mode, and nothing else.
fn check_mode(checks: &mut Checks<'_>) {
    let roles: Vec<String> = checks.values.typed("process.roles");
    if !roles.is_empty() {
        checks.refuse(
            &["process.roles"],
            "process.roles must be empty: this broker runs in ZooKeeper mode only",
        );
    }
    if checks.text("zookeeper.connect").is_none() {
        checks.refuse(
            &["zookeeper.connect"],
            "Missing required configuration `zookeeper.connect` which has no default value.",
        );
    }
    if checks.values.typed("zookeeper.metadata.migration.enable") {
        checks.refuse(
            &["zookeeper.metadata.migration.enable"],
            "zookeeper.metadata.migration.enable must be false: this broker does not take part in a migration to KRaft",
        );
    }
    if let Some(names) = checks.text("controller.listener.names") {
        let names = names.split(',').collect::<Vec<_>>().join(", ");
        checks.require(
            names.is_empty(),
            &["controller.listener.names"],
            format!(
                "controller.listener.names must be empty when not running in KRaft mode: [{names}]"
            ),
        );
    }
}

fn check_ids(checks: &mut Checks<'_>) {
    let id = checks.int("broker.id");
    if id != checks.int("node.id") {
        checks.refuse(
            &["node.id", "broker.id"],
            "You must set `node.id` to the same value as `broker.id`.",
        );
    }
    if checks.values.typed("broker.id.generation.enable") {
        checks.require(
            id >= -1 && id <= checks.int("reserved.broker.max.id"),
            &["broker.id", "reserved.broker.max.id"],
            "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
        );
    } else {
        checks.require(id >= 0, &["broker.id"], "broker.id must be greater than or equal to 0");
    }
}

const HOUR_MS: i64 = 3_600_000;

/// `log.roll.ms`, else hours.
pub(super) fn log_roll_ms(values: &Values) -> i64 {
    let hours: i32 = values.typed("log.roll.hours");
    values.typed::<Option<i64>>("log.roll.ms").unwrap_or(i64::from(hours) * HOUR_MS)
}

/// `log.roll.jitter.ms`, else hours.
pub(super) fn log_roll_jitter_ms(values: &Values) -> i64 {
    let hours: i32 = values.typed("log.roll.jitter.hours");
    values.typed::<Option<i64>>("log.roll.jitter.ms").unwrap_or(i64::from(hours) * HOUR_MS)
}

/// `log.retention.ms`, else minutes, else hours; -1 for anything negative.
pub(super) fn log_retention_ms(values: &Values) -> i64 {
    let hours: i32 = values.typed("log.retention.hours");
    let minutes: Option<i32> = values.typed("log.retention.minutes");
    let coarse = match minutes {
        Some(minutes) => i64::from(minutes) * 60_000,
        None => i64::from(hours) * HOUR_MS,
    };
    values.typed::<Option<i64>>("log.retention.ms").unwrap_or(coarse).max(-1)
}

fn check_log(checks: &mut Checks<'_>) -> Vec<PathBuf> {
    checks.require(
        log_roll_ms(checks.values) >= 1,
        &["log.roll.ms", "log.roll.hours"],
        "log.roll.ms must be greater than or equal to 1",
    );
    checks.require(
        log_roll_jitter_ms(checks.values) >= 0,
        &["log.roll.jitter.ms", "log.roll.jitter.hours"],
        "log.roll.jitter.ms must be greater than or equal to 0",
    );
    let retention_key = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
    let set = retention_key.into_iter().find(|key| checks.values.is_set(key));
    checks.require(
        log_retention_ms(checks.values) != 0,
        &[set.unwrap_or(retention_key[0])],
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    );
    let dirs_key = if checks.text("log.dirs").is_some() { "log.dirs" } else { "log.dir" };
    let text = checks.text(dirs_key).unwrap_or_default();
    let log_dirs: Vec<PathBuf> = csv(&text).map(PathBuf::from).collect();
    checks.require(
        !log_dirs.is_empty(),
        &[dirs_key],
        "At least one log directory must be defined via log.dirs or log.dir.",
    );
    // Kafka divides by zero here when there are no threads.
    let threads = i64::from(checks.int("log.cleaner.threads")).max(1);
    checks.require(
        checks.long("log.cleaner.dedupe.buffer.size") / threads > 1024 * 1024,
        &["log.cleaner.dedupe.buffer.size", "log.cleaner.threads"],
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    );
    let wait = checks.int("replica.fetch.wait.max.ms");
    checks.require(
        wait <= checks.int("replica.socket.timeout.ms"),
        &["replica.socket.timeout.ms", "replica.fetch.wait.max.ms"],
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket timeouts",
    );
    checks.require(
        i64::from(wait) <= checks.long("replica.lag.time.max.ms"),
        &["replica.fetch.wait.max.ms", "replica.lag.time.max.ms"],
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR",
    );
    log_dirs
}

struct Listeners {
    protocols: ProtocolMap,
    listeners: Vec<Listener>,
    advertised: Vec<Listener>,
    inter_broker: (String, SecurityProtocol),
    control_plane: Option<String>,
}

const MAP: &str = "listener.security.protocol.map";

/// Every key is looked at, and those together whose own values are good.
fn check_listeners(checks: &mut Checks<'_>) -> Option<Listeners> {
    let map = checks.text(MAP).unwrap_or_default();
    let protocols = checks.keep(&[MAP], protocol_map(&map));
    let inter_broker = inter_broker(checks, protocols.as_ref());
    let text = checks.text("listeners").unwrap_or_default();
    let listeners = listener::parse_list(&text, protocols.as_ref(), Ports::Distinct);
    let listeners = checks.keep(&["listeners"], listeners);
    let advertised = match checks.text("advertised.listeners") {
        None => listeners.clone(),
        Some(text) => {
            let advertised = listener::parse_list(&text, protocols.as_ref(), Ports::Shared);
            checks.keep(&["advertised.listeners"], advertised)
        }
    };
    let inter_broker_name = inter_broker.as_ref().map(|(name, _)| name.as_str());
    check_names(checks, listeners.as_deref(), advertised.as_deref(), inter_broker_name);
    let control_plane =
        control_plane(checks, protocols.as_ref(), advertised.as_deref(), inter_broker_name);
    if let Some(inter_broker) = &inter_broker {
        check_sasl(checks, inter_broker);
    }
    if let Some(listeners) = &listeners {
        check_early_start(checks, listeners);
    }
    Some(Listeners {
        protocols: protocols?,
        listeners: listeners?,
        advertised: advertised?,
        inter_broker: inter_broker?,
        control_plane,
    })
}

fn protocol_map(text: &str) -> Result<ProtocolMap, String> {
    let entry = |(name, protocol): (&str, &str)| {
        let protocol = SecurityProtocol::from_name(protocol)
            .ok_or_else(|| format!("Invalid security protocol `{protocol}` defined in {MAP}"))?;
        Ok((normalised(name)?, protocol))
    };
    pairs(MAP, text).map(|pair| entry(pair?)).collect()
}

/// `name:value` pairs between commas, split at the last colon. Source: `Csv.parseCsvMap`.
fn pairs<'a>(key: &str, text: &'a str) -> impl Iterator<Item = Result<(&'a str, &'a str), String>> {
    let mut elements: Vec<&str> = text.split(',').map(str::trim).collect();
    if text.is_empty() {
        elements.clear();
    }
    // Java's split drops empty elements at the end.
    while elements.last() == Some(&"") {
        elements.pop();
    }
    elements.into_iter().map(move |element| {
        element.rsplit_once(':').map(|(name, value)| (name.trim(), value.trim())).ok_or_else(|| {
            format!(
                "Error parsing configuration property '{key}': begin 0, end -1, length {}",
                element.len()
            )
        })
    })
}

fn inter_broker(
    checks: &mut Checks<'_>,
    protocols: Option<&ProtocolMap>,
) -> Option<(String, SecurityProtocol)> {
    const NAME: &str = "inter.broker.listener.name";
    const PROTOCOL: &str = "security.inter.broker.protocol";
    let Some(name) = checks.text(NAME) else {
        let protocol = checks.text(PROTOCOL).unwrap_or_default();
        let protocol = SecurityProtocol::from_name(&protocol)
            .ok_or_else(|| format!("Invalid security protocol `{protocol}` defined in {PROTOCOL}"));
        let protocol = checks.keep(&[PROTOCOL], protocol)?;
        return Some((protocol.name().to_owned(), protocol));
    };
    if checks.values.is_set(PROTOCOL) {
        checks.refuse(
            &[NAME, PROTOCOL],
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        );
    }
    let name = checks.keep(&[NAME], normalised(&name))?;
    let protocol = protocols?
        .get(&name)
        .copied()
        .ok_or_else(|| format!("Listener with name {name} defined in {NAME} not found in {MAP}."));
    Some((name.clone(), checks.keep(&[NAME], protocol)?))
}

/// What `listeners`, `advertised.listeners` and the brokers' listener must have to do with each other; each as far as it
/// is there.
fn check_names(
    checks: &mut Checks<'_>,
    listeners: Option<&[Listener]>,
    advertised: Option<&[Listener]>,
    inter_broker: Option<&str>,
) {
    const ADVERTISED: &[&str] = &["advertised.listeners", "listeners"];
    let Some(advertised) = advertised else { return };
    let told = names(advertised);
    checks.require(
        !told.is_empty(),
        ADVERTISED,
        "There must be at least one broker advertised listener.",
    );
    checks.require(
        inter_broker.is_none_or(|name| told.contains(&name)),
        &["inter.broker.listener.name", "advertised.listeners", "listeners"],
        format!(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. \
             The valid options based on currently configured listeners are {}",
            told.join(",")
        ),
    );
    if let Some(bound) = listeners.map(names) {
        checks.require(
            told.iter().all(|name| bound.contains(name)),
            ADVERTISED,
            format!(
                "advertised.listeners listener names must be equal to or a subset of the ones defined \
                 in listeners. Found {}. The valid options based on the current configuration are {}",
                told.join(","),
                bound.join(",")
            ),
        );
    }
    checks.require(
        !advertised.iter().any(|listener| listener.host.as_deref() == Some("0.0.0.0")),
        ADVERTISED,
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
    );
}

fn names(listeners: &[Listener]) -> Vec<&str> {
    listeners.iter().map(|listener| listener.name.as_str()).collect()
}

fn control_plane(
    checks: &mut Checks<'_>,
    protocols: Option<&ProtocolMap>,
    advertised: Option<&[Listener]>,
    inter_broker: Option<&str>,
) -> Option<String> {
    const KEY: &str = "control.plane.listener.name";
    let name = checks.text(KEY)?;
    let name = checks.keep(&[KEY], normalised(&name))?;
    if protocols.is_some_and(|protocols| !protocols.contains_key(&name)) {
        checks.refuse(&[KEY], format!("Listener with {name} defined in {KEY} not found in {MAP}."));
        return None;
    }
    if let Some(told) = advertised.map(names) {
        checks.require(
            told.contains(&name.as_str()),
            &[KEY],
            format!(
                "{KEY} must be a listener name defined in advertised.listeners. The valid options \
                 based on currently configured listeners are {}",
                told.join(",")
            ),
        );
    }
    checks.require(
        inter_broker != Some(&name),
        &[KEY],
        format!(
            "{KEY}, when defined, should have a different value from the inter broker listener \
             name. Currently they both have the value ListenerName({name})"
        ),
    );
    Some(name)
}

/// The key does nothing in ZooKeeper mode, and Kafka checks it all the same.
fn check_early_start(checks: &mut Checks<'_>, listeners: &[Listener]) {
    const KEY: &str = "early.start.listeners";
    let text = checks.text(KEY).unwrap_or_default();
    let is_bound = |name: &str| listeners.iter().any(|listener| listener.name == name);
    for stranger in csv(&text).filter(|name| !is_bound(name)) {
        checks.refuse(
            &[KEY, "listeners"],
            format!(
                "{KEY} contains listener {stranger}, but this is not contained in listeners or controller.listener.names"
            ),
        );
    }
}

fn check_sasl(checks: &mut Checks<'_>, inter_broker: &(String, SecurityProtocol)) {
    let (name, protocol) = inter_broker;
    let mechanism = checks.text("sasl.mechanism.inter.broker.protocol").unwrap_or_default();
    let enabled = match checks.values.get_for_listener(name, "sasl.enabled.mechanisms") {
        Some(Value::List(mechanisms)) => mechanisms.contains(&mechanism),
        _ => false,
    };
    checks.require(
        !protocol.is_sasl() || enabled,
        &["sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms"],
        "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for inter-broker communication",
    );
}

const IBP: &str = "inter.broker.protocol.version";
const FORMAT: &str = "log.message.format.version";

/// The inter-broker protocol, and the record format that holds under it.
fn check_versions(checks: &mut Checks<'_>) -> Option<(MetadataVersion, MetadataVersion)> {
    let ibp = MetadataVersion::parse(&checks.text(IBP)?)?;
    let text = checks.text(FORMAT)?;
    let configured = MetadataVersion::parse(&text)?;
    let ignored = ibp >= MetadataVersion::V3_0_IV1;
    let format = if ignored { MetadataVersion::V3_0_IV1 } else { configured };
    if ibp.record_version() < format.record_version() {
        checks.require(
            false,
            &[IBP, FORMAT],
            format!(
                "{FORMAT} {text} can only be used when {IBP} is set to version {} or higher",
                MetadataVersion::oldest_with_record_version(format.record_version())
            ),
        );
    }
    if ibp < MetadataVersion::V2_8_IV0 {
        checks.refuse(
            &[IBP],
            format!(
                "{IBP} {} is not supported: this broker joins clusters at 2.8 or later",
                ibp.full()
            ),
        );
        return None;
    }
    Some((ibp, format))
}

fn check_connections(checks: &mut Checks<'_>) -> Option<BTreeMap<String, i32>> {
    const OVERRIDES: &str = "max.connections.per.ip.overrides";
    let queued = checks.long("queued.max.request.bytes");
    checks.require(
        queued <= 0 || queued >= i64::from(checks.int("socket.request.max.bytes")),
        &["queued.max.request.bytes", "socket.request.max.bytes"],
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    );
    let text = checks.text(OVERRIDES).unwrap_or_default();
    let given = checks.keep(&[OVERRIDES], connection_overrides(&text));
    let overrides = given.as_ref().unwrap_or(const { &BTreeMap::new() });
    if checks.int("max.connections.per.ip") == 0 {
        checks.require(
            given.is_none() || !overrides.is_empty(),
            &["max.connections.per.ip", OVERRIDES],
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        );
    }
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-%._:".contains(&byte);
    let invalid: Vec<_> =
        overrides.keys().filter(|host| !host.bytes().all(is_host)).map(String::as_str).collect();
    if !invalid.is_empty() {
        let message = format!("{OVERRIDES} contains invalid addresses : {}", invalid.join(","));
        checks.refuse(&[OVERRIDES], message);
    }
    let idle = checks.long("connections.max.idle.ms");
    let delay = checks.int("connection.failed.authentication.delay.ms");
    checks.require(
        idle < 0 || i64::from(delay) < idle,
        &["connection.failed.authentication.delay.ms", "connections.max.idle.ms"],
        format!(
            "connection.failed.authentication.delay.ms={delay} should always be less than \
             connections.max.idle.ms={idle} to prevent failed authentication responses from timing out"
        ),
    );
    given
}

fn connection_overrides(text: &str) -> Result<BTreeMap<String, i32>, String> {
    let limit = |(host, limit): (&str, &str)| {
        let limit = limit.parse().map_err(|_| format!("For input string: \"{limit}\""))?;
        Ok((host.to_owned(), limit))
    };
    let pairs = pairs("max.connections.per.ip.overrides", text);
    pairs.map(|pair| limit(pair?)).collect()
}

fn check_coordinators(checks: &mut Checks<'_>) {
    let acks: i16 = checks.values.typed("offsets.commit.required.acks");
    let replication_factor: i16 = checks.values.typed("offsets.topic.replication.factor");
    if acks < -1 || acks > replication_factor {
        checks.refuse(
            &["offsets.commit.required.acks", "offsets.topic.replication.factor"],
            "offsets.commit.required.acks must be greater or equal to -1 and less or equal to offsets.topic.replication.factor",
        );
    }
    const CODEC: &str = "offsets.topic.compression.codec";
    let codec = checks.int(CODEC);
    if !(0..=4).contains(&codec) {
        checks.refuse(&[CODEC], format!("Unknown compression type id: {codec}"));
    }
    const PROTOCOLS: &str = "group.coordinator.rebalance.protocols";
    let protocols: Vec<String> = checks.values.typed(PROTOCOLS);
    if !protocols.iter().any(|protocol| protocol == "classic") {
        checks.refuse(&[PROTOCOLS], "Disabling the 'classic' protocol is not supported.");
    } else if protocols.iter().any(|protocol| protocol == "consumer") {
        checks.refuse(
            &[PROTOCOLS],
            "The new 'consumer' rebalance protocol is only supported in KRaft cluster.",
        );
    }
}

/// A record format before the newest, and what Kafka does about it.
pub(super) enum OldFormat {
    /// It stores records in the newest.
    Ignored,
    /// It stores records in this one.
    Honoured,
}

/// What is said of it where Kafka would honour it.
pub(super) const STORED_AS_NEWEST: &str =
    "records are stored in the newest format, and converted for consumers that need an old one";

/// Whether a format is old, under this inter-broker protocol. Source: `LogConfig.MessageFormatVersion`.
pub(super) fn old_format(format: &str, ibp: &str) -> Option<OldFormat> {
    let (format, ibp) = (MetadataVersion::parse(format)?, MetadataVersion::parse(ibp)?);
    let old = match ibp >= MetadataVersion::V3_0_IV1 {
        true => OldFormat::Ignored,
        false => OldFormat::Honoured,
    };
    (format.record_version() < 2).then_some(old)
}

/// What Kafka warns of.
pub(super) fn warnings(values: &Values) -> impl Iterator<Item = String> {
    let (ibp, format): (String, String) = (values.typed(IBP), values.typed(FORMAT));
    let format = match old_format(&format, &ibp) {
        None => None,
        Some(OldFormat::Ignored) => Some(format!(
            "Broker configuration {FORMAT} with value {format} is ignored because the inter-broker \
             protocol version `{ibp}` is greater or equal than 3.0. This configuration is deprecated \
             and it will be removed in Apache Kafka 4.0."
        )),
        Some(OldFormat::Honoured) => Some(format!(
            "Broker configuration {FORMAT} with value {format} is ignored: {STORED_AS_NEWEST}"
        )),
    };
    let acks = values.is_set("offsets.commit.required.acks").then(|| {
        "offsets.commit.required.acks is deprecated and it will be removed in Apache Kafka 4.0."
            .to_owned()
    });
    format.into_iter().chain(acks)
}
