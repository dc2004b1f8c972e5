//! A consumer in its group: follows the membership, and commits what was read. Source: `ConsumerCoordinator`.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
    topic::TopicPartition,
};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::{Consumer, Reader, Rebalance, Start, Subscription};
use crate::{
    cluster::Cluster,
    config::OffsetReset,
    coordinator::{CoordinatorKind, look_up, on_own_connection},
    error::{ClientError, ErrorKind},
    group::{Generation, Group, Phase, partition_counts},
    metadata::{Metadata, Node},
    offsets::{CommittedOffset, Committer, Fetch, Partitions},
};

/// The part of a consumer that is about its group.
#[derive(Default)]
pub(super) struct Member {
    /// None until there is something to subscribe to.
    group: Option<Group>,
    /// The generation whose partitions are read.
    generation: Option<Arc<Generation>>,
    /// When to commit what was read; none where the application commits.
    commit_at: Option<Instant>,
    committing: Option<JoinHandle<()>>,
    /// What the application has not been told, at most `REBALANCES_MAX`.
    rebalances: VecDeque<Rebalance>,
}

/// Rebalances that are kept; of more the oldest are dropped.
const REBALANCES_MAX: usize = 100;
/// Longest wait for the last commit of a generation.
const LAST_COMMIT_LIMIT: Duration = Duration::from_secs(5);
const COORDINATOR_CLASS: &str = "org.apache.kafka.clients.consumer.internals.ConsumerCoordinator";

impl Member {
    /// Waits until the membership changes.
    pub(super) async fn changed(&mut self) {
        match &mut self.group {
            Some(group) => group.changed().await,
            None => std::future::pending().await,
        }
    }

    /// When the next commit is due.
    pub(super) fn commit_at(&self) -> Option<Instant> {
        self.generation.as_ref().and(self.commit_at)
    }

    fn note(&mut self, rebalance: Rebalance) {
        if self.rebalances.len() == REBALANCES_MAX {
            self.rebalances.pop_front();
        }
        self.rebalances.push_back(rebalance);
    }

    pub(super) fn take_rebalances(&mut self) -> Vec<Rebalance> {
        self.rebalances.drain(..).collect()
    }

    fn coordinator(&mut self) -> Option<Node> {
        self.group.as_mut()?.membership().coordinator
    }
}

impl Consumer {
    /// Whether the partitions are the group's to give.
    pub(super) fn is_member(&self) -> bool {
        self.config.group.is_some() && !matches!(self.subscription, Subscription::Assigned)
    }

    /// Joins with the topics, or tells the group of other ones; a leader sees that topics grew.
    pub(super) fn follow_in_group(&mut self, topics: BTreeSet<String>, metadata: &Metadata) {
        let Some(config) = &self.config.group else { return };
        let Some(group) = &self.member.group else {
            self.member.group = Some(Group::join(&self.cluster, config, topics));
            return;
        };
        let shared_out =
            self.member.generation.as_ref().and_then(|current| current.partition_counts.as_ref());
        let has_changed = shared_out.is_some_and(|before| {
            let now = partition_counts(metadata);
            // A topic that cannot be read at the moment is no reason.
            topics
                .iter()
                .any(|topic| now.contains_key(topic) && before.get(topic) != now.get(topic))
        });
        group.subscribe(topics);
        if has_changed {
            group.share_out_again();
        }
    }

    /// Takes the partitions of a new generation, and gives up those of an old one.
    pub(super) async fn keep_membership(&mut self) -> Result<(), ClientError> {
        let Some(group) = &mut self.member.group else { return Ok(()) };
        group.note_poll();
        match group.membership().phase {
            Phase::Failed(error) => Err(error),
            Phase::Joining => {
                if self.member.generation.take().is_some() {
                    self.give_up_partitions();
                }
                Ok(())
            }
            Phase::Stable(generation) => {
                let is_current = self
                    .member
                    .generation
                    .as_ref()
                    .is_some_and(|current| Arc::ptr_eq(current, &generation));
                if !is_current {
                    self.take_partitions(generation);
                }
                Ok(())
            }
            Phase::Rebalancing => {
                self.commit_last().await;
                self.member.generation = None;
                self.give_up_partitions();
                if let Some(group) = &self.member.group {
                    group.rejoin();
                }
                Ok(())
            }
        }
    }

    fn give_up_partitions(&mut self) {
        if !self.readers.is_empty() {
            self.member.note(Rebalance::Revoked(self.assignment()));
        }
        self.readers.clear();
        self.records.clear();
    }

    fn take_partitions(&mut self, generation: Arc<Generation>) {
        self.give_up_partitions();
        let start = self.reset_start();
        for partition in &generation.assignment {
            let reader = Reader { awaits_committed: true, ..Reader::new(start) };
            self.readers.insert(partition.clone(), reader);
        }
        self.member.note(Rebalance::Assigned(generation.assignment.clone()));
        debug!(generation = generation.id, partitions = generation.assignment.len(), "assigned");
        self.member.generation = Some(generation);
        let interval = self.config.group.as_ref().and_then(|group| group.auto_commit_interval);
        self.member.commit_at = interval.map(|interval| clock::now() + interval);
        self.wants_metadata = true;
    }

    /// Asks the group where it stands in partitions that are new.
    pub(super) async fn look_up_committed(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let waiting = self.readers.iter().filter(|(_, reader)| reader.awaits_committed);
        let wanted: BTreeSet<TopicPartition> = waiting.map(|(name, _)| name.clone()).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let fetched = match self.fetch_committed(&wanted, deadline).await {
            Ok(fetched) => fetched,
            Err(error) if may_come_right(&error) => {
                debug!(%error, "committed offsets not read");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut undefined = Vec::new();
        for (partition, committed) in fetched {
            let Some(reader) = self.readers.get_mut(&partition) else { continue };
            match committed {
                Ok(Some(committed)) => {
                    reader.next = Some(Offset(committed.offset));
                    reader.epoch = LeaderEpoch(committed.leader_epoch);
                    reader.awaits_committed = false;
                }
                Ok(None) if self.config.offset_reset == OffsetReset::None => {
                    undefined.push(partition.to_string());
                }
                Ok(None) => reader.awaits_committed = false,
                Err(error) if may_come_right(&error) => {
                    debug!(%error, %partition, "committed offset not read");
                }
                Err(error) => return Err(error),
            }
        }
        if undefined.is_empty() {
            return Ok(());
        }
        Err(ClientError::new(
            ErrorKind::Kafka,
            format!(
                "Undefined offset with no reset policy for partitions: [{}]",
                undefined.join(", ")
            ),
        ))
    }

    async fn fetch_committed(
        &mut self,
        wanted: &BTreeSet<TopicPartition>,
        deadline: Instant,
    ) -> Result<Partitions<Result<Option<CommittedOffset>, ClientError>>, ClientError> {
        let Some(config) = &self.config.group else { return Ok(Partitions::new()) };
        let id = config.id.clone();
        let request_deadline = clock::now() + self.config.connection.request_timeout;
        let node = match self.member.coordinator() {
            Some(node) => node,
            None => {
                let kind = CoordinatorKind::Group;
                look_up(&self.cluster, kind, &id, deadline.min(request_deadline)).await?
            }
        };
        let connection = self.cluster.connect(&on_own_connection(&node)).await?;
        let fetch = Fetch { group: &id, partitions: Some(wanted), is_stable_only: true };
        fetch.call(&connection, self.config.connection.request_timeout).await
    }

    /// Offsets that the group committed for these partitions.
    pub async fn committed(
        &mut self,
        partitions: &BTreeSet<TopicPartition>,
    ) -> Result<Partitions<Option<CommittedOffset>>, ClientError> {
        let deadline = clock::now() + self.config.connection.default_api_timeout;
        let mut tries = 0;
        loop {
            let fetched = self.fetch_committed(partitions, deadline).await;
            let whole: Result<Partitions<_>, _> = fetched.and_then(|fetched| {
                fetched.into_iter().map(|(name, offset)| Ok((name, offset?))).collect()
            });
            match whole {
                Err(error) if may_come_right(&error) && clock::now() < deadline => {
                    self.cluster.back_off(tries).await;
                    tries += 1;
                }
                whole => return whole,
            }
        }
    }

    /// Commits in the background what was handed out, when it is time.
    pub(super) fn commit_when_due(&mut self) {
        let is_due = self.member.commit_at().is_some_and(|at| clock::now() >= at);
        if !is_due {
            return;
        }
        let Some(interval) =
            self.config.group.as_ref().and_then(|group| group.auto_commit_interval)
        else {
            return;
        };
        self.member.commit_at = Some(clock::now() + interval);
        let is_busy = self.member.committing.as_ref().is_some_and(|commit| !commit.is_finished());
        let offsets = self.positions();
        if is_busy || offsets.is_empty() {
            return;
        }
        let Some(commit) = self.new_commit(offsets, interval) else { return };
        let prefix = self.config.connection.log_prefix.clone();
        self.member.committing = Some(tokio::spawn(async move {
            let class = COORDINATOR_CLASS;
            if let Err(error) = commit.run().await {
                warn!(class, "{prefix}Asynchronous auto-commit of offsets failed: {error}");
            }
        }));
    }

    /// Commits at the end of a generation, unless the application does.
    async fn commit_last(&mut self) {
        if self.member.commit_at().is_none() {
            return;
        }
        let offsets = self.positions();
        let Some(commit) = self.new_commit(offsets, LAST_COMMIT_LIMIT) else { return };
        if let Err(error) = commit.run().await {
            let (class, prefix) = (COORDINATOR_CLASS, &self.config.connection.log_prefix);
            warn!(class, "{prefix}Synchronous auto-commit of offsets failed: {error}");
        }
    }

    /// Commits what was handed out.
    pub async fn commit(&mut self) -> Result<(), ClientError> {
        let offsets = self.positions();
        self.commit_offsets(offsets).await
    }

    /// Commits these offsets, and waits for it.
    pub async fn commit_offsets(
        &mut self,
        offsets: Partitions<CommittedOffset>,
    ) -> Result<(), ClientError> {
        let limit = self.config.connection.default_api_timeout;
        let without_group = "To use the group management or offset commit APIs, you must provide a valid group.id in the consumer configuration.";
        match self.new_commit(offsets, limit) {
            Some(commit) => commit.run().await,
            None => Err(ClientError::from_code(
                ErrorCode::InvalidGroupId,
                Some(without_group.to_owned()),
            )),
        }
    }

    fn new_commit(
        &mut self,
        offsets: Partitions<CommittedOffset>,
        limit: Duration,
    ) -> Option<Commit> {
        let config = self.config.group.as_ref()?;
        let committer = match (&self.member.group, &self.member.generation) {
            (Some(group), Some(generation)) => group.committer(generation),
            // Partitions that were assigned by hand are nobody's.
            _ => Committer::nobody(&config.id),
        };
        let deadline = clock::now() + limit;
        let coordinator = self.member.coordinator();
        Some(Commit { cluster: self.cluster.clone(), committer, coordinator, offsets, deadline })
    }

    /// Where reading stands in each partition, as far as it is known.
    pub(super) fn positions(&self) -> Partitions<CommittedOffset> {
        let mut waiting = BTreeMap::new();
        for record in &self.records {
            waiting.entry(&record.partition).or_insert(record.offset);
        }
        let readers = self.readers.iter().filter(|(_, reader)| !reader.awaits_committed);
        let positions = readers.filter_map(|(partition, reader)| {
            let offset = waiting.get(partition).copied().or(reader.next)?;
            let leader_epoch = reader.epoch.0;
            let metadata = String::new();
            Some((partition.clone(), CommittedOffset { offset: offset.0, leader_epoch, metadata }))
        });
        positions.collect()
    }

    /// Where partitions begin that nothing is committed for.
    pub(super) fn reset_start(&self) -> Start {
        match self.config.offset_reset {
            OffsetReset::Earliest => Start::Earliest,
            OffsetReset::Latest | OffsetReset::None => Start::Latest,
        }
    }

    /// Commits what was handed out, unless the application does that, and leaves the group.
    pub async fn close(mut self) {
        self.leave().await;
    }

    /// Ends the membership, if there is one.
    pub(super) async fn leave(&mut self) {
        if let Some(committing) = self.member.committing.take() {
            // What it failed of it has logged; the last commit covers it.
            let _ = committing.await;
        }
        if self.member.generation.is_some() {
            self.commit_last().await;
        }
        self.member.generation = None;
        if let Some(group) = self.member.group.take() {
            group.leave().await;
        }
    }
}

/// Whether waiting may cure it.
fn may_come_right(error: &ClientError) -> bool {
    error.is_retriable() || error.kind == ErrorKind::Timeout
}

/// A commit that is to be made.
struct Commit {
    cluster: Cluster,
    committer: Committer,
    coordinator: Option<Node>,
    offsets: Partitions<CommittedOffset>,
    deadline: Instant,
}

impl Commit {
    /// Tries until it is done, fails for good, or the time is over.
    async fn run(mut self) -> Result<(), ClientError> {
        if self.offsets.is_empty() {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            let error = match self.attempt().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if !may_come_right(&error) || clock::now() >= self.deadline {
                return Err(in_words(error));
            }
            if error.code() != ErrorCode::CoordinatorLoadInProgress {
                self.coordinator = None;
            }
            self.cluster.back_off(tries).await;
            tries += 1;
        }
    }

    async fn attempt(&mut self) -> Result<(), ClientError> {
        let node = match &self.coordinator {
            Some(node) => node.clone(),
            None => {
                let group = &self.committer.group;
                look_up(&self.cluster, CoordinatorKind::Group, group, self.deadline).await?
            }
        };
        self.coordinator = Some(node.clone());
        let connection = self.cluster.connect(&on_own_connection(&node)).await?;
        let left = self.deadline.saturating_duration_since(clock::now());
        let limit = self.cluster.config().request_timeout.min(left);
        let results = self.committer.commit(&connection, &self.offsets, limit).await?;
        results.into_values().collect()
    }
}

/// Source: `CommitFailedException`.
fn in_words(error: ClientError) -> ClientError {
    match error.code() {
        ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => ClientError::from_code(
            error.code(),
            Some("Offset commit cannot be completed since the consumer is not part of an active group for auto partition assignment; it is likely that the consumer was kicked out of the group.".to_owned()),
        ),
        _ => error,
    }
}
