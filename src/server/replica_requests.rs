//! Carries out what the controller says to this broker: LeaderAndIsr, UpdateMetadata, StopReplica, in their order.
//! Source: `KafkaApis.handleLeaderAndIsrRequest` and its neighbours.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{BrokerEpoch, ControllerEpoch, LeaderEpoch},
    topic::{GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition},
};
use controller::request::{self, Body, BrokerRequest, DURING_DELETE, StopReplicaPartition};
use metadata::{cache::MetadataCache, snapshot::Update};
use partition::leader::Leadership;
use replication::{
    replica_manager::{LeaderAndIsr, ReplicaManager},
    topic_settings::TopicSettings,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;
use zk::store::ZkStore;

use crate::{
    controlled_shutdown::{LOOK_AGAIN, TAKEN_OVER_AT_MOST},
    controller::channels::{Answer, ToBroker},
    groups::BrokerGroups,
    topic_configs::TopicConfigs,
    transactions::BrokerTransactions,
};

/// What the requests change. Owned by one task.
pub(crate) struct ReplicaRequests {
    pub replicas: Arc<ReplicaManager>,
    pub metadata: Arc<MetadataCache>,
    /// Set once a controller has told of the cluster.
    pub metadata_known: watch::Sender<bool>,
    pub topic_configs: Arc<TopicConfigs>,
    pub groups: Arc<BrokerGroups>,
    pub transactions: Arc<BrokerTransactions>,
    pub zk: Arc<dyn ZkStore>,
    /// The epoch of this broker's registration.
    pub broker_epoch: Arc<AtomicI64>,
    /// The newest controller that has spoken.
    pub controller_epoch: ControllerEpoch,
}

impl ReplicaRequests {
    /// Takes requests until told to stop.
    pub(crate) async fn serve(
        mut self,
        mut requests: mpsc::Receiver<ToBroker>,
        stop: CancellationToken,
    ) {
        loop {
            let received = tokio::select! {
                () = stop.cancelled() => return,
                received = requests.recv() => received,
            };
            let Some(ToBroker { request, answer }) = received else { return };
            let answered = self.handle(request).await;
            // A controller that is out of office does not listen.
            let _ = answer.send(answered);
        }
    }

    async fn handle(&mut self, request: BrokerRequest) -> Answer {
        let refused = |error| Answer { error, partitions: Vec::new() };
        let own_epoch = BrokerEpoch(self.broker_epoch.load(Ordering::Acquire));
        if request.broker_epoch != BrokerEpoch(-1) && request.broker_epoch < own_epoch {
            return refused(ErrorCode::StaleBrokerEpoch);
        }
        if request.controller_epoch < self.controller_epoch {
            return refused(ErrorCode::StaleControllerEpoch);
        }
        self.controller_epoch = request.controller_epoch;
        match request.body {
            Body::LeaderAndIsr(told) => self.lead_and_follow(told).await,
            Body::UpdateMetadata(update) => {
                let gone = self.metadata.apply(&update);
                self.groups.learn(&self.metadata.load());
                self.transactions.learn(&self.metadata.load());
                self.metadata_known.send_replace(true);
                if !gone.is_empty() {
                    self.groups.partitions_deleted(&gone);
                }
                for partition in &gone {
                    if self.metadata.load().topic(&partition.topic).is_none() {
                        self.topic_configs.remove(&partition.topic);
                    }
                }
                self.leave_what_moved(&update).await;
                Answer::done()
            }
            Body::StopReplica(told) => self.stop(told).await,
        }
    }

    async fn lead_and_follow(&self, told: request::LeaderAndIsr) -> Answer {
        let mut settings: HashMap<Arc<str>, Arc<TopicSettings>> = HashMap::new();
        let mut words = Vec::new();
        for topic in told.topics {
            // Only a log that is to be made needs the configs now; changes of others are told by notices.
            let is_new = topic
                .partitions
                .iter()
                .any(|told| self.replicas.get(&topic.name, told.index).is_none());
            if is_new {
                let loaded = self.topic_configs.load(&*self.zk, &topic.name).await;
                settings.insert(topic.name.clone(), loaded);
            }
            for partition in topic.partitions {
                let leadership = partition.leadership;
                words.push(LeaderAndIsr {
                    topic_partition: TopicPartition::new(topic.name.clone(), partition.index),
                    topic_id: topic.id,
                    leader: leadership.leader,
                    leadership: Leadership {
                        epoch: leadership.leader_epoch,
                        partition_epoch: leadership.partition_epoch,
                        replicas: partition.assignment.replicas,
                        adding: partition.assignment.adding,
                        removing: partition.assignment.removing,
                        isr: leadership.isr,
                    },
                    is_new: partition.is_new,
                });
            }
        }
        let words = once_each(words, |word| word.topic_partition.clone());
        let (replicas, configs) = (self.replicas.clone(), self.topic_configs.clone());
        // Logs are made on disk, which is not for a thread of the runtime.
        let applied = tokio::task::spawn_blocking(move || {
            let settings_of = |topic: &str| {
                settings.get(topic).cloned().unwrap_or_else(|| configs.settings(topic))
            };
            let each = words.into_iter().map(|word| {
                let name = word.topic_partition.clone();
                let applied = replicas.apply(word, &settings_of);
                (name, applied.err().unwrap_or(ErrorCode::None))
            });
            let answers = each.collect::<Vec<_>>();
            // What changed meanwhile did not find the partitions that were being made.
            for (topic, read) in &settings {
                let now = configs.settings(topic);
                if !Arc::ptr_eq(&now, read) {
                    replicas.configure(topic, &now);
                }
            }
            answers
        });
        match applied.await {
            Ok(partitions) => {
                for (name, _) in &partitions {
                    self.notify_coordinator(name);
                }
                Answer { error: ErrorCode::None, partitions }
            }
            Err(_) => Answer { error: ErrorCode::UnknownServerError, partitions: Vec::new() },
        }
    }

    /// A coordinator takes office where this broker leads its partition, and leaves where it does not.
    fn notify_coordinator(&self, name: &TopicPartition) {
        let led = self.replicas.get(&name.topic, name.partition).filter(|known| known.is_leader());
        match (&*name.topic, led) {
            (GROUP_METADATA_TOPIC, Some(partition)) => self.groups.elect(partition),
            (GROUP_METADATA_TOPIC, None) => self.groups.resign(name.partition),
            (TRANSACTION_STATE_TOPIC, Some(partition)) => self.transactions.elect(partition),
            (TRANSACTION_STATE_TOPIC, None) => self.transactions.resign(name.partition),
            _ => {}
        }
    }

    /// Steps down from the partitions that are elsewhere by what all brokers are told: StopReplica may never come.
    async fn leave_what_moved(&self, update: &Update) {
        let left = self.replicas.left_over(update);
        let moved = self.replicas.moved_away(update);
        if moved.is_empty() && left.is_empty() {
            return;
        }
        let replicas = self.replicas.clone();
        // Waits for appends that are under way.
        let left = tokio::task::spawn_blocking(move || {
            for name in &left {
                info!(target: "state.change.logger", partition = %name, "is of a topic that is deleted");
                // Its log stays: whoever deletes the topic knows of no replica here.
                let stopped = replicas.stop(name, false);
                debug_assert_eq!(stopped, Ok(()), "only a deletion can fail");
            }
            for (name, epoch) in &moved {
                info!(target: "state.change.logger", partition = %name, epoch = epoch.0, "is no replica any more");
                replicas.step_down(name, *epoch);
            }
            left.into_iter().chain(moved.into_iter().map(|(name, _)| name)).collect::<Vec<_>>()
        });
        for name in left.await.unwrap_or_default() {
            self.notify_coordinator(&name);
        }
    }

    /// A reassignment takes the leader away: its last records go to the new leader first. The controller waits meanwhile.
    async fn hand_over(&self, told: &request::StopReplica) {
        let replicas = self.replicas.clone();
        let moved = moved(told);
        // Waits for appends that are under way.
        let gave_up = tokio::task::spawn_blocking(move || {
            let gives_up = |(name, epoch)| replicas.give_up(&name, epoch).then_some(name);
            moved.into_iter().filter_map(gives_up).collect::<Vec<_>>()
        });
        let mut owing = gave_up.await.unwrap_or_default();
        let deadline = clock::now() + TAKEN_OVER_AT_MOST;
        while !owing.is_empty() {
            if clock::now() >= deadline {
                let left = owing.len();
                info!(target: "state.change.logger", left, "replicas that are to stop were not taken over in time");
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            owing.retain(|name| self.replicas.owes(name));
        }
    }

    async fn stop(&self, told: request::StopReplica) -> Answer {
        self.hand_over(&told).await;
        let replicas = self.replicas.clone();
        let named = told.topics.into_iter().flat_map(|topic| {
            let name = topic.name;
            let named = move |one: StopReplicaPartition| {
                (TopicPartition::new(name.clone(), one.index), one)
            };
            topic.partitions.into_iter().map(named)
        });
        let named = once_each(named.collect(), |(name, _)| name.clone());
        let stopped = tokio::task::spawn_blocking(move || {
            let stop = |(name, told)| {
                let error = stop_one(&replicas, &name, told);
                (name, error)
            };
            named.into_iter().map(stop).collect::<Vec<_>>()
        });
        match stopped.await {
            Ok(partitions) => {
                for (name, _) in &partitions {
                    self.notify_coordinator(name);
                }
                Answer { error: ErrorCode::None, partitions }
            }
            Err(_) => Answer { error: ErrorCode::UnknownServerError, partitions: Vec::new() },
        }
    }
}

/// What is told of each partition: the last, where one is named several times.
fn once_each<T>(told: Vec<T>, name: impl Fn(&T) -> TopicPartition) -> Vec<T> {
    let mut places: HashMap<TopicPartition, usize> = HashMap::new();
    let mut once: Vec<T> = Vec::with_capacity(told.len());
    for one in told {
        match places.entry(name(&one)) {
            Entry::Occupied(place) => once[*place.get()] = one,
            Entry::Vacant(place) => {
                place.insert(once.len());
                once.push(one);
            }
        }
    }
    once
}

/// The replicas that stop because they are elsewhere now. Of a topic that is deleted nothing is to be kept; without an
/// epoch nobody knows.
fn moved(told: &request::StopReplica) -> Vec<(TopicPartition, LeaderEpoch)> {
    let named = told.topics.iter().flat_map(|topic| {
        let name = |index| TopicPartition::new(topic.name.clone(), index);
        topic.partitions.iter().map(move |one| (name(one.index), one.leader_epoch))
    });
    named.filter(|(_, epoch)| epoch.0 >= 0).collect()
}

fn stop_one(
    replicas: &ReplicaManager,
    name: &TopicPartition,
    told: StopReplicaPartition,
) -> ErrorCode {
    let hosted = replicas.get(&name.topic, name.partition);
    let overrides = told.leader_epoch == DURING_DELETE || told.leader_epoch == LeaderEpoch::NONE;
    if hosted.is_some_and(|one| !overrides && told.leader_epoch < one.leader_epoch()) {
        return ErrorCode::FencedLeaderEpoch;
    }
    info!(target: "state.change.logger", partition = %name, delete = told.delete, "stops the replica");
    replicas.stop(name, told.delete).err().unwrap_or(ErrorCode::None)
}

#[cfg(test)]
mod tests {
    use common::topic::TopicPartition;

    use super::once_each;

    #[test]
    fn the_last_word_on_a_partition_counts() {
        let told = vec![(0, "a"), (1, "b"), (0, "c")];
        let once = once_each(told, |(index, _)| TopicPartition::new("t", *index));
        assert_eq!(once, [(0, "c"), (1, "b")]);
    }
}
