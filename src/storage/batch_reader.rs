//! Reads the batches of a segment one by one, whole and checked, as recovery and compaction must.

use std::{fs::File, io, os::unix::fs::FileExt};

use record::{
    batch::BatchError,
    entry::{ENTRY_PREFIX_LENGTH, EntryHeader},
};

use crate::scan::{Found, offsets_are_possible};

/// Bytes read at once.
const WINDOW_LENGTH: usize = 1 << 20;

/// What comes next in a segment. An error is one of the data; those of the disk are apart.
pub(crate) type NextBatch<'a> = Result<Option<(Found, &'a [u8])>, String>;

/// Reads the batches of a segment, whole and checked, through one buffer.
pub(crate) struct BatchReader<'a> {
    file: &'a File,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The bytes of the buffer that are not used up yet.
    unread: std::ops::Range<usize>,
}

impl<'a> BatchReader<'a> {
    pub(crate) fn new(file: &'a File, end: u64) -> BatchReader<'a> {
        BatchReader::starting_at(file, 0, end)
    }

    /// As `new`, but from where another batch begins.
    pub(crate) fn starting_at(file: &'a File, position: u64, end: u64) -> BatchReader<'a> {
        BatchReader { file, position, end, buffer: Vec::new(), unread: 0..0 }
    }

    /// Where the next batch begins; after an error, where the wrong one does.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch; `None` at the end; inside, the reason why what comes next is no batch.
    pub(crate) fn next(&mut self) -> io::Result<NextBatch<'_>> {
        let left = self.end - self.position;
        if left == 0 {
            return Ok(Ok(None));
        }
        self.fill(ENTRY_PREFIX_LENGTH.min(usize::try_from(left).unwrap_or(usize::MAX)))?;
        let header = match EntryHeader::parse(&self.buffer[self.unread.clone()]) {
            Ok(header) => header,
            Err(BatchError::Incomplete { .. }) => return Ok(Err("it is cut off".to_owned())),
            Err(error) => return Ok(Err(error.to_string())),
        };
        if header.size as u64 > left {
            return Ok(Err("it is cut off".to_owned()));
        }
        self.fill(header.size)?;
        let Some(bytes) = self.buffer.get(self.unread.start..self.unread.start + header.size)
        else {
            return Ok(Err("it is cut off".to_owned()));
        };
        if !header.crc_matches(bytes) {
            return Ok(Err("its checksum is wrong".to_owned()));
        }
        if !offsets_are_possible(&header) {
            return Ok(Err("its offsets are impossible".to_owned()));
        }
        let found = Found { position: self.position, header };
        self.position += header.size as u64;
        self.unread.start += header.size;
        Ok(Ok(Some((found, bytes))))
    }

    /// Makes `length` bytes unread, if the file has them.
    fn fill(&mut self, length: usize) -> io::Result<()> {
        if self.unread.len() >= length {
            return Ok(());
        }
        self.buffer.drain(..self.unread.start);
        self.buffer.truncate(self.unread.len());
        self.unread = 0..self.buffer.len();
        let at = self.position + self.unread.len() as u64;
        let left = usize::try_from(self.end - at).unwrap_or(usize::MAX);
        let wanted = (length - self.unread.len()).max(WINDOW_LENGTH).min(left);
        self.buffer.resize(self.unread.len() + wanted, 0);
        let mut filled = self.unread.len();
        while filled < self.buffer.len() {
            match self.file.read_at(&mut self.buffer[filled..], self.position + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(filled);
        self.unread.end = filled;
        Ok(())
    }
}
