//! A line as Kafka writes it: `[2026-11-29 16:53:09,270] INFO starting (kafka.server.KafkaServer)`.

use std::fmt::{self, Write};

use common::ids::Timestamp;
use jiff::tz::TimeZone;
use tracing::Event;
use tracing::field::{Field, Visit};

/// Longest line; the rest is cut, so that one event cannot fill a sink's queue.
const LINE_BYTES_MAX: usize = 256 * 1024;

/// Local time, as Kafka's logs have it.
#[derive(Debug)]
pub(super) struct Clock(TimeZone);

impl Clock {
    /// The zone of `TZ`, else the system's, else UTC.
    pub(super) fn local() -> Clock {
        Clock(TimeZone::system())
    }

    /// `yyyy-MM-dd HH:mm:ss,SSS`.
    fn text(&self, time: Timestamp) -> String {
        let instant = jiff::Timestamp::from_millisecond(time.0).unwrap_or_default();
        let local = self.0.to_datetime(instant);
        format!("{},{:03}", local.strftime("%Y-%m-%d %H:%M:%S"), time.0.rem_euclid(1000))
    }
}

/// Formats an event with its line end: the message, then its fields as `key=value`.
pub(super) fn format(event: &Event<'_>, logger: &str, clock: &Clock) -> String {
    let mut parts = Parts::default();
    event.record(&mut parts);
    let time = clock.text(common::clock::wall_clock());
    let level = event.metadata().level();
    let separator = if parts.message.is_empty() { "" } else { parts.separator() };
    let mut text = format!("{}{separator}{}", parts.message, parts.fields);
    cut(&mut text);
    format!("[{time}] {level} {text} ({logger})\n")
}

/// Cuts at the limit, between characters.
fn cut(text: &mut String) {
    if text.len() > LINE_BYTES_MAX {
        let end = (0..=LINE_BYTES_MAX).rev().find(|index| text.is_char_boundary(*index));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
}

#[derive(Default)]
struct Parts {
    message: String,
    fields: String,
}

impl Parts {
    fn separator(&self) -> &'static str {
        if self.fields.is_empty() { "" } else { " " }
    }

    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let text = value.to_string();
        if field.name() == "message" {
            // The messages are ours, and some have several lines.
            self.message = escape(&text, |character| matches!(character, '\n' | '\t'));
            return;
        }
        let separator = self.separator();
        let text = escape(&text, |_| false);
        let written = if text.is_empty() || text.contains([' ', '"']) {
            write!(self.fields, "{separator}{}=\"{}\"", field.name(), text.replace('"', "\\\""))
        } else {
            write!(self.fields, "{separator}{}={text}", field.name())
        };
        written.expect("a string takes all that is written");
    }
}

/// Makes control characters visible, so that no peer writes lines of its own.
fn escape(text: &str, is_kept: fn(char) -> bool) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if character.is_control() && !is_kept(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut chain = value.to_string();
        let mut source = value.source();
        while let Some(error) = source {
            chain = format!("{chain}: {error}");
            source = error.source();
        }
        self.add(field, format_args!("{chain}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_local_and_has_a_comma() {
        let utc = Clock(TimeZone::UTC);
        assert_eq!(utc.text(Timestamp(1_796_000_000_007)), "2026-11-30 00:53:20,007");
        let offset = Clock(TimeZone::fixed(jiff::tz::offset(2)));
        assert_eq!(offset.text(Timestamp(0)), "1970-01-01 02:00:00,000");
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        let mut text = "é".repeat(LINE_BYTES_MAX);
        text.insert(0, 'a');
        cut(&mut text);
        assert!(text.len() <= LINE_BYTES_MAX + 3 && text.ends_with("é..."));
    }

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(escape("a\nb\u{1b}[31m", |_| false), "a\\nb\\u{1b}[31m");
        assert_eq!(escape("a\nb\rc", |character| character == '\n'), "a\nb\\rc");
    }
}
