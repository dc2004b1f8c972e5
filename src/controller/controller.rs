//! The controller's knowledge, and its turns.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use common::{
    ids::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};
use metadata::broker::Broker;

use crate::{
    alter_partition::Alteration,
    assignment::Assignment,
    change::Change,
    controlled_shutdown::Shutdown,
    deletion::Deletion,
    elect_leaders::Election,
    election::{Strategy, Voters, elect},
    ending::Ending,
    held::Held,
    plan::{Applied, Decided, Hearers, Outcome, Plan, Step, Todo, Write},
    reassignment::{MoveRequest, Orders},
    request::{Batch, BrokerRequest, LeaderAndIsrPartition, Sender, StopReplicaPartition, shown},
    states::{Leadership, Partition, PartitionState, ReplicaState},
};

/// What the controller is, for the whole of its term.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The broker that it runs on.
    pub broker: BrokerId,
    /// The election that it won.
    pub epoch: ControllerEpoch,
    /// Whether topics get ids: from `inter.broker.protocol.version` 2.8 on.
    pub topic_ids: bool,
    /// Whether an unclean leader is marked as recovering: from 3.2 on.
    pub leader_recovery: bool,
    /// `delete.topic.enable`.
    pub delete_topics: bool,
}

/// A registered broker.
#[derive(Debug)]
pub(crate) struct LiveBroker {
    pub(crate) broker: Arc<Broker>,
    pub(crate) shutting_down: bool,
    /// Replicas in a log directory that the broker has lost.
    pub(crate) offline: HashSet<TopicPartition>,
}

/// A topic.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) id: Option<Uuid>,
    /// Version of its znode.
    pub(crate) version: i32,
    pub(crate) partitions: BTreeMap<i32, Partition>,
    /// Set from the moment that somebody asks for its deletion.
    pub(crate) deletion: Option<Deletion>,
    /// Partitions whose move is done, while the znode still says that they move.
    pub(crate) arrived: BTreeSet<i32>,
    /// Its znodes are to be read again; nothing is decided until then.
    pub(crate) stale: bool,
}

/// The active controller. Owned by the loop that runs it; a new one is made at each election.
#[derive(Debug)]
pub struct Controller {
    pub(crate) options: Options,
    pub(crate) brokers: BTreeMap<BrokerId, LiveBroker>,
    pub(crate) topics: HashMap<Arc<str>, Topic>,
    pub(crate) names: HashMap<Uuid, Arc<str>>,
    pub(crate) held: Held,
    /// Partitions that are being moved.
    pub(crate) moving: BTreeSet<TopicPartition>,
    /// Moves that have arrived, and whose end is not to be written yet.
    pub(crate) ending: BTreeMap<TopicPartition, Ending>,
    /// What `/admin/reassign_partitions` says.
    pub(crate) orders: Option<Orders>,
    /// Moves that were ordered and not begun.
    pub(crate) move_requests: Vec<MoveRequest>,
    /// Elections that are not answered yet.
    pub(crate) elections: Vec<Election>,
    pub(crate) todo: BTreeMap<TopicPartition, Todo>,
    pub(crate) topics_todo: BTreeSet<Arc<str>>,
    /// Marks for deletion that lead to nothing.
    pub(crate) forget: BTreeSet<Arc<str>>,
    /// Brokers that know nothing yet.
    pub(crate) greet: BTreeSet<BrokerId>,
    /// The list of brokers changed, and all shall hear of it.
    pub(crate) tell_brokers: bool,
    /// Topics' `unclean.leader.election.enable`, as read for the next turn.
    pub(crate) unclean: BTreeMap<Arc<str>, bool>,
    /// Requests of leaders that are not answered yet.
    pub(crate) alterations: Vec<Alteration>,
    /// Brokers that wait for leave to stop.
    pub(crate) shutdowns: Vec<Shutdown>,
    /// Whether a turn has ended: before, the brokers know all that a former controller told them.
    settled: bool,
}

/// What a partition needs.
enum Decision {
    /// Nothing to write.
    Keep,
    /// Its first state.
    Create(Leadership),
    /// Another state.
    Set(Leadership),
    /// Another state, with which a move arrives.
    Arrive(Leadership),
    /// To know whether the topic allows unclean elections.
    AskUnclean,
}

impl Controller {
    /// A controller that knows nothing. Its first turn is given all of `Change::Brokers`,
    /// `Change::Topics` and `Change::Deletions`, in this order.
    pub fn new(options: Options) -> Controller {
        Controller {
            options,
            brokers: BTreeMap::new(),
            topics: HashMap::new(),
            names: HashMap::new(),
            held: Held::default(),
            moving: BTreeSet::new(),
            ending: BTreeMap::new(),
            orders: None,
            move_requests: Vec::new(),
            elections: Vec::new(),
            todo: BTreeMap::new(),
            topics_todo: BTreeSet::new(),
            forget: BTreeSet::new(),
            greet: BTreeSet::new(),
            tell_brokers: false,
            unclean: BTreeMap::new(),
            alterations: Vec::new(),
            shutdowns: Vec::new(),
            settled: false,
        }
    }

    /// Its epoch, which every write of it carries.
    pub fn epoch(&self) -> ControllerEpoch {
        self.options.epoch
    }

    /// Those of the names that are topics it does not know: their content goes into `Change::Topics`.
    pub fn unknown(&self, names: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        names.iter().filter(|name| !self.topics.contains_key(&***name)).cloned().collect()
    }

    /// The registered brokers, those that are shutting down included, in the order of their ids.
    pub fn live_brokers(&self) -> impl Iterator<Item = &Arc<Broker>> {
        self.brokers.values().map(|live| &live.broker)
    }

    /// The registration of a live broker.
    pub fn broker_epoch(&self, broker: BrokerId) -> Option<BrokerEpoch> {
        self.brokers.get(&broker).map(|live| live.broker.epoch)
    }

    /// Whether a partition is known; the states of others go into `Change::Topic`.
    pub fn knows(&self, topic: &str, partition: i32) -> bool {
        self.topics.get(topic).is_some_and(|topic| topic.partitions.contains_key(&partition))
    }

    /// Whether the topic waits for its deletion, or is being deleted.
    pub fn is_queued_for_deletion(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(|topic| topic.deletion.is_some())
    }

    /// The name of a topic's id.
    pub fn topic_name(&self, id: Uuid) -> Option<&Arc<str>> {
        self.names.get(&id)
    }

    /// A partition's state; none where it is unknown.
    pub fn partition_state(&self, partition: &TopicPartition) -> Option<PartitionState> {
        let topic = self.topics.get(&*partition.topic)?;
        Some(self.state_of(topic, partition, topic.partitions.get(&partition.partition)?))
    }

    /// A replica's state; none where it is not assigned.
    pub fn replica_state(
        &self,
        partition: &TopicPartition,
        replica: BrokerId,
    ) -> Option<ReplicaState> {
        let topic = self.topics.get(&*partition.topic)?;
        let known = topic.partitions.get(&partition.partition)?;
        if !known.assignment.replicas.contains(&replica) {
            return None;
        }
        let deleting = topic
            .deletion
            .as_ref()
            .and_then(|deletion| deletion.replicas.get(&(partition.partition, replica)).copied());
        Some(match deleting {
            Some(state) => state,
            None if !self.online(partition, replica) => ReplicaState::Offline,
            None if known.leadership.is_none() => ReplicaState::New,
            None => ReplicaState::Online,
        })
    }

    /// The partitions that a broker leads though others hold them too, those of topics being deleted apart.
    pub fn led_by(&self, broker: BrokerId) -> BTreeSet<TopicPartition> {
        let leads = |id: &&TopicPartition| {
            self.topics.get(&id.topic).is_some_and(|topic| {
                let partition = topic.partitions.get(&id.partition);
                topic.deletion.is_none()
                    && partition.is_some_and(|one| {
                        let leader = one.leadership.as_ref().map(|known| known.leader);
                        one.assignment.replicas.len() > 1 && leader == Some(broker)
                    })
            })
        };
        self.held.on(broker).filter(leads).cloned().collect()
    }

    /// What the controller's metrics show; looks at every partition.
    pub fn counts(&self) -> Counts {
        let (brokers, topics) = (self.brokers.len(), self.topics.len());
        let mut counts = Counts { brokers, topics, ..Counts::default() };
        for (name, topic) in &self.topics {
            if let Some(deletion) = &topic.deletion {
                self.count_deletion(topic, deletion, &mut counts);
                continue;
            }
            for (index, partition) in &topic.partitions {
                let Some(leadership) = &partition.leadership else { continue };
                counts.partitions += 1;
                let id = TopicPartition::new(Arc::clone(name), *index);
                counts.offline_partitions += usize::from(self.gone(&id, leadership.leader));
                let preferred = partition.assignment.replicas.first();
                counts.not_preferred += usize::from(preferred != Some(&leadership.leader));
            }
        }
        counts
    }

    fn count_deletion(&self, topic: &Topic, deletion: &Deletion, counts: &mut Counts) {
        let count = |wanted: ReplicaState| {
            deletion.replicas.values().filter(|state| **state == wanted).count()
        };
        let replicas = topic.partitions.values().map(|one| one.assignment.replicas.len());
        let replicas: usize = replicas.sum();
        counts.topics_to_delete += 1;
        counts.topics_ineligible += usize::from(deletion.ineligible);
        counts.replicas_to_delete += replicas - count(ReplicaState::DeletionSuccessful);
        counts.replicas_ineligible += count(ReplicaState::DeletionIneligible);
        counts.partitions += topic.partitions.values().filter(|p| p.leadership.is_some()).count();
    }

    /// Partitions with replicas on any of the brokers, and on which.
    pub(crate) fn held_by(
        &self,
        brokers: &BTreeSet<BrokerId>,
    ) -> BTreeMap<TopicPartition, Vec<BrokerId>> {
        let mut held: BTreeMap<TopicPartition, Vec<BrokerId>> = BTreeMap::new();
        for &broker in brokers {
            for partition in self.held.on(broker) {
                held.entry(partition.clone()).or_default().push(broker);
            }
        }
        held
    }

    /// Forgets a topic that is not there any more.
    pub(crate) fn forget_topic(&mut self, name: &str) {
        let Some((name, topic)) = self.topics.remove_entry(name) else { return };
        if let Some(id) = topic.id {
            self.names.remove(&id);
        }
        for (index, partition) in &topic.partitions {
            self.held.remove(&name, *index, &partition.assignment.replicas);
            let id = TopicPartition::new(Arc::clone(&name), *index);
            self.moving.remove(&id);
            self.ending.remove(&id);
        }
    }

    fn state_of(
        &self,
        topic: &Topic,
        id: &TopicPartition,
        partition: &Partition,
    ) -> PartitionState {
        match &partition.leadership {
            _ if topic.deletion.as_ref().is_some_and(|deletion| deletion.started) => {
                PartitionState::NonExistent
            }
            None => PartitionState::New,
            Some(leadership) if self.gone(id, leadership.leader) => PartitionState::Offline,
            Some(_) => PartitionState::Online,
        }
    }

    /// Whether the replica is lost for now: its broker is not registered, or lost its directory.
    pub(crate) fn gone(&self, partition: &TopicPartition, replica: BrokerId) -> bool {
        self.brokers.get(&replica).is_none_or(|broker| broker.offline.contains(partition))
    }

    /// Whether the replica may be elected.
    pub(crate) fn online(&self, partition: &TopicPartition, replica: BrokerId) -> bool {
        !self.gone(partition, replica) && !self.is_shutting_down(replica)
    }

    pub(crate) fn is_shutting_down(&self, broker: BrokerId) -> bool {
        self.brokers.get(&broker).is_some_and(|broker| broker.shutting_down)
    }

    /// Takes in what was read, which is true whatever becomes of the plan, and decides what to
    /// write, which is not. `new_id` gives ids to topics that have none.
    pub fn plan(&mut self, changes: Vec<Change>, new_id: &mut dyn FnMut() -> Uuid) -> Plan {
        for change in changes {
            self.learn(change);
        }
        let mut plan = Plan::default();
        for name in std::mem::take(&mut self.forget) {
            let write = plan.write(Write::ForgetDeletion { name });
            plan.steps.push(Step::Forget { write });
        }
        let mut moves = self.plan_moves(&mut plan);
        for name in std::mem::take(&mut self.topics_todo) {
            let moves = moves.get_mut(&name).map(std::mem::take).unwrap_or_default();
            self.plan_topic(name, moves, new_id, &mut plan);
        }
        for (partition, todo) in std::mem::take(&mut self.todo) {
            self.plan_partition(partition, todo, &mut plan);
        }
        self.plan_alterations(&mut plan);
        self.unclean.clear();
        plan
    }

    fn plan_partition(&mut self, partition: TopicPartition, todo: Todo, plan: &mut Plan) {
        let Some(topic) = self.topics.get(&partition.topic) else { return };
        if topic.deletion.is_some() {
            return;
        }
        let Some(known) = topic.partitions.get(&partition.partition) else { return };
        let waits = topic.stale || (topic.id.is_none() && self.options.topic_ids);
        if waits || plan.changes(&partition) {
            self.todo.insert(partition, todo);
            return;
        }
        let decision = self.decide(&partition, known, &todo);
        let arrives = matches!(decision, Decision::Arrive(_));
        let write = match decision {
            Decision::AskUnclean => {
                plan.unclean_wanted.insert(Arc::clone(&partition.topic));
                self.todo.insert(partition, todo);
                return;
            }
            Decision::Keep => None,
            Decision::Create(leadership) => {
                let partition = partition.clone();
                Some(plan.write(Write::CreateLeadership { partition, leadership }))
            }
            Decision::Set(leadership) | Decision::Arrive(leadership) => {
                let expected = leadership.partition_epoch;
                let partition = partition.clone();
                Some(plan.write(Write::SetLeadership { partition, leadership, expected }))
            }
        };
        plan.steps.push(Step::Partition { partition, write, arrives, todo });
    }

    fn decide(&self, id: &TopicPartition, partition: &Partition, todo: &Todo) -> Decision {
        let is_online = |broker: BrokerId| {
            self.online(id, broker) && partition.assignment.replicas.contains(&broker)
        };
        if partition.is_left_alone {
            return Decision::Keep;
        }
        let Some(leadership) = &partition.leadership else {
            let replicas = partition.assignment.replicas.iter().copied();
            let isr: Vec<BrokerId> = replicas.filter(|broker| is_online(*broker)).collect();
            let Some(&leader) = isr.first() else { return Decision::Keep };
            return Decision::Create(Leadership {
                leader,
                leader_epoch: LeaderEpoch(0),
                isr,
                recovering: false,
                controller_epoch: self.options.epoch,
                partition_epoch: PartitionEpoch(0),
            });
        };
        let bounced = |broker: &BrokerId| todo.hearers.bounced.contains(broker);
        let voters = |online: &dyn Fn(BrokerId) -> bool, strategy: Strategy| {
            let shutting_down = &|broker: BrokerId| self.is_shutting_down(broker);
            elect(&partition.assignment, leadership, strategy, &Voters { online, shutting_down })
        };
        let is_assigned = |broker: &BrokerId| partition.assignment.replicas.contains(broker);
        let is_lost = |broker: BrokerId| self.gone(id, broker) || !is_assigned(&broker);
        let mut next = todo.strategy.and_then(|strategy| voters(&is_online, strategy));
        let leader = leadership.leader;
        if next.is_none() && (is_lost(leader) || bounced(&leader)) {
            // A member that shuts down is there still, so nobody from outside the ISR takes over.
            let member_lives = leadership.isr.iter().any(|broker| !is_lost(*broker));
            let other_lives = partition.assignment.replicas.iter().any(|id| is_online(*id));
            let unclean = match self.unclean.get(&id.topic) {
                _ if member_lives || !other_lives => false,
                Some(&allowed) => allowed,
                None => return Decision::AskUnclean,
            };
            let strategy = Strategy::Offline { unclean };
            let never_left = |broker: BrokerId| is_online(broker) && !bounced(&broker);
            next = voters(&never_left, strategy).or_else(|| voters(&is_online, strategy));
        }
        let told = |broker: &BrokerId| todo.hearers.stop.contains(broker) || bounced(broker);
        let mut next = match next {
            Some(elected) => without_lost(&elected, &is_lost, &|_| false),
            None => without_lost(leadership, &is_lost, &told),
        };
        let arrived = self.arrived(id, &partition.assignment, &next);
        let arrives = arrived.is_some();
        next = arrived.unwrap_or(next);
        // A leader that bounced and stays all the same begins a new epoch: it may have lost records.
        let begins_anew = arrives || todo.new_epoch || bounced(&next.leader);
        if next == *leadership && !begins_anew {
            return Decision::Keep;
        }
        next.leader_epoch = LeaderEpoch(leadership.leader_epoch.0.wrapping_add(1));
        next.controller_epoch = self.options.epoch;
        next.recovering &= self.options.leader_recovery;
        if arrives { Decision::Arrive(next) } else { Decision::Set(next) }
    }

    /// The leadership with which a move ends; none where there is no move, or not all that are to come are in sync.
    fn arrived(
        &self,
        id: &TopicPartition,
        assignment: &Assignment,
        leadership: &Leadership,
    ) -> Option<Leadership> {
        if !assignment.is_moving() {
            return None;
        }
        let target = Assignment::of(assignment.target());
        if !target.replicas.iter().all(|broker| leadership.isr.contains(broker)) {
            return None;
        }
        let online = &|broker: BrokerId| self.online(id, broker);
        let shutting_down = &|broker: BrokerId| self.is_shutting_down(broker);
        let is_target = target.replicas.contains(&leadership.leader);
        let mut next = leadership.clone();
        if !is_target || !online(leadership.leader) {
            let voters = Voters { online, shutting_down };
            match elect(&target, leadership, Strategy::Reassign, &voters) {
                Some(elected) => next = elected,
                None if is_target && !self.gone(id, leadership.leader) => {}
                None => return None,
            }
        }
        next.isr.retain(|broker| target.replicas.contains(broker));
        Some(next)
    }

    /// Takes over what was accepted; `outcomes` has one for each write of the plan. What was not
    /// accepted is decided again once it is read again.
    ///
    /// # Panics
    /// Where an outcome is missing.
    pub fn apply(&mut self, plan: Plan, outcomes: &[Outcome]) -> Applied {
        assert_eq!(plan.writes.len(), outcomes.len(), "every write has an outcome");
        let mut applied = Applied::default();
        let mut batch = Batch::default();
        self.announce_brokers(&mut applied.requests);
        for step in plan.steps {
            match step {
                Step::Partition { partition, write, arrives, todo } => {
                    let write = write.map(|index| (&plan.writes[index], outcomes[index]));
                    let decided = (write, arrives);
                    self.apply_partition(partition, decided, todo, &mut batch, &mut applied);
                }
                Step::Alter { partition, write, alteration, wanted } => {
                    let write = (&plan.writes[write], outcomes[write]);
                    let request = (alteration, wanted);
                    self.apply_alteration(partition, write, request, &mut batch, &mut applied);
                }
                Step::Topic { name, write } => {
                    self.apply_topic(name, &plan.writes[write], outcomes[write], &mut applied);
                }
                Step::Orders { write } => {
                    self.apply_orders((&plan.writes[write], outcomes[write]), &mut applied);
                }
                Step::StartDeletion { name } => {
                    self.start_deletion(&name, &mut batch);
                    applied.more = true;
                }
                Step::EndDeletion { name, write } => {
                    self.end_deletion(name, outcomes[write], &mut applied);
                }
                Step::Forget { write } => {
                    let Write::ForgetDeletion { name } = &plan.writes[write] else { continue };
                    if outcomes[write] == Outcome::Conflict {
                        self.forget.insert(Arc::clone(name));
                    }
                }
            }
        }
        self.answer_alterations(&mut applied);
        self.answer_moves(&mut applied);
        self.answer_elections(&mut applied);
        self.answer_shutdowns(&mut applied);
        self.send(batch, &mut applied.requests);
        self.settled = true;
        applied
    }

    /// Says who lives, before anything that depends on it.
    fn announce_brokers(&mut self, requests: &mut Vec<BrokerRequest>) {
        let greeted = std::mem::take(&mut self.greet);
        if std::mem::take(&mut self.tell_brokers) {
            let mut batch = Batch::default();
            let knowing = |broker: &BrokerId| !self.settled || !greeted.contains(broker);
            batch.tell(self.brokers.keys().copied().filter(knowing));
            if !self.settled {
                // Kafka names no partition here: clients of a broker that knows none yet are told that their topics do not
                // exist, and some ask again minutes later.
                self.mention_all(&mut batch);
            }
            self.send(batch, requests);
        }
        if self.settled && !greeted.is_empty() {
            let mut batch = Batch::default();
            self.mention_all(&mut batch);
            batch.tell(greeted);
            self.send(batch, requests);
        }
    }

    fn send(&self, batch: Batch, requests: &mut Vec<BrokerRequest>) {
        let topic_id = |name: &str| self.topics.get(name).and_then(|topic| topic.id);
        let sender = Sender {
            controller: self.options.broker,
            epoch: self.options.epoch,
            brokers: self.brokers.values().map(|live| Arc::clone(&live.broker)).collect(),
            topic_id: &topic_id,
        };
        batch.into_requests(&sender, requests);
    }

    fn mention_all(&self, batch: &mut Batch) {
        for (name, topic) in &self.topics {
            for index in topic.partitions.keys() {
                self.mention(batch, &TopicPartition::new(Arc::clone(name), *index));
            }
        }
    }

    /// Puts the partition into the batch's UpdateMetadata.
    pub(crate) fn mention(&self, batch: &mut Batch, id: &TopicPartition) {
        let Some(topic) = self.topics.get(&id.topic) else { return };
        let Some(partition) = topic.partitions.get(&id.partition) else { return };
        let is_online = |broker: BrokerId| self.online(id, broker);
        let content = match &topic.deletion {
            Some(deletion) if deletion.started => None,
            _ => Some(shown(partition, &is_online, self.options.epoch)),
        };
        batch.mention(id, content);
    }

    fn apply_partition(
        &mut self,
        id: TopicPartition,
        (write, arrives): (Option<(&Write, Outcome)>, bool),
        mut todo: Todo,
        batch: &mut Batch,
        applied: &mut Applied,
    ) {
        let before = self.partition_state(&id);
        let (mut created, mut unclean) = (false, false);
        let Some(topic) = self.topics.get_mut(&id.topic) else { return };
        let Some(partition) = topic.partitions.get_mut(&id.partition) else { return };
        match write {
            None => {}
            Some((_, Outcome::Conflict)) => {
                topic.stale = true;
                applied.reread.insert(Arc::clone(&id.topic));
                // Whatever the state turns out to be, the replicas shall hear of it.
                todo.hearers.all = true;
                self.todo.insert(id, todo);
                return;
            }
            Some((_, Outcome::Refused)) => {
                partition.is_left_alone = true;
                // Those who were to hear of it hear how it stands.
                self.todo.insert(id, todo);
                applied.more = true;
                return;
            }
            Some((
                Write::CreateLeadership { leadership, .. }
                | Write::SetLeadership { leadership, .. },
                Outcome::Done { version },
            )) => {
                let partition_epoch = PartitionEpoch(version);
                let leadership = Leadership { partition_epoch, ..leadership.clone() };
                let leader = leadership.leader;
                let former = partition.leadership.replace(leadership);
                created = former.is_none();
                unclean = leader != BrokerId::NONE
                    && former.is_some_and(|former| !former.isr.contains(&leader));
            }
            Some(_) => return,
        }
        if let (Some(_), Some(before), Some(after), Some(leadership)) =
            (write, before, self.partition_state(&id), self.leadership(&id))
        {
            let (partition, leadership) = (id.clone(), leadership.clone());
            applied.decided.push(Decided { partition, before, after, leadership, unclean });
        }
        if self.is_queued_for_deletion(&id.topic) {
            applied.more = true;
            return;
        }
        if arrives && write.is_some() {
            self.arrive(&id, &mut todo.hearers);
            applied.more = true;
        } else if write.is_some() {
            self.look_for_arrival(&id, applied);
        }
        if write.is_some() || todo.hearers != Hearers::default() {
            self.announce_partition(&id, created, write.is_some(), &todo.hearers, batch);
        }
    }

    pub(crate) fn leadership(&self, id: &TopicPartition) -> Option<&Leadership> {
        self.topics.get(&id.topic)?.partitions.get(&id.partition)?.leadership.as_ref()
    }

    fn announce_partition(
        &self,
        id: &TopicPartition,
        created: bool,
        written: bool,
        hearers: &Hearers,
        batch: &mut Batch,
    ) {
        let Some(topic) = self.topics.get(&id.topic) else { return };
        let Some(partition) = topic.partitions.get(&id.partition) else { return };
        // A new controller's first word has named every partition already, as it was.
        if self.settled || written {
            self.mention(batch, id);
            batch.tell_all();
        }
        let Some(leadership) = &partition.leadership else { return };
        let hears = |broker: &BrokerId| {
            let meant = written || hearers.all || hearers.some.contains(broker);
            let can = self.brokers.contains_key(broker) && !hearers.stop.contains(broker);
            meant && can && (!created || leadership.isr.contains(broker))
        };
        let assignment = &partition.assignment;
        let comes = |broker: &BrokerId| {
            created || assignment.adding.contains(broker) && !leadership.isr.contains(broker)
        };
        let (new, old): (Vec<BrokerId>, Vec<BrokerId>) =
            assignment.replicas.iter().copied().filter(hears).partition(comes);
        let mut content = LeaderAndIsrPartition {
            index: id.partition,
            leadership: leadership.clone(),
            assignment: assignment.clone(),
            is_new: false,
        };
        batch.lead(old, id, &content);
        content.is_new = true;
        batch.lead(new, id, &content);
        let stop = hearers.stop.iter().map(|broker| (broker, false));
        let drop = hearers.drop.iter().filter(|broker| !assignment.replicas.contains(broker));
        for (&broker, delete) in stop.chain(drop.map(|broker| (broker, true))) {
            let leader_epoch = leadership.leader_epoch;
            let content = StopReplicaPartition { index: id.partition, leader_epoch, delete };
            batch.stop(broker, id, content);
        }
    }
}

/// The numbers that `kafka.controller` metrics show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live brokers.
    pub brokers: usize,
    /// Topics.
    pub topics: usize,
    /// Partitions that have, or had, a leader.
    pub partitions: usize,
    /// Partitions whose leader is gone, those of topics being deleted apart.
    pub offline_partitions: usize,
    /// Partitions that are not led by their first replica.
    pub not_preferred: usize,
    /// Topics that wait for their deletion, or are being deleted.
    pub topics_to_delete: usize,
    /// Of these, those that have to wait.
    pub topics_ineligible: usize,
    /// Replicas of topics to delete that are still there.
    pub replicas_to_delete: usize,
    /// Of these, those that could not be deleted.
    pub replicas_ineligible: usize,
}

/// The leadership without its lost replicas and those that are told to leave. The ISR never becomes
/// empty: the last members to be lost stay, for only they may lead again; nor does it lose a leader
/// that lives.
fn without_lost(
    leadership: &Leadership,
    lost: &dyn Fn(BrokerId) -> bool,
    told: &dyn Fn(&BrokerId) -> bool,
) -> Leadership {
    let mut next = leadership.clone();
    if lost(leadership.leader) {
        next.leader = BrokerId::NONE;
    }
    let leader = next.leader;
    next.isr.retain(|broker| !lost(*broker) && (*broker == leader || !told(broker)));
    if next.isr.is_empty() {
        next.isr.clone_from(&leadership.isr);
    }
    next
}
