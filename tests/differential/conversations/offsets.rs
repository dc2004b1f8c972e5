//! What is committed by nobody in particular, and what becomes of it.

use kafka_protocol::messages::ApiKey;
use serde_json::{Value as Json, json};

use super::{Conversation, Line, ask, group::Group, pinned};
use crate::scenarios::{Names, create};

pub(super) fn all() -> Vec<Conversation> {
    let apis: &[ApiKey] = &[ApiKey::OffsetCommit, ApiKey::OffsetFetch, ApiKey::OffsetDelete];
    let of = |name, lines| Conversation { name, apis, rounds: (0, 9), lines };
    vec![
        of("simple commits", simple_commits),
        of("several groups", several_groups),
        of("offsets of a deleted topic", deleted_topic),
    ]
}

fn partition(index: i32, offset: i64, epoch: i32, metadata: Option<String>) -> Json {
    json!({
        "PartitionIndex": index, "CommittedOffset": offset, "CommittedLeaderEpoch": epoch,
        "CommitTimestamp": -1, "CommittedMetadata": metadata,
    })
}

fn commits(group: &Group, label: &'static str, topics: Json) -> Line {
    let body = json!({
        "GroupId": group.id, "GenerationIdOrMemberEpoch": -1, "MemberId": "", "GroupInstanceId": null,
        "RetentionTimeMs": -1, "Topics": topics,
    });
    group.ask(label, ApiKey::OffsetCommit, body)
}

fn fetches(group: &Group, label: &'static str, topics: Json, stable: bool) -> Line {
    let each = json!({"GroupId": group.id, "Topics": topics, "MemberId": null, "MemberEpoch": -1});
    let body =
        json!({"GroupId": group.id, "Topics": topics, "Groups": [each], "RequireStable": stable});
    group.ask(label, ApiKey::OffsetFetch, body)
}

fn simple_commits(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let (orders, times) = (names.world("orders"), names.world("times"));
    let of = |name: &str, partitions: Vec<Json>| json!({"Name": name, "Partitions": partitions});
    let some = json!([
        {"Name": orders, "PartitionIndexes": [2, 0, 1, 9, -1, 0]},
        {"Name": "unknown", "PartitionIndexes": [0]},
        {"Name": times, "PartitionIndexes": []},
        {"Name": times, "PartitionIndexes": [0]},
    ]);
    let text = |length: usize| Some("x".repeat(length));
    vec![
        commits(&group, "nothing", json!([])),
        group.describe("describe after nothing"),
        commits(&group, "no partitions", json!([of(&orders, vec![])])),
        group.describe("describe after no partitions"),
        commits(
            &group,
            "unknown places",
            json!([
                of("unknown", vec![partition(0, 1, -1, None)]),
                of(&orders, vec![partition(9, 1, -1, None)])
            ]),
        ),
        group.describe("describe after unknown places"),
        group.list("list after unknown places", &[], &[]),
        commits(
            &group,
            "several",
            json!([
                of(
                    &orders,
                    vec![
                        partition(0, 7, 3, None),
                        partition(1, 8, -1, text(0)),
                        partition(9, 1, -1, None)
                    ]
                ),
                of("unknown", vec![partition(0, 1, -1, None)]),
                of(&times, vec![partition(0, 9, 0, text(4096))]),
            ]),
        ),
        group.fetch("all"),
        fetches(&group, "some", some.clone(), false),
        fetches(&group, "none", json!([]), false),
        commits(
            &group,
            "long metadata",
            json!([of(
                &orders,
                vec![partition(0, 70, 3, text(4097)), partition(2, 71, 3, text(1))]
            )]),
        ),
        fetches(&group, "after long metadata", some.clone(), true),
        commits(
            &group,
            "odd offsets",
            json!([of(
                &orders,
                vec![
                    partition(0, -1, -2, None),
                    partition(1, -7, i32::MAX, None),
                    partition(2, i64::MAX, i32::MIN, None)
                ]
            )]),
        ),
        fetches(&group, "after odd offsets", some.clone(), false),
        commits(
            &group,
            "twice in a topic",
            json!([of(&orders, vec![partition(0, 1, 1, None), partition(0, 2, 2, None)])]),
        ),
        commits(
            &group,
            "a topic twice",
            json!([
                of(&orders, vec![partition(1, 3, 1, None)]),
                of(&orders, vec![partition(1, 4, 2, None)])
            ]),
        ),
        fetches(&group, "after doubles", some, false),
        group.describe("describe"),
        group.list("list", &["Empty"], &[]),
        group.delete("delete"),
        group.fetch("deleted"),
    ]
}

fn several_groups(names: &Names, round: i16) -> Vec<Line> {
    let other = format!("{}-other", names.fresh);
    let (group, other) = (Group::new(names, round), Group { names, round, id: &other });
    let of = |id: &str, topics: Json| json!({"GroupId": id, "Topics": topics, "MemberId": null, "MemberEpoch": -1});
    let topics = json!([{"Name": names.world("orders"), "PartitionIndexes": [1, 5]}]);
    let fetch = |label, groups: Json| {
        let body = json!({"GroupId": group.id, "Topics": topics, "Groups": groups, "RequireStable": false});
        ask(round, label, ApiKey::OffsetFetch, body)
    };
    let unknown = format!("{}-unknown", names.fresh);
    vec![
        group.commit("commit", "", -1),
        other.commit("commit of the other", "", -1),
        fetch(
            "three",
            json!([
                of(group.id, Json::Null),
                of(other.id, topics.clone()),
                of(&unknown, topics.clone())
            ]),
        ),
        fetch("one twice", json!([of(group.id, Json::Null), of(group.id, topics.clone())])),
        fetch("without a name", json!([of("", Json::Null), of(other.id, json!([]))])),
    ]
}

/// Offsets go with their topic.
fn deleted_topic(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let topic = names.fresh.clone();
    let committed = json!([
        {"Name": topic, "Partitions": [partition(0, 5, -1, None)]},
        {"Name": names.world("orders"), "Partitions": [partition(0, 6, -1, None)]},
    ]);
    let wanted = json!([{"Name": topic, "PartitionIndexes": [0]}, {"Name": names.world("orders"), "PartitionIndexes": [0]}]);
    let create = create(&topic, 1, &[]);
    let delete = json!({"Topics": [{"Name": topic}], "TopicNames": [topic], "TimeoutMs": 30000});
    // Version 0 keeps offsets in ZooKeeper, where they stay.
    let gone = if round == 0 { "committed_offset" } else { "committed_offset: -1" };
    vec![
        pinned("create", ApiKey::CreateTopics, 7, create.body),
        fetches(&group, "before", wanted.clone(), false),
        commits(&group, "commit", committed),
        fetches(&group, "committed", wanted.clone(), false),
        pinned("delete", ApiKey::DeleteTopics, 5, delete),
        fetches(&group, "gone", wanted, false).until(gone),
        group.fetch("all that is left"),
    ]
}
