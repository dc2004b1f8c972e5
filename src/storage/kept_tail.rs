//! What a truncation cuts off is kept aside, so that an operator can look at the records that were lost.
//!
//! A replica's directory has a folder `truncated` for it, which neither Kafka nor recovery looks into, and which goes with
//! the replica. Each truncation leaves one file there, `<first offset>.<time>.log`: whole batches, as they were in the
//! log, which `kafka-dump-log` reads. Of more than `BYTES_MAX` the first are kept. The oldest files make room for new
//! ones, and none stays longer than `AGE_MAX_MS`.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use common::ids::{Offset, Timestamp};

use crate::atomic_file;

/// The folder in a replica's directory.
const FOLDER: &str = "truncated";
/// Bytes that are kept of one replica, in all files.
const BYTES_MAX: u64 = 256 << 20;
/// Files that are kept of one replica.
const FILES_MAX: usize = 16;
/// How long a file is kept: a week.
const AGE_MAX_MS: i64 = 7 * 24 * 3600 * 1000;
/// The end of a name until the file is whole.
const UNFINISHED: &str = ".part";
/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// A part of a segment that is cut off.
pub(crate) struct Tail {
    pub(crate) file: Arc<File>,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A file in the folder.
struct Kept {
    path: PathBuf,
    time: Timestamp,
    bytes: u64,
}

/// Keeps what is about to be cut off from `end` on. Gives the file, and how many bytes did not fit.
pub(crate) fn keep(
    replica: &Path,
    end: Offset,
    tails: &[Tail],
    now: Timestamp,
) -> io::Result<(PathBuf, u64)> {
    let folder = replica.join(FOLDER);
    match fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let total: u64 = tails.iter().map(|tail| tail.to - tail.from).sum();
    let wanted = total.min(BYTES_MAX);
    make_room(&folder, FILES_MAX - 1, BYTES_MAX - wanted, now)?;
    let path = folder.join(format!("{:020}.{}.log", end.0, now.0));
    let mut unfinished = path.clone().into_os_string();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    let copied = copy(&unfinished, tails, wanted);
    if copied.is_err() {
        atomic_file::remove_if_exists(&unfinished)?;
    }
    copied?;
    fs::rename(&unfinished, &path)?;
    atomic_file::sync_directory(&folder)?;
    Ok((path, total - wanted))
}

fn copy(to: &Path, tails: &[Tail], wanted: u64) -> io::Result<()> {
    let mut target = File::create(to)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut left = wanted;
    for tail in tails {
        let mut at = tail.from;
        while at < tail.to && left > 0 {
            let length = (tail.to - at).min(left).min(COPY_BYTES as u64);
            let part = &mut buffer[..usize::try_from(length).expect("at most a buffer")];
            tail.file.read_exact_at(part, at)?;
            target.write_all(part)?;
            at += length;
            left -= length;
        }
    }
    target.sync_data()
}

/// Whether the replica has such files.
pub(crate) fn exist(replica: &Path) -> bool {
    replica.join(FOLDER).is_dir()
}

/// Removes files that are too old. Whether some are left.
pub(crate) fn forget_old(replica: &Path, now: Timestamp) -> io::Result<bool> {
    let folder = replica.join(FOLDER);
    make_room(&folder, FILES_MAX, BYTES_MAX, now)?;
    match fs::remove_dir(&folder) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(_) => Ok(true),
    }
}

/// Removes what is too old or unfinished, and the oldest files until no more than so many and so much are left.
fn make_room(folder: &Path, files: usize, bytes: u64, now: Timestamp) -> io::Result<()> {
    let mut kept = list(folder)?;
    kept.sort_by_key(|one| std::cmp::Reverse(one.time));
    let (mut count, mut sum) = (0, 0);
    for Kept { path, time, bytes: size } in kept {
        let is_young = now.0.saturating_sub(time.0) <= AGE_MAX_MS;
        if is_young && count < files && sum + size <= bytes {
            (count, sum) = (count + 1, sum + size);
            continue;
        }
        // Those after it are older: they go as well.
        (count, sum) = (files, bytes);
        atomic_file::remove_if_exists(&path)?;
    }
    Ok(())
}

/// The files by their names; what has another kind of name is left alone.
fn list(folder: &Path) -> io::Result<Vec<Kept>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut kept = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if name.ends_with(UNFINISHED) {
            atomic_file::remove_if_exists(&path)?;
            continue;
        }
        let time = name.strip_suffix(".log").and_then(|name| name.split_once('.')?.1.parse().ok());
        if let Some(time) = time {
            kept.push(Kept { path, time: Timestamp(time), bytes: entry.metadata()?.len() });
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use common::ids::{Offset, Timestamp};

    use super::{AGE_MAX_MS, FILES_MAX, FOLDER, Tail, exist, forget_old, keep};
    use crate::testing::{NOW, temporary_folder};

    fn names(replica: &std::path::Path) -> Vec<String> {
        let entries = fs::read_dir(replica.join(FOLDER)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn tails_are_kept_whole_and_the_oldest_go_first() {
        let replica = temporary_folder();
        let source = replica.path().join("source");
        fs::write(&source, b"0123456789").unwrap();
        let file = Arc::new(fs::File::open(&source).unwrap());
        let tails = |from, to| Tail { file: file.clone(), from, to };
        for number in 0..FILES_MAX as i64 + 3 {
            let now = Timestamp(NOW.0 + number);
            let kept = keep(replica.path(), Offset(number), &[tails(2, 4), tails(7, 10)], now);
            let (path, missing) = kept.unwrap();
            assert_eq!((fs::read(path).unwrap(), missing), (b"23789".to_vec(), 0));
        }
        let left = names(replica.path());
        assert_eq!(left.len(), FILES_MAX);
        assert_eq!(left[0], format!("{:020}.{}.log", 3, NOW.0 + 3));
        let later = Timestamp(NOW.0 + AGE_MAX_MS + 10);
        assert!(forget_old(replica.path(), later).unwrap());
        assert_eq!(names(replica.path()).len(), FILES_MAX - 7);
        assert!(!forget_old(replica.path(), Timestamp(later.0 + 100)).unwrap());
        assert!(!exist(replica.path()));
    }

    #[test]
    fn what_a_crash_left_half_done_goes_at_the_next_time() {
        let replica = temporary_folder();
        fs::create_dir(replica.path().join(FOLDER)).unwrap();
        fs::write(replica.path().join(FOLDER).join("x.log.part"), b"half").unwrap();
        assert!(!forget_old(replica.path(), NOW).unwrap());
    }
}
