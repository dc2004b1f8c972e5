//! What can go wrong, with the class and the text a Java client would show for it.

use std::fmt;

use common::error_code::ErrorCode;

/// An error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientError {
    /// What it is.
    pub kind: ErrorKind,
    /// Text for people; none where Java's exception has no message.
    pub message: Option<String>,
}

/// Sorts of errors that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The broker answered with this code.
    Code(ErrorCode),
    /// A deadline of the client passed.
    Timeout,
    /// The connection ended before the answer came. Retriable.
    Disconnected,
    /// The broker lacks a version that this client speaks.
    UnsupportedVersion,
    /// A configuration is refused.
    Config,
    /// The broker's answer makes no sense.
    Malformed,
    /// Java's plain `IllegalArgumentException`.
    IllegalArgument,
    /// Java's plain `KafkaException`.
    Kafka,
}

impl ClientError {
    /// An error of the client itself.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> ClientError {
        ClientError { kind, message: Some(message.into()) }
    }

    /// A code from the broker; Kafka's text stands in where the broker sent none.
    pub fn from_code(code: ErrorCode, message: Option<String>) -> ClientError {
        let message = message.unwrap_or_else(|| code.message().to_owned());
        ClientError { kind: ErrorKind::Code(code), message: Some(message) }
    }

    /// A configuration error.
    pub fn config(message: impl Into<String>) -> ClientError {
        ClientError::new(ErrorKind::Config, message)
    }

    /// The code that stands for the error on the wire.
    pub fn code(&self) -> ErrorCode {
        match self.kind {
            ErrorKind::Code(code) => code,
            ErrorKind::Timeout => ErrorCode::RequestTimedOut,
            ErrorKind::Disconnected => ErrorCode::NetworkException,
            ErrorKind::UnsupportedVersion => ErrorCode::UnsupportedVersion,
            ErrorKind::Config
            | ErrorKind::Malformed
            | ErrorKind::IllegalArgument
            | ErrorKind::Kafka => ErrorCode::UnknownServerError,
        }
    }

    /// Whether trying again may help. Source: the subclasses of `RetriableException`.
    pub fn is_retriable(&self) -> bool {
        match self.kind {
            ErrorKind::Code(code) => is_retriable(code),
            ErrorKind::Disconnected => true,
            _ => false,
        }
    }

    /// Whether the error says that the client's view of the cluster is stale. Source: `InvalidMetadataException`.
    pub fn is_stale_metadata(&self) -> bool {
        match self.kind {
            ErrorKind::Code(code) => is_stale_metadata(code),
            ErrorKind::Disconnected => true,
            _ => false,
        }
    }

    /// Full name of the Java exception.
    pub fn class(&self) -> String {
        match self.kind {
            ErrorKind::Code(code) => exception_class(code),
            ErrorKind::Timeout => "org.apache.kafka.common.errors.TimeoutException".to_owned(),
            ErrorKind::Disconnected => {
                "org.apache.kafka.common.errors.DisconnectException".to_owned()
            }
            ErrorKind::UnsupportedVersion => {
                "org.apache.kafka.common.errors.UnsupportedVersionException".to_owned()
            }
            ErrorKind::Config => "org.apache.kafka.common.config.ConfigException".to_owned(),
            ErrorKind::IllegalArgument => "java.lang.IllegalArgumentException".to_owned(),
            ErrorKind::Malformed | ErrorKind::Kafka => {
                "org.apache.kafka.common.KafkaException".to_owned()
            }
        }
    }

    /// Class and message, as a Java stack trace begins.
    pub fn with_class(&self) -> String {
        match &self.message {
            Some(message) => format!("{}: {message}", self.class()),
            None => self.class(),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => formatter.write_str(message),
            None => formatter.write_str("null"),
        }
    }
}

impl std::error::Error for ClientError {}

/// Whether Java's exception for the code is a `RetriableException`.
fn is_retriable(code: ErrorCode) -> bool {
    use ErrorCode as E;
    is_stale_metadata(code)
        || matches!(
            code,
            E::CorruptMessage
                | E::RequestTimedOut
                | E::CoordinatorLoadInProgress
                | E::CoordinatorNotAvailable
                | E::NotCoordinator
                | E::NotEnoughReplicas
                | E::NotEnoughReplicasAfterAppend
                | E::NotController
                | E::ConcurrentTransactions
                | E::FetchSessionIdNotFound
                | E::InvalidFetchSessionEpoch
                | E::UnknownLeaderEpoch
                | E::OffsetNotAvailable
                | E::UnstableOffsetCommit
                | E::ThrottlingQuotaExceeded
                | E::FetchSessionTopicIdError
        )
}

/// Whether Java's exception for the code is an `InvalidMetadataException`.
fn is_stale_metadata(code: ErrorCode) -> bool {
    use ErrorCode as E;
    matches!(
        code,
        E::UnknownTopicOrPartition
            | E::LeaderNotAvailable
            | E::NotLeaderOrFollower
            | E::ReplicaNotAvailable
            | E::NetworkException
            | E::KafkaStorageError
            | E::ListenerNotFound
            | E::FencedLeaderEpoch
            | E::PreferredLeaderNotAvailable
            | E::EligibleLeadersNotAvailable
            | E::ElectionNotNeeded
            | E::UnknownTopicId
            | E::InconsistentTopicId
    )
}

/// Full name of Java's exception for a code. Source: `org.apache.kafka.common.protocol.Errors`.
pub fn exception_class(code: ErrorCode) -> String {
    let name = match code {
        ErrorCode::UnknownServerError => "UnknownServerException",
        ErrorCode::CorruptMessage => "CorruptRecordException",
        ErrorCode::RequestTimedOut => "TimeoutException",
        ErrorCode::MessageTooLarge => "RecordTooLargeException",
        ErrorCode::StaleControllerEpoch => "ControllerMovedException",
        ErrorCode::OffsetMetadataTooLarge => "OffsetMetadataTooLarge",
        ErrorCode::RecordListTooLarge => "RecordBatchTooLargeException",
        ErrorCode::TopicAuthorizationFailed => "TopicAuthorizationException",
        ErrorCode::GroupAuthorizationFailed => "GroupAuthorizationException",
        ErrorCode::ClusterAuthorizationFailed => "ClusterAuthorizationException",
        ErrorCode::TransactionalIdAuthorizationFailed => "TransactionalIdAuthorizationException",
        ErrorCode::DelegationTokenAuthorizationFailed => "DelegationTokenAuthorizationException",
        ErrorCode::TopicAlreadyExists => "TopicExistsException",
        ErrorCode::InvalidConfig => "InvalidConfigurationException",
        ErrorCode::OutOfOrderSequenceNumber => "OutOfOrderSequenceException",
        ErrorCode::DuplicateSequenceNumber => "DuplicateSequenceException",
        ErrorCode::InvalidProducerIdMapping => "InvalidPidMappingException",
        ErrorCode::InvalidTransactionTimeout => "InvalidTxnTimeoutException",
        ErrorCode::SaslAuthenticationFailed => "SaslAuthenticationException",
        ErrorCode::DelegationTokenAuthDisabled => "DelegationTokenDisabledException",
        ErrorCode::DelegationTokenRequestNotAllowed => "UnsupportedByAuthenticationException",
        ErrorCode::NonEmptyGroup => "GroupNotEmptyException",
        ErrorCode::PrincipalDeserializationFailure => "PrincipalDeserializationException",
        ErrorCode::FetchSessionTopicIdError => "FetchSessionTopicIdException",
        _ => return format!("org.apache.kafka.common.errors.{}", regular_class(code)),
    };
    format!("org.apache.kafka.common.errors.{name}")
}

/// `NOT_LEADER_OR_FOLLOWER` becomes `NotLeaderOrFollowerException`.
fn regular_class(code: ErrorCode) -> String {
    let mut class = String::new();
    for word in code.name().split('_') {
        let (first, rest) = word.split_at(1);
        class.push_str(first);
        class.push_str(&rest.to_ascii_lowercase());
    }
    if !class.ends_with("Exception") {
        class.push_str("Exception");
    }
    class
}

#[cfg(test)]
mod tests {
    use common::error_code::ErrorCode;

    use super::{ClientError, exception_class};

    #[test]
    fn codes_become_the_classes_of_java() {
        let class = |code| exception_class(code).rsplit('.').next().map(str::to_owned);
        assert_eq!(
            class(ErrorCode::NotLeaderOrFollower).as_deref(),
            Some("NotLeaderOrFollowerException")
        );
        assert_eq!(
            class(ErrorCode::InvalidTopicException).as_deref(),
            Some("InvalidTopicException")
        );
        assert_eq!(class(ErrorCode::TopicAlreadyExists).as_deref(), Some("TopicExistsException"));
        let error = ClientError::from_code(ErrorCode::RequestTimedOut, None);
        assert!(error.is_retriable());
        assert_eq!(
            error.with_class(),
            "org.apache.kafka.common.errors.TimeoutException: The request timed out."
        );
    }
}
