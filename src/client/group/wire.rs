//! What members tell each other through the coordinator: subscriptions and assignments. Source: `ConsumerProtocol`.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use common::topic::TopicPartition;
use kafka_protocol::{
    messages::{
        ConsumerProtocolAssignment, ConsumerProtocolSubscription,
        consumer_protocol_assignment::TopicPartition as AssignedTopic,
    },
    protocol::{Decodable, Encodable, Message, StrBytes},
};

use crate::{
    admin::{text, topic_name},
    error::{ClientError, ErrorKind},
};

/// The version that is written; any version can be read, for later ones only add to the end.
const VERSION: i16 = 3;

fn malformed(error: impl std::fmt::Display) -> ClientError {
    ClientError::new(
        ErrorKind::Malformed,
        format!("Buffer underflow while parsing consumer protocol's header: {error}"),
    )
}

/// The version in front, if there is one.
fn version_of<M: Message>(bytes: &mut Bytes) -> Result<i16, ClientError> {
    if bytes.remaining() < 2 {
        return Err(malformed("no version"));
    }
    let version = bytes.get_i16();
    if version < 0 {
        return Err(malformed(format!("version {version}")));
    }
    Ok(version.min(M::VERSIONS.max))
}

/// What a member that gives up all partitions before it joins sends.
pub(crate) fn write_subscription<'a>(topics: impl IntoIterator<Item = &'a String>) -> Bytes {
    let topics: Vec<StrBytes> = topics.into_iter().map(|topic| text(topic)).collect();
    let subscription = ConsumerProtocolSubscription::default().with_topics(topics);
    let mut bytes = BytesMut::new();
    bytes.put_i16(VERSION);
    subscription.encode(&mut bytes, VERSION).expect("its own version has all its fields");
    bytes.freeze()
}

/// Topics that a member wants.
pub(crate) fn read_subscription(bytes: &Bytes) -> Result<Vec<String>, ClientError> {
    let mut bytes = bytes.clone();
    let version = version_of::<ConsumerProtocolSubscription>(&mut bytes)?;
    let subscription =
        ConsumerProtocolSubscription::decode(&mut bytes, version).map_err(malformed)?;
    Ok(subscription.topics.iter().map(StrBytes::to_string).collect())
}

/// What the leader sends to a member.
pub(crate) fn write_assignment(partitions: &[TopicPartition]) -> Bytes {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition);
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        AssignedTopic::default().with_topic(topic_name(name)).with_partitions(partitions)
    });
    let assignment =
        ConsumerProtocolAssignment::default().with_assigned_partitions(topics.collect());
    let mut bytes = BytesMut::new();
    bytes.put_i16(VERSION);
    assignment.encode(&mut bytes, VERSION).expect("its own version has all its fields");
    bytes.freeze()
}

/// Partitions of a member, in order.
pub(crate) fn read_assignment(bytes: &Bytes) -> Result<Vec<TopicPartition>, ClientError> {
    let mut bytes = bytes.clone();
    let version = version_of::<ConsumerProtocolAssignment>(&mut bytes)?;
    let assignment = ConsumerProtocolAssignment::decode(&mut bytes, version).map_err(malformed)?;
    let partitions = assignment.assigned_partitions.iter().flat_map(|topic| {
        topic.partitions.iter().map(|index| TopicPartition::new(&*topic.topic.0, *index))
    });
    Ok(partitions.collect())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use common::topic::TopicPartition;

    use super::{read_assignment, read_subscription, write_assignment, write_subscription};

    #[test]
    fn both_are_the_bytes_of_javas_consumer() {
        // As `kafka-console-consumer` of Kafka 3.9 sends them: version 3, topic `plain`.
        let subscription = Bytes::from_static(
            b"\0\x03\0\0\0\x01\0\x05plain\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff\xff\xff",
        );
        assert_eq!(write_subscription(&["plain".to_owned()]), subscription);
        assert_eq!(read_subscription(&subscription).unwrap(), ["plain"]);
        let assignment =
            Bytes::from_static(b"\0\x03\0\0\0\x01\0\x05plain\0\0\0\x01\0\0\0\0\xff\xff\xff\xff");
        let partitions = [TopicPartition::new("plain", 0)];
        assert_eq!(write_assignment(&partitions), assignment);
        assert_eq!(read_assignment(&assignment).unwrap(), partitions);
    }

    #[test]
    fn a_broken_assignment_is_an_error() {
        for bytes in [&b""[..], b"\0", b"\xff\xff", b"\0\x03\0\0\0\x01\0\x05pl"] {
            assert!(read_assignment(&Bytes::copy_from_slice(bytes)).is_err());
        }
    }
}
