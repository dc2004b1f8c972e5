//! What a real Kafka's cleaner made of a log is what ours makes of it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::{counters::Registry, ids::Timestamp};
use record::{batch::BatchHeader, records::records};
use serde_json::Value;

use super::{CleanerOptions, Work, tests::all_bytes};
use crate::{
    log::Log,
    log_config::LogConfig,
    log_manager::{LogManager, LogManagerOptions},
    log_manager_load::LoadProgress,
    testing::temporary_folder,
};

/// When Kafka cleaned the recorded logs, to the second: the markers' day, long after the records'.
const CLEANED_AT: Timestamp = Timestamp(1_795_967_490_000);

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/logs").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The topics' settings, of those that a log has.
fn configs(case: &Path) -> BTreeMap<String, LogConfig> {
    let mut configs = BTreeMap::new();
    for znode in lines(&case.join("znodes.jsonl")) {
        let Some(topic) = znode["path"].as_str().unwrap().strip_prefix("/config/topics/") else {
            continue;
        };
        let data: Value = serde_json::from_str(znode["data"].as_str().unwrap()).unwrap();
        let text = |name: &str| data["config"][name].as_str();
        let number =
            |name: &str, default: i64| text(name).map_or(default, |text| text.parse().unwrap());
        let default = LogConfig::default();
        configs.insert(
            topic.to_owned(),
            LogConfig {
                compact: text("cleanup.policy") == Some("compact"),
                delete: false,
                segment_bytes: number("segment.bytes", 1 << 30) as u32,
                index_interval_bytes: number("index.interval.bytes", 4096) as u32,
                segment_index_bytes: 8192,
                min_cleanable_dirty_ratio: text("min.cleanable.dirty.ratio")
                    .map_or(0.5, |ratio| ratio.parse().unwrap()),
                min_compaction_lag_ms: number("min.compaction.lag.ms", 0),
                delete_retention_ms: number("delete.retention.ms", default.delete_retention_ms),
                ..default
            },
        );
    }
    configs
}

/// What is compared of a batch: everything but positions, sizes and checksums, which follow from the codec, and the
/// time of the cleaning, which the delete horizon has.
type BatchRow = (i64, i64, i64, bool, i64, i64, Vec<String>);

fn expected(case: &Path) -> BTreeMap<String, Vec<BatchRow>> {
    let mut files: BTreeMap<String, Vec<BatchRow>> = BTreeMap::new();
    for line in lines(&case.join("expected.jsonl")) {
        let number = |name: &str| line[name].as_i64().unwrap_or(-1);
        let record = |record: &Value| {
            format!(
                "{} {} {} {} {}",
                record["offset"],
                record["timestamp"],
                record["key"].as_str().unwrap_or("null"),
                record["value"].as_str().unwrap_or("null"),
                record["headers"].as_array().map_or(0, Vec::len)
            )
        };
        let records = line["records"].as_array().unwrap().iter().map(record).collect();
        let row = (
            number("baseOffset"),
            number("lastOffset"),
            number("attributes"),
            !line["deleteHorizonMs"].is_null(),
            number("maxTimestamp"),
            number("baseSequence"),
            records,
        );
        files.entry(line["file"].as_str().unwrap().to_owned()).or_default().push(row);
    }
    files
}

fn batch_row(bytes: &[u8]) -> BatchRow {
    let header = BatchHeader::parse(bytes).unwrap();
    let read = records(bytes, 1 << 20).unwrap();
    let text = |bytes: Option<&[u8]>| bytes.map_or("null".to_owned(), base64);
    let records = read.iter().map(|record| {
        let record = record.unwrap();
        let (key, value) = (text(record.key), text(record.value));
        let headers = record.headers.len();
        format!("{} {} {key} {value} {headers}", record.offset, record.timestamp)
    });
    (
        header.base_offset.0,
        header.last_offset().0,
        i64::from(header.attributes.0),
        header.delete_horizon().is_some(),
        header.max_timestamp.0,
        i64::from(header.base_sequence),
        records.collect(),
    )
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = (0..3).fold(0, |sum, at| sum << 8 | u32::from(*chunk.get(at).unwrap_or(&0)));
        for digit in 0..4 {
            text.push(match digit <= chunk.len() {
                true => char::from(DIGITS[(number >> (18 - 6 * digit) & 63) as usize]),
                false => '=',
            });
        }
    }
    text
}

fn open(path: &Path, configs: &BTreeMap<String, LogConfig>) -> Arc<LogManager> {
    let topics = configs.iter();
    let options = LogManagerOptions {
        directories: vec![path.to_owned()],
        failed: Vec::new(),
        default_config: Arc::new(LogConfig::default()),
        topic_configs: topics
            .map(|(topic, config)| (topic.clone(), Arc::new(config.clone())))
            .collect(),
        threads: 1,
        intervals: Default::default(),
        seed: 1,
        producers_max: 1000,
        now: CLEANED_AT,
    };
    Arc::new(LogManager::open(options, &LoadProgress::default()).unwrap())
}

fn found(logs: &[Arc<Log>]) -> BTreeMap<String, Vec<BatchRow>> {
    let mut files = BTreeMap::new();
    for log in logs {
        for view in log.views().0 {
            let folder = view.directory.file_name().unwrap().to_str().unwrap().to_owned();
            let name = format!("data/{folder}/{:020}.log", view.base.0);
            let end = {
                let state = log.state.lock();
                state.segment_end(state.segment_index(view.base)).0
            };
            let is_here = |row: &BatchRow| row.0 >= view.base.0 && row.0 < end;
            let batches = all_bytes(log);
            let rows = batches.iter().map(|bytes| batch_row(bytes)).filter(is_here).collect();
            files.insert(name, rows);
        }
    }
    files
}

#[test]
fn cleaned_with_the_same_settings_a_log_has_the_batches_that_kafka_left() {
    let (before, after) = (case("compaction-before"), case("compaction-after"));
    let folder = temporary_folder();
    copy(&before.join("data"), folder.path());
    let manager = open(folder.path(), &configs(&before));
    for log in manager.logs() {
        // A broker that is alone; ours lets the replication say so.
        log.set_high_watermark(log.end_offset());
    }
    let options = CleanerOptions { dedupe_buffer_bytes: 4_000_000, ..CleanerOptions::default() };
    let work = Work::new(manager.clone(), options, &Registry::default());
    assert_eq!((0..20).take_while(|_| work.turn(CLEANED_AT)).count(), 6);

    let found = found(&manager.logs());
    let mut expected = expected(&after);
    for name in found.keys() {
        // Kafka's list of batches has no line for a segment without one.
        expected.entry(name.clone()).or_default();
        assert!(after.join(name).exists(), "{name}");
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, rows) in &found {
        assert_eq!(rows, &expected[name], "{name}");
    }
    assert!(found.values().flatten().any(|row| row.3), "tombstones wait for their removal");
    let sorted = |path: &Path| {
        let text = fs::read_to_string(path.join("cleaner-offset-checkpoint")).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(folder.path()), sorted(&after.join("data")));
    // And it opens again.
    manager.close();
    let manager = open(folder.path(), &configs(&before));
    assert_eq!(super::golden_tests::found(&manager.logs()), found);
}
