//! Connections to the brokers of one cluster, and what is known of it.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use common::{clock, error_code::ErrorCode};
use kafka_protocol::{
    messages::{
        MetadataRequest, MetadataResponse, TopicName, metadata_request::MetadataRequestTopic,
    },
    protocol::{Decodable, StrBytes},
};
use parking_lot::Mutex;
use tokio::{
    net::lookup_host,
    sync::OnceCell,
    time::{sleep, sleep_until},
};
use tracing::{error, warn};

use crate::{
    config::{ConnectionConfig, split_host_port},
    connection::Connection,
    error::{ClientError, ErrorKind},
    metadata::{Metadata, Node},
};

const NETWORK_CLIENT: &str = "org.apache.kafka.clients.NetworkClient";

/// A cluster; clones share everything. Needs a tokio runtime around it.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    config: ConnectionConfig,
    bootstrap: Vec<Node>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: HashMap<i32, Link>,
    metadata: Arc<Metadata>,
    /// When `metadata` was read; none before the first time.
    read_at: Option<Instant>,
}

/// The way to one broker.
#[derive(Clone)]
struct Link {
    node: Node,
    /// Whoever comes first connects, the others wait for it; empty again after a failure.
    connection: Arc<OnceCell<Connection>>,
    failures: u32,
    /// No attempt before this.
    not_before: Instant,
}

/// Which topics a metadata request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topics {
    /// All there are.
    All,
    /// None: brokers alone.
    None,
    /// These; whether they may be created.
    Named(Vec<String>, AutoCreate),
}

/// Whether naming a topic may create it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCreate {
    /// The broker's `auto.create.topics.enable` decides.
    Allowed,
    /// Never.
    Forbidden,
}

impl Cluster {
    /// Resolves the bootstrap names; connects later. Source: `ClientUtils.parseAndValidateAddresses`.
    pub async fn open(config: ConnectionConfig) -> Result<Cluster, ClientError> {
        let mut bootstrap = Vec::new();
        for (index, server) in config.bootstrap_servers.iter().enumerate() {
            let Some((host, port)) = split_host_port(server) else { continue };
            if lookup_host((host, port)).await.is_err() {
                let class = "org.apache.kafka.clients.ClientUtils";
                warn!(
                    class,
                    "Couldn't resolve server {server} from bootstrap.servers as DNS resolution failed for {host}"
                );
                continue;
            }
            let id = -1 - i32::try_from(index).unwrap_or(i32::MAX - 1);
            bootstrap.push(Node { id, host: host.to_owned(), port, rack: None });
        }
        if bootstrap.is_empty() {
            return Err(ClientError::config(
                "No resolvable bootstrap urls given in bootstrap.servers",
            ));
        }
        let shared = Shared { config, bootstrap, state: Mutex::default() };
        Ok(Cluster { shared: Arc::new(shared) })
    }

    /// Settings of the connections.
    pub fn config(&self) -> &ConnectionConfig {
        &self.shared.config
    }

    /// The bootstrap addresses, as brokers with negative ids.
    pub fn bootstrap(&self) -> &[Node] {
        &self.shared.bootstrap
    }

    /// What was read last.
    pub fn metadata(&self) -> Arc<Metadata> {
        self.shared.state.lock().metadata.clone()
    }

    /// Time since metadata was read last; none before the first time.
    pub fn metadata_age(&self) -> Option<Duration> {
        let read_at = self.shared.state.lock().read_at?;
        Some(clock::now().saturating_duration_since(read_at))
    }

    /// A connection to a broker: the one there is, or a new one. One attempt, after the pause that failures impose.
    pub async fn connect(&self, node: &Node) -> Result<Connection, ClientError> {
        let link = self.link(node);
        let connected = link.connection.get_or_try_init(|| self.attempt(&link)).await;
        match connected {
            Ok(connection) => Ok(connection.clone()),
            Err(error) => Err(error),
        }
    }

    /// The link to a node; made anew when the broker moved or its connection ended.
    fn link(&self, node: &Node) -> Link {
        let mut state = self.shared.state.lock();
        let link = state.links.entry(node.id).or_insert_with(|| Link::new(node));
        if link.node.host != node.host || link.node.port != node.port {
            *link = Link::new(node);
        }
        if link.connection.get().is_some_and(Connection::is_closed) {
            link.connection = Arc::default();
            link.not_before = clock::now() + self.shared.config.reconnect_backoff;
        }
        link.clone()
    }

    async fn attempt(&self, link: &Link) -> Result<Connection, ClientError> {
        let not_before = {
            let state = self.shared.state.lock();
            state.links.get(&link.node.id).map_or(link.not_before, |link| link.not_before)
        };
        sleep_until(not_before.into()).await;
        let opened = self.open_any_address(&link.node).await;
        let mut state = self.shared.state.lock();
        let config = &self.shared.config;
        let Some(kept) = state.links.get_mut(&link.node.id) else { return opened };
        if opened.is_ok() {
            kept.failures = 0;
        } else {
            let factor = 2_u32.saturating_pow(kept.failures.min(20));
            let pause = config.reconnect_backoff.saturating_mul(factor);
            kept.failures += 1;
            kept.not_before = clock::now() + pause.min(config.reconnect_backoff_max);
        }
        opened
    }

    /// Tries the addresses of a broker's name in turn.
    async fn open_any_address(&self, node: &Node) -> Result<Connection, ClientError> {
        let prefix = &self.shared.config.log_prefix;
        let class = NETWORK_CLIENT;
        let addresses: Vec<SocketAddr> = lookup_host((node.host.as_str(), node.port))
            .await
            .map_or(Vec::new(), Iterator::collect);
        let mut failure = ClientError::new(
            ErrorKind::Disconnected,
            format!("Couldn't resolve host {}", node.host),
        );
        for address in addresses {
            match Connection::open(address, &self.shared.config).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = error,
            }
            let shown = shown_address(&node.host, address);
            warn!(
                class,
                "{prefix}Connection to node {} ({shown}) could not be established. Node may not be available.",
                node.id
            );
        }
        if node.id < 0 && !prefix.starts_with("[AdminClient") {
            warn!(class, "{prefix}Bootstrap broker {node} disconnected");
        }
        Err(failure)
    }

    /// A connection to any broker, a connected one first, tried until the deadline. None when the time is over.
    pub async fn connect_any(&self, deadline: Instant) -> Option<Connection> {
        let mut candidates = self.candidates();
        let mut next = 0;
        while clock::now() < deadline {
            let node = &candidates[next % candidates.len()];
            let attempt = tokio::time::timeout_at(deadline.into(), self.connect(node));
            match attempt.await {
                Ok(Ok(connection)) => return Some(connection),
                Ok(Err(_)) => next += 1,
                Err(_) => return None,
            }
            if next % candidates.len() == 0 {
                candidates = self.candidates();
                next = 0;
            }
        }
        None
    }

    /// Known brokers, or the bootstrap addresses; connected ones first.
    fn candidates(&self) -> Vec<Node> {
        let state = self.shared.state.lock();
        let mut nodes: Vec<Node> = state.metadata.nodes.values().cloned().collect();
        nodes.extend(self.shared.bootstrap.iter().cloned());
        let is_connected = |node: &Node| {
            let link = state.links.get(&node.id);
            link.and_then(|link| link.connection.get()).is_some_and(|open| !open.is_closed())
        };
        nodes.sort_by_key(|node| !is_connected(node));
        nodes
    }

    /// Reads the metadata once, from any broker, and keeps it. The deadline's error is the caller's to word.
    pub async fn refresh(
        &self,
        topics: &Topics,
        deadline: Instant,
    ) -> Result<Arc<Metadata>, ClientError> {
        let over = || ClientError::new(ErrorKind::Timeout, "Timed out waiting for metadata");
        let connection = self.connect_any(deadline).await.ok_or_else(over)?;
        let version = connection.version_of::<MetadataRequest>(i16::MAX)?;
        let limit = self.shared.config.request_timeout.min(deadline - clock::now().min(deadline));
        let pending = connection.start(&metadata_request(topics, version), version).await?;
        let correlation_id = pending.correlation_id();
        let mut body = pending.wait(limit).await?;
        let response = MetadataResponse::decode(&mut body, version)
            .map_err(|error| ClientError::new(ErrorKind::Malformed, error.to_string()))?;
        let metadata = Arc::new(Metadata::from_response(&response));
        self.report(&metadata, correlation_id);
        let mut state = self.shared.state.lock();
        state.metadata = metadata.clone();
        state.read_at = Some(clock::now());
        Ok(metadata)
    }

    /// Logs topics with errors as Java's producer and consumer do; the admin client leaves that to its calls.
    fn report(&self, metadata: &Metadata, correlation_id: i32) {
        let prefix = &self.shared.config.log_prefix;
        if prefix.starts_with("[AdminClient") {
            return;
        }
        let with = |is_wanted: fn(ErrorCode) -> bool| {
            let mut topics: Vec<_> =
                metadata.topics.values().filter(|topic| is_wanted(topic.error)).collect();
            topics.sort_by(|one, other| one.name.cmp(&other.name));
            topics
        };
        let failed: Vec<String> = with(|code| code != ErrorCode::None)
            .iter()
            .map(|topic| format!("{}={}", topic.name, topic.error.name()))
            .collect();
        if !failed.is_empty() {
            let class = NETWORK_CLIENT;
            let failed = failed.join(", ");
            warn!(
                class,
                "{prefix}The metadata response from the cluster reported a recoverable issue with correlation id {correlation_id} : {{{failed}}}"
            );
        }
        let invalid: Vec<&str> = with(|code| code == ErrorCode::InvalidTopicException)
            .iter()
            .map(|topic| topic.name.as_str())
            .collect();
        if !invalid.is_empty() {
            let class = "org.apache.kafka.clients.Metadata";
            let invalid = invalid.join(", ");
            error!(class, "{prefix}Metadata response reported invalid topics [{invalid}]");
        }
    }

    /// Waits before a retry: doubles with each attempt, up to the configured limit.
    pub async fn back_off(&self, attempt: u32) {
        let config = &self.shared.config;
        let pause = config.retry_backoff.saturating_mul(2_u32.saturating_pow(attempt.min(20)));
        sleep(pause.min(config.retry_backoff_max)).await;
    }
}

impl Link {
    fn new(node: &Node) -> Link {
        Link {
            node: node.clone(),
            connection: Arc::default(),
            failures: 0,
            not_before: clock::now(),
        }
    }
}

/// As Java prints an `InetSocketAddress`: `name/address:port`, without a name where it is an address.
fn shown_address(host: &str, address: SocketAddr) -> String {
    let name = if host.parse::<IpAddr>().is_ok() { "" } else { host };
    match address {
        SocketAddr::V4(_) => format!("{name}/{address}"),
        SocketAddr::V6(six) => {
            let groups = six.ip().segments().map(|group| format!("{group:x}")).join(":");
            format!("{name}/[{groups}]:{}", six.port())
        }
    }
}

/// Names topics as the version wants: null is all, from version 1 on; an empty list was all before.
fn metadata_request(topics: &Topics, version: i16) -> MetadataRequest {
    let request = MetadataRequest::default();
    match topics {
        Topics::All if version == 0 => request.with_topics(Some(Vec::new())),
        Topics::All => request.with_topics(None).with_allow_auto_topic_creation(version < 4),
        Topics::None => {
            request.with_topics(Some(Vec::new())).with_allow_auto_topic_creation(version < 4)
        }
        Topics::Named(names, auto_create) => {
            let topics = names.iter().map(|name| {
                let name = TopicName(StrBytes::from_string(name.clone()));
                MetadataRequestTopic::default().with_name(Some(name))
            });
            let may_create = version < 4 || *auto_create == AutoCreate::Allowed;
            request.with_topics(Some(topics.collect())).with_allow_auto_topic_creation(may_create)
        }
    }
}
