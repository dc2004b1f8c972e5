//! The tree of znodes behind the fake: versions, sequences, ephemeral nodes, sessions and one-shot watches.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use common::{clock, ids::Timestamp};

use crate::{
    changes::{Dirty, Watched},
    paths,
    store::{CreateKind, Expected, Node, Op, OpResult, SessionId, Stat, ZkError, ZkVersion},
};

/// Which client of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientId(pub(crate) usize);

#[derive(Clone)]
struct TreeNode {
    data: Vec<u8>,
    stat: Stat,
    /// Children ever created: the counter of sequential names.
    creations: i32,
}

/// A watch that fired, and whose it was.
pub(crate) type Fired = Vec<(ClientId, Dirty)>;

/// What a write did to a path; each fires the watches it concerns.
enum Event {
    Created(String),
    Changed(String),
    Deleted(String),
}

enum Undo {
    /// Puts a node back as it was, or away.
    Node(String, Option<Box<TreeNode>>),
    /// Puts a name back into, or out of, its parent's list.
    Child { parent: String, name: String, present: bool },
}

/// All state of the fake, owned by one lock.
pub(crate) struct Tree {
    zxid: i64,
    sessions: BTreeSet<SessionId>,
    next_session: i64,
    nodes: BTreeMap<String, TreeNode>,
    children: HashMap<String, BTreeSet<String>>,
    watches: HashMap<Dirty, BTreeSet<ClientId>>,
    clock_ahead: Duration,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let mut tree = Tree {
            zxid: 0,
            sessions: BTreeSet::new(),
            next_session: 0x1_0000_0000,
            nodes: BTreeMap::new(),
            children: HashMap::new(),
            watches: HashMap::new(),
            clock_ahead: Duration::ZERO,
        };
        let root = tree.new_node(Vec::new(), None);
        tree.nodes.insert("/".to_owned(), root);
        tree
    }

    pub(crate) fn advance_clock(&mut self, by: Duration) {
        self.clock_ahead += by;
    }

    pub(crate) fn open_session(&mut self) -> SessionId {
        self.next_session += 1;
        let session = SessionId(self.next_session);
        self.sessions.insert(session);
        session
    }

    pub(crate) fn is_alive(&self, session: SessionId) -> bool {
        self.sessions.contains(&session)
    }

    /// Ends a session and deletes what it owns; gives the watches that fired.
    pub(crate) fn end_session(&mut self, session: SessionId) -> Fired {
        if !self.sessions.remove(&session) {
            return Vec::new();
        }
        self.zxid += 1;
        let owned: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.stat.ephemeral_owner == Some(session))
            .map(|(path, _)| path.clone())
            .collect();
        let mut fired = Vec::new();
        for path in owned {
            let (mut undo, mut events) = (Vec::new(), Vec::new());
            if self.delete(&path, Expected::Any, &mut undo, &mut events).is_ok() {
                fired.extend(self.fire(events));
            }
        }
        fired
    }

    pub(crate) fn forget_watches(&mut self, client: ClientId) -> Vec<Dirty> {
        let mut lost = Vec::new();
        self.watches.retain(|dirty, clients| {
            if clients.remove(&client) {
                lost.push(dirty.clone());
            }
            !clients.is_empty()
        });
        lost
    }

    pub(crate) fn watch(&mut self, client: ClientId, path: &str, watched: Watched) {
        let dirty = Dirty { path: path.to_owned(), watched };
        self.watches.entry(dirty).or_default().insert(client);
    }

    pub(crate) fn get(&self, path: &str) -> Option<Node> {
        let node = self.nodes.get(path)?;
        Some(Node { data: node.data.clone(), stat: self.stat(path, node) })
    }

    pub(crate) fn children(&self, path: &str) -> Option<Vec<String>> {
        self.nodes.get(path)?;
        let names = self.children.get(path);
        Some(names.map(|names| names.iter().cloned().collect()).unwrap_or_default())
    }

    /// Every path with its node, in order.
    pub(crate) fn dump(&self) -> Vec<(String, Node)> {
        let node = |(path, node): (&String, &TreeNode)| {
            (path.clone(), Node { data: node.data.clone(), stat: self.stat(path, node) })
        };
        self.nodes.iter().map(node).collect()
    }

    /// Applies all steps in one transaction, or none and tells which failed.
    pub(crate) fn apply(
        &mut self,
        ops: &[Op],
        session: SessionId,
    ) -> Result<(Vec<OpResult>, Fired), (usize, ZkError)> {
        self.zxid += 1;
        let (mut undo, mut events, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for (index, op) in ops.iter().enumerate() {
            match self.step(op, session, &mut undo, &mut events) {
                Ok(result) => results.push(result),
                Err(error) => {
                    self.roll_back(undo);
                    return Err((index, error));
                }
            }
        }
        Ok((results, self.fire(events)))
    }

    fn step(
        &mut self,
        op: &Op,
        session: SessionId,
        undo: &mut Vec<Undo>,
        events: &mut Vec<Event>,
    ) -> Result<OpResult, ZkError> {
        match op {
            Op::Check { path, version } => {
                self.expect(path, Expected::Version(*version))?;
                Ok(OpResult::Checked)
            }
            Op::Create { path, data, kind } => {
                let path = self.create(path, data, *kind, session, undo)?;
                events.push(Event::Created(path.clone()));
                Ok(OpResult::Created(path))
            }
            Op::Set { path, data, expected } => {
                let zxid = self.zxid;
                let now = self.now();
                let node = self.expect(path, *expected)?;
                undo.push(Undo::Node(path.clone(), Some(Box::new(node.clone()))));
                node.data.clone_from(data);
                node.stat.mzxid = zxid;
                node.stat.mtime = now;
                node.stat.version = ZkVersion(node.stat.version.0.wrapping_add(1));
                events.push(Event::Changed(path.clone()));
                let node = node.clone();
                Ok(OpResult::Set(self.stat(path, &node)))
            }
            Op::Delete { path, expected } => {
                self.delete(path, *expected, undo, events)?;
                Ok(OpResult::Deleted)
            }
        }
    }

    fn create(
        &mut self,
        path: &str,
        data: &[u8],
        kind: CreateKind,
        session: SessionId,
        undo: &mut Vec<Undo>,
    ) -> Result<String, ZkError> {
        let sequential =
            matches!(kind, CreateKind::PersistentSequential | CreateKind::EphemeralSequential);
        let ephemeral = matches!(kind, CreateKind::Ephemeral | CreateKind::EphemeralSequential);
        paths::check(path, sequential)?;
        let parent_path = paths::parent(path).unwrap_or("/").to_owned();
        let zxid = self.zxid;
        let Some(parent) = self.nodes.get_mut(&parent_path) else {
            return Err(ZkError::NoNode { path: path.to_owned() });
        };
        let mut path = path.to_owned();
        if sequential {
            path.push_str(&format!("{:010}", parent.creations));
        }
        if parent.stat.ephemeral_owner.is_some() {
            return Err(ZkError::NoChildrenForEphemerals { path });
        }
        if path == "/" || self.nodes.contains_key(&path) {
            return Err(ZkError::NodeExists { path });
        }
        let parent = self.nodes.get_mut(&parent_path).expect("looked up above");
        undo.push(Undo::Node(parent_path.clone(), Some(Box::new(parent.clone()))));
        parent.creations += 1;
        parent.stat.pzxid = zxid;
        let node = self.new_node(data.to_vec(), ephemeral.then_some(session));
        undo.push(Undo::Node(path.clone(), None));
        self.nodes.insert(path.clone(), node);
        let name = name(&path);
        undo.push(Undo::Child { parent: parent_path.clone(), name: name.clone(), present: false });
        self.children.entry(parent_path).or_default().insert(name);
        Ok(path)
    }

    fn delete(
        &mut self,
        path: &str,
        expected: Expected,
        undo: &mut Vec<Undo>,
        events: &mut Vec<Event>,
    ) -> Result<(), ZkError> {
        let node = self.expect(path, expected)?.clone();
        if path == "/" || self.children.get(path).is_some_and(|names| !names.is_empty()) {
            return Err(ZkError::NotEmpty { path: path.to_owned() });
        }
        let zxid = self.zxid;
        undo.push(Undo::Node(path.to_owned(), Some(Box::new(node))));
        self.nodes.remove(path);
        let parent_path = paths::parent(path).unwrap_or("/").to_owned();
        if let Some(parent) = self.nodes.get_mut(&parent_path) {
            undo.push(Undo::Node(parent_path.clone(), Some(Box::new(parent.clone()))));
            parent.stat.pzxid = zxid;
        }
        let name = name(path);
        undo.push(Undo::Child { parent: parent_path.clone(), name: name.clone(), present: true });
        if let Some(names) = self.children.get_mut(&parent_path) {
            names.remove(&name);
        }
        events.push(Event::Deleted(path.to_owned()));
        Ok(())
    }

    fn expect(&mut self, path: &str, expected: Expected) -> Result<&mut TreeNode, ZkError> {
        paths::check(path, false)?;
        let Some(node) = self.nodes.get_mut(path) else {
            return Err(ZkError::NoNode { path: path.to_owned() });
        };
        match expected {
            Expected::Version(version) if version != node.stat.version => {
                Err(ZkError::BadVersion { path: path.to_owned() })
            }
            _ => Ok(node),
        }
    }

    fn roll_back(&mut self, undo: Vec<Undo>) {
        for step in undo.into_iter().rev() {
            match step {
                Undo::Node(path, Some(node)) => {
                    self.nodes.insert(path, *node);
                }
                Undo::Node(path, None) => {
                    self.nodes.remove(&path);
                }
                Undo::Child { parent, name, present: true } => {
                    self.children.entry(parent).or_default().insert(name);
                }
                Undo::Child { parent, name, present: false } => {
                    if let Some(names) = self.children.get_mut(&parent) {
                        names.remove(&name);
                    }
                }
            }
        }
    }

    fn fire(&mut self, events: Vec<Event>) -> Fired {
        let mut fired = Vec::new();
        let mut take = |path: &str, watched| {
            let dirty = Dirty { path: path.to_owned(), watched };
            if let Some(clients) = self.watches.remove(&dirty) {
                fired.extend(clients.into_iter().map(|client| (client, dirty.clone())));
            }
        };
        for event in events {
            match event {
                Event::Changed(path) => take(&path, Watched::Node),
                Event::Created(path) => {
                    take(&path, Watched::Node);
                    take(paths::parent(&path).unwrap_or("/"), Watched::Children);
                }
                Event::Deleted(path) => {
                    take(&path, Watched::Node);
                    take(&path, Watched::Children);
                    take(paths::parent(&path).unwrap_or("/"), Watched::Children);
                }
            }
        }
        fired
    }

    fn new_node(&self, data: Vec<u8>, ephemeral_owner: Option<SessionId>) -> TreeNode {
        let now = self.now();
        let stat = Stat {
            czxid: self.zxid,
            mzxid: self.zxid,
            pzxid: self.zxid,
            ctime: now,
            mtime: now,
            version: ZkVersion(0),
            cversion: 0,
            aversion: 0,
            ephemeral_owner,
            data_length: 0,
            num_children: 0,
        };
        TreeNode { data, stat, creations: 0 }
    }

    /// ZooKeeper counts creations and shows changes: a deletion is a creation that is no child any more.
    fn stat(&self, path: &str, node: &TreeNode) -> Stat {
        let count = self.children.get(path).map_or(0, BTreeSet::len);
        let num_children = i32::try_from(count).unwrap_or(i32::MAX);
        Stat {
            cversion: node.creations.wrapping_mul(2).wrapping_sub(num_children),
            data_length: i32::try_from(node.data.len()).unwrap_or(i32::MAX),
            num_children,
            ..node.stat
        }
    }

    fn now(&self) -> Timestamp {
        let ahead = i64::try_from(self.clock_ahead.as_millis()).unwrap_or(i64::MAX);
        Timestamp(clock::wall_clock().0.saturating_add(ahead))
    }
}

fn name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}
