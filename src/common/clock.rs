//! The one place that reads the time.

use std::{
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

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

/// What need not be exact is done at multiples of this, so that it wakes an idle process together.
const TICK: Duration = Duration::from_millis(64);

/// When ticks begin.
static FIRST: OnceLock<Instant> = OnceLock::new();

/// Lets ticks begin at a time, and not at the first call of `next_tick`. Does nothing where they have begun.
pub fn begin_ticks(at: Instant) {
    FIRST.get_or_init(|| at);
}

/// The first tick from a time on, at most 64 ms after it.
pub fn next_tick(at: Instant) -> Instant {
    let first = *FIRST.get_or_init(now);
    let since_first = at.saturating_duration_since(first);
    let ticks = since_first.as_nanos().div_ceil(TICK.as_nanos());
    first + TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_never_early_and_at_most_a_tick_late() {
        let first = next_tick(now());
        assert_eq!(next_tick(first), first);
        for nanoseconds in [1, 63_999_999, 64_000_000] {
            assert_eq!(next_tick(first + Duration::from_nanos(nanoseconds)), first + TICK);
        }
        let later = first + Duration::from_millis(500);
        assert_eq!(next_tick(later), first + Duration::from_millis(512));
    }
}
