//! How a follower copies one partition: where it fetches from, what it cuts off first, what it does about each error.
//! Source: `kafka.server.AbstractFetcherThread`, KIP-101, KIP-595.
//!
//! Since `inter.broker.protocol.version` 2.7 a leader says in its answer to a fetch where the logs part, so that no
//! question about epochs comes first. Older versions are not spoken.

use std::time::{Duration, Instant};

use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
};

/// The copying of one partition from the leader of one epoch. Owned by the fetcher that does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    /// The leader's epoch.
    epoch: LeaderEpoch,
    /// Where to fetch from: the end of the local log.
    offset: Offset,
    /// Epoch of the last local record; `LeaderEpoch::NONE` where it is not known.
    last_epoch: LeaderEpoch,
    state: State,
    /// Nothing is done before this time.
    delayed_until: Option<Instant>,
    /// Errors one after the other.
    errors: u32,
    /// How far it is behind the leader's high watermark; none before the first answer.
    lag: Option<i64>,
}

/// What the first delay is divided by: when a leader is new it may not know yet, and is asked again soon. Each further
/// delay is twice as long, up to the whole back-off. Kafka always takes the whole.
const FIRST_DELAY_PARTS: u32 = 16;

/// What a follower is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The local records have no epochs, so that the leader could not tell where the logs part: what is not committed
    /// goes first. Next: `Fetching`.
    Truncating(Offset),
    /// Next: `OutOfRange`, `Failed`.
    Fetching,
    /// The leader's log does not reach to where this one ends: it is asked for its own ends. Next: `Fetching`, `Failed`.
    OutOfRange,
    /// Nothing is done until the controller speaks.
    Failed,
}

/// The local log, as far as decisions depend on it.
#[derive(Clone, Copy)]
pub struct LocalLog<'a> {
    /// Its end.
    pub end: Offset,
    /// The high watermark.
    pub high_watermark: Offset,
    /// Epoch of its last records; `LeaderEpoch::NONE` where it is not known.
    pub latest_epoch: LeaderEpoch,
    /// The largest epoch at or before a given one, and where it ends; none where there is no such epoch.
    pub end_of_epoch: &'a dyn Fn(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
}

/// What is asked of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchFrom {
    /// The epoch that the follower believes in.
    pub epoch: LeaderEpoch,
    /// Where to read from.
    pub offset: Offset,
    /// Epoch of the record before; `LeaderEpoch::NONE` where it is not known.
    pub last_epoch: LeaderEpoch,
}

/// What comes next for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is to be fetched.
    Fetch(FetchFrom),
    /// Its log is to be cut; then `Follower::truncated`.
    TruncateTo(Offset),
    /// The leader is to be asked for the ends of its log; then `Follower::on_leader_ends`.
    AskEnds,
    /// Nothing before this time.
    Wait(Instant),
    /// Nothing until the controller speaks.
    Stop,
}

/// What a leader answered to a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The error, if there is one.
    pub error: ErrorCode,
    /// The largest epoch that the leader has at or before that of the follower, and where it ends, if the logs part.
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

/// What to do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is of a question that is over.
    Ignore,
    /// Its records are to be appended, and its watermarks taken; then `Follower::appended` or `Follower::failed`.
    Append,
    /// The log is to be cut; then `Follower::truncated` or `Follower::failed`.
    TruncateTo(Offset),
    /// Everything is to be dropped, and the log to begin there; then `Follower::truncated` or `Follower::failed`.
    RestartAt(Offset),
    /// The state has changed: see `Follower::next`.
    GoOn,
}

/// Why the local log did not take what it was to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may work later: the data was corrupt, or the disk is full.
    Passing,
    /// It will not work: the log directory failed, or the records do not fit the log.
    Lasting,
}

impl Follower {
    /// Begins to follow the leader of an epoch.
    pub fn new(epoch: LeaderEpoch, log: &LocalLog<'_>) -> Follower {
        let knows_epochs = log.latest_epoch != LeaderEpoch::NONE;
        let state = match knows_epochs || log.end == log.high_watermark {
            true => State::Fetching,
            false => State::Truncating(log.high_watermark),
        };
        Follower {
            epoch,
            offset: log.end,
            last_epoch: log.latest_epoch,
            state,
            delayed_until: None,
            errors: 0,
            lag: None,
        }
    }

    /// The leader's epoch.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// How far it is behind the leader's high watermark; none before the first answer.
    pub fn lag(&self) -> Option<i64> {
        self.lag
    }

    /// Whether it has given up until the controller speaks.
    pub fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// Whether so many errors came one after the other that the whole back-off is taken.
    pub fn delays_fully(&self) -> bool {
        self.errors >= FIRST_DELAY_PARTS.ilog2()
    }

    /// What comes next.
    pub fn next(&self, now: Instant) -> Next {
        let waits = self.delayed_until.filter(|until| *until > now);
        match (self.state, waits) {
            (State::Failed, _) => Next::Stop,
            (_, Some(until)) => Next::Wait(until),
            (State::Truncating(end), None) => Next::TruncateTo(end),
            (State::OutOfRange, None) => Next::AskEnds,
            (State::Fetching, None) => {
                let Follower { epoch, offset, last_epoch, .. } = *self;
                Next::Fetch(FetchFrom { epoch, offset, last_epoch })
            }
        }
    }

    /// Leaves the partition alone for a while.
    fn delay(&mut self, now: Instant, backoff: Duration) {
        let parts = FIRST_DELAY_PARTS >> self.errors.min(FIRST_DELAY_PARTS.ilog2());
        self.errors = self.errors.saturating_add(1);
        self.delayed_until = Some(now + backoff / parts);
    }

    /// Takes an answer to a fetch. `backoff` is how long the partition is left alone after errors, at most.
    pub fn on_fetched(
        &mut self,
        asked: &FetchFrom,
        answer: &Fetched,
        log: &LocalLog<'_>,
        now: Instant,
        backoff: Duration,
    ) -> Step {
        let is_current = asked.epoch == self.epoch && asked.offset == self.offset;
        if !is_current || self.state != State::Fetching {
            return Step::Ignore;
        }
        match answer.error {
            ErrorCode::None => match answer.diverging {
                Some(diverging) => Step::TruncateTo(common_end(diverging, log)),
                None => Step::Append,
            },
            ErrorCode::OffsetOutOfRange => {
                self.state = State::OutOfRange;
                Step::GoOn
            }
            // The leader knows of a later epoch, which the controller is about to tell.
            ErrorCode::FencedLeaderEpoch => {
                self.state = State::Failed;
                Step::GoOn
            }
            _ => {
                self.delay(now, backoff);
                Step::GoOn
            }
        }
    }

    /// Takes the ends of the leader's log, which this one does not fit.
    ///
    /// A leader that ends before is of an unclean election: what it has not is given up. One that begins later has
    /// deleted what this log would have to go on with. Else it has grown meanwhile, and the fetch is tried again.
    pub fn on_leader_ends(
        &mut self,
        asked: LeaderEpoch,
        ends: Result<(Offset, Offset), ErrorCode>,
        log: &LocalLog<'_>,
        now: Instant,
        backoff: Duration,
    ) -> Step {
        if asked != self.epoch || self.state != State::OutOfRange {
            return Step::Ignore;
        }
        match ends {
            Ok((_, end)) if end < log.end => Step::TruncateTo(end),
            Ok((start, _)) if start > log.end => Step::RestartAt(start),
            Ok(_) => {
                self.state = State::Fetching;
                self.offset = log.end;
                self.last_epoch = log.latest_epoch;
                // The leader may say the same again: it does not know the epoch that this log ends with.
                self.delay(now, backoff);
                Step::GoOn
            }
            Err(ErrorCode::FencedLeaderEpoch) => {
                self.state = State::Failed;
                Step::GoOn
            }
            Err(_) => {
                self.delay(now, backoff);
                Step::GoOn
            }
        }
    }

    /// The log was cut, or begun anew: it ends at `end`, with records of `latest_epoch`.
    pub fn truncated(&mut self, end: Offset, latest_epoch: LeaderEpoch) {
        self.state = State::Fetching;
        self.offset = end;
        self.last_epoch = latest_epoch;
    }

    /// The answer's records, if any, are in the log, which now ends at `end` with records of `latest_epoch`.
    pub fn appended(
        &mut self,
        end: Offset,
        latest_epoch: LeaderEpoch,
        leader_high_watermark: Offset,
    ) {
        self.offset = end;
        self.last_epoch = latest_epoch;
        self.errors = 0;
        self.lag = Some(leader_high_watermark.0.saturating_sub(end.0).max(0));
    }

    /// The local log did not do what it was to do.
    pub fn failed(&mut self, failure: Failure, now: Instant, backoff: Duration) {
        match failure {
            Failure::Passing => self.delay(now, backoff),
            Failure::Lasting => self.state = State::Failed,
        }
    }
}

/// Where the local log is to end, given the leader's answer about an epoch: up to there the two logs are the same, or may
/// be, which the next fetch will show. Source: `AbstractFetcherThread.getOffsetTruncationState`.
fn common_end(diverging: (LeaderEpoch, Offset), log: &LocalLog<'_>) -> Offset {
    let (epoch, leader_end) = diverging;
    match (log.end_of_epoch)(epoch) {
        Some((ours, end)) if ours == epoch => end.min(leader_end).min(log.end),
        // This log has no records of the leader's epoch: all that came after an older one goes.
        Some((_, end)) => end.min(log.end),
        None => leader_end.min(log.end),
    }
}
