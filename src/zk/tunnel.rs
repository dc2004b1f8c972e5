//! TLS to ZooKeeper where the name in a server's certificate does not count.
//!
//! The library has a switch for it, which only unsafe code may turn. So it is given addresses of our own instead, one for
//! each server, and what comes there from this process goes on under TLS of ours. Others on this machine are sent away.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinSet, spawn_blocking},
};
use tokio_rustls::TlsConnector;
use tracing::{debug, warn};

/// How often the table of sockets is read until one is found there.
const LOOKS: usize = 5;

/// Goes with its tasks when it is dropped.
pub(crate) struct Tunnel {
    /// Where the library is to connect, in the order of the servers.
    pub(crate) entrances: String,
    _servers: JoinSet<()>,
}

impl Tunnel {
    /// Opens an entrance for each `address:port` of the list.
    pub(crate) async fn open(addresses: &str, tls: &Arc<ClientConfig>) -> io::Result<Tunnel> {
        let (mut entrances, mut servers) = (Vec::new(), JoinSet::new());
        for server in addresses.split(',').filter(|address| !address.is_empty()) {
            let server: SocketAddr = server.parse().map_err(io::Error::other)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            entrances.push(listener.local_addr()?.to_string());
            servers.spawn(lead(listener, server, TlsConnector::from(tls.clone())));
        }
        Ok(Tunnel { entrances: entrances.join(","), _servers: servers })
    }
}

async fn lead(listener: TcpListener, server: SocketAddr, tls: TlsConnector) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // One look at a time, however many knock.
                Ok((inner, peer)) => match spawn_blocking(move || is_of_this_process(peer)).await {
                    Ok(Ok(true)) => {
                        connections.spawn(connection(inner, server, tls.clone()));
                    }
                    _ => warn!(%peer, "a connection that is not the broker's own is not led to ZooKeeper"),
                },
                Err(error) => {
                    debug!(%error, "cannot take a connection of our own");
                    return;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(mut inner: TcpStream, server: SocketAddr, tls: TlsConnector) {
    let outer = async {
        inner.set_nodelay(true)?;
        let outer = TcpStream::connect(server).await?;
        outer.set_nodelay(true)?;
        Ok::<_, io::Error>(outer)
    };
    let outer = match outer.await {
        Ok(outer) => outer,
        Err(error) => return debug!(%error, %server, "cannot reach ZooKeeper"),
    };
    // The address stands for the name, which nobody compares.
    match tls.connect(ServerName::from(server.ip()), outer).await {
        Ok(mut outer) => {
            // How it ends says nothing that the session does not find out.
            let _ = copy_bidirectional(&mut inner, &mut outer).await;
        }
        Err(error) => debug!(%error, %server, "no TLS with ZooKeeper"),
    }
}

/// Whether the other end of a connection within this machine is a socket of ours. Its address is its own, so that it has no
/// other owner.
fn is_of_this_process(peer: SocketAddr) -> io::Result<bool> {
    let SocketAddr::V4(peer) = peer else { return Ok(false) };
    // As the kernel writes it: the address as it lies in memory, the port as a number.
    let address = format!("{:08X}:{:04X}", u32::from_ne_bytes(peer.ip().octets()), peer.port());
    // The table is read in parts, and one that moves meanwhile is not in it.
    let mut looks = (0..LOOKS).map(|_| inode_of(&address));
    let inode = looks.find_map(Result::transpose).ok_or(ErrorKind::NotFound)??;
    let wanted = format!("socket:[{inode}]");
    for descriptor in fs::read_dir("/proc/self/fd")? {
        // One may be closed meanwhile.
        let Ok(target) = descriptor.and_then(|entry| fs::read_link(entry.path())) else { continue };
        if target.as_os_str() == wanted.as_str() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The inode of the socket with that address; none where it is not seen.
fn inode_of(address: &str) -> io::Result<Option<String>> {
    let table = fs::read_to_string("/proc/self/net/tcp")?;
    let rows = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let mut own = rows.filter(|row| row.get(1) == Some(&address));
    Ok(own.find_map(|row| row.get(9).map(|inode| (*inode).to_owned())))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        process::{Command, Stdio},
        time::Duration,
    };

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::tls_fixture;

    /// A server with a certificate for another name, which answers with what it gets; and a client's side that trusts a certificate.
    async fn echo(is_trusted: bool) -> (SocketAddr, Arc<ClientConfig>) {
        let (config, client) = tls_fixture::sides("somewhere.else", is_trusted, false);
        let acceptor = TlsAcceptor::from(config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut bytes = [0; 4];
                if stream.read_exact(&mut bytes).await.is_ok() {
                    stream.write_all(&bytes).await.unwrap();
                }
            }
        });
        (address, client)
    }

    /// What comes back for `ruok`.
    async fn asked(entrance: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(entrance).await.unwrap();
        let mut answer = Vec::new();
        // One that is sent away may find the end at any step.
        let _ = stream.write_all(b"ruok").await;
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
        answer
    }

    #[tokio::test]
    async fn a_server_of_any_name_is_led_to_where_its_certificate_is_trusted() {
        let (server, tls) = echo(true).await;
        let tunnel = Tunnel::open(&server.to_string(), &tls).await.unwrap();
        assert_eq!(asked(&tunnel.entrances).await, b"ruok");

        let (server, tls) = echo(false).await;
        let tunnel = Tunnel::open(&server.to_string(), &tls).await.unwrap();
        assert_eq!(asked(&tunnel.entrances).await, b"");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn another_process_is_sent_away() {
        let (server, tls) = echo(true).await;
        let tunnel = Tunnel::open(&server.to_string(), &tls).await.unwrap();
        let port = tunnel.entrances.rsplit(':').next().unwrap().to_owned();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf ruok >&3; cat <&3");
        let answer = spawn_blocking(move || {
            let mut bash = Command::new("bash")
                .args(["-c", &script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut answer = String::new();
            // It may have been sent away already.
            let _ = bash.stdin.take().unwrap().write_all(b"");
            bash.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
            bash.wait().unwrap();
            answer
        });
        assert_eq!(answer.await.unwrap(), "");
    }

    #[tokio::test]
    async fn it_ends_with_its_owner() {
        let (server, tls) = echo(true).await;
        let tunnel = Tunnel::open(&server.to_string(), &tls).await.unwrap();
        let entrance = tunnel.entrances.clone();
        drop(tunnel);
        tokio::task::yield_now().await;
        assert!(TcpStream::connect(entrance).await.is_err());
    }
}
