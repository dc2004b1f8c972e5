//! Every record of the recorded `__transaction_state` logs is read as Kafka's tool shows it, and written as it was.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use serde_json::Value;

use super::random::seeded;
use crate::records::{RecordError, TransactionRecord, TransactionValue, ValueVersion};

struct Recorded {
    key: Bytes,
    value: Option<Bytes>,
}

fn decoded(value: &Value) -> Option<Bytes> {
    value.as_str().map(|text| STANDARD.decode(text).unwrap().into())
}

/// The records of a case, in the order of Kafka's dump: by file, then by offset.
fn records(case: &Path) -> Vec<Recorded> {
    let text = fs::read_to_string(case.join("expected.jsonl")).unwrap();
    let batches = text.lines().filter(|line| line.contains("\"topic\":\"__transaction_state\""));
    let batches = batches.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut records = Vec::new();
    for batch in batches {
        for record in batch["records"].as_array().unwrap() {
            let key = decoded(&record["key"]).unwrap();
            records.push(Recorded { key, value: decoded(&record["value"]) });
        }
    }
    records
}

fn cases() -> Vec<PathBuf> {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/logs");
    let mut cases: Vec<_> = fs::read_dir(logs).unwrap().map(|case| case.unwrap().path()).collect();
    cases.retain(|case| case.join("dump-transactions.txt").is_file());
    cases.sort();
    cases
}

/// As the dump shows it; its partitions come in an order of their own, so they are sorted in both.
fn shown(record: &TransactionRecord) -> String {
    let id = &record.transactional_id;
    let Some(value) = &record.value else { return format!("{id} payload: <DELETE>") };
    let mut names: Vec<String> = value.partitions.iter().map(ToString::to_string).collect();
    names.sort();
    format!(
        "{id} payload: producerId:{},producerEpoch:{},state={},partitions=[{}],txnLastUpdateTimestamp={},txnTimeoutMs={}",
        value.producer_id,
        value.producer_epoch,
        value.state.name(),
        names.join(","),
        value.last_update,
        value.timeout_ms
    )
}

fn with_sorted_partitions(line: &str) -> String {
    let Some((before, rest)) = line.split_once('[') else { return line.to_owned() };
    let (names, after) = rest.split_once(']').unwrap();
    let mut names: Vec<&str> = names.split(',').collect();
    names.sort_unstable();
    format!("{before}[{}]{after}", names.join(","))
}

#[test]
fn recorded_records_are_read_as_kafka_reads_them() {
    let mut count = 0;
    for case in cases() {
        let dump = fs::read_to_string(case.join("dump-transactions.txt")).unwrap();
        let lines = dump.lines().filter_map(|line| line.split_once("transactionalId="));
        let mut wanted: Vec<_> = lines.map(|(_, line)| with_sorted_partitions(line)).collect();
        let records = records(&case);
        count += records.len();
        let decode = |one: &Recorded| {
            shown(&TransactionRecord::decode(Some(&one.key), one.value.as_deref()).unwrap())
        };
        let mut seen: Vec<_> = records.iter().map(decode).collect();
        wanted.sort();
        seen.sort();
        assert_eq!(seen, wanted, "{}", case.display());
    }
    assert!(count > 10, "{count} records are too few to show anything");
}

#[test]
fn recorded_records_are_written_as_they_were() {
    for one in cases().iter().flat_map(|case| records(case)) {
        let record = TransactionRecord::decode(Some(&one.key), one.value.as_deref()).unwrap();
        assert_eq!(record.encoded_key(), one.key);
        assert_eq!(record.encoded_value(), one.value, "{record:?}");
        let Some(value) = record.value else { continue };
        let flexible = value.encode(ValueVersion::Flexible);
        assert_eq!(TransactionValue::decode(&flexible), Ok(value));
    }
}

#[test]
fn cut_records_are_refused() {
    for one in cases().iter().flat_map(|case| records(case)) {
        for end in 0..one.key.len() {
            assert!(TransactionRecord::decode(Some(&one.key[..end]), None).is_err());
        }
        let Some(classic) = one.value else { continue };
        let flexible = TransactionValue::decode(&classic).unwrap().encode(ValueVersion::Flexible);
        for value in [classic, flexible] {
            for end in 0..value.len() {
                assert!(TransactionValue::decode(&value[..end]).is_err(), "{end} of {value:?}");
            }
        }
    }
}

#[test]
fn damaged_records_say_what_is_wrong() {
    let text = |error: RecordError| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    };
    let key = |key: Option<&[u8]>| text(TransactionRecord::decode(key, None).unwrap_err());
    assert_eq!(key(None), "transaction record without a key");
    assert_eq!(key(Some(&[0, 3])), "transaction record with a key of unknown version 3");
    assert_eq!(
        key(Some(&[0, 0, 255, 255])),
        "read the key of a transaction record: length -1 is not possible"
    );
    assert_eq!(
        key(Some(&[0, 0, 0, 1, 255])),
        "read the key of a transaction record: a text is not UTF-8"
    );
    let value = |version: u8, status: u8, topics: &[u8]| {
        let mut bytes = vec![0, version];
        bytes.extend([0; 14]);
        bytes.push(status);
        bytes.extend(topics);
        bytes.extend([0; 17]);
        text(TransactionValue::decode(&bytes).unwrap_err())
    };
    assert_eq!(value(2, 0, &[]), "transaction record with a value of unknown version 2");
    assert_eq!(value(0, 6, &[0; 4]), "transaction record with the status 6");
    assert_eq!(value(0, 1, &[255; 4]), "transaction record without partitions in state Ongoing");
    assert_eq!(
        value(0, 1, &[127, 255, 255, 255]),
        "read the value of a transaction record: length 2147483647 is not possible"
    );
    assert_eq!(
        value(1, 1, &[255, 255, 255, 255, 15]),
        "read the value of a transaction record: length 4294967294 is not possible"
    );
    assert_eq!(
        value(1, 1, &[2, 0]),
        "read the value of a transaction record: a field is null that must not be"
    );
}

proptest! {
    #![proptest_config(seeded(400))]

    #[test]
    fn what_can_be_read_can_be_written(
        is_flexible: bool,
        status in 0..8i8,
        numbers in vec(any::<u8>(), 14),
        rest in vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 0..80),
    ) {
        let mut bytes = vec![0, u8::from(is_flexible)];
        bytes.extend(numbers);
        bytes.extend(status.to_be_bytes());
        bytes.extend(rest);
        if let Ok(value) = TransactionValue::decode(&bytes) {
            for version in [ValueVersion::Classic, ValueVersion::Flexible] {
                prop_assert_eq!(TransactionValue::decode(&value.encode(version)), Ok(value.clone()));
            }
        }
    }
}
