//! A recorded `__consumer_offsets` of a real broker: each record is read, and written to the same bytes.

use std::{fs, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use common::{
    ids::{ProducerId, Timestamp},
    topic::GROUP_METADATA_TOPIC,
};
use expect_test::expect;
use serde_json::Value;

use super::print;
use crate::{
    config::GroupConfig,
    coordinator::GroupCoordinator,
    event::Now,
    records::{Decoded, GroupRecord, ValueVersions, decode, encode},
};

/// Batches of the topic in their order, as Kafka's own classes decoded them.
fn batches() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/logs/coordinators/expected.jsonl");
    let text = fs::read_to_string(path).unwrap();
    let batches = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    batches.filter(|batch| batch["topic"] == GROUP_METADATA_TOPIC).collect()
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| STANDARD.decode(text).unwrap())
}

fn record(record: &Value) -> GroupRecord {
    let (key, value) = (bytes(&record["key"]).unwrap(), bytes(&record["value"]));
    let Decoded::Record(decoded) = decode(&key, value.as_deref()).unwrap() else {
        panic!("unknown key of {record}");
    };
    let encoded = encode(&decoded, ValueVersions::LATEST).unwrap();
    assert_eq!(encoded.key, key, "{record}");
    assert_eq!(encoded.value.map(Vec::from), value, "{record}");
    decoded
}

#[test]
fn each_record_is_read_and_written_to_the_same_bytes() {
    let (mut offsets, mut groups, mut tombstones) = (0, 0, 0);
    for batch in batches().iter().filter(|batch| batch["isControl"] != true) {
        for value in batch["records"].as_array().unwrap() {
            match record(value) {
                GroupRecord::OffsetCommit { value: Some(_), .. } => offsets += 1,
                GroupRecord::GroupMetadata { value: Some(_), .. } => groups += 1,
                _ => tombstones += 1,
            }
        }
    }
    expect!["39 offsets, 18 groups, 21 tombstones"]
        .assert_eq(&format!("{offsets} offsets, {groups} groups, {tombstones} tombstones"));
}

#[test]
fn the_recorded_log_loads() {
    let mut coordinator = GroupCoordinator::new(GroupConfig::default());
    let now = Now { instant: common::clock::now(), timestamp: Timestamp(0) };
    for batch in batches() {
        let producer_id = ProducerId(batch["producerId"].as_i64().unwrap_or(-1));
        for value in batch["records"].as_array().unwrap() {
            if batch["isControl"] == true {
                let committed = value["control"]["type"] == "COMMIT";
                coordinator.replay_marker(producer_id, committed);
            } else if batch["isTransactional"] == true {
                coordinator.replay_transactional(producer_id, record(value), now).unwrap();
            } else {
                coordinator.replay(record(value), now).unwrap();
            }
        }
    }
    coordinator.loaded(now, &mut Vec::new());
    let mut lines = Vec::new();
    for overview in coordinator.list(&[]) {
        let offsets = coordinator.fetch_offsets(&overview.group, None, true);
        lines.push(format!(
            "{}: {}",
            overview.group,
            print::description(&coordinator.describe(&overview.group))
        ));
        lines.push(format!("  {}", print::offsets(&offsets)));
    }
    expect![[r#"
        g-coop: describe Empty 'consumer'/''
          fetch input-0=5 input-1=5 input-2=5 input-3=5
        g-kpython: describe Stable 'consumer'/'range' kpy-832d2599-ebd9-4bbf-acd0-f84f280ccf03/ kpy /127.0.0.1 @input=@input
          fetch input-0=5 input-1=5 input-2=5 input-3=5
        g-rdkafka: describe Stable 'consumer'/'roundrobin' rdk-a7b96192-6e4a-4c83-b921-0abc730c21e8/ rdk /127.0.0.1 @input=@input
          fetch input-0=3
        g-static: describe Empty 'consumer'/''
          fetch input-0=5 input-1=5 input-2=5 input-3=5 other-0=2
        txn-group: describe Empty ''/''
          fetch input-0=-1 UNSTABLE_OFFSET_COMMIT"#]].assert_eq(&lines.join("\n"));
}
