//! What one side writes the other reads, in every version.

use std::{collections::HashMap, sync::Arc};

use ::controller::{
    assignment::Assignment,
    request::{
        Body, BrokerRequest, DURING_DELETE, LeaderAndIsr, LeaderAndIsrPartition, LeaderAndIsrTopic,
        StopReplica, StopReplicaPartition, StopReplicaTopic,
    },
    states::Leadership,
};
use bytes::BytesMut;
use common::{
    config::ibp::MetadataVersion,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch},
    security_protocol::SecurityProtocol,
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::{
    messages::{
        BrokerId as WireBrokerId, LeaderAndIsrRequest, LeaderAndIsrResponse, StopReplicaRequest,
        UpdateMetadataRequest,
        leader_and_isr_request::LeaderAndIsrPartitionState,
        stop_replica_request::{StopReplicaPartitionV0, StopReplicaTopicV1},
        update_metadata_request::{
            UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataPartitionState,
        },
    },
    protocol::{Decodable, Encodable},
};
use metadata::{
    broker::{Broker, Endpoint},
    snapshot::{Partition, TopicUpdate, Update},
};

use super::{
    ControlVersions, leader_and_isr_request, leader_and_isr_response, name_empty_topics,
    read_leader_and_isr, read_leader_and_isr_response, read_stop_replica,
    read_stop_replica_response, read_update_metadata, shared::SharedUpdate, stop_replica_request,
    stop_replica_response, update_metadata_request, wire_name,
};
use crate::handlers::text;

fn head() -> BrokerRequest {
    BrokerRequest {
        broker: BrokerId(2),
        broker_epoch: BrokerEpoch(77),
        controller: BrokerId(1),
        controller_epoch: ControllerEpoch(5),
        body: Body::StopReplica(StopReplica { topics: Vec::new() }),
    }
}

/// What the other side reads.
fn over_the_wire<T: Encodable + Decodable>(request: &T, version: i16) -> T {
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes, version).unwrap();
    T::decode(&mut bytes.freeze(), version).unwrap()
}

fn ids(list: &[i32]) -> Vec<BrokerId> {
    list.iter().copied().map(BrokerId).collect()
}

fn broker(id: i32, rack: Option<&str>) -> Arc<Broker> {
    let endpoint = |listener: &str, port, protocol| Endpoint {
        listener: listener.to_owned(),
        host: format!("host{id}"),
        port,
        protocol,
    };
    Arc::new(Broker {
        id: BrokerId(id),
        endpoints: vec![
            endpoint("CLIENTS", 9092, SecurityProtocol::Plaintext),
            endpoint("BROKERS", 9093, SecurityProtocol::Ssl),
        ],
        rack: rack.map(str::to_owned),
        epoch: BrokerEpoch(-1),
    })
}

fn leader_and_isr(recovering: bool, id: Option<Uuid>) -> LeaderAndIsr {
    let partition = |index: i32| LeaderAndIsrPartition {
        index,
        leadership: Leadership {
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(9),
            isr: ids(&[1, 2]),
            recovering,
            controller_epoch: ControllerEpoch(4),
            partition_epoch: PartitionEpoch(12),
        },
        assignment: Assignment {
            replicas: ids(&[1, 2, 3]),
            adding: ids(&[3]),
            removing: ids(&[2]),
        },
        is_new: index == 1,
    };
    let topic = LeaderAndIsrTopic {
        name: "orders".into(),
        id,
        partitions: vec![partition(0), partition(1)],
    };
    LeaderAndIsr { topics: vec![topic], live_leaders: vec![broker(1, None)] }
}

#[test]
fn the_versions_are_those_of_the_inter_broker_protocol() {
    let of = |name: &str| {
        let known = ControlVersions::of(MetadataVersion::parse(name).unwrap());
        (known.leader_and_isr, known.update_metadata, known.stop_replica)
    };
    assert_eq!(of("2.8-IV0"), (4, 6, 3));
    assert_eq!(of("2.8"), (5, 7, 3));
    assert_eq!(of("3.0"), (5, 7, 3));
    assert_eq!(of("3.2"), (6, 7, 3));
    assert_eq!(of("3.3"), (6, 7, 3));
    assert_eq!(of("3.4"), (7, 8, 4));
    assert_eq!(of("3.9"), (7, 8, 4));
}

#[test]
fn leader_and_isr_arrives_as_it_was_sent() {
    for version in 4..=7 {
        let told = leader_and_isr(version >= 6, (version >= 5).then_some(Uuid(42)));
        let sent = leader_and_isr_request(&head(), &told, version, "BROKERS");
        let arrived = over_the_wire(&sent, version);
        assert_eq!((arrived.controller_id.0, arrived.controller_epoch), (1, 5));
        assert_eq!(arrived.broker_epoch, 77);
        let leader = &arrived.live_leaders[0];
        assert_eq!((leader.broker_id.0, &*leader.host_name, leader.port), (1, "host1", 9093));
        let read = read_leader_and_isr(arrived, version);
        assert_eq!(read, LeaderAndIsr { live_leaders: Vec::new(), ..told }, "version {version}");
    }
}

#[test]
fn what_a_version_does_not_know_is_left_out() {
    let told = leader_and_isr(true, Some(Uuid(42)));
    let sent = leader_and_isr_request(&head(), &told, 4, "BROKERS");
    let read = read_leader_and_isr(over_the_wire(&sent, 4), 4);
    assert_eq!(read.topics[0].id, None);
    assert!(!read.topics[0].partitions[0].leadership.recovering);
}

#[test]
fn old_leader_and_isr_names_the_topic_at_each_partition() {
    let state = |topic: &str, index: i32| {
        LeaderAndIsrPartitionState::default()
            .with_topic_name(wire_name(topic))
            .with_partition_index(index)
            .with_leader(WireBrokerId(3))
            .with_replicas(vec![WireBrokerId(3)])
    };
    let request = LeaderAndIsrRequest::default().with_ungrouped_partition_states(vec![
        state("a", 0),
        state("b", 0),
        state("a", 1),
    ]);
    let read = read_leader_and_isr(over_the_wire(&request, 1), 1);
    let shown: Vec<(&str, Vec<i32>)> = read
        .topics
        .iter()
        .map(|topic| (&*topic.name, topic.partitions.iter().map(|one| one.index).collect()))
        .collect();
    assert_eq!(shown, [("a", vec![0, 1]), ("b", vec![0])]);
}

#[test]
fn answers_to_leader_and_isr_name_topics_by_id_once_there_are_ids() {
    let told = leader_and_isr(false, Some(Uuid(42)));
    let topics = HashMap::from([(Arc::from("orders"), Some(Uuid(42)))]);
    let results = vec![
        (TopicPartition::new("orders", 0), ErrorCode::None),
        (TopicPartition::new("orders", 1), ErrorCode::KafkaStorageError),
    ];
    for version in [4, 5, 7] {
        let answer = leader_and_isr_response(ErrorCode::None, &results, &topics, version);
        let arrived = over_the_wire(&answer, version);
        assert_eq!(arrived.topics.is_empty(), version < 5);
        let read = read_leader_and_isr_response(arrived, &told);
        assert_eq!(read, (ErrorCode::None, results.clone()), "version {version}");
    }
}

#[test]
fn a_refused_leader_and_isr_names_topics_without_partitions_by_id() {
    let named = |version| {
        let mut response = LeaderAndIsrResponse::default();
        name_empty_topics(&mut response, &[Some(Uuid(7))], version);
        response.topics.iter().map(|topic| topic.topic_id.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!((named(4), named(5)), (vec![], vec![7]));
}

#[test]
fn stop_replica_arrives_as_it_was_sent() {
    let partition =
        |index, leader_epoch, delete| StopReplicaPartition { index, leader_epoch, delete };
    let partitions = vec![partition(0, LeaderEpoch(3), false), partition(4, DURING_DELETE, true)];
    let told = StopReplica { topics: vec![StopReplicaTopic { name: "orders".into(), partitions }] };
    for version in 3..=4 {
        let arrived = over_the_wire(&stop_replica_request(&head(), &told), version);
        assert_eq!(arrived.broker_epoch, 77);
        assert_eq!(read_stop_replica(arrived, version), told);
    }
    let results = vec![(TopicPartition::new("orders", 4), ErrorCode::FencedLeaderEpoch)];
    let answer = over_the_wire(&stop_replica_response(ErrorCode::None, &results), 4);
    assert_eq!(read_stop_replica_response(&answer), (ErrorCode::None, results));
}

#[test]
fn old_stop_replica_deletes_all_or_none() {
    let grouped = StopReplicaRequest::default().with_delete_partitions(true).with_topics(vec![
        StopReplicaTopicV1::default().with_name(wire_name("a")).with_partition_indexes(vec![0, 2]),
    ]);
    let flat =
        StopReplicaRequest::default().with_delete_partitions(true).with_ungrouped_partitions(
            [0, 2]
                .map(|index| {
                    StopReplicaPartitionV0::default()
                        .with_topic_name(wire_name("a"))
                        .with_partition_index(index)
                })
                .to_vec(),
        );
    let old = |index| StopReplicaPartition { index, leader_epoch: LeaderEpoch::NONE, delete: true };
    let partitions = vec![old(0), old(2)];
    let told = StopReplica { topics: vec![StopReplicaTopic { name: "a".into(), partitions }] };
    assert_eq!(read_stop_replica(over_the_wire(&grouped, 2), 2), told);
    assert_eq!(read_stop_replica(over_the_wire(&flat, 0), 0), told);
}

/// An update with a partition that is known, and one that is being deleted.
fn update(id: Option<Uuid>) -> Update {
    let known = Partition {
        leader: BrokerId(1),
        leader_epoch: LeaderEpoch(9),
        isr: ids(&[1, 2]).into(),
        replicas: ids(&[1, 2, 3]).into(),
        offline_replicas: ids(&[3]).into(),
        partition_epoch: PartitionEpoch(12),
        controller_epoch: ControllerEpoch(4),
    };
    let partitions = vec![(0, Some(known)), (1, None)];
    Update {
        controller: Some(BrokerId(1)),
        brokers: vec![broker(1, Some("east")), broker(2, None)],
        topics: vec![TopicUpdate { name: "orders".into(), id, partitions }],
    }
}

#[test]
fn update_metadata_arrives_as_it_was_sent() {
    for version in 6..=8 {
        let id = (version >= 7).then_some(Uuid(42));
        let update = update(id);
        let sent = update_metadata_request(&head(), &update, version);
        let read = read_update_metadata(over_the_wire(&sent, version), version);
        assert_eq!(read.controller, update.controller);
        assert_eq!(read.brokers, update.brokers);
        assert_eq!(read.topics.len(), 1);
        assert_eq!((&read.topics[0].name, read.topics[0].id), (&"orders".into(), id));
        assert_eq!(read.topics[0].partitions, update.topics[0].partitions, "version {version}");
    }
}

#[test]
fn update_metadata_that_brokers_share_is_what_each_would_get_alone() {
    let nothing = Update { brokers: Vec::new(), topics: Vec::new(), ..update(None) };
    for version in 6..=8 {
        for update in [&update((version >= 7).then_some(Uuid(42))), &nothing] {
            let shared = SharedUpdate::encode(&head(), update, version).unwrap();
            for epoch in [BrokerEpoch(-1), BrokerEpoch(0x0102_0304_0506_0708)] {
                let head = BrokerRequest { broker_epoch: epoch, ..head() };
                let mut alone = BytesMut::new();
                let request = update_metadata_request(&head, update, version);
                request.encode(&mut alone, version).unwrap();
                let body = shared.for_registration(epoch);
                assert_eq!([body.own, body.shared].concat(), alone, "version {version}");
            }
        }
    }
}

#[test]
fn old_update_metadata_names_listeners_by_their_protocol() {
    let state = UpdateMetadataPartitionState::default()
        .with_topic_name(wire_name("a"))
        .with_leader(WireBrokerId(1));
    let first = UpdateMetadataBroker::default()
        .with_id(WireBrokerId(1))
        .with_v0_host(text("old"))
        .with_v0_port(9092);
    let second = UpdateMetadataBroker::default().with_id(WireBrokerId(1)).with_endpoints(vec![
        UpdateMetadataEndpoint::default()
            .with_host(text("tls"))
            .with_port(9093)
            .with_security_protocol(1),
        UpdateMetadataEndpoint::default().with_host(text("bad")).with_port(-1),
        UpdateMetadataEndpoint::default().with_host(text("bad")).with_security_protocol(99),
    ]);
    for (version, broker, shown) in
        [(0, first, "PLAINTEXT://old:9092"), (2, second, "SSL://tls:9093")]
    {
        let request = UpdateMetadataRequest::default()
            .with_ungrouped_partition_states(vec![state.clone()])
            .with_live_brokers(vec![broker]);
        let read = read_update_metadata(over_the_wire(&request, version), version);
        let endpoints: Vec<String> =
            read.brokers[0].endpoints.iter().map(Endpoint::to_string).collect();
        assert_eq!(endpoints, [shown]);
        assert_eq!((&*read.topics[0].name, read.topics[0].partitions.len()), ("a", 1));
    }
}
