//! A member of a group.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    action::{JoinedMember, MemberDescription},
    event::{JoinRequest, ReplyTo},
    records::MemberMetadataValue,
    timers::Deadline,
};

/// A member, with what it waits for. It owns its bytes: no request's buffer is kept for them.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: Arc<str>,
    /// Static members have one; they survive a missed rebalance.
    pub(crate) group_instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) profile: Profile,
    pub(crate) assignment: Bytes,
    /// A JoinGroup request that waits for the others.
    pub(crate) awaiting_join: Option<ReplyTo>,
    /// A SyncGroup request that waits for the leader's.
    pub(crate) awaiting_sync: Option<ReplyTo>,
    /// It has not been through a rebalance: it may be gone while it waits for its first.
    pub(crate) is_new: bool,
    /// It was told of the generation, and has not asked for its assignment.
    pub(crate) owes_sync: bool,
    /// End of its session.
    pub(crate) session: Deadline,
}

/// What a member says about itself with each JoinGroup request.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) rebalance_timeout: Duration,
    pub(crate) session_timeout: Duration,
    /// Best first, each name once.
    pub(crate) protocols: Vec<(String, Bytes)>,
}

impl Profile {
    pub(crate) fn of(request: &JoinRequest) -> Profile {
        let mut names = HashSet::new();
        let first = request.protocols.iter().filter(|(name, _)| names.insert(name.as_str()));
        Profile {
            rebalance_timeout: request.rebalance_timeout,
            session_timeout: request.session_timeout,
            protocols: first
                .map(|(name, metadata)| (name.clone(), Bytes::copy_from_slice(metadata)))
                .collect(),
        }
    }

    /// Metadata for a protocol; None where the member cannot do it.
    pub(crate) fn metadata(&self, protocol: &str) -> Option<&Bytes> {
        self.protocols.iter().find(|(name, _)| name == protocol).map(|(_, metadata)| metadata)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.protocols.iter().map(|(name, _)| name.as_str())
    }

    /// Bytes in memory, roughly.
    pub(crate) fn size(&self) -> usize {
        self.protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum()
    }
}

impl Member {
    pub(crate) fn new(id: Arc<str>, request: JoinRequest, profile: Profile) -> Member {
        Member {
            id,
            group_instance_id: request.group_instance_id,
            client_id: request.client_id,
            client_host: request.client_host,
            profile,
            assignment: Bytes::new(),
            awaiting_join: None,
            awaiting_sync: None,
            is_new: true,
            owes_sync: false,
            session: Deadline::default(),
        }
    }

    /// A member as a record has it. It knows the chosen protocol alone, until it joins again.
    pub(crate) fn from_value(value: MemberMetadataValue, protocol: &str) -> Member {
        let milliseconds = |value: i32| Duration::from_millis(u64::try_from(value).unwrap_or(0));
        Member {
            id: value.member_id.into(),
            group_instance_id: value.group_instance_id,
            client_id: value.client_id,
            client_host: value.client_host,
            profile: Profile {
                rebalance_timeout: milliseconds(value.rebalance_timeout_ms),
                session_timeout: milliseconds(value.session_timeout_ms),
                protocols: vec![(protocol.to_owned(), value.subscription)],
            },
            assignment: value.assignment,
            awaiting_join: None,
            awaiting_sync: None,
            is_new: false,
            owes_sync: false,
            session: Deadline::default(),
        }
    }

    pub(crate) fn is_static(&self) -> bool {
        self.group_instance_id.is_some()
    }

    /// Bytes in memory, roughly.
    pub(crate) fn size(&self) -> usize {
        let instance = self.group_instance_id.as_ref().map_or(0, String::len);
        self.id.len()
            + instance
            + self.client_id.len()
            + self.client_host.len()
            + self.profile.size()
    }

    fn metadata(&self, protocol: &str) -> Bytes {
        self.profile.metadata(protocol).cloned().unwrap_or_default()
    }

    pub(crate) fn to_value(&self, protocol: &str, assignment: Bytes) -> MemberMetadataValue {
        let milliseconds =
            |duration: Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
        MemberMetadataValue {
            member_id: self.id.as_ref().into(),
            group_instance_id: self.group_instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: milliseconds(self.profile.rebalance_timeout),
            session_timeout_ms: milliseconds(self.profile.session_timeout),
            subscription: self.metadata(protocol),
            assignment,
        }
    }

    /// As the leader sees it.
    pub(crate) fn joined(&self, protocol: &str) -> JoinedMember {
        JoinedMember {
            member_id: self.id.as_ref().into(),
            group_instance_id: self.group_instance_id.clone(),
            metadata: self.metadata(protocol),
        }
    }

    /// As an administrator sees it; with metadata and assignment if a protocol is given.
    pub(crate) fn describe(&self, protocol: Option<&str>) -> MemberDescription {
        MemberDescription {
            member_id: self.id.as_ref().into(),
            group_instance_id: self.group_instance_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            metadata: protocol.map(|protocol| self.metadata(protocol)).unwrap_or_default(),
            assignment: protocol.map(|_| self.assignment.clone()).unwrap_or_default(),
        }
    }
}
