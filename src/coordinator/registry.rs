//! The coordinators of this broker, by the number of their partition.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{clock, counters::Histogram, ids::LeaderEpoch};
use parking_lot::RwLock;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    log::{CoordinatorLog, LoadError},
    shard::{Coordinator, Shard},
};

/// Partitions that are loaded at the same time; each holds one read buffer.
const LOADS_AT_ONCE: usize = 4;

/// How long a load that failed waits before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The coordinators of one kind. Shared; its lock is held for one look-up or one change.
pub struct Coordinators<C: Coordinator> {
    slots: RwLock<HashMap<i32, Slot<C>>>,
    loads: Arc<Semaphore>,
    buffer_bytes: usize,
    /// How many milliseconds each load took.
    load_times: Arc<Histogram>,
    effects: mpsc::UnboundedSender<(i32, C::Effect)>,
    is_stopping: AtomicBool,
    stop: CancellationToken,
}

/// A partition that this broker leads.
enum Slot<C: Coordinator> {
    Loading(LeaderEpoch),
    Active(Arc<Shard<C>>),
}

/// The coordinators of one kind on this broker, at a moment.
pub struct Known<C: Coordinator> {
    /// Those that can answer.
    pub active: Vec<Arc<Shard<C>>>,
    /// Whether there are others that load.
    pub loads: bool,
}

/// Why a coordinator does not answer here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHere {
    /// The broker stops.
    #[error("the coordinator is stopping")]
    Stopping,
    /// The log is being read.
    #[error("the coordinator is loading")]
    Loading,
    /// Another broker leads the partition, or nobody.
    #[error("this is not the coordinator")]
    NotCoordinator,
}

impl<C: Coordinator> Coordinators<C> {
    /// None yet: `elect` makes them. Loads read `buffer_bytes` at a time, and tell `load_times` how many milliseconds they
    /// took: Kafka's `partition-load-time`.
    pub fn new(
        buffer_bytes: usize,
        load_times: Arc<Histogram>,
        effects: mpsc::UnboundedSender<(i32, C::Effect)>,
        stop: CancellationToken,
    ) -> Coordinators<C> {
        Coordinators {
            slots: RwLock::new(HashMap::new()),
            loads: Arc::new(Semaphore::new(LOADS_AT_ONCE)),
            buffer_bytes,
            load_times,
            effects,
            is_stopping: AtomicBool::new(false),
            stop,
        }
    }

    /// The coordinator on a partition.
    pub fn get(&self, partition: i32) -> Result<Arc<Shard<C>>, NotHere> {
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(NotHere::Stopping);
        }
        match self.slots.read().get(&partition) {
            Some(Slot::Active(shard)) => Ok(shard.clone()),
            Some(Slot::Loading(_)) => Err(NotHere::Loading),
            None => Err(NotHere::NotCoordinator),
        }
    }

    /// All that can answer, and whether there are others that load.
    ///
    /// # Errors
    /// The broker stops.
    pub fn all(&self) -> Result<Known<C>, NotHere> {
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(NotHere::Stopping);
        }
        let mut active = Vec::new();
        let mut loads = false;
        for slot in self.slots.read().values() {
            match slot {
                Slot::Active(shard) => active.push(shard.clone()),
                Slot::Loading(_) => loads = true,
            }
        }
        Ok(Known { active, loads })
    }

    /// Takes office on a partition: loads its log in the background. The same epoch again changes nothing.
    /// `make` gives an empty coordinator for each try.
    pub fn elect(self: &Arc<Self>, log: CoordinatorLog, make: Box<dyn Fn() -> C + Send>) {
        let partition = log.partition().topic_partition().partition;
        let epoch = log.epoch();
        let former = {
            let mut slots = self.slots.write();
            if slots.get(&partition).is_some_and(|slot| slot.epoch() >= epoch) {
                return;
            }
            slots.insert(partition, Slot::Loading(epoch))
        };
        if let Some(Slot::Active(former)) = former {
            former.close();
        }
        tokio::spawn(self.clone().load(log, make));
    }

    /// Leaves office on a partition: all who wait there are told.
    pub fn resign(&self, partition: i32) {
        let former = self.slots.write().remove(&partition);
        if let Some(Slot::Active(former)) = former {
            former.close();
        }
    }

    /// Answers no more; all who wait are told.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let slots = std::mem::take(&mut *self.slots.write());
        for slot in slots.into_values() {
            if let Slot::Active(shard) = slot {
                shard.close();
            }
        }
    }

    async fn load(self: Arc<Self>, log: CoordinatorLog, make: Box<dyn Fn() -> C + Send>) {
        let name = log.partition().topic_partition().clone();
        let epoch = log.epoch();
        let mut make = make;
        while self.is_wanted(name.partition, epoch) {
            // The semaphore is never closed.
            let Ok(_permit) = self.loads.clone().acquire_owned().await else { return };
            let began = clock::now();
            let (log, buffer_bytes) = (log.clone(), self.buffer_bytes);
            let effects = self.effects.clone();
            let loaded = tokio::task::spawn_blocking(move || {
                (Shard::load(log, make(), buffer_bytes, effects), make)
            });
            let Ok((loaded, again)) = loaded.await else {
                error!(partition = %name, "loading the coordinator's log panicked");
                return;
            };
            make = again;
            match loaded {
                Ok((shard, records)) => {
                    let milliseconds = began.elapsed().as_millis();
                    self.load_times.update(u64::try_from(milliseconds).unwrap_or(u64::MAX));
                    info!(partition = %name, epoch = epoch.0, records, milliseconds, "loaded the coordinator's log");
                    self.activate(name.partition, epoch, shard);
                    return;
                }
                Err(LoadError::Superseded(_)) => return,
                Err(problem) => {
                    error!(partition = %name, problem = &problem as &dyn std::error::Error, "cannot load the coordinator's log; it is tried again");
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(RETRY_AFTER) => {}
            }
        }
    }

    fn is_wanted(&self, partition: i32, epoch: LeaderEpoch) -> bool {
        let slots = self.slots.read();
        matches!(slots.get(&partition), Some(Slot::Loading(current)) if *current == epoch)
    }

    fn activate(&self, partition: i32, epoch: LeaderEpoch, shard: Arc<Shard<C>>) {
        let mut slots = self.slots.write();
        match slots.get_mut(&partition) {
            Some(slot @ Slot::Loading(_)) if slot.epoch() == epoch => {
                tokio::spawn(shard.clone().keep(self.stop.clone()));
                *slot = Slot::Active(shard.clone());
                // Under the lock: nobody asks before, and nobody misses it who is asked to do something.
                shard.begin();
            }
            // Another epoch has begun meanwhile, or none.
            _ => shard.close(),
        }
    }
}

impl<C: Coordinator> Slot<C> {
    fn epoch(&self) -> LeaderEpoch {
        match self {
            Slot::Loading(epoch) => *epoch,
            Slot::Active(shard) => shard.log().epoch(),
        }
    }
}
