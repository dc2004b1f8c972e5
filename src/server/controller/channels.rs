//! From the controller to the brokers: per broker one request under way, in the order they were decided.

use std::{collections::HashMap, sync::Arc};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId},
    topic::TopicPartition,
};
use controller::{
    change::Change,
    request::{Body, BrokerRequest},
};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, error};

/// Requests that wait for a broker at most. When it is full the controller waits for that broker,
/// which is this one: others come with channels of their own.
const REQUESTS_WAITING_MAX: usize = 1024;

/// What a broker answers.
#[derive(Debug)]
pub struct Answer {
    /// An error of the request as a whole: nothing of it was done.
    pub error: ErrorCode,
    /// The outcome for each partition; empty for UpdateMetadata.
    pub partitions: Vec<(TopicPartition, ErrorCode)>,
}

impl Answer {
    /// All is done.
    pub fn done() -> Answer {
        Answer { error: ErrorCode::None, partitions: Vec::new() }
    }
}

/// A request to this broker itself. It is carried out in the order of arrival, and answered.
#[derive(Debug)]
pub struct ToBroker {
    /// What is to be done, and by whose order.
    pub request: BrokerRequest,
    /// Takes the answer. Dropped, it counts as a broker that went away.
    pub answer: oneshot::Sender<Answer>,
}

/// The channels of one term.
pub(super) struct Channels {
    own: BrokerId,
    queues: HashMap<BrokerId, mpsc::Sender<BrokerRequest>>,
}

impl Channels {
    /// Opens the channel to this broker. Answers come back as changes; `told` counts the
    /// UpdateMetadata that were answered.
    pub(super) fn open(
        own: BrokerId,
        to_own: mpsc::Sender<ToBroker>,
        told: Arc<watch::Sender<u64>>,
        answers: mpsc::Sender<Change>,
    ) -> Channels {
        let (queue, requests) = mpsc::channel(REQUESTS_WAITING_MAX);
        tokio::spawn(send_in_order(requests, to_own, told, answers));
        Channels { own, queues: HashMap::from([(own, queue)]) }
    }

    /// Hands over requests; waits where a broker's queue is full.
    pub(super) async fn send(&self, requests: Vec<BrokerRequest>) {
        for request in requests {
            let Some(queue) = self.queues.get(&request.broker) else {
                debug!(broker = %request.broker, own = %self.own, "no channel to this broker");
                continue;
            };
            // Its task ends with the process alone.
            if queue.send(request).await.is_err() {
                return;
            }
        }
    }
}

async fn send_in_order(
    mut requests: mpsc::Receiver<BrokerRequest>,
    to_own: mpsc::Sender<ToBroker>,
    told: Arc<watch::Sender<u64>>,
    answers: mpsc::Sender<Change>,
) {
    while let Some(request) = requests.recv().await {
        let asked = Asked::of(&request);
        let (answer, answered) = oneshot::channel();
        if to_own.send(ToBroker { request, answer }).await.is_err() {
            return;
        }
        let Ok(answer) = answered.await else { continue };
        if matches!(asked.kind, Kind::Told) {
            told.send_modify(|count: &mut u64| *count = count.wrapping_add(1));
        }
        if let Some(change) = asked.change(answer)
            && answers.send(change).await.is_err()
        {
            return;
        }
    }
}

/// What an answer is about.
enum Kind {
    Led,
    Told,
    Stopped,
}

struct Asked {
    kind: Kind,
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    /// Partitions to be deleted: all of them fail where the request fails as a whole.
    deleted: Vec<TopicPartition>,
}

impl Asked {
    fn of(request: &BrokerRequest) -> Asked {
        let mut deleted = Vec::new();
        let kind =
            match &request.body {
                Body::LeaderAndIsr(_) => Kind::Led,
                Body::UpdateMetadata(_) => Kind::Told,
                Body::StopReplica(stop) => {
                    for topic in &stop.topics {
                        let doomed = topic.partitions.iter().filter(|partition| partition.delete);
                        deleted.extend(doomed.map(|partition| {
                            TopicPartition::new(topic.name.clone(), partition.index)
                        }));
                    }
                    Kind::Stopped
                }
            };
        Asked { kind, broker: request.broker, broker_epoch: request.broker_epoch, deleted }
    }

    /// What the controller learns from the answer.
    fn change(self, answer: Answer) -> Option<Change> {
        let Asked { kind, broker, broker_epoch, deleted } = self;
        let Answer { error, partitions } = answer;
        if !error.is_none() {
            error!(%broker, %error, "a broker refused the controller's request");
        }
        match kind {
            Kind::Told => None,
            Kind::Led if !error.is_none() => None,
            Kind::Led => Some(Change::Led { broker, broker_epoch, errors: partitions }),
            Kind::Stopped if deleted.is_empty() => None,
            Kind::Stopped => {
                let each: HashMap<TopicPartition, ErrorCode> = partitions.into_iter().collect();
                let of = |id: TopicPartition| {
                    let own = each.get(&id).copied().unwrap_or(ErrorCode::None);
                    (id, if error.is_none() { own } else { error })
                };
                let errors = deleted.into_iter().map(of).collect();
                Some(Change::Stopped { broker, broker_epoch, errors })
            }
        }
    }
}
