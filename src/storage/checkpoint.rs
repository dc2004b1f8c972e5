//! Checkpoint text files: a version, a count, one entry a line. Source: `CheckpointFile`.

use std::{collections::BTreeMap, fmt::Write, io, path::Path};

use common::{
    ids::{LeaderEpoch, Offset},
    topic::TopicPartition,
};

use crate::atomic_file;

/// First offset not known to be flushed, per partition.
pub const RECOVERY_POINT_FILE: &str = "recovery-point-offset-checkpoint";
/// High watermark per partition.
pub const HIGH_WATERMARK_FILE: &str = "replication-offset-checkpoint";
/// Log start offset, of the partitions where it lies above the first segment's base.
pub const LOG_START_FILE: &str = "log-start-offset-checkpoint";
/// First offset not yet compacted, per compacted partition.
pub const CLEANER_FILE: &str = "cleaner-offset-checkpoint";

/// Bytes a checkpoint may have: a million partitions with the longest names.
const SIZE_MAX: u64 = 300 << 20;

/// Why a checkpoint could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file could not be read.
    #[error("read the checkpoint")]
    Read(#[from] io::Error),
    /// The first line is not `0`.
    #[error("unrecognized version of the checkpoint: {0:?}")]
    Version(String),
    /// A line does not have the form of an entry.
    #[error("malformed line in the checkpoint: {0:?}")]
    Malformed(String),
    /// The second line announces another number of entries.
    #[error("expected {announced} entries in the checkpoint but found {found}")]
    Count {
        /// What the second line says.
        announced: i64,
        /// Lines that follow it.
        found: usize,
    },
}

/// Offsets per partition, as three of the files hold them.
pub type Offsets = BTreeMap<TopicPartition, Offset>;

/// Reads offsets per partition; no file and an empty file are no entries.
pub fn read_offsets(path: &Path) -> Result<Offsets, CheckpointError> {
    let Some(bytes) = atomic_file::read(path, SIZE_MAX)? else { return Ok(Offsets::new()) };
    parse_offsets(&bytes)
}

/// Parses the bytes of an offset checkpoint.
pub fn parse_offsets(bytes: &[u8]) -> Result<Offsets, CheckpointError> {
    let mut offsets = Offsets::new();
    let mut topic = std::sync::Arc::<str>::from("");
    entries(bytes, |words| {
        let [name, partition, offset] = words else { return None };
        // A topic's partitions follow one another, so they can share the name.
        if *topic != **name {
            topic = (*name).into();
        }
        let partition = partition.parse().ok().filter(|partition| *partition >= 0)?;
        let key = TopicPartition { topic: topic.clone(), partition };
        offsets.insert(key, Offset(offset.parse().ok()?));
        Some(())
    })?;
    Ok(offsets)
}

/// Replaces the file; returns when it would survive a power cut.
pub fn write_offsets<'a>(
    path: &Path,
    offsets: impl ExactSizeIterator<Item = (&'a TopicPartition, Offset)>,
) -> io::Result<()> {
    atomic_file::write(path, format_offsets(offsets).as_bytes())
}

/// The text of an offset checkpoint.
pub(crate) fn format_offsets<'a>(
    offsets: impl ExactSizeIterator<Item = (&'a TopicPartition, Offset)>,
) -> String {
    let mut text = format!("0\n{}\n", offsets.len());
    for (TopicPartition { topic, partition }, offset) in offsets {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{topic} {partition} {offset}");
    }
    text
}

/// Parses the bytes of a `leader-epoch-checkpoint`.
pub(crate) fn parse_epochs(bytes: &[u8]) -> Result<Vec<(LeaderEpoch, Offset)>, CheckpointError> {
    let mut epochs = Vec::new();
    entries(bytes, |words| {
        let [epoch, start] = words else { return None };
        let epoch = epoch.parse().ok().filter(|epoch| *epoch >= 0)?;
        let start = start.parse().ok().filter(|start| *start >= 0)?;
        epochs.push((LeaderEpoch(epoch), Offset(start)));
        Some(())
    })?;
    Ok(epochs)
}

/// The text of a `leader-epoch-checkpoint`.
pub(crate) fn format_epochs(epochs: &[(LeaderEpoch, Offset)]) -> String {
    let mut text = format!("0\n{}\n", epochs.len());
    for (epoch, start) in epochs {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{epoch} {start}");
    }
    text
}

/// Walks the entries; `entry` gives `None` for one it cannot read. The words of a line are split at white space.
fn entries(
    bytes: &[u8],
    mut entry: impl FnMut(&[&str]) -> Option<()>,
) -> Result<(), CheckpointError> {
    let malformed = |line: &str| CheckpointError::Malformed(line.chars().take(300).collect());
    let text = std::str::from_utf8(bytes)
        .map_err(|_| malformed(&String::from_utf8_lossy(&bytes[..bytes.len().min(300)])))?;
    let mut lines = text.lines();
    let Some(version) = lines.next() else { return Ok(()) };
    if version.trim() != "0" {
        return Err(CheckpointError::Version(version.chars().take(300).collect()));
    }
    let Some(count) = lines.next() else { return Ok(()) };
    let announced: i64 = count.trim().parse().map_err(|_| malformed(count))?;
    let mut found = 0;
    for line in lines {
        let mut words = [""; 4];
        let mut word_count = 0;
        for word in line.split_ascii_whitespace().take(4) {
            words[word_count] = word;
            word_count += 1;
        }
        entry(&words[..word_count]).ok_or_else(|| malformed(line))?;
        found += 1;
    }
    if usize::try_from(announced) != Ok(found) {
        return Err(CheckpointError::Count { announced, found });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        CheckpointError, Offset, TopicPartition, parse_epochs, parse_offsets, read_offsets,
        write_offsets,
    };

    #[test]
    fn offsets_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        assert!(read_offsets(&path).unwrap().is_empty());
        let offsets =
            [(TopicPartition::new("t", 0), Offset(15)), (TopicPartition::new("t", 1), Offset(9))];
        write_offsets(&path, offsets.iter().map(|(key, offset)| (key, *offset))).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n2\nt 0 15\nt 1 9\n");
        assert_eq!(read_offsets(&path).unwrap().into_iter().collect::<Vec<_>>(), offsets);
        assert!(!folder.path().join("checkpoint.tmp").exists());
    }

    #[test]
    fn malformed_checkpoints_are_errors_and_an_empty_one_has_no_entries() {
        assert!(parse_offsets(b"").unwrap().is_empty());
        assert!(matches!(parse_offsets(b"1\n0\n"), Err(CheckpointError::Version(_))));
        assert!(matches!(parse_offsets(b"0\n2\nt 0 1\n"), Err(CheckpointError::Count { .. })));
        assert!(matches!(parse_offsets(b"0\n1\nt 0\n"), Err(CheckpointError::Malformed(_))));
        assert!(matches!(parse_offsets(b"0\n1\nt 0 1 2\n"), Err(CheckpointError::Malformed(_))));
        assert!(matches!(parse_offsets(b"0\n1\nt x 1\n"), Err(CheckpointError::Malformed(_))));
        assert!(matches!(parse_offsets(b"\xff\xfe"), Err(CheckpointError::Malformed(_))));
        assert!(matches!(parse_epochs(b"0\n1\n-1 5\n"), Err(CheckpointError::Malformed(_))));
    }
}
