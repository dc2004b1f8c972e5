//! The requests of members of groups, and about groups, one by one.

use kafka_protocol::messages::ApiKey;
use serde_json::{Value as Json, json};

use super::{
    Fresh, Names, Scenario, Step, ends,
    group_bodies::{Join, assignment, commit, consumer, join, leave, offset_delete, sync},
};
use crate::{edges::Extra, value::Value};

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = membership();
    all.extend(offsets());
    all.extend(queries());
    all
}

/// Group names that other cases have too: a group is made by whoever asks first, and keeps its members.
fn is_shared_name(path: &str, value: &Value) -> bool {
    let is_group = ends(path, "GroupId") || ends(path, "TransactionalId");
    is_group
        && match value {
            Value::Text(text) => !text.is_empty(),
            Value::Raw(_) => true,
            _ => false,
        }
}

/// Names that only this case has, with what others have as well.
fn own_names(names: &Names, field: &'static str) -> Extra {
    let own = |tail: &str| Value::Text(format!("{}{tail}", names.fresh));
    let long = own(&"x".repeat(300));
    let raw = Value::Raw([names.fresh.as_bytes(), &[0x61, 0xff, 0xfe, 0x62]].concat());
    let longest = own(&"x".repeat(0x7fff - names.fresh.len()));
    Extra {
        field,
        values: vec![own(" a/b%2e gr\u{f6}\u{df}e\0"), long, longest, raw],
        labels: vec!["odd", "long", "longest", "x61fffe62 behind its own name"],
    }
}

fn group_names(names: &Names, _: i16) -> Vec<Extra> {
    vec![own_names(names, "GroupId")]
}

fn usual(names: &Names, member: &str) -> Json {
    let orders = names.world("orders");
    join(&names.fresh, &Join { member, protocols: consumer(&orders), ..Join::default() })
}

fn joins(names: &Names) -> Step {
    // A version that lets a member in at once.
    Step { api: ApiKey::JoinGroup, version: 3, body: usual(names, "") }
}

fn syncs(names: &Names) -> Step {
    let part = ("@m1", assignment(&names.world("orders"), 1));
    Step { api: ApiKey::SyncGroup, version: 3, body: sync(&names.fresh, "@m1", 1, &[part]) }
}

fn one_member(names: &Names, _: i16) -> Vec<Step> {
    vec![joins(names), syncs(names)]
}

fn one_member_with_offsets(names: &Names, version: i16) -> Vec<Step> {
    let mut steps = one_member(names, version);
    let body = commit(&names.fresh, "@m1", 1, &names.world("orders"));
    steps.push(Step { api: ApiKey::OffsetCommit, version: 8, body });
    steps
}

/// What the group is like then.
fn described(names: &Names, _: i16) -> Vec<Step> {
    let body = json!({"Groups": [names.fresh], "IncludeAuthorizedOperations": true});
    vec![Step { api: ApiKey::DescribeGroups, version: 5, body }]
}

fn fetched(names: &Names, version: i16) -> Vec<Step> {
    // Version 0 keeps offsets in ZooKeeper.
    let wanted = if version == 0 { 0 } else { 5 };
    let topics = match wanted {
        0 => json!([{"Name": names.world("orders"), "PartitionIndexes": [0, 1, 2]}]),
        _ => Json::Null,
    };
    let body = json!({"GroupId": names.fresh, "Topics": topics});
    vec![Step { api: ApiKey::OffsetFetch, version: wanted, body }]
}

/// A member id that another member has in no case, and the one that has one.
fn members(names: &Names, version: i16) -> Vec<Extra> {
    let mut extras = group_names(names, version);
    let known = Value::Learned("@m1".to_owned());
    extras.push(Extra::of("MemberId", vec![known, Value::Text(String::new())]));
    extras
}

/// Protocols that Kafka cannot deal with, so that their group waits forever. Conversations try one of each.
fn is_fatal(path: &str, value: &Value) -> bool {
    match value {
        Value::List(items) => ends(path, "Protocols") && items.len() > 2,
        Value::Raw(bytes) => ends(path, "Metadata") && bytes.first() == Some(&0xff),
        _ => false,
    }
}

/// What would make a member wait, or leave behind one that others wait for.
fn is_troublesome(path: &str, value: &Value) -> bool {
    is_shared_name(path, value) || is_short_rebalance(path, value) || is_fatal(path, value)
}

/// Timeouts after which the member is gone at any moment.
fn is_short_rebalance(path: &str, value: &Value) -> bool {
    ends(path, "RebalanceTimeoutMs") && matches!(value, Value::Number(..=1000))
}

fn membership() -> Vec<Scenario> {
    vec![
        Scenario {
            fresh: Fresh::PerCase,
            skip: is_troublesome,
            extras: group_names,
            after: described,
            ..Scenario::new(ApiKey::JoinGroup, "newcomer", |names, _| usual(names, ""))
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: one_member,
            skip: |path, value| {
                is_troublesome(path, value)
                // Who is new waits for the member, which says nothing.
                || ends(path, "MemberId") && *value == Value::Text(String::new())
            },
            extras: group_names,
            after: described,
            ..Scenario::new(ApiKey::JoinGroup, "member", |names, _| usual(names, "@m1"))
        },
        Scenario {
            fresh: Fresh::PerCase,
            versions: (5, i16::MAX),
            skip: is_troublesome,
            after: described,
            ..Scenario::new(ApiKey::JoinGroup, "instance", |names, _| {
                let mut body = usual(names, "");
                body["GroupInstanceId"] = json!("instance");
                body
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: |names, _| vec![joins(names)],
            skip: is_shared_name,
            extras: members,
            after: described,
            ..Scenario::new(ApiKey::SyncGroup, "leader", |names, _| {
                let mut body = sync(&names.fresh, "@m1", 1, &[("@m1", "0001".to_owned())]);
                body["ProtocolType"] = json!("consumer");
                body["ProtocolName"] = json!("range");
                body
            })
        },
        Scenario {
            before: one_member,
            skip: is_shared_name,
            extras: members,
            ..Scenario::new(
                ApiKey::Heartbeat,
                "member",
                |names, _| json!({"GroupId": names.fresh, "GenerationId": 1, "MemberId": "@m1", "GroupInstanceId": null}),
            )
        },
        Scenario {
            fresh: Fresh::PerCase,
            before: one_member,
            skip: is_shared_name,
            extras: members,
            after: described,
            ..Scenario::new(ApiKey::LeaveGroup, "member", |names, _| {
                leave(&names.fresh, &[("@m1", None), ("somebody", Some("instance"))])
            })
        },
    ]
}

fn offsets() -> Vec<Scenario> {
    vec![
        Scenario {
            before: one_member,
            skip: is_shared_name,
            extras: members,
            after: fetched,
            ..Scenario::new(ApiKey::OffsetCommit, "member", |names, _| {
                commit(&names.fresh, "@m1", 1, &names.world("orders"))
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            skip: is_shared_name,
            extras: group_names,
            after: fetched,
            ..Scenario::new(ApiKey::OffsetCommit, "nobody", |names, _| {
                commit(&names.fresh, "", -1, &names.world("orders"))
            })
        },
        Scenario {
            before: one_member_with_offsets,
            extras: group_names,
            ..Scenario::read(ApiKey::OffsetFetch, "some", |names, _| {
                let topics = json!([
                    {"Name": names.world("orders"), "PartitionIndexes": [0, 1, 2]},
                    {"Name": names.world("times"), "PartitionIndexes": [0]},
                ]);
                let group = |id: &str| json!({"GroupId": id, "Topics": topics, "MemberId": null, "MemberEpoch": -1});
                json!({"GroupId": names.fresh, "Topics": topics, "Groups": [group(&names.fresh), group("other")], "RequireStable": true})
            })
        },
        Scenario {
            before: one_member_with_offsets,
            skip: is_shared_name,
            extras: group_names,
            after: fetched,
            ..Scenario::new(ApiKey::OffsetDelete, "of a topic that is read", |names, _| {
                let topics = [names.world("times"), names.world("orders")];
                offset_delete(&names.fresh, &topics)
            })
        },
        Scenario {
            fresh: Fresh::PerCase,
            skip: is_shared_name,
            before: |names, _| {
                let body = commit(&names.fresh, "", -1, &names.world("orders"));
                vec![Step { api: ApiKey::OffsetCommit, version: 8, body }]
            },
            after: fetched,
            ..Scenario::new(ApiKey::OffsetDelete, "of nobody", |names, _| {
                offset_delete(&names.fresh, &[names.world("orders")])
            })
        },
    ]
}

fn queries() -> Vec<Scenario> {
    vec![
        Scenario {
            before: one_member_with_offsets,
            ..Scenario::read(
                ApiKey::DescribeGroups,
                "one and none",
                |names, _| json!({"Groups": [names.fresh, "nobody's"], "IncludeAuthorizedOperations": true}),
            )
        },
        Scenario {
            before: one_member_with_offsets,
            extras: |_, _| {
                let text = |text: &str| Value::Text(text.to_owned());
                let list =
                    |texts: &[&str]| Value::List(texts.iter().map(|one| text(one)).collect());
                vec![
                    Extra::of(
                        "StatesFilter",
                        vec![list(&["Stable"]), list(&["stable", "Dead"]), list(&["Dead"])],
                    ),
                    Extra::of(
                        "TypesFilter",
                        vec![list(&["classic"]), list(&["CLASSIC", "consumer"]), list(&["share"])],
                    ),
                ]
            },
            ..Scenario::read(
                ApiKey::ListGroups,
                "filtered",
                |_, _| json!({"StatesFilter": ["Stable", "Empty"], "TypesFilter": ["classic"]}),
            )
        },
        Scenario {
            before: one_member_with_offsets,
            ..Scenario::read(ApiKey::ListGroups, "all", |_, _| json!({}))
        },
        Scenario {
            before: one_member_with_offsets,
            skip: |path, value| {
                // A group of another case may have this name on one side alone.
                ends(path, "GroupsNames")
                    && matches!(value, Value::List(items) if items.contains(&Value::Text("a".to_owned())))
            },
            after: described,
            ..Scenario::new(
                ApiKey::DeleteGroups,
                "one and none",
                |names, _| json!({"GroupsNames": [names.fresh, "nobody's"]}),
            )
        },
    ]
}
