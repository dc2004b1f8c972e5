//! All logs of a broker, in all its log directories. Source: `LogManager`.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use common::{
    ids::{Offset, Timestamp},
    topic::{TopicPartition, Uuid},
};
use parking_lot::Mutex;

use crate::{
    directory_lock::DirectoryLock,
    directory_name::{self, DirectoryKind},
    error::{Context, LogError},
    log::Log,
    log_config::LogConfig,
    log_load::LogOptions,
    log_manager_load::{Job, load_one},
    maintenance::Schedule,
    shared::{LogDirectory, Shared},
};

/// What a `LogManager` needs to know.
#[derive(Clone, Debug)]
pub struct LogManagerOptions {
    /// `log.dirs`.
    pub directories: Vec<PathBuf>,
    /// Those of them that cannot be used, because their `meta.properties` cannot be read or written.
    pub failed: Vec<PathBuf>,
    /// Settings of topics without their own; its `file_delete_delay_ms` is also the delay for whole directories.
    pub default_config: Arc<LogConfig>,
    /// Settings of topics with their own.
    pub topic_configs: HashMap<String, Arc<LogConfig>>,
    /// Threads that load and close logs.
    pub threads: usize,
    /// When maintenance does what.
    pub intervals: Intervals,
    /// Begins the random numbers of segments' jitter.
    pub seed: u64,
    /// Producers that all logs remember together: see `PRODUCERS_MAX`.
    pub producers_max: usize,
    /// The time.
    pub now: Timestamp,
}

/// How often maintenance does what, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// `log.initial.task.delay.ms`: before the first of retention, flush and checkpoints.
    pub initial_delay_ms: i64,
    /// `log.retention.check.interval.ms`.
    pub retention_check_ms: i64,
    /// `log.flush.scheduler.interval.ms`.
    pub flush_check_ms: i64,
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub recovery_point_checkpoint_ms: i64,
    /// `log.flush.start.offset.checkpoint.interval.ms`.
    pub log_start_checkpoint_ms: i64,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_checkpoint_ms: i64,
    /// `producer.id.expiration.check.interval.ms`.
    pub producer_check_ms: i64,
}

impl Default for Intervals {
    /// Kafka's defaults.
    fn default() -> Intervals {
        Intervals {
            initial_delay_ms: 30_000,
            retention_check_ms: 300_000,
            flush_check_ms: i64::MAX,
            recovery_point_checkpoint_ms: 60_000,
            log_start_checkpoint_ms: 60_000,
            high_watermark_checkpoint_ms: 5_000,
            producer_check_ms: 600_000,
        }
    }
}

/// Why the log directories cannot be served at all. `Display` is Kafka's text.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No directory is left.
    #[error(
        "Shutdown broker because none of the specified log dirs from {0} can be created or validated"
    )]
    NoDirectory(String),
    /// One directory is listed twice.
    #[error("Duplicate log directory found: {0}")]
    DuplicateDirectory(String),
    /// Another broker has the directory.
    #[error(
        "Failed to acquire lock on file .lock in {}. A Kafka instance in another process or thread is using this directory.",
        .0.display()
    )]
    Locked(PathBuf),
    /// A directory that is no replica's.
    #[error(
        "Found directory {}, '{name}' is not in the form of topic-partition or topic-partition.uniqueId-delete (if marked for deletion).\nKafka's log directories (and children) should only contain Kafka topic data.",
        path.display()
    )]
    UnexpectedDirectory {
        /// Where it is.
        path: PathBuf,
        /// Its name.
        name: String,
    },
    /// A partition in two directories.
    #[error(
        "Duplicate log directories for {partition} are found in both {} and {}. It is likely because log directory failure happened while broker was replacing current replica with future replica. Recover broker from this failure by manually deleting one of the two directories for this partition. It is recommended to delete the partition in the log directory that is known to have failed recently.",
        first.display(), second.display()
    )]
    DuplicatePartition {
        /// Which one.
        partition: TopicPartition,
        /// The directory that was found later.
        first: PathBuf,
        /// The directory that was found earlier.
        second: PathBuf,
    },
}

/// Why a log is not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// KAFKA_STORAGE_ERROR: a directory is offline, and the partition may be in it.
    #[error("Can not create log for {0} because log directories are offline")]
    Offline(TopicPartition),
    /// LOG_DIR_NOT_FOUND: the directory that was asked for is not one of ours.
    #[error("{} is not a log directory of this broker", .0.display())]
    UnknownDirectory(PathBuf),
    /// KAFKA_STORAGE_ERROR: its log is there, and could not be loaded.
    #[error("The log of {partition} in {} could not be loaded", path.display())]
    NotLoaded {
        /// Which one.
        partition: TopicPartition,
        /// Where its log is.
        path: PathBuf,
    },
    /// UNKNOWN_SERVER_ERROR: a directory cannot have that name, or it would be longer than 255 characters.
    #[error("No directory can be named for {0}")]
    NoName(TopicPartition),
    /// KAFKA_STORAGE_ERROR: no directory took it.
    #[error("No log directory could take {partition}")]
    Failed {
        /// Which one.
        partition: TopicPartition,
        /// What the last directory said.
        source: LogError,
    },
}

/// A log directory and what is held of it.
pub(crate) struct Directory {
    pub(crate) directory: Arc<LogDirectory>,
    pub(crate) lock: Mutex<Option<DirectoryLock>>,
    /// Whether the last broker had stopped cleanly.
    pub(crate) was_clean: bool,
}

/// Logs by partition. Held for a look-up, never across a system call.
#[derive(Default)]
pub(crate) struct Logs {
    pub(crate) current: HashMap<TopicPartition, Arc<Log>>,
    /// Replicas being moved here from another log directory.
    pub(crate) future: HashMap<TopicPartition, Arc<Log>>,
    /// Directories waiting for their removal, and since when it may be.
    pub(crate) deleted: Vec<(Timestamp, PathBuf)>,
    /// Replicas outside the cluster's assignment: kept, never served.
    pub(crate) strays: Vec<(TopicPartition, PathBuf)>,
    /// Partitions whose logs were in directories that have failed since the start: those are there still.
    pub(crate) lost: HashSet<TopicPartition>,
    /// Logs that could not be loaded, of directories that work: nothing may take their place, and what the checkpoints say of them stays.
    pub(crate) unloaded: Vec<Job>,
}

/// All logs of a broker. Shared; any thread may call it, and calls that touch disks take as long as these do.
pub struct LogManager {
    pub(crate) options: LogManagerOptions,
    pub(crate) shared: Arc<Shared>,
    pub(crate) directories: Vec<Directory>,
    pub(crate) logs: Mutex<Logs>,
    pub(crate) default_config: Mutex<Arc<LogConfig>>,
    pub(crate) preferred: Mutex<HashMap<TopicPartition, PathBuf>>,
    /// Held while directories are made, renamed and chosen.
    pub(crate) changing: Mutex<()>,
    pub(crate) schedule: Mutex<Schedule>,
    /// Hashes of the checkpoints as they were last written: what has not changed is not written again.
    pub(crate) written: Mutex<HashMap<PathBuf, u64>>,
    /// Whether the checkpoints may name logs that are gone.
    pub(crate) names_gone_logs: AtomicBool,
    /// Held while the cleaner's checkpoint is written: each thread of the cleaner does, under the same temporary name.
    pub(crate) writing_cleaned: Mutex<()>,
    pub(crate) hasher: std::hash::RandomState,
}

/// What a new log is wanted for.
#[derive(Clone, Debug)]
pub struct NewLog {
    /// Which partition.
    pub partition: TopicPartition,
    /// The topic's id.
    pub topic_id: Option<Uuid>,
    /// Its settings; the defaults if there are none.
    pub config: Option<Arc<LogConfig>>,
    /// Whether the controller says that no replica was here before, so that one in an offline directory is no worry.
    pub is_new: bool,
}

impl LogManager {
    /// The log of a partition.
    pub fn log(&self, partition: &TopicPartition) -> Option<Arc<Log>> {
        self.logs.lock().current.get(partition).cloned()
    }

    /// The log that is to replace the partition's, in another directory.
    pub fn future_log(&self, partition: &TopicPartition) -> Option<Arc<Log>> {
        self.logs.lock().future.get(partition).cloned()
    }

    /// All logs but the future ones.
    pub fn logs(&self) -> Vec<Arc<Log>> {
        self.logs.lock().current.values().cloned().collect()
    }

    /// All future logs.
    pub fn future_logs(&self) -> Vec<Arc<Log>> {
        self.logs.lock().future.values().cloned().collect()
    }

    /// Replicas that are outside the cluster's assignment, and where they are.
    pub fn strays(&self) -> Vec<(TopicPartition, PathBuf)> {
        self.logs.lock().strays.clone()
    }

    /// What all logs share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The log directories, in the order of `log.dirs`.
    pub fn directories(&self) -> impl Iterator<Item = &Arc<LogDirectory>> {
        self.directories.iter().map(|directory| &directory.directory)
    }

    /// Whether a log directory is offline.
    pub fn has_offline_directory(&self) -> bool {
        self.directories().any(|directory| directory.is_offline())
    }

    /// Whether no log directory is left, so that the broker must stop.
    pub fn all_directories_offline(&self) -> bool {
        self.directories().all(|directory| directory.is_offline())
    }

    /// The settings of topics without their own.
    pub fn default_config(&self) -> Arc<LogConfig> {
        self.default_config.lock().clone()
    }

    /// Puts other defaults in force, for logs that are made from now on.
    pub fn set_default_config(&self, config: Arc<LogConfig>) {
        *self.default_config.lock() = config;
    }

    /// Puts a topic's settings in force for its logs.
    pub fn set_topic_config(&self, topic: &str, config: &Arc<LogConfig>) {
        let logs = self.logs.lock();
        for (partition, log) in logs.current.iter().chain(&logs.future) {
            if *partition.topic == *topic {
                log.set_config(config.clone());
            }
        }
    }

    /// Remembers the directory in which a log is to be made, when it will be made.
    pub fn set_preferred_directory(&self, partition: TopicPartition, directory: PathBuf) {
        self.preferred.lock().insert(partition, directory);
    }

    /// The partition's log, made if there is none: in the preferred directory, or in that with the fewest logs.
    pub fn get_or_create(&self, new: &NewLog) -> Result<Arc<Log>, CreateError> {
        let _changing = self.changing.lock();
        let partition = &new.partition;
        if let Some(log) = self.log(partition) {
            return Ok(log);
        }
        if let Some(log) = self.load_again(partition)? {
            return Ok(log);
        }
        if !new.is_new && self.has_offline_directory() {
            return Err(CreateError::Offline(partition.clone()));
        }
        let preferred = self.preferred.lock().get(partition).cloned();
        let log = match preferred {
            Some(path) => {
                self.create_in(new, DirectoryKind::Live, &[self.directory(&path)?.clone()])?
            }
            None => self.create_in(new, DirectoryKind::Live, &self.by_log_count())?,
        };
        self.preferred.lock().remove(partition);
        self.logs.lock().current.insert(partition.clone(), log.clone());
        Ok(log)
    }

    /// Tries once more to load a log that could not be loaded; `None` where there is none such. Holds no lock on the logs meanwhile.
    fn load_again(&self, partition: &TopicPartition) -> Result<Option<Arc<Log>>, CreateError> {
        let Some(job) = self.take_unloaded(partition) else { return Ok(None) };
        let directory = &self.directories[job.directory].directory;
        let loaded = load_one(&job, directory, &self.options, &self.shared);
        let mut logs = self.logs.lock();
        let Some(log) = loaded else {
            let path = job.path.clone();
            logs.unloaded.push(job);
            return Err(CreateError::NotLoaded { partition: partition.clone(), path });
        };
        let log = Arc::new(log);
        tracing::info!(path = %job.path.display(), "the log is loaded now");
        logs.current.insert(partition.clone(), log.clone());
        Ok(Some(log))
    }

    fn take_unloaded(&self, partition: &TopicPartition) -> Option<Job> {
        let mut logs = self.logs.lock();
        let is_it = |job: &Job| job.kind == DirectoryKind::Live && job.partition == *partition;
        let index = logs.unloaded.iter().position(is_it)?;
        Some(logs.unloaded.swap_remove(index))
    }

    /// Makes a log beside the partition's, in another directory, that will replace it.
    pub fn create_future(&self, new: &NewLog, directory: &Path) -> Result<Arc<Log>, CreateError> {
        let _changing = self.changing.lock();
        if let Some(log) = self.future_log(&new.partition) {
            return Ok(log);
        }
        let directory = self.directory(directory)?.clone();
        let log = self.create_in(new, DirectoryKind::Future, &[directory])?;
        self.logs.lock().future.insert(new.partition.clone(), log.clone());
        Ok(log)
    }

    /// Tries the directories in turn.
    fn create_in(
        &self,
        new: &NewLog,
        kind: DirectoryKind,
        directories: &[Arc<LogDirectory>],
    ) -> Result<Arc<Log>, CreateError> {
        let partition = &new.partition;
        let name = directory_name::new_name(partition, kind, Uuid::random())
            .ok_or_else(|| CreateError::NoName(partition.clone()))?;
        self.forget_gone_logs();
        let mut failure = LogError::Offline(PathBuf::new());
        for directory in directories {
            if directory.is_offline() {
                failure = LogError::Offline(directory.path().to_owned());
                continue;
            }
            let options = LogOptions {
                partition: partition.clone(),
                directory: directory.clone(),
                path: directory.path().join(&name),
                config: new.config.clone().unwrap_or_else(|| self.default_config()),
                shared: self.shared.clone(),
                now: common::clock::wall_clock(),
            };
            match Log::create(options, new.topic_id) {
                Ok(log) => {
                    tracing::debug!(%partition, path = %log.path().display(), "created a log");
                    return Ok(Arc::new(log));
                }
                Err(error) => failure = error,
            }
        }
        Err(CreateError::Failed { partition: partition.clone(), source: failure })
    }

    /// What the checkpoints say of a log that is gone would be taken for that of the next one of its name, if the broker were
    /// killed before they are written again: records that nobody has committed could be read.
    fn forget_gone_logs(&self) {
        if self.names_gone_logs.swap(false, Ordering::Relaxed) {
            self.checkpoint_recovery_points();
            self.checkpoint_log_starts();
            self.checkpoint_high_watermarks();
            self.checkpoint_cleaned();
        }
    }

    /// The directory of this path.
    pub fn directory(&self, path: &Path) -> Result<&Arc<LogDirectory>, CreateError> {
        self.directories()
            .find(|directory| directory.path() == path)
            .ok_or_else(|| CreateError::UnknownDirectory(path.to_owned()))
    }

    /// Directories that work, those with the fewest logs first.
    fn by_log_count(&self) -> Vec<Arc<LogDirectory>> {
        let mut counts: Vec<(usize, Arc<LogDirectory>)> = self
            .directories()
            .filter(|directory| !directory.is_offline())
            .map(|directory| (0, directory.clone()))
            .collect();
        if counts.len() > 1 {
            let logs = self.logs.lock();
            for log in logs.current.values().chain(logs.future.values()) {
                let directory = log.log_directory();
                if let Some(count) =
                    counts.iter_mut().find(|count| Arc::ptr_eq(&count.1, directory))
                {
                    count.0 += 1;
                }
            }
        }
        counts.sort_by_key(|count| count.0);
        counts.into_iter().map(|count| count.1).collect()
    }

    /// Takes a partition's log out of use at once; its files go later. Whether there was one.
    ///
    /// # Errors
    /// `LogError::Offline` also where the log is, or may be, in a directory that has failed: it would be there again after
    /// the next start.
    pub fn delete(&self, partition: &TopicPartition) -> Result<bool, LogError> {
        let _changing = self.changing.lock();
        if let Some(job) = self.take_unloaded(partition) {
            return self.delete_unloaded(job);
        }
        let log = self.logs.lock().current.remove(partition);
        if log.is_none()
            && let Some(offline) = self.directories().find(|directory| directory.is_offline())
            && self.may_be_offline(partition)
        {
            return Err(LogError::Offline(offline.path().to_owned()));
        }
        self.delete_log(log)
    }

    /// Whether a partition without a log may have one in a directory that has failed. Not if it was deleted here a short time
    /// ago: who did not hear of that asks again.
    fn may_be_offline(&self, partition: &TopicPartition) -> bool {
        let logs = self.logs.lock();
        let deleted = |(_, path): &(Timestamp, PathBuf)| {
            let name = path.file_name()?.to_str()?;
            directory_name::parse(name).map(|(partition, _)| partition)
        };
        let was_deleted = logs.deleted.iter().filter_map(deleted).any(|one| one == *partition);
        logs.lost.contains(partition) || !was_deleted
    }

    /// One whose files cannot be read can still go.
    fn delete_unloaded(&self, job: Job) -> Result<bool, LogError> {
        let name = deleted_name(&job.partition);
        let path = self.directories[job.directory].directory.path().join(name);
        let renamed = fs::rename(&job.path, &path).context("rename", &job.path);
        self.names_gone_logs.store(true, Ordering::Relaxed);
        let mut logs = self.logs.lock();
        if let Err(fault) = renamed {
            self.directories[job.directory].directory.note_fault(&fault);
            logs.unloaded.push(job);
            return Err(fault.into());
        }
        logs.deleted.push((self.when_to_remove(), path));
        Ok(true)
    }

    /// Takes a future log out of use: the move was given up. Whether there was one.
    pub fn delete_future(&self, partition: &TopicPartition) -> Result<bool, LogError> {
        let _changing = self.changing.lock();
        let log = self.logs.lock().future.remove(partition);
        self.delete_log(log)
    }

    /// Puts a log aside that is of another topic of this name: it is kept as a stray, and never served. Whether there was
    /// one.
    pub fn set_aside(&self, partition: &TopicPartition) -> Result<bool, LogError> {
        let _changing = self.changing.lock();
        let log = self.logs.lock().current.remove(partition);
        let Some(log) = log else { return Ok(false) };
        let name = directory_name::new_name(partition, DirectoryKind::Stray, Uuid::random())
            .expect("only future names can be too long");
        self.names_gone_logs.store(true, Ordering::Relaxed);
        log.rename(&name)?;
        log.abandon(&mut log.writer.lock());
        let path = log.path().to_path_buf();
        tracing::warn!(%partition, topic_id = ?log.topic_id(), path = %path.display(), "the log is of another topic of this name: it is kept aside, and not served");
        self.logs.lock().strays.push((partition.clone(), path));
        Ok(true)
    }

    fn delete_log(&self, log: Option<Arc<Log>>) -> Result<bool, LogError> {
        let Some(log) = log else { return Ok(false) };
        self.names_gone_logs.store(true, Ordering::Relaxed);
        log.rename(&deleted_name(log.partition()))?;
        log.abandon(&mut log.writer.lock());
        let due = self.when_to_remove();
        tracing::info!(partition = %log.partition(), path = %log.path().display(), "log is marked for deletion");
        self.logs.lock().deleted.push((due, log.path().to_path_buf()));
        Ok(true)
    }

    fn when_to_remove(&self) -> Timestamp {
        let delay_ms = self.default_config().file_delete_delay_ms;
        Timestamp(common::clock::wall_clock().0.saturating_add(delay_ms))
    }

    /// Puts a future log that has caught up in the place of the partition's log, which is deleted.
    pub fn replace_with_future(
        &self,
        partition: &TopicPartition,
    ) -> Result<Option<Arc<Log>>, LogError> {
        let _changing = self.changing.lock();
        let Some(future) = self.logs.lock().future.remove(partition) else { return Ok(None) };
        let name = directory_name::new_name(partition, DirectoryKind::Live, Uuid::ZERO)
            .expect("only future names can be too long");
        future.rename(&name)?;
        let old = self.logs.lock().current.insert(partition.clone(), future.clone());
        if let Some(old) = &old {
            future.cleaning.lock().set_cleaned_to(old.cleaning.lock().cleaned_to());
        }
        self.delete_log(old)?;
        Ok(Some(future))
    }

    /// Drops the logs of directories that have gone offline since the last call; which, and the partitions that were
    /// served from them.
    pub fn take_failed(&self) -> Vec<(PathBuf, Vec<TopicPartition>)> {
        let mut failed = Vec::new();
        for Directory { directory, lock, .. } in &self.directories {
            if !directory.is_offline() || lock.lock().take().is_none() {
                continue;
            }
            let mut logs = self.logs.lock();
            let is_there = |log: &Arc<Log>| Arc::ptr_eq(log.log_directory(), directory);
            logs.future.retain(|_, log| !is_there(log));
            let partitions: Vec<TopicPartition> = logs
                .current
                .extract_if(|_, log| is_there(log))
                .map(|(partition, _)| partition)
                .collect();
            logs.lost.extend(partitions.iter().cloned());
            logs.deleted.retain(|(_, path)| !path.starts_with(directory.path()));
            failed.push((directory.path().to_owned(), partitions));
        }
        failed
    }

    /// Sum of the sizes of a directory's logs.
    pub fn directory_size(&self, directory: &LogDirectory) -> u64 {
        let logs = self.logs.lock();
        let there = logs.current.values().chain(logs.future.values());
        there
            .filter(|log| std::ptr::eq(&**log.log_directory(), directory))
            .map(|log| log.size())
            .sum()
    }
}

fn deleted_name(partition: &TopicPartition) -> String {
    directory_name::new_name(partition, DirectoryKind::Delete, Uuid::random())
        .expect("only future names can be too long")
}

/// What the checkpoints of a directory say of its logs.
#[derive(Default)]
pub(crate) struct Checkpoints {
    pub(crate) recovery_points: crate::checkpoint::Offsets,
    pub(crate) starts: crate::checkpoint::Offsets,
    pub(crate) high_watermarks: crate::checkpoint::Offsets,
    pub(crate) cleaned: crate::checkpoint::Offsets,
}

impl Checkpoints {
    /// Reads all four. One that cannot be read is as good as none: recovery then reads more, and logs begin at their
    /// first segment.
    pub(crate) fn read(directory: &Path) -> Checkpoints {
        let read = |name: &str| {
            let path = directory.join(name);
            crate::checkpoint::read_offsets(&path).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "checkpoint cannot be read, going on without it");
                Default::default()
            })
        };
        Checkpoints {
            recovery_points: read(crate::checkpoint::RECOVERY_POINT_FILE),
            starts: read(crate::checkpoint::LOG_START_FILE),
            high_watermarks: read(crate::checkpoint::HIGH_WATERMARK_FILE),
            cleaned: read(crate::checkpoint::CLEANER_FILE),
        }
    }

    /// The partitions of which they say something; some more than once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &TopicPartition> {
        let all = [&self.recovery_points, &self.starts, &self.high_watermarks, &self.cleaned];
        all.into_iter().flat_map(|offsets| offsets.keys())
    }

    pub(crate) fn get(
        offsets: &crate::checkpoint::Offsets,
        partition: &TopicPartition,
    ) -> Option<Offset> {
        offsets.get(partition).copied()
    }
}
