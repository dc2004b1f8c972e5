//! The controller on this broker: it runs for the office, serves its terms, and creates, expands and
//! deletes topics for clients. `::controller` decides, `::controller_store` reads and commits; here is the loop around
//! them, and what sends.

pub mod channels;
pub mod configs;
mod features;
mod internal_topics;
pub mod metrics;
pub mod requests;
mod state_log;
mod term;
#[cfg(test)]
mod tests;
pub mod topics;

use std::{sync::Arc, time::Duration};

use common::{
    clock,
    config::{broker::BrokerConfig, ibp::MetadataVersion},
    error_code::ErrorCode,
    ids::{BrokerId, ControllerEpoch},
};
use controller::{controller::Counts, error::ApiError};
use metadata::cache::MetadataCache;
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};
use zk::{
    changes::{SessionState, ZkChanges},
    election::{self, Elected, Fence},
    error::ZnodeError,
    paths,
    registration::Ghosts,
    store::{SessionId, ZkError, ZkStore},
};

use self::{
    channels::{Reach, ToBroker},
    metrics::ControllerMetrics,
    term::{CONTROLLER_LOG, Command, Ended, Office},
};

use crate::{broker_configs::BrokerConfigs, control_wire::ControlVersions, peers};

const ADMIN_LOG: &str = "kafka.server.ZkAdminManager";
/// How long a controller that failed waits before it runs for the office again.
const ELECTION_BACKOFF: Duration = Duration::from_secs(1);
/// Commands that wait for the controller at most; more are dropped, since the state they point to is
/// looked at again at the next occasion.
const COMMANDS_MAX: usize = 256;
/// What the controller watches.
const WATCHED: [&str; 8] = [
    paths::CONTROLLER,
    paths::BROKER_IDS,
    paths::TOPICS,
    paths::DELETE_TOPICS,
    paths::LOG_DIR_EVENTS,
    paths::ISR_CHANGES,
    paths::REASSIGN_PARTITIONS,
    paths::PREFERRED_REPLICA_ELECTION,
];

/// What a controller takes from the broker's configuration.
pub(crate) struct Settings {
    pub(crate) broker: BrokerId,
    /// What it was started with.
    pub(crate) config: Arc<BrokerConfig>,
    /// What holds now.
    pub(crate) broker_configs: Arc<BrokerConfigs>,
    topic_ids: bool,
    leader_recovery: bool,
}

impl Settings {
    fn new(
        broker: BrokerId,
        config: Arc<BrokerConfig>,
        broker_configs: Arc<BrokerConfigs>,
    ) -> Settings {
        let version = config.inter_broker_protocol_version;
        let since = |name: &str| MetadataVersion::parse(name).is_some_and(|since| version >= since);
        Settings {
            broker,
            broker_configs,
            topic_ids: version >= MetadataVersion::V2_8_IV0,
            leader_recovery: since("3.2-IV0"),
            config,
        }
    }

    /// How the controller reaches other brokers.
    fn reach(&self) -> Reach {
        let config = &self.config;
        let timeout_ms = u64::try_from(config.request_timeout_ms).unwrap_or(0);
        let leaders_listener = config.inter_broker_listener_name.clone();
        let control_plane = config.control_plane_listener_name.clone();
        Reach {
            versions: ControlVersions::of(config.inter_broker_protocol_version),
            listener: control_plane.unwrap_or_else(|| leaders_listener.clone()),
            leaders_listener,
            config: peers::outgoing_of_controller(self.broker, config),
            request_timeout: Duration::from_millis(timeout_ms),
        }
    }
}

/// What the controller is given to work with.
pub struct Start {
    /// This broker's id.
    pub broker: BrokerId,
    /// Its configuration.
    pub config: Arc<BrokerConfig>,
    /// What of it may change meanwhile.
    pub broker_configs: Arc<BrokerConfigs>,
    /// ZooKeeper.
    pub zk: Arc<dyn ZkStore>,
    /// What this broker knows of the cluster, changed by the requests below.
    pub metadata: Arc<MetadataCache>,
    /// The session in which this broker is registered; none while it is not. The broker runs for the
    /// office only in that session.
    pub registered: watch::Receiver<Option<SessionId>>,
    /// Takes the controller's requests to this broker itself.
    pub to_broker: mpsc::Sender<ToBroker>,
    /// Whether a session was this broker's and is dead: its `/controller` is not waited for.
    pub is_ours: Arc<dyn Fn(SessionId) -> bool + Send + Sync>,
    /// What it counts.
    pub metrics: ControllerMetrics,
    /// Ends the controller; its znode goes with the session.
    pub stop: CancellationToken,
}

/// What the rest of the broker sees of the controller. Cheap to clone.
#[derive(Clone)]
pub struct ControllerHandle {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    zk: Arc<dyn ZkStore>,
    metadata: Arc<MetadataCache>,
    /// Counts the UpdateMetadata that this broker has taken from the controller on it.
    told: watch::Receiver<u64>,
    /// The epoch of this broker's term; none while it is not the controller.
    office: watch::Receiver<Option<ControllerEpoch>>,
    commands: mpsc::Sender<Command>,
    /// Topics that clients ask for, while they are being created.
    creating: Mutex<std::collections::HashSet<String>>,
}

/// Starts running for the office.
pub fn start(start: Start) -> (ControllerHandle, JoinHandle<()>) {
    let Start {
        broker,
        config,
        broker_configs,
        zk,
        metadata,
        registered,
        to_broker,
        is_ours,
        metrics,
        stop,
    } = start;
    let (office, office_seen) = watch::channel(None);
    let (told, told_seen) = watch::channel(0);
    let (command, commands) = mpsc::channel(COMMANDS_MAX);
    let handle = ControllerHandle {
        inner: Arc::new(Inner {
            settings: Settings::new(broker, config.clone(), broker_configs.clone()),
            zk: zk.clone(),
            metadata,
            told: told_seen,
            office: office_seen,
            commands: command,
            creating: Mutex::default(),
        }),
    };
    let settings = Settings::new(broker, config, broker_configs);
    let told = Arc::new(told);
    let candidate =
        Candidate { settings, zk, registered, to_broker, told, is_ours, metrics, stop, office };
    let task = tokio::spawn(candidate.run(commands));
    (handle, task)
}

impl ControllerHandle {
    /// Whether this broker is the controller.
    pub fn is_active(&self) -> bool {
        self.inner.office.borrow().is_some()
    }

    /// Tells the controller that unclean elections were allowed, for all topics or for one.
    pub fn unclean_elections_enabled(&self, topic: Option<&str>) {
        self.command(Command::UncleanEnabled(topic.map(Arc::from)));
    }

    fn command(&self, command: Command) {
        if self.is_active() && self.inner.commands.try_send(command).is_err() {
            warn!("the controller has too much to do and will look at it later");
        }
    }
}

/// What a client hears of a fault: Kafka's code for it. Its text stays here, but for what an operator
/// should know.
fn fault(error: impl Into<ZnodeError>) -> ApiError {
    let error = error.into();
    error!(target: ADMIN_LOG, %error, "ZooKeeper did not carry out a request");
    match error {
        ZnodeError::ControllerMoved(message) => {
            ApiError::new(ErrorCode::StaleControllerEpoch, message)
        }
        _ => ApiError::code(ErrorCode::UnknownServerError),
    }
}

/// A broker that wants to be the controller.
struct Candidate {
    settings: Settings,
    zk: Arc<dyn ZkStore>,
    registered: watch::Receiver<Option<SessionId>>,
    to_broker: mpsc::Sender<ToBroker>,
    told: Arc<watch::Sender<u64>>,
    is_ours: Arc<dyn Fn(SessionId) -> bool + Send + Sync>,
    metrics: ControllerMetrics,
    stop: CancellationToken,
    office: watch::Sender<Option<ControllerEpoch>>,
}

impl Candidate {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut changes = self.zk.changes().under(&WATCHED);
        while !self.stop.is_cancelled() {
            let Some(session) = self.registration().await else { return };
            let id = self.settings.broker;
            let is_ours = &*self.is_ours;
            let ghosts = Ghosts { is_ours: &is_ours, wait_at_most: Duration::ZERO };
            match election::elect(&*self.zk, id, clock::wall_clock(), &ghosts).await {
                Ok(Elected::Us(fence)) => {
                    self.serve(session, fence, &mut changes, &mut commands).await;
                }
                Ok(Elected::Other(controller)) => {
                    debug!(
                        target: CONTROLLER_LOG,
                        "[Controller id={id}] Broker {} has been elected as the controller, so stopping the election process.",
                        controller.document.broker_id
                    );
                    if self.wait_for_vacancy(&mut changes).await.is_none() {
                        return;
                    }
                }
                Err(ZnodeError::ZooKeeper(ZkError::SessionExpired)) => {}
                Err(ZnodeError::ZooKeeper(ZkError::Closed)) => return,
                Err(error) => {
                    warn!(target: CONTROLLER_LOG, %error, "[Controller id={id}] the election failed");
                    self.pause().await;
                }
            }
        }
    }

    async fn serve(
        &self,
        session: SessionId,
        fence: Fence,
        changes: &mut ZkChanges,
        commands: &mut mpsc::Receiver<Command>,
    ) {
        let id = self.settings.broker;
        info!(
            target: CONTROLLER_LOG,
            "[Controller id={id}] {id} successfully elected as the controller. \
             Epoch incremented to {} and epoch zk version is now {}",
            fence.epoch,
            fence.version
        );
        // Those of an earlier term.
        while commands.try_recv().is_ok() {}
        self.office.send_replace(Some(fence.epoch));
        let office = Office {
            zk: &*self.zk,
            settings: &self.settings,
            session,
            fence,
            changes,
            commands,
            to_own: self.to_broker.clone(),
            told: self.told.clone(),
            metrics: &self.metrics,
            stop: &self.stop,
        };
        let ended = office.serve().await;
        self.office.send_replace(None);
        self.metrics.show(false, Counts::default());
        self.metrics.show_queued(0);
        self.after(ended, fence).await;
    }

    /// Waits until this broker is registered in the present session. None at the end.
    async fn registration(&mut self) -> Option<SessionId> {
        loop {
            let registered = *self.registered.borrow_and_update();
            match registered {
                Some(session) if self.zk.session().session_id() == Some(session) => {
                    return Some(session);
                }
                _ if self.zk.session() == SessionState::Closed => return None,
                _ => {}
            }
            tokio::select! {
                changed = self.registered.changed() => changed.ok()?,
                () = self.stop.cancelled() => return None,
            }
        }
    }

    /// Waits for a change of `/controller` or of the session. None at the end.
    async fn wait_for_vacancy(&self, changes: &mut ZkChanges) -> Option<()> {
        loop {
            tokio::select! {
                next = changes.next() => {
                    let next = next?;
                    if next.session.is_some() || next.node_is_dirty(paths::CONTROLLER) {
                        return Some(());
                    }
                }
                () = self.stop.cancelled() => return None,
            }
        }
    }

    async fn after(&self, ended: Ended, fence: Fence) {
        let id = self.settings.broker;
        match ended {
            Ended::Stopped | Ended::SessionLost => {}
            Ended::Moved => {
                info!(target: CONTROLLER_LOG, "[Controller id={id}] the office is vacant or taken");
            }
            Ended::Failed(error) => {
                warn!(target: CONTROLLER_LOG, %error, "[Controller id={id}] Forcing the controller to resign");
                if let Err(error) = election::resign(&*self.zk, fence).await {
                    warn!(target: CONTROLLER_LOG, %error, "[Controller id={id}] could not resign");
                }
                self.pause().await;
            }
        }
    }

    async fn pause(&self) {
        tokio::select! {
            () = tokio::time::sleep(ELECTION_BACKOFF) => {}
            () = self.stop.cancelled() => {}
        }
    }
}
