//! What an idempotent producer sends, and sends again, against a partition that checks sequences as a broker does.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{ProducerEpoch, ProducerId, Timestamp},
    topic::TopicPartition,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use record::{batch::BatchHeader, compression::Compression};
use tokio::sync::Semaphore;

use super::{Accumulator, BatchResult, IN_FLIGHT_MAX, Identity, Parts, ProducerBatch, Rules};

const IDENTITY: Identity = Identity { id: ProducerId(7), epoch: ProducerEpoch(0) };
const BACKOFF: Duration = Duration::from_millis(50);

/// A producer's side of one partition, with a clock of its own.
struct Client {
    accumulator: Accumulator,
    memory: Arc<Semaphore>,
    now: Instant,
    /// Numbers of the batches that were given up.
    failed: Vec<u64>,
    identity: Option<Identity>,
}

/// A leader's: what is in its log, and what it remembers.
#[derive(Clone, Default)]
struct Leader {
    /// Numbers of batches.
    log: Vec<u64>,
    epoch: i16,
    /// First sequence, and number, of the last batches.
    recent: VecDeque<(i32, u64)>,
}

impl Leader {
    fn append(&mut self, batch: &mut ProducerBatch) -> Result<(), ErrorCode> {
        let header = BatchHeader::parse(&batch.seal()).unwrap();
        let (epoch, sequence) = (header.producer_epoch.0, header.base_sequence);
        if epoch < self.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if epoch > self.epoch {
            self.recent.clear();
        } else if self.recent.iter().any(|(known, _)| *known == sequence) {
            return Ok(());
        }
        let next = self.recent.back().map_or(0, |(last, _)| last + 1);
        if sequence != next && !(self.log.is_empty() && epoch == 0) || sequence != 0 && next == 0 {
            return Err(ErrorCode::OutOfOrderSequenceNumber);
        }
        self.epoch = epoch;
        self.log.push(batch.number);
        self.recent.push_back((sequence, batch.number));
        if self.recent.len() > IN_FLIGHT_MAX {
            self.recent.pop_front();
        }
        Ok(())
    }
}

fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

impl Client {
    fn new() -> Client {
        let mut accumulator = Accumulator::new(Rules {
            batch_size: 100,
            linger: Duration::ZERO,
            retry_backoff: BACKOFF,
            delivery_timeout: Duration::from_secs(3600),
            compression: Compression::None,
        });
        accumulator.hurries = 1;
        let memory = Arc::new(Semaphore::new(1 << 20));
        Client {
            accumulator,
            memory,
            now: clock::now(),
            failed: Vec::new(),
            identity: Some(IDENTITY),
        }
    }

    /// One record that is a batch.
    fn write(&mut self) {
        let memory = self.memory.clone().try_acquire_owned().unwrap();
        let value = [b'x'; 90];
        let record =
            Parts { timestamp: Timestamp(0), key: None, value: Some(&value), headers: &[] };
        self.accumulator.append(&partition(), self.now, memory, &record).unwrap();
    }

    fn drain(&mut self) -> Option<ProducerBatch> {
        let mut drained =
            self.accumulator.drain(self.now, &mut self.identity, |_| Some(1), |_| true, 1 << 20);
        drained.by_leader.remove(&1).and_then(|mut batches| batches.pop())
    }

    /// Takes in an answer as the sender does.
    fn answered(&mut self, mut batch: ProducerBatch, code: Result<(), ErrorCode>) {
        self.accumulator.landed(&partition());
        match code {
            Ok(()) => {
                self.accumulator.acknowledged(&batch);
                let result = BatchResult { base_offset: 0, log_append_time: -1 };
                self.accumulator.finish(batch, self.now, Ok(result));
            }
            Err(ErrorCode::NetworkException) => {
                batch.may_be_in_the_log = true;
                self.accumulator.put_back(batch, self.now);
            }
            Err(ErrorCode::OutOfOrderSequenceNumber) if self.accumulator.out_of_order(&batch) => {
                self.accumulator.put_back(batch, self.now);
            }
            Err(code) => self.give_up(batch, code),
        }
    }

    fn give_up(&mut self, batch: ProducerBatch, code: ErrorCode) {
        self.accumulator.gave_up(&batch);
        self.failed.push(batch.number);
        let error = crate::error::ClientError::from_code(code, None);
        self.accumulator.finish(batch, self.now, Err(error));
    }

    fn wait(&mut self) {
        self.now += BACKOFF;
    }
}

#[test]
fn batches_without_an_answer_are_known_again_by_the_next_leader() {
    let mut client = Client::new();
    (0..IN_FLIGHT_MAX + 2).for_each(|_| client.write());
    let under_way: Vec<ProducerBatch> = std::iter::from_fn(|| client.drain()).collect();
    assert_eq!(under_way.len(), IN_FLIGHT_MAX);
    // All of them are in the log, and no answer came. The new leader knows each of them again.
    let mut leader = Leader::default();
    for mut batch in under_way {
        leader.append(&mut batch).unwrap();
        client.answered(batch, Err(ErrorCode::NetworkException));
    }
    client.wait();
    while let Some(mut batch) = client.drain() {
        let code = leader.append(&mut batch);
        client.answered(batch, code);
    }
    assert_eq!(leader.log, [0, 1, 2, 3, 4, 5, 6]);
    assert!(client.failed.is_empty());
}

#[test]
fn a_batch_that_may_be_in_the_log_is_not_written_in_a_new_epoch() {
    let mut client = Client::new();
    let mut leader = Leader::default();
    (0..2).for_each(|_| client.write());
    let under_way: Vec<ProducerBatch> = std::iter::from_fn(|| client.drain()).collect();
    for mut batch in under_way {
        leader.append(&mut batch).unwrap();
        client.answered(batch, Err(ErrorCode::NetworkException));
    }
    // It restarts, and has the last batch alone in its snapshot.
    leader.recent.pop_front();
    client.write();
    client.wait();
    while let Some(mut batch) = client.drain() {
        let code = leader.append(&mut batch);
        client.answered(batch, code);
        client.wait();
    }
    assert_eq!((client.failed, leader.log, leader.epoch), (vec![0], vec![0, 1, 2], 0));
}

/// Batches reach one of two leaders in the order in which they were sent to it, answers come in any order or never, the
/// leadership moves with what was replicated: every acknowledged batch is in the log once, in order, and none fails.
#[test]
fn batches_outlive_any_failover_in_order() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut client = Client::new();
        let mut leader = Leader::default();
        let mut follower = Leader::default();
        // On the wire, by connection: an old leader's, and this one's.
        let mut wires: [VecDeque<ProducerBatch>; 2] = Default::default();
        let mut answers: Vec<(ProducerBatch, Result<(), ErrorCode>)> = Vec::new();
        let mut written = 0;
        for step in 0..2000 {
            client.wait();
            let is_calm = step > 1000;
            match random.random_range(0..if is_calm { 5 } else { 8 }) {
                0 if written < 100 => {
                    client.write();
                    written += 1;
                }
                0 | 1 => wires[1].extend(client.drain()),
                2 | 3 => {
                    if let Some(mut batch) = wires[1].pop_front() {
                        // An acknowledgement is given once the follower has all there is.
                        let code = leader.append(&mut batch);
                        if code.is_ok() && (is_calm || random.random_bool(0.7)) {
                            follower = leader.clone();
                            answers.push((batch, code));
                        } else {
                            let code = code.and(Err(ErrorCode::NetworkException));
                            answers.push((batch, code));
                        }
                    }
                    if let Some(batch) = wires[0].pop_front() {
                        answers.push((batch, Err(ErrorCode::NetworkException)));
                    }
                }
                4 if !answers.is_empty() => {
                    let place = random.random_range(0..answers.len());
                    let (batch, code) = answers.swap_remove(place);
                    client.answered(batch, code);
                }
                5 => follower = leader.clone(),
                6 if random.random_bool(0.2) => {
                    let [old, new] = &mut wires;
                    old.append(new);
                    leader = follower.clone();
                }
                _ => {}
            }
        }
        assert_eq!(client.failed, [0_u64; 0], "seed {seed}");
        assert_eq!(leader.log, (0..written).collect::<Vec<u64>>(), "seed {seed}");
        assert_eq!(leader.epoch, 0, "seed {seed}");
    }
}
