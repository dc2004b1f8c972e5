//! What a coordinator wants done: to be carried out in order.

use std::{sync::Arc, time::Duration};

use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, ProducerEpoch, ProducerId},
    topic::TopicPartition,
};

use crate::{
    event::{ReplyTo, TransactionResult},
    records::TransactionRecord,
};

/// Names an append of this coordinator; counts from 0 in each, so reports for a dropped one must be dropped too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppendId(pub u64);

/// Names an allocation of this coordinator; counts from 0 in each, as `AppendId` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId(pub u64);

/// The answer to a request, in the codes of the newest versions: before InitProducerId v4, AddPartitionsToTxn v2,
/// AddOffsetsToTxn v2 and EndTxn v2 the handler turns PRODUCER_FENCED into INVALID_PRODUCER_EPOCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To InitProducerId.
    InitProducerId {
        /// None, or why there is no producer; then both numbers are `NONE`.
        error: ErrorCode,
        /// The producer to be.
        producer_id: ProducerId,
        /// Its epoch.
        producer_epoch: ProducerEpoch,
    },
    /// To AddPartitions: the code of every partition, or of the AddOffsetsToTxn response.
    AddPartitions(ErrorCode),
    /// To VerifyPartitions, in the order of the request. TRANSACTION_ABORTABLE says that a partition is not part of
    /// the transaction; whoever asked picks what a produce client gets to see.
    Verify(Vec<ErrorCode>),
    /// To EndTxn.
    EndTxn(ErrorCode),
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answers a request.
    Reply(ReplyTo, Reply),
    /// Appends the records as one uncompressed batch, as the coordinator, with acks=all; then reports `Event::Appended`.
    /// Appends of one coordinator keep their order in the log.
    Append {
        /// For the report.
        append: AppendId,
        /// At least one.
        records: Vec<TransactionRecord>,
        /// How long to wait for the replicas before REQUEST_TIMED_OUT is reported; none: `request.timeout.ms`.
        timeout: Option<Duration>,
    },
    /// Takes a producer id from the broker's block, and reports `Event::ProducerIdAllocated`.
    AllocateProducerId {
        /// For the report.
        allocation: AllocationId,
    },
    /// Sends WriteTxnMarkers to the leaders of the partitions, grouped as the driver likes, and reports
    /// `Event::MarkersWritten` for each. The driver does not retry: what must be sent again comes as a new action.
    SendMarkers {
        /// For the report.
        transactional_id: Arc<str>,
        /// Goes into the marker.
        producer_id: ProducerId,
        /// Goes into the marker.
        producer_epoch: ProducerEpoch,
        /// Goes into the marker: the leader epoch of the transaction partition.
        coordinator_epoch: LeaderEpoch,
        /// Goes into the marker.
        result: TransactionResult,
        /// Where the marker goes; at least one. None of them has a marker under way.
        partitions: Vec<TopicPartition>,
    },
    /// A leader gave an answer to a marker that it should not have; for the log.
    MarkerRefused {
        /// Whose transaction.
        transactional_id: Arc<str>,
        /// Where.
        partition: TopicPartition,
        /// What the leader said.
        error: ErrorCode,
        /// What happens now.
        consequence: MarkerConsequence,
    },
}

/// What a coordinator does about a marker that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerConsequence {
    /// Nothing is sent for this transaction any more: the leader knows a newer epoch. The id stays as it is until
    /// its next coordinator loads it. Worth `info`.
    Stops,
    /// The marker is sent again after a back-off, though the answer makes no sense. Worth `error`.
    Retries,
}
