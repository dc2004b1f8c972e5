//! Dates as Java prints them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Milliseconds since 1970 as `java.util.Date.toString` shows them, in the zone of this machine:
/// `Sun Nov 29 16:24:19 UTC 2026`.
pub fn java_date(milliseconds: i64) -> String {
    date_in(milliseconds, TimeZone::system())
}

fn date_in(milliseconds: i64, zone: TimeZone) -> String {
    // What no date can show came from a damaged or hostile node.
    let timestamp = Timestamp::from_millisecond(milliseconds).unwrap_or_default();
    timestamp.to_zoned_datetime(zone).strftime("%a %b %d %H:%M:%S %Z %Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_javas() {
        for (milliseconds, date) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_400_000, "Tue Feb 29 00:00:00 UTC 2000"),
            (1_795_969_459_000, "Sun Nov 29 16:24:19 UTC 2026"),
            (-1000, "Wed Dec 31 23:59:59 UTC 1969"),
            (i64::MAX, "Thu Jan 01 00:00:00 UTC 1970"),
        ] {
            assert_eq!(date_in(milliseconds, TimeZone::UTC), date);
        }
    }
}
