//! TLS to ZooKeeper where the name in a server's certificate does not count.
//!
//! The library has a switch for it, which only unsafe code may turn. So it is given addresses of our own instead, one for
//! each server, and what comes there from this process goes on under TLS of ours. Others on this machine are sent away.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::Arc,
    time::Duration,
};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SOCK_DIAG,
    sockopt::Timeout,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinSet, spawn_blocking},
};
use tokio_rustls::TlsConnector;
use tracing::{debug, warn};

/// How often the table of sockets is read until one is found there, where the kernel does not tell of one alone.
const LOOKS: usize = 5;
/// How long the kernel may take to tell of a socket; it does at once.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

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
                Ok((inner, peer)) => {
                    let entrance = inner.local_addr();
                    let look = move || is_of_this_process(peer, entrance?);
                    match spawn_blocking(look).await {
                        Ok(Ok(true)) => {
                            connections.spawn(connection(inner, server, tls.clone()));
                        }
                        _ => warn!(%peer, "a connection that is not the broker's own is not led to ZooKeeper"),
                    }
                }
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

/// Whether the other end of a connection within this machine is a socket of ours. Its two addresses are its own, so that it
/// has no other owner.
fn is_of_this_process(peer: SocketAddr, entrance: SocketAddr) -> io::Result<bool> {
    let (SocketAddr::V4(peer), SocketAddr::V4(entrance)) = (peer, entrance) else {
        return Ok(false);
    };
    let asked = asked_inode(peer, entrance).unwrap_or_else(|error| {
        debug!(%error, "the kernel does not tell of one socket");
        None
    });
    let inode = match asked {
        Some(inode) => inode.to_string(),
        // It may also be that this kernel is built without the answer.
        None => {
            let mut looks = (0..LOOKS).map(|_| listed_inode(peer, entrance));
            looks.find_map(Result::transpose).ok_or(ErrorKind::NotFound)??
        }
    };
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

/// The inode of the TCP socket between two addresses, of which the first is its own; none where there is no such socket. An error is
/// that the kernel does not say. Source: sock_diag(7).
fn asked_inode(own: SocketAddrV4, other: SocketAddrV4) -> io::Result<Option<u32>> {
    /// Of `nlmsghdr`, which every message begins with.
    const HEADER_SIZE: usize = 16;
    const REQUEST_SIZE: u32 = 72;
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST: u16 = 1;
    const NLMSG_ERROR: u16 = 2;
    const AF_INET: u8 = 2;
    const IPPROTO_TCP: u8 = 6;
    /// Of `inet_diag_msg`, behind the header.
    const INODE_AT: usize = 68;

    let mut request = Vec::with_capacity(REQUEST_SIZE as usize);
    request.extend(REQUEST_SIZE.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]); // Neither number nor sender.
    request.extend([AF_INET, IPPROTO_TCP, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes()); // In any state.
    request.extend(own.port().to_be_bytes());
    request.extend(other.port().to_be_bytes());
    for address in [own.ip(), other.ip()] {
        request.extend(address.octets());
        request.extend([0; 12]); // Room for one of IPv6.
    }
    request.extend([0; 4]); // On any interface.
    request.extend([u8::MAX; 8]); // No cookie.

    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIME_MAX))?;
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0; 512];
    let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    let answer = &answer[..length];
    let number = |at: usize| -> io::Result<u32> {
        let bytes = answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        Ok(u32::from_ne_bytes(bytes.ok_or(ErrorKind::UnexpectedEof)?))
    };
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match kind {
        Some(SOCK_DIAG_BY_FAMILY) => number(HEADER_SIZE + INODE_AT).map(Some),
        Some(NLMSG_ERROR) => {
            let code = number(HEADER_SIZE)?.cast_signed().wrapping_neg();
            match io::Error::from_raw_os_error(code) {
                error if error.kind() == ErrorKind::NotFound => Ok(None),
                error => Err(error),
            }
        }
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// The same by the table of all sockets; none where it is not seen: the table is read in parts, and one that moves meanwhile is not
/// in it.
fn listed_inode(own: SocketAddrV4, other: SocketAddrV4) -> io::Result<Option<String>> {
    // As the kernel writes it: the address as it lies in memory, the port as a number.
    let written = |address: SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let wanted = [written(own), written(other)];
    let table = fs::read_to_string("/proc/self/net/tcp")?;
    let rows = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let mut own = rows.filter(|row| row.get(1..3).is_some_and(|ends| ends == wanted));
    Ok(own.find_map(|row| row.get(9).map(|inode| (*inode).to_owned())))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        process::{Command, Stdio},
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

    #[test]
    fn the_kernel_and_its_table_know_a_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(entrance) = listener.local_addr().unwrap() else { panic!("an IPv4") };
        let stream = std::net::TcpStream::connect(entrance).unwrap();
        let SocketAddr::V4(own) = stream.local_addr().unwrap() else { panic!("an IPv4") };
        let inode = rustix::fs::fstat(&stream).unwrap().st_ino;
        assert_eq!(asked_inode(own, entrance).unwrap().map(u64::from), Some(inode));
        let listed = (0..).find_map(|_| listed_inode(own, entrance).unwrap());
        assert_eq!(listed, Some(inode.to_string()));
        assert!(is_of_this_process(own.into(), entrance.into()).unwrap());
        drop(listener);
        assert_eq!(asked_inode(entrance, entrance).unwrap(), None);
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
