//! DeleteGroups (API key 42): forgets groups without members. Source: `GroupCoordinator.handleDeleteGroups`, KIP-229.

use std::collections::HashSet;

use common::error_code::ErrorCode;
use group_coordinator::{action::Reply, event::Event};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, GroupId,
    delete_groups_response::DeletableGroupResult,
};

use crate::broker::Broker;

pub(crate) async fn handle(broker: &Broker, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let mut seen = HashSet::new();
    let mut results = Vec::new();
    for group in request.groups_names {
        if seen.insert(group.clone()) {
            let error = delete(broker, &group).await;
            let result = DeletableGroupResult::default().with_group_id(group);
            results.push(result.with_error_code(error.code()));
        }
    }
    DeleteGroupsResponse::default().with_results(results)
}

async fn delete(broker: &Broker, group: &GroupId) -> ErrorCode {
    let name = group.to_string();
    match broker.groups.ask(group, |reply| Event::DeleteGroup { group: name, reply }).await {
        Ok(Reply::DeleteGroup(error)) => error,
        Ok(_) => ErrorCode::UnknownServerError,
        Err(error) => error,
    }
}
