//! One partition's log: what it holds in memory, and what can be asked of it without touching a file.
//!
//! Two locks: `writer` belongs to those who change files, one at a time, and may be held while a disk is slow;
//! `state` is held for a few lines, never across a system call. `writer` is taken first. `cleaning`, how far compaction
//! is, is taken last.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use common::{
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp},
    topic::{TopicPartition, Uuid},
};
use parking_lot::Mutex;

use crate::{
    cleaner::progress::Progress,
    error::{AppendError, Fault, LogError},
    leader_epochs::LeaderEpochs,
    log_config::LogConfig,
    producer_state::{OpenTransaction, Producer, ProducerStates},
    recent::Recent,
    segment::Segment,
    shared::{LogDirectory, Shared},
    verification::{VerificationGuard, Verifications},
};

/// One replica's log on disk.
pub struct Log {
    pub(crate) partition: TopicPartition,
    pub(crate) directory: Arc<LogDirectory>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) state: Mutex<State>,
    pub(crate) offsets: PublishedOffsets,
    pub(crate) cleaning: Mutex<Progress>,
}

/// The log's offsets, readable while a writer waits for its disk. Written under the state's lock.
#[derive(Debug)]
pub(crate) struct PublishedOffsets {
    start: AtomicI64,
    end: AtomicI64,
    high_watermark: AtomicI64,
    last_stable: AtomicI64,
}

/// What readers need.
pub(crate) struct State {
    /// The replica's directory.
    pub(crate) path: Arc<Path>,
    pub(crate) config: Arc<LogConfig>,
    /// Never empty; the last one is active.
    pub(crate) segments: Vec<Segment>,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    pub(crate) high_watermark: Offset,
    pub(crate) epochs: LeaderEpochs,
    pub(crate) producers: ProducerStates,
    pub(crate) verifications: Option<Box<Verifications>>,
    /// First offset of an aborted transaction that is on its way into its index: it holds the stable offset till then.
    pub(crate) unindexed: Option<Offset>,
    /// Counts changes of transaction indexes, so that a reader does not keep what it read before one.
    pub(crate) index_changes: u32,
    pub(crate) recent: Option<Box<Recent>>,
    /// Where the batch with an upper bound of reads begins, as last looked up: the offset, the segment, the position.
    pub(crate) bound: Option<Box<(Offset, Offset, u64)>>,
    pub(crate) topic_id: Option<Uuid>,
    /// Counts truncations and deletions, so that a reader notices that files changed under it.
    pub(crate) generation: u32,
}

/// What only writers need.
pub(crate) struct Writer {
    pub(crate) active: Option<Box<Active>>,
    pub(crate) recovery_point: Offset,
    /// Offsets of the snapshot files there are, rising.
    pub(crate) snapshots: Vec<Offset>,
    /// Offset at which the producers were last written, or loaded.
    pub(crate) last_snapshot: Offset,
    /// Files that wait for their removal, and since when they may go.
    pub(crate) deletions: Vec<(Timestamp, String)>,
    /// The epochs in memory are not those in the file.
    pub(crate) epochs_dirty: bool,
    /// `partition.metadata` was written, and not synced yet.
    pub(crate) topic_id_unsynced: bool,
    /// Files were made or renamed since the directory was synced.
    pub(crate) directory_dirty: bool,
    /// A write failed, and what it left behind could not be cut off.
    pub(crate) must_cut: bool,
    pub(crate) last_flush: Timestamp,
    /// What truncations have cut off is kept aside: see `kept_tail`.
    pub(crate) keeps_tails: bool,
    pub(crate) closed: bool,
}

/// What appends need of the active segment; loaded by the first one.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) created: Timestamp,
    /// Largest timestamp of the segment's first batch, or of the append it came with; `None` while it is empty.
    pub(crate) first_timestamp: Option<Timestamp>,
    pub(crate) last_time_entry: Timestamp,
    pub(crate) bytes_since_index: u64,
    pub(crate) jitter_ms: i64,
}

/// Offsets of a log at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffsets {
    /// First offset that may be read.
    pub start: Offset,
    /// Offset of the next record.
    pub end: Offset,
    /// Below it everything is replicated.
    pub high_watermark: Offset,
    /// Below it every transaction is decided; at most the high watermark. Source: KIP-98.
    pub last_stable: Offset,
}

/// A producer of a log, as DescribeProducers shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Its id.
    pub producer_id: ProducerId,
    /// What the log knows of it.
    pub producer: Producer,
}

impl PublishedOffsets {
    pub(crate) fn new() -> PublishedOffsets {
        PublishedOffsets {
            start: AtomicI64::new(0),
            end: AtomicI64::new(0),
            high_watermark: AtomicI64::new(0),
            last_stable: AtomicI64::new(0),
        }
    }
}

impl State {
    /// Makes changed offsets visible. Called before the lock is left.
    pub(crate) fn publish(&self, offsets: &PublishedOffsets) {
        assert!(self.start <= self.high_watermark, "the log starts at or below the high watermark");
        assert!(self.high_watermark <= self.end, "the high watermark is at or below the end");
        offsets.start.store(self.start.0, Ordering::Release);
        offsets.high_watermark.store(self.high_watermark.0, Ordering::Release);
        offsets.last_stable.store(self.last_stable().0, Ordering::Release);
        offsets.end.store(self.end.0, Ordering::Release);
    }

    pub(crate) fn last_stable(&self) -> Offset {
        let unstable =
            self.producers.first_unstable_offset().into_iter().chain(self.unindexed).min();
        let unstable = unstable.map(|offset| offset.max(self.start));
        unstable.map_or(self.high_watermark, |offset| offset.min(self.high_watermark))
    }

    pub(crate) fn active(&self) -> &Segment {
        self.segments.last().expect("a log has a segment")
    }

    pub(crate) fn active_mut(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a log has a segment")
    }

    /// The segment that holds the offset, or would; the first one for offsets before all.
    pub(crate) fn segment_index(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base <= offset).saturating_sub(1)
    }

    /// Where a segment ends: the next one's base, or the log's end.
    pub(crate) fn segment_end(&self, index: usize) -> Offset {
        self.segments.get(index + 1).map_or(self.end, |next| next.base)
    }

    pub(crate) fn size(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }
}

impl Log {
    /// Which partition it is of.
    pub fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    /// The entry of `log.dirs` that it is in.
    pub fn log_directory(&self) -> &Arc<LogDirectory> {
        &self.directory
    }

    /// The replica's directory.
    pub fn path(&self) -> Arc<Path> {
        self.state.lock().path.clone()
    }

    /// The topic's id, where `partition.metadata` is kept.
    pub fn topic_id(&self) -> Option<Uuid> {
        self.state.lock().topic_id
    }

    /// The settings in force.
    pub fn config(&self) -> Arc<LogConfig> {
        self.state.lock().config.clone()
    }

    /// Puts other settings in force; segments that exist keep their jitter.
    pub fn set_config(&self, config: Arc<LogConfig>) {
        self.state.lock().config = config;
    }

    /// First offset that may be read.
    pub fn start_offset(&self) -> Offset {
        Offset(self.offsets.start.load(Ordering::Acquire))
    }

    /// Offset of the next record.
    pub fn end_offset(&self) -> Offset {
        Offset(self.offsets.end.load(Ordering::Acquire))
    }

    /// Below it everything is replicated.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.offsets.high_watermark.load(Ordering::Acquire))
    }

    /// Below it every transaction is decided; at most the high watermark. Source: KIP-98.
    pub fn last_stable_offset(&self) -> Offset {
        Offset(self.offsets.last_stable.load(Ordering::Acquire))
    }

    /// All offsets of one moment.
    pub fn log_offsets(&self) -> LogOffsets {
        let state = self.state.lock();
        LogOffsets {
            start: state.start,
            end: state.end,
            high_watermark: state.high_watermark,
            last_stable: state.last_stable(),
        }
    }

    /// Sets the high watermark, within the log's start and end; what it is then. It may also go down.
    pub fn set_high_watermark(&self, offset: Offset) -> Offset {
        let mut state = self.state.lock();
        let high_watermark = offset.clamp(state.start, state.end);
        if high_watermark != state.high_watermark {
            state.high_watermark = high_watermark;
            state.producers.forget_replicated(high_watermark);
            state.publish(&self.offsets);
        }
        high_watermark
    }

    /// First offset that is not known to be on disk.
    pub fn recovery_point(&self) -> Offset {
        self.writer.lock().recovery_point
    }

    /// Bytes of all segments' batches.
    pub fn size(&self) -> u64 {
        self.state.lock().size()
    }

    /// How many segments there are; at least one.
    pub fn segment_count(&self) -> usize {
        self.state.lock().segments.len()
    }

    /// Base offset of the first segment.
    pub fn first_segment_base(&self) -> Offset {
        self.state.lock().segments[0].base
    }

    /// Notes that a leader epoch begins at the log's end: this replica became the leader. Reaches the disk with the
    /// next flush or maintenance, before any record of the epoch counts as flushed.
    pub fn assign_leader_epoch(&self, epoch: LeaderEpoch) {
        let mut writer = self.writer.lock();
        let mut state = self.state.lock();
        let end = state.end;
        if epoch.0 >= 0 && state.epochs.assign(epoch, end) {
            writer.epochs_dirty = true;
            self.shared.want_attention(&self.partition);
        }
    }

    /// The newest leader epoch.
    pub fn latest_leader_epoch(&self) -> Option<LeaderEpoch> {
        self.state.lock().epochs.latest()
    }

    /// The leader epochs and where they begin.
    pub fn leader_epochs(&self) -> LeaderEpochs {
        self.state.lock().epochs.clone()
    }

    /// The largest epoch at or before `epoch`, and where it ends. Source: KIP-101.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let state = self.state.lock();
        state.epochs.end_offset_for(epoch, state.end)
    }

    /// The producers the log remembers.
    pub fn producers(&self) -> Vec<ActiveProducer> {
        let state = self.state.lock();
        let active = |(producer_id, producer): (ProducerId, &Producer)| ActiveProducer {
            producer_id,
            producer: producer.clone(),
        };
        state.producers.iter().map(active).collect()
    }

    /// How many producers the log remembers.
    pub fn producer_count(&self) -> usize {
        self.state.lock().producers.len()
    }

    /// Whether a transaction of the producer is open here.
    pub fn has_open_transaction(&self, producer_id: ProducerId) -> bool {
        self.state.lock().producers.has_open_transaction(producer_id)
    }

    /// Begins to verify that the log is part of a transaction of the producer; the guard goes with the append, once the
    /// transaction's coordinator has said so. None where the transaction is open here: there is nothing to ask.
    /// Source: `UnifiedLog.maybeStartTransactionVerification`.
    pub fn start_verification(
        &self,
        producer: (ProducerId, ProducerEpoch),
        first_sequence: i32,
        now: Timestamp,
    ) -> Option<VerificationGuard> {
        let mut state = self.state.lock();
        if state.producers.has_open_transaction(producer.0) {
            return None;
        }
        let verifications = state.verifications.get_or_insert_default();
        Some(verifications.start(producer, first_sequence, now))
    }

    /// Lets a coordinator append to the producer's transaction, which brings no guard.
    pub fn confirm_verification(&self, producer_id: ProducerId, guard: VerificationGuard) {
        if let Some(verifications) = &mut self.state.lock().verifications {
            verifications.confirm(producer_id, guard);
        }
    }

    /// The transactions that are open here, in the order of their beginnings.
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.state.lock().producers.open_transactions().collect()
    }

    /// Adds when each producer without an open transaction was last heard of.
    pub(crate) fn add_idle_producers(&self, times: &mut Vec<Timestamp>) {
        let state = self.state.lock();
        let idle =
            state.producers.iter().filter(|(_, producer)| producer.transaction_start.is_none());
        times.extend(idle.map(|(_, producer)| producer.last_timestamp));
    }

    /// Forgets producers without an open transaction that were last heard of before `cutoff`, and `last` of those heard
    /// of then. How many.
    pub(crate) fn forget_producers(&self, cutoff: Timestamp, last: &mut usize) -> usize {
        let mut state = self.state.lock();
        let forgotten = state.producers.forget(cutoff, last);
        state.producers.count_in(&self.shared.producers);
        forgotten
    }

    /// Forgets producers that were silent for `producer.id.expiration.ms`.
    pub fn expire_producers(&self, now: Timestamp) {
        let mut state = self.state.lock();
        let expiration_ms = state.config.producer_id_expiration_ms;
        state.producers.expire(now, expiration_ms);
        state.producers.count_in(&self.shared.producers);
        if let Some(verifications) = &mut state.verifications {
            verifications.expire(now, expiration_ms);
            if verifications.is_empty() {
                state.verifications = None;
            }
        }
    }

    /// Refuses where the directory is offline, or the log is closed.
    pub(crate) fn check_usable(&self, writer: &Writer) -> Result<(), LogError> {
        match self.directory.is_offline() || writer.closed {
            true => Err(LogError::Offline(self.directory.path().to_owned())),
            false => Ok(()),
        }
    }

    /// Notes a fault: the directory goes offline, unless the disk is only full, the process short of something, or
    /// the data at fault.
    pub(crate) fn note_fault(&self, fault: &Fault) {
        self.directory.note_fault(fault);
    }

    /// Notes a fault of an append, and gives what its caller is told.
    pub(crate) fn append_fault(&self, fault: Fault) -> AppendError {
        self.note_fault(&fault);
        match fault.is_disk_full() {
            true => AppendError::DiskFull(self.directory.path().to_owned()),
            false => AppendError::Fault(fault),
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Log")
            .field("partition", &self.partition)
            .field("offsets", &self.offsets)
            .finish()
    }
}
