//! What a connection has in flight, which bounds it, and what the four-letter words tell of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::code::op;
use crate::request::RequestHeader;

/// Replies that a connection may leave unread before its requests are no longer read.
const QUEUED_BYTES_MAX: usize = 4 << 20;
/// What all connections together may leave unread before those that leave more than a little are
/// no longer read: so that many deaf ones do not add up.
const QUEUED_BYTES_MAX_ALL: usize = 256 << 20;
const QUEUED_BYTES_LITTLE: usize = 64 << 10;
/// Requests that may wait for their replies.
const REQUESTS_MAX: usize = 1000;
/// Notifications can't be held back; who lets this much pile up is cut off and comes back.
const HOPELESS_BYTES: usize = 64 << 20;

/// Requests and replies on their way.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    queued_bytes: AtomicUsize,
    /// Of all connections.
    queued_bytes_all: Arc<AtomicUsize>,
    requests: AtomicUsize,
    room: Notify,
    stats: Mutex<Stats>,
}

/// What is shown of a connection, or of all together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stats {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) last_operation: &'static str,
    pub(crate) last_cxid: i32,
    pub(crate) last_zxid: i64,
    pub(crate) established_ms: i64,
    pub(crate) last_response_ms: i64,
    pub(crate) latency: Latency,
}

impl Stats {
    fn new(established_ms: i64) -> Stats {
        Stats { established_ms, last_operation: "NA", last_cxid: -1, ..Stats::default() }
    }
}

/// Times from requests to their replies, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latency {
    pub(crate) last: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    total: u64,
    count: u64,
}

/// Sizes of replies, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) last: usize,
    pub(crate) min: usize,
    pub(crate) max: usize,
}

impl Sizes {
    /// With one more; `None` before the first.
    pub(crate) fn with(sizes: Option<Sizes>, size: usize) -> Sizes {
        let before = sizes.unwrap_or(Sizes { last: size, min: size, max: size });
        Sizes { last: size, min: before.min.min(size), max: before.max.max(size) }
    }
}

impl Latency {
    pub(crate) fn add(&mut self, latency: Duration) {
        let latency = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        self.last = latency;
        self.min = if self.count == 0 { latency } else { self.min.min(latency) };
        self.max = self.max.max(latency);
        self.total = self.total.saturating_add(latency);
        self.count += 1;
    }

    /// As Java prints it, with up to four decimals.
    pub(crate) fn average(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        // Exact enough: these are milliseconds.
        let average = self.total as f64 / self.count as f64;
        (average * 10_000.0).round() / 10_000.0
    }

    /// The average, in whole milliseconds.
    pub(crate) fn average_whole(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

impl Traffic {
    pub(crate) fn new(now_ms: i64, queued_bytes_all: Arc<AtomicUsize>) -> Traffic {
        let stats = Stats::new(now_ms);
        Traffic {
            queued_bytes: AtomicUsize::new(0),
            queued_bytes_all,
            requests: AtomicUsize::new(0),
            room: Notify::new(),
            stats: Mutex::new(stats),
        }
    }

    /// A frame came; its reply is counted until it is sent.
    pub(crate) fn received(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.stats.lock().received += 1;
    }

    /// What the frame asked for.
    pub(crate) fn asked(&self, header: RequestHeader, zxid: i64) {
        let mut stats = self.stats.lock();
        stats.last_operation = operation_name(header.op);
        // Those of pings and the like are below zero and not shown.
        if header.xid >= 0 {
            stats.last_cxid = header.xid;
        }
        stats.last_zxid = zxid;
    }

    /// It was a write that changed nothing; Apache knows no name for it then.
    pub(crate) fn refused(&self) {
        self.stats.lock().last_operation = "NA";
    }

    /// Something will be sent.
    pub(crate) fn queued(&self, bytes: usize) {
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.queued_bytes_all.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A reply goes out now.
    pub(crate) fn replied(&self, latency: Duration, now_ms: i64) {
        let mut stats = self.stats.lock();
        stats.latency.add(latency);
        stats.last_response_ms = now_ms;
    }

    /// So many frames and bytes are in the socket; `replies` of them answered a request.
    pub(crate) fn sent(&self, frames: usize, replies: usize, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.queued_bytes_all.fetch_sub(bytes, Ordering::Relaxed);
        self.requests.fetch_sub(replies, Ordering::Relaxed);
        self.stats.lock().sent += u64::try_from(frames).unwrap_or(u64::MAX);
        self.room.notify_one();
    }

    fn is_full(&self) -> bool {
        let queued = self.queued_bytes.load(Ordering::Relaxed);
        let all = self.queued_bytes_all.load(Ordering::Relaxed);
        queued > QUEUED_BYTES_MAX
            || all > QUEUED_BYTES_MAX_ALL && queued > QUEUED_BYTES_LITTLE
            || self.requests.load(Ordering::Relaxed) >= REQUESTS_MAX
    }

    /// Waits until another request may be read. One task alone may wait.
    pub(crate) async fn wait_for_room(&self) {
        while self.is_full() {
            self.room.notified().await;
        }
    }

    /// Whether the peer has not read for so long that waiting makes no sense.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.queued_bytes.load(Ordering::Relaxed) > HOPELESS_BYTES
    }

    /// Bytes that wait for the socket.
    #[cfg(test)]
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Requests without a reply so far.
    pub(crate) fn outstanding(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> Stats {
        *self.stats.lock()
    }

    pub(crate) fn reset(&self) {
        let mut stats = self.stats.lock();
        *stats = Stats::new(stats.established_ms);
    }
}

impl Drop for Traffic {
    /// What was not sent is gone with the connection.
    fn drop(&mut self) {
        let queued = *self.queued_bytes.get_mut();
        self.queued_bytes_all.fetch_sub(queued, Ordering::Relaxed);
    }
}

/// The short names of `cons`.
fn operation_name(op: i32) -> &'static str {
    match op {
        op::CREATE | op::CREATE2 | op::CREATE_TTL | op::CREATE_CONTAINER => "CREA",
        op::DELETE => "DELE",
        op::EXISTS => "EXIS",
        op::GET_DATA => "GETD",
        op::SET_DATA => "SETD",
        op::GET_ACL => "GETA",
        op::SET_ACL => "SETA",
        op::GET_CHILDREN | op::GET_CHILDREN2 => "GETC",
        op::GET_ALL_CHILDREN_NUMBER => "GETACN",
        op::GET_EPHEMERALS => "GETE",
        op::SYNC => "SYNC",
        op::PING => "PING",
        op::MULTI => "MULT",
        op::MULTI_READ => "MLTR",
        op::RECONFIG => "RECO",
        op::SET_WATCHES => "SETW",
        op::SET_WATCHES2 => "STW2",
        op::ADD_WATCH => "ADDW",
        op::CHECK_WATCHES => "CHKW",
        op::REMOVE_WATCHES => "REMW",
        op::WHO_AM_I => "HOMI",
        op::CLOSE_SESSION => "CLOS",
        _ => "NA",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deaf_are_held_back_when_they_add_up_and_others_are_not() {
        let all = Arc::new(AtomicUsize::new(0));
        let deaf: Vec<Traffic> = (0..100).map(|_| Traffic::new(0, all.clone())).collect();
        let other = Traffic::new(0, all.clone());
        for traffic in &deaf {
            traffic.queued(3 << 20);
        }
        other.queued(1000);
        assert!(deaf.iter().all(Traffic::is_full));
        assert!(!other.is_full());
        drop(deaf);
        assert_eq!(all.load(Ordering::Relaxed), 1000);
    }
}
