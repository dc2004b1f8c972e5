//! Every batch and record of the recorded logs equals what Kafka's own classes decoded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::batch::{Batch, BatchHeader, Batches, TimestampType};
use crate::compression::DECOMPRESSED_BYTES_MAX;
use crate::control;
use crate::records::{first_offset, records};
use crate::view::RecordView;

/// Recordings keep larger keys and values as length and CRC-32C.
const SHOWN_BYTES_MAX: usize = 4096;

pub(crate) fn cases() -> Vec<PathBuf> {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/logs");
    let cases = fs::read_dir(logs).unwrap().map(|case| case.unwrap().path());
    let mut cases: Vec<_> = cases.filter(|case| case.is_dir()).collect();
    cases.sort();
    cases
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The log files of a case, by their names in the recording.
pub(crate) fn log_files(case: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![case.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(case).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                directories.push(path);
            } else if name.ends_with(".log") || name.ends_with(".log.deleted") {
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

fn shown(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) if bytes.len() > SHOWN_BYTES_MAX => {
            json!({"length": bytes.len(), "crc32c": crc32c::crc32c(bytes)})
        }
        Some(bytes) => json!(STANDARD.encode(bytes)),
    }
}

fn shown_record(record: &RecordView, is_control: bool) -> Value {
    let mut shown_record = json!({
        "offset": record.offset.0,
        "timestamp": record.timestamp.0,
        "key": shown(record.key),
        "value": shown(record.value),
    });
    if !record.headers.is_empty() {
        let headers = record
            .headers
            .iter()
            .map(|header| json!([std::str::from_utf8(header.name).unwrap(), shown(header.value)]));
        shown_record["headers"] = headers.collect();
        assert_eq!(shown_record["headers"].as_array().unwrap().len(), record.headers.len());
    }
    if is_control {
        let marker = control::parse_marker(record).unwrap().unwrap();
        shown_record["control"] = json!({
            "type": format!("{:?}", marker.result).to_uppercase(),
            "coordinatorEpoch": marker.coordinator_epoch,
        });
    }
    shown_record
}

fn shown_batch(batch: &Batch) -> Map<String, Value> {
    let header = &batch.header;
    let records = records(batch.bytes, DECOMPRESSED_BYTES_MAX).unwrap();
    let records: Vec<_> =
        records.iter().map(|record| shown_record(&record.unwrap(), header.is_control)).collect();
    let mut shown = json!({
        "size": header.size,
        "magic": header.magic,
        "baseOffset": first_offset(batch.bytes, DECOMPRESSED_BYTES_MAX).unwrap().0,
        "lastOffset": header.last_offset.0,
        "codec": header.codec.unwrap().name(),
        "timestampType": header.timestamp_type.map_or("NoTimestampType", TimestampType::name),
        "crc": header.crc,
        "isValid": header.crc_matches(batch.bytes),
        "maxTimestamp": header.max_timestamp.0,
        "records": records,
    });
    if header.magic < 2 {
        shown["attributes"] = json!(batch.bytes[17]);
    } else {
        let batch_header = BatchHeader::parse(batch.bytes).unwrap();
        shown["attributes"] = json!(batch_header.attributes.0);
        shown["partitionLeaderEpoch"] = json!(header.leader_epoch.0);
        shown["lastOffsetDelta"] = json!(batch_header.last_offset_delta);
        shown["baseTimestamp"] = json!(batch_header.base_timestamp.0);
        shown["deleteHorizonMs"] =
            header.delete_horizon.map_or(Value::Null, |horizon| json!(horizon.0));
        shown["recordCount"] = json!(header.record_count);
    }
    let producer = (header.producer_id.0, header.producer_epoch.0, header.base_sequence);
    if producer != (-1, -1, -1) || header.is_transactional || header.is_control {
        shown["producerId"] = json!(header.producer_id.0);
        shown["producerEpoch"] = json!(header.producer_epoch.0);
        shown["baseSequence"] = json!(header.base_sequence);
        shown["lastSequence"] = json!(header.last_sequence);
        shown["isTransactional"] = json!(header.is_transactional);
        shown["isControl"] = json!(header.is_control);
    }
    shown.as_object().unwrap().clone()
}

fn check_case(case: &Path) -> usize {
    let mut expected: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in lines(&case.join("expected.jsonl")) {
        expected.entry(line["file"].as_str().unwrap().to_owned()).or_default().push(line);
    }
    let valid_bytes: BTreeMap<String, u64> = lines(&case.join("files.jsonl"))
        .iter()
        .filter_map(|line| Some((line["file"].as_str()?.to_owned(), line["validBytes"].as_u64()?)))
        .collect();
    let mut count = 0;
    let mut seen = BTreeSet::new();
    for (name, bytes) in log_files(case) {
        let expected = expected.remove(&name).unwrap_or_default();
        let mut batches = Batches::new(&bytes);
        for expected in &expected {
            let position = batches.position();
            let batch = batches.next().unwrap().unwrap();
            let mut shown = shown_batch(&batch);
            shown.insert("position".to_owned(), json!(position));
            for name in ["file", "topic", "partition"] {
                shown.insert(name.to_owned(), expected[name].clone());
            }
            assert_eq!(Value::Object(shown), *expected, "{} {name} at {position}", case.display());
            count += 1;
        }
        assert!(batches.next().is_none(), "{name} holds no more batches");
        if let Some(valid_bytes) = valid_bytes.get(&name) {
            assert_eq!(batches.position() as u64, *valid_bytes, "{name}");
        }
        seen.insert(name);
    }
    assert_eq!(expected.keys().collect::<Vec<_>>(), Vec::<&String>::new(), "files not found");
    assert!(valid_bytes.keys().all(|name| seen.contains(name)), "{} lacks a log", case.display());
    count
}

#[test]
fn recorded_logs_hold_what_kafka_decoded() {
    let count: usize = cases().iter().map(|case| check_case(case)).sum();
    assert_eq!(count, 4998, "every recorded batch was looked at");
}
