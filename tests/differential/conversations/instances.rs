//! Static members: their instances outlast their ids.

use kafka_protocol::messages::ApiKey;
use serde_json::json;

use super::{Conversation, Line, finish, group::Group, groups};
use crate::scenarios::{
    Names,
    group_bodies::{Join, consumer},
};

pub(super) fn all() -> Vec<Conversation> {
    let of = |name, lines| Conversation { name, apis: groups::ALL, rounds: (5, 9), lines };
    vec![of("static members", static_members), of("a static follower", static_follower)]
}

fn static_members(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let orders = names.world("orders");
    let join = |label, member, instance| {
        group.join(
            label,
            &Join {
                member,
                instance: Some(instance),
                protocols: consumer(&orders),
                ..Join::default()
            },
        )
    };
    let mut changed = join("returns with another protocol", "", "one");
    changed.step.body["Protocols"] = json!([{"Name": "other", "Metadata": "0000"}]);
    let mut fenced_sync = group.sync("sync of the fenced", "@m1", 1, &[]);
    fenced_sync.step.body["GroupInstanceId"] = json!("one");
    vec![
        join("joins", "", "one"),
        group.describe("describe"),
        group.sync("gets all", "@m1", 1, &["@m1"]),
        group.instance_heartbeat("heartbeat", "@m1", 1, Some("one")),
        group.heartbeat("heartbeat without instance", "@m1", 1),
        group.instance_heartbeat("heartbeat of another instance", "@m1", 1, Some("two")),
        group.instance_heartbeat("heartbeat of a stranger", "somebody", 1, Some("one")),
        group.instance_commit("commit", "@m1", 1, "one"),
        join("returns while stable", "", "one"),
        group.describe("describe the successor"),
        group.instance_heartbeat("heartbeat of the fenced", "@m1", 1, Some("one")),
        group.heartbeat("heartbeat of the fenced without instance", "@m1", 1),
        group.instance_commit("commit of the fenced", "@m1", 1, "one"),
        fenced_sync,
        join("join of the fenced", "@m1", "one"),
        join("join of a stranger as the instance", "somebody", "one"),
        join("join of a stranger as another instance", "somebody", "two"),
        group.leave("leave of the fenced", &[("@m1", Some("one"))]),
        group.instance_heartbeat("heartbeat of the successor", "@m2", 1, Some("one")),
        group.sync("sync of the successor", "@m2", 1, &[]),
        join("the successor joins again", "@m2", "one"),
        group.describe("describe after that"),
        changed,
        group.describe("describe the other protocol"),
        group.leave("leave of unknown instances", &[("", Some("two")), ("somebody", Some("two"))]),
        group.leave("leave of the instance", &[("", Some("one")), ("", Some("one"))]),
        group.describe("describe empty"),
        join("comes back", "", "one"),
        group.leave("leaves by both names", &[("@m4", Some("one"))]),
        group.describe("describe in the end"),
    ]
}

/// A static follower comes back while the group is stable, and then to a group that has forgotten nobody.
fn static_follower(names: &Names, round: i16) -> Vec<Line> {
    let group = Group::new(names, round);
    let orders = names.world("orders");
    let join = |label, member, instance| {
        group.join(
            label,
            &Join {
                member,
                instance: Some(instance),
                protocols: consumer(&orders),
                ..Join::default()
            },
        )
    };
    vec![
        join("the first joins", "", "one"),
        group.sync("the first gets all", "@m1", 1, &["@m1"]),
        join("the second joins", "", "two").on(1).starts(),
        group.describe("describe preparing").until("PreparingRebalance"),
        join("the first joins again", "@m1", "one").starts(),
        finish("the second is in", 1, ApiKey::JoinGroup),
        finish("the first is in", 0, ApiKey::JoinGroup),
        join("the second returns before its part", "", "two").on(1).starts(),
        group.describe("describe then").until("PreparingRebalance"),
        group.heartbeat("the first hears of it", "@m1", 2),
        join("the first joins once more", "@m1", "one").starts(),
        finish("the second is in again", 1, ApiKey::JoinGroup),
        finish("the first is in again", 0, ApiKey::JoinGroup),
        group.sync("the first gives parts", "@m1", 3, &["@m1", "@m3"]),
        group.sync("the second has its part", "@m3", 3, &[]),
        join("the second returns while stable", "", "two"),
        group.describe("describe stable"),
        group.sync("it has its part", "@m4", 3, &[]),
        group.leave("both are removed", &[("", Some("one")), ("", Some("two"))]),
        group.describe("describe empty"),
    ]
}
