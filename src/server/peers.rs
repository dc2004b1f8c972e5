//! Connections to other brokers: opened when first used, one for each broker and purpose, opened again when they end.

use std::{
    collections::HashMap,
    io,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{clock, config::broker::BrokerConfig, ids::BrokerId};
use kafka_protocol::protocol::Request;
use metadata::{broker::Endpoint, cache::MetadataCache};
use network::{
    outgoing::{ApiVersions, Connection, OutgoingConfig, OutgoingError},
    server::receive_buffer,
};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// How long a broker that did not take a connection is left alone. Source: `reconnect.backoff.ms` of Kafka's brokers.
const RECONNECT_BACKOFF: Duration = Duration::from_millis(50);

/// Default of `replica.socket.receive.buffer.bytes`.
const FETCH_BUFFER_BYTES: u32 = 65_536;

/// What this broker says of itself to others.
const SOFTWARE: (&str, &str) = ("odradek", env!("CARGO_PKG_VERSION"));

/// What a connection is for. What one kind of request waits for does not hold up another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// What is asked of the controller.
    Controller,
    /// Markers of transactions.
    Markers,
    /// Questions to transaction coordinators.
    Verification,
    /// Changes of in-sync sets.
    AlterPartition,
    /// The fetches of one fetcher, which wait for records.
    Fetcher(usize),
}

/// Why another broker was not reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// It is not alive, as far as is known.
    #[error("broker {0} is not alive")]
    NotAlive(BrokerId),
    /// It has no such listener.
    #[error("broker {broker} has no listener {listener}")]
    NoListener {
        /// The broker.
        broker: BrokerId,
        /// The listener that brokers use among themselves.
        listener: String,
    },
    /// It did not take a connection a moment ago.
    #[error("broker {0} was not reached a moment ago")]
    BackingOff(BrokerId),
    /// It speaks no version that would do.
    #[error("broker {broker} speaks no version of API {api} that this one does")]
    UnsupportedVersion {
        /// The broker.
        broker: BrokerId,
        /// The key of the API.
        api: i16,
    },
    /// Its name has no address.
    #[error("resolve {host}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// The connection failed, or ended without an answer.
    #[error("ask {address}")]
    Failed {
        /// The address, as `host:port`.
        address: String,
        /// What happened.
        source: OutgoingError,
    },
}

/// The other brokers. Shared.
pub(crate) struct Peers {
    metadata: Arc<MetadataCache>,
    listener: String,
    config: OutgoingConfig,
    /// `replica.socket.receive.buffer.bytes`, for what fetchers read; none leaves it to the system, which is also done where
    /// it may grow as large.
    fetch_buffer_bytes: Option<u32>,
    /// `controller.socket.timeout.ms`.
    controller_timeout: Duration,
    links: Mutex<HashMap<(BrokerId, Purpose), Link>>,
}

#[derive(Clone)]
struct Link {
    endpoint: Endpoint,
    peer: Arc<OnceCell<Peer>>,
    /// When it last failed to be opened.
    failed: Option<Instant>,
}

/// A connection, and what the broker at its end speaks.
struct Peer {
    connection: Connection,
    versions: ApiVersions,
}

impl Peers {
    /// Connects to nobody yet.
    pub(crate) fn new(
        id: BrokerId,
        config: &BrokerConfig,
        metadata: Arc<MetadataCache>,
    ) -> Arc<Peers> {
        let wanted = u32::try_from(config.replica_socket_receive_buffer_bytes).ok();
        Arc::new(Peers {
            metadata,
            listener: config.inter_broker_listener_name.clone(),
            config: outgoing(id, config),
            fetch_buffer_bytes: receive_buffer(
                wanted.filter(|bytes| *bytes > 0),
                FETCH_BUFFER_BYTES,
            ),
            controller_timeout: controller_timeout(config),
            links: Mutex::default(),
        })
    }

    /// How long the controller may take for an answer, where no other limit is Kafka's.
    /// Source: `NodeToControllerChannelManagerImpl`.
    pub(crate) fn controller_timeout(&self) -> Duration {
        self.controller_timeout
    }

    /// Sends a request in the newest version of those given that the broker speaks, and waits for its answer, at most
    /// `limit`, not counting the connect. Gives the version with the answer.
    pub(crate) async fn call<R: Request>(
        &self,
        to: BrokerId,
        purpose: Purpose,
        request: &R,
        versions: RangeInclusive<i16>,
        limit: Duration,
    ) -> Result<(R::Response, i16), PeerError> {
        let endpoint = self.endpoint(to)?;
        let connected = self.peer(to, purpose, &endpoint).await?;
        let peer = connected.get().ok_or(PeerError::BackingOff(to))?;
        let (least, most) = peer.versions.get(&R::KEY).copied().unwrap_or((0, -1));
        let version = most.min(*versions.end());
        if version < least.max(*versions.start()) {
            return Err(PeerError::UnsupportedVersion { broker: to, api: R::KEY });
        }
        let answered = peer.connection.call(request, version, limit).await;
        let failed = |source| PeerError::Failed { address: address(&endpoint), source };
        Ok((answered.map_err(failed)?, version))
    }

    async fn peer(
        &self,
        to: BrokerId,
        purpose: Purpose,
        endpoint: &Endpoint,
    ) -> Result<Arc<OnceCell<Peer>>, PeerError> {
        let link = self.link(to, purpose, endpoint);
        if link.failed.is_some_and(|at| at.elapsed() < RECONNECT_BACKOFF) {
            return Err(PeerError::BackingOff(to));
        }
        let opening = || async {
            let connection = open(endpoint, &self.config_for(purpose)).await?;
            let versions = connection.negotiate(SOFTWARE, self.config.setup_timeout).await;
            let failed = |source| PeerError::Failed { address: address(endpoint), source };
            Ok(Peer { connection, versions: versions.map_err(failed)? })
        };
        match link.peer.get_or_try_init(opening).await {
            Ok(_) => Ok(link.peer),
            Err(error) => {
                if let Some(link) = self.links.lock().get_mut(&(to, purpose)) {
                    link.failed = Some(clock::now());
                }
                Err(error)
            }
        }
    }

    fn config_for(&self, purpose: Purpose) -> OutgoingConfig {
        let mut config = self.config.clone();
        match purpose {
            Purpose::Fetcher(_) => config.receive_buffer_bytes = self.fetch_buffer_bytes,
            Purpose::Controller | Purpose::AlterPartition => {
                config.setup_timeout = config.setup_timeout.min(self.controller_timeout);
            }
            Purpose::Markers | Purpose::Verification => {}
        }
        config
    }

    fn endpoint(&self, broker: BrokerId) -> Result<Endpoint, PeerError> {
        let snapshot = self.metadata.load();
        let known = snapshot.broker(broker).ok_or(PeerError::NotAlive(broker))?;
        known
            .endpoint(&self.listener)
            .cloned()
            .ok_or_else(|| PeerError::NoListener { broker, listener: self.listener.clone() })
    }

    /// The connection to use, or a place for a new one where there is none, it has ended, or the broker moved.
    fn link(&self, to: BrokerId, purpose: Purpose, endpoint: &Endpoint) -> Link {
        let mut links = self.links.lock();
        let fresh = || Link { endpoint: endpoint.clone(), peer: Arc::default(), failed: None };
        let link = links.entry((to, purpose)).or_insert_with(fresh);
        let has_ended = link.peer.get().is_some_and(|peer| peer.connection.is_closed());
        if has_ended || link.endpoint != *endpoint {
            *link = fresh();
        }
        link.clone()
    }
}

/// How this broker connects to others. Source: `NetworkClient` as brokers make it: named by their id.
pub(crate) fn outgoing(id: BrokerId, config: &BrokerConfig) -> OutgoingConfig {
    let setup_ms = u64::try_from(config.socket_connection_setup_timeout_ms).unwrap_or(0);
    OutgoingConfig {
        client_id: id.0.to_string(),
        setup_timeout: Duration::from_millis(setup_ms),
        send_buffer_bytes: None,
        receive_buffer_bytes: None,
    }
}

/// How this broker's controller connects to others. Source: `RequestSendThread`: requests have `request.timeout.ms`, but
/// a connection must be there within `controller.socket.timeout.ms`.
pub(crate) fn outgoing_of_controller(id: BrokerId, config: &BrokerConfig) -> OutgoingConfig {
    let outgoing = outgoing(id, config);
    OutgoingConfig {
        setup_timeout: outgoing.setup_timeout.min(controller_timeout(config)),
        ..outgoing
    }
}

fn controller_timeout(config: &BrokerConfig) -> Duration {
    Duration::from_millis(u64::try_from(config.controller_socket_timeout_ms).unwrap_or(0))
}

/// Connects to a broker: its name is resolved, and its addresses are tried in turn.
pub(crate) async fn open(
    endpoint: &Endpoint,
    config: &OutgoingConfig,
) -> Result<Connection, PeerError> {
    let Endpoint { host, port, .. } = endpoint;
    let unresolved = |source| PeerError::Resolve { host: host.clone(), source };
    let addresses = tokio::net::lookup_host((host.as_str(), *port)).await.map_err(unresolved)?;
    let mut last = OutgoingError::Connect(io::ErrorKind::AddrNotAvailable.into());
    for at in addresses {
        match Connection::open(at, config).await {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(PeerError::Failed { address: address(endpoint), source: last })
}

fn address(endpoint: &Endpoint) -> String {
    format!("{}:{}", endpoint.host, endpoint.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(line: &str) -> BrokerConfig {
        let text = format!("zookeeper.connect=localhost:2181\n{line}\n");
        BrokerConfig::parse(&common::properties::parse(text.as_bytes())).unwrap()
    }

    #[test]
    fn the_controllers_timeout_ends_what_goes_to_it_and_comes_from_it() {
        let setups = |timeout_ms: &str| {
            let config = config(&format!("controller.socket.timeout.ms={timeout_ms}"));
            let peers = Peers::new(BrokerId(1), &config, Arc::new(MetadataCache::new()));
            let to = |purpose| peers.config_for(purpose).setup_timeout;
            [
                to(Purpose::Controller),
                to(Purpose::AlterPartition),
                outgoing_of_controller(BrokerId(1), &config).setup_timeout,
                to(Purpose::Markers),
                peers.controller_timeout(),
            ]
            .map(|timeout| timeout.as_millis())
        };
        assert_eq!(setups("2000"), [2_000, 2_000, 2_000, 10_000, 2_000]);
        assert_eq!(setups("30000"), [10_000, 10_000, 10_000, 10_000, 30_000]);
    }

    #[test]
    fn only_fetchers_have_their_receive_buffer() {
        let buffers = |bytes: &str| {
            let config = config(&format!("replica.socket.receive.buffer.bytes={bytes}"));
            let peers = Peers::new(BrokerId(1), &config, Arc::new(MetadataCache::new()));
            [Purpose::Fetcher(0), Purpose::AlterPartition]
                .map(|purpose| peers.config_for(purpose).receive_buffer_bytes)
        };
        assert_eq!(buffers("20000"), [Some(20_000), None]);
        assert_eq!(buffers("-1"), [None, None], "the system's own");
    }
}
