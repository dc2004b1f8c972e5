//! Keys of the log: segments, retention, flushing, compression.

use crate::config::table::Effect::{JavaOnly, NewestFormat};
use crate::config::table::Importance::{High, Low, Medium};
use crate::config::table::Update::ClusterWide;
use crate::config::table::{ConfigKey, boolean, class, int, list, long, string};
use crate::config::validate::Valid::{AtLeast, Between, GzipLevel, ListOf, OneOf, Version};

pub(super) const KEYS: &[ConfigKey] = &[
    int("num.partitions", Medium)
        .default("1")
        .valid(AtLeast(1))
        .doc("partitions of auto-created topics and for -1 in CreateTopics"),
    string("log.dir", High)
        .default("/tmp/kafka-logs")
        .doc("single data directory")
        .note("used only when log.dirs is null"),
    string("log.dirs", High).doc("comma-separated data directories").note("log.dirs beats log.dir"),
    int("log.segment.bytes", High)
        .default("1073741824")
        .valid(AtLeast(14))
        .update(ClusterWide)
        .doc("segment size that triggers a roll"),
    long("log.roll.ms", High)
        .update(ClusterWide)
        .doc("segment age that triggers a roll")
        .note("log.roll.ms > log.roll.hours"),
    int("log.roll.hours", High)
        .default("168")
        .valid(AtLeast(1))
        .doc("same in hours")
        .note("used when log.roll.ms is null"),
    long("log.roll.jitter.ms", High)
        .update(ClusterWide)
        .doc("random reduction of the roll age")
        .note("log.roll.jitter.ms > log.roll.jitter.hours"),
    int("log.roll.jitter.hours", High)
        .default("0")
        .valid(AtLeast(0))
        .doc("same in hours")
        .note("used when log.roll.jitter.ms is null"),
    long("log.retention.ms", High)
        .update(ClusterWide)
        .doc("age limit of deletable segments, -1 unlimited")
        .note("log.retention.ms > log.retention.minutes > log.retention.hours"),
    int("log.retention.minutes", High)
        .doc("same in minutes")
        .note("used when log.retention.ms is null"),
    int("log.retention.hours", High)
        .default("168")
        .doc("same in hours")
        .note("used when ms and minutes are null"),
    long("log.retention.bytes", High)
        .default("-1")
        .update(ClusterWide)
        .doc("size limit per partition, -1 unlimited"),
    long("log.retention.check.interval.ms", Medium)
        .default("300000")
        .valid(AtLeast(1))
        .doc("period of the retention check"),
    list("log.cleanup.policy", Medium)
        .default("delete")
        .valid(ListOf(&["compact", "delete"]))
        .update(ClusterWide)
        .doc("delete, compact or both"),
    int("log.index.size.max.bytes", Medium)
        .default("10485760")
        .valid(AtLeast(4))
        .update(ClusterWide)
        .doc("largest offset index file"),
    int("log.index.interval.bytes", Medium)
        .default("4096")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("bytes between index entries"),
    long("log.flush.interval.messages", High)
        .default("9223372036854775807")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .doc("records before a forced fsync"),
    long("log.segment.delete.delay.ms", High)
        .default("60000")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("delay between renaming and removing deleted files"),
    long("log.flush.scheduler.interval.ms", High)
        .default("9223372036854775807")
        .doc("period of the flush check; also the default of log.flush.interval.ms"),
    long("log.flush.interval.ms", High)
        .update(ClusterWide)
        .doc("time before a forced fsync")
        .note("null falls back to log.flush.scheduler.interval.ms"),
    int("log.flush.offset.checkpoint.interval.ms", High)
        .default("60000")
        .valid(AtLeast(0))
        .doc("period of writing recovery points"),
    int("log.flush.start.offset.checkpoint.interval.ms", High)
        .default("60000")
        .valid(AtLeast(0))
        .doc("period of writing log start offsets"),
    boolean("log.preallocate", Medium)
        .default("false")
        .update(ClusterWide)
        .doc("allocate segment files at full size"),
    int("num.recovery.threads.per.data.dir", High)
        .default("1")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .doc("threads per dir for start-up recovery and shutdown flush")
        .note("dynamic change limited to half..double the current value"),
    boolean("auto.create.topics.enable", High)
        .default("true")
        .doc("create missing topics on Metadata requests"),
    int("min.insync.replicas", High)
        .default("1")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .doc("in-sync replicas needed for acks=all")
        .note("topic config of the same name wins"),
    string("log.message.format.version", Medium)
        .default("3.0-IV1")
        .valid(Version)
        .effect(NewestFormat)
        .doc("deprecated record format cap; records are stored in the newest format, and converted for consumers that need an old one"),
    string("log.message.timestamp.type", Medium)
        .default("CreateTime")
        .valid(OneOf(&["CreateTime", "LogAppendTime"]))
        .update(ClusterWide)
        .doc("keep client timestamps or stamp on append"),
    long("log.message.timestamp.difference.max.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("deprecated symmetric timestamp tolerance")
        .note("used only where the before/after settings are left at their default"),
    long("log.message.timestamp.before.max.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("how far a record timestamp may lie in the past")
        .note("default value falls back to log.message.timestamp.difference.max.ms"),
    long("log.message.timestamp.after.max.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("how far a record timestamp may lie in the future")
        .note("default value falls back to log.message.timestamp.difference.max.ms"),
    class("create.topic.policy.class.name", Low)
        .effect(JavaOnly)
        .doc("plug-in that can veto topic creation")
        .note("a broker that has it does not start"),
    class("alter.config.policy.class.name", Low)
        .effect(JavaOnly)
        .doc("plug-in that can veto config changes")
        .note("a broker that has it does not start"),
    boolean("log.message.downconversion.enable", Low)
        .default("true")
        .update(ClusterWide)
        .doc("convert records for old consumers; off means UNSUPPORTED_VERSION"),
    long("log.initial.task.delay.ms", Low)
        .default("30000")
        .valid(AtLeast(0))
        .internal()
        .doc("first delay of log manager jobs (tests)"),
    int("message.max.bytes", High)
        .default("1048588")
        .valid(AtLeast(0))
        .update(ClusterWide)
        .doc("largest record batch accepted"),
    string("compression.type", High)
        .default("producer")
        .valid(OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]))
        .update(ClusterWide)
        .doc("final codec of stored batches; producer keeps the original")
        .note("topic config of the same name wins"),
    int("compression.gzip.level", Medium)
        .default("-1")
        .valid(GzipLevel)
        .update(ClusterWide)
        .doc("gzip level when compression.type is gzip")
        .note("topic config of the same name wins"),
    int("compression.lz4.level", Medium)
        .default("9")
        .valid(Between(1, 17))
        .update(ClusterWide)
        .doc("lz4 level when compression.type is lz4")
        .note("topic config of the same name wins"),
    int("compression.zstd.level", Medium)
        .default("3")
        .valid(Between(-131072, 22))
        .update(ClusterWide)
        .doc("zstd level when compression.type is zstd")
        .note("topic config of the same name wins"),
];
