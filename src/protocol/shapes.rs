//! The shape of every request in every version: which fields there are, in which order, and what may be null.
//!
//! Only what is needed to step over the bytes. Source: the message definitions of Kafka 3.9.

use kafka_protocol::messages::ApiKey;

#[rustfmt::skip]
mod access;
#[rustfmt::skip]
mod admin;
#[rustfmt::skip]
mod cluster;
#[rustfmt::skip]
mod data;
#[rustfmt::skip]
mod group;

/// A field, in the versions that have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    from: i16,
    until: i16,
    /// The first version in which it may be null.
    nullable_from: i16,
    /// A tagged field stands at the end, by its number, and may be missing.
    pub(crate) tag: Option<u32>,
}

/// What stands on the wire. In flexible versions lengths are compact and structs end with tagged fields.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// This many bytes.
    Fixed(usize),
    /// A length, and UTF-8.
    String,
    /// A length of four bytes or compact, and bytes.
    Bytes,
    /// A count, and as many values of this many bytes.
    FixedArray(usize),
    /// A count, and strings.
    StringArray,
    /// A count, and structs.
    StructArray(&'static [Field]),
    /// Fields.
    Struct(&'static [Field]),
}

impl Field {
    pub(crate) const fn is_in(&self, version: i16) -> bool {
        self.from <= version && version <= self.until
    }

    pub(crate) const fn is_nullable_in(&self, version: i16) -> bool {
        self.nullable_from <= version
    }

    const fn from(self, version: i16) -> Field {
        Field { from: version, ..self }
    }

    const fn until(self, version: i16) -> Field {
        Field { until: version, ..self }
    }

    const fn nullable(self) -> Field {
        self.nullable_from(0)
    }

    const fn nullable_from(self, version: i16) -> Field {
        Field { nullable_from: version, ..self }
    }

    const fn tagged(self, tag: u32) -> Field {
        Field { tag: Some(tag), ..self }
    }
}

const fn field(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, from: 0, until: i16::MAX, nullable_from: i16::MAX, tag: None }
}

/// The constructors of fields, by Kafka's names of types; `int32s` is an array of `int32`.
macro_rules! constructors {
    ($($name:ident = $shape:expr;)*) => {
        $(const fn $name(name: &'static str) -> Field {
            field(name, $shape)
        })*
    };
}

constructors! {
    bool = Shape::Fixed(1);
    int8 = Shape::Fixed(1);
    int16 = Shape::Fixed(2);
    int32 = Shape::Fixed(4);
    int64 = Shape::Fixed(8);
    float64 = Shape::Fixed(8);
    uuid = Shape::Fixed(16);
    string = Shape::String;
    bytes = Shape::Bytes;
    records = Shape::Bytes;
    int32s = Shape::FixedArray(4);
    int64s = Shape::FixedArray(8);
    strings = Shape::StringArray;
}

const fn array(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Shape::StructArray(fields))
}

const fn group(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Shape::Struct(fields))
}

/// The fields of an API's request; none for an API of KRaft.
pub(crate) fn of(key: ApiKey) -> Option<&'static [Field]> {
    Some(match key {
        ApiKey::Produce => data::PRODUCE,
        ApiKey::Fetch => data::FETCH,
        ApiKey::ListOffsets => data::LIST_OFFSETS,
        ApiKey::Metadata => data::METADATA,
        ApiKey::LeaderAndIsr => cluster::LEADER_AND_ISR,
        ApiKey::StopReplica => cluster::STOP_REPLICA,
        ApiKey::UpdateMetadata => cluster::UPDATE_METADATA,
        ApiKey::ControlledShutdown => cluster::CONTROLLED_SHUTDOWN,
        ApiKey::OffsetCommit => group::OFFSET_COMMIT,
        ApiKey::OffsetFetch => group::OFFSET_FETCH,
        ApiKey::FindCoordinator => group::FIND_COORDINATOR,
        ApiKey::JoinGroup => group::JOIN_GROUP,
        ApiKey::Heartbeat => group::HEARTBEAT,
        ApiKey::LeaveGroup => group::LEAVE_GROUP,
        ApiKey::SyncGroup => group::SYNC_GROUP,
        ApiKey::DescribeGroups => group::DESCRIBE_GROUPS,
        ApiKey::ListGroups => group::LIST_GROUPS,
        ApiKey::SaslHandshake => access::SASL_HANDSHAKE,
        ApiKey::ApiVersions => data::API_VERSIONS,
        ApiKey::CreateTopics => admin::CREATE_TOPICS,
        ApiKey::DeleteTopics => admin::DELETE_TOPICS,
        ApiKey::DeleteRecords => data::DELETE_RECORDS,
        ApiKey::InitProducerId => data::INIT_PRODUCER_ID,
        ApiKey::OffsetForLeaderEpoch => data::OFFSET_FOR_LEADER_EPOCH,
        ApiKey::AddPartitionsToTxn => group::ADD_PARTITIONS_TO_TXN,
        ApiKey::AddOffsetsToTxn => group::ADD_OFFSETS_TO_TXN,
        ApiKey::EndTxn => group::END_TXN,
        ApiKey::WriteTxnMarkers => group::WRITE_TXN_MARKERS,
        ApiKey::TxnOffsetCommit => group::TXN_OFFSET_COMMIT,
        ApiKey::DescribeAcls => access::DESCRIBE_ACLS,
        ApiKey::CreateAcls => access::CREATE_ACLS,
        ApiKey::DeleteAcls => access::DELETE_ACLS,
        ApiKey::DescribeConfigs => admin::DESCRIBE_CONFIGS,
        ApiKey::AlterConfigs => admin::ALTER_CONFIGS,
        ApiKey::AlterReplicaLogDirs => admin::ALTER_REPLICA_LOG_DIRS,
        ApiKey::DescribeLogDirs => admin::DESCRIBE_LOG_DIRS,
        ApiKey::SaslAuthenticate => access::SASL_AUTHENTICATE,
        ApiKey::CreatePartitions => admin::CREATE_PARTITIONS,
        ApiKey::CreateDelegationToken => access::CREATE_DELEGATION_TOKEN,
        ApiKey::RenewDelegationToken => access::RENEW_DELEGATION_TOKEN,
        ApiKey::ExpireDelegationToken => access::EXPIRE_DELEGATION_TOKEN,
        ApiKey::DescribeDelegationToken => access::DESCRIBE_DELEGATION_TOKEN,
        ApiKey::DeleteGroups => group::DELETE_GROUPS,
        ApiKey::ElectLeaders => admin::ELECT_LEADERS,
        ApiKey::IncrementalAlterConfigs => admin::INCREMENTAL_ALTER_CONFIGS,
        ApiKey::AlterPartitionReassignments => admin::ALTER_PARTITION_REASSIGNMENTS,
        ApiKey::ListPartitionReassignments => admin::LIST_PARTITION_REASSIGNMENTS,
        ApiKey::OffsetDelete => group::OFFSET_DELETE,
        ApiKey::DescribeClientQuotas => admin::DESCRIBE_CLIENT_QUOTAS,
        ApiKey::AlterClientQuotas => admin::ALTER_CLIENT_QUOTAS,
        ApiKey::DescribeUserScramCredentials => access::DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey::AlterUserScramCredentials => access::ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey::AlterPartition => cluster::ALTER_PARTITION,
        ApiKey::UpdateFeatures => admin::UPDATE_FEATURES,
        ApiKey::Envelope => cluster::ENVELOPE,
        ApiKey::DescribeCluster => data::DESCRIBE_CLUSTER,
        ApiKey::DescribeProducers => data::DESCRIBE_PRODUCERS,
        ApiKey::DescribeTransactions => group::DESCRIBE_TRANSACTIONS,
        ApiKey::ListTransactions => group::LIST_TRANSACTIONS,
        ApiKey::AllocateProducerIds => cluster::ALLOCATE_PRODUCER_IDS,
        ApiKey::ConsumerGroupHeartbeat => group::CONSUMER_GROUP_HEARTBEAT,
        ApiKey::ConsumerGroupDescribe => group::CONSUMER_GROUP_DESCRIBE,
        _ => return None,
    })
}
