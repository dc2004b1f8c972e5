//! Where Kafka keeps what in ZooKeeper. All paths are relative to the chroot. Source: `kafka.zk.ZkData`.

/// Which broker is the controller; ephemeral.
pub const CONTROLLER: &str = "/controller";
/// Counts the controllers; its znode version fences their writes.
pub const CONTROLLER_EPOCH: &str = "/controller_epoch";
/// Parent of the brokers' registrations.
pub const BROKER_IDS: &str = "/brokers/ids";
/// Its version is the last generated broker id.
pub const BROKER_SEQUENCE_ID: &str = "/brokers/seqid";
/// Parent of the topics.
pub const TOPICS: &str = "/brokers/topics";
/// Parent of the topics to delete.
pub const DELETE_TOPICS: &str = "/admin/delete_topics";
/// Old tools put partitions to move here.
pub const REASSIGN_PARTITIONS: &str = "/admin/reassign_partitions";
/// Old tools put partitions for a preferred election here.
pub const PREFERRED_REPLICA_ELECTION: &str = "/admin/preferred_replica_election";
/// Parent of the notices of leaders older than 2.7.
pub const ISR_CHANGES: &str = "/isr_change_notification";
/// Prefix of such a notice.
pub const ISR_CHANGE_PREFIX: &str = "/isr_change_notification/isr_change_";
/// Parent of the notices of a failed log directory.
pub const LOG_DIR_EVENTS: &str = "/log_dir_event_notification";
/// Prefix of such a notice.
pub const LOG_DIR_EVENT_PREFIX: &str = "/log_dir_event_notification/log_dir_event_";
/// The last block of producer ids given out. A Java broker reads null as none, but fails on an empty value: never
/// create it without its JSON.
pub const PRODUCER_ID_BLOCK: &str = "/latest_producer_id_block";
/// The cluster's id.
pub const CLUSTER_ID: &str = "/cluster/id";
/// Parent of all configs.
pub const CONFIG: &str = "/config";
/// Parent of the notices of changed configs.
pub const CONFIG_CHANGES: &str = "/config/changes";
/// Prefix of such a notice.
pub const CONFIG_CHANGE_PREFIX: &str = "/config/changes/config_change_";
/// Rules for resources by their whole name.
pub const ACLS: &str = "/kafka-acl";
/// Rules for resources by other patterns.
pub const EXTENDED_ACLS: &str = "/kafka-acl-extended";
/// Rules for resources by the beginning of their name.
pub const PREFIXED_ACLS: &str = "/kafka-acl-extended/prefixed";
/// Parent of the notices of changed literal rules.
pub const ACL_CHANGES: &str = "/kafka-acl-changes";
/// Parent of the notices of changed prefixed rules.
pub const EXTENDED_ACL_CHANGES: &str = "/kafka-acl-extended-changes";
/// What follows the parent in a notice of changed rules.
pub const ACL_CHANGE_NAME: &str = "acl_changes_";
/// Parent of all of delegation tokens.
pub const DELEGATION_TOKEN: &str = "/delegation_token";
/// Parent of the delegation tokens.
pub const DELEGATION_TOKENS: &str = "/delegation_token/tokens";
/// Parent of the notices of changed tokens.
pub const TOKEN_CHANGES: &str = "/delegation_token/token_changes";
/// Prefix of such a notice.
pub const TOKEN_CHANGE_PREFIX: &str = "/delegation_token/token_changes/token_change_";
/// The finalized features.
pub const FEATURE: &str = "/feature";
/// A KRaft controller's progress in taking over; never in a pure ZooKeeper cluster.
pub const MIGRATION: &str = "/migration";
/// Parent of the old consumers' groups.
pub const CONSUMERS: &str = "/consumers";

/// The name of an entity's defaults, under `/config`; never sanitized.
pub const DEFAULT_ENTITY: &str = "<default>";

/// What every broker creates at its start, in this order. `PRODUCER_ID_BLOCK`, which a Java broker creates as null, is left
/// out: we cannot write null.
pub const CREATED_AT_START: [&str; 13] = [
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
];

/// What `zookeeper-security-migration` rewrites, with all below.
pub const SECURE_ROOTS: [&str; 17] = [
    "/admin",
    "/brokers",
    "/cluster",
    CONFIG,
    CONTROLLER,
    CONTROLLER_EPOCH,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    DELEGATION_TOKEN,
    EXTENDED_ACLS,
    MIGRATION,
    FEATURE,
    ACLS,
    ACL_CHANGES,
    PREFIXED_ACLS,
    EXTENDED_ACL_CHANGES,
];

/// What only brokers may read. The comparison is of the text, as Kafka's: `/config/usersx` counts too.
const SENSITIVE_ROOTS: [&str; 3] = ["/config/users", "/config/brokers", DELEGATION_TOKENS];

/// Whether only brokers may read this path when `zookeeper.set.acl` is on.
pub fn is_sensitive(path: &str) -> bool {
    SENSITIVE_ROOTS.iter().any(|root| path.starts_with(root))
}

/// A broker's registration.
pub fn broker_id(id: i32) -> String {
    format!("{BROKER_IDS}/{id}")
}

/// A topic.
pub fn topic(topic: &str) -> String {
    format!("{TOPICS}/{topic}")
}

/// Parent of a topic's partitions.
pub fn partitions(topic: &str) -> String {
    format!("{TOPICS}/{topic}/partitions")
}

/// A partition.
pub fn partition(topic: &str, partition: i32) -> String {
    format!("{TOPICS}/{topic}/partitions/{partition}")
}

/// A partition's leader and ISR.
pub fn partition_state(topic: &str, partition: i32) -> String {
    format!("{TOPICS}/{topic}/partitions/{partition}/state")
}

/// The mark that a topic is to be deleted.
pub fn delete_topic(topic: &str) -> String {
    format!("{DELETE_TOPICS}/{topic}")
}

/// A topic's configs.
pub fn topic_config(topic: &str) -> String {
    format!("/config/topics/{topic}")
}

/// A broker's dynamic configs; `None` for the cluster's defaults.
pub fn broker_config(id: Option<i32>) -> String {
    match id {
        Some(id) => format!("/config/brokers/{id}"),
        None => format!("/config/brokers/{DEFAULT_ENTITY}"),
    }
}

/// A group's old-style committed offset.
pub fn consumer_offset(group: &str, topic: &str, partition: i32) -> String {
    format!("{CONSUMERS}/{group}/offsets/{topic}/{partition}")
}

/// A delegation token.
pub fn delegation_token(token_id: &str) -> String {
    format!("{DELEGATION_TOKENS}/{token_id}")
}

/// The parent of a path; `None` for the root and its children, whose parent always exists.
pub fn parent(path: &str) -> Option<&str> {
    match path.rfind('/') {
        None | Some(0) => None,
        Some(at) => Some(&path[..at]),
    }
}

/// The counter of a sequential node's name; `None` where the name does not end in digits after the prefix.
pub fn sequence_number(name: &str, prefix: &str) -> Option<i64> {
    let at = name.rfind(prefix)? + prefix.len();
    name[at..].parse().ok()
}

/// The rest of a topic's state path: topic and partition.
pub fn parse_partition_state(path: &str) -> Option<(&str, i32)> {
    let rest = path.strip_prefix(TOPICS)?.strip_prefix('/')?.strip_suffix("/state")?;
    let (topic, partition) = rest.split_once("/partitions/")?;
    Some((topic, partition.parse().ok()?))
}

/// Makes a principal, client id or IP safe for a path. Source: `org.apache.kafka.common.utils.Sanitizer`.
pub fn sanitize(name: &str) -> String {
    let mut sanitized = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                sanitized.push(char::from(byte));
            }
            _ => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                sanitized.push('%');
                sanitized.push(char::from(HEX[usize::from(byte >> 4)]));
                sanitized.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    sanitized
}

/// The name that `sanitize` was given; `None` for a `%` without two hexadecimal digits.
pub fn desanitize(sanitized: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(sanitized.len());
    let mut rest = sanitized.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Checks a path as ZooKeeper's own client does; a sequential node's prefix may end in a slash.
pub(crate) fn check(path: &str, sequential: bool) -> Result<(), crate::store::ZkError> {
    let fail = |reason| Err(crate::store::ZkError::InvalidPath { path: path.to_owned(), reason });
    if !path.starts_with('/') {
        return fail("path must start with / character");
    }
    if path == "/" {
        return Ok(());
    }
    let names = if sequential { path.strip_suffix('/').unwrap_or(path) } else { path };
    for name in names[1..].split('/') {
        match name {
            "" => return fail("empty node name specified"),
            "." | ".." => return fail("relative paths not allowed"),
            _ => {}
        }
    }
    let forbidden = |character: char| {
        matches!(character, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{f000}'..='\u{f8ff}')
            || matches!(character, '\u{fff0}'..='\u{ffff}')
    };
    if path.chars().any(forbidden) {
        return fail("invalid character");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sanitized_as_kafka_does() {
        for (name, sanitized) in [
            ("alice", "alice"),
            ("client 1*+/x", "client%201%2A%2B%2Fx"),
            ("CN=alice, O=x", "CN%3Dalice%2C%20O%3Dx"),
            ("a~b", "a%7Eb"),
            ("ü€", "%C3%BC%E2%82%AC"),
            ("", ""),
        ] {
            assert_eq!(sanitize(name), sanitized);
            assert_eq!(desanitize(sanitized).as_deref(), Some(name));
        }
        assert_eq!(desanitize("a%2"), None);
        assert_eq!(desanitize("a%+1"), None);
        assert_eq!(desanitize("a%é"), None);
    }

    #[test]
    fn sequence_numbers_are_read_after_the_prefix() {
        assert_eq!(sequence_number("config_change_0000000012", "config_change_"), Some(12));
        assert_eq!(sequence_number("config_change_", "config_change_"), None);
        assert_eq!(sequence_number("other", "config_change_"), None);
    }

    #[test]
    fn a_state_path_is_taken_apart() {
        assert_eq!(parse_partition_state(&partition_state("t", 3)), Some(("t", 3)));
        assert_eq!(parse_partition_state("/brokers/topics/t/partitions/x/state"), None);
        assert_eq!(parse_partition_state("/brokers/topics/t"), None);
    }

    #[test]
    fn paths_are_checked() {
        for good in ["/", "/a", "/config/brokers/<default>", "/a/..."] {
            assert!(check(good, false).is_ok(), "{good}");
        }
        for bad in ["", "a", "/a/", "//a", "/a//b", "/a/../b", "/a/.", "/a\0b", "/a\u{f100}"] {
            assert!(check(bad, false).is_err(), "{bad:?}");
        }
        assert!(check("/a/", true).is_ok());
    }
}
