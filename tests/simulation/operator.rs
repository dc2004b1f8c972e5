//! What an operator does: partitions are moved to other brokers while things go wrong. And what a broker does about a
//! replica that it shall not have any more: the glue of `server/replica_requests.rs`.

use std::collections::BTreeMap;

use common::{
    error_code::ErrorCode,
    ids::{BrokerId, LeaderEpoch},
    topic::TopicPartition,
};
use controller::{
    change::Change,
    request::{self, DURING_DELETE, StopReplicaPartition},
};
use metadata::snapshot::Update;

use crate::{
    bugs::Bug,
    network::{Message, Node, RequestId},
    replica::Role,
    world::{Event, Millis, REPLICAS, World},
};

/// Moves of a run at most.
const MOVES_MAX: u64 = 3;
/// How long a replica that is to stop waits for the new leader at most.
const TAKEN_OVER_AT_MOST: Millis = 300;
/// How often it looks.
const LOOK_AGAIN: Millis = 20;

/// Replicas that are to stop, once new leaders have what is theirs.
#[derive(Clone, Debug)]
pub struct Stopping {
    /// Who is to be answered.
    asked: (Node, RequestId),
    told: Vec<StopReplicaPartition>,
    until: Millis,
}

impl World {
    /// Decides when partitions are moved.
    pub fn begin_moves(&mut self, from: Millis, to: Millis) {
        let count = self.random.between(0, MOVES_MAX);
        for _ in 0..count {
            let at = self.random.between(from, to);
            self.after(at, Event::Move);
        }
    }

    /// A partition is to be elsewhere, or where it was before; whoever is the controller is told.
    pub fn move_partition(&mut self) {
        let mut ids: Vec<BrokerId> = self.brokers.keys().copied().collect();
        if ids.len() <= REPLICAS {
            return;
        }
        // Often from a broker that is away, which is not told.
        let running = self.running();
        if running.len() >= REPLICAS && self.random.chance(500) {
            ids = running;
        }
        let partitions = self.partitions.clone();
        let Some(partition) = self.random.pick(&partitions) else { return };
        let mut target = Vec::new();
        while target.len() < REPLICAS {
            let at = usize::try_from(self.random.below(ids.len() as u64)).unwrap_or(0);
            target.push(ids.remove(at));
        }
        let target = Some(target).filter(|_| !self.random.chance(200));
        self.note(format_args!("MOVE {partition} to {target:?}"));
        let moves = BTreeMap::from([(World::name(partition), target)]);
        // Nobody waits for the answer.
        self.tell_controllers(&mut |ticket| Change::Reassign { ticket, moves: moves.clone() });
    }

    /// Replicas are to stop: those that lead take nothing more, and wait until the new leader has all.
    pub fn stop_replicas(
        &mut self,
        id: BrokerId,
        asked: (Node, RequestId),
        told: request::StopReplica,
    ) {
        let told: Vec<StopReplicaPartition> =
            told.topics.into_iter().flat_map(|topic| topic.partitions).collect();
        for one in &told {
            self.give_up_leading(id, one.index, one.leader_epoch);
        }
        let until = self.now + TAKEN_OVER_AT_MOST;
        self.go_on_stopping(id, Stopping { asked, told, until });
    }

    /// Steps down from the partitions that are elsewhere by what all brokers are told.
    pub fn leave_what_moved(&mut self, id: BrokerId, update: &Update) {
        if self.options.bug == Some(Bug::MovedReplicasGoOn) {
            return;
        }
        let told = update.topics.iter().flat_map(|topic| &topic.partitions);
        for (partition, state) in told {
            let Some(state) = state.as_ref().filter(|one| !one.replicas.contains(&id)) else {
                continue;
            };
            let Some(replica) = self.replica(id, *partition) else { continue };
            if replica.role.epoch() >= state.leader_epoch {
                continue;
            }
            self.note(format_args!("broker {id} is no replica of {partition} any more"));
            self.give_up_leading(id, *partition, state.leader_epoch);
            match self.replica(id, *partition) {
                Some(replica) if owes(&replica.role) => replica.copying = None,
                _ => self.unhost(id, *partition),
            }
        }
    }

    /// Hosts no more what is of a topic that is deleted, where StopReplica will not say so.
    pub fn leave_what_is_left(&mut self, id: BrokerId, update: &Update) {
        let told = update.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(move |(partition, state)| (topic.id, *partition, state))
        });
        for (topic_id, partition, state) in told {
            let Some(replica) = self.replica(id, partition) else { continue };
            let is_other = topic_id != Some(replica.topic_id);
            let is_left = match state {
                Some(state) => is_other && !state.replicas.contains(&id),
                None => is_other || owes(&replica.role),
            };
            if is_left {
                self.note(format_args!("broker {id} has {partition} of a deleted topic"));
                self.unhost(id, partition);
            }
        }
    }

    fn give_up_leading(&mut self, id: BrokerId, partition: i32, told: LeaderEpoch) {
        let Some(replica) = self.replica(id, partition) else { return };
        let Role::Leader(leader) = &replica.role else { return };
        if leader.epoch() >= told || leader.replicas().len() < 2 {
            return;
        }
        replica.role = Role::Follower {
            leader: BrokerId::NONE,
            epoch: LeaderEpoch(leader.epoch().0 + 1),
            partition_epoch: leader.partition_epoch(),
            owes: true,
        };
        self.note(format_args!("broker {id} leads {partition} no more, and hands it over"));
        self.wake(id, partition);
    }

    /// Stops the replicas that are taken over; answers when all are, or it has taken too long.
    pub fn go_on_stopping(&mut self, id: BrokerId, stopping: Stopping) {
        let waits = stopping.told.iter().any(|one| {
            one.leader_epoch.0 >= 0
                && self.replica(id, one.index).is_some_and(|replica| owes(&replica.role))
        });
        if waits && self.now < stopping.until {
            let number = self.process_number(id);
            return self.after(LOOK_AGAIN, Event::GoOnStopping(id, number, Box::new(stopping)));
        }
        let Stopping { asked: (from, request), told, .. } = stopping;
        let outcomes: Vec<(TopicPartition, ErrorCode)> = told
            .into_iter()
            .map(|one| (World::name(one.index), self.stop_replica(id, one)))
            .collect();
        let answer = Message::Controlled(ErrorCode::None, outcomes);
        self.send(Node::Broker(id), from, request, answer);
    }

    fn stop_replica(&mut self, id: BrokerId, told: StopReplicaPartition) -> ErrorCode {
        let process = self.process(id);
        let known = process.replicas.get(&told.index);
        let current = known.map_or(LeaderEpoch::NONE, |replica| replica.role.epoch());
        let overrides =
            told.leader_epoch == DURING_DELETE || told.leader_epoch == LeaderEpoch::NONE;
        if !overrides && told.leader_epoch < current {
            return ErrorCode::FencedLeaderEpoch;
        }
        self.unhost(id, told.index);
        if told.delete { self.delete_log(id, told.index) } else { ErrorCode::None }
    }

    /// Whoever waits is answered; the log stays.
    pub fn unhost(&mut self, id: BrokerId, partition: i32) {
        let Some(replica) = self.replica(id, partition) else { return };
        replica.role = Role::None;
        replica.copying = None;
        self.wake(id, partition);
        self.process(id).replicas.remove(&partition);
    }

    fn delete_log(&mut self, id: BrokerId, partition: i32) -> ErrorCode {
        let bug = self.options.bug;
        match self.process(id).logs.delete(&World::name(partition)) {
            Ok(true) => {
                self.note(format_args!("broker {id} deletes {partition}"));
                self.log_is_gone(id, partition);
                ErrorCode::None
            }
            Ok(false) => ErrorCode::None,
            Err(_) if bug == Some(Bug::FailedDirectoriesAreTakenForDeleted) => ErrorCode::None,
            Err(_) => ErrorCode::KafkaStorageError,
        }
    }
}

fn owes(role: &Role) -> bool {
    matches!(role, Role::Follower { owes: true, .. })
}
