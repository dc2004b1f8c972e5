//! What the version of a produce request lets it carry. Source: `ProduceRequest.validateRecords`.
//!
//! Versions 0 to 2 are not checked: some of their clients send the wrong magic.

use crate::batch::{BatchError, Batches};
use crate::compression::Codec;

/// Why a produce request of this version may not carry what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProduceVersionError {
    /// No whole batch (INVALID_RECORD).
    #[error("Produce requests with version {0} must have at least one record batch per partition")]
    NoBatch(i16),
    /// Messages of magic 0 or 1 (INVALID_RECORD).
    #[error(
        "Produce requests with version {0} are only allowed to contain record batches with magic \
         version 2"
    )]
    Magic(i16),
    /// Zstd before version 7 (UNSUPPORTED_COMPRESSION_TYPE).
    #[error("Produce requests with version {0} are not allowed to use ZStandard compression")]
    Zstd(i16),
    /// A codec that does not exist, before version 7: Kafka fails on it, and with it the request (UNKNOWN_SERVER_ERROR).
    #[error("Unknown compression type")]
    Codec,
    /// More than one batch (INVALID_RECORD).
    #[error(
        "Produce requests with version {0} are only allowed to contain exactly one record batch \
         per partition"
    )]
    SeveralBatches(i16),
    /// Not batches at all (CORRUPT_MESSAGE).
    #[error("{0}")]
    Corrupt(BatchError),
}

/// Checks the records that a produce request has for one partition; reads headers only.
pub fn check(version: i16, records: &[u8]) -> Result<(), ProduceVersionError> {
    if version < 3 {
        return Ok(());
    }
    let mut batches = Batches::new(records);
    let first = batches.next().ok_or(ProduceVersionError::NoBatch(version))?;
    let first = first.map_err(ProduceVersionError::Corrupt)?.header;
    if first.magic != 2 {
        return Err(ProduceVersionError::Magic(version));
    }
    if version < 7 {
        match first.codec {
            None => return Err(ProduceVersionError::Codec),
            Some(Codec::Zstd) => return Err(ProduceVersionError::Zstd(version)),
            Some(_) => {}
        }
    }
    match batches.next() {
        None => Ok(()),
        Some(Ok(_)) => Err(ProduceVersionError::SeveralBatches(version)),
        Some(Err(error)) => Err(ProduceVersionError::Corrupt(error)),
    }
}
