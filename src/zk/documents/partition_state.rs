//! `/brokers/topics/<topic>/partitions/<n>/state`: a partition's leader and ISR. The znode's version is the partition epoch.

use common::ids::{BrokerId, ControllerEpoch, LeaderEpoch};
use serde::{Deserialize, Serialize};

use super::{DocumentError, from_json, to_json};
use crate::paths;

/// Whether the leader may have lost records by an unclean election. Source: KIP-704.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaderRecoveryState {
    /// It is whole.
    #[default]
    Recovered,
    /// It was elected uncleanly and has not said yet that it recovered.
    Recovering,
}

/// A partition's leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStateDocument {
    /// The leader, or `BrokerId::NONE`.
    pub leader: BrokerId,
    /// From 0; grows with each election.
    pub leader_epoch: LeaderEpoch,
    /// The controller that decided it.
    pub controller_epoch: ControllerEpoch,
    /// Replicas in sync.
    pub isr: Vec<BrokerId>,
    /// Whether records may have been lost.
    pub leader_recovery_state: LeaderRecoveryState,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    controller_epoch: i32,
    leader: i32,
    #[serde(skip_deserializing)]
    version: i32,
    leader_epoch: i32,
    isr: Vec<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader_recovery_state: Option<i32>,
}

impl PartitionStateDocument {
    /// Reads a partition's state.
    pub fn parse(
        topic: &str,
        partition: i32,
        data: &[u8],
    ) -> Result<PartitionStateDocument, DocumentError> {
        let wire: Wire = from_json(&paths::partition_state(topic, partition), data)?;
        let leader_recovery_state = match wire.leader_recovery_state {
            None | Some(0) => LeaderRecoveryState::Recovered,
            Some(1) => LeaderRecoveryState::Recovering,
            Some(other) => {
                let path = paths::partition_state(topic, partition);
                let reason = format!("leader_recovery_state {other}");
                return Err(DocumentError::new(&path, reason));
            }
        };
        Ok(PartitionStateDocument {
            leader: BrokerId(wire.leader),
            leader_epoch: LeaderEpoch(wire.leader_epoch),
            controller_epoch: ControllerEpoch(wire.controller_epoch),
            isr: wire.isr.into_iter().map(BrokerId).collect(),
            leader_recovery_state,
        })
    }

    /// Writes it as version 1.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_json(&Wire {
            controller_epoch: self.controller_epoch.0,
            leader: self.leader.0,
            version: 1,
            leader_epoch: self.leader_epoch.0,
            isr: self.isr.iter().map(|id| id.0).collect(),
            leader_recovery_state: match self.leader_recovery_state {
                LeaderRecoveryState::Recovered => None,
                LeaderRecoveryState::Recovering => Some(1),
            },
        })
    }
}
