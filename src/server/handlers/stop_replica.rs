//! StopReplica (API key 5): the controller takes partitions away from this broker.
//! Source: `KafkaApis.handleStopReplicaRequest`.

use ::controller::request::Body;
use common::ids::{BrokerEpoch, BrokerId, ControllerEpoch};
use kafka_protocol::messages::{StopReplicaRequest, StopReplicaResponse};

use crate::{broker::Broker, control_wire, request_context::RequestContext};

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: StopReplicaRequest,
) -> StopReplicaResponse {
    let controller = (BrokerId(request.controller_id.0), ControllerEpoch(request.controller_epoch));
    let broker_epoch = BrokerEpoch(request.broker_epoch);
    let told = control_wire::read_stop_replica(request, ctx.api_version);
    let answer = broker.obey(controller, broker_epoch, Body::StopReplica(told)).await;
    control_wire::stop_replica_response(answer.error, &answer.partitions)
}
