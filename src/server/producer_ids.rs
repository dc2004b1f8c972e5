//! Producer ids: taken from ZooKeeper a block at a time, given out one by one.
//! Source: `ProducerIdManager`, `/latest_producer_id_block`.

use std::sync::Arc;

use common::{
    error_code::ErrorCode,
    ids::{BrokerId, ProducerId},
};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};
use zk::{producer_ids, store::ZkStore};

/// Requests that wait for a block at most; more are told to come again.
const WAITING_MAX: usize = 10_000;

/// Asks for ids; the block is owned by a task.
#[derive(Clone, Debug)]
pub(crate) struct ProducerIds {
    requests: mpsc::Sender<oneshot::Sender<Result<ProducerId, ErrorCode>>>,
}

impl ProducerIds {
    /// Starts the task that owns the block. It ends with the last `ProducerIds`.
    pub(crate) fn start(zk: Arc<dyn ZkStore>, broker: BrokerId) -> ProducerIds {
        let (requests, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(give_out(zk, broker, receiver));
        ProducerIds { requests }
    }

    /// The next id. COORDINATOR_LOAD_IN_PROGRESS, which clients retry, where ZooKeeper gives no block now.
    pub(crate) async fn next(&self) -> Result<ProducerId, ErrorCode> {
        let busy = ErrorCode::CoordinatorLoadInProgress;
        let (reply, answer) = oneshot::channel();
        self.requests.try_send(reply).map_err(|_| busy)?;
        answer.await.map_err(|_| busy)?
    }
}

async fn give_out(
    zk: Arc<dyn ZkStore>,
    broker: BrokerId,
    mut requests: mpsc::Receiver<oneshot::Sender<Result<ProducerId, ErrorCode>>>,
) {
    let mut block = 0..0;
    while let Some(reply) = requests.recv().await {
        if block.is_empty() {
            match producer_ids::allocate_block(&*zk, broker).await {
                Ok(next) => {
                    info!(target: "kafka.coordinator.transaction.ZkProducerIdManager", first = next.start, end = next.end, "took a block of producer ids");
                    block = next;
                }
                Err(error) => {
                    warn!(%error, "no block of producer ids");
                    // The asker may be gone; then nobody minds.
                    let _ = reply.send(Err(ErrorCode::CoordinatorLoadInProgress));
                    continue;
                }
            }
        }
        if let Some(id) = block.next() {
            // An id that nobody takes is simply never used.
            let _ = reply.send(Ok(ProducerId(id)));
        }
    }
}
