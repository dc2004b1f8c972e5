//! What is to be written, and what comes of it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use common::{
    ids::{BrokerId, PartitionEpoch},
    topic::{TopicPartition, Uuid},
};

use crate::{
    alter_partition::NewIsr,
    answer::{Answer, Ticket},
    assignment::Assignment,
    election::Strategy,
    error::ApiError,
    request::BrokerRequest,
    states::{Leadership, PartitionState},
};

/// A change of znodes. Each is made under the check of the controller's epoch, and alone: none
/// waits for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Create the state of a partition, and its parents.
    CreateLeadership {
        /// The partition.
        partition: TopicPartition,
        /// What the state says; its partition epoch will be 0.
        leadership: Leadership,
    },
    /// Change the state of a partition.
    SetLeadership {
        /// The partition.
        partition: TopicPartition,
        /// What the state says; its partition epoch will be one up.
        leadership: Leadership,
        /// The version to be replaced.
        expected: PartitionEpoch,
    },
    /// Write a topic's assignments again: with an id, with a move that begins or ends, or without partitions that came
    /// too late.
    SetTopic {
        /// The topic.
        name: Arc<str>,
        /// Its id.
        id: Option<Uuid>,
        /// Its partitions.
        partitions: BTreeMap<i32, Assignment>,
        /// The version to be replaced.
        expected: i32,
    },
    /// Delete a topic: its znodes, children first, then its configs, then the mark in
    /// `/admin/delete_topics`. What is missing counts as deleted.
    DeleteTopic {
        /// The topic.
        name: Arc<str>,
        /// Its partitions, and whether each has a state.
        partitions: BTreeMap<i32, bool>,
    },
    /// Write what is left to do into `/admin/reassign_partitions`, or delete it where nothing is; missing counts as done
    /// then.
    SetOrders {
        /// What is left.
        moves: BTreeMap<TopicPartition, Vec<BrokerId>>,
        /// The version to be replaced.
        expected: i32,
    },
    /// Take a name out of `/admin/delete_topics`; missing counts as done.
    ForgetDeletion {
        /// The name.
        name: Arc<str>,
    },
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Made; the znode has this version now.
    Done {
        /// The new version.
        version: i32,
    },
    /// The znode is not as the plan took it to be (another version, or there, or not there).
    Conflict,
    /// ZooKeeper does not let this broker write it: the next attempt would end the same way.
    Refused,
}

/// What becomes of single replicas, beside what is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hearers {
    /// Every live replica.
    pub(crate) all: bool,
    /// Nobody has to lead or follow anew, but everyone shall know how it stands.
    pub(crate) everyone: bool,
    /// These.
    pub(crate) some: BTreeSet<BrokerId>,
    /// Brokers that stop their replica.
    pub(crate) stop: BTreeSet<BrokerId>,
    /// Brokers that are no replicas any more: they delete what they have.
    pub(crate) drop: BTreeSet<BrokerId>,
    /// Brokers that failed and came back, perhaps without the end of their logs: they lose
    /// leadership and leave the ISR as far as others can take over.
    pub(crate) bounced: BTreeSet<BrokerId>,
}

/// What is to be decided for one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Todo {
    /// An election that was asked for; another one is held if the leader is gone.
    pub(crate) strategy: Option<Strategy>,
    /// The replicas are others now, and listen only to a new epoch.
    pub(crate) new_epoch: bool,
    pub(crate) hearers: Hearers,
}

/// What one write, or one partition without a write, leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A partition; the write, if any, is one of its leadership. With it a move may have arrived.
    Partition { partition: TopicPartition, write: Option<usize>, arrives: bool, todo: Todo },
    /// The ISR that a leader asked for, by the number of its request.
    Alter { partition: TopicPartition, write: usize, alteration: usize, wanted: NewIsr },
    /// A topic's znode.
    Topic { name: Arc<str>, write: usize },
    /// The znode of old tools' moves.
    Orders { write: usize },
    /// A topic's replicas are told to delete.
    StartDeletion { name: Arc<str> },
    /// A topic's znodes are deleted.
    EndDeletion { name: Arc<str>, write: usize },
    /// A name that was marked for deletion in vain.
    Forget { write: usize },
}

/// What a turn decided. Nothing of it has happened.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) writes: Vec<Write>,
    pub(crate) steps: Vec<Step>,
    pub(crate) unclean_wanted: BTreeSet<Arc<str>>,
    /// Partitions whose leadership or assignment is written.
    changed: HashSet<TopicPartition>,
}

impl Plan {
    /// The writes, to be made in this order.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Topics for which an election needs to know whether it may be unclean: read the topic's config
    /// and say so by `Change::Unclean`.
    pub fn unclean_wanted(&self) -> &BTreeSet<Arc<str>> {
        &self.unclean_wanted
    }

    /// Whether the partition's leadership or assignment is to be written.
    pub(crate) fn changes(&self, partition: &TopicPartition) -> bool {
        self.changed.contains(partition)
    }

    /// The partition gets another assignment; what else is to be decided for it waits for that.
    pub(crate) fn moves(&mut self, partition: TopicPartition) {
        self.changed.insert(partition);
    }

    pub(crate) fn write(&mut self, write: Write) -> usize {
        if let Write::CreateLeadership { partition, .. } | Write::SetLeadership { partition, .. } =
            &write
        {
            self.changed.insert(partition.clone());
        }
        self.writes.push(write);
        self.writes.len() - 1
    }
}

/// A leadership that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The partition.
    pub partition: TopicPartition,
    /// Its state before.
    pub before: PartitionState,
    /// Its state now.
    pub after: PartitionState,
    /// Its leadership now.
    pub leadership: Leadership,
    /// Whether its leader is from outside the ISR, so that records may be lost.
    pub unclean: bool,
}

/// What a turn led to.
#[derive(Debug, Default)]
pub struct Applied {
    /// To be sent, per broker in this order.
    pub requests: Vec<BrokerRequest>,
    /// Leaderships that are decided, each with the state of the partition before.
    pub decided: Vec<Decided>,
    /// Topics to read again with the states of all their partitions, and to hand back by
    /// `Change::Topic` or `Change::TopicGone`. Nothing is decided for them until then.
    pub reread: BTreeSet<Arc<str>>,
    /// Answers to requests; what they say is written.
    pub answers: Vec<(Ticket, Answer)>,
    /// Orders of old tools that were refused.
    pub failed_orders: Vec<(TopicPartition, ApiError)>,
    /// `/admin/reassign_partitions` is not as the plan took it to be: read it again.
    pub reread_orders: bool,
    /// Topics that are deleted for good.
    pub deleted: Vec<Arc<str>>,
    /// Whether more is to be decided: plan again, at once.
    pub more: bool,
}
