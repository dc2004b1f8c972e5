//! What a controller tells brokers, as it stands on the wire: LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6).
//!
//! Versions: the controller sends what `inter.broker.protocol.version` says, without asking the broker; a broker reads
//! all. Source: `ControllerChannelManager`, `LeaderAndIsrRequest`, `StopReplicaRequest`, `UpdateMetadataRequest`.

use std::{collections::HashMap, sync::Arc};

use ::controller::{
    assignment::Assignment,
    request::{
        BrokerRequest, LeaderAndIsr, LeaderAndIsrPartition, LeaderAndIsrTopic, StopReplica,
        StopReplicaPartition, StopReplicaTopic,
    },
    states::Leadership,
};
use common::{
    config::ibp::MetadataVersion,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch},
    security_protocol::SecurityProtocol,
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::messages::{
    BrokerId as WireBrokerId, LeaderAndIsrRequest, LeaderAndIsrResponse, StopReplicaRequest,
    StopReplicaResponse, TopicName, UpdateMetadataRequest,
    leader_and_isr_request::{
        LeaderAndIsrLiveLeader, LeaderAndIsrPartitionState, LeaderAndIsrTopicState,
    },
    leader_and_isr_response::{LeaderAndIsrPartitionError, LeaderAndIsrTopicError},
    stop_replica_request::{StopReplicaPartitionState, StopReplicaTopicState},
    stop_replica_response::StopReplicaPartitionError,
    update_metadata_request::{
        UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataPartitionState,
        UpdateMetadataTopicState,
    },
};
use metadata::{
    broker::{Broker, Endpoint},
    snapshot::{self, TopicUpdate, Update},
};

use crate::handlers::{optional_text, text, wire_uuid};

/// From this version on partitions stand under their topic in LeaderAndIsr.
const LEADER_AND_ISR_BY_TOPIC: i16 = 2;
/// From this version on LeaderAndIsr and its answer know topic ids.
const LEADER_AND_ISR_TOPIC_IDS: i16 = 5;
/// From this version on partitions stand under their topic in UpdateMetadata.
pub(crate) const UPDATE_METADATA_BY_TOPIC: i16 = 5;
/// From this version on an endpoint in UpdateMetadata says its listener.
const UPDATE_METADATA_LISTENERS: i16 = 3;
/// From this version on each partition in StopReplica says whether it is to be deleted.
const STOP_REPLICA_BY_PARTITION: i16 = 3;
/// The leader in UpdateMetadata that says that the partition is being deleted. Source: `LeaderAndIsr.LEADER_DURING_DELETE`.
const LEADER_DURING_DELETE: BrokerId = BrokerId(-2);

/// The versions in which a controller speaks to brokers. Source: `AbstractControllerBrokerRequestBatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlVersions {
    pub(crate) leader_and_isr: i16,
    pub(crate) update_metadata: i16,
    pub(crate) stop_replica: i16,
}

impl ControlVersions {
    /// Those of `inter.broker.protocol.version`, which is 2.8 at least.
    pub(crate) fn of(version: MetadataVersion) -> ControlVersions {
        let since = |name: &str| MetadataVersion::parse(name).is_some_and(|since| version >= since);
        let kraft_flag = since("3.4-IV0");
        let topic_ids = since("2.8-IV1");
        ControlVersions {
            leader_and_isr: match () {
                () if kraft_flag => 7,
                () if since("3.2-IV0") => 6,
                () if topic_ids => 5,
                () => 4,
            },
            update_metadata: match () {
                () if kraft_flag => 8,
                () if topic_ids => 7,
                () => 6,
            },
            stop_replica: if kraft_flag { 4 } else { 3 },
        }
    }
}

fn wire_ids(ids: &[BrokerId]) -> Vec<WireBrokerId> {
    ids.iter().map(|id| WireBrokerId(id.0)).collect()
}

fn ids(wire: &[WireBrokerId]) -> Vec<BrokerId> {
    wire.iter().map(|id| BrokerId(id.0)).collect()
}

fn wire_name(name: &str) -> TopicName {
    TopicName(text(name))
}

fn wire_topic_id(id: Option<Uuid>) -> uuid::Uuid {
    wire_uuid(id.unwrap_or(Uuid::ZERO))
}

fn topic_id(wire: uuid::Uuid) -> Option<Uuid> {
    Some(Uuid(wire.as_u128())).filter(|id| *id != Uuid::ZERO)
}

/// Groups a flat list by topic; topics stay in the order of their first partition.
fn by_topic<T>(flat: impl Iterator<Item = (TopicName, T)>) -> Vec<(Arc<str>, Vec<T>)> {
    let mut topics: Vec<(Arc<str>, Vec<T>)> = Vec::new();
    let mut places: HashMap<TopicName, usize> = HashMap::new();
    for (name, partition) in flat {
        let place = *places.entry(name.clone()).or_insert_with(|| {
            topics.push((Arc::from(name.as_str()), Vec::new()));
            topics.len() - 1
        });
        topics[place].1.push(partition);
    }
    topics
}

/// LeaderAndIsr of the controller, for brokers whose inter-broker listener has this name.
pub(crate) fn leader_and_isr_request(
    head: &BrokerRequest,
    told: &LeaderAndIsr,
    version: i16,
    listener: &str,
) -> LeaderAndIsrRequest {
    let partition = |one: &LeaderAndIsrPartition| {
        let Leadership { leader, leader_epoch, isr, recovering, controller_epoch, partition_epoch } =
            &one.leadership;
        LeaderAndIsrPartitionState::default()
            .with_partition_index(one.index)
            .with_controller_epoch(controller_epoch.0)
            .with_leader(WireBrokerId(leader.0))
            .with_leader_epoch(leader_epoch.0)
            .with_isr(wire_ids(isr))
            .with_partition_epoch(partition_epoch.0)
            .with_replicas(wire_ids(&one.assignment.replicas))
            .with_adding_replicas(wire_ids(&one.assignment.adding))
            .with_removing_replicas(wire_ids(&one.assignment.removing))
            .with_is_new(one.is_new)
            .with_leader_recovery_state(if version >= 6 { i8::from(*recovering) } else { 0 })
    };
    let leaders = told.live_leaders.iter().filter_map(|broker| {
        let endpoint = broker.endpoint(listener)?;
        Some(
            LeaderAndIsrLiveLeader::default()
                .with_broker_id(WireBrokerId(broker.id.0))
                .with_host_name(text(&endpoint.host))
                .with_port(i32::from(endpoint.port)),
        )
    });
    let topics = told.topics.iter().map(|topic| {
        let known = if version >= LEADER_AND_ISR_TOPIC_IDS { topic.id } else { None };
        LeaderAndIsrTopicState::default()
            .with_topic_name(wire_name(&topic.name))
            .with_topic_id(wire_topic_id(known))
            .with_partition_states(topic.partitions.iter().map(partition).collect())
    });
    LeaderAndIsrRequest::default()
        .with_controller_id(WireBrokerId(head.controller.0))
        .with_controller_epoch(head.controller_epoch.0)
        .with_broker_epoch(head.broker_epoch.0)
        .with_topic_states(topics.collect())
        .with_live_leaders(leaders.collect())
}

/// What LeaderAndIsr says. The live leaders are left out: a broker knows addresses from UpdateMetadata.
pub(crate) fn read_leader_and_isr(request: LeaderAndIsrRequest, version: i16) -> LeaderAndIsr {
    let partition = |state: LeaderAndIsrPartitionState| LeaderAndIsrPartition {
        index: state.partition_index,
        leadership: Leadership {
            leader: BrokerId(state.leader.0),
            leader_epoch: LeaderEpoch(state.leader_epoch),
            isr: ids(&state.isr),
            recovering: state.leader_recovery_state == 1,
            controller_epoch: ControllerEpoch(state.controller_epoch),
            partition_epoch: PartitionEpoch(state.partition_epoch),
        },
        assignment: Assignment {
            replicas: ids(&state.replicas),
            adding: ids(&state.adding_replicas),
            removing: ids(&state.removing_replicas),
        },
        is_new: state.is_new,
    };
    let topics = if version >= LEADER_AND_ISR_BY_TOPIC {
        let topics = request.topic_states.into_iter().map(|topic| LeaderAndIsrTopic {
            name: Arc::from(topic.topic_name.as_str()),
            id: topic_id(topic.topic_id),
            partitions: topic.partition_states.into_iter().map(partition).collect(),
        });
        topics.collect()
    } else {
        let states = request.ungrouped_partition_states.into_iter();
        let flat = by_topic(states.map(|state| (state.topic_name.clone(), partition(state))));
        let topics = flat.into_iter().map(|(name, partitions)| LeaderAndIsrTopic {
            name,
            id: None,
            partitions,
        });
        topics.collect()
    };
    LeaderAndIsr { topics, live_leaders: Vec::new() }
}

/// The answer to LeaderAndIsr. `ids` names the topics of the request by their ids.
pub(crate) fn leader_and_isr_response(
    error: ErrorCode,
    partitions: &[(TopicPartition, ErrorCode)],
    ids: &HashMap<Arc<str>, Option<Uuid>>,
    version: i16,
) -> LeaderAndIsrResponse {
    let response = LeaderAndIsrResponse::default().with_error_code(error as i16);
    let of = |(id, error): &(TopicPartition, ErrorCode)| {
        LeaderAndIsrPartitionError::default()
            .with_partition_index(id.partition)
            .with_error_code(*error as i16)
    };
    if version < LEADER_AND_ISR_TOPIC_IDS {
        let flat = partitions.iter().map(|one| of(one).with_topic_name(wire_name(&one.0.topic)));
        return response.with_partition_errors(flat.collect());
    }
    let each = partitions.iter().map(|one| (wire_name(&one.0.topic), of(one)));
    let topics = by_topic(each).into_iter().map(|(name, errors)| {
        LeaderAndIsrTopicError::default()
            .with_topic_id(wire_topic_id(ids.get(&name).copied().flatten()))
            .with_partition_errors(errors)
    });
    response.with_topics(topics.collect())
}

/// A refusal names all topics of the request, also those without partitions.
pub(crate) fn name_empty_topics(
    response: &mut LeaderAndIsrResponse,
    ids: &[Option<Uuid>],
    version: i16,
) {
    if version >= LEADER_AND_ISR_TOPIC_IDS {
        let named = ids
            .iter()
            .map(|id| LeaderAndIsrTopicError::default().with_topic_id(wire_topic_id(*id)));
        response.topics.extend(named);
    }
}

/// What a broker answered to LeaderAndIsr.
pub(crate) fn read_leader_and_isr_response(
    response: LeaderAndIsrResponse,
    told: &LeaderAndIsr,
) -> (ErrorCode, Vec<(TopicPartition, ErrorCode)>) {
    let names: HashMap<uuid::Uuid, &Arc<str>> =
        told.topics.iter().map(|topic| (wire_topic_id(topic.id), &topic.name)).collect();
    let of = |name: Arc<str>, one: &LeaderAndIsrPartitionError| {
        let id = TopicPartition::new(name, one.partition_index);
        (id, ErrorCode::from_code(one.error_code))
    };
    let mut partitions: Vec<(TopicPartition, ErrorCode)> = response
        .partition_errors
        .iter()
        .map(|one| of(Arc::from(one.topic_name.as_str()), one))
        .collect();
    for topic in &response.topics {
        // A topic that was not asked about says nothing.
        let Some(name) = names.get(&topic.topic_id) else { continue };
        partitions.extend(topic.partition_errors.iter().map(|one| of(Arc::clone(name), one)));
    }
    (ErrorCode::from_code(response.error_code), partitions)
}

/// StopReplica of the controller, in a version from 3 on.
pub(crate) fn stop_replica_request(head: &BrokerRequest, told: &StopReplica) -> StopReplicaRequest {
    let topics = told.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|one| {
            StopReplicaPartitionState::default()
                .with_partition_index(one.index)
                .with_leader_epoch(one.leader_epoch.0)
                .with_delete_partition(one.delete)
        });
        StopReplicaTopicState::default()
            .with_topic_name(wire_name(&topic.name))
            .with_partition_states(partitions.collect())
    });
    StopReplicaRequest::default()
        .with_controller_id(WireBrokerId(head.controller.0))
        .with_controller_epoch(head.controller_epoch.0)
        .with_broker_epoch(head.broker_epoch.0)
        .with_topic_states(topics.collect())
}

/// What StopReplica says. Old versions delete all or none, and know no epochs.
pub(crate) fn read_stop_replica(request: StopReplicaRequest, version: i16) -> StopReplica {
    let delete = request.delete_partitions;
    let old = |index: i32| StopReplicaPartition { index, leader_epoch: LeaderEpoch::NONE, delete };
    let topics = if version >= STOP_REPLICA_BY_PARTITION {
        let topics = request.topic_states.into_iter().map(|topic| StopReplicaTopic {
            name: Arc::from(topic.topic_name.as_str()),
            partitions: topic
                .partition_states
                .into_iter()
                .map(|one| StopReplicaPartition {
                    index: one.partition_index,
                    leader_epoch: LeaderEpoch(one.leader_epoch),
                    delete: one.delete_partition,
                })
                .collect(),
        });
        topics.collect()
    } else if version >= 1 {
        let topics = request.topics.into_iter().map(|topic| StopReplicaTopic {
            name: Arc::from(topic.name.as_str()),
            partitions: topic.partition_indexes.into_iter().map(old).collect(),
        });
        topics.collect()
    } else {
        let flat = request.ungrouped_partitions.into_iter();
        let grouped = by_topic(flat.map(|one| (one.topic_name, old(one.partition_index))));
        grouped
            .into_iter()
            .map(|(name, partitions)| StopReplicaTopic { name, partitions })
            .collect()
    };
    StopReplica { topics }
}

/// The answer to StopReplica.
pub(crate) fn stop_replica_response(
    error: ErrorCode,
    partitions: &[(TopicPartition, ErrorCode)],
) -> StopReplicaResponse {
    let errors = partitions.iter().map(|(id, error)| {
        StopReplicaPartitionError::default()
            .with_topic_name(wire_name(&id.topic))
            .with_partition_index(id.partition)
            .with_error_code(*error as i16)
    });
    StopReplicaResponse::default()
        .with_error_code(error as i16)
        .with_partition_errors(errors.collect())
}

/// What a broker answered to StopReplica.
pub(crate) fn read_stop_replica_response(
    response: &StopReplicaResponse,
) -> (ErrorCode, Vec<(TopicPartition, ErrorCode)>) {
    let partitions = response.partition_errors.iter().map(|one| {
        let id = TopicPartition::new(one.topic_name.as_str(), one.partition_index);
        (id, ErrorCode::from_code(one.error_code))
    });
    (ErrorCode::from_code(response.error_code), partitions.collect())
}

/// UpdateMetadata of the controller, in a version from 6 on.
pub(crate) fn update_metadata_request(
    head: &BrokerRequest,
    update: &Update,
    version: i16,
) -> UpdateMetadataRequest {
    let topics = update.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter();
        let states =
            partitions.map(|(index, known)| update_partition(*index, known.as_ref(), head));
        let known = if version >= 7 { topic.id } else { None };
        UpdateMetadataTopicState::default()
            .with_topic_name(wire_name(&topic.name))
            .with_topic_id(wire_topic_id(known))
            .with_partition_states(states.collect())
    });
    UpdateMetadataRequest::default()
        .with_controller_id(WireBrokerId(head.controller.0))
        .with_controller_epoch(head.controller_epoch.0)
        .with_broker_epoch(head.broker_epoch.0)
        .with_topic_states(topics.collect())
        .with_live_brokers(update.brokers.iter().map(|broker| live_broker(broker)).collect())
}

fn update_partition(
    index: i32,
    known: Option<&snapshot::Partition>,
    head: &BrokerRequest,
) -> UpdateMetadataPartitionState {
    let state = UpdateMetadataPartitionState::default().with_partition_index(index);
    match known {
        Some(known) => state
            .with_controller_epoch(known.controller_epoch.0)
            .with_leader(WireBrokerId(known.leader.0))
            .with_leader_epoch(known.leader_epoch.0)
            .with_isr(wire_ids(&known.isr))
            .with_zk_version(known.partition_epoch.0)
            .with_replicas(wire_ids(&known.replicas))
            .with_offline_replicas(wire_ids(&known.offline_replicas)),
        None => state
            .with_controller_epoch(head.controller_epoch.0)
            .with_leader(WireBrokerId(LEADER_DURING_DELETE.0)),
    }
}

fn live_broker(broker: &Broker) -> UpdateMetadataBroker {
    let endpoints = broker.endpoints.iter().map(|endpoint| {
        UpdateMetadataEndpoint::default()
            .with_host(text(&endpoint.host))
            .with_port(i32::from(endpoint.port))
            .with_listener(text(&endpoint.listener))
            .with_security_protocol(endpoint.protocol.id())
    });
    UpdateMetadataBroker::default()
        .with_id(WireBrokerId(broker.id.0))
        .with_endpoints(endpoints.collect())
        .with_rack(optional_text(broker.rack.as_deref()))
}

/// What UpdateMetadata says. An endpoint whose port or security protocol makes no sense is left out.
pub(crate) fn read_update_metadata(request: UpdateMetadataRequest, version: i16) -> Update {
    let partition = |state: &UpdateMetadataPartitionState| {
        let known = (state.leader.0 != LEADER_DURING_DELETE.0).then(|| snapshot::Partition {
            leader: BrokerId(state.leader.0),
            leader_epoch: LeaderEpoch(state.leader_epoch),
            isr: ids(&state.isr).into(),
            replicas: ids(&state.replicas).into(),
            offline_replicas: ids(&state.offline_replicas).into(),
            partition_epoch: PartitionEpoch(state.zk_version),
            controller_epoch: ControllerEpoch(state.controller_epoch),
        });
        (state.partition_index, known)
    };
    let topics = if version >= UPDATE_METADATA_BY_TOPIC {
        let topics = request.topic_states.iter().map(|topic| TopicUpdate {
            name: Arc::from(topic.topic_name.as_str()),
            id: topic_id(topic.topic_id),
            partitions: topic.partition_states.iter().map(partition).collect(),
        });
        topics.collect()
    } else {
        let states = request.ungrouped_partition_states.iter();
        let flat = by_topic(states.map(|state| (state.topic_name.clone(), partition(state))));
        flat.into_iter()
            .map(|(name, partitions)| TopicUpdate { name, id: None, partitions })
            .collect()
    };
    let brokers = request.live_brokers.iter().map(|broker| read_broker(broker, version));
    Update {
        controller: Some(BrokerId(request.controller_id.0)).filter(|id| id.0 >= 0),
        brokers: brokers.map(Arc::new).collect(),
        topics,
    }
}

fn read_broker(broker: &UpdateMetadataBroker, version: i16) -> Broker {
    let endpoint = |host: &str, port: i32, listener: Option<&str>, protocol: SecurityProtocol| {
        let listener = listener.unwrap_or(protocol.name()).to_owned();
        Some(Endpoint {
            listener,
            host: host.to_owned(),
            port: u16::try_from(port).ok()?,
            protocol,
        })
    };
    let endpoints = if version == 0 {
        let plaintext = SecurityProtocol::Plaintext;
        endpoint(&broker.v0_host, broker.v0_port, None, plaintext).into_iter().collect()
    } else {
        let known = broker.endpoints.iter().filter_map(|one| {
            let protocol = SecurityProtocol::from_id(one.security_protocol)?;
            let listener = (version >= UPDATE_METADATA_LISTENERS).then_some(&*one.listener);
            endpoint(&one.host, one.port, listener, protocol)
        });
        known.collect()
    };
    Broker {
        id: BrokerId(broker.id.0),
        endpoints,
        rack: broker.rack.as_ref().map(|rack| rack.to_string()),
        epoch: BrokerEpoch(-1),
    }
}

pub(crate) mod shared;
#[cfg(test)]
mod tests;
