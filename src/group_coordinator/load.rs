//! Loading: the log's records, in their order, become the coordinator's state.
//! Source: `GroupMetadataManager.loadGroupsAndOffsets`.

use std::{collections::HashSet, sync::Arc};

use common::ids::ProducerId;

use crate::{
    coordinator::GroupCoordinator,
    event::Now,
    group::{Group, State},
    member::Member,
    offsets::Committed,
    records::{GroupMetadataValue, GroupRecord},
};

/// Why a record cannot be taken over; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Members without a protocol have no metadata.
    #[error("the record of group {group} has members but no protocol")]
    MembersWithoutProtocol {
        /// Which group.
        group: Arc<str>,
    },
    /// Two members with one id.
    #[error("the record of group {group} has member {member_id} twice")]
    MemberTwice {
        /// Which group.
        group: Arc<str>,
        /// Whose id.
        member_id: String,
    },
    /// Two members with one static name.
    #[error("the record of group {group} has static member {group_instance_id} twice")]
    StaticMemberTwice {
        /// Which group.
        group: Arc<str>,
        /// Whose name.
        group_instance_id: String,
    },
}

impl GroupCoordinator {
    /// Takes over a record of the log that is part of no transaction.
    ///
    /// # Errors
    /// The record contradicts itself; it has changed nothing, and loading may go on without it.
    pub fn replay(&mut self, record: GroupRecord, now: Now) -> Result<(), ReplayError> {
        match record {
            GroupRecord::OffsetCommit { group, topic_partition, value } => {
                let position = self.tools.appends.next_position();
                let group = self.group_or_new(&group, now);
                group.offsets.apply(&topic_partition, Committed { position, value });
            }
            GroupRecord::GroupMetadata { group, value } => self.replay_group(&group, value, now)?,
        }
        Ok(())
    }

    /// Takes over a record of a transactional batch: its offset counts once the transaction is committed.
    ///
    /// # Errors
    /// As `replay`.
    pub fn replay_transactional(
        &mut self,
        producer_id: ProducerId,
        record: GroupRecord,
        now: Now,
    ) -> Result<(), ReplayError> {
        let GroupRecord::OffsetCommit { group, topic_partition, value } = record else {
            return self.replay(record, now);
        };
        let position = self.tools.appends.next_position();
        let group = self.group_or_new(&group, now);
        let offsets = group.transactions.entry(producer_id).or_default();
        offsets.apply(&topic_partition, Committed { position, value });
        if offsets.is_empty() {
            group.transactions.remove(&producer_id);
        }
        let id = group.id.clone();
        self.producers.entry(producer_id).or_default().insert(id);
        Ok(())
    }

    /// Takes over a transaction's marker.
    pub fn replay_marker(&mut self, producer_id: ProducerId, committed: bool) {
        for id in self.producers.remove(&producer_id).unwrap_or_default() {
            if let Some(group) = self.groups.get_mut(&id) {
                group.on_transaction_completed(producer_id, committed);
            }
        }
    }

    /// Members are as the last record says; offsets have records of their own.
    fn replay_group(
        &mut self,
        id: &str,
        value: Option<GroupMetadataValue>,
        now: Now,
    ) -> Result<(), ReplayError> {
        if let Some(value) = &value {
            check(id, value)?;
        }
        let group = self.group_or_new(id, now);
        let mut loaded = Group::new(group.id.clone(), group.incarnation, now);
        if let Some(value) = value {
            loaded.take_over(value);
        }
        loaded.offsets = std::mem::take(&mut group.offsets);
        loaded.transactions = std::mem::take(&mut group.transactions);
        *group = loaded;
        Ok(())
    }
}

fn check(id: &str, value: &GroupMetadataValue) -> Result<(), ReplayError> {
    if value.protocol.is_none() && !value.members.is_empty() {
        return Err(ReplayError::MembersWithoutProtocol { group: id.into() });
    }
    let (mut ids, mut instances) = (HashSet::new(), HashSet::new());
    for member in &value.members {
        if !ids.insert(&member.member_id) {
            let member_id = member.member_id.clone();
            return Err(ReplayError::MemberTwice { group: id.into(), member_id });
        }
        if let Some(instance) = &member.group_instance_id
            && !instances.insert(instance)
        {
            let group_instance_id = instance.clone();
            return Err(ReplayError::StaticMemberTwice { group: id.into(), group_instance_id });
        }
    }
    Ok(())
}

impl Group {
    /// Becomes what a record says. Source: `GroupMetadata.loadGroup`.
    fn take_over(&mut self, value: GroupMetadataValue) {
        let protocol = value.protocol.clone().unwrap_or_default();
        let protocol_type = value.protocol_type;
        // A leader that is no member is none.
        let is_member = |leader: &String| value.members.iter().any(|m| m.member_id == *leader);
        self.leader = value.leader.filter(is_member).map(Arc::from);
        for member in value.members {
            self.add(Member::from_value(member, &protocol), &protocol_type);
        }
        self.state = if self.members.is_empty() { State::Empty } else { State::Stable };
        self.state_since = value.current_state_timestamp;
        self.protocol_type = Some(protocol_type).filter(|name| !name.is_empty());
        self.protocol_name = value.protocol;
        self.generation = value.generation;
    }
}
