//! The configs of topics: read from ZooKeeper, kept, and turned into what partitions obey.

use std::{collections::HashMap, sync::Arc, time::Duration};

use common::{
    config::{broker::BrokerConfig, topic::TopicConfig},
    properties::Properties,
};
use parking_lot::RwLock;
use replication::topic_settings::TopicSettings;
use tracing::{error, warn};
use zk::{
    documents::config::parse_configs,
    paths,
    store::{Watch, ZkStore},
};

use crate::topic_settings;

/// How long a read waits for ZooKeeper before the kept configs are used instead.
const READ_AT_MOST: Duration = Duration::from_secs(6);

/// The configs of topics as last seen. Shared; the lock is held for one look-up or one change.
pub(crate) struct TopicConfigs {
    state: RwLock<State>,
}

struct State {
    broker: Arc<BrokerConfig>,
    /// What a topic without settings of its own obeys; shared by all such topics.
    defaults: Arc<TopicSettings>,
    known: HashMap<String, Known>,
}

struct Known {
    overrides: Properties,
    settings: Arc<TopicSettings>,
}

impl State {
    fn settings(&self, topic: &str) -> Arc<TopicSettings> {
        self.known.get(topic).map_or_else(|| self.defaults.clone(), |known| known.settings.clone())
    }
}

impl TopicConfigs {
    /// No topic has settings of its own yet.
    pub(crate) fn new(broker: Arc<BrokerConfig>) -> TopicConfigs {
        let defaults = topic_settings::of_topic(&broker, &TopicConfig::of_broker(&broker));
        TopicConfigs { state: RwLock::new(State { broker, defaults, known: HashMap::new() }) }
    }

    /// Takes other defaults of the broker; topics with settings of their own keep these.
    pub(crate) fn set_broker(&self, broker: Arc<BrokerConfig>) {
        let mut state = self.state.write();
        state.defaults = topic_settings::of_topic(&broker, &TopicConfig::of_broker(&broker));
        for (topic, known) in &mut state.known {
            match TopicConfig::new(&broker, &known.overrides) {
                Ok(config) => known.settings = topic_settings::of_topic(&broker, &config),
                Err(problem) => {
                    error!(topic, problem = problem.message, "the topic's configs are not usable");
                }
            }
        }
        state.broker = broker;
    }

    /// What a topic without settings of its own obeys.
    pub(crate) fn defaults(&self) -> Arc<TopicSettings> {
        self.state.read().defaults.clone()
    }

    /// What a topic's partitions obey.
    pub(crate) fn settings(&self, topic: &str) -> Arc<TopicSettings> {
        self.state.read().settings(topic)
    }

    /// Takes a topic's settings of its own. Values that cannot be used leave it with what it had.
    pub(crate) fn put(&self, topic: &str, overrides: Properties) -> Arc<TopicSettings> {
        // Held from the look at the broker's defaults to the end, so that a change of these misses no topic.
        let mut state = self.state.write();
        if overrides.is_empty() {
            state.known.remove(topic);
            return state.defaults.clone();
        }
        match TopicConfig::new(&state.broker, &overrides) {
            Ok(config) => {
                if state.known.get(topic).is_none_or(|known| known.overrides != overrides)
                    && let Some(warning) = TopicConfig::warning(&state.broker, topic, &overrides)
                {
                    warn!(target: "kafka.server.TopicConfigHandler", "{warning}");
                }
                let settings = topic_settings::of_topic(&state.broker, &config);
                let known = Known { overrides, settings: settings.clone() };
                state.known.insert(topic.to_owned(), known);
                settings
            }
            Err(problem) => {
                error!(topic, problem = problem.message, "the topic's configs are not usable");
                state.settings(topic)
            }
        }
    }

    /// Forgets a topic that is gone.
    pub(crate) fn remove(&self, topic: &str) {
        self.state.write().known.remove(topic);
    }

    /// A topic's settings of its own as they stand in ZooKeeper, or as last seen where it does not answer.
    pub(crate) async fn read(&self, zk: &dyn ZkStore, topic: &str) -> Properties {
        let path = paths::topic_config(topic);
        match tokio::time::timeout(READ_AT_MOST, zk.get(&path, Watch::No)).await {
            Ok(Ok(None)) => Properties::new(),
            Ok(Ok(Some(node))) => match parse_configs(&path, &node.data) {
                Ok(configs) => configs,
                Err(problem) => {
                    error!(%problem, "the topic's configs cannot be read");
                    self.overrides(topic)
                }
            },
            Ok(Err(_)) | Err(_) => self.overrides(topic),
        }
    }

    fn overrides(&self, topic: &str) -> Properties {
        self.state.read().known.get(topic).map(|known| known.overrides.clone()).unwrap_or_default()
    }

    /// Reads a topic's settings from ZooKeeper and keeps them.
    pub(crate) async fn load(&self, zk: &dyn ZkStore, topic: &str) -> Arc<TopicSettings> {
        let overrides = self.read(zk, topic).await;
        self.put(topic, overrides)
    }
}
