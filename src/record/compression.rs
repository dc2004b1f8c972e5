//! The codecs of record batches, and whole buffers through them.

use crate::window::Stream;
use crate::{gzip, lz4, snappy, zstandard};

/// What a batch may hold once decompressed, in bytes.
///
/// Kafka has no such bound. Without one, a request of a megabyte costs gigabytes of work or memory. It bounds what is
/// stored as well as what is read back, so that whatever a broker took in it can also convert and compact.
pub const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// Blocks of raw snappy in the framing of snappy-java ("xerial"), or one raw block.
    Snappy,
    /// The LZ4 frame format.
    Lz4,
    /// RFC 8878; magic 2 alone.
    Zstd,
}

impl Codec {
    /// The codec of an id in attributes; none where there is no such codec.
    pub fn from_id(id: u8) -> Option<Codec> {
        match id {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// The id in attributes.
    pub fn id(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// Kafka's name, such as `gzip`.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

/// A codec with its level, as topics and producers are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Records as they are.
    None,
    /// Levels 1 to 9, and -1 for zlib's default (6).
    Gzip(i32),
    /// Has no levels.
    Snappy,
    /// Levels 1 to 17, 9 by default. Read from configs but without effect: the codec has one way to compress, which
    /// is what Kafka does at level 9.
    Lz4(i32),
    /// Levels -131072 to 22, 3 by default.
    Zstd(i32),
}

impl Compression {
    /// Kafka's default of `compression.gzip.level`.
    pub const GZIP_LEVEL_DEFAULT: i32 = -1;
    /// Kafka's default of `compression.lz4.level`.
    pub const LZ4_LEVEL_DEFAULT: i32 = 9;
    /// Kafka's default of `compression.zstd.level`.
    pub const ZSTD_LEVEL_DEFAULT: i32 = 3;

    /// The codec at its default level.
    pub fn of(codec: Codec) -> Compression {
        match codec {
            Codec::None => Compression::None,
            Codec::Gzip => Compression::Gzip(Compression::GZIP_LEVEL_DEFAULT),
            Codec::Snappy => Compression::Snappy,
            Codec::Lz4 => Compression::Lz4(Compression::LZ4_LEVEL_DEFAULT),
            Codec::Zstd => Compression::Zstd(Compression::ZSTD_LEVEL_DEFAULT),
        }
    }

    /// The codec, without its level.
    pub fn codec(self) -> Codec {
        match self {
            Compression::None => Codec::None,
            Compression::Gzip(_) => Codec::Gzip,
            Compression::Snappy => Codec::Snappy,
            Compression::Lz4(_) => Codec::Lz4,
            Compression::Zstd(_) => Codec::Zstd,
        }
    }
}

/// What `compression.type` of a topic asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerCompression {
    /// Whatever the producer used (`producer`).
    Producer,
    /// Always this; `Compression::None` is `uncompressed`.
    Always(Compression),
}

impl BrokerCompression {
    /// What a batch of the given codec is stored with.
    pub fn target(self, source: Codec) -> Compression {
        match self {
            BrokerCompression::Producer => Compression::of(source),
            BrokerCompression::Always(compression) => compression,
        }
    }
}

/// Why bytes could not be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The bytes are not of the codec, or end too early.
    #[error("the {} data is damaged", .0.name())]
    Damaged(Codec),
    /// More would come out than is allowed.
    #[error("more than {cap} bytes when decompressed")]
    TooLarge {
        /// The bound, in bytes.
        cap: usize,
    },
    /// Asked to decompress with `Codec::None`.
    #[error("the data is not compressed")]
    NotCompressed,
    /// The codec's context could not be made.
    #[error("no memory for a decompression context")]
    NoMemory,
}

/// Compresses, and appends to `out`. `magic` matters to lz4: magic 0 has a checksum of its own.
pub fn compress(compression: Compression, magic: i8, bytes: &[u8], out: &mut Vec<u8>) {
    match compression {
        Compression::None => out.extend_from_slice(bytes),
        Compression::Gzip(level) => gzip::compress(bytes, level, out),
        Compression::Snappy => snappy::compress(bytes, out),
        Compression::Lz4(_) => lz4::compress(bytes, magic, out),
        Compression::Zstd(level) => zstandard::compress(bytes, level, out),
    }
}

/// Decompresses all of it, up to `cap` bytes. Memory follows what comes out, not what headers claim.
pub fn decompress(
    codec: Codec,
    magic: i8,
    bytes: &[u8],
    cap: usize,
) -> Result<Vec<u8>, DecompressError> {
    match codec {
        Codec::None if bytes.len() <= cap => Ok(bytes.to_vec()),
        Codec::None => Err(DecompressError::TooLarge { cap }),
        _ => Stream::new(codec, magic, bytes, cap, DECOMPRESSED_BYTES_MAX)?.into_rest(),
    }
}

#[cfg(test)]
#[path = "compression_tests.rs"]
mod tests;
