//! Tests of what makes a log longer by segments, and shorter: rolls, truncation, DeleteRecords, retention, flushes.

use common::ids::{LeaderEpoch, Offset, Timestamp};

use crate::{
    error::LogError,
    log::Log,
    log_config::LogConfig,
    testing::{
        Batch, Folder, NOW, all_batches, append, batch, end_transaction, read_all, small_segments,
    },
};

fn bases(log: &Log) -> Vec<i64> {
    log.views().0.iter().map(|view| view.base.0).collect()
}

fn fill(log: &Log, count: i64) {
    for number in 0..count {
        append(log, Batch { timestamp: 1000 + number, ..batch() }).unwrap();
    }
    log.set_high_watermark(log.end_offset());
}

#[test]
fn a_segment_ends_by_size_by_time_and_by_its_index() {
    let folder = Folder::new();
    let log = folder.create(LogConfig { segment_bytes: 1000, ..LogConfig::default() });
    fill(&log, 12);
    let size = all_batches(&log)[0].1.header.size as i64;
    let per_segment = 1000 / size;
    assert_eq!(bases(&log), [0, per_segment, 2 * per_segment]);

    let folder = Folder::new();
    let log = folder.create(LogConfig { segment_ms: 100, ..LogConfig::default() });
    // Counted from the first batch's timestamp, by timestamps; one that goes back does not end a segment.
    for timestamp in [1000, 1100, 1101, 900, 1201, 1202] {
        append(&log, Batch { timestamp, ..batch() }).unwrap();
    }
    assert_eq!(bases(&log), [0, 2, 5]);

    let folder = Folder::new();
    let index_bytes = 5 * 12;
    let config = LogConfig {
        segment_index_bytes: index_bytes,
        index_interval_bytes: 0,
        ..LogConfig::default()
    };
    let log = folder.create(config);
    fill(&log, 20);
    // Four entries of the time index, and a place for the one at the end; the first batch has no entry.
    assert_eq!(bases(&log), [0, 5, 10, 15]);
}

#[test]
fn jitter_makes_segments_end_earlier() {
    let config = LogConfig { segment_ms: 1000, segment_jitter_ms: 900, ..LogConfig::default() };
    let folder = Folder::new();
    let log = folder.create(config);
    for number in 0..100 {
        append(&log, Batch { timestamp: 1000 + number * 100, ..batch() }).unwrap();
    }
    let lengths: std::collections::BTreeSet<i64> =
        bases(&log).windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(lengths.len() > 2 && *lengths.last().unwrap() <= 11, "{lengths:?}");
}

#[test]
fn an_empty_log_is_not_rolled_and_a_log_with_records_is() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    log.roll().unwrap();
    assert_eq!(bases(&log), [0]);
    fill(&log, 3);
    assert_eq!(log.roll().unwrap(), Offset(3));
    assert_eq!(log.roll().unwrap(), Offset(3));
    assert_eq!(bases(&log), [0, 3]);
    assert!(folder.file_names().contains(&"00000000000000000003.snapshot".to_owned()));
    assert_eq!(read_all(&log, Offset(0), Offset(3)).len(), 3);
    fill(&log, 1);
    assert_eq!(read_all(&log, Offset(0), Offset(4)).len(), 4);
}

#[test]
fn a_follower_far_ahead_begins_a_segment_where_its_leader_is() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    fill(&log, 1);
    let far = Offset(i64::from(i32::MAX) + 10);
    let bytes = batch().builder().base_offset(far).leader_epoch(LeaderEpoch(1)).finish();
    log.append_as_follower(&bytes).unwrap();
    assert_eq!(bases(&log), [0, far.0]);
    assert_eq!(log.end_offset(), far.plus(1));
    // Reading goes on after the gap.
    assert_eq!(read_all(&log, Offset(0), far.plus(1)), [(0, 0), (far.0, far.0)]);
    assert_eq!(log.end_offset_for_epoch(LeaderEpoch(0)), Some((LeaderEpoch(0), far)));
}

#[test]
fn a_log_truncated_anywhere_ends_there() {
    let folder = Folder::new();
    let original = folder.create(small_segments());
    for number in 0..20 {
        let idempotent = Batch { count: 3, producer: Some((7, 0, number * 3)), ..batch() };
        append(&original, Batch { timestamp: 1000 + i64::from(number), ..idempotent }).unwrap();
        let transactional =
            Batch { producer: Some((8, 0, number)), transactional: true, ..batch() };
        append(&original, transactional).unwrap();
        end_transaction(&original, (8, 0), number % 2 == 0);
    }
    original.set_high_watermark(original.end_offset());
    original.close(true).unwrap();
    let end = original.end_offset();
    let batches: Vec<(i64, i64)> = all_batches(&original)
        .iter()
        .map(|(_, found)| (found.header.first_or_last_offset().0, found.header.last_offset.0))
        .collect();
    for target in 0..=end.0 {
        let copied = Folder::new();
        std::fs::create_dir(copied.log_path()).unwrap();
        for name in folder.file_names() {
            std::fs::copy(folder.log_path().join(&name), copied.log_path().join(&name)).unwrap();
        }
        let log = copied.open_clean(small_segments());
        log.set_high_watermark(end);
        assert_eq!(log.truncate_to(Offset(target)).unwrap(), target < end.0);
        assert_eq!(log.end_offset(), Offset(target));
        assert!(log.high_watermark() <= Offset(target) && log.recovery_point() <= Offset(target));
        let kept: Vec<_> = batches.iter().copied().filter(|batch| batch.1 < target).collect();
        assert_eq!(read_all(&log, Offset(0), Offset(target)), kept, "{target}");
        let aborted = log.aborted_transactions(Offset(0), end).unwrap();
        assert!(aborted.iter().all(|one| one.last_offset.0 < target));
        assert_eq!(aborted.len() as i64, (target + 5) / 10, "{target}");
        let known = log.producers().iter().map(|one| one.producer.last_data_offset().0).max();
        assert!(known.unwrap_or(-1) < target);
        // A follower goes on at the target.
        let next =
            batch().builder().base_offset(Offset(target)).leader_epoch(LeaderEpoch(2)).finish();
        log.append_as_follower(&next).unwrap();
        assert_eq!(log.leader_epochs().entries().last(), Some(&(LeaderEpoch(2), Offset(target))));
        log.close(true).unwrap();
        let log = copied.open_clean(small_segments());
        let expected: Vec<_> = kept.iter().copied().chain([(target, target)]).collect();
        assert_eq!(read_all(&log, Offset(0), Offset(target + 1)), expected);
    }
}

#[test]
fn a_log_that_starts_anew_has_nothing_of_the_old_one() {
    let folder = Folder::new();
    let log = folder.create(small_segments());
    fill(&log, 30);
    log.truncate_fully_and_start_at(Offset(1000), None).unwrap();
    assert_eq!((log.start_offset(), log.end_offset()), (Offset(1000), Offset(1000)));
    assert_eq!(log.leader_epochs().entries(), []);
    assert!(matches!(
        log.read(Offset(5), 1, true, Offset(1000)),
        Err(LogError::OffsetOutOfRange { .. })
    ));
    let next = batch().builder().base_offset(Offset(1000)).leader_epoch(LeaderEpoch(2)).finish();
    log.append_as_follower(&next).unwrap();
    log.truncate_to(Offset(500)).unwrap();
    assert_eq!((log.start_offset(), log.end_offset()), (Offset(500), Offset(500)));
    fill(&log, 1);
    assert_eq!(read_all(&log, Offset(500), Offset(501)), [(500, 500)]);
    let log = folder.open_after_crash(small_segments());
    assert_eq!(read_all(&log, Offset(500), Offset(501)), [(500, 500)]);
    assert!(folder.file_names().iter().all(|name| !name.ends_with(".deleted")));
}

#[test]
fn deleted_records_are_gone_at_once_and_their_files_later() {
    let folder = Folder::new();
    let log = folder.create(small_segments());
    fill(&log, 30);
    let second = bases(&log)[1];
    assert!(log.advance_start_offset(Offset(second + 1)).unwrap());
    assert_eq!(log.first_segment_base(), Offset(0));
    assert_eq!(log.leader_epochs().entries(), [(LeaderEpoch(0), Offset(second + 1))]);
    assert_eq!(log.delete_old_segments(NOW).unwrap(), 1);
    assert_eq!(log.first_segment_base(), Offset(second));
    let deleted = || folder.file_names().iter().filter(|name| name.ends_with(".deleted")).count();
    assert!(deleted() >= 3);
    let later = Timestamp(common::clock::wall_clock().0 + 61_000);
    assert!(!log.maintain(later, true).unwrap());
    assert_eq!(deleted(), 0);
    // All records may go: an empty segment then begins at the end.
    log.advance_start_offset(Offset(30)).unwrap();
    log.delete_old_segments(NOW).unwrap();
    assert_eq!((log.start_offset(), log.end_offset()), (Offset(30), Offset(30)));
    fill(&log, 1);
    assert_eq!(read_all(&log, Offset(30), Offset(31)).len(), 1);
}

#[test]
fn retention_deletes_by_size_and_time_what_is_replicated() {
    let folder = Folder::new();
    let log = folder.create(LogConfig { retention_bytes: 2000, ..small_segments() });
    fill(&log, 40);
    let bases_before = bases(&log);
    log.set_high_watermark(Offset(0));
    assert_eq!(log.delete_old_segments(NOW).unwrap(), 0);
    log.set_high_watermark(Offset(40));
    assert!(log.delete_old_segments(NOW).unwrap() > 2);
    assert!(log.size() >= 2000 && log.size() < 3000, "{}", log.size());
    assert_eq!(log.start_offset(), log.first_segment_base());
    assert!(bases_before.ends_with(&bases(&log)));

    let config = LogConfig { retention_ms: 100, ..small_segments() };
    log.set_config(std::sync::Arc::new(config));
    let count = log.segment_count();
    // The largest timestamps of the segments are around 1040; the oldest segment left may go alone.
    let first_largest = {
        let view = log.views().0[0].clone();
        log.largest_timestamp(&view).unwrap().timestamp.0
    };
    assert_eq!(log.delete_old_segments(Timestamp(first_largest + 100)).unwrap(), 0);
    assert_eq!(log.delete_old_segments(Timestamp(first_largest + 101)).unwrap(), 1);
    assert_eq!(log.segment_count(), count - 1);
    // The active segment may go too; a new one takes its place.
    log.delete_old_segments(Timestamp(10_000)).unwrap();
    assert_eq!((log.size(), log.segment_count()), (0, 1));
    assert_eq!((log.start_offset(), log.end_offset()), (Offset(40), Offset(40)));
    assert_eq!(log.delete_old_segments(Timestamp(10_000)).unwrap(), 0);

    let log = folder.open_after_crash(small_segments());
    assert_eq!((log.start_offset(), log.end_offset()), (Offset(40), Offset(40)));
}

#[test]
fn deleted_files_go_though_the_disk_takes_nothing_else() {
    let folder = Folder::new();
    let config = LogConfig { retention_bytes: 2000, file_delete_delay_ms: 0, ..small_segments() };
    let log = folder.create(config);
    fill(&log, 40);
    log.set_high_watermark(Offset(40));
    log.delete_old_segments(NOW).unwrap();
    let deleted = || folder.file_names().iter().filter(|name| name.ends_with(".deleted")).count();
    assert!(deleted() > 2);
    // What stands in the way of the epochs' file fails as a full disk does.
    std::fs::create_dir(folder.log_path().join("leader-epoch-checkpoint.tmp")).unwrap();
    log.assign_leader_epoch(LeaderEpoch(7));
    assert!(log.maintain(Timestamp(i64::MAX), true).is_err());
    assert_eq!(deleted(), 0);
}

#[test]
fn segments_without_timestamps_count_by_the_age_of_their_files() {
    let folder = Folder::new();
    let log = folder.create(LogConfig { retention_ms: 1000, ..small_segments() });
    append(&log, Batch { timestamp: -1, ..batch() }).unwrap();
    log.set_high_watermark(Offset(1));
    let now = common::clock::wall_clock();
    assert_eq!(log.delete_old_segments(now).unwrap(), 0);
    assert_eq!(log.delete_old_segments(Timestamp(now.0 + 2000)).unwrap(), 1);
}

#[test]
fn the_recovery_point_moves_with_flushes() {
    let folder = Folder::new();
    let log = folder.create(LogConfig { flush_messages: 5, ..small_segments() });
    fill(&log, 4);
    assert_eq!(log.recovery_point(), Offset(0));
    fill(&log, 3);
    assert_eq!(log.recovery_point(), Offset(5));
    log.flush().unwrap();
    assert_eq!(log.recovery_point(), Offset(7));

    let folder = Folder::new();
    let log = folder.create(LogConfig { flush_ms: 1000, ..small_segments() });
    fill(&log, 20);
    log.flush_sealed().unwrap();
    assert_eq!(log.recovery_point().0, *bases(&log).last().unwrap());
    assert!(log.is_flush_due(Timestamp(common::clock::wall_clock().0 + 1000)));
    assert!(!log.is_flush_due(common::clock::wall_clock()));
}

/// A log of several segments that was stopped cleanly; their bases.
fn stopped_log(folder: &Folder) -> Vec<i64> {
    let log = folder.create(small_segments());
    fill(&log, 25);
    log.close(true).unwrap();
    bases(&log)
}

#[test]
fn a_replacement_of_segments_that_was_interrupted_is_finished() {
    for clean in [true, false] {
        let folder = Folder::new();
        let before = stopped_log(&folder);
        let file =
            |base: i64, extension: &str| folder.log_path().join(format!("{base:020}{extension}"));
        // Compaction had merged the first two segments, and was about to take the old ones out of use.
        let merged =
            [before[0], before[1]].map(|base| std::fs::read(file(base, ".log")).unwrap()).concat();
        std::fs::write(file(before[0], ".log.swap"), &merged).unwrap();
        std::fs::write(file(before[0], ".index.swap"), []).unwrap();
        std::fs::rename(file(before[1], ".index"), file(before[1], ".index.deleted")).unwrap();
        let known = crate::log_load::Known { clean, ..Default::default() };
        let log = folder.open(small_segments(), known);
        assert_eq!(bases(&log), [&before[..1], &before[2..]].concat());
        assert_eq!(log.views().0[0].size, merged.len() as u64);
        assert_eq!(read_all(&log, Offset(0), Offset(25)).len(), 25);
        assert_eq!(log.offset_for_timestamp(Timestamp(1003)).unwrap().unwrap().offset, Offset(3));
        let is_left = |name: &String| name.ends_with(".swap") || name.ends_with(".deleted");
        assert!(!folder.file_names().iter().any(is_left));
    }
}

#[test]
fn a_replacement_of_segments_that_was_not_ready_is_given_up() {
    let folder = Folder::new();
    let before = stopped_log(&folder);
    let file =
        |base: i64, extension: &str| folder.log_path().join(format!("{base:020}{extension}"));
    // A split had made one of its parts ready, and not yet the one before it.
    std::fs::write(file(before[1], ".log.swap"), b"a part").unwrap();
    std::fs::write(file(before[0], ".log.cleaned"), b"another part").unwrap();
    std::fs::write(file(before[2], ".snapshot.deleted"), b"old").unwrap();
    std::fs::write(file(7777, ".index"), b"of no log").unwrap();
    let log = folder.open_clean(small_segments());
    assert_eq!(bases(&log), before);
    assert_eq!(read_all(&log, Offset(0), Offset(25)).len(), 25);
    let is_left = |name: &String| {
        [".swap", ".cleaned", ".deleted"].iter().any(|end| name.ends_with(end))
            || name.contains("7777")
    };
    assert!(!folder.file_names().iter().any(is_left), "{:?}", folder.file_names());
}

#[test]
fn a_start_beyond_the_end_begins_the_log_there() {
    let folder = Folder::new();
    stopped_log(&folder);
    // Without leader epochs nothing speaks against the checkpoint: the segments were lost.
    std::fs::remove_file(folder.log_path().join("leader-epoch-checkpoint")).unwrap();
    let known =
        crate::log_load::Known { clean: true, start: Some(Offset(40)), ..Default::default() };
    let log = folder.open(small_segments(), known);
    assert_eq!((log.start_offset(), log.end_offset()), (Offset(40), Offset(40)));
    append(&log, batch()).unwrap();
    assert_eq!(read_all(&log, Offset(40), Offset(41)), [(40, 40)]);
}
