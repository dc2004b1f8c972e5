//! What each answer to a marker leads to.

use expect_test::expect;

use super::check;

#[test]
fn what_may_pass_is_tried_again_after_a_back_off() {
    check(
        "
        0s    stored x 5/7 PrepareCommit t-0,t-1,t-2,t-3,t-4,t-5,t-6,t-7
        0s    restart
        1s    marked x t-0=UnknownTopicOrPartition t-1=NotLeaderOrFollower t-2=NotEnoughReplicas
        1s    next-wake
        1.05s marked x t-3=NotEnoughReplicasAfterAppend t-4=RequestTimedOut t-5=KafkaStorageError
        1.05s wake
        1.1s  wake
        1.2s  marked x t-6=disconnected t-7=leaderless
        1.3s  wake
        1.4s  marked x t-0=None t-1=None t-2=None t-3=None t-4=None t-5=None t-6=None
        1.4s  describe x
        1.4s  marked x t-7=None
        1.4s  ok
        1.5s  wake
        1.5s  next-wake
        ",
        expect![[r#"
            0s mark x 5/7 Commit by 1 t-0,t-1,t-2,t-3,t-4,t-5,t-6,t-7
            1s next wake Some(1.1)
            1.1s mark x 5/7 Commit by 1 t-0,t-1,t-2,t-3,t-4,t-5
            1.3s mark x 5/7 Commit by 1 t-6,t-7
            1.4s x: 5/7 PrepareCommit began 0 [t-7]
            1.4s append x 5/7 CompleteCommit began 0
            1.5s next wake Some(10.0)
        "#]],
    );
}

#[test]
fn partitions_that_cannot_have_a_marker_are_left_out() {
    check(
        "
        0s stored x 5/7 PrepareAbort t-0,t-1,t-2
        0s restart
        1s marked x t-0=UnsupportedForMessageFormat t-1=UnsupportedVersion t-2=deleted
        1s ok
        ",
        expect![[r#"
            0s mark x 5/7 Abort by 1 t-0,t-1,t-2
            1s append x 5/7 CompleteAbort began 0
        "#]],
    );
}

#[test]
fn a_leader_that_knows_a_newer_epoch_stops_the_transaction() {
    check(
        "
        0s   stored x 5/7 PrepareCommit t-0,t-1,t-2
        0s   stored y 6/7 PrepareCommit t-0
        0s   restart
        1s   marked x t-2=disconnected
        1s   marked x t-0=TransactionCoordinatorFenced
        1s   marked y t-0=InvalidProducerEpoch
        1.1s wake
        1.2s marked x t-1=None
        2s   init x 1000
        2s   end x 5/7 commit
        2s   describe x
        2s   next-wake
        3s   restart
        ",
        expect![[r#"
            0s mark x 5/7 Commit by 1 t-0,t-1,t-2
            0s mark y 6/7 Commit by 1 t-0
            1s refused x t-0 TransactionCoordinatorFenced Stops
            1s refused y t-0 InvalidProducerEpoch Stops
            2s reply 1 ConcurrentTransactions
            2s reply 2 ConcurrentTransactions
            2s x: 5/7 PrepareCommit began 0 [t-0,t-2]
            2s next wake Some(10.0)
            3s mark x 5/7 Commit by 2 t-0,t-1,t-2
            3s mark y 6/7 Commit by 2 t-0
        "#]],
    );
}

#[test]
fn an_answer_without_sense_is_reported_and_tried_again() {
    check(
        "
        0s   stored x 5/7 PrepareCommit t-0,t-1
        0s   restart
        1s   marked x t-0=CorruptMessage t-1=ClusterAuthorizationFailed
        1.1s wake
        1.2s marked x t-0=None t-1=None
        ",
        expect![[r#"
            0s mark x 5/7 Commit by 1 t-0,t-1
            1s refused x t-0 CorruptMessage Retries
            1s refused x t-1 ClusterAuthorizationFailed Retries
            1.1s mark x 5/7 Commit by 1 t-0,t-1
            1.2s append x 5/7 CompleteCommit began 0
        "#]],
    );
}

#[test]
fn answers_that_nobody_waits_for_are_ignored() {
    check(
        "
        0s stored x 5/7 PrepareCommit t-0,t-1
        0s stored y 6/7 Ongoing t-0
        0s restart
        1s marked x t-5=None
        1s marked y t-0=None
        1s marked z t-0=None
        1s marked x t-0=disconnected
        1s marked x t-0=None
        1s describe x
        ",
        expect![[r#"
            0s mark x 5/7 Commit by 1 t-0,t-1
            1s x: 5/7 PrepareCommit began 0 [t-0,t-1]
        "#]],
    );
}

#[test]
fn the_last_record_is_written_until_it_is_there() {
    check(
        "
        0s   stored x 5/7 PrepareCommit t-0
        0s   restart
        1s   marked x t-0=None
        2s   fail NotEnoughReplicas
        2s   init x 1000
        2s   end x 5/7 abort
        2.1s wake
        2.1s wake
        3s   lost RequestTimedOut
        3.1s wake
        3.2s fail MessageTooLarge
        3.3s wake
        3.4s ok
        3.5s next-wake
        ",
        expect![[r#"
            0s mark x 5/7 Commit by 1 t-0
            1s append x 5/7 CompleteCommit began 0
            2s reply 1 ConcurrentTransactions
            2s reply 2 ConcurrentTransactions
            2.1s append x 5/7 CompleteCommit began 0
            3.1s append x 5/7 CompleteCommit began 0
            3.3s append x 5/7 CompleteCommit began 0
            3.5s next wake Some(10.0)
        "#]],
    );
}

#[test]
fn a_last_record_that_the_broker_may_not_write_is_left_to_the_next_coordinator() {
    check(
        "
        0s stored x 5/7 PrepareCommit t-0
        0s restart
        1s marked x t-0=None
        1s fail KafkaStorageError
        2s wake
        2s init x 1000
        2s add x 5/7 t-0
        2s end x 5/7 commit
        2s end x 5/7 abort
        3s restart
        ",
        expect![[r#"
            0s mark x 5/7 Commit by 1 t-0
            1s append x 5/7 CompleteCommit began 0
            2s reply 1 ConcurrentTransactions
            2s reply 2 ConcurrentTransactions
            2s reply 3 ConcurrentTransactions
            2s reply 4 InvalidTxnState
            3s mark x 5/7 Commit by 2 t-0
        "#]],
    );
}

#[test]
fn a_transaction_without_partitions_is_complete_at_once() {
    check(
        "
        0s stored x 5/7 Empty
        0s restart
        1s add x 5/7
        1s ok
        2s end x 5/7 commit
        2s ok
        2s ok
        ",
        expect![[r#"
            1s append x 5/7 Ongoing began 1000
            1s reply 1 None
            2s append x 5/7 PrepareCommit began 1000
            2s reply 2 None
            2s append x 5/7 CompleteCommit began 1000
        "#]],
    );
}

#[test]
fn what_waits_to_be_tried_again_is_counted() {
    check(
        "
        0s   stored x 5/7 PrepareCommit t-0,t-1,t-2
        0s   stored y 6/7 PrepareCommit t-0,t-1
        0s   restart
        0s   queues
        1s   marked x t-0=disconnected
        1s   marked x t-1=leaderless t-2=leaderless
        1s   marked y t-0=leaderless
        1s   queues
        1s   marked y t-1=InvalidProducerEpoch
        1s   queues
        1.1s wake
        1.1s queues
        1.2s marked x t-0=None t-1=None t-2=None
        1.2s fail NotEnoughReplicas
        1.2s queues
        1.3s wake
        1.3s queues
        1.3s fail RequestTimedOut
        1.3s queues
        1.3s resign
        1.3s queues
        ",
        expect![[r#"
            0s mark x 5/7 Commit by 1 t-0,t-1,t-2
            0s mark y 6/7 Commit by 1 t-0,t-1
            0s Queues { unknown_destination: 0, log_append: 0 }
            1s Queues { unknown_destination: 2, log_append: 0 }
            1s refused y t-1 InvalidProducerEpoch Stops
            1s Queues { unknown_destination: 1, log_append: 0 }
            1.1s mark x 5/7 Commit by 1 t-0,t-1,t-2
            1.1s Queues { unknown_destination: 0, log_append: 0 }
            1.2s append x 5/7 CompleteCommit began 0
            1.2s Queues { unknown_destination: 0, log_append: 1 }
            1.3s append x 5/7 CompleteCommit began 0
            1.3s Queues { unknown_destination: 0, log_append: 0 }
            1.3s Queues { unknown_destination: 0, log_append: 1 }
            1.3s Queues { unknown_destination: 0, log_append: 0 }
        "#]],
    );
}
