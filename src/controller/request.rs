//! What the controller tells brokers, and the batch in which it is collected.
//!
//! A batch gives each broker at most one request of a kind, in Kafka's order: LeaderAndIsr,
//! UpdateMetadata, StopReplica. Source: `kafka.controller.AbstractControllerBrokerRequestBatch`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    ids::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};
use metadata::{
    broker::Broker,
    snapshot::{self, TopicUpdate, Update},
};

use crate::{
    assignment::Assignment,
    states::{Leadership, Partition},
};

/// A request to one broker. One is under way at a time per broker, in the order they were decided.
#[derive(Clone, Debug)]
pub struct BrokerRequest {
    /// Who gets it.
    pub broker: BrokerId,
    /// The registration that it is meant for.
    pub broker_epoch: BrokerEpoch,
    /// The controller that sends it.
    pub controller: BrokerId,
    /// The election that made it the controller.
    pub controller_epoch: ControllerEpoch,
    /// What it says.
    pub body: Body,
}

/// The content of a request.
#[derive(Clone, Debug)]
pub enum Body {
    /// Lead or follow these partitions.
    LeaderAndIsr(LeaderAndIsr),
    /// Know this of the cluster; shared, for it is the same for all.
    UpdateMetadata(Arc<Update>),
    /// Stop, and perhaps delete, these replicas.
    StopReplica(StopReplica),
}

/// The content of LeaderAndIsr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderAndIsr {
    /// The partitions by topic.
    pub topics: Vec<LeaderAndIsrTopic>,
    /// The live brokers that are named as leaders.
    pub live_leaders: Vec<Arc<Broker>>,
}

/// A topic in LeaderAndIsr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderAndIsrTopic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id, if it has one.
    pub id: Option<Uuid>,
    /// Its partitions.
    pub partitions: Vec<LeaderAndIsrPartition>,
}

/// A partition in LeaderAndIsr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderAndIsrPartition {
    /// Its number.
    pub index: i32,
    /// Who leads it.
    pub leadership: Leadership,
    /// Who holds it.
    pub assignment: Assignment,
    /// Whether the replica is new, so that no offline log directory can hold it.
    pub is_new: bool,
}

/// The content of StopReplica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReplica {
    /// The partitions by topic.
    pub topics: Vec<StopReplicaTopic>,
}

/// A topic in StopReplica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReplicaTopic {
    /// Its name.
    pub name: Arc<str>,
    /// Its partitions.
    pub partitions: Vec<StopReplicaPartition>,
}

/// A partition in StopReplica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopReplicaPartition {
    /// Its number.
    pub index: i32,
    /// The epoch to fence with; `DURING_DELETE` overrides any, -1 is unknown.
    pub leader_epoch: LeaderEpoch,
    /// Whether the replica's files go as well.
    pub delete: bool,
}

/// The epoch in StopReplica for a topic that is deleted.
pub const DURING_DELETE: LeaderEpoch = LeaderEpoch(-2);

type ByPartition<T> = BTreeMap<Arc<str>, BTreeMap<i32, T>>;

/// Requests that are collected and then sent together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    leader_and_isr: BTreeMap<BrokerId, ByPartition<LeaderAndIsrPartition>>,
    stop: BTreeMap<BrokerId, ByPartition<StopReplicaPartition>>,
    metadata_to: BTreeSet<BrokerId>,
    metadata_to_all: bool,
    metadata: ByPartition<Option<snapshot::Partition>>,
}

/// What a batch needs to know to become requests.
pub(crate) struct Sender<'a> {
    pub(crate) controller: BrokerId,
    pub(crate) epoch: ControllerEpoch,
    /// All live brokers, those shutting down included.
    pub(crate) brokers: Vec<Arc<Broker>>,
    pub(crate) topic_id: &'a dyn Fn(&str) -> Option<Uuid>,
}

impl Batch {
    /// Tells replicas who leads. Everyone hears of the partition by `tell`, which is separate.
    pub(crate) fn lead(
        &mut self,
        to: impl IntoIterator<Item = BrokerId>,
        partition: &TopicPartition,
        content: &LeaderAndIsrPartition,
    ) {
        for broker in to {
            let topics = self.leader_and_isr.entry(broker).or_default();
            let partitions = topics.entry(Arc::clone(&partition.topic)).or_default();
            let was_new = partitions.get(&partition.partition).is_some_and(|known| known.is_new);
            let mut content = content.clone();
            content.is_new |= was_new;
            partitions.insert(partition.partition, content);
        }
    }

    /// Tells a broker to stop a replica; once told to delete, it stays so.
    pub(crate) fn stop(
        &mut self,
        to: BrokerId,
        partition: &TopicPartition,
        mut content: StopReplicaPartition,
    ) {
        let partitions =
            self.stop.entry(to).or_default().entry(Arc::clone(&partition.topic)).or_default();
        content.delete |= partitions.get(&partition.partition).is_some_and(|known| known.delete);
        partitions.insert(partition.partition, content);
    }

    /// Sends these brokers an UpdateMetadata, with whatever partitions the batch has in the end.
    pub(crate) fn tell(&mut self, to: impl IntoIterator<Item = BrokerId>) {
        self.metadata_to.extend(to);
    }

    /// As `tell`, for every live broker.
    pub(crate) fn tell_all(&mut self) {
        self.metadata_to_all = true;
    }

    /// Puts a partition into UpdateMetadata; `None` says that it is being deleted.
    pub(crate) fn mention(
        &mut self,
        partition: &TopicPartition,
        content: Option<snapshot::Partition>,
    ) {
        let partitions = self.metadata.entry(Arc::clone(&partition.topic)).or_default();
        partitions.insert(partition.partition, content);
    }

    /// The requests, for live brokers alone.
    pub(crate) fn into_requests(mut self, sender: &Sender<'_>, requests: &mut Vec<BrokerRequest>) {
        let epochs: BTreeMap<BrokerId, BrokerEpoch> =
            sender.brokers.iter().map(|broker| (broker.id, broker.epoch)).collect();
        let mut send = |broker: BrokerId, body: Body| {
            let Some(&broker_epoch) = epochs.get(&broker) else { return };
            let (controller, controller_epoch) = (sender.controller, sender.epoch);
            let request =
                BrokerRequest { broker, broker_epoch, controller, controller_epoch, body };
            requests.push(request);
        };
        for (broker, topics) in self.leader_and_isr {
            send(broker, Body::LeaderAndIsr(leader_and_isr(topics, sender)));
        }
        if self.metadata_to_all {
            self.metadata_to = epochs.keys().copied().collect();
        }
        if !self.metadata_to.is_empty() {
            let update = Arc::new(update(self.metadata, sender));
            for broker in self.metadata_to {
                send(broker, Body::UpdateMetadata(Arc::clone(&update)));
            }
        }
        for (broker, topics) in self.stop {
            let topics = topics.into_iter().map(|(name, partitions)| StopReplicaTopic {
                name,
                partitions: partitions.into_values().collect(),
            });
            send(broker, Body::StopReplica(StopReplica { topics: topics.collect() }));
        }
    }
}

fn leader_and_isr(topics: ByPartition<LeaderAndIsrPartition>, sender: &Sender<'_>) -> LeaderAndIsr {
    let leaders: BTreeSet<BrokerId> =
        topics.values().flat_map(BTreeMap::values).map(|one| one.leadership.leader).collect();
    let topics = topics.into_iter().map(|(name, partitions)| LeaderAndIsrTopic {
        id: (sender.topic_id)(&name),
        name,
        partitions: partitions.into_values().collect(),
    });
    let is_leader = |broker: &&Arc<Broker>| leaders.contains(&broker.id);
    LeaderAndIsr {
        topics: topics.collect(),
        live_leaders: sender.brokers.iter().filter(is_leader).cloned().collect(),
    }
}

fn update(topics: ByPartition<Option<snapshot::Partition>>, sender: &Sender<'_>) -> Update {
    let topics = topics.into_iter().map(|(name, partitions)| TopicUpdate {
        id: (sender.topic_id)(&name),
        name,
        partitions: partitions.into_iter().collect(),
    });
    Update {
        controller: Some(sender.controller),
        brokers: sender.brokers.clone(),
        topics: topics.collect(),
    }
}

/// A partition as clients shall know it. One that was never led is shown without a leader, so that
/// it can be seen and deleted; Kafka hides it.
pub(crate) fn shown(
    partition: &Partition,
    online: &dyn Fn(BrokerId) -> bool,
    epoch: ControllerEpoch,
) -> snapshot::Partition {
    let replicas: Box<[BrokerId]> = partition.assignment.replicas[..].into();
    let offline_replicas = replicas.iter().copied().filter(|broker| !online(*broker)).collect();
    match &partition.leadership {
        Some(leadership) => snapshot::Partition {
            leader: leadership.leader,
            leader_epoch: leadership.leader_epoch,
            isr: leadership.isr[..].into(),
            replicas,
            offline_replicas,
            partition_epoch: leadership.partition_epoch,
            controller_epoch: leadership.controller_epoch,
        },
        None => snapshot::Partition {
            leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch::NONE,
            isr: Box::default(),
            replicas,
            offline_replicas,
            partition_epoch: PartitionEpoch(0),
            controller_epoch: epoch,
        },
    }
}
