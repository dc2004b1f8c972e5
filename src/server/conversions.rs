//! The memory that conversions of records may take, for the whole broker: records for old consumers, and batches that
//! are stored otherwise than their producers sent them.
//!
//! How much one takes shows only while it is done, for a kilobyte may become 256 MiB. So it begins with buffers of a few
//! times what came in, and where these do not suffice it begins again with larger ones. It waits for memory only while it
//! holds none of that share, so that two never wait for each other; who waits is served in order, and holds no thread.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use common::counters::{Gauge, Meter, MetricName, Registry};
use record::compression::DECOMPRESSED_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Large buffers that one conversion has at a time, at most: what was read, what is in it, what is made of that, and
/// that compressed; or the window of a codec in the place of one of them.
const BUFFERS: usize = 4;

/// Bytes of all conversions that are under way: the largest takes them all.
const WORK_BYTES_MAX: usize = BUFFERS * DECOMPRESSED_BYTES_MAX;

/// Bytes of converted answers that are not sent yet. They have a share of their own, so that consumers who do not read
/// their answers stop no producer.
const UNSENT_BYTES_MAX: usize = DECOMPRESSED_BYTES_MAX;

/// What each buffer may take at the first try, at least.
const BUFFER_BYTES_MIN: usize = 256 << 10;

/// What each buffer may take at the first try, in sizes of what came in.
const FIRST_RATIO: usize = 8;

/// How much larger the buffers of the next try are.
const GROWTH: usize = 4;

/// Others had the memory all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory to convert records was free in time")]
pub(crate) struct NoMemory;

/// What the broker's conversions share.
pub(crate) struct ConversionMemory {
    work: Share,
    unsent: Share,
    expired: Arc<Meter>,
}

/// A number of bytes, given out in the order of those who ask.
struct Share {
    bytes_max: usize,
    free: Arc<Semaphore>,
    used: Arc<Gauge>,
    waiting: Arc<Gauge>,
}

/// Bytes of a share, until it is dropped.
#[derive(Debug)]
struct Held {
    permit: OwnedSemaphorePermit,
    used: Arc<Gauge>,
}

/// Room for the converted parts of one answer; what they leave is given back when it is dropped.
pub(crate) struct AnswerRoom {
    bytes_max: usize,
    free: Arc<Semaphore>,
    held: Held,
}

/// Converted records, which are counted until the last piece of them is sent.
struct Unsent {
    bytes: Vec<u8>,
    _held: Held,
}

impl ConversionMemory {
    pub(crate) fn new(registry: &Registry) -> ConversionMemory {
        ConversionMemory::of(WORK_BYTES_MAX, UNSENT_BYTES_MAX, registry)
    }

    fn of(work_bytes_max: usize, unsent_bytes_max: usize, registry: &Registry) -> ConversionMemory {
        let name = |name| MetricName::new("kafka.server", "ConversionMemory", name);
        let share = |bytes_max, used, waiting| Share {
            bytes_max,
            free: Arc::new(Semaphore::new(bytes_max)),
            used: registry.gauge(name(used)),
            waiting: registry.gauge(name(waiting)),
        };
        ConversionMemory {
            work: share(work_bytes_max, "WorkBytes", "WaitingConversions"),
            unsent: share(unsent_bytes_max, "UnsentBytes", "WaitingAnswers"),
            expired: registry.meter(name("ExpiredPerSec")),
        }
    }

    /// Converts if there is memory right now. `convert` is told what each of its buffers may take, and gives nothing where
    /// that does not suffice. It may take long: this thread is no longer the runtime's then.
    pub(crate) fn try_convert<T>(
        &self,
        input_bytes: usize,
        convert: &dyn Fn(usize) -> Option<T>,
    ) -> Option<T> {
        for buffer_bytes in buffer_sizes(input_bytes) {
            let _held = self.work.try_take(BUFFERS * buffer_bytes)?;
            let converted = tokio::task::block_in_place(|| convert(buffer_bytes));
            if converted.is_some() {
                return converted;
            }
        }
        None
    }

    /// The same, but waits for memory until the deadline. Must be polled all the time: what waits has a place in a queue.
    pub(crate) async fn convert<T>(
        &self,
        input_bytes: usize,
        deadline: Instant,
        convert: &(dyn Fn(usize) -> Option<T> + Sync),
    ) -> Result<T, NoMemory> {
        for buffer_bytes in buffer_sizes(input_bytes) {
            let _held = self.take(&self.work, BUFFERS * buffer_bytes, deadline).await?;
            if let Some(converted) = tokio::task::block_in_place(|| convert(buffer_bytes)) {
                return Ok(converted);
            }
        }
        Err(NoMemory)
    }

    /// Waits for room for an answer until the deadline.
    pub(crate) async fn room(
        &self,
        bytes: usize,
        deadline: Instant,
    ) -> Result<AnswerRoom, NoMemory> {
        let held = self.take(&self.unsent, bytes, deadline).await?;
        let Share { bytes_max, ref free, .. } = self.unsent;
        Ok(AnswerRoom { bytes_max, free: free.clone(), held })
    }

    async fn take(&self, share: &Share, bytes: usize, deadline: Instant) -> Result<Held, NoMemory> {
        if let Some(held) = share.try_take(bytes) {
            return Ok(held);
        }
        share.waiting.add(1);
        let permits = share.free.clone().acquire_many_owned(share.permits(bytes));
        let taken = tokio::time::timeout_at(deadline.into(), permits).await;
        share.waiting.add(-1);
        // The share is never closed.
        let permit = taken.ok().and_then(Result::ok).ok_or_else(|| {
            self.expired.mark(1);
            NoMemory
        })?;
        Ok(Held::new(permit, &share.used))
    }
}

impl Share {
    /// None also where others wait: they come first.
    fn try_take(&self, bytes: usize) -> Option<Held> {
        let permit = self.free.clone().try_acquire_many_owned(self.permits(bytes)).ok()?;
        Some(Held::new(permit, &self.used))
    }

    /// Who needs more than there is gets all, and so is alone.
    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.bytes_max)).expect("a share is below 4 GiB")
    }
}

impl Held {
    fn new(permit: OwnedSemaphorePermit, used: &Arc<Gauge>) -> Held {
        used.add(signed(permit.num_permits()));
        Held { permit, used: used.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.used.add(-signed(self.permit.num_permits()));
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a share is below 4 GiB")
}

impl AnswerRoom {
    /// Records for the answer. They may be larger than the room that was asked for, if there is more right now.
    pub(crate) fn put(&mut self, mut bytes: Vec<u8>) -> Result<Bytes, NoMemory> {
        bytes.shrink_to_fit();
        let needed = bytes.len().min(self.bytes_max);
        let missing = needed.saturating_sub(self.held.permit.num_permits());
        let missing = u32::try_from(missing).map_err(|_| NoMemory)?;
        let more = self.free.clone().try_acquire_many_owned(missing).map_err(|_| NoMemory)?;
        self.held.used.add(i64::from(missing));
        self.held.permit.merge(more);
        let permit = self.held.permit.split(needed).ok_or(NoMemory)?;
        let held = Held { permit, used: self.held.used.clone() };
        Ok(Bytes::from_owner(Unsent { bytes, _held: held }))
    }
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What each buffer may take, try by try; the last suffices for everything that is stored.
fn buffer_sizes(input_bytes: usize) -> impl Iterator<Item = usize> {
    let first = input_bytes.saturating_mul(FIRST_RATIO);
    let first = first.clamp(BUFFER_BYTES_MIN, DECOMPRESSED_BYTES_MAX);
    std::iter::successors(Some(first), |bytes| {
        (*bytes < DECOMPRESSED_BYTES_MAX).then(|| DECOMPRESSED_BYTES_MAX.min(bytes * GROWTH))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use common::clock;

    use super::*;

    const MIB: usize = 1 << 20;

    fn later() -> Instant {
        clock::now() + Duration::from_secs(60)
    }

    /// A conversion that needs buffers of this size; it looks at what all take together.
    fn needs(bytes: usize, memory: &ConversionMemory) -> impl Fn(usize) -> Option<usize> + Sync {
        let used = memory.work.used.clone();
        let bytes_max = memory.work.bytes_max;
        move |buffer_bytes| {
            let used = usize::try_from(used.value()).unwrap();
            assert!(used <= bytes_max && used >= bytes_max.min(BUFFERS * buffer_bytes));
            std::thread::yield_now();
            (buffer_bytes >= bytes).then_some(buffer_bytes)
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn conversions_of_all_sizes_end_and_never_take_more_than_their_share() {
        let registry = Registry::default();
        let memory = Arc::new(ConversionMemory::of(8 * MIB, MIB, &registry));
        let tasks = (0..200_usize).map(|number| {
            let memory = memory.clone();
            tokio::spawn(async move {
                let bytes = [MIB / 4, MIB, 5 * MIB, DECOMPRESSED_BYTES_MAX][number % 4];
                let converted = memory.convert(1000, later(), &needs(bytes, &memory)).await;
                assert!(converted.unwrap() >= bytes);
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!((memory.work.used.value(), memory.work.waiting.value()), (0, 0));
        assert_eq!(memory.work.free.available_permits(), 8 * MIB);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_comes_later_does_not_pass_who_waits() {
        let memory = Arc::new(ConversionMemory::of(8 * MIB, MIB, &Registry::default()));
        let held = memory.work.try_take(5 * MIB).unwrap();
        assert!(memory.try_convert(0, &needs(0, &memory)).is_some());
        let large = tokio::spawn({
            let memory = memory.clone();
            async move { memory.convert(MIB, later(), &needs(MIB, &memory)).await }
        });
        // Counted as waiting it may still be on its way into the queue; there it takes what is free.
        while memory.work.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(memory.try_convert(0, &needs(0, &memory)).is_none());
        drop(held);
        assert!(large.await.unwrap().is_ok());
        assert!(memory.try_convert(0, &needs(0, &memory)).is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_deadline_ends_the_wait_and_is_counted() {
        let memory = ConversionMemory::of(8 * MIB, MIB, &Registry::default());
        let _held = memory.work.try_take(8 * MIB).unwrap();
        assert_eq!(memory.convert(0, clock::now(), &needs(0, &memory)).await, Err(NoMemory));
        assert_eq!((memory.expired.count(), memory.work.waiting.value()), (1, 0));
    }

    #[tokio::test]
    async fn converted_records_are_counted_until_they_are_sent() {
        let memory = ConversionMemory::of(MIB, MIB, &Registry::default());
        let used = || memory.unsent.used.value();
        let mut room = memory.room(1000, later()).await.unwrap();
        let (first, second) = (room.put(vec![1; 400]).unwrap(), room.put(vec![2; 800]).unwrap());
        assert_eq!(used(), 1200, "more than was asked for, where there is more");
        assert_eq!(room.put(vec![3; MIB]), Err(NoMemory), "which there is not always");
        assert_eq!(memory.room(MIB, clock::now()).await.err(), Some(NoMemory));
        drop(room);
        let part = second.slice(700..);
        drop((first, second));
        assert_eq!(used(), 800);
        drop(part);
        assert_eq!((used(), memory.unsent.free.available_permits()), (0, MIB));
    }
}
