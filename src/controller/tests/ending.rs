//! The ends of moves, when the replicas that are to stop do not answer.

use expect_test::{Expect, expect};

use super::{World, options, run};

/// Two partitions move from broker 1 to broker 3, and 1 does not answer.
const DEAF: &str = "
    brokers 1,2,3
    start
    topic t 0:1,2 1:1
    deaf 1
    move t-0:2,3 t-1:3
    alter 1 t-0 1,2,3
    alter 1 t-1 1,3
";

/// What the last step of that does in all cases.
const MOVED: &str = "\
set t-1 leader 1 epoch 1 isr 1,3
  answer t-1 leader 1 epoch 1 isr 1,3 version 2
set t-1 leader 3 epoch 2 isr 3
  to 3: lead [t-1 leader 3 epoch 2 isr 3]
  to 1: stop [t-1 delete epoch 2]
";

/// What happens after that, without what brokers are to know.
fn check_end(steps: &str, expected: Expect) {
    let world = run(&format!("{DEAF}{steps}"), options());
    let end = world.log.split_once("> alter 1 t-1 1,3\n").unwrap().1;
    let is_told = |line: &&str| !line.contains(": know brokers");
    let end: String = end.lines().filter(is_told).map(|line| format!("{line}\n")).collect();
    let end = end.strip_prefix(MOVED).unwrap();
    let going_on: Vec<String> =
        world.controller.reassignments(None).keys().map(ToString::to_string).collect();
    expected.assert_eq(&format!("{end}going on: [{}]\n", going_on.join(", ")));
}

#[test]
fn the_end_of_a_move_is_written_once_the_replicas_it_takes_away_have_stopped() {
    check_end(
        "answer 1 t-0\n answer 1 t-2\n answer 1 t-1",
        expect![[r#"
            > answer 1 t-0
            set t id 116 2 partitions 1:3,1+3-1
            > answer 1 t-2
            > answer 1 t-1
            set t id 116 2 partitions
            going on: []
        "#]],
    );
}

/// The in-sync set is written with which a move arrives, and ZooKeeper's answer is lost.
#[test]
fn a_move_ends_though_the_answer_to_its_last_write_is_lost() {
    let script = "
        brokers 1,2,3
        start
        topic t 0:1,2
        move t-0:2,3
        lose-answer t-0
        alter 1 t-0 1,2,3
    ";
    let world = run(script, options());
    let end = world.log.split_once("> alter 1 t-0 1,2,3\n").unwrap().1;
    expect![[r#"
        set t-0 leader 1 epoch 1 isr 1,2,3
        read t again
        set t-0 leader 2 epoch 2 isr 2,3
          to 2: lead [t-0 leader 2 epoch 2 isr 2,3]
          to 3: lead [t-0 leader 2 epoch 2 isr 2,3]
          to 1: know brokers 1,2,3 [t-0 leader 2]
          to 2: know brokers 1,2,3 [t-0 leader 2]
          to 3: know brokers 1,2,3 [t-0 leader 2]
          to 1: stop [t-0 delete epoch 2]
        set t id 116 1 partitions
          answer t-0 FENCED_LEADER_EPOCH
    "#]]
    .assert_eq(end);
    assert!(world.controller.reassignments(None).is_empty());
}

#[test]
fn a_move_whose_old_replicas_do_not_answer_goes_on() {
    check_end(
        "topic t 2:2\n move t-1:back",
        expect![[r#"
            > topic t 2:2
            create t-2 leader 2 epoch 0 isr 2
              to 2: lead [t-2 new leader 2 epoch 0 isr 2]
            > move t-1:back
              answer t-1 NO_REASSIGNMENT_IN_PROGRESS No partition reassignment is in progress.
            going on: [t-0, t-1]
        "#]],
    );
}

#[test]
fn a_broker_that_cannot_stop_its_replica_or_dies_is_not_waited_for() {
    check_end(
        "brokers 2,3",
        expect![[r#"
            > brokers 2,3
            set t id 116 2 partitions
            going on: []
        "#]],
    );
    check_end(
        "hearing\n stop-error\n behind 1",
        expect![[r#"
            > hearing
            > stop-error
            > behind 1
              to 1: stop [t-0 delete epoch 2; t-1 delete epoch 2]
            set t id 116 2 partitions
            going on: []
        "#]],
    );
}

#[test]
fn a_broker_that_may_not_have_heard_is_told_again_to_stop() {
    check_end(
        "bounce 1\n hearing\n bounce 1",
        expect![[r#"
            > bounce 1
              to 1: stop [t-0 delete epoch 2; t-1 delete epoch 2]
            > hearing
            > bounce 1
              to 1: stop [t-0 delete epoch 2; t-1 delete epoch 2]
            set t id 116 2 partitions
            going on: []
        "#]],
    );
}

#[test]
fn a_move_begins_before_the_last_one_has_ended() {
    check_end(
        "move t-0:1,3\n answer 1 t-0",
        expect![[r#"
            > move t-0:1,3
            set t id 116 2 partitions 0:1,3,2+1-2 1:3,1+3-1
              answer t-0 done
            set t-0 leader 2 epoch 3 isr 2,3
              to 1: lead [t-0 new leader 2 epoch 3 isr 2,3 0:1,3,2+1-2]
              to 2: lead [t-0 leader 2 epoch 3 isr 2,3 0:1,3,2+1-2]
              to 3: lead [t-0 leader 2 epoch 3 isr 2,3 0:1,3,2+1-2]
            > answer 1 t-0
            going on: [t-0, t-1]
        "#]],
    );
}

#[test]
fn a_deleted_topic_goes_with_the_replicas_that_its_moves_take_away() {
    check_end(
        "delete t\n hearing\n bounce 1",
        expect![[r#"
            > delete t
            set t-0 leader -1 epoch 3 isr 3
            set t-1 leader -1 epoch 3 isr 3
              to 1: stop [t-0 delete; t-1 delete]
              to 2: stop [t-0 delete]
              to 3: stop [t-0 delete; t-1 delete]
            > hearing
            > bounce 1
              to 1: stop [t-0 delete; t-1 delete]
            delete t
            deleted t
            going on: []
        "#]],
    );
}

#[test]
fn the_next_controller_has_the_old_replicas_stopped() {
    let mut world = run(DEAF, options());
    let mut next = World::new(options());
    std::mem::swap(&mut next.topics, &mut world.topics);
    next.brokers = std::mem::take(&mut world.brokers);
    next.brokers_changed();
    next.topics_changed();
    next.deletions_changed();
    next.settle();
    expect![[r#"
        set t-0 leader 2 epoch 3 isr 2,3
        set t-1 leader 3 epoch 3 isr 3
          to 1: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3]
          to 2: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3]
          to 3: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3]
          to 2: lead [t-0 leader 2 epoch 3 isr 2,3]
          to 3: lead [t-0 leader 2 epoch 3 isr 2,3; t-1 leader 3 epoch 3 isr 3]
          to 1: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3]
          to 2: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3]
          to 3: know brokers 1,2,3 [t-0 leader 2; t-1 leader 3]
          to 1: stop [t-0 delete epoch 3; t-1 delete epoch 3]
        set t id 116 2 partitions
    "#]]
    .assert_eq(&next.log);
}
