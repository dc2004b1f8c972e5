//! What a client asks, decoded from a frame. Source: ZooKeeper's `zookeeper.jute`, module
//! `org.apache.zookeeper.proto`, and `MultiOperationRecord`.

use crate::code::{Refusal, op};
use crate::data::{Acl, Id};
use crate::jute::{JuteError, Reader};

/// The first frame of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectRequest {
    pub(crate) last_zxid_seen: i64,
    pub(crate) timeout_ms: i32,
    /// 0 asks for a new session.
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    /// Clients before 3.4 do not send the read-only flag, and do not expect it.
    pub(crate) old_client: bool,
}

impl ConnectRequest {
    pub(crate) fn read(frame: &[u8]) -> Result<ConnectRequest, JuteError> {
        let mut reader = Reader::new(frame);
        let _protocol_version = reader.int()?;
        Ok(ConnectRequest {
            last_zxid_seen: reader.long()?,
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.buffer()?.unwrap_or_default().to_vec(),
            old_client: reader.boolean().is_err(),
        })
    }
}

/// In front of every other frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) xid: i32,
    pub(crate) op: i32,
}

impl RequestHeader {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<RequestHeader, JuteError> {
        Ok(RequestHeader { xid: reader.int()?, op: reader.int()? })
    }
}

/// A change that a client asks for, alone or in a `multi`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Create {
        op: i32,
        /// Null cannot be read, which is found out after the flags.
        path: Option<String>,
        data: Option<Vec<u8>>,
        acl: Vec<Acl>,
        flags: i32,
        /// -1 where the kind has none.
        ttl_ms: i64,
    },
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Vec<Acl>,
        version: i32,
    },
    Check {
        path: String,
        version: i32,
    },
}

/// A read in a `multiRead`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Read {
    Data(String),
    Children(String),
}

/// The watches that a client has when it comes back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SetWatches {
    pub(crate) relative_zxid: i64,
    pub(crate) data: Vec<String>,
    pub(crate) exist: Vec<String>,
    pub(crate) child: Vec<String>,
    pub(crate) persistent: Vec<String>,
    pub(crate) recursive: Vec<String>,
}

/// Everything a session may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Change(Change),
    Multi(Vec<Change>),
    MultiRead(Vec<Read>),
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
        with_stat: bool,
    },
    GetAllChildrenNumber {
        path: String,
    },
    GetEphemerals {
        prefix: String,
    },
    GetAcl {
        path: String,
    },
    /// Null comes back as null.
    Sync {
        path: Option<String>,
    },
    Ping,
    CloseSession,
    SetWatches(SetWatches),
    /// Null is a path that nothing happens to.
    AddWatch {
        path: Option<String>,
        mode: i32,
    },
    CheckWatches {
        path: String,
        kind: i32,
    },
    RemoveWatches {
        path: String,
        kind: i32,
    },
    WhoAmI,
    Reconfig,
}

/// Whether the server knows the operation at all; others end the connection.
pub(crate) fn is_known(op: i32) -> bool {
    matches!(
        op,
        op::CREATE
            | op::CREATE2
            | op::CREATE_TTL
            | op::CREATE_CONTAINER
            | op::DELETE
            | op::DELETE_CONTAINER
            | op::EXISTS
            | op::GET_DATA
            | op::SET_DATA
            | op::CHECK
            | op::GET_ACL
            | op::SET_ACL
            | op::GET_CHILDREN
            | op::GET_CHILDREN2
            | op::GET_ALL_CHILDREN_NUMBER
            | op::GET_EPHEMERALS
            | op::SYNC
            | op::PING
            | op::MULTI
            | op::MULTI_READ
            | op::RECONFIG
            | op::SET_WATCHES
            | op::SET_WATCHES2
            | op::ADD_WATCH
            | op::CHECK_WATCHES
            | op::REMOVE_WATCHES
            | op::WHO_AM_I
            | op::CLOSE_SESSION
    )
}

/// Whether the operation takes a zxid, even when it is refused.
pub(crate) fn is_write(op: i32) -> bool {
    matches!(
        op,
        op::CREATE
            | op::CREATE2
            | op::CREATE_TTL
            | op::CREATE_CONTAINER
            | op::DELETE
            | op::DELETE_CONTAINER
            | op::SET_DATA
            | op::SET_ACL
            | op::CHECK
            | op::MULTI
            | op::RECONFIG
            | op::CLOSE_SESSION
    )
}

impl Request {
    /// Reads the body of a request that [`is_known`].
    pub(crate) fn read(op: i32, reader: &mut Reader<'_>) -> Result<Request, Refusal> {
        // The server asks itself for these. Apache reads the header as a part of the path, so none is
        // ever valid.
        if op == op::DELETE_CONTAINER {
            return Err(Refusal::BadArguments);
        }
        Request::read_body(op, reader).map_err(|_| Refusal::MarshallingError)
    }

    fn read_body(op: i32, reader: &mut Reader<'_>) -> Result<Request, JuteError> {
        let request = match op {
            op::CREATE
            | op::CREATE2
            | op::CREATE_CONTAINER
            | op::CREATE_TTL
            | op::DELETE
            | op::SET_DATA
            | op::SET_ACL
            | op::CHECK => Request::Change(read_change(op, reader)?),
            op::MULTI => Request::Multi(read_parts(reader, read_part)?),
            op::MULTI_READ => Request::MultiRead(read_parts(reader, read_read)?),
            op::EXISTS => Request::Exists { path: reader.text()?, watch: reader.boolean()? },
            op::GET_DATA => Request::GetData { path: reader.text()?, watch: reader.boolean()? },
            op::GET_CHILDREN | op::GET_CHILDREN2 => Request::GetChildren {
                path: reader.text()?,
                watch: reader.boolean()?,
                with_stat: op == op::GET_CHILDREN2,
            },
            op::GET_ALL_CHILDREN_NUMBER => Request::GetAllChildrenNumber { path: reader.text()? },
            op::GET_EPHEMERALS => {
                Request::GetEphemerals { prefix: reader.string()?.unwrap_or_default() }
            }
            op::GET_ACL => Request::GetAcl { path: reader.text()? },
            op::SYNC => Request::Sync { path: reader.string()? },
            op::PING => Request::Ping,
            op::CLOSE_SESSION => Request::CloseSession,
            op::SET_WATCHES | op::SET_WATCHES2 => {
                Request::SetWatches(read_set_watches(op, reader)?)
            }
            op::ADD_WATCH => Request::AddWatch { path: reader.string()?, mode: reader.int()? },
            op::CHECK_WATCHES => {
                Request::CheckWatches { path: reader.text()?, kind: reader.int()? }
            }
            op::REMOVE_WATCHES => {
                Request::RemoveWatches { path: reader.text()?, kind: reader.int()? }
            }
            op::WHO_AM_I => Request::WhoAmI,
            op::RECONFIG => {
                let _joining = reader.string()?;
                let _leaving = reader.string()?;
                let _members = reader.string()?;
                let _version = reader.long()?;
                Request::Reconfig
            }
            _ => return Err(JuteError::Null),
        };
        Ok(request)
    }
}

fn read_change(op: i32, reader: &mut Reader<'_>) -> Result<Change, JuteError> {
    let change = match op {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => Change::Create {
            op,
            path: reader.string()?,
            data: reader.buffer()?.map(<[u8]>::to_vec),
            acl: read_acl(reader)?,
            flags: reader.int()?,
            ttl_ms: if op == op::CREATE_TTL { reader.long()? } else { -1 },
        },
        op::DELETE => Change::Delete { path: reader.text()?, version: reader.int()? },
        // A null path is a bad argument here, as an empty one is, and cannot be read elsewhere.
        op::SET_DATA => Change::SetData {
            path: reader.string()?.unwrap_or_default(),
            data: reader.buffer()?.map(<[u8]>::to_vec),
            version: reader.int()?,
        },
        op::SET_ACL => Change::SetAcl {
            path: reader.string()?.unwrap_or_default(),
            acl: read_acl(reader)?,
            version: reader.int()?,
        },
        op::CHECK => {
            Change::Check { path: reader.string()?.unwrap_or_default(), version: reader.int()? }
        }
        _ => return Err(JuteError::Null),
    };
    Ok(change)
}

/// An ACL of a client. Where an id must be and is null it cannot be read; a scheme that is null is one
/// that there is not.
fn read_acl(reader: &mut Reader<'_>) -> Result<Vec<Acl>, JuteError> {
    let acl = reader.vector(|reader| {
        let perms = reader.int()?;
        let scheme = reader.string()?.unwrap_or_default();
        let id = match reader.string()? {
            None if matches!(&*scheme, "world" | "digest" | "ip" | "sasl" | "x509") => {
                return Err(JuteError::Null);
            }
            id => id.unwrap_or_default(),
        };
        Ok(Acl { perms, id: Id { scheme, id } })
    })?;
    Ok(acl.unwrap_or_default())
}

/// A part of a `multi`, which Apache cannot read where its flags mean nothing.
fn read_part(op: i32, reader: &mut Reader<'_>) -> Result<Change, JuteError> {
    if op == op::SET_ACL {
        return Err(JuteError::Null);
    }
    match read_change(op, reader)? {
        Change::Create { path: None, .. } => Err(JuteError::Null),
        Change::Create { flags, .. } if op != op::CREATE_TTL && !(0..=6).contains(&flags) => {
            Err(JuteError::Null)
        }
        change => Ok(change),
    }
}

fn read_read(op: i32, reader: &mut Reader<'_>) -> Result<Read, JuteError> {
    let path = reader.text()?;
    let _watch = reader.boolean()?;
    match op {
        op::GET_DATA => Ok(Read::Data(path)),
        op::GET_CHILDREN => Ok(Read::Children(path)),
        _ => Err(JuteError::Null),
    }
}

/// The parts of a `multi`: a header in front of each, and one behind the last.
fn read_parts<T>(
    reader: &mut Reader<'_>,
    read: fn(i32, &mut Reader<'_>) -> Result<T, JuteError>,
) -> Result<Vec<T>, JuteError> {
    let mut parts = Vec::new();
    loop {
        let (op, done, _error) = (reader.int()?, reader.boolean()?, reader.int()?);
        if done {
            return Ok(parts);
        }
        parts.push(read(op, reader)?);
    }
}

fn read_set_watches(op: i32, reader: &mut Reader<'_>) -> Result<SetWatches, JuteError> {
    let paths =
        |reader: &mut Reader<'_>| reader.vector(|reader| reader.text())?.ok_or(JuteError::Null);
    let mut watches = SetWatches {
        relative_zxid: reader.long()?,
        data: paths(reader)?,
        exist: paths(reader)?,
        child: paths(reader)?,
        ..SetWatches::default()
    };
    if op == op::SET_WATCHES2 {
        watches.persistent = paths(reader)?;
        watches.recursive = paths(reader)?;
    }
    Ok(watches)
}
