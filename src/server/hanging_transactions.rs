//! Transactions that hang: open in a partition led here for longer than any should be, so that nobody reads committed
//! records beyond them. The coordinators are asked, and one that is over for them is aborted. Source: KIP-664, which leaves
//! it to a command.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{BrokerId, Offset, ProducerId},
    topic::{TRANSACTION_STATE_TOPIC, TopicPartition},
};
use futures_util::future::join_all;
use kafka_protocol::messages::{
    self, DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse, TransactionalId, describe_transactions_response::TransactionState,
};
use storage::producer_state::OpenTransaction;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use transaction_coordinator::state::TransactionState as State;

use crate::{
    broker::Broker,
    handlers::{describe_transactions, list_transactions, text},
    markers,
    peers::{PeerError, Purpose},
};

const LOG: &str = "kafka.server.ReplicaManager";

/// How often is looked.
const EVERY: Duration = Duration::from_secs(30);
/// How much longer than `transaction.max.timeout.ms` a transaction may be open: its coordinator aborts it by then.
const GRACE: Duration = Duration::from_secs(30);
/// How much longer than that a transaction is open that counts as late. Source: `LATE_TRANSACTION_BUFFER_MS`.
const LATE: Duration = Duration::from_secs(5 * 60);
/// How often one that stays is told of.
const TELL_EVERY: Duration = Duration::from_secs(600);
/// Transactions that are asked about in one round at most; the others have their turn in the next.
const ASKED_MAX: usize = 1000;

/// Looks for transactions that hang, until told to stop.
pub(crate) async fn watch(broker: Arc<Broker>, stop: CancellationToken) {
    let mut watched = Watched::new(broker);
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        stop.run_until_cancelled(watched.round(clock::now())).await;
    }
}

/// A transaction in a partition: another one of the same producer begins elsewhere.
type Key = (TopicPartition, ProducerId, Offset);

/// The open transactions of this broker, as last seen. Owned by the task.
struct Watched {
    broker: Arc<Broker>,
    open: HashMap<Key, Watch>,
}

#[derive(Clone, Copy)]
struct Watch {
    /// When it was first seen here. Times in records are their producers', who may have others.
    since: Instant,
    asked: Option<Instant>,
    told: Option<Instant>,
}

/// What is known of a producer from the coordinators.
#[derive(Clone, Debug)]
enum Word {
    /// A broker or a coordinator gave no answer, or one that says nothing of the transaction.
    None,
    /// All coordinators answered, and none knows the producer.
    Stranger,
    /// The coordinator listed the producer, and then had forgotten its transactional id.
    Forgotten,
    /// Where the producer's transactional id stands.
    Described(TransactionState),
}

/// What becomes of a transaction that hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is over for its coordinator, which will write no marker here.
    Abort,
    /// Its coordinator will end it.
    GoesOn,
    /// No coordinator knows its producer, so that none can say that it is over.
    Unknown,
    /// It cannot be told now.
    AskAgain,
}

/// Decides about a transaction in a partition, by what was said of its producer after the transaction was seen so.
/// Where several brokers speak of one producer, for one of them has left office, one that goes on is enough.
fn judge(open: &OpenTransaction, partition: &TopicPartition, words: &[Word]) -> Verdict {
    let verdicts: Vec<Verdict> = words.iter().map(|word| of_word(open, partition, word)).collect();
    let order = [Verdict::GoesOn, Verdict::AskAgain, Verdict::Abort];
    let said = order.into_iter().find(|verdict| verdicts.contains(verdict));
    said.unwrap_or(match words.is_empty() {
        true => Verdict::AskAgain,
        false => Verdict::Unknown,
    })
}

fn of_word(open: &OpenTransaction, partition: &TopicPartition, word: &Word) -> Verdict {
    let described = match word {
        Word::None => return Verdict::AskAgain,
        Word::Stranger => return Verdict::Unknown,
        Word::Forgotten => return Verdict::Abort,
        Word::Described(described) => described,
    };
    let is_same = described.producer_id.0 == open.producer_id.0;
    if !is_same || described.producer_epoch < open.producer_epoch.0 {
        // The id has another producer since it was listed, or the coordinator has lost what it knew of this one.
        return Verdict::AskAgain;
    }
    let state = State::ALL.into_iter().find(|state| state.name() == &*described.transaction_state);
    match state {
        Some(State::Empty | State::CompleteCommit | State::CompleteAbort) => Verdict::Abort,
        Some(State::Ongoing | State::PrepareCommit | State::PrepareAbort) => {
            let mut topics = described.topics.iter();
            let takes_part = topics.any(|topic| {
                **topic.topic == *partition.topic && topic.partitions.contains(&partition.partition)
            });
            if takes_part { Verdict::GoesOn } else { Verdict::Abort }
        }
        None => Verdict::AskAgain,
    }
}

impl Watched {
    fn new(broker: Arc<Broker>) -> Watched {
        Watched { broker, open: HashMap::new() }
    }

    /// Looks at all partitions led here; where transactions hang, asks and acts.
    async fn round(&mut self, now: Instant) {
        let overdue = self.look(now);
        let count = i64::try_from(overdue.len()).unwrap_or(i64::MAX);
        self.broker.metrics.hanging_transactions.set(count);
        let asked = self.choose(overdue, now);
        if asked.is_empty() {
            return;
        }
        let producers = asked.iter().map(|(_, open)| open.producer_id).collect();
        let words = ask(&self.broker, &producers).await;
        for (partition, open) in asked {
            let of_producer = words.get(&open.producer_id).map_or(&[][..], Vec::as_slice);
            let verdict = judge(&open, &partition, of_producer);
            self.act(&partition, &open, verdict, now).await;
        }
    }

    /// The transactions that are open for too long.
    fn look(&mut self, now: Instant) -> Vec<(TopicPartition, OpenTransaction)> {
        let timeout_max = u64::try_from(self.broker.config.transaction_max_timeout_ms).unwrap_or(0);
        let timeout_max = Duration::from_millis(timeout_max);
        let mut open = HashMap::new();
        let mut overdue = Vec::new();
        let mut late_partitions = 0;
        for partition in self.broker.replicas.all() {
            let transactions = partition.log().open_transactions();
            if transactions.is_empty() || !partition.is_leader() {
                continue;
            }
            let name = partition.topic_partition();
            let mut is_late = false;
            for one in transactions {
                let key = (name.clone(), one.producer_id, one.first_offset);
                let fresh = Watch { since: now, asked: None, told: None };
                let watch = self.open.get(&key).copied().unwrap_or(fresh);
                open.insert(key, watch);
                let age = now.saturating_duration_since(watch.since);
                is_late |= age > timeout_max + LATE;
                if age > timeout_max + GRACE {
                    overdue.push((name.clone(), one));
                }
            }
            late_partitions += i64::from(is_late);
        }
        self.broker.metrics.late_transactions.set(late_partitions);
        self.open = open;
        overdue
    }

    /// Those to ask about now: who was not asked about for longest comes first.
    fn choose(
        &mut self,
        mut overdue: Vec<(TopicPartition, OpenTransaction)>,
        now: Instant,
    ) -> Vec<(TopicPartition, OpenTransaction)> {
        if overdue.len() > ASKED_MAX {
            overdue.sort_by_key(|(name, one)| self.watch(name, one).and_then(|watch| watch.asked));
            overdue.truncate(ASKED_MAX);
        }
        for (name, one) in &overdue {
            if let Some(watch) = self.watch(name, one) {
                watch.asked = Some(now);
            }
        }
        overdue
    }

    fn watch(&mut self, name: &TopicPartition, one: &OpenTransaction) -> Option<&mut Watch> {
        self.open.get_mut(&(name.clone(), one.producer_id, one.first_offset))
    }

    async fn act(
        &mut self,
        partition: &TopicPartition,
        open: &OpenTransaction,
        verdict: Verdict,
        now: Instant,
    ) {
        let (producer, start) = (open.producer_id.0, open.first_offset.0);
        if verdict == Verdict::Abort {
            let code = markers::abort(&self.broker, open, partition).await;
            match code {
                ErrorCode::None => {
                    self.broker.metrics.hanging_transactions_aborted.mark(1);
                    warn!(target: LOG, %partition, producer, start, "aborted a transaction that hung: it is over for its coordinator");
                }
                // It has gone on after all, or the leader is another one now.
                _ => {
                    info!(target: LOG, %partition, producer, start, ?code, "did not abort a transaction that hangs");
                }
            }
            return;
        }
        let Some(watch) = self.watch(partition, open) else { return };
        if watch.told.is_some_and(|told| now.saturating_duration_since(told) < TELL_EVERY) {
            return;
        }
        watch.told = Some(now);
        let seconds = now.saturating_duration_since(watch.since).as_secs();
        let why = match verdict {
            Verdict::GoesOn => "its coordinator still has to end it",
            Verdict::Unknown => {
                "no coordinator knows its producer; kafka-transactions.sh abort ends it"
            }
            Verdict::Abort | Verdict::AskAgain => "its coordinator cannot be asked now",
        };
        warn!(target: LOG, %partition, producer, start, seconds, "a transaction hangs: {why}");
    }
}

/// Asks every broker for the producers' transactional ids, and those that have them how they stand.
async fn ask(broker: &Broker, producers: &BTreeSet<ProducerId>) -> HashMap<ProducerId, Vec<Word>> {
    let snapshot = broker.metadata.snapshot();
    let brokers: Vec<BrokerId> = snapshot.brokers().map(|known| known.id).collect();
    let answers = join_all(brokers.iter().map(|id| ask_one(broker, *id, producers))).await;
    let mut words: HashMap<ProducerId, Vec<Word>> = HashMap::new();
    let mut all_answered = every_coordinator_lives(broker);
    for answer in answers {
        match answer {
            Some(said) => {
                for (producer, word) in said {
                    words.entry(producer).or_default().push(word);
                }
            }
            None => all_answered = false,
        }
    }
    for producer in producers {
        let said = words.entry(*producer).or_default();
        if !all_answered {
            said.push(Word::None);
        } else if said.is_empty() {
            said.push(Word::Stranger);
        }
    }
    words
}

/// Whether each partition of `__transaction_state` has a leader that can be asked.
fn every_coordinator_lives(broker: &Broker) -> bool {
    let snapshot = broker.metadata.snapshot();
    snapshot.topic(TRANSACTION_STATE_TOPIC).is_some_and(|topic| {
        topic.partitions().all(|(_, partition)| snapshot.broker(partition.leader).is_some())
    })
}

/// What one broker says of the producers that it coordinates; none where it does not answer.
async fn ask_one(
    broker: &Broker,
    id: BrokerId,
    producers: &BTreeSet<ProducerId>,
) -> Option<Vec<(ProducerId, Word)>> {
    let filter = producers.iter().map(|producer| messages::ProducerId(producer.0)).collect();
    let request = ListTransactionsRequest::default().with_producer_id_filters(filter);
    let listed = heard(id, list(broker, id, request).await)?;
    if listed.error_code != 0 {
        return None;
    }
    let listed = listed.transaction_states;
    if listed.is_empty() {
        return Some(Vec::new());
    }
    let ids = listed.iter().map(|one| TransactionalId(text(&one.transactional_id)));
    let request = DescribeTransactionsRequest::default().with_transactional_ids(ids.collect());
    let described = heard(id, describe(broker, id, request).await)?;
    let said = listed.iter().map(|one| {
        let mut states = described.transaction_states.iter();
        let state = states.find(|state| state.transactional_id == one.transactional_id);
        let word = match state.map(|state| (state, ErrorCode::from_code(state.error_code))) {
            Some((state, ErrorCode::None)) => Word::Described(state.clone()),
            Some((_, ErrorCode::TransactionalIdNotFound)) => Word::Forgotten,
            _ => Word::None,
        };
        (ProducerId(one.producer_id.0), word)
    });
    Some(said.collect())
}

async fn list(
    broker: &Broker,
    id: BrokerId,
    request: ListTransactionsRequest,
) -> Result<ListTransactionsResponse, PeerError> {
    if id == broker.id {
        return Ok(list_transactions::handle(broker, request));
    }
    let limit = timeout_of(broker);
    Ok(broker.peers.call(id, Purpose::Verification, &request, 0..=0, limit).await?.0)
}

async fn describe(
    broker: &Broker,
    id: BrokerId,
    request: DescribeTransactionsRequest,
) -> Result<DescribeTransactionsResponse, PeerError> {
    if id == broker.id {
        return Ok(describe_transactions::handle(broker, request));
    }
    let limit = timeout_of(broker);
    Ok(broker.peers.call(id, Purpose::Verification, &request, 0..=0, limit).await?.0)
}

fn heard<T>(id: BrokerId, answered: Result<T, PeerError>) -> Option<T> {
    answered
        .inspect_err(|problem| {
            let problem = problem as &dyn std::error::Error;
            debug!(target: LOG, broker = %id, problem, "could not ask about transactions that hang");
        })
        .ok()
}

fn timeout_of(broker: &Broker) -> Duration {
    Duration::from_millis(u64::try_from(broker.config.request_timeout_ms).unwrap_or(0))
}

#[cfg(test)]
mod tests;
