//! DescribeLogDirs (API key 35): sizes of the replicas in each log directory. Source: KIP-113, KIP-827.

use std::collections::{BTreeMap, HashSet};

use common::error_code::ErrorCode;
use kafka_protocol::{
    messages::{
        DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName,
        describe_log_dirs_response::{
            DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
        },
    },
    protocol::StrBytes,
};

use crate::{broker::Broker, handlers::text, request_context::RequestContext};

pub(crate) fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let asked: Option<HashSet<(&str, i32)>> =
        request.topics.as_ref().map(|topics| topics.iter().flat_map(pairs).collect());
    let mut by_directory: BTreeMap<String, BTreeMap<String, Vec<DescribeLogDirsPartition>>> =
        BTreeMap::new();
    for partition in broker.replicas.all() {
        let name = partition.topic_partition();
        let wanted =
            asked.as_ref().is_none_or(|asked| asked.contains(&(&*name.topic, name.partition)));
        if !wanted {
            continue;
        }
        let log = partition.log();
        let answer = DescribeLogDirsPartition::default()
            .with_partition_index(name.partition)
            .with_partition_size(i64::try_from(log.size()).unwrap_or(i64::MAX))
            .with_offset_lag(0)
            .with_is_future_key(false);
        let directory = log.log_directory().path().display().to_string();
        by_directory
            .entry(directory)
            .or_default()
            .entry(name.topic.to_string())
            .or_default()
            .push(answer);
    }
    let results = broker.logs.directories().map(|directory| {
        let path = directory.path().display().to_string();
        let topics = by_directory.remove(&path).unwrap_or_default();
        let result = DescribeLogDirsResult::default().with_log_dir(text(&path));
        if directory.is_offline() {
            return result.with_error_code(ErrorCode::KafkaStorageError.code());
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            DescribeLogDirsTopic::default()
                .with_name(TopicName(StrBytes::from_string(name)))
                .with_partitions(partitions)
        });
        let result = result.with_topics(topics.collect());
        if ctx.api_version >= 4 {
            let (total, usable) = space(directory.path());
            return result.with_total_bytes(total).with_usable_bytes(usable);
        }
        result
    });
    DescribeLogDirsResponse::default().with_results(results.collect())
}

fn pairs(
    topic: &kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic,
) -> Vec<(&str, i32)> {
    topic.partitions.iter().map(|partition| (&*topic.topic.0, *partition)).collect()
}

/// Size of the file system and what of it may be used, in bytes; -1 where it cannot be asked.
fn space(path: &std::path::Path) -> (i64, i64) {
    let Ok(stat) = rustix::fs::statvfs(path) else { return (-1, -1) };
    let bytes =
        |blocks: u64| i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX);
    (bytes(stat.f_blocks), bytes(stat.f_bavail))
}
