//! Once a topic's znodes are gone none of its brokers has its logs, and once nothing goes wrong any more the deletion comes to
//! its end: no znode of the topic is left, and no broker has a replica of it.

use common::{ids::BrokerId, topic::Uuid};
use zk::{
    documents::topic::TopicDocument,
    paths,
    store::{Watch, ZkStore},
};

use crate::world::{TOPIC, World, looked};

const NAME: &str = "deletion";

impl World {
    /// A topic's znode has gone.
    pub fn check_deleted(&mut self, topic: &TopicDocument) {
        let Some(id) = topic.topic_id else { return };
        self.note(format_args!("topic {} is deleted", id.0));
        if !self.topics.doomed.contains(&id) {
            return self.violate(NAME, format!("topic {} is deleted, for nobody", id.0));
        }
        for (partition, assignment) in &topic.partitions {
            for broker in &assignment.replicas {
                self.check_log(*broker, *partition, id);
            }
        }
        // Whatever they have lost of it.
        self.brokers.values_mut().for_each(|broker| broker.has_lost.clear());
    }

    /// A broker has no log of a partition of a deleted topic, where it would be found.
    fn check_log(&mut self, id: BrokerId, partition: i32, topic_id: Uuid) {
        let path = self.brokers[&id].log_path(partition);
        if storage::partition_metadata::read(&path).ok().flatten() == Some(topic_id) {
            let topic = topic_id.0;
            let what = format!("{id} has {partition} of topic {topic}, which is deleted");
            self.violate(NAME, what);
        }
    }

    /// The last deletion was long ago.
    pub fn check_deletion_at_the_end(&mut self) {
        for path in [paths::topic(TOPIC), paths::delete_topic(TOPIC), paths::topic_config(TOPIC)] {
            if looked(self.looker.exists(&path, Watch::No)).is_some() {
                return self.violate(NAME, format!("{path} is left"));
            }
        }
        for id in self.running() {
            let hosted: Vec<i32> = self.process(id).replicas.keys().copied().collect();
            if !hosted.is_empty() {
                return self.violate(NAME, format!("{id} has replicas of {hosted:?}"));
            }
        }
    }
}
