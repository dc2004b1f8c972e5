//! The one place where what went wrong becomes a code of the protocol. Source: `Errors.forException`.

use common::{error_code::ErrorCode, topic::TopicPartition};
use coordinator::{log::CoordinatorAppendError, shard::AppendFailure};
use record::{
    batch::BatchError, convert::ConvertError, produce_version::ProduceVersionError,
    validate::ValidationError,
};
use replication::partition::{AccessError, ProduceError};
use storage::{
    error::{AppendError, LogError},
    producer_state::ProducerError,
};

/// Why a partition's records are refused, as the answer tells it.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub code: ErrorCode,
    /// Kafka's text; most codes come without one.
    pub message: Option<String>,
    /// The records at fault, by their place in the batch.
    pub record_errors: Vec<(i32, Option<String>)>,
    /// Whether Kafka tells the log's start with this error.
    pub tells_log_start: bool,
}

impl Refusal {
    /// A code alone.
    pub(crate) fn of(code: ErrorCode) -> Refusal {
        Refusal { code, message: None, record_errors: Vec::new(), tells_log_start: false }
    }

    fn telling_log_start(mut self) -> Refusal {
        self.tells_log_start = true;
        self
    }
}

/// A partition that cannot be used now.
pub(crate) fn of_access(error: AccessError) -> ErrorCode {
    match error {
        AccessError::NotLeader | AccessError::TakingOver => ErrorCode::NotLeaderOrFollower,
        AccessError::FencedEpoch => ErrorCode::FencedLeaderEpoch,
        AccessError::UnknownEpoch => ErrorCode::UnknownLeaderEpoch,
    }
}

/// A log that cannot answer.
pub(crate) fn of_log(error: &LogError) -> ErrorCode {
    match error {
        LogError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        LogError::Offline(_) | LogError::Fault(_) => ErrorCode::KafkaStorageError,
    }
}

/// Records that cannot be given in an old format.
pub(crate) fn of_conversion(error: &ConvertError) -> ErrorCode {
    match error {
        ConvertError::Zstd => ErrorCode::UnsupportedCompressionType,
        ConvertError::Batch(_) | ConvertError::Records(_) => ErrorCode::CorruptMessage,
    }
}

/// Records whose first batch cannot be read at all.
pub(crate) fn of_unreadable_batch(error: BatchError) -> Refusal {
    Refusal { message: Some(error.to_string()), ..Refusal::of(ErrorCode::CorruptMessage) }
}

/// The code for clients that do not know PRODUCER_FENCED.
pub(crate) fn without_producer_fenced(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        error => error,
    }
}

/// What the writer of a transaction sees of its coordinator's answer about a partition.
/// Source: `AddPartitionsToTxnManager`.
pub(crate) fn of_verification(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::ClusterAuthorizationFailed => ErrorCode::InvalidTxnState,
        error => error,
    }
}

/// The code for clients that do not know TRANSACTION_ABORTABLE.
pub(crate) fn without_abortable(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::TransactionAbortable => ErrorCode::InvalidTxnState,
        error => error,
    }
}

/// A produce whose partition is not known to be part of the transaction. Source: `ReplicaManager.handleProduceAppend`.
pub(crate) fn of_produce_verification(error: ErrorCode) -> Refusal {
    match error {
        ErrorCode::InvalidTxnState => {
            let message = Some("Partition was not added to the transaction".to_owned());
            Refusal { message, ..Refusal::of(error) }
        }
        // Older clients do not try again after these; they do after this one, without asking for metadata.
        ErrorCode::ConcurrentTransactions
        | ErrorCode::NetworkException
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator => {
            let message = format!(
                "Unable to verify the partition has been added to the transaction. Underlying error: {}",
                error.name()
            );
            Refusal { message: Some(message), ..Refusal::of(ErrorCode::NotEnoughReplicas) }
        }
        error => Refusal::of(error),
    }
}

/// A commit of offsets whose group's partition is not known to be part of the transaction.
/// Source: `GroupMetadataManager.maybeConvertOffsetCommitError`.
pub(crate) fn of_offset_verification(error: ErrorCode) -> ErrorCode {
    match error {
        // Clients try again, and do not look for the coordinator.
        ErrorCode::NetworkException => ErrorCode::CoordinatorLoadInProgress,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        error => error,
    }
}

/// Records that the version of a produce request may not carry.
pub(crate) fn of_produce_version(error: &ProduceVersionError) -> Refusal {
    Refusal::of(match error {
        ProduceVersionError::NoBatch(_)
        | ProduceVersionError::Magic(_)
        | ProduceVersionError::SeveralBatches(_) => ErrorCode::InvalidRecord,
        ProduceVersionError::Codec => ErrorCode::UnknownServerError,
        ProduceVersionError::Zstd(_) => ErrorCode::UnsupportedCompressionType,
        ProduceVersionError::Corrupt(_) => ErrorCode::CorruptMessage,
    })
}

/// A batch that breaks the rules.
pub(crate) fn of_validation(error: &ValidationError, partition: &TopicPartition) -> Refusal {
    match error {
        ValidationError::NoBatches => Refusal::of(ErrorCode::None),
        ValidationError::Corrupt(_) => Refusal::of(ErrorCode::CorruptMessage),
        ValidationError::TooLarge { .. } => Refusal::of(ErrorCode::MessageTooLarge),
        ValidationError::Unreadable(_) | ValidationError::NeedsMemory(_) => {
            Refusal::of(ErrorCode::UnknownServerError).telling_log_start()
        }
        ValidationError::Invalid(_) => Refusal::of(ErrorCode::InvalidRecord).telling_log_start(),
        ValidationError::Records(errors) => {
            let code = if errors.has_invalid_timestamp {
                ErrorCode::InvalidTimestamp
            } else {
                ErrorCode::InvalidRecord
            };
            let each = errors.errors.iter();
            let record_errors =
                each.map(|error| (error.index, Some(error.message(partition)))).collect();
            let message = Some(errors.message(partition));
            Refusal { code, message, record_errors, tells_log_start: true }
        }
    }
}

/// Records of a coordinator that are not committed: the code that a producer would get.
pub(crate) fn of_coordinator_append(failure: &AppendFailure) -> ErrorCode {
    match failure {
        AppendFailure::TimedOut => ErrorCode::RequestTimedOut,
        AppendFailure::Lost => ErrorCode::NotLeaderOrFollower,
        AppendFailure::Refused(CoordinatorAppendError::Build(_)) => ErrorCode::RecordListTooLarge,
        AppendFailure::Refused(CoordinatorAppendError::Refused(error)) => match error {
            ValidationError::TooLarge { .. } => ErrorCode::MessageTooLarge,
            ValidationError::Corrupt(_) => ErrorCode::CorruptMessage,
            _ => ErrorCode::UnknownServerError,
        },
        AppendFailure::Refused(CoordinatorAppendError::Produce(error)) => of_produce(error).code,
    }
}

/// A produce that is refused.
pub(crate) fn of_produce(error: &ProduceError) -> Refusal {
    match error {
        ProduceError::Access(error) => Refusal::of(of_access(*error)),
        ProduceError::NotEnoughReplicas(_) => {
            Refusal::of(ErrorCode::NotEnoughReplicas).telling_log_start()
        }
        ProduceError::Append(error) => of_append(error),
    }
}

fn of_append(error: &AppendError) -> Refusal {
    match error {
        AppendError::Producer(error) => {
            let code = match error {
                ProducerError::InvalidEpoch { .. } => ErrorCode::InvalidProducerEpoch,
                ProducerError::OutOfOrderSequence { .. }
                | ProducerError::NewEpochSequence { .. }
                | ProducerError::EarlierSequenceWaits { .. } => ErrorCode::OutOfOrderSequenceNumber,
                ProducerError::ExpectedTransactional { .. }
                | ProducerError::NotVerified
                | ProducerError::TransactionMoved(_) => ErrorCode::InvalidTxnState,
                ProducerError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
            };
            Refusal::of(code).telling_log_start()
        }
        AppendError::LargerThanSegment { .. } => Refusal::of(ErrorCode::RecordListTooLarge),
        AppendError::Corrupt(_) => Refusal::of(ErrorCode::CorruptMessage),
        AppendError::OffsetsOutOfOrder { .. } | AppendError::UnexpectedOffset { .. } => {
            Refusal::of(ErrorCode::UnknownServerError).telling_log_start()
        }
        AppendError::DiskFull(_) | AppendError::Offline(_) | AppendError::Fault(_) => {
            Refusal::of(ErrorCode::KafkaStorageError)
        }
    }
}
