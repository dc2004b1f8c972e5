//! Every request in every situation: its answer, and the record that is written for it.

use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::world::{run, shown, shown_reply};

/// How an id got where it is.
const SITUATIONS: [(&str, &str); 14] = [
    ("unknown", ""),
    ("Empty", "0s stored x 5/3 Empty"),
    ("Ongoing", "0s stored x 5/3 Ongoing t-0"),
    ("CompleteCommit", "0s stored x 5/3 CompleteCommit"),
    ("CompleteAbort", "0s stored x 5/3 CompleteAbort"),
    ("PrepareCommit, marking", "0s stored x 5/3 PrepareCommit t-0"),
    ("PrepareAbort, marking", "0s stored x 5/3 PrepareAbort t-0"),
    ("PrepareCommit, completing", "0s stored x 5/3 PrepareCommit t-0|1s marked x t-0=None"),
    (
        "PrepareCommit, left",
        "0s stored x 5/3 PrepareCommit t-0|1s marked x t-0=None|1s fail NotLeaderOrFollower",
    ),
    (
        "PrepareAbort, left",
        "0s stored x 5/3 PrepareAbort t-0|1s marked x t-0=None|1s fail NotLeaderOrFollower",
    ),
    ("Empty, changing", "0s stored x 5/3 Empty|1s init x 1000"),
    ("Ongoing, changing", "0s stored x 5/3 Ongoing t-0|1s add x 5/3 t-1"),
    ("Ongoing, fenced", "0s stored x 5/3 Ongoing t-0|1s init x 1000"),
    ("Empty, expiring", "0s stored x 5/3 Empty|700000s wake"),
];

/// In each situation, after it the append that the request leads to succeeds.
fn check_table(requests: &[&str], expected: Expect) {
    let mut table = String::new();
    for (situation, script) in SITUATIONS {
        writeln!(table, "{situation}").unwrap();
        for request in requests {
            let mut lines = script.split('|').filter(|line| !line.is_empty());
            let stored = lines.next().map(|line| format!("{line}\n0s restart\n"));
            let rest: Vec<&str> = lines.collect();
            let mut world = run(&(stored.unwrap_or_default() + &rest.join("\n")));
            let appends: Vec<_> = world.appends.keys().copied().collect();
            world.replies.clear();
            world.step(&request.split(' ').collect::<Vec<_>>());
            let new = world.appends.iter().find(|(append, _)| !appends.contains(append));
            let mut answer = String::new();
            if let Some((append, records)) = new.map(|(append, records)| (*append, records.clone()))
            {
                world.appends.remove(&append);
                let value = records[0].value.as_ref().unwrap();
                write!(answer, "writes {}, then ", shown(value)).unwrap();
                world.append_ended(append, &records, common::error_code::ErrorCode::None, true);
            }
            match world.replies.as_slice() {
                [(_, reply)] => answer += &shown_reply(reply),
                [] => answer += "asks for a producer id",
                several => panic!("{request} in {situation} gets {several:?}"),
            }
            writeln!(table, "  {request:22} {answer}").unwrap();
        }
    }
    expected.assert_eq(&table);
}

#[test]
fn init_producer_id_in_every_situation() {
    check_table(
        &["init x 9000", "init x 9000 5/3", "init x 9000 5/2", "init x 9000 6/3"],
        expect![[r#"
            unknown
              init x 9000            asks for a producer id
              init x 9000 5/3        asks for a producer id
              init x 9000 5/2        asks for a producer id
              init x 9000 6/3        asks for a producer id
            Empty
              init x 9000            writes 5/4 Empty, then 5/4
              init x 9000 5/3        writes 5/4 Empty, then 5/4
              init x 9000 5/2        ProducerFenced
              init x 9000 6/3        ProducerFenced
            Ongoing
              init x 9000            writes 5/4 PrepareAbort t-0 began 0, then ConcurrentTransactions
              init x 9000 5/3        writes 5/4 PrepareAbort t-0 began 0, then ConcurrentTransactions
              init x 9000 5/2        writes 5/4 PrepareAbort t-0 began 0, then ConcurrentTransactions
              init x 9000 6/3        ProducerFenced
            CompleteCommit
              init x 9000            writes 5/4 Empty, then 5/4
              init x 9000 5/3        writes 5/4 Empty, then 5/4
              init x 9000 5/2        ProducerFenced
              init x 9000 6/3        ProducerFenced
            CompleteAbort
              init x 9000            writes 5/4 Empty, then 5/4
              init x 9000 5/3        writes 5/4 Empty, then 5/4
              init x 9000 5/2        ProducerFenced
              init x 9000 6/3        ProducerFenced
            PrepareCommit, marking
              init x 9000            ConcurrentTransactions
              init x 9000 5/3        ConcurrentTransactions
              init x 9000 5/2        ConcurrentTransactions
              init x 9000 6/3        ConcurrentTransactions
            PrepareAbort, marking
              init x 9000            ConcurrentTransactions
              init x 9000 5/3        ConcurrentTransactions
              init x 9000 5/2        ConcurrentTransactions
              init x 9000 6/3        ConcurrentTransactions
            PrepareCommit, completing
              init x 9000            ConcurrentTransactions
              init x 9000 5/3        ConcurrentTransactions
              init x 9000 5/2        ConcurrentTransactions
              init x 9000 6/3        ConcurrentTransactions
            PrepareCommit, left
              init x 9000            ConcurrentTransactions
              init x 9000 5/3        ConcurrentTransactions
              init x 9000 5/2        ConcurrentTransactions
              init x 9000 6/3        ProducerFenced
            PrepareAbort, left
              init x 9000            ConcurrentTransactions
              init x 9000 5/3        ConcurrentTransactions
              init x 9000 5/2        ConcurrentTransactions
              init x 9000 6/3        ProducerFenced
            Empty, changing
              init x 9000            ConcurrentTransactions
              init x 9000 5/3        ConcurrentTransactions
              init x 9000 5/2        ConcurrentTransactions
              init x 9000 6/3        ConcurrentTransactions
            Ongoing, changing
              init x 9000            ConcurrentTransactions
              init x 9000 5/3        ConcurrentTransactions
              init x 9000 5/2        ConcurrentTransactions
              init x 9000 6/3        ConcurrentTransactions
            Ongoing, fenced
              init x 9000            ConcurrentTransactions
              init x 9000 5/3        ConcurrentTransactions
              init x 9000 5/2        ConcurrentTransactions
              init x 9000 6/3        ConcurrentTransactions
            Empty, expiring
              init x 9000            ConcurrentTransactions
              init x 9000 5/3        ConcurrentTransactions
              init x 9000 5/2        ConcurrentTransactions
              init x 9000 6/3        ConcurrentTransactions
        "#]],
    );
}

#[test]
fn add_partitions_in_every_situation() {
    check_table(
        &["add x 5/3 t-0", "add x 5/3 t-0,u-0", "add x 5/2 t-0", "add x 5/4 t-0", "add x 6/3 t-0"],
        expect![[r#"
            unknown
              add x 5/3 t-0          InvalidProducerIdMapping
              add x 5/3 t-0,u-0      InvalidProducerIdMapping
              add x 5/2 t-0          InvalidProducerIdMapping
              add x 5/4 t-0          InvalidProducerIdMapping
              add x 6/3 t-0          InvalidProducerIdMapping
            Empty
              add x 5/3 t-0          writes 5/3 Ongoing t-0 began 0, then None
              add x 5/3 t-0,u-0      writes 5/3 Ongoing t-0,u-0 began 0, then None
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            Ongoing
              add x 5/3 t-0          None
              add x 5/3 t-0,u-0      writes 5/3 Ongoing t-0,u-0 began 0, then None
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            CompleteCommit
              add x 5/3 t-0          writes 5/3 Ongoing t-0 began 0, then None
              add x 5/3 t-0,u-0      writes 5/3 Ongoing t-0,u-0 began 0, then None
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            CompleteAbort
              add x 5/3 t-0          writes 5/3 Ongoing t-0 began 0, then None
              add x 5/3 t-0,u-0      writes 5/3 Ongoing t-0,u-0 began 0, then None
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            PrepareCommit, marking
              add x 5/3 t-0          ConcurrentTransactions
              add x 5/3 t-0,u-0      ConcurrentTransactions
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            PrepareAbort, marking
              add x 5/3 t-0          ConcurrentTransactions
              add x 5/3 t-0,u-0      ConcurrentTransactions
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            PrepareCommit, completing
              add x 5/3 t-0          ConcurrentTransactions
              add x 5/3 t-0,u-0      ConcurrentTransactions
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            PrepareCommit, left
              add x 5/3 t-0          ConcurrentTransactions
              add x 5/3 t-0,u-0      ConcurrentTransactions
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            PrepareAbort, left
              add x 5/3 t-0          ConcurrentTransactions
              add x 5/3 t-0,u-0      ConcurrentTransactions
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            Empty, changing
              add x 5/3 t-0          ConcurrentTransactions
              add x 5/3 t-0,u-0      ConcurrentTransactions
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            Ongoing, changing
              add x 5/3 t-0          ConcurrentTransactions
              add x 5/3 t-0,u-0      ConcurrentTransactions
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
            Ongoing, fenced
              add x 5/3 t-0          ProducerFenced
              add x 5/3 t-0,u-0      ProducerFenced
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ConcurrentTransactions
              add x 6/3 t-0          InvalidProducerIdMapping
            Empty, expiring
              add x 5/3 t-0          ConcurrentTransactions
              add x 5/3 t-0,u-0      ConcurrentTransactions
              add x 5/2 t-0          ProducerFenced
              add x 5/4 t-0          ProducerFenced
              add x 6/3 t-0          InvalidProducerIdMapping
        "#]],
    );
}

#[test]
fn verify_partitions_in_every_situation() {
    check_table(
        &["verify x 5/3 t-0,u-0", "verify x 5/2 t-0", "verify x 6/3 t-0"],
        expect![[r#"
            unknown
              verify x 5/3 t-0,u-0   [InvalidProducerIdMapping, InvalidProducerIdMapping]
              verify x 5/2 t-0       [InvalidProducerIdMapping]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            Empty
              verify x 5/3 t-0,u-0   [TransactionAbortable, TransactionAbortable]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            Ongoing
              verify x 5/3 t-0,u-0   [None, TransactionAbortable]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            CompleteCommit
              verify x 5/3 t-0,u-0   [TransactionAbortable, TransactionAbortable]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            CompleteAbort
              verify x 5/3 t-0,u-0   [TransactionAbortable, TransactionAbortable]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            PrepareCommit, marking
              verify x 5/3 t-0,u-0   [ConcurrentTransactions, ConcurrentTransactions]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            PrepareAbort, marking
              verify x 5/3 t-0,u-0   [ConcurrentTransactions, ConcurrentTransactions]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            PrepareCommit, completing
              verify x 5/3 t-0,u-0   [ConcurrentTransactions, ConcurrentTransactions]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            PrepareCommit, left
              verify x 5/3 t-0,u-0   [ConcurrentTransactions, ConcurrentTransactions]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            PrepareAbort, left
              verify x 5/3 t-0,u-0   [ConcurrentTransactions, ConcurrentTransactions]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            Empty, changing
              verify x 5/3 t-0,u-0   [TransactionAbortable, TransactionAbortable]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            Ongoing, changing
              verify x 5/3 t-0,u-0   [None, TransactionAbortable]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            Ongoing, fenced
              verify x 5/3 t-0,u-0   [ProducerFenced, ProducerFenced]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
            Empty, expiring
              verify x 5/3 t-0,u-0   [TransactionAbortable, TransactionAbortable]
              verify x 5/2 t-0       [ProducerFenced]
              verify x 6/3 t-0       [InvalidProducerIdMapping]
        "#]],
    );
}

#[test]
fn end_txn_in_every_situation() {
    check_table(
        &["end x 5/3 commit", "end x 5/3 abort", "end x 5/2 commit", "end x 6/3 abort"],
        expect![[r#"
            unknown
              end x 5/3 commit       InvalidProducerIdMapping
              end x 5/3 abort        InvalidProducerIdMapping
              end x 5/2 commit       InvalidProducerIdMapping
              end x 6/3 abort        InvalidProducerIdMapping
            Empty
              end x 5/3 commit       InvalidTxnState
              end x 5/3 abort        InvalidTxnState
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            Ongoing
              end x 5/3 commit       writes 5/3 PrepareCommit t-0 began 0, then None
              end x 5/3 abort        writes 5/3 PrepareAbort t-0 began 0, then None
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            CompleteCommit
              end x 5/3 commit       None
              end x 5/3 abort        InvalidTxnState
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            CompleteAbort
              end x 5/3 commit       InvalidTxnState
              end x 5/3 abort        None
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            PrepareCommit, marking
              end x 5/3 commit       ConcurrentTransactions
              end x 5/3 abort        ConcurrentTransactions
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            PrepareAbort, marking
              end x 5/3 commit       ConcurrentTransactions
              end x 5/3 abort        ConcurrentTransactions
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            PrepareCommit, completing
              end x 5/3 commit       ConcurrentTransactions
              end x 5/3 abort        ConcurrentTransactions
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            PrepareCommit, left
              end x 5/3 commit       ConcurrentTransactions
              end x 5/3 abort        InvalidTxnState
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            PrepareAbort, left
              end x 5/3 commit       InvalidTxnState
              end x 5/3 abort        ConcurrentTransactions
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            Empty, changing
              end x 5/3 commit       ConcurrentTransactions
              end x 5/3 abort        ConcurrentTransactions
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            Ongoing, changing
              end x 5/3 commit       ConcurrentTransactions
              end x 5/3 abort        ConcurrentTransactions
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            Ongoing, fenced
              end x 5/3 commit       ProducerFenced
              end x 5/3 abort        ProducerFenced
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
            Empty, expiring
              end x 5/3 commit       ConcurrentTransactions
              end x 5/3 abort        ConcurrentTransactions
              end x 5/2 commit       ProducerFenced
              end x 6/3 abort        InvalidProducerIdMapping
        "#]],
    );
}
