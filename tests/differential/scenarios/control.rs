//! What a controller says to brokers: LeaderAndIsr, StopReplica, UpdateMetadata. Without an authorizer a broker takes them
//! from anybody, and a cluster that was just started has had one controller, of epoch 1.
//!
//! An edge of a controller epoch above that would make a broker obey nobody else, and is left out. A word that is taken is
//! about a topic of its own, which is deleted then.

use kafka_protocol::messages::ApiKey;
use serde_json::{Value as Json, json};

use super::{Fresh, Names, Scenario, Step, create, ends, produce};
use crate::{edges::Extra, records, value::Value};

/// A controller that nobody has seen.
const FORMER: i32 = 0;
/// The one there is.
const CURRENT: i32 = 1;
/// No epoch of a broker's registration is told.
const UNTOLD: i64 = -1;
/// A registration from before the cluster.
const OLD: i64 = 0;
/// An epoch before all others; -1 and -2 have meanings of their own.
const OLD_LEADER_EPOCH: i32 = -5;
/// The leader that says that a partition is gone.
const LEADER_DURING_DELETE: i32 = -2;
/// Partitions that are told of and are not there: of the edges of a number all but 0, and the second one of the requests.
const NOT_THERE: [i32; 11] = [i32::MIN, -3, -2, -1, 1, 2, 3, 7, 9, 1000, i32::MAX];
/// An id that no topic has.
const ANOTHER_ID: &str = "000102030405060708090a0b0c0d0e0f";

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = leading();
    all.extend(stopping());
    all.extend(updating());
    all
}

/// Epochs of controllers that would be newer than the one there is.
fn is_newer_controller(path: &str, value: &Value) -> bool {
    path == "ControllerEpoch" && matches!(value, Value::Number(2..))
}

/// What may be older than the registration of the one broker and not than that of the other.
fn is_early_registration(path: &str, value: &Value) -> bool {
    path == "BrokerEpoch" && matches!(value, Value::Number(4..=1000))
}

/// Registrations that are not from before the cluster, and the sign for none.
fn is_living_registration(path: &str, value: &Value) -> bool {
    path == "BrokerEpoch" && matches!(value, Value::Number(-1 | 4..))
}

/// A controller of KRaft is let pass by Kafka, whatever the registration: it belongs to the migration, which is not built.
fn is_kraft(path: &str, value: &Value) -> bool {
    path == "isKRaftController" && *value != Value::Number(0)
}

fn of_registration(path: &str, value: &Value) -> bool {
    is_living_registration(path, value) || is_kraft(path, value)
}

/// All that is not to be told in the name of the controller that there is.
fn is_unfit(path: &str, value: &Value) -> bool {
    is_newer_controller(path, value) || is_kraft(path, value) || is_early_registration(path, value)
}

/// What a log's folder cannot be called ends Kafka, and the others would stay behind.
fn is_dangerous(path: &str, value: &Value) -> bool {
    is_unfit(path, value) || ends(path, "TopicName") || ends(path, "Name")
}

/// What makes a controller no former one.
fn is_no_former(path: &str, value: &Value) -> bool {
    path == "ControllerEpoch" && matches!(value, Value::Number(1..))
        || is_early_registration(path, value)
}

// LeaderAndIsr.

fn led(topic: &str, index: i32, leader_epoch: i32) -> Json {
    json!({
        "TopicName": topic, "PartitionIndex": index, "ControllerEpoch": 1, "Leader": 1, "LeaderEpoch": leader_epoch,
        "Isr": [1], "PartitionEpoch": 0, "Replicas": [1], "AddingReplicas": [], "RemovingReplicas": [], "IsNew": false,
        "LeaderRecoveryState": 0,
    })
}

fn leader_and_isr(
    (controller_epoch, broker_epoch): (i32, i64),
    topics: &[(&str, String)],
    partitions: &[i32],
    leader_epoch: i32,
) -> Json {
    let states = |topic: &str| -> Vec<Json> {
        partitions.iter().map(|index| led(topic, *index, leader_epoch)).collect()
    };
    let grouped: Vec<Json> = topics
        .iter()
        .map(|(topic, id)| json!({"TopicName": topic, "TopicId": id, "PartitionStates": states(topic)}))
        .collect();
    let flat: Vec<Json> = topics.iter().flat_map(|(topic, _)| states(topic)).collect();
    json!({
        "ControllerId": 1, "ControllerEpoch": controller_epoch, "BrokerEpoch": broker_epoch, "Type": 0,
        "UngroupedPartitionStates": flat, "TopicStates": grouped,
        "LiveLeaders": [{"BrokerId": 1, "HostName": "localhost", "Port": 9092}],
    })
}

fn orders_and_unknown(names: &Names) -> [(String, String); 2] {
    let orders = names.world("orders");
    let id = format!("id:{orders}");
    [(orders, id), ("unknown".to_owned(), ANOTHER_ID.to_owned())]
}

fn refused_leader_and_isr(names: &Names, epochs: (i32, i64)) -> Json {
    let topics = orders_and_unknown(names);
    let topics = topics.each_ref().map(|(name, id)| (name.as_str(), id.clone()));
    leader_and_isr(epochs, &topics, &[0, 9], OLD_LEADER_EPOCH)
}

/// Whether the topic is still led here, and its end.
fn afterwards(names: &Names, _: i16) -> Vec<Step> {
    let partition = json!({"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1});
    let ends = json!({"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": names.fresh, "Partitions": [partition]}]});
    vec![
        Step { api: ApiKey::ListOffsets, version: 7, body: ends },
        produce(&names.fresh, 0, &records::plain(1)),
        deleted(&names.fresh),
    ]
}

fn deleted(topic: &str) -> Step {
    let body = json!({"Topics": [{"Name": topic}], "TimeoutMs": 30000});
    Step { api: ApiKey::DeleteTopics, version: 6, body }
}

fn own_topic(names: &Names, _: i16) -> Vec<Step> {
    vec![create(&names.fresh, 1, &[])]
}

fn leading() -> Vec<Scenario> {
    let api = ApiKey::LeaderAndIsr;
    vec![
        Scenario {
            skip: is_no_former,
            ..Scenario::new(api, "of a former controller", |names, _| {
                refused_leader_and_isr(names, (FORMER, UNTOLD))
            })
        },
        Scenario {
            versions: (2, i16::MAX),
            skip: of_registration,
            ..Scenario::new(api, "to a former registration", |names, _| {
                refused_leader_and_isr(names, (CURRENT, OLD))
            })
        },
        Scenario {
            before: own_topic,
            skip: |path, value| {
                is_dangerous(path, value)
                    || ends(path, "LeaderEpoch") && matches!(value, Value::Number(-1..))
            },
            extras: |_, _| {
                let another = (1..=16).collect();
                vec![Extra::of("TopicId", vec![Value::Raw(another)])]
            },
            ..Scenario::new(api, "of former epochs", |names, _| {
                let id = format!("id:{}", names.fresh);
                let topics = [(names.fresh.as_str(), id)];
                leader_and_isr((CURRENT, UNTOLD), &topics, &[0, 9], OLD_LEADER_EPOCH)
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: own_topic,
            after: afterwards,
            skip: |path, value| is_dangerous(path, value) || ends(path, "PartitionIndex"),
            ..Scenario::new(api, "of a topic of its own", |names, _| {
                let id = format!("id:{}", names.fresh);
                leader_and_isr((CURRENT, UNTOLD), &[(names.fresh.as_str(), id)], &[0], 5)
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: own_topic,
            after: afterwards,
            skip: |path, value| is_dangerous(path, value) || ends(path, "PartitionIndex"),
            ..Scenario::new(api, "of the epoch there is", |names, _| {
                let id = format!("id:{}", names.fresh);
                leader_and_isr((CURRENT, UNTOLD), &[(names.fresh.as_str(), id)], &[0], 0)
            })
        },
    ]
}

// StopReplica.

fn stop_replica(
    (controller_epoch, broker_epoch): (i32, i64),
    topics: &[String],
    partitions: &[i32],
    (leader_epoch, delete): (i32, bool),
) -> Json {
    let state = |index: &i32| json!({"PartitionIndex": index, "LeaderEpoch": leader_epoch, "DeletePartition": delete});
    let states: Vec<Json> = partitions.iter().map(state).collect();
    let flat = |topic: &String| {
        let topic = topic.clone();
        partitions.iter().map(move |index| json!({"TopicName": topic, "PartitionIndex": index}))
    };
    json!({
        "ControllerId": 1, "ControllerEpoch": controller_epoch, "BrokerEpoch": broker_epoch, "DeletePartitions": delete,
        "UngroupedPartitions": topics.iter().flat_map(flat).collect::<Vec<Json>>(),
        "Topics": topics.iter().map(|topic| json!({"Name": topic, "PartitionIndexes": partitions})).collect::<Vec<Json>>(),
        "TopicStates": topics.iter().map(|topic| json!({"TopicName": topic, "PartitionStates": states})).collect::<Vec<Json>>(),
    })
}

fn refused_stop_replica(names: &Names, epochs: (i32, i64)) -> Json {
    let topics = [names.world("orders"), "unknown".to_owned()];
    stop_replica(epochs, &topics, &[0, 9], (OLD_LEADER_EPOCH, true))
}

fn stopping() -> Vec<Scenario> {
    let api = ApiKey::StopReplica;
    vec![
        Scenario {
            skip: is_no_former,
            ..Scenario::new(api, "of a former controller", |names, _| {
                refused_stop_replica(names, (FORMER, UNTOLD))
            })
        },
        Scenario {
            versions: (1, i16::MAX),
            skip: of_registration,
            ..Scenario::new(api, "to a former registration", |names, _| {
                refused_stop_replica(names, (CURRENT, OLD))
            })
        },
        Scenario {
            skip: is_unfit,
            ..Scenario::new(api, "of what is not there", |names, _| {
                let topics = [format!("{}-none", names.fresh), "unknown".to_owned()];
                stop_replica((CURRENT, UNTOLD), &topics, &[0, 9], (0, true))
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: own_topic,
            after: afterwards,
            skip: is_dangerous,
            ..Scenario::new(api, "deletes a topic of its own", |names, _| {
                stop_replica(
                    (CURRENT, UNTOLD),
                    std::slice::from_ref(&names.fresh),
                    &[0, 9],
                    (0, true),
                )
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: own_topic,
            after: afterwards,
            skip: is_dangerous,
            versions: (3, i16::MAX),
            ..Scenario::new(api, "of a former epoch", |names, _| {
                stop_replica(
                    (CURRENT, UNTOLD),
                    std::slice::from_ref(&names.fresh),
                    &[0, 9],
                    (OLD_LEADER_EPOCH, true),
                )
            })
        },
    ]
}

// UpdateMetadata.

fn known(topic: &str, index: i32) -> Json {
    json!({
        "TopicName": topic, "PartitionIndex": index, "ControllerEpoch": 1, "Leader": 1, "LeaderEpoch": 3, "Isr": [1],
        "ZkVersion": 0, "Replicas": [1], "OfflineReplicas": [],
    })
}

fn update_metadata(
    (controller_epoch, broker_epoch): (i32, i64),
    (topic, id): (&str, String),
    partitions: &[i32],
) -> Json {
    let states: Vec<Json> = partitions.iter().map(|index| known(topic, *index)).collect();
    let endpoint =
        json!({"Port": 9092, "Host": "elsewhere", "Listener": "PLAINTEXT", "SecurityProtocol": 0});
    json!({
        "ControllerId": 1, "ControllerEpoch": controller_epoch, "BrokerEpoch": broker_epoch,
        "UngroupedPartitionStates": states,
        "TopicStates": [{"TopicName": topic, "TopicId": id, "PartitionStates": states}],
        "LiveBrokers": [{"Id": 1, "V0Host": "elsewhere", "V0Port": 9092, "Endpoints": [endpoint], "Rack": null}],
    })
}

fn refused_update_metadata(names: &Names, epochs: (i32, i64)) -> Json {
    let orders = names.world("orders");
    let id = format!("id:{orders}");
    update_metadata(epochs, (&orders, id), &[0, 9])
}

/// What the broker knows then; and after a word that tells it how things are.
fn known_afterwards(names: &Names, _: i16) -> Vec<Step> {
    let body = json!({"Topics": [{"Name": names.fresh}], "AllowAutoTopicCreation": false});
    let metadata = || Step { api: ApiKey::Metadata, version: 12, body: body.clone() };
    let id = format!("id:{}", names.fresh);
    let mut mended = update_metadata((CURRENT, UNTOLD), (&names.fresh, id), &[0]);
    let partitions = mended["TopicStates"][0]["PartitionStates"].as_array_mut();
    partitions.expect("it is told so").extend(NOT_THERE.map(|index| {
        let mut gone = known(&names.fresh, index);
        gone["Leader"] = json!(LEADER_DURING_DELETE);
        gone
    }));
    let cluster = json!({"IncludeClusterAuthorizedOperations": false, "EndpointType": 1});
    vec![
        metadata(),
        Step { api: ApiKey::DescribeCluster, version: 1, body: cluster },
        Step { api: ApiKey::UpdateMetadata, version: 8, body: mended },
        metadata(),
        deleted(&names.fresh),
    ]
}

fn updating() -> Vec<Scenario> {
    let api = ApiKey::UpdateMetadata;
    vec![
        Scenario {
            skip: is_no_former,
            ..Scenario::new(api, "of a former controller", |names, _| {
                refused_update_metadata(names, (FORMER, UNTOLD))
            })
        },
        Scenario {
            versions: (5, i16::MAX),
            skip: of_registration,
            ..Scenario::new(api, "to a former registration", |names, _| {
                refused_update_metadata(names, (CURRENT, OLD))
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: own_topic,
            after: known_afterwards,
            skip: is_dangerous,
            ..Scenario::new(api, "of a topic of its own", |names, _| {
                let id = format!("id:{}", names.fresh);
                update_metadata((CURRENT, UNTOLD), (&names.fresh, id), &[0, 9])
            })
        },
    ]
}
