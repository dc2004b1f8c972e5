//! Actions and answers as lines of a recording.

use bytes::Bytes;
use common::error_code::ErrorCode;

use crate::{
    action::{
        Action, FetchedOffset, GroupDescription, GroupOverview, JoinReply, Note, Rebalance, Reply,
    },
    records::GroupRecord,
    subscription,
};

/// Text, or the topics of a subscription.
fn bytes(bytes: &Bytes) -> String {
    match subscription::topics(bytes) {
        Ok(topics) => format!("@{}", topics.join("+")),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn text(text: Option<&str>) -> &str {
    text.unwrap_or("null")
}

pub(super) fn action(action: &Action) -> String {
    match action {
        Action::Append { append, records, transaction, .. } => {
            let records: Vec<String> = records.iter().map(record).collect();
            let producer = transaction.map_or(String::new(), |(id, _)| format!(" of {id}"));
            format!("append {}{producer}: {}", append.0, records.join("; "))
        }
        Action::Reply(to, answer) => format!("r{} {}", to.0, reply(answer)),
        Action::Rebalance(rebalance) => self::rebalance(rebalance),
        Action::Note(note) => self::note(note),
    }
}

fn record(record: &GroupRecord) -> String {
    match record {
        GroupRecord::OffsetCommit { group, topic_partition, value } => match value {
            None => format!("{group} {topic_partition} gone"),
            Some(value) => format!("{group} {topic_partition}={}", value.offset),
        },
        GroupRecord::GroupMetadata { group, value: None } => format!("{group} gone"),
        GroupRecord::GroupMetadata { group, value: Some(value) } => {
            let members = value.members.iter().map(|member| {
                format!(" {}={}", member.member_id, String::from_utf8_lossy(&member.assignment))
            });
            format!(
                "{group} {} {} leader {}{}",
                value.generation,
                text(value.protocol.as_deref()),
                text(value.leader.as_deref()),
                members.collect::<String>()
            )
        }
    }
}

fn codes(codes: &[ErrorCode]) -> String {
    codes.iter().map(|code| format!(" {}", code.name())).collect()
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Join(reply) => join(reply),
        Reply::Sync(reply) => format!(
            "sync {} {}/{} '{}'",
            reply.error.name(),
            text(reply.protocol_type.as_deref()),
            text(reply.protocol_name.as_deref()),
            bytes(&reply.assignment)
        ),
        Reply::Heartbeat(error) => format!("heartbeat {}", error.name()),
        Reply::Leave(reply) => {
            let members = reply.members.iter().map(|member| {
                let instance = member.group_instance_id.as_deref().unwrap_or_default();
                format!(" {}/{instance} {}", member.member_id, member.error.name())
            });
            format!("leave {}{}", reply.error.name(), members.collect::<String>())
        }
        Reply::CommitOffsets(errors) => format!("commit{}", codes(errors)),
        Reply::DeleteOffsets(reply) => {
            format!("delete-offsets {}:{}", reply.error.name(), codes(&reply.partitions))
        }
        Reply::DeleteGroup(error) => format!("delete {}", error.name()),
    }
}

fn join(reply: &JoinReply) -> String {
    let members = reply.members.iter().map(|member| {
        let instance = member.group_instance_id.as_ref();
        let instance = instance.map_or(String::new(), |instance| format!("/{instance}"));
        format!(" {}{instance}:{}", member.member_id, bytes(&member.metadata))
    });
    if reply.generation < 0 {
        return format!("join {} '{}'", reply.error.name(), reply.member_id);
    }
    format!(
        "join {} '{}' {} {}/{} leader '{}'{}{}",
        reply.error.name(),
        reply.member_id,
        reply.generation,
        text(reply.protocol_type.as_deref()),
        text(reply.protocol_name.as_deref()),
        reply.leader,
        if reply.skip_assignment { " skip" } else { "" },
        members.collect::<String>()
    )
}

fn rebalance(rebalance: &Rebalance) -> String {
    let missing: String =
        rebalance.did_not_join.iter().map(|member| format!(" without {member}")).collect();
    format!(
        "rebalance {} {} {:?} ({:?} '{}' {}): joining {}s, last {}{missing}; assigning {}s by {}; {} members",
        rebalance.group,
        rebalance.generation,
        rebalance.outcome,
        rebalance.cause.reason,
        rebalance.cause.member_id,
        rebalance.cause.client_reason.as_deref().unwrap_or("-"),
        rebalance.joining.as_secs_f64(),
        text(rebalance.last_to_join.as_deref()),
        rebalance.assigning.as_secs_f64(),
        text(rebalance.leader.as_deref()),
        rebalance.members,
    )
}

fn note(note: &Note) -> String {
    let text = format!("{note:?}");
    format!(
        "note {}",
        text.replace(['{', '}', '"', ','], "").split_whitespace().collect::<Vec<_>>().join(" ")
    )
}

pub(super) fn description(description: &GroupDescription) -> String {
    let members = description.members.iter().map(|member| {
        format!(
            " {}/{} {} {} {}={}",
            member.member_id,
            member.group_instance_id.as_deref().unwrap_or_default(),
            member.client_id,
            member.client_host,
            bytes(&member.metadata),
            bytes(&member.assignment)
        )
    });
    format!(
        "describe {} '{}'/'{}'{}",
        description.state.name(),
        description.protocol_type,
        description.protocol,
        members.collect::<String>()
    )
}

pub(super) fn overviews(overviews: &[GroupOverview]) -> String {
    let groups = overviews.iter().map(|overview| {
        format!(" {} '{}' {};", overview.group, overview.protocol_type, overview.state.name())
    });
    format!("list{}", groups.collect::<String>())
}

pub(super) fn offsets(offsets: &[FetchedOffset]) -> String {
    let offsets = offsets.iter().map(|offset| {
        let error = match offset.error {
            ErrorCode::None => String::new(),
            error => format!(" {}", error.name()),
        };
        let metadata = match offset.metadata.as_str() {
            "" => String::new(),
            metadata => format!(":{metadata}"),
        };
        format!(" {}={}{metadata}{error}", offset.topic_partition, offset.offset)
    });
    format!("fetch{}", offsets.collect::<String>())
}
