//! Transactions in a log: who may open one, and what their markers do.

use std::sync::atomic::{AtomicBool, Ordering};

use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use record::{
    control::{EndTransactionMarker, TransactionResult, marker_batch},
    validate::{self, Checked, check},
};

use crate::{
    error::AppendError,
    log::Log,
    log_append::Appended,
    log_config::LogConfig,
    producer_state::ProducerError,
    testing::{Batch, Folder, NOW, append, batch, checked, end_transaction, rules},
    verification::VerificationGuard,
};

const PRODUCER: (ProducerId, ProducerEpoch) = (ProducerId(7), ProducerEpoch(0));
const LEADER: LeaderEpoch = LeaderEpoch(0);

fn transactional(sequence: i32) -> Batch {
    Batch { producer: Some((7, 0, sequence)), transactional: true, ..batch() }
}

fn start(log: &Log, sequence: i32) -> Option<VerificationGuard> {
    log.start_verification(PRODUCER, sequence, NOW)
}

fn append_with(log: &Log, sequence: i32, guard: VerificationGuard) -> Result<(), AppendError> {
    let checked = checked(transactional(sequence).bytes());
    log.append_verified(checked, LEADER, guard).map(|_| ())
}

fn is_unverified<T>(result: Result<T, AppendError>) -> bool {
    matches!(result, Err(AppendError::Producer(ProducerError::NotVerified)))
}

fn marker(producer: i64, epoch: i16, coordinator_epoch: i32) -> Checked {
    let marker = EndTransactionMarker { result: TransactionResult::Abort, coordinator_epoch };
    let bytes = marker_batch(ProducerId(producer), ProducerEpoch(epoch), NOW, marker);
    check(bytes, &rules(validate::Origin::Coordinator)).unwrap()
}

#[test]
fn a_transaction_is_opened_with_a_guard_and_goes_on_without() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    assert!(is_unverified(log.append_as_leader(checked(transactional(0).bytes()), LEADER)));
    let guard = start(&log, 0).unwrap();
    assert!(is_unverified(log.append_as_leader(checked(transactional(0).bytes()), LEADER)));
    append_with(&log, 0, guard).unwrap();
    assert_eq!(start(&log, 1), None, "the transaction is open");
    log.append_as_leader(checked(transactional(1).bytes()), LEADER).unwrap();
    end_transaction(&log, (7, 0), false);
    assert!(is_unverified(log.append_as_leader(checked(transactional(2).bytes()), LEADER)));
    assert!(is_unverified(append_with(&log, 2, guard)), "the guard is used up");
    // The same batch once more is known, whatever has ended since.
    assert!(log.append_as_leader(checked(transactional(1).bytes()), LEADER).unwrap().duplicate);
}

#[test]
fn a_marker_between_verification_and_append_ends_the_verification() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    log.assign_leader_epoch(LEADER);
    let stale = start(&log, 0).unwrap();
    log.append_as_coordinator(marker(7, 0, 1), LEADER).unwrap();
    assert!(is_unverified(append_with(&log, 0, stale)));
    let fresh = start(&log, 0).unwrap();
    assert!(is_unverified(append_with(&log, 0, stale)), "another transaction's answer");
    append_with(&log, 0, fresh).unwrap();
}

#[test]
fn a_sequence_does_not_overtake_one_that_waits_for_its_verification() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    let guard = start(&log, 0).unwrap();
    assert_eq!(start(&log, 1), Some(guard));
    // The first one was refused for now; the producer sends it again.
    assert!(matches!(
        append_with(&log, 1, guard),
        Err(AppendError::Producer(ProducerError::EarlierSequenceWaits {
            sequence: 1,
            lowest: 0,
            ..
        }))
    ));
    append_with(&log, 0, guard).unwrap();
    log.append_as_leader(checked(transactional(1).bytes()), LEADER).unwrap();
}

#[test]
fn a_batch_of_an_ended_transaction_that_comes_late_does_not_hold_up_the_next_one() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    for sequence in 0..2 {
        append(&log, transactional(sequence)).unwrap();
    }
    end_transaction(&log, (7, 0), false);
    // The first one once more, which its coordinator does not vouch for: it is not appended.
    let late = start(&log, 0).unwrap();
    let guard = start(&log, 2).unwrap();
    assert_eq!(late, guard);
    append_with(&log, 2, guard).unwrap();
    end_transaction(&log, (7, 0), false);
    // One that really has to wait is held up by its sequence.
    let guard = start(&log, 3).unwrap();
    start(&log, 4).unwrap();
    assert!(matches!(
        append_with(&log, 4, guard),
        Err(AppendError::Producer(ProducerError::OutOfOrderSequence { sequence: 4, .. }))
    ));
}

#[test]
fn a_coordinator_appends_once_its_verification_is_confirmed() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    log.assign_leader_epoch(LEADER);
    let offsets = || {
        let bytes = Batch { producer: Some((7, 0, -1)), ..transactional(-1) }.bytes();
        check(bytes, &rules(validate::Origin::Coordinator)).unwrap()
    };
    assert!(is_unverified(log.append_as_coordinator(offsets(), LEADER)));
    let guard = start(&log, -1).unwrap();
    assert!(is_unverified(log.append_as_coordinator(offsets(), LEADER)));
    log.confirm_verification(ProducerId(7), guard);
    log.append_as_coordinator(offsets(), LEADER).unwrap();
    log.append_as_coordinator(offsets(), LEADER).unwrap();
    end_transaction(&log, (7, 0), true);
    assert!(is_unverified(log.append_as_coordinator(offsets(), LEADER)));
}

#[test]
fn a_transaction_is_ended_only_as_it_was_seen() {
    let moved = |result: Result<Appended, AppendError>| {
        matches!(result, Err(AppendError::Producer(ProducerError::TransactionMoved(_))))
    };
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    append(&log, transactional(0)).unwrap();
    let [seen] = log.open_transactions()[..] else { panic!("one is open") };
    assert_eq!((seen.first_offset, seen.last_offset), (Offset(0), Offset(0)));
    // Its producer goes on.
    append(&log, transactional(1)).unwrap();
    assert!(moved(log.append_if_open(marker(7, 0, 1), LEADER, &seen)));
    let [seen] = log.open_transactions()[..] else { panic!("one is open") };
    end_transaction(&log, (7, 0), false);
    assert!(moved(log.append_if_open(marker(7, 0, 1), LEADER, &seen)), "it is committed");
    append(&log, transactional(2)).unwrap();
    assert!(moved(log.append_if_open(marker(7, 0, 1), LEADER, &seen)), "it is another one");
    let [seen] = log.open_transactions()[..] else { panic!("one is open") };
    assert_eq!(seen.coordinator_epoch, 1);
    log.append_if_open(marker(7, 0, 1), LEADER, &seen).unwrap();
    assert!(log.open_transactions().is_empty());
}

#[test]
fn nothing_is_verified_where_that_is_switched_off() {
    let folder = Folder::new();
    let log = folder.create(LogConfig { verify_transactions: false, ..LogConfig::default() });
    log.append_as_leader(checked(transactional(0).bytes()), LEADER).unwrap();
    assert!(log.has_open_transaction(ProducerId(7)));
}

#[test]
fn verifications_expire_with_producers() {
    let folder = Folder::new();
    let log = folder.create(LogConfig { producer_id_expiration_ms: 100, ..LogConfig::default() });
    let guard = start(&log, 0).unwrap();
    log.expire_producers(common::ids::Timestamp(NOW.0 + 100));
    assert!(is_unverified(append_with(&log, 0, guard)));
}

#[test]
fn a_marker_of_a_producer_that_wrote_nothing_decides_nothing_and_fences() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    append(&log, batch()).unwrap();
    log.append_as_coordinator(marker(9, 3, 5), LEADER).unwrap();
    assert_eq!(log.end_offset(), Offset(2));
    log.set_high_watermark(Offset(2));
    assert_eq!(log.last_stable_offset(), Offset(2), "there is nothing to wait for");
    assert!(log.aborted_transactions(Offset(0), Offset(2)).unwrap().is_empty());
    assert!(matches!(
        log.append_as_coordinator(marker(9, 2, 5), LEADER),
        Err(AppendError::Producer(ProducerError::InvalidEpoch { .. }))
    ));
    assert!(matches!(
        log.append_as_coordinator(marker(9, 3, 4), LEADER),
        Err(AppendError::Producer(ProducerError::CoordinatorFenced { epoch: 4, current: 5, .. }))
    ));
    // The producer is known after a restart too.
    drop(log);
    let log = folder.open_after_crash(LogConfig::default());
    let [known] = &log.producers()[..] else { panic!("one producer") };
    assert_eq!((known.producer_id, known.producer.epoch), (ProducerId(9), ProducerEpoch(3)));
    assert_eq!(known.producer.coordinator_epoch, 5);
}

#[test]
fn a_late_marker_of_a_former_coordinator_does_not_end_the_next_transaction() {
    let folder = Folder::new();
    let log = folder.create(LogConfig::default());
    log.assign_leader_epoch(LEADER);
    let guard = start(&log, 0).unwrap();
    append_with(&log, 0, guard).unwrap();
    // The next coordinator does not know that the marker is written.
    log.append_as_coordinator(marker(7, 0, 1), LEADER).unwrap();
    log.append_as_coordinator(marker(7, 0, 2), LEADER).unwrap();
    let guard = start(&log, 1).unwrap();
    append_with(&log, 1, guard).unwrap();
    let is_fenced = |log: &Log| {
        let refused = log.append_as_coordinator(marker(7, 0, 1), LEADER);
        matches!(
            refused,
            Err(AppendError::Producer(ProducerError::CoordinatorFenced {
                epoch: 1,
                current: 2,
                ..
            }))
        )
    };
    assert!(is_fenced(&log));
    drop(log);
    let log = folder.open_after_crash(LogConfig::default());
    assert!(is_fenced(&log));
    assert_eq!(log.open_transactions().len(), 1);
    // One that the same coordinator has sent twice cannot be told from the next transaction's own: KIP-890, part 2, is later.
    log.append_as_coordinator(marker(7, 0, 2), LEADER).unwrap();
    assert_eq!(log.open_transactions().len(), 0);
}

#[test]
fn an_aborted_transaction_is_listed_once_its_end_is_stable() {
    const ROUNDS: i32 = 500;
    let folder = Folder::new();
    let log = folder.create(LogConfig { segment_bytes: 20_000, ..LogConfig::default() });
    append(&log, batch()).unwrap();
    log.set_high_watermark(Offset(1));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                append(&log, transactional(round)).unwrap();
                end_transaction(&log, (7, 0), true);
            }
            is_done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                log.set_high_watermark(log.end_offset());
            }
        });
        while !is_done.load(Ordering::Relaxed) {
            let stable = log.last_stable_offset();
            let listed = log.aborted_transactions(Offset(0), stable).unwrap();
            let ended = listed.iter().filter(|transaction| transaction.last_offset < stable);
            // The first record, and then two for each transaction.
            assert_eq!(ended.count() as i64, stable.0 / 2, "below {stable}");
        }
    });
}
