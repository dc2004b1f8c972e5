//! The listeners of a broker and all their connections: bound, started, stopped.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::counters::Registry;
use common::security_protocol::SecurityProtocol;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use crate::accept::Acceptor;
use crate::connection::Ending;
use crate::output::ColdReads;
use crate::quotas::{ConnectionLimits, ListenerLimits, Quotas};
use crate::request_memory::RequestMemory;
use crate::service::Service;
use crate::traffic::Traffic;

/// One entry of `listeners`.
#[derive(Clone)]
pub struct ListenerConfig {
    /// Its name, in upper case.
    pub name: String,
    /// How it is secured.
    pub security_protocol: SecurityProtocol,
    /// What to bind: a name or an address; empty for every address.
    pub host: String,
    /// Zero lets the system choose.
    pub port: u16,
    /// Certificates and rules of an encrypted listener; none on a plaintext one.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Limits of this listener alone.
    pub limits: ListenerLimits,
}

/// The settings that all listeners share.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// `socket.send.buffer.bytes`; none for the system's own.
    pub send_buffer_bytes: Option<u32>,
    /// `socket.receive.buffer.bytes`; none for the system's own, which is also taken where it may grow as large: see
    /// `receive_buffer`.
    pub receive_buffer_bytes: Option<u32>,
    /// `socket.listen.backlog.size`.
    pub listen_backlog: u32,
    /// `socket.request.max.bytes`.
    pub request_bytes_max: usize,
    /// `connections.max.idle.ms`; none for no limit.
    pub idle_max: Option<Duration>,
    /// Limits on connections.
    pub connections: ConnectionLimits,
    /// Requests of one connection that are started and not answered. A full house stops reading from its socket.
    pub requests_in_flight_max: usize,
    /// Bytes of those requests; one request may always be in flight, however large.
    pub request_bytes_in_flight_max: usize,
    /// `queued.max.request.bytes`: bytes of requests that all connections hold; none for no limit.
    pub queued_request_bytes_max: Option<usize>,
}

/// Kafka's default of `socket.receive.buffer.bytes`.
const RECEIVE_BUFFER_BYTES: u32 = 102_400;

impl Default for NetworkConfig {
    /// Kafka's defaults.
    fn default() -> NetworkConfig {
        NetworkConfig {
            send_buffer_bytes: Some(102_400),
            receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
            listen_backlog: 50,
            request_bytes_max: 104_857_600,
            idle_max: Some(Duration::from_secs(600)),
            connections: ConnectionLimits::default(),
            requests_in_flight_max: 100,
            request_bytes_in_flight_max: 32 << 20,
            queued_request_bytes_max: None,
        }
    }
}

/// A listener that cannot be opened.
#[derive(Debug, Error)]
pub enum BindError {
    /// The host has no address.
    #[error("Socket server failed to bind to {host}:{port}: cannot resolve the host")]
    Resolve {
        /// As configured.
        host: String,
        /// As configured.
        port: u16,
        /// What the resolver said; none when it knows no address.
        source: Option<io::Error>,
    },
    /// The address is in use, or not ours.
    #[error("Socket server failed to bind to {host}:{port}")]
    Bind {
        /// As configured.
        host: String,
        /// As configured.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
}

/// A listener that is bound.
struct Bound {
    config: ListenerConfig,
    local: SocketAddr,
    /// Taken by `start`.
    socket: Mutex<Option<TcpSocket>>,
    traffic: Arc<Traffic>,
}

/// What every connection of a server shares.
pub(crate) struct Shared {
    pub(crate) config: NetworkConfig,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) cold_reads: ColdReads,
    /// None without a limit.
    pub(crate) request_memory: Option<Arc<RequestMemory>>,
    pub(crate) service: Arc<dyn Service>,
}

/// The listeners of a broker.
pub struct SocketServer {
    config: NetworkConfig,
    listeners: Vec<Bound>,
    quotas: Arc<Quotas>,
    stopping: CancellationToken,
}

impl SocketServer {
    /// Binds every listener, so that ports are known and a taken one is found early. Clients are refused until `start`.
    pub async fn bind(
        listeners: Vec<ListenerConfig>,
        config: NetworkConfig,
    ) -> Result<SocketServer, BindError> {
        let limits = listeners.iter().map(|listener| listener.limits).collect();
        let quotas = Quotas::new(config.connections.clone(), limits);
        let mut bound = Vec::new();
        for listener in listeners {
            bound.push(bind(listener, &config).await?);
        }
        let stopping = CancellationToken::new();
        Ok(SocketServer { config, listeners: bound, quotas, stopping })
    }

    /// The address that a listener is bound to, with the port that the system chose.
    pub fn local_address(&self, listener: &str) -> Option<SocketAddr> {
        let bound = self.listeners.iter().find(|bound| bound.config.name == listener)?;
        Some(bound.local)
    }

    /// Counts connections, requests and bytes in this registry; said before the start.
    pub fn count_in(&mut self, registry: &Registry) {
        for bound in &mut self.listeners {
            bound.traffic = Traffic::new(registry, &bound.config.name);
        }
    }

    /// Starts to accept. A second call does nothing.
    pub fn start(&self, service: Arc<dyn Service>) -> Result<(), BindError> {
        let shared = Arc::new(Shared {
            config: self.config.clone(),
            quotas: Arc::clone(&self.quotas),
            cold_reads: ColdReads::new(),
            request_memory: self.config.queued_request_bytes_max.map(RequestMemory::new),
            service,
        });
        for (index, bound) in self.listeners.iter().enumerate() {
            let Some(socket) = bound.socket.lock().take() else { continue };
            let listener = listen(socket, &bound.config, self.config.listen_backlog)?;
            tracing::info!(
                "Awaiting socket connections on {}:{}.",
                bound.config.host,
                bound.local.port()
            );
            let acceptor = Acceptor {
                listener,
                index,
                config: bound.config.clone(),
                shared: Arc::clone(&shared),
                traffic: Arc::clone(&bound.traffic),
            };
            tokio::spawn(acceptor.run(self.stopping.clone()));
        }
        Ok(())
    }

    /// Connections at this moment.
    pub fn connection_count(&self) -> usize {
        self.quotas.count()
    }

    /// Replaces the limits on connections while running.
    pub fn set_connection_limits(&self, limits: ConnectionLimits) {
        self.quotas.set_limits(limits);
    }

    /// Stops accepting and reading, lets what is in flight be answered until the deadline, and closes everything.
    pub async fn stop(&self, deadline: Duration) {
        self.stopping.cancel();
        for bound in &self.listeners {
            bound.socket.lock().take();
        }
        self.quotas.end_all(Ending::Drain);
        if tokio::time::timeout(deadline, self.quotas.wait_for_none()).await.is_ok() {
            return;
        }
        tracing::info!(
            connections = self.quotas.count(),
            "closing connections that did not finish"
        );
        self.quotas.end_all(Ending::Close);
        self.quotas.wait_for_none().await;
    }
}

/// Binds without listening. A host that stands for every address takes IPv4 and IPv6, as Java does.
async fn bind(config: ListenerConfig, network: &NetworkConfig) -> Result<Bound, BindError> {
    let failed = |source| BindError::Bind { host: config.host.clone(), port: config.port, source };
    let socket = match config.host.as_str() {
        "" | "0.0.0.0" | "::" => bind_every_address(config.port, network).map_err(failed)?,
        host => {
            let address = resolve(host, config.port).await?;
            bind_address(address, network).map_err(failed)?
        }
    };
    let local = socket.local_addr().map_err(failed)?;
    let traffic = Traffic::new(&Registry::default(), &config.name);
    Ok(Bound { config, local, socket: Mutex::new(Some(socket)), traffic })
}

fn bind_every_address(port: u16, network: &NetworkConfig) -> io::Result<TcpSocket> {
    match bind_address((Ipv6Addr::UNSPECIFIED, port).into(), network) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            bind_address((Ipv4Addr::UNSPECIFIED, port).into(), network) // No IPv6 on this machine.
        }
        socket => socket,
    }
}

fn bind_address(address: SocketAddr, network: &NetworkConfig) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    }
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit it; later would be too late for the window's scale.
    if let Some(bytes) = receive_buffer(network.receive_buffer_bytes, RECEIVE_BUFFER_BYTES) {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(address)?;
    Ok(socket)
}

/// The receive buffer to ask for. One that is fixed never grows, and a sender of large batches then costs more than
/// twice the CPU; so a wish that the system's own tuning can meet is left to it. Less than Kafka's default is meant as a limit.
pub fn receive_buffer(wanted: Option<u32>, default: u32) -> Option<u32> {
    fixed_receive_buffer(wanted, default, grows_up_to())
}

fn fixed_receive_buffer(wanted: Option<u32>, default: u32, grows_up_to: u32) -> Option<u32> {
    wanted.filter(|bytes| *bytes < default || *bytes > grows_up_to)
}

/// The largest receive buffer that the system gives by itself; 0 where it does not say.
fn grows_up_to() -> u32 {
    let sizes = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap_or_default();
    sizes.split_whitespace().nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

async fn resolve(host: &str, port: u16) -> Result<SocketAddr, BindError> {
    let failed = |source| BindError::Resolve { host: host.to_owned(), port, source };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses =
        tokio::net::lookup_host((bare, port)).await.map_err(|error| failed(Some(error)))?;
    addresses.next().ok_or_else(|| failed(None))
}

fn listen(
    socket: TcpSocket,
    config: &ListenerConfig,
    backlog: u32,
) -> Result<TcpListener, BindError> {
    socket.listen(backlog).map_err(|source| BindError::Bind {
        host: config.host.clone(),
        port: config.port,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_buffer_that_the_system_can_grow_to_is_not_fixed() {
        let fixed = |wanted| fixed_receive_buffer(wanted, 102_400, 6 << 20);
        assert_eq!(fixed(None), None);
        assert_eq!(fixed(Some(102_400)), None);
        assert_eq!(fixed(Some(6 << 20)), None);
        assert_eq!(fixed(Some(65_536)), Some(65_536));
        assert_eq!(fixed(Some(8 << 20)), Some(8 << 20));
        assert_eq!(fixed_receive_buffer(Some(102_400), 102_400, 0), Some(102_400));
    }
}
