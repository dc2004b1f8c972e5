//! Keys that Kafka parses in ZooKeeper mode too, and uses only without it.

use crate::config::table::Effect::KRaftOnly;
use crate::config::table::Importance::{High, Low, Medium};
use crate::config::table::{ConfigKey, boolean, int, list, long, short, string};
use crate::config::validate::Valid::{AtLeast, Between, ListOf, OneOfAnyCase};

pub(super) const KEYS: &[ConfigKey] = &[
    string("early.start.listeners", High)
        .effect(KRaftOnly)
        .doc("listeners opened before the authorizer is ready"),
    int("max.request.partition.size.limit", Medium)
        .default("2000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("partitions per DescribeTopicPartitions reply"),
    long("metadata.log.max.record.bytes.between.snapshots", High)
        .default("20971520")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("bytes between snapshots"),
    long("metadata.log.max.snapshot.interval.ms", High)
        .default("3600000")
        .valid(AtLeast(0))
        .effect(KRaftOnly)
        .doc("time between snapshots"),
    list("process.roles", High)
        .default("")
        .valid(ListOf(&["broker", "controller"]))
        .effect(KRaftOnly)
        .doc("KRaft roles; must stay empty in ZK mode"),
    int("initial.broker.registration.timeout.ms", Medium)
        .default("60000")
        .effect(KRaftOnly)
        .doc("first registration wait with the quorum"),
    int("broker.heartbeat.interval.ms", Medium)
        .default("2000")
        .effect(KRaftOnly)
        .doc("heartbeat period to the quorum"),
    int("broker.session.timeout.ms", Medium)
        .default("9000")
        .effect(KRaftOnly)
        .doc("lease without heartbeats"),
    string("controller.listener.names", High)
        .effect(KRaftOnly)
        .doc("controller listeners; must be empty in ZK mode unless migrating"),
    string("sasl.mechanism.controller.protocol", High)
        .default("GSSAPI")
        .effect(KRaftOnly)
        .doc("SASL mechanism towards controllers"),
    string("metadata.log.dir", High).effect(KRaftOnly).doc("metadata log directory"),
    int("metadata.log.segment.bytes", High)
        .default("1073741824")
        .valid(AtLeast(12))
        .effect(KRaftOnly)
        .doc("metadata segment size"),
    int("metadata.log.segment.min.bytes", High)
        .default("8388608")
        .valid(AtLeast(12))
        .effect(KRaftOnly)
        .internal()
        .doc("smallest metadata segment (tests)"),
    long("metadata.log.segment.ms", High)
        .default("604800000")
        .effect(KRaftOnly)
        .doc("metadata segment age"),
    long("metadata.max.retention.bytes", High)
        .default("104857600")
        .effect(KRaftOnly)
        .doc("metadata log size limit"),
    long("metadata.max.retention.ms", High)
        .default("604800000")
        .effect(KRaftOnly)
        .doc("metadata log age limit"),
    int("metadata.max.idle.interval.ms", Low)
        .default("500")
        .valid(AtLeast(0))
        .effect(KRaftOnly)
        .doc("period of no-op records"),
    long("server.max.startup.time.ms", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .effect(KRaftOnly)
        .internal()
        .doc("start-up deadline (tests)"),
    boolean("eligible.leader.replicas.enable", High)
        .default("false")
        .effect(KRaftOnly)
        .doc("eligible leader replicas"),
    int("zookeeper.metadata.migration.min.batch.size", Medium)
        .default("200")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .internal()
        .doc("batch size of the migration driver on KRaft controllers"),
    long("unclean.leader.election.interval.ms", Medium)
        .default("300000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .internal()
        .doc("unclean election check on KRaft controllers"),
    long("log.dir.failure.timeout.ms", Low)
        .default("30000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("shutdown when a failed dir cannot be reported to the quorum"),
    int("group.coordinator.threads", Medium)
        .default("1")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("threads of the new coordinator"),
    int("group.coordinator.append.linger.ms", Medium)
        .default("10")
        .valid(AtLeast(0))
        .effect(KRaftOnly)
        .doc("write batching of the new coordinator"),
    int("group.consumer.session.timeout.ms", Medium)
        .default("45000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("session timeout of consumer groups"),
    int("group.consumer.min.session.timeout.ms", Medium)
        .default("45000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("lower bound"),
    int("group.consumer.max.session.timeout.ms", Medium)
        .default("60000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("upper bound"),
    int("group.consumer.heartbeat.interval.ms", Medium)
        .default("5000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("heartbeat period of consumer groups"),
    int("group.consumer.min.heartbeat.interval.ms", Medium)
        .default("5000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("lower bound"),
    int("group.consumer.max.heartbeat.interval.ms", Medium)
        .default("15000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("upper bound"),
    int("group.consumer.max.size", Medium)
        .default("2147483647")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("members per consumer group"),
    list("group.consumer.assignors", Medium)
        .default("\
             org.apache.kafka.coordinator.group.assignor.UniformAssignor,org.apache.kafka.coordinator.group.assignor.RangeAssignor")
        .effect(KRaftOnly)
        .doc("server-side assignors"),
    string("group.consumer.migration.policy", Medium)
        .default("disabled")
        .valid(OneOfAnyCase(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"]))
        .effect(KRaftOnly)
        .internal()
        .doc("classic/consumer group conversion"),
    int("group.share.session.timeout.ms", Medium)
        .default("45000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("session timeout"),
    int("group.share.min.session.timeout.ms", Medium)
        .default("45000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("lower bound"),
    int("group.share.max.session.timeout.ms", Medium)
        .default("60000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("upper bound"),
    int("group.share.heartbeat.interval.ms", Medium)
        .default("5000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("heartbeat period"),
    int("group.share.min.heartbeat.interval.ms", Medium)
        .default("5000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("lower bound"),
    int("group.share.max.heartbeat.interval.ms", Medium)
        .default("15000")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("upper bound"),
    short("group.share.max.size", Medium)
        .default("200")
        .valid(Between(10, 1000))
        .effect(KRaftOnly)
        .doc("members per share group"),
    int("telemetry.max.bytes", Low)
        .default("1048576")
        .valid(AtLeast(1))
        .effect(KRaftOnly)
        .doc("largest client telemetry push; ZK brokers have no telemetry"),
    boolean("group.share.enable", Medium)
        .default("false")
        .effect(KRaftOnly)
        .internal()
        .doc("switch share groups on"),
    int("group.share.delivery.count.limit", Medium)
        .default("5")
        .valid(Between(2, 10))
        .effect(KRaftOnly)
        .doc("delivery attempts"),
    int("group.share.record.lock.duration.ms", Medium)
        .default("30000")
        .valid(Between(1000, 60000))
        .effect(KRaftOnly)
        .doc("record lock time"),
    int("group.share.min.record.lock.duration.ms", Medium)
        .default("15000")
        .valid(Between(1000, 30000))
        .effect(KRaftOnly)
        .doc("lower bound"),
    int("group.share.max.record.lock.duration.ms", Medium)
        .default("60000")
        .valid(Between(30000, 3600000))
        .effect(KRaftOnly)
        .doc("upper bound"),
    short("group.share.max.groups", Medium)
        .default("10")
        .valid(Between(1, 100))
        .effect(KRaftOnly)
        .doc("share groups"),
    int("group.share.partition.max.record.locks", Medium)
        .default("200")
        .valid(Between(100, 10000))
        .effect(KRaftOnly)
        .doc("locked records per partition"),
    list("controller.quorum.voters", High)
        .default("")
        .effect(KRaftOnly)
        .doc("static quorum members; also needed while migrating"),
    list("controller.quorum.bootstrap.servers", High)
        .default("")
        .effect(KRaftOnly)
        .doc("quorum bootstrap addresses; also usable while migrating"),
    int("controller.quorum.election.timeout.ms", High)
        .default("1000")
        .effect(KRaftOnly)
        .doc("quorum election timeout"),
    int("controller.quorum.fetch.timeout.ms", High)
        .default("2000")
        .effect(KRaftOnly)
        .doc("quorum fetch timeout"),
    int("controller.quorum.election.backoff.max.ms", High)
        .default("1000")
        .effect(KRaftOnly)
        .doc("election backoff"),
    int("controller.quorum.append.linger.ms", Medium)
        .default("25")
        .effect(KRaftOnly)
        .doc("quorum append linger"),
    int("controller.quorum.request.timeout.ms", Medium)
        .default("2000")
        .effect(KRaftOnly)
        .doc("quorum request timeout"),
    int("controller.quorum.retry.backoff.ms", Low)
        .default("20")
        .effect(KRaftOnly)
        .doc("quorum retry backoff"),
];
