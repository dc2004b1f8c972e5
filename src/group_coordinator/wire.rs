//! Kafka's primitive types, read with care and written: for stored records and for consumers' subscriptions.

use crate::records::RecordError;

/// Reads fields one after the other; `flexible` versions have compact lengths and tagged fields (KIP-482).
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    pub(crate) flexible: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, flexible: false }
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], RecordError> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or(RecordError::Truncated { field })?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], RecordError> {
        let (taken, rest) =
            self.bytes.split_first_chunk::<N>().ok_or(RecordError::Truncated { field })?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn int16(&mut self, field: &'static str) -> Result<i16, RecordError> {
        self.array(field).map(i16::from_be_bytes)
    }

    pub(crate) fn int32(&mut self, field: &'static str) -> Result<i32, RecordError> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub(crate) fn int64(&mut self, field: &'static str) -> Result<i64, RecordError> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// An unsigned varint of at most 32 bits.
    fn unsigned_varint(&mut self, field: &'static str) -> Result<u32, RecordError> {
        let mut value: u32 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(field)?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(RecordError::BadLength { field })
    }

    /// The length of a text, or None for null.
    fn text_length(&mut self, field: &'static str) -> Result<Option<usize>, RecordError> {
        let length = match self.flexible {
            true => self.compact_length(field)?,
            false => i64::from(self.int16(field)?),
        };
        checked_length(length, field)
    }

    /// The length of bytes or of an array, or None for null.
    fn length(&mut self, field: &'static str) -> Result<Option<usize>, RecordError> {
        let length = match self.flexible {
            true => self.compact_length(field)?,
            false => i64::from(self.int32(field)?),
        };
        checked_length(length, field)
    }

    /// One more than the length, so that 0 is null.
    fn compact_length(&mut self, field: &'static str) -> Result<i64, RecordError> {
        Ok(i64::from(self.unsigned_varint(field)?) - 1)
    }

    pub(crate) fn nullable_text(
        &mut self,
        field: &'static str,
    ) -> Result<Option<&'a str>, RecordError> {
        let Some(length) = self.text_length(field)? else { return Ok(None) };
        let bytes = self.take(length, field)?;
        std::str::from_utf8(bytes).map(Some).map_err(|_| RecordError::NotUtf8 { field })
    }

    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a str, RecordError> {
        self.nullable_text(field)?.ok_or(RecordError::Null { field })
    }

    pub(crate) fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], RecordError> {
        let length = self.length(field)?.ok_or(RecordError::Null { field })?;
        self.take(length, field)
    }

    /// The count of an array whose elements take `element_min` bytes or more, so that no count asks for memory
    /// that the bytes do not justify.
    pub(crate) fn count(
        &mut self,
        element_min: usize,
        field: &'static str,
    ) -> Result<usize, RecordError> {
        let count = self.length(field)?.ok_or(RecordError::Null { field })?;
        if count > self.left() / element_min {
            return Err(RecordError::Truncated { field });
        }
        Ok(count)
    }

    /// Skips tagged fields; there are none that we know.
    pub(crate) fn tagged_fields(&mut self) -> Result<(), RecordError> {
        let field = "tagged fields";
        if self.flexible {
            for _ in 0..self.unsigned_varint(field)? {
                self.unsigned_varint(field)?;
                let length = self.unsigned_varint(field)?;
                let length =
                    usize::try_from(length).map_err(|_| RecordError::BadLength { field })?;
                self.take(length, field)?;
            }
        }
        Ok(())
    }
}

fn checked_length(length: i64, field: &'static str) -> Result<Option<usize>, RecordError> {
    match length {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| RecordError::BadLength { field }),
    }
}

/// Most keys, and values of offsets, are shorter.
const USUAL_LENGTH: usize = 128;

/// Writes fields one after the other.
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
    flexible: bool,
}

impl Writer {
    /// Begins with the version.
    pub(crate) fn new(version: i16, flexible: bool) -> Writer {
        let mut bytes = Vec::with_capacity(USUAL_LENGTH);
        bytes.extend(version.to_be_bytes());
        Writer { bytes, flexible }
    }

    pub(crate) fn int32(&mut self, value: i32) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(crate) fn int64(&mut self, value: i64) {
        self.bytes.extend(value.to_be_bytes());
    }

    fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80); // Seven bits: nothing is lost.
            value >>= 7;
        }
        self.bytes.push(value as u8); // Below 0x80.
    }

    pub(crate) fn nullable_text(
        &mut self,
        text: Option<&str>,
        field: &'static str,
    ) -> Result<(), RecordError> {
        let length = text.map(|text| i16::try_from(text.len())).transpose();
        let length = length.map_err(|_| RecordError::TooLong { field })?;
        if self.flexible {
            self.unsigned_varint(length.map_or(0, |length| u32::from(length.unsigned_abs()) + 1));
        } else {
            self.bytes.extend(length.unwrap_or(-1).to_be_bytes());
        }
        self.bytes.extend(text.unwrap_or_default().as_bytes());
        Ok(())
    }

    pub(crate) fn text(&mut self, text: &str, field: &'static str) -> Result<(), RecordError> {
        self.nullable_text(Some(text), field)
    }

    /// A count, or a length of bytes.
    pub(crate) fn count(&mut self, count: usize, field: &'static str) -> Result<(), RecordError> {
        let count = i32::try_from(count).map_err(|_| RecordError::TooLong { field })?;
        if self.flexible {
            self.unsigned_varint(count.unsigned_abs() + 1);
        } else {
            self.int32(count);
        }
        Ok(())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8], field: &'static str) -> Result<(), RecordError> {
        self.count(bytes.len(), field)?;
        self.bytes.extend(bytes);
        Ok(())
    }

    pub(crate) fn tagged_fields(&mut self) {
        if self.flexible {
            self.bytes.push(0);
        }
    }
}
