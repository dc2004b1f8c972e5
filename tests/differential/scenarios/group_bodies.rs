//! Requests of the members of groups.

use serde_json::{Value as Json, json};

use crate::value::hex;

/// What a member says of itself.
pub(crate) struct Join<'a> {
    pub(crate) member: &'a str,
    pub(crate) instance: Option<&'a str>,
    pub(crate) session_ms: i32,
    pub(crate) rebalance_ms: i32,
    pub(crate) protocol_type: &'a str,
    /// Names and metadata, in hexadecimal digits.
    pub(crate) protocols: Vec<(&'a str, String)>,
}

impl Default for Join<'_> {
    fn default() -> Self {
        Join {
            member: "",
            instance: None,
            // Nobody's session ends while the run lasts.
            session_ms: 1_800_000,
            rebalance_ms: 1_800_000,
            protocol_type: "consumer",
            protocols: Vec::new(),
        }
    }
}

/// The protocols of a consumer that reads a topic.
pub(crate) fn consumer(topic: &str) -> Vec<(&'static str, String)> {
    vec![("range", subscription(topic)), ("roundrobin", subscription(topic))]
}

/// Metadata of a consumer. Source: `ConsumerProtocolSubscription`, version 0.
pub(crate) fn subscription(topic: &str) -> String {
    let name = with_length(topic);
    hex(&[&[0, 0, 0, 0, 0, 1], name.as_slice(), &[0xff; 4]].concat())
}

/// A consumer's part. Source: `ConsumerProtocolAssignment`, version 0.
pub(crate) fn assignment(topic: &str, partition: u8) -> String {
    let name = with_length(topic);
    let partitions = [0, 0, 0, 1, 0, 0, 0, partition];
    hex(&[&[0, 0, 0, 0, 0, 1], name.as_slice(), &partitions, &[0xff; 4]].concat())
}

fn with_length(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

pub(crate) fn join(group: &str, join: &Join) -> Json {
    let protocol = |(name, metadata): &(&str, String)| json!({"Name": name, "Metadata": metadata});
    json!({
        "GroupId": group, "SessionTimeoutMs": join.session_ms, "RebalanceTimeoutMs": join.rebalance_ms,
        "MemberId": join.member, "GroupInstanceId": join.instance, "ProtocolType": join.protocol_type,
        "Protocols": join.protocols.iter().map(protocol).collect::<Vec<_>>(), "Reason": "it is time",
    })
}

/// `parts` are members and what they get.
pub(crate) fn sync(group: &str, member: &str, generation: i32, parts: &[(&str, String)]) -> Json {
    let part = |(member, part): &(&str, String)| json!({"MemberId": member, "Assignment": part});
    json!({
        "GroupId": group, "GenerationId": generation, "MemberId": member, "GroupInstanceId": null,
        "ProtocolType": "consumer", "ProtocolName": "range",
        "Assignments": parts.iter().map(part).collect::<Vec<_>>(),
    })
}

/// Members and their instances.
pub(crate) fn leave(group: &str, members: &[(&str, Option<&str>)]) -> Json {
    let member = |(member, instance): &(&str, Option<&str>)| json!({"MemberId": member, "GroupInstanceId": instance, "Reason": "enough"});
    json!({
        "GroupId": group,
        "MemberId": members.first().map_or("", |(member, _)| member),
        "Members": members.iter().map(member).collect::<Vec<_>>(),
    })
}

/// Offset 3 of partition 0 and offset 4 of partition 1.
pub(crate) fn commit(group: &str, member: &str, generation: i32, topic: &str) -> Json {
    let partition = |index: i32| {
        json!({
            "PartitionIndex": index, "CommittedOffset": 3 + index, "CommittedLeaderEpoch": 0,
            "CommitTimestamp": -1, "CommittedMetadata": "note",
        })
    };
    json!({
        "GroupId": group, "GenerationIdOrMemberEpoch": generation, "MemberId": member, "GroupInstanceId": null,
        "RetentionTimeMs": -1,
        "Topics": [{"Name": topic, "Partitions": [partition(0), partition(1)]}],
    })
}

/// Partitions 0 and 1 of each topic.
pub(crate) fn offset_delete(group: &str, topics: &[String]) -> Json {
    let topic = |name: &String| json!({"Name": name, "Partitions": [{"PartitionIndex": 0}, {"PartitionIndex": 1}]});
    json!({"GroupId": group, "Topics": topics.iter().map(topic).collect::<Vec<_>>()})
}
