//! Elections that somebody asks for.

use expect_test::expect;

use super::check;

#[test]
fn a_preferred_election_needs_the_first_replica_in_sync() {
    check(
        "
        brokers 2
        start
        topic t 0:1,2
        brokers 1,2
        prefer t-0
        ",
        expect![[r#"
            > start
              to 2: know brokers 2 []
            > topic t 0:1,2
            create t-0 leader 2 epoch 0 isr 2
              to 2: lead [t-0 new leader 2 epoch 0 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1]
            > brokers 1,2
              to 2: know brokers 1,2 []
              to 1: know brokers 1,2 [t-0 leader 2]
              to 1: lead [t-0 leader 2 epoch 0 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2]
              to 2: know brokers 1,2 [t-0 leader 2]
            > prefer t-0
        "#]],
    );
}

#[test]
fn elections_are_answered_partition_by_partition() {
    check(
        "
        brokers 2
        topic t 0:1,2 1:2,1 2:1,3
        topic u 0:2
        start
        brokers 1,2
        deaf 2
        delete u
        alter 2 t-0 2,1
        elect preferred t-0 t-1 t-2 u-0 v-0
        elect preferred all
        ",
        expect![[r#"
            > start
            create t-0 leader 2 epoch 0 isr 2
            create t-1 leader 2 epoch 0 isr 2
            create u-0 leader 2 epoch 0 isr 2
              to 2: know brokers 2 [t-0 leader -1 offline 1; t-1 leader -1 offline 1; t-2 leader -1 offline 1,3; u-0 leader -1]
              to 2: lead [t-0 new leader 2 epoch 0 isr 2; t-1 new leader 2 epoch 0 isr 2; u-0 new leader 2 epoch 0 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1; t-1 leader 2 offline 1; u-0 leader 2]
            > brokers 1,2
            create t-2 leader 1 epoch 0 isr 1
              to 2: know brokers 1,2 []
              to 1: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader -1 offline 3; u-0 leader 2]
              to 1: lead [t-0 leader 2 epoch 0 isr 2; t-1 leader 2 epoch 0 isr 2; t-2 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1 offline 3]
              to 2: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1 offline 3]
            > deaf 2
            > delete u
            set u-0 leader -1 epoch 1 isr 2
              to 1: know brokers 1,2 [u-0 gone]
              to 2: know brokers 1,2 [u-0 gone]
              to 2: stop [u-0 delete]
            > alter 2 t-0 2,1
            set t-0 leader 2 epoch 0 isr 2,1
              to 1: know brokers 1,2 [t-0 leader 2]
              to 2: know brokers 1,2 [t-0 leader 2]
              answer t-0 leader 2 epoch 0 isr 2,1 version 1
            > elect preferred t-0 t-1 t-2 u-0 v-0
            set t-0 leader 1 epoch 1 isr 2,1
              to 1: lead [t-0 leader 1 epoch 1 isr 2,1]
              to 2: lead [t-0 leader 1 epoch 1 isr 2,1]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
              answer t-0 leader 1; t-1 ELECTION_NOT_NEEDED Leader election not needed for topic partition.; t-2 ELECTION_NOT_NEEDED Leader election not needed for topic partition.; u-0 INVALID_TOPIC_EXCEPTION The topic is being deleted; v-0 UNKNOWN_TOPIC_OR_PARTITION The partition does not exist.
            > elect preferred all
              answer u-0 INVALID_TOPIC_EXCEPTION The topic is being deleted
        "#]],
    );
}

#[test]
fn an_unclean_election_is_held_where_nobody_leads() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:2 2:1,2
        alter 1 t-0 1
        brokers 2
        elect unclean t-0 t-1 t-2
        brokers
        elect unclean t-2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:2 2:1,2
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2
            create t-2 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-2 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2; t-2 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
            > alter 1 t-0 1
            set t-0 leader 1 epoch 0 isr 1
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
              answer t-0 leader 1 epoch 0 isr 1 version 1
            > brokers 2
            set t-2 leader 2 epoch 1 isr 2
              to 2: know brokers 2 []
              to 2: lead [t-2 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-2 leader 2 offline 1]
            set t-0 leader -1 epoch 1 isr 1
              to 2: lead [t-0 leader -1 epoch 1 isr 1]
              to 2: know brokers 2 [t-0 leader -1 offline 1]
            > elect unclean t-0 t-1 t-2
            set t-0 leader 2 epoch 2 isr 2 recovering
              to 2: lead [t-0 leader 2 epoch 2 isr 2 recovering]
              to 2: know brokers 2 [t-0 leader 2 offline 1]
              answer t-0 leader 2; t-1 ELECTION_NOT_NEEDED Leader election not needed for topic partition.; t-2 ELECTION_NOT_NEEDED Leader election not needed for topic partition.
            > brokers
            set t-0 leader -1 epoch 3 isr 2 recovering
            set t-1 leader -1 epoch 1 isr 2
            set t-2 leader -1 epoch 2 isr 2
            > elect unclean t-2
              answer t-2 ELIGIBLE_LEADERS_NOT_AVAILABLE Failed to elect leader for partition t-2 under strategy OfflinePartitionLeaderElectionStrategy(true)
        "#]],
    );
}

#[test]
fn leaderships_go_home_where_too_many_are_elsewhere() {
    check(
        "
        brokers 2,3
        topic t 0:1,2 1:1,3
        topic u 0:2,3
        start
        brokers 1,2,3
        alter 2 t-0 2,1
        rebalance 100
        rebalance 99
        ",
        expect![[r#"
            > start
            create t-0 leader 2 epoch 0 isr 2
            create t-1 leader 3 epoch 0 isr 3
            create u-0 leader 2 epoch 0 isr 2,3
              to 2: know brokers 2,3 [t-0 leader -1 offline 1; t-1 leader -1 offline 1; u-0 leader -1]
              to 3: know brokers 2,3 [t-0 leader -1 offline 1; t-1 leader -1 offline 1; u-0 leader -1]
              to 2: lead [t-0 new leader 2 epoch 0 isr 2; u-0 new leader 2 epoch 0 isr 2,3]
              to 3: lead [t-1 new leader 3 epoch 0 isr 3; u-0 new leader 2 epoch 0 isr 2,3]
              to 2: know brokers 2,3 [t-0 leader 2 offline 1; t-1 leader 3 offline 1; u-0 leader 2]
              to 3: know brokers 2,3 [t-0 leader 2 offline 1; t-1 leader 3 offline 1; u-0 leader 2]
            > brokers 1,2,3
              to 2: know brokers 1,2,3 []
              to 3: know brokers 1,2,3 []
              to 1: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3; u-0 leader 2]
              to 1: lead [t-0 leader 2 epoch 0 isr 2; t-1 leader 3 epoch 0 isr 3]
              to 1: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3]
              to 2: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3]
              to 3: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3]
            > alter 2 t-0 2,1
            set t-0 leader 2 epoch 0 isr 2,1
              to 1: know brokers 1,2,3 [t-0 leader 2]
              to 2: know brokers 1,2,3 [t-0 leader 2]
              to 3: know brokers 1,2,3 [t-0 leader 2]
              answer t-0 leader 2 epoch 0 isr 2,1 version 1
            > rebalance 100
            > rebalance 99
            set t-0 leader 1 epoch 1 isr 2,1
              to 1: lead [t-0 leader 1 epoch 1 isr 2,1]
              to 2: lead [t-0 leader 1 epoch 1 isr 2,1]
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
        "#]],
    );
}

/// What somebody has written over a partition's state is no reason to make a new one, nor to leave others alone.
#[test]
fn a_state_that_cannot_be_read_stays_and_holds_up_nobody() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:1,2
        spoil t-0
        alter 1 t-0 1 version=0
        brokers 2
        topic u 0:2
        mend t-0
        spoil t-1
        alter 2 t-1 2,1 version=1
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:1,2
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 1]
            > spoil t-0
            > alter 1 t-0 1 version=0
            read t again
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
              answer t-0 UNKNOWN_SERVER_ERROR
            > brokers 2
            set t-1 leader 2 epoch 1 isr 2
              to 2: know brokers 2 []
              to 2: lead [t-0 leader 1 epoch 0 isr 1,2; t-1 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 1 offline 1; t-1 leader 2 offline 1]
            > topic u 0:2
            create u-0 leader 2 epoch 0 isr 2
              to 2: lead [u-0 new leader 2 epoch 0 isr 2]
              to 2: know brokers 2 [u-0 leader 2]
            > mend t-0
            set t-0 leader 2 epoch 1 isr 2
              to 2: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1]
            > spoil t-1
            > alter 2 t-1 2,1 version=1
              answer t-1 INELIGIBLE_REPLICA
            > delete t
            set t-0 leader -1 epoch 2 isr 2
            read t again
              to 2: know brokers 2 [t-0 gone; t-1 gone]
              to 2: stop [t-0 delete; t-1 delete]
        "#]],
    );
}

#[test]
fn a_state_that_may_not_be_written_stays_and_holds_up_nobody() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:1,2
        forbid t-0
        alter 1 t-0 1
        brokers 2
        topic u 0:2
        bounce 2
        allow t-0
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:1,2
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 1]
            > forbid t-0
            > alter 1 t-0 1
            refused t-0
              answer t-0 UNKNOWN_SERVER_ERROR
            > brokers 2
            refused t-0
            set t-1 leader 2 epoch 1 isr 2
              to 2: know brokers 2 []
              to 2: lead [t-1 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-1 leader 2 offline 1]
              to 2: lead [t-0 leader 1 epoch 0 isr 1,2]
              to 2: know brokers 2 [t-0 leader 1 offline 1]
            > topic u 0:2
            create u-0 leader 2 epoch 0 isr 2
              to 2: lead [u-0 new leader 2 epoch 0 isr 2]
              to 2: know brokers 2 [u-0 leader 2]
            > bounce 2
            set t-1 leader 2 epoch 2 isr 2
            set u-0 leader 2 epoch 1 isr 2
              to 2: know brokers 2 [t-0 leader 1 offline 1; t-1 leader 2 offline 1; u-0 leader 2]
              to 2: lead [t-0 leader 1 epoch 0 isr 1,2; t-1 leader 2 epoch 2 isr 2; u-0 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 1 offline 1; t-1 leader 2 offline 1; u-0 leader 2]
            > allow t-0
            set t-0 leader 2 epoch 1 isr 2
              to 2: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1]
            > delete t
            set t-0 leader -1 epoch 2 isr 2
            set t-1 leader -1 epoch 3 isr 2
              to 2: know brokers 2 [t-0 gone; t-1 gone]
              to 2: stop [t-0 delete; t-1 delete]
        "#]],
    );
}
