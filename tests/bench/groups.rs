//! Groups and transactions as the load generator sees them: members that join, frames that it then sends over and over.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    sync::Barrier,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use common::{
    clock,
    ids::{ProducerEpoch, ProducerId, Timestamp},
};
use kafka_protocol::{
    messages::{
        AddPartitionsToTxnRequest, ApiKey, EndTxnRequest, FindCoordinatorRequest, GroupId,
        HeartbeatRequest, InitProducerIdRequest, InitProducerIdResponse, JoinGroupRequest,
        JoinGroupResponse, OffsetCommitRequest, ProduceRequest, SyncGroupRequest, TransactionalId,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        join_group_request::JoinGroupRequestProtocol,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        produce_request::{PartitionProduceData, TopicProduceData},
        sync_group_request::SyncGroupRequestAssignment,
    },
    protocol::{Decodable, StrBytes},
};
use record::{build::BatchBuilder, compression::Compression};

use crate::{
    Options,
    load::{Requests, ask, read_frame},
    process::cpu_of,
    requests::{self, frame, topic_name},
    targets::Target,
};

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Asks where coordinators are until they are there: the first question makes their topics.
pub(crate) fn await_coordinators(address: SocketAddr) -> Result<(), String> {
    for key_type in [0, 1] {
        let request =
            FindCoordinatorRequest::default().with_key(text("any")).with_key_type(key_type);
        let frame = frame(ApiKey::FindCoordinator, 2, &request);
        ask_until(address, &frame, |answer| match answer.get(8..10) {
            Some([0, 0]) => Ok(()),
            other => Err(format!("FindCoordinator answered {other:?}")),
        })?;
    }
    Ok(())
}

/// A member of a group of its own, known to the coordinator.
pub(crate) struct Member {
    group: String,
    id: StrBytes,
    generation: i32,
}

/// How long a member may be silent: longer than any run.
const SESSION_TIMEOUT_MS: i32 = 1_800_000;

/// Of the JoinGroup that lets a member in at once.
const JOIN_AT_ONCE: i16 = 3;
/// Of the JoinGroup that first gives a member its id.
const JOIN_BY_ID: i16 = 5;

fn join_request(version: i16, group: &str, member: StrBytes, rebalance_timeout: Duration) -> Bytes {
    let rebalance_timeout_ms = i32::try_from(rebalance_timeout.as_millis()).unwrap_or(i32::MAX);
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from_static(&[0, 0, 0, 0, 0, 1, 0, 1, b't', 0xff, 0xff, 0xff, 0xff]));
    let request = JoinGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_session_timeout_ms(SESSION_TIMEOUT_MS)
        .with_rebalance_timeout_ms(rebalance_timeout_ms)
        .with_member_id(member)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    frame(ApiKey::JoinGroup, version, &request)
}

/// A JoinGroup answer with this error.
fn joined(answer: &[u8], version: i16, wanted: i16) -> Result<JoinGroupResponse, String> {
    let mut body = BytesMut::from(answer.get(4..).unwrap_or_default()).freeze();
    let joined = JoinGroupResponse::decode(&mut body, version);
    let joined = joined.map_err(|error| error.to_string())?;
    match joined.error_code {
        code if code == wanted => Ok(joined),
        code => Err(format!("JoinGroup answered {code}")),
    }
}

/// Joins a group and takes its assignment, over one connection. Asks again while there is no coordinator yet.
pub(crate) fn join_alone(address: SocketAddr, group: &str) -> Result<Member, String> {
    let deadline = clock::now() + Duration::from_secs(60);
    loop {
        let request = join_request(JOIN_AT_ONCE, group, text(""), Duration::from_secs(300));
        let answer = ask(address, &request).map_err(|error| error.to_string())?;
        match joined(&answer, JOIN_AT_ONCE, 0) {
            Ok(joined) => return sync(address, group, &joined),
            Err(reason) if clock::now() > deadline => return Err(reason),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn sync_request(group: &str, joined: &JoinGroupResponse) -> Bytes {
    let assignments = joined.members.iter().map(|member| {
        SyncGroupRequestAssignment::default()
            .with_member_id(member.member_id.clone())
            .with_assignment(Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
    });
    let request = SyncGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id(joined.generation_id)
        .with_member_id(joined.member_id.clone())
        .with_assignments(assignments.collect());
    frame(ApiKey::SyncGroup, 1, &request)
}

fn sync(address: SocketAddr, group: &str, joined: &JoinGroupResponse) -> Result<Member, String> {
    let answer = ask(address, &sync_request(group, joined)).map_err(|error| error.to_string())?;
    synced(&answer)?;
    Ok(Member {
        group: group.to_owned(),
        id: joined.member_id.clone(),
        generation: joined.generation_id,
    })
}

/// A SyncGroup answer of version 1 without an error.
fn synced(answer: &[u8]) -> Result<(), String> {
    match answer.get(8..10) {
        Some([0, 0]) => Ok(()),
        other => Err(format!("SyncGroup answered {other:?}")),
    }
}

impl Member {
    /// Its heartbeat.
    pub(crate) fn heartbeat(&self) -> Bytes {
        let request = HeartbeatRequest::default()
            .with_group_id(GroupId(text(&self.group)))
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone());
        frame(ApiKey::Heartbeat, 3, &request)
    }
}

/// A Heartbeat answer of version 3 without an error.
pub(crate) fn beaten(answer: &[u8]) -> Result<(), String> {
    match answer.get(8..10) {
        Some([0, 0]) => Ok(()),
        other => Err(format!("Heartbeat answered {other:?}")),
    }
}

/// Commits an offset of one partition for a group without members.
pub(crate) fn commit(group: &str, topic: &str) -> Bytes {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(0)
        .with_committed_offset(1)
        .with_committed_metadata(Some(text("")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    frame(ApiKey::OffsetCommit, 7, &request)
}

/// An OffsetCommit answer of version 7 without an error: the code stands last.
pub(crate) fn committed(answer: &[u8]) -> Result<(), String> {
    match answer {
        [.., 0, 0] => Ok(()),
        _ => Err(format!("OffsetCommit answered {answer:?}")),
    }
}

/// Sends a request until it is answered without an error, which `check` looks for.
pub(crate) fn ask_until(
    address: SocketAddr,
    frame: &[u8],
    check: fn(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let deadline = clock::now() + Duration::from_secs(60);
    loop {
        let answer = ask(address, frame).map_err(|error| error.to_string())?;
        match check(&answer) {
            Ok(()) => return Ok(()),
            Err(reason) if clock::now() > deadline => return Err(reason),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Members that join an empty group.
const JOINING: usize = 1_000;
/// `group.initial.rebalance.delay.ms` meanwhile. Members ask for as long a rebalance, so that it is not made longer when more
/// of them come.
const JOIN_DELAY: Duration = Duration::from_secs(3);
/// Groups that are joined one after the other; the median of each figure counts.
const JOIN_ROUNDS: usize = 5;
/// The same on Kafka before, whose code is compiled meanwhile.
const JOIN_ROUNDS_TO_WARM: usize = 15;

/// How long members took that join an empty group.
struct Joining {
    /// From the first to the last request to join.
    spread: Duration,
    /// From the last request to join until every member has its assignment.
    stable_after: Duration,
    /// From the first answer to a join until every member has its assignment.
    assigned_within: Duration,
    /// CPU of the broker for each member, from its connection to its assignment.
    cpu_ms: f64,
}

/// What it costs that a thousand members join an empty group.
pub(crate) fn members_that_join(options: &Options) -> Result<(), String> {
    let is_up = |address| ask(address, &requests::metadata("nothing")).is_ok();
    let delay = format!("group.initial.rebalance.delay.ms={}", JOIN_DELAY.as_millis());
    let (directory, settings) = (options.directory.join("members"), [delay.as_str()]);
    let ours = Target::ours_with(&options.binary, &directory.join("odradek"), &is_up, &settings)?;
    let mut targets = vec![ours];
    if let Some(peer) = &options.kafka {
        targets.push(Target::kafka_with(peer, &directory.join("kafka"), &settings)?);
    }
    println!(
        "\n| {JOINING} members join an empty group, initial delay {} ms | requests to join | stable after the last | after the delay | from the first answer | CPU-ms a member |\n|---|---|---|---|---|---|",
        JOIN_DELAY.as_millis()
    );
    for target in &targets {
        await_coordinators(target.address)?;
        let warm = if target.is_kafka() { JOIN_ROUNDS_TO_WARM } else { 0 };
        let mut rounds = Vec::new();
        for round in 0..warm + JOIN_ROUNDS {
            let joining = join_empty_group(target, &format!("empty-{round}"))?;
            if round >= warm {
                rounds.push(joining);
            }
        }
        let slowest = rounds.iter().map(|one| one.stable_after).max().unwrap_or_default();
        let median = |of: &dyn Fn(&Joining) -> f64| {
            let mut figures: Vec<f64> = rounds.iter().map(of).collect();
            figures.sort_by(f64::total_cmp);
            figures[JOIN_ROUNDS / 2]
        };
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        println!(
            "| {} | within {:.0} ms | {:.0} ms, {:.0} at most | {:.0} ms | {:.0} ms | {:.3} |",
            target.name,
            median(&|one| ms(one.spread)),
            median(&|one| ms(one.stable_after)),
            ms(slowest),
            median(&|one| ms((one.spread + one.stable_after).saturating_sub(JOIN_DELAY))),
            median(&|one| ms(one.assigned_within)),
            median(&|one| one.cpu_ms),
        );
    }
    Ok(())
}

/// Every member has a connection of its own, is given its id first, then joins, and asks for its assignment.
fn join_empty_group(target: &Target, group: &str) -> Result<Joining, String> {
    let said = |error: std::io::Error| error.to_string();
    let stranger = Member { group: group.to_owned(), id: text("stranger"), generation: 1 };
    // A coordinator that has loaded knows that it knows no such member.
    ask_until(target.address, &stranger.heartbeat(), |answer| match answer.get(8..10) {
        Some([0, 25]) => Ok(()),
        other => Err(format!("Heartbeat answered {other:?}")),
    })?;
    let before = cpu_of(target.pid);
    let nobody = join_request(JOIN_BY_ID, group, text(""), JOIN_DELAY);
    let mut sockets = Vec::with_capacity(JOINING);
    let mut joins = Vec::with_capacity(JOINING);
    let mut answer = Vec::new();
    // One after the other: more at once than `socket.listen.backlog.size` would wait for the kernel to send again.
    for _ in 0..JOINING {
        let mut socket = TcpStream::connect(target.address).map_err(said)?;
        socket.set_nodelay(true).map_err(said)?;
        socket.write_all(&nobody).map_err(said)?;
        read_frame(&mut socket, &mut answer).map_err(said)?;
        // MEMBER_ID_REQUIRED.
        let member = joined(&answer, JOIN_BY_ID, 79)?.member_id;
        joins.push(join_request(JOIN_BY_ID, group, member, JOIN_DELAY));
        sockets.push(socket);
    }
    let first_join = clock::now();
    for (socket, join) in sockets.iter_mut().zip(&joins) {
        socket.write_all(join).map_err(said)?;
    }
    let last_join = clock::now();
    let mut first_answer = None;
    for socket in &mut sockets {
        read_frame(socket, &mut answer).map_err(said)?;
        first_answer.get_or_insert_with(clock::now);
        let joined = joined(&answer, JOIN_BY_ID, 0)?;
        socket.write_all(&sync_request(group, &joined)).map_err(said)?;
    }
    for socket in &mut sockets {
        read_frame(socket, &mut answer).map_err(said)?;
        synced(&answer)?;
    }
    let stable = clock::now();
    Ok(Joining {
        spread: last_join - first_join,
        stable_after: stable - last_join,
        assigned_within: stable - first_answer.unwrap_or(stable),
        cpu_ms: cpu_of(target.pid).since(before).total() * 1e3 / JOINING as f64,
    })
}

/// Heartbeats of many idle groups, each every three seconds, for a while.
pub(crate) fn idle_groups(
    address: SocketAddr,
    members: &[Member],
    duration: Duration,
) -> Result<(), String> {
    const CONNECTIONS: usize = 16;
    const EVERY: Duration = Duration::from_secs(3);
    let share = members.len().div_ceil(CONNECTIONS);
    let start = Barrier::new(members.chunks(share).count());
    let beat = |members: &[Member]| -> Result<(), String> {
        let frames: Vec<Bytes> = members.iter().map(Member::heartbeat).collect();
        let mut socket = TcpStream::connect(address).map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        start.wait();
        let began = clock::now();
        for round in 0.. {
            for (index, frame) in frames.iter().enumerate() {
                let offset = EVERY.mul_f64(index as f64 / frames.len() as f64);
                let due = began + EVERY * round + offset;
                if due > began + duration {
                    return Ok(());
                }
                std::thread::sleep(due.saturating_duration_since(clock::now()));
                socket.write_all(frame).map_err(|error| error.to_string())?;
                read_frame(&mut socket, &mut answer).map_err(|error| error.to_string())?;
                beaten(&answer)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            members.chunks(share).map(|members| scope.spawn(|| beat(members))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "panicked")?)
    })
}

/// One transaction after the other, of one producer: add the partition, produce a record, commit.
pub(crate) struct Transactions {
    transactional_id: String,
    topic: String,
    producer: (ProducerId, ProducerEpoch),
    sequence: i32,
    step: Step,
    frame: Bytes,
}

#[derive(Clone, Copy)]
enum Step {
    Add,
    Produce,
    End,
}

/// The code for "the markers of the transaction before are not all written".
const CONCURRENT_TRANSACTIONS: [u8; 2] = [0, 51];

/// How long a producer waits then before it asks again. Source: `ADD_PARTITIONS_RETRY_BACKOFF_MS` of Kafka's producer.
const RETRY_AFTER: Duration = Duration::from_millis(20);

impl Transactions {
    /// Takes the producer id of a transactional id.
    pub(crate) fn new(
        address: SocketAddr,
        transactional_id: &str,
        topic: &str,
    ) -> Result<Box<Transactions>, String> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(transactional_id))))
            .with_transaction_timeout_ms(60_000);
        let frame = frame(ApiKey::InitProducerId, 1, &request);
        let deadline = clock::now() + Duration::from_secs(60);
        loop {
            let answer = ask(address, &frame).map_err(|error| error.to_string())?;
            let mut body = BytesMut::from(answer.get(4..).unwrap_or_default()).freeze();
            let given = InitProducerIdResponse::decode(&mut body, 1);
            let given = given.map_err(|error| error.to_string())?;
            if given.error_code == 0 {
                return Ok(Box::new(Transactions {
                    transactional_id: transactional_id.to_owned(),
                    topic: topic.to_owned(),
                    producer: (
                        ProducerId(given.producer_id.0),
                        ProducerEpoch(given.producer_epoch),
                    ),
                    sequence: 0,
                    step: Step::Add,
                    frame: Bytes::new(),
                }));
            }
            if clock::now() > deadline {
                return Err(format!("InitProducerId answered {}", given.error_code));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn id(&self) -> TransactionalId {
        TransactionalId(text(&self.transactional_id))
    }

    fn add(&self) -> Bytes {
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic_name(&self.topic))
            .with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.id())
            .with_v3_and_below_producer_id(self.producer.0.0.into())
            .with_v3_and_below_producer_epoch(self.producer.1.0)
            .with_v3_and_below_topics(vec![topic]);
        frame(ApiKey::AddPartitionsToTxn, 1, &request)
    }

    fn produce(&self) -> Bytes {
        let mut builder = BatchBuilder::new(Compression::None)
            .producer(self.producer.0, self.producer.1, self.sequence)
            .transactional();
        builder.append(Timestamp(-1), None, Some(&[7; 100]), &[]).expect("a small record");
        let data = PartitionProduceData::default().with_records(Some(builder.finish()));
        let topic = TopicProduceData::default()
            .with_name(topic_name(&self.topic))
            .with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_transactional_id(Some(self.id()))
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        frame(ApiKey::Produce, 8, &request)
    }

    fn end(&self) -> Bytes {
        let request = EndTxnRequest::default()
            .with_transactional_id(self.id())
            .with_producer_id(self.producer.0.0.into())
            .with_producer_epoch(self.producer.1.0)
            .with_committed(true);
        frame(ApiKey::EndTxn, 1, &request)
    }
}

impl Requests for Transactions {
    fn next(&mut self) -> &[u8] {
        self.frame = match self.step {
            Step::Add => self.add(),
            Step::Produce => self.produce(),
            Step::End => self.end(),
        };
        &self.frame
    }

    /// Counts a byte for each transaction.
    fn answered(&mut self, answer: &[u8]) -> Result<u64, String> {
        let code: Option<[u8; 2]> = match self.step {
            Step::Add => answer.last_chunk().copied(),
            Step::Produce => {
                crate::requests::produced(answer)?;
                Some([0, 0])
            }
            Step::End => answer.last_chunk().copied(),
        };
        match (self.step, code) {
            (Step::Add, Some(CONCURRENT_TRANSACTIONS)) => {
                std::thread::sleep(RETRY_AFTER);
                Ok(0)
            }
            (Step::Add, Some([0, 0])) => {
                self.step = Step::Produce;
                Ok(0)
            }
            (Step::Produce, Some([0, 0])) => {
                self.sequence += 1;
                self.step = Step::End;
                Ok(0)
            }
            (Step::End, Some([0, 0])) => {
                self.step = Step::Add;
                Ok(1)
            }
            (_, code) => Err(format!("a transaction was answered {code:?}")),
        }
    }
}
