//! A crash at each step of a cleaning: the log opens, cleaned up to some offset and as it was from there on.

use std::{cell::RefCell, fs, path::Path, rc::Rc, sync::Arc};

use common::ids::{Offset, ProducerId};

use super::{
    choice::Candidate,
    clean::{Tools, clean},
    tests::{all_bytes, config, put, roll, rows},
    throttle::{Stop, Throttle},
};
use crate::{
    faults::on_steps,
    log::Log,
    log_config::LogConfig,
    log_load::Known,
    testing::{Batch, Folder, NOW, append, batch, end_transaction, read_all},
};

fn test_config() -> LogConfig {
    LogConfig { verify_transactions: false, ..config() }
}

/// Keys that come again, tombstones, an idempotent producer, transactions; segments that lose some and all records.
fn fill(log: &Log) {
    for number in 0..60 {
        let key = format!("k{}", number % 7);
        let value = number.to_string();
        put(log, &[(&key, (number % 5 > 0).then_some(&value)), ("all", Some(&value))]);
        if number % 6 == 0 {
            let sequence = number / 6;
            append(log, Batch { producer: Some((5, 0, sequence)), ..batch() }).unwrap();
            let one = Batch { producer: Some((6, 0, sequence)), transactional: true, ..batch() };
            append(log, one).unwrap();
            end_transaction(log, (6, 0), sequence % 2 == 0);
        }
    }
    roll(log);
    put(log, &[("k1", Some("active"))]);
    log.set_high_watermark(log.end_offset());
}

fn clean_all(log: &Arc<Log>) {
    let tools = Tools {
        map_bytes: 1 << 20,
        load_factor: 0.9,
        write_buffer: 300,
        throttle: &Throttle::new(f64::MAX),
        stop: &Stop::default(),
    };
    clean(&Candidate::of(log, NOW).unwrap(), NOW, &tools).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn sequences(log: &Log) -> Vec<(ProducerId, i32)> {
    let mut producers: Vec<_> = log
        .producers()
        .into_iter()
        .map(|one| (one.producer_id, one.producer.last_sequence()))
        .collect();
    producers.sort_unstable();
    producers
}

#[test]
fn a_crash_at_any_step_of_a_cleaning_loses_nothing() {
    let folder = Folder::new();
    let log = Arc::new(folder.create(test_config()));
    fill(&log);
    let before = rows(&log);
    let producers = sequences(&log);
    let end = log.end_offset();
    let copies: Rc<RefCell<Vec<Folder>>> = Rc::default();
    let (from, taken) = (folder.log_path(), copies.clone());
    on_steps(Some(Box::new(move || {
        let crashed = Folder::new();
        copy(&from, &crashed.log_path());
        taken.borrow_mut().push(crashed);
    })));
    clean_all(&log);
    on_steps(None);
    let after = rows(&log);
    let segment_count = log.segment_count();
    assert!(after.len() * 3 < before.len() && segment_count > 3, "{segment_count}");
    let copies = copies.take();
    assert!(copies.len() > 60, "{}", copies.len());
    let mut splits = std::collections::BTreeSet::new();
    for (step, crashed) in copies.iter().enumerate() {
        // Opened twice: what the first start did holds.
        for recovery_point in [Some(end), Some(Offset(0)), None] {
            let known = Known { clean: false, recovery_point, start: None, cleaned_to: None };
            let log = Arc::new(crashed.open(test_config(), known));
            let found = rows(&log);
            let is_split_at = |split: &i64| {
                let cleaned = after.iter().filter(|row| row.0 < *split);
                found.iter().eq(cleaned.chain(before.iter().filter(|row| row.0 >= *split)))
            };
            let split = (0..=end.0).find(is_split_at);
            splits.insert(split.unwrap_or_else(|| panic!("step {step}: {found:?}")));
            assert_eq!(log.end_offset(), end, "step {step}");
            log.set_high_watermark(end);
            assert_eq!(log.last_stable_offset(), end, "step {step}");
            assert_eq!(sequences(&log), producers, "step {step}");
            assert_eq!(read_all(&log, Offset(0), end).len(), all_bytes(&log).len());
            let left = crashed.file_names();
            assert!(!left.iter().any(|name| name.ends_with("cleaned") || name.ends_with("swap")));
            if recovery_point.is_none() {
                clean_all(&log);
                assert_eq!(rows(&log), after, "step {step}");
            }
        }
    }
    assert!(splits.len() > 3, "{splits:?}");
}
