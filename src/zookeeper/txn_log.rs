//! The files `log.<zxid>`: every transaction, in order. Source: ZooKeeper's `FileTxnLog`.
//!
//! A file is a header, then entries: Adler-32 of the record (8 bytes), its length (4), the record,
//! and the byte `B`. A length of zero ends it: Apache fills files up with zeros.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use adler2::Adler32;
use thiserror::Error;

use crate::jute::{Reader, Write};
use crate::txn::{Txn, TxnError, TxnHeader};

/// `ZKLG`.
const MAGIC: i32 = 0x5a4b_4c47;
const VERSION: i32 = 2;
pub(crate) const HEADER_LENGTH: usize = 16;
const END_OF_RECORD: u8 = b'B';

/// The header of log and snapshot files.
pub(crate) fn file_header(magic: i32) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_LENGTH);
    header.int(magic);
    header.int(VERSION);
    // The id of the database, which Apache never sets.
    header.long(0);
    header
}

pub(crate) fn adler32(bytes: &[u8]) -> u32 {
    let mut adler = Adler32::new();
    adler.write_slice(bytes);
    adler.checksum()
}

/// Appends an entry, as it stands in the file.
pub(crate) fn append_entry(header: &TxnHeader, txn: &Txn, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 12]);
    txn.write(header, out);
    let record = &out[start + 12..];
    let checksum = u64::from(adler32(record));
    let length = i32::try_from(record.len()).expect("a request is smaller than jute.maxbuffer");
    out[start..start + 8].copy_from_slice(&checksum.to_be_bytes());
    out[start + 8..start + 12].copy_from_slice(&length.to_be_bytes());
    out.push(END_OF_RECORD);
}

/// What "written" means. Source: ZooKeeper's `forceSync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It is on the disk.
    Synced,
    /// The system has it: it survives the process, but no power cut.
    Cached,
}

impl Durability {
    pub(crate) fn sync(self, file: &File) -> io::Result<()> {
        match self {
            Durability::Synced => file.sync_all(),
            Durability::Cached => Ok(()),
        }
    }
}

/// Why a log cannot be used.
#[derive(Debug, Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no log.
    #[error("{path} is not a transaction log")]
    NotALog {
        /// The file.
        path: PathBuf,
    },
    /// An entry is damaged in a way that no crash does it.
    #[error(
        "{path} is damaged at byte {position}, and transactions behind it would be lost; restore \
         the file, or move it and all later ones away to go on without their transactions"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damaged entry begins.
        position: usize,
    },
    /// An entry is whole but means nothing to us.
    #[error("{path} has a transaction at byte {position} that cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where the entry begins.
        position: usize,
        /// Why.
        source: UnreadableTxn,
    },
}

/// Why a transaction means nothing to us.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct UnreadableTxn(#[from] TxnError);

/// One entry, or why there is none.
enum Entry<'a> {
    Record {
        record: &'a [u8],
        end: usize,
    },
    /// The file ends here, as it should.
    End,
    /// There is something, but no entry.
    Broken,
}

fn entry_at(bytes: &[u8], position: usize) -> Entry<'_> {
    let rest = bytes.get(position..).unwrap_or_default();
    if rest.iter().take(12).all(|byte| *byte == 0) {
        return Entry::End;
    }
    let mut reader = Reader::new(rest);
    let (Ok(checksum), Ok(Some(record)), Ok(END_OF_RECORD)) =
        (reader.long(), reader.buffer(), reader.byte())
    else {
        return Entry::Broken;
    };
    if record.is_empty() || i64::from(adler32(record)) != checksum {
        return Entry::Broken;
    }
    Entry::Record { record, end: position + 12 + record.len() + 1 }
}

/// Whether what follows a broken entry shows that it was damaged, and not torn by a crash.
///
/// A crash can leave good entries behind a broken one, but only of a write that was never synced,
/// and then a page of zeros lies between: a page is written whole or not at all.
fn is_damaged(bytes: &[u8], position: usize) -> bool {
    const PAGE: usize = 4096;
    let next = (position + 1..bytes.len())
        .find(|next| matches!(entry_at(bytes, *next), Entry::Record { .. }));
    let Some(next) = next else { return false };
    let first_page = position.next_multiple_of(PAGE);
    let mut pages = (first_page..next).step_by(PAGE);
    !pages.any(|page| bytes[page..next.min(page + PAGE)].iter().all(|byte| *byte == 0))
}

/// A file's entries, from its bytes.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Where the good entries end.
    pub(crate) end: usize,
    /// Whether something stands behind them that is neither an entry nor zeros.
    pub(crate) torn: bool,
}

/// Hands every good entry to `each`.
pub(crate) fn scan(
    path: &Path,
    bytes: &[u8],
    mut each: impl FnMut(TxnHeader, Txn),
) -> Result<Scan, LogError> {
    let mut reader = Reader::new(bytes);
    match reader.int() {
        Ok(MAGIC) if bytes.len() >= HEADER_LENGTH => {}
        // The header itself was torn off: nothing was ever acknowledged from this file.
        _ if bytes.len() < HEADER_LENGTH || bytes.iter().all(|byte| *byte == 0) => {
            return Ok(Scan { end: 0, torn: true });
        }
        _ => return Err(LogError::NotALog { path: path.to_owned() }),
    }
    let mut position = HEADER_LENGTH;
    loop {
        match entry_at(bytes, position) {
            Entry::Record { record, end } => {
                let (header, txn) = Txn::read(record).map_err(|source| LogError::Unreadable {
                    path: path.to_owned(),
                    position,
                    source: UnreadableTxn(source),
                })?;
                each(header, txn);
                position = end;
            }
            Entry::End => {
                let rest = bytes.get(position..).unwrap_or_default();
                let torn = rest.iter().any(|byte| *byte != 0);
                return Ok(Scan { end: position, torn });
            }
            Entry::Broken if is_damaged(bytes, position) => {
                return Err(LogError::Damaged { path: path.to_owned(), position });
            }
            Entry::Broken => return Ok(Scan { end: position, torn: true }),
        }
    }
}

/// The file that is written to; the next is begun when this one is full or a snapshot is due.
#[derive(Debug)]
pub(crate) struct LogWriter {
    directory: PathBuf,
    durability: Durability,
    current: Option<File>,
}

impl LogWriter {
    pub(crate) fn new(directory: PathBuf, durability: Durability) -> LogWriter {
        LogWriter { directory, durability, current: None }
    }

    /// Writes entries and brings them to disk. After an error nothing more may be written: what is
    /// on disk is then unknown.
    pub(crate) fn append(&mut self, entries: &[u8], first_zxid: i64) -> io::Result<()> {
        let file = match &mut self.current {
            Some(file) => file,
            None => self.current.insert(create(&self.directory, first_zxid, self.durability)?),
        };
        file.write_all(entries)?;
        match self.durability {
            Durability::Synced => file.sync_data(),
            Durability::Cached => Ok(()),
        }
    }

    /// The next append begins a new file.
    pub(crate) fn roll(&mut self) {
        self.current = None;
    }
}

fn create(directory: &Path, first_zxid: i64, durability: Durability) -> io::Result<File> {
    let path = directory.join(format!("log.{first_zxid:x}"));
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&path)?;
    file.write_all(&file_header(MAGIC))?;
    durability.sync(&file)?;
    // The name has to survive as well.
    durability.sync(&File::open(directory)?)?;
    Ok(file)
}
