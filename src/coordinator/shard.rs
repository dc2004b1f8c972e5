//! A coordinator at work on one partition: its state behind a lock, its requests that wait, and the task that wakes it.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use common::{
    clock,
    ids::{Offset, ProducerEpoch, ProducerId, Timestamp},
};
use parking_lot::Mutex;
use replication::partition::ChangeWaiter;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::log::{Commit, CoordinatorAppendError, CoordinatorLog, LoadError, Loaded, LogRecord};

/// The time, as coordinators are told it.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// For deadlines.
    pub now: Instant,
    /// For what is stored.
    pub wall_clock: Timestamp,
}

impl Time {
    /// The time it is.
    pub fn read() -> Time {
        Time { now: clock::now(), wall_clock: clock::wall_clock() }
    }
}

/// What decides on one partition: the groups, or the transactions. Told of events, it gives steps.
pub trait Coordinator: Send + Sized + 'static {
    /// A request, with the number that its answer will bear.
    type Event: Send;
    /// An answer.
    type Reply: Send + 'static;
    /// What it wants done beyond its log.
    type Effect: Send + 'static;

    /// Takes what is in the log. An error says what is wrong with a record that is passed over.
    fn load(&mut self, loaded: &Loaded<'_>, time: Time) -> Result<(), String>;
    /// All of the log was taken: requests may come.
    fn loaded(&mut self, time: Time, steps: &mut Steps<Self>);
    /// Decides on a request.
    fn on_event(&mut self, event: Self::Event, time: Time, steps: &mut Steps<Self>);
    /// Records that it asked to append are committed, or failed.
    fn on_appended(
        &mut self,
        append: u64,
        result: Result<(), AppendFailure>,
        time: Time,
        steps: &mut Steps<Self>,
    );
    /// When to call `on_wake` at the latest.
    fn next_wake(&self) -> Option<Instant>;
    /// Time has passed.
    fn on_wake(&mut self, time: Time, steps: &mut Steps<Self>);
    /// It is in charge no more: whoever waits is to be told.
    fn resign(&mut self, time: Time, steps: &mut Steps<Self>);
}

/// What a coordinator decided, in order.
pub type Steps<C> = VecDeque<Step<C>>;

/// One thing to do.
pub enum Step<C: Coordinator> {
    /// Append records, and report.
    Append(Append),
    /// Answer the request of this number.
    Reply(u64, C::Reply),
    /// Have something else done.
    Effect(C::Effect),
}

/// Records to append as one batch.
#[derive(Clone, Debug)]
pub struct Append {
    /// The number that the report will bear.
    pub append: u64,
    /// The records; one or more.
    pub records: Vec<LogRecord>,
    /// The producer whose transaction they belong to.
    pub transaction: Option<(ProducerId, ProducerEpoch)>,
    /// How long the commit may take.
    pub timeout: Duration,
}

/// Why records are not committed.
#[derive(Debug)]
pub enum AppendFailure {
    /// Nothing was appended.
    Refused(CoordinatorAppendError),
    /// They are in the log, and the time was up before all in-sync replicas had them.
    TimedOut,
    /// They are in the log, and this broker leads it no more.
    Lost,
}

/// The answer to a request. Fails where the shard is in charge no more.
#[derive(Debug)]
pub enum Answer<R> {
    /// Given at once, as most are; none once it was taken.
    Given(Option<R>),
    /// Still to come.
    Coming(oneshot::Receiver<R>),
}

/// The shard is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator is in charge no more")]
pub struct Closed;

impl<R: Unpin> Future for Answer<R> {
    type Output = Result<R, Closed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Answer::Given(reply) => Poll::Ready(reply.take().ok_or(Closed)),
            Answer::Coming(reply) => Pin::new(reply).poll(context).map_err(|_| Closed),
        }
    }
}

/// A coordinator on one partition, shared by the handlers and its own task.
pub struct Shard<C: Coordinator> {
    log: CoordinatorLog,
    state: Mutex<State<C>>,
    /// The task is to look again: something is due before what it waits for.
    changed: Notify,
    effects: mpsc::UnboundedSender<(i32, C::Effect)>,
}

struct State<C: Coordinator> {
    coordinator: C,
    /// Requests without an answer; at most one for each request that connections have in flight.
    replies: HashMap<u64, oneshot::Sender<C::Reply>>,
    next_reply: u64,
    /// The request that this turn is about, and its answer once there is one.
    asked: Option<(u64, Option<C::Reply>)>,
    /// Appended and not committed, in the order of the log.
    pending: VecDeque<Pending>,
    /// Empty between turns; kept for its room.
    steps: Steps<C>,
    /// When the task wakes by itself.
    wakes_at: Option<Instant>,
    is_closed: bool,
}

#[derive(Debug)]
struct Pending {
    append: u64,
    end: Offset,
    deadline: Instant,
}

impl<C: Coordinator> fmt::Debug for Shard<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shard").field("log", &self.log).finish_non_exhaustive()
    }
}

impl<C: Coordinator> Shard<C> {
    /// Loads the log into a new coordinator; `begin` comes next. Reads files: not for a thread of the runtime. What cannot
    /// be understood is said, and passed over. Effects are sent with the partition's number.
    pub fn load(
        log: CoordinatorLog,
        mut coordinator: C,
        buffer_bytes: usize,
        effects: mpsc::UnboundedSender<(i32, C::Effect)>,
    ) -> Result<(Arc<Shard<C>>, u64), LoadError> {
        let partition = log.partition().topic_partition().clone();
        let began = Time::read();
        let count = log.load(buffer_bytes, &mut |loaded| {
            let problem = match &loaded {
                Loaded::Unreadable { reason, .. } => Some(reason.clone()),
                Loaded::Record { .. } | Loaded::Marker { .. } => {
                    coordinator.load(&loaded, began).err()
                }
            };
            if let Some(problem) = problem {
                let offset = match &loaded {
                    Loaded::Record { record, .. } => record.offset,
                    Loaded::Unreadable { offset, .. } => *offset,
                    Loaded::Marker { .. } => Offset::NONE,
                };
                tracing::error!(%partition, %offset, problem, "passes over what it cannot read");
            }
        })?;
        let state = State {
            coordinator,
            replies: HashMap::new(),
            next_reply: 0,
            asked: None,
            pending: VecDeque::new(),
            steps: Steps::new(),
            wakes_at: None,
            is_closed: false,
        };
        let shard = Shard { log, state: Mutex::new(state), changed: Notify::new(), effects };
        Ok((Arc::new(shard), count))
    }

    /// Takes office, once whoever does its effects can find the shard: what they report must not be lost.
    pub fn begin(&self) {
        let mut state = self.state.lock();
        self.turn(&mut state, |coordinator, time, steps| coordinator.loaded(time, steps));
    }

    /// The log.
    pub fn log(&self) -> &CoordinatorLog {
        &self.log
    }

    /// Hands in a request: `event` makes it with the number of its answer.
    pub fn request(&self, event: impl FnOnce(u64) -> C::Event) -> Answer<C::Reply> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Answer::Given(None);
        }
        let number = state.next_reply;
        state.next_reply += 1;
        state.asked = Some((number, None));
        self.turn(&mut state, |coordinator, time, steps| {
            coordinator.on_event(event(number), time, steps);
        });
        if let Some((_, Some(reply))) = state.asked.take() {
            return Answer::Given(Some(reply));
        }
        let (sender, receiver) = oneshot::channel();
        state.replies.insert(number, sender);
        Answer::Coming(receiver)
    }

    /// Tells of something that has no answer.
    pub fn tell(&self, event: C::Event) {
        self.act(|coordinator, time, steps| coordinator.on_event(event, time, steps));
    }

    /// Has the coordinator do something that nobody asked for.
    pub fn act(&self, act: impl FnOnce(&mut C, Time, &mut Steps<C>)) {
        let mut state = self.state.lock();
        if !state.is_closed {
            self.turn(&mut state, act);
        }
    }

    /// Reads the state.
    pub fn read<T>(&self, read: impl FnOnce(&C) -> T) -> T {
        read(&self.state.lock().coordinator)
    }

    /// Ends the shard: whoever waits is told.
    pub fn close(&self) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        self.turn(&mut state, |coordinator, time, steps| coordinator.resign(time, steps));
        state.is_closed = true;
        state.replies.clear();
        state.pending.clear();
        self.changed.notify_one();
    }

    /// Wakes the coordinator in time, and reports what is committed, until the shard is closed or the broker stops.
    pub async fn keep(self: Arc<Shard<C>>, stop: CancellationToken) {
        loop {
            let Some((due, waits)) = self.look() else { return };
            // Registered first and looked again, so that no commit in between is missed.
            let waiter = waits.then(|| ChangeWaiter::new(vec![self.log.partition().clone()]));
            if waits && self.look().is_none() {
                return;
            }
            let commits = async {
                match &waiter {
                    Some(waiter) => waiter.changed().await,
                    None => std::future::pending().await,
                }
            };
            let time_is_up = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                () = commits => {}
                () = time_is_up => {}
            }
        }
    }

    /// Does what is due. Tells when the next thing is, and whether appends wait; nothing once closed.
    fn look(&self) -> Option<(Option<Instant>, bool)> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        let now = clock::now();
        if state.coordinator.next_wake().is_some_and(|due| due <= now) {
            self.turn(&mut state, |coordinator, time, steps| coordinator.on_wake(time, steps));
        } else if !state.pending.is_empty() {
            self.turn(&mut state, |_, _, _| {});
        }
        state.wakes_at = state.next_due();
        Some((state.wakes_at, !state.pending.is_empty()))
    }

    /// Lets the coordinator decide, and does what it decided.
    fn turn(&self, state: &mut State<C>, decide: impl FnOnce(&mut C, Time, &mut Steps<C>)) {
        let (mut steps, time) = (std::mem::take(&mut state.steps), Time::read());
        let had_none = state.pending.is_empty();
        self.report_commits(state, time, &mut steps);
        decide(&mut state.coordinator, time, &mut steps);
        self.carry_out(state, &mut steps, time);
        state.steps = steps;
        let due = state.next_due();
        let is_sooner = due.is_some_and(|due| state.wakes_at.is_none_or(|at| due < at));
        // The keeper does not watch the partition while nothing waits for replicas.
        let begins_to_wait = had_none && !state.pending.is_empty();
        if is_sooner || begins_to_wait {
            state.wakes_at = due;
            self.changed.notify_one();
        }
    }

    fn carry_out(&self, state: &mut State<C>, steps: &mut Steps<C>, time: Time) {
        while let Some(step) = steps.pop_front() {
            match step {
                Step::Append(append) => self.append(state, &append, time, steps),
                Step::Reply(number, reply) => {
                    if let Some((asked, answer)) = &mut state.asked
                        && *asked == number
                    {
                        *answer = Some(reply);
                    } else if let Some(waiting) = state.replies.remove(&number) {
                        // Nobody waits where the connection's task has ended.
                        let _ = waiting.send(reply);
                    }
                }
                Step::Effect(effect) => {
                    let partition = self.log.partition().topic_partition().partition;
                    // At the stop of the broker nobody takes effects any more.
                    let _ = self.effects.send((partition, effect));
                }
            }
        }
    }

    fn append(&self, state: &mut State<C>, append: &Append, time: Time, steps: &mut Steps<C>) {
        let appended = self.log.append(&append.records, append.transaction, time.wall_clock);
        let result = match appended {
            Ok(end) if self.log.commit_of(end) == Commit::Done => Ok(()),
            Ok(end) => {
                let deadline = time.now + append.timeout;
                state.pending.push_back(Pending { append: append.append, end, deadline });
                return;
            }
            Err(error) => Err(AppendFailure::Refused(error)),
        };
        // What follows from it comes after what is decided already, so that appends keep their order.
        state.coordinator.on_appended(append.append, result, time, steps);
    }

    /// Reports what has become of the appends that wait.
    fn report_commits(&self, state: &mut State<C>, time: Time, steps: &mut Steps<C>) {
        while let Some(first) = state.pending.front() {
            let result = match self.log.commit_of(first.end) {
                Commit::Done => Ok(()),
                Commit::Lost => Err(AppendFailure::Lost),
                Commit::Waiting if first.deadline <= time.now => Err(AppendFailure::TimedOut),
                Commit::Waiting => return,
            };
            let append = first.append;
            state.pending.pop_front();
            state.coordinator.on_appended(append, result, time, steps);
        }
    }
}

impl<C: Coordinator> State<C> {
    fn next_due(&self) -> Option<Instant> {
        let commit = self.pending.front().map(|pending| pending.deadline);
        let wake = self.coordinator.next_wake();
        match (commit, wake) {
            (Some(commit), Some(wake)) => Some(commit.min(wake)),
            (one, other) => one.or(other),
        }
    }
}
