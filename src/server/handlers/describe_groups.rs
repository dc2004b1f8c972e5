//! DescribeGroups (API key 15): states and members of groups. Source: `GroupCoordinator.handleDescribeGroup`.

use common::error_code::ErrorCode;
use kafka_protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, GroupId,
    describe_groups_response::{DescribedGroup, DescribedGroupMember},
};

use crate::{
    broker::Broker,
    handlers::{GROUP_OPERATIONS, OPERATIONS_UNSET, optional_text, repeats::Repeats, text},
    request_context::RequestContext,
};

/// First version that may tell what the asker may do.
const OPERATIONS: i16 = 3;
/// First version that shows static members.
const STATIC_MEMBERS: i16 = 4;

pub(crate) fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let operations = request.include_authorized_operations;
    let mut repeats = Repeats::new();
    let named = request.groups.into_iter().filter(|group| repeats.admit(group.clone()));
    let groups = named.map(|group| describe(broker, ctx, group, operations));
    DescribeGroupsResponse::default().with_groups(groups.collect())
}

fn describe(
    broker: &Broker,
    ctx: &RequestContext,
    group: GroupId,
    operations: bool,
) -> DescribedGroup {
    let looked = broker.groups.look(&group, |coordinator| coordinator.describe(&group));
    let answer = DescribedGroup::default().with_authorized_operations(OPERATIONS_UNSET);
    let described = match looked {
        Ok(described) => described,
        Err(error) => return answer.with_group_id(group).with_error_code(error.code()),
    };
    let members = described.members.into_iter().map(|member| {
        let answer = DescribedGroupMember::default()
            .with_member_id(text(&member.member_id))
            .with_client_id(text(&member.client_id))
            .with_client_host(text(&member.client_host))
            .with_member_metadata(member.metadata)
            .with_member_assignment(member.assignment);
        if ctx.api_version >= STATIC_MEMBERS {
            answer.with_group_instance_id(optional_text(member.group_instance_id.as_deref()))
        } else {
            answer
        }
    });
    let answer = answer
        .with_error_code(ErrorCode::None.code())
        .with_group_id(group)
        .with_group_state(text(described.state.name()))
        .with_protocol_type(text(&described.protocol_type))
        .with_protocol_data(text(&described.protocol))
        .with_members(members.collect());
    if operations && ctx.api_version >= OPERATIONS {
        answer.with_authorized_operations(GROUP_OPERATIONS)
    } else {
        answer
    }
}
