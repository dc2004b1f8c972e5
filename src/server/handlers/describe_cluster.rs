//! DescribeCluster (API key 60): the brokers, the controller, the cluster's id.
//! Source: `AuthHelper.computeDescribeClusterResponse`.

use common::{error_code::ErrorCode, ids::BrokerId};
use kafka_protocol::messages::{
    self, DescribeClusterRequest, DescribeClusterResponse,
    describe_cluster_response::DescribeClusterBroker,
};

use crate::{
    broker::Broker,
    handlers::{self, CLUSTER_OPERATIONS, OPERATIONS_UNSET, text},
    request_context::RequestContext,
};

/// The endpoint type of brokers; the other one, 2, is KRaft's controllers. Source: KIP-919.
const ENDPOINT_BROKERS: i8 = 1;
const ENDPOINT_CONTROLLERS: i8 = 2;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let response = DescribeClusterResponse::default()
        .with_cluster_authorized_operations(OPERATIONS_UNSET)
        .with_controller_id(messages::BrokerId(-1));
    let refused = match request.endpoint_type {
        ENDPOINT_BROKERS => None,
        ENDPOINT_CONTROLLERS => Some((
            ErrorCode::MismatchedEndpointType,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
                .to_owned(),
        )),
        other => {
            Some((ErrorCode::UnsupportedEndpointType, format!("Unsupported endpoint type {other}")))
        }
    };
    if let Some((error, message)) = refused {
        return response.with_error_code(error.code()).with_error_message(Some(message.into()));
    }
    let snapshot = broker.metadata.snapshot();
    let reachable = handlers::reachable_brokers(&snapshot, &ctx.connection.listener);
    let brokers = reachable.map(|(broker, endpoint)| {
        DescribeClusterBroker::default()
            .with_broker_id(messages::BrokerId(broker.id.0))
            .with_host(text(&endpoint.host))
            .with_port(i32::from(endpoint.port))
            .with_rack(broker.rack.as_deref().map(text))
    });
    let brokers: Vec<DescribeClusterBroker> = brokers.collect();
    // A controller that clients cannot find among the brokers is none for them.
    let controller = snapshot.controller().unwrap_or(BrokerId::NONE).0;
    let is_named = brokers.iter().any(|broker| broker.broker_id.0 == controller);
    let response = response
        .with_brokers(brokers)
        .with_cluster_id(text(&broker.cluster_id))
        .with_controller_id(messages::BrokerId(if is_named { controller } else { -1 }));
    if request.include_cluster_authorized_operations {
        return response.with_cluster_authorized_operations(CLUSTER_OPERATIONS);
    }
    response
}
