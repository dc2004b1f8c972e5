//! The producer's loop: takes due batches, sends them to the leaders, deals with the answers. Source: `Sender`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
    topic::TopicPartition,
};
use kafka_protocol::{
    messages::{
        InitProducerIdRequest, ProduceRequest, ProduceResponse, TopicName,
        produce_request::{PartitionProduceData, TopicProduceData},
        produce_response::PartitionProduceResponse,
    },
    protocol::{Decodable, StrBytes},
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, sleep_until},
};
use tracing::{debug, warn};

use crate::{
    accumulator::{BatchResult, Drained, Identity, ProducerBatch},
    cluster::{AutoCreate, Topics},
    error::{ClientError, ErrorKind},
    metadata::Node,
    producer::{Shared, State, expired},
};

const CLASS: &str = "org.apache.kafka.clients.producer.internals.Sender";
/// Newest version of Produce that carries no transactions of the second kind.
const PRODUCE_VERSION_MAX: i16 = 11;
/// How long to wait with nothing due.
const IDLE: Duration = Duration::from_secs(1);

/// Requests under way to one broker; its worker keeps their order.
struct Lane {
    work: mpsc::UnboundedSender<Vec<ProducerBatch>>,
    in_flight: Arc<std::sync::atomic::AtomicUsize>,
}

/// Runs until the producer is closed and everything has ended.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut lanes: HashMap<i32, Lane> = HashMap::new();
    let mut refreshing: Option<JoinHandle<()>> = None;
    loop {
        if shared.config.idempotence && shared.state.lock().identity.is_none() {
            let is_needed = shared.state.lock().accumulator.next_number() > 0;
            if is_needed {
                obtain_identity(&shared).await;
            }
        }
        let now = clock::now();
        give_up_expired(&shared, now);
        let Drained { by_leader, without_leader, next } = drain(&shared, &lanes, now);
        for (leader, batches) in by_leader {
            hand_over(&shared, &mut lanes, leader, batches);
        }
        refresh_if_needed(&shared, !without_leader.is_empty(), &mut refreshing);
        let is_over = {
            let state = shared.state.lock();
            state.is_closed && state.accumulator.is_done_below(state.accumulator.next_number())
        };
        if is_over {
            return;
        }
        let at = next.unwrap_or(now + IDLE).min(now + IDLE);
        tokio::select! {
            () = shared.wake.notified() => {}
            () = sleep_until(at.into()) => {}
        }
    }
}

fn drain(shared: &Shared, lanes: &HashMap<i32, Lane>, now: Instant) -> Drained {
    let metadata = shared.cluster.metadata();
    let mut state = shared.state.lock();
    let State { accumulator, identity, .. } = &mut *state;
    if shared.config.idempotence && identity.is_none() {
        return Drained::default();
    }
    let leader = |partition: &TopicPartition| {
        metadata.leader(&partition.topic, partition.partition).map(|node| node.id)
    };
    let has_room = |leader: i32| {
        lanes.get(&leader).is_none_or(|lane| {
            let in_flight = lane.in_flight.load(std::sync::atomic::Ordering::Acquire);
            in_flight < shared.config.in_flight_max
        })
    };
    accumulator.drain(now, identity, leader, has_room, shared.config.request_bytes_max)
}

/// Gives batches to the leader's worker; makes one the first time.
fn hand_over(
    shared: &Arc<Shared>,
    lanes: &mut HashMap<i32, Lane>,
    leader: i32,
    batches: Vec<ProducerBatch>,
) {
    let lane = lanes.entry(leader).or_insert_with(|| {
        // As many requests as may be in flight wait here at most.
        let (work, received) = mpsc::unbounded_channel();
        let in_flight = Arc::default();
        tokio::spawn(work_lane(shared.clone(), leader, received, Arc::clone(&in_flight)));
        Lane { work, in_flight }
    });
    lane.in_flight.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
    if let Err(unsent) = lane.work.send(batches) {
        let error = ClientError::new(ErrorKind::Disconnected, "the sender ended");
        settle(shared, unsent.0, |_| Err(error.clone()));
    }
}

/// Sends one broker's requests in order; their answers are awaited beside it.
async fn work_lane(
    shared: Arc<Shared>,
    leader: i32,
    mut work: mpsc::UnboundedReceiver<Vec<ProducerBatch>>,
    in_flight: Arc<std::sync::atomic::AtomicUsize>,
) {
    while let Some(mut batches) = work.recv().await {
        hold_back_overtaking(&shared, &mut batches);
        let started = if batches.is_empty() {
            Err(NotSent(ClientError::new(ErrorKind::Disconnected, "nothing is left to send")))
        } else {
            start(&shared, leader, &mut batches).await
        };
        // At once, so that the next request does not go before these batches.
        let started = match started {
            Err(NotSent(error)) => {
                settle_unsent(&shared, std::mem::take(&mut batches), &error);
                in_flight.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
                shared.wake.notify_one();
                continue;
            }
            Ok(started) => started,
        };
        let shared = shared.clone();
        let in_flight = in_flight.clone();
        let answer = async move {
            match started {
                Some((pending, version)) => {
                    let limit = shared.config.connection.request_timeout;
                    let answered = pending.wait(limit).await.and_then(|mut body| {
                        ProduceResponse::decode(&mut body, version).map_err(|error| {
                            ClientError::new(ErrorKind::Malformed, error.to_string())
                        })
                    });
                    match answered {
                        Ok(response) => settle_response(&shared, batches, &response),
                        Err(error) => settle(&shared, batches, |_| Err(error.clone())),
                    }
                }
                None => {
                    let unknown = BatchResult { base_offset: -1, log_append_time: -1 };
                    settle(&shared, batches, |_| Ok(unknown));
                }
            }
            in_flight.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
            shared.wake.notify_one();
        };
        tokio::spawn(answer);
    }
}

/// Puts back what would overtake a batch that came back while it waited here.
fn hold_back_overtaking(shared: &Shared, batches: &mut Vec<ProducerBatch>) {
    let now = clock::now();
    let mut state = shared.state.lock();
    let early = batches.extract_if(.., |batch| state.accumulator.would_overtake(batch));
    for batch in early.collect::<Vec<_>>() {
        state.accumulator.landed(&batch.partition);
        state.accumulator.put_back_unsent(batch, now);
    }
}

/// Why a request did not go out.
struct NotSent(ClientError);

impl From<ClientError> for NotSent {
    fn from(error: ClientError) -> NotSent {
        NotSent(error)
    }
}

/// Connects and queues a request. The answer is none for acks=0.
async fn start(
    shared: &Shared,
    leader: i32,
    batches: &mut [ProducerBatch],
) -> Result<Option<(crate::connection::PendingAnswer, i16)>, NotSent> {
    let metadata = shared.cluster.metadata();
    let gone = || ClientError::new(ErrorKind::Disconnected, "the leader is not known any more");
    let node: &Node = metadata.nodes.get(&leader).ok_or_else(gone)?;
    let connection = shared.cluster.connect(node).await?;
    let version = connection.version_of::<ProduceRequest>(PRODUCE_VERSION_MAX)?;
    let request = produce_request(shared, batches);
    if shared.config.acks == 0 {
        connection.send_only(&request, version).await?;
        return Ok(None);
    }
    Ok(Some((connection.start(&request, version).await?, version)))
}

fn produce_request(shared: &Shared, batches: &mut [ProducerBatch]) -> ProduceRequest {
    let mut topics: BTreeMap<String, Vec<PartitionProduceData>> = BTreeMap::new();
    for batch in batches {
        let data = PartitionProduceData::default()
            .with_index(batch.partition.partition)
            .with_records(Some(batch.seal()));
        topics.entry(batch.partition.topic.to_string()).or_default().push(data);
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_string(name)))
            .with_partition_data(partitions)
    });
    let timeout = shared.config.connection.request_timeout.as_millis();
    ProduceRequest::default()
        .with_transactional_id(None)
        .with_acks(shared.config.acks)
        .with_timeout_ms(i32::try_from(timeout).unwrap_or(i32::MAX))
        .with_topic_data(topics.collect())
}

fn settle_response(shared: &Shared, batches: Vec<ProducerBatch>, response: &ProduceResponse) {
    let mut answers: HashMap<TopicPartition, &PartitionProduceResponse> = HashMap::new();
    for topic in &response.responses {
        for partition in &topic.partition_responses {
            let name = TopicPartition::new(&*topic.name.0, partition.index);
            answers.insert(name, partition);
        }
    }
    settle(shared, batches, |batch| {
        let missing = || ClientError::new(ErrorKind::Malformed, "the answer lacks a partition");
        let answer = answers.get(&batch.partition).ok_or_else(missing)?;
        match ErrorCode::from_code(answer.error_code) {
            // The broker has the batch from an earlier attempt, but not its offset.
            ErrorCode::DuplicateSequenceNumber => {
                Ok(BatchResult { base_offset: -1, log_append_time: -1 })
            }
            ErrorCode::None => Ok(BatchResult {
                base_offset: answer.base_offset,
                log_append_time: answer.log_append_time_ms,
            }),
            code => {
                let text = answer.error_message.as_ref().map(|text| text.to_string());
                Err(ClientError::from_code(code, text))
            }
        }
    });
}

/// Ends batches, or puts them back to be sent again.
fn settle(
    shared: &Shared,
    batches: Vec<ProducerBatch>,
    result: impl Fn(&ProducerBatch) -> Result<BatchResult, ClientError>,
) {
    let now = clock::now();
    let mut state = shared.state.lock();
    for mut batch in batches {
        state.accumulator.landed(&batch.partition);
        let error = match result(&batch) {
            Ok(placed) => {
                state.accumulator.acknowledged(&batch);
                state.accumulator.finish(batch, now, Ok(placed));
                continue;
            }
            Err(error) => error,
        };
        if error.is_stale_metadata() {
            state.wants_metadata = true;
        }
        batch.may_be_in_the_log |= leaves_it_open(error.code());
        // The broker did not take it. In its turn, or in a new epoch, it will fit.
        let is_out_of_order = shared.config.idempotence
            && matches!(
                error.code(),
                ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId
            )
            && state.accumulator.out_of_order(&batch);
        let may_retry = (error.is_retriable() || is_out_of_order)
            && batch.attempts < shared.config.retries
            && now < batch.created + shared.config.delivery_timeout;
        if may_retry {
            log_retry(shared, &batch, &error);
            state.accumulator.put_back(batch, now);
            continue;
        }
        state.accumulator.gave_up(&batch);
        state.accumulator.finish(batch, now, Err(error));
    }
    drop(state);
    shared.ended.send_modify(|count| *count += 1);
    shared.wake.notify_one();
}

/// Whether an error does not tell whether the batch is in the log. NOT_LEADER_OR_FOLLOWER may come after an append, too, but
/// then the next leader has it in its memory, or not at all.
fn leaves_it_open(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NetworkException
            | ErrorCode::RequestTimedOut
            | ErrorCode::NotEnoughReplicasAfterAppend
            | ErrorCode::KafkaStorageError
    )
}

/// Puts batches back that no connection took, until their time is over: a leader that is away uses up no attempts, as with
/// Java's `Sender`, which waits until the node is ready.
fn settle_unsent(shared: &Shared, batches: Vec<ProducerBatch>, error: &ClientError) {
    if !error.is_retriable() && error.kind != ErrorKind::Timeout {
        return settle(shared, batches, |_| Err(error.clone()));
    }
    let now = clock::now();
    let mut state = shared.state.lock();
    state.wants_metadata = true;
    for batch in batches {
        debug!(partition = %batch.partition, %error, "not sent");
        state.accumulator.landed(&batch.partition);
        // What is over is given up by `give_up_expired`.
        state.accumulator.put_back_unsent(batch, now);
    }
    drop(state);
    shared.wake.notify_one();
}

/// As Java's `Sender` does; a lost connection is told by others.
fn log_retry(shared: &Shared, batch: &ProducerBatch, error: &ClientError) {
    if error.kind == ErrorKind::Disconnected {
        debug!(partition = %batch.partition, %error, "sending again");
        return;
    }
    let class = CLASS;
    let prefix = &shared.config.connection.log_prefix;
    let left = shared.config.retries.saturating_sub(batch.attempts + 1);
    warn!(
        class,
        "{prefix}Got error produce response with correlation id 0 on topic-partition {}, retrying ({left} attempts left). Error: {}",
        batch.partition,
        error.code().name()
    );
}

fn give_up_expired(shared: &Shared, now: Instant) {
    let mut state = shared.state.lock();
    let batches = state.accumulator.expire(now);
    if batches.is_empty() {
        return;
    }
    for batch in batches {
        let age = now.saturating_duration_since(batch.created);
        let error = expired(batch.record_count, &batch.partition, age);
        state.accumulator.gave_up(&batch);
        state.accumulator.finish(batch, now, Err(error));
    }
    drop(state);
    shared.ended.send_modify(|count| *count += 1);
}

/// Reads metadata again when it is stale, old, or lacks a leader; one reading at a time.
fn refresh_if_needed(
    shared: &Arc<Shared>,
    lacks_leader: bool,
    refreshing: &mut Option<JoinHandle<()>>,
) {
    if refreshing.as_ref().is_some_and(|task| !task.is_finished()) {
        return;
    }
    let is_old = |age: Duration| age >= shared.config.connection.metadata_max_age;
    let names: Vec<String> = {
        let mut state = shared.state.lock();
        let wants = std::mem::take(&mut state.wants_metadata);
        if !wants && !lacks_leader && !shared.cluster.metadata_age().is_some_and(is_old) {
            return;
        }
        state.topics.iter().cloned().collect()
    };
    let shared = shared.clone();
    *refreshing = Some(tokio::spawn(async move {
        let limit = shared.config.connection.request_timeout;
        let topics = Topics::Named(names, AutoCreate::Allowed);
        if let Err(error) = shared.cluster.refresh(&topics, clock::now() + limit).await {
            debug!(%error, "metadata not read");
        }
        sleep(shared.config.connection.retry_backoff).await;
        shared.wake.notify_one();
    }));
}

/// Asks for a producer id until there is one, or what waits has expired. Source: `TransactionManager`.
async fn obtain_identity(shared: &Shared) {
    let limit = shared.config.connection.request_timeout;
    let deadline = clock::now() + limit;
    let Some(connection) = shared.cluster.connect_any(deadline).await else { return };
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(i32::MAX)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    match connection.call(request).await {
        Ok(response) if response.error_code == ErrorCode::None as i16 => {
            shared.state.lock().identity = Some(Identity {
                id: ProducerId(response.producer_id.0),
                epoch: ProducerEpoch(response.producer_epoch),
            });
        }
        Ok(response) => {
            debug!(code = ErrorCode::from_code(response.error_code).name(), "no producer id");
            sleep(shared.config.connection.retry_backoff).await;
        }
        Err(error) => {
            debug!(%error, "no producer id");
            sleep(shared.config.connection.retry_backoff).await;
        }
    }
}
