//! The requests on configs, and every config of a topic and of a broker with values good and bad.

use common::config::{
    describe::BROKER_QUOTAS,
    table::{self, Update},
};
use kafka_protocol::messages::ApiKey;
use serde_json::{Value as Json, json};

use super::{Names, Scenario, Step, create};
use crate::{edges::Extra, value::Value};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            extras: |names, _| {
                let world = |name: &str| Value::Text(names.world(name));
                let mut names = ["times", "segments"].map(world).to_vec();
                names.push(Value::Text("1".to_owned()));
                vec![Extra::of("ResourceName", names)]
            },
            ..Scenario::read(ApiKey::DescribeConfigs, "topic", |names, _| {
                json!({
                    "Resources": [{"ResourceType": TOPIC, "ResourceName": names.world("compact"), "ConfigurationKeys": null}],
                    "IncludeSynonyms": true, "IncludeDocumentation": false,
                })
            })
        },
        Scenario {
            extras: |_, _| {
                let values = ["0", "2", "-1", "99999999999"].map(|id| Value::Text(id.to_owned()));
                vec![Extra::of("ResourceName", values.into())]
            },
            ..Scenario::read(ApiKey::DescribeConfigs, "broker", |_, _| {
                json!({
                    "Resources": [{"ResourceType": BROKER, "ResourceName": "1", "ConfigurationKeys": ["num.partitions", "log.retention.ms", "unknown"]}],
                    "IncludeSynonyms": true, "IncludeDocumentation": false,
                })
            })
        },
        Scenario {
            before: |names, _| vec![create(&names.fresh, 1, &[("segment.ms", "5000")])],
            after: overrides,
            ..Scenario::new(ApiKey::AlterConfigs, "topic", |names, _| {
                json!({
                    "Resources": [{
                        "ResourceType": TOPIC, "ResourceName": names.fresh,
                        "Configs": [{"Name": "retention.ms", "Value": "7200000"}, {"Name": "cleanup.policy", "Value": "compact,delete"}],
                    }],
                    "ValidateOnly": false,
                })
            })
        },
        Scenario {
            before: |names, _| vec![create(&names.fresh, 1, &[("segment.ms", "5000")])],
            after: overrides,
            extras: |_, _| {
                let values =
                    ["delete", "compact,delete"].map(|value| Value::Text(value.to_owned()));
                vec![Extra::of("Value", values.into())]
            },
            more: |names, version| if version == 1 { every_value(names) } else { Vec::new() },
            ..Scenario::new(ApiKey::IncrementalAlterConfigs, "topic", |names, _| {
                json!({
                    "Resources": [{
                        "ResourceType": TOPIC, "ResourceName": names.fresh,
                        "Configs": [
                            {"Name": "cleanup.policy", "ConfigOperation": 2, "Value": "compact"},
                            {"Name": "segment.ms", "ConfigOperation": 1, "Value": null},
                        ],
                    }],
                    "ValidateOnly": false,
                })
            })
        },
        Scenario {
            extras: |_, _| broker_names(),
            ..Scenario::new(ApiKey::AlterConfigs, "broker", |_, _| {
                json!({
                    "Resources": [{
                        "ResourceType": BROKER, "ResourceName": "1",
                        "Configs": [{"Name": "log.preallocate", "Value": "false"}, {"Name": "log.cleanup.policy", "Value": "delete"}],
                    }],
                    "ValidateOnly": true,
                })
            })
        },
        Scenario {
            extras: |_, _| broker_names(),
            // Levels of loggers cannot be changed, not yet.
            skip: |field, value| field == "Resources.ResourceType" && *value == Value::Number(8),
            more: |_, version| {
                if version == 1 { every_value_of_a_broker() } else { Vec::new() }
            },
            ..Scenario::new(ApiKey::IncrementalAlterConfigs, "broker", |_, _| {
                json!({
                    "Resources": [{
                        "ResourceType": BROKER, "ResourceName": "1",
                        "Configs": [
                            {"Name": "log.cleanup.policy", "ConfigOperation": 2, "Value": "delete"},
                            {"Name": "log.preallocate", "ConfigOperation": 1, "Value": null},
                        ],
                    }],
                    "ValidateOnly": true,
                })
            })
        },
    ]
}

/// Names of a broker: of none, of all, of one that is not there, of this one in other ways.
fn broker_names() -> Vec<Extra> {
    let names = ["", "0", "2", "+1", "01", "x", "99999999999"];
    let names = names.map(|name| Value::Text(name.to_owned()));
    vec![Extra::of("ResourceName", names.into())]
}

/// The configs of a topic that are not defaults, and the others.
fn overrides(names: &Names, _: i16) -> Vec<Step> {
    let body = json!({
        "Resources": [{"ResourceType": TOPIC, "ResourceName": names.fresh, "ConfigurationKeys": null}],
        "IncludeSynonyms": false, "IncludeDocumentation": false,
    });
    vec![Step { api: ApiKey::DescribeConfigs, version: 4, body }]
}

/// Requests that set every config of a topic to every value, one by one, without effect.
fn every_value(names: &Names) -> Vec<(String, Json)> {
    let keys =
        table::topic_keys().iter().map(|key| key.name).chain(["unknown.config", "retention.hours"]);
    let mut requests = Vec::new();
    for key in keys {
        for value in VALUES {
            let topic = json!({
                "ResourceType": TOPIC, "ResourceName": names.world("orders"),
                "Configs": [{"Name": key, "ConfigOperation": 0, "Value": value}],
            });
            requests.push((
                format!("{key}={value:?}"),
                json!({"Resources": [topic], "ValidateOnly": true}),
            ));
        }
    }
    requests
}

/// The same for every config of brokers that may be set for all of them, and some others.
fn every_value_of_a_broker() -> Vec<(String, Json)> {
    // Kafka looks whether it has the class.
    let is_class = |name| name == "metric.reporters";
    let for_all = table::broker_keys()
        .filter(|key| key.defined && key.update == Update::ClusterWide && !is_class(key.name))
        .map(|key| key.name);
    let others = ["log.dirs", "log.retention.hours", "ssl.keystore.location", "unknown.config"];
    let of_listener = ["max.connections", "max.connection.creation.rate", "num.network.threads"];
    let of_listener = of_listener.map(|key| format!("listener.name.plaintext.{key}"));
    let keys = for_all.chain(BROKER_QUOTAS.iter().copied()).chain(others).map(str::to_owned);
    let request = |key: &str, value: &str, name: &str| {
        let broker = json!({
            "ResourceType": BROKER, "ResourceName": name,
            "Configs": [{"Name": key, "ConfigOperation": 0, "Value": value}],
        });
        let of = if name.is_empty() { "all" } else { name };
        (format!("{key}={value:?} of {of}"), json!({"Resources": [broker], "ValidateOnly": true}))
    };
    let mut requests = Vec::new();
    for key in keys.chain(of_listener) {
        requests.extend(VALUES.iter().map(|value| request(&key, value, "1")));
        requests.push(request(&key, "1", ""));
    }
    // Those of one broker alone.
    let keys = ["listeners", "ssl.protocol", "listener.name.plaintext.ssl.keystore.location"];
    requests.extend(keys.map(|key| request(key, "1", "")));
    requests
}

const VALUES: &[&str] = &[
    "",
    " ",
    "0",
    "1",
    "-1",
    "-2",
    " 7 ",
    "+5",
    "1.5",
    "0.5",
    "1e3",
    "abc",
    "true",
    "FALSE",
    "yes",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "none",
    "gzip",
    "producer",
    "delete",
    "compact,delete",
    "delete,",
    ",",
    "CreateTime",
    "createtime",
    "3.0",
    "3.9-IV0",
    "0.9.0",
    "1:2",
    "*",
    "0:1,1:2",
];
