//! The store over a real ZooKeeper: what callers see. The session itself is in `session`.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use security::{jaas::Login, tls::ClientTls};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tracing::info;
use zookeeper_client::SaslOptions;

use crate::{
    changes::{Hub, SessionState, ZkChanges},
    metrics::ZkMetrics,
    paths,
    resolver::{self, Resolve},
    session::{Ends, Ensemble, Worker},
    store::{
        CreateKind, Created, Expected, Node, Op, OpResult, Stat, Watch, ZkError, ZkFuture, ZkStore,
    },
    tls::{ZkTlsError, speaker},
};

/// Pause before a read that met a lost connection is sent again; the session finds out in the meantime.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// What closing may take in all: the requests under way, and telling ZooKeeper.
pub(crate) const CLOSE_AT_MOST: Duration = Duration::from_secs(2);

/// How to reach ZooKeeper.
#[derive(Clone)]
pub struct ZkConfig {
    /// `zookeeper.connect`: `host:port,host:port/chroot`.
    pub connect: String,
    /// `zookeeper.session.timeout.ms`.
    pub session_timeout: Duration,
    /// `zookeeper.connection.timeout.ms`: what the first connection may take.
    pub connection_timeout: Duration,
    /// `zookeeper.max.in.flight.requests`: requests without an answer yet.
    pub max_in_flight_requests: usize,
    /// `jute.maxbuffer`.
    pub request_bytes_max: usize,
    /// `zookeeper.set.acl`: only brokers may change what is created.
    pub set_acl: bool,
    /// Finds the addresses of servers; not asked under TLS where names are checked, for the library looks them up then.
    pub resolve: Resolve,
    /// TLS to every server, where set.
    pub tls: Option<ClientTls>,
    /// Login by SASL DIGEST-MD5, where set.
    pub login: Option<Login>,
    /// Names the client in log lines.
    pub name: String,
    /// What it counts.
    pub metrics: ZkMetrics,
}

impl fmt::Debug for ZkConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without keys and passwords.
        write!(formatter, "ZkConfig({}, tls {}, ", self.connect, self.tls.is_some())?;
        write!(formatter, "login {})", self.login.is_some())
    }
}

impl ZkConfig {
    /// Kafka's defaults for a connect string.
    pub fn new(connect: impl Into<String>) -> ZkConfig {
        ZkConfig {
            connect: connect.into(),
            session_timeout: Duration::from_secs(18),
            connection_timeout: Duration::from_secs(18),
            max_in_flight_requests: 10,
            request_bytes_max: 4096 * 1024,
            set_acl: false,
            resolve: resolver::system(),
            tls: None,
            login: None,
            name: "Kafka server".to_owned(),
            metrics: ZkMetrics::default(),
        }
    }
}

/// Why there is no first session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server answered in time.
    #[error("Timed out waiting for connection while in state: CONNECTING{}", behind_colon(.reason))]
    TimedOut {
        /// What is wrong with the servers, where that is known by then.
        reason: Option<String>,
    },
    /// ZooKeeper refused the credentials.
    #[error("Auth failed either before or while waiting for connection")]
    AuthFailed,
    /// `zookeeper.connect` cannot be read.
    #[error("zookeeper.connect \"{connect}\": {reason}")]
    ConnectString {
        /// The whole text.
        connect: String,
        /// What is wrong with it.
        reason: String,
    },
    /// `zookeeper.set.acl` needs someone for the access lists to name.
    #[error(
        "zookeeper.set.acl is true, but ZooKeeper client TLS configuration identifying at least \
         zookeeper.ssl.client.enable, zookeeper.clientCnxnSocket, and zookeeper.ssl.keystore.location \
         was not present and the verification of the JAAS login file failed"
    )]
    AclsWithoutLogin,
    /// The certificates cannot be used.
    #[error("use zookeeper.ssl.*")]
    Tls(#[from] ZkTlsError),
    /// The chroot is not there and cannot be created.
    #[error("create the chroot {path}")]
    Chroot {
        /// The chroot.
        path: String,
        /// Why not.
        source: zookeeper_client::Error,
    },
    /// The thread of the session cannot start.
    #[error("start the thread of the ZooKeeper session")]
    Thread(#[source] std::io::Error),
    /// The store was closed meanwhile.
    #[error("closed while waiting for connection")]
    Closed,
}

/// A client of a real ZooKeeper. It owns a thread for its session, with a runtime of its own, so that nothing else
/// can hold up its heartbeats.
pub struct RealStore {
    requests: mpsc::UnboundedSender<Request>,
    in_flight: Arc<Semaphore>,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
    request_bytes_max: usize,
    name: String,
}

/// What callers and the session's thread both see.
pub(crate) struct Shared {
    pub(crate) hub: Arc<Hub>,
    /// Counts sessions that ended: a request that began before the last end is not for the next session.
    pub(crate) ended_sessions: AtomicU64,
    /// Why the first connection failed for good.
    pub(crate) fault: Mutex<Option<ConnectError>>,
    /// Why there is no connection.
    pub(crate) trouble: Mutex<Trouble>,
}

/// What was found to be wrong with the servers since the last connection.
#[derive(Default)]
pub(crate) struct Trouble {
    pub(crate) reason: Option<String>,
    /// When the log was last told.
    pub(crate) told: Option<Instant>,
    /// Counts connections: what was found before the last one is past.
    pub(crate) connections: u64,
}

fn behind_colon(reason: &Option<String>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// A request on its way to the session.
pub(crate) struct Request {
    pub(crate) action: Action,
    pub(crate) ended_sessions: u64,
    pub(crate) reply: oneshot::Sender<Result<Answer, Failure>>,
    /// To be held until the answer is there, whether anyone waits for it or not.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// What to ask ZooKeeper.
#[derive(Clone)]
pub(crate) enum Action {
    Get(String, Watch),
    Exists(String, Watch),
    Children(String, Watch),
    Create(String, Vec<u8>, CreateKind),
    Set(String, Vec<u8>, Expected),
    Delete(String, Expected),
    Multi(Vec<Op>),
}

/// What ZooKeeper said; each action has its own.
pub(crate) enum Answer {
    Node(Option<Node>),
    Stat(Option<Stat>),
    Children(Vec<String>),
    Created(Created),
    Set(Stat),
    Deleted,
    Multi(Vec<OpResult>),
}

/// Why there is no answer.
pub(crate) enum Failure {
    /// The connection was lost on the way.
    Lost,
    /// ZooKeeper, or the session's end, says no.
    Refused(ZkError),
}

impl Action {
    fn path(&self) -> &str {
        match self {
            Action::Get(path, _)
            | Action::Exists(path, _)
            | Action::Children(path, _)
            | Action::Create(path, _, _)
            | Action::Set(path, _, _)
            | Action::Delete(path, _) => path,
            Action::Multi(ops) => ops.first().map_or("", Op::path),
        }
    }

    fn is_read(&self) -> bool {
        matches!(self, Action::Get(..) | Action::Exists(..) | Action::Children(..))
    }

    fn size(&self) -> usize {
        match self {
            Action::Create(path, data, _) | Action::Set(path, data, _) => path.len() + data.len(),
            Action::Multi(ops) => ops.iter().map(Op::size).sum(),
            _ => self.path().len(),
        }
    }

    fn check(&self) -> Result<(), ZkError> {
        match self {
            Action::Multi(ops) => ops.iter().try_for_each(check_op),
            Action::Create(path, _, kind) => paths::check(path, is_sequential(*kind)),
            other => paths::check(other.path(), false),
        }
    }
}

fn check_op(op: &Op) -> Result<(), ZkError> {
    let sequential = matches!(op, Op::Create { kind, .. } if is_sequential(*kind));
    paths::check(op.path(), sequential)
}

fn is_sequential(kind: CreateKind) -> bool {
    matches!(kind, CreateKind::PersistentSequential | CreateKind::EphemeralSequential)
}

impl RealStore {
    /// Waits for the first session, creates the chroot where it is absent. Later sessions come by themselves.
    pub async fn connect(config: ZkConfig) -> Result<Arc<RealStore>, ConnectError> {
        let store = RealStore::start(config.clone())?;
        info!("[ZooKeeperClient {}] Waiting until connected.", config.name);
        let waited = tokio::time::timeout(config.connection_timeout, store.first_session()).await;
        match waited {
            Ok(Ok(())) => {
                info!("[ZooKeeperClient {}] Connected.", config.name);
                Ok(store)
            }
            Ok(Err(error)) => {
                store.end().await;
                Err(error)
            }
            Err(_) => {
                let reason = store.shared.trouble.lock().reason.take();
                store.end().await;
                Err(ConnectError::TimedOut { reason })
            }
        }
    }

    fn start(config: ZkConfig) -> Result<Arc<RealStore>, ConnectError> {
        let (hosts, chroot) = split_connect_string(&config.connect)?;
        if config.set_acl && config.login.is_none() && !has_identity(&config) {
            return Err(ConnectError::AclsWithoutLogin);
        }
        let tls = config.tls.as_ref().map(speaker).transpose()?;
        let sasl = config.login.as_ref().map(|login| {
            let (username, password) = (login.username.clone(), login.password.clone());
            SaslOptions::from(SaslOptions::digest_md5(username, password))
        });
        info!(
            "[ZooKeeperClient {}] Initializing a new session to {}.",
            config.name, config.connect
        );
        let shared = Arc::new(Shared {
            hub: Hub::new(SessionState::Connecting),
            ended_sessions: AtomicU64::new(0),
            fault: Mutex::new(None),
            trouble: Mutex::default(),
        });
        let (requests, waiting) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let store = Arc::new(RealStore {
            requests,
            in_flight: Arc::new(Semaphore::new(config.max_in_flight_requests.max(1))),
            shared: shared.clone(),
            stop,
            ended,
            request_bytes_max: config.request_bytes_max,
            name: config.name.clone(),
        });
        let ensemble = Ensemble { hosts, chroot, tls, sasl };
        let worker =
            Worker::new(config, ensemble, Ends { shared, requests: waiting, stop: stopped });
        let thread = std::thread::Builder::new().name("zookeeper-session".to_owned());
        let run = move || {
            worker.run();
            // Nobody may be left to hear it.
            let _ = end.send(true);
        };
        thread.spawn(run).map_err(ConnectError::Thread)?;
        Ok(store)
    }

    async fn first_session(&self) -> Result<(), ConnectError> {
        let mut changes = self.changes();
        while let Some(changes) = changes.next().await {
            match changes.session {
                Some(SessionState::AuthFailed) => return Err(ConnectError::AuthFailed),
                Some(SessionState::Closed) => break,
                None | Some(SessionState::Connecting) => {}
                Some(_) => return Ok(()),
            }
        }
        Err(self.shared.fault.lock().take().unwrap_or(ConnectError::Closed))
    }

    async fn end(&self) {
        if !self.stop.send_replace(true) {
            info!("[ZooKeeperClient {}] Closing.", self.name);
        }
        let mut ended = self.ended.clone();
        // The sender goes only after it sent, so an error means the same.
        let _ = tokio::time::timeout(2 * CLOSE_AT_MOST, ended.wait_for(|ended| *ended)).await;
        self.in_flight.close();
        info!("[ZooKeeperClient {}] Closed.", self.name);
    }

    async fn ask(&self, action: Action) -> Result<Answer, ZkError> {
        action.check()?;
        let size = action.size();
        if size > self.request_bytes_max {
            let (path, limit) = (action.path().to_owned(), self.request_bytes_max);
            return Err(ZkError::TooLarge { path, size, limit });
        }
        let ended_sessions = self.shared.ended_sessions.load(Ordering::Acquire);
        loop {
            match self.ask_once(action.clone(), ended_sessions).await? {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(error)) => return Err(error),
                Err(Failure::Lost) if action.is_read() => {
                    tokio::time::sleep(READ_AGAIN_AFTER).await;
                }
                Err(Failure::Lost) => {
                    return Err(ZkError::MayHaveHappened { path: action.path().to_owned() });
                }
            }
        }
    }

    async fn ask_once(
        &self,
        action: Action,
        ended_sessions: u64,
    ) -> Result<Result<Answer, Failure>, ZkError> {
        let permit = self.in_flight.clone().acquire_owned().await.map_err(|_| ZkError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let request = Request { action, ended_sessions, reply, permit };
        self.requests.send(request).map_err(|_| ZkError::Closed)?;
        // The reply is dropped with the connection's runtime.
        Ok(answer.await.unwrap_or(Err(Failure::Lost)))
    }
}

impl Drop for RealStore {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl ZkStore for RealStore {
    fn get<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Node>> {
        Box::pin(async move {
            match self.ask(Action::Get(path.to_owned(), watch)).await? {
                Answer::Node(node) => Ok(node),
                _ => unreachable!("a get is answered with a node"),
            }
        })
    }

    fn exists<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Option<Stat>> {
        Box::pin(async move {
            match self.ask(Action::Exists(path.to_owned(), watch)).await? {
                Answer::Stat(stat) => Ok(stat),
                _ => unreachable!("an exists is answered with a stat"),
            }
        })
    }

    fn children<'a>(&'a self, path: &'a str, watch: Watch) -> ZkFuture<'a, Vec<String>> {
        Box::pin(async move {
            match self.ask(Action::Children(path.to_owned(), watch)).await? {
                Answer::Children(children) => Ok(children),
                _ => unreachable!("a list is answered with names"),
            }
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        kind: CreateKind,
    ) -> ZkFuture<'a, Created> {
        Box::pin(async move {
            match self.ask(Action::Create(path.to_owned(), data.to_vec(), kind)).await? {
                Answer::Created(created) => Ok(created),
                _ => unreachable!("a create is answered with a path"),
            }
        })
    }

    fn set<'a>(&'a self, path: &'a str, data: &'a [u8], expected: Expected) -> ZkFuture<'a, Stat> {
        Box::pin(async move {
            match self.ask(Action::Set(path.to_owned(), data.to_vec(), expected)).await? {
                Answer::Set(stat) => Ok(stat),
                _ => unreachable!("a set is answered with a stat"),
            }
        })
    }

    fn delete<'a>(&'a self, path: &'a str, expected: Expected) -> ZkFuture<'a, ()> {
        Box::pin(async move {
            self.ask(Action::Delete(path.to_owned(), expected)).await?;
            Ok(())
        })
    }

    fn multi(&self, ops: Vec<Op>) -> ZkFuture<'_, Vec<OpResult>> {
        Box::pin(async move {
            if ops.is_empty() {
                return Ok(Vec::new());
            }
            match self.ask(Action::Multi(ops)).await? {
                Answer::Multi(results) => Ok(results),
                _ => unreachable!("a multi is answered step by step"),
            }
        })
    }

    fn session(&self) -> SessionState {
        self.shared.hub.session()
    }

    fn changes(&self) -> ZkChanges {
        self.shared.hub.subscribe()
    }

    fn request_bytes_max(&self) -> usize {
        self.request_bytes_max
    }

    fn close(&self) -> ZkFuture<'_, ()> {
        Box::pin(async move {
            self.end().await;
            Ok(())
        })
    }
}

/// Takes `hosts/chroot` apart: everything from the first slash on is the chroot of them all.
fn split_connect_string(connect: &str) -> Result<(String, Option<String>), ConnectError> {
    let fail =
        |reason: String| Err(ConnectError::ConnectString { connect: connect.to_owned(), reason });
    let (hosts, chroot) = match connect.find('/') {
        Some(at) => connect.split_at(at),
        None => (connect, ""),
    };
    let hosts: Vec<&str> =
        hosts.split(',').map(str::trim).filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() {
        return fail("names no server".to_owned());
    }
    for host in &hosts {
        let port = match host.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => port,
            _ => "2181",
        };
        if port.parse::<u16>().map_or(true, |port| port == 0) {
            return fail(format!("\"{port}\" is no port"));
        }
    }
    let chroot = match chroot {
        "" | "/" => None,
        chroot => match paths::check(chroot, false) {
            Ok(()) => Some(chroot.to_owned()),
            Err(error) => return fail(error.to_string()),
        },
    };
    Ok((hosts.join(","), chroot))
}

fn has_identity(config: &ZkConfig) -> bool {
    config.tls.as_ref().is_some_and(|tls| tls.identity.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_strings_are_taken_apart() {
        for (connect, hosts, chroot) in [
            ("h1:1,h2:2/kafka/a", "h1:1,h2:2", Some("/kafka/a")),
            ("h1", "h1", None),
            ("h1:1 , h2/", "h1:1,h2", None),
            ("[::1]:2181,[::2]/k", "[::1]:2181,[::2]", Some("/k")),
        ] {
            let split = split_connect_string(connect).unwrap();
            assert_eq!(split, (hosts.to_owned(), chroot.map(str::to_owned)), "{connect}");
        }
        for bad in ["", "/k", "h:x", "h:0", "h:70000", "h//a", "h/../a", "h/a/", "h//"] {
            assert!(split_connect_string(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_first_connection_to_nothing_ends_with_kafkas_words() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = ZkConfig::new(listener.local_addr().unwrap().to_string());
        drop(listener);
        config.connection_timeout = Duration::from_secs(1);
        let expected = format!(
            "Timed out waiting for connection while in state: CONNECTING: {}: Connection refused",
            config.connect
        );
        let error = RealStore::connect(config).await.err().unwrap().to_string();
        assert!(error.starts_with(&expected), "{error}");
    }

    #[tokio::test]
    async fn access_lists_need_a_login() {
        let mut config = ZkConfig::new("127.0.0.1:1");
        config.set_acl = true;
        let error = RealStore::connect(config).await.err().unwrap();
        assert!(error.to_string().starts_with("zookeeper.set.acl is true, but"));
    }
}
