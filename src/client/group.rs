//! A consumer's membership in a group: what the consumer sees of it, and the task that keeps it.
//!
//! The task joins, sends heartbeats and notices rebalances. The consumer gives up its partitions before each new
//! join (the eager protocol), commits, and says when it is ready. Sources: `AbstractCoordinator`,
//! `ConsumerCoordinator`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{clock, error_code::ErrorCode, topic::TopicPartition};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    cluster::Cluster,
    coordinator::on_own_connection,
    error::ClientError,
    metadata::{Metadata, Node, Topic},
    offsets::Committer,
};

pub mod assignor;
mod member;
pub(crate) mod wire;

use self::{assignor::Assignor, member::Member};

/// Settings of a member.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// `group.id`.
    pub id: String,
    /// `group.instance.id`: the member is static and does not leave when it closes.
    pub instance_id: Option<String>,
    /// Without a heartbeat for so long the group gives the member up.
    pub session_timeout: Duration,
    /// Time between heartbeats.
    pub heartbeat_interval: Duration,
    /// Longest time between two polls; the time that a rebalance may take as well.
    pub poll_interval_max: Duration,
    /// Ways to share out partitions, the preferred one first.
    pub assignors: Vec<Assignor>,
    /// Time between commits of what was read; none when the application commits.
    pub auto_commit_interval: Option<Duration>,
}

/// A member's place in one generation of its group.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) id: i32,
    pub(crate) member: String,
    pub(crate) assignment: Vec<TopicPartition>,
    /// Partitions of each topic when the leader shared them out; none for the others.
    pub(crate) partition_counts: Option<BTreeMap<String, i32>>,
}

/// Where the membership stands.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Outside a generation; nothing may be read. Next: `Stable`, `Failed`.
    Joining,
    /// In a generation. Next: `Rebalancing`; `Joining` when the group gave the member up; `Failed`.
    Stable(Arc<Generation>),
    /// The group, or the subscription, wants a new generation: the consumer commits, gives its partitions up, and
    /// says `rejoin`. Next: `Joining`, `Failed`.
    Rebalancing,
    /// For good. Nothing comes after it.
    Failed(ClientError),
}

/// What the task tells.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) phase: Phase,
    /// Empty until the coordinator gave one.
    pub(crate) member: String,
    pub(crate) coordinator: Option<Node>,
}

/// The consumer's side. Dropping it ends the task.
pub(crate) struct Group {
    cluster: Cluster,
    pub(crate) config: GroupConfig,
    membership: watch::Receiver<Membership>,
    topics: watch::Sender<BTreeSet<String>>,
    polled: watch::Sender<Instant>,
    rejoin: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

/// Longest wait for a goodbye.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

impl Group {
    /// Joins, in a task of its own.
    pub(crate) fn join(cluster: &Cluster, config: &GroupConfig, topics: BTreeSet<String>) -> Group {
        let membership =
            Membership { phase: Phase::Joining, member: String::new(), coordinator: None };
        let (publish, membership) = watch::channel(membership);
        let (topics, wanted) = watch::channel(topics);
        let (polled, last_poll) = watch::channel(clock::now());
        // One is enough: it says "go on", however often.
        let (rejoin, ready) = mpsc::channel(1);
        let member = Member {
            cluster: cluster.clone(),
            config: config.clone(),
            publish,
            topics: wanted,
            last_poll,
            ready,
        };
        let task = tokio::spawn(member.run());
        let (cluster, config) = (cluster.clone(), config.clone());
        Group { cluster, config, membership, topics, polled, rejoin, task }
    }

    /// Where the membership stands now.
    pub(crate) fn membership(&mut self) -> Membership {
        self.membership.borrow_and_update().clone()
    }

    /// Waits until the membership is another than when it was last looked at.
    pub(crate) async fn changed(&mut self) {
        if self.membership.changed().await.is_err() {
            // The task ended, so nothing changes any more.
            std::future::pending::<()>().await;
        }
    }

    /// Says that the application is alive.
    pub(crate) fn note_poll(&self) {
        self.polled.send_replace(clock::now());
    }

    /// Wants these topics from now on; another set than before leads to a rebalance.
    pub(crate) fn subscribe(&self, topics: BTreeSet<String>) {
        self.topics.send_if_modified(|current| {
            let is_new = *current != topics;
            *current = topics;
            is_new
        });
    }

    /// Asks for a rebalance with the same topics: their partitions changed.
    pub(crate) fn share_out_again(&self) {
        self.topics.send_modify(|_| {});
    }

    /// All partitions are given up: the next generation may come.
    pub(crate) fn rejoin(&self) {
        // A full channel says it already; a closed one that the task ended.
        let _ = self.rejoin.try_send(());
    }

    /// Who commits, in the present generation.
    pub(crate) fn committer(&self, generation: &Generation) -> Committer {
        Committer {
            group: self.config.id.clone(),
            generation: generation.id,
            member: generation.member.clone(),
            instance: self.config.instance_id.clone(),
        }
    }

    /// Ends the task, and leaves the group unless the member is static.
    pub(crate) async fn leave(mut self) {
        self.task.abort();
        let membership = self.membership();
        let Some(coordinator) = membership.coordinator else { return };
        if membership.member.is_empty() || self.config.instance_id.is_some() {
            return;
        }
        let is_waiting = matches!(membership.phase, Phase::Joining);
        // A join that waits would hold up the goodbye behind it.
        let node = if is_waiting { coordinator } else { on_own_connection(&coordinator) };
        let leaving = member::leave(&self.cluster, &node, &self.config.id, &membership.member);
        match tokio::time::timeout(LEAVE_LIMIT, leaving).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "could not leave the group"),
            Err(_) => tracing::debug!("no answer to leaving the group"),
        }
    }
}

/// How many partitions each topic has that could be read.
pub(crate) fn partition_counts(metadata: &Metadata) -> BTreeMap<String, i32> {
    let known = metadata.topics.values().filter(|topic| topic.error == ErrorCode::None);
    let count = |topic: &Topic| i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    known.map(|topic| (topic.name.clone(), count(topic))).collect()
}

impl Drop for Group {
    fn drop(&mut self) {
        self.task.abort();
    }
}
