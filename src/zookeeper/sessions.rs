//! Sessions: their ids, passwords and deadlines. Source: ZooKeeper's `SessionTrackerImpl`,
//! `ExpiryQueue` and `ZooKeeperServer.generatePasswd`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::watches::ConnectionId;

/// A session that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// As agreed with the client, in milliseconds.
    pub(crate) timeout_ms: i32,
    /// When it ends unless its client is heard of.
    deadline: Instant,
    /// The connection it is used over, if any.
    pub(crate) connection: Option<ConnectionId>,
}

/// All sessions, ordered by their deadlines.
#[derive(Debug)]
pub(crate) struct Sessions {
    by_id: BTreeMap<i64, Session>,
    by_deadline: BTreeSet<(Instant, i64)>,
    next_id: i64,
    /// How often they are looked at: deadlines are rounded up to the next multiple of it, counted from `started`.
    interval: Duration,
    started: Instant,
    last_expiry: Instant,
}

impl Sessions {
    /// `wall_clock_ms` makes ids that no earlier run of the server has given.
    pub(crate) fn new(interval: Duration, now: Instant, wall_clock_ms: i64) -> Sessions {
        Sessions {
            by_id: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            // The top byte is the server's id, 0 for the only one.
            next_id: ((wall_clock_ms.cast_unsigned() << 24) >> 8).cast_signed(),
            interval,
            started: now,
            last_expiry: now,
        }
    }

    /// Gives the id for a new session.
    pub(crate) fn next_id(&mut self) -> i64 {
        let highest = self.by_id.last_key_value().map_or(0, |(id, _)| *id);
        self.next_id = self.next_id.max(highest.saturating_add(1));
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn deadline(&self, now: Instant, timeout_ms: i32) -> Instant {
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let at = now.duration_since(self.started) + timeout;
        let intervals = at.as_millis() / self.interval.as_millis().max(1) + 1;
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
        self.started + self.interval.saturating_mul(intervals)
    }

    /// Begins a session, or one found in the log; its time runs from now.
    pub(crate) fn begin(&mut self, id: i64, timeout_ms: i32, now: Instant) {
        self.end(id);
        let deadline = self.deadline(now, timeout_ms);
        self.by_id.insert(id, Session { timeout_ms, deadline, connection: None });
        self.by_deadline.insert((deadline, id));
    }

    /// Ends a session; gives what it was.
    pub(crate) fn end(&mut self, id: i64) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        self.by_deadline.remove(&(session.deadline, id));
        Some(session)
    }

    /// The client was heard of; `timeout_ms` from now on. False when the session has ended.
    pub(crate) fn touch(&mut self, id: i64, timeout_ms: i32, now: Instant) -> bool {
        let deadline = self.deadline(now, timeout_ms);
        let Some(session) = self.by_id.get_mut(&id) else { return false };
        if session.deadline != deadline {
            self.by_deadline.remove(&(session.deadline, id));
            self.by_deadline.insert((deadline, id));
            session.deadline = deadline;
        }
        true
    }

    /// Binds a session to a connection; gives the one it was bound to.
    pub(crate) fn bind(&mut self, id: i64, connection: ConnectionId) -> Option<ConnectionId> {
        self.by_id.get_mut(&id)?.connection.replace(connection)
    }

    /// The connection has gone; the session waits for another.
    pub(crate) fn unbind(&mut self, id: i64, connection: ConnectionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.connection.take_if(|bound| *bound == connection);
        }
    }

    /// The sessions whose time is over. They stay until they are ended.
    ///
    /// Is called about once an interval. A gap of more says that this process stood still: then the
    /// clients' pings lie unread, and every deadline moves by the gap instead.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<i64> {
        let gap = now.duration_since(self.last_expiry);
        self.last_expiry = now;
        if gap > self.interval * 2 + Duration::from_millis(500) {
            self.postpone(gap - self.interval);
        }
        let due = self.by_deadline.iter().take_while(|(deadline, _)| *deadline <= now);
        due.map(|(_, id)| *id).collect()
    }

    fn postpone(&mut self, by: Duration) {
        self.by_deadline.clear();
        for (id, session) in &mut self.by_id {
            session.deadline += by;
            self.by_deadline.insert((session.deadline, *id));
        }
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Session> {
        self.by_id.get(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (i64, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }

    /// Sessions by their deadlines, soonest first.
    pub(crate) fn by_deadline(&self) -> &BTreeSet<(Instant, i64)> {
        &self.by_deadline
    }
}

/// The password of a session. Equal to Apache's, so that clients keep their sessions when a data
/// directory moves. It keeps honest clients apart and is no secret: who knows the id can compute it.
pub(crate) fn password(session: i64) -> [u8; 16] {
    const SALT: i64 = 0xB341_5C00;
    // `java.util.Random`: 48 bits of state, of which the upper 32 are given.
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = ((session ^ SALT).cast_unsigned() ^ MULTIPLIER) & MASK;
    let mut password = [0; 16];
    for chunk in password.chunks_exact_mut(4) {
        seed = seed.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        let [.., low4, low3, low2, low1] = (seed >> 16).to_be_bytes();
        // Java takes the bytes from the lowest on.
        chunk.copy_from_slice(&[low1, low2, low3, low4]);
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(1000);

    fn sessions() -> (Sessions, Instant) {
        let now = common::clock::now();
        (Sessions::new(INTERVAL, now, 1), now)
    }

    #[test]
    fn a_silent_session_ends_within_an_interval_of_its_timeout() {
        let (mut sessions, now) = sessions();
        sessions.begin(7, 4000, now);
        for second in 1..=4 {
            assert!(sessions.expired(now + INTERVAL * second).is_empty());
        }
        assert_eq!(sessions.expired(now + INTERVAL * 5), [7]);
    }

    #[test]
    fn a_touched_session_stays() {
        let (mut sessions, now) = sessions();
        sessions.begin(7, 2000, now);
        for second in 1..10 {
            assert!(sessions.touch(7, 2000, now + INTERVAL * second));
            assert!(sessions.expired(now + INTERVAL * second).is_empty());
        }
        assert_eq!(sessions.end(7).map(|session| session.timeout_ms), Some(2000));
        assert!(!sessions.touch(7, 2000, now));
    }

    #[test]
    fn standing_still_ends_no_session() {
        let (mut sessions, now) = sessions();
        sessions.begin(7, 4000, now);
        assert!(sessions.expired(now + INTERVAL * 60).is_empty());
        for second in 61..64 {
            assert!(sessions.expired(now + INTERVAL * second).is_empty());
        }
        assert_eq!(sessions.expired(now + INTERVAL * 64), [7]);
    }

    #[test]
    fn ids_grow_over_those_found() {
        let (mut sessions, now) = sessions();
        let id = sessions.next_id();
        sessions.begin(id + 1000, 4000, now);
        assert_eq!(sessions.next_id(), id + 1001);
        assert_eq!(sessions.next_id(), id + 1002);
    }

    #[test]
    fn a_connection_that_was_replaced_unbinds_nothing() {
        let (mut sessions, now) = sessions();
        sessions.begin(7, 4000, now);
        assert_eq!(sessions.bind(7, ConnectionId(1)), None);
        assert_eq!(sessions.bind(7, ConnectionId(2)), Some(ConnectionId(1)));
        sessions.unbind(7, ConnectionId(1));
        assert_eq!(sessions.get(7).and_then(|session| session.connection), Some(ConnectionId(2)));
    }

    #[test]
    fn passwords_are_those_of_java() {
        let hex = |id| password(id).map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(hex(1), "054cc74a37327db215e702e20c73f005");
        assert_eq!(hex(0x0100_1234_5678_9abc), "e673bc9940b4e7724864ecd8054f6ff4");
    }
}
