//! What compaction keeps and drops, which logs it takes, and what stops it.

use std::{os::unix::fs::FileExt, sync::Arc, sync::atomic::AtomicBool};

use common::{
    clock,
    counters::{Metric, Registry},
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp},
    topic::{TopicPartition, Uuid},
};
use record::{
    batch::BatchHeader,
    build::BatchBuilder,
    compression::Compression,
    convert::{OldFormat, down_convert},
    records::records,
};

use super::{Cleaner, CleanerOptions, Work, target::Target};
use crate::{
    faults::fail_next_write,
    log::Log,
    log_config::LogConfig,
    log_manager::{LogManager, LogManagerOptions, NewLog},
    log_manager_load::LoadProgress,
    scan::{HeaderScan, read_batch},
    testing::{Batch, NOW, append, batch, checked, end_transaction, read_all, temporary_folder},
};

/// A record: offset, key, value.
type Row = (i64, String, Option<String>);

pub(super) fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1000,
        index_interval_bytes: 100,
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.1,
        delete_retention_ms: 1000,
        retention_ms: -1,
        producer_id_expiration_ms: i64::MAX,
        ..LogConfig::default()
    }
}

/// A broker's log directory, opened.
struct Fixture {
    folder: tempfile::TempDir,
    registry: Registry,
    work: Work,
}

impl Fixture {
    fn new(config: LogConfig) -> Fixture {
        Fixture::with_options(config, CleanerOptions::default())
    }

    fn with_options(config: LogConfig, options: CleanerOptions) -> Fixture {
        let folder = temporary_folder();
        let registry = Registry::default();
        let work = Work::new(open(folder.path(), config), options, &registry);
        Fixture { folder, registry, work }
    }

    /// The same folder after a clean stop and a start.
    fn restart(self, config: LogConfig) -> Fixture {
        self.work.manager.close();
        let registry = Registry::default();
        let manager = open(self.folder.path(), config);
        let work = Work::new(manager, CleanerOptions::default(), &registry);
        Fixture { folder: self.folder, registry, work }
    }

    fn log(&self, topic: &str) -> Arc<Log> {
        self.work.manager.get_or_create(&new(topic)).unwrap()
    }

    /// Cleans what is due, until nothing is.
    fn clean(&self, now: Timestamp) -> usize {
        (0..20).take_while(|_| self.work.turn(now)).count()
    }

    fn checkpoint(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("cleaner-offset-checkpoint")).unwrap()
    }

    fn gauge(&self, name: &str) -> i64 {
        let all = self.registry.all();
        let found = all.iter().find(|(metric, _)| metric.name == name).unwrap();
        match &found.1 {
            Metric::Gauge(gauge) => gauge.value(),
            other => panic!("{other:?}"),
        }
    }
}

fn open(path: &std::path::Path, config: LogConfig) -> Arc<LogManager> {
    let options = LogManagerOptions {
        directories: vec![path.to_owned()],
        failed: Vec::new(),
        default_config: Arc::new(config),
        topic_configs: Default::default(),
        threads: 1,
        intervals: Default::default(),
        seed: 1,
        producers_max: 1000,
        now: NOW,
    };
    Arc::new(LogManager::open(options, &LoadProgress::default()).unwrap())
}

fn new(topic: &str) -> NewLog {
    let partition = TopicPartition::new(topic, 0);
    NewLog { partition, topic_id: Some(Uuid(9)), config: None, is_new: true }
}

/// Appends one batch with these records.
pub(super) fn put(log: &Log, rows: &[(&str, Option<&str>)]) {
    put_with(log, BatchBuilder::new(Compression::None), rows);
}

fn put_with(log: &Log, mut builder: BatchBuilder, rows: &[(&str, Option<&str>)]) {
    for (key, value) in rows {
        let value = value.map(str::as_bytes);
        builder.append(NOW, Some(key.as_bytes()), value, &[]).unwrap();
    }
    log.append_as_leader(checked(builder.finish()), LeaderEpoch(0)).unwrap();
}

/// Ends the active segment, and lets everything be cleaned.
pub(super) fn roll(log: &Log) {
    log.roll().unwrap();
    log.set_high_watermark(log.end_offset());
}

/// All bytes of all batches.
pub(super) fn all_bytes(log: &Log) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    for view in log.views().0 {
        let file = view.log(&log.shared).unwrap();
        let mut scan = HeaderScan::new(&file, 0, view.size);
        while let Some(found) = scan.next().unwrap() {
            let bytes = read_batch(&file, &found).unwrap();
            assert!(found.header.crc_matches(&bytes));
            batches.push(bytes);
        }
    }
    batches
}

pub(super) fn rows(log: &Log) -> Vec<Row> {
    let mut rows = Vec::new();
    let text = |bytes: Option<&[u8]>| bytes.map(|it| String::from_utf8_lossy(it).into_owned());
    for bytes in all_bytes(log) {
        for record in &records(&bytes, 1 << 20).unwrap() {
            let record = record.unwrap();
            let key = text(record.key).unwrap_or_default();
            rows.push((record.offset.0, key, text(record.value)));
        }
    }
    rows
}

fn row(offset: i64, key: &str, value: Option<&str>) -> Row {
    (offset, key.to_owned(), value.map(str::to_owned))
}

fn later(milliseconds: i64) -> Timestamp {
    Timestamp(NOW.0 + milliseconds)
}

#[test]
fn of_each_key_the_last_record_stays_where_it_was() {
    for compression in [Compression::None, Compression::Lz4(9), Compression::Zstd(3)] {
        let fixture = Fixture::new(config());
        let log = fixture.log("t");
        for number in 0..10 {
            let value = number.to_string();
            let key = format!("k{}", number % 3);
            let rows = [(&*key, Some(&*value)), ("x", Some(&*value))];
            put_with(&log, BatchBuilder::new(compression), &rows);
        }
        roll(&log);
        // The active segment stays as it is.
        put(&log, &[("k0", Some("new")), ("k0", Some("newer"))]);
        log.set_high_watermark(log.end_offset());
        let before = log.size();
        assert_eq!(fixture.clean(NOW), 1);
        assert!(log.size() < before);
        let expected = [
            row(14, "k1", Some("7")),
            row(16, "k2", Some("8")),
            row(18, "k0", Some("9")),
            row(19, "x", Some("9")),
            row(20, "k0", Some("new")),
            row(21, "k0", Some("newer")),
        ];
        assert_eq!(rows(&log), expected);
        assert_eq!(fixture.checkpoint(), "0\n1\nt 0 20\n");
        assert_eq!(read_all(&log, Offset(0), log.end_offset())[0], (14, 15));
        let fixture = fixture.restart(config());
        assert_eq!(rows(&fixture.log("t")), expected);
        assert_eq!(fixture.clean(NOW), 0, "the checkpoint is read again");
    }
}

#[test]
fn tombstones_stay_for_a_while_after_they_were_first_cleaned() {
    let fixture = Fixture::new(config());
    let log = fixture.log("t");
    put(&log, &[("a", Some("1")), ("b", Some("1"))]);
    put(&log, &[("a", None), ("c", Some("1"))]);
    roll(&log);
    assert_eq!(fixture.clean(later(0)), 1);
    let expected = [row(1, "b", Some("1")), row(2, "a", None), row(3, "c", Some("1"))];
    assert_eq!(rows(&log), expected);
    let horizon = |log: &Log| BatchHeader::parse(&all_bytes(log)[1]).unwrap().delete_horizon();
    assert_eq!(horizon(&log), Some(later(1000)));
    // Its own timestamps are still there.
    assert_eq!(log.offset_for_timestamp(NOW).unwrap().unwrap().offset, Offset(1));
    for (at, expected) in
        [(999, &expected[..]), (1000, &[row(1, "b", Some("1")), row(3, "c", Some("1"))])]
    {
        put(&log, &[("d", Some("1"))]);
        roll(&log);
        assert_eq!(fixture.clean(later(at)), 1);
        let kept: Vec<Row> = rows(&log).into_iter().filter(|row| row.1 != "d").collect();
        assert_eq!(kept, expected, "at {at}");
        assert_eq!(horizon(&log), Some(later(1000)));
    }
}

#[test]
fn what_is_not_replicated_or_decided_or_old_enough_stays() {
    let fixture = Fixture::new(LogConfig { min_compaction_lag_ms: 100, ..config() });
    let log = fixture.log("t");
    let mut bases = Vec::new();
    for _ in 0..4 {
        put(&log, &[("a", Some("1")), ("a", Some("2"))]);
        bases.push(log.roll().unwrap().0);
    }
    assert_eq!(fixture.clean(later(200)), 0, "nothing is replicated");
    log.set_high_watermark(Offset(3));
    assert_eq!(fixture.clean(later(99)), 0, "too young");
    assert_eq!(fixture.clean(later(100)), 1);
    assert_eq!(log.cleaning.lock().cleaned_to(), Some(Offset(2)), "the segment's start");
    assert_eq!(rows(&log).len(), 7);
    let open = Batch { producer: Some((7, 0, 0)), transactional: true, ..batch() };
    append(&log, open).unwrap();
    put(&log, &[("a", Some("3"))]);
    roll(&log);
    assert_eq!(fixture.clean(later(1000)), 1);
    assert_eq!(log.cleaning.lock().cleaned_to(), Some(Offset(8)), "the open transaction's");
    assert_eq!(rows(&log)[0].0, 7);
    end_transaction(&log, (7, 0), false);
    roll(&log);
    assert_eq!(fixture.clean(later(1000)), 1);
    let left: Vec<i64> = rows(&log).iter().map(|row| row.0).collect();
    assert_eq!(left, [8, 9, 10]);
}

#[test]
fn the_dirtiest_log_comes_first_and_an_old_one_whatever_its_ratio() {
    let fixture = Fixture::new(LogConfig { min_cleanable_dirty_ratio: 0.5, ..config() });
    let (one, two) = (fixture.log("one"), fixture.log("two"));
    for log in [&one, &two] {
        put(log, &[("a", Some("1")), ("b", Some("1"))]);
        roll(log);
    }
    assert!(fixture.work.turn(NOW) && fixture.work.turn(NOW) && !fixture.work.turn(NOW));
    let clean = ("c", Some("a clean value that is long enough for two thirds of the log"));
    for (log, count) in [(&one, 1), (&two, 9)] {
        (0..count).for_each(|_| put(log, &[clean]));
        roll(log);
    }
    assert!(fixture.work.turn(NOW));
    assert_eq!(one.cleaning.lock().cleaned_to(), Some(Offset(2)), "the other is dirtier");
    assert!(fixture.work.turn(NOW));
    assert_eq!(two.cleaning.lock().cleaned_to(), Some(Offset(11)));
    assert_eq!(one.cleaning.lock().cleaned_to(), Some(Offset(3)));
    put(&one, &[("a", Some("2"))]);
    roll(&one);
    assert!(!fixture.work.turn(NOW), "a quarter is not enough");
    one.set_config(Arc::new(LogConfig {
        max_compaction_lag_ms: 60_000,
        ..(*one.config()).clone()
    }));
    assert!(!fixture.work.turn(later(60_000)));
    assert!(fixture.work.turn(later(60_001)));
    assert_eq!(fixture.gauge("max-dirty-percent"), 25);
}

#[test]
fn a_small_map_cleans_as_far_as_it_goes_and_then_goes_on() {
    let options = CleanerOptions { dedupe_buffer_bytes: 24 * 12, ..CleanerOptions::default() };
    let fixture =
        Fixture::with_options(LogConfig { min_cleanable_dirty_ratio: 0.0, ..config() }, options);
    let log = fixture.log("t");
    for number in 0..90 {
        let (key, value) = (format!("k{:02}", number % 30), number.to_string());
        put(&log, &[(&key, Some(&value)), ("all", Some(&value))]);
    }
    roll(&log);
    let turns = fixture.clean(NOW);
    assert!((10..20).contains(&turns), "{turns}");
    let kept = rows(&log);
    assert_eq!(kept.len(), 31);
    assert!(kept.iter().all(|row| row.0 >= 120));
}

#[test]
fn segments_are_merged_up_to_the_size_of_one() {
    let fixture = Fixture::new(config());
    let log = fixture.log("t");
    for number in 0..100 {
        put(
            &log,
            &[
                (&format!("k{}", number % 5), Some("value")),
                (&format!("n{}", number % 20), Some("v")),
            ],
        );
    }
    roll(&log);
    let count = log.segment_count();
    assert_eq!(fixture.clean(NOW), 1);
    put(&log, &[("k0", Some("again"))]);
    roll(&log);
    log.set_config(Arc::new(LogConfig { min_cleanable_dirty_ratio: 0.0, ..config() }));
    assert_eq!(fixture.clean(NOW), 1);
    assert!(log.segment_count() < count, "{} {count}", log.segment_count());
    assert!(log.views().0.iter().all(|view| view.size <= 1000));
    // Old files wait for their delay, then go.
    let names = || std::fs::read_dir(log.path()).unwrap().count();
    let with_deleted = names();
    log.maintain(Timestamp(i64::MAX), true).unwrap();
    assert!(names() < with_deleted);
    assert_eq!(read_all(&log, Offset(0), log.end_offset()).len(), all_bytes(&log).len());
}

/// What batches there are: base offset, producer, count of records, whether control.
fn batches(log: &Log) -> Vec<(i64, i64, i32, bool)> {
    let header = |bytes: &Vec<u8>| {
        let header = BatchHeader::parse(bytes).unwrap();
        let is_control = header.attributes.is_control();
        (header.base_offset.0, header.producer_id.0, header.record_count, is_control)
    };
    all_bytes(log).iter().map(header).collect()
}

#[test]
fn aborted_records_go_at_once_and_markers_once_nothing_needs_them() {
    let fixture = Fixture::new(LogConfig { verify_transactions: false, ..config() });
    let log = fixture.log("t");
    let transactional = |producer, sequence| Batch {
        producer: Some((producer, 0, sequence)),
        transactional: true,
        count: 2,
        ..batch()
    };
    put(&log, &[("other", Some("1"))]); // 0
    append(&log, transactional(7, 0)).unwrap(); // 1, 2
    append(&log, transactional(8, 0)).unwrap(); // 3, 4
    end_transaction(&log, (7, 0), true); // 5
    roll(&log);
    end_transaction(&log, (8, 0), false); // 6
    append(&log, transactional(7, 2)).unwrap(); // 7, 8
    end_transaction(&log, (7, 0), true); // 9
    roll(&log);
    assert_eq!(fixture.clean(later(0)), 1);
    // Of the producers' last batches at least the headers stay; of the committed one the last record of its key.
    let first = [
        (0, -1, 1, false),
        (3, 8, 1, false),
        (5, 7, 1, true),
        (6, 8, 1, true),
        (7, 7, 0, false),
        (9, 7, 1, true),
    ];
    assert_eq!(batches(&log), first);
    assert_eq!(log.last_stable_offset(), Offset(10));
    let aborted = log.aborted_transactions(Offset(0), Offset(10)).unwrap();
    let aborted: Vec<(i64, i64)> =
        aborted.iter().map(|one| (one.first_offset.0, one.last_offset.0)).collect();
    assert_eq!(aborted, [(1, 5), (7, 9)], "the markers stay, and so does what they end");

    // The second pass finds the first transaction empty, and gives its marker a time; the third removes it.
    for (at, marker_stays) in [(10, true), (2000, false)] {
        put(&log, &[("other", Some("2"))]);
        roll(&log);
        assert_eq!(fixture.clean(later(at)), 1);
        assert_eq!(batches(&log).iter().any(|batch| batch.0 == 5), marker_stays);
        assert!(
            batches(&log).iter().any(|batch| batch.0 == 9),
            "a batch of its transaction is there"
        );
    }
    // The sequences go on after a start without what was kept in memory.
    let fixture = fixture.restart(LogConfig { verify_transactions: false, ..config() });
    let log = fixture.log("t");
    let wrong = append(&log, transactional(7, 9));
    assert!(wrong.is_err());
    append(&log, transactional(7, 4)).unwrap();
    assert_eq!(log.last_stable_offset(), log.high_watermark().min(Offset(12)));
}

#[test]
fn replayed_from_its_batches_a_cleaned_log_knows_its_producers() {
    let config = LogConfig { verify_transactions: false, ..config() };
    let fixture = Fixture::new(config.clone());
    let log = fixture.log("t");
    for sequence in 0..30 {
        append(&log, Batch { producer: Some((5, 2, sequence)), ..batch() }).unwrap();
        let one = Batch { producer: Some((6, 0, sequence)), transactional: true, ..batch() };
        append(&log, one).unwrap();
        end_transaction(&log, (6, 0), sequence % 2 == 0);
    }
    put(&log, &[("key", Some("last of its key"))]);
    roll(&log);
    assert_eq!(fixture.clean(later(0)), 1);
    let producers = |log: &Log| {
        let of = |one: crate::log::ActiveProducer| {
            let producer = one.producer;
            (one.producer_id, producer.epoch, producer.last_sequence(), producer.last_data_offset())
        };
        let mut producers: Vec<_> = log.producers().into_iter().map(of).collect();
        producers.sort();
        producers
    };
    let expected = producers(&log);
    let path = log.path();
    fixture.work.manager.close();
    for entry in std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|end| end == "snapshot" || end == "txnindex") {
            std::fs::remove_file(entry).unwrap();
        }
    }
    std::fs::remove_file(fixture.folder.path().join(".kafka_cleanshutdown")).unwrap();
    std::fs::remove_file(fixture.folder.path().join("recovery-point-offset-checkpoint")).unwrap();
    let manager = open(fixture.folder.path(), config);
    let log = manager.log(&TopicPartition::new("t", 0)).unwrap();
    assert_eq!(producers(&log), expected);
    log.set_high_watermark(log.end_offset());
    assert_eq!(log.last_stable_offset(), log.end_offset());
}

#[test]
fn with_both_policies_old_segments_go_too() {
    let fixture = Fixture::new(LogConfig { delete: true, retention_ms: 1000, ..config() });
    let log = fixture.log("t");
    put(&log, &[("a", Some("1")), ("b", Some("1"))]);
    roll(&log);
    put(&log, &[("a", Some("2"))]);
    log.set_high_watermark(log.end_offset());
    assert_eq!(fixture.clean(later(0)), 1);
    assert_eq!(rows(&log).len(), 3);
    fixture.work.manager.check_retention(later(5000));
    assert_eq!(rows(&log).len(), 3, "that is the cleaner's");
    fixture.clean(later(5000));
    assert_eq!((rows(&log), log.start_offset()), (Vec::new(), Offset(3)));
    // The checkpoint is behind the log's start now, which means nothing.
    put(&log, &[("a", Some("3"))]);
    roll(&log);
    fixture.clean(later(0));
    assert_eq!(log.cleaning.lock().cleaned_to(), Some(Offset(4)));
}

#[test]
fn records_before_the_start_offset_go_from_a_compacted_log() {
    let fixture = Fixture::new(LogConfig { min_cleanable_dirty_ratio: 1.0, ..config() });
    let log = fixture.log("t");
    put(&log, &[("a", Some("1"))]);
    roll(&log);
    put(&log, &[("b", Some("1"))]);
    roll(&log);
    log.advance_start_offset(Offset(1)).unwrap();
    fixture.clean(NOW);
    assert_eq!(rows(&log), [row(1, "b", Some("1"))]);
}

fn damage(log: &Log) {
    let path = log.path().join("00000000000000000000.log");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"!", 70).unwrap();
}

#[test]
fn a_damaged_log_is_left_alone_and_the_others_are_cleaned() {
    let fixture = Fixture::new(config());
    let (bad, good) = (fixture.log("bad"), fixture.log("good"));
    for log in [&bad, &good] {
        put(log, &[("a", Some("1")), ("a", Some("2"))]);
        roll(log);
    }
    damage(&bad);
    let bytes = std::fs::read(bad.path().join("00000000000000000000.log")).unwrap();
    for _ in 0..4 {
        fixture.work.turn(NOW);
    }
    assert_eq!(rows(&good), [row(1, "a", Some("2"))]);
    assert_eq!(std::fs::read(bad.path().join("00000000000000000000.log")).unwrap(), bytes);
    assert!(bad.cleaning.lock().is_uncleanable() && !bad.log_directory().is_offline());
    assert_eq!(fixture.gauge("uncleanable-partitions-count"), 1);
    assert!(fixture.gauge("uncleanable-bytes") > 0);
    assert_eq!(fixture.gauge("DeadThreadCount"), 0);
    assert_eq!(fixture.gauge("cleaner-recopy-percent") / 10, 8, "69 of 79 bytes");
    assert!(!names(&bad).iter().any(|name| name.ends_with(".cleaned")));
}

fn names(log: &Log) -> Vec<String> {
    let entries = std::fs::read_dir(log.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_full_disk_stops_one_cleaning_and_a_failing_one_the_directory() {
    let fixture = Fixture::new(config());
    let log = fixture.log("t");
    put(&log, &[("a", Some("1")), ("a", Some("2"))]);
    roll(&log);
    fail_next_write(10, std::io::ErrorKind::StorageFull);
    assert!(!fixture.work.turn(NOW));
    assert!(!names(&log).iter().any(|name| name.ends_with(".cleaned")), "{:?}", names(&log));
    assert!(!log.log_directory().is_offline() && !log.log_directory().is_full());
    assert_eq!(rows(&log).len(), 2);
    assert!(fixture.work.turn(NOW));
    assert_eq!(rows(&log), [row(1, "a", Some("2"))]);
    put(&log, &[("a", Some("3")), ("a", Some("4"))]);
    roll(&log);
    fail_next_write(10, std::io::ErrorKind::Other);
    assert!(!fixture.work.turn(NOW));
    assert!(log.log_directory().is_offline());
    assert!(!fixture.work.turn(NOW));
}

#[test]
fn a_log_that_is_cut_or_deleted_meanwhile_ends_its_cleaning() {
    let cut = |log: &Log| assert!(log.truncate_to(Offset(3)).unwrap());
    let empty = |log: &Log| log.truncate_fully_and_start_at(Offset(0), None).unwrap();
    let rename = |log: &Log| log.rename("t-0.0123456789abcdef0123456789abcdef-delete").unwrap();
    let retire = |log: &Log| {
        log.advance_start_offset(Offset(4)).unwrap();
        assert_eq!(log.delete_old_segments(NOW).unwrap(), 2);
    };
    for change in [&cut as &dyn Fn(&Log), &empty, &rename, &retire] {
        let fixture = Fixture::new(config());
        let log = fixture.log("t");
        for _ in 0..3 {
            put(&log, &[("a", Some("1")), ("a", Some("2"))]);
            roll(&log);
        }
        let views: Vec<_> = log.views().0[..3].to_vec();
        let mut target = Target::begin(&log, &views, 100).unwrap();
        for bytes in all_bytes(&log) {
            target.write(&bytes).unwrap();
        }
        change(&log);
        let kept = rows(&log);
        assert!(target.replace(&[]).is_err());
        assert_eq!(rows(&log), kept);
        assert!(!log.log_directory().is_offline());
        let left = names(&log);
        let is_ours = |name: &&String| name.ends_with(".cleaned") || name.ends_with(".swap");
        assert_eq!(left.iter().filter(is_ours).count(), 0, "{left:?}");
    }
}

#[test]
fn a_truncation_takes_the_checkpoint_back() {
    let fixture = Fixture::new(config());
    let log = fixture.log("t");
    for _ in 0..3 {
        put(&log, &[("a", Some("1")), ("b", Some("2"))]);
        roll(&log);
    }
    fixture.clean(NOW);
    assert_eq!(log.cleaning.lock().cleaned_to(), Some(Offset(6)));
    log.truncate_to(Offset(5)).unwrap();
    let cleaned_to = log.cleaning.lock().cleaned_to();
    assert_eq!(
        cleaned_to,
        Some(Offset(0)),
        "the segments were merged into one, which is active again"
    );
    fixture.clean(NOW);
    assert_eq!(fixture.checkpoint(), "0\n1\nt 0 0\n");
}

#[test]
fn a_topic_that_is_made_again_begins_anew() {
    let fixture = Fixture::new(config());
    let log = fixture.log("t");
    put(&log, &[("a", Some("1")), ("a", Some("2"))]);
    roll(&log);
    fixture.clean(NOW);
    assert_eq!(fixture.checkpoint(), "0\n1\nt 0 2\n");
    fixture.work.manager.delete(&TopicPartition::new("t", 0)).unwrap();
    fixture.clean(NOW);
    assert_eq!(fixture.checkpoint(), "0\n0\n");
    let log = fixture.log("t");
    put(&log, &[("a", Some("1")), ("a", Some("2"))]);
    roll(&log);
    assert_eq!(fixture.clean(NOW), 1);
    assert_eq!(rows(&log).len(), 1);
}

#[test]
fn messages_of_old_formats_are_compacted() {
    for compression in [Compression::None, Compression::Gzip(-1)] {
        for to in [OldFormat::Magic0, OldFormat::Magic1] {
            let fixture = Fixture::new(LogConfig { delete_retention_ms: 0, ..config() });
            let log = fixture.log("t");
            for number in 0..4_i64 {
                let mut builder = BatchBuilder::new(compression).base_offset(Offset(number * 3));
                for (key, value) in [("a", Some("1")), ("b", None), ("c", Some("2"))] {
                    let value = value.map(str::as_bytes);
                    builder.append(NOW, Some(key.as_bytes()), value, &[]).unwrap();
                }
                let old = down_convert(&builder.finish(), to, Offset(0), 1 << 20).unwrap();
                log.append_as_follower(&old).unwrap();
            }
            roll(&log);
            assert_eq!(fixture.clean(NOW), 1);
            let expected = [row(9, "a", Some("1")), row(10, "b", None), row(11, "c", Some("2"))];
            assert_eq!(rows(&log), expected, "{compression:?} {to:?}");
            // Tombstones go when their segment is older than the last clean one by the retention.
            put(&log, &[("d", Some("1"))]);
            roll(&log);
            assert_eq!(fixture.clean(NOW), 1);
            let kept: Vec<i64> = rows(&log).iter().map(|row| row.0).collect();
            assert_eq!(kept, [9, 11, 12], "{compression:?} {to:?}");
        }
    }
}

#[test]
fn records_without_a_key_go() {
    let fixture = Fixture::new(config());
    let log = fixture.log("t");
    let mut builder = BatchBuilder::new(Compression::None);
    builder.append(NOW, None, Some(b"1"), &[]).unwrap();
    builder.append(NOW, Some(b"a"), Some(b"2"), &[]).unwrap();
    log.append_as_leader(checked(builder.finish()), LeaderEpoch(0)).unwrap();
    roll(&log);
    assert_eq!(fixture.clean(NOW), 1);
    assert_eq!(rows(&log), [row(1, "a", Some("2"))]);
}

#[test]
fn a_log_that_is_clean_already_is_not_written_anew() {
    let fixture = Fixture::new(config());
    let log = fixture.log("t");
    put(&log, &[("a", Some("1")), ("b", Some("2"))]);
    roll(&log);
    let before = log.views().0[0].id;
    assert_eq!(fixture.clean(NOW), 1);
    assert_eq!(log.views().0[0].id, before);
    assert_eq!(names(&log).iter().filter(|name| name.contains(".log.")).count(), 0);
}

#[test]
fn readers_writers_and_truncations_go_on_during_cleaning() {
    let options = CleanerOptions { io_buffer_bytes: 200, ..CleanerOptions::default() };
    let fixture =
        Fixture::with_options(LogConfig { min_cleanable_dirty_ratio: 0.0, ..config() }, options);
    let log = fixture.log("t");
    let stopped = AtomicBool::new(false);
    let is_stopped = || stopped.load(std::sync::atomic::Ordering::Acquire);
    std::thread::scope(|scope| {
        for step in [1, 37] {
            let (log, is_stopped) = (&log, &is_stopped);
            scope.spawn(move || {
                let mut from = Offset(0);
                while !is_stopped() {
                    let up_to = log.high_watermark();
                    let Ok(read) = log.read(from, 400, true, up_to) else {
                        from = Offset(0);
                        continue;
                    };
                    let Some(region) = read.regions.first() else {
                        from = Offset(0);
                        continue;
                    };
                    let mut bytes = vec![0; region.length];
                    let is_whole = region.file.read_exact_at(&mut bytes, region.position).is_ok();
                    // A truncation shortens the file under a reader, as it always did.
                    if is_whole && let Ok(header) = record::entry::EntryHeader::parse(&bytes) {
                        assert!(header.last_offset >= from);
                        log.upper_bound(&read).unwrap();
                        from = header.last_offset.plus(step);
                    }
                }
            });
        }
        scope.spawn(|| {
            while !is_stopped() {
                fixture.work.turn(NOW);
            }
        });
        for number in 0..1500_i64 {
            let key = format!("k{}", number % 40);
            put(&log, &[(&key, Some(&number.to_string()))]);
            log.set_high_watermark(log.end_offset());
            if number % 100 == 99 {
                let end = log.end_offset().0;
                log.truncate_to(Offset(end - 5)).unwrap();
                log.set_high_watermark(log.end_offset());
            }
        }
        stopped.store(true, std::sync::atomic::Ordering::Release);
    });
    assert!(!log.log_directory().is_offline() && !log.cleaning.lock().is_uncleanable());
    roll(&log);
    fixture.clean(NOW);
    let kept = rows(&log);
    let keys: std::collections::BTreeSet<&String> = kept.iter().map(|row| &row.1).collect();
    assert_eq!((kept.len(), keys.len()), (40, 40));
    assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
}

#[test]
fn threads_clean_by_themselves_and_stop() {
    let fixture = Fixture::new(config());
    let logs: Vec<Arc<Log>> = ["a", "b", "c"].iter().map(|topic| fixture.log(topic)).collect();
    for log in &logs {
        put(log, &[("a", Some("1")), ("a", Some("2"))]);
        roll(log);
    }
    let options = CleanerOptions { threads: 2, ..CleanerOptions::default() };
    let manager = fixture.work.manager.clone();
    let cleaner = Cleaner::start(manager, options, &Registry::default()).unwrap();
    let deadline = clock::now() + std::time::Duration::from_secs(20);
    while logs.iter().any(|log| log.cleaning.lock().cleaned_to() != Some(Offset(2))) {
        assert!(clock::now() < deadline);
        std::thread::yield_now();
    }
    cleaner.stop();
    assert!(logs.iter().all(|log| rows(log).len() == 1));
}

#[test]
fn the_producers_of_a_segment_that_was_merged_away_are_found_again() {
    let config = config();
    let fixture = Fixture::new(config.clone());
    let log = fixture.log("t");
    for sequence in 0..40 {
        append(&log, Batch { producer: Some((5, 2, sequence)), ..batch() }).unwrap();
    }
    roll(&log);
    fixture.clean(NOW);
    put(&log, &[("x", Some("1"))]);
    roll(&log);
    fixture.clean(NOW);
    let bases: Vec<Offset> = log.views().0.iter().map(|view| view.base).collect();
    let end = log.end_offset();
    for name in names(&log).iter().filter(|name| name.ends_with(".snapshot")) {
        let offset = crate::segment_files::offset(name).unwrap();
        assert!(bases.contains(&offset) || offset == end, "{name} {bases:?}");
    }
    let producer = (ProducerId(5), ProducerEpoch(2));
    log.truncate_to(end.plus(-1)).unwrap();
    let known = log.producers().into_iter().find(|one| one.producer_id == producer.0).unwrap();
    assert_eq!((known.producer.epoch, known.producer.last_sequence()), (producer.1, 39));
}
