//! What DescribeConfigs tells of a broker and of a topic. Source: `ConfigHelper`.

use super::broker::BrokerConfig;
use super::dynamic::DynamicConfigs;
use super::table::{self, ConfigKey, Kind};
use super::topic::TopicValues;
use super::value::{ConfigError, Value};
use crate::properties::Properties;

/// Where a value comes from. Source: `DescribeConfigsResponse.ConfigSource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Source {
    /// The topic's own setting.
    Topic = 1,
    /// ZooKeeper, for this broker.
    DynamicBroker = 2,
    /// ZooKeeper, for all brokers.
    DynamicDefaultBroker = 3,
    /// The broker's file, or an override.
    StaticBroker = 4,
    /// The table.
    Default = 5,
}

impl Source {
    /// The number on the wire.
    pub fn wire_id(self) -> i8 {
        self as i8
    }

    /// The name that `kafka-configs.sh` prints.
    pub fn name(self) -> &'static str {
        match self {
            Source::Topic => "DYNAMIC_TOPIC_CONFIG",
            Source::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
            Source::DynamicDefaultBroker => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            Source::StaticBroker => "STATIC_BROKER_CONFIG",
            Source::Default => "DEFAULT_CONFIG",
        }
    }
}

/// One place that sets a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The key it stands under.
    pub name: String,
    /// The value there, as it is written; `None` for a secret.
    pub value: Option<String>,
    /// Whose it is.
    pub source: Source,
}

/// One key with all that DescribeConfigs tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub name: String,
    /// The value that holds; `None` for null and for secrets.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: Source,
    /// Whether the value is kept back.
    pub is_sensitive: bool,
    /// Whether it stands as long as the broker runs.
    pub is_read_only: bool,
    /// Every place that sets it, the winner first.
    pub synonyms: Vec<Synonym>,
    /// Its type; `None` for a key that Kafka does not define.
    pub kind: Option<Kind>,
    /// Its meaning; `None` for a key that Kafka does not define.
    pub documentation: Option<&'static str>,
}

impl Entry {
    /// The type's number on the wire, 0 where it is not known.
    pub fn kind_wire_id(&self) -> i8 {
        self.kind.map_or(0, Kind::wire_id)
    }
}

/// Every key of the broker, sorted: what is set, and what is defined and not internal.
pub fn broker(config: &BrokerConfig) -> Vec<Entry> {
    let shown = table::broker_keys().filter(|key| key.defined && !key.internal);
    let mut names: Vec<&str> = shown.map(|key| key.name).collect();
    names.extend(config.values.originals().keys().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| broker_entry(config, name)).collect()
}

/// What is set for all brokers, sorted, with nothing of what else counts.
pub fn all_brokers(config: &BrokerConfig) -> Vec<Entry> {
    let set = &config.dynamic().for_all;
    let entry = |(name, value): (&String, &String)| {
        let mut entry = broker_entry(config, name);
        entry.value = Some(value.clone()).filter(|_| !entry.is_sensitive);
        entry.synonyms.retain(|synonym| synonym.source == Source::DynamicDefaultBroker);
        entry.source = entry.synonyms.first().map_or(Source::Default, |synonym| synonym.source);
        entry
    };
    set.iter().map(entry).collect()
}

/// Every key of a topic with these settings, sorted.
pub fn topic(config: &BrokerConfig, overrides: &Properties) -> Result<Vec<Entry>, ConfigError> {
    let values = TopicValues::parse(config, overrides)?;
    let mut names: Vec<&str> = table::topic_keys().iter().map(|key| key.name).collect();
    names.extend(overrides.keys().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    Ok(names.into_iter().map(|name| topic_entry(config, &values, overrides, name)).collect())
}

fn broker_entry(config: &BrokerConfig, name: &str) -> Entry {
    let defined = table::broker_key(name).filter(|key| key.defined);
    let typed = typed_key(name);
    let kind = typed.map(|key| key.kind);
    let is_sensitive = is_sensitive(kind);
    let value = match defined {
        Some(key) if !key.internal => config.value(name).map(Value::to_string),
        _ => config.values.originals().get(name).cloned(),
    };
    let synonyms = synonyms(config, name, is_sensitive);
    Entry {
        name: name.to_owned(),
        value: value.filter(|_| !is_sensitive),
        source: synonyms.first().map_or(Source::Default, |synonym| synonym.source),
        is_sensitive,
        is_read_only: !defined.is_some_and(ConfigKey::is_dynamic),
        synonyms,
        kind,
        documentation: defined.map(|key| key.doc),
    }
}

fn topic_entry(
    config: &BrokerConfig,
    values: &TopicValues,
    overrides: &Properties,
    name: &str,
) -> Entry {
    let key = table::topic_key(name);
    let kind = key.map(|key| key.kind);
    let is_sensitive = is_sensitive(kind);
    let value = values.get(name).map(Value::to_string).filter(|_| !is_sensitive);
    let own = overrides.contains_key(name).then(|| Synonym {
        name: name.to_owned(),
        value: value.clone(),
        source: Source::Topic,
    });
    let brokers = table::topic_synonym(name)
        .map(|broker_name| synonyms(config, broker_name, is_sensitive))
        .unwrap_or_default();
    let synonyms: Vec<Synonym> = own.into_iter().chain(brokers).collect();
    Entry {
        name: name.to_owned(),
        value,
        source: synonyms.first().map_or(Source::Default, |synonym| synonym.source),
        is_sensitive,
        is_read_only: false,
        synonyms,
        kind,
        documentation: key.map(|key| key.doc),
    }
}

/// Quotas of a broker: they stand in ZooKeeper alone, and Kafka types them though its file does not know them. Source:
/// `QuotaConfigs.brokerQuotaConfigs`.
pub const BROKER_QUOTAS: &[&str] = &[
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

/// The key that gives a name its type. Source: `KafkaConfig.configType`.
fn typed_key(name: &str) -> Option<&'static ConfigKey> {
    table::broker_key(name)
        .filter(|key| key.defined || BROKER_QUOTAS.contains(&name))
        .or_else(|| table::listener_key(name))
}

/// Kafka keeps back what it cannot type.
fn is_sensitive(kind: Option<Kind>) -> bool {
    matches!(kind, None | Some(Kind::Password))
}

/// Where the broker sets a key or one of its other names. What comes before the key itself is left out, and so all
/// of it when only another name is set. Source: `ConfigHelper.configSynonyms`.
fn synonyms(config: &BrokerConfig, name: &str, is_sensitive: bool) -> Vec<Synonym> {
    let names = table::broker_synonyms(name);
    let synonym = |name: &str, value: &str, source| Synonym {
        name: name.to_owned(),
        value: (!is_sensitive).then(|| value.to_owned()),
        source,
    };
    let DynamicConfigs { for_all, for_this } = config.dynamic();
    let places = [
        (for_this, Source::DynamicBroker),
        (for_all, Source::DynamicDefaultBroker),
        (config.values.file(), Source::StaticBroker),
    ];
    let set = places.into_iter().flat_map(|(place, source)| {
        let synonym = &synonym;
        names.iter().filter_map(move |name| Some(synonym(name, place.get(*name)?, source)))
    });
    let default = names.iter().filter_map(|name| {
        let key = table::broker_key(name).filter(|key| key.defined)?;
        Some(synonym(name, key.default?, Source::Default))
    });
    set.chain(default).skip_while(|synonym| synonym.name != name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::broker::tests::broker as config;

    const SERVER: &str = include_str!("../../../tests/golden/transcripts/server1.properties");
    const DESCRIBE_BROKER: &str = include_str!(
        "../../../tests/golden/transcripts/kafka-configs/032-broker-describe-all.json"
    );
    const DESCRIBE_TOPIC: &str =
        include_str!("../../../tests/golden/transcripts/kafka-configs/007-topic-describe-all.json");

    /// The lines that `kafka-configs.sh --describe --all` printed, from a recorded case.
    fn recorded(text: &str) -> Vec<String> {
        let (_, stdout) = text.split_once("\"stdout\": \"").unwrap();
        let (stdout, _) =
            stdout.split_once("\", \"").unwrap_or(stdout.split_once("\",\n").unwrap());
        stdout.split("\\n").filter(|line| line.starts_with("  ")).map(str::to_owned).collect()
    }

    fn printed(entry: &Entry) -> String {
        let null = || "null".to_owned();
        let synonyms: Vec<String> = entry
            .synonyms
            .iter()
            .map(|synonym| {
                let value = synonym.value.clone().unwrap_or_else(null);
                format!("{}:{}={value}", synonym.source.name(), synonym.name)
            })
            .collect();
        format!(
            "  {}={} sensitive={} synonyms={{{}}}",
            entry.name,
            entry.value.clone().unwrap_or_else(null),
            entry.is_sensitive,
            synonyms.join(", ")
        )
    }

    fn recorded_broker() -> BrokerConfig {
        let properties = crate::properties::parse(SERVER.as_bytes());
        BrokerConfig::parse(&properties).unwrap()
    }

    #[test]
    fn a_broker_is_described_as_kafka_described_it() {
        let recorded = recorded(DESCRIBE_BROKER);
        assert!(recorded.len() > 300, "{}", recorded.len());
        // Made while the broker ran.
        let for_this = crate::properties::parse(b"log.cleaner.threads=2\ncustom.thing=7");
        let set = DynamicConfigs { for_this, ..DynamicConfigs::default() };
        let config = recorded_broker().with_dynamic(&set).config;
        let ours: Vec<_> = broker(&config).iter().map(printed).collect();
        for line in &recorded {
            assert!(ours.contains(line), "missing: {line}");
        }
        assert_eq!(ours.len(), recorded.len());
    }

    #[test]
    fn what_stands_in_zookeeper_comes_first() {
        let set = DynamicConfigs {
            for_all: crate::properties::parse(b"min.insync.replicas=3\nmessage.max.bytes=8"),
            for_this: crate::properties::parse(b"message.max.bytes=9"),
        };
        let config = config("message.max.bytes=7").with_dynamic(&set).config;
        let of = |entries: Vec<Entry>, name: &str| {
            printed(entries.iter().find(|entry| entry.name == name).unwrap())
        };
        assert_eq!(
            of(broker(&config), "message.max.bytes"),
            "  message.max.bytes=9 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:message.max.bytes=9, \
             DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=8, STATIC_BROKER_CONFIG:message.max.bytes=7, \
             DEFAULT_CONFIG:message.max.bytes=1048588}"
        );
        assert_eq!(
            of(topic(&config, &Properties::new()).unwrap(), "min.insync.replicas"),
            "  min.insync.replicas=3 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=3, \
             DEFAULT_CONFIG:min.insync.replicas=1}"
        );
        let of_all: Vec<_> = all_brokers(&config).iter().map(printed).collect();
        assert_eq!(
            of_all,
            [
                "  message.max.bytes=8 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=8}",
                "  min.insync.replicas=3 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=3}",
            ]
        );
    }

    #[test]
    fn a_topic_is_described_as_kafka_described_it() {
        let recorded = recorded(DESCRIBE_TOPIC);
        let overrides = crate::properties::parse(b"retention.ms=1000000");
        let ours: Vec<_> =
            topic(&recorded_broker(), &overrides).unwrap().iter().map(printed).collect();
        assert_eq!(ours, recorded);
    }

    #[test]
    fn unknown_and_secret_values_are_kept_back() {
        let config =
            config("foo=hush\nlistener.name.a.ssl.key.password=hush\nlog.initial.task.delay.ms=7");
        let entries = broker(&config);
        let find = |name: &str| entries.iter().find(|entry| entry.name == name).unwrap();
        assert!(!format!("{entries:?}").contains("hush"));
        assert!(find("foo").is_sensitive && find("foo").is_read_only);
        assert_eq!(find("foo").kind_wire_id(), 0);
        assert_eq!(find("listener.name.a.ssl.key.password").kind, Some(Kind::Password));
        assert_eq!(find("log.initial.task.delay.ms").value.as_deref(), Some("7"));
        assert!(!find("num.io.threads").is_read_only && find("num.partitions").is_read_only);
    }
}
