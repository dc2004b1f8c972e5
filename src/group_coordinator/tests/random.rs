//! Random members, times and losses: what holds in every life of a group.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};
use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

use super::seeded;
use crate::{
    action::{Action, GroupState, JoinReply, JoinedMember, Reply, SyncReply},
    config::GroupConfig,
    coordinator::GroupCoordinator,
    event::{
        AppendFailure, AppendId, CommitRequest, Event, GroupMember, JoinRequest, LeavingMember,
        Now, OffsetToCommit, ReplyTo, SyncRequest,
    },
    records::GroupRecord,
};

const CLIENTS: usize = 5;
/// What leaders hand out.
const PARTITIONS: i64 = 7;
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(20);
const INITIAL_DELAY: Duration = Duration::from_secs(3);
const APPEND_TIMEOUT: Duration = Duration::from_secs(5);
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// What happens. Clients act on what they were told last, or are a little confused.
#[derive(Clone, Debug)]
enum Step {
    /// A client does what a client does next.
    Act {
        client: usize,
    },
    Join {
        client: usize,
        metadata: u8,
        forgets_id: bool,
    },
    Sync {
        client: usize,
    },
    Heartbeat {
        client: usize,
        generation_off: bool,
    },
    Leave {
        client: usize,
    },
    Commit {
        client: usize,
        partition: i32,
        producer: Option<i64>,
    },
    SimpleCommit {
        partition: i32,
    },
    Marker {
        producer: i64,
        committed: bool,
    },
    /// The append that is the n-th of those under way, modulo their number, ends.
    Append {
        index: usize,
        fails: bool,
    },
    Pass {
        milliseconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let client = || 0..CLIENTS;
    prop_oneof![
        30 => client().prop_map(|client| Step::Act { client }),
        2 => (client(), 0..3_u8, prop::bool::weighted(0.1))
            .prop_map(|(client, metadata, forgets_id)| Step::Join { client, metadata, forgets_id }),
        4 => client().prop_map(|client| Step::Sync { client }),
        2 => (client(), prop::bool::weighted(0.1))
            .prop_map(|(client, generation_off)| Step::Heartbeat { client, generation_off }),
        1 => client().prop_map(|client| Step::Leave { client }),
        3 => (client(), 0..3, prop::option::weighted(0.3, 0..2_i64))
            .prop_map(|(client, partition, producer)| Step::Commit { client, partition, producer }),
        1 => (0..3).prop_map(|partition| Step::SimpleCommit { partition }),
        1 => (0..2_i64, any::<bool>())
            .prop_map(|(producer, committed)| Step::Marker { producer, committed }),
        12 => (any::<usize>(), prop::bool::weighted(0.1))
            .prop_map(|(index, fails)| Step::Append { index, fails }),
        8 => (0..4000_u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
    ]
}

/// What a client does next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Next {
    #[default]
    Join,
    Sync,
    Heartbeat,
    Wait,
}

#[derive(Clone, Debug, Default)]
struct Client {
    next: Next,
    member_id: String,
    generation: i32,
    leads: bool,
    members: Vec<JoinedMember>,
}

/// A SyncGroup request, as its answer is judged.
#[derive(Clone, Debug)]
struct Asked {
    generation: i32,
    /// What stays of a member within a generation.
    name: String,
}

struct Written {
    append: AppendId,
    at: Duration,
    /// None while under way.
    is_committed: Option<bool>,
    producer_id: Option<ProducerId>,
    records: Vec<GroupRecord>,
}

enum Entry {
    Batch(Written),
    Marker(ProducerId, bool),
}

struct Life {
    coordinator: GroupCoordinator,
    started: Instant,
    now: Duration,
    statics: bool,
    clients: Vec<Client>,
    asked: BTreeMap<ReplyTo, usize>,
    waiting: BTreeSet<ReplyTo>,
    replies: u64,
    numbers: i64,
    log: Vec<Entry>,
    syncs: BTreeMap<ReplyTo, Asked>,
    /// What each generation's leader handed out first, by name.
    handed_out: BTreeMap<i32, BTreeMap<String, Bytes>>,
    /// Who was told to have a partition, by generation and partition.
    owners: BTreeMap<(i32, i64), String>,
    /// Protocol and leader that were told, by generation.
    told: BTreeMap<i32, (Option<String>, String)>,
    generation: i32,
    /// With its generation, since when.
    state: (GroupState, i32, Duration),
    offsets: BTreeMap<TopicPartition, Offset>,
}

impl Life {
    fn new(statics: bool) -> Life {
        let config = GroupConfig { initial_rebalance_delay: INITIAL_DELAY, ..Default::default() };
        Life {
            coordinator: GroupCoordinator::new(config),
            started: common::clock::now(),
            now: Duration::ZERO,
            statics,
            clients: vec![Client::default(); CLIENTS],
            asked: BTreeMap::new(),
            waiting: BTreeSet::new(),
            replies: 0,
            numbers: 0,
            log: Vec::new(),
            syncs: BTreeMap::new(),
            handed_out: BTreeMap::new(),
            owners: BTreeMap::new(),
            told: BTreeMap::new(),
            generation: 0,
            state: (GroupState::Dead, 0, Duration::ZERO),
            offsets: BTreeMap::new(),
        }
    }

    fn time(&self) -> Now {
        let milliseconds = i64::try_from(self.now.as_millis()).unwrap();
        Now { instant: self.started + self.now, timestamp: Timestamp(milliseconds) }
    }

    fn reply(&mut self) -> ReplyTo {
        self.replies += 1;
        self.waiting.insert(ReplyTo(self.replies));
        ReplyTo(self.replies)
    }

    /// A reply that a client waits for before it goes on.
    fn reply_to(&mut self, client: usize) -> ReplyTo {
        let reply = self.reply();
        self.asked.insert(reply, client);
        self.clients[client].next = Next::Wait;
        reply
    }

    fn event(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.coordinator.on_event(event, self.time(), &mut actions);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Append { append, records, transaction, .. } => {
                    let producer_id = transaction.map(|(producer_id, _)| producer_id);
                    let at = self.now;
                    let is_committed = None;
                    let written = Written { append, at, is_committed, producer_id, records };
                    self.log.push(Entry::Batch(written));
                }
                Action::Reply(to, reply) => {
                    assert!(self.waiting.remove(&to), "{to:?} has its answer already: {reply:?}");
                    if let Reply::Sync(SyncReply { error: ErrorCode::None, assignment, .. }) =
                        &reply
                    {
                        self.on_assigned(to, assignment);
                    }
                    if let Some(client) = self.asked.get(&to) {
                        self.on_reply(*client, reply);
                    }
                }
                Action::Rebalance(_) | Action::Note(_) => {}
            }
        }
        self.check();
    }

    fn on_reply(&mut self, client: usize, reply: Reply) {
        self.clients[client].next = match &reply {
            Reply::Join(JoinReply { error: ErrorCode::None, .. }) => Next::Sync,
            Reply::Sync(SyncReply { error: ErrorCode::None, .. })
            | Reply::Heartbeat(ErrorCode::None) => Next::Heartbeat,
            _ => Next::Join,
        };
        if let Reply::Join(reply) = reply {
            self.on_joined(client, reply);
        }
    }

    /// Each member gets what its generation's leader handed out to it, and no partition has two members.
    fn on_assigned(&mut self, to: ReplyTo, assignment: &Bytes) {
        let Asked { generation, name } = self.syncs[&to].clone();
        let Some(handed_out) = self.handed_out.get(&generation) else {
            panic!(
                "{name} has {assignment:?} of generation {generation}, whose leader gave nothing"
            );
        };
        let expected = handed_out.get(&name).cloned().unwrap_or_default();
        assert_eq!(*assignment, expected, "{name} in generation {generation}");
        for partition in partitions_of(assignment) {
            let owner = self.owners.entry((generation, partition)).or_insert_with(|| name.clone());
            assert_eq!(*owner, name, "partition {partition} in generation {generation}");
        }
    }

    fn on_joined(&mut self, client: usize, reply: JoinReply) {
        let client = &mut self.clients[client];
        match reply.error {
            ErrorCode::None => {
                assert!(reply.generation >= self.generation, "generations only grow");
                self.generation = reply.generation;
                client.member_id = reply.member_id;
                client.generation = reply.generation;
                client.leads = reply.leader == client.member_id && !reply.skip_assignment;
                client.members = reply.members;
                let told = (reply.protocol_name, reply.leader);
                let first = self.told.entry(reply.generation).or_insert_with(|| told.clone());
                assert_eq!(first.0, told.0, "one protocol for all");
                // A static leader's id may change within a generation.
                assert!(self.statics || first.1 == told.1, "one leader for all");
            }
            ErrorCode::MemberIdRequired => client.member_id = reply.member_id,
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => {
                client.member_id = String::new();
            }
            _ => {}
        }
    }

    fn check(&mut self) {
        let description = self.coordinator.describe("g");
        // One event may end a rebalance, and the next one's joining phase, too.
        if (description.state, self.generation) != (self.state.0, self.state.1) {
            self.state = (description.state, self.generation, self.now);
        }
        let lasted = self.now - self.state.2;
        // Static members that do not come back end a rebalance with their sessions.
        let grace = if self.statics { SESSION_TIMEOUT } else { Duration::ZERO };
        match self.state.0 {
            GroupState::PreparingRebalance => {
                let longest = REBALANCE_TIMEOUT + INITIAL_DELAY + grace;
                assert!(lasted <= longest, "joining for {lasted:?}");
            }
            GroupState::CompletingRebalance => {
                let longest = REBALANCE_TIMEOUT + APPEND_TIMEOUT;
                assert!(lasted <= longest, "assigning for {lasted:?}");
            }
            _ => {}
        }
        for fetched in self.coordinator.fetch_offsets("g", None, false) {
            let last = self.offsets.insert(fetched.topic_partition.clone(), fetched.offset);
            assert!(last.is_none_or(|last| last <= fetched.offset), "{fetched:?} after {last:?}");
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let wake = self.coordinator.next_wake().map(|wake| wake - self.started);
            let wake = wake.filter(|wake| *wake <= end);
            // No append takes longer than its timeout.
            let late = self.log.iter().find_map(|entry| match entry {
                Entry::Batch(batch) if batch.is_committed.is_none() => {
                    Some((batch.append, batch.at + APPEND_TIMEOUT)).filter(|(_, at)| *at <= end)
                }
                _ => None,
            });
            match (wake, late) {
                (wake, Some((append, at))) if wake.is_none_or(|wake| at <= wake) => {
                    self.now = at.max(self.now);
                    self.end(append, Err(AppendFailure(ErrorCode::RequestTimedOut)));
                }
                (Some(wake), _) => {
                    self.now = wake.max(self.now);
                    let mut actions = Vec::new();
                    self.coordinator.on_wake(self.time(), &mut actions);
                    self.carry_out(actions);
                }
                _ => break,
            }
        }
        self.now = end;
        self.check();
    }

    fn end(&mut self, append: AppendId, result: Result<(), AppendFailure>) {
        for entry in &mut self.log {
            if let Entry::Batch(batch) = entry
                && batch.append == append
            {
                batch.is_committed = Some(result.is_ok());
            }
        }
        self.event(Event::Appended { append, result });
    }

    fn under_way(&self) -> Vec<AppendId> {
        let under_way = self.log.iter().filter_map(|entry| match entry {
            Entry::Batch(batch) => batch.is_committed.is_none().then_some(batch.append),
            Entry::Marker(..) => None,
        });
        under_way.collect()
    }

    fn member(&self, client: usize) -> GroupMember {
        let (instance, client) = (self.instance(client), &self.clients[client]);
        GroupMember {
            group: "g".to_owned(),
            generation: client.generation,
            member_id: client.member_id.clone(),
            group_instance_id: instance,
        }
    }

    fn instance(&self, client: usize) -> Option<String> {
        (self.statics && client < 2).then(|| format!("i{client}"))
    }

    fn offset(&mut self, partition: i32) -> OffsetToCommit {
        self.numbers += 1;
        OffsetToCommit {
            topic_partition: TopicPartition::new("t", partition),
            offset: Offset(self.numbers),
            leader_epoch: LeaderEpoch::NONE,
            metadata: String::new(),
            commit_timestamp: self.time().timestamp,
            expire_timestamp: None,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join { client, metadata, forgets_id } => self.join(client, metadata, forgets_id),
            Step::Sync { client } => self.sync(client),
            Step::Heartbeat { client, generation_off } => self.heartbeat(client, generation_off),
            Step::Act { client } => match self.clients[client].next {
                Next::Join => self.join(client, 0, false),
                Next::Sync => self.sync(client),
                Next::Heartbeat => self.heartbeat(client, false),
                Next::Wait => {}
            },
            Step::Leave { client } => {
                let member = self.member(client);
                let members = vec![LeavingMember {
                    member_id: member.member_id,
                    group_instance_id: member.group_instance_id,
                    reason: None,
                }];
                let reply = self.reply();
                self.event(Event::Leave { group: "g".to_owned(), members, reply });
            }
            Step::Commit { client, partition, producer } => {
                let member = self.member(client);
                self.commit(member, partition, producer);
            }
            Step::SimpleCommit { partition } => {
                let member = GroupMember {
                    group: "g".to_owned(),
                    generation: -1,
                    member_id: String::new(),
                    group_instance_id: None,
                };
                self.commit(member, partition, None);
            }
            Step::Marker { producer, committed } => {
                let producer_id = ProducerId(producer);
                self.log.push(Entry::Marker(producer_id, committed));
                self.event(Event::TransactionCompleted { producer_id, committed });
            }
            Step::Append { index, fails } => {
                let under_way = self.under_way();
                if let Some(append) = under_way.get(index % under_way.len().max(1)) {
                    let failure = AppendFailure(ErrorCode::NotEnoughReplicas);
                    self.end(*append, if fails { Err(failure) } else { Ok(()) });
                }
            }
            Step::Pass { milliseconds } => self.pass(Duration::from_millis(milliseconds)),
        }
    }

    fn sync(&mut self, client: usize) {
        self.numbers += 1;
        let Client { leads, members, generation, member_id, .. } = self.clients[client].clone();
        let name = self.instance(client).unwrap_or_else(|| member_id.clone());
        let assignments = if leads {
            assign(&members, generation, self.numbers)
        } else {
            // Who does not lead may claim everything, and gets nothing by it.
            vec![(member_id.clone(), assignment(generation, self.numbers, 0..PARTITIONS))]
        };
        let leads = self.told.get(&generation).is_some_and(|(_, leader)| *leader == member_id);
        let counts = self.coordinator.describe("g").state == GroupState::CompletingRebalance
            && generation == self.generation;
        if leads && counts {
            let name_of = |id: &String| {
                let member = members.iter().find(|member| member.member_id == *id);
                member.and_then(|one| one.group_instance_id.clone()).unwrap_or_else(|| id.clone())
            };
            let named = assignments.iter().map(|(id, given)| (name_of(id), given.clone()));
            // A leader that repeats itself is not heard.
            self.handed_out.entry(generation).or_insert_with(|| named.collect());
        }
        let request = SyncRequest {
            member: self.member(client),
            protocol_type: None,
            protocol_name: None,
            assignments,
        };
        let reply = self.reply_to(client);
        self.syncs.insert(reply, Asked { generation, name });
        self.event(Event::Sync { request, reply });
    }

    fn heartbeat(&mut self, client: usize, generation_off: bool) {
        let mut request = self.member(client);
        request.generation += i32::from(generation_off);
        let reply = self.reply_to(client);
        self.event(Event::Heartbeat { request, reply });
    }

    fn join(&mut self, client: usize, metadata: u8, forgets_id: bool) {
        if forgets_id {
            self.clients[client].member_id = String::new();
        }
        let reply = self.reply_to(client);
        let metadata = Bytes::copy_from_slice(&[metadata]);
        let names = [["range", "other"], ["other", "range"]][client % 2];
        let request = JoinRequest {
            group: "g".to_owned(),
            member_id: self.clients[client].member_id.clone(),
            group_instance_id: self.instance(client),
            client_id: format!("c{client}"),
            client_host: "/127.0.0.1".to_owned(),
            session_timeout: SESSION_TIMEOUT,
            rebalance_timeout: REBALANCE_TIMEOUT,
            protocol_type: "test".to_owned(),
            protocols: names.map(|name| (name.to_owned(), metadata.clone())).to_vec(),
            requires_known_member_id: client.is_multiple_of(2),
            supports_skipping_assignment: client.is_multiple_of(2),
            reason: None,
            member_uuid: reply.0.to_string(),
        };
        self.event(Event::Join { request, reply });
    }

    fn commit(&mut self, member: GroupMember, partition: i32, producer: Option<i64>) {
        let offsets = vec![self.offset(partition)];
        let transaction = producer.map(|id| (ProducerId(id), ProducerEpoch(0)));
        let request = CommitRequest { member, transaction, offsets };
        let reply = self.reply();
        self.event(Event::CommitOffsets { request, reply });
    }

    /// A coordinator that loads the log knows what this one knows.
    fn check_replay(&mut self) {
        for append in self.under_way() {
            self.end(append, Ok(()));
        }
        // The last ones may have led to more.
        for append in self.under_way() {
            self.end(append, Ok(()));
        }
        let mut other = GroupCoordinator::new(GroupConfig::default());
        let now = self.time();
        for entry in &self.log {
            match entry {
                Entry::Marker(producer_id, committed) => {
                    other.replay_marker(*producer_id, *committed);
                }
                Entry::Batch(batch) if batch.is_committed == Some(true) => {
                    for record in batch.records.clone() {
                        match batch.producer_id {
                            Some(id) => other.replay_transactional(id, record, now).unwrap(),
                            None => other.replay(record, now).unwrap(),
                        }
                    }
                }
                Entry::Batch(_) => {}
            }
        }
        other.loaded(now, &mut Vec::new());
        for stable in [true, false] {
            assert_eq!(
                self.coordinator.fetch_offsets("g", None, stable),
                other.fetch_offsets("g", None, stable)
            );
        }
        let description = self.coordinator.describe("g");
        if description.state == GroupState::Stable {
            assert_eq!(description, other.describe("g"));
        }
    }
}

/// Divides the partitions among members, each time in another way; now and then one is left out.
fn assign(members: &[JoinedMember], generation: i32, number: i64) -> Vec<(String, Bytes)> {
    let count = i64::try_from(members.len()).unwrap();
    let parts = (0..count).zip(members).map(|(index, member)| {
        let partitions = (0..PARTITIONS).filter(|one| (one + number) % count == index);
        (member.member_id.clone(), assignment(generation, number, partitions))
    });
    parts.skip(usize::from(number % 5 == 0)).collect()
}

/// An assignment that no other request has.
fn assignment(generation: i32, number: i64, partitions: impl Iterator<Item = i64>) -> Bytes {
    let partitions: Vec<String> = partitions.map(|partition| partition.to_string()).collect();
    format!("{generation} {number} {}", partitions.join(",")).into()
}

/// Empty for a member that was left out.
fn partitions_of(assignment: &[u8]) -> Vec<i64> {
    let text = std::str::from_utf8(assignment).unwrap();
    let partitions = text.rsplit(' ').next().unwrap_or_default();
    partitions.split(',').filter(|one| !one.is_empty()).map(|one| one.parse().unwrap()).collect()
}

fn live(steps: Vec<Step>, statics: bool) {
    let mut life = Life::new(statics);
    for step in steps {
        life.step(step);
    }
    life.check_replay();
    life.event(Event::Resign);
    assert!(life.waiting.is_empty(), "no answer: {:?}", life.waiting);
}

proptest! {
    #![proptest_config(seeded(100))]

    #[test]
    fn groups_of_dynamic_members_keep_their_promises(steps in prop::collection::vec(step(), 1..400)) {
        live(steps, false);
    }

    #[test]
    fn groups_with_static_members_keep_their_promises(steps in prop::collection::vec(step(), 1..400)) {
        live(steps, true);
    }
}
