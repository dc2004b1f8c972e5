//! A log file that is rotated by size: `server.log`, `server.log.1`, ... up to a number.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An open file and its limits. All together never take more than `(backups_max + 1) * size_max` and a line.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    file: File,
    size: u64,
    size_max: u64,
    backups_max: u32,
}

impl RotatingFile {
    /// Opens for appending; makes the folder.
    pub(super) fn open(path: &Path, size_max: u64, backups_max: u32) -> io::Result<RotatingFile> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = open_append(path)?;
        let size = file.metadata()?.len();
        Ok(RotatingFile { path: path.to_owned(), file, size, size_max, backups_max })
    }

    fn backup(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }

    /// Moves the file to `.1` and those before it on, the last one out.
    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.backups_max).rev() {
            rename_if_there(&self.backup(number), &self.backup(number + 1))?;
        }
        if self.backups_max > 0 {
            rename_if_there(&self.path, &self.backup(1))?;
        } else {
            self.file.set_len(0)?;
        }
        self.file = open_append(&self.path)?;
        self.size = self.file.metadata()?.len();
        Ok(())
    }
}

impl Write for RotatingFile {
    /// Writes one or more whole lines, rotating before them where they would not fit.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if self.size > 0 && self.size.saturating_add(length) > self.size_max {
            // Where nothing can be moved, the bound on disk space counts for more than old lines.
            self.rotate().or_else(|_| self.file.set_len(0).map(|()| self.size = 0))?;
        }
        let written = self.file.write(lines)?;
        self.size = self.size.saturating_add(u64::try_from(written).unwrap_or(0));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(folder: &Path) -> String {
        let mut files: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let show = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            format!("{name}:{}", std::fs::read_to_string(path).unwrap().replace('\n', " "))
        };
        files.iter().map(show).collect::<Vec<_>>().join("| ")
    }

    #[test]
    fn files_are_rotated_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/server.log");
        let mut file = RotatingFile::open(&path, 10, 2).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n", "five\n", "six\n", "seven\n"] {
            file.write_all(line.as_bytes()).unwrap();
        }
        let folder = path.parent().unwrap();
        assert_eq!(
            contents(folder),
            "server.log:six seven | server.log.1:four five | server.log.2:three "
        );
        drop(file);
        let mut file = RotatingFile::open(&path, 10, 2).unwrap();
        file.write_all(b"eight\n").unwrap();
        assert_eq!(
            contents(folder),
            "server.log:eight | server.log.1:six seven | server.log.2:four five "
        );
    }

    #[test]
    fn without_backups_the_file_starts_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = RotatingFile::open(&folder.path().join("a.log"), 6, 0).unwrap();
        for line in ["one\n", "two\n", "a line longer than the file may be\n", "end\n"] {
            file.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(contents(folder.path()), "a.log:end ");
    }

    #[test]
    fn a_folder_that_refuses_renames_still_bounds_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let mut file = RotatingFile::open(&path, 6, 1).unwrap();
        std::fs::create_dir(folder.path().join("a.log.1")).unwrap();
        for line in ["one\n", "two\n", "end\n"] {
            file.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "end\n");
    }
}
