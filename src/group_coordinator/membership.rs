//! SyncGroup, Heartbeat, LeaveGroup, and sessions that end.
//! Source: `GroupCoordinator.handleSyncGroup`, `handleHeartbeat`, `handleLeaveGroup`, `onExpireHeartbeat`.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use common::error_code::ErrorCode;

use crate::{
    action::{
        AppendKind, GroupState, LeaveReply, LeftMember, Note, RebalanceCause, RebalanceReason,
        Reply,
    },
    event::{GroupMember, LeavingMember, ReplyTo, SyncRequest},
    group::{Group, State},
    turn::{Purpose, Turn},
};

impl Group {
    pub(crate) fn on_sync(&mut self, request: SyncRequest, reply: ReplyTo, turn: &mut Turn) {
        if let Err(error) = self.check_sync(&request) {
            return turn.refuse_sync(reply, error);
        }
        let member_id = &request.member.member_id;
        match self.state() {
            GroupState::Empty => turn.refuse_sync(reply, ErrorCode::UnknownMemberId),
            GroupState::PreparingRebalance => {
                turn.refuse_sync(reply, ErrorCode::RebalanceInProgress);
            }
            GroupState::CompletingRebalance => self.await_sync(request, reply, turn),
            GroupState::Stable => {
                if let Some(member) = self.members.get_mut(member_id.as_str()) {
                    member.owes_sync = false;
                }
                turn.reply(reply, self.sync_reply(self.assignment(member_id)));
                self.touch(member_id, turn);
            }
            GroupState::Dead => turn.refuse_sync(reply, ErrorCode::CoordinatorNotAvailable),
        }
    }

    fn check_sync(&self, request: &SyncRequest) -> Result<(), ErrorCode> {
        self.check_alive_member(&request.member)?;
        let differs =
            |asked: &Option<String>, ours: &Option<String>| asked.is_some() && asked != ours;
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol_name)
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    fn check_alive_member(&self, member: &GroupMember) -> Result<(), ErrorCode> {
        if self.state() == GroupState::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let instance = member.group_instance_id.as_deref();
        self.check_generation(&member.member_id, instance, member.generation)
    }

    /// Lets a member wait for its assignment; the leader's request brings everyone's.
    fn await_sync(&mut self, request: SyncRequest, reply: ReplyTo, turn: &mut Turn) {
        let member_id = request.member.member_id;
        let Some(member) = self.members.get_mut(member_id.as_str()) else { return };
        member.owes_sync = false;
        if let Some(earlier) = member.awaiting_sync.replace(reply) {
            // Kafka forgets it. Whoever still reads there shall ask again.
            turn.refuse_sync(earlier, ErrorCode::RebalanceInProgress);
        }
        let leader = member.id.clone();
        let is_leader = self.is_leader(&member_id);
        let State::CompletingRebalance { is_storing, .. } = &mut self.state else { return };
        if is_leader && !*is_storing {
            *is_storing = true;
            self.store_assignment(leader, request.assignments, turn);
        }
    }

    fn store_assignment(
        &mut self,
        leader: Arc<str>,
        assignments: Vec<(String, Bytes)>,
        turn: &mut Turn,
    ) {
        let owned = assignments
            .into_iter()
            .filter(|(member_id, _)| self.members.contains_key(member_id.as_str()))
            .map(|(member_id, assignment)| (member_id, Bytes::copy_from_slice(&assignment)));
        let assignments: HashMap<String, Bytes> = owned.collect();
        let missing = self.members.len() - assignments.len();
        if missing > 0 {
            turn.note(Note::MembersWithoutAssignment {
                group: self.id.clone(),
                generation: self.generation,
                members: missing,
            });
        }
        let record =
            self.record(&|member| assignments.get(member.id.as_ref()).cloned().unwrap_or_default());
        let generation = self.generation;
        let pending = self.pending(Purpose::Assignment { generation, leader, assignments });
        turn.append(vec![record], AppendKind::GroupMetadata, None, pending);
    }

    pub(crate) fn on_heartbeat(&mut self, member: &GroupMember, turn: &mut Turn) -> ErrorCode {
        if let Err(error) = self.check_alive_member(member) {
            return error;
        }
        match self.state() {
            GroupState::Empty => ErrorCode::UnknownMemberId,
            GroupState::PreparingRebalance => {
                self.touch(&member.member_id, turn);
                ErrorCode::RebalanceInProgress
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.touch(&member.member_id, turn);
                ErrorCode::None
            }
            GroupState::Dead => ErrorCode::CoordinatorNotAvailable,
        }
    }

    pub(crate) fn on_leave(
        &mut self,
        members: Vec<LeavingMember>,
        reply: ReplyTo,
        turn: &mut Turn,
    ) {
        let mut answer = LeaveReply { error: ErrorCode::None, members: Vec::new() };
        if self.state() == GroupState::Dead {
            answer.error = ErrorCode::CoordinatorNotAvailable;
        } else {
            for member in members {
                let error = self.leave(&member, turn).err().unwrap_or(ErrorCode::None);
                let LeavingMember { member_id, group_instance_id, .. } = member;
                answer.members.push(LeftMember { member_id, group_instance_id, error });
            }
        }
        turn.reply(reply, Reply::Leave(answer));
    }

    fn leave(&mut self, member: &LeavingMember, turn: &mut Turn) -> Result<(), ErrorCode> {
        let instance = member.group_instance_id.as_deref();
        let mut member_id: Arc<str> = member.member_id.as_str().into();
        if member_id.is_empty() {
            // An administrator removes a static member.
            let current = instance.and_then(|instance| self.static_members.get(instance));
            member_id = current.cloned().ok_or(ErrorCode::UnknownMemberId)?;
        } else if self.pending_members.contains_key(&member_id) {
            self.remove(&member_id, turn);
            self.try_complete_join(turn);
            return Ok(());
        } else {
            self.check_member(&member_id, instance)?;
        }
        let cause = RebalanceCause {
            member_id: member_id.as_ref().into(),
            reason: RebalanceReason::Left,
            client_reason: member.reason.clone(),
        };
        self.remove_and_rebalance(&member_id, cause, turn);
        Ok(())
    }

    fn remove_and_rebalance(&mut self, member_id: &str, cause: RebalanceCause, turn: &mut Turn) {
        self.remove(member_id, turn);
        match self.state() {
            GroupState::PreparingRebalance => self.try_complete_join(turn),
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.maybe_prepare_rebalance(cause, turn);
            }
            GroupState::Empty | GroupState::Dead => {}
        }
    }

    /// A member, or one that is pending, did not show up in its time.
    pub(crate) fn on_session_end(&mut self, member_id: &str, turn: &mut Turn) {
        let group = self.id.clone();
        if self.pending_members.contains_key(member_id) {
            turn.note(Note::PendingMemberExpired { group, member_id: member_id.to_owned() });
            self.remove(member_id, turn);
            return self.try_complete_join(turn);
        }
        let Some(member) = self.members.get(member_id) else { return };
        let waits = member.awaiting_join.is_some() || member.awaiting_sync.is_some();
        if waits && !member.is_new {
            // It cannot heartbeat while it waits; its session begins anew with the answer.
            return;
        }
        turn.note(Note::MemberExpired { group, member_id: member_id.to_owned() });
        let cause = RebalanceCause {
            member_id: member_id.to_owned(),
            reason: RebalanceReason::SessionExpired,
            client_reason: None,
        };
        self.remove_and_rebalance(member_id, cause, turn);
    }
}
