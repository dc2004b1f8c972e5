//! FindCoordinator (API key 10): the broker that leads the partition which a group or a transactional id belongs to.
//! Source: `KafkaApis.getCoordinator`.

use common::{
    error_code::ErrorCode,
    ids::BrokerId,
    topic::{GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC},
};
use kafka_protocol::messages::{
    self, FindCoordinatorRequest, FindCoordinatorResponse, find_coordinator_response::Coordinator,
};

use crate::{broker::Broker, handlers::text, request_context::RequestContext};

/// First version that asks for several keys at once. Source: KIP-699.
const BATCHED: i16 = 4;

/// What a key names. Source: `FindCoordinatorRequest.CoordinatorType`.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
/// Share groups, which this mode does not have.
const SHARE: i8 = 2;
/// First version that may ask for the coordinator of a share group.
const SHARES: i16 = 6;

/// Where a coordinator is.
struct Node {
    id: BrokerId,
    host: String,
    port: i32,
}

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let response = FindCoordinatorResponse::default();
    let key_type = if ctx.api_version == 0 { GROUP } else { request.key_type };
    if ctx.api_version < BATCHED {
        let found = find(broker, ctx, key_type, &request.key).await;
        let error = found.as_ref().err().copied().unwrap_or(ErrorCode::None);
        let node = found.unwrap_or_else(|_| nobody());
        let response = response
            .with_error_code(error.code())
            .with_node_id(messages::BrokerId(node.id.0))
            .with_host(text(&node.host))
            .with_port(node.port);
        if ctx.api_version == 0 {
            return response;
        }
        // Java's text for no error is the name of the code.
        let message = if error == ErrorCode::None { error.name() } else { error.message() };
        return response.with_error_message(Some(message.into()));
    }
    // Only a request that fails as a whole gets words.
    let is_type = matches!(key_type, GROUP | TRANSACTION | SHARE);
    let message = if is_type { "" } else { ErrorCode::InvalidRequest.message() };
    let mut answers = Vec::with_capacity(request.coordinator_keys.len());
    for key in request.coordinator_keys {
        let found = find(broker, ctx, key_type, &key).await;
        let error = found.as_ref().err().copied().unwrap_or(ErrorCode::None);
        let node = found.unwrap_or_else(|_| nobody());
        answers.push(
            Coordinator::default()
                .with_key(key)
                .with_error_code(error.code())
                .with_error_message(Some(message.into()))
                .with_node_id(messages::BrokerId(node.id.0))
                .with_host(text(&node.host))
                .with_port(node.port),
        );
    }
    response.with_coordinators(answers)
}

fn nobody() -> Node {
    Node { id: BrokerId::NONE, host: String::new(), port: -1 }
}

async fn find(
    broker: &Broker,
    ctx: &RequestContext,
    key_type: i8,
    key: &str,
) -> Result<Node, ErrorCode> {
    let (topic, partition) = match key_type {
        GROUP => (GROUP_METADATA_TOPIC, broker.groups.partition_of(key)),
        TRANSACTION => (TRANSACTION_STATE_TOPIC, broker.transactions.partition_of(key)),
        SHARE if ctx.api_version >= SHARES => return Err(ErrorCode::CoordinatorNotAvailable),
        _ => return Err(ErrorCode::InvalidRequest),
    };
    broker.wait_for_metadata().await;
    let snapshot = broker.metadata.snapshot();
    if snapshot.topic(topic).is_none() {
        // The topic is made at its first use; the client comes again.
        broker.auto_create_topic(topic).await;
        return Err(ErrorCode::CoordinatorNotAvailable);
    }
    let leader = snapshot.partition(topic, partition).map(|partition| partition.leader);
    let known = leader.and_then(|leader| snapshot.broker(leader));
    let endpoint = known.and_then(|known| known.endpoint(&ctx.connection.listener));
    match (known, endpoint) {
        (Some(known), Some(endpoint)) => {
            Ok(Node { id: known.id, host: endpoint.host.clone(), port: i32::from(endpoint.port) })
        }
        _ => Err(ErrorCode::CoordinatorNotAvailable),
    }
}
