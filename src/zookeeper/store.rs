//! The data directory: loads the latest snapshot and the log behind it, as Apache ZooKeeper does,
//! and purges what is old.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use common::clock;
use thiserror::Error;
use tracing::{info, warn};

use crate::sessions::Sessions;
use crate::snapshot::{self, Snapshot, SnapshotError};
use crate::tree::Tree;
use crate::txn::{Txn, TxnHeader};
use crate::txn_log::{self, Durability, LogError};

/// Why a data directory cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A directory or a file cannot be made, listed or changed.
    #[error("use {path}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing can be written: it is mounted read-only, another user's, or full.
    #[error("{path} cannot be written")]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another server uses the directory.
    #[error("{path} is in use by another server")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// There are snapshots, and none is whole.
    #[error("no snapshot in {path} is whole")]
    NoSnapshot {
        /// The directory.
        path: PathBuf,
        /// What is wrong with the latest.
        source: SnapshotError,
    },
    /// There are logs, and the snapshot that they build on is gone.
    #[error("{path} has logs but no snapshot: something is broken")]
    SnapshotMissing {
        /// The directory.
        path: PathBuf,
    },
    /// A log is missing between others.
    #[error(
        "transactions 0x{after:x} to 0x{before:x} are in no log: {path} is torn or one is missing"
    )]
    Gap {
        /// The last transaction in front of the gap.
        after: i64,
        /// The first one behind it.
        before: i64,
        /// The file with the first one behind it.
        path: PathBuf,
    },
}

/// What is written to find out whether anything can be.
const CHECK_BYTES: usize = 64 * 1024;

/// The two directories, `version-2` in `dataDir` and `dataLogDir`.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) snapshots: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) durability: Durability,
    /// Held as long as the server lives, so that no second one writes here.
    _lock: File,
}

/// What was on disk.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) tree: Tree,
    pub(crate) sessions: BTreeMap<i64, i32>,
    /// Transactions behind the snapshot.
    pub(crate) replayed: u64,
}

impl Store {
    /// Makes the directories if need be, and takes them for this process.
    pub(crate) fn open(
        data_dir: &Path,
        data_log_dir: &Path,
        durability: Durability,
    ) -> Result<Store, StoreError> {
        let snapshots = data_dir.join("version-2");
        let logs = data_log_dir.join("version-2");
        for path in [&snapshots, &logs] {
            fs::create_dir_all(path).map_err(at(path))?;
        }
        let lock = File::open(&logs).map_err(at(&logs))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StoreError::InUse { path: logs.clone() })?;
        let store = Store { snapshots, logs, durability, _lock: lock };
        store.remove_unfinished()?;
        store.check_writable()?;
        Ok(store)
    }

    /// The first client would find it out otherwise, and end the server.
    fn check_writable(&self) -> Result<(), StoreError> {
        for path in [&self.snapshots, &self.logs] {
            let file = path.join(format!("{}check", snapshot::UNFINISHED));
            let written = fs::write(&file, [0; CHECK_BYTES]);
            // Also where it is written in part.
            let removed = match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
            written
                .and(removed)
                .map_err(|source| StoreError::NotWritable { path: path.clone(), source })?;
        }
        Ok(())
    }

    /// Snapshots that a crash left half-written.
    fn remove_unfinished(&self) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.snapshots).map_err(at(&self.snapshots))? {
            let path = entry.map_err(at(&self.snapshots))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(snapshot::UNFINISHED) {
                fs::remove_file(&path).map_err(at(&path))?;
            }
        }
        Ok(())
    }

    /// Loads what is there; an empty directory gets the snapshot of an empty tree, which Apache
    /// asks for.
    pub(crate) fn load(&self, extended_types: bool) -> Result<Loaded, StoreError> {
        let begun = clock::now();
        let Some(Snapshot { tree, sessions }) = self.latest_snapshot(extended_types)? else {
            if !files(&self.logs, "log")?.is_empty() {
                return Err(StoreError::SnapshotMissing { path: self.logs.clone() });
            }
            let tree = Tree::new(extended_types);
            let none = Sessions::new(std::time::Duration::from_secs(1), begun, 0);
            snapshot::write_still(&tree, &none, &self.snapshots, self.durability)
                .map_err(at(&self.snapshots))?;
            return Ok(Loaded { tree, sessions: BTreeMap::new(), replayed: 0 });
        };
        let sessions = sessions.into_iter().collect();
        let mut loaded = Loaded { tree, sessions, replayed: 0 };
        self.replay(&mut loaded)?;
        info!(
            zxid = format_args!("0x{:x}", loaded.tree.last_zxid),
            nodes = loaded.tree.node_count(),
            sessions = loaded.sessions.len(),
            replayed = loaded.replayed,
            elapsed = ?clock::now() - begun,
            "data loaded"
        );
        Ok(loaded)
    }

    /// The latest snapshot that is whole: a crash while one was written leaves the one before.
    fn latest_snapshot(&self, extended_types: bool) -> Result<Option<Snapshot>, StoreError> {
        let mut first_error = None;
        for (zxid, path) in files(&self.snapshots, "snapshot")?.into_iter().rev() {
            match snapshot::read(&path, zxid, extended_types) {
                Ok(snapshot) => return Ok(Some(snapshot)),
                Err(error) => {
                    warn!(path = %path.display(), %error, "snapshot cannot be used");
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            None => Ok(None),
            Some(source) => Err(StoreError::NoSnapshot { path: self.snapshots.clone(), source }),
        }
    }

    /// Carries out what the logs hold behind the snapshot, and cuts off what a crash left torn.
    fn replay(&self, loaded: &mut Loaded) -> Result<(), StoreError> {
        let snapshot_zxid = loaded.tree.last_zxid;
        let logs = files(&self.logs, "log")?;
        // The last file that begins at or before what comes next may hold it.
        let first = logs.iter().rposition(|(zxid, _)| *zxid <= snapshot_zxid + 1).unwrap_or(0);
        let mut last_zxid = None;
        for (position, (_, path)) in logs.iter().enumerate().skip(first) {
            let bytes =
                fs::read(path).map_err(|source| LogError::Read { path: path.clone(), source })?;
            let mut gap = None;
            let scan = txn_log::scan(path, &bytes, |header, txn| {
                let before = last_zxid.unwrap_or(snapshot_zxid.min(header.zxid - 1));
                if header.zxid > before + 1 && header.zxid >> 32 == before >> 32 {
                    gap.get_or_insert((before, header.zxid));
                }
                last_zxid = Some(header.zxid.max(before));
                if header.zxid > snapshot_zxid && gap.is_none() {
                    replay_one(loaded, header, txn);
                }
            })?;
            if let Some((after, before)) = gap {
                return Err(StoreError::Gap { after, before, path: path.clone() });
            }
            // A torn end in front of another file lost nothing, or the gap would show.
            if scan.torn && position + 1 == logs.len() {
                cut(path, scan.end, bytes.len(), self.durability).map_err(at(path))?;
            }
        }
        Ok(())
    }

    /// The zxid of the latest snapshot, and when it was written, in seconds since 1970.
    pub(crate) fn last_snapshot(&self) -> Option<(i64, i64)> {
        let (zxid, path) = files(&self.snapshots, "snapshot").ok()?.pop()?;
        let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
        let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some((zxid, i64::try_from(since.as_secs()).ok()?))
    }

    /// Deletes snapshots beyond the latest `retain`, and the logs that none of those needs.
    pub(crate) fn purge(&self, retain: usize) -> Result<usize, StoreError> {
        let snapshots = files(&self.snapshots, "snapshot")?;
        let kept = snapshots.len().saturating_sub(retain.max(3));
        let Some((oldest_kept, _)) = snapshots.get(kept) else { return Ok(0) };
        let logs = files(&self.logs, "log")?;
        let needed = logs.iter().rposition(|(zxid, _)| zxid <= oldest_kept).unwrap_or(0);
        let old = snapshots[..kept].iter().chain(&logs[..needed]);
        let mut purged = 0;
        for (_, path) in old {
            fs::remove_file(path).map_err(at(path))?;
            purged += 1;
        }
        Ok(purged)
    }
}

fn replay_one(loaded: &mut Loaded, header: TxnHeader, txn: Txn) {
    match &txn {
        Txn::CreateSession { timeout_ms } => {
            loaded.sessions.insert(header.client_id, *timeout_ms);
        }
        Txn::CloseSession { .. } => {
            loaded.sessions.remove(&header.client_id);
        }
        _ => {}
    }
    // Nobody watches yet, and refusals were answered long ago.
    let mut events = Vec::new();
    loaded.tree.apply(&header, txn, &mut events);
    loaded.replayed += 1;
}

fn cut(path: &Path, end: usize, length: usize, durability: Durability) -> io::Result<()> {
    warn!(
        path = %path.display(),
        position = end,
        bytes = length - end,
        "the log ends in a torn write, which was never acknowledged: cutting it off"
    );
    if end == 0 {
        return fs::remove_file(path);
    }
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(u64::try_from(end).map_err(io::Error::other)?)?;
    durability.sync(&file)
}

/// Files named `<prefix>.<zxid>`, by zxid.
fn files(directory: &Path, prefix: &str) -> Result<Vec<(i64, PathBuf)>, StoreError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(at(directory))? {
        let path = entry.map_err(at(directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((before, zxid)) = name.split_once('.') else { continue };
        if before != prefix {
            continue;
        }
        match i64::from_str_radix(zxid, 16) {
            Ok(zxid) => found.push((zxid, path)),
            // `snapshot.5.gz` and such.
            Err(_) => warn!(path = %path.display(), "file is not used: its name is not ours"),
        }
    }
    found.sort();
    Ok(found)
}

fn at(path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Directory { path: path.clone(), source }
}
