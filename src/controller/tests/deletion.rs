//! Topics that are deleted, replica by replica.

use expect_test::expect;

use super::{check, options, run};
use crate::controller::Options;

#[test]
fn a_deleted_topic_goes_replica_by_replica() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:2,1
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:2,1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2,1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2]
            > delete t
            set t-0 leader -1 epoch 1 isr 2
            set t-1 leader -1 epoch 1 isr 1
              to 1: know brokers 1,2 [t-0 gone; t-1 gone]
              to 2: know brokers 1,2 [t-0 gone; t-1 gone]
              to 1: stop [t-0 delete; t-1 delete]
              to 2: stop [t-0 delete; t-1 delete]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn deletion_waits_for_dead_replicas() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        brokers 1
        delete t
        brokers 1,2
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
            > brokers 1
            set t-0 leader 1 epoch 1 isr 1
              to 1: know brokers 1 []
              to 1: lead [t-0 leader 1 epoch 1 isr 1]
              to 1: know brokers 1 [t-0 leader 1 offline 2]
            > delete t
            set t-0 leader -1 epoch 2 isr 1
              to 1: know brokers 1 [t-0 gone]
              to 1: stop [t-0 delete]
            > brokers 1,2
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 [t-0 gone]
              to 1: know brokers 1,2 [t-0 gone]
              to 2: know brokers 1,2 [t-0 gone]
              to 2: stop [t-0 delete]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn deletion_survives_a_broker_that_dies_of_it() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        deaf 2
        delete t
        brokers 1
        hearing
        brokers 1,2
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
            > deaf 2
            > delete t
            set t-0 leader -1 epoch 1 isr 2
              to 1: know brokers 1,2 [t-0 gone]
              to 2: know brokers 1,2 [t-0 gone]
              to 1: stop [t-0 delete]
              to 2: stop [t-0 delete]
            > brokers 1
              to 1: know brokers 1 []
            > hearing
            > brokers 1,2
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 [t-0 gone]
              to 1: know brokers 1,2 [t-0 gone]
              to 2: know brokers 1,2 [t-0 gone]
              to 2: stop [t-0 delete]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn a_failed_deletion_waits_for_a_broker_to_start() {
    check(
        "
        brokers 1
        start
        topic t 0:1
        stop-error
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1]
            > stop-error
            > delete t
            set t-0 leader -1 epoch 1 isr 1
              to 1: know brokers 1 [t-0 gone]
              to 1: stop [t-0 delete]
        "#]],
    );
}

#[test]
fn a_topic_that_was_never_led_is_deleted_at_once() {
    check(
        "
        brokers 1
        start
        topic t 0:7
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:7
              to 1: know brokers 1 [t-0 leader -1 offline 7]
            > delete t
              to 1: know brokers 1 [t-0 gone]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn a_partition_without_a_state_waits_for_its_dead_replicas_as_others_do() {
    check(
        "
        brokers 1
        start
        topic t 0:1 1:7
        delete t
        brokers 1,7
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:1 1:7
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1; t-1 leader -1 offline 7]
            > delete t
            set t-0 leader -1 epoch 1 isr 1
              to 1: know brokers 1 [t-0 gone; t-1 gone]
              to 1: stop [t-0 delete]
            > brokers 1,7
              to 1: know brokers 1,7 []
              to 7: know brokers 1,7 [t-0 gone; t-1 gone]
              to 1: know brokers 1,7 [t-0 gone; t-1 gone]
              to 7: know brokers 1,7 [t-0 gone; t-1 gone]
              to 7: stop [t-1 delete]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn partitions_added_to_a_topic_being_deleted_are_taken_out() {
    check(
        "
        brokers 1
        start
        topic t 0:1
        deaf 1
        delete t
        topic t 0:1 1:1
        hearing
        answer 1 t-0
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1]
            > deaf 1
            > delete t
            set t-0 leader -1 epoch 1 isr 1
              to 1: know brokers 1 [t-0 gone]
              to 1: stop [t-0 delete]
            > topic t 0:1 1:1
            set t id 116 1 partitions
            > hearing
            > answer 1 t-0
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn marks_of_unknown_topics_are_removed() {
    check(
        "
        brokers 1
        start
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > delete t
            unmark t
        "#]],
    );
    let world = run(
        "
        brokers 1
        topic t 0:1
        start
        delete t
        ",
        Options { delete_topics: false, ..options() },
    );
    assert!(world.deletions.is_empty() && world.topics.contains_key("t"));
}
