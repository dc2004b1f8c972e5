//! The part of ZooKeeper that Kafka needs, as a trait. Paths and JSON are one level up.

use std::{fmt, future::Future, pin::Pin};

use common::ids::Timestamp;

use crate::changes::{SessionState, ZkChanges};

/// What an operation gives: it ends with its session at the latest.
pub type ZkFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ZkError>> + Send + 'a>>;

/// Counts the changes of a znode's data, from 0; conditional writes name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ZkVersion(pub i32);

/// A session of ZooKeeper; owns ephemeral znodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub i64);

impl fmt::Display for ZkVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The version a write demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Whatever is there (Kafka's -1).
    Any,
    /// Exactly this one, else `BadVersion`.
    Version(ZkVersion),
}

/// Whether a read leaves a watch behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The next change makes the path dirty, once; see `ZkStore::changes`.
    Yes,
    /// Only the read.
    No,
}

/// What kind of znode to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateKind {
    /// Stays until deleted.
    Persistent,
    /// Goes with the session.
    Ephemeral,
    /// Persistent; ZooKeeper appends ten digits to the path.
    PersistentSequential,
    /// Ephemeral; ZooKeeper appends ten digits to the path.
    EphemeralSequential,
}

/// What ZooKeeper knows of a znode besides its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Transaction that created it.
    pub czxid: i64,
    /// Transaction that last changed its data.
    pub mzxid: i64,
    /// Transaction that last changed its list of children.
    pub pzxid: i64,
    /// When it was created, by the server's clock.
    pub ctime: Timestamp,
    /// When its data last changed, by the server's clock.
    pub mtime: Timestamp,
    /// Changes of its data.
    pub version: ZkVersion,
    /// Changes of its list of children.
    pub cversion: i32,
    /// Changes of its access list.
    pub aversion: i32,
    /// The session it goes with; `None` where it is persistent.
    pub ephemeral_owner: Option<SessionId>,
    /// Bytes of its data.
    pub data_length: i32,
    /// How many children it has.
    pub num_children: i32,
}

/// A znode: its data (null reads as empty) and its stat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The bytes stored.
    pub data: Vec<u8>,
    /// All the rest.
    pub stat: Stat,
}

/// What a create gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The path, with the appended digits of a sequential node.
    pub path: String,
    /// The new node's stat.
    pub stat: Stat,
}

/// One step of a `multi`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fails with `BadVersion` or `NoNode` unless the node has the version.
    Check {
        /// The node.
        path: String,
        /// The version it must have.
        version: ZkVersion,
    },
    /// Creates a node; its parent must exist.
    Create {
        /// The node, or the prefix of a sequential one.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// Its kind.
        kind: CreateKind,
    },
    /// Replaces a node's data.
    Set {
        /// The node.
        path: String,
        /// Its new data.
        data: Vec<u8>,
        /// The version it must have.
        expected: Expected,
    },
    /// Deletes a node without children.
    Delete {
        /// The node.
        path: String,
        /// The version it must have.
        expected: Expected,
    },
}

impl Op {
    /// Creates a persistent node.
    pub fn create(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Op {
        Op::Create { path: path.into(), data: data.into(), kind: CreateKind::Persistent }
    }

    /// Creates an ephemeral node.
    pub fn create_ephemeral(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Op {
        Op::Create { path: path.into(), data: data.into(), kind: CreateKind::Ephemeral }
    }

    /// Replaces a node's data.
    pub fn set(path: impl Into<String>, data: impl Into<Vec<u8>>, expected: Expected) -> Op {
        Op::Set { path: path.into(), data: data.into(), expected }
    }

    /// Deletes a node.
    pub fn delete(path: impl Into<String>, expected: Expected) -> Op {
        Op::Delete { path: path.into(), expected }
    }

    /// Demands a version.
    pub fn check(path: impl Into<String>, version: ZkVersion) -> Op {
        Op::Check { path: path.into(), version }
    }

    /// The path it names.
    pub fn path(&self) -> &str {
        match self {
            Op::Check { path, .. }
            | Op::Create { path, .. }
            | Op::Set { path, .. }
            | Op::Delete { path, .. } => path,
        }
    }

    /// Bytes it takes in a request, or somewhat more.
    pub fn size(&self) -> usize {
        // Header, lengths, version, flags and one access list entry.
        const OVERHEAD: usize = 96;
        let data = match self {
            Op::Create { data, .. } | Op::Set { data, .. } => data.len(),
            Op::Check { .. } | Op::Delete { .. } => 0,
        };
        self.path().len() + data + OVERHEAD
    }
}

/// What a step of a `multi` gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// The version was there.
    Checked,
    /// The path, with the digits of a sequential node. ZooKeeper 3.8 tells no stat here: where the czxid
    /// matters, a `Set` follows in the same `multi`.
    Created(String),
    /// The stat after the change.
    Set(Stat),
    /// It is gone.
    Deleted,
}

/// Why an operation failed. `Display` has Kafka's words for ZooKeeper's codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZkError {
    /// The node, or the parent of the node to create, is not there.
    #[error("KeeperErrorCode = NoNode for {path}")]
    NoNode {
        /// The path asked for.
        path: String,
    },
    /// What every path is below is not there: nothing can be created.
    #[error(
        "the chroot {chroot} of zookeeper.connect does not exist, as when ZooKeeper has lost its data; it is created at \
         the broker's start alone"
    )]
    NoChroot {
        /// The chroot.
        chroot: String,
    },
    /// The node to create is there.
    #[error("KeeperErrorCode = NodeExists for {path}")]
    NodeExists {
        /// The path asked for.
        path: String,
    },
    /// The node has another version than the expected one.
    #[error("KeeperErrorCode = BadVersion for {path}")]
    BadVersion {
        /// The path asked for.
        path: String,
    },
    /// The node to delete has children.
    #[error("KeeperErrorCode = Directory not empty for {path}")]
    NotEmpty {
        /// The path asked for.
        path: String,
    },
    /// An ephemeral node cannot have children.
    #[error("KeeperErrorCode = NoChildrenForEphemerals for {path}")]
    NoChildrenForEphemerals {
        /// The path asked for.
        path: String,
    },
    /// The session may not do this.
    #[error("KeeperErrorCode = NoAuth for {path}")]
    NoAuth {
        /// The path asked for.
        path: String,
    },
    /// A step of a `multi` failed, so none was applied.
    #[error("step {index} of a multi: {reason}")]
    Multi {
        /// Which step, from 0.
        index: usize,
        /// What it failed of.
        reason: Box<ZkError>,
    },
    /// The request is larger than ZooKeeper's `jute.maxbuffer`; nothing was sent.
    #[error("request of {size} bytes for {path} is larger than jute.maxbuffer ({limit})")]
    TooLarge {
        /// The first path of the request.
        path: String,
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The connection was lost with the write under way: it was applied, or not. Read again.
    #[error("KeeperErrorCode = ConnectionLoss for {path}")]
    MayHaveHappened {
        /// The path asked for, the first one of a `multi`.
        path: String,
    },
    /// The session in which the operation began has ended; it was not applied.
    #[error("KeeperErrorCode = Session expired")]
    SessionExpired,
    /// ZooKeeper refuses who we say we are.
    #[error("KeeperErrorCode = AuthFailed")]
    AuthFailed,
    /// The store was closed; what was under way may have happened.
    #[error("the ZooKeeper client is closed")]
    Closed,
    /// The path breaks ZooKeeper's rules for paths.
    #[error("Invalid path string \"{path}\" caused by {reason}")]
    InvalidPath {
        /// The path asked for.
        path: String,
        /// The rule.
        reason: &'static str,
    },
    /// Any other answer of the server.
    #[error("{path}: {message}")]
    Other {
        /// The path asked for.
        path: String,
        /// What the client library says.
        message: String,
    },
}

impl ZkError {
    /// The failed step's error where it is one of a `multi`, else itself.
    pub fn reason(&self) -> &ZkError {
        match self {
            ZkError::Multi { reason, .. } => reason,
            other => other,
        }
    }

    /// Whether a condition (version, presence) did not hold: read again and decide anew.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self.reason(),
            ZkError::NoNode { .. }
                | ZkError::NodeExists { .. }
                | ZkError::BadVersion { .. }
                | ZkError::NotEmpty { .. }
        )
    }
}

/// The part of ZooKeeper that Kafka needs.
///
/// While the connection is away, operations wait; a read that was under way is sent again, a write gives
/// `MayHaveHappened`. When the session ends, all that began in it give `SessionExpired`, and a new session is
/// built without being asked, any number of times. Requests are sent in the order in which their futures are
/// first polled. A future dropped early leaves its request undone or done.
pub trait ZkStore: Send + Sync {
    /// Reads a node, and watches it, in one step: no change in between is missed. A node that is not there
    /// is `None`, and its creation is watched.
    fn get<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Node>>;

    /// As `get`, without the data.
    fn exists<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Stat>>;

    /// Lists the names of a node's children, in any order, and watches the list. A node that is not there has none, and
    /// its creation is watched.
    fn children<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Vec<String>>;

    /// Creates a node; its parent must exist.
    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: CreateKind,
    ) -> ZkFuture<'a, Created>;

    /// Replaces a node's data.
    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], expected: Expected) -> ZkFuture<'a, Stat>;

    /// Deletes a node without children.
    fn delete<'a>(&'a self, path: &'a str, expected: Expected) -> ZkFuture<'a, ()>;

    /// Applies all operations or none; a failure names the step. An empty list does nothing.
    fn multi(&self, ops: Vec<Op>) -> ZkFuture<'_, Vec<OpResult>>;

    /// The session now.
    fn session(&self) -> SessionState;

    /// Paths whose watch fired, and the session's state: read again what you care for. Each call is a
    /// subscription of its own; it begins with the state now. After a lost connection or session every
    /// watched path is dirty and no longer watched.
    fn changes(&self) -> ZkChanges;

    /// Largest request, in bytes (`jute.maxbuffer`).
    fn request_bytes_max(&self) -> usize;

    /// Ends the session and its ephemeral nodes; quick even when ZooKeeper is away. Later operations give `Closed`.
    fn close(&self) -> ZkFuture<'_, ()>;
}
