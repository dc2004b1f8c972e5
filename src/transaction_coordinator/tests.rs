//! Lives of transactional ids, as scripts; `World::step` has the words.
//!
//! A value reads `PRODUCER_ID/EPOCH STATE PARTITIONS began TIME`; times in records are in milliseconds.

mod golden;
mod markers;
mod random;
mod table;
mod world;

use expect_test::{Expect, expect};

fn check(script: &str, expected: Expect) {
    expected.assert_eq(&world::run(script).recording);
}

#[test]
fn a_transaction_lives_from_its_first_producer_to_its_markers() {
    check(
        "
        0s   init x 60000
        0s   id 5
        0.1s ok
        1s   add x 5/0 t-1,t-0,t-1
        1.1s ok
        2s   add x 5/0 u-0
        2.1s ok
        3s   add x 5/0 t-0
        4s   end x 5/0 commit
        4.1s describe x
        4.1s ok
        4.2s marked x t-0=None u-0=None
        4.2s describe x
        4.3s marked x t-1=None
        4.3s describe x
        4.4s ok
        4.4s describe x
        5s   add x 5/0 v-0
        5s   ok
        ",
        expect![[r#"
            0s allocate
            0s append x 5/0 Empty
            0.1s reply 1 5/0
            1s append x 5/0 Ongoing t-1,t-0 began 1000
            1.1s reply 2 None
            2s append x 5/0 Ongoing t-1,t-0,u-0 began 1000
            2.1s reply 3 None
            3s reply 4 None
            4s append x 5/0 PrepareCommit t-1,t-0,u-0 began 1000
            4.1s x: 5/0 Ongoing began 1000 [t-1,t-0,u-0]
            4.1s reply 5 None
            4.1s mark x 5/0 Commit by 0 t-0,t-1,u-0
            4.2s x: 5/0 PrepareCommit began 1000 [t-1]
            4.3s append x 5/0 CompleteCommit began 1000
            4.3s x: 5/0 PrepareCommit began 1000 []
            4.4s x: 5/0 CompleteCommit began 1000 []
            5s append x 5/0 Ongoing v-0 began 5000
            5s reply 6 None
        "#]],
    );
}

#[test]
fn a_client_that_comes_back_gets_the_next_epoch() {
    check(
        "
        0s stored x 5/7 CompleteCommit
        0s restart
        1s init x 1000
        1s ok
        2s init x 2000
        2s ok
        2s end x 5/8 abort
        2s add x 5/8 t-0
        ",
        expect![[r#"
            1s append x 5/8 Empty
            1s reply 1 5/8
            2s append x 5/9 Empty
            2s reply 2 5/9
            2s reply 3 ProducerFenced
            2s reply 4 ProducerFenced
        "#]],
    );
}

#[test]
fn timeouts_have_a_range() {
    check(
        "
        0s init x 0
        0s init x -1
        0s init x 900001
        0s init x 900000
        0s init x 1
        ",
        expect![[r#"
            0s reply 1 InvalidTransactionTimeout
            0s reply 2 InvalidTransactionTimeout
            0s reply 3 InvalidTransactionTimeout
            0s allocate
            0s allocate
        "#]],
    );
}

#[test]
fn a_client_that_says_who_it_is_continues_and_may_ask_twice() {
    check(
        "
        0s stored x 5/7 Empty
        0s restart
        1s init x 1000 5/6
        1s init x 1000 6/7
        1s init x 1000 5/7
        1s ok
        2s init x 1000 5/7
        2s ok
        3s init x 1000 5/8
        3s ok
        4s init x 1000 5/7
        5s restart
        5s init x 1000 5/8
        ",
        expect![[r#"
            1s reply 1 ProducerFenced
            1s reply 2 ProducerFenced
            1s append x 5/8 Empty
            1s reply 3 5/8
            2s append x 5/8 Empty
            2s reply 4 5/8
            3s append x 5/9 Empty
            3s reply 5 5/9
            4s reply 6 ProducerFenced
            5s reply 7 ProducerFenced
        "#]],
    );
}

#[test]
fn one_that_says_who_it_is_to_a_coordinator_without_it_is_new() {
    check(
        "
        0s init x 1000 9/4
        0s id 5
        0s fail NotEnoughReplicas
        0s describe x
        0s add x 5/-1 t-0
        1s init x 1000 9/4
        1s ok
        ",
        expect![[r#"
            0s allocate
            0s append x 5/0 Empty
            0s reply 1 CoordinatorNotAvailable
            0s x: 5/-1 Empty began -1 []
            0s reply 2 ProducerFenced
            1s append x 5/0 Empty
            1s reply 3 5/0
        "#]],
    );
}

#[test]
fn used_up_epochs_lead_to_a_new_producer_id() {
    check(
        "
        0s stored x 5/32765 Empty
        0s restart
        1s init x 1000
        1s ok
        2s init x 1000
        2s no-id CoordinatorLoadInProgress
        3s init x 1000 5/32765
        3s init x 1000 5/32766
        3s id 8
        3s ok
        4s init x 1000 5/32766
        4s ok
        5s init x 1000 5/32766
        5s ok
        6s init x 1000 8/0
        6s ok
        7s init x 1000 5/32766
        ",
        expect![[r#"
            1s append x 5/32766 Empty
            1s reply 1 5/32766
            2s allocate
            2s reply 2 CoordinatorLoadInProgress
            3s reply 3 ProducerFenced
            3s allocate
            3s append x 8/0 Empty
            3s reply 4 8/0
            4s append x 8/0 Empty
            4s reply 5 8/0
            5s append x 8/0 Empty
            5s reply 6 8/0
            6s append x 8/1 Empty
            6s reply 7 8/1
            7s reply 8 ProducerFenced
        "#]],
    );
}

#[test]
fn two_first_requests_share_a_producer_id() {
    check(
        "
        0s init x 1000
        0s init x 1000
        0s id 5
        0s id 6
        0s ok
        0s init x 1000
        0s ok
        ",
        expect![[r#"
            0s allocate
            0s allocate
            0s append x 5/0 Empty
            0s reply 2 ConcurrentTransactions
            0s reply 1 5/0
            0s append x 5/1 Empty
            0s reply 3 5/1
        "#]],
    );
}

#[test]
fn without_producer_ids_there_is_no_first_producer() {
    check(
        "
        0s init x 1000
        0s no-id CoordinatorLoadInProgress
        0s describe x
        ",
        expect![[r#"
            0s allocate
            0s reply 1 CoordinatorLoadInProgress
            0s x: TransactionalIdNotFound
        "#]],
    );
}

#[test]
fn an_ongoing_transaction_is_aborted_before_its_client_gets_a_producer() {
    check(
        "
        0s stored x 5/7 Ongoing t-0
        0s restart
        1s init x 60000
        1s end x 5/7 commit
        1s init x 60000
        1s ok
        1s init x 60000
        1s marked x t-0=None
        1s init x 60000
        1s ok
        2s init x 60000
        2s ok
        ",
        expect![[r#"
            1s append x 5/8 PrepareAbort t-0 began 0
            1s reply 2 ProducerFenced
            1s reply 3 ConcurrentTransactions
            1s reply 1 ConcurrentTransactions
            1s mark x 5/8 Abort by 1 t-0
            1s reply 4 ConcurrentTransactions
            1s append x 5/8 CompleteAbort began 0
            1s reply 5 ConcurrentTransactions
            2s append x 5/9 Empty
            2s reply 6 5/9
        "#]],
    );
}

#[test]
fn a_fence_that_is_not_written_fences_and_takes_no_second_epoch() {
    check(
        "
        0s stored x 5/7 Ongoing t-0
        0s restart
        1s init x 60000
        1s fail NotEnoughReplicas
        1s describe x
        1s end x 5/7 commit
        1s add x 5/7 t-1
        2s init x 60000
        2s fail KafkaStorageError
        2s add x 5/8 t-1
        2s fail NotEnoughReplicas
        3s init x 60000
        3s ok
        ",
        expect![[r#"
            1s append x 5/8 PrepareAbort t-0 began 0
            1s reply 1 CoordinatorNotAvailable
            1s x: 5/8 Ongoing began 0 [t-0]
            1s reply 2 ProducerFenced
            1s reply 3 ProducerFenced
            2s append x 5/8 PrepareAbort t-0 began 0
            2s reply 4 NotCoordinator
            2s append x 5/8 Ongoing t-0,t-1 began 0
            2s reply 5 CoordinatorNotAvailable
            3s append x 5/8 PrepareAbort t-0 began 0
            3s reply 6 ConcurrentTransactions
            3s mark x 5/8 Abort by 1 t-0
        "#]],
    );
}

#[test]
fn a_fence_at_the_last_epoch_can_be_tried_again() {
    check(
        "
        0s stored x 5/32766 Ongoing t-0
        0s restart
        1s init x 60000
        1s fail NotEnoughReplicas
        2s init x 60000
        2s ok
        2s marked x t-0=None
        2s ok
        3s init x 60000 5/32766
        3s init x 60000
        3s id 9
        3s ok
        ",
        expect![[r#"
            1s append x 5/32767 PrepareAbort t-0 began 0
            1s reply 1 CoordinatorNotAvailable
            2s append x 5/32767 PrepareAbort t-0 began 0
            2s reply 2 ConcurrentTransactions
            2s mark x 5/32767 Abort by 1 t-0
            2s append x 5/32767 CompleteAbort began 0
            3s reply 3 ProducerFenced
            3s allocate
            3s append x 9/0 Empty
            3s reply 4 9/0
        "#]],
    );
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted() {
    check(
        "
        0s   stored x 5/7 Ongoing t-0
        0s   stored y 6/0 Empty
        0s   restart
        0s   next-wake
        60s  wake
        60s  next-wake
        60.1s wake
        70s  wake
        70s  fail NotEnoughReplicas
        70s  end x 5/7 commit
        80s  wake
        80s  ok
        80s  marked x t-0=None
        80s  ok
        90s  wake
        90s  end x 5/8 abort
        ",
        expect![[r#"
            0s next wake Some(10.0)
            60s next wake Some(70.0)
            70s append x 5/8 PrepareAbort t-0 began 0
            70s reply 1 ProducerFenced
            80s append x 5/8 PrepareAbort t-0 began 0
            80s mark x 5/8 Abort by 1 t-0
            80s append x 5/8 CompleteAbort began 0
            90s reply 2 None
        "#]],
    );
}

#[test]
fn ids_that_nobody_uses_are_forgotten() {
    check(
        "
        0s      stored a 5/7 Empty
        0s      stored b 6/0 CompleteCommit
        0s      stored c 7/0 CompleteAbort
        0s      stored d 8/0 PrepareCommit t-0
        0s      stored e 9/0 Ongoing t-0
        1s      stored f 9/0 Empty
        1s      restart
        604799s wake
        604799s fail NotEnoughReplicas
        604800s wake
        605000s restart
        605000s next-wake
        608599s wake
        608600s init g 1000
        608600s id 10
        608600s ok
        608600s wake
        608600s init a 60000
        608600s describe a
        608600s ok
        608600s ok
        608600s describe a
        608600s list
        608600s add b 6/0 t-0
        612200s wake
        ",
        expect![[r#"
            1s mark d 8/0 Commit by 1 t-0
            604799s append e 9/1 PrepareAbort t-0 began 0
            605000s mark d 8/0 Commit by 2 t-0
            605000s next wake Some(605010.0)
            608599s append e 9/1 PrepareAbort t-0 began 0
            608600s allocate
            608600s append g 10/0 Empty
            608600s mark e 9/1 Abort by 2 t-0
            608600s append a forgotten; b forgotten; c forgotten; f forgotten
            608600s reply 2 ConcurrentTransactions
            608600s a: 5/7 Empty began -1 []
            608600s reply 1 10/0
            608600s a: TransactionalIdNotFound
            608600s list ["d 8 PrepareCommit", "e 9 PrepareAbort", "g 10 Empty"], unknown []
            608600s reply 3 InvalidProducerIdMapping
        "#]],
    );
}

#[test]
fn tombstones_go_out_in_batches() {
    let mut world = world::World::new();
    for index in 0..600 {
        let id = format!("{index:03}{}", "x".repeat(97));
        world.step(&["stored", &id, "5/0", "Empty"]);
    }
    world.restart();
    world.pass(std::time::Duration::from_secs(8 * 24 * 3600));
    world.wake();
    let counts: Vec<usize> = world.appends.values().map(Vec::len).collect();
    assert_eq!(counts, [124, 124, 124, 124, 104]);
    while !world.appends.is_empty() {
        world.step(&["ok"]);
    }
    assert_eq!(world.coordinator.transactional_id_count(), 0);
    assert!(world.stored().is_empty());
}

#[test]
fn a_failed_append_leaves_things_as_they_were() {
    check(
        "
        0s stored x 5/7 Empty
        0s restart
        1s init x 1000
        1s fail NotEnoughReplicasAfterAppend
        1s describe x
        2s add x 5/7 t-0
        2s fail NotLeaderOrFollower
        2s describe x
        3s add x 5/7 t-0
        3s ok
        4s add x 5/7 t-1
        4s fail UnknownTopicOrPartition
        4s describe x
        5s end x 5/7 commit
        5s fail RequestTimedOut
        5s describe x
        6s end x 5/7 abort
        6s fail MessageTooLarge
        6s describe x
        7s end x 5/7 abort
        7s fail InvalidRequiredAcks
        8s end x 5/7 commit
        8s ok
        ",
        expect![[r#"
            1s append x 5/8 Empty
            1s reply 1 CoordinatorNotAvailable
            1s x: 5/7 Empty began -1 []
            2s append x 5/7 Ongoing t-0 began 2000
            2s reply 2 NotCoordinator
            2s x: 5/7 Empty began -1 []
            3s append x 5/7 Ongoing t-0 began 3000
            3s reply 3 None
            4s append x 5/7 Ongoing t-0,t-1 began 3000
            4s reply 4 CoordinatorNotAvailable
            4s x: 5/7 Ongoing began 3000 [t-0]
            5s append x 5/7 PrepareCommit t-0 began 3000
            5s reply 5 CoordinatorNotAvailable
            5s x: 5/7 Ongoing began 3000 [t-0]
            6s append x 5/7 PrepareAbort t-0 began 3000
            6s reply 6 UnknownServerError
            6s x: 5/7 Ongoing began 3000 [t-0]
            7s append x 5/7 PrepareAbort t-0 began 3000
            7s reply 7 InvalidRequiredAcks
            8s append x 5/7 PrepareCommit t-0 began 3000
            8s reply 8 None
            8s mark x 5/7 Commit by 1 t-0
        "#]],
    );
}

#[test]
fn a_coordinator_that_loads_or_resigned_says_so() {
    check(
        "
        0s stored x 5/7 Ongoing t-0
        0s load
        0s init x 1000
        0s add x 5/7 t-0
        0s verify x 5/7 t-0,t-1
        0s end x 5/7 commit
        0s describe x
        0s list
        0s next-wake
        0s wake
        1s loaded
        1s end x 5/7 commit
        1s init y 1000
        1s resign
        1s init x 1000
        1s add x 5/7 t-0
        1s verify x 5/7 t-0
        1s end x 5/7 commit
        1s describe x
        1s list
        1s next-wake
        ",
        expect![[r#"
            0s reply 1 CoordinatorLoadInProgress
            0s reply 2 CoordinatorLoadInProgress
            0s reply 3 [CoordinatorLoadInProgress, CoordinatorLoadInProgress]
            0s reply 4 CoordinatorLoadInProgress
            0s x: CoordinatorLoadInProgress
            0s list CoordinatorLoadInProgress
            0s next wake None
            1s append x 5/7 PrepareCommit t-0 began 0
            1s allocate
            1s reply 6 NotCoordinator
            1s reply 5 NotCoordinator
            1s reply 7 NotCoordinator
            1s reply 8 NotCoordinator
            1s reply 9 [NotCoordinator]
            1s reply 10 NotCoordinator
            1s x: NotCoordinator
            1s list [], unknown []
            1s next wake None
        "#]],
    );
}

#[test]
fn a_coordinator_that_resigns_answers_all_who_wait() {
    check(
        "
        0s stored a 5/7 Empty
        0s stored b 6/7 Empty
        0s stored c 7/7 Ongoing t-0
        0s stored d 8/7 Ongoing t-0
        0s stored e 9/7 PrepareAbort t-0
        0s restart
        1s init a 1000
        1s add b 6/7 t-0
        1s end c 7/7 commit
        1s init d 1000
        1s init new 1000
        1s resign
        1s ok
        1s marked e t-0=None
        ",
        expect![[r#"
            0s mark e 9/7 Abort by 1 t-0
            1s append a 5/8 Empty
            1s append b 6/7 Ongoing t-0 began 1000
            1s append c 7/7 PrepareCommit t-0 began 0
            1s append d 8/8 PrepareAbort t-0 began 0
            1s allocate
            1s reply 5 NotCoordinator
            1s reply 1 NotCoordinator
            1s reply 2 NotCoordinator
            1s reply 3 NotCoordinator
            1s reply 4 NotCoordinator
        "#]],
    );
}

#[test]
fn a_new_coordinator_goes_on_where_the_log_ends() {
    check(
        "
        0s stored a 5/7 PrepareCommit t-0,u-0
        0s stored b 6/7 PrepareAbort t-0
        0s stored c 7/7 Ongoing t-0
        0s stored d 8/7 PrepareAbort
        0s restart
        1s marked a t-0=None
        2s restart
        2s marked a t-0=None u-0=None
        2s ok
        2s ok
        3s restart
        ",
        expect![[r#"
            0s mark a 5/7 Commit by 1 t-0,u-0
            0s mark b 6/7 Abort by 1 t-0
            0s append d 8/7 CompleteAbort began 0
            2s mark a 5/7 Commit by 2 t-0,u-0
            2s mark b 6/7 Abort by 2 t-0
            2s append d 8/7 CompleteAbort began 0
            2s append a 5/7 CompleteCommit began 0
            3s mark b 6/7 Abort by 3 t-0
        "#]],
    );
}

#[test]
fn transactions_are_described_and_listed() {
    check(
        "
        0s stored a 5/7 Ongoing t-0,t-1
        4s stored b 6/7 PrepareAbort t-0
        4s stored c 7/7 Empty
        4s restart
        9s describe a
        9s describe c
        9s describe nobody
        9s list
        9s list Ongoing Empty
        9s list Dead Nonsense
        9s list Nonsense Nonsense
        9s list 6 7
        9s list 6 Ongoing
        9s list >5s
        9s list >4.9s
        9s list >9s Ongoing
        ",
        expect![[r#"
            4s mark b 6/7 Abort by 1 t-0
            9s a: 5/7 Ongoing began 0 [t-0,t-1]
            9s c: 7/7 Empty began -1 []
            9s nobody: TransactionalIdNotFound
            9s list ["a 5 Ongoing", "b 6 PrepareAbort", "c 7 Empty"], unknown []
            9s list ["a 5 Ongoing", "c 7 Empty"], unknown []
            9s list [], unknown ["Nonsense"]
            9s list [], unknown ["Nonsense"]
            9s list ["b 6 PrepareAbort", "c 7 Empty"], unknown []
            9s list [], unknown []
            9s list ["a 5 Ongoing", "c 7 Empty"], unknown []
            9s list ["a 5 Ongoing", "b 6 PrepareAbort", "c 7 Empty"], unknown []
            9s list [], unknown []
        "#]],
    );
}
