//! A follower that crashes: at any byte of what it appends, at any step of a truncation. It opens with a log that is a
//! part of the old one without a hole, and ends up like its leader.

use std::{cell::RefCell, fs, os::unix::fs::FileExt, path::Path, rc::Rc};

use common::ids::{LeaderEpoch, Offset, ProducerId};
use record::batch::Batches;

use crate::{
    faults::on_steps,
    log::Log,
    log_config::LogConfig,
    log_load::Known,
    testing::{Batch, Folder, batch, checked, end_transaction, read_all},
};

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 900,
        index_interval_bytes: 150,
        retention_ms: -1,
        producer_id_expiration_ms: i64::MAX,
        verify_transactions: false,
        ..LogConfig::default()
    }
}

/// Appends rounds of plain, idempotent and transactional batches; every third round begins an epoch.
fn fill(log: &Log, rounds: std::ops::Range<i32>, (epoch_step, producer): (i32, i64)) {
    for round in rounds {
        let epoch = LeaderEpoch(round / 3 + epoch_step);
        let plain =
            Batch { count: 3, value_size: 30, timestamp: 1000 + i64::from(round), ..batch() };
        let idempotent = Batch { producer: Some((producer, 1, round * 3)), ..plain };
        let open = Batch {
            count: 1,
            producer: Some((producer + 1, 0, round)),
            transactional: true,
            ..plain
        };
        for batch in [plain, idempotent, open] {
            log.append_as_leader(checked(batch.bytes()), epoch).unwrap();
        }
        end_transaction(log, (producer + 1, 0), round % 2 == 0);
    }
    log.set_high_watermark(log.end_offset());
}

/// All bytes of a log from an offset on.
fn bytes_from(log: &Log, from: Offset) -> Vec<u8> {
    let (mut bytes, mut from) = (Vec::new(), from);
    while from < log.end_offset() {
        let read = log.read(from, 1, true, log.end_offset()).unwrap();
        let region = &read.regions[0];
        let mut batch = vec![0; region.length];
        region.file.read_exact_at(&mut batch, region.position).unwrap();
        let last = Batches::new(&batch).last().unwrap().unwrap();
        from = last.header.last_offset.plus(1);
        bytes.extend(batch);
    }
    bytes
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn batches(log: &Log) -> Vec<(i64, i64)> {
    read_all(log, log.start_offset(), log.end_offset())
}

/// Batches, epochs, and the producers' last sequence numbers.
type Content = (Vec<(i64, i64)>, Vec<(LeaderEpoch, Offset)>, Vec<(ProducerId, i32)>);

/// What has to be the same in two replicas.
fn content(log: &Log) -> Content {
    let mut producers: Vec<_> = log
        .producers()
        .into_iter()
        .map(|one| (one.producer_id, one.producer.last_sequence()))
        .collect();
    producers.sort_unstable();
    (batches(log), log.leader_epochs().entries().to_vec(), producers)
}

#[test]
fn a_follower_that_crashes_at_any_byte_goes_on_from_its_last_whole_batch() {
    let (of_leader, of_follower) = (Folder::new(), Folder::new());
    let leader = of_leader.create(config());
    fill(&leader, 0..7, (0, 7));
    let expected = content(&leader);
    let follower = of_follower.create(config());
    follower.append_as_follower(&bytes_from(&leader, Offset(0))).unwrap();
    assert_eq!(content(&follower), expected);
    let last = follower.views().0.last().unwrap().base;
    let name = format!("{:020}.log", last.0);
    let size = fs::metadata(of_follower.log_path().join(&name)).unwrap().len();
    assert!(follower.segment_count() > 2 && size > 300, "{size}");
    for cut in 0..=size {
        let crashed = Folder::new();
        copy_files(&of_follower.log_path(), &crashed.log_path());
        let path = crashed.log_path().join(&name);
        fs::File::options().write(true).open(path).unwrap().set_len(cut).unwrap();
        let known =
            Known { clean: false, recovery_point: Some(last), start: None, cleaned_to: None };
        let log = crashed.open(config(), known);
        let found = batches(&log);
        assert_eq!(found, expected.0[..found.len()], "cut at {cut}");
        // The epoch that the follower asks with is that of its last record, not one of records that are gone.
        let latest = log.latest_leader_epoch().unwrap();
        assert_eq!(log.leader_epochs().epoch_for(Offset(log.end_offset().0 - 1)), Some(latest));
        let rest = bytes_from(&leader, log.end_offset());
        log.append_as_follower(&rest).unwrap();
        assert_eq!(content(&log), expected, "cut at {cut}");
    }
}

#[test]
fn a_crash_at_any_step_of_a_truncation_leaves_no_hole() {
    // Two leaders: the second has the first's records up to `common`, and then its own.
    let of_first = Folder::new();
    let first = of_first.create(config());
    fill(&first, 0..8, (0, 7));
    let whole = batches(&first);
    for common in [whole[7].0, whole[12].0, whole[20].0, whole[whole.len() - 1].0] {
        let common = Offset(common);
        let of_second = Folder::new();
        let second = of_second.create(config());
        second.append_as_follower(&bytes_from(&first, Offset(0))).unwrap();
        second.truncate_to(common).unwrap();
        fill(&second, 0..4, (10, 17));
        let expected = content(&second);

        let of_follower = Folder::new();
        let follower = of_follower.create(config());
        follower.append_as_follower(&bytes_from(&first, Offset(0))).unwrap();
        let copies: Rc<RefCell<Vec<Folder>>> = Rc::default();
        let (path, seen) = (of_follower.log_path(), copies.clone());
        on_steps(Some(Box::new(move || {
            let crashed = Folder::new();
            copy_files(&path, &crashed.log_path());
            seen.borrow_mut().push(crashed);
        })));
        follower.truncate_to(common).unwrap();
        on_steps(None);
        let copies = copies.take();
        assert!(copies.len() > 3, "{}", copies.len());
        for (step, crashed) in copies.iter().enumerate() {
            // Of the records that were there before, all may have been flushed, or none.
            for recovery_point in [Offset(0), Offset(whole[whole.len() - 1].1 + 1)] {
                let opened = Folder::new();
                copy_files(&crashed.log_path(), &opened.log_path());
                let known = Known {
                    clean: false,
                    recovery_point: Some(recovery_point),
                    start: None,
                    cleaned_to: None,
                };
                let log = opened.open(config(), known);
                let found = batches(&log);
                assert_eq!(found, whole[..found.len()], "step {step}");
                assert!(log.end_offset() >= common, "step {step}");
                // As the follower does: it cuts to where the logs part, and goes on from there.
                while let Some(end) = parted(&log, &second) {
                    log.truncate_to(end).unwrap();
                }
                log.append_as_follower(&bytes_from(&second, log.end_offset())).unwrap();
                assert_eq!(content(&log), expected, "step {step}");
            }
        }
    }
}

/// Where a follower is to cut its log, as its leader's answer to a fetch says; none where the logs are the same.
fn parted(follower: &Log, leader: &Log) -> Option<Offset> {
    let latest = follower.latest_leader_epoch()?;
    let (epoch, leader_end) = leader.end_offset_for_epoch(latest)?;
    let end = follower.end_offset();
    if epoch == latest && leader_end >= end {
        return None;
    }
    let (ours, our_end) = follower.end_offset_for_epoch(epoch)?;
    let common = if ours == epoch { our_end.min(leader_end) } else { our_end };
    Some(common.min(end))
}

#[test]
fn what_is_cut_off_is_kept_as_it_was() {
    let folder = Folder::new();
    let log = folder.create(config());
    fill(&log, 0..6, (0, 7));
    let cut = Offset(batches(&log)[5].0);
    let lost = bytes_from(&log, cut);
    log.truncate_to(cut).unwrap();
    let kept: Vec<_> = fs::read_dir(folder.log_path().join("truncated")).unwrap().collect();
    let [Ok(kept)] = &kept[..] else { panic!("one file: {kept:?}") };
    assert_eq!(fs::read(kept.path()).unwrap(), lost);
    assert!(kept.file_name().to_string_lossy().starts_with(&format!("{:020}.", cut.0)));
    // It is no part of the log.
    log.set_high_watermark(log.end_offset());
    log.close(true).unwrap();
    assert_eq!(folder.open_clean(config()).end_offset(), cut);
}
