//! What lies in a log directory beside the records: checkpoints, snapshots, indexes. One file of a real log is damaged,
//! and the log opened: whatever the file holds, the log serves what its segments hold.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use common::ids::{Offset, Timestamp};
use common::topic::TopicPartition;
use storage::checkpoint::parse_offsets;
use storage::log::Log;
use storage::log_config::LogConfig;
use storage::log_load::{Known, LogOptions};
use storage::shared::{LogDirectory, Shared};
use storage::{producer_snapshot, transaction_index};

/// Of a broker that was killed: many small segments, transactions, indexes of their full length.
const LOGS: [&str; 2] = ["killed/data/txn-0", "killed/data/seg-0"];

/// Kinds of input before the damaged files of logs.
const PARSERS: u8 = 3;

/// A recorded log.
struct Recorded {
    /// Names and contents, by name.
    files: Vec<(String, Vec<u8>)>,
    /// What its segments hold, one after the other.
    records: Vec<u8>,
}

/// The first byte chooses a parser or a log; for a log the second chooses the file and whether it was closed cleanly.
pub(crate) fn run(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    match choice {
        0 => drop(std::hint::black_box(parse_offsets(bytes))),
        1 => drop(std::hint::black_box(producer_snapshot::decode(bytes))),
        2 => drop(std::hint::black_box(transaction_index::decode(bytes, Offset(2)))),
        _ => {
            let recorded = &logs()[usize::from(choice - PARSERS) % LOGS.len()];
            let Some((&file, bytes)) = bytes.split_first() else { return };
            open_damaged(recorded, usize::from(file >> 1), file & 1 == 0, bytes);
        }
    }
}

fn open_damaged(recorded: &Recorded, file: usize, clean: bool, bytes: &[u8]) {
    let folder = tempfile::Builder::new().tempdir_in(fast_folder()).expect("a temporary folder");
    let path = folder.path().join("t-0");
    fs::create_dir(&path).expect("create the log's folder");
    let damaged = &recorded.files[file % recorded.files.len()].0;
    for (name, content) in &recorded.files {
        let content = if name == damaged { bytes } else { content };
        fs::write(path.join(name), content).expect("write a file");
    }
    let options = LogOptions {
        partition: TopicPartition::new("t", 0),
        directory: LogDirectory::new(folder.path()),
        path,
        config: Arc::new(LogConfig::default()),
        shared: Shared::new(1),
        now: Timestamp(1_700_000_000_000),
    };
    let known = Known { clean, ..Known::default() };
    // What is damaged may be what says that the log is another's.
    let Ok(log) = Log::open(options, known) else { return };
    let read = read_everything(&log);
    if !damaged.ends_with(".log") {
        assert!(read == recorded.records, "{damaged} damaged: {} bytes are served", read.len());
    }
    let times = [-1, 0, 1_700_000_000_000, i64::MAX];
    let found = times.map(|time| log.offset_for_timestamp(Timestamp(time)).is_ok());
    std::hint::black_box((found, log.offset_of_max_timestamp().is_ok(), log.producers()));
}

/// Reads from the start to the end, as a consumer does.
fn read_everything(log: &Log) -> Vec<u8> {
    let mut everything = Vec::new();
    let mut from = log.start_offset();
    while from < log.end_offset() {
        let Ok(read) = log.read(from, 3000, true, log.end_offset()) else { break };
        let asked = from;
        let mut part = Vec::new();
        for region in &read.regions {
            let mut bytes = vec![0; region.length];
            region.file.read_exact_at(&mut bytes, region.position).expect("read a region");
            part.extend(bytes);
        }
        let mut whole = 0;
        for entry in record::batch::Batches::new(&part).map_while(Result::ok) {
            whole += entry.bytes.len();
            from = Offset(entry.header.last_offset.0 + 1);
        }
        if whole == 0 {
            break;
        }
        // The offset of a batch has no checksum. Like Kafka we serve what a flipped bit made of it.
        if from <= asked {
            break;
        }
        everything.extend(&part[..whole]);
    }
    everything
}

/// Memory, where there is some.
fn fast_folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/logs")
}

fn logs() -> &'static [Recorded] {
    static RECORDED: OnceLock<Vec<Recorded>> = OnceLock::new();
    RECORDED.get_or_init(|| LOGS.iter().map(|log| recorded(&golden().join(log))).collect())
}

fn recorded(folder: &Path) -> Recorded {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the recordings are there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push((name, fs::read(entry.path()).expect("read a recording")));
    }
    files.sort();
    let segments = files.iter().filter(|(name, _)| name.ends_with(".log"));
    let records = segments.flat_map(|(_, content)| content.iter().copied()).collect();
    Recorded { files, records }
}

/// Checkpoints, snapshots and transaction indexes of all recordings, and every file of the logs above in its place.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    let mut corpus = Vec::new();
    let mut folders = vec![golden()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let parser = match name.unwrap_or_default() {
                _ if path.is_dir() => {
                    folders.push(path);
                    continue;
                }
                name if name.ends_with("offset-checkpoint") => 0,
                name if name.ends_with(".snapshot") => 1,
                name if name.ends_with(".txnindex") => 2,
                _ => continue,
            };
            let bytes = fs::read(path).unwrap_or_default();
            corpus.push([&[parser][..], &bytes].concat());
        }
    }
    for (log, recorded) in (PARSERS..).zip(logs()) {
        for (index, (_, content)) in (0..).zip(&recorded.files) {
            let file: u8 = index;
            corpus.push([&[log, file << 1][..], content].concat());
            corpus.push([&[log, file << 1 | 1][..], content].concat());
        }
    }
    corpus.sort();
    corpus.dedup();
    corpus
}
