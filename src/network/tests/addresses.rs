//! Which addresses a listener takes, and how a port that is taken is told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio::net::TcpStream;

use super::support::{Client, METADATA, Orders, listener, request};
use crate::quotas::ListenerLimits;
use crate::server::{ListenerConfig, NetworkConfig, SocketServer};

fn on(host: &str, port: u16) -> Vec<ListenerConfig> {
    let mut listener = listener(ListenerLimits::default());
    listener.host = host.to_owned();
    listener.port = port;
    vec![listener]
}

async fn serves(server: &SocketServer, host: IpAddr) {
    let port = server.local_address("PLAINTEXT").unwrap().port();
    let mut client = Client { socket: TcpStream::connect((host, port)).await.unwrap() };
    client.send(&[request(METADATA, 1, "x")]).await;
    client.expect(1, "x").await;
}

/// Whether this machine has IPv6 at all.
fn has_ipv6() -> bool {
    std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[tokio::test]
async fn a_listener_without_host_takes_both_kinds_of_addresses() {
    for host in ["", "0.0.0.0", "::"] {
        let server = SocketServer::bind(on(host, 0), NetworkConfig::default()).await.unwrap();
        server.start(Arc::new(Orders::default())).unwrap();
        serves(&server, Ipv4Addr::LOCALHOST.into()).await;
        if has_ipv6() {
            serves(&server, Ipv6Addr::LOCALHOST.into()).await;
        }
    }
}

#[tokio::test]
async fn a_host_is_a_name_or_an_address_with_or_without_brackets() {
    let hosts =
        if has_ipv6() { &["localhost", "127.0.0.1", "::1", "[::1]"][..] } else { &["localhost"] };
    for host in hosts {
        let server = SocketServer::bind(on(host, 0), NetworkConfig::default()).await.unwrap();
        server.start(Arc::new(Orders::default())).unwrap();
        let local = server.local_address("PLAINTEXT").unwrap().ip();
        assert!(local.is_loopback());
        serves(&server, local).await;
    }
}

#[tokio::test]
async fn a_taken_port_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let bound = SocketServer::bind(on("127.0.0.1", port), NetworkConfig::default()).await;
    let error = bound.err().unwrap();
    assert_eq!(error.to_string(), format!("Socket server failed to bind to 127.0.0.1:{port}"));
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "Address already in use (os error 98)");
}
