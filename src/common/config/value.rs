//! Values of keys: parsed and printed as Kafka's `ConfigDef` does it.

use std::fmt;

use super::table::{ConfigKey, Kind};

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

/// What stands for a secret in logs and answers.
pub const HIDDEN: &str = "[hidden]";

impl Password {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Password {
        Password(secret.into())
    }

    /// The secret itself, for the one who must use it.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(HIDDEN)
    }
}

impl fmt::Display for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(HIDDEN)
    }
}

/// A parsed value. `Display` gives what Kafka's `ConfigDef.convertToString` gives, secrets hidden.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// See `Kind::Boolean`.
    Boolean(bool),
    /// See `Kind::String`.
    String(String),
    /// See `Kind::Int`.
    Int(i32),
    /// See `Kind::Short`.
    Short(i16),
    /// See `Kind::Long`.
    Long(i64),
    /// See `Kind::Double`.
    Double(f64),
    /// See `Kind::List`.
    List(Vec<String>),
    /// See `Kind::Class`.
    Class(String),
    /// See `Kind::Password`.
    Password(Password),
}

/// A refused value: the key, the value as given (secrets hidden), and Kafka's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key.
    pub key: String,
    /// The value as it was given; `None` where it is missing.
    pub value: Option<String>,
    /// Kafka's whole message.
    pub message: String,
}

impl ConfigError {
    /// Kafka's `ConfigException(name, value, reason)`.
    pub fn invalid(key: &str, value: impl fmt::Display, reason: impl fmt::Display) -> ConfigError {
        let value = value.to_string();
        ConfigError {
            message: format!("Invalid value {value} for configuration {key}: {reason}"),
            key: key.to_owned(),
            value: Some(value),
        }
    }

    /// A check over several keys that failed, laid to the one that an operator would change.
    pub fn conflict(key: &str, value: Option<String>, message: impl Into<String>) -> ConfigError {
        ConfigError { key: key.to_owned(), value, message: message.into() }
    }
}

impl fmt::Display for ConfigError {
    /// Kafka's words, and behind them the setting where they do not name it as one.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { key, value, message } = self;
        formatter.write_str(message)?;
        match value {
            Some(value) if message.contains(&format!("{value} for configuration {key}:")) => Ok(()),
            Some(value) => write!(formatter, " ({key}={value})"),
            None if message.contains(&format!("`{key}`")) => Ok(()),
            None => write!(formatter, " ({key} is not set)"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Java's `String.trim`: off with everything up to the space.
pub(super) fn java_trim(text: &str) -> &str {
    text.trim_matches(|character| character <= ' ')
}

impl Value {
    /// Parses a value by the key's type. The range is not checked: see `ConfigKey::valid`.
    pub fn parse(key: &ConfigKey, text: &str) -> Result<Value, ConfigError> {
        let trimmed = java_trim(text);
        let refuse = |reason: &str| {
            let shown = if key.is_secret() { HIDDEN } else { text };
            Err(ConfigError::invalid(key.name, shown, reason))
        };
        let number = || refuse(&format!("Not a number of type {}", key.kind.name()));
        match key.kind {
            Kind::Boolean if trimmed.eq_ignore_ascii_case("true") => Ok(Value::Boolean(true)),
            Kind::Boolean if trimmed.eq_ignore_ascii_case("false") => Ok(Value::Boolean(false)),
            Kind::Boolean => refuse("Expected value to be either true or false"),
            Kind::String => Ok(Value::String(trimmed.to_owned())),
            Kind::Password => Ok(Value::Password(Password::new(trimmed))),
            Kind::Class => Ok(Value::Class(trimmed.to_owned())),
            Kind::Int => trimmed.parse().map(Value::Int).or_else(|_| number()),
            Kind::Short => trimmed.parse().map(Value::Short).or_else(|_| number()),
            Kind::Long => trimmed.parse().map(Value::Long).or_else(|_| number()),
            Kind::Double => parse_java_double(trimmed).map(Value::Double).map_or_else(number, Ok),
            Kind::List => Ok(Value::List(parse_list(trimmed))),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Boolean(value) => value.fmt(formatter),
            Value::String(value) | Value::Class(value) => formatter.write_str(value),
            Value::Int(value) => value.fmt(formatter),
            Value::Short(value) => value.fmt(formatter),
            Value::Long(value) => value.fmt(formatter),
            Value::Double(value) => formatter.write_str(&java_double(*value)),
            Value::List(value) => formatter.write_str(&value.join(",")),
            Value::Password(value) => value.fmt(formatter),
        }
    }
}

/// Splits at commas, white space around them dropped; empty elements stay, as in Kafka.
fn parse_list(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',')
        .map(|element| element.trim_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']).to_owned())
        .collect()
}

/// Java's `Double.parseDouble`, but for hexadecimal.
fn parse_java_double(text: &str) -> Option<f64> {
    let number = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let digits = number.trim_start_matches(['+', '-']);
    match digits {
        "NaN" | "Infinity" => number.parse().ok(),
        _ if digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') => {
            number.parse().ok()
        }
        _ => None,
    }
}

/// Java's `Double.toString`: always a decimal point, exponents outside 10^-3 to 10^7.
pub fn java_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let size = value.abs();
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        let plain = value.to_string();
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let scientific = format!("{value:E}");
    match scientific.split_once('E') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => {
            format!("{mantissa}.0E{exponent}")
        }
        _ => scientific,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table::{Importance, broker_key, int};

    fn parse(kind: Kind, text: &str) -> String {
        let key = ConfigKey { kind, ..int("some.key", Importance::Low) };
        match Value::parse(&key, text) {
            Ok(value) => format!("{value:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn values_are_read_as_java_reads_them() {
        assert_eq!(parse(Kind::Boolean, " TRUE "), "Boolean(true)");
        assert_eq!(parse(Kind::Int, "\t+7 "), "Int(7)");
        assert_eq!(parse(Kind::Double, "1e3"), "Double(1000.0)");
        assert_eq!(parse(Kind::Double, ".5d"), "Double(0.5)");
        assert_eq!(parse(Kind::List, " a , b,,c "), r#"List(["a", "b", "", "c"])"#);
        assert_eq!(parse(Kind::List, "  "), "List([])");
        assert_eq!(parse(Kind::Password, "hush"), "Password([hidden])");
    }

    #[test]
    fn wrong_values_are_refused_in_kafkas_words() {
        let invalid = "Invalid value";
        let of = "for configuration some.key:";
        assert_eq!(
            parse(Kind::Boolean, "yes"),
            format!("{invalid} yes {of} Expected value to be either true or false")
        );
        assert_eq!(parse(Kind::Int, "abc"), format!("{invalid} abc {of} Not a number of type INT"));
        assert_eq!(
            parse(Kind::Int, "2147483648"),
            format!("{invalid} 2147483648 {of} Not a number of type INT")
        );
        assert_eq!(parse(Kind::Short, ""), format!("{invalid}  {of} Not a number of type SHORT"));
        assert_eq!(
            parse(Kind::Long, "1.5"),
            format!("{invalid} 1.5 {of} Not a number of type LONG")
        );
        assert_eq!(
            parse(Kind::Double, "inf"),
            format!("{invalid} inf {of} Not a number of type DOUBLE")
        );
    }

    #[test]
    fn doubles_are_printed_as_java_prints_them() {
        let cases = [
            (f64::MAX, "1.7976931348623157E308"),
            (0.9, "0.9"),
            (0.0, "0.0"),
            (-1.0, "-1.0"),
            (1e7, "1.0E7"),
            (9_999_999.0, "9999999.0"),
            (0.001, "0.001"),
            (1.5e-4, "1.5E-4"),
            (2_147_483_647.0, "2.147483647E9"),
        ];
        for (value, text) in cases {
            assert_eq!(java_double(value), text);
        }
    }

    #[test]
    fn an_error_names_key_and_value_even_where_kafkas_text_does_not() {
        let error = ConfigError::conflict("broker.id", Some("-5".to_owned()), "broker.id is wrong");
        assert_eq!(error.to_string(), "broker.id is wrong (broker.id=-5)");
        let key = broker_key("ssl.key.password").expect("in the table");
        assert!(key.is_secret());
    }
}
