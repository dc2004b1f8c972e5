//! Requests about groups, offsets and transactions.

use super::{
    Field, array, bool, bytes, int16, int32, int32s, int64, int64s, int8, string, strings, uuid,
};

/// OffsetCommit (API key 8).
pub(super) const OFFSET_COMMIT: &[Field] = &[
    string("GroupId"),
    int32("GenerationIdOrMemberEpoch").from(1),
    string("MemberId").from(1),
    string("GroupInstanceId").from(7).nullable(),
    int64("RetentionTimeMs").from(2).until(4),
    array("Topics", &[
        string("Name"),
        array("Partitions", &[
            int32("PartitionIndex"),
            int64("CommittedOffset"),
            int32("CommittedLeaderEpoch").from(6),
            int64("CommitTimestamp").from(1).until(1),
            string("CommittedMetadata").nullable(),
        ]),
    ]),
];

/// OffsetFetch (API key 9).
pub(super) const OFFSET_FETCH: &[Field] = &[
    string("GroupId").until(7),
    array("Topics", &[
        string("Name").until(7),
        int32s("PartitionIndexes").until(7),
    ]).until(7).nullable_from(2),
    array("Groups", &[
        string("GroupId").from(8),
        string("MemberId").from(9).nullable(),
        int32("MemberEpoch").from(9),
        array("Topics", &[
            string("Name").from(8),
            int32s("PartitionIndexes").from(8),
        ]).from(8).nullable(),
    ]).from(8),
    bool("RequireStable").from(7),
];

/// FindCoordinator (API key 10).
pub(super) const FIND_COORDINATOR: &[Field] = &[
    string("Key").until(3),
    int8("KeyType").from(1),
    strings("CoordinatorKeys").from(4),
];

/// JoinGroup (API key 11).
pub(super) const JOIN_GROUP: &[Field] = &[
    string("GroupId"),
    int32("SessionTimeoutMs"),
    int32("RebalanceTimeoutMs").from(1),
    string("MemberId"),
    string("GroupInstanceId").from(5).nullable(),
    string("ProtocolType"),
    array("Protocols", &[
        string("Name"),
        bytes("Metadata"),
    ]),
    string("Reason").from(8).nullable(),
];

/// Heartbeat (API key 12).
pub(super) const HEARTBEAT: &[Field] = &[
    string("GroupId"),
    int32("GenerationId"),
    string("MemberId"),
    string("GroupInstanceId").from(3).nullable(),
];

/// LeaveGroup (API key 13).
pub(super) const LEAVE_GROUP: &[Field] = &[
    string("GroupId"),
    string("MemberId").until(2),
    array("Members", &[
        string("MemberId").from(3),
        string("GroupInstanceId").from(3).nullable(),
        string("Reason").from(5).nullable(),
    ]).from(3),
];

/// SyncGroup (API key 14).
pub(super) const SYNC_GROUP: &[Field] = &[
    string("GroupId"),
    int32("GenerationId"),
    string("MemberId"),
    string("GroupInstanceId").from(3).nullable(),
    string("ProtocolType").from(5).nullable(),
    string("ProtocolName").from(5).nullable(),
    array("Assignments", &[
        string("MemberId"),
        bytes("Assignment"),
    ]),
];

/// DescribeGroups (API key 15).
pub(super) const DESCRIBE_GROUPS: &[Field] = &[
    strings("Groups"),
    bool("IncludeAuthorizedOperations").from(3),
];

/// ListGroups (API key 16).
pub(super) const LIST_GROUPS: &[Field] = &[
    strings("StatesFilter").from(4),
    strings("TypesFilter").from(5),
];

/// AddPartitionsToTxn (API key 24).
pub(super) const ADD_PARTITIONS_TO_TXN: &[Field] = &[
    array("Transactions", &[
        string("TransactionalId").from(4),
        int64("ProducerId").from(4),
        int16("ProducerEpoch").from(4),
        bool("VerifyOnly").from(4),
        array("Topics", &[
            string("Name"),
            int32s("Partitions"),
        ]).from(4),
    ]).from(4),
    string("V3AndBelowTransactionalId").until(3),
    int64("V3AndBelowProducerId").until(3),
    int16("V3AndBelowProducerEpoch").until(3),
    array("V3AndBelowTopics", &[
        string("Name"),
        int32s("Partitions"),
    ]).until(3),
];

/// AddOffsetsToTxn (API key 25).
pub(super) const ADD_OFFSETS_TO_TXN: &[Field] = &[
    string("TransactionalId"),
    int64("ProducerId"),
    int16("ProducerEpoch"),
    string("GroupId"),
];

/// EndTxn (API key 26).
pub(super) const END_TXN: &[Field] = &[
    string("TransactionalId"),
    int64("ProducerId"),
    int16("ProducerEpoch"),
    bool("Committed"),
];

/// WriteTxnMarkers (API key 27).
pub(super) const WRITE_TXN_MARKERS: &[Field] = &[
    array("Markers", &[
        int64("ProducerId"),
        int16("ProducerEpoch"),
        bool("TransactionResult"),
        array("Topics", &[
            string("Name"),
            int32s("PartitionIndexes"),
        ]),
        int32("CoordinatorEpoch"),
    ]),
];

/// TxnOffsetCommit (API key 28).
pub(super) const TXN_OFFSET_COMMIT: &[Field] = &[
    string("TransactionalId"),
    string("GroupId"),
    int64("ProducerId"),
    int16("ProducerEpoch"),
    int32("GenerationId").from(3),
    string("MemberId").from(3),
    string("GroupInstanceId").from(3).nullable(),
    array("Topics", &[
        string("Name"),
        array("Partitions", &[
            int32("PartitionIndex"),
            int64("CommittedOffset"),
            int32("CommittedLeaderEpoch").from(2),
            string("CommittedMetadata").nullable(),
        ]),
    ]),
];

/// DeleteGroups (API key 42).
pub(super) const DELETE_GROUPS: &[Field] = &[
    strings("GroupsNames"),
];

/// OffsetDelete (API key 47).
pub(super) const OFFSET_DELETE: &[Field] = &[
    string("GroupId"),
    array("Topics", &[
        string("Name"),
        array("Partitions", &[
            int32("PartitionIndex"),
        ]),
    ]),
];

/// DescribeTransactions (API key 65).
pub(super) const DESCRIBE_TRANSACTIONS: &[Field] = &[
    strings("TransactionalIds"),
];

/// ListTransactions (API key 66).
pub(super) const LIST_TRANSACTIONS: &[Field] = &[
    strings("StateFilters"),
    int64s("ProducerIdFilters"),
    int64("DurationFilter").from(1),
];

/// ConsumerGroupHeartbeat (API key 68).
pub(super) const CONSUMER_GROUP_HEARTBEAT: &[Field] = &[
    string("GroupId"),
    string("MemberId"),
    int32("MemberEpoch"),
    string("InstanceId").nullable(),
    string("RackId").nullable(),
    int32("RebalanceTimeoutMs"),
    strings("SubscribedTopicNames").nullable(),
    string("ServerAssignor").nullable(),
    array("TopicPartitions", &[
        uuid("TopicId"),
        int32s("Partitions"),
    ]).nullable(),
];

/// ConsumerGroupDescribe (API key 69).
pub(super) const CONSUMER_GROUP_DESCRIBE: &[Field] = &[
    strings("GroupIds"),
    bool("IncludeAuthorizedOperations"),
];
