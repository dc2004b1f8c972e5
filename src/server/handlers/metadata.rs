//! Metadata (API key 3): brokers, topics and leaders as this broker knows them; creates missing topics on demand.
//! Source: `KafkaApis.handleTopicMetadataRequest`, `ZkMetadataCache.getPartitionMetadata`.

use common::{
    error_code::ErrorCode,
    ids::BrokerId,
    topic::{self, Uuid},
};
use kafka_protocol::{
    messages::{
        self, MetadataRequest, MetadataResponse, TopicName,
        metadata_response::{
            MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
        },
    },
    protocol::StrBytes,
};
use metadata::snapshot::{ClusterSnapshot, Partition, Topic};

use crate::{
    broker::Broker,
    handlers::{self, CLUSTER_OPERATIONS, OPERATIONS_UNSET, TOPIC_OPERATIONS, text, wire_uuid},
    request_context::RequestContext,
};

/// What is asked for, once the versions' ways of asking are sorted out.
enum Wanted {
    All,
    Names(Vec<TopicName>),
    Ids(Vec<Uuid>),
}

pub(crate) async fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: MetadataRequest,
) -> MetadataResponse {
    let wanted = match wanted(ctx.api_version, &request) {
        Ok(wanted) => wanted,
        Err(error) => return refused(ctx.api_version, &request, error),
    };
    broker.wait_for_metadata().await;
    let snapshot = broker.metadata.snapshot();
    let (mut topics, missing) = known_topics(ctx, &snapshot, wanted);
    let may_create = broker.config.auto_create_topics_enable && allows_creation(ctx, &request);
    for name in missing {
        topics.push(missing_topic(broker, name, may_create).await);
    }
    if ctx.api_version >= 8 && request.include_topic_authorized_operations {
        let has_name = |topic: &&mut MetadataResponseTopic| topic.name.is_some();
        for topic in topics.iter_mut().filter(has_name) {
            topic.topic_authorized_operations = TOPIC_OPERATIONS;
        }
    }
    // The topic that was just created may have brought new brokers; read again.
    let snapshot = broker.metadata.snapshot();
    let asks_cluster =
        (8..=10).contains(&ctx.api_version) && request.include_cluster_authorized_operations;
    MetadataResponse::default()
        .with_brokers(brokers(ctx, &snapshot))
        .with_cluster_id((ctx.api_version >= 2).then(|| text(&broker.cluster_id)))
        .with_controller_id(messages::BrokerId(snapshot.controller().unwrap_or(BrokerId::NONE).0))
        .with_topics(topics)
        .with_cluster_authorized_operations(if asks_cluster {
            CLUSTER_OPERATIONS
        } else {
            OPERATIONS_UNSET
        })
}

/// Whether the request lets missing topics be created. Before version 4 it cannot say, and means yes.
fn allows_creation(ctx: &RequestContext, request: &MetadataRequest) -> bool {
    ctx.api_version < 4 || request.allow_auto_topic_creation
}

fn wanted(version: i16, request: &MetadataRequest) -> Result<Wanted, ErrorCode> {
    let topics = match &request.topics {
        None => return Ok(Wanted::All),
        Some(topics) if version == 0 && topics.is_empty() => return Ok(Wanted::All),
        Some(topics) => topics,
    };
    let has_id = |id: &uuid::Uuid| !id.is_nil();
    if version < 12 && topics.iter().any(|topic| topic.name.is_none() || has_id(&topic.topic_id)) {
        return Err(ErrorCode::InvalidRequest);
    }
    if topics.iter().any(|topic| has_id(&topic.topic_id)) {
        let ids = topics.iter().filter(|topic| has_id(&topic.topic_id));
        return Ok(Wanted::Ids(unique(ids.map(|topic| Uuid(topic.topic_id.as_u128())))));
    }
    // A null name with a null id names nothing; Kafka fails the request on it.
    let names: Option<Vec<_>> = topics.iter().map(|topic| topic.name.clone()).collect();
    Ok(Wanted::Names(unique(names.ok_or(ErrorCode::UnknownServerError)?.into_iter())))
}

fn unique<T: PartialEq + Clone + std::hash::Hash + Eq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = std::collections::HashSet::new();
    items.filter(|item| seen.insert(item.clone())).collect()
}

/// The answer to a request that is wrong as a whole: the error for every topic it names.
fn refused(version: i16, request: &MetadataRequest, error: ErrorCode) -> MetadataResponse {
    let topics = request.topics.iter().flatten().map(|topic| {
        // An empty name for null, even where the answer could say null, as Kafka does.
        let answer = MetadataResponseTopic::default()
            .with_error_code(error.code())
            .with_name(Some(topic.name.clone().unwrap_or_default()))
            .with_topic_authorized_operations(OPERATIONS_UNSET);
        if version >= 10 { answer.with_topic_id(topic.topic_id) } else { answer }
    });
    MetadataResponse::default()
        .with_topics(topics.collect())
        .with_cluster_authorized_operations(OPERATIONS_UNSET)
        .with_controller_id(messages::BrokerId(-1))
}

/// The answers for topics that exist, and the names that do not.
fn known_topics(
    ctx: &RequestContext,
    snapshot: &ClusterSnapshot,
    wanted: Wanted,
) -> (Vec<MetadataResponseTopic>, Vec<TopicName>) {
    let listener = &ctx.connection.listener;
    let answer = |topic: &Topic| topic_answer(ctx.api_version, listener, snapshot, topic);
    match wanted {
        Wanted::All => (snapshot.topics().map(|topic| answer(topic)).collect(), Vec::new()),
        Wanted::Ids(ids) => {
            let unknown = |id: Uuid| {
                MetadataResponseTopic::default()
                    .with_error_code(ErrorCode::UnknownTopicId.code())
                    .with_name(None)
                    .with_topic_id(wire_uuid(id))
                    .with_topic_authorized_operations(OPERATIONS_UNSET)
            };
            let answers = ids
                .into_iter()
                .map(|id| snapshot.topic_by_id(id).map_or(unknown(id), |t| answer(t)));
            (answers.collect(), Vec::new())
        }
        Wanted::Names(names) => {
            let (known, missing): (Vec<_>, Vec<_>) =
                names.into_iter().partition(|name| snapshot.topic(name).is_some());
            let known = known.iter().filter_map(|name| snapshot.topic(name));
            (known.map(|topic| answer(topic)).collect(), missing)
        }
    }
}

async fn missing_topic(broker: &Broker, name: TopicName, create: bool) -> MetadataResponseTopic {
    let error = if topic::check_topic_name(&name).is_err() {
        ErrorCode::InvalidTopicException
    } else if create {
        broker.auto_create_topic(&name).await
    } else {
        ErrorCode::UnknownTopicOrPartition
    };
    MetadataResponseTopic::default()
        .with_error_code(error.code())
        .with_is_internal(topic::is_internal(&name))
        .with_name(Some(name))
        .with_topic_authorized_operations(OPERATIONS_UNSET)
}

fn topic_answer(
    version: i16,
    listener: &str,
    snapshot: &ClusterSnapshot,
    topic: &Topic,
) -> MetadataResponseTopic {
    let answers = topic
        .partitions()
        .map(|(index, one)| partition_answer(version, listener, snapshot, index, one));
    let answer = MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_string(topic.name.to_string()))))
        .with_is_internal(version >= 1 && topic::is_internal(&topic.name))
        .with_partitions(answers.collect())
        .with_topic_authorized_operations(OPERATIONS_UNSET);
    match topic.id {
        Some(id) if version >= 10 => answer.with_topic_id(wire_uuid(id)),
        _ => answer,
    }
}

fn partition_answer(
    version: i16,
    listener: &str,
    snapshot: &ClusterSnapshot,
    index: i32,
    partition: &Partition,
) -> MetadataResponsePartition {
    let reachable = |id: BrokerId| {
        snapshot.broker(id).is_some_and(|broker| broker.endpoint(listener).is_some())
    };
    // Version 0 names only brokers that can be reached, and says so.
    let shown = |ids: &[BrokerId]| -> Vec<messages::BrokerId> {
        let shown = ids.iter().filter(|id| version > 0 || reachable(**id));
        shown.map(|id| messages::BrokerId(id.0)).collect()
    };
    let (replicas, isr) = (shown(&partition.replicas), shown(&partition.isr));
    let has_leader = reachable(partition.leader);
    let error = if !has_leader {
        let alive = snapshot.broker(partition.leader).is_some();
        // Before version 6 a missing listener was not told apart.
        let known = alive && version >= 6;
        if known { ErrorCode::ListenerNotFound } else { ErrorCode::LeaderNotAvailable }
    } else if replicas.len() < partition.replicas.len() || isr.len() < partition.isr.len() {
        ErrorCode::ReplicaNotAvailable
    } else {
        ErrorCode::None
    };
    let leader = if has_leader { partition.leader } else { BrokerId::NONE };
    let answer = MetadataResponsePartition::default()
        .with_error_code(error.code())
        .with_partition_index(index)
        .with_leader_id(messages::BrokerId(leader.0))
        .with_replica_nodes(replicas)
        .with_isr_nodes(isr);
    let answer =
        if version >= 7 { answer.with_leader_epoch(partition.leader_epoch.0) } else { answer };
    if version < 5 {
        return answer;
    }
    let offline = partition.offline_replicas.iter().map(|id| messages::BrokerId(id.0));
    answer.with_offline_replicas(offline.collect())
}

fn brokers(ctx: &RequestContext, snapshot: &ClusterSnapshot) -> Vec<MetadataResponseBroker> {
    let reachable = handlers::reachable_brokers(snapshot, &ctx.connection.listener);
    let answer = reachable.map(|(broker, endpoint)| {
        let answer = MetadataResponseBroker::default()
            .with_node_id(messages::BrokerId(broker.id.0))
            .with_host(text(&endpoint.host))
            .with_port(i32::from(endpoint.port));
        let rack = broker.rack.as_deref().map(text);
        if ctx.api_version >= 1 { answer.with_rack(rack) } else { answer }
    });
    answer.collect()
}
