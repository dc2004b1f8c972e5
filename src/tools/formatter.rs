//! How the console consumer prints a record. Source: `DefaultMessageFormatter` and its siblings.

use std::io::{self, Write};

use client::consumer::ConsumerRecord;
use common::{config::value::java_double, properties::Properties};
use record::batch::TimestampType;

use crate::{console::complain, coordinator_records::messages::Messages, logging};

const DEFAULT_CLASS: &str = "org.apache.kafka.tools.consumer.DefaultMessageFormatter";
const LOGGING_CLASS: &str = "org.apache.kafka.tools.consumer.LoggingMessageFormatter";
const NO_OP_CLASS: &str = "org.apache.kafka.tools.consumer.NoOpMessageFormatter";

/// Prints records.
pub(crate) enum Formatter {
    /// As the properties say.
    Default(DefaultFormatter),
    /// Records of the brokers' own topics.
    Messages(Messages),
    /// Not at all.
    NoOp,
}

impl Formatter {
    /// The class of Kafka 3.9, or its former name with a warning; the error is the class's name, as Java's is.
    pub(crate) fn new(class: &str, properties: &Properties) -> Result<Formatter, String> {
        let (class, former) = match class {
            "kafka.tools.DefaultMessageFormatter" => (DEFAULT_CLASS, Some(class)),
            "kafka.tools.LoggingMessageFormatter" => (LOGGING_CLASS, Some(class)),
            "kafka.tools.NoOpMessageFormatter" => (NO_OP_CLASS, Some(class)),
            class => (class, None),
        };
        if let Some(former) = former {
            warn_of_former(former, class);
        }
        match class {
            // What the logging one writes to its log is below the level that tools show.
            DEFAULT_CLASS | LOGGING_CLASS => {
                Ok(Formatter::Default(DefaultFormatter::new(properties)))
            }
            NO_OP_CLASS => Ok(Formatter::NoOp),
            class => {
                let messages = Messages::of_class(class).ok_or(class)?;
                if let Some(successor) = messages.successor() {
                    warn_of_former(class, successor);
                }
                Ok(Formatter::Messages(messages))
            }
        }
    }

    /// Writes one record.
    pub(crate) fn write(&self, record: &ConsumerRecord, out: &mut impl Write) -> io::Result<()> {
        match self {
            Formatter::Default(formatter) => formatter.write(record, out),
            Formatter::Messages(messages) => {
                let shown = messages.show(record.key.as_deref(), record.value.as_deref());
                match shown.map_err(io::Error::other)? {
                    Some(text) => out.write_all(text.as_bytes()),
                    None => Ok(()),
                }
            }
            Formatter::NoOp => Ok(()),
        }
    }
}

fn warn_of_former(former: &str, class: &str) {
    complain(&format!(
        "WARNING: {former} is deprecated and will be removed in the next major release. Please use {class} instead"
    ));
}

/// Which parts are printed, and how they are set apart.
pub(crate) struct DefaultFormatter {
    timestamp: bool,
    key: bool,
    value: bool,
    partition: bool,
    offset: bool,
    headers: bool,
    key_separator: Vec<u8>,
    line_separator: Vec<u8>,
    headers_separator: Vec<u8>,
    null_literal: Vec<u8>,
    key_deserializer: Option<Deserializer>,
    value_deserializer: Option<Deserializer>,
    headers_deserializer: Option<Deserializer>,
}

impl DefaultFormatter {
    fn new(properties: &Properties) -> DefaultFormatter {
        let flag = |name: &str, default: bool| {
            let given = properties.get(name);
            given.map_or(default, |value| value.trim().eq_ignore_ascii_case("true"))
        };
        let text = |name: &str, default: &str| {
            properties.get(name).map_or(default, String::as_str).as_bytes().to_vec()
        };
        let deserializer =
            |name: &str| properties.get(name).and_then(|class| Deserializer::new(class));
        DefaultFormatter {
            timestamp: flag("print.timestamp", false),
            key: flag("print.key", false),
            value: flag("print.value", true),
            partition: flag("print.partition", false),
            offset: flag("print.offset", false),
            headers: flag("print.headers", false),
            key_separator: text("key.separator", "\t"),
            line_separator: text("line.separator", "\n"),
            headers_separator: text("headers.separator", ","),
            null_literal: text("null.literal", "null"),
            key_deserializer: deserializer("key.deserializer"),
            value_deserializer: deserializer("value.deserializer"),
            headers_deserializer: deserializer("headers.deserializer"),
        }
    }

    fn write(&self, record: &ConsumerRecord, out: &mut impl Write) -> io::Result<()> {
        // Each part ends with a separator: that of columns while more is to come, else that of lines.
        let follows_timestamp =
            self.offset || self.partition || self.headers || self.key || self.value;
        if self.timestamp {
            match record.timestamp_type {
                Some(TimestampType::CreateTime) => write!(out, "CreateTime:{}", record.timestamp)?,
                Some(TimestampType::LogAppendTime) => {
                    write!(out, "LogAppendTime:{}", record.timestamp)?;
                }
                None => write!(out, "NO_TIMESTAMP")?,
            }
            self.separate(out, follows_timestamp)?;
        }
        if self.partition {
            write!(out, "Partition:{}", record.partition.partition)?;
            self.separate(out, self.offset || self.headers || self.key || self.value)?;
        }
        if self.offset {
            write!(out, "Offset:{}", record.offset)?;
            self.separate(out, self.headers || self.key || self.value)?;
        }
        if self.headers {
            self.write_headers(record, out)?;
            self.separate(out, self.key || self.value)?;
        }
        if self.key {
            self.write_bytes(record.key.as_deref(), self.key_deserializer, out)?;
            self.separate(out, self.value)?;
        }
        if self.value {
            self.write_bytes(record.value.as_deref(), self.value_deserializer, out)?;
            out.write_all(&self.line_separator)?;
        }
        Ok(())
    }

    fn write_headers(&self, record: &ConsumerRecord, out: &mut impl Write) -> io::Result<()> {
        if record.headers.is_empty() {
            return write!(out, "NO_HEADERS");
        }
        for (index, (name, value)) in record.headers.iter().enumerate() {
            if index > 0 {
                out.write_all(&self.headers_separator)?;
            }
            write!(out, "{name}:")?;
            self.write_bytes(value.as_deref(), self.headers_deserializer, out)?;
        }
        Ok(())
    }

    fn separate(&self, out: &mut impl Write, more_follows: bool) -> io::Result<()> {
        out.write_all(if more_follows { &self.key_separator } else { &self.line_separator })
    }

    /// A null is its literal's bytes, which go through the deserializer as well, as in Kafka.
    fn write_bytes(
        &self,
        bytes: Option<&[u8]>,
        deserializer: Option<Deserializer>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let bytes = bytes.unwrap_or(&self.null_literal);
        match deserializer {
            None => out.write_all(bytes),
            Some(deserializer) => {
                let text = deserializer.text(bytes).map_err(io::Error::other)?;
                out.write_all(text.as_bytes())
            }
        }
    }
}

/// Kafka's own deserializers, followed by Java's `toString`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deserializer {
    String,
    Bytes,
    ByteArray,
    ByteBuffer,
    Short,
    Integer,
    Long,
    Float,
    Double,
    Uuid,
    Boolean,
}

impl Deserializer {
    /// The deserializer of that class; an unknown one is logged and left out, as Kafka does.
    fn new(class: &str) -> Option<Deserializer> {
        let name = class.strip_prefix("org.apache.kafka.common.serialization.");
        let found = match name.and_then(|name| name.strip_suffix("Deserializer")) {
            Some("String") => Deserializer::String,
            Some("Bytes") => Deserializer::Bytes,
            Some("ByteArray") => Deserializer::ByteArray,
            Some("ByteBuffer") => Deserializer::ByteBuffer,
            Some("Short") => Deserializer::Short,
            Some("Integer") => Deserializer::Integer,
            Some("Long") => Deserializer::Long,
            Some("Float") => Deserializer::Float,
            Some("Double") => Deserializer::Double,
            Some("UUID") => Deserializer::Uuid,
            Some("Boolean") => Deserializer::Boolean,
            _ => {
                logging::error_with(
                    DEFAULT_CLASS,
                    &format!("Unable to instantiate a deserializer from {class}"),
                    &format!("java.lang.ClassNotFoundException: {class}"),
                );
                return None;
            }
        };
        Some(found)
    }

    fn text(self, bytes: &[u8]) -> Result<String, String> {
        let name = format!("{self:?}");
        Ok(match self {
            Deserializer::String => String::from_utf8_lossy(bytes).into_owned(),
            Deserializer::Bytes => escaped(bytes),
            // Java prints an identity here, which says nothing.
            Deserializer::ByteArray => "[B@0".to_owned(),
            Deserializer::ByteBuffer => {
                let length = bytes.len();
                format!("java.nio.HeapByteBuffer[pos=0 lim={length} cap={length}]")
            }
            Deserializer::Short => i16::from_be_bytes(exactly(bytes, &name)?).to_string(),
            Deserializer::Integer => i32::from_be_bytes(exactly(bytes, &name)?).to_string(),
            Deserializer::Long => i64::from_be_bytes(exactly(bytes, &name)?).to_string(),
            Deserializer::Float => {
                java_double(f64::from(f32::from_be_bytes(exactly(bytes, &name)?)))
            }
            Deserializer::Double => java_double(f64::from_be_bytes(exactly(bytes, &name)?)),
            Deserializer::Uuid => String::from_utf8_lossy(bytes).into_owned(),
            Deserializer::Boolean => match bytes {
                [1] => "true".to_owned(),
                [0] => "false".to_owned(),
                _ => return Err(format!("Unexpected byte received by {name}Deserializer")),
            },
        })
    }
}

/// The bytes, if they are as many as the number has.
fn exactly<const N: usize>(bytes: &[u8], name: &str) -> Result<[u8; N], String> {
    bytes.try_into().map_err(|_| format!("Size of data received by {name}Deserializer is not {N}"))
}

/// As Java's `Bytes` prints itself: printable ASCII as it is, the rest as `\xHH`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use client::consumer::ConsumerRecord;
    use common::{
        ids::{LeaderEpoch, Offset, Timestamp},
        properties::parse,
        topic::TopicPartition,
    };
    use record::batch::TimestampType;

    use super::{Formatter, escaped};

    fn print(properties: &str, key: Option<&'static [u8]>, value: Option<&'static [u8]>) -> String {
        let record = ConsumerRecord {
            partition: TopicPartition::new("t", 3),
            offset: Offset(5),
            leader_epoch: LeaderEpoch(0),
            timestamp: Timestamp(7),
            timestamp_type: Some(TimestampType::CreateTime),
            key: key.map(Bytes::from_static),
            value: value.map(Bytes::from_static),
            headers: vec![("h".to_owned(), None), ("h".to_owned(), Some(Bytes::from("x")))],
        };
        let class = "org.apache.kafka.tools.consumer.DefaultMessageFormatter";
        let formatter = Formatter::new(class, &parse(properties.as_bytes())).unwrap();
        let mut out = Vec::new();
        formatter.write(&record, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn parts_are_printed_in_kafkas_order() {
        let all = "print.timestamp=true\nprint.key=true\nprint.offset=true\nprint.partition=true\nprint.headers=true";
        assert_eq!(
            print(all, Some(b"k"), None),
            "CreateTime:7\tPartition:3\tOffset:5\th:null,h:x\tk\tnull\n"
        );
        assert_eq!(print("", None, Some(b"v")), "v\n");
        assert_eq!(print("print.key=true\nprint.value=false", Some(b"k"), None), "k\n");
        assert_eq!(print("null.literal=NIL\nline.separator=;", None, None), "NIL;");
    }

    #[test]
    fn deserializers_are_kafkas() {
        let value = |name: &str, bytes| {
            let class = format!("value.deserializer=org.apache.kafka.common.serialization.{name}");
            print(&class, None, Some(bytes))
        };
        assert_eq!(value("IntegerDeserializer", b"\x00\x00\x01\x00"), "256\n");
        assert_eq!(value("DoubleDeserializer", b"\x3f\xf0\0\0\0\0\0\0"), "1.0\n");
        assert_eq!(value("BytesDeserializer", b"a\\\x00"), "a\\\\\\x00\n");
        assert_eq!(escaped(b"\xff~"), "\\xFF~");
    }
}
