//! Readers, a writer, and those who make the log shorter, all at once.

use std::sync::atomic::{AtomicBool, Ordering};

use common::ids::{LeaderEpoch, Offset, Timestamp};
use record::entry::EntryHeader;

use crate::{
    error::LogError,
    log::Log,
    log_config::LogConfig,
    testing::{Batch, Folder, append, batch, small_segments},
};

const APPENDS: i64 = 3000;

/// Reads on from a place until the writer has stopped and the end is reached; every batch is whole and in its place.
fn read_along(log: &Log, stopped: &AtomicBool, step: i64) -> usize {
    let mut from = log.start_offset();
    let mut count = 0;
    loop {
        let was_stopped = stopped.load(Ordering::Acquire);
        let end = log.end_offset();
        match log.read(from, 500, true, end) {
            Ok(read) if read.regions.is_empty() => {
                if was_stopped && from >= end {
                    return count;
                }
                std::thread::yield_now();
            }
            Ok(read) => {
                let region = &read.regions[0];
                let mut bytes = vec![0; region.length];
                std::os::unix::fs::FileExt::read_exact_at(
                    &*region.file,
                    &mut bytes,
                    region.position,
                )
                .unwrap();
                let header = EntryHeader::parse(&bytes).unwrap();
                assert!(header.crc_matches(&bytes[..header.size]));
                assert!(header.first_or_last_offset() <= from && header.last_offset >= from);
                count += 1;
                from = Offset(header.last_offset.0 + step).min(log.end_offset());
            }
            Err(LogError::OffsetOutOfRange { start, .. }) => from = start,
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        }
    }
}

#[test]
fn readers_see_whole_batches_while_segments_come_and_go() {
    let folder = Folder::new();
    let log = folder.create(LogConfig { retention_bytes: 5000, ..small_segments() });
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = [1, 40]
            .map(|step| {
                scope.spawn({
                    let (log, stopped) = (&log, &stopped);
                    move || read_along(log, stopped, step)
                })
            })
            .into();
        scope.spawn(|| {
            while !stopped.load(Ordering::Acquire) {
                log.delete_old_segments(Timestamp(0)).unwrap();
                log.flush_sealed().unwrap();
                log.maintain(Timestamp(i64::MAX), false).unwrap();
                let target = Timestamp(log.end_offset().0 - 20);
                if let Some(found) = log.offset_for_timestamp(target).unwrap() {
                    assert!(found.timestamp >= target);
                }
            }
        });
        for number in 0..APPENDS {
            append(&log, Batch { timestamp: number, ..batch() }).unwrap();
            log.set_high_watermark(log.end_offset());
        }
        stopped.store(true, Ordering::Release);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    assert!(!log.log_directory().is_offline());
    log.delete_old_segments(Timestamp(0)).unwrap();
    assert!(log.size() < 7000, "{}", log.size());
}

#[test]
fn readers_survive_truncations() {
    let folder = Folder::new();
    let log = folder.create(small_segments());
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped.load(Ordering::Acquire) {
                let (start, end) = (log.start_offset(), log.end_offset());
                for from in start.0..end.0 {
                    match log.read(Offset(from), 100, true, end) {
                        Ok(_) | Err(LogError::OffsetOutOfRange { .. }) => {}
                        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
                    }
                }
                log.offset_for_timestamp(Timestamp(start.0 + 5)).unwrap();
                log.offset_of_max_timestamp().unwrap();
            }
        });
        let mut end = 0;
        for number in 0..APPENDS / 4 {
            let bytes = Batch { timestamp: number, ..batch() }.builder();
            let bytes = bytes.base_offset(Offset(end)).leader_epoch(LeaderEpoch(0)).finish();
            log.append_as_follower(&bytes).unwrap();
            end += 1;
            if number % 16 == 15 {
                end -= number % 13;
                log.truncate_to(Offset(end)).unwrap();
            }
            if number % 200 == 199 {
                end = number;
                log.truncate_fully_and_start_at(Offset(end), None).unwrap();
            }
        }
        stopped.store(true, Ordering::Release);
    });
    assert!(!log.log_directory().is_offline());
}
