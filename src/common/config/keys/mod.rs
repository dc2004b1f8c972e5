//! The rows of the config table, a file per group.

mod cleaner;
mod general;
mod groups;
mod kraft;
mod log;
mod metrics;
mod network;
mod quotas;
mod replication;
mod sasl;
mod security;
mod tiered_storage;
mod topic;
mod transactions;
mod zookeeper;

use super::table::{ConfigKey, Group};

/// Broker keys by group.
pub(super) const BROKER: &[Group] = &[
    Group { title: "General", keys: general::KEYS },
    Group { title: "ZooKeeper", keys: zookeeper::KEYS },
    Group { title: "Network", keys: network::KEYS },
    Group { title: "Replication", keys: replication::KEYS },
    Group { title: "Log", keys: log::KEYS },
    Group { title: "Log cleaner", keys: cleaner::KEYS },
    Group { title: "Group coordinator", keys: groups::KEYS },
    Group { title: "Transactions", keys: transactions::KEYS },
    Group { title: "Quotas", keys: quotas::KEYS },
    Group { title: "Security", keys: security::KEYS },
    Group { title: "SASL", keys: sasl::KEYS },
    Group { title: "Metrics", keys: metrics::KEYS },
    Group { title: "Tiered storage", keys: tiered_storage::KEYS },
    Group { title: "KRaft", keys: kraft::KEYS },
];

/// Topic keys.
pub(super) const TOPIC: &[ConfigKey] = topic::KEYS;

/// The broker key that a topic key falls back to.
pub(super) const TOPIC_SYNONYMS: &[(&str, &str)] = &[
    ("segment.bytes", "log.segment.bytes"),
    ("segment.ms", "log.roll.ms"),
    ("segment.jitter.ms", "log.roll.jitter.ms"),
    ("segment.index.bytes", "log.index.size.max.bytes"),
    ("flush.messages", "log.flush.interval.messages"),
    ("flush.ms", "log.flush.interval.ms"),
    ("retention.bytes", "log.retention.bytes"),
    ("retention.ms", "log.retention.ms"),
    ("max.message.bytes", "message.max.bytes"),
    ("index.interval.bytes", "log.index.interval.bytes"),
    ("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    ("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    ("cleanup.policy", "log.cleanup.policy"),
    ("unclean.leader.election.enable", "unclean.leader.election.enable"),
    ("min.insync.replicas", "min.insync.replicas"),
    ("compression.type", "compression.type"),
    ("compression.gzip.level", "compression.gzip.level"),
    ("compression.lz4.level", "compression.lz4.level"),
    ("compression.zstd.level", "compression.zstd.level"),
    ("preallocate", "log.preallocate"),
    ("message.format.version", "log.message.format.version"),
    ("message.timestamp.type", "log.message.timestamp.type"),
    ("message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms"),
    ("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    ("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    ("message.downconversion.enable", "log.message.downconversion.enable"),
    ("local.retention.ms", "log.local.retention.ms"),
    ("local.retention.bytes", "log.local.retention.bytes"),
];
