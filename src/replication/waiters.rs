//! Those who wait for a partition to change: fetches for more bytes, produces for acks.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The waiters of one partition; takes memory only while somebody waits.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Mutex<Vec<Arc<Notify>>>,
}

impl Waiters {
    /// Adds a waiter; several partitions may share one.
    pub(crate) fn add(&self, waiter: &Arc<Notify>) {
        self.waiting.lock().push(waiter.clone());
    }

    /// Removes a waiter that was added.
    pub(crate) fn remove(&self, waiter: &Arc<Notify>) {
        let mut waiting = self.waiting.lock();
        if let Some(index) = waiting.iter().position(|other| Arc::ptr_eq(other, waiter)) {
            waiting.swap_remove(index);
        }
        if waiting.is_empty() {
            *waiting = Vec::new();
        }
    }

    /// Wakes all; each looks for itself whether it has what it waits for.
    pub(crate) fn wake(&self) {
        for waiter in self.waiting.lock().iter() {
            waiter.notify_one();
        }
    }
}
