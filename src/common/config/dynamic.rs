//! Settings that stand in ZooKeeper for one broker or for all, laid over a broker's file. Source: `DynamicBrokerConfig`.

use std::collections::BTreeSet;

use super::broker::{BrokerConfig, ConfigErrors};
use super::describe::BROKER_QUOTAS;
use super::table::{self, ConfigKey, Update};
use super::value::Value;
use super::values::Warning;
use crate::properties::Properties;

/// What `/config/brokers/<default>` and `/config/brokers/ID` say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DynamicConfigs {
    /// For all brokers.
    pub for_all: Properties,
    /// For this one; goes before what is for all.
    pub for_this: Properties,
}

/// Where a dynamic setting stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For all brokers.
    All,
    /// For this one.
    This,
}

/// A dynamic setting that does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Where it stands.
    pub scope: Scope,
    /// The key.
    pub key: String,
    /// Why, in words; without the value where it is a secret.
    pub why: String,
}

/// A broker's file with the dynamic settings over it.
#[derive(Clone, Debug)]
pub struct Overlaid {
    /// What holds.
    pub config: BrokerConfig,
    /// What does not count.
    pub ignored: Vec<Ignored>,
}

impl DynamicConfigs {
    /// The settings of one scope.
    pub fn of(&self, scope: Scope) -> &Properties {
        match scope {
            Scope::All => &self.for_all,
            Scope::This => &self.for_this,
        }
    }

    pub(super) fn of_mut(&mut self, scope: Scope) -> &mut Properties {
        match scope {
            Scope::All => &mut self.for_all,
            Scope::This => &mut self.for_this,
        }
    }

    pub(super) fn sets(&self, key: &str) -> bool {
        self.for_all.contains_key(key) || self.for_this.contains_key(key)
    }

    /// The file's lines with these in their place. Other names of a key give way as well: `log.retention.ms` here beats
    /// `log.retention.hours` there, and the other way round. Source: `DynamicBrokerConfig.overrideProps`.
    pub(super) fn over(&self, file: &Properties) -> Properties {
        let mut merged = file.clone();
        for (key, value) in self.for_all.iter().chain(&self.for_this) {
            // What a listener sets leaves the setting for all listeners alone.
            if table::listener_key(key).is_none() {
                for name in table::broker_synonyms(key) {
                    merged.remove(name);
                }
            }
            merged.insert(key.clone(), value.clone());
        }
        merged
    }

    /// Takes out what errors name; all of it, where they name nothing of it.
    fn drop_refused(&mut self, errors: &ConfigErrors, ignored: &mut Vec<Ignored>) {
        let mut dropped = Vec::new();
        for error in &errors.0 {
            let names = table::broker_synonyms(&error.key);
            let of_scope = |scope| names.iter().map(move |name| (scope, (*name).to_owned()));
            let mut places = of_scope(Scope::This).chain(of_scope(Scope::All));
            let place = places.find(|(scope, name)| self.of(*scope).contains_key(name));
            dropped.extend(place.map(|(scope, name)| (scope, name, error.to_string())));
        }
        if dropped.is_empty() {
            for scope in [Scope::All, Scope::This] {
                let names = self.of(scope).keys();
                dropped.extend(names.map(|name| (scope, name.clone(), errors.to_string())));
            }
        }
        for (scope, key, why) in dropped {
            if self.of_mut(scope).remove(&key).is_some() {
                ignored.push(Ignored { scope, key, why });
            }
        }
    }
}

impl BrokerConfig {
    /// The file of this broker with other settings from ZooKeeper over it. What Kafka would not take does not count, and
    /// costs no other setting its place.
    pub fn with_dynamic(&self, set: &DynamicConfigs) -> Overlaid {
        let mut taken = DynamicConfigs::default();
        let mut ignored = Vec::new();
        for scope in [Scope::All, Scope::This] {
            for (key, value) in set.of(scope) {
                match refusal(scope, key, value) {
                    None => {
                        taken.of_mut(scope).insert(key.clone(), value.clone());
                    }
                    Some(why) => ignored.push(Ignored { scope, key: key.clone(), why }),
                }
            }
        }
        loop {
            match self.parse_over(taken.clone()) {
                Ok(config) => return Overlaid { config, ignored },
                // The file alone is refused for what its own topics would be.
                Err(_) if taken == DynamicConfigs::default() => {
                    return Overlaid { config: self.clone(), ignored };
                }
                Err(errors) => taken.drop_refused(&errors, &mut ignored),
            }
        }
    }

    /// What counts of the settings in ZooKeeper.
    pub fn dynamic(&self) -> &DynamicConfigs {
        self.values.dynamic()
    }

    /// Dynamic settings that do nothing here.
    pub fn dynamic_warnings(&self) -> Vec<Warning> {
        self.dynamic_keys().into_iter().filter_map(Warning::of_key).collect()
    }

    /// The keys of dynamic settings, here or there, whose values differ between this config and another of the same file.
    pub fn dynamic_changes(&self, other: &BrokerConfig) -> Vec<String> {
        let mut keys = self.dynamic_keys();
        keys.extend(other.dynamic_keys());
        let differs = |key: &&str| match table::broker_key(key).is_some_and(|key| key.defined) {
            true => self.value(key) != other.value(key),
            false => self.values.originals().get(*key) != other.values.originals().get(*key),
        };
        keys.into_iter().filter(differs).map(str::to_owned).collect()
    }

    fn dynamic_keys(&self) -> BTreeSet<&str> {
        let DynamicConfigs { for_all, for_this } = self.dynamic();
        for_all.keys().chain(for_this.keys()).map(String::as_str).collect()
    }
}

/// Why a setting from ZooKeeper does not count, if it does not. Keys that nobody knows do.
fn refusal(scope: Scope, name: &str, value: &str) -> Option<String> {
    let undecoded = || "is a password, and those in ZooKeeper are not decoded yet".to_owned();
    kafkas_refusal(scope, name, value).or_else(|| is_secret(name).then(undecoded))
}

/// Why Kafka does not take a setting from ZooKeeper, if it does not.
fn kafkas_refusal(scope: Scope, name: &str, value: &str) -> Option<String> {
    if let Err(message) = check_value(name, value) {
        return Some(message);
    }
    if is_of_file(name) {
        return Some("is read from the file alone".to_owned());
    }
    if OF_LISTENERS_ALONE.contains(&name) {
        return Some("can be set for a listener only (listener.name.<listener>.)".to_owned());
    }
    let is_misplaced = scope == Scope::All && is_per_broker(name);
    is_misplaced.then(|| "can be set for one broker only".to_owned())
}

/// What Kafka keeps of settings in ZooKeeper when it changes some of them: what it takes. Passwords stay as they are.
pub fn kept(scope: Scope, set: &Properties) -> Properties {
    let taken = set.iter().filter(|(key, value)| kafkas_refusal(scope, key, value).is_none());
    taken.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Checks a value by its key alone, where the key can change while a broker runs.
pub(super) fn check_value(name: &str, value: &str) -> Result<(), String> {
    let is_changeable = |key: &&ConfigKey| key.is_dynamic() || BROKER_QUOTAS.contains(&key.name);
    let Some(key) = any_key(name).filter(is_changeable) else { return Ok(()) };
    let parsed = Value::parse(key, value);
    let checked = parsed.and_then(|value| key.valid.check(key.name, Some(&value)));
    checked.map_err(|error| error.message)
}

/// Whether a key is read from the file alone.
pub(super) fn is_of_file(name: &str) -> bool {
    table::broker_key(name).is_some_and(|key| key.defined && !key.is_dynamic())
}

/// Whether a value is never shown.
pub(super) fn is_secret(name: &str) -> bool {
    any_key(name).is_some_and(ConfigKey::is_secret)
}

/// Whether a key may be set for one broker alone.
pub(super) fn is_per_broker(name: &str) -> bool {
    let of_listener = name.strip_prefix("listener.name.").and_then(|rest| rest.split_once('.'));
    match of_listener {
        Some((_, base)) => !FOR_ALL_PER_LISTENER.contains(&base),
        None => table::broker_key(name).is_some_and(|key| key.update == Update::PerBroker),
    }
}

/// The key of a name, also where the name sets it for one listener.
pub(super) fn any_key(name: &str) -> Option<&'static ConfigKey> {
    table::listener_key(name).or_else(|| table::broker_key(name))
}

/// Settings of a listener that may stand for all brokers. Source: `DynamicBrokerConfig.ClusterLevelListenerConfigs`.
const FOR_ALL_PER_LISTENER: &[&str] =
    &["max.connections", "max.connection.creation.rate", "num.network.threads"];

/// Source: `SslConfigs.RECONFIGURABLE_CONFIGS`.
pub(super) const OF_LISTENERS_ALONE: &[&str] = &[
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::broker::tests::broker;
    use crate::config::topic::TopicConfig;

    fn set(for_all: &str, for_this: &str) -> DynamicConfigs {
        let properties = |text: &str| crate::properties::parse(text.as_bytes());
        DynamicConfigs { for_all: properties(for_all), for_this: properties(for_this) }
    }

    fn ignored(file: &str, for_all: &str, for_this: &str) -> Vec<String> {
        let overlaid = broker(file).with_dynamic(&set(for_all, for_this));
        let shown =
            |ignored: &Ignored| format!("{:?} {}: {}", ignored.scope, ignored.key, ignored.why);
        overlaid.ignored.iter().map(shown).collect()
    }

    #[test]
    fn one_brokers_settings_beat_those_for_all_and_both_beat_the_file() {
        let file = broker("min.insync.replicas=1\nmessage.max.bytes=7\nlog.segment.bytes=5000");
        let over = file.with_dynamic(&set(
            "min.insync.replicas=3\nmessage.max.bytes=8\nunclean.leader.election.enable=true",
            "message.max.bytes=9",
        ));
        assert_eq!(over.ignored, []);
        let config = over.config;
        assert_eq!((config.min_insync_replicas, config.message_max_bytes), (3, 9));
        assert_eq!(config.log_segment_bytes, 5000);
        let topic = TopicConfig::of_broker(&config);
        assert_eq!((topic.min_insync_replicas, topic.max_message_bytes), (3, 9));
        assert!(topic.unclean_leader_election_enable);
        // Taken away again, the file counts.
        let without = config.with_dynamic(&set("", "")).config;
        assert_eq!((without.min_insync_replicas, without.message_max_bytes), (1, 7));
        assert_eq!(
            without.dynamic_changes(&config),
            ["message.max.bytes", "min.insync.replicas", "unclean.leader.election.enable"]
        );
    }

    #[test]
    fn other_names_of_a_key_give_way() {
        let file = broker("log.retention.minutes=2\nlog.roll.hours=5");
        let config = file.with_dynamic(&set("log.retention.ms=77", "log.roll.ms=88")).config;
        assert_eq!((config.log_retention_ms, config.log_roll_ms), (77, 88));
    }

    #[test]
    fn what_kafka_does_not_take_is_named_and_costs_nothing_else() {
        assert_eq!(
            ignored("", "min.insync.replicas=x\nmessage.max.bytes=-1\nnum.partitions=5", ""),
            [
                "All message.max.bytes: Invalid value -1 for configuration message.max.bytes: Value must be at least 0",
                "All min.insync.replicas: Invalid value x for configuration min.insync.replicas: Not a number of type INT",
                "All num.partitions: is read from the file alone",
            ]
        );
        assert_eq!(
            ignored("", "advertised.listeners=PLAINTEXT://a:1", "ssl.keystore.type=PEM"),
            [
                "All advertised.listeners: can be set for one broker only",
                "This ssl.keystore.type: can be set for a listener only (listener.name.<listener>.)",
            ]
        );
        let secret = ignored("", "", "listener.name.a.ssl.keystore.password=hush");
        assert_eq!(
            secret,
            [
                "This listener.name.a.ssl.keystore.password: is a password, and those in ZooKeeper are not decoded yet"
            ]
        );
        let bad = set("min.insync.replicas=3\nmessage.max.bytes=x", "min.insync.replicas=0");
        let config = broker("").with_dynamic(&bad).config;
        assert_eq!((config.min_insync_replicas, config.message_max_bytes), (3, 1_048_588));
    }

    #[test]
    fn a_setting_that_does_not_go_with_the_others_costs_only_itself() {
        let over = broker("").with_dynamic(&set(
            "min.insync.replicas=2",
            "advertised.listeners=OTHER://a:1\nmessage.max.bytes=9",
        ));
        let keys: Vec<&str> = over.ignored.iter().map(|ignored| ignored.key.as_str()).collect();
        assert_eq!(keys, ["advertised.listeners"]);
        assert_eq!((over.config.min_insync_replicas, over.config.message_max_bytes), (2, 9));
    }

    #[test]
    fn what_no_topic_may_have_is_not_taken_as_its_default() {
        // The broker's key has no lower bound of its own.
        let over =
            broker("").with_dynamic(&set("log.flush.interval.ms=-5\nmin.insync.replicas=2", ""));
        assert_eq!(over.ignored.len(), 1, "{:?}", over.ignored);
        assert_eq!(over.config.min_insync_replicas, 2);
        // It can be used.
        TopicConfig::of_broker(&over.config);
    }

    #[test]
    fn what_does_nothing_here_is_named() {
        let over = broker("").with_dynamic(&set("num.io.threads=9\ncustom.thing=1", ""));
        let warnings: Vec<String> =
            over.config.dynamic_warnings().iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "Unknown configuration 'custom.thing' is ignored",
                "Configuration 'num.io.threads' is set, but has nothing to tune in this broker",
            ]
        );
        assert_eq!(broker("").dynamic_changes(&over.config), ["custom.thing", "num.io.threads"]);
    }
}
