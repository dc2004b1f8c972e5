//! Keys of one topic, in the order in which Kafka checks them.

use crate::config::table::Effect::{JavaOnly, NewestFormat};
use crate::config::table::Importance::{Low, Medium};
use crate::config::table::{ConfigKey, boolean, double, int, list, long, string};
use crate::config::validate::Valid::{
    AtLeast, Between, GzipLevel, ListOf, OneOf, ThrottledReplicas, Version,
};

pub(super) const KEYS: &[ConfigKey] = &[
    int("segment.bytes", Medium)
        .default("1073741824")
        .valid(AtLeast(14))
        .doc("segment size that triggers a roll"),
    long("segment.ms", Medium)
        .default("604800000")
        .valid(AtLeast(1))
        .doc("segment age that triggers a roll"),
    long("segment.jitter.ms", Medium)
        .default("0")
        .valid(AtLeast(0))
        .doc("random reduction of the roll age"),
    int("segment.index.bytes", Medium)
        .default("10485760")
        .valid(AtLeast(4))
        .doc("largest offset index file"),
    long("flush.messages", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(1))
        .doc("records before a forced fsync"),
    long("flush.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .doc("time before a forced fsync"),
    long("retention.bytes", Medium)
        .default("-1")
        .doc("size limit per partition under delete policy, -1 unlimited"),
    long("retention.ms", Medium)
        .default("604800000")
        .valid(AtLeast(-1))
        .doc("age limit under delete policy, -1 unlimited"),
    int("max.message.bytes", Medium)
        .default("1048588")
        .valid(AtLeast(0))
        .doc("largest record batch accepted"),
    int("index.interval.bytes", Medium)
        .default("4096")
        .valid(AtLeast(0))
        .doc("bytes between index entries"),
    long("delete.retention.ms", Medium)
        .default("86400000")
        .valid(AtLeast(0))
        .doc("how long tombstones stay after compaction"),
    long("min.compaction.lag.ms", Medium)
        .default("0")
        .valid(AtLeast(0))
        .doc("minimum record age before compaction (must not exceed max.compaction.lag.ms)"),
    long("max.compaction.lag.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(1))
        .doc("record age that forces compaction; also caps segment age of compacted topics"),
    long("file.delete.delay.ms", Medium)
        .default("60000")
        .valid(AtLeast(0))
        .doc("delay before removing deleted files"),
    double("min.cleanable.dirty.ratio", Medium)
        .default("0.5")
        .valid(Between(0, 1))
        .doc("dirty share that makes the log eligible for compaction"),
    list("cleanup.policy", Medium)
        .default("delete")
        .valid(ListOf(&["compact", "delete"]))
        .doc("delete, compact or both"),
    boolean("unclean.leader.election.enable", Medium)
        .default("false")
        .doc("let out-of-sync replicas become leader"),
    int("min.insync.replicas", Medium)
        .default("1")
        .valid(AtLeast(1))
        .doc("in-sync replicas needed for acks=all"),
    string("compression.type", Medium)
        .default("producer")
        .valid(OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]))
        .doc("final codec of stored batches; producer keeps the original"),
    int("compression.gzip.level", Medium)
        .default("-1")
        .valid(GzipLevel)
        .doc("gzip level when compression.type is gzip"),
    int("compression.lz4.level", Medium)
        .default("9")
        .valid(Between(1, 17))
        .doc("lz4 level when compression.type is lz4"),
    int("compression.zstd.level", Medium)
        .default("3")
        .valid(Between(-131072, 22))
        .doc("zstd level when compression.type is zstd"),
    boolean("preallocate", Medium).default("false").doc("allocate segment files at full size"),
    string("message.format.version", Medium)
        .default("3.0-IV1")
        .valid(Version)
        .effect(NewestFormat)
        .doc("deprecated record format cap; records are stored in the newest format, and converted for consumers that need an old one"),
    string("message.timestamp.type", Medium)
        .default("CreateTime")
        .valid(OneOf(&["CreateTime", "LogAppendTime"]))
        .doc("keep client timestamps or stamp on append"),
    long("message.timestamp.difference.max.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .doc("deprecated symmetric tolerance; used where before/after are left at default"),
    long("message.timestamp.before.max.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .doc("how far a record timestamp may lie in the past"),
    long("message.timestamp.after.max.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .doc("how far a record timestamp may lie in the future"),
    list("leader.replication.throttled.replicas", Medium)
        .default("")
        .valid(ThrottledReplicas)
        .doc("replicas throttled on the leader side, partition:broker list or *"),
    list("follower.replication.throttled.replicas", Medium)
        .default("")
        .valid(ThrottledReplicas)
        .doc("replicas throttled on the follower side, partition:broker list or *"),
    boolean("message.downconversion.enable", Low)
        .default("true")
        .doc("convert records for old consumers; off means UNSUPPORTED_VERSION"),
    boolean("remote.storage.enable", Medium)
        .default("false")
        .effect(JavaOnly)
        .doc("tier this topic (needs broker switch; refused for compacted topics)"),
    long("local.retention.ms", Medium)
        .default("-2")
        .valid(AtLeast(-2))
        .effect(JavaOnly)
        .doc("local age limit of a tiered topic; -2 follows retention.ms"),
    long("local.retention.bytes", Medium)
        .default("-2")
        .valid(AtLeast(-2))
        .effect(JavaOnly)
        .doc("local size limit of a tiered topic; -2 follows retention.bytes"),
    boolean("remote.log.copy.disable", Medium)
        .default("false")
        .effect(JavaOnly)
        .doc("stop uploading, keep reading; true is refused in ZK mode"),
    boolean("remote.log.delete.on.disable", Medium)
        .default("false")
        .effect(JavaOnly)
        .doc("remove remote data when tiering is turned off; true is refused in ZK mode"),
];
