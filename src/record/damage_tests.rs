//! Damaged batches: an error or the right content, never a panic; and nothing is admitted that cannot be read.

use std::collections::BTreeMap;

use bytes::Bytes;
use common::ids::{LeaderEpoch, Offset, Timestamp};

use crate::batch::{BatchHeader, Batches, TimestampType};
use crate::build::seal;
use crate::compression::{BrokerCompression, Codec, Compression};
use crate::convert::{OldFormat, down_convert};
use crate::golden_tests::{cases, log_files};
use crate::records::records;
use crate::validate::{Checked, Origin, Rules, check};
use crate::view::RecordView;

const CAP: usize = 1024 * 1024;

/// The smallest recorded batches of each magic, codec and kind, as a producer would send them.
fn samples() -> Vec<Vec<u8>> {
    let mut samples: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    for case in cases() {
        for bytes in log_files(&case).values() {
            for batch in Batches::new(bytes).map_while(Result::ok) {
                let header = batch.header;
                let has_headers = records(batch.bytes, CAP).is_ok_and(|records| {
                    records.iter().flatten().any(|record| !record.headers.is_empty())
                });
                let key =
                    (header.magic, header.codec.map(Codec::id), has_headers, header.is_control);
                let smallest = samples.entry(key).or_insert_with(|| batch.bytes.to_vec());
                if batch.bytes.len() < smallest.len() {
                    *smallest = batch.bytes.to_vec();
                }
            }
        }
    }
    let mut samples: Vec<_> = samples.into_values().filter(|sample| sample.len() < 3000).collect();
    for sample in &mut samples {
        sample[..8].fill(0);
    }
    samples
}

fn all_rules() -> Vec<Rules> {
    let rules = Rules {
        now: Timestamp(1_700_000_000_000),
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        compression: BrokerCompression::Producer,
        compacted: false,
        message_bytes_max: CAP,
        origin: Origin::Client,
    };
    vec![
        rules,
        Rules {
            timestamp_type: TimestampType::LogAppendTime,
            origin: Origin::Coordinator,
            ..rules
        },
        Rules { compression: BrokerCompression::Always(Compression::None), ..rules },
        Rules { compression: BrokerCompression::Always(Compression::Lz4(9)), ..rules },
    ]
}

/// Whatever is admitted reads back whole, with offsets one after the other.
fn assert_sound(mut checked: Checked) {
    checked.assign(Offset(1000), LeaderEpoch(5));
    let batch = checked.slices().concat();
    let entries: Vec<_> = Batches::new(&batch).map(Result::unwrap).collect();
    assert_eq!(entries.len(), 1);
    assert!(entries[0].header.crc_matches(&batch));
    let mut next = 1000;
    for record in &records(&batch, CAP).unwrap() {
        assert_eq!(record.unwrap().offset, Offset(next));
        next += 1;
    }
    assert_eq!(next, 1000 + i64::from(checked.record_count()));
    assert_eq!(entries[0].header.last_offset, Offset(next - 1));
}

fn read_all(bytes: &[u8]) {
    for batch in Batches::new(bytes).map_while(Result::ok) {
        if let Ok(records) = records(batch.bytes, CAP) {
            records.iter().for_each(|record| {
                // Damaged bytes read as anything; they must only not panic.
                // Errors are as good as records here.
                let _ = record.map(|record| record.headers.iter().count());
            });
        }
    }
    for to in [OldFormat::Magic0, OldFormat::Magic1] {
        // Either answer will do, as above.
        // As good as records.
        let _ = down_convert(bytes, to, Offset::ZERO, CAP);
    }
}

/// All but the offsets, which the broker gives.
fn content(batch: &[u8]) -> Vec<String> {
    let shown = |record: RecordView| format!("{:?}", RecordView { offset: Offset::ZERO, ..record });
    records(batch, CAP).unwrap().iter().map(|record| shown(record.unwrap())).collect()
}

/// Makes the checksum right again, so that the checks behind it are reached.
fn reseal(bytes: &mut [u8]) {
    if bytes.len() < 61 {
        return;
    }
    if let Ok(mut header) = BatchHeader::parse(bytes) {
        let length = header.batch_length;
        seal(&mut header, &bytes[61..]);
        header.batch_length = length;
        bytes[..61].copy_from_slice(&header.to_bytes());
        let crc = crate::batch::compute_crc(bytes);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    } else {
        let crc = crate::legacy::compute_crc(bytes);
        bytes[12..16].copy_from_slice(&crc.to_be_bytes());
    }
}

#[test]
fn a_flipped_byte_is_noticed() {
    let rules = all_rules()[0];
    for sample in samples() {
        let magic = sample[16];
        let is_control = Batches::new(&sample).next().unwrap().unwrap().header.is_control;
        for index in 0..sample.len() {
            let mut flipped = sample.clone();
            flipped[index] ^= 0x41;
            let checked = check(flipped.clone().into(), &rules);
            let uncovered = if magic == 2 { 12..16 } else { 0..8 };
            if uncovered.contains(&index) && !is_control {
                // Offsets of old messages and leader epochs are the broker's to give.
                if let Ok(checked) = checked {
                    assert_sound(checked);
                }
            } else {
                assert!(checked.is_err(), "magic {magic}, byte {index} of {}", sample.len());
            }
            read_all(&flipped);
        }
    }
}

#[test]
fn a_batch_that_is_cut_off_is_not_admitted() {
    for sample in samples() {
        for length in 0..sample.len() {
            let cut = Bytes::copy_from_slice(&sample[..length]);
            read_all(&cut);
            for rules in all_rules() {
                assert!(check(cut.clone(), &rules).is_err());
            }
        }
    }
}

#[test]
fn damage_under_a_right_checksum_is_refused_or_mended() {
    for sample in samples() {
        for index in 8..sample.len() {
            for flip in [1, 0x80, 0xff] {
                let mut flipped = sample.clone();
                flipped[index] ^= flip;
                reseal(&mut flipped);
                read_all(&flipped);
                for rules in all_rules() {
                    if let Ok(checked) = check(flipped.clone().into(), &rules) {
                        assert_sound(checked);
                    }
                }
            }
        }
    }
}

#[test]
fn sound_samples_keep_their_content() {
    let mut kinds = 0;
    for sample in samples() {
        let header = Batches::new(&sample).next().unwrap().unwrap().header;
        let count = i64::from(header.record_count.unwrap_or(1));
        if header.magic == 2 && header.last_offset.0 + 1 != count {
            continue; // Compaction has taken records out of it.
        }
        kinds += 1;
        for mut rules in all_rules() {
            let both = [Some(rules.timestamp_type), header.timestamp_type];
            if both == [Some(TimestampType::LogAppendTime); 2] {
                continue; // Producers may not choose the broker's time.
            }
            rules.origin = Origin::Coordinator;
            let mut checked = check(sample.clone().into(), &rules).unwrap();
            checked.assign(Offset::ZERO, LeaderEpoch(1));
            let stored = checked.slices().concat();
            if rules.timestamp_type == TimestampType::CreateTime {
                assert_eq!(content(&stored), content(&sample));
            }
            assert_sound(checked);
        }
    }
    assert!(kinds >= 12, "{kinds} kinds of batches");
}
