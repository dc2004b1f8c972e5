//! Walks the headers of a segment's batches without reading the batches.

use std::{fs::File, io, os::unix::fs::FileExt};

use record::{
    batch::BatchError,
    entry::{ENTRY_PREFIX_LENGTH, EntryHeader},
};

/// Bytes read at once: one page holds the headers of many small batches, and costs little for large ones.
const WINDOW_LENGTH: usize = 4096;

/// Why a walk ended before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    /// The file could not be read.
    #[error("read")]
    Read(#[from] io::Error),
    /// What stands at the position is no batch.
    #[error("no batch at position {position}: {reason}")]
    NoBatch { position: u64, reason: NoBatch },
}

/// Why something is no batch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoBatch {
    #[error("{0}")]
    Header(#[from] BatchError),
    #[error("it goes past the end of the log")]
    CutOff,
    #[error("impossible offsets")]
    Offsets,
}

impl From<ScanError> for io::Error {
    fn from(error: ScanError) -> io::Error {
        match error {
            ScanError::Read(error) => error,
            ScanError::NoBatch { .. } => io::Error::new(io::ErrorKind::InvalidData, error),
        }
    }
}

/// A batch and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) position: u64,
    pub(crate) header: EntryHeader,
}

impl Found {
    /// Where the next batch begins.
    pub(crate) fn end(&self) -> u64 {
        self.position + self.header.size as u64
    }
}

/// A walk from a batch's first byte to the end of a segment.
pub(crate) struct HeaderScan<'a> {
    file: &'a File,
    position: u64,
    end: u64,
    window: [u8; WINDOW_LENGTH],
    window_at: u64,
    window_length: usize,
}

impl<'a> HeaderScan<'a> {
    /// `from` is where a batch begins, `end` where the last one ends.
    pub(crate) fn new(file: &'a File, from: u64, end: u64) -> HeaderScan<'a> {
        HeaderScan {
            file,
            position: from,
            end,
            window: [0; WINDOW_LENGTH],
            window_at: 0,
            window_length: 0,
        }
    }

    /// The next batch; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, ScanError> {
        if self.position >= self.end {
            return Ok(None);
        }
        let position = self.position;
        let found = Found { position, header: self.header()? };
        if found.end() > self.end {
            return Err(ScanError::NoBatch { position, reason: NoBatch::CutOff });
        }
        self.position = found.end();
        Ok(Some(found))
    }

    fn header(&mut self) -> Result<EntryHeader, ScanError> {
        let position = self.position;
        let wanted = (self.end - position).min(ENTRY_PREFIX_LENGTH as u64) as usize;
        let has = |scan: &HeaderScan| {
            position >= scan.window_at
                && position + wanted as u64 <= scan.window_at + scan.window_length as u64
        };
        if !has(self) {
            self.fill()?;
        }
        let wanted = if has(self) { wanted } else { self.window_length.min(wanted) };
        let start = (position - self.window_at) as usize;
        let no_batch = |reason| ScanError::NoBatch { position, reason };
        let header = EntryHeader::parse(&self.window[start..start + wanted]).map_err(|error| {
            no_batch(match error {
                BatchError::Incomplete { .. } => NoBatch::CutOff,
                error => NoBatch::Header(error),
            })
        })?;
        if !offsets_are_possible(&header) {
            return Err(no_batch(NoBatch::Offsets));
        }
        Ok(header)
    }

    /// Reads the window anew from `position` on; it is shorter where the file ends.
    fn fill(&mut self) -> io::Result<()> {
        let wanted = (self.end - self.position).min(WINDOW_LENGTH as u64) as usize;
        self.window_at = self.position;
        self.window_length = 0;
        while self.window_length < wanted {
            let rest = &mut self.window[self.window_length..wanted];
            match self.file.read_at(rest, self.position + self.window_length as u64) {
                Ok(0) => break,
                Ok(count) => self.window_length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether the offsets could be those of a batch in a log.
pub(crate) fn offsets_are_possible(header: &EntryHeader) -> bool {
    let base = header.first_or_last_offset();
    base.0 >= 0 && header.last_offset >= base && header.last_offset.0 < i64::MAX
}

/// The header of the batch that begins at `position`, if there is one that ends by `end`.
pub(crate) fn header_at(file: &File, position: u64, end: u64) -> Result<Option<Found>, ScanError> {
    match HeaderScan::new(file, position, end).next() {
        Err(ScanError::NoBatch { .. }) => Ok(None),
        result => result,
    }
}

/// All bytes of a batch.
pub(crate) fn read_batch(file: &File, found: &Found) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; found.header.size];
    file.read_exact_at(&mut bytes, found.position)?;
    Ok(bytes)
}
