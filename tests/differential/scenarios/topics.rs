//! Metadata, ApiVersions, DescribeCluster, and the requests that create, expand and delete topics.

use kafka_protocol::messages::ApiKey;
use serde_json::json;

use super::{Fresh, Names, Scenario, Step, create, ends, is_racy_timeout};
use crate::{edges::Extra, value::Value};

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = reading();
    all.extend(creating());
    all.extend(expanding());
    all.extend(deleting());
    all
}

/// Names that a Metadata request of an old version would create.
fn would_be_created(path: &str, value: &Value) -> bool {
    ends(path, "Name") && matches!(value, Value::Text(text) if text == "a" || text == "unknown")
}

fn reading() -> Vec<Scenario> {
    vec![
        Scenario::read(
            ApiKey::DescribeLogDirs,
            "some",
            |names, _| json!({"Topics": [{"Topic": names.world("orders"), "Partitions": [0, 2]}, {"Topic": names.world("compact"), "Partitions": [0]}]}),
        ),
        Scenario::new(
            ApiKey::ApiVersions,
            "software",
            |_, _| json!({"ClientSoftwareName": "differential", "ClientSoftwareVersion": "1.0"}),
        ),
        Scenario::read(
            ApiKey::DescribeCluster,
            "cluster",
            |_, _| json!({"IncludeClusterAuthorizedOperations": true, "EndpointType": 1}),
        ),
        Scenario {
            skip: would_be_created,
            ..Scenario::read(ApiKey::Metadata, "all", |_, version| {
                let topics = if version == 0 { json!([]) } else { json!(null) };
                json!({"Topics": topics, "AllowAutoTopicCreation": true, "IncludeClusterAuthorizedOperations": false, "IncludeTopicAuthorizedOperations": false})
            })
        },
        Scenario {
            skip: |path, value| {
                would_be_created(path, value)
                    || path == "AllowAutoTopicCreation" && *value != Value::Number(0)
            },
            ..Scenario::read(ApiKey::Metadata, "named", |names, _| {
                let name = |name: &str| json!({"Name": names.world(name)});
                json!({
                    "Topics": [name("orders"), name("times"), name("compact")],
                    "AllowAutoTopicCreation": false,
                    "IncludeClusterAuthorizedOperations": true,
                    "IncludeTopicAuthorizedOperations": true,
                })
            })
        },
        Scenario {
            versions: (4, i16::MAX),
            skip: |path, value| path == "AllowAutoTopicCreation" && *value != Value::Number(0),
            ..Scenario::read(ApiKey::Metadata, "unknown", |_, _| {
                json!({
                    "Topics": [{"Name": "unknown"}, {"Name": "b/d"}, {"Name": "unknown"}, {"Name": "__consumer_offsets"}],
                    "AllowAutoTopicCreation": false,
                    "IncludeTopicAuthorizedOperations": true,
                })
            })
        },
        Scenario {
            versions: (10, i16::MAX),
            ..Scenario::read(ApiKey::Metadata, "by id", |names, _| {
                json!({
                    "Topics": [
                        {"Name": null, "TopicId": format!("id:{}", names.world("orders"))},
                        {"Name": null, "TopicId": "000102030405060708090a0b0c0d0e0f"},
                    ],
                    "AllowAutoTopicCreation": false,
                    "IncludeTopicAuthorizedOperations": true,
                })
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            mutates: false,
            after: |names, _| {
                let body = json!({"Topics": [{"Name": names.fresh}]});
                vec![Step { api: ApiKey::Metadata, version: 12, body }]
            },
            ..Scenario::new(
                ApiKey::Metadata,
                "auto-creation",
                |names, _| json!({"Topics": [{"Name": names.fresh}, {"Name": "b/d"}], "AllowAutoTopicCreation": true}),
            )
        },
    ]
}

/// What a creation left behind.
fn described(names: &Names, _: i16) -> Vec<Step> {
    vec![Step {
        api: ApiKey::Metadata,
        version: 12,
        body: json!({"Topics": [{"Name": names.fresh}], "AllowAutoTopicCreation": false}),
    }]
}

/// Of the brokers that are not there one is enough: Kafka waits until the time is up, and the topic stays behind.
fn is_too_many_or_nowhere(path: &str, value: &Value) -> bool {
    let absent = [Value::List(vec![Value::Number(0)]), Value::List(vec![Value::Number(-1)])];
    is_too_many(path, value) || ends(path, "BrokerIds") && absent.contains(value)
}

/// A thousand partitions take long; two thousand million end Kafka, and so does the lowest number, which it subtracts.
fn is_too_many(path: &str, value: &Value) -> bool {
    let counts = ends(path, "NumPartitions") || ends(path, "Count");
    counts && matches!(value, Value::Number(1000.. | -2_147_483_648))
        || ends(path, "timeoutMs") && is_racy_timeout(value)
        || ends(path, "TimeoutMs") && is_racy_timeout(value)
}

fn creating() -> Vec<Scenario> {
    vec![
        Scenario {
            fresh: Fresh::PerCase,
            skip: is_too_many,
            after: described,
            extras: |names, _| vec![Extra::of("Name", vec![Value::Text(names.world("orders"))])],
            ..Scenario::new(ApiKey::CreateTopics, "counted", |names, _| {
                json!({
                    "Topics": [{
                        "Name": names.fresh, "NumPartitions": 2, "ReplicationFactor": 1, "Assignments": [],
                        "Configs": [{"Name": "retention.ms", "Value": "86400000"}, {"Name": "cleanup.policy", "Value": "compact"}],
                    }],
                    "timeoutMs": 30000,
                    "validateOnly": false,
                })
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            skip: is_too_many_or_nowhere,
            after: described,
            ..Scenario::new(ApiKey::CreateTopics, "assigned", |names, _| {
                json!({
                    "Topics": [{
                        "Name": names.fresh, "NumPartitions": -1, "ReplicationFactor": -1,
                        "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1]}, {"PartitionIndex": 1, "BrokerIds": [1]}],
                        "Configs": [],
                    }],
                    "timeoutMs": 2000,
                    "validateOnly": false,
                })
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            skip: is_too_many,
            versions: (1, i16::MAX),
            ..Scenario::new(ApiKey::CreateTopics, "validated", |names, _| {
                json!({
                    "Topics": [
                        {
                            "Name": names.fresh, "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": [],
                            "Configs": [{"Name": "max.message.bytes", "Value": "5"}],
                        },
                        {"Name": names.world("orders"), "NumPartitions": 1, "ReplicationFactor": 1, "Assignments": [], "Configs": []},
                        {"Name": format!("{}-twice", names.fresh), "NumPartitions": 1, "ReplicationFactor": 1, "Assignments": [], "Configs": []},
                        {"Name": format!("{}-twice", names.fresh), "NumPartitions": 2, "ReplicationFactor": 1, "Assignments": [], "Configs": []},
                        {"Name": "with.dot_and_line", "NumPartitions": 1, "ReplicationFactor": 2, "Assignments": [], "Configs": []},
                    ],
                    "timeoutMs": 30000,
                    "validateOnly": true,
                })
            })
        },
    ]
}

fn expanding() -> Vec<Scenario> {
    vec![
        Scenario {
            fresh: Fresh::PerCase,
            before: |names, _| vec![create(&names.fresh, 1, &[])],
            after: described,
            skip: is_too_many,
            ..Scenario::new(ApiKey::CreatePartitions, "counted", |names, _| {
                json!({
                    "Topics": [{"Name": names.fresh, "Count": 3, "Assignments": null}],
                    "TimeoutMs": 30000, "ValidateOnly": false,
                })
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: |names, _| vec![create(&names.fresh, 1, &[])],
            after: described,
            skip: is_too_many_or_nowhere,
            ..Scenario::new(ApiKey::CreatePartitions, "assigned", |names, _| {
                json!({
                    "Topics": [{"Name": names.fresh, "Count": 3, "Assignments": [{"BrokerIds": [1]}, {"BrokerIds": [1]}]}],
                    "TimeoutMs": 2000, "ValidateOnly": false,
                })
            })
        },
    ]
}

fn deleting() -> Vec<Scenario> {
    vec![
        Scenario {
            fresh: Fresh::PerCase,
            before: |names, _| vec![create(&names.fresh, 1, &[])],
            after: described,
            skip: |path, value| {
                is_too_many(path, value) || path == "TopicNames" && *value == Value::Null
            },
            extras: |names, _| {
                vec![
                    Extra::of("TopicId", vec![Value::TopicId(names.fresh.clone())]),
                    Extra::of(
                        "TopicNames",
                        vec![Value::List(vec![
                            Value::Text(names.fresh.clone()),
                            Value::Text("unknown".to_owned()),
                        ])],
                    ),
                ]
            },
            ..Scenario::new(ApiKey::DeleteTopics, "named", |names, _| {
                json!({
                    "Topics": [{"Name": names.fresh}],
                    "TopicNames": [names.fresh],
                    "TimeoutMs": 30000,
                })
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            versions: (6, i16::MAX),
            before: |names, _| vec![create(&names.fresh, 1, &[])],
            after: described,
            skip: is_too_many,
            ..Scenario::new(ApiKey::DeleteTopics, "by id", |names, _| {
                json!({
                    "Topics": [
                        {"Name": null, "TopicId": format!("id:{}", names.fresh)},
                        {"Name": null, "TopicId": "000102030405060708090a0b0c0d0e0f"},
                        {"Name": "unknown"},
                    ],
                    "TimeoutMs": 30000,
                })
            })
        },
    ]
}
