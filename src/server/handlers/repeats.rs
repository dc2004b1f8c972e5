//! Bounds what one request can make of one thing: a name costs the asker a few bytes, and its description many thousands.

use std::{collections::HashMap, hash::Hash};

/// How often a thing is described in one answer; clients ask once. Kafka has no bound: 100 KB of names make it write a gigabyte.
const REPEATS_MAX: usize = 8;

/// Counts what was asked for in one request.
pub(crate) struct Repeats<K>(HashMap<K, usize>);

impl<K: Hash + Eq> Repeats<K> {
    /// Nothing yet.
    pub(crate) fn new() -> Repeats<K> {
        Repeats(HashMap::new())
    }

    /// Whether to answer for a thing once more; further questions are left out of the answer.
    pub(crate) fn admit(&mut self, thing: K) -> bool {
        let count = self.0.entry(thing).or_default();
        *count += 1;
        *count <= REPEATS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_described_so_often_and_another_too() {
        let mut repeats = Repeats::new();
        let admitted = (0..100).filter(|_| repeats.admit("one")).count();
        assert_eq!((admitted, repeats.admit("other")), (REPEATS_MAX, true));
    }
}
