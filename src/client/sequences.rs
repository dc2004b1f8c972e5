//! The sequences of one partition's batches, and when they have to begin anew. Source: `TxnPartitionEntry`.

use common::ids::ProducerEpoch;

use crate::accumulator::Identity;

/// What a producer knows of the sequences that it gave to a partition.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    /// None before the first batch.
    identity: Option<Identity>,
    next: i32,
    /// The sequence after the last one that the broker has.
    expected: i32,
    doubt: Doubt,
}

/// Whether the broker will take what comes next.
#[derive(Debug, Default, PartialEq, Eq)]
enum Doubt {
    #[default]
    None,
    /// A batch was given up; whether the broker has it shows by what it says to the next one.
    GivenUp,
    /// The broker misses sequences that nobody will send.
    Gap,
}

/// A batch that the broker refused for its sequence.
pub(crate) struct OutOfOrder {
    pub(crate) sequence: i32,
    /// Whether no other one is under way.
    pub(crate) is_alone: bool,
    /// Whether an earlier attempt had no answer.
    pub(crate) may_be_in_the_log: bool,
}

/// What has to happen before a batch may go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Batches under way have to be answered first.
    Wait,
    /// It goes on as before.
    Same,
    /// Sequences begin anew with this identity; none when one has to be asked for.
    Restart(Option<Identity>),
}

impl Sequences {
    pub(crate) fn new(identity: Identity) -> Sequences {
        Sequences { identity: Some(identity), ..Sequences::default() }
    }

    /// Gives the next sequence to a batch.
    pub(crate) fn take(&mut self, record_count: i32) -> Option<(Identity, i32)> {
        let sequence = self.next;
        self.next = record::batch::increment_sequence(sequence, record_count);
        Some((self.identity?, sequence))
    }

    /// The broker has a batch.
    pub(crate) fn acknowledge(&mut self, sequence: i32, record_count: i32) {
        let end = record::batch::increment_sequence(sequence, record_count);
        // Sequences wrap at 2^31; an answer that comes late is behind.
        let ahead = end.wrapping_sub(self.expected) & i32::MAX;
        if ahead < 1 << 30 {
            self.expected = end;
        }
    }

    /// The broker misses what comes before a batch, and no earlier batch waits to be sent again. Whether the batch may be
    /// sent again: one that may be in the log, so that the broker has forgotten it, would be there twice.
    pub(crate) fn out_of_order(&mut self, refused: &OutOfOrder) -> bool {
        let is_first = refused.is_alone || refused.sequence == self.expected;
        if is_first && self.doubt == Doubt::None && refused.may_be_in_the_log {
            return false;
        }
        if is_first || self.doubt == Doubt::GivenUp {
            self.doubt = Doubt::Gap;
        }
        true
    }

    /// A batch that was sent is given up.
    pub(crate) fn doubt(&mut self) {
        if self.doubt == Doubt::None {
            self.doubt = Doubt::GivenUp;
        }
    }

    /// What has to happen before the next batch goes. `current` is the producer's identity, `first` the sequence of
    /// that batch where it has one from an earlier attempt.
    pub(crate) fn next_identity(
        &mut self,
        current: Identity,
        first: Option<i32>,
        in_flight: usize,
    ) -> Next {
        if in_flight > 0 {
            return if self.doubt == Doubt::None { Next::Same } else { Next::Wait };
        }
        if self.doubt == Doubt::GivenUp && first.unwrap_or(self.next) == self.expected {
            self.doubt = Doubt::None;
        }
        let is_gap = match self.doubt {
            Doubt::None => false,
            Doubt::GivenUp => first.is_none(),
            Doubt::Gap => true,
        };
        let is_stale = self.identity != Some(current);
        match (is_gap, is_stale) {
            // Another partition has begun a new epoch already.
            (true, true) => Next::Restart(Some(current)),
            (true, false) => Next::Restart(after(current)),
            (false, true) if first.is_none() => Next::Restart(Some(current)),
            (false, _) => Next::Same,
        }
    }
}

/// The next epoch. Source: `TransactionManager.bumpIdempotentProducerEpoch`.
fn after(identity: Identity) -> Option<Identity> {
    let epoch = identity.epoch.0;
    (epoch < i16::MAX).then(|| Identity { epoch: ProducerEpoch(epoch + 1), ..identity })
}

#[cfg(test)]
mod tests {
    use common::ids::{ProducerEpoch, ProducerId};

    use super::{Next, OutOfOrder, Sequences};
    use crate::accumulator::Identity;

    #[test]
    fn a_producer_without_epochs_left_asks_for_another_id() {
        let last = Identity { id: ProducerId(7), epoch: ProducerEpoch(i16::MAX) };
        let mut sequences = Sequences::new(last);
        sequences.take(1);
        let refused = OutOfOrder { sequence: 0, is_alone: true, may_be_in_the_log: false };
        assert!(sequences.out_of_order(&refused));
        assert_eq!(sequences.next_identity(last, Some(0), 0), Next::Restart(None));
        let other = Identity { id: ProducerId(8), epoch: ProducerEpoch(0) };
        assert_eq!(sequences.next_identity(other, Some(0), 0), Next::Restart(Some(other)));
    }

    #[test]
    fn sequences_wrap() {
        let mut sequences =
            Sequences { next: i32::MAX, expected: i32::MAX, ..Sequences::default() };
        sequences.acknowledge(i32::MAX, 2);
        assert_eq!(sequences.expected, 1);
        sequences.acknowledge(i32::MAX - 1, 1);
        assert_eq!(sequences.expected, 1, "that one is behind");
    }
}
