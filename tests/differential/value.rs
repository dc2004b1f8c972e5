//! A request as a tree of values: built from JSON by the table of shapes, changed at any place, and written.

use std::fmt;

use bytes::{BufMut, BytesMut};
use protocol::schema::{FieldSchema, Kind};
use serde_json::Value as Json;

use crate::records::of_producer;

/// A value of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Number(i64),
    Text(String),
    /// The bytes of a string, of records, or of an id.
    Raw(Vec<u8>),
    List(Vec<Value>),
    /// In the order of the schema; a tagged field may be missing.
    Fields(Vec<Option<Value>>),
    /// Written as it is, its length included: what no codec would write.
    Verbatim(Vec<u8>),
    /// The id that a broker gave to a topic: another one on each side.
    TopicId(String),
    /// The id of the last fetch session: another one on each side.
    Session,
    /// What an answer told under this name, the id of a member or of a producer: another one on each side.
    Learned(String),
    /// Records of the producer of this name.
    RecordsOf(String, Vec<u8>),
}

/// What differs from side to side.
pub(crate) trait SideValues {
    /// The id of a topic.
    fn topic_id(&self, name: &str) -> [u8; 16];
    /// The last fetch session.
    fn session_id(&self) -> i32;
    /// The id that it gave to a member, `@m1`, or a producer, `@p1`; empty where it has not.
    fn learned(&self, name: &str) -> &str;
}

/// A place in a request: positions of fields, and of elements of arrays.
pub(crate) type Path = Vec<usize>;

/// Builds a struct. Fields that the version lacks are passed over; those that the JSON lacks are zero, null or empty.
pub(crate) fn build(schema: &[FieldSchema], json: &Json) -> Value {
    let field = |field: &FieldSchema| match json.get(field.name) {
        Some(json) => Some(value(&field.kind, json)),
        None if field.tag.is_some() => None,
        None => Some(missing(field)),
    };
    Value::Fields(schema.iter().map(field).collect())
}

fn missing(field: &FieldSchema) -> Value {
    match field.kind {
        Kind::Fixed(_) | Kind::Struct(_) => value(&field.kind, &Json::Null),
        _ if field.nullable => Value::Null,
        Kind::String | Kind::Bytes => Value::Raw(Vec::new()),
        Kind::FixedArray(_) | Kind::StringArray | Kind::StructArray(_) => Value::List(Vec::new()),
    }
}

fn value(kind: &Kind, json: &Json) -> Value {
    match (kind, json) {
        (Kind::Struct(fields), json) => build(fields, json),
        (Kind::StructArray(fields), Json::Array(items)) => {
            Value::List(items.iter().map(|item| build(fields, item)).collect())
        }
        (Kind::FixedArray(_) | Kind::StringArray, Json::Array(items)) => {
            Value::List(items.iter().map(scalar).collect())
        }
        (Kind::Fixed(16), Json::Null) => Value::Raw(vec![0; 16]),
        (Kind::Fixed(16), Json::String(text)) => id(text),
        (Kind::Fixed(_), Json::Null) => Value::Number(0),
        (Kind::Bytes, Json::String(text)) => records(text),
        (_, json) => scalar(json),
    }
}

fn scalar(json: &Json) -> Value {
    match json {
        Json::Bool(flag) => Value::Number(i64::from(*flag)),
        Json::Number(number) => Value::Number(number.as_i64().unwrap_or_default()),
        Json::String(text) if text == "session" => Value::Session,
        Json::String(text) if text.starts_with('@') => Value::Learned(text.clone()),
        Json::String(text) => Value::Text(text.clone()),
        _ => Value::Null,
    }
}

/// `id:orders` is the id of a topic; else 32 hexadecimal digits.
fn id(text: &str) -> Value {
    match text.strip_prefix("id:") {
        Some(topic) => Value::TopicId(topic.to_owned()),
        None => Value::Raw(unhex(text)),
    }
}

/// `@p1:` stands before the records of a producer; else hexadecimal digits.
fn records(text: &str) -> Value {
    match text.split_once(':') {
        Some((producer, records)) => Value::RecordsOf(producer.to_owned(), unhex(records)),
        None => Value::Raw(unhex(text)),
    }
}

/// Bytes as JSON carries them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The other way.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits = |index: usize| text.get(index..index + 2);
    (0..text.len())
        .step_by(2)
        .filter_map(|index| u8::from_str_radix(digits(index)?, 16).ok())
        .collect()
}

/// Writes a struct as the version of its schema has it.
pub(crate) fn encode(
    schema: &[FieldSchema],
    value: &Value,
    is_flexible: bool,
    side: &dyn SideValues,
) -> BytesMut {
    let mut writer = Writer { out: BytesMut::new(), is_flexible, side };
    writer.fields(schema, value);
    writer.out
}

struct Writer<'a> {
    out: BytesMut,
    is_flexible: bool,
    side: &'a dyn SideValues,
}

impl Writer<'_> {
    fn fields(&mut self, schema: &[FieldSchema], value: &Value) {
        let Value::Fields(values) = value else { return self.verbatim(value) };
        let mut tagged = Vec::new();
        for (field, value) in schema.iter().zip(values) {
            match (field.tag, value) {
                (None, Some(value)) => self.value(&field.kind, value),
                (Some(tag), Some(value)) => tagged.push((tag, &field.kind, value)),
                (_, None) => {}
            }
        }
        if !self.is_flexible {
            return;
        }
        // An unknown tagged field stands behind the fields of the schema.
        let extra = values.get(schema.len()).and_then(|extra| extra.as_ref());
        self.varint(tagged.len() + usize::from(extra.is_some()));
        tagged.sort_by_key(|(tag, ..)| *tag);
        for (tag, kind, value) in tagged {
            let around = std::mem::take(&mut self.out);
            self.value(kind, value);
            let written = std::mem::replace(&mut self.out, around);
            self.varint(usize::try_from(tag).unwrap_or(usize::MAX));
            self.varint(written.len());
            self.out.put_slice(&written);
        }
        if let Some(extra) = extra {
            self.verbatim(extra);
        }
    }

    fn verbatim(&mut self, value: &Value) {
        if let Value::Verbatim(bytes) = value {
            self.out.put_slice(bytes);
        }
    }

    fn value(&mut self, kind: &Kind, value: &Value) {
        if let Value::Verbatim(bytes) = value {
            return self.out.put_slice(bytes);
        }
        match kind {
            Kind::Fixed(length) => self.fixed(*length, value),
            Kind::String => self.text(value),
            Kind::Bytes => self.bytes(value, 4),
            Kind::Struct(fields) => self.fields(fields, value),
            Kind::FixedArray(length) => {
                let length = *length;
                self.list(value, &|writer, item| writer.fixed(length, item));
            }
            Kind::StringArray => self.list(value, &|writer, item| writer.text(item)),
            Kind::StructArray(fields) => {
                self.list(value, &|writer, item| writer.fields(fields, item));
            }
        }
    }

    fn fixed(&mut self, length: usize, value: &Value) {
        match value {
            Value::Number(number) if length <= 8 => self.out.put_int(*number, length),
            Value::Raw(bytes) | Value::Verbatim(bytes) => self.out.put_slice(bytes),
            Value::TopicId(name) => self.out.put_slice(&self.side.topic_id(name)),
            Value::Session => self.out.put_i32(self.side.session_id()),
            Value::Learned(name) if length <= 8 => {
                self.out.put_int(self.side.learned(name).parse().unwrap_or(-1), length);
            }
            _ => self.out.put_bytes(0, length),
        }
    }

    fn text(&mut self, value: &Value) {
        match value {
            Value::Text(text) => self.bytes(&Value::Raw(text.as_bytes().to_vec()), 2),
            Value::Learned(name) => {
                self.bytes(&Value::Raw(self.side.learned(name).as_bytes().to_vec()), 2);
            }
            other => self.bytes(other, 2),
        }
    }

    fn bytes(&mut self, value: &Value, length_bytes: usize) {
        match value {
            Value::Raw(bytes) => {
                self.length(Some(bytes.len()), length_bytes);
                self.out.put_slice(bytes);
            }
            Value::RecordsOf(producer, records) => {
                let id = self.side.learned(producer).parse().unwrap_or(-1);
                self.bytes(&Value::Raw(of_producer(records, id)), length_bytes);
            }
            Value::Verbatim(bytes) => self.out.put_slice(bytes),
            _ => self.length(None, length_bytes),
        }
    }

    fn list(&mut self, value: &Value, item: &dyn Fn(&mut Self, &Value)) {
        let Value::List(items) = value else { return self.length(None, 4) };
        self.length(Some(items.len()), 4);
        items.iter().for_each(|one| item(self, one));
    }

    fn length(&mut self, length: Option<usize>, bytes: usize) {
        match length {
            _ if self.is_flexible => self.varint(length.map_or(0, |length| length + 1)),
            Some(length) => self.out.put_uint(length as u64, bytes),
            None => self.out.put_bytes(0xff, bytes),
        }
    }

    fn varint(&mut self, value: usize) {
        self.out.put_slice(&varint(value));
    }
}

/// An unsigned varint.
pub(crate) fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

/// The request with another value in one place.
pub(crate) fn replaced(value: &Value, path: &[usize], by: &Value) -> Value {
    let Some((step, rest)) = path.split_first() else { return by.clone() };
    let mut changed = value.clone();
    match &mut changed {
        Value::Fields(fields) => {
            if let Some(field) = fields.get_mut(*step) {
                let old = field.take().unwrap_or(Value::Null);
                *field = Some(replaced(&old, rest, by));
            }
        }
        Value::List(items) => {
            if let Some(item) = items.get_mut(*step) {
                *item = replaced(item, rest, by);
            }
        }
        _ => {}
    }
    changed
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => write!(formatter, "null"),
            Value::Number(number) => write!(formatter, "{number}"),
            Value::Text(text) if text.len() > 60 => {
                let head: String = text.chars().take(8).collect();
                write!(formatter, "'{head}...' of {} bytes", text.len())
            }
            Value::Text(text) => write!(formatter, "{text:?}"),
            Value::Raw(bytes) | Value::Verbatim(bytes) if bytes.len() > 100 => {
                write!(formatter, "{} bytes", bytes.len())
            }
            Value::Raw(bytes) => write!(formatter, "x{}", hex(bytes)),
            Value::Verbatim(bytes) => write!(formatter, "verbatim x{}", hex(bytes)),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(formatter, "[{}]", items.join(", "))
            }
            Value::Fields(fields) => {
                let shown = fields.iter().flatten().map(ToString::to_string);
                write!(formatter, "{{{}}}", shown.collect::<Vec<_>>().join(", "))
            }
            Value::TopicId(name) => write!(formatter, "id:{name}"),
            Value::Session => write!(formatter, "session"),
            Value::Learned(name) => write!(formatter, "{name}"),
            Value::RecordsOf(producer, records) => {
                write!(formatter, "{} bytes of {producer}", records.len())
            }
        }
    }
}

/// The request with names, for a report.
pub(crate) fn show(schema: &[FieldSchema], value: &Value) -> String {
    let Value::Fields(values) = value else { return value.to_string() };
    let fields = schema.iter().zip(values).filter_map(|(field, value)| {
        let value = value.as_ref()?;
        let shown = match (&field.kind, value) {
            (Kind::Struct(fields), value) => show(fields, value),
            (Kind::StructArray(fields), Value::List(items)) => {
                let items: Vec<String> = items.iter().map(|item| show(fields, item)).collect();
                format!("[{}]", items.join(", "))
            }
            (_, value) => value.to_string(),
        };
        Some(format!("{}: {shown}", field.name))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}
