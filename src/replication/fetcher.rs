//! A fetcher: copies some of the partitions that one other broker leads. A task that owns its partitions' states.
//! Source: `kafka.server.AbstractFetcherThread`, `FetchSessionHandler`.
//!
//! A round looks at the partitions that have changed since the last one, and at no other: an idle one is in the fetch
//! session, where the leader watches it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    clock,
    error_code::ErrorCode,
    ids::{BrokerId, LeaderEpoch, Offset},
    topic::{TopicPartition, Uuid},
};
use kafka_protocol::messages::{FetchResponse, fetch_response::PartitionData};
use partition::follower::{Failure, FetchFrom, Fetched, Follower, Next, Step};
use tracing::{debug, info, warn};

use crate::{
    copying::{CopyError, Sent},
    fetch_wire::{self, Asked, EndsAsked},
    fetchers::{FetchersShared, Order, Orders},
    leaders::{Leader, LeaderError},
    partition::Partition,
    said::Said,
};

const LOG: &str = "kafka.server.ReplicaFetcherThread";
/// Answers with more bytes than this are appended off the runtime's threads. What is below takes a quarter of a millisecond;
/// to leave the runtime wakes another thread each time, which costs a fifth of all a follower does at 64 KiB batches.
const QUICK_BYTES_MAX: usize = 512 << 10;

/// How long a throttled partition is left alone before it is looked at again.
const THROTTLE_PAUSE: Duration = Duration::from_millis(500);

/// How often a leader is asked where the logs begin of which nothing is copied for want of room: what it deleted makes some.
const ASK_STARTS: Duration = Duration::from_secs(10);

/// A partition that is copied.
struct Copied {
    partition: Arc<Partition>,
    follower: Follower,
    /// What the fetch session knows of it; none where it is not in the session.
    asked: Option<(FetchFrom, Offset)>,
    has_failed: bool,
    said: Said,
}

/// The fetch session with the leader.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// 0 where there is none.
    id: i32,
    /// 0 asks for a new one: the request names every partition.
    epoch: i32,
    /// Whether it names topics by id.
    by_id: bool,
}

/// Copies partitions until there are none left.
pub(crate) struct Fetcher {
    shared: Arc<FetchersShared>,
    leader: BrokerId,
    way: Box<dyn Leader>,
    orders: Arc<Orders>,
    number: u64,
    partitions: HashMap<TopicPartition, Copied>,
    names_by_id: HashMap<Uuid, Arc<str>>,
    /// How many partitions have no topic id.
    without_id: usize,
    session: Session,
    /// Partitions to look at in the next round.
    due: HashSet<TopicPartition>,
    /// Partitions that are left alone till a time.
    delayed: BTreeSet<(Instant, TopicPartition)>,
    /// Partitions in the session that shall not be.
    to_forget: Vec<(TopicPartition, Option<Uuid>)>,
    /// Nothing is sent before this time: the leader was not reached.
    retry_at: Option<Instant>,
    /// When the leader is next asked where logs begin that wait for room.
    ask_starts_at: Instant,
    /// Whether the leader did not answer when it was last asked.
    is_away: bool,
    /// Partitions that are behind, and how far.
    lags: HashMap<TopicPartition, i64>,
    /// Where the next full request begins, so that a leader without room for a session serves all.
    rotation: usize,
}

/// What a round asks of the leader.
enum Ask {
    Fetch(Vec<Asked>),
    Ends(Vec<EndsAsked>),
    Starts(Vec<EndsAsked>),
    Nothing,
}

impl Fetcher {
    pub(crate) fn new(
        shared: Arc<FetchersShared>,
        (leader, index): (BrokerId, usize),
        orders: Arc<Orders>,
    ) -> Fetcher {
        Fetcher {
            way: shared.leaders.way_to(leader, index),
            number: shared.metrics.number(),
            shared,
            leader,
            orders,
            partitions: HashMap::new(),
            names_by_id: HashMap::new(),
            without_id: 0,
            session: Session::default(),
            due: HashSet::new(),
            delayed: BTreeSet::new(),
            to_forget: Vec::new(),
            retry_at: None,
            ask_starts_at: clock::now(),
            is_away: false,
            lags: HashMap::new(),
            rotation: 0,
        }
    }

    pub(crate) async fn run(mut self) {
        let (stop, leader) = (self.shared.stop.clone(), self.leader);
        debug!(target: LOG, leader = leader.0, "fetcher starts");
        stop.run_until_cancelled(self.fetch()).await;
        for copied in self.partitions.values().filter(|copied| copied.has_failed) {
            debug!(target: LOG, partition = %copied.partition.topic_partition(), "left as failed");
            self.shared.metrics.failed_partitions.add(-1);
        }
        self.shared.metrics.set_lag(self.number, None);
        debug!(target: LOG, leader = leader.0, "fetcher ends");
    }

    async fn fetch(&mut self) {
        loop {
            self.take_orders();
            if self.partitions.is_empty() && self.orders.end_if_none() {
                return;
            }
            let now = clock::now();
            while let Some((_, name)) = self.delayed.first().filter(|(at, _)| *at <= now).cloned() {
                self.delayed.pop_first();
                self.due.insert(name);
            }
            let ask = match self.retry_at {
                Some(at) if at > now => Ask::Nothing,
                _ => self.look(now),
            };
            match ask {
                Ask::Fetch(asked) => self.send_fetch(asked).await,
                Ask::Ends(asked) => self.ask_for_ends(asked).await,
                Ask::Starts(asked) => self.ask_for_starts(asked).await,
                Ask::Nothing => self.wait().await,
            }
        }
    }

    /// Waits for orders, or for the end of a delay.
    async fn wait(&self) {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        let until = delayed.into_iter().chain(self.retry_at).min();
        let told = self.orders.notify.notified();
        match until {
            Some(at) => {
                // Either is a reason to look again.
                let _ = tokio::time::timeout_at(at.into(), told).await;
            }
            None => told.await,
        }
    }

    fn take_orders(&mut self) {
        for (name, order) in self.orders.take() {
            self.leave(&name);
            if let Order::Follow(partition, epoch) = order {
                self.follow(name, partition, epoch);
            }
        }
    }

    fn follow(&mut self, name: TopicPartition, partition: Arc<Partition>, epoch: LeaderEpoch) {
        let follower = partition.with_local_log(|log| Follower::new(epoch, log));
        match partition.topic_id() {
            Some(id) => drop(self.names_by_id.insert(id, name.topic.clone())),
            None => self.without_id += 1,
        }
        info!(target: LOG, partition = %name, leader = self.leader.0, epoch = epoch.0, offset = partition.log().end_offset().0, "follows");
        let copied =
            Copied { partition, follower, asked: None, has_failed: false, said: Said::default() };
        self.partitions.insert(name.clone(), copied);
        self.due.insert(name);
    }

    fn leave(&mut self, name: &TopicPartition) {
        let Some(copied) = self.partitions.remove(name) else { return };
        let id = copied.partition.topic_id();
        if id.is_none() {
            self.without_id -= 1;
        }
        if copied.asked.is_some() {
            self.to_forget.push((name.clone(), id));
        }
        if copied.has_failed {
            self.shared.metrics.failed_partitions.add(-1);
        }
        self.due.remove(name);
        self.set_lag(name, 0);
    }

    fn set_lag(&mut self, name: &TopicPartition, lag: i64) {
        let changed = match lag {
            0 => self.lags.remove(name).is_some(),
            _ => self.lags.insert(name.clone(), lag) != Some(lag),
        };
        if changed {
            let largest = self.lags.values().copied().max().unwrap_or(0);
            self.shared.metrics.set_lag(self.number, Some(largest));
        }
    }

    /// Looks at what is due: cuts logs that are to be cut, and finds out what to ask.
    fn look(&mut self, now: Instant) -> Ask {
        self.retry_at = None;
        let by_id = self.without_id == 0;
        if self.session.epoch != 0 && self.session.by_id != by_id {
            self.restart_session();
        }
        if self.session.epoch == 0 {
            self.session.by_id = by_id;
            // A full request names all, and by that forgets the others.
            self.to_forget.clear();
            self.partitions.values_mut().for_each(|copied| copied.asked = None);
            self.due.extend(self.partitions.keys().cloned());
        }
        let (mut to_fetch, mut to_ask) = (Vec::new(), Vec::new());
        let mut wait_for_room = false;
        for name in std::mem::take(&mut self.due) {
            match self.look_at(&name, now) {
                Next::Fetch(_) if self.is_throttled(&name, now) => {
                    wait_for_room |= self.waits_for_room(&name);
                    self.forget(&name);
                    self.delayed.insert((now + THROTTLE_PAUSE, name));
                }
                Next::Fetch(from) => to_fetch.extend(self.asked(&name, from)),
                Next::AskEnds => to_ask.extend(self.partitions.get(&name).map(|copied| {
                    EndsAsked { name: name.clone(), epoch: copied.follower.epoch() }
                })),
                Next::Wait(until) => {
                    self.forget(&name);
                    self.delayed.insert((until, name));
                }
                Next::TruncateTo(_) | Next::Stop => self.forget(&name),
            }
        }
        if !to_ask.is_empty() {
            // What was to be fetched is looked at again afterwards.
            self.due.extend(to_fetch.into_iter().map(|asked| asked.name));
            self.due.extend(to_ask.iter().map(|asked: &EndsAsked| asked.name.clone()));
            return Ask::Ends(to_ask);
        }
        if wait_for_room && self.ask_starts_at <= now {
            self.ask_starts_at = now + ASK_STARTS;
            self.due.extend(to_fetch.into_iter().map(|asked| asked.name));
            let waiting =
                self.partitions.iter().filter(|(_, copied)| copied.partition.waits_for_room());
            let asked = waiting.map(|(name, copied)| EndsAsked {
                name: name.clone(),
                epoch: copied.follower.epoch(),
            });
            return Ask::Starts(asked.collect());
        }
        let is_in_session = self.session.epoch != 0
            && self.partitions.values().any(|copied| copied.asked.is_some());
        match is_in_session || !to_fetch.is_empty() || !self.to_forget.is_empty() {
            true => Ask::Fetch(to_fetch),
            false => Ask::Nothing,
        }
    }

    /// Does what can be done at once, and gives what remains.
    fn look_at(&mut self, name: &TopicPartition, now: Instant) -> Next {
        let backoff = self.shared.config.backoff;
        let Some(copied) = self.partitions.get_mut(name) else { return Next::Stop };
        if let Next::TruncateTo(end) = copied.follower.next(now) {
            copied.cut(Step::TruncateTo(end), now, backoff);
        }
        let next = copied.follower.next(now);
        if next == Next::Stop && !copied.has_failed {
            copied.has_failed = true;
            self.shared.metrics.failed_partitions.add(1);
            warn!(target: LOG, partition = %name, epoch = copied.follower.epoch().0, "is not copied until the controller speaks");
        }
        next
    }

    /// Whether a partition has to wait for room, or for the rate of throttled ones to come down. One that is in sync does
    /// not, or it would fall out. Source: `RemoteLeaderEndPoint.shouldFollowerThrottle`.
    fn is_throttled(&self, name: &TopicPartition, now: Instant) -> bool {
        let Some(copied) = self.partitions.get(name) else { return false };
        let partition = &copied.partition;
        let is_fast = copied.follower.lag() != Some(0)
            && partition.is_throttled_as_follower()
            && partition.surroundings().follower_quota.is_exceeded(now);
        is_fast || partition.waits_for_room()
    }

    fn waits_for_room(&self, name: &TopicPartition) -> bool {
        self.partitions.get(name).is_some_and(|copied| copied.partition.waits_for_room())
    }

    /// What to tell the leader of a partition, if that is new.
    fn asked(&self, name: &TopicPartition, from: FetchFrom) -> Option<Asked> {
        let copied = self.partitions.get(name)?;
        let log_start = copied.partition.log().start_offset();
        let is_known = copied.asked == Some((from, log_start));
        let id = copied.partition.topic_id();
        (!is_known).then(|| Asked { name: name.clone(), id, from, log_start })
    }

    fn forget(&mut self, name: &TopicPartition) {
        if let Some(copied) = self.partitions.get_mut(name)
            && copied.asked.take().is_some()
        {
            self.to_forget.push((name.clone(), copied.partition.topic_id()));
        }
    }

    /// The next request asks for a new session; the leader may drop the one there was.
    fn restart_session(&mut self) {
        self.session.epoch = 0;
    }

    async fn send_fetch(&mut self, mut asked: Vec<Asked>) {
        asked.sort_by(|left, right| left.name.cmp(&right.name));
        if self.session.epoch == 0 && !asked.is_empty() {
            self.rotation = (self.rotation + 1) % asked.len();
            asked.rotate_left(self.rotation);
        }
        for Asked { name, from, log_start, .. } in &asked {
            if let Some(copied) = self.partitions.get_mut(name) {
                copied.asked = Some((*from, *log_start));
            }
        }
        let mut forgotten = std::mem::take(&mut self.to_forget);
        // One that was left and is followed again is not forgotten: the leader forgets last.
        let is_asked: HashSet<_> = asked.iter().map(|asked| (&asked.name, asked.id)).collect();
        forgotten.retain(|(name, id)| !is_asked.contains(&(name, *id)));
        let config = &self.shared.config;
        let version = fetch_wire::fetch_version(config.protocol, self.session.by_id);
        let session = (self.session.id, self.session.epoch);
        let broker_epoch = self.shared.broker_epoch();
        let request = fetch_wire::fetch(config, version, broker_epoch, session, &asked, &forgotten);
        match self.way.fetch(request, version).await {
            Ok(answer) => {
                if std::mem::take(&mut self.is_away) {
                    info!(target: LOG, leader = self.leader.0, "the leader answers again");
                }
                self.take_answer(answer, version);
            }
            Err(error) => self.not_reached(&error),
        }
    }

    fn not_reached(&mut self, error: &LeaderError) {
        let error: &(dyn std::error::Error + 'static) = error.as_ref();
        // One line for a leader that is away, however long.
        match std::mem::replace(&mut self.is_away, true) {
            false => warn!(target: LOG, leader = self.leader.0, error, "no answer from the leader"),
            true => debug!(target: LOG, leader = self.leader.0, error, "no answer from the leader"),
        }
        self.restart_session();
        self.retry_at = Some(clock::now() + self.shared.config.backoff);
    }

    fn take_answer(&mut self, answer: FetchResponse, version: i16) {
        let error = ErrorCode::from_code(answer.error_code);
        if !error.is_none() {
            info!(target: LOG, leader = self.leader.0, error = error.name(), "the leader refuses the fetch");
            if error == ErrorCode::FetchSessionIdNotFound {
                self.session.id = 0;
            }
            let of_session =
                [ErrorCode::FetchSessionIdNotFound, ErrorCode::InvalidFetchSessionEpoch];
            if !of_session.contains(&error) {
                self.retry_at = Some(clock::now() + self.shared.config.backoff);
            }
            return self.restart_session();
        }
        self.session.epoch = match (answer.session_id, self.session.epoch) {
            // The leader has no room for a session.
            (0, _) => 0,
            (_, i32::MAX) => 1,
            (_, epoch) => epoch + 1,
        };
        self.session.id = answer.session_id;
        let records = answer.responses.iter().flat_map(|topic| &topic.partitions);
        let bytes: usize = records.map(|one| one.records.as_ref().map_or(0, Bytes::len)).sum();
        off_runtime(bytes > QUICK_BYTES_MAX, || {
            for topic in answer.responses {
                let name = match version >= fetch_wire::TOPIC_IDS {
                    true => self.names_by_id.get(&Uuid(topic.topic_id.as_u128())).cloned(),
                    false => Some(Arc::from(&*topic.topic.0)),
                };
                let Some(name) = name else { continue };
                for partition in topic.partitions {
                    let name = TopicPartition::new(name.clone(), partition.partition_index);
                    self.take_partition(&name, partition);
                }
            }
        });
    }

    fn take_partition(&mut self, name: &TopicPartition, answer: PartitionData) {
        let Some(copied) = self.partitions.get_mut(name) else { return };
        let Some((asked, _)) = copied.asked else { return };
        let (now, backoff) = (clock::now(), self.shared.config.backoff);
        let diverging = &answer.diverging_epoch;
        let fetched = Fetched {
            error: ErrorCode::from_code(answer.error_code),
            diverging: (diverging.epoch >= 0)
                .then_some((LeaderEpoch(diverging.epoch), Offset(diverging.end_offset))),
        };
        if !fetched.error.is_none() {
            // A leader that is new may not know yet; one that goes on refusing is worth a line.
            let is_worth = copied.follower.delays_fully();
            match is_worth && copied.said.is_news(fetched.error.name(), now) {
                true => {
                    info!(target: LOG, partition = %name, leader = self.leader.0, error = fetched.error.name(), "the leader refuses the partition")
                }
                false => {
                    debug!(target: LOG, partition = %name, leader = self.leader.0, error = fetched.error.name(), "the leader refuses the partition")
                }
            }
        }
        let step = copied
            .partition
            .clone()
            .with_local_log(|log| copied.follower.on_fetched(&asked, &fetched, log, now, backoff));
        match step {
            Step::Ignore => return,
            Step::Append => copied.append(&answer, now, backoff),
            Step::TruncateTo(_) | Step::RestartAt(_) => {
                if let Some((epoch, end)) = fetched.diverging {
                    info!(target: LOG, partition = %name, leader_epoch = epoch.0, leader_end = end.0, "the logs part");
                }
                copied.cut(step, now, backoff);
            }
            Step::GoOn => {}
        }
        let lag = copied.follower.lag().unwrap_or(0);
        self.set_lag(name, lag);
        self.due.insert(name.clone());
    }

    /// Asks for the ends of logs that these here do not fit.
    async fn ask_for_ends(&mut self, asked: Vec<EndsAsked>) {
        let config = &self.shared.config;
        let version = fetch_wire::list_offsets_version(config.protocol);
        let mut ends: Vec<HashMap<TopicPartition, Result<Offset, ErrorCode>>> = Vec::new();
        for timestamp in [fetch_wire::EARLIEST, fetch_wire::LATEST] {
            let request = fetch_wire::list_offsets(config, timestamp, &asked);
            match self.way.list_offsets(request, version).await {
                Ok(answer) => ends.push(fetch_wire::offsets(answer)),
                Err(error) => return self.not_reached(&error),
            }
        }
        let (now, backoff) = (clock::now(), self.shared.config.backoff);
        for EndsAsked { name, epoch } in asked {
            let missing = Err(ErrorCode::UnknownTopicOrPartition);
            let [start, end] = [&ends[0], &ends[1]].map(|of| *of.get(&name).unwrap_or(&missing));
            let answer = start.and_then(|start| Ok((start, end?)));
            let Some(copied) = self.partitions.get_mut(&name) else { continue };
            let step = copied.partition.clone().with_local_log(|log| {
                copied.follower.on_leader_ends(epoch, answer, log, now, backoff)
            });
            info!(target: LOG, partition = %name, ?answer, ?step, end = copied.partition.log().end_offset().0, "the fetch was out of the leader's range");
            copied.cut(step, now, backoff);
            self.due.insert(name);
        }
    }

    /// Asks where logs begin of which nothing is copied for want of room, and deletes what the leader has deleted.
    async fn ask_for_starts(&mut self, asked: Vec<EndsAsked>) {
        let config = &self.shared.config;
        let version = fetch_wire::list_offsets_version(config.protocol);
        let request = fetch_wire::list_offsets(config, fetch_wire::EARLIEST, &asked);
        let starts = match self.way.list_offsets(request, version).await {
            Ok(answer) => fetch_wire::offsets(answer),
            Err(error) => return self.not_reached(&error),
        };
        off_runtime(true, || {
            for EndsAsked { name, epoch } in asked {
                let Some(copied) = self.partitions.get_mut(&name) else { continue };
                let Some(Ok(start)) = starts.get(&name) else { continue };
                if let Err(error) = copied.partition.begin_as_follower(epoch, *start) {
                    let (now, backoff) = (clock::now(), self.shared.config.backoff);
                    copied.has_not(&error, now, backoff);
                }
            }
        });
    }
}

impl Copied {
    fn append(&mut self, answer: &PartitionData, now: Instant, backoff: Duration) {
        let sent = Sent {
            records: answer.records.as_deref().unwrap_or_default(),
            high_watermark: Offset(answer.high_watermark),
            log_start: Offset(answer.log_start_offset),
        };
        match self.partition.append_as_follower(self.follower.epoch(), sent) {
            Ok(end) => self.follower.appended(end.end, end.latest_epoch, sent.high_watermark),
            Err(error) => self.has_not(&error, now, backoff),
        }
    }

    /// Cuts the log, if that is the step.
    fn cut(&mut self, step: Step, now: Instant, backoff: Duration) {
        let epoch = self.follower.epoch();
        let cut = off_runtime(true, || match step {
            Step::TruncateTo(end) => Some(self.partition.truncate_as_follower(epoch, end)),
            Step::RestartAt(start) => Some(self.partition.restart_as_follower(epoch, start)),
            Step::Ignore | Step::Append | Step::GoOn => None,
        });
        match cut {
            None => {}
            Some(Ok(end)) => self.follower.truncated(end.end, end.latest_epoch),
            Some(Err(error)) => self.has_not(&error, now, backoff),
        }
    }

    fn has_not(&mut self, error: &CopyError, now: Instant, backoff: Duration) {
        // Where the leader is not followed any more an order is on its way.
        let failure = error.failure().unwrap_or(Failure::Passing);
        if !matches!(error, CopyError::Superseded) && self.said.is_news(&error.to_string(), now) {
            warn!(target: LOG, partition = %self.partition.topic_partition(), error = error as &dyn std::error::Error, "could not copy");
        }
        self.follower.failed(failure, now, backoff);
    }
}

/// Does something that may take long, and leaves the other tasks of this thread to other threads meanwhile.
pub(crate) fn off_runtime<T>(is_long: bool, work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let can_leave = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    match is_long && can_leave {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}
