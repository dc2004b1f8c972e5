//! Producer ids: taken a block at a time, from the controller or from ZooKeeper, given out one by one.
//! Source: `ProducerIdManager`, KIP-730.

use std::{
    error::Error,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use common::{
    config::ibp::MetadataVersion,
    error_code::ErrorCode,
    ids::{BrokerEpoch, BrokerId, ProducerId},
};
use futures_util::future::BoxFuture;
use kafka_protocol::messages::{self, AllocateProducerIdsRequest};
use metadata::cache::MetadataCache;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use zk::{error::ZnodeError, producer_ids, store::ZkStore};

use crate::{
    controller::ControllerHandle,
    peers::{PeerError, Peers, Purpose},
};

/// Requests that wait for a block at most; more are told to come again.
const WAITING_MAX: usize = 10_000;
/// How long a request waits for a block. Kafka's are told to come again at once.
const WAIT_AT_MOST: Duration = Duration::from_secs(1);
/// Pause before the next try, after one that gave no block.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// How long the controller's answer may take; what comes later is a block that nobody uses.
const ANSWER_AT_MOST: Duration = Duration::from_secs(5);

/// Asks for ids; the block is owned by a task.
#[derive(Clone, Debug)]
pub(crate) struct ProducerIds {
    requests: mpsc::Sender<oneshot::Sender<ProducerId>>,
}

/// Asks once for a block.
pub(crate) type Fetch =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Range<i64>, NoBlock>> + Send + Sync>;

/// Why there is no block now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoBlock {
    /// ZooKeeper gave none.
    #[error("take a block from ZooKeeper")]
    ZooKeeper(#[source] ZnodeError),
    /// Nobody is known who could be asked.
    #[error("no controller is known")]
    NoController,
    /// The controller was not reached.
    #[error("ask the controller, broker {controller}")]
    Unreached {
        /// The controller.
        controller: BrokerId,
        /// What happened.
        source: PeerError,
    },
    /// The controller refused.
    #[error("the controller answered {}", .0.name())]
    Refused(ErrorCode),
    /// Ids that may have been given out already, or that are none.
    #[error("the ids from {first} on, {count} of them, cannot come after those below {below}")]
    Nonsense {
        /// The first id.
        first: i64,
        /// How many.
        count: i64,
        /// What the last block ended with.
        below: i64,
    },
}

/// Whom a broker asks for blocks.
#[derive(Clone)]
pub(crate) struct Sources {
    pub zk: Arc<dyn ZkStore>,
    pub controller: ControllerHandle,
    pub peers: Arc<Peers>,
    pub metadata: Arc<MetadataCache>,
    pub broker: BrokerId,
    /// The epoch of this broker's registration.
    pub broker_epoch: Arc<AtomicI64>,
}

impl Sources {
    /// How brokers of this version get their blocks: from 3.0 on the controller gives them; before, when it may not know how,
    /// each takes its own from the znode.
    pub(crate) fn fetch(self, version: MetadataVersion) -> Fetch {
        let asks_controller = version >= MetadataVersion::V3_0_IV0;
        Arc::new(move || {
            let sources = self.clone();
            Box::pin(async move {
                match asks_controller {
                    true => sources.ask_controller().await,
                    false => sources.take_from_zookeeper().await,
                }
            })
        })
    }

    async fn take_from_zookeeper(&self) -> Result<Range<i64>, NoBlock> {
        let block = producer_ids::allocate_block(&*self.zk, self.broker).await;
        let block = block.map_err(NoBlock::ZooKeeper)?;
        info!(target: "kafka.coordinator.transaction.ZkProducerIdManager", first = block.start, end = block.end, "took a block of producer ids");
        Ok(block)
    }

    async fn ask_controller(&self) -> Result<Range<i64>, NoBlock> {
        let broker_epoch = BrokerEpoch(self.broker_epoch.load(Ordering::Acquire));
        let controller = self.metadata.load().controller();
        let block = if self.controller.is_active() || controller == Some(self.broker) {
            let given = self.controller.allocate_producer_ids(self.broker, broker_epoch).await;
            given.map_err(NoBlock::Refused)?
        } else {
            let controller = controller.ok_or(NoBlock::NoController)?;
            self.ask(controller, broker_epoch).await?
        };
        debug!(target: "kafka.coordinator.transaction.RPCProducerIdManager", first = block.start, end = block.end, "the controller gave a block of producer ids");
        Ok(block)
    }

    async fn ask(
        &self,
        controller: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<Range<i64>, NoBlock> {
        let request = AllocateProducerIdsRequest::default()
            .with_broker_id(messages::BrokerId(self.broker.0))
            .with_broker_epoch(broker_epoch.0);
        let purpose = Purpose::Controller;
        let limit = ANSWER_AT_MOST.min(self.peers.controller_timeout());
        let asked = self.peers.call(controller, purpose, &request, 0..=0, limit);
        let (given, _) = asked.await.map_err(|source| NoBlock::Unreached { controller, source })?;
        match ErrorCode::from_code(given.error_code) {
            ErrorCode::None => {
                let first = given.producer_id_start.0;
                Ok(first..first.saturating_add(i64::from(given.producer_id_len)))
            }
            error => Err(NoBlock::Refused(error)),
        }
    }
}

impl ProducerIds {
    /// Starts the task that owns the block. It ends when told to stop, or with the last `ProducerIds`.
    pub(crate) fn start(fetch: Fetch, stop: CancellationToken) -> ProducerIds {
        let (requests, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move { stop.run_until_cancelled(give_out(fetch, receiver)).await });
        ProducerIds { requests }
    }

    /// The next id. COORDINATOR_LOAD_IN_PROGRESS, which clients retry, where there is no block for a while.
    pub(crate) async fn next(&self) -> Result<ProducerId, ErrorCode> {
        let busy = ErrorCode::CoordinatorLoadInProgress;
        let (reply, answer) = oneshot::channel();
        self.requests.try_send(reply).map_err(|_| busy)?;
        let answered = tokio::time::timeout(WAIT_AT_MOST, answer).await;
        answered.map_err(|_| busy)?.map_err(|_| busy)
    }
}

/// The block after the one in use, on its way or here. It is given up with this value.
struct Ahead(JoinHandle<Range<i64>>);

impl Drop for Ahead {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn give_out(fetch: Fetch, mut requests: mpsc::Receiver<oneshot::Sender<ProducerId>>) {
    let mut block = 0..0;
    let mut refill_at = 0;
    let mut ahead: Option<Ahead> = None;
    while let Some(reply) = requests.recv().await {
        if reply.is_closed() {
            // It has waited for too long.
            continue;
        }
        if block.is_empty() {
            let mut fetched = ahead.take().unwrap_or_else(|| Ahead::of(&fetch, block.end));
            // A task that panicked is begun again with the next request.
            let Ok(next) = (&mut fetched.0).await else { continue };
            block = next;
            // With the id after nine tenths of them. Source: `PidPrefetchThreshold`.
            refill_at = block.end - (block.end - block.start) / 10;
        }
        if let Some(id) = block.next() {
            // An id that nobody takes is simply never used.
            let _ = reply.send(ProducerId(id));
        }
        if block.start > refill_at && ahead.is_none() {
            ahead = Some(Ahead::of(&fetch, block.end));
        }
    }
}

impl Ahead {
    /// Fetches the block after `below`.
    fn of(fetch: &Fetch, below: i64) -> Ahead {
        Ahead(tokio::spawn(fetch_until_there(fetch.clone(), below)))
    }
}

/// Tries until there is a block, whose ids are `below` or higher.
async fn fetch_until_there(fetch: Fetch, below: i64) -> Range<i64> {
    let mut is_first = true;
    loop {
        match fetch().await.and_then(|block| check(block, below)) {
            Ok(block) => return block,
            Err(problem) => say(&problem, is_first),
        }
        is_first = false;
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

fn say(problem: &NoBlock, is_first: bool) {
    let problem = problem as &dyn Error;
    match is_first {
        true => warn!(problem, "no block of producer ids; it is tried again"),
        false => debug!(problem, "no block of producer ids still"),
    }
}

/// Ids that were given out already must not be given out again, whatever the controller says.
fn check(block: Range<i64>, below: i64) -> Result<Range<i64>, NoBlock> {
    match block.start >= below && !block.is_empty() {
        true => Ok(block),
        false => {
            let count = block.end.saturating_sub(block.start);
            Err(NoBlock::Nonsense { first: block.start, count, below })
        }
    }
}

#[cfg(test)]
mod tests;
