//! The phases of a rebalance: delays, deadlines, leaders, loading.

use expect_test::expect;

use super::check;

#[test]
fn the_first_joiner_waits_for_others() {
    check(
        "
        0s join g client=a
        2.9s describe g
        3s describe g
        ",
        expect![[r#"
            0s g is PreparingRebalance
            2.9s describe PreparingRebalance 'consumer'/'' a-1/ a /127.0.0.1 =
            3s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s describe CompletingRebalance 'consumer'/'' a-1/ a /127.0.0.1 ="#]],
    );
}

#[test]
fn others_extend_the_first_wait_up_to_the_rebalance_timeout() {
    check(
        "
        0s join g client=a rebalance=10s
        2s join g client=b rebalance=10s
        5s join g client=c rebalance=10s
        8s join g client=d rebalance=10s
        9.5s join g client=e rebalance=10s
        10s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            10s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t b-1:@t c-1:@t d-1:@t e-1:@t
            10s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            10s r3 join NONE 'c-1' 1 consumer/range leader 'a-1'
            10s r4 join NONE 'd-1' 1 consumer/range leader 'a-1'
            10s r5 join NONE 'e-1' 1 consumer/range leader 'a-1'
            10s g is CompletingRebalance"#]],
    );
}

#[test]
fn only_the_very_first_rebalance_is_extended() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s leave g a-1 b-1
        8s join g client=c
        9s join g client=d
        11s pass
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
            7s rebalance g 2 Empty (Left 'a-1' -): joining 0s, last null; assigning 0s by null; 0 members
            7s append 2: g 2 null leader null
            7s r5 leave NONE a-1/ NONE b-1/ NONE
            7s g is Empty
            8s g is PreparingRebalance
            11s r6 join NONE 'c-1' 3 consumer/range leader 'c-1' c-1:@t d-1:@t
            11s r7 join NONE 'd-1' 3 consumer/range leader 'c-1'
            11s g is CompletingRebalance"#]],
    );
}

#[test]
fn all_joined_ends_the_phase() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g client=c protocols=range:x
        8s join g id=a-1 protocols=range:x
        9s join g id=b-1 protocols=range:z
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
            7s g is PreparingRebalance
            9s note SubscriptionUnreadable group: g member_id: a-1
            9s r6 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:x b-1:z c-1:x
            9s r7 join NONE 'b-1' 2 consumer/range leader 'a-1'
            9s r5 join NONE 'c-1' 2 consumer/range leader 'a-1'
            9s g is CompletingRebalance"#]],
    );
}

#[test]
fn who_does_not_join_in_time_is_out() {
    check(
        "
        0s join g client=a rebalance=20s session=30s
        0s join g client=b rebalance=20s session=30s
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g id=a-1 rebalance=20s session=30s
        20s heartbeat g b-1 1
        27s describe g
        27s heartbeat g b-1 1
        28s sync g a-1 2 assign=a-1:A
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t b-1:@t
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            6s append 1: g 1 range leader a-1 a-1=A b-1=B
            6s r3 sync NONE consumer/range 'A'
            6s rebalance g 1 Stable (Joined 'a-1' -): joining 6s, last b-1; assigning 0s by a-1; 2 members
            6s g is Stable
            6s r4 sync NONE consumer/range 'B'
            7s g is PreparingRebalance
            20s r6 heartbeat REBALANCE_IN_PROGRESS
            27s r5 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:@t
            27s g is CompletingRebalance
            27s describe CompletingRebalance 'consumer'/'' a-1/ a /127.0.0.1 =
            27s r7 heartbeat UNKNOWN_MEMBER_ID
            28s append 2: g 2 range leader a-1 a-1=A
            28s r8 sync NONE consumer/range 'A'
            28s rebalance g 2 Stable (LeaderRejoined 'a-1' -): joining 20s, last a-1 without b-1; assigning 1s by a-1; 1 members
            28s g is Stable"#]],
    );
}

#[test]
fn a_pending_member_is_waited_for() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g client=c v4 protocols=range:x
        8s join g id=a-1 protocols=range:x
        8s join g id=b-1 protocols=range:z
        9s join g id=c-1 protocols=range:y
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
            8s g is PreparingRebalance
            9s note SubscriptionUnreadable group: g member_id: a-1
            9s r6 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:x b-1:z c-1:y
            9s r7 join NONE 'b-1' 2 consumer/range leader 'a-1'
            9s r8 join NONE 'c-1' 2 consumer/range leader 'a-1'
            9s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_static_member_that_does_not_join_stays_until_its_session_ends() {
    check(
        "
        0s join g as=i rebalance=10s session=40s
        0s join g as=j rebalance=10s session=40s
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s join g id=i-1 as=i rebalance=10s session=40s
        17s describe g
        18s sync g i-1 2 assign=i-1:A,j-1:B
        26s heartbeat g i-1 2
        27s describe g
        57s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'i-1' 1 consumer/range leader 'i-1' i-1/i:@t j-1/j:@t
            6s r2 join NONE 'j-1' 1 consumer/range leader 'i-1'
            6s g is CompletingRebalance
            6s append 1: g 1 range leader i-1 i-1=A j-1=B
            6s r3 sync NONE consumer/range 'A'
            6s rebalance g 1 Stable (Joined 'i-1' -): joining 6s, last j-1; assigning 0s by i-1; 2 members
            6s g is Stable
            6s r4 sync NONE consumer/range 'B'
            7s g is PreparingRebalance
            17s r5 join NONE 'i-1' 2 consumer/range leader 'i-1' i-1/i:@t j-1/j:@t
            17s g is CompletingRebalance
            17s describe CompletingRebalance 'consumer'/'' i-1/i c /127.0.0.1 = j-1/j c /127.0.0.1 =
            18s append 2: g 2 range leader i-1 i-1=A j-1=B
            18s r6 sync NONE consumer/range 'A'
            18s rebalance g 2 Stable (LeaderRejoined 'i-1' -): joining 10s, last i-1; assigning 1s by i-1; 2 members
            18s g is Stable
            26s r7 heartbeat NONE
            27s note MembersDidNotSync group: g generation: 2 members: [j-1]
            27s g is PreparingRebalance
            27s describe PreparingRebalance 'consumer'/'' i-1/i c /127.0.0.1 =
            37s note NobodyJoined group: g members: 1
            47s note NobodyJoined group: g members: 1
            57s note NobodyJoined group: g members: 1"#]],
    );
}

#[test]
fn another_member_leads_where_the_leader_does_not_join() {
    check(
        "
        0s join g as=i rebalance=10s session=40s
        0s join g as=j rebalance=10s session=40s
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s join g id=j-1 as=j rebalance=10s session=40s protocols=range@u
        17s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'i-1' 1 consumer/range leader 'i-1' i-1/i:@t j-1/j:@t
            6s r2 join NONE 'j-1' 1 consumer/range leader 'i-1'
            6s g is CompletingRebalance
            6s append 1: g 1 range leader i-1 i-1=A j-1=B
            6s r3 sync NONE consumer/range 'A'
            6s rebalance g 1 Stable (Joined 'i-1' -): joining 6s, last j-1; assigning 0s by i-1; 2 members
            6s g is Stable
            6s r4 sync NONE consumer/range 'B'
            7s g is PreparingRebalance
            17s note LeaderReplaced group: g old_member_id: i-1 new_member_id: j-1
            17s r5 join NONE 'j-1' 2 consumer/range leader 'j-1' i-1/i:@t j-1/j:@u
            17s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_group_nobody_joined_waits_again() {
    check(
        "
        0s join g as=i rebalance=10s session=60s
        0s join g as=j rebalance=10s session=60s
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s join g client=c rebalance=10s
        8s leave g c-1
        17s pass
        30s pass
        67s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'i-1' 1 consumer/range leader 'i-1' i-1/i:@t j-1/j:@t
            6s r2 join NONE 'j-1' 1 consumer/range leader 'i-1'
            6s g is CompletingRebalance
            6s append 1: g 1 range leader i-1 i-1=A j-1=B
            6s r3 sync NONE consumer/range 'A'
            6s rebalance g 1 Stable (Joined 'i-1' -): joining 6s, last j-1; assigning 0s by i-1; 2 members
            6s g is Stable
            6s r4 sync NONE consumer/range 'B'
            7s g is PreparingRebalance
            8s r5 join UNKNOWN_MEMBER_ID ''
            8s r6 leave NONE c-1/ NONE
            17s note NobodyJoined group: g members: 2
            27s note NobodyJoined group: g members: 2
            37s note NobodyJoined group: g members: 2
            47s note NobodyJoined group: g members: 2
            57s note NobodyJoined group: g members: 2
            66s note MemberExpired group: g member_id: i-1
            66s note MemberExpired group: g member_id: j-1
            66s rebalance g 2 Empty (Joined 'c-1' -): joining 59s, last c-1; assigning 0s by null; 0 members
            66s append 2: g 2 null leader null
            66s g is Empty"#]],
    );
}

#[test]
fn a_member_that_joined_may_be_the_last_one_missing() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g id=b-1 protocols=range:new
        16s pass
        17s pass
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
            7s g is PreparingRebalance
            16s note MemberExpired group: g member_id: a-1
            16s note SubscriptionUnreadable group: g member_id: b-1
            16s r5 join NONE 'b-1' 2 consumer/range leader 'b-1' b-1:new
            16s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_rebalance_begins_again_while_the_leader_assigns() {
    check(
        "
        0s join g client=a
        0s join g client=b
        6s sync g b-1 1
        8s join g client=c
        9s join g id=a-1
        9s join g id=b-1
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t b-1:@t
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            8s r3 sync REBALANCE_IN_PROGRESS null/null ''
            8s rebalance g 1 Restarted (Joined 'a-1' -): joining 6s, last b-1; assigning 2s by a-1; 3 members
            8s g is PreparingRebalance
            9s r5 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:@t b-1:@t c-1:@t
            9s r6 join NONE 'b-1' 2 consumer/range leader 'a-1'
            9s r4 join NONE 'c-1' 2 consumer/range leader 'a-1'
            9s g is CompletingRebalance"#]],
    );
}

#[test]
fn members_of_a_loaded_group_have_a_session() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s reload
        7s describe g
        8s heartbeat g a-1 1
        16s sync g b-1 1
        18s pass
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
            7s note SubscriptionUnreadable group: g member_id: a-1
            7s describe Stable 'consumer'/'range' a-1/ a /127.0.0.1 x=A b-1/ b /127.0.0.1 z=B
            8s r5 heartbeat NONE
            16s r6 sync NONE consumer/range 'B'
            18s note MemberExpired group: g member_id: a-1
            18s g is PreparingRebalance"#]],
    );
}

#[test]
fn a_loaded_group_that_is_too_large_rebalances() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s config size=1
        7s reload
        8s commit g b-1 1 t-0=5
        9s join g id=b-1 protocols=range:z
        9s join g id=a-1 protocols=range:x
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
            7s note SubscriptionUnreadable group: g member_id: a-1
            7s g is PreparingRebalance
            8s append 1: g t-0=5
            8s r5 commit NONE
            9s r7 join GROUP_MAX_SIZE_REACHED ''
            9s note SubscriptionUnreadable group: g member_id: b-1
            9s r6 join NONE 'b-1' 2 consumer/range leader 'b-1' b-1:z
            9s g is CompletingRebalance"#]],
    );
}

#[test]
fn an_empty_generation_that_is_not_stored_is_said() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s hold
        7s leave g a-1 b-1
        8s fail 2 NOT_ENOUGH_REPLICAS
        8s describe g
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
            7s rebalance g 2 Empty (Left 'a-1' -): joining 0s, last null; assigning 0s by null; 0 members
            7s append 2: g 2 null leader null
            7s r5 leave NONE a-1/ NONE b-1/ NONE
            7s g is Empty
            8s note GroupNotStored group: g generation: 2 error: NotEnoughReplicas
            8s describe Empty 'consumer'/''"#]],
    );
}

#[test]
fn groups_are_listed_by_state() {
    check(
        "
        0s join g client=a
        0s commit h - -1 t-0=1
        1s list
        1s list empty STABLE
        1s list PreparingRebalance
        ",
        expect![[r#"
            0s g is PreparingRebalance
            0s append 1: h t-0=1
            0s h is Empty
            0s r2 commit NONE
            1s list g 'consumer' PreparingRebalance; h '' Empty;
            1s list h '' Empty;
            1s list g 'consumer' PreparingRebalance;"#]],
    );
}

#[test]
fn a_pending_member_that_does_not_come_holds_up_nobody_for_long() {
    check(
        "
        0s join g client=a
        3s sync g a-1 1 assign=a-1:A
        4s join g client=b v4 session=6s
        5s join g id=a-1
        10s pass
        10s describe g
        ",
        expect![[r#"
            0s g is PreparingRebalance
            3s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s append 1: g 1 range leader a-1 a-1=A
            3s r2 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            4s r3 join MEMBER_ID_REQUIRED 'b-1'
            5s g is PreparingRebalance
            10s note PendingMemberExpired group: g member_id: b-1
            10s r4 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:@t
            10s g is CompletingRebalance
            10s describe CompletingRebalance 'consumer'/'' a-1/ a /127.0.0.1 ="#]],
    );
}

#[test]
fn all_members_left_while_one_is_pending() {
    check(
        "
        0s join g client=a
        3s sync g a-1 1 assign=a-1:A
        4s join g client=b v4
        5s leave g a-1
        5s describe g
        6s join g id=b-1 v4
        9s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            3s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s append 1: g 1 range leader a-1 a-1=A
            3s r2 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            4s r3 join MEMBER_ID_REQUIRED 'b-1'
            5s r4 leave NONE a-1/ NONE
            5s g is PreparingRebalance
            5s rebalance g 2 Empty (Left 'a-1' -): joining 0s, last null; assigning 0s by null; 0 members
            5s append 2: g 2 null leader null
            5s g is Empty
            5s describe Empty 'consumer'/''
            6s g is PreparingRebalance
            9s r5 join NONE 'b-1' 3 consumer/range leader 'b-1' b-1:@t
            9s g is CompletingRebalance"#]],
    );
}
