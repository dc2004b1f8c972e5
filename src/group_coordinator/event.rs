//! What a group coordinator is told: requests of clients, results of appends, facts of the cluster.

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};

/// Both times of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For timeouts. Never goes back from one call to the next.
    pub instant: Instant,
    /// For what is stored and shown.
    pub timestamp: Timestamp,
}

/// Names a request that waits for its answer; made by the driver, never twice the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyTo(pub u64);

/// Names an append of this coordinator; grows with the order of the records in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppendId(pub u64);

/// Something happened. Requests are authorized and decoded; group ids belong to this partition.
///
/// Each `reply` is answered by exactly one `Action::Reply`, at once or later.
#[derive(Clone, Debug)]
pub enum Event {
    /// JoinGroup; answered with `Reply::Join`, once the rebalance's joining phase is over.
    Join {
        /// The request.
        request: JoinRequest,
        /// Who waits.
        reply: ReplyTo,
    },
    /// SyncGroup; answered with `Reply::Sync`, once the leader's assignment is committed.
    Sync {
        /// The request.
        request: SyncRequest,
        /// Who waits.
        reply: ReplyTo,
    },
    /// Heartbeat; answered with `Reply::Heartbeat` at once.
    Heartbeat {
        /// Group and member.
        request: GroupMember,
        /// Who waits.
        reply: ReplyTo,
    },
    /// LeaveGroup; answered with `Reply::Leave` at once.
    Leave {
        /// The group.
        group: String,
        /// Who leaves; versions 0 to 2 name one.
        members: Vec<LeavingMember>,
        /// Who waits.
        reply: ReplyTo,
    },
    /// OffsetCommit or TxnOffsetCommit; answered with `Reply::CommitOffsets`, once the offsets are committed.
    CommitOffsets {
        /// The request.
        request: CommitRequest,
        /// Who waits.
        reply: ReplyTo,
    },
    /// OffsetDelete; answered with `Reply::DeleteOffsets`, once the tombstones are committed.
    DeleteOffsets {
        /// The group.
        group: String,
        /// What to delete; the answer has a code for each, in this order.
        partitions: Vec<TopicPartition>,
        /// Who waits.
        reply: ReplyTo,
    },
    /// DeleteGroups for one group; answered with `Reply::DeleteGroup`, once the tombstones are committed.
    DeleteGroup {
        /// The group.
        group: String,
        /// Who waits.
        reply: ReplyTo,
    },
    /// An `Action::Append` is committed, or is given up. An unknown id is ignored.
    Appended {
        /// The append.
        append: AppendId,
        /// Whether the records are committed.
        result: Result<(), AppendFailure>,
    },
    /// A transaction's marker is committed in this partition.
    TransactionCompleted {
        /// Whose transaction.
        producer_id: ProducerId,
        /// Commit, or abort.
        committed: bool,
    },
    /// Partitions are gone from the cluster, and with them what groups committed for them.
    PartitionsDeleted {
        /// All of them.
        partitions: Vec<TopicPartition>,
    },
    /// The broker leads the partition no more, or shuts down: all who wait get NOT_COORDINATOR. The last event.
    Resign,
}

/// Why an append is not committed: the code that a producer would get for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendFailure(pub ErrorCode);

/// A member as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The group.
    pub group: String,
    /// The generation that the member knows; negative where it knows none.
    pub generation: i32,
    /// The member; empty where it has no id.
    pub member_id: String,
    /// The static name, if it has one (KIP-345).
    pub group_instance_id: Option<String>,
}

/// A JoinGroup request.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// The group.
    pub group: String,
    /// The member; empty where it has no id yet.
    pub member_id: String,
    /// The static name, if it has one.
    pub group_instance_id: Option<String>,
    /// From the request's header; empty where null.
    pub client_id: String,
    /// The peer's address as Java prints it, such as `/127.0.0.1`.
    pub client_host: String,
    /// After this long without a sign the member is out.
    pub session_timeout: Duration,
    /// How long to wait for the member in a rebalance; at most 24 days. Version 0 has none: the session timeout.
    pub rebalance_timeout: Duration,
    /// Such as `consumer`.
    pub protocol_type: String,
    /// Names and metadata of the assignors that the member can do, best first.
    pub protocols: Vec<(String, Bytes)>,
    /// The client can be told its id before it is let in (version 4 and later, KIP-394).
    pub requires_known_member_id: bool,
    /// The client knows `skip_assignment` (version 9 and later, KIP-814).
    pub supports_skipping_assignment: bool,
    /// Why it joins, in its own words (version 8 and later, KIP-800).
    pub reason: Option<String>,
    /// A fresh random UUID in its usual text; becomes part of a new member's id.
    pub member_uuid: String,
}

/// A SyncGroup request.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// Who asks.
    pub member: GroupMember,
    /// What the member believes (version 5 and later).
    pub protocol_type: Option<String>,
    /// What the member believes (version 5 and later).
    pub protocol_name: Option<String>,
    /// Assignments by member id; only the leader sends any.
    pub assignments: Vec<(String, Bytes)>,
}

/// One member of a LeaveGroup request.
#[derive(Clone, Debug)]
pub struct LeavingMember {
    /// Empty where an administrator names the static name alone.
    pub member_id: String,
    /// The static name, if any.
    pub group_instance_id: Option<String>,
    /// Why, in its own words (version 5 and later).
    pub reason: Option<String>,
}

/// An OffsetCommit or TxnOffsetCommit request.
#[derive(Clone, Debug)]
pub struct CommitRequest {
    /// Who asks. OffsetCommit version 0 and TxnOffsetCommit below 3 have generation -1 and no member.
    pub member: GroupMember,
    /// The producer, if the commit is part of its transaction.
    pub transaction: Option<(ProducerId, ProducerEpoch)>,
    /// What to commit; the answer has a code for each, in this order.
    pub offsets: Vec<OffsetToCommit>,
}

/// One partition of a commit.
#[derive(Clone, Debug)]
pub struct OffsetToCommit {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// The next record to read.
    pub offset: Offset,
    /// Epoch of the last record read, or `LeaderEpoch::NONE`.
    pub leader_epoch: LeaderEpoch,
    /// The client's own text; empty where null.
    pub metadata: String,
    /// When it was committed: the time of the request, unless the client gave one (version 1).
    pub commit_timestamp: Timestamp,
    /// When it expires, where the client gave a retention time (versions 2 to 4).
    pub expire_timestamp: Option<Timestamp>,
}
