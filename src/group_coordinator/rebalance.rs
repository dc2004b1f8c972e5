//! A rebalance: joins are collected, the leader assigns, everyone is told.
//! Source: `GroupCoordinator.prepareRebalance`, `onCompleteJoin`, `InitialDelayedJoin`, `DelayedSync`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use common::error_code::ErrorCode;

use crate::{
    action::{
        Action, AppendKind, GroupState, Note, Rebalance, RebalanceCause, RebalanceOutcome,
        RebalanceReason, Reply,
    },
    group::{Group, InitialDelay, Progress, State},
    timers::TimerKey,
    turn::{Purpose, Turn},
};

/// A group of which nobody joined waits again at least this long, even if its members ask for no wait at all.
const REPEATED_WAIT_MIN: Duration = Duration::from_secs(1);

impl Group {
    /// Begins a rebalance, unless one collects joins already.
    pub(crate) fn maybe_prepare_rebalance(&mut self, cause: RebalanceCause, turn: &mut Turn) {
        match self.state() {
            GroupState::Empty | GroupState::CompletingRebalance | GroupState::Stable => {
                self.prepare_rebalance(cause, turn);
            }
            GroupState::PreparingRebalance | GroupState::Dead => {}
        }
    }

    fn prepare_rebalance(&mut self, cause: RebalanceCause, turn: &mut Turn) {
        let now = turn.now.instant;
        if self.state() == GroupState::CompletingRebalance {
            self.drop_assignments(ErrorCode::RebalanceInProgress, turn);
            self.report(RebalanceOutcome::Restarted, turn);
        }
        for member in self.members.values_mut() {
            member.owes_sync = false;
        }
        self.sync_deadline.clear();
        let initial_delay = (self.state() == GroupState::Empty).then(|| {
            let delay = turn.config.initial_rebalance_delay;
            let remaining = self.rebalance_timeout().saturating_sub(delay);
            InitialDelay { delay, remaining, has_new_member: false }
        });
        let member = self.members.get_key_value(cause.member_id.as_str());
        let waiting = member.filter(|(_, member)| member.awaiting_join.is_some());
        let last_to_join = waiting.map(|(id, _)| id.clone());
        let progress = Progress {
            cause,
            started: now,
            joined: None,
            last_to_join,
            did_not_join: Vec::new(),
            is_reported: false,
        };
        self.transition_to(State::PreparingRebalance { initial_delay, progress }, turn.now);
        let timeout = match initial_delay {
            Some(initial) => initial.delay,
            None => self.rebalance_timeout(),
        };
        let key = || TimerKey::Join(self.id.clone());
        self.join_deadline.set(now + timeout, turn.timers, key);
        self.try_complete_join(turn);
    }

    /// Ends the joining phase once everyone has joined; the initial delay passes first.
    pub(crate) fn try_complete_join(&mut self, turn: &mut Turn) {
        if let State::PreparingRebalance { initial_delay: None, .. } = self.state
            && self.all_have_joined()
        {
            self.complete_join(turn);
        }
    }

    /// The joining phase, or the initial delay, has lasted long enough.
    pub(crate) fn on_join_deadline(&mut self, turn: &mut Turn) {
        let State::PreparingRebalance { initial_delay, .. } = &mut self.state else { return };
        if let Some(initial) = initial_delay
            && initial.has_new_member
            && !initial.remaining.is_zero()
        {
            let delay = turn.config.initial_rebalance_delay.min(initial.remaining);
            let remaining = initial.remaining.saturating_sub(initial.delay);
            *initial = InitialDelay { delay, remaining, has_new_member: false };
            let key = || TimerKey::Join(self.id.clone());
            return self.join_deadline.set(turn.now.instant + delay, turn.timers, key);
        }
        self.complete_join(turn);
    }

    /// Goes on with those who joined.
    fn complete_join(&mut self, turn: &mut Turn) {
        self.remove_those_who_did_not_join(turn);
        if self.members.is_empty() {
            return self.become_empty(turn);
        }
        if !self.elect_leader(turn) {
            // Only static members are left, and none came; their sessions end this.
            turn.note(Note::NobodyJoined { group: self.id.clone(), members: self.members.len() });
            if let State::PreparingRebalance { initial_delay, .. } = &mut self.state {
                *initial_delay = None;
            }
            let at = turn.now.instant + self.rebalance_timeout().max(REPEATED_WAIT_MIN);
            return self.join_deadline.set(at, turn.timers, || TimerKey::Join(self.id.clone()));
        }
        self.begin_generation(turn);
    }

    fn remove_those_who_did_not_join(&mut self, turn: &mut Turn) {
        let members = self.members.values();
        let missing: Vec<Arc<str>> = members
            .filter(|member| member.awaiting_join.is_none() && !member.is_static())
            .map(|member| member.id.clone())
            .collect();
        for member_id in &missing {
            self.remove(member_id, turn);
        }
        if let State::PreparingRebalance { progress, .. } = &mut self.state {
            progress.did_not_join.extend(missing.iter().map(|id| id.as_ref().into()));
        }
    }

    /// Makes sure that the leader has joined; false if nobody has.
    fn elect_leader(&mut self, turn: &mut Turn) -> bool {
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader));
        if leader.is_some_and(|leader| leader.awaiting_join.is_some()) {
            return true;
        }
        let mut members = self.members.values();
        let Some(joined) = members.find(|member| member.awaiting_join.is_some()) else {
            return false;
        };
        let new_leader = joined.id.clone();
        turn.note(Note::LeaderReplaced {
            group: self.id.clone(),
            old_member_id: self.leader.as_deref().unwrap_or_default().to_owned(),
            new_member_id: new_leader.as_ref().into(),
        });
        self.leader = Some(new_leader);
        true
    }

    /// A generation without members, so that the log forgets those of the last.
    fn become_empty(&mut self, turn: &mut Turn) {
        self.next_generation(None, turn);
        self.report(RebalanceOutcome::Empty, turn);
        self.join_deadline.clear();
        self.transition_to(State::Empty, turn.now);
        let record = self.record(&|_| Bytes::new());
        let pending = self.pending(Purpose::EmptyGroup { generation: self.generation });
        turn.append(vec![record], AppendKind::GroupMetadata, None, pending);
    }

    fn next_generation(&mut self, protocol_name: Option<String>, turn: &mut Turn) {
        self.generation = self.generation.saturating_add(1);
        self.protocol_name = protocol_name;
        self.learn_subscriptions(turn);
        self.commits = Default::default();
        if let State::PreparingRebalance { progress, .. } = &mut self.state {
            progress.joined = Some(turn.now.instant);
        }
    }

    /// Tells everyone of the new generation, and the leader of everyone.
    fn begin_generation(&mut self, turn: &mut Turn) {
        self.next_generation(self.select_protocol(), turn);
        let State::PreparingRebalance { progress, .. } = &self.state else { return };
        let state = State::CompletingRebalance { is_storing: false, progress: progress.clone() };
        self.transition_to(state, turn.now);
        self.join_deadline.clear();
        let member_ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for member_id in &member_ids {
            if let Some(reply) = self.take_join(member_id) {
                let is_leader = self.is_leader(member_id);
                let members = if is_leader { self.joined_members() } else { Vec::new() };
                turn.reply(reply, Reply::Join(self.join_reply(member_id, members)));
            }
            self.touch(member_id, turn);
            if let Some(member) = self.members.get_mut(member_id) {
                member.is_new = false;
                member.owes_sync = true;
            }
        }
        let at = turn.now.instant + self.rebalance_timeout();
        self.sync_deadline.set(at, turn.timers, || TimerKey::Sync(self.id.clone()));
    }

    /// Members had time enough to ask for their assignment; those who have not are out.
    pub(crate) fn on_sync_deadline(&mut self, turn: &mut Turn) {
        if !matches!(self.state(), GroupState::CompletingRebalance | GroupState::Stable) {
            return;
        }
        let members = self.members.values();
        let late: Vec<Arc<str>> =
            members.filter(|member| member.owes_sync).map(|member| member.id.clone()).collect();
        let Some(first) = late.first() else { return };
        // Before its leader may be gone.
        self.report(RebalanceOutcome::Restarted, turn);
        turn.note(Note::MembersDidNotSync {
            group: self.id.clone(),
            generation: self.generation,
            members: late.iter().map(|id| id.as_ref().into()).collect(),
        });
        for member_id in &late {
            self.remove(member_id, turn);
        }
        let cause = RebalanceCause {
            member_id: first.as_ref().into(),
            reason: RebalanceReason::SyncExpired,
            client_reason: None,
        };
        self.prepare_rebalance(cause, turn);
    }

    /// The leader's assignment is committed, or is not.
    pub(crate) fn on_assignment_stored(
        &mut self,
        generation: i32,
        leader: &str,
        assignments: &HashMap<String, Bytes>,
        error: ErrorCode,
        turn: &mut Turn,
    ) {
        if self.state() != GroupState::CompletingRebalance || self.generation != generation {
            // Another rebalance has begun, and has told everyone.
            return;
        }
        if error == ErrorCode::None {
            for member in self.members.values_mut() {
                let assignment = assignments.get(member.id.as_ref());
                member.assignment = assignment.cloned().unwrap_or_default();
            }
            self.answer_syncs(ErrorCode::None, turn);
            self.report(RebalanceOutcome::Stable, turn);
            return self.transition_to(State::Stable, turn.now);
        }
        turn.note(Note::GroupNotStored { group: self.id.clone(), generation, error });
        self.drop_assignments(error, turn);
        let reason = RebalanceReason::AssignmentNotStored(error);
        let cause = RebalanceCause { member_id: leader.to_owned(), reason, client_reason: None };
        self.prepare_rebalance(cause, turn);
    }

    fn drop_assignments(&mut self, error: ErrorCode, turn: &mut Turn) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
        }
        self.answer_syncs(error, turn);
    }

    /// Answers all who wait for their assignment, and begins their sessions anew: none expired while it waited.
    fn answer_syncs(&mut self, error: ErrorCode, turn: &mut Turn) {
        let members = self.members.values_mut();
        let waiting: Vec<_> = members
            .filter_map(|member| Some((member.id.clone(), member.awaiting_sync.take()?)))
            .collect();
        for (member_id, reply) in waiting {
            if error == ErrorCode::None {
                turn.reply(reply, self.sync_reply(self.assignment(&member_id)));
            } else {
                turn.refuse_sync(reply, error);
            }
            self.touch(&member_id, turn);
        }
    }

    /// Tells how the rebalance under way went. Called before its state is left.
    fn report(&mut self, outcome: RebalanceOutcome, turn: &mut Turn) {
        let (State::PreparingRebalance { progress, .. }
        | State::CompletingRebalance { progress, .. }) = &mut self.state
        else {
            return;
        };
        if std::mem::replace(&mut progress.is_reported, true) {
            return;
        }
        let now = turn.now.instant;
        let joined = progress.joined.unwrap_or(now);
        turn.actions.push(Action::Rebalance(Rebalance {
            group: self.id.clone(),
            generation: self.generation,
            cause: progress.cause.clone(),
            outcome,
            joining: joined.saturating_duration_since(progress.started),
            assigning: now.saturating_duration_since(joined),
            last_to_join: progress.last_to_join.as_deref().map(str::to_owned),
            did_not_join: progress.did_not_join.clone(),
            leader: self.leader.as_deref().map(str::to_owned),
            members: self.members.len(),
        }));
    }

    /// A loaded group with more members than are allowed rebalances, which lets the surplus go once all have committed.
    pub(crate) fn on_loaded(&mut self, turn: &mut Turn) {
        self.learn_subscriptions(turn);
        if self.members.len() > turn.config.group_size_max {
            let reason = RebalanceReason::OverCapacity;
            let cause = RebalanceCause { member_id: String::new(), reason, client_reason: None };
            self.maybe_prepare_rebalance(cause, turn);
        }
        let member_ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for member_id in member_ids {
            self.touch(&member_id, turn);
        }
    }
}
