//! What a coordinator is told: requests, and how its actions went.

use std::{sync::Arc, time::Instant};

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};

use crate::action::{AllocationId, AppendId};

/// The time an event happens at, on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For back-offs and checks.
    pub monotonic: Instant,
    /// For what is stored: start and update times of transactions.
    pub wall: Timestamp,
}

/// Names a waiting request; chosen by the driver, given back in `Action::Reply`, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyTo(pub u64);

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionResult {
    /// Its records become visible to read-committed consumers.
    Commit,
    /// Its records are skipped by them.
    Abort,
}

/// What became of the marker of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerOutcome {
    /// The leader's code for the partition in its `WriteTxnMarkers` response.
    Answered(ErrorCode),
    /// The request could not be sent, or its answer never came. Sent again after a back-off.
    Disconnected,
    /// The metadata knows the partition, but no leader that can be reached. Sent again after a back-off.
    LeaderUnknown,
    /// The metadata does not know the partition: deleted, so there is nothing to mark. The transaction goes on without it.
    NoSuchPartition,
}

/// Something that happened. Requests are answered by `Action::Reply`, each exactly once.
///
/// Which broker coordinates, permissions, and empty transactional ids (INVALID_REQUEST) are the handlers' part.
#[derive(Clone, Debug)]
pub enum Event {
    /// InitProducerId with a transactional id. Answered by `Reply::InitProducerId`.
    InitProducerId {
        /// Not empty.
        transactional_id: Arc<str>,
        /// As the client sent it, in milliseconds; outside 1..=`TransactionConfig::timeout_max` it is refused.
        timeout_ms: i32,
        /// The producer the client believes to be (v3+); none where it sent -1 and -1.
        expected: Option<(ProducerId, ProducerEpoch)>,
        /// Where the answer goes.
        reply: ReplyTo,
    },
    /// AddPartitionsToTxn, and AddOffsetsToTxn with the group's `__consumer_offsets` partition.
    /// Answered by `Reply::AddPartitions`.
    AddPartitions {
        /// Not empty.
        transactional_id: Arc<str>,
        /// As the client sent it.
        producer_id: ProducerId,
        /// As the client sent it.
        producer_epoch: ProducerEpoch,
        /// Known and authorized ones only: if one is not, the handler refuses all.
        partitions: Vec<TopicPartition>,
        /// Where the answer goes.
        reply: ReplyTo,
    },
    /// AddPartitionsToTxn v4+ with `verifyOnly`, from a partition's leader. Answered at once, by `Reply::Verify`.
    VerifyPartitions {
        /// Not empty.
        transactional_id: Arc<str>,
        /// As the leader sent it.
        producer_id: ProducerId,
        /// As the leader sent it.
        producer_epoch: ProducerEpoch,
        /// The partitions asked for, in the order of the answer.
        partitions: Vec<TopicPartition>,
        /// Where the answer goes.
        reply: ReplyTo,
    },
    /// EndTxn. Answered by `Reply::EndTxn`, once the decision is committed to the log; the markers come later.
    EndTxn {
        /// Not empty.
        transactional_id: Arc<str>,
        /// As the client sent it.
        producer_id: ProducerId,
        /// As the client sent it.
        producer_epoch: ProducerEpoch,
        /// What the client wants.
        result: TransactionResult,
        /// Where the answer goes.
        reply: ReplyTo,
    },
    /// The outcome of `Action::AllocateProducerId`. An unknown id is ignored.
    ProducerIdAllocated {
        /// From the action.
        allocation: AllocationId,
        /// A fresh producer id, or the code the client gets: COORDINATOR_LOAD_IN_PROGRESS where none is at hand.
        result: Result<ProducerId, ErrorCode>,
    },
    /// The outcome of `Action::Append`. An unknown id is ignored.
    Appended {
        /// From the action.
        append: AppendId,
        /// None: the batch is committed. Otherwise the code a produce request with acks=all would get; the batch
        /// may be in the log or not.
        error: ErrorCode,
    },
    /// Outcomes of `Action::SendMarkers`: all of an action's partitions, in one event or in several.
    /// A partition that no marker is under way for is ignored.
    MarkersWritten {
        /// From the action.
        transactional_id: Arc<str>,
        /// Each partition once.
        outcomes: Vec<(TopicPartition, MarkerOutcome)>,
    },
    /// The broker leads the partition no more. What waits is answered NOT_COORDINATOR, as is all that follows;
    /// the coordinator may be dropped afterwards.
    Resign,
}
