//! What goes: deleted groups and offsets, offsets of deleted topics, offsets that are too old.
//! Source: `GroupMetadataManager.cleanupGroupMetadata`, `GroupMetadata.removeExpiredOffsets`.
//!
//! Kafka forgets first and then writes tombstones, whose fate it does not follow. Here they are committed first,
//! so that nothing comes back with the next coordinator that a client believes is gone.

use std::{collections::HashMap, sync::Arc, time::Duration};

use common::{error_code::ErrorCode, ids::Timestamp, topic::TopicPartition};

use crate::{
    action::{AppendKind, DeleteOffsetsReply, GroupState, Note, RemovalCause, Reply},
    commit::commit_error,
    config::TOMBSTONE_BATCH_BYTES_MAX,
    event::{AppendId, ReplyTo},
    group::{Group, State},
    offsets::Committed,
    records::{GroupRecord, OffsetCommitValue},
    turn::{PendingAppend, Purpose, Turn},
};

/// Removals under way, of all groups.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    pending: HashMap<u64, Removal>,
    last: u64,
}

/// Tombstones of one group, in one or more batches.
#[derive(Debug)]
pub(crate) struct Removal {
    batches_left: usize,
    error: ErrorCode,
    offsets: usize,
    cause: RemovalCause,
    /// The group is `Dead`, and gone once this is over.
    ends_group: bool,
    answer: Option<(ReplyTo, Answer)>,
}

/// Whom to tell, and what if it went well.
#[derive(Debug)]
pub(crate) enum Answer {
    DeleteGroup,
    /// Codes of the request's partitions; NONE for those that are being removed.
    DeleteOffsets(Vec<ErrorCode>),
}

/// What became of a group by a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    Gone,
}

impl Removals {
    /// A batch of a removal is committed, or is not. Once it was the last, answers, and gives the removal back.
    pub(crate) fn on_batch(
        &mut self,
        removal: u64,
        error: ErrorCode,
        turn: &mut Turn,
    ) -> Option<Removal> {
        let pending = self.pending.get_mut(&removal)?;
        pending.batches_left -= 1;
        if error != ErrorCode::None {
            pending.error = removal_error(error);
        }
        if pending.batches_left > 0 {
            return None;
        }
        let mut removal = self.pending.remove(&removal)?;
        if let Some((reply, answer)) = removal.answer.take() {
            turn.reply(reply, answer.with(removal.error));
        }
        Some(removal)
    }

    /// Answers everyone who waits for a removal with NOT_COORDINATOR.
    pub(crate) fn resign(&mut self, turn: &mut Turn) {
        let mut waiting: Vec<_> =
            self.pending.drain().filter_map(|(_, removal)| removal.answer).collect();
        waiting.sort_by_key(|(reply, _)| *reply);
        for (reply, answer) in waiting {
            turn.reply(reply, answer.with(ErrorCode::NotCoordinator));
        }
    }
}

impl Answer {
    fn with(self, error: ErrorCode) -> Reply {
        match self {
            Answer::DeleteGroup => Reply::DeleteGroup(error),
            Answer::DeleteOffsets(codes) => {
                let code = |code| if code == ErrorCode::None { error } else { code };
                let partitions = codes.into_iter().map(code).collect();
                Reply::DeleteOffsets(DeleteOffsetsReply { error: ErrorCode::None, partitions })
            }
        }
    }
}

impl Group {
    pub(crate) fn on_delete(
        &mut self,
        reply: ReplyTo,
        removals: &mut Removals,
        turn: &mut Turn,
    ) -> Fate {
        let error = match self.state() {
            GroupState::Empty => {
                let partitions = self.offsets.partitions().collect();
                let answer = Some((reply, Answer::DeleteGroup));
                let cause = RemovalCause::GroupDeleted;
                return self.remove_offsets(partitions, cause, answer, removals, turn);
            }
            GroupState::Dead => ErrorCode::GroupIdNotFound,
            _ => ErrorCode::NonEmptyGroup,
        };
        turn.reply(reply, Reply::DeleteGroup(error));
        Fate::Stays
    }

    pub(crate) fn on_delete_offsets(
        &mut self,
        partitions: Vec<TopicPartition>,
        reply: ReplyTo,
        removals: &mut Removals,
        turn: &mut Turn,
    ) -> Fate {
        let error = match self.state() {
            GroupState::Dead => ErrorCode::GroupIdNotFound,
            GroupState::Empty => ErrorCode::None,
            _ if self.is_consumer_group() => ErrorCode::None,
            _ => ErrorCode::NonEmptyGroup,
        };
        if error != ErrorCode::None {
            let answer = DeleteOffsetsReply { error, partitions: Vec::new() };
            turn.reply(reply, Reply::DeleteOffsets(answer));
            return Fate::Stays;
        }
        let may_be_subscribed = |partition: &TopicPartition| {
            self.state() != GroupState::Empty && self.may_subscribe(&partition.topic)
        };
        let code = |partition| {
            if may_be_subscribed(partition) {
                ErrorCode::GroupSubscribedToTopic
            } else {
                ErrorCode::None
            }
        };
        let codes: Vec<ErrorCode> = partitions.iter().map(code).collect();
        let free = partitions.into_iter().zip(&codes);
        let free = free.filter(|(_, code)| **code == ErrorCode::None);
        let free: Vec<TopicPartition> = free.map(|(partition, _)| partition).collect();
        self.forget_transactional(&free);
        let answer = Some((reply, Answer::DeleteOffsets(codes)));
        self.remove_offsets(free, RemovalCause::Deleted, answer, removals, turn)
    }

    /// Whether a topic is subscribed, or may be.
    fn may_subscribe(&self, topic: &str) -> bool {
        self.subscribed_topics.as_ref().is_none_or(|topics| topics.contains(topic))
    }

    pub(crate) fn on_partitions_deleted(
        &mut self,
        partitions: &[TopicPartition],
        removals: &mut Removals,
        turn: &mut Turn,
    ) -> Fate {
        if self.state() == GroupState::Dead {
            return Fate::Stays;
        }
        self.forget_transactional(partitions);
        let ours = partitions.iter().filter(|partition| self.offsets.contains(partition));
        let ours = ours.cloned().collect();
        self.remove_offsets(ours, RemovalCause::TopicDeleted, None, removals, turn)
    }

    /// Transactions under way do not bring back what is deleted.
    fn forget_transactional(&mut self, partitions: &[TopicPartition]) {
        self.transactions.retain(|_, offsets| {
            partitions.iter().for_each(|partition| offsets.forget(partition));
            !offsets.is_empty()
        });
    }

    pub(crate) fn expire_offsets(
        &mut self,
        retention: Duration,
        removals: &mut Removals,
        turn: &mut Turn,
    ) -> Fate {
        if self.state() == GroupState::Dead {
            return Fate::Stays;
        }
        let expired = self.expired_offsets(retention, turn.now.timestamp);
        self.remove_offsets(expired, RemovalCause::Expired, None, removals, turn)
    }

    fn expired_offsets(&self, retention: Duration, now: Timestamp) -> Vec<TopicPartition> {
        let state_since = match (&self.protocol_type, self.state()) {
            // Nobody is in the group: the time since counts, if it is known.
            (Some(_), GroupState::Empty) => self.state_since,
            // Consumers are in the group: what they subscribe to stays.
            (Some(_), GroupState::Stable)
                if self.is_consumer_group() && self.subscribed_topics.is_some() =>
            {
                None
            }
            // Nobody ever was; the group keeps offsets for consumers that assign partitions themselves.
            (None, _) => None,
            _ => return Vec::new(),
        };
        let has_members = self.state() != GroupState::Empty;
        let retention_ms = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let is_expired = |partition: &TopicPartition, value: &OffsetCommitValue| {
            if self.is_unstable(partition) || has_members && self.may_subscribe(&partition.topic) {
                return false;
            }
            match value.expire_timestamp {
                Some(expire) => now >= expire,
                None => {
                    let since = state_since.unwrap_or(value.commit_timestamp);
                    now.0.saturating_sub(since.0) >= retention_ms
                }
            }
        };
        let committed = self.offsets.committed();
        committed
            .filter(|(partition, value)| is_expired(partition, value))
            .map(|(partition, _)| partition)
            .collect()
    }

    /// Whether a commit for the partition is under way, of its own or in a transaction.
    pub(crate) fn is_unstable(&self, partition: &TopicPartition) -> bool {
        self.offsets.is_in_flight(partition)
            || self.transactions.values().any(|offsets| offsets.contains(partition))
    }

    /// Writes tombstones for offsets, and for the group if it then has nothing left, or if it is being deleted.
    fn remove_offsets(
        &mut self,
        mut partitions: Vec<TopicPartition>,
        cause: RemovalCause,
        answer: Option<(ReplyTo, Answer)>,
        removals: &mut Removals,
        turn: &mut Turn,
    ) -> Fate {
        partitions.retain(|partition| self.offsets.contains(partition));
        partitions.sort();
        partitions.dedup();
        let keeps_offsets =
            !self.transactions.is_empty() || self.offsets.count() > partitions.len();
        let is_deleted = cause == RemovalCause::GroupDeleted;
        let goes = self.state() == GroupState::Empty
            && (is_deleted || !keeps_offsets && self.pending_members.is_empty());
        if goes {
            self.state = State::Dead;
        }
        let batches = self.tombstones(&partitions);
        if batches.is_empty() {
            if let Some((reply, answer)) = answer {
                turn.reply(reply, answer.with(ErrorCode::None));
            }
            return if goes { self.end(turn) } else { Fate::Stays };
        }
        removals.last += 1;
        let removal = Removal {
            batches_left: batches.len(),
            error: ErrorCode::None,
            offsets: partitions.len(),
            cause,
            ends_group: goes,
            answer,
        };
        removals.pending.insert(removals.last, removal);
        for (records, partitions) in batches {
            partitions.iter().for_each(|partition| self.offsets.begin(partition));
            let pending = self.pending(Purpose::Tombstones { removal: removals.last, partitions });
            turn.append(records, AppendKind::Tombstones, None, pending);
        }
        Fate::Stays
    }

    /// Tombstones in batches; last that of the group if it goes. Without a generation it has no record of its own.
    fn tombstones(
        &self,
        partitions: &[TopicPartition],
    ) -> Vec<(Vec<GroupRecord>, Vec<TopicPartition>)> {
        let mut batches: Vec<(Vec<GroupRecord>, Vec<TopicPartition>)> = Vec::new();
        let mut size = usize::MAX;
        for partition in partitions {
            let key_size = self.id.len() + partition.topic.len() + 16;
            if size.saturating_add(key_size) > TOMBSTONE_BATCH_BYTES_MAX {
                batches.push((Vec::new(), Vec::new()));
                size = 0;
            }
            size += key_size;
            if let Some((records, batch)) = batches.last_mut() {
                records.push(GroupRecord::OffsetCommit {
                    group: self.id.clone(),
                    topic_partition: partition.clone(),
                    value: None,
                });
                batch.push(partition.clone());
            }
        }
        if self.state() == GroupState::Dead && self.generation > 0 {
            let record = GroupRecord::GroupMetadata { group: self.id.clone(), value: None };
            match batches.last_mut() {
                Some((records, _)) => records.push(record),
                None => batches.push((vec![record], Vec::new())),
            }
        }
        batches
    }

    /// A batch of tombstones is committed, or is not.
    pub(crate) fn on_tombstones_stored(
        &mut self,
        position: AppendId,
        partitions: &[TopicPartition],
        error: ErrorCode,
    ) {
        for partition in partitions {
            let tombstone = Committed { position, value: None };
            let committed = (error == ErrorCode::None).then_some(tombstone);
            self.offsets.finish(partition, committed);
        }
    }

    /// All batches of a removal are committed, or not all of them are.
    pub(crate) fn on_removal_ended(&mut self, removal: Removal, turn: &mut Turn) -> Fate {
        let group: Arc<str> = self.id.clone();
        let Removal { error, offsets, cause, .. } = removal;
        if error != ErrorCode::None {
            turn.note(Note::TombstonesNotStored { group, error });
            if removal.ends_group {
                self.state = State::Empty;
            }
            return Fate::Stays;
        }
        if offsets > 0 {
            turn.note(Note::OffsetsRemoved { cause, group, offsets });
        }
        if removal.ends_group { self.end(turn) } else { Fate::Stays }
    }

    fn end(&self, turn: &mut Turn) -> Fate {
        let (group, generation) = (self.id.clone(), self.generation);
        turn.note(Note::GroupRemoved { group, generation });
        Fate::Gone
    }

    /// Whether the append was made by this group, and not by an earlier one of its name.
    pub(crate) fn owns(&self, append: &PendingAppend) -> bool {
        self.incarnation == append.incarnation
    }
}

/// What a client gets for tombstones that are not committed: to try again where that may help.
fn removal_error(error: ErrorCode) -> ErrorCode {
    match commit_error(error) {
        ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::InvalidCommitOffsetSize => ErrorCode::UnknownServerError,
        other => other,
    }
}
