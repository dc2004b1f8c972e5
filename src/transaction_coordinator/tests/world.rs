//! A coordinator with a log in memory and a driver that does what it is told, line by line.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};

use crate::{
    action::{Action, AllocationId, AppendId, Reply},
    coordinator::{TransactionConfig, TransactionCoordinator},
    event::{Event, MarkerOutcome, Now, ReplyTo, TransactionResult},
    query::{ListFilter, parse_states},
    records::{TransactionRecord, TransactionValue},
    state::TransactionState,
};

pub(super) struct World {
    pub(super) coordinator: TransactionCoordinator,
    pub(super) log: Vec<(Bytes, Option<Bytes>)>,
    pub(super) appends: BTreeMap<AppendId, Vec<TransactionRecord>>,
    pub(super) allocations: Vec<AllocationId>,
    /// Replies since they were last taken.
    pub(super) replies: Vec<(ReplyTo, Reply)>,
    /// Markers that were sent and not answered.
    pub(super) markers: Vec<(String, TransactionResult, TopicPartition)>,
    pub(super) recording: String,
    begin: Instant,
    elapsed: Duration,
    epoch: LeaderEpoch,
    reply_count: u64,
}

/// Kafka's defaults.
fn config() -> TransactionConfig {
    TransactionConfig {
        timeout_max: Duration::from_secs(900),
        id_expiration: Duration::from_secs(7 * 24 * 3600),
        abort_interval: Duration::from_secs(10),
        expire_interval: Duration::from_secs(3600),
    }
}

/// Reads `5/0`: producer id 5, epoch 0.
pub(super) fn producer(text: &str) -> (ProducerId, ProducerEpoch) {
    let (id, epoch) = text.split_once('/').unwrap();
    (ProducerId(id.parse().unwrap()), ProducerEpoch(epoch.parse().unwrap()))
}

pub(super) fn partition(text: &str) -> TopicPartition {
    let (topic, index) = text.rsplit_once('-').unwrap();
    TopicPartition::new(topic, index.parse().unwrap())
}

pub(super) fn partitions(text: &str) -> Vec<TopicPartition> {
    text.split(',').filter(|name| !name.is_empty()).map(partition).collect()
}

fn code(name: &str) -> ErrorCode {
    let named = |code: &&ErrorCode| format!("{code:?}") == name;
    *ErrorCode::ALL.iter().find(named).expect("a name of ErrorCode")
}

fn outcome(text: &str) -> (TopicPartition, MarkerOutcome) {
    let (name, outcome) = text.split_once('=').unwrap();
    let outcome = match outcome {
        "disconnected" => MarkerOutcome::Disconnected,
        "leaderless" => MarkerOutcome::LeaderUnknown,
        "deleted" => MarkerOutcome::NoSuchPartition,
        name => MarkerOutcome::Answered(code(name)),
    };
    (partition(name), outcome)
}

fn state(name: &str) -> TransactionState {
    TransactionState::ALL.into_iter().find(|state| state.name() == name).unwrap()
}

fn listed(partitions: &[TopicPartition]) -> String {
    let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    names.join(",")
}

pub(super) fn shown(value: &TransactionValue) -> String {
    let TransactionValue { producer_id, producer_epoch, .. } = value;
    let (name, partitions) = (value.state.name(), listed(&value.partitions));
    let mut text = format!("{producer_id}/{producer_epoch} {name}");
    if !partitions.is_empty() {
        write!(text, " {partitions}").unwrap();
    }
    if value.start != Timestamp::NONE {
        write!(text, " began {}", value.start).unwrap();
    }
    text
}

fn shown_record(record: &TransactionRecord) -> String {
    let value = record.value.as_ref().map_or("forgotten".to_owned(), shown);
    format!("{} {value}", record.transactional_id)
}

pub(super) fn shown_reply(reply: &Reply) -> String {
    match reply {
        Reply::InitProducerId { error: ErrorCode::None, producer_id, producer_epoch } => {
            format!("{producer_id}/{producer_epoch}")
        }
        Reply::InitProducerId { error, .. }
        | Reply::AddPartitions(error)
        | Reply::EndTxn(error) => format!("{error:?}"),
        Reply::Verify(codes) => format!("{codes:?}"),
    }
}

fn shown_action(action: &Action) -> String {
    match action {
        Action::Reply(ReplyTo(to), reply) => format!("reply {to} {}", shown_reply(reply)),
        Action::Append { records, .. } => {
            format!("append {}", records.iter().map(shown_record).collect::<Vec<_>>().join("; "))
        }
        Action::AllocateProducerId { .. } => "allocate".to_owned(),
        Action::SendMarkers {
            transactional_id,
            producer_id,
            producer_epoch,
            coordinator_epoch,
            result,
            partitions,
        } => format!(
            "mark {transactional_id} {producer_id}/{producer_epoch} {result:?} by {coordinator_epoch} {}",
            listed(partitions)
        ),
        Action::MarkerRefused { transactional_id, partition, error, consequence } => {
            format!("refused {transactional_id} {partition} {error:?} {consequence:?}")
        }
    }
}

impl World {
    pub(super) fn new() -> World {
        World {
            coordinator: TransactionCoordinator::new(LeaderEpoch(0), config()),
            log: Vec::new(),
            appends: BTreeMap::new(),
            allocations: Vec::new(),
            replies: Vec::new(),
            markers: Vec::new(),
            recording: String::new(),
            begin: common::clock::now(),
            elapsed: Duration::ZERO,
            epoch: LeaderEpoch(0),
            reply_count: 0,
        }
    }

    pub(super) fn now(&self) -> Now {
        let wall = Timestamp(i64::try_from(self.elapsed.as_millis()).unwrap());
        Now { monotonic: self.begin + self.elapsed, wall }
    }

    pub(super) fn set_time(&mut self, elapsed: Duration) {
        self.elapsed = elapsed;
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.elapsed += time;
    }

    pub(super) fn store(&mut self, record: &TransactionRecord) {
        self.log.push((record.encoded_key(), record.encoded_value()));
    }

    /// What the log says now.
    pub(super) fn stored(&self) -> BTreeMap<String, TransactionValue> {
        let mut stored = BTreeMap::new();
        for (key, value) in &self.log {
            let record = TransactionRecord::decode(Some(key), value.as_deref()).unwrap();
            let id = record.transactional_id.to_string();
            match record.value {
                Some(value) => stored.insert(id, value),
                None => stored.remove(&id),
            };
        }
        stored
    }

    /// The coordinator of another broker takes over.
    pub(super) fn restart(&mut self) {
        self.load();
        self.finish_load();
    }

    pub(super) fn load(&mut self) {
        self.epoch = LeaderEpoch(self.epoch.0 + 1);
        self.coordinator = TransactionCoordinator::new(self.epoch, config());
        self.appends.clear();
        self.allocations.clear();
        self.markers.clear();
        for (key, value) in &self.log {
            let record = TransactionRecord::decode(Some(key), value.as_deref()).unwrap();
            self.coordinator.replay(&record);
        }
    }

    pub(super) fn finish_load(&mut self) {
        let mut actions = Vec::new();
        self.coordinator.loaded(self.now(), &mut actions);
        self.carry_out(actions);
    }

    pub(super) fn event(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.coordinator.on_event(event, self.now(), &mut actions);
        self.carry_out(actions);
    }

    pub(super) fn wake(&mut self) {
        let mut actions = Vec::new();
        self.coordinator.on_wake(self.now(), &mut actions);
        self.carry_out(actions);
    }

    pub(super) fn reply(&mut self) -> ReplyTo {
        self.reply_count += 1;
        ReplyTo(self.reply_count)
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.say(&shown_action(&action));
            match action {
                Action::Reply(to, reply) => self.replies.push((to, reply)),
                Action::Append { append, records, .. } => {
                    assert!(self.appends.insert(append, records).is_none());
                }
                Action::AllocateProducerId { allocation } => self.allocations.push(allocation),
                Action::SendMarkers { transactional_id, result, partitions, .. } => {
                    assert!(!partitions.is_empty());
                    for partition in partitions {
                        let marker = (transactional_id.to_string(), result, partition);
                        assert!(!self.markers.contains(&marker), "{marker:?} is under way");
                        self.markers.push(marker);
                    }
                }
                Action::MarkerRefused { .. } => {}
            }
        }
    }

    fn say(&mut self, text: &str) {
        writeln!(self.recording, "{}s {text}", self.elapsed.as_secs_f64()).unwrap();
    }

    /// The oldest append ends.
    fn append_ends(&mut self, error: ErrorCode, is_written: bool) {
        let (append, records) = self.appends.pop_first().expect("an append is under way");
        self.append_ended(append, &records, error, is_written);
    }

    pub(super) fn append_ended(
        &mut self,
        append: AppendId,
        records: &[TransactionRecord],
        error: ErrorCode,
        is_written: bool,
    ) {
        if is_written {
            records.iter().for_each(|record| self.store(record));
        }
        self.event(Event::Appended { append, error });
    }

    pub(super) fn marked(&mut self, id: &str, outcomes: Vec<(TopicPartition, MarkerOutcome)>) {
        let answered = |one: &TopicPartition| outcomes.iter().any(|(other, _)| other == one);
        self.markers.retain(|(of, _, one)| of != id || !answered(one));
        self.event(Event::MarkersWritten { transactional_id: id.into(), outcomes });
    }

    /// `init ID TIMEOUT_MS [PRODUCER]`, `add ID PRODUCER PARTITIONS`, `verify ID PRODUCER PARTITIONS`,
    /// `end ID PRODUCER commit|abort` are requests; their answers are numbered. `id N` and `no-id CODE` answer the
    /// oldest allocation, `ok`, `fail CODE` and `lost CODE` (written, but nobody was told) the oldest append,
    /// `marked ID PARTITION=OUTCOME...` markers. `stored ID PRODUCER STATE [PARTITIONS]` writes to the log;
    /// `restart` loads it (`load`, `loaded`: one after the other); `wake`, `describe ID`, `list NAME...`,
    /// `queues` and `resign` speak for themselves.
    pub(super) fn step(&mut self, words: &[&str]) {
        match words {
            ["init", id, timeout, rest @ ..] => {
                let event = Event::InitProducerId {
                    transactional_id: (*id).into(),
                    timeout_ms: timeout.parse().unwrap(),
                    expected: rest.first().map(|text| producer(text)),
                    reply: self.reply(),
                };
                self.event(event);
            }
            ["add", id, who, rest @ ..] => {
                let (producer_id, producer_epoch) = producer(who);
                let event = Event::AddPartitions {
                    transactional_id: (*id).into(),
                    producer_id,
                    producer_epoch,
                    partitions: partitions(rest.first().unwrap_or(&"")),
                    reply: self.reply(),
                };
                self.event(event);
            }
            ["verify", id, who, names] => {
                let (producer_id, producer_epoch) = producer(who);
                let event = Event::VerifyPartitions {
                    transactional_id: (*id).into(),
                    producer_id,
                    producer_epoch,
                    partitions: partitions(names),
                    reply: self.reply(),
                };
                self.event(event);
            }
            ["end", id, who, result] => {
                let (producer_id, producer_epoch) = producer(who);
                let result = match *result {
                    "commit" => TransactionResult::Commit,
                    _ => TransactionResult::Abort,
                };
                let reply = self.reply();
                let transactional_id = (*id).into();
                self.event(Event::EndTxn {
                    transactional_id,
                    producer_id,
                    producer_epoch,
                    result,
                    reply,
                });
            }
            other => self.driver_step(other),
        }
    }

    fn driver_step(&mut self, words: &[&str]) {
        match words {
            ["id", id] => {
                let allocation = self.allocations.remove(0);
                let result = Ok(ProducerId(id.parse().unwrap()));
                self.event(Event::ProducerIdAllocated { allocation, result });
            }
            ["no-id", name] => {
                let allocation = self.allocations.remove(0);
                self.event(Event::ProducerIdAllocated { allocation, result: Err(code(name)) });
            }
            ["ok"] => self.append_ends(ErrorCode::None, true),
            ["fail", name] => self.append_ends(code(name), false),
            ["lost", name] => self.append_ends(code(name), true),
            ["marked", id, rest @ ..] => {
                self.marked(id, rest.iter().map(|text| outcome(text)).collect());
            }
            ["stored", id, who, name, rest @ ..] => {
                let (producer_id, producer_epoch) = producer(who);
                let state = state(name);
                let value = TransactionValue {
                    producer_id,
                    producer_epoch,
                    timeout_ms: 60_000,
                    state,
                    partitions: partitions(rest.first().unwrap_or(&"")),
                    last_update: self.now().wall,
                    start: match state {
                        TransactionState::Empty => Timestamp::NONE,
                        _ => self.now().wall,
                    },
                };
                let transactional_id = (*id).into();
                self.store(&TransactionRecord { transactional_id, value: Some(value) });
            }
            ["restart"] => self.restart(),
            ["load"] => self.load(),
            ["loaded"] => self.finish_load(),
            ["wake"] => self.wake(),
            ["resign"] => self.event(Event::Resign),
            ["next-wake"] => {
                let at = self.coordinator.next_wake().map(|at| (at - self.begin).as_secs_f64());
                self.say(&format!("next wake {at:?}"));
            }
            ["describe", id] => {
                let text = match self.coordinator.describe(id) {
                    Ok(one) => format!(
                        "{}/{} {} began {} [{}]",
                        one.producer_id,
                        one.producer_epoch,
                        one.state.name(),
                        one.start,
                        listed(&one.partitions)
                    ),
                    Err(code) => format!("{code:?}"),
                };
                self.say(&format!("{id}: {text}"));
            }
            ["queues"] => {
                let queues = self.coordinator.queues();
                self.say(&format!("{queues:?}"));
            }
            ["list", names @ ..] => self.list(names),
            other => panic!("no such step: {other:?}"),
        }
    }

    /// A number is a producer id, `>5s` a duration, another word a state.
    fn list(&mut self, words: &[&str]) {
        let mut filter = ListFilter::default();
        let mut names = Vec::new();
        for word in words {
            if let Ok(id) = word.parse() {
                filter.producer_ids.insert(ProducerId(id));
            } else if let Some(seconds) = word.strip_prefix('>') {
                filter.running_longer_than = Some(time(seconds));
            } else {
                names.push((*word).to_owned());
            }
        }
        let (states, unknown) = parse_states(&names);
        filter.states = states;
        match self.coordinator.list(&filter, self.now().wall) {
            Ok(lines) => {
                let line = |one: &crate::query::ListedTransaction| {
                    format!("{} {} {}", one.transactional_id, one.producer_id, one.state.name())
                };
                let lines: Vec<String> = lines.iter().map(line).collect();
                self.say(&format!("list {lines:?}, unknown {unknown:?}"));
            }
            Err(code) => self.say(&format!("list {code:?}")),
        }
    }
}

/// Reads `1.5s`.
fn time(text: &str) -> Duration {
    Duration::from_secs_f64(text.trim_end_matches('s').parse().unwrap())
}

/// Runs lines of a time and a step; without `restart` or `load` in the first, the log is empty and loaded.
pub(super) fn run(script: &str) -> World {
    let mut world = World::new();
    let lines: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if !lines.iter().any(|line| line.contains("s stored") || line.ends_with(" load")) {
        world.finish_load();
    }
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        world.set_time(time(words[0]));
        world.step(&words[1..]);
    }
    world
}
