//! Records of the brokers' own topics, as `kafka-dump-log` and the console consumer's formatters show them.
//! Sources: the schemas of `OffsetCommitKey/Value`, `GroupMetadataKey/Value`, `TransactionLogKey/Value` and of the
//! consumer protocol; `DumpLogSegments.OffsetsMessageParser`.

use base64::{Engine, engine::general_purpose::STANDARD};
use common::topic::TopicPartition;
use record::view::RecordView;

pub(crate) mod messages;

/// Shows a record of `__consumer_offsets` as `kafka-dump-log` does.
pub(crate) fn offsets(record: &RecordView<'_>) -> (Option<String>, Option<String>) {
    let offset = record.offset;
    let Some(key) = record.key else {
        return (Some(format!("Error at offset {offset}, skipping. the key is missing")), None);
    };
    let mut reader = Reader::new(key);
    let Some(key_version) = reader.short() else {
        return (Some(format!("Error at offset {offset}, skipping. the key is too short")), None);
    };
    let kind = match key_version {
        0 | 1 => Kind::Offset,
        2 => Kind::Group,
        other => {
            let text = format!("Unknown record type {other} at offset {offset}, skipping.");
            return (Some(text), None);
        }
    };
    let broken = |part: &str| {
        (Some(format!("Error at offset {offset}, skipping. the {part} is not readable")), None)
    };
    let key_data = match kind {
        Kind::Offset => offset_key(&mut reader),
        Kind::Group => group_key(&mut reader),
    };
    let Some(key_data) = key_data else { return broken("key") };
    let key = format!("{{\"type\":\"{key_version}\",\"data\":{key_data}}}");
    let Some(value) = record.value else { return (Some(key), Some("<DELETE>".to_owned())) };
    let mut reader = Reader::new(value);
    let Some(version) = reader.short() else { return broken("value") };
    reader.is_flexible = version >= 4;
    let data = match kind {
        Kind::Offset => offset_value(&mut reader, version),
        Kind::Group => group_value(&mut reader, version, Binary::AsConsumer),
    };
    let Some(data) = data else { return broken("value") };
    (Some(key), Some(format!("{{\"version\":\"{version}\",\"data\":{data}}}")))
}

enum Kind {
    Offset,
    Group,
}

/// How what members told the group is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binary {
    /// In full, where it is a consumer's.
    AsConsumer,
    /// As the bytes that it is.
    AsBytes,
}

fn offset_key(reader: &mut Reader<'_>) -> Option<String> {
    let mut json = Object::new();
    json.text("group", &reader.string()?);
    json.text("topic", &reader.string()?);
    json.number("partition", reader.int()?);
    Some(json.end())
}

fn group_key(reader: &mut Reader<'_>) -> Option<String> {
    let mut json = Object::new();
    json.text("group", &reader.string()?);
    Some(json.end())
}

fn offset_value(reader: &mut Reader<'_>, version: i16) -> Option<String> {
    let mut json = Object::new();
    json.number("offset", reader.long()?);
    if version >= 3 {
        json.number("leaderEpoch", reader.int()?);
    }
    json.text("metadata", &reader.string()?);
    json.number("commitTimestamp", reader.long()?);
    if version == 1 {
        json.number("expireTimestamp", reader.long()?);
    }
    reader.tags()?;
    Some(json.end())
}

fn group_value(reader: &mut Reader<'_>, version: i16, binary: Binary) -> Option<String> {
    let mut json = Object::new();
    let protocol_type = reader.string()?;
    json.text("protocolType", &protocol_type);
    json.number("generation", reader.int()?);
    json.nullable("protocol", reader.nullable_string()?);
    json.nullable("leader", reader.nullable_string()?);
    if version >= 2 {
        json.number("currentStateTimestamp", reader.long()?);
    }
    let is_shown = binary == Binary::AsConsumer && protocol_type == "consumer";
    let mut members = Vec::new();
    for _ in 0..reader.array()?? {
        members.push(member(reader, version, is_shown)?);
    }
    json.raw("members", &format!("[{}]", members.join(",")));
    reader.tags()?;
    Some(json.end())
}

fn member(reader: &mut Reader<'_>, version: i16, is_consumer: bool) -> Option<String> {
    let mut json = Object::new();
    json.text("memberId", &reader.string()?);
    if version >= 3 {
        json.nullable("groupInstanceId", reader.nullable_string()?);
    }
    json.text("clientId", &reader.string()?);
    json.text("clientHost", &reader.string()?);
    if version >= 1 {
        json.number("rebalanceTimeout", reader.int()?);
    }
    json.number("sessionTimeout", reader.int()?);
    // What a consumer wrote is shown in full where it can be read.
    let subscription = reader.bytes()??;
    let shown = is_consumer.then(|| consumer_subscription(subscription)).flatten();
    json.raw("subscription", &shown.unwrap_or_else(|| base64_text(subscription)));
    let assignment = reader.bytes()??;
    let shown = is_consumer.then(|| consumer_assignment(assignment)).flatten();
    json.raw("assignment", &shown.unwrap_or_else(|| base64_text(assignment)));
    reader.tags()?;
    Some(json.end())
}

fn consumer_subscription(bytes: &[u8]) -> Option<String> {
    let mut reader = Reader::new(bytes);
    let version = reader.short().filter(|version| (0..=3).contains(version))?;
    let mut json = Object::new();
    let mut topics = Vec::new();
    for _ in 0..reader.array()?? {
        topics.push(quoted(&reader.string()?));
    }
    json.raw("topics", &format!("[{}]", topics.join(",")));
    json.raw("userData", &reader.bytes()?.map_or("null".to_owned(), base64_text));
    if version >= 1 {
        json.raw("ownedPartitions", &topic_partitions(&mut reader)?);
    }
    if version >= 2 {
        json.number("generationId", reader.int()?);
    }
    if version >= 3 {
        json.nullable("rackId", reader.nullable_string()?);
    }
    Some(json.end())
}

fn consumer_assignment(bytes: &[u8]) -> Option<String> {
    let mut reader = Reader::new(bytes);
    reader.short().filter(|version| (0..=3).contains(version))?;
    let mut json = Object::new();
    json.raw("assignedPartitions", &topic_partitions(&mut reader)?);
    json.raw("userData", &reader.bytes()?.map_or("null".to_owned(), base64_text));
    Some(json.end())
}

fn topic_partitions(reader: &mut Reader<'_>) -> Option<String> {
    let mut topics = Vec::new();
    for _ in 0..reader.array()?? {
        let mut json = Object::new();
        json.text("topic", &reader.string()?);
        let mut partitions = Vec::new();
        for _ in 0..reader.array()?? {
            partitions.push(reader.int()?.to_string());
        }
        json.raw("partitions", &format!("[{}]", partitions.join(",")));
        topics.push(json.end());
    }
    Some(format!("[{}]", topics.join(",")))
}

/// Shows a record of `__transaction_state`. Source: `TransactionLog.formatRecordKeyAndValue`.
pub(crate) fn transactions(record: &RecordView<'_>) -> (Option<String>, Option<String>) {
    let offset = record.offset;
    let mut reader = Reader::new(record.key.unwrap_or_default());
    let id = match reader.short() {
        Some(0) => reader.string(),
        Some(version) => return (Some(format!("unknown::version={version}")), None),
        None => None,
    };
    let Some(id) = id else {
        return (
            Some(format!("Error at offset {offset}, skipping. the key is not readable")),
            None,
        );
    };
    let key = format!("transaction_metadata::transactionalId={id}");
    let value = match record.value {
        None => "<DELETE>".to_owned(),
        Some(value) => transaction_value(value)
            .unwrap_or_else(|| format!("Error at offset {offset}: the value is not readable")),
    };
    (Some(key), Some(value))
}

/// The value of a transactional id's record.
struct TransactionValue {
    producer_id: i64,
    producer_epoch: i16,
    timeout_ms: i32,
    status: u8,
    /// None is a null.
    partitions: Option<Vec<(String, Vec<i32>)>>,
    updated_ms: i64,
    started_ms: i64,
}

impl TransactionValue {
    fn read(bytes: &[u8]) -> Option<TransactionValue> {
        let mut reader = Reader::new(bytes);
        let version = reader.short().filter(|version| (0..=1).contains(version))?;
        reader.is_flexible = version >= 1;
        let producer_id = reader.long()?;
        let producer_epoch = reader.short()?;
        let timeout_ms = reader.int()?;
        let status = reader.byte()?;
        let mut partitions = None;
        if let Some(count) = reader.array()? {
            let topics = partitions.insert(Vec::new());
            for _ in 0..count {
                let topic = reader.string()?;
                let mut indexes = Vec::new();
                for _ in 0..reader.array()?? {
                    indexes.push(reader.int()?);
                }
                reader.tags()?;
                topics.push((topic, indexes));
            }
        }
        let (updated_ms, started_ms) = (reader.long()?, reader.long()?);
        Some(TransactionValue {
            producer_id,
            producer_epoch,
            timeout_ms,
            status,
            partitions,
            updated_ms,
            started_ms,
        })
    }

    /// The state's name; none for a number that there is not.
    fn state(&self) -> Option<&'static str> {
        STATES.get(usize::from(self.status)).copied()
    }

    /// An empty transaction has none, whatever the record holds.
    fn partition_names(&self) -> Vec<TopicPartition> {
        let topics = self.partitions.iter().flatten().filter(|_| self.state() != Some("Empty"));
        topics
            .flat_map(|(topic, indexes)| {
                indexes.iter().map(move |index| TopicPartition::new(topic.as_str(), *index))
            })
            .collect()
    }
}

fn transaction_value(bytes: &[u8]) -> Option<String> {
    let value = TransactionValue::read(bytes)?;
    let names: Vec<String> = value.partition_names().iter().map(ToString::to_string).collect();
    let TransactionValue { producer_id, producer_epoch, updated_ms, timeout_ms, .. } = value;
    Some(format!(
        "producerId:{producer_id},producerEpoch:{producer_epoch},state={},partitions=[{}],txnLastUpdateTimestamp={updated_ms},txnTimeoutMs={timeout_ms}",
        value.state()?,
        names.join(",")
    ))
}

/// By their number. Source: `TransactionState`.
const STATES: &[&str] = &[
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

/// Reads Kafka's primitive types; every answer is none where the bytes end too early.
struct Reader<'a> {
    rest: &'a [u8],
    /// Whether lengths are compact and tagged fields follow.
    is_flexible: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, is_flexible: false }
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn short(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn unsigned_varint(&mut self) -> Option<u32> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A length of a compact type: one more than it is, 0 for null.
    fn compact(&mut self) -> Option<Option<usize>> {
        Some(usize::try_from(self.unsigned_varint()?).ok()?.checked_sub(1))
    }

    fn nullable_string(&mut self) -> Option<Option<String>> {
        let length =
            if self.is_flexible { self.compact()? } else { usize::try_from(self.short()?).ok() };
        let Some(length) = length else { return Some(None) };
        Some(Some(String::from_utf8_lossy(self.take(length)?).into_owned()))
    }

    fn string(&mut self) -> Option<String> {
        self.nullable_string()?
    }

    fn bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.array()? {
            None => Some(None),
            Some(length) => Some(Some(self.take(length)?)),
        }
    }

    /// How many elements follow; the inner none is a null.
    fn array(&mut self) -> Option<Option<usize>> {
        if self.is_flexible { self.compact() } else { Some(usize::try_from(self.int()?).ok()) }
    }

    /// Passes over tagged fields.
    fn tags(&mut self) -> Option<()> {
        if !self.is_flexible {
            return Some(());
        }
        for _ in 0..self.unsigned_varint()? {
            self.unsigned_varint()?;
            let length = usize::try_from(self.unsigned_varint()?).ok()?;
            self.take(length)?;
        }
        Some(())
    }
}

/// A JSON object whose members keep their order.
struct Object(String);

impl Object {
    fn new() -> Object {
        Object("{".to_owned())
    }

    fn raw(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&format!("{}:{json}", quoted(name)));
    }

    fn text(&mut self, name: &str, text: &str) {
        self.raw(name, &quoted(text));
    }

    fn nullable(&mut self, name: &str, text: Option<String>) {
        self.raw(name, &text.map_or("null".to_owned(), |text| quoted(&text)));
    }

    fn number(&mut self, name: &str, number: impl Into<i64>) {
        self.raw(name, &number.into().to_string());
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn base64_text(bytes: &[u8]) -> String {
    quoted(&STANDARD.encode(bytes))
}
