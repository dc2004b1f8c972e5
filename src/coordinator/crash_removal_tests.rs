//! A coordinator of groups that is killed as members go, by themselves or by their sessions' end, and as offsets and
//! groups are removed. What was acknowledged stays; what was not is as before or as after.

use std::{sync::Arc, time::Duration};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
    topic::TopicPartition,
};
use group_coordinator::{
    action::{DeleteOffsetsReply, GroupState, LeaveReply, LeftMember, Reply},
    event::{CommitRequest, Event, LeavingMember, OffsetToCommit, ReplyTo},
};
use tokio_util::sync::CancellationToken;

use super::{
    Killed, answer, assign, cut, cut_to, end, given, heartbeat, joined, joining, lead, member,
    sync, wake_after,
};
use crate::{
    groups::Groups,
    shard::{Answer, Shard},
    tests::{Broker, commit, committed},
};

const MINUTE: Duration = Duration::from_secs(60);
/// The session of the member that goes: shorter than that of the other.
const SHORT: Duration = Duration::from_secs(10);

/// How a member goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goes {
    Leaves,
    Expires,
}

impl Goes {
    fn go(self, shard: &Arc<Shard<Groups>>, member_id: &str) {
        match self {
            Goes::Leaves => {
                let leaving = LeavingMember {
                    member_id: member_id.to_owned(),
                    group_instance_id: None,
                    reason: None,
                };
                let reply = shard.request(|reply| Event::Leave {
                    group: "g".to_owned(),
                    members: vec![leaving],
                    reply: ReplyTo(reply),
                });
                let left = LeftMember {
                    member_id: member_id.to_owned(),
                    group_instance_id: None,
                    error: ErrorCode::None,
                };
                let expected = LeaveReply { error: ErrorCode::None, members: vec![left] };
                assert_eq!(answer(reply), Reply::Leave(expected));
            }
            Goes::Expires => wake_after(shard, SHORT + Duration::from_secs(1)),
        }
    }
}

/// The state, and the members with their assignments, in order.
fn group(shard: &Shard<Groups>) -> (GroupState, Vec<(String, String)>) {
    let description = shard.read(|groups| groups.coordinator().describe("g"));
    let members = description.members.into_iter().map(|member| {
        let assignment = String::from_utf8(member.assignment.to_vec()).expect("a text");
        (member.member_id, assignment)
    });
    let mut members: Vec<_> = members.collect();
    members.sort();
    (description.state, members)
}

/// A new member that joins gets an answer once all times are up. Gives its generation.
async fn comes_in(shard: &Arc<Shard<Groups>>) -> i32 {
    let reply = joining(shard, ("new", ""), MINUTE, MINUTE);
    wake_after(shard, MINUTE * 2);
    let (error, generation, _) = joined(reply).await;
    assert_eq!(error, ErrorCode::None);
    generation
}

#[tokio::test]
async fn a_group_is_empty_or_not_when_the_coordinator_is_killed_as_its_last_member_goes() {
    let done = Reply::CommitOffsets(vec![ErrorCode::None]);
    for goes in [Goes::Leaves, Goes::Expires] {
        for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
            let (broker, stop) = (Broker::new(), CancellationToken::new());
            let shard = lead(&broker, 0, &[1], &stop);
            assert_eq!(answer(shard.request(commit(5))), done);
            let reply = joining(&shard, ("c", ""), SHORT, MINUTE);
            let (_, generation, id) = joined(reply).await;
            answer(sync(&shard, &id, generation));
            let before = end(&broker);
            let isr: &[i32] = if killed == Killed::AfterAnswer { &[1] } else { &[1, 2] };
            let shard = lead(&broker, 1, isr, &stop);
            goes.go(&shard, &id);
            assert_eq!(end(&broker), before.plus(1), "one record says so");
            // Killed with that in the log.
            let shard = lead(&broker, 2, &[1], &stop);
            assert_eq!(group(&shard), (GroupState::Empty, Vec::new()), "{goes:?} {killed:?}");
            let unknown = ErrorCode::UnknownMemberId;
            assert_eq!(heartbeat(&shard, &id, generation), Reply::Heartbeat(unknown));
            assert_eq!(committed(&shard), 5);
            assert_eq!(comes_in(&shard).await, generation + 2);
            // Killed before: the generation is whole, and does not wait for ever for its member.
            cut(&broker);
            let shard = lead(&broker, 3, &[1], &stop);
            let expected = (GroupState::Stable, vec![(id.clone(), "all".to_owned())]);
            assert_eq!(group(&shard), expected, "{goes:?} {killed:?}");
            assert_eq!(heartbeat(&shard, &id, generation), Reply::Heartbeat(ErrorCode::None));
            assert_eq!(committed(&shard), 5);
            assert_eq!(comes_in(&shard).await, generation + 1);
            stop.cancel();
        }
    }
}

/// How far a rebalance gets that a member causes which goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Gone,
    Joined,
    Assigned(Killed),
}

#[tokio::test]
async fn a_group_is_in_one_generation_when_the_coordinator_is_killed_as_one_of_two_members_goes() {
    let done = Reply::CommitOffsets(vec![ErrorCode::None]);
    let assigned = [Killed::BeforeAnswer, Killed::AfterAnswer].map(Step::Assigned);
    for goes in [Goes::Leaves, Goes::Expires] {
        for step in [Step::Gone, Step::Joined].into_iter().chain(assigned) {
            let (broker, stop) = (Broker::new(), CancellationToken::new());
            let shard = lead(&broker, 0, &[1], &stop);
            assert_eq!(answer(shard.request(commit(5))), done);
            let reply = joining(&shard, ("one", ""), MINUTE, MINUTE);
            let (_, first, one) = joined(reply).await;
            answer(sync(&shard, &one, first));
            let other = joining(&shard, ("other", ""), SHORT, MINUTE);
            joined(joining(&shard, ("one", &one), MINUTE, MINUTE)).await;
            let (_, generation, other) = joined(other).await;
            answer(assign(&shard, &one, generation, &[(&one, "half"), (&other, "rest")]));
            let half = [(one.clone(), "half".to_owned()), (other.clone(), "rest".to_owned())];
            let last = step == Step::Assigned(Killed::BeforeAnswer);
            let isr: &[i32] = if last { &[1, 2] } else { &[1] };
            let shard = lead(&broker, 1, isr, &stop);
            assert_eq!(group(&shard), (GroupState::Stable, half.to_vec()));

            goes.go(&shard, &other);
            if step != Step::Gone {
                let reply = joining(&shard, ("one", &one), MINUTE, MINUTE);
                let (error, next, _) = joined(reply).await;
                assert_eq!((error, next), (ErrorCode::None, generation + 1));
            }
            if let Step::Assigned(killed) = step {
                let mut reply = sync(&shard, &one, generation + 1);
                assert_eq!(given(&mut reply).is_some(), killed == Killed::AfterAnswer);
            }

            let shard = lead(&broker, 2, &[1], &stop);
            let (current, members) = match step {
                Step::Gone | Step::Joined => (generation, half.to_vec()),
                Step::Assigned(_) => (generation + 1, vec![(one.clone(), "all".to_owned())]),
            };
            let what = format!("{goes:?} {step:?}");
            assert_eq!(group(&shard), (GroupState::Stable, members), "{what}");
            assert_eq!(committed(&shard), 5, "{what}");
            for known in [generation, generation + 1] {
                let illegal = ErrorCode::IllegalGeneration;
                let code = if known == current { ErrorCode::None } else { illegal };
                assert_eq!(heartbeat(&shard, &one, known), Reply::Heartbeat(code), "{what}");
            }
            // Who went is not waited for for ever, if it is in the group still.
            let reply = joining(&shard, ("one", &one), MINUTE, MINUTE);
            wake_after(&shard, MINUTE / 2);
            let (error, next, _) = joined(reply).await;
            assert_eq!((error, next), (ErrorCode::None, current + 1), "{what}");
            answer(sync(&shard, &one, next));
            let alone = (GroupState::Stable, vec![(one.clone(), "all".to_owned())]);
            assert_eq!(group(&shard), alone, "{what}");
            stop.cancel();
        }
    }
}

/// Commits one offset for each of the partitions.
fn commit_all(shard: &Shard<Groups>, partitions: &[TopicPartition], offset: i64) {
    let offsets = partitions.iter().map(|partition| OffsetToCommit {
        topic_partition: partition.clone(),
        offset: Offset(offset),
        leader_epoch: LeaderEpoch::NONE,
        metadata: String::new(),
        commit_timestamp: clock::wall_clock(),
        expire_timestamp: None,
    });
    let request =
        CommitRequest { member: member("", -1), transaction: None, offsets: offsets.collect() };
    let reply = shard.request(|reply| Event::CommitOffsets { request, reply: ReplyTo(reply) });
    let done = Reply::CommitOffsets(vec![ErrorCode::None; partitions.len()]);
    assert_eq!(answer(reply), done);
}

fn offsets(shard: &Shard<Groups>, partitions: &[TopicPartition]) -> Vec<i64> {
    let fetched =
        shard.read(|groups| groups.coordinator().fetch_offsets("g", Some(partitions), false));
    fetched.iter().map(|one| one.offset.0).collect()
}

fn state(shard: &Shard<Groups>) -> GroupState {
    group(shard).0
}

fn partitions(count: i32, topic: &str) -> Vec<TopicPartition> {
    (0..count).map(|partition| TopicPartition::new(topic, partition)).collect()
}

/// An empty group that had a member, with an offset of 5 for each of the partitions.
async fn empty_group(broker: &Broker, partitions: &[TopicPartition], stop: &CancellationToken) {
    let shard = lead(broker, 0, &[1], stop);
    let reply = joining(&shard, ("c", ""), MINUTE, MINUTE);
    let (_, generation, id) = joined(reply).await;
    answer(sync(&shard, &id, generation));
    Goes::Leaves.go(&shard, &id);
    for some in partitions.chunks(1000) {
        commit_all(&shard, some, 5);
    }
}

/// What removes offsets, or all of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Removal {
    Group,
    /// One of two.
    Offset,
    /// All that there are.
    Offsets,
    Expiry,
}

impl Removal {
    /// None where nobody asks for it.
    fn begin(self, shard: &Shard<Groups>, partitions: &[TopicPartition]) -> Option<Answer<Reply>> {
        let delete = |partitions: &[TopicPartition]| {
            let (group, partitions) = ("g".to_owned(), partitions.to_vec());
            shard.request(|reply| Event::DeleteOffsets { group, partitions, reply: ReplyTo(reply) })
        };
        match self {
            Removal::Group => {
                let group = "g".to_owned();
                let event = |reply| Event::DeleteGroup { group, reply: ReplyTo(reply) };
                Some(shard.request(event))
            }
            Removal::Offset => Some(delete(&partitions[..1])),
            Removal::Offsets => Some(delete(partitions)),
            Removal::Expiry => {
                shard.act(|groups, time, steps| {
                    groups.expire_offsets(Duration::ZERO, time, steps);
                });
                None
            }
        }
    }

    fn done(self, partitions: &[TopicPartition]) -> Option<Reply> {
        let deleted = |count| {
            let partitions = vec![ErrorCode::None; count];
            Reply::DeleteOffsets(DeleteOffsetsReply { error: ErrorCode::None, partitions })
        };
        match self {
            Removal::Group => Some(Reply::DeleteGroup(ErrorCode::None)),
            Removal::Offset => Some(deleted(1)),
            Removal::Offsets => Some(deleted(partitions.len())),
            Removal::Expiry => None,
        }
    }

    /// State and offsets once it is over.
    fn after(self, partitions: &[TopicPartition]) -> (GroupState, Vec<i64>) {
        let mut offsets = vec![-1; partitions.len()];
        if self == Removal::Offset {
            offsets[1..].fill(5);
            return (GroupState::Empty, offsets);
        }
        (GroupState::Dead, offsets)
    }
}

#[tokio::test]
async fn what_is_removed_is_there_or_gone_when_the_coordinator_is_killed_meanwhile() {
    let partitions = partitions(2, "t");
    for removal in [Removal::Group, Removal::Offset, Removal::Offsets, Removal::Expiry] {
        for killed in [Killed::BeforeAnswer, Killed::AfterAnswer] {
            let what = format!("{removal:?} {killed:?}");
            let (broker, stop) = (Broker::new(), CancellationToken::new());
            empty_group(&broker, &partitions, &stop).await;
            let before = (GroupState::Empty, vec![5, 5]);
            let after = removal.after(&partitions);
            let isr: &[i32] = if killed == Killed::AfterAnswer { &[1] } else { &[1, 2] };
            // Killed before its tombstones are in the log, it changes nothing.
            let shard = lead(&broker, 1, isr, &stop);
            let now = |shard: &Shard<Groups>| (state(shard), offsets(shard, &partitions));
            assert_eq!(now(&shard), before, "{what}");
            let begun = end(&broker);
            let reply = removal.begin(&shard, &partitions).and_then(|mut reply| given(&mut reply));
            let is_done = killed == Killed::AfterAnswer;
            assert_eq!(reply, removal.done(&partitions).filter(|_| is_done), "{what}");
            assert!(end(&broker) > begun, "{what}");
            // Killed with them in the log, however often.
            for epoch in 2..4 {
                let shard = lead(&broker, epoch, &[1], &stop);
                assert_eq!(now(&shard), after, "{what}");
            }
            // They are one batch: a log without it has all as before, and it can be asked for again.
            let shard = {
                cut(&broker);
                assert_eq!(end(&broker), begun, "{what}");
                lead(&broker, 4, &[1], &stop)
            };
            assert_eq!(now(&shard), before, "{what}");
            let reply = removal.begin(&shard, &partitions).map(answer);
            assert_eq!(reply, removal.done(&partitions), "{what}");
            let shard = lead(&broker, 5, &[1], &stop);
            assert_eq!(now(&shard), after, "{what}");
            // What is committed from now on is not taken along.
            commit_all(&shard, &partitions[..1], 9);
            let shard = lead(&broker, 6, &[1], &stop);
            assert_eq!((state(&shard), committed(&shard)), (GroupState::Empty, 9), "{what}");
            stop.cancel();
        }
    }
}

#[tokio::test]
async fn a_removal_in_several_batches_is_finished_when_the_coordinator_is_killed_between_two() {
    // Their tombstones fill more than two batches.
    let partitions = partitions(3000, &"t".repeat(200));
    for removal in [Removal::Group, Removal::Offsets, Removal::Expiry] {
        let (broker, stop) = (Broker::new(), CancellationToken::new());
        empty_group(&broker, &partitions, &stop).await;
        let (begun, mut epoch) = (end(&broker), 1);
        let shard = lead(&broker, epoch, &[1], &stop);
        let reply = removal.begin(&shard, &partitions).map(answer);
        assert_eq!(reply, removal.done(&partitions), "{removal:?}");
        let after = (GroupState::Dead, vec![-1; partitions.len()]);
        let mut left = vec![0];
        while end(&broker) > begun {
            cut(&broker);
            let kept = end(&broker);
            epoch += 2;
            let shard = lead(&broker, epoch, &[1], &stop);
            // The group goes with the last batch; each offset is as it was, or gone.
            assert_eq!(state(&shard), GroupState::Empty, "{removal:?}");
            let there = offsets(&shard, &partitions);
            assert!(there.iter().all(|offset| [-1, 5].contains(offset)));
            left.push(there.iter().filter(|offset| **offset == 5).count());
            // It is asked for again, or found again by its age.
            removal.begin(&shard, &partitions);
            let shard = lead(&broker, epoch + 1, &[1], &stop);
            assert_eq!((state(&shard), offsets(&shard, &partitions)), after, "{removal:?}");
            cut_to(&broker, kept);
        }
        assert!(left.is_sorted() && left.len() > 3, "{left:?}");
        assert_eq!(left.last(), Some(&partitions.len()), "{left:?}");
        stop.cancel();
    }
}
