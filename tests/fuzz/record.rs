//! Fuzz targets of record batches and codecs, with real ones to begin from.
//!
//! A target panics where something does not hold; the runner watches time and memory.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::ids::{LeaderEpoch, Offset, Timestamp};
use record::batch::{Batches, TimestampType};
use record::compression::{BrokerCompression, Codec, Compression, decompress};
use record::control::marker_of;
use record::convert::{OldFormat, down_convert};
use record::records::{first_offset, records};
use record::validate::{Checked, Origin, Rules, check, work};

/// What a target may decompress from one input, in bytes.
const DECOMPRESSED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Larger entries are no better to begin from.
const CORPUS_BYTES_MAX: usize = 8 * 1024;
/// Entries that differ in size alone are no better either.
const CORPUS_OF_A_FILE_MAX: usize = 3;

/// Bytes of a log, or what a producer sent: read, checked under several rules, converted.
///
/// The checksums are also made right first: else no mutation would come past them.
pub(crate) fn batches(data: &[u8]) {
    walk(data);
    admit(data);
    let mut resealed = data.to_vec();
    reseal(&mut resealed);
    walk(&resealed);
    admit(&resealed);
}

/// One byte that chooses the codec and the magic, then compressed bytes.
pub(crate) fn decompressors(data: &[u8]) {
    let Some((&choice, input)) = data.split_first() else { return };
    let Some(codec) = Codec::from_id(choice & 7) else { return };
    let magic = i8::from(choice & 0x80 != 0) * 2;
    if let Ok(output) = decompress(codec, magic, input, DECOMPRESSED_BYTES_MAX) {
        assert!(output.len() <= DECOMPRESSED_BYTES_MAX, "the cap holds");
    }
}

/// Entries of the recorded logs, and what was sent to a real Kafka as it is in the recording: for `batches`.
pub(crate) fn batch_corpus() -> Vec<Vec<u8>> {
    let mut corpus = Vec::new();
    for file in log_files() {
        let Ok(bytes) = fs::read(&file) else { continue };
        let entries = Batches::new(&bytes).map_while(Result::ok);
        let small = entries.filter(|entry| entry.bytes.len() <= CORPUS_BYTES_MAX);
        for entry in small.take(CORPUS_OF_A_FILE_MAX) {
            let mut sent = entry.bytes.to_vec();
            // As a producer sends it: offsets are not its to give.
            sent[..8].fill(0);
            corpus.push(sent);
        }
    }
    corpus.sort();
    corpus.dedup();
    corpus
}

/// Compressed records of the recorded logs: for `decompressors`.
pub(crate) fn decompressor_corpus() -> Vec<Vec<u8>> {
    let mut corpus = Vec::new();
    for sent in batch_corpus() {
        let Some(Ok(entry)) = Batches::new(&sent).next() else { continue };
        let codec = entry.header.codec.unwrap_or(Codec::None);
        if codec == Codec::None {
            continue;
        }
        // A compressed message of magic 0 or 1 has no key.
        let (records_at, magic_2) = match entry.header.magic {
            0 => (26, 0),
            1 => (34, 0),
            _ => (61, 0x80),
        };
        let mut input = vec![codec.id() | magic_2];
        input.extend_from_slice(&entry.bytes[records_at..]);
        corpus.push(input);
    }
    corpus
}

fn log_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/logs")];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "log") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Reads everything there is to read.
fn walk(data: &[u8]) {
    let mut batches = Batches::new(data);
    for entry in batches.by_ref().map_while(Result::ok) {
        assert_eq!(entry.header.size, entry.bytes.len(), "an entry is as long as it says");
        entry.header.crc_matches(entry.bytes);
        if let Ok(records) = records(entry.bytes, DECOMPRESSED_BYTES_MAX) {
            for record in records.iter().map_while(Result::ok) {
                assert_eq!(
                    record.headers.iter().count(),
                    record.headers.len(),
                    "no header is lost"
                );
            }
        }
        // Errors are as good as answers here.
        let _ = first_offset(entry.bytes, DECOMPRESSED_BYTES_MAX);
        let _ = marker_of(entry.bytes);
    }
    assert!(batches.position() <= data.len(), "no entry reaches past the bytes");
    for to in [OldFormat::Magic0, OldFormat::Magic1] {
        if let Ok(converted) = down_convert(data, to, Offset::ZERO, DECOMPRESSED_BYTES_MAX) {
            let mut batches = Batches::new(&converted);
            assert!(batches.by_ref().all(|entry| entry.is_ok_and(|entry| entry.header.magic < 2)));
            assert_eq!(batches.position(), converted.len(), "conversion gives whole messages");
        }
    }
}

/// Checks what was sent; what is admitted must be sound.
fn admit(data: &[u8]) {
    let plain = Rules {
        now: Timestamp(1_700_000_000_000),
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        compression: BrokerCompression::Producer,
        compacted: false,
        message_bytes_max: 1024 * 1024,
        origin: Origin::Client,
    };
    let always = |compression| BrokerCompression::Always(compression);
    let all = [
        plain,
        Rules { timestamp_type: TimestampType::LogAppendTime, compacted: true, ..plain },
        Rules { origin: Origin::Coordinator, before_max_ms: 1000, after_max_ms: 1000, ..plain },
        Rules { compression: always(Compression::None), ..plain },
        Rules { compression: always(Compression::Snappy), ..plain },
    ];
    let sent = Bytes::copy_from_slice(data);
    for rules in all {
        work(&sent, &rules);
        if let Ok(checked) = check(sent.clone(), &rules) {
            assert_sound(checked);
        }
    }
}

/// One batch, its checksum right, its records readable, their offsets one after the other.
fn assert_sound(mut checked: Checked) {
    checked.assign(Offset(1000), LeaderEpoch(5));
    let batch = checked.slices().concat();
    let mut entries = Batches::new(&batch);
    let entry = entries.next().expect("a batch").expect("a whole batch");
    assert_eq!(entries.position(), batch.len());
    assert!(entry.header.crc_matches(&batch), "the checksum is right");
    let records =
        records(&batch, record::compression::DECOMPRESSED_BYTES_MAX).expect("readable records");
    let mut next = 1000;
    for record in &records {
        assert_eq!(record.expect("a readable record").offset, Offset(next));
        next += 1;
    }
    assert_eq!(entry.header.last_offset, Offset(next - 1));
}

/// Makes the checksum of each entry right.
fn reseal(data: &mut [u8]) {
    let mut at = 0;
    loop {
        let Some(Ok(entry)) = Batches::new(&data[at..]).next() else { return };
        let crc = entry.header.compute_crc(entry.bytes).to_be_bytes();
        let (size, crc_at) = (entry.header.size, if entry.header.magic == 2 { 17 } else { 12 });
        data[at + crc_at..at + crc_at + 4].copy_from_slice(&crc);
        at += size;
    }
}
