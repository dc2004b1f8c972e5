//! ControlledShutdown (API key 7): a broker is about to stop, and asks the controller to move its leaderships.
//! Source: `KafkaController.doControlledShutdown`, KIP-380.

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId},
};
use kafka_protocol::messages::{
    ControlledShutdownRequest, ControlledShutdownResponse, TopicName,
    controlled_shutdown_response::RemainingPartition,
};

use crate::{broker::Broker, handlers::text, request_context::RequestContext};

/// First version that says which registration of the broker it is.
const BROKER_EPOCH: i16 = 2;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: ControlledShutdownRequest,
) -> ControlledShutdownResponse {
    let broker_epoch = match ctx.api_version {
        BROKER_EPOCH.. => BrokerEpoch(request.broker_epoch),
        _ => BrokerEpoch::NONE,
    };
    let stopping = BrokerId(request.broker_id.0);
    match broker.controller.controlled_shutdown(stopping, broker_epoch).await {
        Ok(led) => {
            let remaining = led.into_iter().map(|partition| {
                RemainingPartition::default()
                    .with_topic_name(TopicName(text(&partition.topic)))
                    .with_partition_index(partition.partition)
            });
            ControlledShutdownResponse::default()
                .with_error_code(ErrorCode::None.code())
                .with_remaining_partitions(remaining.collect())
        }
        Err(error) => ControlledShutdownResponse::default().with_error_code(error.code()),
    }
}
