//! Log lines of the tools, as `config/tools-log4j.properties` has them: warnings and errors, to standard error.

use std::{
    fmt::{self, Write},
    io,
};

use common::{clock, ids::Timestamp};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, Registry, layer::Context, layer::SubscriberExt};

/// Prints `[time] LEVEL text (class)`.
struct Log4jLayer;

/// Message and class of an event; other fields follow the message.
#[derive(Default)]
struct Line {
    message: String,
    class: Option<String>,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "class" => {
                self.class = Some(format!("{value:?}"));
                Ok(())
            }
            name => write!(self.fields, " {name}={value:?}"),
        };
        written.expect("writing to a string does not fail");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "class" => self.class = Some(value.to_owned()),
            _ => self.record_debug(field, &format_args!("{value}")),
        }
    }
}

impl<S: Subscriber> Layer<S> for Log4jLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let level = *event.metadata().level();
        if level > Level::WARN {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let class = line.class.unwrap_or_else(|| event.metadata().target().to_owned());
        let time = log4j_time(clock::wall_clock());
        let text = format!("[{time}] {level} {}{} ({class})\n", line.message, line.fields);
        // Standard error may be closed; there is no other place to say so.
        let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
    }
}

/// Starts logging, once a process.
pub(crate) fn start() {
    // A second call would mean that another part of the process logs already, which is as good.
    let _ = tracing::subscriber::set_global_default(Registry::default().with(Log4jLayer));
}

/// Logs an error as a Java class would: the text may end with a line break, as stack traces do.
pub(crate) fn error(class: &str, text: &str) {
    tracing::error!(class, "{text}");
}

/// `yyyy-MM-dd HH:mm:ss,SSS` in UTC.
fn log4j_time(time: Timestamp) -> String {
    let milliseconds = time.0.rem_euclid(1000);
    let seconds = time.0.div_euclid(1000);
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02},{milliseconds:03}")
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
fn date(days: i64) -> (i64, i64, i64) {
    // Counted from 1 March of the year 0, so that leap days come last.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use common::ids::Timestamp;

    use super::log4j_time;

    #[test]
    fn times_look_like_log4js() {
        assert_eq!(log4j_time(Timestamp(0)), "1970-01-01 00:00:00,000");
        assert_eq!(log4j_time(Timestamp(1_709_164_799_999)), "2024-02-28 23:59:59,999");
        assert_eq!(log4j_time(Timestamp(1_709_164_800_000)), "2024-02-29 00:00:00,000");
        assert_eq!(log4j_time(Timestamp(1_795_968_299_664)), "2026-11-29 16:04:59,664");
    }
}
