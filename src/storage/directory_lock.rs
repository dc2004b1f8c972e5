//! `.lock`: keeps other brokers out of a log directory. And `.kafka_cleanshutdown`, which the last one may have left.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::FlockOperation;

use crate::atomic_file;

const LOCK_FILE: &str = ".lock";
const CLEAN_SHUTDOWN_FILE: &str = ".kafka_cleanshutdown";

/// Holds a log directory for as long as it lives.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    path: PathBuf,
    _file: File,
}

impl DirectoryLock {
    /// Takes the lock; `None` where another broker has it.
    pub(crate) fn acquire(directory: &Path) -> io::Result<Option<DirectoryLock>> {
        let path = directory.join(LOCK_FILE);
        loop {
            let file =
                File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
            if !lock(&file)? {
                return Ok(None);
            }
            // A broker that stops removes the file; a lock on a file that is gone keeps nobody out.
            match fs::metadata(&path) {
                Ok(now) if now.ino() == file.metadata()?.ino() => {
                    return Ok(Some(DirectoryLock { path, _file: file }));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }

    /// Gives the lock back at a clean stop, and removes the file as Kafka does.
    pub(crate) fn release(self) -> io::Result<()> {
        atomic_file::remove_if_exists(&self.path)
    }
}

/// Both kinds of lock: Java takes the first, which does not see the second and does not keep out the own process.
fn lock(file: &File) -> io::Result<bool> {
    let is_taken = |error: rustix::io::Errno| {
        matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS)
    };
    for result in [
        rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive),
        rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive),
    ] {
        match result {
            Ok(()) => {}
            Err(error) if is_taken(error) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Whether the directory was left by a clean stop. The mark is removed, so that a crash from here on counts as one.
pub(crate) fn take_clean_shutdown(directory: &Path) -> io::Result<bool> {
    match fs::remove_file(directory.join(CLEAN_SHUTDOWN_FILE)) {
        Ok(()) => {
            atomic_file::sync_directory(directory)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Leaves the mark of a clean stop. Source: `CleanShutdownFileHandler`; with ZooKeeper the epoch is always -1.
pub(crate) fn mark_clean_shutdown(directory: &Path) -> io::Result<()> {
    let content = br#"{"version":0,"brokerEpoch":-1}"#;
    atomic_file::write(&directory.join(CLEAN_SHUTDOWN_FILE), content)
}

#[cfg(test)]
mod tests {
    use super::{DirectoryLock, mark_clean_shutdown, take_clean_shutdown};

    #[test]
    fn a_directory_has_one_holder() {
        let folder = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::acquire(folder.path()).unwrap().unwrap();
        assert!(DirectoryLock::acquire(folder.path()).unwrap().is_none());
        lock.release().unwrap();
        assert!(!folder.path().join(".lock").exists());
        assert!(DirectoryLock::acquire(folder.path()).unwrap().is_some());
    }

    #[test]
    fn the_mark_of_a_clean_stop_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!take_clean_shutdown(folder.path()).unwrap());
        mark_clean_shutdown(folder.path()).unwrap();
        let path = folder.path().join(".kafka_cleanshutdown");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "{\"version\":0,\"brokerEpoch\":-1}");
        assert!(take_clean_shutdown(folder.path()).unwrap());
        assert!(!take_clean_shutdown(folder.path()).unwrap());
    }
}
