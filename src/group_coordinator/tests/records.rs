//! Bytes of records: each version, and bytes that are none.

use bytes::Bytes;
use common::{
    ids::{LeaderEpoch, Offset, Timestamp},
    topic::TopicPartition,
};
use proptest::prelude::{Strategy, any, prop, prop_assert_eq, proptest};

use super::{seeded, world::subscription};
use crate::{
    action::GroupState,
    config::GroupConfig,
    coordinator::GroupCoordinator,
    event::Now,
    load::ReplayError,
    records::{
        Decoded, GroupMetadataValue, GroupRecord, MemberMetadataValue, OffsetCommitValue,
        RecordError, ValueVersions, decode, encode,
    },
    subscription::topics,
};

fn offset(value: OffsetCommitValue) -> GroupRecord {
    let topic_partition = TopicPartition::new("t", 3);
    GroupRecord::OffsetCommit { group: "g".into(), topic_partition, value: Some(value) }
}

fn group(value: GroupMetadataValue) -> GroupRecord {
    GroupRecord::GroupMetadata { group: "g".into(), value: Some(value) }
}

fn offset_value() -> OffsetCommitValue {
    OffsetCommitValue {
        offset: Offset(7),
        leader_epoch: LeaderEpoch(2),
        metadata: "note".to_owned(),
        commit_timestamp: Timestamp(1000),
        expire_timestamp: None,
    }
}

fn group_value() -> GroupMetadataValue {
    GroupMetadataValue {
        protocol_type: "consumer".to_owned(),
        generation: 4,
        protocol: Some("range".to_owned()),
        leader: Some("a-1".to_owned()),
        current_state_timestamp: Some(Timestamp(500)),
        members: vec![MemberMetadataValue {
            member_id: "a-1".to_owned(),
            group_instance_id: Some("i".to_owned()),
            client_id: "a".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            rebalance_timeout_ms: 300_000,
            session_timeout_ms: 45_000,
            subscription: Bytes::from_static(b"sub"),
            assignment: Bytes::from_static(b"assign"),
        }],
    }
}

fn through_bytes(record: &GroupRecord, versions: ValueVersions) -> GroupRecord {
    let encoded = encode(record, versions).unwrap();
    match decode(&encoded.key, encoded.value.as_deref()).unwrap() {
        Decoded::Record(record) => record,
        Decoded::UnknownKey { version } => panic!("unknown key {version}"),
    }
}

#[test]
fn each_version_keeps_what_it_can() {
    for version in 0..=4 {
        let versions = ValueVersions { offset_commit: version, group_metadata: version };
        let mut value = offset_value();
        if version < 3 {
            value.leader_epoch = LeaderEpoch::NONE;
        }
        assert_eq!(through_bytes(&offset(offset_value()), versions), offset(value));
        let mut value = group_value();
        if version < 3 {
            value.members[0].group_instance_id = None;
        }
        if version < 2 {
            value.current_state_timestamp = None;
        }
        if version < 1 {
            value.members[0].rebalance_timeout_ms = value.members[0].session_timeout_ms;
        }
        assert_eq!(through_bytes(&group(group_value()), versions), group(value));
    }
}

#[test]
fn an_offset_that_expires_by_itself_is_version_1() {
    let value = OffsetCommitValue {
        expire_timestamp: Some(Timestamp(9)),
        leader_epoch: LeaderEpoch::NONE,
        ..offset_value()
    };
    let encoded = encode(&offset(value.clone()), ValueVersions::LATEST).unwrap();
    assert_eq!(encoded.value.as_ref().unwrap()[..2], [0, 1]);
    assert_eq!(through_bytes(&offset(value.clone()), ValueVersions::LATEST), offset(value));
}

#[test]
fn tombstones_have_no_value() {
    let record = GroupRecord::GroupMetadata { group: "g".into(), value: None };
    let encoded = encode(&record, ValueVersions::LATEST).unwrap();
    assert_eq!((encoded.key.as_ref(), encoded.value), (&b"\0\x02\0\x01g"[..], None));
    assert_eq!(decode(b"\0\x02\0\x01g", None), Ok(Decoded::Record(record)));
}

#[test]
fn keys_of_version_0_are_read() {
    let key = b"\0\0\0\x01g\0\x01t\0\0\0\x03";
    let record = GroupRecord::OffsetCommit {
        group: "g".into(),
        topic_partition: TopicPartition::new("t", 3),
        value: None,
    };
    assert_eq!(decode(key, None), Ok(Decoded::Record(record)));
}

#[test]
fn what_is_wrong_is_named() {
    assert_eq!(decode(b"\0\x03rest", None), Ok(Decoded::UnknownKey { version: 3 }));
    assert_eq!(decode(b"\xff\xffrest", None), Ok(Decoded::UnknownKey { version: -1 }));
    let error = |key: &[u8], value: Option<&[u8]>| decode(key, value).unwrap_err().to_string();
    assert_eq!(error(b"", None), "the record ends within key version");
    assert_eq!(error(b"\0\x02\0\x09g", None), "the record ends within group");
    assert_eq!(error(b"\0\x02\xff\xff", None), "group is null");
    assert_eq!(error(b"\0\x02\xff\xfe", None), "bad length of group");
    assert_eq!(error(b"\0\x02\0\x01\xff", None), "group is not UTF-8");
    assert_eq!(error(b"\0\x02\0\x01g", Some(b"\0\x05")), "unknown version 5 of GroupMetadataValue");
    let members = b"\0\x00\0\0\0\0\0\x01\xff\xff\xff\xff\x7f\xff\xff\xff";
    assert_eq!(error(b"\0\x02\0\x01g", Some(members)), "the record ends within members");
    let long = OffsetCommitValue { metadata: "x".repeat(40_000), ..offset_value() };
    assert_eq!(
        encode(&offset(long), ValueVersions::LATEST),
        Err(RecordError::TooLong { field: "metadata" })
    );
}

#[test]
fn subscriptions_of_any_version_name_their_topics() {
    let bytes = subscription(["t", "u"].into_iter());
    assert_eq!(topics(&bytes).unwrap(), ["t", "u"]);
    let mut newer = bytes.to_vec();
    newer[1] = 3;
    newer.extend([0; 12]);
    assert_eq!(topics(&newer).unwrap(), ["t", "u"]);
    assert!(topics(b"").is_err());
    assert!(topics(b"\xff\xff\0\0\0\0").is_err());
    assert!(topics(b"\0\0\x7f\xff\xff\xff").is_err());
}

fn replayed(records: Vec<GroupRecord>) -> (GroupCoordinator, Result<(), ReplayError>) {
    let mut coordinator = GroupCoordinator::new(GroupConfig::default());
    let now = Now { instant: common::clock::now(), timestamp: Timestamp(0) };
    let mut results = records.into_iter().map(|record| coordinator.replay(record, now));
    let result = results.find(Result::is_err).unwrap_or(Ok(()));
    coordinator.loaded(now, &mut Vec::new());
    (coordinator, result)
}

#[test]
fn a_record_that_contradicts_itself_changes_nothing() {
    let mut without_protocol = group_value();
    without_protocol.protocol = None;
    let mut twice = group_value();
    twice.members.push(twice.members[0].clone());
    let mut static_twice = twice.clone();
    static_twice.members[1].member_id = "b-1".to_owned();
    for (value, text) in [
        (without_protocol, "the record of group g has members but no protocol"),
        (twice, "the record of group g has member a-1 twice"),
        (static_twice, "the record of group g has static member i twice"),
    ] {
        let (coordinator, result) = replayed(vec![group(group_value()), group(value)]);
        assert_eq!(result.unwrap_err().to_string(), text);
        assert_eq!(coordinator.describe("g").members.len(), 1);
    }
}

#[test]
fn a_leader_that_is_no_member_is_replaced() {
    let value = GroupMetadataValue { leader: Some("stranger".to_owned()), ..group_value() };
    let (coordinator, result) = replayed(vec![group(value)]);
    assert_eq!(result, Ok(()));
    assert_eq!(coordinator.describe("g").state, GroupState::Stable);
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let small = prop::sample::select(vec![0_u8, 0, 0, 0, 1, 2, 3, 4, 5, 0x7f, 0x80, 0xff]);
    prop::collection::vec(small, 0..64)
}

fn any_group() -> impl Strategy<Value = GroupMetadataValue> {
    let name = || prop::sample::select(vec!["", "a", "b", "consumer"]).prop_map(str::to_owned);
    let some_name = || prop::option::of(name());
    let timeout = || prop::sample::select(vec![i32::MIN, -1, 0, 1000, i32::MAX]);
    let member = (name(), some_name(), timeout(), timeout(), any_bytes()).prop_map(
        |(member_id, group_instance_id, rebalance, session, bytes)| MemberMetadataValue {
            member_id,
            group_instance_id,
            client_id: String::new(),
            client_host: String::new(),
            rebalance_timeout_ms: rebalance,
            session_timeout_ms: session,
            subscription: bytes.into(),
            assignment: Bytes::new(),
        },
    );
    let members = prop::collection::vec(member, 0..4);
    (name(), some_name(), some_name(), any::<i32>(), members).prop_map(
        |(protocol_type, protocol, leader, generation, members)| GroupMetadataValue {
            protocol_type,
            generation,
            protocol,
            leader,
            current_state_timestamp: None,
            members,
        },
    )
}

proptest! {
    #![proptest_config(seeded(1000))]

    #[test]
    fn hostile_groups_load_and_expire(value in any_group(), other in any_group()) {
        // One of them may be refused; what is loaded lives on, and ends.
        let (mut coordinator, _) = replayed(vec![group(value), group(other)]);
        let mut instant = common::clock::now();
        for _ in 0..1000 {
            let Some(wake) = coordinator.next_wake() else { break };
            instant = instant.max(wake);
            coordinator.on_wake(Now { instant, timestamp: Timestamp(0) }, &mut Vec::new());
        }
        let _ = coordinator.describe("g"); // It does not panic.
    }

    #[test]
    fn hostile_bytes_never_panic(key in any_bytes(), value in any_bytes(), topic in any_bytes()) {
        // Whatever it says, it says it.
        let _ = decode(&key, Some(&value));
        let _ = decode(b"\0\x01\0\x01g\0\x01t\0\0\0\0", Some(&value));
        let _ = decode(b"\0\x02\0\x01g", Some(&value));
        let _ = topics(&topic);
    }

    #[test]
    fn offsets_survive_their_bytes(offset_number in any::<i64>(), epoch in any::<i32>(), metadata in ".{0,20}") {
        let value = OffsetCommitValue {
            offset: Offset(offset_number),
            leader_epoch: LeaderEpoch(epoch),
            metadata,
            ..offset_value()
        };
        let record = offset(value);
        prop_assert_eq!(through_bytes(&record, ValueVersions::LATEST), record);
    }
}
