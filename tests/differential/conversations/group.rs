//! The requests that conversations make of a group.

use kafka_protocol::messages::ApiKey;
use serde_json::{Value as Json, json};

use super::{Line, ask};
use crate::scenarios::{
    Names,
    group_bodies::{Join, assignment, commit, consumer, join, leave, offset_delete, sync},
};

/// The usual group: requests about it, in the version of the round.
pub(super) struct Group<'a> {
    pub(super) names: &'a Names,
    pub(super) round: i16,
    pub(super) id: &'a str,
}

impl<'a> Group<'a> {
    pub(super) fn new(names: &'a Names, round: i16) -> Group<'a> {
        Group { names, round, id: &names.fresh }
    }

    pub(super) fn ask(&self, label: &'static str, key: ApiKey, body: Json) -> Line {
        ask(self.round, label, key, body)
    }

    pub(super) fn join(&self, label: &'static str, wanted: &Join) -> Line {
        self.ask(label, ApiKey::JoinGroup, join(self.id, wanted))
    }

    /// A new member and its first protocol.
    pub(super) fn consumer(&self, label: &'static str, member: &str) -> Line {
        let orders = self.names.world("orders");
        self.join(label, &Join { member, protocols: consumer(&orders), ..Join::default() })
    }

    pub(super) fn sync(
        &self,
        label: &'static str,
        member: &str,
        generation: i32,
        to: &[&str],
    ) -> Line {
        let topic = self.names.world("orders");
        let parts: Vec<(&str, String)> =
            (0..).zip(to).map(|(index, member)| (*member, assignment(&topic, index))).collect();
        self.ask(label, ApiKey::SyncGroup, sync(self.id, member, generation, &parts))
    }

    pub(super) fn heartbeat(&self, label: &'static str, member: &str, generation: i32) -> Line {
        self.instance_heartbeat(label, member, generation, None)
    }

    pub(super) fn instance_heartbeat(
        &self,
        label: &'static str,
        member: &str,
        generation: i32,
        instance: Option<&str>,
    ) -> Line {
        let body = json!({"GroupId": self.id, "GenerationId": generation, "MemberId": member, "GroupInstanceId": instance});
        self.ask(label, ApiKey::Heartbeat, body)
    }

    pub(super) fn commit(&self, label: &'static str, member: &str, generation: i32) -> Line {
        let topic = self.names.world("orders");
        self.ask(label, ApiKey::OffsetCommit, commit(self.id, member, generation, &topic))
    }

    pub(super) fn instance_commit(
        &self,
        label: &'static str,
        member: &str,
        generation: i32,
        instance: &str,
    ) -> Line {
        let mut line = self.commit(label, member, generation);
        line.step.body["GroupInstanceId"] = json!(instance);
        line
    }

    pub(super) fn leave(&self, label: &'static str, members: &[(&str, Option<&str>)]) -> Line {
        self.ask(label, ApiKey::LeaveGroup, leave(self.id, members))
    }

    pub(super) fn describe(&self, label: &'static str) -> Line {
        let body = json!({"Groups": [self.id], "IncludeAuthorizedOperations": true});
        self.ask(label, ApiKey::DescribeGroups, body)
    }

    pub(super) fn list(&self, label: &'static str, states: &[&str], types: &[&str]) -> Line {
        self.ask(label, ApiKey::ListGroups, json!({"StatesFilter": states, "TypesFilter": types}))
    }

    /// All that was committed, or what was for some partitions where the version cannot ask for all.
    pub(super) fn fetch(&self, label: &'static str) -> Line {
        let topics = match self.round {
            0 | 1 => {
                json!([{"Name": self.names.world("orders"), "PartitionIndexes": [0, 1, 2, 9]}])
            }
            _ => Json::Null,
        };
        let group =
            json!({"GroupId": self.id, "Topics": topics, "MemberId": null, "MemberEpoch": -1});
        let body =
            json!({"GroupId": self.id, "Topics": topics, "Groups": [group], "RequireStable": true});
        self.ask(label, ApiKey::OffsetFetch, body)
    }

    pub(super) fn delete(&self, label: &'static str) -> Line {
        self.ask(label, ApiKey::DeleteGroups, json!({"GroupsNames": [self.id]}))
    }

    pub(super) fn offset_delete(&self, label: &'static str, topics: &[&str]) -> Line {
        let topics: Vec<String> = topics.iter().map(|topic| self.names.world(topic)).collect();
        self.ask(label, ApiKey::OffsetDelete, offset_delete(self.id, &topics))
    }

    /// A member that is in, by the way of the version.
    pub(super) fn enters(&self) -> Vec<Line> {
        vec![
            self.consumer("the first asks to join", ""),
            self.consumer("the first joins", "@m1"),
            self.sync("the first gets all", "@m1", 1, &["@m1"]),
        ]
    }
}
