//! Deadlines of groups and members. Moving one on, as each heartbeat does, costs no work on the heap:
//! the entry stays where it is, and is moved once it comes up.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Instant};

/// Whose deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    /// The end of a group's joining phase, or of its initial delay.
    Join(Arc<str>),
    /// The last moment to ask for the assignment.
    Sync(Arc<str>),
    /// The session of a member, or of one that is pending: group and member id.
    Member(Arc<str>, Arc<str>),
}

/// When something is due, and since when the heap knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    /// Time of this deadline's entry in the heap, which is at most `at`; other entries of its key are stale.
    armed: Option<Instant>,
}

impl Deadline {
    /// Sets it, or moves it.
    pub(crate) fn set(&mut self, at: Instant, timers: &mut Timers, key: impl FnOnce() -> TimerKey) {
        self.at = Some(at);
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            timers.heap.push(Reverse((at, key())));
        }
    }

    /// Nothing is due.
    pub(crate) fn clear(&mut self) {
        self.at = None;
    }

    /// Takes note that an entry of this key has come up; whether the deadline is over.
    pub(crate) fn comes_up(
        &mut self,
        entry: Instant,
        now: Instant,
        timers: &mut Timers,
        key: &TimerKey,
    ) -> bool {
        if self.armed != Some(entry) {
            return false;
        }
        self.armed = None;
        match self.at {
            Some(at) if at <= now => {
                self.at = None;
                true
            }
            Some(at) => {
                self.set(at, timers, || key.clone());
                false
            }
            None => false,
        }
    }
}

/// All entries, earliest first. What is gone leaves its entry behind until its time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, TimerKey)>>,
}

impl Timers {
    /// When the first entry comes up.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the first entry if it is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, TimerKey)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Deadline, TimerKey, Timers};

    #[test]
    fn a_deadline_that_moves_on_has_one_entry() {
        let start = common::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let key = || TimerKey::Member("g".into(), "m".into());
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        for second in 10..1010 {
            deadline.set(at(second), &mut timers, key);
        }
        assert_eq!((timers.heap.len(), timers.next()), (1, Some(at(10))));
        // The entry comes up at its old time, and is moved to the last one.
        let (entry, key) = timers.pop(at(500)).unwrap();
        assert!(!deadline.comes_up(entry, at(500), &mut timers, &key));
        assert_eq!((timers.heap.len(), timers.next()), (1, Some(at(1009))));
        let (entry, key) = timers.pop(at(1009)).unwrap();
        assert!(deadline.comes_up(entry, at(1009), &mut timers, &key));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn an_earlier_deadline_makes_the_old_entry_stale() {
        let start = common::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let key = || TimerKey::Join("g".into());
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        deadline.set(at(10), &mut timers, key);
        deadline.set(at(5), &mut timers, key);
        let (entry, key) = timers.pop(at(20)).unwrap();
        assert!(deadline.comes_up(entry, at(20), &mut timers, &key));
        let (entry, key) = timers.pop(at(20)).unwrap();
        assert!(!deadline.comes_up(entry, at(20), &mut timers, &key));
        assert_eq!(timers.next(), None);
    }
}
