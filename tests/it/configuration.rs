//! The files that an operator reads and edits: `config/*` and `docs/configuration.md`.

use std::path::{Path, PathBuf};

use common::config::broker::BrokerConfig;
use common::config::document;
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
