//! The refusal of one item of a request.

use common::error_code::ErrorCode;

/// What an admin request answers for one item that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Kafka's code.
    pub code: ErrorCode,
    /// What the client shows; none where the code says it all.
    pub message: Option<String>,
}

impl ApiError {
    /// A code alone.
    pub fn code(code: ErrorCode) -> ApiError {
        ApiError { code, message: None }
    }

    /// A code, and Kafka's own words for it.
    pub fn in_words(code: ErrorCode) -> ApiError {
        ApiError::new(code, code.message())
    }

    /// A code and what was wrong.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ApiError {
        ApiError { code, message: Some(message.into()) }
    }
}
