//! Files that are either wholly there or not: written beside, synced, renamed. And reads that have a limit.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// Where `write` prepares a file; Kafka has the same name, and a leftover is ignorable.
fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(".tmp");
    PathBuf::from(name)
}

/// Replaces the file at once, and returns when the new one would survive a power cut.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_unsynced_directory(path, bytes)?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// As `write`, but the caller syncs the directory: for several files of one directory.
pub(crate) fn write_unsynced_directory(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)
}

/// Replaces the file at once in the eyes of other processes, but a power cut may lose it: for what can be rebuilt.
pub(crate) fn replace_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    fs::write(&temporary, bytes)?;
    fs::rename(&temporary, path)
}

/// As `replace_unsynced`, but a file that has the bytes already is left alone; whether it was replaced.
pub(crate) fn replace_if_different(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() == bytes.len() as u64 && fs::read(path)? == bytes => {
            return Ok(false);
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    replace_unsynced(path, bytes)?;
    Ok(true)
}

/// Makes creations, renames and removals in the directory survive a power cut.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The file's bytes; `None` where there is no file. A file of more than `size_max` bytes is an error.
pub(crate) fn read(path: &Path, size_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(size_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > size_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "file is larger than its kind may be",
        ));
    }
    Ok(Some(bytes))
}

/// Removes a file that may already be gone.
pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
