//! SyncGroup, Heartbeat, LeaveGroup, and sessions that end.

use expect_test::expect;

use super::check;

#[test]
fn sync_checks_member_generation_and_protocol() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s sync g x-1 1
        7s sync g x-1 1 as=i
        7s sync g x-1 1 as=k
        7s sync g i-1 2
        7s sync g i-1 1 type=connect
        7s sync g i-1 1 name=other
        7s sync g i-1 1 type=consumer name=range
        7s sync h i-1 1
        7s sync - i-1 1
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
            7s r5 sync UNKNOWN_MEMBER_ID null/null ''
            7s r6 sync FENCED_INSTANCE_ID null/null ''
            7s r7 sync UNKNOWN_MEMBER_ID null/null ''
            7s r8 sync ILLEGAL_GENERATION null/null ''
            7s r9 sync INCONSISTENT_GROUP_PROTOCOL null/null ''
            7s r10 sync INCONSISTENT_GROUP_PROTOCOL null/null ''
            7s r11 sync NONE consumer/range 'A'
            7s r12 sync UNKNOWN_MEMBER_ID null/null ''
            7s r13 sync INVALID_GROUP_ID null/null ''"#]],
    );
}

#[test]
fn sync_waits_for_the_leader_and_its_record() {
    check(
        "
        0s hold
        0s join g client=a
        0s join g client=b
        6s sync g b-1 1
        7s sync g a-1 1 assign=a-1:A,b-1:B
        7s commit g a-1 1 t-0=1
        8s done 1
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t b-1:@t
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            7s append 1: g 1 range leader a-1 a-1=A b-1=B
            7s r5 commit REBALANCE_IN_PROGRESS
            8s r4 sync NONE consumer/range 'A'
            8s r3 sync NONE consumer/range 'B'
            8s rebalance g 1 Stable (Joined 'a-1' -): joining 6s, last b-1; assigning 2s by a-1; 2 members
            8s g is Stable"#]],
    );
}

#[test]
fn sync_while_joining_rebalances() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g client=c
        7s sync g a-1 1
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
            7s r6 sync REBALANCE_IN_PROGRESS null/null ''"#]],
    );
}

#[test]
fn an_assignment_that_leaves_members_out_gives_them_nothing() {
    check(
        "
        0s join g client=a
        0s join g client=b
        6s sync g b-1 1
        6s sync g a-1 1 assign=a-1:A,stranger-1:S
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t b-1:@t
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            6s note MembersWithoutAssignment group: g generation: 1 members: 1
            6s append 1: g 1 range leader a-1 a-1=A b-1=
            6s r4 sync NONE consumer/range 'A'
            6s r3 sync NONE consumer/range ''
            6s rebalance g 1 Stable (Joined 'a-1' -): joining 6s, last b-1; assigning 0s by a-1; 2 members
            6s g is Stable"#]],
    );
}

#[test]
fn a_second_sync_of_a_member_takes_the_place_of_the_first() {
    check(
        "
        0s hold
        0s join g client=a
        0s join g client=b
        6s sync g b-1 1
        6s sync g b-1 1
        7s sync g a-1 1 assign=a-1:A,b-1:B
        7s sync g a-1 1 assign=a-1:A,b-1:B
        8s done 1
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t b-1:@t
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            6s r3 sync REBALANCE_IN_PROGRESS null/null ''
            7s append 1: g 1 range leader a-1 a-1=A b-1=B
            7s r5 sync REBALANCE_IN_PROGRESS null/null ''
            8s r6 sync NONE consumer/range 'A'
            8s r4 sync NONE consumer/range 'B'
            8s rebalance g 1 Stable (Joined 'a-1' -): joining 6s, last b-1; assigning 2s by a-1; 2 members
            8s g is Stable"#]],
    );
}

#[test]
fn an_assignment_that_is_not_stored_rebalances() {
    check(
        "
        0s hold
        0s join g client=a
        0s join g client=b
        6s sync g b-1 1
        6s sync g a-1 1 assign=a-1:A,b-1:B
        7s fail 1 NOT_ENOUGH_REPLICAS
        7s heartbeat g a-1 1
        8s join g id=a-1
        8s join g id=b-1
        9s sync g a-1 2 assign=a-1:A,b-1:B
        9s fail 2 REQUEST_TIMED_OUT
        10s join g id=a-1
        10s join g id=b-1
        11s sync g a-1 3 assign=a-1:A,b-1:B
        11s fail 3 MESSAGE_TOO_LARGE
        12s join g id=a-1
        12s join g id=b-1
        13s sync g a-1 4 assign=a-1:A,b-1:B
        13s fail 4 NOT_LEADER_OR_FOLLOWER
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t b-1:@t
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            6s append 1: g 1 range leader a-1 a-1=A b-1=B
            7s note GroupNotStored group: g generation: 1 error: CoordinatorNotAvailable
            7s r4 sync COORDINATOR_NOT_AVAILABLE null/null ''
            7s r3 sync COORDINATOR_NOT_AVAILABLE null/null ''
            7s rebalance g 1 Restarted (Joined 'a-1' -): joining 6s, last b-1; assigning 1s by a-1; 2 members
            7s g is PreparingRebalance
            7s r5 heartbeat REBALANCE_IN_PROGRESS
            8s r6 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:@t b-1:@t
            8s r7 join NONE 'b-1' 2 consumer/range leader 'a-1'
            8s g is CompletingRebalance
            9s append 2: g 2 range leader a-1 a-1=A b-1=B
            9s note GroupNotStored group: g generation: 2 error: RebalanceInProgress
            9s r8 sync REBALANCE_IN_PROGRESS null/null ''
            9s rebalance g 2 Restarted (AssignmentNotStored(CoordinatorNotAvailable) 'a-1' -): joining 1s, last b-1; assigning 1s by a-1; 2 members
            9s g is PreparingRebalance
            10s r9 join NONE 'a-1' 3 consumer/range leader 'a-1' a-1:@t b-1:@t
            10s r10 join NONE 'b-1' 3 consumer/range leader 'a-1'
            10s g is CompletingRebalance
            11s append 3: g 3 range leader a-1 a-1=A b-1=B
            11s note GroupNotStored group: g generation: 3 error: UnknownServerError
            11s r11 sync UNKNOWN_SERVER_ERROR null/null ''
            11s rebalance g 3 Restarted (AssignmentNotStored(RebalanceInProgress) 'a-1' -): joining 1s, last b-1; assigning 1s by a-1; 2 members
            11s g is PreparingRebalance
            12s r12 join NONE 'a-1' 4 consumer/range leader 'a-1' a-1:@t b-1:@t
            12s r13 join NONE 'b-1' 4 consumer/range leader 'a-1'
            12s g is CompletingRebalance
            13s append 4: g 4 range leader a-1 a-1=A b-1=B
            13s note GroupNotStored group: g generation: 4 error: NotCoordinator
            13s r14 sync NOT_COORDINATOR null/null ''
            13s rebalance g 4 Restarted (AssignmentNotStored(UnknownServerError) 'a-1' -): joining 1s, last b-1; assigning 1s by a-1; 2 members
            13s g is PreparingRebalance"#]],
    );
}

#[test]
fn an_assignment_stored_too_late_is_forgotten() {
    check(
        "
        0s hold
        0s join g client=a
        0s join g client=b
        6s sync g a-1 1 assign=a-1:A,b-1:B
        7s join g client=c
        8s done 1
        8s join g id=a-1
        8s join g id=b-1
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t b-1:@t
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            6s append 1: g 1 range leader a-1 a-1=A b-1=B
            7s r3 sync REBALANCE_IN_PROGRESS null/null ''
            7s rebalance g 1 Restarted (Joined 'a-1' -): joining 6s, last b-1; assigning 1s by a-1; 3 members
            7s g is PreparingRebalance
            8s r5 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:@t b-1:@t c-1:@t
            8s r6 join NONE 'b-1' 2 consumer/range leader 'a-1'
            8s r4 join NONE 'c-1' 2 consumer/range leader 'a-1'
            8s g is CompletingRebalance"#]],
    );
}

#[test]
fn members_that_do_not_sync_are_out() {
    check(
        "
        0s join g client=a rebalance=20s
        0s join g client=b rebalance=20s
        6s sync g a-1 1 assign=a-1:A,b-1:B
        15s heartbeat g a-1 1
        15s heartbeat g b-1 1
        24s heartbeat g a-1 1
        24s heartbeat g b-1 1
        27s describe g
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
            15s r4 heartbeat NONE
            15s r5 heartbeat NONE
            24s r6 heartbeat NONE
            24s r7 heartbeat NONE
            26s note MembersDidNotSync group: g generation: 1 members: [b-1]
            26s g is PreparingRebalance
            27s describe PreparingRebalance 'consumer'/'' a-1/ a /127.0.0.1 ="#]],
    );
}

#[test]
fn heartbeats_say_what_is_going_on() {
    check(
        "
        0s heartbeat g a-1 1
        0s heartbeat - a-1 1
        0s commit g - -1 t-0=1
        0s heartbeat g a-1 0
        0s join g client=a
        3s heartbeat g a-1 1
        3s heartbeat g a-1 0
        3s heartbeat g b-1 1
        3s sync g a-1 1 assign=a-1:A
        3s heartbeat g a-1 1
        4s join g client=b
        4s heartbeat g a-1 1
        ",
        expect![[r#"
            0s r1 heartbeat UNKNOWN_MEMBER_ID
            0s r2 heartbeat INVALID_GROUP_ID
            0s append 1: g t-0=1
            0s g is Empty
            0s r3 commit NONE
            0s r4 heartbeat UNKNOWN_MEMBER_ID
            0s g is PreparingRebalance
            3s r5 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s g is CompletingRebalance
            3s r6 heartbeat NONE
            3s r7 heartbeat ILLEGAL_GENERATION
            3s r8 heartbeat UNKNOWN_MEMBER_ID
            3s append 2: g 1 range leader a-1 a-1=A
            3s r9 sync NONE consumer/range 'A'
            3s rebalance g 1 Stable (Joined 'a-1' -): joining 3s, last a-1; assigning 0s by a-1; 1 members
            3s g is Stable
            3s r10 heartbeat NONE
            4s g is PreparingRebalance
            4s r12 heartbeat REBALANCE_IN_PROGRESS"#]],
    );
}

#[test]
fn a_static_member_is_fenced() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s heartbeat g i-1 1 as=j
        7s heartbeat g i-1 1 as=k
        7s heartbeat g x-1 1 as=i
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
            7s r5 heartbeat FENCED_INSTANCE_ID
            7s r6 heartbeat UNKNOWN_MEMBER_ID
            7s r7 heartbeat FENCED_INSTANCE_ID"#]],
    );
}

#[test]
fn members_leave() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s leave g x-1 a-1 reason=bored
        7s join g id=b-1 protocols=range:z
        8s leave g b-1
        8s leave h a-1
        8s leave - a-1
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
            7s r5 leave NONE x-1/ UNKNOWN_MEMBER_ID a-1/ NONE
            7s g is PreparingRebalance
            7s note SubscriptionUnreadable group: g member_id: b-1
            7s r6 join NONE 'b-1' 2 consumer/range leader 'b-1' b-1:z
            7s g is CompletingRebalance
            8s rebalance g 2 Restarted (Left 'a-1' bored): joining 0s, last b-1; assigning 1s by null; 0 members
            8s rebalance g 3 Empty (Left 'b-1' -): joining 0s, last null; assigning 0s by null; 0 members
            8s append 2: g 3 null leader null
            8s r7 leave NONE b-1/ NONE
            8s g is Empty
            8s r8 leave NONE a-1/ UNKNOWN_MEMBER_ID
            8s r9 leave INVALID_GROUP_ID"#]],
    );
}

#[test]
fn members_leave_while_the_group_collects_joins() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g client=c protocols=range:x
        8s leave g a-1
        8s join g id=b-1 protocols=range:z
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
            8s r6 leave NONE a-1/ NONE
            8s note SubscriptionUnreadable group: g member_id: b-1
            8s r7 join NONE 'b-1' 2 consumer/range leader 'b-1' b-1:z c-1:x
            8s r5 join NONE 'c-1' 2 consumer/range leader 'b-1'
            8s g is CompletingRebalance"#]],
    );
}

#[test]
fn the_last_member_leaves_an_empty_group() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s leave g a-1 b-1
        7s describe g
        8s reload
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
            7s describe Empty 'consumer'/''
            8s describe Empty 'consumer'/''"#]],
    );
}

#[test]
fn a_pending_member_leaves() {
    check(
        "
        0s config delay=0s
        0s join g client=a v4
        0s join g client=b
        1s leave g a-1
        1s pass
        ",
        expect![[r#"
            0s r1 join MEMBER_ID_REQUIRED 'a-1'
            0s g is Empty
            0s g is PreparingRebalance
            0s r2 join NONE 'b-1' 1 consumer/range leader 'b-1' b-1:@t
            0s g is CompletingRebalance
            1s r3 leave NONE a-1/ NONE"#]],
    );
}

#[test]
fn an_administrator_removes_static_members() {
    check(
        "
        0s join g as=i client=a protocols=range:x
        0s join g as=j client=b protocols=range:z
        6s sync g i-1 1 assign=i-1:A,j-1:B
        6s sync g j-1 1
        7s leave g /i x-1/j /k j-1/j
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
            7s rebalance g 2 Empty (Left 'i-1' -): joining 0s, last null; assigning 0s by null; 0 members
            7s append 2: g 2 null leader null
            7s r5 leave NONE /i NONE x-1/j FENCED_INSTANCE_ID /k UNKNOWN_MEMBER_ID j-1/j NONE
            7s g is Empty"#]],
    );
}

#[test]
fn who_leaves_while_waiting_is_answered() {
    check(
        "
        0s join g client=a
        0s join g client=b
        1s leave g a-1
        6s sync g b-1 1 assign=b-1:B
        7s join g client=c
        7s join g id=b-1
        8s sync g c-1 2
        8s leave g c-1
        ",
        expect![[r#"
            0s g is PreparingRebalance
            1s r1 join UNKNOWN_MEMBER_ID ''
            1s r3 leave NONE a-1/ NONE
            6s r2 join NONE 'b-1' 1 consumer/range leader 'b-1' b-1:@t
            6s g is CompletingRebalance
            6s append 1: g 1 range leader b-1 b-1=B
            6s r4 sync NONE consumer/range 'B'
            6s rebalance g 1 Stable (Joined 'a-1' -): joining 6s, last b-1; assigning 0s by b-1; 1 members
            6s g is Stable
            7s g is PreparingRebalance
            7s r6 join NONE 'b-1' 2 consumer/range leader 'b-1' b-1:@t c-1:@t
            7s r5 join NONE 'c-1' 2 consumer/range leader 'b-1'
            7s g is CompletingRebalance
            8s r7 sync UNKNOWN_MEMBER_ID null/null ''
            8s rebalance g 2 Restarted (Joined 'c-1' -): joining 0s, last b-1; assigning 1s by b-1; 1 members
            8s r8 leave NONE c-1/ NONE
            8s g is PreparingRebalance"#]],
    );
}

#[test]
fn a_silent_member_is_removed() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        10s heartbeat g a-1 1
        15s heartbeat g a-1 1
        17s heartbeat g a-1 1
        17s join g id=a-1 protocols=range:x
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
            10s r5 heartbeat NONE
            15s r6 heartbeat NONE
            16s note MemberExpired group: g member_id: b-1
            16s g is PreparingRebalance
            17s r7 heartbeat REBALANCE_IN_PROGRESS
            17s note SubscriptionUnreadable group: g member_id: a-1
            17s r8 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:x
            17s g is CompletingRebalance"#]],
    );
}

#[test]
fn heartbeats_keep_a_member() {
    check(
        "
        0s config delay=0s
        0s join g client=a
        1s sync g a-1 1 assign=a-1:A
        9s heartbeat g a-1 1
        18s heartbeat g a-1 1
        27s heartbeat g a-1 1
        36s sync g a-1 1
        45s commit g a-1 1 t-0=1
        54s heartbeat g a-1 1
        63s describe g
        64s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            0s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            0s g is CompletingRebalance
            1s append 1: g 1 range leader a-1 a-1=A
            1s r2 sync NONE consumer/range 'A'
            1s rebalance g 1 Stable (Joined 'a-1' -): joining 0s, last a-1; assigning 1s by a-1; 1 members
            1s g is Stable
            9s r3 heartbeat NONE
            18s r4 heartbeat NONE
            27s r5 heartbeat NONE
            36s r6 sync NONE consumer/range 'A'
            45s append 2: g t-0=1
            45s r7 commit NONE
            54s r8 heartbeat NONE
            63s describe Stable 'consumer'/'range' a-1/ a /127.0.0.1 @t=A
            64s note MemberExpired group: g member_id: a-1
            64s rebalance g 2 Empty (SessionExpired 'a-1' -): joining 0s, last null; assigning 0s by null; 0 members
            64s append 3: g 2 null leader null
            64s g is Empty"#]],
    );
}

#[test]
fn who_waits_for_a_rebalance_does_not_expire() {
    check(
        "
        0s join g client=a protocols=range:x,other:y
        1s join g client=b protocols=range:z,other:w
        6s sync g a-1 1 assign=a-1:A,b-1:B
        6s sync g b-1 1
        7s join g id=a-1 session=6s protocols=range:x
        15s heartbeat g b-1 1
        24s heartbeat g b-1 1
        30s join g id=b-1 protocols=range:z
        33s pass
        37s pass
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
            15s r6 heartbeat REBALANCE_IN_PROGRESS
            24s r7 heartbeat REBALANCE_IN_PROGRESS
            30s note SubscriptionUnreadable group: g member_id: a-1
            30s r5 join NONE 'a-1' 2 consumer/range leader 'a-1' a-1:x b-1:z
            30s r8 join NONE 'b-1' 2 consumer/range leader 'a-1'
            30s g is CompletingRebalance
            36s note MemberExpired group: g member_id: a-1
            36s rebalance g 2 Restarted (LeaderRejoined 'a-1' -): joining 23s, last b-1; assigning 6s by b-1; 1 members
            36s g is PreparingRebalance"#]],
    );
}

#[test]
fn who_waits_for_an_assignment_does_not_expire() {
    check(
        "
        0s join g client=a session=30s
        0s join g client=b session=6s
        6s sync g b-1 1
        20s sync g a-1 1 assign=a-1:A,b-1:B
        26s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            6s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t b-1:@t
            6s r2 join NONE 'b-1' 1 consumer/range leader 'a-1'
            6s g is CompletingRebalance
            20s append 1: g 1 range leader a-1 a-1=A b-1=B
            20s r4 sync NONE consumer/range 'A'
            20s r3 sync NONE consumer/range 'B'
            20s rebalance g 1 Stable (Joined 'a-1' -): joining 6s, last b-1; assigning 14s by a-1; 2 members
            20s g is Stable
            26s note MemberExpired group: g member_id: b-1
            26s g is PreparingRebalance"#]],
    );
}

#[test]
fn a_new_member_waits_five_minutes() {
    check(
        "
        0s config delay=400s
        0s join g client=a rebalance=900s
        299s pass
        301s pass
        401s pass
        ",
        expect![[r#"
            0s g is PreparingRebalance
            300s note MemberExpired group: g member_id: a-1
            300s r1 join UNKNOWN_MEMBER_ID ''
            400s rebalance g 1 Empty (Joined 'a-1' -): joining 400s, last a-1; assigning 0s by null; 0 members
            400s append 1: g 1 null leader null
            400s g is Empty"#]],
    );
}

#[test]
fn resigning_answers_all_who_wait() {
    check(
        "
        0s hold
        0s join g client=a
        0s join h client=b
        3s sync h b-1 1 assign=b-1:B
        3s join i client=c
        3s commit g - -1 t-0=1
        4s commit h b-1 1 t-0=1
        4s resign
        4s list
        ",
        expect![[r#"
            0s g is PreparingRebalance
            0s h is PreparingRebalance
            3s r1 join NONE 'a-1' 1 consumer/range leader 'a-1' a-1:@t
            3s r2 join NONE 'b-1' 1 consumer/range leader 'b-1' b-1:@t
            3s g is CompletingRebalance
            3s h is CompletingRebalance
            3s append 1: h 1 range leader b-1 b-1=B
            3s i is PreparingRebalance
            3s r5 commit UNKNOWN_MEMBER_ID
            4s r6 commit REBALANCE_IN_PROGRESS
            4s r3 sync NOT_COORDINATOR null/null ''
            4s r4 join NOT_COORDINATOR 'c-1'
            4s g is gone
            4s h is gone
            4s i is gone
            4s list"#]],
    );
}
