//! Turns what a client asks into a transaction, or refuses it. Source: ZooKeeper's
//! `PrepRequestProcessor`.
//!
//! Nothing changes here. The parts of a `multi` see those before them through an overlay.

use std::collections::HashMap;
use std::sync::Arc;

use crate::auth::{self, Checks, Schemes};
use crate::code::{Refusal, op};
use crate::data::{Acl, Id, Kind, check_path, perms, split_path};
use crate::quota;
use crate::request::Change;
use crate::tree::Tree;
use crate::txn::Txn;

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) session: i64,
    pub(crate) ids: &'a [Id],
    /// Whether hard quotas are enforced.
    pub(crate) enforce_quota: bool,
    pub(crate) schemes: Schemes,
}

/// Prepares one change.
pub(crate) fn change(tree: &Tree, asker: Asker<'_>, change: Change) -> Result<Txn, Refusal> {
    Preparation::new(tree, asker).change(change)
}

/// Prepares a `multi`: where one part is refused, it and those behind it become errors.
pub(crate) fn multi(tree: &Tree, asker: Asker<'_>, changes: Vec<Change>) -> Txn {
    let mut preparation = Preparation::new(tree, asker);
    let mut refused = false;
    let txns = changes.into_iter().map(|change| {
        if refused {
            return Txn::Error { code: Refusal::RuntimeInconsistency.code() };
        }
        preparation.change(change).unwrap_or_else(|refusal| {
            refused = true;
            Txn::Error { code: refusal.code() }
        })
    });
    Txn::Multi(txns.collect())
}

/// Prepares the clean-up of a container or TTL node, which no client asks for.
pub(crate) fn delete_overdue(tree: &Tree, path: &str) -> Result<Txn, Refusal> {
    let node = tree.get(path).ok_or(Refusal::NoNode)?;
    if !node.children.is_empty() {
        return Err(Refusal::NotEmpty);
    }
    Ok(Txn::Delete { op: op::DELETE_CONTAINER, path: path.to_owned() })
}

/// What the checks need to know of a node.
#[derive(Debug, Clone)]
struct View {
    version: i32,
    cversion: i32,
    aversion: i32,
    ephemeral_owner: i64,
    child_count: usize,
    data_length: usize,
    acl: Arc<[Acl]>,
}

struct Preparation<'a> {
    tree: &'a Tree,
    asker: Asker<'a>,
    checks: Checks<'a>,
    /// Nodes as the parts so far leave them; `None` is deleted.
    overlay: HashMap<String, Option<View>>,
}

impl<'a> Preparation<'a> {
    fn new(tree: &'a Tree, asker: Asker<'a>) -> Preparation<'a> {
        Preparation { tree, asker, checks: Checks::new(asker.ids), overlay: HashMap::new() }
    }

    fn find(&self, path: &str) -> Option<View> {
        // The root has two names.
        let path = if path == "/" { "" } else { path };
        if let Some(view) = self.overlay.get(path) {
            return view.clone();
        }
        let node = self.tree.get(path)?;
        Some(View {
            version: node.stat.version,
            cversion: node.stat.cversion,
            aversion: node.stat.aversion,
            ephemeral_owner: node.stat.ephemeral_owner,
            child_count: node.children.len(),
            data_length: node.data.as_ref().map_or(0, |data| data.len()),
            acl: self.tree.acls.get(node.acl),
        })
    }

    fn get(&self, path: &str) -> Result<View, Refusal> {
        self.find(path).ok_or(Refusal::NoNode)
    }

    fn put(&mut self, path: &str, view: Option<View>) {
        let path = if path == "/" { "" } else { path };
        self.overlay.insert(path.to_owned(), view);
    }

    fn permit(&self, view: &View, wanted: i32) -> Result<(), Refusal> {
        self.checks.check(&view.acl, wanted)
    }

    fn change(&mut self, change: Change) -> Result<Txn, Refusal> {
        match change {
            Change::Create { op, path, data, acl, flags, ttl_ms } => {
                self.create(Create { op, path, data, acl, flags, ttl_ms })
            }
            Change::Delete { path, version } => self.delete(path, version),
            Change::SetData { path, data, version } => self.set_data(path, data, version),
            Change::SetAcl { path, acl, version } => self.set_acl(path, &acl, version),
            Change::Check { path, version } => {
                check_path(&path).map_err(|_| Refusal::BadArguments)?;
                let node = self.get(&path)?;
                self.permit(&node, perms::READ)?;
                let version = next_version(node.version, version)?;
                Ok(Txn::Check { path, version })
            }
        }
    }

    fn create(&mut self, create: Create) -> Result<Txn, Refusal> {
        let mode = Mode::of(&create, self.tree.extended_types())?;
        let Create { op, path, data, acl, ttl_ms, .. } = create;
        let mut path = path.ok_or(Refusal::MarshallingError)?;
        let (parent_path, _) = split_path(&path).ok_or(Refusal::BadArguments)?;
        if path.contains('\0') {
            return Err(Refusal::BadArguments);
        }
        let parent_path = parent_path.to_owned();
        let acl = auth::resolve(&acl, self.asker.ids, self.asker.schemes)?;
        let mut parent = self.get(&parent_path)?;
        self.permit(&parent, perms::CREATE)?;
        if mode.sequential {
            path.push_str(&format!("{:010}", parent.cversion));
        }
        check_path(&path).map_err(|_| Refusal::BadArguments)?;
        if self.find(&path).is_some() {
            return Err(Refusal::NodeExists);
        }
        if self.tree.kind(parent.ephemeral_owner) == Kind::Ephemeral {
            return Err(Refusal::NoChildrenForEphemerals);
        }
        let length = data.as_ref().map_or(0, Vec::len);
        self.check_quota(&path, signed(length), 1)?;
        let parent_cversion = parent.cversion.wrapping_add(1);
        parent.cversion = parent_cversion;
        parent.child_count += 1;
        self.put(&parent_path, Some(parent));
        let view = View {
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: mode.kind.owner(self.asker.session),
            child_count: 0,
            data_length: length,
            acl: acl.clone().into(),
        };
        self.put(&path, Some(view));
        Ok(match op {
            op::CREATE_TTL => Txn::CreateTtl { path, data, acl, parent_cversion, ttl_ms },
            op => {
                let ephemeral = mode.kind == Kind::Ephemeral;
                Txn::Create { op, path, data, acl, ephemeral, parent_cversion }
            }
        })
    }

    fn delete(&mut self, path: String, version: i32) -> Result<Txn, Refusal> {
        let (parent_path, _) = split_path(&path).ok_or(Refusal::BadArguments)?;
        if path.contains('\0') || Tree::is_reserved(&path) {
            return Err(Refusal::BadArguments);
        }
        let parent_path = parent_path.to_owned();
        let mut parent = self.get(&parent_path)?;
        self.permit(&parent, perms::DELETE)?;
        let node = self.get(&path)?;
        next_version(node.version, version)?;
        if node.child_count > 0 {
            return Err(Refusal::NotEmpty);
        }
        parent.child_count -= 1;
        self.put(&parent_path, Some(parent));
        self.put(&path, None);
        Ok(Txn::Delete { op: op::DELETE, path })
    }

    fn set_data(
        &mut self,
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    ) -> Result<Txn, Refusal> {
        check_path(&path).map_err(|_| Refusal::BadArguments)?;
        let mut node = self.get(&path)?;
        self.permit(&node, perms::WRITE)?;
        let length = data.as_ref().map_or(0, Vec::len);
        self.check_quota(&path, signed(length) - signed(node.data_length), 0)?;
        let version = next_version(node.version, version)?;
        node.version = version;
        node.data_length = length;
        self.put(&path, Some(node));
        Ok(Txn::SetData { path, data, version })
    }

    fn set_acl(&mut self, path: String, acl: &[Acl], version: i32) -> Result<Txn, Refusal> {
        check_path(&path).map_err(|_| Refusal::BadArguments)?;
        let acl = auth::resolve(acl, self.asker.ids, self.asker.schemes)?;
        let mut node = self.get(&path)?;
        self.permit(&node, perms::ADMIN)?;
        let version = next_version(node.aversion, version)?;
        node.aversion = version;
        node.acl = acl.clone().into();
        self.put(&path, Some(node));
        Ok(Txn::SetAcl { path, acl, version })
    }

    fn check_quota(&self, path: &str, bytes: i64, nodes: i64) -> Result<(), Refusal> {
        match self.asker.enforce_quota {
            true => quota::check(self.tree, path, bytes, nodes),
            false => Ok(()),
        }
    }
}

struct Create {
    op: i32,
    path: Option<String>,
    data: Option<Vec<u8>>,
    acl: Vec<Acl>,
    flags: i32,
    ttl_ms: i64,
}

/// What the flags of a create ask for. Source: ZooKeeper's `CreateMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mode {
    kind: Kind,
    sequential: bool,
}

impl Mode {
    fn of(create: &Create, extended_types: bool) -> Result<Mode, Refusal> {
        let (kind, sequential) = match create.flags {
            0 => (Kind::Persistent, false),
            1 => (Kind::Ephemeral, false),
            2 => (Kind::Persistent, true),
            3 => (Kind::Ephemeral, true),
            4 => (Kind::Container, false),
            5 => (Kind::Ttl(create.ttl_ms), false),
            6 => (Kind::Ttl(create.ttl_ms), true),
            _ => return Err(Refusal::BadArguments),
        };
        match kind {
            Kind::Ttl(_) if !extended_types => return Err(Refusal::Unimplemented),
            Kind::Ttl(ttl) if ttl <= 0 || ttl > Kind::TTL_MAX => {
                return Err(Refusal::BadArguments);
            }
            Kind::Ttl(_) => {}
            _ if create.ttl_ms >= 0 => return Err(Refusal::BadArguments),
            _ => {}
        }
        // Apache takes the kind from the operation here and from the flags there; we want them
        // to agree, or log and tree would not.
        let agrees = match create.op {
            op::CREATE_CONTAINER => kind == Kind::Container,
            op::CREATE_TTL => matches!(kind, Kind::Ttl(_)),
            _ => matches!(kind, Kind::Persistent | Kind::Ephemeral),
        };
        if agrees { Ok(Mode { kind, sequential }) } else { Err(Refusal::BadArguments) }
    }
}

/// The version after a write that expects `expected`; -1 expects any.
fn next_version(current: i32, expected: i32) -> Result<i32, Refusal> {
    if expected != -1 && expected != current {
        return Err(Refusal::BadVersion);
    }
    Ok(current.wrapping_add(1))
}

fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
