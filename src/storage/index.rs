//! Offset and time indexes: sorted entries of fixed size, most of them in a file, the newest in memory.
//!
//! Appends go to memory and are written to the file in lots: what is lost in a crash is found again by recovery.
//! The part in the file is checked when it is first used, then mapped read-only while it is used.

use common::ids::{Offset, Timestamp};

/// Entries kept in memory before they are written to the file.
pub(crate) const TAIL_LENGTH_MAX: usize = 512;

/// An entry of an index, as it stands in the file.
pub(crate) trait Entry: Copy {
    /// Bytes of one entry.
    const SIZE: usize;
    /// Reads an entry of `SIZE` bytes.
    fn decode(bytes: &[u8]) -> Self;
    /// Appends the entry's bytes.
    fn encode(self, bytes: &mut Vec<u8>);
    /// Whether it may stand after `previous`.
    fn follows(self, previous: Self) -> bool;
    /// Whether it may stand in an index of a segment that has `size` bytes.
    fn fits(self, size: u64) -> bool;
}

/// `.index`: up to this offset, relative to the segment's base, everything lies before or in the append at `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    pub(crate) relative: u32,
    pub(crate) position: u32,
}

/// `.timeindex`: up to the offset, no record has a larger timestamp, and the batch that ends there has this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub(crate) timestamp: Timestamp,
    pub(crate) relative: u32,
}

impl Entry for OffsetEntry {
    const SIZE: usize = 8;

    fn decode(bytes: &[u8]) -> OffsetEntry {
        OffsetEntry { relative: u32_at(bytes, 0), position: u32_at(bytes, 4) }
    }

    fn encode(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.relative.to_be_bytes());
        bytes.extend_from_slice(&self.position.to_be_bytes());
    }

    fn follows(self, previous: OffsetEntry) -> bool {
        self.relative > previous.relative && self.position > previous.position
    }

    fn fits(self, size: u64) -> bool {
        self.relative <= i32::MAX as u32 && u64::from(self.position) < size
    }
}

impl Entry for TimeEntry {
    const SIZE: usize = 12;

    fn decode(bytes: &[u8]) -> TimeEntry {
        let timestamp = u64::from(u32_at(bytes, 0)) << 32 | u64::from(u32_at(bytes, 4));
        TimeEntry { timestamp: Timestamp(timestamp.cast_signed()), relative: u32_at(bytes, 8) }
    }

    fn encode(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.timestamp.0.to_be_bytes());
        bytes.extend_from_slice(&self.relative.to_be_bytes());
    }

    fn follows(self, previous: TimeEntry) -> bool {
        self.timestamp > previous.timestamp && self.relative >= previous.relative
    }

    fn fits(self, size: u64) -> bool {
        self.relative <= i32::MAX as u32 && self.timestamp.0 >= 0 && size > 0
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("an entry has its size"))
}

/// Entries in their encoded form: a file's content, or a part of it.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a, E> {
    bytes: &'a [u8],
    entry: std::marker::PhantomData<E>,
}

impl<'a, E: Entry> Entries<'a, E> {
    /// Takes a file's content; `None` where it cannot be the index of a segment of `size` bytes.
    pub(crate) fn checked(bytes: &'a [u8], size: u64) -> Option<Entries<'a, E>> {
        if !bytes.len().is_multiple_of(E::SIZE) {
            return None;
        }
        let mut previous: Option<E> = None;
        for bytes in bytes.chunks_exact(E::SIZE) {
            let entry = E::decode(bytes);
            if !entry.fits(size) || previous.is_some_and(|previous| !entry.follows(previous)) {
                return None;
            }
            previous = Some(entry);
        }
        Some(Entries { bytes, entry: std::marker::PhantomData })
    }

    /// Takes bytes that `checked` has seen.
    pub(crate) fn trusted(bytes: &'a [u8]) -> Entries<'a, E> {
        Entries { bytes, entry: std::marker::PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / E::SIZE
    }

    pub(crate) fn get(&self, index: usize) -> Option<E> {
        let start = index.checked_mul(E::SIZE)?;
        self.bytes.get(start..start + E::SIZE).map(E::decode)
    }

    pub(crate) fn last(&self) -> Option<E> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Index of the last entry for which `reached` holds; it holds for the first ones, then no more.
    pub(crate) fn floor(&self, reached: impl Fn(E) -> bool) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle) {
                Some(entry) if reached(entry) => low = middle + 1,
                _ => high = middle,
            }
        }
        low.checked_sub(1)
    }
}

/// One index of a segment, as the log holds it.
#[derive(Clone, Debug)]
pub(crate) struct Index<E> {
    /// Entries in the file; `None` until the file is first looked at.
    pub(crate) stored: Option<u32>,
    /// Entries that come after those in the file.
    pub(crate) tail: Vec<E>,
}

impl<E: Entry> Index<E> {
    /// An index whose file is still to be looked at.
    pub(crate) fn unread() -> Index<E> {
        Index { stored: None, tail: Vec::new() }
    }

    /// An index without entries and without a file, or with an empty one.
    pub(crate) fn empty() -> Index<E> {
        Index { stored: Some(0), tail: Vec::new() }
    }

    /// How many entries there are; 0 while the file has not been looked at.
    pub(crate) fn len(&self) -> usize {
        self.stored.unwrap_or(0) as usize + self.tail.len()
    }

    /// The bytes of the tail.
    pub(crate) fn encode_tail(&self) -> Vec<u8> {
        encode(&self.tail)
    }
}

/// The bytes of entries.
pub(crate) fn encode<E: Entry>(entries: &[E]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * E::SIZE);
    for entry in entries {
        entry.encode(&mut bytes);
    }
    bytes
}

/// An offset relative to a segment's base; `None` where it does not fit, which makes the log roll.
pub(crate) fn relative(base: Offset, offset: Offset) -> Option<u32> {
    let relative = offset.0.checked_sub(base.0)?;
    i32::try_from(relative).ok().and_then(|relative| u32::try_from(relative).ok())
}

#[cfg(test)]
mod tests {
    use super::{Entries, Entry, OffsetEntry, TimeEntry, Timestamp, encode};

    #[test]
    fn entries_are_checked_and_searched() {
        let entries: Vec<OffsetEntry> = (1..10)
            .map(|number| OffsetEntry { relative: number * 10, position: number * 100 })
            .collect();
        let bytes = encode(&entries);
        let read = Entries::<OffsetEntry>::checked(&bytes, 901).unwrap();
        assert_eq!(read.len(), 9);
        assert_eq!(read.last(), entries.last().copied());
        assert_eq!(read.floor(|entry| entry.relative <= 9), None);
        assert_eq!(read.floor(|entry| entry.relative <= 55), Some(4));
        assert_eq!(read.floor(|entry| entry.relative <= 1000), Some(8));
        assert!(Entries::<OffsetEntry>::checked(&bytes, 900).is_none());
        assert!(Entries::<OffsetEntry>::checked(&bytes[1..], 901).is_none());
        assert!(Entries::<OffsetEntry>::checked(&[0; 16], 901).is_none());
    }

    #[test]
    fn time_entries_keep_their_form() {
        let entry = TimeEntry { timestamp: Timestamp(1_700_000_000_123), relative: 77 };
        assert_eq!(TimeEntry::decode(&encode(&[entry])), entry);
        assert!(Entries::<TimeEntry>::checked(&[0xff; 12], 1).is_none());
    }
}
