//! Markers for partitions that other brokers lead: what waits for a broker goes out together, one request under way.
//! Source: `TransactionMarkerChannelManager`.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use common::{error_code::ErrorCode, ids::BrokerId, topic::TopicPartition};
use kafka_protocol::messages::{
    ProducerId as WireProducerId, TopicName, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
    write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
};
use parking_lot::Mutex;
use record::control::TransactionResult;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use transaction_coordinator::event::MarkerOutcome;

use crate::{
    handlers::text,
    markers::Marker,
    peers::{Peers, Purpose},
};

/// Markers in one request at most; the others go with the next.
const MARKERS_PER_REQUEST_MAX: usize = 1000;

/// The channels to the brokers that markers went to. Shared.
pub(crate) struct MarkerChannels {
    peers: Arc<Peers>,
    request_timeout: Duration,
    stop: CancellationToken,
    /// What waits is bounded by the transactions that are decided: each has a marker under way to a broker at most once.
    queues: Mutex<HashMap<BrokerId, mpsc::UnboundedSender<Waiting>>>,
}

/// A marker on its way.
struct Waiting {
    marker: Marker,
    partitions: Vec<TopicPartition>,
    outcomes: oneshot::Sender<Vec<MarkerOutcome>>,
}

impl MarkerChannels {
    /// No channel yet.
    pub(crate) fn new(
        peers: Arc<Peers>,
        request_timeout: Duration,
        stop: CancellationToken,
    ) -> MarkerChannels {
        MarkerChannels { peers, request_timeout, stop, queues: Mutex::default() }
    }

    /// Has a broker write a marker into partitions that it leads; an outcome for each, in their order.
    pub(crate) async fn write(
        &self,
        to: BrokerId,
        marker: Marker,
        partitions: Vec<TopicPartition>,
    ) -> Vec<MarkerOutcome> {
        let count = partitions.len();
        let (outcomes, told) = oneshot::channel();
        let waiting = Waiting { marker, partitions, outcomes };
        // A channel ends when the broker stops: the next coordinator sends the marker again.
        let disconnected = || vec![MarkerOutcome::Disconnected; count];
        if self.queue(to).send(waiting).is_err() {
            return disconnected();
        }
        told.await.unwrap_or_else(|_| disconnected())
    }

    fn queue(&self, to: BrokerId) -> mpsc::UnboundedSender<Waiting> {
        let mut queues = self.queues.lock();
        let queue = queues.entry(to).or_insert_with(|| {
            let (queue, waiting) = mpsc::unbounded_channel();
            let channel =
                Channel { to, peers: self.peers.clone(), request_timeout: self.request_timeout };
            let stop = self.stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(channel.run(waiting)).await });
            queue
        });
        queue.clone()
    }
}

struct Channel {
    to: BrokerId,
    peers: Arc<Peers>,
    request_timeout: Duration,
}

impl Channel {
    async fn run(self, mut waiting: mpsc::UnboundedReceiver<Waiting>) {
        let mut held = VecDeque::new();
        loop {
            if held.is_empty() {
                let Some(next) = waiting.recv().await else { return };
                held.push_back(next);
            }
            while let Ok(next) = waiting.try_recv() {
                held.push_back(next);
            }
            let sent = take_batch(&mut held);
            self.send(sent).await;
        }
    }

    async fn send(&self, sent: Vec<Waiting>) {
        let markers = sent.iter().map(|waiting| wire(&waiting.marker, &waiting.partitions));
        let request = WriteTxnMarkersRequest::default().with_markers(markers.collect());
        let (peers, limit) = (&self.peers, self.request_timeout);
        let answered = peers.call(self.to, Purpose::Markers, &request, 0..=1, limit).await;
        let codes = match answered {
            Ok((response, _)) => Some(read(response)),
            Err(problem) => {
                let problem = &problem as &dyn std::error::Error;
                warn!(broker = %self.to, problem, "markers were not written, and are sent again");
                None
            }
        };
        for Waiting { marker, partitions, outcomes } in sent {
            let of = |partition: TopicPartition| match &codes {
                None => MarkerOutcome::Disconnected,
                Some(codes) => match codes.get(&(marker.producer_id.0, partition)) {
                    Some(code) => MarkerOutcome::Answered(*code),
                    // An answer that leaves one out says nothing of it.
                    None => MarkerOutcome::Disconnected,
                },
            };
            // The coordinator may have left office.
            let _ = outcomes.send(partitions.into_iter().map(of).collect());
        }
    }
}

/// Takes what goes into one request: each producer once, since the answer names the producer alone.
fn take_batch(held: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let mut producers = HashSet::new();
    let (mut batch, mut later) = (Vec::new(), VecDeque::new());
    for waiting in held.drain(..) {
        let fits = batch.len() < MARKERS_PER_REQUEST_MAX;
        if fits && producers.insert(waiting.marker.producer_id) {
            batch.push(waiting);
        } else {
            later.push_back(waiting);
        }
    }
    *held = later;
    batch
}

fn wire(marker: &Marker, partitions: &[TopicPartition]) -> WritableTxnMarker {
    let mut topics: Vec<WritableTxnMarkerTopic> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for partition in partitions {
        let place = *places.entry(&partition.topic).or_insert(topics.len());
        if place == topics.len() {
            let name = TopicName(text(&partition.topic));
            topics.push(WritableTxnMarkerTopic::default().with_name(name));
        }
        topics[place].partition_indexes.push(partition.partition);
    }
    WritableTxnMarker::default()
        .with_producer_id(WireProducerId(marker.producer_id.0))
        .with_producer_epoch(marker.producer_epoch.0)
        .with_transaction_result(marker.result == TransactionResult::Commit)
        .with_coordinator_epoch(marker.coordinator_epoch)
        .with_topics(topics)
}

fn read(response: WriteTxnMarkersResponse) -> HashMap<(i64, TopicPartition), ErrorCode> {
    let mut codes = HashMap::new();
    for marker in response.markers {
        for topic in &marker.topics {
            for one in &topic.partitions {
                let partition = TopicPartition::new(topic.name.as_str(), one.partition_index);
                let code = ErrorCode::from_code(one.error_code);
                codes.insert((marker.producer_id.0, partition), code);
            }
        }
    }
    codes
}
