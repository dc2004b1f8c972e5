//! JoinGroup: who is let in, with which answer.

use expect_test::expect;

use super::check;

#[test]
fn a_session_timeout_out_of_bounds_is_refused() {
    check(
        "
        0s join g session=5.999s
        0s join g session=1800.001s
        0s join g id=a session=5s
        0s list
        ",
        expect![[r#"
            0s r1 join INVALID_SESSION_TIMEOUT ''
            0s r2 join INVALID_SESSION_TIMEOUT ''
            0s r3 join INVALID_SESSION_TIMEOUT 'a'
            0s list"#]],
    );
}

#[test]
fn a_group_needs_a_name() {
    check(
        "
        0s join -
        ",
        expect!["0s r1 join INVALID_GROUP_ID ''"],
    );
}

#[test]
fn an_unknown_group_knows_no_member() {
    check(
        "
        0s join g id=a-1
        0s list
        ",
        expect![[r#"
            0s r1 join UNKNOWN_MEMBER_ID 'a-1'
            0s list"#]],
    );
}

#[test]
fn a_new_group_needs_a_protocol_type_and_a_protocol() {
    check(
        "
        0s join g type=
        0s join g protocols=
        0s list
        ",
        expect![[r#"
            0s r1 join INCONSISTENT_GROUP_PROTOCOL ''
            0s r2 join INCONSISTENT_GROUP_PROTOCOL ''
            0s list"#]],
    );
}

#[test]
fn a_member_must_share_type_and_protocol_with_the_group() {
    check(
        "
        0s join g client=a protocols=range:x,other:x
        0s join g client=b type=connect
        0s join g client=b protocols=third:x
        0s join g client=b protocols=
        3s join g client=b protocols=third:x
        3s sync g a-1 1 assign=a-1:A
        3s join g client=b protocols=third:x
        3s join g id=a-1 protocols=third:x
        3s join g client=b protocols=other:x
        ",
        expect![[r#"
            0s g is PreparingRebalance
            0s r2 join INCONSISTENT_GROUP_PROTOCOL ''
            0s r3 join INCONSISTENT_GROUP_PROTOCOL ''
            0s r4 join INCONSISTENT_GROUP_PROTOCOL ''
            3s note SubscriptionUnreadable group: g member_id: a-1
            3s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:x
            3s g is CompletingRebalance
            3s r5 join INCONSISTENT_GROUP_PROTOCOL ''
            3s append 1: g 1 range leader a-1 a-1=A
            3s r6 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            3s r7 join INCONSISTENT_GROUP_PROTOCOL ''
            3s r8 join INCONSISTENT_GROUP_PROTOCOL 'a-1'
            3s g is PreparingRebalance"#]],
    );
}

#[test]
fn a_new_dynamic_member_is_let_in_at_once_by_old_versions() {
    check(
        "
        0s join g client=a reason=start
        3s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            3s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_new_dynamic_member_is_told_its_id_first() {
    check(
        "
        0s join g client=a v4
        0s describe g
        1s join g id=a-1 v4
        4s pass
        ",
        expect![[r#"
            0s r1 join MEMBER_ID_REQUIRED 'a-1'
            0s g is Empty
            0s describe Empty ''/''
            1s g is PreparingRebalance
            4s r2 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            4s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_pending_member_has_one_session_timeout() {
    check(
        "
        0s join g client=a v4 session=6s
        0s join g client=b
        5s pass
        5s describe g
        7s join g id=a-1 v4
        7s describe g
        ",
        expect![[r#"
            0s r1 join MEMBER_ID_REQUIRED 'a-1'
            0s g is Empty
            0s g is PreparingRebalance
            3s r2 join NONE 'b-1' 1 consumer/range leader 'b-1' b-1:@t
            3s g is CompletingRebalance
            5s describe CompletingRebalance 'consumer'/'' b-1/ b /127.0.0.1 =
            6s note PendingMemberExpired group: g member_id: a-1
            7s r3 join UNKNOWN_MEMBER_ID 'a-1'
            7s describe CompletingRebalance 'consumer'/'' b-1/ b /127.0.0.1 ="#]],
    );
}

#[test]
fn a_pending_member_is_no_static_one() {
    check(
        "
        0s join g client=a v4
        0s join g id=a-1 as=i
        ",
        expect![[r#"
            0s r1 join MEMBER_ID_REQUIRED 'a-1'
            0s g is Empty
            0s r2 join UNKNOWN_SERVER_ERROR ''"#]],
    );
}

#[test]
fn a_full_group_refuses_new_members() {
    check(
        "
        0s config size=2 delay=0s
        0s join g client=a
        0s join g client=b
        1s pass
        1s join g client=c
        1s sync g a-1 2 assign=a-1:A,b-1:B
        1s join g client=c
        1s join g id=a-1
        2s join g client=c
        2s join g client=d
        2s join g id=b-1
        3s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            0s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            0s g is CompletingRebalance
            0s rebalance g 1 Restarted (Joined 'a-1' -): joining 0s, last a-1; assigning 0s by a-1; 2 members
            0s g is PreparingRebalance
            1s r4 sync ILLEGAL_GENERATION null/null ''
            1s r5 join GROUP_MAX_SIZE_REACHED ''
            1s r6 join GROUP_MAX_SIZE_REACHED ''
            1s r2 join NONE 'b-1' 2 consumer/range leader 'b-1' b-1:@t c-1:@t
            1s r3 join NONE 'c-1' 2 consumer/range leader 'b-1'
            1s g is CompletingRebalance
            2s r7 join GROUP_MAX_SIZE_REACHED ''
            2s r8 join GROUP_MAX_SIZE_REACHED ''
            2s r9 join NONE 'b-1' 2 consumer/range leader 'b-1' b-1:@t c-1:@t"#]],
    );
}

#[test]
fn members_may_take_so_many_bytes() {
    check(
        "
        0s config bytes=60
        0s join g client=a protocols=range:0123456789
        0s join g client=b protocols=range:0123456789
        0s join g client=c protocols=range:0123456789
        3s pass
        3s join g id=a-1 protocols=range:0123456789012345678901234567890
        3s join g id=a-1 protocols=range:012
        ",
        expect![[r#"
            0s g is PreparingRebalance
            0s r3 join GROUP_MAX_SIZE_REACHED ''
            3s r4 join GROUP_MAX_SIZE_REACHED ''
            3s r1 join REBALANCE_IN_PROGRESS 'a-1'"#]],
    );
}

#[test]
fn members_that_joined_go_first_where_a_group_is_over_its_size() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s config size=1
        8s reload
        9s heartbeat g a-1 1
        9s join g id=b-1
        9s join g id=a-1
        10s describe g
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
            8s note SubscriptionUnreadable group: g member_id: a-1
            8s g is PreparingRebalance
            9s r5 heartbeat REBALANCE_IN_PROGRESS
            9s r7 join GROUP_MAX_SIZE_REACHED ''
            9s r6 join NONE 'b-1' 2 consumer/range leader 'b-1' b-1:@t
            9s g is CompletingRebalance
            10s describe CompletingRebalance 'consumer'/'' b-1/ b /127.0.0.1 ="#]],
    );
}

#[test]
fn a_new_static_member_is_let_in_at_once() {
    check(
        "
        0s join g as=i v9
        3s describe g
        ",
        expect![[r#"
            0s g is PreparingRebalance
            3s r1 join NONE 'i-1' 1 consumer/range leader 'i-1' i-1/i:@t
            3s g is CompletingRebalance
            3s describe CompletingRebalance 'consumer'/'' i-1/i c /127.0.0.1 ="#]],
    );
}

#[test]
fn a_static_member_that_lost_its_id_keeps_its_place() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s join g as=j uuid=2 v9 protocols=range:z
        7s heartbeat g j-1 1 as=j
        7s heartbeat g j-2 1 as=j
        7s sync g j-2 1 as=j
        7s describe g
        8s reload
        8s describe g
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
            7s note StaticMemberReplaced group: g group_instance_id: j old_member_id: j-1 new_member_id: j-2
            7s append 2: g 1 range leader i-1 i-1=A j-2=B
            7s r5 join NONE 'j-2' 1 consumer/range leader 'i-1'
            7s r6 heartbeat FENCED_INSTANCE_ID
            7s r7 heartbeat NONE
            7s r8 sync NONE consumer/range 'B'
            7s describe Stable 'consumer'/'range' i-1/i a /127.0.0.1 x=A j-2/j b /127.0.0.1 z=B
            8s note SubscriptionUnreadable group: g member_id: i-1
            8s describe Stable 'consumer'/'range' i-1/i a /127.0.0.1 x=A j-2/j b /127.0.0.1 z=B"#]],
    );
}

#[test]
fn a_static_leader_that_lost_its_id_is_told_not_to_assign() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s join g as=i uuid=2 v9 protocols=range:x
        8s sync g i-2 1 as=i
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
            7s note StaticMemberReplaced group: g group_instance_id: i old_member_id: i-1 new_member_id: i-2
            7s append 2: g 1 range leader i-2 i-2=A j-1=B
            7s r5 join NONE 'i-2' 1 consumer/range leader 'i-2' skip i-2/i:x j-1/j:z
            8s r6 sync NONE consumer/range 'A'"#]],
    );
}

#[test]
fn an_old_static_leader_that_lost_its_id_is_not_told_that_it_leads() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s join g as=i uuid=2 v4 protocols=range:x
        8s sync g i-2 1 as=i
        8s join g id=i-2 as=i protocols=range:x
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
            7s note StaticMemberReplaced group: g group_instance_id: i old_member_id: i-1 new_member_id: i-2
            7s append 2: g 1 range leader i-2 i-2=A j-1=B
            7s r5 join NONE 'i-2' 1 consumer/range leader 'i-1'
            8s r6 sync NONE consumer/range 'A'
            8s g is PreparingRebalance"#]],
    );
}

#[test]
fn a_static_member_that_changes_the_protocol_rebalances() {
    check(
        "
        0s join g as=i protocols=range:x,other:x
        3s sync g i-1 1 assign=i-1:A
        4s join g as=i uuid=2 protocols=other:x
        ",
        expect![[r#"
            0s g is PreparingRebalance
            3s note SubscriptionUnreadable group: g member_id: i-1
            3s r1 join NONE 'i-1' 1 consumer/range leader 'i-1' i-1/i:x
            3s g is CompletingRebalance
            3s append 1: g 1 range leader i-1 i-1=A
            3s r2 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'i-1' -): joining 3s, last i-1; assigning 0s by i-1; 1 members
            3s g is Stable
            4s note StaticMemberReplaced group: g group_instance_id: i old_member_id: i-1 new_member_id: i-2
            4s note SubscriptionUnreadable group: g member_id: i-2
            4s r3 join NONE 'i-2' 2 consumer/other leader 'i-2' i-2/i:x
            4s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_static_member_replaced_while_assigning_rebalances() {
    check(
        "
        0s join g as=i protocols=range:x
        0s join g as=j protocols=range:z
        6s sync g j-1 1
        7s join g as=j uuid=2 protocols=range:z
        7s sync g i-1 1 assign=i-1:A
        8s join g id=i-1 as=i protocols=range:x
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s note SubscriptionUnreadable group: g member_id: i-1
            6s r1 join NONE 'i-1' 1 consumer/range leader 'i-1' i-1/i:x j-1/j:z
            6s r2 join NONE 'j-1' 1 consumer/range leader 'i-1'
            6s g is CompletingRebalance
            7s r3 sync FENCED_INSTANCE_ID null/null ''
            7s note StaticMemberReplaced group: g group_instance_id: j old_member_id: j-1 new_member_id: j-2
            7s rebalance g 1 Restarted (Joined 'i-1' -): joining 6s, last j-1; assigning 1s by i-1; 2 members
            7s g is PreparingRebalance
            7s r5 sync REBALANCE_IN_PROGRESS null/null ''
            8s note SubscriptionUnreadable group: g member_id: i-1
            8s r6 join NONE 'i-1' 2 consumer/range leader 'i-1' i-1/i:x j-2/j:z
            8s r4 join NONE 'j-2' 2 consumer/range leader 'i-1'
            8s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_static_member_replaced_while_joining_fences_the_one_that_waits() {
    check(
        "
        0s join g as=i protocols=range:x
        1s join g as=i uuid=2 protocols=range:x
        2s join g id=i-1 as=i
        3s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            1s r1 join FENCED_INSTANCE_ID 'i-1'
            1s note StaticMemberReplaced group: g group_instance_id: i old_member_id: i-1 new_member_id: i-2
            2s r3 join FENCED_INSTANCE_ID 'i-1'
            3s note SubscriptionUnreadable group: g member_id: i-2
            3s r2 join NONE 'i-2' 1 consumer/range leader 'i-2' i-2/i:x
            3s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_static_members_new_id_counts_once_it_is_stored() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s hold
        7s join g as=j uuid=2 v9 protocols=range:y
        8s heartbeat g i-1 1
        8s done 2
        8s describe g
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
            7s note StaticMemberReplaced group: g group_instance_id: j old_member_id: j-1 new_member_id: j-2
            7s append 2: g 1 range leader i-1 i-1=A j-2=B
            8s r6 heartbeat NONE
            8s r5 join NONE 'j-2' 1 consumer/range leader 'i-1'
            8s describe Stable 'consumer'/'range' i-1/i a /127.0.0.1 x=A j-2/j b /127.0.0.1 y=B"#]],
    );
}

#[test]
fn a_static_members_new_id_that_is_not_stored_is_taken_back() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s hold
        7s join g as=i uuid=2 v9 protocols=range:y
        8s fail 2 NOT_LEADER_OR_FOLLOWER
        8s describe g
        8s heartbeat g i-1 1 as=i
        8s join g id=j-1 as=j protocols=range:z
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
            7s note StaticMemberReplaced group: g group_instance_id: i old_member_id: i-1 new_member_id: i-2
            7s append 2: g 1 range leader i-2 i-2=A j-1=B
            8s r5 join NOT_COORDINATOR '' 1 consumer/range leader 'i-1'
            8s describe Stable 'consumer'/'range' i-1/i a /127.0.0.1 x=A j-1/j b /127.0.0.1 z=B
            8s r6 heartbeat NONE
            8s r7 join NONE 'j-1' 1 consumer/range leader 'i-1'"#]],
    );
}

#[test]
fn a_rebalance_takes_along_a_static_member_that_is_being_stored() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s hold
        7s join g as=j uuid=2 v9 protocols=range:z
        7s join g id=i-1 as=i protocols=range:x
        8s done 2
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
            7s note StaticMemberReplaced group: g group_instance_id: j old_member_id: j-1 new_member_id: j-2
            7s append 2: g 1 range leader i-1 i-1=A j-2=B
            7s note SubscriptionUnreadable group: g member_id: i-1
            7s r6 join NONE 'i-1' 2 consumer/range leader 'i-1' i-1/i:x j-2/j:z
            7s r5 join NONE 'j-2' 2 consumer/range leader 'i-1'
            7s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_fenced_or_unknown_member_cannot_join() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s join g id=x-1
        7s join g id=x-1 as=i
        7s join g id=x-1 as=k
        7s join g id=i-1 as=j
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
            7s r5 join UNKNOWN_MEMBER_ID 'x-1'
            7s r6 join FENCED_INSTANCE_ID 'x-1'
            7s r7 join UNKNOWN_MEMBER_ID 'x-1'
            7s r8 join FENCED_INSTANCE_ID 'i-1'"#]],
    );
}

#[test]
fn a_known_member_joins_again_while_others_are_awaited() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g id=a-1 protocols=range:x,other:y
        8s join g id=a-1 protocols=range:new,other:y
        8s heartbeat g b-1 1
        9s join g id=b-1 protocols=range:z,other:w
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
            8s r5 join REBALANCE_IN_PROGRESS 'a-1'
            8s r7 heartbeat REBALANCE_IN_PROGRESS
            9s note SubscriptionUnreadable group: g member_id: a-1
            9s r6 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:new b-1:z
            9s r8 join NONE 'b-1' 2 consumer/range leader 'a-1'
            9s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_known_member_gets_the_generation_again_while_the_leader_assigns() {
    check(
        "
        0s join g client=a protocols=range:x
        0s join g client=b protocols=range:z
        6s join g id=a-1 protocols=range:x
        6s join g id=b-1 protocols=range:z
        7s join g id=b-1 protocols=range:new
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s note SubscriptionUnreadable group: g member_id: a-1
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:x b-1:z
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            6s r3 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:x b-1:z
            6s r4 join NONE 'b-1' 1 consumer/range leader 'a-1'
            7s rebalance g 1 Restarted (Joined 'a-1' -): joining 6s, last b-1; assigning 1s by a-1; 2 members
            7s g is PreparingRebalance"#]],
    );
}

#[test]
fn a_stable_group_answers_followers_and_rebalances_for_its_leader() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g id=b-1 protocols=range:z,other:w
        8s join g id=a-1 protocols=range:x,other:y reason=partitions
        9s join g id=b-1 protocols=range:z,other:w
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
            7s r5 join NONE 'b-1' 1 consumer/range leader 'a-1'
            8s g is PreparingRebalance
            9s note SubscriptionUnreadable group: g member_id: a-1
            9s r6 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:x b-1:z
            9s r7 join NONE 'b-1' 2 consumer/range leader 'a-1'
            9s g is CompletingRebalance"#]],
    );
}

#[test]
fn changed_metadata_rebalance() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g id=b-1 protocols=range:new,other:w
        7s join g id=a-1 protocols=range:x,other:y
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
            7s note SubscriptionUnreadable group: g member_id: a-1
            7s r6 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:x b-1:new
            7s r5 join NONE 'b-1' 2 consumer/range leader 'a-1'
            7s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_group_that_is_being_deleted_asks_to_come_back() {
    check(
        "
        0s join g client=a v4
        0s commit g - -1 t-0=1
        0s hold
        0s delete g
        1s join g client=b
        1s join g id=a-1
        1s sync g a-1 1
        1s heartbeat g a-1 1
        1s leave g a-1
        1s commit g - -1 t-0=1
        1s delete g
        1s delete-offsets g t-0
        1s fetch g t-0
        1s describe g
        2s done 2
        2s join g client=b
        ",
        expect![[r#"
            0s r1 join MEMBER_ID_REQUIRED 'a-1'
            0s g is Empty
            0s append 1: g t-0=1
            0s r2 commit NONE
            0s append 2: g t-0 gone
            0s g is Dead
            1s r4 join COORDINATOR_NOT_AVAILABLE ''
            1s r5 join COORDINATOR_NOT_AVAILABLE 'a-1'
            1s r6 sync COORDINATOR_NOT_AVAILABLE null/null ''
            1s r7 heartbeat COORDINATOR_NOT_AVAILABLE
            1s r8 leave COORDINATOR_NOT_AVAILABLE
            1s r9 commit COORDINATOR_NOT_AVAILABLE
            1s r10 delete GROUP_ID_NOT_FOUND
            1s r11 delete-offsets GROUP_ID_NOT_FOUND:
            1s fetch t-0=-1
            1s describe Dead ''/''
            2s r3 delete NONE
            2s note OffsetsRemoved cause: GroupDeleted group: g offsets: 1
            2s note GroupRemoved group: g generation: 0
            2s g is gone
            2s g is PreparingRebalance"#]],
    );
}

#[test]
fn the_protocol_with_most_votes_wins() {
    check(
        "
        0s join g client=a protocols=other:1,range:1
        0s join g client=b protocols=range:2,other:2,third:2
        0s join g client=c protocols=range:3,other:3
        6s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s note SubscriptionUnreadable group: g member_id: a-1
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:1 b-1:2 c-1:3
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s r3 join NONE 'c-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance"#]],
    );
}

#[test]
fn a_protocol_named_twice_counts_once() {
    check(
        "
        0s join g client=a protocols=range:1,range:2
        3s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            3s note SubscriptionUnreadable group: g member_id: a-1
            3s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:1
            3s g is CompletingRebalance"#]],
    );
}
