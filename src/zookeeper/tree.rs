//! The tree of nodes: reads, and how a transaction changes it. Source: ZooKeeper's `DataTree`.
//!
//! Transactions come in two ways: from live requests, where they have been checked, and from the
//! log, behind a snapshot that was written while the tree changed. So applying one again must do
//! no harm, and one that no longer fits changes only what it must.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::code::{Refusal, op};
use crate::data::{Acl, Id, Kind, Stat, perms, split_path};
use crate::quota;
use crate::txn::{Txn, TxnHeader};

/// A node. Its path is its key in the tree; the root's is the empty string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// `None` is null, which clients can tell from empty.
    pub(crate) data: Option<Box<[u8]>>,
    pub(crate) acl: AclId,
    pub(crate) stat: StatPersisted,
    /// Names, not paths.
    pub(crate) children: BTreeSet<Box<str>>,
}

/// The part of a Stat that is stored; the rest is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StatPersisted {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) ephemeral_owner: i64,
    pub(crate) pzxid: i64,
}

impl Node {
    fn new(data: Option<Vec<u8>>, acl: AclId, stat: StatPersisted) -> Node {
        Node { data: data.map(Vec::into_boxed_slice), acl, stat, children: BTreeSet::new() }
    }

    /// What clients see. Kept is how many children were created; shown, as `DataNode.copyStat`
    /// does, how many were created or deleted.
    pub(crate) fn stat(&self) -> Stat {
        let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let child_count = count(self.children.len());
        Stat {
            czxid: self.stat.czxid,
            mzxid: self.stat.mzxid,
            ctime: self.stat.ctime,
            mtime: self.stat.mtime,
            version: self.stat.version,
            cversion: self.stat.cversion.wrapping_mul(2).wrapping_sub(child_count),
            aversion: self.stat.aversion,
            // What stands for containers and times to live is nobody's session.
            ephemeral_owner: match Kind::of(self.stat.ephemeral_owner, true) {
                Kind::Ephemeral => self.stat.ephemeral_owner,
                _ => 0,
            },
            data_length: self.data.as_ref().map_or(0, |data| count(data.len())),
            child_count,
            pzxid: self.stat.pzxid,
        }
    }
}

/// Names an ACL in the table: most nodes share a few. -1 is the open one and in no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AclId(pub(crate) i64);

/// ACLs by number, counted by the nodes that have them. Source: `ReferenceCountedACLCache`.
#[derive(Debug, Default)]
pub(crate) struct AclTable {
    by_id: HashMap<AclId, (Arc<[Acl]>, usize)>,
    by_acl: HashMap<Arc<[Acl]>, AclId>,
    last: i64,
    open: Arc<[Acl]>,
}

impl AclTable {
    const OPEN: AclId = AclId(-1);

    fn new() -> AclTable {
        AclTable { open: Acl::open().into(), ..AclTable::default() }
    }

    fn take(&mut self, acl: &[Acl]) -> AclId {
        if let Some(id) = self.by_acl.get(acl).copied() {
            self.hold(id);
            return id;
        }
        self.last += 1;
        let id = AclId(self.last);
        let acl: Arc<[Acl]> = acl.into();
        self.by_acl.insert(acl.clone(), id);
        self.by_id.insert(id, (acl, 1));
        id
    }

    fn hold(&mut self, id: AclId) {
        if let Some((_, count)) = self.by_id.get_mut(&id) {
            *count += 1;
        }
    }

    fn release(&mut self, id: AclId) {
        let Some((_, count)) = self.by_id.get_mut(&id) else { return };
        *count -= 1;
        if *count == 0 {
            let (acl, _) = self.by_id.remove(&id).expect("it was just found");
            self.by_acl.remove(&acl);
        }
    }

    /// The ACL of a node that is or was in the tree: its number is known then.
    pub(crate) fn get(&self, id: AclId) -> Arc<[Acl]> {
        self.by_id.get(&id).map_or(&self.open, |(acl, _)| acl).clone()
    }

    fn is_known(&self, id: AclId) -> bool {
        id == AclTable::OPEN || self.by_id.contains_key(&id)
    }

    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (AclId, &[Acl])> {
        self.by_id.iter().map(|(id, (acl, _))| (*id, &acl[..]))
    }
}

/// What happened to a node, for the watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
}

/// Something that watches may be waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) path: String,
    /// Who may hear of it: the ACL of the node.
    pub(crate) acl: Arc<[Acl]>,
}

/// What a transaction led to, for its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Created {
        op: i32,
        path: String,
        stat: Stat,
    },
    Stat(Stat),
    /// A check in a `multi` that held.
    Checked,
    Refused(i32),
    Multi(Vec<Outcome>),
}

/// All nodes, and what is known of them beside.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Boxed, or the free places of the table would cost as much as the nodes.
    nodes: HashMap<Box<str>, Box<Node>>,
    pub(crate) acls: AclTable,
    ephemerals: HashMap<i64, BTreeSet<String>>,
    containers: BTreeSet<String>,
    ttls: BTreeSet<String>,
    quotas: BTreeSet<String>,
    /// Lengths of paths and data, summed.
    data_size: usize,
    /// The last transaction in it.
    pub(crate) last_zxid: i64,
    /// Whether TTL nodes are enabled.
    extended_types: bool,
}

const RESERVED: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

impl Tree {
    /// A tree with the nodes that are always there.
    pub(crate) fn new(extended_types: bool) -> Tree {
        let mut tree = Tree::bare(extended_types);
        let config_acl =
            tree.acls.take(&[Acl { perms: perms::READ, id: Id::new("world", "anyone") }]);
        for path in ["", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"] {
            let acl = if path.ends_with("config") { config_acl } else { AclTable::OPEN };
            let mut node = Node::new(Some(Vec::new()), acl, StatPersisted::default());
            if path.ends_with("config") {
                // Apache sets the ACL with version -1.
                node.stat.aversion = -1;
            }
            tree.insert_loaded(path, node);
        }
        tree
    }

    /// Without a node, for a snapshot to fill.
    pub(crate) fn bare(extended_types: bool) -> Tree {
        Tree {
            nodes: HashMap::new(),
            acls: AclTable::new(),
            ephemerals: HashMap::new(),
            containers: BTreeSet::new(),
            ttls: BTreeSet::new(),
            quotas: BTreeSet::new(),
            data_size: 0,
            last_zxid: 0,
            extended_types,
        }
    }

    /// Paths that no client may create or delete.
    pub(crate) fn is_reserved(path: &str) -> bool {
        RESERVED.contains(&path)
    }

    /// The node of a path; the root has two.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(if path == "/" { "" } else { path }).map(|node| &**node)
    }

    fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(if path == "/" { "" } else { path }).map(|node| &mut **node)
    }

    /// The kind that a node's owner stands for.
    pub(crate) fn kind(&self, owner: i64) -> Kind {
        Kind::of(owner, self.extended_types)
    }

    pub(crate) fn extended_types(&self) -> bool {
        self.extended_types
    }

    /// Apache counts the root under both of its names.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len() + 1
    }

    pub(crate) fn data_size(&self) -> usize {
        self.data_size
    }

    pub(crate) fn ephemerals(&self) -> &HashMap<i64, BTreeSet<String>> {
        &self.ephemerals
    }

    /// The paths that have a quota.
    pub(crate) fn quotas(&self) -> &BTreeSet<String> {
        &self.quotas
    }

    /// How many nodes are below a path.
    pub(crate) fn count_below(&self, path: &str) -> usize {
        let mut count = 0;
        let mut stack = vec![if path == "/" { String::new() } else { path.to_owned() }];
        while let Some(path) = stack.pop() {
            let Some(node) = self.nodes.get(path.as_str()) else { continue };
            count += node.children.len();
            stack.extend(node.children.iter().map(|name| format!("{path}/{name}")));
        }
        count
    }

    /// All nodes with their paths, in no order.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (&**path, &**node))
    }

    /// Container and TTL nodes that are due to go. Source: `ContainerManager.getCandidates`.
    pub(crate) fn overdue(&self, now_ms: i64) -> Vec<String> {
        let childless =
            |path: &&String| self.nodes.get(path.as_str()).filter(|node| node.children.is_empty());
        let containers = self.containers.iter().filter(|path| {
            // A new one that never had a child is kept, or it could go before its first.
            childless(path).is_some_and(|node| node.stat.cversion > 0)
        });
        let ttls = self.ttls.iter().filter(|path| {
            childless(path).is_some_and(|node| match self.kind(node.stat.ephemeral_owner) {
                Kind::Ttl(ttl) => ttl != 0 && now_ms - node.stat.mtime > ttl,
                _ => false,
            })
        });
        containers.chain(ttls).cloned().collect()
    }

    /// Puts a node of a snapshot in; false when its parent is not there.
    pub(crate) fn insert_loaded(&mut self, path: &str, node: Node) -> bool {
        if let Some((parent, name)) = split_path(path) {
            let Some(parent) = self.nodes.get_mut(parent) else { return false };
            parent.children.insert(name.into());
        }
        if !self.acls.is_known(node.acl) {
            return false;
        }
        self.data_size += size_of(path, &node);
        self.index(path, node.stat.ephemeral_owner);
        if let Some(limited) = quota::path_of_limit(path) {
            self.quotas.insert(limited.to_owned());
        }
        self.nodes.insert(path.into(), Box::new(node));
        true
    }

    /// Takes an ACL of a snapshot; its nodes follow and are counted with [`Tree::hold_acl`].
    pub(crate) fn insert_loaded_acl(&mut self, id: AclId, acl: Vec<Acl>) {
        self.acls.last = self.acls.last.max(id.0);
        let acl: Arc<[Acl]> = acl.into();
        self.acls.by_acl.insert(acl.clone(), id);
        self.acls.by_id.insert(id, (acl, 0));
    }

    /// Counts a loaded node's ACL.
    pub(crate) fn hold_acl(&mut self, id: AclId) {
        self.acls.hold(id);
    }

    /// Forgets the loaded ACLs that no node has, and puts the nodes in that old snapshots lack.
    pub(crate) fn finish_loading(&mut self) {
        self.acls.by_id.retain(|_, (_, count)| *count > 0);
        let known = &self.acls.by_id;
        self.acls.by_acl.retain(|_, id| known.contains_key(id));
        for path in ["", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
            if !self.nodes.contains_key(path) {
                let node = Node::new(Some(Vec::new()), AclTable::OPEN, StatPersisted::default());
                self.insert_loaded(path, node);
            }
        }
    }

    fn index(&mut self, path: &str, owner: i64) {
        match self.kind(owner) {
            Kind::Persistent => false,
            Kind::Ephemeral => self.ephemerals.entry(owner).or_default().insert(path.to_owned()),
            Kind::Container => self.containers.insert(path.to_owned()),
            Kind::Ttl(_) => self.ttls.insert(path.to_owned()),
        };
    }

    fn unindex(&mut self, path: &str, owner: i64) {
        match self.kind(owner) {
            Kind::Persistent => {}
            Kind::Ephemeral => {
                if let Some(paths) = self.ephemerals.get_mut(&owner) {
                    paths.remove(path);
                    if paths.is_empty() {
                        self.ephemerals.remove(&owner);
                    }
                }
            }
            Kind::Container => {
                self.containers.remove(path);
            }
            Kind::Ttl(_) => {
                self.ttls.remove(path);
            }
        }
    }

    /// Carries a transaction out. Sessions are not its business, beside their ephemeral nodes.
    pub(crate) fn apply(
        &mut self,
        header: &TxnHeader,
        txn: Txn,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let outcome = match txn {
            Txn::Multi(txns) => self.apply_multi(header, txns, events),
            txn => self.apply_one(header, txn, events),
        };
        self.last_zxid = self.last_zxid.max(header.zxid);
        outcome
    }

    /// One failed part fails all: the ones before it answer "ok", the ones behind it that they
    /// were not reached.
    fn apply_multi(
        &mut self,
        header: &TxnHeader,
        txns: Vec<Txn>,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let failed = txns.iter().any(|txn| matches!(txn, Txn::Error { .. }));
        let mut behind = false;
        let outcomes = txns.into_iter().map(|txn| match txn {
            Txn::Error { code } => {
                behind = true;
                Outcome::Refused(code)
            }
            _ if failed && behind => Outcome::Refused(Refusal::RuntimeInconsistency.code()),
            _ if failed => Outcome::Refused(0),
            Txn::Multi(_) => Outcome::Refused(Refusal::MarshallingError.code()),
            txn => self.apply_one(header, txn, events),
        });
        Outcome::Multi(outcomes.collect())
    }

    fn apply_one(&mut self, header: &TxnHeader, txn: Txn, events: &mut Vec<Event>) -> Outcome {
        let result = match txn {
            Txn::CreateSession { .. } | Txn::Multi(_) => Ok(Outcome::Done),
            Txn::CloseSession { paths } => {
                self.close_session(header, paths.unwrap_or_default(), events);
                Ok(Outcome::Done)
            }
            Txn::Create { op, path, data, acl, ephemeral, parent_cversion } => {
                let kind = match (op, ephemeral) {
                    (op::CREATE_CONTAINER, _) => Kind::Container,
                    (_, true) => Kind::Ephemeral,
                    (_, false) => Kind::Persistent,
                };
                self.create(header, op, New { path, data, acl, kind, parent_cversion }, events)
            }
            Txn::CreateTtl { path, data, acl, parent_cversion, ttl_ms } => {
                let new = New { path, data, acl, kind: Kind::Ttl(ttl_ms), parent_cversion };
                self.create(header, op::CREATE_TTL, new, events)
            }
            Txn::Delete { path, .. } => {
                self.delete(header.zxid, &path, events).map(|()| Outcome::Done)
            }
            Txn::SetData { path, data, version } => {
                self.set_data(header, path, data, version, events).map(Outcome::Stat)
            }
            Txn::SetAcl { path, acl, version } => {
                self.set_acl(&path, &acl, version).map(Outcome::Stat)
            }
            Txn::Check { .. } => Ok(Outcome::Checked),
            Txn::Error { code } => Ok(Outcome::Refused(code)),
        };
        result.unwrap_or_else(|refusal| Outcome::Refused(refusal.code()))
    }

    fn create(
        &mut self,
        header: &TxnHeader,
        op: i32,
        new: New,
        events: &mut Vec<Event>,
    ) -> Result<Outcome, Refusal> {
        let (parent_path, name) = split_path(&new.path).ok_or(Refusal::BadArguments)?;
        let exists = self.nodes.contains_key(new.path.as_str());
        let parent = self.nodes.get_mut(parent_path).ok_or(Refusal::NoNode)?;
        // In a replay behind a fuzzy snapshot the parent may be ahead already.
        let cversion = match new.parent_cversion {
            -1 => parent.stat.cversion.wrapping_add(1),
            cversion => cversion,
        };
        if cversion > parent.stat.cversion {
            parent.stat.cversion = cversion;
            parent.stat.pzxid = header.zxid;
        }
        let parent_acl = parent.acl;
        if exists {
            // Only in such a replay; the snapshot may have left the ACL for us to set.
            self.replace_acl(&new.path, &new.acl);
            return Err(Refusal::NodeExists);
        }
        parent.children.insert(name.into());
        let stat = StatPersisted {
            czxid: header.zxid,
            mzxid: header.zxid,
            pzxid: header.zxid,
            ctime: header.time,
            mtime: header.time,
            ephemeral_owner: new.kind.owner(header.client_id),
            ..StatPersisted::default()
        };
        let acl_id = self.acls.take(&new.acl);
        let acl = self.acls.get(acl_id);
        let node = Node::new(new.data, acl_id, stat);
        let answer = node.stat();
        let bytes = node.data.as_ref().map_or(0, |data| data.len());
        self.data_size += size_of(&new.path, &node);
        self.nodes.insert(new.path.as_str().into(), Box::new(node));
        self.index(&new.path, stat.ephemeral_owner);
        quota::on_create(self, &new.path, bytes);
        events.push(Event { kind: EventKind::Created, path: new.path.clone(), acl });
        events.push(self.children_changed(parent_path, parent_acl));
        Ok(Outcome::Created { op, path: new.path, stat: answer })
    }

    fn children_changed(&self, parent: &str, acl: AclId) -> Event {
        let path = if parent.is_empty() { "/" } else { parent };
        let acl = self.acls.get(acl);
        Event { kind: EventKind::ChildrenChanged, path: path.to_owned(), acl }
    }

    fn delete(&mut self, zxid: i64, path: &str, events: &mut Vec<Event>) -> Result<(), Refusal> {
        let (parent_path, name) = split_path(path).ok_or(Refusal::BadArguments)?;
        // The parent learns of it even when a fuzzy snapshot lacks the node already.
        let parent = self.nodes.get_mut(parent_path).ok_or(Refusal::NoNode)?;
        parent.children.remove(name);
        parent.stat.pzxid = parent.stat.pzxid.max(zxid);
        let parent_acl = parent.acl;
        let node = self.nodes.remove(path).ok_or(Refusal::NoNode)?;
        let acl = self.acls.get(node.acl);
        self.acls.release(node.acl);
        self.data_size -= size_of(path, &node);
        self.unindex(path, node.stat.ephemeral_owner);
        quota::on_delete(self, path, node.data.as_ref().map_or(0, |data| data.len()));
        events.push(Event { kind: EventKind::Deleted, path: path.to_owned(), acl });
        events.push(self.children_changed(parent_path, parent_acl));
        Ok(())
    }

    fn set_data(
        &mut self,
        header: &TxnHeader,
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
        events: &mut Vec<Event>,
    ) -> Result<Stat, Refusal> {
        let node = self.get_mut(&path).ok_or(Refusal::NoNode)?;
        let before = node.data.as_ref().map_or(0, |data| data.len());
        node.data = data.map(Vec::into_boxed_slice);
        let after = node.data.as_ref().map_or(0, |data| data.len());
        node.stat.mtime = header.time;
        node.stat.mzxid = header.zxid;
        node.stat.version = version;
        let (stat, acl) = (node.stat(), node.acl);
        self.data_size = self.data_size - before + after;
        quota::on_set(self, &path, before, after);
        let acl = self.acls.get(acl);
        events.push(Event { kind: EventKind::DataChanged, path, acl });
        Ok(stat)
    }

    fn set_acl(&mut self, path: &str, acl: &[Acl], version: i32) -> Result<Stat, Refusal> {
        let node = self.replace_acl(path, acl).ok_or(Refusal::NoNode)?;
        node.stat.aversion = version;
        Ok(node.stat())
    }

    fn replace_acl(&mut self, path: &str, acl: &[Acl]) -> Option<&mut Node> {
        let before = self.get(path)?.acl;
        let after = self.acls.take(acl);
        self.acls.release(before);
        let node = self.get_mut(path)?;
        node.acl = after;
        Some(node)
    }

    /// Deletes the nodes that the transaction names, then what else the session still owns.
    fn close_session(&mut self, header: &TxnHeader, paths: Vec<String>, events: &mut Vec<Event>) {
        for path in &paths {
            self.delete_ephemeral(header.zxid, path, events);
        }
        for path in self.ephemerals.remove(&header.client_id).unwrap_or_default() {
            self.delete_ephemeral(header.zxid, &path, events);
        }
    }

    fn delete_ephemeral(&mut self, zxid: i64, path: &str, events: &mut Vec<Event>) {
        // Refused only in a replay, where the snapshot lacked the node already.
        if let Err(refusal) = self.delete(zxid, path, events) {
            tracing::debug!(path, %refusal, "ephemeral node is gone already");
        }
    }

    /// The data of a node of the quota system is changed beside the transactions, as Apache does.
    pub(crate) fn replace_data(&mut self, path: &str, data: Vec<u8>) {
        if let Some(node) = self.nodes.get_mut(path) {
            let before = node.data.as_ref().map_or(0, |data| data.len());
            self.data_size = self.data_size - before + data.len();
            node.data = Some(data.into_boxed_slice());
        }
    }

    pub(crate) fn add_quota(&mut self, path: &str) {
        self.quotas.insert(path.to_owned());
    }

    pub(crate) fn remove_quota(&mut self, path: &str) {
        self.quotas.remove(path);
    }
}

/// A node to be created.
struct New {
    path: String,
    data: Option<Vec<u8>>,
    acl: Vec<Acl>,
    kind: Kind,
    parent_cversion: i32,
}

fn size_of(path: &str, node: &Node) -> usize {
    path.len() + node.data.as_ref().map_or(0, |data| data.len())
}
