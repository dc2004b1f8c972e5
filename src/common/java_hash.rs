//! Java's hash of text, by which Kafka finds the partition of a group or a transactional id, and the order of Java's hash tables.

/// The hash of a text as Java has it: over its UTF-16 units. Source: `java.lang.String.hashCode`.
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The partition, of `count` ones, of a coordinator's topic that a key belongs to; 0 where there are none.
/// Source: `GroupMetadataManager.partitionFor`, `Utils.abs`.
pub fn coordinator_partition(key: &str, count: i32) -> i32 {
    // Kafka's `abs` of the smallest number is 0.
    java_hash(key).checked_abs().unwrap_or(0).checked_rem(count).unwrap_or(0)
}

/// Slots of an empty table.
const SLOTS_MIN: u32 = 16;

/// The items as a table gives them that they were put into in the given order. Source: `java.util.HashMap`.
pub fn in_hash_order<T>(mut items: Vec<T>, hash: impl Fn(&T) -> i32) -> Vec<T> {
    let mut slots = SLOTS_MIN;
    // The table doubles when it is three quarters full.
    while items.len() > usize::try_from(slots / 4 * 3).unwrap_or(usize::MAX) {
        slots *= 2;
    }
    let slot = |item: &T| {
        let hash = hash(item).cast_unsigned();
        (hash ^ (hash >> 16)) & (slots - 1)
    };
    // Items of one slot keep their order.
    items.sort_by_key(slot);
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_hashes_as_in_java() {
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("a"), 97);
        assert_eq!(java_hash("hello"), 99_162_322);
        // Above the basic plane a character is two units.
        assert_eq!(java_hash("\u{1F600}"), 1_772_899);
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
    }

    #[test]
    fn a_key_has_a_partition_whatever_its_hash() {
        assert_eq!(coordinator_partition("hello", 50), 22);
        assert_eq!(coordinator_partition("polygenelubricants", 50), 0);
        assert_eq!(coordinator_partition("group", 0), 0);
    }
}
