//! What the controller is told. Most of it is "read again": the content of znodes as they are now,
//! however often they changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId},
    topic::{TopicPartition, Uuid},
};
use metadata::broker::Broker;

use crate::{
    alter_partition::AlterPartition,
    answer::Ticket,
    assignment::Assignment,
    elect_leaders::ElectionType,
    reassignment::{Moves, Orders},
    states::Leadership,
};

/// A topic's znodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRead {
    /// The topic.
    pub name: Arc<str>,
    /// Version of the topic's znode.
    pub version: i32,
    /// Its id, if it has one.
    pub id: Option<Uuid>,
    /// Who holds each partition.
    pub partitions: BTreeMap<i32, Assignment>,
    /// What was read of the partitions' states. Partitions whose state was not read are left out.
    pub leaderships: BTreeMap<i32, StateRead>,
}

/// What was read of a partition's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateRead {
    /// Its znode is missing.
    Missing,
    /// Its znode says nothing that can be understood: it is nobody's to overwrite.
    Unreadable,
    /// Its state.
    Is(Leadership),
}

/// News for the controller.
#[derive(Clone, Debug)]
pub enum Change {
    /// All registered brokers.
    Brokers(Vec<Arc<Broker>>),
    /// The names of all topics, and the content of those in `Controller::unknown`.
    Topics {
        /// Every child of `/brokers/topics`.
        names: BTreeSet<Arc<str>>,
        /// New topics.
        read: Vec<TopicRead>,
    },
    /// A topic whose znode changed, or whose znodes were to be read again.
    Topic(TopicRead),
    /// A topic that was to be read again and is not there.
    TopicGone(Arc<str>),
    /// The names of the topics to delete.
    Deletions(BTreeSet<Arc<str>>),
    /// Whether a topic allows unclean elections; an answer to `Plan::unclean_wanted`.
    Unclean {
        /// The topic.
        topic: Arc<str>,
        /// `unclean.leader.election.enable` as it is for the topic now.
        allowed: bool,
    },
    /// Unclean elections were allowed, for all topics or for one: look at leaderless partitions again.
    UncleanEnabled(Option<Arc<str>>),
    /// A broker's answer to StopReplica.
    Stopped {
        /// The broker.
        broker: BrokerId,
        /// Its registration when it was asked.
        broker_epoch: BrokerEpoch,
        /// The error of each partition; those of a request that failed as a whole have its error.
        errors: Vec<(TopicPartition, ErrorCode)>,
    },
    /// A broker's answer to LeaderAndIsr: a partition with KAFKA_STORAGE_ERROR is offline there.
    Led {
        /// The broker.
        broker: BrokerId,
        /// Its registration when it was asked.
        broker_epoch: BrokerEpoch,
        /// The error of each partition.
        errors: Vec<(TopicPartition, ErrorCode)>,
    },
    /// Brokers that lost a log directory: their replicas are asked for.
    LogDirsFailed(BTreeSet<BrokerId>),
    /// A broker that was not told all that was meant for it: it is told everything anew.
    Behind(BrokerId),
    /// A broker is about to stop: its leaderships move, its replicas leave the ISR.
    ControlledShutdown {
        /// Who is to be answered.
        ticket: Ticket,
        /// The broker.
        broker: BrokerId,
        /// Its registration; -1 where it does not say.
        broker_epoch: BrokerEpoch,
    },
    /// A leader changes the ISR of its partitions.
    AlterPartition {
        /// Who is to be answered.
        ticket: Ticket,
        /// What it wants.
        request: AlterPartition,
    },
    /// Partitions that shall be led by their first replica.
    PreferLeaders(BTreeSet<TopicPartition>),
    /// Elections, of these partitions or of all.
    ElectLeaders {
        /// Who is to be answered.
        ticket: Ticket,
        /// Who shall lead.
        kind: ElectionType,
        /// The partitions; none for all.
        only: Option<BTreeSet<TopicPartition>>,
    },
    /// It is time to look whether leaderships are where they belong.
    Rebalance {
        /// `leader.imbalance.per.broker.percentage`.
        percentage: i32,
    },
    /// Partitions to be moved, or whose move is to end.
    Reassign {
        /// Who is to be answered.
        ticket: Ticket,
        /// Where they shall be.
        moves: Moves,
    },
    /// What `/admin/reassign_partitions` says; none where it is not there.
    Orders(Option<Orders>),
    /// States that a leader has written itself, as those of before 2.7 do.
    States(Vec<(TopicPartition, Leadership)>),
}
