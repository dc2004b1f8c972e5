//! The config of one topic: its own settings over those of the broker. Source: `LogConfig`.

use std::collections::BTreeMap;

use super::broker::BrokerConfig;
use super::checks::{OldFormat, STORED_AS_NEWEST, old_format};
use super::ibp::MetadataVersion;
use super::table;
use super::value::{ConfigError, Value};
use super::values::FromValue;
use crate::properties::Properties;

/// What a topic is refused for; Kafka answers INVALID_CONFIG to all, but wraps the text of some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicConfigError {
    /// Not a topic key, or two values that do not go together. Kafka's `InvalidConfigurationException`.
    #[error("{0}")]
    Conflict(String),
    /// A value that does not parse or is out of range. Kafka's `ConfigException`: when configs are altered its text
    /// is given as `Invalid config value for resource ...: <text>`.
    #[error("{}", .0.message)]
    Value(ConfigError),
}

macro_rules! topic_config {
    ($($field:ident: $type:ty = $key:literal,)*) => {
        /// What holds for one topic. Plain fields carry the key's own name, unit and meaning: see
        /// `docs/configuration.md`. Never changes; a new one is read when a config changes.
        #[derive(Clone, Debug, PartialEq)]
        pub struct TopicConfig {
            /// `cleanup.policy` has `compact`.
            pub compact: bool,
            /// `cleanup.policy` has `delete`.
            pub delete: bool,
            /// `message.format.version`, or 3.0 where the inter-broker protocol ignores it.
            pub message_format_version: MetadataVersion,
            /// `message.timestamp.before.max.ms`, else the deprecated difference.
            pub message_timestamp_before_max_ms: i64,
            /// `message.timestamp.after.max.ms`, else the deprecated difference.
            pub message_timestamp_after_max_ms: i64,
            $(
                #[doc = concat!("`", $key, "`.")]
                pub $field: $type,
            )*
        }

        impl TopicConfig {
            fn build(values: &TopicValues, broker: &BrokerConfig) -> TopicConfig {
                let policy: Vec<String> = values.typed("cleanup.policy");
                let ignores_format =
                    broker.inter_broker_protocol_version >= MetadataVersion::V3_0_IV1;
                let format = MetadataVersion::parse(&values.typed::<String>("message.format.version"));
                TopicConfig {
                    compact: policy.iter().any(|name| name == "compact"),
                    delete: policy.iter().any(|name| name == "delete"),
                    message_format_version: format
                        .filter(|_| !ignores_format)
                        .unwrap_or(MetadataVersion::V3_0_IV1),
                    message_timestamp_before_max_ms: values.bound("message.timestamp.before.max.ms"),
                    message_timestamp_after_max_ms: values.bound("message.timestamp.after.max.ms"),
                    $($field: values.typed($key),)*
                }
            }
        }
    };
}

topic_config! {
    segment_bytes: i32 = "segment.bytes",
    segment_ms: i64 = "segment.ms",
    segment_jitter_ms: i64 = "segment.jitter.ms",
    segment_index_bytes: i32 = "segment.index.bytes",
    flush_messages: i64 = "flush.messages",
    flush_ms: i64 = "flush.ms",
    retention_bytes: i64 = "retention.bytes",
    retention_ms: i64 = "retention.ms",
    max_message_bytes: i32 = "max.message.bytes",
    index_interval_bytes: i32 = "index.interval.bytes",
    delete_retention_ms: i64 = "delete.retention.ms",
    min_compaction_lag_ms: i64 = "min.compaction.lag.ms",
    max_compaction_lag_ms: i64 = "max.compaction.lag.ms",
    file_delete_delay_ms: i64 = "file.delete.delay.ms",
    min_cleanable_dirty_ratio: f64 = "min.cleanable.dirty.ratio",
    unclean_leader_election_enable: bool = "unclean.leader.election.enable",
    min_insync_replicas: i32 = "min.insync.replicas",
    compression_type: String = "compression.type",
    compression_gzip_level: i32 = "compression.gzip.level",
    compression_lz4_level: i32 = "compression.lz4.level",
    compression_zstd_level: i32 = "compression.zstd.level",
    preallocate: bool = "preallocate",
    message_timestamp_type: String = "message.timestamp.type",
    message_downconversion_enable: bool = "message.downconversion.enable",
    leader_replication_throttled_replicas: Vec<String> = "leader.replication.throttled.replicas",
    follower_replication_throttled_replicas: Vec<String> = "follower.replication.throttled.replicas",
}

impl TopicConfig {
    /// Reads a topic's settings, as they stand in ZooKeeper, over the broker's. Unknown keys are passed over; a
    /// value that does not parse is refused.
    pub fn new(broker: &BrokerConfig, overrides: &Properties) -> Result<TopicConfig, ConfigError> {
        Ok(TopicConfig::build(&TopicValues::parse(broker, overrides)?, broker))
    }

    /// A topic without settings of its own.
    pub fn of_broker(broker: &BrokerConfig) -> TopicConfig {
        TopicConfig::new(broker, &Properties::new()).expect("a checked broker has valid defaults")
    }

    /// What is to be warned of in a topic's own settings. Source: `TopicConfigHandler.excludedConfigs`.
    pub fn warning(broker: &BrokerConfig, topic: &str, overrides: &Properties) -> Option<String> {
        const FORMAT: &str = "message.format.version";
        let format = overrides.get(FORMAT)?;
        let ibp = match broker.value("inter.broker.protocol.version") {
            Some(Value::String(ibp)) => ibp,
            _ => return None,
        };
        match old_format(format, ibp) {
            Some(OldFormat::Ignored) => Some(format!(
                "Topic configuration {FORMAT} with value `{format}` is ignored for `{topic}` because the \
                 inter-broker protocol version `{ibp}` is greater or equal than 3.0. This configuration is \
                 deprecated and it will be removed in Apache Kafka 4.0."
            )),
            Some(OldFormat::Honoured) => Some(format!(
                "Topic configuration {FORMAT} with value `{format}` is ignored for `{topic}`: {STORED_AS_NEWEST}"
            )),
            None => {
                let version = MetadataVersion::parse(format)?;
                let broker_version = broker.inter_broker_protocol_version;
                let is_higher =
                    broker_version < version && broker_version < MetadataVersion::V3_0_IV1;
                is_higher.then(|| {
                    format!(
                        "Topic configuration {FORMAT} is ignored for `{topic}` because `{format}` is higher \
                         than what is allowed by the inter-broker protocol version `{ibp}`"
                    )
                })
            }
        }
    }

    /// Age that makes the active segment roll; compaction may ask for an earlier roll.
    pub fn segment_ms_max(&self) -> i64 {
        if self.compact && self.max_compaction_lag_ms > 0 {
            self.max_compaction_lag_ms.min(self.segment_ms)
        } else {
            self.segment_ms
        }
    }

    /// Whether the broker stamps records when it appends them.
    pub fn is_log_append_time(&self) -> bool {
        self.message_timestamp_type == "LogAppendTime"
    }

    /// The level of the codec that `compression.type` names, where that codec has levels.
    pub fn compression_level(&self) -> Option<i32> {
        match self.compression_type.as_str() {
            "gzip" => Some(self.compression_gzip_level),
            "lz4" => Some(self.compression_lz4_level),
            "zstd" => Some(self.compression_zstd_level),
            _ => None,
        }
    }
}

/// Checks the settings that a topic is about to have. Source: `LogConfig.validate`, in ZooKeeper mode.
pub fn validate(broker: &BrokerConfig, overrides: &Properties) -> Result<(), TopicConfigError> {
    if let Some(name) = overrides.keys().find(|name| table::topic_key(name).is_none()) {
        return Err(TopicConfigError::Conflict(format!("Unknown topic config name: {name}")));
    }
    let values = TopicValues::parse(broker, overrides).map_err(TopicConfigError::Value)?;
    let least: i64 = values.typed("min.compaction.lag.ms");
    let most: i64 = values.typed("max.compaction.lag.ms");
    if least > most {
        return Err(TopicConfigError::Conflict(format!(
            "conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )));
    }
    if values.typed("remote.log.delete.on.disable") || values.typed("remote.log.copy.disable") {
        return Err(TopicConfigError::Conflict(
            "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."
                .to_owned(),
        ));
    }
    if values.typed("remote.storage.enable") {
        let message = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.";
        return Err(TopicConfigError::Value(ConfigError::conflict(
            "remote.storage.enable",
            Some("true".to_owned()),
            message,
        )));
    }
    Ok(())
}

/// Every topic key with the value that holds.
pub(super) struct TopicValues(BTreeMap<&'static str, Value>);

impl TopicValues {
    pub(super) fn parse(
        broker: &BrokerConfig,
        overrides: &Properties,
    ) -> Result<TopicValues, ConfigError> {
        let mut values = BTreeMap::new();
        for key in table::topic_keys() {
            let value = match overrides.get(key.name) {
                Some(text) => Value::parse(key, text)?,
                None => from_broker(broker, key.name).unwrap_or_else(|| {
                    let default = key.default.expect("every topic key has a default");
                    Value::parse(key, default)
                        .expect("a default parses, as a test of the table shows")
                }),
            };
            key.valid.check(key.name, Some(&value))?;
            values.insert(key.name, value);
        }
        Ok(TopicValues(values))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    fn typed<T: FromValue>(&self, name: &str) -> T {
        T::from_value(self.get(name)).unwrap_or_else(|| panic!("{name} has another type"))
    }

    /// A bound on timestamps, or the deprecated difference where the bound stands at its default.
    fn bound(&self, name: &str) -> i64 {
        match self.typed(name) {
            i64::MAX => self.typed("message.timestamp.difference.max.ms"),
            bound => bound,
        }
    }
}

/// The broker's value for a topic key, in the topic's unit. Source: `KafkaConfig.extractLogConfigMap`.
fn from_broker(broker: &BrokerConfig, name: &str) -> Option<Value> {
    match name {
        "segment.ms" => Some(Value::Long(broker.log_roll_ms)),
        "segment.jitter.ms" => Some(Value::Long(broker.log_roll_jitter_ms)),
        "retention.ms" => Some(Value::Long(broker.log_retention_ms)),
        "flush.ms" => Some(Value::Long(broker.log_flush_interval_ms)),
        "message.timestamp.before.max.ms" => {
            Some(Value::Long(broker.log_message_timestamp_before_max_ms))
        }
        "message.timestamp.after.max.ms" => {
            Some(Value::Long(broker.log_message_timestamp_after_max_ms))
        }
        "message.format.version" => {
            Some(Value::String(broker.log_message_format_version.full().to_owned()))
        }
        _ => broker.value(table::topic_synonym(name)?).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::broker::tests::broker;

    fn properties(text: &str) -> Properties {
        crate::properties::parse(text.as_bytes())
    }

    fn refusal(overrides: &str) -> String {
        match validate(&broker(""), &properties(overrides)) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_topic_without_settings_takes_the_brokers() {
        let topic = TopicConfig::of_broker(&broker("log.roll.hours=2\nlog.retention.minutes=5"));
        assert_eq!(topic.segment_ms, 7_200_000);
        assert_eq!(topic.retention_ms, 300_000);
        assert_eq!(topic.flush_ms, i64::MAX);
        assert!(topic.delete && !topic.compact);
        assert_eq!(topic.compression_level(), None);
        assert_eq!(topic.message_format_version, MetadataVersion::V3_0_IV1);
    }

    #[test]
    fn a_topics_own_settings_win() {
        let topic = TopicConfig::new(
            &broker("log.roll.ms=50000\ncompression.type=gzip"),
            &properties("segment.ms=7\ncleanup.policy=compact,delete\ncompression.type=zstd\nmax.compaction.lag.ms=3"),
        )
        .unwrap();
        assert_eq!((topic.segment_ms, topic.segment_ms_max()), (7, 3));
        assert!(topic.delete && topic.compact);
        assert_eq!(topic.compression_level(), Some(3));
    }

    #[test]
    fn the_deprecated_difference_bounds_timestamps_where_nothing_else_does() {
        let broker = broker("log.message.timestamp.difference.max.ms=10");
        let topic = TopicConfig::of_broker(&broker);
        assert_eq!(topic.message_timestamp_before_max_ms, 10);
        let topic =
            TopicConfig::new(&broker, &properties("message.timestamp.after.max.ms=4")).unwrap();
        assert_eq!(topic.message_timestamp_after_max_ms, 4);
        assert_eq!(topic.message_timestamp_before_max_ms, 10);
    }

    #[test]
    fn the_message_format_holds_below_3_0() {
        let old = broker("inter.broker.protocol.version=2.8\nlog.message.format.version=0.10.0");
        assert_eq!(TopicConfig::of_broker(&old).message_format_version.record_version(), 1);
        let own = TopicConfig::new(&old, &properties("message.format.version=0.9.0")).unwrap();
        assert_eq!(own.message_format_version.record_version(), 0);
        let new =
            TopicConfig::new(&broker(""), &properties("message.format.version=0.9.0")).unwrap();
        assert_eq!(new.message_format_version.record_version(), 2);
    }

    #[test]
    fn a_format_that_is_not_obeyed_is_warned_of() {
        let warning = |ibp: &str, format: &str| {
            let broker = broker(&format!("inter.broker.protocol.version={ibp}"));
            let own = properties(&format!("message.format.version={format}"));
            TopicConfig::warning(&broker, "t", &own).unwrap_or_default()
        };
        assert_eq!(
            warning("3.9", "0.10.2"),
            "Topic configuration message.format.version with value `0.10.2` is ignored for `t` because the \
             inter-broker protocol version `3.9` is greater or equal than 3.0. This configuration is deprecated \
             and it will be removed in Apache Kafka 4.0."
        );
        assert_eq!(
            warning("2.8", "0.10.2"),
            "Topic configuration message.format.version with value `0.10.2` is ignored for `t`: records are stored \
             in the newest format, and converted for consumers that need an old one"
        );
        assert_eq!(
            warning("2.8", "3.0"),
            "Topic configuration message.format.version is ignored for `t` because `3.0` is higher than what is \
             allowed by the inter-broker protocol version `2.8`"
        );
        assert_eq!((warning("3.9", "2.0"), warning("2.8", "2.0")), (String::new(), String::new()));
    }

    #[test]
    fn refusals_are_kafkas() {
        assert_eq!(refusal("segment.bytes=14\ncleanup.policy="), "ok");
        assert_eq!(refusal("nonsense=1"), "Unknown topic config name: nonsense");
        assert_eq!(
            refusal("retention.ms=x"),
            "Invalid value x for configuration retention.ms: Not a number of type LONG"
        );
        assert_eq!(
            refusal("min.cleanable.dirty.ratio=1.5"),
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"
        );
        assert_eq!(
            refusal("min.compaction.lag.ms=5\nmax.compaction.lag.ms=4"),
            "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"
        );
        assert_eq!(
            refusal("cleanup.policy=compact,nonsense"),
            "Invalid value nonsense for configuration cleanup.policy: String must be one of: compact, delete"
        );
        assert!(
            refusal("remote.storage.enable=true")
                .starts_with("Tiered Storage functionality is disabled")
        );
        assert!(refusal("remote.log.copy.disable=true").ends_with("under Zookeeper's mode."));
        assert!(
            refusal("leader.replication.throttled.replicas=1").contains("must be the literal '*'")
        );
    }
}
