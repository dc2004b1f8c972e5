//! Codecs: what one writes the other reads, within bounds.

use std::io::Write;

use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};
use proptest::prelude::*;

use super::*;
use crate::property_tests::seeded;

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const CAP: usize = 16 * 1024 * 1024;

fn compressed(compression: Compression, magic: i8, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(compression, magic, bytes, &mut out);
    out
}

/// Text that compresses, some noise that does not, and zeros.
fn sample(length: usize) -> Vec<u8> {
    let mut state = 7_u32;
    (0..length)
        .map(|index| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match index / 700 % 3 {
                0 => b"the quick brown fox "[index % 20],
                1 => (state >> 24) as u8,
                _ => 0,
            }
        })
        .collect()
}

fn any_compression() -> impl Strategy<Value = Compression> {
    prop_oneof![
        (-1..=9).prop_map(Compression::Gzip),
        Just(Compression::Snappy),
        (1..=17).prop_map(Compression::Lz4),
        (-5..=12).prop_map(Compression::Zstd),
    ]
}

proptest! {
    #![proptest_config(seeded(60))]

    #[test]
    fn what_is_compressed_comes_back(
        compression in any_compression(),
        magic in 0..=2_i8,
        repeats in 1..400_usize,
        mut bytes in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        bytes = bytes.repeat(repeats);
        let out = compressed(compression, magic, &bytes);
        prop_assert_eq!(decompress(compression.codec(), magic, &out, bytes.len()), Ok(bytes));
    }

    #[test]
    fn noise_is_no_codec_and_no_panic(
        codec in prop::sample::select(CODECS.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        if let Ok(out) = decompress(codec, 2, &bytes, 1000) {
            prop_assert!(out.len() <= 1000);
        }
    }
}

#[test]
fn every_level_kafka_admits_compresses() {
    let bytes = sample(5000);
    let levels =
        (-1..=9).map(Compression::Gzip).chain([-131_072, -1, 1, 19, 22].map(Compression::Zstd));
    for compression in levels {
        let out = compressed(compression, 2, &bytes);
        assert_eq!(
            decompress(compression.codec(), 2, &out, CAP).as_ref(),
            Ok(&bytes),
            "{compression:?}"
        );
    }
}

#[test]
fn damaged_and_cut_off_data_is_no_panic_and_nothing_large() {
    let bytes = sample(3000);
    for codec in CODECS {
        let out = compressed(Compression::of(codec), 1, &bytes);
        for length in 0..out.len() {
            let cut = decompress(codec, 1, &out[..length], CAP);
            // Snappy's blocks may end anywhere: nothing says how many there are.
            let whole_blocks =
                codec == Codec::Snappy && cut.as_ref().is_ok_and(|cut| bytes.starts_with(cut));
            assert!(
                cut.is_err() || whole_blocks || (codec == Codec::Zstd && length == 0),
                "{codec:?} cut at {length}"
            );
        }
        for index in 0..out.len() {
            for flip in [1, 0x80, 0xff] {
                let mut flipped = out.clone();
                flipped[index] ^= flip;
                if let Ok(other) = decompress(codec, 1, &flipped, CAP) {
                    assert!(other.len() <= CAP);
                }
            }
        }
    }
}

#[test]
fn a_bomb_stops_at_the_cap() {
    let zeros = vec![0; 4 * 1024 * 1024];
    for codec in CODECS {
        let out = compressed(Compression::of(codec), 2, &zeros);
        assert_eq!(decompress(codec, 2, &out, zeros.len()).map(|all| all.len()), Ok(zeros.len()));
        for cap in [0, 1, 1000, 100_000, zeros.len() - 1] {
            let error = DecompressError::TooLarge { cap };
            assert_eq!(decompress(codec, 2, &out, cap), Err(error), "{codec:?}");
        }
    }
}

#[test]
fn claims_reserve_nothing() {
    // A raw snappy block that claims 4 GiB - 1, and a framed one that claims 2 GiB.
    let raw = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
    assert!(decompress(Codec::Snappy, 2, &raw, CAP).is_err());
    let mut framed = compressed(Compression::Snappy, 2, b"");
    framed.extend([0x7f, 0xff, 0xff, 0xff, 1, 2, 3]);
    assert!(decompress(Codec::Snappy, 2, &framed, CAP).is_err());
    // An LZ4 frame with blocks of up to 4 MiB, and a block of one byte.
    let mut lz4 = compressed(Compression::Lz4(9), 0, b"");
    lz4.truncate(7);
    lz4[5] = 0x70;
    lz4.extend([1, 0, 0, 0, 0]);
    let mut stream = Stream::new(Codec::Lz4, 0, &lz4, CAP, CAP).unwrap();
    assert!(stream.ensure(1).is_err());
}

#[test]
fn raw_snappy_is_read() {
    let bytes = sample(100_000);
    let raw = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
    assert_eq!(decompress(Codec::Snappy, 2, &raw, CAP), Ok(bytes));
}

#[test]
fn snappy_streams_may_follow_each_other() {
    let mut out = compressed(Compression::Snappy, 2, b"one ");
    out.extend(compressed(Compression::Snappy, 2, b"two"));
    out.extend([0, 0, 0]); // Fewer bytes than a block's length: ignored.
    assert_eq!(decompress(Codec::Snappy, 2, &out, CAP).unwrap(), b"one two");
    assert_eq!(&out[..20], b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x06");
}

#[test]
fn gzip_members_may_follow_each_other_and_the_rest_is_ignored() {
    let mut out = compressed(Compression::Gzip(9), 2, b"one ");
    out.extend(compressed(Compression::Gzip(1), 2, b"two"));
    out.extend(b"not gzip");
    assert_eq!(decompress(Codec::Gzip, 2, &out, CAP).unwrap(), b"one two");
}

#[test]
fn gzip_headers_with_all_fields_are_read() {
    let mut encoder = flate2::GzBuilder::new()
        .filename("name")
        .comment("comment")
        .extra(vec![1, 2, 3])
        .write(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"content").unwrap();
    let out = encoder.finish().unwrap();
    assert_eq!(decompress(Codec::Gzip, 2, &out, CAP).unwrap(), b"content");
}

#[test]
fn lz4_frames_of_others_are_read() {
    let bytes = sample(300_000);
    for block_size in
        [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB]
    {
        let info = FrameInfo::new()
            .block_size(block_size)
            .block_checksums(true)
            .content_checksum(true)
            .content_size(Some(bytes.len() as u64));
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&bytes).unwrap();
        let out = encoder.finish().unwrap();
        assert_eq!(decompress(Codec::Lz4, 2, &out, CAP).as_ref(), Ok(&bytes));
    }
}

#[test]
fn lz4_frames_are_read_by_others_and_magic_0_has_its_own_checksum() {
    let bytes = sample(200_000);
    let out = compressed(Compression::Lz4(9), 1, &bytes);
    let mut decoder = lz4_flex::frame::FrameDecoder::new(out.as_slice());
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut decoder, &mut read).unwrap();
    assert_eq!(read, bytes);
    // The bytes that Kafka writes: 04 22 4D 18, flags, block size, checksum.
    assert_eq!(out[..7], [4, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
    let old = compressed(Compression::Lz4(9), 0, &bytes);
    assert_eq!((&old[..6], &old[7..]), (&out[..6], &out[7..]));
    assert_ne!(old[6], out[6]);
    assert_eq!(decompress(Codec::Lz4, 0, &old, CAP).as_ref(), Ok(&bytes));
    assert_eq!(decompress(Codec::Lz4, 0, &out, CAP).as_ref(), Ok(&bytes));
    assert!(decompress(Codec::Lz4, 1, &old, CAP).is_err());
}

#[test]
fn zstd_frames_may_follow_each_other_and_claim_large_windows() {
    let mut out = compressed(Compression::Zstd(3), 2, b"one ");
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 22).unwrap();
    encoder.write_all(b"two").unwrap();
    out.extend(encoder.finish().unwrap());
    assert_eq!(decompress(Codec::Zstd, 2, &out, CAP).unwrap(), b"one two");
    out.push(0);
    assert!(decompress(Codec::Zstd, 2, &out, CAP).is_err(), "what follows must be a frame");
    assert_eq!(decompress(Codec::Zstd, 2, &[], CAP), Ok(vec![]));
}
