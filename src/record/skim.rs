//! Walks the records of a compressed batch without keeping them: what is decompressed is thrown away.

use common::ids::{Offset, Timestamp};

use crate::batch::{BATCH_HEADER_LENGTH, BatchHeader};
use crate::compression::{Codec, DECOMPRESSED_BYTES_MAX};
use crate::records::RecordsError;
use crate::varint::{Cursor, VARINT_LENGTH_MAX, VARLONG_LENGTH_MAX};
use crate::view::{RecordBase, read_body};
use crate::window::{CHUNK_LENGTH, Stream};

/// What the checks need to know of a record. Lengths are negative where there is nothing.
pub(crate) struct Skimmed {
    pub(crate) offset: Offset,
    pub(crate) timestamp: Timestamp,
    pub(crate) key_length: i32,
    pub(crate) value_length: i32,
}

/// Reads records one after the other. After an error do not go on.
pub(crate) struct Skimmer<'a> {
    stream: Stream<'a>,
    base: RecordBase,
}

impl<'a> Skimmer<'a> {
    /// For a whole batch, which is compressed: it may become `DECOMPRESSED_BYTES_MAX`. For `memory` see `Stream`.
    pub(crate) fn new(
        batch: &'a [u8],
        header: &BatchHeader,
        codec: Codec,
        memory: usize,
    ) -> Result<Skimmer<'a>, RecordsError> {
        let records = &batch[BATCH_HEADER_LENGTH..];
        let stream = Stream::new(codec, 2, records, DECOMPRESSED_BYTES_MAX, memory)
            .map_err(RecordsError::Decompress)?;
        Ok(Skimmer { stream, base: RecordBase::of(header) })
    }

    /// Reads the next record.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Skimmed, RecordsError> {
        let mut left = VARINT_LENGTH_MAX;
        let length = self.varint(&mut left)?;
        let body_length =
            usize::try_from(length).map_err(|_| RecordsError::RecordLength(length))?;
        if body_length > CHUNK_LENGTH {
            return self.long_record(body_length);
        }
        if !self.ensure(body_length)? {
            return Err(RecordsError::RecordLength(length));
        }
        let record = read_body(&self.stream.filled()[..body_length], &self.base)?;
        let skimmed = Skimmed {
            offset: record.offset,
            timestamp: record.timestamp,
            key_length: length_of(record.key),
            value_length: length_of(record.value),
        };
        self.stream.consume(body_length);
        Ok(skimmed)
    }

    /// Whether nothing follows. Reads to the end of the compressed bytes, and so checks their checksum, if they have one.
    pub(crate) fn is_at_end(&mut self) -> Result<bool, RecordsError> {
        Ok(!self.ensure(1)?)
    }

    /// Reads a record field by field, so that the window need not hold all of it.
    #[cold]
    fn long_record(&mut self, body_length: usize) -> Result<Skimmed, RecordsError> {
        let mut left = body_length;
        self.skip(1, &mut left)?;
        let timestamp_delta =
            self.field(VARLONG_LENGTH_MAX, &mut left, |cursor| cursor.varlong())?;
        let offset_delta = self.varint(&mut left)?;
        let key_length = self.skip_nullable(&mut left)?;
        let value_length = self.skip_nullable(&mut left)?;
        let header_count = self.varint(&mut left)?;
        if header_count < 0 {
            return Err(RecordsError::HeaderCount(header_count));
        }
        for _ in 0..header_count {
            if self.skip_nullable(&mut left)? < 0 {
                return Err(RecordsError::HeaderName);
            }
            self.skip_nullable(&mut left)?;
        }
        match left {
            0 => Ok(Skimmed {
                offset: self.base.offset(offset_delta),
                timestamp: self.base.timestamp(timestamp_delta),
                key_length,
                value_length,
            }),
            _ => Err(RecordsError::STRUCTURE),
        }
    }

    fn skip_nullable(&mut self, left: &mut usize) -> Result<i32, RecordsError> {
        let length = self.varint(left)?;
        if let Ok(length) = usize::try_from(length) {
            self.skip(length, left)?;
        }
        Ok(length)
    }

    fn varint(&mut self, left: &mut usize) -> Result<i32, RecordsError> {
        self.field(VARINT_LENGTH_MAX, left, |cursor| cursor.varint())
    }

    /// Reads a field of at most `length_max` bytes; `left` is what the record may still take.
    #[inline]
    fn field<T>(
        &mut self,
        length_max: usize,
        left: &mut usize,
        read: impl for<'c> Fn(&mut Cursor<'c>) -> Result<T, RecordsError>,
    ) -> Result<T, RecordsError> {
        self.ensure(length_max)?;
        let filled = self.stream.filled();
        let bytes = &filled[..filled.len().min(length_max).min(*left)];
        let mut cursor = Cursor::new(bytes);
        let value = read(&mut cursor)?;
        let taken = bytes.len() - cursor.remaining();
        *left -= taken;
        self.stream.consume(taken);
        Ok(value)
    }

    fn skip(&mut self, length: usize, left: &mut usize) -> Result<(), RecordsError> {
        *left = left.checked_sub(length).ok_or(RecordsError::STRUCTURE)?;
        match self.stream.skip(length).map_err(RecordsError::Decompress)? {
            true => Ok(()),
            false => Err(RecordsError::STRUCTURE),
        }
    }

    #[inline]
    fn ensure(&mut self, length: usize) -> Result<bool, RecordsError> {
        self.stream.ensure(length).map_err(RecordsError::Decompress)
    }
}

/// Lengths come from a record of at most `CHUNK_LENGTH` bytes.
fn length_of(bytes: Option<&[u8]>) -> i32 {
    bytes.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX))
}
