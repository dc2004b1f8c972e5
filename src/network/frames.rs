//! The bytes that came from a socket, cut into frames. Memory follows what came, not what was claimed.

use bytes::{Buf, Bytes, BytesMut};
use protocol::frame::SIZE_LENGTH;
use thiserror::Error;

/// Room for one read while frames are small: many of them fit, and an active connection costs no more.
pub(crate) const READ_SIZE: usize = 16 * 1024;

/// A body up to this size is copied out, so that a request that waits does not keep a whole buffer alive.
const COPIED_SIZE_MAX: usize = 512;

/// A size in front of a frame that is not accepted, in Kafka's words. Source: `NetworkReceive`.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum FrameError {
    #[error("Invalid receive (size = {0})")]
    Negative(i32),
    #[error("Invalid receive (size = {size} larger than {size_max})")]
    TooLarge { size: i32, size_max: usize },
    #[error("Invalid receive (size = {0}): the peer speaks {1} on this port")]
    Foreign(i32, &'static str),
}

/// A frame that is there as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Without the four bytes of the size itself.
    pub(crate) size: usize,
    /// The key of the API, were it a request; -1 when it is too short.
    pub(crate) api_key: i16,
}

/// The buffer of one connection.
pub(crate) struct Frames {
    pub(crate) buffer: BytesMut,
    size_max: usize,
    /// Whether no frame was taken yet: only then the first bytes may be of another protocol.
    first: bool,
}

impl Frames {
    /// Refuses frames larger than `size_max`: `socket.request.max.bytes`.
    pub(crate) fn new(size_max: usize) -> Frames {
        Frames { buffer: BytesMut::new(), size_max, first: true }
    }

    /// The frame at the front, once all of it has come.
    pub(crate) fn next(&self) -> Result<Option<Frame>, FrameError> {
        let Some(size) = self.claimed_size()? else { return Ok(None) };
        if self.buffer.len() - SIZE_LENGTH < size {
            return Ok(None);
        }
        let api_key = match self.buffer.get(SIZE_LENGTH..SIZE_LENGTH + 2) {
            Some(&[high, low]) if size >= 2 => i16::from_be_bytes([high, low]),
            _ => -1,
        };
        Ok(Some(Frame { size, api_key }))
    }

    /// The content of a frame that `next` gave.
    pub(crate) fn take(&mut self, frame: Frame) -> Bytes {
        self.first = false;
        self.buffer.advance(SIZE_LENGTH);
        if frame.size <= COPIED_SIZE_MAX {
            let copied = Bytes::copy_from_slice(&self.buffer[..frame.size]);
            self.buffer.advance(frame.size);
            return copied;
        }
        self.buffer.split_to(frame.size).freeze()
    }

    /// Makes room for the next read: for the rest of the frame, but at most three times what has come of it.
    /// Says whether there is anything to read: not while a whole frame waits, or a wrong one.
    pub(crate) fn make_room_for_next(&mut self) -> bool {
        let Ok(None) = self.next() else { return false };
        if self.buffer.capacity() == 0 {
            return true; // Gets its memory when something comes.
        }
        let spare = self.buffer.capacity() - self.buffer.len();
        let Ok(Some(size)) = self.claimed_size() else {
            if spare < READ_SIZE / 4 {
                self.buffer.reserve(READ_SIZE);
            }
            return true;
        };
        let missing = SIZE_LENGTH + size - self.buffer.len();
        let wanted = usize::min(missing, 3 * self.buffer.len());
        if spare < wanted {
            self.buffer.reserve(wanted);
        }
        true
    }

    /// Gives the memory back; for a connection that fell silent.
    pub(crate) fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    fn claimed_size(&self) -> Result<Option<usize>, FrameError> {
        let Some(&head) = self.buffer.first_chunk::<SIZE_LENGTH>() else { return Ok(None) };
        let claimed = i32::from_be_bytes(head);
        if self.first
            && let Some(foreign) = foreign_protocol(head)
        {
            return Err(FrameError::Foreign(claimed, foreign));
        }
        let Ok(size) = usize::try_from(claimed) else {
            return Err(FrameError::Negative(claimed));
        };
        if size > self.size_max {
            return Err(FrameError::TooLarge { size: claimed, size_max: self.size_max });
        }
        Ok(Some(size))
    }
}

/// Another protocol that starts with these bytes. As a size each would be over 350 MB, which no first request is.
fn foreign_protocol(head: [u8; SIZE_LENGTH]) -> Option<&'static str> {
    match &head {
        [0x16, 0x03, 0x00..=0x04, _] => Some("TLS"),
        b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"OPTI" | b"PATC" | b"CONN" | b"TRAC"
        | b"PRI " => Some("HTTP"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: &[u8]) -> Frames {
        let mut frames = Frames::new(100 << 20);
        frames.buffer.extend_from_slice(bytes);
        frames
    }

    #[test]
    fn a_frame_is_given_once_its_last_byte_is_there() {
        let whole = [0, 0, 0, 3, 0, 18, 9, 0, 0];
        for length in 0..7 {
            assert_eq!(frames(&whole[..length]).next(), Ok(None), "{length}");
        }
        let mut frames = frames(&whole);
        let frame = frames.next().unwrap().unwrap();
        assert_eq!(frame, Frame { size: 3, api_key: 18 });
        assert_eq!(&frames.take(frame)[..], [0, 18, 9]);
        assert_eq!(&frames.buffer[..], [0, 0]);
    }

    #[test]
    fn an_empty_frame_is_a_frame() {
        assert_eq!(frames(&[0; 4]).next(), Ok(Some(Frame { size: 0, api_key: -1 })));
        assert_eq!(frames(&[0, 0, 0, 1, 5]).next(), Ok(Some(Frame { size: 1, api_key: -1 })));
    }

    #[test]
    fn sizes_are_refused_in_kafkas_words() {
        let refused = |head: [u8; 4]| frames(&head).next().unwrap_err().to_string();
        assert_eq!(refused([0xff; 4]), "Invalid receive (size = -1)");
        assert_eq!(
            refused([0x7f, 0xff, 0xff, 0xff]),
            "Invalid receive (size = 2147483647 larger than 104857600)"
        );
    }

    #[test]
    fn tls_and_http_are_recognised_at_the_start_alone() {
        let refused = |head: &[u8; 4]| frames(head).next().unwrap_err().to_string();
        assert_eq!(
            refused(b"GET "),
            "Invalid receive (size = 1195725856): the peer speaks HTTP on this port"
        );
        assert_eq!(
            refused(&[0x16, 3, 1, 2]),
            "Invalid receive (size = 369295618): the peer speaks TLS on this port"
        );
        let mut later = frames(&[0, 0, 0, 0]);
        later.take(Frame { size: 0, api_key: -1 });
        later.buffer.extend_from_slice(b"GET ");
        assert!(matches!(later.next(), Err(FrameError::TooLarge { .. })));
    }

    #[test]
    fn memory_follows_what_came_and_not_what_was_claimed() {
        let mut frames = frames(&(100_u32 << 20).to_be_bytes());
        let mut received = SIZE_LENGTH;
        while received < 4 << 20 {
            assert!(frames.make_room_for_next());
            let spare = frames.buffer.capacity() - frames.buffer.len();
            assert!(spare > 0);
            assert!(frames.buffer.capacity() <= 8 * received + 2 * READ_SIZE);
            let filled = frames.buffer.len() + spare;
            frames.buffer.resize(filled, 7);
            received = filled;
        }
    }

    #[test]
    fn the_last_read_of_a_large_frame_stops_at_its_end() {
        let mut frames = frames(&100_000_u32.to_be_bytes());
        while frames.next().unwrap().is_none() {
            assert!(frames.make_room_for_next());
            let capacity = frames.buffer.capacity();
            frames.buffer.resize(capacity, 7);
        }
        assert!(frames.buffer.len() < 100_004 + 2 * READ_SIZE);
    }

    #[test]
    fn a_silent_connection_keeps_no_buffer() {
        let mut frames = frames(&[]);
        assert!(frames.make_room_for_next());
        assert_eq!(frames.buffer.capacity(), 0);
        frames.buffer.reserve(READ_SIZE);
        frames.release();
        assert_eq!(frames.buffer.capacity(), 0);
    }
}
