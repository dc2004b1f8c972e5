//! Keys of quotas; the dynamic ones live in ZooKeeper alone.

use crate::config::table::Effect::{JavaOnly, NotYet};
use crate::config::table::Importance::{Low, Medium};
use crate::config::table::Update::DynamicOnly;
use crate::config::table::{ConfigKey, class, double, int, long, string};
use crate::config::validate::Valid::AtLeast;

pub(super) const KEYS: &[ConfigKey] = &[
    int("quota.window.num", Low)
        .default("11")
        .valid(AtLeast(1))
        .effect(NotYet)
        .doc("client quota samples kept"),
    int("quota.window.size.seconds", Low)
        .default("1")
        .valid(AtLeast(1))
        .effect(NotYet)
        .doc("length of one client quota sample"),
    int("replication.quota.window.num", Low)
        .default("11")
        .valid(AtLeast(1))
        .doc("replication quota samples kept"),
    int("replication.quota.window.size.seconds", Low)
        .default("1")
        .valid(AtLeast(1))
        .doc("length of one replication quota sample"),
    int("alter.log.dirs.replication.quota.window.num", Low)
        .default("11")
        .valid(AtLeast(1))
        .effect(NotYet)
        .doc("log-dir move quota samples kept"),
    int("alter.log.dirs.replication.quota.window.size.seconds", Low)
        .default("1")
        .valid(AtLeast(1))
        .effect(NotYet)
        .doc("length of one log-dir move quota sample"),
    int("controller.quota.window.num", Low)
        .default("11")
        .valid(AtLeast(1))
        .effect(NotYet)
        .doc("controller mutation quota samples kept"),
    int("controller.quota.window.size.seconds", Low)
        .default("1")
        .valid(AtLeast(1))
        .effect(NotYet)
        .doc("length of one controller mutation quota sample"),
    class("client.quota.callback.class", Low).effect(JavaOnly).doc(
        "plug-in that decides client quotas; default uses user/client-id quotas from \
             ZooKeeper",
    ),
    long("leader.replication.throttled.rate", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .update(DynamicOnly)
        .undefined()
        .doc("bytes/s for throttled replicas served as leader")
        .note("per-broker value > cluster default"),
    long("follower.replication.throttled.rate", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .update(DynamicOnly)
        .undefined()
        .doc("bytes/s for throttled replicas fetched as follower")
        .note("per-broker value > cluster default"),
    long("replica.alter.log.dirs.io.max.bytes.per.second", Medium)
        .default("9223372036854775807")
        .valid(AtLeast(0))
        .update(DynamicOnly)
        .effect(NotYet)
        .undefined()
        .doc("bytes/s for log-dir moves")
        .note("per-broker value > cluster default"),
    long("producer_byte_rate", Medium)
        .default("9223372036854775807")
        .update(DynamicOnly)
        .effect(NotYet)
        .undefined()
        .doc("produce bytes/s")
        .note(
            "user+client > user+default client > user > default user+client > default \
             user+default client > default user > client > default client",
        ),
    long("consumer_byte_rate", Medium)
        .default("9223372036854775807")
        .update(DynamicOnly)
        .effect(NotYet)
        .undefined()
        .doc("fetch bytes/s")
        .note("same order as producer_byte_rate"),
    double("request_percentage", Medium)
        .default("2.147483647E9")
        .update(DynamicOnly)
        .effect(NotYet)
        .undefined()
        .doc("share of handler and network thread time, percent")
        .note("same order as producer_byte_rate"),
    double("controller_mutation_rate", Medium)
        .default("2.147483647E9")
        .update(DynamicOnly)
        .effect(NotYet)
        .undefined()
        .doc("partition creations/deletions per second")
        .note("same order as producer_byte_rate"),
    string("SCRAM-SHA-256", Medium)
        .update(DynamicOnly)
        .effect(NotYet)
        .undefined()
        .doc("stored SCRAM credential of a user (user entity only)"),
    string("SCRAM-SHA-512", Medium)
        .update(DynamicOnly)
        .effect(NotYet)
        .undefined()
        .doc("stored SCRAM credential of a user (user entity only)"),
    int("connection_creation_rate", Medium)
        .default("2147483647")
        .valid(AtLeast(0))
        .update(DynamicOnly)
        .effect(NotYet)
        .undefined()
        .doc("new connections per second from an address")
        .note("specific ip > default ip"),
];
