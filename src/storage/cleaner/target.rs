//! The segment that takes the place of others: written beside them, then put in their place. Source: `LocalLog.replaceSegments`.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use common::ids::Timestamp;
use record::entry::EntryHeader;

use super::CleanError;
use crate::{
    atomic_file,
    error::{Context, Fault},
    index::{self, Index},
    log::{Log, Writer},
    scan::Found,
    segment::{IndexBuilder, Segment, SegmentView},
    segment_files::{self, CLEANED, LOG, OFFSET_INDEX, SWAP, TIME_INDEX, TRANSACTION_INDEX},
    transaction_index::{self, AbortedTransaction},
};

/// The log comes last: while its file has the first suffix, a start drops what was written.
const EXTENSIONS: [&str; 4] = [OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, LOG];
/// Largest segment: positions in indexes are 31-bit numbers.
const SIZE_MAX: u64 = i32::MAX as u64;
/// Bytes of an entry of the larger index.
const INDEX_ENTRY_BYTES: u64 = 12;

/// A segment in the making. Its files have the suffix `.cleaned`.
pub(crate) struct Target<'a> {
    log: &'a Log,
    /// What it replaces.
    sources: &'a [SegmentView],
    directory: Arc<Path>,
    file: File,
    buffer: Vec<u8>,
    buffer_length: usize,
    size: u64,
    indexes: IndexBuilder,
    is_done: bool,
}

impl<'a> Target<'a> {
    /// Makes the file. `sources` are neighbours, one at least.
    pub(crate) fn begin(
        log: &'a Log,
        sources: &'a [SegmentView],
        buffer_length: usize,
    ) -> Result<Target<'a>, CleanError> {
        let writer = log.writer.lock();
        // Under the lock, so that a truncation that empties the log meets a file of this name before or after itself.
        position(log, &writer, sources)?;
        let directory = log.path();
        let base = sources[0].base;
        for extension in EXTENSIONS {
            let path = file_path(&directory, base, extension, CLEANED);
            atomic_file::remove_if_exists(&path).context("remove", path)?;
        }
        let path = file_path(&directory, base, LOG, CLEANED);
        let file = File::create_new(&path).context("create", path)?;
        drop(writer);
        let config = log.config();
        let source_size: u64 = sources.iter().map(|source| source.size).sum();
        // So far apart that the index is not larger than it may be.
        let least = source_size * INDEX_ENTRY_BYTES / u64::from(config.segment_index_bytes.max(1));
        let interval = u64::from(config.index_interval_bytes).max(least);
        Ok(Target {
            log,
            sources,
            directory,
            file,
            buffer: Vec::new(),
            buffer_length,
            size: 0,
            indexes: IndexBuilder::new(base, interval),
            is_done: false,
        })
    }

    fn path(&self, extension: &str, suffix: &str) -> PathBuf {
        file_path(&self.directory, self.sources[0].base, extension, suffix)
    }

    /// Adds a batch.
    pub(crate) fn write(&mut self, batch: &[u8]) -> Result<(), CleanError> {
        let header = EntryHeader::parse(batch).map_err(std::io::Error::other);
        let header = header.context("read what was written to", self.path(LOG, CLEANED))?;
        if self.size + batch.len() as u64 > SIZE_MAX {
            let reason = "what is left does not fit a segment".to_owned();
            return Err(CleanError::Damaged {
                path: self.path(LOG, CLEANED),
                position: self.size,
                reason,
            });
        }
        self.indexes.add(&Found { position: self.size, header });
        self.size += batch.len() as u64;
        self.buffer.extend_from_slice(batch);
        if self.buffer.len() >= self.buffer_length { Ok(self.write_buffer()?) } else { Ok(()) }
    }

    fn write_buffer(&mut self) -> Result<(), Fault> {
        #[cfg(test)]
        crate::faults::before_step();
        #[cfg(test)]
        crate::faults::before_write(&self.file, &[std::io::IoSlice::new(&self.buffer)], self.size)
            .context("write", self.path(LOG, CLEANED))?;
        self.file.write_all(&self.buffer).context("write", self.path(LOG, CLEANED))?;
        self.buffer.clear();
        Ok(())
    }

    /// Whether it holds just what its one source holds.
    pub(crate) fn is_the_same(&self, changed: bool) -> bool {
        !changed && self.sources.len() == 1 && self.size == self.sources[0].size
    }

    /// Syncs the new segment, and puts it in the place of its sources.
    pub(crate) fn replace(mut self, aborted: &[AbortedTransaction]) -> Result<(), CleanError> {
        let modified = self.sources[self.sources.len() - 1].modified()?;
        self.complete(aborted, modified)?;
        self.put_in_place(!aborted.is_empty())?;
        let path = &self.directory;
        atomic_file::sync_directory(path).context("sync", &**path)?;
        Ok(())
    }

    fn complete(
        &mut self,
        aborted: &[AbortedTransaction],
        modified: Timestamp,
    ) -> Result<(), Fault> {
        self.write_buffer()?;
        self.indexes.seal();
        let since_1970 = Duration::from_millis(u64::try_from(modified.0).unwrap_or(0));
        let path = self.path(LOG, CLEANED);
        self.file.set_modified(UNIX_EPOCH + since_1970).context("date", &path)?;
        self.file.sync_all().context("sync", path)?;
        self.write_file(OFFSET_INDEX, &index::encode(&self.indexes.offsets))?;
        self.write_file(TIME_INDEX, &index::encode(&self.indexes.times))?;
        match aborted {
            [] => Ok(()),
            _ => self.write_file(TRANSACTION_INDEX, &transaction_index::encode(aborted)),
        }
    }

    fn write_file(&self, extension: &str, bytes: &[u8]) -> Result<(), Fault> {
        let path = self.path(extension, CLEANED);
        #[cfg(test)]
        crate::faults::before_step();
        let mut file = File::create(&path).context("create", &path)?;
        file.write_all(bytes).context("write", &path)?;
        file.sync_all().context("sync", path)
    }

    /// The renames, and the log's memory. Appends wait for it.
    fn put_in_place(&mut self, has_transactions: bool) -> Result<(), CleanError> {
        let log = self.log;
        let mut writer = log.writer.lock();
        let first = position(log, &writer, self.sources)?;
        let extensions: Vec<&str> = EXTENSIONS
            .into_iter()
            .filter(|extension| has_transactions || *extension != TRANSACTION_INDEX)
            .collect();
        for extension in &extensions {
            rename(&self.path(extension, CLEANED), &self.path(extension, SWAP))?;
        }
        // From here on a start ends what was begun. A failure leaves files that memory knows nothing of.
        self.is_done = true;
        let old = {
            let state = log.state.lock();
            state.segments[first..first + self.sources.len()].to_vec()
        };
        let base = self.sources[0].base;
        log.delete_replaced(&mut writer, &old, Some(base));
        if let Some(left) = self.sources.iter().map(|one| one.path(LOG)).find(|path| path.exists())
        {
            // With the old segments beside the new one the log would be damaged; the next start takes them away.
            let fault =
                Fault { action: "rename", path: left, source: std::io::ErrorKind::Other.into() };
            log.directory.fail(&fault);
            return Err(CleanError::Fault(fault));
        }
        for extension in extensions.iter().rev() {
            let renamed = rename(&self.path(extension, SWAP), &self.path(extension, ""));
            renamed.inspect_err(|fault| log.directory.fail(fault))?;
        }
        let segment = self.segment(has_transactions);
        #[cfg(test)]
        crate::faults::before_step();
        let mut state = log.state.lock();
        state.segments.splice(first..first + old.len(), [segment]);
        state.generation = state.generation.wrapping_add(1);
        state.bound = None;
        Ok(())
    }

    fn segment(&self, has_transaction_index: bool) -> Segment {
        let stored = |count: usize| Some(u32::try_from(count).unwrap_or(u32::MAX));
        Segment {
            size: self.size,
            offsets: Index { stored: stored(self.indexes.offsets.len()), tail: Vec::new() },
            times: Index { stored: stored(self.indexes.times.len()), tail: Vec::new() },
            largest: Some(self.indexes.largest),
            has_transaction_index,
            ..Segment::new(&self.log.shared, self.sources[0].base)
        }
    }
}

impl Drop for Target<'_> {
    /// Removes what is of no use.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // Under the lock, since a truncation may have a file of this name for a moment.
        let _writer = self.log.writer.lock();
        let (directory, base) = (self.log.path(), self.sources[0].base);
        for extension in EXTENSIONS {
            for suffix in [CLEANED, SWAP] {
                let path = file_path(&directory, base, extension, suffix);
                if let Err(error) = atomic_file::remove_if_exists(&path) {
                    tracing::warn!(path = %path.display(), %error, "could not remove what was cleaned");
                }
            }
        }
    }
}

fn file_path(
    directory: &Path,
    base: common::ids::Offset,
    extension: &str,
    suffix: &str,
) -> PathBuf {
    directory.join(segment_files::name(base, extension) + suffix)
}

fn rename(from: &Path, to: &Path) -> Result<(), Fault> {
    #[cfg(test)]
    crate::faults::before_step();
    fs::rename(from, to).context("rename", from)
}

/// Where the sources are among the log's segments. They are gone where the log was truncated, deleted, moved or closed.
fn position(log: &Log, writer: &Writer, sources: &[SegmentView]) -> Result<usize, CleanError> {
    if log.check_usable(writer).is_err() {
        return Err(CleanError::Aborted);
    }
    sources_position(log, sources).ok_or(CleanError::Aborted)
}

/// Where the sources are among the log's segments, as far as can be told without the writer's lock.
pub(crate) fn sources_position(log: &Log, sources: &[SegmentView]) -> Option<usize> {
    let state = log.state.lock();
    let first = sources.first()?;
    let index = state.segment_index(first.base);
    let there = state.segments.get(index..index + sources.len())?;
    let is_same = there.iter().zip(sources).all(|(segment, view)| segment.id == view.id);
    (is_same && state.path == first.directory && index + sources.len() < state.segments.len())
        .then_some(index)
}
