//! Offsets: commits, transactions, fetches.

use expect_test::expect;

use super::check;

#[test]
fn a_simple_consumer_commits_to_an_empty_group() {
    check(
        "
        0s commit g - -1 t-0=5:note t-1=6
        0s fetch g
        0s fetch g t-1 t-2
        0s fetch h t-0
        0s fetch h
        0s list
        0s commit - - -1 t-0=7
        0s fetch -
        0s describe g
        0s describe h
        ",
        expect![[r#"
            0s append 1: g t-0=5; g t-1=6
            0s g is Empty
            0s r1 commit NONE NONE
            0s fetch t-0=5:note t-1=6
            0s fetch t-1=6 t-2=-1
            0s fetch t-0=-1
            0s fetch
            0s list g '' Empty;
            0s append 2:  t-0=7
            0s  is Empty
            0s r2 commit NONE
            0s fetch t-0=7
            0s describe Empty ''/''
            0s describe Dead ''/''"#]],
    );
}

#[test]
fn a_generation_nobody_knows_cannot_commit() {
    check(
        "
        0s commit g a-1 1 t-0=5 t-1=6
        0s list
        ",
        expect![[r#"
            0s r1 commit ILLEGAL_GENERATION ILLEGAL_GENERATION
            0s list"#]],
    );
}

#[test]
fn members_commit() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s commit g - -1 t-0=5
        7s commit g x-1 1 t-0=5
        7s commit g i-1 2 t-0=5
        7s commit g x-1 1 as=i t-0=5
        7s commit g i-1 1 as=k t-0=5
        7s commit g i-1 -1 t-0=5
        7s commit g i-1 1 as=i t-0=5
        8s join g client=c protocols=range:x
        8s commit g i-1 1 t-0=6
        9s join g id=i-1 as=i protocols=range:x
        9s join g id=j-1 as=j protocols=range:x
        9s commit g i-1 2 t-0=7
        9s fetch g
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s note SubscriptionUnreadable group: g member_id: i-1
            6s r1 join NONE 'i-1' 1 consumer/range leader 'i-1' i-1/i:x j-1/j:z
            6s r2 join NONE 'j-1' 1 consumer/range leader 'i-1'
            6s g is CompletingRebalance
            6s append 1: g 1 range leader i-1 i-1=A j-1=B
            6s r3 sync NONE consumer/range 'A'
            6s rebalance g 1 Stable (Joined 'i-1' -): joining 6s, last j-1; assigning 0s by i-1; 2 members
            6s g is Stable
            6s r4 sync NONE consumer/range 'B'
            7s r5 commit UNKNOWN_MEMBER_ID
            7s r6 commit UNKNOWN_MEMBER_ID
            7s r7 commit ILLEGAL_GENERATION
            7s r8 commit FENCED_INSTANCE_ID
            7s r9 commit UNKNOWN_MEMBER_ID
            7s r10 commit ILLEGAL_GENERATION
            7s append 2: g t-0=5
            7s r11 commit NONE
            8s g is PreparingRebalance
            8s append 3: g t-0=6
            8s r13 commit NONE
            9s note SubscriptionUnreadable group: g member_id: c-1
            9s r12 join NONE 'c-1' 2 consumer/range leader 'i-1'
            9s r14 join NONE 'i-1' 2 consumer/range leader 'i-1' c-1:x i-1/i:x j-1/j:x
            9s r15 join NONE 'j-1' 2 consumer/range leader 'i-1'
            9s g is CompletingRebalance
            9s r16 commit REBALANCE_IN_PROGRESS
            9s fetch t-0=6"#]],
    );
}

#[test]
fn long_metadata_are_refused_one_by_one() {
    check(
        "
        0s config metadata=3
        0s commit g - -1 t-0=1:abc t-1=2:abcd
        0s commit g - -1 t-1=2:abcd
        0s fetch g
        0s commit g - -1
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s r1 commit NONE OFFSET_METADATA_TOO_LARGE
            0s r2 commit OFFSET_METADATA_TOO_LARGE
            0s fetch t-0=1:abc
            0s r3 commit"#]],
    );
}

#[test]
fn a_commit_counts_once_it_is_committed() {
    check(
        "
        0s hold
        0s commit g - -1 t-0=1
        0s fetch g t-0
        0s fetch g t-0 stable
        0s commit g - -1 t-0=2
        1s done 1
        1s fetch g t-0
        1s fetch g t-0 stable
        1s done 2
        1s fetch g t-0 stable
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s fetch t-0=-1
            0s fetch t-0=-1 UNSTABLE_OFFSET_COMMIT
            0s append 2: g t-0=2
            1s r1 commit NONE
            1s fetch t-0=1
            1s fetch t-0=-1 UNSTABLE_OFFSET_COMMIT
            1s r2 commit NONE
            1s fetch t-0=2"#]],
    );
}

#[test]
fn the_later_commit_wins_even_if_we_hear_of_it_first() {
    check(
        "
        0s hold
        0s commit g - -1 t-0=1
        0s commit g - -1 t-0=2
        1s done 2
        1s done 1
        1s fetch g stable
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s append 2: g t-0=2
            1s r2 commit NONE
            1s r1 commit NONE
            1s fetch t-0=2"#]],
    );
}

#[test]
fn a_commit_that_fails_changes_nothing() {
    check(
        "
        0s commit g - -1 t-0=1
        0s hold
        0s commit g - -1 t-0=2
        0s fail 2 NOT_ENOUGH_REPLICAS
        0s commit g - -1 t-0=2
        0s fail 3 NOT_ENOUGH_REPLICAS_AFTER_APPEND
        0s commit g - -1 t-0=2
        0s fail 4 UNKNOWN_TOPIC_OR_PARTITION
        0s commit g - -1 t-0=2
        0s fail 5 NOT_LEADER_OR_FOLLOWER
        0s commit g - -1 t-0=2
        0s fail 6 KAFKA_STORAGE_ERROR
        0s commit g - -1 t-0=2
        0s fail 7 RECORD_LIST_TOO_LARGE
        0s commit g - -1 t-0=2
        0s fail 8 NETWORK_EXCEPTION
        0s commit g - -1 t-0=2
        0s fail 9 REQUEST_TIMED_OUT
        0s fetch g stable
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s r1 commit NONE
            0s append 2: g t-0=2
            0s r2 commit COORDINATOR_NOT_AVAILABLE
            0s append 3: g t-0=2
            0s r3 commit COORDINATOR_NOT_AVAILABLE
            0s append 4: g t-0=2
            0s r4 commit COORDINATOR_NOT_AVAILABLE
            0s append 5: g t-0=2
            0s r5 commit NOT_COORDINATOR
            0s append 6: g t-0=2
            0s r6 commit NOT_COORDINATOR
            0s append 7: g t-0=2
            0s r7 commit INVALID_COMMIT_OFFSET_SIZE
            0s append 8: g t-0=2
            0s r8 commit COORDINATOR_LOAD_IN_PROGRESS
            0s append 9: g t-0=2
            0s r9 commit REQUEST_TIMED_OUT
            0s fetch t-0=1"#]],
    );
}

#[test]
fn transactional_offsets_wait_for_the_marker() {
    check(
        "
        0s commit g - -1 t-0=1
        0s commit g - -1 txn=7 t-0=5 t-1=6
        0s fetch g t-0 t-1
        0s fetch g t-0 t-1 t-2 stable
        1s marker 7 commit
        1s fetch g stable
        2s commit g - -1 txn=7 t-0=9
        2s marker 7 abort
        2s fetch g stable
        3s reload
        3s fetch g
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s r1 commit NONE
            0s note MixedCommits group: g
            0s append 2 of 7: g t-0=5; g t-1=6
            0s r2 commit NONE NONE
            0s fetch t-0=1 t-1=-1
            0s fetch t-0=-1 UNSTABLE_OFFSET_COMMIT t-1=-1 UNSTABLE_OFFSET_COMMIT t-2=-1
            1s fetch t-0=5 t-1=6
            2s append 3 of 7: g t-0=9
            2s r3 commit NONE
            2s fetch t-0=5 t-1=6
            3s fetch t-0=5 t-1=6"#]],
    );
}

#[test]
fn a_transaction_under_way_is_loaded() {
    check(
        "
        0s commit g - -1 txn=7 t-0=5
        1s reload
        1s list
        1s fetch g t-0 stable
        2s marker 7 commit
        2s fetch g t-0 stable
        3s reload
        3s fetch g
        ",
        expect![[r#"
            0s append 1 of 7: g t-0=5
            0s g is Empty
            0s r1 commit NONE
            1s list g '' Empty;
            1s fetch t-0=-1 UNSTABLE_OFFSET_COMMIT
            2s fetch t-0=5
            3s fetch t-0=5"#]],
    );
}

#[test]
fn a_later_plain_commit_beats_an_earlier_transactional_one() {
    check(
        "
        0s commit g - -1 txn=7 t-0=5
        1s commit g - -1 t-0=9
        2s marker 7 commit
        2s fetch g
        3s reload
        3s fetch g
        ",
        expect![[r#"
            0s append 1 of 7: g t-0=5
            0s g is Empty
            0s r1 commit NONE
            1s note MixedCommits group: g
            1s append 2: g t-0=9
            1s r2 commit NONE
            2s fetch t-0=9
            3s fetch t-0=9"#]],
    );
}

#[test]
fn a_marker_may_come_before_the_append_is_known() {
    check(
        "
        0s hold
        0s commit g - -1 txn=7 t-0=5
        0s marker 7 commit
        0s fetch g t-0
        1s done 1
        1s fetch g t-0 stable
        2s commit g - -1 txn=7 t-0=9
        2s marker 7 abort
        2s done 2
        2s fetch g t-0 stable
        ",
        expect![[r#"
            0s append 1 of 7: g t-0=5
            0s g is Empty
            0s fetch t-0=-1
            1s r1 commit NONE
            1s fetch t-0=5
            2s append 2 of 7: g t-0=9
            2s r2 commit NONE
            2s fetch t-0=5"#]],
    );
}

#[test]
fn a_transactional_commit_that_fails_is_forgotten() {
    check(
        "
        0s hold
        0s commit g - -1 txn=7 t-0=5
        0s fail 1 NOT_ENOUGH_REPLICAS
        0s fetch g t-0 stable
        1s marker 7 commit
        1s fetch g
        ",
        expect![[r#"
            0s append 1 of 7: g t-0=5
            0s g is Empty
            0s r1 commit COORDINATOR_NOT_AVAILABLE
            0s fetch t-0=-1
            1s fetch"#]],
    );
}

#[test]
fn transactional_commits_check_the_member_if_there_is_one() {
    check(
        "
        0s commit g a-1 1 txn=7 t-0=5
        0s commit - - -1 txn=7 t-0=5
        0s join g client=a
        3s commit g - -1 txn=7 t-0=5
        3s commit g a-1 2 txn=7 t-0=5
        3s commit g x-1 1 txn=7 t-0=5
        3s commit g a-1 1 txn=7 t-0=6
        3s commit g a-1 1 t-0=6
        3s sync g a-1 1 assign=a-1:A
        3s commit g a-1 1 t-0=6
        ",
        expect![[r#"
            0s r1 commit UNKNOWN_MEMBER_ID
            0s r2 commit INVALID_GROUP_ID
            0s g is PreparingRebalance
            3s r3 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s append 1 of 7: g t-0=5
            3s r4 commit NONE
            3s r5 commit ILLEGAL_GENERATION
            3s r6 commit UNKNOWN_MEMBER_ID
            3s append 2 of 7: g t-0=6
            3s r7 commit NONE
            3s r8 commit REBALANCE_IN_PROGRESS
            3s append 3: g 1 range leader a-1 a-1=A
            3s r9 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            3s note MixedCommits group: g
            3s append 4: g t-0=6
            3s r10 commit NONE"#]],
    );
}

#[test]
fn plain_and_transactional_commits_should_not_mix() {
    check(
        "
        0s commit g - -1 t-0=1
        0s commit g - -1 txn=7 t-0=2
        0s commit g - -1 t-0=3
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s r1 commit NONE
            0s note MixedCommits group: g
            0s append 2 of 7: g t-0=2
            0s r2 commit NONE
            0s append 3: g t-0=3
            0s r3 commit NONE"#]],
    );
}

#[test]
fn a_partition_committed_twice_in_a_request_keeps_the_last() {
    check(
        "
        0s commit g - -1 t-0=1 t-0=2
        0s fetch g
        1s reload
        1s fetch g
        ",
        expect![[r#"
            0s append 1: g t-0=1; g t-0=2
            0s g is Empty
            0s r1 commit NONE NONE
            0s fetch t-0=2
            1s fetch t-0=2"#]],
    );
}

#[test]
fn a_producer_commits_for_several_groups() {
    check(
        "
        0s commit g - -1 txn=7 t-0=1
        0s commit h - -1 txn=7 t-0=2
        0s marker 8 commit
        0s fetch g t-0 stable
        1s marker 7 commit
        1s fetch g t-0 stable
        1s fetch h t-0 stable
        1s marker 7 abort
        1s fetch g t-0 stable
        ",
        expect![[r#"
            0s append 1 of 7: g t-0=1
            0s g is Empty
            0s r1 commit NONE
            0s append 2 of 7: h t-0=2
            0s h is Empty
            0s r2 commit NONE
            0s fetch t-0=-1 UNSTABLE_OFFSET_COMMIT
            1s fetch t-0=1
            1s fetch t-0=2
            1s fetch t-0=1"#]],
    );
}

#[test]
fn several_producers_commit_for_a_group() {
    check(
        "
        0s commit g - -1 txn=7 t-0=1 t-1=1
        0s commit g - -1 txn=8 t-0=2
        1s marker 8 commit
        1s fetch g t-0 t-1 stable
        2s marker 7 commit
        2s fetch g t-0 t-1 stable
        3s reload
        3s fetch g
        ",
        expect![[r#"
            0s append 1 of 7: g t-0=1; g t-1=1
            0s g is Empty
            0s r1 commit NONE NONE
            0s append 2 of 8: g t-0=2
            0s r2 commit NONE
            1s fetch t-0=-1 UNSTABLE_OFFSET_COMMIT t-1=-1 UNSTABLE_OFFSET_COMMIT
            2s fetch t-0=2 t-1=1
            3s fetch t-0=2 t-1=1"#]],
    );
}

#[test]
fn a_group_whose_members_left_takes_simple_commits() {
    check(
        "
        0s join g client=a
        3s sync g a-1 1 assign=a-1:A
        4s leave g a-1
        5s commit g a-1 1 t-0=1
        5s commit g - -1 t-0=2
        5s delete-offsets g t-0 t-1
        ",
        expect![[r#"
            0s g is PreparingRebalance
            3s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s append 1: g 1 range leader a-1 a-1=A
            3s r2 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            4s rebalance g 2 Empty (Left 'a-1' -): joining 0s, last null; assigning 0s by null; 0 members
            4s append 2: g 2 null leader null
            4s r3 leave NONE a-1/ NONE
            4s g is Empty
            5s r4 commit UNKNOWN_MEMBER_ID
            5s append 3: g t-0=2
            5s r5 commit NONE
            5s append 4: g t-0 gone; g gone
            5s g is Dead
            5s r6 delete-offsets NONE: NONE NONE
            5s note OffsetsRemoved cause: Deleted group: g offsets: 1
            5s note GroupRemoved group: g generation: 2
            5s g is gone"#]],
    );
}
