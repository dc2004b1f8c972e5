//! What happens with time: transactions that take too long, ids that nobody uses, and what is tried again.

use std::{sync::Arc, time::Instant};

use common::ids::Timestamp;

use crate::{
    action::Action,
    coordinator::{Pending, Phase, Transaction, TransactionCoordinator},
    event::Now,
    records::TransactionRecord,
    state::TransactionState,
};

/// Tombstones go out in batches of about this size, far below any sensible `max.message.bytes`.
const TOMBSTONE_BATCH_BYTES: usize = 16 * 1024;
/// A tombstone takes at most this much beside its id.
const TOMBSTONE_OVERHEAD_BYTES: usize = 32;

impl TransactionCoordinator {
    /// When `on_wake` has something to do next, unless an event changes it; none unless loaded, and after resigning.
    pub fn next_wake(&self) -> Option<Instant> {
        let Phase::Active { abort_at, expire_at } = self.phase else { return None };
        let retry_at = self.retries.first().map(|(at, _)| *at);
        retry_at.into_iter().chain([abort_at, expire_at]).min()
    }

    /// Does what is due. Early and late calls do no harm.
    pub fn on_wake(&mut self, now: Now, actions: &mut Vec<Action>) {
        let Phase::Active { mut abort_at, mut expire_at } = self.phase else { return };
        while self.retries.first().is_some_and(|(at, _)| *at <= now.monotonic) {
            let (_, id) = self.retries.pop_first().expect("the first one was just seen");
            self.go_on(&id, actions);
        }
        if abort_at <= now.monotonic {
            abort_at = now.monotonic + self.config.abort_interval;
            for id in self.ids_where(|transaction| is_too_long(transaction, now.wall)) {
                self.fence(&id, None, now, actions);
            }
        }
        if expire_at <= now.monotonic {
            expire_at = now.monotonic + self.config.expire_interval;
            self.remove_expired(now, actions);
        }
        self.phase = Phase::Active { abort_at, expire_at };
    }

    fn remove_expired(&mut self, now: Now, actions: &mut Vec<Action>) {
        let kept_ms = i64::try_from(self.config.id_expiration.as_millis()).unwrap_or(i64::MAX);
        let last_used = Timestamp(now.wall.0.saturating_sub(kept_ms));
        let is_unused = |transaction: &Transaction| {
            transaction.pending.is_none()
                && transaction.stored.state.may_expire()
                && transaction.stored.last_update <= last_used
        };
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        for id in self.ids_where(is_unused) {
            let bytes = TOMBSTONE_OVERHEAD_BYTES + id.len();
            if batch_bytes + bytes > TOMBSTONE_BATCH_BYTES && !batch.is_empty() {
                self.append_tombstones(std::mem::take(&mut batch), actions);
                batch_bytes = 0;
            }
            batch_bytes += bytes;
            batch.push(id);
        }
        if !batch.is_empty() {
            self.append_tombstones(batch, actions);
        }
    }

    fn append_tombstones(&mut self, ids: Vec<Arc<str>>, actions: &mut Vec<Action>) {
        for id in &ids {
            let transaction = self.transactions.get_mut(id).expect("an expired id is there");
            transaction.pending = Some(Pending::Expiring);
        }
        let record =
            |id: &Arc<str>| TransactionRecord { transactional_id: id.clone(), value: None };
        let records = ids.iter().map(record).collect();
        let append = self.append_of(ids);
        actions.push(Action::Append { append, records, timeout: None });
    }
}

/// Whether the transaction is to be aborted now.
fn is_too_long(transaction: &Transaction, now: Timestamp) -> bool {
    let stored = &transaction.stored;
    stored.state == TransactionState::Ongoing
        && transaction.pending.is_none()
        && stored.start.0.saturating_add(stored.timeout_ms.into()) < now.0
}
