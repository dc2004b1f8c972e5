//! ListGroups (API key 16): the groups that this broker coordinates. Source: `GroupCoordinator.handleListGroups`, KIP-518, KIP-848.

use kafka_protocol::messages::{
    GroupId, ListGroupsRequest, ListGroupsResponse, list_groups_response::ListedGroup,
};

use crate::{broker::Broker, handlers::text, request_context::RequestContext};

/// First version that shows states, and filters by them.
const STATES: i16 = 4;
/// First version that shows types, and filters by them.
const TYPES: i16 = 5;
/// The one type there is in this mode.
const CLASSIC: &str = "classic";

pub(crate) fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let states: Vec<String> = request.states_filter.iter().map(ToString::to_string).collect();
    let types = &request.types_filter;
    let has_type =
        types.is_empty() || types.iter().any(|wanted| wanted.eq_ignore_ascii_case(CLASSIC));
    let (error, groups) = broker.groups.look_at_all(|coordinator| coordinator.list(&states));
    let answers = groups.into_iter().filter(|_| has_type).map(|group| {
        let mut answer = ListedGroup::default()
            .with_group_id(GroupId(text(&group.group)))
            .with_protocol_type(text(&group.protocol_type));
        if ctx.api_version >= STATES {
            answer.group_state = text(group.state.name());
        }
        if ctx.api_version >= TYPES {
            answer.group_type = text(CLASSIC);
        }
        answer
    });
    ListGroupsResponse::default().with_groups(answers.collect()).with_error_code(error.code())
}
