//! The randomness of a run: all of it comes from the seed.

/// SplitMix64: small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, which is not 0.
    pub fn below(&mut self, count: u64) -> u64 {
        self.number() % count
    }

    /// A number from `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a thousand cases.
    pub fn chance(&mut self, of_a_thousand: u64) -> bool {
        self.below(1000) < of_a_thousand
    }

    /// One of the items; none where there are none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        match items {
            [] => None,
            _ => Some(items[usize::try_from(self.below(items.len() as u64)).unwrap_or(0)]),
        }
    }
}
