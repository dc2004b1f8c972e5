//! Crashes and rot: a log cut at every byte, and each of its other files cut, zeroed, or with bytes flipped. It opens,
//! loses nothing that was flushed, and gives the right answers.

use std::{fs, path::Path};

use common::ids::{LeaderEpoch, Offset, ProducerId, Timestamp};
use record::compression::Compression;

use crate::{
    log::{ActiveProducer, Log},
    log_config::LogConfig,
    log_load::Known,
    log_read::TimestampAndOffset,
    testing::{Batch, Folder, all_batches, append, batch, checked, end_transaction, read_all},
    transaction_index::AbortedTransaction,
};

/// So many that the last segment is nearly full.
const ROUNDS: i32 = 11;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 1500,
        index_interval_bytes: 150,
        retention_ms: -1,
        producer_id_expiration_ms: i64::MAX,
        verify_transactions: false,
        ..LogConfig::default()
    }
}

/// A log of several segments: every codec, an idempotent producer, transactions that end either way, one that is
/// open, timestamps that go up and down, several epochs. Closed as at a clean stop.
fn mixed_log(folder: &Folder) {
    let log = folder.create(config());
    let codecs =
        [Compression::None, Compression::Snappy, Compression::Lz4(9), Compression::Zstd(3)];
    for round in 0..ROUNDS {
        let epoch = LeaderEpoch(round / 3);
        let timestamp = 1000 + i64::from(round) * 50 - i64::from(round % 4) * 120;
        let plain = Batch { count: 3, value_size: 30, timestamp, ..batch() };
        let compression = codecs[round as usize % 4];
        let idempotent = Batch { producer: Some((7, 1, round * 3)), compression, ..plain };
        let transactional = |producer, sequence| Batch {
            count: 1,
            producer: Some((producer, 0, sequence)),
            transactional: true,
            ..plain
        };
        for batch in [
            plain,
            idempotent,
            transactional(8, round),
            transactional(9, round * 2),
            transactional(9, round * 2 + 1),
        ] {
            log.append_as_leader(checked(batch.bytes()), epoch).unwrap();
        }
        if round < ROUNDS - 1 {
            end_transaction(&log, (8, 0), round % 2 == 0);
        }
        if round % 3 == 1 {
            end_transaction(&log, (9, 0), round % 2 == 0);
        }
    }
    log.set_high_watermark(log.end_offset());
    log.close(true).unwrap();
}

/// Everything that can be asked of a log.
#[derive(Debug, PartialEq)]
struct Answers {
    start: Offset,
    end: Offset,
    last_stable: Offset,
    batches: Vec<(i64, i64)>,
    from_everywhere: Vec<Option<(i64, i64)>>,
    by_timestamp: Vec<Option<TimestampAndOffset>>,
    largest: Option<TimestampAndOffset>,
    aborted: Vec<Vec<AbortedTransaction>>,
    epochs: Vec<(LeaderEpoch, Offset)>,
    producers: Vec<ActiveProducer>,
}

impl Answers {
    /// Of each producer a snapshot has only the last batch, with the timestamp of a marker if that came later.
    fn like_a_snapshot(mut self) -> Answers {
        for one in &mut self.producers {
            let batches = &mut one.producer.batches;
            batches.drain(..batches.len() - 1);
            batches[0].timestamp = Timestamp(0);
        }
        self
    }
}

fn answers(log: &Log) -> Answers {
    let (start, end) = (log.start_offset(), log.end_offset());
    log.set_high_watermark(end);
    let first = |offset| read_all_first(log, Offset(offset), end);
    let mut producers = log.producers();
    producers.sort_by_key(|producer| producer.producer_id);
    let aborted = (start.0..end.0).step_by(7).map(|from| {
        let mut found = log.aborted_transactions(Offset(from), Offset(from + 9)).unwrap();
        // Which of those beyond the bound are listed depends on the segments' borders.
        found.retain(|one| one.first_offset.0 < from + 9);
        found
    });
    Answers {
        start,
        end,
        last_stable: log.last_stable_offset(),
        batches: read_all(log, start, end),
        from_everywhere: (start.0..end.0).step_by(3).map(first).collect(),
        by_timestamp: (600..1600)
            .step_by(37)
            .map(|timestamp| log.offset_for_timestamp(Timestamp(timestamp)).unwrap())
            .collect(),
        largest: log.offset_of_max_timestamp().unwrap(),
        aborted: aborted.collect(),
        epochs: log.leader_epochs().entries().to_vec(),
        producers,
    }
}

fn read_all_first(log: &Log, from: Offset, up_to: Offset) -> Option<(i64, i64)> {
    let read = log.read(from, 1, true, up_to).unwrap();
    let region = read.regions.first()?;
    let mut bytes = vec![0; region.length];
    std::os::unix::fs::FileExt::read_exact_at(&*region.file, &mut bytes, region.position).unwrap();
    let header = record::entry::EntryHeader::parse(&bytes).unwrap();
    Some((header.first_or_last_offset().0, header.last_offset.0))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// As `copy`, but for one file, and by links: nothing of the log is changed in place when it is opened.
fn link(from: &Path, to: &Path, without: &str) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_name() != without {
            fs::hard_link(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn known(clean: bool, recovery_point: Offset) -> Known {
    Known { clean, recovery_point: Some(recovery_point), start: None, cleaned_to: None }
}

#[test]
fn a_log_cut_at_any_byte_keeps_its_whole_batches() {
    let folder = Folder::new();
    mixed_log(&folder);
    let whole = folder.open_clean(config());
    let expected = answers(&whole);
    let batches = all_batches(&whole);
    let last_base = whole.views().0.last().unwrap().base;
    let last_name = format!("{:020}.log", last_base.0);
    let size = fs::metadata(folder.log_path().join(&last_name)).unwrap().len();
    assert!(whole.segment_count() > 3 && size > 400, "{size}");
    for cut in 0..=size {
        // What follows the recovery point is not flushed; indexes and snapshots may be newer than the log.
        let crashed = Folder::new();
        copy(&folder.log_path(), &crashed.log_path());
        let path = crashed.log_path().join(&last_name);
        fs::File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let log = crashed.open(config(), known(cut % 5 == 0, last_base));
        let kept = batches.iter().filter(|(base, found)| *base < last_base || found.end() <= cut);
        let kept: Vec<(i64, i64)> = kept
            .map(|(_, found)| (found.header.first_or_last_offset().0, found.header.last_offset.0))
            .collect();
        let end = kept.last().map_or(0, |last| last.1 + 1);
        assert_eq!(log.end_offset(), Offset(end), "cut at {cut}");
        assert_eq!(read_all(&log, Offset(0), Offset(end)), kept, "cut at {cut}");
        assert_eq!(expected.batches[..kept.len()], kept);
        assert_eq!(
            fs::metadata(&path).unwrap().len() + whole_size_before(&batches, last_base),
            log.size()
        );
        if cut == size {
            assert_eq!(answers(&log).like_a_snapshot(), answers(&whole).like_a_snapshot());
        }
        // The producer goes on where the log now ends.
        let sequence = log
            .producers()
            .iter()
            .find(|one| one.producer_id == ProducerId(7))
            .map(|one| one.producer.last_sequence());
        let next = Batch { producer: Some((7, 1, sequence.unwrap() + 1)), ..batch() };
        assert_eq!(append(&log, next).unwrap().first_offset, Offset(end));
    }
}

#[test]
fn a_sealed_segment_that_lost_its_end_is_the_logs_last_but_after_compaction() {
    let folder = Folder::new();
    mixed_log(&folder);
    let batches = all_batches(&folder.open_clean(config()));
    let mut bases: Vec<Offset> = batches.iter().map(|(base, _)| *base).collect();
    bases.dedup();
    let (cut_base, next_base, end) =
        (bases[1], bases[2], batches.last().unwrap().1.header.last_offset.plus(1));
    assert!(bases.len() > 3);
    let crashed_at = |position: u64| {
        let crashed = Folder::new();
        copy(&folder.log_path(), &crashed.log_path());
        let path = crashed.log_path().join(format!("{:020}.log", cut_base.0));
        fs::File::options().write(true).open(path).unwrap().set_len(position).unwrap();
        crashed
    };
    let open = |position: u64, config: LogConfig, cleaned_to| {
        let crashed = crashed_at(position);
        let known = Known { cleaned_to, ..known(false, cut_base) };
        let log = crashed.open(config, known);
        (log.end_offset(), log.segment_count(), crashed)
    };
    // The cuts fall between two batches: nothing in a file looks wrong.
    for (_, found) in batches.iter().filter(|(base, _)| *base == cut_base) {
        let lost_from = found.header.first_or_last_offset();
        let (cut_end, count, crashed) = open(found.position, config(), None);
        assert_eq!((cut_end, count), (lost_from, 2));
        let again = crashed.open(config(), known(false, cut_base));
        assert_eq!(again.end_offset(), lost_from);
        assert_eq!(append(&again, batch()).unwrap().first_offset, lost_from);
        let compacted = LogConfig { compact: true, ..config() };
        assert_eq!(open(found.position, compacted, None).0, end, "gaps are compaction's");
        assert_eq!(open(found.position, config(), Some(next_base)).0, end, "was compacted once");
        let unknown = Known { recovery_point: None, ..known(false, cut_base) };
        assert_eq!(crashed_at(found.position).open(config(), unknown).end_offset(), end);
        let not_so_far = Some(Offset(next_base.0 - 1));
        assert_eq!(open(found.position, config(), not_so_far).0, lost_from);
    }
}

fn whole_size_before(batches: &[(Offset, crate::scan::Found)], base: Offset) -> u64 {
    batches
        .iter()
        .filter(|(segment, _)| *segment < base)
        .map(|(_, found)| found.header.size as u64)
        .sum()
}

/// Ways to damage a file of this content: cuts, zeros, flipped bits. Of large files a sample.
fn damages(content: &[u8]) -> Vec<Vec<u8>> {
    let step = content.len().div_ceil(24).max(1);
    let mut damages = vec![vec![0; content.len()], Vec::new()];
    for position in (0..content.len()).step_by(step) {
        damages.push(content[..position].to_vec());
        let mut zeroed = content.to_vec();
        zeroed[position..].fill(0);
        damages.push(zeroed);
    }
    for position in 0..content.len() {
        for mask in [1 << (position % 8), 0xff] {
            if content.len() <= 24 || position % step == (mask as usize) % step {
                let mut flipped = content.to_vec();
                flipped[position] ^= mask;
                damages.push(flipped);
            }
        }
    }
    damages.push([content, &[0; 24]].concat());
    damages.retain(|damage| damage != content);
    damages
}

fn check_damages(clean: bool) {
    let folder = Folder::new();
    mixed_log(&folder);
    let of = |folder: &Folder| {
        let answers = answers(&folder.open(config(), known(clean, Offset(0))));
        if clean { answers.like_a_snapshot() } else { answers }
    };
    let expected = of(&folder);
    let mut seen = std::collections::BTreeSet::new();
    for name in folder.file_names().iter().filter(|name| !name.ends_with(".log")) {
        let content = fs::read(folder.log_path().join(name)).unwrap();
        seen.insert(name.rsplit_once('.').map_or(&**name, |split| split.1).to_owned());
        for damage in damages(&content) {
            let damaged = Folder::new();
            link(&folder.log_path(), &damaged.log_path(), name);
            fs::write(damaged.log_path().join(name), &damage).unwrap();
            let found = of(&damaged);
            assert_eq!(found.epochs, expected.epochs, "{name} {damage:02x?}");
            assert_eq!(found.producers, expected.producers, "{name} {damage:02x?}");
            assert_eq!(found, expected, "{name} {damage:02x?}");
        }
    }
    let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(seen, ["index", "leader-epoch-checkpoint", "snapshot", "timeindex", "txnindex"]);
}

#[test]
fn after_a_clean_stop_a_damaged_file_leads_to_no_wrong_answer() {
    check_damages(true);
}

#[test]
fn after_a_crash_a_damaged_file_leads_to_no_wrong_answer() {
    check_damages(false);
}

#[test]
fn a_damaged_file_is_made_again_and_then_holds() {
    let folder = Folder::new();
    mixed_log(&folder);
    let expected = answers(&folder.open(config(), known(true, Offset(0))));
    for name in folder.file_names().iter().filter(|name| !name.ends_with(".log")) {
        fs::write(folder.log_path().join(name), b"no such file has this content").unwrap();
    }
    let log = folder.open(config(), known(true, Offset(0)));
    assert_eq!(answers(&log).batches, expected.batches);
    assert_eq!(answers(&log).by_timestamp, expected.by_timestamp);
    log.close(true).unwrap();
    let log = folder.open(config(), known(true, Offset(0)));
    let again = answers(&log);
    assert_eq!(
        (again.batches, again.aborted, again.epochs),
        (expected.batches, expected.aborted, expected.epochs)
    );
}
