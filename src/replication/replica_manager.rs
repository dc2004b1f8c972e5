//! The partitions of this broker, by name, and how the controller's word changes them.
//! Source: `kafka.server.ReplicaManager`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use common::{
    error_code::ErrorCode,
    ids::{BrokerId, LeaderEpoch},
    topic::{TopicPartition, Uuid, is_internal},
};
use metadata::snapshot::Update;
use parking_lot::{Mutex, RwLock};
use partition::leader::Leadership;
use storage::log_manager::{CreateError, LogManager, NewLog};
use tracing::{debug, info, warn};

use crate::{
    fetchers::Fetchers, partition::Partition, surroundings::Surroundings,
    topic_settings::TopicSettings,
};

/// Who may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only the leader.
    LeaderOnly,
    /// Any replica: for tools that compare replicas.
    AnyReplica,
}

/// The partitions that this broker hosts. Shared; the lock is held for one look-up or one change.
pub struct ReplicaManager {
    surroundings: Arc<Surroundings>,
    logs: Arc<LogManager>,
    topics: RwLock<HashMap<Arc<str>, HostedTopic>>,
    /// Names of the topics that are here, by their ids.
    names_by_id: RwLock<HashMap<Uuid, Arc<str>>>,
    /// Partitions that should be here and have no log, for a directory has failed. Changed with its word on a partition.
    without_log: Mutex<HashSet<TopicPartition>>,
    /// Partitions with which others are to go on, for here is no room; until the controller's next word on each.
    given_way: Mutex<HashSet<TopicPartition>>,
    /// None where this broker follows nobody: a test.
    fetchers: Option<Fetchers>,
}

/// How the partitions of a broker stand, for the metrics of Kafka's ReplicaManager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Partitions here, those with failed directories among them.
    pub partitions: usize,
    /// Those whose directory has failed; they count as nothing else.
    pub offline: usize,
    /// Those led here.
    pub leaders: usize,
    /// Led ones with fewer in-sync replicas than there shall be.
    pub under_replicated: usize,
    /// Led ones with fewer in-sync replicas than acks=all asks for.
    pub under_min_isr: usize,
    /// Led ones with just as many.
    pub at_min_isr: usize,
    /// Led ones of which a reassignment adds or takes away replicas.
    pub reassigning: usize,
}

/// The partitions of one topic, by number.
type HostedTopic = BTreeMap<i32, Arc<Partition>>;

/// The controller's word on one partition. Source: `LeaderAndIsrRequest.json`.
#[derive(Clone, Debug)]
pub struct LeaderAndIsr {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// The topic's id, where it has one.
    pub topic_id: Option<Uuid>,
    /// The leader; `BrokerId::NONE` while there is none.
    pub leader: BrokerId,
    /// Epoch, in-sync set and assignment.
    pub leadership: Leadership,
    /// Whether the partition was just made, so that a missing log is no loss.
    pub is_new: bool,
}

impl ReplicaManager {
    /// A manager without partitions: the controller names them.
    pub fn new(
        surroundings: Arc<Surroundings>,
        logs: Arc<LogManager>,
        fetchers: Option<Fetchers>,
    ) -> ReplicaManager {
        let (topics, names_by_id, without_log, given_way) = Default::default();
        ReplicaManager { surroundings, logs, topics, names_by_id, without_log, given_way, fetchers }
    }

    /// What the partitions share.
    pub fn surroundings(&self) -> &Arc<Surroundings> {
        &self.surroundings
    }

    /// A partition, where this broker hosts it.
    pub fn get(&self, topic: &str, partition: i32) -> Option<Arc<Partition>> {
        self.topics.read().get(topic)?.get(&partition).cloned()
    }

    /// The name of a topic that has partitions here.
    pub fn topic_name(&self, id: Uuid) -> Option<Arc<str>> {
        self.names_by_id.read().get(&id).cloned()
    }

    /// Every partition, in no order of topics.
    pub fn all(&self) -> Vec<Arc<Partition>> {
        self.topics.read().values().flat_map(|topic| topic.values().cloned()).collect()
    }

    /// How the partitions stand; none where that is as at the last call, so that an idle broker does not look at each of
    /// ten thousand every second.
    pub fn counts(&self) -> Option<Counts> {
        self.surroundings.take_change().then(|| self.count())
    }

    fn count(&self) -> Counts {
        let without_log = self.without_log.lock().len();
        let mut counts =
            Counts { partitions: without_log, offline: without_log, ..Counts::default() };
        for partition in self.topics.read().values().flat_map(BTreeMap::values) {
            counts.partitions += 1;
            if partition.log().log_directory().is_offline() {
                counts.offline += 1;
                continue;
            }
            let health = partition.health();
            counts.leaders += usize::from(health.is_led);
            counts.under_replicated += usize::from(health.is_under_replicated);
            counts.under_min_isr += usize::from(health.is_under_min_isr);
            counts.at_min_isr += usize::from(health.is_at_min_isr);
            counts.reassigning += usize::from(health.is_reassigning);
        }
        counts
    }

    /// The log directory of these partitions has failed: who waits for one of them finds out.
    pub fn directory_failed(&self, partitions: &[TopicPartition]) {
        for name in partitions {
            if let Some(partition) = self.get(&name.topic, name.partition) {
                partition.wake();
            }
        }
        self.surroundings.note_change();
    }

    /// Looks whether replicas have fallen out of in-sync sets, or may come into them.
    pub fn check_in_sync_sets(&self) {
        for partition in self.all() {
            partition.check_in_sync_set();
        }
    }

    /// Takes the controller's word on a partition: makes its log where it is missing, leads or follows.
    /// May touch the disk. `settings` gives the topic's where a log must be made.
    pub fn apply(
        &self,
        word: LeaderAndIsr,
        settings: &dyn Fn(&str) -> Arc<TopicSettings>,
    ) -> Result<(), ErrorCode> {
        let name = &word.topic_partition;
        let hosted = self.get(&name.topic, name.partition);
        let is_other = hosted.as_ref().is_some_and(|one| !is_same_topic(one.topic_id(), &word));
        if is_other && word.leadership.epoch <= LeaderEpoch::NONE {
            // Nothing is moved aside for a word that no controller says.
            return Err(ErrorCode::InconsistentTopicId);
        }
        let hosted = hosted.filter(|_| !is_other);
        match &hosted {
            Some(partition) => {
                if partition.log().log_directory().is_offline() || self.gives_way(partition, &word)
                {
                    return Err(ErrorCode::KafkaStorageError);
                }
                if !self.is_new_to(partition, &word)? {
                    return Ok(());
                }
            }
            None if word.leadership.epoch <= LeaderEpoch::NONE => {
                return Err(ErrorCode::StaleControllerEpoch);
            }
            None => {}
        }
        if !word.leadership.replicas.contains(&self.surroundings.local) {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        let partition = match hosted {
            Some(partition) => partition,
            None => self.host(&word, settings)?,
        };
        if partition.log().log_directory().is_offline() || self.gives_way(&partition, &word) {
            return Err(ErrorCode::KafkaStorageError);
        }
        self.given_way.lock().remove(name);
        self.learn_topic_id(&partition, &word)?;
        if word.leadership.partition_epoch < partition.partition_epoch() {
            info!(target: "state.change.logger", partition = %name, "the state is older than what the controller has agreed to since");
            return Ok(());
        }
        if word.leader == self.surroundings.local {
            info!(target: "state.change.logger", partition = %name, epoch = word.leadership.epoch.0, "became leader");
            self.lead(&partition, word.leadership);
        } else {
            info!(target: "state.change.logger", partition = %name, epoch = word.leadership.epoch.0, leader = word.leader.0, "became follower");
            self.follow(&partition, &word);
        }
        Ok(())
    }

    /// Whether this broker does not lead what it is told to, or what it leads, for its directory has no room and another
    /// in-sync replica may have some; or follows, and what its leader has cannot be committed for that. To the controller
    /// it is a replica that is offline, until its next word. One that is alone in sync leads on: it can be read.
    fn gives_way(&self, partition: &Partition, word: &LeaderAndIsr) -> bool {
        let (told, local) = (&word.leadership, self.surroundings.local);
        let (epoch, partition_epoch) = (partition.leader_epoch(), partition.partition_epoch());
        if !partition.log().log_directory().is_short_of_room()
            || (told.epoch, told.partition_epoch) < (epoch, partition_epoch)
        {
            return false;
        }
        let is_other = |id: &BrokerId| *id != local && self.surroundings.is_alive(*id);
        let gives_way = match word.leader == local {
            true => told.isr.iter().any(is_other) && partition.give_way(),
            false => {
                let is_in_sync = told.epoch == epoch && told.isr.contains(&local);
                is_in_sync && is_other(&word.leader) && partition.holds_up_its_leader()
            }
        };
        if gives_way {
            debug!(partition = %word.topic_partition, "there is no room: other in-sync replicas are to go on without this one");
            self.given_way.lock().insert(word.topic_partition.clone());
        }
        gives_way
    }

    /// How many replicas here have no room, and others in sync are to go on without them, of which the controller has yet
    /// to hear; and those that it has stopped since, which are to follow.
    pub fn left_to_give_way(&self) -> usize {
        let is_stopped = |name: &TopicPartition| self.get(&name.topic, name.partition).is_none();
        let mut given_way = self.given_way.lock();
        let stopped = given_way.iter().filter(|name| is_stopped(name)).count();
        if !self.logs.directories().any(|directory| directory.is_short_of_room()) {
            // Once more, and not for ever.
            given_way.retain(|name| !is_stopped(name));
            return stopped;
        }
        drop(given_way);
        let topics = self.topics.read();
        let hosted = topics.values().flat_map(BTreeMap::values);
        stopped + hosted.filter(|partition| partition.is_to_give_way()).count()
    }

    /// Whether a word says anything new of a partition that is hosted: a new epoch, or a newer state of the present one. One
    /// that tells the topic's id alone is taken, and is no error.
    fn is_new_to(
        &self,
        partition: &Arc<Partition>,
        word: &LeaderAndIsr,
    ) -> Result<bool, ErrorCode> {
        let (current, told) = (partition.leader_epoch(), &word.leadership);
        if told.epoch > current {
            return Ok(true);
        }
        if told.epoch < current {
            return Err(ErrorCode::StaleControllerEpoch);
        }
        if told.partition_epoch > partition.partition_epoch() {
            return Ok(true);
        }
        if word.topic_id.is_some() && partition.topic_id().is_none() {
            self.learn_topic_id(partition, word)?;
            return Ok(false);
        }
        Err(ErrorCode::StaleControllerEpoch)
    }

    /// Leads the partition; after a planned move once it is taken over. Internal topics are written with acks=all, so that
    /// nothing of theirs can be missing.
    fn lead(&self, partition: &Arc<Partition>, leadership: Leadership) {
        let epoch = leadership.epoch;
        let former = partition.followed().filter(|(former, known)| {
            known.0 + 1 == epoch.0
                && !is_internal(&partition.topic_partition().topic)
                && self.surroundings.is_alive(*former)
        });
        self.leave_leader(partition);
        match (former, &self.fetchers) {
            (Some((former, _)), Some(fetchers)) => {
                partition.begin_takeover(leadership);
                fetchers.take_over(partition, former, epoch);
            }
            _ => partition.lead(leadership),
        }
    }

    /// Copies nothing from other brokers any more; to be called when this one stops.
    pub fn stop_fetching(&self) {
        if let Some(fetchers) = &self.fetchers {
            fetchers.stop();
        }
    }

    /// How many partitions with other replicas are led here still, or were led here until now and are not taken over yet.
    pub fn left_to_move(&self) -> usize {
        let topics = self.topics.read();
        let is_left = |one: &&Arc<Partition>| {
            let is_led = one.as_leader(|leader| leader.replicas().len() > 1);
            is_led == Some(true) || one.owes()
        };
        topics.values().flat_map(BTreeMap::values).filter(is_left).count()
    }

    /// Copies the partition from its leader. Where the epoch is the same, that goes on.
    fn follow(&self, partition: &Arc<Partition>, word: &LeaderAndIsr) {
        let (epoch, leader) = (word.leadership.epoch, word.leader);
        let followed = partition.followed();
        if followed != Some((leader, epoch)) {
            self.leave_leader(partition);
        }
        partition.note_in_sync(word.leadership.isr.contains(&self.surroundings.local));
        partition.follow(leader, epoch, word.leadership.partition_epoch);
        if followed != Some((leader, epoch))
            && leader != BrokerId::NONE
            && let Some(fetchers) = &self.fetchers
        {
            fetchers.follow(partition, leader, epoch);
        }
    }

    /// The fetcher may still be at work; what it brings for an epoch that is over is not taken.
    fn leave_leader(&self, partition: &Partition) {
        if let Some((leader, _)) = partition.followed()
            && let Some(fetchers) = &self.fetchers
        {
            fetchers.leave(partition.topic_partition(), leader);
        }
    }

    /// Takes the id of a topic that was made before there were ids.
    fn learn_topic_id(
        &self,
        partition: &Arc<Partition>,
        word: &LeaderAndIsr,
    ) -> Result<(), ErrorCode> {
        let Some(id) = word.topic_id.filter(|_| partition.topic_id().is_none()) else {
            return Ok(());
        };
        let assigned = partition.log().assign_topic_id(id);
        assigned.map_err(|error| storage_error(&word.topic_partition, &error))?;
        partition.learn_topic_id(id);
        self.names_by_id.write().insert(id, word.topic_partition.topic.clone());
        if let Some((leader, epoch)) = partition.followed()
            && let Some(fetchers) = &self.fetchers
        {
            // It is to be fetched by its id from now on.
            fetchers.follow(partition, leader, epoch);
        }
        Ok(())
    }

    fn host(
        &self,
        word: &LeaderAndIsr,
        settings: &dyn Fn(&str) -> Arc<TopicSettings>,
    ) -> Result<Arc<Partition>, ErrorCode> {
        let name = &word.topic_partition;
        let settings = settings(&name.topic);
        let new = NewLog {
            partition: name.clone(),
            topic_id: word.topic_id,
            config: Some(settings.log.clone()),
            is_new: word.is_new,
        };
        let mut log = self.logs.get_or_create(&new);
        if log.as_ref().is_ok_and(|log| !is_same_topic(log.topic_id(), word)) {
            // The topic was deleted and made again while this broker was away.
            self.unhost(name);
            self.logs.set_aside(name).map_err(|error| storage_error(name, &error))?;
            log = self.logs.get_or_create(&new);
        }
        if let Err(error @ CreateError::NoName(_)) = &log {
            warn!(partition = %name, error = %error, "cannot be a replica");
            return Err(ErrorCode::UnknownServerError);
        }
        self.note_log(name, log.is_ok());
        let log = log.map_err(|error| storage_error(name, &error))?;
        let topic_id = log.topic_id().or(word.topic_id);
        let partition = Partition::new(topic_id, self.surroundings.clone(), log, settings);
        let partition = Arc::new(partition);
        if let Some(id) = topic_id {
            self.names_by_id.write().insert(id, name.topic.clone());
        }
        let mut topics = self.topics.write();
        let partitions = topics.entry(name.topic.clone()).or_default();
        Ok(partitions.entry(name.partition).or_insert(partition).clone())
    }

    /// Notes whether a partition that should be here has a log. Source: `HostedPartition.Offline`.
    fn note_log(&self, name: &TopicPartition, has_log: bool) {
        let mut without_log = self.without_log.lock();
        match has_log {
            true => without_log.remove(name),
            false => without_log.insert(name.clone()),
        };
        drop(without_log);
        self.surroundings.note_change();
    }

    /// Takes new settings of a topic.
    pub fn configure(&self, topic: &str, settings: &Arc<TopicSettings>) {
        let partitions: Vec<_> = match self.topics.read().get(topic) {
            Some(partitions) => partitions.values().cloned().collect(),
            None => return,
        };
        for partition in partitions {
            partition.configure(settings);
        }
    }

    /// A replica is to be stopped in an epoch: where it leads, it takes no more from now on, and whoever asks in a newer epoch
    /// may have what is here, for only the new leader does; nobody has said which one that is. Whether it is asked for.
    pub fn give_up(&self, name: &TopicPartition, epoch: LeaderEpoch) -> bool {
        let Some(partition) = self.get(&name.topic, name.partition) else { return false };
        let is_led = partition.as_leader(|leader| (leader.epoch(), leader.replicas().len() > 1));
        if let Some((led, true)) = is_led
            && led < epoch
            && !is_internal(&name.topic)
        {
            partition.follow(BrokerId::NONE, LeaderEpoch(led.0 + 1), partition.partition_epoch());
        }
        partition.owes()
    }

    /// Whether the new leader of a partition may not have all that this broker took while it led.
    pub fn owes(&self, name: &TopicPartition) -> bool {
        self.get(&name.topic, name.partition).is_some_and(|partition| partition.owes())
    }

    /// The partitions that are hosted here, though by what all brokers are told they are elsewhere in a newer epoch; with it.
    pub fn moved_away(&self, update: &Update) -> Vec<(TopicPartition, LeaderEpoch)> {
        let topics = self.topics.read();
        let mut moved = Vec::new();
        for told in &update.topics {
            let Some((topic, hosted)) = topics.get_key_value(&told.name) else { continue };
            for (index, state) in &told.partitions {
                let Some(state) = state else { continue };
                let is_elsewhere = !state.replicas.contains(&self.surroundings.local);
                if is_elsewhere
                    && let Some(partition) = hosted.get(index)
                    && partition.leader_epoch() < state.leader_epoch
                {
                    moved.push((TopicPartition::new(topic.clone(), *index), state.leader_epoch));
                }
            }
        }
        moved
    }

    /// The partitions that are hosted here though by what all brokers are told their topic is deleted, and no StopReplica will
    /// say so: those that were given up here and are not taken over, and those of a former topic of the same name.
    pub fn left_over(&self, update: &Update) -> Vec<TopicPartition> {
        let topics = self.topics.read();
        let mut left = Vec::new();
        for told in &update.topics {
            let Some((topic, hosted)) = topics.get_key_value(&told.name) else { continue };
            for (index, state) in &told.partitions {
                let Some(partition) = hosted.get(index) else { continue };
                let ours = partition.topic_id();
                let is_other = ours.is_some() && told.id.is_some() && ours != told.id;
                let is_left = match state {
                    Some(state) => is_other && !state.replicas.contains(&self.surroundings.local),
                    None => is_other || partition.owes(),
                };
                if is_left {
                    left.push(TopicPartition::new(topic.clone(), *index));
                }
            }
        }
        left
    }

    /// Neither leads nor follows a partition that is elsewhere in a newer epoch. A controller that dies once that is written
    /// may never say StopReplica, and no other one knows that there is a replica to stop. Its log stays, and where this
    /// broker led it is hosted still: the new leader may ask for what is here.
    pub fn step_down(&self, name: &TopicPartition, epoch: LeaderEpoch) {
        self.given_way.lock().remove(name);
        if !self.give_up(name, epoch) {
            self.unhost(name);
        } else if let Some(partition) = self.get(&name.topic, name.partition) {
            self.leave_leader(&partition);
        }
    }

    /// Stops hosting a partition; with `delete`, its log goes too. One that is not hosted is fine, but its log is
    /// still deleted.
    pub fn stop(&self, name: &TopicPartition, delete: bool) -> Result<(), ErrorCode> {
        self.unhost(name);
        self.note_log(name, true);
        if delete {
            self.given_way.lock().remove(name);
            self.logs.delete(name).map_err(|error| storage_error(name, &error))?;
        }
        Ok(())
    }

    fn unhost(&self, name: &TopicPartition) {
        let removed = {
            let mut topics = self.topics.write();
            let removed = topics.get_mut(&name.topic).and_then(|all| all.remove(&name.partition));
            if topics.get(&name.topic).is_some_and(BTreeMap::is_empty) {
                topics.remove(&name.topic);
            }
            removed
        };
        if let Some(partition) = removed {
            self.leave_leader(&partition);
            partition.retire();
            if let Some(id) = partition.topic_id().filter(|_| !self.has_topic(&name.topic)) {
                self.names_by_id.write().remove(&id);
            }
        }
    }

    fn has_topic(&self, topic: &str) -> bool {
        self.topics.read().contains_key(topic)
    }
}

/// Whether a topic with this id is the one that the controller speaks of, as far as both know.
fn is_same_topic(ours: Option<Uuid>, word: &LeaderAndIsr) -> bool {
    ours.is_none() || word.topic_id.is_none() || ours == word.topic_id
}

fn storage_error(
    partition: &TopicPartition,
    error: &(dyn std::error::Error + 'static),
) -> ErrorCode {
    warn!(%partition, error, "the log of the partition cannot be used");
    ErrorCode::KafkaStorageError
}
