//! Keys of tiered storage, which runs on Java plug-ins.

use crate::config::table::Effect::JavaOnly;
use crate::config::table::Importance::{Low, Medium};
use crate::config::table::Update::ClusterWide;
use crate::config::table::{ConfigKey, boolean, double, int, long, string};
use crate::config::validate::Valid::{AtLeast, Fraction, MinusOneOrPositive, NonEmpty};

pub(super) const KEYS: &[ConfigKey] = &[
    boolean("remote.log.storage.system.enable", Medium)
        .default("false")
        .effect(JavaOnly)
        .doc("switch tiered storage on")
        .note("a broker that has it on does not start"),
    string("remote.log.storage.manager.impl.prefix", Medium)
        .default("rsm.config.")
        .valid(NonEmpty)
        .effect(JavaOnly)
        .doc("property prefix passed to the storage plug-in"),
    string("remote.log.metadata.manager.impl.prefix", Medium)
        .default("rlmm.config.")
        .valid(NonEmpty)
        .effect(JavaOnly)
        .doc("property prefix passed to the metadata plug-in"),
    string("remote.log.storage.manager.class.name", Medium)
        .valid(NonEmpty)
        .effect(JavaOnly)
        .doc("storage plug-in class"),
    string("remote.log.storage.manager.class.path", Medium)
        .effect(JavaOnly)
        .doc("class path of the storage plug-in"),
    string("remote.log.metadata.manager.class.name", Medium)
        .default("\
             org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager")
        .valid(NonEmpty)
        .effect(JavaOnly)
        .doc("metadata plug-in class"),
    string("remote.log.metadata.manager.class.path", Medium)
        .effect(JavaOnly)
        .doc("class path of the metadata plug-in"),
    string("remote.log.metadata.manager.listener.name", Medium)
        .valid(NonEmpty)
        .effect(JavaOnly)
        .doc("local listener the metadata plug-in connects to"),
    int("remote.log.metadata.custom.metadata.max.bytes", Low)
        .default("128")
        .valid(AtLeast(0))
        .effect(JavaOnly)
        .doc("largest custom segment metadata accepted"),
    long("remote.log.index.file.cache.total.size.bytes", Low)
        .default("1073741824")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .effect(JavaOnly)
        .doc("local cache for remote index files"),
    int("remote.log.manager.thread.pool.size", Medium)
        .default("10")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .doc("deprecated shared pool size"),
    int("remote.log.manager.copier.thread.pool.size", Medium)
        .default("-1")
        .valid(MinusOneOrPositive)
        .effect(JavaOnly)
        .doc("copy threads")
        .note("-1 falls back to remote.log.manager.thread.pool.size"),
    int("remote.log.manager.expiration.thread.pool.size", Medium)
        .default("-1")
        .valid(MinusOneOrPositive)
        .effect(JavaOnly)
        .doc("expiry threads")
        .note("-1 falls back to remote.log.manager.thread.pool.size"),
    long("remote.log.manager.task.interval.ms", Low)
        .default("30000")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .doc("period of copy and clean-up tasks"),
    long("remote.log.manager.task.retry.backoff.ms", Low)
        .default("500")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .internal()
        .doc("first retry pause"),
    long("remote.log.manager.task.retry.backoff.max.ms", Low)
        .default("30000")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .internal()
        .doc("longest retry pause"),
    double("remote.log.manager.task.retry.jitter", Low)
        .default("0.2")
        .valid(Fraction(0.0, 0.5))
        .effect(JavaOnly)
        .internal()
        .doc("random share of the retry pause"),
    int("remote.log.reader.threads", Medium)
        .default("10")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .doc("remote read threads"),
    int("remote.log.reader.max.pending.tasks", Medium)
        .default("100")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .doc("queued remote reads before errors"),
    long("log.local.retention.ms", Medium)
        .default("-2")
        .valid(AtLeast(-2))
        .update(ClusterWide)
        .effect(JavaOnly)
        .doc("local age limit of tiered logs; -2 follows log.retention.ms"),
    long("log.local.retention.bytes", Medium)
        .default("-2")
        .valid(AtLeast(-2))
        .update(ClusterWide)
        .effect(JavaOnly)
        .doc("local size limit of tiered logs; -2 follows log.retention.bytes"),
    long("remote.log.manager.copy.max.bytes.per.second", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .effect(JavaOnly)
        .doc("upload rate cap"),
    int("remote.log.manager.copy.quota.window.num", Medium)
        .default("11")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .doc("upload quota samples"),
    int("remote.log.manager.copy.quota.window.size.seconds", Medium)
        .default("1")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .doc("length of one upload sample"),
    long("remote.log.manager.fetch.max.bytes.per.second", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .effect(JavaOnly)
        .doc("remote read rate cap"),
    int("remote.log.manager.fetch.quota.window.num", Medium)
        .default("11")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .doc("remote read quota samples"),
    int("remote.log.manager.fetch.quota.window.size.seconds", Medium)
        .default("1")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .doc("length of one remote read sample"),
    int("remote.fetch.max.wait.ms", Medium)
        .default("500")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .effect(JavaOnly)
        .doc("longest wait of a fetch that needs remote data"),
];
