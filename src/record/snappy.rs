//! Snappy as Kafka has it: blocks in the framing of snappy-java ("xerial"); some clients send one raw block.

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use crate::compression::{Codec, DecompressError};
use crate::window::Window;

const DAMAGED: DecompressError = DecompressError::Damaged(Codec::Snappy);
const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// The magic, the version, and the oldest version that can read it.
const HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
/// Block size of snappy-java's output stream.
const BLOCK_LENGTH: usize = 32 * 1024;
/// A block grows at most by 64 bytes for 3 (a copy with a two-byte offset). A block that claims more is damaged, so
/// that nothing is reserved for it.
const GROWTH: (usize, usize) = (64, 3);

/// Reads block by block.
pub(crate) struct SnappyDecoder<'a> {
    rest: &'a [u8],
    framed: bool,
}

impl<'a> SnappyDecoder<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Result<SnappyDecoder<'a>, DecompressError> {
        if input.is_empty() {
            return Err(DAMAGED);
        }
        match input.split_at_checked(HEADER.len()) {
            Some((header, rest)) if header.starts_with(&MAGIC) => {
                check_version(header)?;
                Ok(SnappyDecoder { rest, framed: true })
            }
            _ => Ok(SnappyDecoder { rest: input, framed: false }),
        }
    }

    /// Writes the next block that is not empty; its length, 0 at the end. Refuses one of `room` bytes or more.
    pub(crate) fn read(
        &mut self,
        window: &mut Window,
        room: usize,
    ) -> Result<usize, DecompressError> {
        while let Some(block) = self.next_block()? {
            let length = decompress_len(block).map_err(|_| DAMAGED)?;
            if length > block.len().saturating_mul(GROWTH.0) / GROWTH.1 {
                return Err(DAMAGED);
            }
            if length >= room {
                // Tells the caller that the cap is exceeded, without decompressing.
                return Ok(room);
            }
            let out = &mut window.space(length)[..length];
            let written = Decoder::new().decompress(block, out).map_err(|_| DAMAGED)?;
            window.advance(written);
            if written > 0 {
                return Ok(written);
            }
        }
        Ok(0)
    }

    /// The next block's compressed bytes. Fewer than four bytes at the end are ignored, as in snappy-java.
    fn next_block(&mut self) -> Result<Option<&'a [u8]>, DecompressError> {
        if !self.framed {
            let block = std::mem::take(&mut self.rest);
            return Ok((!block.is_empty()).then_some(block));
        }
        while let Some((header, rest)) = self.rest.split_at_checked(HEADER.len())
            && header.starts_with(&MAGIC)
        {
            // Streams may follow each other.
            check_version(header)?;
            self.rest = rest;
        }
        let Some((length, rest)) = self.rest.split_first_chunk() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| DAMAGED)?;
        let (block, rest) = rest.split_at_checked(length).ok_or(DAMAGED)?;
        self.rest = rest;
        Ok(Some(block))
    }
}

fn check_version(header: &[u8]) -> Result<(), DecompressError> {
    let version = header[8..].first_chunk().map(|version| i32::from_be_bytes(*version));
    if version.is_some_and(|version| version >= 1) { Ok(()) } else { Err(DAMAGED) }
}

/// Appends the framing's header and the blocks.
pub(crate) fn compress(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(HEADER);
    let mut encoder = Encoder::new();
    for block in bytes.chunks(BLOCK_LENGTH) {
        let at = out.len();
        out.resize(at + 4 + max_compress_len(block.len()), 0);
        let length = encoder
            .compress(block, &mut out[at + 4..])
            .expect("the output has the length that was asked");
        let written = u32::try_from(length).expect("a block of 32 KiB stays below 4 GiB");
        out[at..at + 4].copy_from_slice(&written.to_be_bytes());
        out.truncate(at + 4 + length);
    }
}
