//! Members come, meet, and go.

use kafka_protocol::messages::ApiKey;
use serde_json::json;

use super::{Conversation, Line, ask, finish, group::Group};
use crate::scenarios::{
    Names,
    group_bodies::{Join, consumer, join},
};

/// The APIs of members.
pub(super) const ALL: &[ApiKey] = &[
    ApiKey::JoinGroup,
    ApiKey::SyncGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::OffsetDelete,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::DeleteGroups,
];

pub(super) fn all() -> Vec<Conversation> {
    let of = |name, rounds, lines| Conversation { name, apis: ALL, rounds, lines };
    vec![
        of("unknown group", (0, 9), unknown_group),
        of("one member", (0, 9), one_member),
        of("two members", (0, 9), two_members),
        of("pending members", (4, 9), pending_members),
        of("wrong joins", (0, 9), wrong_joins),
        of("late members", (0, 9), late_members),
        of("duplicate protocols", (9, 9), duplicate_protocols),
        of("null topics in metadata", (9, 9), null_topics),
        of("no consumers", (0, 9), no_consumers),
        of("deletion", (0, 9), deletion),
    ]
}

fn unknown_group(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    vec![
        group.describe("describe"),
        group.heartbeat("heartbeat", "somebody", 1),
        group.heartbeat("heartbeat without a member", "", -1),
        group.sync("sync", "somebody", 1, &["somebody"]),
        group.leave("leave", &[("somebody", None)]),
        group.leave("leave without a member", &[("", None)]),
        group.leave("leave as an instance", &[("", Some("instance"))]),
        group.consumer("join with an id", "somebody"),
        group.commit("commit as a member", "somebody", 1),
        group.commit("commit of a generation", "", 1),
        group.commit("commit as a member without generation", "somebody", -1),
        group.fetch("fetch"),
        group.offset_delete("delete offsets", &["orders", "unknown"]),
        group.delete("delete"),
        group.describe("describe then"),
        group.list("list then", &[], &[]),
    ]
}

fn one_member(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let mut lines = vec![
        group.consumer("asks to join", ""),
        group.describe("describe the newcomer's group"),
        group.list("list the newcomer's group", &[], &[]),
        group.consumer("joins", "@m1"),
        group.describe("describe without assignment"),
        group.list("list without assignment", &["CompletingRebalance"], &["Classic"]),
        group.heartbeat("heartbeat before the assignment", "@m1", 1),
        group.heartbeat("heartbeat of the next generation", "@m1", 2),
        group.heartbeat("heartbeat of a stranger", "somebody", 1),
        group.heartbeat("heartbeat of nobody", "", 1),
        group.commit("commit before the assignment", "@m1", 1),
        group.commit("commit of the next generation before the assignment", "@m1", 2),
        group.commit("commit of a stranger before the assignment", "somebody", 1),
        group.commit("commit without a member before the assignment", "", -1),
        group.fetch("fetch before the assignment"),
        group.delete("delete before the assignment"),
        group.consumer("joins again before the assignment", "@m1"),
        group.sync("sync of the next generation", "@m1", 2, &["@m1"]),
        group.sync("sync of generation -1", "@m1", -1, &["@m1"]),
        group.sync("sync of a stranger", "somebody", 1, &["@m1"]),
    ];
    for (label, kind, name) in [
        ("sync of another type", json!("connect"), json!("range")),
        ("sync of another protocol", json!("consumer"), json!("sticky")),
        ("sync without a protocol", json!("consumer"), json!(null)),
    ] {
        let mut line = group.sync(label, "@m1", 1, &["@m1"]);
        line.step.body["ProtocolType"] = kind;
        line.step.body["ProtocolName"] = name;
        // Before, each of them would be the assignment already.
        if round >= 5 {
            lines.push(line);
        }
    }
    lines.extend([
        group.sync("gets all", "@m1", 1, &["@m1", "somebody"]),
        group.describe("describe stable"),
        group.list("list stable", &["stable", "Empty"], &["classic"]),
        group.list("list the empty", &["Empty"], &[]),
        group.list("list another type", &[], &["consumer"]),
        group.list("list no type", &[], &["nonsense"]),
        group.list("list no state", &["nonsense"], &[]),
        group.sync("sync again", "@m1", 1, &[]),
        group.heartbeat("heartbeat", "@m1", 1),
        group.commit("commit", "@m1", 1),
        group.fetch("fetch"),
        group.commit("commit without a member", "", -1),
        group.commit("commit of the next generation", "@m1", 2),
        group.commit("commit of a negative generation", "@m1", -1),
        group.commit("commit of a stranger", "somebody", 1),
        group.instance_commit("commit of an unknown instance", "@m1", 1, "instance"),
        group.offset_delete("delete offsets", &["orders", "times", "unknown"]),
        group.delete("delete"),
        group.consumer("the leader joins again", "@m1"),
        group.heartbeat("heartbeat of the last generation", "@m1", 1),
        group.sync("gets nothing", "@m1", 2, &[]),
        group.describe("describe without parts"),
        group.leave("leave of a stranger", &[("somebody", None)]),
        group.leave("leave", &[("@m1", None), ("somebody", None)]),
        group.leave("leave again", &[("@m1", None)]),
        group.describe("describe empty"),
        group.list("list empty", &["empty"], &[]),
        group.heartbeat("heartbeat of a former member", "@m1", 2),
        group.sync("sync of a former member", "@m1", 2, &[]),
        group.consumer("join of a former member", "@m1"),
        group.commit("commit of a former member", "@m1", 2),
        group.commit("commit of a generation of an empty group", "", 2),
        group.commit("commit as a simple consumer", "", -1),
        group.fetch("fetch from the empty"),
        group.offset_delete("delete offsets of the empty", &["orders", "times", "unknown"]),
        group.fetch("fetch what is left"),
        group.delete("delete the empty"),
        group.delete("delete twice"),
        group.describe("describe deleted"),
        group.fetch("fetch deleted"),
        group.list("list deleted", &[], &[]),
    ]);
    lines
}

fn two_members(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let (orders, times) = (names.world("orders"), names.world("times"));
    let second = |label, member, topic: &str| {
        let protocols = vec![("roundrobin", crate::scenarios::group_bodies::subscription(topic))];
        group.join(label, &Join { member, protocols, ..Join::default() })
    };
    let sync = |label, member, generation, to: &[&str]| {
        let mut line = group.sync(label, member, generation, to);
        line.step.body["ProtocolName"] = json!("roundrobin");
        line
    };
    let mut lines = group.enters();
    if round >= 4 {
        lines.push(second("the second asks to join", "", &orders));
        lines.push(group.describe("describe with one at the door"));
        lines.push(group.heartbeat("heartbeat with one at the door", "@m1", 1));
    }
    let member = if round >= 4 { "@m2" } else { "" };
    lines.extend([
        second("the second joins", member, &orders).on(1).starts(),
        group.describe("describe preparing").until("PreparingRebalance"),
        group.list("list preparing", &["PreparingRebalance"], &[]),
        group.heartbeat("heartbeat while preparing", "@m1", 1),
        group.heartbeat("heartbeat of the next generation while preparing", "@m1", 2),
        group.commit("commit while preparing", "@m1", 1),
        group.commit("commit without a member while preparing", "", -1),
        group.sync("sync while preparing", "@m1", 1, &[]),
        group.delete("delete while preparing"),
        group.offset_delete("delete offsets while preparing", &["orders", "times"]),
        group.consumer("the first joins again", "@m1").starts(),
        finish("the second is in", 1, ApiKey::JoinGroup),
        finish("the first is in", 0, ApiKey::JoinGroup),
        sync("the second waits for its part", "@m2", 2, &[]).on(1).starts(),
        group.describe("describe completing"),
        group.heartbeat("heartbeat of who waits", "@m2", 2),
        group.commit("commit of who waits", "@m2", 2),
        sync("the first gives parts", "@m1", 2, &["@m1", "@m2"]),
        finish("the second has its part", 1, ApiKey::SyncGroup),
        group.describe("describe two"),
        sync("the second asks again", "@m2", 2, &[]),
        second("the follower joins again", "@m2", &orders),
        group.heartbeat("heartbeat after it", "@m1", 2),
        group.join(
            "inconsistent protocols",
            &Join { protocols: vec![("sticky", "00".to_owned())], ..Join::default() },
        ),
        group.join(
            "inconsistent type",
            &Join { protocol_type: "connect", protocols: consumer(&orders), ..Join::default() },
        ),
        group.join(
            "inconsistent protocols of a member",
            &Join {
                member: "@m2",
                protocols: vec![("sticky", "00".to_owned())],
                ..Join::default()
            },
        ),
        second("the follower reads something else", "@m2", &times).on(1).starts(),
        group.heartbeat("the first hears of it", "@m1", 2),
        group.heartbeat("the second hears of it", "@m2", 2),
        group
            .join(
                "the first offers one protocol",
                &Join {
                    member: "@m1",
                    protocols: vec![("roundrobin", "0000".to_owned())],
                    ..Join::default()
                },
            )
            .starts(),
        finish("the second is in again", 1, ApiKey::JoinGroup),
        finish("the first is in again", 0, ApiKey::JoinGroup),
        sync("the first gives parts again", "@m1", 3, &["@m2"]),
        sync("the second has its part again", "@m2", 3, &[]),
        group.describe("describe after the change"),
        group.offset_delete("delete offsets of what is read", &["orders", "times"]),
        group.leave("the leader leaves", &[("@m1", None)]),
        group.describe("describe without a leader"),
        group.heartbeat("the second hears that the first left", "@m2", 3),
        second("the second leads", "@m2", &times),
        group.describe("describe led by the second"),
        group.leave("the second leaves before its part", &[("@m2", None)]),
        group.describe("describe without members"),
    ]);
    lines
}

fn pending_members(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    vec![
        group.consumer("the first asks", ""),
        group.consumer("the second asks", ""),
        group.describe("describe"),
        group.heartbeat("heartbeat", "@m1", 0),
        group.heartbeat("heartbeat of generation -1", "@m1", -1),
        group.sync("sync", "@m1", 0, &[]),
        group.commit("commit", "@m1", 0),
        group.commit("commit of generation -1", "@m1", -1),
        group.leave("the first leaves", &[("@m1", None)]),
        group.consumer("the first wants in after all", "@m1"),
        group.consumer("the second joins", "@m2").on(1).starts(),
        finish("the second is in", 1, ApiKey::JoinGroup),
        group.sync("the second gets all", "@m2", 1, &["@m2"]),
        group.consumer("the third asks", ""),
        group.heartbeat("heartbeat with one at the door", "@m2", 1),
        group.leave("the third and the second leave", &[("@m3", None), ("@m2", None)]),
        group.describe("describe empty"),
        group.consumer("the fourth asks", ""),
        group.delete("delete with one at the door"),
        group.consumer("the fourth comes too late", "@m4"),
        group.describe("describe deleted"),
    ]
}

fn wrong_joins(names: &Names, round: i16) -> Vec<Line> {
    let orders = names.world("orders");
    let usual = || Join { protocols: consumer(&orders), ..Join::default() };
    let wrong: Vec<(&'static str, Join)> = vec![
        ("session below the least", Join { session_ms: 5999, ..usual() }),
        ("session above the most", Join { session_ms: 1_800_001, ..usual() }),
        ("session negative", Join { session_ms: -1, ..usual() }),
        ("session the least", Join { session_ms: 6000, ..usual() }),
        ("session the most", Join { session_ms: 1_800_000, ..usual() }),
        ("rebalance timeout negative", Join { rebalance_ms: -1, ..usual() }),
        ("rebalance timeout zero", Join { rebalance_ms: 0, ..usual() }),
        ("no protocols", Join::default()),
        ("no type", Join { protocol_type: "", ..usual() }),
        ("empty protocol", Join { protocols: vec![("", String::new())], ..usual() }),
        ("empty instance", Join { instance: Some(""), ..usual() }),
        ("another type", Join { protocol_type: "connect", ..usual() }),
        (
            "many protocols",
            Join {
                protocols: vec![("b", "01".into()), ("a", "02".into()), ("c", String::new())],
                ..usual()
            },
        ),
    ];
    let mut lines = Vec::new();
    for (index, (label, wrong)) in wrong.into_iter().enumerate() {
        let id = format!("{}-{index}", names.fresh);
        let group = Group { names, round, id: &id };
        lines.push(group.join(label, &wrong));
        // Who has no time to give parts is removed at any moment.
        if wrong.rebalance_ms > 0 {
            lines.push(group.describe(label));
        }
    }
    lines.push(ask(round, "without a group", ApiKey::JoinGroup, join("", &usual())));
    lines
}

/// Who does not come in time is out, and the others go on.
fn late_members(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let orders = names.world("orders");
    let join = |label, member| {
        // The session has to outlast the rebalance, which in the first version is as long.
        group.join(
            label,
            &Join {
                member,
                rebalance_ms: 700,
                session_ms: 6000,
                protocols: consumer(&orders),
                ..Join::default()
            },
        )
    };
    let mut lines = vec![
        join("the first asks", ""),
        join("the first joins", "@m1"),
        group.sync("the first gets all", "@m1", 1, &["@m1"]),
        group.commit("commit", "@m1", 1),
    ];
    let second = if round >= 4 {
        lines.push(join("the second asks", ""));
        "@m2"
    } else {
        ""
    };
    lines.extend([
        join("the second joins", second).on(1).starts(),
        finish("the second is in alone", 1, ApiKey::JoinGroup),
        group.heartbeat("the first is out", "@m1", 1),
        group.commit("commit of who is out", "@m1", 1),
        group.sync("sync of who is out", "@m1", 1, &[]),
        group.leave("leave of who is out", &[("@m1", None)]),
        group.describe("describe without parts"),
    ]);
    if round >= 1 {
        lines.extend([
            group.describe("nobody gave parts in time").until("Empty"),
            group.heartbeat("the second is out", "@m2", 2),
        ]);
    }
    lines
}

/// Kafka finds no protocol that the member has, and the group waits forever.
fn duplicate_protocols(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let protocols = [consumer(&names.world("orders")), consumer(&names.world("orders"))].concat();
    let join = |label, member| {
        group.join(label, &Join { member, protocols: protocols.clone(), ..Join::default() })
    };
    vec![join("asks", ""), join("joins", "@m1")]
}

/// Kafka cannot read the metadata, and the group waits forever.
fn null_topics(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let protocols = vec![("range", "0000ffffffffffffffff".to_owned())];
    let join = |label, member| {
        group.join(label, &Join { member, protocols: protocols.clone(), ..Join::default() })
    };
    vec![join("asks", ""), join("joins", "@m1")]
}

/// Groups of something else than consumers.
fn no_consumers(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let join = |label, member| {
        let protocols = vec![("default", "0001".to_owned())];
        group.join(label, &Join { member, protocol_type: "connect", protocols, ..Join::default() })
    };
    let mut sync = group.sync("sync", "@m1", 1, &["@m1"]);
    sync.step.body["ProtocolType"] = json!("connect");
    sync.step.body["ProtocolName"] = json!("default");
    vec![
        join("asks", ""),
        join("joins", "@m1"),
        sync,
        group.describe("describe"),
        group.list("list", &[], &[]),
        group.commit("commit", "@m1", 1),
        group.offset_delete("delete offsets", &["orders"]),
        group.leave("leave", &[("@m1", None)]),
        group.describe("describe empty"),
        group.offset_delete("delete offsets of the empty", &["orders", "times"]),
        group.consumer("a consumer asks", ""),
        group.describe("describe with a consumer"),
    ]
}

/// Several groups in one request.
fn deletion(names: &Names, round: i16) -> Vec<Line> {
    let (empty, full) = (format!("{}-empty", names.fresh), format!("{}-full", names.fresh));
    let unknown = format!("{}-unknown", names.fresh);
    let (of_empty, of_full) =
        (Group { names, round, id: &empty }, Group { names, round, id: &full });
    let all = json!([&empty, "", &unknown, &full, &empty]);
    let mut lines = of_full.enters();
    lines.extend([
        of_empty.commit("commit of the empty", "", -1),
        of_full.commit("commit of the full", "@m1", 1),
        ask(
            round,
            "describe all",
            ApiKey::DescribeGroups,
            json!({"Groups": all, "IncludeAuthorizedOperations": false}),
        ),
        of_full.list("list all", &[], &[]),
        of_full.list("list two states", &["STABLE", "empty", "Dead"], &["CLASSIC", "consumer"]),
        ask(round, "delete all", ApiKey::DeleteGroups, json!({"GroupsNames": all})),
        ask(round, "delete none", ApiKey::DeleteGroups, json!({"GroupsNames": []})),
        ask(round, "describe none", ApiKey::DescribeGroups, json!({"Groups": []})),
        of_full.list("list what is left", &[], &[]),
        of_empty.fetch("fetch from the empty"),
        of_full.fetch("fetch from the full"),
        of_empty.commit("commit of the empty again", "", -1),
        of_empty.describe("describe the empty again"),
        of_empty.delete("delete the empty again"),
    ]);
    lines
}
