//! How long a log takes to load. Not timed: it says its figure.

use common::{
    clock,
    ids::{LeaderEpoch, Offset},
    topic::TopicPartition,
};
use group_coordinator::records::{GroupRecord, OffsetCommitValue};

use super::{Broker, log};
use crate::log::LogRecord;

/// Keys of the large log, and how often each is written.
const KEYS: usize = 1_000_000;
const ROUNDS: usize = 2;

fn offset_record(number: usize, offset: i64) -> LogRecord {
    let record = GroupRecord::OffsetCommit {
        group: format!("group-{}", number / 100).into(),
        topic_partition: TopicPartition::new("topic-of-usual-length", (number % 100) as i32),
        value: Some(OffsetCommitValue {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(3),
            metadata: String::new(),
            commit_timestamp: clock::wall_clock(),
            expire_timestamp: None,
        }),
    };
    crate::groups::log_record(&record).expect("a record that can be written")
}

/// `cargo test --release -p coordinator -- --ignored a_million_offsets --nocapture`
#[tokio::test]
#[ignore = "writes 200 MB"]
async fn a_million_offsets_are_loaded() {
    let broker = Broker::new();
    let partition = broker.lead(0, &[1]);
    let writer = log(&partition);
    for round in 0..ROUNDS {
        for first in (0..KEYS).step_by(100) {
            let records: Vec<LogRecord> = (first..first + 100)
                .map(|number| offset_record(number, (round * KEYS + number) as i64))
                .collect();
            writer.append(&records, None).expect("records that fit");
        }
    }
    let began = clock::now();
    let (shard, count) = super::load_with(&partition, 5 << 20);
    let took = began.elapsed();
    assert_eq!(count, (KEYS * ROUNDS) as u64);
    let last = KEYS / 100 - 1;
    let fetched = shard
        .read(|groups| groups.coordinator().fetch_offsets(&format!("group-{last}"), None, false));
    assert_eq!(fetched.len(), 100);
    assert!(fetched.iter().any(|one| one.offset == Offset((KEYS * ROUNDS - 1) as i64)));
    println!("{KEYS} live keys, {count} records: loaded in {took:?}");
}
