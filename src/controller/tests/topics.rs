//! Topics that come, change and vanish.

use common::topic::Uuid;
use expect_test::expect;

use super::{check, options, run};

#[test]
fn a_new_topic_is_led_by_its_first_live_replicas() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:2,3 2:3,1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:2,3 2:3,1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2
            create t-2 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-2 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2 offline 3; t-2 leader 1 offline 3]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2 offline 3; t-2 leader 1 offline 3]
        "#]],
    );
}

#[test]
fn a_topic_without_an_id_gets_one_first() {
    check(
        "
        brokers 1
        start
        topic t noid 0:1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t noid 0:1
            set t id 101 1 partitions
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1]
        "#]],
    );
}

#[test]
fn partitions_of_unknown_brokers_are_shown_without_a_leader() {
    check(
        "
        brokers 1
        start
        topic t 0:7
        brokers 1,7
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:7
              to 1: know brokers 1 [t-0 leader -1 offline 7]
            > brokers 1,7
            create t-0 leader 7 epoch 0 isr 7
              to 1: know brokers 1,7 []
              to 7: know brokers 1,7 [t-0 leader -1]
              to 7: lead [t-0 new leader 7 epoch 0 isr 7]
              to 1: know brokers 1,7 [t-0 leader 7]
              to 7: know brokers 1,7 [t-0 leader 7]
        "#]],
    );
}

#[test]
fn added_partitions_leave_the_others_alone() {
    check(
        "
        brokers 1
        start
        topic t 0:1
        topic t 0:1 1:1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-0 leader 1]
            > topic t 0:1 1:1
            create t-1 leader 1 epoch 0 isr 1
              to 1: lead [t-1 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1 [t-1 leader 1]
        "#]],
    );
}

#[test]
fn a_topic_that_vanishes_is_forgotten() {
    let world = run(
        "
        brokers 1
        start
        topic t 0:1
        gone t
        ",
        options(),
    );
    assert_eq!(world.controller.counts().topics, 0);
    assert_eq!(world.controller.topic_name(Uuid(u128::from(b't'))), None);
}

#[test]
fn a_conflict_is_read_again_and_decided_again() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        conflict t-0
        brokers 2
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
            > brokers 2
              to 2: know brokers 2 []
            read t again
            set t-0 leader 2 epoch 1 isr 2
              to 2: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1]
        "#]],
    );
}
