//! The coordinator: its groups, its appends under way, its timers, and the way in.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{error_code::ErrorCode, ids::ProducerId, topic::TopicPartition};

use crate::{
    action::{
        Action, DeleteOffsetsReply, JoinReply, LeaveReply, LeftMember, Note, Reply, SyncReply,
    },
    commit::{check_new_group, commit_error, group_error},
    config::{GroupConfig, TEXT_BYTES_MAX},
    event::{
        AppendFailure, AppendId, CommitRequest, Event, GroupMember, JoinRequest, LeavingMember,
        Now, ReplyTo, SyncRequest,
    },
    group::Group,
    join,
    removal::{Fate, Removals},
    timers::{TimerKey, Timers},
    turn::{Appends, PendingAppend, Purpose, Tools, Turn},
};

/// The groups of one partition. Owned by one task; dropped when the broker leads the partition no more.
#[derive(Debug)]
pub struct GroupCoordinator {
    pub(crate) groups: HashMap<Arc<str>, Group>,
    /// Groups with offsets of a transaction that is going on.
    pub(crate) producers: HashMap<ProducerId, BTreeSet<Arc<str>>>,
    pub(crate) tools: Tools,
    removals: Removals,
    incarnations: u64,
}

impl GroupCoordinator {
    /// A coordinator without groups.
    pub fn new(config: GroupConfig) -> GroupCoordinator {
        GroupCoordinator {
            groups: HashMap::new(),
            producers: HashMap::new(),
            tools: Tools { config, timers: Timers::default(), appends: Appends::default() },
            removals: Removals::default(),
            incarnations: 0,
        }
    }

    /// Changes settings; what is under way keeps the old ones.
    pub fn set_config(&mut self, config: GroupConfig) {
        self.tools.config = config;
    }

    /// Begins to serve, once all of the log is replayed: members get a session from now on.
    pub fn loaded(&mut self, now: Now, actions: &mut Vec<Action>) {
        // A tombstone may have been the last that there was of a group.
        self.groups.retain(|_, group| {
            group.generation > 0 || group.protocol_type.is_some() || group.has_offsets()
        });
        for id in self.ids() {
            let mut turn = self.tools.turn(now, actions);
            if let Some(group) = self.groups.get_mut(&id) {
                group.on_loaded(&mut turn);
            }
        }
    }

    /// Decides what an event leads to.
    pub fn on_event(&mut self, event: Event, now: Now, actions: &mut Vec<Action>) {
        match event {
            Event::Join { request, reply } => self.on_join(request, reply, now, actions),
            Event::Sync { request, reply } => self.on_sync(request, reply, now, actions),
            Event::Heartbeat { request, reply } => {
                let error = self.on_heartbeat(&request, now, actions);
                actions.push(Action::Reply(reply, Reply::Heartbeat(error)));
            }
            Event::Leave { group, members, reply } => {
                self.on_leave(&group, members, reply, now, actions);
            }
            Event::CommitOffsets { request, reply } => {
                self.on_commit(request, reply, now, actions);
            }
            Event::DeleteOffsets { group, partitions, reply } => {
                self.on_delete_offsets(&group, partitions, reply, now, actions);
            }
            Event::DeleteGroup { group, reply } => {
                self.on_delete_group(&group, reply, now, actions);
            }
            Event::Appended { append, result } => self.on_appended(append, result, now, actions),
            Event::TransactionCompleted { producer_id, committed } => {
                self.on_transaction_completed(producer_id, committed);
            }
            Event::PartitionsDeleted { partitions } => {
                for id in self.ids() {
                    self.with_group(&id, now, actions, |group, removals, turn| {
                        group.on_partitions_deleted(&partitions, removals, turn)
                    });
                }
            }
            Event::Resign => {
                let mut turn = self.tools.turn(now, actions);
                resign_appends(&mut turn);
                self.removals.resign(&mut turn);
                self.resign_members(actions);
            }
        }
    }

    /// When `on_wake` is to be called next. It may turn out to be too early, never too late.
    pub fn next_wake(&self) -> Option<Instant> {
        self.tools.timers.next()
    }

    /// Ends what is due: sessions, joining phases, waits for assignments.
    pub fn on_wake(&mut self, now: Now, actions: &mut Vec<Action>) {
        while let Some((entry, key)) = self.tools.timers.pop(now.instant) {
            let mut turn = self.tools.turn(now, actions);
            let (TimerKey::Join(id) | TimerKey::Sync(id) | TimerKey::Member(id, _)) = &key;
            let Some(group) = self.groups.get_mut(id) else { continue };
            let instant = now.instant;
            match &key {
                TimerKey::Join(_) => {
                    if group.join_deadline.comes_up(entry, instant, turn.timers, &key) {
                        group.on_join_deadline(&mut turn);
                    }
                }
                TimerKey::Sync(_) => {
                    if group.sync_deadline.comes_up(entry, instant, turn.timers, &key) {
                        group.on_sync_deadline(&mut turn);
                    }
                }
                TimerKey::Member(_, member_id) => {
                    let member = group.members.get_mut(member_id);
                    let pending = group.pending_members.get_mut(member_id);
                    let deadline = member.map(|member| &mut member.session).or(pending);
                    let is_over = deadline.is_some_and(|deadline| {
                        deadline.comes_up(entry, instant, turn.timers, &key)
                    });
                    if is_over {
                        group.on_session_end(member_id, &mut turn);
                    }
                }
            }
        }
    }

    /// Forgets offsets that are too old, and groups that have nothing left. To be called now and then
    /// (`offsets.retention.check.interval.ms`); `retention` is `offsets.retention.minutes`.
    pub fn expire_offsets(&mut self, retention: Duration, now: Now, actions: &mut Vec<Action>) {
        for id in self.ids() {
            self.with_group(&id, now, actions, |group, removals, turn| {
                group.expire_offsets(retention, removals, turn)
            });
        }
    }

    /// All groups, in order, so that the same events give the same actions.
    fn ids(&self) -> Vec<Arc<str>> {
        let mut ids: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        ids.sort();
        ids
    }

    /// Lets a group do what may be its end; false if there is no such group.
    fn with_group(
        &mut self,
        id: &str,
        now: Now,
        actions: &mut Vec<Action>,
        act: impl FnOnce(&mut Group, &mut Removals, &mut Turn) -> Fate,
    ) -> bool {
        let mut turn = self.tools.turn(now, actions);
        let Some(group) = self.groups.get_mut(id) else { return false };
        if act(group, &mut self.removals, &mut turn) == Fate::Gone {
            self.groups.remove(id);
        }
        true
    }

    /// The group, made if it is not there.
    pub(crate) fn group_or_new(&mut self, id: &str, now: Now) -> &mut Group {
        if !self.groups.contains_key(id) {
            self.incarnations += 1;
            let id: Arc<str> = id.into();
            self.groups.insert(id.clone(), Group::new(id.clone(), self.incarnations, now));
        }
        self.groups.get_mut(id).expect("it was there, or has just been put there")
    }

    fn on_join(
        &mut self,
        request: JoinRequest,
        reply: ReplyTo,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let member_id = &request.member_id;
        let mut turn = self.tools.turn(now, actions);
        if let Err(error) = join::check_request(&request, turn.config) {
            return turn.refuse_join(reply, member_id, error);
        }
        if !self.groups.contains_key(request.group.as_str()) {
            if !member_id.is_empty() {
                return turn.refuse_join(reply, member_id, ErrorCode::UnknownMemberId);
            }
            // As an empty group would answer; there is no need to make one for it.
            if request.protocol_type.is_empty() || request.protocols.is_empty() {
                return turn.refuse_join(reply, "", ErrorCode::InconsistentGroupProtocol);
            }
            self.group_or_new(&request.group, now);
        }
        let mut turn = self.tools.turn(now, actions);
        if let Some(group) = self.groups.get_mut(request.group.as_str()) {
            group.on_join(request, reply, &mut turn);
        }
    }

    fn on_sync(
        &mut self,
        request: SyncRequest,
        reply: ReplyTo,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let mut turn = self.tools.turn(now, actions);
        let id = request.member.group.as_str();
        match self.groups.get_mut(id) {
            _ if id.is_empty() => turn.refuse_sync(reply, ErrorCode::InvalidGroupId),
            None => turn.refuse_sync(reply, ErrorCode::UnknownMemberId),
            Some(group) => group.on_sync(request, reply, &mut turn),
        }
    }

    fn on_heartbeat(
        &mut self,
        request: &GroupMember,
        now: Now,
        actions: &mut Vec<Action>,
    ) -> ErrorCode {
        let mut turn = self.tools.turn(now, actions);
        match self.groups.get_mut(request.group.as_str()) {
            _ if request.group.is_empty() => ErrorCode::InvalidGroupId,
            None => ErrorCode::UnknownMemberId,
            Some(group) => group.on_heartbeat(request, &mut turn),
        }
    }

    fn on_leave(
        &mut self,
        id: &str,
        members: Vec<LeavingMember>,
        reply: ReplyTo,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let mut turn = self.tools.turn(now, actions);
        let answer = match self.groups.get_mut(id) {
            _ if id.is_empty() => {
                LeaveReply { error: ErrorCode::InvalidGroupId, members: Vec::new() }
            }
            Some(group) => return group.on_leave(members, reply, &mut turn),
            None => {
                let unknown = |member: LeavingMember| LeftMember {
                    member_id: member.member_id,
                    group_instance_id: member.group_instance_id,
                    error: ErrorCode::UnknownMemberId,
                };
                let members = members.into_iter().map(unknown).collect();
                LeaveReply { error: ErrorCode::None, members }
            }
        };
        turn.reply(reply, Reply::Leave(answer));
    }

    fn on_commit(
        &mut self,
        request: CommitRequest,
        reply: ReplyTo,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let id = request.member.group.as_str();
        let is_known = self.groups.contains_key(id);
        let check = if id.len() > TEXT_BYTES_MAX || request.transaction.is_some() && id.is_empty() {
            Err(ErrorCode::InvalidGroupId)
        } else if is_known {
            Ok(())
        } else {
            check_new_group(&request)
        };
        if let Err(error) = check {
            let codes = vec![error; request.offsets.len()];
            return actions.push(Action::Reply(reply, Reply::CommitOffsets(codes)));
        }
        let producer_id = request.transaction.map(|(producer_id, _)| producer_id);
        if !is_known {
            self.group_or_new(id, now);
        }
        let mut turn = self.tools.turn(now, actions);
        let Some(group) = self.groups.get_mut(id) else { return };
        group.on_commit(request, reply, &mut turn);
        if let Some(producer_id) = producer_id
            && group.transactions.contains_key(&producer_id)
        {
            self.producers.entry(producer_id).or_default().insert(group.id.clone());
        }
    }

    fn on_delete_offsets(
        &mut self,
        id: &str,
        partitions: Vec<TopicPartition>,
        reply: ReplyTo,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let refuse = |error| {
            let answer = DeleteOffsetsReply { error, partitions: Vec::new() };
            Action::Reply(reply, Reply::DeleteOffsets(answer))
        };
        if id.is_empty() {
            return actions.push(refuse(ErrorCode::InvalidGroupId));
        }
        let is_known = self.with_group(id, now, actions, |group, removals, turn| {
            group.on_delete_offsets(partitions, reply, removals, turn)
        });
        if !is_known {
            actions.push(refuse(ErrorCode::GroupIdNotFound));
        }
    }

    fn on_delete_group(&mut self, id: &str, reply: ReplyTo, now: Now, actions: &mut Vec<Action>) {
        let is_known = self.with_group(id, now, actions, |group, removals, turn| {
            group.on_delete(reply, removals, turn)
        });
        if !is_known {
            let answer = Reply::DeleteGroup(ErrorCode::GroupIdNotFound);
            actions.push(Action::Reply(reply, answer));
        }
    }

    fn on_appended(
        &mut self,
        append: AppendId,
        result: Result<(), AppendFailure>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let Some(pending) = self.tools.appends.pending.remove(&append) else { return };
        let error = result.err().map_or(ErrorCode::None, |AppendFailure(error)| error);
        let id = pending.group.clone();
        let mut turn = self.tools.turn(now, actions);
        let group = self.groups.get_mut(&id).filter(|group| group.owns(&pending));
        match pending.purpose {
            Purpose::Assignment { generation, leader, assignments } => {
                if let Some(group) = group {
                    let error = group_error(error);
                    group.on_assignment_stored(generation, &leader, &assignments, error, &mut turn);
                }
            }
            Purpose::EmptyGroup { generation } => {
                if error != ErrorCode::None {
                    // A restart would bring back the last members, whose sessions then expire.
                    turn.note(Note::GroupNotStored { group: id, generation, error });
                }
            }
            Purpose::StaticMember(replacement) => {
                if let Some(group) = group {
                    group.on_static_member_stored(replacement, group_error(error), &mut turn);
                }
            }
            Purpose::Offsets(mut commit) => {
                let is_committed = error == ErrorCode::None;
                if let Some(group) = group {
                    group.on_offsets_stored(append, &commit, is_committed);
                }
                for code in commit.codes.iter_mut().filter(|code| **code == ErrorCode::None) {
                    *code = commit_error(error);
                }
                turn.reply(commit.reply, Reply::CommitOffsets(commit.codes));
            }
            Purpose::Tombstones { removal, partitions } => {
                let ended = self.removals.on_batch(removal, error, &mut turn);
                let Some(group) = group else { return };
                group.on_tombstones_stored(append, &partitions, error);
                if let Some(removal) = ended
                    && group.on_removal_ended(removal, &mut turn) == Fate::Gone
                {
                    self.groups.remove(&id);
                }
            }
        }
    }

    fn on_transaction_completed(&mut self, producer_id: ProducerId, committed: bool) {
        for pending in self.tools.appends.pending.values_mut() {
            if let Purpose::Offsets(commit) = &mut pending.purpose
                && let Some(transaction) = &mut commit.transaction
                && transaction.producer_id == producer_id
            {
                transaction.decided.get_or_insert(committed);
            }
        }
        for id in self.producers.remove(&producer_id).unwrap_or_default() {
            if let Some(group) = self.groups.get_mut(&id) {
                group.on_transaction_completed(producer_id, committed);
            }
        }
    }

    /// Answers members who wait.
    fn resign_members(&mut self, actions: &mut Vec<Action>) {
        let error = ErrorCode::NotCoordinator;
        for id in self.ids() {
            let Some(mut group) = self.groups.remove(&id) else { continue };
            for member in group.members.values_mut() {
                if let Some(reply) = member.awaiting_join.take() {
                    let answer = JoinReply::refusal(&member.id, error);
                    actions.push(Action::Reply(reply, Reply::Join(answer)));
                }
                if let Some(reply) = member.awaiting_sync.take() {
                    actions.push(Action::Reply(reply, Reply::Sync(SyncReply::refusal(error))));
                }
            }
        }
    }
}

/// Answers clients whose offsets are being written. What becomes of them, the next coordinator knows.
fn resign_appends(turn: &mut Turn) {
    let mut appends: Vec<(AppendId, PendingAppend)> = turn.appends.pending.drain().collect();
    appends.sort_by_key(|(append, _)| *append);
    for (_, pending) in appends {
        if let Purpose::Offsets(mut commit) = pending.purpose {
            for code in commit.codes.iter_mut().filter(|code| **code == ErrorCode::None) {
                *code = ErrorCode::NotCoordinator;
            }
            turn.reply(commit.reply, Reply::CommitOffsets(commit.codes));
        }
    }
}
