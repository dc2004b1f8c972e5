//! The requests of producers and consumers, and the topics that they read.

use kafka_protocol::messages::ApiKey;
use record::compression::Codec;
use serde_json::{Value as Json, json};

use super::{Fresh, Names, Scenario, Step, create, ends, produce};
use crate::{
    edges::Extra,
    records::{self, FIRST_TIMESTAMP},
    value::{Value, hex},
};

pub(super) fn world(names: &Names) -> Vec<Step> {
    let (orders, start) = (names.world("orders"), names.world("start"));
    let segments = names.world("segments");
    let delete = json!({"Topics": [{"Name": start, "Partitions": [{"PartitionIndex": 0, "Offset": 2}]}], "TimeoutMs": 30000});
    let mut steps = vec![
        create(&orders, 3, &[]),
        create(&names.world("times"), 1, &[("message.timestamp.type", "LogAppendTime")]),
        create(&names.world("compact"), 1, &[("cleanup.policy", "compact")]),
        create(&names.world("zstd"), 1, &[("compression.type", "zstd")]),
        create(&names.world("no-conversion"), 1, &[("message.downconversion.enable", "false")]),
        create(&segments, 1, &[("segment.bytes", "200")]),
        create(&start, 1, &[]),
        produce(&names.world("times"), 0, &records::plain(2)),
        produce(&names.world("zstd"), 0, &records::plain(2)),
        produce(&names.world("no-conversion"), 0, &records::plain(2)),
        produce(&orders, 1, &records::compressed(Codec::Gzip, 4)),
        produce(&orders, 1, &records::compressed(Codec::Snappy, 2)),
        produce(&start, 0, &records::plain(4)),
        Step { api: ApiKey::DeleteRecords, version: 2, body: delete },
    ];
    for _ in 0..3 {
        steps.push(produce(&orders, 0, &records::plain(3)));
    }
    for _ in 0..5 {
        steps.push(produce(&segments, 0, &records::plain(2)));
    }
    steps
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = producing();
    all.extend(fetching());
    all.extend(looking_up());
    all
}

fn two_partitions(names: &Names, _: i16) -> Vec<Step> {
    vec![create(&names.fresh, 2, &[])]
}

/// What is in both partitions then.
fn fetched(names: &Names, _: i16) -> Vec<Step> {
    let partition = |index: i32| json!({"Partition": index, "CurrentLeaderEpoch": -1, "FetchOffset": 0, "LastFetchedEpoch": -1, "LogStartOffset": -1, "PartitionMaxBytes": 10_000_000});
    let body = json!({
        "ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 50_000_000, "SessionEpoch": -1,
        "Topics": [{"Topic": names.fresh, "Partitions": [partition(0), partition(1)]}],
    });
    let step = |version| Step { api: ApiKey::Fetch, version, body: body.clone() };
    // As it lies there, and converted for clients of two old formats.
    vec![step(12), step(3), step(1)]
}

fn produce_body(names: &Names, version: i16, acks: i16) -> Json {
    let magic = records::magic_of(version);
    let records = |count| hex(&records::of_magic(magic, Codec::None, count));
    json!({
        "TransactionalId": null, "Acks": acks, "TimeoutMs": 30000,
        "TopicData": [{"Name": names.fresh, "PartitionData": [{"Index": 0, "Records": records(2)}, {"Index": 1, "Records": records(1)}]}],
    })
}

fn samples(_: &Names, version: i16) -> Vec<Extra> {
    let samples = records::samples(records::magic_of(version));
    let (labels, values) =
        samples.into_iter().map(|(name, bytes)| (name, Value::Raw(bytes))).unzip();
    vec![Extra { field: "Records", values, labels }]
}

/// Each sample alone in a request: a topic of its own config.
fn of_config(name: &'static str, before: fn(&Names, i16) -> Vec<Step>) -> Scenario {
    Scenario {
        before,
        extras: samples,
        after: fetched,
        skip: |path, value| {
            // Only records are of interest here; those of random producers are the first scenario's.
            !ends(path, "Records") || matches!(value, Value::Verbatim(_) | Value::Null)
        },
        ..Scenario::new(ApiKey::Produce, name, |names, version| produce_body(names, version, 1))
    }
}

fn producing() -> Vec<Scenario> {
    vec![
        Scenario {
            before: two_partitions,
            extras: samples,
            after: fetched,
            ..Scenario::new(ApiKey::Produce, "acks=1", |names, version| {
                produce_body(names, version, 1)
            })
        },
        Scenario {
            before: two_partitions,
            extras: |names, _| {
                let text = |name: String| Value::Text(name);
                vec![Extra::of("Name", vec![text(names.world("orders"))])]
            },
            skip: |path, value| ends(path, "Records") && *value == Value::Null,
            ..Scenario::new(ApiKey::Produce, "acks=all", |names, version| {
                produce_body(names, version, -1)
            })
        },
        Scenario {
            versions: (3, i16::MAX),
            mutates: false,
            before: two_partitions,
            after: fetched,
            ..Scenario::new(ApiKey::Produce, "transaction", |names, version| {
                let mut body = produce_body(names, version, 1);
                body["TransactionalId"] = json!(names.world("tx"));
                body["TopicData"][0]["PartitionData"][0]["Records"] =
                    json!(hex(&records::transactional(1)));
                body
            })
        },
        of_config("log append time", |names, _| {
            vec![create(&names.fresh, 2, &[("message.timestamp.type", "LogAppendTime")])]
        }),
        of_config("compacted", |names, _| {
            vec![create(&names.fresh, 2, &[("cleanup.policy", "compact")])]
        }),
        of_config("gzip", |names, _| {
            vec![create(&names.fresh, 2, &[("compression.type", "gzip")])]
        }),
        of_config("small", |names, _| {
            vec![create(&names.fresh, 2, &[("max.message.bytes", "80")])]
        }),
        of_config("timely", |names, _| {
            vec![create(&names.fresh, 2, &[("message.timestamp.before.max.ms", "60000")])]
        }),
        of_config("small segments", |names, _| {
            vec![create(&names.fresh, 2, &[("segment.bytes", "100")])]
        }),
        Scenario {
            before: |names, _| vec![create(&names.fresh, 2, &[("min.insync.replicas", "2")])],
            after: fetched,
            skip: |path, _| path != "Acks",
            ..Scenario::new(ApiKey::Produce, "two in sync", |names, version| {
                produce_body(names, version, -1)
            })
        },
        Scenario {
            versions: (3, i16::MAX),
            fresh: Fresh::PerVersion,
            before: |names, version| {
                let mut steps = two_partitions(names, version);
                steps.push(produce(&names.fresh, 0, &records::idempotent(5, 1, 0, 2)));
                steps.push(produce(&names.fresh, 0, &records::idempotent(5, 1, 2, 2)));
                steps
            },
            after: fetched,
            skip: |path, _| !ends(path, "Records"),
            extras: |_, _| {
                let batch = |epoch, sequence, count| {
                    Value::Raw(records::idempotent(5, epoch, sequence, count))
                };
                let values = vec![
                    batch(1, 0, 2),
                    batch(1, 2, 2),
                    batch(1, 1, 2),
                    batch(1, 3, 1),
                    batch(1, 5, 1),
                    batch(0, 4, 1),
                    batch(2, 3, 1),
                    batch(1, 4, 1),
                    batch(2, 0, 1),
                    batch(1, 5, 1),
                    batch(2, 1, 1),
                    batch(2, 1, 1),
                    batch(2, i32::MAX, 2),
                ];
                vec![Extra::of("Records", values)]
            },
            ..Scenario::new(ApiKey::Produce, "sequences", |names, version| {
                let mut body = produce_body(names, version, 1);
                body["TopicData"][0]["PartitionData"] =
                    json!([{"Index": 0, "Records": hex(&records::idempotent(5, 1, 2, 2))}]);
                body
            })
        },
        Scenario {
            before: |names, version| {
                let mut steps = two_partitions(names, version);
                steps.push(produce(&names.fresh, 0, &records::plain(4)));
                steps.push(produce(&names.fresh, 1, &records::plain(4)));
                steps
            },
            extras: |names, _| {
                vec![Extra::of(
                    "Name",
                    vec![Value::Text(names.world("compact")), Value::Text(names.world("start"))],
                )]
            },
            after: fetched,
            ..Scenario::new(ApiKey::DeleteRecords, "before", |names, _| {
                json!({
                    "Topics": [{"Name": names.fresh, "Partitions": [{"PartitionIndex": 0, "Offset": 1}, {"PartitionIndex": 1, "Offset": 0}]}],
                    "TimeoutMs": 30000,
                })
            })
        },
    ]
}

fn fetch_body(names: &Names, topics: &[(&str, i32, i64)]) -> Json {
    let topic = |(name, index, offset): &(&str, i32, i64)| {
        let name = names.world(name);
        let partition = json!({"Partition": index, "CurrentLeaderEpoch": -1, "FetchOffset": offset, "LastFetchedEpoch": -1, "LogStartOffset": -1, "PartitionMaxBytes": 10_000});
        json!({"Topic": name, "TopicId": format!("id:{name}"), "Partitions": [partition]})
    };
    let topics: Vec<Json> = topics.iter().map(topic).collect();
    json!({
        "ReplicaId": -1, "ReplicaState": {"ReplicaId": -1, "ReplicaEpoch": -1}, "MaxWaitMs": 50, "MinBytes": 1, "MaxBytes": 1_000_000,
        "IsolationLevel": 0, "SessionId": 0, "SessionEpoch": -1, "Topics": topics, "ForgottenTopicsData": [], "RackId": "",
    })
}

fn is_long_wait(path: &str, value: &Value) -> bool {
    // A minute's wait is a minute; that nothing happens meanwhile is shown with shorter ones.
    path == "MaxWaitMs" && matches!(value, Value::Number(1001..))
}

fn fetching() -> Vec<Scenario> {
    vec![
        Scenario {
            extras: |names, _| {
                let number = |numbers: &[i64]| numbers.iter().map(|n| Value::Number(*n)).collect();
                let world = |name: &str| Value::Text(names.world(name));
                let id = |name: &str| Value::TopicId(names.world(name));
                vec![
                    Extra::of("FetchOffset", number(&[5, 8, 9, 10])),
                    Extra::of("PartitionMaxBytes", number(&[50, 100, 150, 300])),
                    Extra::of("MaxBytes", number(&[50, 100, 150, 300])),
                    Extra::of("Topic", ["times", "zstd", "start", "segments"].map(world).into()),
                    Extra::of("TopicId", ["times", "zstd", "start", "segments"].map(id).into()),
                ]
            },
            ..Scenario::read(ApiKey::Fetch, "records", |names, _| {
                fetch_body(names, &[("orders", 0, 4), ("orders", 1, 0), ("times", 0, 0)])
            })
        },
        Scenario {
            skip: |path, value| {
                is_long_wait(path, value) || !matches!(path, "MaxWaitMs" | "MinBytes" | "MaxBytes")
            },
            ..Scenario::read(ApiKey::Fetch, "at the end", |names, _| {
                fetch_body(names, &[("orders", 2, 0), ("orders", 0, 9)])
            })
        },
        Scenario {
            mutates: false,
            ..Scenario::read(ApiKey::Fetch, "compressed", |names, _| {
                fetch_body(names, &[("orders", 1, 1), ("orders", 1, 5), ("zstd", 0, 0)])
            })
        },
        Scenario {
            mutates: false,
            ..Scenario::read(ApiKey::Fetch, "zstd", |names, _| fetch_body(names, &[("zstd", 0, 0)]))
        },
        Scenario {
            mutates: false,
            ..Scenario::read(ApiKey::Fetch, "no conversion", |names, _| {
                fetch_body(names, &[("no-conversion", 0, 0), ("orders", 0, 0)])
            })
        },
        Scenario {
            mutates: false,
            ..Scenario::read(ApiKey::Fetch, "deleted", |names, _| {
                fetch_body(
                    names,
                    &[("start", 0, 0), ("start", 0, 1), ("start", 0, 2), ("start", 0, 3)],
                )
            })
        },
        Scenario {
            mutates: false,
            ..Scenario::read(ApiKey::Fetch, "read committed", |names, _| {
                let mut body = fetch_body(names, &[("orders", 0, 4), ("orders", 1, 0)]);
                body["IsolationLevel"] = json!(1);
                body
            })
        },
        Scenario {
            versions: (7, i16::MAX),
            fresh: Fresh::PerCase,
            before: |names, version| {
                let mut body = fetch_body(names, &[("orders", 0, 4), ("orders", 1, 0)]);
                body["SessionEpoch"] = json!(0);
                vec![Step { api: ApiKey::Fetch, version, body }]
            },
            after: |names, version| {
                let mut body = fetch_body(names, &[]);
                body["SessionId"] = json!("session");
                let step = |epoch: i32| {
                    let mut body = body.clone();
                    body["SessionEpoch"] = json!(epoch);
                    Step { api: ApiKey::Fetch, version, body }
                };
                // The last one ends it, so that there is room for the next.
                vec![step(2), step(-1)]
            },
            skip: |path, _| {
                let session = ["Session", "Forgotten", "Topics", "ReplicaId"];
                !session.iter().any(|start| path.starts_with(start))
            },
            ..Scenario::new(ApiKey::Fetch, "session", |names, _| {
                let mut body = fetch_body(names, &[("times", 0, 0), ("orders", 0, 7)]);
                let name = names.world("orders");
                body["SessionId"] = json!("session");
                body["SessionEpoch"] = json!(1);
                body["ForgottenTopicsData"] =
                    json!([{"Topic": name, "TopicId": format!("id:{name}"), "Partitions": [1]}]);
                body
            })
        },
    ]
}

fn looking_up() -> Vec<Scenario> {
    vec![
        Scenario {
            extras: |names, _| {
                let offsets =
                    [0, 5, 10, 20, 21].map(|after| Value::Number(FIRST_TIMESTAMP + after));
                let world = |name: &str| Value::Text(names.world(name));
                vec![
                    Extra::of("Timestamp", offsets.into()),
                    Extra::of("Name", ["times", "start", "segments", "compact"].map(world).into()),
                ]
            },
            ..Scenario::read(ApiKey::ListOffsets, "by time", |names, _| {
                json!({
                    "ReplicaId": -1, "IsolationLevel": 0,
                    "Topics": [{"Name": names.world("orders"), "Partitions": [
                        {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": FIRST_TIMESTAMP + 10, "MaxNumOffsets": 10},
                        {"PartitionIndex": 1, "CurrentLeaderEpoch": -1, "Timestamp": FIRST_TIMESTAMP + 10, "MaxNumOffsets": 10},
                    ]}],
                })
            })
        },
        Scenario {
            extras: |names, _| {
                let world = |name: &str| Value::Text(names.world(name));
                vec![Extra::of("Name", ["times", "start", "segments", "compact"].map(world).into())]
            },
            ..Scenario::read(ApiKey::ListOffsets, "ends", |names, _| {
                let partition = |timestamp: i64| json!({"PartitionIndex": 0, "CurrentLeaderEpoch": 0, "Timestamp": timestamp, "MaxNumOffsets": 3});
                let topic = |name: &str, timestamp| json!({"Name": names.world(name), "Partitions": [partition(timestamp)]});
                json!({
                    "ReplicaId": -1, "IsolationLevel": 1,
                    "Topics": [topic("segments", -1), topic("start", -2), topic("times", -1), topic("orders", -1)],
                })
            })
        },
        Scenario {
            extras: |names, _| {
                let world = |name: &str| Value::Text(names.world(name));
                vec![Extra::of("Topic", ["start", "segments"].map(world).into())]
            },
            ..Scenario::read(ApiKey::OffsetForLeaderEpoch, "epochs", |names, _| {
                json!({
                    "ReplicaId": -1,
                    "Topics": [{"Topic": names.world("orders"), "Partitions": [
                        {"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0},
                        {"Partition": 2, "CurrentLeaderEpoch": 0, "LeaderEpoch": 0},
                    ]}],
                })
            })
        },
    ]
}
