//! Fetch sessions: a client names its partitions once, then only what changed. Source: KIP-227, `FetchSession.scala`.
//!
//! A session is told by its partitions which of them have changed, and looks at those alone, and at those that the client
//! names: a fetch costs what changed, never what exists.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
    topic::Uuid,
};
use parking_lot::Mutex;

use crate::{partition::Partition, waiters::Changes};

/// The session id of a fetch outside any session.
pub const SESSION_ID_NONE: i32 = 0;
/// The epoch that asks for a full fetch and, if there is room, a new session.
pub const EPOCH_INITIAL: i32 = 0;
/// The epoch that asks for a full fetch and ends the session.
pub const EPOCH_FINAL: i32 = -1;
/// How long a session is safe from being pushed out by another. Source: `max.incremental.fetch.session.cache.slots`.
pub const EVICTION: Duration = Duration::from_secs(120);

/// How a request names its topics: by id from version 13 on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// Before version 13.
    Name(Arc<str>),
    /// From version 13 on.
    Id(Uuid),
}

/// A partition as a request names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey {
    /// The topic.
    pub topic: TopicKey,
    /// The partition's number.
    pub partition: i32,
}

/// What is asked of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchTarget {
    /// The leader epoch the asker believes in; `LeaderEpoch::NONE` to skip the check.
    pub current_leader_epoch: LeaderEpoch,
    /// Where to read from.
    pub fetch_offset: Offset,
    /// Epoch of the last record the asker has; `LeaderEpoch::NONE` to skip the divergence check.
    pub last_fetched_epoch: LeaderEpoch,
    /// Start of the asker's log; followers only.
    pub log_start_offset: Offset,
    /// Most bytes to answer; the first batch of a response may be longer.
    pub max_bytes: i32,
}

/// What the answer for one partition holds, as far as sessions care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Whether there are records.
    pub has_records: bool,
    /// The answered high watermark.
    pub high_watermark: Offset,
    /// The answered log start.
    pub log_start_offset: Offset,
    /// Whether the answer is an error.
    pub is_error: bool,
    /// Whether it says more: a diverging epoch, a preferred read replica.
    pub is_special: bool,
    /// Whether the partition need not be looked at again before it changes: the asker has all that it may have.
    pub is_settled: bool,
}

/// The session part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// `SESSION_ID_NONE`, or the id a response gave.
    pub session_id: i32,
    /// `EPOCH_INITIAL`, `EPOCH_FINAL`, or one more than the last.
    pub epoch: i32,
    /// Whether the request's version names topics by id.
    pub uses_topic_ids: bool,
    /// Whether a follower asks; its session pushes out a consumer's.
    pub from_follower: bool,
}

/// Finds the partition of a key, or why there is none here.
pub type Find<'a> = &'a dyn Fn(&PartitionKey) -> Result<Arc<Partition>, ErrorCode>;

/// A partition that a fetch reads.
#[derive(Clone, Debug)]
pub struct Target {
    /// How the request names it.
    pub key: PartitionKey,
    /// What is asked of it.
    pub asked: FetchTarget,
    /// The partition, or why there is none here.
    pub partition: Result<Arc<Partition>, ErrorCode>,
    /// Its number in the session; of a fetch outside any, its place in the request.
    slot: u32,
    /// Its place in the session's order.
    position: u64,
}

#[derive(Debug)]
struct CachedPartition {
    key: PartitionKey,
    position: u64,
    asked: FetchTarget,
    high_watermark: Offset,
    log_start_offset: Offset,
    /// Who tells of changes. None where the partition was not here when it was last looked at.
    watched: Option<Arc<Partition>>,
}

/// The partitions of a session, each at its slot.
#[derive(Debug, Default)]
struct Partitions {
    by_key: HashMap<PartitionKey, u32>,
    slots: Vec<Option<CachedPartition>>,
    free: Vec<u32>,
    next_position: u64,
    changes: Arc<Changes>,
}

impl Partitions {
    /// Adds a partition, or changes what is asked of it. It is to be looked at.
    fn put(&mut self, key: PartitionKey, asked: FetchTarget) {
        let known = self.by_key.get(&key).copied();
        if let Some(slot) = known
            && let Some(cached) = &mut self.slots[slot as usize]
        {
            cached.asked = asked;
            return self.changes.mark(slot);
        }
        let position = self.next_position;
        self.next_position += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("a request names fewer partitions")
        });
        self.changes.collect(self.slots.len());
        self.by_key.insert(key.clone(), slot);
        let unknown = Offset::NONE;
        self.slots[slot as usize] = Some(CachedPartition {
            key,
            position,
            asked,
            high_watermark: unknown,
            log_start_offset: unknown,
            watched: None,
        });
        self.changes.mark(slot);
    }

    fn remove(&mut self, key: &PartitionKey) {
        let Some(slot) = self.by_key.remove(key) else { return };
        if let Some(cached) = self.slots[slot as usize].take()
            && let Some(partition) = cached.watched
        {
            partition.remove_waiter(&self.changes, slot);
        }
        self.free.push(slot);
    }

    /// Those that have changed since the last call, in the session's order; watched from now on.
    fn changed(&mut self, find: Find<'_>) -> Vec<Target> {
        let mut targets = Vec::new();
        for slot in self.changes.take() {
            let Some(cached) = &mut self.slots[slot as usize] else { continue };
            let partition = find(&cached.key);
            let is_watched = match (&cached.watched, &partition) {
                (Some(watched), Ok(found)) => Arc::ptr_eq(watched, found),
                (None, Err(_)) => true,
                _ => false,
            };
            if !is_watched {
                if let Some(watched) = cached.watched.take() {
                    watched.remove_waiter(&self.changes, slot);
                }
                if let Ok(found) = &partition {
                    found.add_waiter(&self.changes, slot);
                    cached.watched = Some(found.clone());
                }
            }
            targets.push(Target {
                key: cached.key.clone(),
                asked: cached.asked,
                partition,
                slot,
                position: cached.position,
            });
        }
        targets.sort_by_key(|target| target.position);
        targets
    }

    /// Notes an answer; says whether it must be sent. One with records goes to the end of the queue.
    fn note(&mut self, slot: u32, key: &PartitionKey, answered: Answered) -> bool {
        let cached = self.slots.get_mut(slot as usize).and_then(Option::as_mut);
        let Some(cached) = cached.filter(|cached| cached.key == *key) else { return true };
        let mut send = answered.has_records || answered.is_special || answered.is_error;
        if cached.high_watermark != answered.high_watermark {
            cached.high_watermark = answered.high_watermark;
            send = true;
        }
        if cached.log_start_offset != answered.log_start_offset {
            cached.log_start_offset = answered.log_start_offset;
            send = true;
        }
        if answered.is_error {
            // The next answer without an error differs from this, so that it is sent.
            cached.high_watermark = Offset::NONE;
        }
        if answered.has_records {
            cached.position = self.next_position;
            self.next_position += 1;
        }
        if !answered.is_settled || answered.has_records || answered.is_error {
            self.changes.mark(slot);
        }
        send
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        for (slot, cached) in (0..).zip(&self.slots) {
            if let Some(partition) = cached.as_ref().and_then(|cached| cached.watched.as_ref()) {
                partition.remove_waiter(&self.changes, slot);
            }
        }
    }
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    uses_topic_ids: bool,
    from_follower: bool,
    created: Instant,
    used: Instant,
    partitions: Partitions,
}

/// The sessions of a broker. Shared by all connections; the lock is held for one session's bookkeeping.
#[derive(Debug)]
pub struct SessionCache {
    sessions: Mutex<HashMap<i32, Session>>,
    slots_max: usize,
}

/// One fetch, from the reading of its request to the writing of its answer.
#[derive(Debug)]
pub struct FetchContext {
    kind: Kind,
    targets: Vec<Target>,
}

#[derive(Debug)]
enum Kind {
    Sessionless,
    /// Asks for a session, which is made once the answer is known.
    Full(SessionRequest),
    /// In a session; the epoch it expects next.
    Incremental {
        session_id: i32,
        next_epoch: i32,
        changes: Arc<Changes>,
    },
}

/// What to send.
#[derive(Debug, PartialEq, Eq)]
pub struct FetchAnswer {
    /// The session id for the response.
    pub session_id: i32,
    /// For each target, in order: whether its answer is sent.
    pub send: Vec<bool>,
}

/// Waits for the partitions of a fetch to change. Registered while it lives.
#[derive(Debug)]
pub struct FetchWait {
    changes: Arc<Changes>,
    /// Those that were registered for this wait alone.
    partitions: Vec<Arc<Partition>>,
}

impl FetchWait {
    /// Ends at a change since the last call.
    pub async fn changed(&self) {
        self.changes.wait().await;
    }
}

impl Drop for FetchWait {
    fn drop(&mut self) {
        for partition in &self.partitions {
            partition.remove_waiter(&self.changes, 0);
        }
    }
}

impl SessionCache {
    /// A cache of at most `slots_max` sessions (`max.incremental.fetch.session.cache.slots`).
    pub fn new(slots_max: usize) -> SessionCache {
        SessionCache { sessions: Mutex::new(HashMap::new()), slots_max }
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins a fetch: finds what to read. An error is the response's top-level error.
    pub fn begin(
        &self,
        request: SessionRequest,
        named: Vec<(PartitionKey, FetchTarget)>,
        forgotten: &[PartitionKey],
        now: Instant,
        find: Find<'_>,
    ) -> Result<FetchContext, ErrorCode> {
        let mut sessions = self.sessions.lock();
        if request.epoch == EPOCH_INITIAL || request.epoch == EPOCH_FINAL {
            // A full fetch ends the session it names.
            let ended = sessions.remove(&request.session_id);
            drop(sessions);
            drop(ended);
            let ends = request.epoch == EPOCH_FINAL;
            let kind = if ends { Kind::Sessionless } else { Kind::Full(request) };
            return Ok(FetchContext { kind, targets: outside_sessions(named, find) });
        }
        let id = request.session_id;
        let session = sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != request.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.uses_topic_ids != request.uses_topic_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        for (key, asked) in &named {
            session.partitions.put(key.clone(), *asked);
        }
        for key in forgotten {
            session.partitions.remove(key);
        }
        if session.partitions.by_key.is_empty() {
            sessions.remove(&id);
            let targets = outside_sessions(named, find);
            return Ok(FetchContext { kind: Kind::Sessionless, targets });
        }
        session.used = now;
        session.epoch = next_epoch(session.epoch);
        let changes = session.partitions.changes.clone();
        let kind = Kind::Incremental { session_id: id, next_epoch: session.epoch, changes };
        Ok(FetchContext { kind, targets: session.partitions.changed(find) })
    }

    /// Looks again at what a fetch is about: at partitions of its session that have changed since, and at where the
    /// others are now.
    pub fn look_again(&self, context: &mut FetchContext, find: Find<'_>) {
        let Kind::Incremental { session_id, next_epoch, .. } = context.kind else {
            for target in &mut context.targets {
                target.partition = find(&target.key);
            }
            return;
        };
        let mut sessions = self.sessions.lock();
        let session = sessions.get_mut(&session_id).filter(|one| one.epoch == next_epoch);
        // Without it the fetch ends with an error.
        let Some(session) = session else { return };
        let changed = session.partitions.changed(find);
        drop(sessions);
        for target in changed {
            match context.targets.iter_mut().find(|known| known.slot == target.slot) {
                Some(known) => *known = target,
                None => context.targets.push(target),
            }
        }
        context.targets.sort_by_key(|target| target.position);
    }

    /// Ends a fetch: decides which answers to send, and makes the session that was asked for.
    /// `answered` has one entry per target, in order; `random_id` draws session ids above 0.
    pub fn finish(
        &self,
        context: &FetchContext,
        answered: &[Answered],
        now: Instant,
        random_id: &dyn Fn() -> i32,
    ) -> Result<FetchAnswer, ErrorCode> {
        assert_eq!(context.targets.len(), answered.len(), "one answer per target");
        let all = vec![true; answered.len()];
        match context.kind {
            Kind::Sessionless => Ok(FetchAnswer { session_id: SESSION_ID_NONE, send: all }),
            Kind::Full(request) => {
                let session_id = self.create(request, context, answered, now, random_id);
                Ok(FetchAnswer { session_id, send: all })
            }
            Kind::Incremental { session_id, next_epoch, .. } => {
                let mut sessions = self.sessions.lock();
                let Some(session) = sessions.get_mut(&session_id) else {
                    return Err(ErrorCode::FetchSessionIdNotFound);
                };
                if session.epoch != next_epoch {
                    return Err(ErrorCode::InvalidFetchSessionEpoch);
                }
                let send = context.targets.iter().zip(answered);
                let send = send.map(|(target, answered)| {
                    session.partitions.note(target.slot, &target.key, *answered)
                });
                Ok(FetchAnswer { session_id, send: send.collect() })
            }
        }
    }

    fn create(
        &self,
        request: SessionRequest,
        context: &FetchContext,
        answered: &[Answered],
        now: Instant,
        random_id: &dyn Fn() -> i32,
    ) -> i32 {
        let mut sessions = self.sessions.lock();
        let size = context.targets.len();
        if !make_room(&mut sessions, self.slots_max, request.from_follower, size, now) {
            return SESSION_ID_NONE;
        }
        // All are marked, so that the next fetch looks at each once and watches it from then on.
        let mut partitions = Partitions::default();
        for target in &context.targets {
            partitions.put(target.key.clone(), target.asked);
        }
        for (target, answered) in context.targets.iter().zip(answered) {
            if let Some(slot) = partitions.by_key.get(&target.key).copied() {
                partitions.note(slot, &target.key, *answered);
            }
        }
        let mut id = random_id();
        while id <= 0 || sessions.contains_key(&id) {
            id = random_id();
        }
        let session = Session {
            epoch: next_epoch(EPOCH_INITIAL),
            uses_topic_ids: request.uses_topic_ids,
            from_follower: request.from_follower,
            created: now,
            used: now,
            partitions,
        };
        sessions.insert(id, session);
        id
    }
}

fn outside_sessions(named: Vec<(PartitionKey, FetchTarget)>, find: Find<'_>) -> Vec<Target> {
    let numbered = (0..).zip(named);
    numbered
        .map(|(slot, (key, asked))| Target {
            partition: find(&key),
            key,
            asked,
            slot,
            position: u64::from(slot),
        })
        .collect()
}

impl FetchContext {
    /// What to read, in the order to read it.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// A fetch of a version before sessions.
    pub fn sessionless(named: Vec<(PartitionKey, FetchTarget)>, find: Find<'_>) -> FetchContext {
        FetchContext { kind: Kind::Sessionless, targets: outside_sessions(named, find) }
    }

    /// Whether nothing is asked for, not even by the session.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty() && !matches!(self.kind, Kind::Incremental { .. })
    }

    /// Registers for changes: one after this is not missed, so look once more before waiting.
    pub fn wait(&self) -> FetchWait {
        match &self.kind {
            Kind::Incremental { changes, .. } => {
                FetchWait { changes: changes.clone(), partitions: Vec::new() }
            }
            Kind::Sessionless | Kind::Full(_) => {
                let changes = Arc::new(Changes::default());
                let found = self.targets.iter().filter_map(|target| target.partition.as_ref().ok());
                let partitions: Vec<_> = found.cloned().collect();
                for partition in &partitions {
                    partition.add_waiter(&changes, 0);
                }
                FetchWait { changes, partitions }
            }
        }
    }
}

fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

/// Whether a new session fits, once one that is idle or less worth is gone.
fn make_room(
    sessions: &mut HashMap<i32, Session>,
    slots_max: usize,
    from_follower: bool,
    size: usize,
    now: Instant,
) -> bool {
    if sessions.len() < slots_max {
        return true;
    }
    let oldest = sessions.iter().min_by_key(|(_, session)| session.used);
    let Some((oldest_id, oldest)) = oldest.map(|(id, session)| (*id, session)) else {
        return false;
    };
    if now.duration_since(oldest.used) > EVICTION {
        sessions.remove(&oldest_id);
        return true;
    }
    let worth = |session: &Session| (session.from_follower, session.partitions.by_key.len());
    let aged = sessions.iter().filter(|(_, session)| {
        let may_go = from_follower || !session.from_follower;
        may_go && now.duration_since(session.created) > EVICTION
    });
    let least = aged.min_by_key(|(id, session)| (worth(session), **id));
    let Some((least_id, least)) = least.map(|(id, session)| (*id, session)) else { return false };
    if (from_follower, size) < worth(least) {
        return false;
    }
    sessions.remove(&least_id);
    true
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc, time::Duration};

    use common::{
        clock,
        error_code::ErrorCode,
        ids::{LeaderEpoch, Offset},
    };

    use super::{
        Answered, EPOCH_FINAL, EPOCH_INITIAL, FetchTarget, PartitionKey, SESSION_ID_NONE,
        SessionCache, SessionRequest, TopicKey,
    };
    use crate::partition::Partition;

    fn key(partition: i32) -> PartitionKey {
        PartitionKey { topic: TopicKey::Name("t".into()), partition }
    }

    fn at(offset: i64) -> FetchTarget {
        FetchTarget {
            current_leader_epoch: LeaderEpoch::NONE,
            fetch_offset: Offset(offset),
            last_fetched_epoch: LeaderEpoch::NONE,
            log_start_offset: Offset::NONE,
            max_bytes: 1 << 20,
        }
    }

    fn answer(high_watermark: i64, has_records: bool) -> Answered {
        Answered {
            has_records,
            high_watermark: Offset(high_watermark),
            log_start_offset: Offset(0),
            is_error: false,
            is_special: false,
            is_settled: true,
        }
    }

    fn request(session_id: i32, epoch: i32) -> SessionRequest {
        SessionRequest { session_id, epoch, uses_topic_ids: false, from_follower: false }
    }

    fn nowhere(_: &PartitionKey) -> Result<Arc<Partition>, ErrorCode> {
        Err(ErrorCode::UnknownTopicOrPartition)
    }

    fn ids() -> impl Fn() -> i32 {
        let next = Cell::new(0);
        move || {
            next.set(next.get() + 1);
            next.get()
        }
    }

    #[test]
    fn a_session_sends_only_what_changed_and_rotates_what_had_data() {
        let (cache, now, ids) = (SessionCache::new(10), clock::now(), ids());
        let named = vec![(key(0), at(0)), (key(1), at(0))];
        let context = cache.begin(request(0, EPOCH_INITIAL), named, &[], now, &nowhere).unwrap();
        let first = [answer(5, true), answer(0, false)];
        let sent = cache.finish(&context, &first, now, &ids).unwrap();
        assert_eq!((sent.session_id, sent.send), (1, vec![true, true]));

        let moved = vec![(key(0), at(5))];
        let context = cache.begin(request(1, 1), moved, &[], now, &nowhere).unwrap();
        let order: Vec<_> = context.targets().iter().map(|target| target.key.partition).collect();
        assert_eq!(order, [1, 0], "the one with data goes last");
        assert_eq!(context.targets()[1].asked.fetch_offset, Offset(5));
        let behind = Answered { is_settled: false, ..answer(0, false) };
        let sent = cache.finish(&context, &[behind, answer(5, false)], now, &ids);
        assert_eq!(sent.unwrap().send, [false, false]);

        let context = cache.begin(request(1, 2), vec![], &[], now, &nowhere).unwrap();
        let sent = cache.finish(&context, &[answer(1, false)], now, &ids);
        assert_eq!(sent.unwrap().send, [true], "a moved watermark is sent");

        let context = cache.begin(request(1, 3), vec![], &[], now, &nowhere).unwrap();
        assert!(context.targets().is_empty(), "nothing has changed: {:?}", context.targets());
        assert!(!context.is_empty(), "but it may be waited for");
    }

    #[test]
    fn wrong_sessions_and_epochs_are_named() {
        let (cache, now, ids) = (SessionCache::new(10), clock::now(), ids());
        let unknown = cache.begin(request(9, 1), vec![], &[], now, &nowhere).unwrap_err();
        assert_eq!(unknown, ErrorCode::FetchSessionIdNotFound);
        let context = cache
            .begin(request(0, EPOCH_INITIAL), vec![(key(0), at(0))], &[], now, &nowhere)
            .unwrap();
        cache.finish(&context, &[answer(0, false)], now, &ids).unwrap();
        let stale = cache.begin(request(1, 7), vec![], &[], now, &nowhere).unwrap_err();
        assert_eq!(stale, ErrorCode::InvalidFetchSessionEpoch);
        let by_id = SessionRequest { uses_topic_ids: true, ..request(1, 1) };
        let mixed = cache.begin(by_id, vec![], &[], now, &nowhere).unwrap_err();
        assert_eq!(mixed, ErrorCode::FetchSessionTopicIdError);
    }

    #[test]
    fn a_session_ends_when_asked_or_when_it_is_empty() {
        let (cache, now, ids) = (SessionCache::new(10), clock::now(), ids());
        for end in [request(1, EPOCH_FINAL), request(2, 1)] {
            let context = cache
                .begin(request(0, EPOCH_INITIAL), vec![(key(0), at(0))], &[], now, &nowhere)
                .unwrap();
            cache.finish(&context, &[answer(0, false)], now, &ids).unwrap();
            let context = cache.begin(end, vec![], &[key(0)], now, &nowhere).unwrap();
            let sent = cache.finish(&context, &[], now, &ids).unwrap();
            assert_eq!(sent.session_id, SESSION_ID_NONE);
            assert!(cache.is_empty());
        }
    }

    #[test]
    fn an_error_is_always_sent_and_so_is_the_answer_after_it() {
        let (cache, now, ids) = (SessionCache::new(10), clock::now(), ids());
        let context = cache
            .begin(request(0, EPOCH_INITIAL), vec![(key(0), at(0))], &[], now, &nowhere)
            .unwrap();
        let failed = Answered { is_error: true, ..answer(-1, false) };
        cache.finish(&context, &[failed], now, &ids).unwrap();
        for (epoch, answered, sent) in
            [(1, failed, true), (2, answer(3, false), true), (3, answer(3, false), false)]
        {
            let named = vec![(key(0), at(0))];
            let context = cache.begin(request(1, epoch), named, &[], now, &nowhere).unwrap();
            let answer = cache.finish(&context, &[answered], now, &ids).unwrap();
            assert_eq!(answer.send, [sent], "epoch {epoch}");
        }
    }

    #[test]
    fn a_full_cache_keeps_young_sessions_and_drops_old_ones() {
        let (cache, now, ids) = (SessionCache::new(1), clock::now(), ids());
        let open = |now| {
            let named = vec![(key(0), at(0))];
            let context =
                cache.begin(request(0, EPOCH_INITIAL), named, &[], now, &nowhere).unwrap();
            cache.finish(&context, &[answer(0, false)], now, &ids).unwrap().session_id
        };
        assert_eq!(open(now), 1);
        assert_eq!(open(now + Duration::from_secs(5)), SESSION_ID_NONE);
        assert_eq!(open(now + Duration::from_secs(121)), 2);
    }
}
