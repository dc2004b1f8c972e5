//! The requests of transactions, one by one.

use kafka_protocol::messages::ApiKey;
use serde_json::{Value as Json, json};

use super::{Fresh, Names, Scenario, Step, create, ends};
use crate::{edges::Extra, records, value::Value, value::hex};

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = producing();
    all.extend(ending());
    all.extend(queries());
    all
}

/// Names and ids that other cases have too: a transactional id keeps its producer.
fn is_of_others(path: &str, value: &Value) -> bool {
    // A small number may be the producer's own id, on one side alone.
    if path.ends_with("ProducerId") && matches!(value, Value::Number(0..=1000)) {
        return true;
    }
    let is_name = ends(path, "GroupId") || path.ends_with("TransactionalId");
    is_name
        && match value {
            Value::Text(text) => !text.is_empty(),
            Value::Raw(_) => true,
            _ => false,
        }
}

fn own_ids(names: &Names, _: i16) -> Vec<Extra> {
    let own = |tail: &str| Value::Text(format!("{}{tail}", names.fresh));
    let long = own(&"x".repeat(300));
    let raw = Value::Raw([names.fresh.as_bytes(), &[0x61, 0xff, 0xfe, 0x62]].concat());
    ["TransactionalId", "V3AndBelowTransactionalId"]
        .map(|field| Extra {
            field,
            values: vec![own(" a/b%2e gr\u{f6}\u{df}e\0"), long.clone(), raw.clone()],
            labels: vec!["odd", "long", "x61fffe62 behind its own name"],
        })
        .into()
}

fn init(names: &Names, producer: Json, epoch: i16) -> Json {
    json!({"TransactionalId": names.fresh, "TransactionTimeoutMs": 900_000, "ProducerId": producer, "ProducerEpoch": epoch})
}

fn inits(names: &Names) -> Step {
    Step { api: ApiKey::InitProducerId, version: 4, body: init(names, json!(-1), -1) }
}

fn adding(names: &Names, verify: bool) -> Json {
    let topics = json!([
        {"Name": names.world("orders"), "Partitions": [0, 2]},
        {"Name": names.world("times"), "Partitions": [0]},
    ]);
    json!({
        "V3AndBelowTransactionalId": names.fresh, "V3AndBelowProducerId": "@p1",
        "V3AndBelowProducerEpoch": 0, "V3AndBelowTopics": topics,
        "Transactions": [{
            "TransactionalId": names.fresh, "ProducerId": "@p1", "ProducerEpoch": 0,
            "VerifyOnly": verify, "Topics": topics,
        }],
    })
}

fn initialized(names: &Names, _: i16) -> Vec<Step> {
    vec![inits(names)]
}

/// With a partition of a topic of its own, a record in it, and a group's offsets.
fn ongoing(names: &Names, _: i16) -> Vec<Step> {
    let topics = json!([{"Name": names.fresh, "Partitions": [0]}]);
    let mut add = adding(names, false);
    add["V3AndBelowTopics"] = topics;
    let batch = hex(&records::transactional_of(0, 0, 0, 2));
    let data = json!([{"Index": 0, "Records": format!("@p1:{batch}")}]);
    let produce = json!({
        "TransactionalId": names.fresh, "Acks": -1, "TimeoutMs": 30000,
        "TopicData": [{"Name": names.fresh, "PartitionData": data}],
    });
    vec![
        create(&names.fresh, 2, &[]),
        inits(names),
        Step { api: ApiKey::AddPartitionsToTxn, version: 3, body: add },
        Step { api: ApiKey::Produce, version: 9, body: produce },
    ]
}

fn described(names: &Names, _: i16) -> Vec<Step> {
    let body = json!({"TransactionalIds": [names.fresh]});
    vec![Step { api: ApiKey::DescribeTransactions, version: 0, body }]
}

/// Whether a timeout lets the transaction end while the run lasts.
fn is_short_timeout(path: &str, value: &Value) -> bool {
    ends(path, "TransactionTimeoutMs") && matches!(value, Value::Number(1..=60_000))
}

fn producing() -> Vec<Scenario> {
    vec![
        Scenario {
            fresh: Fresh::PerCase,
            extras: own_ids,
            skip: |path, value| is_of_others(path, value) || is_short_timeout(path, value),
            after: described,
            ..Scenario::new(ApiKey::InitProducerId, "transactional", |names, _| {
                init(names, json!(-1), -1)
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            versions: (3, i16::MAX),
            before: initialized,
            extras: own_ids,
            skip: |path, value| is_of_others(path, value) || is_short_timeout(path, value),
            after: described,
            ..Scenario::new(ApiKey::InitProducerId, "known", |names, _| {
                init(names, json!("@p1"), 0)
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: initialized,
            extras: own_ids,
            skip: is_of_others,
            after: described,
            ..Scenario::new(ApiKey::AddPartitionsToTxn, "some", |names, _| adding(names, false))
        },
        Scenario {
            versions: (4, i16::MAX),
            before: |names, _| {
                let mut add = adding(names, false);
                add["V3AndBelowTopics"] =
                    json!([{"Name": names.world("orders"), "Partitions": [0]}]);
                vec![inits(names), Step { api: ApiKey::AddPartitionsToTxn, version: 3, body: add }]
            },
            extras: own_ids,
            skip: |path, value| {
                // The scenario before has waited for the answer to nothing.
                let is_nothing = path == "Transactions" && *value == Value::List(Vec::new());
                is_nothing || is_of_others(path, value) || path.ends_with("VerifyOnly")
            },
            ..Scenario::new(ApiKey::AddPartitionsToTxn, "verified", |names, _| {
                let mut body = adding(names, true);
                let mut second = body["Transactions"][0].clone();
                second["TransactionalId"] = json!("unknown");
                body["Transactions"].as_array_mut().expect("a list").push(second);
                body
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: initialized,
            extras: own_ids,
            skip: |path, value| !ends(path, "GroupId") && is_of_others(path, value),
            after: described,
            ..Scenario::new(
                ApiKey::AddOffsetsToTxn,
                "group",
                |names, _| json!({"TransactionalId": names.fresh, "ProducerId": "@p1", "ProducerEpoch": 0, "GroupId": names.fresh}),
            )
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: |names, _| {
                let body = json!({"TransactionalId": names.fresh, "ProducerId": "@p1", "ProducerEpoch": 0, "GroupId": names.fresh});
                vec![inits(names), Step { api: ApiKey::AddOffsetsToTxn, version: 3, body }]
            },
            extras: own_ids,
            skip: is_of_others,
            after: |names, _| {
                let topics =
                    json!([{"Name": names.world("orders"), "PartitionIndexes": [0, 1, 2]}]);
                let step = |stable: bool| {
                    let body =
                        json!({"GroupId": names.fresh, "Topics": topics, "RequireStable": stable});
                    Step { api: ApiKey::OffsetFetch, version: 7, body }
                };
                vec![step(true), step(false)]
            },
            ..Scenario::new(ApiKey::TxnOffsetCommit, "nobody", |names, _| {
                let partition = |index: i32| json!({"PartitionIndex": index, "CommittedOffset": 5, "CommittedLeaderEpoch": 0, "CommittedMetadata": "note"});
                json!({
                    "TransactionalId": names.fresh, "GroupId": names.fresh, "ProducerId": "@p1", "ProducerEpoch": 0,
                    "GenerationId": -1, "MemberId": "", "GroupInstanceId": null,
                    "Topics": [{"Name": names.world("orders"), "Partitions": [partition(0), partition(1)]}],
                })
            })
        },
    ]
}

fn ending() -> Vec<Scenario> {
    vec![
        Scenario {
            fresh: Fresh::PerCase,
            before: ongoing,
            extras: own_ids,
            skip: is_of_others,
            ..Scenario::new(
                ApiKey::EndTxn,
                "ongoing",
                |names, _| json!({"TransactionalId": names.fresh, "ProducerId": "@p1", "ProducerEpoch": 0, "Committed": true}),
            )
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: ongoing,
            after: |names, _| {
                let body = json!({"Topics": [{"Name": names.fresh, "PartitionIndexes": [0, 1]}]});
                vec![Step { api: ApiKey::DescribeProducers, version: 0, body }]
            },
            skip: |path, value| {
                // Markers for any number of producers are as good as any; one each of the edges is enough.
                ends(path, "Name") && matches!(value, Value::Text(text) if text == "a")
                    || is_of_others(path, value)
            },
            ..Scenario::new(ApiKey::WriteTxnMarkers, "one and another", |names, _| {
                let topics = json!([{"Name": names.fresh, "PartitionIndexes": [0, 1]}, {"Name": "unknown", "PartitionIndexes": [0]}]);
                let marker = |id: Json| json!({"ProducerId": id, "ProducerEpoch": 0, "TransactionResult": true, "CoordinatorEpoch": 0, "Topics": topics});
                json!({"Markers": [marker(json!("@p1")), marker(json!(1_000_000_001))]})
            })
        },
    ]
}

fn queries() -> Vec<Scenario> {
    vec![
        Scenario {
            before: ongoing,
            ..Scenario::read(
                ApiKey::DescribeProducers,
                "one and none",
                |names, _| json!({"Topics": [{"Name": names.fresh, "PartitionIndexes": [0, 1]}, {"Name": "unknown", "PartitionIndexes": [0]}]}),
            )
        },
        Scenario {
            before: ongoing,
            ..Scenario::read(
                ApiKey::DescribeTransactions,
                "one and none",
                |names, _| json!({"TransactionalIds": [names.fresh, "nobody's"]}),
            )
        },
        Scenario {
            before: ongoing,
            extras: |_, _| {
                let list = |texts: &[&str]| {
                    Value::List(texts.iter().map(|text| Value::Text((*text).to_owned())).collect())
                };
                let states = [
                    list(&["Ongoing"]),
                    list(&["ongoing"]),
                    list(&["Empty", "CompleteAbort"]),
                    list(&["Ongoing", "nonsense", "Dead"]),
                    list(&["PrepareEpochFence"]),
                ];
                vec![Extra::of("StateFilters", states.into())]
            },
            skip: |path, value| {
                // After how many milliseconds it is old enough is luck.
                path == "DurationFilter" && matches!(value, Value::Number(1..=1000))
            },
            ..Scenario::read(
                ApiKey::ListTransactions,
                "filtered",
                |_, _| json!({"StateFilters": ["Ongoing"], "ProducerIdFilters": ["@p1"], "DurationFilter": -1}),
            )
        },
        Scenario {
            before: ongoing,
            skip: |path, value| {
                path == "DurationFilter" && matches!(value, Value::Number(1..=1000))
            },
            ..Scenario::read(ApiKey::ListTransactions, "all", |_, _| json!({"DurationFilter": -1}))
        },
    ]
}
