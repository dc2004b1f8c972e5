//! Deleting a topic: its leaders step down, its replicas are deleted by their brokers, and then its
//! znodes go. Nothing of it is lost when a broker or the controller dies: the mark in
//! `/admin/delete_topics` stays until the end, and the next controller begins again.
//! Source: `kafka.controller.TopicDeletionManager`.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    error_code::ErrorCode,
    ids::{BrokerId, LeaderEpoch},
    topic::TopicPartition,
};

use crate::{
    controller::{Controller, Topic},
    plan::{Applied, Outcome, Plan, Step, Todo, Write},
    request::{Batch, DURING_DELETE, StopReplicaPartition},
    states::{Leadership, Partition, ReplicaState},
};

/// How far a deletion has come.
#[derive(Debug, Default)]
pub(crate) struct Deletion {
    /// Whether brokers were told: from then on the topic is gone for clients.
    pub(crate) started: bool,
    /// Whether a replica cannot be deleted now; cleared when a broker of the topic comes back.
    pub(crate) ineligible: bool,
    /// Whether partitions were added after the mark; they are taken out of the znode again.
    pub(crate) late_partitions: bool,
    /// Replicas that were told to go, have gone, or could not.
    pub(crate) replicas: BTreeMap<(i32, BrokerId), ReplicaState>,
}

impl Deletion {
    fn is_going_on(&self) -> bool {
        self.replicas.values().any(|state| *state == ReplicaState::DeletionStarted)
    }
}

fn is_deleted(topic: &Topic, deletion: &Deletion) -> bool {
    let gone = |index: i32, replica: BrokerId| {
        deletion.replicas.get(&(index, replica)) == Some(&ReplicaState::DeletionSuccessful)
    };
    deletion.started
        && topic.partitions.iter().all(|(index, partition)| {
            partition.assignment.replicas.iter().all(|replica| gone(*index, *replica))
        })
}

impl Controller {
    /// Decides the next step of a topic's deletion.
    pub(crate) fn plan_deletion(&mut self, name: Arc<str>, plan: &mut Plan) {
        let Some(topic) = self.topics.get(&name) else { return };
        let Some(deletion) = &topic.deletion else { return };
        if deletion.late_partitions {
            let write = plan.write(Write::SetTopic {
                name: Arc::clone(&name),
                id: topic.id,
                partitions: self.to_be_stored(&name, topic),
                expected: topic.version,
            });
            plan.steps.push(Step::Topic { name: Arc::clone(&name), write });
            self.restored(&name);
            return;
        }
        if is_deleted(topic, deletion) {
            let partitions = topic.partitions.iter();
            let write = plan.write(Write::DeleteTopic {
                name: Arc::clone(&name),
                partitions: partitions
                    .map(|(index, partition)| (*index, partition.has_state()))
                    .collect(),
            });
            plan.steps.push(Step::EndDeletion { name, write });
            return;
        }
        if deletion.ineligible || deletion.is_going_on() {
            return;
        }
        let mut led = false;
        for (index, partition) in &topic.partitions {
            let id = TopicPartition::new(Arc::clone(&name), *index);
            let leadership = partition.leadership.as_ref().filter(|_| !partition.is_left_alone);
            let Some(leadership) = leadership else { continue };
            let Some(leadership) = self.stepped_down(&id, leadership) else { continue };
            let expected = leadership.partition_epoch;
            let write =
                plan.write(Write::SetLeadership { partition: id.clone(), leadership, expected });
            let (write, todo) = (Some(write), Todo::default());
            plan.steps.push(Step::Partition { partition: id, write, arrives: false, todo });
            led = true;
        }
        if led {
            self.topics_todo.insert(name);
        } else {
            plan.steps.push(Step::StartDeletion { name });
        }
    }

    fn restored(&mut self, name: &Arc<str>) {
        if let Some(topic) = self.topics.get_mut(name)
            && let Some(deletion) = &mut topic.deletion
        {
            deletion.late_partitions = false;
            self.topics_todo.insert(Arc::clone(name));
        }
    }

    /// The leadership once all live replicas have left; the last ISR member stays in the list.
    fn stepped_down(&self, id: &TopicPartition, leadership: &Leadership) -> Option<Leadership> {
        let mut next = leadership.clone();
        if self.online(id, leadership.leader) {
            next.leader = BrokerId::NONE;
        }
        next.isr.retain(|broker| !self.online(id, *broker));
        if next.isr.is_empty() {
            next.isr.extend(leadership.isr.last());
        }
        if next == *leadership {
            return None;
        }
        next.leader_epoch = LeaderEpoch(leadership.leader_epoch.0.wrapping_add(1));
        next.controller_epoch = self.options.epoch;
        Some(next)
    }

    /// Tells brokers to delete their replicas, and everybody that the topic is gone. A dead replica
    /// halts the deletion, unless the topic was never led: then there is nothing to delete. One
    /// partition without a state proves nothing: somebody may have deleted that before.
    pub(crate) fn start_deletion(&mut self, name: &Arc<str>, batch: &mut Batch) {
        let Some(topic) = self.topics.get(name) else { return };
        let was_never_led = !topic.partitions.values().any(Partition::has_state);
        let mut states = BTreeMap::new();
        for (index, partition) in &topic.partitions {
            let id = TopicPartition::new(Arc::clone(name), *index);
            batch.mention(&id, None);
            for &replica in &partition.assignment.replicas {
                let state = match self.replica_state(&id, replica) {
                    Some(ReplicaState::DeletionSuccessful) => ReplicaState::DeletionSuccessful,
                    _ if self.online(&id, replica) => {
                        let delete = StopReplicaPartition {
                            index: *index,
                            leader_epoch: DURING_DELETE,
                            delete: true,
                        };
                        batch.stop(replica, &id, delete);
                        ReplicaState::DeletionStarted
                    }
                    _ if was_never_led => ReplicaState::DeletionSuccessful,
                    _ => ReplicaState::DeletionIneligible,
                };
                states.insert((*index, replica), state);
            }
        }
        batch.tell_all();
        let halted = states.values().any(|state| *state == ReplicaState::DeletionIneligible);
        if let Some(topic) = self.topics.get_mut(name)
            && let Some(deletion) = &mut topic.deletion
        {
            deletion.started = true;
            deletion.ineligible |= halted;
            deletion.replicas = states;
            self.topics_todo.insert(Arc::clone(name));
        }
    }

    /// Takes in what brokers say of the replicas they were to delete.
    pub(crate) fn learn_stopped(
        &mut self,
        broker: BrokerId,
        errors: Vec<(TopicPartition, ErrorCode)>,
    ) {
        for (partition, error) in errors {
            self.has_stopped(&partition, broker);
            let Some(topic) = self.topics.get_mut(&partition.topic) else { continue };
            let Some(deletion) = &mut topic.deletion else { continue };
            let Some(state) = deletion.replicas.get_mut(&(partition.partition, broker)) else {
                continue;
            };
            if *state != ReplicaState::DeletionStarted {
                continue;
            }
            if error.is_none() {
                *state = ReplicaState::DeletionSuccessful;
            } else {
                *state = ReplicaState::DeletionIneligible;
                deletion.ineligible = true;
            }
            self.topics_todo.insert(partition.topic);
        }
    }

    /// Replicas were lost while, or before, they were deleted.
    pub(crate) fn fail_deletion(&mut self, partition: &TopicPartition, lost: &[BrokerId]) {
        let Some(topic) = self.topics.get_mut(&partition.topic) else { return };
        let Some(deletion) = &mut topic.deletion else { return };
        for &broker in lost {
            let state = deletion.replicas.get_mut(&(partition.partition, broker));
            if let Some(state) = state
                && *state == ReplicaState::DeletionStarted
            {
                *state = ReplicaState::DeletionIneligible;
                deletion.ineligible = true;
            }
        }
        self.topics_todo.insert(Arc::clone(&partition.topic));
    }

    /// A broker that holds replicas of the topic is back: tries again.
    pub(crate) fn resume_deletion(&mut self, name: &Arc<str>) {
        if let Some(topic) = self.topics.get_mut(name)
            && let Some(deletion) = &mut topic.deletion
        {
            deletion.ineligible = false;
            self.topics_todo.insert(Arc::clone(name));
        }
    }

    /// The topic's znodes are gone, or could not go.
    pub(crate) fn end_deletion(&mut self, name: Arc<str>, outcome: Outcome, applied: &mut Applied) {
        if outcome == Outcome::Conflict {
            if let Some(topic) = self.topics.get_mut(&name) {
                topic.stale = true;
            }
            applied.reread.insert(Arc::clone(&name));
            self.topics_todo.insert(name);
            return;
        }
        if outcome == Outcome::Refused {
            if let Some(deletion) = self.topics.get_mut(&name).and_then(|one| one.deletion.as_mut())
            {
                deletion.ineligible = true;
            }
            return;
        }
        self.forget_topic(&name);
        applied.deleted.push(name);
    }
}
