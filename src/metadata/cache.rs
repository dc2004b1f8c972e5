//! The newest snapshot, read by many and replaced by one.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use common::topic::TopicPartition;

use crate::snapshot::{ClusterSnapshot, Update};

/// Holds the newest snapshot behind an atomic pointer: readers never wait. Updates come from one
/// place at a time (the requests of the controller are handled in order); two at once would both
/// be applied, in either order.
#[derive(Debug, Default)]
pub struct MetadataCache {
    newest: ArcSwap<ClusterSnapshot>,
}

impl MetadataCache {
    /// A cache that knows of no broker and no topic.
    pub fn new() -> MetadataCache {
        MetadataCache::default()
    }

    /// The newest snapshot, for a few lines of reading.
    pub fn load(&self) -> Guard<Arc<ClusterSnapshot>> {
        self.newest.load()
    }

    /// The newest snapshot, to be kept for longer or sent elsewhere.
    pub fn snapshot(&self) -> Arc<ClusterSnapshot> {
        self.newest.load_full()
    }

    /// Takes over an update; gives the partitions that it removed.
    pub fn apply(&self, update: &Update) -> Vec<TopicPartition> {
        let mut deleted = Vec::new();
        self.newest.rcu(|current| {
            let (next, gone) = current.updated(update);
            deleted = gone;
            next
        });
        deleted
    }
}

#[cfg(test)]
mod tests {
    use common::ids::BrokerId;

    use super::MetadataCache;
    use crate::snapshot::Update;

    #[test]
    fn a_reader_keeps_the_snapshot_it_has() {
        let cache = MetadataCache::new();
        let before = cache.snapshot();
        cache.apply(&Update { controller: Some(BrokerId(7)), ..Update::default() });
        assert_eq!(before.controller(), None);
        assert_eq!(cache.load().controller(), Some(BrokerId(7)));
    }
}
