//! What one row of the config table says, and how to find rows.
//!
//! The rows themselves are in `keys`, a file per group. `docs/configuration.md` is printed from them.

use super::keys;
use super::validate::Valid;

/// Type of a value, as Kafka's `ConfigDef.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`, in any case.
    Boolean,
    /// Text, trimmed.
    String,
    /// 32-bit number.
    Int,
    /// 16-bit number.
    Short,
    /// 64-bit number.
    Long,
    /// Floating-point number.
    Double,
    /// Texts between commas.
    List,
    /// Name of a Java class.
    Class,
    /// Text that is never printed.
    Password,
}

impl Kind {
    /// Kafka's name, as its error texts have it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "BOOLEAN",
            Kind::String => "STRING",
            Kind::Int => "INT",
            Kind::Short => "SHORT",
            Kind::Long => "LONG",
            Kind::Double => "DOUBLE",
            Kind::List => "LIST",
            Kind::Class => "CLASS",
            Kind::Password => "PASSWORD",
        }
    }

    /// The number DescribeConfigs answers with. Source: `DescribeConfigsResponse.ConfigType`.
    pub fn wire_id(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Short => 4,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
            Kind::Class => 8,
            Kind::Password => 9,
        }
    }
}

/// How much a key matters to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// Most set it.
    High,
    /// Some set it.
    Medium,
    /// Few set it.
    Low,
}

/// Whether and where a value can be changed while the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Only in the file, read at start.
    ReadOnly,
    /// For one broker.
    PerBroker,
    /// For one broker, or for all as a default.
    ClusterWide,
    /// Never in a file: kept in ZooKeeper for brokers, users, clients or addresses.
    DynamicOnly,
}

/// What setting the key does in this broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// What it does in Kafka.
    Works,
    /// Nothing so far; it is checked and shown.
    NotYet,
    /// Nothing in ZooKeeper mode, in Kafka neither.
    KRaftOnly,
    /// Nothing: it names a Java class, or tunes the Java virtual machine.
    JavaOnly,
    /// Nothing: this broker has no such part, so there is nothing to tune.
    Moot,
    /// Nothing: records are stored in the newest format, as Kafka does at IBP 3.0 and above.
    NewestFormat,
}

impl Effect {
    /// Words for the log and the documentation.
    pub fn describe(self) -> &'static str {
        match self {
            Effect::Works => "works",
            Effect::NotYet => "no effect yet",
            Effect::KRaftOnly => "acts in KRaft mode only",
            Effect::JavaOnly => "needs the Java virtual machine",
            Effect::Moot => "nothing to tune in this broker",
            Effect::NewestFormat => "ignored, as by Kafka at IBP >= 3.0",
        }
    }
}

/// One row: all there is to know about a key.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// Kafka's name; a trailing `*` stands for a family of keys.
    pub name: &'static str,
    /// Type of the value.
    pub kind: Kind,
    /// Default as Kafka prints it; `None` is Kafka's null.
    pub default: Option<&'static str>,
    /// Check of a parsed value.
    pub valid: Valid,
    /// How much it matters.
    pub importance: Importance,
    /// Whether it changes at run time.
    pub update: Update,
    /// Hidden from documentation and DescribeConfigs unless set.
    pub internal: bool,
    /// Whether Kafka's broker `ConfigDef` has it; others are shown only when set, and not typed.
    pub defined: bool,
    /// What it does here.
    pub effect: Effect,
    /// Meaning.
    pub doc: &'static str,
    /// What it yields to or falls back to; empty where nothing.
    pub note: &'static str,
}

impl ConfigKey {
    const fn new(kind: Kind, name: &'static str, importance: Importance) -> ConfigKey {
        ConfigKey {
            name,
            kind,
            default: None,
            valid: Valid::Any,
            importance,
            update: Update::ReadOnly,
            internal: false,
            defined: true,
            effect: Effect::Works,
            doc: "",
            note: "",
        }
    }

    pub(super) const fn default(mut self, default: &'static str) -> ConfigKey {
        self.default = Some(default);
        self
    }

    pub(super) const fn doc(mut self, doc: &'static str) -> ConfigKey {
        self.doc = doc;
        self
    }

    pub(super) const fn valid(mut self, valid: Valid) -> ConfigKey {
        self.valid = valid;
        self
    }

    pub(super) const fn update(mut self, update: Update) -> ConfigKey {
        self.update = update;
        self
    }

    pub(super) const fn effect(mut self, effect: Effect) -> ConfigKey {
        self.effect = effect;
        self
    }

    pub(super) const fn note(mut self, note: &'static str) -> ConfigKey {
        self.note = note;
        self
    }

    pub(super) const fn internal(mut self) -> ConfigKey {
        self.internal = true;
        self
    }

    pub(super) const fn undefined(mut self) -> ConfigKey {
        self.defined = false;
        self
    }

    /// Whether the key changes while the broker runs, as DescribeConfigs tells by `read_only`.
    pub fn is_dynamic(&self) -> bool {
        matches!(self.update, Update::PerBroker | Update::ClusterWide)
    }

    /// Whether the value must not be shown.
    pub fn is_secret(&self) -> bool {
        self.kind == Kind::Password
    }
}

pub(super) const fn boolean(name: &'static str, importance: Importance) -> ConfigKey {
    ConfigKey::new(Kind::Boolean, name, importance)
}

pub(super) const fn string(name: &'static str, importance: Importance) -> ConfigKey {
    ConfigKey::new(Kind::String, name, importance)
}

pub(super) const fn int(name: &'static str, importance: Importance) -> ConfigKey {
    ConfigKey::new(Kind::Int, name, importance)
}

pub(super) const fn short(name: &'static str, importance: Importance) -> ConfigKey {
    ConfigKey::new(Kind::Short, name, importance)
}

pub(super) const fn long(name: &'static str, importance: Importance) -> ConfigKey {
    ConfigKey::new(Kind::Long, name, importance)
}

pub(super) const fn double(name: &'static str, importance: Importance) -> ConfigKey {
    ConfigKey::new(Kind::Double, name, importance)
}

pub(super) const fn list(name: &'static str, importance: Importance) -> ConfigKey {
    ConfigKey::new(Kind::List, name, importance)
}

pub(super) const fn class(name: &'static str, importance: Importance) -> ConfigKey {
    ConfigKey::new(Kind::Class, name, importance)
}

pub(super) const fn password(name: &'static str, importance: Importance) -> ConfigKey {
    ConfigKey::new(Kind::Password, name, importance)
}

/// Rows of one subject, in the order of Kafka's definition.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Heading of the documentation.
    pub title: &'static str,
    /// The rows.
    pub keys: &'static [ConfigKey],
}

/// All broker keys, by group.
pub fn broker_groups() -> &'static [Group] {
    keys::BROKER
}

/// All broker keys.
pub fn broker_keys() -> impl Iterator<Item = &'static ConfigKey> {
    keys::BROKER.iter().flat_map(|group| group.keys)
}

/// All topic keys, in the order in which Kafka checks them.
pub fn topic_keys() -> &'static [ConfigKey] {
    keys::TOPIC
}

/// The row of a broker key. Families (`authorizer.zookeeper.ssl.*`) are found by `broker_family`.
pub fn broker_key(name: &str) -> Option<&'static ConfigKey> {
    broker_keys().find(|key| key.name == name)
}

/// The row of a broker key that Kafka's file knows.
pub fn defined_broker_key(name: &str) -> Option<&'static ConfigKey> {
    broker_key(name).filter(|key| key.defined)
}

/// The row of a family that `name` belongs to.
pub fn broker_family(name: &str) -> Option<&'static ConfigKey> {
    broker_keys()
        .find(|key| key.name.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix)))
}

/// The row of a topic key.
pub fn topic_key(name: &str) -> Option<&'static ConfigKey> {
    keys::TOPIC.iter().find(|key| key.name == name)
}

/// The key that `listener.name.<listener>.[<mechanism>.]<key>` sets for one listener.
pub fn listener_key(name: &str) -> Option<&'static ConfigKey> {
    let (_, base) = name.strip_prefix("listener.name.")?.split_once('.')?;
    if let Some(key) = broker_key(base) {
        return Some(key);
    }
    let (_, after_mechanism) = base.split_once('.')?;
    broker_key(after_mechanism).filter(|key| PER_MECHANISM.contains(&key.name))
}

/// Keys that may be set for one SASL mechanism of a listener. Source: `DynamicBrokerConfig.ListenerMechanismConfigs`.
const PER_MECHANISM: &[&str] = &[
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
];

/// Other names of a broker setting, most specific first; `name` itself is among them.
/// Source: `DynamicBrokerConfig.brokerConfigSynonyms`.
pub fn broker_synonyms(name: &str) -> Vec<&str> {
    const ROLL: &[&str] = &["log.roll.ms", "log.roll.hours"];
    const JITTER: &[&str] = &["log.roll.jitter.ms", "log.roll.jitter.hours"];
    const RETENTION: &[&str] =
        &["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
    for family in [ROLL, JITTER, RETENTION] {
        if family.contains(&name) {
            return family.to_vec();
        }
    }
    if name == "log.flush.interval.ms" {
        return vec![name, "log.flush.scheduler.interval.ms"];
    }
    match listener_key(name) {
        Some(key) => vec![name, key.name],
        None => vec![name],
    }
}

/// The broker key whose value a topic key takes when the topic does not set it.
/// Source: `ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS`.
pub fn topic_synonym(name: &str) -> Option<&'static str> {
    keys::TOPIC_SYNONYMS.iter().find(|(topic, _)| *topic == name).map(|(_, broker)| *broker)
}

/// Whether a broker key is the default of a topic key.
pub fn is_topic_default(name: &str) -> bool {
    keys::TOPIC_SYNONYMS.iter().any(|(_, broker)| *broker == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::value::Value;

    #[test]
    fn names_are_unique() {
        let mut seen = BTreeSet::new();
        for key in broker_keys() {
            assert!(seen.insert(key.name), "{} stands twice", key.name);
        }
        let topic: BTreeSet<_> = topic_keys().iter().map(|key| key.name).collect();
        assert_eq!(topic.len(), topic_keys().len());
    }

    #[test]
    fn the_table_is_as_long_as_kafkas() {
        assert_eq!(broker_keys().count(), 349);
        assert_eq!(broker_keys().filter(|key| key.defined).count(), 328);
        assert_eq!(topic_keys().len(), 36);
    }

    #[test]
    fn every_default_parses_and_is_valid() {
        for key in broker_keys().chain(topic_keys()) {
            if let Some(default) = key.default {
                let value = Value::parse(key, default).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(value.to_string(), default, "{}", key.name);
                key.valid.check(key.name, Some(&value)).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }

    #[test]
    fn every_row_says_what_it_means() {
        for key in broker_keys().chain(topic_keys()) {
            assert!(key.doc.len() > 5, "{} has no text", key.name);
            assert!(!key.doc.ends_with('.'), "{} ends with a full stop", key.name);
        }
    }

    #[test]
    fn topic_keys_fall_back_to_broker_keys_of_the_same_type() {
        for (topic, broker) in keys::TOPIC_SYNONYMS {
            let topic = topic_key(topic).expect("a topic key");
            assert_eq!(
                topic.kind,
                broker_key(broker).expect("a broker key").kind,
                "{}",
                topic.name
            );
        }
    }

    #[test]
    fn listener_prefixes_are_seen_through() {
        let base = |name| listener_key(name).map(|key| key.name);
        assert_eq!(
            base("listener.name.internal.ssl.keystore.location"),
            Some("ssl.keystore.location")
        );
        assert_eq!(base("listener.name.x.plain.sasl.jaas.config"), Some("sasl.jaas.config"));
        assert_eq!(base("listener.name.x.plain.num.io.threads"), None);
        assert_eq!(base("listener.name.x"), None);
    }
}
