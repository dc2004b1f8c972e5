//! Moves of partitions.

use expect_test::expect;

use super::{World, check, ids, options, run};

#[test]
fn a_move_ends_when_all_targets_are_in_sync() {
    check(
        "
        brokers 1,2,3,4
        start
        topic t 0:1,2
        move t-0:3,4
        alter 1 t-0 1,2,3
        alter 1 t-0 1,2,3,4
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3,4 []
              to 2: know brokers 1,2,3,4 []
              to 3: know brokers 1,2,3,4 []
              to 4: know brokers 1,2,3,4 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
            > move t-0:3,4
            set t id 116 1 partitions 0:3,4,1,2+3,4-1,2
              answer t-0 done
            set t-0 leader 1 epoch 1 isr 1,2
              to 1: lead [t-0 leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 2: lead [t-0 leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 3: lead [t-0 new leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 4: lead [t-0 new leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
            > alter 1 t-0 1,2,3
            set t-0 leader 1 epoch 1 isr 1,2,3
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
              answer t-0 leader 1 epoch 1 isr 1,2,3 version 2
            > alter 1 t-0 1,2,3,4
            set t-0 leader 1 epoch 1 isr 1,2,3,4
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
              answer t-0 leader 1 epoch 1 isr 1,2,3,4 version 3
            set t-0 leader 3 epoch 2 isr 3,4
              to 3: lead [t-0 leader 3 epoch 2 isr 3,4]
              to 4: lead [t-0 leader 3 epoch 2 isr 3,4]
              to 1: know brokers 1,2,3,4 [t-0 leader 3]
              to 2: know brokers 1,2,3,4 [t-0 leader 3]
              to 3: know brokers 1,2,3,4 [t-0 leader 3]
              to 4: know brokers 1,2,3,4 [t-0 leader 3]
              to 1: stop [t-0 delete epoch 2]
              to 2: stop [t-0 delete epoch 2]
            set t id 116 1 partitions
        "#]],
    );
}

#[test]
fn a_move_that_only_drops_or_reorders_ends_at_once() {
    check(
        "
        brokers 1,2,3
        start
        topic t 0:1,2,3
        move t-0:2,3
        move t-0:3,2
        move t-0:3,2
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
            > move t-0:2,3
            set t id 116 1 partitions 0:2,3,1+-1
              answer t-0 done
            set t-0 leader 2 epoch 1 isr 2,3
              to 2: lead [t-0 leader 2 epoch 1 isr 2,3]
              to 3: lead [t-0 leader 2 epoch 1 isr 2,3]
              to 1: know brokers 1,2,3 [t-0 leader 2]
              to 2: know brokers 1,2,3 [t-0 leader 2]
              to 3: know brokers 1,2,3 [t-0 leader 2]
              to 1: stop [t-0 delete epoch 1]
            set t id 116 1 partitions
            > move t-0:3,2
            set t id 116 1 partitions
              answer t-0 done
            set t-0 leader 2 epoch 2 isr 2,3
              to 2: lead [t-0 leader 2 epoch 2 isr 2,3]
              to 3: lead [t-0 leader 2 epoch 2 isr 2,3]
              to 1: know brokers 1,2,3 [t-0 leader 2]
              to 2: know brokers 1,2,3 [t-0 leader 2]
              to 3: know brokers 1,2,3 [t-0 leader 2]
            > move t-0:3,2
              answer t-0 done
        "#]],
    );
}

#[test]
fn a_move_can_be_ended_or_replaced() {
    check(
        "
        brokers 1,2,3,4
        start
        topic t 0:1,2
        move t-0:3,4
        alter 1 t-0 1,2,3
        move t-0:2,4
        move t-0:back
        move t-0:back
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3,4 []
              to 2: know brokers 1,2,3,4 []
              to 3: know brokers 1,2,3,4 []
              to 4: know brokers 1,2,3,4 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
            > move t-0:3,4
            set t id 116 1 partitions 0:3,4,1,2+3,4-1,2
              answer t-0 done
            set t-0 leader 1 epoch 1 isr 1,2
              to 1: lead [t-0 leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 2: lead [t-0 leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 3: lead [t-0 new leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 4: lead [t-0 new leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
            > alter 1 t-0 1,2,3
            set t-0 leader 1 epoch 1 isr 1,2,3
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
              answer t-0 leader 1 epoch 1 isr 1,2,3 version 2
            > move t-0:2,4
            set t id 116 1 partitions 0:2,4,1+4-1
              answer t-0 done
            set t-0 leader 1 epoch 2 isr 1,2
              to 1: lead [t-0 leader 1 epoch 2 isr 1,2 0:2,4,1+4-1]
              to 2: lead [t-0 leader 1 epoch 2 isr 1,2 0:2,4,1+4-1]
              to 4: lead [t-0 new leader 1 epoch 2 isr 1,2 0:2,4,1+4-1]
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: stop [t-0 delete epoch 2]
            > move t-0:back
            set t id 116 1 partitions
              answer t-0 done
            set t-0 leader 1 epoch 3 isr 1,2
              to 1: lead [t-0 leader 1 epoch 3 isr 1,2]
              to 2: lead [t-0 leader 1 epoch 3 isr 1,2]
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: stop [t-0 delete epoch 3]
            > move t-0:back
              answer t-0 NO_REASSIGNMENT_IN_PROGRESS No partition reassignment is in progress.
        "#]],
    );
}

#[test]
fn orders_that_cannot_be_followed_are_refused() {
    check(
        "
        brokers 1,2,3
        start
        topic t 0:1,2
        topic u 0:1
        delete u
        move t-0: t-1:1 u-0:2
        move t-0:2,2
        move t-0:-2
        move t-0:4,1
        move t-0:4,5
        move t-1:back
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
            > topic u 0:1
            create u-0 leader 1 epoch 0 isr 1
              to 1: lead [u-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1,2,3 [u-0 leader 1]
              to 2: know brokers 1,2,3 [u-0 leader 1]
              to 3: know brokers 1,2,3 [u-0 leader 1]
            > delete u
            set u-0 leader -1 epoch 1 isr 1
              to 1: know brokers 1,2,3 [u-0 gone]
              to 2: know brokers 1,2,3 [u-0 gone]
              to 3: know brokers 1,2,3 [u-0 gone]
              to 1: stop [u-0 delete]
            delete u
            deleted u
            > move t-0: t-1:1 u-0:2
              answer t-0 INVALID_REPLICA_ASSIGNMENT Empty replica list specified in partition reassignment.; t-1 UNKNOWN_TOPIC_OR_PARTITION The partition does not exist.; u-0 UNKNOWN_TOPIC_OR_PARTITION The partition does not exist.
            > move t-0:2,2
              answer t-0 INVALID_REPLICA_ASSIGNMENT Duplicate replica ids in partition reassignment replica list: ArrayBuffer(2, 2)
            > move t-0:-2
              answer t-0 INVALID_REPLICA_ASSIGNMENT Invalid broker id in replica list: ArrayBuffer(-2)
            > move t-0:4,1
              answer t-0 INVALID_REPLICA_ASSIGNMENT Replica assignment has brokers that are not alive. Replica list: ArrayBuffer(4), live broker list: Set(1, 2, 3)
            > move t-0:4,5
              answer t-0 INVALID_REPLICA_ASSIGNMENT Replica assignment has brokers that are not alive. Replica list: ArrayBuffer(4, 5), live broker list: Set(1, 2, 3)
            > move t-1:back
              answer t-1 NO_REASSIGNMENT_IN_PROGRESS No partition reassignment is in progress.
        "#]],
    );
}

#[test]
fn a_move_is_not_ended_where_that_would_lose_all_that_is_in_sync() {
    check(
        "
        brokers 1,2,3
        start
        topic t 0:1
        move t-0:2,3
        alter 1 t-0 1,2
        brokers 2,3
        move t-0:back
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3 []
              to 2: know brokers 1,2,3 []
              to 3: know brokers 1,2,3 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
            > move t-0:2,3
            set t id 116 1 partitions 0:2,3,1+2,3-1
              answer t-0 done
            set t-0 leader 1 epoch 1 isr 1
              to 1: lead [t-0 leader 1 epoch 1 isr 1 0:2,3,1+2,3-1]
              to 2: lead [t-0 new leader 1 epoch 1 isr 1 0:2,3,1+2,3-1]
              to 3: lead [t-0 new leader 1 epoch 1 isr 1 0:2,3,1+2,3-1]
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
            > alter 1 t-0 1,2
            set t-0 leader 1 epoch 1 isr 1,2
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
              answer t-0 leader 1 epoch 1 isr 1,2 version 2
            > brokers 2,3
            set t-0 leader 2 epoch 2 isr 2
              to 2: know brokers 2,3 []
              to 3: know brokers 2,3 []
              to 2: lead [t-0 leader 2 epoch 2 isr 2 0:2,3,1+2,3-1]
              to 3: lead [t-0 new leader 2 epoch 2 isr 2 0:2,3,1+2,3-1]
              to 2: know brokers 2,3 [t-0 leader 2 offline 1]
              to 3: know brokers 2,3 [t-0 leader 2 offline 1]
            > move t-0:back
              answer t-0 INVALID_REPLICA_ASSIGNMENT Unable to revert partition assignment for t:0 because it would require an unclean leader election.
        "#]],
    );
}

#[test]
fn old_tools_order_moves_in_a_znode() {
    check(
        "
        brokers 1,2,3
        start
        topic t 0:1 1:1 2:1
        orders t-0:2 t-1:2 t-2:1 u-0:1
        alter 1 t-0 1,2
        move t-1:3
        alter 1 t-1 1,3
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3 []
              to 2: know brokers 1,2,3 []
              to 3: know brokers 1,2,3 []
            > topic t 0:1 1:1 2:1
            create t-0 leader 1 epoch 0 isr 1
            create t-1 leader 1 epoch 0 isr 1
            create t-2 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1; t-1 new leader 1 epoch 0 isr 1; t-2 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1,2,3 [t-0 leader 1; t-1 leader 1; t-2 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1; t-1 leader 1; t-2 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1; t-1 leader 1; t-2 leader 1]
            > orders t-0:2 t-1:2 t-2:1 u-0:1
            set orders t-0, t-1
            set t id 116 3 partitions 0:2,1+2-1 1:2,1+2-1
              no order u-0: UNKNOWN_TOPIC_OR_PARTITION The partition does not exist.
            set t-0 leader 1 epoch 1 isr 1
            set t-1 leader 1 epoch 1 isr 1
              to 1: lead [t-0 leader 1 epoch 1 isr 1 0:2,1+2-1; t-1 leader 1 epoch 1 isr 1 1:2,1+2-1]
              to 2: lead [t-0 new leader 1 epoch 1 isr 1 0:2,1+2-1; t-1 new leader 1 epoch 1 isr 1 1:2,1+2-1]
              to 1: know brokers 1,2,3 [t-0 leader 1; t-1 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1; t-1 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1; t-1 leader 1]
            > alter 1 t-0 1,2
            set t-0 leader 1 epoch 1 isr 1,2
              to 1: know brokers 1,2,3 [t-0 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1]
              answer t-0 leader 1 epoch 1 isr 1,2 version 2
            set t-0 leader 2 epoch 2 isr 2
              to 2: lead [t-0 leader 2 epoch 2 isr 2]
              to 1: know brokers 1,2,3 [t-0 leader 2]
              to 2: know brokers 1,2,3 [t-0 leader 2]
              to 3: know brokers 1,2,3 [t-0 leader 2]
              to 1: stop [t-0 delete epoch 2]
            set t id 116 3 partitions 1:2,1+2-1
            set orders t-1
            > move t-1:3
            delete orders
            set t id 116 3 partitions 1:3,1+3-1
              answer t-1 done
            set t-1 leader 1 epoch 2 isr 1
              to 1: lead [t-1 leader 1 epoch 2 isr 1 1:3,1+3-1]
              to 3: lead [t-1 new leader 1 epoch 2 isr 1 1:3,1+3-1]
              to 1: know brokers 1,2,3 [t-1 leader 1]
              to 2: know brokers 1,2,3 [t-1 leader 1]
              to 3: know brokers 1,2,3 [t-1 leader 1]
              to 2: stop [t-1 delete epoch 2]
            > alter 1 t-1 1,3
            set t-1 leader 1 epoch 2 isr 1,3
              to 1: know brokers 1,2,3 [t-1 leader 1]
              to 2: know brokers 1,2,3 [t-1 leader 1]
              to 3: know brokers 1,2,3 [t-1 leader 1]
              answer t-1 leader 1 epoch 2 isr 1,3 version 3
            set t-1 leader 3 epoch 3 isr 3
              to 3: lead [t-1 leader 3 epoch 3 isr 3]
              to 1: know brokers 1,2,3 [t-1 leader 3]
              to 2: know brokers 1,2,3 [t-1 leader 3]
              to 3: know brokers 1,2,3 [t-1 leader 3]
              to 1: stop [t-1 delete epoch 3]
            set t id 116 3 partitions
        "#]],
    );
}

#[test]
fn a_deleted_topic_does_not_move() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1
        orders t-0:2
        delete t
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > orders t-0:2
            set t id 116 1 partitions 0:2,1+2-1
            set t-0 leader 1 epoch 1 isr 1
              to 1: lead [t-0 leader 1 epoch 1 isr 1 0:2,1+2-1]
              to 2: lead [t-0 new leader 1 epoch 1 isr 1 0:2,1+2-1]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > delete t
            delete orders
            set t-0 leader -1 epoch 2 isr 1
              to 1: know brokers 1,2 [t-0 gone]
              to 2: know brokers 1,2 [t-0 gone]
              to 1: stop [t-0 delete]
              to 2: stop [t-0 delete]
            delete t
            deleted t
        "#]],
    );
}

#[test]
fn an_order_is_written_again_where_the_topic_was_changed_meanwhile() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1
        conflict topic t
        move t-0:2
        conflict topic t
        alter 1 t-0 1,2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > conflict topic t
            > move t-0:2
            read t again
            set t id 116 1 partitions 0:2,1+2-1
              answer t-0 done
            set t-0 leader 1 epoch 1 isr 1
              to 1: lead [t-0 leader 1 epoch 1 isr 1 0:2,1+2-1]
              to 2: lead [t-0 new leader 1 epoch 1 isr 1 0:2,1+2-1]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > conflict topic t
            > alter 1 t-0 1,2
            set t-0 leader 1 epoch 1 isr 1,2
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
              answer t-0 leader 1 epoch 1 isr 1,2 version 2
            set t-0 leader 2 epoch 2 isr 2
              to 2: lead [t-0 leader 2 epoch 2 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2]
              to 2: know brokers 1,2 [t-0 leader 2]
              to 1: stop [t-0 delete epoch 2]
            read t again
            set t id 116 1 partitions
        "#]],
    );
}

#[test]
fn a_dead_target_is_waited_for_and_a_dead_leader_replaced() {
    check(
        "
        brokers 1,2,3,4
        start
        topic t 0:1,2
        move t-0:3,4
        brokers 2,3
        alter 2 t-0 2,3
        brokers 2,3,4
        alter 2 t-0 2,3,4
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3,4 []
              to 2: know brokers 1,2,3,4 []
              to 3: know brokers 1,2,3,4 []
              to 4: know brokers 1,2,3,4 []
            > topic t 0:1,2
            create t-0 leader 1 epoch 0 isr 1,2
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
            > move t-0:3,4
            set t id 116 1 partitions 0:3,4,1,2+3,4-1,2
              answer t-0 done
            set t-0 leader 1 epoch 1 isr 1,2
              to 1: lead [t-0 leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 2: lead [t-0 leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 3: lead [t-0 new leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 4: lead [t-0 new leader 1 epoch 1 isr 1,2 0:3,4,1,2+3,4-1,2]
              to 1: know brokers 1,2,3,4 [t-0 leader 1]
              to 2: know brokers 1,2,3,4 [t-0 leader 1]
              to 3: know brokers 1,2,3,4 [t-0 leader 1]
              to 4: know brokers 1,2,3,4 [t-0 leader 1]
            > brokers 2,3
            set t-0 leader 2 epoch 2 isr 2
              to 2: know brokers 2,3 []
              to 3: know brokers 2,3 []
              to 2: lead [t-0 leader 2 epoch 2 isr 2 0:3,4,1,2+3,4-1,2]
              to 3: lead [t-0 new leader 2 epoch 2 isr 2 0:3,4,1,2+3,4-1,2]
              to 2: know brokers 2,3 [t-0 leader 2 offline 4,1]
              to 3: know brokers 2,3 [t-0 leader 2 offline 4,1]
            > alter 2 t-0 2,3
            set t-0 leader 2 epoch 2 isr 2,3
              to 2: know brokers 2,3 [t-0 leader 2 offline 4,1]
              to 3: know brokers 2,3 [t-0 leader 2 offline 4,1]
              answer t-0 leader 2 epoch 2 isr 2,3 version 3
            > brokers 2,3,4
              to 2: know brokers 2,3,4 []
              to 3: know brokers 2,3,4 []
              to 4: know brokers 2,3,4 [t-0 leader 2 offline 1]
              to 4: lead [t-0 new leader 2 epoch 2 isr 2,3 0:3,4,1,2+3,4-1,2]
              to 2: know brokers 2,3,4 [t-0 leader 2 offline 1]
              to 3: know brokers 2,3,4 [t-0 leader 2 offline 1]
              to 4: know brokers 2,3,4 [t-0 leader 2 offline 1]
            > alter 2 t-0 2,3,4
            set t-0 leader 2 epoch 2 isr 2,3,4
              to 2: know brokers 2,3,4 [t-0 leader 2 offline 1]
              to 3: know brokers 2,3,4 [t-0 leader 2 offline 1]
              to 4: know brokers 2,3,4 [t-0 leader 2 offline 1]
              answer t-0 leader 2 epoch 2 isr 2,3,4 version 4
            set t-0 leader 3 epoch 3 isr 3,4
              to 3: lead [t-0 leader 3 epoch 3 isr 3,4]
              to 4: lead [t-0 leader 3 epoch 3 isr 3,4]
              to 2: know brokers 2,3,4 [t-0 leader 3]
              to 3: know brokers 2,3,4 [t-0 leader 3]
              to 4: know brokers 2,3,4 [t-0 leader 3]
              to 2: stop [t-0 delete epoch 3]
            set t id 116 1 partitions
        "#]],
    );
}

#[test]
fn leaders_of_old_write_their_isr_themselves() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1
        move t-0:2
        wrote 1 t-0 1,2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1
            create t-0 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > move t-0:2
            set t id 116 1 partitions 0:2,1+2-1
              answer t-0 done
            set t-0 leader 1 epoch 1 isr 1
              to 1: lead [t-0 leader 1 epoch 1 isr 1 0:2,1+2-1]
              to 2: lead [t-0 new leader 1 epoch 1 isr 1 0:2,1+2-1]
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
            > wrote 1 t-0 1,2
            set t-0 leader 2 epoch 2 isr 2
              to 2: lead [t-0 leader 2 epoch 2 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2]
              to 2: know brokers 1,2 [t-0 leader 2]
              to 1: stop [t-0 delete epoch 2]
            set t id 116 1 partitions
        "#]],
    );
}

#[test]
fn the_next_controller_goes_on_with_a_move() {
    let mut world = run(
        "
        brokers 1,2,3
        start
        topic t 0:1,2
        move t-0:3
        ",
        options(),
    );
    let mut next = World::new(options());
    std::mem::swap(&mut next.topics, &mut world.topics);
    next.brokers = std::mem::take(&mut world.brokers);
    next.brokers_changed();
    next.topics_changed();
    next.deletions_changed();
    next.settle();
    let partition = super::partition("t-0");
    let request = next.new_isr(ids("1")[0], &partition, "1,2,3");
    next.ask(|ticket| crate::change::Change::AlterPartition { ticket, request });
    next.settle();
    expect![[r#"
        set t-0 leader 1 epoch 2 isr 1,2
          to 1: know brokers 1,2,3 [t-0 leader 1]
          to 2: know brokers 1,2,3 [t-0 leader 1]
          to 3: know brokers 1,2,3 [t-0 leader 1]
          to 1: lead [t-0 leader 1 epoch 2 isr 1,2 0:3,1,2+3-1,2]
          to 2: lead [t-0 leader 1 epoch 2 isr 1,2 0:3,1,2+3-1,2]
          to 3: lead [t-0 new leader 1 epoch 2 isr 1,2 0:3,1,2+3-1,2]
          to 1: know brokers 1,2,3 [t-0 leader 1]
          to 2: know brokers 1,2,3 [t-0 leader 1]
          to 3: know brokers 1,2,3 [t-0 leader 1]
        set t-0 leader 1 epoch 2 isr 1,2,3
          to 1: know brokers 1,2,3 [t-0 leader 1]
          to 2: know brokers 1,2,3 [t-0 leader 1]
          to 3: know brokers 1,2,3 [t-0 leader 1]
          answer t-0 leader 1 epoch 2 isr 1,2,3 version 3
        set t-0 leader 3 epoch 3 isr 3
          to 3: lead [t-0 leader 3 epoch 3 isr 3]
          to 1: know brokers 1,2,3 [t-0 leader 3]
          to 2: know brokers 1,2,3 [t-0 leader 3]
          to 3: know brokers 1,2,3 [t-0 leader 3]
          to 1: stop [t-0 delete epoch 3]
          to 2: stop [t-0 delete epoch 3]
        set t id 116 1 partitions
    "#]]
    .assert_eq(&next.log);
}
