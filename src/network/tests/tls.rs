//! The same over TLS: nothing of a file goes past the encryption.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use common::security_protocol::SecurityProtocol;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::support::{Client, FETCH, Log, METADATA, Order, Orders, listener, request, timely};
use crate::quotas::ListenerLimits;
use crate::server::{NetworkConfig, SocketServer};
use crate::service::Piece;

/// A server with a certificate of its own making, and the certificate.
async fn start(orders: &Orders) -> (SocketServer, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    let mut listener = listener(ListenerLimits::default());
    listener.security_protocol = SecurityProtocol::Ssl;
    listener.tls = Some(Arc::new(config));
    let server = SocketServer::bind(vec![listener], NetworkConfig::default()).await.unwrap();
    server.start(Arc::new(orders.clone())).unwrap();
    (server, certificate)
}

async fn connect(server: &SocketServer, trusted: CertificateDer<'static>) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpStream::connect(server.local_address("PLAINTEXT").unwrap()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    timely(TlsConnector::from(Arc::new(config)).connect(name, socket)).await.unwrap()
}

async fn receive(stream: &mut TlsStream<TcpStream>) -> Vec<u8> {
    let size = timely(stream.read_i32()).await.unwrap();
    let mut content = vec![0; usize::try_from(size).unwrap()];
    timely(stream.read_exact(&mut content)).await.unwrap();
    content
}

#[tokio::test]
async fn files_and_bytes_arrive_whole() {
    let contents: Vec<u8> = (0..700_000).map(|index| (index / 251 + index) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&contents).unwrap();
    let pieces = vec![
        Piece::Bytes(Bytes::from_static(b"head")),
        Piece::File { file: Arc::new(file), position: 5, length: 600_000 },
        Piece::Bytes(Bytes::from_static(b"tail")),
    ];
    let orders = Orders::of(&[Order::Pieces("file", pieces), Order::Hold("held")]);
    let (server, certificate) = start(&orders).await;
    let mut stream = connect(&server, certificate).await;
    for _ in 0..2 {
        let requests = [request(FETCH, 1, "file"), request(METADATA, 2, "held")].concat();
        stream.write_all(&requests).await.unwrap();
        let expected = [&[0, 0, 0, 1], &b"head"[..], &contents[5..600_005], b"tail"].concat();
        assert!(receive(&mut stream).await == expected, "the contents differ");
        timely(orders.wait_again_for("held")).await;
        orders.release("held");
        assert_eq!(receive(&mut stream).await, b"\0\0\0\x02held");
    }
}

#[tokio::test]
async fn a_plaintext_client_is_told_of_in_one_line() {
    let (log, _guard) = Log::capture();
    let (server, _) = start(&Orders::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(METADATA, 1, "x")]).await;
    let mut rest = Vec::new();
    // The alert of TLS, or a reset when our bytes were not all read.
    let _ = timely(client.socket.read_to_end(&mut rest)).await;
    timely(async {
        while server.connection_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with(
            "INFO Failed authentication with /127.0.0.1 (channelId=127.0.0.1:*-127.0.0.1:*-0) \
             (SSL handshake failed)"
        ),
        "{lines:?}"
    );
}
