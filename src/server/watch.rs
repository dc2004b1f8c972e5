//! Two things the broker keeps an eye on: the version of `/feature`, and log directories that fail.

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use common::clock;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use zk::{
    documents::notification::log_dir_event_to_bytes,
    paths,
    store::{CreateKind, Watch, ZkError},
};

use crate::broker::Broker;

/// Pause after ZooKeeper gave an error.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often the broker looks for failed log directories.
const DIRECTORY_CHECK: Duration = Duration::from_secs(1);
/// Pause after which the controller is told again of full log directories.
const TELL_AGAIN: Duration = Duration::from_secs(5);
const REPLICA_MANAGER_LOG: &str = "kafka.server.ReplicaManager";

/// Keeps the finalized features' epoch, which ApiVersions tells: the version of `/feature`.
/// Source: `FinalizedFeatureChangeListener`.
pub(crate) async fn features(broker: Arc<Broker>, stop: CancellationToken) {
    let mut changes = broker.zk.changes().under(&[paths::FEATURE]);
    loop {
        match broker.zk.get(paths::FEATURE, Watch::Yes).await {
            Ok(node) => {
                let epoch = node.map_or(-1, |node| i64::from(node.stat.version.0));
                broker.features_epoch.store(epoch, Ordering::Relaxed);
            }
            Err(ZkError::Closed) => return,
            Err(problem) => {
                warn!(%problem, "could not read the finalized features");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(TRY_AGAIN_AFTER) => continue,
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            next = changes.next() => if next.is_none() { return },
        }
    }
}

/// Waits until no log directory is left; tells the controller of each that fails before, and of each that was full and
/// has room again: partitions that could not be made meanwhile are tried again then. Tells it of full ones too, where
/// others are to go on without what is in them, until it has seen to that.
pub(crate) async fn directories(broker: &Broker) -> String {
    let mut has_news = false;
    let mut told_of_full: Option<Instant> = None;
    loop {
        tokio::time::sleep_until(clock::next_tick(clock::now() + DIRECTORY_CHECK).into()).await;
        let now = clock::now();
        for directory in broker.logs.directories().filter(|one| !one.is_offline()) {
            if directory.has_room_again(now) {
                let path = directory.path().display();
                info!(target: REPLICA_MANAGER_LOG, "log directory {path} has room again");
                told_of_full = None;
                has_news = true;
            }
        }
        let is_due = told_of_full.is_none_or(|at| now.saturating_duration_since(at) >= TELL_AGAIN);
        if is_due {
            let left = broker.replicas.left_to_give_way();
            if left > 0 {
                let is_first = told_of_full.replace(now).is_none();
                if is_first {
                    warn!(
                        target: REPLICA_MANAGER_LOG,
                        "{left} replicas in log directories without room: others that are in sync are to go on without them"
                    );
                }
                has_news = true;
            }
        }
        for (path, partitions) in broker.logs.take_failed() {
            error!(
                target: REPLICA_MANAGER_LOG,
                "log directory {} failed; {} partitions in it are offline",
                path.display(),
                partitions.len()
            );
            broker.replicas.directory_failed(&partitions);
            has_news = true;
        }
        count(broker);
        if broker.logs.all_directories_offline() {
            return "Shutdown broker because all log dirs have failed".to_owned();
        }
        has_news = has_news && !tell_controller(broker).await;
    }
}

/// Says in ZooKeeper that the controller is to ask for this broker's replicas. Whether it is said: where ZooKeeper is away it
/// is tried again, and may then be said twice. Source: `KafkaZkClient.propagateLogDirEvent`.
async fn tell_controller(broker: &Broker) -> bool {
    let event = log_dir_event_to_bytes(broker.id);
    let kind = CreateKind::PersistentSequential;
    let told = broker.zk.create(paths::LOG_DIR_EVENT_PREFIX, &event, kind);
    match tokio::time::timeout(DIRECTORY_CHECK, told).await {
        Ok(Ok(_)) => return true,
        Ok(Err(problem)) => warn!(%problem, "could not tell the controller of a log directory"),
        Err(_) => {
            warn!("ZooKeeper does not take what the controller is to know of a log directory")
        }
    }
    false
}

/// Sets the gauges that nothing else keeps.
fn count(broker: &Broker) {
    let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    if let Some(counts) = broker.replicas.counts() {
        broker.metrics.partitions.set(gauge(counts.partitions));
        broker.metrics.offline_replicas.set(gauge(counts.offline));
        broker.metrics.leaders.set(gauge(counts.leaders));
        broker.metrics.under_replicated.set(gauge(counts.under_replicated));
        broker.metrics.under_min_isr.set(gauge(counts.under_min_isr));
        broker.metrics.at_min_isr.set(gauge(counts.at_min_isr));
        broker.metrics.reassigning.set(gauge(counts.reassigning));
    }
    let offline = broker.logs.directories().filter(|directory| directory.is_offline());
    broker.metrics.offline_log_directories.set(gauge(offline.count()));
    broker.groups.count();
}
