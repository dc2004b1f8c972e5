//! Keys of consumer groups and committed offsets.

use crate::config::table::Effect::{Moot, NotYet};
use crate::config::table::Importance::{High, Medium};
use crate::config::table::{ConfigKey, boolean, int, list, long, short};
use crate::config::validate::Valid::{AtLeast, ListOf};

pub(super) const KEYS: &[ConfigKey] = &[
    int("group.min.session.timeout.ms", Medium)
        .default("6000")
        .doc("smallest session timeout a member may ask"),
    int("group.max.session.timeout.ms", Medium)
        .default("1800000")
        .doc("largest session timeout a member may ask"),
    int("group.initial.rebalance.delay.ms", Medium)
        .default("3000")
        .doc("wait for more members before the first rebalance of an empty group"),
    int("group.max.size", Medium).default("2147483647").valid(AtLeast(1)).doc("members per group"),
    list("group.coordinator.rebalance.protocols", Medium)
        .default("classic")
        .valid(ListOf(&["consumer", "classic", "share", "unknown"]))
        .doc(
            "enabled group protocols; ZK mode refuses to start with consumer listed, and \
             classic is mandatory",
        ),
    boolean("group.coordinator.new.enable", Medium).default("false").effect(Moot).internal().doc(
        "test switch for the new coordinator; ZK brokers keep the old coordinator but it \
             alters txn marker handling, so leave false",
    ),
    int("offset.metadata.max.bytes", High)
        .default("4096")
        .doc("longest metadata string of a committed offset"),
    int("offsets.load.buffer.size", High)
        .default("5242880")
        .valid(AtLeast(1))
        .doc("read chunk when loading offsets (soft limit)"),
    short("offsets.topic.replication.factor", High)
        .default("3")
        .valid(AtLeast(1))
        .doc("replication factor of __consumer_offsets"),
    int("offsets.topic.num.partitions", High)
        .default("50")
        .valid(AtLeast(1))
        .doc("partitions of __consumer_offsets"),
    int("offsets.topic.segment.bytes", High)
        .default("104857600")
        .valid(AtLeast(1))
        .doc("segment size of __consumer_offsets"),
    int("offsets.topic.compression.codec", High)
        .default("0")
        .doc("codec id for offset records (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)"),
    int("offsets.retention.minutes", High)
        .default("10080")
        .valid(AtLeast(1))
        .doc("keep committed offsets this long after the group is empty or the topic unsubscribed"),
    long("offsets.retention.check.interval.ms", High)
        .default("600000")
        .valid(AtLeast(1))
        .doc("period of the offset expiry check"),
    int("offsets.commit.timeout.ms", High)
        .default("5000")
        .valid(AtLeast(1))
        .doc("replication wait of an offset commit"),
    short("offsets.commit.required.acks", High)
        .default("-1")
        .effect(NotYet)
        .doc("deprecated acks for offset commits; -1..replication factor"),
];
