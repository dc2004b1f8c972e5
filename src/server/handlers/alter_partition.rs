//! AlterPartition (API key 56): a leader tells the controller which replicas are in sync.
//! Source: `KafkaController.tryProcessAlterPartition`, KIP-497, KIP-704, KIP-841, KIP-903.

use std::sync::Arc;

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch},
    topic::Uuid,
};
use controller::alter_partition::{AlterPartition, AlteredPartition, NewIsr, TopicKey};
use kafka_protocol::messages::{
    self, AlterPartitionRequest, AlterPartitionResponse, TopicName,
    alter_partition_request::PartitionData, alter_partition_response,
};

use crate::{
    broker::Broker,
    handlers::{text, wire_uuid},
    request_context::RequestContext,
};

/// First version that names topics by id, and that knows INELIGIBLE_REPLICA. Leaders that speak an older one take a refusal
/// of a member for the end of all proposals (Kafka 3.0), so they are not refused, as a controller of their time would not.
const TOPIC_IDS: i16 = 2;
/// First version that says which registration of each member the leader has seen.
const MEMBER_EPOCHS: i16 = 3;
/// The wire's number for a leader that makes up for an unclean election.
const RECOVERING: i8 = 1;

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: AlterPartitionRequest,
) -> AlterPartitionResponse {
    let version = ctx.api_version;
    let partitions = request.topics.iter().flat_map(|topic| {
        let key = match version {
            TOPIC_IDS.. => TopicKey::Id(Uuid(topic.topic_id.as_u128())),
            _ => TopicKey::Name(Arc::from(&**topic.topic_name)),
        };
        topic.partitions.iter().map(move |partition| new_isr(version, key.clone(), partition))
    });
    // Kafka fails on a number that it does not know, once it knows the broker; nothing is altered then.
    let mut recoveries = request.topics.iter().flat_map(|topic| &topic.partitions);
    let fails = recoveries.any(|one| !(0..=RECOVERING).contains(&one.leader_recovery_state));
    let request = AlterPartition {
        broker: BrokerId(request.broker_id.0),
        broker_epoch: BrokerEpoch(request.broker_epoch),
        partitions: partitions.filter(|_| !fails).collect(),
        refuses_ineligible: version >= TOPIC_IDS,
    };
    match broker.controller.alter_partition(request).await {
        Ok(_) if fails => {
            let error = ErrorCode::UnknownServerError;
            AlterPartitionResponse::default().with_error_code(error.code())
        }
        Ok(altered) => AlterPartitionResponse::default().with_topics(topics(altered)),
        Err(error) => AlterPartitionResponse::default().with_error_code(error.code()),
    }
}

fn new_isr(version: i16, topic: TopicKey, partition: &PartitionData) -> NewIsr {
    let isr = match version {
        MEMBER_EPOCHS.. => {
            let members = partition.new_isr_with_epochs.iter();
            let member = |one: &messages::alter_partition_request::BrokerState| {
                (BrokerId(one.broker_id.0), BrokerEpoch(one.broker_epoch))
            };
            members.map(member).collect()
        }
        _ => {
            let members = partition.new_isr.iter();
            members.map(|id| (BrokerId(id.0), BrokerEpoch::NONE)).collect()
        }
    };
    NewIsr {
        topic,
        index: partition.partition_index,
        leader_epoch: LeaderEpoch(partition.leader_epoch),
        partition_epoch: PartitionEpoch(partition.partition_epoch),
        isr,
        recovering: partition.leader_recovery_state == RECOVERING,
    }
}

/// The answers by topic; the partitions of a topic follow each other.
fn topics(mut altered: Vec<AlteredPartition>) -> Vec<alter_partition_response::TopicData> {
    altered.sort_by(|a, b| (&a.topic, a.index).cmp(&(&b.topic, b.index)));
    let of_topic = |of: &[AlteredPartition]| {
        let topic = alter_partition_response::TopicData::default()
            .with_partitions(of.iter().map(answer).collect());
        match &of[0].topic {
            TopicKey::Name(name) => topic.with_topic_name(TopicName(text(name))),
            TopicKey::Id(id) => topic.with_topic_id(wire_uuid(*id)),
        }
    };
    altered.chunk_by(|a, b| a.topic == b.topic).map(of_topic).collect()
}

fn answer(altered: &AlteredPartition) -> alter_partition_response::PartitionData {
    let answer =
        alter_partition_response::PartitionData::default().with_partition_index(altered.index);
    match &altered.result {
        Ok(leadership) => answer
            .with_leader_id(messages::BrokerId(leadership.leader.0))
            .with_leader_epoch(leadership.leader_epoch.0)
            .with_isr(leadership.isr.iter().map(|id| messages::BrokerId(id.0)).collect())
            .with_leader_recovery_state(if leadership.recovering { RECOVERING } else { 0 })
            .with_partition_epoch(leadership.partition_epoch.0),
        Err(error) => answer.with_error_code(error.code()),
    }
}
