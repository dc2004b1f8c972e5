//! Tests of the log manager: starts, stops, choice of directories, deletion.

use std::{path::PathBuf, sync::Arc};

use common::{
    ids::{LeaderEpoch, Offset, Timestamp},
    topic::{TopicPartition, Uuid},
};

use crate::{
    error::LogError,
    log::Log,
    log_config::LogConfig,
    log_manager::{CreateError, LogManager, LogManagerOptions, NewLog, StartError},
    log_manager_load::LoadProgress,
    producer_limit::PRODUCERS_MAX,
    testing::{Batch, NOW, append, batch, temporary_folder},
};

struct Fixture {
    folder: tempfile::TempDir,
    directories: usize,
}

impl Fixture {
    fn new(directories: usize) -> Fixture {
        Fixture { folder: temporary_folder(), directories }
    }

    fn path(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("d{index}"))
    }

    fn open(&self) -> Result<LogManager, StartError> {
        self.open_with(PRODUCERS_MAX)
    }

    fn open_with(&self, producers_max: usize) -> Result<LogManager, StartError> {
        let options = LogManagerOptions {
            directories: (0..self.directories).map(|index| self.path(index)).collect(),
            failed: Vec::new(),
            default_config: Arc::new(LogConfig::default()),
            topic_configs: Default::default(),
            threads: 2,
            intervals: Default::default(),
            seed: 1,
            producers_max,
            now: NOW,
        };
        LogManager::open(options, &LoadProgress::default())
    }
}

fn new(topic: &str, partition: i32) -> NewLog {
    NewLog {
        partition: TopicPartition::new(topic, partition),
        topic_id: Some(Uuid(99)),
        config: None,
        is_new: true,
    }
}

fn later(manager: &LogManager, milliseconds: i64) {
    manager.maintain(Timestamp(common::clock::wall_clock().0 + milliseconds));
}

#[test]
fn logs_are_there_again_after_a_stop_and_after_a_crash() {
    let fixture = Fixture::new(2);
    let manager = fixture.open().unwrap();
    for partition in 0..6 {
        let log = manager.get_or_create(&new("t", partition)).unwrap();
        log.assign_leader_epoch(LeaderEpoch(3));
        for _ in 0..partition {
            append(&log, batch()).unwrap();
        }
        log.set_high_watermark(Offset(i64::from(partition) - 1));
    }
    let counts: Vec<usize> =
        (0..2).map(|index| std::fs::read_dir(fixture.path(index)).unwrap().count()).collect();
    assert_eq!(counts, [4, 4], "three logs and the lock in each");
    later(&manager, 120_000);
    for clean in [true, false] {
        let manager = match clean {
            true => {
                manager.close();
                let path = fixture.path(0);
                assert!(!path.join(".lock").exists() && path.join(".kafka_cleanshutdown").exists());
                fixture.open().unwrap()
            }
            false => fixture.open().unwrap(),
        };
        assert!(!fixture.path(0).join(".kafka_cleanshutdown").exists());
        for partition in 0..6 {
            let log = manager.log(&TopicPartition::new("t", partition)).unwrap();
            let end = i64::from(partition);
            assert_eq!(log.end_offset(), Offset(end));
            assert_eq!(log.high_watermark(), Offset((end - 1).max(0)));
            assert_eq!(log.topic_id(), Some(Uuid(99)));
            assert!(log.latest_leader_epoch() <= Some(LeaderEpoch(3)));
        }
        // A second broker is kept out, for as long as the first one runs.
        assert!(matches!(fixture.open(), Err(StartError::Locked(_))));
    }
}

#[test]
fn a_log_that_cannot_be_named_costs_no_directory() {
    let fixture = Fixture::new(1);
    let manager = fixture.open().unwrap();
    for (topic, partition) in [("a/b", 0), ("../up", 0), ("t", -1)] {
        let made = manager.get_or_create(&new(topic, partition));
        assert!(matches!(made, Err(CreateError::NoName(_))), "{topic}");
    }
    manager.get_or_create(&new("t", 0)).unwrap();
}

#[test]
fn a_deleted_log_is_gone_at_once_and_its_files_later() {
    let fixture = Fixture::new(1);
    let manager = fixture.open().unwrap();
    let log = manager.get_or_create(&new("t", 0)).unwrap();
    append(&log, batch()).unwrap();
    assert!(manager.delete(log.partition()).unwrap());
    assert!(!manager.delete(log.partition()).unwrap());
    assert!(manager.log(log.partition()).is_none());
    assert!(append(&log, batch()).is_err());
    let again = manager.get_or_create(&new("t", 0)).unwrap();
    assert_eq!(again.end_offset(), Offset(0));
    let names = || {
        let entries = std::fs::read_dir(fixture.path(0)).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    assert_eq!(names(), 2);
    manager.close();
    let manager = fixture.open().unwrap();
    assert_eq!(names(), 2);
    later(&manager, 61_000);
    assert_eq!(names(), 1);
}

/// A topic is deleted, made again, and the broker killed: its logs are as new, whatever the checkpoints said of the former ones.
#[test]
fn a_log_takes_nothing_over_from_a_deleted_one_of_its_name() {
    let fixture = Fixture::new(1);
    let checkpoint = |manager: &LogManager| {
        manager.checkpoint_recovery_points();
        manager.checkpoint_log_starts();
        manager.checkpoint_high_watermarks();
    };
    for (set_aside, is_killed_between) in [(false, false), (true, false), (false, true)] {
        let mut manager = fixture.open().unwrap();
        let log = manager.get_or_create(&new("t", 0)).unwrap();
        for _ in 0..9 {
            append(&log, batch()).unwrap();
        }
        log.set_high_watermark(Offset(9));
        log.flush().unwrap();
        checkpoint(&manager);
        let is_gone = match set_aside {
            true => manager.set_aside(log.partition()),
            false => manager.delete(log.partition()),
        };
        assert!(is_gone.unwrap());
        if is_killed_between {
            drop(manager);
            manager = fixture.open().unwrap();
        }
        let log = manager.get_or_create(&new("t", 0)).unwrap();
        append(&log, batch()).unwrap();
        append(&log, batch()).unwrap();
        drop(manager);
        let manager = fixture.open().unwrap();
        let log = manager.log(&TopicPartition::new("t", 0)).unwrap();
        assert_eq!((log.end_offset(), log.high_watermark()), (Offset(2), Offset(0)));
        assert_eq!(log.recovery_point(), Offset(0));
        manager.delete(log.partition()).unwrap();
    }
}

#[test]
fn what_is_no_replica_stops_the_start() {
    let fixture = Fixture::new(2);
    let manager = fixture.open().unwrap();
    manager.get_or_create(&new("t", 0)).unwrap();
    manager.close();
    std::fs::create_dir(fixture.path(1).join("t-0")).unwrap();
    let error = fixture.open().err().unwrap().to_string();
    assert!(error.starts_with("Duplicate log directories for t-0 are found in both"), "{error}");
    std::fs::remove_dir_all(fixture.path(1).join("t-0")).unwrap();
    std::fs::create_dir(fixture.path(1).join("nonsense")).unwrap();
    let error = fixture.open().err().unwrap().to_string();
    assert!(
        error.contains("/d1/nonsense, 'nonsense' is not in the form of topic-partition"),
        "{error}"
    );
}

#[test]
fn a_move_between_directories_replaces_the_log() {
    let fixture = Fixture::new(2);
    let manager = fixture.open().unwrap();
    let log = manager.get_or_create(&new("t", 0)).unwrap();
    append(&log, batch()).unwrap();
    let other =
        (0..2).map(|index| fixture.path(index)).find(|path| path != log.log_directory().path());
    let future = manager.create_future(&new("t", 0), &other.clone().unwrap()).unwrap();
    assert!(future.path().to_string_lossy().ends_with("-future"));
    append(&future, batch()).unwrap();
    append(&future, batch()).unwrap();
    manager.replace_with_future(log.partition()).unwrap().unwrap();
    assert_eq!(manager.log(log.partition()).unwrap().end_offset(), Offset(2));
    assert_eq!(*future.path(), *other.unwrap().join("t-0"));
    assert!(matches!(
        manager.create_future(&new("t", 0), &fixture.folder.path().join("no")),
        Err(CreateError::UnknownDirectory(_))
    ));
}

#[test]
fn a_failed_directory_is_left_and_its_partitions_are_named() {
    let fixture = Fixture::new(2);
    let manager = fixture.open().unwrap();
    let log = manager.get_or_create(&new("t", 0)).unwrap();
    let other = manager.get_or_create(&new("t", 1)).unwrap();
    crate::faults::fail_next_write(0, std::io::ErrorKind::Other);
    assert!(append(&log, batch()).is_err());
    assert!(append(&other, batch()).is_ok());
    let failed = manager.take_failed();
    assert_eq!(failed[0].1, [log.partition().clone()]);
    assert!(manager.take_failed().is_empty());
    assert!(manager.log(log.partition()).is_none());
    let old = NewLog { is_new: false, ..new("t", 2) };
    assert!(matches!(manager.get_or_create(&old), Err(CreateError::Offline(_))));
    let created = manager.get_or_create(&new("t", 2)).unwrap();
    assert!(Arc::ptr_eq(created.log_directory(), other.log_directory()));
    manager.close();
}

#[test]
fn a_log_in_a_failed_directory_is_not_taken_for_deleted() {
    let fixture = Fixture::new(2);
    let manager = fixture.open().unwrap();
    let log = manager.get_or_create(&new("t", 0)).unwrap();
    let other = manager.get_or_create(&new("t", 1)).unwrap();
    crate::faults::fail_next_write(0, std::io::ErrorKind::Other);
    assert!(append(&log, batch()).is_err());
    for _ in 0..2 {
        assert!(matches!(manager.delete(log.partition()), Err(LogError::Offline(_))));
        manager.take_failed();
    }
    // Who did not hear that a log is deleted asks again; of others nobody knows.
    assert!(manager.delete(other.partition()).unwrap());
    assert!(!manager.delete(other.partition()).unwrap());
    let unknown = TopicPartition::new("t", 2);
    assert!(matches!(manager.delete(&unknown), Err(LogError::Offline(_))));
    manager.close();
}

#[test]
fn nothing_takes_the_place_of_a_log_that_cannot_be_loaded() {
    let fixture = Fixture::new(2);
    let manager = fixture.open().unwrap();
    let partition = TopicPartition::new("t", 0);
    let log = manager.get_or_create(&new("t", 0)).unwrap();
    let other = manager.get_or_create(&new("t", 1)).unwrap();
    for log in [&log, &other] {
        for _ in 0..30 {
            append(log, batch()).unwrap();
        }
        log.set_high_watermark(Offset(30));
        log.assign_leader_epoch(LeaderEpoch(1));
        log.advance_start_offset(Offset(15)).unwrap();
    }
    let path = log.path().to_path_buf();
    drop((log, other));
    manager.checkpoint_log_starts();
    manager.checkpoint_recovery_points();
    drop(manager);
    let metadata = path.join("partition.metadata");
    let whole = std::fs::read(&metadata).unwrap();
    std::fs::write(&metadata, "nonsense").unwrap();
    let unloaded = || {
        let manager = fixture.open().unwrap();
        assert!(!manager.has_offline_directory());
        assert!(manager.log(&partition).is_none());
        for is_new in [false, true] {
            let wanted = NewLog { is_new, ..new("t", 0) };
            assert!(matches!(manager.get_or_create(&wanted), Err(CreateError::NotLoaded { .. })));
        }
        assert!(manager.get_or_create(&NewLog { is_new: false, ..new("t", 1) }).is_ok());
        manager
    };
    // A crash, and a stop that must not vouch for a log that nobody looked at.
    drop(unloaded());
    unloaded().close();
    assert!(!path.parent().unwrap().join(".kafka_cleanshutdown").exists());
    let manager = unloaded();
    std::fs::write(&metadata, whole).unwrap();
    let log = manager.get_or_create(&new("t", 0)).unwrap();
    assert_eq!((log.start_offset(), log.end_offset()), (Offset(15), Offset(30)));
    assert!(Arc::ptr_eq(&log, &manager.log(&partition).unwrap()));
}

#[test]
fn a_log_that_cannot_be_loaded_can_be_deleted() {
    let fixture = Fixture::new(1);
    let manager = fixture.open().unwrap();
    let path = manager.get_or_create(&new("t", 0)).unwrap().path().to_path_buf();
    drop(manager);
    std::fs::write(path.join("partition.metadata"), "nonsense").unwrap();
    let manager = fixture.open().unwrap();
    assert!(matches!(manager.get_or_create(&new("t", 0)), Err(CreateError::NotLoaded { .. })));
    assert!(manager.delete(&TopicPartition::new("t", 0)).unwrap());
    assert!(!path.exists());
    assert_eq!(manager.get_or_create(&new("t", 0)).unwrap().end_offset(), Offset(0));
    later(&manager, 120_000);
    let left = std::fs::read_dir(fixture.path(0)).unwrap();
    let is_deleted = |name: &str| name.ends_with("-delete");
    assert!(
        !left.into_iter().any(|entry| is_deleted(&entry.unwrap().file_name().to_string_lossy()))
    );
}

/// Two may write it at once: there is no order between the threads of the cleaner.
#[test]
fn the_threads_of_the_cleaner_share_its_checkpoint() {
    let fixture = Fixture::new(1);
    let manager = fixture.open().unwrap();
    let write = || {
        for _ in 0..200 {
            // As if there were something new to say.
            manager.written.lock().clear();
            manager.checkpoint_cleaned();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(write);
        }
    });
    assert!(!manager.all_directories_offline());
}

#[test]
fn a_damaged_checkpoint_loses_no_record() {
    let fixture = Fixture::new(1);
    let manager = fixture.open().unwrap();
    for partition in 0..2 {
        let log = manager.get_or_create(&new("t", partition)).unwrap();
        log.assign_leader_epoch(LeaderEpoch(0));
        for _ in 0..30 {
            append(&log, batch()).unwrap();
        }
        log.set_high_watermark(Offset(30));
    }
    manager.log(&TopicPartition::new("t", 1)).unwrap().advance_start_offset(Offset(15)).unwrap();
    manager.close();
    let path = fixture.path(0);
    let names = [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        ".kafka_cleanshutdown",
    ];
    let contents: Vec<Vec<u8>> =
        names.iter().map(|name| std::fs::read(path.join(name)).unwrap()).collect();
    assert_eq!(contents[1], b"0\n1\nt 1 15\n");
    for (name, content) in names.iter().zip(&contents) {
        let mut damages = vec![Vec::new(), vec![0; content.len()]];
        for position in 0..content.len() {
            damages.push(content[..position].to_vec());
            for mask in [1, 2, 4, 8, 0x80] {
                let mut flipped = content.clone();
                flipped[position] ^= mask;
                damages.push(flipped);
            }
        }
        for (damage, clean) in damages.iter().flat_map(|damage| [(damage, true), (damage, false)]) {
            for (name, content) in names.iter().zip(&contents) {
                std::fs::write(path.join(name), content).unwrap();
            }
            std::fs::write(path.join(name), damage).unwrap();
            if !clean {
                std::fs::remove_file(path.join(".kafka_cleanshutdown")).unwrap();
            }
            let manager = fixture.open().unwrap();
            for (partition, start) in [(0, 0), (1, 15)] {
                let log = manager.log(&TopicPartition::new("t", partition)).unwrap();
                let text = String::from_utf8_lossy(damage);
                assert_eq!(log.end_offset(), Offset(30), "{name} {text:?}");
                // Records that were deleted may come back; none that were not may go.
                assert!(log.start_offset() <= Offset(start), "{name} {text:?}");
                assert_eq!(
                    crate::testing::read_all(&log, Offset(start), Offset(30)).len(),
                    30 - start as usize
                );
            }
            drop(manager);
        }
    }
}

fn produce(log: &Log, producer: i64, timestamp: i64) {
    append(log, Batch { producer: Some((producer, 0, 0)), timestamp, ..batch() }).unwrap();
}

fn producers(log: &Log) -> Vec<i64> {
    let mut ids: Vec<i64> = log.producers().iter().map(|one| one.producer_id.0).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn too_many_producers_are_forgotten_from_the_longest_idle_on_whatever_log_they_are_of() {
    let fixture = Fixture::new(1);
    let manager = fixture.open_with(100).unwrap();
    let logs = [0, 1].map(|partition| manager.get_or_create(&new("t", partition)).unwrap());
    let now = common::clock::wall_clock().0;
    // The second log's are older, but for one.
    (0..60).for_each(|number| produce(&logs[0], number, now + 1000 + number));
    (0..49).for_each(|number| produce(&logs[1], number, now + number));
    produce(&logs[1], 49, now + 5000);
    manager.limit_producers();
    assert_eq!(producers(&logs[0]), (0..60).collect::<Vec<i64>>());
    assert_eq!(producers(&logs[1]), (20..50).collect::<Vec<i64>>(), "10 too many, and 10 for room");
    manager.limit_producers();
    assert_eq!(logs[0].producer_count() + logs[1].producer_count(), 90);
    // Those of a log that is deleted do not count.
    manager.delete(logs[0].partition()).unwrap();
    drop(logs);
    later(&manager, 120_000);
    assert_eq!(manager.shared.producers.total(), 30);
}

#[test]
fn a_flood_of_producers_is_held_where_it_comes_in() {
    let fixture = Fixture::new(1);
    let manager = fixture.open_with(100).unwrap();
    let log = manager.get_or_create(&new("t", 0)).unwrap();
    for number in 0..2000 {
        produce(&log, number, number);
        assert!(manager.shared.producers.total() <= 111);
    }
    assert!(producers(&log).contains(&1999));
    drop(log);
    drop(manager);
    let manager = fixture.open_with(100).unwrap();
    let log = manager.get_or_create(&new("t", 0)).unwrap();
    assert_eq!(manager.shared.producers.total(), log.producer_count(), "what is loaded counts");
}

/// Resident memory of this process, and the most it had.
fn memory_mb() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
    };
    (of("VmRSS:"), of("VmHWM:"))
}

/// `PRODUCERS=10000000 cargo test --release -p storage many_producers -- --nocapture` is the large one, with the bound of a broker.
#[test]
fn many_producers_stay_within_the_bound() {
    let count: i64 = std::env::var("PRODUCERS").map_or(20_000, |count| count.parse().unwrap());
    let bound = usize::try_from(count / 10).unwrap();
    let fixture = Fixture::new(1);
    let manager = fixture.open_with(bound).unwrap();
    let logs: Vec<_> =
        (0..10).map(|partition| manager.get_or_create(&new("t", partition)).unwrap()).collect();
    let (before, _) = memory_mb();
    let now = common::clock::wall_clock().0;
    let mut most = 0;
    for number in 0..count {
        produce(&logs[(number % 10) as usize], number, now + number / 1000);
        // The broker does that every second.
        if number % (count / 100) == 0 {
            most = most.max(manager.shared.producers.total());
            manager.limit_producers();
            assert!(most <= bound + bound / 10 + 1);
        }
    }
    manager.limit_producers();
    let (after, peak) = memory_mb();
    let left = manager.shared.producers.total();
    assert!(left <= bound);
    let newest = producers(&logs[9]);
    assert!(newest.contains(&(count - 1)), "the newest stay");
    println!(
        "{count} producers: {left} left, {most} at most; {before} MB before, {after} after, {peak} at most"
    );
    assert!(peak - before < 512, "the bound is 512 MB");
}
