//! What is sent when, with which sequence; and what is sent again.

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
    let record = Parts { timestamp: Timestamp(0), key: None, value: Some(&value), headers: &[] };
    accumulator.append(&TopicPartition::new("t", 0), now, memory, &record).unwrap()
}

fn drain(accumulator: &mut Accumulator, now: Instant) -> Vec<ProducerBatch> {
    drain_as(accumulator, now, &mut Some(IDENTITY))
}

fn drain_as(
    accumulator: &mut Accumulator,
    now: Instant,
    identity: &mut Option<Identity>,
) -> Vec<ProducerBatch> {
    let drained: Drained = accumulator.drain(now, identity, |_| Some(1), |_| true, 1 << 20);
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

/// Producer epoch and first sequence, as they are on the wire.
fn stamp(batch: &mut ProducerBatch) -> (i16, i32) {
    let header = BatchHeader::parse(&batch.seal()).unwrap();
    (header.producer_epoch.0, header.base_sequence)
}

/// A producer with one partition, and what happens to its batches in the order of the script. They are named by their
/// number; the recording says what was sent, as number:epoch/sequence.
fn play(batches: usize, script: &str) -> String {
    let mut now = clock::now();
    let mut accumulator = accumulator();
    accumulator.hurries = 1;
    for _ in 0..batches {
        append(&mut accumulator, now, 150);
    }
    let mut identity = Some(IDENTITY);
    let mut under_way: Vec<ProducerBatch> = Vec::new();
    let mut sent = Vec::new();
    for word in script.split_whitespace() {
        let (what, number) = word.split_at(word.len() - 1);
        if what == "sen" {
            now += Duration::from_millis(50);
            while let Some(mut batch) = drain_as(&mut accumulator, now, &mut identity).pop() {
                let (epoch, sequence) = stamp(&mut batch);
                sent.push(format!("{}:{epoch}/{sequence}", batch.number));
                under_way.push(batch);
            }
            sent.push(";".to_owned());
            continue;
        }
        let number: u64 = number.parse().unwrap();
        let place = under_way.iter().position(|batch| batch.number == number).unwrap();
        let batch = under_way.remove(place);
        accumulator.landed(&batch.partition);
        match what {
            "ok" => {
                accumulator.acknowledged(&batch);
                accumulator.finish(
                    batch,
                    now,
                    Ok(BatchResult { base_offset: 0, log_append_time: 0 }),
                );
            }
            "again" => accumulator.put_back(batch, now),
            "order" => {
                accumulator.out_of_order(&batch);
                accumulator.put_back(batch, now);
            }
            "lost" => accumulator.gave_up(&batch),
            other => panic!("{other}"),
        }
    }
    sent.join(" ")
}

#[test]
fn later_batches_follow_one_that_is_sent_again() {
    // 1 and 2 came too early; they go one after the other, as they are.
    let sent = play(3, "send again0 order1 send order2 send ok0 send ok1 send ok2 send");
    assert_eq!(sent, "0:0/0 1:0/1 2:0/2 ; ; 0:0/0 ; 1:0/1 ; 2:0/2 ; ;");
}

#[test]
fn a_batch_that_was_overtaken_goes_in_a_new_epoch() {
    // A log that did not know the producer took 1 first: 0 will never fit before it.
    let sent = play(3, "send again0 ok1 again2 send order0 send ok0 send ok2 send");
    assert_eq!(sent, "0:0/0 1:0/1 2:0/2 ; 0:0/0 ; 0:1/0 ; 2:1/1 ; ;");
}

#[test]
fn a_new_epoch_waits_for_what_is_under_way() {
    let sent = play(3, "send order0 send ok1 send again2 send ok0 send ok2");
    assert_eq!(sent, "0:0/0 1:0/1 2:0/2 ; ; ; 0:1/0 ; 2:1/1 ;");
}

#[test]
fn a_gap_after_a_batch_that_was_given_up_ends_the_epoch() {
    let sent = play(3, "send lost0 order1 again2 send ok1 send ok2");
    assert_eq!(sent, "0:0/0 1:0/1 2:0/2 ; 1:1/0 ; 2:1/1 ;");
}

#[test]
fn a_batch_that_was_given_up_and_did_arrive_leaves_no_gap() {
    let sent = play(2, "send lost0 again1 send ok1 send");
    assert_eq!(sent, "0:0/0 1:0/1 ; 1:0/1 ; ;");
}

#[test]
fn no_more_batches_are_under_way_than_the_broker_knows_again() {
    let sent = play(7, "send ok0 send");
    assert_eq!(sent, "0:0/0 1:0/1 2:0/2 3:0/3 4:0/4 ; 5:0/5 ;");
}

#[test]
fn a_partition_takes_the_new_epoch_of_another_when_all_it_sent_is_answered() {
    let now = clock::now();
    let mut accumulator = accumulator();
    accumulator.hurries = 1;
    append(&mut accumulator, now, 150);
    append(&mut accumulator, now, 150);
    append(&mut accumulator, now, 150);
    let mut first = drain(&mut accumulator, now).remove(0);
    let newer = Identity { epoch: ProducerEpoch(1), ..IDENTITY };
    let mut second = drain_as(&mut accumulator, now, &mut Some(newer)).remove(0);
    assert_eq!((stamp(&mut first), stamp(&mut second)), ((0, 0), (0, 1)));
    for batch in [first, second] {
        accumulator.landed(&batch.partition);
        accumulator.acknowledged(&batch);
    }
    let mut third = drain_as(&mut accumulator, now, &mut Some(newer)).remove(0);
    assert_eq!(stamp(&mut third), (1, 0));
}

#[test]
fn what_goes_to_a_new_leader_waits_for_the_answers_of_the_old_one() {
    let now = clock::now();
    let mut accumulator = accumulator();
    accumulator.hurries = 1;
    append(&mut accumulator, now, 150);
    append(&mut accumulator, now, 150);
    let first = drain(&mut accumulator, now).remove(0);
    let to_two = |accumulator: &mut Accumulator| {
        accumulator.drain(now, &mut Some(IDENTITY), |_| Some(2), |_| true, 1 << 20).by_leader
    };
    assert!(to_two(&mut accumulator).is_empty());
    accumulator.landed(&first.partition);
    assert_eq!(to_two(&mut accumulator).len(), 1);
}

#[test]
fn a_batch_with_another_stamp_has_the_checksum_of_it() {
    let now = clock::now();
    let mut accumulator = accumulator();
    append(&mut accumulator, now, 150);
    append(&mut accumulator, now, 150);
    accumulator.hurries = 1;
    let mut first = drain(&mut accumulator, now).remove(0);
    first.seal();
    accumulator.landed(&first.partition);
    accumulator.out_of_order(&first);
    accumulator.put_back(first, now);
    let later = now + Duration::from_millis(50);
    let mut again = drain(&mut accumulator, later).remove(0);
    let bytes = again.seal();
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!((header.producer_epoch, header.base_sequence), (ProducerEpoch(1), 0));
    assert_eq!(header.crc, record::batch::compute_crc(&bytes));
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
