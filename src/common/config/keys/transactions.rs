//! Keys of producer ids and transactions.

use crate::config::table::Importance::{High, Low};
use crate::config::table::Update::ClusterWide;
use crate::config::table::{ConfigKey, boolean, int, short};
use crate::config::validate::Valid::AtLeast;

pub(super) const KEYS: &[ConfigKey] = &[
    int("transaction.state.log.min.isr", High)
        .default("2")
        .valid(AtLeast(1))
        .doc("min.insync.replicas of __transaction_state"),
    int("transaction.state.log.load.buffer.size", High)
        .default("5242880")
        .valid(AtLeast(1))
        .doc("read chunk when loading txn state (soft limit)"),
    short("transaction.state.log.replication.factor", High)
        .default("3")
        .valid(AtLeast(1))
        .doc("replication factor of __transaction_state"),
    int("transaction.state.log.num.partitions", High)
        .default("50")
        .valid(AtLeast(1))
        .doc("partitions of __transaction_state"),
    int("transaction.state.log.segment.bytes", High)
        .default("104857600")
        .valid(AtLeast(1))
        .doc("segment size of __transaction_state"),
    boolean("transaction.partition.verification.enable", Low)
        .default("true")
        .update(ClusterWide)
        .doc("check with the coordinator that a partition belongs to the txn before appending"),
    int("producer.id.expiration.ms", Low)
        .default("86400000")
        .valid(AtLeast(1))
        .update(ClusterWide)
        .doc("forget idle producer state after this long, and sooner where a broker would know more than 1,000,000 producer ids: then the longest idle go first, which it logs as overload, and what such a producer sends again is stored again"),
    int("producer.id.expiration.check.interval.ms", Low)
        .default("600000")
        .valid(AtLeast(1))
        .internal()
        .doc("period of that check (tests)"),
    int("transactional.id.expiration.ms", High)
        .default("604800000")
        .valid(AtLeast(1))
        .doc("forget idle transactional ids after this long"),
    int("transaction.max.timeout.ms", High)
        .default("900000")
        .valid(AtLeast(1))
        .doc("largest transaction timeout a producer may ask"),
    int("transaction.abort.timed.out.transaction.cleanup.interval.ms", Low)
        .default("10000")
        .valid(AtLeast(1))
        .doc("period of aborting timed-out transactions"),
    int("transaction.remove.expired.transaction.cleanup.interval.ms", Low)
        .default("3600000")
        .valid(AtLeast(1))
        .doc("period of removing expired transactional ids"),
];
