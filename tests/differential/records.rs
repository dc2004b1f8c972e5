//! Records of produce requests, good and bad, and what a fetch brought back as a tree.

use common::ids::{Offset, ProducerEpoch, ProducerId, Timestamp};
use record::{
    batch::{self, Batches},
    build::BatchBuilder,
    compression::{Codec, Compression, compress},
    convert::{OldFormat, down_convert},
    records::records,
    view::Header,
};

use crate::tree::Tree;

/// The time of the first record, years ago.
pub(crate) const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;
const DECOMPRESSED_MAX: usize = 1 << 20;

/// The format that a version of Produce writes.
pub(crate) fn magic_of(produce_version: i16) -> i8 {
    match produce_version {
        0 | 1 => 0,
        2 => 1,
        _ => 2,
    }
}

/// Records with keys, headers and timestamps apart; the second has neither key nor value.
fn builder(builder: BatchBuilder, count: i64) -> Vec<u8> {
    let mut builder = builder;
    for index in 0..count {
        let (key, value) = (format!("key-{index}"), format!("value-{index}"));
        let is_null = index == 1;
        let headers = [
            Header { name: b"first", value: Some(b"1") },
            Header { name: b"first", value: None },
            Header { name: b"", value: Some(b"") },
        ];
        let timestamp = Timestamp(FIRST_TIMESTAMP + index * 10);
        let appended = builder.append(
            timestamp,
            (!is_null).then_some(key.as_bytes()),
            (!is_null).then_some(value.as_bytes()),
            &headers[..usize::try_from(index % 4).unwrap_or(0)],
        );
        appended.expect("small records");
    }
    builder.finish().to_vec()
}

/// A batch of magic 2.
pub(crate) fn plain(count: i64) -> Vec<u8> {
    compressed(Codec::None, count)
}

/// A compressed batch of magic 2.
pub(crate) fn compressed(codec: Codec, count: i64) -> Vec<u8> {
    builder(BatchBuilder::new(Compression::of(codec)), count)
}

/// A batch of an idempotent producer.
pub(crate) fn idempotent(producer_id: i64, epoch: i16, sequence: i32, count: i64) -> Vec<u8> {
    let empty = BatchBuilder::new(Compression::of(Codec::None));
    builder(empty.producer(ProducerId(producer_id), ProducerEpoch(epoch), sequence), count)
}

/// A batch of a transaction.
pub(crate) fn transactional(count: i64) -> Vec<u8> {
    transactional_of(7, 0, 0, count)
}

/// A batch of a producer's transaction.
pub(crate) fn transactional_of(producer_id: i64, epoch: i16, sequence: i32, count: i64) -> Vec<u8> {
    let empty = BatchBuilder::new(Compression::of(Codec::None));
    let producer = (ProducerId(producer_id), ProducerEpoch(epoch));
    builder(empty.producer(producer.0, producer.1, sequence).transactional(), count)
}

/// A batch as another producer would have written it.
pub(crate) fn of_producer(batch: &[u8], producer_id: i64) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[43..51].copy_from_slice(&producer_id.to_be_bytes());
    with_crc(batch)
}

/// Records in the format of a version of Produce.
pub(crate) fn of_magic(magic: i8, codec: Codec, count: i64) -> Vec<u8> {
    let batch = compressed(codec, count);
    let format = match magic {
        0 => OldFormat::Magic0,
        1 => OldFormat::Magic1,
        _ => return batch,
    };
    down_convert(&batch, format, Offset(0), DECOMPRESSED_MAX).expect("a whole batch").to_vec()
}

/// A batch with the checksum set right again after a change.
fn with_crc(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = batch::compute_crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// A batch with bytes replaced, and a right checksum.
fn patched(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = plain(2);
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    with_crc(batch)
}

/// A batch compressed with gzip whose first record says another length than it has.
fn compressed_with_length(length: u8) -> Vec<u8> {
    let plain = plain(2);
    let (header, records) = plain.split_at(batch::BATCH_HEADER_LENGTH);
    let mut records = records.to_vec();
    records[0] = length;
    let mut changed = header.to_vec();
    changed[22] = Codec::Gzip.id();
    compress(Compression::of(Codec::Gzip), 2, &records, &mut changed);
    let size = (changed.len() - batch::LOG_OVERHEAD) as u32;
    changed[8..12].copy_from_slice(&size.to_be_bytes());
    with_crc(changed)
}

/// Records that a produce request may carry, good and bad, by name.
pub(crate) fn samples(magic: i8) -> Vec<(&'static str, Vec<u8>)> {
    let mut samples = vec![
        ("one", of_magic(magic, Codec::None, 1)),
        ("gzip", of_magic(magic, Codec::Gzip, 3)),
        ("snappy", of_magic(magic, Codec::Snappy, 3)),
        ("lz4", of_magic(magic, Codec::Lz4, 3)),
        ("zstd", compressed(Codec::Zstd, 3)),
        ("magic 0", of_magic(0, Codec::None, 2)),
        ("magic 1", of_magic(1, Codec::None, 2)),
        ("magic 2", plain(2)),
        ("two batches", [plain(1), plain(1)].concat()),
        ("magic 1 then 2", [of_magic(1, Codec::None, 1), plain(1)].concat()),
        ("cut in the header", plain(1)[..40].to_vec()),
        ("cut in the records", plain(1)[..70].to_vec()),
        ("a batch and a cut one", [plain(1), plain(1)[..70].to_vec()].concat()),
        ("wrong crc", {
            let mut batch = of_magic(magic, Codec::None, 1);
            let crc = if magic == 2 { 17 } else { 12 };
            batch[crc] ^= 0x55;
            batch
        }),
    ];
    let changed: [(&str, usize, &[u8]); 29] = [
        ("base offset 5", 0, &[0, 0, 0, 0, 0, 0, 0, 5]),
        ("base offset -1", 0, &[0xff; 8]),
        ("length 0", 8, &[0; 4]),
        ("length -1", 8, &[0xff; 4]),
        ("length 49", 8, &[0, 0, 0, 49]),
        ("length huge", 8, &[0x7f, 0xff, 0xff, 0xff]),
        ("leader epoch 9", 12, &[0, 0, 0, 9]),
        ("magic 3", 16, &[3]),
        ("magic -1", 16, &[0xff]),
        ("codec 5", 21, &[0, 5]),
        ("codec 7", 21, &[0, 7]),
        ("gzip without gzip", 21, &[0, 1]),
        ("log append time", 21, &[0, 8]),
        ("control", 21, &[0, 0x20]),
        ("delete horizon", 21, &[0, 0x40]),
        ("unknown attributes", 21, &[0x7f, 0]),
        ("last offset delta 5", 23, &[0, 0, 0, 5]),
        ("base timestamp -1", 27, &[0xff; 8]),
        ("max timestamp 0", 35, &[0; 8]),
        ("producer without epoch", 43, &[0, 0, 0, 0, 0, 0, 0, 3]),
        ("no records", 57, &[0; 4]),
        ("three records", 57, &[0, 0, 0, 3]),
        // The first record begins at 61, the second at 80: length, attributes, deltas of time and offset, key, value.
        ("record too long", 61, &[0x7e]),
        ("record too short", 61, &[0x02]),
        ("varint without an end", 61, &[0xff; 12]),
        ("record's attributes", 62, &[0x7f]),
        ("offset deltas 0 and 0", 83, &[0]),
        ("offset deltas 0 and 2", 83, &[4]),
        ("timestamps before the base", 82, &[0x13]),
    ];
    samples.extend(changed.iter().map(|(name, at, bytes)| (*name, patched(*at, bytes))));
    samples.push(("compressed record too long", compressed_with_length(0x7e)));
    samples.push(("compressed record too short", compressed_with_length(0x02)));
    samples.push(("transactional", transactional(1)));
    samples.push(("idempotent", idempotent(99, 0, 0, 2)));
    samples.push(("sequence 5", idempotent(98, 0, 5, 2)));
    samples.push(("epoch -2", idempotent(97, -2, 0, 2)));
    samples.push(("negative sequence", idempotent(96, 0, -2, 2)));
    samples
        .push(("empty", with_crc(BatchBuilder::new(Compression::of(Codec::None)).finish().into())));
    samples
}

/// What a field of records holds: batches as they lie there, and their records.
pub(crate) fn describe(bytes: &[u8], keeps_cut_off: bool) -> Tree {
    let mut all = Vec::new();
    let mut batches = Batches::new(bytes);
    for batch in batches.by_ref() {
        let Ok(batch) = batch else {
            all.push(Tree::Text("a batch that cannot be read".to_owned()));
            break;
        };
        let header = &batch.header;
        let field = |name: &str, value: &dyn std::fmt::Debug| {
            (name.to_owned(), Tree::Word(format!("{value:?}")))
        };
        let mut fields = vec![
            field("magic", &header.magic),
            field("base_offset", &header.base_offset),
            field("last_offset", &header.last_offset),
            field("max_timestamp", &header.max_timestamp.0),
            field("timestamp_type", &header.timestamp_type),
            field("codec", &header.codec),
            field("partition_leader_epoch", &header.leader_epoch.0),
            field("producer_id", &header.producer_id.0),
            field("producer_epoch", &header.producer_epoch.0),
            field("base_sequence", &header.base_sequence),
            field("record_count", &header.record_count),
            field("is_transactional", &header.is_transactional),
            field("is_control", &header.is_control),
            field("crc_is_right", &header.crc_matches(batch.bytes)),
        ];
        fields.push(("records".to_owned(), describe_records(batch.bytes)));
        all.push(Tree::Fields(fields));
    }
    let rest = bytes.len() - batches.position();
    if rest > 0 && keeps_cut_off {
        all.push(Tree::Text(format!("{rest} bytes of a batch that is cut off")));
    }
    Tree::List(all)
}

fn describe_records(batch: &[u8]) -> Tree {
    let opened = match records(batch, DECOMPRESSED_MAX) {
        Ok(opened) => opened,
        Err(error) => return Tree::Text(error.to_string()),
    };
    let mut all = Vec::new();
    for record in &opened {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                all.push(Tree::Text(error.to_string()));
                break;
            }
        };
        let bytes = |value: Option<&[u8]>| value.map_or(Tree::Null, |v| Tree::Bytes(v.to_vec()));
        let headers = record
            .headers
            .iter()
            .map(|header| Tree::List(vec![Tree::Bytes(header.name.to_vec()), bytes(header.value)]));
        all.push(Tree::Fields(vec![
            ("offset".to_owned(), Tree::word(record.offset)),
            ("record_timestamp".to_owned(), Tree::word(record.timestamp)),
            ("key".to_owned(), bytes(record.key)),
            ("value".to_owned(), bytes(record.value)),
            ("headers".to_owned(), Tree::List(headers.collect())),
        ]));
    }
    Tree::List(all)
}
