//! Disks that fail: what a broker does about a log directory that gives errors, and how it is repaired. The glue of
//! `server/watch.rs`, and of what `LogManager` does about directories.
//!
//! A broker has one or two log directories. The next operation of a kind on one of them gives an error: then it is out of
//! use, and of its records those are left that were synced, and some of the others. The broker looks from time to time;
//! it stops where no directory is left, else it tells the controller. Once the disk is repaired the broker starts anew.

use std::{fs, io, path::PathBuf, sync::Arc};

use common::ids::BrokerId;
use storage::{error::Fault, shared::LogDirectory};
use zk::{
    documents::notification::log_dir_event_to_bytes,
    paths,
    store::{CreateKind, ZkStore},
};

use crate::{
    broker::segment_sizes,
    bugs::Bug,
    copies::count_records,
    faults::FAULTS_END,
    world::{Event, Millis, World, at_once},
};

/// How often a broker looks for failed log directories, at most.
const LOOK_EVERY_MAX: Millis = 200;
/// How long a disk stays broken at most.
const BROKEN_MAX: Millis = 4000;
/// How long a broker has to tell the controller, and the controller to find others who lead.
const FOUND_AFTER: Millis = 4000;

/// What is done with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Records are written.
    Append,
    /// Records are synced.
    Flush,
    /// Records are read.
    Read,
}

/// The next error of a disk.
#[derive(Clone, Copy, Debug)]
pub struct NextError {
    /// Which log directory, counted.
    pub directory: usize,
    /// What gives it.
    pub operation: Operation,
}

impl World {
    /// A disk is about to fail. One at a time, and only where no broker has lost records.
    pub fn break_disk(&mut self, id: BrokerId) {
        let has_lost = self.brokers.values().any(|one| !one.has_lost.is_empty());
        if has_lost || self.brokers.values().any(|one| one.is_broken()) {
            return;
        }
        let count = self.brokers[&id].directories.len() as u64;
        let directory = usize::try_from(self.random.below(count)).unwrap_or(0);
        let operations = [Operation::Append, Operation::Flush, Operation::Read];
        let operation = self.random.pick(&operations).unwrap_or(Operation::Append);
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.next_error = Some(NextError { directory, operation });
        }
    }

    /// Something is about to be done with the log of a partition: it fails here if it is to.
    pub fn use_disk(&mut self, id: BrokerId, partition: i32, operation: Operation) {
        let broker = &self.brokers[&id];
        let is_due = broker.next_error.is_some_and(|next| {
            next.operation == operation && next.directory == broker.directory_of(partition)
        });
        if is_due
            && let Some(next) = self.brokers.get_mut(&id).and_then(|one| one.next_error.take())
        {
            self.fail_directory(id, next);
        }
    }

    fn fail_directory(&mut self, id: BrokerId, error: NextError) {
        let NextError { directory, operation } = error;
        let broker = &self.brokers[&id];
        let is_in = |partition: &i32| {
            broker.directory_of(*partition) == directory && broker.disk.contains_key(partition)
        };
        let partitions: Vec<i32> = self.partitions.iter().copied().filter(is_in).collect();
        if self.healed || !self.may_lose(id, &partitions) {
            return;
        }
        self.note(format_args!("FAULT log directory {directory} of broker {id}: {operation:?}"));
        for partition in &partitions {
            self.read_copy(id, *partition);
        }
        let process = self.process(id);
        fail(process.directory(directory));
        if let Some(broker) = self.brokers.get_mut(&id) {
            broker.broken.insert(directory);
        }
        self.lose_unsynced(id, &partitions);
        let delay = self.random.between(300, BROKEN_MAX);
        self.after(delay, Event::Repair(id));
    }

    /// What was not synced is cut at some byte.
    pub fn lose_unsynced(&mut self, id: BrokerId, partitions: &[i32]) {
        let mut cuts = Vec::new();
        let broker = &self.brokers[&id];
        for (partition, disk) in &broker.disk {
            if !partitions.contains(partition) {
                continue;
            }
            let path = broker.log_path(*partition);
            let sizes = segment_sizes(&path);
            let synced = |path: &PathBuf| disk.synced.get(path).copied().unwrap_or(0);
            let unsynced: u64 =
                sizes.iter().map(|(path, size)| size.saturating_sub(synced(path))).sum();
            let mut left = self.random.between(0, unsynced);
            for (path, size) in &sizes {
                let kept = synced(path).min(*size);
                let more = left.min(size - kept);
                left -= more;
                let file = fs::File::options().write(true).open(path);
                let cut = file.and_then(|file| file.set_len(kept + more));
                cut.expect("a segment can be cut");
            }
            cuts.push((*partition, count_records(&path)));
        }
        for (partition, count) in cuts {
            self.copies_are_lost(id, partition, count);
        }
    }

    /// A broker looks whether log directories have failed.
    pub fn look_at_directories(&mut self, id: BrokerId) {
        let number = self.process_number(id);
        let delay = self.random.between(LOOK_EVERY_MAX / 4, LOOK_EVERY_MAX);
        self.after(delay, Event::LookAtDirectories(id, number));
        let tells_nobody = self.options.bug == Some(Bug::FailedDirectoriesAreNotTold);
        let process = self.process(id);
        process.has_news |= !process.logs.take_failed().is_empty();
        if process.logs.all_directories_offline() {
            self.note(format_args!("broker {id} stops: all log directories have failed"));
            self.crash(id);
            return self.start_after(id, 30, 1000);
        }
        if process.has_news && !tells_nobody {
            let event = log_dir_event_to_bytes(id);
            let kind = CreateKind::PersistentSequential;
            let store = process.store.clone();
            let told = at_once(store.create(paths::LOG_DIR_EVENT_PREFIX, &event, kind));
            // Else it is tried again at the next look.
            if matches!(told, Some(Ok(_))) {
                self.process(id).has_news = false;
            }
        }
    }

    /// The broken disk of a broker is repaired, and the broker started anew. Once nothing else goes wrong that has time
    /// until it is seen that the others do without.
    pub fn repair(&mut self, id: BrokerId) {
        if self.healed && self.now < FAULTS_END + FOUND_AFTER {
            return;
        }
        self.check_directories(id);
        let Some(broker) = self.brokers.get_mut(&id) else { return };
        broker.next_error = None;
        if broker.broken.is_empty() {
            return;
        }
        broker.broken.clear();
        self.note(format_args!("the disk of broker {id} is repaired"));
        self.crash(id);
        self.start_after(id, 30, 1000);
    }

    /// No other disk fails, and those that are broken will be repaired.
    pub fn heal_disks(&mut self) {
        for id in self.brokers.keys().copied().collect::<Vec<_>>() {
            if let Some(broker) = self.brokers.get_mut(&id) {
                broker.next_error = None;
            }
            self.after(FOUND_AFTER, Event::Repair(id));
        }
    }
}

/// Takes a directory out of use, as the log does that finds an error.
pub fn fail(directory: &Arc<LogDirectory>) {
    let (action, path) = ("use", directory.path().to_owned());
    directory.fail(&Fault { action, path, source: io::Error::other("a simulated disk") });
}
