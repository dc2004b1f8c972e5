//! WriteTxnMarkers (API key 27): a transaction coordinator ends transactions in partitions led here.
//! Source: `KafkaApis.handleWriteTxnMarkersRequest`.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
    topic::TopicPartition,
};
use futures_util::future::join_all;
use kafka_protocol::messages::{
    self, TopicName, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
    write_txn_markers_request::WritableTxnMarker,
    write_txn_markers_response::{
        WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
    },
};
use record::control::TransactionResult;

use crate::{
    broker::Broker,
    handlers::text,
    markers::{self, Marker},
};

pub(crate) async fn handle(
    broker: &Broker,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse {
    let written = if request.markers.iter().any(|marker| is_impossible(broker, marker)) {
        // Kafka fails on all of them when it comes to the one.
        let error = ErrorCode::UnknownServerError;
        let fail = |marker| partitions_of(marker).into_iter().map(|partition| (partition, error));
        request.markers.iter().map(|marker| fail(marker).collect()).collect()
    } else {
        join_all(request.markers.iter().map(|marker| write(broker, marker))).await
    };
    // The answer has each producer once, and the later marker has the last word on a partition.
    let mut producers: Vec<(messages::ProducerId, Vec<TopicPartition>)> = Vec::new();
    let mut places: HashMap<messages::ProducerId, usize> = HashMap::new();
    let mut codes: HashMap<(messages::ProducerId, TopicPartition), ErrorCode> = HashMap::new();
    for (marker, results) in request.markers.iter().zip(written) {
        for (partition, code) in results {
            let id = marker.producer_id;
            let place = *places.entry(id).or_insert(producers.len());
            if place == producers.len() {
                producers.push((id, Vec::new()));
            }
            if codes.insert((id, partition.clone()), code).is_none() {
                producers[place].1.push(partition);
            }
        }
    }
    let markers = producers.into_iter().map(|(id, partitions)| {
        let results = partitions.into_iter().map(|partition| {
            let key = (id, partition);
            let code = codes.get(&key).copied().unwrap_or(ErrorCode::None);
            (key.1, code)
        });
        WritableTxnMarkerResult::default().with_producer_id(id).with_topics(by_topic(results))
    });
    WriteTxnMarkersResponse::default().with_markers(markers.collect())
}

/// Whether a marker would have to be written for no producer, or no epoch, which no batch can say.
/// Source: `MemoryRecordsBuilder.validateProducerState`.
fn is_impossible(broker: &Broker, marker: &WritableTxnMarker) -> bool {
    let producer = (ProducerId(marker.producer_id.0), ProducerEpoch(marker.producer_epoch));
    let is_nobody = producer.0 == ProducerId::NONE || producer.1 == ProducerEpoch::NONE;
    let is_here = |partition: &TopicPartition| {
        broker.hosted_partition(&partition.topic, partition.partition).is_ok()
    };
    is_nobody && partitions_of(marker).iter().any(is_here)
}

/// The partitions of a marker, each once.
fn partitions_of(wanted: &WritableTxnMarker) -> Vec<TopicPartition> {
    let mut seen = HashSet::new();
    let mut partitions = Vec::new();
    for topic in &wanted.topics {
        for index in &topic.partition_indexes {
            let partition = TopicPartition::new(&**topic.name, *index);
            if seen.insert(partition.clone()) {
                partitions.push(partition);
            }
        }
    }
    partitions
}

async fn write(broker: &Broker, wanted: &WritableTxnMarker) -> Vec<(TopicPartition, ErrorCode)> {
    let partitions = partitions_of(wanted);
    let marker = Marker {
        producer_id: ProducerId(wanted.producer_id.0),
        producer_epoch: ProducerEpoch(wanted.producer_epoch),
        coordinator_epoch: wanted.coordinator_epoch,
        result: match wanted.transaction_result {
            true => TransactionResult::Commit,
            false => TransactionResult::Abort,
        },
    };
    let codes = markers::write(broker, &marker, &partitions).await;
    partitions.into_iter().zip(codes).collect()
}

fn by_topic(
    results: impl Iterator<Item = (TopicPartition, ErrorCode)>,
) -> Vec<WritableTxnMarkerTopicResult> {
    let mut topics: Vec<WritableTxnMarkerTopicResult> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for (partition, code) in results {
        let place = *places.entry(partition.topic.clone()).or_insert(topics.len());
        if place == topics.len() {
            let name = TopicName(text(&partition.topic));
            topics.push(WritableTxnMarkerTopicResult::default().with_name(name));
        }
        let result = WritableTxnMarkerPartitionResult::default()
            .with_partition_index(partition.partition)
            .with_error_code(code.code());
        topics[place].partitions.push(result);
    }
    topics
}
