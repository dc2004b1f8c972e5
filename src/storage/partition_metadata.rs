//! `partition.metadata`: the topic id of a replica, written before its first record. Source: `PartitionMetadataFile`.

use std::{io, path::Path};

use common::topic::Uuid;

use crate::atomic_file;

/// The file's name.
pub const PARTITION_METADATA_FILE: &str = "partition.metadata";

/// Bytes such a file may have; Kafka's have 43.
const SIZE_MAX: u64 = 4096;

/// Why a topic id could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PartitionMetadataError {
    /// The file could not be read.
    #[error("read {PARTITION_METADATA_FILE}")]
    Read(#[from] io::Error),
    /// The file does not have the form it must have, or holds the id that means none.
    #[error("malformed {PARTITION_METADATA_FILE}: {0:?}")]
    Malformed(String),
}

/// The topic id in the directory; `None` where the file is not there, as in logs of before Kafka 2.8.
pub fn read(directory: &Path) -> Result<Option<Uuid>, PartitionMetadataError> {
    let path = directory.join(PARTITION_METADATA_FILE);
    let Some(bytes) = atomic_file::read(&path, SIZE_MAX)? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    match parse(&text) {
        Some(topic_id) => Ok(Some(topic_id)),
        None => Err(PartitionMetadataError::Malformed(text.chars().take(100).collect())),
    }
}

fn parse(text: &str) -> Option<Uuid> {
    let mut lines = text.lines();
    let version = lines.next()?.strip_prefix("version:")?.trim();
    let topic_id = lines.next()?.strip_prefix("topic_id:")?.trim();
    if version != "0" || lines.next().is_some() {
        return None;
    }
    Uuid::parse(topic_id).filter(|topic_id| *topic_id != Uuid::ZERO)
}

/// Writes the file. It is there before the log is; `sync` makes it survive a power cut, before any record counts as
/// flushed.
pub(crate) fn write(directory: &Path, topic_id: Uuid) -> io::Result<()> {
    let text = format!("version: 0\ntopic_id: {topic_id}");
    atomic_file::replace_unsynced(&directory.join(PARTITION_METADATA_FILE), text.as_bytes())
}

/// Syncs the file; the directory's sync is the caller's.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    std::fs::File::open(directory.join(PARTITION_METADATA_FILE))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::{PARTITION_METADATA_FILE, Uuid, read, write};

    #[test]
    fn a_topic_id_is_kept_and_a_wrong_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PARTITION_METADATA_FILE);
        assert_eq!(read(folder.path()).unwrap(), None);
        let topic_id = Uuid::parse("2kzRiInnRwmj6KO-1TeefQ").unwrap();
        write(folder.path(), topic_id).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "version: 0\ntopic_id: 2kzRiInnRwmj6KO-1TeefQ"
        );
        assert_eq!(read(folder.path()).unwrap(), Some(topic_id));
        for wrong in [
            "",
            "version: 1\ntopic_id: 2kzRiInnRwmj6KO-1TeefQ",
            "version: 0",
            "version: 0\ntopic_id: x",
        ] {
            std::fs::write(&path, wrong).unwrap();
            assert!(read(folder.path()).is_err(), "{wrong:?}");
        }
        std::fs::write(&path, "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA").unwrap();
        assert!(read(folder.path()).is_err());
    }
}
