//! Where the newest batches of a log stand, so that a reader at the tail needs no look at any file.

use std::collections::VecDeque;

use common::ids::Offset;

/// Batches remembered.
const COUNT_MAX: usize = 64;

/// A batch of the active segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) last_offset: Offset,
    pub(crate) position: u64,
    pub(crate) size: u64,
}

/// The newest batches, oldest first, without a gap between them.
#[derive(Debug, Default)]
pub(crate) struct Recent(VecDeque<Place>);

impl Recent {
    /// Adds the batch that follows the last one.
    pub(crate) fn push(&mut self, place: Place) {
        if self.0.len() == COUNT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(place);
    }

    /// The first batch whose last offset is at least `offset`; `None` where it may be one that is forgotten.
    pub(crate) fn find(&self, offset: Offset) -> Option<Place> {
        let index = self.0.partition_point(|place| place.last_offset < offset);
        let place = self.0.get(index)?;
        // The oldest one may not be the first of the segment; what came before it is not known.
        (index > 0 || place.position == 0).then_some(*place)
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNT_MAX, Offset, Place, Recent};

    #[test]
    fn the_newest_batches_are_known() {
        let mut recent = Recent::default();
        for number in 0..100 {
            recent.push(Place {
                last_offset: Offset(number * 2 + 1),
                position: number as u64 * 10,
                size: 10,
            });
        }
        let oldest = 100 - COUNT_MAX as i64;
        assert_eq!(recent.find(Offset(oldest * 2)), None);
        assert_eq!(recent.find(Offset(oldest * 2 + 2)).unwrap().position, (oldest as u64 + 1) * 10);
        assert_eq!(recent.find(Offset(199)).unwrap().position, 990);
        assert_eq!(recent.find(Offset(200)), None);
    }
}
