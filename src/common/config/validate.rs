//! Checks of one parsed value, with the texts of Kafka's `ConfigDef` validators.

use std::fmt;

use super::ibp::MetadataVersion;
use super::value::{ConfigError, Value};

/// What a value must fulfil.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Valid {
    /// Anything of the type.
    Any,
    /// A number of at least this.
    AtLeast(i64),
    /// A number between the two, both included.
    Between(i64, i64),
    /// A floating-point number between the two, both included; printed as given.
    Fraction(f64, f64),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// One of these texts, in any case.
    OneOfAnyCase(&'static [&'static str]),
    /// A list of these texts.
    ListOf(&'static [&'static str]),
    /// Not null.
    NonNull,
    /// Not the empty text; null is fine.
    NonEmpty,
    /// -1, or more than 0.
    MinusOneOrPositive,
    /// A gzip level, or -1 for the library's choice.
    GzipLevel,
    /// A version of Kafka, as `inter.broker.protocol.version` takes it.
    Version,
    /// `partition:broker` pairs, or a lone `*`.
    ThrottledReplicas,
}

impl Valid {
    /// Checks a parsed value; `None` is Kafka's null.
    pub fn check(self, key: &str, value: Option<&Value>) -> Result<(), ConfigError> {
        let refuse = |reason: String| {
            let shown = value.map_or_else(|| "null".to_owned(), shown);
            Err(ConfigError::invalid(key, shown, reason))
        };
        match self {
            Valid::Any => Ok(()),
            Valid::NonNull if value.is_none() => refuse("entry must be non null".to_owned()),
            Valid::AtLeast(_) | Valid::Between(..) | Valid::Fraction(..) | Valid::GzipLevel
                if value.is_none() =>
            {
                refuse("Value must be non-null".to_owned())
            }
            Valid::AtLeast(least) => below(value, least).map_or(Ok(()), refuse),
            Valid::Between(least, most) => {
                below(value, least).or_else(|| above(value, most)).map_or(Ok(()), refuse)
            }
            Valid::Fraction(least, most) => match value {
                Some(Value::Double(number)) if *number < least => {
                    refuse(format!("Value must be at least {least}"))
                }
                Some(Value::Double(number)) if *number > most => {
                    refuse(format!("Value must be no more than {most}"))
                }
                _ => Ok(()),
            },
            Valid::OneOf(texts) => match text(value) {
                Some(text) if texts.contains(&text) => Ok(()),
                _ => refuse(format!("String must be one of: {}", texts.join(", "))),
            },
            Valid::OneOfAnyCase(texts) => match text(value) {
                Some(text) if texts.iter().any(|one| one.eq_ignore_ascii_case(text)) => Ok(()),
                _ => refuse(format!(
                    "String must be one of (case insensitive): {}",
                    texts.join(", ")
                )),
            },
            Valid::ListOf(texts) => check_list(key, value, texts),
            Valid::NonEmpty if text(value) == Some("") => {
                refuse("String must be non-empty".to_owned())
            }
            Valid::MinusOneOrPositive => match value {
                Some(Value::Int(number)) if *number < -1 || *number == 0 => {
                    refuse("Value can be -1 or greater than 0".to_owned())
                }
                _ => Ok(()),
            },
            Valid::GzipLevel => match value {
                Some(Value::Int(-1 | 1..=9)) => Ok(()),
                _ => refuse("Value must be between 1 and 9 or equal to -1".to_owned()),
            },
            Valid::Version => match text(value) {
                Some(version) if MetadataVersion::parse(version).is_none() => {
                    refuse(format!("Version {version} is not a valid version"))
                }
                _ => Ok(()),
            },
            Valid::ThrottledReplicas => match value {
                Some(Value::List(elements)) if !are_throttled_replicas(elements) => {
                    refuse(format!(
                        "{key} must be the literal '*' or a list of replicas in the following format: \
                     [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                    ))
                }
                _ => Ok(()),
            },
            Valid::NonNull | Valid::NonEmpty => Ok(()),
        }
    }
}

/// What a value may be, for the documentation.
impl fmt::Display for Valid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Valid::Any => Ok(()),
            Valid::AtLeast(least) => write!(formatter, "[{least},...]"),
            Valid::Between(least, most) => write!(formatter, "[{least},...,{most}]"),
            Valid::Fraction(least, most) => write!(formatter, "[{least},...,{most}]"),
            Valid::OneOf(texts) => write!(formatter, "[{}]", texts.join(", ")),
            Valid::OneOfAnyCase(texts) => {
                write!(formatter, "(case insensitive) [{}]", texts.join(", "))
            }
            Valid::ListOf(texts) => write!(formatter, "list of [{}]", texts.join(", ")),
            Valid::NonNull => formatter.write_str("non-null"),
            Valid::NonEmpty => formatter.write_str("non-empty string"),
            Valid::MinusOneOrPositive => formatter.write_str("-1 or greater than 0"),
            Valid::GzipLevel => formatter.write_str("[1,...,9] or -1"),
            Valid::Version => formatter.write_str("a Kafka version"),
            Valid::ThrottledReplicas => formatter.write_str("partition:broker pairs, or *"),
        }
    }
}

/// A refused value in an error text, as Java's `toString` has it.
fn shown(value: &Value) -> String {
    match value {
        Value::List(elements) => format!("[{}]", elements.join(", ")),
        other => other.to_string(),
    }
}

fn text(value: Option<&Value>) -> Option<&str> {
    match value {
        Some(Value::String(text) | Value::Class(text)) => Some(text),
        _ => None,
    }
}

fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Int(number) => Some(f64::from(*number)),
        Value::Short(number) => Some(f64::from(*number)),
        Value::Long(number) => Some(double(*number)),
        Value::Double(number) => Some(*number),
        _ => None,
    }
}

/// Kafka compares as doubles, so the largest longs are a little coarse here too.
fn double(number: i64) -> f64 {
    number as f64
}

fn below(value: Option<&Value>, least: i64) -> Option<String> {
    let is_below = number(value)? < double(least);
    is_below.then(|| format!("Value must be at least {least}"))
}

fn above(value: Option<&Value>, most: i64) -> Option<String> {
    let is_above = number(value)? > double(most);
    is_above.then(|| format!("Value must be no more than {most}"))
}

fn check_list(key: &str, value: Option<&Value>, texts: &[&str]) -> Result<(), ConfigError> {
    let Some(Value::List(elements)) = value else { return Ok(()) };
    match elements.iter().find(|element| !texts.contains(&element.as_str())) {
        None => Ok(()),
        Some(wrong) => {
            let reason = format!("String must be one of: {}", texts.join(", "));
            Err(ConfigError::invalid(key, wrong, reason))
        }
    }
}

fn are_throttled_replicas(elements: &[String]) -> bool {
    let is_pair = |element: &str| {
        element.split_once(':').is_some_and(|(partition, broker)| {
            [partition, broker].iter().all(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        })
    };
    let trimmed = || elements.iter().map(|element| element.trim());
    trimmed().all(|element| element.is_empty() || is_pair(element))
        || trimmed().collect::<String>() == "*"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(valid: Valid, value: Option<Value>) -> String {
        match valid.check("k", value.as_ref()) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.message,
        }
    }

    #[test]
    fn ranges() {
        let int = |number| Some(Value::Int(number));
        assert_eq!(reason(Valid::AtLeast(1), int(1)), "ok");
        assert_eq!(
            reason(Valid::AtLeast(1), int(0)),
            "Invalid value 0 for configuration k: Value must be at least 1"
        );
        assert_eq!(
            reason(Valid::AtLeast(1), None),
            "Invalid value null for configuration k: Value must be non-null"
        );
        assert_eq!(
            reason(Valid::Between(1, 17), int(18)),
            "Invalid value 18 for configuration k: Value must be no more than 17"
        );
        assert_eq!(
            reason(Valid::Between(0, 1), Some(Value::Double(-1.0))),
            "Invalid value -1.0 for configuration k: Value must be at least 0"
        );
        assert_eq!(
            reason(Valid::GzipLevel, int(0)),
            "Invalid value 0 for configuration k: Value must be between 1 and 9 or equal to -1"
        );
    }

    #[test]
    fn texts_and_lists() {
        let string = |text: &str| Some(Value::String(text.to_owned()));
        let list =
            |texts: &[&str]| Some(Value::List(texts.iter().map(|t| (*t).to_owned()).collect()));
        assert_eq!(
            reason(Valid::OneOf(&["a", "b"]), string("A")),
            "Invalid value A for configuration k: String must be one of: a, b"
        );
        assert_eq!(reason(Valid::OneOfAnyCase(&["a"]), string("A")), "ok");
        assert_eq!(
            reason(Valid::ListOf(&["compact", "delete"]), list(&["compact", ""])),
            "Invalid value  for configuration k: String must be one of: compact, delete"
        );
        assert_eq!(
            reason(Valid::Version, string("9.9")),
            "Invalid value 9.9 for configuration k: Version 9.9 is not a valid version"
        );
        for good in [&["1:2", "3:4"][..], &["*"], &[""], &[]] {
            assert_eq!(reason(Valid::ThrottledReplicas, list(good)), "ok");
        }
        assert!(reason(Valid::ThrottledReplicas, list(&["1"])).contains("literal '*'"));
    }
}
