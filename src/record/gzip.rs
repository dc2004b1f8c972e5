//! Gzip (RFC 1952), read as Java's `GZIPInputStream` does: members one after the other, and what follows them ignored.

use std::io::Write;

use flate2::write::GzEncoder;
use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::compression::{Codec, DecompressError};
use crate::window::{CHUNK_LENGTH, Scratch, Window};

const DAMAGED: DecompressError = DecompressError::Damaged(Codec::Gzip);
const HEADER_LENGTH: usize = 10;
const HAS_HEADER_CRC: u8 = 0x02;
const HAS_EXTRA: u8 = 0x04;
const HAS_NAME: u8 = 0x08;
const HAS_COMMENT: u8 = 0x10;

enum Part {
    FirstHeader,
    NextHeader,
    Body,
    End,
}

/// Reads members piece by piece.
pub(crate) struct GzipDecoder<'a> {
    rest: &'a [u8],
    part: Part,
    inflate: Option<Decompress>,
    crc: Crc,
}

impl<'a> GzipDecoder<'a> {
    pub(crate) fn new(input: &'a [u8], scratch: &mut Scratch) -> GzipDecoder<'a> {
        let inflate = scratch.inflate.take().or_else(|| Some(Decompress::new(false)));
        GzipDecoder { rest: input, part: Part::FirstHeader, inflate, crc: Crc::new() }
    }

    pub(crate) fn take_inflate(&mut self) -> Option<Decompress> {
        self.inflate.take()
    }

    /// Writes the next bytes, at most `room`; their count, 0 at the end.
    pub(crate) fn read(
        &mut self,
        window: &mut Window,
        room: usize,
    ) -> Result<usize, DecompressError> {
        loop {
            match self.part {
                Part::FirstHeader => self.begin_member(header_length(self.rest).ok_or(DAMAGED)?),
                Part::NextHeader => match header_length(self.rest) {
                    Some(length) => self.begin_member(length),
                    None => self.part = Part::End,
                },
                Part::Body => match self.inflate(window, room)? {
                    0 => {}
                    length => return Ok(length),
                },
                Part::End => return Ok(0),
            }
        }
    }

    fn begin_member(&mut self, header_length: usize) {
        self.rest = &self.rest[header_length..];
        self.crc.reset();
        if let Some(inflate) = &mut self.inflate {
            inflate.reset(false);
        }
        self.part = Part::Body;
    }

    /// Inflates one piece; 0 when the member has ended.
    fn inflate(&mut self, window: &mut Window, room: usize) -> Result<usize, DecompressError> {
        let inflate = self.inflate.as_mut().ok_or(DAMAGED)?;
        loop {
            let out = window.space(CHUNK_LENGTH);
            let out_length = out.len().min(room);
            let (read, written) = (inflate.total_in(), inflate.total_out());
            let status = inflate
                .decompress(self.rest, &mut out[..out_length], FlushDecompress::None)
                .map_err(|_| DAMAGED)?;
            let read = usize::try_from(inflate.total_in() - read).map_err(|_| DAMAGED)?;
            let written = usize::try_from(inflate.total_out() - written).map_err(|_| DAMAGED)?;
            self.crc.update(&out[..written]);
            window.advance(written);
            self.rest = self.rest.get(read..).ok_or(DAMAGED)?;
            match status {
                Status::StreamEnd => self.end_member()?,
                // Neither read nor written: the input ends before the member does.
                _ if read == 0 && written == 0 => return Err(DAMAGED),
                _ if written == 0 => continue,
                _ => {}
            }
            return Ok(written);
        }
    }

    fn end_member(&mut self) -> Result<(), DecompressError> {
        let (trailer, rest) = self.rest.split_first_chunk::<8>().ok_or(DAMAGED)?;
        let (crc, length) = trailer.split_at(4);
        if crc != self.crc.sum().to_le_bytes() || length != self.crc.amount().to_le_bytes() {
            return Err(DAMAGED);
        }
        self.rest = rest;
        self.part = if rest.is_empty() { Part::End } else { Part::NextHeader };
        Ok(())
    }
}

/// Length of a member's header; none where there is no whole one.
fn header_length(bytes: &[u8]) -> Option<usize> {
    let header: &[u8; HEADER_LENGTH] = bytes.first_chunk()?;
    if header[..3] != [0x1f, 0x8b, 8] {
        return None;
    }
    let flags = header[3];
    let mut length = HEADER_LENGTH;
    if flags & HAS_EXTRA != 0 {
        let extra = bytes.get(length..)?.first_chunk()?;
        length += 2 + usize::from(u16::from_le_bytes(*extra));
    }
    for text in [HAS_NAME, HAS_COMMENT] {
        if flags & text != 0 {
            length += bytes.get(length..)?.iter().position(|&byte| byte == 0)? + 1;
        }
    }
    if flags & HAS_HEADER_CRC != 0 {
        let mut crc = Crc::new();
        crc.update(bytes.get(..length)?);
        let stored: &[u8; 2] = bytes.get(length..)?.first_chunk()?;
        if crc.sum().to_le_bytes()[..2] != stored[..] {
            return None;
        }
        length += 2;
    }
    (length <= bytes.len()).then_some(length)
}

/// Appends one member. Levels are zlib's, -1 its default.
pub(crate) fn compress(bytes: &[u8], level: i32, out: &mut Vec<u8>) {
    let level = u32::try_from(level)
        .map_or(flate2::Compression::default(), |level| flate2::Compression::new(level.min(9)));
    let mut encoder = GzEncoder::new(out, level);
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.try_finish())
        .expect("writing into memory does not fail");
}
