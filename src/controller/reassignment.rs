//! Moving partitions to other brokers, as a request or the znode of old tools orders.
//!
//! The order is written into the topic's znode first: from then on the move goes on, whoever is the controller. The
//! replicas to be added follow; once all targets are in sync, leadership goes to one of them and the others are told to
//! delete what they have. At last, when they have, the topic's znode says that nothing moves any more (see `ending`).
//! Source: `KafkaController.onPartitionReassignment`, KIP-455.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{error_code::ErrorCode, ids::BrokerId, topic::TopicPartition};

use crate::{
    answer::{Answer, Ticket},
    assignment::Assignment,
    controller::Controller,
    error::ApiError,
    plan::{Applied, Hearers, Outcome, Plan, Step, Write},
};

/// Where partitions shall be; none ends a move, and goes back to where it began.
pub type Moves = BTreeMap<TopicPartition, Option<Vec<BrokerId>>>;

/// What became of each move that was ordered.
pub type Reassigned = BTreeMap<TopicPartition, Result<(), ApiError>>;

/// Orders under way.
#[derive(Debug)]
pub(crate) struct MoveRequest {
    /// Who is to be answered; none for what the znode says.
    ticket: Option<Ticket>,
    open: Moves,
    /// Those of the open ones that are to be written in this turn.
    planned: BTreeSet<TopicPartition>,
    done: Reassigned,
}

/// What `/admin/reassign_partitions` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// Where partitions shall be.
    pub moves: BTreeMap<TopicPartition, Vec<BrokerId>>,
    /// Version of the znode.
    pub version: i32,
}

fn join(brokers: &[BrokerId]) -> String {
    brokers.iter().map(BrokerId::to_string).collect::<Vec<_>>().join(", ")
}

/// What an order for one partition comes to.
enum Checked {
    /// The assignment is to be written.
    Write(Assignment),
    /// It is so already.
    Is,
    /// It cannot be said yet.
    Later,
}

impl Controller {
    /// The moves that are going on, of all partitions or of these.
    pub fn reassignments(
        &self,
        only: Option<&BTreeSet<TopicPartition>>,
    ) -> BTreeMap<TopicPartition, Assignment> {
        let all = self.moving.iter().chain(self.ending.keys());
        let all = all.filter(|id| only.is_none_or(|only| only.contains(*id)));
        let assignment = |id: &TopicPartition| {
            let topic = self.topics.get(&id.topic).filter(|topic| topic.deletion.is_none())?;
            let known = &topic.partitions.get(&id.partition)?.assignment;
            let stored = self.ending.get(id).map_or(known, |ending| &ending.before);
            Some((id.clone(), stored.clone()))
        };
        all.filter_map(assignment).collect()
    }

    pub(crate) fn learn_reassign(&mut self, ticket: Ticket, moves: Moves) {
        self.order(Some(ticket), moves);
    }

    fn order(&mut self, ticket: Option<Ticket>, open: Moves) {
        let (planned, done) = (BTreeSet::new(), BTreeMap::new());
        self.move_requests.push(MoveRequest { ticket, open, planned, done });
    }

    /// The znode of old tools appeared, changed or vanished.
    pub(crate) fn learn_orders(&mut self, orders: Option<Orders>) {
        let known = self.orders.take().map(|known| known.moves).unwrap_or_default();
        if let Some(orders) = &orders {
            let is_new = |(id, target): &(&TopicPartition, &Vec<BrokerId>)| {
                known.get(*id).is_none_or(|known| known != *target)
            };
            let new = orders.moves.iter().filter(is_new);
            let new: Moves = new.map(|(id, target)| (id.clone(), Some(target.clone()))).collect();
            if !new.is_empty() {
                self.order(None, new);
            }
        }
        self.orders = orders;
    }

    /// Decides what is ordered. Gives the new assignments by topic, to be written with the topics' znodes.
    pub(crate) fn plan_moves(
        &mut self,
        plan: &mut Plan,
    ) -> BTreeMap<Arc<str>, BTreeMap<i32, Assignment>> {
        let mut wanted: BTreeMap<Arc<str>, BTreeMap<i32, Assignment>> = BTreeMap::new();
        let mut requests = std::mem::take(&mut self.move_requests);
        let mut overruled = BTreeSet::new();
        for request in &mut requests {
            request.planned.clear();
            for (id, target) in std::mem::take(&mut request.open) {
                let taken =
                    wanted.get(&id.topic).is_some_and(|one| one.contains_key(&id.partition));
                let by_request = request.ticket.is_some();
                match self.check_move(&id, target.as_deref(), by_request) {
                    Ok(Checked::Write(assignment)) if !taken => {
                        let home = assignment.target();
                        wanted
                            .entry(Arc::clone(&id.topic))
                            .or_default()
                            .insert(id.partition, assignment);
                        self.topics_todo.insert(Arc::clone(&id.topic));
                        if by_request {
                            overruled.insert(id.clone());
                        }
                        request.planned.insert(id.clone());
                        // Where the answer is lost, an end of the move is told from a move that never was.
                        request.open.insert(id, Some(home));
                    }
                    Ok(Checked::Write(_) | Checked::Later) => {
                        request.open.insert(id, target);
                    }
                    Ok(Checked::Is) => {
                        request.done.insert(id, Ok(()));
                    }
                    Err(error) => {
                        request.done.insert(id, Err(error));
                    }
                }
            }
        }
        self.move_requests = requests;
        self.plan_orders(&overruled, plan);
        wanted
    }

    /// Takes out of the znode what is done, or overruled by a request. It is written before anything else, so that
    /// another controller does not follow an order that no longer stands.
    fn plan_orders(&mut self, overruled: &BTreeSet<TopicPartition>, plan: &mut Plan) {
        let Some(orders) = &self.orders else { return };
        let open = |id: &TopicPartition| {
            let by_znode = self.move_requests.iter().filter(|request| request.ticket.is_none());
            by_znode.into_iter().any(|request| request.open.contains_key(id))
        };
        let stands = |id: &TopicPartition| {
            let arrived = |topic: &crate::controller::Topic| topic.arrived.contains(&id.partition);
            let topic = self.topics.get(&id.topic).filter(|topic| topic.deletion.is_none());
            !overruled.contains(id)
                && (open(id)
                    || topic.is_some_and(|topic| self.moving.contains(id) || arrived(topic)))
        };
        let moves = orders.moves.iter().filter(|(id, _)| stands(id));
        let moves: BTreeMap<_, _> = moves.map(|(id, to)| (id.clone(), to.clone())).collect();
        if moves.len() < orders.moves.len() || moves.is_empty() {
            let write = plan.write(Write::SetOrders { moves, expected: orders.version });
            plan.steps.push(Step::Orders { write });
        }
    }

    pub(crate) fn apply_orders(
        &mut self,
        (write, outcome): (&Write, Outcome),
        applied: &mut Applied,
    ) {
        match (write, outcome) {
            (Write::SetOrders { moves, .. }, Outcome::Done { .. }) if moves.is_empty() => {
                self.orders = None;
            }
            (Write::SetOrders { moves, .. }, Outcome::Done { version }) => {
                self.orders = Some(Orders { moves: moves.clone(), version });
            }
            _ => applied.reread_orders = true,
        }
    }

    fn check_move(
        &self,
        id: &TopicPartition,
        target: Option<&[BrokerId]>,
        by_request: bool,
    ) -> Result<Checked, ApiError> {
        let topic = self.topics.get(&id.topic);
        if topic.is_some_and(|topic| topic.stale) {
            return Ok(Checked::Later);
        }
        let partition = topic.and_then(|topic| topic.partitions.get(&id.partition));
        let known = partition.map(|partition| partition.assignment.clone()).unwrap_or_default();
        let new = match target {
            Some(target) => {
                let new = known.moved_to(target);
                // Kafka looks at the orders of old tools less closely. Nobody could follow such as these.
                self.check_target(target, &new, by_request)?;
                new
            }
            None if known.is_moving() => known.moved_to(&known.origin()),
            None => return Err(ApiError::in_words(ErrorCode::NoReassignmentInProgress)),
        };
        let Some(partition) = partition.filter(|_| !self.is_queued_for_deletion(&id.topic)) else {
            let message = "The partition does not exist.";
            return Err(ApiError::new(ErrorCode::UnknownTopicOrPartition, message));
        };
        if new == known {
            return Ok(Checked::Is);
        }
        // All that is in sync and there would be deleted. Kafka does it; with KRaft it refuses to.
        let isr = partition.leadership.as_ref().map(|known| &known.isr[..]).unwrap_or_default();
        let stays = |member: &&BrokerId| new.replicas.contains(*member);
        let lives = |member: &&BrokerId| self.online(id, **member);
        let loses = match isr.iter().any(|member| lives(&member)) {
            true => !isr.iter().filter(lives).any(|member| stays(&member)),
            false => !isr.is_empty() && !isr.iter().any(|member| stays(&member)),
        };
        if loses {
            let message = format!(
                "Unable to revert partition assignment for {}:{} because it would require an unclean leader election.",
                id.topic, id.partition
            );
            return Err(ApiError::new(ErrorCode::InvalidReplicaAssignment, message));
        }
        Ok(Checked::Write(new))
    }

    fn check_target(
        &self,
        target: &[BrokerId],
        new: &Assignment,
        by_request: bool,
    ) -> Result<(), ApiError> {
        let refuse =
            |message: String| Err(ApiError::new(ErrorCode::InvalidReplicaAssignment, message));
        let list = |brokers: &[BrokerId]| format!("ArrayBuffer({})", join(brokers));
        if target.is_empty() {
            return refuse("Empty replica list specified in partition reassignment.".to_owned());
        }
        if (1..target.len()).any(|at| target[..at].contains(&target[at])) {
            let list = list(target);
            return refuse(format!(
                "Duplicate replica ids in partition reassignment replica list: {list}"
            ));
        }
        if target.iter().any(|broker| broker.0 < 0) {
            return refuse(format!("Invalid broker id in replica list: {}", list(target)));
        }
        let lives =
            |broker: &BrokerId| self.brokers.get(broker).is_some_and(|live| !live.shutting_down);
        if by_request && !new.adding.iter().all(lives) {
            let live: Vec<BrokerId> = self.brokers.keys().copied().filter(lives).collect();
            return refuse(format!(
                "Replica assignment has brokers that are not alive. Replica list: {}, live broker list: Set({})",
                list(&new.adding),
                join(&live)
            ));
        }
        Ok(())
    }

    /// Gives a partition another assignment, as its topic's znode has it now.
    pub(crate) fn adopt(&mut self, id: &TopicPartition, new: Assignment) {
        let Some(old) = self.assign(id, new) else { return };
        let Some(topic) = self.topics.get_mut(&id.topic) else { return };
        topic.arrived.remove(&id.partition);
        self.ending.remove(id);
        let Some(partition) = topic.partitions.get(&id.partition) else { return };
        let assignment = &partition.assignment;
        let dropped: Vec<BrokerId> =
            old.replicas.iter().copied().filter(|id| !assignment.replicas.contains(id)).collect();
        let todo = self.work(id.clone());
        todo.new_epoch = true;
        todo.hearers.all = true;
        todo.hearers.drop.extend(dropped);
    }

    /// Sets an assignment; gives the former one.
    pub(crate) fn assign(&mut self, id: &TopicPartition, new: Assignment) -> Option<Assignment> {
        let topic = self.topics.get_mut(&id.topic)?;
        let partition = topic.partitions.get_mut(&id.partition)?;
        self.held.remove(&id.topic, id.partition, &partition.assignment.replicas);
        self.held.add(&id.topic, id.partition, &new.replicas);
        if new.is_moving() {
            self.moving.insert(id.clone());
        } else {
            self.moving.remove(id);
        }
        Some(std::mem::replace(&mut partition.assignment, new))
    }

    /// A move has arrived: from now on the targets are all, and the others delete what they have.
    pub(crate) fn arrive(&mut self, id: &TopicPartition, hearers: &mut Hearers) {
        let Some(topic) = self.topics.get_mut(&id.topic) else { return };
        let Some(partition) = topic.partitions.get(&id.partition) else { return };
        hearers.drop.extend(partition.assignment.removing.iter().copied());
        let target = Assignment::of(partition.assignment.target());
        topic.arrived.insert(id.partition);
        self.topics_todo.insert(Arc::clone(&id.topic));
        if let Some(before) = self.assign(id, target) {
            self.wait_for_end(id, before);
        }
    }

    /// Whether a new ISR has all that a move waits for: then its end is decided next.
    pub(crate) fn look_for_arrival(&mut self, id: &TopicPartition, applied: &mut Applied) {
        if !self.moving.contains(id) {
            return;
        }
        let topic = self.topics.get(&id.topic);
        let Some(partition) = topic.and_then(|topic| topic.partitions.get(&id.partition)) else {
            return;
        };
        let Some(leadership) = &partition.leadership else { return };
        let target = partition.assignment.target();
        if target.iter().all(|broker| leadership.isr.contains(broker)) {
            self.work(id.clone());
            applied.more = true;
        }
    }

    /// A topic's znode was written: so are the orders for its partitions.
    pub(crate) fn moves_are_written(&mut self, topic: &str) {
        for request in &mut self.move_requests {
            let written = request.planned.iter().filter(|id| *id.topic == *topic);
            for id in written.cloned().collect::<Vec<_>>() {
                request.planned.remove(&id);
                request.open.remove(&id);
                request.done.insert(id, Ok(()));
            }
        }
    }

    /// Answers orders that are written or refused.
    pub(crate) fn answer_moves(&mut self, applied: &mut Applied) {
        for request in std::mem::take(&mut self.move_requests) {
            if !request.open.is_empty() {
                applied.more = true;
                self.move_requests.push(request);
                continue;
            }
            match request.ticket {
                Some(ticket) => applied.answers.push((ticket, Answer::Reassign(request.done))),
                None => {
                    let failed = request
                        .done
                        .into_iter()
                        .filter_map(|(id, result)| Some((id, result.err()?)));
                    applied.failed_orders.extend(failed);
                    applied.more = true;
                }
            }
        }
    }
}
