//! The config of one broker: parsed, checked, by field and by name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::checks;
use super::dynamic::DynamicConfigs;
use super::ibp::MetadataVersion;
use super::listener::{Listener, ProtocolMap};
use super::table;
use super::topic::TopicConfig;
use super::value::{ConfigError, Password, Value};
use super::values::{Values, Warning};
use crate::properties::Properties;
use crate::security_protocol::SecurityProtocol;

/// Every reason why a broker does not start on its properties, in the order of the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    /// One line an error.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{error}")?;
        }
        Ok(())
    }
}

macro_rules! broker_config {
    ($($field:ident: $type:ty = $key:literal,)*) => {
        /// What a broker's properties say. Plain fields carry the key's own name, unit and meaning: see
        /// `docs/configuration.md`. Never changes; a new one is parsed.
        #[derive(Clone, Debug)]
        pub struct BrokerConfig {
            /// `listeners`.
            pub listeners: Vec<Listener>,
            /// `advertised.listeners`, else `listeners`.
            pub advertised_listeners: Vec<Listener>,
            /// The listener that other brokers use, in upper case.
            pub inter_broker_listener_name: String,
            /// How connections between brokers are secured.
            pub inter_broker_security_protocol: SecurityProtocol,
            /// `control.plane.listener.name`, in upper case.
            pub control_plane_listener_name: Option<String>,
            /// `listener.security.protocol.map`.
            pub listener_security_protocol_map: ProtocolMap,
            /// `log.dirs`, else `log.dir`; at least one.
            pub log_dirs: Vec<PathBuf>,
            /// `inter.broker.protocol.version`, from 2.8 on.
            pub inter_broker_protocol_version: MetadataVersion,
            /// `log.message.format.version`, or 3.0 where the inter-broker protocol ignores it.
            pub log_message_format_version: MetadataVersion,
            /// `log.retention.ms`, else minutes, else hours; -1 keeps for ever.
            pub log_retention_ms: i64,
            /// `log.roll.ms`, else hours.
            pub log_roll_ms: i64,
            /// `log.roll.jitter.ms`, else hours.
            pub log_roll_jitter_ms: i64,
            /// `log.flush.interval.ms`, else the scheduler's interval.
            pub log_flush_interval_ms: i64,
            /// `log.message.timestamp.before.max.ms`, else the deprecated difference.
            pub log_message_timestamp_before_max_ms: i64,
            /// `log.message.timestamp.after.max.ms`, else the deprecated difference.
            pub log_message_timestamp_after_max_ms: i64,
            /// `zookeeper.connection.timeout.ms`, else the session timeout.
            pub zookeeper_connection_timeout_ms: i32,
            /// `zookeeper.connect`: hosts with ports, and a chroot.
            pub zookeeper_connect: String,
            /// `max.connections.per.ip.overrides`: host or address, and its limit.
            pub max_connections_per_ip_overrides: BTreeMap<String, i32>,
            $(
                #[doc = concat!("`", $key, "`.")]
                pub $field: $type,
            )*
            pub(super) values: Values,
            warnings: Vec<Warning>,
        }

        impl BrokerConfig {
            fn build(values: Values, checked: checks::Checked, warnings: Vec<Warning>) -> BrokerConfig {
                BrokerConfig {
                    listeners: checked.listeners,
                    advertised_listeners: checked.advertised_listeners,
                    inter_broker_listener_name: checked.inter_broker_listener_name,
                    inter_broker_security_protocol: checked.inter_broker_security_protocol,
                    control_plane_listener_name: checked.control_plane_listener_name,
                    listener_security_protocol_map: checked.protocols,
                    log_dirs: checked.log_dirs,
                    inter_broker_protocol_version: checked.inter_broker_protocol_version,
                    log_message_format_version: checked.log_message_format_version,
                    log_retention_ms: checks::log_retention_ms(&values),
                    log_roll_ms: checks::log_roll_ms(&values),
                    log_roll_jitter_ms: checks::log_roll_jitter_ms(&values),
                    log_flush_interval_ms: values
                        .typed::<Option<i64>>("log.flush.interval.ms")
                        .unwrap_or_else(|| values.typed("log.flush.scheduler.interval.ms")),
                    log_message_timestamp_before_max_ms: timestamp_bound(
                        &values,
                        "log.message.timestamp.before.max.ms",
                    ),
                    log_message_timestamp_after_max_ms: timestamp_bound(
                        &values,
                        "log.message.timestamp.after.max.ms",
                    ),
                    zookeeper_connection_timeout_ms: values
                        .typed::<Option<i32>>("zookeeper.connection.timeout.ms")
                        .unwrap_or_else(|| values.typed("zookeeper.session.timeout.ms")),
                    zookeeper_connect: values
                        .typed::<Option<String>>("zookeeper.connect")
                        .unwrap_or_default(),
                    max_connections_per_ip_overrides: checked.max_connections_per_ip_overrides,
                    $($field: values.typed($key),)*
                    warnings,
                    values,
                }
            }
        }
    };
}

broker_config! {
    broker_id: i32 = "broker.id",
    broker_id_generation_enable: bool = "broker.id.generation.enable",
    reserved_broker_max_id: i32 = "reserved.broker.max.id",
    broker_rack: Option<String> = "broker.rack",
    num_io_threads: i32 = "num.io.threads",
    background_threads: i32 = "background.threads",
    num_network_threads: i32 = "num.network.threads",
    request_timeout_ms: i32 = "request.timeout.ms",
    delete_topic_enable: bool = "delete.topic.enable",
    controlled_shutdown_enable: bool = "controlled.shutdown.enable",
    controlled_shutdown_max_retries: i32 = "controlled.shutdown.max.retries",
    controlled_shutdown_retry_backoff_ms: i64 = "controlled.shutdown.retry.backoff.ms",
    max_incremental_fetch_session_cache_slots: i32 = "max.incremental.fetch.session.cache.slots",
    fetch_max_bytes: i32 = "fetch.max.bytes",

    zookeeper_session_timeout_ms: i32 = "zookeeper.session.timeout.ms",
    zookeeper_max_in_flight_requests: i32 = "zookeeper.max.in.flight.requests",
    zookeeper_set_acl: bool = "zookeeper.set.acl",
    zookeeper_ssl_client_enable: bool = "zookeeper.ssl.client.enable",
    zookeeper_ssl_keystore_location: Option<String> = "zookeeper.ssl.keystore.location",
    zookeeper_ssl_keystore_password: Option<Password> = "zookeeper.ssl.keystore.password",
    zookeeper_ssl_keystore_type: Option<String> = "zookeeper.ssl.keystore.type",
    zookeeper_ssl_truststore_location: Option<String> = "zookeeper.ssl.truststore.location",
    zookeeper_ssl_truststore_password: Option<Password> = "zookeeper.ssl.truststore.password",
    zookeeper_ssl_truststore_type: Option<String> = "zookeeper.ssl.truststore.type",
    zookeeper_ssl_protocol: String = "zookeeper.ssl.protocol",
    zookeeper_ssl_enabled_protocols: Option<Vec<String>> = "zookeeper.ssl.enabled.protocols",
    zookeeper_ssl_cipher_suites: Option<Vec<String>> = "zookeeper.ssl.cipher.suites",
    zookeeper_ssl_endpoint_identification_algorithm: String = "zookeeper.ssl.endpoint.identification.algorithm",
    zookeeper_ssl_crl_enable: bool = "zookeeper.ssl.crl.enable",
    zookeeper_ssl_ocsp_enable: bool = "zookeeper.ssl.ocsp.enable",

    socket_send_buffer_bytes: i32 = "socket.send.buffer.bytes",
    socket_receive_buffer_bytes: i32 = "socket.receive.buffer.bytes",
    socket_request_max_bytes: i32 = "socket.request.max.bytes",
    socket_listen_backlog_size: i32 = "socket.listen.backlog.size",
    max_connections_per_ip: i32 = "max.connections.per.ip",
    max_connections: i32 = "max.connections",
    max_connection_creation_rate: i32 = "max.connection.creation.rate",
    connections_max_idle_ms: i64 = "connections.max.idle.ms",
    connection_failed_authentication_delay_ms: i32 = "connection.failed.authentication.delay.ms",
    queued_max_requests: i32 = "queued.max.requests",
    queued_max_request_bytes: i64 = "queued.max.request.bytes",
    socket_connection_setup_timeout_ms: i64 = "socket.connection.setup.timeout.ms",
    socket_connection_setup_timeout_max_ms: i64 = "socket.connection.setup.timeout.max.ms",

    controller_socket_timeout_ms: i32 = "controller.socket.timeout.ms",
    default_replication_factor: i32 = "default.replication.factor",
    replica_lag_time_max_ms: i64 = "replica.lag.time.max.ms",
    replica_socket_timeout_ms: i32 = "replica.socket.timeout.ms",
    replica_socket_receive_buffer_bytes: i32 = "replica.socket.receive.buffer.bytes",
    replica_fetch_max_bytes: i32 = "replica.fetch.max.bytes",
    replica_fetch_wait_max_ms: i32 = "replica.fetch.wait.max.ms",
    replica_fetch_backoff_ms: i32 = "replica.fetch.backoff.ms",
    replica_fetch_min_bytes: i32 = "replica.fetch.min.bytes",
    replica_fetch_response_max_bytes: i32 = "replica.fetch.response.max.bytes",
    num_replica_fetchers: i32 = "num.replica.fetchers",
    replica_selector_class: Option<String> = "replica.selector.class",
    replication_quota_window_num: i32 = "replication.quota.window.num",
    replication_quota_window_size_seconds: i32 = "replication.quota.window.size.seconds",
    replica_high_watermark_checkpoint_interval_ms: i64 = "replica.high.watermark.checkpoint.interval.ms",
    auto_leader_rebalance_enable: bool = "auto.leader.rebalance.enable",
    leader_imbalance_per_broker_percentage: i32 = "leader.imbalance.per.broker.percentage",
    leader_imbalance_check_interval_seconds: i64 = "leader.imbalance.check.interval.seconds",
    unclean_leader_election_enable: bool = "unclean.leader.election.enable",

    num_partitions: i32 = "num.partitions",
    auto_create_topics_enable: bool = "auto.create.topics.enable",
    min_insync_replicas: i32 = "min.insync.replicas",
    num_recovery_threads_per_data_dir: i32 = "num.recovery.threads.per.data.dir",
    log_segment_bytes: i32 = "log.segment.bytes",
    log_retention_bytes: i64 = "log.retention.bytes",
    log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms",
    log_cleanup_policy: Vec<String> = "log.cleanup.policy",
    log_index_size_max_bytes: i32 = "log.index.size.max.bytes",
    log_index_interval_bytes: i32 = "log.index.interval.bytes",
    log_flush_interval_messages: i64 = "log.flush.interval.messages",
    log_flush_scheduler_interval_ms: i64 = "log.flush.scheduler.interval.ms",
    log_flush_offset_checkpoint_interval_ms: i32 = "log.flush.offset.checkpoint.interval.ms",
    log_flush_start_offset_checkpoint_interval_ms: i32 = "log.flush.start.offset.checkpoint.interval.ms",
    log_segment_delete_delay_ms: i64 = "log.segment.delete.delay.ms",
    log_preallocate: bool = "log.preallocate",
    log_message_timestamp_type: String = "log.message.timestamp.type",
    log_message_downconversion_enable: bool = "log.message.downconversion.enable",
    log_initial_task_delay_ms: i64 = "log.initial.task.delay.ms",
    message_max_bytes: i32 = "message.max.bytes",
    compression_type: String = "compression.type",

    log_cleaner_enable: bool = "log.cleaner.enable",
    log_cleaner_threads: i32 = "log.cleaner.threads",
    log_cleaner_dedupe_buffer_size: i64 = "log.cleaner.dedupe.buffer.size",
    log_cleaner_io_buffer_size: i32 = "log.cleaner.io.buffer.size",
    log_cleaner_io_buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor",
    log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second",
    log_cleaner_backoff_ms: i64 = "log.cleaner.backoff.ms",

    offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes",
    offsets_load_buffer_size: i32 = "offsets.load.buffer.size",
    offsets_topic_replication_factor: i16 = "offsets.topic.replication.factor",
    offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions",
    offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes",
    offsets_topic_compression_codec: i32 = "offsets.topic.compression.codec",
    offsets_retention_minutes: i32 = "offsets.retention.minutes",
    offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms",
    offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms",
    group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms",
    group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms",
    group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms",
    group_max_size: i32 = "group.max.size",

    transaction_state_log_min_isr: i32 = "transaction.state.log.min.isr",
    transaction_state_log_replication_factor: i16 = "transaction.state.log.replication.factor",
    transaction_state_log_num_partitions: i32 = "transaction.state.log.num.partitions",
    transaction_state_log_segment_bytes: i32 = "transaction.state.log.segment.bytes",
    transaction_state_log_load_buffer_size: i32 = "transaction.state.log.load.buffer.size",
    transaction_partition_verification_enable: bool = "transaction.partition.verification.enable",
    transaction_max_timeout_ms: i32 = "transaction.max.timeout.ms",
    transaction_abort_timed_out_transaction_cleanup_interval_ms: i32 =
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    transaction_remove_expired_transaction_cleanup_interval_ms: i32 =
        "transaction.remove.expired.transaction.cleanup.interval.ms",
    transactional_id_expiration_ms: i32 = "transactional.id.expiration.ms",
    producer_id_expiration_ms: i32 = "producer.id.expiration.ms",
    producer_id_expiration_check_interval_ms: i32 = "producer.id.expiration.check.interval.ms",

    authorizer_class_name: String = "authorizer.class.name",
    password_encoder_secret: Option<Password> = "password.encoder.secret",
}

/// The bound on timestamps, or the deprecated difference where the bound stands at its default.
fn timestamp_bound(values: &Values, name: &str) -> i64 {
    match values.typed(name) {
        i64::MAX => values.typed("log.message.timestamp.difference.max.ms"),
        bound => bound,
    }
}

impl BrokerConfig {
    /// Parses and checks the properties of a file, overrides already put in. Gives every error at once.
    pub fn parse(properties: &Properties) -> Result<BrokerConfig, ConfigErrors> {
        BrokerConfig::parse_with(properties, DynamicConfigs::default())
    }

    /// The same file, with settings from ZooKeeper over it.
    pub(super) fn parse_over(&self, dynamic: DynamicConfigs) -> Result<BrokerConfig, ConfigErrors> {
        let mut config = BrokerConfig::parse_with(self.values.file(), dynamic)?;
        // Not dynamic; and these may have been made whole since.
        config.log_dirs.clone_from(&self.log_dirs);
        config.checked_for_topics()
    }

    /// Refuses what makes no topic's default, as Kafka does when it has read its properties: it begins to make logs of them.
    pub fn checked_for_topics(self) -> Result<BrokerConfig, ConfigErrors> {
        match TopicConfig::new(&self, &Properties::new()) {
            Ok(_) => Ok(self),
            Err(mut error) => {
                if let Some(name) = table::topic_synonym(&error.key) {
                    error.key = name.to_owned();
                }
                Err(ConfigErrors(vec![error]))
            }
        }
    }

    fn parse_with(
        properties: &Properties,
        dynamic: DynamicConfigs,
    ) -> Result<BrokerConfig, ConfigErrors> {
        let mut tabled = Values::parse(properties, dynamic);
        let checked = checks::check(&tabled.values, &tabled.errors);
        tabled.errors.extend(checked.errors);
        match checked.value {
            Some(checked) if tabled.errors.is_empty() => {
                let mut warnings = tabled.warnings;
                warnings.extend(checks::warnings(&tabled.values).map(Warning::Message));
                Ok(BrokerConfig::build(tabled.values, checked, warnings))
            }
            _ => Err(ConfigErrors(tabled.errors)),
        }
    }

    /// What this would be if its file had more lines; a key that it sets keeps its value.
    pub fn with_more(&self, more: &Properties) -> Result<BrokerConfig, ConfigErrors> {
        let mut properties = more.clone();
        properties.extend(self.values.file().clone());
        BrokerConfig::parse(&properties)
    }

    /// Settings that do not do what their writer may think.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// A value by name; `None` is Kafka's null, and the answer for an unknown key.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// A value that a listener may set for itself by `listener.name.<listener>.<name>`.
    pub fn listener_value(&self, listener: &str, name: &str) -> Option<&Value> {
        self.values.get_for_listener(listener, name)
    }

    /// The effective configuration as Kafka prints it at start: a line `\tkey = value` for every key of the
    /// broker's definition, sorted, secrets hidden.
    pub fn to_log_text(&self) -> String {
        let mut keys: Vec<_> = table::broker_keys().filter(|key| key.defined).collect();
        keys.sort_by_key(|key| key.name);
        let mut text = "KafkaConfig values: \n".to_owned();
        for key in keys {
            let value = match self.value(key.name) {
                None => "null".to_owned(),
                Some(Value::List(elements)) => format!("[{}]", elements.join(", ")),
                Some(Value::Class(name)) => format!("class {name}"),
                Some(value) => value.to_string(),
            };
            text.push_str(&format!("\t{} = {value}\n", key.name));
        }
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A broker with the least that it needs, and more lines.
    pub(in crate::config) fn broker(lines: &str) -> BrokerConfig {
        parse(lines).unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn parse(lines: &str) -> Result<BrokerConfig, ConfigErrors> {
        let text = format!("broker.id=8\nzookeeper.connect=127.0.0.1:2181\n{lines}");
        BrokerConfig::parse(&crate::properties::parse(text.as_bytes()))
    }

    fn errors(lines: &str) -> String {
        match parse(lines) {
            Ok(_) => "ok".to_owned(),
            Err(errors) => errors.to_string(),
        }
    }

    #[test]
    fn defaults() {
        let config = broker("");
        assert_eq!(config.broker_id, 8);
        assert_eq!(config.listeners[0].to_string(), "PLAINTEXT://:9092");
        assert_eq!(config.advertised_listeners, config.listeners);
        assert_eq!(config.inter_broker_listener_name, "PLAINTEXT");
        assert_eq!(config.log_dirs, [PathBuf::from("/tmp/kafka-logs")]);
        assert_eq!(config.log_retention_ms, 604_800_000);
        assert_eq!(config.zookeeper_connection_timeout_ms, 18_000);
        assert_eq!(config.inter_broker_protocol_version, MetadataVersion::V3_9_IV0);
        assert!(config.warnings().is_empty());
        assert_eq!(config.value("num.io.threads"), Some(&Value::Int(8)));
        assert_eq!(config.value("broker.rack"), None);
    }

    #[test]
    fn finer_units_win() {
        let retention = |lines: &str| broker(lines).log_retention_ms;
        assert_eq!(retention("log.retention.hours=1"), 3_600_000);
        assert_eq!(retention("log.retention.hours=1\nlog.retention.minutes=2"), 120_000);
        assert_eq!(retention("log.retention.minutes=2\nlog.retention.ms=3"), 3);
        assert_eq!(retention("log.retention.hours=-1"), -1);
        assert_eq!(broker("log.roll.hours=2").log_roll_ms, 7_200_000);
        assert_eq!(broker("log.flush.scheduler.interval.ms=9").log_flush_interval_ms, 9);
        let dirs = broker("log.dir=/a\nlog.dirs= /b , /c ,").log_dirs;
        assert_eq!(dirs, [PathBuf::from("/b"), PathBuf::from("/c")]);
    }

    #[test]
    fn what_makes_no_topics_default_is_refused() {
        let refused = broker("log.flush.interval.ms=-5").checked_for_topics().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "Invalid value -5 for configuration flush.ms: Value must be at least 0 (log.flush.interval.ms=-5)"
        );
        assert!(broker("").checked_for_topics().is_ok());
    }

    #[test]
    fn all_errors_come_at_once() {
        let lines = "num.io.threads=x\nnum.partitions=0\ncompression.type=brotli\nlog.dirs=\nlisteners=NONSENSE://:1";
        assert_eq!(
            errors(lines),
            "Invalid value x for configuration num.io.threads: Not a number of type INT\n\
             Invalid value 0 for configuration num.partitions: Value must be at least 1\n\
             Invalid value brotli for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer\n\
             requirement failed: At least one log directory must be defined via log.dirs or log.dir. (log.dirs=)\n\
             Error creating broker listeners from 'NONSENSE://:1': No security protocol defined for listener NONSENSE (listeners=NONSENSE://:1)"
        );
    }

    /// The settings that errors name, in their order.
    fn named(lines: &str) -> Vec<String> {
        let name = |line: &str| {
            let (_, setting) = line.rsplit_once(" (").unwrap_or_else(|| panic!("{line}"));
            setting.trim_end_matches(')').to_owned()
        };
        errors(lines).lines().map(name).collect()
    }

    #[test]
    fn a_bad_listener_setting_hides_no_other() {
        let lines = [
            "listener.security.protocol.map=A:PLAINTEXT,B:NONE",
            "inter.broker.listener.name= ",
            "listeners=A//:1",
            "advertised.listeners=A://h:x",
            "control.plane.listener.name= ",
            "early.start.listeners=Z",
            "inter.broker.protocol.version=2.7",
            "max.connections.per.ip.overrides=h:x",
            "connections.max.idle.ms=1",
        ];
        // Without listeners nobody can say whether one is to start early.
        let told = lines.iter().filter(|line| !line.starts_with("early"));
        let told = told.map(|line| line.trim_end().to_owned());
        assert_eq!(named(&lines.join("\n")), told.collect::<Vec<_>>());
        // Each alone, where the others are good.
        for (lines, told) in [
            ("listeners=X://:1", "listeners=X://:1"),
            ("listeners=PLAINTEXT://:1,SSL://:1", "listeners=PLAINTEXT://:1,SSL://:1"),
            (
                "advertised.listeners=SASL_SSL://:1\ninter.broker.listener.name=SASL_SSL",
                "advertised.listeners=SASL_SSL://:1",
            ),
            ("listeners=PLAINTEXT://0.0.0.0:1", "listeners=PLAINTEXT://0.0.0.0:1"),
            ("listeners=SSL://:1", "listeners=SSL://:1"),
            ("inter.broker.listener.name=X", "inter.broker.listener.name=X"),
            ("control.plane.listener.name=PLAINTEXT", "control.plane.listener.name=PLAINTEXT"),
            ("control.plane.listener.name=X", "control.plane.listener.name=X"),
            ("early.start.listeners=Z", "early.start.listeners=Z"),
            (
                "listener.security.protocol.map=PLAINTEXT",
                "listener.security.protocol.map=PLAINTEXT",
            ),
            (
                "replica.fetch.wait.max.ms=30001\nreplica.lag.time.max.ms=40000",
                "replica.fetch.wait.max.ms=30001",
            ),
            ("process.roles=broker", "process.roles=broker"),
        ] {
            assert_eq!(named(lines), [told], "{lines}");
        }
    }

    #[test]
    fn one_bad_value_gives_one_error() {
        assert_eq!(
            errors("broker.id=x"),
            "Invalid value x for configuration broker.id: Not a number of type INT"
        );
        assert_eq!(errors("replica.fetch.wait.max.ms=x").lines().count(), 1);
    }

    #[test]
    fn secrets_stay_hidden() {
        let config = broker(
            "ssl.key.password=hush\nlistener.name.x.ssl.keystore.password=hush\nfoo.password=hush",
        );
        for text in
            [format!("{config:?}"), config.to_log_text(), format!("{:?}", config.warnings())]
        {
            assert!(!text.contains("hush"), "{text}");
        }
        assert_eq!(config.value("ssl.key.password"), Some(&Value::Password(Password::new("hush"))));
    }

    #[test]
    fn warnings_name_what_does_nothing() {
        let config = broker(
            "foo=1\n// comment\nssl.protocol=TLS\ngroup.share.enable=true\nrsm.config.x=1\nlog.dirs=/a",
        );
        let texts: Vec<_> = config.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "Unknown configuration '//' is ignored",
                "Unknown configuration 'foo' is ignored",
                "Configuration 'group.share.enable' is set, but acts in KRaft mode only",
                "Configuration 'rsm.config.x' is set, but needs the Java virtual machine",
                "Configuration 'ssl.protocol' is set, but has no effect yet",
            ]
        );
    }

    #[test]
    fn the_socket_that_tls_to_zookeeper_needs_is_not_warned_of() {
        let warnings = |class: &str| {
            let line = format!("zookeeper.clientCnxnSocket=org.apache.zookeeper.{class}");
            broker(&line).warnings().len()
        };
        assert_eq!((warnings("ClientCnxnSocketNetty"), warnings("Other")), (0, 1));
    }

    #[test]
    fn an_old_record_format_is_warned_of() {
        let warnings = |lines: &str| {
            let config = broker(lines);
            config.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let set = "Configuration 'log.message.format.version' is set, but is ignored, as by Kafka at IBP >= 3.0";
        assert_eq!(warnings("log.message.format.version=2.0"), [set]);
        assert_eq!(
            warnings("log.message.format.version=0.10.2"),
            [
                set,
                "Broker configuration log.message.format.version with value 0.10.2 is ignored because the \
                 inter-broker protocol version `3.9-IV0` is greater or equal than 3.0. This configuration is \
                 deprecated and it will be removed in Apache Kafka 4.0.",
            ]
        );
        assert_eq!(
            warnings("inter.broker.protocol.version=2.8\nlog.message.format.version=0.10.2")[1],
            "Broker configuration log.message.format.version with value 0.10.2 is ignored: records are stored in \
             the newest format, and converted for consumers that need an old one"
        );
    }

    #[test]
    fn listeners_advertised_and_between_brokers() {
        let config = broker(
            "listeners=CLIENT://0.0.0.0:0,INTERNAL://[::1]:9093\nadvertised.listeners=CLIENT://host:1,INTERNAL://host:1\n\
             listener.security.protocol.map=client:PLAINTEXT,internal:PLAINTEXT\ninter.broker.listener.name=internal",
        );
        assert_eq!(config.inter_broker_listener_name, "INTERNAL");
        assert_eq!(config.advertised_listeners[1].to_string(), "INTERNAL://host:1");
        assert_eq!(config.listeners[1].host.as_deref(), Some("::1"));
    }

    #[test]
    fn listener_settings_override_the_brokers() {
        let config = broker("max.connections=10\nlistener.name.plaintext.max.connections=3");
        assert_eq!(config.listener_value("PLAINTEXT", "max.connections"), Some(&Value::Int(3)));
        assert_eq!(config.listener_value("OTHER", "max.connections"), Some(&Value::Int(10)));
        assert_eq!(
            errors("listener.name.plaintext.max.connections=x"),
            "Invalid value x for configuration max.connections: Not a number of type INT (listener.name.plaintext.max.connections=x)"
        );
    }

    #[test]
    fn conflicts_are_told_in_kafkas_words() {
        let cases = [
            (
                "broker.id=-5",
                "requirement failed: broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
            ),
            ("broker.id=2000", "not greater than reserved.broker.max.id (broker.id=2000)"),
            (
                "broker.id=-1\nbroker.id.generation.enable=false",
                "requirement failed: broker.id must be greater than or equal to 0 (broker.id=-1)",
            ),
            ("node.id=9", "You must set `node.id` to the same value as `broker.id`. (node.id=9)"),
            (
                "inter.broker.listener.name=OTHER",
                "Listener with name OTHER defined in inter.broker.listener.name not found in listener.security.protocol.map.",
            ),
            (
                "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
            ),
            (
                "inter.broker.listener.name=SSL",
                "The valid options based on currently configured listeners are PLAINTEXT",
            ),
            (
                "listeners=PLAINTEXT://0.0.0.0:9092",
                "requirement failed: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
            ),
            (
                "advertised.listeners=SSL://h:1,PLAINTEXT://h:2",
                "Found SSL,PLAINTEXT. The valid options based on the current configuration are PLAINTEXT",
            ),
            (
                "control.plane.listener.name=PLAINTEXT",
                "Currently they both have the value ListenerName(PLAINTEXT)",
            ),
            (
                "listener.security.protocol.map=PLAINTEXT",
                "Error parsing configuration property 'listener.security.protocol.map': begin 0, end -1, length 9",
            ),
            (
                "listener.security.protocol.map=PLAINTEXT:NO",
                "Invalid security protocol `NO` defined in listener.security.protocol.map",
            ),
            (
                "offsets.commit.required.acks=5",
                "offsets.commit.required.acks must be greater or equal to -1 and less or equal to offsets.topic.replication.factor (offsets.commit.required.acks=5)",
            ),
            (
                "log.retention.ms=0",
                "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
            ),
            (
                "queued.max.request.bytes=10",
                "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
            ),
            ("max.connections.per.ip=0", "can be set to zero only if"),
            ("max.connections.per.ip.overrides=a:b", "For input string: \"b\""),
            (
                "connections.max.idle.ms=100",
                "connection.failed.authentication.delay.ms=100 should always be less than connections.max.idle.ms=100",
            ),
            (
                "controller.listener.names=A,B",
                "controller.listener.names must be empty when not running in KRaft mode: [A, B]",
            ),
            ("process.roles=broker", "process.roles must be empty"),
            ("log.cleaner.threads=128", "at least 1MB per cleaner thread"),
            (
                "inter.broker.protocol.version=9.9",
                "Invalid value 9.9 for configuration inter.broker.protocol.version: Version 9.9 is not a valid version",
            ),
            (
                "group.coordinator.rebalance.protocols=consumer",
                "Disabling the 'classic' protocol is not supported.",
            ),
        ];
        for (lines, expected) in cases {
            let errors = errors(lines);
            assert!(errors.contains(expected), "{lines}: {errors}");
            assert_eq!(errors.lines().count(), 1, "{lines}: {errors}");
        }
        let nothing = BrokerConfig::parse(&Properties::new()).expect_err("needs ZooKeeper");
        assert_eq!(
            nothing.to_string(),
            "Missing required configuration `zookeeper.connect` which has no default value."
        );
    }

    #[test]
    fn the_inter_broker_protocol_is_honoured_from_2_8_on() {
        let ibp = |version: &str| errors(&format!("inter.broker.protocol.version={version}"));
        for good in ["2.8", "2.8-IV0", "3.0", "3.8.1", "3.9", "4.0-IV1"] {
            assert_eq!(ibp(good), "ok", "{good}");
        }
        assert_eq!(
            ibp("2.7"),
            "inter.broker.protocol.version 2.7-IV2 is not supported: this broker joins clusters at 2.8 or later (inter.broker.protocol.version=2.7)"
        );
        assert_eq!(
            ibp("0.9.0"),
            "requirement failed: log.message.format.version 3.0-IV1 can only be used when inter.broker.protocol.version is set to version 0.11.0 or higher (inter.broker.protocol.version=0.9.0)\n\
             inter.broker.protocol.version 0.9.0 is not supported: this broker joins clusters at 2.8 or later (inter.broker.protocol.version=0.9.0)"
        );
    }

    #[test]
    fn the_log_text_has_every_key() {
        let text = broker("log.cleanup.policy=compact,delete\nssl.key.password=x").to_log_text();
        assert_eq!(text.lines().count(), 329);
        for line in [
            "\tbroker.rack = null",
            "\tlog.cleanup.policy = [compact, delete]",
            "\tssl.key.password = [hidden]",
            "\tprincipal.builder.class = class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
    }

    #[test]
    fn the_log_text_is_kafkas() {
        let file = include_bytes!("../../../tests/golden/server-logs/broker-1/server.properties");
        let log = include_str!("../../../tests/golden/server-logs/broker-1/server.log");
        let (_, after) = log.split_once("KafkaConfig values: \n").expect("Kafka logs its config");
        let recorded: Vec<_> = after.lines().take_while(|line| line.starts_with('\t')).collect();
        let config = BrokerConfig::parse(&crate::properties::parse(file)).expect("Kafka took it");
        let text = config.to_log_text();
        let ours: Vec<_> = text.lines().skip(1).collect();
        for (ours, recorded) in ours.iter().zip(&recorded) {
            assert_eq!(ours, recorded);
        }
        assert_eq!(ours.len(), recorded.len());
    }
}
