//! What a group needs to act within one event: settings, the time, timers, appends and the list of actions.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId},
    topic::TopicPartition,
};

use crate::{
    action::{Action, AppendKind, JoinReply, Note, Reply, SyncReply},
    config::GroupConfig,
    event::{AppendId, Now, ReplyTo},
    member::Profile,
    records::{GroupRecord, OffsetCommitValue},
    timers::Timers,
};

/// What groups share.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) config: GroupConfig,
    pub(crate) timers: Timers,
    pub(crate) appends: Appends,
}

/// The tools and the time, for one event.
pub(crate) struct Turn<'a> {
    pub(crate) config: &'a GroupConfig,
    pub(crate) now: Now,
    pub(crate) timers: &'a mut Timers,
    pub(crate) appends: &'a mut Appends,
    pub(crate) actions: &'a mut Vec<Action>,
}

impl Tools {
    pub(crate) fn turn<'a>(&'a mut self, now: Now, actions: &'a mut Vec<Action>) -> Turn<'a> {
        let Tools { config, timers, appends } = self;
        Turn { config, now, timers, appends, actions }
    }
}

/// Appends under way, and their names.
#[derive(Debug, Default)]
pub(crate) struct Appends {
    pub(crate) pending: HashMap<AppendId, PendingAppend>,
    last: u64,
}

impl Appends {
    /// The next place in the log: of an append, or of a record that is loaded.
    pub(crate) fn next_position(&mut self) -> AppendId {
        self.last += 1;
        AppendId(self.last)
    }
}

/// An append under way, for one life of a group: a group of the same name that came later is another.
#[derive(Debug)]
pub(crate) struct PendingAppend {
    pub(crate) group: Arc<str>,
    pub(crate) incarnation: u64,
    pub(crate) purpose: Purpose,
}

/// What is to be done once the records are committed, or are not.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// The leader's assignment of a generation.
    Assignment { generation: i32, leader: Arc<str>, assignments: HashMap<String, Bytes> },
    /// A generation without members.
    EmptyGroup { generation: i32 },
    /// A static member's new id, without a rebalance.
    StaticMember(StaticReplacement),
    /// Offsets, or offsets of a transaction.
    Offsets(PendingCommit),
    /// A part of a removal.
    Tombstones { removal: u64, partitions: Vec<TopicPartition> },
}

/// A static member that took the place of itself, and what it was.
#[derive(Debug)]
pub(crate) struct StaticReplacement {
    pub(crate) generation: i32,
    pub(crate) reply: ReplyTo,
    pub(crate) old_id: Arc<str>,
    pub(crate) new_id: Arc<str>,
    pub(crate) old_profile: Profile,
    pub(crate) old_leader: Option<Arc<str>>,
    pub(crate) supports_skipping_assignment: bool,
}

/// Offsets that are not committed yet.
#[derive(Debug)]
pub(crate) struct PendingCommit {
    pub(crate) reply: ReplyTo,
    pub(crate) offsets: Vec<(TopicPartition, OffsetCommitValue)>,
    /// For each partition of the request, NONE for those that are being written.
    pub(crate) codes: Vec<ErrorCode>,
    pub(crate) transaction: Option<PendingTransaction>,
}

/// A transaction that offsets are part of.
#[derive(Debug)]
pub(crate) struct PendingTransaction {
    pub(crate) producer_id: ProducerId,
    /// The marker came before we heard of the append: committed, or aborted.
    pub(crate) decided: Option<bool>,
}

impl Turn<'_> {
    pub(crate) fn note(&mut self, note: Note) {
        self.actions.push(Action::Note(note));
    }

    pub(crate) fn reply(&mut self, to: ReplyTo, reply: Reply) {
        self.actions.push(Action::Reply(to, reply));
    }

    /// Refuses a JoinGroup request.
    pub(crate) fn refuse_join(&mut self, to: ReplyTo, member_id: &str, error: ErrorCode) {
        let reply = JoinReply::refusal(member_id, error);
        self.reply(to, Reply::Join(reply));
    }

    /// Refuses a SyncGroup request.
    pub(crate) fn refuse_sync(&mut self, to: ReplyTo, error: ErrorCode) {
        let reply = SyncReply::refusal(error);
        self.reply(to, Reply::Sync(reply));
    }

    pub(crate) fn append(
        &mut self,
        records: Vec<GroupRecord>,
        kind: AppendKind,
        transaction: Option<(ProducerId, ProducerEpoch)>,
        pending: PendingAppend,
    ) {
        let append = self.appends.next_position();
        self.appends.pending.insert(append, pending);
        let timeout = self.config.append_timeout;
        self.actions.push(Action::Append { append, records, transaction, kind, timeout });
    }
}
