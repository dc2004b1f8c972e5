//! Fetch (API key 1): reads partitions into file regions, waits for enough bytes, keeps sessions.
//! Source: `KafkaApis.handleFetchRequest`, `ReplicaManager.fetchMessages`, `Partition.fetchRecords`.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use common::{
    clock,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, LeaderEpoch, Offset},
    topic::Uuid,
};
use kafka_protocol::{messages::FetchRequest, protocol::StrBytes};
use network::service::{Response, Step};
use partition::leader::{FollowerFetch, is_one_log};
use record::{
    batch::{Batch, Batches},
    compression::{BrokerCompression, Codec, DECOMPRESSED_BYTES_MAX},
    convert::{OldFormat, down_convert},
};
use replication::{
    fetch_session::{
        Answered, FetchContext, FetchTarget, PartitionKey, SessionRequest, Target, TopicKey,
    },
    partition::{AccessError, Partition},
    replica_manager::Access,
};
use storage::log_read::Region;

use crate::{
    broker::Broker,
    conversions::NoMemory,
    errors,
    handlers::{
        self,
        fetch_response::{FetchResponse, PartitionAnswer, Records, TopicAnswer, encode},
        preferred_replica,
    },
    request_context::RequestContext,
};

/// First version with sessions. Source: KIP-227.
const SESSIONS: i16 = 7;
/// First version that names topics by id. Source: KIP-516.
const TOPIC_IDS: i16 = 13;
/// First version that may carry zstd.
const ZSTD: i16 = 10;
/// First version whose clients know KAFKA_STORAGE_ERROR.
const STORAGE_ERROR: i16 = 6;
/// First version where a consumer may read from a follower. Source: KIP-392.
const FOLLOWER_READS: i16 = 11;

/// How long records for an old client wait for the memory to convert them. Consumers of that time wait for 30 seconds.
const CONVERSION_WAIT_MAX: Duration = Duration::from_secs(10);

/// What a fetch asks, beside its partitions.
#[derive(Clone, Copy)]
struct Terms {
    /// The follower that asks; `BrokerId(-1)` for a consumer.
    replica: BrokerId,
    /// The follower's registration; -1 where it does not say.
    replica_epoch: BrokerEpoch,
    read_committed: bool,
    bytes_min: usize,
    /// Below zero, as a client may send it, the first partition that is read fails.
    bytes_max: i64,
    /// Versions before 3 keep to the limits even where not one batch fits.
    hard_limit: bool,
    /// The format of a client that reads no record batches.
    old_format: Option<OldFormat>,
    version: i16,
}

/// Who asks, and what.
struct Asker {
    ctx: RequestContext,
    terms: Terms,
    /// The rack of a consumer; empty where it does not say.
    rack: StrBytes,
}

/// One pass over the partitions.
struct Pass {
    answers: Vec<PartitionAnswer>,
    /// For each answer, whether the partition has no more for the asker until it changes.
    settled: Vec<bool>,
    bytes: usize,
    /// An error or a divergence: answered without waiting.
    must_answer: bool,
}

pub(crate) fn start(broker: &Arc<Broker>, ctx: RequestContext, request: FetchRequest) -> Step {
    let terms = terms(broker, &ctx, &request);
    let mut context = match begin(broker, &ctx, &request, terms) {
        Ok(context) => context,
        Err(error) => {
            let response = FetchResponse { error: Some(error), ..FetchResponse::default() };
            return Step::Reply(Response::of_pieces(encode(&ctx, response)));
        }
    };
    let no_such_isolation = terms.version >= 4 && !matches!(request.isolation_level, 0 | 1);
    if no_such_isolation && context.targets().iter().any(|target| is_known(broker, &target.key)) {
        return Step::Reply(fail_whole(&ctx, &request, ErrorCode::UnknownServerError));
    }
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let asker = Asker { ctx, terms, rack: request.rack_id.clone() };
    let pass = read_all(broker, &context, &asker);
    let is_enough =
        pass.must_answer || pass.bytes >= terms.bytes_min || wait.is_zero() || context.is_empty();
    if is_enough && terms.old_format.is_none() {
        return Step::Reply(finish(broker, &asker, &context, pass));
    }
    let broker = broker.clone();
    let reply = async move {
        let mut pass = match is_enough {
            true => pass,
            false => wait_for_bytes(&broker, &mut context, &asker, wait).await,
        };
        if let Some(format) = terms.old_format {
            convert_all(&broker, &context, terms, format, &mut pass).await;
        }
        finish(&broker, &asker, &context, pass)
    };
    Step::Wait { overlap: true, reply: Box::pin(reply) }
}

fn is_known(broker: &Broker, key: &PartitionKey) -> bool {
    let snapshot = broker.metadata.load();
    match &key.topic {
        TopicKey::Name(name) => snapshot.partition(name, key.partition).is_some(),
        TopicKey::Id(id) => snapshot
            .topic_by_id(*id)
            .is_some_and(|topic| snapshot.partition(&topic.name, key.partition).is_some()),
    }
}

/// The request fails as a whole: told once, and for old clients at every partition. Source: `FetchRequest.getErrorResponse`.
fn fail_whole(ctx: &RequestContext, request: &FetchRequest, error: ErrorCode) -> Response {
    let named = if ctx.api_version < TOPIC_IDS { &request.topics[..] } else { &[] };
    let topics = named.iter().map(|topic| {
        let refused = topic.partitions.iter().map(|asked| refused(asked.partition, error));
        TopicAnswer {
            name: topic.topic.as_str().into(),
            id: Uuid::ZERO,
            partitions: refused.collect(),
        }
    });
    let response = FetchResponse {
        error: Some(error),
        session_id: request.session_id,
        topics: topics.collect(),
        ..FetchResponse::default()
    };
    Response::of_pieces(encode(ctx, response))
}

/// An error without records, not even empty ones: how Kafka answers where it does not get as far as reading.
fn refused(partition: i32, error: ErrorCode) -> PartitionAnswer {
    PartitionAnswer {
        records: Records::Null,
        aborted_transactions: Some(Vec::new()),
        ..PartitionAnswer::failed(partition, error)
    }
}

fn terms(broker: &Broker, ctx: &RequestContext, request: &FetchRequest) -> Terms {
    let version = ctx.api_version;
    let replica = if version >= 15 { request.replica_state.replica_id } else { request.replica_id };
    let limit = i64::from(broker.config.fetch_max_bytes);
    let from_follower = replica.0 >= 0;
    let asked = i64::from(if version < 3 { i32::MAX } else { request.max_bytes });
    // Only consumers are bounded by `fetch.max.bytes`.
    let bytes_max = if from_follower { asked } else { asked.min(limit) };
    let old_format = match version {
        0 | 1 => Some(OldFormat::Magic0),
        2 | 3 => Some(OldFormat::Magic1),
        _ => None,
    };
    let bytes_max = match old_format {
        // What is converted is read into memory.
        Some(_) => bytes_max.min(DECOMPRESSED_BYTES_MAX as i64),
        None => bytes_max,
    };
    Terms {
        replica: BrokerId(replica.0),
        replica_epoch: BrokerEpoch(if version >= 15 {
            request.replica_state.replica_epoch
        } else {
            -1
        }),
        read_committed: version >= 4 && request.isolation_level == 1,
        bytes_min: usize::try_from(i64::from(request.min_bytes).min(bytes_max)).unwrap_or(0),
        bytes_max,
        hard_limit: version <= 2,
        old_format,
        version,
    }
}

fn begin(
    broker: &Broker,
    ctx: &RequestContext,
    request: &FetchRequest,
    terms: Terms,
) -> Result<FetchContext, ErrorCode> {
    let by_id = ctx.api_version >= TOPIC_IDS;
    let key = |name: &str, id: uuid::Uuid, partition: i32| {
        let topic =
            if by_id { TopicKey::Id(Uuid(id.as_u128())) } else { TopicKey::Name(name.into()) };
        PartitionKey { topic, partition }
    };
    let mut targets = Vec::new();
    for topic in &request.topics {
        for asked in &topic.partitions {
            let target = FetchTarget {
                current_leader_epoch: epoch(asked.current_leader_epoch),
                fetch_offset: Offset(asked.fetch_offset),
                last_fetched_epoch: epoch(asked.last_fetched_epoch),
                log_start_offset: Offset(asked.log_start_offset),
                max_bytes: asked.partition_max_bytes,
            };
            targets.push((key(&topic.topic, topic.topic_id, asked.partition), target));
        }
    }
    let targets = without_repeats(targets);
    if ctx.api_version < SESSIONS {
        return Ok(FetchContext::sessionless(targets, &|key| hosted(broker, key)));
    }
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let keys = topic.partitions.iter().map(|one| key(&topic.topic, topic.topic_id, *one));
        forgotten.extend(keys);
    }
    let session = SessionRequest {
        session_id: request.session_id,
        epoch: request.session_epoch,
        uses_topic_ids: by_id,
        from_follower: terms.replica.0 >= 0,
    };
    let find = |key: &PartitionKey| hosted(broker, key);
    broker.fetch_sessions.begin(session, targets, &forgotten, clock::now(), &find)
}

/// Any number below zero stands for none. Source: `FetchRequest.optionalEpoch`.
fn epoch(number: i32) -> LeaderEpoch {
    LeaderEpoch(number.max(LeaderEpoch::NONE.0))
}

/// A partition that is named twice is answered once: in the first one's place, as the last one asks.
fn without_repeats(targets: Vec<(PartitionKey, FetchTarget)>) -> Vec<(PartitionKey, FetchTarget)> {
    if targets.len() < 2 {
        return targets;
    }
    let mut places: HashMap<PartitionKey, usize> = HashMap::new();
    let mut unique: Vec<(PartitionKey, FetchTarget)> = Vec::with_capacity(targets.len());
    for (key, target) in targets {
        match places.entry(key.clone()) {
            Entry::Occupied(place) => unique[*place.get()].1 = target,
            Entry::Vacant(place) => {
                place.insert(unique.len());
                unique.push((key, target));
            }
        }
    }
    unique
}

fn read_all(broker: &Broker, context: &FetchContext, asker: &Asker) -> Pass {
    let terms = asker.terms;
    let targets = context.targets();
    let mut pass = Pass {
        answers: Vec::with_capacity(targets.len()),
        settled: Vec::with_capacity(targets.len()),
        bytes: 0,
        must_answer: false,
    };
    let mut is_first = true;
    for Target { key, asked: target, partition, .. } in targets {
        let taken = i64::try_from(pass.bytes).unwrap_or(i64::MAX);
        let left = if is_first { terms.bytes_max } else { (terms.bytes_max - taken).max(0) };
        let first = pass.bytes == 0 && !terms.hard_limit;
        let mut unreadable = None;
        let answer = match partition {
            Ok(partition) => {
                unreadable = unreadable_format(partition, terms);
                is_first = false;
                let room = Room { left, first };
                read(broker, asker, partition, key.partition, target, room)
            }
            Err(error) => Err(*error),
        };
        let is_settled = answer.as_ref().is_ok_and(|(_, is_settled)| *is_settled);
        pass.settled.push(is_settled && unreadable.is_none());
        let answer = answer.map(|(answer, _)| answer);
        let mut answer = answer.unwrap_or_else(|error| failed(broker, key, error, terms.version));
        pass.must_answer |= !answer.error.is_none() || is_special(&answer);
        // The limits are about what is read, whatever becomes of it.
        pass.bytes += answer.records.len();
        if let Some(error) = unreadable {
            answer = refused(key.partition, error);
        }
        pass.answers.push(answer);
    }
    pass
}

fn hosted(broker: &Broker, key: &PartitionKey) -> Result<Arc<Partition>, ErrorCode> {
    match &key.topic {
        TopicKey::Name(name) => broker.hosted_partition(name, key.partition),
        TopicKey::Id(id) => {
            // A follower may have heard of a new topic before this broker's metadata have.
            let known = broker.metadata.load().topic_by_id(*id).map(|topic| topic.name.clone());
            let name = known.or_else(|| broker.replicas.topic_name(*id));
            let name = name.ok_or(ErrorCode::UnknownTopicId)?;
            let partition = broker.hosted_partition(&name, key.partition)?;
            if partition.topic_id().is_some_and(|ours| ours != *id) {
                return Err(ErrorCode::InconsistentTopicId);
            }
            Ok(partition)
        }
    }
}

/// Whether a partition is refused before it is looked for among those that are here: Kafka puts these answers last.
fn is_unknown(error: ErrorCode) -> bool {
    matches!(error, ErrorCode::UnknownTopicId | ErrorCode::UnknownTopicOrPartition)
}

/// Why a client of this version may not read the partition at all, whatever is in it.
fn unreadable_format(partition: &Partition, terms: Terms) -> Option<ErrorCode> {
    if terms.version >= ZSTD {
        return None;
    }
    let settings = partition.settings();
    let stores_zstd =
        matches!(settings.compression, BrokerCompression::Always(to) if to.codec() == Codec::Zstd);
    if stores_zstd {
        return Some(ErrorCode::UnsupportedCompressionType);
    }
    let from_follower = terms.replica.0 >= 0;
    let must_convert = terms.old_format.is_some() && !from_follower;
    (must_convert && !settings.down_conversion).then_some(ErrorCode::UnsupportedVersion)
}

fn failed(broker: &Broker, key: &PartitionKey, error: ErrorCode, version: i16) -> PartitionAnswer {
    // Old clients do not know the code, and would not retry.
    let renamed = error == ErrorCode::KafkaStorageError && version < STORAGE_ERROR;
    let error = if renamed { ErrorCode::NotLeaderOrFollower } else { error };
    if error == ErrorCode::UnsupportedCompressionType {
        return refused(key.partition, error);
    }
    let mut answer = PartitionAnswer::failed(key.partition, error);
    if is_unknown(error) {
        answer.aborted_transactions = Some(Vec::new());
    }
    let moved = matches!(error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
    if moved && version >= 16 {
        let name = match &key.topic {
            TopicKey::Name(name) => Some(name.clone()),
            TopicKey::Id(id) => {
                broker.metadata.load().topic_by_id(*id).map(|topic| topic.name.clone())
            }
        };
        answer.current_leader = name.map(|name| broker.known_leader(&name, key.partition));
    }
    answer
}

/// Bytes that an answer may still have, and whether it is the first to have any.
#[derive(Clone, Copy)]
struct Room {
    left: i64,
    first: bool,
}

/// Whether an answer says more than records: where the logs part, or who had better be asked.
fn is_special(answer: &PartitionAnswer) -> bool {
    answer.diverging_epoch.is_some() || answer.preferred_read_replica != BrokerId::NONE
}

/// An answer without records.
fn nothing(partition: &Partition, index: i32, terms: Terms) -> PartitionAnswer {
    let log = partition.log();
    PartitionAnswer {
        partition: index,
        error: ErrorCode::None,
        high_watermark: log.high_watermark(),
        last_stable_offset: log.last_stable_offset(),
        log_start_offset: log.start_offset(),
        diverging_epoch: None,
        current_leader: None,
        aborted_transactions: terms.read_committed.then(Vec::new),
        preferred_read_replica: BrokerId::NONE,
        records: Records::Memory(Bytes::new()),
    }
}

/// Reads one partition. Says with the answer whether the asker now has all that it may have.
fn read(
    broker: &Broker,
    asker: &Asker,
    partition: &Arc<Partition>,
    index: i32,
    target: &FetchTarget,
    Room { left, first }: Room,
) -> Result<(PartitionAnswer, bool), ErrorCode> {
    let terms = asker.terms;
    let from_follower = terms.replica.0 >= 0;
    let may_be_follower = terms.version >= FOLLOWER_READS && !from_follower;
    let access = if may_be_follower { Access::AnyReplica } else { Access::LeaderOnly };
    let epoch = target.current_leader_epoch;
    let hands_over =
        from_follower && partition.hands_over_to(terms.replica, epoch, target.fetch_offset);
    if !hands_over {
        match partition.check_access(access, epoch) {
            // Whoever is ahead of it must not be told to cut off what is about to come. One with other records is not told
            // the high watermark either: it would take them for committed.
            Err(AccessError::TakingOver) => {
                let (epoch, log) = (target.last_fetched_epoch, partition.log());
                let asked = (epoch, target.fetch_offset);
                let known = log.end_offset_for_epoch(epoch);
                let fits = epoch == LeaderEpoch::NONE || is_one_log(asked, known, log.end_offset());
                return match fits || !from_follower {
                    true => Ok((nothing(partition, index, terms), false)),
                    false => Err(ErrorCode::NotLeaderOrFollower),
                };
            }
            checked => checked.map_err(errors::of_access)?,
        };
    }
    if from_follower && !hands_over && !partition.has_replica(terms.replica) {
        // Where the epoch is known to be right, it is the assignment that the follower is ahead of.
        let told_epoch = epoch != LeaderEpoch::NONE;
        return Err(if told_epoch {
            ErrorCode::UnknownLeaderEpoch
        } else {
            ErrorCode::NotLeaderOrFollower
        });
    }
    let log = partition.log();
    let mut answer = nothing(partition, index, terms);
    if may_be_follower {
        let (ctx, rack) = (&asker.ctx, &*asker.rack);
        let preferred =
            preferred_replica::preferred(broker, ctx, partition, rack, target.fetch_offset);
        if let Some(preferred) = preferred {
            answer.preferred_read_replica = preferred;
            return Ok((answer, false));
        }
    }
    if target.last_fetched_epoch != LeaderEpoch::NONE
        && let Some(diverging) = diverging(partition, target)?
    {
        answer.diverging_epoch = Some(diverging);
        return Ok((answer, false));
    }
    let end = log.end_offset();
    let up_to = if from_follower {
        end
    } else if terms.read_committed {
        answer.last_stable_offset
    } else {
        answer.high_watermark
    };
    let limit = left.min(i64::from(target.max_bytes));
    let may_read = (answer.log_start_offset..up_to).contains(&target.fetch_offset);
    if limit < 0 && may_read {
        // Kafka fails on the number, where it comes to use it.
        return Err(ErrorCode::UnknownServerError);
    }
    let limit = usize::try_from(limit).unwrap_or(0);
    let read = log.read(target.fetch_offset, limit, first, up_to);
    let read = read.map_err(|error| errors::of_log(&error))?;
    let mut is_settled = target.fetch_offset >= up_to;
    let mut is_held_back = false;
    if from_follower {
        // One that is not in sync is looked at again, for it may come in without any change in the log.
        let is_in_sync = partition.follower_fetched(&FollowerFetch {
            id: terms.replica,
            offset: target.fetch_offset,
            start: target.log_start_offset,
            broker_epoch: terms.replica_epoch,
            leader_end: end,
        });
        is_settled &= is_in_sync;
        is_held_back = !is_in_sync && !hands_over && is_over_quota(partition);
        answer.high_watermark = log.high_watermark();
    }
    // From version 3 on a first batch that does not fit is left out, so that the client does not take it for whole.
    let is_cut = read.first_batch_incomplete && !terms.hard_limit;
    let is_empty = read.bytes == 0 || is_cut || is_held_back;
    if terms.read_committed && !is_empty {
        let upper = log.upper_bound(&read).map_err(|error| errors::of_log(&error))?;
        let aborted = log.aborted_transactions(target.fetch_offset, upper);
        let aborted = aborted.map_err(|error| errors::of_log(&error))?;
        let pairs = aborted.into_iter().map(|aborted| (aborted.producer_id, aborted.first_offset));
        answer.aborted_transactions = Some(pairs.collect());
    }
    if !is_empty {
        answer.records = Records::Files(read.regions);
    }
    Ok((answer, is_settled))
}

/// Whether a replica that is throttled, and not in sync, gets nothing now. Source: `ReplicaManager.shouldLeaderThrottle`.
fn is_over_quota(partition: &Partition) -> bool {
    let quota = &partition.surroundings().leader_quota;
    partition.is_throttled_as_leader() && quota.is_exceeded(clock::now())
}

/// Counts what followers are sent. Of throttled partitions all of it, those in sync as well.
fn count_replication(broker: &Broker, context: &FetchContext, pass: &Pass) {
    let surroundings = broker.replicas.surroundings();
    surroundings.metrics.replication_bytes_out.mark(pass.bytes as u64);
    let throttled = context.targets().iter().zip(&pass.answers).filter(|(target, _)| {
        target.partition.as_ref().is_ok_and(|partition| partition.is_throttled_as_leader())
    });
    let bytes: usize = throttled.map(|(_, answer)| answer.records.len()).sum();
    surroundings.leader_quota.record(bytes as u64, clock::now());
}

/// Where the asker's log and this one part, if they do. Source: KIP-595.
fn diverging(
    partition: &Partition,
    target: &FetchTarget,
) -> Result<Option<(LeaderEpoch, Offset)>, ErrorCode> {
    let end = partition.log().end_offset_for_epoch(target.last_fetched_epoch);
    let (epoch, end) = end.ok_or(ErrorCode::OffsetOutOfRange)?;
    // Whoever asks for what is deleted here begins anew, whether the logs part or not.
    if target.fetch_offset < partition.log().start_offset() {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    let parted = epoch < target.last_fetched_epoch || end < target.fetch_offset;
    Ok(parted.then_some((epoch, end)))
}

/// What becomes of records that an old client asks for.
enum Converted {
    /// They are old enough.
    AsTheyAre,
    Records(Vec<u8>),
    Failed(ErrorCode),
}

/// Old clients get old formats; only then are records read into memory. Where that stays short they get no records, as if
/// none had come: such clients ask again, and know of no error that says so.
async fn convert_all(
    broker: &Broker,
    context: &FetchContext,
    terms: Terms,
    format: OldFormat,
    pass: &mut Pass,
) {
    let deadline = clock::now() + CONVERSION_WAIT_MAX;
    let bytes = pass.answers.iter().map(|answer| answer.records.len()).sum();
    let mut room = broker.conversions.room(bytes, deadline).await;
    for (answer, target) in pass.answers.iter_mut().zip(context.targets()) {
        let Records::Files(regions) = &answer.records else { continue };
        let none = Records::Memory(Bytes::new());
        let Ok(room) = &mut room else {
            answer.records = none;
            continue;
        };
        let from = target.asked.fetch_offset;
        let convert = |buffer_bytes| convert(regions, format, from, buffer_bytes);
        let read_bytes = answer.records.len();
        match broker.conversions.convert(read_bytes, deadline, &convert).await {
            Ok(Converted::AsTheyAre) => {}
            Ok(Converted::Records(converted)) => {
                answer.records = room.put(converted).map_or(none, Records::Memory);
            }
            Ok(Converted::Failed(error)) => {
                *answer = failed(broker, &target.key, error, terms.version);
            }
            Err(NoMemory) => answer.records = none,
        }
    }
}

/// Nothing where the buffers do not suffice.
fn convert(
    regions: &[Region],
    format: OldFormat,
    from: Offset,
    buffer_bytes: usize,
) -> Option<Converted> {
    let bytes = match handlers::read_regions(regions) {
        Ok(bytes) => bytes,
        Err(error) => return Some(Converted::Failed(error)),
    };
    let is_newer = |batch: Batch| batch.header.magic > format.magic();
    if !Batches::new(&bytes).flatten().any(is_newer) {
        return Some(Converted::AsTheyAre);
    }
    match down_convert(&bytes, format, from, buffer_bytes) {
        Ok(converted) => Some(Converted::Records(converted)),
        Err(error) if error.needs_more() && buffer_bytes < DECOMPRESSED_BYTES_MAX => None,
        Err(error) => Some(Converted::Failed(errors::of_conversion(&error))),
    }
}

async fn wait_for_bytes(
    broker: &Broker,
    context: &mut FetchContext,
    asker: &Asker,
    wait: Duration,
) -> Pass {
    let terms = asker.terms;
    let deadline = clock::now() + wait;
    // All followers are answered together: an idle one asks again at once, so their fetches end at one tick from then on.
    let is_follower = terms.replica.0 >= 0;
    let deadline = if is_follower { clock::next_tick(deadline) } else { deadline };
    let waiter = context.wait();
    loop {
        // What changed before the waiter was registered is seen here.
        broker.fetch_sessions.look_again(context, &|key| hosted(broker, key));
        let pass = read_all(broker, context, asker);
        if pass.must_answer || pass.bytes >= terms.bytes_min {
            return pass;
        }
        if tokio::time::timeout_at(deadline.into(), waiter.changed()).await.is_err() {
            return pass;
        }
    }
}

fn finish(broker: &Broker, asker: &Asker, context: &FetchContext, pass: Pass) -> Response {
    let Asker { ctx, terms, .. } = asker;
    let is_consumer = terms.replica.0 < 0;
    let failed = pass.answers.iter().filter(|answer| !answer.error.is_none()).count();
    broker.metrics.fetch_requests.mark(pass.answers.len() as u64);
    broker.metrics.failed_fetch_requests.mark(failed as u64);
    match is_consumer {
        true => broker.metrics.bytes_out.mark(pass.bytes as u64),
        false => count_replication(broker, context, &pass),
    }
    let answered: Vec<Answered> = pass
        .answers
        .iter()
        .zip(&pass.settled)
        .map(|(answer, is_settled)| Answered {
            has_records: answer.records.len() > 0,
            high_watermark: answer.high_watermark,
            log_start_offset: answer.log_start_offset,
            is_error: !answer.error.is_none(),
            is_special: is_special(answer),
            is_settled: *is_settled,
        })
        .collect();
    let random_id = || broker.random_session_id();
    let sent = broker.fetch_sessions.finish(context, &answered, clock::now(), &random_id);
    let mut response = FetchResponse::default();
    match sent {
        Err(error) => response.error = Some(error),
        Ok(sent) => {
            response.session_id = sent.session_id;
            let answers = context.targets().iter().zip(pass.answers).zip(sent.send);
            let sent = answers.filter(|(_, send)| *send).map(|(answer, _)| answer);
            let (unknown, known): (Vec<_>, Vec<_>) =
                sent.partition(|(_, answer)| is_unknown(answer.error));
            for (target, answer) in known.into_iter().chain(unknown) {
                put(&mut response.topics, &target.key, answer);
            }
        }
    }
    if ctx.api_version >= 16 {
        let all = response.topics.iter().flat_map(|topic| &topic.partitions);
        let leaders: Vec<BrokerId> =
            all.filter_map(|answer| Some(answer.current_leader?.0)).collect();
        response.node_endpoints = handlers::node_endpoints(broker, ctx, &leaders);
    }
    Response::of_pieces(encode(ctx, response))
}

/// Adds an answer to its topic's: neighbours of one topic share an entry.
fn put(topics: &mut Vec<TopicAnswer>, key: &PartitionKey, answer: PartitionAnswer) {
    let (name, id) = match &key.topic {
        TopicKey::Name(name) => (name.clone(), Uuid::ZERO),
        TopicKey::Id(id) => ("".into(), *id),
    };
    match topics.last_mut() {
        Some(last) if last.name == name && last.id == id => last.partitions.push(answer),
        _ => topics.push(TopicAnswer { name, id, partitions: vec![answer] }),
    }
}
