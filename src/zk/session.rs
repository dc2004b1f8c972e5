//! The session with a real ZooKeeper: connects, serves requests, and builds itself again when lost.
//!
//! Each connection has a runtime of its own on the session's one thread. The client library would connect again by itself,
//! but waits longer and longer and gives up sessions that the servers still know; so when a connection is lost, its
//! runtime is dropped with all that runs in it, and the next one takes the session up where it was. Only
//! ZooKeeper says that a session has expired.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use common::clock;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{debug, error, info, warn};
use zookeeper_client::{
    Acls, Client, CreateMode, Error, EventType, MultiWriteError, MultiWriteResult, OneshotWatcher,
    SaslOptions, SessionInfo,
};

use crate::{
    changes::{Dirty, SessionState, Watched},
    paths,
    probe::Probe,
    real::{
        Action, Answer, CLOSE_AT_MOST, ConnectError, Failure, Request, Shared, Trouble, ZkConfig,
    },
    resolver::Resolver,
    store::{
        CreateKind, Created, Expected, Node, Op, OpResult, SessionId, Stat, Watch, ZkError,
        ZkVersion,
    },
    tls::Speaker,
    tunnel::Tunnel,
};

/// Pauses between rounds over all servers, the first and the longest; the longest is also a small part of the session's
/// time, which begins anew when a server is back.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_AT_MOST: Duration = Duration::from_secs(1);
const RETRIES_PER_SESSION: u32 = 10;

/// From one look at servers that cannot be reached to the next.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// From one line about the same trouble to the next.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Where the servers are, and how they and we make sure of each other.
pub(crate) struct Ensemble {
    /// `host:port,host:port`.
    pub(crate) hosts: String,
    /// What every path is below.
    pub(crate) chroot: Option<String>,
    /// TLS to every server, where set.
    pub(crate) tls: Option<Speaker>,
    /// Login, where set.
    pub(crate) sasl: Option<SaslOptions>,
}

/// The worker's ends of what joins it to the store.
pub(crate) struct Ends {
    /// What both see.
    pub(crate) shared: Arc<Shared>,
    /// What the store asks for.
    pub(crate) requests: mpsc::UnboundedReceiver<Request>,
    /// Becomes `true` once the store is closed.
    pub(crate) stop: watch::Receiver<bool>,
}

/// Owned by the session's thread.
pub(crate) struct Worker {
    config: ZkConfig,
    ensemble: Ensemble,
    resolver: Resolver,
    /// What the connection goes through, of its runtime.
    tunnel: Option<Tunnel>,
    chroot_is_there: bool,
    shared: Arc<Shared>,
    requests: mpsc::UnboundedReceiver<Request>,
    stop: watch::Receiver<bool>,
    session: Option<SessionInfo>,
    has_served: bool,
    /// Watches that ZooKeeper may still hold, or has fired and we are to hear of.
    armed: Arc<Mutex<HashSet<Dirty>>>,
    /// Finds out why there is no connection, and when it last began to.
    probe: Probe,
    probed: Option<(Instant, JoinHandle<()>)>,
}

enum Next {
    Connect,
    Stop,
}

impl Worker {
    pub(crate) fn new(config: ZkConfig, ensemble: Ensemble, ends: Ends) -> Worker {
        let resolver = Resolver::new(&ensemble.hosts, config.resolve.clone());
        let Ends { shared, requests, stop } = ends;
        let probe = Probe {
            hosts: resolver.hosts.clone(),
            resolve: config.resolve.clone(),
            tls: config.tls.as_ref().and_then(|tls| tls.config().ok()),
        };
        Worker {
            config,
            ensemble,
            resolver,
            tunnel: None,
            chroot_is_there: false,
            shared,
            requests,
            stop,
            session: None,
            has_served: false,
            armed: Arc::default(),
            probe,
            probed: None,
        }
    }

    /// Runs until the store is closed.
    pub(crate) fn run(mut self) {
        loop {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => {
                    error!(%error, "cannot make a runtime for the ZooKeeper session");
                    break;
                }
            };
            match runtime.block_on(self.connection()) {
                Next::Connect => {}
                Next::Stop => break,
            }
        }
    }

    /// One connection. When it returns, its runtime goes, and only that makes it safe to drop the client: with a runtime
    /// that goes on, the library would end the session.
    async fn connection(&mut self) -> Next {
        let Some(client) = self.connect().await else { return Next::Stop };
        let mut stop = self.stop.clone();
        let prepared = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => Ok(()),
            prepared = self.prepare(&client) => prepared,
        };
        match prepared {
            Ok(()) => self.serve(client).await,
            Err(Error::AuthFailed) => {
                self.refuse_login();
                sleep(RETRY_AT_MOST).await;
                Next::Connect
            }
            Err(error) => {
                debug!(%error, "cannot prepare the ZooKeeper session");
                sleep(RETRY_FIRST).await;
                if self.shared.fault.lock().is_some() { Next::Stop } else { Next::Connect }
            }
        }
    }

    /// Takes the session up, or begins a new one; `None` when told to stop.
    async fn connect(&mut self) -> Option<Client> {
        let mut stop = self.stop.clone();
        let mut pause = RETRY_FIRST;
        loop {
            let result = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return None,
                result = self.try_connect() => result,
            };
            match result {
                Ok(client) => return Some(client),
                Err(Error::SessionExpired) if self.session.is_some() => {
                    self.expire();
                    continue;
                }
                Err(Error::AuthFailed) => {
                    self.refuse_login();
                    pause = RETRY_AT_MOST;
                }
                Err(error) => {
                    debug!(%error, hosts = %self.ensemble.hosts, "cannot reach ZooKeeper");
                    self.find_out_why();
                }
            }
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return None,
                () = sleep(pause) => {}
            }
            pause =
                RETRY_AT_MOST.min(pause * 2).min(self.config.session_timeout / RETRIES_PER_SESSION);
        }
    }

    /// Looks at the servers on a thread of its own: a name or a connection may take its time.
    fn find_out_why(&mut self) {
        let now = clock::now();
        let is_due = self.probed.as_ref().is_none_or(|(begun, thread)| {
            thread.is_finished() && now.saturating_duration_since(*begun) >= PROBE_EVERY
        });
        if !is_due {
            return;
        }
        let (probe, shared, stop) = (self.probe.clone(), self.shared.clone(), self.stop.clone());
        let (name, connections) = (self.config.name.clone(), shared.trouble.lock().connections);
        let look = move || {
            let reason = probe.reasons();
            let mut trouble = shared.trouble.lock();
            if *stop.borrow() || trouble.connections != connections {
                return;
            }
            let (is_new, now) = (trouble.reason.as_ref() != Some(&reason), clock::now());
            let is_due = |told| now.saturating_duration_since(told) >= TELL_AGAIN_AFTER;
            if is_new || trouble.told.is_none_or(is_due) {
                warn!("[ZooKeeperClient {name}] Cannot connect to ZooKeeper: {reason}");
                trouble.told = Some(now);
                trouble.reason = Some(reason);
            }
        };
        match thread::Builder::new().name("zookeeper-probe".to_owned()).spawn(look) {
            Ok(thread) => self.probed = Some((now, thread)),
            Err(error) => debug!(%error, "no thread to look at ZooKeeper's servers"),
        }
    }

    fn refuse_login(&self) {
        error!("[ZooKeeperClient {}] Auth failed", self.config.name);
        self.config.metrics.auth_failures.mark(1);
        self.shared.hub.set_session(SessionState::AuthFailed);
    }

    async fn try_connect(&mut self) -> Result<Client, Error> {
        let mut connector = Client::connector()
            .with_session_timeout(self.config.session_timeout)
            .with_fail_eagerly();
        if let Some(session) = &self.session {
            connector = connector.with_session(session.clone());
        }
        if let Some(sasl) = &self.ensemble.sasl {
            connector = connector.with_sasl(sasl.clone());
        }
        if let Some(Speaker::Library(tls)) = &self.ensemble.tls {
            // The library finds the addresses itself, at each connection: it needs the names for the certificates.
            return connector.with_tls((**tls).clone()).secure_connect(&self.ensemble.hosts).await;
        }
        let addresses = self.resolver.addresses().await;
        if addresses.is_empty() {
            return Err(Error::NoHosts);
        }
        let Some(Speaker::Tunnel(tls)) = &self.ensemble.tls else {
            return connector.connect(&addresses).await;
        };
        let tunnel = Tunnel::open(&addresses, tls).await;
        let tunnel = tunnel.map_err(|error| {
            warn!(%error, "cannot make a connection within this machine");
            Error::NoHosts
        })?;
        connector.connect(&self.tunnel.insert(tunnel).entrances).await
    }

    /// What comes before any request: nothing older than what was seen is read, and the chroot is there.
    async fn prepare(&mut self, client: &Client) -> Result<(), Error> {
        if self.ensemble.sasl.is_some() && !is_logged_in(client).await? {
            return Err(Error::AuthFailed);
        }
        if self.has_served {
            // The server may lag behind the one before.
            client.sync("/").await?;
        }
        self.has_served = true;
        self.session = Some(client.session().clone());
        let Some(chroot) = self.ensemble.chroot.as_ref().filter(|_| !self.chroot_is_there) else {
            return Ok(());
        };
        let options = CreateMode::Persistent.with_acls(acls(chroot, self.config.set_acl));
        let made = client.mkdir(chroot, &options).await;
        if let Err(error @ (Error::NoAuth | Error::InvalidAcl | Error::QuotaExceeded)) = &made {
            let (path, source) = (chroot.clone(), error.clone());
            *self.shared.fault.lock() = Some(ConnectError::Chroot { path, source });
        }
        made?;
        self.chroot_is_there = true;
        Ok(())
    }

    /// ZooKeeper has ended the session.
    fn expire(&mut self) {
        let Some(session) = self.session.take() else { return };
        info!("[ZooKeeperClient {}] Session expired.", self.config.name);
        self.config.metrics.expires.mark(1);
        self.shared.ended_sessions.fetch_add(1, Ordering::AcqRel);
        self.shared.hub.set_session(SessionState::Expired(SessionId(session.id().0)));
        while let Ok(request) = self.requests.try_recv() {
            // Nobody waits any more where it fails.
            let _ = request.reply.send(Err(Failure::Refused(ZkError::SessionExpired)));
        }
        info!(
            "[ZooKeeperClient {}] Initializing a new session to {}.",
            self.config.name, self.config.connect
        );
    }

    async fn serve(&mut self, client: Client) -> Next {
        let session = SessionId(client.session_id().0);
        let client = match self.ensemble.chroot.clone() {
            Some(chroot) => client.chroot(chroot).expect("it was created under this name"),
            None => client,
        };
        let mut states = client.state_watcher();
        if client.state() != zookeeper_client::SessionState::SyncConnected {
            return self.lost(session).await;
        }
        self.config.metrics.sync_connects.mark(1);
        let connections = self.shared.trouble.lock().connections + 1;
        *self.shared.trouble.lock() = Trouble { connections, ..Trouble::default() };
        self.shared.hub.set_session(SessionState::Connected(session));
        let lost_watches = std::mem::take(&mut *self.armed.lock());
        for dirty in lost_watches {
            self.shared.hub.mark_dirty(&dirty.path, dirty.watched);
        }

        let suspect = Arc::new(Notify::new());
        let connection = Arc::new(Connection {
            client,
            shared: self.shared.clone(),
            armed: self.armed.clone(),
            chroot: self.ensemble.chroot.clone(),
            set_acl: self.config.set_acl,
            suspect: suspect.clone(),
        });
        let mut stop = self.stop.clone();
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                state = states.changed() => {
                    if state != zookeeper_client::SessionState::SyncConnected {
                        return self.lost(session).await;
                    }
                }
                () = suspect.notified() => return self.lost(session).await,
                Some(_) = running.join_next() => {}
                Some(request) = self.requests.recv() => self.begin(request, &connection, &mut running),
            }
        }
        let finish = async {
            while running.join_next().await.is_some() {}
            // The library says goodbye to ZooKeeper once the last handle is gone. A connection that is lost meanwhile
            // is not mended for it.
            drop(connection);
            states.changed().await
        };
        if timeout(CLOSE_AT_MOST, finish).await != Ok(zookeeper_client::SessionState::Closed) {
            warn!(%session, "ZooKeeper did not confirm the end of the session");
        }
        Next::Stop
    }

    async fn lost(&mut self, session: SessionId) -> Next {
        // What was answered before the loss is handed on.
        tokio::task::yield_now().await;
        self.config.metrics.disconnects.mark(1);
        self.shared.hub.set_session(SessionState::Disconnected(session));
        Next::Connect
    }

    fn begin(&self, request: Request, connection: &Arc<Connection>, running: &mut JoinSet<()>) {
        if request.ended_sessions != self.shared.ended_sessions.load(Ordering::Acquire) {
            // Nobody waits any more where it fails.
            let _ = request.reply.send(Err(Failure::Refused(ZkError::SessionExpired)));
            return;
        }
        let connection = connection.clone();
        let latency = self.config.metrics.request_latency_ms.clone();
        running.spawn(async move {
            // The whole of it: a part alone would leave the permit behind.
            let Request { action, reply, permit, .. } = request;
            let sent = clock::now();
            let result = connection.perform(action).await;
            drop(permit);
            let elapsed = clock::now().saturating_duration_since(sent).as_millis();
            latency.update(u64::try_from(elapsed).unwrap_or(u64::MAX));
            if matches!(result, Err(Failure::Lost)) {
                connection.suspect.notify_one();
            }
            // Nobody waits any more where it fails.
            let _ = reply.send(result);
        });
    }
}

impl Drop for Worker {
    /// However the thread ends, nobody waits for it any more.
    fn drop(&mut self) {
        self.shared.hub.set_session(SessionState::Closed);
    }
}

/// Whether the server took the login: one that has no users says nothing against it, and the library goes on without.
async fn is_logged_in(client: &Client) -> Result<bool, Error> {
    match client.list_auth_users().await {
        Ok(users) => Ok(users.iter().any(|user| user.scheme() == "sasl")),
        // A server older than 3.7 cannot be asked.
        Err(Error::Unimplemented) => Ok(true),
        Err(error) => Err(error),
    }
}

/// One connection, with its requests and watches.
struct Connection {
    client: Client,
    shared: Arc<Shared>,
    armed: Arc<Mutex<HashSet<Dirty>>>,
    chroot: Option<String>,
    set_acl: bool,
    suspect: Arc<Notify>,
}

impl Connection {
    async fn perform(&self, action: Action) -> Result<Answer, Failure> {
        match action {
            Action::Get(path, watch) => self.get(&path, watch).await,
            Action::Exists(path, watch) => self.exists(&path, watch).await,
            Action::Children(path, watch) => self.children(&path, watch).await,
            Action::Create(path, data, kind) => self.create(&path, &data, kind).await,
            Action::Set(path, data, expected) => {
                let result = self.client.set_data(&path, &data, version(expected)).await;
                result.map(|stat| Answer::Set(stat_of(&stat))).map_err(|e| failure(e, &path))
            }
            Action::Delete(path, expected) => {
                let result = self.client.delete(&path, version(expected)).await;
                result.map(|()| Answer::Deleted).map_err(|error| failure(error, &path))
            }
            Action::Multi(ops) => self.multi(&ops).await,
        }
    }

    async fn get(&self, path: &str, watch: Watch) -> Result<Answer, Failure> {
        loop {
            let result = if self.must_arm(path, Watched::Node, watch) {
                let result = self.client.get_and_watch_data(path).await;
                result.map(|(data, stat, watcher)| (data, stat, Some(watcher)))
            } else {
                self.client.get_data(path).await.map(|(data, stat)| (data, stat, None))
            };
            match result {
                Ok((data, stat, watcher)) => {
                    self.arm(path, Watched::Node, watcher);
                    return Ok(Answer::Node(Some(Node { data, stat: stat_of(&stat) })));
                }
                Err(Error::NoNode) if self.is_absent(path, watch).await? => {
                    return Ok(Answer::Node(None));
                }
                Err(Error::NoNode) => {}
                Err(error) => return Err(failure(error, path)),
            }
        }
    }

    async fn exists(&self, path: &str, watch: Watch) -> Result<Answer, Failure> {
        let stat = self.stat(path, watch).await?;
        Ok(Answer::Stat(stat))
    }

    async fn children(&self, path: &str, watch: Watch) -> Result<Answer, Failure> {
        loop {
            let result = if self.must_arm(path, Watched::Children, watch) {
                let result = self.client.list_and_watch_children(path).await;
                result.map(|(children, watcher)| (children, Some(watcher)))
            } else {
                self.client.list_children(path).await.map(|children| (children, None))
            };
            match result {
                Ok((children, watcher)) => {
                    self.arm(path, Watched::Children, watcher);
                    return Ok(Answer::Children(children));
                }
                Err(Error::NoNode) if self.is_absent(path, watch).await? => {
                    return Ok(Answer::Children(Vec::new()));
                }
                Err(Error::NoNode) => {}
                Err(error) => return Err(failure(error, path)),
            }
        }
    }

    /// Watches for the creation of a node that was just not there; `false` where it has been created since.
    async fn is_absent(&self, path: &str, watch: Watch) -> Result<bool, Failure> {
        Ok(watch == Watch::No || self.stat(path, watch).await?.is_none())
    }

    async fn stat(&self, path: &str, watch: Watch) -> Result<Option<Stat>, Failure> {
        let result = if self.must_arm(path, Watched::Node, watch) {
            let result = self.client.check_and_watch_stat(path).await;
            result.map(|(stat, watcher)| (stat, Some(watcher)))
        } else {
            self.client.check_stat(path).await.map(|stat| (stat, None))
        };
        let (stat, watcher) = result.map_err(|error| failure(error, path))?;
        self.arm(path, Watched::Node, watcher);
        Ok(stat.as_ref().map(stat_of))
    }

    /// A path that is still watched need not be watched again: until we hear of its change, ZooKeeper tells of it before
    /// it answers a read that shows it.
    fn must_arm(&self, path: &str, watched: Watched, watch: Watch) -> bool {
        let dirty = Dirty { path: path.to_owned(), watched };
        watch == Watch::Yes && !self.armed.lock().contains(&dirty)
    }

    fn arm(&self, path: &str, watched: Watched, watcher: Option<OneshotWatcher>) {
        let Some(watcher) = watcher else { return };
        let dirty = Dirty { path: path.to_owned(), watched };
        self.armed.lock().insert(dirty.clone());
        let (armed, hub) = (self.armed.clone(), self.shared.hub.clone());
        tokio::spawn(async move {
            let event = watcher.changed().await;
            // With the session's end all watches are dirty, once there is a new one.
            if event.event_type != EventType::Session {
                armed.lock().remove(&dirty);
                hub.mark_dirty(&dirty.path, dirty.watched);
            }
        });
    }

    async fn create(&self, path: &str, data: &[u8], kind: CreateKind) -> Result<Answer, Failure> {
        let options = mode(kind).with_acls(acls(path, self.set_acl));
        let result = self.client.create(path, data, &options).await;
        let (stat, sequence) = result.map_err(|error| self.not_created(error, path))?;
        let path = match kind {
            CreateKind::Persistent | CreateKind::Ephemeral => path.to_owned(),
            _ => format!("{path}{sequence}"),
        };
        Ok(Answer::Created(Created { path, stat: stat_of(&stat) }))
    }

    /// What is at the top for us has the chroot for its parent, which is not ours to create now.
    fn not_created(&self, error: Error, path: &str) -> Failure {
        match (&error, &self.chroot) {
            (Error::NoNode, Some(chroot)) if paths::parent(path).is_none() => {
                Failure::Refused(ZkError::NoChroot { chroot: chroot.clone() })
            }
            _ => failure(error, path),
        }
    }

    async fn multi(&self, ops: &[Op]) -> Result<Answer, Failure> {
        let first = ops.first().map_or("", Op::path);
        let mut writer = self.client.new_multi_writer();
        for op in ops {
            let added = match op {
                Op::Check { path, version } => writer.add_check_version(path, version.0),
                Op::Create { path, data, kind } => {
                    writer.add_create(path, data, &mode(*kind).with_acls(acls(path, self.set_acl)))
                }
                Op::Set { path, data, expected } => {
                    writer.add_set_data(path, data, version(*expected))
                }
                Op::Delete { path, expected } => writer.add_delete(path, version(*expected)),
            };
            added.map_err(|error| failure(error, op.path()))?;
        }
        match writer.commit().await {
            Ok(results) if results.len() == ops.len() => {
                Ok(Answer::Multi(results.into_iter().map(op_result).collect()))
            }
            Ok(results) => {
                let message = format!("{} results for {} steps", results.len(), ops.len());
                Err(Failure::Refused(ZkError::Other { path: first.to_owned(), message }))
            }
            Err(MultiWriteError::RequestFailed { source }) => Err(failure(source, first)),
            Err(MultiWriteError::OperationFailed { index, source }) => {
                let failed = match ops.get(index) {
                    Some(Op::Create { path, .. }) => self.not_created(source, path),
                    op => failure(source, op.map_or(first, Op::path)),
                };
                match failed {
                    Failure::Lost => Err(Failure::Lost),
                    Failure::Refused(reason) => {
                        let reason = Box::new(reason);
                        Err(Failure::Refused(ZkError::Multi { index, reason }))
                    }
                }
            }
        }
    }
}

/// Who may do what with a new node. Source: `ZkData.defaultAcls`.
fn acls(path: &str, set_acl: bool) -> Acls<'static> {
    if !set_acl || path == paths::CONSUMERS {
        Acls::anyone_all()
    } else if paths::is_sensitive(path) {
        Acls::creator_all()
    } else {
        Acls::new(&CREATOR_ALL_AND_ANYONE_READ)
    }
}

static CREATOR_ALL_AND_ANYONE_READ: [zookeeper_client::Acl; 2] = [
    zookeeper_client::Acl::new_const(zookeeper_client::Permission::ALL, "auth", ""),
    zookeeper_client::Acl::new_const(zookeeper_client::Permission::READ, "world", "anyone"),
];

fn mode(kind: CreateKind) -> CreateMode {
    match kind {
        CreateKind::Persistent => CreateMode::Persistent,
        CreateKind::Ephemeral => CreateMode::Ephemeral,
        CreateKind::PersistentSequential => CreateMode::PersistentSequential,
        CreateKind::EphemeralSequential => CreateMode::EphemeralSequential,
    }
}

fn version(expected: Expected) -> Option<i32> {
    match expected {
        Expected::Any => None,
        Expected::Version(version) => Some(version.0),
    }
}

fn stat_of(stat: &zookeeper_client::Stat) -> Stat {
    Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        pzxid: stat.pzxid,
        ctime: common::ids::Timestamp(stat.ctime),
        mtime: common::ids::Timestamp(stat.mtime),
        version: ZkVersion(stat.version),
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner: (stat.ephemeral_owner != 0).then_some(SessionId(stat.ephemeral_owner)),
        data_length: stat.data_length,
        num_children: stat.num_children,
    }
}

fn op_result(result: MultiWriteResult) -> OpResult {
    match result {
        MultiWriteResult::Create { path, .. } => OpResult::Created(path),
        MultiWriteResult::SetData { stat } => OpResult::Set(stat_of(&stat)),
        MultiWriteResult::Delete => OpResult::Deleted,
        _ => OpResult::Checked,
    }
}

fn failure(error: Error, path: &str) -> Failure {
    let path = path.to_owned();
    Failure::Refused(match error {
        Error::NoNode => ZkError::NoNode { path },
        Error::NodeExists => ZkError::NodeExists { path },
        Error::BadVersion => ZkError::BadVersion { path },
        Error::NotEmpty => ZkError::NotEmpty { path },
        Error::NoChildrenForEphemerals => ZkError::NoChildrenForEphemerals { path },
        Error::NoAuth => ZkError::NoAuth { path },
        Error::AuthFailed => ZkError::AuthFailed,
        Error::SessionExpired => ZkError::SessionExpired,
        // The server answered, so nothing is unknown.
        Error::BadArguments(_)
        | Error::InvalidAcl
        | Error::NotReadOnly
        | Error::QuotaExceeded
        | Error::Throttled
        | Error::MarshallingError
        | Error::Unimplemented
        | Error::UnexpectedErrorCode(_)
        | Error::RuntimeInconsistent => ZkError::Other { path, message: error.to_string() },
        _ => return Failure::Lost,
    })
}
