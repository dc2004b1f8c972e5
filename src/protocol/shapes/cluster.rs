//! Requests between brokers.

use super::{Field, array, bool, bytes, int16, int32, int32s, int64, int8, string, uuid};

/// A partition in LeaderAndIsr, on its own in old versions and below its topic in new ones.
const LED_PARTITION: &[Field] = &[
    string("TopicName").until(1),
    int32("PartitionIndex"),
    int32("ControllerEpoch"),
    int32("Leader"),
    int32("LeaderEpoch"),
    int32s("Isr"),
    int32("PartitionEpoch"),
    int32s("Replicas"),
    int32s("AddingReplicas").from(3),
    int32s("RemovingReplicas").from(3),
    bool("IsNew").from(1),
    int8("LeaderRecoveryState").from(6),
];

/// LeaderAndIsr (API key 4).
pub(super) const LEADER_AND_ISR: &[Field] = &[
    int32("ControllerId"),
    bool("isKRaftController").from(7),
    int32("ControllerEpoch"),
    int64("BrokerEpoch").from(2),
    int8("Type").from(5),
    array("UngroupedPartitionStates", LED_PARTITION).until(1),
    array("TopicStates", &[
        string("TopicName").from(2),
        uuid("TopicId").from(5),
        array("PartitionStates", LED_PARTITION).from(2),
    ]).from(2),
    array("LiveLeaders", &[
        int32("BrokerId"),
        string("HostName"),
        int32("Port"),
    ]),
];

/// StopReplica (API key 5).
pub(super) const STOP_REPLICA: &[Field] = &[
    int32("ControllerId"),
    bool("isKRaftController").from(4),
    int32("ControllerEpoch"),
    int64("BrokerEpoch").from(1),
    bool("DeletePartitions").until(2),
    array("UngroupedPartitions", &[
        string("TopicName").until(0),
        int32("PartitionIndex").until(0),
    ]).until(0),
    array("Topics", &[
        string("Name").from(1).until(2),
        int32s("PartitionIndexes").from(1).until(2),
    ]).from(1).until(2),
    array("TopicStates", &[
        string("TopicName").from(3),
        array("PartitionStates", &[
            int32("PartitionIndex").from(3),
            int32("LeaderEpoch").from(3),
            bool("DeletePartition").from(3),
        ]).from(3),
    ]).from(3),
];

/// A partition in UpdateMetadata, on its own in old versions and below its topic in new ones.
const KNOWN_PARTITION: &[Field] = &[
    string("TopicName").until(4),
    int32("PartitionIndex"),
    int32("ControllerEpoch"),
    int32("Leader"),
    int32("LeaderEpoch"),
    int32s("Isr"),
    int32("ZkVersion"),
    int32s("Replicas"),
    int32s("OfflineReplicas").from(4),
];

/// UpdateMetadata (API key 6).
pub(super) const UPDATE_METADATA: &[Field] = &[
    int32("ControllerId"),
    bool("isKRaftController").from(8),
    int8("Type").from(8).tagged(0),
    int32("ControllerEpoch"),
    int64("BrokerEpoch").from(5),
    array("UngroupedPartitionStates", KNOWN_PARTITION).until(4),
    array("TopicStates", &[
        string("TopicName").from(5),
        uuid("TopicId").from(7),
        array("PartitionStates", KNOWN_PARTITION).from(5),
    ]).from(5),
    array("LiveBrokers", &[
        int32("Id"),
        string("V0Host").until(0),
        int32("V0Port").until(0),
        array("Endpoints", &[
            int32("Port").from(1),
            string("Host").from(1),
            string("Listener").from(3),
            int16("SecurityProtocol").from(1),
        ]).from(1),
        string("Rack").from(2).nullable(),
    ]),
];

/// ControlledShutdown (API key 7).
pub(super) const CONTROLLED_SHUTDOWN: &[Field] = &[
    int32("BrokerId"),
    int64("BrokerEpoch").from(2),
];

/// AlterPartition (API key 56).
pub(super) const ALTER_PARTITION: &[Field] = &[
    int32("BrokerId"),
    int64("BrokerEpoch"),
    array("Topics", &[
        string("TopicName").until(1),
        uuid("TopicId").from(2),
        array("Partitions", &[
            int32("PartitionIndex"),
            int32("LeaderEpoch"),
            int32s("NewIsr").until(2),
            array("NewIsrWithEpochs", &[
                int32("BrokerId").from(3),
                int64("BrokerEpoch").from(3),
            ]).from(3),
            int8("LeaderRecoveryState").from(1),
            int32("PartitionEpoch"),
        ]),
    ]),
];

/// Envelope (API key 58).
pub(super) const ENVELOPE: &[Field] = &[
    bytes("RequestData"),
    bytes("RequestPrincipal").nullable(),
    bytes("ClientHostAddress"),
];

/// AllocateProducerIds (API key 67).
pub(super) const ALLOCATE_PRODUCER_IDS: &[Field] = &[
    int32("BrokerId"),
    int64("BrokerEpoch"),
];
