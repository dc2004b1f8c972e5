//! Brokers that come, die, shut down, lose a disk or fall behind; and a new controller.

use common::ids::BrokerId;
use expect_test::expect;

use super::{
    check, run,
    world::{World, options},
};

#[test]
fn a_new_controller_tells_everyone_what_is() {
    let mut world = run(
        "
        brokers 1,2
        start
        topic t 0:1,2
        topic u 0:2
        ",
        options(),
    );
    let mut next = World::new(options());
    std::mem::swap(&mut next.topics, &mut world.topics);
    next.register(BrokerId(1));
    next.brokers_changed();
    next.topics_changed();
    next.deletions_changed();
    next.settle();
    expect![[r#"
        set t-0 leader 1 epoch 1 isr 1
        set u-0 leader -1 epoch 1 isr 2
          to 1: know brokers 1 [t-0 leader 1 offline 2; u-0 leader 2 offline 2]
          to 1: lead [t-0 leader 1 epoch 1 isr 1]
          to 1: know brokers 1 [t-0 leader 1 offline 2; u-0 leader -1 offline 2]
    "#]]
    .assert_eq(&next.log);
}

#[test]
fn a_new_controller_says_what_did_not_change_once() {
    let script = "
        brokers 1,2
        start
        topic t 0:1,2 1:2
        topic u 0:2
    ";
    let mut world = run(script, options());
    let mut next = World::new(options());
    std::mem::swap(&mut next.topics, &mut world.topics);
    next.topics.get_mut("u").unwrap().states.clear();
    next.register(BrokerId(1));
    next.register(BrokerId(2));
    next.brokers_changed();
    next.topics_changed();
    next.deletions_changed();
    next.settle();
    expect![[r#"
        create u-0 leader 2 epoch 0 isr 2
          to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2; u-0 leader -1]
          to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2; u-0 leader -1]
          to 1: lead [t-0 leader 1 epoch 0 isr 1,2]
          to 2: lead [t-0 leader 1 epoch 0 isr 1,2; t-1 leader 2 epoch 0 isr 2; u-0 new leader 2 epoch 0 isr 2]
          to 1: know brokers 1,2 [u-0 leader 2]
          to 2: know brokers 1,2 [u-0 leader 2]
    "#]]
    .assert_eq(&next.log);
}

#[test]
fn a_dead_broker_loses_leadership_and_comes_back_as_a_follower() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:2,1 2:1
        brokers 2
        brokers 1,2
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:2,1 2:1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2,1
            create t-2 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1; t-2 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
            > brokers 2
            set t-0 leader 2 epoch 1 isr 2
            set t-1 leader 2 epoch 1 isr 2
            set t-2 leader -1 epoch 1 isr 1
              to 2: know brokers 2 []
              to 2: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1; t-1 leader 2 offline 1; t-2 leader -1 offline 1]
            > brokers 1,2
            set t-2 leader 1 epoch 2 isr 1
              to 2: know brokers 1,2 []
              to 1: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader -1]
              to 1: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2; t-2 leader 1 epoch 2 isr 1]
              to 1: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1]
        "#]],
    );
}

#[test]
fn a_bounced_broker_does_not_keep_what_others_can_lead() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:2,1 2:1
        bounce 1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:2,1 2:1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2,1
            create t-2 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1; t-2 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
            > bounce 1
            set t-0 leader 2 epoch 1 isr 2
            set t-1 leader 2 epoch 1 isr 2
            set t-2 leader 1 epoch 1 isr 1
              to 2: know brokers 1,2 []
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 1: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2; t-2 leader 1 epoch 1 isr 1]
              to 2: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2 [t-0 leader 2; t-1 leader 2; t-2 leader 1]
        "#]],
    );
}

#[test]
fn the_last_member_of_an_isr_waits_unless_unclean_elections_are_allowed() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        brokers 2
        brokers
        brokers 1
        unclean t
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
            > brokers 2
            set t-0 leader 2 epoch 1 isr 2
              to 2: know brokers 2 []
              to 2: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: know brokers 2 [t-0 leader 2 offline 1]
            > brokers
            set t-0 leader -1 epoch 2 isr 2
            > brokers 1
              to 1: know brokers 1 [t-0 leader -1 offline 2]
              to 1: lead [t-0 leader -1 epoch 2 isr 2]
              to 1: know brokers 1 [t-0 leader -1 offline 2]
            > unclean t
            set t-0 leader 1 epoch 3 isr 1 recovering
              to 1: lead [t-0 leader 1 epoch 3 isr 1 recovering]
              to 1: know brokers 1 [t-0 leader 1 offline 2]
        "#]],
    );
}

#[test]
fn a_lost_log_directory_is_a_lost_replica() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        storage-error 1 t-0
        storage-error 1 t-0
        storage-ok 1 t-0
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
            > storage-error 1 t-0
            set t-0 leader 2 epoch 1 isr 2
              to 1: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: lead [t-0 leader 2 epoch 1 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2 offline 1]
              to 2: know brokers 1,2 [t-0 leader 2 offline 1]
            > storage-error 1 t-0
            > storage-ok 1 t-0
              to 1: know brokers 1,2 [t-0 leader 2]
              to 2: know brokers 1,2 [t-0 leader 2]
        "#]],
    );
}

#[test]
fn a_replica_that_is_back_leads_what_nobody_leads() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        storage-error 1 t-0
        storage-error 2 t-0
        storage-ok 1 t-0
        storage-ok 2 t-0
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
            > storage-error 1 t-0
            set t-0 leader 2 epoch 1 isr 2
              to 1: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: lead [t-0 leader 2 epoch 1 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2 offline 1]
              to 2: know brokers 1,2 [t-0 leader 2 offline 1]
            > storage-error 2 t-0
            set t-0 leader -1 epoch 2 isr 2
              to 1: lead [t-0 leader -1 epoch 2 isr 2]
              to 2: lead [t-0 leader -1 epoch 2 isr 2]
              to 1: know brokers 1,2 [t-0 leader -1 offline 1,2]
              to 2: know brokers 1,2 [t-0 leader -1 offline 1,2]
            > storage-ok 1 t-0
              to 1: know brokers 1,2 [t-0 leader -1 offline 2]
              to 2: know brokers 1,2 [t-0 leader -1 offline 2]
            > storage-ok 2 t-0
            set t-0 leader 2 epoch 3 isr 2
              to 1: lead [t-0 leader 2 epoch 3 isr 2]
              to 2: lead [t-0 leader 2 epoch 3 isr 2]
              to 1: know brokers 1,2 [t-0 leader 2]
              to 2: know brokers 1,2 [t-0 leader 2]
        "#]],
    );
}

#[test]
fn a_shutdown_moves_leaderships_and_stops_followers() {
    check(
        "
        brokers 1,2,3
        start
        topic t 0:1,2 1:2,1 2:1
        shutdown 1
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2,3 []
              to 2: know brokers 1,2,3 []
              to 3: know brokers 1,2,3 []
            > topic t 0:1,2 1:2,1 2:1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 2 epoch 0 isr 2,1
            create t-2 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1; t-2 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 2 epoch 0 isr 2,1]
              to 1: know brokers 1,2,3 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 2: know brokers 1,2,3 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
              to 3: know brokers 1,2,3 [t-0 leader 1; t-1 leader 2; t-2 leader 1]
            > shutdown 1
            set t-0 leader 2 epoch 1 isr 2
            set t-1 leader 2 epoch 1 isr 2
              to 1: lead [t-0 leader 2 epoch 1 isr 2]
              to 2: lead [t-0 leader 2 epoch 1 isr 2; t-1 leader 2 epoch 1 isr 2]
              to 1: know brokers 1,2,3 [t-0 leader 2 offline 1; t-1 leader 2 offline 1]
              to 2: know brokers 1,2,3 [t-0 leader 2 offline 1; t-1 leader 2 offline 1]
              to 3: know brokers 1,2,3 [t-0 leader 2 offline 1; t-1 leader 2 offline 1]
              to 1: stop [t-1 epoch 1]
              answer shutdown, leads []
        "#]],
    );
}

#[test]
fn a_shutdown_names_what_nobody_else_can_lead() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2 1:1
        alter 1 t-0 1
        shutdown 1
        shutdown 3
        ",
        expect![[r#"
            > start
              to 1: know brokers 1,2 []
              to 2: know brokers 1,2 []
            > topic t 0:1,2 1:1
            create t-0 leader 1 epoch 0 isr 1,2
            create t-1 leader 1 epoch 0 isr 1
              to 1: lead [t-0 new leader 1 epoch 0 isr 1,2; t-1 new leader 1 epoch 0 isr 1]
              to 2: lead [t-0 new leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1; t-1 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1; t-1 leader 1]
            > alter 1 t-0 1
            set t-0 leader 1 epoch 0 isr 1
              to 1: know brokers 1,2 [t-0 leader 1]
              to 2: know brokers 1,2 [t-0 leader 1]
              answer t-0 leader 1 epoch 0 isr 1 version 1
            > shutdown 1
              answer shutdown, leads [t-0]
            > shutdown 3
              answer BROKER_NOT_AVAILABLE
        "#]],
    );
}

#[test]
fn a_broker_that_was_not_told_everything_is_told_again() {
    check(
        "
        brokers 1,2
        start
        topic t 0:1,2
        topic u 0:2
        topic v 0:1
        deaf 2
        delete u
        hearing
        behind 2
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
            > topic u 0:2
            create u-0 leader 2 epoch 0 isr 2
              to 2: lead [u-0 new leader 2 epoch 0 isr 2]
              to 1: know brokers 1,2 [u-0 leader 2]
              to 2: know brokers 1,2 [u-0 leader 2]
            > topic v 0:1
            create v-0 leader 1 epoch 0 isr 1
              to 1: lead [v-0 new leader 1 epoch 0 isr 1]
              to 1: know brokers 1,2 [v-0 leader 1]
              to 2: know brokers 1,2 [v-0 leader 1]
            > deaf 2
            > delete u
            set u-0 leader -1 epoch 1 isr 2
              to 1: know brokers 1,2 [u-0 gone]
              to 2: know brokers 1,2 [u-0 gone]
              to 2: stop [u-0 delete]
            > hearing
            > behind 2
              to 2: know brokers 1,2 [t-0 leader 1; u-0 gone; v-0 leader 1]
              to 2: lead [t-0 leader 1 epoch 0 isr 1,2]
              to 1: know brokers 1,2 [t-0 leader 1; u-0 gone]
              to 2: know brokers 1,2 [t-0 leader 1; u-0 gone]
              to 2: stop [u-0 delete]
            delete u
            deleted u
        "#]],
    );
}
