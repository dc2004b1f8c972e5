//! Requests of producers and consumers for records, and of everybody for what there is.

use super::{Field, array, bool, group, int16, int32, int32s, int64, int8, records, string, uuid};

/// Produce (API key 0).
pub(super) const PRODUCE: &[Field] = &[
    string("TransactionalId").from(3).nullable(),
    int16("Acks"),
    int32("TimeoutMs"),
    array("TopicData", &[
        string("Name"),
        array("PartitionData", &[
            int32("Index"),
            records("Records").nullable(),
        ]),
    ]),
];

/// Fetch (API key 1).
pub(super) const FETCH: &[Field] = &[
    string("ClusterId").from(12).nullable().tagged(0),
    int32("ReplicaId").until(14),
    group("ReplicaState", &[
        int32("ReplicaId").from(15),
        int64("ReplicaEpoch").from(15),
    ]).from(15).tagged(1),
    int32("MaxWaitMs"),
    int32("MinBytes"),
    int32("MaxBytes").from(3),
    int8("IsolationLevel").from(4),
    int32("SessionId").from(7),
    int32("SessionEpoch").from(7),
    array("Topics", &[
        string("Topic").until(12),
        uuid("TopicId").from(13),
        array("Partitions", &[
            int32("Partition"),
            int32("CurrentLeaderEpoch").from(9),
            int64("FetchOffset"),
            int32("LastFetchedEpoch").from(12),
            int64("LogStartOffset").from(5),
            int32("PartitionMaxBytes"),
            uuid("ReplicaDirectoryId").from(17).tagged(0),
        ]),
    ]),
    array("ForgottenTopicsData", &[
        string("Topic").from(7).until(12),
        uuid("TopicId").from(13),
        int32s("Partitions").from(7),
    ]).from(7),
    string("RackId").from(11),
];

/// ListOffsets (API key 2).
pub(super) const LIST_OFFSETS: &[Field] = &[
    int32("ReplicaId"),
    int8("IsolationLevel").from(2),
    array("Topics", &[
        string("Name"),
        array("Partitions", &[
            int32("PartitionIndex"),
            int32("CurrentLeaderEpoch").from(4),
            int64("Timestamp"),
            int32("MaxNumOffsets").until(0),
        ]),
    ]),
];

/// Metadata (API key 3).
pub(super) const METADATA: &[Field] = &[
    array("Topics", &[
        uuid("TopicId").from(10),
        string("Name").nullable_from(10),
    ]).nullable_from(1),
    bool("AllowAutoTopicCreation").from(4),
    bool("IncludeClusterAuthorizedOperations").from(8).until(10),
    bool("IncludeTopicAuthorizedOperations").from(8),
];

/// ApiVersions (API key 18).
pub(super) const API_VERSIONS: &[Field] = &[
    string("ClientSoftwareName").from(3),
    string("ClientSoftwareVersion").from(3),
];

/// DeleteRecords (API key 21).
pub(super) const DELETE_RECORDS: &[Field] = &[
    array("Topics", &[
        string("Name"),
        array("Partitions", &[
            int32("PartitionIndex"),
            int64("Offset"),
        ]),
    ]),
    int32("TimeoutMs"),
];

/// InitProducerId (API key 22).
pub(super) const INIT_PRODUCER_ID: &[Field] = &[
    string("TransactionalId").nullable(),
    int32("TransactionTimeoutMs"),
    int64("ProducerId").from(3),
    int16("ProducerEpoch").from(3),
];

/// OffsetForLeaderEpoch (API key 23).
pub(super) const OFFSET_FOR_LEADER_EPOCH: &[Field] = &[
    int32("ReplicaId").from(3),
    array("Topics", &[
        string("Topic"),
        array("Partitions", &[
            int32("Partition"),
            int32("CurrentLeaderEpoch").from(2),
            int32("LeaderEpoch"),
        ]),
    ]),
];

/// DescribeCluster (API key 60).
pub(super) const DESCRIBE_CLUSTER: &[Field] = &[
    bool("IncludeClusterAuthorizedOperations"),
    int8("EndpointType").from(1),
];

/// DescribeProducers (API key 61).
pub(super) const DESCRIBE_PRODUCERS: &[Field] = &[
    array("Topics", &[
        string("Name"),
        int32s("PartitionIndexes"),
    ]),
];
