//! What the tests of this crate share: a folder with one log, and batches for it.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use common::{
    ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};
use record::{
    batch::TimestampType,
    build::BatchBuilder,
    compression::{BrokerCompression, Compression},
    control::{EndTransactionMarker, TransactionResult, marker_batch},
    validate::{self, Checked, Rules, check},
};

use crate::{
    error::AppendError,
    log::Log,
    log_append::Appended,
    log_config::LogConfig,
    log_load::{Known, LogOptions},
    scan::{Found, HeaderScan},
    shared::{LogDirectory, Shared},
};

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A folder in memory where there is such a thing: these tests make thousands of files.
pub(crate) fn temporary_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A folder that is one entry of `log.dirs`, with room for the log `t-0`.
pub(crate) struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder { folder: temporary_folder() }
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.folder.path().join("t-0")
    }

    pub(crate) fn options(&self, config: LogConfig) -> LogOptions {
        LogOptions {
            partition: TopicPartition::new("t", 0),
            directory: LogDirectory::new(self.folder.path()),
            path: self.log_path(),
            config: Arc::new(config),
            shared: Shared::new(1),
            now: NOW,
        }
    }

    pub(crate) fn create(&self, config: LogConfig) -> Log {
        Log::create(self.options(config), None).unwrap()
    }

    pub(crate) fn create_with(&self, config: LogConfig, shared: Arc<Shared>) -> Log {
        Log::create(LogOptions { shared, ..self.options(config) }, None).unwrap()
    }

    pub(crate) fn open(&self, config: LogConfig, known: Known) -> Log {
        Log::open(self.options(config), known).unwrap()
    }

    /// Opens the log as after a clean stop.
    pub(crate) fn open_clean(&self, config: LogConfig) -> Log {
        self.open(config, Known { clean: true, ..Known::default() })
    }

    /// Opens the log as after a crash, of which nothing was known to be flushed.
    pub(crate) fn open_after_crash(&self, config: LogConfig) -> Log {
        self.open(config, Known::default())
    }

    pub(crate) fn file_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.log_path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Settings with small segments and an index entry at nearly every batch.
pub(crate) fn small_segments() -> LogConfig {
    LogConfig {
        segment_bytes: 1000,
        index_interval_bytes: 100,
        retention_ms: -1,
        ..LogConfig::default()
    }
}

/// A batch of a producer.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) count: usize,
    pub(crate) value_size: usize,
    pub(crate) timestamp: i64,
    pub(crate) producer: Option<(i64, i16, i32)>,
    pub(crate) transactional: bool,
    pub(crate) compression: Compression,
}

/// One record of a hundred bytes.
pub(crate) fn batch() -> Batch {
    Batch {
        count: 1,
        value_size: 100,
        timestamp: NOW.0,
        producer: None,
        transactional: false,
        compression: Compression::None,
    }
}

impl Batch {
    pub(crate) fn builder(self) -> BatchBuilder {
        let mut builder = BatchBuilder::new(self.compression);
        if let Some((id, epoch, sequence)) = self.producer {
            builder = builder.producer(ProducerId(id), ProducerEpoch(epoch), sequence);
        }
        if self.transactional {
            builder = builder.transactional();
        }
        for number in 0..self.count {
            let value = vec![b'a' + (number % 26) as u8; self.value_size];
            let timestamp = Timestamp(self.timestamp + number as i64);
            builder.append(timestamp, Some(b"key"), Some(&value), &[]).unwrap();
        }
        builder
    }

    pub(crate) fn bytes(self) -> Bytes {
        self.builder().finish()
    }
}

pub(crate) fn rules(origin: validate::Origin) -> Rules {
    Rules {
        now: NOW,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        compression: BrokerCompression::Producer,
        compacted: false,
        message_bytes_max: 1 << 20,
        origin,
    }
}

pub(crate) fn checked(bytes: Bytes) -> Checked {
    check(bytes, &rules(validate::Origin::Client)).unwrap()
}

/// Appends a batch; one that opens a transaction is verified.
pub(crate) fn append(log: &Log, batch: Batch) -> Result<Appended, AppendError> {
    let checked = checked(batch.bytes());
    let guard = match batch.producer {
        Some((id, epoch, sequence)) if batch.transactional => {
            log.start_verification((ProducerId(id), ProducerEpoch(epoch)), sequence, NOW)
        }
        _ => None,
    };
    match guard {
        Some(guard) => log.append_verified(checked, LeaderEpoch(0), guard),
        None => log.append_as_leader(checked, LeaderEpoch(0)),
    }
}

pub(crate) fn end_transaction(log: &Log, producer: (i64, i16), abort: bool) -> Appended {
    let result = if abort { TransactionResult::Abort } else { TransactionResult::Commit };
    let marker = EndTransactionMarker { result, coordinator_epoch: 1 };
    let bytes = marker_batch(ProducerId(producer.0), ProducerEpoch(producer.1), NOW, marker);
    let batch = check(bytes, &rules(validate::Origin::Coordinator)).unwrap();
    let epoch = log.latest_leader_epoch().unwrap();
    log.append_as_coordinator(batch, epoch).unwrap()
}

/// The headers of all batches that the log's segments hold, with their segments' bases.
pub(crate) fn all_batches(log: &Log) -> Vec<(Offset, Found)> {
    let mut batches = Vec::new();
    for view in log.views().0 {
        let file = view.log(&log.shared).unwrap();
        let mut scan = HeaderScan::new(&file, 0, view.size);
        while let Some(found) = scan.next().unwrap() {
            batches.push((view.base, found));
        }
    }
    batches
}

/// Reads the log from an offset on, batch by batch, through `read`: base and last offset of each.
pub(crate) fn read_all(log: &Log, from: Offset, up_to: Offset) -> Vec<(i64, i64)> {
    let mut read_batches = Vec::new();
    let mut from = from;
    loop {
        let read = log.read(from, 1, true, up_to).unwrap();
        let Some(region) = read.regions.first() else { return read_batches };
        let mut bytes = vec![0; region.length];
        std::os::unix::fs::FileExt::read_exact_at(&*region.file, &mut bytes, region.position)
            .unwrap();
        let header = record::entry::EntryHeader::parse(&bytes).unwrap();
        assert_eq!(header.size, bytes.len());
        assert!(header.crc_matches(&bytes));
        read_batches.push((header.first_or_last_offset().0, header.last_offset.0));
        from = header.last_offset.plus(1);
    }
}
