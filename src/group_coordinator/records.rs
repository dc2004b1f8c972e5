//! What `__consumer_offsets` holds: records of offsets and of groups, and their bytes in every version.
//!
//! Source: `OffsetCommitKey`, `OffsetCommitValue`, `GroupMetadataKey` and `GroupMetadataValue` of Kafka's
//! group-coordinator, and `kafka.coordinator.group.GroupMetadataManager` for which version is written.

use std::sync::Arc;

use bytes::Bytes;
use common::{
    ids::{LeaderEpoch, Offset, Timestamp},
    topic::TopicPartition,
};

use crate::wire::{Reader, Writer};

/// Key versions 0 and 1.
const OFFSET_COMMIT_KEY: i16 = 1;
/// Key version 2; later ones belong to the group coordinator of Kafka 4.
const GROUP_METADATA_KEY: i16 = 2;
/// Newest version of either value, and the first with tagged fields.
const FLEXIBLE_VALUE: i16 = 4;

/// A fact of the log. A value of None takes it back: a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// What a group committed for a partition.
    OffsetCommit {
        /// The group.
        group: Arc<str>,
        /// The partition.
        topic_partition: TopicPartition,
        /// The offset.
        value: Option<OffsetCommitValue>,
    },
    /// A group's generation.
    GroupMetadata {
        /// The group.
        group: Arc<str>,
        /// The generation.
        value: Option<GroupMetadataValue>,
    },
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitValue {
    /// The next record to read.
    pub offset: Offset,
    /// Epoch of the last record read, or `LeaderEpoch::NONE`.
    pub leader_epoch: LeaderEpoch,
    /// The client's own text.
    pub metadata: String,
    /// When it was committed.
    pub commit_timestamp: Timestamp,
    /// When it expires, if the client said so; else the broker's retention counts.
    pub expire_timestamp: Option<Timestamp>,
}

/// A group's generation, once its assignment is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMetadataValue {
    /// Such as `consumer`; empty where there is none.
    pub protocol_type: String,
    /// 1 or more; 0 before the first.
    pub generation: i32,
    /// The chosen protocol; None without members.
    pub protocol: Option<String>,
    /// Member id of the leader; None without members.
    pub leader: Option<String>,
    /// When the group came into its state; None in versions 0 and 1.
    pub current_state_timestamp: Option<Timestamp>,
    /// All members.
    pub members: Vec<MemberMetadataValue>,
}

/// A member of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberMetadataValue {
    /// Its id.
    pub member_id: String,
    /// Its static name; versions below 3 have none.
    pub group_instance_id: Option<String>,
    /// Of its JoinGroup request.
    pub client_id: String,
    /// Of its JoinGroup request.
    pub client_host: String,
    /// Version 0 has none: the session timeout.
    pub rebalance_timeout_ms: i32,
    /// After this long without a sign the member is out.
    pub session_timeout_ms: i32,
    /// Its metadata for the chosen protocol.
    pub subscription: Bytes,
    /// What the leader gave it.
    pub assignment: Bytes,
}

/// What a record's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A record that we know.
    Record(GroupRecord),
    /// A key of another Kafka, perhaps left over from an aborted upgrade; loaders skip it.
    UnknownKey {
        /// The key's version; 3 and more in Kafka 4.
        version: i16,
    },
}

/// A record's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRecord {
    /// Decides what is compacted with what.
    pub key: Bytes,
    /// None for a tombstone.
    pub value: Option<Bytes>,
}

/// Which versions of the values to write. They follow `inter.broker.protocol.version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueVersions {
    /// 1 below 2.1-IV0, 2 below 2.1-IV1, else 3. An offset that expires by itself is always written as 1.
    pub offset_commit: i16,
    /// 0 below 0.10.1-IV0, 1 below 2.1-IV0, 2 below 2.3-IV0, else 3.
    pub group_metadata: i16,
}

impl ValueVersions {
    /// What Kafka 3.9 writes at its own version: the last without tagged fields.
    pub const LATEST: ValueVersions = ValueVersions { offset_commit: 3, group_metadata: 3 };
}

/// Why bytes are no record, or a record has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end too early.
    #[error("the record ends within {field}")]
    Truncated {
        /// Where.
        field: &'static str,
    },
    /// A length that cannot be.
    #[error("bad length of {field}")]
    BadLength {
        /// Where.
        field: &'static str,
    },
    /// Something must be there.
    #[error("{field} is null")]
    Null {
        /// Where.
        field: &'static str,
    },
    /// Text that is not.
    #[error("{field} is not UTF-8")]
    NotUtf8 {
        /// Where.
        field: &'static str,
    },
    /// A known key, but a value of a later Kafka.
    #[error("unknown version {version} of {value}")]
    UnknownVersion {
        /// Which value.
        value: &'static str,
        /// Its version.
        version: i16,
    },
    /// Text over 32,767 bytes, or bytes or counts over 31 bits.
    #[error("{field} is too long for a record")]
    TooLong {
        /// Where.
        field: &'static str,
    },
}

/// Reads a record. The result owns its bytes. Bytes behind the last field are ignored, as in Kafka.
pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Decoded, RecordError> {
    let mut key = Reader::new(key);
    let record = match key.int16("key version")? {
        0..=OFFSET_COMMIT_KEY => GroupRecord::OffsetCommit {
            group: key.text("group")?.into(),
            topic_partition: TopicPartition::new(key.text("topic")?, key.int32("partition")?),
            value: value.map(decode_offset_commit).transpose()?,
        },
        GROUP_METADATA_KEY => GroupRecord::GroupMetadata {
            group: key.text("group")?.into(),
            value: value.map(decode_group_metadata).transpose()?,
        },
        version => return Ok(Decoded::UnknownKey { version }),
    };
    Ok(Decoded::Record(record))
}

/// Reads a value's version, and from then on by its rules.
fn begin<'a>(bytes: &'a [u8], value: &'static str) -> Result<(Reader<'a>, i16), RecordError> {
    let mut reader = Reader::new(bytes);
    let version = reader.int16("value version")?;
    if !(0..=FLEXIBLE_VALUE).contains(&version) {
        return Err(RecordError::UnknownVersion { value, version });
    }
    reader.flexible = version >= FLEXIBLE_VALUE;
    Ok((reader, version))
}

fn known(timestamp: i64) -> Option<Timestamp> {
    (timestamp != Timestamp::NONE.0).then_some(Timestamp(timestamp))
}

fn decode_offset_commit(bytes: &[u8]) -> Result<OffsetCommitValue, RecordError> {
    let (mut reader, version) = begin(bytes, "OffsetCommitValue")?;
    let offset = Offset(reader.int64("offset")?);
    let leader_epoch = match version {
        3.. => LeaderEpoch(reader.int32("leader epoch")?),
        _ => LeaderEpoch::NONE,
    };
    let metadata = reader.text("metadata")?.to_owned();
    let commit_timestamp = Timestamp(reader.int64("commit timestamp")?);
    let expire_timestamp = match version {
        1 => known(reader.int64("expire timestamp")?),
        _ => None,
    };
    reader.tagged_fields()?;
    Ok(OffsetCommitValue { offset, leader_epoch, metadata, commit_timestamp, expire_timestamp })
}

/// Bytes that a member takes at least, in compact form.
const MEMBER_BYTES_MIN: usize = 15;

fn decode_group_metadata(bytes: &[u8]) -> Result<GroupMetadataValue, RecordError> {
    let (mut reader, version) = begin(bytes, "GroupMetadataValue")?;
    let protocol_type = reader.text("protocol type")?.to_owned();
    let generation = reader.int32("generation")?;
    let protocol = reader.nullable_text("protocol")?.map(str::to_owned);
    let leader = reader.nullable_text("leader")?.map(str::to_owned);
    let current_state_timestamp = match version {
        2.. => known(reader.int64("current state timestamp")?),
        _ => None,
    };
    let count = reader.count(MEMBER_BYTES_MIN, "members")?;
    let members =
        (0..count).map(|_| decode_member(&mut reader, version)).collect::<Result<_, _>>()?;
    reader.tagged_fields()?;
    Ok(GroupMetadataValue {
        protocol_type,
        generation,
        protocol,
        leader,
        current_state_timestamp,
        members,
    })
}

fn decode_member(reader: &mut Reader, version: i16) -> Result<MemberMetadataValue, RecordError> {
    let member_id = reader.text("member id")?.to_owned();
    let group_instance_id = match version {
        3.. => reader.nullable_text("group instance id")?.map(str::to_owned),
        _ => None,
    };
    let client_id = reader.text("client id")?.to_owned();
    let client_host = reader.text("client host")?.to_owned();
    let rebalance_timeout_ms = match version {
        1.. => Some(reader.int32("rebalance timeout")?),
        _ => None,
    };
    let session_timeout_ms = reader.int32("session timeout")?;
    let subscription = Bytes::copy_from_slice(reader.bytes("subscription")?);
    let assignment = Bytes::copy_from_slice(reader.bytes("assignment")?);
    reader.tagged_fields()?;
    Ok(MemberMetadataValue {
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms: rebalance_timeout_ms.unwrap_or(session_timeout_ms),
        session_timeout_ms,
        subscription,
        assignment,
    })
}

/// Writes a record.
///
/// # Errors
/// `TooLong`: text that came from a client may be longer than a record can hold.
pub fn encode(record: &GroupRecord, versions: ValueVersions) -> Result<EncodedRecord, RecordError> {
    let (key, value) = match record {
        GroupRecord::OffsetCommit { group, topic_partition, value } => {
            let mut key = Writer::new(OFFSET_COMMIT_KEY, false);
            key.text(group, "group")?;
            key.text(&topic_partition.topic, "topic")?;
            key.int32(topic_partition.partition);
            let version = |value: &OffsetCommitValue| match value.expire_timestamp {
                Some(_) => 1,
                None => versions.offset_commit,
            };
            (key, value.as_ref().map(|value| encode_offset_commit(value, version(value))))
        }
        GroupRecord::GroupMetadata { group, value } => {
            let mut key = Writer::new(GROUP_METADATA_KEY, false);
            key.text(group, "group")?;
            let encode = |value| encode_group_metadata(value, versions.group_metadata);
            (key, value.as_ref().map(encode))
        }
    };
    Ok(EncodedRecord { key: key.bytes.into(), value: value.transpose()? })
}

fn encode_offset_commit(value: &OffsetCommitValue, version: i16) -> Result<Bytes, RecordError> {
    let mut writer = Writer::new(version, version >= FLEXIBLE_VALUE);
    writer.int64(value.offset.0);
    if version >= 3 {
        writer.int32(value.leader_epoch.0);
    }
    writer.text(&value.metadata, "metadata")?;
    writer.int64(value.commit_timestamp.0);
    if version == 1 {
        writer.int64(value.expire_timestamp.unwrap_or(Timestamp::NONE).0);
    }
    writer.tagged_fields();
    Ok(writer.bytes.into())
}

fn encode_group_metadata(value: &GroupMetadataValue, version: i16) -> Result<Bytes, RecordError> {
    let mut writer = Writer::new(version, version >= FLEXIBLE_VALUE);
    writer.text(&value.protocol_type, "protocol type")?;
    writer.int32(value.generation);
    writer.nullable_text(value.protocol.as_deref(), "protocol")?;
    writer.nullable_text(value.leader.as_deref(), "leader")?;
    if version >= 2 {
        writer.int64(value.current_state_timestamp.unwrap_or(Timestamp::NONE).0);
    }
    writer.count(value.members.len(), "members")?;
    for member in &value.members {
        encode_member(&mut writer, member, version)?;
    }
    writer.tagged_fields();
    Ok(writer.bytes.into())
}

fn encode_member(
    writer: &mut Writer,
    member: &MemberMetadataValue,
    version: i16,
) -> Result<(), RecordError> {
    writer.text(&member.member_id, "member id")?;
    if version >= 3 {
        writer.nullable_text(member.group_instance_id.as_deref(), "group instance id")?;
    }
    writer.text(&member.client_id, "client id")?;
    writer.text(&member.client_host, "client host")?;
    if version >= 1 {
        writer.int32(member.rebalance_timeout_ms);
    }
    writer.int32(member.session_timeout_ms);
    writer.bytes(&member.subscription, "subscription")?;
    writer.bytes(&member.assignment, "assignment")?;
    writer.tagged_fields();
    Ok(())
}
