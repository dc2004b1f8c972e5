//! UpdateMetadata (API key 6): the controller says who lives, and who leads what.
//! Source: `KafkaApis.handleUpdateMetadataRequest`.

use std::sync::Arc;

use ::controller::request::Body;
use common::ids::{BrokerEpoch, BrokerId, ControllerEpoch};
use kafka_protocol::messages::{UpdateMetadataRequest, UpdateMetadataResponse};

use crate::{broker::Broker, control_wire, request_context::RequestContext};

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: UpdateMetadataRequest,
) -> UpdateMetadataResponse {
    let controller = (BrokerId(request.controller_id.0), ControllerEpoch(request.controller_epoch));
    let broker_epoch = BrokerEpoch(request.broker_epoch);
    let mut update = control_wire::read_update_metadata(request, ctx.api_version);
    if ctx.api_version < control_wire::UPDATE_METADATA_BY_TOPIC {
        // There partitions are named alone: nothing is said of topics' ids.
        let known = broker.metadata.load();
        for topic in &mut update.topics {
            topic.id = known.topic(&topic.name).and_then(|known| known.id);
        }
    }
    let body = Body::UpdateMetadata(Arc::new(update));
    let answer = broker.obey(controller, broker_epoch, body).await;
    UpdateMetadataResponse::default().with_error_code(answer.error as i16)
}
