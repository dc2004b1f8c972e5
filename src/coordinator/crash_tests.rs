//! A coordinator that is killed at each arrow of its state machines: before its record is in the log, after that and
//! before its answer, and after its answer. Its successor has nothing but the log, and finishes what was begun.

use std::{os::unix::fs::FileExt, sync::Arc, time::Duration};

use bytes::Bytes;
use common::{
    clock,
    counters::Registry,
    error_code::ErrorCode,
    ids::{Offset, ProducerEpoch, ProducerId, Timestamp},
    topic::{GROUP_METADATA_TOPIC, TopicPartition},
};
use group_coordinator::{
    action::Reply as GroupReply,
    config::GroupConfig,
    event::{Event as GroupEvent, GroupMember, JoinRequest, ReplyTo as GroupReplyTo, SyncRequest},
};
use record::{
    batch::Batches,
    control,
    validate::{self, Origin, Rules},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transaction_coordinator::{
    action::Reply,
    event::{Event, MarkerOutcome, ReplyTo, TransactionResult},
    state::TransactionState,
};

use super::{Broker, commit, commit_in, committed, load_groups, log, transactions};
use crate::{
    groups::Groups,
    shard::{Answer, Coordinator, Shard, Time},
    transactions::{Effect, Markers, Transactions},
};

#[path = "crash_removal_tests.rs"]
mod removal;

const PRODUCER: ProducerId = ProducerId(7);
const EPOCH: ProducerEpoch = ProducerEpoch(0);

/// How far the last step of a script gets before the coordinator is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Killed {
    /// Its record is in the log, and not at every replica: nobody was answered.
    BeforeAnswer,
    AfterAnswer,
}

struct Transacting {
    broker: Broker,
    epoch: i32,
    shard: Arc<Shard<Transactions>>,
    effects: mpsc::UnboundedReceiver<(i32, Effect)>,
}

impl Transacting {
    fn new() -> Transacting {
        let broker = Broker::new();
        let (shard, effects) = Transacting::load(&broker, 0, &[1]);
        Transacting { broker, epoch: 0, shard, effects }
    }

    fn load(
        broker: &Broker,
        epoch: i32,
        isr: &[i32],
    ) -> (Arc<Shard<Transactions>>, mpsc::UnboundedReceiver<(i32, Effect)>) {
        let hour = Duration::from_secs(3600);
        let partition = broker.lead(epoch, isr);
        let (sender, effects) = mpsc::unbounded_channel();
        let transactions = transactions(&partition, hour, &Registry::default());
        let (shard, _) = Shard::load(log(&partition), transactions, 100, sender).expect("a log");
        shard.begin();
        (shard, effects)
    }

    /// Kills the coordinator: nothing is told to anybody. The next one leads with these replicas.
    fn kill(&mut self, isr: &[i32]) {
        self.epoch += 1;
        (self.shard, self.effects) = Transacting::load(&self.broker, self.epoch, isr);
    }

    fn init(&mut self) -> Answer<Reply> {
        self.init_as("id")
    }

    fn init_as(&mut self, id: &str) -> Answer<Reply> {
        let reply = self.shard.request(|reply| Event::InitProducerId {
            transactional_id: id.into(),
            timeout_ms: 60_000,
            expected: None,
            reply: ReplyTo(reply),
        });
        while let Ok((_, effect)) = self.effects.try_recv() {
            if let Effect::AllocateProducerId(allocation) = effect {
                let result = Ok(PRODUCER);
                self.shard.tell(Event::ProducerIdAllocated { allocation, result });
            }
        }
        reply
    }

    fn add(&self) -> Answer<Reply> {
        self.shard.request(|reply| Event::AddPartitions {
            transactional_id: "id".into(),
            producer_id: PRODUCER,
            producer_epoch: EPOCH,
            partitions: partitions(),
            reply: ReplyTo(reply),
        })
    }

    fn end(&self, result: TransactionResult) -> Answer<Reply> {
        self.shard.request(|reply| Event::EndTxn {
            transactional_id: "id".into(),
            producer_id: PRODUCER,
            producer_epoch: EPOCH,
            result,
            reply: ReplyTo(reply),
        })
    }

    fn markers(&mut self) -> Option<Markers> {
        match self.effects.try_recv() {
            Ok((_, Effect::SendMarkers(markers))) => Some(markers),
            _ => None,
        }
    }

    fn written(&self, partitions: Vec<TopicPartition>) {
        let written = |partition| (partition, MarkerOutcome::Answered(ErrorCode::None));
        self.shard.tell(Event::MarkersWritten {
            transactional_id: "id".into(),
            outcomes: partitions.into_iter().map(written).collect(),
        });
    }

    fn state(&self) -> Option<TransactionState> {
        self.shard.read(|one| one.coordinator().describe("id").ok().map(|one| one.state))
    }

    /// The successor's part after the decision: all partitions get the same marker, and only then is it complete.
    fn finish(&mut self, result: TransactionResult) {
        let markers = self.markers().expect("markers are on their way");
        assert_eq!((markers.result, markers.producer_id), (result, PRODUCER));
        let mut wanted = markers.partitions;
        wanted.sort_by_key(|one| one.partition);
        assert_eq!(wanted, partitions(), "no partition is left out");
        self.written(wanted);
    }
}

fn partitions() -> Vec<TopicPartition> {
    (0..2).map(|partition| TopicPartition::new("t", partition)).collect()
}

fn answer<T>(mut reply: Answer<T>) -> T {
    given(&mut reply).expect("an answer at once")
}

/// The answer, where it is there.
fn given<T>(reply: &mut Answer<T>) -> Option<T> {
    match reply {
        Answer::Given(reply) => reply.take(),
        Answer::Coming(reply) => reply.try_recv().ok(),
    }
}

const ENDS: [(TransactionResult, TransactionState, TransactionState); 2] = [
    (TransactionResult::Commit, TransactionState::PrepareCommit, TransactionState::CompleteCommit),
    (TransactionResult::Abort, TransactionState::PrepareAbort, TransactionState::CompleteAbort),
];

#[tokio::test]
async fn a_producer_is_there_again_when_the_coordinator_is_killed_at_its_start() {
    for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
        let mut world = Transacting::new();
        if killed == Killed::BeforeAnswer {
            world.kill(&[1, 2]);
        }
        let mut reply = world.init();
        assert_eq!(given(&mut reply).is_some(), killed == Killed::AfterAnswer);
        world.kill(&[1]);
        assert_eq!(world.state(), Some(TransactionState::Empty), "{killed:?}");
        let Reply::InitProducerId { error, producer_id, producer_epoch } = answer(world.init())
        else {
            panic!("another answer");
        };
        let expected = (ErrorCode::None, PRODUCER, ProducerEpoch(1));
        assert_eq!((error, producer_id, producer_epoch), expected, "{killed:?}");
    }
}

#[tokio::test]
async fn a_transaction_goes_on_when_the_coordinator_is_killed_while_partitions_are_added() {
    for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
        for (result, _, complete) in ENDS {
            let mut world = Transacting::new();
            answer(world.init());
            if killed == Killed::BeforeAnswer {
                world.kill(&[1, 2]);
            }
            let mut reply = world.add();
            assert_eq!(given(&mut reply).is_some(), killed == Killed::AfterAnswer);
            world.kill(&[1]);
            assert_eq!(world.state(), Some(TransactionState::Ongoing), "{killed:?}");
            assert!(world.markers().is_none(), "nothing is decided");
            if killed == Killed::BeforeAnswer {
                assert_eq!(answer(world.add()), Reply::AddPartitions(ErrorCode::None));
            }
            assert_eq!(answer(world.end(result)), Reply::EndTxn(ErrorCode::None));
            world.finish(result);
            assert_eq!(world.state(), Some(complete));
        }
    }
}

#[tokio::test]
async fn a_decision_stands_when_the_coordinator_is_killed_after_it() {
    for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
        for (result, prepared, complete) in ENDS {
            let mut world = Transacting::new();
            answer(world.init());
            answer(world.add());
            if killed == Killed::BeforeAnswer {
                world.kill(&[1, 2]);
            }
            let mut reply = world.end(result);
            assert_eq!(given(&mut reply).is_some(), killed == Killed::AfterAnswer);
            world.kill(&[1]);
            assert_eq!(world.state(), Some(prepared), "{killed:?}");
            let waits = Reply::EndTxn(ErrorCode::ConcurrentTransactions);
            assert_eq!(answer(world.end(result)), waits);
            world.finish(result);
            assert_eq!(world.state(), Some(complete));
            assert_eq!(answer(world.end(result)), Reply::EndTxn(ErrorCode::None));
        }
    }
}

#[tokio::test]
async fn every_partition_gets_its_marker_when_the_coordinator_is_killed_between_two() {
    for (result, prepared, complete) in ENDS {
        let mut world = Transacting::new();
        answer(world.init());
        answer(world.add());
        answer(world.end(result));
        world.written(vec![TopicPartition::new("t", 0)]);
        assert_eq!(world.state(), Some(prepared));
        world.kill(&[1]);
        world.finish(result);
        assert_eq!(world.state(), Some(complete));
    }
}

#[tokio::test]
async fn a_transaction_is_over_when_the_coordinator_is_killed_at_its_completion() {
    for (result, _, complete) in ENDS {
        let mut world = Transacting::new();
        answer(world.init());
        answer(world.add());
        answer(world.end(result));
        // That it is complete is in the log, and not at every replica.
        world.kill(&[1, 2]);
        world.finish(result);
        for _ in 0..2 {
            world.kill(&[1]);
            assert_eq!(world.state(), Some(complete));
            assert!(world.markers().is_none(), "no marker of a transaction that is over");
            assert_eq!(answer(world.end(result)), Reply::EndTxn(ErrorCode::None));
        }
        assert_eq!(answer(world.add()), Reply::AddPartitions(ErrorCode::None), "the next one");
    }
}

const WAIT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_transaction_is_aborted_as_a_whole_when_the_coordinator_is_killed_at_its_timeout() {
    let fenced = Reply::EndTxn(ErrorCode::ProducerFenced);
    for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
        let isr: &[i32] = if killed == Killed::AfterAnswer { &[1] } else { &[1, 2] };
        let mut world = Transacting::new();
        answer(world.init());
        answer(world.add());
        // Killed before the decision: the transaction goes on, and its time is still to end.
        world.kill(isr);
        assert_eq!(world.state(), Some(TransactionState::Ongoing));
        wake_after(&world.shard, DAY);
        let markers = world.markers();
        assert_eq!(markers.is_some(), killed == Killed::AfterAnswer, "it is decided for good");
        if markers.is_some() {
            world.written(vec![TopicPartition::new("t", 0)]);
        }
        // Killed with the decision in the log, and at most one marker written. The completion is not at every replica.
        world.kill(&[1, 2]);
        assert_eq!(world.state(), Some(TransactionState::PrepareAbort), "{killed:?}");
        assert_eq!(answer(world.end(TransactionResult::Commit)), fenced, "it was too slow");
        world.finish(TransactionResult::Abort);
        for _ in 0..2 {
            world.kill(&[1]);
            assert_eq!(world.state(), Some(TransactionState::CompleteAbort), "{killed:?}");
            assert!(world.markers().is_none(), "no marker of a transaction that is over");
            assert_eq!(answer(world.end(TransactionResult::Commit)), fenced);
        }
        let Reply::InitProducerId { error, producer_epoch, .. } = answer(world.init()) else {
            panic!("another answer");
        };
        assert_eq!((error, producer_epoch), (ErrorCode::None, ProducerEpoch(2)));
    }
}

#[tokio::test]
async fn an_id_is_there_or_gone_when_the_coordinator_is_killed_as_it_expires() {
    for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
        let isr: &[i32] = if killed == Killed::AfterAnswer { &[1] } else { &[1, 2] };
        let ends = ENDS.map(|(result, _, complete)| (Some(result), complete));
        for (result, state) in [(None, TransactionState::Empty)].into_iter().chain(ends) {
            let mut world = Transacting::new();
            answer(world.init());
            if let Some(result) = result {
                answer(world.add());
                answer(world.end(result));
                world.finish(result);
            }
            world.kill(isr);
            assert_eq!(world.state(), Some(state), "nothing is in the log yet");
            wake_after(&world.shard, DAY);
            let expected = (killed == Killed::BeforeAnswer).then_some(state);
            assert_eq!(world.state(), expected, "it stays until every replica knows");
            if killed == Killed::BeforeAnswer {
                let Reply::InitProducerId { error, .. } = answer(world.init()) else {
                    panic!("another answer");
                };
                assert_eq!(error, ErrorCode::ConcurrentTransactions, "it is about to go");
            }
            world.kill(&[1]);
            assert_eq!(world.state(), None, "{killed:?}");
            let unknown = Reply::AddPartitions(ErrorCode::InvalidProducerIdMapping);
            assert_eq!(answer(world.add()), unknown);
            let Reply::InitProducerId { error, producer_epoch, .. } = answer(world.init()) else {
                panic!("another answer");
            };
            assert_eq!((error, producer_epoch), (ErrorCode::None, EPOCH), "it begins anew");
        }
    }
}

#[tokio::test]
async fn ids_that_expire_in_several_batches_are_each_there_or_gone() {
    let mut world = Transacting::new();
    let ids: Vec<String> = (0..40).map(|number| format!("{number:01000}")).collect();
    for id in &ids {
        answer(world.init_as(id));
    }
    let begin = end(&world.broker);
    wake_after(&world.shard, DAY);
    let count = |world: &Transacting| {
        let describe = |id: &String| {
            let one = world.shard.read(|one| one.coordinator().describe(id));
            one.inspect(|one| assert_eq!(one.state, TransactionState::Empty))
        };
        ids.iter().filter(|id| describe(id).is_ok()).count()
    };
    let mut counts = vec![count(&world)];
    while end(&world.broker) > begin {
        cut(&world.broker);
        let kept = end(&world.broker);
        world.kill(&[1]);
        counts.push(count(&world));
        wake_after(&world.shard, DAY);
        assert_eq!(count(&world), 0, "the successor finishes it");
        cut_to(&world.broker, kept);
    }
    assert!(counts.is_sorted() && counts.len() > 2, "{counts:?}");
    assert_eq!((counts[0], counts.last()), (0, Some(&40)), "{counts:?}");
}

/// Longer than all that coordinators wait for.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Lets a coordinator believe that time has passed.
fn wake_after<C: Coordinator>(shard: &Shard<C>, passed: Duration) {
    let passed_ms = i64::try_from(passed.as_millis()).expect("less than an age");
    shard.act(|coordinator, time, steps| {
        let wall_clock = Timestamp(time.wall_clock.0 + passed_ms);
        coordinator.on_wake(Time { now: time.now + passed, wall_clock }, steps);
    });
}

fn end(broker: &Broker) -> Offset {
    let partition = broker.replicas.get(GROUP_METADATA_TOPIC, 0).expect("it is led");
    partition.log().end_offset()
}

/// What the log is when the coordinator was killed before it wrote the last batch.
fn cut(broker: &Broker) {
    let partition = broker.replicas.get(GROUP_METADATA_TOPIC, 0).expect("it is led");
    let log = partition.log();
    let (mut last, end) = (log.start_offset(), log.end_offset());
    loop {
        let read = log.read(last, 1, true, end).expect("a log that can be read");
        let mut bytes = vec![0; read.regions[0].length];
        let region = &read.regions[0];
        region.file.read_exact_at(&mut bytes, region.position).expect("a file");
        let batch = Batches::new(&bytes).next().expect("a batch").expect("one that is whole");
        let next = batch.header.last_offset.plus(1);
        if next == end {
            return cut_to(broker, last);
        }
        last = next;
    }
}

fn cut_to(broker: &Broker, end: Offset) {
    let partition = broker.replicas.get(GROUP_METADATA_TOPIC, 0).expect("it is led");
    partition.log().truncate_to(end).expect("a log that can be cut");
}

/// A group coordinator with its keeper.
fn lead(broker: &Broker, epoch: i32, isr: &[i32], stop: &CancellationToken) -> Arc<Shard<Groups>> {
    let config = GroupConfig {
        session_timeout_min: Duration::from_millis(1),
        initial_rebalance_delay: Duration::ZERO,
        append_timeout: Duration::from_secs(60),
        ..GroupConfig::default()
    };
    let shard = load_groups(&broker.lead(epoch, isr), config, 100).0;
    tokio::spawn(shard.clone().keep(stop.clone()));
    shard
}

async fn join(shard: &Arc<Shard<Groups>>, member_id: &str) -> (ErrorCode, i32, String) {
    joined(joining(shard, ("c", member_id), WAIT, WAIT)).await
}

/// A member, by client id and member id, that asks to join.
fn joining(
    shard: &Arc<Shard<Groups>>,
    (client_id, member_id): (&str, &str),
    session_timeout: Duration,
    rebalance_timeout: Duration,
) -> Answer<GroupReply> {
    let request = JoinRequest {
        group: "g".to_owned(),
        member_id: member_id.to_owned(),
        group_instance_id: None,
        client_id: client_id.to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout,
        rebalance_timeout,
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::new())],
        requires_known_member_id: false,
        supports_skipping_assignment: false,
        reason: None,
        member_uuid: "u".to_owned(),
    };
    shard.request(move |reply| GroupEvent::Join { request, reply: GroupReplyTo(reply) })
}

async fn joined(reply: Answer<GroupReply>) -> (ErrorCode, i32, String) {
    let joined = tokio::time::timeout(Duration::from_secs(10), reply).await;
    let Ok(Ok(GroupReply::Join(joined))) = joined else { panic!("the group is stuck") };
    (joined.error, joined.generation, joined.member_id)
}

fn member(member_id: &str, generation: i32) -> GroupMember {
    GroupMember {
        group: "g".to_owned(),
        generation,
        member_id: member_id.to_owned(),
        group_instance_id: None,
    }
}

fn sync(shard: &Arc<Shard<Groups>>, member_id: &str, generation: i32) -> Answer<GroupReply> {
    assign(shard, member_id, generation, &[(member_id, "all")])
}

fn assign(
    shard: &Arc<Shard<Groups>>,
    member_id: &str,
    generation: i32,
    assignments: &[(&str, &'static str)],
) -> Answer<GroupReply> {
    let assigned = |(id, part): &(&str, &'static str)| {
        let part: &'static str = part;
        ((*id).to_owned(), Bytes::from_static(part.as_bytes()))
    };
    let request = SyncRequest {
        member: member(member_id, generation),
        protocol_type: None,
        protocol_name: None,
        assignments: assignments.iter().map(assigned).collect(),
    };
    shard.request(move |reply| GroupEvent::Sync { request, reply: GroupReplyTo(reply) })
}

fn heartbeat(shard: &Arc<Shard<Groups>>, member_id: &str, generation: i32) -> GroupReply {
    let request = member(member_id, generation);
    answer(
        shard.request(move |reply| GroupEvent::Heartbeat { request, reply: GroupReplyTo(reply) }),
    )
}

#[tokio::test]
async fn a_group_gathers_anew_when_the_coordinator_is_killed_while_it_joins() {
    let (broker, stop) = (Broker::new(), CancellationToken::new());
    let shard = lead(&broker, 0, &[1], &stop);
    let (error, generation, id) = join(&shard, "").await;
    assert_eq!((error, generation), (ErrorCode::None, 1));
    // No record of the generation is in the log yet.
    let shard = lead(&broker, 1, &[1], &stop);
    let unknown = ErrorCode::UnknownMemberId;
    assert_eq!(heartbeat(&shard, &id, 1), GroupReply::Heartbeat(unknown));
    let GroupReply::Sync(synced) = answer(sync(&shard, &id, 1)) else { panic!("another answer") };
    assert_eq!(synced.error, unknown);
    let (error, generation, id) = join(&shard, "").await;
    assert_eq!(error, ErrorCode::None);
    let GroupReply::Sync(synced) = answer(sync(&shard, &id, generation)) else {
        panic!("another answer")
    };
    assert_eq!((synced.error, &synced.assignment[..]), (ErrorCode::None, &b"all"[..]));
    stop.cancel();
}

#[tokio::test]
async fn a_generation_stands_when_the_coordinator_is_killed_at_its_assignment() {
    for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
        let (broker, stop) = (Broker::new(), CancellationToken::new());
        let isr: &[i32] = if killed == Killed::AfterAnswer { &[1] } else { &[1, 2] };
        let shard = lead(&broker, 0, isr, &stop);
        let (_, generation, id) = join(&shard, "").await;
        let mut reply = sync(&shard, &id, generation);
        assert_eq!(given(&mut reply).is_some(), killed == Killed::AfterAnswer);
        let shard = lead(&broker, 1, &[1], &stop);
        assert_eq!(heartbeat(&shard, &id, generation), GroupReply::Heartbeat(ErrorCode::None));
        let GroupReply::Sync(synced) = answer(sync(&shard, &id, generation)) else {
            panic!("another answer")
        };
        assert_eq!((synced.error, &synced.assignment[..]), (ErrorCode::None, &b"all"[..]));
        // The member dies too: who comes next does not wait for ever.
        let (error, next, _) = join(&shard, "").await;
        assert_eq!((error, next), (ErrorCode::None, generation + 1), "{killed:?}");
        stop.cancel();
    }
}

#[tokio::test]
async fn an_offset_is_kept_when_the_coordinator_is_killed_at_its_commit() {
    for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
        let (broker, stop) = (Broker::new(), CancellationToken::new());
        let shard = lead(&broker, 0, &[1], &stop);
        let done = GroupReply::CommitOffsets(vec![ErrorCode::None]);
        assert_eq!(answer(shard.request(commit(5))), done);
        let isr: &[i32] = if killed == Killed::AfterAnswer { &[1] } else { &[1, 2] };
        let shard = lead(&broker, 1, isr, &stop);
        assert_eq!(committed(&shard), 5, "acknowledged");
        let mut reply = shard.request(commit(6));
        assert_eq!(given(&mut reply).is_some(), killed == Killed::AfterAnswer);
        let shard = lead(&broker, 2, &[1], &stop);
        assert_eq!(committed(&shard), 6, "it is in the log");
        assert_eq!(answer(shard.request(commit(7))), done);
        let shard = lead(&broker, 3, &[1], &stop);
        assert_eq!(committed(&shard), 7);
        stop.cancel();
    }
}

/// Writes the marker of the producer's transaction into the groups' log, as the transaction coordinator has it done.
fn mark(broker: &Broker, result: control::TransactionResult) {
    let partition = broker.replicas.get(GROUP_METADATA_TOPIC, 0).expect("it is led");
    let now = clock::wall_clock();
    let content = control::EndTransactionMarker { result, coordinator_epoch: 0 };
    let rules = Rules { origin: Origin::Coordinator, ..partition.settings().rules(now) };
    let batch = control::marker_batch(PRODUCER, EPOCH, now, content);
    let checked = validate::check(batch, &rules).expect("a marker that fits");
    partition.append_as_coordinator(checked, None, None).expect("a log that takes it");
}

/// Offsets of a transaction, committed by a producer that the transaction's coordinator vouches for.
fn commit_in_transaction(
    broker: &Broker,
    shard: &Arc<Shard<Groups>>,
    offset: i64,
) -> Answer<GroupReply> {
    let partition = broker.replicas.get(GROUP_METADATA_TOPIC, 0).expect("it is led");
    let started = partition.start_verification((PRODUCER, EPOCH), -1).expect("it is led");
    if let Some(guard) = started {
        partition.log().confirm_verification(PRODUCER, guard);
    }
    shard.request(commit_in(Some((PRODUCER, EPOCH)), offset))
}

fn is_unstable(shard: &Arc<Shard<Groups>>) -> bool {
    let fetched = shard.read(|groups| {
        let partitions = [TopicPartition::new("t", 0)];
        groups.coordinator().fetch_offsets("g", Some(&partitions), true)
    });
    fetched[0].error == ErrorCode::UnstableOffsetCommit
}

#[tokio::test]
async fn offsets_of_a_transaction_count_by_its_marker_when_the_coordinator_is_killed() {
    use control::TransactionResult::{Abort, Commit};

    let done = GroupReply::CommitOffsets(vec![ErrorCode::None]);
    for result in [Commit, Abort] {
        for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
            let (broker, stop) = (Broker::new(), CancellationToken::new());
            let shard = lead(&broker, 0, &[1], &stop);
            assert_eq!(answer(shard.request(commit(5))), done);
            let isr: &[i32] = if killed == Killed::AfterAnswer { &[1] } else { &[1, 2] };
            let shard = lead(&broker, 1, isr, &stop);
            let mut reply = commit_in_transaction(&broker, &shard, 6);
            assert_eq!(given(&mut reply).is_some(), killed == Killed::AfterAnswer);
            // Killed while the transaction is open: none of it is seen, and all of it is held.
            let shard = lead(&broker, 2, &[1], &stop);
            assert_eq!((committed(&shard), is_unstable(&shard)), (5, true));
            assert_eq!(answer(commit_in_transaction(&broker, &shard, 7)), done);
            // Killed with the marker in the log, before the coordinator was told.
            mark(&broker, result);
            assert_eq!((committed(&shard), is_unstable(&shard)), (5, true));
            let shard = lead(&broker, 3, &[1], &stop);
            let expected = if result == Commit { 7 } else { 5 };
            assert_eq!((committed(&shard), is_unstable(&shard)), (expected, false), "{result:?}");
            // Told of it after all, it changes nothing; so does the marker once more, and another load.
            let told = result == Commit;
            shard.tell(GroupEvent::TransactionCompleted { producer_id: PRODUCER, committed: told });
            mark(&broker, result);
            let shard = lead(&broker, 4, &[1], &stop);
            assert_eq!((committed(&shard), is_unstable(&shard)), (expected, false), "{result:?}");
            stop.cancel();
        }
    }
}
