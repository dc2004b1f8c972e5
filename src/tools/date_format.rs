//! Times in the patterns of `java.text.SimpleDateFormat`, as far as tools show them: in English, without zone names.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// A pattern, in a zone.
pub(crate) struct DateFormat {
    parts: Vec<Part>,
    zone: TimeZone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Shown as it is.
    Text(String),
    /// A letter, and how often it stands.
    Field(char, usize),
}

/// Letters that are shown.
const LETTERS: &str = "yMdHhkKmsSaEDuXZ";

impl DateFormat {
    /// Reads a pattern; the error is Java's.
    pub(crate) fn new(pattern: &str, zone: TimeZone) -> Result<DateFormat, String> {
        let mut parts: Vec<Part> = Vec::new();
        let mut letters = pattern.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\'' if letters.next_if_eq(&'\'').is_some() => push_text(&mut parts, '\''),
                '\'' => loop {
                    match letters.next() {
                        Some('\'') if letters.next_if_eq(&'\'').is_some() => {
                            push_text(&mut parts, '\'');
                        }
                        Some('\'') => break,
                        Some(letter) => push_text(&mut parts, letter),
                        None => return Err("Unterminated quote".to_owned()),
                    }
                },
                letter if letter.is_ascii_alphabetic() => {
                    if !LETTERS.contains(letter) {
                        return Err(format!("Illegal pattern character '{letter}'"));
                    }
                    let mut count = 1;
                    while letters.next_if_eq(&letter).is_some() {
                        count += 1;
                    }
                    parts.push(Part::Field(letter, count));
                }
                letter => push_text(&mut parts, letter),
            }
        }
        Ok(DateFormat { parts, zone })
    }

    /// The time, in milliseconds since 1970, as text.
    pub(crate) fn show(&self, time_ms: i64) -> String {
        let instant = Timestamp::from_millisecond(time_ms).unwrap_or_default();
        let time = self.zone.to_datetime(instant);
        let offset = self.zone.to_offset(instant).seconds();
        let show = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field('X' | 'Z', count) => shown_offset(offset, *count),
            Part::Field(letter, count) => field(time, *letter, *count),
        };
        self.parts.iter().map(show).collect()
    }
}

fn push_text(parts: &mut Vec<Part>, letter: char) {
    match parts.last_mut() {
        Some(Part::Text(text)) => text.push(letter),
        _ => parts.push(Part::Text(letter.to_string())),
    }
}

fn field(time: DateTime, letter: char, count: usize) -> String {
    let number = |value: i64| format!("{value:0count$}");
    let hour = i64::from(time.hour());
    match letter {
        'y' if count == 2 => format!("{:02}", time.year() % 100),
        'y' => number(i64::from(time.year())),
        'M' if count >= 4 => time.strftime("%B").to_string(),
        'M' if count == 3 => time.strftime("%b").to_string(),
        'M' => number(i64::from(time.month())),
        'd' => number(i64::from(time.day())),
        'D' => number(i64::from(time.date().day_of_year())),
        'H' => number(hour),
        'k' => number(if hour == 0 { 24 } else { hour }),
        'K' => number(hour % 12),
        'h' => number(if hour % 12 == 0 { 12 } else { hour % 12 }),
        'm' => number(i64::from(time.minute())),
        's' => number(i64::from(time.second())),
        'S' => number(i64::from(time.subsec_nanosecond() / 1_000_000)),
        'a' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
        'E' if count >= 4 => time.strftime("%A").to_string(),
        'E' => time.strftime("%a").to_string(),
        'u' => number(i64::from(time.date().weekday().to_monday_one_offset())),
        // The table of letters has no other.
        _ => String::new(),
    }
}

/// `Z`, `+0200`, or `+02:00` for three letters.
fn shown_offset(seconds: i32, count: usize) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    let colon = if count >= 3 { ":" } else { "" };
    match minutes {
        0 => "Z".to_owned(),
        _ => format!("{sign}{:02}{colon}{:02}", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::DateFormat;

    #[test]
    fn patterns_are_javas() {
        let show = |pattern: &str| {
            DateFormat::new(pattern, TimeZone::UTC).unwrap().show(1_795_968_299_064)
        };
        assert_eq!(show("yyyy-MM-dd HH:mm:ss:SSS"), "2026-11-29 16:04:59:064");
        assert_eq!(show("d MMM yy, h 'o''clock' a EEE XXX"), "29 Nov 26, 4 o'clock PM Sun Z");
        let error = |pattern: &str| DateFormat::new(pattern, TimeZone::UTC).err().unwrap();
        assert_eq!(error("yyyy-Q"), "Illegal pattern character 'Q'");
        assert_eq!(error("yyyy'x"), "Unterminated quote");
    }
}
