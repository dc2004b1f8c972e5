//! Every log that a real Kafka left in `tests/golden/logs` opens with exactly the batches that Kafka shows for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::ids::{Offset, Timestamp};
use serde_json::Value;

use crate::{
    index::{self, Entries, OffsetEntry, TimeEntry},
    log::Log,
    log_config::LogConfig,
    log_manager::{LogManager, LogManagerOptions},
    log_manager_load::LoadProgress,
    producer_snapshot,
    scan::HeaderScan,
    segment::IndexBuilder,
    testing::{read_all, temporary_folder},
    transaction_index,
};

/// What is compared of a batch: position, size, magic, base and last offset, largest timestamp, epoch, producer.
type Row = (u64, u64, i64, i64, i64, i64, i64, i64);

fn logs_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/logs")
}

fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> =
        fs::read_dir(logs_folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 15);
    cases
}

fn data_folders(case: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(case).unwrap().map(|entry| entry.unwrap().path());
    let is_data = |path: &PathBuf| {
        path.file_name().unwrap().to_str().unwrap().starts_with("data") && path.is_dir()
    };
    let mut folders: Vec<PathBuf> = paths.filter(is_data).collect();
    folders.sort();
    folders
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Opens a copy of a folder. The time is that of the recorded data, so that no producer has expired.
fn open(path: &Path) -> LogManager {
    let options = LogManagerOptions {
        directories: vec![path.to_owned()],
        failed: Vec::new(),
        default_config: Arc::new(LogConfig::default()),
        topic_configs: Default::default(),
        threads: 1,
        intervals: Default::default(),
        seed: 1,
        producers_max: 1000,
        now: Timestamp(1_700_000_100_000),
    };
    LogManager::open(options, &LoadProgress::default()).unwrap()
}

fn expected_batches(case: &Path) -> BTreeMap<String, Vec<Row>> {
    let mut expected: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for line in lines(&case.join("expected.jsonl")) {
        let number = |name: &str| line[name].as_i64();
        assert_eq!(line["isValid"], Value::Bool(true));
        let is_old = line["magic"] != 2;
        let base = if is_old && line["codec"] != "none" {
            number("lastOffset")
        } else {
            number("baseOffset")
        };
        expected.entry(line["file"].as_str().unwrap().to_owned()).or_default().push((
            number("position").unwrap() as u64,
            number("size").unwrap() as u64,
            number("magic").unwrap(),
            base.unwrap(),
            number("lastOffset").unwrap(),
            number("maxTimestamp").unwrap(),
            number("partitionLeaderEpoch").unwrap_or(-1),
            number("producerId").unwrap_or(-1),
        ));
    }
    expected
}

fn segment_rows(log: &Log) -> BTreeMap<String, Vec<Row>> {
    let mut rows = BTreeMap::new();
    for view in log.views().0 {
        let file = view.log(&log.shared).unwrap();
        let mut scan = HeaderScan::new(&file, 0, view.size);
        let mut batches = Vec::new();
        while let Some(found) = scan.next().unwrap() {
            let header = found.header;
            batches.push((
                found.position,
                header.size as u64,
                i64::from(header.magic),
                header.first_or_last_offset().0,
                header.last_offset.0,
                header.max_timestamp.0,
                i64::from(header.leader_epoch.0),
                header.producer_id.0,
            ));
        }
        let folder = view.directory.file_name().unwrap().to_str().unwrap().to_owned();
        rows.insert(format!("{folder}/{:020}.log", view.base.0), batches);
    }
    rows
}

/// Live segments of a data folder, as Kafka's file list has them.
fn expected_segments(files: &[Value], data: &str) -> BTreeSet<String> {
    let names = files.iter().map(|file| file["file"].as_str().unwrap());
    let prefix = format!("{data}/");
    names
        .filter_map(|name| name.strip_prefix(&prefix))
        .filter(|name| name.ends_with(".log") && !name.contains("-delete/"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_recorded_log_opens_with_the_batches_that_kafka_shows() {
    let mut batch_count = 0;
    for case in cases() {
        let expected = expected_batches(&case);
        let files = lines(&case.join("files.jsonl"));
        for data in data_folders(&case) {
            let folder = temporary_folder();
            copy(&data, folder.path());
            let data = data.file_name().unwrap().to_str().unwrap();
            let manager = open(folder.path());
            let check = |manager: &LogManager| {
                let mut segments = BTreeSet::new();
                let mut batch_count = 0;
                for log in manager.logs().into_iter().chain(manager.future_logs()) {
                    for (file, rows) in segment_rows(&log) {
                        let name = format!("{data}/{file}");
                        let expected = expected.get(&name).cloned().unwrap_or_default();
                        assert_eq!(rows, expected, "{} {name}", case.display());
                        batch_count += rows.len();
                        segments.insert(file);
                    }
                    check_reads(&log);
                }
                assert_eq!(segments, expected_segments(&files, data), "{}", case.display());
                batch_count
            };
            let found = check(&manager);
            batch_count += found;
            // What we leave behind opens again, with the same content.
            manager.close();
            let manager = open(folder.path());
            assert_eq!(check(&manager), found);
        }
    }
    assert!(batch_count > 4800, "{batch_count}");
}

/// Every batch from the log's start on is given by reading on from the one before it, and timestamps find their
/// records.
fn check_reads(log: &Log) {
    let (start, end) = (log.start_offset(), log.end_offset());
    let mut expected = Vec::new();
    for rows in segment_rows(log).values() {
        expected.extend(rows.iter().filter(|row| row.4 >= start.0).map(|row| (row.3, row.4)));
    }
    assert_eq!(read_all(log, start, end), expected, "{log:?}");
    let last = expected
        .last()
        .map_or(start.0.max(log.views().0.last().unwrap().base.0), |last| last.1 + 1);
    assert_eq!(end.0, last.max(start.0), "{log:?}");
}

#[test]
fn kafkas_indexes_snapshots_and_checkpoints_are_read_as_kafka_reads_them() {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases() {
        for file in lines(&case.join("files.jsonl")) {
            let name = file["file"].as_str().unwrap();
            let bytes = fs::read(case.join(name)).unwrap();
            let base = crate::segment_files::offset(name.rsplit('/').next().unwrap());
            let number = |entry: &Value, name: &str| entry[name].as_i64().unwrap();
            let entries = file["entries"].as_array();
            let kind = file["kind"].as_str().unwrap();
            *kinds.entry(kind.to_owned()).or_default() += 1;
            match (kind, base) {
                ("index", Some(base)) => {
                    let used = &bytes[..entries.unwrap().len() * 8];
                    let read = Entries::<OffsetEntry>::checked(used, u64::MAX).unwrap();
                    for (index, entry) in entries.unwrap().iter().enumerate() {
                        let read = read.get(index).unwrap();
                        let offset = base.0 + i64::from(read.relative);
                        assert_eq!(offset, number(entry, "offset"), "{name}");
                        assert_eq!(i64::from(read.position), number(entry, "position"), "{name}");
                    }
                }
                ("timeindex", Some(base)) => {
                    let used = &bytes[..entries.unwrap().len() * 12];
                    let read = Entries::<TimeEntry>::checked(used, u64::MAX).unwrap();
                    for (index, entry) in entries.unwrap().iter().enumerate() {
                        let read = read.get(index).unwrap();
                        let offset = base.0 + i64::from(read.relative);
                        assert_eq!(offset, number(entry, "offset"), "{name}");
                        assert_eq!(read.timestamp.0, number(entry, "timestamp"), "{name}");
                    }
                }
                ("txnindex", Some(base)) => {
                    let read = transaction_index::decode(&bytes, base).unwrap();
                    let expected = entries.unwrap().iter();
                    let expected: Vec<[i64; 4]> = expected
                        .map(|entry| {
                            ["producerId", "firstOffset", "lastOffset", "lastStableOffset"]
                                .map(|name| number(entry, name))
                        })
                        .collect();
                    let read: Vec<[i64; 4]> = read
                        .iter()
                        .map(|one| {
                            [
                                one.producer_id.0,
                                one.first_offset.0,
                                one.last_offset.0,
                                one.last_stable_offset.0,
                            ]
                        })
                        .collect();
                    assert_eq!(read, expected, "{name}");
                }
                ("snapshot", _) => {
                    let read = producer_snapshot::decode(&bytes).unwrap();
                    assert_eq!(read.len(), entries.unwrap().len());
                    for (read, entry) in read.iter().zip(entries.unwrap()) {
                        assert_eq!(read.producer_id.0, number(entry, "producerId"));
                        assert_eq!(i64::from(read.last_sequence), number(entry, "lastSequence"));
                        assert_eq!(read.last_offset.0, number(entry, "lastOffset"));
                        let start = number(entry, "currentTxnFirstOffset");
                        assert_eq!(read.current_transaction_first_offset.0, start);
                    }
                }
                _ => {}
            }
        }
    }
    for kind in ["index", "timeindex", "txnindex", "snapshot"] {
        assert!(kinds[kind] > 5, "{kinds:?}");
    }
}

#[test]
fn producers_and_aborted_transactions_are_the_same_with_and_without_what_kafka_kept_of_them() {
    let case = logs_folder().join("clean");
    let (kept, bare) = (temporary_folder(), temporary_folder());
    copy(&case.join("data"), kept.path());
    copy(&case.join("data"), bare.path());
    fs::remove_file(bare.path().join(".kafka_cleanshutdown")).unwrap();
    fs::remove_file(bare.path().join("recovery-point-offset-checkpoint")).unwrap();
    for folder in fs::read_dir(bare.path()).unwrap().map(|entry| entry.unwrap().path()) {
        for file in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if [".snapshot", ".index", "timeindex", "txnindex"]
                .iter()
                .any(|end| file.to_str().unwrap().ends_with(end))
            {
                fs::remove_file(file).unwrap();
            }
        }
    }
    let (kept, bare) = (open(kept.path()), open(bare.path()));
    let mut seen = (0, 0);
    for log in kept.logs() {
        let other = bare.log(log.partition()).unwrap();
        let producers = |log: &Log| {
            let mut producers: Vec<_> = log
                .producers()
                .into_iter()
                .map(|one| {
                    // A snapshot has one timestamp, that of the marker if that came last.
                    let last = one.producer.batches.back();
                    let last =
                        last.map(|last| (last.last_sequence, last.last_offset, last.offset_delta));
                    (one.producer_id, one.producer.epoch, last, one.producer.transaction_start)
                })
                .collect();
            producers.sort_by_key(|producer| producer.0);
            producers
        };
        assert_eq!(producers(&log), producers(&other), "{log:?}");
        let aborted = |log: &Log| log.aborted_transactions(Offset(0), log.end_offset()).unwrap();
        assert_eq!(aborted(&log), aborted(&other), "{log:?}");
        seen = (seen.0 + log.producer_count(), seen.1 + aborted(&log).len());
    }
    assert!(seen.0 > 3 && seen.1 > 3, "{seen:?}");
}

#[test]
fn indexes_made_again_are_those_that_kafka_made() {
    let mut compared = 0;
    for case in ["clean", "codecs"].map(|case| logs_folder().join(case)) {
        let mut intervals: BTreeMap<String, u64> = BTreeMap::new();
        for znode in lines(&case.join("znodes.jsonl")) {
            if let Some(topic) = znode["path"].as_str().unwrap().strip_prefix("/config/topics/") {
                let data: Value = serde_json::from_str(znode["data"].as_str().unwrap()).unwrap();
                let interval = data["config"]["index.interval.bytes"].as_str();
                let interval = interval.map_or(4096, |interval| interval.parse().unwrap());
                intervals.insert(topic.to_owned(), interval);
            }
        }
        let folder = temporary_folder();
        copy(&case.join("data"), folder.path());
        let manager = open(folder.path());
        for log in manager.logs() {
            let interval = intervals.get(&*log.partition().topic).copied().unwrap_or(4096);
            for view in log.views().0 {
                let mut builder = IndexBuilder::new(view.base, interval);
                let file = view.log(&log.shared).unwrap();
                let mut scan = HeaderScan::new(&file, 0, view.size);
                while let Some(found) = scan.next().unwrap() {
                    builder.add(&found);
                }
                builder.seal();
                let name = |extension| {
                    let folder = view.directory.file_name().unwrap();
                    case.join("data").join(folder).join(format!("{:020}{extension}", view.base.0))
                };
                let kafkas = fs::read(name(".index")).unwrap();
                assert_eq!(index::encode(&builder.offsets), kafkas, "{}", name(".index").display());
                let kafkas = fs::read(name(".timeindex")).unwrap();
                assert_eq!(
                    index::encode(&builder.times),
                    kafkas,
                    "{}",
                    name(".timeindex").display()
                );
                compared += builder.offsets.len();
            }
        }
    }
    assert!(compared > 100, "{compared}");
}
