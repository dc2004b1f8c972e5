//! Keys of metrics and their reporters.

use crate::config::table::Effect::{JavaOnly, Moot, NotYet};
use crate::config::table::Importance::Low;
use crate::config::table::Update::ClusterWide;
use crate::config::table::{ConfigKey, boolean, int, list, long, string};
use crate::config::validate::Valid::AtLeast;

pub(super) const KEYS: &[ConfigKey] = &[
    int("metrics.num.samples", Low)
        .default("2")
        .valid(AtLeast(1))
        .effect(Moot)
        .doc("samples kept per metric"),
    long("metrics.sample.window.ms", Low)
        .default("30000")
        .valid(AtLeast(1))
        .effect(Moot)
        .doc("length of a sample"),
    list("metric.reporters", Low)
        .default("")
        .update(ClusterWide)
        .effect(JavaOnly)
        .doc("reporter plug-ins for Kafka metrics"),
    string("metrics.recording.level", Low)
        .default("INFO")
        .effect(NotYet)
        .doc("most detailed level recorded: INFO, DEBUG or TRACE"),
    boolean("auto.include.jmx.reporter", Low)
        .default("true")
        .effect(JavaOnly)
        .doc("deprecated; also add the JMX reporter when not listed"),
    list("kafka.metrics.reporters", Low)
        .default("")
        .effect(JavaOnly)
        .doc("reporter plug-ins for Yammer metrics"),
    int("kafka.metrics.polling.interval.secs", Low)
        .default("10")
        .valid(AtLeast(1))
        .effect(JavaOnly)
        .doc("polling period for those plug-ins"),
    string("metrics.jmx.include", Low)
        .default(".*")
        .update(ClusterWide)
        .effect(JavaOnly)
        .undefined()
        .doc("regex of metrics shown in JMX")
        .note("alias metrics.jmx.whitelist"),
    string("metrics.jmx.exclude", Low)
        .default("")
        .update(ClusterWide)
        .effect(JavaOnly)
        .undefined()
        .doc("regex of metrics hidden from JMX")
        .note("alias metrics.jmx.blacklist; exclude wins over include"),
    string("metrics.context.*", Low)
        .effect(JavaOnly)
        .undefined()
        .doc("labels handed to metric reporters"),
];
