//! A planned move of a leadership loses nothing, not even what was acknowledged with acks=1: before a new leader leads, it
//! gets what the former leader has taken and the follower has not copied yet.
//!
//! The former leader lives, for the move was planned (controlled shutdown, preferred election, reassignment). Once the
//! controller has told it of the new epoch it takes no more, and gives the new leader of that epoch all it has; so an
//! answer in that epoch, or a later one of the same leader, that brings nothing is the end. Meanwhile nothing is produced
//! to the new leader, and whoever fetches from it waits: else a follower that is ahead would be told to cut off what is
//! about to come. A broker of Kafka gives nothing away once it leads no more; then, and where the former leader is silent,
//! the move is as Kafka's.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{BrokerId, LeaderEpoch},
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::messages::{FetchResponse, fetch_response::PartitionData};
use parking_lot::Mutex;
use partition::follower::FetchFrom;
use tracing::{debug, info, warn};

use crate::{
    fetch_wire::{self, Asked},
    fetcher::off_runtime,
    fetchers::FetchersShared,
    leaders::{Leader, LeaderError},
    partition::Partition,
};

const LOG: &str = "kafka.server.ReplicaManager";
/// How long a new leader waits for the former one at most, without anything coming.
const SILENCE_MAX: Duration = Duration::from_millis(500);
/// How long a former leader that was not told yet is left alone.
const ASK_AGAIN: Duration = Duration::from_millis(5);
/// Partitions in one request at most.
const ASKED_MAX: usize = 2000;
/// The connection that takeovers use, beside those of the fetchers.
const WAY: usize = usize::MAX;

/// A partition that is being taken over.
struct TakenOver {
    partition: Arc<Partition>,
    /// The epoch in which that began; the controller may have begun another one since, with the same leader.
    since: LeaderEpoch,
    /// When the former leader is given up, unless something comes.
    deadline: Instant,
}

/// The partitions that wait, by former leader; an entry is there while a task works on it. Shared.
#[derive(Default)]
pub(crate) struct Takeovers {
    waiting: Mutex<HashMap<BrokerId, Vec<TakenOver>>>,
}

impl Takeovers {
    /// Takes a partition over from its former leader, and leads it then. To be called where a task can be started.
    pub(crate) fn begin(
        self: &Arc<Self>,
        shared: &Arc<FetchersShared>,
        partition: &Arc<Partition>,
        from: BrokerId,
        epoch: LeaderEpoch,
    ) {
        let deadline = clock::now() + SILENCE_MAX;
        let taken = TakenOver { partition: partition.clone(), since: epoch, deadline };
        let mut waiting = self.waiting.lock();
        if let Some(queue) = waiting.get_mut(&from) {
            queue.push(taken);
            return;
        }
        waiting.insert(from, vec![taken]);
        drop(waiting);
        let work = Work {
            shared: shared.clone(),
            from,
            way: shared.leaders.way_to(from, WAY),
            takeovers: self.clone(),
            under_way: Vec::new(),
        };
        tokio::spawn(work.run());
    }

    /// What has come in for a former leader; none ends the work, when `is_idle`.
    fn take(&self, from: BrokerId, is_idle: bool) -> Option<Vec<TakenOver>> {
        let mut waiting = self.waiting.lock();
        let queue = waiting.get_mut(&from)?;
        if queue.is_empty() && is_idle {
            waiting.remove(&from);
            return None;
        }
        Some(std::mem::take(queue))
    }
}

/// Takes over what one broker has led.
struct Work {
    shared: Arc<FetchersShared>,
    from: BrokerId,
    way: Box<dyn Leader>,
    takeovers: Arc<Takeovers>,
    under_way: Vec<TakenOver>,
}

/// What an answer says of a partition.
enum Outcome {
    /// The former leader has no more.
    Complete,
    /// There may be more.
    Came,
    /// The former leader was not told yet, or of a newer epoch already.
    NotYet,
    /// It gives nothing.
    Refused(ErrorCode),
    /// What it gave does not fit.
    Failed,
}

impl Work {
    async fn run(mut self) {
        let stop = self.shared.stop.clone();
        while let Some(new) = self.takeovers.take(self.from, self.under_way.is_empty()) {
            self.under_way.extend(new);
            if stop.run_until_cancelled(self.round()).await.is_none() {
                return;
            }
        }
    }

    async fn round(&mut self) {
        self.under_way.retain(|one| one.partition.takes_over(one.since).is_some());
        self.give_up_late();
        let count = self.under_way.len().min(ASKED_MAX);
        let Some(deadline) = self.under_way.iter().map(|one| one.deadline).min() else { return };
        let by_id = self.under_way[..count].iter().all(|one| one.partition.topic_id().is_some());
        let asked: Vec<Asked> = self.under_way[..count].iter().map(ask).collect();
        let config = &self.shared.config;
        let version = fetch_wire::fetch_version(config.protocol, by_id);
        let broker_epoch = self.shared.broker_epoch();
        // No session: each round is about other partitions.
        let request = fetch_wire::fetch(config, version, broker_epoch, (0, -1), &asked, &[])
            .with_max_wait_ms(0)
            .with_min_bytes(0);
        let answered = tokio::time::timeout_at(deadline.into(), self.way.fetch(request, version));
        match answered.await {
            Ok(Ok(answer)) => self.take_answer(&asked, answer, version).await,
            Ok(Err(error)) => self.not_reached(&error),
            Err(_) => self.give_up_late(),
        }
    }

    async fn take_answer(&mut self, asked: &[Asked], answer: FetchResponse, version: i16) {
        let error = ErrorCode::from_code(answer.error_code);
        if !error.is_none() {
            warn!(target: LOG, former = self.from.0, error = error.name(), "the former leader refuses");
            return self.finish_all();
        }
        let mut data = by_partition(asked, answer, version);
        let bytes: usize =
            data.values().map(|one| one.records.as_ref().map_or(0, |it| it.len())).sum();
        let count = asked.len();
        let mut first: Vec<TakenOver> = self.under_way.drain(..count).collect();
        off_runtime(bytes > 0, || {
            // The answer's size is limited: what comes after a partition with records may have been left out for that.
            let mut is_whole = true;
            let deadline = clock::now() + SILENCE_MAX;
            first.retain_mut(|taken| {
                let outcome = take(taken, data.remove(taken.partition.topic_partition()), is_whole);
                is_whole &= !matches!(outcome, Outcome::Came);
                match outcome {
                    Outcome::Came => {
                        taken.deadline = deadline;
                        true
                    }
                    Outcome::NotYet => true,
                    Outcome::Complete => {
                        lead(taken, "took over all from the former leader");
                        false
                    }
                    Outcome::Refused(error) => {
                        debug!(target: LOG, partition = %taken.partition.topic_partition(), error = error.name(), "the former leader gives nothing");
                        lead(taken, "took over from a former leader that gives nothing");
                        false
                    }
                    Outcome::Failed => {
                        lead(taken, "took over without what the former leader may still have");
                        false
                    }
                }
            });
        });
        if bytes == 0 && !first.is_empty() {
            tokio::time::sleep(ASK_AGAIN).await;
        }
        // Others come first in the next round.
        self.under_way.extend(first);
    }

    fn not_reached(&mut self, error: &LeaderError) {
        let error: &(dyn std::error::Error + 'static) = error.as_ref();
        info!(target: LOG, former = self.from.0, error, "the former leader is not reached: what it took last is not here");
        self.finish_all();
    }

    fn finish_all(&mut self) {
        for taken in self.under_way.drain(..) {
            lead(&taken, "took over without what the former leader may still have");
        }
    }

    fn give_up_late(&mut self) {
        let now = clock::now();
        self.under_way.retain(|taken| {
            let is_late = taken.deadline <= now;
            if is_late {
                warn!(target: LOG, partition = %taken.partition.topic_partition(), former = self.from.0, "the former leader is silent: what it took last is not here");
                lead(taken, "took over without what the former leader may still have");
            }
            !is_late
        });
    }
}

fn ask(taken: &TakenOver) -> Asked {
    let partition = &taken.partition;
    let log = partition.log();
    Asked {
        name: partition.topic_partition().clone(),
        id: partition.topic_id(),
        from: FetchFrom {
            epoch: partition.takes_over(taken.since).unwrap_or(taken.since),
            offset: log.end_offset(),
            last_epoch: log.latest_leader_epoch().unwrap_or(LeaderEpoch::NONE),
        },
        log_start: log.start_offset(),
    }
}

fn by_partition(
    asked: &[Asked],
    answer: FetchResponse,
    version: i16,
) -> HashMap<TopicPartition, PartitionData> {
    let names: HashMap<Uuid, Arc<str>> =
        asked.iter().filter_map(|one| Some((one.id?, one.name.topic.clone()))).collect();
    let mut data = HashMap::new();
    for topic in answer.responses {
        let name = match version >= fetch_wire::TOPIC_IDS {
            true => names.get(&Uuid(topic.topic_id.as_u128())).cloned(),
            false => Some(Arc::from(&*topic.topic.0)),
        };
        let Some(name) = name else { continue };
        for partition in topic.partitions {
            let id = TopicPartition::new(name.clone(), partition.partition_index);
            data.insert(id, partition);
        }
    }
    data
}

/// Appends what came. `is_whole` says that nothing was left out of the answer for its size up to here.
fn take(taken: &TakenOver, data: Option<PartitionData>, is_whole: bool) -> Outcome {
    let Some(data) = data else { return Outcome::Failed };
    match ErrorCode::from_code(data.error_code) {
        ErrorCode::None => {}
        // Either side may be told of the next epoch first.
        ErrorCode::UnknownLeaderEpoch | ErrorCode::FencedLeaderEpoch => return Outcome::NotYet,
        error => return Outcome::Refused(error),
    }
    if data.diverging_epoch.epoch >= 0 {
        return Outcome::Failed;
    }
    let records = data.records.unwrap_or_default();
    if records.is_empty() {
        return if is_whole { Outcome::Complete } else { Outcome::Came };
    }
    match taken.partition.append_taken_over(taken.since, &records) {
        Ok(()) => Outcome::Came,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            warn!(target: LOG, partition = %taken.partition.topic_partition(), error, "could not append what the former leader has");
            Outcome::Failed
        }
    }
}

fn lead(taken: &TakenOver, how: &str) {
    let partition = &taken.partition;
    if partition.end_takeover(taken.since) {
        let (end, epoch) = (partition.log().end_offset(), partition.leader_epoch());
        info!(target: "state.change.logger", partition = %partition.topic_partition(), epoch = epoch.0, end = end.0, "{how}");
    }
}
