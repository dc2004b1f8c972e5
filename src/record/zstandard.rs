//! Zstandard (RFC 8878): frames one after the other.

use zstd::bulk::Compressor;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, compress_bound};

use crate::compression::{Codec, DecompressError};
use crate::window::{CHUNK_LENGTH, Scratch, Window};

const DAMAGED: DecompressError = DecompressError::Damaged(Codec::Zstd);

/// Window of the levels that are not called ultra, in bits: every decoder has to have as much.
const WINDOW_BITS_MIN: u32 = 23;
/// The library's bound, and so Kafka's.
const WINDOW_BITS_MAX: u32 = 27;
/// What the library says of a frame whose window is larger than allowed: `ZSTD_error_frameParameter_windowTooLarge`.
const WINDOW_TOO_LARGE: usize = 0_usize.wrapping_sub(16);

/// What any frame but those of the ultra levels needs, in bytes.
pub(crate) const WINDOW_BYTES_MIN: usize = 1 << WINDOW_BITS_MIN;

/// Reads frames piece by piece.
///
/// The context reserves the frame's window, which the frame claims: at most `memory`, and never more than 128 MiB, as
/// in Kafka.
pub(crate) struct ZstdDecoder<'a> {
    input: InBuffer<'a>,
    length: usize,
    context: Option<DCtx<'static>>,
    in_frame: bool,
    window_bits_max: u32,
    memory: usize,
}

impl<'a> ZstdDecoder<'a> {
    pub(crate) fn new(
        input: &'a [u8],
        scratch: &mut Scratch,
        memory: usize,
    ) -> Result<ZstdDecoder<'a>, DecompressError> {
        let mut context =
            scratch.zstd.take().or_else(DCtx::try_create).ok_or(DecompressError::NoMemory)?;
        context.reset(ResetDirective::SessionOnly).map_err(|_| DAMAGED)?;
        let window_bits_max = memory.checked_ilog2().unwrap_or(0);
        let window_bits_max = window_bits_max.clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX);
        let window = DParameter::WindowLogMax(window_bits_max);
        context.set_parameter(window).map_err(|_| DAMAGED)?;
        let length = input.len();
        let input = InBuffer::around(input);
        let context = Some(context);
        Ok(ZstdDecoder { input, length, context, in_frame: false, window_bits_max, memory })
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
            let hint = context.decompress_stream(&mut out, &mut self.input).map_err(|code| {
                let may_ask_for_more = self.window_bits_max < WINDOW_BITS_MAX;
                match code {
                    WINDOW_TOO_LARGE if may_ask_for_more => {
                        DecompressError::TooLarge { cap: self.memory }
                    }
                    _ => DAMAGED,
                }
            })?;
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
    // What is not written of it never becomes memory.
    let mut frame = Vec::with_capacity(compress_bound(bytes.len()));
    Compressor::new(level)
        .and_then(|mut compressor| compressor.compress_to_buffer(bytes, &mut frame))
        .expect("the output has the length that was asked");
    if out.is_empty() {
        *out = frame;
    } else {
        out.extend(frame);
    }
}
