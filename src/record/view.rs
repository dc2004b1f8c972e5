//! One record of a magic 2 batch, read in place.

use common::ids::{Offset, Timestamp};

use crate::batch::BatchHeader;
use crate::records::RecordsError;
use crate::varint::Cursor;

/// A record, its parts borrowed from the batch's (decompressed) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Where it stands in the log.
    pub offset: Offset,
    /// Its time; -1 for none.
    pub timestamp: Timestamp,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; null is a tombstone on compacted topics.
    pub value: Option<&'a [u8]>,
    /// Its headers; none for magic 0 and 1.
    pub headers: Headers<'a>,
}

/// The headers of a record, in their order, names repeated as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its name: UTF-8 by agreement, not checked.
    pub name: &'a [u8],
    /// Its value.
    pub value: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Gives each header.
    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + Clone + use<'a> {
        let mut cursor = Cursor::new(self.bytes);
        // The bytes were walked once when the record was read, so no header is lost to an error here.
        (0..self.count).map_while(move |_| read_header(&mut cursor).ok())
    }

    /// Walks `count` headers and keeps the bytes they take.
    fn read(cursor: &mut Cursor<'a>, body: &'a [u8]) -> Result<Headers<'a>, RecordsError> {
        let count = cursor.varint()?;
        let count = usize::try_from(count).map_err(|_| RecordsError::HeaderCount(count))?;
        if count == 0 {
            return Ok(Headers::default());
        }
        let begin = body.len() - cursor.remaining();
        for _ in 0..count {
            read_header(cursor)?;
        }
        let end = body.len() - cursor.remaining();
        Ok(Headers { count, bytes: &body[begin..end] })
    }
}

fn read_header<'a>(cursor: &mut Cursor<'a>) -> Result<Header<'a>, RecordsError> {
    let name = cursor.nullable()?.ok_or(RecordsError::HeaderName)?;
    Ok(Header { name, value: cursor.nullable()? })
}

/// What the records of a batch count from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBase {
    pub(crate) offset: Offset,
    pub(crate) timestamp: Timestamp,
    pub(crate) log_append_time: Option<Timestamp>,
}

impl RecordBase {
    pub(crate) fn of(header: &BatchHeader) -> RecordBase {
        RecordBase {
            offset: header.base_offset,
            timestamp: header.base_timestamp,
            log_append_time: header.log_append_time(),
        }
    }

    #[inline]
    pub(crate) fn offset(&self, delta: i32) -> Offset {
        Offset(self.offset.0.wrapping_add(i64::from(delta)))
    }

    #[inline]
    pub(crate) fn timestamp(&self, delta: i64) -> Timestamp {
        self.log_append_time.unwrap_or(Timestamp(self.timestamp.0.wrapping_add(delta)))
    }
}

/// Reads the record at the cursor, its length first.
#[inline]
pub(crate) fn read_record<'a>(
    cursor: &mut Cursor<'a>,
    base: &RecordBase,
) -> Result<RecordView<'a>, RecordsError> {
    let length = cursor.varint()?;
    let body = usize::try_from(length)
        .ok()
        .and_then(|length| cursor.take(length).ok())
        .ok_or(RecordsError::RecordLength(length))?;
    read_body(body, base)
}

/// Reads a record from its bytes after the length; they must hold just the record.
#[inline]
pub(crate) fn read_body<'a>(
    body: &'a [u8],
    base: &RecordBase,
) -> Result<RecordView<'a>, RecordsError> {
    let mut cursor = Cursor::new(body);
    // The record's attributes have no meaning yet; Kafka does not look at them.
    cursor.byte()?;
    let timestamp = base.timestamp(cursor.varlong()?);
    let offset = base.offset(cursor.varint()?);
    let key = cursor.nullable()?;
    let value = cursor.nullable()?;
    let headers = Headers::read(&mut cursor, body)?;
    match cursor.remaining() {
        0 => Ok(RecordView { offset, timestamp, key, value, headers }),
        _ => Err(RecordsError::STRUCTURE),
    }
}
