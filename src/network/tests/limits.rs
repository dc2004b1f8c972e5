//! Silent, slow, many.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::counters::{MetricName, Registry};
use tokio::io::AsyncWriteExt;

use super::support::{
    Client, Log, METADATA, Order, Orders, PRODUCE, listener, request, request_of_size, start,
    timely,
};
use crate::quotas::{ConnectionLimits, ListenerLimits};
use crate::server::{NetworkConfig, SocketServer};
use crate::service::Piece;

const SHORT: Duration = Duration::from_millis(30);

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let config = NetworkConfig { idle_max: Some(SHORT), ..NetworkConfig::default() };
    let server = start(&Orders::default(), config).await;
    let mut silent = Client::connect(&server).await;
    let mut half = Client::connect(&server).await;
    half.socket.write_all(&[0, 0, 1]).await.unwrap();
    silent.expect_closed().await;
    half.expect_closed().await;
}

#[tokio::test]
async fn a_connection_whose_request_waits_is_not_silent() {
    let orders = Orders::of(&[Order::Hold("a")]);
    let config = NetworkConfig { idle_max: Some(SHORT), ..NetworkConfig::default() };
    let server = start(&orders, config).await;
    let mut waiting = Client::connect(&server).await;
    waiting.send(&[request(PRODUCE, 1, "a")]).await;
    timely(orders.wait_for("a")).await;
    for _ in 0..3 {
        Client::connect(&server).await.expect_closed().await; // Passes as much time as a connection may be silent.
    }
    orders.release("a");
    waiting.expect(1, "a").await;
    waiting.expect_closed().await;
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_closed() {
    let pieces = vec![Piece::Bytes(Bytes::from(vec![7; 30_000_000]))];
    let orders = Orders::of(&[Order::Pieces("large", pieces)]);
    let config = NetworkConfig { idle_max: Some(SHORT), ..NetworkConfig::default() };
    let server = start(&orders, config).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(METADATA, 1, "large")]).await;
    timely(async {
        while server.connection_count() > 0 || orders.happened().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_reader_stops_its_own_requests_and_gets_everything() {
    let large = Bytes::from(vec![7; 10_000_000]);
    let pieces = vec![Piece::Bytes(large.clone())];
    let orders = Orders::of(&[Order::Pieces("large", pieces)]);
    let server = start(&orders, NetworkConfig::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[request(METADATA, 1, "large")]).await;
    timely(orders.wait_for("large")).await;
    client.send(&[request(METADATA, 2, "next")]).await;
    let mut other = Client::connect(&server).await;
    for id in 0..10 {
        other.send(&[request(METADATA, id, "other")]).await;
        other.expect(id, "other").await;
    }
    assert!(!orders.happened().contains(&"next".to_owned()), "it started beside an unsent answer");
    assert_eq!(timely(client.receive()).await, (1, large));
    client.expect(2, "next").await;
}

#[tokio::test]
async fn requests_in_flight_are_bounded_by_number_and_by_bytes() {
    let orders = Orders::of(&[Order::Hold("a"), Order::Hold("b"), Order::Hold("c")]);
    let config = NetworkConfig {
        requests_in_flight_max: 2,
        request_bytes_in_flight_max: 10_000,
        ..NetworkConfig::default()
    };
    let server = start(&orders, config).await;
    let mut client = Client::connect(&server).await;
    let requests = [
        request(PRODUCE, 1, "a"),
        request(PRODUCE, 2, "b"),
        request_of_size(PRODUCE, 3, "c", 9_900),
        request_of_size(PRODUCE, 4, "d", 9_900),
    ];
    client.send(&requests).await;
    timely(orders.wait_for("b")).await;
    let mut other = Client::connect(&server).await;
    other.send(&[request(METADATA, 1, "other")]).await;
    other.expect(1, "other").await;
    assert_eq!(orders.happened(), ["a", "b", "other"]); // Two are in flight.
    orders.release("a");
    client.expect(1, "a").await;
    timely(orders.wait_for("c")).await;
    orders.release("b");
    client.expect(2, "b").await;
    other.send(&[request(METADATA, 2, "other")]).await;
    other.expect(2, "other").await;
    assert!(!orders.happened().contains(&"d".to_owned())); // One is in flight, of all the bytes.
    orders.release("c");
    client.expect(3, "c").await;
    client.expect(4, "d").await;
}

#[tokio::test]
async fn no_request_begins_while_the_memory_for_requests_is_full() {
    let orders = Orders::of(&[Order::Hold("a")]);
    let config =
        NetworkConfig { queued_request_bytes_max: Some(5_000), ..NetworkConfig::default() };
    let server = start(&orders, config).await;
    let mut first = Client::connect(&server).await;
    let mut second = Client::connect(&server).await;
    let mut idle = Client::connect(&server).await;
    for client in [&mut second, &mut idle] {
        client.send(&[request(METADATA, 1, "before")]).await;
        client.expect(1, "before").await;
    }
    first.send(&[request_of_size(PRODUCE, 1, "a", 10_000)]).await;
    timely(orders.wait_for("a")).await;
    second.send(&[request(METADATA, 2, "after")]).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(orders.happened(), ["before", "before", "a"]);
    orders.release("a");
    first.expect(1, "a").await;
    second.expect(2, "after").await;
    idle.send(&[request(METADATA, 3, "later")]).await;
    idle.expect(3, "later").await;
}

#[tokio::test]
async fn connections_requests_and_bytes_are_counted() {
    let registry = Registry::default();
    let orders = Orders::of(&[Order::Silence("quiet")]);
    let listeners = vec![listener(ListenerLimits::default())];
    let mut server = SocketServer::bind(listeners, NetworkConfig::default()).await.unwrap();
    server.count_in(&registry);
    server.start(Arc::new(orders)).unwrap();
    drop(Client::connect(&server).await);
    let mut client = Client::connect(&server).await;
    let requests = [request(PRODUCE, 1, "quiet"), request(METADATA, 2, "loud")];
    let sent = requests.concat().len() as u64;
    client.send(&requests).await;
    client.expect(2, "loud").await;
    timely(async {
        while server.connection_count() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let meter = |name| {
        let name = MetricName::new("kafka.server", "socket-server-metrics", name);
        registry.meter(name.tag("listener", "PLAINTEXT")).count()
    };
    assert_eq!(meter("connection-creation-total"), 2);
    assert_eq!(meter("connection-close-total"), 1);
    assert_eq!((meter("request-total"), meter("response-total")), (2, 1));
    assert_eq!((meter("incoming-byte-total"), meter("outgoing-byte-total")), (sent, 12));
    let connections = MetricName::new("kafka.server", "socket-server-metrics", "connection-count");
    assert_eq!(registry.gauge(connections.tag("listener", "PLAINTEXT")).value(), 1);
}

fn limited(connections: ConnectionLimits) -> NetworkConfig {
    NetworkConfig { connections, ..NetworkConfig::default() }
}

#[tokio::test]
async fn a_connection_over_the_maximum_waits_for_another_to_end() {
    let limits = ConnectionLimits { connections_max: 1, ..ConnectionLimits::default() };
    let orders = Orders::default();
    let server = start(&orders, limited(limits)).await;
    let mut first = Client::connect(&server).await;
    first.send(&[request(METADATA, 1, "first")]).await;
    first.expect(1, "first").await;
    let mut second = Client::connect(&server).await;
    second.send(&[request(METADATA, 2, "second")]).await;
    first.send(&[request(METADATA, 3, "again")]).await;
    first.expect(3, "again").await;
    assert_eq!(orders.happened(), ["first", "again"]);
    drop(first);
    second.expect(2, "second").await;
}

#[tokio::test]
async fn an_address_over_its_maximum_is_refused() {
    let (log, _guard) = Log::capture();
    let limits = ConnectionLimits { connections_per_ip_max: 1, ..ConnectionLimits::default() };
    let server = start(&Orders::default(), limited(limits.clone())).await;
    let mut first = Client::connect(&server).await;
    first.send(&[request(METADATA, 1, "first")]).await;
    first.expect(1, "first").await;
    Client::connect(&server).await.expect_closed().await;
    assert_eq!(
        log.lines(),
        [
            "INFO Rejected connection from /127.0.0.1, address already has the configured maximum of 1 connections."
        ]
    );
    let overrides = [(IpAddr::V4(Ipv4Addr::LOCALHOST), 2)].into_iter().collect();
    server.set_connection_limits(ConnectionLimits {
        connections_per_ip_overrides: overrides,
        ..limits
    });
    let mut second = Client::connect(&server).await;
    second.send(&[request(METADATA, 2, "second")]).await;
    second.expect(2, "second").await;
    Client::connect(&server).await.expect_closed().await;
}

#[tokio::test]
async fn new_connections_come_no_faster_than_the_rate() {
    let limits = ConnectionLimits { creation_rate_max: 100, ..ConnectionLimits::default() };
    let server = start(&Orders::default(), limited(limits)).await;
    let started = common::clock::now();
    for id in 0..1_010 {
        let mut client = Client::connect(&server).await;
        client.send(&[request(METADATA, id, "x")]).await;
        client.expect(id, "x").await;
    }
    // A burst of ten seconds' worth passes; each after it waits a hundredth of a second, less what passed meanwhile.
    assert!(started.elapsed() >= Duration::from_millis(90), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_broker_gets_in_where_clients_filled_the_house() {
    let limits = ConnectionLimits { connections_max: 1, ..ConnectionLimits::default() };
    let mut protected = listener(ListenerLimits { protected: true, ..ListenerLimits::default() });
    protected.name = "INTERNAL".to_owned();
    let listeners = vec![listener(ListenerLimits::default()), protected];
    let server = SocketServer::bind(listeners, limited(limits)).await.unwrap();
    server.start(Arc::new(Orders::default())).unwrap();
    let mut client = Client::connect(&server).await;
    client.send(&[request(METADATA, 1, "client")]).await;
    client.expect(1, "client").await;
    let address = server.local_address("INTERNAL").unwrap();
    let mut broker = Client { socket: tokio::net::TcpStream::connect(address).await.unwrap() };
    broker.send(&[request(METADATA, 2, "broker")]).await;
    broker.expect(2, "broker").await;
    client.expect_closed().await;
}
