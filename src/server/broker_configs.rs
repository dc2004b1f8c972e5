//! The settings of brokers that stand in ZooKeeper, over the file of this one. Source: `DynamicBrokerConfig`.

use std::sync::Arc;

use common::{
    config::{
        broker::BrokerConfig,
        describe::BROKER_QUOTAS,
        dynamic::{DynamicConfigs, Ignored, Overlaid, Scope},
        table,
        values::Warning,
    },
    ids::BrokerId,
    properties::Properties,
};
use parking_lot::Mutex;
use tracing::{error, info, warn};
use zk::{
    configs::{self, Entity},
    paths,
    store::{ZkError, ZkStore},
};

const LOG: &str = "kafka.server.DynamicBrokerConfig";

/// What a broker's settings are now. Shared; the lock is held for a look, or for one change.
pub struct BrokerConfigs {
    broker: BrokerId,
    /// The file, which changes are laid over.
    file: Arc<BrokerConfig>,
    state: Mutex<State>,
}

struct State {
    /// As it stands in ZooKeeper, with what does not count.
    set: DynamicConfigs,
    current: Arc<BrokerConfig>,
}

impl BrokerConfigs {
    /// Nothing stands in ZooKeeper.
    pub fn of_file(broker: BrokerId, file: Arc<BrokerConfig>) -> BrokerConfigs {
        let state = State { set: DynamicConfigs::default(), current: file.clone() };
        BrokerConfigs { broker, file, state: Mutex::new(state) }
    }

    /// Reads what stands in ZooKeeper for all brokers and for this one, and says what counts of it.
    pub async fn read(
        broker: BrokerId,
        file: Arc<BrokerConfig>,
        zk: &dyn ZkStore,
    ) -> Result<BrokerConfigs, ZkError> {
        let read = async |name: &str| configs::read(zk, &Entity::new("brokers", name)).await;
        let set = DynamicConfigs {
            for_all: read(paths::DEFAULT_ENTITY).await?,
            for_this: read(&broker.to_string()).await?,
        };
        let Overlaid { config, ignored } = file.with_dynamic(&set);
        for scope in [Scope::All, Scope::This] {
            let taken = config.dynamic().of(scope);
            if !taken.is_empty() {
                info!(target: LOG, "taken from ZooKeeper for {}: {}", named(scope), shown(taken));
            }
        }
        say_ignored(&ignored);
        say_without_effect(&config.dynamic_warnings());
        let state = State { set, current: Arc::new(config) };
        Ok(BrokerConfigs { broker, file, state: Mutex::new(state) })
    }

    /// What holds now. What is read at start alone stands in the config that the broker started with.
    pub fn current(&self) -> Arc<BrokerConfig> {
        self.state.lock().current.clone()
    }

    /// Where in ZooKeeper settings stand.
    pub(crate) fn entity(&self, scope: Scope) -> Entity {
        match scope {
            Scope::All => Entity::new("brokers", paths::DEFAULT_ENTITY),
            Scope::This => Entity::new("brokers", self.broker.to_string()),
        }
    }

    /// Takes what stands in ZooKeeper for an entity: a broker's id, or all brokers. Gives what holds from now on, where
    /// that changes, and says what of it counts from the next start only.
    pub(crate) fn apply(&self, entity: &str, configs: &Properties) -> Option<Arc<BrokerConfig>> {
        let scope = match entity {
            paths::DEFAULT_ENTITY => Scope::All,
            id if id.trim().parse() == Ok(self.broker.0) => Scope::This,
            _ => return None,
        };
        let mut state = self.state.lock();
        let mut set = state.set.clone();
        match scope {
            Scope::All => set.for_all.clone_from(configs),
            Scope::This => set.for_this.clone_from(configs),
        }
        if set == state.set {
            return None;
        }
        let Overlaid { config, ignored } = self.file.with_dynamic(&set);
        let changed = config.dynamic_changes(&state.current);
        let config = Arc::new(config);
        *state = State { set, current: config.clone() };
        drop(state);
        let ignored: Vec<Ignored> =
            ignored.into_iter().filter(|ignored| ignored.scope == scope).collect();
        say_ignored(&ignored);
        say_changed(scope, &changed, &config);
        Some(config)
    }
}

/// Whether a change is in force at once.
fn is_live(key: &str) -> bool {
    table::is_topic_default(key) || BROKER_QUOTAS.contains(&key) || OF_ALL_LOGS.contains(&key)
}

/// Settings of logs that no topic has for itself. Source: `DynamicProducerStateManagerConfig`.
const OF_ALL_LOGS: &[&str] =
    &["producer.id.expiration.ms", "transaction.partition.verification.enable"];

fn say_changed(scope: Scope, changed: &[String], config: &BrokerConfig) {
    let (idle, working): (Vec<&String>, Vec<&String>) =
        changed.iter().partition(|key| Warning::of_key(key).is_some());
    let (live, later): (Vec<&String>, Vec<&String>) =
        working.into_iter().partition(|key| is_live(key));
    if !live.is_empty() {
        let value = |key: &str| config.value(key).map_or("null".to_owned(), ToString::to_string);
        let values: Vec<String> = live.iter().map(|key| format!("{key}={}", value(key))).collect();
        info!(target: LOG, "changed in ZooKeeper for {}, in force now: {}", named(scope), values.join(", "));
    }
    if !later.is_empty() {
        warn!(target: LOG, "changed in ZooKeeper for {}, and counts from the next start of this broker: {}", named(scope), names(&later));
    }
    if !idle.is_empty() {
        warn!(target: LOG, "changed in ZooKeeper for {}, and has no effect here: {}", named(scope), names(&idle));
    }
}

fn say_ignored(ignored: &[Ignored]) {
    for Ignored { scope, key, why } in ignored {
        error!(target: LOG, "{key}, in ZooKeeper for {}, is ignored: {why}", named(*scope));
    }
}

fn say_without_effect(warnings: &[Warning]) {
    for warning in warnings {
        warn!(target: LOG, "in ZooKeeper: {warning}");
    }
}

fn named(scope: Scope) -> &'static str {
    match scope {
        Scope::All => "all brokers",
        Scope::This => "this broker",
    }
}

/// Settings as text. What is a password, or is not known and may be one, is named alone.
pub(crate) fn shown(settings: &Properties) -> String {
    let each = settings.iter().map(|(key, value)| {
        let known = table::broker_key(key).or_else(|| table::listener_key(key));
        if known.is_some_and(|key| !key.is_secret()) {
            format!("{key}={value}")
        } else {
            key.clone()
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

fn names(keys: &[&String]) -> String {
    keys.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
