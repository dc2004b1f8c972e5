//! The log of a coordinator: one partition of its internal topic, which it writes in batches and reads when it loads.

use std::{os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
use record::{
    batch::{Batch, Batches, NO_SEQUENCE},
    build::{BatchBuilder, BuildError},
    compression::Compression,
    control::{self, TransactionResult},
    records,
    validate::{self, Origin, Rules, ValidationError},
    view::RecordView,
};
use replication::{
    partition::{self, Partition, ProduceError},
    replica_manager::Access,
};
use storage::error::LogError;

/// Bytes that one batch may have when it is decompressed.
const DECOMPRESSED_BYTES_MAX: usize = 256 << 20;

/// A record as a coordinator writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// What it is about.
    pub key: Bytes,
    /// What holds from now on; none for a tombstone.
    pub value: Option<Bytes>,
}

/// One partition of a coordinator's topic, as the leader of one epoch sees it.
#[derive(Clone, Debug)]
pub struct CoordinatorLog {
    partition: Arc<Partition>,
    epoch: LeaderEpoch,
    compression: Compression,
}

/// Why records were not appended.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorAppendError {
    /// They make no batch.
    #[error("make a batch of the records")]
    Build(#[from] BuildError),
    /// The topic's rules refuse the batch: it is too large.
    #[error("check the batch")]
    Refused(#[source] ValidationError),
    /// The partition refuses it, or its disk does.
    #[error(transparent)]
    Produce(#[from] ProduceError),
}

/// Why a log cannot be loaded now.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The partition cannot be read.
    #[error("read from offset {from}")]
    Read {
        /// Where the read began.
        from: Offset,
        /// What went wrong.
        source: LogError,
    },
    /// The file cannot be read.
    #[error("read {length} bytes from offset {from}")]
    File {
        /// Where the read began.
        from: Offset,
        /// How much was asked for.
        length: usize,
        /// What went wrong.
        source: std::io::Error,
    },
    /// Another epoch has begun.
    #[error("this broker does not lead the partition in epoch {0} any more")]
    Superseded(LeaderEpoch),
}

/// What has become of appended records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Every in-sync replica has them.
    Done,
    /// Not yet.
    Waiting,
    /// The leadership ended first: nobody knows.
    Lost,
}

/// What a log gives when it is loaded, in its order.
#[derive(Clone, Debug)]
pub enum Loaded<'a> {
    /// A record, and the producer whose open transaction it belongs to.
    Record {
        /// The record; offset and timestamp are in it.
        record: RecordView<'a>,
        /// None for a record that counts at once.
        transaction: Option<ProducerId>,
    },
    /// The end of a producer's transaction.
    Marker {
        /// Whose.
        producer_id: ProducerId,
        /// How it ended.
        result: TransactionResult,
    },
    /// A batch, or what is left of it, that cannot be understood; the reason in words.
    Unreadable {
        /// The batch's first offset.
        offset: Offset,
        /// Why.
        reason: String,
    },
}

impl CoordinatorLog {
    /// The log of a partition that this broker leads since `epoch`. `compression` is what batches are written with.
    pub fn new(
        partition: Arc<Partition>,
        epoch: LeaderEpoch,
        compression: Compression,
    ) -> CoordinatorLog {
        CoordinatorLog { partition, epoch, compression }
    }

    /// The partition.
    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// The leader epoch, which is the coordinator's epoch.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Appends records as one batch, all of the time `now`; gives the offset after it. Returns when it is written, not when it is committed.
    ///
    /// # Errors
    /// Nothing was appended.
    pub fn append(
        &self,
        records: &[LogRecord],
        transaction: Option<(ProducerId, ProducerEpoch)>,
        now: Timestamp,
    ) -> Result<Offset, CoordinatorAppendError> {
        let mut builder = BatchBuilder::new(self.compression);
        if let Some((id, epoch)) = transaction {
            builder = builder.producer(id, epoch, NO_SEQUENCE).transactional();
        }
        for record in records {
            builder.append(now, Some(&record.key), record.value.as_deref(), &[])?;
        }
        let settings = self.partition.settings();
        let rules = Rules { origin: Origin::Coordinator, ..settings.rules(now) };
        let checked = validate::check(builder.finish(), &rules);
        let checked = checked.map_err(CoordinatorAppendError::Refused)?;
        let in_sync_min = Some(settings.in_sync_replicas_min);
        let (appended, _) =
            self.partition.append_as_coordinator(checked, in_sync_min, Some(self.epoch))?;
        Ok(appended.last_offset.plus(1))
    }

    /// Whether the records before `end` are committed.
    pub fn commit_of(&self, end: Offset) -> Commit {
        match self.partition.commit_of(end, self.epoch) {
            // Fewer replicas are in sync than the topic asks for, but all of them have the records: a load would find them.
            partition::Commit::Done | partition::Commit::NotEnoughReplicas => Commit::Done,
            partition::Commit::Waiting if self.is_current() => Commit::Waiting,
            partition::Commit::Waiting | partition::Commit::Lost => Commit::Lost,
        }
    }

    /// Whether this broker still leads the partition in the epoch.
    pub fn is_current(&self) -> bool {
        self.partition.check_access(Access::LeaderOnly, self.epoch).is_ok()
    }

    /// Reads all that is in the log, `buffer_bytes` at a time, at least one batch. Gives how many records there were.
    /// Reads files, so it is not for a thread of the runtime.
    pub fn load(
        &self,
        buffer_bytes: usize,
        take: &mut dyn FnMut(Loaded<'_>),
    ) -> Result<u64, LoadError> {
        let log = self.partition.log();
        let (mut from, end) = (log.start_offset(), log.end_offset());
        let mut bytes = Vec::new();
        let mut count = 0;
        while from < end {
            if !self.is_current() {
                return Err(LoadError::Superseded(self.epoch));
            }
            let read = log.read(from, buffer_bytes, true, end);
            let read = read.map_err(|source| LoadError::Read { from, source })?;
            if read.bytes == 0 {
                break;
            }
            bytes.resize(read.bytes, 0);
            let mut filled = 0;
            for region in &read.regions {
                let part = &mut bytes[filled..filled + region.length];
                let done = region.file.read_exact_at(part, region.position);
                let length = region.length;
                done.map_err(|source| LoadError::File { from, length, source })?;
                filled += region.length;
            }
            let before = from;
            for batch in Batches::new(&bytes) {
                match batch {
                    Ok(batch) => {
                        count += load_batch(&batch, take);
                        from = from.max(batch.header.last_offset.plus(1));
                    }
                    Err(error) => {
                        take(Loaded::Unreadable { offset: from, reason: error.to_string() });
                        break;
                    }
                }
            }
            if from == before {
                break; // Nothing that could be read: said above.
            }
        }
        Ok(count)
    }
}

/// Gives a batch's records; tells how many there were.
fn load_batch(batch: &Batch, take: &mut dyn FnMut(Loaded<'_>)) -> u64 {
    let header = &batch.header;
    let unreadable = |reason: String| Loaded::Unreadable {
        offset: header.base_offset.unwrap_or(header.last_offset),
        reason,
    };
    if header.is_control {
        match control::marker_of(batch.bytes) {
            Ok(Some(marker)) => {
                take(Loaded::Marker { producer_id: header.producer_id, result: marker.result });
            }
            Ok(None) => {}
            Err(error) => take(unreadable(error.to_string())),
        }
        return 1;
    }
    let transaction = header.is_transactional.then_some(header.producer_id);
    let records = match records::records(batch.bytes, DECOMPRESSED_BYTES_MAX) {
        Ok(records) => records,
        Err(error) => {
            take(unreadable(error.to_string()));
            return 0;
        }
    };
    let mut count = 0;
    for record in &records {
        match record {
            Ok(record) => take(Loaded::Record { record, transaction }),
            Err(error) => {
                take(unreadable(error.to_string()));
                break;
            }
        }
        count += 1;
    }
    count
}
