//! What can be asked without changing anything.
//! Source: `GroupMetadataManager.getOffsets`, `GroupCoordinator.handleDescribeGroup`, `handleListGroups`.

use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
    topic::TopicPartition,
};

use crate::{
    action::{Counts, FetchedOffset, GroupDescription, GroupOverview, GroupState},
    coordinator::GroupCoordinator,
    group::Group,
};

impl GroupCoordinator {
    /// Offsets that the group committed, in the order asked for; all of them where nothing is asked for.
    ///
    /// With `require_stable`, a partition with a commit under way gives UNSTABLE_OFFSET_COMMIT (KIP-447).
    pub fn fetch_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
        require_stable: bool,
    ) -> Vec<FetchedOffset> {
        let group = self.groups.get(group).filter(|group| group.state() != GroupState::Dead);
        match (partitions, group) {
            (Some(partitions), _) => {
                let fetch = |partition: &TopicPartition| fetch(group, partition, require_stable);
                partitions.iter().map(fetch).collect()
            }
            (None, Some(alive)) => {
                let committed = alive.offsets.committed();
                committed.map(|(partition, _)| fetch(group, &partition, require_stable)).collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// A group and its members.
    pub fn describe(&self, group: &str) -> GroupDescription {
        let Some(group) = self.groups.get(group) else {
            return GroupDescription {
                state: GroupState::Dead,
                protocol_type: String::new(),
                protocol: String::new(),
                members: Vec::new(),
            };
        };
        let protocol = match group.state() {
            GroupState::Stable => group.protocol_name.as_deref(),
            _ => None,
        };
        GroupDescription {
            state: group.state(),
            protocol_type: group.protocol_type.clone().unwrap_or_default(),
            protocol: protocol.unwrap_or_default().to_owned(),
            members: group.members.values().map(|member| member.describe(protocol)).collect(),
        }
    }

    /// Groups in one of the states, which are compared without regard to case; all groups if none is given.
    pub fn list(&self, states: &[String]) -> Vec<GroupOverview> {
        let is_wanted = |group: &&Group| {
            let name = group.state().name();
            states.is_empty() || states.iter().any(|state| state.eq_ignore_ascii_case(name))
        };
        let groups = self.groups.values().filter(is_wanted);
        let mut overviews: Vec<GroupOverview> = groups
            .map(|group| GroupOverview {
                group: group.id.clone(),
                protocol_type: group.protocol_type.clone().unwrap_or_default(),
                state: group.state(),
            })
            .collect();
        overviews.sort_by(|one, other| one.group.cmp(&other.group));
        overviews
    }

    /// How many there are of what.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for group in self.groups.values() {
            counts.offsets += group.offsets.count();
            let count = match group.state() {
                GroupState::Empty => &mut counts.empty,
                GroupState::PreparingRebalance => &mut counts.preparing_rebalance,
                GroupState::CompletingRebalance => &mut counts.completing_rebalance,
                GroupState::Stable => &mut counts.stable,
                GroupState::Dead => &mut counts.dead,
            };
            *count += 1;
        }
        counts
    }
}

fn fetch(group: Option<&Group>, partition: &TopicPartition, require_stable: bool) -> FetchedOffset {
    let is_unstable = require_stable && group.is_some_and(|group| group.is_unstable(partition));
    let value = group.filter(|_| !is_unstable).and_then(|group| group.offsets.get(partition));
    FetchedOffset {
        topic_partition: partition.clone(),
        offset: value.map_or(Offset::NONE, |value| value.offset),
        leader_epoch: value.map_or(LeaderEpoch::NONE, |value| value.leader_epoch),
        metadata: value.map(|value| value.metadata.clone()).unwrap_or_default(),
        error: if is_unstable { ErrorCode::UnstableOffsetCommit } else { ErrorCode::None },
    }
}
