//! Which recordings are not compared, and why. The first rule that fits holds.

use ::tests::deviations::matches;

use super::recording::{recordings, scripts};

/// Scripts that are here.
pub(super) const BUILT: &[&str] = &[
    "kafka-broker-api-versions",
    "kafka-console-consumer",
    "kafka-console-producer",
    "kafka-dump-log",
    "kafka-get-offsets",
    "kafka-producer-perf-test",
    "kafka-server-start",
    "kafka-topics",
];

const NO_GROUPS: &str = "needs consumer groups";
const NO_TRANSACTIONS: &str = "needs transactions";
const NO_SECURITY: &str = "needs security";
const THREE_BROKERS: &str = "needs several brokers";

/// Cases by name; `*` stands for anything.
const RULES: &[(&str, &str, &str)] = &[
    ("zookeeper-shell", "*", "compared in the tests of the tools"),
    ("kafka-console-consumer", "group", NO_GROUPS),
    ("kafka-console-consumer", "group-again", NO_GROUPS),
    ("kafka-console-consumer", "formatter-*Offsets*", NO_GROUPS),
    ("kafka-console-consumer", "formatter-Group*", NO_GROUPS),
    ("kafka-console-consumer", "formatter-old-offsets", NO_GROUPS),
    ("kafka-console-consumer", "formatter-old-group", NO_GROUPS),
    ("kafka-console-consumer", "formatter-Transaction*", NO_TRANSACTIONS),
    ("kafka-console-consumer", "formatter-old-txn", NO_TRANSACTIONS),
    ("kafka-producer-perf-test", "transactions", NO_TRANSACTIONS),
    ("kafka-topics", "describe-at-min-isr", THREE_BROKERS),
    ("kafka-topics", "describe-under-min-isr-none", THREE_BROKERS),
    ("kafka-topics", "describe-reassigning", THREE_BROKERS),
    ("kafka-topics", "sasl-*", NO_SECURITY),
    ("kafka-server-start", "authorizer-unknown", NO_SECURITY),
    ("kafka-server-start", "sasl-without-mechanism", NO_SECURITY),
    ("kafka-server-start", "ssl-without-keystore", NO_SECURITY),
    ("kafka-server-start", "zookeeper-set-acl", NO_SECURITY),
    ("*", "down-*", THREE_BROKERS),
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
