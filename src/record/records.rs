//! The records of one entry of a log, of any magic.

use crate::batch::BatchError;

/// Why the records of an entry cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    /// The entry itself is not one.
    #[error("{0}")]
    Batch(BatchError),
    /// A record does not fit its own length, or a varint does not end.
    #[error("Found invalid record structure")]
    Structure,
    /// A record's length is negative or reaches past the batch.
    #[error("Invalid record size: {0} bytes do not fit what is left of the batch")]
    RecordLength(i32),
    /// A record has a negative number of headers.
    #[error("Found invalid number of record headers {0}")]
    HeaderCount(i32),
    /// A header has no name.
    #[error("Invalid negative header key size")]
    HeaderName,
    /// The header counts a negative number of records.
    #[error("Found invalid record count {0}")]
    Count(i32),
    /// Bytes follow the last record that the header counts.
    #[error("Incorrect declared batch size, records still remaining in file")]
    BytesRemain,
}

impl RecordsError {
    pub(crate) const STRUCTURE: RecordsError = RecordsError::Structure;
}
