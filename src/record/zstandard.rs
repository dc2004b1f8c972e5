//! Zstandard (RFC 8878): frames one after the other.

use zstd::bulk::Compressor;
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective, compress_bound};

use crate::compression::{Codec, DecompressError};
use crate::window::{CHUNK_LENGTH, Scratch, Window};

const DAMAGED: DecompressError = DecompressError::Damaged(Codec::Zstd);

/// Reads frames piece by piece.
///
/// The context reserves the frame's window, which the frame claims and the library bounds (128 MiB, as in Kafka). It
/// is written, and so becomes memory, only as far as bytes are decompressed.
pub(crate) struct ZstdDecoder<'a> {
    input: InBuffer<'a>,
    length: usize,
    context: Option<DCtx<'static>>,
    in_frame: bool,
}

impl<'a> ZstdDecoder<'a> {
    pub(crate) fn new(
        input: &'a [u8],
        scratch: &mut Scratch,
    ) -> Result<ZstdDecoder<'a>, DecompressError> {
        let mut context =
            scratch.zstd.take().or_else(DCtx::try_create).ok_or(DecompressError::NoMemory)?;
        context.reset(ResetDirective::SessionOnly).map_err(|_| DAMAGED)?;
        let length = input.len();
        let input = InBuffer::around(input);
        Ok(ZstdDecoder { input, length, context: Some(context), in_frame: false })
    }

    pub(crate) fn take_context(&mut self) -> Option<DCtx<'static>> {
        self.context.take()
    }

    /// Writes the next bytes, at most `room`; their count, 0 at the end.
    pub(crate) fn read(
        &mut self,
        window: &mut Window,
        room: usize,
    ) -> Result<usize, DecompressError> {
        let context = self.context.as_mut().ok_or(DAMAGED)?;
        loop {
            if !self.in_frame && self.input.pos() == self.length {
                return Ok(0);
            }
            let out = window.space(CHUNK_LENGTH);
            let out_length = out.len().min(room);
            let before = self.input.pos();
            let mut out = OutBuffer::around(&mut out[..out_length]);
            let hint = context.decompress_stream(&mut out, &mut self.input).map_err(|_| DAMAGED)?;
            let written = out.pos();
            window.advance(written);
            // A hint of 0 says that a frame is decoded and flushed.
            self.in_frame = hint != 0;
            if written > 0 {
                return Ok(written);
            }
            if self.in_frame && self.input.pos() == before {
                return Err(DAMAGED);
            }
        }
    }
}

/// Appends one frame, which says its content's size.
pub(crate) fn compress(bytes: &[u8], level: i32, out: &mut Vec<u8>) {
    let at = out.len();
    out.resize(at + compress_bound(bytes.len()), 0);
    let length = Compressor::new(level)
        .and_then(|mut compressor| compressor.compress_to_buffer(bytes, &mut out[at..]))
        .expect("the output has the length that was asked");
    out.truncate(at + length);
}
