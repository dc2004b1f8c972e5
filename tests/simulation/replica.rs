//! A partition on a broker: its role, produces and fetches. The glue of `replication/partition.rs`,
//! `replica_manager.rs`, and of the server's handlers for produces and fetches, without locks and without sessions.

use std::{os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{BrokerId, LeaderEpoch, Offset, PartitionEpoch, Timestamp},
    topic::Uuid,
};
use partition::leader::{
    Circumstances, FollowerFetch, Leader, Leadership, Proposal, Verdict, is_one_log,
};
use record::{
    batch::{BatchHeader, TimestampType},
    compression::BrokerCompression,
    control::{EndTransactionMarker, marker_batch},
    validate::{self, Rules, check},
};
use storage::{
    error::{AppendError, LogError},
    log::Log,
    log_append::Appended,
    log_read::Region,
    producer_state::ProducerError,
    verification::VerificationGuard,
};

use crate::{
    broker::{Process, Verification},
    bugs::Bug,
    copies::{Content, Stored, parse},
    copying::Copying,
    disks::Operation,
    network::{Consume, Consumed, Fetch, Fetched, Message, Node, Origin, Produce, RequestId},
    world::{Event, IN_SYNC_MIN, LAG_TIME_MAX, World},
};

/// Bytes of one answer.
const ANSWER_BYTES_MAX: usize = 2000;

/// A partition that a broker was told of.
pub struct Replica {
    /// The topic's id.
    pub topic_id: Uuid,
    /// Its log.
    pub log: Arc<Log>,
    /// What the broker is to it.
    pub role: Role,
    /// What is copied from another broker: as a follower, or while it is taken over.
    pub copying: Option<Copying>,
    /// Produces with acks=all that are not answered yet.
    waiting: Vec<Waiting>,
}

/// What a broker is to a partition.
pub enum Role {
    /// Not told yet.
    None,
    /// Takes produces, answers fetches.
    Leader(Leader),
    /// Is to lead, and gets what the former leader has.
    TakingOver(Leadership),
    /// Copies from the leader.
    Follower {
        /// The leader.
        leader: BrokerId,
        /// Its epoch.
        epoch: LeaderEpoch,
        /// The version of the state.
        partition_epoch: PartitionEpoch,
        /// The broker led before, and the new leader may not have all that it took.
        owes: bool,
    },
}

/// A produce that waits for the high watermark.
struct Waiting {
    from: Node,
    request: RequestId,
    first: Offset,
    end: Offset,
    epoch: LeaderEpoch,
}

/// What has become of appended records.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Commit {
    Done,
    Waiting,
    NotEnoughReplicas,
    Lost,
}

/// The controller's word on a partition.
pub struct Word {
    /// The topic's id.
    pub topic_id: Uuid,
    /// Whether the replica was just made.
    pub is_new: bool,
    /// The leader.
    pub leader: BrokerId,
    /// Epochs, in-sync set and assignment.
    pub leadership: Leadership,
}

impl Role {
    /// The leader's epoch; `LeaderEpoch::NONE` before the controller has spoken.
    pub fn epoch(&self) -> LeaderEpoch {
        match self {
            Role::None => LeaderEpoch::NONE,
            Role::Leader(leader) => leader.epoch(),
            Role::TakingOver(leadership) => leadership.epoch,
            Role::Follower { epoch, .. } => *epoch,
        }
    }

    fn partition_epoch(&self) -> PartitionEpoch {
        match self {
            Role::None => PartitionEpoch(-1),
            Role::Leader(leader) => leader.partition_epoch(),
            Role::TakingOver(leadership) => leadership.partition_epoch,
            Role::Follower { partition_epoch, .. } => *partition_epoch,
        }
    }
}

impl Replica {
    fn new(topic_id: Uuid, log: Arc<Log>) -> Replica {
        Replica { topic_id, log, role: Role::None, copying: None, waiting: Vec::new() }
    }

    /// Whether the log's directory works.
    pub fn has_disk(&self) -> bool {
        !self.log.log_directory().is_offline()
    }

    /// Checks that it is of the topic that is asked for by its id.
    fn check_topic(&self, id: Uuid) -> Result<(), ErrorCode> {
        if self.topic_id == id { Ok(()) } else { Err(ErrorCode::InconsistentTopicId) }
    }

    fn check_disk(&self) -> Result<(), ErrorCode> {
        if self.has_disk() { Ok(()) } else { Err(ErrorCode::KafkaStorageError) }
    }

    /// Checks that the asker may use the partition, and knows its leader.
    fn check_access(&self, leader_only: bool, epoch: LeaderEpoch) -> Result<(), ErrorCode> {
        self.check_disk()?;
        let current = match &self.role {
            Role::None => return Err(ErrorCode::NotLeaderOrFollower),
            role => role.epoch(),
        };
        if epoch != LeaderEpoch::NONE && epoch < current {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if epoch != LeaderEpoch::NONE && epoch > current {
            return Err(ErrorCode::UnknownLeaderEpoch);
        }
        let leads = matches!(self.role, Role::Leader(_));
        if matches!(self.role, Role::TakingOver(_)) || (leader_only && !leads) {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        Ok(())
    }

    /// Whether the asker leads now what this broker led, so that it may have all that is here.
    fn hands_over_to(&mut self, id: BrokerId, asked: LeaderEpoch, end: Offset) -> bool {
        match &mut self.role {
            Role::Follower { leader, epoch, owes, .. }
                if (*leader == id || *leader == BrokerId::NONE) && *epoch <= asked && *owes =>
            {
                *owes = end < self.log.end_offset();
                true
            }
            _ => false,
        }
    }

    fn commit_of(&self, waiting: &Waiting, in_sync_min: usize) -> Commit {
        let Role::Leader(leader) = &self.role else { return Commit::Lost };
        if waiting.epoch < leader.led_since() {
            return Commit::Lost;
        }
        if self.log.high_watermark() < waiting.end {
            return Commit::Waiting;
        }
        match leader.check_still_in_sync(in_sync_min) {
            Ok(()) => Commit::Done,
            Err(_) => Commit::NotEnoughReplicas,
        }
    }
}

/// The bytes of the files' parts.
pub fn bytes_of(regions: &[Region]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for region in regions {
        let from = bytes.len();
        bytes.resize(from + region.length, 0);
        let read = region.file.read_exact_at(&mut bytes[from..], region.position);
        read.expect("a region that was found can be read");
    }
    bytes
}

fn rules(now: Timestamp, origin: Origin) -> Rules {
    let origin = match origin {
        Origin::Client | Origin::Transaction(..) => validate::Origin::Client,
        Origin::Coordinator => validate::Origin::Coordinator,
    };
    Rules {
        now,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: i64::MAX,
        compression: BrokerCompression::Producer,
        compacted: false,
        message_bytes_max: 1 << 20,
        origin,
    }
}

fn code_of(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Producer(error) => match error {
            ProducerError::InvalidEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            ProducerError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
            ProducerError::ExpectedTransactional { .. }
            | ProducerError::NotVerified
            | ProducerError::TransactionMoved(_) => ErrorCode::InvalidTxnState,
            _ => ErrorCode::OutOfOrderSequenceNumber,
        },
        AppendError::DiskFull(_) | AppendError::Offline(_) | AppendError::Fault(_) => {
            ErrorCode::KafkaStorageError
        }
        _ => ErrorCode::CorruptMessage,
    }
}

fn code_of_log(error: &LogError) -> ErrorCode {
    match error {
        LogError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        LogError::Offline(_) | LogError::Fault(_) => ErrorCode::KafkaStorageError,
    }
}

impl World {
    /// A partition of a running broker.
    pub fn replica(&mut self, id: BrokerId, partition: i32) -> Option<&mut Replica> {
        self.process(id).replicas.get_mut(&partition)
    }

    /// `min.insync.replicas`.
    fn in_sync_min(&self) -> usize {
        match self.options.bug {
            Some(Bug::TooFewInSyncAreEnough) => 1,
            _ => IN_SYNC_MIN,
        }
    }

    /// Takes the controller's word on a partition: makes its log where it is missing, leads or follows.
    pub fn apply(&mut self, id: BrokerId, partition: i32, word: Word) -> Result<(), ErrorCode> {
        let takes_all = self.options.bug == Some(Bug::StaleWordsAreTaken);
        let compares = self.options.bug != Some(Bug::TopicIdsAreNotCompared);
        let is_same = |one: &&mut Replica| one.topic_id == word.topic_id || !compares;
        let hosted = self.replica(id, partition).filter(is_same);
        if let Some(replica) = hosted {
            replica.check_disk()?;
            let told = (word.leadership.epoch, word.leadership.partition_epoch);
            let current = replica.role.epoch();
            let is_new = told > (current, replica.role.partition_epoch());
            if current != LeaderEpoch::NONE && !is_new && !takes_all {
                return Err(ErrorCode::StaleControllerEpoch);
            }
        }
        if !word.leadership.replicas.contains(&id) {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        let log = self.host(id, partition, &word)?;
        if log.log_directory().is_offline() {
            return Err(ErrorCode::KafkaStorageError);
        }
        let replicas = &mut self.process(id).replicas;
        let made = || Replica::new(word.topic_id, log);
        let partition_epoch = replicas.entry(partition).or_insert_with(made).role.partition_epoch();
        if word.leadership.partition_epoch < partition_epoch && !takes_all {
            return Ok(());
        }
        match word.leader == id {
            true => self.lead_or_take_over(id, partition, word.leadership),
            false => self.follow(id, partition, &word),
        }
        self.wake(id, partition);
        Ok(())
    }

    fn lead_or_take_over(&mut self, id: BrokerId, partition: i32, leadership: Leadership) {
        let process = self.process(id);
        let replica = process.replicas.get_mut(&partition).expect("it was made before");
        let snapshot = process.metadata.snapshot();
        let former = match &replica.role {
            Role::Follower { leader, epoch, .. }
                if epoch.0 + 1 == leadership.epoch.0 && snapshot.broker(*leader).is_some() =>
            {
                Some(*leader)
            }
            _ => None,
        };
        if matches!(replica.role, Role::Follower { .. }) {
            replica.copying = None;
        }
        match former {
            Some(former) => {
                let epoch = leadership.epoch;
                replica.role = Role::TakingOver(leadership);
                self.begin_takeover(id, partition, former, epoch);
            }
            None => self.lead(id, partition, leadership),
        }
    }

    /// Becomes, or stays, the leader.
    fn lead(&mut self, id: BrokerId, partition: i32, leadership: Leadership) {
        let now = self.instant_of(id);
        let Some(replica) = self.replica(id, partition) else { return };
        let end = replica.log.end_offset();
        match &mut replica.role {
            Role::Leader(leader) if leader.epoch() == leadership.epoch => {
                leader.update(leadership, now);
            }
            Role::Leader(leader) => {
                replica.log.assign_leader_epoch(leadership.epoch);
                leader.begin_epoch(leadership, end, now);
            }
            Role::TakingOver(known) if known.epoch == leadership.epoch => *known = leadership,
            Role::None | Role::TakingOver(_) | Role::Follower { .. } => {
                replica.copying = None;
                replica.log.assign_leader_epoch(leadership.epoch);
                replica.role = Role::Leader(Leader::new(id, leadership, end, now));
            }
        }
        self.begins_to_lead(id, partition);
    }

    /// Leads now, unless the controller has said something else since.
    pub fn end_takeover(&mut self, id: BrokerId, partition: i32, epoch: LeaderEpoch) {
        let now = self.instant_of(id);
        let Some(replica) = self.replica(id, partition) else { return };
        let leadership = match &replica.role {
            Role::TakingOver(leadership) if leadership.epoch == epoch => leadership.clone(),
            _ => return,
        };
        replica.copying = None;
        replica.log.assign_leader_epoch(epoch);
        let end = replica.log.end_offset();
        replica.role = Role::Leader(Leader::new(id, leadership, end, now));
        self.begins_to_lead(id, partition);
        self.wake(id, partition);
    }

    fn begins_to_lead(&mut self, id: BrokerId, partition: i32) {
        self.move_high_watermark(id, partition);
        let Some(replica) = self.replica(id, partition) else { return };
        let Role::Leader(leader) = &replica.role else { return };
        let (epoch, isr, end) = (leader.epoch(), leader.isr().to_vec(), replica.log.end_offset());
        self.note(format_args!("broker {id} leads {partition} in {epoch} from {end} isr {isr:?}"));
        self.check_new_leader(id, partition, epoch);
    }

    fn follow(&mut self, id: BrokerId, partition: i32, word: &Word) {
        let (epoch, leader) = (word.leadership.epoch, word.leader);
        let Some(replica) = self.replica(id, partition) else { return };
        let followed = match &replica.role {
            Role::Follower { leader, epoch, .. } => Some((*leader, *epoch)),
            _ => None,
        };
        let owes = match &replica.role {
            Role::Leader(known) => known.epoch().0 + 1 == epoch.0,
            Role::Follower { epoch: known, owes, .. } => *owes && *known == epoch,
            Role::None | Role::TakingOver(_) => false,
        };
        let partition_epoch = word.leadership.partition_epoch;
        replica.role = Role::Follower { leader, epoch, partition_epoch, owes };
        if followed != Some((leader, epoch)) {
            replica.copying = None;
            if leader != BrokerId::NONE {
                self.begin_copying(id, partition, leader, epoch);
            }
        }
    }

    /// Lets a leader decide on how things stand.
    pub fn with_leader<T>(
        &mut self,
        id: BrokerId,
        partition: i32,
        decide: impl FnOnce(&mut Leader, &Circumstances<'_>) -> T,
    ) -> Option<T> {
        let (now, in_sync_min) = (self.instant_of(id), self.in_sync_min());
        let Process { replicas, metadata, .. } = self.process(id);
        let Replica { log, role, .. } = replicas.get_mut(&partition)?;
        let Role::Leader(leader) = role else { return None };
        let snapshot = metadata.snapshot();
        let circumstances = Circumstances {
            now,
            lag_time_max: LAG_TIME_MAX,
            in_sync_min,
            local_end: log.end_offset(),
            high_watermark: log.high_watermark(),
            is_alive: &|id| snapshot.broker(id).is_some(),
        };
        Some(decide(leader, &circumstances))
    }

    /// Commits what all have that may be in sync.
    pub fn move_high_watermark(&mut self, id: BrokerId, partition: i32) {
        let bug = self.options.bug;
        let process = self.process(id);
        let mut wanted = process.proposals.get(&partition).map(|(_, proposal)| proposal.clone());
        if let Some((_, items)) = &process.proposed {
            let asked = items.iter().find(|(asked, _)| *asked == partition);
            wanted = wanted.or(asked.map(|(_, (_, proposal))| proposal.clone()));
        }
        let reached = self.with_leader(id, partition, |leader, now| match leader.followers() {
            _ if bug == Some(Bug::WatermarkIsTheLeadersEnd) => now.local_end,
            _ if bug == Some(Bug::ShrinkIsNotAwaited) => without_awaiting(leader, wanted, now),
            [] => now.local_end,
            _ => leader.high_watermark(now),
        });
        if let (Some(reached), Some(replica)) = (reached, self.replica(id, partition))
            && reached > replica.log.high_watermark()
        {
            replica.log.set_high_watermark(reached);
        }
    }

    /// Answers the produces whose lot is known by now.
    pub fn wake(&mut self, id: BrokerId, partition: i32) {
        let in_sync_min = self.in_sync_min();
        let answers_early = self.options.bug == Some(Bug::AnswersBeforeTheWatermark);
        let Some(replica) = self.replica(id, partition) else { return };
        let waiting = std::mem::take(&mut replica.waiting);
        let mut answers = Vec::new();
        for one in waiting {
            let result = match replica.commit_of(&one, in_sync_min) {
                Commit::Waiting if answers_early => Ok(one.first),
                Commit::Waiting => {
                    replica.waiting.push(one);
                    continue;
                }
                Commit::Done => Ok(one.first),
                Commit::NotEnoughReplicas => Err(ErrorCode::NotEnoughReplicasAfterAppend),
                Commit::Lost => Err(ErrorCode::NotLeaderOrFollower),
            };
            answers.push((one.from, one.request, result));
        }
        for (from, request, result) in answers {
            if let Ok(offset) = result {
                self.answers_produce(id, partition, request, offset, true);
            }
            self.send(Node::Broker(id), from, request, Message::Produced(result));
        }
    }

    /// Takes a batch: appends it, and answers at once or once it is committed.
    pub fn produce(&mut self, id: BrokerId, from: Node, request: RequestId, produce: Produce) {
        let Produce { partition, origin, .. } = produce;
        let mut produce = produce;
        // A marker that comes late ends the producer's next transaction: until KIP-890 part 2, which is later than 3.9, the
        // two cannot be told apart. So it is taken only while the coordinator waits on its connection, or where the log has
        // a marker of a later coordinator, whose epoch tells.
        if origin == Origin::Coordinator && !self.clients.waits_for(from, request) {
            let Some(newest) = self.newer_coordinator(id, partition, &produce.batch) else {
                return;
            };
            if self.options.bug == Some(Bug::FormerCoordinatorsAreObeyed) {
                produce.batch = with_coordinator_epoch(&produce.batch, newest);
            }
        }
        let now = self.wall_clock_of(id);
        let guard = match (origin, self.replica(id, partition)) {
            (Origin::Transaction(producer, sequence), Some(replica)) => {
                if !matches!(replica.role, Role::Leader(_)) {
                    let answer = Message::Produced(Err(ErrorCode::NotLeaderOrFollower));
                    return self.send(Node::Broker(id), from, request, answer);
                }
                replica.log.start_verification(producer, sequence, now)
            }
            _ => None,
        };
        let Some(guard) = guard else { return self.append(id, from, request, &produce, None) };
        // The transaction's coordinator is asked first.
        let Origin::Transaction((producer, epoch), _) = origin else { return };
        let is_part = self.clients.is_in_transaction(producer, epoch, partition);
        let number = self.new_request();
        let process = self.process_number(id);
        let waits = Verification { produce, from, request, guard, is_part };
        self.process(id).verifications.insert(number, waits);
        let delay = self.random.between(1, 30);
        self.after(delay, Event::Verified(id, process, number));
    }

    /// The newest coordinator that has written a marker for a marker's producer, if it is a later one.
    fn newer_coordinator(&mut self, id: BrokerId, partition: i32, marker: &[u8]) -> Option<i32> {
        self.read_copy(id, partition);
        let [(_, Stored { producer, content: Content::Marker(_, epoch), .. })] = parse(marker)[..]
        else {
            return None;
        };
        let markers = self.copy(id, partition).iter().filter(|stored| stored.producer == producer);
        let epochs = markers.filter_map(|stored| match stored.content {
            Content::Marker(_, epoch) => Some(epoch),
            Content::Value(_) => None,
        });
        epochs.max().filter(|newest| *newest > epoch)
    }

    /// The transaction's coordinator has answered.
    pub fn verified(&mut self, id: BrokerId, number: u64) {
        let Some(waits) = self.process(id).verifications.remove(&number) else { return };
        let Verification { produce, from, request, guard, is_part } = waits;
        match is_part {
            true => self.append(id, from, request, &produce, Some(guard)),
            false => {
                let answer = Message::Produced(Err(ErrorCode::InvalidTxnState));
                self.send(Node::Broker(id), from, request, answer);
            }
        }
    }

    fn append(
        &mut self,
        id: BrokerId,
        from: Node,
        request: RequestId,
        produce: &Produce,
        guard: Option<VerificationGuard>,
    ) {
        let Produce { partition, batch, acks_all, origin } = produce;
        let appended = self.try_append(id, *partition, batch, *acks_all, *origin, guard);
        let result = match appended {
            Ok((appended, epoch)) => {
                self.note_appended(id, *partition, request);
                let end = appended.last_offset.plus(1);
                if *acks_all {
                    let first = appended.first_offset;
                    let waiting = Waiting { from, request, first, end, epoch };
                    if let Some(replica) = self.replica(id, *partition) {
                        replica.waiting.push(waiting);
                    }
                    return self.wake(id, *partition);
                }
                self.answers_produce(id, *partition, request, appended.first_offset, false);
                // Others may wait for the high watermark that has moved.
                self.wake(id, *partition);
                Ok(appended.first_offset)
            }
            Err(error) => Err(error),
        };
        self.send(Node::Broker(id), from, request, Message::Produced(result));
    }

    fn try_append(
        &mut self,
        id: BrokerId,
        partition: i32,
        batch: &Bytes,
        acks_all: bool,
        origin: Origin,
        guard: Option<VerificationGuard>,
    ) -> Result<(Appended, LeaderEpoch), ErrorCode> {
        self.use_disk(id, partition, Operation::Append);
        let (now, wall_clock) = (self.instant_of(id), self.wall_clock_of(id));
        let in_sync_min = self.in_sync_min();
        let unknown = ErrorCode::UnknownTopicOrPartition;
        let replica = self.replica(id, partition).ok_or(unknown)?;
        replica.check_disk()?;
        let Role::Leader(leader) = &mut replica.role else {
            return Err(ErrorCode::NotLeaderOrFollower);
        };
        if acks_all && leader.check_in_sync(in_sync_min).is_err() {
            return Err(ErrorCode::NotEnoughReplicas);
        }
        let epoch = leader.epoch();
        let checked = check(batch.clone(), &rules(wall_clock, origin));
        let checked = checked.map_err(|_| ErrorCode::CorruptMessage)?;
        let appended = match (origin, guard) {
            (Origin::Coordinator, _) => replica.log.append_as_coordinator(checked, epoch),
            (_, Some(guard)) => replica.log.append_verified(checked, epoch, guard),
            (_, None) => replica.log.append_as_leader(checked, epoch),
        };
        let appended = match appended {
            Ok(appended) => appended,
            Err(error) => {
                self.note(format_args!("broker {id} refuses a batch for {partition}: {error}"));
                return Err(code_of(&error));
            }
        };
        leader.appended(appended.first_offset, now);
        self.move_high_watermark(id, partition);
        Ok((appended, epoch))
    }

    /// Answers a follower.
    pub fn answer_fetch(&mut self, id: BrokerId, fetch: &Fetch) -> Fetched {
        let nothing = Fetched {
            error: ErrorCode::None,
            diverging: None,
            records: Vec::new(),
            high_watermark: Offset::NONE,
            log_start: Offset::NONE,
        };
        let result = self.read_for_follower(id, fetch, &nothing);
        result.unwrap_or_else(|error| Fetched { error, ..nothing })
    }

    fn read_for_follower(
        &mut self,
        id: BrokerId,
        fetch: &Fetch,
        nothing: &Fetched,
    ) -> Result<Fetched, ErrorCode> {
        let bug = self.options.bug;
        let now = self.instant_of(id);
        let partition = fetch.partition;
        self.use_disk(id, partition, Operation::Read);
        let replica = self.replica(id, partition).ok_or(ErrorCode::NotLeaderOrFollower)?;
        replica.check_topic(fetch.topic_id)?;
        replica.check_disk()?;
        let epoch = fetch.from.epoch;
        let hands_over = replica.hands_over_to(fetch.replica, fetch.from.epoch, fetch.from.offset);
        let log = replica.log.clone();
        let mut answer = Fetched {
            high_watermark: log.high_watermark(),
            log_start: log.start_offset(),
            ..nothing.clone()
        };
        if !hands_over {
            if matches!(replica.role, Role::TakingOver(_)) && epoch == replica.role.epoch() {
                // Whoever is ahead of it must not be told to cut off what is about to come. One with other records is not
                // told the high watermark either.
                let (last, end) = (fetch.from.last_epoch, log.end_offset());
                let known = log.end_offset_for_epoch(last);
                let fits = last == LeaderEpoch::NONE
                    || is_one_log((last, fetch.from.offset), known, end)
                    || bug == Some(Bug::TakeoverTellsTheWatermark);
                return if fits { Ok(answer) } else { Err(ErrorCode::NotLeaderOrFollower) };
            }
            replica.check_access(true, epoch)?;
            if let Role::Leader(leader) = &replica.role
                && !leader.replicas().contains(&fetch.replica)
            {
                return Err(ErrorCode::UnknownLeaderEpoch);
            }
        }
        if fetch.from.last_epoch != LeaderEpoch::NONE && bug != Some(Bug::LogsMayPart) {
            let end = log.end_offset_for_epoch(fetch.from.last_epoch);
            let (epoch, end) = end.ok_or(ErrorCode::OffsetOutOfRange)?;
            if epoch < fetch.from.last_epoch || end < fetch.from.offset {
                answer.diverging = Some((epoch, end));
                return Ok(answer);
            }
        }
        let end = log.end_offset();
        let read = log.read(fetch.from.offset, ANSWER_BYTES_MAX, true, end);
        let read = read.map_err(|error| code_of_log(&error))?;
        answer.records = bytes_of(&read.regions);
        if let Role::Leader(leader) = &mut replica.role {
            let fetched = FollowerFetch {
                id: fetch.replica,
                offset: fetch.from.offset,
                start: fetch.log_start,
                broker_epoch: fetch.broker_epoch,
                leader_end: end,
            };
            leader.follower_fetched(&fetched, now);
            let is_in_sync = leader.isr().contains(&fetch.replica);
            let proposal = self.with_leader(id, partition, |leader, now| match is_in_sync {
                true => None,
                false => leader.propose_expansion(fetch.replica, now),
            });
            self.move_high_watermark(id, partition);
            self.put_proposal(id, partition, proposal.flatten());
            self.wake(id, partition);
            answer.high_watermark = log.high_watermark();
        }
        Ok(answer)
    }

    /// The ends of a leader's log.
    pub fn ends(
        &mut self,
        id: BrokerId,
        partition: i32,
        epoch: LeaderEpoch,
    ) -> Result<(Offset, Offset), ErrorCode> {
        let replica = self.replica(id, partition).ok_or(ErrorCode::NotLeaderOrFollower)?;
        replica.check_access(true, epoch)?;
        Ok((replica.log.start_offset(), replica.log.end_offset()))
    }

    /// Answers a consumer; any replica does.
    pub fn consume(&mut self, id: BrokerId, consume: Consume) -> Result<Consumed, ErrorCode> {
        let bug = self.options.bug;
        let Consume { topic_id, partition, offset, committed } = consume;
        self.use_disk(id, partition, Operation::Read);
        let replica = self.replica(id, partition).ok_or(ErrorCode::NotLeaderOrFollower)?;
        replica.check_topic(topic_id)?;
        replica.check_access(false, LeaderEpoch::NONE)?;
        let log = &replica.log;
        let up_to = match bug {
            Some(Bug::ConsumersReadToTheEnd) => log.end_offset(),
            Some(Bug::OpenTransactionsAreRead) => log.high_watermark(),
            _ if committed => log.last_stable_offset(),
            _ => log.high_watermark(),
        };
        let read = log.read(offset, ANSWER_BYTES_MAX, true, up_to);
        let read = read.map_err(|error| code_of_log(&error))?;
        let mut aborted = Vec::new();
        if committed && read.bytes > 0 {
            let upper = log.upper_bound(&read).map_err(|error| code_of_log(&error))?;
            let found = log.aborted_transactions(offset, upper);
            let found = found.map_err(|error| code_of_log(&error))?;
            aborted.extend(found.into_iter().map(|one| (one.producer_id, one.first_offset)));
        }
        Ok(Consumed { records: bytes_of(&read.regions), aborted })
    }

    /// A request of a broker was not answered in time.
    pub fn give_up(&mut self, id: BrokerId, request: RequestId) {
        let is_proposal =
            self.process(id).proposed.as_ref().is_some_and(|(asked, _)| *asked == request);
        if is_proposal {
            return self.take_altered(id, request, Err(ErrorCode::RequestTimedOut));
        }
        if !self.word_was_lost(id, request) {
            self.fetch_was_lost(id, request);
        }
    }
}

/// The bug `FormerCoordinatorsAreObeyed`: the marker as if a later coordinator had sent it.
fn with_coordinator_epoch(batch: &[u8], coordinator_epoch: i32) -> Bytes {
    let header = BatchHeader::parse(batch).expect("a marker that was built");
    let [(_, Stored { content: Content::Marker(result, _), .. })] = parse(batch)[..] else {
        panic!("a marker that was built has one record")
    };
    let content = EndTransactionMarker { result, coordinator_epoch };
    marker_batch(header.producer_id, header.producer_epoch, header.max_timestamp, content)
}

/// The bug `ShrinkIsNotAwaited`: the high watermark as if the controller had agreed already.
fn without_awaiting(
    leader: &Leader,
    wanted: Option<Proposal>,
    circumstances: &Circumstances<'_>,
) -> Offset {
    let mut leader = leader.clone();
    if let Some(wanted) = wanted.filter(|wanted| wanted.isr.len() < leader.isr().len()) {
        let Proposal { epoch, partition_epoch, isr } = wanted.clone();
        let verdict = Verdict::Committed { epoch, partition_epoch, isr: isr.to_vec() };
        leader.answered(&wanted, verdict);
    }
    leader.high_watermark(circumstances)
}
