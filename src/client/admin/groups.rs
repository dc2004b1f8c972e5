//! Consumer groups: who is in them, and the offsets they committed. Sources: `KafkaAdminClient` and its handlers.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use common::{error_code::ErrorCode, topic::TopicPartition};
use kafka_protocol::{
    messages::{
        DeleteGroupsRequest, DescribeGroupsRequest, GroupId, ListGroupsRequest,
        OffsetDeleteRequest,
        describe_groups_response::DescribedGroup,
        offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic},
    },
    protocol::StrBytes,
};

use super::{Admin, Target, outcome, text, topic_name};
use crate::{
    coordinator::CoordinatorKind,
    error::{ClientError, ErrorKind},
    group::wire,
    metadata::Node,
    offsets::{self, CommittedOffset, Committer, Partitions},
};

/// A group, as a broker lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    /// Its id.
    pub id: String,
    /// `consumer`, or empty for one that only holds offsets.
    pub protocol_type: String,
    /// Its state, such as `Stable`; empty where the broker does not say.
    pub state: String,
    /// Its type, such as `classic`; empty where the broker does not say.
    pub group_type: String,
}

/// A group in full.
#[derive(Clone, Debug)]
pub struct GroupDescription {
    /// Its id.
    pub id: String,
    /// Its state, such as `Stable`; `Dead` for one that is not there.
    pub state: String,
    /// The chosen assignor; empty without members.
    pub assignor: String,
    /// The broker that coordinates it.
    pub coordinator: Node,
    /// Its members, as the broker orders them.
    pub members: Vec<MemberDescription>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDescription {
    /// Its id.
    pub id: String,
    /// `group.instance.id` of a static one.
    pub instance_id: Option<String>,
    /// `client.id`.
    pub client_id: String,
    /// Its address, as `/127.0.0.1`.
    pub host: String,
    /// Partitions it reads, in the order they were assigned.
    pub assignment: Vec<TopicPartition>,
}

/// Which groups are listed; an empty list lets all pass.
#[derive(Clone, Debug, Default)]
pub struct GroupFilter {
    /// By state.
    pub states: Vec<String>,
    /// By type.
    pub types: Vec<String>,
}

/// Protocol type of consumers.
const CONSUMER: &str = "consumer";
/// Versions of ListGroups with these filters. Sources: KIP-518, KIP-848.
const STATES_FROM: i16 = 4;
const TYPES_FROM: i16 = 5;

fn group_id(id: &str) -> GroupId {
    GroupId(text(id))
}

impl Admin {
    /// The consumer groups of all brokers, by id. An error of one broker is the call's.
    pub async fn list_groups(
        &self,
        filter: &GroupFilter,
    ) -> Result<Vec<GroupListing>, ClientError> {
        let mut groups = BTreeMap::new();
        for node in self.all_brokers().await? {
            let listed = self.run("listConsumerGroups", Target::Broker(node.id), async |attempt| {
                let version = attempt.connection.version_of::<ListGroupsRequest>(i16::MAX)?;
                let types = types_for(filter, version)?;
                let texts = |texts: &[String]| texts.iter().map(|word| text(word)).collect();
                let request = ListGroupsRequest::default()
                    .with_states_filter(texts(&filter.states))
                    .with_types_filter(texts(types));
                let response = attempt.call(request, version).await?;
                outcome(response.error_code, None)?;
                Ok(response.groups)
            });
            for group in listed.await? {
                let listing = GroupListing {
                    id: group.group_id.to_string(),
                    protocol_type: group.protocol_type.to_string(),
                    state: group.group_state.to_string(),
                    group_type: group.group_type.to_string(),
                };
                if listing.protocol_type == CONSUMER || listing.protocol_type.is_empty() {
                    groups.insert(listing.id.clone(), listing);
                }
            }
        }
        Ok(groups.into_values().collect())
    }

    /// All brokers that are known now; the error's text is that of Kafka's `listConsumerGroups`.
    async fn all_brokers(&self) -> Result<Vec<Node>, ClientError> {
        let read = self.metadata("findAllBrokers", &crate::cluster::Topics::None).await;
        let metadata = read.map_err(|error| match error.kind {
            ErrorKind::Timeout => {
                ClientError::new(ErrorKind::Kafka, "Failed to find brokers to send ListGroups")
            }
            _ => error,
        })?;
        Ok(metadata.nodes.values().cloned().collect())
    }

    /// One group. An id that no group has gives a dead group without members.
    pub async fn describe_group(&self, id: &str) -> Result<GroupDescription, ClientError> {
        let kind = CoordinatorKind::Group;
        self.at_coordinator("describeConsumerGroups", kind, id, async |attempt, node| {
            let request = DescribeGroupsRequest::default().with_groups(vec![group_id(id)]);
            let response = attempt.call(request, i16::MAX).await?;
            let missing = || ClientError::from_code(ErrorCode::UnknownServerError, None);
            let group = response.groups.into_iter().next().ok_or_else(missing)?;
            outcome(group.error_code, None)?;
            description(&group, node)
        })
        .await
    }

    /// Deletes an empty group with its offsets.
    pub async fn delete_group(&self, id: &str) -> Result<(), ClientError> {
        let kind = CoordinatorKind::Group;
        self.at_coordinator("deleteConsumerGroups", kind, id, async |attempt, _| {
            let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(id)]);
            let response = attempt.call(request, i16::MAX).await?;
            response.results.iter().try_for_each(|result| outcome(result.error_code, None))
        })
        .await
    }

    /// Offsets that the group committed; all of them unless partitions are named.
    pub async fn group_offsets(
        &self,
        id: &str,
        partitions: Option<&BTreeSet<TopicPartition>>,
    ) -> Result<Partitions<CommittedOffset>, ClientError> {
        let kind = CoordinatorKind::Group;
        self.at_coordinator("listConsumerGroupOffsets", kind, id, async |attempt, _| {
            let fetch = offsets::Fetch { group: id, partitions, is_stable_only: false };
            let fetched = fetch.call(&attempt.connection, attempt.limit).await?;
            let whole = fetched.into_iter().filter_map(|(name, offset)| match offset {
                Ok(Some(offset)) => Some(Ok((name, offset))),
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            });
            whole.collect()
        })
        .await
    }

    /// Commits offsets for a group without members; a result for each partition.
    pub async fn alter_group_offsets(
        &self,
        id: &str,
        wanted: &Partitions<CommittedOffset>,
    ) -> Result<Partitions<Result<(), ClientError>>, ClientError> {
        let kind = CoordinatorKind::Group;
        self.at_coordinator("alterConsumerGroupOffsets", kind, id, async |attempt, _| {
            let committer = Committer::nobody(id);
            let results = committer.commit(&attempt.connection, wanted, attempt.limit).await?;
            // A coordinator that moved or still loads says so for each partition.
            match results.values().find_map(|result| result.as_ref().err()) {
                Some(error) if is_of_coordinator(error) => Err(error.clone()),
                _ => Ok(results),
            }
        })
        .await
    }

    /// Deletes committed offsets of these partitions; a result for each.
    pub async fn delete_group_offsets(
        &self,
        id: &str,
        partitions: &BTreeSet<TopicPartition>,
    ) -> Result<Partitions<Result<(), ClientError>>, ClientError> {
        let kind = CoordinatorKind::Group;
        self.at_coordinator("offsetDelete", kind, id, async |attempt, _| {
            let mut topics: BTreeMap<&str, Vec<OffsetDeleteRequestPartition>> = BTreeMap::new();
            for name in partitions {
                let partition =
                    OffsetDeleteRequestPartition::default().with_partition_index(name.partition);
                topics.entry(&name.topic).or_default().push(partition);
            }
            let topics = topics.into_iter().map(|(name, partitions)| {
                OffsetDeleteRequestTopic::default()
                    .with_name(topic_name(name))
                    .with_partitions(partitions)
            });
            let request = OffsetDeleteRequest::default()
                .with_group_id(group_id(id))
                .with_topics(topics.collect());
            let response = attempt.call(request, i16::MAX).await?;
            outcome(response.error_code, None)?;
            let mut results = Partitions::new();
            for topic in &response.topics {
                for partition in &topic.partitions {
                    let name = TopicPartition::new(&*topic.name.0, partition.partition_index);
                    results.insert(name, outcome(partition.error_code, None));
                }
            }
            Ok(results)
        })
        .await
    }
}

/// Whether the error is the coordinator's, so that another attempt may find a better one.
fn is_of_coordinator(error: &ClientError) -> bool {
    matches!(
        error.code(),
        ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
    )
}

/// The types that are sent. A broker that cannot filter must not be taken for one that did.
/// Source: `ListGroupsRequest.Builder`.
fn types_for(filter: &GroupFilter, version: i16) -> Result<&[String], ClientError> {
    let refuse = |needed: i16, what: &str| {
        Err(ClientError::new(
            ErrorKind::UnsupportedVersion,
            format!(
                "The broker only supports ListGroups v{version}, but we need v{needed} or newer to request groups by {what}."
            ),
        ))
    };
    if version < STATES_FROM && !filter.states.is_empty() {
        return refuse(STATES_FROM, "states");
    }
    if version >= TYPES_FROM || filter.types.is_empty() {
        return Ok(&filter.types);
    }
    // Such a broker has classic groups alone.
    if filter.types.iter().any(|kind| kind == "Classic") {
        Ok(&[])
    } else {
        refuse(TYPES_FROM, "type")
    }
}

fn description(group: &DescribedGroup, node: &Node) -> Result<GroupDescription, ClientError> {
    let id = group.group_id.to_string();
    let protocol_type: &str = &group.protocol_type;
    if protocol_type != CONSUMER && !protocol_type.is_empty() {
        let text = format!("GroupId {id} is not a consumer group ({protocol_type}).");
        return Err(ClientError::new(ErrorKind::IllegalArgument, text));
    }
    let mut members = Vec::new();
    for member in &group.members {
        members.push(MemberDescription {
            id: member.member_id.to_string(),
            instance_id: member.group_instance_id.as_ref().map(StrBytes::to_string),
            client_id: member.client_id.to_string(),
            host: member.client_host.to_string(),
            assignment: assignment(&member.member_assignment)?,
        });
    }
    Ok(GroupDescription {
        id,
        state: group.group_state.to_string(),
        assignor: group.protocol_data.to_string(),
        coordinator: node.clone(),
        members,
    })
}

/// A member has none before the group's first assignment.
fn assignment(bytes: &Bytes) -> Result<Vec<TopicPartition>, ClientError> {
    if bytes.is_empty() { Ok(Vec::new()) } else { wire::read_assignment(bytes) }
}
