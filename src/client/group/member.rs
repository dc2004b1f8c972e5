//! The task of a group's member: joins, shares out partitions when it leads, and sends heartbeats.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{clock, error_code::ErrorCode};
use kafka_protocol::{
    messages::{
        GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
        SyncGroupRequest, join_group_request::JoinGroupRequestProtocol,
        leave_group_request::MemberIdentity, sync_group_request::SyncGroupRequestAssignment,
    },
    protocol::StrBytes,
};
use tokio::{
    sync::{mpsc, watch},
    time::sleep_until,
};
use tracing::{info, warn};

use super::{
    Generation, GroupConfig, Membership, Phase,
    assignor::{Assignor, Subscriber},
    wire,
};
use crate::{
    admin::{outcome, text},
    cluster::{AutoCreate, Cluster, Topics},
    connection::Connection,
    coordinator::{CoordinatorKind, look_up, on_own_connection},
    error::{ClientError, ErrorKind},
    metadata::Node,
};

/// The task's state; what it tells is in `publish`.
pub(super) struct Member {
    pub(super) cluster: Cluster,
    pub(super) config: GroupConfig,
    pub(super) publish: watch::Sender<Membership>,
    pub(super) topics: watch::Receiver<BTreeSet<String>>,
    pub(super) last_poll: watch::Receiver<Instant>,
    pub(super) ready: mpsc::Receiver<()>,
}

/// How much longer than a rebalance may take its answer is waited for. Source: `JOIN_GROUP_TIMEOUT_LAPSE`.
const JOIN_GRACE: Duration = Duration::from_secs(5);
const PROTOCOL_TYPE: &str = "consumer";
/// Versions from which a static member names itself. Source: KIP-345.
const JOIN_INSTANCE_FROM: i16 = 5;
const SYNC_INSTANCE_FROM: i16 = 3;
const HEARTBEAT_INSTANCE_FROM: i16 = 3;
const LEAVE_INSTANCE_FROM: i16 = 3;

/// Why a generation ends, but for a fault.
enum End {
    /// The consumer has given its partitions up.
    Ready,
    /// The group gave the member up.
    Lost,
    /// The application does not poll any more, so the member left.
    Silent,
    /// The consumer is gone.
    Closed,
}

/// What to do after a join that failed.
enum Retry {
    AtOnce,
    Later,
    Never,
}

impl Member {
    pub(super) async fn run(mut self) {
        loop {
            let generation = match self.join().await {
                Ok(generation) => Arc::new(generation),
                Err(error) => return self.tell(Phase::Failed(error)),
            };
            self.tell(Phase::Stable(generation.clone()));
            match self.keep_alive(&generation).await {
                Ok(End::Ready | End::Lost) => self.tell(Phase::Joining),
                Ok(End::Closed) => return,
                Ok(End::Silent) => {
                    self.tell(Phase::Joining);
                    // The next poll begins anew.
                    if self.last_poll.changed().await.is_err() {
                        return;
                    }
                }
                Err(error) => return self.tell(Phase::Failed(error)),
            }
        }
    }

    fn tell(&self, phase: Phase) {
        self.publish.send_modify(|membership| membership.phase = phase);
    }

    fn member(&self) -> String {
        self.publish.borrow().member.clone()
    }

    fn set_member(&self, id: &str) {
        self.publish.send_if_modified(|membership| {
            membership.member = id.to_owned();
            // Nobody waits for the id alone.
            false
        });
    }

    fn set_coordinator(&self, node: Option<Node>) {
        self.publish.send_if_modified(|membership| {
            membership.coordinator = node;
            false
        });
    }

    /// The connection that is for the coordinator alone.
    async fn connect(&self) -> Result<Connection, ClientError> {
        let known = self.publish.borrow().coordinator.clone();
        let node = match known {
            Some(node) => node,
            None => {
                let deadline = clock::now() + self.cluster.config().request_timeout;
                let kind = CoordinatorKind::Group;
                let node = look_up(&self.cluster, kind, &self.config.id, deadline).await?;
                self.set_coordinator(Some(node.clone()));
                node
            }
        };
        self.cluster.connect(&on_own_connection(&node)).await
    }

    /// Joins until there is a generation; the error is one that trying again does not cure.
    async fn join(&mut self) -> Result<Generation, ClientError> {
        let mut tries = 0;
        loop {
            // What was said before the join is in it.
            while self.ready.try_recv().is_ok() {}
            let error = match self.try_join().await {
                Ok(generation) => return Ok(generation),
                Err(error) => error,
            };
            tracing::debug!(group = self.config.id, %error, "did not join");
            match self.after(&error) {
                Retry::AtOnce => {}
                Retry::Later => {
                    self.cluster.back_off(tries).await;
                    tries += 1;
                }
                Retry::Never => return Err(error),
            }
        }
    }

    /// What an error of a join or of its sync changes. Sources: `JoinGroupResponseHandler`, `SyncGroupResponseHandler`.
    fn after(&self, error: &ClientError) -> Retry {
        if matches!(error.kind, ErrorKind::Disconnected | ErrorKind::Timeout) {
            self.set_coordinator(None);
            return Retry::Later;
        }
        match error.code() {
            ErrorCode::MemberIdRequired | ErrorCode::RebalanceInProgress => Retry::AtOnce,
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => {
                self.set_member("");
                Retry::AtOnce
            }
            ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator => {
                self.set_coordinator(None);
                Retry::Later
            }
            _ if error.is_retriable() => Retry::Later,
            _ => Retry::Never,
        }
    }

    async fn try_join(&mut self) -> Result<Generation, ClientError> {
        let connection = self.connect().await?;
        let topics = self.topics.borrow_and_update().clone();
        let joined = self.send_join(&connection, &topics).await?;
        self.set_member(&joined.member_id);
        let protocol = joined.protocol_name.clone().unwrap_or_default();
        let mut partition_counts = None;
        let mut assignments = Vec::new();
        if joined.leader == joined.member_id && !joined.skip_assignment {
            let assignor = Assignor::named(&protocol).ok_or_else(|| {
                ClientError::new(
                    ErrorKind::Kafka,
                    format!("Coordinator selected invalid assignment protocol: {protocol}"),
                )
            })?;
            let subscribers = subscribers(&joined)?;
            let counts = self.partition_counts(&subscribers).await?;
            let shares = assignor.assign(&counts, subscribers);
            assignments.extend(shares.iter().map(|(member, partitions)| {
                SyncGroupRequestAssignment::default()
                    .with_member_id(text(member))
                    .with_assignment(wire::write_assignment(partitions))
            }));
            partition_counts = Some(counts);
        }
        let version = connection.version_of::<SyncGroupRequest>(i16::MAX)?;
        let request = SyncGroupRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(joined.generation_id)
            .with_member_id(joined.member_id.clone())
            .with_group_instance_id(self.instance(version >= SYNC_INSTANCE_FROM))
            .with_protocol_type(Some(text(PROTOCOL_TYPE)))
            .with_protocol_name(Some(protocol))
            .with_assignments(assignments);
        let limit = self.cluster.config().request_timeout.max(self.rebalance_limit());
        let synced = connection.call_as(request, version, limit).await?;
        outcome(synced.error_code, None)?;
        Ok(Generation {
            id: joined.generation_id,
            member: joined.member_id.to_string(),
            assignment: wire::read_assignment(&synced.assignment)?,
            partition_counts,
        })
    }

    /// How long the answer to a join may take: the coordinator waits for the other members.
    fn rebalance_limit(&self) -> Duration {
        self.config.poll_interval_max.saturating_add(JOIN_GRACE)
    }

    async fn send_join(
        &self,
        connection: &Connection,
        topics: &BTreeSet<String>,
    ) -> Result<JoinGroupResponse, ClientError> {
        let version = connection.version_of::<JoinGroupRequest>(i16::MAX)?;
        let protocols = self.config.assignors.iter().map(|assignor| {
            JoinGroupRequestProtocol::default()
                .with_name(StrBytes::from_static_str(assignor.name()))
                .with_metadata(wire::write_subscription(topics))
        });
        let milliseconds = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        let request = JoinGroupRequest::default()
            .with_group_id(self.group_id())
            .with_session_timeout_ms(milliseconds(self.config.session_timeout))
            .with_rebalance_timeout_ms(milliseconds(self.config.poll_interval_max))
            .with_member_id(text(&self.member()))
            .with_group_instance_id(self.instance(version >= JOIN_INSTANCE_FROM))
            .with_protocol_type(text(PROTOCOL_TYPE))
            .with_protocols(protocols.collect());
        let limit = self.cluster.config().request_timeout.max(self.rebalance_limit());
        let joined = connection.call_as(request, version, limit).await?;
        if ErrorCode::from_code(joined.error_code) == ErrorCode::MemberIdRequired {
            self.set_member(&joined.member_id);
        }
        outcome(joined.error_code, None)?;
        Ok(joined)
    }

    /// How many partitions the topics have that somebody wants.
    async fn partition_counts(
        &self,
        subscribers: &[Subscriber],
    ) -> Result<BTreeMap<String, i32>, ClientError> {
        let wanted: BTreeSet<&String> =
            subscribers.iter().flat_map(|subscriber| &subscriber.topics).collect();
        let names = wanted.into_iter().cloned().collect();
        let topics = Topics::Named(names, AutoCreate::Forbidden);
        let deadline = clock::now() + self.cluster.config().request_timeout;
        let metadata = self.cluster.refresh(&topics, deadline).await?;
        Ok(super::partition_counts(&metadata))
    }

    fn group_id(&self) -> GroupId {
        GroupId(text(&self.config.id))
    }

    fn instance(&self, is_known: bool) -> Option<StrBytes> {
        self.config.instance_id.as_deref().filter(|_| is_known).map(text)
    }

    /// Sends heartbeats until the generation ends.
    async fn keep_alive(&mut self, generation: &Generation) -> Result<End, ClientError> {
        let mut next = clock::now() + self.config.heartbeat_interval;
        let mut heard = clock::now();
        loop {
            tokio::select! {
                ready = self.ready.recv() => {
                    return Ok(if ready.is_some() { End::Ready } else { End::Closed });
                }
                changed = self.topics.changed() => match changed {
                    Ok(()) => self.tell(Phase::Rebalancing),
                    Err(_) => return Ok(End::Closed),
                },
                () = sleep_until(next.into()) => {
                    if self.is_silent() {
                        self.leave_silently(generation).await;
                        return Ok(End::Silent);
                    }
                    match self.heartbeat(generation).await {
                        Ok(()) => heard = clock::now(),
                        Err(error) => match self.after_heartbeat(&error, &mut heard) {
                            Some(true) => {}
                            Some(false) => return Ok(End::Lost),
                            None => return Err(error),
                        },
                    }
                    let is_well = heard + self.config.heartbeat_interval > clock::now();
                    let pause = if is_well {
                        self.config.heartbeat_interval
                    } else {
                        self.cluster.config().retry_backoff
                    };
                    next = clock::now() + pause;
                }
            }
        }
    }

    fn is_silent(&self) -> bool {
        clock::now().saturating_duration_since(*self.last_poll.borrow())
            > self.config.poll_interval_max
    }

    /// A member whose application hangs would hold its partitions for nothing. Source: `AbstractCoordinator.HeartbeatThread`.
    async fn leave_silently(&mut self, generation: &Generation) {
        self.last_poll.mark_unchanged();
        let class = "org.apache.kafka.clients.consumer.internals.ConsumerCoordinator";
        let prefix = &self.cluster.config().log_prefix;
        warn!(
            class,
            "{prefix}consumer poll timeout has expired. This means the time between subsequent calls to poll() was longer than the configured max.poll.interval.ms, which typically implies that the poll loop is spending too much time processing messages. You can address this either by increasing max.poll.interval.ms or by reducing the maximum size of batches returned in poll() with max.poll.records."
        );
        let coordinator = self.publish.borrow().coordinator.clone();
        if let (Some(node), None) = (coordinator, &self.config.instance_id) {
            let node = on_own_connection(&node);
            let left = leave(&self.cluster, &node, &self.config.id, &generation.member).await;
            if let Err(error) = left {
                info!(%error, "could not leave the group");
            }
        }
        self.set_member("");
    }

    async fn heartbeat(&self, generation: &Generation) -> Result<(), ClientError> {
        let connection = self.connect().await?;
        let version = connection.version_of::<HeartbeatRequest>(i16::MAX)?;
        let request = HeartbeatRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(generation.id)
            .with_member_id(text(&generation.member))
            .with_group_instance_id(self.instance(version >= HEARTBEAT_INSTANCE_FROM));
        let limit = self.cluster.config().request_timeout.min(self.config.session_timeout);
        let response = connection.call_as(request, version, limit).await?;
        outcome(response.error_code, None)
    }

    /// Whether the member is still one; none when the error is for good. Source: `HeartbeatResponseHandler`.
    fn after_heartbeat(&self, error: &ClientError, heard: &mut Instant) -> Option<bool> {
        match error.code() {
            ErrorCode::RebalanceInProgress => {
                *heard = clock::now();
                let is_told = matches!(self.publish.borrow().phase, Phase::Rebalancing);
                if !is_told {
                    self.tell(Phase::Rebalancing);
                }
                Some(true)
            }
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => {
                self.set_member("");
                Some(false)
            }
            ErrorCode::FencedInstanceId | ErrorCode::GroupAuthorizationFailed => None,
            _ if error.kind == ErrorKind::UnsupportedVersion => None,
            // The coordinator moved or is gone: the membership holds for as long as the session.
            _ => {
                self.set_coordinator(None);
                Some(true)
            }
        }
    }
}

fn subscribers(joined: &JoinGroupResponse) -> Result<Vec<Subscriber>, ClientError> {
    let mut subscribers = Vec::new();
    for member in &joined.members {
        subscribers.push(Subscriber {
            member: member.member_id.to_string(),
            instance: member.group_instance_id.as_ref().map(StrBytes::to_string),
            topics: wire::read_subscription(&member.metadata)?.into_iter().collect(),
        });
    }
    Ok(subscribers)
}

/// Takes a member out of its group.
pub(super) async fn leave(
    cluster: &Cluster,
    node: &Node,
    group: &str,
    member: &str,
) -> Result<(), ClientError> {
    let connection = cluster.connect(node).await?;
    let version = connection.version_of::<LeaveGroupRequest>(i16::MAX)?;
    let request = LeaveGroupRequest::default().with_group_id(GroupId(text(group)));
    let request = if version >= LEAVE_INSTANCE_FROM {
        request.with_members(vec![MemberIdentity::default().with_member_id(text(member))])
    } else {
        request.with_member_id(text(member))
    };
    let limit = cluster.config().request_timeout;
    let response = connection.call_as(request, version, limit).await?;
    outcome(response.error_code, None)?;
    response.members.iter().try_for_each(|member| outcome(member.error_code, None))
}
