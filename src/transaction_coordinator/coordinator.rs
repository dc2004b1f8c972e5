//! The coordinator of one partition: what it knows, loading and resigning, events, and what follows an append.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, ProducerEpoch, ProducerId, Timestamp},
};

use crate::{
    action::{Action, AllocationId, AppendId, Reply},
    event::{Event, Now, ReplyTo},
    markers::Markers,
    query::Queues,
    records::{TransactionRecord, TransactionValue},
    requests::InitProducerId,
    state::TransactionState,
};

/// Settings of the broker.
#[derive(Clone, Debug)]
pub struct TransactionConfig {
    /// Longest timeout a producer may ask for. Source: `transaction.max.timeout.ms`.
    pub timeout_max: Duration,
    /// How long an id without a transaction is kept. Source: `transactional.id.expiration.ms`.
    pub id_expiration: Duration,
    /// How often transactions that take too long are looked for.
    /// Source: `transaction.abort.timed.out.transaction.cleanup.interval.ms`.
    pub abort_interval: Duration,
    /// How often expired ids are looked for. Source: `transaction.remove.expired.transaction.cleanup.interval.ms`.
    pub expire_interval: Duration,
}

/// Coordinates the transactional ids of one partition of `__transaction_state`. Owned by the task that drives it.
#[derive(Debug)]
pub struct TransactionCoordinator {
    /// Leader epoch of the partition; goes into every marker.
    pub(crate) epoch: LeaderEpoch,
    pub(crate) config: TransactionConfig,
    pub(crate) phase: Phase,
    pub(crate) transactions: BTreeMap<Arc<str>, Transaction>,
    /// Requests that wait for a producer id. As many as connections have requests under way.
    pub(crate) allocations: BTreeMap<AllocationId, InitProducerId>,
    /// Ids to go on with at a time: their markers, or their last record, failed. At most one for an id.
    pub(crate) retries: BTreeSet<(Instant, Arc<str>)>,
    /// What of them is what.
    pub(crate) queues: Queues,
    /// Whose records are in an append under way.
    appends: BTreeMap<AppendId, Vec<Arc<str>>>,
    next_id: u64,
}

/// Where a coordinator stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Reads the log. Requests get COORDINATOR_LOAD_IN_PROGRESS. Next: Active, Resigned.
    Loading,
    /// Works. Next: Resigned.
    Active {
        /// When transactions that take too long are looked for next.
        abort_at: Instant,
        /// When expired ids are looked for next.
        expire_at: Instant,
    },
    /// Leads no more. Requests get NOT_COORDINATOR.
    Resigned,
}

/// A transactional id.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// What the log says. Its epoch is `NONE` until the first record is written, which no client sees.
    pub(crate) stored: TransactionValue,
    /// The producer before the last InitProducerId, whose repetition gets the same answer. Lost with this coordinator.
    pub(crate) last_producer_id: ProducerId,
    pub(crate) last_producer_epoch: ProducerEpoch,
    /// Epoch of a fence that is being written, or that could not be: older ones are refused all the same,
    /// and the next fence takes it again. Source: `hasFailedEpochFence` of `TransactionMetadata`.
    pub(crate) fence: Option<ProducerEpoch>,
    /// The change under way; there is one at a time, and others get CONCURRENT_TRANSACTIONS.
    pub(crate) pending: Option<Pending>,
}

/// A change under way.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A record is being appended.
    Change(Box<Change>),
    /// The decision is stored, and markers are on their way.
    Marking(Box<Markers>),
    /// All markers are written; the record that says so is being appended, or waits to be appended again.
    Completing(TransactionValue),
    /// A tombstone is being appended. Kafka calls this state `Dead`.
    Expiring,
}

/// What a record that is being appended will make of an id.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) next: TransactionValue,
    pub(crate) last_producer_id: ProducerId,
    pub(crate) last_producer_epoch: ProducerEpoch,
    pub(crate) then: Then,
}

/// Whom a change is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    InitProducerId(ReplyTo),
    AddPartitions(ReplyTo),
    EndTxn(ReplyTo),
    /// An ongoing transaction is aborted: for InitProducerId, which is to come again, or as it takes too long.
    Fence(Option<ReplyTo>),
}

impl TransactionCoordinator {
    /// A coordinator for one term of the partition's leader; it is loading until `loaded`.
    pub fn new(epoch: LeaderEpoch, config: TransactionConfig) -> TransactionCoordinator {
        TransactionCoordinator {
            epoch,
            config,
            phase: Phase::Loading,
            transactions: BTreeMap::new(),
            allocations: BTreeMap::new(),
            retries: BTreeSet::new(),
            queues: Queues::default(),
            appends: BTreeMap::new(),
            next_id: 0,
        }
    }

    /// Applies a record of the log, in the log's order, up to its end: what is not committed yet will be, as this
    /// broker leads.
    ///
    /// # Panics
    /// After `loaded`.
    pub fn replay(&mut self, record: &TransactionRecord) {
        assert!(self.phase == Phase::Loading, "a log is replayed before the coordinator works");
        let id = &record.transactional_id;
        match &record.value {
            Some(value) => {
                self.transactions.insert(id.clone(), Transaction::new(value.clone()));
            }
            None => {
                self.transactions.remove(id);
            }
        }
    }

    /// Begins to work, as the whole log is replayed: sends the markers of every decided transaction again.
    ///
    /// # Panics
    /// When called twice.
    pub fn loaded(&mut self, now: Now, actions: &mut Vec<Action>) {
        assert!(self.phase == Phase::Loading, "a coordinator is loaded once");
        self.phase = Phase::Active {
            abort_at: now.monotonic + self.config.abort_interval,
            expire_at: now.monotonic + self.config.expire_interval,
        };
        let is_prepared = |transaction: &Transaction| transaction.stored.state.is_prepared();
        for id in self.ids_where(is_prepared) {
            self.start_markers(&id, now, actions);
        }
    }

    /// Decides what an event leads to.
    pub fn on_event(&mut self, event: Event, now: Now, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Active { .. } => self.act(event, now, actions),
            Phase::Loading if matches!(event, Event::Resign) => self.resign(actions),
            Phase::Loading => refuse(&event, ErrorCode::CoordinatorLoadInProgress, actions),
            Phase::Resigned => refuse(&event, ErrorCode::NotCoordinator, actions),
        }
    }

    fn act(&mut self, event: Event, now: Now, actions: &mut Vec<Action>) {
        match event {
            Event::InitProducerId { transactional_id, timeout_ms, expected, reply } => {
                let request = InitProducerId { transactional_id, timeout_ms, expected, reply };
                self.init_producer_id(request, None, now, actions);
            }
            Event::AddPartitions {
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                reply,
            } => {
                let producer = (producer_id, producer_epoch);
                let wanted = self.add_partitions(&transactional_id, producer, partitions, now);
                match wanted {
                    Ok(next) => {
                        let then = Then::AddPartitions(reply);
                        self.append_change(&transactional_id, next, then, actions);
                    }
                    Err(code) => actions.push(Action::Reply(reply, Reply::AddPartitions(code))),
                }
            }
            Event::VerifyPartitions {
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                reply,
            } => {
                let producer = (producer_id, producer_epoch);
                let codes = self.verify_partitions(&transactional_id, producer, &partitions);
                actions.push(Action::Reply(reply, Reply::Verify(codes)));
            }
            Event::EndTxn { transactional_id, producer_id, producer_epoch, result, reply } => {
                let producer = (producer_id, producer_epoch);
                match self.end_transaction(&transactional_id, producer, result, now) {
                    Ok(next) => {
                        let then = Then::EndTxn(reply);
                        self.append_change(&transactional_id, next, then, actions);
                    }
                    Err(code) => actions.push(Action::Reply(reply, Reply::EndTxn(code))),
                }
            }
            Event::ProducerIdAllocated { allocation, result } => {
                let Some(request) = self.allocations.remove(&allocation) else { return };
                match result {
                    Ok(fresh) => self.init_producer_id(request, Some(fresh), now, actions),
                    Err(code) => actions.push(no_producer(request.reply, code)),
                }
            }
            Event::Appended { append, error } => {
                for id in self.appends.remove(&append).unwrap_or_default() {
                    self.appended(&id, client_code(error), now, actions);
                }
            }
            Event::MarkersWritten { transactional_id, outcomes } => {
                self.markers_written(&transactional_id, outcomes, now, actions);
            }
            Event::Resign => self.resign(actions),
        }
    }

    /// Forgets everything. Who waits for a record is told that the coordinator is elsewhere, though the record may
    /// get committed still: the next coordinator knows.
    fn resign(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Resigned;
        for request in std::mem::take(&mut self.allocations).into_values() {
            actions.push(no_producer(request.reply, ErrorCode::NotCoordinator));
        }
        for transaction in std::mem::take(&mut self.transactions).into_values() {
            if let Some(Pending::Change(change)) = transaction.pending {
                actions.extend(change.then.answer(ErrorCode::NotCoordinator, &change.next));
            }
        }
        self.appends.clear();
        self.retries.clear();
        self.queues = Queues::default();
    }

    /// Goes on after an append, with the code that clients get for its outcome.
    fn appended(&mut self, id: &Arc<str>, error: ErrorCode, now: Now, actions: &mut Vec<Action>) {
        let transaction = self.transactions.get_mut(id).expect("an id stays while it is appended");
        match transaction.pending.take().expect("one change at a time: the one appended") {
            Pending::Change(change) => {
                actions.extend(change.then.answer(error, &change.next));
                if error.is_none() {
                    transaction.become_stored(*change);
                    if transaction.stored.state.is_prepared() {
                        self.start_markers(id, now, actions);
                    }
                }
            }
            Pending::Completing(next) if error.is_none() => transaction.stored = next,
            // The next coordinator does it. Others are retried, where Kafka retries COORDINATOR_NOT_AVAILABLE
            // and ends the process on what should not happen.
            Pending::Completing(_) if error == ErrorCode::NotCoordinator => {}
            Pending::Completing(next) => {
                transaction.pending = Some(Pending::Completing(next));
                self.queues.log_append += 1;
                self.retry_later(id, now);
            }
            Pending::Expiring if error.is_none() => {
                self.transactions.remove(id);
            }
            Pending::Expiring => {}
            Pending::Marking(_) => unreachable!("nothing is appended while markers are written"),
        }
    }

    /// Appends a record that changes an id; the id has no change under way.
    pub(crate) fn append_change(
        &mut self,
        id: &Arc<str>,
        next: TransactionValue,
        then: Then,
        actions: &mut Vec<Action>,
    ) {
        let transaction = &self.transactions[id];
        let change = Change {
            last_producer_id: transaction.last_producer_id,
            last_producer_epoch: transaction.last_producer_epoch,
            next,
            then,
        };
        self.append_with(id, change, actions);
    }

    /// As `append_change`, with a new last producer.
    pub(crate) fn append_with(&mut self, id: &Arc<str>, change: Change, actions: &mut Vec<Action>) {
        let next = change.next.clone();
        let transaction =
            self.transactions.get_mut(id).expect("a change is of an id that is there");
        assert!(transaction.pending.is_none(), "there is one change at a time");
        transaction.pending = Some(Pending::Change(Box::new(change)));
        self.append_value(id, next, actions);
    }

    /// Appends the value of an id, whose pending change says what for.
    pub(crate) fn append_value(
        &mut self,
        id: &Arc<str>,
        value: TransactionValue,
        actions: &mut Vec<Action>,
    ) {
        // Kafka waits as long as the transaction may take.
        let timeout = Some(timeout(&value));
        let append = self.append_of(vec![id.clone()]);
        let record = TransactionRecord { transactional_id: id.clone(), value: Some(value) };
        actions.push(Action::Append { append, records: vec![record], timeout });
    }

    /// A new append of the records of these ids.
    pub(crate) fn append_of(&mut self, ids: Vec<Arc<str>>) -> AppendId {
        let append = AppendId(self.take_id());
        self.appends.insert(append, ids);
        append
    }

    pub(crate) fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub(crate) fn ids_where(&self, holds: impl Fn(&Transaction) -> bool) -> Vec<Arc<str>> {
        let chosen = self.transactions.iter().filter(|(_, transaction)| holds(transaction));
        chosen.map(|(id, _)| id.clone()).collect()
    }
}

impl Transaction {
    pub(crate) fn new(stored: TransactionValue) -> Transaction {
        Transaction {
            stored,
            last_producer_id: ProducerId::NONE,
            last_producer_epoch: ProducerEpoch::NONE,
            fence: None,
            pending: None,
        }
    }

    /// The id of a client that was never here before; nothing of it is stored yet.
    pub(crate) fn unwritten(producer_id: ProducerId, timeout_ms: i32, now: Now) -> Transaction {
        Transaction::new(TransactionValue {
            producer_id,
            producer_epoch: ProducerEpoch::NONE,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: Vec::new(),
            last_update: now.wall,
            start: Timestamp::NONE,
        })
    }

    /// The epoch that is accepted.
    pub(crate) fn epoch(&self) -> ProducerEpoch {
        self.fence.unwrap_or(self.stored.producer_epoch)
    }

    fn become_stored(&mut self, change: Change) {
        self.stored = change.next;
        self.last_producer_id = change.last_producer_id;
        self.last_producer_epoch = change.last_producer_epoch;
        self.fence = None;
    }
}

impl Then {
    /// The answer once the record is written, or could not be; none where nobody asked.
    fn answer(self, error: ErrorCode, next: &TransactionValue) -> Option<Action> {
        match self {
            Then::InitProducerId(to) if error.is_none() => {
                let (producer_id, producer_epoch) = (next.producer_id, next.producer_epoch);
                let reply = Reply::InitProducerId { error, producer_id, producer_epoch };
                Some(Action::Reply(to, reply))
            }
            Then::InitProducerId(to) => Some(no_producer(to, error)),
            Then::AddPartitions(to) => Some(Action::Reply(to, Reply::AddPartitions(error))),
            Then::EndTxn(to) => Some(Action::Reply(to, Reply::EndTxn(error))),
            Then::Fence(None) => None,
            // The client comes again, and finds its predecessor's transaction gone.
            Then::Fence(Some(to)) if error.is_none() => {
                Some(no_producer(to, ErrorCode::ConcurrentTransactions))
            }
            Then::Fence(Some(to)) => Some(no_producer(to, error)),
        }
    }
}

/// InitProducerId's answer when there is no producer.
pub(crate) fn no_producer(to: ReplyTo, error: ErrorCode) -> Action {
    let (producer_id, producer_epoch) = (ProducerId::NONE, ProducerEpoch::NONE);
    Action::Reply(to, Reply::InitProducerId { error, producer_id, producer_epoch })
}

/// Answers a request with a code; other events want nothing.
fn refuse(event: &Event, error: ErrorCode, actions: &mut Vec<Action>) {
    let action = match event {
        Event::InitProducerId { reply, .. } => no_producer(*reply, error),
        Event::AddPartitions { reply, .. } => Action::Reply(*reply, Reply::AddPartitions(error)),
        Event::VerifyPartitions { partitions, reply, .. } => {
            Action::Reply(*reply, Reply::Verify(vec![error; partitions.len()]))
        }
        Event::EndTxn { reply, .. } => Action::Reply(*reply, Reply::EndTxn(error)),
        Event::ProducerIdAllocated { .. }
        | Event::Appended { .. }
        | Event::MarkersWritten { .. }
        | Event::Resign => return,
    };
    actions.push(action);
}

/// How long a transaction may take; a negative one in the log is none.
pub(crate) fn timeout(value: &TransactionValue) -> Duration {
    Duration::from_millis(u64::try_from(value.timeout_ms).unwrap_or(0))
}

/// What clients see of a failed append. Source: `TransactionStateManager.appendTransactionToLog`.
fn client_code(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::UnknownServerError,
        other => other,
    }
}
