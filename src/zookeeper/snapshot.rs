//! The files `snapshot.<zxid>`: the whole tree and all sessions. Source: ZooKeeper's `FileSnap`,
//! `SerializeUtils` and `SnapStream`.
//!
//! A snapshot is written piece by piece while the tree goes on changing: it holds at least what
//! its name says, maybe more, and replaying the log from there makes it whole.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use adler2::Adler32;
use parking_lot::MappedMutexGuard;
use thiserror::Error;

use crate::core::Core;
use crate::data::Acl;
use crate::jute::{JuteError, Reader, Write};
use crate::sessions::Sessions;
use crate::tree::{AclId, Node, StatPersisted, Tree};
use crate::txn_log::{Durability, HEADER_LENGTH, file_header};

/// `ZKSN`.
const MAGIC: i32 = 0x5a4b_534e;

/// How the name of a half-written one begins: Apache does not take it for a snapshot.
pub(crate) const UNFINISHED: &str = "tmp-snapshot-";

/// Nodes that are put into a snapshot before others get their turn.
const NODES_PER_PIECE: usize = 1000;

/// Why a snapshot cannot be used.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not whole, or damaged.
    #[error("{path} is not a whole snapshot: {reason}")]
    NotWhole {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// What a snapshot holds.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) tree: Tree,
    /// Sessions and their timeouts in milliseconds.
    pub(crate) sessions: Vec<(i64, i32)>,
}

/// Reads a snapshot whose name says `zxid`.
pub(crate) fn read(
    path: &Path,
    zxid: i64,
    extended_types: bool,
) -> Result<Snapshot, SnapshotError> {
    let bytes = std::fs::read(path)
        .map_err(|source| SnapshotError::Read { path: path.to_owned(), source })?;
    parse(&bytes, zxid, extended_types)
        .map_err(|reason| SnapshotError::NotWhole { path: path.to_owned(), reason })
}

/// Reads a snapshot from its bytes.
pub(crate) fn parse(bytes: &[u8], zxid: i64, extended_types: bool) -> Result<Snapshot, String> {
    let cut = |error: JuteError| error.to_string();
    let mut reader = Reader::new(bytes);
    if reader.int() != Ok(MAGIC) || bytes.len() < HEADER_LENGTH {
        return Err("it does not begin as one".to_owned());
    }
    reader = Reader::new(&bytes[HEADER_LENGTH..]);
    let mut sessions = Vec::new();
    for _ in 0..reader.int().map_err(cut)? {
        sessions.push((reader.long().map_err(cut)?, reader.int().map_err(cut)?));
    }
    let mut tree = Tree::bare(extended_types);
    for _ in 0..reader.int().map_err(cut)? {
        let id = AclId(reader.long().map_err(cut)?);
        tree.insert_loaded_acl(id, Acl::read_all(&mut reader).map_err(cut)?);
    }
    loop {
        let path = reader.text().map_err(cut)?;
        if path == "/" {
            break;
        }
        let node = read_node(&mut reader).map_err(cut)?;
        tree.hold_acl(node.acl);
        if !tree.insert_loaded(&path, node) {
            return Err(format!("the parent or the ACL of {path} is missing"));
        }
    }
    let length = bytes.len() - reader.rest().len();
    let mut adler = Adler32::new();
    adler.write_slice(&bytes[..length]);
    if reader.long() != Ok(i64::from(adler.checksum())) {
        return Err("its checksum is wrong".to_owned());
    }
    // What may follow is a digest of the tree, which we neither check nor write.
    tree.finish_loading();
    tree.last_zxid = zxid;
    Ok(Snapshot { tree, sessions })
}

fn read_node(reader: &mut Reader<'_>) -> Result<Node, JuteError> {
    Ok(Node {
        data: reader.buffer()?.map(Into::into),
        acl: AclId(reader.long()?),
        stat: StatPersisted {
            czxid: reader.long()?,
            mzxid: reader.long()?,
            ctime: reader.long()?,
            mtime: reader.long()?,
            version: reader.int()?,
            cversion: reader.int()?,
            aversion: reader.int()?,
            ephemeral_owner: reader.long()?,
            pzxid: reader.long()?,
        },
        children: Default::default(),
    })
}

fn write_node(path: &str, node: &Node, out: &mut Vec<u8>) {
    out.text(path);
    out.buffer(node.data.as_deref());
    out.long(node.acl.0);
    out.long(node.stat.czxid);
    out.long(node.stat.mzxid);
    out.long(node.stat.ctime);
    out.long(node.stat.mtime);
    out.int(node.stat.version);
    out.int(node.stat.cversion);
    out.int(node.stat.aversion);
    out.long(node.stat.ephemeral_owner);
    out.long(node.stat.pzxid);
}

/// A snapshot on its way, from the root downwards.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) zxid: i64,
    /// Paths to go; parents come before their children.
    stack: Vec<String>,
}

impl Walk {
    /// Begins: gives the head of the file.
    pub(crate) fn begin(tree: &Tree, sessions: &Sessions) -> (Walk, Vec<u8>) {
        let mut out = file_header(MAGIC);
        out.length(sessions.len());
        for (id, session) in sessions.iter() {
            out.long(id);
            out.int(session.timeout_ms);
        }
        let acls = tree.acls.entries();
        out.length(acls.len());
        for (id, acl) in acls {
            out.long(id.0);
            Acl::write_all(acl, &mut out);
        }
        (Walk { zxid: tree.last_zxid, stack: vec![String::new()] }, out)
    }

    /// Gives the next piece; `None` at the end.
    ///
    /// A node may have an ACL that is newer than the head; then the head's table lacks it, and the
    /// node is put in as open: the transaction that brought the ACL is replayed and sets it right.
    pub(crate) fn next_piece(
        &mut self,
        tree: &Tree,
        head_acls: &HeadAcls,
        nodes: usize,
    ) -> Option<Vec<u8>> {
        if self.stack.is_empty() {
            return None;
        }
        let mut out = Vec::new();
        for _ in 0..nodes {
            let Some(path) = self.stack.pop() else { break };
            let Some(node) = tree.get(&path) else { continue };
            if head_acls.has(node.acl) {
                write_node(&path, node, &mut out);
            } else {
                let open = Node { acl: AclId(-1), children: Default::default(), ..node.clone() };
                write_node(&path, &open, &mut out);
            }
            self.stack.extend(node.children.iter().rev().map(|name| format!("{path}/{name}")));
        }
        Some(out)
    }
}

/// The numbers of the ACLs in a snapshot's head.
#[derive(Debug)]
pub(crate) struct HeadAcls(std::collections::BTreeSet<AclId>);

impl HeadAcls {
    pub(crate) fn of(tree: &Tree) -> HeadAcls {
        HeadAcls(tree.acls.entries().map(|(id, _)| id).collect())
    }

    fn has(&self, id: AclId) -> bool {
        id == AclId(-1) || self.0.contains(&id)
    }
}

/// Writes a snapshot of a core that others go on using between the pieces. Gives its zxid.
pub(crate) fn write<'a>(
    lock: &dyn Fn() -> MappedMutexGuard<'a, Core>,
    directory: &Path,
    durability: Durability,
) -> io::Result<i64> {
    let (mut walk, head, head_acls) = {
        let core = lock();
        let (walk, head) = Walk::begin(&core.tree, &core.sessions);
        (walk, head, HeadAcls::of(&core.tree))
    };
    let mut writer = SnapshotWriter::create(directory, walk.zxid, durability)?;
    writer.append(&head)?;
    loop {
        // The lock ends with the line.
        let piece = walk.next_piece(&lock().tree, &head_acls, NODES_PER_PIECE);
        let Some(piece) = piece else { break };
        writer.append(&piece)?;
    }
    writer.finish()?;
    Ok(walk.zxid)
}

/// Writes a snapshot of a tree that nobody else uses.
pub(crate) fn write_still(
    tree: &Tree,
    sessions: &Sessions,
    directory: &Path,
    durability: Durability,
) -> io::Result<()> {
    let (mut walk, head) = Walk::begin(tree, sessions);
    let head_acls = HeadAcls::of(tree);
    let mut writer = SnapshotWriter::create(directory, walk.zxid, durability)?;
    writer.append(&head)?;
    while let Some(piece) = walk.next_piece(tree, &head_acls, NODES_PER_PIECE) {
        writer.append(&piece)?;
    }
    writer.finish()
}

/// A snapshot's file: it gets its name when it is whole and on disk.
pub(crate) struct SnapshotWriter {
    file: File,
    adler: Adler32,
    directory: PathBuf,
    temporary: PathBuf,
    path: PathBuf,
    durability: Durability,
}

impl SnapshotWriter {
    pub(crate) fn create(
        directory: &Path,
        zxid: i64,
        durability: Durability,
    ) -> io::Result<SnapshotWriter> {
        let path = directory.join(format!("snapshot.{zxid:x}"));
        let temporary = directory.join(format!("{UNFINISHED}{zxid:x}"));
        let file = File::create(&temporary)?;
        let directory = directory.to_owned();
        let adler = Adler32::new();
        Ok(SnapshotWriter { file, adler, directory, temporary, path, durability })
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.adler.write_slice(bytes);
        self.file.write_all(bytes)
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        let mut end = Vec::new();
        // The path that ends the nodes is under the checksum; the one behind it is not.
        end.text("/");
        self.append(&end)?;
        let mut seal = Vec::new();
        seal.long(i64::from(self.adler.checksum()));
        seal.text("/");
        self.file.write_all(&seal)?;
        self.durability.sync(&self.file)?;
        std::fs::rename(&self.temporary, &self.path)?;
        self.durability.sync(&File::open(&self.directory)?)
    }
}
