//! The answers of the admin server: values with their order kept, written as Jackson writes them.

use std::fmt;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Integer(i64),
    Double(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    pub(crate) fn text(text: impl Into<String>) -> Json {
        Json::Text(text.into())
    }

    /// A count or a size; no machine has one that does not fit.
    pub(crate) fn count(count: impl TryInto<i64>) -> Json {
        Json::Integer(count.try_into().unwrap_or(i64::MAX))
    }

    /// An object with its keys in this order.
    pub(crate) fn object<const N: usize>(entries: [(&str, Json); N]) -> Json {
        Json::Object(entries.map(|(key, value)| (key.to_owned(), value)).into())
    }

    fn write(&self, depth: usize, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => out.write_str("null"),
            Json::Bool(value) => write!(out, "{value}"),
            Json::Integer(value) => write!(out, "{value}"),
            Json::Double(value) => out.write_str(&double(*value)),
            Json::Text(text) => write_text(text, out),
            Json::List(values) => {
                out.write_str("[ ")?;
                for (position, value) in values.iter().enumerate() {
                    if position > 0 {
                        out.write_str(", ")?;
                    }
                    value.write(depth, out)?;
                }
                out.write_str(if values.is_empty() { "]" } else { " ]" })
            }
            Json::Object(entries) if entries.is_empty() => out.write_str("{ }"),
            Json::Object(entries) => {
                out.write_str("{\n")?;
                for (position, (key, value)) in entries.iter().enumerate() {
                    write!(out, "{:1$}", "", 2 * (depth + 1))?;
                    write_text(key, out)?;
                    out.write_str(" : ")?;
                    value.write(depth + 1, out)?;
                    out.write_str(if position + 1 < entries.len() { ",\n" } else { "\n" })?;
                }
                write!(out, "{:1$}}}", "", 2 * depth)
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(0, formatter)
    }
}

/// As Java prints a double: with a point.
pub(crate) fn double(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.1}") } else { value.to_string() }
}

fn write_text(text: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    use fmt::Write as _;
    out.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\u{8}' => out.write_str("\\b")?,
            '\u{c}' => out.write_str("\\f")?,
            control if control < ' ' => write!(out, "\\u{:04X}", u32::from(control))?,
            character => out.write_char(character)?,
        }
    }
    out.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_lists_are_written_as_jackson_does() {
        let json = Json::object([
            ("b", Json::List(vec![Json::Integer(1), Json::text("a\"\n\u{1}")])),
            ("a", Json::object([("empty", Json::Object(vec![])), ("list", Json::List(vec![]))])),
            ("double", Json::Double(0.0)),
            ("null", Json::Null),
        ]);
        let expected = "{\n  \"b\" : [ 1, \"a\\\"\\n\\u0001\" ],\n  \"a\" : {\n    \"empty\" : { },\n    \
                        \"list\" : [ ]\n  },\n  \"double\" : 0.0,\n  \"null\" : null\n}";
        assert_eq!(json.to_string(), expected);
        let noise: String = (0..300).filter_map(char::from_u32).collect();
        let read: String = serde_json::from_str(&Json::text(&*noise).to_string()).unwrap();
        assert_eq!(read, noise);
    }
}
