//! The rates of replication quotas, which stand in ZooKeeper for a broker or for all of them, and in no file.
//! Source: `kafka.server.BrokerConfigHandler`, KIP-73.

use std::sync::Arc;

use common::{ids::BrokerId, properties::Properties};
use parking_lot::Mutex;
use replication::{quota::UNLIMITED, surroundings::Surroundings};
use tracing::{info, warn};

/// The entity that stands for all brokers.
const DEFAULT: &str = "<default>";
const LEADER_RATE: &str = "leader.replication.throttled.rate";
const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";

/// What is set for this broker and for all.
pub(crate) struct ReplicationQuotas {
    broker: BrokerId,
    surroundings: Arc<Surroundings>,
    set: Mutex<Set>,
}

#[derive(Default)]
struct Set {
    here: Properties,
    everywhere: Properties,
}

impl ReplicationQuotas {
    /// Nothing is set yet.
    pub(crate) fn new(broker: BrokerId, surroundings: Arc<Surroundings>) -> ReplicationQuotas {
        ReplicationQuotas { broker, surroundings, set: Mutex::default() }
    }

    /// Takes the configs of a broker, or of all, and puts the rates in force.
    pub(crate) fn apply(&self, entity: &str, configs: &Properties) {
        let mut set = self.set.lock();
        if entity == DEFAULT {
            set.everywhere = configs.clone();
        } else if entity == self.broker.to_string() {
            set.here = configs.clone();
        }
        let Surroundings { leader_quota, follower_quota, .. } = &*self.surroundings;
        for (key, quota) in [(LEADER_RATE, leader_quota), (FOLLOWER_RATE, follower_quota)] {
            let value = set.here.get(key).or_else(|| set.everywhere.get(key));
            let rate = value.map_or(Some(UNLIMITED), |text| text.trim().parse().ok());
            match rate {
                Some(rate) if rate != quota.limit() => {
                    info!(target: "kafka.server.ReplicationQuotaManager", key, rate, "replication quota changed");
                    quota.set_limit(rate);
                }
                Some(_) => {}
                None => {
                    warn!(target: "kafka.server.ReplicationQuotaManager", key, value = value.map(String::as_str), "no number");
                }
            }
        }
    }
}
