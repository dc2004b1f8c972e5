//! The formatters of the console consumer for the brokers' own topics: those of `org.apache.kafka.tools.consumer`,
//! which print JSON, and the former ones inside the coordinators, which print Scala's `toString`.

use super::{
    Binary, Object, Reader, TransactionValue, group_key, group_value, offset_key, offset_value,
    quoted,
};
use crate::java_order::{by_partition, by_text};

/// A formatter of this family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Messages {
    /// `OffsetsMessageFormatter`.
    Offsets,
    /// `GroupMetadataMessageFormatter`.
    Groups,
    /// `TransactionLogMessageFormatter`.
    Transactions,
    /// `GroupMetadataManager$OffsetsMessageFormatter`.
    FormerOffsets,
    /// `GroupMetadataManager$GroupMetadataMessageFormatter`.
    FormerGroups,
    /// `TransactionLog$TransactionLogMessageFormatter`.
    FormerTransactions,
}

/// What is printed of a record; none for one of another sort. The error is the reason why it cannot be.
type Shown = Result<Option<String>, String>;

impl Messages {
    /// The formatter of that class.
    pub(crate) fn of_class(class: &str) -> Option<Messages> {
        Some(match class {
            "org.apache.kafka.tools.consumer.OffsetsMessageFormatter" => Messages::Offsets,
            "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter" => Messages::Groups,
            "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter" => {
                Messages::Transactions
            }
            "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter" => {
                Messages::FormerOffsets
            }
            "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter" => {
                Messages::FormerGroups
            }
            "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter" => {
                Messages::FormerTransactions
            }
            _ => return None,
        })
    }

    /// The class that takes the place of a former one.
    pub(crate) fn successor(self) -> Option<&'static str> {
        match self {
            Messages::FormerOffsets => {
                Some("org.apache.kafka.tools.consumer.OffsetsMessageFormatter")
            }
            Messages::FormerGroups => {
                Some("org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter")
            }
            Messages::FormerTransactions => {
                Some("org.apache.kafka.tools.consumer.TransactionLogMessageFormatter")
            }
            Messages::Offsets | Messages::Groups | Messages::Transactions => None,
        }
    }

    /// What is printed of a record.
    pub(crate) fn show(self, key: Option<&[u8]>, value: Option<&[u8]>) -> Shown {
        match self {
            Messages::Offsets | Messages::Groups | Messages::Transactions => self.json(key, value),
            Messages::FormerOffsets => former_offset(key, value),
            Messages::FormerGroups => former_group(key, value),
            Messages::FormerTransactions => former_transaction(key, value),
        }
    }

    /// Source: `ApiMessageFormatter`. No line end follows, as in Kafka.
    fn json(self, key: Option<&[u8]>, value: Option<&[u8]>) -> Shown {
        let mut json = Object::new();
        match key {
            None => json.raw("key", "null"),
            Some(key) => {
                let (version, mut reader) = versioned(key)?;
                let data = match (self, version) {
                    (Messages::Offsets, 0 | 1) => offset_key(&mut reader),
                    (Messages::Groups, 2) => group_key(&mut reader),
                    // Both sorts share the topic.
                    (Messages::Offsets, 2) | (Messages::Groups, 0 | 1) => return Ok(None),
                    (Messages::Transactions, 0) => transaction_key(&mut reader),
                    _ => Some(quoted("unknown")),
                };
                json.raw("key", &with_version(version, data)?);
            }
        }
        match value {
            None => json.raw("value", "null"),
            Some(value) => {
                let (version, mut reader) = versioned(value)?;
                reader.is_flexible = version >= 4;
                let data = match (self, version) {
                    (Messages::Offsets, 0..=4) => offset_value(&mut reader, version),
                    (Messages::Groups, 0..=4) => group_value(&mut reader, version, Binary::AsBytes),
                    (Messages::Transactions, 0..=1) => {
                        TransactionValue::read(value).map(|value| value.json())
                    }
                    _ => Some(quoted("unknown")),
                };
                json.raw("value", &with_version(version, data)?);
            }
        }
        Ok(Some(json.end()))
    }
}

/// The version in front, and what follows it.
fn versioned(bytes: &[u8]) -> Result<(i16, Reader<'_>), String> {
    let mut reader = Reader::new(bytes);
    let version = reader.short().ok_or_else(unreadable)?;
    Ok((version, reader))
}

fn unreadable() -> String {
    "the record is not readable".to_owned()
}

fn with_version(version: i16, data: Option<String>) -> Result<String, String> {
    let data = data.ok_or_else(unreadable)?;
    Ok(format!("{{\"version\":{version},\"data\":{data}}}"))
}

fn transaction_key(reader: &mut Reader<'_>) -> Option<String> {
    let mut json = Object::new();
    json.text("transactionalId", &reader.string()?);
    Some(json.end())
}

impl TransactionValue {
    fn json(&self) -> String {
        let mut json = Object::new();
        json.number("producerId", self.producer_id);
        json.number("producerEpoch", self.producer_epoch);
        json.number("transactionTimeoutMs", self.timeout_ms);
        json.number("transactionStatus", self.status);
        let topics = self.partitions.as_ref().map(|topics| {
            let shown = topics.iter().map(|(topic, indexes)| {
                let mut json = Object::new();
                json.text("topic", topic);
                let indexes: Vec<String> = indexes.iter().map(i32::to_string).collect();
                json.raw("partitionIds", &format!("[{}]", indexes.join(",")));
                json.end()
            });
            format!("[{}]", shown.collect::<Vec<_>>().join(","))
        });
        json.raw("transactionPartitions", &topics.unwrap_or("null".to_owned()));
        json.number("transactionLastUpdateTimestampMs", self.updated_ms);
        json.number("transactionStartTimestampMs", self.started_ms);
        json.end()
    }
}

/// Source: `kafka.common.OffsetAndMetadata.toString`.
fn former_offset(key: Option<&[u8]>, value: Option<&[u8]>) -> Shown {
    let Some(key) = key else { return Ok(None) };
    let (0 | 1, mut reader) = versioned(key)? else { return Ok(None) };
    let read_key = |reader: &mut Reader<'_>| {
        Some(format!("[{},{},{}]", reader.string()?, reader.string()?, reader.int()?))
    };
    let name = read_key(&mut reader).ok_or_else(unreadable)?;
    let Some(value) = value else { return Ok(Some(format!("{name}::NULL\n"))) };
    let (version, mut reader) = versioned(value)?;
    reader.is_flexible = version >= 4;
    let read_value = |reader: &mut Reader<'_>| {
        let offset = reader.long()?;
        let epoch = if version >= 3 { reader.int()? } else { -1 };
        let (metadata, committed) = (reader.string()?, reader.long()?);
        let expires = if version == 1 { reader.long()? } else { -1 };
        let epoch =
            if epoch < 0 { "Optional.empty".to_owned() } else { format!("Optional[{epoch}]") };
        let expires = if expires < 0 { "None".to_owned() } else { format!("Some({expires})") };
        Some(format!(
            "OffsetAndMetadata(offset={offset}, leaderEpoch={epoch}, metadata={metadata}, commitTimestamp={committed}, expireTimestamp={expires})"
        ))
    };
    let shown = read_value(&mut reader).ok_or_else(unreadable)?;
    Ok(Some(format!("{name}::{shown}\n")))
}

/// Source: `GroupMetadata.toString`.
fn former_group(key: Option<&[u8]>, value: Option<&[u8]>) -> Shown {
    let Some(key) = key else { return Ok(None) };
    let (2, mut reader) = versioned(key)? else { return Ok(None) };
    let group = reader.string().ok_or_else(unreadable)?;
    let Some(value) = value else { return Ok(Some(format!("{group}::NULL\n"))) };
    let (version, mut reader) = versioned(value)?;
    reader.is_flexible = version >= 4;
    let shown = former_group_value(&mut reader, version, &group).ok_or_else(unreadable)?;
    Ok(Some(format!("{group}::{shown}\n")))
}

fn former_group_value(reader: &mut Reader<'_>, version: i16, group: &str) -> Option<String> {
    let protocol_type = reader.string()?;
    let generation = reader.int()?;
    let protocol = reader.nullable_string()?;
    reader.nullable_string()?;
    if version >= 2 {
        reader.long()?;
    }
    let mut members = Vec::new();
    for _ in 0..reader.array()?? {
        let member = reader.string()?;
        let instance = if version >= 3 { reader.nullable_string()? } else { None };
        let (client, host) = (reader.string()?, reader.string()?);
        let rebalance = if version >= 1 { Some(reader.int()?) } else { None };
        let session = reader.int()?;
        reader.bytes()?;
        reader.bytes()?;
        reader.tags()?;
        let instance = instance.map_or("None".to_owned(), |name| format!("Some({name})"));
        let rebalance = rebalance.unwrap_or(session);
        let protocol = protocol.as_deref().unwrap_or("null");
        let shown = format!(
            "MemberMetadata(memberId={member}, groupInstanceId={instance}, clientId={client}, clientHost={host}, sessionTimeoutMs={session}, rebalanceTimeoutMs={rebalance}, supportedProtocols=List({protocol}))"
        );
        members.push((member, shown));
    }
    // Scala's hash tables have the order of Java's.
    let members: Vec<String> = by_text(members, |(member, _)| member)
        .into_iter()
        .map(|(member, shown)| format!("{member} -> {shown}"))
        .collect();
    let state = if members.is_empty() { "Empty" } else { "Stable" };
    let kind = match protocol_type.as_str() {
        "" => "None".to_owned(),
        kind => format!("Some({kind})"),
    };
    Some(format!(
        "GroupMetadata(groupId={group}, generation={generation}, protocolType={kind}, currentState={state}, members=HashMap({}))",
        members.join(", ")
    ))
}

/// Source: `TransactionMetadata.toString`.
fn former_transaction(key: Option<&[u8]>, value: Option<&[u8]>) -> Shown {
    let Some(key) = key else { return Ok(None) };
    let (0, mut reader) = versioned(key)? else { return Ok(None) };
    let id = reader.string().ok_or_else(unreadable)?;
    let Some(value) = value else { return Ok(Some(format!("{id}::NULL\n"))) };
    let value = TransactionValue::read(value).ok_or_else(unreadable)?;
    let state = value.state().ok_or_else(unreadable)?;
    let TransactionValue {
        producer_id, producer_epoch, timeout_ms, started_ms, updated_ms, ..
    } = value;
    let partitions = by_partition(value.partition_names(), |name| name);
    let partitions: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    let partitions = partitions.join(", ");
    Ok(Some(format!(
        "{id}::TransactionMetadata(transactionalId={id}, producerId={producer_id}, producerEpoch={producer_epoch}, txnTimeoutMs={timeout_ms}, state={state}, pendingState=None, topicPartitions=HashSet({partitions}), txnStartTimestamp={started_ms}, txnLastUpdateTimestamp={updated_ms})\n"
    )))
}

#[cfg(test)]
mod tests {
    use super::Messages;

    const OFFSET_KEY: &[u8] = b"\0\x01\0\x01g\0\x01t\0\0\0\x02";
    const OFFSET_VALUE: &[u8] = b"\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\x09";
    const GROUP_KEY: &[u8] = b"\0\x02\0\x01g";
    const GROUP_VALUE: &[u8] =
        b"\0\x03\0\x08consumer\0\0\0\x02\xff\xff\xff\xff\0\0\0\0\0\0\0\x09\0\0\0\0";
    const TRANSACTION_KEY: &[u8] = b"\0\0\0\x02tx";
    const TRANSACTION_VALUE: &[u8] = b"\0\0\0\0\0\0\0\0\0\x07\0\x01\0\0\0\x05\x01\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x03\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x08";

    fn show(messages: Messages, key: &[u8], value: Option<&[u8]>) -> String {
        messages.show(Some(key), value).unwrap().unwrap_or_default()
    }

    #[test]
    fn offsets_are_json_or_scala() {
        let show = |messages, value| show(messages, OFFSET_KEY, value);
        assert_eq!(
            show(Messages::Offsets, Some(OFFSET_VALUE)),
            r#"{"key":{"version":1,"data":{"group":"g","topic":"t","partition":2}},"value":{"version":3,"data":{"offset":4,"leaderEpoch":0,"metadata":"","commitTimestamp":9}}}"#
        );
        assert_eq!(
            show(Messages::Offsets, None),
            r#"{"key":{"version":1,"data":{"group":"g","topic":"t","partition":2}},"value":null}"#
        );
        assert_eq!(show(Messages::Groups, Some(OFFSET_VALUE)), "");
        assert_eq!(
            show(Messages::FormerOffsets, Some(OFFSET_VALUE)),
            "[g,t,2]::OffsetAndMetadata(offset=4, leaderEpoch=Optional[0], metadata=, commitTimestamp=9, expireTimestamp=None)\n"
        );
        assert_eq!(show(Messages::FormerOffsets, None), "[g,t,2]::NULL\n");
    }

    #[test]
    fn groups_are_json_or_scala() {
        let show = |messages| show(messages, GROUP_KEY, Some(GROUP_VALUE));
        assert_eq!(
            show(Messages::Groups),
            r#"{"key":{"version":2,"data":{"group":"g"}},"value":{"version":3,"data":{"protocolType":"consumer","generation":2,"protocol":null,"leader":null,"currentStateTimestamp":9,"members":[]}}}"#
        );
        assert_eq!(show(Messages::Offsets), "");
        assert_eq!(
            show(Messages::FormerGroups),
            "g::GroupMetadata(groupId=g, generation=2, protocolType=Some(consumer), currentState=Empty, members=HashMap())\n"
        );
    }

    #[test]
    fn transactions_are_json_or_scala() {
        let show = |messages| show(messages, TRANSACTION_KEY, Some(TRANSACTION_VALUE));
        assert_eq!(
            show(Messages::Transactions),
            r#"{"key":{"version":0,"data":{"transactionalId":"tx"}},"value":{"version":0,"data":{"producerId":7,"producerEpoch":1,"transactionTimeoutMs":5,"transactionStatus":1,"transactionPartitions":[{"topic":"t","partitionIds":[3]}],"transactionLastUpdateTimestampMs":9,"transactionStartTimestampMs":8}}}"#
        );
        assert_eq!(
            show(Messages::FormerTransactions),
            "tx::TransactionMetadata(transactionalId=tx, producerId=7, producerEpoch=1, txnTimeoutMs=5, state=Ongoing, pendingState=None, topicPartitions=HashSet(t-3), txnStartTimestamp=8, txnLastUpdateTimestamp=9)\n"
        );
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        for end in 2..OFFSET_VALUE.len() {
            let value = Some(&OFFSET_VALUE[..end]);
            assert!(Messages::Offsets.show(Some(OFFSET_KEY), value).is_err(), "{end}");
        }
        assert!(Messages::Transactions.show(Some(b"\0"), None).is_err());
    }
}
