//! What the server sends: frames with their length in front. Source: ZooKeeper's
//! `zookeeper.jute`, module `org.apache.zookeeper.proto`, and `MultiResponse`.

use bytes::Bytes;

use crate::code::{Refusal, op, xid};
use crate::data::{Acl, Id, Stat};
use crate::jute::Write;
use crate::tree::{EventKind, Outcome};

/// What stands behind the header of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    Empty,
    Path(&'a str),
    Stat(Stat),
    PathAndStat(&'a str, Stat),
    Data(Option<&'a [u8]>, Stat),
    Texts(Vec<&'a str>),
    TextsAndStat(Vec<&'a str>, Stat),
    Acl(&'a [Acl], Stat),
    Int(i32),
    /// Null where there is nothing to say, be it that nobody can log in.
    Token(Option<&'a [u8]>),
    Ids(&'a [Id]),
    Multi(&'a [Outcome]),
    MultiRead(Vec<Result<Body<'a>, Refusal>>),
}

impl Body<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Body::Empty => {}
            Body::Path(path) => out.text(path),
            Body::Stat(stat) => stat.write(out),
            Body::PathAndStat(path, stat) => {
                out.text(path);
                stat.write(out);
            }
            Body::Data(data, stat) => {
                out.buffer(*data);
                stat.write(out);
            }
            Body::Texts(texts) => out.texts(texts.iter().copied()),
            Body::TextsAndStat(texts, stat) => {
                out.texts(texts.iter().copied());
                stat.write(out);
            }
            Body::Acl(acl, stat) => {
                Acl::write_all(acl, out);
                stat.write(out);
            }
            Body::Int(value) => out.int(*value),
            Body::Token(token) => out.buffer(*token),
            Body::Ids(ids) => {
                out.length(ids.len());
                for id in *ids {
                    id.write(out);
                }
            }
            Body::Multi(outcomes) => {
                for outcome in *outcomes {
                    write_outcome(outcome, out);
                }
                write_multi_header(-1, true, -1, out);
            }
            Body::MultiRead(results) => {
                for result in results {
                    write_read(result, out);
                }
                write_multi_header(-1, true, -1, out);
            }
        }
    }
}

fn write_multi_header(op: i32, done: bool, error: i32, out: &mut Vec<u8>) {
    out.int(op);
    out.boolean(done);
    out.int(error);
}

fn write_refusal(code: i32, out: &mut Vec<u8>) {
    write_multi_header(op::ERROR, false, code, out);
    out.int(code);
}

fn write_outcome(outcome: &Outcome, out: &mut Vec<u8>) {
    match outcome {
        // Apache gives no Stat here, for create alone.
        Outcome::Created { op: op::CREATE, path, .. } => {
            write_multi_header(op::CREATE, false, 0, out);
            out.text(path);
        }
        Outcome::Created { path, stat, .. } => {
            write_multi_header(op::CREATE2, false, 0, out);
            out.text(path);
            stat.write(out);
        }
        Outcome::Stat(stat) => {
            write_multi_header(op::SET_DATA, false, 0, out);
            stat.write(out);
        }
        Outcome::Done => write_multi_header(op::DELETE, false, 0, out),
        Outcome::Checked => write_multi_header(op::CHECK, false, 0, out),
        Outcome::Refused(code) => write_refusal(*code, out),
        Outcome::Multi(_) => write_refusal(Refusal::MarshallingError.code(), out),
    }
}

fn write_read(result: &Result<Body<'_>, Refusal>, out: &mut Vec<u8>) {
    match result {
        Ok(body) => {
            let is_data = matches!(body, Body::Data(..));
            let op = if is_data { op::GET_DATA } else { op::GET_CHILDREN };
            write_multi_header(op, false, 0, out);
            body.write(out);
        }
        Err(refusal) => write_refusal(refusal.code(), out),
    }
}

/// What a part of the reply to a `multiRead` takes.
pub(crate) fn part_bytes(result: &Result<Body<'_>, Refusal>) -> usize {
    const HEADER: usize = 9;
    const STAT: usize = 68;
    let body = match result {
        Ok(Body::Data(data, _)) => 4 + data.map_or(0, <[u8]>::len) + STAT,
        Ok(Body::Texts(texts)) => 4 + texts.iter().map(|text| 4 + text.len()).sum::<usize>(),
        // A code; there is nothing else.
        _ => 4,
    };
    HEADER + body
}

/// A frame: the length, then what `write` appends.
fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = vec![0; 4];
    write(&mut out);
    let length = i32::try_from(out.len() - 4).expect("a reply is smaller than the tree's bounds");
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.into()
}

/// The answer to a request.
pub(crate) fn reply(xid: i32, zxid: i64, result: Result<Body<'_>, Refusal>) -> Bytes {
    frame(|out| {
        out.int(xid);
        out.long(zxid);
        match result {
            Ok(body) => {
                out.int(0);
                body.write(out);
            }
            Err(refusal) => out.int(refusal.code()),
        }
    })
}

/// The answer to a login that failed; clients in Java read a token here, whatever the code.
pub(crate) fn login_refused(xid: i32, refusal: Refusal) -> Bytes {
    frame(|out| {
        out.int(xid);
        out.long(0);
        out.int(refusal.code());
        Body::Token(None).write(out);
    })
}

/// The answer to a connect request; `None` says that the session has ended.
pub(crate) fn connected(session: Option<Connected>, old_client: bool) -> Bytes {
    let session = session.unwrap_or_default();
    frame(|out| {
        out.int(0);
        out.int(session.timeout_ms);
        out.long(session.session);
        out.buffer(Some(&session.password));
        if !old_client {
            // This server is never read-only.
            out.boolean(false);
        }
    })
}

/// What a client learns of its session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Connected {
    pub(crate) session: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) password: [u8; 16],
}

/// What a watch has seen.
pub(crate) fn notification(kind: EventKind, path: &str) -> Bytes {
    /// `KeeperState.SyncConnected`.
    const SYNC_CONNECTED: i32 = 3;
    let kind = match kind {
        EventKind::Created => 1,
        EventKind::Deleted => 2,
        EventKind::DataChanged => 3,
        EventKind::ChildrenChanged => 4,
    };
    frame(|out| {
        out.int(xid::NOTIFICATION);
        out.long(-1);
        out.int(0);
        out.int(kind);
        out.int(SYNC_CONNECTED);
        out.text(path);
    })
}
