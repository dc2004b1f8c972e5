//! The ZooKeeper sessions that this broker had, kept in its log directories: a znode of one of them is a ghost of
//! ours, which a restart may delete instead of waiting for it to expire.
//!
//! A session counts as ours only on the same boot of the machine, since a copied disk has the file as well, and only
//! while the directories' locks are held, since then no other process can be its owner.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tracing::warn;
use zk::store::SessionId;

/// The file's name in each log directory.
const FILE_NAME: &str = ".zookeeper_sessions";
/// Sessions kept; older ones have long expired.
const SESSIONS_MAX: usize = 16;
/// Where Linux tells one boot from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The sessions of this broker. The caller holds the locks of the directories.
#[derive(Debug)]
pub(crate) struct SessionFile {
    paths: Vec<PathBuf>,
    boot_id: String,
    sessions: Vec<SessionId>,
}

impl SessionFile {
    /// Reads the file of every directory; one that is missing or wrong holds nothing.
    pub(crate) fn open(directories: &[PathBuf]) -> SessionFile {
        let boot_id = fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        let paths: Vec<PathBuf> = directories.iter().map(|path| path.join(FILE_NAME)).collect();
        let mut sessions = Vec::new();
        for path in &paths {
            for session in read(path, &boot_id) {
                if !sessions.contains(&session) {
                    sessions.push(session);
                }
            }
        }
        SessionFile { paths, boot_id, sessions }
    }

    /// Whether a session was of this broker, on this boot.
    pub(crate) fn is_ours(&self, session: SessionId) -> bool {
        self.sessions.contains(&session)
    }

    /// Adds a session. A file that cannot be written costs only the wait for the ghost.
    pub(crate) fn remember(&mut self, session: SessionId) {
        if self.sessions.contains(&session) {
            return;
        }
        self.sessions.push(session);
        let surplus = self.sessions.len().saturating_sub(SESSIONS_MAX);
        self.sessions.drain(..surplus);
        let ids: Vec<i64> = self.sessions.iter().map(|session| session.0).collect();
        let text = json!({ "version": 1, "boot_id": self.boot_id, "sessions": ids }).to_string();
        for path in &self.paths {
            if let Err(error) = write(path, &text) {
                warn!(path = %path.display(), %error, "could not keep the ZooKeeper session");
            }
        }
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temporary, path)
}

fn read(path: &Path, boot_id: &str) -> Vec<SessionId> {
    let Ok(bytes) = fs::read(path) else { return Vec::new() };
    let Ok(document) = serde_json::from_slice::<Value>(&bytes) else { return Vec::new() };
    // Without a boot id nothing can be told.
    if boot_id.is_empty() || document["boot_id"] != boot_id {
        return Vec::new();
    }
    let ids = document["sessions"].as_array().into_iter().flatten();
    ids.filter_map(Value::as_i64).map(SessionId).collect()
}

#[cfg(test)]
mod tests {
    use zk::store::SessionId;

    use super::{FILE_NAME, SESSIONS_MAX, SessionFile};

    #[test]
    fn sessions_survive_a_restart_and_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let directories = [directory.path().to_owned()];
        let mut file = SessionFile::open(&directories);
        for id in 0..20 {
            file.remember(SessionId(id));
        }
        let file = SessionFile::open(&directories);
        assert!(file.is_ours(SessionId(19)) && !file.is_ours(SessionId(0)));
        assert_eq!(file.sessions.len(), SESSIONS_MAX);
    }

    #[test]
    fn a_copied_or_damaged_file_is_no_proof() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        for text in [r#"{"version":1,"boot_id":"another","sessions":[7]}"#, "{\"boot_id\":", ""] {
            std::fs::write(&path, text).unwrap();
            let file = SessionFile::open(&[directory.path().to_owned()]);
            assert!(!file.is_ours(SessionId(7)), "{text}");
        }
    }
}
