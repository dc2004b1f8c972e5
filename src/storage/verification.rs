//! Verifications of transactions: from the question whether a partition is part of one until the first batch, or a marker,
//! is in the log. Source: KIP-890 (part 1), `VerificationStateEntry`.

use std::collections::HashMap;

use common::ids::{ProducerEpoch, ProducerId, Timestamp};

use crate::producer_state::Origin;

/// Verifications that one log has under way at most; more make it forget the oldest, whose batch is refused then.
const VERIFICATIONS_MAX: usize = 10_000;

/// Names one verification of a log: the one that began before a marker is not taken for the one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationGuard(u64);

/// The verifications of one log. Kept in memory alone: after a restart they begin anew.
#[derive(Debug, Default)]
pub(crate) struct Verifications {
    entries: HashMap<ProducerId, Verification>,
    next: u64,
}

#[derive(Debug)]
struct Verification {
    guard: VerificationGuard,
    started: Timestamp,
    epoch: ProducerEpoch,
    /// The lowest first sequence that was seen in this epoch: one that has to come again is not overtaken.
    lowest_sequence: i32,
    /// Its answer was yes, and the batch of a coordinator, which brings no guard, may follow.
    confirmed: bool,
}

impl Verifications {
    /// Begins one for the producer, or joins the one that is under way.
    pub(crate) fn start(
        &mut self,
        (producer_id, epoch): (ProducerId, ProducerEpoch),
        sequence: i32,
        now: Timestamp,
    ) -> VerificationGuard {
        if let Some(known) = self.entries.get_mut(&producer_id) {
            if epoch > known.epoch {
                (known.epoch, known.lowest_sequence) = (epoch, sequence);
            } else if epoch == known.epoch {
                known.lowest_sequence = known.lowest_sequence.min(sequence);
            }
            return known.guard;
        }
        if self.entries.len() >= VERIFICATIONS_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.started);
            let oldest = oldest.map(|(producer_id, _)| *producer_id);
            oldest.and_then(|producer_id| self.entries.remove(&producer_id));
        }
        let guard = VerificationGuard(self.next);
        self.next += 1;
        let (started, lowest_sequence, confirmed) = (now, sequence, false);
        let entry = Verification { guard, started, epoch, lowest_sequence, confirmed };
        self.entries.insert(producer_id, entry);
        guard
    }

    /// Notes that the answer was yes, if it is still this one that is under way.
    pub(crate) fn confirm(&mut self, producer_id: ProducerId, guard: VerificationGuard) {
        if let Some(known) = self.entries.get_mut(&producer_id)
            && known.guard == guard
        {
            known.confirmed = true;
        }
    }

    /// Whether a batch that opens a transaction may be appended.
    pub(crate) fn allows(
        &self,
        producer_id: ProducerId,
        guard: Option<VerificationGuard>,
        origin: Origin,
    ) -> bool {
        self.entries.get(&producer_id).is_some_and(|known| match origin {
            Origin::Client => Some(known.guard) == guard,
            Origin::Coordinator => known.confirmed,
            Origin::Replication => true,
        })
    }

    /// The lowest first sequence that waits for its verification.
    pub(crate) fn lowest_sequence(&self, producer_id: ProducerId) -> Option<i32> {
        self.entries.get(&producer_id).map(|known| known.lowest_sequence)
    }

    /// Ends the one of a producer: its batch is in the log, or a marker.
    pub(crate) fn end(&mut self, producer_id: ProducerId) {
        self.entries.remove(&producer_id);
    }

    /// Forgets those that led to nothing for as long as producers are remembered.
    pub(crate) fn expire(&mut self, now: Timestamp, expiration_ms: i64) {
        self.entries.retain(|_, known| now.0.saturating_sub(known.started.0) < expiration_ms);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCER: ProducerId = ProducerId(7);

    #[test]
    fn a_guard_is_shared_until_the_verification_ends() {
        let mut verifications = Verifications::default();
        let start = |verifications: &mut Verifications, epoch, sequence| {
            verifications.start((PRODUCER, ProducerEpoch(epoch)), sequence, Timestamp(0))
        };
        let first = start(&mut verifications, 0, 5);
        assert_eq!(start(&mut verifications, 0, 3), first);
        assert_eq!(start(&mut verifications, 0, 9), first);
        assert_eq!(verifications.lowest_sequence(PRODUCER), Some(3));
        assert!(verifications.allows(PRODUCER, Some(first), Origin::Client));
        assert!(!verifications.allows(PRODUCER, None, Origin::Client));
        // A new epoch counts anew; what an older one says is nothing.
        start(&mut verifications, 1, 4);
        start(&mut verifications, 0, 0);
        assert_eq!(verifications.lowest_sequence(PRODUCER), Some(4));
        verifications.end(PRODUCER);
        let second = start(&mut verifications, 1, 0);
        assert!(!verifications.allows(PRODUCER, Some(first), Origin::Client));
        verifications.confirm(PRODUCER, first);
        assert!(!verifications.allows(PRODUCER, None, Origin::Coordinator));
        verifications.confirm(PRODUCER, second);
        assert!(verifications.allows(PRODUCER, None, Origin::Coordinator));
    }

    #[test]
    fn what_leads_to_nothing_is_forgotten() {
        let mut verifications = Verifications::default();
        let count = VERIFICATIONS_MAX as i64 + 1;
        for number in 0..count {
            let producer = (ProducerId(number), ProducerEpoch(0));
            verifications.start(producer, 0, Timestamp(number));
        }
        assert_eq!(verifications.lowest_sequence(ProducerId(0)), None, "the oldest made room");
        verifications.expire(Timestamp(count + 99), 100);
        assert_eq!(verifications.lowest_sequence(ProducerId(count - 2)), None);
        assert_eq!(verifications.lowest_sequence(ProducerId(count - 1)), None);
        assert!(verifications.is_empty());
    }
}
