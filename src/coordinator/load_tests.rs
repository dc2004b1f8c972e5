//! How long a log takes to load. Not timed: it says its figure.

use common::{
    clock,
    ids::{LeaderEpoch, Offset},
    topic::TopicPartition,
};
use group_coordinator::records::{GroupRecord, OffsetCommitValue};

use super::{Broker, log};
use crate::log::LogRecord;

/// How often each key of the log is written.
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

/// `LIVE_KEYS=1000000 cargo test --release -p coordinator all_offsets_of_a_log -- --nocapture` is the large one.
#[tokio::test]
async fn all_offsets_of_a_log_are_loaded() {
    let keys = std::env::var("LIVE_KEYS").map_or(2000, |keys| keys.parse().unwrap());
    let broker = Broker::new();
    let partition = broker.lead(0, &[1]);
    let writer = log(&partition);
    for round in 0..ROUNDS {
        for first in (0..keys).step_by(100) {
            let records: Vec<LogRecord> = (first..first + 100)
                .map(|number| offset_record(number, (round * keys + number) as i64))
                .collect();
            writer.append(&records, None, clock::wall_clock()).expect("records that fit");
        }
    }
    let began = clock::now();
    let (shard, count) = super::load_with(&partition, 5 << 20);
    let took = began.elapsed();
    assert_eq!(count, (keys * ROUNDS) as u64);
    let last = keys / 100 - 1;
    let fetched = shard
        .read(|groups| groups.coordinator().fetch_offsets(&format!("group-{last}"), None, false));
    assert_eq!(fetched.len(), 100);
    assert!(fetched.iter().any(|one| one.offset == Offset((keys * ROUNDS - 1) as i64)));
    println!("{keys} live keys, {count} records: loaded in {took:?}");
}
