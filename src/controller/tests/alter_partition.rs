//! What leaders ask for, and what they are told.

use expect_test::expect;

use super::check;

#[test]
fn an_isr_is_what_its_leader_says() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        alter 1 t-0 1
        alter 1 t-0 1,2 id=116
        alter 1 t-0 1,2 version=0
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > alter 1 t-0 1
            set t-0 leader 1 epoch 0 isr 1
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
              answer t-0 leader 1 epoch 0 isr 1 version 1
            > alter 1 t-0 1,2 id=116
            set t-0 leader 1 epoch 0 isr 1,2
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
              answer id 116-0 leader 1 epoch 0 isr 1,2 version 2
            > alter 1 t-0 1,2 version=0
              answer t-0 leader 1 epoch 0 isr 1,2 version 2
        "#]],
    );
}

#[test]
fn an_isr_that_is_out_of_date_or_cannot_be_is_refused() {
    check(
        "
        brokers 1,2,3
        start
        topic t 0:1,2
        alter 1 t-0 1 registered=3
        alter 7 t-0 1
        alter 1 t-0 1 id=5
        alter 1 u-0 1
        alter 1 t-1 1
        alter 1 t-0 1 epoch=1
        alter 1 t-0 1 version=1
        alter 1 t-0 1
        alter 1 t-0 1,2 version=0
        alter 1 t-0 1,2 recovering=1
        alter 1 t-0 1 recovering=1
        alter 2 t-0 1,2
        alter 1 t-0 1,3
        alter 1 t-0 1,2,2
        alter 1 t-0 2
        alter 1 t-0 1
        alter 1 t-0 1,2 seen=5
        brokers 1
        alter 1 t-0 1,2
        bounce 1
        alter 1 t-0 1 epoch=0
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3 []
              to 2: know brokers 1,2,3 []
              to 3: know brokers 1,2,3 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
            > alter 1 t-0 1 registered=3
              answer STALE_BROKER_EPOCH
            > alter 7 t-0 1
              answer STALE_BROKER_EPOCH
            > alter 1 t-0 1 id=5
              answer id 5-0 UNKNOWN_TOPIC_ID
            > alter 1 u-0 1
              answer u-0 UNKNOWN_TOPIC_OR_PARTITION
            > alter 1 t-1 1
              answer t-1 UNKNOWN_TOPIC_OR_PARTITION
            > alter 1 t-0 1 epoch=1
              answer t-0 NOT_CONTROLLER
            > alter 1 t-0 1 version=1
              answer t-0 NOT_CONTROLLER
            > alter 1 t-0 1
            set t-0 leader 1 epoch 0 isr 1
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
              answer t-0 leader 1 epoch 0 isr 1 version 1
            > alter 1 t-0 1,2 version=0
              answer t-0 INVALID_UPDATE_VERSION
            > alter 1 t-0 1,2 recovering=1
              answer t-0 INVALID_REQUEST
            > alter 1 t-0 1 recovering=1
              answer t-0 INVALID_REQUEST
            > alter 2 t-0 1,2
              answer t-0 INVALID_REQUEST
            > alter 1 t-0 1,3
              answer t-0 INVALID_REQUEST
            > alter 1 t-0 1,2,2
              answer t-0 INVALID_REQUEST
            > alter 1 t-0 2
              answer t-0 INVALID_REQUEST
            > alter 1 t-0 1
              answer t-0 leader 1 epoch 0 isr 1 version 1
            > alter 1 t-0 1,2 seen=5
              answer t-0 INELIGIBLE_REPLICA
            > brokers 1
              to 1: know brokers 1 []
              to 1: lead [t-0 leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1 offline 2]
            > alter 1 t-0 1,2
              answer t-0 INELIGIBLE_REPLICA
            > bounce 1
            set t-0 leader 1 epoch 1 isr 1
              to 1: know brokers 1 [t-0 leader 1 offline 2]
              to 1: lead [t-0 leader 1 epoch 1 isr 1]
              to 1: know brokers 1 [t-0 leader 1 offline 2]
            > alter 1 t-0 1 epoch=0
              answer t-0 FENCED_LEADER_EPOCH
        "#]],
    );
}

#[test]
fn an_isr_is_answered_once_it_is_written() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        conflict t-0
        alter 1 t-0 1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > conflict t-0
            > alter 1 t-0 1
            read t again
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
              answer t-0 INVALID_UPDATE_VERSION
        "#]],
    );
}

#[test]
fn a_leader_that_is_about_to_stop_hands_over_to_who_comes_in() {
    check(
        "
        brokers 1,2,3
        start
        topic t 0:1,2,3
        alter 1 t-0 1,3
        shutdown 3
        shutdown 1
        alter 1 t-0 1,2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3 []
              to 2: know brokers 1,2,3 []
              to 3: know brokers 1,2,3 []
            > topic t 0:1,2,3
            create t-0 leader 1 epoch 0 isr 1,2,3
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2,3]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2,3]
              to 3: lead [t-0 new leader 1 epoch 0 isr 1,2,3]
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
            > alter 1 t-0 1,3
            set t-0 leader 1 epoch 0 isr 1,3
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
              answer t-0 leader 1 epoch 0 isr 1,3 version 1
            > shutdown 3
            set t-0 leader 1 epoch 1 isr 1
              to 1: lead [t-0 leader 1 epoch 1 isr 1]
              to 2: lead [t-0 leader 1 epoch 1 isr 1]
              to 1: know brokers 1,2,3 [t-0 leader 1 offline 3]
              to 2: know brokers 1,2,3 [t-0 leader 1 offline 3]
              to 3: know brokers 1,2,3 [t-0 leader 1 offline 3]
              to 3: stop [t-0 epoch 1]
              answer shutdown, leads []
            > shutdown 1
              answer shutdown, leads [t-0]
            > alter 1 t-0 1,2
            set t-0 leader 1 epoch 1 isr 1,2
              to 1: know brokers 1,2,3 [t-0 leader 1 offline 1,3]
              to 2: know brokers 1,2,3 [t-0 leader 1 offline 1,3]
              to 3: know brokers 1,2,3 [t-0 leader 1 offline 1,3]
              answer t-0 leader 1 epoch 1 isr 1,2 version 3
            set t-0 leader 2 epoch 2 isr 2
              to 1: lead [t-0 leader 2 epoch 2 isr 2]
              to 2: lead [t-0 leader 2 epoch 2 isr 2]
              to 3: lead [t-0 leader 2 epoch 2 isr 2]
              to 1: know brokers 1,2,3 [t-0 leader 2 offline 1,3]
              to 2: know brokers 1,2,3 [t-0 leader 2 offline 1,3]
              to 3: know brokers 1,2,3 [t-0 leader 2 offline 1,3]
        "#]],
    );
}

#[test]
fn a_replica_of_a_failed_directory_does_not_come_in() {
    check(
        "
        brokers 1,2,3
        start
        topic t 0:1,2,3
        storage-error 3 t-0
        alter 1 t-0 1,2,3
        storage-ok 3 t-0
        alter 1 t-0 1,2,3
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3 []
              to 2: know brokers 1,2,3 []
              to 3: know brokers 1,2,3 []
            > topic t 0:1,2,3
            create t-0 leader 1 epoch 0 isr 1,2,3
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2,3]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2,3]
              to 3: lead [t-0 new leader 1 epoch 0 isr 1,2,3]
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
            > storage-error 3 t-0
            set t-0 leader 1 epoch 1 isr 1,2
              to 1: lead [t-0 leader 1 epoch 1 isr 1,2]
              to 2: lead [t-0 leader 1 epoch 1 isr 1,2]
              to 3: lead [t-0 leader 1 epoch 1 isr 1,2]
              to 1: know brokers 1,2,3 [t-0 leader 1 offline 3]
              to 2: know brokers 1,2,3 [t-0 leader 1 offline 3]
              to 3: know brokers 1,2,3 [t-0 leader 1 offline 3]
            > alter 1 t-0 1,2,3
              answer t-0 INELIGIBLE_REPLICA
            > storage-ok 3 t-0
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
            > alter 1 t-0 1,2,3
            set t-0 leader 1 epoch 1 isr 1,2,3
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
              answer t-0 leader 1 epoch 1 isr 1,2,3 version 2
        "#]],
    );
}

#[test]
fn a_leader_of_old_versions_is_not_refused_a_member_that_is_about_to_stop() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        shutdown 2
        alter 1 t-0 1,2
        alter 1 t-0 1,2 asked_in=1
        brokers 1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > shutdown 2
            set t-0 leader 1 epoch 1 isr 1
              to 1: lead [t-0 leader 1 epoch 1 isr 1]
              to 1: know brokers 1,2 [t-0 leader 1 offline 2]
              to 2: know brokers 1,2 [t-0 leader 1 offline 2]
              to 2: stop [t-0 epoch 1]
              answer shutdown, leads []
            > alter 1 t-0 1,2
              answer t-0 INELIGIBLE_REPLICA
            > alter 1 t-0 1,2 asked_in=1
            set t-0 leader 1 epoch 1 isr 1,2
              to 1: know brokers 1,2 [t-0 leader 1 offline 2]
              to 2: know brokers 1,2 [t-0 leader 1 offline 2]
              answer t-0 leader 1 epoch 1 isr 1,2 version 2
            > brokers 1
            set t-0 leader 1 epoch 2 isr 1
              to 1: know brokers 1 []
              to 1: lead [t-0 leader 1 epoch 2 isr 1]
              to 1: know brokers 1 [t-0 leader 1 offline 2]
        "#]],
    );
}
