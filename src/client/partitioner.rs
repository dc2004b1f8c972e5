//! Which partition a record goes to. Source: `BuiltInPartitioner`, `Utils.murmur2`.

/// Partition of a record with a key, among all partitions of the topic (available or not).
///
/// # Panics
/// Where `partition_count` is 0.
pub fn partition_for_key(key: &[u8], partition_count: i32) -> i32 {
    assert!(partition_count > 0, "a topic has partitions");
    let positive = i32::try_from(murmur2(key) & 0x7fff_ffff).expect("31 bits fit");
    positive % partition_count
}

/// The 32-bit MurmurHash2 with Kafka's seed.
pub fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const MULTIPLIER: u32 = 0x5bd1_e995;
    const SHIFT: u32 = 24;
    // The length is folded in as 32 bits; keys are shorter than that.
    let mut hash = SEED ^ u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut value = u32::from_le_bytes(word.try_into().expect("four bytes"));
        value = value.wrapping_mul(MULTIPLIER);
        value ^= value >> SHIFT;
        value = value.wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER) ^ value;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::{murmur2, partition_for_key};

    #[test]
    fn hashes_are_those_of_kafka() {
        // The cases of Kafka's own UtilsTest.
        let cases: [(&[u8], i32); 6] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ];
        for (key, hash) in cases {
            assert_eq!(murmur2(key), hash.cast_unsigned(), "{key:?}");
        }
        assert_eq!(partition_for_key(b"abc", 7), 479_470_107 % 7);
    }
}
