//! Our table, parser and checks beside what Kafka's own classes made of thousands of settings (`golden/configs`).

use std::path::Path;

use common::config::broker::BrokerConfig;
use common::config::table::{self, ConfigKey, Effect, Kind};
use common::config::topic::{self, TopicConfig};
use common::config::value::Value;
use common::config::{describe, listener::Listener};
use common::properties::{self, Properties};
use serde_json::Value as Json;
use tests::deviations::Deviations;

fn recorded(name: &str) -> Vec<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/configs").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Kafka's answer: a value (`null` is none), or an error text.
fn answer(answer: &Json) -> Result<Option<String>, String> {
    match answer.get("error") {
        Some(error) => Err(error.as_str().expect("a text").to_owned()),
        None => Ok(answer["value"].as_str().map(str::to_owned)),
    }
}

fn set(pairs: &[(&str, &str)]) -> Properties {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Equal values, or Kafka's words among ours, which name every mistake.
fn agree(
    kafka: &Result<Option<String>, String>,
    ours: &Result<Option<String>, Vec<String>>,
) -> bool {
    match (kafka, ours) {
        (Ok(kafka), Ok(ours)) => kafka == ours,
        (Err(kafka), Err(ours)) => ours.contains(kafka),
        _ => false,
    }
}

#[test]
fn broker_settings_are_taken_and_refused_as_by_kafka() {
    let deviations = Deviations::load();
    let mut differences = Vec::new();
    let mut compared = 0;
    for line in recorded("keys.jsonl") {
        let name = line["key"].as_str().expect("a key");
        let key = table::broker_key(name).expect("in the table");
        for (value, kafka) in line["cases"].as_object().expect("cases") {
            let kafka = answer(kafka);
            let ours = BrokerConfig::parse(&set(&[
                ("zookeeper.connect", "127.0.0.1:2181"),
                (name, value),
            ]));
            let ours = ours
                .map(|config| config.value(name).map(Value::to_string))
                .map_err(|errors| errors.0.into_iter().map(|error| error.message).collect());
            compared += 1;
            if agree(&kafka, &ours) {
                continue;
            }
            if !is_deliberate(&deviations, key, &kafka, &ours) {
                differences.push(format!("{name}={value:?}\n  kafka {kafka:?}\n  ours  {ours:?}"));
            }
        }
    }
    assert!(compared > 6000, "{compared}");
    assert!(
        differences.is_empty(),
        "{} of {compared}\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// Differences by design, each told from a mistake by what it looks like.
fn is_deliberate(
    deviations: &Deviations,
    key: &ConfigKey,
    kafka: &Result<Option<String>, String>,
    ours: &Result<Option<String>, Vec<String>>,
) -> bool {
    let name = match (kafka, ours) {
        (Err(_), Ok(_)) if key.kind == Kind::Class => "java-classes",
        (Err(kafka), Ok(_))
            if key.effect == Effect::KRaftOnly && !kafka.starts_with("Invalid value") =>
        {
            "kraft-keys-alone"
        }
        (Err(kafka), Err(ours)) if ours.contains(&kafka.replace("broker.id", "node.id")) => {
            "keys-named-as-written"
        }
        (Err(kafka), Ok(_)) if kafka == "/ by zero" => "no-cleaner-threads",
        (Ok(_), Err(_)) if key.name == "process.roles" => "zookeeper-mode-only",
        (Ok(_) | Err(_), Err(_)) if key.name == "zookeeper.metadata.migration.enable" => {
            "zookeeper-mode-only"
        }
        _ => return false,
    };
    deviations.accept(name, &format!("config/{}", key.name)).is_some()
}

#[test]
fn topic_settings_are_taken_and_refused_as_by_kafka() {
    let broker = BrokerConfig::parse(&set(&[("zookeeper.connect", "127.0.0.1:2181")])).unwrap();
    let mut differences = Vec::new();
    for line in recorded("topics.jsonl") {
        let name = line["key"].as_str().expect("a key");
        for (value, kafka) in line["cases"].as_object().expect("cases") {
            let kafka = answer(kafka);
            let overrides = set(&[(name, value)]);
            let ours = topic::validate(&broker, &overrides)
                .map_err(|error| vec![error.to_string()])
                .map(|()| {
                    let entries = describe::topic(&broker, &overrides).expect("valid");
                    entries.into_iter().find(|entry| entry.name == name).expect("a key").value
                });
            if !agree(&kafka, &ours) {
                differences.push(format!("{name}={value:?}\n  kafka {kafka:?}\n  ours  {ours:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn files_are_taken_and_refused_as_by_kafka() {
    let deviations = Deviations::load();
    let mut differences = Vec::new();
    for line in recorded("files.jsonl") {
        let file = line["file"].as_str().expect("a file");
        let kafka = answer(&line["answer"]);
        let settings = properties::parse(file.as_bytes());
        let ours = BrokerConfig::parse(&settings)
            .map(|config| Some(summary(&config)))
            .map_err(|errors| errors.0.into_iter().map(|error| error.message).collect());
        let is_deliberate = || {
            settings
                .keys()
                .filter_map(|key| table::broker_key(key))
                .any(|key| is_deliberate(&deviations, key, &kafka, &ours))
        };
        if !agree(&kafka, &ours) && !is_deliberate() {
            differences.push(format!("{file}\n  kafka {kafka:?}\n  ours  {ours:?}"));
        }
    }
    assert!(differences.is_empty(), "{}\n{}", differences.len(), differences.join("\n"));
}

/// What the recorder printed of a broker, in its form.
fn summary(config: &BrokerConfig) -> String {
    let endpoints = |listeners: &[Listener]| {
        let texts = listeners.iter().map(|listener| {
            let host = listener.host.as_deref().unwrap_or("null");
            let (name, port) = (&listener.name, listener.port);
            format!("EndPoint({host},{port},ListenerName({name}),{})", listener.protocol)
        });
        texts.collect::<Vec<_>>().join(" ")
    };
    let dirs: Vec<_> = config.log_dirs.iter().map(|dir| dir.to_string_lossy()).collect();
    let own_to_topics = [
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    ];
    let topic: Vec<String> = describe::topic(config, &Properties::new())
        .expect("a broker's defaults are valid")
        .into_iter()
        .filter(|entry| !own_to_topics.contains(&entry.name.as_str()))
        .map(|entry| {
            let value = entry.value.unwrap_or_default();
            let is_list = entry.kind == Some(Kind::List);
            let value = if is_list { format!("[{}]", value.replace(',', ", ")) } else { value };
            format!("{}={value}", entry.name)
        })
        .collect();
    format!(
        "listeners {} advertised {} between {} {} dirs {} topic {{{}}}",
        endpoints(&config.listeners),
        endpoints(&config.advertised_listeners),
        config.inter_broker_listener_name,
        config.inter_broker_security_protocol,
        dirs.join(","),
        topic.join(", ")
    )
}

#[test]
fn the_typed_view_is_the_described_one() {
    let broker = BrokerConfig::parse(&set(&[
        ("zookeeper.connect", "a:1"),
        ("log.roll.hours", "3"),
        ("log.message.timestamp.difference.max.ms", "10"),
    ]))
    .unwrap();
    let overrides = set(&[("retention.ms", "7"), ("cleanup.policy", "compact")]);
    let typed = TopicConfig::new(&broker, &overrides).unwrap();
    let described = describe::topic(&broker, &overrides).unwrap();
    let find =
        |name: &str| described.iter().find(|entry| entry.name == name).unwrap().value.clone();
    assert_eq!(find("segment.ms"), Some(typed.segment_ms.to_string()));
    assert_eq!(find("retention.ms"), Some(typed.retention_ms.to_string()));
    assert_eq!(typed.message_timestamp_before_max_ms, 10);
    assert!(typed.compact && !typed.delete);
}
