//! The broker's group coordinators: which one has a group, and what is asked of it. The handlers of group APIs call this.

use std::{sync::Arc, time::Duration};

use common::{
    config::broker::BrokerConfig,
    counters::{Gauge, MetricName, Registry},
    error_code::ErrorCode,
    ids::ProducerId,
    topic::{GROUP_METADATA_TOPIC, TopicPartition},
};
use coordinator::{
    groups::{GroupMeters, Groups},
    log::CoordinatorLog,
    registry::{Coordinators, Known, NotHere},
    shard::Shard,
};
use group_coordinator::{
    action::{Counts, Reply},
    config::GroupConfig,
    coordinator::GroupCoordinator,
    event::{Event, ReplyTo},
};
use metadata::snapshot::ClusterSnapshot;
use record::compression::{Codec, Compression};
use replication::partition::Partition;
use tokio_util::sync::CancellationToken;

use crate::{coordinator_topic::CoordinatorTopic, errors};

/// The groups of this broker.
pub(crate) struct BrokerGroups {
    coordinators: Arc<Coordinators<Groups>>,
    topic: CoordinatorTopic,
    config: Arc<BrokerConfig>,
    meters: GroupMeters,
    gauges: GroupGauges,
}

/// How many groups and offsets there are. Source: `GroupMetadataManager`.
struct GroupGauges {
    groups: Arc<Gauge>,
    offsets: Arc<Gauge>,
    empty: Arc<Gauge>,
    preparing_rebalance: Arc<Gauge>,
    completing_rebalance: Arc<Gauge>,
    stable: Arc<Gauge>,
    dead: Arc<Gauge>,
}

impl GroupGauges {
    fn of_broker(registry: &Registry) -> GroupGauges {
        let gauge = |name| {
            let package = "kafka.coordinator.group";
            registry.gauge(MetricName::new(package, "GroupMetadataManager", name))
        };
        GroupGauges {
            groups: gauge("NumGroups"),
            offsets: gauge("NumOffsets"),
            empty: gauge("NumGroupsEmpty"),
            preparing_rebalance: gauge("NumGroupsPreparingRebalance"),
            completing_rebalance: gauge("NumGroupsCompletingRebalance"),
            stable: gauge("NumGroupsStable"),
            dead: gauge("NumGroupsDead"),
        }
    }
}

impl BrokerGroups {
    /// None yet: the controller's word elects.
    pub(crate) fn new(
        config: Arc<BrokerConfig>,
        registry: &Registry,
        stop: CancellationToken,
    ) -> BrokerGroups {
        let buffer_bytes = usize::try_from(config.offsets_load_buffer_size).unwrap_or(1);
        let kind = "group-coordinator-metrics";
        let load_times =
            registry.histogram(MetricName::new("kafka.server", kind, "partition-load-time"));
        // Groups have no effects: nobody listens.
        let (effects, _) = tokio::sync::mpsc::unbounded_channel();
        let coordinators = Arc::new(Coordinators::new(buffer_bytes, load_times, effects, stop));
        BrokerGroups {
            coordinators,
            topic: CoordinatorTopic::new(GROUP_METADATA_TOPIC, config.offsets_topic_num_partitions),
            config,
            meters: GroupMeters::of_broker(registry),
            gauges: GroupGauges::of_broker(registry),
        }
    }

    /// The partition of `__consumer_offsets` that a group belongs to.
    pub(crate) fn partition_of(&self, group: &str) -> i32 {
        self.topic.partition_of(group)
    }

    /// Takes note of what the cluster has now.
    pub(crate) fn learn(&self, snapshot: &ClusterSnapshot) {
        self.topic.learn(snapshot);
    }

    /// This broker leads a partition of the topic since its current epoch.
    pub(crate) fn elect(&self, partition: Arc<Partition>) {
        let epoch = partition.leader_epoch();
        let codec = u8::try_from(self.config.offsets_topic_compression_codec).unwrap_or(0);
        let compression = Codec::from_id(codec).map_or(Compression::None, Compression::of);
        let log = CoordinatorLog::new(partition, epoch, compression);
        let config = group_config(&self.config);
        let meters = self.meters.clone();
        let make =
            move || Groups::new(config.clone(), errors::of_coordinator_append, meters.clone());
        self.coordinators.elect(log, Box::new(make));
    }

    /// This broker leads a partition of the topic no more.
    pub(crate) fn resign(&self, partition: i32) {
        self.coordinators.resign(partition);
    }

    /// Answers no more; who waits is told.
    pub(crate) fn stop(&self) {
        self.coordinators.stop();
    }

    /// Asks the coordinator of a group. Fails with Kafka's code where it is not here, or not yet.
    pub(crate) async fn ask(
        &self,
        group: &str,
        event: impl FnOnce(ReplyTo) -> Event,
    ) -> Result<Reply, ErrorCode> {
        let shard = self.shard_of(group)?;
        let reply = shard.request(|number| event(ReplyTo(number)));
        // The shard is closed: this broker was the coordinator until now.
        reply.await.map_err(|_| ErrorCode::NotCoordinator)
    }

    /// Looks at the coordinator of a group.
    pub(crate) fn look<T>(
        &self,
        group: &str,
        look: impl FnOnce(&GroupCoordinator) -> T,
    ) -> Result<T, ErrorCode> {
        let shard = self.shard_of(group)?;
        Ok(shard.read(|groups| look(groups.coordinator())))
    }

    /// Looks at all coordinators. COORDINATOR_LOAD_IN_PROGRESS comes beside what is known while others load.
    pub(crate) fn look_at_all<T>(
        &self,
        mut look: impl FnMut(&GroupCoordinator) -> Vec<T>,
    ) -> (ErrorCode, Vec<T>) {
        let Known { active, loads } = match self.coordinators.all() {
            Ok(all) => all,
            Err(error) => return (code_of(error), Vec::new()),
        };
        let each = active.iter().flat_map(|shard| shard.read(|groups| look(groups.coordinator())));
        let code = if loads { ErrorCode::CoordinatorLoadInProgress } else { ErrorCode::None };
        (code, each.collect())
    }

    /// A marker is written in a partition of the topic: what it ends is decided. False where the coordinator loads, and
    /// may have begun before the marker was there.
    pub(crate) fn transaction_completed(
        &self,
        partition: i32,
        producer_id: ProducerId,
        committed: bool,
    ) -> bool {
        match self.coordinators.get(partition) {
            Ok(shard) => {
                let event = Event::TransactionCompleted { producer_id, committed };
                shard.tell(event);
                true
            }
            Err(NotHere::Loading) => false,
            // Whoever leads the partition next finds the marker in the log.
            Err(NotHere::NotCoordinator | NotHere::Stopping) => true,
        }
    }

    /// Partitions are gone from the cluster, and with them what groups committed for them.
    pub(crate) fn partitions_deleted(&self, partitions: &[TopicPartition]) {
        let Ok(known) = self.coordinators.all() else { return };
        for shard in known.active {
            let partitions = partitions.to_vec();
            shard.tell(Event::PartitionsDeleted { partitions });
        }
    }

    /// Removes offsets that have expired, every `offsets.retention.check.interval.ms`, until told to stop.
    pub(crate) async fn expire_offsets(self: Arc<Self>, stop: CancellationToken) {
        let milliseconds = |value: i64| Duration::from_millis(u64::try_from(value).unwrap_or(0));
        let every = milliseconds(self.config.offsets_retention_check_interval_ms);
        let retention = milliseconds(i64::from(self.config.offsets_retention_minutes) * 60_000);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let Ok(known) = self.coordinators.all() else { return };
            for shard in known.active {
                // Appends: not for a thread of the runtime when there are many.
                let expire = move || {
                    shard.act(|groups, time, steps| groups.expire_offsets(retention, time, steps));
                };
                if tokio::task::spawn_blocking(expire).await.is_err() {
                    tracing::error!("expiring offsets panicked");
                }
            }
        }
    }

    /// Counts groups and offsets for the gauges.
    pub(crate) fn count(&self) {
        let (_, counts) = self.look_at_all(|coordinator| vec![coordinator.counts()]);
        let set = |gauge: &Gauge, count: fn(&Counts) -> usize| {
            let sum: usize = counts.iter().map(count).sum();
            gauge.set(i64::try_from(sum).unwrap_or(i64::MAX));
        };
        let gauges = &self.gauges;
        set(&gauges.empty, |counts| counts.empty);
        set(&gauges.preparing_rebalance, |counts| counts.preparing_rebalance);
        set(&gauges.completing_rebalance, |counts| counts.completing_rebalance);
        set(&gauges.stable, |counts| counts.stable);
        set(&gauges.dead, |counts| counts.dead);
        set(&gauges.offsets, |counts| counts.offsets);
        let states = [
            &gauges.empty,
            &gauges.preparing_rebalance,
            &gauges.completing_rebalance,
            &gauges.stable,
            &gauges.dead,
        ];
        gauges.groups.set(states.iter().map(|gauge| gauge.value()).sum());
    }

    fn shard_of(&self, group: &str) -> Result<Arc<Shard<Groups>>, ErrorCode> {
        self.coordinators.get(self.partition_of(group)).map_err(code_of)
    }
}

/// The code for a coordinator that is not here.
pub(crate) fn code_of(error: NotHere) -> ErrorCode {
    match error {
        NotHere::Stopping => ErrorCode::CoordinatorNotAvailable,
        NotHere::Loading => ErrorCode::CoordinatorLoadInProgress,
        NotHere::NotCoordinator => ErrorCode::NotCoordinator,
    }
}

fn group_config(config: &BrokerConfig) -> GroupConfig {
    let milliseconds = |value: i32| Duration::from_millis(u64::try_from(value).unwrap_or(0));
    let count = |value: i32| usize::try_from(value).unwrap_or(0);
    GroupConfig {
        session_timeout_min: milliseconds(config.group_min_session_timeout_ms),
        session_timeout_max: milliseconds(config.group_max_session_timeout_ms),
        initial_rebalance_delay: milliseconds(config.group_initial_rebalance_delay_ms),
        group_size_max: count(config.group_max_size),
        offset_metadata_max: count(config.offset_metadata_max_bytes),
        append_timeout: milliseconds(config.offsets_commit_timeout_ms),
        ..GroupConfig::default()
    }
}
