//! What a request may change of the settings of brokers in ZooKeeper. Source: `DynamicBrokerConfig.validate`.

use super::broker::{BrokerConfig, ConfigErrors};
use super::dynamic::{self, DynamicConfigs, Scope};
use super::table::{Update, is_topic_default};
use super::value::Value;
use crate::java_hash::{in_hash_order, java_hash};
use crate::properties::Properties;

impl BrokerConfig {
    /// Why settings are not to stand in ZooKeeper for this broker, or for all, if they are not: in Kafka's words where it
    /// refuses them as well. This config is what holds now; `stored` is what stands there now.
    pub fn check_altered(
        &self,
        scope: Scope,
        stored: &Properties,
        wanted: &Properties,
    ) -> Result<(), String> {
        refuse_if("Cannot update these configs dynamically", wanted, dynamic::is_of_file)?;
        let without_listener = named(wanted, |name| dynamic::OF_LISTENERS_ALONE.contains(&name));
        if !without_listener.is_empty() {
            return Err(format!(
                "These security configs can be dynamically updated only per-listener using the listener prefix: HashSet({})",
                without_listener.join(", ")
            ));
        }
        for (name, value) in wanted {
            dynamic::check_value(name, value)?;
        }
        if scope == Scope::All {
            let why =
                "Cannot update these configs at default cluster level, broker id must be specified";
            refuse_if(why, wanted, dynamic::is_per_broker)?;
        }
        let stays = |name: &str| stored.get(name) == wanted.get(name);
        let why = "Listeners and their security cannot be changed in ZooKeeper, only in the file of the broker";
        refuse_if(why, wanted, |name| is_of_listeners(name) && !stays(name))?;

        let mut set: DynamicConfigs = self.dynamic().clone();
        let decoded = wanted.iter().filter(|(name, _)| !dynamic::is_secret(name));
        *set.of_mut(scope) = decoded.map(|(name, value)| (name.clone(), value.clone())).collect();
        let altered = self.parse_over(set).map_err(|ConfigErrors(errors)| {
            errors.into_iter().next().map_or(String::new(), |error| error.message)
        })?;
        check_change(self, &altered).map_err(|why| {
            let java = "org.apache.kafka.common.config.ConfigException";
            format!("Invalid value {java}: {why} for configuration Invalid dynamic configuration")
        })
    }
}

/// Whether a setting is one of listeners, or of who may come in by them: they are built once, at start, and passwords in
/// ZooKeeper are not decoded.
fn is_of_listeners(name: &str) -> bool {
    dynamic::any_key(name).is_some_and(|key| key.update == Update::PerBroker || key.is_secret())
}

fn refuse_if(
    why: &str,
    wanted: &Properties,
    is_refused: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let refused = named(wanted, is_refused);
    // Scala's name for a set of more than four.
    let set = if refused.len() > 4 { "HashSet" } else { "Set" };
    match refused.is_empty() {
        true => Ok(()),
        false => Err(format!("{why}: {set}({})", refused.join(", "))),
    }
}

/// Some of the names, as Java's properties give them.
fn named(wanted: &Properties, is_meant: impl Fn(&str) -> bool) -> Vec<&str> {
    let all = in_hash_order(wanted.keys().collect(), |name| java_hash(name));
    all.into_iter().map(String::as_str).filter(|name| is_meant(name)).collect()
}

/// Why a running broker does not go from one config to the other. Source: `BrokerReconfigurable.validateReconfiguration`.
fn check_change(now: &BrokerConfig, altered: &BrokerConfig) -> Result<(), String> {
    for listener in &altered.listeners {
        let of = |config: &BrokerConfig, name| number(config.listener_value(&listener.name, name));
        for name in ["max.connections", "max.connection.creation.rate"] {
            let value = of(altered, name).filter(|value| *value <= 0);
            if let Some(value) = value.filter(|value| Some(*value) != of(now, name)) {
                return Err(format!("Invalid {name} {value}"));
            }
        }
        let name = "num.network.threads";
        check_threads(name, of(now, name), of(altered, name))?;
    }
    let of = |config: &BrokerConfig, name| number(config.value(name));
    for name in THREADS {
        check_threads(name, of(now, name), of(altered, name))?;
    }
    let name = "log.cleaner.threads";
    if let (Some(now), Some(altered)) = (of(now, name), of(altered, name)) {
        check_cleaner_threads(now, altered)?;
    }
    if now.dynamic_changes(altered).iter().any(|name| is_topic_default(name)) {
        check_local_retention("ms", altered.log_retention_ms, altered)?;
        check_local_retention("bytes", altered.log_retention_bytes, altered)?;
    }
    Ok(())
}

/// Source: `DynamicThreadPool.ReconfigurableConfigs`.
const THREADS: &[&str] = &[
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
];

fn number(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Int(value)) => Some(i64::from(*value)),
        Some(Value::Long(value)) => Some(*value),
        _ => None,
    }
}

fn check_threads(name: &str, now: Option<i64>, altered: Option<i64>) -> Result<(), String> {
    let (Some(now), Some(altered)) = (now, altered) else { return Ok(()) };
    let refuse = |why: &str| {
        Err(format!("Dynamic thread count update validation failed for {name}={altered}, {why}"))
    };
    match altered {
        _ if altered == now => Ok(()),
        ..=0 => refuse("value should be at least 1"),
        _ if altered < now / 2 => {
            refuse(&format!("value should be at least half the current value {now}"))
        }
        _ if altered > now * 2 => {
            refuse(&format!("value should not be greater than double the current value {now}"))
        }
        _ => Ok(()),
    }
}

fn check_cleaner_threads(now: i64, altered: i64) -> Result<(), String> {
    match altered {
        _ if altered == now => Ok(()),
        ..=0 => Err("Log cleaner threads should be at least 1".to_owned()),
        _ if altered < now / 2 => Err(format!(
            "Log cleaner threads cannot be reduced to less than half the current value {now}"
        )),
        _ if altered > now * 2 => Err(format!(
            "Log cleaner threads cannot be increased to more than double the current value {now}"
        )),
        _ => Ok(()),
    }
}

/// What is kept here of a log in tiered storage is no more than is kept of it at all. Source: `DynamicLogConfig`.
fn check_local_retention(unit: &str, all: i64, altered: &BrokerConfig) -> Result<(), String> {
    let name = format!("log.local.retention.{unit}");
    let Some(local) = number(altered.value(&name)) else { return Ok(()) };
    let (limit, limited) = (format!("log.retention.{unit}"), all > -1);
    let refuse =
        |why: String| Err(format!("Invalid value {local} for configuration {name}: {why}"));
    match local {
        -2 => Ok(()),
        -1 if limited => refuse(format!("Value must not be -1 as {limit} value is set as {all}.")),
        _ if limited && local > all => {
            refuse(format!("Value must not be more than {limit} property value: {all}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::broker::tests::broker;

    fn lines(text: &str) -> Properties {
        crate::properties::parse(text.as_bytes())
    }

    fn check(scope: Scope, wanted: &str) -> String {
        let answer = broker("").check_altered(scope, &Properties::new(), &lines(wanted));
        answer.err().unwrap_or_else(|| "taken".to_owned())
    }

    #[test]
    fn what_changes_while_a_broker_runs_is_taken() {
        for wanted in [
            "log.flush.interval.messages=1234\nlog.retention.ms=7\ncompression.type=lz4",
            "max.connections=5\nmax.connections.per.ip.overrides=,\nnum.io.threads=16\nnum.replica.fetchers=2\nlog.cleaner.threads=2",
            "leader.replication.throttled.rate=5\nsome.plugin=1",
            "listener.name.plaintext.max.connections=7\nlistener.name.plaintext.num.network.threads=4",
        ] {
            assert_eq!(check(Scope::This, wanted), "taken");
            assert_eq!(check(Scope::All, wanted), "taken");
        }
    }

    #[test]
    fn refusals_are_kafkas() {
        let of_this = |wanted| check(Scope::This, wanted);
        assert_eq!(
            of_this("num.partitions=5\nlog.dirs=/x\nbroker.id=3"),
            "Cannot update these configs dynamically: Set(num.partitions, broker.id, log.dirs)"
        );
        assert_eq!(
            of_this("log.retention.hours=1"),
            "Cannot update these configs dynamically: Set(log.retention.hours)"
        );
        assert_eq!(
            of_this("min.insync.replicas=0"),
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"
        );
        assert_eq!(
            of_this("log.retention.ms=0"),
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
        );
        assert_eq!(
            of_this("ssl.key.password=x\nssl.keystore.location=y"),
            "These security configs can be dynamically updated only per-listener using the listener prefix: HashSet(ssl.key.password, ssl.keystore.location)"
        );
        assert_eq!(
            check(Scope::All, "listeners=PLAINTEXT://:1\nadvertised.listeners=PLAINTEXT://h:1"),
            "Cannot update these configs at default cluster level, broker id must be specified: Set(listeners, advertised.listeners)"
        );
        assert_eq!(
            check(Scope::All, "listener.name.plaintext.foo=4"),
            "Cannot update these configs at default cluster level, broker id must be specified: Set(listener.name.plaintext.foo)"
        );
    }

    #[test]
    fn steps_that_are_too_large_are_refused() {
        let of_this = |wanted| check(Scope::This, wanted);
        assert_eq!(
            of_this("num.io.threads=17"),
            "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for num.io.threads=17, value should not be greater than double the current value 8 for configuration Invalid dynamic configuration"
        );
        assert_eq!(
            of_this("listener.name.plaintext.num.network.threads=99"),
            "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for num.network.threads=99, value should not be greater than double the current value 3 for configuration Invalid dynamic configuration"
        );
        assert_eq!(
            of_this("log.cleaner.threads=3"),
            "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads cannot be increased to more than double the current value 1 for configuration Invalid dynamic configuration"
        );
        assert_eq!(
            of_this("max.connections=0"),
            "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 for configuration Invalid dynamic configuration"
        );
        assert_eq!(
            of_this("log.retention.ms=5\nlog.local.retention.ms=9"),
            "Invalid value org.apache.kafka.common.config.ConfigException: Invalid value 9 for configuration log.local.retention.ms: Value must not be more than log.retention.ms property value: 5 for configuration Invalid dynamic configuration"
        );
        // What holds now counts, wherever it was set.
        let set =
            DynamicConfigs { for_all: lines("num.io.threads=16"), ..DynamicConfigs::default() };
        let now = broker("").with_dynamic(&set).config;
        let answer =
            now.check_altered(Scope::This, &Properties::new(), &lines("num.io.threads=32"));
        assert_eq!(answer, Ok(()));
    }

    #[test]
    fn listeners_and_passwords_stay_as_they_are() {
        let refused = check(Scope::This, "listener.name.plaintext.ssl.key.password=hush");
        assert_eq!(
            refused,
            "Listeners and their security cannot be changed in ZooKeeper, only in the file of the broker: Set(listener.name.plaintext.ssl.key.password)"
        );
        for wanted in ["listeners=PLAINTEXT://:1", "sasl.enabled.mechanisms=PLAIN"] {
            assert!(check(Scope::This, wanted).starts_with("Listeners and their security"));
        }
        // One that Kafka put there costs no other setting its change.
        let stored = lines("listener.name.plaintext.ssl.key.password=encoded\nnum.partitions=3");
        let mut wanted = dynamic::kept(Scope::This, &stored);
        assert_eq!(wanted, lines("listener.name.plaintext.ssl.key.password=encoded"));
        wanted.extend(lines("min.insync.replicas=2"));
        assert_eq!(broker("").check_altered(Scope::This, &stored, &wanted), Ok(()));
    }
}
