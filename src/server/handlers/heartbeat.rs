//! Heartbeat (API key 12): keeps a member in its group. Source: `GroupCoordinator.handleHeartbeat`.

use common::error_code::ErrorCode;
use group_coordinator::{
    action::Reply,
    event::{Event, GroupMember},
};
use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use crate::{broker::Broker, handlers::text_of};

pub(crate) async fn handle(broker: &Broker, request: HeartbeatRequest) -> HeartbeatResponse {
    HeartbeatResponse::default().with_error_code(beat(broker, &request).await.code())
}

async fn beat(broker: &Broker, request: &HeartbeatRequest) -> ErrorCode {
    if request.group_id.is_empty() {
        return ErrorCode::InvalidGroupId;
    }
    let member = GroupMember {
        group: request.group_id.as_str().to_owned(),
        generation: request.generation_id,
        member_id: request.member_id.as_str().to_owned(),
        group_instance_id: text_of(request.group_instance_id.as_ref()),
    };
    let event = |reply| Event::Heartbeat { request: member, reply };
    match broker.groups.ask(&request.group_id, event).await {
        Ok(Reply::Heartbeat(error)) => error,
        Ok(_) => ErrorCode::UnknownServerError,
        // Nobody is thrown out while the coordinator loads.
        Err(ErrorCode::CoordinatorLoadInProgress) => ErrorCode::None,
        Err(error) => error,
    }
}
