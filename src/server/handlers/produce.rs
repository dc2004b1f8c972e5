//! Produce (API key 0): appends record batches to the partitions led here.
//! Source: `KafkaApis.handleProduceRequest`, `ReplicaManager.appendRecords`.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use common::{
    clock,
    error_code::ErrorCode,
    ids::{BrokerId, LeaderEpoch, Offset},
    topic,
};
use futures_util::FutureExt;
use kafka_protocol::messages::{
    self, ProduceRequest, ProduceResponse, TopicName,
    produce_request::PartitionProduceData,
    produce_response::{
        BatchIndexAndErrorMessage, LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
    },
};
use network::service::{Response, Step};
use record::{
    batch::{BatchError, Batches, LOG_OVERHEAD},
    entry::LENGTH_UP_TO_MAGIC,
    produce_version::{self, ProduceVersionError},
    validate::{self, CHECK_BYTES_MIN, Checked, Rules, ValidationError, Work},
};
use replication::partition::{ChangeWaiter, Commit, Partition, ProduceError};
use storage::{log_append::Appended as InLog, verification::VerificationGuard};

use crate::{
    broker::Broker,
    conversions::NoMemory,
    errors::{self, Refusal},
    handlers::{
        self,
        produce_verification::{self, Verdict},
        respond, text,
    },
    request_context::RequestContext,
};

/// The client id of Kafka's own tools, which alone may write internal topics. Source: `AdminUtils`.
const ADMIN_CLIENT_ID: &str = "__admin_client";

/// First version that carries exactly one batch for each partition.
const ONE_BATCH: i16 = 3;
/// First version that may carry every codec.
pub(super) const ANY_CODEC: i16 = 7;

/// The result for one partition, before the wait for acks.
pub(super) struct Outcome {
    pub(super) topic: usize,
    pub(super) index: i32,
    pub(super) result: Result<Written, Refusal>,
    /// Told with an error, where Kafka tells it.
    pub(super) log_start_offset: Offset,
}

/// What a client sends for a partition.
pub(super) struct Produced<'a> {
    pub(super) topic: &'a TopicName,
    pub(super) data: &'a PartitionProduceData,
    pub(super) guard: Option<VerificationGuard>,
    /// What the check of the records gave, where it had to wait for memory.
    pub(super) checked: Option<Result<Checked, ValidationError>>,
}

/// Records that are to be converted, for which no memory was free.
struct Unconverted {
    /// The place of their outcome.
    place: usize,
    data: PartitionProduceData,
    guard: Option<VerificationGuard>,
    rules: Rules,
}

/// Why nothing is written.
pub(super) enum NotWritten {
    Refused(Refusal),
    /// There was no memory to convert them by these rules.
    Unconverted(Rules),
}

pub(super) struct Written {
    first_offset: Offset,
    /// Where acks=all waits for the high watermark.
    end: Offset,
    epoch: LeaderEpoch,
    log_append_time: i64,
    record_count: u64,
    partition: Arc<Partition>,
}

/// Appends at once; the wait for acks, if any, is what is left. The first batch of a transaction may have to wait for the
/// transaction's coordinator before, and a batch that is to be converted for memory; what comes after it on the connection
/// waits as well.
pub(crate) fn start(broker: &Arc<Broker>, ctx: RequestContext, request: ProduceRequest) -> Step {
    let how = How::of(&request);
    let (names, named) = without_repeats(&request);
    let refused = refusal_of_all(&request);
    let refused = refused.or_else(|| refusal_of_old(broker, &ctx, &names, &named));
    let begun = match refused {
        Some(refusal) => Err(refusal),
        None => produce_verification::begin(broker, &ctx, &request, &names, &named),
    };
    let (mut verdicts, question) =
        begun.unwrap_or_else(|refusal| (vec![Verdict::Refused(refusal); named.len()], None));
    if let Some(question) = question {
        let asked = broker.clone();
        let mut answer = Box::pin(async move { question.ask(&asked).await });
        let Some(refused) = answer.as_mut().now_or_never() else {
            let named: Vec<_> =
                named.iter().map(|(topic, data)| (*topic, (*data).clone())).collect();
            let broker = broker.clone();
            let later = async move {
                produce_verification::refuse(&mut verdicts, answer.await);
                let named = named.iter().map(|(topic, data)| (*topic, data));
                let appended = append_all(&broker, &ctx, how.acks, &names, named, verdicts);
                let (names, outcomes) = convert(&broker, &ctx, how, names, appended).await;
                finish(&broker, &ctx, how, &names, outcomes).await
            };
            return Step::Wait { overlap: false, reply: Box::pin(later) };
        };
        produce_verification::refuse(&mut verdicts, refused);
    }
    let appended = append_all(broker, &ctx, how.acks, &names, named.into_iter(), verdicts);
    if !appended.unconverted.is_empty() {
        let broker = broker.clone();
        let later = async move {
            let (names, outcomes) = convert(&broker, &ctx, how, names, appended).await;
            finish(&broker, &ctx, how, &names, outcomes).await
        };
        return Step::Wait { overlap: false, reply: Box::pin(later) };
    }
    let outcomes = appended.outcomes;
    if how.acks == 0 {
        return finish_without_reply(&ctx, &names, &outcomes);
    }
    answer(broker, ctx, how, names, outcomes)
}

/// Answers what is appended, or waits for acks.
pub(super) fn answer(
    broker: &Arc<Broker>,
    ctx: RequestContext,
    how: How,
    names: Vec<TopicName>,
    mut outcomes: Vec<Outcome>,
) -> Step {
    if how.acks == 1 || all_decided(broker, &mut outcomes) {
        return Step::Reply(reply(broker, &ctx, &names, outcomes));
    }
    let broker = broker.clone();
    let wait = async move { finish(&broker, &ctx, how, &names, outcomes).await };
    Step::Wait { overlap: true, reply: Box::pin(wait) }
}

/// What the client wants to wait for.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) acks: i16,
    timeout: Duration,
}

impl How {
    pub(super) fn of(request: &ProduceRequest) -> How {
        let timeout_ms = u64::try_from(request.timeout_ms).unwrap_or(0);
        How { acks: request.acks, timeout: Duration::from_millis(timeout_ms) }
    }
}

/// What became of the partitions of a request so far.
struct Appended {
    outcomes: Vec<Outcome>,
    unconverted: Vec<Unconverted>,
}

fn append_all<'a>(
    broker: &Broker,
    ctx: &RequestContext,
    acks: i16,
    names: &[TopicName],
    named: impl Iterator<Item = (usize, &'a PartitionProduceData)>,
    verdicts: Vec<Verdict>,
) -> Appended {
    let mut appended =
        Appended { outcomes: Vec::with_capacity(verdicts.len()), unconverted: Vec::new() };
    for ((topic, data), verdict) in named.zip(verdicts) {
        let mut outcome = Outcome {
            topic,
            index: data.index,
            result: Err(Refusal::of(ErrorCode::None)),
            log_start_offset: Offset::NONE,
        };
        match verdict {
            Verdict::Refused(refusal) => outcome.result = Err(refusal),
            Verdict::Append(guard) => {
                let produced = Produced { topic: &names[topic], data, guard, checked: None };
                if let Some(rules) = append(broker, ctx, acks, produced, &mut outcome) {
                    let (place, data) = (appended.outcomes.len(), data.clone());
                    appended.unconverted.push(Unconverted { place, data, guard, rules });
                }
            }
        }
        appended.outcomes.push(outcome);
    }
    appended
}

/// Converts and appends what is left, as there is memory for it, until the client's time is up.
async fn convert(
    broker: &Arc<Broker>,
    ctx: &RequestContext,
    how: How,
    names: Vec<TopicName>,
    Appended { mut outcomes, unconverted }: Appended,
) -> (Vec<TopicName>, Vec<Outcome>) {
    if unconverted.is_empty() {
        return (names, outcomes);
    }
    let (broker, ctx) = (broker.clone(), ctx.clone());
    // A task of its own: a place among those who wait for memory must not be kept while the peer does not read.
    let converted = tokio::spawn(async move {
        let deadline = clock::now() + how.timeout;
        for Unconverted { place, data, guard, rules } in unconverted {
            let outcome = &mut outcomes[place];
            let records = data.records.clone().unwrap_or_default();
            let check = |memory| check_within(&records, &rules, memory);
            match broker.conversions.convert(records.len(), deadline, &check).await {
                Err(NoMemory) => {
                    let message = Some(NoMemory.to_string());
                    let code = ErrorCode::RequestTimedOut;
                    outcome.result = Err(Refusal { message, ..Refusal::of(code) });
                }
                Ok(checked) => {
                    let topic = &names[outcome.topic];
                    let produced = Produced { topic, data: &data, guard, checked: Some(checked) };
                    let again = append(&broker, &ctx, how.acks, produced, outcome);
                    assert!(again.is_none(), "checked records need no memory");
                }
            }
        }
        (names, outcomes)
    });
    converted.await.expect("appending does not panic")
}

/// The check with so much memory; nothing where that does not suffice.
fn check_within(
    records: &Bytes,
    rules: &Rules,
    memory: usize,
) -> Option<Result<Checked, ValidationError>> {
    match validate::check_within(records.clone(), rules, memory) {
        Err(ValidationError::NeedsMemory(_)) => None,
        checked => Some(checked),
    }
}

/// Waits for acks, and answers.
async fn finish(
    broker: &Broker,
    ctx: &RequestContext,
    how: How,
    names: &[TopicName],
    mut outcomes: Vec<Outcome>,
) -> Response {
    if how.acks == 0 {
        // The connection is not closed where something failed: by now other requests may be under way on it.
        return Response::none();
    }
    if how.acks == -1 {
        wait_for_acks(broker, &mut outcomes, how.timeout).await;
    }
    reply(broker, ctx, names, outcomes)
}

/// Why nothing of the request is looked at: the first batch of each partition is asked whether it is transactional, and
/// one that cannot be asked fails them all. Source: `RequestUtils.hasTransactionalRecords`.
pub(super) fn refusal_of_all(request: &ProduceRequest) -> Option<Refusal> {
    let all = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    for records in all.filter_map(|data| data.records.as_ref()) {
        match Batches::new(records).next() {
            Some(Ok(batch)) if batch.header.is_transactional => {
                let unnamed = request.transactional_id.is_none();
                let error = ErrorCode::TransactionalIdAuthorizationFailed;
                return unnamed.then(|| Refusal::of(error));
            }
            Some(Err(error @ (BatchError::SizeBelowMinimum(_) | BatchError::Magic(_)))) => {
                return Some(errors::of_unreadable_batch(error));
            }
            None if claims_too_much(records) => {
                return Some(Refusal::of(ErrorCode::UnknownServerError));
            }
            Some(Ok(_) | Err(_)) | None => {}
        }
    }
    None
}

/// What fails the others as well, once topics and partitions are known: in versions before 3, which may carry several
/// batches, one that cannot be read; in versions before 7, which ask for the codec, one with none that exists.
/// Source: `ReplicaManager.handleProduceAppend`, `ProduceRequest.validateRecords`.
fn refusal_of_old(
    broker: &Broker,
    ctx: &RequestContext,
    names: &[TopicName],
    named: &[(usize, &PartitionProduceData)],
) -> Option<Refusal> {
    if ctx.api_version >= ANY_CODEC {
        return None;
    }
    let snapshot = broker.metadata.load();
    let mut known = named
        .iter()
        .filter(|(topic, data)| snapshot.partition(&names[*topic], data.index).is_some());
    if ctx.api_version >= ONE_BATCH {
        let has_no_codec = known.any(|(_, data)| {
            let records = data.records.as_deref().unwrap_or_default();
            produce_version::check(ctx.api_version, records) == Err(ProduceVersionError::Codec)
        });
        return has_no_codec.then(|| Refusal::of(ErrorCode::UnknownServerError));
    }
    let records = known.filter_map(|(_, data)| data.records.as_ref());
    let unreadable = records.flat_map(|records| Batches::new(records)).find_map(|batch| {
        let error = batch.err()?;
        matches!(error, BatchError::SizeBelowMinimum(_) | BatchError::Magic(_)).then_some(error)
    });
    unreadable.map(errors::of_unreadable_batch)
}

/// Whether the size of the first batch is so large that Kafka's arithmetic on it fails.
fn claims_too_much(records: &Bytes) -> bool {
    let size: Option<&[u8; 4]> = records.get(8..LOG_OVERHEAD).and_then(<[u8]>::first_chunk);
    let is_whole = records.len() >= LENGTH_UP_TO_MAGIC;
    let too_much = |size: &[u8; 4]| i32::from_be_bytes(*size) > i32::MAX - LOG_OVERHEAD as i32;
    is_whole && size.is_some_and(too_much)
}

/// The topics and their partitions, each once: the records that are named last are the ones that count.
pub(super) fn without_repeats(
    request: &ProduceRequest,
) -> (Vec<TopicName>, Vec<(usize, &PartitionProduceData)>) {
    let mut names: Vec<TopicName> = Vec::with_capacity(request.topic_data.len());
    let mut named: Vec<(usize, &PartitionProduceData)> = Vec::new();
    if let [topic] = &request.topic_data[..]
        && let [data] = &topic.partition_data[..]
    {
        return (vec![topic.name.clone()], vec![(0, data)]);
    }
    let mut places: HashMap<(usize, i32), usize> = HashMap::new();
    let mut topics: HashMap<&str, usize> = HashMap::new();
    for topic in &request.topic_data {
        let number = *topics.entry(&topic.name).or_insert(names.len());
        if number == names.len() {
            names.push(topic.name.clone());
        }
        for data in &topic.partition_data {
            match places.entry((number, data.index)) {
                Entry::Occupied(place) => named[*place.get()].1 = data,
                Entry::Vacant(place) => {
                    place.insert(named.len());
                    named.push((number, data));
                }
            }
        }
    }
    (names, named)
}

/// Whether it is known what the answer is; an outcome that has failed meanwhile becomes its error.
fn decide(broker: &Broker, outcome: &mut Outcome) -> bool {
    let Ok(written) = &outcome.result else { return true };
    let error = match written.partition.commit_of(written.end, written.epoch) {
        Commit::Done => return true,
        Commit::Waiting => return false,
        Commit::NotEnoughReplicas => ErrorCode::NotEnoughReplicasAfterAppend,
        Commit::Lost => {
            // The partition may be gone altogether.
            let name = written.partition.topic_partition();
            let hosted = broker.hosted_partition(&name.topic, name.partition);
            hosted.err().unwrap_or(ErrorCode::NotLeaderOrFollower)
        }
    };
    outcome.result = Err(Refusal::of(error));
    true
}

fn all_decided(broker: &Broker, outcomes: &mut [Outcome]) -> bool {
    outcomes.iter_mut().all(|outcome| decide(broker, outcome))
}

/// Gives the rules where there was no memory to convert by them; the outcome is open then.
fn append(
    broker: &Broker,
    ctx: &RequestContext,
    acks: i16,
    produced: Produced<'_>,
    outcome: &mut Outcome,
) -> Option<Rules> {
    let topic = produced.topic;
    let bytes = produced.data.records.as_ref().map_or(0, Bytes::len);
    let result = match append_checked(broker, ctx, acks, produced) {
        Ok(written) => Ok(written),
        Err(NotWritten::Unconverted(rules)) => return Some(rules),
        Err(NotWritten::Refused(refusal)) => Err(refusal),
    };
    settle(broker, topic, bytes, result, outcome);
    None
}

/// Notes what became of the records of a partition.
pub(super) fn settle(
    broker: &Broker,
    topic: &TopicName,
    bytes: usize,
    result: Result<Written, Refusal>,
    outcome: &mut Outcome,
) {
    let metrics = &broker.metrics;
    match &result {
        Ok(written) => {
            metrics.bytes_in.mark(bytes as u64);
            metrics.messages_in.mark(written.record_count);
            outcome.log_start_offset = written.partition.log().start_offset();
        }
        Err(refusal) => {
            metrics.bytes_rejected.mark(bytes as u64);
            if refusal.tells_log_start {
                // These are the failures that Kafka counts: the others are the client's.
                metrics.failed_produce_requests.mark(1);
                let hosted = broker.replicas.get(topic, outcome.index);
                outcome.log_start_offset =
                    hosted.map_or(Offset::NONE, |partition| partition.log().start_offset());
            }
        }
    }
    outcome.result = result;
    metrics.produce_requests.mark(1);
}

/// Records that have passed every check but those of the log.
pub(super) struct Ready {
    pub(super) partition: Arc<Partition>,
    pub(super) records: Checked,
    /// Where acks=all.
    pub(super) in_sync_min: Option<usize>,
}

fn append_checked(
    broker: &Broker,
    ctx: &RequestContext,
    acks: i16,
    produced: Produced<'_>,
) -> Result<Written, NotWritten> {
    let guard = produced.guard;
    let Ready { partition, records, in_sync_min } = check_all(broker, ctx, acks, produced)?;
    let record_count = records.record_count();
    let appended = partition.append_as_leader(records, in_sync_min, guard);
    written(partition, record_count, appended).map_err(NotWritten::Refused)
}

pub(super) fn written(
    partition: Arc<Partition>,
    record_count: i32,
    appended: Result<(InLog, LeaderEpoch), ProduceError>,
) -> Result<Written, Refusal> {
    let (appended, epoch) = appended.map_err(|error| errors::of_produce(&error))?;
    Ok(Written {
        first_offset: appended.first_offset,
        end: appended.last_offset.plus(1),
        epoch,
        log_append_time: appended.log_append_time.0,
        record_count: u64::from(record_count.unsigned_abs()),
        partition,
    })
}

pub(super) fn check_all(
    broker: &Broker,
    ctx: &RequestContext,
    acks: i16,
    Produced { topic, data, checked, .. }: Produced<'_>,
) -> Result<Ready, NotWritten> {
    let refused = |code| NotWritten::Refused(Refusal::of(code));
    if broker.metadata.load().partition(topic, data.index).is_none() {
        return Err(refused(ErrorCode::UnknownTopicOrPartition));
    }
    let records = data.records.clone().unwrap_or_default();
    let allowed = produce_version::check(ctx.api_version, &records);
    allowed.map_err(|error| NotWritten::Refused(errors::of_produce_version(&error)))?;
    if !matches!(acks, -1..=1) {
        return Err(refused(ErrorCode::InvalidRequiredAcks));
    }
    if topic::is_internal(topic) && &*ctx.client_id != ADMIN_CLIENT_ID {
        return Err(refused(ErrorCode::InvalidTopicException));
    }
    let partition = broker.hosted_partition(topic, data.index).map_err(refused)?;
    if !partition.is_leader() {
        return Err(refused(ErrorCode::NotLeaderOrFollower));
    }
    let settings = partition.settings();
    let checked = match checked {
        Some(checked) => checked,
        None => {
            let rules = settings.rules(clock::wall_clock());
            check(broker, &records, &rules).ok_or(NotWritten::Unconverted(rules))?
        }
    };
    let of_validation = |error| errors::of_validation(&error, partition.topic_partition());
    let records = checked.map_err(|error| NotWritten::Refused(of_validation(error)))?;
    let in_sync_min = (acks == -1).then_some(settings.in_sync_replicas_min);
    Ok(Ready { partition, records, in_sync_min })
}

/// Checks records, and converts them where the rules demand it. What takes long leaves the other connections of this
/// thread to others. Nothing where that needs memory which is not free.
fn check(
    broker: &Broker,
    records: &Bytes,
    rules: &Rules,
) -> Option<Result<Checked, ValidationError>> {
    const LIGHT_BYTES_MAX: usize = 16 << 10;
    let without_memory = || check_within(records, rules, CHECK_BYTES_MIN);
    let checked = match validate::work(records, rules) {
        Work::Walk => return Some(validate::check(records.clone(), rules)),
        Work::Decompress if records.len() <= LIGHT_BYTES_MAX => without_memory(),
        Work::Decompress => tokio::task::block_in_place(without_memory),
        Work::Rewrite => None,
    };
    let convert = |memory| check_within(records, rules, memory);
    checked.or_else(|| broker.conversions.try_convert(records.len(), &convert))
}

/// Waits until every in-sync replica has the records, or the time is up.
async fn wait_for_acks(broker: &Broker, outcomes: &mut [Outcome], timeout: Duration) {
    let written = outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok());
    let waiter = ChangeWaiter::new(written.map(|written| written.partition.clone()).collect());
    let deadline = clock::now() + timeout;
    loop {
        if all_decided(broker, outcomes) {
            return;
        }
        if tokio::time::timeout_at(deadline.into(), waiter.changed()).await.is_err() {
            for outcome in outcomes.iter_mut() {
                if !decide(broker, outcome) {
                    outcome.result = Err(Refusal::of(ErrorCode::RequestTimedOut));
                }
            }
            return;
        }
    }
}

/// acks=0: nobody waits for an answer, so that an error closes the connection, as Kafka does.
fn finish_without_reply(ctx: &RequestContext, names: &[TopicName], outcomes: &[Outcome]) -> Step {
    let failed = outcomes.iter().filter_map(|outcome| {
        let refusal = outcome.result.as_ref().err()?;
        Some(format!("{}-{} -> {}", &*names[outcome.topic], outcome.index, refusal.code))
    });
    let failed: Vec<String> = failed.collect();
    if failed.is_empty() {
        return Step::Reply(Response::none());
    }
    Step::Close(format!(
        "Closing connection due to error during produce request with correlation id {} from client id {} with ack=0; \
         topic and partition to errors: {}",
        ctx.correlation_id,
        &*ctx.client_id,
        failed.join(", ")
    ))
}

fn reply(
    broker: &Broker,
    ctx: &RequestContext,
    names: &[TopicName],
    outcomes: Vec<Outcome>,
) -> Response {
    let version = ctx.api_version;
    let mut topics: Vec<TopicProduceResponse> =
        names.iter().map(|name| TopicProduceResponse::default().with_name(name.clone())).collect();
    let mut leaders = Vec::new();
    for outcome in outcomes {
        let mut answer = partition_answer(version, &outcome);
        let moved = matches!(&outcome.result, Err(refusal) if refusal.code == ErrorCode::NotLeaderOrFollower);
        if moved && version >= 10 {
            let (id, epoch) = broker.known_leader(&names[outcome.topic], outcome.index);
            answer.current_leader = leader_of(id, epoch);
            leaders.push(id);
        }
        topics[outcome.topic].partition_responses.push(answer);
    }
    topics.retain(|topic| !topic.partition_responses.is_empty());
    let mut response = ProduceResponse::default().with_responses(topics);
    if !leaders.is_empty() {
        response.node_endpoints = handlers::node_endpoints(broker, ctx, &leaders)
            .into_iter()
            .map(|endpoint| {
                messages::produce_response::NodeEndpoint::default()
                    .with_node_id(messages::BrokerId(endpoint.id.0))
                    .with_host(text(&endpoint.host))
                    .with_port(endpoint.port)
                    .with_rack(endpoint.rack.as_deref().map(text))
            })
            .collect();
    }
    respond(ctx, &response)
}

fn leader_of(id: BrokerId, epoch: LeaderEpoch) -> LeaderIdAndEpoch {
    LeaderIdAndEpoch::default().with_leader_id(messages::BrokerId(id.0)).with_leader_epoch(epoch.0)
}

fn partition_answer(version: i16, outcome: &Outcome) -> PartitionProduceResponse {
    let answer = PartitionProduceResponse::default().with_index(outcome.index);
    let answer = if version >= 5 {
        answer.with_log_start_offset(outcome.log_start_offset.0)
    } else {
        answer
    };
    let refusal = match &outcome.result {
        Ok(written) => {
            let answer = answer.with_base_offset(written.first_offset.0);
            return answer.with_log_append_time_ms(written.log_append_time);
        }
        Err(refusal) => refusal,
    };
    let answer = answer.with_error_code(refusal.code.code()).with_base_offset(-1);
    let answer = answer.with_log_append_time_ms(-1);
    if version < 8 {
        return answer;
    }
    let errors = refusal.record_errors.iter().map(|(index, message)| {
        BatchIndexAndErrorMessage::default()
            .with_batch_index(*index)
            .with_batch_index_error_message(message.as_deref().map(text))
    });
    answer
        .with_record_errors(errors.collect())
        .with_error_message(refusal.message.as_deref().map(text))
}
