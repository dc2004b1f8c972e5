//! SyncGroup (API key 14): the leader hands in the assignment, and every member gets its part.
//! Source: `KafkaApis.handleSyncGroupRequest`, `GroupCoordinator.handleSyncGroup`.

use bytes::Bytes;
use common::error_code::ErrorCode;
use group_coordinator::{
    action::{Reply, SyncReply},
    event::{Event, GroupMember, SyncRequest},
};
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use crate::{
    broker::Broker,
    handlers::{optional_text, text_of},
    request_context::RequestContext,
};

/// First version in which members say what protocol they believe in.
const PROTOCOL_TYPES: i16 = 5;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let version = ctx.api_version;
    let is_told = request.protocol_type.is_some() && request.protocol_name.is_some();
    if version >= PROTOCOL_TYPES && !is_told {
        return answer(version, refused(ErrorCode::InconsistentGroupProtocol));
    }
    if request.group_id.is_empty() {
        return answer(version, refused(ErrorCode::InvalidGroupId));
    }
    let group = request.group_id.to_string();
    let assignments = request.assignments.into_iter();
    let sync = SyncRequest {
        member: GroupMember {
            group: group.clone(),
            generation: request.generation_id,
            member_id: request.member_id.to_string(),
            group_instance_id: text_of(request.group_instance_id.as_ref()),
        },
        protocol_type: text_of(request.protocol_type.as_ref()),
        protocol_name: text_of(request.protocol_name.as_ref()),
        assignments: assignments
            .map(|assignment| (assignment.member_id.to_string(), assignment.assignment))
            .collect(),
    };
    let asked = broker.groups.ask(&group, |reply| Event::Sync { request: sync, reply }).await;
    let reply = match asked {
        Ok(Reply::Sync(reply)) => reply,
        Ok(_) => refused(ErrorCode::UnknownServerError),
        // The member joins anew, which waits for the load.
        Err(ErrorCode::CoordinatorLoadInProgress) => refused(ErrorCode::RebalanceInProgress),
        Err(error) => refused(error),
    };
    answer(version, reply)
}

fn refused(error: ErrorCode) -> SyncReply {
    SyncReply { error, protocol_type: None, protocol_name: None, assignment: Bytes::new() }
}

fn answer(version: i16, reply: SyncReply) -> SyncGroupResponse {
    let response = SyncGroupResponse::default()
        .with_error_code(reply.error.code())
        .with_assignment(reply.assignment);
    if version < PROTOCOL_TYPES {
        return response;
    }
    response
        .with_protocol_type(optional_text(reply.protocol_type.as_deref()))
        .with_protocol_name(optional_text(reply.protocol_name.as_deref()))
}
