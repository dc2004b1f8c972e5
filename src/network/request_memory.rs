//! `queued.max.request.bytes`: the bytes of requests that all connections together hold, read and not answered.
//!
//! As in Kafka it is no hard bound: a request that has begun to come comes to its end, but none begins while it is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

pub(crate) struct RequestMemory {
    bytes_max: usize,
    used: AtomicUsize,
    freed: Notify,
}

impl RequestMemory {
    pub(crate) fn new(bytes_max: usize) -> Arc<RequestMemory> {
        Arc::new(RequestMemory { bytes_max, used: AtomicUsize::new(0), freed: Notify::new() })
    }

    /// Whether a connection that holds nothing may begin to read a request.
    pub(crate) fn has_room(&self) -> bool {
        self.used.load(Ordering::Acquire) < self.bytes_max
    }
}

/// What one connection holds. Without a limit nothing is counted.
pub(crate) struct Held {
    memory: Option<Arc<RequestMemory>>,
    bytes: usize,
}

impl Held {
    pub(crate) fn new(memory: Option<Arc<RequestMemory>>) -> Held {
        Held { memory, bytes: 0 }
    }

    /// Tells how much it is now.
    pub(crate) fn set(&mut self, bytes: usize) {
        let Some(memory) = &self.memory else { return };
        if bytes > self.bytes {
            memory.used.fetch_add(bytes - self.bytes, Ordering::AcqRel);
        } else if bytes < self.bytes {
            memory.used.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
            memory.freed.notify_waiters();
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Ends when memory is given back after this was first polled; never without a limit.
pub(crate) async fn freed(memory: Option<Arc<RequestMemory>>) {
    match memory {
        Some(memory) => memory.freed.notified().await,
        None => std::future::pending().await,
    }
}
