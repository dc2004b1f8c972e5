//! The group coordinator as a shard runs it.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    counters::{Meter, MetricName, Registry},
    error_code::ErrorCode,
};
use group_coordinator::{
    action::{Action, AppendKind, Note, Rebalance, RebalanceOutcome, RemovalCause, Reply},
    config::GroupConfig,
    coordinator::GroupCoordinator,
    event::{AppendFailure as Failure, AppendId, Event, Now},
    records::{self, Decoded, GroupRecord, ValueVersions},
};
use record::control::TransactionResult;
use tracing::{debug, info, warn};

use crate::{
    log::{Loaded, LogRecord},
    shard::{Append, AppendFailure, Coordinator, Step, Steps, Time},
};

/// What Kafka logs of groups under.
const LOGGER: &str = "kafka.coordinator.group.GroupCoordinator";

/// The groups of one partition of `__consumer_offsets`.
#[derive(Debug)]
pub struct Groups {
    coordinator: GroupCoordinator,
    /// The protocol's code for an append that failed.
    code: fn(&AppendFailure) -> ErrorCode,
    meters: GroupMeters,
    /// How many offsets each commit under way holds, by its append's number, which grow; as many as appends.
    commits: VecDeque<(u64, u64)>,
    actions: Vec<Action>,
}

/// What groups count, under Kafka's names. Source: `GroupMetadataManager`, `GroupCoordinator`.
#[derive(Clone, Debug)]
pub struct GroupMeters {
    offset_commits: Arc<Meter>,
    offset_expirations: Arc<Meter>,
    offset_deletions: Arc<Meter>,
    completed_rebalances: Arc<Meter>,
}

impl GroupMeters {
    /// The counters, in a registry.
    pub fn of_broker(registry: &Registry) -> GroupMeters {
        let meter = |name| {
            registry.meter(MetricName::new("kafka.server", "group-coordinator-metrics", name))
        };
        GroupMeters {
            offset_commits: meter("offset-commit-count"),
            offset_expirations: meter("offset-expiration-count"),
            offset_deletions: meter("offset-deletion-count"),
            completed_rebalances: meter("group-completed-rebalance-count"),
        }
    }
}

impl GroupMeters {
    fn count(&self, note: &Note) {
        let Note::OffsetsRemoved { cause, offsets, .. } = note else { return };
        match cause {
            RemovalCause::Expired => self.offset_expirations.mark(*offsets as u64),
            RemovalCause::Deleted => self.offset_deletions.mark(*offsets as u64),
            // Kafka counts neither.
            RemovalCause::GroupDeleted | RemovalCause::TopicDeleted => {}
        }
    }
}

/// Groups have nothing done but by their log.
#[derive(Debug)]
pub enum NoEffect {}

impl Groups {
    /// No groups yet. `code` gives the protocol's code for an append that failed.
    pub fn new(
        config: GroupConfig,
        code: fn(&AppendFailure) -> ErrorCode,
        meters: GroupMeters,
    ) -> Groups {
        let coordinator = GroupCoordinator::new(config);
        Groups { coordinator, code, meters, commits: VecDeque::new(), actions: Vec::new() }
    }

    /// The groups themselves, to ask.
    pub fn coordinator(&self) -> &GroupCoordinator {
        &self.coordinator
    }

    /// Removes offsets that have expired; `retention` is `offsets.retention.minutes`.
    pub fn expire_offsets(&mut self, retention: Duration, time: Time, steps: &mut Steps<Groups>) {
        self.coordinator.expire_offsets(retention, now(time), &mut self.actions);
        self.steps(time, steps);
    }

    /// Turns what was decided into steps. A record that cannot be encoded fails its append, which decides more.
    fn steps(&mut self, time: Time, steps: &mut Steps<Groups>) {
        while !self.actions.is_empty() {
            let mut actions = std::mem::take(&mut self.actions);
            for action in actions.drain(..) {
                match action {
                    Action::Append { append, records, transaction, kind, timeout } => {
                        if kind == AppendKind::Offsets {
                            self.commits.push_back((append.0, records.len() as u64));
                        }
                        match records.iter().map(log_record).collect() {
                            Ok(records) => {
                                let append = append.0;
                                let append = Append { append, records, transaction, timeout };
                                steps.push_back(Step::Append(append));
                            }
                            Err(error) => self.fail(append, &error, time),
                        }
                    }
                    Action::Reply(reply, answer) => steps.push_back(Step::Reply(reply.0, answer)),
                    Action::Rebalance(rebalance) => {
                        if rebalance.outcome == RebalanceOutcome::Stable {
                            self.meters.completed_rebalances.mark(1);
                        }
                        log_rebalance(&rebalance);
                    }
                    Action::Note(note) => {
                        self.meters.count(&note);
                        log_note(&note);
                    }
                }
            }
            if self.actions.is_empty() {
                self.actions = actions; // For its room.
            }
        }
    }

    fn fail(&mut self, append: AppendId, error: &records::RecordError, time: Time) {
        warn!(target: LOGGER, %error, "a record cannot be written");
        let result = Err(Failure(ErrorCode::UnknownServerError));
        let event = Event::Appended { append, result };
        self.coordinator.on_event(event, now(time), &mut self.actions);
    }
}

pub(crate) fn log_record(record: &GroupRecord) -> Result<LogRecord, records::RecordError> {
    let encoded = records::encode(record, ValueVersions::LATEST)?;
    Ok(LogRecord { key: encoded.key, value: encoded.value })
}

fn now(time: Time) -> Now {
    Now { instant: time.now, timestamp: time.wall_clock }
}

impl Coordinator for Groups {
    type Event = Event;
    type Reply = Reply;
    type Effect = NoEffect;

    fn load(&mut self, loaded: &Loaded<'_>, time: Time) -> Result<(), String> {
        match loaded {
            Loaded::Record { record, transaction } => {
                let key = record.key.ok_or("a record without a key")?;
                let decoded = records::decode(key, record.value);
                let record = match decoded.map_err(|error| error.to_string())? {
                    Decoded::Record(record) => record,
                    Decoded::UnknownKey { version } => {
                        return Err(format!("a key of version {version}"));
                    }
                };
                let replayed = match transaction {
                    None => self.coordinator.replay(record, now(time)),
                    Some(id) => self.coordinator.replay_transactional(*id, record, now(time)),
                };
                replayed.map_err(|error| error.to_string())
            }
            Loaded::Marker { producer_id, result } => {
                let committed = *result == TransactionResult::Commit;
                self.coordinator.replay_marker(*producer_id, committed);
                Ok(())
            }
            Loaded::Unreadable { .. } => Ok(()),
        }
    }

    fn loaded(&mut self, time: Time, steps: &mut Steps<Groups>) {
        self.coordinator.loaded(now(time), &mut self.actions);
        self.steps(time, steps);
    }

    fn on_event(&mut self, event: Event, time: Time, steps: &mut Steps<Groups>) {
        self.coordinator.on_event(event, now(time), &mut self.actions);
        self.steps(time, steps);
    }

    fn on_appended(
        &mut self,
        append: u64,
        result: Result<(), AppendFailure>,
        time: Time,
        steps: &mut Steps<Groups>,
    ) {
        let result = result.map_err(|failure| Failure((self.code)(&failure)));
        let commit = self.commits.binary_search_by_key(&append, |(append, _)| *append);
        let commit = commit.ok().and_then(|index| self.commits.remove(index));
        let offsets = commit.map_or(0, |(_, offsets)| offsets);
        if result.is_ok() {
            self.meters.offset_commits.mark(offsets);
        }
        let event = Event::Appended { append: AppendId(append), result };
        self.coordinator.on_event(event, now(time), &mut self.actions);
        self.steps(time, steps);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.coordinator.next_wake()
    }

    fn on_wake(&mut self, time: Time, steps: &mut Steps<Groups>) {
        self.coordinator.on_wake(now(time), &mut self.actions);
        self.steps(time, steps);
    }

    fn resign(&mut self, time: Time, steps: &mut Steps<Groups>) {
        self.coordinator.on_event(Event::Resign, now(time), &mut self.actions);
        self.steps(time, steps);
    }
}

/// One line for each rebalance: who caused it, who kept it waiting, how long.
fn log_rebalance(rebalance: &Rebalance) {
    info!(
        target: LOGGER,
        group = &*rebalance.group,
        generation = rebalance.generation,
        outcome = ?rebalance.outcome,
        cause = ?rebalance.cause.reason,
        by = rebalance.cause.member_id,
        reason = rebalance.cause.client_reason,
        joining_ms = rebalance.joining.as_millis(),
        assigning_ms = rebalance.assigning.as_millis(),
        last_to_join = rebalance.last_to_join,
        did_not_join = ?rebalance.did_not_join,
        leader = rebalance.leader,
        members = rebalance.members,
        "rebalanced"
    );
}

fn log_note(note: &Note) {
    match note {
        Note::MemberExpired { group, member_id } => {
            info!(target: LOGGER, group = &**group, member_id, "a member's session is over; it is removed");
        }
        Note::PendingMemberExpired { group, member_id } => {
            info!(target: LOGGER, group = &**group, member_id, "a member that was given its id did not come back");
        }
        Note::StaticMemberReplaced { group, group_instance_id, old_member_id, new_member_id } => {
            info!(target: LOGGER, group = &**group, group_instance_id, old_member_id, new_member_id, "a static member is replaced");
        }
        Note::LeaderReplaced { group, old_member_id, new_member_id } => {
            info!(target: LOGGER, group = &**group, old_member_id, new_member_id, "the leader did not join; another member leads");
        }
        Note::NobodyJoined { group, members } => {
            info!(target: LOGGER, group = &**group, members, "nobody joined in time; the group waits once more");
        }
        Note::MembersWithoutAssignment { group, generation, members } => {
            warn!(target: LOGGER, group = &**group, generation, members, "the leader's assignment leaves members out");
        }
        Note::MembersDidNotSync { group, generation, members } => {
            info!(target: LOGGER, group = &**group, generation, ?members, "members took no assignment in time; they are removed");
        }
        Note::SubscriptionUnreadable { group, member_id } => {
            warn!(target: LOGGER, group = &**group, member_id, "a member's subscription cannot be read");
        }
        Note::GroupNotStored { group, generation, error } => {
            warn!(target: LOGGER, group = &**group, generation, %error, "the group's generation was not stored");
        }
        Note::MixedCommits { group } => {
            warn!(target: LOGGER, group = &**group, "consumers and transactional producers commit offsets of the group in one generation");
        }
        Note::TombstonesNotStored { group, error } => {
            warn!(target: LOGGER, group = &**group, %error, "tombstones were not stored; what they should remove stays");
        }
        Note::OffsetsRemoved { cause, group, offsets } => {
            debug!(target: LOGGER, group = &**group, offsets, ?cause, "offsets are removed");
        }
        Note::GroupRemoved { group, generation } => {
            info!(target: LOGGER, group = &**group, generation, "the group is removed");
        }
    }
}
