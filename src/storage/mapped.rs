//! Read-only maps of index files. The only place with `unsafe`.
#![allow(unsafe_code)]

use std::{fs::File, io, ops::Deref};

use memmap2::Mmap;

/// The first bytes of an index file, mapped read-only; `None` for no bytes, which cannot be mapped.
pub(crate) struct Mapped(Option<Mmap>);

impl Mapped {
    /// A map of nothing.
    pub(crate) fn empty() -> Mapped {
        Mapped(None)
    }

    /// Maps the first `length` bytes, which the file must have.
    ///
    /// The file must never be shortened nor written within `length`: an index that gets shorter is written anew
    /// beside its old file and renamed over it, which leaves this map's file as it is.
    pub(crate) fn new(file: &File, length: usize) -> io::Result<Mapped> {
        if length == 0 {
            return Ok(Mapped::empty());
        }
        if file.metadata()?.len() < length as u64 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "file is shorter than its index",
            ));
        }
        // SAFETY: the broker holds the directory's lock, so no other broker changes the file; and we never shorten
        // an index file nor change what it holds: we only append to it, or replace it by a new file.
        let map = unsafe { memmap2::MmapOptions::new().len(length).map(file)? };
        Ok(Mapped(Some(map)))
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
