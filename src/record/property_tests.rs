//! Properties of builder, checks and conversions, for records of all shapes.

use std::io::Write;

use bytes::Bytes;
use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::batch::{BATCH_HEADER_LENGTH, BatchHeader, Batches, TimestampType};
use crate::build::{BatchBuilder, BuildError, seal};
use crate::compression::{BrokerCompression, Codec, Compression, compress};
use crate::control::{EndTransactionMarker, TransactionResult, marker_batch};
use crate::convert::{ConvertError, OldFormat, down_convert};
use crate::golden_tests::{cases, log_files};
use crate::records::{RecordsError, records};
use crate::validate::{
    CHECK_BYTES_MIN, InvalidBatch, Origin, Rules, Unreadable, ValidationError, Work, check,
    check_within, work,
};
use crate::view::Header;

const CAP: usize = 16 * 1024 * 1024;
const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

const RULES: Rules = Rules {
    now: Timestamp(1_700_000_000_000),
    timestamp_type: TimestampType::CreateTime,
    before_max_ms: i64::MAX,
    after_max_ms: i64::MAX,
    compression: BrokerCompression::Producer,
    compacted: false,
    message_bytes_max: CAP,
    origin: Origin::Client,
};

#[derive(Clone, Debug, PartialEq)]
struct Record {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn any_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(prop_oneof![
        8 => vec(any::<u8>(), 0..40),
        1 => (60_000..70_000_usize).prop_map(|length| vec![7; length]),
    ])
}

fn any_record() -> impl Strategy<Value = Record> {
    let timestamp = prop_oneof![8 => 1_600_000_000_000..1_800_000_000_000_i64, 1 => Just(-1), 1 => any::<i64>().prop_map(|time| time & i64::MAX)];
    let headers = vec((vec(any::<u8>(), 0..5), option::of(vec(any::<u8>(), 0..9))), 0..4);
    (timestamp, any_bytes(), any_bytes(), headers)
        .prop_map(|(timestamp, key, value, headers)| Record { timestamp, key, value, headers })
}

fn build(codec: Codec, records: &[Record]) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::of(codec));
    for record in records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(name, value)| Header { name, value: value.as_deref() })
            .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let bound = builder.size_with(key, value, &headers);
        builder.append(Timestamp(record.timestamp), key, value, &headers).unwrap();
        assert!(builder.size() <= bound);
    }
    builder.finish()
}

/// The records of all entries; their offsets, less `first`, must be 0, 1, 2 and so on.
fn read(bytes: &[u8], first: i64) -> Vec<Record> {
    let mut read = Vec::new();
    for entry in Batches::new(bytes) {
        let entry = entry.unwrap();
        assert!(entry.header.crc_matches(entry.bytes));
        for record in &records(entry.bytes, CAP).unwrap() {
            let record = record.unwrap();
            assert_eq!(record.offset.0, first + read.len() as i64);
            let headers = record
                .headers
                .iter()
                .map(|header| (header.name.to_vec(), header.value.map(<[u8]>::to_vec)));
            read.push(Record {
                timestamp: record.timestamp.0,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: headers.collect(),
            });
        }
    }
    read
}

fn any_codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(CODECS.to_vec())
}

/// Settings of random tests: a seed of their own, shown when a test fails.
pub(crate) fn seeded(cases: u32) -> proptest::test_runner::Config {
    use std::hash::{BuildHasher, RandomState};

    let given = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("again: PROPTEST_RNG_SEED={seed} cargo test -p record");
    proptest::test_runner::Config {
        cases,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(seed),
        ..proptest::test_runner::Config::default()
    }
}

proptest! {
    #![proptest_config(seeded(80))]

    #[test]
    fn records_are_stored_as_they_were_sent(
        sent in vec(any_record(), 1..8),
        codec in any_codec(),
        target in option::of(any_codec()),
    ) {
        let batch = build(codec, &sent);
        prop_assert_eq!(read(&batch, 0), sent.clone());
        let compression = target.map_or(BrokerCompression::Producer, |target| {
            BrokerCompression::Always(Compression::of(target))
        });
        let rules = Rules { compression, ..RULES };
        let mut checked = check(batch.clone(), &rules).unwrap();
        let rewritten = target.is_some_and(|target| target != codec);
        prop_assert_eq!(checked.was_rewritten(), rewritten);
        prop_assert_eq!(work(&batch, &rules) == Work::Rewrite, rewritten);
        checked.assign(Offset(70), LeaderEpoch(2));
        let stored = checked.slices().concat();
        prop_assert_eq!(stored.len(), checked.size());
        prop_assert_eq!(read(&stored, 70), sent.clone());
        let max = sent.iter().map(|record| record.timestamp).max();
        prop_assert_eq!(Some(checked.max_timestamp().0), max);
        prop_assert_eq!(checked.record_count() as usize, sent.len());
        prop_assert_eq!(checked.last_offset_delta() as usize, sent.len() - 1);
        if !rewritten {
            prop_assert_eq!(&stored[8..12], &batch[8..12]);
            prop_assert_eq!(&stored[16..], &batch[16..]);
        }
    }

    #[test]
    fn old_formats_lose_headers_and_nothing_else(
        mut sent in vec(any_record(), 1..6),
        codec in prop::sample::select(CODECS[..4].to_vec()),
        first in 0..1000_i64,
    ) {
        let mut checked = check(build(codec, &sent), &RULES).unwrap();
        checked.assign(Offset(first), LeaderEpoch(2));
        let stored = checked.slices().concat();
        sent.iter_mut().for_each(|record| record.headers.clear());
        let one = down_convert(&stored, OldFormat::Magic1, Offset(first), CAP).unwrap();
        prop_assert_eq!(read(&one, first), sent.clone());
        prop_assert_eq!(&down_convert(&one, OldFormat::Magic1, Offset(first), CAP).unwrap(), &one);
        // And back: a producer sends the same messages.
        let up = check(one.clone().into(), &RULES).unwrap();
        prop_assert_eq!(read(&up.slices().concat(), 0), sent.clone());
        let zero = down_convert(&stored, OldFormat::Magic0, Offset(first), CAP).unwrap();
        prop_assert_eq!(&down_convert(&one, OldFormat::Magic0, Offset(first), CAP).unwrap(), &zero);
        sent.iter_mut().for_each(|record| record.timestamp = -1);
        prop_assert_eq!(read(&zero, first), sent.clone());
        let up = check(zero.into(), &RULES).unwrap();
        prop_assert_eq!(read(&up.slices().concat(), 0), sent);
    }

    /// Records that are walked in place and records that are skimmed through a window meet the same checks.
    #[test]
    fn plain_and_compressed_records_are_judged_alike(
        sent in vec(any_record(), 1..4),
        changes in vec((any::<prop::sample::Index>(), 0..60_usize, any::<u8>()), 1..3),
        codec in prop::sample::select(CODECS[1..].to_vec()),
        compacted in any::<bool>(),
    ) {
        let plain = build(Codec::None, &sent);
        let mut header = BatchHeader::parse(&plain).unwrap();
        let mut raw = plain[BATCH_HEADER_LENGTH..].to_vec();
        for (place, near_the_start, byte) in changes {
            // Half of the changes are where the lengths are.
            let index = if byte & 1 == 0 { place.index(raw.len()) } else { near_the_start % raw.len() };
            raw[index] = byte;
        }
        seal(&mut header, &raw);
        let plain = [&header.to_bytes()[..], &raw].concat();
        let mut payload = Vec::new();
        compress(Compression::of(codec), 2, &raw, &mut payload);
        header.attributes = header.attributes.with_codec(codec);
        seal(&mut header, &payload);
        let compressed = [&header.to_bytes()[..], &payload].concat();
        let rules = Rules { compacted, before_max_ms: 200_000_000_000, ..RULES };
        match (check(plain.into(), &rules), check(compressed.into(), &rules)) {
            (Ok(plain), Ok(compressed)) => {
                prop_assert_eq!(plain.max_timestamp(), compressed.max_timestamp());
                prop_assert_eq!(read(&plain.slices().concat(), 0), read(&compressed.slices().concat(), 0));
            }
            // Compressed records are not numbered anew.
            (Ok(plain), Err(ValidationError::Unreadable(Unreadable::Offsets))) => {
                prop_assert!(plain.was_rewritten());
            }
            (Err(ValidationError::Records(plain)), Err(ValidationError::Records(compressed))) => {
                prop_assert_eq!(plain, compressed);
            }
            (Err(ValidationError::Invalid(InvalidBatch::Structure(_))), Err(ValidationError::Invalid(InvalidBatch::Structure(_)))) => {}
            // A changed offset may need a rewrite that its timestamp forbids.
            (Err(ValidationError::Unreadable(_)), Err(ValidationError::Unreadable(_))) => {}
            (plain, compressed) => prop_assert!(false, "{plain:?} and {compressed:?}"),
        }
    }
}

#[test]
fn recorded_batches_are_admitted_as_they_are() {
    let mut count = 0;
    for case in cases() {
        for bytes in log_files(&case).values() {
            for entry in Batches::new(bytes).map_while(Result::ok) {
                let header = entry.header;
                let records = i64::from(header.record_count.unwrap_or(0));
                let first = header.first_or_last_offset().0;
                if header.magic < 2 || header.last_offset.0 - first + 1 != records {
                    continue; // Old, or compacted.
                }
                let rules = Rules {
                    timestamp_type: header.timestamp_type.unwrap(),
                    now: header.max_timestamp,
                    origin: Origin::Coordinator,
                    ..RULES
                };
                if rules.timestamp_type == TimestampType::LogAppendTime {
                    continue; // Producers may not choose the broker's time.
                }
                let mut checked = check(Bytes::copy_from_slice(entry.bytes), &rules).unwrap();
                checked.assign(Offset(first), header.leader_epoch);
                assert_eq!(checked.slices().concat(), entry.bytes);
                assert!(!checked.was_rewritten());
                count += 1;
            }
        }
    }
    assert!(count > 3000, "{count} batches");
}

#[test]
fn control_batches_are_left_out_for_old_clients() {
    let marker = EndTransactionMarker { result: TransactionResult::Commit, coordinator_epoch: 1 };
    let control = marker_batch(ProducerId(1), ProducerEpoch(0), Timestamp(5), marker);
    let data = Record { timestamp: 1, key: None, value: Some(vec![1]), headers: vec![] };
    let plain = build(Codec::None, &[data.clone(), data.clone()]);
    let zstd = build(Codec::Zstd, &[data]);
    let convert = |parts: &[&Bytes]| {
        let log: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        down_convert(&log, OldFormat::Magic1, Offset(1), CAP).map(|out| Batches::new(&out).count())
    };
    assert_eq!(
        convert(&[&control, &plain, &control]),
        Ok(1),
        "the record below the offset is left out"
    );
    assert_eq!(convert(&[&control]), Ok(0));
    assert_eq!(convert(&[&plain, &zstd, &plain]), Ok(1), "zstd ends the answer");
    assert!(convert(&[&control, &zstd]).is_err());
}

#[test]
fn coordinators_write_markers_and_producers_do_not() {
    let marker = EndTransactionMarker { result: TransactionResult::Abort, coordinator_epoch: 4 };
    let control = marker_batch(ProducerId(1), ProducerEpoch(0), Timestamp(5), marker);
    let always = BrokerCompression::Always(Compression::Zstd(3));
    for compression in [BrokerCompression::Producer, always] {
        let rules = Rules { compression, origin: Origin::Coordinator, compacted: true, ..RULES };
        let checked = check(control.clone(), &rules).unwrap();
        assert_eq!(checked.slices().concat(), control, "markers stay plain");
        assert!(checked.is_control() && checked.is_transactional());
        let rules = Rules { origin: Origin::Client, ..rules };
        assert_eq!(
            check(control.clone(), &rules).unwrap_err(),
            ValidationError::Invalid(InvalidBatch::Control)
        );
    }
}

#[test]
fn builders_refuse_what_a_batch_cannot_hold() {
    let mut builder = BatchBuilder::new(Compression::None);
    let negative = builder.append(Timestamp(-2), None, None, &[]);
    assert_eq!(negative, Err(BuildError::NegativeTimestamp(Timestamp(-2))));
    builder.append_at(5, Timestamp(1), None, None, std::iter::empty()).unwrap();
    for delta in [5, 4, -1, 1 << 31] {
        let refused = builder.append_at(delta, Timestamp(1), None, None, std::iter::empty());
        assert_eq!(refused, Err(BuildError::OffsetDelta { delta, last: 5 }));
    }
    builder.append_at(i64::from(i32::MAX), Timestamp(1), None, None, std::iter::empty()).unwrap();
    let header = BatchHeader::parse(&builder.finish()).unwrap();
    assert_eq!((header.record_count, header.last_offset_delta), (2, i32::MAX));
}

#[test]
fn with_little_memory_a_check_says_so_and_nothing_else() {
    let value = vec![7; 1 << 20];
    let record = Record { timestamp: 1, key: None, value: Some(value), headers: vec![] };
    let to_zstd = BrokerCompression::Always(Compression::Zstd(3));
    let gzip = build(Codec::Gzip, std::slice::from_ref(&record));
    let old = down_convert(&gzip, OldFormat::Magic1, Offset(0), CAP).unwrap();
    for (batch, compression) in [
        (gzip.clone(), to_zstd),
        (old.clone().into(), BrokerCompression::Producer),
        (old.into(), to_zstd),
    ] {
        let rules = Rules { compression, ..RULES };
        let needed = check_within(batch.clone(), &rules, 1 << 20).unwrap_err();
        assert_eq!(needed, ValidationError::NeedsMemory(1 << 20));
        let little = check_within(batch.clone(), &rules, 2 << 20).unwrap();
        assert_eq!(little.slices(), check(batch, &rules).unwrap().slices());
    }
    // What is thrown away needs none, but for the window that zstd wants.
    assert!(check_within(gzip, &RULES, 0).is_ok());
    let mut ultra = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
    ultra.window_log(25).unwrap();
    let plain = build(Codec::None, &[record]);
    ultra.write_all(&plain[BATCH_HEADER_LENGTH..]).unwrap();
    let records = ultra.finish().unwrap();
    let mut header = BatchHeader::parse(&plain).unwrap();
    header.attributes = header.attributes.with_codec(Codec::Zstd);
    seal(&mut header, &records);
    let ultra = Bytes::from([&header.to_bytes()[..], &records].concat());
    let needed = check_within(ultra.clone(), &RULES, CHECK_BYTES_MIN).unwrap_err();
    assert_eq!(needed, ValidationError::NeedsMemory(CHECK_BYTES_MIN));
    assert!(check_within(ultra.clone(), &RULES, 4 * CHECK_BYTES_MIN).is_ok());
    assert!(check(ultra, &RULES).is_ok());
}

#[test]
fn old_clients_get_no_more_than_was_read_and_the_rest_of_a_batch() {
    let small = Record { timestamp: 1, key: None, value: None, headers: vec![] };
    let batch = build(Codec::None, &vec![small; 1000]);
    let log: Vec<u8> = std::iter::repeat_n(&batch[..], 10).flatten().copied().collect();
    let one = down_convert(&batch, OldFormat::Magic1, Offset(0), CAP).unwrap();
    assert!(one.len() > 2 * batch.len(), "a record without content is larger in the old format");
    let ten = down_convert(&log, OldFormat::Magic1, Offset(0), CAP).unwrap();
    assert!(ten.len() > log.len() && ten.len() <= log.len() + one.len());
    assert!(ten.len().is_multiple_of(one.len()), "whole batches");
    let refused = down_convert(&batch, OldFormat::Magic1, Offset(0), 2 * batch.len());
    assert!(matches!(refused, Err(ConvertError::Records(RecordsError::Decompress(_)))));
}

#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    let bomb = Record {
        timestamp: 1,
        key: None,
        value: Some(vec![0; 260 * 1024 * 1024]),
        headers: vec![],
    };
    let batch = build(Codec::Zstd, &[bomb]);
    assert!(batch.len() < 100_000, "{}", batch.len());
    for compression in [BrokerCompression::Producer, BrokerCompression::Always(Compression::None)] {
        let refused = check(batch.clone(), &Rules { compression, ..RULES });
        assert!(matches!(refused, Err(ValidationError::TooLarge { .. })));
    }
}
