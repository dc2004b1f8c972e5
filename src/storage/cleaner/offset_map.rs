//! The last offset of each key, in memory that has a limit. Source: `SkimpyOffsetMap`.

use std::hash::{BuildHasher, RandomState};

use common::ids::Offset;

/// Bytes of one key's place, as in Kafka: a hash of 16 bytes and an offset.
pub(crate) const BYTES_PER_KEY: u64 = 24;
/// Places that a map begins with, if it may have so many.
const SLOTS_MIN: usize = 4096;
/// By how much a map grows.
const GROWTH: usize = 4;

/// A key's hash and its offset plus one; all zeros for no key.
type Slot = [u64; 3];

/// Keys are told apart by 128 bits of hash alone. They are keyed with random numbers, so that nobody can choose two
/// keys of one hash, one of which would then be lost.
pub(crate) struct OffsetMap {
    slots: Vec<Slot>,
    slots_max: usize,
    load_factor: f64,
    hashers: [RandomState; 2],
    count: usize,
    count_max: usize,
    last_offset: Offset,
}

impl OffsetMap {
    /// A map for `keys` keys, or for as many as `bytes` bytes hold when they are filled up to `load_factor`; for one
    /// at least. It begins small; while it grows it takes a quarter more for a moment.
    pub(crate) fn new(keys: u64, bytes: u64, load_factor: f64) -> OffsetMap {
        let load_factor = load_factor.clamp(0.01, 1.0);
        let wanted = (keys as f64 / load_factor).ceil() as u64;
        let slots_max = usize::try_from(wanted.min(bytes / BYTES_PER_KEY)).unwrap_or(usize::MAX);
        let slots_max = slots_max.max(2);
        let mut map = OffsetMap {
            slots: Vec::new(),
            slots_max,
            load_factor,
            hashers: [RandomState::new(), RandomState::new()],
            count: 0,
            count_max: 0,
            last_offset: Offset::NONE,
        };
        map.resize(slots_max.min(SLOTS_MIN));
        map
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![[0; 3]; slots]);
        // One place stays free, where the search for a key that is not there ends.
        self.count_max = ((slots as f64 * self.load_factor) as usize).clamp(1, slots - 1);
        for slot in old.into_iter().filter(|slot| slot[2] != 0) {
            let (index, _) = self.find([slot[0], slot[1]]);
            self.slots[index] = slot;
        }
    }

    /// Notes a key's offset, in the place of an earlier one; false where the map has no room for a new key.
    pub(crate) fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        let (mut index, is_known) = self.find(hash);
        if !is_known && self.count == self.count_max {
            if self.slots.len() == self.slots_max {
                return false;
            }
            self.resize(self.slots.len().saturating_mul(GROWTH).min(self.slots_max));
            index = self.find(hash).0;
        }
        self.count += usize::from(!is_known);
        self.slots[index] = [hash[0], hash[1], offset.0.cast_unsigned() + 1];
        self.last_offset = offset;
        true
    }

    /// The last offset of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Offset> {
        let (index, is_known) = self.find(self.hash(key));
        is_known.then(|| Offset((self.slots[index][2] - 1).cast_signed()))
    }

    /// Notes that the log was read up to this offset.
    pub(crate) fn read_up_to(&mut self, offset: Offset) {
        self.last_offset = offset;
    }

    /// Last offset that the map speaks for; -1 for none.
    pub(crate) fn last_offset(&self) -> Offset {
        self.last_offset
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)]
    }

    /// The place of a key with this hash, or the free one where it would be; whether it is there.
    fn find(&self, [first, second]: [u64; 2]) -> (usize, bool) {
        let mut index = (first % self.slots.len() as u64) as usize;
        loop {
            match self.slots[index] {
                [_, _, 0] => return (index, false),
                [one, other, _] if (one, other) == (first, second) => return (index, true),
                _ => index = if index + 1 == self.slots.len() { 0 } else { index + 1 },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_PER_KEY, Offset, OffsetMap};

    #[test]
    fn the_last_offset_of_each_key_is_found() {
        let mut map = OffsetMap::new(30_000, u64::MAX, 0.9);
        for number in 0..90_000_u32 {
            assert!(map.put(&(number % 30_000).to_be_bytes(), Offset(i64::from(number))));
        }
        assert_eq!((map.len(), map.last_offset()), (30_000, Offset(89_999)));
        for number in 0..30_000_u32 {
            assert_eq!(map.get(&number.to_be_bytes()), Some(Offset(i64::from(number) + 60_000)));
        }
        assert_eq!(map.get(b"another"), None);
    }

    #[test]
    fn a_full_map_takes_no_new_key_but_knows_the_old_ones() {
        let mut map = OffsetMap::new(1 << 40, 100 * BYTES_PER_KEY, 0.9);
        let taken = (0..200_u32)
            .take_while(|number| map.put(&number.to_be_bytes(), Offset(i64::from(*number))));
        assert_eq!(taken.count(), 90);
        assert!(!map.put(b"new", Offset(500)));
        assert_eq!(map.last_offset(), Offset(89));
        assert!(map.put(&7_u32.to_be_bytes(), Offset(501)));
        assert_eq!(map.get(&7_u32.to_be_bytes()), Some(Offset(501)));
    }

    #[test]
    fn the_smallest_map_holds_a_key() {
        for load_factor in [0.0, 0.9, 7.0] {
            let mut map = OffsetMap::new(5, 1, load_factor);
            assert!(map.put(b"a", Offset(0)));
            assert!(!map.put(b"b", Offset(1)));
            assert_eq!(map.get(b"a"), Some(Offset(0)));
        }
    }
}
