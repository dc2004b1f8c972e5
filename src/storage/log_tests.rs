//! Tests of the log as a whole: appends, reads, restarts.

use common::ids::{LeaderEpoch, Offset, ProducerId, Timestamp};

use crate::testing::Batch;
use crate::{
    error::{AppendError, LogError},
    log_config::LogConfig,
    producer_state::ProducerError,
    testing::{
        Folder, all_batches, append, batch, checked, end_transaction, read_all, small_segments,
    },
};

#[test]
fn what_is_appended_is_read_and_is_there_after_a_restart() {
    let folder = Folder::new();
    let log = folder.create(small_segments());
    for number in 0..40 {
        let appended =
            append(&log, Batch { count: 2, timestamp: 1000 + number * 10, ..batch() }).unwrap();
        assert_eq!((appended.first_offset.0, appended.last_offset.0), (number * 2, number * 2 + 1));
    }
    assert_eq!(log.end_offset(), Offset(80));
    assert!(log.segment_count() > 5);
    let expected: Vec<(i64, i64)> = (0..40).map(|number| (number * 2, number * 2 + 1)).collect();
    assert_eq!(read_all(&log, Offset(0), Offset(80)), expected);
    // From within a batch, the whole batch is given; up to a bound, what lies before it.
    assert_eq!(read_all(&log, Offset(7), Offset(12)), expected[3..6]);
    log.close(true).unwrap();
    drop(log);

    for clean in [true, false] {
        let known = crate::log_load::Known { clean, ..Default::default() };
        let log = folder.open(small_segments(), known);
        assert_eq!(log.end_offset(), Offset(80));
        assert_eq!(read_all(&log, Offset(0), Offset(80)), expected);
        assert_eq!(all_batches(&log).len(), 40);
        assert_eq!(log.leader_epochs().entries(), [(LeaderEpoch(0), Offset(0))]);
        let found = log.offset_for_timestamp(Timestamp(1101)).unwrap().unwrap();
        assert_eq!((found.offset, found.timestamp), (Offset(21), Timestamp(1101)));
        assert_eq!(log.offset_of_max_timestamp().unwrap().unwrap().offset, Offset(79));
        assert_eq!(log.offset_for_timestamp(Timestamp(99_999)).unwrap(), None);
    }
    let log = folder.open_clean(small_segments());
    assert_eq!(append(&log, batch()).unwrap().first_offset, Offset(80));
}

#[test]
fn offsets_outside_the_log_are_refused() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    append(&log, batch()).unwrap();
    assert!(log.read(Offset(1), 100, true, Offset(1)).unwrap().regions.is_empty());
    assert!(matches!(
        log.read(Offset(2), 100, true, Offset(1)),
        Err(LogError::OffsetOutOfRange { .. })
    ));
    log.set_high_watermark(Offset(1));
    assert!(matches!(log.advance_start_offset(Offset(2)), Err(LogError::OffsetOutOfRange { .. })));
    assert!(log.advance_start_offset(Offset(1)).unwrap());
    assert!(matches!(
        log.read(Offset(0), 100, true, Offset(1)),
        Err(LogError::OffsetOutOfRange { .. })
    ));
}

#[test]
fn the_first_batch_is_given_whole_where_that_is_asked_for() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    append(&log, batch()).unwrap();
    append(&log, batch()).unwrap();
    let size = all_batches(&log)[0].1.header.size;
    let whole = log.read(Offset(0), 10, true, Offset(2)).unwrap();
    assert_eq!((whole.bytes, whole.first_batch_incomplete), (size, false));
    let cut = log.read(Offset(0), 10, false, Offset(2)).unwrap();
    assert_eq!((cut.bytes, cut.first_batch_incomplete), (10, true));
    assert_eq!(log.read(Offset(0), 1000, false, Offset(1)).unwrap().bytes, size);
}

#[test]
fn a_repeated_batch_is_answered_as_the_first_time() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    let idempotent = |sequence| Batch { count: 2, producer: Some((7, 0, sequence)), ..batch() };
    append(&log, idempotent(0)).unwrap();
    append(&log, batch()).unwrap();
    append(&log, idempotent(2)).unwrap();
    let again = append(&log, idempotent(0)).unwrap();
    assert!(again.duplicate);
    assert_eq!((again.first_offset, again.last_offset), (Offset(0), Offset(1)));
    assert_eq!(log.end_offset(), Offset(5));
    let gap = append(&log, idempotent(6));
    assert!(matches!(gap, Err(AppendError::Producer(ProducerError::OutOfOrderSequence { .. }))));
    log.close(true).unwrap();
    // Only the last batch of each producer outlives a restart.
    let log = folder.open_clean(LogConfig::default());
    assert!(append(&log, idempotent(2)).unwrap().duplicate);
    assert!(append(&log, idempotent(0)).is_err());
    append(&log, idempotent(4)).unwrap();
}

#[test]
fn transactions_hold_the_stable_offset_and_aborted_ones_are_listed() {
    let folder = Folder::new();
    let log = folder.create(small_segments());
    let of = |producer, sequence| Batch {
        producer: Some((producer, 0, sequence)),
        transactional: true,
        ..batch()
    };
    append(&log, of(1, 0)).unwrap();
    append(&log, of(2, 0)).unwrap();
    append(&log, of(1, 1)).unwrap();
    log.set_high_watermark(Offset(3));
    assert_eq!(log.last_stable_offset(), Offset(0));
    end_transaction(&log, (1, 0), true);
    log.set_high_watermark(Offset(4));
    assert_eq!(log.last_stable_offset(), Offset(1));
    for number in 0..20 {
        append(&log, of(2, number + 1)).unwrap();
    }
    end_transaction(&log, (2, 0), true);
    log.set_high_watermark(log.end_offset());
    assert_eq!(log.last_stable_offset(), Offset(25));
    let aborted = |log: &crate::log::Log, from| {
        let found = log.aborted_transactions(Offset(from), Offset(25)).unwrap();
        found
            .iter()
            .map(|one| (one.producer_id, one.first_offset.0, one.last_offset.0))
            .collect::<Vec<_>>()
    };
    let both = [(ProducerId(1), 0, 3), (ProducerId(2), 1, 24)];
    assert_eq!(aborted(&log, 0), both);
    assert_eq!(aborted(&log, 10), both[1..]);
    log.close(true).unwrap();
    for clean in [true, false] {
        let log =
            folder.open(small_segments(), crate::log_load::Known { clean, ..Default::default() });
        assert_eq!(aborted(&log, 0), both);
    }
}

#[test]
fn a_follower_takes_offsets_as_they_come() {
    let folder = Folder::new();
    let leader = folder.create(LogConfig::default());
    for _ in 0..5 {
        append(&leader, Batch { count: 3, ..batch() }).unwrap();
    }
    let read = leader.read(Offset(0), 1 << 20, true, Offset(15)).unwrap();
    let region = &read.regions[0];
    let mut bytes = vec![0; region.length];
    std::os::unix::fs::FileExt::read_exact_at(&*region.file, &mut bytes, 0).unwrap();

    let other = Folder::new();
    let follower = other.create(small_segments());
    let followed = follower.append_as_follower(&bytes[..bytes.len() - 1]).unwrap();
    assert_eq!((followed.batch_count, followed.last_offset), (4, Offset(11)));
    assert!(matches!(
        follower.append_as_follower(&bytes),
        Err(AppendError::UnexpectedOffset { .. })
    ));
    let mut flipped = bytes[followed.bytes..].to_vec();
    flipped[70] ^= 1;
    assert!(matches!(follower.append_as_follower(&flipped), Err(AppendError::Corrupt(_))));
    follower.append_as_follower(&bytes[followed.bytes..]).unwrap();
    assert_eq!(
        read_all(&follower, Offset(0), Offset(15)),
        read_all(&leader, Offset(0), Offset(15))
    );
    assert_eq!(follower.append_as_follower(&[]).unwrap().batch_count, 0);
}

#[test]
fn a_full_disk_refuses_appends_and_ends_by_itself() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    append(&log, batch()).unwrap();
    let size = log.size();
    crate::faults::fail_next_write(70, std::io::ErrorKind::StorageFull);
    assert!(matches!(append(&log, batch()), Err(AppendError::DiskFull(_))));
    assert!(log.log_directory().is_full() && !log.log_directory().is_offline());
    assert_eq!(
        std::fs::metadata(folder.log_path().join("00000000000000000000.log")).unwrap().len(),
        size
    );
    assert_eq!(read_all(&log, Offset(0), Offset(1)), [(0, 0)]);
    assert_eq!(append(&log, batch()).unwrap().first_offset, Offset(1));
    assert!(!log.log_directory().is_full());
    // What fits in what is left is no room for a leader, until no write has failed for a while.
    let (directory, now) = (log.log_directory(), common::clock::now());
    assert!(directory.is_short_of_room() && !directory.has_room_again(now));
    assert!(directory.has_room_again(now + std::time::Duration::from_secs(10)));
    assert!(!directory.is_short_of_room());
}

#[test]
fn a_failing_disk_takes_the_directory_offline() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    append(&log, batch()).unwrap();
    crate::faults::fail_next_write(10, std::io::ErrorKind::Other);
    assert!(matches!(append(&log, batch()), Err(AppendError::Fault(_))));
    assert!(log.log_directory().is_offline());
    assert!(matches!(append(&log, batch()), Err(AppendError::Offline(_))));
    assert!(matches!(log.read(Offset(0), 1, true, Offset(1)), Err(LogError::Offline(_))));
    let log = folder.open_after_crash(LogConfig::default());
    assert_eq!(log.end_offset(), Offset(1));
}

#[test]
fn too_large_a_batch_is_refused() {
    let folder = Folder::new();
    let log = folder.create(small_segments());
    let large = checked(Batch { value_size: 2000, ..batch() }.bytes());
    assert!(matches!(
        log.append_as_leader(large, LeaderEpoch(0)),
        Err(AppendError::LargerThanSegment { segment_bytes: 1000, .. })
    ));
    assert_eq!(log.end_offset(), Offset(0));
}

#[test]
fn few_open_files_are_enough_for_many_segments() {
    let folder = Folder::new();
    let shared = crate::shared::Shared::with_limits(1, 16, 1000);
    let log = folder.create_with(small_segments(), shared.clone());
    for number in 0..400 {
        append(&log, Batch { timestamp: number, ..batch() }).unwrap();
    }
    let folder_of = |fd: &std::path::Path| std::fs::read_link(fd).unwrap_or_default();
    let open = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
        fds.filter(|fd| folder_of(fd).starts_with(folder.log_path())).count()
    };
    assert!(log.segment_count() > 70);
    assert!(open() <= 16, "{}", open());
    assert_eq!(read_all(&log, Offset(0), Offset(400)).len(), 400);
    assert!(open() <= 16, "{}", open());
    assert_eq!(log.offset_for_timestamp(Timestamp(200)).unwrap().unwrap().offset, Offset(200));
    assert!(open() <= 16, "{}", open());
}

#[test]
fn a_log_that_is_there_already_does_no_harm_to_its_directory() {
    let folder = Folder::new();
    std::fs::create_dir(folder.log_path()).unwrap();
    let options = folder.options(LogConfig::default());
    let directory = options.directory.clone();
    assert!(crate::log::Log::create(options, None).is_err());
    assert!(!directory.is_offline());
}

#[test]
fn syncs_of_segments_are_counted() {
    let folder = Folder::new();
    let registry = common::counters::Registry::default();
    let log = folder.create(LogConfig::default());
    log.shared.count_into(&registry);
    append(&log, batch()).unwrap();
    log.flush().unwrap();
    let all = registry.all();
    assert_eq!(all[0].0.to_string(), "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs");
    assert!(matches!(&all[0].1, common::counters::Metric::Histogram(times) if times.count() == 1));
}

/// A broker may have a hundred thousand of them.
#[test]
fn an_idle_log_is_small() {
    assert!(size_of::<crate::log::Log>() <= 416, "{}", size_of::<crate::log::Log>());
    assert!(
        size_of::<crate::segment::Segment>() <= 160,
        "{}",
        size_of::<crate::segment::Segment>()
    );
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    log.assign_leader_epoch(LeaderEpoch(0));
    assert_eq!(log.state.lock().epochs.capacity(), 1);
}
