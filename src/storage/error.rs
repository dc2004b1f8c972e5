//! What goes wrong in a log: refusals, which callers answer, and faults, which stop a log directory.

use std::{io, path::PathBuf};

use common::ids::Offset;

use crate::producer_state::ProducerError;

/// A disk operation that failed. Which operation and where is in `action` and `path`.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct Fault {
    /// What was tried, such as "write".
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl Fault {
    /// Whether the disk, or the owner's share of it, is full: a state that ends by itself.
    pub fn is_disk_full(&self) -> bool {
        is_disk_full(&self.source)
    }
}

/// Whether the process, not the disk, is short of something: descriptors or memory. Ends by itself, too.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
    error.raw_os_error().is_some_and(|code| shortages.iter().any(|one| one.raw_os_error() == code))
}

/// Whether the error says that the disk, or the owner's share of it, is full.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Names the operation in an I/O result.
pub(crate) trait Context<T> {
    /// Turns the error into a `Fault`.
    fn context(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, Fault>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, Fault> {
        self.map_err(|source| Fault { action, path: path.into(), source })
    }
}

/// Why a log cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// OFFSET_OUT_OF_RANGE: the offset lies before the log's start, or after its end.
    #[error("offset {offset} is not within {start} to {end}")]
    OffsetOutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The log's start.
        start: Offset,
        /// The log's end; of DeleteRecords the high watermark.
        end: Offset,
    },
    /// KAFKA_STORAGE_ERROR: the log's directory failed earlier, or the log is closed.
    #[error("the log directory {} is offline", .0.display())]
    Offline(PathBuf),
    /// KAFKA_STORAGE_ERROR: a read or a write failed now.
    #[error("log directory failed")]
    Fault(#[from] Fault),
}

/// Why a batch is not appended. The log is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The code of the variant: what is wrong is the batch's producer.
    #[error("{0}")]
    Producer(#[from] ProducerError),
    /// RECORD_LIST_TOO_LARGE: a segment could not hold it.
    #[error(
        "Message batch size is {size} bytes in append, which exceeds the maximum configured segment size of {segment_bytes}"
    )]
    LargerThanSegment {
        /// Bytes of all that was to be appended.
        size: usize,
        /// The topic's `segment.bytes`.
        segment_bytes: usize,
    },
    /// CORRUPT_MESSAGE: what a leader sent is not a run of batches, or a checksum is wrong.
    #[error("Record is corrupt: {0}")]
    Corrupt(String),
    /// A follower was given batches whose offsets do not rise, or that lie outside what a log can hold.
    #[error("Out of order offsets found in append: {offset} after {previous}")]
    OffsetsOutOfOrder {
        /// Last offset of the batch at fault.
        offset: Offset,
        /// Last offset of the batch before it.
        previous: Offset,
    },
    /// A follower was given an offset that it has already.
    #[error("Unexpected offset in append: {first} is less than the next offset {end}")]
    UnexpectedOffset {
        /// First offset of the batches; where their format does not say it, the last one of the first batch.
        first: Offset,
        /// The log's end.
        end: Offset,
    },
    /// KAFKA_STORAGE_ERROR, to be sent again: the disk is full. Ends by itself when there is room.
    #[error("no space left for {}", .0.display())]
    DiskFull(PathBuf),
    /// KAFKA_STORAGE_ERROR: the log's directory failed earlier, or the log is closed.
    #[error("the log directory {} is offline", .0.display())]
    Offline(PathBuf),
    /// KAFKA_STORAGE_ERROR: the write failed now.
    #[error("log directory failed")]
    Fault(#[from] Fault),
}
