//! LeaveGroup (API key 13): members go. Source: `GroupCoordinator.handleLeaveGroup`, `LeaveGroupResponse`, KIP-345.

use common::error_code::ErrorCode;
use group_coordinator::{
    action::{LeaveReply, Reply},
    event::{Event, LeavingMember},
};
use kafka_protocol::messages::{
    LeaveGroupRequest, LeaveGroupResponse, leave_group_response::MemberResponse,
};

use crate::{
    broker::Broker,
    handlers::{optional_text, text, text_of},
    request_context::RequestContext,
};

/// First version that names several members.
const BATCHED: i16 = 3;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let group = request.group_id.to_string();
    let members = if ctx.api_version >= BATCHED {
        let named = request.members.iter().map(|member| LeavingMember {
            member_id: member.member_id.to_string(),
            group_instance_id: text_of(member.group_instance_id.as_ref()),
            reason: text_of(member.reason.as_ref()),
        });
        named.collect()
    } else {
        let member_id = request.member_id.to_string();
        vec![LeavingMember { member_id, group_instance_id: None, reason: None }]
    };
    let reply = leave(broker, group, members).await;
    let response = LeaveGroupResponse::default();
    if ctx.api_version < BATCHED {
        let of_member = reply.members.first().map_or(ErrorCode::None, |member| member.error);
        let error = if reply.error == ErrorCode::None { of_member } else { reply.error };
        return response.with_error_code(error.code());
    }
    let members = reply.members.iter().map(|member| {
        MemberResponse::default()
            .with_member_id(text(&member.member_id))
            .with_group_instance_id(optional_text(member.group_instance_id.as_deref()))
            .with_error_code(member.error.code())
    });
    response.with_error_code(reply.error.code()).with_members(members.collect())
}

async fn leave(broker: &Broker, group: String, members: Vec<LeavingMember>) -> LeaveReply {
    let refused = |error| LeaveReply { error, members: Vec::new() };
    if group.is_empty() {
        return refused(ErrorCode::InvalidGroupId);
    }
    let name = group.clone();
    match broker.groups.ask(&name, |reply| Event::Leave { group, members, reply }).await {
        Ok(Reply::Leave(reply)) => reply,
        Ok(_) => refused(ErrorCode::UnknownServerError),
        Err(error) => refused(error),
    }
}
