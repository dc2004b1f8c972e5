//! Keys of compaction.

use crate::config::table::Importance::Medium;
use crate::config::table::Update::ClusterWide;
use crate::config::table::{ConfigKey, boolean, double, int, long};
use crate::config::validate::Valid::{AtLeast, Between};

pub(super) const KEYS: &[ConfigKey] = &[
    int("log.cleaner.threads", Medium)
        .default("1")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("compaction threads"),
    double("log.cleaner.io.max.bytes.per.second", Medium)
        .default("1.7976931348623157E308")
        .update(ClusterWide)
        .doc("combined read+write rate cap of compaction"),
    long("log.cleaner.dedupe.buffer.size", Medium)
        .default("134217728")
        .update(ClusterWide)
        .doc("memory for key maps over all threads; more than 1 MiB per thread needed"),
    int("log.cleaner.io.buffer.size", Medium)
        .default("524288")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("compaction I/O buffers over all threads"),
    double("log.cleaner.io.buffer.load.factor", Medium)
        .default("0.9")
        .update(ClusterWide)
        .doc("fill limit of the key map"),
    long("log.cleaner.backoff.ms", Medium)
        .default("15000")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("sleep when nothing is to clean"),
    double("log.cleaner.min.cleanable.ratio", Medium)
        .default("0.5")
        .valid(Between(0, 1))
        .update(ClusterWide)
        .doc("dirty share that makes a log eligible"),
    boolean("log.cleaner.enable", Medium).default("true").doc("run compaction at all"),
    long("log.cleaner.delete.retention.ms", Medium)
        .default("86400000")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("how long tombstones and txn markers stay"),
    long("log.cleaner.min.compaction.lag.ms", Medium)
        .default("0")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("minimum age before compaction"),
    long("log.cleaner.max.compaction.lag.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .doc("age that forces compaction"),
];
