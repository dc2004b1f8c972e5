//! Every znode that a real Kafka wrote is read and written again; malformed ones are refused and never panic.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use common::{ids::BrokerId, topic::TopicPartition};
use serde_json::{Value, json};

use super::{
    DocumentError, acl, admin, broker, cluster, config, controller, delegation_token, feature,
    notification, partition_state, producer_ids, topic,
};
use crate::paths;

type Rewritten = Result<Vec<u8>, DocumentError>;

/// Reads what a path holds and writes it again, with the name of its kind; `None` for a directory.
fn rewrite(path: &str, data: &[u8]) -> Option<(&'static str, Rewritten)> {
    let names: Vec<&str> = path.split('/').skip(1).collect();
    let broker_id = |text: &str| BrokerId(text.parse().unwrap());
    let configs = || config::parse_configs(path, data).map(|c| config::configs_to_bytes(&c));
    let partitions = || admin::parse_partitions(path, data).map(|p| admin::partitions_to_bytes(&p));
    let rewritten = match names[..] {
        ["brokers", "ids", id] => {
            ("broker", broker::BrokerDocument::parse(broker_id(id), data).map(|d| d.to_bytes()))
        }
        ["brokers", "topics", topic] => {
            ("topic", topic::TopicDocument::parse(topic, data).map(|d| d.to_bytes()))
        }
        ["brokers", "topics", topic, "partitions", partition, "state"] => {
            let partition = partition.parse().unwrap();
            let state = partition_state::PartitionStateDocument::parse(topic, partition, data);
            ("partition state", state.map(|d| d.to_bytes()))
        }
        ["controller"] => {
            ("controller", controller::ControllerDocument::parse(data).map(|d| d.to_bytes()))
        }
        ["controller_epoch"] => {
            ("controller epoch", controller::parse_epoch(data).map(controller::epoch_to_bytes))
        }
        ["admin", "reassign_partitions"] => {
            let moves = admin::parse_reassignment(data);
            ("reassignment", moves.map(|m| admin::reassignment_to_bytes(&m)))
        }
        ["admin", "preferred_replica_election"] => ("preferred election", partitions()),
        ["isr_change_notification", _] => ("isr change", partitions()),
        ["log_dir_event_notification", _] => {
            let event = notification::parse_log_dir_event(path, data);
            ("log dir event", event.map(notification::log_dir_event_to_bytes))
        }
        ["latest_producer_id_block"] => {
            let block = producer_ids::ProducerIdBlock::parse(data);
            ("producer id block", block.map(|b| b.map(|b| b.to_bytes()).unwrap_or_default()))
        }
        ["cluster", "id"] => {
            let id = cluster::parse_cluster_id(data);
            ("cluster id", id.map(|id| cluster::cluster_id_to_bytes(&id)))
        }
        ["migration"] => {
            ("migration", cluster::MigrationDocument::parse(data).map(|d| d.to_bytes()))
        }
        ["config", "changes", _] => {
            let change = notification::ConfigChange::parse(path, data);
            ("config change", change.map(|c| c.to_bytes()))
        }
        ["config", "topics", _] => ("topic config", configs()),
        ["config", "brokers", _] => ("broker config", configs()),
        ["config", "clients", _] => ("client config", configs()),
        ["config", "ips", _] => ("ip config", configs()),
        ["config", "users", _] => ("user config", configs()),
        ["config", "users", _, "clients", _] => ("user client config", configs()),
        ["kafka-acl", _, ref name @ ..] if !name.is_empty() => {
            ("literal acl", acl::parse_acls(path, data).map(|a| acl::acls_to_bytes(&a)))
        }
        ["kafka-acl-extended", "prefixed", _, ref name @ ..] if !name.is_empty() => {
            ("prefixed acl", acl::parse_acls(path, data).map(|a| acl::acls_to_bytes(&a)))
        }
        ["kafka-acl-changes", _] => {
            ("literal acl change", acl::AclChange::parse_literal(path, data).map(|c| c.to_bytes()))
        }
        ["kafka-acl-extended-changes", _] => {
            let change = acl::AclChange::parse_extended(path, data);
            ("extended acl change", change.map(|c| c.to_bytes()))
        }
        ["delegation_token", "tokens", id] => {
            let token = delegation_token::DelegationTokenDocument::parse(id, data);
            ("delegation token", token.map(|t| t.map(|t| t.to_bytes()).unwrap_or_default()))
        }
        ["delegation_token", "token_changes", _] => {
            let token_id = notification::parse_token_change(path, data);
            ("token change", token_id.map(String::into_bytes))
        }
        ["feature"] => ("feature", feature::FeatureDocument::parse(data).map(|d| d.to_bytes())),
        ["consumers", _, "offsets", _, _] => {
            let offset = config::parse_consumer_offset(path, data);
            ("consumer offset", offset.map(config::consumer_offset_to_bytes))
        }
        _ => return None,
    };
    Some(rewritten)
}

/// As JSON where it is such, with what has no order sorted; else as text.
fn comparable(kind: &str, data: &[u8]) -> Value {
    let Ok(mut value) = serde_json::from_slice::<Value>(data) else {
        return Value::String(String::from_utf8(data.to_vec()).unwrap());
    };
    let unordered = match kind {
        "isr change" | "preferred election" | "reassignment" => "partitions",
        _ => return value,
    };
    if let Some(list) = value[unordered].as_array_mut() {
        list.sort_by_key(Value::to_string);
    }
    value
}

/// Documents that live too briefly to be recorded, from the description of their format; older versions too.
const DESCRIBED: [(&str, &str); 14] = [
    (
        "/admin/reassign_partitions",
        r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3]}]}"#,
    ),
    (
        "/admin/preferred_replica_election",
        r#"{"version":1,"partitions":[{"topic":"t","partition":0}]}"#,
    ),
    (
        "/isr_change_notification/isr_change_0000000007",
        r#"{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}"#,
    ),
    (
        "/log_dir_event_notification/log_dir_event_0000000000",
        r#"{"version":1,"broker":1,"event":1}"#,
    ),
    (
        "/migration",
        r#"{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1,"kraft_metadata_offset":100,"kraft_metadata_epoch":1}"#,
    ),
    (
        "/brokers/topics/t/partitions/0/state",
        r#"{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":7,"isr":[1],"leader_recovery_state":1}"#,
    ),
    (
        "/brokers/topics/t",
        r#"{"partitions":{"0":[4,5,6,1,2,3],"10":[1],"2":[1]},"topic_id":"Sjd1S3IyQ0yZbQq4yZ1y0Q","adding_replicas":{"0":[4,5,6]},"removing_replicas":{"0":[1,2,3]},"version":3}"#,
    ),
    (
        "/brokers/ids/7",
        r#"{"features":{"f":{"min_version":1,"max_version":3}},"listener_security_protocol_map":{"CLIENT":"SASL_SSL","INTERNAL":"SSL"},"endpoints":["CLIENT://kafka.example:9093","INTERNAL://[::1]:9094"],"rack":"r1","jmx_port":9999,"port":-1,"host":null,"version":5,"timestamp":"1730000000000"}"#,
    ),
    (
        "/brokers/ids/8",
        r#"{"endpoints":["PLAINTEXT://kafka1.example:9092","SSL://kafka1.example:9093"],"jmx_port":-1,"port":9092,"host":"kafka1.example","version":2,"timestamp":"1730000000000"}"#,
    ),
    (
        "/brokers/ids/9",
        r#"{"endpoints":["PLAINTEXT://kafka1.example:9092"],"rack":"r","jmx_port":-1,"port":9092,"host":"kafka1.example","version":3,"timestamp":"1730000000000"}"#,
    ),
    (
        "/feature",
        r#"{"version":1,"status":1,"features":{"f":{"min_version_level":2,"max_version_level":2}}}"#,
    ),
    ("/feature", r#"{"version":2,"status":0,"features":{"f":{"max_version_level":2}}}"#),
    (
        "/config/changes/config_change_0000000001",
        r#"{"version":2,"entity_path":"users/a/clients/<default>"}"#,
    ),
    ("/kafka-acl-changes/acl_changes_0000000001", "TRANSACTIONAL_ID:a:b"),
];

fn recorded() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/znodes");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    assert!(files.len() >= 37, "{} recordings", files.len());
    let mut nodes = BTreeSet::new();
    for file in files {
        for line in fs::read_to_string(file).unwrap().lines() {
            let node: Value = serde_json::from_str(line).unwrap();
            let data = node["data"].as_str().unwrap_or_default().as_bytes().to_vec();
            nodes.insert((node["path"].as_str().unwrap().to_owned(), data));
        }
    }
    nodes.into_iter().collect()
}

fn all() -> Vec<(String, Vec<u8>)> {
    let described =
        DESCRIBED.iter().map(|(path, data)| ((*path).to_owned(), data.as_bytes().to_vec()));
    recorded().into_iter().chain(described).collect()
}

/// The longest document of each kind.
fn one_of_each() -> Vec<(String, Vec<u8>)> {
    let mut longest: BTreeMap<&str, (String, Vec<u8>)> = BTreeMap::new();
    for (path, data) in all() {
        let Some((kind, _)) = rewrite(&path, &data) else { continue };
        let entry = longest.entry(kind).or_insert_with(|| (path.clone(), data.clone()));
        if data.len() > entry.1.len() {
            *entry = (path, data);
        }
    }
    longest.into_values().collect()
}

#[test]
fn every_document_is_written_as_it_was_read() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, data) in all() {
        let Some((kind, rewritten)) = rewrite(&path, &data) else {
            assert!(data.is_empty(), "{path} has data that nothing reads");
            continue;
        };
        if data.is_empty() && kind != "producer id block" && !kind.contains("config") {
            panic!("{path} is empty");
        }
        *seen.entry(kind).or_default() += 1;
        let rewritten = rewritten.unwrap_or_else(|error| panic!("{error}"));
        if data.is_empty() {
            continue;
        }
        let (before, after) = (comparable(kind, &data), comparable(kind, &rewritten));
        assert_eq!(before, after, "{kind} at {path}");
    }
    let kinds: Vec<&str> = seen.keys().copied().collect();
    assert_eq!(kinds.len(), 27, "kinds shown: {kinds:?}");
}

#[test]
fn what_is_malformed_is_refused_by_path() {
    let fixed: [&[u8]; 10] = [
        b"{",
        b"[]",
        b"7 8",
        b"\"x\"",
        b"nul",
        b"\xff\xfe",
        b"{\"version\":",
        b"{\"version\":1}}",
        b"[{\"0\":[1]},null,null,null]",
        b"true",
    ];
    let deep = [b"[".repeat(200_000), b"{\"a\":".repeat(200_000)];
    for (path, good) in one_of_each() {
        let Some((kind, _)) = rewrite(&path, &good) else { continue };
        // Plain text has no form to break, except that it must be text.
        let text = matches!(kind, "token change" | "literal acl change");
        for bad in fixed.iter().map(|bad| bad.to_vec()).chain(deep.clone()) {
            match rewrite(&path, &bad).unwrap().1 {
                Err(error) => {
                    assert_eq!(error.path, path);
                    assert!(error.to_string().contains(&path) && !error.reason.is_empty());
                }
                Ok(_) => assert!(
                    text || kind.contains("config")
                        && serde_json::from_slice::<Value>(&bad).is_ok(),
                    "{kind} took {:?}",
                    String::from_utf8_lossy(&bad),
                ),
            }
        }
        for end in 1..good.len() {
            let cut = rewrite(&path, &good[..end]).unwrap().1;
            assert!(cut.is_err() || !good.starts_with(b"{"), "{kind} took a part of its document");
        }
    }
}

#[test]
fn a_field_of_another_type_is_refused_or_ignored_and_never_panics() {
    let values = [json!(null), json!(-1), json!(1.5), json!("x"), json!([null]), json!({"x": 1})];
    for (path, good) in one_of_each() {
        let Ok(Value::Object(document)) = serde_json::from_slice::<Value>(&good) else { continue };
        for key in document.keys() {
            let mut without = document.clone();
            without.remove(key);
            let rewritten = rewrite(&path, &serde_json::to_vec(&without).unwrap());
            assert!(rewritten.is_some());
            for value in &values {
                let mut changed = document.clone();
                changed.insert(key.clone(), value.clone());
                // Refused or not, it must only not panic.
                let _ = rewrite(&path, &serde_json::to_vec(&changed).unwrap());
            }
        }
    }
}

#[test]
fn unknown_fields_are_ignored() {
    for (path, good) in one_of_each() {
        let Ok(Value::Object(mut document)) = serde_json::from_slice::<Value>(&good) else {
            continue;
        };
        document.insert("from_the_future".to_owned(), json!([1, {"a": null}]));
        let (_, with) = rewrite(&path, &serde_json::to_vec(&document).unwrap()).unwrap();
        let (_, without) = rewrite(&path, &good).unwrap();
        assert_eq!(with, without, "{path}");
    }
}

#[test]
fn old_documents_are_read() {
    let id = BrokerId(1);
    let first = br#"{"version":1,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"5"}"#;
    let document = broker::BrokerDocument::parse(id, first).unwrap();
    assert_eq!(document.endpoints[0].to_string(), "PLAINTEXT://localhost:9092");

    let second = br#"{"version":2,"host":"h","port":1,"jmx_port":-1,"timestamp":"5","endpoints":["SASL_SSL://h:2"]}"#;
    let document = broker::BrokerDocument::parse(id, second).unwrap();
    assert_eq!(document.endpoints[0].protocol.name(), "SASL_SSL");

    let zero = br#"{"version":0,"jmx_port":-1}"#;
    let error = broker::BrokerDocument::parse(id, zero).unwrap_err();
    assert_eq!(error.to_string(), "malformed data in /brokers/ids/1: unsupported version 0");

    let change = br#"{"version":1,"entity_type":"clients","entity_name":"c"}"#;
    let change = notification::ConfigChange::parse("/config/changes/x", change).unwrap();
    assert_eq!((change.entity_type.as_str(), change.entity.as_str()), ("clients", "c"));

    let token = br#"{"version":2,"owner":"User%3Aa","renewers":[],"issueTimestamp":1,"maxTimestamp":2,"expiryTimestamp":3,"tokenId":"t"}"#;
    let token = delegation_token::DelegationTokenDocument::parse("t", token).unwrap().unwrap();
    assert_eq!(token.requester, "User:a");

    let old_topic = br#"{"version":1,"partitions":{"0":[1,2]}}"#;
    let old_topic = topic::TopicDocument::parse("t", old_topic).unwrap();
    assert_eq!(old_topic.topic_id, None);
    assert_eq!(old_topic.partitions[&0], topic::Assignment::of(vec![id, BrokerId(2)]));

    let controller = br#"{"version":1,"brokerid":3,"timestamp":"1"}"#;
    let controller = controller::ControllerDocument::parse(controller).unwrap();
    assert_eq!((controller.broker_id, controller.is_kraft()), (BrokerId(3), false));
}

#[test]
fn only_texts_are_config_values() {
    let data = br#"{"version":1,"config":{"a":"1","b":2,"c":null}}"#;
    let configs = config::parse_configs("/config/topics/t", data).unwrap();
    assert_eq!(configs, config::Configs::from([("a".to_owned(), "1".to_owned())]));
    for none in [&b""[..], b"7", b"[]", b"{}", br#"{"config":7}"#] {
        assert_eq!(config::parse_configs("/x", none).unwrap(), config::Configs::new());
    }
}

#[test]
fn producer_id_blocks_follow_each_other() {
    let first = producer_ids::ProducerIdBlock::after(None, BrokerId(1)).unwrap();
    assert_eq!((first.first.0, first.last.0), (0, 999));
    let second = producer_ids::ProducerIdBlock::after(Some(first), BrokerId(2)).unwrap();
    assert_eq!((second.first.0, second.last.0), (1000, 1999));
    let last = producer_ids::ProducerIdBlock { last: common::ids::ProducerId(i64::MAX), ..first };
    assert_eq!(producer_ids::ProducerIdBlock::after(Some(last), BrokerId(1)), None);
}

#[test]
fn orders_of_old_tools_are_read() {
    let data = DESCRIBED[0].1.as_bytes();
    let moves = admin::parse_reassignment(data).unwrap();
    assert_eq!(moves[&TopicPartition::new("t", 0)], [BrokerId(2), BrokerId(3)]);
    let election = admin::parse_partitions(paths::PREFERRED_REPLICA_ELECTION, data).unwrap();
    assert_eq!(election, BTreeSet::from([TopicPartition::new("t", 0)]));
}
