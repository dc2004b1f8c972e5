//! Properties that protect a cluster or keep data elsewhere, and that this broker does not carry out. A broker that went on
//! without them would be open, or would miss records: it refuses to start, before it has changed anything.

use common::config::broker::BrokerConfig;

/// Keys that are set and cannot be served, all of them, each with what would be amiss without it.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct UnservedKeys(Vec<String>);

/// The keys, and what a broker that ignored them would do. A value of `false`, or none, asks for nothing.
const KEYS: &[(&str, &str)] = &[
    (
        "authorizer.class.name",
        "ACLs are not enforced yet, so that every client could do everything: take the key out to start without authorization",
    ),
    (
        "create.topic.policy.class.name",
        "a Java class that cannot be loaded here, so that topics which it would refuse could be created: take the key out to start without the policy",
    ),
    (
        "alter.config.policy.class.name",
        "a Java class that cannot be loaded here, so that changes which it would refuse could be made: take the key out to start without the policy",
    ),
    (
        "remote.log.storage.system.enable",
        "tiered storage is not served, and what only the remote storage has could not be read",
    ),
];

/// Refuses properties that must not be ignored.
pub(crate) fn check(config: &BrokerConfig) -> Result<(), UnservedKeys> {
    let unserved: Vec<String> = (KEYS.iter())
        .filter_map(|(key, why)| {
            let value = config.value(key)?.to_string();
            let asks_for_nothing = value.is_empty() || value == "false";
            (!asks_for_nothing).then(|| format!("{key}={value} is not served: {why}"))
        })
        .collect();
    if unserved.is_empty() { Ok(()) } else { Err(UnservedKeys(unserved)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(lines: &str) -> String {
        let text = format!("zookeeper.connect=z:1\n{lines}");
        let config = BrokerConfig::parse(&common::properties::parse(text.as_bytes())).unwrap();
        check(&config).map_or_else(|refused| refused.to_string(), |()| "ok".to_owned())
    }

    #[test]
    fn what_would_leave_a_cluster_open_or_lose_data_is_named() {
        assert!(
            refused("authorizer.class.name=kafka.security.authorizer.AclAuthorizer").starts_with(
                "authorizer.class.name=kafka.security.authorizer.AclAuthorizer is not served: ACLs"
            )
        );
        assert!(
            refused("remote.log.storage.system.enable=TRUE")
                .starts_with("remote.log.storage.system.enable=true is not served: tiered")
        );
        let policies =
            refused("create.topic.policy.class.name=a.B\nalter.config.policy.class.name=a.C");
        assert!(policies.contains("create.topic.policy.class.name=a.B is not served"));
        assert!(policies.contains("; alter.config.policy.class.name=a.C is not served"));
        assert!(!policies.contains('\n'));
    }

    #[test]
    fn what_asks_for_nothing_is_taken() {
        let lines =
            "authorizer.class.name= \nremote.log.storage.system.enable=false\nsuper.users=User:a";
        assert_eq!(refused(lines), "ok");
        assert_eq!(refused(""), "ok");
    }
}
