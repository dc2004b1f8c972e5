//! Starting and stopping a broker. The order is Kafka's: whoever watches ZooKeeper or the ports sees the same.
//! Source: `KafkaServer.startup`, `KafkaServer.shutdown`.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use common::{
    clock,
    config::broker::BrokerConfig,
    counters::Registry,
    ids::{BrokerId, ControllerEpoch},
    topic::Uuid,
};
use metadata::{broker::Endpoint, cache::MetadataCache};
use network::server::{BindError, SocketServer};
use parking_lot::Mutex;
use replication::{
    fetch_session::SessionCache,
    fetchers::{FetcherConfig, Fetchers},
    replica_manager::ReplicaManager,
    surroundings::Surroundings,
};
use storage::{
    cleaner::{Cleaner, CleanerOptions},
    log_manager::{Intervals, LogManager, LogManagerOptions, StartError as LogsError},
    log_manager_load::LoadProgress,
    maintenance::Background,
    meta_properties::{Ensemble, MismatchError},
    producer_limit::PRODUCERS_MAX,
};
use tokio::{
    sync::{Semaphore, mpsc, watch as latest},
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use zk::{
    bootstrap,
    configs::{self, Entity},
    documents::config::Configs,
    error::ZnodeError,
    metrics::ZkMetrics,
    real::{ConnectError, RealStore},
    registration::RegisterError,
    store::{SessionId, ZkError, ZkStore},
};

use crate::{
    alter_partition,
    broker::{Broker, Requests},
    broker_configs::BrokerConfigs,
    controlled_shutdown, controller,
    conversions::ConversionMemory,
    dynamic_config,
    groups::BrokerGroups,
    handlers::{list_offsets::SEARCHES_MAX, preferred_replica::RACK_AWARE},
    hanging_transactions,
    leader_ways::PeerLeaders,
    listeners::{self, UnservedProtocols},
    metrics::BrokerMetrics,
    peers::Peers,
    producer_ids::{ProducerIds, Sources},
    registration::Registrar,
    replica_requests::ReplicaRequests,
    replication_quotas::ReplicationQuotas,
    session_file::SessionFile,
    topic_configs::TopicConfigs,
    transactions::{self, BrokerTransactions},
    unserved::{self, UnservedKeys},
    watch,
    zookeeper_client::{self, ZooKeeperClientError},
};

/// Requests of the controller to this broker that wait to be carried out.
const CONTROLLER_REQUESTS_MAX: usize = 1024;
/// How long the broker's own tasks may take to end when it stops.
const TASKS_AT_MOST: Duration = Duration::from_secs(1);
/// How long connections may take to send their last answers.
const DRAIN_AT_MOST: Duration = Duration::from_secs(2);
/// How often loading says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Why a broker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// ZooKeeper cannot be reached as the properties ask for.
    #[error(transparent)]
    ZooKeeperClient(#[from] ZooKeeperClientError),
    /// ZooKeeper was not reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// ZooKeeper refused something.
    #[error(transparent)]
    ZooKeeper(#[from] ZkError),
    /// A znode cannot be read.
    #[error(transparent)]
    Znode(#[from] ZnodeError),
    /// The log directories are not this broker's.
    #[error(transparent)]
    Mismatch(#[from] MismatchError),
    /// The log directories cannot be used.
    #[error(transparent)]
    Logs(#[from] LogsError),
    /// A listener cannot be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A listener is of a kind that is not served.
    #[error(transparent)]
    Protocol(#[from] UnservedProtocols),
    /// Properties that must not be ignored are not served.
    #[error(transparent)]
    Keys(#[from] UnservedKeys),
    /// Another broker tells clients one of our addresses.
    #[error(
        "requirement failed: Configured end points {endpoints} in advertised listeners are already registered by broker {broker}"
    )]
    AddressTaken {
        /// The addresses, as `host:port`.
        endpoints: String,
        /// Whose they are.
        broker: BrokerId,
    },
    /// The id cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// No id was configured, found, or may be generated.
    #[error(
        "broker.id is -1, no meta.properties has one, and broker.id.generation.enable is false"
    )]
    NoBrokerId,
    /// The system gives no thread.
    #[error("start the thread that keeps the logs")]
    Thread(#[source] std::io::Error),
    /// A part of the start ended without a result.
    #[error("a part of the start panicked")]
    Panicked,
}

/// A broker that serves, until it is stopped.
pub struct Running {
    broker: Arc<Broker>,
    network: SocketServer,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    background: Background,
    cleaner: Option<Cleaner>,
}

impl Running {
    /// Starts a broker on the ZooKeeper of its configuration; it serves when this returns. Java's system properties may
    /// name a login.
    pub async fn start(
        config: Arc<BrokerConfig>,
        java: &security::java_options::JavaOptions,
    ) -> Result<Running, StartError> {
        check_served(&config)?;
        let connect = &config.zookeeper_connect;
        info!(target: "kafka.server.KafkaServer", "Connecting to zookeeper on {connect}");
        let registry = Registry::default();
        let metrics = ZkMetrics::of_broker(&registry);
        let zk = RealStore::connect(zookeeper_client::zk_config(&config, java, metrics)?).await?;
        Running::start_on(config, zk, &registry).await
    }

    /// Starts a broker on a store, counting into a registry; closes the store where it does not start.
    pub async fn start_on(
        config: Arc<BrokerConfig>,
        zk: Arc<dyn ZkStore>,
        registry: &Registry,
    ) -> Result<Running, StartError> {
        let started = start(config, zk.clone(), registry).await;
        if started.is_err() {
            // The start has failed already; what closing says adds nothing.
            let _ = zk.close().await;
        }
        started
    }

    /// The address that a listener is bound to.
    pub fn local_address(&self, listener: &str) -> Option<SocketAddr> {
        self.network.local_address(listener)
    }

    /// What the handlers share.
    #[cfg(test)]
    pub(crate) fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// This broker's id.
    pub fn id(&self) -> BrokerId {
        self.broker.id
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> &str {
        &self.broker.cluster_id
    }

    /// Waits for a fault that ends the broker, and says what it is.
    pub async fn fault(&self) -> String {
        // On a task, which ends with this future: the thread that waits here is not woken by each look.
        let broker = self.broker.clone();
        let mut watching = JoinSet::new();
        watching.spawn(async move { watch::directories(&broker).await });
        match watching.join_next().await {
            Some(Ok(fault)) => fault,
            _ => "the watch over the log directories has failed".to_owned(),
        }
    }

    /// Stops: what it leads moves, then the clients go, then the controller's term, then the logs, then the session and with it the znodes.
    pub async fn stop(self) {
        if self.broker.config.controlled_shutdown_enable {
            controlled_shutdown::run(&self.broker).await;
        }
        self.broker.replicas.stop_fetching();
        // Members that wait in a rebalance are told; else the drain would wait for them.
        self.broker.groups.stop();
        self.broker.transactions.stop();
        self.network.stop(DRAIN_AT_MOST).await;
        self.stop.cancel();
        let deadline = clock::now() + TASKS_AT_MOST;
        for mut task in self.tasks {
            // One that panicked has said so. One that waits for a ZooKeeper that is away is ended: what it holds there
            // goes with the session.
            if tokio::time::timeout_at(deadline.into(), &mut task).await.is_err() {
                task.abort();
            }
        }
        let (logs, background, cleaner) = (self.broker.logs.clone(), self.background, self.cleaner);
        let closed = tokio::task::spawn_blocking(move || {
            if let Some(cleaner) = cleaner {
                cleaner.stop();
            }
            background.stop();
            logs.close();
        });
        if closed.await.is_err() {
            error!(target: "kafka.server.KafkaServer", "closing the logs panicked");
        }
        if let Err(problem) = self.broker.zk.close().await {
            warn!(target: "kafka.server.KafkaServer", %problem, "could not end the ZooKeeper session");
        }
    }
}

/// Refuses what cannot be served, before anything is connected to, bound or written.
fn check_served(config: &BrokerConfig) -> Result<(), StartError> {
    unserved::check(config)?;
    listeners::check_served(config)?;
    Ok(())
}

async fn start(
    config: Arc<BrokerConfig>,
    zk: Arc<dyn ZkStore>,
    registry: &Registry,
) -> Result<Running, StartError> {
    check_served(&config)?;
    let config = with_whole_paths(config);
    bootstrap::create_top_level_paths(&*zk).await?;
    let cluster_id = bootstrap::cluster_id(&*zk, Uuid::random()).await?;
    info!(target: "kafka.server.KafkaServer", "Cluster ID = {cluster_id}");
    let (id, failed) = identity(&config, &*zk, &cluster_id).await?;
    let broker_configs = Arc::new(BrokerConfigs::read(id, config, &*zk).await?);
    let config = broker_configs.current();
    check_served(&config)?;
    info!(target: "kafka.server.KafkaConfig", "{}", config.to_log_text());

    let topic_configs = Arc::new(TopicConfigs::new(config.clone()));
    let logs = load_logs(&config, &*zk, &topic_configs, failed).await?;
    let sessions = Arc::new(Mutex::new(SessionFile::open(&config.log_dirs)));

    let mut network =
        SocketServer::bind(listeners::to_bind(&config), listeners::network_config(&config)).await?;
    network.count_in(registry);
    let bound_port = |name: &str| network.local_address(name).map(|address| address.port());
    let endpoints = listeners::endpoints(&config, &bound_port);
    listeners::announce(&config, &endpoints);
    check_addresses(&*zk, id, &endpoints).await?;

    let stop = CancellationToken::new();
    let metadata = Arc::new(MetadataCache::new());
    let broker_epoch = Arc::new(AtomicI64::new(-1));
    let peers = Peers::new(id, &config, metadata.clone());
    let surroundings = Surroundings::new(
        id,
        metadata.clone(),
        milliseconds(config.replica_lag_time_max_ms),
        registry,
    );
    let quota_window = u64::try_from(config.replication_quota_window_size_seconds).unwrap_or(1);
    let surroundings = Arc::new(surroundings.with_quota_windows(
        usize::try_from(config.replication_quota_window_num).unwrap_or(1),
        Duration::from_secs(quota_window),
    ));
    let leaders = PeerLeaders {
        peers: peers.clone(),
        timeout: milliseconds(i64::from(config.replica_socket_timeout_ms)),
    };
    let fetchers = Fetchers::new(
        fetcher_config(id, &config),
        Arc::new(leaders),
        broker_epoch.clone(),
        registry,
        stop.child_token(),
    );
    let replicas =
        Arc::new(ReplicaManager::new(surroundings.clone(), logs.clone(), Some(fetchers)));
    let (to_broker, from_controller) = mpsc::channel(CONTROLLER_REQUESTS_MAX);
    let (registered, registration) = latest::channel(None);
    // States of the session alone: no path is below this one.
    let changes = zk.changes().under(&["/no-path"]);
    let mut registrar = Registrar {
        zk: zk.clone(),
        id,
        endpoints,
        rack: config.broker_rack.clone(),
        session_timeout: Duration::from_millis(
            u64::try_from(config.zookeeper_session_timeout_ms).unwrap_or(0),
        ),
        sessions: sessions.clone(),
        epoch: broker_epoch.clone(),
        registered,
    };
    registrar.register().await?;

    let groups = Arc::new(BrokerGroups::new(config.clone(), registry, stop.clone()));
    let (transactions, effects) = BrokerTransactions::new(
        id,
        config.clone(),
        metadata.clone(),
        peers.clone(),
        registry,
        stop.clone(),
    );
    let transactions = Arc::new(transactions);
    let (metadata_told, metadata_known) = tokio::sync::watch::channel(false);
    let requests = ReplicaRequests {
        metadata_known: metadata_told,
        groups: groups.clone(),
        transactions: transactions.clone(),
        replicas: replicas.clone(),
        metadata: metadata.clone(),
        topic_configs: topic_configs.clone(),
        zk: zk.clone(),
        broker_epoch: broker_epoch.clone(),
        controller_epoch: ControllerEpoch(0),
    };
    let (controller, controller_task) = controller::start(controller::Start {
        broker: id,
        config: config.clone(),
        broker_configs: broker_configs.clone(),
        zk: zk.clone(),
        metadata: metadata.clone(),
        registered: registration,
        to_broker: to_broker.clone(),
        is_ours: Arc::new(move |session: SessionId| sessions.lock().is_ours(session)),
        metrics: controller::metrics::ControllerMetrics::of_broker(registry),
        stop: stop.clone(),
    });
    let quotas = ReplicationQuotas::new(id, surroundings.clone());
    let apply = Arc::new(ApplyConfigs {
        topic_configs: topic_configs.clone(),
        broker_configs: broker_configs.clone(),
        logs: logs.clone(),
        replicas: replicas.clone(),
        quotas,
    });
    let apply = Arc::new(move |entity: &Entity, configs: &Configs| apply.apply(entity, configs));
    let sender = alter_partition::Sender {
        surroundings,
        metadata: metadata.clone(),
        controller: controller.clone(),
        peers: peers.clone(),
        broker_epoch: broker_epoch.clone(),
    };
    let lag_time_max = milliseconds(config.replica_lag_time_max_ms);
    let mut tasks = vec![
        controller_task,
        tokio::spawn(sender.run(stop.clone())),
        tokio::spawn(keep_in_sync_sets(replicas.clone(), lag_time_max / 2, stop.clone())),
        tokio::spawn(registrar.keep(changes, stop.clone())),
        tokio::spawn(requests.serve(from_controller, stop.clone())),
        tokio::spawn(dynamic_config::listen(zk.clone(), controller.told_of(apply), stop.clone())),
        tokio::spawn(groups.clone().expire_offsets(stop.clone())),
    ];
    let sources = Sources {
        zk: zk.clone(),
        controller: controller.clone(),
        peers: peers.clone(),
        metadata: metadata.clone(),
        broker: id,
        broker_epoch: broker_epoch.clone(),
    };
    let blocks = sources.fetch(config.inter_broker_protocol_version);
    let slots = usize::try_from(config.max_incremental_fetch_session_cache_slots).unwrap_or(0);
    let broker = Arc::new(Broker {
        id,
        epoch: broker_epoch,
        cluster_id,
        producer_ids: ProducerIds::start(blocks, stop.clone()),
        groups,
        transactions,
        zk,
        logs: logs.clone(),
        replicas,
        metadata,
        metadata_known,
        topic_configs,
        fetch_sessions: SessionCache::new(slots),
        controller,
        to_replicas: to_broker,
        peers,
        conversions: ConversionMemory::new(registry),
        searches: Semaphore::new(SEARCHES_MAX),
        metrics: BrokerMetrics::new(registry),
        features_epoch: AtomicI64::new(-1),
        configs: broker_configs,
        config,
    });
    tasks.push(tokio::spawn(watch::features(broker.clone(), stop.clone())));
    tasks.push(tokio::spawn(transactions::carry_out(broker.clone(), effects, stop.clone())));
    tasks.push(tokio::spawn(hanging_transactions::watch(broker.clone(), stop.clone())));
    let cleaner = match broker.config.log_cleaner_enable {
        true => {
            let options = cleaner_options(&broker.config);
            let started = Cleaner::start(logs.clone(), options, registry);
            Some(started.map_err(StartError::Thread)?)
        }
        false => None,
    };
    let background = Background::start(logs).map_err(StartError::Thread)?;
    network.start(Arc::new(Requests(broker.clone())))?;
    if let Some(class) = &broker.config.replica_selector_class
        && class != RACK_AWARE
    {
        warn!(target: "kafka.server.KafkaServer", class, "replica.selector.class is a Java class that cannot be loaded here: consumers read from leaders");
    }
    info!(target: "kafka.server.KafkaServer", "[KafkaServer id={id}] started");
    Ok(Running { broker, network, stop, tasks, background, cleaner })
}

fn milliseconds(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}

fn fetcher_config(id: BrokerId, config: &BrokerConfig) -> FetcherConfig {
    FetcherConfig {
        local: id,
        protocol: config.inter_broker_protocol_version,
        fetchers_per_leader: usize::try_from(config.num_replica_fetchers).unwrap_or(1),
        wait_max_ms: config.replica_fetch_wait_max_ms,
        bytes_min: config.replica_fetch_min_bytes,
        response_bytes_max: config.replica_fetch_response_max_bytes,
        partition_bytes_max: config.replica_fetch_max_bytes,
        backoff: milliseconds(i64::from(config.replica_fetch_backoff_ms)),
    }
}

/// Looks from time to time whether replicas have fallen behind.
async fn keep_in_sync_sets(
    replicas: Arc<ReplicaManager>,
    every: Duration,
    stop: CancellationToken,
) {
    while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        replicas.check_in_sync_sets();
    }
}

/// Tools are told of log directories by their whole paths. Source: `LogManager`, which takes `getAbsoluteFile`.
fn with_whole_paths(config: Arc<BrokerConfig>) -> Arc<BrokerConfig> {
    if config.log_dirs.iter().all(|directory| directory.is_absolute()) {
        return config;
    }
    let mut config = BrokerConfig::clone(&config);
    for directory in &mut config.log_dirs {
        match std::path::absolute(&*directory) {
            Ok(whole) => *directory = whole,
            Err(error) => {
                warn!(target: "kafka.log.LogManager", directory = %directory.display(), %error, "no whole path");
            }
        }
    }
    Arc::new(config)
}

/// Finds out who this broker is, and that its directories are its own.
async fn identity(
    config: &BrokerConfig,
    zk: &dyn ZkStore,
    cluster_id: &str,
) -> Result<(BrokerId, Vec<std::path::PathBuf>), StartError> {
    let mut ensemble = Ensemble::load(&config.log_dirs);
    let mut failed = Vec::new();
    for (directory, problem) in ensemble.failed() {
        error!(target: "kafka.server.KafkaServer", "{}: {problem}", directory.display());
        failed.push(directory.to_owned());
    }
    let configured = (config.broker_id >= 0).then_some(BrokerId(config.broker_id));
    ensemble.verify(Some(cluster_id), configured)?;
    let id = match configured.or(ensemble.node_id()) {
        Some(id) => id,
        None if config.broker_id_generation_enable => {
            bootstrap::generate_broker_id(zk, config.reserved_broker_max_id).await?
        }
        None => return Err(StartError::NoBrokerId),
    };
    for (directory, problem) in ensemble.complete(cluster_id, id, clock::wall_clock()) {
        error!(target: "kafka.server.KafkaServer", %problem, "cannot write meta.properties in {}", directory.display());
        failed.push(directory);
    }
    Ok((id, failed))
}

async fn load_logs(
    config: &Arc<BrokerConfig>,
    zk: &dyn ZkStore,
    topic_configs: &TopicConfigs,
    failed: Vec<std::path::PathBuf>,
) -> Result<Arc<LogManager>, StartError> {
    let mut log_configs = HashMap::new();
    for (entity, overrides) in configs::read_all(zk, "topics").await? {
        if !overrides.is_empty() {
            let settings = topic_configs.put(&entity.entity, overrides);
            log_configs.insert(entity.entity, settings.log.clone());
        }
    }
    let threads_per_directory = usize::try_from(config.num_recovery_threads_per_data_dir);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = LogManagerOptions {
        directories: config.log_dirs.clone(),
        failed,
        default_config: topic_configs.defaults().log.clone(),
        topic_configs: log_configs,
        // All cores recover, unless more threads are asked for.
        threads: cores.max(threads_per_directory.unwrap_or(1) * config.log_dirs.len()),
        intervals: intervals(config),
        seed: rand::random(),
        producers_max: PRODUCERS_MAX,
        now: clock::wall_clock(),
    };
    let progress = Arc::new(LoadProgress::default());
    let seen = progress.clone();
    let loading = tokio::task::spawn_blocking(move || LogManager::open(options, &seen));
    tokio::pin!(loading);
    loop {
        tokio::select! {
            loaded = &mut loading => {
                return Ok(Arc::new(loaded.map_err(|_| StartError::Panicked)??));
            }
            () = tokio::time::sleep(PROGRESS_EVERY) => {
                let (loaded, total) = progress.loaded_of();
                info!(target: "kafka.log.LogManager", "loading logs: {loaded} of {total}");
            }
        }
    }
}

fn cleaner_options(config: &BrokerConfig) -> CleanerOptions {
    let count = |value: i32| usize::try_from(value).unwrap_or(0);
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    CleanerOptions {
        threads: count(config.log_cleaner_threads),
        dedupe_buffer_bytes: unsigned(config.log_cleaner_dedupe_buffer_size),
        load_factor: config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes: count(config.log_cleaner_io_buffer_size),
        bytes_per_second_max: config.log_cleaner_io_max_bytes_per_second,
        backoff: Duration::from_millis(unsigned(config.log_cleaner_backoff_ms)),
    }
}

fn intervals(config: &BrokerConfig) -> Intervals {
    Intervals {
        initial_delay_ms: config.log_initial_task_delay_ms,
        retention_check_ms: config.log_retention_check_interval_ms,
        flush_check_ms: config.log_flush_scheduler_interval_ms,
        recovery_point_checkpoint_ms: i64::from(config.log_flush_offset_checkpoint_interval_ms),
        log_start_checkpoint_ms: i64::from(config.log_flush_start_offset_checkpoint_interval_ms),
        high_watermark_checkpoint_ms: config.replica_high_watermark_checkpoint_interval_ms,
        producer_check_ms: i64::from(config.producer_id_expiration_check_interval_ms),
    }
}

async fn check_addresses(
    zk: &dyn ZkStore,
    id: BrokerId,
    endpoints: &[Endpoint],
) -> Result<(), StartError> {
    let brokers = bootstrap::brokers(zk).await?;
    match bootstrap::address_taken(&brokers, id, endpoints) {
        Some((broker, taken)) => {
            Err(StartError::AddressTaken { endpoints: taken.join(","), broker })
        }
        None => Ok(()),
    }
}

/// Puts changed configs of topics and brokers, and rates of replication, in force.
struct ApplyConfigs {
    topic_configs: Arc<TopicConfigs>,
    broker_configs: Arc<BrokerConfigs>,
    logs: Arc<LogManager>,
    replicas: Arc<ReplicaManager>,
    quotas: ReplicationQuotas,
}

impl ApplyConfigs {
    fn apply(&self, entity: &Entity, configs: &Configs) {
        let name = &entity.entity;
        match entity.entity_type.as_str() {
            "topics" => {
                let settings = self.topic_configs.put(name, configs.clone());
                self.replicas.configure(name, &settings);
            }
            "brokers" => {
                self.quotas.apply(name, configs);
                if let Some(config) = self.broker_configs.apply(name, configs) {
                    self.set_defaults(config);
                }
            }
            _ if configs.is_empty() => {}
            // Values may be credentials.
            kind => {
                let keys: Vec<&str> = configs.keys().map(String::as_str).collect();
                warn!(
                    target: "kafka.server.KafkaServer",
                    "set in ZooKeeper for {kind}/{name}, without effect yet: {}",
                    keys.join(", ")
                );
            }
        }
    }

    /// Gives every topic here the broker's new defaults, under what it sets itself. Source: `DynamicLogConfig`.
    fn set_defaults(&self, config: Arc<BrokerConfig>) {
        self.topic_configs.set_broker(config);
        self.logs.set_default_config(self.topic_configs.defaults().log.clone());
        let logs = self.logs.logs();
        let mut topics = HashSet::new();
        for log in &logs {
            // Also where no controller has told yet what the log is for.
            let topic = &log.partition().topic;
            let settings = self.topic_configs.settings(topic);
            log.set_config(settings.log.clone());
            if topics.insert(topic) {
                self.replicas.configure(topic, &settings);
            }
        }
    }
}
