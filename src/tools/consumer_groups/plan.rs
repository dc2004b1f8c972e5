//! What the arguments of `--reset-offsets` say: topics with partitions, times, durations, and files of new offsets.

use std::{collections::BTreeMap, sync::LazyLock};

use common::topic::TopicPartition;
use jiff::{civil::DateTime, tz::Offset};
use regex::Regex;

use super::Failure;
use crate::console::complain;

/// New offsets by group.
pub(super) type Plan = BTreeMap<String, BTreeMap<TopicPartition, i64>>;

/// Words that name partitions, and those that are a topic alone.
pub(super) fn split_topics(words: &[String]) -> (Vec<&str>, Vec<String>) {
    let (with, without): (Vec<&String>, Vec<&String>) =
        words.iter().partition(|word| word.contains(':'));
    let with = with.into_iter().map(String::as_str).collect();
    (with, without.into_iter().cloned().collect())
}

/// `topic:0,1`: partitions of a topic.
pub(super) fn partitions_of(word: &str) -> Result<Vec<TopicPartition>, Failure> {
    // Java's split drops empty parts at the end.
    let parts: Vec<&str> = word.trim_end_matches(':').split(':').collect();
    let [topic, indexes] = parts.as_slice() else {
        return Err(Failure::Refused(format!(
            "Invalid topic arg '{word}', expected topic name and partitions"
        )));
    };
    let partition = |index: &str| match index.parse() {
        Ok(index) => Ok(TopicPartition::new(*topic, index)),
        Err(_) => Err(Failure::Refused(format!(
            "Invalid partition '{index}' specified in topic arg '{word}''"
        ))),
    };
    indexes.trim_end_matches(',').split(',').map(partition).collect()
}

/// Milliseconds of `yyyy-MM-ddTHH:mm:ss.SSS` with a zone, or without one in UTC. Source: `Utils.getDateTime`.
pub(super) fn date_time(text: &str) -> Result<i64, Failure> {
    static FORM: LazyLock<Regex> = LazyLock::new(|| {
        let form = r"^(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)\.(\d+)(Z|[+-]\d{2}(?::?\d{2})?)?";
        Regex::new(form).expect("the pattern is right")
    });
    let refuse = |text: &str| {
        let inner = format!("java.text.ParseException: {text}");
        Failure::thrown("java.lang.RuntimeException", &inner)
    };
    if !text.contains('T') || text.ends_with('T') {
        return Err(refuse(
            "Error parsing timestamp. It does not contain a 'T' according to ISO8601 format",
        ));
    }
    let read = || {
        let found = FORM.captures(text)?;
        let number = |index: usize| found[index].parse::<i64>().ok();
        let small = |index: usize| i8::try_from(number(index)?).ok();
        let date = DateTime::new(
            i16::try_from(number(1)?).ok()?,
            small(2)?,
            small(3)?,
            small(4)?,
            small(5)?,
            small(6)?,
            0,
        );
        let zone = found.get(8).map_or("Z", |zone| zone.as_str());
        let instant = offset(zone)?.to_timestamp(date.ok()?).ok()?;
        instant.as_millisecond().checked_add(number(7)?)
    };
    read().ok_or_else(|| refuse(&format!("Unparseable date: \"{text}\"")))
}

/// `Z`, `+05`, `+0530` or `+05:30`.
fn offset(zone: &str) -> Option<Offset> {
    if zone == "Z" {
        return Some(Offset::UTC);
    }
    let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
    let hours: i32 = digits.get(..2)?.parse().ok()?;
    let minutes: i32 =
        digits.get(2..).filter(|rest| !rest.is_empty()).unwrap_or("0").parse().ok()?;
    let seconds = (hours * 60 + minutes) * 60;
    Offset::from_seconds(if zone.starts_with('-') { -seconds } else { seconds }).ok()
}

/// Milliseconds of `PnDTnHnMn.nS`. Source: `java.time.Duration.parse`.
pub(super) fn duration_ms(text: &str) -> Result<i64, Failure> {
    static FORM: LazyLock<Regex> = LazyLock::new(|| {
        let form = r"(?i)^([-+]?)P(?:([-+]?\d+)D)?(T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?$";
        Regex::new(form).expect("the pattern is right")
    });
    let read = || {
        let found = FORM.captures(text)?;
        let is_empty = (2..=6).all(|index| index == 3 || found.get(index).is_none());
        if is_empty || found.get(3).is_some_and(|time| time.as_str().eq_ignore_ascii_case("T")) {
            return None;
        }
        let number = |index: usize| match found.get(index) {
            Some(digits) => digits.as_str().parse::<i64>().ok(),
            None => Some(0),
        };
        let seconds = number(2)?
            .checked_mul(86_400)?
            .checked_add(number(4)?.checked_mul(3600)?)?
            .checked_add(number(5)?.checked_mul(60)?)?
            .checked_add(number(6)?)?;
        let fraction: String =
            found.get(7).map_or("", |digits| digits.as_str()).chars().take(3).collect();
        let fraction: i64 = format!("{fraction:0<3}").parse().ok()?;
        let is_negative = found.get(6).is_some_and(|digits| digits.as_str().starts_with('-'));
        let fraction = if is_negative { -fraction } else { fraction };
        let total = seconds.checked_mul(1000)?.checked_add(fraction)?;
        Some(if &found[1] == "-" { -total } else { total })
    };
    read().ok_or_else(|| {
        Failure::thrown(
            "java.time.format.DateTimeParseException",
            "Text cannot be parsed to a Duration",
        )
    })
}

/// Reads a file of new offsets: `topic,partition,offset` for the one group that is named, else with the group in
/// front. Missing fields are 0, as Kafka has it.
pub(super) fn read_plan(text: &str, groups: &[String]) -> Result<Plan, Failure> {
    let lines: Vec<&str> = text.trim_end_matches('\n').split('\n').collect();
    let first = lines.first().map_or(Ok(()), |line| parse_line(line, Shape::NoGroup).map(drop));
    if let Err(error) = &first {
        complain(error);
    }
    let (shape, only) = match groups {
        [group] if first.is_ok() => (Shape::NoGroup, Some(group)),
        _ => (Shape::WithGroup, None),
    };
    let mut plan = Plan::new();
    for line in lines {
        let parsed = parse_line(line, shape)
            .map_err(|error| Failure::thrown("java.lang.RuntimeException", &error))?;
        let group = only.cloned().unwrap_or(parsed.group);
        plan.entry(group).or_default().insert(parsed.partition, parsed.offset);
    }
    Ok(plan)
}

/// The columns of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    NoGroup,
    WithGroup,
}

struct Line {
    group: String,
    partition: TopicPartition,
    offset: i64,
}

/// The error is that of Jackson, class and all.
fn parse_line(line: &str, shape: Shape) -> Result<Line, String> {
    if line.is_empty() {
        return Err(
            "com.fasterxml.jackson.databind.exc.MismatchedInputException: No content to map due to end-of-input\n at [Source: (StringReader); line: 1, column: 1]"
                .to_owned(),
        );
    }
    let fields = fields(line);
    let (most, class) = match shape {
        Shape::NoGroup => (3, "CsvRecordNoGroup"),
        Shape::WithGroup => (4, "CsvRecordWithGroup"),
    };
    let group_count = most - 3;
    let text = |index: usize| fields.get(index).map_or("", |(_, text)| text.as_str()).to_owned();
    let number = |index: usize, name: &str, java: &str| {
        let Some((column, text)) = fields.get(index) else { return Ok(0) };
        text.trim().parse::<i64>().map_err(|_| {
            format!(
                "com.fasterxml.jackson.databind.exc.InvalidFormatException: Cannot deserialize value of type `{java}` from String \"{text}\": not a valid `{java}` value\n at [Source: (StringReader); line: 1, column: {column}] (through reference chain: org.apache.kafka.tools.consumer.group.CsvUtils${class}[\"{name}\"])"
            )
        })
    };
    let group = if shape == Shape::WithGroup { text(0) } else { String::new() };
    let index = number(group_count + 1, "partition", "int")?;
    let offset = number(group_count + 2, "offset", "long")?;
    if let Some((_, extra)) = fields.get(most) {
        let length = extra.chars().count();
        return Err(format!(
            "com.fasterxml.jackson.dataformat.csv.CsvReadException: Too many entries: expected at most {most} (value #{most} ({length} chars) \"{extra}\")"
        ));
    }
    let index = i32::try_from(index).map_err(|error| error.to_string())?;
    Ok(Line { group, partition: TopicPartition::new(text(group_count), index), offset })
}

/// Fields of a line with the columns in which they begin, counted from 1.
fn fields(line: &str) -> Vec<(usize, String)> {
    let line = line.trim_end_matches('\r');
    let mut fields = vec![(1, String::new())];
    let mut is_quoted = false;
    let mut letters = line.chars().enumerate().peekable();
    while let Some((at, letter)) = letters.next() {
        let (_, field) = fields.last_mut().expect("there is always a field");
        match letter {
            '"' if is_quoted && letters.peek().is_some_and(|(_, next)| *next == '"') => {
                letters.next();
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push((at + 2, String::new())),
            letter => field.push(letter),
        }
    }
    fields
}

/// A text as Jackson writes it: quoted when it is long or holds what has a meaning.
pub(super) fn csv_field(text: &str) -> String {
    const UNQUOTED_MAX: usize = 24;
    // All up to the separator may have a meaning.
    let is_plain = text.chars().count() <= UNQUOTED_MAX && !text.contains(|letter| letter <= ',');
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::{Failure, csv_field, date_time, duration_ms, partitions_of, read_plan};

    fn text(failure: Failure) -> String {
        match failure {
            Failure::Failed { message, .. } | Failure::Refused(message) => message,
        }
    }

    #[test]
    fn partitions_follow_the_topic() {
        let names = |word: &str| {
            partitions_of(word)
                .map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
                .map_err(text)
        };
        assert_eq!(names("t:0,2"), Ok("t-0 t-2".to_owned()));
        assert!(names("t:0:1").unwrap_err().starts_with("Invalid topic arg 't:0:1'"));
        assert!(names("t:x").unwrap_err().starts_with("Invalid partition 'x'"));
    }

    #[test]
    fn times_are_utc_unless_they_say_otherwise() {
        let time = |word: &str| date_time(word).map_err(text);
        let expected = 1_700_000_000_004;
        for word in ["2023-11-14T22:13:20.004", "2023-11-14T22:13:20.004Z"] {
            assert_eq!(time(word), Ok(expected), "{word}");
        }
        for zone in ["+02", "+0200", "+02:00"] {
            assert_eq!(time(&format!("2023-11-15T00:13:20.004{zone}")), Ok(expected), "{zone}");
        }
        assert!(time("nonsense").unwrap_err().contains("does not contain a 'T'"));
        assert!(time("2023-11-14T22").unwrap_err().contains("Unparseable date"));
    }

    #[test]
    fn durations_are_javas() {
        let milliseconds = |word: &str| duration_ms(word).map_err(text);
        assert_eq!(milliseconds("PT1H"), Ok(3_600_000));
        assert_eq!(milliseconds("P1DT1M2.5S"), Ok(86_462_500));
        assert_eq!(milliseconds("-PT1S"), Ok(-1000));
        assert_eq!(milliseconds("pt-1.5s"), Ok(-1500));
        for bad in ["nonsense", "P", "PT", "P1DT", "1H"] {
            assert!(milliseconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_come_with_and_without_groups() {
        let plan = |file: &str, groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            let plan = read_plan(file, &groups).map_err(text)?;
            let shown = plan.iter().flat_map(|(group, offsets)| {
                offsets.iter().map(move |(name, offset)| format!("{group} {name} {offset}"))
            });
            Ok::<_, String>(shown.collect::<Vec<_>>().join(", "))
        };
        assert_eq!(plan("t,0,1\nt,1,2\n", &["g"]), Ok("g t-0 1, g t-1 2".to_owned()));
        assert_eq!(plan("g,t,0,1\nh,t,0,2\n", &["g", "h"]), Ok("g t-0 1, h t-0 2".to_owned()));
        assert_eq!(plan("t,0\n", &["g"]), Ok("g t-0 0".to_owned()));
        assert_eq!(plan("\"t,u\",0,1", &["g"]), Ok("g t,u-0 1".to_owned()));
        assert!(plan("g,t,x,1", &["g", "h"]).is_err());
        for no_content in ["", "\n", "t,0,1\n\nt,1,2"] {
            assert!(plan(no_content, &["g"]).unwrap_err().contains("No content to map"));
        }
    }

    #[test]
    fn names_that_are_long_or_odd_are_quoted() {
        for plain in ["topic", "a.b_c-d", "grüppe"] {
            assert_eq!(csv_field(plain), plain);
        }
        for odd in ["g+x", "my group", "a#b", "a,b"] {
            assert_eq!(csv_field(odd), format!("\"{odd}\""));
        }
        assert_eq!(
            csv_field("a-topic-with-a-rather-long-name"),
            "\"a-topic-with-a-rather-long-name\""
        );
    }
}
