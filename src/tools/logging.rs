//! Log lines of the tools, as `config/tools-log4j.properties` has them: warnings and errors, to standard error.

use std::{
    fmt::{self, Write},
    io,
};

use common::{clock, ids::Timestamp};
use jiff::tz::TimeZone;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, Registry, layer::Context, layer::SubscriberExt};

/// Prints `[time] LEVEL text (class)`.
struct Log4jLayer {
    zone: TimeZone,
}

/// Message and class of an event; other fields follow the message.
#[derive(Default)]
struct Line {
    message: String,
    class: Option<String>,
    /// Java's exception, on a line of its own below.
    throwable: Option<String>,
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
            "throwable" => self.throwable = Some(value.to_owned()),
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
        let time = log4j_time(clock::wall_clock(), &self.zone);
        let mut text = format!("[{time}] {level} {}{} ({class})\n", line.message, line.fields);
        if let Some(throwable) = line.throwable {
            text.push_str(&throwable);
            text.push('\n');
        }
        // Standard error may be closed; there is no other place to say so.
        let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
    }
}

/// Starts logging, once a process.
pub(crate) fn start() {
    let layer = Log4jLayer { zone: TimeZone::system() };
    // A second call would mean that another part of the process logs already, which is as good.
    let _ = tracing::subscriber::set_global_default(Registry::default().with(layer));
}

/// Logs an error as a Java class would: the text may end with a line break, as stack traces do.
pub(crate) fn error(class: &str, text: &str) {
    tracing::error!(class, "{text}");
}

/// Logs an error with the exception that caused it.
pub(crate) fn error_with(class: &str, text: &str, throwable: &str) {
    tracing::error!(class, throwable, "{text}");
}

/// `yyyy-MM-dd HH:mm:ss,SSS`, in the zone of `TZ` or of the system.
fn log4j_time(time: Timestamp, zone: &TimeZone) -> String {
    let instant = jiff::Timestamp::from_millisecond(time.0).unwrap_or_default();
    let local = zone.to_datetime(instant);
    format!("{},{:03}", local.strftime("%Y-%m-%d %H:%M:%S"), time.0.rem_euclid(1000))
}

#[cfg(test)]
mod tests {
    use common::ids::Timestamp;
    use jiff::tz::TimeZone;

    use super::log4j_time;

    #[test]
    fn times_look_like_log4js() {
        let time = log4j_time(Timestamp(1_795_968_299_064), &TimeZone::UTC);
        assert_eq!(time, "2026-11-29 16:04:59,064");
    }
}
