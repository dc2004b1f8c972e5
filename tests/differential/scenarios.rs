//! What is asked: base requests per API, as JSON by Kafka's names of fields. Fields that a version lacks are passed over.

mod configs;
mod control;
mod controller;
mod data;
pub(crate) mod group_bodies;
mod groups;
mod topics;
mod transactions;

use kafka_protocol::messages::ApiKey;
use serde_json::{Value as Json, json};

use crate::{edges::Extra, value::Value};

/// Names in requests.
pub(crate) struct Names {
    /// Of this run, so that several can use the same brokers.
    pub(crate) run: String,
    /// The topic that a scenario has for itself.
    pub(crate) fresh: String,
}

impl Names {
    /// A topic of the common world.
    pub(crate) fn world(&self, name: &str) -> String {
        format!("{}-{name}", self.run)
    }
}

/// How long a scenario keeps its topic.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fresh {
    /// Each case has its own.
    PerCase,
    /// One for each version, and another after each difference, so that one does not bring forth more.
    PerVersion,
}

/// A request beside the one under comparison.
pub(crate) struct Step {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) body: Json,
}

/// A base request and what is done with it.
pub(crate) struct Scenario {
    pub(crate) api: ApiKey,
    pub(crate) name: &'static str,
    /// First and last version.
    pub(crate) versions: (i16, i16),
    pub(crate) fresh: Fresh,
    pub(crate) body: fn(&Names, i16) -> Json,
    /// Asked when the fresh topic is named.
    pub(crate) before: fn(&Names, i16) -> Vec<Step>,
    /// Asked after each case: how things are then. Compared as well.
    pub(crate) after: fn(&Names, i16) -> Vec<Step>,
    /// Other requests, by name, that are not mutated.
    pub(crate) more: fn(&Names, i16) -> Vec<(String, Json)>,
    /// More values for fields.
    pub(crate) extras: fn(&Names, i16) -> Vec<Extra>,
    /// Mutants that are left out, by path and value.
    pub(crate) skip: fn(&str, &Value) -> bool,
    /// Whether every field is given its edges.
    pub(crate) mutates: bool,
    /// Whether the request changes nothing, so that a difference is looked at again a moment later: what one broker
    /// does at once, the other may do soon.
    pub(crate) is_read: bool,
}

impl Scenario {
    /// A scenario of all versions that changes something and is mutated.
    fn new(api: ApiKey, name: &'static str, body: fn(&Names, i16) -> Json) -> Scenario {
        Scenario {
            api,
            name,
            versions: (0, i16::MAX),
            fresh: Fresh::PerVersion,
            body,
            before: |_, _| Vec::new(),
            after: |_, _| Vec::new(),
            more: |_, _| Vec::new(),
            extras: |_, _| Vec::new(),
            skip: |_, _| false,
            mutates: true,
            is_read: false,
        }
    }

    /// One that only reads.
    fn read(api: ApiKey, name: &'static str, body: fn(&Names, i16) -> Json) -> Scenario {
        Scenario { is_read: true, ..Scenario::new(api, name, body) }
    }
}

/// All of them, in the order in which they run: what makes Kafka create its own topics comes last.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = topics::scenarios();
    all.extend(data::scenarios());
    all.extend(configs::scenarios());
    all.extend(controller::scenarios());
    all.extend(coordinators());
    all.extend(groups::scenarios());
    all.extend(transactions::scenarios());
    all.extend(control::scenarios());
    all
}

/// Whether the scenarios of an API need coordinators that have loaded.
pub(crate) fn needs_coordinators(api: ApiKey) -> bool {
    let mut all = coordinators();
    all.extend(groups::scenarios());
    all.extend(transactions::scenarios());
    all.iter().any(|scenario| scenario.api == api)
}

fn coordinators() -> Vec<Scenario> {
    vec![
        // Asked again a moment later, since Kafka may fetch ids while it refuses to give any.
        Scenario::read(
            ApiKey::InitProducerId,
            "idempotent",
            |_, _| json!({"TransactionalId": null, "TransactionTimeoutMs": 60000, "ProducerId": -1, "ProducerEpoch": -1}),
        ),
        Scenario::new(
            ApiKey::FindCoordinator,
            "group",
            |names, _| json!({"Key": names.world("group"), "KeyType": 0, "CoordinatorKeys": [names.world("group"), "other"]}),
        ),
        Scenario {
            mutates: false,
            versions: (1, i16::MAX),
            ..Scenario::new(
                ApiKey::FindCoordinator,
                "transaction",
                |names, _| json!({"Key": names.world("tx"), "KeyType": 1, "CoordinatorKeys": [names.world("tx")]}),
            )
        },
    ]
}

/// Creates a topic.
pub(crate) fn create(name: &str, partitions: i32, configs: &[(&str, &str)]) -> Step {
    let configs: Vec<Json> =
        configs.iter().map(|(name, value)| json!({"Name": name, "Value": value})).collect();
    let topic = json!({"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": configs, "Assignments": []});
    Step {
        api: ApiKey::CreateTopics,
        version: 7,
        body: json!({"Topics": [topic], "timeoutMs": 30000, "validateOnly": false}),
    }
}

/// Writes records to a partition.
fn produce(topic: &str, partition: i32, records: &[u8]) -> Step {
    let data = json!([{"Index": partition, "Records": crate::value::hex(records)}]);
    Step {
        api: ApiKey::Produce,
        version: 9,
        body: json!({"TransactionalId": null, "Acks": -1, "TimeoutMs": 30000, "TopicData": [{"Name": topic, "PartitionData": data}]}),
    }
}

/// Whether the path ends with a field's name.
fn ends(path: &str, field: &str) -> bool {
    path == field || path.ends_with(&format!(".{field}"))
}

/// Numbers of milliseconds after which a broker may or may not be done.
fn is_racy_timeout(value: &Value) -> bool {
    matches!(value, Value::Number(1..=7))
}

/// The topics that reading requests are about.
pub(crate) fn world(names: &Names) -> Vec<Step> {
    data::world(names)
}
