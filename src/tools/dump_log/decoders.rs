//! Keys and values as text.

use std::io::Write;

use record::view::RecordView;

use super::Stop;
use crate::{
    console::Halt,
    coordinator_records,
    options::{Options, read},
};

/// What the records of a log are.
pub(super) enum Decoder {
    /// An application's: a decoder for keys, and one for values.
    Classes { key: Class, value: Class },
    /// Of `__consumer_offsets`.
    Offsets,
    /// Of `__transaction_state`.
    Transactions,
    /// Of `__cluster_metadata`, which no cluster on ZooKeeper has.
    ClusterMetadata,
    /// Of `__remote_log_metadata`, which needs tiered storage.
    RemoteLogMetadata,
}

/// A decoder of Kafka's `org.apache.kafka.tools.api`.
pub(super) struct Class {
    kind: Kind,
    /// The name before Kafka 3.8, which is told about each time.
    former: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Default,
    String,
    Integer,
    Long,
    /// There is none of that name.
    Missing(String),
}

impl Decoder {
    /// The decoder that the options name.
    pub(super) fn new(options: &Options) -> Result<Decoder, Halt> {
        if options.has("offsets-decoder") {
            return Ok(Decoder::Offsets);
        }
        if options.has("transaction-log-decoder") {
            return Ok(Decoder::Transactions);
        }
        if options.has("cluster-metadata-decoder") {
            return Ok(Decoder::ClusterMetadata);
        }
        if options.has("remote-log-metadata-decoder") {
            return Ok(Decoder::RemoteLogMetadata);
        }
        let class = |option: &str| Ok(Class::new(&read(options.text(option))?.unwrap_or_default()));
        Ok(Decoder::Classes {
            key: class("key-decoder-class")?,
            value: class("value-decoder-class")?,
        })
    }

    /// Says, as each log is begun, which names are former ones; a missing class ends the dump.
    pub(super) fn announce(&self, out: &mut impl Write) -> Result<(), Stop> {
        let Decoder::Classes { key, value } = self else { return Ok(()) };
        for class in [value, key] {
            if let Some(former) = &class.former {
                let name = former.rsplit('.').next().unwrap_or_default();
                writeln!(
                    out,
                    "{former} is deprecated. Please use org.apache.kafka.tools.api.{name} instead"
                )?;
            }
            if let Kind::Missing(class) = &class.kind {
                return Err(Stop::Fault(format!("java.lang.ClassNotFoundException: {class}")));
            }
        }
        Ok(())
    }

    /// Key and value of a record, where they are to be shown.
    pub(super) fn decode(&self, record: &RecordView<'_>) -> (Option<String>, Option<String>) {
        match self {
            Decoder::Classes { key, value } => (
                record.key.map(|bytes| key.kind.text(bytes)),
                record.value.map(|bytes| value.kind.text(bytes)),
            ),
            Decoder::Offsets => coordinator_records::offsets(record),
            Decoder::Transactions => coordinator_records::transactions(record),
            Decoder::ClusterMetadata => (None, Some(cluster_metadata(record))),
            Decoder::RemoteLogMetadata => {
                let offset = record.offset;
                let text =
                    format!("Error at offset {offset}, skipping. Tiered storage is not supported.");
                (None, Some(text))
            }
        }
    }
}

/// Only the frame is looked at: no cluster on ZooKeeper has such records. Source: `MetadataRecordSerde`.
fn cluster_metadata(record: &RecordView<'_>) -> String {
    let offset = record.offset;
    let reason = match record.value.and_then(|value| value.first()) {
        Some(1) => "records of KRaft are not decoded here".to_owned(),
        Some(version) => format!(
            "Could not deserialize metadata record due to unknown frame version {version}(only frame version 1 is supported)"
        ),
        None => "Could not deserialize metadata record, it is empty".to_owned(),
    };
    format!("Error at {offset}, skipping. {reason}")
}

impl Class {
    fn new(class: &str) -> Class {
        let former = class.strip_prefix("kafka.serializer.");
        let name = former.or_else(|| class.strip_prefix("org.apache.kafka.tools.api."));
        let kind = match name {
            Some("DefaultDecoder") => Kind::Default,
            Some("StringDecoder") => Kind::String,
            Some("IntegerDecoder") => Kind::Integer,
            Some("LongDecoder") => Kind::Long,
            _ => Kind::Missing(class.to_owned()),
        };
        let is_former = former.is_some() && !matches!(kind, Kind::Missing(_));
        Class { kind, former: is_former.then(|| class.to_owned()) }
    }
}

impl Kind {
    fn text(&self, bytes: &[u8]) -> String {
        match self {
            // Java prints the array's identity, which says nothing.
            Kind::Default | Kind::Missing(_) => "[B@0".to_owned(),
            Kind::String => String::from_utf8_lossy(bytes).into_owned(),
            Kind::Integer => match bytes.first_chunk() {
                Some(bytes) => i32::from_be_bytes(*bytes).to_string(),
                None => "too short for an integer".to_owned(),
            },
            Kind::Long => match bytes.first_chunk() {
                Some(bytes) => i64::from_be_bytes(*bytes).to_string(),
                None => "too short for a long".to_owned(),
            },
        }
    }
}
