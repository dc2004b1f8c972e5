//! What a follower copies, and what a new leader takes over from the former one. The glue of `replication/fetcher.rs`,
//! `copying.rs` and `takeover.rs`, partition by partition.

use common::{
    error_code::ErrorCode,
    ids::{BrokerId, LeaderEpoch, Offset},
};
use partition::follower::{Failure, FetchFrom, Fetched, Follower, LocalLog, Next, Step};
use std::time::Duration;
use storage::{
    error::{AppendError, LogError},
    log::Log,
};

use crate::{
    bugs::Bug,
    disks::Operation,
    network::{self, Fetch, Message, Node, RequestId},
    replica::Role,
    world::{Event, Millis, World},
};

/// `replica.fetch.backoff.ms`.
const BACKOFF: Duration = Duration::from_millis(160);
/// How long a follower that has all waits before it asks again, at most.
const IDLE_MAX: Millis = 60;
/// How long a new leader waits for the former one at most, without anything coming.
const SILENCE_MAX: Millis = 400;
/// How long a former leader that was not told yet is left alone.
const ASK_AGAIN: Millis = 5;

/// The copying of one partition from one broker.
pub struct Copying {
    /// From whom.
    from: BrokerId,
    epoch: LeaderEpoch,
    /// Whose order it is: what belongs to an earlier one is passed over.
    order: u64,
    /// What was asked; one question is under way.
    asked: Option<(RequestId, FetchFrom)>,
    kind: Kind,
}

enum Kind {
    Follow(Follower),
    /// When the former leader is given up, unless something comes.
    TakeOver {
        deadline: Millis,
    },
}

/// Why nothing was copied.
#[derive(Debug)]
enum CopyError {
    Append(AppendError),
    Log(LogError),
}

impl CopyError {
    fn failure(&self) -> Failure {
        match self {
            CopyError::Append(AppendError::Corrupt(_) | AppendError::DiskFull(_)) => {
                Failure::Passing
            }
            CopyError::Log(LogError::Fault(fault)) if fault.is_disk_full() => Failure::Passing,
            CopyError::Append(_) | CopyError::Log(_) => Failure::Lasting,
        }
    }
}

fn with_local_log<T>(log: &Log, decide: impl FnOnce(&LocalLog<'_>) -> T) -> T {
    let end_of_epoch = |epoch| log.end_offset_for_epoch(epoch);
    decide(&LocalLog {
        end: log.end_offset(),
        high_watermark: log.high_watermark(),
        latest_epoch: latest_epoch(log),
        end_of_epoch: &end_of_epoch,
    })
}

fn latest_epoch(log: &Log) -> LeaderEpoch {
    log.latest_leader_epoch().unwrap_or(LeaderEpoch::NONE)
}

impl World {
    /// Begins to follow the leader of an epoch.
    pub fn begin_copying(
        &mut self,
        id: BrokerId,
        partition: i32,
        from: BrokerId,
        epoch: LeaderEpoch,
    ) {
        let Some(replica) = self.replica(id, partition) else { return };
        let log = replica.log.clone();
        if self.options.bug == Some(Bug::TruncatesToTheWatermark) {
            let end = log.high_watermark();
            // The bug does not look.
            let _ = self.cut(id, partition, end);
        }
        let kind = Kind::Follow(with_local_log(&log, |local| Follower::new(epoch, local)));
        self.begin(id, partition, from, epoch, kind);
    }

    /// Begins to get what the former leader has.
    pub fn begin_takeover(
        &mut self,
        id: BrokerId,
        partition: i32,
        from: BrokerId,
        epoch: LeaderEpoch,
    ) {
        let deadline = self.now + SILENCE_MAX;
        self.begin(id, partition, from, epoch, Kind::TakeOver { deadline });
    }

    fn begin(
        &mut self,
        id: BrokerId,
        partition: i32,
        from: BrokerId,
        epoch: LeaderEpoch,
        kind: Kind,
    ) {
        let process = self.process(id);
        process.orders += 1;
        let order = process.orders;
        let Some(replica) = process.replicas.get_mut(&partition) else { return };
        replica.copying = Some(Copying { from, epoch, order, asked: None, kind });
        self.copy_after(id, partition, 1);
    }

    fn copy_after(&mut self, id: BrokerId, partition: i32, delay: Millis) {
        let number = self.process_number(id);
        let Some(replica) = self.replica(id, partition) else { return };
        let Some(order) = replica.copying.as_ref().map(|copying| copying.order) else { return };
        self.after(delay, Event::Copy(id, number, partition, order));
    }

    /// Does what comes next for a partition that is copied.
    pub fn go_on_copying(&mut self, id: BrokerId, partition: i32, order: u64) {
        let (now, virtual_now) = (self.instant_of(id), self.now);
        let broker_epoch = self.process(id).broker_epoch;
        let Some(replica) = self.replica(id, partition) else { return };
        let topic_id = replica.topic_id;
        let (log, Some(copying)) = (replica.log.clone(), &mut replica.copying) else { return };
        if copying.order != order || copying.asked.is_some() {
            return;
        }
        let (from, epoch) = (copying.from, copying.epoch);
        let next = match &copying.kind {
            Kind::Follow(follower) => follower.next(now),
            Kind::TakeOver { deadline } if *deadline <= virtual_now => {
                return self.end_takeover(id, partition, epoch);
            }
            Kind::TakeOver { .. } => {
                let (offset, last_epoch) = (log.end_offset(), latest_epoch(&log));
                Next::Fetch(FetchFrom { epoch, offset, last_epoch })
            }
        };
        match next {
            Next::Fetch(ask) => {
                let log_start = log.start_offset();
                let replica = id;
                let fetch =
                    Fetch { topic_id, partition, replica, broker_epoch, from: ask, log_start };
                let request = self.ask(Node::Broker(id), Node::Broker(from), Message::Fetch(fetch));
                self.set_asked(id, partition, Some((request, ask)));
            }
            Next::AskEnds => {
                let message = Message::Ends(partition, epoch);
                let request = self.ask(Node::Broker(id), Node::Broker(from), message);
                let ask = FetchFrom { epoch, offset: log.end_offset(), last_epoch: epoch };
                self.set_asked(id, partition, Some((request, ask)));
            }
            Next::TruncateTo(end) => {
                self.carry_out(id, partition, Step::TruncateTo(end));
                self.copy_after(id, partition, 1);
            }
            Next::Wait(until) => {
                let delay = until.saturating_duration_since(now).as_millis();
                self.copy_after(id, partition, u64::try_from(delay).unwrap_or(1).max(1));
            }
            Next::Stop => {}
        }
    }

    fn set_asked(&mut self, id: BrokerId, partition: i32, asked: Option<(RequestId, FetchFrom)>) {
        if let Some(replica) = self.replica(id, partition)
            && let Some(copying) = &mut replica.copying
        {
            copying.asked = asked;
        }
    }

    /// A fetch was not answered: the partition is left alone for a while.
    pub fn fetch_was_lost(&mut self, id: BrokerId, request: RequestId) {
        for partition in self.partitions.clone() {
            let Some(replica) = self.replica(id, partition) else { continue };
            let Some(copying) = &mut replica.copying else { continue };
            if copying.asked.is_some_and(|(asked, _)| asked == request) {
                copying.asked = None;
                self.copy_after(id, partition, 40);
            }
        }
    }

    /// Takes the answer to a fetch.
    pub fn take_fetched(
        &mut self,
        id: BrokerId,
        partition: i32,
        request: RequestId,
        answer: network::Fetched,
    ) {
        let now = self.instant_of(id);
        let Some(replica) = self.replica(id, partition) else { return };
        let (log, Some(copying)) = (replica.log.clone(), &mut replica.copying) else { return };
        let Some((_, asked)) = copying.asked.take_if(|(asked, _)| *asked == request) else {
            return;
        };
        let epoch = copying.epoch;
        let Kind::Follow(follower) = &mut copying.kind else {
            return self.take_over(id, partition, epoch, &answer);
        };
        let fetched = Fetched { error: answer.error, diverging: answer.diverging };
        let step = with_local_log(&log, |local| {
            follower.on_fetched(&asked, &fetched, local, now, BACKOFF)
        });
        let is_idle = step == Step::Append && answer.records.is_empty();
        match step {
            Step::Append => self.append_as_follower(id, partition, &answer),
            step => self.carry_out(id, partition, step),
        }
        let delay = if is_idle { self.random.between(1, IDLE_MAX) } else { 1 };
        self.copy_after(id, partition, delay);
    }

    /// Takes the ends of the leader's log.
    pub fn take_ends(
        &mut self,
        id: BrokerId,
        partition: i32,
        request: RequestId,
        ends: Result<(Offset, Offset), ErrorCode>,
    ) {
        let now = self.instant_of(id);
        let Some(replica) = self.replica(id, partition) else { return };
        let (log, Some(copying)) = (replica.log.clone(), &mut replica.copying) else { return };
        if copying.asked.take_if(|(asked, _)| *asked == request).is_none() {
            return;
        }
        let epoch = copying.epoch;
        let Kind::Follow(follower) = &mut copying.kind else { return };
        let step =
            with_local_log(&log, |local| follower.on_leader_ends(epoch, ends, local, now, BACKOFF));
        self.carry_out(id, partition, step);
        self.copy_after(id, partition, 1);
    }

    /// Cuts the log, if that is the step.
    fn carry_out(&mut self, id: BrokerId, partition: i32, step: Step) {
        let cut = match step {
            Step::TruncateTo(end) => self.cut(id, partition, end),
            Step::RestartAt(start) => self.begin_log_at(id, partition, start),
            Step::Ignore | Step::Append | Step::GoOn => return,
        };
        self.tell_follower(id, partition, cut, None);
    }

    /// Cuts a log.
    fn cut(&mut self, id: BrokerId, partition: i32, end: Offset) -> Result<(), CopyError> {
        let Some(replica) = self.replica(id, partition) else { return Ok(()) };
        let log = replica.log.clone();
        let before = log.end_offset();
        let cut = log.truncate_to(end).map_err(CopyError::Log);
        if let Role::Follower { owes, .. } = &mut replica.role {
            *owes = false;
        }
        if end < before {
            self.note(format_args!("broker {id} cuts {partition} from {before} to {end}"));
            self.log_was_cut(id, partition, end);
        }
        cut.map(drop)
    }

    fn begin_log_at(
        &mut self,
        id: BrokerId,
        partition: i32,
        start: Offset,
    ) -> Result<(), CopyError> {
        let Some(replica) = self.replica(id, partition) else { return Ok(()) };
        let begun = replica.log.truncate_fully_and_start_at(start, None).map_err(CopyError::Log);
        self.note(format_args!("broker {id} begins {partition} at {start}"));
        self.log_was_cut(id, partition, Offset::ZERO);
        begun
    }

    fn append_as_follower(&mut self, id: BrokerId, partition: i32, answer: &network::Fetched) {
        if !answer.records.is_empty() {
            self.use_disk(id, partition, Operation::Append);
        }
        let Some(replica) = self.replica(id, partition) else { return };
        let log = replica.log.clone();
        let appended = log.append_as_follower(&answer.records).map_err(CopyError::Append);
        if appended.is_ok() {
            log.set_high_watermark(answer.high_watermark);
            let has_all = answer.high_watermark >= log.end_offset();
            if let Role::Follower { owes, .. } = &mut replica.role
                && (has_all || !answer.records.is_empty())
            {
                *owes = false;
            }
        }
        self.tell_follower(id, partition, appended.map(drop), Some(answer.high_watermark));
    }

    fn tell_follower(
        &mut self,
        id: BrokerId,
        partition: i32,
        done: Result<(), CopyError>,
        high_watermark: Option<Offset>,
    ) {
        if let Err(error) = &done {
            self.note(format_args!("broker {id} cannot copy {partition}: {error:?}"));
        }
        let now = self.instant_of(id);
        let Some(replica) = self.replica(id, partition) else { return };
        let (end, latest) = (replica.log.end_offset(), latest_epoch(&replica.log));
        let Some(Copying { kind: Kind::Follow(follower), .. }) = &mut replica.copying else {
            return;
        };
        match (done, high_watermark) {
            (Ok(()), Some(high_watermark)) => follower.appended(end, latest, high_watermark),
            (Ok(()), None) => follower.truncated(end, latest),
            (Err(error), _) => follower.failed(error.failure(), now, BACKOFF),
        }
    }

    /// Appends what the former leader has given; leads once that is all, or nothing more is to be had.
    fn take_over(
        &mut self,
        id: BrokerId,
        partition: i32,
        epoch: LeaderEpoch,
        answer: &network::Fetched,
    ) {
        if answer.error == ErrorCode::UnknownLeaderEpoch {
            return self.copy_after(id, partition, ASK_AGAIN);
        }
        let new_deadline = self.now + SILENCE_MAX;
        if !answer.records.is_empty() {
            self.use_disk(id, partition, Operation::Append);
        }
        let Some(replica) = self.replica(id, partition) else { return };
        let is_over = !answer.error.is_none() || answer.diverging.is_some();
        let came = !is_over
            && !answer.records.is_empty()
            && replica.log.append_as_follower(&answer.records).is_ok();
        if !came {
            return self.end_takeover(id, partition, epoch);
        }
        if let Some(Copying { kind: Kind::TakeOver { deadline }, .. }) = &mut replica.copying {
            *deadline = new_deadline;
        }
        self.copy_after(id, partition, 1);
    }
}
