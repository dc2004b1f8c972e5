//! Who is at the other end: what a request knows of its connection, and how the server tells a connection to end.

use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use common::security_protocol::SecurityProtocol;
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A connection of a client or a broker.
pub struct Connection {
    /// Kafka's id: `localHost:localPort-remoteHost:remotePort-index`.
    pub id: String,
    /// The address of the other end; an IPv4 address is never in its IPv6 form.
    pub peer: SocketAddr,
    /// Our own address.
    pub local: SocketAddr,
    /// The name of the listener that accepted it.
    pub listener: Arc<str>,
    /// How the listener is secured.
    pub security_protocol: SecurityProtocol,
    software: Mutex<ClientSoftware>,
    ending: AtomicU8,
    ended: Notify,
    /// When bytes last came or went, in milliseconds since the server started.
    pub(crate) last_active_ms: AtomicU64,
}

/// What a client said of itself in ApiVersions. Source: KIP-511.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSoftware {
    /// Such as `apache-kafka-java`; `unknown` until told.
    pub name: StrBytes,
    /// Such as `3.9.1`; `unknown` until told.
    pub version: StrBytes,
}

/// How a connection is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Ending {
    /// It goes on.
    None,
    /// It reads no more, sends the answers that are under way, and closes.
    Drain,
    /// It closes now.
    Close,
}

impl Connection {
    pub(crate) fn new(
        local: SocketAddr,
        peer: SocketAddr,
        index: u64,
        listener: Arc<str>,
        security_protocol: SecurityProtocol,
    ) -> Connection {
        let unknown = StrBytes::from_static_str("unknown");
        let id = format!("{}-{}-{index}", JavaAddress(local), JavaAddress(peer));
        Connection {
            id,
            peer,
            local,
            listener,
            security_protocol,
            software: Mutex::new(ClientSoftware { name: unknown.clone(), version: unknown }),
            ending: AtomicU8::new(Ending::None as u8),
            ended: Notify::new(),
            last_active_ms: AtomicU64::new(0),
        }
    }

    /// What the client said of itself.
    pub fn software(&self) -> ClientSoftware {
        self.software.lock().clone()
    }

    /// Keeps what a valid ApiVersions request said.
    pub fn set_software(&self, software: ClientSoftware) {
        *self.software.lock() = software;
    }

    /// Tells the connection to end; a stronger word replaces a weaker one.
    pub(crate) fn end(&self, ending: Ending) {
        self.ending.fetch_max(ending as u8, Ordering::Release);
        self.ended.notify_one();
    }

    pub(crate) fn ending(&self) -> Ending {
        match self.ending.load(Ordering::Acquire) {
            0 => Ending::None,
            1 => Ending::Drain,
            _ => Ending::Close,
        }
    }

    /// Ends after the next `end`.
    pub(crate) async fn told_to_end(&self) {
        self.ended.notified().await;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Connection").field(&self.id).finish()
    }
}

/// An address as Java prints it: IPv6 in eight groups, without `::` and without brackets.
struct JavaAddress(SocketAddr);

impl fmt::Display for JavaAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_host(formatter, self.0.ip())?;
        write!(formatter, ":{}", self.0.port())
    }
}

/// A host as Java prints it in `InetAddress.toString` without a name: `/127.0.0.1`.
pub struct JavaHost(pub IpAddr);

impl fmt::Display for JavaHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_char('/')?;
        write_host(formatter, self.0)
    }
}

fn write_host(formatter: &mut fmt::Formatter<'_>, host: IpAddr) -> fmt::Result {
    match host {
        IpAddr::V4(host) => write!(formatter, "{host}"),
        IpAddr::V6(host) => {
            for (index, group) in host.segments().into_iter().enumerate() {
                let colon = if index == 0 { "" } else { ":" };
                write!(formatter, "{colon}{group:x}")?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_as_java_writes_it() {
        let id = |local: &str, peer: &str| {
            let (local, peer) = (local.parse().unwrap(), peer.parse().unwrap());
            Connection::new(local, peer, 7, "PLAINTEXT".into(), SecurityProtocol::Plaintext).id
        };
        assert_eq!(id("127.0.0.1:9092", "10.0.0.2:555"), "127.0.0.1:9092-10.0.0.2:555-7");
        assert_eq!(
            id("[::1]:9092", "[fe80::a:0:1]:555"),
            "0:0:0:0:0:0:0:1:9092-fe80:0:0:0:0:a:0:1:555-7"
        );
    }
}
