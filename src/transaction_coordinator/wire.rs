//! The few words of Kafka's encoding that the records of transactions are made of.

use bytes::BufMut;

/// Why bytes do not say what they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// They end too early.
    #[error("the bytes end too early")]
    TooShort,
    /// A length that no bytes can have.
    #[error("length {0} is not possible")]
    Length(i64),
    /// A text that is none.
    #[error("a text is not UTF-8")]
    Text,
    /// Something is left out that must be there.
    #[error("a field is null that must not be")]
    Null,
}

/// Reads words from the front of bytes. What is left over in the end is ignored, as in Kafka.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::TooShort)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], WireError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(WireError::TooShort)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn i8(&mut self) -> Result<i8, WireError> {
        self.array().map(i8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, WireError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, WireError> {
        self.array().map(i64::from_be_bytes)
    }

    /// An unsigned varint of at most 32 bits.
    fn varint(&mut self) -> Result<u32, WireError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| WireError::Length(i64::MAX));
            }
        }
        Err(WireError::Length(i64::MAX))
    }

    fn text(&mut self, length: usize) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.take(length)?).map_err(|_| WireError::Text)
    }

    pub(crate) fn string(&mut self) -> Result<&'a str, WireError> {
        let length = self.i16()?;
        let length = usize::try_from(length).map_err(|_| WireError::Length(length.into()))?;
        self.text(length)
    }

    pub(crate) fn compact_string(&mut self) -> Result<&'a str, WireError> {
        let length = self.compact_length()?.ok_or(WireError::Null)?;
        // The flexible encoding has room for more, but Kafka reads no longer texts in it either.
        let length = i16::try_from(length).map_err(|_| WireError::Length(i64::MAX))?;
        self.text(usize::from(length.unsigned_abs()))
    }

    /// How many elements follow, checked against the bytes left: an element has at least one. -1 is null.
    pub(crate) fn array_length(&mut self) -> Result<Option<usize>, WireError> {
        let length = self.i32()?;
        if length == -1 {
            return Ok(None);
        }
        self.fitting(length.into())
    }

    /// As `array_length`, in the flexible encoding: 0 is null, and others are one more than the length.
    pub(crate) fn compact_length(&mut self) -> Result<Option<usize>, WireError> {
        match self.varint()? {
            0 => Ok(None),
            length => self.fitting(i64::from(length) - 1),
        }
    }

    fn fitting(&self, length: i64) -> Result<Option<usize>, WireError> {
        let fits = usize::try_from(length).ok().filter(|length| *length <= self.rest.len());
        fits.map(Some).ok_or(WireError::Length(length))
    }

    /// Skips tagged fields: none is known.
    pub(crate) fn skip_tags(&mut self) -> Result<(), WireError> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let size = self.varint()?;
            self.take(usize::try_from(size).map_err(|_| WireError::TooShort)?)?;
        }
        Ok(())
    }
}

/// Writes a text with a 16-bit length.
///
/// # Panics
/// When it has more bytes than that; names are checked where requests come in.
pub(crate) fn put_string(bytes: &mut Vec<u8>, text: &str) {
    let length = i16::try_from(text.len()).expect("names are checked where requests come in");
    bytes.put_i16(length);
    bytes.put_slice(text.as_bytes());
}

/// Writes a length of the flexible encoding.
pub(crate) fn put_compact_length(bytes: &mut Vec<u8>, length: Option<usize>) {
    let mut rest = length.map_or(0, |length| length + 1);
    while rest > 0x7f {
        bytes.put_u8(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    bytes.put_u8(rest.to_le_bytes()[0]);
}
