//! The running server: a thread for the sockets, one that brings the log to disk, and one for
//! snapshots and purges.
//!
//! Requests are carried out under one lock, in the order in which they come. Replies leave when
//! the log is on disk: while the log thread syncs what one request wrote, others go on, and all
//! that they wrote is one more sync.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::clock;
use parking_lot::{Condvar, MappedMutexGuard, Mutex, MutexGuard};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::admin;
use crate::config::Config;
use crate::connection::{self, Frame, LARGE_FRAMES_KB_MAX, Outlet, SESSIONLESS_MAX};
use crate::core::{Core, Link, Now, Output, Peer, Sasl, Settings, X509};
use crate::snapshot;
use crate::store::{Store, StoreError};
use crate::tls::{self, TlsError};
use crate::traffic::{Latency, Sizes, Traffic};
use crate::txn_log::LogWriter;
use crate::watches::ConnectionId;

/// What the reply to a `multiRead` may always take, whatever `jute.maxbuffer`.
const MULTI_READ_BYTES_MIN: usize = 4 << 20;
/// What it may take, in `jute.maxbuffer`s. Clients read replies of one of theirs, which mostly is ours.
const MULTI_READ_BUFFERS: usize = 4;

/// Bytes of log from one snapshot to the next, however few transactions they are. Source:
/// ZooKeeper's `snapSizeLimitInKb`.
const LOG_BYTES_MAX: usize = 4 << 30;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Looks at sessions in a tick.
const SESSION_CHECKS_PER_TICK: u32 = 10;

/// What a write of the log should not take longer than. Source: ZooKeeper's
/// `fsync.warningthresholdms`.
const SLOW_SYNC: Duration = Duration::from_secs(1);

/// Why a server does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("open the data directory")]
    Store(#[from] StoreError),
    /// The address cannot be listened on.
    #[error("listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The port for TLS cannot be opened.
    #[error("set TLS up")]
    Tls(#[from] TlsError),
    /// The system gives no thread.
    #[error("start a thread")]
    Thread(#[source] io::Error),
}

/// A running server. Stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Loads the data and listens. Comes back when clients can connect.
    pub fn start(config: Config) -> Result<Server, StartError> {
        let begun = clock::now();
        let store = Store::open(&config.data_dir, &config.data_log_dir, config.durability)?;
        let loaded = store.load(config.extended_types)?;
        let plain = config.client_address.map(listen).transpose()?;
        let secure = match &config.secure {
            Some(secure) => {
                let acceptor = tls::acceptor(&secure.tls)?;
                Some((listen(secure.address)?, acceptor))
            }
            None => None,
        };
        let admin = listen_for_admin(&config);
        let addresses = Addresses {
            plain: plain.as_ref().map(|(_, address)| *address),
            secure: secure.as_ref().map(|((_, address), _)| *address),
            admin: admin.as_ref().map(|(_, address)| *address),
        };
        let core = Core::new(settings(&config), loaded.tree, loaded.sessions, Now::read());
        let shared = Arc::new(Shared {
            frame_bytes_max: config.jute_buffer_bytes_max,
            addresses,
            started: begun,
            state: Mutex::new(State {
                core,
                log: Log::Idle,
                txns_since_snapshot: loaded.replayed,
                log_bytes_since_snapshot: 0,
            }),
            log_wake: Condvar::new(),
            housekeeping: Mutex::new(Housekeeping::default()),
            housekeeping_wake: Condvar::new(),
            outlets: Mutex::new(HashMap::new()),
            statistics: Statistics::default(),
            queued_bytes: Arc::default(),
            large_frames: Semaphore::new(LARGE_FRAMES_KB_MAX as usize),
            stop: CancellationToken::new(),
            failed: AtomicBool::new(false),
            config,
            store,
        });
        let mut server = Server { shared: shared.clone(), threads: Vec::new() };
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        server.spawn("zookeeper-log", {
            let shared = shared.clone();
            move || write_log(&shared)
        })?;
        server.spawn("zookeeper-housekeeping", {
            let shared = shared.clone();
            move || keep_house(&shared)
        })?;
        let doors = Doors {
            plain: plain.map(|(listener, _)| listener),
            secure: secure.map(|((listener, _), acceptor)| (listener, acceptor)),
            admin: admin.map(|(listener, _)| listener),
        };
        server.spawn("zookeeper", move || {
            runtime.block_on(accept_loop(&shared, doors));
            // Connections that still are there end with the runtime.
            runtime.shutdown_timeout(Duration::from_secs(1));
        })?;
        let show = |address: Option<SocketAddr>| address.map(|address| address.to_string());
        info!(
            address = show(addresses.plain),
            secure_address = show(addresses.secure),
            admin_address = show(addresses.admin),
            elapsed = ?clock::now() - begun,
            "serving, as one node"
        );
        Ok(server)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(StartError::Thread)?);
        Ok(())
    }

    /// Where clients connect.
    ///
    /// # Panics
    ///
    /// Where there is no port but that for TLS.
    pub fn address(&self) -> SocketAddr {
        self.shared.addresses.plain.expect("the config has a clientPort")
    }

    /// Where clients connect for TLS.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.shared.addresses.secure
    }

    /// Where the admin server is.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.shared.addresses.admin
    }

    /// Whether the server has given up: its log cannot be written.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::SeqCst)
    }

    /// Comes back when the server has stopped by itself: see [`Server::has_failed`].
    pub async fn stopped(&self) {
        self.shared.stop.cancelled().await;
    }

    /// Stops: what was acknowledged is on disk. Sessions live on for the next start.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                error!("a thread of the server has panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// How often sessions are looked at. Apache's looks once a tick, so that what a dead client held is held for up to a tick
/// longer than its timeout; a broker's partitions have no leader for so long.
fn session_check(config: &Config) -> Duration {
    (config.tick / SESSION_CHECKS_PER_TICK).max(Duration::from_millis(1))
}

fn settings(config: &Config) -> Settings {
    Settings {
        session_check: session_check(config),
        session_timeout_ms_min: config.session_timeout_ms_min,
        session_timeout_ms_max: config.session_timeout_ms_max,
        multi_read_bytes_max: MULTI_READ_BYTES_MIN
            .max(config.jute_buffer_bytes_max.saturating_mul(MULTI_READ_BUFFERS)),
        super_digest: config.super_digest.clone(),
        enforce_quota: config.enforce_quota,
        skip_acl: config.skip_acl,
        sasl: Sasl {
            is_enabled: config.sasl || !config.sasl_users.is_empty(),
            is_required: config.sasl_required,
            users: config.sasl_users.clone(),
            super_user: config.super_user.clone(),
        },
        x509: X509 {
            is_enabled: config.secure.is_some(),
            super_user: config.secure.as_ref().and_then(|secure| secure.super_user.clone()),
        },
        container_check: config.container_check,
    }
}

type Listening = (std::net::TcpListener, SocketAddr);

/// Listens; on a machine without IPv6, "every address" is IPv4's.
fn listen(address: SocketAddr) -> Result<Listening, StartError> {
    bind(address).map_err(|source| StartError::Listen { address, source })
}

fn bind(address: SocketAddr) -> io::Result<Listening> {
    let bound = match std::net::TcpListener::bind(address) {
        Err(error) if address.is_ipv6() && error.kind() != io::ErrorKind::AddrInUse => {
            match address.ip().is_unspecified() {
                true => std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())),
                false => Err(error),
            }
        }
        result => result,
    }?;
    // A crowd that comes at once, as after a restart, waits in line instead of trying again in a
    // second.
    rustix::net::listen(&bound, BACKLOG)?;
    bound.set_nonblocking(true)?;
    let address = bound.local_addr()?;
    Ok((bound, address))
}

/// Nobody's data hangs on the admin server: where its port is taken, the rest is served.
fn listen_for_admin(config: &Config) -> Option<Listening> {
    let address = config.admin.as_ref()?.address;
    match bind(address) {
        Ok(listening) => Some(listening),
        Err(error) => {
            warn!(%address, %error, "there is no admin server, see admin.serverPort and admin.enableServer");
            None
        }
    }
}

/// Where a server is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) plain: Option<SocketAddr>,
    pub(crate) secure: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
}

/// What a server listens on.
struct Doors {
    plain: Option<std::net::TcpListener>,
    secure: Option<(std::net::TcpListener, TlsAcceptor)>,
    admin: Option<std::net::TcpListener>,
}

/// What the log thread is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    /// Nothing waits for the disk: replies may leave at once.
    Idle,
    /// Something is on its way to disk: replies wait behind it.
    Busy,
}

#[derive(Debug)]
struct State {
    core: Core,
    log: Log,
    txns_since_snapshot: u64,
    log_bytes_since_snapshot: usize,
}

#[derive(Debug, Default)]
struct Housekeeping {
    snapshot_due: bool,
}

/// Sums over all connections, those that have gone too.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) latency: Mutex<Latency>,
    pub(crate) response_sizes: Mutex<Option<Sizes>>,
    /// Writes of the log that took longer than they should.
    pub(crate) slow_syncs: AtomicU64,
}

/// A connection that has asked for a session, to be shown.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) address: SocketAddr,
    pub(crate) is_secure: bool,
    pub(crate) session: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) traffic: Arc<Traffic>,
}

/// What the threads of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) frame_bytes_max: usize,
    pub(crate) addresses: Addresses,
    pub(crate) started: Instant,
    state: Mutex<State>,
    log_wake: Condvar,
    housekeeping: Mutex<Housekeeping>,
    housekeeping_wake: Condvar,
    outlets: Mutex<HashMap<ConnectionId, (Outlet, Arc<Traffic>)>>,
    pub(crate) statistics: Statistics,
    /// Replies that are not sent yet, of all connections.
    pub(crate) queued_bytes: Arc<AtomicUsize>,
    /// Room for large frames that arrive.
    pub(crate) large_frames: Semaphore,
    stop: CancellationToken,
    failed: AtomicBool,
    pub(crate) store: Store,
}

impl Shared {
    /// The core, to look at; changes go through [`Shared::submit`].
    pub(crate) fn core(&self) -> MappedMutexGuard<'_, Core> {
        MutexGuard::map(self.state.lock(), |state| &mut state.core)
    }

    /// The connections that have asked for a session.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        let core = self.core();
        let show = |link: &Link| Connection {
            address: link.address,
            is_secure: link.is_secure,
            session: link.session,
            timeout_ms: link.timeout_ms,
            traffic: link.traffic.clone(),
        };
        core.links.values().map(show).collect()
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.outlets.lock().len()
    }

    pub(crate) fn attach(
        &self,
        connection: ConnectionId,
        peer: Peer,
        outlet: Outlet,
        traffic: Arc<Traffic>,
    ) {
        self.outlets.lock().insert(connection, (outlet, traffic.clone()));
        self.core().attach(connection, peer, traffic);
    }

    pub(crate) fn detach(&self, connection: ConnectionId) {
        self.core().detach(connection);
        self.outlets.lock().remove(&connection);
    }

    /// Changes the core, and sees to it that what comes of it is logged and sent.
    pub(crate) fn submit(&self, change: impl FnOnce(&mut Core, Now)) {
        let now = Now::read();
        let mut state = self.state.lock();
        change(&mut state.core, now);
        match (state.log, state.core.has_log()) {
            (Log::Busy, true) => {
                self.log_wake.notify_one();
            }
            // It leaves with what the log thread is at.
            (Log::Busy, false) => {}
            (Log::Idle, true) => {
                state.log = Log::Busy;
                self.log_wake.notify_one();
            }
            // Under the lock: no later reply may overtake.
            (Log::Idle, false) => {
                let output = state.core.take().output;
                self.deliver(output);
            }
        }
    }

    fn deliver(&self, output: Vec<Output>) {
        if output.is_empty() {
            return;
        }
        let now = Now::read();
        let mut outlets = self.outlets.lock();
        for output in output {
            match output {
                Output::Send { connection, frame, received } => {
                    let Some((outlet, traffic)) = outlets.get(&connection) else { continue };
                    if let Some(received) = received {
                        let latency = now.instant.duration_since(received);
                        traffic.replied(latency, now.wall_ms);
                        self.statistics.latency.lock().add(latency);
                        let mut sizes = self.statistics.response_sizes.lock();
                        *sizes = Some(Sizes::with(*sizes, frame.len()));
                    }
                    self.statistics.sent.fetch_add(1, Ordering::Relaxed);
                    // It fails when the connection has just ended, and then nobody misses it.
                    let _ = outlet.send(Frame { bytes: frame, received });
                }
                Output::Close { connection } => {
                    outlets.remove(&connection);
                }
            }
        }
    }

    fn end(&self) {
        self.stop.cancel();
        // Under the locks, or a thread between its look and its wait would miss it.
        let _state = self.state.lock();
        self.log_wake.notify_all();
        let _housekeeping = self.housekeeping.lock();
        self.housekeeping_wake.notify_all();
    }

    /// The log cannot be written: nobody may learn of what it lacks, so everything ends here.
    fn fail(&self, error: &io::Error) {
        error!(%error, directory = %self.store.logs.display(), "the log cannot be written, stopping");
        self.failed.store(true, Ordering::SeqCst);
        self.outlets.lock().clear();
        self.end();
    }
}

/// Brings the log to disk, then lets the replies go.
fn write_log(shared: &Shared) {
    let mut writer = LogWriter::new(shared.store.logs.clone(), shared.store.durability);
    loop {
        let mut state = shared.state.lock();
        while !state.core.has_log() && !shared.stop.is_cancelled() {
            shared.log_wake.wait(&mut state);
        }
        let take = state.core.take();
        state.txns_since_snapshot += take.txn_count;
        state.log_bytes_since_snapshot += take.log.len();
        let snapshot_due = state.txns_since_snapshot >= shared.config.snap_count
            || state.log_bytes_since_snapshot >= LOG_BYTES_MAX;
        if snapshot_due {
            state.txns_since_snapshot = 0;
            state.log_bytes_since_snapshot = 0;
        }
        drop(state);
        if let Some(first_zxid) = take.first_zxid {
            let begun = clock::now();
            if let Err(error) = writer.append(&take.log, first_zxid) {
                return shared.fail(&error);
            }
            let elapsed = clock::now() - begun;
            if elapsed > SLOW_SYNC {
                shared.statistics.slow_syncs.fetch_add(1, Ordering::Relaxed);
                warn!(?elapsed, "bringing the log to disk was slow");
            }
        }
        shared.deliver(take.output);
        if snapshot_due {
            writer.roll();
            shared.housekeeping.lock().snapshot_due = true;
            shared.housekeeping_wake.notify_one();
        }
        let mut state = shared.state.lock();
        if !state.core.has_log() {
            let output = state.core.take().output;
            shared.deliver(output);
            state.log = Log::Idle;
            if shared.stop.is_cancelled() {
                return;
            }
        }
    }
}

/// Writes snapshots when they are due, and purges old files.
fn keep_house(shared: &Shared) {
    let (store, interval) = (&shared.store, shared.config.purge_interval);
    let mut purge_at = interval.map(|_| clock::now());
    loop {
        let mut housekeeping = shared.housekeeping.lock();
        while !housekeeping.snapshot_due
            && !shared.stop.is_cancelled()
            && purge_at.is_none_or(|at| clock::now() < at)
        {
            match purge_at {
                Some(at) => {
                    shared.housekeeping_wake.wait_until(&mut housekeeping, at);
                }
                None => shared.housekeeping_wake.wait(&mut housekeeping),
            }
        }
        let snapshot_due = std::mem::take(&mut housekeeping.snapshot_due);
        drop(housekeeping);
        if shared.stop.is_cancelled() {
            return;
        }
        if snapshot_due {
            match snapshot::write(&|| shared.core(), &store.snapshots, store.durability) {
                Ok(zxid) => info!(zxid = format_args!("0x{zxid:x}"), "snapshot written"),
                // The log has everything: the next one may succeed.
                Err(error) => warn!(%error, "snapshot cannot be written"),
            }
        }
        if let Some(interval) = interval
            && purge_at.is_some_and(|at| clock::now() >= at)
        {
            match shared.store.purge(shared.config.purge_retain_count) {
                Ok(count) => info!(count, "old snapshots and logs purged"),
                Err(error) => warn!(%error, "old files cannot be purged"),
            }
            purge_at = Some(clock::now() + interval);
        }
    }
}

/// Takes connections until the server stops, and lets time pass.
async fn accept_loop(shared: &Arc<Shared>, doors: Doors) {
    let (plain, secure, tls) = match open(shared, doors) {
        Ok(open) => open,
        Err(error) => return shared.fail(&error),
    };
    let mut per_address: HashMap<IpAddr, usize> = HashMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    let mut ticks = tokio::time::interval(session_check(&shared.config));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut next_id = 0;
    loop {
        let (accepted, tls) = tokio::select! {
            () = shared.stop.cancelled() => return,
            _ = ticks.tick() => {
                shared.submit(|core, now| core.tick(now));
                continue;
            }
            Some(ended) = tasks.join_next() => {
                match ended {
                    Ok(ip) => leave(&mut per_address, ip),
                    Err(error) => error!(%error, "a connection's task has ended badly"),
                }
                continue;
            }
            accepted = accept(plain.as_ref()) => (accepted, None),
            accepted = accept(secure.as_ref()) => (accepted, tls.clone()),
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "no connection can be accepted for now");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let ip = address.ip().to_canonical();
        let count = per_address.get(&ip).copied().unwrap_or(0);
        if !has_room(shared, address, count, tasks.len()) {
            continue;
        }
        *per_address.entry(ip).or_default() += 1;
        next_id += 1;
        let connection = ConnectionId(next_id);
        let shared = shared.clone();
        tasks.spawn(async move {
            serve(&shared, connection, address, stream, tls).await;
            ip
        });
    }
}

type Open = (Option<TcpListener>, Option<TcpListener>, Option<TlsAcceptor>);

/// Hands the listeners to the runtime, and lets the admin server run.
fn open(shared: &Arc<Shared>, doors: Doors) -> io::Result<Open> {
    if let (Some(listener), Some(config)) = (doors.admin, &shared.config.admin) {
        let listener = TcpListener::from_std(listener)?;
        tokio::spawn(admin::serve(shared.clone(), listener, config.command_url.clone()));
    }
    let plain = doors.plain.map(TcpListener::from_std).transpose()?;
    let (secure, tls) = doors.secure.unzip();
    Ok((plain, secure.map(TcpListener::from_std).transpose()?, tls))
}

/// The next connection of a listener; none without one.
async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

fn leave(per_address: &mut HashMap<IpAddr, usize>, ip: IpAddr) {
    if let Some(count) = per_address.get_mut(&ip) {
        *count -= 1;
        if *count == 0 {
            per_address.remove(&ip);
        }
    }
}

fn has_room(shared: &Shared, address: SocketAddr, of_address: usize, all: usize) -> bool {
    let (each_max, all_max) = (shared.config.client_connections_max, shared.config.connections_max);
    if each_max > 0 && of_address >= each_max {
        warn!(%address, each_max, "too many connections from this address, see maxClientCnxns");
        return false;
    }
    if all_max > 0 && all >= all_max {
        warn!(%address, all_max, "too many connections, see maxCnxns");
        return false;
    }
    true
}

async fn serve(
    shared: &Arc<Shared>,
    connection: ConnectionId,
    address: SocketAddr,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        return debug!(%address, %error, "connection ended before it began");
    }
    let Some(tls) = tls else {
        let (reader, writer) = stream.into_split();
        return connection::serve(shared, connection, Peer::plain(address), reader, writer).await;
    };
    match tokio::time::timeout(SESSIONLESS_MAX, tls::accept(&tls, stream)).await {
        Ok(Ok((stream, subject))) => {
            let (reader, writer) = tokio::io::split(stream);
            let peer = Peer { address, is_secure: true, subject };
            connection::serve(shared, connection, peer, reader, writer).await;
        }
        Ok(Err(error)) => {
            shared.core().failed_logins += 1;
            info!(%address, %error, "no TLS with this client, closing");
        }
        Err(_) => debug!(%address, "the TLS handshake took too long, closing"),
    }
}
