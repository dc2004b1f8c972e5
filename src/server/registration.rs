//! Keeps this broker registered: at start, and again in every new session, however often sessions end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use common::{
    clock,
    ids::{BrokerEpoch, BrokerId},
};
use metadata::broker::Endpoint;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use zk::{
    changes::{SessionState, ZkChanges},
    documents::broker::{self, BrokerDocument},
    registration::{Ghosts, RegisterError, register},
    store::{SessionId, ZkStore},
};

use crate::session_file::SessionFile;

/// Pause before a registration that failed is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Room above the session timeout that a ghost is waited for: servers expire sessions at ticks.
const GHOST_MARGIN: Duration = Duration::from_secs(5);

/// Registers the broker. Owned by one task.
pub(crate) struct Registrar {
    pub zk: Arc<dyn ZkStore>,
    pub id: BrokerId,
    pub endpoints: Vec<Endpoint>,
    pub rack: Option<String>,
    pub session_timeout: Duration,
    pub sessions: Arc<Mutex<SessionFile>>,
    /// The epoch of the registration, for all to see.
    pub epoch: Arc<AtomicI64>,
    /// The session it was made in, for all to see.
    pub registered: watch::Sender<Option<SessionId>>,
}

impl Registrar {
    /// Registers in the session there is now. The session is remembered first: if the process dies in between, the
    /// znode is known for its ghost.
    pub(crate) async fn register(&mut self) -> Result<BrokerEpoch, RegisterError> {
        let session = self.zk.session().session_id();
        if let Some(session) = session {
            self.sessions.lock().remember(session);
        }
        let document = BrokerDocument {
            version: broker::VERSION,
            endpoints: self.endpoints.clone(),
            rack: self.rack.clone(),
            jmx_port: -1,
            timestamp: clock::wall_clock(),
            features: BTreeMap::new(),
        };
        let is_ours = |session: SessionId| self.sessions.lock().is_ours(session);
        let wait_at_most = self.session_timeout + GHOST_MARGIN;
        let ghosts = Ghosts { is_ours: &is_ours, wait_at_most };
        let epoch = register(&*self.zk, self.id, &document, &ghosts).await?;
        self.epoch.store(epoch.0, Ordering::Release);
        self.registered.send_replace(session);
        Ok(epoch)
    }

    /// Registers again in every new session, until told to stop.
    pub(crate) async fn keep(mut self, mut changes: ZkChanges, stop: CancellationToken) {
        loop {
            let changed = tokio::select! {
                () = stop.cancelled() => return,
                changed = changes.next() => changed,
            };
            if changed.is_none() {
                return;
            }
            if self.zk.session().session_id() != *self.registered.borrow() {
                // The controller runs for the office only where this broker is registered.
                self.registered.send_replace(None);
            }
            let mut told = String::new();
            while self.is_due() {
                if told.is_empty() {
                    info!(target: "kafka.server.KafkaServer", "the ZooKeeper session is new: registering again");
                }
                match self.register().await {
                    Ok(_) => break,
                    Err(problem) => {
                        let problem = problem.to_string();
                        // Once, however often it is tried.
                        if problem != told {
                            error!(target: "kafka.server.KafkaServer", problem, "could not register in the new session; trying again");
                            told = problem;
                        }
                    }
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(TRY_AGAIN_AFTER) => {}
                }
            }
        }
    }

    /// Whether the session is another than the one registered in.
    fn is_due(&self) -> bool {
        match self.zk.session() {
            SessionState::Connected(session) => *self.registered.borrow() != Some(session),
            _ => false,
        }
    }
}
