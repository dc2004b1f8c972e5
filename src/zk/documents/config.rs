//! `/config/<type>/<entity>`: configs that differ from the defaults; and `/consumers/.../offsets/...`, plain numbers.

use std::collections::BTreeMap;

use common::ids::Offset;
use serde_json::{Map, Value, json};

use super::{DocumentError, from_text, to_json, utf8};

/// Configs by key, as their text.
pub type Configs = BTreeMap<String, String>;

/// Reads an entity's configs. No data means none. Kafka reads what has another shape as none too, and takes only texts
/// as values; a text that is no JSON is an error here, for the caller to say so before going on without.
pub fn parse_configs(path: &str, data: &[u8]) -> Result<Configs, DocumentError> {
    if data.is_empty() {
        return Ok(Configs::new());
    }
    let document = serde_json::from_slice(data);
    let mut document: Value = document.map_err(|error| DocumentError::new(path, error))?;
    let configs = match document.get_mut("config").map(Value::take) {
        Some(Value::Object(configs)) => configs,
        _ => Map::new(),
    };
    let text = |(key, value)| match value {
        Value::String(text) => Some((key, text)),
        _ => None,
    };
    Ok(configs.into_iter().filter_map(text).collect())
}

/// Writes an entity's configs.
pub fn configs_to_bytes(configs: &Configs) -> Vec<u8> {
    to_json(&json!({ "version": 1, "config": configs }))
}

/// Reads an old-style committed offset.
pub fn parse_consumer_offset(path: &str, data: &[u8]) -> Result<Offset, DocumentError> {
    from_text(path, "offset", utf8(path, data)?).map(Offset)
}

/// Writes an old-style committed offset.
pub fn consumer_offset_to_bytes(offset: Offset) -> Vec<u8> {
    offset.to_string().into_bytes()
}
