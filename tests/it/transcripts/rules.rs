//! Which recordings are not compared, and why. The first rule that fits holds.

use ::tests::deviations::matches;

use super::recording::{recordings, scripts};

/// Scripts that are here.
pub(super) const BUILT: &[&str] = &[
    "kafka-broker-api-versions",
    "kafka-console-consumer",
    "kafka-console-producer",
    "kafka-consumer-groups",
    "kafka-consumer-perf-test",
    "kafka-dump-log",
    "kafka-get-offsets",
    "kafka-leader-election",
    "kafka-producer-perf-test",
    "kafka-reassign-partitions",
    "kafka-replica-verification",
    "kafka-server-start",
    "kafka-topics",
    "kafka-transactions",
    "kafka-verifiable-consumer",
    "kafka-verifiable-producer",
];

const ITS_RECORDS: &str = "prints the records of the recorder's own groups";
const NO_TRANSACTIONS: &str = "needs a transactional producer in the client library";
const NO_SECURITY: &str = "needs security";
const TOO_SLOW: &str = "was recorded on a machine that was too slow for it";
const SILENT: &str = "says nothing as long as it was recorded";
const MOVING: &str = "was recorded at the very end of a move";

/// Cases by name; `*` stands for anything.
const RULES: &[(&str, &str, &str)] = &[
    ("zookeeper-shell", "*", "compared in the tests of the tools"),
    ("kafka-console-consumer", "formatter-*Offsets*", ITS_RECORDS),
    ("kafka-console-consumer", "formatter-Group*", ITS_RECORDS),
    ("kafka-console-consumer", "formatter-old-offsets", ITS_RECORDS),
    ("kafka-console-consumer", "formatter-old-group", ITS_RECORDS),
    ("kafka-producer-perf-test", "transactions", NO_TRANSACTIONS),
    ("kafka-topics", "describe-reassigning", MOVING),
    ("kafka-topics", "sasl-*", NO_SECURITY),
    ("kafka-server-start", "authorizer-unknown", NO_SECURITY),
    ("kafka-server-start", "sasl-without-mechanism", NO_SECURITY),
    ("kafka-server-start", "ssl-without-keystore", NO_SECURITY),
    ("kafka-server-start", "zookeeper-set-acl", NO_SECURITY),
    ("kafka-verifiable-producer", "run", TOO_SLOW),
    ("kafka-verifiable-producer", "sigterm", TOO_SLOW),
    ("kafka-transactions", "down-*", SILENT),
];

/// Why a case is not compared, if it is not.
pub(super) fn skipped(script: &str, case: &str) -> Option<&'static str> {
    let rule = RULES.iter().find(|(of, name, _)| matches(of, script) && matches(name, case));
    match rule {
        Some((_, _, reason)) => Some(reason),
        None if !BUILT.contains(&script) => Some("the script is not here yet"),
        None => None,
    }
}

/// A rule that fits no recording is wrong, or no longer needed.
pub(super) fn check_that_every_rule_is_needed() {
    for (of, name, reason) in RULES {
        let fits = scripts().iter().filter(|script| matches(of, script)).any(|script| {
            recordings(script).iter().any(|recording| matches(name, &recording.case))
        });
        assert!(fits, "no recording of {of} is {name} ({reason})");
    }
}
