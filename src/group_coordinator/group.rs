//! A group: its members, its state, its offsets. What it decides stands in `join.rs`, `rebalance.rs`,
//! `membership.rs`, `commit.rs` and `removal.rs`. Source: `kafka.coordinator.group.GroupMetadata`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{ProducerId, Timestamp},
};

use crate::{
    action::{GroupState, JoinReply, JoinedMember, Note, RebalanceCause, Reply, SyncReply},
    event::{Now, ReplyTo},
    member::{Member, Profile},
    offsets::Offsets,
    records::{GroupMetadataValue, GroupRecord},
    subscription,
    timers::{Deadline, TimerKey},
    turn::{PendingAppend, Purpose, Turn},
};

/// A group. Members and offsets are in order of their names, so that the same events give the same actions.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: Arc<str>,
    /// Tells this group from an earlier one of the same name.
    pub(crate) incarnation: u64,
    pub(crate) state: State,
    /// When it came into its state; None where the log does not say (records of versions 0 and 1).
    pub(crate) state_since: Option<Timestamp>,
    /// Of the members, or of the last ones; None for a group that only keeps offsets.
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol_name: Option<String>,
    pub(crate) generation: i32,
    /// A member's id, if there are any members.
    pub(crate) leader: Option<Arc<str>>,
    pub(crate) members: BTreeMap<Arc<str>, Member>,
    /// Member ids by static name.
    pub(crate) static_members: HashMap<String, Arc<str>>,
    /// Ids that were given out and have not joined, with the end of their time.
    pub(crate) pending_members: HashMap<Arc<str>, Deadline>,
    /// Members with a JoinGroup request that waits.
    pub(crate) awaiting_join: usize,
    /// How many members can do a protocol.
    protocol_counts: HashMap<String, usize>,
    /// Sum of the members' sizes.
    pub(crate) members_size: usize,
    /// Of a consumer group's generation; None where it is not known, and then each topic may be subscribed.
    pub(crate) subscribed_topics: Option<BTreeSet<String>>,
    pub(crate) join_deadline: Deadline,
    pub(crate) sync_deadline: Deadline,
    pub(crate) offsets: Offsets,
    /// Offsets of transactions that are going on.
    pub(crate) transactions: BTreeMap<ProducerId, Offsets>,
    /// Who committed in this generation.
    pub(crate) commits: CommitKinds,
}

/// Which kinds of commits came in a generation.
#[derive(Debug, Default)]
pub(crate) struct CommitKinds {
    pub(crate) plain: bool,
    pub(crate) transactional: bool,
}

/// Where a group is, and what is valid there.
///
/// | State | Join | Sync | Heartbeat | Commit by a member |
/// | --- | --- | --- | --- | --- |
/// | `Empty` | begins a rebalance | UNKNOWN_MEMBER_ID | UNKNOWN_MEMBER_ID | stored, if it names no member |
/// | `PreparingRebalance` | waits | REBALANCE_IN_PROGRESS | REBALANCE_IN_PROGRESS | stored |
/// | `CompletingRebalance` | the generation again, or a rebalance | waits | NONE | REBALANCE_IN_PROGRESS |
/// | `Stable` | the generation again, or a rebalance | the assignment | NONE | stored |
/// | `Dead` | COORDINATOR_NOT_AVAILABLE | same | same | same |
#[derive(Debug)]
pub(crate) enum State {
    /// See `GroupState::Empty`.
    Empty,
    /// See `GroupState::PreparingRebalance`.
    PreparingRebalance {
        /// The group was empty: wait for others. None once that is over.
        initial_delay: Option<InitialDelay>,
        progress: Progress,
    },
    /// See `GroupState::CompletingRebalance`.
    CompletingRebalance {
        /// The leader's assignment is being written.
        is_storing: bool,
        progress: Progress,
    },
    /// See `GroupState::Stable`.
    Stable,
    /// See `GroupState::Dead`.
    Dead,
}

/// The wait for others of a group that was empty. Source: `InitialDelayedJoin`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitialDelay {
    /// The part of it that is under way.
    pub(crate) delay: Duration,
    /// By how much it may still be extended.
    pub(crate) remaining: Duration,
    /// Another member came during this part.
    pub(crate) has_new_member: bool,
}

/// What there is to tell about a rebalance under way.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) cause: RebalanceCause,
    pub(crate) started: Instant,
    /// When the joining phase was over.
    pub(crate) joined: Option<Instant>,
    pub(crate) last_to_join: Option<Arc<str>>,
    pub(crate) did_not_join: Vec<String>,
    /// Whether it has been told.
    pub(crate) is_reported: bool,
}

impl State {
    pub(crate) fn kind(&self) -> GroupState {
        match self {
            State::Empty => GroupState::Empty,
            State::PreparingRebalance { .. } => GroupState::PreparingRebalance,
            State::CompletingRebalance { .. } => GroupState::CompletingRebalance,
            State::Stable => GroupState::Stable,
            State::Dead => GroupState::Dead,
        }
    }
}

impl Group {
    /// A group without members.
    pub(crate) fn new(id: Arc<str>, incarnation: u64, now: Now) -> Group {
        Group {
            id,
            incarnation,
            state: State::Empty,
            state_since: Some(now.timestamp),
            protocol_type: None,
            protocol_name: None,
            generation: 0,
            leader: None,
            members: BTreeMap::new(),
            static_members: HashMap::new(),
            pending_members: HashMap::new(),
            awaiting_join: 0,
            protocol_counts: HashMap::new(),
            members_size: 0,
            subscribed_topics: None,
            join_deadline: Deadline::default(),
            sync_deadline: Deadline::default(),
            offsets: Offsets::default(),
            transactions: BTreeMap::new(),
            commits: CommitKinds::default(),
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        self.state.kind()
    }

    pub(crate) fn transition_to(&mut self, state: State, now: Now) {
        self.state = state;
        self.state_since = Some(now.timestamp);
    }

    pub(crate) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    pub(crate) fn is_consumer_group(&self) -> bool {
        self.protocol_type.as_deref() == Some(subscription::CONSUMER)
    }

    /// How long the slowest member may take.
    pub(crate) fn rebalance_timeout(&self) -> Duration {
        let timeouts = self.members.values().map(|member| member.profile.rebalance_timeout);
        timeouts.max().unwrap_or_default()
    }

    pub(crate) fn all_have_joined(&self) -> bool {
        self.members.len() == self.awaiting_join && self.pending_members.is_empty()
    }

    // Members.

    /// Adds a member whose protocols fit, see `supports`.
    pub(crate) fn add(&mut self, member: Member, protocol_type: &str) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.to_owned());
        }
        if let Some(instance) = &member.group_instance_id {
            self.static_members.insert(instance.clone(), member.id.clone());
        }
        if self.leader.is_none() {
            self.leader = Some(member.id.clone());
        }
        self.pending_members.remove(&member.id);
        self.count_protocols(&member.profile);
        self.members_size += member.size();
        self.awaiting_join += usize::from(member.awaiting_join.is_some());
        self.members.insert(member.id.clone(), member);
    }

    /// Removes a member, pending or not; what it waits for is answered with UNKNOWN_MEMBER_ID.
    pub(crate) fn remove(&mut self, member_id: &str, turn: &mut Turn) {
        self.pending_members.remove(member_id);
        let Some(member) = self.members.remove(member_id) else { return };
        if let Some(reply) = member.awaiting_join {
            self.awaiting_join -= 1;
            turn.refuse_join(reply, "", ErrorCode::UnknownMemberId);
        }
        if let Some(reply) = member.awaiting_sync {
            turn.refuse_sync(reply, ErrorCode::UnknownMemberId);
        }
        self.discount_protocols(&member.profile);
        self.members_size -= member.size();
        if let Some(instance) = &member.group_instance_id {
            self.static_members.remove(instance);
        }
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// Gives a member what it says about itself now; its old self.
    pub(crate) fn update(&mut self, member_id: &str, profile: Profile) -> Option<Profile> {
        let member = self.members.get_mut(member_id)?;
        self.members_size = self.members_size + profile.size() - member.profile.size();
        let old = std::mem::replace(&mut member.profile, profile.clone());
        self.discount_protocols(&old);
        self.count_protocols(&profile);
        Some(old)
    }

    /// Gives a member another id.
    pub(crate) fn rename(&mut self, old_id: &str, new_id: Arc<str>) {
        let Some(mut member) = self.members.remove(old_id) else { return };
        self.members_size = self.members_size + new_id.len() - member.id.len();
        if self.is_leader(old_id) {
            self.leader = Some(new_id.clone());
        }
        if let Some(instance) = &member.group_instance_id {
            self.static_members.insert(instance.clone(), new_id.clone());
        }
        member.id = new_id.clone();
        // Timers go by member id.
        member.session = Deadline::default();
        self.members.insert(new_id, member);
    }

    /// Lets a JoinGroup request of a member wait; an earlier one of the same member is given up.
    pub(crate) fn await_join(&mut self, member_id: &str, reply: ReplyTo, turn: &mut Turn) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        match member.awaiting_join.replace(reply) {
            // Kafka forgets it. Whoever still reads there shall ask again.
            Some(earlier) => {
                turn.refuse_join(earlier, member_id, ErrorCode::RebalanceInProgress);
            }
            None => self.awaiting_join += 1,
        }
        if let State::PreparingRebalance { progress, .. } = &mut self.state {
            progress.last_to_join = Some(member.id.clone());
        }
    }

    /// Takes the JoinGroup request that a member waits with.
    pub(crate) fn take_join(&mut self, member_id: &str) -> Option<ReplyTo> {
        let reply = self.members.get_mut(member_id)?.awaiting_join.take()?;
        self.awaiting_join -= 1;
        Some(reply)
    }

    /// Begins a member's session anew.
    pub(crate) fn touch(&mut self, member_id: &str, turn: &mut Turn) {
        let timeout = self.members.get(member_id).map(|member| member.profile.session_timeout);
        self.touch_for(member_id, timeout.unwrap_or_default(), turn);
    }

    /// Gives a member this long.
    pub(crate) fn touch_for(&mut self, member_id: &str, timeout: Duration, turn: &mut Turn) {
        if let Some(member) = self.members.get_mut(member_id) {
            let key = || TimerKey::Member(self.id.clone(), member.id.clone());
            member.session.set(turn.now.instant + timeout, turn.timers, key);
        }
    }

    // Protocols.

    fn count_protocols(&mut self, profile: &Profile) {
        for name in profile.names() {
            match self.protocol_counts.get_mut(name) {
                Some(count) => *count += 1,
                None => {
                    self.protocol_counts.insert(name.to_owned(), 1);
                }
            }
        }
    }

    fn discount_protocols(&mut self, profile: &Profile) {
        for name in profile.names() {
            if let Some(count) = self.protocol_counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.protocol_counts.remove(name);
                }
            }
        }
    }

    fn is_candidate(&self, name: &str) -> bool {
        self.protocol_counts.get(name).copied().unwrap_or(0) == self.members.len()
    }

    /// Whether a member with these could be part of the group: it shares the type and a protocol with all.
    pub(crate) fn supports(&self, protocol_type: &str, profile: &Profile) -> bool {
        if self.state() == GroupState::Empty {
            return !protocol_type.is_empty() && !profile.protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && profile.names().any(|name| self.is_candidate(name))
    }

    /// The protocol with most votes: each member votes for its first that all can do. The first by name of several.
    pub(crate) fn select_protocol(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(name) = member.profile.names().find(|name| self.is_candidate(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().max()?;
        votes.iter().find(|(_, count)| *count == most).map(|(name, _)| (*name).to_owned())
    }

    /// Learns the topics of a consumer group's generation.
    pub(crate) fn learn_subscriptions(&mut self, turn: &mut Turn) {
        self.subscribed_topics = None;
        if !self.is_consumer_group() {
            return;
        }
        let protocol = self.protocol_name.as_deref().unwrap_or_default();
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            let metadata = member.profile.metadata(protocol).map_or(&[][..], |bytes| &bytes[..]);
            let Ok(subscribed) = subscription::topics(metadata) else {
                let member_id = member.id.as_ref().into();
                turn.note(Note::SubscriptionUnreadable { group: self.id.clone(), member_id });
                return;
            };
            for topic in subscribed {
                if !topics.contains(topic) {
                    topics.insert(topic.to_owned());
                }
            }
        }
        self.subscribed_topics = Some(topics);
    }

    // What requests have in common.

    /// Whether a request's member is one of the group: its static name, if it has one, is mapped to its id.
    pub(crate) fn check_member(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance) = group_instance_id {
            match self.static_members.get(instance) {
                Some(current) if current.as_ref() != member_id => {
                    return Err(ErrorCode::FencedInstanceId);
                }
                Some(_) => {}
                None => return Err(ErrorCode::UnknownMemberId),
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    /// As `check_member`, and that it knows the generation.
    pub(crate) fn check_generation(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        self.check_member(member_id, group_instance_id)?;
        if generation == self.generation { Ok(()) } else { Err(ErrorCode::IllegalGeneration) }
    }

    /// All members as the leader sees them.
    pub(crate) fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol = self.protocol_name.as_deref().unwrap_or_default();
        self.members.values().map(|member| member.joined(protocol)).collect()
    }

    /// The current generation as the answer to a JoinGroup request.
    pub(crate) fn join_reply(&self, member_id: &str, members: Vec<JoinedMember>) -> JoinReply {
        JoinReply {
            error: ErrorCode::None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.as_deref().unwrap_or_default().to_owned(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members,
        }
    }

    /// A member's assignment; empty where it has none.
    pub(crate) fn assignment(&self, member_id: &str) -> Bytes {
        self.members.get(member_id).map(|member| member.assignment.clone()).unwrap_or_default()
    }

    /// An assignment as the answer to a SyncGroup request.
    pub(crate) fn sync_reply(&self, assignment: Bytes) -> Reply {
        Reply::Sync(SyncReply {
            error: ErrorCode::None,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            assignment,
        })
    }

    /// The group as a record.
    pub(crate) fn record(&self, assignment: &dyn Fn(&Member) -> Bytes) -> GroupRecord {
        let protocol = self.protocol_name.as_deref().unwrap_or_default();
        let members = self.members.values();
        let value = GroupMetadataValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol_name.clone(),
            leader: self.leader.as_deref().map(str::to_owned),
            current_state_timestamp: self.state_since,
            members: members.map(|member| member.to_value(protocol, assignment(member))).collect(),
        };
        GroupRecord::GroupMetadata { group: self.id.clone(), value: Some(value) }
    }

    /// An append of this group.
    pub(crate) fn pending(&self, purpose: Purpose) -> PendingAppend {
        PendingAppend { group: self.id.clone(), incarnation: self.incarnation, purpose }
    }
}
