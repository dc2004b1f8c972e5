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

use crate::{
    error::ClientError,
    sequences::{Next, OutOfOrder, Sequences},
};

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
    /// Whether an attempt had no answer that tells whether the broker has it.
    pub(crate) may_be_in_the_log: bool,
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

/// Batches of a partition from the first one without an answer on, whatever has become of those behind it: the broker knows
/// that many again.
const IN_FLIGHT_MAX: usize = 5;

#[derive(Default)]
struct Queue {
    batches: VecDeque<ProducerBatch>,
    in_flight: usize,
    /// Where the last one went.
    leader: Option<i32>,
    sequences: Sequences,
    /// Numbers of those with a sequence, from the first one without an answer on, and whether each has one.
    sent: VecDeque<(u64, bool)>,
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
            may_be_in_the_log: false,
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
    /// again. `leader` gives a partition's leader, none while unknown. Takes the identity away when it has no epoch left.
    pub(crate) fn drain(
        &mut self,
        now: Instant,
        identity: &mut Option<Identity>,
        leader: impl Fn(&TopicPartition) -> Option<i32>,
        has_room: impl Fn(i32) -> bool,
        request_bytes_max: usize,
    ) -> Drained {
        let mut drained = Drained::default();
        let mut sizes: HashMap<i32, usize> = HashMap::new();
        let is_idempotent = identity.is_some();
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
            let is_elsewhere = queue.in_flight > 0 && queue.leader != Some(leader);
            let is_too_far = !front.is_back && queue.sent.len() >= IN_FLIGHT_MAX;
            if is_idempotent && (is_elsewhere || is_too_far) {
                continue;
            }
            let size = front.size();
            let taken = sizes.entry(leader).or_default();
            if !has_room(leader) || (*taken > 0 && *taken + size > request_bytes_max) {
                continue;
            }
            if is_idempotent {
                let Some(current) = *identity else {
                    drained.wake_at(now);
                    continue;
                };
                match queue.next_identity(current) {
                    Next::Wait => continue,
                    Next::Same => {}
                    Next::Restart(new) => {
                        *identity = new;
                        let Some(new) = new else {
                            drained.wake_at(now);
                            continue;
                        };
                        queue.restart(new);
                    }
                }
            }
            *taken += size;
            let Some(mut batch) = queue.batches.pop_front() else { continue };
            queue.in_flight += 1;
            queue.leader = Some(leader);
            if is_idempotent {
                if batch.sequence.is_none() {
                    queue.sent.push_back((batch.number, false));
                }
                batch.stamp(&mut queue.sequences);
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

    /// The broker has the batch.
    pub(crate) fn acknowledged(&mut self, batch: &ProducerBatch) {
        let Some(queue) = self.queues.get_mut(&batch.partition) else { return };
        if let Some(sequence) = batch.sequence {
            queue.sequences.acknowledge(sequence, batch.record_count);
            queue.has_answer(batch.number);
        }
    }

    /// The broker misses what comes before a batch that has landed. Where that is no other batch, it is a gap. Whether the
    /// batch may be sent again.
    pub(crate) fn out_of_order(&mut self, batch: &ProducerBatch) -> bool {
        let Some(queue) = self.queues.get_mut(&batch.partition) else { return false };
        let Some(sequence) = batch.sequence else { return false };
        if queue.has_before(batch) {
            return true;
        }
        let is_alone = queue.in_flight == 0;
        let may_be_in_the_log = batch.may_be_in_the_log;
        queue.sequences.out_of_order(&OutOfOrder { sequence, is_alone, may_be_in_the_log })
    }

    /// Nobody sends the batch again, and whether the broker has it is not known.
    pub(crate) fn gave_up(&mut self, batch: &ProducerBatch) {
        let Some(queue) = self.queues.get_mut(&batch.partition) else { return };
        if batch.sequence.is_some() {
            queue.sequences.doubt();
            queue.has_answer(batch.number);
        }
    }

    /// Whether one that comes before the batch waits to be sent again.
    pub(crate) fn would_overtake(&self, batch: &ProducerBatch) -> bool {
        self.queues.get(&batch.partition).is_some_and(|queue| queue.has_before(batch))
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

impl Queue {
    fn has_before(&self, batch: &ProducerBatch) -> bool {
        self.batches.front().is_some_and(|front| front.number < batch.number)
    }

    /// What has to happen before the first batch goes. Batches with sequences are in front.
    fn next_identity(&mut self, current: Identity) -> Next {
        let first = self.batches.front().and_then(|front| front.sequence);
        self.sequences.next_identity(current, first, self.in_flight)
    }

    /// Counts from 0 again with another identity. Nothing is under way.
    fn restart(&mut self, identity: Identity) {
        self.sequences = Sequences::new(identity);
        self.batches.iter_mut().for_each(|batch| batch.sequence = None);
        self.sent.clear();
    }

    /// Of a batch with a sequence it is known what became of it, or it is given up.
    fn has_answer(&mut self, number: u64) {
        if let Some(sent) = self.sent.iter_mut().find(|(sent, _)| *sent == number) {
            sent.1 = true;
        }
        while self.sent.front().is_some_and(|(_, is_answered)| *is_answered) {
            self.sent.pop_front();
        }
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
    fn stamp(&mut self, sequences: &mut Sequences) {
        if self.sequence.is_some() {
            return;
        }
        let Some((identity, sequence)) = sequences.take(self.record_count) else { return };
        self.sequence = Some(sequence);
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
#[path = "accumulator_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "accumulator_failover_tests.rs"]
mod failover_tests;
