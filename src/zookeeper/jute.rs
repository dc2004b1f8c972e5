//! Jute, ZooKeeper's encoding: big-endian numbers, and strings, buffers and vectors with a length
//! in front, where -1 stands for null.
//!
//! A length is believed only as far as the bytes that are there, so nothing is reserved for a
//! claim.

use thiserror::Error;

/// Why bytes are not the record they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum JuteError {
    /// The record goes on behind the last byte.
    #[error("the record is cut short")]
    CutShort,
    /// A length that no writer produces.
    #[error("length {0} makes no sense")]
    BadLength(i32),
    /// Null where a value must be.
    #[error("null where a value must be")]
    Null,
}

/// Reads one record from a slice.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The bytes that are not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], JuteError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(JuteError::CutShort)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], JuteError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(JuteError::CutShort)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, JuteError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, JuteError> {
        Ok(self.byte()? != 0)
    }

    pub(crate) fn int(&mut self) -> Result<i32, JuteError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn long(&mut self) -> Result<i64, JuteError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A length: `None` for null. Other negative lengths are refused.
    fn length(&mut self) -> Result<Option<usize>, JuteError> {
        match self.int()? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| JuteError::BadLength(length)),
        }
    }

    pub(crate) fn buffer(&mut self) -> Result<Option<&'a [u8]>, JuteError> {
        self.length()?.map(|length| self.take(length)).transpose()
    }

    /// A string, by [`java_text`]: no path may hold what that puts for what is not UTF-8.
    pub(crate) fn string(&mut self) -> Result<Option<String>, JuteError> {
        Ok(self.buffer()?.map(java_text))
    }

    /// A string that may not be null.
    pub(crate) fn text(&mut self) -> Result<String, JuteError> {
        self.string()?.ok_or(JuteError::Null)
    }

    /// A vector; null reads as `None`, and one of a negative length as empty, as in Java.
    pub(crate) fn vector<T>(
        &mut self,
        read: fn(&mut Reader<'a>) -> Result<T, JuteError>,
    ) -> Result<Option<Vec<T>>, JuteError> {
        let count = self.int()?;
        if count == -1 {
            return Ok(None);
        }
        // Grows with what is read: `count` is only a claim.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(Some(items))
    }

    /// A vector of strings; null reads as empty.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, JuteError> {
        Ok(self.vector(|reader| reader.text())?.unwrap_or_default())
    }
}

/// The text of bytes that should be UTF-8: what is not becomes U+FFFD. A surrogate becomes one in
/// Java, and one a byte in Rust.
pub(crate) fn java_text(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let (mut text, mut rest) = (Vec::new(), bytes);
    while let Some((first, after)) = rest.split_first() {
        rest = match rest {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, after @ ..] | [0xed, 0xa0..=0xbf, after @ ..] => {
                text.extend("\u{fffd}".as_bytes());
                after
            }
            _ => {
                text.push(*first);
                after
            }
        };
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes records; each function appends to the bytes.
pub(crate) trait Write {
    fn put_bytes(&mut self, bytes: &[u8]);

    fn byte(&mut self, value: u8) {
        self.put_bytes(&[value]);
    }

    fn boolean(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    fn int(&mut self, value: i32) {
        self.put_bytes(&value.to_be_bytes());
    }

    fn long(&mut self, value: i64) {
        self.put_bytes(&value.to_be_bytes());
    }

    /// A length in front of something. What we hold came through `jute.maxbuffer`, so it fits.
    fn length(&mut self, length: usize) {
        self.int(i32::try_from(length).expect("held lengths are below jute.maxbuffer"));
    }

    fn buffer(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.int(-1),
            Some(bytes) => {
                self.length(bytes.len());
                self.put_bytes(bytes);
            }
        }
    }

    fn text(&mut self, value: &str) {
        self.buffer(Some(value.as_bytes()));
    }

    fn texts<'s>(&mut self, values: impl ExactSizeIterator<Item = &'s str>)
    where
        Self: Sized,
    {
        self.length(values.len());
        for value in values {
            self.text(value);
        }
    }
}

impl Write for Vec<u8> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_empty_are_kept_apart() {
        let mut bytes = Vec::new();
        bytes.buffer(None);
        bytes.buffer(Some(b""));
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.buffer(), Ok(None));
        assert_eq!(reader.buffer(), Ok(Some(&b""[..])));
        assert!(reader.rest().is_empty());
    }

    #[test]
    fn a_claimed_length_reserves_nothing() {
        let mut bytes = Vec::new();
        bytes.int(i32::MAX);
        assert_eq!(Reader::new(&bytes).buffer(), Err(JuteError::CutShort));
        assert_eq!(Reader::new(&bytes).texts(), Err(JuteError::CutShort));
        let mut negative = Vec::new();
        negative.int(-2);
        assert_eq!(Reader::new(&negative).buffer(), Err(JuteError::BadLength(-2)));
        assert_eq!(Reader::new(&negative).texts(), Ok(Vec::new()));
    }

    #[test]
    fn what_is_not_utf8_becomes_the_replacement_character() {
        let mut bytes = Vec::new();
        bytes.buffer(Some(b"/a\xff"));
        assert_eq!(Reader::new(&bytes).text(), Ok("/a\u{fffd}".to_owned()));
        for (bytes, text) in [
            (&b"\xff:\xfe"[..], "\u{fffd}:\u{fffd}"),
            (b"u\xc3", "u\u{fffd}"),
            (b"u\xe4\xb8", "u\u{fffd}"),
            (b"u\xc0\x80", "u\u{fffd}\u{fffd}"),
            (b"u\xed\xa0\x80\xed\xb0\x80", "u\u{fffd}\u{fffd}"),
            (b"u\xed\xa0", "u\u{fffd}"),
            ("\u{fc}\u{4e2d}\u{1f600}".as_bytes(), "\u{fc}\u{4e2d}\u{1f600}"),
        ] {
            assert_eq!(java_text(bytes), text, "{bytes:x?}");
        }
    }
}
