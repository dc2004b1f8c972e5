//! LeaderAndIsr (API key 4): the controller says which partitions this broker leads and follows.
//! Source: `KafkaApis.handleLeaderAndIsrRequest`.

use std::{collections::HashMap, sync::Arc};

use ::controller::request::{Body, LeaderAndIsrTopic};
use common::{
    ids::{BrokerEpoch, BrokerId, ControllerEpoch},
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::messages::{LeaderAndIsrRequest, LeaderAndIsrResponse};

use crate::{broker::Broker, control_wire, request_context::RequestContext};

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: LeaderAndIsrRequest,
) -> LeaderAndIsrResponse {
    let controller = (BrokerId(request.controller_id.0), ControllerEpoch(request.controller_epoch));
    let broker_epoch = BrokerEpoch(request.broker_epoch);
    let told = control_wire::read_leader_and_isr(request, ctx.api_version);
    let ids: HashMap<Arc<str>, Option<Uuid>> =
        told.topics.iter().map(|topic| (topic.name.clone(), topic.id)).collect();
    let named = told.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|one| TopicPartition::new(topic.name.clone(), one.index))
    });
    let named: Vec<TopicPartition> = named.collect();
    let is_empty = |topic: &&LeaderAndIsrTopic| topic.partitions.is_empty();
    let empty: Vec<Option<Uuid>> =
        told.topics.iter().filter(is_empty).map(|topic| topic.id).collect();
    let answer = broker.obey(controller, broker_epoch, Body::LeaderAndIsr(told)).await;
    let partitions = match answer.error.is_none() {
        true => answer.partitions,
        // A refusal is told for each partition as well.
        false => named.into_iter().map(|id| (id, answer.error)).collect(),
    };
    let version = ctx.api_version;
    let mut response =
        control_wire::leader_and_isr_response(answer.error, &partitions, &ids, version);
    if !answer.error.is_none() {
        control_wire::name_empty_topics(&mut response, &empty, version);
    }
    response
}
