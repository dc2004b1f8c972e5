//! What goes: deletions, deleted topics, expiry.

use expect_test::expect;

use super::check;

#[test]
fn a_group_is_deleted_when_it_is_empty() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        6s commit g a-1 1 t-0=5
        7s delete g
        7s leave g a-1 b-1
        7s delete g
        7s delete g
        8s reload
        8s list
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s note SubscriptionUnreadable group: g member_id: a-1
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:x b-1:z
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            6s append 1: g 1 range leader a-1 a-1=A b-1=B
            6s r3 sync NONE consumer/range 'A'
            6s rebalance g 1 Stable (Joined 'a-1' -): joining 6s, last b-1; assigning 0s by a-1; 2 members
            6s g is Stable
            6s r4 sync NONE consumer/range 'B'
            6s append 2: g t-0=5
            6s r5 commit NONE
            7s r6 delete NON_EMPTY_GROUP
            7s rebalance g 2 Empty (Left 'a-1' -): joining 0s, last null; assigning 0s by null; 0 members
            7s append 3: g 2 null leader null
            7s r7 leave NONE a-1/ NONE b-1/ NONE
            7s g is Empty
            7s append 4: g t-0 gone; g gone
            7s g is Dead
            7s r8 delete NONE
            7s note OffsetsRemoved cause: GroupDeleted group: g offsets: 1
            7s note GroupRemoved group: g generation: 2
            7s g is gone
            7s r9 delete GROUP_ID_NOT_FOUND
            8s list"#]],
    );
}

#[test]
fn a_group_stays_if_its_tombstones_are_not_stored() {
    check(
        "
        0s commit g - -1 t-0=5
        0s hold
        0s delete g
        1s fail 2 REQUEST_TIMED_OUT
        1s fetch g
        1s delete g
        2s done 3
        2s fetch g t-0
        ",
        expect![[r#"
            0s append 1: g t-0=5
            0s g is Empty
            0s r1 commit NONE
            0s append 2: g t-0 gone
            0s g is Dead
            1s r2 delete COORDINATOR_NOT_AVAILABLE
            1s note TombstonesNotStored group: g error: CoordinatorNotAvailable
            1s g is Empty
            1s fetch t-0=5
            1s append 3: g t-0 gone
            1s g is Dead
            2s r3 delete NONE
            2s note OffsetsRemoved cause: GroupDeleted group: g offsets: 1
            2s note GroupRemoved group: g generation: 0
            2s g is gone
            2s fetch t-0=-1"#]],
    );
}

#[test]
fn a_commit_after_a_tombstone_survives_it() {
    check(
        "
        0s commit g - -1 t-0=5 t-1=5
        0s hold
        0s delete-offsets g t-0
        0s commit g - -1 t-0=6
        1s done 3
        1s done 2
        1s fetch g
        2s reload
        2s fetch g
        ",
        expect![[r#"
            0s append 1: g t-0=5; g t-1=5
            0s g is Empty
            0s r1 commit NONE NONE
            0s append 2: g t-0 gone
            0s append 3: g t-0=6
            1s r3 commit NONE
            1s r2 delete-offsets NONE: NONE
            1s note OffsetsRemoved cause: Deleted group: g offsets: 1
            1s fetch t-0=6 t-1=5
            2s fetch t-0=6 t-1=5"#]],
    );
}

#[test]
fn offsets_are_deleted_unless_their_topic_is_subscribed() {
    check(
        "
        0s commit g - -1 t-0=1 u-0=2 u-1=3
        0s join g client=a protocols=range@t
        3s sync g a-1 1 assign=a-1:A
        3s delete-offsets g t-0 u-0 v-0
        3s fetch g
        3s delete-offsets h t-0
        3s delete-offsets - t-0
        4s leave g a-1
        4s delete-offsets g t-0 u-1
        4s list
        ",
        expect![[r#"
            0s append 1: g t-0=1; g u-0=2; g u-1=3
            0s g is Empty
            0s r1 commit NONE NONE NONE
            0s g is PreparingRebalance
            3s r2 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s append 2: g 1 range leader a-1 a-1=A
            3s r3 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            3s append 3: g u-0 gone
            3s r4 delete-offsets NONE: GROUP_SUBSCRIBED_TO_TOPIC NONE NONE
            3s note OffsetsRemoved cause: Deleted group: g offsets: 1
            3s fetch t-0=1 u-1=3
            3s r5 delete-offsets GROUP_ID_NOT_FOUND:
            3s r6 delete-offsets INVALID_GROUP_ID:
            4s rebalance g 2 Empty (Left 'a-1' -): joining 0s, last null; assigning 0s by null; 0 members
            4s append 4: g 2 null leader null
            4s r7 leave NONE a-1/ NONE
            4s g is Empty
            4s append 5: g t-0 gone; g u-1 gone; g gone
            4s g is Dead
            4s r8 delete-offsets NONE: NONE NONE
            4s note OffsetsRemoved cause: Deleted group: g offsets: 2
            4s note GroupRemoved group: g generation: 2
            4s g is gone
            4s list"#]],
    );
}

#[test]
fn offsets_of_other_groups_are_deleted_when_they_are_empty() {
    check(
        "
        0s join g client=a type=connect protocols=range:x
        3s delete-offsets g t-0
        ",
        expect![[r#"
            0s g is PreparingRebalance
            3s r1 join NONE 'a-1' 1 connect/range leader 'a-1' a-1:x
            3s g is CompletingRebalance
            3s r2 delete-offsets NON_EMPTY_GROUP:"#]],
    );
}

#[test]
fn a_subscription_that_cannot_be_read_may_be_to_anything() {
    check(
        "
        0s commit g - -1 t-0=1
        0s join g client=a protocols=range:x
        3s delete-offsets g t-0
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s r1 commit NONE
            0s g is PreparingRebalance
            3s note SubscriptionUnreadable group: g member_id: a-1
            3s r2 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:x
            3s g is CompletingRebalance
            3s r3 delete-offsets NONE: GROUP_SUBSCRIBED_TO_TOPIC"#]],
    );
}

#[test]
fn offsets_go_with_their_partitions() {
    check(
        "
        0s commit g - -1 t-0=1 t-1=2
        0s commit h - -1 t-0=1
        0s commit i - -1 txn=7 t-0=1
        1s partitions-deleted t-0 x-0
        1s fetch g
        1s list
        2s marker 7 commit
        2s list
        ",
        expect![[r#"
            0s append 1: g t-0=1; g t-1=2
            0s g is Empty
            0s r1 commit NONE NONE
            0s append 2: h t-0=1
            0s h is Empty
            0s r2 commit NONE
            0s append 3 of 7: i t-0=1
            0s i is Empty
            0s r3 commit NONE
            1s append 4: g t-0 gone
            1s append 5: h t-0 gone
            1s note GroupRemoved group: i generation: 0
            1s h is Dead
            1s i is gone
            1s note OffsetsRemoved cause: TopicDeleted group: g offsets: 1
            1s note OffsetsRemoved cause: TopicDeleted group: h offsets: 1
            1s note GroupRemoved group: h generation: 0
            1s h is gone
            1s fetch t-1=2
            1s list g '' Empty;
            2s list g '' Empty;"#]],
    );
}

#[test]
fn offsets_of_a_simple_group_expire_by_their_commit() {
    check(
        "
        0s commit g - -1 t-0=1
        10s commit g - -1 t-1=1
        99s expire 100s
        100s expire 100s
        100s fetch g
        110s expire 100s
        110s list
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s r1 commit NONE
            10s append 2: g t-1=1
            10s r2 commit NONE
            100s append 3: g t-0 gone
            100s note OffsetsRemoved cause: Expired group: g offsets: 1
            100s fetch t-1=1
            110s append 4: g t-1 gone
            110s g is Dead
            110s note OffsetsRemoved cause: Expired group: g offsets: 1
            110s note GroupRemoved group: g generation: 0
            110s g is gone
            110s list"#]],
    );
}

#[test]
fn offsets_of_an_empty_group_expire_by_the_time_it_became_empty() {
    check(
        "
        0s join g client=a
        3s sync g a-1 1 assign=a-1:A
        4s commit g a-1 1 t-0=1
        5s leave g a-1
        104s expire 100s
        105s expire 100s
        106s list
        ",
        expect![[r#"
            0s g is PreparingRebalance
            3s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s append 1: g 1 range leader a-1 a-1=A
            3s r2 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            4s append 2: g t-0=1
            4s r3 commit NONE
            5s rebalance g 2 Empty (Left 'a-1' -): joining 0s, last null; assigning 0s by null; 0 members
            5s append 3: g 2 null leader null
            5s r4 leave NONE a-1/ NONE
            5s g is Empty
            105s append 4: g t-0 gone; g gone
            105s g is Dead
            105s note OffsetsRemoved cause: Expired group: g offsets: 1
            105s note GroupRemoved group: g generation: 2
            105s g is gone
            106s list"#]],
    );
}

#[test]
fn offsets_of_a_living_group_expire_unless_subscribed() {
    check(
        "
        0s commit g - -1 t-0=1 u-0=2
        0s join g client=a protocols=range@t session=1000s
        3s sync g a-1 1 assign=a-1:A
        99s expire 100s
        100s expire 100s
        100s fetch g
        ",
        expect![[r#"
            0s append 1: g t-0=1; g u-0=2
            0s g is Empty
            0s r1 commit NONE NONE
            0s g is PreparingRebalance
            3s r2 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s append 2: g 1 range leader a-1 a-1=A
            3s r3 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            100s append 3: g u-0 gone
            100s note OffsetsRemoved cause: Expired group: g offsets: 1
            100s fetch t-0=1"#]],
    );
}

#[test]
fn an_explicit_time_of_expiry_counts() {
    check(
        "
        0s commit g - -1 expires=50s t-0=1
        0s commit g - -1 t-1=1
        49s expire 100s
        50s expire 100s
        50s fetch g
        50s reload
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s r1 commit NONE
            0s append 2: g t-1=1
            0s r2 commit NONE
            50s append 3: g t-0 gone
            50s note OffsetsRemoved cause: Expired group: g offsets: 1
            50s fetch t-1=1"#]],
    );
}

#[test]
fn offsets_under_way_do_not_expire() {
    check(
        "
        0s commit g - -1 t-0=1 t-1=1
        0s commit g - -1 txn=7 t-1=2
        0s hold
        0s commit g - -1 at=0s t-0=2
        100s expire 100s
        100s fetch g
        ",
        expect![[r#"
            0s append 1: g t-0=1; g t-1=1
            0s g is Empty
            0s r1 commit NONE NONE
            0s note MixedCommits group: g
            0s append 2 of 7: g t-1=2
            0s r2 commit NONE
            0s append 3: g t-0=2
            100s fetch t-0=1 t-1=1"#]],
    );
}

#[test]
fn groups_without_anything_are_removed() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join h client=c v4
        7s leave g a-1 b-1
        8s expire 100s
        8s list
        18s expire 100s
        18s list
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s note SubscriptionUnreadable group: g member_id: a-1
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:x b-1:z
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            6s append 1: g 1 range leader a-1 a-1=A b-1=B
            6s r3 sync NONE consumer/range 'A'
            6s rebalance g 1 Stable (Joined 'a-1' -): joining 6s, last b-1; assigning 0s by a-1; 2 members
            6s g is Stable
            6s r4 sync NONE consumer/range 'B'
            7s r5 join MEMBER_ID_REQUIRED 'c-1'
            7s h is Empty
            7s rebalance g 2 Empty (Left 'a-1' -): joining 0s, last null; assigning 0s by null; 0 members
            7s append 2: g 2 null leader null
            7s r6 leave NONE a-1/ NONE b-1/ NONE
            7s g is Empty
            8s append 3: g gone
            8s g is Dead
            8s note GroupRemoved group: g generation: 2
            8s g is gone
            8s list h '' Empty;
            17s note PendingMemberExpired group: h member_id: c-1
            18s note GroupRemoved group: h generation: 0
            18s h is gone
            18s list"#]],
    );
}

#[test]
fn tombstones_that_fail_are_written_again() {
    check(
        "
        0s commit g - -1 t-0=1
        100s hold
        100s expire 100s
        101s fail 2 NOT_ENOUGH_REPLICAS
        101s fetch g
        102s expire 100s
        102s done 3
        102s list
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s r1 commit NONE
            100s append 2: g t-0 gone
            100s g is Dead
            101s note TombstonesNotStored group: g error: CoordinatorNotAvailable
            101s g is Empty
            101s fetch t-0=1
            102s append 3: g t-0 gone
            102s g is Dead
            102s note OffsetsRemoved cause: Expired group: g offsets: 1
            102s note GroupRemoved group: g generation: 0
            102s g is gone
            102s list"#]],
    );
}

#[test]
fn a_loaded_group_knows_its_topics() {
    check(
        "
        0s commit g - -1 t-0=1 u-0=2 v-0=3
        0s join g client=a protocols=range@t
        3s sync g a-1 1 assign=a-1:A
        4s reload
        4s delete-offsets g t-0 u-0
        4s heartbeat g a-1 1
        13s heartbeat g a-1 1
        20s expire 15s
        20s fetch g
        ",
        expect![[r#"
            0s append 1: g t-0=1; g u-0=2; g v-0=3
            0s g is Empty
            0s r1 commit NONE NONE NONE
            0s g is PreparingRebalance
            3s r2 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s append 2: g 1 range leader a-1 a-1=A
            3s r3 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            4s append 4: g u-0 gone
            4s r4 delete-offsets NONE: GROUP_SUBSCRIBED_TO_TOPIC NONE
            4s note OffsetsRemoved cause: Deleted group: g offsets: 1
            4s r5 heartbeat NONE
            13s r6 heartbeat NONE
            20s append 5: g v-0 gone
            20s note OffsetsRemoved cause: Expired group: g offsets: 1
            20s fetch t-0=1"#]],
    );
}

#[test]
fn resigning_answers_commits_and_deletions_under_way() {
    check(
        "
        0s commit g - -1 t-0=1
        0s commit h - -1 t-0=1 u-0=1
        0s config metadata=3
        0s hold
        0s commit g - -1 t-0=1 t-1=1:long
        0s commit i - -1 txn=7 t-0=1
        0s delete h
        1s resign
        1s done 3
        1s list
        ",
        expect![[r#"
            0s append 1: g t-0=1
            0s g is Empty
            0s r1 commit NONE
            0s append 2: h t-0=1; h u-0=1
            0s h is Empty
            0s r2 commit NONE NONE
            0s append 3: g t-0=1
            0s append 4 of 7: i t-0=1
            0s i is Empty
            0s append 5: h t-0 gone; h u-0 gone
            0s h is Dead
            1s r3 commit NOT_COORDINATOR OFFSET_METADATA_TOO_LARGE
            1s r4 commit NOT_COORDINATOR
            1s r5 delete NOT_COORDINATOR
            1s g is gone
            1s h is gone
            1s i is gone
            1s list"#]],
    );
}

#[test]
fn offsets_do_not_expire_while_a_group_rebalances() {
    check(
        "
        0s commit g - -1 t-0=1 u-0=1
        0s join g client=a protocols=range@t
        1s expire 1s
        3s expire 1s
        3s fetch g
        ",
        expect![[r#"
            0s append 1: g t-0=1; g u-0=1
            0s g is Empty
            0s r1 commit NONE NONE
            0s g is PreparingRebalance
            3s r2 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s fetch t-0=1 u-0=1"#]],
    );
}

#[test]
fn a_group_is_deleted_while_some_of_its_offsets_are() {
    check(
        "
        0s commit g - -1 t-0=1 t-1=2 t-2=3
        0s hold
        0s delete-offsets g t-0
        0s delete g
        1s done 2
        1s describe g
        2s fail 3 NOT_ENOUGH_REPLICAS
        2s fetch g
        2s delete-offsets g t-1
        3s list
        3s delete g
        4s done 5
        5s done 4
        5s list
        ",
        expect![[r#"
            0s append 1: g t-0=1; g t-1=2; g t-2=3
            0s g is Empty
            0s r1 commit NONE NONE NONE
            0s append 2: g t-0 gone
            0s append 3: g t-0 gone; g t-1 gone; g t-2 gone
            0s g is Dead
            1s r2 delete-offsets NONE: NONE
            1s note OffsetsRemoved cause: Deleted group: g offsets: 1
            1s describe Dead ''/''
            2s r3 delete COORDINATOR_NOT_AVAILABLE
            2s note TombstonesNotStored group: g error: CoordinatorNotAvailable
            2s g is Empty
            2s fetch t-1=2 t-2=3
            2s append 4: g t-1 gone
            3s list g '' Empty;
            3s append 5: g t-1 gone; g t-2 gone
            3s g is Dead
            4s r5 delete NONE
            4s note OffsetsRemoved cause: GroupDeleted group: g offsets: 2
            4s note GroupRemoved group: g generation: 0
            4s g is gone
            5s r4 delete-offsets NONE: NONE
            5s list"#]],
    );
}
