//! Decompressed bytes that come in pieces: a buffer that moves along, and what a thread keeps of it for the next batch.

use std::cell::Cell;

use flate2::Decompress;
use zstd::zstd_safe::DCtx;

use crate::compression::{Codec, DecompressError};
use crate::growth;
use crate::gzip::GzipDecoder;
use crate::lz4::Lz4Decoder;
use crate::snappy::SnappyDecoder;
use crate::zstandard::ZstdDecoder;

/// What one read of a codec without blocks gives at most, in bytes.
pub(crate) const CHUNK_LENGTH: usize = 64 * 1024;
/// Buffers above this size are not kept for the next batch.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// What decompression needs and the next batch can use again.
#[derive(Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    pub(crate) inflate: Option<Decompress>,
    pub(crate) zstd: Option<DCtx<'static>>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = const { Cell::new(Scratch { bytes: Vec::new(), inflate: None, zstd: None }) };
}

/// Bytes between the ones that were read and the ones that are still to come.
///
/// Grows by what was really decompressed; claims in headers reserve nothing.
#[derive(Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Window {
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// At least `length` writable bytes behind the filled ones; say with `advance` how many were written.
    pub(crate) fn space(&mut self, length: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < length && self.begin > 0 {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.bytes.len() - self.end < length {
            growth::reserve(&mut self.bytes, self.end + length);
            self.bytes.resize(self.bytes.capacity(), 0);
        }
        &mut self.bytes[self.end..]
    }

    pub(crate) fn advance(&mut self, length: usize) {
        self.end += length;
        assert!(self.end <= self.bytes.len(), "a decoder wrote no more than it had space for");
    }

    fn consume(&mut self, length: usize) {
        self.begin += length;
        assert!(self.begin <= self.end, "no more is consumed than is there");
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
    }
}

enum Decoder<'a> {
    Gzip(GzipDecoder<'a>),
    Snappy(SnappyDecoder<'a>),
    Lz4(Lz4Decoder<'a>),
    Zstd(ZstdDecoder<'a>),
}

/// Decompresses into a window, as far as asked, up to a cap.
pub(crate) struct Stream<'a> {
    decoder: Decoder<'a>,
    window: Window,
    scratch: Scratch,
    cap: usize,
    produced: usize,
    ended: bool,
}

impl<'a> Stream<'a> {
    /// Begins to decompress. `Codec::None` is for the caller: those bytes need no window. `memory` is what a codec may
    /// take for itself; only zstd asks for much.
    pub(crate) fn new(
        codec: Codec,
        magic: i8,
        input: &'a [u8],
        cap: usize,
        memory: usize,
    ) -> Result<Stream<'a>, DecompressError> {
        let mut scratch = SCRATCH.take();
        let decoder = match codec {
            Codec::None => return Err(DecompressError::NotCompressed),
            Codec::Gzip => Decoder::Gzip(GzipDecoder::new(input, &mut scratch)),
            Codec::Snappy => Decoder::Snappy(SnappyDecoder::new(input)?),
            Codec::Lz4 => Decoder::Lz4(Lz4Decoder::new(input, magic)?),
            Codec::Zstd => Decoder::Zstd(ZstdDecoder::new(input, &mut scratch, memory)?),
        };
        let window = Window { bytes: std::mem::take(&mut scratch.bytes), begin: 0, end: 0 };
        Ok(Stream { decoder, window, scratch, cap, produced: 0, ended: false })
    }

    /// The bytes that are there and not consumed.
    pub(crate) fn filled(&self) -> &[u8] {
        self.window.filled()
    }

    /// Decompresses until `length` bytes are there, or all; says whether they are.
    pub(crate) fn ensure(&mut self, length: usize) -> Result<bool, DecompressError> {
        while self.window.filled().len() < length {
            if !self.read_more()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes over bytes that are there.
    pub(crate) fn consume(&mut self, length: usize) {
        self.window.consume(length);
    }

    /// Passes over bytes that may have to be decompressed first; says whether there were so many.
    pub(crate) fn skip(&mut self, mut length: usize) -> Result<bool, DecompressError> {
        loop {
            let here = self.window.filled().len().min(length);
            self.window.consume(here);
            length -= here;
            if length == 0 {
                return Ok(true);
            }
            if !self.read_more()? {
                return Ok(false);
            }
        }
    }

    /// Decompresses all that is left, and gives all that was not consumed.
    pub(crate) fn into_rest(mut self) -> Result<Vec<u8>, DecompressError> {
        while self.read_more()? {}
        let Window { mut bytes, begin, end } = std::mem::take(&mut self.window);
        bytes.truncate(end);
        bytes.drain(..begin);
        Ok(bytes)
    }

    /// Decompresses one more piece; says whether there was one.
    fn read_more(&mut self) -> Result<bool, DecompressError> {
        if self.ended {
            return Ok(false);
        }
        // One byte above the cap is enough to learn that it is exceeded.
        let room = (self.cap - self.produced).saturating_add(1);
        let produced = match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.read(&mut self.window, room)?,
            Decoder::Snappy(decoder) => decoder.read(&mut self.window, room)?,
            Decoder::Lz4(decoder) => decoder.read(&mut self.window)?,
            Decoder::Zstd(decoder) => decoder.read(&mut self.window, room)?,
        };
        if produced >= room {
            return Err(DecompressError::TooLarge { cap: self.cap });
        }
        self.produced += produced;
        self.ended = produced == 0;
        Ok(!self.ended)
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        match &mut self.decoder {
            Decoder::Gzip(decoder) => self.scratch.inflate = decoder.take_inflate(),
            Decoder::Zstd(decoder) => {
                let context = decoder.take_context();
                self.scratch.zstd = context.filter(|context| context.sizeof() <= KEPT_BYTES_MAX);
            }
            Decoder::Snappy(_) | Decoder::Lz4(_) => {}
        }
        let bytes = std::mem::take(&mut self.window.bytes);
        if bytes.len() <= KEPT_BYTES_MAX {
            self.scratch.bytes = bytes;
        }
        SCRATCH.set(std::mem::take(&mut self.scratch));
    }
}
