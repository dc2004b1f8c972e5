//! The LZ4 frame format as Kafka reads and writes it. Source: `Lz4BlockInputStream`, `Lz4BlockOutputStream`.
//!
//! One frame of independent blocks; the content's size and checksum are not looked at. In magic 0 the header's
//! checksum is computed over the frame's magic as well, by an old mistake that is now the format; it is not checked.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use twox_hash::XxHash32;

use crate::compression::{Codec, DecompressError};
use crate::window::Window;

const DAMAGED: DecompressError = DecompressError::Damaged(Codec::Lz4);
const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
const VERSION: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 0b0010_0000;
const HAS_BLOCK_CHECKSUM: u8 = 0b0001_0000;
const HAS_CONTENT_SIZE: u8 = 0b0000_1000;
const HAS_CONTENT_CHECKSUM: u8 = 0b0000_0100;
const RESERVED: u8 = 0b0000_0011;
const BLOCK_64_KIB: u8 = 0b0100_0000;
const BLOCK_LENGTH: usize = 64 * 1024;
const UNCOMPRESSED: u32 = 1 << 31;
/// A block grows at most by 255 bytes for each of its own, so no more is reserved than that.
const GROWTH_MAX: usize = 255;

/// Reads block by block.
pub(crate) struct Lz4Decoder<'a> {
    rest: &'a [u8],
    block_length_max: usize,
    flags: u8,
    ended: bool,
}

impl<'a> Lz4Decoder<'a> {
    pub(crate) fn new(input: &'a [u8], magic: i8) -> Result<Lz4Decoder<'a>, DecompressError> {
        let [m0, m1, m2, m3, flags, block, ..] = *input else { return Err(DAMAGED) };
        if [m0, m1, m2, m3] != MAGIC
            || flags & (0b1100_0000 | INDEPENDENT | RESERVED) != VERSION | INDEPENDENT
            || block & 0b1000_1111 != 0
            || block >> 4 < 4
        {
            return Err(DAMAGED);
        }
        let length = if flags & HAS_CONTENT_SIZE == 0 { 6 } else { 14 };
        let (header, rest) = input.split_at_checked(length).ok_or(DAMAGED)?;
        let (&checksum, rest) = rest.split_first().ok_or(DAMAGED)?;
        if magic > 0 && checksum != header_checksum(&header[4..]) {
            return Err(DAMAGED);
        }
        Ok(Lz4Decoder { rest, block_length_max: 1 << (2 * (block >> 4) + 8), flags, ended: false })
    }

    /// Writes the next block that is not empty; its length, 0 at the end.
    pub(crate) fn read(&mut self, window: &mut Window) -> Result<usize, DecompressError> {
        while !self.ended {
            let head = u32::from_le_bytes(*self.take()?);
            let length = (head & !UNCOMPRESSED) as usize;
            if length == 0 {
                self.ended = true;
                if self.flags & HAS_CONTENT_CHECKSUM != 0 {
                    self.take::<4>()?;
                }
                break;
            }
            if length > self.block_length_max {
                return Err(DAMAGED);
            }
            let (block, rest) = self.rest.split_at_checked(length).ok_or(DAMAGED)?;
            self.rest = rest;
            if self.flags & HAS_BLOCK_CHECKSUM != 0 {
                let stored = u32::from_le_bytes(*self.take()?);
                if stored != XxHash32::oneshot(0, block) {
                    return Err(DAMAGED);
                }
            }
            let written = self.write_block(block, head & UNCOMPRESSED == 0, window)?;
            if written > 0 {
                return Ok(written);
            }
        }
        Ok(0)
    }

    fn write_block(
        &self,
        block: &[u8],
        compressed: bool,
        window: &mut Window,
    ) -> Result<usize, DecompressError> {
        let written = if compressed {
            let length = self.block_length_max.min(block.len() * GROWTH_MAX);
            let out = &mut window.space(length)[..length];
            decompress_into(block, out).map_err(|_| DAMAGED)?
        } else {
            window.space(block.len())[..block.len()].copy_from_slice(block);
            block.len()
        };
        window.advance(written);
        Ok(written)
    }

    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], DecompressError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DAMAGED)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn header_checksum(bytes: &[u8]) -> u8 {
    (XxHash32::oneshot(0, bytes) >> 8) as u8
}

/// Appends one frame with blocks of 64 KiB.
pub(crate) fn compress(bytes: &[u8], magic: i8, out: &mut Vec<u8>) {
    let mut header = [0; 6];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = VERSION | INDEPENDENT;
    header[5] = BLOCK_64_KIB;
    out.extend(header);
    out.push(header_checksum(if magic == 0 { &header } else { &header[4..] }));
    for block in bytes.chunks(BLOCK_LENGTH) {
        let at = out.len();
        out.resize(at + 4 + get_maximum_output_size(block.len()), 0);
        let mut length = compress_into(block, &mut out[at + 4..])
            .expect("the output has the length that was asked");
        let mut head = length as u32;
        if length >= block.len() {
            length = block.len();
            head = length as u32 | UNCOMPRESSED;
            out[at + 4..at + 4 + length].copy_from_slice(block);
        }
        out[at..at + 4].copy_from_slice(&head.to_le_bytes());
        out.truncate(at + 4 + length);
    }
    out.extend([0; 4]);
}
