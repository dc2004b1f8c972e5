//! DescribeTransactions and ListTransactions. Source: KIP-664.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};

use crate::{
    coordinator::{Pending, Phase, Transaction, TransactionCoordinator},
    state::TransactionState,
};

/// Kafka's states that are never stored: known to filters, and nothing is ever in them.
const UNSTORED_STATES: [&str; 2] = ["Dead", "PrepareEpochFence"];

/// How many transactions wait to be tried again, as Kafka counts them. Source: `TransactionMarkerChannelManager`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Those with a marker for a partition whose leader is not there.
    pub unknown_destination: usize,
    /// Those whose last record, that all markers are written, could not be appended.
    pub log_append: usize,
}

/// What DescribeTransactions tells of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    /// The current producer.
    pub producer_id: ProducerId,
    /// Its epoch; `NONE` while the first one is being written.
    pub producer_epoch: ProducerEpoch,
    /// Where it stands.
    pub state: TransactionState,
    /// In milliseconds.
    pub timeout_ms: i32,
    /// When the transaction began; `NONE` when `Empty`, kept when complete.
    pub start: Timestamp,
    /// The partitions of the transaction; while markers are written, those that still wait for theirs.
    pub partitions: Vec<TopicPartition>,
}

/// A line of ListTransactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTransaction {
    /// Whose it is.
    pub transactional_id: Arc<str>,
    /// The current producer.
    pub producer_id: ProducerId,
    /// Where it stands.
    pub state: TransactionState,
}

/// Which transactions ListTransactions asks for; the default is all.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    /// In one of these states; none: in any. See `parse_states`.
    pub states: Option<BTreeSet<TransactionState>>,
    /// Of one of these producers; none given: of any.
    pub producer_ids: BTreeSet<ProducerId>,
    /// Begun longer ago than this (v1+; none where the request has a negative one). An id that had no transaction yet
    /// counts as begun in 1969, a quirk of Kafka's.
    pub running_longer_than: Option<Duration>,
}

/// Reads the states of a request: what to filter by, and the names that are no states, each once, for the response.
/// Names that are all unknown filter everything out.
pub fn parse_states(names: &[String]) -> (Option<BTreeSet<TransactionState>>, Vec<String>) {
    let state_of =
        |name: &str| TransactionState::ALL.into_iter().find(|state| state.name() == name);
    let states = names.iter().filter_map(|name| state_of(name)).collect();
    let is_unknown =
        |name: &&String| state_of(name).is_none() && !UNSTORED_STATES.contains(&name.as_str());
    let unknown: BTreeSet<&String> = names.iter().filter(is_unknown).collect();
    ((!names.is_empty()).then_some(states), unknown.into_iter().cloned().collect())
}

impl TransactionCoordinator {
    /// The state of an id, or the code for it: INVALID_REQUEST for an empty id, TRANSACTIONAL_ID_NOT_FOUND, or that
    /// this coordinator does not work.
    pub fn describe(&self, transactional_id: &str) -> Result<TransactionDescription, ErrorCode> {
        if transactional_id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        self.check_active()?;
        let transaction =
            self.transactions.get(transactional_id).ok_or(ErrorCode::TransactionalIdNotFound)?;
        let stored = &transaction.stored;
        Ok(TransactionDescription {
            producer_id: stored.producer_id,
            producer_epoch: transaction.epoch(),
            state: stored.state,
            timeout_ms: stored.timeout_ms,
            start: stored.start,
            partitions: transaction.open_partitions(),
        })
    }

    /// The ids that the filter lets through, in order. COORDINATOR_LOAD_IN_PROGRESS while loading: Kafka then refuses
    /// the whole request. A coordinator that resigned has none.
    pub fn list(
        &self,
        filter: &ListFilter,
        now: Timestamp,
    ) -> Result<Vec<ListedTransaction>, ErrorCode> {
        if self.phase == Phase::Loading {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        let chosen = self.transactions.iter().filter(|(_, one)| filter.includes(one, now));
        let listed = chosen.map(|(id, transaction)| ListedTransaction {
            transactional_id: id.clone(),
            producer_id: transaction.stored.producer_id,
            state: transaction.stored.state,
        });
        Ok(listed.collect())
    }

    /// How many ids this coordinator knows.
    pub fn transactional_id_count(&self) -> usize {
        self.transactions.len()
    }

    /// What waits to be tried again.
    pub fn queues(&self) -> Queues {
        self.queues
    }

    fn check_active(&self) -> Result<(), ErrorCode> {
        match self.phase {
            Phase::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            Phase::Active { .. } => Ok(()),
            Phase::Resigned => Err(ErrorCode::NotCoordinator),
        }
    }
}

impl ListFilter {
    fn includes(&self, transaction: &Transaction, now: Timestamp) -> bool {
        let stored = &transaction.stored;
        let ran = u128::try_from(now.0.saturating_sub(stored.start.0)).unwrap_or(0);
        self.states.as_ref().is_none_or(|states| states.contains(&stored.state))
            && (self.producer_ids.is_empty() || self.producer_ids.contains(&stored.producer_id))
            && self.running_longer_than.is_none_or(|least| ran > least.as_millis())
    }
}

impl Transaction {
    fn open_partitions(&self) -> Vec<TopicPartition> {
        match &self.pending {
            Some(Pending::Marking(markers)) => markers.waiting.iter().cloned().collect(),
            Some(Pending::Completing(_)) => Vec::new(),
            Some(Pending::Change(_) | Pending::Expiring) | None => self.stored.partitions.clone(),
        }
    }
}
