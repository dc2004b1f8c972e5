//! Transactions: what the log holds and what alone changes the tree. The encoding is that of
//! Apache ZooKeeper 3.8's `zookeeper.jute`, module `org.apache.zookeeper.txn`.

use thiserror::Error;

use crate::code::op;
use crate::data::Acl;
use crate::jute::{JuteError, Reader, Write};

/// Why an entry of the log is not a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum TxnError {
    #[error("the record cannot be read")]
    Record(#[from] JuteError),
    #[error("transaction type {0} is unknown")]
    UnknownType(i32),
}

/// Who did it and when; in front of each transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TxnHeader {
    /// The session.
    pub(crate) client_id: i64,
    /// The client's number of the request.
    pub(crate) cxid: i32,
    pub(crate) zxid: i64,
    /// Milliseconds since 1970.
    pub(crate) time: i64,
}

/// One change, or a refused attempt at one (`Error`), which takes a zxid too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Txn {
    CreateSession {
        timeout_ms: i32,
    },
    /// The ephemeral nodes that go; `None` in logs of old servers.
    CloseSession {
        paths: Option<Vec<String>>,
    },
    Create {
        /// Which of `create`, `create2` and `createContainer` asked; they differ in the answer.
        op: i32,
        path: String,
        data: Option<Vec<u8>>,
        acl: Vec<Acl>,
        ephemeral: bool,
        /// The parent's cversion after this; -1 in old logs: one more than it is.
        parent_cversion: i32,
    },
    CreateTtl {
        path: String,
        data: Option<Vec<u8>>,
        acl: Vec<Acl>,
        parent_cversion: i32,
        ttl_ms: i64,
    },
    Delete {
        /// `delete`, or `deleteContainer` for what the server cleans up.
        op: i32,
        path: String,
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
    Error {
        code: i32,
    },
    Multi(Vec<Txn>),
}

impl Txn {
    /// The operation code under which it stands in the log.
    pub(crate) fn op(&self) -> i32 {
        match self {
            Txn::CreateSession { .. } => op::CREATE_SESSION,
            Txn::CloseSession { .. } => op::CLOSE_SESSION,
            Txn::Create { op, .. } | Txn::Delete { op, .. } => *op,
            Txn::CreateTtl { .. } => op::CREATE_TTL,
            Txn::SetData { .. } => op::SET_DATA,
            Txn::SetAcl { .. } => op::SET_ACL,
            Txn::Check { .. } => op::CHECK,
            Txn::Error { .. } => op::ERROR,
            Txn::Multi(_) => op::MULTI,
        }
    }

    /// Appends header and body, as an entry of the log holds them.
    pub(crate) fn write(&self, header: &TxnHeader, out: &mut Vec<u8>) {
        out.long(header.client_id);
        out.int(header.cxid);
        out.long(header.zxid);
        out.long(header.time);
        out.int(self.op());
        self.write_body(out);
    }

    fn write_body(&self, out: &mut Vec<u8>) {
        match self {
            Txn::CreateSession { timeout_ms } => out.int(*timeout_ms),
            Txn::CloseSession { paths: None } => {}
            Txn::CloseSession { paths: Some(paths) } => {
                out.texts(paths.iter().map(String::as_str));
            }
            Txn::Create { op, path, data, acl, ephemeral, parent_cversion } => {
                out.text(path);
                out.buffer(data.as_deref());
                Acl::write_all(acl, out);
                if *op != op::CREATE_CONTAINER {
                    out.boolean(*ephemeral);
                }
                out.int(*parent_cversion);
            }
            Txn::CreateTtl { path, data, acl, parent_cversion, ttl_ms } => {
                out.text(path);
                out.buffer(data.as_deref());
                Acl::write_all(acl, out);
                out.int(*parent_cversion);
                out.long(*ttl_ms);
            }
            Txn::Delete { path, .. } => out.text(path),
            Txn::SetData { path, data, version } => {
                out.text(path);
                out.buffer(data.as_deref());
                out.int(*version);
            }
            Txn::SetAcl { path, acl, version } => {
                out.text(path);
                Acl::write_all(acl, out);
                out.int(*version);
            }
            Txn::Check { path, version } => {
                out.text(path);
                out.int(*version);
            }
            Txn::Error { code } => out.int(*code),
            Txn::Multi(txns) => {
                out.length(txns.len());
                for txn in txns {
                    out.int(txn.op());
                    let mut body = Vec::new();
                    txn.write_body(&mut body);
                    out.buffer(Some(&body));
                }
            }
        }
    }

    /// Reads an entry of the log. What follows the body (a digest of the tree) is not read.
    pub(crate) fn read(bytes: &[u8]) -> Result<(TxnHeader, Txn), TxnError> {
        let mut reader = Reader::new(bytes);
        let header = TxnHeader {
            client_id: reader.long()?,
            cxid: reader.int()?,
            zxid: reader.long()?,
            time: reader.long()?,
        };
        let op = reader.int()?;
        let txn = match op {
            op::MULTI => {
                let parts = reader.vector(|reader| {
                    Ok((reader.int()?, reader.buffer()?.ok_or(JuteError::Null)?))
                })?;
                let mut txns = Vec::new();
                for (op, body) in parts.unwrap_or_default() {
                    txns.push(Txn::read_body(op, &mut Reader::new(body))?);
                }
                Txn::Multi(txns)
            }
            op => Txn::read_body(op, &mut reader)?,
        };
        Ok((header, txn))
    }

    /// A body that is no `multi`: they do not nest.
    fn read_body(op: i32, reader: &mut Reader<'_>) -> Result<Txn, TxnError> {
        let txn = match op {
            op::CREATE_SESSION => Txn::CreateSession { timeout_ms: reader.int()? },
            op::CLOSE_SESSION => Txn::CloseSession { paths: read_closed_paths(reader) },
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER => {
                let path = reader.text()?;
                let data = reader.buffer()?.map(<[u8]>::to_vec);
                let acl = Acl::read_all(reader)?;
                let ephemeral = op != op::CREATE_CONTAINER && reader.boolean()?;
                // Servers before 3.4 wrote no cversion.
                let parent_cversion =
                    if reader.rest().is_empty() && op == op::CREATE { -1 } else { reader.int()? };
                Txn::Create { op, path, data, acl, ephemeral, parent_cversion }
            }
            op::CREATE_TTL => Txn::CreateTtl {
                path: reader.text()?,
                data: reader.buffer()?.map(<[u8]>::to_vec),
                acl: Acl::read_all(reader)?,
                parent_cversion: reader.int()?,
                ttl_ms: reader.long()?,
            },
            op::DELETE | op::DELETE_CONTAINER => Txn::Delete { op, path: reader.text()? },
            op::SET_DATA | op::RECONFIG => Txn::SetData {
                path: reader.text()?,
                data: reader.buffer()?.map(<[u8]>::to_vec),
                version: reader.int()?,
            },
            op::SET_ACL => Txn::SetAcl {
                path: reader.text()?,
                acl: Acl::read_all(reader)?,
                version: reader.int()?,
            },
            op::CHECK => Txn::Check { path: reader.text()?, version: reader.int()? },
            op::ERROR => Txn::Error { code: reader.int()? },
            op => return Err(TxnError::UnknownType(op)),
        };
        Ok(txn)
    }
}

/// Servers before 3.6 wrote no paths: then nothing, or only a digest, follows the header.
fn read_closed_paths(reader: &mut Reader<'_>) -> Option<Vec<String>> {
    reader.texts().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Txn> {
        let path = || "/a/b".to_owned();
        let create = |op, ephemeral| Txn::Create {
            op,
            path: path(),
            data: Some(b"x".to_vec()),
            acl: Acl::open(),
            ephemeral,
            parent_cversion: 3,
        };
        vec![
            Txn::CreateSession { timeout_ms: 6000 },
            Txn::CloseSession { paths: Some(vec![path()]) },
            Txn::CloseSession { paths: None },
            create(op::CREATE, true),
            create(op::CREATE2, false),
            create(op::CREATE_CONTAINER, false),
            Txn::CreateTtl {
                path: path(),
                data: None,
                acl: Acl::open(),
                parent_cversion: 1,
                ttl_ms: 9,
            },
            Txn::Delete { op: op::DELETE, path: path() },
            Txn::Delete { op: op::DELETE_CONTAINER, path: path() },
            Txn::SetData { path: path(), data: Some(Vec::new()), version: 4 },
            Txn::SetAcl { path: path(), acl: Acl::open(), version: 1 },
            Txn::Check { path: path(), version: 2 },
            Txn::Error { code: -101 },
            Txn::Multi(vec![create(op::CREATE, false), Txn::Check { path: path(), version: 1 }]),
        ]
    }

    #[test]
    fn what_is_written_is_read_and_nothing_shorter() {
        let header = TxnHeader { client_id: 7, cxid: 2, zxid: 9, time: 11 };
        for txn in samples() {
            let mut bytes = Vec::new();
            txn.write(&header, &mut bytes);
            assert_eq!(Txn::read(&bytes), Ok((header, txn.clone())));
            for length in 0..bytes.len() {
                // Old servers' forms are shorter; they are the only ones that still read.
                if let Ok((_, read)) = Txn::read(&bytes[..length]) {
                    assert!(matches!(
                        read,
                        Txn::CloseSession { paths: None } | Txn::Create { parent_cversion: -1, .. }
                    ));
                }
            }
        }
    }
}
