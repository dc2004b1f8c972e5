//! The markers of decided transactions: sent until each partition has its own, then the transaction is complete.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use common::{error_code::ErrorCode, topic::TopicPartition};

use crate::{
    action::{Action, MarkerConsequence},
    coordinator::{Pending, Transaction, TransactionCoordinator},
    event::{MarkerOutcome, Now, TransactionResult},
    query::Queues,
    records::TransactionValue,
    state::TransactionState,
};

/// How long to wait before what failed is tried again.
pub(crate) const RETRY_BACK_OFF: Duration = Duration::from_millis(100);

/// The markers of one transaction.
#[derive(Debug)]
pub(crate) struct Markers {
    /// What is stored once all are written; its time is that of the decision, as in Kafka.
    complete: TransactionValue,
    /// Partitions without their marker.
    pub(crate) waiting: BTreeSet<TopicPartition>,
    /// Those of them that a marker is on its way to; the others wait for a retry.
    under_way: BTreeSet<TopicPartition>,
    /// The leader of one that waits was not there. Counted in `queues`.
    leader_unknown: bool,
    /// Nothing is sent any more: a leader knows a newer epoch.
    stopped: bool,
}

/// What an answer to a marker means. Source: `TransactionMarkerRequestCompletionHandler`.
enum Verdict {
    Done,
    Retry,
    Stop(ErrorCode),
    /// Kafka's broker ends itself on these. They concern one partition, so ours goes on and says so.
    Nonsense(ErrorCode),
}

impl TransactionCoordinator {
    /// Sends the markers of a transaction whose decision is stored.
    pub(crate) fn start_markers(&mut self, id: &Arc<str>, now: Now, actions: &mut Vec<Action>) {
        let transaction =
            self.transactions.get_mut(id).expect("a decision is of an id that is there");
        let stored = &transaction.stored;
        let state = match stored.state {
            TransactionState::PrepareCommit => TransactionState::CompleteCommit,
            _ => TransactionState::CompleteAbort,
        };
        let waiting: BTreeSet<_> = stored.partitions.iter().cloned().collect();
        let complete = TransactionValue {
            state,
            partitions: Vec::new(),
            last_update: now.wall,
            ..stored.clone()
        };
        let markers = Markers {
            complete,
            waiting,
            under_way: BTreeSet::new(),
            leader_unknown: false,
            stopped: false,
        };
        transaction.pending = Some(Pending::Marking(Box::new(markers)));
        self.go_on(id, actions);
    }

    /// Takes the outcomes of markers.
    pub(crate) fn markers_written(
        &mut self,
        id: &Arc<str>,
        outcomes: Vec<(TopicPartition, MarkerOutcome)>,
        now: Now,
        actions: &mut Vec<Action>,
    ) {
        let Some(markers) = self.transactions.get_mut(id).and_then(Transaction::markers) else {
            return;
        };
        let had_retry = markers.has_idle();
        let mut leader_unknown = markers.leader_unknown;
        for (partition, outcome) in outcomes {
            if !markers.under_way.remove(&partition) {
                continue;
            }
            leader_unknown |= matches!(outcome, MarkerOutcome::LeaderUnknown);
            let (error, consequence) = match verdict(outcome) {
                Verdict::Done => {
                    markers.waiting.remove(&partition);
                    continue;
                }
                Verdict::Retry => continue,
                Verdict::Stop(error) => {
                    markers.stopped = true;
                    (error, MarkerConsequence::Stops)
                }
                Verdict::Nonsense(error) => (error, MarkerConsequence::Retries),
            };
            let transactional_id = id.clone();
            actions.push(Action::MarkerRefused { transactional_id, partition, error, consequence });
        }
        markers.set_leader_unknown(leader_unknown && !markers.stopped, &mut self.queues);
        if markers.stopped {
            return;
        }
        if markers.waiting.is_empty() {
            self.go_on(id, actions);
        } else if markers.has_idle() && !had_retry {
            self.retry_later(id, now);
        }
    }

    pub(crate) fn retry_later(&mut self, id: &Arc<str>, now: Now) {
        self.retries.insert((now.monotonic + RETRY_BACK_OFF, id.clone()));
    }

    /// Sends the markers that are not under way, or appends the record that all are written.
    pub(crate) fn go_on(&mut self, id: &Arc<str>, actions: &mut Vec<Action>) {
        let transaction = self.transactions.get_mut(id).expect("an id stays until it is complete");
        match &mut transaction.pending {
            Some(Pending::Marking(markers)) if markers.stopped => {}
            Some(Pending::Marking(markers)) if markers.waiting.is_empty() => {
                let complete = markers.complete.clone();
                transaction.pending = Some(Pending::Completing(complete.clone()));
                self.append_value(id, complete, actions);
            }
            Some(Pending::Marking(markers)) => {
                let partitions = markers.waiting.difference(&markers.under_way).cloned().collect();
                markers.under_way = markers.waiting.clone();
                markers.set_leader_unknown(false, &mut self.queues);
                let result = match transaction.stored.state {
                    TransactionState::PrepareCommit => TransactionResult::Commit,
                    _ => TransactionResult::Abort,
                };
                actions.push(Action::SendMarkers {
                    transactional_id: id.clone(),
                    producer_id: transaction.stored.producer_id,
                    producer_epoch: transaction.stored.producer_epoch,
                    coordinator_epoch: self.epoch,
                    result,
                    partitions,
                });
            }
            Some(Pending::Completing(complete)) => {
                let complete = complete.clone();
                self.queues.log_append -= 1;
                self.append_value(id, complete, actions);
            }
            Some(Pending::Change(_) | Pending::Expiring) | None => {
                unreachable!("what is gone on with was decided")
            }
        }
    }
}

impl Transaction {
    fn markers(&mut self) -> Option<&mut Markers> {
        match &mut self.pending {
            Some(Pending::Marking(markers)) => Some(markers),
            _ => None,
        }
    }
}

impl Markers {
    /// Whether a partition waits that no marker is on its way to.
    fn has_idle(&self) -> bool {
        self.waiting.len() > self.under_way.len()
    }

    fn set_leader_unknown(&mut self, leader_unknown: bool, queues: &mut Queues) {
        match (self.leader_unknown, leader_unknown) {
            (false, true) => queues.unknown_destination += 1,
            (true, false) => queues.unknown_destination -= 1,
            (false, false) | (true, true) => {}
        }
        self.leader_unknown = leader_unknown;
    }
}

fn verdict(outcome: MarkerOutcome) -> Verdict {
    let code = match outcome {
        MarkerOutcome::NoSuchPartition => return Verdict::Done,
        MarkerOutcome::Disconnected | MarkerOutcome::LeaderUnknown => return Verdict::Retry,
        MarkerOutcome::Answered(code) => code,
    };
    match code {
        // The last two: an old message format, where the producer cannot have written either.
        ErrorCode::None
        | ErrorCode::UnsupportedForMessageFormat
        | ErrorCode::UnsupportedVersion => Verdict::Done,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotLeaderOrFollower
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut
        | ErrorCode::KafkaStorageError => Verdict::Retry,
        ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced => {
            Verdict::Stop(code)
        }
        other => Verdict::Nonsense(other),
    }
}
