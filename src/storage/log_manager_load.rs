//! Starting the log manager: directories made, locked and listed, logs loaded by several threads.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{
    clock,
    ids::Timestamp,
    topic::{CLUSTER_METADATA_TOPIC, TopicPartition},
};
use parking_lot::Mutex;

use crate::{
    atomic_file,
    directory_lock::{DirectoryLock, take_clean_shutdown},
    directory_name::{self, DirectoryKind},
    error::{Context, Fault},
    file_cache::open_files_max,
    log::Log,
    log_load::{Known, LogOptions},
    log_manager::{Checkpoints, Directory, LogManager, LogManagerOptions, Logs, StartError},
    maintenance::Schedule,
    shared::{LogDirectory, Shared, with_sources},
};

/// Of tiered storage; not a replica.
const REMOTE_INDEX_CACHE: &str = "remote-log-index-cache";
/// How often a long load says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// How far loading has come. Readable from other threads while it goes on.
#[derive(Debug, Default)]
pub struct LoadProgress {
    total: AtomicUsize,
    loaded: AtomicUsize,
}

impl LoadProgress {
    /// Logs that are loaded, and logs in all; both 0 until the directories are listed.
    pub fn loaded_of(&self) -> (usize, usize) {
        (self.loaded.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// A log to be loaded.
pub(crate) struct Job {
    /// Its place in `log.dirs`.
    pub(crate) directory: usize,
    pub(crate) path: PathBuf,
    pub(crate) partition: TopicPartition,
    pub(crate) kind: DirectoryKind,
    pub(crate) known: Known,
    pub(crate) high_watermark: Option<common::ids::Offset>,
}

impl LogManager {
    /// Takes the directories, and loads their logs: as they are after a clean stop, else with recovery.
    ///
    /// # Errors
    /// `StartError` has what the broker cannot start with. A directory that fails otherwise is offline from then on.
    pub fn open(
        options: LogManagerOptions,
        progress: &LoadProgress,
    ) -> Result<LogManager, StartError> {
        let shared = Shared::with_limits(options.seed, open_files_max(), options.producers_max);
        let directories = open_directories(&options)?;
        let mut jobs = Vec::new();
        let mut logs = Logs::default();
        let mut names_gone_logs = false;
        for (index, directory) in directories.iter().enumerate() {
            if directory.directory.is_offline() {
                continue;
            }
            let checkpoints = list_jobs(index, directory, &options, &mut jobs, &mut logs)?;
            let here = jobs.iter().filter(|job| job.directory == index);
            let here: HashSet<&TopicPartition> = here.map(|job| &job.partition).collect();
            names_gone_logs |= checkpoints.names().any(|name| !here.contains(name));
        }
        // Partitions with much to recover come early where they are few; the order is that of the names otherwise.
        progress.total.store(jobs.len(), Ordering::Relaxed);
        let loaded = load(&jobs, &directories, &options, &shared, progress);
        for (job, log) in jobs.into_iter().zip(loaded) {
            match log {
                Some(log) => insert(&mut logs, &job, log)?,
                None => logs.unloaded.push(job),
            }
        }
        let is_offline = |log: &Arc<Log>| log.log_directory().is_offline();
        logs.current.retain(|_, log| !is_offline(log));
        logs.future.retain(|_, log| !is_offline(log));
        logs.unloaded.retain(|job| !directories[job.directory].directory.is_offline());
        if directories.iter().all(|directory| directory.directory.is_offline()) {
            return Err(no_directory(&options));
        }
        Ok(LogManager {
            schedule: Mutex::new(Schedule::new(&options.intervals, options.now)),
            default_config: Mutex::new(options.default_config.clone()),
            options,
            shared,
            directories,
            logs: Mutex::new(logs),
            preferred: Mutex::new(HashMap::new()),
            changing: Mutex::new(()),
            written: Mutex::new(HashMap::new()),
            names_gone_logs: AtomicBool::new(names_gone_logs),
            writing_cleaned: Mutex::new(()),
            hasher: Default::default(),
        })
    }
}

fn names(options: &LogManagerOptions) -> String {
    let names: Vec<String> =
        options.directories.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

fn no_directory(options: &LogManagerOptions) -> StartError {
    StartError::NoDirectory(names(options))
}

/// Source: `LogManager.createAndValidateLogDirs`, `lockLogDirs`.
fn open_directories(options: &LogManagerOptions) -> Result<Vec<Directory>, StartError> {
    let mut seen = HashSet::new();
    let mut directories = Vec::new();
    for path in &options.directories {
        let directory = LogDirectory::new(path);
        let mut lock = None;
        let prepared = match options.failed.contains(path) {
            true => {
                Err(io::Error::other("Failed to load during broker startup")).context("load", path)
            }
            false => prepare(path),
        };
        match prepared {
            Ok(canonical) if !seen.insert(canonical.clone()) => {
                return Err(StartError::DuplicateDirectory(names(options)));
            }
            Ok(_) => match DirectoryLock::acquire(path).context("lock", path) {
                Ok(Some(acquired)) => lock = Some(acquired),
                Ok(None) => return Err(StartError::Locked(path.clone())),
                Err(fault) => directory.fail(&fault),
            },
            Err(fault) => directory.fail(&fault),
        }
        let was_clean = lock.is_some()
            && take_clean_shutdown(path)
                .context("look for the mark of a clean stop in", path)
                .unwrap_or_else(|fault| {
                    directory.fail(&fault);
                    false
                });
        directories.push(Directory { directory, lock: Mutex::new(lock), was_clean });
    }
    match directories.iter().all(|directory| directory.directory.is_offline()) {
        true => Err(no_directory(options)),
        false => Ok(directories),
    }
}

/// Makes the directory if it is not there; its one true path.
fn prepare(path: &Path) -> Result<PathBuf, Fault> {
    if !path.exists() {
        tracing::info!(directory = %path.display(), "log directory not found, creating it");
        fs::create_dir_all(path).context("create", path)?;
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            atomic_file::sync_directory(parent).context("sync", parent)?;
        }
    }
    fs::read_dir(path).context("list", path)?;
    path.canonicalize().context("resolve", path)
}

/// Lists the replicas of a directory. Gives its checkpoints.
fn list_jobs(
    index: usize,
    directory: &Directory,
    options: &LogManagerOptions,
    jobs: &mut Vec<Job>,
    logs: &mut Logs,
) -> Result<Checkpoints, StartError> {
    let path = directory.directory.path();
    let names = match list_directories(path).context("list", path) {
        Ok(names) => names,
        Err(fault) => {
            directory.directory.note_fault(&fault);
            return Ok(Checkpoints::default());
        }
    };
    let checkpoints = Checkpoints::read(path);
    let count_before = jobs.len();
    for name in names {
        if name == REMOTE_INDEX_CACHE {
            continue;
        }
        let path = path.join(&name);
        let Some((partition, kind)) = directory_name::parse(&name) else {
            let path = path.canonicalize().unwrap_or(path);
            return Err(StartError::UnexpectedDirectory { path, name });
        };
        match kind {
            _ if *partition.topic == *CLUSTER_METADATA_TOPIC => {}
            DirectoryKind::Delete => {
                let delay_ms = options.default_config.file_delete_delay_ms;
                logs.deleted.push((Timestamp(options.now.0.saturating_add(delay_ms)), path));
            }
            DirectoryKind::Stray => {
                tracing::warn!(path = %path.display(), "found a stray log");
                logs.strays.push((partition, path));
            }
            DirectoryKind::Live | DirectoryKind::Future => {
                let cleaned_to = Checkpoints::get(&checkpoints.cleaned, &partition);
                let known = Known {
                    clean: directory.was_clean,
                    recovery_point: Checkpoints::get(&checkpoints.recovery_points, &partition),
                    start: Checkpoints::get(&checkpoints.starts, &partition),
                    cleaned_to: cleaned_to.filter(|_| kind == DirectoryKind::Live),
                };
                let high_watermark = Checkpoints::get(&checkpoints.high_watermarks, &partition);
                jobs.push(Job { directory: index, path, partition, kind, known, high_watermark });
            }
        }
    }
    let count = jobs.len() - count_before;
    tracing::info!(directory = %path.display(), count, clean = directory.was_clean, "found logs");
    Ok(checkpoints)
}

fn list_directories(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let file_type = entry.file_type()?;
        let is_directory = file_type.is_dir()
            || file_type.is_symlink()
                && fs::metadata(entry.path()).is_ok_and(|target| target.is_dir());
        if is_directory {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Loads the logs, each by the next thread that is free. `None` for a log whose directory failed.
fn load(
    jobs: &[Job],
    directories: &[Directory],
    options: &LogManagerOptions,
    shared: &Arc<Shared>,
    progress: &LoadProgress,
) -> Vec<Option<Log>> {
    let next = AtomicUsize::new(0);
    let said = Mutex::new(clock::now());
    let work = || {
        let mut loaded = Vec::new();
        while let Some(job) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(index).map(|job| (index, job))
        } {
            let (index, job) = job;
            let directory = &directories[job.directory].directory;
            loaded.push((index, load_one(job, directory, options, shared)));
            let count = progress.loaded.fetch_add(1, Ordering::Relaxed) + 1;
            let mut said = said.lock();
            if said.elapsed() >= PROGRESS_INTERVAL || count == jobs.len() {
                *said = clock::now();
                tracing::info!(loaded = count, total = jobs.len(), "loading logs");
            }
        }
        loaded
    };
    let thread_count = options.threads.clamp(1, jobs.len().max(1));
    let mut logs: Vec<Option<Log>> = jobs.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            // A thread that panicked has found a broken invariant: the process must not go on.
            for (index, log) in thread.join().expect("loading a log does not panic") {
                logs[index] = log;
            }
        }
    });
    logs
}

/// `None` is for a log that cannot be loaded; why is logged.
pub(crate) fn load_one(
    job: &Job,
    directory: &Arc<LogDirectory>,
    options: &LogManagerOptions,
    shared: &Arc<Shared>,
) -> Option<Log> {
    if directory.is_offline() {
        return None;
    }
    let config = options.topic_configs.get(&*job.partition.topic);
    let options = LogOptions {
        partition: job.partition.clone(),
        directory: directory.clone(),
        path: job.path.clone(),
        config: config.unwrap_or(&options.default_config).clone(),
        shared: shared.clone(),
        now: options.now,
    };
    match Log::open(options, job.known) {
        Ok(log) => {
            if let Some(high_watermark) = job.high_watermark {
                log.set_high_watermark(high_watermark);
            }
            log.cleaning.lock().set_cleaned_to(job.known.cleaned_to);
            Some(log)
        }
        Err(error) => {
            let reason = with_sources(&error);
            tracing::error!(path = %job.path.display(), reason, "could not load a log");
            None
        }
    }
}

fn insert(logs: &mut Logs, job: &Job, log: Log) -> Result<(), StartError> {
    let partition = job.partition.clone();
    let kind = if job.kind == DirectoryKind::Future { &mut logs.future } else { &mut logs.current };
    match kind.insert(partition.clone(), Arc::new(log)) {
        None => Ok(()),
        Some(other) => Err(StartError::DuplicatePartition {
            partition,
            first: job.path.clone(),
            second: other.path().to_path_buf(),
        }),
    }
}
