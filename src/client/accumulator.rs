//! Records that wait to be sent: batches by partition, in order. Source: `RecordAccumulator`.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use common::{
    ids::{ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};
use record::{
    batch::{BatchHeader, compute_crc},
    build::{BatchBuilder, BuildError},
    compression::Compression,
    view::Header,
};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::error::ClientError;

/// What became of a batch: where its first record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchResult {
    /// -1 when the broker did not say.
    pub(crate) base_offset: i64,
    /// -1 unless the topic has log append time.
    pub(crate) log_append_time: i64,
}

/// The end of a batch, and when it came.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) result: Result<BatchResult, ClientError>,
    pub(crate) at: Instant,
}

/// Tells the senders of a batch's records; none until it has ended.
pub(crate) type Outcome = watch::Receiver<Option<Ended>>;

/// Who writes, where duplicates are guarded against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: ProducerId,
    pub(crate) epoch: ProducerEpoch,
}

/// Records of one partition that go together.
pub(crate) struct ProducerBatch {
    pub(crate) number: u64,
    pub(crate) partition: TopicPartition,
    pub(crate) created: Instant,
    pub(crate) attempts: i32,
    /// Whether it was taken out before, and came back.
    pub(crate) is_back: bool,
    pub(crate) record_count: i32,
    /// Set by the first attempt.
    pub(crate) sequence: Option<i32>,
    content: Content,
    not_before: Instant,
    done: watch::Sender<Option<Ended>>,
    /// Given back when the batch is.
    memory: OwnedSemaphorePermit,
}

enum Content {
    Open(BatchBuilder),
    Sealed(Bytes),
}

/// How batches are built and when they go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) batch_size: usize,
    pub(crate) linger: Duration,
    pub(crate) retry_backoff: Duration,
    pub(crate) delivery_timeout: Duration,
    pub(crate) compression: Compression,
}

/// A record as it goes into a batch.
pub(crate) struct Parts<'a> {
    pub(crate) timestamp: Timestamp,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: &'a [Header<'a>],
}

/// The queues. Belongs to whoever holds the producer's lock.
pub(crate) struct Accumulator {
    rules: Rules,
    queues: HashMap<TopicPartition, Queue>,
    /// Numbers of batches that are neither delivered nor given up.
    outstanding: BTreeSet<u64>,
    next_number: u64,
    /// Everything goes at once while somebody flushes, or once the producer is closed.
    pub(crate) hurries: u32,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<ProducerBatch>,
    in_flight: usize,
    next_sequence: i32,
}

/// Where a record was put.
pub(crate) struct Placed {
    pub(crate) outcome: Outcome,
    pub(crate) index: i64,
    /// Whether a batch was begun.
    pub(crate) is_first: bool,
    /// Whether the sender has something to do at once.
    pub(crate) is_full: bool,
}

impl Accumulator {
    pub(crate) fn new(rules: Rules) -> Accumulator {
        Accumulator {
            rules,
            queues: HashMap::new(),
            outstanding: BTreeSet::new(),
            next_number: 0,
            hurries: 0,
        }
    }

    /// Puts a record into the partition's last batch, or into a new one.
    pub(crate) fn append(
        &mut self,
        partition: &TopicPartition,
        now: Instant,
        memory: OwnedSemaphorePermit,
        record: &Parts<'_>,
    ) -> Result<Placed, BuildError> {
        let Parts { timestamp, key, value, headers } = *record;
        let batch_size = self.rules.batch_size;
        let queue = self.queues.entry(partition.clone()).or_default();
        if let Some(last) = queue.batches.back_mut()
            && let Content::Open(builder) = &mut last.content
            && builder.size_with(key, value, headers) <= batch_size
        {
            builder.append(timestamp, key, value, headers)?;
            last.record_count += 1;
            last.memory.merge(memory);
            let is_full = builder.size() >= batch_size;
            return Ok(Placed {
                outcome: last.done.subscribe(),
                index: i64::from(last.record_count) - 1,
                is_first: false,
                is_full,
            });
        }
        let mut builder = BatchBuilder::new(self.rules.compression);
        builder.append(timestamp, key, value, headers)?;
        let is_full = builder.size() >= batch_size || !queue.batches.is_empty();
        let (done, outcome) = watch::channel(None);
        self.outstanding.insert(self.next_number);
        queue.batches.push_back(ProducerBatch {
            number: self.next_number,
            partition: partition.clone(),
            created: now,
            attempts: 0,
            is_back: false,
            record_count: 1,
            sequence: None,
            content: Content::Open(builder),
            not_before: now,
            done,
            memory,
        });
        self.next_number += 1;
        Ok(Placed { outcome, index: 0, is_first: true, is_full })
    }

    /// Batches that are due, one per partition and with its sequence, for leaders that have room; and when to look
    /// again. `leader` gives a partition's leader, none while unknown.
    pub(crate) fn drain(
        &mut self,
        now: Instant,
        identity: Option<Identity>,
        leader: impl Fn(&TopicPartition) -> Option<i32>,
        has_room: impl Fn(i32) -> bool,
        request_bytes_max: usize,
    ) -> Drained {
        let mut drained = Drained::default();
        let mut sizes: HashMap<i32, usize> = HashMap::new();
        for (partition, queue) in &mut self.queues {
            let Some(front) = queue.batches.front() else { continue };
            let due = front.due(now, &self.rules, queue.batches.len() > 1 || self.hurries > 0);
            if due > now {
                drained.wake_at(due);
                continue;
            }
            // What is sent again must not overtake, nor be overtaken.
            if front.is_back && queue.in_flight > 0 {
                continue;
            }
            let Some(leader) = leader(partition) else {
                drained.without_leader.insert(partition.topic.to_string());
                drained.wake_at(front.created + self.rules.delivery_timeout);
                continue;
            };
            let size = front.size();
            let taken = sizes.entry(leader).or_default();
            if !has_room(leader) || (*taken > 0 && *taken + size > request_bytes_max) {
                continue;
            }
            *taken += size;
            let Some(mut batch) = queue.batches.pop_front() else { continue };
            queue.in_flight += 1;
            if let Some(identity) = identity {
                batch.stamp(identity, &mut queue.next_sequence);
            }
            drained.by_leader.entry(leader).or_default().push(batch);
        }
        drained
    }

    /// Takes out what waits for longer than it may.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<ProducerBatch> {
        let limit = self.rules.delivery_timeout;
        let mut expired = Vec::new();
        for queue in self.queues.values_mut() {
            while queue.batches.front().is_some_and(|front| now >= front.created + limit) {
                expired.extend(queue.batches.pop_front());
            }
        }
        expired
    }

    /// A batch that was sent is no longer under way.
    pub(crate) fn landed(&mut self, partition: &TopicPartition) {
        if let Some(queue) = self.queues.get_mut(partition) {
            queue.in_flight = queue.in_flight.saturating_sub(1);
        }
    }

    /// Puts a batch that was sent back in its place, to be sent again.
    pub(crate) fn put_back(&mut self, mut batch: ProducerBatch, now: Instant) {
        batch.attempts += 1;
        self.put_back_unsent(batch, now);
    }

    /// Puts a batch back in its place. No connection took it, which costs none of its attempts.
    pub(crate) fn put_back_unsent(&mut self, mut batch: ProducerBatch, now: Instant) {
        batch.is_back = true;
        batch.not_before = now + self.rules.retry_backoff;
        let queue = self.queues.entry(batch.partition.clone()).or_default();
        let place = queue.batches.partition_point(|other| other.number < batch.number);
        queue.batches.insert(place, batch);
    }

    /// Ends a batch and tells its senders.
    pub(crate) fn finish(
        &mut self,
        batch: ProducerBatch,
        at: Instant,
        result: Result<BatchResult, ClientError>,
    ) {
        self.outstanding.remove(&batch.number);
        // Nobody may wait for the result.
        let _ = batch.done.send(Some(Ended { result, at }));
    }

    /// A new identity counts from 0 again, for what is sent and for what is sent again.
    pub(crate) fn restart_sequences(&mut self) {
        for queue in self.queues.values_mut() {
            queue.next_sequence = 0;
            for batch in &mut queue.batches {
                batch.sequence = None;
            }
        }
    }

    /// Whether a batch of the partition with a lower sequence has not been answered yet.
    pub(crate) fn has_earlier(&self, batch: &ProducerBatch) -> bool {
        let Some(queue) = self.queues.get(&batch.partition) else { return false };
        queue.in_flight > 0
            || queue.batches.front().is_some_and(|front| front.number < batch.number)
    }

    /// Number that the next batch will have; those below are what a flush waits for.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Whether all batches below that number have ended.
    pub(crate) fn is_done_below(&self, number: u64) -> bool {
        self.outstanding.first().is_none_or(|first| *first >= number)
    }
}

/// What `drain` took.
#[derive(Default)]
pub(crate) struct Drained {
    pub(crate) by_leader: HashMap<i32, Vec<ProducerBatch>>,
    /// Topics with batches that are due but have nowhere to go.
    pub(crate) without_leader: HashSet<String>,
    /// When the next batch is due.
    pub(crate) next: Option<Instant>,
}

impl Drained {
    fn wake_at(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

impl ProducerBatch {
    /// When it should go: a full one, or one that is sent again, does not linger.
    fn due(&self, now: Instant, rules: &Rules, hurry: bool) -> Instant {
        if self.is_back {
            return self.not_before;
        }
        if hurry || self.size() >= rules.batch_size {
            return now;
        }
        self.created + rules.linger
    }

    /// Bytes, before compression while it is open.
    fn size(&self) -> usize {
        match &self.content {
            Content::Open(builder) => builder.size(),
            Content::Sealed(bytes) => bytes.len(),
        }
    }

    /// Gives it its identity and sequence, unless it has them from an earlier attempt.
    fn stamp(&mut self, identity: Identity, next_sequence: &mut i32) {
        if self.sequence.is_some() {
            return;
        }
        let sequence = *next_sequence;
        self.sequence = Some(sequence);
        *next_sequence = record::batch::increment_sequence(sequence, self.record_count);
        let content = std::mem::replace(&mut self.content, Content::Sealed(Bytes::new()));
        self.content = match content {
            Content::Open(builder) => {
                Content::Open(builder.producer(identity.id, identity.epoch, sequence))
            }
            Content::Sealed(bytes) => Content::Sealed(restamp(&bytes, identity, sequence)),
        };
    }

    /// The batch as it is sent; compresses it the first time.
    pub(crate) fn seal(&mut self) -> Bytes {
        let content = std::mem::replace(&mut self.content, Content::Sealed(Bytes::new()));
        let bytes = match content {
            Content::Open(builder) => builder.finish(),
            Content::Sealed(bytes) => bytes,
        };
        self.content = Content::Sealed(bytes.clone());
        bytes
    }
}

/// Writes a new identity into a finished batch.
fn restamp(bytes: &Bytes, identity: Identity, sequence: i32) -> Bytes {
    let mut header = BatchHeader::parse(bytes).expect("we made the batch");
    header.producer_id = identity.id;
    header.producer_epoch = identity.epoch;
    header.base_sequence = sequence;
    let mut batch = BytesMut::from(bytes.as_ref());
    let length = header.to_bytes().len();
    batch[..length].copy_from_slice(&header.to_bytes());
    header.crc = compute_crc(&batch);
    batch[..length].copy_from_slice(&header.to_bytes());
    batch.freeze()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, LazyLock},
        time::{Duration, Instant},
    };

    use common::{
        clock,
        ids::{ProducerEpoch, ProducerId, Timestamp},
        topic::TopicPartition,
    };
    use record::{batch::BatchHeader, compression::Compression};
    use tokio::sync::Semaphore;

    use super::{Accumulator, BatchResult, Drained, Identity, Parts, ProducerBatch, Rules};

    const IDENTITY: Identity = Identity { id: ProducerId(7), epoch: ProducerEpoch(0) };

    fn accumulator() -> Accumulator {
        Accumulator::new(Rules {
            batch_size: 200,
            linger: Duration::from_millis(100),
            retry_backoff: Duration::from_millis(50),
            delivery_timeout: Duration::from_secs(1),
            compression: Compression::None,
        })
    }

    fn append(accumulator: &mut Accumulator, now: Instant, size: usize) -> super::Placed {
        // Permits of one producer are merged, so they must be of one semaphore.
        static MEMORY: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(100)));
        let memory = MEMORY.clone().try_acquire_owned().unwrap();
        let value = vec![b'x'; size];
        let record =
            Parts { timestamp: Timestamp(0), key: None, value: Some(&value), headers: &[] };
        accumulator.append(&TopicPartition::new("t", 0), now, memory, &record).unwrap()
    }

    fn drain(accumulator: &mut Accumulator, now: Instant) -> Vec<ProducerBatch> {
        let drained: Drained =
            accumulator.drain(now, Some(IDENTITY), |_| Some(1), |_| true, 1 << 20);
        drained.by_leader.into_values().flatten().collect()
    }

    fn sequence(batch: &mut ProducerBatch) -> i32 {
        BatchHeader::parse(&batch.seal()).unwrap().base_sequence
    }

    #[test]
    fn a_batch_goes_when_it_is_full_or_has_lingered() {
        let now = clock::now();
        let mut accumulator = accumulator();
        assert!(append(&mut accumulator, now, 10).is_first);
        let second = append(&mut accumulator, now, 10);
        assert!(!second.is_first && second.index == 1);
        assert!(drain(&mut accumulator, now).is_empty());
        let after = now + Duration::from_millis(100);
        assert_eq!(drain(&mut accumulator, after)[0].record_count, 2);
        append(&mut accumulator, now, 100);
        assert!(append(&mut accumulator, now, 100).is_full);
        // The first of the two is full, the second waits.
        assert_eq!(drain(&mut accumulator, now).len(), 1);
        assert!(drain(&mut accumulator, now).is_empty());
    }

    #[test]
    fn what_is_sent_again_keeps_its_place_and_its_sequence() {
        let now = clock::now();
        let mut accumulator = accumulator();
        for _ in 0..3 {
            append(&mut accumulator, now, 150);
        }
        accumulator.hurries = 1;
        let mut first = drain(&mut accumulator, now).remove(0);
        let mut second = drain(&mut accumulator, now).remove(0);
        assert_eq!((sequence(&mut first), sequence(&mut second)), (0, 1));
        let partition = TopicPartition::new("t", 0);
        // They come back in the wrong order.
        accumulator.landed(&partition);
        accumulator.put_back(second, now);
        let later = now + Duration::from_millis(50);
        assert!(drain(&mut accumulator, later).is_empty(), "the first is still under way");
        accumulator.landed(&partition);
        accumulator.put_back(first, now);
        let mut sent = Vec::new();
        while let Some(mut batch) = drain(&mut accumulator, later).pop() {
            sent.push(sequence(&mut batch));
            accumulator.landed(&partition);
        }
        assert_eq!(sent, [0, 1, 2]);
    }

    #[test]
    fn a_batch_that_no_connection_took_has_all_its_attempts_left() {
        let now = clock::now();
        let mut accumulator = accumulator();
        append(&mut accumulator, now, 150);
        append(&mut accumulator, now, 150);
        accumulator.hurries = 1;
        let first = drain(&mut accumulator, now).remove(0);
        let second = drain(&mut accumulator, now).remove(0);
        let partition = TopicPartition::new("t", 0);
        accumulator.landed(&partition);
        accumulator.put_back_unsent(first, now);
        let later = now + Duration::from_millis(50);
        assert!(drain(&mut accumulator, later).is_empty(), "it overtakes none that is under way");
        accumulator.landed(&partition);
        accumulator.put_back(second, now);
        let again: Vec<i32> = std::iter::from_fn(|| {
            let batch = drain(&mut accumulator, later).pop()?;
            accumulator.landed(&partition);
            Some(batch.attempts)
        })
        .collect();
        assert_eq!(again, [0, 1]);
    }

    #[test]
    fn a_new_identity_counts_anew() {
        let now = clock::now();
        let mut accumulator = accumulator();
        append(&mut accumulator, now, 150);
        append(&mut accumulator, now, 150);
        accumulator.hurries = 1;
        let mut lost = drain(&mut accumulator, now).remove(0);
        lost.seal();
        accumulator.landed(&TopicPartition::new("t", 0));
        accumulator.put_back(lost, now);
        accumulator.restart_sequences();
        let later = now + Duration::from_millis(50);
        let mut again = drain(&mut accumulator, later).remove(0);
        let bytes = again.seal();
        let header = BatchHeader::parse(&bytes).unwrap();
        assert_eq!((header.base_sequence, header.crc), (0, record::batch::compute_crc(&bytes)));
    }

    #[test]
    fn a_flush_waits_for_what_was_there() {
        let now = clock::now();
        let mut accumulator = accumulator();
        append(&mut accumulator, now, 150);
        let number = accumulator.next_number();
        append(&mut accumulator, now, 150);
        accumulator.hurries = 1;
        let batch = drain(&mut accumulator, now).remove(0);
        assert!(!accumulator.is_done_below(number));
        let result = BatchResult { base_offset: 0, log_append_time: -1 };
        accumulator.finish(batch, now, Ok(result));
        assert!(accumulator.is_done_below(number));
        assert!(!accumulator.is_done_below(accumulator.next_number()));
    }

    #[test]
    fn batches_expire_in_order() {
        let now = clock::now();
        let mut accumulator = accumulator();
        append(&mut accumulator, now, 150);
        append(&mut accumulator, now + Duration::from_millis(500), 150);
        let expired = accumulator.expire(now + Duration::from_secs(1));
        assert_eq!(expired.len(), 1);
        assert!(!accumulator.is_done_below(accumulator.next_number()));
    }
}
