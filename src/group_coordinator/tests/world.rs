//! A coordinator, a log that keeps what it appends, and the time. Tells a script's lines, prints what comes out.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};

use super::print;
use crate::{
    action::{Action, AppendKind},
    config::GroupConfig,
    coordinator::GroupCoordinator,
    event::{
        AppendFailure, AppendId, CommitRequest, Event, GroupMember, JoinRequest, LeavingMember,
        Now, OffsetToCommit, ReplyTo, SyncRequest,
    },
    records::GroupRecord,
};

/// A batch of the log, or a marker.
enum Entry {
    Batch {
        append: AppendId,
        is_committed: bool,
        producer_id: Option<ProducerId>,
        records: Vec<GroupRecord>,
    },
    Marker(ProducerId, bool),
}

pub(super) struct World {
    config: GroupConfig,
    coordinator: GroupCoordinator,
    started: Instant,
    now: Duration,
    replies: u64,
    log: Vec<Entry>,
    /// Appends wait for `done` and `fail`.
    is_holding: bool,
    states: BTreeMap<String, &'static str>,
    pub(super) output: String,
}

pub(super) fn seconds(text: &str) -> Duration {
    let number = text.strip_suffix('s').unwrap_or_else(|| panic!("{text}: no seconds"));
    Duration::from_secs_f64(number.parse().unwrap())
}

fn partition(text: &str) -> TopicPartition {
    let (topic, index) = text.rsplit_once('-').unwrap_or_else(|| panic!("{text}: no partition"));
    TopicPartition::new(topic, index.parse().unwrap())
}

fn code(name: &str) -> ErrorCode {
    *ErrorCode::ALL.iter().find(|code| code.name() == name).unwrap_or_else(|| panic!("{name}"))
}

/// The words of a line: `name=value`, and the rest in their order.
struct Words<'a> {
    named: BTreeMap<&'a str, &'a str>,
    plain: Vec<&'a str>,
}

const NAMES: &[&str] = &[
    "id",
    "as",
    "client",
    "uuid",
    "session",
    "rebalance",
    "type",
    "protocols",
    "reason",
    "name",
    "assign",
    "txn",
    "expires",
    "at",
    "size",
    "delay",
    "bytes",
    "metadata",
    "min",
];

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Words<'a> {
        let (mut named, mut plain) = (BTreeMap::new(), Vec::new());
        for word in line.split_whitespace() {
            match word.split_once('=').filter(|(name, _)| NAMES.contains(name)) {
                Some((name, value)) => drop(named.insert(name, value)),
                None => plain.push(word),
            }
        }
        Words { named, plain }
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.named.get(name).copied()
    }

    fn text(&self, name: &str, default: &str) -> String {
        self.get(name).unwrap_or(default).to_owned()
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// `-` is the empty name.
    fn group(&self) -> String {
        self.plain[1].trim_matches('-').to_owned()
    }

    fn member(&self) -> GroupMember {
        GroupMember {
            group: self.group(),
            member_id: self.plain[2].trim_matches('-').to_owned(),
            generation: self.plain[3].parse().unwrap(),
            group_instance_id: self.owned("as"),
        }
    }

    fn has(&self, word: &str) -> bool {
        self.plain.contains(&word)
    }
}

/// `range:x,roundrobin:y`; `range@t+u` is a consumer's subscription to two topics.
fn protocols(text: &str) -> Vec<(String, Bytes)> {
    let protocol = |text: &str| match text.split_once('@') {
        Some((name, topics)) => (name.to_owned(), subscription(topics.split('+'))),
        None => {
            let (name, metadata) = text.split_once(':').unwrap_or((text, ""));
            (name.to_owned(), Bytes::copy_from_slice(metadata.as_bytes()))
        }
    };
    text.split(',').filter(|text| !text.is_empty()).map(protocol).collect()
}

pub(super) fn subscription<'a>(topics: impl Iterator<Item = &'a str>) -> Bytes {
    let topics: Vec<&str> = topics.collect();
    let mut bytes = 0_i16.to_be_bytes().to_vec();
    bytes.extend(i32::try_from(topics.len()).unwrap().to_be_bytes());
    for topic in topics {
        bytes.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend((-1_i32).to_be_bytes());
    bytes.into()
}

impl World {
    pub(super) fn new() -> World {
        let config = GroupConfig {
            initial_rebalance_delay: Duration::from_secs(3),
            ..GroupConfig::default()
        };
        World {
            coordinator: GroupCoordinator::new(config.clone()),
            config,
            started: common::clock::now(),
            now: Duration::ZERO,
            replies: 0,
            log: Vec::new(),
            is_holding: false,
            states: BTreeMap::new(),
            output: String::new(),
        }
    }

    fn time(&self) -> Now {
        let milliseconds = i64::try_from(self.now.as_millis()).unwrap();
        Now { instant: self.started + self.now, timestamp: Timestamp(milliseconds) }
    }

    /// Lets time pass, and timers go off at theirs.
    pub(super) fn pass_until(&mut self, time: Duration) {
        while let Some(wake) = self.coordinator.next_wake().map(|wake| wake - self.started)
            && wake <= time
        {
            self.now = wake.max(self.now);
            let mut actions = Vec::new();
            self.coordinator.on_wake(self.time(), &mut actions);
            self.carry_out(actions);
        }
        self.now = time;
    }

    fn event(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.coordinator.on_event(event, self.time(), &mut actions);
        self.carry_out(actions);
    }

    fn print(&mut self, text: &str) {
        writeln!(self.output, "{}s {text}", self.now.as_secs_f64()).unwrap();
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        let mut appended = Vec::new();
        for action in actions {
            self.print(&print::action(&action));
            if let Action::Append { append, records, transaction, kind, .. } = action {
                assert_eq!(kind, kind_of(&records));
                let producer_id = transaction.map(|(producer_id, _)| producer_id);
                let is_committed = !self.is_holding;
                self.log.push(Entry::Batch { append, is_committed, producer_id, records });
                if is_committed {
                    appended.push(append);
                }
            }
        }
        self.print_states();
        for append in appended {
            self.event(Event::Appended { append, result: Ok(()) });
        }
    }

    fn print_states(&mut self) {
        let overviews = self.coordinator.list(&[]);
        let states: BTreeMap<String, &'static str> = overviews
            .into_iter()
            .map(|overview| (overview.group.as_ref().to_owned(), overview.state.name()))
            .collect();
        let before = std::mem::replace(&mut self.states, states.clone());
        for (group, state) in &states {
            if before.get(group) != Some(state) {
                self.print(&format!("{group} is {state}"));
            }
        }
        for group in before.keys().filter(|group| !states.contains_key(*group)) {
            self.print(&format!("{group} is gone"));
        }
    }

    pub(super) fn line(&mut self, line: &str) {
        let (time, line) = line.split_once(char::is_whitespace).unwrap();
        self.pass_until(seconds(time));
        let words = Words::of(line);
        match words.plain[0] {
            "config" => self.configure(&words),
            "hold" => self.is_holding = true,
            "done" => self.done(&words, None),
            "fail" => self.done(&words, Some(code(words.plain[2]))),
            "pass" => {}
            "reload" => self.reload(),
            "expire" => {
                let mut actions = Vec::new();
                let retention = seconds(words.plain[1]);
                self.coordinator.expire_offsets(retention, self.time(), &mut actions);
                self.carry_out(actions);
            }
            "fetch" => self.fetch(&words),
            "describe" => {
                let description = self.coordinator.describe(&words.group());
                self.print(&print::description(&description));
            }
            "list" => {
                let states: Vec<String> =
                    words.plain[1..].iter().map(|word| (*word).to_owned()).collect();
                let text = print::overviews(&self.coordinator.list(&states));
                self.print(&text);
            }
            "marker" => self.marker(&words),
            _ => {
                let event = self.request(&words);
                self.event(event);
            }
        }
    }

    fn configure(&mut self, words: &Words) {
        let number = |name, value: &mut usize| {
            *value = words.get(name).map_or(*value, |text| text.parse().unwrap());
        };
        number("size", &mut self.config.group_size_max);
        number("bytes", &mut self.config.group_metadata_bytes_max);
        number("metadata", &mut self.config.offset_metadata_max);
        if let Some(delay) = words.get("delay") {
            self.config.initial_rebalance_delay = seconds(delay);
        }
        self.coordinator.set_config(self.config.clone());
    }

    fn done(&mut self, words: &Words, error: Option<ErrorCode>) {
        let append = AppendId(words.plain[1].parse().unwrap());
        let result = error.map_or(Ok(()), |error| Err(AppendFailure(error)));
        // Names begin anew with each coordinator.
        let entry = self.log.iter_mut().rev().find_map(|entry| match entry {
            Entry::Batch { append: name, is_committed, .. } if *name == append => {
                Some(is_committed)
            }
            _ => None,
        });
        *entry.expect("an append that is held") = result.is_ok();
        self.event(Event::Appended { append, result });
    }

    fn marker(&mut self, words: &Words) {
        let producer_id = ProducerId(words.plain[1].parse().unwrap());
        let committed = words.has("commit");
        self.log.push(Entry::Marker(producer_id, committed));
        self.event(Event::TransactionCompleted { producer_id, committed });
    }

    /// Another broker takes over, with what is in the log.
    fn reload(&mut self) {
        self.coordinator = GroupCoordinator::new(self.config.clone());
        let now = self.time();
        for entry in &self.log {
            match entry {
                Entry::Batch { is_committed: false, .. } => {}
                Entry::Marker(producer_id, committed) => {
                    self.coordinator.replay_marker(*producer_id, *committed);
                }
                Entry::Batch { producer_id, records, .. } => {
                    for record in records.clone() {
                        match producer_id {
                            None => self.coordinator.replay(record, now).unwrap(),
                            Some(id) => {
                                self.coordinator.replay_transactional(*id, record, now).unwrap();
                            }
                        }
                    }
                }
            }
        }
        let mut actions = Vec::new();
        self.coordinator.loaded(now, &mut actions);
        self.carry_out(actions);
    }

    fn fetch(&mut self, words: &Words) {
        let partitions: Vec<TopicPartition> = words.plain[2..]
            .iter()
            .filter(|word| **word != "stable")
            .map(|w| partition(w))
            .collect();
        let wanted = (!partitions.is_empty()).then_some(&partitions[..]);
        let offsets = self.coordinator.fetch_offsets(&words.group(), wanted, words.has("stable"));
        self.print(&print::offsets(&offsets));
    }

    fn request(&mut self, words: &Words) -> Event {
        self.replies += 1;
        let reply = ReplyTo(self.replies);
        match words.plain[0] {
            "join" => Event::Join { request: join(words), reply },
            "sync" => {
                let request = SyncRequest {
                    member: words.member(),
                    protocol_type: words.owned("type"),
                    protocol_name: words.owned("name"),
                    assignments: protocols(words.get("assign").unwrap_or_default()),
                };
                Event::Sync { request, reply }
            }
            "heartbeat" => Event::Heartbeat { request: words.member(), reply },
            "leave" => {
                let leaving = |word: &&str| {
                    let (member_id, instance) = word.split_once('/').unwrap_or((word, ""));
                    LeavingMember {
                        member_id: member_id.to_owned(),
                        group_instance_id: (!instance.is_empty()).then(|| instance.to_owned()),
                        reason: words.owned("reason"),
                    }
                };
                let members = words.plain[2..].iter().map(leaving).collect();
                Event::Leave { group: words.group(), members, reply }
            }
            "commit" => Event::CommitOffsets { request: self.commit(words), reply },
            "delete-offsets" => {
                let partitions = words.plain[2..].iter().map(|word| partition(word)).collect();
                Event::DeleteOffsets { group: words.group(), partitions, reply }
            }
            "delete" => Event::DeleteGroup { group: words.group(), reply },
            "partitions-deleted" => {
                let partitions = words.plain[1..].iter().map(|word| partition(word)).collect();
                Event::PartitionsDeleted { partitions }
            }
            "resign" => Event::Resign,
            verb => panic!("{verb}: unknown"),
        }
    }

    fn commit(&self, words: &Words) -> CommitRequest {
        let offset = |word: &&str| {
            let (name, offset) = word.split_once('=').unwrap();
            let (offset, metadata) = offset.split_once(':').unwrap_or((offset, ""));
            let at = words.get("at").map_or(self.now, seconds);
            let expires = words.get("expires").map(seconds);
            let timestamp = |time: Duration| Timestamp(i64::try_from(time.as_millis()).unwrap());
            OffsetToCommit {
                topic_partition: partition(name),
                offset: Offset(offset.parse().unwrap()),
                leader_epoch: LeaderEpoch::NONE,
                metadata: metadata.to_owned(),
                commit_timestamp: timestamp(at),
                expire_timestamp: expires.map(timestamp),
            }
        };
        let transaction =
            words.get("txn").map(|id| (ProducerId(id.parse().unwrap()), ProducerEpoch(0)));
        CommitRequest {
            member: words.member(),
            transaction,
            offsets: words.plain[4..].iter().map(offset).collect(),
        }
    }
}

fn kind_of(records: &[GroupRecord]) -> AppendKind {
    match records {
        [GroupRecord::GroupMetadata { value: Some(_), .. }] => AppendKind::GroupMetadata,
        [GroupRecord::OffsetCommit { value: Some(_), .. }, ..] => AppendKind::Offsets,
        _ => AppendKind::Tombstones,
    }
}

fn join(words: &Words) -> JoinRequest {
    let session_timeout = seconds(words.get("session").unwrap_or("10s"));
    JoinRequest {
        group: words.group(),
        member_id: words.text("id", ""),
        group_instance_id: words.owned("as"),
        client_id: words.text("client", "c"),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout,
        rebalance_timeout: seconds(words.get("rebalance").unwrap_or("60s")),
        protocol_type: words.text("type", "consumer"),
        protocols: protocols(words.get("protocols").unwrap_or("range@t")),
        requires_known_member_id: words.has("v4") || words.has("v9"),
        supports_skipping_assignment: words.has("v9"),
        reason: words.owned("reason"),
        member_uuid: words.text("uuid", "1"),
    }
}
