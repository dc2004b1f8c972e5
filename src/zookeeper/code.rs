//! ZooKeeper's error codes and operation codes, as they stand on the wire and in the log.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $java:literal;)*) => {
        /// Why an operation was refused. Source: ZooKeeper's `KeeperException.Code`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Refusal {
            $($(#[$doc])* $name,)*
        }

        impl Refusal {
            /// The number on the wire.
            pub fn code(self) -> i32 {
                match self { $(Refusal::$name => $value,)* }
            }

            /// The refusal of a number, if there is one.
            pub fn from_code(code: i32) -> Option<Refusal> {
                match code { $($value => Some(Refusal::$name),)* _ => None }
            }

            /// The name in Java's messages: `KeeperErrorCode = <name> for <path>`.
            pub fn java_name(self) -> &'static str {
                match self { $(Refusal::$name => $java,)* }
            }
        }
    };
}

codes! {
    /// The server failed.
    SystemError = -1, "SystemError";
    /// An operation of a `multi` that was not reached, because one before it failed.
    RuntimeInconsistency = -2, "RuntimeInconsistency";
    /// The data is inconsistent.
    DataInconsistency = -3, "DataInconsistency";
    /// The connection was lost; the operation may have happened.
    ConnectionLoss = -4, "ConnectionLoss";
    /// The request could not be decoded.
    MarshallingError = -5, "MarshallingError";
    /// The server does not know the operation.
    Unimplemented = -6, "Unimplemented";
    /// The operation took too long.
    OperationTimeout = -7, "OperationTimeout";
    /// A path or a flag is not valid.
    BadArguments = -8, "BadArguments";
    /// The server does not know the session.
    UnknownSession = -12, "Unknown error";
    /// The node is not there.
    NoNode = -101, "NoNode";
    /// The ACL does not permit the operation.
    NoAuth = -102, "NoAuth";
    /// The node's version is another.
    BadVersion = -103, "BadVersion";
    /// An ephemeral node has no children.
    NoChildrenForEphemerals = -108, "NoChildrenForEphemerals";
    /// The node is there already.
    NodeExists = -110, "NodeExists";
    /// The node has children.
    NotEmpty = -111, "Directory not empty";
    /// The session has ended.
    SessionExpired = -112, "Session expired";
    /// The ACL is not valid.
    InvalidAcl = -114, "InvalidACL";
    /// Authentication failed.
    AuthFailed = -115, "AuthFailed";
    /// The session is used over another connection.
    SessionMoved = -118, "Session moved";
    /// There is no such watch.
    NoWatcher = -121, "No such watcher";
    /// Reconfiguration is disabled.
    ReconfigDisabled = -123, "Reconfig is disabled";
    /// The server accepts no session without SASL.
    SessionClosedRequireSaslAuth = -124, "Session closed because client failed to authenticate";
    /// A hard quota would be exceeded.
    QuotaExceeded = -125, "Quota has exceeded";
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.java_name())
    }
}

impl std::error::Error for Refusal {}

/// Operation codes. Source: ZooKeeper's `ZooDefs.OpCode`.
pub(crate) mod op {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_ACL: i32 = 6;
    pub(crate) const SET_ACL: i32 = 7;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const GET_CHILDREN2: i32 = 12;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE2: i32 = 15;
    pub(crate) const RECONFIG: i32 = 16;
    pub(crate) const CHECK_WATCHES: i32 = 17;
    pub(crate) const REMOVE_WATCHES: i32 = 18;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const DELETE_CONTAINER: i32 = 20;
    pub(crate) const CREATE_TTL: i32 = 21;
    pub(crate) const MULTI_READ: i32 = 22;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const SET_WATCHES: i32 = 101;
    pub(crate) const SASL: i32 = 102;
    pub(crate) const GET_EPHEMERALS: i32 = 103;
    pub(crate) const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub(crate) const SET_WATCHES2: i32 = 105;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const WHO_AM_I: i32 = 107;
    pub(crate) const CREATE_SESSION: i32 = -10;
    pub(crate) const CLOSE_SESSION: i32 = -11;
    pub(crate) const ERROR: i32 = -1;
}

/// The xids that name no request of the client.
pub(crate) mod xid {
    pub(crate) const NOTIFICATION: i32 = -1;
    pub(crate) const PING: i32 = -2;
    pub(crate) const AUTH: i32 = -4;
    pub(crate) const SET_WATCHES: i32 = -8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_finds_its_refusal() {
        assert_eq!(Refusal::from_code(-101), Some(Refusal::NoNode));
        assert_eq!(Refusal::NoNode.code(), -101);
        assert_eq!(Refusal::from_code(0), None);
    }
}
