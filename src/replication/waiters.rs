//! Those who wait for partitions to change: fetches for more bytes, produces for acks, fetch sessions for what to look at.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Collects which of a reader's partitions have changed. Each partition has a number, its slot; a slot that has changed
/// is collected once until it is taken, so that there are never more than slots.
#[derive(Debug, Default)]
pub struct Changes {
    notify: Notify,
    marked: Mutex<Marked>,
}

#[derive(Debug, Default)]
struct Marked {
    slots: Vec<u32>,
    /// A bit for each slot. Slots beyond are not collected: a change just wakes.
    bits: Vec<u64>,
}

impl Marked {
    fn mark(&mut self, slot: u32) {
        let (word, bit) = ((slot / 64) as usize, 1 << (slot % 64));
        if let Some(word) = self.bits.get_mut(word)
            && *word & bit == 0
        {
            *word |= bit;
            self.slots.push(slot);
        }
    }
}

impl Changes {
    /// Makes room to collect slots below `count`.
    pub(crate) fn collect(&self, count: usize) {
        let mut marked = self.marked.lock();
        let words = count.div_ceil(64);
        if words > marked.bits.len() {
            marked.bits.resize(words, 0);
        }
    }

    /// A slot's partition has changed: collects it, and wakes the reader.
    pub(crate) fn changed(&self, slot: u32) {
        self.marked.lock().mark(slot);
        self.notify.notify_one();
    }

    /// Collects a slot without waking: it is to be looked at again next time.
    pub(crate) fn mark(&self, slot: u32) {
        self.marked.lock().mark(slot);
    }

    /// Takes what was collected.
    pub(crate) fn take(&self) -> Vec<u32> {
        let mut marked = self.marked.lock();
        let slots = std::mem::take(&mut marked.slots);
        for slot in &slots {
            marked.bits[(*slot / 64) as usize] = 0;
        }
        slots
    }

    /// Ends at a change since the last call.
    pub(crate) async fn wait(&self) {
        self.notify.notified().await;
    }
}

/// The waiters of one partition; takes memory only while somebody waits.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Mutex<Vec<(Arc<Changes>, u32)>>,
}

impl Waiters {
    /// Adds a waiter, and the number that it has given the partition.
    pub(crate) fn add(&self, waiter: &Arc<Changes>, slot: u32) {
        self.waiting.lock().push((waiter.clone(), slot));
    }

    /// Removes a waiter that was added.
    pub(crate) fn remove(&self, waiter: &Arc<Changes>, slot: u32) {
        let mut waiting = self.waiting.lock();
        let is_it = |other: &(Arc<Changes>, u32)| Arc::ptr_eq(&other.0, waiter) && other.1 == slot;
        if let Some(index) = waiting.iter().position(is_it) {
            waiting.swap_remove(index);
        }
        if waiting.is_empty() {
            *waiting = Vec::new();
        }
    }

    /// Wakes all; each looks for itself whether it has what it waits for.
    pub(crate) fn wake(&self) {
        for (waiter, slot) in self.waiting.lock().iter() {
            waiter.changed(*slot);
        }
    }
}
