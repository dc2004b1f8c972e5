//! What is admitted, refused and stored, beside what a real Kafka answered and stored for the same bytes.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use common::ids::{LeaderEpoch, Offset, Timestamp};
use common::topic::TopicPartition;
use serde_json::{Value, json};

use crate::batch::{BatchHeader, Batches, TimestampType};
use crate::compression::{BrokerCompression, Compression};
use crate::convert::{ConvertError, OldFormat, down_convert};
use crate::produce_version::{self, ProduceVersionError};
use crate::records::records;
use crate::validate::{Checked, Origin, Rules, ValidationError, check};

const CAP: usize = 10_000_000;

/// Where ours answers otherwise, and why: (the cases' names, Kafka's code, our code).
const DIFFERENCES: [(&str, i64, i64); 6] = [
    // Kafka stores records that no consumer can read, if they are compressed.
    ("length short, codec 1", 0, 87),
    ("length long, codec 1", 0, 87),
    ("length long of two, codec 1", 0, 87),
    ("length negative, codec 1", 0, 87),
    ("length huge, codec 1", 0, 87),
    // Kafka fails on these with an exception of Java's.
    ("endless varint, codec 0", -1, 87),
];
const SIZE_BELOW_HEADER: (&str, i64, i64) = ("size 20 in version 2", -1, 2);

fn recorded(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/produce").join(name);
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn decoded(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

fn rules(topic: &str, case: &Value) -> Rules {
    let always = |compression| BrokerCompression::Always(compression);
    let bounded = topic == "bounded";
    let (before_max_ms, after_max_ms) =
        if bounded { (3_600_000, 1_800_000) } else { (i64::MAX, i64::MAX) };
    Rules {
        now: Timestamp(now(case, before_max_ms)),
        timestamp_type: if topic.ends_with("append-time") {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        },
        before_max_ms,
        after_max_ms,
        compression: match topic {
            "gzip" | "gzip-append-time" | "gzip-compacted" => always(Compression::Gzip(-1)),
            "snappy" => always(Compression::Snappy),
            "lz4" => always(Compression::Lz4(9)),
            "zstd" => always(Compression::Zstd(3)),
            "uncompressed" | "small-uncompressed" => always(Compression::None),
            _ => BrokerCompression::Producer,
        },
        compacted: topic.ends_with("compacted"),
        message_bytes_max: if topic.starts_with("small") { 2000 } else { CAP },
        origin: Origin::Client,
    }
}

/// The broker's clock at that time, as far as it shows: in the answer, or in the bounds that a message names.
fn now(case: &Value, before_max_ms: i64) -> i64 {
    let recording = 1_796_000_000_000;
    let bounds =
        case["recordErrors"][0][1].as_str().and_then(|message| message.split_once("within ["));
    match (case["logAppendTime"].as_i64(), bounds) {
        (Some(time), _) if time >= 0 => time,
        (_, Some((_, bounds))) => {
            let earliest: i64 = bounds.split(',').next().unwrap().parse().unwrap();
            earliest.wrapping_add(before_max_ms)
        }
        _ => recording,
    }
}

/// The answer, in the recording's terms.
fn answer(case: &Value, version: i16) -> (Value, Option<Checked>) {
    let topic = case["topic"].as_str().unwrap();
    let sent = Bytes::from(decoded(&case["records"]));
    if let Err(error) = produce_version::check(version, &sent) {
        let code = match error {
            ProduceVersionError::Zstd(_) => 76,
            ProduceVersionError::Corrupt(_) => 2,
            _ => 87,
        };
        // Kafka fails the whole request over a first header that is none, and then says why.
        let first_is_none = Batches::new(&sent).next().is_none_or(|first| first.is_err());
        let message = (code == 2 && first_is_none).then(|| error.to_string());
        return (json!({"error": code, "recordErrors": [], "errorMessage": message}), None);
    }
    let error = match check(sent, &rules(topic, case)) {
        Ok(checked) => {
            return (json!({"error": 0, "recordErrors": [], "errorMessage": null}), Some(checked));
        }
        Err(error) => error,
    };
    let partition = TopicPartition::new(topic, 0);
    let (code, errors) = match &error {
        ValidationError::NoBatches => (0, None),
        ValidationError::Corrupt(_) => (2, None),
        ValidationError::Invalid(_) => (87, None),
        ValidationError::Records(errors) if errors.has_invalid_timestamp => (32, Some(errors)),
        ValidationError::Records(errors) => (87, Some(errors)),
        ValidationError::TooLarge { .. } => (10, None),
        ValidationError::Unreadable(_) | ValidationError::NeedsMemory(_) => (-1, None),
    };
    let listed = errors.map_or(vec![], |errors| {
        errors.errors.iter().map(|error| json!([error.index, error.message(&partition)])).collect()
    });
    let message = errors.map(|errors| errors.message(&partition));
    (json!({"error": code, "recordErrors": listed, "errorMessage": message}), None)
}

fn content(batch: &[u8]) -> Vec<String> {
    records(batch, CAP).unwrap().iter().map(|record| format!("{:?}", record.unwrap())).collect()
}

fn assert_stored(name: &str, mut checked: Checked, stored: &[u8]) {
    let kafka = BatchHeader::parse(stored).unwrap();
    checked.assign(kafka.base_offset, kafka.leader_epoch);
    let ours = checked.slices().concat();
    if !checked.was_rewritten() {
        assert_eq!(ours, stored, "{name}");
        return;
    }
    assert!(Batches::new(&ours).next().unwrap().unwrap().header.crc_matches(&ours), "{name}");
    let mut header = *checked.header();
    // Compressors differ in their output.
    (header.crc, header.batch_length) = (kafka.crc, kafka.batch_length);
    assert_eq!(header, kafka, "{name}");
    if name.contains("offsets ") && name.ends_with("codec 0") && kafka.attributes.codec_id() == 0 {
        assert_ne!(content(&ours), content(stored), "{name}: ours numbers the records");
    } else {
        assert_eq!(content(&ours), content(stored), "{name}");
    }
}

#[test]
fn answers_are_those_of_kafka() {
    let cases = recorded("answers.jsonl");
    let mut stored = 0;
    let mut differences = 0;
    for case in &cases {
        let (topic, name) = (case["topic"].as_str().unwrap(), case["name"].as_str().unwrap());
        let version = i16::try_from(case["version"].as_i64().unwrap()).unwrap();
        let (answer, checked) = answer(case, version);
        let codes = (name, case["error"].as_i64().unwrap(), answer["error"].as_i64().unwrap());
        if DIFFERENCES.contains(&codes) || SIZE_BELOW_HEADER == codes {
            differences += 1;
            continue;
        }
        let title = format!("{topic}: {name}");
        for field in ["error", "recordErrors", "errorMessage"] {
            // Versions below 8 tell the code alone.
            if field == "error" || version >= 8 {
                assert_eq!(answer[field], case[field], "{title}: {field}");
            }
        }
        match (checked, case.get("stored")) {
            (Some(checked), Some(batch)) => {
                assert_stored(&title, checked, &decoded(batch));
                stored += 1;
            }
            (None, None) => {}
            _ => panic!("{title}: one stored it, the other did not"),
        }
    }
    assert_eq!((cases.len(), differences), (467, 13), "each case was looked at");
    assert!(stored > 200, "{stored} were stored");
}

/// Each message's offset, timestamp, key and value, and each entry's offset, codec and timestamp.
fn old_content(bytes: &[u8]) -> Vec<String> {
    let mut shown = Vec::new();
    for entry in Batches::new(bytes) {
        let entry = entry.unwrap();
        let header = entry.header;
        assert!(header.crc_matches(entry.bytes));
        shown.push(format!(
            "{} {} {:?} {} {:?}",
            header.magic,
            header.last_offset,
            header.codec,
            header.max_timestamp,
            header.timestamp_type
        ));
        shown.extend(content(entry.bytes));
    }
    shown
}

#[test]
fn old_fetches_are_answered_as_kafka_does() {
    let cases = recorded("down.jsonl");
    let mut whole = 0;
    for case in &cases {
        let title = format!("{} version {} from {}", case["topic"], case["version"], case["from"]);
        let to = if case["version"].as_i64().unwrap() < 2 {
            OldFormat::Magic0
        } else {
            OldFormat::Magic1
        };
        let from = Offset(case["from"].as_i64().unwrap());
        let converted = down_convert(&decoded(&case["log"]), to, from, CAP);
        let code = match converted {
            Err(ConvertError::Zstd) => 76,
            _ if case["log"] == "" => 1,
            _ => 0,
        };
        assert_eq!(case["error"].as_i64(), Some(code), "{title}");
        if code == 0 {
            // Kafka ends the answer at the log's size, perhaps within a message.
            let (ours, kafka) =
                (old_content(&converted.unwrap()), old_content(&decoded(&case["answer"])));
            assert!(
                !kafka.is_empty() && ours.starts_with(&kafka),
                "{title}: {ours:?}, Kafka {kafka:?}"
            );
            whole += usize::from(ours == kafka);
        }
    }
    assert!(whole >= 25, "{whole} answers were not cut off");
    assert_eq!(cases.len(), 60);
}

#[test]
fn leader_epochs_and_offsets_are_assigned_again_and_again() {
    let case = &recorded("answers.jsonl")[0];
    let mut checked = check(decoded(&case["records"]).into(), &rules("plain", case)).unwrap();
    for (offset, epoch) in [(5, 1), (i64::MAX - 2, 7)] {
        checked.assign(Offset(offset), LeaderEpoch(epoch));
        let header = Batches::new(&checked.slices().concat()).next().unwrap().unwrap().header;
        assert_eq!(header.base_offset, Some(Offset(offset)));
        assert_eq!(header.leader_epoch, LeaderEpoch(epoch));
        assert!(header.crc_matches(&checked.slices().concat()));
    }
}
