//! A run of batches ends as the same batches appended one by one.

use std::io;

use common::ids::{LeaderEpoch, Offset};
use record::validate::Checked;

use crate::{
    error::AppendError,
    faults,
    log::Log,
    log_append::Appended,
    log_config::LogConfig,
    testing::{Batch, Folder, all_batches, batch, checked, read_all, small_segments},
};

fn of(batches: &[Batch]) -> Vec<Checked> {
    batches.iter().map(|batch| checked(batch.bytes())).collect()
}

fn in_a_run(log: &Log, batches: &[Batch]) -> Vec<Result<Appended, AppendError>> {
    log.append_run_as_leader(of(batches), LeaderEpoch(3))
}

fn one_by_one(log: &Log, batches: &[Batch]) -> Vec<Result<Appended, AppendError>> {
    let batches = of(batches).into_iter();
    batches.map(|batch| log.append_as_leader(batch, LeaderEpoch(3))).collect()
}

fn log_bytes(folder: &Folder) -> Vec<u8> {
    std::fs::read(folder.log_path().join("00000000000000000000.log")).unwrap()
}

/// Batches of some producers: most go on where theirs stopped, others come again, leave a gap, or are of another epoch.
fn mixture(seed: u32) -> Vec<Batch> {
    let mut state = seed;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let mut next = [0; 3];
    (0..40)
        .map(|_| {
            let count = 1 + random(3) as usize;
            let producer = random(4) as usize;
            let Some(sequence) = next.get_mut(producer) else { return Batch { count, ..batch() } };
            let (epoch, first) = match random(12) {
                0 => (0, i32::max(*sequence - count as i32, 0)),
                1 => (0, *sequence + 1),
                2 => (1, 0),
                3 => (-1, *sequence),
                _ => (0, *sequence),
            };
            if epoch == 0 && first == *sequence {
                *sequence += count as i32;
            }
            Batch { count, producer: Some((producer as i64, epoch, first)), ..batch() }
        })
        .filter(|batch| batch.producer.is_none_or(|(_, epoch, _)| epoch >= 0))
        .collect()
}

#[test]
fn a_run_answers_and_leaves_behind_what_single_appends_do() {
    for seed in 0..60 {
        let batches = mixture(seed);
        let (single, joined) = (Folder::new(), Folder::new());
        let (one, other) =
            (single.create(LogConfig::default()), joined.create(LogConfig::default()));
        for part in batches.chunks(1 + seed as usize % 20) {
            let (expected, found) = (one_by_one(&one, part), in_a_run(&other, part));
            assert_eq!(format!("{expected:?}"), format!("{found:?}"), "seed {seed}");
        }
        assert_eq!(log_bytes(&single), log_bytes(&joined), "seed {seed}");
        assert_eq!(one.end_offset(), other.end_offset(), "seed {seed}");
    }
}

#[test]
fn a_run_goes_over_the_ends_of_segments() {
    let folder = Folder::new();
    let log = folder.create(small_segments());
    let batches = [Batch { count: 2, ..batch() }; 30];
    let appended = in_a_run(&log, &batches);
    let bases: Vec<i64> = appended.iter().map(|one| one.as_ref().unwrap().first_offset.0).collect();
    assert_eq!(bases, (0..30).map(|number| number * 2).collect::<Vec<_>>());
    assert_eq!(read_all(&log, Offset(0), log.end_offset()).len(), 30);
    let mut segments: Vec<Offset> = all_batches(&log).iter().map(|(base, _)| *base).collect();
    segments.dedup();
    assert!(segments.len() > 5, "{segments:?}");
}

#[test]
fn a_batch_larger_than_a_segment_is_refused_alone() {
    let folder = Folder::new();
    let log = folder.create(small_segments());
    let appended = in_a_run(&log, &[batch(), Batch { count: 20, ..batch() }, batch()]);
    assert!(matches!(
        &appended[..],
        [Ok(_), Err(AppendError::LargerThanSegment { .. }), Ok(Appended { first_offset, .. })]
            if *first_offset == Offset(1)
    ));
}

#[test]
fn where_the_disk_takes_a_part_each_batch_has_its_own_answer() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    let producer = |sequence| Batch { producer: Some((7, 0, sequence)), ..batch() };
    let batches = [producer(0), producer(1), producer(2)];
    faults::fail_next_write(250, io::ErrorKind::StorageFull);
    let appended = in_a_run(&log, &batches);
    assert!(appended.iter().all(Result::is_ok), "{appended:?}");
    assert_eq!(read_all(&log, Offset(0), log.end_offset()), [(0, 0), (1, 1), (2, 2)]);
    // And of a producer that comes again nothing is lost or doubled.
    let again = in_a_run(&log, &batches);
    assert!(again.iter().all(|one| one.as_ref().is_ok_and(|one| one.duplicate)), "{again:?}");
}
