//! Kafka's logger names for tracing's targets.

use std::borrow::Cow;

/// Crates and the class of Kafka whose work they do; the longest match wins. Others log as `kafka.<crate>`.
const LOGGERS: &[(&str, &str)] = &[
    ("controller", "kafka.controller.KafkaController"),
    ("controller_store", "kafka.server.KafkaServer"),
    ("network", "kafka.network.SocketServer"),
    ("partition", "kafka.cluster.Partition"),
    ("replication", "kafka.server.ReplicaManager"),
    ("server", "kafka.server.KafkaServer"),
    ("server::handlers", "kafka.server.KafkaApis"),
    ("storage", "kafka.log.LogManager"),
    ("storage::cleaner", "kafka.log.LogCleaner"),
    ("zk", "kafka.zookeeper.ZooKeeperClient"),
    ("zookeeper", "org.apache.zookeeper.server.ZooKeeperServer"),
    ("zookeeper_client", "org.apache.zookeeper.ClientCnxn"),
];

/// Our own crates without a class of Kafka's.
const OURS: &[&str] =
    &["client", "common", "metadata", "protocol", "record", "security", "tools", "coordinator"];

/// The logger of a target: a dotted target (`state.change.logger`) is a logger's name itself, a module path
/// (`storage::log`) stands for a class of Kafka's, and another crate's for that crate.
pub(super) fn logger(target: &str) -> Cow<'_, str> {
    if !target.contains("::") && target.contains('.') {
        return Cow::Borrowed(target);
    }
    let is_within = |module: &str| {
        target.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let known = LOGGERS.iter().filter(|(module, _)| is_within(module));
    if let Some((_, logger)) = known.max_by_key(|(module, _)| module.len()) {
        return Cow::Borrowed(logger);
    }
    let root = target.split("::").next().unwrap_or(target);
    if OURS.contains(&root) {
        return Cow::Owned(format!("kafka.{root}"));
    }
    Cow::Owned(target.replace("::", "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_become_loggers() {
        for (target, expected) in [
            ("state.change.logger", "state.change.logger"),
            ("kafka.server.KafkaServer", "kafka.server.KafkaServer"),
            ("server", "kafka.server.KafkaServer"),
            ("server::handlers::produce", "kafka.server.KafkaApis"),
            ("server::handlers_of_old", "kafka.server.KafkaServer"),
            ("controller_store::reads", "kafka.server.KafkaServer"),
            ("zk::real", "kafka.zookeeper.ZooKeeperClient"),
            ("zookeeper_client::session", "org.apache.zookeeper.ClientCnxn"),
            ("record::batch", "kafka.record"),
            ("rustls::server::hs", "rustls.server.hs"),
        ] {
            assert_eq!(logger(target), expected);
        }
    }
}
