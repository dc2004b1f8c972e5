//! What a consumer asks the leaders: where to begin, and the records. Source: `Fetcher`, `OffsetFetcher`.

use std::{
    collections::{BTreeMap, HashSet},
    time::Instant,
};

use common::{
    clock,
    error_code::ErrorCode,
    ids::{LeaderEpoch, Offset},
    topic::TopicPartition,
};
use kafka_protocol::messages::fetch_response::PartitionData;
use tokio::time::timeout_at;
use tracing::debug;

use super::{Consumer, Reader, Start};
use crate::{
    config::OffsetReset,
    error::{ClientError, ErrorKind},
    fetch::{Fetch, fetch, topic_name},
    fetched::{self, Reading},
};

impl Consumer {
    /// Turns "earliest" and "latest" into offsets, for partitions whose leader is known.
    pub(super) async fn look_up_starts(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let metadata = self.cluster.metadata();
        let mut wanted = BTreeMap::new();
        for (partition, reader) in &self.readers {
            let is_led = metadata.leader(&partition.topic, partition.partition).is_some();
            if reader.next.is_some() || reader.awaits_committed {
                continue;
            }
            if is_led {
                let time = if reader.start == Start::Earliest { -2 } else { -1 };
                wanted.insert(partition.clone(), time);
            } else {
                self.wants_metadata = true;
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let Ok(listed) = timeout_at(deadline.into(), self.list_offsets(&wanted)).await else {
            return Ok(());
        };
        for (partition, listed) in listed? {
            match listed {
                Ok(listed) => {
                    if let Some(reader) = self.readers.get_mut(&partition) {
                        reader.next = Some(Offset(listed.offset));
                        reader.epoch = LeaderEpoch(listed.leader_epoch);
                    }
                }
                Err(error) if error.is_retriable() || error.kind == ErrorKind::Timeout => {
                    self.wants_metadata = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One fetch for each broker that leads something whose records are all handed out.
    pub(super) fn start_fetches(&mut self) {
        let metadata = self.cluster.metadata();
        let now = clock::now();
        self.paused.retain(|_, until| *until > now);
        let waiting: HashSet<&TopicPartition> =
            self.records.iter().map(|record| &record.partition).collect();
        let mut by_leader: BTreeMap<i32, Vec<(TopicPartition, Offset)>> = BTreeMap::new();
        for (partition, reader) in &self.readers {
            let Some(offset) = reader.next else { continue };
            // What waits takes memory enough; a partition goes on once its records were taken.
            if waiting.contains(partition) && self.records.len() > self.config.poll_records_max {
                continue;
            }
            let Some(leader) = metadata.leader(&partition.topic, partition.partition) else {
                self.wants_metadata = true;
                continue;
            };
            if !self.busy.contains(&leader.id) && !self.paused.contains_key(&leader.id) {
                by_leader.entry(leader.id).or_default().push((partition.clone(), offset));
            }
        }
        for (node, wanted) in by_leader {
            self.busy.insert(node);
            let cluster = self.cluster.clone();
            let config = self.config.clone();
            let metadata = metadata.clone();
            self.fetches.spawn(async move {
                let result = fetch(&cluster, &config, &metadata, node, &wanted).await;
                Fetch { node, wanted, metadata, result }
            });
        }
    }

    /// Keeps what a fetch brought, and acts on its errors.
    pub(super) fn take(&mut self, fetch: Fetch) -> Result<(), ClientError> {
        self.busy.remove(&fetch.node);
        let pause = clock::now() + self.config.connection.retry_backoff;
        let response = match fetch.result {
            Ok(response) if response.error_code == ErrorCode::None as i16 => response,
            Ok(response) => {
                let code = ErrorCode::from_code(response.error_code);
                debug!(code = code.name(), "fetch refused");
                self.paused.insert(fetch.node, pause);
                return Ok(());
            }
            Err(error) if error.kind == ErrorKind::UnsupportedVersion => return Err(error),
            Err(error) => {
                debug!(%error, "fetch failed");
                self.paused.insert(fetch.node, pause);
                self.wants_metadata = true;
                return Ok(());
            }
        };
        for topic in &response.responses {
            let name = topic_name(topic.topic_id.as_u128(), &topic.topic.0, &fetch.metadata);
            for data in &topic.partitions {
                let partition = TopicPartition::new(name.as_str(), data.partition_index);
                let wanted = fetch.wanted.iter().find(|(wanted, _)| *wanted == partition);
                if let Some((_, position)) = wanted {
                    self.take_partition(&partition, *position, data, fetch.node)?;
                }
            }
        }
        Ok(())
    }

    fn take_partition(
        &mut self,
        partition: &TopicPartition,
        position: Offset,
        data: &PartitionData,
        node: i32,
    ) -> Result<(), ClientError> {
        let Some(reader) = self.readers.get_mut(partition) else { return Ok(()) };
        // A seek has overtaken the fetch.
        if reader.next != Some(position) {
            return Ok(());
        }
        let code = ErrorCode::from_code(data.error_code);
        match code {
            ErrorCode::None => {
                let reading = Reading {
                    read_committed: self.config.read_committed,
                    check_crcs: self.config.check_crcs,
                };
                let fetched = fetched::read(partition, position, data, reading)?;
                reader.next = Some(fetched.next);
                self.records.extend(fetched.records);
                Ok(())
            }
            ErrorCode::OffsetOutOfRange => match self.config.offset_reset {
                OffsetReset::Earliest => {
                    *reader = Reader::new(Start::Earliest);
                    Ok(())
                }
                OffsetReset::Latest => {
                    *reader = Reader::new(Start::Latest);
                    Ok(())
                }
                OffsetReset::None => Err(ClientError::from_code(
                    code,
                    Some(format!(
                        "Fetch position {position} is out of range for partition {partition}, and no reset policy is defined"
                    )),
                )),
            },
            ErrorCode::TopicAuthorizationFailed => Err(ClientError::from_code(
                code,
                Some(format!("Not authorized to access topics: [{}]", partition.topic)),
            )),
            ErrorCode::CorruptMessage => Err(ClientError::new(
                ErrorKind::Kafka,
                format!(
                    "Encountered corrupt message when fetching offset {position} for topic-partition {partition}"
                ),
            )),
            code => {
                debug!(%partition, code = code.name(), "partition not fetched");
                self.wants_metadata = true;
                let pause = clock::now() + self.config.connection.retry_backoff;
                self.paused.insert(node, pause);
                Ok(())
            }
        }
    }
}
