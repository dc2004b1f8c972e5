//! What a group coordinator wants done, and what it answers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId},
    topic::TopicPartition,
};

use crate::{
    event::{AppendId, ReplyTo},
    records::GroupRecord,
};

/// Something to do. Actions are carried out in order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Appends the records as one batch, waits until it is committed, and sends `Event::Appended`.
    ///
    /// Appends reach the log in the order of their ids. A record that cannot be encoded fails the
    /// append with UNKNOWN_SERVER_ERROR.
    Append {
        /// Its name in the answer.
        append: AppendId,
        /// One or more.
        records: Vec<GroupRecord>,
        /// Makes the batch part of this producer's transaction.
        transaction: Option<(ProducerId, ProducerEpoch)>,
        /// What it is for; chooses the acks, and counts in metrics.
        kind: AppendKind,
        /// After this long it fails with REQUEST_TIMED_OUT.
        timeout: Duration,
    },
    /// Answers a request.
    Reply(ReplyTo, Reply),
    /// A rebalance is over: for the log, and for metrics.
    Rebalance(Rebalance),
    /// A fact for the log.
    Note(Note),
}

/// What an append is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendKind {
    /// Offsets of a commit.
    Offsets,
    /// A group's new generation.
    GroupMetadata,
    /// Offsets or a group to forget. Kafka does not wait for its replicas; we do.
    Tombstones,
}

/// Why offsets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalCause {
    /// They were too old.
    Expired,
    /// OffsetDelete named them.
    Deleted,
    /// Their group was deleted.
    GroupDeleted,
    /// Their topic, or partition, was deleted.
    TopicDeleted,
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `Event::Join`.
    Join(JoinReply),
    /// To `Event::Sync`.
    Sync(SyncReply),
    /// To `Event::Heartbeat`.
    Heartbeat(ErrorCode),
    /// To `Event::Leave`.
    Leave(LeaveReply),
    /// To `Event::CommitOffsets`: a code for each partition of the request, in its order.
    CommitOffsets(Vec<ErrorCode>),
    /// To `Event::DeleteOffsets`.
    DeleteOffsets(DeleteOffsetsReply),
    /// To `Event::DeleteGroup`.
    DeleteGroup(ErrorCode),
}

/// Answer to a JoinGroup request. Source of what is null and what is empty: `JoinGroupResult`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReply {
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// -1 with most errors.
    pub generation: i32,
    /// None with most errors.
    pub protocol_type: Option<String>,
    /// None with most errors; the handler writes an empty string where the version has no null (0 to 6).
    pub protocol_name: Option<String>,
    /// The leader's member id; empty with most errors.
    pub leader: String,
    /// Only to a leader that knows it: the assignment stands, do not compute another.
    pub skip_assignment: bool,
    /// The member's id, perhaps a new one; empty where it shall forget the one it had.
    pub member_id: String,
    /// All members, only for the leader.
    pub members: Vec<JoinedMember>,
}

impl JoinReply {
    /// An answer with nothing but an error. Also for requests that never reach a coordinator.
    pub fn refusal(member_id: &str, error: ErrorCode) -> JoinReply {
        JoinReply {
            error,
            generation: -1,
            protocol_type: None,
            protocol_name: None,
            leader: String::new(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }
}

/// A member as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: String,
    /// Its static name.
    pub group_instance_id: Option<String>,
    /// Its metadata for the chosen protocol.
    pub metadata: Bytes,
}

/// Answer to a SyncGroup request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReply {
    /// What went wrong, if anything.
    pub error: ErrorCode,
    /// None with an error.
    pub protocol_type: Option<String>,
    /// None with an error.
    pub protocol_name: Option<String>,
    /// The member's assignment; empty with an error.
    pub assignment: Bytes,
}

impl SyncReply {
    /// An answer with nothing but an error. Also for requests that never reach a coordinator.
    pub fn refusal(error: ErrorCode) -> SyncReply {
        SyncReply { error, protocol_type: None, protocol_name: None, assignment: Bytes::new() }
    }
}

/// Answer to a LeaveGroup request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveReply {
    /// Whether the request failed as a whole.
    pub error: ErrorCode,
    /// A code for each member in the order of the request; empty if it failed as a whole.
    pub members: Vec<LeftMember>,
}

/// What became of one leaving member; names are those of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftMember {
    /// As asked.
    pub member_id: String,
    /// As asked.
    pub group_instance_id: Option<String>,
    /// What went wrong, if anything.
    pub error: ErrorCode,
}

/// Answer to an OffsetDelete request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteOffsetsReply {
    /// Whether the request failed as a whole.
    pub error: ErrorCode,
    /// A code for each partition in the order of the request; empty if it failed as a whole.
    pub partitions: Vec<ErrorCode>,
}

/// An offset as OffsetFetch gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// `Offset::NONE` where there is none.
    pub offset: Offset,
    /// `LeaderEpoch::NONE` where it is not known.
    pub leader_epoch: LeaderEpoch,
    /// Empty where there is none.
    pub metadata: String,
    /// NONE, or UNSTABLE_OFFSET_COMMIT.
    pub error: ErrorCode,
}

/// Where a group is. Answers of each state: `State` in `group.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupState {
    /// No members, perhaps offsets. Next: `PreparingRebalance` (a member joins), `Dead` (deleted or expired).
    Empty,
    /// Collects joins. Next: `CompletingRebalance`, or `Empty` when nobody is left.
    PreparingRebalance,
    /// Waits for the leader's assignment. Next: `Stable`, or `PreparingRebalance` when a member changes.
    CompletingRebalance,
    /// Everyone has an assignment. Next: `PreparingRebalance`.
    Stable,
    /// Its tombstones are being committed. Next: gone; or `Empty`, if they are not.
    Dead,
}

impl GroupState {
    /// Kafka's name, such as `PreparingRebalance`.
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
            GroupState::Dead => "Dead",
        }
    }
}

/// A group as DescribeGroups shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// `Dead` for a group that does not exist.
    pub state: GroupState,
    /// Empty where there is none.
    pub protocol_type: String,
    /// Empty unless stable.
    pub protocol: String,
    /// In order of their ids.
    pub members: Vec<MemberDescription>,
}

/// A member as DescribeGroups shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDescription {
    /// Its id.
    pub member_id: String,
    /// Its static name.
    pub group_instance_id: Option<String>,
    /// Of its JoinGroup request.
    pub client_id: String,
    /// Of its JoinGroup request.
    pub client_host: String,
    /// For the chosen protocol; empty unless the group is stable.
    pub metadata: Bytes,
    /// Empty unless the group is stable.
    pub assignment: Bytes,
}

/// A group as ListGroups shows it; its type is `classic`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOverview {
    /// Its id.
    pub group: Arc<str>,
    /// Empty where there is none.
    pub protocol_type: String,
    /// Where it is.
    pub state: GroupState,
}

/// How many there are of what: for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Groups by state.
    pub empty: usize,
    /// Groups by state.
    pub preparing_rebalance: usize,
    /// Groups by state.
    pub completing_rebalance: usize,
    /// Groups by state.
    pub stable: usize,
    /// Groups by state.
    pub dead: usize,
    /// Offsets, committed or under way.
    pub offsets: usize,
}

/// A finished rebalance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebalance {
    /// The group.
    pub group: Arc<str>,
    /// The generation that it made.
    pub generation: i32,
    /// What started it.
    pub cause: RebalanceCause,
    /// How it ended.
    pub outcome: RebalanceOutcome,
    /// From its start until all had joined, or those that had not were given up.
    pub joining: Duration,
    /// From then until the leader's assignment was committed.
    pub assigning: Duration,
    /// The member that joined last.
    pub last_to_join: Option<String>,
    /// Members that were waited for in vain and removed.
    pub did_not_join: Vec<String>,
    /// The member that computed the assignment.
    pub leader: Option<String>,
    /// Members at the end.
    pub members: usize,
}

/// How a rebalance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceOutcome {
    /// Everyone has an assignment.
    Stable,
    /// Nobody is left.
    Empty,
    /// Another began before the assignment was there.
    Restarted,
}

/// What started a rebalance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebalanceCause {
    /// The member; empty where it is the group as a whole.
    pub member_id: String,
    /// What it did.
    pub reason: RebalanceReason,
    /// Why, in the client's words, where it gave any.
    pub client_reason: Option<String>,
}

/// What a member did to start a rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceReason {
    /// It is new.
    Joined,
    /// It is the leader and joined again: perhaps a topic has more partitions.
    LeaderRejoined,
    /// It joined again, with other metadata.
    MetadataChanged,
    /// It took the place of a static member, and the protocol changes or the assignment was under way.
    StaticMemberReplaced,
    /// It left.
    Left,
    /// It did not heartbeat for its session timeout.
    SessionExpired,
    /// It did not ask for its assignment for the rebalance timeout; one of perhaps several.
    SyncExpired,
    /// The leader's assignment was not committed; it may be that the log leads elsewhere now.
    AssignmentNotStored(ErrorCode),
    /// The loaded group has more members than `group.max.size`.
    OverCapacity,
}

/// A fact for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A member's session is over.
    MemberExpired {
        /// The group.
        group: Arc<str>,
        /// The member.
        member_id: String,
    },
    /// A member that was given an id did not come back with it.
    PendingMemberExpired {
        /// The group.
        group: Arc<str>,
        /// The member.
        member_id: String,
    },
    /// A static member came back under a new id; the old one is fenced.
    StaticMemberReplaced {
        /// The group.
        group: Arc<str>,
        /// Its static name.
        group_instance_id: String,
        /// The id it had.
        old_member_id: String,
        /// The id it has.
        new_member_id: String,
    },
    /// The leader did not join in time, another member leads.
    LeaderReplaced {
        /// The group.
        group: Arc<str>,
        /// The old leader.
        old_member_id: String,
        /// The new one.
        new_member_id: String,
    },
    /// Nobody of the group joined in time; it waits once more.
    NobodyJoined {
        /// The group.
        group: Arc<str>,
        /// Static members that it has.
        members: usize,
    },
    /// The leader's assignment leaves members out; they get empty ones.
    MembersWithoutAssignment {
        /// The group.
        group: Arc<str>,
        /// The generation.
        generation: i32,
        /// How many.
        members: usize,
    },
    /// Members that took no assignment in time; they are removed.
    MembersDidNotSync {
        /// The group.
        group: Arc<str>,
        /// The generation.
        generation: i32,
        /// Who.
        members: Vec<String>,
    },
    /// A member's subscription cannot be read; no topic of the group counts as unsubscribed.
    SubscriptionUnreadable {
        /// The group.
        group: Arc<str>,
        /// The first such member.
        member_id: String,
    },
    /// A group's metadata are not committed; the log has the generation before.
    GroupNotStored {
        /// The group.
        group: Arc<str>,
        /// The generation.
        generation: i32,
        /// Why.
        error: ErrorCode,
    },
    /// Consumers and transactional producers commit offsets of one group in one generation, which surprises.
    MixedCommits {
        /// The group.
        group: Arc<str>,
    },
    /// Tombstones are not committed; what they should remove stays.
    TombstonesNotStored {
        /// The group.
        group: Arc<str>,
        /// Why.
        error: ErrorCode,
    },
    /// Offsets are gone.
    OffsetsRemoved {
        /// Why.
        cause: RemovalCause,
        /// The group.
        group: Arc<str>,
        /// How many.
        offsets: usize,
    },
    /// A group is gone: deleted, or it had neither members nor offsets.
    GroupRemoved {
        /// The group.
        group: Arc<str>,
        /// The last generation.
        generation: i32,
    },
}
