//! Open files and maps of them: as many as fit, so that any number of segments works with few of either.

use std::{
    collections::HashMap,
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

const SHARD_COUNT: usize = 16;
/// Files kept open at least, and at most, whatever the process may have.
const OPEN_FILES: std::ops::Range<u64> = 64..1 << 17;

/// A name of a segment's file that no other has in this process, so that a cached file is never another one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId(pub(crate) u64);

/// Open files.
pub(crate) type FileCache = Cache<File>;

/// Files kept open by default: half of the descriptors that the process may have.
pub(crate) fn open_files_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let half = limit.map_or(OPEN_FILES.end, |limit| limit / 2);
    usize::try_from(half.clamp(OPEN_FILES.start, OPEN_FILES.end)).unwrap_or(1024)
}

/// Keeps files open, or mapped, between uses. When it is full, the next one takes the place of one that was not used
/// since the hand last passed it (the clock algorithm). What is in use stays open until its last user is done.
/// Shared by all logs; each shard has a lock that is never held across a system call.
pub(crate) struct Cache<V> {
    shards: [Mutex<Shard<V>>; SHARD_COUNT],
    shard_size_max: usize,
}

struct Shard<V> {
    places: HashMap<FileId, usize>,
    slots: Vec<Slot<V>>,
    hand: usize,
}

struct Slot<V> {
    id: FileId,
    value: Arc<V>,
    used: AtomicBool,
}

impl<V> Cache<V> {
    /// Room for about `count_max`.
    pub(crate) fn new(count_max: usize) -> Cache<V> {
        let shard = || Mutex::new(Shard { places: HashMap::new(), slots: Vec::new(), hand: 0 });
        Cache {
            shards: std::array::from_fn(|_| shard()),
            shard_size_max: count_max.div_ceil(SHARD_COUNT).max(1),
        }
    }

    /// The file, opened by `open` if it is not there.
    pub(crate) fn get<E>(
        &self,
        id: FileId,
        open: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        if let Some(value) = self.shard(id).lock().find(id) {
            return Ok(value);
        }
        let value = Arc::new(open()?);
        self.insert(id, value.clone());
        Ok(value)
    }

    /// The file, if it is there.
    pub(crate) fn find(&self, id: FileId) -> Option<Arc<V>> {
        self.shard(id).lock().find(id)
    }

    /// Puts a file in, in the place of one of the same name if there is one.
    pub(crate) fn insert(&self, id: FileId, value: Arc<V>) {
        let replaced = self.shard(id).lock().insert(id, value, self.shard_size_max);
        // The replaced file is closed here, outside the lock: closing may take as long as a deletion does.
        drop(replaced);
    }

    /// Forgets a file, because it is gone or will not be used again.
    pub(crate) fn remove(&self, id: FileId) {
        let removed = self.shard(id).lock().remove(id);
        drop(removed);
    }

    /// Forgets everything: the process has run out of descriptors.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let removed = {
                let mut shard = shard.lock();
                shard.places.clear();
                shard.hand = 0;
                std::mem::take(&mut shard.slots)
            };
            drop(removed);
        }
    }

    fn shard(&self, id: FileId) -> &Mutex<Shard<V>> {
        &self.shards[id.0 as usize % SHARD_COUNT]
    }
}

impl<V> Shard<V> {
    fn find(&self, id: FileId) -> Option<Arc<V>> {
        let slot = &self.slots[*self.places.get(&id)?];
        slot.used.store(true, Ordering::Relaxed);
        Some(slot.value.clone())
    }

    fn insert(&mut self, id: FileId, value: Arc<V>, size_max: usize) -> Option<Arc<V>> {
        let slot = Slot { id, value, used: AtomicBool::new(true) };
        if let Some(place) = self.places.get(&id) {
            // Another thread opened it meanwhile.
            return Some(std::mem::replace(&mut self.slots[*place], slot).value);
        }
        if self.slots.len() < size_max {
            self.places.insert(id, self.slots.len());
            self.slots.push(slot);
            return None;
        }
        while self.slots[self.hand].used.swap(false, Ordering::Relaxed) {
            self.hand = (self.hand + 1) % self.slots.len();
        }
        let old = std::mem::replace(&mut self.slots[self.hand], slot);
        self.places.remove(&old.id);
        self.places.insert(id, self.hand);
        self.hand = (self.hand + 1) % self.slots.len();
        Some(old.value)
    }

    fn remove(&mut self, id: FileId) -> Option<Arc<V>> {
        let place = self.places.remove(&id)?;
        let removed = self.slots.swap_remove(place);
        if let Some(moved) = self.slots.get(place) {
            self.places.insert(moved.id, place);
        }
        if self.hand >= self.slots.len() {
            self.hand = 0;
        }
        Some(removed.value)
    }
}

#[cfg(test)]
mod tests {
    use super::{FileCache, FileId, SHARD_COUNT};

    #[test]
    fn a_full_cache_closes_what_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let cache = FileCache::new(2 * SHARD_COUNT);
        let opened = std::cell::Cell::new(0);
        let get = |number: u64| {
            let id = FileId(number * SHARD_COUNT as u64);
            cache.get(id, || {
                opened.set(opened.get() + 1);
                std::fs::File::open(&path)
            })
        };
        for number in [0, 1, 0, 1, 2, 0] {
            get(number).unwrap();
        }
        let after = opened.get();
        assert!((3..=4).contains(&after));
        for _ in 0..10 {
            get(0).unwrap();
        }
        assert!(opened.get() <= after + 1);
        cache.remove(FileId(0));
        let before = opened.get();
        get(0).unwrap();
        assert_eq!(opened.get(), before + 1);
        let slots: usize = cache.shards.iter().map(|shard| shard.lock().slots.len()).sum();
        assert!(slots <= 2);
        assert!(cache.get(FileId(99), || std::fs::File::open(folder.path().join("no"))).is_err());
    }
}
