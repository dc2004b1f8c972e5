//! What requests lead to: producers, partitions, and the ends of transactions.

use std::{collections::HashSet, sync::Arc, time::Duration};

use common::{
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};

use crate::{
    action::{Action, AllocationId},
    coordinator::{Change, Then, Transaction, TransactionCoordinator, no_producer},
    event::{Now, ReplyTo, TransactionResult},
    records::{NAME_BYTES_MAX, TransactionValue},
    state::TransactionState,
};

/// The last epoch that a client may get: the one above it is for fencing its holder.
/// Source: `TransactionMetadata.isEpochExhausted`.
const EPOCH_MAX: ProducerEpoch = ProducerEpoch(i16::MAX - 1);

/// A producer id and its epoch.
type Producer = (ProducerId, ProducerEpoch);

/// An InitProducerId request, for it may have to wait for a producer id.
#[derive(Debug)]
pub(crate) struct InitProducerId {
    pub(crate) transactional_id: Arc<str>,
    pub(crate) timeout_ms: i32,
    pub(crate) expected: Option<Producer>,
    pub(crate) reply: ReplyTo,
}

/// What InitProducerId leads to.
enum Init {
    Refuse(ErrorCode),
    /// The ongoing transaction is aborted first.
    Fence,
    /// The epochs of the producer id are used up.
    AllocateProducerId,
    Become {
        producer: Producer,
        last: Producer,
    },
}

impl TransactionCoordinator {
    /// Gives a client its producer. `fresh` is a producer id allocated for this request; what is not needed is lost,
    /// as in Kafka: another request may have been faster.
    pub(crate) fn init_producer_id(
        &mut self,
        request: InitProducerId,
        fresh: Option<ProducerId>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let InitProducerId { timeout_ms, expected, reply, .. } = request;
        let id = request.transactional_id.clone();
        if id.is_empty() || id.len() > NAME_BYTES_MAX {
            return actions.push(no_producer(reply, ErrorCode::InvalidRequest));
        }
        let timeout = u64::try_from(timeout_ms).map(Duration::from_millis).unwrap_or_default();
        if timeout.is_zero() || timeout > self.config.timeout_max {
            return actions.push(no_producer(reply, ErrorCode::InvalidTransactionTimeout));
        }
        if !self.transactions.contains_key(&id) {
            let Some(producer_id) = fresh else { return self.allocate(request, actions) };
            let transaction = Transaction::unwritten(producer_id, timeout_ms, now);
            self.transactions.insert(id.clone(), transaction);
        }
        match self.transactions[&id].init(expected, fresh) {
            Init::Refuse(code) => actions.push(no_producer(reply, code)),
            Init::Fence => self.fence(&id, Some(reply), now, actions),
            Init::AllocateProducerId => self.allocate(request, actions),
            Init::Become { producer, last } => {
                let next = TransactionValue {
                    producer_id: producer.0,
                    producer_epoch: producer.1,
                    timeout_ms,
                    state: TransactionState::Empty,
                    partitions: Vec::new(),
                    last_update: now.wall,
                    start: Timestamp::NONE,
                };
                let change = Change {
                    next,
                    last_producer_id: last.0,
                    last_producer_epoch: last.1,
                    then: Then::InitProducerId(reply),
                };
                self.append_with(&id, change, actions);
            }
        }
    }

    fn allocate(&mut self, request: InitProducerId, actions: &mut Vec<Action>) {
        let allocation = AllocationId(self.take_id());
        self.allocations.insert(allocation, request);
        actions.push(Action::AllocateProducerId { allocation });
    }

    /// Aborts an ongoing transaction under the next epoch, so that its producer is refused from now on, even if the
    /// record cannot be written. The transaction has no change under way.
    pub(crate) fn fence(
        &mut self,
        id: &Arc<str>,
        reply: Option<ReplyTo>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let transaction =
            self.transactions.get_mut(id).expect("a fence is for an id that is there");
        let stored = &transaction.stored;
        // No client has the last epoch, so an ongoing transaction that has it was fenced already.
        let bumped = ProducerEpoch(stored.producer_epoch.0.saturating_add(1));
        let epoch = *transaction.fence.get_or_insert(bumped);
        let next = TransactionValue {
            producer_epoch: epoch,
            state: TransactionState::PrepareAbort,
            last_update: now.wall,
            ..stored.clone()
        };
        let change = Change {
            next,
            last_producer_id: transaction.last_producer_id,
            last_producer_epoch: ProducerEpoch::NONE,
            then: Then::Fence(reply),
        };
        self.append_with(id, change, actions);
    }

    /// The value with the partitions added; `None` as error where there is nothing to add.
    pub(crate) fn add_partitions(
        &self,
        id: &str,
        producer: Producer,
        partitions: Vec<TopicPartition>,
        now: Now,
    ) -> Result<TransactionValue, ErrorCode> {
        if partitions.iter().any(|partition| partition.topic.len() > NAME_BYTES_MAX) {
            return Err(ErrorCode::InvalidRequest);
        }
        let transaction = self.transaction_of(id, producer)?;
        let stored = &transaction.stored;
        // Where the first record could not be written, there is no producer yet.
        if stored.producer_epoch == ProducerEpoch::NONE {
            return Err(ErrorCode::ProducerFenced);
        }
        if transaction.pending.is_some() || stored.state.is_prepared() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let added = missing(&stored.partitions, partitions);
        let is_ongoing = stored.state == TransactionState::Ongoing;
        if is_ongoing && added.is_empty() {
            return Err(ErrorCode::None);
        }
        Ok(TransactionValue {
            producer_epoch: transaction.epoch(),
            state: TransactionState::Ongoing,
            partitions: stored.partitions.iter().cloned().chain(added).collect(),
            last_update: now.wall,
            start: if is_ongoing { stored.start } else { now.wall },
            ..stored.clone()
        })
    }

    /// Which partitions take part. A change under way is not looked at: the partition's log has the last word.
    pub(crate) fn verify_partitions(
        &self,
        id: &str,
        producer: Producer,
        partitions: &[TopicPartition],
    ) -> Vec<ErrorCode> {
        let transaction = match self.transaction_of(id, producer) {
            Ok(transaction) if transaction.stored.state.is_prepared() => {
                return vec![ErrorCode::ConcurrentTransactions; partitions.len()];
            }
            Ok(transaction) => transaction,
            Err(code) => return vec![code; partitions.len()],
        };
        let members: HashSet<_> = transaction.stored.partitions.iter().collect();
        let code = |partition| match members.contains(partition) {
            true => ErrorCode::None,
            false => ErrorCode::TransactionAbortable,
        };
        partitions.iter().map(code).collect()
    }

    /// The value with the decision made; `None` as error where this very decision is carried out already.
    pub(crate) fn end_transaction(
        &self,
        id: &str,
        producer: Producer,
        result: TransactionResult,
        now: Now,
    ) -> Result<TransactionValue, ErrorCode> {
        let transaction = self.transaction_of(id, producer)?;
        if transaction.pending.is_some() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let state = match (transaction.stored.state, result) {
            (TransactionState::Ongoing, TransactionResult::Commit) => {
                TransactionState::PrepareCommit
            }
            (TransactionState::Ongoing, TransactionResult::Abort) => TransactionState::PrepareAbort,
            (TransactionState::CompleteCommit, TransactionResult::Commit)
            | (TransactionState::CompleteAbort, TransactionResult::Abort) => {
                return Err(ErrorCode::None);
            }
            // Seen where the last record could not be written; else a change is under way.
            (TransactionState::PrepareCommit, TransactionResult::Commit)
            | (TransactionState::PrepareAbort, TransactionResult::Abort) => {
                return Err(ErrorCode::ConcurrentTransactions);
            }
            (
                TransactionState::Empty
                | TransactionState::PrepareCommit
                | TransactionState::PrepareAbort
                | TransactionState::CompleteCommit
                | TransactionState::CompleteAbort,
                _,
            ) => return Err(ErrorCode::InvalidTxnState),
        };
        Ok(TransactionValue {
            producer_epoch: transaction.epoch(),
            state,
            last_update: now.wall,
            ..transaction.stored.clone()
        })
    }

    /// The id, if this is its producer.
    fn transaction_of(&self, id: &str, producer: Producer) -> Result<&Transaction, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let transaction = self.transactions.get(id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
        if transaction.stored.producer_id != producer.0 {
            return Err(ErrorCode::InvalidProducerIdMapping);
        }
        if transaction.epoch() != producer.1 {
            return Err(ErrorCode::ProducerFenced);
        }
        Ok(transaction)
    }
}

impl Transaction {
    fn init(&self, expected: Option<Producer>, fresh: Option<ProducerId>) -> Init {
        let current = (self.stored.producer_id, self.epoch());
        if self.pending.is_some() {
            return Init::Refuse(ErrorCode::ConcurrentTransactions);
        }
        if expected.is_some_and(|expected| !self.may_be(expected)) {
            return Init::Refuse(ErrorCode::ProducerFenced);
        }
        match self.stored.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                return Init::Refuse(ErrorCode::ConcurrentTransactions);
            }
            TransactionState::Ongoing => return Init::Fence,
            TransactionState::Empty
            | TransactionState::CompleteCommit
            | TransactionState::CompleteAbort => {}
        }
        let last_epoch = match expected {
            None => ProducerEpoch::NONE,
            Some(_) if current.1 == ProducerEpoch::NONE => ProducerEpoch::NONE,
            Some((_, epoch)) if epoch == current.1 => epoch,
            // The same request again: its answer was lost.
            Some((_, epoch))
                if epoch == self.last_producer_epoch && epoch != ProducerEpoch::NONE =>
            {
                let last = (self.last_producer_id, self.last_producer_epoch);
                return Init::Become { producer: current, last };
            }
            Some(_) => return Init::Refuse(ErrorCode::ProducerFenced),
        };
        let last = (current.0, last_epoch);
        match fresh {
            _ if current.1 < EPOCH_MAX => {
                let producer = (current.0, ProducerEpoch(current.1.0 + 1));
                Init::Become { producer, last }
            }
            Some(fresh) => Init::Become { producer: (fresh, ProducerEpoch(0)), last },
            None => Init::AllocateProducerId,
        }
    }

    /// Whether a client that believes to be this producer may go on; its epoch is looked at later. It may have
    /// missed that its producer id was replaced. Source: KIP-360.
    fn may_be(&self, expected: Producer) -> bool {
        let missed_rotation = expected.0 == self.last_producer_id && expected.1 >= EPOCH_MAX;
        self.stored.producer_epoch == ProducerEpoch::NONE
            || expected.0 == self.stored.producer_id
            || missed_rotation
    }
}

/// The partitions asked for that are not there yet, each once.
fn missing(there: &[TopicPartition], asked: Vec<TopicPartition>) -> Vec<TopicPartition> {
    let mut seen: HashSet<TopicPartition> = there.iter().cloned().collect();
    asked.into_iter().filter(|partition| seen.insert(partition.clone())).collect()
}
