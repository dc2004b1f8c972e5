//! Which partitions a broker holds, so that what happens to a broker costs what it holds.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use common::{ids::BrokerId, topic::TopicPartition};

/// The partitions by the brokers of their assignments.
#[derive(Debug, Default)]
pub(crate) struct Held {
    by_broker: HashMap<BrokerId, HashSet<TopicPartition>>,
}

impl Held {
    pub(crate) fn on(&self, broker: BrokerId) -> impl Iterator<Item = &TopicPartition> {
        self.by_broker.get(&broker).into_iter().flatten()
    }

    pub(crate) fn add(&mut self, topic: &Arc<str>, index: i32, replicas: &[BrokerId]) {
        for &broker in replicas {
            let partition = TopicPartition::new(Arc::clone(topic), index);
            self.by_broker.entry(broker).or_default().insert(partition);
        }
    }

    pub(crate) fn remove(&mut self, topic: &Arc<str>, index: i32, replicas: &[BrokerId]) {
        let partition = TopicPartition::new(Arc::clone(topic), index);
        for broker in replicas {
            if let Some(held) = self.by_broker.get_mut(broker) {
                held.remove(&partition);
                if held.is_empty() {
                    self.by_broker.remove(broker);
                }
            }
        }
    }
}
