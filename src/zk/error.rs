//! What reading Kafka's znodes can fail of.

use crate::{documents::DocumentError, store::ZkError};

/// A read of a document, or a write that began with one, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZnodeError {
    /// ZooKeeper refused, or the session has ended.
    #[error(transparent)]
    ZooKeeper(#[from] ZkError),
    /// The znode holds something else.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The write needs a ZooKeeper controller, which there is not.
    #[error("{0}")]
    ControllerMoved(String),
}
