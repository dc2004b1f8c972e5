//! JSON files of the scripts, with Kafka's words for what is wrong in them. Source: `org.apache.kafka.server.util.Json`.

use std::{fs, path::Path};

use common::topic::TopicPartition;
use serde_json::{Map, Value};

/// Reads a file; the error is Java's text.
pub(crate) fn read_file(path: &str) -> Result<String, String> {
    let text = fs::read(Path::new(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    text.map_err(|_| format!("Unable to read file {path}"))
}

/// The members of an object.
pub(crate) fn object(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("Expected JSON object, received {value}"))
}

/// The items of an array.
pub(crate) fn array(value: &Value) -> Result<&[Value], String> {
    let items = value.as_array().map(Vec::as_slice);
    items.ok_or_else(|| format!("Expected JSON array, received {value}"))
}

/// A member that must be there.
pub(crate) fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a Value, String> {
    object.get(name).ok_or_else(|| format!("No such field exists: `{name}`"))
}

/// A text.
pub(crate) fn text(value: &Value) -> Result<String, String> {
    let found = value.as_str().map(str::to_owned);
    found.ok_or_else(|| format!("Expected `String` value, received {value}"))
}

/// A 32-bit number.
pub(crate) fn integer(value: &Value) -> Result<i32, String> {
    let found = value.as_i64().and_then(|number| i32::try_from(number).ok());
    found.ok_or_else(|| format!("Expected `Integer` value, received {value}"))
}

/// A list of what `item` reads.
pub(crate) fn list<T>(
    value: &Value,
    item: impl Fn(&Value) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let items = value.as_array();
    let items = items.ok_or_else(|| format!("Expected `JSON array` value, received {value}"))?;
    items.iter().map(item).collect()
}

/// The members `topic` and `partition`.
pub(crate) fn partition(object: &Map<String, Value>) -> Result<TopicPartition, String> {
    let topic = text(member(object, "topic")?)?;
    Ok(TopicPartition::new(topic, integer(member(object, "partition")?)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{array, integer, list, member, object, partition, text};

    #[test]
    fn faults_are_told_in_kafkas_words() {
        let value = json!({"topic": "t", "partition": 3});
        let members = object(&value).unwrap();
        assert_eq!(partition(members).map(|name| name.to_string()), Ok("t-3".to_owned()));
        assert_eq!(member(members, "x").unwrap_err(), "No such field exists: `x`");
        assert_eq!(object(&json!([1])).unwrap_err(), "Expected JSON object, received [1]");
        assert_eq!(array(&json!({})).unwrap_err(), "Expected JSON array, received {}");
        assert_eq!(text(&json!(1)).unwrap_err(), "Expected `String` value, received 1");
        let big = json!(1_i64 << 40);
        assert!(integer(&big).unwrap_err().starts_with("Expected `Integer` value, received "));
        assert_eq!(
            list(&json!("a"), integer).unwrap_err(),
            "Expected `JSON array` value, received \"a\""
        );
        assert_eq!(list(&json!([1, 2]), integer), Ok(vec![1, 2]));
    }
}
