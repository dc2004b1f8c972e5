//! Finds the broker that coordinates a group or a transactional id, and calls it. Source: `CoordinatorStrategy`.

use std::time::{Duration, Instant};

use common::{clock, error_code::ErrorCode};
use kafka_protocol::{
    messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse},
    protocol::StrBytes,
};
use tokio::time::timeout_at;

use crate::{
    admin::{Admin, Attempt, Target, may_retry, outcome, timed_out},
    cluster::Cluster,
    connection::Connection,
    error::{ClientError, ErrorKind},
    metadata::Node,
};

/// What a coordinator is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorKind {
    /// A group's offsets and members.
    Group,
    /// A transactional id.
    Transaction,
}

/// From this version on several keys are asked for at once. Source: KIP-699.
const BATCHED_FROM: i16 = 4;

impl CoordinatorKind {
    fn on_wire(self) -> i8 {
        match self {
            CoordinatorKind::Group => 0,
            CoordinatorKind::Transaction => 1,
        }
    }
}

/// Asks one broker who coordinates the key.
pub(crate) async fn find(
    connection: &Connection,
    kind: CoordinatorKind,
    key: &str,
    limit: Duration,
) -> Result<Node, ClientError> {
    let version = connection.version_of::<FindCoordinatorRequest>(i16::MAX)?;
    let text = StrBytes::from_string(key.to_owned());
    let request = if version >= BATCHED_FROM {
        FindCoordinatorRequest::default().with_coordinator_keys(vec![text])
    } else {
        FindCoordinatorRequest::default().with_key(text)
    };
    // Before version 1 there were groups alone, and no type.
    let request = if version >= 1 { request.with_key_type(kind.on_wire()) } else { request };
    coordinator_of(&connection.call_as(request, version, limit).await?, version)
}

fn coordinator_of(response: &FindCoordinatorResponse, version: i16) -> Result<Node, ClientError> {
    let node = |id: BrokerId, host: &StrBytes, port: i32| Node {
        id: id.0,
        host: host.to_string(),
        port: u16::try_from(port).unwrap_or(0),
        rack: None,
    };
    if version < BATCHED_FROM {
        outcome(response.error_code, response.error_message.as_ref())?;
        return Ok(node(response.node_id, &response.host, response.port));
    }
    let missing = || ClientError::from_code(ErrorCode::CoordinatorNotAvailable, None);
    let found = response.coordinators.first().ok_or_else(missing)?;
    outcome(found.error_code, found.error_message.as_ref())?;
    Ok(node(found.node_id, &found.host, found.port))
}

/// The coordinator as a node of its own: a request that waits there (JoinGroup) must not hold up fetches.
/// Source: `AbstractCoordinator.FindCoordinatorResponseHandler`.
pub(crate) fn on_own_connection(coordinator: &Node) -> Node {
    Node { id: i32::MAX - coordinator.id, ..coordinator.clone() }
}

/// Finds the coordinator through any broker, once.
pub(crate) async fn look_up(
    cluster: &Cluster,
    kind: CoordinatorKind,
    key: &str,
    deadline: Instant,
) -> Result<Node, ClientError> {
    let over = || ClientError::new(ErrorKind::Timeout, "Timed out waiting for a coordinator");
    let connection = cluster.connect_any(deadline).await.ok_or_else(over)?;
    let left = deadline.saturating_duration_since(clock::now());
    find(&connection, kind, key, cluster.config().request_timeout.min(left)).await
}

impl Admin {
    /// The broker that coordinates the key.
    pub async fn find_coordinator(
        &self,
        kind: CoordinatorKind,
        key: &str,
    ) -> Result<Node, ClientError> {
        self.run("findCoordinator", Target::Any, async |attempt| {
            find(&attempt.connection, kind, key, attempt.limit).await
        })
        .await
    }

    /// Runs attempts at the coordinator of the key, which is looked up anew for each, until one succeeds, fails
    /// for good, or the time is over.
    pub(crate) async fn at_coordinator<T>(
        &self,
        name: &str,
        kind: CoordinatorKind,
        key: &str,
        mut attempt: impl AsyncFnMut(Attempt, &Node) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let cluster = self.cluster();
        let deadline = clock::now() + cluster.config().default_api_timeout;
        let mut tries = 0;
        loop {
            let failure = match self.reach_coordinator(kind, key, deadline).await {
                Ok((connection, node)) => {
                    let left = deadline.saturating_duration_since(clock::now());
                    let limit = cluster.config().request_timeout.min(left);
                    match attempt(Attempt { connection, limit }, &node).await {
                        Ok(value) => return Ok(value),
                        Err(error) => error,
                    }
                }
                Err(error) if error.kind == ErrorKind::Timeout && tries == 0 => {
                    let text = "Timed out waiting for a node assignment. Call: findCoordinator";
                    return Err(ClientError::new(ErrorKind::Timeout, text));
                }
                Err(error) if error.kind == ErrorKind::Timeout => {
                    return Err(timed_out(name, tries));
                }
                Err(error) => error,
            };
            if !may_retry(&failure) {
                return Err(failure);
            }
            tries += 1;
            if clock::now() >= deadline {
                return Err(timed_out(name, tries));
            }
            tracing::debug!(name, key, tries, error = %failure, "call failed, trying again");
            cluster.back_off(tries - 1).await;
        }
    }

    async fn reach_coordinator(
        &self,
        kind: CoordinatorKind,
        key: &str,
        deadline: Instant,
    ) -> Result<(Connection, Node), ClientError> {
        let node = look_up(self.cluster(), kind, key, deadline).await?;
        let connecting = timeout_at(deadline.into(), self.cluster().connect(&node));
        let over = |_| ClientError::new(ErrorKind::Timeout, "Timed out connecting");
        Ok((connecting.await.map_err(over)??, node))
    }
}

#[cfg(test)]
mod tests {
    use common::error_code::ErrorCode;
    use kafka_protocol::messages::{
        BrokerId, FindCoordinatorResponse, find_coordinator_response::Coordinator,
    };

    use super::{coordinator_of, on_own_connection};

    #[test]
    fn the_answer_is_read_in_both_shapes() {
        let single = FindCoordinatorResponse::default().with_node_id(BrokerId(3)).with_port(9092);
        assert_eq!(coordinator_of(&single, 3).unwrap().id, 3);
        let coordinator = Coordinator::default().with_node_id(BrokerId(2)).with_port(9092);
        let batched = FindCoordinatorResponse::default().with_coordinators(vec![coordinator]);
        let node = coordinator_of(&batched, 4).unwrap();
        assert_eq!((node.id, on_own_connection(&node).id), (2, i32::MAX - 2));
        let none = FindCoordinatorResponse::default();
        let error = coordinator_of(&none, 4).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CoordinatorNotAvailable);
    }
}
