//! The one place that reads the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::ids::Timestamp;

/// The monotonic clock, for deadlines and durations.
#[allow(clippy::disallowed_methods)] // This is the place the rule names.
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock in milliseconds since 1970, for what is stored or shown.
#[allow(clippy::disallowed_methods)] // This is the place the rule names.
pub fn wall_clock() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
}
