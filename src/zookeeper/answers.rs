//! The core's answers to what changes no node: reads, and the watches that come with them.

use bytes::Bytes;
use tracing::warn;

use crate::auth::{self, Checks};
use crate::code::{Refusal, xid};
use crate::core::Core;
use crate::data::{Acl, Id, perms};
use crate::reply::{self, Body};
use crate::request::{Read, Request, SetWatches};
use crate::tree::{EventKind, Node, Tree};
use crate::watches::{ConnectionId, Mode};

impl Core {
    /// Answers what changes no node.
    pub(crate) fn read(&mut self, connection: ConnectionId, cxid: i32, request: Request) -> Bytes {
        let zxid = self.tree.last_zxid;
        let reply = |result: Result<Body<'_>, Refusal>| reply::reply(cxid, zxid, result);
        let Some(link) = self.links.get(&connection) else {
            return reply(Err(Refusal::ConnectionLoss));
        };
        let reads = Reads {
            tree: &self.tree,
            checks: Checks::new(&link.ids),
            skip_acl: self.settings.skip_acl,
        };
        match request {
            Request::Ping => reply::reply(xid::PING, zxid, Ok(Body::Empty)),
            Request::Sync { path } => {
                reply(Ok(path.as_deref().map_or(Body::Token(None), Body::Path)))
            }
            Request::WhoAmI => {
                let shown: Vec<Id> = link.ids.iter().map(who).collect();
                reply(Ok(Body::Ids(&shown)))
            }
            Request::Exists { path, watch } => {
                if path.contains('\0') {
                    return reply(Err(Refusal::BadArguments));
                }
                let result = reads.node(&path, perms::READ).map(|node| Body::Stat(node.stat()));
                // A node that is not there can be waited for.
                if watch && !matches!(result, Err(Refusal::NoAuth)) {
                    self.data_watches.add(&path, connection, Mode::Once);
                }
                reply(result)
            }
            Request::GetData { path, watch } => {
                let result = reads.data(&path);
                if watch && result.is_ok() {
                    self.data_watches.add(&path, connection, Mode::Once);
                }
                reply(result)
            }
            Request::GetChildren { path, watch, with_stat } => {
                let result = reads.children(&path, with_stat);
                if watch && result.is_ok() {
                    self.child_watches.add(&path, connection, Mode::Once);
                }
                reply(result)
            }
            Request::MultiRead(parts) => {
                let bytes_max = self.settings.multi_read_bytes_max;
                let Some(results) = reads.all(&parts, bytes_max) else {
                    warn!(
                        session = format_args!("0x{:x}", link.session),
                        parts = parts.len(),
                        bytes_max,
                        "refusing a multiRead (op 22) whose reply is too large"
                    );
                    return reply(Err(Refusal::MarshallingError));
                };
                reply(Ok(Body::MultiRead(results)))
            }
            Request::GetAllChildrenNumber { path } => {
                let result = reads.node(&path, perms::READ);
                // Apache's root stands among its nodes twice, and by its other name is below itself.
                let twice = usize::from(path.is_empty());
                let count = result.map(|_| self.tree.count_below(&path) + twice);
                reply(count.map(|count| Body::Int(i32::try_from(count).unwrap_or(i32::MAX))))
            }
            Request::GetEphemerals { prefix } => {
                // Java's `trim` decides whether all are asked for, and no more.
                let trimmed = prefix.trim_matches(|character| character <= ' ');
                let prefix = if matches!(trimmed, "" | "/") { "" } else { &*prefix };
                let paths = self.tree.ephemerals().get(&link.session).into_iter().flatten();
                let paths = paths.map(String::as_str).filter(|path| path.starts_with(prefix));
                reply(Ok(Body::Texts(paths.collect())))
            }
            Request::GetAcl { path } => match reads.acl(&path) {
                Ok((acl, node)) => reply(Ok(Body::Acl(&acl, node.stat()))),
                Err(refusal) => reply(Err(refusal)),
            },
            Request::AddWatch { path, mode } => {
                let mode = match mode {
                    0 => Mode::Persistent,
                    1 => Mode::Recursive,
                    _ => return reply(Err(Refusal::MarshallingError)),
                };
                match path {
                    Some(path) => {
                        self.data_watches.add(&path, connection, mode);
                        self.child_watches.add(&path, connection, mode);
                    }
                    None if mode == Mode::Recursive => {
                        return reply(Err(Refusal::MarshallingError));
                    }
                    None => {}
                }
                // Its body is an `ErrorResponse`.
                reply(Ok(Body::Int(0)))
            }
            Request::CheckWatches { path, kind } => {
                let Some((child, data)) = watch_tables(kind) else {
                    return reply(Err(Refusal::MarshallingError));
                };
                let found = child && self.child_watches.contains(&path, connection)
                    || data && self.data_watches.contains(&path, connection);
                reply(found.then_some(Body::Empty).ok_or(Refusal::NoWatcher))
            }
            Request::RemoveWatches { path, kind } => {
                let Some((child, data)) = watch_tables(kind) else {
                    return reply(Err(Refusal::MarshallingError));
                };
                let removed_child = child && self.child_watches.remove(&path, connection);
                let removed_data = data && self.data_watches.remove(&path, connection);
                let removed = removed_child || removed_data;
                reply(removed.then_some(Body::Empty).ok_or(Refusal::NoWatcher))
            }
            Request::SetWatches(watches) => {
                self.set_watches(connection, &watches);
                reply(Ok(Body::Empty))
            }
            // Writes do not come here.
            Request::Change(_) | Request::Multi(_) | Request::CloseSession | Request::Reconfig => {
                reply(Err(Refusal::MarshallingError))
            }
        }
    }

    /// A client is back with its watches: what it missed is sent, the rest is watched again.
    fn set_watches(&mut self, connection: ConnectionId, watches: &SetWatches) {
        let mut missed = Vec::new();
        for path in &watches.data {
            match self.tree.get(path) {
                None => missed.push((EventKind::Deleted, path)),
                Some(node) if node.stat.mzxid > watches.relative_zxid => {
                    missed.push((EventKind::DataChanged, path));
                }
                Some(_) => self.data_watches.add(path, connection, Mode::Once),
            }
        }
        for path in &watches.exist {
            match self.tree.get(path) {
                Some(_) => missed.push((EventKind::Created, path)),
                None => self.data_watches.add(path, connection, Mode::Once),
            }
        }
        for path in &watches.child {
            match self.tree.get(path) {
                None => missed.push((EventKind::Deleted, path)),
                Some(node) if node.stat.pzxid > watches.relative_zxid => {
                    missed.push((EventKind::ChildrenChanged, path));
                }
                Some(_) => self.child_watches.add(path, connection, Mode::Once),
            }
        }
        let lasting =
            [(&watches.persistent, Mode::Persistent), (&watches.recursive, Mode::Recursive)];
        for (paths, mode) in lasting {
            for path in paths {
                self.child_watches.add(path, connection, mode);
                self.data_watches.add(path, connection, mode);
            }
        }
        for (kind, path) in missed {
            self.send(connection, reply::notification(kind, path), None);
        }
    }
}

/// Reads of one client.
struct Reads<'a> {
    tree: &'a Tree,
    checks: Checks<'a>,
    skip_acl: bool,
}

impl<'a> Reads<'a> {
    fn node(&self, path: &str, wanted: i32) -> Result<&'a Node, Refusal> {
        let node = self.tree.get(path).ok_or(Refusal::NoNode)?;
        if !self.skip_acl {
            self.checks.check(&self.tree.acls.get(node.acl), wanted)?;
        }
        Ok(node)
    }

    fn data(&self, path: &str) -> Result<Body<'a>, Refusal> {
        let node = self.node(path, perms::READ)?;
        Ok(Body::Data(node.data.as_deref(), node.stat()))
    }

    fn children(&self, path: &str, with_stat: bool) -> Result<Body<'a>, Refusal> {
        let node = self.node(path, perms::READ)?;
        let names = node.children.iter().map(|name| &**name).collect();
        Ok(match with_stat {
            true => Body::TextsAndStat(names, node.stat()),
            false => Body::Texts(names),
        })
    }

    /// The parts of a `multiRead`; `None` where they are too much for one reply: a few bytes of a
    /// request name a whole node, and do so thousands of times.
    fn all(&self, parts: &[Read], bytes_max: usize) -> Option<Vec<Result<Body<'a>, Refusal>>> {
        let mut bytes = 0;
        let mut results = Vec::new();
        for part in parts {
            let result = match part {
                Read::Data(path) => self.data(path),
                Read::Children(path) => self.children(path, false),
            };
            bytes += reply::part_bytes(&result);
            if bytes > bytes_max {
                return None;
            }
            results.push(result);
        }
        Some(results)
    }

    /// Who may not administrate the node sees no hashes of passwords.
    fn acl(&self, path: &str) -> Result<(Vec<Acl>, &'a Node), Refusal> {
        let node = self.node(path, perms::READ | perms::ADMIN)?;
        let acl = self.tree.acls.get(node.acl);
        let shown = match self.node(path, perms::ADMIN) {
            Ok(_) => acl.to_vec(),
            Err(_) => auth::without_hashes(&acl),
        };
        Ok((shown, node))
    }
}

/// Which watches a `WatcherType` names: children's, data's.
fn watch_tables(kind: i32) -> Option<(bool, bool)> {
    match kind {
        1 => Some((true, false)),
        2 => Some((false, true)),
        3 => Some((true, true)),
        _ => None,
    }
}

/// An id as `whoami` shows it: of a digest the user alone.
fn who(id: &Id) -> Id {
    match id.scheme.as_str() {
        "digest" => Id::new("digest", id.id.split(':').next().unwrap_or_default()),
        _ => id.clone(),
    }
}
