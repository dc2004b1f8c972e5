//! Topics and partitions: names, ids, and which names are legal.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

/// Longest topic name, in characters. Source: `org.apache.kafka.common.internals.Topic`.
pub const TOPIC_NAME_LENGTH_MAX: usize = 249;
/// The topic of group offsets.
pub const GROUP_METADATA_TOPIC: &str = "__consumer_offsets";
/// The topic of transaction states.
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";
/// The metadata topic of KRaft; never to be created here.
pub const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";

/// A partition of a topic. Cheap to clone: the name is shared.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number, 0 or more.
    pub partition: i32,
}

impl TopicPartition {
    /// Names a partition.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.topic, self.partition)
    }
}

/// A 128-bit id as Kafka has it for topics, clusters and directories; shown as 22 characters of URL-safe base64.
/// Source: `org.apache.kafka.common.Uuid`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub u128);

impl Uuid {
    /// No id.
    pub const ZERO: Uuid = Uuid(0);
    /// Reserved, as the id of KRaft's metadata topic.
    pub const ONE: Uuid = Uuid(1);

    /// A random (version 4) id; never a reserved one, and never one whose text begins with a dash.
    pub fn random() -> Uuid {
        loop {
            let id = Uuid(uuid::Uuid::new_v4().as_u128());
            if id != Uuid::ZERO && id != Uuid::ONE && !id.to_string().starts_with('-') {
                return id;
            }
        }
    }

    /// Reads the 22 characters; padding is allowed as Java's decoder does.
    pub fn parse(text: &str) -> Option<Uuid> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        Some(Uuid(u128::from_be_bytes(bytes.try_into().ok()?)))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&URL_SAFE_NO_PAD.encode(self.0.to_be_bytes()))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Why a topic name is refused; `Display` is Kafka's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicNameError {
    /// The name has no characters.
    #[error("Topic name is invalid: the empty string is not allowed")]
    Empty,
    /// `.` and `..` would be directories.
    #[error("Topic name is invalid: '{0}' is not allowed")]
    Dots(String),
    /// More than `TOPIC_NAME_LENGTH_MAX` characters.
    #[error(
        "Topic name is invalid: the length of '{0}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    )]
    TooLong(String),
    /// A character outside `[a-zA-Z0-9._-]`.
    #[error(
        "Topic name is invalid: '{0}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    )]
    BadCharacter(String),
}

/// Checks a topic name as Kafka does. Source: `Topic.validate`.
pub fn check_topic_name(name: &str) -> Result<(), TopicNameError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() {
        return Err(TopicNameError::Empty);
    }
    if name == "." || name == ".." {
        return Err(TopicNameError::Dots(name.to_owned()));
    }
    if name.encode_utf16().count() > TOPIC_NAME_LENGTH_MAX {
        return Err(TopicNameError::TooLong(name.to_owned()));
    }
    if !name.bytes().all(legal) {
        return Err(TopicNameError::BadCharacter(name.to_owned()));
    }
    Ok(())
}

/// Whether the two names become one metric name, since `.` and `_` do. Source: `Topic.hasCollision`.
pub fn names_collide(one: &str, other: &str) -> bool {
    one.replace('.', "_") == other.replace('.', "_")
}

/// Whether the topic belongs to the brokers themselves. Source: `Topic.isInternal`.
pub fn is_internal(topic: &str) -> bool {
    topic == GROUP_METADATA_TOPIC || topic == TRANSACTION_STATE_TOPIC
}

#[cfg(test)]
mod tests {
    use super::{TopicNameError, Uuid, check_topic_name, names_collide};

    #[test]
    fn names_are_checked_as_kafka_does() {
        assert_eq!(check_topic_name("orders.eu-1_x"), Ok(()));
        assert_eq!(check_topic_name(""), Err(TopicNameError::Empty));
        assert_eq!(check_topic_name(".."), Err(TopicNameError::Dots("..".into())));
        assert!(matches!(check_topic_name(&"x".repeat(250)), Err(TopicNameError::TooLong(_))));
        assert!(matches!(check_topic_name("a b"), Err(TopicNameError::BadCharacter(_))));
        assert!(names_collide("a.b", "a_b") && !names_collide("a.b", "a-b"));
    }

    #[test]
    fn a_uuid_reads_its_own_text() {
        let id = Uuid::random();
        assert_eq!(Uuid::parse(&id.to_string()), Some(id));
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid::parse("short"), None);
    }
}
