//! What the controller knows of a partition, and the states that follow from it.
//!
//! Kafka stores a state beside the facts it stands for. Here a state is computed from the facts, so
//! that the two cannot disagree; what is stored is leadership (as ZooKeeper has it), which brokers
//! live, and how far a deletion has come.

use common::ids::{BrokerId, ControllerEpoch, LeaderEpoch, PartitionEpoch};

use crate::assignment::Assignment;

/// The content of a partition's state znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The leader; -1 where there is none.
    pub leader: BrokerId,
    /// Counts the decisions about leadership.
    pub leader_epoch: LeaderEpoch,
    /// The in-sync replicas; the last one stays in the list even when it is gone.
    pub isr: Vec<BrokerId>,
    /// Whether the leader was elected from outside the ISR and may have lost records.
    pub recovering: bool,
    /// The controller that wrote it.
    pub controller_epoch: ControllerEpoch,
    /// Version of the znode.
    pub partition_epoch: PartitionEpoch,
}

/// What the controller knows of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Who holds it.
    pub assignment: Assignment,
    /// Who leads it; none before its first election, and where that could never be read.
    pub leadership: Option<Leadership>,
    /// Its state's znode says nothing that can be understood, or may not be written: nothing is decided about it until it
    /// is read again.
    pub is_left_alone: bool,
}

impl Partition {
    /// Whether its state has a znode.
    pub(crate) fn has_state(&self) -> bool {
        self.leadership.is_some() || self.is_left_alone
    }
}

/// The state of a partition. Source: `kafka.controller.PartitionStateMachine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionState {
    /// Assigned, never led. Next: `Online` once a replica lives, or `NonExistent`.
    New,
    /// Led by a live replica. Next: `Offline`, `NonExistent`.
    Online,
    /// Was led; its leader is gone. Next: `Online` by an election, or `NonExistent`.
    Offline,
    /// Its topic is being deleted: nobody is told of it, nothing elects for it.
    NonExistent,
}

/// The state of a replica. Source: `kafka.controller.ReplicaStateMachine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicaState {
    /// Its partition has no leader yet, or it joins by a move. Next: `Online`, `Offline`.
    New,
    /// Its broker lives and has not reported its log directory lost. Next: `Offline`.
    Online,
    /// Its broker or log directory is gone. Next: `Online`, `DeletionIneligible`.
    Offline,
    /// Its broker was told to delete it. Next: `DeletionSuccessful`, `DeletionIneligible`.
    DeletionStarted,
    /// Its broker has deleted it. Next: forgotten, with its topic.
    DeletionSuccessful,
    /// It could not be deleted; tried again when its broker comes back. Next: `DeletionStarted`.
    DeletionIneligible,
}
