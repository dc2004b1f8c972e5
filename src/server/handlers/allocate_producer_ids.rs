//! AllocateProducerIds (API key 67): a broker takes a block of producer ids from the controller.
//! Source: `KafkaController.processAllocateProducerIds`, KIP-730.

use common::ids::{BrokerEpoch, BrokerId};
use kafka_protocol::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, ProducerId,
};

use crate::broker::Broker;

pub(crate) async fn handle(
    broker: &Broker,
    request: AllocateProducerIdsRequest,
) -> AllocateProducerIdsResponse {
    let asking = BrokerId(request.broker_id.0);
    let broker_epoch = BrokerEpoch(request.broker_epoch);
    match broker.controller.allocate_producer_ids(asking, broker_epoch).await {
        Ok(block) => AllocateProducerIdsResponse::default()
            .with_producer_id_start(ProducerId(block.start))
            .with_producer_id_len(i32::try_from(block.end - block.start).unwrap_or(i32::MAX)),
        Err(error) => AllocateProducerIdsResponse::default().with_error_code(error.code()),
    }
}
