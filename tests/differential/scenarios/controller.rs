//! Requests that the controller answers: to clients, and to brokers. Those of brokers name registrations that no broker has,
//! so that both refuse them: what follows an accepted one is seen in clusters alone.

use kafka_protocol::messages::ApiKey;
use serde_json::json;

use super::{Fresh, Names, Scenario, Step, create, ends};
use crate::value::Value;

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = elections();
    all.extend(moves());
    all.extend(between_brokers());
    all.push(Scenario::new(ApiKey::UpdateFeatures, "unsupported", |_, _| {
        json!({
            "timeoutMs": 2000,
            "FeatureUpdates": [
                {"Feature": "metadata.version", "MaxVersionLevel": 5, "AllowDowngrade": false, "UpgradeType": 1},
            ],
            "ValidateOnly": false,
        })
    }));
    all
}

fn elections() -> Vec<Scenario> {
    vec![Scenario {
        before: |names, _| vec![create(&names.fresh, 2, &[])],
        ..Scenario::new(ApiKey::ElectLeaders, "named", |names, _| {
            json!({
                "ElectionType": 0,
                "TopicPartitions": [
                    {"Topic": names.fresh, "Partitions": [0, 1, 9]},
                    {"Topic": "unknown", "Partitions": [0]},
                ],
                "TimeoutMs": 2000,
            })
        })
    }]
}

fn moving(names: &Names, _: i16) -> Vec<Step> {
    let body =
        json!({"TimeoutMs": 2000, "Topics": [{"Name": names.fresh, "PartitionIndexes": [0, 1]}]});
    vec![Step { api: ApiKey::ListPartitionReassignments, version: 0, body }]
}

fn moves() -> Vec<Scenario> {
    vec![
        Scenario {
            fresh: Fresh::PerVersion,
            before: |names, _| vec![create(&names.fresh, 2, &[])],
            after: moving,
            ..Scenario::new(ApiKey::AlterPartitionReassignments, "to where they are", |names, _| {
                json!({
                    "TimeoutMs": 2000,
                    "Topics": [
                        {
                            "Name": names.fresh,
                            "Partitions": [
                                {"PartitionIndex": 0, "Replicas": [1]},
                                {"PartitionIndex": 1, "Replicas": null},
                            ],
                        },
                        {"Name": "unknown", "Partitions": [{"PartitionIndex": 0, "Replicas": [1]}]},
                    ],
                })
            })
        },
        Scenario {
            before: |names, _| vec![create(&names.fresh, 2, &[])],
            ..Scenario::read(
                ApiKey::ListPartitionReassignments,
                "none",
                |names, _| json!({"TimeoutMs": 2000, "Topics": [{"Name": names.fresh, "PartitionIndexes": [0, 9]}]}),
            )
        },
    ]
}

fn between_brokers() -> Vec<Scenario> {
    vec![
        Scenario {
            // Both would take the only broker for one that is about to stop, and be of no more use.
            skip: |path, value| ends(path, "BrokerId") && *value == Value::Number(1),
            ..Scenario::new(
                ApiKey::ControlledShutdown,
                "of a stranger",
                |_, _| json!({"BrokerId": 99, "BrokerEpoch": 0}),
            )
        },
        Scenario::new(ApiKey::AlterPartition, "by a former registration", |names, _| {
            json!({
                "BrokerId": 1,
                "BrokerEpoch": 0,
                "Topics": [{
                    "TopicName": names.world("orders"),
                    "TopicId": "000102030405060708090a0b0c0d0e0f",
                    "Partitions": [{
                        "PartitionIndex": 0,
                        "LeaderEpoch": 0,
                        "NewIsr": [1],
                        "NewIsrWithEpochs": [{"BrokerId": 1, "BrokerEpoch": -1}],
                        "LeaderRecoveryState": 0,
                        "PartitionEpoch": 0,
                    }],
                }],
            })
        }),
        Scenario::new(
            ApiKey::AllocateProducerIds,
            "by a former registration",
            |_, _| json!({"BrokerId": 1, "BrokerEpoch": 0}),
        ),
    ]
}
