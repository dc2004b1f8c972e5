//! AddOffsetsToTxn (API key 25): makes the commits of a group part of a producer's transaction.
//! Source: `KafkaApis.handleAddOffsetsToTxnRequest`.

use common::{
    ids::{ProducerEpoch, ProducerId},
    topic::{GROUP_METADATA_TOPIC, TopicPartition},
};
use kafka_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

use crate::{broker::Broker, errors, request_context::RequestContext};

/// First version that knows PRODUCER_FENCED.
const FENCED: i16 = 2;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse {
    let producer = (ProducerId(request.producer_id.0), ProducerEpoch(request.producer_epoch));
    let partition = broker.groups.partition_of(&request.group_id);
    let partitions = vec![TopicPartition::new(GROUP_METADATA_TOPIC, partition)];
    let transactions = &broker.transactions;
    let error = transactions.add_partitions(&request.transactional_id, producer, partitions).await;
    let error = match ctx.api_version {
        FENCED.. => error,
        _ => errors::without_producer_fenced(error),
    };
    AddOffsetsToTxnResponse::default().with_error_code(error.code())
}
