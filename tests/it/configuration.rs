//! The files that an operator reads and edits: `config/*` and `docs/configuration.md`.

use std::path::{Path, PathBuf};

use common::config::broker::BrokerConfig;
use common::config::document;
use common::config::table::{self, Effect};
use common::config::values::Warning;
use common::properties::{self, Properties};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn load(name: &str) -> Properties {
    let path = root().join("config").join(name);
    properties::parse(&std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}")))
}

/// What a file sets, a key and a value a line.
fn settings(name: &str) -> String {
    load(name).iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

#[test]
fn docs_configuration_is_printed_from_the_table() {
    let path = root().join("docs/configuration.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, document::page()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == document::page(),
        "docs/configuration.md is not what the table says; UPDATE_EXPECT=1 prints it again"
    );
}

#[test]
fn server_properties_are_kafkas() {
    expect_test::expect![[r#"
        broker.id=0
        group.initial.rebalance.delay.ms=0
        log.dirs=/tmp/kafka-logs
        log.retention.check.interval.ms=300000
        log.retention.hours=168
        num.io.threads=8
        num.network.threads=3
        num.partitions=1
        num.recovery.threads.per.data.dir=1
        offsets.topic.replication.factor=1
        socket.receive.buffer.bytes=102400
        socket.request.max.bytes=104857600
        socket.send.buffer.bytes=102400
        transaction.state.log.min.isr=1
        transaction.state.log.replication.factor=1
        zookeeper.connect=localhost:2181
        zookeeper.connection.timeout.ms=18000
    "#]]
    .assert_eq(&settings("server.properties"));
}

#[test]
fn the_other_files_are_kafkas() {
    expect_test::expect![[r#"
        admin.enableServer=false
        clientPort=2181
        dataDir=/tmp/zookeeper
        maxClientCnxns=0
    "#]]
    .assert_eq(&settings("zookeeper.properties"));
    expect_test::expect![[r#"
        bootstrap.servers=localhost:9092
        compression.type=none
    "#]]
    .assert_eq(&settings("producer.properties"));
    expect_test::expect![[r#"
        bootstrap.servers=localhost:9092
        group.id=test-consumer-group
    "#]]
    .assert_eq(&settings("consumer.properties"));
    assert_eq!(load("log4j.properties").len(), 51);
    assert_eq!(load("tools-log4j.properties").len(), 6);
}

#[test]
fn the_shipped_broker_starts_and_warns_only_of_what_is_not_built() {
    let config = BrokerConfig::parse(&load("server.properties")).expect("the shipped file is good");
    assert_eq!(config.broker_id, 0);
    for warning in config.warnings() {
        assert!(matches!(warning, Warning::WithoutEffect { .. }), "{warning}");
    }
}

/// The message of Kafka's fatal exception before it started anything; `None` where it got further.
fn refusal(stdout: &str) -> Option<&str> {
    let (_, after) =
        stdout.split_once("ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)\n")?;
    let (_class, message) = after.lines().next()?.split_once(": ")?;
    Some(message)
}

#[test]
fn files_that_kafka_refused_are_refused_in_its_words() {
    let transcripts = root().join("tests/golden/transcripts");
    let mut refused = 0;
    for entry in std::fs::read_dir(transcripts.join("kafka-server-start")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(case) = serde_json::from_slice::<serde_json::Value>(&std::fs::read(&path).unwrap())
        else {
            continue;
        };
        let arguments: Vec<&str> = case["args"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|argument| argument.as_str())
            .collect();
        let (Some(file), Some(message)) =
            (arguments.first(), refusal(case["stdout"].as_str().unwrap_or_default()))
        else {
            continue;
        };
        let Ok(bytes) = std::fs::read(transcripts.join("files").join(file)) else { continue };
        let mut settings = properties::parse(&bytes);
        for pair in arguments.windows(2).filter(|pair| pair[0] == "--override") {
            let (key, value) = properties::parse_override(pair[1]);
            settings.insert(key, value);
        }
        if message.contains("is not a recognized option") {
            continue;
        }
        let errors = BrokerConfig::parse(&settings).expect_err(message);
        assert_eq!(errors.0.len(), 1, "{path:?}: {errors}");
        assert_eq!(errors.0[0].message, message, "{path:?}");
        refused += 1;
    }
    assert_eq!(refused, 19, "cases of a refused file");
}

#[test]
fn files_that_kafka_took_are_taken() {
    let files = root().join("tests/golden");
    for file in [
        "server-logs/broker-1/server.properties",
        "server-logs/broker-2/server.properties",
        "server-logs/broker-3/server.properties",
        "transcripts/server1.properties",
        "transcripts/server2.properties",
        "transcripts/server3.properties",
        "logs/epochs/server1.properties",
        "logs/prepare/server1.properties",
    ] {
        let settings = properties::parse(&std::fs::read(files.join(file)).expect(file));
        let config =
            BrokerConfig::parse(&settings).unwrap_or_else(|errors| panic!("{file}: {errors}"));
        let unknown: Vec<_> =
            config.warnings().iter().filter(|w| matches!(w, Warning::UnknownKey(_))).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

/// Every crate's code but for the configs' own.
fn readers() -> String {
    let mut code = String::new();
    let mut waiting = vec![root().join("src")];
    while let Some(path) = waiting.pop() {
        if path.is_dir() && !path.ends_with("common/config") {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
    code
}

/// Fields that carry a key under another name.
fn other_names(key: &str) -> &'static [&'static str] {
    match key {
        "node.id" => &["broker_id"],
        "log.dir" => &["log_dirs"],
        "listener.security.protocol.map" => &["listeners"],
        "security.inter.broker.protocol" => &["inter_broker_listener_name"],
        "log.roll.hours" => &["segment_ms"],
        "log.roll.jitter.hours" => &["segment_jitter_ms"],
        "log.retention.minutes" | "log.retention.hours" => &["retention_ms"],
        "log.flush.scheduler.interval.ms" => &["flush_ms"],
        "cleanup.policy" => &["compact"],
        "message.timestamp.type" => &["is_log_append_time"],
        "message.timestamp.difference.max.ms" => &["message_timestamp_before_max_ms"],
        "compression.gzip.level" | "compression.lz4.level" | "compression.zstd.level" => {
            &["compression_level"]
        }
        _ => &[],
    }
}

/// Keys whose whole effect is that a start is refused.
const CHECKED_ONLY: &[&str] = &["group.coordinator.rebalance.protocols"];

#[test]
fn keys_that_work_are_read_by_somebody() {
    let code = readers();
    let is_read = |key: &str| {
        let own = key.replace('.', "_");
        let names = other_names(key).iter().copied().chain([own.as_str()]);
        code.contains(&format!("\"{key}\""))
            || names.into_iter().any(|name| code.contains(&format!(".{name}")))
    };
    // A broker key that topics fall back to is read as the topic's.
    let topic_of = |key: &str| {
        table::topic_keys().iter().find(|topic| table::topic_synonym(topic.name) == Some(key))
    };
    let unread: Vec<&str> = table::broker_keys()
        .chain(table::topic_keys())
        .filter(|key| key.effect == Effect::Works && !CHECKED_ONLY.contains(&key.name))
        .filter(|key| {
            !is_read(key.name) && !topic_of(key.name).is_some_and(|topic| is_read(topic.name))
        })
        .map(|key| key.name)
        .collect();
    assert_eq!(unread, Vec::<&str>::new(), "said to work, and read by nobody");
}
