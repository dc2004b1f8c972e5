//! A ZooKeeper of a few maps and brokers that obey, around a controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};
use metadata::broker::Broker;

use crate::{
    alter_partition::{AlterPartition, AlteredPartition, NewIsr, TopicKey},
    answer::{Answer, Ticket},
    assignment::Assignment,
    change::{Change, StateRead, TopicRead},
    controller::{Controller, Options},
    error::ApiError,
    plan::{Outcome, Write},
    reassignment::Orders,
    request::{Body, BrokerRequest},
    states::Leadership,
};

pub(super) fn ids(text: &str) -> Vec<BrokerId> {
    let numbers = text.split(',').filter(|part| !part.is_empty());
    numbers.map(|part| BrokerId(part.parse().unwrap())).collect()
}

fn show(brokers: &[BrokerId]) -> String {
    brokers.iter().map(BrokerId::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn show_leadership(leadership: &Leadership) -> String {
    let Leadership { leader, leader_epoch, isr, recovering, .. } = leadership;
    let recovering = if *recovering { " recovering" } else { "" };
    format!("leader {leader} epoch {leader_epoch} isr {}{recovering}", show(isr))
}

/// A topic's znodes.
#[derive(Clone, Debug, Default)]
pub(super) struct TopicNode {
    pub(super) id: Option<Uuid>,
    pub(super) version: i32,
    pub(super) partitions: BTreeMap<i32, Assignment>,
    pub(super) states: BTreeMap<i32, Leadership>,
}

pub(super) struct World {
    pub(super) controller: Controller,
    pub(super) brokers: BTreeMap<BrokerId, Arc<Broker>>,
    pub(super) topics: BTreeMap<Arc<str>, TopicNode>,
    pub(super) deletions: BTreeSet<Arc<str>>,
    /// What `/admin/reassign_partitions` says.
    pub(super) orders: Option<Orders>,
    /// Topics that allow unclean elections.
    pub(super) unclean: BTreeSet<Arc<str>>,
    /// Brokers that do not answer StopReplica.
    pub(super) deaf: BTreeSet<BrokerId>,
    /// The error brokers give for StopReplica.
    pub(super) stop_error: ErrorCode,
    /// Partitions whose next write finds another version.
    pub(super) conflicts: BTreeSet<TopicPartition>,
    /// Partitions whose state may not be written.
    pub(super) forbidden: BTreeSet<TopicPartition>,
    /// Partitions whose state says nothing that can be understood.
    pub(super) unreadable: BTreeSet<TopicPartition>,
    /// Partitions whose next write is made, but its answer lost.
    pub(super) lost_answers: BTreeSet<TopicPartition>,
    pub(super) pending: Vec<Change>,
    pub(super) log: String,
    next_id: u128,
    next_epoch: i64,
    next_ticket: u64,
    /// The controller's epoch.
    pub(super) epoch: i32,
    /// Requests that wait for an answer.
    pub(super) unanswered: BTreeSet<Ticket>,
}

impl World {
    pub(super) fn new(options: Options) -> World {
        World {
            controller: Controller::new(options),
            brokers: BTreeMap::new(),
            topics: BTreeMap::new(),
            deletions: BTreeSet::new(),
            orders: None,
            unclean: BTreeSet::new(),
            deaf: BTreeSet::new(),
            stop_error: ErrorCode::None,
            conflicts: BTreeSet::new(),
            forbidden: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            lost_answers: BTreeSet::new(),
            pending: Vec::new(),
            log: String::new(),
            next_id: 100,
            next_epoch: 10,
            next_ticket: 0,
            epoch: options.epoch.0,
            unanswered: BTreeSet::new(),
        }
    }

    pub(super) fn register(&mut self, id: BrokerId) {
        self.next_epoch += 1;
        let epoch = BrokerEpoch(self.next_epoch);
        let broker = Broker { id, endpoints: Vec::new(), rack: None, epoch };
        self.brokers.insert(id, Arc::new(broker));
    }

    /// Hands over a request that wants an answer.
    pub(super) fn ask(&mut self, change: impl FnOnce(Ticket) -> Change) {
        self.next_ticket += 1;
        self.unanswered.insert(Ticket(self.next_ticket));
        self.pending.push(change(Ticket(self.next_ticket)));
    }

    pub(super) fn shut_down(&mut self, broker: BrokerId) {
        let broker_epoch = self.brokers.get(&broker).map_or(BrokerEpoch::NONE, |live| live.epoch);
        self.ask(|ticket| Change::ControlledShutdown { ticket, broker, broker_epoch });
    }

    /// What a leader asks for that knows the state as it is stored.
    pub(super) fn new_isr(
        &self,
        broker: BrokerId,
        id: &TopicPartition,
        isr: &str,
    ) -> AlterPartition {
        let topic = self.topics.get(&id.topic);
        let state = topic.and_then(|topic| topic.states.get(&id.partition));
        let partition = NewIsr {
            topic: TopicKey::Name(Arc::clone(&id.topic)),
            index: id.partition,
            leader_epoch: state.map_or(LeaderEpoch(0), |state| state.leader_epoch),
            partition_epoch: state.map_or(PartitionEpoch(0), |state| state.partition_epoch),
            isr: ids(isr).into_iter().map(|id| (id, BrokerEpoch::NONE)).collect(),
            recovering: false,
        };
        AlterPartition {
            broker,
            broker_epoch: self.brokers.get(&broker).map_or(BrokerEpoch(1), |live| live.epoch),
            partitions: vec![partition],
            refuses_ineligible: true,
        }
    }

    pub(super) fn brokers_changed(&mut self) {
        self.pending.push(Change::Brokers(self.brokers.values().cloned().collect()));
    }

    pub(super) fn topics_changed(&mut self) {
        let names: BTreeSet<Arc<str>> = self.topics.keys().cloned().collect();
        let unknown = self.controller.unknown(&names);
        let read = unknown.iter().map(|name| self.read(name)).collect();
        self.pending.push(Change::Topics { names, read });
    }

    pub(super) fn topic_changed(&mut self, name: &str) {
        let change = match self.topics.get_key_value(name) {
            Some((name, _)) => Change::Topic(self.read(name)),
            None => Change::TopicGone(name.into()),
        };
        self.pending.push(change);
    }

    /// A leader writes the state itself, and says so.
    pub(super) fn write_isr(&mut self, id: &TopicPartition, wanted: &NewIsr) {
        let node = self.topics.get_mut(&id.topic).unwrap();
        let state = node.states.get_mut(&id.partition).unwrap();
        state.isr = wanted.isr.iter().map(|(broker, _)| *broker).collect();
        state.partition_epoch.0 += 1;
        self.pending.push(Change::States(vec![(id.clone(), state.clone())]));
    }

    pub(super) fn orders_changed(&mut self) {
        self.pending.push(Change::Orders(self.orders.clone()));
    }

    pub(super) fn deletions_changed(&mut self) {
        self.pending.push(Change::Deletions(self.deletions.clone()));
    }

    fn read(&self, name: &Arc<str>) -> TopicRead {
        let node = &self.topics[name];
        let state = |index: &i32| {
            let is_unreadable = self.unreadable.contains(&TopicPartition::new(&**name, *index));
            let state = match node.states.get(index) {
                None => StateRead::Missing,
                Some(_) if is_unreadable => StateRead::Unreadable,
                Some(state) => StateRead::Is(state.clone()),
            };
            (*index, state)
        };
        TopicRead {
            name: Arc::clone(name),
            version: node.version,
            id: node.id,
            partitions: node.partitions.clone(),
            leaderships: node.partitions.keys().map(state).collect(),
        }
    }

    /// Turns until there is nothing more to do.
    pub(super) fn settle(&mut self) {
        assert!(self.turns(60), "the controller does not come to rest: {}", self.log);
    }

    /// Turns so many times, or until there is nothing more to do: then it is `true`.
    pub(super) fn turns(&mut self, count: usize) -> bool {
        for _ in 0..count {
            let changes = std::mem::take(&mut self.pending);
            let next_id = &mut self.next_id;
            let plan = self.controller.plan(changes, &mut || {
                *next_id += 1;
                Uuid(*next_id)
            });
            for topic in plan.unclean_wanted() {
                let allowed = self.unclean.contains(topic);
                self.pending.push(Change::Unclean { topic: Arc::clone(topic), allowed });
            }
            let writes = plan.writes().to_vec();
            let outcomes: Vec<Outcome> = writes.iter().map(|write| self.commit(write)).collect();
            let applied = self.controller.apply(plan, &outcomes);
            let quiet = writes.is_empty() && !applied.more && applied.requests.is_empty();
            for request in &applied.requests {
                self.deliver(request);
            }
            for (id, error) in &applied.failed_orders {
                let message = error.message.as_deref().unwrap_or_default();
                writeln!(self.log, "  no order {id}: {} {message}", error.code).unwrap();
            }
            if applied.reread_orders {
                self.orders_changed();
            }
            for (ticket, answer) in &applied.answers {
                assert!(self.unanswered.remove(ticket), "answered twice");
                writeln!(self.log, "  answer {}", show_answer(answer)).unwrap();
            }
            for name in &applied.reread {
                writeln!(self.log, "read {name} again").unwrap();
                self.topic_changed(name);
            }
            for name in applied.deleted {
                writeln!(self.log, "deleted {name}").unwrap();
            }
            if quiet && self.pending.is_empty() {
                return true;
            }
        }
        false
    }

    fn commit(&mut self, write: &Write) -> Outcome {
        let done = |version| Outcome::Done { version };
        if let Write::CreateLeadership { partition, .. } | Write::SetLeadership { partition, .. } =
            write
            && self.forbidden.contains(partition)
        {
            writeln!(self.log, "refused {partition}").unwrap();
            return Outcome::Refused;
        }
        match write {
            Write::CreateLeadership { partition, leadership } => {
                let Some(node) = self.topics.get_mut(&partition.topic) else {
                    return Outcome::Conflict;
                };
                if self.conflicts.remove(partition)
                    || node.states.contains_key(&partition.partition)
                {
                    return Outcome::Conflict;
                }
                let shown = show_leadership(leadership);
                writeln!(self.log, "create {partition} {shown}").unwrap();
                node.states.insert(partition.partition, leadership.clone());
                done(0)
            }
            Write::SetLeadership { partition, leadership, expected } => {
                let node = self.topics.get_mut(&partition.topic);
                let Some(state) = node.and_then(|node| node.states.get_mut(&partition.partition))
                else {
                    return Outcome::Conflict;
                };
                if self.conflicts.remove(partition) {
                    state.partition_epoch.0 += 1;
                }
                if state.partition_epoch != *expected {
                    return Outcome::Conflict;
                }
                let shown = show_leadership(leadership);
                writeln!(self.log, "set {partition} {shown}").unwrap();
                let partition_epoch = PartitionEpoch(expected.0 + 1);
                *state = Leadership { partition_epoch, ..leadership.clone() };
                match self.lost_answers.remove(partition) {
                    true => Outcome::Conflict,
                    false => done(partition_epoch.0),
                }
            }
            Write::SetTopic { name, id, partitions, expected } => {
                let Some(node) = self.topics.get_mut(name) else { return Outcome::Conflict };
                if node.version != *expected {
                    return Outcome::Conflict;
                }
                let id_shown = id.map_or(0, |id| id.0);
                if self.conflicts.remove(&TopicPartition::new(Arc::clone(name), -1)) {
                    node.version += 1;
                    return Outcome::Conflict;
                }
                let moving = partitions.iter().filter(|(_, one)| one.is_moving());
                let moving: Vec<String> = moving.map(|(at, one)| show_move(*at, one)).collect();
                let count = partitions.len();
                let shown =
                    format!("set {name} id {id_shown} {count} partitions {}", moving.join(" "));
                writeln!(self.log, "{}", shown.trim_end()).unwrap();
                node.version += 1;
                node.id = *id;
                node.partitions.clone_from(partitions);
                done(node.version)
            }
            Write::DeleteTopic { name, .. } => {
                writeln!(self.log, "delete {name}").unwrap();
                self.topics.remove(name);
                self.deletions.remove(name);
                done(0)
            }
            Write::SetOrders { moves, expected } => {
                if moves.is_empty() {
                    writeln!(self.log, "delete orders").unwrap();
                    self.orders = None;
                    return done(0);
                }
                let Some(orders) = self.orders.as_mut().filter(|now| now.version == *expected)
                else {
                    return Outcome::Conflict;
                };
                orders.version += 1;
                orders.moves.clone_from(moves);
                let left: Vec<String> = moves.keys().map(TopicPartition::to_string).collect();
                writeln!(self.log, "set orders {}", left.join(", ")).unwrap();
                done(orders.version)
            }
            Write::ForgetDeletion { name } => {
                writeln!(self.log, "unmark {name}").unwrap();
                self.deletions.remove(name);
                done(0)
            }
        }
    }

    fn deliver(&mut self, request: &BrokerRequest) {
        assert_eq!(request.broker_epoch, self.controller_view(request.broker));
        let line = format!("  to {}: {}", request.broker, show_request(&request.body));
        writeln!(self.log, "{line}").unwrap();
        let Body::StopReplica(stop) = &request.body else { return };
        if self.deaf.contains(&request.broker) {
            return;
        }
        let mut errors = Vec::new();
        for topic in &stop.topics {
            for partition in topic.partitions.iter().filter(|partition| partition.delete) {
                let id = TopicPartition::new(Arc::clone(&topic.name), partition.index);
                errors.push((id, self.stop_error));
            }
        }
        if !errors.is_empty() {
            let (broker, broker_epoch) = (request.broker, request.broker_epoch);
            self.pending.push(Change::Stopped { broker, broker_epoch, errors });
        }
    }

    fn controller_view(&self, broker: BrokerId) -> BrokerEpoch {
        self.controller.brokers[&broker].broker.epoch
    }
}

fn show_move(index: i32, assignment: &Assignment) -> String {
    let Assignment { replicas, adding, removing } = assignment;
    format!("{index}:{}+{}-{}", show(replicas), show(adding), show(removing))
}

fn show_errors<'a, T>(
    results: impl Iterator<Item = (&'a TopicPartition, &'a Result<T, ApiError>)>,
    value: &dyn Fn(&T) -> String,
) -> String
where
    T: 'a,
{
    let one = |(id, result): (&TopicPartition, &Result<T, ApiError>)| match result {
        Ok(done) => format!("{id} {}", value(done)),
        Err(ApiError { code, message: None }) => format!("{id} {code}"),
        Err(ApiError { code, message: Some(message) }) => format!("{id} {code} {message}"),
    };
    results.map(one).collect::<Vec<_>>().join("; ")
}

fn show_answer(answer: &Answer) -> String {
    match answer {
        Answer::AlterPartition(Err(error)) | Answer::ControlledShutdown(Err(error)) => {
            error.to_string()
        }
        Answer::ElectLeaders(results) => {
            show_errors(results.iter(), &|leader| format!("leader {leader}"))
        }
        Answer::Reassign(results) => show_errors(results.iter(), &|()| "done".to_owned()),
        Answer::ControlledShutdown(Ok(led)) => {
            let led: Vec<String> = led.iter().map(TopicPartition::to_string).collect();
            format!("shutdown, leads [{}]", led.join(", "))
        }
        Answer::AlterPartition(Ok(partitions)) => {
            let one = |altered: &AlteredPartition| {
                let topic = match &altered.topic {
                    TopicKey::Name(name) => name.to_string(),
                    TopicKey::Id(id) => format!("id {}", id.0),
                };
                let result = match &altered.result {
                    Ok(leadership) => {
                        let version = leadership.partition_epoch;
                        format!("{} version {version}", show_leadership(leadership))
                    }
                    Err(error) => error.to_string(),
                };
                format!("{topic}-{} {result}", altered.index)
            };
            partitions.iter().map(one).collect::<Vec<_>>().join("; ")
        }
    }
}

fn show_request(body: &Body) -> String {
    let mut parts = Vec::new();
    match body {
        Body::LeaderAndIsr(content) => {
            for topic in &content.topics {
                for partition in &topic.partitions {
                    let new = if partition.is_new { " new" } else { "" };
                    let leadership = show_leadership(&partition.leadership);
                    let moving = match partition.assignment.is_moving() {
                        true => format!(" {}", show_move(partition.index, &partition.assignment)),
                        false => String::new(),
                    };
                    let id = format!("{}-{}", topic.name, partition.index);
                    parts.push(format!("{id}{new} {leadership}{moving}"));
                }
            }
            format!("lead [{}]", parts.join("; "))
        }
        Body::UpdateMetadata(update) => {
            for topic in &update.topics {
                for (index, partition) in &topic.partitions {
                    let what = match partition {
                        None => "gone".to_owned(),
                        Some(partition) if partition.offline_replicas.is_empty() => {
                            format!("leader {}", partition.leader)
                        }
                        Some(partition) => format!(
                            "leader {} offline {}",
                            partition.leader,
                            show(&partition.offline_replicas)
                        ),
                    };
                    parts.push(format!("{}-{index} {what}", topic.name));
                }
            }
            let brokers: Vec<BrokerId> = update.brokers.iter().map(|broker| broker.id).collect();
            format!("know brokers {} [{}]", show(&brokers), parts.join("; "))
        }
        Body::StopReplica(stop) => {
            for topic in &stop.topics {
                for partition in &topic.partitions {
                    let delete = if partition.delete { " delete" } else { "" };
                    let epoch = partition.leader_epoch;
                    let epoch = if epoch == LeaderEpoch(-2) {
                        String::new()
                    } else {
                        format!(" epoch {epoch}")
                    };
                    parts.push(format!("{}-{}{delete}{epoch}", topic.name, partition.index));
                }
            }
            format!("stop [{}]", parts.join("; "))
        }
    }
}

pub(super) fn options() -> Options {
    Options {
        broker: BrokerId(1),
        epoch: ControllerEpoch(2),
        topic_ids: true,
        leader_recovery: true,
        delete_topics: true,
    }
}
