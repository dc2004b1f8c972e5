//! JoinGroup (API key 11): a member enters its group, and waits for the others.
//! Source: `GroupCoordinatorAdapter.joinGroup`, KIP-345, KIP-394, KIP-814.

use std::time::Duration;

use common::error_code::ErrorCode;
use group_coordinator::{
    action::{JoinReply, Reply},
    event::{Event, JoinRequest},
};
use kafka_protocol::messages::{
    JoinGroupRequest, JoinGroupResponse, join_group_response::JoinGroupResponseMember,
};

use crate::{
    broker::Broker,
    handlers::{optional_text, text, text_of},
    request_context::RequestContext,
};

/// First version that has static members.
const STATIC_MEMBERS: i16 = 5;
/// First version that tells a new member its id before it is let in.
const KNOWN_MEMBERS: i16 = 4;
/// First version whose protocol name may be null, and that tells the type.
const PROTOCOL_TYPES: i16 = 7;
/// First version whose leader can be told to keep the assignment.
const SKIPS_ASSIGNMENT: i16 = 9;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let member_id = request.member_id.to_string();
    if request.group_id.is_empty() {
        return answer(ctx.api_version, refused(ErrorCode::InvalidGroupId, member_id));
    }
    let group = request.group_id.to_string();
    let group_instance_id = text_of(request.group_instance_id.as_ref());
    let rebalance_timeout_ms = if ctx.api_version == 0 {
        request.session_timeout_ms
    } else {
        request.rebalance_timeout_ms
    };
    let milliseconds = |value: i32| Duration::from_millis(u64::try_from(value).unwrap_or(0));
    let protocols = request.protocols.into_iter();
    let join = JoinRequest {
        group: group.clone(),
        member_id: member_id.clone(),
        requires_known_member_id: ctx.api_version >= KNOWN_MEMBERS && group_instance_id.is_none(),
        group_instance_id,
        client_id: ctx.client_id.to_string(),
        client_host: ctx.java_peer(),
        session_timeout: milliseconds(request.session_timeout_ms),
        rebalance_timeout: milliseconds(rebalance_timeout_ms),
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols
            .map(|protocol| (protocol.name.to_string(), protocol.metadata))
            .collect(),
        supports_skipping_assignment: ctx.api_version >= SKIPS_ASSIGNMENT,
        reason: text_of(request.reason.as_ref()),
        member_uuid: uuid::Uuid::new_v4().to_string(),
    };
    let asked = broker.groups.ask(&group, |reply| Event::Join { request: join, reply }).await;
    let reply = match asked {
        Ok(Reply::Join(reply)) => reply,
        Ok(_) => refused(ErrorCode::UnknownServerError, member_id),
        Err(error) => refused(error, member_id),
    };
    answer(ctx.api_version, reply)
}

fn refused(error: ErrorCode, member_id: String) -> JoinReply {
    JoinReply {
        error,
        generation: -1,
        protocol_type: None,
        protocol_name: None,
        leader: String::new(),
        skip_assignment: false,
        member_id,
        members: Vec::new(),
    }
}

fn answer(version: i16, reply: JoinReply) -> JoinGroupResponse {
    let members = reply.members.into_iter().map(|member| {
        let answer = JoinGroupResponseMember::default()
            .with_member_id(text(&member.member_id))
            .with_metadata(member.metadata);
        if version >= STATIC_MEMBERS {
            answer.with_group_instance_id(optional_text(member.group_instance_id.as_deref()))
        } else {
            answer
        }
    });
    let response = JoinGroupResponse::default()
        .with_error_code(reply.error.code())
        .with_generation_id(reply.generation)
        .with_leader(text(&reply.leader))
        .with_member_id(text(&reply.member_id))
        .with_members(members.collect());
    if version < PROTOCOL_TYPES {
        return response.with_protocol_name(Some(text(&reply.protocol_name.unwrap_or_default())));
    }
    // An empty name is told as null, as Kafka does.
    let name = reply.protocol_name.filter(|name| !name.is_empty());
    let response = response
        .with_protocol_type(optional_text(reply.protocol_type.as_deref()))
        .with_protocol_name(optional_text(name.as_deref()));
    if version >= SKIPS_ASSIGNMENT {
        response.with_skip_assignment(reply.skip_assignment)
    } else {
        response
    }
}
