//! What one cleaning did. Source: `CleanerStats`.

use std::time::Duration;

/// Counts of one cleaning of one log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) map_bytes_read: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) records_read: u64,
    pub(crate) records_kept: u64,
    pub(crate) records_without_key: u64,
    /// Keys in the map.
    pub(crate) keys: usize,
    /// Bytes of the keys' places in the map.
    pub(crate) map_bytes_used: u64,
    pub(crate) elapsed: Duration,
}
