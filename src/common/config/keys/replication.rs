//! Keys of replication between brokers.

use crate::config::table::Effect::Moot;
use crate::config::table::Importance::{High, Medium};
use crate::config::table::Update::ClusterWide;
use crate::config::table::{ConfigKey, boolean, int, long, string};
use crate::config::validate::Valid::{AtLeast, OneOf, Version};

pub(super) const KEYS: &[ConfigKey] = &[
    int("controller.socket.timeout.ms", Medium)
        .default("30000")
        .doc("longest connect between controller and brokers, and the longest wait for the controller's answer"),
    int("default.replication.factor", Medium)
        .default("1")
        .doc("replication factor for auto-created topics and for -1 in CreateTopics"),
    long("replica.lag.time.max.ms", High)
        .default("30000")
        .doc("follower leaves the ISR when not caught up for this long"),
    int("replica.socket.timeout.ms", High)
        .default("30000")
        .doc("socket timeout of replica fetches; at least replica.fetch.wait.max.ms"),
    int("replica.socket.receive.buffer.bytes", High)
        .default("65536")
        .doc("SO_RCVBUF of replica fetch sockets; from the default on it is left to the system where that may grow as far"),
    int("replica.fetch.max.bytes", Medium)
        .default("1048576")
        .valid(AtLeast(0))
        .doc("bytes per partition asked by a follower (first batch may exceed it)"),
    int("replica.fetch.wait.max.ms", High)
        .default("500")
        .doc("long-poll wait of follower fetches; at most replica.lag.time.max.ms"),
    int("replica.fetch.backoff.ms", Medium)
        .default("1000")
        .valid(AtLeast(0))
        .doc("follower pause after a partition error"),
    int("replica.fetch.min.bytes", High)
        .default("1")
        .doc("minimum bytes asked by a follower fetch"),
    int("replica.fetch.response.max.bytes", Medium)
        .default("10485760")
        .valid(AtLeast(0))
        .doc("bytes asked per whole follower fetch response"),
    int("num.replica.fetchers", High)
        .default("1")
        .update(ClusterWide)
        .doc("fetcher threads per source broker")
        .note("dynamic change limited to half..double the current value"),
    long("replica.high.watermark.checkpoint.interval.ms", High)
        .default("5000")
        .doc("period of writing high watermarks to disk"),
    int("fetch.purgatory.purge.interval.requests", Medium)
        .default("1000")
        .effect(Moot)
        .doc("delayed-fetch purge period in requests"),
    int("producer.purgatory.purge.interval.requests", Medium)
        .default("1000")
        .effect(Moot)
        .doc("delayed-produce purge period in requests"),
    int("delete.records.purgatory.purge.interval.requests", Medium)
        .default("1")
        .effect(Moot)
        .doc("delayed delete-records purge period in requests"),
    boolean("auto.leader.rebalance.enable", High)
        .default("true")
        .doc("controller restores preferred leaders in the background"),
    int("leader.imbalance.per.broker.percentage", High)
        .default("10")
        .doc("imbalance ratio that triggers that rebalance"),
    long("leader.imbalance.check.interval.seconds", High)
        .default("300")
        .valid(AtLeast(1))
        .doc("period of the imbalance check"),
    boolean("unclean.leader.election.enable", High)
        .default("false")
        .update(ClusterWide)
        .doc("let out-of-sync replicas become leader")
        .note("topic config of the same name wins"),
    string("inter.broker.protocol.version", Medium)
        .default("3.9-IV0")
        .valid(Version)
        .doc("protocol/feature level used between brokers (IBP)"),
    string("security.inter.broker.protocol", Medium)
        .default("PLAINTEXT")
        .valid(OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]))
        .doc("security protocol between brokers")
        .note("mutually exclusive with inter.broker.listener.name"),
    string("inter.broker.listener.name", Medium).doc("listener used between brokers").note(
        "mutually exclusive with security.inter.broker.protocol; null derives the listener \
             from it",
    ),
    string("replica.selector.class", Medium)
        .doc("plug-in choosing the preferred read replica; null means the leader")
        .note("org.apache.kafka.common.replica.RackAwareReplicaSelector; other classes cannot be loaded"),
];
