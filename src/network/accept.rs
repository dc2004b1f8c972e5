//! Takes connections from a listener, within the limits, and gives each its task.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::clock;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::contained::Contained;
use crate::quotas::TooManyConnections;
use crate::server::{ListenerConfig, Shared};
use crate::task::{self, Accepted};
use crate::traffic::{Counted, Traffic};

/// How long to wait when the system has no descriptor or memory for one more connection.
const PAUSE: Duration = Duration::from_millis(100);

/// How long such an error is not said again: with `ulimit -n` reached, each try fails.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// One listener.
pub(crate) struct Acceptor {
    pub(crate) listener: TcpListener,
    /// Its number in the quotas.
    pub(crate) index: usize,
    pub(crate) config: ListenerConfig,
    pub(crate) shared: Arc<Shared>,
    pub(crate) traffic: Arc<Traffic>,
}

impl Acceptor {
    /// Runs until told to stop. A connection that has to wait for a slot keeps those after it in the backlog, as in Kafka.
    pub(crate) async fn run(self, stopping: CancellationToken) {
        let Acceptor { listener, index, config, shared, traffic } = self;
        let name: Arc<str> = config.name.as_str().into();
        let tls = config.tls.clone().map(tokio_rustls::TlsAcceptor::from);
        let accept_one = async || {
            let (socket, peer) = listener.accept().await?;
            shared.quotas.wait_for_slot(index).await;
            Ok::<_, io::Error>((socket, peer))
        };
        let mut said_at = None;
        loop {
            let accepted = tokio::select! {
                () = stopping.cancelled() => return,
                accepted = accept_one() => accepted,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    if said_at.is_none_or(|at: Instant| at.elapsed() >= SAY_AGAIN_AFTER) {
                        said_at = Some(clock::now());
                        tracing::error!(listener = %name, %error, "Error while accepting connection; it is tried again");
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let local = match configure(&socket, shared.config.send_buffer_bytes) {
                Ok(local) => local,
                Err(error) => {
                    tracing::debug!(%peer, %error, "closing a connection that cannot be configured");
                    continue;
                }
            };
            let connection_index = shared.quotas.next_index();
            let connection = Arc::new(Connection::new(
                canonical(local),
                canonical(peer),
                connection_index,
                Arc::clone(&name),
                config.security_protocol,
            ));
            match shared.quotas.register(index, &connection, connection_index) {
                Ok(registered) => {
                    let accepted = Accepted {
                        socket,
                        tls: tls.clone(),
                        connection,
                        registered,
                        counted: Counted::new(Arc::clone(&traffic)),
                    };
                    tokio::spawn(Contained::new(task::run(accepted, Arc::clone(&shared))));
                }
                Err(TooManyConnections { count_max }) => tracing::info!(
                    "Rejected connection from {}, address already has the configured maximum of {count_max} connections.",
                    crate::connection::JavaHost(connection.peer.ip()),
                ),
            }
        }
    }
}

fn configure(socket: &TcpStream, send_buffer_bytes: Option<u32>) -> io::Result<SocketAddr> {
    socket.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(socket, true)?;
    if let Some(bytes) = send_buffer_bytes {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        rustix::net::sockopt::set_socket_send_buffer_size(socket, bytes)?;
    }
    socket.local_addr()
}

/// An IPv4 client of a socket for both is an IPv4 client.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) => SocketAddr::new(ip.to_canonical(), address.port()),
        IpAddr::V4(_) => address,
    }
}
