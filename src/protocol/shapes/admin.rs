//! Requests of administrators about topics, configs, log directories and quotas.

use super::{Field, array, bool, float64, int16, int32, int32s, int8, string, strings, uuid};

/// CreateTopics (API key 19).
pub(super) const CREATE_TOPICS: &[Field] = &[
    array("Topics", &[
        string("Name"),
        int32("NumPartitions"),
        int16("ReplicationFactor"),
        array("Assignments", &[
            int32("PartitionIndex"),
            int32s("BrokerIds"),
        ]),
        array("Configs", &[
            string("Name"),
            string("Value").nullable(),
        ]),
    ]),
    int32("timeoutMs"),
    bool("validateOnly").from(1),
];

/// DeleteTopics (API key 20).
pub(super) const DELETE_TOPICS: &[Field] = &[
    array("Topics", &[
        string("Name").from(6).nullable(),
        uuid("TopicId").from(6),
    ]).from(6),
    strings("TopicNames").until(5),
    int32("TimeoutMs"),
];

/// DescribeConfigs (API key 32).
pub(super) const DESCRIBE_CONFIGS: &[Field] = &[
    array("Resources", &[
        int8("ResourceType"),
        string("ResourceName"),
        strings("ConfigurationKeys").nullable(),
    ]),
    bool("IncludeSynonyms").from(1),
    bool("IncludeDocumentation").from(3),
];

/// AlterConfigs (API key 33).
pub(super) const ALTER_CONFIGS: &[Field] = &[
    array("Resources", &[
        int8("ResourceType"),
        string("ResourceName"),
        array("Configs", &[
            string("Name"),
            string("Value").nullable(),
        ]),
    ]),
    bool("ValidateOnly"),
];

/// AlterReplicaLogDirs (API key 34).
pub(super) const ALTER_REPLICA_LOG_DIRS: &[Field] = &[
    array("Dirs", &[
        string("Path"),
        array("Topics", &[
            string("Name"),
            int32s("Partitions"),
        ]),
    ]),
];

/// DescribeLogDirs (API key 35).
pub(super) const DESCRIBE_LOG_DIRS: &[Field] = &[
    array("Topics", &[
        string("Topic"),
        int32s("Partitions"),
    ]).nullable(),
];

/// CreatePartitions (API key 37).
pub(super) const CREATE_PARTITIONS: &[Field] = &[
    array("Topics", &[
        string("Name"),
        int32("Count"),
        array("Assignments", &[
            int32s("BrokerIds"),
        ]).nullable(),
    ]),
    int32("TimeoutMs"),
    bool("ValidateOnly"),
];

/// ElectLeaders (API key 43).
pub(super) const ELECT_LEADERS: &[Field] = &[
    int8("ElectionType").from(1),
    array("TopicPartitions", &[
        string("Topic"),
        int32s("Partitions"),
    ]).nullable(),
    int32("TimeoutMs"),
];

/// IncrementalAlterConfigs (API key 44).
pub(super) const INCREMENTAL_ALTER_CONFIGS: &[Field] = &[
    array("Resources", &[
        int8("ResourceType"),
        string("ResourceName"),
        array("Configs", &[
            string("Name"),
            int8("ConfigOperation"),
            string("Value").nullable(),
        ]),
    ]),
    bool("ValidateOnly"),
];

/// AlterPartitionReassignments (API key 45).
pub(super) const ALTER_PARTITION_REASSIGNMENTS: &[Field] = &[
    int32("TimeoutMs"),
    array("Topics", &[
        string("Name"),
        array("Partitions", &[
            int32("PartitionIndex"),
            int32s("Replicas").nullable(),
        ]),
    ]),
];

/// ListPartitionReassignments (API key 46).
pub(super) const LIST_PARTITION_REASSIGNMENTS: &[Field] = &[
    int32("TimeoutMs"),
    array("Topics", &[
        string("Name"),
        int32s("PartitionIndexes"),
    ]).nullable(),
];

/// DescribeClientQuotas (API key 48).
pub(super) const DESCRIBE_CLIENT_QUOTAS: &[Field] = &[
    array("Components", &[
        string("EntityType"),
        int8("MatchType"),
        string("Match").nullable(),
    ]),
    bool("Strict"),
];

/// AlterClientQuotas (API key 49).
pub(super) const ALTER_CLIENT_QUOTAS: &[Field] = &[
    array("Entries", &[
        array("Entity", &[
            string("EntityType"),
            string("EntityName").nullable(),
        ]),
        array("Ops", &[
            string("Key"),
            float64("Value"),
            bool("Remove"),
        ]),
    ]),
    bool("ValidateOnly"),
];

/// UpdateFeatures (API key 57).
pub(super) const UPDATE_FEATURES: &[Field] = &[
    int32("timeoutMs"),
    array("FeatureUpdates", &[
        string("Feature"),
        int16("MaxVersionLevel"),
        bool("AllowDowngrade").until(0),
        int8("UpgradeType").from(1),
    ]),
    bool("ValidateOnly").from(1),
];
