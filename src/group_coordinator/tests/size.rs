//! Large groups, and many.

use std::time::Duration;

use bytes::Bytes;
use common::{
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset, Timestamp},
    topic::TopicPartition,
};

use crate::{
    action::{Action, GroupState, Reply},
    config::GroupConfig,
    coordinator::GroupCoordinator,
    event::{
        AppendFailure, AppendId, CommitRequest, Event, GroupMember, JoinRequest, Now,
        OffsetToCommit, ReplyTo, SyncRequest,
    },
};

fn join(group: String, client_id: String, reply: u64) -> Event {
    let request = JoinRequest {
        group,
        member_id: String::new(),
        group_instance_id: None,
        client_id,
        client_host: "/127.0.0.1".to_owned(),
        session_timeout: Duration::from_secs(45),
        rebalance_timeout: Duration::from_secs(300),
        protocol_type: "test".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"x"))],
        requires_known_member_id: false,
        supports_skipping_assignment: false,
        reason: None,
        member_uuid: "1".to_owned(),
    };
    Event::Join { request, reply: ReplyTo(reply) }
}

fn member(group: String, member_id: String) -> GroupMember {
    GroupMember { group, generation: 1, member_id, group_instance_id: None }
}

#[test]
fn a_thousand_members_join_one_group() {
    let mut coordinator = GroupCoordinator::new(GroupConfig::default());
    let start = common::clock::now();
    let now =
        |seconds| Now { instant: start + Duration::from_secs(seconds), timestamp: Timestamp(0) };
    let mut actions = Vec::new();
    for index in 0..1000 {
        coordinator.on_event(join("g".into(), format!("c{index}"), index), now(0), &mut actions);
    }
    assert!(actions.is_empty());
    coordinator.on_wake(now(3), &mut actions);
    coordinator.on_wake(now(6), &mut actions);
    let joined = actions.iter().filter_map(|action| match action {
        Action::Reply(_, Reply::Join(reply)) => Some((reply.generation, reply.members.len())),
        _ => None,
    });
    let joined: Vec<(i32, usize)> = joined.collect();
    assert_eq!((joined.len(), joined[0], joined[1]), (1000, (1, 1000), (1, 0)));
}

#[test]
fn ten_thousand_groups_of_one_member_heartbeat() {
    let mut coordinator = GroupCoordinator::new(GroupConfig::default());
    let start = common::clock::now();
    let now =
        |seconds| Now { instant: start + Duration::from_secs(seconds), timestamp: Timestamp(0) };
    let mut actions = Vec::new();
    for index in 0..10_000 {
        coordinator.on_event(join(format!("g{index}"), "c".into(), index), now(0), &mut actions);
    }
    coordinator.on_wake(now(3), &mut actions);
    for index in 0..10_000 {
        let request = SyncRequest {
            member: member(format!("g{index}"), "c-1".into()),
            protocol_type: None,
            protocol_name: None,
            assignments: Vec::new(),
        };
        let event = Event::Sync { request, reply: ReplyTo(10_000 + index) };
        coordinator.on_event(event, now(3), &mut actions);
    }
    for append in appends(&std::mem::take(&mut actions)) {
        let event = Event::Appended { append, result: Ok(()) };
        coordinator.on_event(event, now(3), &mut actions);
    }
    for second in (6..120).step_by(3) {
        actions.clear();
        coordinator.on_wake(now(second), &mut actions);
        assert!(actions.is_empty(), "{:?}", actions[0]);
        for index in 0..10_000 {
            let request = member(format!("g{index}"), "c-1".into());
            coordinator.on_event(
                Event::Heartbeat { request, reply: ReplyTo(index) },
                now(second),
                &mut actions,
            );
        }
        let is_well =
            |action: &Action| matches!(action, Action::Reply(_, Reply::Heartbeat(ErrorCode::None)));
        assert!(actions.iter().all(is_well));
    }
    assert_eq!(coordinator.counts().stable, 10_000);
    assert_eq!(coordinator.describe("g7").state, GroupState::Stable);
}

fn appends(actions: &[Action]) -> Vec<AppendId> {
    let appends = actions.iter().filter_map(|action| match action {
        Action::Append { append, .. } => Some(*append),
        _ => None,
    });
    appends.collect()
}

/// Deletes a group of ten thousand offsets; the answer, and the offsets that are left.
fn delete_large_group(result_of_first: Result<(), AppendFailure>) -> (Vec<ErrorCode>, usize) {
    let mut coordinator = GroupCoordinator::new(GroupConfig::default());
    let now = Now { instant: common::clock::now(), timestamp: Timestamp(0) };
    let mut actions = Vec::new();
    let offset = |partition| OffsetToCommit {
        topic_partition: TopicPartition::new("a-topic-with-quite-a-long-name", partition),
        offset: Offset(1),
        leader_epoch: LeaderEpoch::NONE,
        metadata: String::new(),
        commit_timestamp: Timestamp(0),
        expire_timestamp: None,
    };
    let member = GroupMember { generation: -1, ..member("g".into(), String::new()) };
    let offsets = (0..10_000).map(offset).collect();
    let request = CommitRequest { member, transaction: None, offsets };
    coordinator.on_event(Event::CommitOffsets { request, reply: ReplyTo(1) }, now, &mut actions);
    let append = appends(&actions)[0];
    coordinator.on_event(Event::Appended { append, result: Ok(()) }, now, &mut actions);
    actions.clear();
    let event = Event::DeleteGroup { group: "g".into(), reply: ReplyTo(2) };
    coordinator.on_event(event, now, &mut actions);
    let batches = appends(&actions);
    assert_eq!(batches.len(), 2, "tombstones go in batches");
    for (append, result) in batches.into_iter().zip([result_of_first, Ok(())]) {
        coordinator.on_event(Event::Appended { append, result }, now, &mut actions);
    }
    let answers = actions.iter().filter_map(|action| match action {
        Action::Reply(ReplyTo(2), Reply::DeleteGroup(error)) => Some(*error),
        _ => None,
    });
    (answers.collect(), coordinator.fetch_offsets("g", None, false).len())
}

#[test]
fn a_large_group_is_deleted_in_several_batches() {
    assert_eq!(delete_large_group(Ok(())), (vec![ErrorCode::None], 0));
    let failure = Err(AppendFailure(ErrorCode::NotEnoughReplicas));
    let (answers, left) = delete_large_group(failure);
    assert_eq!(answers, [ErrorCode::CoordinatorNotAvailable]);
    assert!(left > 0 && left < 10_000, "{left} offsets are left");
}
