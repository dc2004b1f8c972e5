//! JoinGroup: who is let in, and who has to wait. Source: `GroupCoordinator.handleJoinGroup`.

use std::sync::Arc;

use common::error_code::ErrorCode;

use crate::{
    action::{AppendKind, GroupState, Note, RebalanceCause, RebalanceReason, Reply},
    config::{GroupConfig, NEW_MEMBER_JOIN_TIMEOUT, PENDING_MEMBERS_MAX, TEXT_BYTES_MAX},
    event::{JoinRequest, ReplyTo},
    group::{Group, State},
    member::{Member, Profile},
    timers::{Deadline, TimerKey},
    turn::{Purpose, StaticReplacement, Turn},
};

/// What can be said about a request before the group is looked at.
pub(crate) fn check_request(request: &JoinRequest, config: &GroupConfig) -> Result<(), ErrorCode> {
    if request.group.is_empty() || request.group.len() > TEXT_BYTES_MAX {
        return Err(ErrorCode::InvalidGroupId);
    }
    let timeouts = config.session_timeout_min..=config.session_timeout_max;
    if !timeouts.contains(&request.session_timeout) {
        return Err(ErrorCode::InvalidSessionTimeout);
    }
    // What follows becomes part of the group's record. Kafka finds out when it writes it.
    let texts = [&request.client_host, &request.protocol_type];
    let names = request.protocols.iter().map(|(name, _)| name);
    let id_length = new_member_id(request).len();
    if id_length > TEXT_BYTES_MAX
        || texts.into_iter().chain(names).any(|text| text.len() > TEXT_BYTES_MAX)
    {
        return Err(ErrorCode::InvalidRequest);
    }
    Ok(())
}

/// Source: `GroupMetadata.generateMemberId`.
fn new_member_id(request: &JoinRequest) -> String {
    let name = request.group_instance_id.as_deref().unwrap_or(&request.client_id);
    format!("{name}-{}", request.member_uuid)
}

fn cause(
    member_id: &str,
    reason: RebalanceReason,
    client_reason: &Option<String>,
) -> RebalanceCause {
    RebalanceCause { member_id: member_id.to_owned(), reason, client_reason: client_reason.clone() }
}

impl Group {
    /// Handles a request that passed `check_request`.
    pub(crate) fn on_join(&mut self, request: JoinRequest, reply: ReplyTo, turn: &mut Turn) {
        if !self.has_room_for(&request.member_id, turn) {
            self.remove(&request.member_id, turn);
            turn.refuse_join(reply, "", ErrorCode::GroupMaxSizeReached);
        } else if request.member_id.is_empty() {
            self.on_new_member(request, reply, turn);
        } else {
            self.on_known_member(request, reply, turn);
        }
        self.try_complete_join(turn);
    }

    /// Whether `group.max.size` lets the member in. While the group collects joins, those count that have joined:
    /// it may be over the limit, if that was lowered, and then the last ones lose their place.
    fn has_room_for(&self, member_id: &str, turn: &Turn) -> bool {
        let is_member = self.members.contains_key(member_id);
        match self.state() {
            GroupState::Empty | GroupState::Dead => true,
            GroupState::PreparingRebalance => {
                let has_joined = self
                    .members
                    .get(member_id)
                    .is_some_and(|member| member.awaiting_join.is_some());
                has_joined || self.awaiting_join < turn.config.group_size_max
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                is_member || self.members.len() < turn.config.group_size_max
            }
        }
    }

    /// Whether the members' bytes stay within their bound when one adds `added` and takes back `removed`.
    fn has_memory_for(&self, added: usize, removed: usize, turn: &Turn) -> bool {
        (self.members_size + added).saturating_sub(removed) <= turn.config.group_metadata_bytes_max
    }

    fn on_new_member(&mut self, request: JoinRequest, reply: ReplyTo, turn: &mut Turn) {
        if self.state() == GroupState::Dead {
            return turn.refuse_join(reply, "", ErrorCode::CoordinatorNotAvailable);
        }
        let profile = Profile::of(&request);
        if !self.supports(&request.protocol_type, &profile) {
            return turn.refuse_join(reply, "", ErrorCode::InconsistentGroupProtocol);
        }
        let member_id: Arc<str> = new_member_id(&request).into();
        let known = request.group_instance_id.as_ref().and_then(|id| self.static_members.get(id));
        if let Some(old_id) = known.cloned() {
            self.replace_static_member(old_id, member_id, request, profile, reply, turn);
        } else if request.group_instance_id.is_none() && request.requires_known_member_id {
            self.add_pending_member(member_id, &request, reply, turn);
        } else {
            self.add_new_member(member_id, request, profile, reply, turn);
        }
    }

    /// Gives out an id; the member is to join again with it.
    fn add_pending_member(
        &mut self,
        member_id: Arc<str>,
        request: &JoinRequest,
        reply: ReplyTo,
        turn: &mut Turn,
    ) {
        if self.pending_members.len() >= PENDING_MEMBERS_MAX {
            return turn.refuse_join(reply, "", ErrorCode::GroupMaxSizeReached);
        }
        let mut deadline = Deadline::default();
        let at = turn.now.instant + request.session_timeout;
        deadline.set(at, turn.timers, || TimerKey::Member(self.id.clone(), member_id.clone()));
        turn.refuse_join(reply, &member_id, ErrorCode::MemberIdRequired);
        self.pending_members.insert(member_id, deadline);
    }

    fn add_new_member(
        &mut self,
        member_id: Arc<str>,
        request: JoinRequest,
        profile: Profile,
        reply: ReplyTo,
        turn: &mut Turn,
    ) {
        let protocol_type = request.protocol_type.clone();
        let cause = cause(&member_id, RebalanceReason::Joined, &request.reason);
        let mut member = Member::new(member_id.clone(), request, profile);
        if !self.has_memory_for(member.size(), 0, turn) {
            self.pending_members.remove(&member_id);
            return turn.refuse_join(reply, "", ErrorCode::GroupMaxSizeReached);
        }
        if let State::PreparingRebalance { initial_delay, progress } = &mut self.state {
            progress.last_to_join = Some(member_id.clone());
            if let Some(initial) = initial_delay {
                // As in Kafka, only a group's very first rebalance is extended.
                initial.has_new_member |= self.generation == 0;
            }
        }
        member.awaiting_join = Some(reply);
        self.add(member, &protocol_type);
        self.touch_for(&member_id, NEW_MEMBER_JOIN_TIMEOUT, turn);
        self.maybe_prepare_rebalance(cause, turn);
    }

    fn on_known_member(&mut self, request: JoinRequest, reply: ReplyTo, turn: &mut Turn) {
        let member_id = request.member_id.clone();
        if self.state() == GroupState::Dead {
            return turn.refuse_join(reply, &member_id, ErrorCode::CoordinatorNotAvailable);
        }
        let profile = Profile::of(&request);
        if !self.supports(&request.protocol_type, &profile) {
            return turn.refuse_join(reply, &member_id, ErrorCode::InconsistentGroupProtocol);
        }
        if self.pending_members.contains_key(member_id.as_str()) {
            if request.group_instance_id.is_some() {
                // Ids are given out to dynamic members alone.
                return turn.refuse_join(reply, "", ErrorCode::UnknownServerError);
            }
            return self.add_new_member(member_id.into(), request, profile, reply, turn);
        }
        if let Err(error) = self.check_member(&member_id, request.group_instance_id.as_deref()) {
            return turn.refuse_join(reply, &member_id, error);
        }
        let Some(member) = self.members.get(member_id.as_str()) else { return };
        let is_leader = self.is_leader(&member_id);
        let is_same = member.profile.protocols == profile.protocols;
        let reason = match self.state() {
            GroupState::PreparingRebalance => RebalanceReason::MetadataChanged,
            GroupState::CompletingRebalance if is_same => {
                let members = if is_leader { self.joined_members() } else { Vec::new() };
                return turn.reply(reply, Reply::Join(self.join_reply(&member_id, members)));
            }
            // The leader may have seen what is in no metadata, such as new partitions of a topic.
            GroupState::Stable if is_leader => RebalanceReason::LeaderRejoined,
            GroupState::Stable if is_same => {
                return turn.reply(reply, Reply::Join(self.join_reply(&member_id, Vec::new())));
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                RebalanceReason::MetadataChanged
            }
            GroupState::Empty | GroupState::Dead => {
                return turn.refuse_join(reply, &member_id, ErrorCode::UnknownMemberId);
            }
        };
        if !self.has_memory_for(profile.size(), member.profile.size(), turn) {
            return turn.refuse_join(reply, "", ErrorCode::GroupMaxSizeReached);
        }
        self.update(&member_id, profile);
        self.await_join(&member_id, reply, turn);
        self.maybe_prepare_rebalance(cause(&member_id, reason, &request.reason), turn);
    }

    /// A static member came back without its id, so it has lost it: it gets a new one, and keeps its place.
    fn replace_static_member(
        &mut self,
        old_id: Arc<str>,
        new_id: Arc<str>,
        request: JoinRequest,
        profile: Profile,
        reply: ReplyTo,
        turn: &mut Turn,
    ) {
        let Some(member) = self.members.get(&old_id) else { return };
        if !self.has_memory_for(profile.size() + new_id.len(), member.size(), turn) {
            return turn.refuse_join(reply, "", ErrorCode::GroupMaxSizeReached);
        }
        let old_leader = self.leader.clone();
        self.fence(&old_id, turn);
        self.rename(&old_id, new_id.clone());
        let Some(old_profile) = self.update(&new_id, profile) else { return };
        self.touch(&new_id, turn);
        self.await_join(&new_id, reply, turn);
        turn.note(Note::StaticMemberReplaced {
            group: self.id.clone(),
            group_instance_id: request.group_instance_id.unwrap_or_default(),
            old_member_id: old_id.as_ref().into(),
            new_member_id: new_id.as_ref().into(),
        });
        let is_same_protocol = || self.select_protocol() == self.protocol_name;
        if self.state() == GroupState::Stable && is_same_protocol() {
            // The others need not notice; but the log must know the new id before the member does.
            let record = self.record(&|member| member.assignment.clone());
            let pending = self.pending(Purpose::StaticMember(StaticReplacement {
                generation: self.generation,
                reply,
                old_id,
                new_id,
                old_profile,
                old_leader,
                supports_skipping_assignment: request.supports_skipping_assignment,
            }));
            return turn.append(vec![record], AppendKind::GroupMetadata, None, pending);
        }
        let cause = cause(&new_id, RebalanceReason::StaticMemberReplaced, &request.reason);
        // In CompletingRebalance the leader may be assigning to the old id already.
        self.maybe_prepare_rebalance(cause, turn);
    }

    /// Answers what a member waits for: another one has its static name.
    fn fence(&mut self, member_id: &str, turn: &mut Turn) {
        if let Some(reply) = self.take_join(member_id) {
            turn.refuse_join(reply, member_id, ErrorCode::FencedInstanceId);
        }
        let member = self.members.get_mut(member_id);
        if let Some(reply) = member.and_then(|member| member.awaiting_sync.take()) {
            turn.refuse_sync(reply, ErrorCode::FencedInstanceId);
        }
    }

    /// The record with a static member's new id is committed, or is not.
    pub(crate) fn on_static_member_stored(
        &mut self,
        replacement: StaticReplacement,
        error: ErrorCode,
        turn: &mut Turn,
    ) {
        let StaticReplacement { reply, new_id, .. } = &replacement;
        let member = self.members.get(new_id);
        let waits = member.is_some_and(|member| member.awaiting_join == Some(*reply));
        if self.state() != GroupState::Stable || self.generation != replacement.generation || !waits
        {
            // A rebalance has begun meanwhile, and takes the waiting member along; or it is answered.
            return;
        }
        self.take_join(new_id);
        if error != ErrorCode::None {
            return self.revert_static_member(replacement, error, turn);
        }
        // It did not expire while it waited, but may from now on.
        self.touch(new_id, turn);
        let mut answer = self.join_reply(new_id, Vec::new());
        if replacement.supports_skipping_assignment {
            if self.is_leader(new_id) {
                answer.members = self.joined_members();
                answer.skip_assignment = true;
            }
        } else {
            // An older leader must not think that it leads: nobody would hear of its assignment.
            answer.leader = replacement.old_leader.as_deref().unwrap_or_default().to_owned();
        }
        turn.reply(*reply, Reply::Join(answer));
    }

    /// The log keeps the old id, so the group does, too.
    fn revert_static_member(
        &mut self,
        replacement: StaticReplacement,
        error: ErrorCode,
        turn: &mut Turn,
    ) {
        let StaticReplacement { reply, old_id, new_id, old_profile, old_leader, .. } = replacement;
        self.update(&new_id, old_profile);
        self.rename(&new_id, old_id.clone());
        self.touch(&old_id, turn);
        let mut answer = self.join_reply("", Vec::new());
        answer.error = error;
        answer.leader = old_leader.as_deref().unwrap_or_default().to_owned();
        turn.reply(reply, Reply::Join(answer));
    }
}
