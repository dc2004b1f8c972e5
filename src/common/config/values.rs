//! The values of a broker by name: what was given, what it parsed to, and what holds by default.

use std::collections::BTreeMap;

use super::dynamic::DynamicConfigs;
use super::table::{self, ConfigKey, Effect};
use super::value::{ConfigError, Password, Value};
use crate::properties::Properties;

/// Values of every key of the broker's definition, and of the other known keys that are set.
#[derive(Clone)]
pub(super) struct Values {
    /// The file and the overrides, secrets included.
    file: Properties,
    /// What ZooKeeper lays over them.
    dynamic: DynamicConfigs,
    /// Both together.
    originals: Properties,
    parsed: BTreeMap<&'static str, Option<Value>>,
    /// Parsed `listener.name.<listener>.<key>` settings, by their whole name.
    listener: BTreeMap<String, Value>,
}

/// The texts may hold secrets, and are left out.
impl std::fmt::Debug for Values {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Values")
            .field("parsed", &self.parsed)
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

/// A setting that does not do what its writer may think.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// No such key. Its value is not told: it may be a misspelt password.
    UnknownKey(String),
    /// A key that does nothing here, now or ever.
    WithoutEffect {
        /// The key.
        key: String,
        /// Why; never `Effect::Works`.
        effect: Effect,
    },
    /// Kafka warns in these words.
    Message(String),
}

impl Warning {
    /// What is to be said of a key that is set, if anything.
    pub fn of_key(name: &str) -> Option<Warning> {
        warning(name)
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Warning::UnknownKey(key) => {
                write!(formatter, "Unknown configuration '{key}' is ignored")
            }
            Warning::WithoutEffect { key, effect } => {
                let verb = match effect {
                    Effect::NotYet | Effect::Moot => "has ",
                    Effect::NewestFormat => "is ",
                    Effect::Works | Effect::KRaftOnly | Effect::JavaOnly => "",
                };
                write!(formatter, "Configuration '{key}' is set, but {verb}{}", effect.describe())
            }
            Warning::Message(text) => formatter.write_str(text),
        }
    }
}

/// What parsing by the table alone gave; a refused value stands at its default, so that the rest can be checked.
pub(super) struct Tabled {
    pub(super) values: Values,
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<Warning>,
}

impl Values {
    /// Parses all that is given by the table, and collects every refusal.
    pub(super) fn parse(properties: &Properties, dynamic: DynamicConfigs) -> Tabled {
        let file = with_node_id(properties);
        let originals = dynamic.over(&file);
        let mut errors = Vec::new();
        let mut parsed = BTreeMap::new();
        for key in table::broker_keys().filter(|key| !key.name.ends_with('*')) {
            let given = originals.get(key.name);
            if given.is_none() && !key.defined {
                continue;
            }
            let value =
                parse_one(key, key.name, given.map(String::as_str)).unwrap_or_else(|error| {
                    // `node.id` filled from `broker.id` would say the same again.
                    if properties.contains_key(key.name) || dynamic.sets(key.name) {
                        errors.push(error);
                    }
                    parse_one(key, key.name, None).unwrap_or(None)
                });
            parsed.insert(key.name, value);
        }
        let mut listener = BTreeMap::new();
        for (name, given) in &originals {
            let Some(key) = table::listener_key(name) else { continue };
            match parse_one(key, name, Some(given)) {
                Ok(Some(value)) => {
                    listener.insert(name.clone(), value);
                }
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        let others = properties.iter().filter(|(name, value)| !is_as_here(name, value));
        let warnings = others.filter_map(|(name, _)| warning(name)).collect();
        Tabled { values: Values { file, dynamic, originals, parsed, listener }, errors, warnings }
    }

    /// The value of a key; `None` is Kafka's null, and the answer for an unknown key.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.parsed.get(name)?.as_ref()
    }

    /// The value that a listener (in lower or upper case) sets for itself, else the one for all.
    pub(super) fn get_for_listener(&self, listener: &str, name: &str) -> Option<&Value> {
        let prefixed = format!("listener.name.{}.{name}", listener.to_lowercase());
        self.listener.get(&prefixed).or_else(|| self.get(name))
    }

    /// Whether the file, an override or ZooKeeper names the key.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.originals.contains_key(name)
    }

    /// What the file and the overrides say.
    pub(super) fn file(&self) -> &Properties {
        &self.file
    }

    /// What ZooKeeper lays over them.
    pub(super) fn dynamic(&self) -> &DynamicConfigs {
        &self.dynamic
    }

    /// What all of them say together.
    pub(super) fn originals(&self) -> &Properties {
        &self.originals
    }

    /// A typed value that the table's default guarantees.
    ///
    /// # Panics
    /// Where the field and the table disagree on the type or the default; a test reads every field.
    pub(super) fn typed<T: FromValue>(&self, name: &str) -> T {
        T::from_value(self.get(name))
            .unwrap_or_else(|| panic!("{name} has another type or no default"))
    }
}

/// `broker.id` and `node.id` fill each other. Source: `KafkaConfig.populateSynonyms`.
fn with_node_id(properties: &Properties) -> Properties {
    let mut originals = properties.clone();
    for (from, to) in [("broker.id", "node.id"), ("node.id", "broker.id")] {
        if let (Some(id), None) = (properties.get(from), properties.get(to)) {
            originals.insert(to.to_owned(), id.clone());
        }
    }
    originals
}

fn parse_one(
    key: &ConfigKey,
    name: &str,
    given: Option<&str>,
) -> Result<Option<Value>, ConfigError> {
    let text = given.or(key.default);
    let key = ConfigKey { name: key.name, ..*key };
    let value = text
        .map(|text| Value::parse(&key, text))
        .transpose()
        .and_then(|value| key.valid.check(key.name, value.as_ref()).map(|()| value));
    value.map_err(|error| ConfigError { key: name.to_owned(), ..error })
}

/// Classes of Java that ask for what is done here without them: ZooKeeper's client speaks TLS with this one alone.
fn is_as_here(name: &str, value: &str) -> bool {
    name == "zookeeper.clientCnxnSocket"
        && value.trim() == "org.apache.zookeeper.ClientCnxnSocketNetty"
}

fn warning(name: &str) -> Option<Warning> {
    let key = table::broker_key(name)
        .or_else(|| table::listener_key(name))
        .or_else(|| table::broker_family(name));
    match key {
        None if PLUGIN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => {
            Some(Warning::WithoutEffect { key: name.to_owned(), effect: Effect::JavaOnly })
        }
        None => Some(Warning::UnknownKey(name.to_owned())),
        Some(key) if key.effect == Effect::Works => None,
        Some(key) => Some(Warning::WithoutEffect { key: name.to_owned(), effect: key.effect }),
    }
}

/// Keys that Kafka hands to plug-ins of tiered storage, at their default prefixes.
const PLUGIN_PREFIXES: &[&str] = &["rsm.config.", "rlmm.config."];

/// A field's type, read from a value.
pub(super) trait FromValue: Sized {
    /// `None` where the value is of another type.
    fn from_value(value: Option<&Value>) -> Option<Self>;
}

macro_rules! from_value {
    ($($type:ty: $pattern:pat => $value:expr;)*) => {
        $(impl FromValue for $type {
            fn from_value(value: Option<&Value>) -> Option<Self> {
                match value? {
                    $pattern => Some($value),
                    _ => None,
                }
            }
        })*
    };
}

from_value! {
    bool: Value::Boolean(value) => *value;
    i16: Value::Short(value) => *value;
    i32: Value::Int(value) => *value;
    i64: Value::Long(value) => *value;
    f64: Value::Double(value) => *value;
    String: Value::String(value) => value.clone();
    Vec<String>: Value::List(value) => value.clone();
    Password: Value::Password(value) => value.clone();
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Option<&Value>) -> Option<Self> {
        match value {
            None => Some(None),
            some => T::from_value(some).map(Some),
        }
    }
}
