//! From the controller to the brokers: per broker one request under way, in the order they were decided.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId},
    topic::TopicPartition,
};
use controller::{
    change::Change,
    request::{Body, BrokerRequest},
};
use kafka_protocol::messages::UpdateMetadataRequest;
use metadata::{
    broker::{Broker, Endpoint},
    snapshot::Update,
};
use network::outgoing::{Connection, OutgoingConfig};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, error, info, warn};

use crate::{
    control_wire::{self, ControlVersions, shared::SharedUpdate},
    peers::{self, PeerError},
};

const SEND_LOG: &str = "kafka.controller.RequestSendThread";
/// Requests that wait for a broker at most. The controller waits where it is this one; another is told all anew.
const REQUESTS_WAITING_MAX: usize = 1024;
/// How long a broker is left alone after it was not reached. Source: `RequestSendThread.doWork`.
const SEND_BACKOFF: Duration = Duration::from_millis(100);

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

/// A request of a controller to this broker. It is carried out in the order of arrival, and answered.
#[derive(Debug)]
pub struct ToBroker {
    /// What is to be done, and by whose order.
    pub request: BrokerRequest,
    /// Takes the answer. Dropped, it counts as a broker that went away.
    pub answer: oneshot::Sender<Answer>,
}

/// How brokers are reached, the same for all channels.
pub(super) struct Reach {
    /// The versions of `inter.broker.protocol.version`.
    pub(super) versions: ControlVersions,
    /// `control.plane.listener.name`, or the listener that brokers use among themselves.
    pub(super) listener: String,
    /// Named in LeaderAndIsr: the addresses of leaders on this listener.
    pub(super) leaders_listener: String,
    pub(super) config: OutgoingConfig,
    /// `request.timeout.ms`.
    pub(super) request_timeout: Duration,
}

/// The channels of one term: one for each live broker. All end with it.
pub(super) struct Channels {
    own: BrokerId,
    reach: Arc<Reach>,
    answers: mpsc::Sender<Change>,
    to_own: mpsc::Sender<BrokerRequest>,
    others: HashMap<BrokerId, Queue>,
}

/// An UpdateMetadata that is the same for many brokers: encoded by whoever sends it first.
type Encoded = Arc<OnceCell<SharedUpdate>>;

/// A request that waits for another broker.
struct Queued {
    request: BrokerRequest,
    /// Of UpdateMetadata.
    encoded: Encoded,
}

/// The requests to one other broker that wait.
struct Queue {
    requests: mpsc::Sender<Queued>,
    /// The registration of the broker that it is for.
    epoch: BrokerEpoch,
    /// Where the broker is; looked at for each connection.
    endpoint: Arc<Mutex<Endpoint>>,
    /// Set where the queue was full: nothing of it counts any more.
    is_behind: Arc<AtomicBool>,
    /// Ends its task.
    _open: DropGuard,
}

impl Channels {
    /// Opens the channel to this broker. Answers come back as changes; `told` counts the
    /// UpdateMetadata that were answered.
    pub(super) fn open(
        own: BrokerId,
        reach: Reach,
        to_own: mpsc::Sender<ToBroker>,
        told: Arc<watch::Sender<u64>>,
        answers: mpsc::Sender<Change>,
    ) -> Channels {
        let (queue, requests) = mpsc::channel(REQUESTS_WAITING_MAX);
        tokio::spawn(send_to_own(requests, to_own, told, answers.clone()));
        Channels { own, reach: Arc::new(reach), answers, to_own: queue, others: HashMap::new() }
    }

    /// Opens channels to brokers that came, and closes those to brokers that went or registered anew.
    pub(super) fn set_live<'a>(&mut self, live: impl Iterator<Item = &'a Arc<Broker>>) {
        let live: HashMap<BrokerId, &Arc<Broker>> =
            live.filter(|broker| broker.id != self.own).map(|broker| (broker.id, broker)).collect();
        let is_same = |id: &BrokerId, queue: &mut Queue| {
            live.get(id).is_some_and(|broker| broker.epoch == queue.epoch)
        };
        self.others.retain(is_same);
        for broker in live.into_values() {
            let Some(endpoint) = broker.endpoint(&self.reach.listener) else {
                self.others.remove(&broker.id);
                error!(
                    target: SEND_LOG,
                    broker = %broker.id,
                    listener = self.reach.listener,
                    "the broker lacks the listener that the controller uses, and is told nothing"
                );
                continue;
            };
            match self.others.get(&broker.id) {
                Some(queue) => queue.endpoint.lock().clone_from(endpoint),
                None => {
                    let queue = self.connect(broker, endpoint.clone());
                    self.others.insert(broker.id, queue);
                }
            }
        }
    }

    fn connect(&self, broker: &Arc<Broker>, endpoint: Endpoint) -> Queue {
        let (requests, queue) = mpsc::channel(REQUESTS_WAITING_MAX);
        let closed = CancellationToken::new();
        let endpoint = Arc::new(Mutex::new(endpoint));
        let is_behind = Arc::new(AtomicBool::new(false));
        let sending = SendThread {
            own: self.own,
            broker: Arc::clone(broker),
            reach: Arc::clone(&self.reach),
            endpoint: Arc::clone(&endpoint),
            connection: None,
            is_reached: true,
        };
        let run = sending.run(queue, self.answers.clone(), Arc::clone(&is_behind));
        let until = closed.clone();
        tokio::spawn(async move { until.run_until_cancelled(run).await });
        Queue { requests, epoch: broker.epoch, endpoint, is_behind, _open: closed.drop_guard() }
    }

    /// How many requests wait for a broker.
    pub(super) fn waiting(&self) -> usize {
        let others = self.others.values().map(|queue| waiting_in(&queue.requests));
        waiting_in(&self.to_own) + others.sum::<usize>()
    }

    /// Hands over requests. A broker whose queue is full loses all of it, and is told everything anew later:
    /// nobody else waits for it. This broker is waited for.
    pub(super) async fn send(&self, requests: Vec<BrokerRequest>) {
        let mut last: Option<(Arc<Update>, Encoded)> = None;
        for request in requests {
            if request.broker == self.own {
                // Its task ends with the process alone.
                if self.to_own.send(request).await.is_err() {
                    return;
                }
                continue;
            }
            let broker = request.broker;
            let Some(queue) = self.others.get(&broker) else {
                debug!(target: SEND_LOG, %broker, "no channel to this broker");
                continue;
            };
            if queue.is_behind.load(Ordering::Acquire) {
                continue;
            }
            let encoded = encoded(&request, &mut last);
            if queue.requests.try_send(Queued { request, encoded }).is_err() {
                error!(
                    target: SEND_LOG,
                    %broker,
                    "{REQUESTS_WAITING_MAX} requests wait for the broker; it will be told everything anew"
                );
                queue.is_behind.store(true, Ordering::Release);
            }
        }
    }
}

fn waiting_in<T>(queue: &mpsc::Sender<T>) -> usize {
    queue.max_capacity() - queue.capacity()
}

/// Where the request is encoded: in one place for all that say the same, which follow each other.
fn encoded(request: &BrokerRequest, last: &mut Option<(Arc<Update>, Encoded)>) -> Encoded {
    let Body::UpdateMetadata(update) = &request.body else { return Encoded::default() };
    match last {
        Some((known, encoded)) if Arc::ptr_eq(known, update) => Arc::clone(encoded),
        _ => Arc::clone(&last.insert((Arc::clone(update), Encoded::default())).1),
    }
}

async fn send_to_own(
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

/// What sends to one other broker. Source: `kafka.controller.RequestSendThread`.
struct SendThread {
    own: BrokerId,
    broker: Arc<Broker>,
    reach: Arc<Reach>,
    endpoint: Arc<Mutex<Endpoint>>,
    connection: Option<Connection>,
    /// Whether the last attempt got through, so that an outage is said once.
    is_reached: bool,
}

impl SendThread {
    /// Sends until the channel is closed: each request until it is answered.
    async fn run(
        mut self,
        mut requests: mpsc::Receiver<Queued>,
        answers: mpsc::Sender<Change>,
        is_behind: Arc<AtomicBool>,
    ) {
        while let Some(queued) = requests.recv().await {
            if is_behind.load(Ordering::Acquire) {
                while requests.try_recv().is_ok() {}
                is_behind.store(false, Ordering::Release);
                if answers.send(Change::Behind(self.broker.id)).await.is_err() {
                    return;
                }
                continue;
            }
            let asked = Asked::of(&queued.request);
            let answer = self.insist(&queued).await;
            if let Some(change) = asked.change(answer)
                && answers.send(change).await.is_err()
            {
                return;
            }
        }
    }

    async fn insist(&mut self, queued: &Queued) -> Answer {
        loop {
            let (own, node) = (self.own, self.node());
            match self.ask(queued).await {
                Ok(answer) => return answer,
                Err(problem) => {
                    self.connection = None;
                    if std::mem::take(&mut self.is_reached) {
                        let problem = &problem as &dyn std::error::Error;
                        warn!(
                            target: SEND_LOG,
                            problem,
                            "[RequestSendThread controllerId={own}] Controller {own}'s connection to broker {node} was unsuccessful"
                        );
                    }
                    tokio::time::sleep(SEND_BACKOFF).await;
                }
            }
        }
    }

    /// As Kafka shows a node.
    fn node(&self) -> String {
        let endpoint = self.endpoint.lock();
        let rack = self.broker.rack.as_deref().unwrap_or("null");
        format!("{}:{} (id: {} rack: {rack})", endpoint.host, endpoint.port, self.broker.id)
    }

    async fn connection(&mut self) -> Result<Connection, PeerError> {
        if let Some(connection) = self.connection.as_ref().filter(|known| !known.is_closed()) {
            return Ok(connection.clone());
        }
        let endpoint = self.endpoint.lock().clone();
        let connection = peers::open(&endpoint, &self.reach.config).await?;
        self.connection = Some(connection.clone());
        let own = self.own;
        info!(
            target: SEND_LOG,
            "[RequestSendThread controllerId={own}] Controller {own} connected to {} for sending state change requests",
            self.node()
        );
        Ok(connection)
    }

    async fn ask(&mut self, queued: &Queued) -> Result<Answer, PeerError> {
        let Queued { request, encoded } = queued;
        let connection = self.connection().await?;
        let Reach { versions, leaders_listener, request_timeout, .. } = &*self.reach;
        let limit = *request_timeout;
        let answered = match &request.body {
            Body::LeaderAndIsr(told) => {
                let version = versions.leader_and_isr;
                let wire =
                    control_wire::leader_and_isr_request(request, told, version, leaders_listener);
                let answered = connection.call_with(wire, version, limit).await;
                answered.map(|response| control_wire::read_leader_and_isr_response(response, told))
            }
            Body::UpdateMetadata(update) => {
                let version = versions.update_metadata;
                let encode = async || SharedUpdate::encode(request, update, version);
                let answered = async {
                    let shared = encoded.get_or_try_init(encode).await?;
                    let body = shared.for_registration(request.broker_epoch);
                    connection.call_encoded::<UpdateMetadataRequest>(&body, version, limit).await
                };
                let answered = answered.await;
                answered.map(|response| (ErrorCode::from_code(response.error_code), Vec::new()))
            }
            Body::StopReplica(told) => {
                let wire = control_wire::stop_replica_request(request, told);
                let answered = connection.call_with(wire, versions.stop_replica, limit).await;
                answered.map(|response| control_wire::read_stop_replica_response(&response))
            }
        };
        let (error, partitions) =
            answered.map_err(|source| PeerError::Failed { address: self.node(), source })?;
        self.is_reached = true;
        Ok(Answer { error, partitions })
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
