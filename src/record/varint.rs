//! Varints as Kafka's `ByteUtils` has them (zig-zag), and a cursor over bytes that never reads past their end.

use crate::records::RecordsError;

/// Longest varint, in bytes.
pub(crate) const VARINT_LENGTH_MAX: usize = 5;
/// Longest varlong, in bytes.
pub(crate) const VARLONG_LENGTH_MAX: usize = 10;

/// A position in bytes. After an error it stands somewhere; do not go on.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    /// Bytes that are left.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, RecordsError> {
        let (&byte, rest) = self.rest.split_first().ok_or(RecordsError::STRUCTURE)?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], RecordsError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(RecordsError::STRUCTURE)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes with a varint length before them; any negative length is null.
    #[inline]
    pub(crate) fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordsError> {
        let length = self.varint()?;
        usize::try_from(length).ok().map(|length| self.take(length)).transpose()
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<i32, RecordsError> {
        let first = self.byte()?;
        let mut value = u32::from(first & 0x7f);
        if first < 0x80 {
            return Ok(zigzag(value));
        }
        for shift in [7, 14, 21, 28] {
            let byte = self.byte()?;
            // The fifth byte's upper bits fall off, as in Java.
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(zigzag(value));
            }
        }
        Err(RecordsError::STRUCTURE)
    }

    #[inline]
    pub(crate) fn varlong(&mut self) -> Result<i64, RecordsError> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(RecordsError::STRUCTURE)
    }
}

fn zigzag(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

/// Appends a varint.
pub(crate) fn write_varint(value: i32, out: &mut Vec<u8>) {
    write_varlong(i64::from(value), out);
}

/// Appends a varlong; a value of 32 bits has the same bytes as a varint.
pub(crate) fn write_varlong(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Bytes that a value takes.
pub(crate) fn size_of_varlong(value: i64) -> usize {
    let bits = 64 - (((value << 1) ^ (value >> 63)) as u64 | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let mut longs = vec![0, i64::MIN, i64::MAX];
        for shift in 0..63 {
            longs.extend([1 << shift, -(1 << shift), (1 << shift) - 1]);
        }
        for value in longs {
            let mut bytes = Vec::new();
            write_varlong(value, &mut bytes);
            assert_eq!(size_of_varlong(value), bytes.len());
            assert!(bytes.len() <= VARLONG_LENGTH_MAX);
            assert_eq!(Cursor::new(&bytes).varlong(), Ok(value));
            if let Ok(value) = i32::try_from(value) {
                assert!(bytes.len() <= VARINT_LENGTH_MAX);
                assert_eq!(Cursor::new(&bytes).varint(), Ok(value));
            }
            assert!(Cursor::new(&bytes[..bytes.len() - 1]).varlong().is_err());
        }
    }

    #[test]
    fn endless_varints_are_refused() {
        assert!(Cursor::new(&[0xff; 5]).varint().is_err());
        assert!(Cursor::new(&[0xff; 10]).varlong().is_err());
    }
}
